/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CORE_TABLE_H
#define CORE_TABLE_H

/* The shared-state table of the cluster: a row per node, written by that node only, pushed column by column
 * into a slot of each peer's table (the SST of Derecho: Jha et al., ACM TOCS 36(2), 2019).
 *
 * A slot is a place for one peer's row here; the node layer picks one that is free for each link and tells
 * the peer where it is. Slots are local: the same peer has other slots elsewhere. A slot is free again after
 * LINK_DOWN. Rows and links outlive views. Columns that belong to a view are in one of two banks, chosen by
 * the lowest bit of the view's number, so that what a late write says about view v is never read as said
 * about v + 1.
 *
 * Words are 8 bytes, in host order, and each becomes visible whole. One push is one write; writes to a peer
 * become visible in the order in which they were posted, the words within one write in any order. Therefore:
 * - a column that must not be seen before another is pushed after it, by a write of its own;
 * - the reader goes through a row upwards, so a column that is written later has the lower offset: what was
 *   true when the later one was written is then still to be read;
 * - columns of several words are guarded: a head count, the words, a tail count, three writes in this order;
 *   the reader takes tail, words, head, and the column counts as unreadable (tail 0) unless both are the
 * same, until the push that ends the update announces itself.
 *
 * The row, in words:
 *
 *     HEARTBEAT | NUMBER | FLAGS | READY | linked[TABLE_JOINS] | candidates (guarded) | bank 0 | bank 1
 *
 *     bank:  TAG | EPOCH | PROMISED | COMMITTED | RENEW | accepted (guarded: ballot, value)
 *            | received[groups] | suspected[] | evicted[] | met[] | TAG_HEAD
 *
 * TAG is the view's number + 1 (0: never used); it and TAG_HEAD guard the whole bank while it is prepared for
 * a new view.
 *
 * Pure: the memory is the caller's. Only words in slots are written by others; they are read here with
 * acquire loads. One thread. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/mutant.h"
#include "core/view.h"

#define TABLE_JOINS 16 /* joiners that are brought up at the same time */

enum table_column { TABLE_HEARTBEAT, TABLE_NUMBER, TABLE_FLAGS, TABLE_READY, TABLE_LINKED };
enum table_bank_column { BANK_TAG, BANK_EPOCH, BANK_PROMISED, BANK_COMMITTED, BANK_RENEW, BANK_ACCEPTED };

enum table_flags {
    TABLE_JOIN = 1,  /* wants to be a member */
    TABLE_LEAVE = 2, /* wants to be none */
    TABLE_FORCE = 4  /* its operator declares a view without a quorum */
};

/* A guarded column's place: tail at offset, words after it, head after those. */
struct table_guarded {
    uint32_t offset; /* in words */
    uint32_t words;  /* without the two counts */
};

struct table_layout {
    uint32_t slots;       /* rows for peers */
    uint32_t members_max; /* 1..COVEY_MEMBERS_MAX */
    uint32_t groups;      /* 0..VIEW_GROUPS_MAX */
    uint32_t bitmap_words;
    /* offsets in words: from the row's start, and for what is in a bank from the bank's start */
    struct table_guarded candidates;
    struct table_guarded accepted;
    uint32_t received, suspected, evicted, met, tag_head;
    uint32_t bank_words;
    uint32_t banks; /* of bank 0 */
    uint32_t row_words;
};

struct table {
    struct table_layout layout;
    uint64_t *own;      /* this node's row: what pushes send */
    uint64_t *slots;    /* peers' rows; remote writes land here */
    uint64_t *snapshot; /* what this step sees of them */
};

/* The offsets for a table of this size. */
void table_layout_init(struct table_layout *layout, uint32_t slots, uint32_t members_max, uint32_t groups);

/* Bytes that peers may write, to be registered: slot s is at s * row_words * 8. */
size_t table_slots_bytes(const struct table_layout *layout);
/* Bytes of the own row and the snapshots. */
size_t table_private_bytes(const struct table_layout *layout);

/* slots_memory and private_memory are zeroed, aligned to 8 bytes and outlive the table. */
void table_init(struct table *table, const struct table_layout *layout, void *slots_memory,
                void *private_memory);

/* Forget the former owner of a slot. Call it before the slot is granted to a peer. */
void table_slot_clear(struct table *table, uint32_t slot);

/* See what has become visible in a slot. */
void table_snapshot(struct table *table, uint32_t slot);

/* The words of a guarded column; NULL while it is unreadable. `base` is the row or bank that it is in. */
static inline const uint64_t *table_guarded_words(const uint64_t *base, const struct table_guarded *column)
{
    return base[column->offset] != 0 ? base + column->offset + 1 : NULL;
}

static inline uint64_t *table_row(const struct table *table, uint32_t slot)
{
    return table->snapshot + (size_t)slot * table->layout.row_words;
}

static inline uint32_t table_bank_offset(const struct table_layout *layout, uint64_t number)
{
    return layout->banks + (MUTANT(MUTANT_REUSE_BANK) ? 0 : (uint32_t)(number & 1)) * layout->bank_words;
}

/* The bank of a view in a row, own or snapshot. */
static inline uint64_t *table_bank(const struct table *table, uint64_t *row, uint64_t number)
{
    return row + table_bank_offset(&table->layout, number);
}

/* Whether the bank says something about this view. */
static inline bool table_bank_is(const uint64_t *bank, uint64_t epoch, uint64_t number)
{
    return MUTANT(MUTANT_REUSE_BANK) || (bank[BANK_TAG] == number + 1 && bank[BANK_EPOCH] == epoch);
}

#endif
