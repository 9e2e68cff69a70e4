/* SPDX-License-Identifier: BSD-3-Clause */
/* The checkers find a broken protocol: this program is built with one of the faults of core/mutant.h, and
 * some seed must fail for it. The same seeds pass without the fault (check_seeds). */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/mutant.h"
#include "tests/sim/faults.h"

#define SEEDS 2400

int main(void)
{
    static struct sim sim;

    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        bool right = faults_run(&sim, seed);
        if (!right)
            printf("fault %d is seen with seed %" PRIu64 ": %s\n", MEMBERSHIP_MUTANT, seed, sim.failure);
        sim_close(&sim);
        if (!right)
            return EXIT_SUCCESS;
    }
    printf("fault %d is not seen in %d seeds\n", MEMBERSHIP_MUTANT, SEEDS);
    return EXIT_FAILURE;
}
