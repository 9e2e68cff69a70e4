/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/membership.h"

#include <assert.h>
#include <string.h>

#include "core/membership_state.h"

/* --- Start ---------------------------------------------------------------------------------------------- */

void membership_layout(const struct membership_config *config, struct table_layout *layout)
{
    table_layout_init(layout, config->slots, config->members_max, config->group_count);
}

static size_t align(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

size_t membership_bytes(const struct membership_config *config)
{
    struct table_layout layout;

    membership_layout(config, &layout);
    return align(sizeof(struct membership)) + align(config->slots * sizeof(struct link)) +
           align(config->node_count * sizeof(uint32_t)) + table_private_bytes(&layout);
}

static void init_view_0(struct membership *m)
{
    m->view.count = m->config.node_count;
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        assert(rank == 0 || m->config.node_ids[rank] > m->config.node_ids[rank - 1]);
        m->view.members[rank] = (struct member){.id = m->config.node_ids[rank]};
        m->slots[rank] = SLOT_NONE;
    }
    m->rank = view_rank_of_id(&m->view, m->config.id);
    m->state = m->rank == VIEW_RANK_NONE ? MEMBERSHIP_JOINING : MEMBERSHIP_FORMING;
}

struct membership *membership_init(const struct membership_config *config, void *memory, void *slots_memory,
                                   uint64_t now_ns)
{
    struct membership *m = memory;
    char *end = (char *)memory + align(sizeof(*m));
    struct table_layout layout;

    assert(config->incarnation != 0 && config->node_count >= 1 && config->node_count <= config->members_max &&
           config->suspect_after_ns >= 2 * config->heartbeat_ns);
    memset(memory, 0, membership_bytes(config));
    m->config = *config;
    m->links = (struct link *)end;
    end += align(config->slots * sizeof(*m->links));
    m->config.node_ids = memcpy(end, config->node_ids, config->node_count * sizeof(uint32_t));
    end += align(config->node_count * sizeof(uint32_t));
    membership_layout(config, &layout);
    table_init(&m->table, &layout, slots_memory, end);
    rng_init(&m->rng, config->seed);
    m->now_ns = m->entered_ns = m->heartbeat_due_ns = now_ns;
    init_view_0(m);
    rows_init(m);
    return m;
}

/* --- Links ---------------------------------------------------------------------------------------------- */

static bool slot_is_owned_by(const struct membership *m, uint32_t slot, const struct member *member)
{
    const struct membership_peer *peer = &m->links[slot].peer;

    return peer->incarnation != 0 && peer->id == member->id &&
           (m->view.number == 0 || peer->incarnation == member->incarnation);
}

/* Which row is a member's. Its link, if it has one; else the row of the link that it had. In view 0, where
 * any incarnation will do, the one that is linked longest, as long as it is not suspected. */
static void bind_rank(struct membership *m, uint32_t rank)
{
    uint32_t bound = m->slots[rank];

    if (bound != SLOT_NONE && slot_is_owned_by(m, bound, &m->view.members[rank]) && m->links[bound].up &&
        !bitmap_get(m->suspected, rank))
        return;
    if (bound != SLOT_NONE && !slot_is_owned_by(m, bound, &m->view.members[rank]))
        m->slots[rank] = SLOT_NONE;
    for (uint32_t slot = 0; slot < m->config.slots; slot++) {
        if (slot == bound || !slot_is_owned_by(m, slot, &m->view.members[rank]))
            continue;
        if (m->slots[rank] == SLOT_NONE || m->links[slot].up)
            m->slots[rank] = slot;
    }
}

static void bind_ranks(struct membership *m)
{
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        if (rank != m->rank)
            bind_rank(m, rank);
    }
}

static void link_up(struct membership *m, const struct membership_event *event)
{
    struct link *link = &m->links[event->slot];

    assert(event->slot < m->config.slots && !link->up && event->peer.incarnation != 0);
    *link = (struct link){.peer = event->peer, .up = true, .up_ns = m->now_ns, .seen_ns = m->now_ns};
    table_snapshot(&m->table, event->slot); /* the peer may have been faster */
    bind_ranks(m);
    rows_push_all(m, event->slot);
}

