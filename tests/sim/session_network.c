/* SPDX-License-Identifier: BSD-3-Clause */
/* Data lanes and ports of the simulator. */

#include <stdlib.h>

#include "tests/sim/session_sim_internal.h"

#define HEADER_BYTES 64 /* of a write on the wire */

static struct lane *lane_of(struct sim *sim, uint32_t from, uint32_t to)
{
    return &sim->members[from].lanes[to];
}

static uint64_t transfer_ns(const struct port *port, uint64_t bytes)
{
    return (uint64_t)((unsigned __int128)bytes * 1000000000u / port->rate) + 1;
}

void network_open(struct sim *sim, uint32_t member)
{
    uint32_t members = sim->options.schedule.members;
    struct member *self = &sim->members[member];

    self->port.rate = sim->options.link_rate;
    self->port.queue_size = 64;
    self->port.queue = sim_zeroed(self->port.queue_size, sizeof(struct chunk));
    self->lanes = sim_zeroed(members, sizeof(struct lane));
}

void network_close(struct sim *sim, uint32_t member)
{
    for (uint32_t to = 0; to < sim->options.schedule.members; to++)
        free(lane_of(sim, member, to)->items);
    free(sim->members[member].lanes);
    free(sim->members[member].port.queue);
}

/* --- Completion at the sender -------------------------------------------------------------------- */

static void item_done(struct sim *sim, uint32_t from, uint32_t to, const struct item *item)
{
    uint32_t block = item->block;
    struct session_event done = {.type = block == FENCE_ITEM ? SESSION_FENCED : SESSION_WRITTEN,
                                 .peer = to,
                                 .block = block,
                                 .culprit = SESSION_NOBODY};

    sim_deliver(sim, from, item->session, &done);
}

static void run_done(struct sim *sim, const struct sim_event *event)
{
    struct lane *lane = lane_of(sim, event->a, event->b);
    uint64_t upto = sim->options.delivery_complete ? lane->acknowledged : lane->buffered;

    while (!lane->purged && lane->items_done < lane->count && lane->items[lane->items_done].end <= upto)
        item_done(sim, event->a, event->b, &lane->items[lane->items_done++]);
}

/* Completions are seen a moment later. */
static void complete_soon(struct sim *sim, uint32_t from, uint32_t to)
{
    sim_push(sim, sim->now_ns + 1 + sim_random(sim, sim->options.jitter_ns + 1),
             &(struct sim_event){.run = run_done, .a = from, .b = to});
}

/* --- From memory to the wire --------------------------------------------------------------------- */

static void run_sent(struct sim *sim, const struct sim_event *event);

static bool can_send(const struct lane *lane)
{
    return lane->sent < lane->buffered && !lane->stuck && !lane->purged;
}

/* 1, 2, 4 or 8: fixed for a pair, and without pattern. */
static uint64_t weight_of(uint32_t from, uint32_t to)
{
    return UINT64_C(1) << (from * 7 + to * 13 + (from ^ to) * 5) % 4;
}

static uint32_t pick_unequal(struct sim *sim, uint32_t from)
{
    uint32_t members = sim->options.schedule.members;
    uint64_t sum = 0, at;

    for (uint32_t to = 0; to < members; to++)
        sum += can_send(lane_of(sim, from, to)) ? weight_of(from, to) : 0;
    if (sum == 0)
        return members;
    at = sim_random(sim, sum);
    for (uint32_t to = 0;; to++) {
        uint64_t weight = can_send(lane_of(sim, from, to)) ? weight_of(from, to) : 0;

        if (at < weight)
            return to;
        at -= weight;
    }
}

/* The number of the item that the lane is at. */
static uint64_t item_number(struct lane *lane)
{
    while (lane->items[lane->items_sent].end <= lane->sent)
        lane->items_sent++;
    return lane->items[lane->items_sent].number;
}

static uint32_t pick_in_order(struct sim *sim, uint32_t from)
{
    uint32_t members = sim->options.schedule.members, picked = members;
    uint64_t first = UINT64_MAX;

    for (uint32_t to = 0; to < members; to++) {
        if (can_send(lane_of(sim, from, to)) && item_number(lane_of(sim, from, to)) < first) {
            first = item_number(lane_of(sim, from, to));
            picked = to;
        }
    }
    return picked;
}

/* The first that can, counted from `start`. */
static uint32_t pick_from(struct sim *sim, uint32_t from, uint32_t start)
{
    uint32_t members = sim->options.schedule.members;

    for (uint32_t i = 0; i < members; i++)
        if (can_send(lane_of(sim, from, (start + i) % members)))
            return (start + i) % members;
    return members;
}

/* The lane to take the next chunk from; members if none has anything. */
static uint32_t pick_lane(struct sim *sim, uint32_t from)
{
    switch (sim->options.sharing) {
    case SIM_UNEQUAL:
        return pick_unequal(sim, from);
    case SIM_IN_ORDER:
        return pick_in_order(sim, from);
    case SIM_GREEDY:
        return pick_from(sim, from, from + 1);
    default:
        return pick_from(sim, from, sim->members[from].port.turn + 1);
    }
}

static void send_chunk(struct sim *sim, uint32_t from)
{
    struct port *port = &sim->members[from].port;
    uint32_t to = port->sending ? sim->options.schedule.members : pick_lane(sim, from);
    struct lane *lane;
    uint64_t bytes;

    if (to == sim->options.schedule.members)
        return;
    lane = lane_of(sim, from, to);
    bytes = lane->buffered - lane->sent;
    if (bytes > sim->options.chunk_bytes)
        bytes = sim->options.chunk_bytes;
    lane->sent += bytes;
    port->turn = to;
    port->sending = true;
    sim_push(sim, sim->now_ns + transfer_ns(port, bytes),
             &(struct sim_event){.run = run_sent, .a = from, .b = to, .value = bytes});
}

