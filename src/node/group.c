/* SPDX-License-Identifier: BSD-3-Clause */
/* A group at this member: what is delivered in it, and its state.
 *
 * Its order is of three kinds of entries (wire/message.h): a message; that an object is whole at every
 * member, so that it becomes a version, whose number is the entry's position; a removal. They come here once
 * they are stable (node/ordering.h), that is when every member of the view will deliver them, and are carried
 * out one by one: a version is in the store, for readers, only when on_object has returned.
 *
 * What the application has not yet been told of is bounded: beyond DELIVERIES_BYTES what is stable stays in
 * the rings, which makes senders wait. */

#include <stdlib.h>
#include <string.h>

#include "node/members.h"
#include "node/op.h"
#include "node/ordering.h"
#include "node/replication.h"

/* Of messages on their way to the application: their bytes, and MESSAGE_COST for each. */
#define DELIVERIES_BYTES (UINT64_C(1) << 20)
#define MESSAGE_COST     128

/* Of messages that wait for room in the ring. */
#define SENDING_BYTES    (UINT64_C(1) << 20)

/* A stable entry. */
struct delivery {
    struct call call; /* of a message */
    struct delivery *next;
    struct covey_group *group;
    enum order_kind kind;
    uint64_t id, position;
    uint32_t sender; /* node id */
    bool called;     /* on_object is under way */
    uint32_t bytes;
    char data[]; /* a removal's name, terminated; a message's bytes */
};

struct removal {
    struct removal *next;
    uint64_t id;
    struct covey_op *op;
    uint32_t waiting; /* members that have not done it */
    uint32_t *ids;
};

struct covey_object {
    struct request request; /* the release */
    struct covey_group *group;
    struct object *object;
    atomic_uint refs;
};

/* --- Members -----------------------------------------------------------------------------------------------
 */

uint32_t group_members(const struct covey_group *group, uint32_t ids[])
{
    const struct node_view *view = &group->node->view;
    uint32_t count = 0;

    for (uint32_t i = 0; view->number != 0 && i < view->count; i++) {
        if (options_group_selects(group->options, view->ids[i]))
            ids[count++] = view->ids[i];
    }
    return count;
}

static bool peers_are_up(const struct covey_group *group)
{
    uint32_t ids[COVEY_MEMBERS_MAX];
    uint32_t count = group_members(group, ids);

    for (uint32_t i = 0; i < count; i++) {
        const struct peer *peer = peers_find(group->node->peers, ids[i]);

        if (ids[i] != group->node->options->self.id && (peer == NULL || !peer->up))
            return false;
    }
    return count > 0;
}

/* The first node of the group that is not up, and why: the usual reason. */
static int fail_not_running(const struct covey_group *group, int code, const char *what, struct fail *fail)
{
    const struct covey_node *node = group->node;

    for (size_t i = 0; i < peers_count(node->peers); i++) {
        const struct peer *peer = peers_at(node->peers, i);

        if (!peer->up && options_group_selects(group->options, peer->id))
            return fail_set(fail, code, "group %s %s: %.350s%s", group->options->name, what,
                            peer->problem[0] != '\0' ? peer->problem : peer->name,
                            peer->problem[0] != '\0' ? "" : " is not up yet");
    }
    return fail_set(fail, code, "group %s %s", group->options->name, what);
}

int group_check_running(const struct covey_group *group, struct fail *fail)
{
    if (group->node->closing)
        return fail_set(fail, COVEY_CLOSED, "the node is being closed");
    switch (group->state) {
    case COVEY_STATE_RUNNING:
        /* A member that is lost leaves the view in a moment, or is back in it. */
        return peers_are_up(group) ? 0 : fail_set(fail, COVEY_AGAIN, "between two views");
    case COVEY_STATE_WEDGED:
        return fail_set(fail, COVEY_AGAIN, "between two views");
    case COVEY_STATE_NO_QUORUM:
        return fail_not_running(group, COVEY_NO_QUORUM, "has no quorum", fail);
    case COVEY_STATE_EVICTED:
        return fail_set(fail, COVEY_EVICTED, "group %s: this node was left out of the view and joins again",
                        group->options->name);
    default:
        return fail_not_running(group, COVEY_FORMING, "waits for the view to form", fail);
    }
}

