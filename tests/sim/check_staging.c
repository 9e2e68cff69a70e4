/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks through staging regions of a few units, for any number of sessions at once: the rules of
 * core/staging.h in a whole cluster, where every message, copy and write takes a random time. The loop index
 * is the seed.
 *
 * Checked, apart from the code: no unit is two slots' at once, nor more of a side's than half the region;
 * what is read from a slot is what was put there; everyone gets every block; and when nothing is on its way
 * any more nothing is held and nobody waits. */

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "core/staging.h"
#include "schedule/schedule.h"
#include "tests/lib/suite.h"

#define NODES_MAX    5
#define SESSIONS_MAX 6
#define BLOCKS_MAX   12
#define UNITS_MAX    12
#define SENDS_MAX    (BLOCKS_MAX * NODES_MAX)
#define AHEAD        4
#define PENDING_MAX  4096

enum what { WANT, CREDIT, LOADED, ARRIVED, STORED };

struct send {
    struct staging_want want; /* first */
    uint32_t peer, block;
    struct staging_slot *slot, *credit;
    bool begun, ready, credited, posted, done;
};

/* A block that comes: at most one at a time of a session and block. */
struct arrival {
    struct staging_want want; /* first */
    uint32_t from;
    bool coming;
};

struct part { /* of a session at a node */
    bool held[BLOCKS_MAX];
    uint32_t held_count;
    struct send sends[SENDS_MAX];
    uint32_t send_count;
    struct arrival arrivals[BLOCKS_MAX];
};

struct session {
    struct schedule schedule;
    uint64_t block_bytes;
    uint32_t root; /* a node; rank r is node (root + r) % members */
    struct part parts[NODES_MAX];
};

struct node {
    void *memory;
    struct staging *staging;
    uint64_t content[UNITS_MAX]; /* what the units hold: session and block, or 0 */
    bool staged;                 /* its memory is out of the wire's reach */
};

/* Something that will happen, in any order. */
struct pending {
    enum what what;
    uint32_t session, node, block, index;
    uint32_t peer;
    struct staging_slot *slot;
};

struct world {
    struct rng rng;
    uint32_t nodes, sessions, units;
    struct node node[NODES_MAX];
    struct session session[SESSIONS_MAX];
    struct pending pending[PENDING_MAX];
    size_t pending_count;
};

static uint64_t tag(uint32_t session, uint32_t block)
{
    return (uint64_t)(session + 1) << 32 | block;
}

static uint32_t rank_of(const struct world *world, uint32_t session, uint32_t node)
{
    return (node + world->nodes - world->session[session].root) % world->nodes;
}

static uint32_t node_of(const struct world *world, uint32_t session, uint32_t rank)
{
    return (rank + world->session[session].root) % world->nodes;
}

static void happen_later(struct world *world, struct pending pending)
{
    ck_assert_uint_lt(world->pending_count, PENDING_MAX);
    world->pending[world->pending_count++] = pending;
}

/* --- Contents ------------------------------------------------------------------------------------------- */

static void each_unit(struct world *world, uint32_t node, const struct staging_slot *slot, bool write,
                      uint64_t value)
{
    uint64_t offset, bytes;
    uint32_t cursor = 0, units = 0;

    while (staging_extent(world->node[node].staging, slot, &cursor, &offset, &bytes)) {
        for (uint64_t at = offset; at < offset + bytes; at += STAGING_UNIT_MIN) {
            uint64_t *content = &world->node[node].content[at / STAGING_UNIT_MIN];

            if (write)
                *content = value;
            ck_assert_uint_eq(*content, value);
            units++;
        }
    }
    ck_assert_uint_eq(units, slot->units);
}

static void check_usage(const struct world *world, uint32_t node)
{
    struct staging_usage usage;

    staging_usage(world->node[node].staging, &usage);
    for (int side = 0; side < STAGING_SIDES; side++)
        ck_assert_uint_le(usage.held_bytes[side], usage.region_bytes / 2);
    ck_assert_uint_le(usage.held_bytes[0] + usage.held_bytes[1] + usage.kept_bytes, usage.region_bytes);
}

/* --- Sending -------------------------------------------------------------------------------------------- */

static void ask_peer(struct world *world, uint32_t session, uint32_t node, uint32_t index)
{
    struct send *send = &world->session[session].parts[node].sends[index];

    send->begun = true;
    if (world->node[send->peer].staged)
        happen_later(world, (struct pending){WANT, session, send->peer, send->block, index, node, NULL});
    else
        send->credited = true;
}

