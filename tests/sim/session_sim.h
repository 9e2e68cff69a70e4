/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_SIM_SESSION_SIM_H
#define TESTS_SIM_SESSION_SIM_H

/* One whole session in one process: every member's state machine, a network, a group that orders, and faults,
 * all on one event queue and decided by one seed. With `finish`, those who are left after crashes go on with
 * further sessions in the same memory (core/finish.h).
 *
 * Network. Each member has one full-duplex port of link_rate, which all its edges share. A pair has a control
 * lane (messages, in order, after latency and jitter) and a data lane, which behaves like a TCP connection
 * over a shaped link: what is posted enters a send buffer of buffer_bytes, the sender's port takes chunks
 * from its lanes in turn, the receiver's port serves chunks as they come, and room in the buffer is made by
 * acknowledgements. A write is done, for its sender, when all of it is in the buffer or, with
 * delivery_complete, when it is acknowledged.
 *
 * Faults. A member crashes (its peers learn it at different times, and what it had buffered may still land),
 * is paused (for ever, too), or is slow; the links of a pair are cut; a data lane gets stuck. After LOST
 * nothing of the pair's lands any more; until then everything may.
 *
 * Group. Decides once: COMMIT when the root's ORDER reaches it, ABORT when view_ns have passed since the
 * first crash or cut. It tells all members that run. With `finish` it decides once a session, and ABORT only
 * where the root is not in the new view. */

#include "base/rng.h"
#include "core/session.h"
#include "tests/sim/session_checker.h"

#define SIM_NEVER UINT64_MAX

/* How a port divides its link among the lanes that have something to send. */
enum sim_sharing {
    SIM_FAIR,    /* a chunk of each in turn */
    SIM_UNEQUAL, /* some lanes get eight times as much as others */
    SIM_GREEDY,  /* one lane gets all, as long as it has something */
    SIM_IN_ORDER /* as posted */
};
#define SIM_SHARINGS 4

struct sim_options {
    struct schedule schedule;
    uint32_t window, edge_window;
    uint64_t overtake_ns, stall_ns, block_ns;
    uint64_t block_bytes, chunk_bytes, buffer_bytes;
    uint64_t link_rate; /* bytes per second */
    uint64_t latency_ns, jitter_ns;
    uint64_t ready_ns;   /* between two blocks that become ready at the root; 0: all are from the start */
    uint64_t local_ns;   /* LAND, VERIFY take up to this */
    uint64_t detect_ns;  /* LOST comes up to this after a crash or cut */
    uint64_t view_ns;    /* a new view, after a crash or cut */
    uint64_t suspect_ns; /* the same, after a pause without end */
    bool delivery_complete;
    bool finish; /* the faults are crashes, pauses that end, and the root's giving up */
    enum sim_sharing sharing;
    uint64_t seed;
};

struct sim;

struct sim *sim_open(const struct sim_options *options);
void sim_close(struct sim *sim);

/* Before sim_run(): what happens when. */
void sim_crash_at(struct sim *sim, uint32_t member, uint64_t at_ns);
void sim_pause_at(struct sim *sim, uint32_t member, uint64_t at_ns, uint64_t until_ns /* SIM_NEVER */);
void sim_cut_at(struct sim *sim, uint32_t a, uint32_t b, uint64_t at_ns);
void sim_stick_at(struct sim *sim, uint32_t from, uint32_t to, uint64_t at_ns);
void sim_abort_at(struct sim *sim, uint32_t member, uint64_t at_ns);
void sim_refuse(struct sim *sim, uint32_t member, int code);
void sim_corrupt(struct sim *sim, uint32_t member);
void sim_slow(struct sim *sim, uint32_t member, uint32_t divisor); /* of its port's rate */
void sim_hold(struct sim *sim, uint32_t member, uint32_t block);   /* from the start */

/* Run until nothing happens any more, or limit_ns. Returns the time of the last event. */
uint64_t sim_run(struct sim *sim, uint64_t limit_ns);

/* What came of it. */
struct sim_result {
    uint64_t received_ns; /* when the last member had everything; 0: never */
    uint64_t done_ns;     /* the end of the root's operation */
    int code;
    uint32_t culprit;
    uint32_t disconnects; /* asked for by sessions */
    uint64_t events;
    uint32_t finishes, pulls, drops; /* further sessions of all, and of two; objects given up */
};
const struct sim_result *sim_result(const struct sim *sim);
struct session_checker *sim_checker(struct sim *sim);

/* The least time that the object takes over one link. */
uint64_t sim_floor_ns(const struct sim_options *options);

#endif
