/* SPDX-License-Identifier: BSD-3-Clause */
/* Events, members, the group and faults of the simulator. */

#include <stdlib.h>
#include <string.h>

#include <covey/error.h>

#include "base/bitmap.h"
#include "tests/sim/session_sim_internal.h"

void *sim_zeroed(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);

    if (memory == NULL)
        abort();
    return memory;
}

uint64_t sim_random(struct sim *sim, uint64_t below)
{
    return rng_below(&sim->rng, below);
}

/* --- Events: a heap by time ---------------------------------------------------------------------- */

static bool earlier(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->number < b->number;
}

void sim_push(struct sim *sim, uint64_t at_ns, const struct sim_event *event)
{
    struct sim_event copy = *event;
    size_t at = sim->heap_count++;

    if (sim->heap_count > sim->heap_size) {
        sim->heap_size = 2 * sim->heap_size;
        sim->heap = realloc(sim->heap, sim->heap_size * sizeof(*sim->heap));
        if (sim->heap == NULL)
            abort();
    }
    copy.at_ns = at_ns;
    copy.number = sim->next_number++;
    for (; at > 0 && earlier(&copy, &sim->heap[(at - 1) / 2]); at = (at - 1) / 2)
        sim->heap[at] = sim->heap[(at - 1) / 2];
    sim->heap[at] = copy;
}

static struct sim_event pop(struct sim *sim)
{
    struct sim_event first = sim->heap[0];
    struct sim_event last = sim->heap[--sim->heap_count];
    size_t at = 0;

    for (size_t child; (child = 2 * at + 1) < sim->heap_count; at = child) {
        if (child + 1 < sim->heap_count && earlier(&sim->heap[child + 1], &sim->heap[child]))
            child++;
        if (!earlier(&sim->heap[child], &last))
            break;
        sim->heap[at] = sim->heap[child];
    }
    sim->heap[at] = last;
    return first;
}

/* --- Control lanes ------------------------------------------------------------------------------- */

bool sim_is_cut(const struct sim *sim, uint32_t a, uint32_t b)
{
    return sim->cut[a * sim->options.schedule.members + b];
}

static void run_message(struct sim *sim, const struct sim_event *event)
{
    if (event->message.peer == event->a || !sim_is_cut(sim, event->message.peer, event->a))
        sim_deliver(sim, event->a, &event->message);
}

static void send_message(struct sim *sim, uint32_t from, uint32_t to, struct session_event message)
{
    uint64_t *last_ns = &sim->members[from].control_ns[to];
    uint64_t at_ns = sim->now_ns + sim->options.latency_ns + sim_random(sim, sim->options.jitter_ns + 1);

    message.peer = from;
    *last_ns = at_ns > *last_ns ? at_ns : *last_ns + 1;
    sim_push(sim, *last_ns, &(struct sim_event){.run = run_message, .a = to, .message = message});
}

/* --- The group ----------------------------------------------------------------------------------- */

static void run_own(struct sim *sim, const struct sim_event *event)
{
    sim_deliver(sim, event->a, &event->message);
}

/* What a member tells itself after a while. */
static void tell_later(struct sim *sim, uint32_t member, uint64_t within_ns, struct session_event message)
{
    message.peer = member;
    message.culprit = SESSION_NOBODY;
    sim_push(sim, sim->now_ns + 1 + sim_random(sim, within_ns + 1),
             &(struct sim_event){.run = run_own, .a = member, .message = message});
}

static void decide(struct sim *sim, bool commit)
{
    struct session_event event = {.type = commit ? SESSION_COMMIT : SESSION_ABORT,
                                  .code = commit ? 0 : COVEY_EVICTED};

    if (sim->decision != UNDECIDED)
        return;
    sim->decision = commit ? COMMITTED : ABORTED;
    for (uint32_t member = 0; member < sim->options.schedule.members; member++)
        tell_later(sim, member, sim->options.latency_ns + sim->options.jitter_ns, event);
}