static void begin_send(struct world *world, uint32_t session, uint32_t node, uint32_t index)
{
    struct part *part = &world->session[session].parts[node];
    struct send *send = &part->sends[index];
    struct staging *staging = world->node[node].staging;
    struct staging_slot *slot;

    if (!world->node[node].staged) {
        send->ready = true;
        ask_peer(world, session, node, index);
        return;
    }
    slot = staging_find(staging, session, send->block);
    if (slot != NULL && staging_send_on(staging, slot)) {
        staging_withdraw(staging, &send->want);
        send->slot = slot;
        send->ready = true;
        ask_peer(world, session, node, index);
    } else if (!part->arrivals[send->block].coming && !send->want.waiting) {
        send->want = (struct staging_want){.side = STAGING_OUT,
                                           .session = session,
                                           .block = send->block,
                                           .bytes = world->session[session].block_bytes};
        staging_ask(staging, &send->want);
    }
}

static void post(struct world *world, uint32_t session, uint32_t node, uint32_t index)
{
    struct send *send = &world->session[session].parts[node].sends[index];

    send->posted = true;
    happen_later(world,
                 (struct pending){ARRIVED, session, send->peer, send->block, index, node, send->credit});
}

/* The first AHEAD sends whose block is here are got ready; whatever is ready goes, though others have come to
 * be before it. */
static void turn_session(struct world *world, uint32_t session, uint32_t node)
{
    struct part *part = &world->session[session].parts[node];
    uint32_t ahead = 0;

    for (uint32_t i = 0; i < part->send_count; i++) {
        struct send *send = &part->sends[i];

        if (send->done || !part->held[send->block])
            continue;
        if (!send->begun && ahead < AHEAD)
            begin_send(world, session, node, i);
        if (send->ready && send->credited && !send->posted)
            post(world, session, node, i);
        ahead++;
    }
}

static struct send *send_of(struct world *world, uint32_t session, uint32_t node,
                            const struct staging_want *want, uint32_t *index)
{
    *index = (uint32_t)((const struct send *)want - world->session[session].parts[node].sends);
    return &world->session[session].parts[node].sends[*index];
}

static void serve(struct world *world, uint32_t node)
{
    struct staging_want *want;
    struct staging_slot *slot;
    uint32_t index;

    if (!world->node[node].staged)
        return;
    while ((slot = staging_serve(world->node[node].staging, STAGING_IN, &want)) != NULL) {
        uint32_t session = (uint32_t)want->session;
        const struct arrival *arrival = (const struct arrival *)want;

        each_unit(world, node, slot, true, tag(session, want->block));
        happen_later(world, (struct pending){CREDIT, session, arrival->from, want->block, 0, node, slot});
    }
    while ((slot = staging_serve(world->node[node].staging, STAGING_OUT, &want)) != NULL) {
        struct send *send = send_of(world, (uint32_t)want->session, node, want, &index);

        send->slot = slot;
        each_unit(world, node, slot, true, tag((uint32_t)want->session, want->block));
        happen_later(world,
                     (struct pending){LOADED, (uint32_t)want->session, node, want->block, index, node, slot});
        ask_peer(world, (uint32_t)want->session, node, index);
    }
    check_usage(world, node);
}

/* --- What happens --------------------------------------------------------------------------------------- */

static void wanted(struct world *world, const struct pending *event)
{
    struct arrival *arrival = &world->session[event->session].parts[event->node].arrivals[event->block];

    ck_assert(!arrival->coming);
    arrival->coming = true;
    arrival->from = event->peer;
    arrival->want = (struct staging_want){.side = STAGING_IN,
                                          .session = event->session,
                                          .block = event->block,
                                          .bytes = world->session[event->session].block_bytes};
    staging_ask(world->node[event->node].staging, &arrival->want);
}

static void credited(struct world *world, const struct pending *event)
{
    struct part *part = &world->session[event->session].parts[event->node];

    for (uint32_t i = 0; i < part->send_count; i++) {
        struct send *send = &part->sends[i];

        if (send->block != event->block || send->peer != event->peer)
            continue;
        ck_assert(send->begun && !send->credited);
        send->credited = true;
        send->credit = event->slot;
    }
}

static void loaded(struct world *world, const struct pending *event)
{
    world->session[event->session].parts[event->node].sends[event->index].ready = true;
    staging_fill(event->slot);
}

static void hold(struct part *part, uint32_t block)
{
    ck_assert(!part->held[block]);
    part->held[block] = true;
    part->held_count++;
}

