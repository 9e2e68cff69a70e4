/* SPDX-License-Identifier: BSD-3-Clause */
/* The state machine of a session.
 *
 * R: the root does this, r: a receiver. "-": the event may have crossed what ended the state, and is dropped.
 * Everything that is not here breaks the protocol. Rule by rule this is the table `rules` below.
 *
 *              OFFERED             MOVING               ORDERING         DELIVERED       DRAINING  CLOSED
 *   BEGIN      R OFFER to all
 *              r LAND
 *   LANDED     r ACCEPT, or                                                              r settle
 *                REFUSE > DRAINING
 *   READY      R holds             R holds                                               -         -
 *              r holds already
 *   SEALED     R keeps it          R SEAL to all, order                                  -         -
 *   ACCEPT     R all: START to all                                                       -         -
 *                > MOVING
 *   REFUSE     R cancel                                                                  -         -
 *   START      r GRANT > MOVING                                                          -         -
 *   GRANT      edge may be written                                                       fence     fence
 *   ARRIVED                        r holds, complete                                     r settle
 *   FENCE                          r edge is over       r edge is over                   r settle
 *   SEAL                           r complete                                            -         -
 *   VERIFIED                       r RECEIVED                                            r settle
 *                                    > ORDERING
 *   RECEIVED                       R order              -                -               -         -
 *   FAILED     R cancel            R cancel, or if      -                -               -         -
 *                                    stalled: verdict
 *   CANCEL     r drain             r drain              r drain                          -         -
 *   COMMIT                                              DELIVER, r DELIVERED
 *                                                         > DELIVERED
 *   DELIVERY                                            R counts         R counts        -         -
 *   ABORT      R cancel            R cancel             R cancel         -               -         -
 *              r REFUSE or FAILED  r FAILED             r drain
 *   LOST       as ABORT            as ABORT             not waited for   not waited for  settle    -
 *   WRITTEN                        one in flight less   the same         settle          settle
 *   FENCED                                                                               settle    -
 *   TICK       the wait that ended first has its consequence: expire()                             -
 *
 *   order:     everyone RECEIVED and SEALED: ORDER > ORDERING
 *   complete:  all blocks held and SEAL here: VERIFY
 *   cancel:    CANCEL to all, then drain
 *   drain:     stop posting, fence the edges that need it > DRAINING
 *   settle:    in DRAINING and quiet: RELEASE, R DONE with the error > CLOSED
 *              in DELIVERED, nothing in flight and R everyone delivered: R DONE > CLOSED */

#include "core/session_internal.h"

#include <assert.h>
#include <string.h>

#include <covey/error.h>

#include "base/bitmap.h"

/* Stalls are reported by everyone downstream of the one who is stuck, at about the same time. The root waits
 * this part of stall_ns for the others before it says who it is. */
#define VERDICT_PART 8

size_t session_bytes(const struct schedule *schedule)
{
    return sizeof(struct session) + session_edges_bytes(schedule);
}

struct session *session_init(void *memory, const struct session_config *config)
{
    struct session *session = memory;

    assert(config->rank < config->schedule.members && config->window >= 1 && config->edge_window >= 1);
    *session = (struct session){
        .config = *config,
        .steps = schedule_steps(&config->schedule),
        .state = SESSION_OFFERED,
        .alarm_ns = UINT64_MAX,
        .verdict_ns = UINT64_MAX,
        .culprit = SESSION_NOBODY,
    };
    schedule_rank_init(&session->part, &config->schedule, config->rank);
    session_edges_init(session);
    return session;
}

/* --- Failing ------------------------------------------------------------------------------------- */

static void root_cancel(struct session *session, struct session_actions *actions, int code, uint32_t culprit)
{
    session->code = code;
    session->culprit = culprit;
    session_emit_to_all(session, actions, SESSION_SEND_CANCEL);
    session_drain(session, actions, code, culprit);
}