static void run_ordered(struct sim *sim, const struct sim_event *event)
{
    (void)event;
    decide(sim, true);
}

static void run_new_view(struct sim *sim, const struct sim_event *event)
{
    (void)event;
    decide(sim, false);
}

/* --- Losses -------------------------------------------------------------------------------------- */

static void run_lost(struct sim *sim, const struct sim_event *event)
{
    struct session_event lost = {.type = SESSION_LOST, .peer = event->b, .culprit = SESSION_NOBODY};

    sim_deliver(sim, event->a, &lost);
}

static void cut(struct sim *sim, uint32_t a, uint32_t b)
{
    uint32_t members = sim->options.schedule.members;

    if (sim_is_cut(sim, a, b))
        return;
    sim->cut[a * members + b] = sim->cut[b * members + a] = true;
    sim_push(sim, sim->now_ns + 1 + sim_random(sim, sim->options.detect_ns + 1),
             &(struct sim_event){.run = run_lost, .a = a, .b = b});
    sim_push(sim, sim->now_ns + 1 + sim_random(sim, sim->options.detect_ns + 1),
             &(struct sim_event){.run = run_lost, .a = b, .b = a});
    sim_push(sim, sim->now_ns + sim->options.view_ns, &(struct sim_event){.run = run_new_view});
}

/* --- Members ------------------------------------------------------------------------------------- */

static void session_over(struct sim *sim, uint32_t member)
{
    if (!session_quiet(sim->members[member].session))
        checker_fail(&sim->checker, "member %u is closed and not quiet", member);
    checker_closed(&sim->checker, member);
    sim->members[member].session = NULL;
}

static void operation_done(struct sim *sim, uint32_t member, const struct session_action *action)
{
    checker_done(&sim->checker, member, action->code);
    sim->result.done_ns = sim->now_ns;
    sim->result.code = action->code;
    sim->result.culprit = action->culprit;
}

static const enum session_event_type message_of[] = {
    [SESSION_SEND_OFFER] = SESSION_BEGIN,       [SESSION_SEND_ACCEPT] = SESSION_ACCEPT,
    [SESSION_SEND_REFUSE] = SESSION_REFUSE,     [SESSION_SEND_START] = SESSION_START,
    [SESSION_SEND_GRANT] = SESSION_GRANT,       [SESSION_SEND_SEAL] = SESSION_SEAL,
    [SESSION_SEND_RECEIVED] = SESSION_RECEIVED, [SESSION_SEND_FAILED] = SESSION_FAILED,
    [SESSION_SEND_CANCEL] = SESSION_CANCEL,     [SESSION_SEND_DELIVERED] = SESSION_DELIVERY,
};

static void act(struct sim *sim, uint32_t member, const struct session_action *action)
{
    struct member *self = &sim->members[member];
    struct session_event event = {.code = action->code, .culprit = action->culprit};

    switch (action->type) {
    case SESSION_POST_FENCE:
        network_post(sim, member, action->peer, FENCE_ITEM);
        break;
    case SESSION_LAND:
        event.type = SESSION_LANDED;
        event.code = self->refuse;
        tell_later(sim, member, sim->options.local_ns, event);
        break;
    case SESSION_VERIFY:
        event.type = SESSION_VERIFIED;
        event.code = self->corrupt ? COVEY_CORRUPT : 0;
        tell_later(sim, member, sim->options.local_ns, event);
        break;
    case SESSION_ORDER:
        sim_push(sim, sim->now_ns + sim->options.latency_ns, &(struct sim_event){.run = run_ordered});
        break;
    case SESSION_DELIVER:
        checker_delivered(&sim->checker, member);
        break;
    case SESSION_DISCONNECT:
        sim->result.disconnects++;
        cut(sim, member, action->peer);
        break;
    case SESSION_DONE:
        operation_done(sim, member, action);
        break;
    case SESSION_RELEASE:
        checker_released(&sim->checker, member);
        break;
    default:
        event.type = message_of[action->type];
        event.skip = self->skip;
        send_message(sim, member, action->peer, event);
    }
}

