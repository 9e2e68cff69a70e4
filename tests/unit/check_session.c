/* SPDX-License-Identifier: BSD-3-Clause */
/* Each rule of a session, one by one. Whole sessions are in tests/sim/check_sessions.c. */

#include <stdlib.h>
#include <string.h>

#include <covey/error.h>

#include "base/bitmap.h"
#include "core/session.h"
#include "tests/lib/suite.h"

#define MEMBERS_MAX 16
#define STALL_NS    UINT64_C(1000000)
#define BLOCK_NS    UINT64_C(1000)
#define OVERTAKE_NS UINT64_C(500)
#define SELF        UINT32_MAX /* the session's own rank, in assert_action() */

/* One session under test, and what it did last. */
struct bench {
    struct session_config config;
    struct session *session;
    struct session_action list[SESSION_ACTIONS_MAX(MEMBERS_MAX)];
    struct session_actions actions;
    size_t seen; /* actions that were asserted */
    uint64_t now_ns;
};

static void bench_open(struct bench *bench, enum schedule_kind kind, uint32_t members, uint32_t blocks,
                       uint32_t rank)
{
    void *memory;

    *bench = (struct bench){.config = {.schedule = {.kind = kind, .members = members, .blocks = blocks},
                                       .rank = rank,
                                       .window = 4,
                                       .edge_window = 4,
                                       .overtake_ns = OVERTAKE_NS,
                                       .stall_ns = STALL_NS,
                                       .block_ns = BLOCK_NS},
                            .now_ns = 1000};
    bench->actions.list = bench->list;
    memory = malloc(session_bytes(&bench->config.schedule));
    ck_assert_ptr_nonnull(memory);
    bench->session = session_init(memory, &bench->config);
}

/* Change the windows before anything happened. */
static void bench_windows(struct bench *bench, uint32_t window, uint32_t edge_window)
{
    bench->config.window = window;
    bench->config.edge_window = edge_window;
    bench->session = session_init(bench->session, &bench->config);
}

static void bench_close(struct bench *bench)
{
    ck_assert_uint_eq(bench->seen, bench->actions.count);
    free(bench->session);
}

static int send(struct bench *bench, struct session_event event)
{
    int rc;

    ck_assert_uint_eq(bench->seen, bench->actions.count); /* nothing that was not expected */
    event.now_ns = bench->now_ns;
    bench->seen = 0;
    rc = session_step(bench->session, &event, &bench->actions);
    ck_assert(rc == 0 || bench->actions.count == 0);
    return rc;
}

static int event_of(struct bench *bench, enum session_event_type type, uint32_t peer, uint32_t block)
{
    return send(bench,
                (struct session_event){
                    .type = type, .peer = peer, .block = block, .count = 1, .culprit = SESSION_NOBODY});
}

static void step(struct bench *bench, enum session_event_type type, uint32_t peer)
{
    ck_assert_int_eq(event_of(bench, type, peer, 0), 0);
}

static void step_block(struct bench *bench, enum session_event_type type, uint32_t peer, uint32_t block)
{
    ck_assert_int_eq(event_of(bench, type, peer, block), 0);
}

static void step_code(struct bench *bench, enum session_event_type type, uint32_t peer, int code,
                      uint32_t culprit)
{
    ck_assert_int_eq(
        send(bench, (struct session_event){.type = type, .peer = peer, .code = code, .culprit = culprit}), 0);
}

static void tick_at(struct bench *bench, uint64_t now_ns)
{
    bench->now_ns = now_ns;
    step(bench, SESSION_TICK, 0);
}

/* Tick whenever the session wants it, until it does something or wants no more. Returns the time. */
static uint64_t tick_on(struct bench *bench)
{
    while (bench->seen == bench->actions.count && session_deadline_ns(bench->session) < UINT64_MAX / 4) {
        uint64_t at_ns = session_deadline_ns(bench->session);

        tick_at(bench, at_ns > bench->now_ns ? at_ns : bench->now_ns);
        if (bench->actions.count > 0)
            break;
        ck_assert_uint_gt(session_deadline_ns(bench->session), bench->now_ns);
    }
    return bench->now_ns;
}

static void assert_breaks(struct bench *bench, enum session_event_type type, uint32_t peer, uint32_t block)
{
    enum session_state before = session_state(bench->session);

    ck_assert_int_eq(event_of(bench, type, peer, block), COVEY_PROTOCOL);
    ck_assert_int_eq(session_state(bench->session), before);
}

/* The next action of the last event. */
static const struct session_action *assert_action(struct bench *bench, enum session_action_type type,
                                                  uint32_t peer)
{
    const struct session_action *action = &bench->list[bench->seen];

    ck_assert_uint_lt(bench->seen, bench->actions.count);
    bench->seen++;
    ck_assert_int_eq(action->type, type);
    ck_assert_uint_eq(action->peer, peer == SELF ? bench->config.rank : peer);
    return action;
}

static void assert_reason(struct bench *bench, enum session_action_type type, uint32_t peer, int code,
                          uint32_t culprit)
{
    const struct session_action *action = assert_action(bench, type, peer);

    ck_assert_int_eq(action->code, code);
    ck_assert_uint_eq(action->culprit, culprit);
}

static void assert_state(const struct bench *bench, enum session_state state)
{
    ck_assert_int_eq(session_state(bench->session), state);
}

/* --- Writes -------------------------------------------------------------------------------------- */

static void assert_next(const struct bench *bench, uint32_t peer, uint32_t block)
{
    struct transfer write;

    ck_assert(session_next_write(bench->session, bench->now_ns, &write));
    ck_assert_uint_eq(write.peer, peer);
    ck_assert_uint_eq(write.block, block);
}

static void assert_no_write(const struct bench *bench)
{
    struct transfer write;

    ck_assert(!session_next_write(bench->session, bench->now_ns, &write));
}

static void post(struct bench *bench, uint32_t peer, uint32_t block)
{
    assert_next(bench, peer, block);
    session_posted(bench->session, bench->now_ns, &(struct transfer){.peer = peer, .block = block});
}

static void post_and_finish(struct bench *bench, uint32_t peer, uint32_t block)
{
    post(bench, peer, block);
    step_block(bench, SESSION_WRITTEN, peer, block);
}

/* Everything that can be written now, at once. */
static void write_all(struct bench *bench)
{
    struct transfer write;

    while (session_next_write(bench->session, bench->now_ns, &write))
        post_and_finish(bench, write.peer, write.block);
}

/* --- Ways into the states ------------------------------------------------------------------------ */

static void root_to_moving(struct bench *bench)
{
    uint32_t members = bench->config.schedule.members;

    step(bench, SESSION_BEGIN, 0);
    for (uint32_t peer = 1; peer < members; peer++)
        assert_action(bench, SESSION_SEND_OFFER, peer);
    for (uint32_t peer = 1; peer < members; peer++)
        step(bench, SESSION_ACCEPT, peer);
    for (uint32_t peer = 1; peer < members; peer++)
        assert_action(bench, SESSION_SEND_START, peer);
    assert_state(bench, SESSION_MOVING);
}

static void root_seal(struct bench *bench)
{
    step(bench, SESSION_SEALED, 0);
    for (uint32_t peer = 1; peer < bench->config.schedule.members; peer++)
        assert_action(bench, SESSION_SEND_SEAL, peer);
}

static void root_to_ordering(struct bench *bench)
{
    root_to_moving(bench);
    root_seal(bench);
    for (uint32_t peer = 1; peer < bench->config.schedule.members; peer++)
        step(bench, SESSION_RECEIVED, peer);
    assert_action(bench, SESSION_ORDER, SELF);
    assert_state(bench, SESSION_ORDERING);
}

static void receiver_to_accepted(struct bench *bench)
{
    step(bench, SESSION_BEGIN, bench->config.rank);
    assert_action(bench, SESSION_LAND, SELF);
    step(bench, SESSION_LANDED, bench->config.rank);
    assert_action(bench, SESSION_SEND_ACCEPT, 0);
    assert_state(bench, SESSION_OFFERED);
}

