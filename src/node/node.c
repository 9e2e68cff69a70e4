/* SPDX-License-Identifier: BSD-3-Clause */
/* The node: opened, turned, closed. */

#include "node/node.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <sodium.h>

#include "node/members.h"
#include "node/op.h"
#include "node/ordering.h"
#include "node/outbox.h"
#include "node/pool.h"
#include "node/replication.h"
#include "node/stage.h"

/* Events taken from the fabric before the sessions post again. */
#define POLL_EVENTS           64

/* Rounds of a turn before timers and sockets get their share. */
#define TURN_ROUNDS           16

/* Assumed of a link until a transfer has measured it. */
#define RETURN_MS             500 /* between two attempts to join again */
#define LINK_BYTES_PER_SECOND UINT64_C(125000000)

/* --- Small things
 * ------------------------------------------------------------------------------------------- */

uint64_t node_realtime_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

const char *node_name(const struct covey_node *node, uint32_t id)
{
    static __thread char text[32];
    const struct node_options *listed = options_node(node->options, id);
    const struct peer *peer = node->peers != NULL ? peers_find(node->peers, id) : NULL;

    if (id == node->options->self.id)
        return node->options->self.name;
    if (peer != NULL)
        return peer->name;
    if (listed != NULL)
        return listed->name;
    snprintf(text, sizeof(text), "node %u", id);
    return text;
}

uint64_t node_next_id(struct covey_node *node)
{
    node->sequence = (node->sequence + 1) & ((UINT64_C(1) << 48) - 1);
    return (uint64_t)node->options->self.id << 48 | node->sequence;
}

struct event_call {
    struct call call;
    struct covey_node *node;
    uint64_t time_ns;
    uint64_t view, wedge_ns;
    const char *type; /* static */
    char subject[COVEY_NAME_MAX + 1];
    char text[FAIL_TEXT_MAX];
};

static void run_event(struct call *base)
{
    struct event_call *call = (struct event_call *)base;
    struct covey_event event = {.time_ns = call->time_ns,
                                .type = call->type,
                                .subject = call->subject,
                                .text = call->text,
                                .view = call->view,
                                .wedge_ns = call->wedge_ns};

    call->node->callbacks.on_event(call->node->context, &event);
    free(call);
}

static void send_event(struct covey_node *node, uint64_t wedge_ns, const char *type, const char *subject,
                       const char *format, va_list args) __attribute__((format(printf, 5, 0)));

static void send_event(struct covey_node *node, uint64_t wedge_ns, const char *type, const char *subject,
                       const char *format, va_list args)
{
    struct event_call *call;

    if (node->callbacks.on_event == NULL)
        return;
    call = calloc(1, sizeof(*call));
    if (call == NULL)
        return;
    call->call.run = run_event;
    call->node = node;
    call->time_ns = node_realtime_ns();
    call->view = node->view.number;
    call->wedge_ns = wedge_ns;
    call->type = type;
    snprintf(call->subject, sizeof(call->subject), "%s", subject);
    vsnprintf(call->text, sizeof(call->text), format, args);
    node_call(node, &call->call);
}

void node_event(struct covey_node *node, const char *type, const char *subject, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    send_event(node, 0, type, subject, format, args);
    va_end(args);
}

void node_event_view(struct covey_node *node, uint64_t wedge_ns, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    send_event(node, wedge_ns, "view", node->options->cluster_name, format, args);
    va_end(args);
}

/* --- Peers
 * -------------------------------------------------------------------------------------------------- */

void node_peer_up(void *context, struct peer *peer)
{
    struct covey_node *node = context;

    node->work++;
    peer->since_ns = node_realtime_ns();
    node_event(node, "peer-up", peer->name, "%s (%s) is up", peer->name, peer->address);
    if (!outbox_open(peer)) {
        peers_disconnect(node->peers, peer, COVEY_NO_MEMORY, "no memory for what goes to it");
        return;
    }
    members_peer_up(node, peer);
    for (size_t i = 0; peer->up && i < node->options->group_count; i++) {
        if (node->groups[i] != NULL)
            ordering_peer_up(node->groups[i], peer);
    }
    node_run_deferred(node);
}

