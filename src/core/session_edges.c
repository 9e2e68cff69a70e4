/* SPDX-License-Identifier: BSD-3-Clause */
/* Edges of a session: the order of writes, and where an edge ends. */

#include <assert.h>
#include <string.h>

#include "base/bitmap.h"
#include "core/session_internal.h"

/* At most 2 * SCHEDULE_ROUNDS_MAX + 1 in-neighbours in the schedules where there are several. */
#define SOURCES_MAX 256

static size_t aligned(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

size_t session_edges_bytes(const struct schedule *schedule)
{
    return schedule->members * sizeof(struct edge) + BITMAP_WORDS(schedule->blocks) * sizeof(uint64_t) +
           2 * aligned(schedule->members * sizeof(uint32_t)) + aligned(schedule->blocks);
}

static struct edge *out_edge(const struct session *session, const struct transfer *send)
{
    return &session->edges[send->peer];
}

/* --- Order of writes ----------------------------------------------------------------------------- */

static const struct transfer *ring_at(const struct sends *sends, uint32_t index)
{
    return &sends->ring[(sends->first + index) % SENDS_AHEAD];
}

/* The lowest bit of a set that is not empty. */
static uint32_t first_of(uint64_t set)
{
    return (uint32_t)__builtin_ctzll(set);
}

static uint64_t bit(uint32_t index)
{
    return UINT64_C(1) << index;
}

static bool is_skipped(const struct edge *edge, uint32_t block)
{
    return edge->lost || (edge->skip != NULL && bitmap_get(edge->skip, block));
}

/* Take the next steps into the ring, as far as it has room. */
static void ring_fill(struct session *session)
{
    struct sends *sends = &session->sends;
    struct transfer send;

    while (sends->count < SENDS_AHEAD && sends->next_step < session->steps) {
        if (!schedule_outgoing(&session->part, sends->next_step++, &send) ||
            is_skipped(out_edge(session, &send), send.block))
            continue;
        sends->ring[(sends->first + sends->count) % SENDS_AHEAD] = send;
        sends->pending |= bit(sends->count);
        if (bitmap_get(session->held, send.block))
            sends->held |= bit(sends->count);
        sends->count++;
    }
}

/* Drop what is done from the front of the ring and fill it up. */
static void ring_advance(struct session *session)
{
    struct sends *sends = &session->sends;
    uint32_t done = sends->pending == 0 ? sends->count : first_of(sends->pending);

    if (done > 0) {
        sends->first = (sends->first + done) % SENDS_AHEAD;
        sends->count -= done;
        sends->pending = done < SENDS_AHEAD ? sends->pending >> done : 0;
        sends->held = done < SENDS_AHEAD ? sends->held >> done : 0;
        sends->head_ns = session->now_ns;
    }
    ring_fill(session);
    assert(sends->count == 0 || (sends->pending & 1) != 0);
}

static void ring_remove(struct sends *sends, uint32_t index)
{
    sends->pending &= ~bit(index);
    sends->held &= ~bit(index);
}

/* Take those sends to a peer out of the ring that are not wanted any more. */
static void ring_prune(struct session *session, uint32_t peer)
{
    struct sends *sends = &session->sends;

    for (uint64_t rest = sends->pending; rest != 0; rest &= rest - 1) {
        const struct transfer *send = ring_at(sends, first_of(rest));

        if (send->peer == peer && is_skipped(out_edge(session, send), send->block))
            ring_remove(sends, first_of(rest));
    }
    ring_advance(session);
}

void session_sends_hold(struct session *session, uint32_t block)
{
    struct sends *sends = &session->sends;
    uint64_t slots = 0; /* of the ring, as it lies */

    for (uint32_t i = 0; i < SENDS_AHEAD; i++)
        slots |= (uint64_t)(sends->ring[i].block == block) << i;
    sends->held |= sends->pending & (slots >> sends->first | slots << (-sends->first % SENDS_AHEAD));
}

void session_sends_hold_more(struct session *session)
{
    struct sends *sends = &session->sends;

    for (uint64_t rest = sends->pending & ~sends->held; rest != 0; rest &= rest - 1)
        if (bitmap_get(session->held, ring_at(sends, first_of(rest))->block))
            sends->held |= bit(first_of(rest));
}

/* Whether the entry can go: its block is here and its receiver takes it. */
static bool can_go(const struct session *session, uint32_t index)
{
    const struct edge *edge = out_edge(session, ring_at(&session->sends, index));

    return (session->sends.held & bit(index)) != 0 && edge->granted &&
           edge->inflight < session->config.edge_window;
}

static bool may_post(const struct session *session)
{
    return (session->state == SESSION_MOVING || session->state == SESSION_ORDERING) &&
           session->inflight < session->config.window && session->sends.pending != 0;
}

/* When the head may be overtaken: at once where the link would be idle otherwise. */
static uint64_t overtake_after(const struct session *session)
{
    uint64_t at_ns = session->sends.head_ns + session->config.overtake_ns;

    if (session->inflight == 0)
        return 0;
    return at_ns < session->sends.head_ns ? UINT64_MAX : at_ns;
}

/* The first send behind the head that could go; SENDS_AHEAD if none could. */
static uint32_t find_overtaker(const struct session *session)
{
    for (uint64_t rest = session->sends.held & ~bit(0); rest != 0; rest &= rest - 1)
        if (can_go(session, first_of(rest)))
            return first_of(rest);
    return SENDS_AHEAD;
}

bool session_next_write(const struct session *session, uint64_t now_ns, struct transfer *write)
{
    const struct sends *sends = &session->sends;
    uint32_t index = 0;

    if (!may_post(session))
        return false;
    if (!can_go(session, 0)) {
        if (now_ns < overtake_after(session))
            return false;
        index = find_overtaker(session);
        if (index == SENDS_AHEAD)
            return false;
    }
    *write = *ring_at(sends, index);
    return true;
}

uint64_t session_overtake_ns(const struct session *session)
{
    if (!may_post(session) || can_go(session, 0) || find_overtaker(session) == SENDS_AHEAD)
        return UINT64_MAX;
    return overtake_after(session);
}

static uint32_t find_pending(const struct sends *sends, const struct transfer *write)
{
    for (uint64_t rest = sends->pending; rest != 0; rest &= rest - 1) {
        const struct transfer *send = ring_at(sends, first_of(rest));

        if (send->peer == write->peer && send->block == write->block)
            return first_of(rest);
    }
    return SENDS_AHEAD;
}

size_t session_upcoming(const struct session *session, struct transfer writes[], size_t max)
{
    const struct sends *sends = &session->sends;
    bool moving = session->state == SESSION_MOVING || session->state == SESSION_ORDERING;
    size_t count = 0;

    for (uint64_t rest = sends->held; moving && rest != 0 && count < max; rest &= rest - 1) {
        const struct transfer *send = ring_at(sends, first_of(rest));

        if (out_edge(session, send)->granted)
            writes[count++] = *send;
    }
    return count;
}

bool session_can_post(const struct session *session, const struct transfer *write)
{
    uint32_t index = find_pending(&session->sends, write);

    return may_post(session) && index < SENDS_AHEAD && can_go(session, index);
}

void session_posted(struct session *session, uint64_t now_ns, const struct transfer *write)
{
    struct sends *sends = &session->sends;
    struct edge *edge = out_edge(session, write);
    uint32_t index = find_pending(sends, write);

    assert(index < SENDS_AHEAD && can_go(session, index));
    if (now_ns > session->now_ns)
        session->now_ns = now_ns;
    if (edge->inflight == 0)
        edge->wrote_ns = session->now_ns;
    edge->inflight++;
    edge->sent++;
    edge->left--;
    session->inflight++;
    ring_remove(sends, index);
    if (index == 0)
        ring_advance(session);
    session_arm(session, edge->wrote_ns + session_patience_ns(session, session->config.window));
}

void session_edge_written(struct session *session, uint32_t peer)
{
    struct edge *edge = &session->edges[peer];

    assert(edge->inflight > 0);
    if (session->inflight == session->config.window)
        session->sends.head_ns = session->now_ns;
    edge->inflight--;
    edge->wrote_ns = session->now_ns;
    session->inflight--;
    session->sends_done++;
}

void session_sends_stop(struct session *session)
{
    session->sends.pending = 0;
    session->sends.held = 0;
    session->sends.count = 0;
    session->sends.next_step = session->steps;
}

/* --- Where edges begin and end ------------------------------------------------------------------- */

/* How many of the blocks that go from this rank to the peer are in the set. */
static uint32_t count_skipped(const struct session *session, uint32_t peer, const uint64_t *set)
{
    struct transfer send;
    uint32_t count = 0;

    if (session->edges[peer].sole)
        return (uint32_t)bitmap_count(set, session->config.schedule.blocks);
    for (uint64_t step = 0; step < session->steps; step++)
        if (schedule_outgoing(&session->part, step, &send) && send.peer == peer)
            count += bitmap_get(set, send.block);
    return count;
}

void session_edge_grant(struct session *session, uint32_t peer, const uint64_t *skip)
{
    struct edge *edge = &session->edges[peer];
    uint32_t skipped;

    edge->granted = true;
    edge->wrote_ns = session->now_ns;
    if (skip == NULL)
        return;
    skipped = count_skipped(session, peer, skip);
    edge->skip = skip;
    edge->left -= skipped;
    session->sends_done += skipped;
    ring_prune(session, peer);
}

void session_edge_lose(struct session *session, uint32_t peer)
{
    struct edge *edge = &session->edges[peer];

    edge->lost = true;
    session->inflight -= edge->inflight;
    session->sends_done += edge->inflight + edge->left;
    edge->inflight = 0;
    edge->left = 0;
    edge->fencing = false;
    ring_prune(session, peer);
}

bool session_edge_needs_fence(const struct edge *edge)
{
    return edge->granted && !edge->lost && (edge->left > 0 || edge->sent == 0);
}

bool session_edge_open(const struct edge *edge)
{
    return edge->invited && !edge->fenced && !edge->lost && (edge->owes > 0 || edge->owed == 0);
}

void session_edges_end(struct session *session)
{
    session_sends_stop(session);
    for (uint32_t i = 0; i < session->in_count; i++)
        session->edges[session->in_peers[i]].invited = false;
}

static uint32_t source_of(const struct session *session, uint32_t block)
{
    return session->in_peers[session->in_count > 1 ? session->source[block] : 0];
}

void session_edges_count_owed(struct session *session)
{
    uint32_t blocks = session->config.schedule.blocks;

    for (uint32_t block = 0; block < blocks; block++)
        if (!bitmap_get(session->held, block))
            session->edges[source_of(session, block)].owed++;
    for (uint32_t i = 0; i < session->in_count; i++)
        session->edges[session->in_peers[i]].owes = session->edges[session->in_peers[i]].owed;
}

bool session_edge_brings(const struct session *session, uint32_t peer, uint32_t block)
{
    return session->edges[peer].invited && !session->edges[peer].fenced &&
           block < session->config.schedule.blocks && source_of(session, block) == peer &&
           !bitmap_get(session->held, block);
}

bool session_awaits(const struct session *session, uint32_t peer, uint32_t block)
{
    return session->state == SESSION_MOVING && peer < session->config.schedule.members &&
           !session->edges[peer].lost && session_edge_brings(session, peer, block);
}

uint32_t session_edge_due(struct session *session)
{
    struct transfer in;

    assert(session->held_count < session->config.schedule.blocks);
    if (session->in_count == 1)
        return session->in_peers[0];
    while (!schedule_incoming(&session->part, session->next_missing, &in) ||
           bitmap_get(session->held, in.block))
        session->next_missing++;
    return in.peer;
}

/* --- Begin --------------------------------------------------------------------------------------- */

/* Which of several in-neighbours brings which block. */
static void learn_sources(struct session *session)
{
    struct transfer in;

    assert(session->in_count <= SOURCES_MAX);
    for (uint64_t step = 0; step < session->steps; step++)
        if (schedule_incoming(&session->part, step, &in))
            session->source[in.block] = session->edges[in.peer].in_index;
}

static void learn_in_edges(struct session *session)
{
    session->in_count = (uint32_t)schedule_in_peers(&session->part, session->in_peers);
    for (uint32_t i = 0; i < session->in_count; i++)
        session->edges[session->in_peers[i]].in_index = (uint8_t)i;
    if (session->in_count > 1)
        learn_sources(session);
}

/* Whether everything that the rank gets comes from one peer. */
static bool has_one_source(const struct schedule *schedule, uint32_t rank, uint32_t scratch[])
{
    struct schedule_rank part;

    schedule_rank_init(&part, schedule, rank);
    return schedule_in_peers(&part, scratch) == 1;
}

/* How many blocks go to each out-neighbour. Schedules with many steps to a block (sequential, tree) have one
 * source for every rank, so that the steps need not be gone through. */
static void learn_out_edges(struct session *session, uint32_t peers[], uint32_t scratch[])
{
    const struct schedule *schedule = &session->config.schedule;
    size_t count = schedule_out_peers(&session->part, peers);
    bool shared = false;
    struct transfer send;

    for (size_t i = 0; i < count; i++) {
        struct edge *edge = &session->edges[peers[i]];

        edge->out = true;
        edge->sole = has_one_source(schedule, peers[i], scratch);
        edge->left = edge->sole ? schedule->blocks : 0;
        shared = shared || !edge->sole;
    }
    for (uint64_t step = 0; shared && step < session->steps; step++)
        if (schedule_outgoing(&session->part, step, &send) && !out_edge(session, &send)->sole)
            out_edge(session, &send)->left++;
    for (size_t i = 0; i < count; i++)
        session->sends_total += session->edges[peers[i]].left;
}

void session_edges_init(struct session *session)
{
    const struct schedule *schedule = &session->config.schedule;
    uint8_t *memory = (uint8_t *)(session + 1);
    uint32_t *scratch;

    memset(memory, 0, session_edges_bytes(schedule));
    session->edges = (struct edge *)memory;
    memory += schedule->members * sizeof(struct edge);
    session->held = (uint64_t *)memory;
    memory += BITMAP_WORDS(schedule->blocks) * sizeof(uint64_t);
    session->in_peers = (uint32_t *)memory;
    memory += aligned(schedule->members * sizeof(uint32_t));
    scratch = (uint32_t *)memory;
    memory += aligned(schedule->members * sizeof(uint32_t));
    session->source = memory;

    for (uint32_t rank = 0; rank < schedule->members; rank++)
        session->edges[rank].blames = SESSION_NOBODY;
    learn_out_edges(session, session->in_peers, scratch);
    learn_in_edges(session);
    if (session->sends_total == 0)
        session->sends.next_step = session->steps; /* nothing to look for */
    ring_fill(session);
}
