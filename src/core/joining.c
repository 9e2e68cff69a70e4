/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "core/membership_state.h"

/* --- Outside: nodes that have no view ------------------------------------------------------------------- */

static bool peer_forces(const struct membership *m)
{
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        if (m->slots[rank] != SLOT_NONE && m->links[m->slots[rank]].up &&
            (table_row(&m->table, m->slots[rank])[TABLE_FLAGS] & TABLE_FORCE) != 0)
            return true;
    }
    return false;
}

bool joining_outside(const struct membership *m)
{
    if (m->view.number > 0)
        return false;
    if (m->rank == VIEW_RANK_NONE)
        return true;
    if (m->target.number > 0)
        return true;
    return bitmap_next(m->met, m->view.count, 0) < m->view.count && !m->force && !peer_forces(m);
}

/* Whether the slot's owner is there, and without a view: if it was a survivor's id, that survivor is gone. */
static bool is_blank(const struct membership *m, uint32_t slot)
{
    const uint64_t *row = table_row(&m->table, slot);

    return m->links[slot].up && row[TABLE_HEARTBEAT] != 0 && row[TABLE_NUMBER] == 0;
}

static bool is_survivor(const struct membership *m, uint32_t slot)
{
    return m->links[slot].up && table_row(&m->table, slot)[TABLE_NUMBER] != 0;
}

/* What other blank nodes have met counts as met, unless that node is here, blank itself. */
static void hear_of_survivors(struct membership *m, uint64_t *met)
{
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        if (rank == m->rank || m->banks[rank] == NULL || !m->links[m->slots[rank]].up)
            continue;
        for (uint32_t i = 0; i < BITMAP_WORDS(m->view.count); i++)
            met[i] |= m->banks[rank][m->table.layout.met + i];
    }
}

static void note_survivors(struct membership *m)
{
    uint64_t met[VIEW_BITMAP];

    memcpy(met, m->met, sizeof(met));
    hear_of_survivors(m, met);
    if (m->rank != VIEW_RANK_NONE)
        bitmap_clear(met, m->rank);
    for (uint32_t slot = 0; slot < m->config.slots; slot++) {
        uint32_t rank = view_rank_of_id(&m->view, m->links[slot].peer.id);
        if (rank != VIEW_RANK_NONE && is_blank(m, slot))
            bitmap_clear(met, rank);
    }
    for (uint32_t slot = 0; slot < m->config.slots; slot++) {
        uint32_t rank = view_rank_of_id(&m->view, m->links[slot].peer.id);
        if (rank != VIEW_RANK_NONE && is_survivor(m, slot))
            bitmap_set(met, rank);
    }
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        bool now = bitmap_get(met, rank);
        if (now != bitmap_get(m->met, rank))
            rows_trace(m, now ? MEMBERSHIP_RULE_SURVIVOR : MEMBERSHIP_RULE_SURVIVOR_GONE,
                       m->view.members[rank].id, 0);
    }
    memcpy(m->met, met, sizeof(met));
    rows_put_bitmap(m, m->table.layout.met, m->met);
}

/* Of two views that peers are in: whether b is a later one of a's cluster. Values as in core/view.h. */
static bool is_later(const uint64_t *a, const uint64_t *b)
{
    return (b[0] == a[0] && b[1] > a[1]) || (b[2] == a[0] && b[3] > a[1]);
}

static void choose_target(struct membership *m)
{
    const uint64_t *best = NULL;
    uint64_t ballot;

    for (uint32_t slot = 0; slot < m->config.slots; slot++) {
        const uint64_t *value = is_survivor(m, slot) ? rows_view_value(m, slot, &ballot) : NULL;
        if (value == NULL)
            continue;
        if (best == NULL || is_later(best, value)) {
            best = value;
        } else if (value[0] != best[0] && !is_later(value, best) && !m->links[slot].other_epoch) {
            m->links[slot].other_epoch = true;
            rows_trace(m, MEMBERSHIP_RULE_OTHER_EPOCH, m->links[slot].peer.id, value[0]);
        }
    }
    if (best == NULL)
        m->target.number = 0;
    else if ((best[0] != m->target.epoch || best[1] != m->target.number) &&
             !view_decode(best, m->config.members_max, m->config.group_count, &m->target, m->next_trim))
        m->target.number = 0;
}

static uint32_t linked_slot(const struct membership *m, uint32_t id, uint64_t incarnation)
{
    for (uint32_t slot = 0; slot < m->config.slots; slot++) {
        const struct link *link = &m->links[slot];
        if (link->up && link->peer.id == id && (incarnation == 0 || link->peer.incarnation == incarnation))
            return slot;
    }
    return SLOT_NONE;
}

/* The view to join if every member of it is linked, else 0. A former process of this node will not be in the
 * next view. */
