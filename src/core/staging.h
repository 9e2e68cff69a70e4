/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CORE_STAGING_H
#define CORE_STAGING_H

/* Who has which part of the staging region: the fixed host memory that blocks pass through on their way
 * between the wire and memory that the wire does not reach.
 *
 * A block has a slot while it passes:
 *
 *     IN    arriving    the slot is a peer's to write; then the block is copied to where it belongs
 *     OUT   leaving     the block is copied here; then the slot is read by the wire
 *
 * Each side may hold half of the region. A slot that nobody holds any more keeps its block until the room is
 * wanted, so that a block which arrived is sent on from where it lies (staging_send_on), and one that is sent
 * to several peers is copied once.
 *
 * Why nobody waits for ever, whatever the region's size from two blocks up, and however many sessions and
 * nodes there are. Whoever sends a block that a peer stages takes, in this order, (1) its own OUT slot, (2)
 * an IN slot at the peer, asked for only then. So
 *
 *   - a held IN slot waits for a write whose sender has all it needs, and for a copy here: both end by
 *     themselves. It never waits for another slot. (A block to be sent on moves to the OUT side, if that has
 *     room; otherwise it is read again from where it was copied to.)
 *   - a held OUT slot waits for an IN slot at a peer, which is among those that come free by themselves.
 *
 * Within a side those who wait are served in the order of their asking, the small not before the large. Slots
 * are made of units that need not lie together: what is free always suffices for who is next.
 *
 * Pure; no allocation after staging_init(). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STAGING_UNIT_MIN (UINT64_C(64) << 10)

enum staging_side { STAGING_IN, STAGING_OUT, STAGING_SIDES };

struct staging;

/* A block's place. All fields are read only for others. */
struct staging_slot {
    uint64_t session;
    uint32_t block;
    uint32_t units, first;  /* how many, and the first of their chain */
    uint32_t holds;         /* 0: kept until the room is wanted */
    enum staging_side side; /* that it counts for while it is held */
    bool filled;            /* the block is here */
    bool dropped;           /* the session is over: not to be kept */
    struct staging_slot *next_named, *older, *newer;
};

/* Somebody who waits for a slot. The owner's memory, zeroed at first. */
struct staging_want {
    enum staging_side side;
    uint64_t session;
    uint32_t block;
    uint64_t bytes; /* at most staging_block_max() */
    bool waiting;   /* it is in the queue */
    struct staging_want *next;
};

/* Memory that staging_init() needs for a region of at least 2 * STAGING_UNIT_MIN bytes. */
size_t staging_memory(uint64_t region_bytes);
struct staging *staging_init(void *memory, uint64_t region_bytes);

/* The largest block that can pass. */
uint64_t staging_block_max(const struct staging *staging);

void staging_ask(struct staging *staging, struct staging_want *want);
/* Not to wait any more. Allowed when it does not. */
void staging_withdraw(struct staging *staging, struct staging_want *want);
/* Give the one who waits longest on that side its slot, held once and not filled; *want is not waiting any
 * more. NULL if nobody waits, or there is no room. */
struct staging_slot *staging_serve(struct staging *staging, enum staging_side side,
                                   struct staging_want **want);

/* The block's slot, if it is here and filled. */
struct staging_slot *staging_find(const struct staging *staging, uint64_t session, uint32_t block);
/* Hold a filled slot once more, on the OUT side. False if that has no room, or others wait for it. */
bool staging_send_on(struct staging *staging, struct staging_slot *slot);
/* Its block is here now. */
void staging_fill(struct staging_slot *slot);
/* Let go of one hold. The slot may be another's after the last. */
void staging_release(struct staging *staging, struct staging_slot *slot);
/* The session is over: what is kept of it goes. What is held goes when it is released. */
void staging_forget(struct staging *staging, uint64_t session);

/* The slot's ranges of the region, one a call, in the order of the block's bytes: *cursor is 0 at first,
 * false at the end. The last may be longer than the block. */
bool staging_extent(const struct staging *staging, const struct staging_slot *slot, uint32_t *cursor,
                    uint64_t *offset, uint64_t *bytes);

struct staging_usage {
    uint64_t region_bytes, held_bytes[STAGING_SIDES], kept_bytes;
    uint32_t waiting[STAGING_SIDES];
};
void staging_usage(const struct staging *staging, struct staging_usage *usage);

#endif