/* What was lost with the link nobody knows, so what follows begins with a new view, even if the peer is back
 * before anyone could be removed. */
static void link_down(struct membership *m, uint32_t slot)
{
    assert(slot < m->config.slots && m->links[slot].up);
    table_snapshot(&m->table, slot);
    m->links[slot].up = false;
    if (m->view.number > 0 &&
        view_rank(&m->view, m->links[slot].peer.id, m->links[slot].peer.incarnation) != VIEW_RANK_NONE)
        rows_put_bank(m, BANK_RENEW, 1);
    if (m->view.number == 0)
        bind_ranks(m);
}

static void row_arrived(struct membership *m, uint32_t slot)
{
    struct link *link = &m->links[slot];
    uint64_t heartbeat;

    assert(slot < m->config.slots);
    if (!link->up)
        return;
    table_snapshot(&m->table, slot);
    heartbeat = table_row(&m->table, slot)[TABLE_HEARTBEAT];
    if (heartbeat == link->heartbeat)
        return;
    link->heartbeat = heartbeat;
    link->seen_ns = m->now_ns;
}

static void beat(struct membership *m)
{
    if (m->now_ns < m->heartbeat_due_ns)
        return;
    m->heartbeat_due_ns = m->now_ns + m->config.heartbeat_ns;
    rows_put(m, TABLE_HEARTBEAT, m->table.own[TABLE_HEARTBEAT] + 1);
    if (m->view.number == 0)
        bind_ranks(m);
    joining_connect(m);
}

/* Links of former members end: nothing more of theirs may arrive. */
static void disconnect_removed(struct membership *m)
{
    struct membership_actions *actions = m->actions;

    for (uint32_t slot = 0; slot < m->config.slots; slot++) {
        if (!m->links[slot].removed || !m->links[slot].up)
            continue;
        if (actions->disconnect_count == MEMBERSHIP_CONNECTS_MAX) {
            m->again = true;
            return;
        }
        m->links[slot].removed = false;
        actions->disconnects[actions->disconnect_count++] = slot;
    }
}

/* --- The next view -------------------------------------------------------------------------------------- */

static bool contains(const struct view *view, const struct member *member)
{
    return view->number > 0 && view_rank(view, member->id, member->incarnation) != VIEW_RANK_NONE;
}

static void report_install(struct membership *m)
{
    struct membership_actions *actions = m->actions;

    actions->installed = true;
    actions->view = &m->view;
    actions->previous = &m->previous;
    actions->trim = m->trim;
    memset(actions->joined, 0, sizeof(actions->joined));
    memset(actions->left, 0, sizeof(actions->left));
    for (uint32_t rank = 0; rank < m->view.count; rank++) {
        if (!contains(&m->previous, &m->view.members[rank]))
            bitmap_set(actions->joined, rank);
    }
    for (uint32_t rank = 0; m->previous.number > 0 && rank < m->previous.count; rank++) {
        if (!contains(&m->view, &m->previous.members[rank]))
            bitmap_set(actions->left, rank);
    }
}

static void enter_view(struct membership *m)
{
    view_copy(&m->previous, &m->view);
    view_copy(&m->view, &m->next);
    memcpy(m->trim, m->next_trim, sizeof(m->trim));
    for (uint32_t group = 0; group < m->config.group_count; group++)
        m->received[group] = m->trim[group] == VIEW_TRIM_NONE ? 0 : m->trim[group];
    m->rank = view_rank(&m->view, m->config.id, m->config.incarnation);
    m->target.number = 0;
    m->wedged = m->force = m->proposed = false;
    m->ballot = m->retry_ns = m->doubt_since_ns = m->joiner_since_ns = 0;
    m->entered_ns = m->now_ns;
    memset(m->suspected, 0, sizeof(m->suspected));
    for (uint32_t rank = 0; rank < m->view.count; rank++)
        m->slots[rank] = SLOT_NONE;
    bind_ranks(m);
}

