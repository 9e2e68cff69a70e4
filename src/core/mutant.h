/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CORE_MUTANT_H
#define CORE_MUTANT_H

/* Faults that a test builds into a copy of the membership and the order, to show that the checkers of the
 * simulator see them (tests/sim/check_mutants.c, which switches one on at a time). The library is built
 * without: MUTANT() is then the constant false. */

#include <stdbool.h>

#define MUTANT_ACCEPT_LOWER  1  /* accept a ballot below the promised one */
#define MUTANT_FORGET_VALUE  2  /* propose a value of one's own although one was accepted */
#define MUTANT_TRIM_MAXIMUM  3  /* trim to the maximum received */
#define MUTANT_SKIP_MAJORITY 4  /* take one vote less for a majority */
#define MUTANT_REUSE_BANK    5  /* one bank for all views, whatever its tag says */
#define MUTANT_DELIVER_EARLY 6  /* deliver what was received here, whatever the others have */
#define MUTANT_HASTY_NULL    7  /* take a round for a null though its sender has not said so */
#define MUTANT_FREE_EARLY    8  /* use a ring's room again before everyone has delivered what was there */
#define MUTANT_IGNORE_TAG    9  /* take words of an older view for this one's */
#define MUTANT_IGNORE_TRIM   10 /* deliver all that was received at the end of a view */
#define MUTANT_SEND_TWICE    11 /* send again what was delivered, too */
#define MUTANT_SEND_NONE     12 /* send nothing again in the next view */

#define MUTANTS              12

#ifdef CORE_MUTANTS
extern int core_mutant;
#define MUTANT(fault) (core_mutant == (fault))
#else
#define MUTANT(fault) false
#endif

#endif
