/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "core/membership_state.h"
#include "core/mutant.h"

/* --- Own evidence -------------------------------------------------------------------------------------- */

/* This node did not run for a while. What looks like silence of the others may be its own: everyone gets a
 * new period, and the rows, which were written meanwhile, are looked at before anything is concluded. That
 * they suspect this node is its own doing, too: it does not lead before they had time to see that its heart
 * beats. */
void suspicion_forgive(struct membership *m)
{
    for (uint32_t slot = 0; slot < m->config.slots; slot++) {
        if (!m->links[slot].up)
            continue;
        m->links[slot].seen_ns = m->now_ns;
        table_snapshot(&m->table, slot);
    }
    m->retry_ns = m->now_ns + m->config.suspect_after_ns / 2;
    rows_trace(m, MEMBERSHIP_RULE_FORGIVE, m->config.id, 0);
}

/* Why the member is suspected; MEMBERSHIP_RULE_TRUST if it is not. */
static enum membership_rule judge(const struct membership *m, uint32_t rank)
{
    const struct link *link;

    if (m->slots[rank] == SLOT_NONE)
        return m->now_ns - m->entered_ns >= m->config.suspect_after_ns ? MEMBERSHIP_RULE_SUSPECT_ABSENT
                                                                       : MEMBERSHIP_RULE_TRUST;
    link = &m->links[m->slots[rank]];
    if (!link->up)
        return MEMBERSHIP_RULE_SUSPECT_LINK;
    if (m->now_ns - link->seen_ns >= m->config.suspect_after_ns)
        return MEMBERSHIP_RULE_SUSPECT_SILENT;
    return MEMBERSHIP_RULE_TRUST;
}

void suspicion_update(struct membership *m)
{
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        enum membership_rule rule = rank == m->rank ? MEMBERSHIP_RULE_TRUST : judge(m, rank);
        bool suspect = rule != MEMBERSHIP_RULE_TRUST;

        if (suspect == bitmap_get(m->suspected, rank))
            continue;
        if (suspect)
            bitmap_set(m->suspected, rank);
        else
            bitmap_clear(m->suspected, rank);
        rows_trace(m, rule, m->view.members[rank].id, 0);
    }
    rows_put_bitmap(m, m->table.layout.suspected, m->suspected);
}

uint64_t suspicion_deadline_ns(const struct membership *m)
{
    uint64_t deadline_ns = UINT64_MAX;

    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        uint64_t since_ns;
        if (rank == m->rank || bitmap_get(m->suspected, rank))
            continue;
        since_ns = m->slots[rank] == SLOT_NONE ? m->entered_ns : m->links[m->slots[rank]].seen_ns;
        if (since_ns + m->config.suspect_after_ns < deadline_ns)
            deadline_ns = since_ns + m->config.suspect_after_ns;
    }
    return deadline_ns;
}

/* --- All the evidence ---------------------------------------------------------------------------------- */

static bool accuses(const struct membership *m, uint32_t from, uint32_t of)
{
    return m->banks[from] != NULL && bitmap_get(m->banks[from] + m->table.layout.suspected, of);
}

/* A pair is broken for both if it is for one: what a link loses one way counts as lost both ways, so that
 * everyone comes to the same conclusion. */
static bool broken(const struct membership *m, uint32_t a, uint32_t b)
{
    return accuses(m, a, b) || accuses(m, b, a);
}

static uint32_t broken_count(const struct membership *m, uint32_t rank, const uint64_t *without)
{
    uint32_t count = 0;

    for (uint32_t other = 0; other < m->view.count; other++) {
        if (other != rank && !bitmap_get(without, other) && broken(m, rank, other))
            count++;
    }
    return count;
}

static bool anyone_accuses(const struct membership *m)
{
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        for (uint32_t i = 0; m->banks[rank] != NULL && i < m->table.layout.bitmap_words; i++) {
            if (m->banks[rank][m->table.layout.suspected + i] != 0)
                return true;
        }
    }
    return false;
}

static uint32_t majority(const struct membership *m)
{
    return m->view.count / 2 + 1 - (MUTANT(MUTANT_SKIP_MAJORITY) ? 1 : 0);
}

bool suspicion_is_quorum(const struct membership *m, const uint64_t *ranks)
{
    size_t count = bitmap_count(ranks, m->view.count);

    if (count >= majority(m))
        return true;
    return m->config.quorum == MEMBERSHIP_TIE_BREAKER && count * 2 == m->view.count && count > 0 &&
           bitmap_get(ranks, 0);
}

/* Whom a majority cannot reach is out for this node too, although it may reach it itself: else nobody would
 * replace a leader that reaches only a few. */
static void adopt(struct membership *m)
{
    bool changed = true;

    while (changed) {
        changed = false;
        for (uint32_t rank = 0; rank < m->view.count; rank++) {
            if (rank == m->rank || bitmap_get(m->out, rank) ||
                broken_count(m, rank, m->out) < m->view.count / 2 + 1)
                continue;
            bitmap_set(m->out, rank);
            changed = true;
        }
    }
}

void suspicion_evaluate(struct membership *m)
{
    uint64_t reach[VIEW_BITMAP];

    bitmap_clear_all(m->out, m->view.count);
    m->accused = anyone_accuses(m);
    if (m->rank != VIEW_RANK_NONE && m->accused) {
        for (uint32_t rank = 0; rank < m->view.count; rank++) {
            if (rank != m->rank && broken(m, rank, m->rank))
                bitmap_set(m->out, rank);
        }
        adopt(m);
    }
    bitmap_set_all(reach, m->view.count);
    BITMAP_EACH(rank, m->out, m->view.count)
    bitmap_clear(reach, rank);
    m->quorum = m->rank != VIEW_RANK_NONE && suspicion_is_quorum(m, reach);
}

/* The member with the most broken pairs goes first, of equals the highest rank: so a node that hears nobody
 * goes alone, and of two that do not hear each other one stays. */
void suspicion_cover(const struct membership *m, uint64_t *removed)
{
    while (m->accused) {
        uint32_t worst = VIEW_RANK_NONE, most = 1;

        for (uint32_t rank = 0; rank < m->view.count; rank++) {
            uint32_t count = bitmap_get(removed, rank) ? 0 : broken_count(m, rank, removed);
            if (count >= most) {
                worst = rank;
                most = count;
            }
        }
        if (worst == VIEW_RANK_NONE)
            return;
        bitmap_set(removed, worst);
    }
}

/* A member that died is soon accused by everyone. One that a few accuse may have lost no more than a link,
 * which can be made again. */
bool suspicion_is_shared(const struct membership *m, const uint64_t *removed)
{
    uint32_t kept = m->view.count - (uint32_t)bitmap_count(removed, m->view.count);
    uint32_t enough = kept < m->view.count / 2 + 1 ? kept : m->view.count / 2 + 1;

    if (!m->accused)
        return true;
    BITMAP_EACH(rank, removed, m->view.count)
    {
        uint32_t accusers = broken_count(m, (uint32_t)rank, removed);
        if (accusers > 0 && accusers < enough)
            return false;
    }
    return true;
}

/* The lowest-ranked node that suspects every lower rank, once a majority of the view suspects them too. */
bool suspicion_leads(const struct membership *m)
{
    static const uint64_t nobody[VIEW_BITMAP];

    if (!m->quorum)
        return false;
    for (uint32_t rank = 0; rank < m->rank; rank++) {
        if (!bitmap_get(m->out, rank) || broken_count(m, rank, nobody) < m->view.count / 2 + 1)
            return false;
    }
    return true;
}
