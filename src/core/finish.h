/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CORE_FINISH_H
#define CORE_FINISH_H

/* An object whose session was broken off because a member was lost: how those who are left finish it.
 *
 * When its session is over at a member (nothing writes to the memory any more: core/session.h), the member
 * keeps the memory and what is in it. Once a view is installed in which all are linked, one of them, the
 * coordinator, decides for all: the root, if it stays; otherwise the lowest rank of the last session that
 * stays. Ranks of a later session keep the order of the one before, so that everyone names the same.
 *
 *      member                          coordinator
 *            <----------------- HAVE(asks)   who does not know the object says
 *      FORGET ------------------------->
 *      HAVE (blocks, digest) ---------->     once its own session is over, in each new view again
 *                                      all have answered, and the coordinator is the root:  START
 *                                      together they lack a block, or someone forgot it:    DROP
 *                                      it lacks a block itself:                             PULL, from one
 * holder after the other, each by a session of two          or START
 *            <------- FORGET (DROP), or the OFFER of a new session of all, which skips what is held
 *
 * A member has one session for the object at a time. Who has answered waits, and an offer or a wish that was
 * sent in an older view than the member's own is turned down: so whatever is offered finds its receivers with
 * their last session over, though views, deaths and offers cross.
 *
 * This module is the coordinator's part, pure. It keeps who has answered in which view, and from whom to pull
 * which block. A view that follows begins anew; what was pulled meanwhile stays. Peers are ranks of the last
 * session. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum finish_step {
    FINISH_WAIT, /* somebody has not answered, or a pull is under way */
    FINISH_PULL, /* from finish_source(): finish_pulled() when its session is over here; it answers again when
                    it is over there */
    FINISH_START, /* everything is here, or will be (the root reads it) */
    FINISH_DROP
};

struct finish;

/* The coordinator, of those who are still in the view: the first of them; members if there is none. */
uint32_t finish_coordinator(const uint64_t *present, uint32_t members);

size_t finish_bytes(uint32_t members, uint32_t blocks);
/* In memory (aligned as malloc's) that the caller frees. */
struct finish *finish_init(void *memory, uint32_t members, uint32_t blocks);

/* This member coordinates in that view; present has its own bit, too. Where others have answered in a later
 * view already, this one is over. */
void finish_open(struct finish *finish, uint64_t view, const uint64_t *present);

/* Answers may come before this member has installed their view. Those of a view gone by change nothing. */
void finish_have(struct finish *finish, uint64_t view, uint32_t rank, const uint64_t *words, uint32_t first,
                 uint32_t count, bool last);
void finish_forgot(struct finish *finish, uint32_t rank);

/* What to do now. held: the blocks that are here; root: this member is the object's root, which has or reads
 * the bytes. */
enum finish_step finish_next(struct finish *finish, uint32_t self, const uint64_t *held, bool root);

/* After FINISH_PULL: from whom; and the blocks that it shall not bring, a bitmap. */
uint32_t finish_source(const struct finish *finish);
void finish_skip(const struct finish *finish, const uint64_t *held, uint64_t *skip);
void finish_pulled(struct finish *finish);

/* The first rank that has not answered, for the error; members if all have. */
uint32_t finish_silent(const struct finish *finish);

#endif
