/* SPDX-License-Identifier: BSD-3-Clause */
/* Links between processes: see sim.h for what they may do at worst. */
#include "tests/sim/sim_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum piece_type { PIECE_WORDS, PIECE_IMMEDIATE, PIECE_DOWN };

#define TABLE UINT32_MAX /* for a group: the cluster's row */

struct word {
    uint32_t offset; /* in the row, in words */
    uint64_t value;
};

/* What becomes visible at once. */
struct piece {
    struct piece *next;
    uint64_t ready_ns;
    enum piece_type type;
    uint32_t group; /* whose row it is about, or TABLE */
    uint32_t count;
    struct word words[];
};

/* One way: in the order of posting. */
struct way {
    struct piece *head, **tail;
    uint64_t last_ns; /* when the last piece is ready */
    bool scheduled;
    bool pushed; /* in this step, to the table: an immediate is due */
};

struct sim_conn {
    struct sim_conn *next;
    struct sim_process *end[2];
    uint32_t slot[2];
    bool made;           /* slots are taken */
    bool up[2];          /* LINK_UP was reported to that end */
    bool closed[2];      /* LINK_DOWN was, or will never be */
    struct way way[2];   /* from that end */
    uint32_t events;     /* that are to come */
    uint64_t touched_ns; /* when the last one came */
};

static uint64_t drawn(struct sim *sim, uint64_t bound)
{
    return bound == 0 ? 0 : rng_below(&sim->rng, bound + 1);
}

static void later(struct sim_conn *conn, uint64_t at_ns, sim_later *what, uint64_t argument)
{
    conn->events++;
    sim_at(conn->end[0]->sim, at_ns, what, conn, argument);
}

static void touch(struct sim_conn *conn)
{
    conn->events--;
    conn->touched_ns = conn->end[0]->sim->now_ns;
}

static bool is_cut(const struct sim_conn *conn, uint32_t from)
{
    return conn->end[0]->sim->cut[conn->end[from]->node][conn->end[1 - from]->node];
}

static uint32_t end_of(const struct sim_conn *conn, const struct sim_process *process)
{
    return conn->end[0] == process ? 0 : 1;
}

static void drop(struct way *way)
{
    while (way->head != NULL) {
        struct piece *next = way->head->next;
        free(way->head);
        way->head = next;
    }
    way->tail = &way->head;
}

/* --- What arrives --------------------------------------------------------------------------------------- */

static void down(struct sim_conn *conn, uint32_t end)
{
    if (conn->closed[end])
        return;
    conn->closed[end] = true;
    drop(&conn->way[1 - end]);
    if (conn->up[end])
        process_event(conn->end[end],
                      &(struct membership_event){.type = MEMBERSHIP_LINK_DOWN, .slot = conn->slot[end]});
    else if (conn->made)
        conn->end[end]->conns[conn->slot[end]] = NULL;
}

static void write_words(struct sim_process *process, uint32_t slot, const struct piece *piece)
{
    uint64_t *row = (uint64_t *)process->slots_memory + (size_t)slot * process->layout.row_words;

    for (uint32_t i = 0; i < piece->count; i++) {
        const struct word *word = &piece->words[i];
        if (piece->group == TABLE)
            row[word->offset] = word->value;
        else
            ordering_write(process, slot, piece->group, word->offset * 8, word->value);
    }
}

static void arrive(struct sim_conn *conn, uint32_t from, const struct piece *piece)
{
    uint32_t to = 1 - from, slot = conn->slot[to];
    struct sim_process *process = conn->end[to];

    if (conn->closed[to] || !process->alive)
        return;
    switch (piece->type) {
    case PIECE_WORDS:
        write_words(process, slot, piece);
        break;
    case PIECE_IMMEDIATE:
        if (piece->group != TABLE)
            process_heard(process, slot, piece->group);
        else
            process_event(process, &(struct membership_event){.type = MEMBERSHIP_ROW, .slot = slot});
        break;
    case PIECE_DOWN:
        down(conn, to);
        break;
    }
}

static void move(struct sim *sim, void *object, uint64_t from);

static void schedule(struct sim_conn *conn, uint32_t from)
{
    struct way *way = &conn->way[from];

    if (way->scheduled || way->head == NULL || is_cut(conn, from))
        return;
    way->scheduled = true;
    later(conn, way->head->ready_ns, move, from);
}

