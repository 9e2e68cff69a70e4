/* SPDX-License-Identifier: BSD-3-Clause */
/* The membership, case by case. Each test reads like a log; the checkers of the simulator watch all of them.
 */

#include <inttypes.h>
#include <string.h>

#include "tests/lib/suite.h"
#include "tests/sim/sim.h"

#define LONG (4000 * SIM_MS)

static struct sim sim;

static void open_sim(uint32_t nodes, enum membership_quorum quorum, uint64_t seed)
{
    struct sim_options options;

    sim_defaults(&options, nodes);
    options.quorum = quorum;
    sim_init(&sim, &options, seed);
}

/* A cluster of `nodes` that has formed its first view. */
static void open_formed(uint32_t nodes, enum membership_quorum quorum)
{
    open_sim(nodes, quorum, 1);
    sim_boot_all(&sim);
    ck_assert_msg(sim_settle(&sim, LONG), "%s", sim_trace_tail(&sim));
    ck_assert_uint_eq(sim_newest(&sim)->number, 1);
}

static void close_sim(void)
{
    ck_assert_msg(sim.failure[0] == '\0', "%s\n%s", sim.failure, sim_trace_tail(&sim));
    sim_close(&sim);
}

/* Until all is well; it has a generous while. */
static void settle(void)
{
    ck_assert_msg(sim_settle(&sim, LONG), "%s\n%s", sim.failure, sim_trace_tail(&sim));
}

#define ck_view(node, text)                                                                                  \
    ck_assert_msg(strcmp(sim_view_text(&sim, node), text) == 0, "%s, not %s\n%s", sim_view_text(&sim, node), \
                  text, sim_trace_tail(&sim))
#define ck_state(node, state)                                             \
    ck_assert_msg(sim_state(&sim, node) == (state), "%u is %s\n%s", node, \
                  membership_state_name(sim_state(&sim, node)), sim_trace_tail(&sim))

/* --- Forming -------------------------------------------------------------------------------------------- */

/* M01: eight nodes started at once are in one view, whatever the order in which they meet. */
START_TEST(test_a_herd_forms_one_view)
{
    struct sim_options options;

    sim_defaults(&options, 8);
    options.jitter_ns = SIM_MS;
    options.torn_percent = 30;
    sim_init(&sim, &options, (uint64_t)_i);
    sim_boot_all(&sim);
    ck_assert_msg(sim_settle(&sim, 200 * SIM_MS), "%s", sim_trace_tail(&sim));
    ck_view(7, "1{0,1,2,3,4,5,6,7}");
    ck_assert_uint_eq(sim.view_count, 1);
    close_sim();
}
END_TEST

START_TEST(test_less_than_a_majority_of_the_list_forms_nothing)
{
    open_sim(5, MEMBERSHIP_MAJORITY, 1);
    sim_boot(&sim, 3);
    sim_boot(&sim, 4);
    sim_run(&sim, LONG);
    ck_state(3, MEMBERSHIP_FORMING);
    ck_assert_uint_eq(sim.view_count, 0);
    sim_boot(&sim, 1);
    settle();
    ck_view(3, "1{1,3,4}");
    close_sim();
}
END_TEST

/* M06: who died while the others waited for a majority is not in the first view. */
START_TEST(test_a_node_lost_before_the_first_view_is_not_in_it)
{
    open_sim(6, MEMBERSHIP_MAJORITY, 1);
    for (uint32_t node = 0; node < 3; node++)
        sim_boot(&sim, node);
    sim_run(&sim, 20 * SIM_MS);
    sim_crash(&sim, 0);
    sim_run(&sim, 20 * SIM_MS);
    sim_boot(&sim, 3);
    sim_boot(&sim, 4);
    settle();
    ck_view(1, "1{1,2,3,4}");
    close_sim();
}
END_TEST

START_TEST(test_latecomers_of_the_list_join)
{
    open_sim(5, MEMBERSHIP_MAJORITY, 1);
    for (uint32_t node = 2; node < 5; node++)
        sim_boot(&sim, node);
    settle();
    ck_view(2, "1{2,3,4}");
    sim_boot(&sim, 0);
    sim_boot(&sim, 1);
    settle();
    ck_view(0, "2{2,3,4,0,1}");
    close_sim();
}
END_TEST