/* --- Made and freed ----------------------------------------------------------------------------------------
 */

static void forget_region(void *context, struct region *region)
{
    (void)context;
    if (region->user != NULL)
        fabric_deregister(region->user);
    region->user = NULL;
}

struct release_call {
    struct call call;
    struct covey_group *group;
    uint64_t version;
    void *base;
    char name[COVEY_NAME_MAX + 1];
};

static void run_release(struct call *call)
{
    struct release_call *release = (struct release_call *)call;
    struct covey_group *group = release->group;

    group->callbacks.on_release(group->context, group, release->name, release->version, release->version != 0,
                                release->base);
    free(release);
}

static void give_back(void *context, struct object *object)
{
    struct covey_group *group = context;
    struct release_call *release;

    if (group->callbacks.on_release == NULL)
        return;
    release = calloc(1, sizeof(*release));
    if (release == NULL) {
        log_error(&group->node->log, "group %s: no memory to give back the memory of %s",
                  group->options->name, object->name);
        return;
    }
    release->call.run = run_release;
    release->group = group;
    release->version = object->version;
    snprintf(release->name, sizeof(release->name), "%s", object->name);
    for (size_t i = 0; release->base == NULL && i < object->count; i++) {
        if (object->buffers[i].bytes > 0)
            release->base = object->buffers[i].base;
    }
    node_call(group->node, &release->call);
}

static void run_resume(struct covey_node *node, struct request *request);

