/* SPDX-License-Identifier: BSD-3-Clause */
#include "node/members.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "node/members_tell.h"
#include "node/outbox.h"
#include "node/replication.h"
#include "node/tcp.h"

/* Members beside the configured nodes, and links to processes that are none (any more). */
#define ELASTIC_MAX 32
#define SPARE_SLOTS 16

/* Joiners wait so long for each other. */
#define BATCH_NS    UINT64_C(5000000)

#define SLOT_NONE   UINT32_MAX

_Static_assert(TCP_ADDRESS_BYTES == VIEW_ADDRESS_BYTES, "a view's address is one of TCP");

struct members {
    struct covey_node *node;
    struct membership *membership;
    struct table_layout layout;
    struct membership_group *groups;
    uint32_t *node_ids;
    uint32_t slots;
    uint32_t slot_next;   /* where to look for a free one */
    struct peer **owners; /* by slot */
    void *memory;
    void *rows; /* slots' memory: peers write it */
    size_t rows_bytes;
    const struct memory_ops *host;
    struct fabric_region *region;
    struct membership_actions actions;
    bool stepping;
    struct membership_event *waiting; /* LINK_DOWNs that came in the middle of a step */
    size_t waiting_count;
    bool leaving;
};

uint32_t members_max(const struct covey_options *options)
{
    size_t members = options->node_count + ELASTIC_MAX;

    return members < COVEY_MEMBERS_MAX ? (uint32_t)members : COVEY_MEMBERS_MAX;
}

/* --- Made -------------------------------------------------------------------------------------------------
 */

static int make_lists(struct members *members, struct fail *fail)
{
    const struct covey_options *options = members->node->options;

    members->node_ids = calloc(options->node_count, sizeof(*members->node_ids));
    members->groups = calloc(options->group_count + 1, sizeof(*members->groups));
    members->owners = calloc(members->slots, sizeof(struct peer *));
    members->waiting = calloc(members->slots, sizeof(*members->waiting));
    if (members->node_ids == NULL || members->groups == NULL || members->owners == NULL ||
        members->waiting == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for a membership of %zu nodes",
                        options->node_count);
    for (size_t i = 0; i < options->node_count; i++)
        members->node_ids[i] = options->nodes[i].id;
    for (size_t i = 0; i < options->group_count; i++)
        members->groups[i] = (struct membership_group){options->groups[i].all, options->groups[i].member_ids,
                                                       options->groups[i].member_count};
    return 0;
}

static void fill_config(const struct members *members, struct membership_config *config)
{
    const struct covey_options *options = members->node->options;

    *config = (struct membership_config){
        .id = options->self.id,
        .incarnation = members->node->incarnation,
        .node_ids = members->node_ids,
        .node_count = (uint32_t)options->node_count,
        .slots = members->slots,
        .members_max = members_max(options),
        .groups = members->groups,
        .group_count = (uint32_t)options->group_count,
        .quorum = options->quorum == QUORUM_TIE_BREAKER ? MEMBERSHIP_TIE_BREAKER : MEMBERSHIP_MAJORITY,
        .heartbeat_ns = options->heartbeat_ns,
        .suspect_after_ns = options->suspect_after_ns,
        .batch_ns = BATCH_NS,
    };
    randombytes_buf(&config->seed, sizeof(config->seed));
    tcp_encode_address(&options->self.sockaddr, config->address);
}

