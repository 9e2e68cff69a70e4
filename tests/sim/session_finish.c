/* SPDX-License-Identifier: BSD-3-Clause */
/* The sessions after the first: the driver of core/finish.h in the simulator. */

#include <stdlib.h>

#include <covey/error.h>

#include "base/bitmap.h"
#include "tests/sim/session_sim_internal.h"

/* --- Who is left, and what they have ----------------------------------------------------------------------
 */

/* The members of a plan who are in this member's view, by rank. */
static uint64_t present_in(const struct member *self, const struct plan *plan)
{
    uint64_t present = 0;

    for (uint32_t rank = 0; rank < plan->count; rank++)
        present |= (self->present >> plan->members[rank] & 1) << rank;
    return present;
}

static uint32_t coordinator(const struct sim *sim, const struct member *self)
{
    const struct plan *party = &sim->plans[self->party];
    uint64_t present = present_in(self, party);

    return party->members[finish_coordinator(&present, party->count)];
}

static uint64_t *held_by(struct sim *sim, uint32_t member)
{
    uint32_t blocks = sim->options.schedule.blocks;
    uint64_t *held = sim_keep(sim, BITMAP_WORDS(blocks), sizeof(*held));

    for (uint32_t block = 0; block < blocks; block++) {
        if (sim->checker.member[member].content[block] != 0)
            bitmap_set(held, block);
    }
    return held;
}

static uint32_t rank_of(const struct plan *plan, uint32_t member)
{
    uint32_t rank = 0;

    while (rank < plan->count && plan->members[rank] != member)
        rank++;
    return rank;
}

/* --- Words ------------------------------------------------------------------------------------------------
 */

static void send(struct sim *sim, uint32_t from, uint32_t to,
                 void (*run)(struct sim *sim, const struct sim_event *event), const uint64_t *held)
{
    struct sim_event event = {.run = run, .a = to, .b = from, .value = sim->members[from].view};

    event.message.skip = held;
    sim_push(sim, sim_control_ns(sim, from, to), &event);
}

static bool comes(const struct sim *sim, const struct sim_event *event)
{
    return !sim->members[event->a].dead && !sim_is_cut(sim, event->a, event->b);
}

static void coordinate(struct sim *sim, uint32_t member);
static void drop(struct sim *sim, uint32_t member);

static void run_forget(struct sim *sim, const struct sim_event *event)
{
    struct member *self = &sim->members[event->a];
    uint32_t rank = rank_of(&sim->plans[self->party], event->b);

    if (!comes(sim, event) || !self->interrupted)
        return;
    if (coordinator(sim, self) == event->b) {
        drop(sim, event->a);
    } else if (rank < sim->plans[self->party].count && self->finish != NULL) {
        finish_forgot(self->finish, rank);
        coordinate(sim, event->a);
    }
}

static struct finish *finish_of(struct sim *sim, uint32_t member)
{
    struct member *self = &sim->members[member];
    uint32_t count = sim->plans[self->party].count, blocks = sim->options.schedule.blocks;

    if (self->finish == NULL)
        self->finish = finish_init(sim_zeroed(1, finish_bytes(count, blocks)), count, blocks);
    return self->finish;
}

/* Whoever asks, or tells, waits for an answer: if not now, then when this member has given up. */
static void run_asks(struct sim *sim, const struct sim_event *event)
{
    if (!comes(sim, event))
        return;
    finish_of(sim, event->a);
    if (sim->members[event->a].forgotten)
        send(sim, event->a, event->b, run_forget, NULL);
}

static void run_have(struct sim *sim, const struct sim_event *event)
{
    struct member *self = &sim->members[event->a];
    uint32_t words = (uint32_t)BITMAP_WORDS(sim->options.schedule.blocks);
    uint32_t rank = rank_of(&sim->plans[self->party], event->b);

    if (!comes(sim, event))
        return;
    if (self->forgotten)
        send(sim, event->a, event->b, run_forget, NULL);
    else if (rank < sim->plans[self->party].count)
        finish_have(finish_of(sim, event->a), event->value, rank, event->message.skip, 0, words, true);
    coordinate(sim, event->a);
}

/* --- The end of it ----------------------------------------------------------------------------------------
 */

