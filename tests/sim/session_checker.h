/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_SIM_SESSION_CHECKER_H
#define TESTS_SIM_SESSION_CHECKER_H

/* What must hold in every run of a session, whoever drives it. Knows nothing of src/core: it has the members'
 * memory, is told what happens to it, and keeps the first rule that was broken.
 *
 * - A block is read only where it is complete and not released; it lands complete in each member once.
 * - Nothing lands, not even a fence, in a member whose session is closed; nothing is read there either.
 * - Whoever delivers has every byte, and so has every other member that runs.
 * - In the end either all members that run have delivered or none has, and each session is closed.
 * - The root's operation ends once, with 0 if and only if it delivered; a cancelled session is released once.
 */

#include <stdbool.h>
#include <stdint.h>

#define CHECKER_TEXT_MAX 256

struct checker_member {
    uint64_t *content; /* by block; 0: not here */
    uint32_t done_count, release_count, deliver_count;
    int done_code;
    bool closed;
    bool stopped; /* crashed, or paused for ever: nothing is expected of it */
};

struct session_checker {
    uint32_t members, blocks;
    uint64_t seed;
    struct checker_member *member;
    char text[CHECKER_TEXT_MAX]; /* the first violation; "" if none */
};

void checker_init(struct session_checker *checker, uint32_t members, uint32_t blocks, uint64_t seed);
void checker_free(struct session_checker *checker);

/* Note a violation seen elsewhere. */
void checker_fail(struct session_checker *checker, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A member has the block from the start. */
void checker_has(struct session_checker *checker, uint32_t member, uint32_t block);

/* A write reads the block in the sender's memory: what it carries. */
uint64_t checker_read(struct session_checker *checker, uint32_t member, uint32_t block);

/* Some bytes of a block, or a fence, touch the member's memory or slot. */
void checker_touch(struct session_checker *checker, uint32_t member);

/* The block is complete in the member's memory. */
void checker_landed(struct session_checker *checker, uint32_t member, uint32_t block, uint64_t content);

void checker_delivered(struct session_checker *checker, uint32_t member);
void checker_released(struct session_checker *checker, uint32_t member);
void checker_done(struct session_checker *checker, uint32_t member, int code);

/* The driver has freed the session. */
void checker_closed(struct session_checker *checker, uint32_t member);

/* Crashed, or paused for ever. */
void checker_stopped(struct session_checker *checker, uint32_t member);

/* Nothing more will happen. */
void checker_finish(struct session_checker *checker);

#endif