START_TEST(test_half_with_the_lowest_id_forms_under_the_tie_breaker)
{
    open_sim(4, MEMBERSHIP_TIE_BREAKER, 1);
    sim_boot(&sim, 2);
    sim_boot(&sim, 3);
    sim_run(&sim, LONG);
    ck_assert_uint_eq(sim.view_count, 0);
    sim_crash(&sim, 3);
    sim_boot(&sim, 0);
    settle();
    ck_view(0, "1{0,2}");
    close_sim();
}
END_TEST

/* --- Death ---------------------------------------------------------------------------------------------- */

START_TEST(test_a_dead_member_is_left_out)
{
    open_formed(4, MEMBERSHIP_MAJORITY);
    sim_crash(&sim, (uint32_t)_i);
    settle();
    ck_assert_uint_eq(sim_newest(&sim)->number, 2);
    ck_assert_uint_eq(sim_newest(&sim)->count, 3);
    ck_assert_uint_eq(view_rank_of_id(sim_newest(&sim), (uint32_t)_i), VIEW_RANK_NONE);
    close_sim();
}
END_TEST

START_TEST(test_two_deaths_at_once_take_one_view)
{
    open_formed(5, MEMBERSHIP_MAJORITY);
    sim_crash(&sim, 0);
    sim_crash(&sim, 1);
    settle();
    ck_view(4, "2{2,3,4}");
    close_sim();
}
END_TEST

static uint32_t crash_node;
static enum membership_rule crash_rule;

static void crash_at_rule(struct sim *in, uint32_t node, enum membership_rule rule)
{
    if (node != crash_node || rule != crash_rule || !sim_alive(in, node) || sim_newest(in) == NULL)
        return;
    in->on_rule = NULL;
    sim_crash(in, node);
}

/* A leader may die at any step, with any part of its last pushes on the way; the next one finishes. */
START_TEST(test_a_leader_that_dies_on_the_way_is_replaced)
{
    static const enum membership_rule rules[] = {MEMBERSHIP_RULE_PREPARE, MEMBERSHIP_RULE_PROPOSE,
                                                 MEMBERSHIP_RULE_COMMIT, MEMBERSHIP_RULE_INSTALL};
    struct sim_options options;

    sim_defaults(&options, 5);
    options.jitter_ns = 300 * SIM_US;
    options.torn_percent = 50;
    sim_init(&sim, &options, (uint64_t)_i);
    sim_boot_all(&sim);
    settle();
    crash_node = 0;
    crash_rule = rules[_i % 4];
    sim.on_rule = crash_at_rule;
    sim_crash(&sim, 4);
    settle();
    sim.on_rule = NULL;
    if (!sim_alive(&sim, 0))
        ck_assert_uint_eq(view_rank_of_id(sim_newest(&sim), 0), VIEW_RANK_NONE);
    ck_assert_uint_eq(view_rank_of_id(sim_newest(&sim), 4), VIEW_RANK_NONE);
    close_sim();
}
END_TEST

/* A value that one survivor accepted is proposed again, for it may have been chosen. */
START_TEST(test_an_accepted_value_outlives_its_leader)
{
    open_formed(5, MEMBERSHIP_MAJORITY);
    crash_node = 0;
    crash_rule = MEMBERSHIP_RULE_PROPOSE;
    sim.on_rule = crash_at_rule;
    sim_crash(&sim, 4);
    settle();
    ck_assert_uint_gt(sim.rules[MEMBERSHIP_RULE_ACCEPT], 0);
    ck_assert_uint_eq(sim.views[1].view->count, 4); /* with 0, which died after its proposal */
    ck_view(1, "3{1,2,3}");
    close_sim();
}
END_TEST

/* A process that stands still is noticed after suspect_after and two heartbeats at most. */
START_TEST(test_a_stopped_member_is_noticed_in_time)
{
    uint64_t stopped_ns;

    open_formed(3, MEMBERSHIP_MAJORITY);
    sim_pause(&sim, (uint32_t)_i);
    stopped_ns = sim.now_ns;
    sim_run(&sim, 500 * SIM_MS);
    ck_assert_uint_eq(sim.view_count, 2);
    ck_assert_uint_le(sim.views[1].last_ns - stopped_ns,
                      sim.options.suspect_after_ns + 2 * sim.options.heartbeat_ns);
    sim_resume(&sim, (uint32_t)_i);
    settle();
    ck_assert_uint_eq(sim_newest(&sim)->number, 3);
    close_sim();
}
END_TEST

