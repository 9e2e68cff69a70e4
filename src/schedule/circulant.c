/* SPDX-License-Identifier: BSD-3-Clause */
/* Broadcast on a circulant graph: J. L. Traeff, "Optimal broadcast schedules in logarithmic time with
 * applications to broadcast, all-broadcast, reduction and all-reduction", arXiv 2407.18004; 2312.11236.
 *
 * The ranks sit on a circle. skip[q] = n and skip[i] = ceil(skip[i+1] / 2), down to skip[0] = 1. In round i
 * every rank sends skip[i mod q] further on and hears from as far back (n = 9, q = 4, skips 1 2 3 5):
 *
 *      rank      0   1   2   3   4   5   6   7   8  (0)
 *      round 0   o-->o
 *      round 1   o------>o
 *      round 2   o---------->o                             the root's edges; every other rank
 *      round 3   o------------------>o                     has the same, counted from itself
 *      round 4   o-->o
 *
 * q rounds are a phase, in which the root sends q new blocks. Table R of a rank says which block comes in
 * each round of a phase, table S which one leaves, counted from the phase's first block: those below 0 are of
 * earlier phases. With b, the rank's base block, R holds -1 to -q but b - q, and b in its place: b - q is
 * what came as b one phase before. Blocks past the last one stand for the last one. */

#include <assert.h>

#include "schedule/kinds.h"

static uint32_t circulant_rounds(const struct schedule *schedule)
{
    return ceil_log2(schedule->members);
}

static void fill_skips(uint32_t skips[], uint32_t rounds, uint32_t members)
{
    skips[rounds] = members;
    for (uint32_t i = rounds; i > 0; i--)
        skips[i - 1] = (skips[i] + 1) / 2;
}

/* Subtract skips greedily, the largest first: the index of the one that ends at 0. `rounds` for the root. */
static uint32_t base_block(const uint32_t skips[], uint32_t rounds, uint32_t rank)
{
    for (uint32_t i = rounds; i > 0; i--) {
        if (rank == skips[i - 1])
            return i - 1;
        if (rank > skips[i - 1])
            rank -= skips[i - 1];
    }
    return rounds;
}

/* The search for R. In a phase the root sends its new block e in round e, by skip e, and larger skips take it
 * on in later rounds. So a path, a sum of distinct skips, carries the block of its smallest skip to the rank
 * that it ends at. With goal = rank + n (a turn more, so that all paths count up from 0) the path of round c
 * ends in the range
 *
 *      goal - skip[c+1]  <  end  <=  goal - skip[c]
 *
 * which is not longer than skip[c]: skips smaller than that take its block to the sender, goal - skip[c],
 * before round c. Of the paths in the range it is the one that ends latest, but before that of round c - 1,
 * and whose block no round has yet; a path that ends short of the range is continued by smaller skips. Index
 * q, the full turn, is the root itself and stands for the base block. As every index is taken once at most,
 * the search is short. */
struct search {
    const uint32_t *skips;
    uint32_t rounds;
    uint32_t goal;
    uint32_t unused; /* bit e: block e has no round yet */
    uint32_t before; /* paths end before this */
    uint32_t found;  /* rounds that have their block; the next is the current one */
    int32_t *blocks;
};

static bool search_done(const struct search *search)
{
    return search->found == search->rounds;
}

/* Is the end short of the current round's range? */
static bool search_short(const struct search *search, uint32_t end)
{
    return end <= search->goal - search->skips[search->found + 1];
}

/* Find blocks for rounds, as many as paths that continue from `at` by skips below `limit` serve. */
static void search_from(struct search *search, uint32_t at, uint32_t limit)
{
    for (uint32_t e = limit; e-- > 0 && !search_done(search);) {
        uint32_t end = at + search->skips[e];

        if (!(search->unused >> e & 1) || end >= search->before ||
            end > search->goal - search->skips[search->found])
            continue;
        if (search_short(search, end))
            search_from(search, end, e);
        if (search_done(search) || !search_short(search, at))
            return; /* `at` has become the end of the current round's path */
        search->before = end;
        search->blocks[search->found++] = (int32_t)e;
        search->unused &= ~(UINT32_C(1) << e);
    }
}

