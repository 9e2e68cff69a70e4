/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CORE_MUTANT_H
#define CORE_MUTANT_H

/* Faults that tests build into copies of the membership, to show that the checkers of the simulator see them.
 * The library is built without: MUTANT() is then the constant false. */

#define MUTANT_ACCEPT_LOWER  1 /* accept a ballot below the promised one */
#define MUTANT_FORGET_VALUE  2 /* propose a value of one's own although one was accepted */
#define MUTANT_TRIM_MAXIMUM  3 /* trim to the maximum received */
#define MUTANT_SKIP_MAJORITY 4 /* take one vote less for a majority */
#define MUTANT_REUSE_BANK    5 /* one bank for all views, whatever its tag says */

#ifndef MEMBERSHIP_MUTANT
#define MEMBERSHIP_MUTANT 0
#endif
#define MUTANT(fault) (MEMBERSHIP_MUTANT == (fault))

#endif
