/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BASE_RNG_H
#define BASE_RNG_H

/* A small seeded generator (SplitMix64; Steele, Lea and Flood, OOPSLA 2014): the same seed, the same numbers.
 * Not for secrets. */

#include <stdint.h>

struct rng {
    uint64_t state;
};

static inline void rng_init(struct rng *rng, uint64_t seed)
{
    rng->state = seed;
}

static inline uint64_t rng_next(struct rng *rng)
{
    uint64_t z = (rng->state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Uniform in [0, bound), bound >= 1 (the bias of 2^-64 * bound does not matter here). */
static inline uint64_t rng_below(struct rng *rng, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)rng_next(rng) * bound) >> 64);
}

#endif
