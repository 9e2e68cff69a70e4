/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/table.h"

#include <assert.h>
#include <string.h>

#include "base/bitmap.h"

static uint32_t place(uint32_t *end, uint32_t words)
{
    uint32_t offset = *end;

    *end += words;
    return offset;
}

static struct table_guarded place_guarded(uint32_t *end, uint32_t words)
{
    return (struct table_guarded){.offset = place(end, words + 2), .words = words};
}

void table_layout_init(struct table_layout *layout, uint32_t slots, uint32_t members_max, uint32_t groups)
{
    uint32_t end = BANK_ACCEPTED;

    assert(members_max >= 1 && members_max <= COVEY_MEMBERS_MAX && groups <= VIEW_GROUPS_MAX);
    layout->slots = slots;
    layout->members_max = members_max;
    layout->groups = groups;
    layout->bitmap_words = (uint32_t)BITMAP_WORDS(members_max);
    layout->accepted = place_guarded(&end, 1 + (uint32_t)view_words_max(members_max, groups));
    layout->received = place(&end, groups);
    layout->suspected = place(&end, layout->bitmap_words);
    layout->evicted = place(&end, layout->bitmap_words);
    layout->met = place(&end, layout->bitmap_words);
    layout->tag_head = place(&end, 1);
    layout->bank_words = end;

    end = TABLE_LINKED + TABLE_JOINS;
    layout->candidates = place_guarded(&end, 1 + TABLE_JOINS * VIEW_MEMBER_WORDS);
    layout->banks = place(&end, 2 * layout->bank_words);
    layout->row_words = end;
}

size_t table_slots_bytes(const struct table_layout *layout)
{
    return (size_t)layout->slots * layout->row_words * sizeof(uint64_t);
}

size_t table_private_bytes(const struct table_layout *layout)
{
    return ((size_t)layout->slots + 1) * layout->row_words * sizeof(uint64_t);
}

void table_init(struct table *table, const struct table_layout *layout, void *slots_memory,
                void *private_memory)
{
    table->layout = *layout;
    table->slots = slots_memory;
    table->own = private_memory;
    table->snapshot = table->own + layout->row_words;
}

void table_slot_clear(struct table *table, uint32_t slot)
{
    size_t bytes = table->layout.row_words * sizeof(uint64_t);

    assert(slot < table->layout.slots);
    memset(table->slots + (size_t)slot * table->layout.row_words, 0, bytes);
    memset(table_row(table, slot), 0, bytes);
}

/* Upwards, each load before the next: see the order of columns in table.h. */
static void read_words(uint64_t *to, const uint64_t *from, size_t words)
{
    for (size_t i = 0; i < words; i++)
        to[i] = __atomic_load_n(from + i, __ATOMIC_ACQUIRE);
}

/* The writer posts head, words, tail. If the tail read first equals the head read last, the words between are
 * those of that count: of a later one not a word was visible, for its head would have been before it. Words
 * that cannot be read are not replaced by older ones: whoever reads a promise must not miss what was accepted
 * before it. */
static void read_guarded(uint64_t *to, const uint64_t *from, const struct table_guarded *column)
{
    const uint64_t *live = from + column->offset;
    uint64_t *seen = to + column->offset;
    uint64_t tail = __atomic_load_n(live, __ATOMIC_ACQUIRE);

    if (tail == seen[0])
        return;
    read_words(seen + 1, live + 1, column->words);
    seen[0] = __atomic_load_n(live + column->words + 1, __ATOMIC_ACQUIRE) == tail ? tail : 0;
}

/* A bank that is being prepared for another view says nothing. */
static void read_bank(const struct table_layout *layout, uint64_t *to, const uint64_t *from)
{
    const struct table_guarded *accepted = &layout->accepted;
    uint32_t rest = accepted->offset + accepted->words + 2;
    uint64_t tag = __atomic_load_n(from + BANK_TAG, __ATOMIC_ACQUIRE);

    if (tag != to[BANK_TAG])
        to[accepted->offset] = 0;
    read_words(to + BANK_EPOCH, from + BANK_EPOCH, BANK_ACCEPTED - BANK_EPOCH);
    read_guarded(to, from, accepted);
    read_words(to + rest, from + rest, layout->bank_words - rest);
    to[BANK_TAG] = to[layout->tag_head] == tag ? tag : 0;
}

void table_snapshot(struct table *table, uint32_t slot)
{
    const struct table_layout *layout = &table->layout;
    const uint64_t *live = table->slots + (size_t)slot * layout->row_words;
    uint64_t *seen = table_row(table, slot);

    assert(slot < layout->slots);
    read_words(seen, live, TABLE_LINKED + TABLE_JOINS);
    read_guarded(seen, live, &layout->candidates);
    read_bank(layout, seen + layout->banks, live + layout->banks);
    read_bank(layout, seen + layout->banks + layout->bank_words, live + layout->banks + layout->bank_words);
}
