/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NODE_STAGE_H
#define NODE_STAGE_H

/* Blocks of memory that the wire does not reach: through the staging region (core/staging.h has the rules),
 * by copies (copier.h) that go on beside the wire, several blocks deep.
 *
 *     sender                                              receiver
 *     slot of its own, if its memory is staged;           has granted, for each range, an address, or
 *     the block is copied there, and meanwhile            GRANT_STAGED_KEY
 *       WANT block  ---------------------------------->   a slot, when there is one
 *                   <----------------------------------   CREDIT: the slot's addresses
 *       block  =======================================>   copied to its place, with its digest; sent on from
 *     the slot is free when the write is done             the slot as long as that is there
 *
 * Sessions do not know: a block is posted when it has all that it needs, and for a session a block that has
 * arrived in a slot has arrived. It is part of the digest, for which VERIFY waits, only when it is in place.
 *
 * The region is taken when the first object needs it, once, and never grows. Loop thread only. */

#include "core/staging.h"
#include "node/replication.h"

struct stage;
struct departure;

/* Lend the region, before anything has needed it. The fabric's registration and the copier hold it until
 * stage_close(). COVEY_EXISTS, COVEY_TOO_LARGE (too small), COVEY_NO_MEMORY. */
int stage_lend(struct covey_node *node, void *base, size_t bytes, struct fail *fail);
/* When the links are down. */
void stage_close(struct covey_node *node);

/* That blocks of this size can pass: takes the region if there is none yet. */
int stage_need(struct covey_node *node, uint64_t block_bytes, struct fail *fail);
/* The largest block that can pass; 0 while there is no region. */
uint64_t stage_block_max(const struct covey_node *node);

/* What copies have done; and give out the slots that have come free. Each round. */
void stage_take_done(struct covey_node *node);
void stage_serve(struct covey_node *node);

/* A peer's ASK and CREDIT. COVEY_PROTOCOL, COVEY_NO_MEMORY. */
int stage_ask(struct replication *replication, uint32_t rank, uint32_t block);
int stage_credit(struct replication *replication, uint32_t rank, const struct message_grant *credit);

/* Whether a block arrives in a slot; and that it has: take it to its place. */
bool stage_expects(const struct replication *replication, uint32_t rank, uint32_t block);
void stage_arrived(struct replication *replication, uint32_t block);

/* Get the next blocks ready, and post those that are. */
void stage_post(struct replication *replication);
/* Cancelled: no more is to be sent. */
void stage_drop(struct replication *replication);
void stage_written(struct replication *replication, uint32_t rank, uint32_t block);
/* Gather what of the departure is at [offset, offset + bytes) of the block, as replication_writes.c does. */
uint64_t stage_gather(const struct departure *departure, uint64_t offset, uint64_t bytes,
                      struct fabric_piece pieces[FABRIC_PIECES_MAX], size_t *count);
/* Whether it is sent from a slot; otherwise from where it belongs. */
bool stage_has_slot(const struct departure *departure);
/* Where at the peer it goes; NULL: as the grant says. */
const struct grant_extent *stage_target(const struct departure *departure, uint64_t offset);

/* The links to the peer are down. */
void stage_lose(struct replication *replication, uint32_t rank);
/* No copy of it is under way. */
bool stage_idle(const struct replication *replication);
/* Its session is over, and quiet. What has arrived goes on to its place: another session may follow. */
void stage_end_session(struct replication *replication);
/* It is over. No copy of it is under way. */
void stage_forget(struct replication *replication);

struct stage_usage {
    struct staging_usage region;
    uint64_t loaded_bytes, stored_bytes; /* copied into the region from its place, and the other way */
    uint64_t sent_on_bytes;              /* left from a slot that they were in already */
    uint64_t credits, asks;              /* given, and asked of peers */
    bool pinned, lent;
};
void stage_usage(const struct covey_node *node, struct stage_usage *usage);

#endif
