/* SPDX-License-Identifier: BSD-3-Clause */
#include "node/ordering.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "node/members.h"
#include "node/op.h"
#include "node/outbox.h"

#define RING_BYTES (UINT32_C(1) << 17)
#define RANK_NONE  UINT32_MAX

_Static_assert(COVEY_MESSAGE_MAX <= RING_BYTES / 8 * 3 - 16, "a message fits into a ring");

/* The words of a push, until the write is done: when as many later ones were taken as a link can have posted.
 */
struct words {
    uint64_t words[ORDER_PUSH_WORDS];
};

/* A link to a peer of the group. */
struct ordering_link {
    struct ordering_link *next;
    struct peer *peer; /* NULL: it is down, and this is kept for its entries */
    uint32_t id;
    uint64_t incarnation;
    uint32_t rank; /* in the group's view, whose order reads this row; RANK_NONE */
    bool heard;    /* since it was looked at */
    void *row;     /* that the peer writes */
    struct fabric_region *row_region;
    struct words *words; /* a ring of them */
    struct fabric_region *words_region;
    uint32_t words_count, words_next;
    bool linked; /* the peer's TABLE came: */
    struct message_table table;
};

struct ordering {
    struct covey_group *group;
    const struct memory_ops *host;
    struct order_config config;
    struct order *order;
    void *row; /* this node's */
    struct fabric_region *row_region;
    struct ordering_link *links;
    bool entered;  /* in a view */
    uint32_t *ids; /* of its members */
    bool due;      /* a turn has something to do */
    bool behind;   /* a push waits for room in an outbox */
    struct sending *waiting, **waiting_end;
    struct sending *sent, **sent_end;
};

/* --- What is sent --------------------------------------------------------------------------------------- */

struct sending *sending_new(struct covey_group *group, enum order_kind kind, const void *data, uint32_t bytes)
{
    struct sending *sending = malloc(sizeof(*sending) + bytes);

    if (sending == NULL)
        return NULL;
    memset(sending, 0, sizeof(*sending));
    sending->group = group;
    sending->kind = (uint8_t)kind;
    sending->bytes = bytes;
    if (bytes > 0)
        memcpy(sending->data, data, bytes);
    return sending;
}

uint64_t sending_cost(uint64_t bytes)
{
    return bytes + sizeof(struct sending);
}

void sending_end(struct sending *sending, int code, const char *text)
{
    if (sending->op != NULL)
        op_end(sending->op, code, text);
    free(sending);
}

static void append(struct sending ***end, struct sending *sending)
{
    sending->next = NULL;
    **end = sending;
    *end = &sending->next;
}

static struct sending *take_first(struct sending **first, struct sending ***end)
{
    struct sending *sending = *first;

    if (sending == NULL)
        return NULL;
    *first = sending->next;
    if (*first == NULL)
        *end = first;
    return sending;
}

void ordering_send(struct covey_group *group, struct sending *sending)
{
    append(&group->ordering->waiting_end, sending);
    group->ordering->due = true;
}

struct sending *ordering_delivered(struct covey_group *group)
{
    return take_first(&group->ordering->sent, &group->ordering->sent_end);
}

/* Messages of the application are counted while they wait. */
static struct sending *take_waiting(struct ordering *ordering, uint64_t *cost)
{
    struct sending *sending = take_first(&ordering->waiting, &ordering->waiting_end);

    if (sending != NULL && sending->kind == ORDER_MESSAGE)
        *cost += sending_cost(sending->bytes);
    return sending;
}

static void end_all(struct ordering *ordering, int code, const char *text)
{
    struct sending *sending;
    uint64_t cost = 0;

    while ((sending = take_first(&ordering->sent, &ordering->sent_end)) != NULL ||
           (sending = take_waiting(ordering, &cost)) != NULL)
        sending_end(sending, code, text);
    group_made_room(ordering->group, cost);
}

/* What the ring has room for. Returns whether there was anything. */
static bool send_waiting(struct ordering *ordering)
{
    uint64_t cost = 0;
    bool any = false;

    while (ordering->waiting != NULL && order_send(ordering->order, ordering->waiting->kind,
                                                   ordering->waiting->data, ordering->waiting->bytes) == 0) {
        append(&ordering->sent_end, take_waiting(ordering, &cost));
        any = true;
    }
    if (cost > 0)
        group_made_room(ordering->group, cost);
    return any;
}