static void run_tick(struct sim *sim, const struct sim_event *event)
{
    struct member *self = &sim->members[event->a];
    struct session_event tick = {.type = SESSION_TICK, .culprit = SESSION_NOBODY};

    if (self->tick_ns != sim->now_ns || self->session == NULL)
        return;
    self->tick_ns = SIM_NEVER;
    sim_deliver(sim, event->a, &tick);
}

static void set_timer(struct sim *sim, uint32_t member)
{
    struct member *self = &sim->members[member];
    uint64_t at_ns = session_deadline_ns(self->session);

    if (at_ns <= sim->now_ns)
        at_ns = sim->now_ns + 1;
    if (at_ns >= self->tick_ns || at_ns >= UINT64_MAX / 4)
        return;
    self->tick_ns = at_ns;
    sim_push(sim, at_ns, &(struct sim_event){.run = run_tick, .a = member});
}

static void post_writes(struct sim *sim, uint32_t member)
{
    struct session *session = sim->members[member].session;
    struct transfer write;

    while (session_next_write(session, sim->now_ns, &write)) {
        network_post(sim, member, write.peer, write.block);
        session_posted(session, sim->now_ns, &write);
    }
}

static void step(struct sim *sim, uint32_t member, const struct session_event *message)
{
    struct member *self = &sim->members[member];
    struct session_actions actions = {.list = self->actions};
    struct session_event event = *message;

    event.now_ns = sim->now_ns;
    if (session_step(self->session, &event, &actions) != 0)
        checker_fail(&sim->checker, "member %u: event %d from %u breaks the protocol in state %d", member,
                     (int)event.type, event.peer, (int)session_state(self->session));
    for (size_t i = 0; i < actions.count; i++)
        act(sim, member, &self->actions[i]);
    if (session_state(self->session) == SESSION_CLOSED) {
        session_over(sim, member);
        return;
    }
    post_writes(sim, member);
    set_timer(sim, member);
}

static bool from_peer(const struct session_event *message)
{
    return message->type >= SESSION_ACCEPT && message->type != SESSION_COMMIT;
}

static void keep_for_later(struct member *self, const struct session_event *message)
{
    if (self->backlog_count == self->backlog_size) {
        self->backlog_size = 2 * self->backlog_size + 8;
        self->backlog = realloc(self->backlog, self->backlog_size * sizeof(*self->backlog));
        if (self->backlog == NULL)
            abort();
    }
    self->backlog[self->backlog_count++] = *message;
}

void sim_deliver(struct sim *sim, uint32_t to, const struct session_event *message)
{
    struct member *self = &sim->members[to];

    if (self->dead)
        return;
    if (self->paused) {
        keep_for_later(self, message);
        return;
    }
    if (from_peer(message) && self->lost[message->peer])
        return;
    if (message->type == SESSION_LOST) {
        self->lost[message->peer] = true;
        network_purge(sim, to, message->peer);
    }
    if (self->session != NULL)
        step(sim, to, message);
    else if (message->type == SESSION_GRANT)
        network_post(sim, to, message->peer, FENCE_ITEM);
}

/* --- Faults -------------------------------------------------------------------------------------- */

static void run_crash(struct sim *sim, const struct sim_event *event)
{
    sim->members[event->a].dead = true;
    sim->members[event->a].session = NULL;
    checker_stopped(&sim->checker, event->a);
    for (uint32_t peer = 0; peer < sim->options.schedule.members; peer++)
        if (peer != event->a)
            cut(sim, event->a, peer);
}

void sim_crash_at(struct sim *sim, uint32_t member, uint64_t at_ns)
{
    sim_push(sim, at_ns, &(struct sim_event){.run = run_crash, .a = member});
}

