/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/sim_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS(sim)  ((sim)->options.configured + 40)
#define NONE        UINT32_MAX
#define TRACE_SHOWN 8000

/* --- Time ----------------------------------------------------------------------------------------------- */

struct sim_event {
    uint64_t at_ns, sequence;
    sim_later *later;
    void *object;
    uint64_t argument;
};

static bool is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->sequence < b->sequence;
}

void sim_at(struct sim *sim, uint64_t at_ns, sim_later *later, void *object, uint64_t argument)
{
    struct sim_event event = {.at_ns = at_ns < sim->now_ns ? sim->now_ns : at_ns,
                              .sequence = sim->sequence++,
                              .later = later,
                              .object = object,
                              .argument = argument};
    size_t at = sim->heap_count++;

    if (sim->heap_count > sim->heap_size) {
        sim->heap_size = sim->heap_size != 0 ? 2 * sim->heap_size : 1024;
        sim->heap = realloc(sim->heap, sim->heap_size * sizeof(event));
        assert(sim->heap != NULL);
    }
    for (; at > 0 && is_before(&event, &sim->heap[(at - 1) / 2]); at = (at - 1) / 2)
        sim->heap[at] = sim->heap[(at - 1) / 2];
    sim->heap[at] = event;
}

static struct sim_event pop(struct sim *sim)
{
    struct sim_event first = sim->heap[0], last = sim->heap[--sim->heap_count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= sim->heap_count)
            break;
        if (child + 1 < sim->heap_count && is_before(&sim->heap[child + 1], &sim->heap[child]))
            child++;
        if (is_before(&last, &sim->heap[child]))
            break;
        sim->heap[at] = sim->heap[child];
        at = child;
    }
    sim->heap[at] = last;
    return first;
}

void sim_run(struct sim *sim, uint64_t duration_ns)
{
    uint64_t end_ns = sim->now_ns + duration_ns;

    while (sim->heap_count > 0 && sim->heap[0].at_ns <= end_ns && sim->failure[0] == '\0') {
        struct sim_event event = pop(sim);
        sim->now_ns = event.at_ns;
        event.later(sim, event.object, event.argument);
    }
    sim->now_ns = end_ns;
}

/* --- The trace ------------------------------------------------------------------------------------------ */

void sim_tracef(struct sim *sim, const char *format, ...)
{
    va_list arguments;
    char line[512];
    int length = snprintf(line, sizeof(line), "[%8" PRIu64 "us] ", sim->now_ns / SIM_US);

    va_start(arguments, format);
    length += vsnprintf(line + length, sizeof(line) - (size_t)length - 1, format, arguments);
    va_end(arguments);
    if ((size_t)length > sizeof(line) - 2)
        length = sizeof(line) - 2;
    line[length++] = '\n';
    if (sim->trace_bytes + (size_t)length >= SIM_TRACE_BYTES) {
        memmove(sim->trace, sim->trace + sim->trace_bytes / 2, sim->trace_bytes - sim->trace_bytes / 2);
        sim->trace_bytes -= sim->trace_bytes / 2;
    }
    memcpy(sim->trace + sim->trace_bytes, line, (size_t)length);
    sim->trace_bytes += (size_t)length;
    sim->trace[sim->trace_bytes] = '\0';
}

const char *sim_trace_tail(const struct sim *sim)
{
    return sim->trace + (sim->trace_bytes > TRACE_SHOWN ? sim->trace_bytes - TRACE_SHOWN : 0);
}

void sim_fail(struct sim *sim, const char *format, ...)
{
    va_list arguments;

    if (sim->failure[0] != '\0')
        return;
    va_start(arguments, format);
    vsnprintf(sim->failure, sizeof(sim->failure), format, arguments);
    va_end(arguments);
    sim_tracef(sim, "FAILURE: %s", sim->failure);
}

