/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/serve/serve.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/item.h"
#include "daemon/condition.h"

#define PATIENCE_NS UINT64_C(30000000000) /* for what a quorum decides in milliseconds */

/* --- Waiting for a view --------------------------------------------------------------------------------- */

/* What is waited for. judge() looks at a view and returns 1: it is there, 0: not yet, or an error with its
 * sentence. */
struct wish {
    int (*judge)(const struct wish *wish, const struct covey_view *view, struct fail *fail);
    const char *what;
    uint32_t id;
    uint64_t incarnation;
};

/* 0 with the view, which is the caller's to free; 1 after the client was told of an error; or it is gone. */
static int await_wish(struct client *client, const struct wish *wish, struct covey_view *view)
{
    uint64_t until_ns = condition_now_ns() + PATIENCE_NS;
    struct fail fail = {0};
    int result = 1;

    while (result == 1) {
        uint64_t change = journal_await_change(&client->server->journal, 0, 0);

        result = covey_node_view(client->server->node, view);
        if (result != 0)
            return client_fail_node(client, result) == 0 ? 1 : result;
        result = wish->judge(wish, view, &fail);
        if (result == 1)
            return 0;
        covey_view_free(view);
        if (result == 0 && condition_now_ns() >= until_ns)
            result = fail_set(&fail, COVEY_TIMEOUT, "%s is wished for, but not done yet: see covey table",
                              wish->what);
        if (result < 0)
            return client_fail(client, &fail) == 0 ? 1 : result;
        result = serve_await_change(client, change, until_ns);
    }
    if (result == 0)
        return client_refuse(client, COVEY_CLOSED, "the daemon stops") == 0 ? 1 : COVEY_CLOSED;
    return result;
}

/* --- evict ---------------------------------------------------------------------------------------------- */

/* By name, or by id. */
static const struct covey_member *find_member(const struct covey_view *view, const char *name)
{
    char *end;
    unsigned long id;

    for (uint32_t i = 0; i < view->size; i++) {
        if (strcmp(view->members[i].name, name) == 0)
            return &view->members[i];
    }
    id = strtoul(name, &end, 10);
    for (uint32_t i = 0; *end == '\0' && i < view->size; i++) {
        if (view->members[i].id == id)
            return &view->members[i];
    }
    return NULL;
}

static int judge_eviction(const struct wish *wish, const struct covey_view *view, struct fail *fail)
{
    if (view->state == COVEY_STATE_EVICTED)
        return 1;
    if (!view->quorate)
        return fail_set(fail, COVEY_NO_QUORUM, "%s waits for a quorum", wish->what);
    for (uint32_t i = 0; i < view->size; i++) {
        if (view->members[i].id == wish->id && view->members[i].incarnation == wish->incarnation)
            return 0;
    }
    return 1;
}

static int evict_member(struct client *client, const struct covey_member *member)
{
    const struct wish wish = {judge_eviction, "the eviction", member->id, member->incarnation};
    struct covey_view view;
    json_t *done;
    int result = covey_node_evict(client->server->node, member->id);

    if (result != 0)
        return client_fail_node(client, result);
    result = await_wish(client, &wish, &view);
    if (result != 0)
        return result < 0 ? result : 0;
    done = json_pack("{s:o, s:i, s:o}", "node", item_text(member->name), "id", (int)member->id, "number",
                     item_u64(view.number));
    covey_view_free(&view);
    return client_send(client, REPLY_DONE, done);
}

int serve_evict(struct client *client, const struct request *request)
{
    const struct covey_member *member;
    struct fail fail = {0};
    struct covey_view view;
    int result = covey_node_view(client->server->node, &view);

    if (result != 0)
        return client_fail_node(client, result);
    member = find_member(&view, request->name);
    if (member != NULL) {
        result = evict_member(client, member);
    } else {
        fail_set(&fail, COVEY_NOT_FOUND, "view %" PRIu64 " has no member called %s", view.number,
                 request->name);
        result = client_fail(client, &fail);
    }
    covey_view_free(&view);
    return result;
}

/* --- view force ----------------------------------------------------------------------------------------- */