void node_peer_down(void *context, struct peer *peer, int error, const char *text)
{
    struct covey_node *node = context;

    (void)error;
    node->work++;
    peer->since_ns = node_realtime_ns();
    node_event(node, "peer-down", peer->name, "%s (%s) is down: %s", peer->name, peer->address, text);
    if (peer->user == NULL)
        return;
    replication_peer_down(node, peer, text);
    for (size_t i = 0; i < node->options->group_count; i++) {
        if (node->groups[i] != NULL)
            group_peer_down(node->groups[i], peer);
    }
    members_peer_down(node, peer);
    outbox_close(peer);
}

static int take_message(struct covey_node *node, struct peer *peer, const struct fabric_event *event)
{
    struct message message;
    int rc = message_decode(event->data, event->bytes, &message);

    node->counters.messages_received++;
    if (rc != 0)
        return rc;
    if (message.group == MESSAGE_NO_GROUP)
        return members_message(node, peer, &message);
    if (message.group >= node->options->group_count || node->groups[message.group] == NULL ||
        !options_group_selects(node->groups[message.group]->options, peer->id))
        return COVEY_PROTOCOL;
    return group_message(node->groups[message.group], peer, &message);
}

/* A push on the control lane: to the cluster's table, or to a group's row. */
static int take_push(struct covey_node *node, struct peer *peer, uint32_t immediate)
{
    uint32_t index = immediate & ~IMMEDIATE_GROUP;

    if (!(immediate & IMMEDIATE_GROUP))
        return members_arrived(node, peer, immediate);
    if (index >= node->options->group_count || node->groups[index] == NULL)
        return COVEY_PROTOCOL;
    return ordering_arrived(node->groups[index], peer);
}

void node_peer_event(void *context, struct peer *peer, enum fabric_lane lane,
                     const struct fabric_event *event)
{
    struct covey_node *node = context;
    int rc = 0;

    if (peer->user == NULL)
        return; /* it is being disconnected */
    if (event->type == FABRIC_MESSAGE)
        rc = lane == FABRIC_CONTROL ? take_message(node, peer, event) : COVEY_PROTOCOL;
    else if (event->type == FABRIC_ARRIVED)
        rc = lane == FABRIC_DATA ? replication_arrived(node, peer, event->immediate)
                                 : take_push(node, peer, event->immediate);
    else if (event->type == FABRIC_WRITE_DONE && lane == FABRIC_DATA)
        replication_written(node, event->cookie);
    else if (event->type == FABRIC_WRITE_DONE)
        outbox_written(peer, event->cookie);
    if (rc == COVEY_NO_MEMORY)
        peers_disconnect(node->peers, peer, rc, "no memory for what it sent");
    else if (rc != 0)
        peers_disconnect(node->peers, peer, rc, "it broke the protocol");
}

/* --- Turns
 * -------------------------------------------------------------------------------------------------- */

static bool poll_fabric(struct covey_node *node)
{
    struct fabric_event events[POLL_EVENTS];
    size_t count = fabric_poll(node->fabric, events, POLL_EVENTS);

    for (size_t i = 0; i < count; i++)
        peers_fabric_event(node->peers, &events[i]);
    node->work += count;
    return count > 0;
}

static void post(struct covey_node *node)
{
    for (size_t i = 0; i < peers_count(node->peers); i++)
        outbox_flush(peers_at(node->peers, i));
    for (size_t i = 0; i < node->options->group_count; i++) {
        if (node->groups[i] != NULL)
            ordering_turn(node->groups[i]);
    }
    replication_pay_fences(node);
    stage_take_done(node);
    replication_turn(node);
    stage_serve(node);
}

static void on_timer(uv_timer_t *timer)
{
    (void)timer; /* the turn before the next sleep does the work */
}

static void set_timer(struct covey_node *node)
{
    uint64_t deadline = replication_deadline_ns(node), due = members_deadline_ns(node);
    uint64_t wait_ms;

    if (due < deadline)
        deadline = due;
    if (node->return_ns != 0 && node->return_ns < deadline)
        deadline = node->return_ns;
    if (deadline == UINT64_MAX) {
        uv_timer_stop(&node->timer);
        return;
    }
    wait_ms = deadline > node->now_ns ? (deadline - node->now_ns + 999999) / 1000000 : 0;
    uv_update_time(&node->loop);
    uv_timer_start(&node->timer, on_timer, wait_ms, 0);
}