static const char *view_text(const struct view *view, char *text, size_t bytes)
{
    size_t length = (size_t)snprintf(text, bytes, "%" PRIu64 "{", view->number);

    for (uint32_t i = 0; i < view->count && length < bytes; i++)
        length +=
            (size_t)snprintf(text + length, bytes - length, "%s%u", i > 0 ? "," : "", view->members[i].id);
    if (length < bytes)
        snprintf(text + length, bytes - length, "}");
    return text;
}

static void trace_install(struct sim_process *process, const struct membership_actions *actions)
{
    char view[256], trim[64] = "";
    size_t length = 0;

    for (uint32_t group = 0; group < SIM_GROUPS && process->sim->options.application; group++) {
        if (actions->trim[group] != VIEW_TRIM_NONE)
            length += (size_t)snprintf(trim + length, sizeof(trim) - length, "%s%" PRIu64,
                                       length > 0 ? "/" : ", trim ", actions->trim[group]);
    }
    sim_tracef(process->sim, "%u installs view %s%s%s", process->node,
               view_text(actions->view, view, sizeof(view)), actions->view->forced ? ", forced" : "", trim);
}

static void trace_rules(struct sim_process *process, const struct membership_actions *actions)
{
    for (uint32_t i = 0; i < actions->trace_count; i++) {
        const struct membership_trace *trace = &actions->traces[i];
        const char *name = membership_rule_name(trace->rule);

        process->sim->rules[trace->rule]++;
        switch (trace->rule) {
        case MEMBERSHIP_RULE_INSTALL:
            break;
        case MEMBERSHIP_RULE_WEDGE:
        case MEMBERSHIP_RULE_PREPARE:
        case MEMBERSHIP_RULE_PROMISE:
        case MEMBERSHIP_RULE_PROPOSE:
        case MEMBERSHIP_RULE_REPROPOSE:
        case MEMBERSHIP_RULE_ACCEPT:
        case MEMBERSHIP_RULE_COMMIT:
        case MEMBERSHIP_RULE_OVERTAKEN:
            sim_tracef(process->sim, "%u %s, view %" PRIu64 " ballot %" PRIu64 ".%" PRIu64, process->node,
                       name, trace->number, trace->value >> 16, trace->value & 0xffff);
            break;
        default:
            if (trace->id == process->node)
                sim_tracef(process->sim, "%u %s", process->node, name);
            else
                sim_tracef(process->sim, "%u %s %u", process->node, name, trace->id);
        }
    }
}

/* --- Processes ------------------------------------------------------------------------------------------ */

static void start_again(struct sim *sim, void *object, uint64_t argument)
{
    struct sim_process *process = object;

    (void)argument;
    if (sim->current[process->node] == process->index)
        sim_boot(sim, process->node);
}

static void over(struct sim_process *process)
{
    struct sim *sim = process->sim;

    process->alive = false;
    process->over = true;
    net_crashed(process);
    if (membership_state(process->membership) == MEMBERSHIP_EVICTED && sim->options.restart_evicted)
        sim_at(sim, sim->now_ns + sim->options.heartbeat_ns / 2, start_again, process, 0);
}

static void entered(struct sim_process *process, const struct membership_actions *actions)
{
    check_install(process, actions);
    if (process->sim->failure[0] != '\0')
        return;
    ordering_trim(process, actions);
    process->noted = check_find_view(process->sim, actions->view->epoch, actions->view->number);
    if (process->sim->options.application)
        ordering_enter(process, actions);
    if (process->wedged_ns != 0 && process->sim->now_ns - process->wedged_ns > process->sim->longest_wedge_ns)
        process->sim->longest_wedge_ns = process->sim->now_ns - process->wedged_ns;
    process->wedged_ns = 0;
    trace_install(process, actions);
}

static void tick(struct sim *sim, void *object, uint64_t argument);

static void arm(struct sim_process *process)
{
    uint64_t due_ns = membership_deadline_ns(process->membership);

    if (due_ns == process->tick_ns)
        return;
    process->tick_ns = due_ns;
    if (due_ns != UINT64_MAX)
        sim_at(process->sim, due_ns - process->clock_ns, tick, process, due_ns);
}