static void receiver_to_moving(struct bench *bench)
{
    struct schedule_rank part;
    uint32_t peers[MEMBERS_MAX];
    size_t count;

    receiver_to_accepted(bench);
    step(bench, SESSION_START, 0);
    schedule_rank_init(&part, &bench->config.schedule, bench->config.rank);
    count = schedule_in_peers(&part, peers);
    for (size_t i = 0; i < count; i++)
        assert_action(bench, SESSION_SEND_GRANT, peers[i]);
    assert_state(bench, SESSION_MOVING);
}

/* All blocks arrive, in the order of the steps. */
static void receive_all(struct bench *bench)
{
    struct schedule_rank part;
    struct transfer in;

    schedule_rank_init(&part, &bench->config.schedule, bench->config.rank);
    for (uint64_t at = 0; at < schedule_steps(&bench->config.schedule); at++)
        if (schedule_incoming(&part, at, &in))
            step_block(bench, SESSION_ARRIVED, in.peer, in.block);
}

static void receiver_to_ordering(struct bench *bench)
{
    receiver_to_moving(bench);
    step(bench, SESSION_SEAL, 0);
    receive_all(bench);
    assert_action(bench, SESSION_VERIFY, SELF);
    step(bench, SESSION_VERIFIED, bench->config.rank);
    assert_action(bench, SESSION_SEND_RECEIVED, 0);
    assert_state(bench, SESSION_ORDERING);
}

/* --- To begin ------------------------------------------------------------------------------------ */

START_TEST(test_root_offers_to_all_and_starts_when_all_have_accepted)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 3, 2, 0);
    step(&bench, SESSION_BEGIN, 0);
    assert_action(&bench, SESSION_SEND_OFFER, 1);
    assert_action(&bench, SESSION_SEND_OFFER, 2);
    step(&bench, SESSION_ACCEPT, 2);
    assert_state(&bench, SESSION_OFFERED);
    step(&bench, SESSION_ACCEPT, 1);
    assert_action(&bench, SESSION_SEND_START, 1);
    assert_action(&bench, SESSION_SEND_START, 2);
    assert_state(&bench, SESSION_MOVING);
    bench_close(&bench);
}
END_TEST

START_TEST(test_one_refusal_cancels_for_all_and_names_the_member)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 4, 2, 0);
    step(&bench, SESSION_BEGIN, 0);
    bench.seen = bench.actions.count;
    step(&bench, SESSION_ACCEPT, 1);
    step_code(&bench, SESSION_REFUSE, 2, COVEY_BUDGET, SESSION_NOBODY);
    assert_reason(&bench, SESSION_SEND_CANCEL, 1, COVEY_BUDGET, 2);
    assert_reason(&bench, SESSION_SEND_CANCEL, 3, COVEY_BUDGET, 2); /* not to 2, which has left */
    assert_reason(&bench, SESSION_RELEASE, 0, COVEY_BUDGET, 2);
    assert_reason(&bench, SESSION_DONE, 0, COVEY_BUDGET, 2);
    assert_state(&bench, SESSION_CLOSED);
    step(&bench, SESSION_ACCEPT, 3); /* has crossed the CANCEL */
    bench_close(&bench);
}
END_TEST

START_TEST(test_receiver_that_cannot_land_refuses_and_leaves)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 3, 2, 1);
    step(&bench, SESSION_BEGIN, 1);
    assert_action(&bench, SESSION_LAND, SELF);
    step_code(&bench, SESSION_LANDED, 1, COVEY_NO_MEMORY, SESSION_NOBODY);
    assert_reason(&bench, SESSION_SEND_REFUSE, 0, COVEY_NO_MEMORY, SESSION_NOBODY);
    assert_reason(&bench, SESSION_RELEASE, SELF, COVEY_NO_MEMORY, SESSION_NOBODY);
    assert_state(&bench, SESSION_CLOSED);
    bench_close(&bench);
}
END_TEST

START_TEST(test_seal_that_is_known_early_goes_out_behind_start)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 2, 2, 0);
    step(&bench, SESSION_BEGIN, 0);
    assert_action(&bench, SESSION_SEND_OFFER, 1);
    step(&bench, SESSION_SEALED, 0);
    step(&bench, SESSION_ACCEPT, 1);
    assert_action(&bench, SESSION_SEND_START, 1);
    assert_action(&bench, SESSION_SEND_SEAL, 1);
    bench_close(&bench);
}
END_TEST

START_TEST(test_root_alone_orders_as_soon_as_it_is_sealed)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_BINOMIAL, 1, 3, 0);
    step(&bench, SESSION_BEGIN, 0);
    assert_state(&bench, SESSION_MOVING);
    assert_no_write(&bench);
    step(&bench, SESSION_SEALED, 0);
    assert_action(&bench, SESSION_ORDER, SELF);
    step(&bench, SESSION_COMMIT, 0);
    assert_action(&bench, SESSION_DELIVER, SELF);
    assert_reason(&bench, SESSION_DONE, SELF, 0, SESSION_NOBODY);
    assert_state(&bench, SESSION_CLOSED);
    bench_close(&bench);
}
END_TEST

START_TEST(test_everyone_received_orders_and_everyone_delivered_ends)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 3, 2, 0);
    root_to_moving(&bench);
    root_seal(&bench);
    step(&bench, SESSION_GRANT, 1);
    write_all(&bench);
    step(&bench, SESSION_RECEIVED, 1);
    step(&bench, SESSION_RECEIVED, 2);
    assert_action(&bench, SESSION_ORDER, SELF);
    step(&bench, SESSION_DELIVERY, 2); /* its COMMIT was quicker than ours */
    step(&bench, SESSION_COMMIT, 0);
    assert_action(&bench, SESSION_DELIVER, SELF);
    step(&bench, SESSION_DELIVERY, 1);
    assert_reason(&bench, SESSION_DONE, SELF, 0, SESSION_NOBODY);
    assert_state(&bench, SESSION_CLOSED);
    ck_assert_uint_eq(session_deadline_ns(bench.session), UINT64_MAX);
    bench_close(&bench);
}
END_TEST

START_TEST(test_root_does_not_end_while_its_memory_is_read)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 2, 1, 0);
    root_to_moving(&bench);
    root_seal(&bench);
    step(&bench, SESSION_GRANT, 1);
    post(&bench, 1, 0);
    step(&bench, SESSION_RECEIVED, 1);
    assert_action(&bench, SESSION_ORDER, SELF);
    step(&bench, SESSION_COMMIT, 0);
    assert_action(&bench, SESSION_DELIVER, SELF);
    step(&bench, SESSION_DELIVERY, 1);
    assert_state(&bench, SESSION_DELIVERED);
    step_block(&bench, SESSION_WRITTEN, 1, 0);
    assert_reason(&bench, SESSION_DONE, SELF, 0, SESSION_NOBODY);
    bench_close(&bench);
}
END_TEST

/* --- Blocks -------------------------------------------------------------------------------------- */

START_TEST(test_writes_follow_the_steps_of_the_schedule)
{
    static const struct transfer expected[] = {{1, 0}, {2, 1}, {1, 2}, {2, 3}, {1, 3}}; /* schedules.md */
    struct bench bench;

    bench_open(&bench, SCHEDULE_BINOMIAL, 4, 4, 0);
    root_to_moving(&bench);
    root_seal(&bench);
    step(&bench, SESSION_GRANT, 2);
    step(&bench, SESSION_GRANT, 1);
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        post_and_finish(&bench, expected[i].peer, expected[i].block);
    assert_no_write(&bench);
    bench_close(&bench);
}
END_TEST

START_TEST(test_a_block_is_written_when_it_is_ready_and_granted)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 2, 3, 0);
    root_to_moving(&bench);
    step_block(&bench, SESSION_READY, 0, 0);
    assert_no_write(&bench);
    step(&bench, SESSION_GRANT, 1);
    post_and_finish(&bench, 1, 0);
    assert_no_write(&bench);
    step_block(&bench, SESSION_READY, 0, 1);
    post_and_finish(&bench, 1, 1);
    assert_no_write(&bench);
    bench_close(&bench);
}
END_TEST