START_TEST(test_a_short_stop_changes_nothing)
{
    open_formed(3, MEMBERSHIP_MAJORITY);
    sim_pause(&sim, (uint32_t)_i);
    sim_run(&sim, sim.options.suspect_after_ns * 8 / 10);
    sim_resume(&sim, (uint32_t)_i);
    settle();
    ck_assert_uint_eq(sim.view_count, 1);
    close_sim();
}
END_TEST

/* M14: after a long stop it blames nobody, learns that it was removed, and comes back as another incarnation;
 * a hundred times over. */
START_TEST(test_a_member_that_stood_still_blames_nobody)
{
    open_formed(3, MEMBERSHIP_MAJORITY);
    for (uint32_t i = 0; i < 100; i++) {
        uint64_t before = sim_incarnation(&sim, 2);
        uint32_t views = sim.view_count;
        sim_pause(&sim, 2);
        sim_run(&sim, 3 * sim.options.suspect_after_ns);
        sim_resume(&sim, 2);
        settle();
        ck_assert_uint_ne(sim_incarnation(&sim, 2), before);
        ck_assert_uint_eq(sim.view_count, views + 2);
    }
    close_sim();
}
END_TEST

/* Everybody stopped, as when a laptop sleeps: nobody is removed. */
START_TEST(test_all_standing_still_together_blame_nobody)
{
    open_formed(4, MEMBERSHIP_MAJORITY);
    for (uint32_t node = 0; node < 4; node++)
        sim_pause(&sim, node);
    sim_run(&sim, 10 * sim.options.suspect_after_ns);
    for (uint32_t node = 0; node < 4; node++)
        sim_resume(&sim, node);
    settle();
    ck_assert_uint_eq(sim.view_count, 1);
    close_sim();
}
END_TEST

/* --- Links ---------------------------------------------------------------------------------------------- */

/* M10: two that cannot reach each other, of three: the higher rank goes, and that is all. */
START_TEST(test_of_two_that_lost_each_other_the_higher_rank_goes)
{
    open_formed(3, MEMBERSHIP_MAJORITY);
    sim_cut_both(&sim, 1, 2);
    sim_run(&sim, LONG);
    ck_view(0, "2{0,1}");
    ck_view(1, "2{0,1}");
    ck_assert_uint_eq(sim.view_count, 2);
    sim_heal(&sim);
    settle();
    ck_view(0, "3{0,1,2}");
    close_sim();
}
END_TEST

/* One way: nothing from the leader arrives anywhere, or nothing arrives at it. It alone goes. */
START_TEST(test_a_leader_that_is_mute_or_deaf_goes_alone)
{
    open_formed(4, MEMBERSHIP_MAJORITY);
    for (uint32_t node = 1; node < 4; node++) {
        if (_i == 0)
            sim_cut(&sim, 0, node);
        else
            sim_cut(&sim, node, 0);
    }
    sim_run(&sim, 10 * sim.options.suspect_after_ns);
    ck_view(1, "2{1,2,3}");
    ck_view(3, "2{1,2,3}");
    sim_heal(&sim);
    settle();
    ck_view(1, "3{1,2,3,0}");
    close_sim();
}
END_TEST

/* M18: a link that breaks and is made again costs a view, for what it carried is lost, but nobody. */
START_TEST(test_a_link_that_flaps_costs_nobody)
{
    uint64_t incarnation;

    open_formed(4, MEMBERSHIP_MAJORITY);
    incarnation = sim_incarnation(&sim, 3);
    for (uint32_t i = 0; i < 100; i++) {
        sim_break(&sim, (uint32_t)_i, 3);
        settle();
        ck_assert_uint_eq(sim_newest(&sim)->number, i + 2);
    }
    ck_assert_uint_eq(sim_incarnation(&sim, 3), incarnation);
    ck_view(0, "101{0,1,2,3}");
    close_sim();
}
END_TEST

/* --- Partitions ----------------------------------------------------------------------------------------- */

