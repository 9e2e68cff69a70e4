/* SPDX-License-Identifier: BSD-3-Clause */
/* Whole sessions on the simulator: what must hold for every seed, whatever goes wrong. */

#include <covey/error.h>

#include "tests/lib/suite.h"
#include "tests/sim/session_sim.h"

#define SEEDS    100 /* of one test case; its loop index says which hundred */

#define STALL_NS UINT64_C(50000000)

/* An object, a cluster and a link that the seed chooses. */
static struct sim_options draw(struct rng *rng, uint64_t seed)
{
    struct sim_options options = {
        .schedule = {.kind = (enum schedule_kind)rng_below(rng, SCHEDULE_KINDS),
                     .members = 2 + (uint32_t)rng_below(rng, 8),
                     .blocks = 1 + (uint32_t)rng_below(rng, 24)},
        .window = 1 + (uint32_t)rng_below(rng, 4),
        .edge_window = 1 + (uint32_t)rng_below(rng, 4),
        .overtake_ns = rng_below(rng, 2000000),
        .stall_ns = STALL_NS,
        .block_bytes = rng_below(rng, 65536),
        .buffer_bytes = 32768 + rng_below(rng, 200000),
        .link_rate = UINT64_C(1000000000),
        .latency_ns = rng_below(rng, 50000),
        .jitter_ns = rng_below(rng, 50000),
        .ready_ns = rng_below(rng, 2) * rng_below(rng, 100000),
        .local_ns = rng_below(rng, 200000),
        .detect_ns = rng_below(rng, 2000000),
        .view_ns = 1 + rng_below(rng, 5000000),
        .delivery_complete = rng_below(rng, 2) == 0,
        .sharing = (enum sim_sharing)rng_below(rng, SIM_SHARINGS),
        .seed = seed,
    };

    if (rng_below(rng, 8) == 0)
        options.schedule.members = 1 + (uint32_t)rng_below(rng, 17);
    if (rng_below(rng, 8) == 0)
        options.schedule.blocks = 1;
    if (rng_below(rng, 16) == 0)
        options.block_bytes = 0;
    options.chunk_bytes = 8192 + options.block_bytes / 2;
    /* no link is more than 16 times slower */
    options.block_ns = 4 * (options.latency_ns + options.jitter_ns) + 16 * (options.block_bytes + 64);
    options.suspect_ns = 20 * options.stall_ns + 4 * schedule_steps(&options.schedule) * options.block_ns;
    return options;
}

/* A time at which the session may be anywhere. */
static uint64_t draw_moment(struct rng *rng, const struct sim_options *options)
{
    return rng_below(rng, 4 * options->latency_ns + options->local_ns +
                              options->schedule.blocks * (options->ready_ns + 2000) +
                              2 * sim_floor_ns(options) + 200000);
}

static uint32_t draw_member(struct rng *rng, const struct sim_options *options)
{
    return (uint32_t)rng_below(rng, options->schedule.members);
}

static uint32_t draw_receiver(struct rng *rng, const struct sim_options *options)
{
    return 1 + (uint32_t)rng_below(rng, options->schedule.members - 1);
}

/* No session lasts longer, whatever happens. */
static uint64_t bound_ns(const struct sim_options *options)
{
    uint64_t steps = schedule_steps(&options->schedule) + 4;

    return 40 * options->stall_ns + 8 * steps * options->block_ns +
           options->schedule.blocks * options->ready_ns;
}

static void run_checked(struct sim *sim, const struct sim_options *options)
{
    sim_run(sim, bound_ns(options));
    ck_assert_msg(sim_checker(sim)->text[0] == '\0', "seed %llu, %s, %u members, %u blocks: %s",
                  (unsigned long long)options->seed, schedule_name(options->schedule.kind),
                  options->schedule.members, options->schedule.blocks, sim_checker(sim)->text);
}

static void assert_result(struct sim *sim, const struct sim_options *options, int code)
{
    ck_assert_msg(sim_result(sim)->code == code, "seed %llu: %s, culprit %u",
                  (unsigned long long)options->seed, covey_error_name(sim_result(sim)->code),
                  sim_result(sim)->culprit);
}