static void install(struct membership *m)
{
    enter_view(m);
    for (uint32_t slot = 0; slot < m->config.slots; slot++) {
        const struct membership_peer *peer = &m->links[slot].peer;
        struct member member = {.id = peer->id, .incarnation = peer->incarnation};
        if (m->links[slot].up && contains(&m->previous, &member) && !contains(&m->view, &member))
            m->links[slot].removed = true;
    }
    rows_reset_bank(m, m->view.epoch, m->view.number);
    rows_put(m, TABLE_NUMBER, m->view.number);
    rows_trace(m, MEMBERSHIP_RULE_INSTALL, m->config.id, m->view.number);
    report_install(m);
    m->again = true;
}

static void set_state(struct membership *m, enum membership_state state)
{
    if (m->state == state)
        return;
    m->state = state;
    m->actions->state_changed = true;
    m->actions->state = state;
}

static void stop(struct membership *m)
{
    m->actions->wedged = !m->wedged;
    m->wedged = true;
    rows_trace(m, m->leave ? MEMBERSHIP_RULE_LEFT : MEMBERSHIP_RULE_EVICTED, m->config.id, m->next.number);
    set_state(m, m->leave ? MEMBERSHIP_LEFT : MEMBERSHIP_EVICTED);
}

static void decided(struct membership *m)
{
    if (view_rank(&m->next, m->config.id, m->config.incarnation) != VIEW_RANK_NONE)
        install(m);
    else
        stop(m);
}

/* What the view that a peer is in means for this node. */
enum verdict { VERDICT_NOTHING, VERDICT_NEXT, VERDICT_OUT, VERDICT_OTHER };

static bool value_lists(const struct membership *m, const uint64_t *value)
{
    uint32_t count = (uint32_t)value[4];

    for (uint32_t rank = 0; count <= m->config.members_max && rank < count; rank++) {
        struct member member = view_value_member(value, m->config.group_count, rank);
        if (member.id == m->config.id && member.incarnation == m->config.incarnation)
            return true;
    }
    return false;
}

/* A node that has a quorum is not impressed by a view that others forced without one. A node cannot have been
 * kept past the next view, for that takes its promise in it. */
static enum verdict judge_value(const struct membership *m, const uint64_t *value)
{
    uint64_t epoch = value[0], number = value[1], origin = value[2], first = value[3];
    bool same = epoch == m->view.epoch;
    bool descends = same || (origin == m->view.epoch && first > m->view.number);

    if (m->view.number == 0)
        return value_lists(m, value) ? VERDICT_NEXT : VERDICT_NOTHING;
    if (!descends)
        return VERDICT_OTHER;
    if (number <= m->view.number)
        return VERDICT_NOTHING;
    if (number == m->view.number + 1 && value_lists(m, value))
        return VERDICT_NEXT;
    return same || !m->quorum ? VERDICT_OUT : VERDICT_OTHER;
}

static bool decode_next(struct membership *m, uint32_t slot, const uint64_t *value)
{
    if (view_decode(value, m->config.members_max, m->config.group_count, &m->next, m->next_trim))
        return true;
    rows_trace(m, MEMBERSHIP_RULE_MALFORMED, m->links[slot].peer.id, 0);
    return false;
}

static void report_other_epoch(struct membership *m, uint32_t slot, uint64_t epoch)
{
    if (m->links[slot].other_epoch)
        return;
    m->links[slot].other_epoch = true;
    rows_trace(m, MEMBERSHIP_RULE_OTHER_EPOCH, m->links[slot].peer.id, epoch);
}