/* M12: the part that was cut off comes back without a word: one view without it, one with it. */
START_TEST(test_a_healed_minority_does_not_disturb_the_majority)
{
    uint64_t delivered;

    open_formed(5, MEMBERSHIP_MAJORITY);
    sim_partition(&sim, 0x18);
    sim_run(&sim, 40 * sim.options.suspect_after_ns);
    ck_view(0, "2{0,1,2}");
    ck_state(0, MEMBERSHIP_RUNNING);
    ck_state(3, MEMBERSHIP_NO_QUORUM);
    ck_state(4, MEMBERSHIP_NO_QUORUM);
    delivered = sim_delivered(&sim, 3, 0);
    sim_run(&sim, 40 * sim.options.suspect_after_ns);
    ck_assert_uint_eq(sim_delivered(&sim, 3, 0), delivered);
    sim_heal(&sim);
    settle();
    ck_assert_uint_eq(view_rank_of_id(sim_newest(&sim), 4), 4);
    ck_assert_uint_le(sim_newest(&sim)->number, 4);
    close_sim();
}
END_TEST

START_TEST(test_two_halves_wait_for_each_other_and_go_on_by_themselves)
{
    uint64_t incarnation;

    open_formed(4, MEMBERSHIP_MAJORITY);
    incarnation = sim_incarnation(&sim, 3);
    sim_partition(&sim, 0xc);
    sim_run(&sim, 40 * sim.options.suspect_after_ns);
    for (uint32_t node = 0; node < 4; node++)
        ck_state(node, MEMBERSHIP_NO_QUORUM);
    ck_assert_uint_eq(sim.view_count, 1);
    sim_heal(&sim);
    settle();
    ck_assert_uint_eq(sim_newest(&sim)->count, 4);
    ck_assert_uint_eq(sim_incarnation(&sim, 3), incarnation);
    close_sim();
}
END_TEST

START_TEST(test_the_half_with_the_lowest_rank_goes_on_under_the_tie_breaker)
{
    open_formed(4, MEMBERSHIP_TIE_BREAKER);
    sim_partition(&sim, 0x3);
    sim_run(&sim, 40 * sim.options.suspect_after_ns);
    ck_view(0, "2{0,1}");
    ck_state(1, MEMBERSHIP_RUNNING);
    ck_state(2, MEMBERSHIP_NO_QUORUM);
    sim_heal(&sim);
    settle();
    ck_assert_uint_eq(sim_newest(&sim)->count, 4);
    close_sim();
}
END_TEST

/* --- Joining -------------------------------------------------------------------------------------------- */

/* M02, M30: more joiners than members, at the same time. The view stands still for the agreement only. */
START_TEST(test_eight_elastic_nodes_join_two_at_once)
{
    open_formed(2, MEMBERSHIP_MAJORITY);
    for (uint32_t i = 0; i < 8; i++)
        sim_join(&sim);
    settle();
    ck_view(0, "2{0,1,2,3,4,5,6,7,8,9}");
    ck_assert_uint_le(sim.longest_wedge_ns, 5 * sim.options.latency_ns);
    close_sim();
}
END_TEST

/* A joiner that cannot reach every member waits outside; the members go on. */
START_TEST(test_a_joiner_waits_until_it_is_linked_to_all)
{
    open_formed(3, MEMBERSHIP_MAJORITY);
    sim_cut_both(&sim, 1, 3);
    sim_join(&sim);
    sim_run(&sim, 20 * sim.options.suspect_after_ns);
    ck_state(3, MEMBERSHIP_JOINING);
    ck_assert_uint_eq(sim.view_count, 1);
    sim_heal(&sim);
    settle();
    ck_view(3, "2{0,1,2,3}");
    close_sim();
}
END_TEST

/* A joiner may die at any moment of its joining. */
START_TEST(test_a_joiner_that_dies_on_the_way_harms_nobody)
{
    uint32_t joiner;

    open_formed(3, MEMBERSHIP_MAJORITY);
    joiner = sim_join(&sim);
    sim_run(&sim, (uint64_t)_i * 50 * SIM_US);
    sim_crash(&sim, joiner);
    settle();
    ck_assert_uint_eq(sim_newest(&sim)->count, 3);
    ck_assert_uint_eq(sim_newest(&sim)->members[0].incarnation, sim_incarnation(&sim, 0));
    close_sim();
}
END_TEST