START_TEST(test_without_faults_everyone_delivers)
{
    for (uint64_t seed = (uint64_t)_i * SEEDS; seed < (uint64_t)(_i + 1) * SEEDS; seed++) {
        struct rng rng = {seed};
        struct sim_options options = draw(&rng, seed);
        struct sim *sim = sim_open(&options);

        for (uint64_t slow = rng_below(&rng, 3); slow > 0; slow--)
            sim_slow(sim, draw_member(&rng, &options), 1 + (uint32_t)rng_below(&rng, 4));
        run_checked(sim, &options);
        assert_result(sim, &options, 0);
        sim_close(sim);
    }
}
END_TEST

START_TEST(test_blocks_that_receivers_hold_are_not_sent)
{
    for (uint64_t seed = (uint64_t)_i * SEEDS; seed < (uint64_t)(_i + 1) * SEEDS; seed++) {
        struct rng rng = {seed};
        struct sim_options options = draw(&rng, seed);
        struct sim *sim = sim_open(&options);
        uint64_t some = 1 + rng_below(&rng, 4);

        for (uint32_t member = 1; member < options.schedule.members; member++)
            for (uint32_t block = 0; block < options.schedule.blocks; block++)
                if (rng_below(&rng, 4) < some)
                    sim_hold(sim, member, block);
        run_checked(sim, &options);
        assert_result(sim, &options, 0);
        sim_close(sim);
    }
}
END_TEST

static void add_fault(struct sim *sim, const struct sim_options *options, struct rng *rng)
{
    uint32_t member = draw_member(rng, options);
    uint32_t other = draw_member(rng, options);
    uint64_t at_ns = draw_moment(rng, options);

    switch (rng_below(rng, 9)) {
    case 0:
    case 1:
        sim_crash_at(sim, member, at_ns);
        break;
    case 2:
        if (member != other)
            sim_cut_at(sim, member, other, at_ns);
        break;
    case 3:
        sim_abort_at(sim, member, at_ns);
        break;
    case 4:
        sim_pause_at(sim, member, at_ns, SIM_NEVER);
        break;
    case 5:
        sim_pause_at(sim, member, at_ns, at_ns + rng_below(rng, 3 * STALL_NS));
        break;
    case 6:
        if (member != other)
            sim_stick_at(sim, member, other, at_ns);
        break;
    case 7:
        if (member != 0)
            sim_refuse(sim, member, COVEY_BUDGET);
        break;
    default:
        if (member != 0)
            sim_corrupt(sim, member);
    }
}

START_TEST(test_whatever_fails_it_is_all_or_nothing)
{
    for (uint64_t seed = (uint64_t)_i * SEEDS; seed < (uint64_t)(_i + 1) * SEEDS; seed++) {
        struct rng rng = {seed};
        struct sim_options options = draw(&rng, seed);
        struct sim *sim = sim_open(&options);

        if (rng_below(&rng, 4) == 0)
            for (uint32_t i = 0; i < options.schedule.blocks && options.schedule.members > 1; i++)
                sim_hold(sim, draw_receiver(&rng, &options),
                         (uint32_t)rng_below(&rng, options.schedule.blocks));
        for (uint64_t faults = 1 + rng_below(&rng, 3); faults > 0; faults--)
            add_fault(sim, &options, &rng);
        run_checked(sim, &options);
        sim_close(sim);
    }
}
END_TEST

/* Fences and last blocks end every edge: nobody has to be disconnected to get a session over. */
START_TEST(test_cancelled_sessions_end_without_cutting_links)
{
    for (uint64_t seed = (uint64_t)_i * SEEDS; seed < (uint64_t)(_i + 1) * SEEDS; seed++) {
        struct rng rng = {seed};
        struct sim_options options = draw(&rng, seed);
        struct sim *sim = sim_open(&options);
        uint64_t fault = rng_below(&rng, 4);

        if (fault == 0 && options.schedule.members > 1)
            sim_refuse(sim, draw_receiver(&rng, &options), COVEY_BUDGET);
        else if (fault == 1 && options.schedule.members > 1)
            sim_corrupt(sim, draw_receiver(&rng, &options));
        else
            sim_abort_at(sim, draw_member(&rng, &options), draw_moment(&rng, &options));
        run_checked(sim, &options);
        ck_assert_msg(sim_result(sim)->disconnects == 0, "seed %llu", (unsigned long long)seed);
        sim_close(sim);
    }
}
END_TEST

