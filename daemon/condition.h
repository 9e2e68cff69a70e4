/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_CONDITION_H
#define DAEMON_CONDITION_H

/* Condition variables that wait by the monotonic clock. */

#include <pthread.h>
#include <stdint.h>
#include <time.h>

static inline void condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* Now, by that clock. */
static inline uint64_t condition_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* The moment timeout_ms from now, for pthread_cond_timedwait(). */
static inline struct timespec condition_deadline(int timeout_ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    return until;
}

#endif
