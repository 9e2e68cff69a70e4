/* SPDX-License-Identifier: BSD-3-Clause */
/* Members that die, stand still, come, leave and come back, as real processes. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "tests/lib/daemons.h"
#include "tests/lib/suite.h"

#define MIB     ((size_t)1 << 20)

/* Deaths show by their links, at once: only who stands still is waited for. A busy machine must not look like
 * that where nobody does. */
#define PATIENT "suspect_after = \"5s\"; stall_after = \"20s\";"
#define QUICK   "suspect_after = \"2s\"; stall_after = \"20s\";"

/* --- What must hold ------------------------------------------------------------------------------------- */

/* Every node that runs holds the same newest version of the object, or none of them holds any. */
static void expect_same(const struct daemons *daemons, const char *name, char text[64])
{
    bool first = true;

    for (unsigned i = 0; i < daemons->count; i++) {
        char here[64];

        if (daemons->pids[i] == 0)
            continue;
        daemons_object(daemons, i, name, here);
        if (first)
            memcpy(text, here, 64);
        first = false;
        ck_assert_msg(strcmp(text, here) == 0, "%s: n%u holds \"%s\", another \"%s\"", name, i, here, text);
    }
}

static void expect_put_works(const struct daemons *daemons, unsigned from, unsigned seed)
{
    char text[64];

    daemons_put(daemons, from, "after", daemons_file(daemons, "after", MIB + seed, seed));
    expect_same(daemons, "after", text);
    ck_assert_str_ne(text, "");
}

/* Nothing of a put that failed stays on its way. */
static bool is_idle(const struct daemons *daemons)
{
    for (unsigned i = 0; i < daemons->count; i++) {
        if (daemons->pids[i] != 0 && daemons_stat(daemons, i, "transfers") != 0)
            return false;
    }
    return true;
}

/* --- Death ---------------------------------------------------------------------------------------------- */

/* The leader, one in the middle, the last: the others go on in a view without it, and with it when it is
 * started again, as a newcomer behind them. */
START_TEST(test_killed_member_is_replaced_by_its_next_incarnation)
{
    unsigned victim = (unsigned)_i % 3;
    struct daemons daemons;
    struct seen before, after;

    daemons_init(&daemons, 3, 0, PATIENT);
    daemons_start_all(&daemons);
    expect_put_works(&daemons, victim, 1);
    daemons_view(&daemons, victim, &before);
    daemons_kill(&daemons, victim);
    daemons_await(&daemons, 2);
    expect_put_works(&daemons, (victim + 1) % 3, 2);
    daemons_start(&daemons, victim);
    daemons_await(&daemons, 3);
    daemons_view(&daemons, victim, &after);
    ck_assert_uint_eq(after.epoch, before.epoch);
    ck_assert_uint_eq(after.ids[2], victim);
    ck_assert_uint_ne(after.own_incarnation, before.own_incarnation);
    expect_put_works(&daemons, victim, 3);
    daemons_fini(&daemons);
}
END_TEST

/* Started again at once, before anybody can have waited for suspect_after. */
START_TEST(test_restart_faster_than_the_timeout_is_a_new_member)
{
    struct daemons daemons;

    daemons_init(&daemons, 3, 0, PATIENT);
    daemons_start_all(&daemons);
    for (unsigned round = 0; round < 4; round++) {
        struct seen before, after;

        daemons_view(&daemons, round % 3, &before);
        daemons_kill(&daemons, round % 3);
        daemons_start(&daemons, round % 3);
        daemons_await(&daemons, 3);
        daemons_view(&daemons, round % 3, &after);
        ck_assert_uint_gt(after.number, before.number);
        ck_assert_uint_ne(after.own_incarnation, before.own_incarnation);
    }
    expect_put_works(&daemons, 1, 1);
    daemons_fini(&daemons);
}
END_TEST

