/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CORE_SESSION_H
#define CORE_SESSION_H

/* One object on its way to the members of a session, as one participant sees it.
 *
 * A session is an ordered list of participants (rank 0 is the root, which has the bytes), one object cut in
 * equal blocks, and a schedule. This module is the protocol alone, pure: events go in, actions come out, and
 * the writes to post next are pulled. It knows no bytes, addresses or names; whoever drives it (src/node, or
 * a simulator) keeps those beside it. It never allocates: session_bytes() says what session_init() needs.
 *
 *      root                                receivers
 *      OFFER  ------------------------->   LAND: where shall it go?
 *             <------------- ACCEPT / REFUSE (one refusal cancels the put everywhere before bytes move)
 *      START  ------------------------->   GRANT to the in-neighbours: address, key
 *      blocks ==========================>  blocks relayed as the schedule says, once held and granted
 *      SEAL (digest of the whole) ------>  when all blocks are held: VERIFY against the digest
 *             <------------------------- RECEIVED / FAILED
 *      ORDER: ask for a place in the group's order; then COMMIT reaches everyone in that order
 *             <------------------------- DELIVERED
 *      the operation ends
 *
 *      CANCEL, any time before ORDER ---->  both sides stop posting, wait for their own writes, fence every
 * edge on which they were granted, and wait for the fence (or the link's end) on every edge that they
 * granted: then nothing writes into the memory any more
 *
 * Edges. A session is not lock-step but keeps the schedule's order (design: "the order of a node's sends
 * across its edges is part of the schedule"): writes are handed out in the order of this rank's steps, each
 * as soon as the block is held and the receiver has granted, at most `window` in flight in all and
 * `edge_window` per edge. When the step at the head cannot go for overtake_ns, later steps whose block is
 * held may overtake it.
 *
 * Time is `now_ns` in the event (monotonic). Every wait is bounded by stall_ns: then the session fails with
 * COVEY_PEER_STALLED and the edge or member that is stuck.
 *
 * Peers are ranks of the session. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "schedule/schedule.h"

enum session_state {
    SESSION_OFFERED,   /* root: waits for every ACCEPT; receiver: waits for its own landing, then for START */
    SESSION_MOVING,    /* blocks flow */
    SESSION_ORDERING,  /* root: everyone has it, ORDER asked; receiver: RECEIVED sent. Fate is the order's
                          alone */
    SESSION_DELIVERED, /* root: waits for every DELIVERED; receiver: done */
    SESSION_DRAINING,  /* cancelled: writes may still touch the memory */
    SESSION_CLOSED     /* over: nothing follows */
};

struct session_config {
    struct schedule schedule;
    uint32_t rank;
    uint32_t window;      /* writes in flight in all, >= 1 */
    uint32_t edge_window; /* writes in flight per edge, >= 1 */
    uint64_t overtake_ns;
    uint64_t stall_ns;
};

enum session_event_type {
    /* from the node itself */
    SESSION_BEGIN,    /* first event. Root: offers. Receiver: an OFFER came (complete), asks for landing */
    SESSION_LANDED,   /* receiver: the landing was decided: code 0, or why not */
    SESSION_READY,    /* root: blocks [block, block + count) can be read locally */
    SESSION_SEALED,   /* root: every block is ready and the digest of the whole is known */
    SESSION_VERIFIED, /* receiver: the answer to VERIFY: code 0 or COVEY_CORRUPT */
    SESSION_WRITTEN,  /* the write of `block` to `peer` is done: its local memory is not read any more */
    SESSION_FENCED,   /* the fence posted to `peer` is done */
    SESSION_ABORT,    /* the node gives up: code, e.g. COVEY_CANCELLED, COVEY_CHANGED */
    SESSION_LOST,     /* the links to `peer` are down: no DMA of its own follows */
    SESSION_TICK,     /* time passed */
    /* from a peer */
    SESSION_ACCEPT,  /* root */
    SESSION_REFUSE,  /* root: code */
    SESSION_START,   /* receiver, from the root */
    SESSION_GRANT,   /* `peer` says where its blocks go; skip (may be NULL) has the blocks it holds already */
    SESSION_ARRIVED, /* `block` from `peer` is in place */
    SESSION_FENCE,   /* `peer` will write no more into this session */
    SESSION_SEAL,    /* receiver, from the root: the driver keeps the digest */
    SESSION_RECEIVED, /* root: `peer` has everything, verified */
    SESSION_FAILED,  /* root: `peer` cannot go on: code; `culprit` is the rank that it waits for, if it stalls
                      */
    SESSION_CANCEL,  /* receiver, from the root: code */
    SESSION_COMMIT,  /* the order says: deliver now */
    SESSION_DELIVERY /* root: `peer` has delivered */
};