START_TEST(test_relay_passes_on_what_arrived)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 3, 2, 1);
    receiver_to_moving(&bench);
    step(&bench, SESSION_GRANT, 2);
    assert_no_write(&bench);
    step_block(&bench, SESSION_ARRIVED, 0, 0);
    ck_assert(session_holds(bench.session, 0) && !session_holds(bench.session, 1));
    post_and_finish(&bench, 2, 0);
    assert_no_write(&bench);
    bench_close(&bench);
}
END_TEST

START_TEST(test_window_limits_what_is_in_flight)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 2, 9, 0);
    bench_windows(&bench, 3, 9);
    root_to_moving(&bench);
    root_seal(&bench);
    step(&bench, SESSION_GRANT, 1);
    post(&bench, 1, 0);
    post(&bench, 1, 1);
    post(&bench, 1, 2);
    assert_no_write(&bench);
    step_block(&bench, SESSION_WRITTEN, 1, 0);
    post(&bench, 1, 3);
    assert_no_write(&bench);
    bench_close(&bench);
}
END_TEST

START_TEST(test_edge_window_limits_what_is_in_flight_to_one_peer)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 2, 9, 0);
    bench_windows(&bench, 9, 2);
    root_to_moving(&bench);
    root_seal(&bench);
    step(&bench, SESSION_GRANT, 1);
    post(&bench, 1, 0);
    post(&bench, 1, 1);
    assert_no_write(&bench);
    bench_close(&bench);
}
END_TEST

START_TEST(test_head_is_overtaken_at_once_when_the_link_is_idle)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_BINOMIAL, 4, 4, 0); /* 1:0 2:1 1:2 2:3 */
    root_to_moving(&bench);
    root_seal(&bench);
    step(&bench, SESSION_GRANT, 2); /* 1 is late */
    post(&bench, 2, 1);
    assert_no_write(&bench); /* the link is not idle any more */
    step(&bench, SESSION_GRANT, 1);
    post(&bench, 1, 0); /* what was overtaken goes first */
    bench_close(&bench);
}
END_TEST

START_TEST(test_head_holds_up_later_steps_for_overtake_ns_while_writes_are_in_flight)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_BINOMIAL, 4, 4, 0);
    root_to_moving(&bench);
    root_seal(&bench);
    step(&bench, SESSION_GRANT, 2);
    post(&bench, 2, 1);
    ck_assert_uint_eq(session_deadline_ns(bench.session), bench.now_ns);
    tick_at(&bench, bench.now_ns);
    ck_assert_uint_eq(session_deadline_ns(bench.session), bench.now_ns + OVERTAKE_NS);
    tick_at(&bench, bench.now_ns + OVERTAKE_NS - 1);
    assert_no_write(&bench);
    tick_at(&bench, bench.now_ns + 1);
    ck_assert_uint_gt(session_deadline_ns(bench.session),
                      bench.now_ns); /* the write was there for the asking */
    post(&bench, 2, 3);
    step(&bench, SESSION_GRANT, 1);
    post(&bench, 1, 0);
    ck_assert_uint_gt(session_deadline_ns(bench.session), bench.now_ns + OVERTAKE_NS); /* the head can go */
    bench_close(&bench);
}
END_TEST

START_TEST(test_a_step_waits_for_a_place_in_the_window_not_for_overtake_ns)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_BINOMIAL, 4, 8, 0); /* 1:0 2:1 1:2 2:3 1:4 */
    bench_windows(&bench, 2, 1);
    root_to_moving(&bench);
    root_seal(&bench);
    step(&bench, SESSION_GRANT, 1);
    step(&bench, SESSION_GRANT, 2);
    post(&bench, 1, 0);
    post(&bench, 2, 1);
    bench.now_ns += 10 * OVERTAKE_NS; /* the window was full: 1:2 was not in its own way */
    step_block(&bench, SESSION_WRITTEN, 2, 1);
    assert_no_write(&bench);
    bench.now_ns += OVERTAKE_NS; /* but now it is */
    post(&bench, 2, 3);
    bench_close(&bench);
}
END_TEST

START_TEST(test_a_stuck_peer_is_overtaken_by_63_sends_at_most)
{
    struct bench bench;
    uint32_t written = 0;
    struct transfer write;

    bench_open(&bench, SCHEDULE_BINOMIAL, 4, 400, 0);
    root_to_moving(&bench);
    root_seal(&bench);
    step(&bench, SESSION_GRANT, 2);
    while (session_next_write(bench.session, bench.now_ns, &write)) {
        ck_assert_uint_eq(write.peer, 2);
        post_and_finish(&bench, write.peer, write.block);
        written++;
    }
    ck_assert_uint_eq(written, 32); /* every other of 64 */
    step(&bench, SESSION_GRANT, 1);
    post_and_finish(&bench, 1, 0);
    bench_close(&bench);
}
END_TEST

START_TEST(test_blocks_that_the_receiver_holds_are_not_sent)
{
    struct bench bench;
    uint64_t skip = 0x5; /* 0 and 2 */
    uint32_t done, total;

    bench_open(&bench, SCHEDULE_BINOMIAL, 4, 4, 0); /* 1:0 2:1 1:2 2:3 1:3 */
    root_to_moving(&bench);
    root_seal(&bench);
    ck_assert_int_eq(send(&bench, (struct session_event){.type = SESSION_GRANT, .peer = 1, .skip = &skip}),
                     0);
    step(&bench, SESSION_GRANT, 2);
    session_progress(bench.session, &done, &total);
    ck_assert_uint_eq(done, 2);
    ck_assert_uint_eq(total, 5);
    post_and_finish(&bench, 2, 1);
    post_and_finish(&bench, 2, 3);
    post_and_finish(&bench, 1, 3);
    assert_no_write(&bench);
    session_progress(bench.session, &done, &total);
    ck_assert_uint_eq(done, 5);
    bench_close(&bench);
}
END_TEST

START_TEST(test_receiver_that_holds_everything_verifies_at_once)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 2, 2, 1);
    step(&bench, SESSION_BEGIN, 1);
    assert_action(&bench, SESSION_LAND, SELF);
    step_block(&bench, SESSION_READY, 1, 0);
    step_block(&bench, SESSION_READY, 1, 1);
    step(&bench, SESSION_LANDED, 1);
    assert_action(&bench, SESSION_SEND_ACCEPT, 0);
    step(&bench, SESSION_START, 0);
    assert_action(&bench, SESSION_SEND_GRANT, 0);
    step(&bench, SESSION_SEAL, 0);
    assert_action(&bench, SESSION_VERIFY, SELF);
    bench_close(&bench);
}
END_TEST

START_TEST(test_receiver_verifies_when_it_has_blocks_and_seal_whichever_is_last)
{
    struct bench bench;
    uint32_t done, total;

    bench_open(&bench, SCHEDULE_CHAIN, 3, 2, 2);
    receiver_to_moving(&bench);
    step_block(&bench, SESSION_ARRIVED, 1, 0);
    session_progress(bench.session, &done, &total);
    ck_assert_uint_eq(done, 1);
    ck_assert_uint_eq(total, 2);
    step_block(&bench, SESSION_ARRIVED, 1, 1);
    step(&bench, SESSION_SEAL, 0);
    assert_action(&bench, SESSION_VERIFY, SELF);
    bench_close(&bench);

    bench_open(&bench, SCHEDULE_CHAIN, 3, 2, 2);
    receiver_to_ordering(&bench); /* SEAL first */
    step(&bench, SESSION_COMMIT, 2);
    assert_action(&bench, SESSION_DELIVER, SELF);
    assert_action(&bench, SESSION_SEND_DELIVERED, 0);
    assert_state(&bench, SESSION_CLOSED);
    bench_close(&bench);
}
END_TEST