int group_new(struct covey_node *node, uint16_t index, struct covey_group **out, struct fail *fail)
{
    const struct group_options *options = &node->options->groups[index];
    struct covey_group *group = calloc(1, sizeof(*group));
    struct store_config config = {.memory = options->memory,
                                  .device = options->device,
                                  .budget_bytes = options->budget_bytes,
                                  .keep_versions = options->keep_versions,
                                  .context = group,
                                  .forget = forget_region,
                                  .give_back = give_back};
    const struct memory_ops *memory;
    int rc;

    if (group == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for group %s", options->name);
    group->node = node;
    group->index = index;
    group->options = options;
    group->state = COVEY_STATE_FORMING;
    group->deliveries_end = &group->deliveries;
    atomic_init(&group->undelivered, 0);
    atomic_init(&group->resuming, false);
    group->resume.run = run_resume;
    rc = memory_ops(options->memory, &memory, fail);
    if (rc == 0)
        rc = memory->device(options->device, node->options->self.id, &config.device, fail);
    if (rc == 0)
        rc = ordering_open(group, fail);
    if (rc == 0)
        rc = store_open(&config, &group->store, fail);
    group->device = config.device;
    if (rc != 0) {
        ordering_close(group);
        free(group);
        return fail_prefix(fail, "group %s: ", options->name);
    }
    *out = group;
    return 0;
}

bool group_is_calling(const struct covey_group *group)
{
    return group->deliveries != NULL && group->deliveries->called;
}

void group_stop(struct covey_group *group)
{
    group_leave(group);
    ordering_close(group);
    store_close(group->store);
    group->store = NULL;
}

/* --- State -------------------------------------------------------------------------------------------------
 */

struct state_call {
    struct call call;
    struct covey_group *group;
    enum covey_state state;
};

static void run_state(struct call *call)
{
    struct state_call *state = (struct state_call *)call;

    state->group->callbacks.on_state(state->group->context, state->group, state->state);
    free(state);
}

static void tell_state(struct covey_group *group)
{
    struct state_call *state;

    if (!group->open || group->callbacks.on_state == NULL)
        return;
    state = calloc(1, sizeof(*state));
    if (state == NULL)
        return;
    state->call.run = run_state;
    state->group = group;
    state->state = group->state;
    node_call(group->node, &state->call);
}

void group_set_state(struct covey_group *group, enum covey_state state)
{
    struct covey_node *node = group->node;

    if (group->state == state)
        return;
    node->work++;
    pthread_mutex_lock(&node->mutex);
    group->state = state;
    pthread_cond_broadcast(&node->state_changed);
    pthread_mutex_unlock(&node->mutex);
    tell_state(group);
}

struct view_call {
    struct call call;
    struct covey_group *group;
    struct covey_view view;
    uint32_t *joined, *left;
    size_t joined_count, left_count;
};

static void view_call_free(struct view_call *call)
{
    covey_view_free(&call->view);
    free(call->joined);
    free(call->left);
    free(call);
}

static void run_view(struct call *call)
{
    struct view_call *view = (struct view_call *)call;
    struct covey_group *group = view->group;

    group->callbacks.on_view(group->context, group, &view->view, view->joined, view->joined_count, view->left,
                             view->left_count);
    view_call_free(view);
}

static bool knows(const struct known_member *members, size_t count, uint32_t id, uint64_t incarnation)
{
    for (size_t i = 0; i < count; i++) {
        if (members[i].id == id && members[i].incarnation == incarnation)
            return true;
    }
    return false;
}

/* Compare with what was told before: who is in the view as another incarnation has left and joined. */
static void compare_views(struct view_call *call, const struct known_member *before, size_t before_count,
                          const struct known_member *now, size_t now_count)
{
    for (size_t i = 0; i < now_count; i++) {
        if (!knows(before, before_count, now[i].id, now[i].incarnation))
            call->joined[call->joined_count++] = now[i].id;
    }
    for (size_t i = 0; i < before_count; i++) {
        if (!knows(now, now_count, before[i].id, before[i].incarnation))
            call->left[call->left_count++] = before[i].id;
    }
}

static void tell_view(struct covey_group *group)
{
    struct known_member *now;
    struct view_call *call;
    uint32_t size;

    if (!group->open || group->callbacks.on_view == NULL || group->node->view.number == 0)
        return;
    call = calloc(1, sizeof(*call));
    if (call == NULL || view_snapshot(group->node, group, &call->view) != 0) {
        free(call);
        return;
    }
    size = call->view.size;
    call->joined = calloc(size + (size_t)1, sizeof(*call->joined));
    call->left = calloc(group->told_count + (size_t)1, sizeof(*call->left));
    now = calloc(size + (size_t)1, sizeof(*now));
    if (call->joined == NULL || call->left == NULL || now == NULL) {
        free(now);
        view_call_free(call);
        return;
    }
    for (uint32_t i = 0; i < size; i++)
        now[i] = (struct known_member){call->view.members[i].id, call->view.members[i].incarnation};
    compare_views(call, group->told, group->told_count, now, size);
    free(group->told);
    group->told = now;
    group->told_count = size;
    call->call.run = run_view;
    call->group = group;
    node_call(group->node, &call->call);
}

int group_open(struct covey_group *group, const struct covey_group_callbacks *callbacks, void *context,
               struct fail *fail)
{
    if (group->open)
        return fail_set(fail, COVEY_EXISTS, "group %s is open already", group->options->name);
    if (callbacks != NULL)
        group->callbacks = *callbacks;
    group->context = context;
    group->open = true;
    tell_state(group);
    tell_view(group);
    replication_land_waiting(group);
    return 0;
}

/* --- Objects -----------------------------------------------------------------------------------------------
 */

struct covey_object *group_pin(struct covey_group *group, struct object *object)
{
    struct covey_object *handle = calloc(1, sizeof(*handle));

    if (handle == NULL)
        return NULL;
    handle->group = group;
    handle->object = object;
    atomic_init(&handle->refs, 1);
    object_ref(object);
    object->pins++;
    return handle;
}

static void run_unpin(struct covey_node *node, struct request *request)
{
    struct covey_object *handle = (struct covey_object *)request;

    (void)node;
    handle->object->pins--;
    object_unref(handle->object);
    free(handle);
}

void covey_object_retain(struct covey_object *object)
{
    atomic_fetch_add(&object->refs, 1);
}

void covey_object_release(struct covey_object *object)
{
    if (object == NULL || atomic_fetch_sub(&object->refs, 1) > 1)
        return;
    object->request.run = run_unpin;
    node_submit(object->group->node, &object->request);
}

const char *covey_object_name(const struct covey_object *object)
{
    return object->object->name;
}

uint64_t covey_object_version(const struct covey_object *object)
{
    return object->object->version;
}

uint64_t covey_object_bytes(const struct covey_object *object)
{
    return object->object->bytes;
}

uint64_t covey_object_digest(const struct covey_object *object)
{
    return object->object->digest;
}

size_t covey_object_count(const struct covey_object *object)
{
    return object->object->count;
}

int covey_object_buffer(const struct covey_object *object, size_t index, struct covey_buffer *buffer)
{
    if (index >= object->object->count)
        return COVEY_NOT_FOUND;
    *buffer = object->object->buffers[index];
    return 0;
}

/* --- Deliveries --------------------------------------------------------------------------------------------
 */

static struct delivery *delivery_take(struct covey_group *group)
{
    struct delivery *delivery = group->deliveries;

    group->deliveries = delivery->next;
    if (group->deliveries == NULL)
        group->deliveries_end = &group->deliveries;
    return delivery;
}

struct object_call {
    struct call call;
    struct request request;
    struct covey_group *group;
    struct covey_object *handle;
    uint64_t id;
};

static void run_object_done(struct covey_node *node, struct request *request)
{
    struct object_call *call =
        (struct object_call *)((char *)request - offsetof(struct object_call, request));
    struct covey_group *group = call->group;
    struct replication *replication = replication_find(node, call->id);

    /* The group may have been stopped meanwhile. */
    if (group->deliveries != NULL && group->deliveries->id == call->id && group->deliveries->called) {
        if (replication != NULL)
            replication_commit(replication, group->deliveries->position);
        free(delivery_take(group));
        group_deliver(group);
        ordering_resume(group);
    }
    free(call);
}

static void run_object(struct call *base)
{
    struct object_call *call = (struct object_call *)base;
    struct covey_group *group = call->group;

    group->callbacks.on_object(group->context, group, call->handle);
    covey_object_release(call->handle);
    call->request.run = run_object_done;
    node_submit(group->node, &call->request);
}

/* Let the application see the version before any reader can. Returns whether it was asked. */
static bool call_on_object(struct covey_group *group, struct delivery *delivery,
                           struct replication *replication)
{
    struct object_call *call;

    if (!group->open || group->callbacks.on_object == NULL)
        return false;
    call = calloc(1, sizeof(*call));
    if (call == NULL)
        return false;
    replication->object->version = delivery->position;
    call->handle = group_pin(group, replication->object);
    if (call->handle == NULL) {
        free(call);
        return false;
    }
    call->call.run = run_object;
    call->group = group;
    call->id = delivery->id;
    delivery->called = true;
    node_call(group->node, &call->call);
    return true;
}

struct remove_call {
    struct call call;
    struct covey_group *group;
    uint64_t version;
    char name[COVEY_NAME_MAX + 1];
};

static void run_remove(struct call *base)
{
    struct remove_call *call = (struct remove_call *)base;
    struct covey_group *group = call->group;

    group->callbacks.on_remove(group->context, group, call->name, call->version);
    free(call);
}

static void tell_removed(struct covey_group *group, const char *name, uint64_t version)
{
    struct remove_call *call;

    if (!group->open || group->callbacks.on_remove == NULL)
        return;
    call = calloc(1, sizeof(*call));
    if (call == NULL)
        return;
    call->call.run = run_remove;
    call->group = group;
    call->version = version;
    snprintf(call->name, sizeof(call->name), "%s", name);
    node_call(group->node, &call->call);
}

static void removal_done_by(struct covey_group *group, uint64_t id, uint32_t node_id);

static void remove_here(struct covey_group *group, const struct delivery *delivery)
{
    struct covey_node *node = group->node;
    struct object *newest = store_find(group->store, delivery->data, 0);
    uint32_t origin = (uint32_t)(delivery->id >> 48);

    if (newest != NULL) {
        tell_removed(group, delivery->data, newest->version);
        node->counters.removed++;
        node_event(node, "removed", delivery->data, "removed %s", delivery->data);
    }
    store_remove(group->store, delivery->data, delivery->position);
    if (origin == node->options->self.id) {
        removal_done_by(group, delivery->id, origin);
    } else {
        struct message message = {.type = MESSAGE_DELIVERED, .group = group->index, .session = delivery->id};
        struct peer *peer = peers_find(node->peers, origin);

        if (peer != NULL)
            node_send(node, peer, &message);
    }
}

/* The application was told of a message. What waits for room in the queue to it goes on, once half of it is
 * free. */
static void told_message(struct covey_group *group, uint64_t cost)
{
    uint64_t before = atomic_fetch_sub(&group->undelivered, cost);

    if (before >= DELIVERIES_BYTES / 2 && before - cost < DELIVERIES_BYTES / 2 &&
        !atomic_exchange(&group->resuming, true))
        node_submit(group->node, &group->resume);
}

static void run_resume(struct covey_node *node, struct request *request)
{
    struct covey_group *group =
        (struct covey_group *)((char *)request - offsetof(struct covey_group, resume));

    (void)node;
    atomic_store(&group->resuming, false);
    if (group->ordering != NULL)
        ordering_resume(group);
}

bool group_has_room(const struct covey_group *group)
{
    return atomic_load(&group->undelivered) < DELIVERIES_BYTES && !group_is_calling(group);
}

static void run_message(struct call *call)
{
    struct delivery *delivery = (struct delivery *)call;
    struct covey_group *group = delivery->group;

    group->callbacks.on_message(group->context, group, delivery->sender, delivery->data, delivery->bytes);
    told_message(group, delivery->bytes + MESSAGE_COST);
    free(delivery);
}

static void message_here(struct covey_group *group, struct delivery *delivery)
{
    group->node->counters.group_messages++;
    if (!group->open || group->callbacks.on_message == NULL) {
        atomic_fetch_sub(&group->undelivered, delivery->bytes + MESSAGE_COST);
        free(delivery);
        return;
    }
    delivery->call.run = run_message;
    node_call(group->node, &delivery->call);
}

/* Returns whether the next one has to wait for the application. */
static bool object_here(struct covey_group *group, struct delivery *delivery)
{
    struct replication *replication = replication_find(group->node, delivery->id);

    if (replication != NULL && call_on_object(group, delivery, replication))
        return true;
    if (replication != NULL)
        replication_commit(replication, delivery->position);
    return false;
}

void group_deliver(struct covey_group *group)
{
    while (group->deliveries != NULL && !group->deliveries->called) {
        struct delivery *delivery = group->deliveries;

        if (delivery->kind == ORDER_COMMIT && object_here(group, delivery))
            return;
        delivery_take(group);
        if (delivery->kind == ORDER_MESSAGE) {
            message_here(group, delivery);
            continue;
        }
        if (delivery->kind == ORDER_REMOVE)
            remove_here(group, delivery);
        free(delivery);
    }
}

/* --- The order --- */

static struct delivery *delivery_new(struct covey_group *group, const struct order_entry *entry,
                                     uint32_t sender)
{
    struct delivery *delivery;
    struct entry said = {.kind = entry->kind};
    bool is_message = entry->kind == ORDER_MESSAGE;
    const void *data = entry->data;
    uint32_t bytes = entry->bytes;

    if (!is_message) {
        if (entry_decode(entry->kind, entry->data, entry->bytes, &said) != 0 || said.id >> 48 != sender)
            return NULL; /* takes its position, and means nothing: to everyone alike */
        data = said.name;
        bytes = said.name_bytes;
    }
    delivery = calloc(1, sizeof(*delivery) + bytes + 1);
    if (delivery == NULL) {
        log_error(&group->node->log, "group %s: no memory for what is delivered", group->options->name);
        return NULL;
    }
    delivery->group = group;
    delivery->kind = (enum order_kind)entry->kind;
    delivery->id = said.id;
    delivery->position = entry->position;
    delivery->sender = sender;
    delivery->bytes = bytes;
    if (bytes > 0)
        memcpy(delivery->data, data, bytes);
    return delivery;
}

/* What has its place is not given up, unless nothing is delivered any more. */
static void set_decided(struct covey_group *group, const struct delivery *delivery, bool decided)
{
    struct replication *replication =
        delivery->kind == ORDER_COMMIT ? replication_find(group->node, delivery->id) : NULL;

    if (replication != NULL)
        replication->decided = decided;
}

void group_take(struct covey_group *group, const struct order_entry *entry, uint32_t sender)
{
    struct delivery *delivery = delivery_new(group, entry, sender);

    if (sender == group->node->options->self.id) {
        struct sending *sending = ordering_delivered(group);

        if (sending->op != NULL)
            sending->op->outcome.version = entry->position;
        sending_end(sending, 0, "");
    }
    if (delivery == NULL) {
        group->node->counters.strays++;
        return;
    }
    if (delivery->kind == ORDER_MESSAGE)
        atomic_fetch_add(&group->undelivered, delivery->bytes + MESSAGE_COST);
    set_decided(group, delivery, true);
    *group->deliveries_end = delivery;
    group->deliveries_end = &delivery->next;
}

void group_order(struct covey_group *group, enum order_kind kind, uint64_t id, const char *name)
{
    struct entry entry = {.kind = (uint8_t)kind,
                          .id = id,
                          .name = name,
                          .name_bytes = name != NULL ? (uint8_t)strlen(name) : 0};
    uint8_t data[ENTRY_MAX];
    struct sending *sending = sending_new(group, kind, data, (uint32_t)entry_encode(&entry, data));

    if (sending == NULL)
        log_error(&group->node->log, "group %s: no memory for a decision", group->options->name);
    else
        ordering_send(group, sending);
}

/* --- Sending -------------------------------------------------------------------------------------------- */

void group_send(struct covey_node *node, struct request *request)
{
    struct sending *sending = (struct sending *)request;
    struct covey_group *group = sending->group;
    struct fail fail = {0};
    int rc = group_check_running(group, &fail);

    if (rc == 0 || rc == COVEY_AGAIN) { /* between two views it waits for the next one */
        node->counters.group_sent++;
        ordering_send(group, sending);
        return;
    }
    group_made_room(group, sending_cost(sending->bytes));
    sending_end(sending, rc, fail.text);
}

void group_made_room(struct covey_group *group, uint64_t cost)
{
    struct covey_node *node = group->node;
    uint64_t before;

    pthread_mutex_lock(&node->mutex);
    before = group->sending_bytes;
    group->sending_bytes -= cost;
    if (before > SENDING_BYTES / 2 && group->sending_bytes <= SENDING_BYTES / 2)
        pthread_cond_broadcast(&node->state_changed);
    pthread_mutex_unlock(&node->mutex);
}

/* One message always has room. Where the group does not go on, its state is the answer. */
static bool is_full(const struct covey_group *group, uint64_t cost)
{
    return group->sending_bytes > 0 && group->sending_bytes + cost > SENDING_BYTES &&
           (group->state == COVEY_STATE_RUNNING || group->state == COVEY_STATE_WEDGED) &&
           !group->node->stopped;
}

int group_wait_for_room(struct covey_group *group, uint64_t cost)
{
    struct covey_node *node = group->node;
    bool may_wait = !node_is_driven(node) && !node_in_call_thread(node);
    int rc = COVEY_AGAIN;

    pthread_mutex_lock(&node->mutex);
    while (may_wait && is_full(group, cost))
        pthread_cond_wait(&node->state_changed, &node->mutex);
    if (node->stopped) {
        rc = COVEY_CLOSED;
    } else if (!is_full(group, cost)) {
        group->sending_bytes += cost;
        rc = 0;
    }
    pthread_mutex_unlock(&node->mutex);
    return rc;
}

/* --- Removals ----------------------------------------------------------------------------------------------
 */

static void removal_end(struct removal **link, int code, const char *text)
{
    struct removal *removal = *link;

    *link = removal->next;
    op_end(removal->op, code, text);
    free(removal->ids);
    free(removal);
}

static struct removal **removal_find(struct covey_group *group, uint64_t id)
{
    struct removal **link = &group->removals;

    while (*link != NULL && (*link)->id != id)
        link = &(*link)->next;
    return link;
}

static void removal_done_by(struct covey_group *group, uint64_t id, uint32_t node_id)
{
    struct removal **link = removal_find(group, id);
    struct removal *removal = *link;

    if (removal == NULL)
        return;
    for (uint32_t i = 0; i < removal->waiting; i++) {
        if (removal->ids[i] == node_id)
            removal->ids[i--] = removal->ids[--removal->waiting];
    }
    if (removal->waiting == 0)
        removal_end(link, 0, "");
}

void group_peer_down(struct covey_group *group, const struct peer *peer)
{
    for (struct removal *removal = group->removals, *next; removal != NULL; removal = next) {
        next = removal->next;
        removal_done_by(group, removal->id, peer->id);
    }
}

int group_remove(struct covey_group *group, const char *name, struct covey_op *op, struct fail *fail)
{
    struct removal *removal;
    uint32_t ids[COVEY_MEMBERS_MAX];

    if (group_check_running(group, fail) != 0)
        return fail->code;
    if (store_find(group->store, name, 0) == NULL)
        return fail_set(fail, COVEY_NOT_FOUND, "group %s has no object called %s", group->options->name,
                        name);
    removal = calloc(1, sizeof(*removal));
    if (removal != NULL) {
        removal->waiting = group_members(group, ids);
        removal->ids = malloc(removal->waiting * sizeof(*removal->ids));
    }
    if (removal == NULL || removal->ids == NULL) {
        free(removal);
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for the removal of %s", name);
    }
    memcpy(removal->ids, ids, removal->waiting * sizeof(*ids));
    removal->id = node_next_id(group->node);
    removal->op = op;
    removal->next = group->removals;
    group->removals = removal;
    group_order(group, ORDER_REMOVE, removal->id, name);
    return 0;
}

/* --- Views --- */

static void end_removals(struct covey_group *group, int code, const char *text)
{
    while (group->removals != NULL)
        removal_end(&group->removals, code, text);
}

static void forget_deliveries(struct covey_group *group)
{
    struct delivery **link = group_is_calling(group) ? &group->deliveries->next : &group->deliveries;

    group->deliveries_end = link;
    while (*link != NULL) {
        struct delivery *delivery = *link;

        *link = delivery->next;
        if (delivery->kind == ORDER_MESSAGE)
            atomic_fetch_sub(&group->undelivered, delivery->bytes + MESSAGE_COST);
        set_decided(group, delivery, false);
        free(delivery);
    }
}

/* What is stable all the others deliver, and so does this node. */
void group_start_anew(struct covey_group *group)
{
    ordering_reset(
        group, COVEY_EVICTED,
        "this node was left out of the view meanwhile: whether the others deliver it is not known");
    group_deliver(group);
    end_removals(group, COVEY_EVICTED,
                 "this node was left out of the view meanwhile: whether the others removed it is not known");
}

void group_leave(struct covey_group *group)
{
    if (group->ordering != NULL)
        ordering_reset(group, COVEY_CLOSED,
                       "the node was closed: whether the others deliver it is not known");
    forget_deliveries(group);
    end_removals(group, COVEY_CLOSED, "the node was closed");
}

void group_view(struct covey_group *group, uint64_t trim)
{
    ordering_enter(group, trim);
    tell_view(group);
    replication_refuse_unlinked(group);
    replication_order_again(group);
}

void group_trim(struct covey_group *group, uint64_t trim)
{
    ordering_trim(group, trim);
    group_deliver(group);
}

/* --- Messages ----------------------------------------------------------------------------------------------
 */

int group_message(struct covey_group *group, struct peer *peer, const struct message *message)
{
    if (message->type == MESSAGE_TABLE)
        return ordering_table(group, peer, &message->table);
    if (message->type == MESSAGE_DELIVERED && *removal_find(group, message->session) != NULL) {
        removal_done_by(group, message->session, peer->id);
        return 0;
    }
    return replication_message(group, peer, message);
}
