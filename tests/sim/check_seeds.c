/* SPDX-License-Identifier: BSD-3-Clause */
/* Random histories (tests/sim/faults.h): nothing that must hold is broken, and all comes right once the
 * faults have stopped.
 *
 *     check_seeds                  the seeds that `make check` runs
 *     check_seeds FROM COUNT       these seeds
 *     check_seeds --trace SEED     one, with its whole trace */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/faults.h"

static struct sim sim;

static bool run_one(uint64_t seed)
{
    bool right = faults_run(&sim, seed);

    if (!right)
        printf("seed %" PRIu64 ": %s\n%s\nAgain: check_seeds --trace %" PRIu64 "\n", seed, sim.failure,
               sim_trace_tail(&sim), seed);
    return right;
}

static int trace_one(uint64_t seed)
{
    bool right = faults_run(&sim, seed);

    fputs(sim.trace, stdout);
    sim_close(&sim);
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Rules that a run of this many seeds must have seen, else the faults are too tame to prove anything. */
static int check_coverage(const uint64_t *rules)
{
    int status = EXIT_SUCCESS;

    for (int rule = 0; rule < MEMBERSHIP_RULE_COUNT; rule++) {
        if (rules[rule] != 0 || rule == MEMBERSHIP_RULE_MALFORMED)
            continue;
        printf("no seed made the rule %s fire\n", membership_rule_name(rule));
        status = EXIT_FAILURE;
    }
    return status;
}

int main(int count, char **arguments)
{
    uint64_t rules[MEMBERSHIP_RULE_COUNT] = {0}, steps = 0, views = 0, messages = 0;
    uint64_t from = count == 3 ? strtoull(arguments[1], NULL, 10) : 0;
    uint64_t seeds = count == 3 ? strtoull(arguments[2], NULL, 10) : FAULTS_SEEDS;

    if (count == 3 && strcmp(arguments[1], "--trace") == 0)
        return trace_one(seeds);
    for (uint64_t seed = from; seed < from + seeds; seed++) {
        bool right = run_one(seed);
        for (int rule = 0; rule < MEMBERSHIP_RULE_COUNT; rule++)
            rules[rule] += sim.rules[rule];
        steps += sim.steps;
        views += sim.view_count;
        messages += sim.messages;
        sim_close(&sim);
        if (!right)
            return EXIT_FAILURE;
    }
    printf("%" PRIu64 " seeds, %" PRIu64 " views, %" PRIu64 " steps, %" PRIu64 " messages\n", seeds, views,
           steps, messages);
    return seeds < 2000 ? EXIT_SUCCESS : check_coverage(rules);
}