#define SESSION_NOBODY UINT32_MAX

struct session_event {
    enum session_event_type type;
    uint64_t now_ns;
    uint32_t peer;
    uint32_t block, count;
    int code;             /* of error.h */
    uint32_t culprit;     /* rank, or SESSION_NOBODY */
    const uint64_t *skip; /* bitmap of blocks */
};

enum session_action_type {
    /* messages to send; peer is a rank */
    SESSION_SEND_OFFER,
    SESSION_SEND_ACCEPT, /* to the root */
    SESSION_SEND_REFUSE, /* to the root: code */
    SESSION_SEND_START,
    SESSION_SEND_GRANT,     /* to an in-neighbour: the driver adds addresses and keys */
    SESSION_SEND_SEAL,      /* the driver adds the digest */
    SESSION_SEND_RECEIVED,  /* to the root */
    SESSION_SEND_FAILED,    /* to the root: code, culprit */
    SESSION_SEND_CANCEL,    /* code, culprit */
    SESSION_SEND_DELIVERED, /* to the root */
    SESSION_POST_FENCE,     /* on the data lane to peer, behind every write posted before; FENCED answers */
    /* for the driver */
    SESSION_LAND,       /* decide where the bytes go; LANDED answers, later or at once (after this call) */
    SESSION_VERIFY,     /* compare the digest of what arrived with the root's; VERIFIED answers */
    SESSION_ORDER,      /* root: ask for COMMIT */
    SESSION_DELIVER,    /* the version exists now, here */
    SESSION_DISCONNECT, /* peer does not answer: close its links; LOST answers */
    SESSION_DONE,   /* root: the operation's end: code (0: delivered everywhere), culprit: who made it fail */
    SESSION_RELEASE /* cancelled and quiet: nothing reads or writes the memory any more; the session is CLOSED
                     */
};

struct session_action {
    enum session_action_type type;
    uint32_t peer;
    int code;
    uint32_t culprit;
};

/* Where session_step() puts its actions: at most SESSION_ACTIONS_MAX(members) for one event. */
#define SESSION_ACTIONS_MAX(members) (3 * (size_t)(members) + 8)
struct session_actions {
    struct session_action *list; /* the caller's, of SESSION_ACTIONS_MAX(members) entries */
    size_t count;
};

struct session;

/* Memory for a session of this schedule (bitmaps of blocks and steps, an entry per peer). */
size_t session_bytes(const struct schedule *schedule);

/* Make a session in memory (aligned as malloc's, session_bytes() of it), which the caller frees when the
 * session is CLOSED or DELIVERED with nothing in flight (session_quiet()). */
struct session *session_init(void *memory, const struct session_config *config);

/* One event. Fills actions (count is reset first). An event that a peer should not have sent in this state (a
 * grant twice, an arrival that was not asked for, a block out of range) changes nothing and returns
 * COVEY_PROTOCOL: the driver closes that peer's links. 0 otherwise. */
int session_step(struct session *session, const struct session_event *event, struct session_actions *actions);

/* The write to post now, if any. Does not change the session: session_posted() says that it was posted. */
bool session_next_write(const struct session *session, uint64_t now_ns, struct transfer *write);
void session_posted(struct session *session, uint64_t now_ns, const struct transfer *write);

/* When SESSION_TICK is due next (also for overtaking); UINT64_MAX: never. */
uint64_t session_deadline_ns(const struct session *session);

enum session_state session_state(const struct session *session);
/* No write of this node's is in flight and none of a peer's can arrive: the memory is the owner's alone. */
bool session_quiet(const struct session *session);
bool session_holds(const struct session *session, uint32_t block);
/* Blocks held (receiver) or sent (root), of how many: for a progress bar. */
void session_progress(const struct session *session, uint32_t *done, uint32_t *total);

#endif