/* R of any rank. */
static void fill_receive(const uint32_t skips[], uint32_t rounds, uint32_t rank, int32_t receive[])
{
    uint32_t base = base_block(skips, rounds, rank);
    struct search search = {
        .skips = skips,
        .rounds = rounds,
        .goal = rank + skips[rounds],
        .unused = ((UINT32_C(2) << rounds) - 1) & ~(UINT32_C(1) << base),
        .before = 2 * skips[rounds],
        .blocks = receive,
    };

    search_from(&search, 0, rounds + 1);
    assert(search_done(&search));
    for (uint32_t c = 0; c < rounds; c++)
        receive[c] = receive[c] == (int32_t)rounds ? (int32_t)base : receive[c] - (int32_t)rounds;
}

/* What a rank sends is what its neighbour receives; the root, which has all blocks, sends the phase's own. */
static void fill_send(struct schedule_rank *part)
{
    for (uint32_t c = 0; c < part->rounds; c++) {
        uint32_t to = (part->rank + part->skips[c]) % part->schedule.members;
        int32_t receive[SCHEDULE_ROUNDS_MAX];

        if (part->rank == 0) {
            part->send[c] = (int32_t)c;
        } else {
            fill_receive(part->skips, part->rounds, to, receive);
            part->send[c] = receive[c];
        }
    }
}

static void circulant_prepare(struct schedule_rank *part)
{
    part->rounds = circulant_rounds(&part->schedule);
    fill_skips(part->skips, part->rounds, part->schedule.members);
    fill_receive(part->skips, part->rounds, part->rank, part->receive);
    fill_send(part);
}

static uint64_t circulant_steps(const struct schedule *schedule)
{
    return (uint64_t)schedule->blocks - 1 + circulant_rounds(schedule);
}

/* The first phase lacks its first 1..q rounds, so that the last phase begins with the last block. */
static uint32_t rounds_cut(const struct schedule_rank *part)
{
    return part->rounds - (part->schedule.blocks - 1) % part->rounds;
}

/* The block that an entry of a table stands for in `round`, if it stands for one. */
static bool table_block(const struct schedule_rank *part, const int32_t table[], uint64_t round,
                        uint32_t *block)
{
    uint64_t phase = round / part->rounds;
    int64_t number = (int64_t)(phase * part->rounds) - rounds_cut(part) + table[round % part->rounds];

    if (number < 0)
        return false;
    *block = number < part->schedule.blocks ? (uint32_t)number : part->schedule.blocks - 1;
    return true;
}

static bool circulant_outgoing(const struct schedule_rank *part, uint64_t step, struct transfer *out)
{
    uint64_t round = step + rounds_cut(part);
    uint32_t to = (part->rank + part->skips[round % part->rounds]) % part->schedule.members;

    if (to == 0 || !table_block(part, part->send, round, &out->block))
        return false;
    out->peer = to;
    return true;
}

static bool circulant_incoming(const struct schedule_rank *part, uint64_t step, struct transfer *in)
{
    uint64_t round = step + rounds_cut(part);
    uint32_t members = part->schedule.members;

    if (part->rank == 0 || !table_block(part, part->receive, round, &in->block))
        return false;
    in->peer = (part->rank + members - part->skips[round % part->rounds]) % members;
    return true;
}

static struct step_range circulant_revealing(const struct schedule_rank *part)
{
    /* from the third phase on, the first being cut, every entry of the tables stands for a block */
    return (struct step_range){.first = 0, .stride = 1, .count = 3 * part->rounds};
}

const struct schedule_ops schedule_circulant = {
    .name = "circulant",
    .steps = circulant_steps,
    .prepare = circulant_prepare,
    .outgoing = circulant_outgoing,
    .incoming = circulant_incoming,
    .revealing = circulant_revealing,
};