static void drop(struct sim *sim, uint32_t member)
{
    struct member *self = &sim->members[member];

    if (coordinator(sim, self) == member)
        finish_of(sim, member);
    self->interrupted = false;
    sim->result.drops++;
    checker_released(&sim->checker, member);
    checker_closed(&sim->checker, member);
    finish_forget(sim, member);
}

void finish_forget(struct sim *sim, uint32_t member)
{
    struct member *self = &sim->members[member];
    const struct plan *party = &sim->plans[self->party];

    self->forgotten = true;
    for (uint32_t rank = 0; self->finish != NULL && rank < party->count; rank++) {
        if (party->members[rank] != member)
            send(sim, member, party->members[rank], run_forget, NULL);
    }
}

/* Nobody gives up what those who are left have together. */
static void check_drop(struct sim *sim)
{
    uint32_t blocks = sim->options.schedule.blocks, block;

    for (uint32_t member = 0; member < sim->options.schedule.members; member++) {
        if (!sim->members[member].dead && sim->members[member].forgotten)
            return;
    }
    for (block = 0; block < blocks; block++) {
        bool held = false;

        for (uint32_t member = 0; member < sim->options.schedule.members; member++)
            held = held || (!sim->members[member].dead && sim->checker.member[member].content[block] != 0);
        if (!held)
            return;
    }
    checker_fail(&sim->checker, "every block is there, and the object is given up");
}

/* --- Further sessions -------------------------------------------------------------------------------------
 */

static uint32_t new_plan(struct sim *sim, struct plan plan)
{
    if (sim->plan_count == SIM_PLANS_MAX)
        abort();
    sim->plans[sim->plan_count] = plan;
    return sim->plan_count++;
}

/* Take part, with what is here. In a pull everything counts as here that it shall not bring. */
static void enter(struct sim *sim, uint32_t member, uint32_t number)
{
    struct member *self = &sim->members[member];
    uint32_t blocks = sim->options.schedule.blocks;
    struct session_event held = {.type = SESSION_READY, .count = 1, .culprit = SESSION_NOBODY};
    struct session_actions actions = {.list = self->actions};

    self->interrupted = false;
    self->skip = held_by(sim, member);
    if (sim->plans[number].purpose == PLAN_PULL && sim->plans[number].members[1] == member)
        finish_skip(self->finish, held_by(sim, member), self->skip);
    sim_enter(sim, member, number);
    BITMAP_EACH(block, self->skip, blocks)
    {
        held.block = (uint32_t)block;
        session_step(self->session, &held, &actions);
    }
}

void finish_offered(struct sim *sim, uint32_t member, uint32_t number)
{
    struct member *self = &sim->members[member];

    if (self->view > sim->plans[number].view) {
        sim_send(sim, number, member, sim->plans[number].members[0],
                 (struct session_event){
                     .type = SESSION_REFUSE, .code = COVEY_PEER_LOST, .culprit = SESSION_NOBODY});
        return;
    }
    if (!self->interrupted) {
        checker_fail(&sim->checker, "member %u is offered a session, and its last one is not over", member);
        return;
    }
    enter(sim, member, number);
    if (sim->plans[number].purpose != PLAN_PULL) {
        free(self->finish);
        self->finish = NULL;
    }
    for (uint32_t peer = 0; peer < sim->options.schedule.members; peer++) {
        if (self->lost[peer])
            sim_tell_later(sim, member, 0, (struct session_event){.type = SESSION_LOST, .peer = peer});
    }
}

/* As the root: the blocks that are here can be read, and all of them at the end. */
static void lead(struct sim *sim, uint32_t member, uint32_t number)
{
    enter(sim, member, number);
    sim_tell_later(sim, member, 0, (struct session_event){.type = SESSION_BEGIN});
    sim_tell_later(sim, member, 0, (struct session_event){.type = SESSION_SEALED});
}

static void start(struct sim *sim, uint32_t member)
{
    struct member *self = &sim->members[member];
    const struct plan *party = &sim->plans[self->party];
    struct plan plan = {.purpose = PLAN_FINISH, .view = self->view};

    for (uint32_t rank = 0; rank < party->count; rank++) {
        if (self->present >> party->members[rank] & 1)
            plan.members[plan.count++] = party->members[rank];
    }
    sim->result.finishes++;
    lead(sim, member, new_plan(sim, plan));
    free(self->finish);
    self->finish = NULL;
}