static void fill_buffer(struct sim *sim, uint32_t from, uint32_t to)
{
    struct lane *lane = lane_of(sim, from, to);
    uint64_t room = lane->acknowledged + sim->options.buffer_bytes;

    if (lane->purged || sim->members[from].dead)
        return;
    lane->buffered = lane->posted < room ? lane->posted : room;
    while (lane->items_buffered < lane->count && lane->items[lane->items_buffered].end <= lane->buffered) {
        struct item *item = &lane->items[lane->items_buffered++];

        if (item->block != FENCE_ITEM)
            item->content = checker_read(&sim->checker, from, item->block);
    }
    complete_soon(sim, from, to);
    send_chunk(sim, from);
}

static void items_grow(struct lane *lane)
{
    lane->size = 2 * lane->size + 32;
    lane->items = realloc(lane->items, lane->size * sizeof(*lane->items));
    if (lane->items == NULL)
        abort();
}

void network_post(struct sim *sim, uint32_t from, uint32_t to, uint32_t block, uint32_t session)
{
    struct lane *lane = lane_of(sim, from, to);

    if (lane->count == lane->size)
        items_grow(lane);
    lane->posted += HEADER_BYTES + (block == FENCE_ITEM ? 0 : sim->options.block_bytes);
    lane->items[lane->count++] =
        (struct item){.block = block, .end = lane->posted, .number = sim->next_item++, .session = session};
    fill_buffer(sim, from, to);
}

void network_purge(struct sim *sim, uint32_t from, uint32_t to)
{
    lane_of(sim, from, to)->purged = true;
}

/* --- From the wire to memory --------------------------------------------------------------------- */

static void run_acknowledged(struct sim *sim, const struct sim_event *event)
{
    if (sim_is_cut(sim, event->a, event->b))
        return;
    lane_of(sim, event->a, event->b)->acknowledged += event->value;
    fill_buffer(sim, event->a, event->b);
}

static void item_arrived(struct sim *sim, uint32_t from, uint32_t to, const struct item *item)
{
    struct session_event arrived = {.type = SESSION_FENCE, .peer = from, .culprit = SESSION_NOBODY};

    if (item->block != FENCE_ITEM) {
        checker_landed(&sim->checker, to, item->block, item->content);
        arrived.type = SESSION_ARRIVED;
        arrived.block = item->block;
        if (--sim->members[to].missing == 0 && --sim->incomplete == 0)
            sim->result.received_ns = sim->now_ns;
    }
    sim_deliver(sim, to, item->session, &arrived);
}

static void land_chunk(struct sim *sim, uint32_t from, uint32_t to, uint64_t bytes)
{
    struct lane *lane = lane_of(sim, from, to);

    if (sim->members[to].dead || sim->members[to].lost[from])
        return;
    sim_touch(sim, to, lane->items[lane->items_arrived].session);
    lane->arrived += bytes;
    while (lane->items_arrived < lane->count && lane->items[lane->items_arrived].end <= lane->arrived)
        item_arrived(sim, from, to, &lane->items[lane->items_arrived++]);
    sim_push(sim, sim->now_ns + sim->options.latency_ns,
             &(struct sim_event){.run = run_acknowledged, .a = from, .b = to, .value = bytes});
}

static void receive_chunk(struct sim *sim, uint32_t to);

static void run_received(struct sim *sim, const struct sim_event *event)
{
    struct port *port = &sim->members[event->a].port;
    struct chunk chunk = port->queue[port->queue_first];

    port->receiving = false;
    if (sim->members[event->a].paused)
        return; /* takes nothing off the wire */
    port->queue_first = (port->queue_first + 1) % port->queue_size;
    port->queue_count--;
    land_chunk(sim, chunk.from, event->a, chunk.bytes);
    receive_chunk(sim, event->a);
}

static void receive_chunk(struct sim *sim, uint32_t to)
{
    struct port *port = &sim->members[to].port;

    if (port->receiving || port->queue_count == 0)
        return;
    port->receiving = true;
    sim_push(sim, sim->now_ns + transfer_ns(port, port->queue[port->queue_first].bytes),
             &(struct sim_event){.run = run_received, .a = to});
}

void network_resume(struct sim *sim, uint32_t member)
{
    receive_chunk(sim, member);
}

static void queue_grow(struct port *port)
{
    struct chunk *longer = sim_zeroed(2 * (size_t)port->queue_size, sizeof(*longer));

    for (uint32_t i = 0; i < port->queue_count; i++)
        longer[i] = port->queue[(port->queue_first + i) % port->queue_size];
    free(port->queue);
    port->queue = longer;
    port->queue_first = 0;
    port->queue_size *= 2;
}

static void run_at_port(struct sim *sim, const struct sim_event *event)
{
    struct port *port = &sim->members[event->b].port;

    if (port->queue_count == port->queue_size)
        queue_grow(port);
    port->queue[(port->queue_first + port->queue_count++) % port->queue_size] =
        (struct chunk){.from = event->a, .bytes = event->value};
    receive_chunk(sim, event->b);
}

static void run_sent(struct sim *sim, const struct sim_event *event)
{
    struct lane *lane = lane_of(sim, event->a, event->b);
    uint64_t at_ns = sim->now_ns + sim->options.latency_ns + sim_random(sim, sim->options.jitter_ns + 1);

    sim->members[event->a].port.sending = false;
    lane->last_ns = at_ns > lane->last_ns ? at_ns : lane->last_ns + 1;
    sim_push(sim, lane->last_ns,
             &(struct sim_event){.run = run_at_port, .a = event->a, .b = event->b, .value = event->value});
    send_chunk(sim, event->a);
}