static void run_resume(struct sim *sim, const struct sim_event *event)
{
    struct member *self = &sim->members[event->a];

    if (!self->paused || self->paused_until_ns > sim->now_ns)
        return;
    self->paused = false;
    for (size_t i = 0; i < self->backlog_count; i++)
        sim_deliver(sim, event->a, &self->backlog[i]);
    self->backlog_count = 0;
    network_resume(sim, event->a);
}

static void run_pause(struct sim *sim, const struct sim_event *event)
{
    struct member *self = &sim->members[event->a];

    self->paused = true;
    if (event->value > self->paused_until_ns)
        self->paused_until_ns = event->value;
    if (self->paused_until_ns != SIM_NEVER) {
        sim_push(sim, self->paused_until_ns, &(struct sim_event){.run = run_resume, .a = event->a});
        return;
    }
    checker_stopped(&sim->checker, event->a);
    sim_push(sim, sim->now_ns + sim->options.suspect_ns, &(struct sim_event){.run = run_new_view});
}

void sim_pause_at(struct sim *sim, uint32_t member, uint64_t at_ns, uint64_t until_ns)
{
    sim_push(sim, at_ns, &(struct sim_event){.run = run_pause, .a = member, .value = until_ns});
}

static void run_cut(struct sim *sim, const struct sim_event *event)
{
    cut(sim, event->a, event->b);
}

void sim_cut_at(struct sim *sim, uint32_t a, uint32_t b, uint64_t at_ns)
{
    sim_push(sim, at_ns, &(struct sim_event){.run = run_cut, .a = a, .b = b});
}

static void run_stick(struct sim *sim, const struct sim_event *event)
{
    sim->members[event->a].lanes[event->b].stuck = true;
}

void sim_stick_at(struct sim *sim, uint32_t from, uint32_t to, uint64_t at_ns)
{
    sim_push(sim, at_ns, &(struct sim_event){.run = run_stick, .a = from, .b = to});
}

/* A user's: not once the order has been asked. */
static void run_abort(struct sim *sim, const struct sim_event *event)
{
    const struct member *self = &sim->members[event->a];
    struct session_event abort_event = {
        .type = SESSION_ABORT, .code = COVEY_CANCELLED, .culprit = SESSION_NOBODY};

    if (self->session != NULL && !self->paused && session_state(self->session) < SESSION_ORDERING)
        sim_deliver(sim, event->a, &abort_event);
}

void sim_abort_at(struct sim *sim, uint32_t member, uint64_t at_ns)
{
    sim_push(sim, at_ns, &(struct sim_event){.run = run_abort, .a = member});
}

void sim_refuse(struct sim *sim, uint32_t member, int code)
{
    sim->members[member].refuse = code;
}

void sim_corrupt(struct sim *sim, uint32_t member)
{
    sim->members[member].corrupt = true;
}

void sim_slow(struct sim *sim, uint32_t member, uint32_t divisor)
{
    sim->members[member].port.rate /= divisor;
}

void sim_hold(struct sim *sim, uint32_t member, uint32_t block)
{
    struct member *self = &sim->members[member];
    struct session_event held = {
        .type = SESSION_READY, .block = block, .count = 1, .culprit = SESSION_NOBODY};
    struct session_actions actions = {.list = self->actions};

    if (self->skip == NULL)
        self->skip = sim_zeroed(BITMAP_WORDS(sim->options.schedule.blocks), sizeof(uint64_t));
    if (bitmap_get(self->skip, block))
        return;
    bitmap_set(self->skip, block);
    checker_has(&sim->checker, member, block);
    session_step(self->session, &held, &actions);
    if (--self->missing == 0)
        sim->incomplete--;
}

/* --- The run ------------------------------------------------------------------------------------- */