static void on_busy(uv_idle_t *idle)
{
    (void)idle; /* being active keeps the loop from sleeping */
}

static const char fate_unknown[] =
    "this node was left out of the view meanwhile: whether the others deliver it is not known";

static void on_anew_closed(void *context)
{
    struct covey_node *node = context;

    node->peers = NULL;
    replication_stop_all(node, COVEY_EVICTED, fate_unknown);
    uv_async_send(&node->wake);
}

void node_start_anew(struct covey_node *node)
{
    if (node->anew)
        return;
    node->anew = true;
    for (size_t i = 0; i < node->options->group_count; i++) {
        if (node->groups[i] != NULL)
            group_start_anew(node->groups[i]);
    }
    replication_abort_all(node, COVEY_EVICTED, fate_unknown);
    peers_close(node->peers, on_anew_closed);
}

static bool groups_busy(const struct covey_node *node)
{
    for (size_t i = 0; i < node->options->group_count; i++) {
        if (node->groups[i] != NULL && group_is_calling(node->groups[i]))
            return true;
    }
    return false;
}

/* As a new incarnation; on failure all is as it was. */
static int open_anew(struct covey_node *node, struct fail *fail)
{
    struct members *before = node->members;
    int rc;

    node->members = NULL;
    randombytes_buf(&node->incarnation, sizeof(node->incarnation));
    node->incarnation |= 1;
    rc = members_open(node, fail);
    if (rc == 0) {
        members_free(before);
    } else {
        members_free(node->members);
        node->members = before;
    }
    return rc;
}

/* Once nothing of the evicted incarnation is left. */
static void come_back(struct covey_node *node)
{
    struct fail fail = {0};

    if (node->peers != NULL || node->replications_by_id != NULL || groups_busy(node) ||
        node->now_ns < node->return_ns)
        return;
    if (open_anew(node, &fail) != 0) {
        if (node->return_ns == 0)
            log_error(&node->log, "this node cannot join again: %s; it tries every %d ms", fail.text,
                      RETURN_MS);
        node->return_ns = node->now_ns + (uint64_t)RETURN_MS * 1000000;
        return;
    }
    node->anew = false;
    node->return_ns = 0;
    node->wedged_ns = 0;
}

/* Once a round; a round that takes so long that others may suspect this node is worth a line. */
static void read_clock(struct covey_node *node)
{
    uint64_t now_ns = uv_hrtime(), held_ns = now_ns - node->now_ns;

    if (node->now_ns != 0 && !node->slept && held_ns > node->counters.held_ns)
        node->counters.held_ns = held_ns;
    if (node->now_ns != 0 && !node->slept && held_ns > node->options->suspect_after_ns / 2)
        log_warning(
            &node->log,
            "this node stood still for %.3g s: too little processor time, or memory that is slow to come",
            (double)held_ns / 1e9);
    node->slept = false;
    node->now_ns = now_ns;
}

static void on_turn(uv_prepare_t *prepare)
{
    struct covey_node *node = prepare->data;
    bool more = true;

    node->counters.turns++;
    for (int round = 0; more && round < TURN_ROUNDS; round++) {
        read_clock(node);
        node_run_requests(node);
        more = poll_fabric(node);
        members_turn(node);
        post(node);
    }
    if (node->anew)
        come_back(node);
    set_timer(node);
    if (more || !fabric_arm(node->fabric))
        uv_idle_start(&node->busy, on_busy);
    else
        uv_idle_stop(&node->busy);
    node->slept = true;
}

static void on_fabric(uv_poll_t *watch, int status, int events)
{
    (void)watch;
    (void)status;
    (void)events; /* the turn before the next sleep does the work */
}

static void on_wake(uv_async_t *wake)
{
    (void)wake;
}

static void on_timer_fd(uv_poll_t *watch, int status, int events)
{
    struct covey_node *node = watch->data;
    uint64_t expirations;

    (void)status;
    (void)events;
    while (read(node->timer_fd, &expirations, sizeof(expirations)) < 0 && errno == EINTR)
        ;
}

