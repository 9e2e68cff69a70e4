/* SPDX-License-Identifier: BSD-3-Clause */
/* Each rank passes each block on to the next one step after it came (k = 3 blocks, n = 4).
 *
 *     step   0 1 2 3 4
 *     0 > 1  0 1 2
 *     1 > 2    0 1 2
 *     2 > 3      0 1 2
 *
 * Every rank has one peer to hear from and one to send to, and blocks come in order. */

#include "schedule/kinds.h"

static uint64_t chain_steps(const struct schedule *schedule)
{
    return (uint64_t)schedule->blocks + schedule->members - 2;
}

/* Does the link from `rank` to the next rank carry a block? */
static bool chain_block(const struct schedule *schedule, uint32_t rank, uint64_t step, uint32_t *block)
{
    if (step < rank || step - rank >= schedule->blocks)
        return false;
    *block = (uint32_t)(step - rank);
    return true;
}

static bool chain_outgoing(const struct schedule_rank *part, uint64_t step, struct transfer *out)
{
    if (part->rank == part->schedule.members - 1 ||
        !chain_block(&part->schedule, part->rank, step, &out->block))
        return false;
    out->peer = part->rank + 1;
    return true;
}

static bool chain_incoming(const struct schedule_rank *part, uint64_t step, struct transfer *in)
{
    if (part->rank == 0 || !chain_block(&part->schedule, part->rank - 1, step, &in->block))
        return false;
    in->peer = part->rank - 1;
    return true;
}

static struct step_range chain_revealing(const struct schedule_rank *part)
{
    /* block 0 comes in step rank - 1 and leaves in step rank */
    return (struct step_range){.first = part->rank == 0 ? 0 : part->rank - 1, .stride = 1, .count = 2};
}

const struct schedule_ops schedule_chain = {
    .name = "chain",
    .steps = chain_steps,
    .outgoing = chain_outgoing,
    .incoming = chain_incoming,
    .revealing = chain_revealing,
};