/* A receiver that cannot go on says so and waits for the root's CANCEL. Before it accepted nobody counts on
 * it: then it leaves. */
static void receiver_fail(struct session *session, struct session_actions *actions, int code,
                          uint32_t culprit)
{
    struct session_action say = {.peer = SESSION_ROOT, .code = code, .culprit = culprit};

    if (session->failed)
        return;
    say.type = session->accepted ? SESSION_SEND_FAILED : SESSION_SEND_REFUSE;
    session_emit(session, actions, &say);
    if (!session->accepted) {
        session_drain(session, actions, code, culprit);
        return;
    }
    session->failed = true;
    session->failed_ns = session->now_ns;
    session_arm(session, session->now_ns);
}

/* --- On the way to the order --------------------------------------------------------------------- */

static void order_if_received(struct session *session, struct session_actions *actions)
{
    if (session->state != SESSION_MOVING || !session->sealed ||
        session->received_count < session->config.schedule.members - 1)
        return;
    session->state = SESSION_ORDERING;
    session_emit_own(session, actions, SESSION_ORDER);
}

static void verify_if_complete(struct session *session, struct session_actions *actions)
{
    if (session->failed || !session->sealed || session->held_count < session->config.schedule.blocks)
        return;
    session->verifying = true;
    session_emit_own(session, actions, SESSION_VERIFY);
}

static void begin_moving(struct session *session)
{
    session->state = SESSION_MOVING;
    session->started_ns = session->now_ns;
    session->progress_ns = session->now_ns;
    session->sends.head_ns = session->now_ns;
    session_arm(session, session->now_ns);
}

static void start_if_accepted(struct session *session, struct session_actions *actions)
{
    if (session->accepted_count < session->config.schedule.members - 1)
        return;
    begin_moving(session);
    session_emit_to_all(session, actions, SESSION_SEND_START);
    if (session->sealed)
        session_emit_to_all(session, actions, SESSION_SEND_SEAL);
    order_if_received(session, actions);
}

/* --- Events from the node ------------------------------------------------------------------------ */

static int on_begin(struct session *session, const struct session_event *event,
                    struct session_actions *actions)
{
    (void)event;
    session->progress_ns = session->now_ns;
    if (session_is_root(session)) {
        session_emit_to_all(session, actions, SESSION_SEND_OFFER);
        start_if_accepted(session, actions);
    } else {
        session->landing = true;
        session_emit_own(session, actions, SESSION_LAND);
    }
    session_arm(session, session->now_ns);
    return 0;
}

static int on_landed(struct session *session, const struct session_event *event,
                     struct session_actions *actions)
{
    assert(session->landing);
    session->landing = false;
    if (session->state == SESSION_DRAINING) {
        session_settle(session, actions);
    } else if (event->code != 0) {
        receiver_fail(session, actions, event->code, SESSION_NOBODY);
    } else {
        session->accepted = true;
        session->progress_ns = session->now_ns;
        session_arm(session, session->now_ns);
        session_emit_to(session, actions, SESSION_SEND_ACCEPT, SESSION_ROOT);
    }
    return 0;
}

static void hold(struct session *session, uint32_t block)
{
    if (bitmap_get(session->held, block))
        return;
    bitmap_set(session->held, block);
    session->held_count++;
}

static int on_ready(struct session *session, const struct session_event *event,
                    struct session_actions *actions)
{
    (void)actions;
    assert(session_is_root(session) || !session->accepted);
    assert(event->block + event->count <= session->config.schedule.blocks);
    for (uint32_t i = 0; i < event->count; i++)
        hold(session, event->block + i);
    session_sends_hold_more(session);
    session->progress_ns = session->now_ns;
    return 0;
}