/* Kill `victim` once it has some of what `root` puts. Whatever the put says is so at every survivor. */
static void kill_in_a_put(struct daemons *daemons, unsigned root, unsigned victim, const char *file)
{
    const char *const arguments[] = {"put", "g", "model", file, NULL};
    const char *counter = root == victim ? "sent_blocks" : "received_blocks";
    static struct result result;
    char before[64], after[64];
    unsigned other = victim == 0 ? 1 : 0;
    uint64_t blocks;
    pid_t put;

    daemons_put(daemons, root, "model", daemons_file(daemons, "small", 1000 + victim, victim));
    expect_same(daemons, "model", before);
    blocks = daemons_stat(daemons, victim, counter);
    put = daemons_covey_start(daemons, root, arguments);
    PROCESS_AWAIT(daemons_stat(daemons, victim, counter) > blocks || daemons_covey_ended(put));
    daemons_kill(daemons, victim);
    daemons_covey_end(daemons, put, &result);
    daemons_await(daemons, daemons->count - 1);
    PROCESS_AWAIT(is_idle(daemons));
    expect_same(daemons, "model", after);
    if (root != victim)
        ck_assert_msg((result.status == 0) == (strcmp(before, after) != 0),
                      "covey put said %d %s, \"%s\" is \"%s\" now", result.status, result.errors, before,
                      after);
    expect_put_works(daemons, other, 1);
    daemons_start(daemons, victim);
    daemons_await(daemons, daemons->count);
}

static const unsigned roots[] = {2, 0};

START_TEST(test_member_killed_in_a_put_leaves_all_or_nothing)
{
    struct daemons daemons;
    char file[96];

    daemons_init(&daemons, 4, 0, PATIENT);
    snprintf(file, sizeof(file), "%s", daemons_file(&daemons, "model", 96 * MIB, 5));
    daemons_start_all(&daemons);
    for (unsigned victim = 0; victim < 4; victim++) {
        expect_put_works(&daemons, victim, victim);
        kill_in_a_put(&daemons, roots[_i % 2], victim, file);
    }
    daemons_fini(&daemons);
}
END_TEST

/* --- Standing still ------------------------------------------------------------------------------------- */

/* Longer than suspect_after: the others go on. When it runs again it accuses nobody, learns that it is out,
 * and comes back as another incarnation, by itself. */
START_TEST(test_stopped_member_is_left_out_and_comes_back_by_itself)
{
    unsigned victim = _i == 0 ? 0 : 2;
    struct daemons daemons;
    struct seen before, after;
    size_t descriptors, threads;

    daemons_init(&daemons, 3, 0, QUICK);
    daemons_start_all(&daemons);
    expect_put_works(&daemons, victim, 1);
    daemons_view(&daemons, victim, &before);
    descriptors = process_descriptors(daemons.pids[victim]);
    threads = process_threads(daemons.pids[victim]);
    for (unsigned round = 0; round < 2; round++) {
        unsigned other = (victim + 1) % 3;

        daemons_pause(&daemons, victim);
        PROCESS_AWAIT(daemons_is_running(&daemons, other, 2));
        daemons_put(&daemons, other, "meanwhile", daemons_file(&daemons, "meanwhile", MIB, round));
        daemons_resume(&daemons, victim);
        daemons_await(&daemons, 3);
        expect_put_works(&daemons, victim, 2 + round);
    }
    ck_assert(!daemons_logged(&daemons, victim, "its heartbeat stands still"));
    daemons_view(&daemons, victim, &after);
    ck_assert_uint_eq(after.epoch, before.epoch);
    ck_assert_uint_ne(after.own_incarnation, before.own_incarnation);
    PROCESS_AWAIT(process_descriptors(daemons.pids[victim]) <= descriptors);
    PROCESS_AWAIT(process_threads(daemons.pids[victim]) <= threads);
    daemons_fini(&daemons);
}
END_TEST

START_TEST(test_short_stop_does_no_harm)
{
    static struct result result;
    struct daemons daemons;
    struct seen before, after;
    char file[96], text[64];
    const char *const arguments[] = {"put", "g", "model", file, NULL};
    pid_t put;

    daemons_init(&daemons, 3, 0, PATIENT);
    snprintf(file, sizeof(file), "%s", daemons_file(&daemons, "model", 8 * MIB, 5));
    daemons_start_all(&daemons);
    daemons_view(&daemons, 0, &before);
    for (unsigned victim = 0; victim < 3; victim++) {
        daemons_pause(&daemons, victim);
        put = daemons_covey_start(&daemons, (victim + 1) % 3, arguments);
        PROCESS_AWAIT(daemons_stat(&daemons, (victim + 1) % 3, "transfers") > 0);
        daemons_resume(&daemons, victim);
        daemons_covey_end(&daemons, put, &result);
        ck_assert_msg(result.status == 0, "%s", result.errors);
    }
    expect_same(&daemons, "model", text);
    daemons_view(&daemons, 0, &after);
    ck_assert_uint_eq(after.number, before.number);
    ck_assert_mem_eq(after.incarnations, before.incarnations, sizeof(before.incarnations));
    daemons_fini(&daemons);
}
END_TEST

