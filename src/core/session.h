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
 *      CANCEL, any time before ORDER ---->  both sides stop posting and drain
 *
 * Edges. A session is not lock-step but keeps the schedule's order (design: "the order of a node's sends
 * across its edges is part of the schedule"): writes are handed out in the order of this rank's steps, each
 * as soon as the block is held and the receiver has granted, at most `window` in flight in all and
 * `edge_window` per edge. While the step at the head cannot go, later steps whose block is held overtake it,
 * up to 63 sends ahead of it: at once if nothing is in flight, because the link would be idle; otherwise when
 * the head has been in its own way for overtake_ns (a peer that is stuck).
 *
 * Memory. An edge on which a receiver granted is over, for both its ends at the same point, with its last
 * block or with a fence, never with both: a sender that drains fences the granted edges that still had blocks
 * to come. (Where the receiver held all of an edge's blocks before, there is no last block: only a fence ends
 * it.) A session that drains is over when its own writes and fences are done, every edge on which it granted
 * is over, and LAND and VERIFY are answered; a link that is down ends what was on it. So nothing arrives for
 * a session that is over, and its slot and memory can be used again at once.
 *
 * A grant that comes while a session drains is answered by a fence at once. It may also come after the
 * session is CLOSED, or where it never was (the root's START went to one receiver and its CANCEL to the
 * other): then the driver answers it with a fence by itself.
 *
 * Losses. While the session is OFFERED or MOVING it fails with any of its members. From ORDERING on its fate
 * is the order's alone: a lost member is not waited for any more, and a receiver that has lost the root waits
 * for COMMIT or ABORT. A member whose links are not up when the session begins is lost, too: what is sent to
 * it would vanish, and nothing would tell.
 *
 * Time is `now_ns` in the event (monotonic). Waits for peers are bounded: by stall_ns, and where a wait
 * covers blocks that move, by block_ns for each of them on top (a chain's last rank waits for members - 2
 * blocks before its first; a root that is done waits for the slowest link). Then the session fails with
 * COVEY_PEER_STALLED and the member that is stuck, of those who wait for one another the one who waits for
 * nobody; or, where it ends anyway, asks for the peer's links to be closed. Not bounded here, because others
 * answer for them: LAND, VERIFY, READY and SEALED (the node itself), COMMIT (the group), and LOST after
 * DISCONNECT (the fabric).
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
    SESSION_DELIVERED, /* root: waits for every DELIVERED; both for what they have in flight */
    SESSION_DRAINING,  /* cancelled: writes may still touch the memory */
    SESSION_CLOSED     /* over: nothing follows */
};

struct session_config {
    struct schedule schedule;
    uint32_t rank;
    /* Writes in flight, in all and per edge, >= 1. Where WRITTEN means that the peer has the block, 4 and 3
     * keep the links full and the blocks in order. Where it only means that the kernel has it, 2 and 2: its
     * buffers are in flight as well, and out of anyone's control. An edge_window below window - 1 makes the
     * head of the order wait for its own edge, and costs up to a third of the time (tests/bench/sessions.c
     * measures). */
    uint32_t window, edge_window;
    uint64_t overtake_ns;
    uint64_t stall_ns;
    uint64_t block_ns; /* what a block may take where nothing stalls, e.g. 1 ms, and its bytes at 1 MB/s */
};

enum session_event_type {
    /* from the node itself */
    SESSION_BEGIN,    /* first event. Root: offers. Receiver: an OFFER came (complete), asks for landing */
    SESSION_LANDED,   /* receiver: the landing was decided: code 0, or why not */
    SESSION_READY,    /* root: blocks [block, block + count) can be read locally. Receiver, before LANDED: it
                         holds them already (the driver puts them in the `skip` of its grants) */
    SESSION_SEALED,   /* root: every block is ready and the digest of the whole is known */
    SESSION_VERIFIED, /* receiver: the answer to VERIFY: code 0 or COVEY_CORRUPT */
    SESSION_WRITTEN,  /* the write of `block` to `peer` is done: its local memory is not read any more */
    SESSION_FENCED,   /* the fence posted to `peer` is done */
    SESSION_ABORT, /* the node gives up: code, e.g. COVEY_CANCELLED, COVEY_CHANGED. Dropped once delivered. In
                      ORDERING only if the group has decided that COMMIT will never come */
    SESSION_LOST,  /* the links to `peer` are down: no DMA of its own follows */
    SESSION_TICK,  /* time passed */
    /* from a peer */
    SESSION_ACCEPT, /* root */
    SESSION_REFUSE, /* root: code */
    SESSION_START,  /* receiver, from the root */
    SESSION_GRANT, /* `peer` says where its blocks go; skip (may be NULL) has the blocks it holds already: the
                      driver keeps it until the session is CLOSED */
    SESSION_ARRIVED,  /* `block` from `peer` is in place */
    SESSION_FENCE,    /* `peer` will write no more into this session */
    SESSION_SEAL,     /* receiver, from the root: the driver keeps the digest */
    SESSION_RECEIVED, /* root: `peer` has everything, verified */
    SESSION_FAILED, /* root: `peer` cannot go on: code; `culprit` is the rank that it waits for, if it stalls.
                       After RECEIVED only to say who does not take its writes */
    SESSION_CANCEL, /* receiver, from the root: code, culprit */
    SESSION_COMMIT, /* from the group: deliver now */
    SESSION_DELIVERY /* root: `peer` has delivered */
};

