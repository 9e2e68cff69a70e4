/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CORE_MEMBERSHIP_H
#define CORE_MEMBERSHIP_H

/* Who is in the cluster: one Paxos decision per view, over the shared-state table (core/table.h).
 *
 * The acceptors of view v + 1 are the members of view v; those of view 1 are the configured nodes. Promises,
 * acceptances and the fact that a value was chosen are columns that everyone pushes to everyone, so there are
 * no messages here, nothing to retransmit while a link is up, and every member counts for itself (Lamport,
 * "Paxos made simple", 2001, with a table in place of messages).
 *
 * Pure: no clock, I/O or allocation. Time comes with each event; memory is given once. One thread.
 *
 *
 * What the node layer does
 *
 * - It gives each link a free slot, clears it (table_slot_clear), tells the peer where it is, and reports
 *   LINK_UP once both ends can write. LINK_DOWN comes after the last write of that link, and the slot is
 * free. It may report two links with one id (a process that was restarted before its old link broke): they
 * differ in incarnation. Two links with one incarnation at a time are never reported.
 * - ROW when a push of that slot has announced itself (the immediate at its end); TICK at
 *   membership_deadline_ns(), at the latest.
 * - It carries out the actions of a step in the order of struct membership_actions, before the next step.
 *   A push is one write of the own row's bytes [offset, offset + bytes) to the same offset of the peer's slot
 *   for this node, copied when it is posted; the last push of a step to each slot carries an immediate.
 * - It calls membership_received() as the groups' `received` grows, and stops receiving when a step reports
 *   `wedged`, before it does anything else, until a step reports `installed`.
 * - Connecting is its own affair: which end dials, and for how long. CONNECT names a peer that is wanted and
 *   comes again every heartbeat while there is no link to it.
 * - After EVICTED or LEFT it closes the links and, to come back, starts anew with another incarnation.
 *
 *
 * States and events (- : only noted)
 *
 *                 LINK_UP          LINK_DOWN           ROW                         TICK               LEAVE
 *   FORMING       push own row     suspect             promise, accept, commit:    suspect absent     LEFT
 *                                                      install; a survivor: JOINING
 *   JOINING       push own row     not ready           lists me: install           connect            LEFT
 *   RUNNING       push own row     suspect, renew      promise: WEDGED             suspect silent     flag
 *   WEDGED        push own row     suspect, renew      commit: install or EVICTED  lead, new ballot   flag
 *   NO_QUORUM     push own row     suspect, renew      commit: install or EVICTED; suspect silent     LEFT
 *                                                      quorum back: WEDGED
 *   EVICTED, LEFT -                -                   -                           -                  -
 *
 * EVICT notes a wish in RUNNING and WEDGED and is refused elsewhere. FORCE is refused where there is a
 * quorum. Every state but the last two beats its heart and reports NO_QUORUM, FORMING or JOINING as it
 * applies. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bitmap.h"
#include "core/table.h"
#include "core/view.h"

enum membership_quorum {
    MEMBERSHIP_MAJORITY,   /* more than half of the view */
    MEMBERSHIP_TIE_BREAKER /* or exactly half, with the lowest rank among them */
};

/* A group's members among the nodes: its trim is the minimum over those. */
struct membership_group {
    bool all;
    const uint32_t *ids; /* ascending; outlives the membership */
    size_t count;
};

struct membership_config {
    uint32_t id;
    uint64_t incarnation; /* random, not 0 */
    uint8_t address[VIEW_ADDRESS_BYTES];
    const uint32_t *node_ids; /* the configured nodes, ascending; a node that is not among them is elastic */
    uint32_t node_count;
    uint32_t slots;       /* links at a time: members, joiners, and those on their way out */
    uint32_t members_max; /* node_count..COVEY_MEMBERS_MAX */
    const struct membership_group *groups;
    uint32_t group_count;
    enum membership_quorum quorum;
    uint64_t heartbeat_ns;
    uint64_t suspect_after_ns; /* at least 2 heartbeats */
    uint64_t batch_ns;         /* joiners wait this long for each other */
    uint64_t seed;             /* of epochs and waits: random */
};

enum membership_state {
    MEMBERSHIP_FORMING,   /* waits for the first view */
    MEMBERSHIP_JOINING,   /* there is a view without this node */
    MEMBERSHIP_RUNNING,   /* in a view */
    MEMBERSHIP_WEDGED,    /* in a view, on the way to the next one */
    MEMBERSHIP_NO_QUORUM, /* in a view, too few members in reach to go on */
    MEMBERSHIP_EVICTED,   /* left out of the view */
    MEMBERSHIP_LEFT       /* left out at its own wish */
};
#define MEMBERSHIP_STATES 7

