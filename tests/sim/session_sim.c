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

void *sim_keep(struct sim *sim, size_t count, size_t bytes)
{
    void *memory = sim_zeroed(count, bytes);

    if (sim->kept_count == sim->kept_size) {
        sim->kept_size = 2 * sim->kept_size + 16;
        sim->kept = realloc(sim->kept, sim->kept_size * sizeof(*sim->kept));
        if (sim->kept == NULL)
            abort();
    }
    sim->kept[sim->kept_count++] = memory;
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
        sim_deliver(sim, event->a, event->session, &event->message);
}

uint64_t sim_control_ns(struct sim *sim, uint32_t from, uint32_t to)
{
    uint64_t *last_ns = &sim->members[from].control_ns[to];
    uint64_t at_ns = sim->now_ns + sim->options.latency_ns + sim_random(sim, sim->options.jitter_ns + 1);

    *last_ns = at_ns > *last_ns ? at_ns : *last_ns + 1;
    return *last_ns;
}

void sim_send(struct sim *sim, uint32_t session, uint32_t from, uint32_t to, struct session_event message)
{
    message.peer = from;
    sim_push(sim, sim_control_ns(sim, from, to),
             &(struct sim_event){.run = run_message, .a = to, .session = session, .message = message});
}

/* --- The group ----------------------------------------------------------------------------------- */

static void run_own(struct sim *sim, const struct sim_event *event)
{
    sim_deliver(sim, event->a, event->session, &event->message);
}

void sim_tell_later(struct sim *sim, uint32_t member, uint64_t within_ns, struct session_event message)
{
    if (message.type != SESSION_LOST)
        message.peer = member;
    message.culprit = SESSION_NOBODY;
    sim_push(sim, sim->now_ns + 1 + sim_random(sim, within_ns + 1),
             &(struct sim_event){
                 .run = run_own, .a = member, .session = sim->members[member].number, .message = message});
}

static void decide(struct sim *sim, uint32_t number, bool commit)
{
    struct plan *plan = &sim->plans[number];
    struct session_event event = {.type = commit ? SESSION_COMMIT : SESSION_ABORT,
                                  .code = commit ? 0 : COVEY_EVICTED};

    if (plan->decision != UNDECIDED)
        return;
    plan->decision = commit ? COMMITTED : ABORTED;
    for (uint32_t rank = 0; rank < plan->count && (commit || !sim->options.finish); rank++)
        sim_tell_later(sim, plan->members[rank], sim->options.latency_ns + sim->options.jitter_ns, event);
}

static void run_ordered(struct sim *sim, const struct sim_event *event)
{
    decide(sim, event->session, true);
}

static void run_new_view(struct sim *sim, const struct sim_event *event)
{
    (void)event;
    for (uint32_t number = 0; number < sim->plan_count; number++) {
        if (!sim->options.finish || sim->members[sim->plans[number].members[0]].dead)
            decide(sim, number, false);
    }
    if (sim->options.finish)
        finish_new_view(sim);
}

/* --- Losses -------------------------------------------------------------------------------------- */

static void run_lost(struct sim *sim, const struct sim_event *event)
{
    struct session_event lost = {.type = SESSION_LOST, .peer = event->b, .culprit = SESSION_NOBODY};

    sim_deliver(sim, event->a, sim->members[event->a].number, &lost);
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
    struct member *self = &sim->members[member];

    if (!session_quiet(self->session))
        checker_fail(&sim->checker, "member %u is closed and not quiet", member);
    self->session = NULL;
    if (sim->plans[self->number].purpose == PLAN_PULL)
        self->interrupted = true;
    if (self->interrupted)
        finish_interrupted(sim, member);
    else
        checker_closed(&sim->checker, member);
}

