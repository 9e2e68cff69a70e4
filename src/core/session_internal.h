/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CORE_SESSION_INTERNAL_H
#define CORE_SESSION_INTERNAL_H

/* The inside of a session, shared by its files: session.c has the states and events, session_ends.c the ends,
 * session_edges.c the order of writes, session_waits.c the time that may pass.
 *
 * An edge carries writes from one rank to another. It opens when the receiver grants, and it is over for both
 * ends at the same point: with the last of its blocks or, if the session is cancelled before that, with a
 * fence. Never with both, so that nothing arrives for a session's slot after the edge is over. An edge all of
 * whose blocks the receiver held already has no last block: it is over only with a fence. */

#include "core/session.h"

#define SESSION_ROOT 0

/* Sends that may be overtaken, counted from the head of the order: bits of a word. */
#define SENDS_AHEAD  64

struct edge {
    /* the peer as a member of the session */
    bool accepted, refused, received, delivered;
    bool lost; /* its links are down: nothing is waited for, sent or accepted any more */
    bool cut;  /* DISCONNECT was asked for; LOST will follow */

    /* what this rank writes to the peer */
    bool out;          /* the schedule has such an edge */
    bool sole;         /* it brings the peer all its blocks */
    bool granted;      /* by the peer */
    bool fencing;      /* our fence is posted and not done */
    uint32_t inflight; /* writes posted and not done */
    uint32_t sent;     /* writes posted */
    uint32_t left;     /* writes to post still, without those that `skip` names */
    const uint64_t *skip;
    uint64_t wrote_ns; /* the last write done, or the first posted on an idle edge */

    /* what the peer writes to this rank */
    uint8_t in_index;  /* of in_peers, if the schedule has such an edge */
    bool invited;      /* we granted */
    bool fenced;       /* its fence is here */
    uint32_t owed;     /* blocks that it had to bring when we granted */
    uint32_t owes;     /* of these, not here yet */
    uint64_t heard_ns; /* the last block from it, or the begin of the wait for it */

    uint32_t blames; /* root: the rank that this one says it waits for */
};

/* The next sends of this rank, in the order of its steps. Entry i is at ring[(first + i) % SENDS_AHEAD]; the
 * head is entry 0. In the sets, bit i stands for it. */
struct sends {
    uint64_t next_step; /* the first step that is not in the ring */
    uint32_t first;
    uint32_t count;   /* entries, posted ones between others included */
    uint64_t pending; /* still to be posted. The head is, if count > 0 */
    uint64_t held;    /* of these, whose block is here */
    uint64_t head_ns; /* since when only the head itself is in its own way */
    struct transfer ring[SENDS_AHEAD];
};

struct session {
    struct session_config config;
    struct schedule_rank part;
    uint64_t steps; /* of the whole schedule */
    enum session_state state;
    uint64_t now_ns;      /* the latest time that an event brought */
    uint64_t alarm_ns;    /* not after the first bounded wait ends */
    uint64_t started_ns;  /* START was sent, or came */
    uint64_t progress_ns; /* the last event that brought this rank on */
    int code;             /* why the session is cancelled */
    uint32_t culprit;

    uint32_t held_count;
    uint32_t sends_total; /* of this rank */
    uint32_t sends_done;  /* those written, and those that skips and losses took away */
    uint32_t inflight;    /* writes, of all edges */
    struct sends sends;
    bool sealed;

    /* root */
    uint32_t accepted_count, received_count;
    uint64_t verdict_ns; /* when to name the culprit of the stalls reported; UINT64_MAX: none is */
    uint32_t first_reporter;

    /* receiver */
    bool landing, verifying; /* LAND, VERIFY is not answered yet */
    bool accepted, failed;   /* ACCEPT, FAILED was sent */
    uint64_t failed_ns;
    uint64_t next_missing; /* step from which to look for the block that is due */

    uint32_t in_count;
    uint32_t *in_peers; /* ascending */
    struct edge *edges; /* by rank; this rank's own is there, too */
    uint64_t *held;     /* bitmap of blocks */
    uint8_t *source;    /* by block: index in in_peers. Unused where one peer brings everything */
};