#define SESSION_NOBODY UINT32_MAX

struct session_event {
    enum session_event_type type;
    uint64_t now_ns;
    uint32_t peer;
    uint32_t block, count;
    int code;             /* of error.h */
    uint32_t culprit;     /* rank, or SESSION_NOBODY (also where the event has none) */
    const uint64_t *skip; /* bitmap of blocks */
};

enum session_action_type {
    /* messages to send; peer is a rank */
    SESSION_SEND_OFFER,
    SESSION_SEND_ACCEPT, /* to the root */
    SESSION_SEND_REFUSE, /* to the root: code, culprit */
    SESSION_SEND_START,
    SESSION_SEND_GRANT,     /* to an in-neighbour: the driver adds addresses and keys */
    SESSION_SEND_SEAL,      /* the driver adds the digest */
    SESSION_SEND_RECEIVED,  /* to the root */
    SESSION_SEND_FAILED,    /* to the root: code, culprit */
    SESSION_SEND_CANCEL,    /* code, culprit */
    SESSION_SEND_DELIVERED, /* to the root */
    SESSION_POST_FENCE,     /* on the data lane to peer, behind every write posted before; FENCED answers */
    /* for the driver */
    SESSION_LAND,   /* decide where the bytes go; LANDED answers, later or at once (after this call), and
                       also if the session was cancelled meanwhile */
    SESSION_VERIFY, /* compare the digest of what arrived with the root's; VERIFIED answers, as LANDED does */
    SESSION_ORDER,  /* root: ask for COMMIT */
    SESSION_DELIVER,    /* the version exists now, here */
    SESSION_DISCONNECT, /* peer does not answer: close its links; LOST answers */
    SESSION_DONE,   /* root: the operation's end, and nothing reads its memory any more: code (0: delivered by
                       every member that is not lost), culprit: who made it fail. The session is CLOSED */
    SESSION_RELEASE /* cancelled and quiet: nothing reads or writes the memory any more; code, culprit. The
                       session is CLOSED */
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
 * session is CLOSED (or when all links are). Takes time in proportion to the schedule's blocks, some 50 ns a
 * block. */
struct session *session_init(void *memory, const struct session_config *config);

/* One event. Fills actions (count is reset first). An event that a peer should not have sent in this state (a
 * grant twice, an arrival that was not asked for, a block out of range) changes nothing and returns
 * COVEY_PROTOCOL: the driver closes that peer's links. 0 otherwise; events that have crossed a CANCEL are
 * dropped silently. */
int session_step(struct session *session, const struct session_event *event, struct session_actions *actions);

/* The write to post now, if any. Does not change the session: session_posted() says that it was posted. */
bool session_next_write(const struct session *session, uint64_t now_ns, struct transfer *write);
void session_posted(struct session *session, uint64_t now_ns, const struct transfer *write);

/* The next writes in the order of their steps, at most `max`, without regard to the windows: for a driver
 * that has to get blocks ready. One that session_can_post() now may be posted, in any order. */
size_t session_upcoming(const struct session *session, struct transfer writes[], size_t max);
bool session_can_post(const struct session *session, const struct transfer *write);

/* Whether `peer` has a block still to bring here. */
bool session_awaits(const struct session *session, uint32_t peer, uint32_t block);

/* When SESSION_TICK is due next (also for overtaking); UINT64_MAX: never. */
uint64_t session_deadline_ns(const struct session *session);

enum session_state session_state(const struct session *session);
/* No write or fence of this node's is in flight, and nothing of a peer's can arrive: the memory is the
 * owner's alone. */
bool session_quiet(const struct session *session);
bool session_holds(const struct session *session, uint32_t block);
/* Blocks held (receiver) or sent (root), of how many: for a progress bar. */
void session_progress(const struct session *session, uint32_t *done, uint32_t *total);

#endif
