/* SPDX-License-Identifier: BSD-3-Clause */
#include "schedule/schedule.h"

#include <assert.h>
#include <string.h>

#include "base/bitmap.h"
#include "schedule/kinds.h"

static const struct schedule_ops *const kinds[SCHEDULE_KINDS] = {
    [SCHEDULE_SEQUENTIAL] = &schedule_sequential,
    [SCHEDULE_CHAIN] = &schedule_chain,
    [SCHEDULE_TREE] = &schedule_tree,
    [SCHEDULE_BINOMIAL] = &schedule_binomial,
    [SCHEDULE_CIRCULANT] = &schedule_circulant,
};

static const struct schedule_ops *ops_of(const struct schedule *schedule)
{
    assert((unsigned)schedule->kind < SCHEDULE_KINDS);
    assert(schedule->members >= 1 && schedule->members <= SCHEDULE_MEMBERS_MAX);
    assert(schedule->blocks >= 1 && schedule->blocks <= SCHEDULE_BLOCKS_MAX);
    return kinds[schedule->kind];
}

uint64_t schedule_steps(const struct schedule *schedule)
{
    const struct schedule_ops *ops = ops_of(schedule);

    return schedule->members == 1 ? 0 : ops->steps(schedule);
}

void schedule_rank_init(struct schedule_rank *part, const struct schedule *schedule, uint32_t rank)
{
    const struct schedule_ops *ops = ops_of(schedule);

    assert(rank < schedule->members);
    *part = (struct schedule_rank){.schedule = *schedule, .steps = schedule_steps(schedule), .rank = rank};
    if (ops->prepare != NULL && schedule->members > 1)
        ops->prepare(part);
}

bool schedule_outgoing(const struct schedule_rank *part, uint64_t step, struct transfer *out)
{
    struct transfer transfer;

    assert(step < part->steps);
    if (!kinds[part->schedule.kind]->outgoing(part, step, &transfer))
        return false;
    *out = transfer;
    return true;
}

bool schedule_incoming(const struct schedule_rank *part, uint64_t step, struct transfer *in)
{
    struct transfer transfer;

    assert(step < part->steps);
    if (!kinds[part->schedule.kind]->incoming(part, step, &transfer))
        return false;
    *in = transfer;
    return true;
}

typedef bool transfer_function(const struct schedule_rank *part, uint64_t step, struct transfer *transfer);

static size_t collect_peers(const struct schedule_rank *part, transfer_function *transfer_in_step,
                            uint32_t peers[])
{
    uint64_t set[BITMAP_WORDS(SCHEDULE_MEMBERS_MAX)];
    struct step_range range;
    struct transfer transfer;
    size_t count = 0;

    if (part->steps == 0)
        return 0;
    range = kinds[part->schedule.kind]->revealing(part);
    bitmap_clear_all(set, SCHEDULE_MEMBERS_MAX);
    for (uint64_t i = 0, step = range.first; i < range.count && step < part->steps;
         i++, step += range.stride) {
        if (transfer_in_step(part, step, &transfer))
            bitmap_set(set, transfer.peer);
    }
    BITMAP_EACH(peer, set, SCHEDULE_MEMBERS_MAX)
    peers[count++] = (uint32_t)peer;
    return count;
}

size_t schedule_out_peers(const struct schedule_rank *part, uint32_t peers[])
{
    return collect_peers(part, schedule_outgoing, peers);
}

size_t schedule_in_peers(const struct schedule_rank *part, uint32_t peers[])
{
    return collect_peers(part, schedule_incoming, peers);
}

const char *schedule_name(enum schedule_kind kind)
{
    return (unsigned)kind < SCHEDULE_KINDS ? kinds[kind]->name : "unknown";
}

bool schedule_parse(const char *name, enum schedule_kind *kind)
{
    for (unsigned i = 0; i < SCHEDULE_KINDS; i++) {
        if (strcmp(name, kinds[i]->name) == 0) {
            *kind = (enum schedule_kind)i;
            return true;
        }
    }
    return false;
}