static int on_sealed(struct session *session, const struct session_event *event,
                     struct session_actions *actions)
{
    (void)event;
    assert(!session->sealed);
    bitmap_set_all(session->held, session->config.schedule.blocks);
    session->held_count = session->config.schedule.blocks;
    session_sends_hold_more(session);
    session->sealed = true;
    session->progress_ns = session->now_ns;
    session_arm(session, session->now_ns);
    if (session->state == SESSION_MOVING) {
        session_emit_to_all(session, actions, SESSION_SEND_SEAL);
        order_if_received(session, actions);
    }
    return 0;
}

static int on_verified(struct session *session, const struct session_event *event,
                       struct session_actions *actions)
{
    assert(session->verifying);
    session->verifying = false;
    if (session->state == SESSION_DRAINING) {
        session_settle(session, actions);
    } else if (event->code != 0) {
        receiver_fail(session, actions, event->code, SESSION_NOBODY);
    } else if (!session->failed) {
        session->state = SESSION_ORDERING;
        session_emit_to(session, actions, SESSION_SEND_RECEIVED, SESSION_ROOT);
    }
    return 0;
}

static int on_written(struct session *session, const struct session_event *event,
                      struct session_actions *actions)
{
    session_edge_written(session, event->peer);
    if (session_is_root(session))
        session->progress_ns = session->now_ns;
    session_settle(session, actions);
    return 0;
}

static int on_fenced(struct session *session, const struct session_event *event,
                     struct session_actions *actions)
{
    session->edges[event->peer].fencing = false;
    session_settle(session, actions);
    return 0;
}

static int on_abort(struct session *session, const struct session_event *event,
                    struct session_actions *actions)
{
    if (session_is_root(session))
        root_cancel(session, actions, event->code, SESSION_NOBODY);
    else if (session->state == SESSION_ORDERING)
        session_drain(session, actions, event->code, SESSION_NOBODY);
    else
        receiver_fail(session, actions, event->code, SESSION_NOBODY);
    return 0;
}

/* Before the order the session fails with any of its members; afterwards a lost one is not waited for. */
static int on_lost(struct session *session, const struct session_event *event,
                   struct session_actions *actions)
{
    if (session->edges[event->peer].lost)
        return 0;
    session_edge_lose(session, event->peer);
    if (session->state != SESSION_OFFERED && session->state != SESSION_MOVING)
        session_settle(session, actions);
    else if (session_is_root(session))
        root_cancel(session, actions, COVEY_PEER_LOST, event->peer);
    else if (event->peer == SESSION_ROOT)
        session_drain(session, actions, COVEY_PEER_LOST, event->peer);
    else
        receiver_fail(session, actions, COVEY_PEER_LOST, event->peer);
    return 0;
}

static int on_commit(struct session *session, const struct session_event *event,
                     struct session_actions *actions)
{
    (void)event;
    session->state = SESSION_DELIVERED;
    session_edges_end(session);
    session_restart_waits(session);
    session_emit_own(session, actions, SESSION_DELIVER);
    if (!session_is_root(session) && !session->edges[SESSION_ROOT].lost)
        session_emit_to(session, actions, SESSION_SEND_DELIVERED, SESSION_ROOT);
    session_settle(session, actions);
    return 0;
}

/* --- Events from peers --------------------------------------------------------------------------- */

static int on_accept(struct session *session, const struct session_event *event,
                     struct session_actions *actions)
{
    if (session->edges[event->peer].accepted)
        return COVEY_PROTOCOL;
    session->edges[event->peer].accepted = true;
    session->accepted_count++;
    start_if_accepted(session, actions);
    return 0;
}

/* Why the peer gives up, and the rank that it names (itself, if none): both must make sense. */
static bool reason_valid(const struct session *session, const struct session_event *event)
{
    return event->code < 0 &&
           (event->culprit < session->config.schedule.members || event->culprit == SESSION_NOBODY);
}

static uint32_t culprit_of(const struct session_event *event)
{
    return event->culprit == SESSION_NOBODY ? event->peer : event->culprit;
}

static int on_refuse(struct session *session, const struct session_event *event,
                     struct session_actions *actions)
{
    struct edge *edge = &session->edges[event->peer];