/* "Who is left out learns it from anyone", and so does who is let in. */
static bool learn_from_peers(struct membership *m)
{
    for (uint32_t slot = 0; slot < m->config.slots; slot++) {
        uint64_t ballot;
        const uint64_t *value =
            m->links[slot].peer.incarnation != 0 ? rows_view_value(m, slot, &ballot) : NULL;
        enum verdict verdict = value != NULL ? judge_value(m, value) : VERDICT_NOTHING;

        if (verdict == VERDICT_OTHER)
            report_other_epoch(m, slot, value[0]);
        if ((verdict != VERDICT_NEXT && verdict != VERDICT_OUT) || !decode_next(m, slot, value))
            continue;
        rows_trace(m, MEMBERSHIP_RULE_LEARN, m->links[slot].peer.id, m->next.number);
        if (verdict == VERDICT_NEXT) {
            agreement_learn(m, ballot, value);
            install(m);
        } else {
            stop(m);
        }
        return true;
    }
    return false;
}

/* --- Requests ------------------------------------------------------------------------------------------- */

static void leave(struct membership *m)
{
    m->leave = true;
    if (m->view.number == 0)
        stop(m);
}

static int evict(struct membership *m, uint32_t id)
{
    uint32_t rank = view_rank_of_id(&m->view, id);
    uint64_t *evicted = rows_own_bank(m) + m->table.layout.evicted;
    uint64_t bits[VIEW_BITMAP] = {0};

    if (m->view.number == 0)
        return COVEY_FORMING;
    if (rank == VIEW_RANK_NONE)
        return COVEY_NOT_FOUND;
    if (!m->quorum)
        return COVEY_NO_QUORUM;
    memcpy(bits, evicted, m->table.layout.bitmap_words * sizeof(*bits));
    bitmap_set(bits, rank);
    if (bitmap_count(bits, m->view.count) == m->view.count)
        return COVEY_INVALID;
    rows_put_bitmap(m, m->table.layout.evicted, bits);
    rows_trace(m, MEMBERSHIP_RULE_EVICT, id, 0);
    return 0;
}

static int force(struct membership *m)
{
    if (m->rank == VIEW_RANK_NONE)
        return COVEY_FORMING;
    if (m->view.number == 0 && m->target.number > 0)
        return COVEY_EXISTS;
    if (m->view.number > 0 && m->quorum)
        return COVEY_INVALID;
    m->force = true;
    memset(m->met, 0, sizeof(m->met));
    rows_trace(m, MEMBERSHIP_RULE_FORCE, m->config.id, 0);
    return 0;
}

/* --- The step ------------------------------------------------------------------------------------------- */

static int handle(struct membership *m, const struct membership_event *event)
{
    switch (event->type) {
    case MEMBERSHIP_TICK:
        return 0;
    case MEMBERSHIP_LINK_UP:
        link_up(m, event);
        return 0;
    case MEMBERSHIP_LINK_DOWN:
        link_down(m, event->slot);
        return 0;
    case MEMBERSHIP_ROW:
        row_arrived(m, event->slot);
        return 0;
    case MEMBERSHIP_LEAVE:
        leave(m);
        return 0;
    case MEMBERSHIP_EVICT:
        return evict(m, event->id);
    case MEMBERSHIP_FORCE:
        return force(m);
    }
    return COVEY_INVALID;
}

static void update_state(struct membership *m)
{
    if (m->view.number == 0)
        set_state(m, joining_outside(m) ? MEMBERSHIP_JOINING : MEMBERSHIP_FORMING);
    else if (m->quorum)
        set_state(m, m->wedged ? MEMBERSHIP_WEDGED : MEMBERSHIP_RUNNING);
    else if (m->leave)
        stop(m);
    else
        set_state(m, MEMBERSHIP_NO_QUORUM);
}

static bool is_over(const struct membership *m)
{
    return m->state == MEMBERSHIP_EVICTED || m->state == MEMBERSHIP_LEFT;
}