/* The root of a put stands still in the middle of it. Its word, when it runs again, is what the others have.
 */
START_TEST(test_root_left_out_in_its_put_tells_the_truth)
{
    static struct result result;
    struct daemons daemons;
    char file[96], before[64], after[64];
    const char *const arguments[] = {"put", "g", "model", file, NULL};
    uint64_t blocks;
    pid_t put;

    daemons_init(&daemons, 3, 0, QUICK);
    snprintf(file, sizeof(file), "%s", daemons_file(&daemons, "model", 128 * MIB, 5));
    daemons_start_all(&daemons);
    expect_put_works(&daemons, 2, 1);
    blocks = daemons_stat(&daemons, 0, "received_blocks");
    put = daemons_covey_start(&daemons, 2, arguments);
    PROCESS_AWAIT(daemons_stat(&daemons, 0, "received_blocks") > blocks || daemons_covey_ended(put));
    daemons_pause(&daemons, 2);
    PROCESS_AWAIT(daemons_is_running(&daemons, 0, 2) && daemons_is_running(&daemons, 1, 2));
    daemons_object(&daemons, 0, "model", before);
    daemons_object(&daemons, 1, "model", after);
    ck_assert_str_eq(before, after);
    daemons_resume(&daemons, 2);
    daemons_covey_end(&daemons, put, &result);
    if (result.status == 0)
        ck_assert_str_ne(before, "");
    else
        ck_assert_msg(strstr(result.errors, "stopped") != NULL || strstr(result.errors, "view") != NULL ||
                          strstr(result.errors, "lost") != NULL,
                      "%s", result.errors);
    daemons_await(&daemons, 3);
    PROCESS_AWAIT(is_idle(&daemons));
    expect_put_works(&daemons, 2, 2);
    daemons_fini(&daemons);
}
END_TEST

/* --- Quorum --------------------------------------------------------------------------------------------- */

static void expect_no_quorum(const struct daemons *daemons, unsigned i)
{
    static struct result result;
    char text[64];

    PROCESS_AWAIT(daemons_is_in_state(daemons, i, "no-quorum"));
    daemons_covey(daemons, i, &result, "put", "g", "minority", daemons_file(daemons, "minority", 10, 1),
                  NULL);
    ck_assert_int_eq(result.status, 1);
    ck_assert_msg(strstr(result.errors, "quorum") != NULL, "%s", result.errors);
    daemons_object(daemons, i, "after", text);
    ck_assert_str_ne(text, "");
}

START_TEST(test_node_without_a_majority_says_so_and_goes_on_when_it_is_back)
{
    struct daemons daemons;
    struct seen before, after;

    daemons_init(&daemons, 3, 0, QUICK);
    daemons_start_all(&daemons);
    expect_put_works(&daemons, 0, 1);
    daemons_view(&daemons, 0, &before);
    daemons_pause(&daemons, 1);
    daemons_pause(&daemons, 2);
    expect_no_quorum(&daemons, 0);
    daemons_resume(&daemons, 1);
    daemons_resume(&daemons, 2);
    daemons_await(&daemons, 3);
    daemons_view(&daemons, 0, &after);
    ck_assert_uint_eq(after.epoch, before.epoch);
    ck_assert_uint_eq(after.own_incarnation, before.own_incarnation);
    expect_put_works(&daemons, 1, 2);
    daemons_fini(&daemons);
}
END_TEST

/* Two of three die and come back blank: they wait for the survivor rather than start over without its data.
 */
START_TEST(test_blank_majority_waits_for_the_survivor)
{
    struct daemons daemons;

    daemons_init(&daemons, 3, 0, PATIENT);
    daemons_start_all(&daemons);
    expect_put_works(&daemons, 0, 1);
    daemons_kill(&daemons, 1);
    daemons_kill(&daemons, 2);
    expect_no_quorum(&daemons, 0);
    daemons_start(&daemons, 1);
    daemons_start(&daemons, 2);
    for (unsigned i = 1; i < 3; i++) {
        PROCESS_AWAIT(daemons_logged(&daemons, i, "met a member of an earlier view"));
        ck_assert(daemons_is_in_state(&daemons, i, "forming"));
    }
    ck_assert(daemons_is_in_state(&daemons, 0, "no-quorum"));
    daemons_fini(&daemons);
}
END_TEST

/* --- Coming and going ----------------------------------------------------------------------------------- */