static inline bool session_is_root(const struct session *session)
{
    return session->config.rank == 0;
}

/* How long a wait that spans so many steps may last. */
static inline uint64_t session_patience_ns(const struct session *session, uint64_t steps)
{
    uint64_t pace_ns, total_ns;

    if (__builtin_mul_overflow(steps, session->config.block_ns, &pace_ns) ||
        __builtin_add_overflow(session->config.stall_ns, pace_ns, &total_ns))
        return UINT64_MAX / 2;
    return total_ns < UINT64_MAX / 2 ? total_ns : UINT64_MAX / 2;
}

static inline void session_arm(struct session *session, uint64_t at_ns)
{
    if (at_ns < session->alarm_ns)
        session->alarm_ns = at_ns;
}

/* --- Ends: session_ends.c ------------------------------------------------------------------------ */

/* Put one action to the list: any; one for a peer; one for the driver itself; one for each receiver that is
 * in the session still, with the session's code and culprit. */
void session_emit(const struct session *session, struct session_actions *actions,
                  const struct session_action *action);
void session_emit_to(const struct session *session, struct session_actions *actions,
                     enum session_action_type type, uint32_t peer);
void session_emit_own(const struct session *session, struct session_actions *actions,
                      enum session_action_type type);
void session_emit_to_all(const struct session *session, struct session_actions *actions,
                         enum session_action_type type);

/* See whether what the session waited for at its end is there. */
void session_settle(struct session *session, struct session_actions *actions);

/* From now on waits for the peers last from this moment. */
void session_restart_waits(struct session *session);

void session_fence_if_needed(struct session *session, struct session_actions *actions, uint32_t peer);

/* Stop posting, fence the edges that need it, and wait until everything is quiet. */
void session_drain(struct session *session, struct session_actions *actions, int code, uint32_t culprit);

/* --- Edges: session_edges.c ---------------------------------------------------------------------- */

/* Memory behind the struct for edges of this schedule; session_edges_init() lays it out. */
size_t session_edges_bytes(const struct schedule *schedule);
void session_edges_init(struct session *session);

/* The receiver's blocks are known, and it is about to grant: what each in-neighbour owes. */
void session_edges_count_owed(struct session *session);

/* Whether `block` is one that `peer` still has to bring. */
bool session_edge_brings(const struct session *session, uint32_t peer, uint32_t block);

/* The in-neighbour that owes the missing block of the earliest step. Some block is missing. */
uint32_t session_edge_due(struct session *session);

/* The peer granted: its skip, if any, leaves the sends. */
void session_edge_grant(struct session *session, uint32_t peer, const uint64_t *skip);

/* The links to the peer are down. Its sends leave the order, its writes and fences count as done. */
void session_edge_lose(struct session *session, uint32_t peer);

/* This block, or some blocks, are here now: sends of them may go. */
void session_sends_hold(struct session *session, uint32_t block);
void session_sends_hold_more(struct session *session);

void session_edge_written(struct session *session, uint32_t peer);

/* Post no more writes. */
void session_sends_stop(struct session *session);

/* Everyone has everything and will deliver it: no edge carries anything any more, nor a fence. */
void session_edges_end(struct session *session);

/* Whether the edge to the peer can only end by a fence of ours. */
bool session_edge_needs_fence(const struct edge *edge);

/* Whether the peer can still write here. */
bool session_edge_open(const struct edge *edge);

/* When a later send may overtake the head; UINT64_MAX if none could. */
uint64_t session_overtake_ns(const struct session *session);

/* --- Waits: session_waits.c ---------------------------------------------------------------------- */

/* A wait that is bounded: until when, and who is stuck then. */
struct session_wait {
    uint64_t until_ns; /* UINT64_MAX: none */
    uint32_t culprit;
};

/* The wait that ends first in the present state. */
struct session_wait session_first_wait(struct session *session);

/* Root: up the chain of those who wait for one another, from the first reporter, the one who waits for
 * nobody. */
uint32_t session_verdict(const struct session *session);

#endif
