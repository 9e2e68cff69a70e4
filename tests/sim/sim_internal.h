/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_SIM_SIM_INTERNAL_H
#define TESTS_SIM_SIM_INTERNAL_H

/* Between the simulator (sim.c: processes and time, net.c: links) and its checkers (check.c). */

#include "tests/sim/sim.h"

struct sim_pending { /* what a paused process has not seen yet */
    struct membership_event event;
    struct sim_pending *next;
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

    uint64_t received[SIM_GROUPS], delivered[SIM_GROUPS];
    uint64_t *seen;     /* by slot and group: received of the peer in this view */
    uint64_t wedged_ns; /* since when; 0: not */

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
/* A peer's `received`, of the view (epoch, number). */
void process_heard(struct sim_process *process, uint32_t slot, uint64_t epoch, uint64_t number,
                   uint32_t group, uint64_t position);

/* net.c */
void net_connect(struct sim_process *process, const struct membership_peer *peer);
void net_disconnect(struct sim_process *process, uint32_t slot);
void net_push(struct sim_process *process, const struct membership_push *push);
void net_flush(struct sim_process *process); /* the immediates of a step */
void net_tell(struct sim_process *process, uint32_t group);
void net_crashed(struct sim_process *process);
void net_cut_changed(struct sim *sim);
void net_break(struct sim *sim, uint32_t a, uint32_t b);
void net_close(struct sim *sim);
uint32_t net_peer(const struct sim_process *process, uint32_t slot); /* the process at the other end */

/* check.c */
void check_step(struct sim_process *process);
void check_install(struct sim_process *process, const struct membership_actions *actions);
void check_delivery(struct sim_process *process, uint32_t group);
bool check_is_quorum(const struct sim *sim, uint32_t count, uint32_t of, bool has_lowest);

#endif