START_TEST(test_empty_object_is_one_empty_block)
{
    struct bench bench;
    struct schedule schedule;
    struct schedule_cost cost = {0};
    uint64_t block_bytes;

    ck_assert_int_eq(schedule_choose(0, 2, &cost, NULL, 0, &schedule, &block_bytes), 0);
    bench_open(&bench, schedule.kind, 2, schedule.blocks, 0);
    root_to_moving(&bench);
    root_seal(&bench);
    step(&bench, SESSION_GRANT, 1);
    post_and_finish(&bench, 1, 0);
    assert_no_write(&bench);
    step(&bench, SESSION_RECEIVED, 1);
    assert_action(&bench, SESSION_ORDER, SELF);
    bench_close(&bench);
}
END_TEST

START_TEST(test_corrupt_bytes_fail_the_session)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 2, 1, 1);
    receiver_to_moving(&bench);
    step(&bench, SESSION_SEAL, 0);
    step_block(&bench, SESSION_ARRIVED, 0, 0);
    assert_action(&bench, SESSION_VERIFY, SELF);
    step_code(&bench, SESSION_VERIFIED, 1, COVEY_CORRUPT, SESSION_NOBODY);
    assert_reason(&bench, SESSION_SEND_FAILED, 0, COVEY_CORRUPT, SESSION_NOBODY);
    bench_close(&bench);

    bench_open(&bench, SCHEDULE_CHAIN, 3, 1, 0);
    root_to_moving(&bench);
    step_code(&bench, SESSION_FAILED, 2, COVEY_CORRUPT, SESSION_NOBODY);
    assert_reason(&bench, SESSION_SEND_CANCEL, 1, COVEY_CORRUPT, 2);
    assert_reason(&bench, SESSION_SEND_CANCEL, 2, COVEY_CORRUPT, 2);
    assert_reason(&bench, SESSION_RELEASE, SELF, COVEY_CORRUPT, 2);
    assert_reason(&bench, SESSION_DONE, SELF, COVEY_CORRUPT, 2);
    bench_close(&bench);
}
END_TEST

/* --- What peers must not do ---------------------------------------------------------------------- */

START_TEST(test_root_rejects_what_does_not_fit)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 4, 2, 0);
    step(&bench, SESSION_BEGIN, 0);
    bench.seen = bench.actions.count;
    assert_breaks(&bench, SESSION_RECEIVED, 1, 0);
    assert_breaks(&bench, SESSION_DELIVERY, 1, 0);
    assert_breaks(&bench, SESSION_GRANT, 1, 0);  /* before START */
    assert_breaks(&bench, SESSION_FAILED, 1, 0); /* before ACCEPT, and without a reason */
    assert_breaks(&bench, SESSION_REFUSE, 1, 0); /* without a reason */
    assert_breaks(&bench, SESSION_ACCEPT, 0, 0); /* from itself */
    assert_breaks(&bench, SESSION_ACCEPT, 4, 0); /* from nobody */
    assert_breaks(&bench, SESSION_START, 1, 0);
    assert_breaks(&bench, SESSION_CANCEL, 1, 0);
    step(&bench, SESSION_ACCEPT, 1);
    assert_breaks(&bench, SESSION_ACCEPT, 1, 0);
    ck_assert_int_eq(
        send(&bench, (struct session_event){.type = SESSION_REFUSE, .peer = 1, .code = COVEY_BUDGET}),
        COVEY_PROTOCOL);
    ck_assert_int_eq(send(&bench,
                          (struct session_event){
                              .type = SESSION_FAILED, .peer = 1, .code = COVEY_PEER_STALLED, .culprit = 4}),
                     COVEY_PROTOCOL);
    step(&bench, SESSION_ACCEPT, 2);
    step(&bench, SESSION_ACCEPT, 3);
    bench.seen = bench.actions.count;
    assert_breaks(&bench, SESSION_ACCEPT, 3, 0);
    assert_breaks(&bench, SESSION_GRANT, 2, 0);    /* no such edge */
    assert_breaks(&bench, SESSION_RECEIVED, 1, 0); /* before SEAL */
    assert_breaks(&bench, SESSION_ARRIVED, 1, 0);
    assert_breaks(&bench, SESSION_FENCE, 1, 0);
    assert_breaks(&bench, SESSION_COMMIT, 0, 0);
    step(&bench, SESSION_GRANT, 1);
    assert_breaks(&bench, SESSION_GRANT, 1, 0);
    root_seal(&bench);
    step(&bench, SESSION_RECEIVED, 3);
    assert_breaks(&bench, SESSION_RECEIVED, 3, 0);
    ck_assert_int_eq(send(&bench, (struct session_event){.type = SESSION_FAILED,
                                                         .peer = 3,
                                                         .code = COVEY_CORRUPT,
                                                         .culprit = SESSION_NOBODY}),
                     COVEY_PROTOCOL); /* it had everything, verified */
    bench_close(&bench);
}
END_TEST

START_TEST(test_receiver_rejects_what_does_not_fit)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_BINOMIAL, 4, 4, 3); /* 1>3:0 2>3:1 1>3:2 2>3:3 */
    step(&bench, SESSION_BEGIN, 3);
    assert_action(&bench, SESSION_LAND, SELF);
    assert_breaks(&bench, SESSION_START, 0, 0); /* before ACCEPT */
    assert_breaks(&bench, SESSION_GRANT, 2, 0);
    assert_breaks(&bench, SESSION_ACCEPT, 1, 0);
    step(&bench, SESSION_LANDED, 3);
    assert_action(&bench, SESSION_SEND_ACCEPT, 0);
    assert_breaks(&bench, SESSION_START, 1, 0); /* not the root */
    assert_breaks(&bench, SESSION_ARRIVED, 1, 0);
    assert_breaks(&bench, SESSION_FENCE, 1, 0);
    step(&bench, SESSION_START, 0);
    assert_action(&bench, SESSION_SEND_GRANT, 1);
    assert_action(&bench, SESSION_SEND_GRANT, 2);
    assert_breaks(&bench, SESSION_START, 0, 0);
    assert_breaks(&bench, SESSION_ARRIVED, 0, 0); /* not granted */
    assert_breaks(&bench, SESSION_ARRIVED, 2, 0); /* 1 brings it */
    assert_breaks(&bench, SESSION_ARRIVED, 1, 4); /* no such block */
    step_block(&bench, SESSION_ARRIVED, 1, 0);
    assert_breaks(&bench, SESSION_ARRIVED, 1, 0); /* twice */
    assert_breaks(&bench, SESSION_SEAL, 1, 0);
    step(&bench, SESSION_SEAL, 0);
    assert_breaks(&bench, SESSION_SEAL, 0, 0);
    assert_breaks(&bench, SESSION_CANCEL, 0, 0); /* without a reason */
    assert_breaks(&bench, SESSION_COMMIT, 0, 0); /* without everything */
    step_block(&bench, SESSION_ARRIVED, 1, 2);
    assert_breaks(&bench, SESSION_FENCE, 1, 0); /* after the edge's last block */
    step(&bench, SESSION_FENCE, 2);
    assert_breaks(&bench, SESSION_FENCE, 2, 0);
    assert_breaks(&bench, SESSION_ARRIVED, 2, 1); /* behind its fence */
    bench_close(&bench);
}
END_TEST

/* --- Cancelled ----------------------------------------------------------------------------------- */

/* Root of binomial n = 4, k = 4, with 1:0 in flight. */
static void root_with_a_write_in_flight(struct bench *bench)
{
    bench_open(bench, SCHEDULE_BINOMIAL, 4, 4, 0);
    root_to_moving(bench);
    root_seal(bench);
    step(bench, SESSION_GRANT, 1);
    post(bench, 1, 0);
}

static void assert_cancel(struct bench *bench, int code, uint32_t culprit)
{
    for (uint32_t peer = 1; peer < bench->config.schedule.members; peer++)
        assert_reason(bench, SESSION_SEND_CANCEL, peer, code, culprit);
}