/* X(NAME, "name", "sentence"): every rule that can fire; a trace names them. */
#define MEMBERSHIP_RULES(X)                                                                \
    X(SUSPECT_LINK, "suspect-link", "the link is down")                                    \
    X(SUSPECT_SILENT, "suspect-silent", "its heartbeat stands still")                      \
    X(SUSPECT_ABSENT, "suspect-absent", "it was never reached in this view")               \
    X(TRUST, "trust", "its heart beats again")                                             \
    X(FORGIVE, "forgive", "this node itself stood still, so nobody is blamed for it")      \
    X(PREPARE, "prepare", "leads, and asks for promises")                                  \
    X(PROMISE, "promise", "promises the ballot")                                           \
    X(WEDGE, "wedge", "stops receiving in this view")                                      \
    X(PROPOSE, "propose", "proposes the next view")                                        \
    X(REPROPOSE, "repropose", "proposes what a member had accepted")                       \
    X(ACCEPT, "accept", "accepts the proposal")                                            \
    X(COMMIT, "commit", "saw the proposal accepted by a quorum")                           \
    X(LEARN, "learn", "learned the next view from a peer")                                 \
    X(INSTALL, "install", "installs the view")                                             \
    X(EVICTED, "evicted", "is not in the next view")                                       \
    X(LEFT, "left", "left at its own wish")                                                \
    X(OVERTAKEN, "overtaken", "saw a higher ballot and waits")                             \
    X(SURVIVOR, "survivor", "met a member of an earlier view and does not form a new one") \
    X(SURVIVOR_GONE, "survivor-gone", "the survivor was started anew, without its past")   \
    X(READY, "ready", "is linked to every member of the view")                             \
    X(OTHER_EPOCH, "other-epoch", "belongs to another epoch under this cluster's name")    \
    X(ID_TAKEN, "id-taken", "a living member has this id")                                 \
    X(FORCE, "force", "goes on without a quorum, as its operator said")                    \
    X(EVICT, "evict", "is to leave, as the operator said")                                 \
    X(MALFORMED, "malformed", "wrote a value that is none")

enum membership_rule {
#define MEMBERSHIP_RULE_ENUM(name, text, sentence) MEMBERSHIP_RULE_##name,
    MEMBERSHIP_RULES(MEMBERSHIP_RULE_ENUM)
#undef MEMBERSHIP_RULE_ENUM
        MEMBERSHIP_RULE_COUNT
};

/* A process, by name. */
struct membership_peer {
    uint32_t id;
    uint64_t incarnation; /* 0: any */
    uint8_t address[VIEW_ADDRESS_BYTES];
};

enum membership_event_type {
    MEMBERSHIP_TICK,
    MEMBERSHIP_LINK_UP,   /* slot, peer (its incarnation not 0) */
    MEMBERSHIP_LINK_DOWN, /* slot */
    MEMBERSHIP_ROW,       /* slot */
    MEMBERSHIP_LEAVE,     /* this node wants to leave */
    MEMBERSHIP_EVICT,     /* id of a member to remove */
    MEMBERSHIP_FORCE      /* go on with whom is in reach */
};

struct membership_event {
    enum membership_event_type type;
    uint64_t now_ns; /* monotonic */
    uint32_t slot;
    uint32_t id;
    struct membership_peer peer;
};

#define MEMBERSHIP_EVERYONE     UINT32_MAX /* every slot with a link */
#define MEMBERSHIP_PUSHES_MAX   96
#define MEMBERSHIP_CONNECTS_MAX 32
#define MEMBERSHIP_TRACES_MAX   64

struct membership_push {
    uint32_t slot;   /* or MEMBERSHIP_EVERYONE */
    uint32_t offset; /* bytes, from the row's start */
    uint32_t bytes;
};

/* One rule that fired here, about `id` (this node's own id where it is about itself). */
struct membership_trace {
    enum membership_rule rule;
    uint32_t id;
    uint64_t number; /* of the view in which it fired */
    uint64_t value;  /* the ballot, or the number of the view that it is about */
};

/* What a step asks for; the node layer carries it out in this order. Of fixed size; filled anew by each step.
 * Pointers lead into the membership and are valid until the next step. */
struct membership_actions {
    bool wedged; /* stop receiving: what membership_received() was told is final */

    struct membership_push pushes[MEMBERSHIP_PUSHES_MAX];
    uint32_t push_count;