static int judge_forced(const struct wish *wish, const struct covey_view *view, struct fail *fail)
{
    (void)wish;
    if (view->state == COVEY_STATE_EVICTED)
        return fail_set(fail, COVEY_EVICTED, "this node was evicted meanwhile: it joins again");
    return view->quorate;
}

int serve_force(struct client *client, const struct request *request)
{
    const struct wish wish = {.judge = judge_forced, .what = "a view"};
    struct covey_view view;
    json_t *done;
    int result = covey_node_force_view(client->server->node);

    (void)request;
    if (result != 0)
        return client_fail_node(client, result);
    result = await_wish(client, &wish, &view);
    if (result != 0)
        return result < 0 ? result : 0;
    done = json_pack("{s:o, s:o, s:o}", "number", item_u64(view.number), "epoch", item_hex(view.epoch),
                     "size", item_u64(view.size));
    covey_view_free(&view);
    return client_send(client, REPLY_DONE, done);
}

/* --- table ---------------------------------------------------------------------------------------------- */

static json_t *flags_json(unsigned flags)
{
    static const struct {
        enum covey_table_flags flag;
        const char *name;
    } names[] = {{COVEY_TABLE_JOIN, "join"}, {COVEY_TABLE_LEAVE, "leave"}, {COVEY_TABLE_FORCE, "force"}};
    json_t *array = json_array();

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (flags & names[i].flag)
            json_array_append_new(array, json_string(names[i].name));
    }
    return array;
}

/* "3.1": round 3, led by rank 1. */
static json_t *ballot_json(uint64_t ballot)
{
    char text[48];

    if (ballot == 0)
        return json_null();
    snprintf(text, sizeof(text), "%" PRIu64 ".%" PRIu64, ballot >> 16, ballot & 0xffff);
    return json_string(text);
}

/* The names of nodes, which have rows too. */
static json_t *names_json(const struct covey_table *table, const uint32_t *ids, uint32_t count)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t row = 0; row < table->count; row++) {
            if (table->rows[row].id == ids[i] && table->rows[row].rank != UINT32_MAX)
                json_array_append_new(array, item_text(table->rows[row].name));
        }
    }
    return array;
}

static json_t *received_json(const struct covey_table *table, const struct covey_table_row *row)
{
    json_t *object;

    if (row->received == NULL)
        return json_null();
    object = json_object();
    for (size_t i = 0; i < table->group_count; i++)
        json_object_set_new(object, table->groups[i], item_u64(row->received[i]));
    return object;
}

static json_t *row_item(const struct covey_table *table, const struct covey_table_row *row)
{
    bool silent = row->linked && !row->self;

    return json_pack("{s:o, s:i, s:o, s:o, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                     "rank", row->rank == UINT32_MAX ? json_null() : item_u64(row->rank), "id", (int)row->id,
                     "name", item_text(row->name), "incarnation",
                     row->incarnation == 0 ? json_null() : item_hex(row->incarnation), "self", (int)row->self,
                     "linked", (int)row->linked, "silent",
                     silent ? json_real((double)row->silent_ns / 1e9) : json_null(), "heartbeat",
                     item_u64(row->heartbeat), "view", item_u64(row->view), "flags", flags_json(row->flags),
                     "suspected", names_json(table, row->suspected, row->suspected_count), "evicted",
                     names_json(table, row->evicted, row->evicted_count), "promised",
                     ballot_json(row->promised), "accepted", ballot_json(row->accepted), "committed",
                     ballot_json(row->committed), "received", received_json(table, row));
}

int serve_table(struct client *client, const struct request *request)
{
    struct covey_table table;
    struct page page;
    int result = covey_node_table(client->server->node, &table);

    (void)request;
    if (result != 0)
        return client_fail_node(client, result);
    page_begin(&page, client);
    for (uint32_t i = 0; i < table.count; i++)
        page_add(&page, row_item(&table, &table.rows[i]));
    result = page_end(&page);
    if (result == 0)
        result = client_send(client, REPLY_DONE,
                             json_pack("{s:o, s:o}", "number", item_u64(table.number), "epoch",
                                       table.epoch == 0 ? json_null() : item_hex(table.epoch)));
    covey_table_free(&table);
    return result;
}
