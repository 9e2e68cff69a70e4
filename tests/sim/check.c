/* SPDX-License-Identifier: BSD-3-Clause */
/* What must hold, from what was installed and delivered. */
#include "tests/sim/sim_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Written anew, so as not to repeat a mistake of the code that is checked. */
bool check_is_quorum(const struct sim *sim, uint32_t count, uint32_t of, bool has_lowest)
{
    if (2 * count > of)
        return true;
    return sim->options.quorum == MEMBERSHIP_TIE_BREAKER && 2 * count == of && has_lowest;
}

struct sim_view *check_find_view(struct sim *sim, uint64_t epoch, uint64_t number)
{
    for (uint32_t i = sim->view_count; i-- > 0;) {
        if (sim->views[i].view->epoch == epoch && sim->views[i].view->number == number)
            return &sim->views[i];
    }
    return NULL;
}

/* The views that were decided by the members of this one. */
static const struct sim_view *successor(const struct sim *sim, const struct view *view)
{
    for (uint32_t i = 0; i < sim->view_count; i++) {
        const struct view *next = sim->views[i].view;
        if (next->number == view->number + 1 && view_parent_epoch(next) == view->epoch && !next->forced)
            return &sim->views[i];
    }
    return NULL;
}

static const struct sim_process *find_process(const struct sim *sim, const struct member *member)
{
    for (uint32_t i = 0; i < sim->process_count; i++) {
        if (sim->processes[i]->incarnation == member->incarnation && sim->processes[i]->node == member->id)
            return sim->processes[i];
    }
    return NULL;
}

/* Whether the process stopped receiving in view `number`, or has left that view behind. */
static bool has_promised(const struct sim_process *process, uint64_t number)
{
    const struct table *table = membership_table(process->membership);
    const uint64_t *bank = table_bank(table, table->own, number);

    return process->last_number > number || (bank[BANK_TAG] == number + 1 && bank[BANK_PROMISED] != 0);
}

static bool node_has_promised(const struct sim *sim, uint32_t node, uint64_t number)
{
    for (uint32_t i = 0; i < sim->process_count; i++) {
        if (sim->processes[i]->node == node && has_promised(sim->processes[i], number))
            return true;
    }
    return false;
}

/* Any two decisions about the same view have a member in common that knew of both. */
static void check_majority(struct sim *sim, const struct view *view)
{
    const struct sim_view *previous = check_find_view(sim, view_parent_epoch(view), view->number - 1);
    uint32_t of = previous != NULL ? previous->view->count : sim->options.configured, count = 0;
    bool lowest = false;

    if (view->forced)
        return;
    if (previous == NULL && view->number != 1) {
        sim_fail(sim, "view %" PRIu64 " follows a view that nobody installed", view->number);
        return;
    }
    for (uint32_t rank = 0; rank < of; rank++) {
        bool promised;
        if (previous == NULL) {
            promised = node_has_promised(sim, rank, 0);
        } else {
            const struct sim_process *process = find_process(sim, &previous->view->members[rank]);
            promised = process != NULL && has_promised(process, view->number - 1);
        }
        count += promised;
        lowest |= promised && rank == 0;
    }
    if (!check_is_quorum(sim, count, of, lowest))
        sim_fail(sim, "view %" PRIu64 " was decided by %u of %u", view->number, count, of);
}

/* A cluster ends when its last member does; what the blank nodes form then is another one. */
static bool epoch_lives(const struct sim *sim, uint64_t epoch)
{
    for (uint32_t i = 0; i < sim->process_count; i++) {
        if (sim->processes[i]->alive && membership_view(sim->processes[i]->membership)->epoch == epoch)
            return true;
    }
    return false;
}

static void check_new_view(struct sim *sim, const struct view *view, const uint64_t *trim)
{
    const struct sim_view *previous = check_find_view(sim, view_parent_epoch(view), view->number - 1);

    for (uint32_t i = 0; i < sim->view_count; i++) {
        uint64_t epoch = sim->views[i].view->epoch;
        if (epoch != view->epoch && epoch_lives(sim, epoch) && !sim->forced)
            sim_fail(sim, "view %" PRIu64 " is of another epoch than that of live members", view->number);
    }
    for (uint32_t rank = 0; rank < view->count; rank++) {
        if (find_process(sim, &view->members[rank]) == NULL)
            sim_fail(sim, "view %" PRIu64 " has a member that never was", view->number);
    }
    for (uint32_t group = 0; previous != NULL && !view->forced && group < SIM_GROUPS; group++) {
        if (trim[group] != VIEW_TRIM_NONE && previous->delivered[group] > trim[group])
            sim_fail(sim, "group %u: %" PRIu64 " was delivered in view %" PRIu64 ", trimmed to %" PRIu64,
                     group, previous->delivered[group], previous->view->number, trim[group]);
    }
    check_majority(sim, view);
}

