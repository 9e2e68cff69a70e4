/* SPDX-License-Identifier: BSD-3-Clause */
/* What must hold of messages, from what was delivered: one order per view, nothing twice, each sender's in
 * its order and without gaps. */
#include "tests/sim/sim_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

static void append(struct sim_log *log, uint32_t sender, uint32_t sequence)
{
    if (log->count == log->capacity) {
        log->capacity = log->capacity != 0 ? 2 * log->capacity : 64;
        log->messages = realloc(log->messages, log->capacity * sizeof(*log->messages));
        assert(log->messages != NULL);
    }
    log->messages[log->count][0] = sender;
    log->messages[log->count++][1] = sequence;
}

/* "Same order everywhere": position by position, within a view, whose first position is the same for all. */
static void check_place(struct sim_process *process, uint32_t group, uint64_t position, uint32_t sender,
                        uint32_t sequence)
{
    struct sim *sim = process->sim;
    struct sim_log *log = &process->noted->logs[group];
    uint64_t trim = process->noted->trim[group];
    uint64_t at = position - 1 - (trim == VIEW_TRIM_NONE ? 0 : trim);

    if (at > log->count) {
        sim_fail(sim, "%u skips to %" PRIu64 " in group %u", process->node, position, group);
    } else if (at == log->count) {
        append(log, sender, sequence);
        sim->messages++;
    } else if (log->messages[at][0] != sender || log->messages[at][1] != sequence) {
        sim_fail(sim, "%u delivers %u.%u at %" PRIu64 " in group %u, others %u.%u", process->node, sender,
                 sequence, position, group, log->messages[at][0], log->messages[at][1]);
    }
}

void check_message(struct sim_process *process, uint32_t group, uint64_t position, uint32_t sender,
                   uint32_t sequence)
{
    uint32_t *last = &process->groups[group].last[sender];

    check_place(process, group, position, sender, sequence);
    if (*last != 0 && sequence + 1 != *last)
        sim_fail(process->sim, "%u delivers message %u of %u in group %u, not its message %u", process->node,
                 sequence, sender, group, *last - 1);
    *last = sequence + 2;
    check_delivery(process, group);
}

/* Of who is new in this view, everyone delivers all from the first message on. */
void check_group_enter(struct sim_process *process, uint32_t group)
{
    struct sim *sim = process->sim;
    const struct view *view = process->noted->view;
    const struct sim_view *before = check_find_view(sim, view_parent_epoch(view), view->number - 1);

    for (uint32_t i = 0; i < sim->process_count; i++) {
        const struct sim_process *other = sim->processes[i];
        bool was =
            before != NULL && view_rank(before->view, other->node, other->incarnation) != VIEW_RANK_NONE;
        if (!was && view_rank(view, other->node, other->incarnation) != VIEW_RANK_NONE)
            process->groups[group].last[i] = 1;
    }
}
