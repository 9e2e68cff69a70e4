/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CORE_ORDER_H
#define CORE_ORDER_H

/* The total order of one group's entries, at one member: rings, rounds, stability (after Derecho: Jha et al.,
 * "Derecho: fast state machine replication for cloud services", ACM TOCS 36(2), 2019).
 *
 * Every member has a row of its own: a few words and a ring of entries. It pushes what it adds to its row
 * into the memory that each other member has for it, by one-sided writes, and reads the rows that the others
 * push. There are no messages, nobody leads, and nothing is pushed while nothing is sent.
 *
 * Rounds. A member gives each entry of its own a round of its own, ascending. Entries are ordered by round,
 * and by rank within a round. `head` is the round up to which a member has made up its mind: a round below it
 * in which it has no entry is a null. A null takes no room and no push of its own: a member that has nothing
 * to send keeps its head one round ahead of the last entry of the others, with the push that says what it has
 * received. So the next entry of whoever sends now finds its place at once.
 *
 * Positions. The entries of a view are numbered in their order, behind the last one of the view before. What
 * a member has `received` is the position up to which it has every entry. When everyone has received an entry
 * it is stable: then it is delivered, everywhere, in order.
 *
 *      sender                         the others
 *      ring, head    ------------->   received, head          one way
 *                    <------------>   from all to all         two ways: stable everywhere
 *
 * Views. Once wedged nothing is received any more. The agreement's trim is the least that those who stay have
 * received: order_trim() makes it stable, order_next() hands it out, and order_enter() forgets the rest, of
 * which nobody can have delivered anything, for that takes everyone's word. What this member had sent and is
 * not delivered is sent again in the next view, in the same order, before anything else.
 *
 * Room. A member says how much of each ring it has delivered, with whatever it pushes anyway, and by itself
 * when a quarter of a ring waits to be said. The sender uses room again once everyone has said so. An entry
 * needs at most three eighths of a ring, so it always fits once what is before it is delivered: there is no
 * window or count that members would have to agree on.
 *
 * A row in memory; one bank per view, chosen by the lowest bit of its number, as in core/table.h:
 *
 *     bank 0 | bank 1
 *     bank:  PUBLISHED | RECEIVED | DELIVERED | 0... (64 bytes) | ring
 *
 *     63          48 47                  28 27                               0
 *     +-------------+----------------------+----------------------------------+
 *     | view's tag  | end of its entries   | head                             |   PUBLISHED
 *     +-------------+----------------------+----------------------------------+
 *     | view's tag  | entries of this view that it has received               |   RECEIVED
 *     +-------------+---------------------------------------------------------+
 *     | view's tag  | end of what it has delivered of the reader's entries    |   DELIVERED
 *     +-------------+---------------------------------------------------------+
 *
 * Ends are in units since the view began. The lower bits of an end and a head tell the whole, for no member
 * gets further ahead of another than its ring has units, and by two rounds per entry that the other has not
 * delivered.
 *
 * An entry begins at a unit of 16 bytes and is never cut in two by the ring's end:
 *
 *     0                       4       5          8                              16
 *     +-----------------------+-------+----------+------------------------------+------ ... ------+
 *     | bytes                 | kind  | 0        | round                        | bytes, to a unit |
 *     +-----------------------+-------+----------+------------------------------+------ ... ------+
 *
 * Kind 0 fills the ring up to its end. Words are in host order, each becomes visible whole, and each says
 * which view it is of, so that nothing has to be cleared and a late write of an older view says nothing.
 * Entries are pushed before the PUBLISHED word that covers them, which has its end and head in one word, so
 * that a head is never seen without the entries below it. DELIVERED differs from peer to peer.
 *
 * Rows of others are not trusted: each entry is checked before it is used, each time.
 *
 * Pure: no clock, no I/O, no allocation; the memory is the caller's. One thread. Cannot fail unless it says
 * so. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/mutant.h"

#define ORDER_UNIT_BYTES 16
#define ORDER_PUSH_WORDS 3
#define ORDER_KIND_MAX   255

struct order_config {
    uint32_t members_max; /* of a view: 1..COVEY_MEMBERS_MAX */
    uint32_t ring_bytes;  /* a multiple of 128, 256 .. 2^20; the same at every member */
};

/* One entry in its place. */
struct order_entry {
    uint64_t position;
    uint32_t rank; /* of its sender */
    uint8_t kind;  /* as given to order_send() */
    const void *data;
    uint32_t bytes;
};

/* What to write into a peer's memory for this member, in this order: the ranges of the own row, each to the
 * same offset there; then the words, to words_offset. Behind the last one an immediate. */
struct order_push {
    struct order_range {
        uint32_t offset, bytes;
    } ranges[2];
    uint32_t range_count;
    uint32_t words_offset;
    uint64_t words[ORDER_PUSH_WORDS]; /* to be copied when it is posted */
};

struct order;

size_t order_bytes(const struct order_config *config);
/* Bytes of a row: of the own one, and of the memory that a peer writes. */
size_t order_row_bytes(const struct order_config *config);
/* The largest entry: three eighths of a ring, less its header. */
uint32_t order_entry_bytes_max(const struct order_config *config);

/* Of no view. memory: order_bytes(); own_row: zeroed; both aligned to 16 bytes, and outlive it. */
struct order *order_init(const struct order_config *config, void *memory, void *own_row);

/* Forget everything: this member was left out. */
void order_reset(struct order *order);

/* --- Views ---------------------------------------------------------------------------------------------- */

/* Nothing is received, sent or pushed until order_enter(). */
void order_wedge(struct order *order);

/* What is stable in the view that ends: at most what was received. Take it with order_next() before
 * order_enter(). */
void order_trim(struct order *order, uint64_t position);

/* The next view: of that many members (1..members_max), this one being `rank`. Its entries are numbered from
 * position + 1. All peers are unbound. */
void order_enter(struct order *order, uint64_t number, uint32_t members, uint32_t rank, uint64_t position);

/* The memory that this member of the view writes its row to: zeroed before the peer could write. It may have
 * been written already. It stays readable until order_enter() or order_reset(). */
void order_bind(struct order *order, uint32_t rank, const void *row);
bool order_bound(const struct order *order, uint32_t rank);

/* This node can write to that member: all of this view is to be pushed. Once per view. */
void order_link(struct order *order, uint32_t rank);
/* It cannot any more, in this view. What it had pushed here stays. */
void order_unlink(struct order *order, uint32_t rank);

/* --- Sending -------------------------------------------------------------------------------------------- */

/* Append an entry; the bytes are copied. kind: 1..ORDER_KIND_MAX. Returns 0; COVEY_AGAIN while there is no
 * room or no view; COVEY_TOO_LARGE. */
int order_send(struct order *order, uint8_t kind, const void *data, uint32_t bytes);

/* Whether something is to be pushed to that member, and what; it then counts as pushed. */
bool order_push(struct order *order, uint32_t rank, struct order_push *push);

/* --- Receiving ------------------------------------------------------------------------------------------ */

/* A push of that member has announced itself, or may have. COVEY_PROTOCOL: it has written what is no entry;
 * then nothing more is taken from it. */
int order_look(struct order *order, uint32_t rank);

/* Take stock after looks and sends: what is received and stable now, and what this member has to say. */
void order_advance(struct order *order);

uint64_t order_received(const struct order *order); /* position */
uint64_t order_stable(const struct order *order);   /* position */

/* The next stable entry; false if there is none. Its data is valid until the next call of any function here.
 */
bool order_next(struct order *order, struct order_entry *entry);

#endif