/* Driven: the loop's descriptor becomes readable when a timer of the loop is due. */
static void arm_timer_fd(struct covey_node *node)
{
    int wait_ms = uv_backend_timeout(&node->loop);
    struct itimerspec at = {0};

    if (wait_ms == 0)
        at.it_value.tv_nsec = 1;
    else if (wait_ms > 0)
        at.it_value = (struct timespec){.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000L};
    timerfd_settime(node->timer_fd, 0, &at, NULL);
}

int covey_node_fd(const struct covey_node *node)
{
    return node_is_driven(node) ? uv_backend_fd(&node->loop) : -1;
}

int covey_node_progress(struct covey_node *node, int timeout_ms)
{
    uint64_t before = node->work, start = uv_hrtime();

    if (node->pid != getpid())
        return COVEY_FORKED;
    if (!node_is_driven(node))
        return COVEY_INVALID;
    uv_run(&node->loop, UV_RUN_NOWAIT);
    node_run_calls(node);
    while (node->work == before && timeout_ms != 0) {
        uint64_t passed_ms = (uv_hrtime() - start) / 1000000;
        struct pollfd descriptor = {.fd = uv_backend_fd(&node->loop), .events = POLLIN};

        if (timeout_ms > 0 && passed_ms >= (uint64_t)timeout_ms)
            break;
        arm_timer_fd(node);
        if (poll(&descriptor, 1, timeout_ms < 0 ? -1 : timeout_ms - (int)passed_ms) < 0 && errno != EINTR)
            return COVEY_FABRIC;
        uv_run(&node->loop, UV_RUN_NOWAIT);
        node_run_calls(node);
    }
    uv_run(&node->loop, UV_RUN_NOWAIT);
    node_run_calls(node);
    arm_timer_fd(node);
    return node->work != before;
}

/* --- Closing
 * ------------------------------------------------------------------------------------------------ */

static void on_peers_closed(void *context)
{
    struct covey_node *node = context;

    node->peers = NULL;
}

static void close_handles(struct covey_node *node)
{
    uv_close((uv_handle_t *)&node->wake, NULL);
    uv_close((uv_handle_t *)&node->timer, NULL);
    uv_close((uv_handle_t *)&node->turn, NULL);
    uv_close((uv_handle_t *)&node->busy, NULL);
    uv_close((uv_handle_t *)&node->fabric_watch, NULL);
    if (node_is_driven(node))
        uv_close((uv_handle_t *)&node->timer_watch, NULL);
}

static void run_once(struct covey_node *node)
{
    uv_run(&node->loop, UV_RUN_ONCE);
    if (node_is_driven(node))
        node_run_calls(node);
}

/* The others take the polite one out of the view; nobody is waited for longer than it takes to suspect it. */
static void leave(struct covey_node *node)
{
    uint64_t deadline = node->now_ns + 2 * node->options->suspect_after_ns;

    if (node->members == NULL || node->peers == NULL || node->anew)
        return;
    members_leave(node);
    while (!members_has_left(node) && node->now_ns < deadline)
        run_once(node);
}

/* Leave: end what runs, take the links down, let every transfer end. On the thread that owns the loop. */
static void shut_down(struct covey_node *node)
{
    node->now_ns = uv_hrtime();
    node->closing = true;
    node_run_deferred(node);
    replication_abort_all(node, COVEY_CLOSED, "the node was closed");
    leave(node);
    post(node);
    if (node->peers != NULL && !node->anew)
        peers_close(node->peers, on_peers_closed);
    node->anew = false;
    while (node->peers != NULL)
        run_once(node);
    for (size_t i = 0; i < node->options->group_count; i++) {
        if (node->groups[i] != NULL)
            group_leave(node->groups[i]);
    }
    replication_stop_all(node, COVEY_CLOSED,
                         "the node was closed: whether the others deliver it is not known");
    uv_async_send(&node->wake);
    while (node->replications_by_id != NULL || groups_busy(node))
        run_once(node);
    stage_close(node);
    close_handles(node);
    uv_run(&node->loop, UV_RUN_DEFAULT);
}

static void *loop_thread(void *context)
{
    struct covey_node *node = context;

    uv_run(&node->loop, UV_RUN_DEFAULT); /* until run_close() */
    shut_down(node);
    return NULL;
}