static void tell_rules(struct sim_process *process, const struct membership_actions *actions)
{
    for (uint32_t i = 0; i < actions->trace_count && process->sim->on_rule != NULL; i++)
        process->sim->on_rule(process->sim, process->node, actions->traces[i].rule);
}

static void carry_out(struct sim_process *process, const struct membership_actions *actions)
{
    trace_rules(process, actions);
    if (actions->wedged)
        ordering_wedge(process);
    for (uint32_t i = 0; i < actions->push_count; i++)
        net_push(process, &actions->pushes[i]);
    net_flush(process);
    if (actions->wedged)
        process->wedged_ns = process->sim->now_ns;
    if (actions->installed)
        entered(process, actions);
    for (uint32_t i = 0; i < actions->connect_count; i++)
        net_connect(process, &actions->connects[i]);
    for (uint32_t i = 0; i < actions->disconnect_count; i++)
        net_disconnect(process, actions->disconnects[i]);
    if (actions->state_changed)
        sim_tracef(process->sim, "%u is %s", process->node, membership_state_name(actions->state));
    check_step(process);
    if (actions->state_changed && (actions->state == MEMBERSHIP_EVICTED || actions->state == MEMBERSHIP_LEFT))
        over(process);
    else
        tell_rules(process, actions);
}

static int step(struct sim_process *process, const struct membership_event *event)
{
    static struct membership_actions actions;
    struct membership_event timed = *event;
    int rc;

    process->sim->steps++;
    timed.now_ns = process->sim->now_ns + process->clock_ns;
    rc = membership_step(process->membership, &timed, &actions);
    if (timed.type == MEMBERSHIP_LINK_DOWN) {
        process->conns[timed.slot] = NULL;
        ordering_down(process, timed.slot);
    }
    carry_out(process, &actions);
    if (process->alive) {
        ordering_turn(process);
        arm(process);
    }
    return rc;
}

static void tick(struct sim *sim, void *object, uint64_t argument)
{
    struct sim_process *process = object;

    (void)sim;
    if (!process->alive || process->paused || process->tick_ns != argument)
        return;
    process->tick_ns = 0;
    step(process, &(struct membership_event){.type = MEMBERSHIP_TICK});
}

void process_event(struct sim_process *process, const struct membership_event *event)
{
    struct sim_pending *pending;

    if (!process->alive)
        return;
    if (!process->paused) {
        step(process, event);
        return;
    }
    pending = calloc(1, sizeof(*pending));
    assert(pending != NULL);
    pending->event = *event;
    *process->pending_end = pending;
    process->pending_end = &pending->next;
}

/* --- The application ------------------------------------------------------------------------------------ */

void process_heard(struct sim_process *process, uint32_t slot, uint32_t group)
{
    ordering_heard(process, slot, group);
    if (process->alive && !process->paused)
        ordering_turn(process);
}

static void work(struct sim *sim, void *object, uint64_t argument)
{
    struct sim_process *process = object;

    (void)argument;
    if (!process->alive || sim->quiet)
        return;
    sim_at(sim, sim->now_ns + sim->options.heartbeat_ns / 8 + rng_below(&sim->rng, sim->options.heartbeat_ns),
           work, process, 0);
    if (process->paused)
        return;
    ordering_want(process);
    ordering_turn(process);
}

/* --- What happens to nodes ------------------------------------------------------------------------------ */

void sim_defaults(struct sim_options *options, uint32_t configured)
{
    *options = (struct sim_options){.configured = configured,
                                    .quorum = MEMBERSHIP_MAJORITY,
                                    .heartbeat_ns = 10 * SIM_MS,
                                    .suspect_after_ns = 50 * SIM_MS,
                                    .batch_ns = 10 * SIM_MS,
                                    .latency_ns = 100 * SIM_US,
                                    .application = true,
                                    .restart_evicted = true};
}

