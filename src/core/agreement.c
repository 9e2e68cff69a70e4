/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "core/membership_state.h"
#include "core/mutant.h"

/* A ballot is (round << 16 | rank): two nodes never have the same one in a view, and its owner is known. */
static uint32_t ballot_rank(uint64_t ballot)
{
    return (uint32_t)(ballot & ((1u << RANK_BITS) - 1));
}

static uint64_t promised(const struct membership *m, uint32_t rank)
{
    return m->banks[rank] != NULL ? m->banks[rank][BANK_PROMISED] : 0;
}

/* The ballot of what the member accepted last; 0 for nothing, or while it is unreadable. */
static uint64_t accepted_ballot(const struct membership *m, uint32_t rank)
{
    const uint64_t *accepted = m->banks[rank] != NULL ? rows_accepted(m, m->banks[rank]) : NULL;

    return accepted != NULL ? accepted[0] : 0;
}

/* Into the bank of view `number`. The value may lie there already. */
static void write_accepted(struct membership *m, uint64_t number, uint64_t ballot, const uint64_t *value)
{
    const struct table_layout *layout = &m->table.layout;
    uint64_t *own = table_bank(&m->table, m->table.own, number) + layout->accepted.offset + 1;
    uint32_t words = (uint32_t)view_value_words(value, layout->members_max, layout->groups);

    memmove(own + 1, value, words * sizeof(*value));
    own[0] = ballot;
    rows_put_guarded(m, table_bank_offset(layout, number), &layout->accepted, own, 1 + words);
}

/* "From its first promise in a view it is wedged": what it received is final, and is visible before the
 * promise is. What was accepted before is visible too: within a step only the own ballot, whose promises this
 * node counts itself, is promised after a value was accepted. */
static void promise(struct membership *m, uint64_t ballot)
{
    const struct table_layout *layout = &m->table.layout;
    uint64_t *bank = rows_own_bank(m);

    if (bank[BANK_PROMISED] == 0 && m->view.number > 0) {
        m->wedged = true;
        m->actions->wedged = true;
        rows_put_words(m, layout->received, m->received, m->config.group_count);
        rows_trace(m, MEMBERSHIP_RULE_WEDGE, m->config.id, ballot);
    }
    rows_put_bank(m, BANK_PROMISED, ballot);
}

/* --- Acceptors ----------------------------------------------------------------------------------------- */

/* "A member promises the highest ballot only." A leader asks by promising its own ballot. */
static void follow_promises(struct membership *m)
{
    uint64_t highest = promised(m, m->rank);

    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        uint64_t ballot = promised(m, rank);
        if (ballot > highest && ballot_rank(ballot) == rank)
            highest = ballot;
    }
    if (highest == promised(m, m->rank))
        return;
    rows_trace(m, MEMBERSHIP_RULE_PROMISE, m->view.members[ballot_rank(highest)].id, highest);
    promise(m, highest);
}

/* Whether the value in a leader's row may become the next view of this one. Decodes it into next. */
static bool value_is_next(struct membership *m, const uint64_t *value)
{
    const struct table_layout *layout = &m->table.layout;

    return view_decode(value, layout->members_max, layout->groups, &m->next, m->next_trim) &&
           m->next.number == m->view.number + 1 && view_parent_epoch(&m->next) == m->view.epoch;
}

/* "Members accept by copying the value, ballot last": if they promised no higher ballot. A leader proposes by
 * accepting its own value. */
static void follow_proposals(struct membership *m)
{
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        uint64_t ballot = accepted_ballot(m, rank);
        const uint64_t *accepted;

        if (ballot == 0 || ballot_rank(ballot) != rank || rank == m->rank ||
            (ballot < promised(m, m->rank) && !MUTANT(MUTANT_ACCEPT_LOWER)) ||
            ballot == accepted_ballot(m, m->rank) ||
            (ballot < accepted_ballot(m, m->rank) && !MUTANT(MUTANT_ACCEPT_LOWER)))
            continue;
        accepted = rows_accepted(m, m->banks[rank]);
        if (!value_is_next(m, accepted + 1)) {
            rows_trace(m, MEMBERSHIP_RULE_MALFORMED, m->view.members[rank].id, ballot);
            continue;
        }
        rows_trace(m, MEMBERSHIP_RULE_ACCEPT, m->view.members[rank].id, ballot);
        if (ballot > promised(m, m->rank))
            promise(m, ballot);
        write_accepted(m, m->view.number, ballot, accepted + 1);
    }
}