START_TEST(test_cancelled_root_waits_for_its_writes_and_fences)
{
    struct bench bench;

    root_with_a_write_in_flight(&bench);
    step_code(&bench, SESSION_ABORT, 0, COVEY_CANCELLED, SESSION_NOBODY);
    assert_cancel(&bench, COVEY_CANCELLED, SESSION_NOBODY);
    assert_action(&bench, SESSION_POST_FENCE, 1); /* 2 has not granted */
    assert_state(&bench, SESSION_DRAINING);
    assert_no_write(&bench);
    ck_assert(!session_quiet(bench.session));
    step_block(&bench, SESSION_WRITTEN, 1, 0);
    assert_state(&bench, SESSION_DRAINING);
    step(&bench, SESSION_FENCED, 1);
    assert_reason(&bench, SESSION_RELEASE, SELF, COVEY_CANCELLED, SESSION_NOBODY);
    assert_reason(&bench, SESSION_DONE, SELF, COVEY_CANCELLED, SESSION_NOBODY);
    ck_assert(session_quiet(bench.session));
    bench_close(&bench);
}
END_TEST

START_TEST(test_grant_that_comes_late_is_fenced_at_once)
{
    struct bench bench;

    root_with_a_write_in_flight(&bench);
    step_code(&bench, SESSION_ABORT, 0, COVEY_CANCELLED, SESSION_NOBODY);
    assert_cancel(&bench, COVEY_CANCELLED, SESSION_NOBODY);
    assert_action(&bench, SESSION_POST_FENCE, 1);
    step(&bench, SESSION_GRANT, 2);
    assert_action(&bench, SESSION_POST_FENCE, 2);
    step_block(&bench, SESSION_WRITTEN, 1, 0);
    step(&bench, SESSION_FENCED, 1);
    assert_state(&bench, SESSION_DRAINING);
    step(&bench, SESSION_FENCED, 2);
    assert_action(&bench, SESSION_RELEASE, SELF);
    assert_action(&bench, SESSION_DONE, SELF);
    bench_close(&bench);

    bench_open(&bench, SCHEDULE_CHAIN, 2, 1, 0);
    root_to_moving(&bench);
    step_code(&bench, SESSION_ABORT, 0, COVEY_CANCELLED, SESSION_NOBODY);
    bench.seen = bench.actions.count;
    assert_state(&bench, SESSION_CLOSED);
    step(&bench, SESSION_GRANT, 1);
    assert_action(&bench, SESSION_POST_FENCE, 1);
    step(&bench, SESSION_FENCED, 1);
    bench_close(&bench);
}
END_TEST

START_TEST(test_edge_that_had_its_last_block_gets_no_fence)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 2, 2, 0);
    root_to_moving(&bench);
    root_seal(&bench);
    step(&bench, SESSION_GRANT, 1);
    post(&bench, 1, 0);
    post(&bench, 1, 1);
    step_code(&bench, SESSION_ABORT, 0, COVEY_CANCELLED, SESSION_NOBODY);
    assert_cancel(&bench, COVEY_CANCELLED, SESSION_NOBODY);
    assert_state(&bench, SESSION_DRAINING);
    step_block(&bench, SESSION_WRITTEN, 1, 0);
    step_block(&bench, SESSION_WRITTEN, 1, 1);
    assert_action(&bench, SESSION_RELEASE, SELF);
    assert_action(&bench, SESSION_DONE, SELF);
    bench_close(&bench);
}
END_TEST

START_TEST(test_edge_of_which_everything_was_skipped_ends_with_a_fence)
{
    struct bench bench;
    uint64_t skip = 0x3;

    bench_open(&bench, SCHEDULE_CHAIN, 2, 2, 0);
    root_to_moving(&bench);
    ck_assert_int_eq(send(&bench, (struct session_event){.type = SESSION_GRANT, .peer = 1, .skip = &skip}),
                     0);
    step_code(&bench, SESSION_ABORT, 0, COVEY_CANCELLED, SESSION_NOBODY);
    assert_cancel(&bench, COVEY_CANCELLED, SESSION_NOBODY);
    assert_action(&bench, SESSION_POST_FENCE, 1);
    bench_close(&bench);
}
END_TEST

START_TEST(test_receiver_releases_memory_when_each_edge_into_it_is_over)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_BINOMIAL, 4, 4, 1); /* from 0: 0, 2, 3; from 3: 1 */
    receiver_to_moving(&bench);
    step_block(&bench, SESSION_ARRIVED, 0, 0);
    step_code(&bench, SESSION_CANCEL, 0, COVEY_CANCELLED, SESSION_NOBODY);
    assert_state(&bench, SESSION_DRAINING);
    step_block(&bench, SESSION_ARRIVED, 0, 2); /* was on its way */
    step_block(&bench, SESSION_ARRIVED, 3, 1); /* the last of this edge: no fence will come */
    ck_assert(!session_quiet(bench.session));
    step(&bench, SESSION_FENCE, 0);
    assert_reason(&bench, SESSION_RELEASE, SELF, COVEY_CANCELLED, SESSION_NOBODY);
    assert_state(&bench, SESSION_CLOSED);
    bench_close(&bench);
}
END_TEST

START_TEST(test_a_lost_peer_ends_its_edges)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_BINOMIAL, 4, 4, 1);
    receiver_to_moving(&bench);
    step(&bench, SESSION_GRANT, 3);
    step_block(&bench, SESSION_ARRIVED, 0, 0);
    post(&bench, 3, 0);
    step_code(&bench, SESSION_CANCEL, 0, COVEY_CANCELLED, SESSION_NOBODY);
    assert_action(&bench, SESSION_POST_FENCE, 3);
    step(&bench, SESSION_FENCE, 0);
    assert_state(&bench, SESSION_DRAINING);
    step(&bench, SESSION_LOST, 3); /* its blocks, our write and our fence */
    assert_action(&bench, SESSION_RELEASE, SELF);
    bench_close(&bench);
}
END_TEST

START_TEST(test_memory_is_not_released_while_it_is_landed_or_verified)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 2, 1, 1);
    step(&bench, SESSION_BEGIN, 1);
    assert_action(&bench, SESSION_LAND, SELF);
    step_code(&bench, SESSION_CANCEL, 0, COVEY_CANCELLED, SESSION_NOBODY);
    assert_state(&bench, SESSION_DRAINING);
    step(&bench, SESSION_LANDED, 1);
    assert_action(&bench, SESSION_RELEASE, SELF);
    bench_close(&bench);

    bench_open(&bench, SCHEDULE_CHAIN, 2, 1, 1);
    receiver_to_moving(&bench);
    step(&bench, SESSION_SEAL, 0);
    step_block(&bench, SESSION_ARRIVED, 0, 0);
    assert_action(&bench, SESSION_VERIFY, SELF);
    step_code(&bench, SESSION_CANCEL, 0, COVEY_CANCELLED, SESSION_NOBODY);
    assert_state(&bench, SESSION_DRAINING);
    step(&bench, SESSION_VERIFIED, 1);
    assert_action(&bench, SESSION_RELEASE, SELF);
    bench_close(&bench);
}
END_TEST

START_TEST(test_what_crosses_a_cancel_is_dropped)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 3, 1, 0);
    step(&bench, SESSION_BEGIN, 0);
    bench.seen = bench.actions.count;
    step(&bench, SESSION_ACCEPT, 1);
    step_code(&bench, SESSION_ABORT, 0, COVEY_CHANGED, SESSION_NOBODY);
    bench.seen = bench.actions.count;
    step(&bench, SESSION_ACCEPT, 2);
    step_code(&bench, SESSION_FAILED, 1, COVEY_PEER_STALLED, 2);
    step_block(&bench, SESSION_READY, 0, 0);
    step(&bench, SESSION_LOST, 1);
    step(&bench, SESSION_TICK, 0);
    assert_state(&bench, SESSION_CLOSED);
    bench_close(&bench);
}
END_TEST

