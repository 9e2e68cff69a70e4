/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NODE_REPLICATION_H
#define NODE_REPLICATION_H

/* A session (core/session.h) with everything that the core does not know: peers, messages, addresses, memory
 * and the work on its bytes.
 *
 * A replication is made for a put here (root) or by an offer (receiver). It keeps a reference to its object
 * until it is over, that is until the session is closed or delivered, nothing of it is in flight, and no
 * worker touches it. Its slot is the number under which its blocks arrive. Loop thread only, but for the jobs
 * (feed.h).
 *
 * A session that is broken off by the loss of a member leaves the replication interrupted: its memory and
 * what is in it stay, and when a view is installed another session for the same object follows in it
 * (replication_finish.c, core/finish.h). */

#include <uthash.h>

#include "node/node.h"

/* Object bytes that are contiguous in memory. */
struct run {
    uint64_t offset, bytes;
    char *base;
    const struct memory_ops *memory;
    int device;
    struct fabric_region *region; /* NULL: none is needed for what this node does with it */
    uint64_t region_offset;       /* of base in the region */
    bool owned;                   /* registered for this replication alone */
};

/* What a participant's grant says. */
struct edge {
    struct grant_extent *extents; /* ascending, without gaps, once complete */
    size_t count, capacity;
    uint64_t *skip; /* the blocks that it holds already; NULL: none */
    uint16_t slot;  /* the peer's */
    bool complete;
    bool staged; /* some of it goes through the peer's staging */
    bool fence;  /* to be posted */
};

/* The block that is being cut in writes. */
struct posting {
    bool active;
    struct transfer what;
    const struct departure *departure; /* NULL: from where it belongs to where the grant says */
    uint64_t offset, end;
};

/* Who finishes the object if its session is broken off: those of the last session of all, in its order. */
struct party {
    uint32_t members;
    uint32_t *ids;
    uint64_t *incarnations;
};

struct feed;
struct finish;
struct arrival;
struct departure;

struct replication {
    struct covey_group *group;
    struct covey_node *node;
    uint64_t id; /* of the session, the same at every participant */
    enum offer_purpose purpose;
    uint64_t origin; /* the session that began it: names the object while it has no version */
    uint32_t slot;   /* this node's */
    uint64_t view;
    uint32_t members, rank;
    uint32_t *ids;       /* by rank */
    struct peer **peers; /* by rank; NULL for this node */
    struct edge *edges;  /* by rank */
    uint64_t block_bytes;
    struct schedule schedule;
    struct session *session;
    struct session_actions actions;

    struct object *object;        /* NULL until the offer is complete */
    struct covey_buffer *offered; /* receiver: the manifest so far; names are owned */
    uint32_t offered_count, offered_total;
    char name[COVEY_NAME_MAX + 1];
    uint64_t bytes;
    bool begun;       /* the session has had its BEGIN: until then the offer is incomplete, or a link is
                         not up yet */
    bool abandoned;   /* it will not have it */
    bool stopped;     /* the links are gone for good */
    bool interrupted; /* between two sessions for this object */
    bool landed;      /* the object's memory is there, and registered */
    uint64_t *held;   /* bitmap of the blocks that are here, whichever session brought them */
    uint64_t *skip;   /* in a pull: the blocks that it shall not bring; else NULL */
    struct party party;
    struct finish *finish; /* what the party has of it, if they tell this node */
    uint64_t told_view;    /* this node has told what it has, in that view */
    uint64_t told_ns;
    bool landing;        /* LAND waits for the group to be opened */
    bool landing_called; /* the application is deciding */
    struct run *runs;
    size_t run_count;
    struct posting posting;

    /* stage.h */
    bool staged;       /* some of its memory here is out of the wire's reach */
    bool staged_peers; /* some of a peer's is */
    struct arrival *arrivals;
    struct departure *departures;
    uint32_t copies; /* under way */

    struct feed *feed; /* digests, reading, page population */
    bool decided;      /* the order has a place for it */
    bool root_lost;    /* the links to its root went down */
    uint64_t position; /* that place, once it is delivered */
    uint64_t seal;     /* receiver: the root's digest */
    bool sealed;       /* it is known */
    bool digested;     /* the object's digest is that of what is here */
    bool verify;       /* VERIFY waits for the digest of what arrived */

    struct covey_op *op; /* root, until it has ended */
    uint64_t started_ns, moved_ns;
    struct fail fail; /* why it failed, as told */
    UT_hash_handle hh;
};

struct file_source; /* feed.h */

/* Begin a put: takes over the references to object and op. files: NULL when the object's memory holds the
 * bytes. On failure nothing is taken over. */
int replication_put(struct covey_group *group, struct object *object, struct file_source *files,
                    struct covey_op *op, struct fail *fail);

/* Messages of the group that concern sessions. COVEY_PROTOCOL closes the peer's links. */
int replication_message(struct covey_group *group, struct peer *peer, const struct message *message);

/* A new view: an offer that waits for a link to who is no member any more is refused. */
void replication_refuse_unlinked(struct covey_group *group);

/* A data lane event of a peer. */
int replication_arrived(struct covey_node *node, struct peer *peer, uint32_t immediate);
void replication_written(struct covey_node *node, uint64_t cookie);

/* The peer's links are down. */
void replication_peer_down(struct covey_node *node, struct peer *peer, const char *text);

/* Fences that are owed for sessions which are over here. */
void replication_pay_fences(struct covey_node *node);

/* Received whole, its fate the order's. */
bool replication_is_whole(const struct replication *replication);

/* A new view: what is whole and has no place has none to wait for where the root is no member. */
void replication_order_again(struct covey_group *group);

/* Give up: before its fate is the order's. */
void replication_abort(struct replication *replication, int code, const char *text);

/* Its place in the order came: deliver. */
void replication_commit(struct replication *replication, uint64_t position);

/* The node is left out of the view, or closed: give up what can be given up, with that reason; once the links
 * are gone, end the rest, but for what has its place in the order: of that a node that is closed waits only
 * for the application, which is being told of it. */
void replication_abort_all(struct covey_node *node, int code, const char *text);
void replication_stop_all(struct covey_node *node, int code, const char *text);

/* One event of the session, and whatever follows from it. COVEY_PROTOCOL: the peer should not have sent it.
 */
int replication_event(struct replication *replication, struct session_event event);

/* The group was opened: decide the landings that waited for it. */
void replication_land_waiting(struct covey_group *group);

/* Post what can be posted; free what is over. Each turn. */
void replication_turn(struct covey_node *node);
/* When replication_turn is due though nothing happens. */
uint64_t replication_deadline_ns(const struct covey_node *node);

struct replication *replication_find(const struct covey_node *node, uint64_t id);

/* Feed tells: [offset, offset + bytes) of the object is there (root); all leaves are known; it cannot go on.
 */
void replication_ready(struct replication *replication, uint64_t offset, uint64_t bytes);
void replication_digested(struct replication *replication, uint64_t digest);
void replication_broken(struct replication *replication, const struct fail *fail);

/* For listings: not delivered, not cancelled. */
bool replication_is_under_way(const struct replication *replication);
void replication_info(const struct replication *replication, struct covey_object_info *info);

#endif