/* What the rows say, in this order: a decision first, so that nothing is done in a view that is over. */
static void apply_rules(struct membership *m)
{
    suspicion_update(m);
    rows_collect(m);
    suspicion_evaluate(m);
    if (m->force && m->view.number > 0 && m->quorum)
        m->force = false;
    if (learn_from_peers(m))
        return;
    joining_update(m);
    joining_reconnect(m);
    agreement_follow(m);
    agreement_lead(m);
    if (agreement_commit(m))
        decided(m);
    else
        joining_publish(m);
}

static void clear_actions(struct membership_actions *actions)
{
    actions->wedged = actions->installed = actions->state_changed = false;
    actions->push_count = actions->connect_count = actions->disconnect_count = 0;
    actions->trace_count = actions->traces_lost = 0;
}

int membership_step(struct membership *m, const struct membership_event *event,
                    struct membership_actions *actions)
{
    uint64_t stood_still_ns = event->now_ns - m->now_ns;
    int rc;

    clear_actions(actions);
    if (is_over(m))
        return COVEY_EVICTED;
    assert(event->now_ns >= m->now_ns);
    m->actions = actions;
    m->now_ns = event->now_ns;
    m->again = false;
    if (stood_still_ns > (m->config.suspect_after_ns + m->config.heartbeat_ns) / 2)
        suspicion_forgive(m);
    rc = handle(m, event);
    if (is_over(m))
        return rc;
    beat(m);
    apply_rules(m);
    if (!is_over(m)) {
        if (actions->installed) {
            rows_collect(m);
            suspicion_evaluate(m);
        }
        update_state(m);
    }
    disconnect_removed(m);
    return rc;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t membership_deadline_ns(const struct membership *m)
{
    uint64_t deadline_ns = m->heartbeat_due_ns;

    if (is_over(m))
        return UINT64_MAX;
    if (m->again)
        return m->now_ns;
    deadline_ns = earlier(deadline_ns, agreement_deadline_ns(m));
    return earlier(earlier(deadline_ns, joining_deadline_ns(m)), suspicion_deadline_ns(m));
}

/* --- Looking -------------------------------------------------------------------------------------------- */

void membership_received(struct membership *m, uint32_t group, uint64_t position)
{
    assert(group < m->config.group_count && !m->wedged && position >= m->received[group]);
    m->received[group] = position;
}

const struct view *membership_view(const struct membership *m)
{
    return &m->view;
}

enum membership_state membership_state(const struct membership *m)
{
    return m->state;
}

bool membership_wedged(const struct membership *m)
{
    return m->wedged;
}

bool membership_suspects(const struct membership *m, uint32_t rank)
{
    assert(rank < m->view.count);
    return bitmap_get(m->suspected, rank);
}

bool membership_slot(const struct membership *m, uint32_t rank, uint32_t *slot)
{
    assert(rank < m->view.count);
    if (m->slots[rank] == SLOT_NONE || !m->links[m->slots[rank]].up)
        return false;
    *slot = m->slots[rank];
    return true;
}

struct table *membership_table(struct membership *m)
{
    return &m->table;
}

#define RULE_NAME(name, text, sentence)     text,
#define RULE_SENTENCE(name, text, sentence) sentence,

const char *membership_rule_name(enum membership_rule rule)
{
    static const char *const names[] = {MEMBERSHIP_RULES(RULE_NAME)};

    return (unsigned)rule < MEMBERSHIP_RULE_COUNT ? names[rule] : "unknown";
}

const char *membership_rule_sentence(enum membership_rule rule)
{
    static const char *const sentences[] = {MEMBERSHIP_RULES(RULE_SENTENCE)};

    return (unsigned)rule < MEMBERSHIP_RULE_COUNT ? sentences[rule] : "unknown";
}

const char *membership_state_name(enum membership_state state)
{
    static const char *const names[MEMBERSHIP_STATES] = {"forming",   "joining", "running", "wedged",
                                                         "no-quorum", "evicted", "left"};

    return (unsigned)state < MEMBERSHIP_STATES ? names[state] : "unknown";
}