/* --- Memory --------------------------------------------------------------------------------------------- */

/* Zeroed; registered where the fabric has to know it. */
static int take_memory(struct ordering *ordering, size_t bytes, bool remote, void **base,
                       struct fabric_region **region, struct fail *fail)
{
    struct fabric *fabric = ordering->group->node->fabric;
    int rc = ordering->host->allocate(0, bytes, base, fail);

    if (rc != 0)
        return rc;
    memset(*base, 0, bytes);
    if (!remote && !fabric_needs_local(fabric))
        return 0;
    rc = fabric_register(fabric, *base, bytes, COVEY_MEMORY_HOST, 0, remote, region, fail);
    if (rc == 0)
        return 0;
    ordering->host->release(0, *base, bytes);
    *base = NULL;
    return rc;
}

static void give_memory(const struct ordering *ordering, size_t bytes, void *base,
                        struct fabric_region *region)
{
    if (region != NULL)
        fabric_deregister(region);
    if (base != NULL)
        ordering->host->release(0, base, bytes);
}

static void link_free(const struct ordering *ordering, struct ordering_link *link)
{
    give_memory(ordering, order_row_bytes(&ordering->config), link->row, link->row_region);
    give_memory(ordering, link->words_count * sizeof(*link->words), link->words, link->words_region);
    free(link);
}

static struct ordering_link *link_new(struct ordering *ordering, struct peer *peer, struct fail *fail)
{
    struct ordering_link *link = calloc(1, sizeof(*link));
    void *words = NULL;
    int rc;

    if (link == NULL) {
        fail_set(fail, COVEY_NO_MEMORY, "no memory for a link of a group");
        return NULL;
    }
    link->peer = peer;
    link->id = peer->id;
    link->incarnation = peer->incarnation;
    link->rank = RANK_NONE;
    link->words_count = fabric_limits(ordering->group->node->fabric)->outstanding + 1;
    rc = take_memory(ordering, order_row_bytes(&ordering->config), true, &link->row, &link->row_region, fail);
    if (rc == 0)
        rc = take_memory(ordering, link->words_count * sizeof(*link->words), false, &words,
                         &link->words_region, fail);
    link->words = words;
    if (rc == 0)
        return link;
    link_free(ordering, link);
    return NULL;
}