/* M08: a member, the leader too, is back before anyone noticed its death, of which no link tells. It is
 * another node and waits for the end of the old one; then one view has the new one in its place. */
START_TEST(test_a_restart_faster_than_suspicion_is_a_new_member)
{
    static const char *const views[] = {"2{1,2,0}", "2{0,2,1}", "2{0,1,2}"};
    struct sim_options options;
    uint32_t node = (uint32_t)_i;
    uint64_t before;

    sim_defaults(&options, 3);
    options.silent_percent = 100;
    sim_init(&sim, &options, 1);
    sim_boot_all(&sim);
    settle();
    before = sim_incarnation(&sim, node);
    sim_crash(&sim, node);
    sim_run(&sim, sim.options.suspect_after_ns / 4);
    sim_boot(&sim, node);
    settle();
    ck_view(node, views[_i]);
    ck_assert_uint_eq(sim_newest(&sim)->members[2].incarnation, sim_incarnation(&sim, node));
    ck_assert_uint_ne(sim_newest(&sim)->members[2].incarnation, before);
    if (node != 0)
        ck_assert_uint_gt(sim.rules[MEMBERSHIP_RULE_ID_TAKEN], 0);
    close_sim();
}
END_TEST

/* --- Leaving -------------------------------------------------------------------------------------------- */

START_TEST(test_a_leave_is_a_view_without_waiting)
{
    uint64_t asked_ns;

    open_formed(4, MEMBERSHIP_MAJORITY);
    asked_ns = sim.now_ns;
    ck_assert_int_eq(sim_leave(&sim, (uint32_t)_i), 0);
    settle();
    ck_assert_uint_eq(sim_newest(&sim)->count, 3);
    ck_assert_uint_le(sim.views[1].last_ns - asked_ns, 6 * sim.options.latency_ns);
    ck_state((uint32_t)_i, MEMBERSHIP_LEFT);
    close_sim();
}
END_TEST

/* A leave does not count against the quorum: one after the other, down to nobody. */
START_TEST(test_everyone_leaves)
{
    open_formed(3, MEMBERSHIP_MAJORITY);
    for (uint32_t node = 0; node < 3; node++) {
        sim_leave(&sim, node);
        sim_run(&sim, 10 * SIM_MS);
        ck_state(node, MEMBERSHIP_LEFT);
    }
    close_sim();
}
END_TEST

START_TEST(test_everyone_leaves_at_once)
{
    open_formed(5, MEMBERSHIP_MAJORITY);
    for (uint32_t node = 0; node < 5; node++)
        sim_leave(&sim, node);
    sim_run(&sim, 20 * sim.options.suspect_after_ns);
    for (uint32_t node = 0; node < 5; node++)
        ck_state(node, MEMBERSHIP_LEFT);
    close_sim();
}
END_TEST

/* Any member may be told to evict any other, or itself; the evicted one knows it and comes back as another.
 */
START_TEST(test_an_evicted_member_knows_it)
{
    uint32_t at = (uint32_t)_i % 3, node = (uint32_t)_i / 3;
    uint64_t before;

    open_formed(3, MEMBERSHIP_MAJORITY);
    before = sim_incarnation(&sim, node);
    ck_assert_int_eq(sim_evict(&sim, at, node), 0);
    settle();
    ck_assert_uint_eq(sim_newest(&sim)->number, 3);
    ck_assert_uint_ne(sim_incarnation(&sim, node), before);
    ck_assert_uint_eq(sim.rules[MEMBERSHIP_RULE_EVICTED], 1);
    close_sim();
}
END_TEST

/* A view of nobody is none. */
START_TEST(test_the_last_member_is_not_evicted)
{
    open_formed(1, MEMBERSHIP_MAJORITY);
    ck_assert_int_eq(sim_evict(&sim, 0, 0), COVEY_INVALID);
    settle();
    ck_view(0, "1{0}");
    close_sim();
}
END_TEST

/* Operators who remove each other's member at the same time, before they can know of one another. */
START_TEST(test_evictions_of_everyone_leave_someone)
{
    uint64_t epoch;

    open_formed(3, MEMBERSHIP_MAJORITY);
    epoch = sim_newest(&sim)->epoch;
    ck_assert_int_eq(sim_evict(&sim, 0, 1), 0);
    ck_assert_int_eq(sim_evict(&sim, 1, 2), 0);
    ck_assert_int_eq(sim_evict(&sim, 2, 0), 0);
    settle();
    ck_assert_uint_eq(sim_newest(&sim)->epoch, epoch);
    ck_assert_uint_eq(sim.rules[MEMBERSHIP_RULE_EVICTED], 2);
    close_sim();
}
END_TEST