void sim_init(struct sim *sim, const struct sim_options *options, uint64_t seed)
{
    memset(sim, 0, sizeof(*sim));
    sim->options = *options;
    rng_init(&sim->rng, seed);
    memset(sim->current, 0xff, sizeof(sim->current));
    sim->nodes = options->configured;
    sim->trace = calloc(1, SIM_TRACE_BYTES + 1);
    assert(sim->trace != NULL && options->configured <= SIM_NODES_MAX);
}

void sim_close(struct sim *sim)
{
    net_close(sim);
    for (uint32_t i = 0; i < sim->process_count; i++) {
        struct sim_process *process = sim->processes[i];
        while (process->pending != NULL) {
            struct sim_pending *next = process->pending->next;
            free(process->pending);
            process->pending = next;
        }
        free(process->memory);
        free(process->slots_memory);
        free(process->conns);
        ordering_close(process);
        free(process);
    }
    for (uint32_t i = 0; i < sim->view_count; i++) {
        for (uint32_t group = 0; group < SIM_GROUPS; group++)
            free(sim->views[i].logs[group].messages);
        free(sim->views[i].view);
    }
    free(sim->heap);
    free(sim->trace);
}

static void open_membership(struct sim_process *process)
{
    static const uint32_t ids[SIM_NODES_MAX] = {
        0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,
        24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
        48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71};
    struct sim *sim = process->sim;
    struct membership_group groups[SIM_GROUPS] = {{.all = true},
                                                  {.ids = ids, .count = (sim->options.configured + 1) / 2}};
    static struct membership_group kept[SIM_GROUPS];
    struct membership_config config = {.id = process->node,
                                       .incarnation = process->incarnation,
                                       .node_ids = ids,
                                       .node_count = sim->options.configured,
                                       .slots = SLOTS(sim),
                                       .members_max = sim->options.configured + 16,
                                       .groups = kept,
                                       .group_count = SIM_GROUPS,
                                       .quorum = sim->options.quorum,
                                       .heartbeat_ns = sim->options.heartbeat_ns,
                                       .suspect_after_ns = sim->options.suspect_after_ns,
                                       .batch_ns = sim->options.batch_ns,
                                       .seed = rng_next(&sim->rng)};

    memcpy(kept, groups, sizeof(kept));
    membership_layout(&config, &process->layout);
    process->memory = malloc(membership_bytes(&config));
    process->slots_memory = calloc(1, table_slots_bytes(&process->layout));
    process->conns = calloc(config.slots, sizeof(struct sim_conn *));
    assert(process->memory != NULL && process->slots_memory != NULL && process->conns != NULL);
    ordering_open(process);
    process->membership =
        membership_init(&config, process->memory, process->slots_memory, sim->now_ns + process->clock_ns);
}

void sim_boot(struct sim *sim, uint32_t node)
{
    struct sim_process *process;

    assert(node < SIM_NODES_MAX && !sim_alive(sim, node));
    if (sim->process_count == SIM_PROCESSES_MAX) {
        sim_fail(sim, "%u starts again and again", node);
        return;
    }
    process = calloc(1, sizeof(*process));
    assert(process != NULL);
    process->sim = sim;
    process->index = sim->process_count;
    process->node = node;
    process->incarnation = rng_next(&sim->rng) | 1;
    process->alive = true;
    process->clock_ns = rng_below(&sim->rng, UINT64_C(1) << 40);
    process->pending_end = &process->pending;
    sim->processes[sim->process_count++] = process;
    sim->current[node] = process->index;
    open_membership(process);
    sim_tracef(sim, "%u starts", node);
    arm(process);
    if (sim->options.application)
        work(sim, process, 0);
}

void sim_boot_all(struct sim *sim)
{
    for (uint32_t node = 0; node < sim->options.configured; node++)
        sim_boot(sim, node);
}

uint32_t sim_join(struct sim *sim)
{
    uint32_t node = sim->nodes++;

    sim_boot(sim, node);
    return node;
}

static struct sim_process *process_of(const struct sim *sim, uint32_t node)
{
    return node < SIM_NODES_MAX && sim->current[node] != NONE ? sim->processes[sim->current[node]] : NULL;
}