static void note_view(struct sim *sim, const struct membership_actions *actions)
{
    struct sim_view *noted = &sim->views[sim->view_count];

    assert(sim->view_count < SIM_VIEWS_MAX);
    check_new_view(sim, actions->view, actions->trim);
    noted->view = malloc(offsetof(struct view, members) + actions->view->count * sizeof(struct member));
    assert(noted->view != NULL);
    view_copy(noted->view, actions->view);
    memcpy(noted->trim, actions->trim, sizeof(noted->trim));
    for (uint32_t group = 0; group < SIM_GROUPS; group++)
        noted->delivered[group] = 0;
    noted->since_ns = sim->now_ns;
    sim->view_count++;
}

static void check_same_view(struct sim *sim, const struct sim_view *noted,
                            const struct membership_actions *actions)
{
    const struct view *view = actions->view;

    if (noted->view->count != view->count || noted->view->forced != view->forced ||
        memcmp(noted->view->members, view->members, view->count * sizeof(view->members[0])) != 0)
        sim_fail(sim, "view %" PRIu64 " has different members for different nodes", view->number);
    if (memcmp(noted->trim, actions->trim, sizeof(noted->trim)) != 0)
        sim_fail(sim, "view %" PRIu64 " has different trims for different nodes", view->number);
}

/* What this process received and delivered against what it is told to keep. */
static void check_own_trim(struct sim_process *process, const struct membership_actions *actions)
{
    if (process->last_number == 0)
        return;
    if (actions->view->number != process->last_number + 1)
        sim_fail(process->sim, "%u skips from view %" PRIu64 " to %" PRIu64, process->node,
                 process->last_number, actions->view->number);
    for (uint32_t group = 0; group < SIM_GROUPS; group++) {
        const struct sim_group *own = &process->groups[group];
        uint64_t trim = actions->trim[group];
        if (!own->entered)
            continue;
        if (own->delivered > trim)
            sim_fail(process->sim, "%u delivered %" PRIu64 " past the trim %" PRIu64, process->node,
                     own->delivered, trim);
        if (order_received(own->order) < trim)
            sim_fail(process->sim, "%u received %" PRIu64 " only, the trim is %" PRIu64, process->node,
                     order_received(own->order), trim);
    }
}

void check_install(struct sim_process *process, const struct membership_actions *actions)
{
    struct sim *sim = process->sim;
    struct sim_view *noted = check_find_view(sim, actions->view->epoch, actions->view->number);

    if (view_rank(actions->view, process->node, process->incarnation) == VIEW_RANK_NONE)
        sim_fail(sim, "%u installs a view without itself", process->node);
    if (noted == NULL)
        note_view(sim, actions);
    else
        check_same_view(sim, noted, actions);
    noted = check_find_view(sim, actions->view->epoch, actions->view->number);
    noted->last_ns = sim->now_ns;
    check_own_trim(process, actions);
}

/* Nobody delivers past the trim of its view, be it before the next view is decided or, in ignorance, after.
 */
void check_delivery(struct sim_process *process, uint32_t group)
{
    struct sim_view *noted = process->noted;
    const struct sim_view *next = successor(process->sim, noted->view);
    uint64_t position = process->groups[group].delivered;

    if (position > noted->delivered[group])
        noted->delivered[group] = position;
    if (next != NULL && !process->forced && next->trim[group] != VIEW_TRIM_NONE &&
        position > next->trim[group])
        sim_fail(process->sim, "%u delivers %" PRIu64 " in view %" PRIu64 ", which was trimmed to %" PRIu64,
                 process->node, position, noted->view->number, next->trim[group]);
}

static void check_column(struct sim_process *process, const char *name, uint64_t *last, uint64_t now)
{
    if (now < *last)
        sim_fail(process->sim, "%u: %s went back from %" PRIu64 " to %" PRIu64, process->node, name, *last,
                 now);
    *last = now;
}

/* "Columns are monotonic": within a view, for those of a bank. */
void check_step(struct sim_process *process)
{
    const struct table *table = membership_table(process->membership);
    uint64_t number = table->own[TABLE_NUMBER];

    check_column(process, "heartbeat", &process->last_heartbeat, table->own[TABLE_HEARTBEAT]);
    for (uint32_t i = 0; i < 2; i++) {
        const uint64_t *bank = table->own + table->layout.banks + i * table->layout.bank_words;
        if (bank[BANK_TAG] != process->last_tag[i])
            process->last_promised[i] = process->last_accepted[i] = 0;
        check_column(process, "tag", &process->last_tag[i], bank[BANK_TAG]);
        check_column(process, "promised", &process->last_promised[i], bank[BANK_PROMISED]);
        check_column(process, "accepted", &process->last_accepted[i],
                     bank[table->layout.accepted.offset + 1]);
    }
    check_column(process, "number", &process->last_number, number);
}