START_TEST(test_requests_that_cannot_be_done_are_refused)
{
    open_sim(3, MEMBERSHIP_MAJORITY, 1);
    sim_boot(&sim, 0);
    ck_assert_int_eq(sim_evict(&sim, 0, 1), COVEY_FORMING);
    sim_boot(&sim, 1);
    sim_boot(&sim, 2);
    settle();
    ck_assert_int_eq(sim_evict(&sim, 0, 9), COVEY_NOT_FOUND);
    ck_assert_int_eq(sim_force(&sim, 0), COVEY_INVALID);
    sim_crash(&sim, 1);
    sim_crash(&sim, 2);
    sim_run(&sim, 10 * sim.options.suspect_after_ns);
    ck_assert_int_eq(sim_evict(&sim, 0, 1), COVEY_NO_QUORUM);
    sim_leave(&sim, 0);
    ck_assert_int_eq(sim_force(&sim, 0), COVEY_EVICTED);
    close_sim();
}
END_TEST

/* --- Force, epochs, survivors ----------------------------------------------------------------------------
 */

/* The last of three: it waits, and goes on when it is told to; others join what it has. */
START_TEST(test_a_forced_view_takes_in_the_blank_ones)
{
    uint64_t epoch;

    open_formed(3, MEMBERSHIP_MAJORITY);
    epoch = sim_view(&sim, 2)->epoch;
    sim_crash(&sim, 0);
    sim_crash(&sim, 1);
    sim_run(&sim, 10 * sim.options.suspect_after_ns);
    ck_state(2, MEMBERSHIP_NO_QUORUM);
    sim_boot(&sim, 0);
    sim_boot(&sim, 1);
    sim_run(&sim, 20 * sim.options.suspect_after_ns);
    ck_state(0, MEMBERSHIP_JOINING); /* a majority of blank ones does not start over a survivor's data */
    ck_state(1, MEMBERSHIP_JOINING);
    ck_assert_int_eq(sim_force(&sim, 0), COVEY_EXISTS);
    ck_assert_int_eq(sim_force(&sim, 2), 0);
    settle();
    ck_view(0, "3{2,0,1}");
    ck_assert_uint_ne(sim_view(&sim, 0)->epoch, epoch);
    ck_assert_uint_eq(sim_view(&sim, 0)->origin, epoch);
    close_sim();
}
END_TEST

/* Two of five, cut off for good, are told to go on; everyone in reach is kept. When the others are seen
 * again, they, without a quorum too, learn that they were left behind. */
START_TEST(test_who_was_left_behind_by_force_starts_anew)
{
    open_formed(4, MEMBERSHIP_MAJORITY);
    sim_partition(&sim, 0xc);
    sim_run(&sim, 20 * sim.options.suspect_after_ns);
    ck_assert_int_eq(sim_force(&sim, 3), 0);
    sim_run(&sim, 20 * sim.options.suspect_after_ns);
    ck_view(2, "2{2,3}");
    ck_state(2, MEMBERSHIP_RUNNING);
    ck_state(0, MEMBERSHIP_NO_QUORUM);
    sim_heal(&sim);
    settle();
    ck_assert_uint_eq(sim_newest(&sim)->count, 4);
    ck_assert_uint_eq(sim_newest(&sim)->members[0].id, 2);
    close_sim();
}
END_TEST

/* A majority that goes on is not moved by what a minority forced: both say that there is another epoch. */
START_TEST(test_a_quorum_is_not_evicted_by_a_forced_minority)
{
    open_formed(5, MEMBERSHIP_MAJORITY);
    sim_partition(&sim, 0x18);
    sim_run(&sim, 20 * sim.options.suspect_after_ns);
    ck_view(0, "2{0,1,2}");
    ck_assert_int_eq(sim_force(&sim, 4), 0);
    sim_run(&sim, 20 * sim.options.suspect_after_ns);
    ck_view(4, "2{3,4}");
    sim_heal(&sim);
    sim_run(&sim, 20 * sim.options.suspect_after_ns);
    ck_view(0, "2{0,1,2}");
    ck_view(4, "2{3,4}");
    ck_assert_uint_gt(sim.rules[MEMBERSHIP_RULE_OTHER_EPOCH], 0);
    close_sim();
}
END_TEST