int ordering_open(struct covey_group *group, struct fail *fail)
{
    struct ordering *ordering = calloc(1, sizeof(*ordering));
    void *memory;
    int rc;

    if (ordering == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for an order");
    group->ordering = ordering;
    ordering->group = group;
    ordering->config =
        (struct order_config){.members_max = members_max(group->node->options), .ring_bytes = RING_BYTES};
    ordering->waiting_end = &ordering->waiting;
    ordering->sent_end = &ordering->sent;
    rc = memory_ops(COVEY_MEMORY_HOST, &ordering->host, fail);
    if (rc == 0)
        rc = take_memory(ordering, order_row_bytes(&ordering->config), false, &ordering->row,
                         &ordering->row_region, fail);
    ordering->ids = calloc(ordering->config.members_max, sizeof(*ordering->ids));
    memory = malloc(order_bytes(&ordering->config));
    if (rc == 0 && (memory == NULL || ordering->ids == NULL))
        rc = fail_set(fail, COVEY_NO_MEMORY, "no memory for an order");
    if (rc != 0) {
        free(memory);
        ordering_close(group);
        return rc;
    }
    ordering->order = order_init(&ordering->config, memory, ordering->row);
    return 0;
}

void ordering_close(struct covey_group *group)
{
    struct ordering *ordering = group->ordering;

    if (ordering == NULL)
        return;
    end_all(ordering, COVEY_CLOSED, "the node was closed");
    while (ordering->links != NULL) {
        struct ordering_link *link = ordering->links;

        ordering->links = link->next;
        link_free(ordering, link);
    }
    give_memory(ordering, order_row_bytes(&ordering->config), ordering->row, ordering->row_region);
    free(ordering->order);
    free(ordering->ids);
    free(ordering);
    group->ordering = NULL;
}

/* --- Links ---------------------------------------------------------------------------------------------- */

static struct ordering_link *find_link(const struct ordering *ordering, const struct peer *peer)
{
    struct ordering_link *link = ordering->links;

    while (link != NULL && link->peer != peer)
        link = link->next;
    return link;
}

/* The rank of that process among the group's members; RANK_NONE if it is none. */
static uint32_t rank_of(const struct covey_group *group, uint32_t id, uint64_t incarnation)
{
    const struct node_view *view = &group->node->view;
    uint32_t rank = 0;

    for (uint32_t i = 0; i < view->count; i++) {
        if (view->ids[i] == id)
            return view->incarnations[i] == incarnation ? rank : RANK_NONE;
        rank += options_group_selects(group->options, view->ids[i]);
    }
    return RANK_NONE;
}

/* Once per view: what was lost with a link the next view makes up for. */
static void bind_link(struct ordering *ordering, struct ordering_link *link)
{
    uint32_t rank = rank_of(ordering->group, link->id, link->incarnation);

    if (rank == RANK_NONE || order_bound(ordering->order, rank))
        return;
    link->rank = rank;
    link->heard = true; /* the peer may have been faster */
    order_bind(ordering->order, rank, link->row);
    if (link->linked)
        order_link(ordering->order, rank);
    ordering->due = true;
}

static void tell_table(struct ordering *ordering, const struct ordering_link *link)
{
    struct message message = {.type = MESSAGE_TABLE, .group = ordering->group->index};

    fabric_region_remote(link->row_region, &message.table.address, &message.table.key);
    message.table.row_bytes = order_row_bytes(&ordering->config);
    message.table.slot = ordering->group->index;
    node_send(ordering->group->node, link->peer, &message);
}

void ordering_peer_up(struct covey_group *group, struct peer *peer)
{
    struct ordering *ordering = group->ordering;
    struct ordering_link *link;
    struct fail fail = {0};

    if (!options_group_selects(group->options, peer->id) || peer->user == NULL)
        return;
    link = link_new(ordering, peer, &fail);
    if (link == NULL) {
        peers_disconnect(group->node->peers, peer, fail.code, fail.text);
        return;
    }
    link->next = ordering->links;
    ordering->links = link;
    tell_table(ordering, link);
    if (ordering->entered)
        bind_link(ordering, link);
}

static void forget_link(struct ordering *ordering, struct ordering_link *link)
{
    struct ordering_link **at = &ordering->links;

    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    link_free(ordering, link);
}

void ordering_peer_down(struct covey_group *group, const struct peer *peer)
{
    struct ordering *ordering = group->ordering;
    struct ordering_link *link = find_link(ordering, peer);

    if (link == NULL)
        return;
    link->peer = NULL;
    link->linked = false;
    if (link->rank == RANK_NONE)
        forget_link(ordering, link);
    else
        order_unlink(ordering->order, link->rank);
}

int ordering_table(struct covey_group *group, const struct peer *peer, const struct message_table *table)
{
    struct ordering *ordering = group->ordering;
    struct ordering_link *link = find_link(ordering, peer);

    if (link == NULL || link->linked || table->row_bytes != order_row_bytes(&ordering->config))
        return COVEY_PROTOCOL;
    link->table = *table;
    link->linked = true;
    if (link->rank == RANK_NONE)
        return 0;
    order_link(ordering->order, link->rank);
    ordering->due = true;
    return 0;
}

int ordering_arrived(struct covey_group *group, const struct peer *peer)
{
    struct ordering_link *link = find_link(group->ordering, peer);

    if (link == NULL)
        return COVEY_PROTOCOL;
    link->heard = true;
    group->ordering->due = true;
    return 0;
}

/* --- Turns ---------------------------------------------------------------------------------------------- */

static void look(struct ordering *ordering)
{
    for (struct ordering_link *link = ordering->links; link != NULL; link = link->next) {
        if (!link->heard || link->rank == RANK_NONE)
            continue;
        link->heard = false;
        if (order_look(ordering->order, link->rank) != 0 && link->peer != NULL)
            peers_disconnect(ordering->group->node->peers, link->peer, COVEY_PROTOCOL,
                             "what it wrote for its group is no entry");
    }
}

static void push_words(struct ordering *ordering, struct ordering_link *link, const struct order_push *push)
{
    struct words *words = &link->words[link->words_next++ % link->words_count];
    struct fabric_piece piece = {words, sizeof(*words), link->words_region};

    memcpy(words->words, push->words, sizeof(words->words));
    outbox_write(ordering->group->node, link->peer, &piece, link->table.address + push->words_offset,
                 link->table.key, IMMEDIATE_GROUP | link->table.slot);
}

static void push_to(struct ordering *ordering, struct ordering_link *link)
{
    struct node_counters *counters = &ordering->group->node->counters;
    struct order_push push;

    if (!order_push(ordering->order, link->rank, &push))
        return;
    counters->pushes++;
    for (uint32_t i = 0; i < push.range_count; i++) {
        const struct order_range *range = &push.ranges[i];
        struct fabric_piece piece = {(const char *)ordering->row + range->offset, range->bytes,
                                     ordering->row_region};

        counters->pushed_bytes += range->bytes;
        outbox_write(ordering->group->node, link->peer, &piece, link->table.address + range->offset,
                     link->table.key, FABRIC_IMMEDIATE_NONE);
    }
    push_words(ordering, link, &push);
}

/* The peer is up, and not about to be disconnected. */
static bool can_push(const struct ordering_link *link)
{
    return link->rank != RANK_NONE && link->linked && link->peer->up && link->peer->user != NULL;
}

/* To a peer whose outbox is not empty there is nothing to gain from more than it has. */
static void push_all(struct ordering *ordering)
{
    for (struct ordering_link *link = ordering->links; link != NULL; link = link->next) {
        if (!can_push(link))
            continue;
        if (outbox_waits(link->peer))
            ordering->behind = true;
        else
            push_to(ordering, link);
    }
}

/* Returns whether there was anything. */
static bool hand_out(struct ordering *ordering, bool all)
{
    struct order_entry entry;
    bool any = false;

    while ((all || group_has_room(ordering->group)) && order_next(ordering->order, &entry)) {
        group_take(ordering->group, &entry, ordering->ids[entry.rank]);
        any = true;
    }
    return any;
}

/* What is received is said before anything else is done with it: others wait for that. Returns whether
 * something was delivered: then there may be more to say, and more room. */
static bool round_of(struct ordering *ordering)
{
    struct covey_group *group = ordering->group;
    bool any;

    ordering->due = ordering->behind = false;
    order_advance(ordering->order);
    if (send_waiting(ordering))
        order_advance(ordering->order);
    members_received(group, order_received(ordering->order));
    push_all(ordering);
    any = hand_out(ordering, false);
    group_deliver(group);
    return any;
}

void ordering_turn(struct covey_group *group)
{
    struct ordering *ordering = group->ordering;

    if (!(ordering->due || ordering->behind) || !ordering->entered || group->node->members == NULL ||
        members_wedged(group->node))
        return;
    look(ordering);
    while (round_of(ordering) || ordering->due)
        ;
}

void ordering_resume(struct covey_group *group)
{
    group->ordering->due = true;
}

/* --- Views ---------------------------------------------------------------------------------------------- */

void ordering_trim(struct covey_group *group, uint64_t trim)
{
    struct ordering *ordering = group->ordering;

    if (!ordering->entered)
        return;
    order_trim(ordering->order, trim);
    hand_out(ordering, true);
}

/* Rows of links that are down were kept for entries that are handed out now. */
static void unbind_all(struct ordering *ordering)
{
    for (struct ordering_link *link = ordering->links, *next; link != NULL; link = next) {
        next = link->next;
        link->rank = RANK_NONE;
        if (link->peer == NULL)
            forget_link(ordering, link);
    }
}

void ordering_enter(struct covey_group *group, uint64_t position)
{
    struct ordering *ordering = group->ordering;
    const struct covey_node *node = group->node;
    uint32_t members = group_members(group, ordering->ids);

    unbind_all(ordering);
    order_enter(ordering->order, node->view.number, members,
                rank_of(group, node->options->self.id, node->incarnation), position);
    ordering->entered = true;
    for (struct ordering_link *link = ordering->links; link != NULL; link = link->next)
        bind_link(ordering, link);
    ordering->due = true;
}

void ordering_reset(struct covey_group *group, int code, const char *text)
{
    struct ordering *ordering = group->ordering;

    if (ordering->entered)
        hand_out(ordering, true);
    ordering->entered = false;
    order_reset(ordering->order);
    unbind_all(ordering);
    end_all(ordering, code, text);
}
