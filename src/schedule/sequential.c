/* SPDX-License-Identifier: BSD-3-Clause */
/* The root sends the whole object to one rank after the other (k = 3 blocks, n = 4).
 *
 *     step   0 1 2  3 4 5  6 7 8
 *     0 > 1  0 1 2
 *     0 > 2         0 1 2
 *     0 > 3                0 1 2
 */

#include "schedule/kinds.h"

static uint64_t sequential_steps(const struct schedule *schedule)
{
    return (uint64_t)schedule->blocks * (schedule->members - 1);
}

static bool sequential_outgoing(const struct schedule_rank *part, uint64_t step, struct transfer *out)
{
    uint32_t blocks = part->schedule.blocks;

    if (part->rank != 0)
        return false;
    *out = (struct transfer){.peer = 1 + (uint32_t)(step / blocks), .block = (uint32_t)(step % blocks)};
    return true;
}

static bool sequential_incoming(const struct schedule_rank *part, uint64_t step, struct transfer *in)
{
    uint32_t blocks = part->schedule.blocks;

    if (part->rank != 1 + step / blocks)
        return false;
    *in = (struct transfer){.peer = 0, .block = (uint32_t)(step % blocks)};
    return true;
}

static struct step_range sequential_revealing(const struct schedule_rank *part)
{
    uint64_t blocks = part->schedule.blocks;

    if (part->rank == 0)
        return (struct step_range){.first = 0, .stride = blocks, .count = part->schedule.members - 1};
    return (struct step_range){.first = blocks * (part->rank - 1), .stride = 1, .count = 1};
}

const struct schedule_ops schedule_sequential = {
    .name = "sequential",
    .steps = sequential_steps,
    .outgoing = sequential_outgoing,
    .incoming = sequential_incoming,
    .revealing = sequential_revealing,
};