void sim_crash(struct sim *sim, uint32_t node)
{
    struct sim_process *process = process_of(sim, node);

    assert(process != NULL);
    if (!process->alive)
        return;
    sim_tracef(sim, "%u crashes", node);
    process->alive = false;
    net_crashed(process);
}

void sim_pause(struct sim *sim, uint32_t node)
{
    sim_tracef(sim, "%u stands still", node);
    process_of(sim, node)->paused = true;
}

/* The timer that is overdue comes first, then what happened meanwhile, or the other way round. */
void sim_resume(struct sim *sim, uint32_t node)
{
    struct sim_process *process = process_of(sim, node);
    struct membership_event due = {.type = MEMBERSHIP_TICK};

    if (!process->paused)
        return;
    sim_tracef(sim, "%u goes on", node);
    process->paused = false;
    if (process->alive && rng_below(&sim->rng, 2) == 0)
        step(process, &due);
    while (process->pending != NULL) {
        struct sim_pending *pending = process->pending;
        process->pending = pending->next;
        if (process->pending == NULL)
            process->pending_end = &process->pending;
        process_event(process, &pending->event);
        free(pending);
    }
    if (process->alive)
        step(process, &due);
}

static void set_cut(struct sim *sim, uint32_t from, uint32_t to)
{
    sim->cut[from][to] = true;
}

void sim_cut(struct sim *sim, uint32_t from, uint32_t to)
{
    sim_tracef(sim, "nothing gets from %u to %u", from, to);
    set_cut(sim, from, to);
    net_cut_changed(sim);
}

void sim_cut_both(struct sim *sim, uint32_t a, uint32_t b)
{
    sim_tracef(sim, "nothing gets between %u and %u", a, b);
    set_cut(sim, a, b);
    set_cut(sim, b, a);
    net_cut_changed(sim);
}

void sim_partition(struct sim *sim, uint64_t set)
{
    sim_tracef(sim, "nothing gets in or out of set %#" PRIx64, set);
    for (uint32_t a = 0; a < SIM_NODES_MAX; a++) {
        for (uint32_t b = 0; b < SIM_NODES_MAX; b++) {
            if ((a < 64 && (set >> a & 1) != 0) != (b < 64 && (set >> b & 1) != 0))
                set_cut(sim, a, b);
        }
    }
    net_cut_changed(sim);
}

void sim_heal(struct sim *sim)
{
    sim_tracef(sim, "everything heals");
    memset(sim->cut, 0, sizeof(sim->cut));
    memset(sim->slow_ns, 0, sizeof(sim->slow_ns));
    net_cut_changed(sim);
    for (uint32_t node = 0; node < sim->nodes; node++) {
        if (process_of(sim, node) != NULL)
            sim_resume(sim, node);
    }
}

void sim_break(struct sim *sim, uint32_t a, uint32_t b)
{
    sim_tracef(sim, "the link between %u and %u breaks", a, b);
    net_break(sim, a, b);
}

static int request(struct sim *sim, uint32_t node, enum membership_event_type type, uint32_t id)
{
    return step(process_of(sim, node), &(struct membership_event){.type = type, .id = id});
}

int sim_leave(struct sim *sim, uint32_t node)
{
    sim_tracef(sim, "%u wants to leave", node);
    return request(sim, node, MEMBERSHIP_LEAVE, 0);
}

int sim_evict(struct sim *sim, uint32_t at, uint32_t node)
{
    return request(sim, at, MEMBERSHIP_EVICT, node);
}

int sim_force(struct sim *sim, uint32_t at)
{
    int rc = request(sim, at, MEMBERSHIP_FORCE, 0);

    sim->forced |= rc == 0;
    return rc;
}

/* --- Looking -------------------------------------------------------------------------------------------- */

bool sim_alive(const struct sim *sim, uint32_t node)
{
    const struct sim_process *process = process_of(sim, node);

    return process != NULL && process->alive;
}

enum membership_state sim_state(const struct sim *sim, uint32_t node)
{
    return membership_state(process_of(sim, node)->membership);
}