static void move(struct sim *sim, void *object, uint64_t from)
{
    struct sim_conn *conn = object;
    struct way *way = &conn->way[from];
    struct piece *piece = way->head;

    touch(conn);
    way->scheduled = false;
    if (piece != NULL && !is_cut(conn, (uint32_t)from) && piece->ready_ns <= sim->now_ns) {
        way->head = piece->next;
        if (way->head == NULL)
            way->tail = &way->head;
        arrive(conn, (uint32_t)from, piece);
        free(piece);
    }
    schedule(conn, (uint32_t)from);
}

/* --- What is sent --------------------------------------------------------------------------------------- */

static struct piece *post(struct sim_conn *conn, uint32_t from, enum piece_type type, uint32_t words,
                          uint64_t delay_ns)
{
    struct sim *sim = conn->end[from]->sim;
    struct way *way = &conn->way[from];
    struct piece *piece = calloc(1, sizeof(*piece) + words * sizeof(piece->words[0]));

    assert(piece != NULL);
    piece->type = type;
    piece->ready_ns = sim->now_ns + delay_ns;
    if (piece->ready_ns < way->last_ns)
        piece->ready_ns = way->last_ns;
    way->last_ns = piece->ready_ns;
    *way->tail = piece;
    way->tail = &piece->next;
    return piece;
}

static uint64_t delay(struct sim_conn *conn)
{
    struct sim *sim = conn->end[0]->sim;

    return sim->options.latency_ns + drawn(sim, sim->options.jitter_ns) + sim->slow_ns[conn->end[0]->node] +
           sim->slow_ns[conn->end[1]->node];
}

/* One write of words to [offset, offset + count) of a row; when it is torn, in two pieces of any words. */
static void post_write(struct sim_conn *conn, uint32_t from, uint32_t group, uint32_t offset,
                       const uint64_t *words, uint32_t count)
{
    struct sim *sim = conn->end[from]->sim;
    bool torn = count > 1 && rng_below(&sim->rng, 100) < sim->options.torn_percent;
    uint64_t base_ns = delay(conn);
    struct piece *pieces[2];

    pieces[0] = pieces[1] = post(conn, from, PIECE_WORDS, count, base_ns);
    if (torn)
        pieces[1] = post(conn, from, PIECE_WORDS, count, base_ns + drawn(sim, sim->options.jitter_ns));
    for (uint32_t i = 0; i < count; i++) {
        struct piece *piece = pieces[rng_below(&sim->rng, 2)];
        piece->words[piece->count++] = (struct word){.offset = offset + i, .value = words[i]};
    }
    pieces[0]->group = pieces[1]->group = group;
}

static bool carries(const struct sim_conn *conn, uint32_t from)
{
    return conn != NULL && conn->up[from] && !conn->closed[from] && !conn->closed[1 - from];
}

void net_push(struct sim_process *process, const struct membership_push *push)
{
    for (uint32_t slot = 0; slot < process->layout.slots; slot++) {
        struct sim_conn *conn = process->conns[slot];
        if ((push->slot == MEMBERSHIP_EVERYONE || push->slot == slot) && conn != NULL &&
            carries(conn, end_of(conn, process))) {
            post_write(conn, end_of(conn, process), TABLE, push->offset / 8,
                       membership_table(process->membership)->own + push->offset / 8, push->bytes / 8);
            conn->way[end_of(conn, process)].pushed = true;
        }
    }
}

void net_flush(struct sim_process *process)
{
    for (uint32_t slot = 0; slot < process->layout.slots; slot++) {
        struct sim_conn *conn = process->conns[slot];
        uint32_t from = conn != NULL ? end_of(conn, process) : 0;
        if (conn == NULL || !conn->way[from].pushed)
            continue;
        conn->way[from].pushed = false;
        post(conn, from, PIECE_IMMEDIATE, 0, 0)->group = TABLE;
        schedule(conn, from);
    }
}