static void run_close(struct covey_node *node, struct request *request)
{
    (void)request;
    uv_stop(&node->loop);
}

static void stop_threads(struct covey_node *node)
{
    struct request close = {.run = run_close};

    if (node->loop_thread_started) {
        node_request(node, &close);
        pthread_join(node->loop_thread, NULL);
    } else {
        shut_down(node);
    }
    pthread_mutex_lock(&node->mutex);
    node->stopped = true;
    pthread_cond_broadcast(&node->call_ready);
    pthread_mutex_unlock(&node->mutex);
    if (node->call_thread_started)
        pthread_join(node->call_thread, NULL);
    node_run_requests(node);
}

static void free_groups(struct covey_node *node)
{
    for (size_t i = 0; node->groups != NULL && i < node->options->group_count; i++) {
        if (node->groups[i] != NULL)
            group_stop(node->groups[i]);
    }
    node_run_calls(node); /* what the stores gave back */
    for (size_t i = 0; node->groups != NULL && i < node->options->group_count; i++) {
        if (node->groups[i] != NULL)
            free(node->groups[i]->told);
        free(node->groups[i]);
    }
    free(node->groups);
}

static void node_free(struct covey_node *node)
{
    members_free(node->members);
    free(node->view.ids);
    free(node->view.incarnations);
    fabric_close(node->fabric);
    if (node->timer_fd >= 0)
        close(node->timer_fd);
    pthread_mutex_destroy(&node->mutex);
    pthread_cond_destroy(&node->request_done);
    pthread_cond_destroy(&node->call_ready);
    pthread_cond_destroy(&node->state_changed);
    free(node->followups);
    free(node->orphans);
    covey_options_free(node->options);
    free(node);
}

void covey_node_close(struct covey_node *node)
{
    if (node == NULL || node->pid != getpid())
        return;
    log_info(&node->log, "node %s leaves", node->options->self.name);
    stop_threads(node);
    free_groups(node);
    uv_loop_close(&node->loop);
    node_free(node);
}

/* --- Opening
 * ------------------------------------------------------------------------------------------------ */

static __thread char open_error[FAIL_TEXT_MAX];

const char *covey_node_open_error(void)
{
    return open_error;
}

static void forward_log(void *context, enum covey_log_level level, const char *line)
{
    const struct covey_node *node = context;

    node->callbacks.on_log(node->context, level, line);
}