/* The write is done at both ends. */
static void arrived(struct world *world, const struct pending *event)
{
    struct send *send = &world->session[event->session].parts[event->peer].sends[event->index];

    if (send->slot != NULL) {
        each_unit(world, event->peer, send->slot, false, tag(event->session, event->block));
        staging_release(world->node[event->peer].staging, send->slot);
    }
    send->done = true;
    hold(&world->session[event->session].parts[event->node], event->block);
    if (event->slot == NULL)
        return;
    staging_fill(event->slot);
    happen_later(world, (struct pending){STORED, event->session, event->node, event->block, 0, event->node,
                                         event->slot});
}

static void stored(struct world *world, const struct pending *event)
{
    each_unit(world, event->node, event->slot, false, tag(event->session, event->block));
    world->session[event->session].parts[event->node].arrivals[event->block].coming = false;
    staging_release(world->node[event->node].staging, event->slot);
}

static void happen(struct world *world)
{
    static void (*const acts[])(struct world *, const struct pending *) = {
        [WANT] = wanted, [CREDIT] = credited, [LOADED] = loaded, [ARRIVED] = arrived, [STORED] = stored};
    size_t which = rng_below(&world->rng, world->pending_count);
    struct pending event = world->pending[which];

    world->pending[which] = world->pending[--world->pending_count];
    acts[event.what](world, &event);
}

/* --- A run ---------------------------------------------------------------------------------------------- */

static void session_open(struct world *world, uint32_t index)
{
    struct session *session = &world->session[index];
    uint32_t most = world->units / 2;

    session->schedule = (struct schedule){.kind = (enum schedule_kind)rng_below(&world->rng, 5),
                                          .members = world->nodes,
                                          .blocks = 1 + (uint32_t)rng_below(&world->rng, BLOCKS_MAX)};
    session->block_bytes = (1 + rng_below(&world->rng, most)) * STAGING_UNIT_MIN;
    session->root = (uint32_t)rng_below(&world->rng, world->nodes);
    for (uint32_t node = 0; node < world->nodes; node++) {
        struct part *part = &session->parts[node];
        struct schedule_rank rank;
        struct transfer send;

        schedule_rank_init(&rank, &session->schedule, rank_of(world, index, node));
        for (uint64_t step = 0; step < schedule_steps(&session->schedule); step++) {
            if (schedule_outgoing(&rank, step, &send))
                part->sends[part->send_count++] =
                    (struct send){.peer = node_of(world, index, send.peer), .block = send.block};
        }
        for (uint32_t block = 0; node == session->root && block < session->schedule.blocks; block++)
            hold(part, block);
    }
}

static struct world *world_open(uint64_t seed)
{
    struct world *world = calloc(1, sizeof(*world));

    ck_assert_ptr_nonnull(world);
    rng_init(&world->rng, seed);
    world->nodes = 2 + (uint32_t)rng_below(&world->rng, NODES_MAX - 1);
    world->sessions = 1 + (uint32_t)rng_below(&world->rng, SESSIONS_MAX);
    world->units = 2 + (uint32_t)rng_below(&world->rng, UNITS_MAX - 1);
    for (uint32_t i = 0; i < world->nodes; i++) {
        struct node *node = &world->node[i];

        node->staged = rng_below(&world->rng, 4) != 0;
        node->memory = malloc(staging_memory(world->units * STAGING_UNIT_MIN));
        node->staging = staging_init(node->memory, world->units * STAGING_UNIT_MIN);
    }
    for (uint32_t i = 0; i < world->sessions; i++)
        session_open(world, i);
    return world;
}

static void world_turn(struct world *world)
{
    for (uint32_t node = 0; node < world->nodes; node++) {
        for (uint32_t session = 0; session < world->sessions; session++)
            turn_session(world, session, node);
        serve(world, node);
    }
}

static void world_close(struct world *world)
{
    for (uint32_t i = 0; i < world->nodes; i++)
        free(world->node[i].memory);
    free(world);
}

static void expect_all_done(struct world *world)
{
    for (uint32_t node = 0; node < world->nodes; node++) {
        struct staging_usage usage;

        for (uint32_t i = 0; i < world->sessions; i++) {
            ck_assert_msg(world->session[i].parts[node].held_count == world->session[i].schedule.blocks,
                          "session %u stands still at node %u with %u of %u blocks", i, node,
                          world->session[i].parts[node].held_count, world->session[i].schedule.blocks);
            staging_forget(world->node[node].staging, i);
        }
        staging_usage(world->node[node].staging, &usage);
        ck_assert_uint_eq(usage.held_bytes[STAGING_IN] + usage.held_bytes[STAGING_OUT] + usage.kept_bytes, 0);
        ck_assert_uint_eq(usage.waiting[STAGING_IN] + usage.waiting[STAGING_OUT], 0);
    }
}