void agreement_follow(struct membership *m)
{
    if (m->rank == VIEW_RANK_NONE || joining_outside(m))
        return;
    follow_promises(m);
    follow_proposals(m);
}

/* --- Learners ------------------------------------------------------------------------------------------ */

static void accepted_by(const struct membership *m, uint64_t ballot, uint64_t *ranks)
{
    bitmap_clear_all(ranks, m->view.count);
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        if (accepted_ballot(m, rank) == ballot)
            bitmap_set(ranks, rank);
    }
}

/* A forced view has no quorum to lean on: everyone whom it keeps must have accepted it. */
static bool all_kept_are_in(const struct membership *m, const uint64_t *ranks)
{
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        const struct member *member = &m->view.members[rank];
        bool kept = m->view.number == 0
                        ? view_rank_of_id(&m->next, member->id) != VIEW_RANK_NONE
                        : view_rank(&m->next, member->id, member->incarnation) != VIEW_RANK_NONE;
        if (kept && !bitmap_get(ranks, rank))
            return false;
    }
    return true;
}

/* A configured node that the first view does without has lost nothing: it stays outside and joins. */
static bool concerns_us(const struct membership *m)
{
    return m->view.number > 0 || view_rank(&m->next, m->config.id, m->config.incarnation) != VIEW_RANK_NONE;
}

/* "Accepted by a majority of this view = committed." */
static bool count_votes(struct membership *m)
{
    uint64_t ranks[VIEW_BITMAP];
    uint64_t ballot = accepted_ballot(m, m->rank);

    if (ballot == 0)
        return false;
    accepted_by(m, ballot, ranks);
    if (!value_is_next(m, rows_accepted(m, rows_own_bank(m)) + 1) || !concerns_us(m))
        return false;
    if (!suspicion_is_quorum(m, ranks) && !(m->next.forced && all_kept_are_in(m, ranks)))
        return false;
    rows_trace(m, MEMBERSHIP_RULE_COMMIT, m->config.id, ballot);
    rows_put_bank(m, BANK_COMMITTED, ballot);
    return true;
}

/* What this node accepted last may be the same value, with another ballot: then it stays. */
void agreement_learn(struct membership *m, uint64_t ballot, const uint64_t *value)
{
    const struct table_layout *layout = &m->table.layout;
    uint64_t number = m->next.number - 1;
    const uint64_t *bank = table_bank(&m->table, m->table.own, number);
    const uint64_t *own = bank + layout->accepted.offset + 1;
    size_t bytes = view_value_words(value, layout->members_max, layout->groups) * sizeof(*value);

    if (!table_bank_is(bank, view_parent_epoch(&m->next), number))
        rows_reset_bank(m, view_parent_epoch(&m->next), number);
    if (own[0] == 0 || memcmp(own + 1, value, bytes) != 0)
        write_accepted(m, number, ballot, value);
    rows_put(m, table_bank_offset(layout, number) + BANK_COMMITTED, own[0]);
}

/* A member of this view that saw the decision, perhaps from others who are gone by now. */
static bool learn_from_members(struct membership *m)
{
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        const uint64_t *accepted =
            rank != m->rank && m->banks[rank] != NULL ? rows_accepted(m, m->banks[rank]) : NULL;

        if (accepted == NULL || accepted[0] == 0 || m->banks[rank][BANK_COMMITTED] != accepted[0] ||
            !value_is_next(m, accepted + 1) || !concerns_us(m))
            continue;
        rows_trace(m, MEMBERSHIP_RULE_LEARN, m->view.members[rank].id, accepted[0]);
        agreement_learn(m, accepted[0], accepted + 1);
        return true;
    }
    return false;
}

bool agreement_commit(struct membership *m)
{
    return m->rank != VIEW_RANK_NONE && (count_votes(m) || learn_from_members(m));
}

/* --- The leader ---------------------------------------------------------------------------------------- */

static bool member_leaves(const struct membership *m, uint32_t rank)
{
    const uint64_t *row = rank == m->rank               ? m->table.own
                          : m->slots[rank] != SLOT_NONE ? table_row(&m->table, m->slots[rank])
                                                        : NULL;

    return row != NULL && (row[TABLE_FLAGS] & TABLE_LEAVE) != 0;
}

/* Whom operators want out. What several of them said before they could know of one another may name everyone:
 * then the lowest rank stays, for a view of nobody would be the end of the cluster. */
