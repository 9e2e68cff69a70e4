/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

/* Whole clusters in one process, on a virtual clock; one seed decides everything.
 *
 * Node i has id i. Nodes 0..configured-1 are in the list, later ones are elastic. A node runs one process at
 * a time; a restart is another process with another incarnation. Links carry the pushes of the membership as
 * the fabric contract allows at worst: each takes its own time, in the order of posting per direction, a
 * write of several words becomes visible in pieces, in any order of its words; a link that is cut holds what
 * is on its way, breaks after a while, and nothing more comes out of it. The memory of a process that is
 * paused is still written.
 *
 * Each process plays an application with two groups (0: everyone; 1: the first half of the configured nodes):
 * it sends messages through the order of each (core/order.h) and delivers what is stable.
 *
 * The checkers (check.c, check_order.c) know what was installed and delivered, and nothing of how it came
 * about. The first thing that is wrong is kept in `failure`; the simulation stops there. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "core/membership.h"

#define SIM_NODES_MAX     72
#define SIM_PROCESSES_MAX 400
#define SIM_GROUPS        2
#define SIM_US            UINT64_C(1000)
#define SIM_MS            (1000 * SIM_US)
#define SIM_VIEWS_MAX     1024
#define SIM_TRACE_BYTES   (1u << 18)

struct sim_options {
    uint32_t configured;
    enum membership_quorum quorum;
    uint64_t heartbeat_ns, suspect_after_ns, batch_ns;
    uint64_t latency_ns;     /* at least, one way */
    uint64_t jitter_ns;      /* at most, besides */
    uint32_t torn_percent;   /* of the writes of several words */
    uint32_t silent_percent; /* of the deaths of which the link says nothing */
    bool application;        /* send and deliver */
    bool restart_evicted;    /* as the node layer does */
};

/* Small and fixed: what scenarios start from. 1 ms heartbeats of 10, 100 us one way. */
void sim_defaults(struct sim_options *options, uint32_t configured);

struct sim_process;
struct sim_conn;
struct sim_event;

/* What was delivered in a view, in the order of whoever was first: pairs of sender and its number. */
struct sim_log {
    uint32_t (*messages)[2];
    size_t count, capacity;
};

/* A view that somebody installed. */
struct sim_view {
    struct view *view;
    uint64_t trim[SIM_GROUPS];      /* of the view before */
    uint64_t delivered[SIM_GROUPS]; /* the highest position that anyone delivered in this view */
    struct sim_log logs[SIM_GROUPS];
    uint64_t since_ns, last_ns; /* first and last installation */
};

struct sim {
    struct sim_options options;
    struct rng rng;
    uint64_t now_ns;
    uint64_t sequence;
    uint32_t nodes; /* ever started */
    struct sim_process *processes[SIM_PROCESSES_MAX];
    uint32_t process_count;
    uint32_t current[SIM_NODES_MAX]; /* process of each node; UINT32_MAX: none yet */
    struct sim_conn *conns;
    struct sim_event *heap;
    size_t heap_count, heap_size;
    bool cut[SIM_NODES_MAX][SIM_NODES_MAX]; /* from, to */
    uint64_t slow_ns[SIM_NODES_MAX];        /* added to what this node sends and receives */
    bool forced;                            /* an operator forced a view: epochs may differ */
    bool quiet;                             /* the applications have nothing more to say */

    struct sim_view views[SIM_VIEWS_MAX];
    uint32_t view_count;
    uint64_t rules[MEMBERSHIP_RULE_COUNT]; /* how often each fired */
    uint64_t steps;
    uint64_t messages;         /* delivered, by the first to do so */
    uint64_t longest_wedge_ns; /* from wedged to installed, at one node */

    char failure[512]; /* "": nothing is wrong */
    char *trace;
    size_t trace_bytes;

    /* Called after a process fired a rule, its pushes on their way. May be NULL. */
    void (*on_rule)(struct sim *sim, uint32_t node, enum membership_rule rule);
    uint32_t strikes; /* faults that on_rule may still make */
};

void sim_init(struct sim *sim, const struct sim_options *options, uint64_t seed);
void sim_close(struct sim *sim);

/* --- What happens to nodes. Each takes effect now. ------------------------------------------------------ */

void sim_boot(struct sim *sim, uint32_t node);             /* a process starts, or the node's next one */
void sim_boot_all(struct sim *sim);                        /* the configured ones, at once */
uint32_t sim_join(struct sim *sim);                        /* a new elastic node; returns it */
void sim_crash(struct sim *sim, uint32_t node);            /* kill -9 */
void sim_pause(struct sim *sim, uint32_t node);            /* SIGSTOP */
void sim_resume(struct sim *sim, uint32_t node);           /* SIGCONT */
void sim_cut(struct sim *sim, uint32_t from, uint32_t to); /* one way */
void sim_cut_both(struct sim *sim, uint32_t a, uint32_t b);
/* Cut every pair of which one is in the set and the other is not. Bits are nodes. */
void sim_partition(struct sim *sim, uint64_t set);
void sim_heal(struct sim *sim);                          /* all cuts, pauses and slowness */
void sim_break(struct sim *sim, uint32_t a, uint32_t b); /* the link breaks; it may be made again */
int sim_leave(struct sim *sim, uint32_t node);
int sim_evict(struct sim *sim, uint32_t at, uint32_t node);
int sim_force(struct sim *sim, uint32_t at);

/* --- Time ------------------------------------------------------------------------------------------------
 */

void sim_run(struct sim *sim, uint64_t duration_ns);
/* Run until every live process is RUNNING in one view of exactly the live processes, for a while. False if
 * that does not come within limit_ns (which is no failure by itself) or something is wrong. */
bool sim_settle(struct sim *sim, uint64_t limit_ns);
bool sim_settled(const struct sim *sim);

/* --- Looking ---------------------------------------------------------------------------------------------
 */

bool sim_alive(const struct sim *sim, uint32_t node);
enum membership_state sim_state(const struct sim *sim, uint32_t node);
const struct view *sim_view(const struct sim *sim, uint32_t node);
uint64_t sim_incarnation(const struct sim *sim, uint32_t node);
uint64_t sim_delivered(const struct sim *sim, uint32_t node, uint32_t group);
/* Whether every live process has delivered all that it ever sent, and the same as the others. Of a settled
 * cluster that is quiet. */
bool sim_all_delivered(const struct sim *sim);
/* "3{0,1,2}": number and ids of the node's view. Valid until the next call. */
const char *sim_view_text(const struct sim *sim, uint32_t node);
/* The newest view that anyone installed; NULL if there is none. */
const struct view *sim_newest(const struct sim *sim);
/* The newest view that a live process is in, without the node `but` (UINT32_MAX: no such node). */
const struct view *sim_newest_known(const struct sim *sim, uint32_t but);
/* Whether, without the node `but`, the cluster can go on: live processes are a quorum of the newest view, and
 * of the newest one that any of them knows. View 0 counts as the configured nodes. */
bool sim_quorum_lives(const struct sim *sim, uint32_t but);
/* The end of the trace: what a failed assertion prints. */
const char *sim_trace_tail(const struct sim *sim);

#endif
