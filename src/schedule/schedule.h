/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SCHEDULE_SCHEDULE_H
#define SCHEDULE_SCHEDULE_H

/* Who sends which block when, for one object.
 *
 * Pure arithmetic: no clock, no I/O, no allocation, no floating point. Ranks count from 0 (the root); blocks
 * and steps count from 0; a step is a round of the paper, not a time. In a step a node sends at most one
 * block and receives at most one, and sends only what it received in an earlier step. Each block reaches each
 * rank but the root exactly once. A group of one has no steps. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCHEDULE_MEMBERS_MAX 2048
#define SCHEDULE_BLOCKS_MAX  ((UINT32_C(1) << 20) - 1)

enum schedule_kind {
    SCHEDULE_SEQUENTIAL, /* k(n-1) steps: the root sends everything to one after the other */
    SCHEDULE_CHAIN,      /* k+n-2: each rank to the next */
    SCHEDULE_TREE,       /* k*ceil(log2 n): binomial tree, store and forward */
    SCHEDULE_BINOMIAL,   /* k+ceil(log2 n)-1: the binomial pipeline (Ganesan & Seshadri 2005; RDMC 2018) */
    SCHEDULE_CIRCULANT   /* k+ceil(log2 n)-1: Traeff's circulant graph (arXiv 2407.18004) */
};
#define SCHEDULE_KINDS 5

struct schedule {
    enum schedule_kind kind;
    uint32_t members; /* 1..SCHEDULE_MEMBERS_MAX */
    uint32_t blocks;  /* 1..SCHEDULE_BLOCKS_MAX */
};

struct transfer {
    uint32_t peer; /* rank */
    uint32_t block;
};

#define SCHEDULE_ROUNDS_MAX 11 /* ceil(log2 SCHEDULE_MEMBERS_MAX) */

/* One rank's part of a schedule, prepared so that a step costs O(log members) at most. Treat as opaque. */
struct schedule_rank {
    struct schedule schedule;
    uint64_t steps;
    uint32_t rank;
    uint32_t rounds;                         /* circulant: q */
    uint32_t skips[SCHEDULE_ROUNDS_MAX + 1]; /* circulant: skip[0..q] */
    int32_t receive[SCHEDULE_ROUNDS_MAX];    /* circulant: R_rank */
    int32_t send[SCHEDULE_ROUNDS_MAX];       /* circulant: S_rank */
};

/* Steps of the whole schedule; 0 for a group of one. Any thread. */
uint64_t schedule_steps(const struct schedule *schedule);

/* Prepare rank's part. rank < schedule->members. Cannot fail. Any thread. */
void schedule_rank_init(struct schedule_rank *part, const struct schedule *schedule, uint32_t rank);

/* Block that the rank sends in `step`, and to whom.
 *
 * step < schedule_steps(). *out is written only when true is returned.
 *
 * Returns whether the rank sends in this step. Cannot fail. Any thread. */
bool schedule_outgoing(const struct schedule_rank *part, uint64_t step, struct transfer *out);

/* The same for what the rank receives in `step`; in->peer is the sender. */
bool schedule_incoming(const struct schedule_rank *part, uint64_t step, struct transfer *in);

/* The ranks that the rank ever sends to / ever receives from, ascending; at most members - 1 entries are
 * written. Returns how many. Exact: each one has at least one transfer. Any thread. */
size_t schedule_out_peers(const struct schedule_rank *part, uint32_t peers[]);
size_t schedule_in_peers(const struct schedule_rank *part, uint32_t peers[]);

/* "binomial", ...; never NULL. */
const char *schedule_name(enum schedule_kind kind);
/* The kind called name; false if there is none ("auto" is none: see schedule_choose). */
bool schedule_parse(const char *name, enum schedule_kind *kind);

/* What `auto` needs to know of the cluster; 0 where it was not measured. */
struct schedule_cost {
    uint64_t block_ns;         /* cost of a block, with one in flight, beyond its bytes on the wire ("a") */
    uint64_t bytes_per_second; /* of one link */
};

#define SCHEDULE_BLOCK_MIN (UINT64_C(64) << 10)
#define SCHEDULE_BLOCK_MAX (UINT64_C(64) << 20)

/* Pick a schedule and a block size (a power of two in SCHEDULE_BLOCK_MIN..SCHEDULE_BLOCK_MAX) for an object
 * of `bytes` to `members` (root included). A kind or a block size that the user has fixed is kept: pass NULL
 * / 0 for "auto". A fixed block size is raised to the next power of two that needs at most
 * SCHEDULE_BLOCKS_MAX blocks. An object of 0 bytes has one (empty) block.
 *
 * COVEY_TOO_LARGE if bytes > SCHEDULE_BLOCKS_MAX * SCHEDULE_BLOCK_MAX. Any thread. */
int schedule_choose(uint64_t bytes, uint32_t members, const struct schedule_cost *cost,
                    const enum schedule_kind *fixed_kind, uint64_t fixed_block_bytes,
                    struct schedule *schedule, uint64_t *block_bytes);

#endif