static void member_open(struct sim *sim, uint32_t member)
{
    const struct sim_options *options = &sim->options;
    uint32_t members = options->schedule.members;
    struct member *self = &sim->members[member];
    struct session_config config = {.schedule = options->schedule,
                                    .rank = member,
                                    .window = options->window,
                                    .edge_window = options->edge_window,
                                    .overtake_ns = options->overtake_ns,
                                    .stall_ns = options->stall_ns,
                                    .block_ns = options->block_ns};

    self->memory = sim_zeroed(1, session_bytes(&options->schedule));
    self->session = session_init(self->memory, &config);
    self->actions = sim_zeroed(SESSION_ACTIONS_MAX(members), sizeof(*self->actions));
    self->control_ns = sim_zeroed(members, sizeof(uint64_t));
    self->lost = sim_zeroed(members, sizeof(bool));
    self->tick_ns = SIM_NEVER;
    self->missing = member == 0 ? 0 : options->schedule.blocks;
    network_open(sim, member);
}

struct sim *sim_open(const struct sim_options *options)
{
    struct sim *sim = sim_zeroed(1, sizeof(*sim));
    uint32_t members = options->schedule.members;

    sim->options = *options;
    rng_init(&sim->rng, options->seed);
    checker_init(&sim->checker, members, options->schedule.blocks, options->seed);
    sim->members = sim_zeroed(members, sizeof(struct member));
    sim->cut = sim_zeroed((size_t)members * members, sizeof(bool));
    sim->incomplete = members - 1;
    sim->heap_size = 256;
    sim->heap = sim_zeroed(sim->heap_size, sizeof(*sim->heap));
    for (uint32_t member = 0; member < members; member++)
        member_open(sim, member);
    return sim;
}

void sim_close(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->options.schedule.members; i++) {
        network_close(sim, i);
        free(sim->members[i].memory);
        free(sim->members[i].actions);
        free(sim->members[i].control_ns);
        free(sim->members[i].lost);
        free(sim->members[i].skip);
        free(sim->members[i].backlog);
    }
    checker_free(&sim->checker);
    free(sim->members);
    free(sim->cut);
    free(sim->heap);
    free(sim);
}

/* The root's blocks become ready one by one, in order, and then the whole is sealed. */
static void prepare_root(struct sim *sim)
{
    const struct sim_options *options = &sim->options;
    struct session_event event = {.type = SESSION_READY, .count = 1, .culprit = SESSION_NOBODY};
    uint64_t at_ns = 1;

    for (uint32_t block = 0; options->ready_ns > 0 && block < options->schedule.blocks; block++) {
        event.block = block;
        at_ns += 1 + sim_random(sim, options->ready_ns);
        sim_push(sim, at_ns, &(struct sim_event){.run = run_own, .message = event});
    }
    event.type = SESSION_SEALED;
    sim_push(sim, at_ns + 1, &(struct sim_event){.run = run_own, .message = event});
}

uint64_t sim_run(struct sim *sim, uint64_t limit_ns)
{
    struct session_event begin = {.type = SESSION_BEGIN, .culprit = SESSION_NOBODY};

    sim_push(sim, 0, &(struct sim_event){.run = run_own, .message = begin});
    prepare_root(sim);
    while (sim->heap_count > 0 && sim->heap[0].at_ns <= limit_ns && sim->checker.text[0] == '\0') {
        struct sim_event event = pop(sim);

        sim->now_ns = event.at_ns;
        sim->result.events++;
        event.run(sim, &event);
    }
    if (sim->heap_count > 0)
        checker_fail(&sim->checker, "there is no end: %zu events wait after %llu ns", sim->heap_count,
                     (unsigned long long)sim->now_ns);
    checker_finish(&sim->checker);
    return sim->now_ns;
}

const struct sim_result *sim_result(const struct sim *sim)
{
    return &sim->result;
}

struct session_checker *sim_checker(struct sim *sim)
{
    return &sim->checker;
}

uint64_t sim_floor_ns(const struct sim_options *options)
{
    return (uint64_t)((unsigned __int128)options->schedule.blocks * options->block_bytes * 1000000000u /
                      options->link_rate);
}