START_TEST(test_a_member_that_stops_is_named)
{
    for (uint64_t seed = (uint64_t)_i * SEEDS; seed < (uint64_t)(_i + 1) * SEEDS; seed++) {
        struct rng rng = {seed};
        struct sim_options options = draw(&rng, seed);
        struct sim *sim;
        uint32_t stopped;

        if (options.schedule.members == 1)
            continue;
        sim = sim_open(&options);
        stopped = draw_receiver(&rng, &options);
        sim_pause_at(sim, stopped, draw_moment(&rng, &options), SIM_NEVER);
        run_checked(sim, &options);
        if (sim_result(sim)->code != 0) {
            assert_result(sim, &options, COVEY_PEER_STALLED);
            ck_assert_msg(sim_result(sim)->culprit == stopped, "seed %llu: %u is named, %u stopped",
                          (unsigned long long)seed, sim_result(sim)->culprit, stopped);
        }
        sim_close(sim);
    }
}
END_TEST

/* --- Finishing what a death broke off ---------------------------------------------------------------------
 */

static void crash_some(struct sim *sim, const struct sim_options *options, struct rng *rng, uint32_t from)
{
    for (uint64_t crashes = 1 + rng_below(rng, options->schedule.members - 1); crashes > 0; crashes--) {
        uint32_t member = from + (uint32_t)rng_below(rng, options->schedule.members - from);

        sim_crash_at(sim, member, draw_moment(rng, options) + rng_below(rng, 2) * 10000000);
    }
    if (rng_below(rng, 2) == 0) {
        uint64_t at_ns = draw_moment(rng, options);

        sim_pause_at(sim, draw_member(rng, options), at_ns, at_ns + rng_below(rng, STALL_NS / 4));
    }
}

static struct sim *open_finishing(struct rng *rng, struct sim_options *options, uint64_t seed)
{
    *options = draw(rng, seed);
    options->finish = true;
    options->stall_ns = 10 * STALL_NS; /* who dies is told to be dead before anyone waits too long */
    if (options->schedule.members < 2)
        options->schedule.members = 2;
    return sim_open(options);
}

/* Receivers die in any number, at any moment, also while others' deaths are being mended: the put ends well,
 * and no block is sent to who has it. */
START_TEST(test_put_is_finished_whichever_receivers_die)
{
    uint32_t finishes = 0;

    for (uint64_t seed = (uint64_t)_i * SEEDS; seed < (uint64_t)(_i + 1) * SEEDS; seed++) {
        struct rng rng = {seed};
        struct sim_options options;
        struct sim *sim = open_finishing(&rng, &options, seed);

        crash_some(sim, &options, &rng, 1);
        run_checked(sim, &options);
        assert_result(sim, &options, 0);
        finishes += sim_result(sim)->finishes;
        sim_close(sim);
    }
    ck_assert_uint_gt(finishes, 0);
}
END_TEST

/* Anyone dies, the root among them, or the caller gives up: all who are left deliver or none, and they
 * deliver if they have every block together. */
START_TEST(test_what_is_left_together_is_finished)
{
    uint32_t finishes = 0, drops = 0;

    for (uint64_t seed = (uint64_t)_i * SEEDS; seed < (uint64_t)(_i + 1) * SEEDS; seed++) {
        struct rng rng = {seed};
        struct sim_options options;
        struct sim *sim = open_finishing(&rng, &options, seed);

        sim_crash_at(sim, 0, draw_moment(&rng, &options));
        if (rng_below(&rng, 8) == 0)
            sim_abort_at(sim, 0, draw_moment(&rng, &options));
        if (rng_below(&rng, 2) == 0)
            crash_some(sim, &options, &rng, 0);
        run_checked(sim, &options);
        finishes += sim_result(sim)->finishes;
        drops += sim_result(sim)->drops;
        sim_close(sim);
    }
    ck_assert(finishes > 0 && drops > 0);
}
END_TEST

