/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/serve/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/item.h"

json_t *serve_memory_json(enum covey_memory memory, int device)
{
    const char *kind = memory == COVEY_MEMORY_CUDA ? "cuda" : "managed";

    if (memory == COVEY_MEMORY_HOST)
        return json_string("host");
    return device < 0 ? json_string(kind) : json_sprintf("%s:%d", kind, device);
}

static json_t *group_item(const char *name, const struct covey_group_info *info)
{
    return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:o}", "name", item_text(name), "state",
                     serve_state_name(info->state), "members", item_u64(info->members), "memory",
                     serve_memory_json(info->memory, info->device), "budget_bytes",
                     item_u64(info->budget_bytes), "used_bytes", item_u64(info->used_bytes), "objects",
                     item_u64(info->objects), "keep_versions", item_u64(info->keep_versions), "schedule",
                     info->schedule, "block_bytes",
                     info->block_bytes == 0 ? json_null() : item_u64(info->block_bytes));
}

int serve_groups(struct client *client, const struct request *request)
{
    const struct server *server = client->server;
    struct page page;
    int result = 0;

    (void)request;
    page_begin(&page, client);
    for (size_t i = 0; i < server->group_count && result == 0; i++) {
        struct covey_group_info info;

        result = covey_group_info(server->groups[i], &info);
        if (result == 0)
            page_add(&page, group_item(covey_group_name(server->groups[i]), &info));
    }
    if (page_end(&page) != 0)
        return page.result;
    if (result != 0)
        return client_fail_node(client, result);
    return client_send(client, REPLY_DONE, json_object());
}

static json_t *object_item(const struct covey_object_info *info)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o}", "name", item_text(info->name),
                     "version", item_u64(info->version), "bytes", item_u64(info->bytes), "digest",
                     item_hex(info->digest), "buffers", item_u64(info->count), "state", info->state,
                     "bytes_done", item_u64(info->bytes_done), "pins", item_u64(info->pins), "since",
                     item_time(info->since_ns));
}

int serve_objects(struct client *client, const struct request *request)
{
    struct covey_group *group;
    struct covey_object_info *list;
    struct fail fail = {0};
    struct page page;
    size_t count;
    int result;

    if (server_group(client->server, request->group, &group, &fail) != 0)
        return client_fail(client, &fail);
    result = covey_objects(group, &list, &count);
    if (result != 0)
        return client_fail_node(client, result);
    page_begin(&page, client);
    for (size_t i = 0; i < count && page.result == 0; i++)
        page_add(&page, object_item(&list[i]));
    free(list);
    if (page_end(&page) != 0)
        return page.result;
    return client_send(client, REPLY_DONE, json_pack("{s:o}", "group", item_text(covey_group_name(group))));
}

/* Durations are in milliseconds, under a name that says so. */
static json_t *stat_item(const struct covey_stat *stat)
{
    char name[64];

    if (strcmp(stat->unit, "ns") != 0)
        return json_pack("{s:s, s:o, s:s}", "name", stat->name, "value", item_u64(stat->value), "unit",
                         stat->unit);
    snprintf(name, sizeof(name), "%s_ms", stat->name);
    return json_pack("{s:o, s:f, s:s}", "name", item_text(name), "value", (double)stat->value / 1e6, "unit",
                     "ms");
}

int serve_stats(struct client *client, const struct request *request)
{
    struct covey_stat *stats;
    struct page page;
    size_t count;
    int result = covey_node_stats(client->server->node, &stats, &count);

    (void)request;
    if (result != 0)
        return client_fail_node(client, result);
    page_begin(&page, client);
    for (size_t i = 0; i < count; i++)
        page_add(&page, stat_item(&stats[i]));
    free(stats);
    if (page_end(&page) != 0)
        return page.result;
    return client_send(client, REPLY_DONE, json_object());
}

/* --- route ---------------------------------------------------------------------------------------------- */

static json_t *route_item(const struct covey_member *member, const char *memory,
                          const struct covey_route *route, const char *problem)
{
    bool known = problem == NULL;

    return json_pack("{s:o, s:o, s:s, s:o, s:b, s:o}", "id", item_u64(member->id), "name",
                     item_text(member->name), "memory", memory, "transport",
                     known ? item_text(route->transport) : json_null(), "staged", known && route->staged,
                     "text", item_text(known ? route->text : problem));
}

static void add_routes(struct page *page, const struct client *client, struct covey_group *group,
                       const struct covey_member *member)
{
    static const char *const names[] = {"host", "cuda"};
    static const enum covey_memory kinds[] = {COVEY_MEMORY_HOST, COVEY_MEMORY_CUDA};
    struct covey_route route;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        int result = covey_route(group, member->id, kinds[i], &route);

        page_add(page, route_item(member, names[i], &route,
                                  result != 0 ? covey_error_detail(client->server->node) : NULL));
    }
}

static bool is_called(const struct covey_member *member, const char *name)
{
    char id[16];

    snprintf(id, sizeof(id), "%u", member->id);
    return name == NULL || strcmp(name, member->name) == 0 || strcmp(name, id) == 0;
}

int serve_route(struct client *client, const struct request *request)
{
    const struct server *server = client->server;
    struct fail fail = {0};
    struct covey_view view;
    struct page page;
    size_t found = 0;
    int result;

    if (server->group_count == 0) {
        fail_set(&fail, COVEY_NOT_FOUND, "%s is in no group: nothing is sent", server->node_name);
        return client_fail(client, &fail);
    }
    result = covey_node_view(server->node, &view);
    if (result != 0)
        return client_fail_node(client, result);
    page_begin(&page, client);
    for (uint32_t i = 0; i < view.count && page.result == 0; i++) {
        if (!is_called(&view.members[i], request->name))
            continue;
        found++;
        add_routes(&page, client, server->groups[0], &view.members[i]);
    }
    covey_view_free(&view);
    if (page_end(&page) != 0)
        return page.result;
    if (found > 0)
        return client_send(client, REPLY_DONE, json_object());
    fail_set(&fail, COVEY_NOT_FOUND, "no node is called %s", request->name != NULL ? request->name : "so");
    return client_fail(client, &fail);
}
