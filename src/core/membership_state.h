/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CORE_MEMBERSHIP_STATE_H
#define CORE_MEMBERSHIP_STATE_H

/* The inside of the membership, for its own files only:
 *
 *     membership.c   events, links, the state, installing a view
 *     rows.c         writing the own row, seeing the others'
 *     suspicion.c    who is out of reach, whether there is a quorum, who leads
 *     agreement.c    ballots, promises, proposals, commit
 *     joining.c      survivors, joiners, who connects to whom
 *     inspect.c      the rows, for people */

#include "base/bitmap.h"
#include "base/rng.h"
#include "core/membership.h"

#define SLOT_NONE   UINT32_MAX
#define RANK_BITS   16 /* of a ballot */
#define VIEW_BITMAP BITMAP_WORDS(COVEY_MEMBERS_MAX)

/* What is known of a slot's owner. It stays after LINK_DOWN, for as long as the slot is not granted again:
 * what a member that died had written counts as before. */
struct link {
    struct membership_peer peer; /* incarnation 0: the slot was never used */
    bool up;
    bool removed;     /* of a former member: to be disconnected */
    bool other_epoch; /* reported */
    bool id_taken;    /* reported */
    uint64_t up_ns;
    uint64_t heartbeat;
    uint64_t seen_ns; /* when the heartbeat grew last */
};

struct membership {
    struct membership_config config;
    struct table table;
    struct rng rng;
    enum membership_state state;
    uint64_t now_ns;
    uint64_t heartbeat_due_ns;
    bool again; /* a rule may fire without another event */

    struct view view;
    struct view previous;
    struct view next;   /* scratch: what is being decided */
    struct view target; /* of a node outside: the view to join; number 0: none */
    uint64_t trim[VIEW_GROUPS_MAX];
    uint64_t next_trim[VIEW_GROUPS_MAX];
    uint64_t received[VIEW_GROUPS_MAX];
    uint32_t rank; /* this node's in view; VIEW_RANK_NONE: none */
    bool wedged;
    uint64_t entered_ns; /* the view */

    /* by rank of view */
    uint32_t slots[COVEY_MEMBERS_MAX];        /* SLOT_NONE: never linked in this view */
    const uint64_t *banks[COVEY_MEMBERS_MAX]; /* what each says about this view in this step; NULL: nothing */
    uint64_t suspected[VIEW_BITMAP];          /* own evidence */
    uint64_t out[VIEW_BITMAP];                /* out of reach, by all the evidence */
    bool accused;                             /* somebody suspects somebody */
    bool quorum;                              /* of those that are not out */

    uint64_t ballot; /* that this node leads; 0: none */
    bool proposed;
    bool leave;
    bool force;
    uint64_t retry_ns;
    uint64_t doubt_since_ns;   /* a few suspect somebody whom the others do not; 0: no */
    uint64_t joiner_since_ns;  /* 0: none waits */
    uint64_t met[VIEW_BITMAP]; /* survivors met while blank, by rank of view 0 */

    uint64_t guard_count;
    uint32_t connect_cursor;
    uint64_t candidates_seen;           /* changes with the target and with what survivors say of joiners */
    struct membership_actions *actions; /* of the step that runs */
    struct link *links;
};

/* --- rows.c ------------------------------------------------------------------------------------------- */

void rows_trace(struct membership *m, enum membership_rule rule, uint32_t id, uint64_t value);

/* The own row as it is before anyone has it. */
void rows_init(struct membership *m);
/* The own row's bank of this view. */
uint64_t *rows_own_bank(struct membership *m);
/* Write a word of the row and push it, unless it is that already. offset is in words, from the row's start.
 */
void rows_put(struct membership *m, uint32_t offset, uint64_t value);
/* The same for a column of this view's bank. */
void rows_put_bank(struct membership *m, uint32_t column, uint64_t value);
/* The same for columns whose words do not depend on each other: they need no guard. */
void rows_put_words(struct membership *m, uint32_t column, const uint64_t *words, uint32_t count);
void rows_put_bitmap(struct membership *m, uint32_t column, const uint64_t *bits);
/* Replace a guarded column: head, words, tail. base is the row's or the bank's offset in words. */
void rows_put_guarded(struct membership *m, uint32_t base, const struct table_guarded *column,
                      const uint64_t *words, uint32_t count);
/* Prepare the bank for what is said about view `number`. */
void rows_reset_bank(struct membership *m, uint64_t epoch, uint64_t number);
/* Push everything to a peer that has nothing yet. */
void rows_push_all(struct membership *m, uint32_t slot);

/* Set banks[]. */
void rows_collect(struct membership *m);
/* The ballot and the value that a bank shows as accepted, ballot first; NULL: unreadable now. */
const uint64_t *rows_accepted(const struct membership *m, const uint64_t *bank);
/* The value of the view that the slot's owner is in; NULL: view 0, or unreadable now. *ballot is that of its
 * decision. */
const uint64_t *rows_view_value(const struct membership *m, uint32_t slot, uint64_t *ballot);

/* --- suspicion.c -------------------------------------------------------------------------------------- */

void suspicion_forgive(struct membership *m);
void suspicion_update(struct membership *m);
/* Work out `out` and `quorum` from banks[]. */
void suspicion_evaluate(struct membership *m);
/* Members to leave out of the next view because two that stay cannot reach each other. Adds to removed. */
void suspicion_cover(const struct membership *m, uint64_t *removed);
/* Whether each of those removed because of suspicion is suspected by a majority, or by everyone kept. */
bool suspicion_is_shared(const struct membership *m, const uint64_t *removed);
bool suspicion_leads(const struct membership *m);
bool suspicion_is_quorum(const struct membership *m, const uint64_t *ranks);
uint64_t suspicion_deadline_ns(const struct membership *m);

/* --- agreement.c -------------------------------------------------------------------------------------- */

void agreement_follow(struct membership *m);
/* Whether a view was decided; it is then in next and next_trim, and written to the own row. */
bool agreement_commit(struct membership *m);
void agreement_lead(struct membership *m);
uint64_t agreement_deadline_ns(const struct membership *m);
/* Write down the decision `next` that a peer shows, so that others can read it here. */
void agreement_learn(struct membership *m, uint64_t ballot, const uint64_t *value);

/* --- joining.c ---------------------------------------------------------------------------------------- */

/* Whether this node is outside and must not take part in forming a view. */
bool joining_outside(const struct membership *m);
/* See who survives, choose the view to join, say whether this node is ready for it. */
void joining_update(struct membership *m);
/* Append the joiners that are ready to next, at most up to members_max. */
void joining_admit(struct membership *m);
/* Whether joiners are a reason for a new view now. */
bool joining_due(struct membership *m);
uint64_t joining_deadline_ns(const struct membership *m);
/* Tell joiners of one another. */
void joining_publish(struct membership *m);
void joining_connect(struct membership *m);
void joining_reconnect(struct membership *m);

#endif