static void add_evicted(const struct membership *m, uint64_t *removed)
{
    uint64_t before[VIEW_BITMAP];

    memcpy(before, removed, sizeof(before));
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        for (uint32_t i = 0; m->banks[rank] != NULL && i < BITMAP_WORDS(m->view.count); i++) {
            if (!bitmap_get(m->out, rank))
                removed[i] |= m->banks[rank][m->table.layout.evicted + i];
        }
    }
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        if (bitmap_get(before, rank) || bitmap_count(removed, m->view.count) < m->view.count)
            continue;
        bitmap_clear(removed, rank);
    }
}

/* Whom the next view leaves out. */
static void find_removed(const struct membership *m, uint64_t *removed)
{
    memcpy(removed, m->out, sizeof(m->out));
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        if (member_leaves(m, rank))
            bitmap_set(removed, rank);
    }
    add_evicted(m, removed);
    suspicion_cover(m, removed);
}

/* Whether those who are to be removed have had their time: what only a few suspect, because a link of theirs
 * broke, may pass within suspect_after. */
static bool is_settled(struct membership *m, const uint64_t *removed)
{
    if (m->view.number == 0 || (m->force && !m->quorum) || suspicion_is_shared(m, removed)) {
        m->doubt_since_ns = 0;
        return true;
    }
    if (m->doubt_since_ns == 0)
        m->doubt_since_ns = m->now_ns;
    return m->now_ns - m->doubt_since_ns >= m->config.suspect_after_ns;
}

static bool anyone_shows(const struct membership *m, enum table_bank_column column)
{
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        if (m->banks[rank] != NULL && m->banks[rank][column] != 0)
            return true;
    }
    return false;
}

static bool wants_new_view(struct membership *m)
{
    uint64_t removed[VIEW_BITMAP] = {0};

    if (m->view.number == 0 || m->force || anyone_shows(m, BANK_PROMISED))
        return true;
    find_removed(m, removed);
    if (!is_settled(m, removed))
        return false;
    return bitmap_next(removed, m->view.count, 0) < m->view.count || anyone_shows(m, BANK_RENEW) ||
           joining_due(m);
}

static uint64_t highest_ballot(const struct membership *m)
{
    uint64_t highest = 0;

    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        if (promised(m, rank) > highest)
            highest = promised(m, rank);
        if (accepted_ballot(m, rank) > highest)
            highest = accepted_ballot(m, rank);
    }
    return highest;
}

/* "Takes a ballot above every ballot that it has seen and asks for promises." */
static void prepare(struct membership *m)
{
    m->ballot = ((highest_ballot(m) >> RANK_BITS) + 1) << RANK_BITS | m->rank;
    m->proposed = false;
    rows_trace(m, MEMBERSHIP_RULE_PREPARE, m->config.id, m->ballot);
    promise(m, m->ballot);
}

/* Another leader has a higher ballot. It may be gone, so wait a moment, of random length, and take a higher
 * one. */
static void overtaken(struct membership *m)
{
    uint64_t wait_ns = m->config.heartbeat_ns / 2;

    rows_trace(m, MEMBERSHIP_RULE_OVERTAKEN, m->config.id, highest_ballot(m));
    m->ballot = 0;
    m->retry_ns = m->now_ns + wait_ns + rng_below(&m->rng, wait_ns + 1);
}

/* Members that promised this ballot and whose acceptance, if any, can be read. */
static void promised_by(const struct membership *m, uint64_t *ranks)
{
    bitmap_clear_all(ranks, m->view.count);
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        if (promised(m, rank) == m->ballot && rows_accepted(m, m->banks[rank]) != NULL)
            bitmap_set(ranks, rank);
    }
}

/* "If any shows an accepted value, propose the one with the highest ballot." NULL if none does. */
static const uint64_t *highest_accepted(const struct membership *m, const uint64_t *ranks)
{
    const uint64_t *highest = NULL;

    BITMAP_EACH(rank, ranks, m->view.count)
    {
        const uint64_t *accepted = rows_accepted(m, m->banks[rank]);
        if (accepted[0] != 0 && (highest == NULL || accepted[0] > highest[0]))
            highest = accepted;
    }
    return MUTANT(MUTANT_FORGET_VALUE) ? NULL : highest;
}

