/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_SIM_SESSION_SIM_INTERNAL_H
#define TESTS_SIM_SESSION_SIM_INTERNAL_H

/* Shared by the files of the simulator: session_sim.c (events, members, group, faults), session_network.c
 * (data lanes and ports) and session_finish.c (the sessions after the first). */

#include "core/finish.h"
#include "tests/sim/session_sim.h"

#define SIM_MEMBERS_MAX 64
#define SIM_PLANS_MAX   64

struct sim_event {
    uint64_t at_ns;
    uint64_t number; /* events of one moment happen in the order in which they were made */
    void (*run)(struct sim *sim, const struct sim_event *event);
    uint32_t a, b;
    uint64_t value;
    uint32_t session;             /* that it belongs to */
    struct session_event message; /* its peer is a member, not a rank */
};

/* One write on a data lane. */
struct item {
    uint32_t block;   /* FENCE_ITEM: a fence */
    uint64_t end;     /* position in the lane's stream behind its last byte */
    uint64_t content; /* what was read */
    uint64_t number;  /* of all that are posted */
    uint32_t session;
};
#define FENCE_ITEM UINT32_MAX

/* A byte stream from one member to another. */
struct lane {
    struct item *items;
    uint32_t count, size; /* posted; room for */
    uint32_t items_buffered, items_done, items_sent, items_arrived;
    uint64_t posted, buffered, sent, arrived, acknowledged;
    uint64_t last_ns; /* the last chunk gets to the receiver's port */
    bool stuck;       /* nothing leaves any more */
    bool purged;      /* LOST at the sender */
};

struct chunk {
    uint32_t from;
    uint64_t bytes;
};

struct port {
    uint64_t rate;
    bool sending, receiving;
    uint32_t turn;       /* the lane that was served last */
    struct chunk *queue; /* ring of queue_size */
    uint32_t queue_size, queue_first, queue_count;
};

/* A session: members by rank. */
struct plan {
    enum { PLAN_PUT, PLAN_FINISH, PLAN_PULL } purpose;
    uint32_t members[SIM_MEMBERS_MAX], count;
    uint64_t view;
    enum { UNDECIDED, COMMITTED, ABORTED } decision;
};

struct member {
    void *memory;
    struct session *session; /* NULL: closed, or crashed */
    uint32_t number;         /* of its plan */
    uint32_t rank;
    uint32_t party; /* the plan whose members finish the object */
    bool interrupted, forgotten;
    struct finish *finish;
    uint64_t view, told_view;
    uint64_t present; /* in that view: a set of members */
    struct session_action *actions;
    uint64_t *skip; /* blocks held from the start; NULL: none */
    struct port port;
    struct lane *lanes;   /* by receiver */
    uint64_t *control_ns; /* by receiver: when the last message gets there */
    bool *lost;           /* by peer: LOST was told */
    bool dead, corrupt, sealed;
    int refuse;
    bool paused;
    uint64_t paused_until_ns;
    struct sim_event *backlog; /* what came in the pause */
    size_t backlog_count, backlog_size;
    uint64_t tick_ns; /* of the one tick that counts; SIM_NEVER: none */
    uint32_t missing; /* blocks */
};

struct sim {
    struct sim_options options;
    struct rng rng;
    struct session_checker checker;
    struct sim_result result;
    struct member *members;
    bool *cut; /* by pair */
    struct plan plans[SIM_PLANS_MAX];
    uint32_t plan_count;
    uint64_t view;
    void **kept; /* memory that events may point to */
    size_t kept_count, kept_size;
    uint32_t incomplete; /* receivers that miss blocks */
    uint64_t now_ns;
    uint64_t next_number, next_item;
    struct sim_event *heap;
    size_t heap_count, heap_size;
};

/* Allocated, zeroed; never NULL. */
void *sim_zeroed(size_t count, size_t bytes);
/* The same, until sim_close(). */
void *sim_keep(struct sim *sim, size_t count, size_t bytes);

void sim_push(struct sim *sim, uint64_t at_ns, const struct sim_event *event);
uint64_t sim_random(struct sim *sim, uint64_t below);
bool sim_is_cut(const struct sim *sim, uint32_t a, uint32_t b);

/* Something happens to a member now, or when it is not paused any more. */
void sim_deliver(struct sim *sim, uint32_t to, uint32_t session, const struct session_event *message);

/* When a message that is sent now gets to the other end: in order. */
uint64_t sim_control_ns(struct sim *sim, uint32_t from, uint32_t to);
/* A member takes part in the session from now on. */
void sim_enter(struct sim *sim, uint32_t member, uint32_t number);
/* A message of the session. */
void sim_send(struct sim *sim, uint32_t session, uint32_t from, uint32_t to, struct session_event message);
/* What a member tells itself after a while, in its present session. */
void sim_tell_later(struct sim *sim, uint32_t member, uint64_t within_ns, struct session_event message);
/* Something touches the member's memory, or its slot, for the session. */
void sim_touch(struct sim *sim, uint32_t member, uint32_t session);

/* The session is over at the member, and the object goes on (again) when there is a view for it. */
void finish_interrupted(struct sim *sim, uint32_t member);
void finish_new_view(struct sim *sim);
/* The member has given up: those who wait for it hear that. */
void finish_forget(struct sim *sim, uint32_t member);
/* What it is told then. */
extern const struct session_event abort_orphan;
/* The member will hear of no decision about what it waits for: its root is gone. */
bool finish_is_orphaned(const struct sim *sim, uint32_t member);
/* The offer of a further session is here. */
void finish_offered(struct sim *sim, uint32_t member, uint32_t number);

void network_open(struct sim *sim, uint32_t member);
void network_close(struct sim *sim, uint32_t member);
/* The pause is over. */
void network_resume(struct sim *sim, uint32_t member);
void network_post(struct sim *sim, uint32_t from, uint32_t to, uint32_t block, uint32_t session);
/* LOST at `from`: nothing more is read or sent. */
void network_purge(struct sim *sim, uint32_t from, uint32_t to);

#endif