static struct covey_node *node_new(const struct covey_options *options,
                                   const struct covey_callbacks *callbacks, void *context, unsigned flags)
{
    struct covey_node *node = calloc(1, sizeof(*node));
    pthread_condattr_t monotonic;

    if (node == NULL)
        return NULL;
    node->options = options_copy(options);
    if (node->options == NULL) {
        free(node);
        return NULL;
    }
    if (callbacks != NULL)
        node->callbacks = *callbacks;
    node->context = context;
    node->flags = flags;
    node->pid = getpid();
    node->timer_fd = -1;
    node->log = (struct log){node->callbacks.on_log != NULL ? forward_log : NULL, node, options->log_level};
    node->link_bytes_per_second = LINK_BYTES_PER_SECOND;
    node->started_ns = node_realtime_ns();
    while (node->incarnation == 0)
        randombytes_buf(&node->incarnation, sizeof(node->incarnation));
    randombytes_buf(&node->sequence, 4);
    node->requests_end = &node->requests;
    node->calls_end = &node->calls;
    pthread_mutex_init(&node->mutex, NULL);
    pthread_cond_init(&node->request_done, NULL);
    pthread_cond_init(&node->call_ready, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&node->state_changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return node;
}

static int make_groups(struct covey_node *node, struct fail *fail)
{
    const struct covey_options *options = node->options;
    int rc = 0;

    node->groups = calloc(options->group_count + 1, sizeof(*node->groups));
    if (node->groups == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for %zu groups", options->group_count);
    for (size_t i = 0; rc == 0 && i < options->group_count; i++) {
        if (options_group_selects(&options->groups[i], options->self.id))
            rc = group_new(node, (uint16_t)i, &node->groups[i], fail);
    }
    return rc;
}

static int make_fabric(struct covey_node *node, struct fail *fail)
{
    const struct covey_options *options = node->options;
    const char *provider = options->provider;
    struct fabric_options fabric = {.address = (const struct sockaddr *)&options->self.sockaddr,
                                    .address_bytes = options->self.sockaddr_bytes,
                                    .log = &node->log};

    if (strcmp(provider, "auto") == 0)
        provider = "tcp";
    fabric.provider = provider;
    return fabric_open(&fabric, &node->fabric, fail);
}

static void start_handles(struct covey_node *node)
{
    uv_async_init(&node->loop, &node->wake, on_wake);
    uv_timer_init(&node->loop, &node->timer);
    uv_prepare_init(&node->loop, &node->turn);
    uv_idle_init(&node->loop, &node->busy);
    uv_poll_init(&node->loop, &node->fabric_watch, fabric_fd(node->fabric));
    node->turn.data = node;
    uv_prepare_start(&node->turn, on_turn);
    uv_poll_start(&node->fabric_watch, UV_READABLE, on_fabric);
    if (!node_is_driven(node))
        return;
    uv_poll_init(&node->loop, &node->timer_watch, node->timer_fd);
    node->timer_watch.data = node;
    uv_poll_start(&node->timer_watch, UV_READABLE, on_timer_fd);
}

/* Threads of the library take no signals: they are the application's. */
static int start_threads(struct covey_node *node, struct fail *fail)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&node->call_thread, NULL, node_call_thread, node);
    node->call_thread_started = rc == 0;
    if (rc == 0) {
        rc = pthread_create(&node->loop_thread, NULL, loop_thread, node);
        node->loop_thread_started = rc == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0 ? 0 : fail_set(fail, COVEY_NO_MEMORY, "cannot start a thread: %s", strerror(rc));
}

static int node_start(struct covey_node *node, struct fail *fail)
{
    int rc = make_fabric(node, fail);

    if (rc == 0)
        rc = make_groups(node, fail);
    if (rc != 0)
        return rc;
    if (node_is_driven(node)) {
        node->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (node->timer_fd < 0)
            return fail_set(fail, COVEY_NO_MEMORY, "cannot make a timer: %s", strerror(errno));
    }
    start_handles(node);
    rc = members_open(node, fail);
    if (rc == 0 && !node_is_driven(node))
        rc = start_threads(node, fail);
    if (rc == 0)
        return 0;
    if (node->peers != NULL) {
        stop_threads(node);
    } else {
        close_handles(node);
        uv_prepare_stop(&node->turn);
        uv_run(&node->loop, UV_RUN_DEFAULT);
    }
    return rc;
}

static int make_loop(struct covey_node *node, struct fail *fail)
{
    int rc = pool_begin(fail);

    if (rc != 0)
        return rc;
    rc = uv_loop_init(&node->loop);
    return rc == 0 ? 0 : fail_set(fail, COVEY_NO_MEMORY, "cannot make an event loop: %s", uv_strerror(rc));
}

int covey_node_open_flags(const struct covey_options *options, const struct covey_callbacks *callbacks,
                          void *context, unsigned flags, struct covey_node **out)
{
    struct covey_node *node = NULL;
    struct fail fail = {0};
    int rc;

    open_error[0] = '\0';
    if (sodium_init() < 0)
        rc = fail_set(&fail, COVEY_UNSUPPORTED, "libsodium cannot be initialised");
    else if ((node = node_new(options, callbacks, context, flags)) == NULL)
        rc = fail_set(&fail, COVEY_NO_MEMORY, "no memory for a node");
    else
        rc = make_loop(node, &fail);
    if (rc == 0) {
        rc = node_start(node, &fail);
        if (rc == 0) {
            *out = node;
            return 0;
        }
        free_groups(node);
        uv_loop_close(&node->loop);
    }
    snprintf(open_error, sizeof(open_error), "%s", fail.text);
    if (node != NULL)
        node_free(node);
    return rc;
}

int covey_node_open(const struct covey_options *options, const struct covey_callbacks *callbacks,
                    void *context, struct covey_node **node)
{
    return covey_node_open_flags(options, callbacks, context, 0, node);
}