void net_push_group(struct sim_process *process, uint32_t slot, uint32_t group, const char *row,
                    const struct order_push *push)
{
    struct sim_conn *conn = process->conns[slot];
    uint32_t from;

    if (conn == NULL || !carries(conn, end_of(conn, process)))
        return;
    from = end_of(conn, process);
    for (uint32_t i = 0; i < push->range_count; i++)
        post_write(conn, from, group, push->ranges[i].offset / 8,
                   (const uint64_t *)(const void *)(row + push->ranges[i].offset), push->ranges[i].bytes / 8);
    post_write(conn, from, group, push->words_offset / 8, push->words, ORDER_PUSH_WORDS);
    post(conn, from, PIECE_IMMEDIATE, 0, 0)->group = group;
    schedule(conn, from);
}

/* --- Links come and go ---------------------------------------------------------------------------------- */

static void report_up(struct sim *sim, void *object, uint64_t end)
{
    struct sim_conn *conn = object;
    const struct sim_process *peer = conn->end[1 - end];

    (void)sim;
    touch(conn);
    if (conn->closed[end] || !conn->end[end]->alive)
        return;
    conn->up[end] = true;
    process_event(conn->end[end],
                  &(struct membership_event){.type = MEMBERSHIP_LINK_UP,
                                             .slot = conn->slot[end],
                                             .peer = {.id = peer->node, .incarnation = peer->incarnation}});
}

static bool take_slot(struct sim_conn *conn, uint32_t end)
{
    struct sim_process *process = conn->end[end];

    for (uint32_t slot = 0; slot < process->layout.slots; slot++) {
        if (process->conns[slot] != NULL)
            continue;
        process->conns[slot] = conn;
        conn->slot[end] = slot;
        table_slot_clear(membership_table(process->membership), slot);
        ordering_slot(process, slot);
        return true;
    }
    return false;
}

static bool can_talk(const struct sim_conn *conn)
{
    return conn->end[0]->alive && conn->end[1]->alive && !conn->end[0]->paused && !conn->end[1]->paused &&
           !is_cut(conn, 0) && !is_cut(conn, 1);
}

static void make(struct sim *sim, void *object, uint64_t argument)
{
    struct sim_conn *conn = object;

    (void)argument;
    touch(conn);
    if (!can_talk(conn)) {
        conn->closed[0] = conn->closed[1] = true;
        return;
    }
    conn->made = take_slot(conn, 0) && take_slot(conn, 1);
    if (!conn->made) {
        sim_fail(sim, "no slot for a link between %u and %u", conn->end[0]->node, conn->end[1]->node);
        return;
    }
    later(conn, sim->now_ns + drawn(sim, sim->options.jitter_ns), report_up, 0);
    later(conn, sim->now_ns + drawn(sim, sim->options.jitter_ns), report_up, 1);
}

/* The link between two processes, unless it is closed; closed ones that nothing refers to are freed, but not
 * within their last event. */
static struct sim_conn *find(struct sim *sim, const struct sim_process *a, const struct sim_process *b)
{
    struct sim_conn **at = &sim->conns, *found = NULL;

    while (*at != NULL) {
        struct sim_conn *conn = *at;
        bool held = (conn->made && (conn->end[0]->conns[conn->slot[0]] == conn ||
                                    conn->end[1]->conns[conn->slot[1]] == conn));
        if (conn->closed[0] && conn->closed[1] && conn->events == 0 && conn->touched_ns < sim->now_ns &&
            !held) {
            *at = conn->next;
            drop(&conn->way[0]);
            drop(&conn->way[1]);
            free(conn);
            continue;
        }
        if ((conn->end[0] == a && conn->end[1] == b) || (conn->end[0] == b && conn->end[1] == a)) {
            if (!conn->closed[0] || !conn->closed[1] || held)
                found = conn;
        }
        at = &conn->next;
    }
    return found;
}

void net_connect(struct sim_process *process, const struct membership_peer *peer)
{
    struct sim *sim = process->sim;
    struct sim_process *other;
    struct sim_conn *conn;

    if (peer->id >= SIM_NODES_MAX || sim->current[peer->id] == UINT32_MAX)
        return;
    other = sim->processes[sim->current[peer->id]];
    if (!other->alive || (peer->incarnation != 0 && peer->incarnation != other->incarnation) ||
        other == process || find(sim, process, other) != NULL)
        return;
    conn = calloc(1, sizeof(*conn));
    assert(conn != NULL);
    conn->end[0] = process;
    conn->end[1] = other;
    conn->way[0].tail = &conn->way[0].head;
    conn->way[1].tail = &conn->way[1].head;
    conn->next = sim->conns;
    sim->conns = conn;
    later(conn, sim->now_ns + 2 * delay(conn), make, 0);
}

