/* SPDX-License-Identifier: BSD-3-Clause */
/* Binomial tree, store and forward: in stage t, which is k steps long, each rank below 2^t sends the whole
 * object to the rank 2^t above it (n = 8).
 *
 *     stage 0    0 > 1
 *     stage 1    0 > 2   1 > 3
 *     stage 2    0 > 4   1 > 5   2 > 6   3 > 7
 */

#include "schedule/kinds.h"

static uint64_t tree_steps(const struct schedule *schedule)
{
    return (uint64_t)schedule->blocks * ceil_log2(schedule->members);
}

static bool tree_outgoing(const struct schedule_rank *part, uint64_t step, struct transfer *out)
{
    uint32_t blocks = part->schedule.blocks;
    uint32_t distance = UINT32_C(1) << (step / blocks);

    if (part->rank >= distance || part->rank + distance >= part->schedule.members)
        return false;
    *out = (struct transfer){.peer = part->rank + distance, .block = (uint32_t)(step % blocks)};
    return true;
}

static bool tree_incoming(const struct schedule_rank *part, uint64_t step, struct transfer *in)
{
    uint32_t blocks = part->schedule.blocks;
    uint32_t distance = UINT32_C(1) << (step / blocks);

    if (part->rank < distance || part->rank >= 2 * distance)
        return false;
    *in = (struct transfer){.peer = part->rank - distance, .block = (uint32_t)(step % blocks)};
    return true;
}

static struct step_range tree_revealing(const struct schedule_rank *part)
{
    return (struct step_range){
        .first = 0, .stride = part->schedule.blocks, .count = ceil_log2(part->schedule.members)};
}

const struct schedule_ops schedule_tree = {
    .name = "tree",
    .steps = tree_steps,
    .outgoing = tree_outgoing,
    .incoming = tree_incoming,
    .revealing = tree_revealing,
};