/* The root dies with all of its blocks out, on the way to different members: the one who finishes pulls what
 * it lacks from the others. */
START_TEST(test_blocks_that_only_others_hold_are_pulled)
{
    uint32_t pulls = 0, drops = 0;

    for (uint64_t i = 0; i < 200; i++) {
        struct rng rng = {1};
        struct sim_options options;
        struct sim *sim = open_finishing(&rng, &options, 1);

        sim_close(sim);
        options.schedule = (struct schedule){.kind = SCHEDULE_BINOMIAL, .members = 6, .blocks = 8};
        options.ready_ns = 0;
        options.block_bytes = options.chunk_bytes = 32768;
        sim = sim_open(&options);
        sim_crash_at(sim, 0, i * 10000);
        run_checked(sim, &options);
        pulls += sim_result(sim)->pulls;
        drops += sim_result(sim)->drops;
        sim_close(sim);
    }
    ck_assert(pulls > 0 && drops > 0);
}
END_TEST

/* The order of writes is worth what it costs only if the links stay full, however they are shared. */
static void assert_near_floor(enum schedule_kind kind, uint32_t members, enum sim_sharing sharing,
                              double limit)
{
    struct sim_options options = {.schedule = {.kind = kind, .members = members, .blocks = 256},
                                  .window = 4,
                                  .edge_window = 3,
                                  .overtake_ns = 4000000,
                                  .stall_ns = UINT64_MAX,
                                  .block_bytes = 262144,
                                  .chunk_bytes = 65536,
                                  .buffer_bytes = 1048576,
                                  .link_rate = 125000000,
                                  .latency_ns = 50000,
                                  .view_ns = 1,
                                  .delivery_complete = true,
                                  .sharing = sharing,
                                  .seed = 1};
    struct sim *sim = sim_open(&options);
    double ratio;

    sim_run(sim, UINT64_MAX);
    ck_assert_str_eq(sim_checker(sim)->text, "");
    ratio = (double)sim_result(sim)->received_ns / (double)sim_floor_ns(&options);
    ck_assert_msg(ratio < limit, "%s, %u members, sharing %d: %.3f of the floor", schedule_name(kind),
                  members, (int)sharing, ratio);
    sim_close(sim);
}

START_TEST(test_everyone_has_everything_soon_after_the_floor)
{
    enum sim_sharing sharing = (enum sim_sharing)_i;

    assert_near_floor(SCHEDULE_CHAIN, 8, sharing, 1.05);
    assert_near_floor(SCHEDULE_BINOMIAL, 4, sharing, 1.05);
    assert_near_floor(SCHEDULE_BINOMIAL, 8, sharing, 1.08);
    assert_near_floor(SCHEDULE_CIRCULANT, 4, sharing, 1.05);
    assert_near_floor(SCHEDULE_CIRCULANT, 6, sharing, 1.06);
    assert_near_floor(SCHEDULE_CIRCULANT, 8, sharing, 1.08);
}
END_TEST

SUITE_MAIN("sessions", 120, SUITE_LOOP(test_without_faults_everyone_delivers, 4),
           SUITE_LOOP(test_blocks_that_receivers_hold_are_not_sent, 2),
           SUITE_LOOP(test_whatever_fails_it_is_all_or_nothing, 20),
           SUITE_LOOP(test_cancelled_sessions_end_without_cutting_links, 4),
           SUITE_LOOP(test_a_member_that_stops_is_named, 4),
           SUITE_LOOP(test_put_is_finished_whichever_receivers_die, 10),
           SUITE_LOOP(test_what_is_left_together_is_finished, 10),
           SUITE_TEST(test_blocks_that_only_others_hold_are_pulled),
           SUITE_LOOP(test_everyone_has_everything_soon_after_the_floor, SIM_SHARINGS))
