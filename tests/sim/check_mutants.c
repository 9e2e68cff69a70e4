/* SPDX-License-Identifier: BSD-3-Clause */
/* The checkers find a broken protocol: this program has the faults of core/mutant.h built in. For each of
 * them some seed must fail. The same seeds pass without a fault (check_seeds).
 *
 *     check_mutants          every fault
 *     check_mutants FAULT    that one */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/mutant.h"
#include "tests/sim/faults.h"

#define FIRST 2780 /* any seed would do: behind this one it does not take long */
#define SEEDS 2400

int core_mutant;

static bool is_seen(void)
{
    static struct sim sim;

    for (uint64_t seed = FIRST; seed < FIRST + SEEDS; seed++) {
        bool right = faults_run(&sim, seed);
        if (!right)
            printf("fault %d is seen with seed %" PRIu64 ": %s\n", core_mutant, seed, sim.failure);
        sim_close(&sim);
        if (!right)
            return true;
    }
    printf("fault %d is not seen in %d seeds\n", core_mutant, SEEDS);
    return false;
}

int main(int count, char **arguments)
{
    int first = count == 2 ? atoi(arguments[1]) : 1, last = count == 2 ? first : MUTANTS;
    int status = EXIT_SUCCESS;

    for (core_mutant = first; core_mutant <= last; core_mutant++) {
        if (!is_seen())
            status = EXIT_FAILURE;
    }
    return status;
}