START_TEST(test_receiver_that_gives_up_tells_the_root_and_waits_for_its_cancel)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 3, 2, 1);
    receiver_to_moving(&bench);
    step(&bench, SESSION_GRANT, 2);
    step_block(&bench, SESSION_ARRIVED, 0, 0);
    step_code(&bench, SESSION_ABORT, 1, COVEY_CLOSED, SESSION_NOBODY);
    assert_reason(&bench, SESSION_SEND_FAILED, 0, COVEY_CLOSED, SESSION_NOBODY);
    assert_state(&bench, SESSION_MOVING);
    step_block(&bench, SESSION_ARRIVED, 0, 1);
    step(&bench, SESSION_SEAL, 0); /* nothing is verified any more */
    step_code(&bench, SESSION_CANCEL, 0, COVEY_CLOSED, 1);
    assert_action(&bench, SESSION_POST_FENCE, 2);
    step(&bench, SESSION_FENCED, 2);
    assert_reason(&bench, SESSION_RELEASE, SELF, COVEY_CLOSED, 1);
    bench_close(&bench);
}
END_TEST

START_TEST(test_receiver_that_failed_grants_nothing_any_more)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 3, 2, 1);
    receiver_to_accepted(&bench);
    step_code(&bench, SESSION_ABORT, 1, COVEY_CLOSED, SESSION_NOBODY);
    assert_reason(&bench, SESSION_SEND_FAILED, 0, COVEY_CLOSED, SESSION_NOBODY);
    step(&bench, SESSION_START, 0); /* has crossed it */
    step(&bench, SESSION_SEAL, 0);
    step_code(&bench, SESSION_CANCEL, 0, COVEY_CLOSED, 1);
    assert_action(&bench, SESSION_RELEASE, SELF);
    bench_close(&bench);
}
END_TEST

/* --- Losses -------------------------------------------------------------------------------------- */

START_TEST(test_member_lost_before_the_order_fails_the_session)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 4, 2, 0);
    root_to_moving(&bench);
    step(&bench, SESSION_LOST, 2);
    assert_reason(&bench, SESSION_SEND_CANCEL, 1, COVEY_PEER_LOST, 2);
    assert_reason(&bench, SESSION_SEND_CANCEL, 3, COVEY_PEER_LOST, 2);
    assert_reason(&bench, SESSION_RELEASE, SELF, COVEY_PEER_LOST, 2);
    assert_reason(&bench, SESSION_DONE, SELF, COVEY_PEER_LOST, 2);
    bench_close(&bench);

    bench_open(&bench, SCHEDULE_CHAIN, 4, 2, 3);
    receiver_to_moving(&bench);
    step(&bench, SESSION_LOST, 1);
    assert_reason(&bench, SESSION_SEND_FAILED, 0, COVEY_PEER_LOST, 1);
    step(&bench, SESSION_LOST, 2); /* said once */
    bench_close(&bench);
}
END_TEST

START_TEST(test_receiver_that_loses_the_root_drains_by_itself)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 4, 2, 2);
    receiver_to_moving(&bench);
    step(&bench, SESSION_LOST, 0);
    assert_state(&bench, SESSION_DRAINING);
    step(&bench, SESSION_FENCE, 1);
    assert_reason(&bench, SESSION_RELEASE, SELF, COVEY_PEER_LOST, 0);
    bench_close(&bench);
}
END_TEST

START_TEST(test_receiver_that_has_everything_waits_for_the_order_whoever_is_lost)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 4, 2, 1);
    receiver_to_ordering(&bench);
    step(&bench, SESSION_GRANT, 2);
    post(&bench, 2, 0);
    step(&bench, SESSION_LOST, 2);
    assert_no_write(&bench); /* it was the only one to write to */
    step(&bench, SESSION_LOST, 0);
    step(&bench, SESSION_LOST, 3);
    assert_state(&bench, SESSION_ORDERING);
    ck_assert_uint_eq(tick_on(&bench), bench.now_ns);
    ck_assert_uint_ge(session_deadline_ns(bench.session), UINT64_MAX / 4);
    step(&bench, SESSION_COMMIT, 1);
    assert_action(&bench, SESSION_DELIVER, SELF);
    assert_state(&bench, SESSION_CLOSED); /* and nobody to tell */
    bench_close(&bench);

    bench_open(&bench, SCHEDULE_CHAIN, 4, 2, 3);
    receiver_to_ordering(&bench);
    step(&bench, SESSION_LOST, 0);
    step_code(&bench, SESSION_ABORT, 3, COVEY_PEER_LOST, SESSION_NOBODY); /* the order is: never */
    assert_reason(&bench, SESSION_RELEASE, SELF, COVEY_PEER_LOST, SESSION_NOBODY);
    bench_close(&bench);
}
END_TEST

START_TEST(test_root_does_not_wait_for_who_is_lost_after_the_order)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 4, 2, 0);
    root_to_ordering(&bench);
    step(&bench, SESSION_LOST, 1);
    step(&bench, SESSION_COMMIT, 0);
    assert_action(&bench, SESSION_DELIVER, SELF);
    step(&bench, SESSION_DELIVERY, 2);
    assert_state(&bench, SESSION_DELIVERED);
    step(&bench, SESSION_LOST, 3);
    assert_reason(&bench, SESSION_DONE, SELF, 0, SESSION_NOBODY);
    bench_close(&bench);
}
END_TEST

START_TEST(test_order_that_says_never_cancels_at_the_root)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 3, 2, 0);
    root_to_ordering(&bench);
    step_code(&bench, SESSION_ABORT, 0, COVEY_EVICTED, SESSION_NOBODY);
    assert_cancel(&bench, COVEY_EVICTED, SESSION_NOBODY);
    assert_action(&bench, SESSION_RELEASE, SELF);
    assert_reason(&bench, SESSION_DONE, SELF, COVEY_EVICTED, SESSION_NOBODY);
    bench_close(&bench);
}
END_TEST

/* --- Stalls -------------------------------------------------------------------------------------- */

START_TEST(test_root_names_the_member_that_does_not_accept)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 4, 2, 0);
    step(&bench, SESSION_BEGIN, 0);
    bench.seen = bench.actions.count;
    bench.now_ns += STALL_NS / 2;
    step(&bench, SESSION_ACCEPT, 1);
    step(&bench, SESSION_ACCEPT, 3);
    ck_assert_uint_eq(tick_on(&bench), 1000 + STALL_NS);
    assert_cancel(&bench, COVEY_PEER_STALLED, 2);
    assert_action(&bench, SESSION_RELEASE, SELF);
    assert_reason(&bench, SESSION_DONE, SELF, COVEY_PEER_STALLED, 2);
    bench_close(&bench);
}
END_TEST

START_TEST(test_receiver_without_start_names_the_root)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 4, 2, 2);
    receiver_to_accepted(&bench);
    ck_assert_uint_eq(tick_on(&bench), 1000 + 2 * STALL_NS); /* the root may wait for others for one */
    assert_reason(&bench, SESSION_SEND_FAILED, 0, COVEY_PEER_STALLED, 0);
    bench_close(&bench);
}
END_TEST

START_TEST(test_receiver_names_the_peer_whose_block_is_next)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_BINOMIAL, 4, 4, 3); /* 1>3:0 2>3:1 1>3:2 2>3:3 */
    receiver_to_moving(&bench);
    step(&bench, SESSION_GRANT, 1);
    step(&bench, SESSION_GRANT, 2);
    step_block(&bench, SESSION_ARRIVED, 1, 0);
    step_block(&bench, SESSION_ARRIVED, 2, 3);
    bench.now_ns += STALL_NS / 2;
    step_block(&bench, SESSION_ARRIVED, 1, 2);
    tick_on(&bench);
    ck_assert_uint_ge(bench.now_ns, 1000 + STALL_NS / 2 + STALL_NS);
    assert_reason(&bench, SESSION_SEND_FAILED, 0, COVEY_PEER_STALLED, 2);
    bench_close(&bench);
}
END_TEST