static void operation_done(struct sim *sim, uint32_t member, const struct session_action *action)
{
    if (sim->members[member].interrupted || member != 0)
        return;
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

void sim_touch(struct sim *sim, uint32_t member, uint32_t session)
{
    const struct member *self = &sim->members[member];

    if (self->session == NULL || self->number != session)
        checker_fail(&sim->checker, "something arrives for a session of member %u that is over", member);
}

static void released(struct sim *sim, uint32_t member, const struct session_action *action)
{
    struct member *self = &sim->members[member];

    self->interrupted = sim->options.finish &&
                        (action->code == COVEY_PEER_LOST || sim->plans[self->number].purpose == PLAN_PULL);
    if (self->interrupted)
        return;
    checker_released(&sim->checker, member);
    finish_forget(sim, member);
}

/* A session of two is not for the order: once everyone has everything it commits by itself. */
static void order(struct sim *sim, uint32_t member)
{
    const struct member *self = &sim->members[member];
    const struct plan *plan = &sim->plans[self->number];
    struct session_event commit = {.type = SESSION_COMMIT};

    if (plan->purpose == PLAN_PULL) {
        sim_send(sim, self->number, member, plan->members[1], commit);
        sim_tell_later(sim, member, 0, commit);
        return;
    }
    sim_push(sim, sim->now_ns + sim->options.latency_ns,
             &(struct sim_event){.run = run_ordered, .session = self->number});
}

static void act(struct sim *sim, uint32_t member, const struct session_action *action)
{
    struct member *self = &sim->members[member];
    struct session_event event = {.code = action->code, .culprit = action->culprit};
    const struct plan *plan = &sim->plans[self->number];
    uint32_t peer = plan->members[action->peer];

    switch (action->type) {
    case SESSION_POST_FENCE:
        network_post(sim, member, peer, FENCE_ITEM, self->number);
        break;
    case SESSION_LAND:
        event.type = SESSION_LANDED;
        event.code = self->refuse;
        sim_tell_later(sim, member, sim->options.local_ns, event);
        break;
    case SESSION_VERIFY:
        event.type = SESSION_VERIFIED;
        event.code = self->corrupt ? COVEY_CORRUPT : 0;
        sim_tell_later(sim, member, sim->options.local_ns, event);
        break;
    case SESSION_ORDER:
        order(sim, member);
        break;
    case SESSION_DELIVER:
        if (plan->purpose != PLAN_PULL)
            checker_delivered(&sim->checker, member);
        break;
    case SESSION_DISCONNECT:
        sim->result.disconnects++;
        cut(sim, member, peer);
        break;
    case SESSION_DONE:
        operation_done(sim, member, action);
        break;
    case SESSION_RELEASE:
        released(sim, member, action);
        break;
    default:
        event.type = message_of[action->type];
        event.skip = self->skip;
        sim_send(sim, self->number, member, peer, event);
    }
}

static void run_tick(struct sim *sim, const struct sim_event *event)
{
    struct member *self = &sim->members[event->a];
    struct session_event tick = {.type = SESSION_TICK, .culprit = SESSION_NOBODY};

    if (self->tick_ns != sim->now_ns || self->session == NULL)
        return;
    self->tick_ns = SIM_NEVER;
    sim_deliver(sim, event->a, self->number, &tick);
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
    const struct plan *plan = &sim->plans[sim->members[member].number];
    struct transfer write;

    while (session_next_write(session, sim->now_ns, &write)) {
        network_post(sim, member, plan->members[write.peer], write.block, sim->members[member].number);
        session_posted(session, sim->now_ns, &write);
    }
}

static uint32_t rank_in(const struct plan *plan, uint32_t member)
{
    uint32_t rank = 0;

    while (rank < plan->count && plan->members[rank] != member)
        rank++;
    return rank;
}

/* Whether it is about the member's present session. A loss is, whenever it was noticed. */
static bool concerns(const struct sim *sim, const struct member *self, uint32_t session,
                     const struct session_event *message)
{
    const struct plan *plan = &sim->plans[self->number];

    return message->type == SESSION_LOST ? rank_in(plan, message->peer) < plan->count
                                         : session == self->number;
}

static void step(struct sim *sim, uint32_t member, const struct session_event *message)
{
    struct member *self = &sim->members[member];
    struct session_actions actions = {.list = self->actions};
    struct session_event event = *message;

    event.now_ns = sim->now_ns;
    event.peer = rank_in(&sim->plans[self->number], message->peer);
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

static void keep_for_later(struct member *self, uint32_t session, const struct session_event *message)
{
    if (self->backlog_count == self->backlog_size) {
        self->backlog_size = 2 * self->backlog_size + 8;
        self->backlog = realloc(self->backlog, self->backlog_size * sizeof(*self->backlog));
        if (self->backlog == NULL)
            abort();
    }
    self->backlog[self->backlog_count++] = (struct sim_event){.session = session, .message = *message};
}

const struct session_event abort_orphan = {
    .type = SESSION_ABORT, .code = COVEY_PEER_LOST, .culprit = SESSION_NOBODY};

void sim_deliver(struct sim *sim, uint32_t to, uint32_t session, const struct session_event *message)
{
    struct member *self = &sim->members[to];

    if (self->dead)
        return;
    if (self->paused) {
        keep_for_later(self, session, message);
        return;
    }
    if (from_peer(message) && self->lost[message->peer])
        return;
    if (message->type == SESSION_LOST) {
        self->lost[message->peer] = true;
        network_purge(sim, to, message->peer);
    }
    if (message->type == SESSION_BEGIN && session != self->number)
        finish_offered(sim, to, session);
    if (self->session != NULL && concerns(sim, self, session, message))
        step(sim, to, message);
    else if (message->type == SESSION_GRANT)
        network_post(sim, to, message->peer, FENCE_ITEM, session);
    if (message->type == SESSION_LOST && finish_is_orphaned(sim, to))
        step(sim, to, &abort_orphan);
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
        sim_deliver(sim, event->a, self->backlog[i].session, &self->backlog[i].message);
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
        sim_deliver(sim, event->a, self->number, &abort_event);
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
        self->skip = sim_keep(sim, BITMAP_WORDS(sim->options.schedule.blocks), sizeof(uint64_t));
    if (bitmap_get(self->skip, block))
        return;
    bitmap_set(self->skip, block);
    checker_has(&sim->checker, member, block);
    session_step(self->session, &held, &actions);
    if (--self->missing == 0)
        sim->incomplete--;
}

/* --- The run ------------------------------------------------------------------------------------- */

void sim_enter(struct sim *sim, uint32_t member, uint32_t number)
{
    const struct sim_options *options = &sim->options;
    const struct plan *plan = &sim->plans[number];
    struct member *self = &sim->members[member];
    struct session_config config = {.schedule = options->schedule,
                                    .rank = rank_in(plan, member),
                                    .window = options->window,
                                    .edge_window = options->edge_window,
                                    .overtake_ns = options->overtake_ns,
                                    .stall_ns = options->stall_ns,
                                    .block_ns = options->block_ns};

    config.schedule.members = plan->count;
    free(self->memory);
    self->memory = sim_zeroed(1, session_bytes(&config.schedule));
    self->session = session_init(self->memory, &config);
    self->number = number;
    self->rank = config.rank;
    self->tick_ns = SIM_NEVER;
    if (plan->purpose != PLAN_PULL)
        self->party = number;
}

static void member_open(struct sim *sim, uint32_t member)
{
    uint32_t members = sim->options.schedule.members;
    struct member *self = &sim->members[member];

    sim_enter(sim, member, 0);
    self->actions = sim_zeroed(SESSION_ACTIONS_MAX(members), sizeof(*self->actions));
    self->control_ns = sim_zeroed(members, sizeof(uint64_t));
    self->lost = sim_zeroed(members, sizeof(bool));
    self->missing = member == 0 ? 0 : sim->options.schedule.blocks;
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
    sim->plan_count = 1;
    for (sim->plans[0].count = 0; sim->plans[0].count < members; sim->plans[0].count++)
        sim->plans[0].members[sim->plans[0].count] = sim->plans[0].count;
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
        free(sim->members[i].finish);
        free(sim->members[i].backlog);
    }
    for (size_t i = 0; i < sim->kept_count; i++)
        free(sim->kept[i]);
    free(sim->kept);
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