static int make_table(struct members *members, struct fail *fail)
{
    struct membership_config config;
    int rc;

    fill_config(members, &config);
    membership_layout(&config, &members->layout);
    members->rows_bytes = table_slots_bytes(&members->layout);
    members->memory = calloc(1, membership_bytes(&config));
    if (members->memory == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for a table of %u members", config.members_max);
    rc = memory_ops(COVEY_MEMORY_HOST, &members->host, fail);
    if (rc == 0)
        rc = members->host->allocate(0, members->rows_bytes, &members->rows, fail);
    if (rc == 0)
        rc = fabric_register(members->node->fabric, members->rows, members->rows_bytes, COVEY_MEMORY_HOST, 0,
                             true, &members->region, fail);
    if (rc == 0)
        members->membership = membership_init(&config, members->memory, members->rows, members->node->now_ns);
    return rc;
}

void members_free(struct members *members)
{
    if (members == NULL)
        return;
    if (members->region != NULL)
        fabric_deregister(members->region);
    if (members->rows != NULL)
        members->host->release(0, members->rows, members->rows_bytes);
    free(members->memory);
    free(members->node_ids);
    free(members->groups);
    free(members->owners);
    free(members->waiting);
    free(members);
}

static int make_view(struct covey_node *node, struct fail *fail)
{
    size_t members = node->options->node_count + ELASTIC_MAX;

    if (node->view.ids != NULL)
        return 0;
    node->view.ids = calloc(members, sizeof(*node->view.ids));
    node->view.incarnations = calloc(members, sizeof(*node->view.incarnations));
    if (node->view.ids == NULL || node->view.incarnations == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for a view of %zu members", members);
    return 0;
}

static int members_new(struct covey_node *node, struct fail *fail)
{
    struct members *members = calloc(1, sizeof(*members));
    int rc;

    if (members == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for a membership");
    if (node->options->group_count > VIEW_GROUPS_MAX) {
        free(members);
        return fail_set(fail, COVEY_TOO_LARGE, "the configuration has %zu groups: at most %d are possible",
                        node->options->group_count, VIEW_GROUPS_MAX);
    }
    members->node = node;
    members->slots = (uint32_t)node->options->node_count + ELASTIC_MAX + SPARE_SLOTS;
    node->now_ns = uv_hrtime();
    rc = make_view(node, fail);
    if (rc == 0)
        rc = make_lists(members, fail);
    if (rc == 0)
        rc = make_table(members, fail);
    if (rc != 0) {
        members_free(members);
        return rc;
    }
    node->members = members;
    return 0;
}

int members_open(struct covey_node *node, struct fail *fail)
{
    static const struct peers_callbacks callbacks = {node_peer_up, node_peer_down, node_peer_event};
    int rc = members_new(node, fail);

    if (rc != 0)
        return rc;
    return peers_open(&node->loop, node->options, node->incarnation, node->fabric, &node->log, &callbacks,
                      node, &node->peers, fail);
}

/* --- What a step asks for
 * ------------------------------------------------------------------------------------ */

static bool concerns(const struct membership_push *push, uint32_t slot)
{
    return push->slot == MEMBERSHIP_EVERYONE || push->slot == slot;
}

static void push_to(struct members *members, uint32_t slot)
{
    const struct membership_actions *actions = &members->actions;
    const char *row = (const char *)membership_table(members->membership)->own;
    struct peer *peer = members->owners[slot];
    struct peer_link *link = peer->user;
    uint32_t last = actions->push_count;

    for (uint32_t i = 0; i < actions->push_count; i++) {
        if (concerns(&actions->pushes[i], slot))
            last = i;
    }
    for (uint32_t i = 0; i < actions->push_count; i++) {
        const struct membership_push *push = &actions->pushes[i];

        if (concerns(push, slot))
            outbox_push(members->node, peer, row + push->offset, push->bytes,
                        link->table.address + push->offset, link->table.key,
                        i == last ? link->table.slot : FABRIC_IMMEDIATE_NONE);
    }
}

static bool linked(const struct members *members, uint32_t slot)
{
    const struct peer *peer = members->owners[slot];

    return peer != NULL && peer->up && ((const struct peer_link *)peer->user)->linked;
}

static void push_all(struct members *members)
{
    for (uint32_t slot = 0; members->actions.push_count > 0 && slot < members->slots; slot++) {
        if (linked(members, slot))
            push_to(members, slot);
    }
}

static void install(struct members *members)
{
    const struct membership_actions *actions = &members->actions;
    struct covey_node *node = members->node;
    struct node_view *view = &node->view;

    for (size_t i = 0; i < node->options->group_count; i++) {
        if (node->groups[i] != NULL && actions->trim[i] != VIEW_TRIM_NONE)
            group_trim(node->groups[i], actions->trim[i]);
    }
    view->number = actions->view->number;
    view->epoch = actions->view->epoch;
    view->count = actions->view->count;
    for (uint32_t rank = 0; rank < view->count; rank++) {
        view->ids[rank] = actions->view->members[rank].id;
        view->incarnations[rank] = actions->view->members[rank].incarnation;
    }
    node->counters.views++;
    node->counters.wedge_ns = node->wedged_ns != 0 ? node->now_ns - node->wedged_ns : 0;
    node->wedged_ns = 0;
    members_tell_view(node, actions);
    for (size_t i = 0; i < node->options->group_count; i++) {
        if (node->groups[i] != NULL)
            group_view(node->groups[i], actions->trim[i] != VIEW_TRIM_NONE ? actions->trim[i] : 0);
    }
}

static enum covey_state state_of(enum membership_state state)
{
    switch (state) {
    case MEMBERSHIP_RUNNING:
        return COVEY_STATE_RUNNING;
    case MEMBERSHIP_WEDGED:
        return COVEY_STATE_WEDGED;
    case MEMBERSHIP_NO_QUORUM:
        return COVEY_STATE_NO_QUORUM;
    case MEMBERSHIP_EVICTED:
    case MEMBERSHIP_LEFT:
        return COVEY_STATE_EVICTED;
    default:
        return COVEY_STATE_FORMING;
    }
}

static void set_state(struct members *members, enum membership_state core_state)
{
    struct covey_node *node = members->node;
    enum covey_state state = state_of(core_state);

    members_tell_state(node, members->membership, core_state);
    node->state = state;
    for (size_t i = 0; i < node->options->group_count; i++) {
        if (node->groups[i] != NULL)
            group_set_state(node->groups[i], state);
    }
    if (core_state == MEMBERSHIP_EVICTED && !members->leaving)
        node_start_anew(node);
}

static void disconnect(struct members *members, uint32_t slot)
{
    struct peer *peer = members->owners[slot];

    if (peer != NULL && peer->up)
        peers_disconnect(members->node->peers, peer, COVEY_EVICTED, "it is no member of the view any more");
}

/* A process that this node has to be linked with, and may not know: an elastic one. */
static void look_for(struct members *members, const struct membership_peer *peer)
{
    struct sockaddr_storage address;
    struct fail fail;
    socklen_t bytes;

    if (members->node->peers == NULL || options_node(members->node->options, peer->id) != NULL)
        return;
    if (!tcp_decode_address(peer->address, &address, &bytes))
        log_debug(&members->node->log, "%s is said to listen at no address",
                  node_name(members->node, peer->id));
    else if (peers_learn(members->node->peers, peer->id, &address, bytes, &fail) != 0)
        log_warning(&members->node->log, "%s", fail.text);
}

/* Elastic nodes that have left are not looked for any more. */
static void forget_left(const struct members *members)
{
    const struct membership_actions *actions = &members->actions;

    for (uint32_t rank = 0; rank < actions->previous->count; rank++) {
        uint32_t id = actions->previous->members[rank].id;
        struct peer *peer = bitmap_get(actions->left, rank) ? peers_find(members->node->peers, id) : NULL;

        if (peer != NULL && !view_has(&members->node->view, id))
            peers_forget(members->node->peers, peer);
    }
}

static void carry_out(struct members *members)
{
    const struct membership_actions *actions = &members->actions;

    if (actions->wedged && members->node->wedged_ns == 0)
        members->node->wedged_ns = members->node->now_ns;
    members_tell_rules(members->node, actions);
    push_all(members);
    if (actions->installed) {
        install(members);
        forget_left(members);
    }
    for (uint32_t i = 0; i < actions->connect_count; i++)
        look_for(members, &actions->connects[i]);
    for (uint32_t i = 0; i < actions->disconnect_count; i++)
        disconnect(members, actions->disconnects[i]);
    if (actions->state_changed)
        set_state(members, actions->state);
    if (actions->installed || actions->state_changed)
        node_run_deferred(members->node);
}

static int step(struct members *members, struct membership_event event)
{
    int rc;

    event.now_ns = members->node->now_ns;
    rc = membership_step(members->membership, &event, &members->actions);
    carry_out(members);
    return rc;
}

/* An event that comes in the middle of a step (a link that was closed by it) waits for its end. */
static int members_event(struct members *members, struct membership_event event)
{
    int rc;

    if (members->stepping) {
        assert(event.type == MEMBERSHIP_LINK_DOWN && members->waiting_count < members->slots);
        members->waiting[members->waiting_count++] = event;
        return 0;
    }
    members->stepping = true;
    rc = step(members, event);
    while (members->waiting_count > 0)
        (void)step(members, members->waiting[--members->waiting_count]);
    members->stepping = false;
    return rc;
}

/* --- Links
 * --------------------------------------------------------------------------------------------------- */

/* Round and round, so that what a member wrote before it died stays readable for a while. */
static uint32_t free_slot(struct members *members)
{
    for (uint32_t i = 0; i < members->slots; i++) {
        uint32_t slot = (members->slot_next + i) % members->slots;

        if (members->owners[slot] == NULL) {
            members->slot_next = slot + 1;
            return slot;
        }
    }
    return SLOT_NONE;
}

void members_peer_up(struct covey_node *node, struct peer *peer)
{
    struct members *members = node->members;
    struct message message = {.type = MESSAGE_TABLE, .group = MESSAGE_NO_GROUP};
    struct peer_link *link = peer->user;
    uint64_t row_bytes = members->layout.row_words * sizeof(uint64_t);

    link->slot = free_slot(members);
    if (link->slot == SLOT_NONE) {
        peers_disconnect(node->peers, peer, COVEY_BUSY, "the table has no slot for it");
        return;
    }
    members->owners[link->slot] = peer;
    table_slot_clear(membership_table(members->membership), link->slot);
    fabric_region_remote(members->region, &message.table.address, &message.table.key);
    message.table.address += link->slot * row_bytes;
    message.table.row_bytes = row_bytes;
    message.table.slot = link->slot;
    node_send(node, peer, &message);
}

void members_peer_down(struct covey_node *node, struct peer *peer)
{
    struct members *members = node->members;
    struct peer_link *link = peer->user;
    uint32_t slot = link->slot;

    if (slot == SLOT_NONE)
        return;
    link->slot = SLOT_NONE;
    members->owners[slot] = NULL;
    if (!link->linked)
        return;
    link->linked = false;
    members_event(members, (struct membership_event){.type = MEMBERSHIP_LINK_DOWN, .slot = slot});
}

int members_message(struct covey_node *node, struct peer *peer, const struct message *message)
{
    struct members *members = node->members;
    struct peer_link *link = peer->user;
    struct membership_event event = {.type = MEMBERSHIP_LINK_UP};

    if (message->type != MESSAGE_TABLE || link->linked || link->slot == SLOT_NONE ||
        message->table.row_bytes != members->layout.row_words * sizeof(uint64_t))
        return COVEY_PROTOCOL;
    link->table = message->table;
    link->linked = true;
    event.slot = link->slot;
    event.peer = (struct membership_peer){.id = peer->id, .incarnation = peer->incarnation};
    tcp_encode_address(&peer->sockaddr, event.peer.address);
    members_event(members, event);
    return 0;
}

int members_arrived(struct covey_node *node, struct peer *peer, uint32_t immediate)
{
    const struct peer_link *link = peer->user;

    if (!link->linked || immediate != link->slot)
        return COVEY_PROTOCOL;
    members_event(node->members, (struct membership_event){.type = MEMBERSHIP_ROW, .slot = link->slot});
    return 0;
}

/* --- Time and wishes
 * ------------------------------------------------------------------------------------------- */

void members_turn(struct covey_node *node)
{
    if (node->members != NULL && membership_deadline_ns(node->members->membership) <= node->now_ns)
        members_event(node->members, (struct membership_event){.type = MEMBERSHIP_TICK});
}

uint64_t members_deadline_ns(const struct covey_node *node)
{
    return node->members != NULL ? membership_deadline_ns(node->members->membership) : UINT64_MAX;
}

int members_evict(struct covey_node *node, uint32_t id, struct fail *fail)
{
    int rc = members_event(node->members, (struct membership_event){.type = MEMBERSHIP_EVICT, .id = id});

    if (rc == COVEY_NOT_FOUND)
        return fail_set(fail, rc, "%s is no member of view %llu", node_name(node, id),
                        (unsigned long long)node->view.number);
    if (rc == COVEY_INVALID)
        return fail_set(fail, rc, "%s is the last member of view %llu: have it leave", node_name(node, id),
                        (unsigned long long)node->view.number);
    return rc == 0 ? 0
                   : fail_set(fail, rc, "cannot evict %s now: %s", node_name(node, id), covey_strerror(rc));
}

int members_force(struct covey_node *node, struct fail *fail)
{
    int rc = members_event(node->members, (struct membership_event){.type = MEMBERSHIP_FORCE});

    if (rc == COVEY_INVALID)
        return fail_set(fail, rc, "view %llu has a quorum: there is nothing to force",
                        (unsigned long long)node->view.number);
    if (rc == COVEY_EXISTS)
        return fail_set(fail, rc,
                        "a member of an earlier view is in reach: force the view there, so that its data "
                        "is kept");
    return rc == 0 ? 0 : fail_set(fail, rc, "cannot force a view: %s", covey_strerror(rc));
}

void members_leave(struct covey_node *node)
{
    node->members->leaving = true;
    members_event(node->members, (struct membership_event){.type = MEMBERSHIP_LEAVE});
}

bool members_has_left(const struct covey_node *node)
{
    enum membership_state state = membership_state(node->members->membership);

    return state == MEMBERSHIP_LEFT || state == MEMBERSHIP_EVICTED || node->view.count <= 1;
}

const struct membership *members_membership(const struct covey_node *node)
{
    return node->members->membership;
}

void members_received(struct covey_group *group, uint64_t position)
{
    membership_received(group->node->members->membership, group->index, position);
}

bool members_wedged(const struct covey_node *node)
{
    return membership_wedged(node->members->membership);
}

bool members_suspects(const struct covey_node *node, uint32_t rank)
{
    return membership_suspects(node->members->membership, rank);
}