const struct view *sim_view(const struct sim *sim, uint32_t node)
{
    return membership_view(process_of(sim, node)->membership);
}

uint64_t sim_incarnation(const struct sim *sim, uint32_t node)
{
    return process_of(sim, node)->incarnation;
}

uint64_t sim_delivered(const struct sim *sim, uint32_t node, uint32_t group)
{
    return process_of(sim, node)->groups[group].delivered;
}

bool sim_all_delivered(const struct sim *sim)
{
    uint64_t position[SIM_GROUPS] = {0};

    for (uint32_t node = 0; node < sim->nodes; node++) {
        const struct sim_process *process = process_of(sim, node);
        if (process == NULL || !process->alive)
            continue;
        if (!ordering_settled(process))
            return false;
        for (uint32_t group = 0; group < SIM_GROUPS; group++) {
            uint64_t delivered = process->groups[group].delivered;
            if (!process->groups[group].selected)
                continue;
            if (position[group] != 0 && position[group] != delivered)
                return false;
            position[group] = delivered;
        }
    }
    return true;
}

const char *sim_view_text(const struct sim *sim, uint32_t node)
{
    static char text[512];

    return view_text(sim_view(sim, node), text, sizeof(text));
}

const struct view *sim_newest(const struct sim *sim)
{
    return sim->view_count > 0 ? sim->views[sim->view_count - 1].view : NULL;
}

const struct view *sim_newest_known(const struct sim *sim, uint32_t but)
{
    const struct view *newest = NULL;

    for (uint32_t node = 0; node < sim->nodes; node++) {
        if (node == but || !sim_alive(sim, node) || sim_view(sim, node)->number == 0)
            continue;
        if (newest == NULL || sim_view(sim, node)->number > newest->number)
            newest = sim_view(sim, node);
    }
    return newest;
}

/* view NULL: the configured nodes. */
static bool quorum_of_lives(const struct sim *sim, const struct view *view, uint32_t but)
{
    uint32_t count = 0, of = view != NULL ? view->count : sim->options.configured;
    bool lowest = false;

    for (uint32_t rank = 0; rank < of; rank++) {
        uint32_t node = view != NULL ? view->members[rank].id : rank;
        const struct sim_process *process = process_of(sim, node);
        if (node == but || process == NULL || !process->alive ||
            (view != NULL && process->incarnation != view->members[rank].incarnation))
            continue;
        count++;
        lowest |= rank == 0;
    }
    return check_is_quorum(sim, count, of, lowest);
}

bool sim_quorum_lives(const struct sim *sim, uint32_t but)
{
    return quorum_of_lives(sim, sim_newest(sim), but) &&
           quorum_of_lives(sim, sim_newest_known(sim, but), but);
}

bool sim_settled(const struct sim *sim)
{
    const struct view *view = NULL;
    uint32_t live = 0;

    for (uint32_t node = 0; node < sim->nodes; node++) {
        const struct sim_process *process = process_of(sim, node);
        if (process == NULL || !process->alive)
            continue;
        if (membership_state(process->membership) != MEMBERSHIP_RUNNING)
            return false;
        if (view == NULL)
            view = membership_view(process->membership);
        if (membership_view(process->membership)->number != view->number ||
            membership_view(process->membership)->epoch != view->epoch)
            return false;
        live++;
    }
    return live == 0 || view->count == live;
}

bool sim_settle(struct sim *sim, uint64_t limit_ns)
{
    uint64_t end_ns = sim->now_ns + limit_ns, since_ns = UINT64_MAX;
    uint64_t stable_ns = 2 * sim->options.suspect_after_ns;
    uint32_t views = 0;

    while (sim->now_ns < end_ns && sim->failure[0] == '\0') {
        if (!sim_settled(sim) || views != sim->view_count)
            since_ns = sim->now_ns;
        else if (sim->now_ns - since_ns >= stable_ns)
            return true;
        views = sim->view_count;
        sim_run(sim, sim->options.heartbeat_ns);
    }
    return false;
}