    if (edge->accepted || !reason_valid(session, event))
        return COVEY_PROTOCOL;
    edge->refused = true;
    root_cancel(session, actions, event->code, culprit_of(event));
    return 0;
}

static int on_start(struct session *session, const struct session_event *event,
                    struct session_actions *actions)
{
    (void)event;
    if (!session->accepted)
        return COVEY_PROTOCOL;
    begin_moving(session);
    if (session->failed)
        return 0; /* CANCEL is on its way; nobody shall write here before */
    session_edges_count_owed(session);
    for (uint32_t i = 0; i < session->in_count; i++) {
        session->edges[session->in_peers[i]].invited = true;
        session_emit_to(session, actions, SESSION_SEND_GRANT, session->in_peers[i]);
    }
    return 0;
}

static int on_grant(struct session *session, const struct session_event *event,
                    struct session_actions *actions)
{
    struct edge *edge = &session->edges[event->peer];

    if (!edge->out || edge->granted)
        return COVEY_PROTOCOL;
    if (session->state == SESSION_OFFERED && !session->accepted)
        return COVEY_PROTOCOL; /* nobody grants before START, nobody starts before every ACCEPT */
    session_edge_grant(session, event->peer, event->skip);
    if (session->state == SESSION_DRAINING || session->state == SESSION_CLOSED)
        session_fence_if_needed(session, actions, event->peer);
    return 0;
}

static int on_arrived(struct session *session, const struct session_event *event,
                      struct session_actions *actions)
{
    struct edge *edge = &session->edges[event->peer];

    if (!session_edge_brings(session, event->peer, event->block))
        return COVEY_PROTOCOL;
    hold(session, event->block);
    session_sends_hold(session, event->block);
    edge->owes--;
    edge->heard_ns = session->now_ns;
    session->progress_ns = session->now_ns;
    if (session->state == SESSION_MOVING)
        verify_if_complete(session, actions);
    else
        session_settle(session, actions);
    return 0;
}

static int on_fence(struct session *session, const struct session_event *event,
                    struct session_actions *actions)
{
    if (!session_edge_open(&session->edges[event->peer]))
        return COVEY_PROTOCOL;
    session->edges[event->peer].fenced = true;
    session_settle(session, actions);
    return 0;
}

static int on_seal(struct session *session, const struct session_event *event,
                   struct session_actions *actions)
{
    (void)event;
    if (session->sealed)
        return COVEY_PROTOCOL;
    session->sealed = true;
    verify_if_complete(session, actions);
    return 0;
}

static int on_received(struct session *session, const struct session_event *event,
                       struct session_actions *actions)
{
    struct edge *edge = &session->edges[event->peer];

    if (edge->received || !session->sealed)
        return COVEY_PROTOCOL;
    edge->received = true;
    session->received_count++;
    session->progress_ns = session->now_ns;
    order_if_received(session, actions);
    return 0;
}

/* Who waits for whom is collected for a moment, then session_verdict() names the one at the top. */
static void report_stall(struct session *session, uint32_t reporter, uint32_t culprit)
{
    session->edges[reporter].blames = culprit;
    if (session->verdict_ns == UINT64_MAX) {
        session->verdict_ns = session->now_ns + session->config.stall_ns / VERDICT_PART;
        session->first_reporter = reporter;
    }
    session_arm(session, session->verdict_ns);
}

static int on_failed(struct session *session, const struct session_event *event,
                     struct session_actions *actions)
{
    struct edge *edge = &session->edges[event->peer];
    bool stalled = event->code == COVEY_PEER_STALLED && culprit_of(event) != event->peer;

    if (!edge->accepted || edge->blames != SESSION_NOBODY || !reason_valid(session, event) ||
        (edge->received && !stalled))
        return COVEY_PROTOCOL;
    if (stalled && session->state == SESSION_MOVING)
        report_stall(session, event->peer, event->culprit);
    else
        root_cancel(session, actions, event->code, culprit_of(event));
    return 0;
}

