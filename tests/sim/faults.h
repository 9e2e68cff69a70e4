/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_SIM_FAULTS_H
#define TESTS_SIM_FAULTS_H

/* One random history of a cluster: a start, mixed faults, then quiet, in which everything must come right.
 *
 * The seed decides all of it: 3 to 9 nodes, the quorum rule, latencies, torn writes, deaths that no link
 * tells of, who starts when; crashes and restarts, pauses, slow nodes, cuts (one pair or a partition, one way
 * or both), broken links, joins, leaves and evictions, several at a time.
 *
 * Two things are left out, because no cluster whose processes keep nothing on disk can survive them: that a
 * quorum of the newest view is gone for good (if it comes to that by a leave, the operator forces a view),
 * and that a majority of the configured nodes is blank and cut off from every survivor. */

#include <stdbool.h>
#include <stdint.h>

#include "tests/sim/sim.h"

/* How many seeds a test runs: enough for every rule to fire, and fewer where each takes ten times as long. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FAULTS_SEEDS 300
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FAULTS_SEEDS 300
#endif
#endif
#ifndef FAULTS_SEEDS
#define FAULTS_SEEDS 2400
#endif

/* Whether everything held and came right; if not, sim->failure says what. The caller closes the sim. */
bool faults_run(struct sim *sim, uint64_t seed);

#endif