START_TEST(test_waits_of_the_schedule_are_no_stalls)
{
    struct bench bench;

    /* the last of eight, one after the other: 6 * 100 steps have nothing for it */
    bench_open(&bench, SCHEDULE_SEQUENTIAL, 8, 100, 7);
    receiver_to_moving(&bench);
    tick_on(&bench);
    ck_assert_uint_ge(bench.now_ns, 1000 + STALL_NS + 600 * BLOCK_NS);
    assert_reason(&bench, SESSION_SEND_FAILED, 0, COVEY_PEER_STALLED, 0);
    bench_close(&bench);
}
END_TEST

START_TEST(test_receiver_without_seal_names_the_root)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 3, 2, 2);
    receiver_to_moving(&bench);
    receive_all(&bench);
    tick_on(&bench);
    assert_reason(&bench, SESSION_SEND_FAILED, 0, COVEY_PEER_STALLED, 0);
    bench_close(&bench);
}
END_TEST

START_TEST(test_write_that_is_not_done_names_its_peer)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 3, 8, 1);
    receiver_to_moving(&bench);
    step(&bench, SESSION_GRANT, 2);
    step_block(&bench, SESSION_ARRIVED, 0, 0);
    post(&bench, 2, 0);
    bench.now_ns += STALL_NS; /* blocks go on arriving */
    step_block(&bench, SESSION_ARRIVED, 0, 1);
    tick_on(&bench);
    assert_reason(&bench, SESSION_SEND_FAILED, 0, COVEY_PEER_STALLED, 2);
    bench_close(&bench);
}
END_TEST

START_TEST(test_peer_that_does_not_grant_is_named)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_BINOMIAL, 4, 8, 0);
    root_to_moving(&bench);
    root_seal(&bench);
    step(&bench, SESSION_GRANT, 1);
    write_all(&bench);
    tick_on(&bench);
    assert_cancel(&bench, COVEY_PEER_STALLED, 2);
    assert_action(&bench, SESSION_RELEASE, SELF);
    assert_action(&bench, SESSION_DONE, SELF);
    bench_close(&bench);
}
END_TEST

START_TEST(test_verdict_is_the_one_who_waits_for_nobody)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 6, 8, 0);
    root_to_moving(&bench);
    root_seal(&bench);
    step(&bench, SESSION_GRANT, 1);
    step_code(&bench, SESSION_FAILED, 5, COVEY_PEER_STALLED, 4);
    step_code(&bench, SESSION_FAILED, 4, COVEY_PEER_STALLED, 3);
    step_code(&bench, SESSION_FAILED, 3, COVEY_PEER_STALLED, 2);
    assert_state(&bench, SESSION_MOVING);
    ck_assert_uint_eq(tick_on(&bench), 1000 + STALL_NS / 8);
    assert_cancel(&bench, COVEY_PEER_STALLED, 2);
    assert_action(&bench, SESSION_POST_FENCE, 1);
    bench_close(&bench);
}
END_TEST

START_TEST(test_verdict_on_a_ring_of_waiters_is_one_of_them)
{
    struct bench bench;
    uint32_t culprit;

    bench_open(&bench, SCHEDULE_CHAIN, 3, 8, 0);
    root_to_moving(&bench);
    step_code(&bench, SESSION_FAILED, 1, COVEY_PEER_STALLED, 2);
    step_code(&bench, SESSION_FAILED, 2, COVEY_PEER_STALLED, 1);
    tick_on(&bench);
    culprit = bench.list[0].culprit;
    ck_assert(culprit == 1 || culprit == 2);
    assert_cancel(&bench, COVEY_PEER_STALLED, culprit);
    assert_action(&bench, SESSION_RELEASE, SELF);
    assert_action(&bench, SESSION_DONE, SELF);
    bench_close(&bench);
}
END_TEST

START_TEST(test_verdict_that_the_root_is_slow_looks_at_its_own_writes)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_BINOMIAL, 4, 8, 0);
    root_to_moving(&bench);
    root_seal(&bench);
    step(&bench, SESSION_GRANT, 1);
    step(&bench, SESSION_GRANT, 2);
    post(&bench, 1, 0);
    bench.now_ns += STALL_NS * 3 / 4;
    step_code(&bench, SESSION_FAILED, 2, COVEY_PEER_STALLED, 0);
    tick_on(&bench);
    assert_cancel(&bench, COVEY_PEER_STALLED, 1);
    assert_action(&bench, SESSION_POST_FENCE, 1);
    assert_action(&bench, SESSION_POST_FENCE, 2);
    bench_close(&bench);
}
END_TEST

START_TEST(test_verdict_is_dropped_when_everyone_received_after_all)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 3, 8, 0);
    root_to_moving(&bench);
    root_seal(&bench);
    step(&bench, SESSION_RECEIVED, 1);
    step_code(&bench, SESSION_FAILED, 1, COVEY_PEER_STALLED, 2);
    step(&bench, SESSION_RECEIVED, 2);
    assert_action(&bench, SESSION_ORDER, SELF);
    tick_on(&bench);
    assert_state(&bench, SESSION_ORDERING);
    bench_close(&bench);
}
END_TEST

START_TEST(test_other_failures_do_not_wait_for_the_verdict)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 3, 8, 0);
    root_to_moving(&bench);
    step_code(&bench, SESSION_FAILED, 2, COVEY_PEER_STALLED, 1);
    step_code(&bench, SESSION_FAILED, 1, COVEY_IO, SESSION_NOBODY);
    assert_cancel(&bench, COVEY_IO, 1);
    assert_action(&bench, SESSION_RELEASE, SELF);
    assert_action(&bench, SESSION_DONE, SELF);
    bench_close(&bench);
}
END_TEST

START_TEST(test_silent_member_is_named_at_last)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 3, 4, 0);
    root_to_moving(&bench);
    root_seal(&bench);
    step(&bench, SESSION_GRANT, 1);
    write_all(&bench);
    step(&bench, SESSION_RECEIVED, 1);
    tick_on(&bench); /* 2 says nothing, and nobody waits for it */
    ck_assert_uint_eq(bench.now_ns, 1000 + STALL_NS + (5 + 4) * BLOCK_NS + STALL_NS / 8);
    assert_cancel(&bench, COVEY_PEER_STALLED, 2);
    assert_action(&bench, SESSION_RELEASE, SELF);
    assert_action(&bench, SESSION_DONE, SELF);
    bench_close(&bench);
}
END_TEST

START_TEST(test_receiver_that_has_everything_reports_who_does_not_take_its_writes)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 3, 2, 1);
    receiver_to_ordering(&bench);
    step(&bench, SESSION_GRANT, 2);
    post(&bench, 2, 0);
    tick_on(&bench);
    assert_reason(&bench, SESSION_SEND_FAILED, 0, COVEY_PEER_STALLED, 2);
    assert_state(&bench, SESSION_ORDERING);
    tick_on(&bench);
    ck_assert_uint_ge(session_deadline_ns(bench.session), UINT64_MAX / 4); /* the rest is the order's */
    step(&bench, SESSION_COMMIT, 1);
    assert_action(&bench, SESSION_DELIVER, SELF);
    assert_action(&bench, SESSION_SEND_DELIVERED, 0);
    bench_close(&bench);

    bench_open(&bench, SCHEDULE_CHAIN, 3, 2, 0);
    root_to_moving(&bench);
    root_seal(&bench);
    step(&bench, SESSION_GRANT, 1);
    step(&bench, SESSION_RECEIVED, 1);
    step_code(&bench, SESSION_FAILED, 1, COVEY_PEER_STALLED, 2);
    tick_on(&bench);
    assert_cancel(&bench, COVEY_PEER_STALLED, 2);
    assert_action(&bench, SESSION_POST_FENCE, 1);
    bench_close(&bench);
}
END_TEST

