/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SCHEDULE_KINDS_H
#define SCHEDULE_KINDS_H

/* What each schedule provides to schedule.c, which is the only caller. The functions may rely on members >=
 * 2, rank < members and step < steps(): schedule.c asserts them. */

#include "schedule/schedule.h"

/* The steps first, first + stride, ... (count of them; those past the end do not count). */
struct step_range {
    uint64_t first, stride, count;
};

struct schedule_ops {
    const char *name;
    uint64_t (*steps)(const struct schedule *schedule);
    void (*prepare)(struct schedule_rank *part); /* fills the tables; NULL: there are none */
    bool (*outgoing)(const struct schedule_rank *part, uint64_t step, struct transfer *out);
    bool (*incoming)(const struct schedule_rank *part, uint64_t step, struct transfer *in);
    /* Steps that show every peer that the rank ever has. */
    struct step_range (*revealing)(const struct schedule_rank *part);
};

extern const struct schedule_ops schedule_sequential, schedule_chain, schedule_tree, schedule_binomial,
    schedule_circulant;

/* n >= 1. */
static inline uint32_t floor_log2(uint32_t n)
{
    return 31 - (uint32_t)__builtin_clz(n);
}

static inline uint32_t ceil_log2(uint32_t n)
{
    return n == 1 ? 0 : floor_log2(n - 1) + 1;
}

#endif
