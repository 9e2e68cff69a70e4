/* SPDX-License-Identifier: BSD-3-Clause */
/* What `auto` means: which schedule, and how large the blocks.
 *
 * The schedule depends on n alone. No schedule takes fewer than k + ceil(log2 n) - 1 steps (Bar-Noy & Kipnis
 * 1994), and every choice here takes exactly that many:
 *
 *      n <= 3             chain      the plainest way to reach the bound, k + n - 2 there: one rank to hear
 *                                    from, one to send to, blocks in order
 *      n a power of two   binomial   the fewest peers, log2 n, and each pair of them exchanges blocks
 *      any other n        circulant  at most 2 ceil(log2 n) peers, and each edge has every q-th block to
 *                                    carry: one of half the speed costs a factor of 1 + 1/q, q =
 *                                    ceil(log2 n), wherever it is; on binomial's link between twins,
 *                                    which is used in most steps, it costs 1.5 to 1.8
 *
 * A chain of more than three takes n - 1 - ceil(log2 n) steps more. With many blocks these are lost in the
 * noise (n = 8, k = 256: 262 steps against 258, and as fast when measured on equal links), but one link of
 * half the speed then costs a factor of 2, so `auto` leaves that choice to the user.
 *
 * The block size weighs the fill of the pipeline against the cost of a block. With w blocks in flight per
 * edge a block waits for w - 1 others before it goes on, so that the e = steps - k steps beyond the k that
 * carry the object each last for w blocks, and of the cost a of a block the w-th part is seen:
 *
 *      time = (k + w e) (a / w + B / bandwidth),  k = bytes / B,
 *
 * least at B = sqrt(a bytes bandwidth / e) / w. A binomial pipeline over plain TCP sockets, 16 MiB at
 * 100 Mbit/s, took 1.02 to 1.1 of the time of its bytes on the wire with 64 to 256 KiB blocks for n = 4 and
 * 8, and 1.29 to 1.47 with 1 MiB. (Of tree and sequential e is a multiple of k: the larger the block the
 * better.) The curve is flat around its least point, and small blocks lose less behind a straggler, stay in
 * caches until they are sent on, and need less staging: so it is the smallest power of two that comes within
 * 1/32 of the least time, but not below 256 KiB where the object has 64 such blocks for each stage: there the
 * processor's part of a block is what counts. */

#include <assert.h>

#include <covey/error.h>

#include "schedule/kinds.h"

#define IN_FLIGHT                2 /* w: enough to keep a link full */

/* Several per edge must fit in the staging memory. Only links above 50 GB/s would gain from more. */
#define AUTO_BLOCK_MAX           (UINT64_C(16) << 20)

/* What a smaller block may cost, as a part of the least time. */
#define FLAT_PART                32

/* Blocks for each of the ceil(log2 n) stages of the pipeline at least, where the object is large enough: a
 * cost that was measured too high on a busy machine must not make the pipeline one of a few blocks. */
#define BLOCKS_PER_STAGE         16

/* Smaller blocks cost more processor time a byte than they gain, where the pipeline is long enough without
 * them: with so many blocks a stage its fill is 1/64 of the time. */
#define CHEAP_BLOCK              (UINT64_C(256) << 10)
#define CHEAP_BLOCKS_PER_STAGE   64

/* While nothing is measured: 10 Gbit/s over the kernel's TCP. */
#define UNKNOWN_BLOCK_NS         UINT64_C(50000)
#define UNKNOWN_BYTES_PER_SECOND UINT64_C(1250000000)

#define NS_PER_SECOND            UINT64_C(1000000000)

static enum schedule_kind choose_kind(uint32_t members)
{
    if (members <= 3)
        return SCHEDULE_CHAIN;
    return (members & (members - 1)) == 0 ? SCHEDULE_BINOMIAL : SCHEDULE_CIRCULANT;
}

/* An object of 0 bytes is one empty block. */
static uint64_t blocks_of(uint64_t bytes, uint64_t block_bytes)
{
    return bytes == 0 ? 1 : (bytes - 1) / block_bytes + 1;
}

