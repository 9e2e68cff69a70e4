/* SPDX-License-Identifier: BSD-3-Clause */
/* A group at this member: its order, what is delivered in it, its state.
 *
 *      root            leader (the group's lowest rank)        every member
 *      ORDER  ----->   takes the next position
 *                      ORDERED(position)  ----------------->   notes it
 *                                         <-----------------   NOTED(position)
 *                      when everyone of the view has noted it
 *                      STABLE(position)   ----------------->   delivers up to it, in order
 *
 * A version's number is its position. Nothing is delivered that somebody of the view has not noted, and what
 * is noted is this node's word in the agreement on the next view (core/membership.h, `received`): its trim is
 * the minimum over those who stay. So at a view change everyone delivers up to the trim and forgets the rest,
 * which nobody can have delivered; what was forgotten, or never had a place, asks the next view's leader
 * again if its root is still there. Once wedged a node notes nothing more. These messages carry the number of
 * their sender's view: one of an older view is dropped, one of a view that is not installed here yet waits
 * for it.
 *
 * Decisions are carried out one by one: a version is in the store, for readers, only when on_object has
 * returned. */

#include <stdlib.h>
#include <string.h>

#include "node/members.h"
#include "node/op.h"
#include "node/replication.h"

struct delivery {
    struct delivery *next;
    enum order_kind kind;
    uint64_t id, position;
    bool called; /* on_object is under way */
    char name[COVEY_NAME_MAX + 1];
};

/* ORDER, ORDERED or STABLE of a view to come. */
struct early {
    struct early *next;
    enum message_type type;
    uint64_t view, id, position;
    enum order_kind kind;
    char name[COVEY_NAME_MAX + 1];
};