static uint64_t ready_for(const struct membership *m)
{
    if (!joining_outside(m) || m->target.number == 0)
        return 0;
    for (uint32_t rank = 0; rank < m->target.count; rank++) {
        const struct member *member = &m->target.members[rank];
        if (member->id != m->config.id && linked_slot(m, member->id, member->incarnation) == SLOT_NONE)
            return 0;
    }
    return m->target.number;
}

/* --- Inside: joiners that members see ------------------------------------------------------------------- */

static const struct view *current_view(const struct membership *m)
{
    return m->view.number > 0 ? &m->view : &m->target;
}

static bool is_joiner(const struct membership *m, uint32_t slot)
{
    const struct link *link = &m->links[slot];

    return link->up && (table_row(&m->table, slot)[TABLE_FLAGS] & TABLE_JOIN) != 0 &&
           m->now_ns - link->seen_ns < m->config.suspect_after_ns && link->peer.id != m->config.id &&
           view_rank(current_view(m), link->peer.id, link->peer.incarnation) == VIEW_RANK_NONE;
}

/* The slots of the TABLE_JOINS joiners with the lowest ids, in the order of ids, so that everyone speaks of
 * the same ones. Of two with one id the one that came last counts. */
static uint32_t find_joiners(const struct membership *m, uint32_t *slots)
{
    uint32_t count = 0;

    for (uint32_t slot = 0; slot < m->config.slots; slot++) {
        uint32_t at = count, id = m->links[slot].peer.id;

        if (!is_joiner(m, slot))
            continue;
        while (at > 0 && m->links[slots[at - 1]].peer.id > id)
            at--;
        if (at > 0 && m->links[slots[at - 1]].peer.id == id) {
            if (m->links[slot].up_ns > m->links[slots[at - 1]].up_ns)
                slots[at - 1] = slot;
            continue;
        }
        if (at == TABLE_JOINS)
            continue;
        if (count < TABLE_JOINS)
            count++;
        memmove(slots + at + 1, slots + at, (count - 1 - at) * sizeof(*slots));
        slots[at] = slot;
    }
    return count;
}

static bool shows_link(const struct membership *m, uint32_t from, uint32_t to)
{
    const uint64_t *linked = table_row(&m->table, from) + TABLE_LINKED;

    for (uint32_t i = 0; i < TABLE_JOINS; i++) {
        if (linked[i] == m->links[to].peer.incarnation)
            return true;
    }
    return false;
}

/* A joiner whose id a member has that is not on its way out: a second process with that id, or one that was
 * restarted before anyone noticed the end of the first. It waits. */
static bool id_is_taken(struct membership *m, uint32_t slot)
{
    struct link *link = &m->links[slot];
    uint32_t rank = view_rank_of_id(&m->view, link->peer.id);

    if (rank == VIEW_RANK_NONE || bitmap_get(m->out, rank))
        return false;
    if (!link->id_taken)
        rows_trace(m, MEMBERSHIP_RULE_ID_TAKEN, link->peer.id, link->peer.incarnation);
    link->id_taken = true;
    return true;
}

/* Joiners that can be admitted together: each is linked to every member and to each other one. *waiting is
 * how many there would be if all were ready. */
static uint32_t find_ready(struct membership *m, uint32_t *ready, uint32_t *waiting)
{
    uint32_t joiners[TABLE_JOINS + 1];
    uint32_t count = find_joiners(m, joiners), ready_count = 0;

    *waiting = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool fits = table_row(&m->table, joiners[i])[TABLE_READY] == m->view.number;

        if (id_is_taken(m, joiners[i]))
            continue;
        ++*waiting;
        for (uint32_t j = 0; j < ready_count && fits; j++)
            fits = shows_link(m, joiners[i], ready[j]) || shows_link(m, ready[j], joiners[i]);
        if (fits)
            ready[ready_count++] = joiners[i];
    }
    return ready_count;
}

bool joining_due(struct membership *m)
{
    uint32_t ready[TABLE_JOINS], waiting;
    uint32_t count = find_ready(m, ready, &waiting);

    if (m->view.count >= m->config.members_max)
        return false;
    if (waiting == 0)
        m->joiner_since_ns = 0;
    else if (m->joiner_since_ns == 0)
        m->joiner_since_ns = m->now_ns;
    return count > 0 && (count == waiting || m->now_ns - m->joiner_since_ns >= m->config.batch_ns);
}

uint64_t joining_deadline_ns(const struct membership *m)
{
    uint64_t due_ns = m->joiner_since_ns + m->config.batch_ns;

    return m->joiner_since_ns != 0 && due_ns > m->now_ns ? due_ns : UINT64_MAX;
}

