/* SPDX-License-Identifier: BSD-3-Clause */
/* The public functions: check the arguments, do the work on the loop thread, keep the sentence of an error.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "node/feed.h"
#include "node/members.h"
#include "node/op.h"
#include "node/ordering.h"
#include "node/stage.h"

static __thread char detail[FAIL_TEXT_MAX];

const char *covey_error_detail(const struct covey_node *node)
{
    (void)node;
    return detail;
}

int node_detail(const struct fail *fail)
{
    snprintf(detail, sizeof(detail), "%s", fail->text);
    return fail->code;
}

/* Run in the loop thread; the result is the request's own unless the node cannot run it. */
static int submit(struct covey_node *node, struct request *request, const struct fail *fail)
{
    struct fail failed = {0};
    int rc = node_request(node, request);

    if (rc != 0)
        fail_set(&failed, rc, "%s", covey_strerror(rc));
    else
        failed = *fail;
    return failed.code != 0 ? node_detail(&failed) : 0;
}

/* --- Staging
 * ------------------------------------------------------------------------------------------------ */

struct lend_request {
    struct request request;
    struct fail fail;
    void *base;
    size_t bytes;
};

static void run_lend(struct covey_node *node, struct request *base)
{
    struct lend_request *request = (struct lend_request *)base;

    stage_lend(node, request->base, request->bytes, &request->fail);
}

int covey_node_lend_staging(struct covey_node *node, void *base, size_t bytes)
{
    struct lend_request request = {.request.run = run_lend, .base = base, .bytes = bytes};

    return submit(node, &request.request, &request.fail);
}

/* --- Groups
 * ------------------------------------------------------------------------------------------------- */

struct open_request {
    struct request request;
    struct fail fail;
    const char *name;
    const struct covey_group_callbacks *callbacks;
    void *context;
    struct covey_group *group;
};

static void run_open(struct covey_node *node, struct request *base)
{
    struct open_request *request = (struct open_request *)base;

    for (size_t i = 0; i < node->options->group_count; i++) {
        if (strcmp(node->options->groups[i].name, request->name) != 0)
            continue;
        request->group = node->groups[i];
        if (request->group == NULL)
            fail_set(&request->fail, COVEY_PERMISSION, "group %s does not select node %s", request->name,
                     node->options->self.name);
        else
            group_open(request->group, request->callbacks, request->context, &request->fail);
        return;
    }
    fail_set(&request->fail, COVEY_NOT_FOUND, "the configuration has no group called %s", request->name);
}

int covey_group_open(struct covey_node *node, const char *name, const struct covey_group_callbacks *callbacks,
                     void *context, struct covey_group **group)
{
    struct open_request request = {
        .request.run = run_open, .name = name, .callbacks = callbacks, .context = context};
    int rc = submit(node, &request.request, &request.fail);

    if (rc == 0)
        *group = request.group;
    return rc;
}

const char *covey_group_name(const struct covey_group *group)
{
    return group->options->name;
}

