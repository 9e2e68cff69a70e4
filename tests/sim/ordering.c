/* SPDX-License-Identifier: BSD-3-Clause */
/* The application that every process plays: it sends messages of all sizes in its groups, through rings so
 * small that they are full all the time, and delivers what is stable. */
#include "tests/sim/sim_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define KIND      7
#define BURST     6   /* messages at once, at most */
#define SENDS_MAX 120 /* of a process, so that a history ends */
#define SLOT_NONE UINT32_MAX

static const struct order_config config = {.members_max = SIM_NODES_MAX, .ring_bytes = 512};

/* Memory that the peer of a link writes. It outlives the link: what a dead member wrote still counts. */
struct sim_row {
    struct sim_row *next;
    _Alignas(16) char bytes[];
};

static bool selects(const struct sim_process *process, uint32_t group, uint32_t id)
{
    return group == 0 || id < (process->sim->options.configured + 1) / 2;
}

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);

    assert(memory != NULL);
    return memory;
}

void ordering_open(struct sim_process *process)
{
    for (uint32_t group = 0; group < SIM_GROUPS; group++) {
        struct sim_group *own = &process->groups[group];

        own->selected = selects(process, group, process->node);
        own->memory = allocate(order_bytes(&config));
        own->row = allocate(order_row_bytes(&config));
        own->order = order_init(&config, own->memory, own->row);
        own->peers = allocate(process->layout.slots * sizeof(struct sim_row *));
        own->last = allocate(SIM_PROCESSES_MAX * sizeof(*own->last));
    }
}

void ordering_close(struct sim_process *process)
{
    for (uint32_t group = 0; group < SIM_GROUPS; group++) {
        struct sim_group *own = &process->groups[group];

        while (own->rows != NULL) {
            struct sim_row *next = own->rows->next;
            free(own->rows);
            own->rows = next;
        }
        free(own->memory);
        free(own->row);
        free(own->peers);
        free(own->last);
    }
}

void ordering_slot(struct sim_process *process, uint32_t slot)
{
    for (uint32_t group = 0; group < SIM_GROUPS; group++) {
        struct sim_group *own = &process->groups[group];
        struct sim_row *row = allocate(sizeof(*row) + order_row_bytes(&config));

        row->next = own->rows;
        own->rows = row;
        own->peers[slot] = row;
    }
}

void ordering_write(struct sim_process *process, uint32_t slot, uint32_t group, uint32_t offset,
                    uint64_t word)
{
    assert(offset + sizeof(word) <= order_row_bytes(&config));
    memcpy(process->groups[group].peers[slot]->bytes + offset, &word, sizeof(word));
}

/* --- Messages ------------------------------------------------------------------------------------------- */

/* Who sent it, and which of its messages it is; then bytes that follow from both. */
struct message {
    uint32_t process, sequence;
    unsigned char bytes[];
};

static uint32_t message_bytes(uint32_t process, uint32_t sequence)
{
    uint32_t most = order_entry_bytes_max(&config) - (uint32_t)sizeof(struct message);
    uint32_t mixed = (process * 31 + sequence) * UINT32_C(2654435761) >> 8;

    return (uint32_t)sizeof(struct message) + (mixed % 3 == 0 ? mixed % (most + 1) : mixed % 24);
}

static void make_message(struct message *message, uint32_t process, uint32_t sequence)
{
    message->process = process;
    message->sequence = sequence;
    for (uint32_t i = 0; i < message_bytes(process, sequence) - sizeof(*message); i++)
        message->bytes[i] = (unsigned char)(process * 7 + sequence * 3 + i);
}

static bool is_message(const struct order_entry *entry)
{
    static union {
        struct message message;
        char room[512];
    } right;
    const struct message *message = entry->data;

    if (entry->kind != KIND || entry->bytes < sizeof(*message) || message->process >= SIM_PROCESSES_MAX ||
        entry->bytes != message_bytes(message->process, message->sequence))
        return false;
    make_message(&right.message, message->process, message->sequence);
    return memcmp(&right, message, entry->bytes) == 0;
}

static void send_some(struct sim_process *process, struct sim_group *own)
{
    static union {
        struct message message;
        char room[512];
    } made;

    while (own->sent < own->wanted) {
        make_message(&made.message, process->index, own->sent);
        if (order_send(own->order, KIND, &made, message_bytes(process->index, own->sent)) != 0)
            return;
        own->sent++;
    }
}

static void deliver(struct sim_process *process, uint32_t group)
{
    struct sim_group *own = &process->groups[group];
    struct order_entry entry;

    while (process->sim->failure[0] == '\0' && order_next(own->order, &entry)) {
        const struct message *message = entry.data;

        if (!is_message(&entry)) {
            sim_fail(process->sim, "%u delivers what nobody sent in group %u at %" PRIu64, process->node,
                     group, entry.position);
            return;
        }
        own->own_delivered += message->process == process->index;
        own->delivered = entry.position;
        check_message(process, group, entry.position, message->process, message->sequence);
    }
}

/* --- Links and views ------------------------------------------------------------------------------------ */

/* Members of the group by rank in it; returns how many, and the own rank. */
static uint32_t list_members(const struct sim_process *process, uint32_t group, uint32_t *ranks,
                             uint32_t *own)
{
    const struct view *view = membership_view(process->membership);
    uint32_t count = 0;

    for (uint32_t rank = 0; rank < view->count; rank++) {
        if (!selects(process, group, view->members[rank].id))
            continue;
        if (view->members[rank].id == process->node)
            *own = count;
        ranks[count++] = rank;
    }
    return count;
}