#define SEEDS_A_LOOP 100

START_TEST(test_nobody_waits_for_ever)
{
    for (uint64_t i = 0; i < SEEDS_A_LOOP; i++) {
        struct world *world = world_open((uint64_t)_i * SEEDS_A_LOOP + i);

        world_turn(world);
        while (world->pending_count > 0) {
            happen(world);
            world_turn(world);
        }
        expect_all_done(world);
        world_close(world);
    }
}
END_TEST

/* A large block that waits is not passed by small ones for ever, and what it needs may lie apart. */
START_TEST(test_first_in_the_queue_is_next)
{
    struct staging_want wants[4] = {{.side = STAGING_IN, .bytes = STAGING_UNIT_MIN, .block = 0},
                                    {.side = STAGING_IN, .bytes = STAGING_UNIT_MIN, .block = 1},
                                    {.side = STAGING_IN, .bytes = 3 * STAGING_UNIT_MIN, .block = 2},
                                    {.side = STAGING_IN, .bytes = 1, .block = 3}};
    void *memory = malloc(staging_memory(8 * STAGING_UNIT_MIN + 77));
    struct staging *staging = staging_init(memory, 8 * STAGING_UNIT_MIN + 77);
    struct staging_slot *slots[4];
    struct staging_want *next;
    uint64_t offset, bytes;
    uint32_t cursor = 0;

    ck_assert_uint_eq(staging_block_max(staging), 4 * STAGING_UNIT_MIN);
    for (int i = 0; i < 4; i++)
        staging_ask(staging, &wants[i]);
    for (int i = 0; i < 2; i++) {
        slots[i] = staging_serve(staging, STAGING_IN, &next);
        ck_assert_ptr_eq(next, &wants[i]);
    }
    ck_assert_ptr_null(staging_serve(staging, STAGING_IN, &next));
    staging_release(staging, slots[0]);
    slots[2] = staging_serve(staging, STAGING_IN, &next);
    ck_assert_ptr_eq(next, &wants[2]);
    ck_assert(staging_extent(staging, slots[2], &cursor, &offset, &bytes));
    ck_assert_ptr_null(staging_serve(staging, STAGING_IN, &next));
    staging_withdraw(staging, &wants[3]);
    staging_release(staging, slots[1]);
    ck_assert_ptr_null(staging_serve(staging, STAGING_IN, &next));
    free(memory);
}
END_TEST

/* What came is found until its room is wanted; of a session that is over nothing is. */
START_TEST(test_blocks_are_kept_until_the_room_is_wanted)
{
    struct staging_want wants[5];
    void *memory = malloc(staging_memory(4 * STAGING_UNIT_MIN));
    struct staging *staging = staging_init(memory, 4 * STAGING_UNIT_MIN);
    struct staging_slot *slot;
    struct staging_want *next;

    for (uint32_t i = 0; i < 5; i++) {
        wants[i] =
            (struct staging_want){.side = STAGING_IN, .session = 7, .block = i, .bytes = STAGING_UNIT_MIN};
        staging_ask(staging, &wants[i]);
        slot = staging_serve(staging, STAGING_IN, &next);
        ck_assert_ptr_null(staging_find(staging, 7, i));
        staging_fill(slot);
        ck_assert_ptr_eq(staging_find(staging, 7, i), slot);
        staging_release(staging, slot);
    }
    ck_assert_ptr_null(staging_find(staging, 7, 0));
    for (uint32_t i = 1; i < 5; i++)
        ck_assert_ptr_nonnull(staging_find(staging, 7, i));
    ck_assert(staging_send_on(staging, staging_find(staging, 7, 1)));
    ck_assert(staging_send_on(staging, staging_find(staging, 7, 2)));
    ck_assert(!staging_send_on(staging, staging_find(staging, 7, 3))); /* half the region leaves already */
    slot = staging_find(staging, 7, 1);
    staging_forget(staging, 7);
    ck_assert_ptr_null(staging_find(staging, 7, 3));
    staging_release(staging, slot);
    ck_assert_ptr_null(staging_find(staging, 7, 1));
    free(memory);
}
END_TEST

SUITE_MAIN("staging", 60, SUITE_LOOP(test_nobody_waits_for_ever, 20),
           SUITE_TEST(test_first_in_the_queue_is_next),
           SUITE_TEST(test_blocks_are_kept_until_the_room_is_wanted))