static int wait_driven(struct covey_group *group, int timeout_ms)
{
    uint64_t start = uv_hrtime();

    while (group->state != COVEY_STATE_RUNNING) {
        uint64_t passed_ms = (uv_hrtime() - start) / 1000000;
        int rc;

        if (timeout_ms >= 0 && passed_ms >= (uint64_t)timeout_ms)
            return COVEY_TIMEOUT;
        rc = covey_node_progress(group->node, timeout_ms < 0 ? -1 : timeout_ms - (int)passed_ms);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int wait_threaded(struct covey_group *group, int timeout_ms)
{
    struct covey_node *node = group->node;
    struct timespec deadline;
    uint64_t at;
    int rc = 0;

    clock_gettime(CLOCK_MONOTONIC, &deadline);
    at = (uint64_t)deadline.tv_nsec + (uint64_t)(timeout_ms < 0 ? 0 : timeout_ms) * 1000000;
    deadline.tv_sec += (time_t)(at / 1000000000);
    deadline.tv_nsec = (long)(at % 1000000000);
    pthread_mutex_lock(&node->mutex);
    while (group->state != COVEY_STATE_RUNNING && !node->stopped && rc != ETIMEDOUT) {
        rc = timeout_ms < 0 ? pthread_cond_wait(&node->state_changed, &node->mutex)
                            : pthread_cond_timedwait(&node->state_changed, &node->mutex, &deadline);
    }
    rc = group->state == COVEY_STATE_RUNNING ? 0 : node->stopped ? COVEY_CLOSED : COVEY_TIMEOUT;
    pthread_mutex_unlock(&node->mutex);
    return rc;
}

struct why_request {
    struct request request;
    struct covey_group *group;
    struct fail fail;
};

static void run_why(struct covey_node *node, struct request *base)
{
    struct why_request *request = (struct why_request *)base;

    (void)node;
    group_check_running(request->group, &request->fail);
}

int covey_group_wait(struct covey_group *group, int timeout_ms)
{
    struct why_request why = {.request.run = run_why, .group = group};
    int rc;

    if (group->node->pid != getpid())
        return COVEY_FORKED;
    if (!node_is_driven(group->node) && node_in_call_thread(group->node))
        return COVEY_INVALID;
    rc = node_is_driven(group->node) ? wait_driven(group, timeout_ms) : wait_threaded(group, timeout_ms);
    if (rc == COVEY_TIMEOUT)
        submit(group->node, &why.request, &why.fail); /* for the sentence */
    return rc;
}

struct view_request {
    struct request request;
    struct fail fail;
    const struct covey_group *group;
    struct covey_view view;
};

static void run_view(struct covey_node *node, struct request *base)
{
    struct view_request *request = (struct view_request *)base;

    if (view_snapshot(node, request->group, &request->view) != 0)
        fail_set(&request->fail, COVEY_NO_MEMORY, "no memory for a view");
}

static int get_view(struct covey_node *node, const struct covey_group *group, struct covey_view *view)
{
    struct view_request request = {.request.run = run_view, .group = group};
    int rc = submit(node, &request.request, &request.fail);

    if (rc == 0)
        *view = request.view;
    return rc;
}

int covey_view(const struct covey_group *group, struct covey_view *view)
{
    return get_view(group->node, group, view);
}

int covey_node_view(const struct covey_node *node, struct covey_view *view)
{
    return get_view((struct covey_node *)node, NULL, view);
}

struct info_request {
    struct request request;
    struct fail fail;
    const struct covey_group *group;
    struct covey_group_info info;
};

static void run_info(struct covey_node *node, struct request *base)
{
    struct info_request *request = (struct info_request *)base;
    const struct covey_group *group = request->group;
    struct covey_group_info *info = &request->info;
    uint32_t ids[COVEY_MEMBERS_MAX];
    struct store_usage usage;

    (void)node;
    store_usage(group->store, &usage);
    info->state = group->state;
    info->memory = group->options->memory;
    info->device = group->device;
    info->budget_bytes = group->options->budget_bytes;
    info->used_bytes = usage.used_bytes;
    info->keep_versions = group->options->keep_versions;
    info->members = group_members(group, ids);
    info->objects = usage.objects;
    info->block_bytes = group->options->block_bytes;
    snprintf(info->schedule, sizeof(info->schedule), "%s",
             group->options->schedule_auto ? "auto" : schedule_name(group->options->schedule));
}

int covey_group_info(const struct covey_group *group, struct covey_group_info *info)
{
    struct info_request request = {.request.run = run_info, .group = group};
    int rc = submit(group->node, &request.request, &request.fail);

    if (rc == 0)
        *info = request.info;
    return rc;
}

/* --- Putting and removing
 * ----------------------------------------------------------------------------------- */

struct put_request {
    struct request request;
    struct fail fail;
    struct covey_group *group;
    const char *name;
    const struct covey_buffer *buffers;
    size_t count;
    struct file_source *source;
    struct covey_op *op;
};

static int check_buffers(const struct covey_buffer *buffers, size_t count, struct fail *fail)
{
    const struct memory_ops *memory;

    if (count > COVEY_BUFFERS_MAX)
        return fail_set(fail, COVEY_TOO_LARGE, "an object has at most %d buffers, not %zu", COVEY_BUFFERS_MAX,
                        count);
    for (size_t i = 0; i < count; i++) {
        const char *name = buffers[i].name != NULL ? buffers[i].name : "";

        if (buffers[i].bytes == 0)
            continue;
        if (buffers[i].base == NULL)
            return fail_set(fail, COVEY_INVALID, "buffer %zu %.64s has %zu bytes and no address", i, name,
                            buffers[i].bytes);
        if ((uintptr_t)buffers[i].base + buffers[i].bytes < (uintptr_t)buffers[i].base)
            return fail_set(fail, COVEY_INVALID, "buffer %zu %.64s runs past the end of memory", i, name);
        if (memory_ops(buffers[i].memory, &memory, fail) != 0 ||
            memory->check(buffers[i].device, buffers[i].base, buffers[i].bytes, fail) != 0)
            return fail_prefix(fail, "buffer %zu %.64s: ", i, name);
    }
    return 0;
}

static void run_put(struct covey_node *node, struct request *base)
{
    struct put_request *request = (struct put_request *)base;
    struct covey_group *group = request->group;
    struct object *object;
    int rc = group_check_running(group, &request->fail);

    if (rc == 0 && request->source != NULL && group->options->memory != COVEY_MEMORY_HOST)
        rc = fail_set(
            &request->fail, COVEY_UNSUPPORTED,
            "group %s keeps its objects in device memory, where files cannot be read into: put them from "
            "memory (covey_put)",
            group->options->name);

    if (rc == COVEY_AGAIN) {
        request->fail.code = 0;
        node_defer(node, base);
        return;
    }
    if (rc == 0)
        rc = object_new(group->store, request->name, request->buffers, request->count, &object,
                        &request->fail);
    if (rc != 0)
        return;
    if (request->source != NULL)
        rc = object_place(object, &request->fail);
    object->lent = request->source == NULL;
    if (rc == 0)
        rc = replication_put(group, object, request->source, request->op, &request->fail);
    if (rc != 0) {
        object->lent = false; /* the call fails: nothing was lent */
        object_unref(object);
        return;
    }
    request->source = NULL;
}

static int put(struct put_request *request, struct covey_op **op)
{
    struct covey_node *node = request->group->node;
    int rc;

    if (node->pid != getpid()) {
        fail_set(&request->fail, COVEY_FORKED, "%s", covey_strerror(COVEY_FORKED));
        return node_detail(&request->fail);
    }
    request->op = op_new(node);
    if (request->op == NULL)
        return COVEY_NO_MEMORY;
    request->request.run = run_put;
    rc = submit(node, &request->request, &request->fail);
    if (rc != 0) {
        op_unref(request->op);
        op_unref(request->op);
        return rc;
    }
    *op = request->op;
    return 0;
}

int covey_put(struct covey_group *group, const char *name, const struct covey_buffer *buffers, size_t count,
              struct covey_op **op)
{
    struct put_request request = {.group = group, .name = name, .buffers = buffers, .count = count};

    if (check_buffers(buffers, count, &request.fail) != 0)
        return node_detail(&request.fail);
    return put(&request, op);
}

static int files_to_buffers(const struct covey_file *files, const struct file_source *source, size_t count,
                            struct covey_buffer **out, struct fail *fail)
{
    struct covey_buffer *buffers = calloc(count + 1, sizeof(*buffers));

    if (buffers == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for %zu files", count);
    for (size_t i = 0; i < count; i++) {
        buffers[i].bytes = (size_t)source->stats[i].st_size;
        buffers[i].name = files[i].name;
    }
    *out = buffers;
    return 0;
}

int covey_put_files(struct covey_group *group, const char *name, const struct covey_file *files, size_t count,
                    struct covey_op **op)
{
    struct put_request request = {.group = group, .name = name, .count = count};
    struct covey_buffer *buffers = NULL;
    int rc = file_source_open(files, count, &request.source, &request.fail);

    if (rc == 0)
        rc = files_to_buffers(files, request.source, count, &buffers, &request.fail);
    if (rc != 0) {
        file_source_close(request.source);
        return node_detail(&request.fail);
    }
    request.buffers = buffers;
    rc = put(&request, op);
    file_source_close(request.source);
    free(buffers);
    return rc;
}

static int check_message(const struct covey_group *group, const void *data, size_t bytes, struct fail *fail)
{
    if (group->node->pid != getpid())
        return fail_set(fail, COVEY_FORKED, "%s", covey_strerror(COVEY_FORKED));
    if (bytes > COVEY_MESSAGE_MAX)
        return fail_set(fail, COVEY_TOO_LARGE, "a message has at most %d bytes, not %zu: put it as an object",
                        COVEY_MESSAGE_MAX, bytes);
    if (bytes > 0 && data == NULL)
        return fail_set(fail, COVEY_INVALID, "a message of %zu bytes has no address", bytes);
    return 0;
}

int covey_send(struct covey_group *group, const void *data, size_t bytes, struct covey_op **op)
{
    struct fail fail = {0};
    struct sending *sending;
    int rc;

    if (check_message(group, data, bytes, &fail) != 0)
        return node_detail(&fail);
    sending = sending_new(group, ORDER_MESSAGE, data, (uint32_t)bytes);
    if (sending == NULL || (op != NULL && (sending->op = op_new(group->node)) == NULL)) {
        free(sending);
        fail_set(&fail, COVEY_NO_MEMORY, "no memory for a message of %zu bytes", bytes);
        return node_detail(&fail);
    }
    rc = group_wait_for_room(group, sending_cost(bytes));
    if (rc != 0) {
        if (op != NULL) {
            op_unref(sending->op);
            op_unref(sending->op);
        }
        free(sending);
        fail_set(&fail, rc, "%s",
                 rc == COVEY_AGAIN ? "too many messages wait to be sent: let the node run"
                                   : covey_strerror(rc));
        return node_detail(&fail);
    }
    if (op != NULL) {
        sending->op->outcome.bytes = bytes;
        *op = sending->op;
    }
    sending->request.run = group_send;
    node_submit(group->node, &sending->request);
    return 0;
}

struct remove_request {
    struct request request;
    struct fail fail;
    struct covey_group *group;
    const char *name;
    struct covey_op *op;
};

static void run_remove(struct covey_node *node, struct request *base)
{
    struct remove_request *request = (struct remove_request *)base;

    if (group_remove(request->group, request->name, request->op, &request->fail) == COVEY_AGAIN) {
        request->fail.code = 0;
        node_defer(node, base);
    }
}

int covey_remove(struct covey_group *group, const char *name, struct covey_op **op)
{
    struct remove_request request = {.request.run = run_remove, .group = group, .name = name};
    int rc;

    if (strlen(name) == 0 || strlen(name) > COVEY_NAME_MAX) {
        fail_set(&request.fail, COVEY_INVALID, "a name has 1 to %d bytes", COVEY_NAME_MAX);
        return node_detail(&request.fail);
    }
    request.op = op_new(group->node);
    if (request.op == NULL)
        return COVEY_NO_MEMORY;
    rc = submit(group->node, &request.request, &request.fail);
    if (rc != 0) {
        op_unref(request.op);
        op_unref(request.op);
        return rc;
    }
    *op = request.op;
    return 0;
}

/* --- Objects
 * ------------------------------------------------------------------------------------------------ */

struct get_request {
    struct request request;
    struct fail fail;
    struct covey_group *group;
    const char *name;
    uint64_t version;
    struct covey_object *object;
};

static void run_get(struct covey_node *node, struct request *base)
{
    struct get_request *request = (struct get_request *)base;
    struct covey_group *group = request->group;
    struct object *object = store_find(group->store, request->name, request->version);

    (void)node;
    if (object == NULL && request->version != 0 && store_find(group->store, request->name, 0) != NULL)
        fail_set(&request->fail, COVEY_NOT_FOUND, "group %s does not hold version %llu of %s",
                 group->options->name, (unsigned long long)request->version, request->name);
    else if (object == NULL)
        fail_set(&request->fail, COVEY_NOT_FOUND, "group %s has no object called %s", group->options->name,
                 request->name);
    else if ((request->object = group_pin(group, object)) == NULL)
        fail_set(&request->fail, COVEY_NO_MEMORY, "no memory for a pin");
}

int covey_get(struct covey_group *group, const char *name, uint64_t version, struct covey_object **object)
{
    struct get_request request = {.request.run = run_get, .group = group, .name = name, .version = version};
    int rc = submit(group->node, &request.request, &request.fail);

    if (rc == 0)
        *object = request.object;
    return rc;
}

struct objects_request {
    struct request request;
    struct fail fail;
    const struct covey_group *group;
    struct covey_object_info *list;
    size_t count;
};

static void object_info(const struct object *object, struct covey_object_info *info)
{
    snprintf(info->name, sizeof(info->name), "%s", object->name);
    info->version = object->version;
    info->bytes = object->bytes;
    info->digest = object->digest;
    info->count = object->count;
    info->state = "delivered";
    info->bytes_done = object->bytes;
    info->pins = object->pins;
    info->since_ns = object->since_ns;
}

static void run_objects(struct covey_node *node, struct request *base)
{
    struct objects_request *request = (struct objects_request *)base;
    const struct covey_group *group = request->group;
    struct store_usage usage;

    store_usage(group->store, &usage);
    request->list = calloc(usage.objects + node->replication_count + 1, sizeof(*request->list));
    if (request->list == NULL) {
        fail_set(&request->fail, COVEY_NO_MEMORY, "no memory for a list of %llu objects",
                 (unsigned long long)usage.objects);
        return;
    }
    for (const struct object *object = store_next(group->store, NULL); object != NULL;
         object = store_next(group->store, object))
        object_info(object, &request->list[request->count++]);
    for (const struct replication *replication = node->replications_by_id; replication != NULL;
         replication = replication->hh.next) {
        if (replication->group == group && replication_is_under_way(replication))
            replication_info(replication, &request->list[request->count++]);
    }
}

int covey_objects(const struct covey_group *group, struct covey_object_info **list, size_t *count)
{
    struct objects_request request = {.request.run = run_objects, .group = group};
    int rc = submit(group->node, &request.request, &request.fail);

    if (rc == 0) {
        *list = request.list;
        *count = request.count;
    }
    return rc;
}

/* --- Membership ----------------------------------------------------------------------------------------- */

struct members_request {
    struct request request;
    struct fail fail;
    uint32_t id;
    struct covey_table table;
};

/* There is none when a node that was evicted could not start anew. */
static bool has_members(const struct covey_node *node, struct fail *fail)
{
    if (node->members == NULL)
        fail_set(fail, COVEY_EVICTED, "this node was evicted and could not join again: restart it");
    return node->members != NULL;
}

static void run_evict(struct covey_node *node, struct request *base)
{
    struct members_request *request = (struct members_request *)base;

    if (has_members(node, &request->fail))
        members_evict(node, request->id, &request->fail);
}

int covey_node_evict(struct covey_node *node, uint32_t id)
{
    struct members_request request = {.request.run = run_evict, .id = id};

    return submit(node, &request.request, &request.fail);
}

static void run_force(struct covey_node *node, struct request *base)
{
    struct members_request *request = (struct members_request *)base;

    if (has_members(node, &request->fail))
        members_force(node, &request->fail);
}

int covey_node_force_view(struct covey_node *node)
{
    struct members_request request = {.request.run = run_force};

    return submit(node, &request.request, &request.fail);
}

static void run_table(struct covey_node *node, struct request *base)
{
    struct members_request *request = (struct members_request *)base;

    if (has_members(node, &request->fail) && members_table(node, &request->table) != 0)
        fail_set(&request->fail, COVEY_NO_MEMORY, "no memory for a table");
}

int covey_node_table(const struct covey_node *node, struct covey_table *table)
{
    struct members_request request = {.request.run = run_table};
    int rc = submit((struct covey_node *)node, &request.request, &request.fail);

    if (rc == 0)
        *table = request.table;
    return rc;
}

/* --- Routes --------------------------------------------------------------------------------------------- */

struct route_request {
    struct request request;
    struct fail fail;
    uint32_t node_id;
    enum covey_memory memory;
    struct covey_route route;
};

static bool is_known(const struct covey_node *node, uint32_t id)
{
    for (size_t i = 0; i < node->options->node_count; i++) {
        if (node->options->nodes[i].id == id)
            return true;
    }
    return id == node->options->self.id || peers_find(node->peers, id) != NULL;
}

static void run_route(struct covey_node *node, struct request *base)
{
    struct route_request *request = (struct route_request *)base;
    struct covey_route *route = &request->route;
    bool self = request->node_id == node->options->self.id;

    if (!is_known(node, request->node_id)) {
        fail_set(&request->fail, COVEY_NOT_FOUND, "no node has the id %u", request->node_id);
        return;
    }
    snprintf(route->transport, sizeof(route->transport), "%s", self ? "none" : fabric_provider(node->fabric));
    route->staged = !self && request->memory != COVEY_MEMORY_HOST;
    if (route->staged)
        snprintf(route->text, sizeof(route->text),
                 "%s carries host memory: device memory passes through the staging region (staging.size, or "
                 "covey_node_lend_staging)",
                 route->transport);
}

int covey_route(struct covey_group *group, uint32_t node_id, enum covey_memory memory,
                struct covey_route *route)
{
    struct route_request request = {.request.run = run_route, .node_id = node_id, .memory = memory};
    const struct memory_ops *ops;
    int rc;

    if (memory_ops(memory, &ops, &request.fail) != 0) /* here, for it may have to start the driver */
        return node_detail(&request.fail);
    rc = submit(group->node, &request.request, &request.fail);
    if (rc == 0)
        *route = request.route;
    return rc;
}

/* --- Counters
 * ----------------------------------------------------------------------------------------------- */

struct stats_request {
    struct request request;
    struct fail fail;
    struct covey_stat *list;
    size_t count;
};

static void add(struct stats_request *request, const char *name, const char *unit, uint64_t value)
{
    request->list[request->count++] = (struct covey_stat){name, unit, value};
}

static uint64_t peers_up(const struct covey_node *node)
{
    uint64_t up = 0;

    for (size_t i = 0; i < peers_count(node->peers); i++)
        up += peers_at(node->peers, i)->up;
    return up;
}

#define STATS_MAX 48

static void run_stats(struct covey_node *node, struct request *base)
{
    struct stats_request *request = (struct stats_request *)base;
    const struct node_counters *counters = &node->counters;
    struct fabric_counters fabric;
    struct stage_usage stage;

    request->list = calloc(STATS_MAX, sizeof(*request->list));
    if (request->list == NULL) {
        fail_set(&request->fail, COVEY_NO_MEMORY, "no memory for counters");
        return;
    }
    fabric_counters(node->fabric, &fabric);
    add(request, "view", "", node->view.number);
    add(request, "views_installed", "", counters->views);
    add(request, "wedge", "ns", counters->wedge_ns);
    add(request, "longest_round", "ns", counters->held_ns);
    add(request, "strays", "", counters->strays);
    add(request, "peers_up", "", peers_up(node));
    add(request, "puts", "", counters->puts);
    add(request, "puts_failed", "", counters->puts_failed);
    add(request, "objects_delivered", "", counters->delivered);
    add(request, "objects_removed", "", counters->removed);
    add(request, "puts_cancelled", "", counters->cancelled);
    add(request, "transfers", "", node->replication_count);
    add(request, "sent_bytes", "bytes", counters->sent_bytes);
    add(request, "received_bytes", "bytes", counters->received_bytes);
    add(request, "sent_blocks", "blocks", counters->sent_blocks);
    add(request, "received_blocks", "blocks", counters->received_blocks);
    add(request, "group_messages_sent", "", counters->group_sent);
    add(request, "group_messages_delivered", "", counters->group_messages);
    add(request, "pushes", "", counters->pushes);
    add(request, "pushed_bytes", "bytes", counters->pushed_bytes);
    add(request, "messages_sent", "", counters->messages_sent);
    add(request, "messages_received", "", counters->messages_received);
    add(request, "fabric_written_bytes", "bytes", fabric.written_bytes);
    add(request, "fabric_writes", "", fabric.writes);
    add(request, "fabric_arrivals", "", fabric.arrivals);
    add(request, "fabric_refused_connections", "", fabric.refused_connections);
    add(request, "fabric_errors", "", fabric.errors);
    add(request, "link_rate", "bytes/s", node->link_bytes_per_second);
    stage_usage(node, &stage);
    add(request, "staging_bytes", "bytes", stage.region.region_bytes);
    add(request, "staging_pinned", "", stage.pinned);
    add(request, "staging_in_use", "bytes",
        stage.region.held_bytes[STAGING_IN] + stage.region.held_bytes[STAGING_OUT]);
    add(request, "staging_loaded_bytes", "bytes", stage.loaded_bytes);
    add(request, "staging_stored_bytes", "bytes", stage.stored_bytes);
    add(request, "staging_sent_on_bytes", "bytes", stage.sent_on_bytes);
    add(request, "staging_asks", "blocks", stage.asks);
    add(request, "staging_credits", "blocks", stage.credits);
    add(request, "turns", "", counters->turns);
}

int covey_node_stats(const struct covey_node *node, struct covey_stat **stats, size_t *count)
{
    struct stats_request request = {.request.run = run_stats};
    int rc = submit((struct covey_node *)node, &request.request, &request.fail);

    if (rc == 0) {
        *stats = request.list;
        *count = request.count;
    }
    return rc;
}

/* --- Reload --------------------------------------------------------------------------------------------- */

struct reload_request {
    struct request request;
    struct fail fail;
    const struct covey_options *options;
};

static void run_reload(struct covey_node *node, struct request *base)
{
    struct reload_request *request = (struct reload_request *)base;
    struct text keys = {0};
    char *text;

    options_difference(node->options, request->options, &keys);
    text = text_take(&keys);
    if (text == NULL) {
        fail_set(&request->fail, COVEY_NO_MEMORY, "no memory to compare configurations");
    } else if (text[0] != '\0') {
        fail_set(&request->fail, COVEY_UNSUPPORTED, "a running node cannot change %s: restart it", text);
    } else {
        node->options->log_level = request->options->log_level;
        log_set_level(&node->log, request->options->log_level);
    }
    free(text);
}

int covey_node_reload(struct covey_node *node, const struct covey_options *options)
{
    struct reload_request request = {.request.run = run_reload, .options = options};

    return submit(node, &request.request, &request.fail);
}