    /* The next view. Rank by rank, joined says who of `view` is new and left who of `previous` is gone.
     * trim[group] is the last position to deliver of the previous view, VIEW_TRIM_NONE where no member of the
     * group was kept. A node that joins has nothing to trim: previous is then the view before, of which it
     * was no member, and `left` is empty. */
    bool installed;
    const struct view *view;
    const struct view *previous;
    uint64_t joined[BITMAP_WORDS(COVEY_MEMBERS_MAX)];
    uint64_t left[BITMAP_WORDS(COVEY_MEMBERS_MAX)];
    const uint64_t *trim;

    struct membership_peer connects[MEMBERSHIP_CONNECTS_MAX];
    uint32_t connect_count;
    uint32_t disconnects[MEMBERSHIP_CONNECTS_MAX]; /* slots; after what was pushed to them */
    uint32_t disconnect_count;

    bool state_changed;
    enum membership_state state;

    struct membership_trace traces[MEMBERSHIP_TRACES_MAX];
    uint32_t trace_count;
    uint32_t traces_lost; /* there was no room for */
};

struct membership;

/* Bytes of memory that membership_init() wants, besides the slots' (table_slots_bytes). */
size_t membership_bytes(const struct membership_config *config);
/* The layout of the table, for the size of what is registered. */
void membership_layout(const struct membership_config *config, struct table_layout *layout);

/* Start: FORMING if configured, else JOINING. Both memories are aligned to 8 bytes and outlive the
 * membership, as does config->groups; the rest of config is copied. Returns the membership, which lies in
 * memory. */
struct membership *membership_init(const struct membership_config *config, void *memory, void *slots_memory,
                                   uint64_t now_ns);

/* One event in, actions out. actions is overwritten.
 *
 * Returns 0, or for EVICT and FORCE why it cannot be done: COVEY_NOT_FOUND (no such member), COVEY_INVALID
 * (EVICT of the last member, FORCE with a quorum), COVEY_NO_QUORUM, COVEY_FORMING, COVEY_EXISTS (FORCE on a
 * blank node while a survivor is linked: force there), COVEY_EVICTED. Other events cannot fail. */
int membership_step(struct membership *membership, const struct membership_event *event,
                    struct membership_actions *actions);

/* When the next TICK is due, absolute. UINT64_MAX once EVICTED or LEFT. */
uint64_t membership_deadline_ns(const struct membership *membership);

/* This node has everything of the group up to `position`. Grows only, and not while wedged. When a view is
 * installed it is the group's trim (0 for VIEW_TRIM_NONE), for nothing beyond that has happened. */
void membership_received(struct membership *membership, uint32_t group, uint64_t position);

/* The installed view (view 0 before). Valid until the next step. */
const struct view *membership_view(const struct membership *membership);
enum membership_state membership_state(const struct membership *membership);
bool membership_wedged(const struct membership *membership);
/* Whether this node suspects the member, by its own evidence. */
bool membership_suspects(const struct membership *membership, uint32_t rank);
/* The slot that a member's link has; false while there is none. */
bool membership_slot(const struct membership *membership, uint32_t rank, uint32_t *slot);
struct table *membership_table(struct membership *membership);

/* What a node says in its row, as this node sees it, for people. Pointers are valid until the next step. */
struct membership_row {
    struct membership_peer peer; /* incarnation 0: a configured node of view 0 that was never linked */
    uint32_t rank;               /* in this node's view; VIEW_RANK_NONE: it is no member */
    bool self;
    bool linked;        /* or its own */
    uint64_t silent_ns; /* since its heartbeat grew; 0 for the own row and where there is no link */
    uint64_t heartbeat; /* 0: it has not written yet */
    uint64_t number;    /* of the view that it is in */
    uint64_t flags;     /* enum table_flags */
    /* About that view; 0 while it says nothing about it. */
    uint64_t promised, accepted, committed; /* ballots */
    const uint64_t *received;               /* by group: final, once it is wedged; NULL before */
    /* By rank of this node's view; NULL if it says nothing about that. */
    const uint64_t *suspected, *evicted;
};

/* The rows: those of the members by rank, then those of others that are linked. They are at the places
 * [0, membership_places()), some of which are empty: false is returned then. */
uint32_t membership_places(const struct membership *membership);
bool membership_row(const struct membership *membership, uint32_t place, struct membership_row *row);

/* Static texts, never NULL. */
const char *membership_rule_name(enum membership_rule rule);
const char *membership_rule_sentence(enum membership_rule rule);
const char *membership_state_name(enum membership_state state);

#endif