static void bind_members(struct sim_process *process, struct sim_group *own)
{
    for (uint32_t rank = 0; rank < own->members; rank++) {
        uint32_t slot;

        if (rank == own->rank || order_bound(own->order, rank) ||
            !membership_slot(process->membership, own->ranks[rank], &slot))
            continue;
        own->slots[rank] = slot;
        order_bind(own->order, rank, own->peers[slot]->bytes);
        order_link(own->order, rank);
        own->heard[rank] = true;
    }
}

static uint32_t rank_of_slot(const struct sim_group *own, uint32_t slot)
{
    for (uint32_t rank = 0; rank < own->members; rank++) {
        if (own->slots[rank] == slot)
            return rank;
    }
    return SLOT_NONE;
}

void ordering_down(struct sim_process *process, uint32_t slot)
{
    for (uint32_t group = 0; group < SIM_GROUPS; group++) {
        struct sim_group *own = &process->groups[group];
        uint32_t rank = rank_of_slot(own, slot);

        if (rank == SLOT_NONE)
            continue;
        order_unlink(own->order, rank);
        own->slots[rank] = SLOT_NONE;
    }
}

void ordering_heard(struct sim_process *process, uint32_t slot, uint32_t group)
{
    struct sim_group *own = &process->groups[group];
    uint32_t rank = rank_of_slot(own, slot);

    if (rank != SLOT_NONE)
        own->heard[rank] = true;
}

void ordering_wedge(struct sim_process *process)
{
    for (uint32_t group = 0; group < SIM_GROUPS; group++)
        order_wedge(process->groups[group].order);
}

static void enter(struct sim_process *process, uint32_t group, const struct membership_actions *actions)
{
    struct sim_group *own = &process->groups[group];
    uint64_t trim = actions->trim[group] == VIEW_TRIM_NONE ? 0 : actions->trim[group];

    own->members = list_members(process, group, own->ranks, &own->rank);
    memset(own->slots, 0xff, sizeof(own->slots));
    memset(own->heard, 0, sizeof(own->heard));
    order_enter(own->order, actions->view->number, own->members, own->rank, trim);
    own->delivered = trim;
    own->entered = true;
    check_group_enter(process, group);
}

void ordering_trim(struct sim_process *process, const struct membership_actions *actions)
{
    process->forced = actions->view->forced;
    for (uint32_t group = 0; group < SIM_GROUPS; group++) {
        struct sim_group *own = &process->groups[group];

        if (!own->entered)
            continue;
        order_trim(own->order, actions->trim[group]);
        deliver(process, group);
        if (own->delivered != actions->trim[group])
            sim_fail(process->sim, "%u has delivered %" PRIu64 " of group %u, the trim is %" PRIu64,
                     process->node, own->delivered, group, actions->trim[group]);
    }
}

void ordering_enter(struct sim_process *process, const struct membership_actions *actions)
{
    process->forced = false;
    for (uint32_t group = 0; group < SIM_GROUPS; group++) {
        if (process->groups[group].selected)
            enter(process, group, actions);
    }
}

/* --- Turns ---------------------------------------------------------------------------------------------- */

static void look(struct sim_process *process, struct sim_group *own)
{
    for (uint32_t rank = 0; rank < own->members; rank++) {
        if (own->heard[rank] && order_look(own->order, rank) != 0)
            sim_fail(process->sim, "%u finds no entries in the row of rank %u", process->node, rank);
        own->heard[rank] = false;
    }
}

static void push(struct sim_process *process, uint32_t group)
{
    struct sim_group *own = &process->groups[group];

    for (uint32_t rank = 0; rank < own->members; rank++) {
        struct order_push what;

        if (own->slots[rank] != SLOT_NONE && order_push(own->order, rank, &what))
            net_push_group(process, own->slots[rank], group, own->row, &what);
    }
}

static void turn(struct sim_process *process, uint32_t group)
{
    struct sim_group *own = &process->groups[group];

    bind_members(process, own);
    if (membership_wedged(process->membership))
        return;
    look(process, own);
    order_advance(own->order);
    send_some(process, own);
    order_advance(own->order);
    membership_received(process->membership, group, order_received(own->order));
    push(process, group);
    deliver(process, group);
    push(process, group); /* what was delivered */
}

void ordering_turn(struct sim_process *process)
{
    for (uint32_t group = 0; group < SIM_GROUPS && process->sim->failure[0] == '\0'; group++) {
        if (process->groups[group].entered)
            turn(process, group);
    }
}

/* Two of three have nothing to say most of the time. */
void ordering_want(struct sim_process *process)
{
    struct sim *sim = process->sim;
    struct sim_group *own = &process->groups[rng_below(&sim->rng, SIM_GROUPS)];

    if (own->selected && own->wanted < SENDS_MAX && (process->index % 3 == 0 || rng_below(&sim->rng, 8) == 0))
        own->wanted += 1 + (uint32_t)rng_below(&sim->rng, BURST);
}

bool ordering_settled(const struct sim_process *process)
{
    for (uint32_t group = 0; group < SIM_GROUPS; group++) {
        const struct sim_group *own = &process->groups[group];

        if (own->selected && own->own_delivered != own->wanted)
            return false;
    }
    return true;
}