void joining_admit(struct membership *m)
{
    uint32_t ready[TABLE_JOINS], waiting;
    uint32_t count = m->view.number > 0 ? find_ready(m, ready, &waiting) : 0;
    struct view *next = &m->next;

    for (uint32_t i = 0; i < count && next->count < m->config.members_max; i++) {
        const struct membership_peer *peer = &m->links[ready[i]].peer;
        struct member *member = &next->members[next->count];
        if (view_rank_of_id(next, peer->id) != VIEW_RANK_NONE)
            continue;
        *member = (struct member){.id = peer->id, .incarnation = peer->incarnation};
        memcpy(member->address, peer->address, VIEW_ADDRESS_BYTES);
        next->count++;
    }
}

/* --- Both ----------------------------------------------------------------------------------------------- */

void joining_update(struct membership *m)
{
    if (m->view.number == 0) {
        note_survivors(m);
        choose_target(m);
    }
    rows_put(m, TABLE_FLAGS,
             (joining_outside(m) ? TABLE_JOIN : 0u) | (m->leave ? TABLE_LEAVE : 0u) |
                 (m->force ? TABLE_FORCE : 0u));
    if (ready_for(m) != m->table.own[TABLE_READY] && ready_for(m) != 0)
        rows_trace(m, MEMBERSHIP_RULE_READY, m->config.id, ready_for(m));
    rows_put(m, TABLE_READY, ready_for(m));
}

void joining_publish(struct membership *m)
{
    const struct table_guarded *column = &m->table.layout.candidates;
    uint64_t words[1 + TABLE_JOINS * VIEW_MEMBER_WORDS] = {0};
    uint32_t slots[TABLE_JOINS + 1];

    words[0] = find_joiners(m, slots);
    for (uint32_t i = 0; i < words[0]; i++) {
        const struct membership_peer *peer = &m->links[slots[i]].peer;
        struct member member = {.id = peer->id, .incarnation = peer->incarnation};
        memcpy(member.address, peer->address, VIEW_ADDRESS_BYTES);
        memcpy(words + 1 + i * VIEW_MEMBER_WORDS, &member, sizeof(member));
    }
    for (uint32_t i = 0; i < TABLE_JOINS; i++)
        rows_put(m, TABLE_LINKED + i, i < words[0] ? m->links[slots[i]].peer.incarnation : 0);
    if (memcmp(words, m->table.own + column->offset + 1, sizeof(words)) != 0)
        rows_put_guarded(m, 0, column, words, column->words);
}

/* --- Who connects to whom ------------------------------------------------------------------------------- */

static void connect_to(struct membership *m, const struct member *member)
{
    struct membership_actions *actions = m->actions;
    struct membership_peer *peer;

    if (member->id == m->config.id || actions->connect_count == MEMBERSHIP_CONNECTS_MAX ||
        linked_slot(m, member->id, member->incarnation) != SLOT_NONE)
        return;
    peer = &actions->connects[actions->connect_count++];
    *peer = (struct membership_peer){.id = member->id, .incarnation = member->incarnation};
    memcpy(peer->address, member->address, VIEW_ADDRESS_BYTES);
}

/* Joiners that a member names: they will be members together with this one. */
static void connect_to_candidates(struct membership *m, uint32_t slot)
{
    const uint64_t *words = table_guarded_words(table_row(&m->table, slot), &m->table.layout.candidates);
    struct member member;

    if (words == NULL || words[0] > TABLE_JOINS)
        return;
    for (uint32_t i = 0; i < words[0]; i++) {
        memcpy(&member, words + 1 + i * VIEW_MEMBER_WORDS, sizeof(member));
        connect_to(m, &member);
    }
}

/* The configured nodes, the members, and, while outside, those who will be members together with this node.
 * More than fit into a step's actions take turns. */
void joining_connect(struct membership *m)
{
    const struct view *view = current_view(m);
    uint32_t total = m->config.node_count + view->count;

    for (uint32_t i = 0; i < total; i++) {
        uint32_t at = (m->connect_cursor + i) % total;
        struct member node = {0};

        if (at >= m->config.node_count) {
            connect_to(m, &view->members[at - m->config.node_count]);
            continue;
        }
        node.id = m->config.node_ids[at];
        connect_to(m, &node);
    }
    m->connect_cursor++;
    for (uint32_t slot = 0; joining_outside(m) && slot < m->config.slots; slot++) {
        if (is_survivor(m, slot))
            connect_to_candidates(m, slot);
    }
}

/* Whom an outside node wants to reach changes with what survivors write; it does not wait a heartbeat then.
 */
void joining_reconnect(struct membership *m)
{
    uint64_t seen = m->target.epoch + m->target.number;

    if (!joining_outside(m))
        return;
    for (uint32_t slot = 0; slot < m->config.slots; slot++) {
        if (is_survivor(m, slot))
            seen += table_row(&m->table, slot)[m->table.layout.candidates.offset];
    }
    if (seen != m->candidates_seen)
        joining_connect(m);
    m->candidates_seen = seen;
}