START_TEST(test_failed_receiver_disconnects_a_root_that_does_not_cancel)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 3, 2, 1);
    receiver_to_moving(&bench);
    step(&bench, SESSION_GRANT, 2);
    tick_on(&bench);
    assert_reason(&bench, SESSION_SEND_FAILED, 0, COVEY_PEER_STALLED, 0);
    tick_on(&bench);
    assert_action(&bench, SESSION_DISCONNECT, 0);
    step(&bench, SESSION_LOST, 0);
    assert_action(&bench, SESSION_POST_FENCE, 2);
    step(&bench, SESSION_FENCED, 2);
    assert_action(&bench, SESSION_RELEASE, SELF);
    bench_close(&bench);
}
END_TEST

START_TEST(test_silent_peers_are_disconnected_while_draining)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_BINOMIAL, 4, 4, 1);
    receiver_to_moving(&bench);
    step(&bench, SESSION_GRANT, 3);
    step_code(&bench, SESSION_CANCEL, 0, COVEY_CANCELLED, SESSION_NOBODY);
    assert_action(&bench, SESSION_POST_FENCE, 3);
    bench.now_ns += STALL_NS;
    step_block(&bench, SESSION_ARRIVED, 0, 0); /* alive */
    tick_on(&bench);
    assert_action(&bench, SESSION_DISCONNECT, 3);
    tick_on(&bench);
    assert_action(&bench, SESSION_DISCONNECT, 0);
    step(&bench, SESSION_LOST, 3);
    step(&bench, SESSION_LOST, 0);
    assert_action(&bench, SESSION_RELEASE, SELF);
    bench_close(&bench);
}
END_TEST

START_TEST(test_member_that_does_not_say_delivered_is_disconnected_and_the_put_succeeds)
{
    struct bench bench;

    bench_open(&bench, SCHEDULE_CHAIN, 3, 2, 0);
    root_to_ordering(&bench);
    tick_on(&bench);
    ck_assert_uint_ge(session_deadline_ns(bench.session), UINT64_MAX / 4); /* the order's time is not ours */
    step(&bench, SESSION_COMMIT, 0);
    assert_action(&bench, SESSION_DELIVER, SELF);
    step(&bench, SESSION_DELIVERY, 1);
    tick_on(&bench);
    assert_action(&bench, SESSION_DISCONNECT, 2);
    step(&bench, SESSION_LOST, 2);
    assert_reason(&bench, SESSION_DONE, SELF, 0, SESSION_NOBODY);
    bench_close(&bench);
}
END_TEST

/* --- Size ---------------------------------------------------------------------------------------- */

START_TEST(test_largest_sessions_begin)
{
    static const struct schedule largest = {
        .kind = SCHEDULE_SEQUENTIAL, .members = SCHEDULE_MEMBERS_MAX, .blocks = SCHEDULE_BLOCKS_MAX};
    struct session_config config = {.schedule = largest, .window = 1, .edge_window = 1, .stall_ns = 1};
    void *memory = malloc(session_bytes(&largest));
    uint32_t done, total;

    ck_assert_ptr_nonnull(memory);
    session_progress(session_init(memory, &config), &done, &total);
    ck_assert_uint_eq(done, 0);
    ck_assert_uint_eq(total, (SCHEDULE_MEMBERS_MAX - 1) * SCHEDULE_BLOCKS_MAX);
    config.rank = SCHEDULE_MEMBERS_MAX - 1;
    session_progress(session_init(memory, &config), &done, &total);
    ck_assert_uint_eq(total, SCHEDULE_BLOCKS_MAX);
    free(memory);
}
END_TEST

SUITE_MAIN("session", 60, SUITE_TEST(test_root_offers_to_all_and_starts_when_all_have_accepted),
           SUITE_TEST(test_one_refusal_cancels_for_all_and_names_the_member),
           SUITE_TEST(test_receiver_that_cannot_land_refuses_and_leaves),
           SUITE_TEST(test_seal_that_is_known_early_goes_out_behind_start),
           SUITE_TEST(test_root_alone_orders_as_soon_as_it_is_sealed),
           SUITE_TEST(test_everyone_received_orders_and_everyone_delivered_ends),
           SUITE_TEST(test_root_does_not_end_while_its_memory_is_read),
           SUITE_TEST(test_writes_follow_the_steps_of_the_schedule),
           SUITE_TEST(test_a_block_is_written_when_it_is_ready_and_granted),
           SUITE_TEST(test_relay_passes_on_what_arrived), SUITE_TEST(test_window_limits_what_is_in_flight),
           SUITE_TEST(test_edge_window_limits_what_is_in_flight_to_one_peer),
           SUITE_TEST(test_head_is_overtaken_at_once_when_the_link_is_idle),
           SUITE_TEST(test_head_holds_up_later_steps_for_overtake_ns_while_writes_are_in_flight),
           SUITE_TEST(test_a_step_waits_for_a_place_in_the_window_not_for_overtake_ns),
           SUITE_TEST(test_a_stuck_peer_is_overtaken_by_63_sends_at_most),
           SUITE_TEST(test_blocks_that_the_receiver_holds_are_not_sent),
           SUITE_TEST(test_receiver_that_holds_everything_verifies_at_once),
           SUITE_TEST(test_receiver_verifies_when_it_has_blocks_and_seal_whichever_is_last),
           SUITE_TEST(test_empty_object_is_one_empty_block), SUITE_TEST(test_corrupt_bytes_fail_the_session),
           SUITE_TEST(test_root_rejects_what_does_not_fit),
           SUITE_TEST(test_receiver_rejects_what_does_not_fit),
           SUITE_TEST(test_cancelled_root_waits_for_its_writes_and_fences),
           SUITE_TEST(test_grant_that_comes_late_is_fenced_at_once),
           SUITE_TEST(test_edge_that_had_its_last_block_gets_no_fence),
           SUITE_TEST(test_edge_of_which_everything_was_skipped_ends_with_a_fence),
           SUITE_TEST(test_receiver_releases_memory_when_each_edge_into_it_is_over),
           SUITE_TEST(test_a_lost_peer_ends_its_edges),
           SUITE_TEST(test_memory_is_not_released_while_it_is_landed_or_verified),
           SUITE_TEST(test_what_crosses_a_cancel_is_dropped),
           SUITE_TEST(test_receiver_that_gives_up_tells_the_root_and_waits_for_its_cancel),
           SUITE_TEST(test_receiver_that_failed_grants_nothing_any_more),
           SUITE_TEST(test_member_lost_before_the_order_fails_the_session),
           SUITE_TEST(test_receiver_that_loses_the_root_drains_by_itself),
           SUITE_TEST(test_receiver_that_has_everything_waits_for_the_order_whoever_is_lost),
           SUITE_TEST(test_root_does_not_wait_for_who_is_lost_after_the_order),
           SUITE_TEST(test_order_that_says_never_cancels_at_the_root),
           SUITE_TEST(test_root_names_the_member_that_does_not_accept),
           SUITE_TEST(test_receiver_without_start_names_the_root),
           SUITE_TEST(test_receiver_names_the_peer_whose_block_is_next),
           SUITE_TEST(test_waits_of_the_schedule_are_no_stalls),
           SUITE_TEST(test_receiver_without_seal_names_the_root),
           SUITE_TEST(test_write_that_is_not_done_names_its_peer),
           SUITE_TEST(test_peer_that_does_not_grant_is_named),
           SUITE_TEST(test_verdict_is_the_one_who_waits_for_nobody),
           SUITE_TEST(test_verdict_on_a_ring_of_waiters_is_one_of_them),
           SUITE_TEST(test_verdict_that_the_root_is_slow_looks_at_its_own_writes),
           SUITE_TEST(test_verdict_is_dropped_when_everyone_received_after_all),
           SUITE_TEST(test_other_failures_do_not_wait_for_the_verdict),
           SUITE_TEST(test_silent_member_is_named_at_last),
           SUITE_TEST(test_receiver_that_has_everything_reports_who_does_not_take_its_writes),
           SUITE_TEST(test_failed_receiver_disconnects_a_root_that_does_not_cancel),
           SUITE_TEST(test_silent_peers_are_disconnected_while_draining),
           SUITE_TEST(test_member_that_does_not_say_delivered_is_disconnected_and_the_put_succeeds),
           SUITE_TEST(test_largest_sessions_begin))