struct removal {
    struct removal *next;
    uint64_t id;
    bool ordered; /* it is noted here */
    char name[COVEY_NAME_MAX + 1];
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

uint32_t group_leader(const struct covey_group *group)
{
    uint32_t ids[COVEY_MEMBERS_MAX];

    return group_members(group, ids) > 0 ? ids[0] : UINT32_MAX;
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
            return fail_set(fail, code, "group %s %s: member %s %.350s", group->options->name, what,
                            peer->name, peer->problem[0] != '\0' ? peer->problem : "is not up yet");
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
    rc = memory_ops(options->memory, &memory, fail);
    if (rc == 0)
        rc = memory->device(options->device, node->options->self.id, &config.device, fail);
    if (rc == 0)
        rc = store_open(&config, &group->store, fail);
    group->device = config.device;
    if (rc != 0) {
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

static void deliveries_run(struct covey_group *group);

static void delivery_pop(struct covey_group *group)
{
    struct delivery *delivery = group->deliveries;

    group->deliveries = delivery->next;
    if (group->deliveries == NULL)
        group->deliveries_end = &group->deliveries;
    free(delivery);
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
        delivery_pop(group);
        deliveries_run(group);
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
    struct object *newest = store_find(group->store, delivery->name, 0);
    uint32_t origin = (uint32_t)(delivery->id >> 48);

    if (newest != NULL) {
        tell_removed(group, delivery->name, newest->version);
        node->counters.removed++;
        node_event(node, "removed", delivery->name, "removed %s", delivery->name);
    }
    store_remove(group->store, delivery->name, delivery->position);
    if (origin == node->options->self.id) {
        removal_done_by(group, delivery->id, origin);
    } else {
        struct message message = {.type = MESSAGE_DELIVERED, .group = group->index, .session = delivery->id};
        struct peer *peer = peers_find(node->peers, origin);

        if (peer != NULL)
            node_send(node, peer, &message);
    }
}

/* Carry out stable decisions in order, up to one that waits for the application. */
static void deliveries_run(struct covey_group *group)
{
    while (group->deliveries != NULL && !group->deliveries->called &&
           group->deliveries->position <= group->stable) {
        struct delivery *delivery = group->deliveries;

        if (delivery->kind == ORDER_REMOVE) {
            remove_here(group, delivery);
        } else {
            struct replication *replication = replication_find(group->node, delivery->id);

            if (replication != NULL && call_on_object(group, delivery, replication))
                return;
            if (replication != NULL)
                replication_commit(replication, delivery->position);
        }
        delivery_pop(group);
    }
}

/* --- The order --- */

static bool is_leader(const struct covey_group *group)
{
    return group_leader(group) == group->node->options->self.id;
}

/* Rank of a node among the group's members; the count of them if it is none. */
static uint32_t rank_in(const struct covey_group *group, uint32_t id, uint32_t *count)
{
    uint32_t ids[COVEY_MEMBERS_MAX], rank = 0;

    *count = group_members(group, ids);
    while (rank < *count && ids[rank] != id)
        rank++;
    return rank;
}

static void set_stable(struct covey_group *group, uint64_t position)
{
    group->stable = position;
    deliveries_run(group);
}

/* Leader: a member has noted everything up to position. What all have noted is stable. */
static void noted_by(struct covey_group *group, uint32_t id, uint64_t position)
{
    struct message message = {.type = MESSAGE_STABLE, .group = group->index};
    uint64_t least = UINT64_MAX;
    uint32_t count, rank = rank_in(group, id, &count);

    if (rank == count)
        return;
    group->noted[rank] = position;
    for (uint32_t i = 0; i < count; i++) {
        if (group->noted[i] < least)
            least = group->noted[i];
    }
    if (least <= group->stable)
        return;
    message.session = least;
    message.view = group->node->view.number;
    node_send_group(group, &message);
    set_stable(group, least);
}

static void set_decided(struct covey_group *group, uint64_t id, bool decided)
{
    struct replication *replication = replication_find(group->node, id);

    if (replication != NULL)
        replication->decided = decided;
    for (struct removal *removal = group->removals; removal != NULL; removal = removal->next) {
        if (removal->id == id)
            removal->ordered = decided;
    }
}

static int note(struct covey_group *group, enum order_kind kind, uint64_t id, uint64_t position,
                const char *name, size_t name_bytes)
{
    struct message message = {.type = MESSAGE_NOTED, .group = group->index, .session = position};
    struct delivery *delivery = calloc(1, sizeof(*delivery));
    struct peer *leader = peers_find(group->node->peers, group_leader(group));

    if (delivery == NULL)
        return COVEY_NO_MEMORY;
    delivery->kind = kind;
    delivery->id = id;
    delivery->position = position;
    if (name_bytes > 0)
        memcpy(delivery->name, name, name_bytes);
    *group->deliveries_end = delivery;
    group->deliveries_end = &delivery->next;
    set_decided(group, id, true);
    group->position = position;
    members_received(group, position);
    if (is_leader(group)) {
        noted_by(group, group->node->options->self.id, position);
    } else if (leader != NULL) {
        message.view = group->node->view.number;
        node_send(group->node, leader, &message);
    }
    return 0;
}

/* The leader gives the next position. A session that this node does not hold whole cannot be everywhere; one
 * that is decided was asked for twice, before and after a view. */
static int give_position(struct covey_group *group, enum order_kind kind, uint64_t id, const char *name,
                         size_t name_bytes)
{
    struct replication *replication = replication_find(group->node, id);
    struct message message = {.type = MESSAGE_ORDERED, .group = group->index, .session = id};

    if (members_wedged(group->node))
        return 0; /* asked again in the next view */
    if (kind == ORDER_COMMIT &&
        (replication == NULL || replication->decided || !replication_is_whole(replication)))
        return 0;
    message.order = (struct message_order){.kind = (uint8_t)kind,
                                           .view = group->node->view.number,
                                           .position = group->position + 1,
                                           .name = name,
                                           .name_bytes = (uint8_t)name_bytes};
    node_send_group(group, &message);
    return note(group, kind, id, group->position + 1, name, name_bytes);
}

void group_order(struct covey_group *group, enum order_kind kind, uint64_t id, const char *name)
{
    struct covey_node *node = group->node;
    size_t name_bytes = name != NULL ? strlen(name) : 0;
    struct message message = {.type = MESSAGE_ORDER, .group = group->index, .session = id};
    struct peer *peer = peers_find(node->peers, group_leader(group));

    if (is_leader(group)) {
        if (give_position(group, kind, id, name, name_bytes) != 0)
            log_error(&node->log, "group %s: no memory for a decision", group->options->name);
        return;
    }
    message.order = (struct message_order){
        .kind = (uint8_t)kind, .view = node->view.number, .name = name, .name_bytes = (uint8_t)name_bytes};
    if (peer != NULL)
        node_send(node, peer, &message);
}

/* Keep a message of a view to come. */
static int keep_early(struct covey_group *group, const struct message *message, uint64_t view)
{
    struct early *early = calloc(1, sizeof(*early)), **end = &group->early;

    if (early == NULL)
        return COVEY_NO_MEMORY;
    early->type = message->type;
    early->view = view;
    early->id = message->session;
    if (message->type != MESSAGE_STABLE) {
        early->position = message->order.position;
        early->kind = message->order.kind;
        memcpy(early->name, message->order.name, message->order.name_bytes);
    }
    while (*end != NULL)
        end = &(*end)->next;
    *end = early;
    return 0;
}

/* What was asked in an older view is asked again by whoever comes into this one. */
static int take_order(struct covey_group *group, const struct peer *peer, const struct message *message)
{
    const struct message_order *order = &message->order;

    if (message->session >> 48 != peer->id)
        return COVEY_PROTOCOL;
    if (order->view > group->node->view.number)
        return keep_early(group, message, order->view);
    if (order->view < group->node->view.number || !is_leader(group)) {
        group->node->counters.strays++;
        return 0;
    }
    return give_position(group, order->kind, message->session, order->name, order->name_bytes);
}

static int take_ordered(struct covey_group *group, const struct peer *peer, const struct message *message)
{
    const struct message_order *order = &message->order;

    if (order->view > group->node->view.number)
        return keep_early(group, message, order->view);
    if (order->view < group->node->view.number || members_wedged(group->node)) {
        group->node->counters.strays++;
        return 0;
    }
    if (group_leader(group) != peer->id || order->position <= group->position)
        return COVEY_PROTOCOL;
    return note(group, order->kind, message->session, order->position, order->name, order->name_bytes);
}

static int take_noted(struct covey_group *group, const struct peer *peer, const struct message *message)
{
    if (message->view != group->node->view.number) {
        group->node->counters.strays++;
        return 0;
    }
    if (!is_leader(group) || message->session > group->position)
        return COVEY_PROTOCOL;
    noted_by(group, peer->id, message->session);
    return 0;
}

static int take_stable(struct covey_group *group, const struct peer *peer, const struct message *message)
{
    if (message->view > group->node->view.number)
        return keep_early(group, message, message->view);
    if (message->view < group->node->view.number) {
        group->node->counters.strays++;
        return 0;
    }
    /* What was sent while this node was wedged it has not noted. */
    if (group_leader(group) != peer->id)
        return COVEY_PROTOCOL;
    if (message->session > group->stable && message->session <= group->position)
        set_stable(group, message->session);
    return 0;
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
    snprintf(removal->name, sizeof(removal->name), "%s", name);
    removal->next = group->removals;
    group->removals = removal;
    group_order(group, ORDER_REMOVE, removal->id, name);
    return 0;
}

/* --- Views --- */

static void forget_early(struct covey_group *group)
{
    while (group->early != NULL) {
        struct early *early = group->early;

        group->early = early->next;
        free(early);
    }
}

/* Forget the decisions past the trim: nobody has delivered them. */
static void forget_past(struct covey_group *group, uint64_t trim)
{
    struct delivery **link = &group->deliveries;

    while (*link != NULL && (*link)->position <= trim)
        link = &(*link)->next;
    group->deliveries_end = link;
    while (*link != NULL) {
        struct delivery *delivery = *link;

        *link = delivery->next;
        set_decided(group, delivery->id, false);
        free(delivery);
    }
}

static void end_removals(struct covey_group *group, int code, const char *text)
{
    while (group->removals != NULL)
        removal_end(&group->removals, code, text);
}

/* What is stable all the others deliver, and so does this node. */
void group_start_anew(struct covey_group *group)
{
    forget_past(group, group->stable);
    forget_early(group);
    end_removals(group, COVEY_EVICTED,
                 "this node was left out of the view meanwhile: whether the others removed it is not known");
}

void group_leave(struct covey_group *group)
{
    forget_past(group, group_is_calling(group) ? group->deliveries->position : 0);
    forget_early(group);
    end_removals(group, COVEY_CLOSED, "the node was closed");
}

static void replay(struct covey_group *group, const struct early *early)
{
    if (early->type == MESSAGE_ORDER && is_leader(group))
        give_position(group, early->kind, early->id, early->name, strlen(early->name));
    if (early->type == MESSAGE_STABLE && early->id > group->stable && early->id <= group->position)
        set_stable(group, early->id);
    if (early->type == MESSAGE_ORDERED && early->position > group->position)
        note(group, early->kind, early->id, early->position, early->name, strlen(early->name));
}

/* Replay what came before its view, in the order in which it came. */
static void run_early(struct covey_group *group)
{
    struct early **link = &group->early;

    while (*link != NULL) {
        struct early *early = *link;

        if (early->view > group->node->view.number) {
            link = &early->next;
            continue;
        }
        *link = early->next;
        if (early->view == group->node->view.number)
            replay(group, early);
        free(early);
    }
}

/* What the trim took back, or the last view never decided, asks again. */
static void order_again(struct covey_group *group)
{
    replication_refuse_unlinked(group);
    replication_order_again(group);
    for (struct removal *removal = group->removals, *next; removal != NULL; removal = next) {
        next = removal->next;
        if (!removal->ordered)
            group_order(group, ORDER_REMOVE, removal->id, removal->name);
    }
}

void group_view(struct covey_group *group, uint64_t trim)
{
    uint32_t ids[COVEY_MEMBERS_MAX];
    uint32_t count = group_members(group, ids);

    forget_past(group, trim);
    group->position = trim;
    set_stable(group, trim);
    for (uint32_t i = 0; i < count; i++)
        group->noted[i] = group->position;
    tell_view(group);
    run_early(group);
    order_again(group);
}

/* --- Messages ----------------------------------------------------------------------------------------------
 */

int group_message(struct covey_group *group, struct peer *peer, const struct message *message)
{
    switch (message->type) {
    case MESSAGE_ORDER:
        return take_order(group, peer, message);
    case MESSAGE_ORDERED:
        return take_ordered(group, peer, message);
    case MESSAGE_NOTED:
        return take_noted(group, peer, message);
    case MESSAGE_STABLE:
        return take_stable(group, peer, message);
    case MESSAGE_DELIVERED:
        if (*removal_find(group, message->session) != NULL) {
            removal_done_by(group, message->session, peer->id);
            return 0;
        }
        return replication_message(group, peer, message);
    default:
        return replication_message(group, peer, message);
    }
}