static int on_cancel(struct session *session, const struct session_event *event,
                     struct session_actions *actions)
{
    if (!reason_valid(session, event))
        return COVEY_PROTOCOL;
    session_drain(session, actions, event->code, event->culprit);
    return 0;
}

static int on_delivery(struct session *session, const struct session_event *event,
                       struct session_actions *actions)
{
    if (session->edges[event->peer].delivered)
        return COVEY_PROTOCOL;
    session->edges[event->peer].delivered = true;
    session_settle(session, actions);
    return 0;
}

/* --- Time ---------------------------------------------------------------------------------------- */

/* What the end of a wait means. */
static void expire(struct session *session, struct session_actions *actions, uint32_t culprit)
{
    bool ending = session->state == SESSION_DELIVERED || session->state == SESSION_DRAINING;

    if (ending || (session->failed && culprit == SESSION_ROOT)) {
        session->edges[culprit].cut = true;
        session_emit_to(session, actions, SESSION_DISCONNECT, culprit);
    } else if (!session_is_root(session)) {
        receiver_fail(session, actions, COVEY_PEER_STALLED, culprit);
    } else if (session->state == SESSION_OFFERED) {
        root_cancel(session, actions, COVEY_PEER_STALLED, culprit);
    } else if (session->verdict_ns == UINT64_MAX) {
        report_stall(session, SESSION_ROOT, culprit);
    } else {
        root_cancel(session, actions, COVEY_PEER_STALLED, session_verdict(session));
    }
}

static int on_tick(struct session *session, const struct session_event *event,
                   struct session_actions *actions)
{
    (void)event;
    while (session->alarm_ns <= session->now_ns) {
        struct session_wait wait = session_first_wait(session);

        if (wait.until_ns <= session->now_ns)
            expire(session, actions, wait.culprit);
        else
            session->alarm_ns = wait.until_ns;
    }
    return 0;
}

uint64_t session_deadline_ns(const struct session *session)
{
    uint64_t overtake_ns = session_overtake_ns(session);

    /* One that is past needs no tick: the caller has asked for the next write since. */
    if (overtake_ns > session->now_ns && overtake_ns < session->alarm_ns)
        return overtake_ns;
    return session->alarm_ns;
}

/* --- The table ----------------------------------------------------------------------------------- */

enum { ROOT = 1, RECEIVER = 2, ANY = 3 };

#define IN(state) (1u << SESSION_##state)
#define OPEN      (IN(OFFERED) | IN(MOVING) | IN(ORDERING) | IN(DELIVERED) | IN(DRAINING))
#define ENDED     (IN(DRAINING) | IN(CLOSED))