START_TEST(test_herd_forms_one_cluster)
{
    struct daemons daemons;
    struct seen first, other;

    daemons_init(&daemons, 8, 0, PATIENT);
    daemons_start_all(&daemons);
    daemons_view(&daemons, 0, &first);
    for (unsigned i = 1; i < 8; i++) {
        daemons_view(&daemons, i, &other);
        ck_assert_uint_eq(other.epoch, first.epoch);
        ck_assert_mem_eq(other.incarnations, first.incarnations, sizeof(first.incarnations));
    }
    expect_put_works(&daemons, (unsigned)_i % 8, 1);
    daemons_fini(&daemons);
}
END_TEST

START_TEST(test_member_leaves_and_returns)
{
    static struct result result;
    struct daemons daemons;

    daemons_init(&daemons, 3, 0, PATIENT);
    daemons_start_all(&daemons);
    for (unsigned i = 0; i < 3; i++) {
        daemons_covey(&daemons, i, &result, "leave", NULL);
        ck_assert_msg(result.status == 0, "%s", result.errors);
        ck_assert_int_eq(process_wait(daemons.pids[i]), 0);
        daemons.pids[i] = 0;
        daemons_await(&daemons, 2);
        expect_put_works(&daemons, (i + 1) % 3, i);
        daemons_start(&daemons, i);
        daemons_await(&daemons, 3);
    }
    expect_put_works(&daemons, 0, 5);
    daemons_fini(&daemons);
}
END_TEST

START_TEST(test_elastic_nodes_are_members_like_any_other)
{
    struct daemons daemons;

    daemons_init(&daemons, 3, 3, PATIENT);
    daemons_start_all(&daemons);
    daemons_start(&daemons, 3);
    daemons_await(&daemons, 4);
    expect_put_works(&daemons, 3, 1);
    daemons_start(&daemons, 5);
    daemons_start(&daemons, 4);
    daemons_await(&daemons, 6);
    for (unsigned i = 0; i < 6; i++)
        expect_put_works(&daemons, i, i);
    daemons_kill(&daemons, 4);
    daemons_await(&daemons, 5);
    daemons_start(&daemons, 4);
    daemons_await(&daemons, 6);
    daemons_stop(&daemons, 3);
    daemons_await(&daemons, 5);
    expect_put_works(&daemons, 5, 7);
    daemons_fini(&daemons);
}
END_TEST

/* More joiners at once than there are members, some of which die somewhere on their way in. */
START_TEST(test_joiners_that_die_on_their_way_hold_up_nobody)
{
    enum { LISTED = 3, JOINERS = 8, DYING = 3 };
    struct daemons daemons;
    struct rng rng;

    rng_init(&rng, (uint64_t)_i);
    daemons_init(&daemons, LISTED, JOINERS, PATIENT);
    daemons_start_all(&daemons);
    for (unsigned i = LISTED; i < LISTED + JOINERS; i++)
        daemons_start(&daemons, i);
    for (unsigned i = LISTED; i < LISTED + DYING; i++) {
        usleep((useconds_t)(rng_next(&rng) % 150000)); /* any moment */
        daemons_kill(&daemons, i);
    }
    daemons_await(&daemons, LISTED + JOINERS - DYING);
    expect_put_works(&daemons, LISTED + DYING, 1);
    for (unsigned i = LISTED; i < LISTED + DYING; i++)
        daemons_start(&daemons, i);
    daemons_await(&daemons, LISTED + JOINERS);
    expect_put_works(&daemons, LISTED, 2);
    daemons_fini(&daemons);
}
END_TEST

/* The second process with an id is refused and named while the first one lives, and takes its place after. */
START_TEST(test_second_process_with_an_id_waits_for_the_end_of_the_first)
{
    struct daemons daemons;
    struct seen before, after;

    daemons_init(&daemons, 3, 2, PATIENT);
    daemons_identify(&daemons, 4, 3);
    daemons_start_all(&daemons);
    daemons_start(&daemons, 3);
    daemons_await(&daemons, 4);
    daemons_view(&daemons, 0, &before);
    daemons_start(&daemons, 4);
    for (unsigned i = 0; i < 3; i++)
        PROCESS_AWAIT(daemons_logged(&daemons, i, "two processes run as node 3"));
    PROCESS_AWAIT(daemons_logged(&daemons, 4, "two processes run as node 3"));
    daemons_view(&daemons, 0, &after);
    ck_assert_uint_eq(after.number, before.number);
    daemons_put(&daemons, 3, "model", daemons_file(&daemons, "model", MIB, 1));
    daemons_kill(&daemons, 3);
    daemons_await(&daemons, 4);
    expect_put_works(&daemons, 4, 2);
    daemons_fini(&daemons);
}
END_TEST

