/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_SIM_SIM_INTERNAL_H
#define TESTS_SIM_SIM_INTERNAL_H

/* Between the simulator (sim.c: processes and time, net.c: links, ordering.c: what processes send each other)
 * and its checkers (check.c, check_order.c). */

#include "core/order.h"
#include "tests/sim/sim.h"

struct sim_pending { /* what a paused process has not seen yet */
    struct membership_event event;
    struct sim_pending *next;
};

struct sim_row;

/* A group at a process: see ordering.c. */
struct sim_group {
    bool selected; /* the process is a member by its id */
    bool entered;  /* it is in a view */
    struct order *order;
    void *memory;
    char *row;
    struct sim_row **peers, *rows; /* by slot; all of them */
    uint32_t members, rank;        /* of the group's members */
    uint32_t ranks[SIM_NODES_MAX]; /* in the view, of each member */
    uint32_t slots[SIM_NODES_MAX]; /* that each is bound to, while it is linked */
    bool heard[SIM_NODES_MAX];     /* since it was looked at */
    uint32_t sent, wanted;         /* messages of its own */
    uint32_t own_delivered;        /* of these */
    uint64_t delivered;            /* position */
    uint32_t *last;                /* by process: number of its next message, + 1; 0: any */
};

struct sim_process {
    struct sim *sim;
    uint32_t index, node;
    uint64_t incarnation;
    bool alive, paused, over; /* over: evicted or left */
    uint64_t clock_ns;        /* its clock is ahead of the simulation's by this */
    struct membership *membership;
    void *memory, *slots_memory;
    struct table_layout layout;
    struct sim_conn **conns; /* by slot */
    uint64_t tick_ns;        /* the TICK that is due; UINT64_MAX: none */
    struct sim_pending *pending, **pending_end;

    struct sim_group groups[SIM_GROUPS];
    struct sim_view *noted; /* the view that it is in; NULL: none yet */
    bool forced;            /* it leaves that for a forced one: others may trim otherwise */
    uint64_t wedged_ns;     /* since when; 0: not */

    /* what the checker saw last in the own row: see check.c */
    uint64_t last_heartbeat, last_number, last_tag[2], last_promised[2], last_accepted[2];
};

/* Time. `later` runs at an absolute time with its arguments. */
typedef void sim_later(struct sim *sim, void *object, uint64_t argument);
void sim_at(struct sim *sim, uint64_t at_ns, sim_later *later, void *object, uint64_t argument);

void sim_fail(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_tracef(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Hand an event to a process, or keep it while it is paused. */
void process_event(struct sim_process *process, const struct membership_event *event);
/* A push to a group's row has announced itself. */
void process_heard(struct sim_process *process, uint32_t slot, uint32_t group);

/* ordering.c */
void ordering_open(struct sim_process *process);
void ordering_close(struct sim_process *process);
void ordering_slot(struct sim_process *process, uint32_t slot); /* new memory for a new link's peer */
void ordering_write(struct sim_process *process, uint32_t slot, uint32_t group, uint32_t offset,
                    uint64_t word);
void ordering_down(struct sim_process *process, uint32_t slot);
void ordering_heard(struct sim_process *process, uint32_t slot, uint32_t group);
void ordering_wedge(struct sim_process *process);
/* Deliver up to the trims, in the view that ends; then enter the next one. */
void ordering_trim(struct sim_process *process, const struct membership_actions *actions);
void ordering_enter(struct sim_process *process, const struct membership_actions *actions);
void ordering_turn(struct sim_process *process);
void ordering_want(struct sim_process *process); /* something to send */
bool ordering_settled(const struct sim_process *process);

/* net.c */
void net_connect(struct sim_process *process, const struct membership_peer *peer);
void net_disconnect(struct sim_process *process, uint32_t slot);
void net_push(struct sim_process *process, const struct membership_push *push);
void net_flush(struct sim_process *process); /* the immediates of a step */
void net_push_group(struct sim_process *process, uint32_t slot, uint32_t group, const char *row,
                    const struct order_push *push);
void net_crashed(struct sim_process *process);
void net_cut_changed(struct sim *sim);
void net_break(struct sim *sim, uint32_t a, uint32_t b);
void net_close(struct sim *sim);
uint32_t net_peer(const struct sim_process *process, uint32_t slot); /* the process at the other end */

/* check.c */
void check_step(struct sim_process *process);
void check_install(struct sim_process *process, const struct membership_actions *actions);
void check_delivery(struct sim_process *process, uint32_t group);
struct sim_view *check_find_view(struct sim *sim, uint64_t epoch, uint64_t number);
/* check_order.c */
void check_message(struct sim_process *process, uint32_t group, uint64_t position, uint32_t sender,
                   uint32_t sequence);
void check_group_enter(struct sim_process *process, uint32_t group);
bool check_is_quorum(const struct sim *sim, uint32_t count, uint32_t of, bool has_lowest);

#endif