/* The survivor that blank nodes waited for is started anew itself: then nobody has anything to lose. */
START_TEST(test_blank_nodes_wait_for_a_survivor_until_it_is_blank_too)
{
    open_formed(3, MEMBERSHIP_MAJORITY);
    sim_crash(&sim, 0);
    sim_crash(&sim, 1);
    sim_run(&sim, 5 * sim.options.suspect_after_ns);
    sim_boot(&sim, 0);
    sim_boot(&sim, 1);
    sim_run(&sim, 5 * sim.options.suspect_after_ns);
    sim_crash(&sim, 2);
    sim_run(&sim, 20 * sim.options.suspect_after_ns);
    ck_state(0, MEMBERSHIP_JOINING);
    sim_boot(&sim, 2);
    settle();
    ck_view(2, "1{0,1,2}");
    close_sim();
}
END_TEST

START_TEST(test_blank_nodes_form_without_a_lost_survivor_when_they_are_told_to)
{
    open_formed(3, MEMBERSHIP_MAJORITY);
    sim_crash(&sim, 0);
    sim_crash(&sim, 1);
    sim_run(&sim, 5 * sim.options.suspect_after_ns);
    sim_boot(&sim, 0);
    sim_boot(&sim, 1);
    sim_run(&sim, 5 * sim.options.suspect_after_ns);
    sim_crash(&sim, 2);
    sim_run(&sim, 5 * sim.options.suspect_after_ns);
    ck_assert_int_eq(sim_force(&sim, 1), 0);
    settle();
    ck_view(0, "1{0,1}");
    close_sim();
}
END_TEST

/* --- Time ------------------------------------------------------------------------------------------------
 */

/* "Agreement in 5 one-way delays after suspicion": suspicion seen, ballot, promise, value, acceptance. */
START_TEST(test_agreement_takes_five_one_way_delays)
{
    static const uint32_t sizes[] = {3, 4, 5, 8, 16, 33, 64};
    struct sim_options options;
    uint64_t suspected_ns;

    sim_defaults(&options, sizes[_i / 2]);
    options.application = false;
    sim_init(&sim, &options, 1);
    sim_boot_all(&sim);
    settle();
    sim_crash(&sim, _i % 2 == 0 ? 0 : sizes[_i / 2] - 1);
    suspected_ns = sim.now_ns + options.latency_ns; /* the links' ends say so everywhere */
    sim_run(&sim, 20 * options.latency_ns);
    ck_assert_uint_eq(sim.view_count, 2);
    ck_assert_msg(sim.views[1].last_ns <= suspected_ns + 5 * options.latency_ns, "%" PRIu64 "us\n%s",
                  (sim.views[1].last_ns - suspected_ns) / SIM_US, sim_trace_tail(&sim));
    close_sim();
}
END_TEST

/* --- What peers write ------------------------------------------------------------------------------------
 */

#define GARBAGE_SLOTS 4
#define GARBAGE_WORDS 4096 /* of a row, at least */

/* A peer may write anything into its row: that is refused, or believed, but nothing breaks. Small numbers, so
 * that counts, tags and ballots often fit together. */