static const struct rule {
    int (*act)(struct session *, const struct session_event *, struct session_actions *);
    enum { NODE, NODE_OF_PEER, PEER, PEER_ROOT, GROUP } from;
    unsigned who;    /* has the rule */
    unsigned states; /* in which it acts */
    unsigned late;   /* states in which the event is dropped */
} rules[] = {
    [SESSION_BEGIN] = {on_begin, NODE, ANY, IN(OFFERED), 0},
    [SESSION_LANDED] = {on_landed, NODE, RECEIVER, IN(OFFERED) | IN(DRAINING), 0},
    [SESSION_READY] = {on_ready, NODE, ANY, IN(OFFERED) | IN(MOVING), ENDED},
    [SESSION_SEALED] = {on_sealed, NODE, ROOT, IN(OFFERED) | IN(MOVING), ENDED},
    [SESSION_VERIFIED] = {on_verified, NODE, RECEIVER, IN(MOVING) | IN(DRAINING), 0},
    [SESSION_WRITTEN] = {on_written, NODE_OF_PEER, ANY, OPEN, 0},
    [SESSION_FENCED] = {on_fenced, NODE_OF_PEER, ANY, ENDED, 0},
    [SESSION_ABORT] = {on_abort, NODE, ANY, IN(OFFERED) | IN(MOVING) | IN(ORDERING), IN(DELIVERED) | ENDED},
    [SESSION_LOST] = {on_lost, NODE_OF_PEER, ANY, OPEN, IN(CLOSED)},
    [SESSION_TICK] = {on_tick, NODE, ANY, OPEN, IN(CLOSED)},
    [SESSION_ACCEPT] = {on_accept, PEER, ROOT, IN(OFFERED), ENDED},
    [SESSION_REFUSE] = {on_refuse, PEER, ROOT, IN(OFFERED), ENDED},
    [SESSION_START] = {on_start, PEER_ROOT, RECEIVER, IN(OFFERED), ENDED},
    [SESSION_GRANT] = {on_grant, PEER, ANY, IN(OFFERED) | IN(MOVING) | IN(ORDERING) | ENDED, 0},
    [SESSION_ARRIVED] = {on_arrived, PEER, RECEIVER, IN(MOVING) | IN(DRAINING), 0},
    [SESSION_FENCE] = {on_fence, PEER, RECEIVER, IN(MOVING) | IN(ORDERING) | IN(DRAINING), 0},
    [SESSION_SEAL] = {on_seal, PEER_ROOT, RECEIVER, IN(MOVING), ENDED},
    [SESSION_RECEIVED] = {on_received, PEER, ROOT, IN(MOVING), IN(ORDERING) | IN(DELIVERED) | ENDED},
    [SESSION_FAILED] = {on_failed, PEER, ROOT, IN(OFFERED) | IN(MOVING),
                        IN(ORDERING) | IN(DELIVERED) | ENDED},
    [SESSION_CANCEL] = {on_cancel, PEER_ROOT, RECEIVER, IN(OFFERED) | IN(MOVING) | IN(ORDERING), ENDED},
    [SESSION_COMMIT] = {on_commit, GROUP, ANY, IN(ORDERING), 0},
    [SESSION_DELIVERY] = {on_delivery, PEER, ROOT, IN(ORDERING) | IN(DELIVERED), ENDED},
};

static bool sender_valid(const struct session *session, const struct rule *rule, uint32_t peer)
{
    if (rule->from == NODE || rule->from == GROUP)
        return true;
    if (rule->from == PEER_ROOT && peer != SESSION_ROOT)
        return false;
    return peer < session->config.schedule.members && peer != session->config.rank;
}

int session_step(struct session *session, const struct session_event *event, struct session_actions *actions)
{
    const struct rule *rule = &rules[event->type];
    bool ours = rule->from == NODE || rule->from == NODE_OF_PEER;
    unsigned state = 1u << session->state;
    unsigned role = session_is_root(session) ? ROOT : RECEIVER;
    bool valid;

    assert(event->type < sizeof(rules) / sizeof(rules[0]));
    actions->count = 0;
    if (event->now_ns > session->now_ns)
        session->now_ns = event->now_ns;
    valid = sender_valid(session, rule, event->peer) && (rule->who & role) != 0 &&
            ((rule->states | rule->late) & state) != 0;
    assert(valid || !ours);
    if (!valid)
        return COVEY_PROTOCOL;
    if ((rule->late & state) != 0 || (!ours && rule->from != GROUP && session->edges[event->peer].lost))
        return 0;
    return rule->act(session, event, actions);
}

/* --- Questions ----------------------------------------------------------------------------------- */

enum session_state session_state(const struct session *session)
{
    return session->state;
}

bool session_holds(const struct session *session, uint32_t block)
{
    return bitmap_get(session->held, block);
}

void session_progress(const struct session *session, uint32_t *done, uint32_t *total)
{
    *done = session_is_root(session) ? session->sends_done : session->held_count;
    *total = session_is_root(session) ? session->sends_total : session->config.schedule.blocks;
}