static void run_want(struct sim *sim, const struct sim_event *event)
{
    struct member *self = &sim->members[event->a];
    struct plan plan = {
        .purpose = PLAN_PULL, .members = {event->a, event->b}, .count = 2, .view = self->view};

    if (comes(sim, event) && event->value == self->view && self->interrupted &&
        coordinator(sim, self) == event->b) {
        sim->result.pulls++;
        lead(sim, event->a, new_plan(sim, plan));
    }
}

/* Whether it is linked to all of its view. Otherwise there will be another. */
static bool is_linked(const struct sim *sim, const struct member *self)
{
    for (uint32_t peer = 0; peer < sim->options.schedule.members; peer++) {
        if ((self->present >> peer & 1) != 0 && self->lost[peer])
            return false;
    }
    return self->view != 0;
}

static void coordinate(struct sim *sim, uint32_t member)
{
    struct member *self = &sim->members[member];
    const struct plan *party = &sim->plans[self->party];

    if (!self->interrupted || !is_linked(sim, self) || self->finish == NULL ||
        coordinator(sim, self) != member)
        return;
    switch (finish_next(self->finish, rank_of(party, member), held_by(sim, member), member == 0)) {
    case FINISH_PULL:
        send(sim, member, party->members[finish_source(self->finish)], run_want, NULL);
        break;
    case FINISH_START:
        start(sim, member);
        break;
    case FINISH_DROP:
        check_drop(sim);
        drop(sim, member);
        break;
    default:
        break;
    }
}

static void announce(struct sim *sim, uint32_t member)
{
    struct member *self = &sim->members[member];
    const struct plan *party = &sim->plans[self->party];
    uint64_t present = present_in(self, party);
    uint32_t to;

    if (!is_linked(sim, self))
        return;
    to = coordinator(sim, self);
    self->told_view = self->view;
    if (to != member) {
        send(sim, member, to, run_have, held_by(sim, member));
        return;
    }
    finish_open(finish_of(sim, member), self->view, &present);
    for (uint32_t rank = 0; rank < party->count; rank++) {
        if ((present >> rank & 1) != 0 && party->members[rank] != member)
            send(sim, member, party->members[rank], run_asks, NULL);
    }
    coordinate(sim, member);
}

static void run_pulled(struct sim *sim, const struct sim_event *event)
{
    struct member *self = &sim->members[event->a];

    if (self->dead || !self->interrupted || self->number != event->session)
        return;
    if (sim->plans[self->number].purpose == PLAN_PULL && self->rank == 1)
        finish_pulled(self->finish);
    announce(sim, event->a);
}

/* Behind the step in which the session ended. */
void finish_interrupted(struct sim *sim, uint32_t member)
{
    sim_push(sim, sim->now_ns + 1,
             &(struct sim_event){.run = run_pulled, .a = member, .session = sim->members[member].number});
}

bool finish_is_orphaned(const struct sim *sim, uint32_t member)
{
    const struct member *self = &sim->members[member];
    const struct plan *plan = &sim->plans[self->number];
    uint32_t root = plan->members[0];

    if (!sim->options.finish || self->session == NULL || session_state(self->session) != SESSION_ORDERING ||
        root == member)
        return false;
    return plan->purpose == PLAN_PULL
               ? self->lost[root]
               : plan->decision != COMMITTED && self->view != 0 && (self->present >> root & 1) == 0;
}

static void run_view(struct sim *sim, const struct sim_event *event)
{
    struct member *self = &sim->members[event->a];

    if (self->dead || self->view >= event->value)
        return;
    self->view = event->value;
    self->present = event->message.culprit;
    if (self->interrupted)
        announce(sim, event->a);
    else if (finish_is_orphaned(sim, event->a))
        sim_deliver(sim, event->a, self->number, &abort_orphan);
}

void finish_new_view(struct sim *sim)
{
    uint64_t present = 0;
    struct sim_event event = {.run = run_view, .value = ++sim->view};

    for (uint32_t member = 0; member < sim->options.schedule.members; member++)
        present |= (uint64_t)!sim->members[member].dead << member;
    event.message.culprit = (uint32_t)present;
    for (event.a = 0; event.a < sim->options.schedule.members; event.a++)
        sim_push(sim, sim->now_ns + 1 + sim_random(sim, 2 * sim->options.latency_ns + 1), &event);
}