/* The least block size, `from` or more, that keeps to the limits. */
static uint64_t least_block(uint64_t bytes, uint64_t from)
{
    uint64_t block_bytes = SCHEDULE_BLOCK_MIN;

    while (block_bytes < SCHEDULE_BLOCK_MAX &&
           (block_bytes < from || blocks_of(bytes, block_bytes) > SCHEDULE_BLOCKS_MAX))
        block_bytes *= 2;
    return block_bytes;
}

static uint64_t multiply_saturating(uint64_t a, uint64_t b)
{
    uint64_t product;

    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* The time of the model above with this block size, in w-ths of a nanosecond. */
static uint64_t model_time(uint64_t bytes, const struct schedule *schedule, const struct schedule_cost *cost,
                           uint64_t block_bytes)
{
    struct schedule trial = *schedule;
    uint64_t a = cost->block_ns == 0 ? UNKNOWN_BLOCK_NS : cost->block_ns;
    uint64_t bandwidth = cost->bytes_per_second == 0 ? UNKNOWN_BYTES_PER_SECOND : cost->bytes_per_second;
    uint64_t wire_ns = block_bytes * NS_PER_SECOND / bandwidth;
    uint64_t fill;

    trial.blocks = (uint32_t)blocks_of(bytes, block_bytes);
    fill = schedule_steps(&trial) - trial.blocks;
    a = a < NS_PER_SECOND ? a : NS_PER_SECOND;
    return multiply_saturating(trial.blocks + IN_FLIGHT * fill, a + IN_FLIGHT * wire_ns);
}

/* The largest block size that `auto` considers. */
static uint64_t auto_block_max(uint64_t bytes, uint32_t members)
{
    uint64_t blocks_min = BLOCKS_PER_STAGE * (uint64_t)ceil_log2(members);
    uint64_t block_bytes = least_block(bytes, 0);

    while (block_bytes < AUTO_BLOCK_MAX && blocks_of(bytes, 2 * block_bytes) >= blocks_min)
        block_bytes *= 2;
    return block_bytes;
}

static uint64_t choose_block(uint64_t bytes, const struct schedule *schedule,
                             const struct schedule_cost *cost)
{
    uint64_t most = auto_block_max(bytes, schedule->members);
    uint64_t cheap_min = CHEAP_BLOCKS_PER_STAGE * (uint64_t)ceil_log2(schedule->members);
    uint64_t block_bytes = least_block(bytes, blocks_of(bytes, CHEAP_BLOCK) >= cheap_min ? CHEAP_BLOCK : 0);
    uint64_t least_time = UINT64_MAX;

    if (schedule->members == 1)
        return most;
    for (uint64_t trial = block_bytes; trial <= most; trial *= 2) {
        uint64_t time = model_time(bytes, schedule, cost, trial);

        least_time = time < least_time ? time : least_time;
    }
    while (model_time(bytes, schedule, cost, block_bytes) - least_time > least_time / FLAT_PART)
        block_bytes *= 2;
    return block_bytes;
}

int schedule_choose(uint64_t bytes, uint32_t members, const struct schedule_cost *cost,
                    const enum schedule_kind *fixed_kind, uint64_t fixed_block_bytes,
                    struct schedule *schedule, uint64_t *block_bytes)
{
    struct schedule chosen = {
        .kind = fixed_kind != NULL ? *fixed_kind : choose_kind(members), .members = members, .blocks = 1};
    uint64_t chosen_bytes;

    assert(members >= 1 && members <= SCHEDULE_MEMBERS_MAX);
    if (bytes > SCHEDULE_BLOCKS_MAX * SCHEDULE_BLOCK_MAX)
        return COVEY_TOO_LARGE;
    if (fixed_block_bytes != 0)
        chosen_bytes = least_block(bytes, fixed_block_bytes);
    else
        chosen_bytes = choose_block(bytes, &chosen, cost);
    chosen.blocks = (uint32_t)blocks_of(bytes, chosen_bytes);
    *schedule = chosen;
    *block_bytes = chosen_bytes;
    return 0;
}
