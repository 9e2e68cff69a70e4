/* SPDX-License-Identifier: BSD-3-Clause */
#include <assert.h>
#include <string.h>

#include "core/membership_state.h"

void rows_trace(struct membership *m, enum membership_rule rule, uint32_t id, uint64_t value)
{
    struct membership_actions *actions = m->actions;

    if (actions->trace_count == MEMBERSHIP_TRACES_MAX) {
        actions->traces_lost++;
        return;
    }
    actions->traces[actions->trace_count++] =
        (struct membership_trace){.rule = rule, .id = id, .number = m->view.number, .value = value};
}

static void push(struct membership *m, uint32_t slot, uint32_t offset, uint32_t words)
{
    struct membership_actions *actions = m->actions;

    assert(actions->push_count < MEMBERSHIP_PUSHES_MAX);
    actions->pushes[actions->push_count++] =
        (struct membership_push){.slot = slot,
                                 .offset = offset * (uint32_t)sizeof(uint64_t),
                                 .bytes = words * (uint32_t)sizeof(uint64_t)};
}

void rows_init(struct membership *m)
{
    const struct table_layout *layout = &m->table.layout;
    uint64_t *own = m->table.own;
    uint64_t *bank = own + layout->banks;

    own[TABLE_HEARTBEAT] = 1;
    bank[BANK_TAG] = bank[layout->tag_head] = 1;
    m->guard_count = 1;
    bank[layout->accepted.offset] = bank[layout->accepted.offset + layout->accepted.words + 1] = 1;
    own[layout->candidates.offset] = own[layout->candidates.offset + layout->candidates.words + 1] = 1;
}

uint64_t *rows_own_bank(struct membership *m)
{
    return table_bank(&m->table, m->table.own, m->view.number);
}

void rows_put(struct membership *m, uint32_t offset, uint64_t value)
{
    if (m->table.own[offset] == value)
        return;
    m->table.own[offset] = value;
    push(m, MEMBERSHIP_EVERYONE, offset, 1);
}

void rows_put_bank(struct membership *m, uint32_t column, uint64_t value)
{
    rows_put(m, table_bank_offset(&m->table.layout, m->view.number) + column, value);
}

void rows_put_words(struct membership *m, uint32_t column, const uint64_t *words, uint32_t count)
{
    uint32_t offset = table_bank_offset(&m->table.layout, m->view.number) + column;

    if (memcmp(m->table.own + offset, words, count * sizeof(*words)) == 0)
        return;
    memcpy(m->table.own + offset, words, count * sizeof(*words));
    push(m, MEMBERSHIP_EVERYONE, offset, count);
}

void rows_put_bitmap(struct membership *m, uint32_t column, const uint64_t *bits)
{
    rows_put_words(m, column, bits, m->table.layout.bitmap_words);
}

static void push_guarded(struct membership *m, uint32_t slot, uint32_t offset,
                         const struct table_guarded *column, uint32_t count)
{
    push(m, slot, offset + column->words + 1, 1);
    push(m, slot, offset + 1, count);
    push(m, slot, offset, 1);
}

void rows_put_guarded(struct membership *m, uint32_t base, const struct table_guarded *column,
                      const uint64_t *words, uint32_t count)
{
    uint64_t *own = m->table.own + base + column->offset;

    assert(count >= 1 && count <= column->words);
    own[column->words + 1] = ++m->guard_count;
    memmove(own + 1, words, count * sizeof(*words));
    own[0] = m->guard_count;
    push_guarded(m, MEMBERSHIP_EVERYONE, base + column->offset, column, count);
}

void rows_reset_bank(struct membership *m, uint64_t epoch, uint64_t number)
{
    static const uint64_t nothing_accepted = 0;
    const struct table_layout *layout = &m->table.layout;
    uint32_t base = table_bank_offset(layout, number);
    uint64_t *bank = m->table.own + base;

    rows_put(m, base + layout->tag_head, number + 1);
    bank[BANK_EPOCH] = epoch;
    bank[BANK_PROMISED] = bank[BANK_COMMITTED] = bank[BANK_RENEW] = 0;
    memset(bank + layout->received, 0, (layout->tag_head - layout->received) * sizeof(*bank));
    rows_put_guarded(m, base, &layout->accepted, &nothing_accepted, 1);
    push(m, MEMBERSHIP_EVERYONE, base + layout->received, layout->tag_head - layout->received);
    push(m, MEMBERSHIP_EVERYONE, base + BANK_EPOCH, BANK_ACCEPTED - BANK_EPOCH);
    rows_put(m, base + BANK_TAG, number + 1);
}

/* Words in use of an accepted column: the ballot, and the value if there is one. */
static uint32_t accepted_words(const struct table_layout *layout, const uint64_t *words)
{
    if (words[0] == 0)
        return 1;
    return 1 + (uint32_t)view_value_words(words + 1, layout->members_max, layout->groups);
}

/* The tag comes last: until it is there the peer takes nothing from the bank. */
static void push_bank(struct membership *m, uint32_t slot, uint32_t base)
{
    const struct table_layout *layout = &m->table.layout;
    const uint64_t *bank = m->table.own + base;

    if (bank[BANK_TAG] == 0)
        return;
    push(m, slot, base + layout->received, layout->tag_head + 1 - layout->received);
    push_guarded(m, slot, base + layout->accepted.offset, &layout->accepted,
                 accepted_words(layout, bank + layout->accepted.offset + 1));
    push(m, slot, base + BANK_EPOCH, BANK_ACCEPTED - BANK_EPOCH);
    push(m, slot, base + BANK_TAG, 1);
}

void rows_push_all(struct membership *m, uint32_t slot)
{
    const struct table_layout *layout = &m->table.layout;

    push_bank(m, slot, layout->banks);
    push_bank(m, slot, layout->banks + layout->bank_words);
    push_guarded(m, slot, layout->candidates.offset, &layout->candidates, layout->candidates.words);
    push(m, slot, TABLE_HEARTBEAT, TABLE_LINKED + TABLE_JOINS);
}

void rows_collect(struct membership *m)
{
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        uint64_t *row = rank == m->rank               ? m->table.own
                        : m->slots[rank] == SLOT_NONE ? NULL
                                                      : table_row(&m->table, m->slots[rank]);
        const uint64_t *bank = row != NULL ? table_bank(&m->table, row, m->view.number) : NULL;
        m->banks[rank] = bank != NULL && table_bank_is(bank, m->view.epoch, m->view.number) ? bank : NULL;
    }
}

const uint64_t *rows_accepted(const struct membership *m, const uint64_t *bank)
{
    return table_guarded_words(bank, &m->table.layout.accepted);
}

const uint64_t *rows_view_value(const struct membership *m, uint32_t slot, uint64_t *ballot)
{
    uint64_t *row = table_row(&m->table, slot);
    uint64_t number = row[TABLE_NUMBER];
    const uint64_t *bank, *accepted;

    if (number == 0)
        return NULL;
    bank = table_bank(&m->table, row, number - 1);
    accepted = rows_accepted(m, bank);
    if (bank[BANK_TAG] != number || accepted == NULL || accepted[0] == 0 ||
        bank[BANK_COMMITTED] != accepted[0] || accepted[2] != number)
        return NULL;
    *ballot = accepted[0];
    return accepted + 1;
}