/* What was pushed before still arrives; then the other end sees the link's end. */
static void close_after_writes(struct sim_conn *conn, uint32_t from, uint64_t delay_ns)
{
    post(conn, from, PIECE_DOWN, 0, delay_ns);
    schedule(conn, from);
}

static void down_now(struct sim *sim, void *object, uint64_t end)
{
    struct sim_conn *conn = object;

    (void)sim;
    touch(conn);
    down(conn, (uint32_t)end);
}

void net_disconnect(struct sim_process *process, uint32_t slot)
{
    struct sim_conn *conn = process->conns[slot];
    uint32_t end;

    if (conn == NULL)
        return;
    end = end_of(conn, process);
    close_after_writes(conn, end, delay(conn));
    later(conn, process->sim->now_ns, down_now, end);
}

/* Both ends lose it, and with it what was on the way. */
static void tear(struct sim *sim, void *object, uint64_t only_if_useless)
{
    struct sim_conn *conn = object;
    bool useless = is_cut(conn, 0) || is_cut(conn, 1) || !conn->end[0]->alive || !conn->end[1]->alive;

    (void)sim;
    touch(conn);
    if (!conn->made || (only_if_useless != 0 && !useless))
        return;
    down(conn, 0);
    down(conn, 1);
}

static void lose_some(struct sim *sim, struct way *way)
{
    struct piece **at = &way->head;

    for (uint64_t keep = rng_below(&sim->rng, 8); keep > 0 && *at != NULL; keep--)
        at = &(*at)->next;
    while (*at != NULL) {
        struct piece *next = (*at)->next;
        free(*at);
        *at = next;
    }
    way->tail = at;
}

/* A part of what it had posted still arrives. The peers see the end of the link soon, or, when the network
 * says nothing, only after a long time. */
void net_crashed(struct sim_process *process)
{
    struct sim *sim = process->sim;

    for (struct sim_conn *conn = sim->conns; conn != NULL; conn = conn->next) {
        uint32_t end = end_of(conn, process);
        if (conn->end[end] != process)
            continue;
        conn->closed[end] = true;
        drop(&conn->way[1 - end]);
        if (!conn->made)
            continue;
        conn->end[end]->conns[conn->slot[end]] = NULL;
        if (!process->over && sim->options.jitter_ns > 0 && rng_below(&sim->rng, 2) == 0)
            lose_some(sim, &conn->way[end]);
        if (process->over || rng_below(&sim->rng, 100) >= sim->options.silent_percent)
            close_after_writes(conn, end, sim->options.latency_ns + drawn(sim, 8 * sim->options.jitter_ns));
        else
            later(conn, sim->now_ns + 8 * sim->options.suspect_after_ns, tear, 1);
    }
}

void net_cut_changed(struct sim *sim)
{
    for (struct sim_conn *conn = sim->conns; conn != NULL; conn = conn->next) {
        schedule(conn, 0);
        schedule(conn, 1);
        if (is_cut(conn, 0) || is_cut(conn, 1))
            later(conn, sim->now_ns + (1 + drawn(sim, 5)) * sim->options.suspect_after_ns, tear, 1);
    }
}

void net_break(struct sim *sim, uint32_t a, uint32_t b)
{
    for (struct sim_conn *conn = sim->conns; conn != NULL; conn = conn->next) {
        if ((conn->end[0]->node == a && conn->end[1]->node == b) ||
            (conn->end[0]->node == b && conn->end[1]->node == a))
            later(conn, sim->now_ns, tear, 0);
    }
}

uint32_t net_peer(const struct sim_process *process, uint32_t slot)
{
    const struct sim_conn *conn = process->conns[slot];

    return conn == NULL ? UINT32_MAX : conn->end[1 - end_of(conn, process)]->index;
}

void net_close(struct sim *sim)
{
    while (sim->conns != NULL) {
        struct sim_conn *next = sim->conns->next;
        drop(&sim->conns->way[0]);
        drop(&sim->conns->way[1]);
        free(sim->conns);
        sim->conns = next;
    }
}