/* --- Many changes --------------------------------------------------------------------------------------- */

static size_t resident_bytes(pid_t pid)
{
    char path[32], text[2048];
    const char *line;

    snprintf(path, sizeof(path), "/proc/%ld/status", (long)pid);
    process_read(path, text, sizeof(text));
    line = strstr(text, "VmRSS:");
    ck_assert_ptr_nonnull(line);
    return (size_t)strtoul(line + strlen("VmRSS:"), NULL, 10) * 1024;
}

/* One of three dies and is replaced, over and over, while the two others put, read and remove. */
START_TEST(test_many_view_changes_leave_nothing_behind)
{
    enum { WARM = 3 };
    const unsigned rounds = suite_is_long() ? 55 : 12;
    static struct result result;
    struct daemons daemons;
    struct seen seen;
    size_t descriptors = 0, threads = 0, resident = 0;
    char file[96], text[64], other[64];
    const char *const arguments[] = {"put", "g", "model", file, NULL};

    daemons_init(&daemons, 3, 0, PATIENT);
    snprintf(file, sizeof(file), "%s", daemons_file(&daemons, "model", 4 * MIB, 5));
    daemons_start_all(&daemons);
    for (unsigned round = 0; round < rounds; round++) {
        pid_t put = daemons_covey_start(&daemons, round % 2, arguments);

        daemons_kill(&daemons, 2);
        daemons_covey_end(&daemons, put, &result);
        PROCESS_AWAIT(daemons_is_running(&daemons, 0, 2) && daemons_is_running(&daemons, 1, 2));
        daemons_object(&daemons, 0, "model", text);
        daemons_object(&daemons, 1, "model", other);
        ck_assert_str_eq(text, other);
        daemons_start(&daemons, 2);
        PROCESS_AWAIT(daemons_is_running(&daemons, 0, 3) && daemons_is_running(&daemons, 2, 3));
        daemons_put(&daemons, 2, "model", file);
        daemons_covey(&daemons, 1, &result, "rm", "g", "model", NULL);
        ck_assert_msg(result.status == 0, "%s", result.errors);
        expect_same(&daemons, "model", text);
        ck_assert_str_eq(text, "");
        if (round == WARM) {
            PROCESS_AWAIT(is_idle(&daemons));
            descriptors = process_descriptors(daemons.pids[0]);
            threads = process_threads(daemons.pids[0]);
            resident = resident_bytes(daemons.pids[0]);
        }
    }
    daemons_view(&daemons, 0, &seen);
    ck_assert_uint_ge(seen.number, 2 * rounds + 1);
    PROCESS_AWAIT(is_idle(&daemons));
    PROCESS_AWAIT(process_descriptors(daemons.pids[0]) <= descriptors);
    PROCESS_AWAIT(process_threads(daemons.pids[0]) <= threads);
    ck_assert_uint_lt(resident_bytes(daemons.pids[0]), resident + 16 * MIB);
    daemons_fini(&daemons);
}
END_TEST

SUITE_MAIN("members", 120, SUITE_LONG(test_killed_member_is_replaced_by_its_next_incarnation, 3, 30),
           SUITE_TEST(test_restart_faster_than_the_timeout_is_a_new_member),
           SUITE_LONG(test_member_killed_in_a_put_leaves_all_or_nothing, 2, 100),
           SUITE_LOOP(test_stopped_member_is_left_out_and_comes_back_by_itself, 2),
           SUITE_TEST(test_short_stop_does_no_harm),
           SUITE_TEST(test_root_left_out_in_its_put_tells_the_truth),
           SUITE_TEST(test_node_without_a_majority_says_so_and_goes_on_when_it_is_back),
           SUITE_TEST(test_blank_majority_waits_for_the_survivor),
           SUITE_LONG(test_herd_forms_one_cluster, 2, 50), SUITE_TEST(test_member_leaves_and_returns),
           SUITE_TEST(test_elastic_nodes_are_members_like_any_other),
           SUITE_LONG(test_joiners_that_die_on_their_way_hold_up_nobody, 2, 40),
           SUITE_TEST(test_second_process_with_an_id_waits_for_the_end_of_the_first),
           SUITE_TEST(test_many_view_changes_leave_nothing_behind))
