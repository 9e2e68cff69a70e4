/* SPDX-License-Identifier: BSD-3-Clause */
#include <assert.h>
#include <string.h>

#include "core/membership_state.h"

/* What the row says about the view that its node is in. */
static void read_agreement(const struct membership *m, const uint64_t *row, struct membership_row *out)
{
    const struct table_layout *layout = &m->table.layout;
    const uint64_t *bank = row + table_bank_offset(layout, out->number);
    const uint64_t *accepted = rows_accepted(m, bank);

    if (bank[BANK_TAG] != out->number + 1)
        return;
    out->promised = bank[BANK_PROMISED];
    out->accepted = accepted != NULL ? accepted[0] : 0;
    out->committed = bank[BANK_COMMITTED];
    if (out->promised != 0 && out->number > 0)
        out->received = bank + layout->received;
}

/* What it says, or said, about the members of this node's view. */
static void read_accusations(const struct membership *m, const uint64_t *row, struct membership_row *out)
{
    const struct table_layout *layout = &m->table.layout;
    const uint64_t *bank = row + table_bank_offset(layout, m->view.number);

    if (!table_bank_is(bank, m->view.epoch, m->view.number))
        return;
    out->suspected = bank + layout->suspected;
    out->evicted = bank + layout->evicted;
}

static void read_row(const struct membership *m, const uint64_t *row, struct membership_row *out)
{
    out->heartbeat = row[TABLE_HEARTBEAT];
    out->number = row[TABLE_NUMBER];
    out->flags = row[TABLE_FLAGS];
    read_agreement(m, row, out);
    read_accusations(m, row, out);
}

static void read_own(const struct membership *m, struct membership_row *out)
{
    out->self = out->linked = true;
    out->peer = (struct membership_peer){.id = m->config.id, .incarnation = m->config.incarnation};
    memcpy(out->peer.address, m->config.address, VIEW_ADDRESS_BYTES);
    read_row(m, m->table.own, out);
}

static void read_slot(const struct membership *m, uint32_t slot, struct membership_row *out)
{
    const struct link *link = &m->links[slot];

    out->peer = link->peer;
    out->linked = link->up;
    out->silent_ns = link->up ? m->now_ns - link->seen_ns : 0;
    read_row(m, table_row(&m->table, slot), out);
}

/* A node that is no member: this one, at the place behind the slots', or a peer. */
static bool read_outsider(const struct membership *m, uint32_t at, struct membership_row *out)
{
    if (at == m->config.slots) {
        if (m->rank != VIEW_RANK_NONE)
            return false;
        read_own(m, out);
        return true;
    }
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        if (m->slots[rank] == at)
            return false;
    }
    if (!m->links[at].up)
        return false;
    read_slot(m, at, out);
    return true;
}

uint32_t membership_places(const struct membership *m)
{
    return m->view.count + m->config.slots + 1;
}

bool membership_row(const struct membership *m, uint32_t place, struct membership_row *row)
{
    struct membership_row made = {.rank = place < m->view.count ? place : VIEW_RANK_NONE};

    assert(place < membership_places(m));
    if (place >= m->view.count) {
        if (!read_outsider(m, place - m->view.count, &made))
            return false;
    } else if (place == m->rank) {
        read_own(m, &made);
    } else if (m->slots[place] != SLOT_NONE) {
        read_slot(m, m->slots[place], &made);
    } else {
        const struct member *member = &m->view.members[place];

        made.peer = (struct membership_peer){.id = member->id, .incarnation = member->incarnation};
        memcpy(made.peer.address, member->address, VIEW_ADDRESS_BYTES);
    }
    *row = made;
    return true;
}