static bool group_selects(const struct membership_group *group, uint32_t id)
{
    size_t low = 0, high = group->count;

    if (group->all)
        return true;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (group->ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < group->count && group->ids[low] == id;
}

/* "trim[g] = min received[g] over those kept." Whoever is left out can have delivered nothing past it:
 * delivery needs everyone's `received`. */
static void compute_trim(struct membership *m, const uint64_t *removed)
{
    for (uint32_t group = 0; group < m->config.group_count; group++) {
        uint64_t trim = VIEW_TRIM_NONE;

        for (uint32_t rank = 0; rank < m->view.count; rank++) {
            uint64_t received;
            if (bitmap_get(removed, rank) || m->view.number == 0 ||
                !group_selects(&m->config.groups[group], m->view.members[rank].id))
                continue;
            received = m->banks[rank][m->table.layout.received + group];
            if (trim == VIEW_TRIM_NONE || (MUTANT(MUTANT_TRIM_MAXIMUM) ? received > trim : received < trim))
                trim = received;
        }
        m->next_trim[group] = trim;
    }
}

static uint64_t draw_epoch(struct membership *m)
{
    uint64_t epoch;

    do {
        epoch = rng_next(&m->rng);
    } while (epoch == 0);
    return epoch;
}

static void compute_next(struct membership *m, const uint64_t *removed)
{
    struct view *next = &m->next;
    bool new_epoch;

    next->number = m->view.number + 1;
    next->forced = m->force && !m->quorum;
    new_epoch = m->view.number == 0 || next->forced;
    next->epoch = new_epoch ? draw_epoch(m) : m->view.epoch;
    next->origin = new_epoch ? m->view.epoch : m->view.origin;
    next->first = new_epoch ? next->number : m->view.first;
    next->count = 0;
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        struct member *member = &next->members[next->count];
        if (bitmap_get(removed, rank))
            continue;
        *member = m->view.members[rank];
        if (m->view.number == 0) {
            const struct membership_peer *peer = &m->links[rank == m->rank ? 0 : m->slots[rank]].peer;
            member->incarnation = rank == m->rank ? m->config.incarnation : peer->incarnation;
            memcpy(member->address, rank == m->rank ? m->config.address : peer->address, VIEW_ADDRESS_BYTES);
        }
        next->count++;
    }
    compute_trim(m, removed);
    joining_admit(m);
}

static void propose(struct membership *m, enum membership_rule rule, const uint64_t *value)
{
    m->proposed = true;
    rows_trace(m, rule, m->config.id, m->ballot);
    write_accepted(m, m->view.number, m->ballot, value);
}

/* "Otherwise compute one, and for that wait until every member that the next view keeps has promised." */
static void propose_own(struct membership *m, const uint64_t *promises)
{
    const struct table_layout *layout = &m->table.layout;
    uint64_t removed[VIEW_BITMAP] = {0};
    uint64_t *own = rows_own_bank(m) + layout->accepted.offset + 2;

    find_removed(m, removed);
    if (!is_settled(m, removed))
        return;
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        if (!bitmap_get(removed, rank) && !bitmap_get(promises, rank))
            return;
    }
    compute_next(m, removed);
    view_encode(&m->next, m->next_trim, layout->groups, own);
    propose(m, MEMBERSHIP_RULE_PROPOSE, own);
}

/* Enough promises: a quorum's, or, when the operator says so, those of everyone in reach. */
static bool enough(const struct membership *m, const uint64_t *promises)
{
    if (suspicion_is_quorum(m, promises))
        return true;
    if (!m->force)
        return false;
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        if (!bitmap_get(m->out, rank) && !bitmap_get(promises, rank))
            return false;
    }
    return true;
}

static void collect_promises(struct membership *m)
{
    uint64_t promises[VIEW_BITMAP];
    const uint64_t *accepted;

    promised_by(m, promises);
    if (!enough(m, promises))
        return;
    accepted = highest_accepted(m, promises);
    if (accepted != NULL && !(m->force && !m->quorum))
        propose(m, MEMBERSHIP_RULE_REPROPOSE, accepted + 1);
    else
        propose_own(m, promises);
}

void agreement_lead(struct membership *m)
{
    if (m->rank == VIEW_RANK_NONE || joining_outside(m) ||
        !(suspicion_leads(m) || (m->force && !m->quorum))) {
        m->ballot = m->doubt_since_ns = 0;
        return;
    }
    if (m->ballot != 0 && highest_ballot(m) > m->ballot)
        overtaken(m);
    if (m->ballot == 0 && m->now_ns >= m->retry_ns && wants_new_view(m))
        prepare(m);
    if (m->ballot != 0 && !m->proposed)
        collect_promises(m);
}

uint64_t agreement_deadline_ns(const struct membership *m)
{
    uint64_t settled_ns = m->doubt_since_ns + m->config.suspect_after_ns;

    if (m->ballot == 0 && m->retry_ns > m->now_ns)
        return m->retry_ns;
    return m->doubt_since_ns != 0 && settled_ns > m->now_ns ? settled_ns : UINT64_MAX;
}