START_TEST(test_rows_of_garbage_break_nothing)
{
    static const uint32_t ids[] = {0, 1, 2, 3};
    static uint64_t slots[GARBAGE_SLOTS * GARBAGE_WORDS], memory[1 << 17];
    static struct membership_actions actions;
    struct membership_config config = {.incarnation = 1,
                                       .node_ids = ids,
                                       .node_count = 4,
                                       .slots = GARBAGE_SLOTS,
                                       .members_max = 8,
                                       .heartbeat_ns = 1000,
                                       .suspect_after_ns = 10000};
    struct membership *membership;
    struct table_layout layout;
    struct rng rng;
    uint64_t now_ns = 1;

    membership_layout(&config, &layout);
    ck_assert_uint_le(table_slots_bytes(&layout), sizeof(slots));
    ck_assert_uint_le(membership_bytes(&config), sizeof(memory));
    rng_init(&rng, (uint64_t)_i);
    memset(slots, 0, sizeof(slots));
    membership = membership_init(&config, memory, slots, now_ns);
    for (uint32_t slot = 0; slot < 3; slot++) {
        struct membership_event up = {.type = MEMBERSHIP_LINK_UP, .now_ns = now_ns, .slot = slot};
        up.peer = (struct membership_peer){.id = slot + 1, .incarnation = slot + 2};
        membership_step(membership, &up, &actions);
    }
    for (uint32_t i = 0; i < 2000; i++) {
        struct membership_event row = {.type = MEMBERSHIP_ROW, .now_ns = ++now_ns};
        row.slot = (uint32_t)rng_below(&rng, 3);
        for (uint32_t words = 0; words < 40; words++) {
            uint64_t value = rng_below(&rng, 8) == 0 ? rng_next(&rng) : rng_below(&rng, 4);
            slots[row.slot * layout.row_words + rng_below(&rng, layout.row_words)] = value;
        }
        membership_step(membership, &row, &actions);
    }
    ck_assert_uint_le(membership_view(membership)->count, config.members_max);
}
END_TEST

SUITE_MAIN("membership", 120, SUITE_LOOP(test_rows_of_garbage_break_nothing, 20),
           SUITE_LOOP(test_a_herd_forms_one_view, 50),
           SUITE_TEST(test_less_than_a_majority_of_the_list_forms_nothing),
           SUITE_TEST(test_a_node_lost_before_the_first_view_is_not_in_it),
           SUITE_TEST(test_latecomers_of_the_list_join),
           SUITE_TEST(test_half_with_the_lowest_id_forms_under_the_tie_breaker),
           SUITE_LOOP(test_a_dead_member_is_left_out, 4), SUITE_TEST(test_two_deaths_at_once_take_one_view),
           SUITE_LOOP(test_a_leader_that_dies_on_the_way_is_replaced, 40),
           SUITE_TEST(test_an_accepted_value_outlives_its_leader),
           SUITE_LOOP(test_a_stopped_member_is_noticed_in_time, 3),
           SUITE_LOOP(test_a_short_stop_changes_nothing, 3),
           SUITE_TEST(test_a_member_that_stood_still_blames_nobody),
           SUITE_TEST(test_all_standing_still_together_blame_nobody),
           SUITE_TEST(test_of_two_that_lost_each_other_the_higher_rank_goes),
           SUITE_LOOP(test_a_leader_that_is_mute_or_deaf_goes_alone, 2),
           SUITE_LOOP(test_a_link_that_flaps_costs_nobody, 2),
           SUITE_TEST(test_a_healed_minority_does_not_disturb_the_majority),
           SUITE_TEST(test_two_halves_wait_for_each_other_and_go_on_by_themselves),
           SUITE_TEST(test_the_half_with_the_lowest_rank_goes_on_under_the_tie_breaker),
           SUITE_TEST(test_eight_elastic_nodes_join_two_at_once),
           SUITE_TEST(test_a_joiner_waits_until_it_is_linked_to_all),
           SUITE_LOOP(test_a_joiner_that_dies_on_the_way_harms_nobody, 40),
           SUITE_LOOP(test_a_restart_faster_than_suspicion_is_a_new_member, 3),
           SUITE_LOOP(test_a_leave_is_a_view_without_waiting, 4), SUITE_TEST(test_everyone_leaves),
           SUITE_TEST(test_everyone_leaves_at_once), SUITE_LOOP(test_an_evicted_member_knows_it, 9),
           SUITE_TEST(test_the_last_member_is_not_evicted),
           SUITE_TEST(test_evictions_of_everyone_leave_someone),
           SUITE_TEST(test_requests_that_cannot_be_done_are_refused),
           SUITE_TEST(test_a_forced_view_takes_in_the_blank_ones),
           SUITE_TEST(test_who_was_left_behind_by_force_starts_anew),
           SUITE_TEST(test_a_quorum_is_not_evicted_by_a_forced_minority),
           SUITE_TEST(test_blank_nodes_wait_for_a_survivor_until_it_is_blank_too),
           SUITE_TEST(test_blank_nodes_form_without_a_lost_survivor_when_they_are_told_to),
           SUITE_LOOP(test_agreement_takes_five_one_way_delays, 14))
