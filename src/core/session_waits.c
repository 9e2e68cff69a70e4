/* SPDX-License-Identifier: BSD-3-Clause */
/* What a session waits for, until when, and whose doing it is if it does not come. */

#include "core/session_internal.h"

static void wait_for(struct session_wait *wait, uint64_t until_ns, uint32_t culprit)
{
    if (until_ns < wait->until_ns)
        *wait = (struct session_wait){.until_ns = until_ns, .culprit = culprit};
}

static uint64_t since(const struct session *session, uint64_t start_ns, uint64_t steps)
{
    uint64_t patience_ns = session_patience_ns(session, steps);

    return start_ns > UINT64_MAX - 1 - patience_ns ? UINT64_MAX - 1 : start_ns + patience_ns;
}

/* For those who take what this rank writes: to grant, which they do as soon as they are told to start, and
 * then for each write to be done. */
static void wait_for_writes(const struct session *session, struct session_wait *wait)
{
    for (uint32_t peer = 0; peer < session->config.schedule.members; peer++) {
        const struct edge *edge = &session->edges[peer];

        if (edge->lost)
            continue;
        if (edge->out && !edge->granted)
            wait_for(wait, since(session, session->started_ns, 0), peer);
        else if (edge->inflight > 0)
            wait_for(wait, since(session, edge->wrote_ns, session->config.window), peer);
    }
}

/* At the end: for whatever is still out, peer by peer. */
static void wait_for_ends(const struct session *session, struct session_wait *wait)
{
    bool delivering = session->state == SESSION_DELIVERED;

    for (uint32_t peer = 0; peer < session->config.schedule.members; peer++) {
        const struct edge *edge = &session->edges[peer];
        uint64_t last_ns = edge->wrote_ns > edge->heard_ns ? edge->wrote_ns : edge->heard_ns;
        bool told = !delivering || !session_is_root(session) || peer == SESSION_ROOT || edge->delivered;
        bool over = edge->inflight == 0 && !edge->fencing && (delivering || !session_edge_open(edge));

        if (!edge->lost && !edge->cut && !(told && over))
            wait_for(wait, since(session, last_ns, session->config.window), peer);
    }
}

static uint32_t first_silent(const struct session *session)
{
    for (uint32_t peer = 1; peer < session->config.schedule.members; peer++)
        if (!session->edges[peer].accepted)
            return peer;
    return SESSION_NOBODY;
}

static uint32_t first_unfinished(const struct session *session)
{
    for (uint32_t peer = 1; peer < session->config.schedule.members; peer++)
        if (!session->edges[peer].received)
            return peer;
    return SESSION_NOBODY;
}

static void wait_of_root(const struct session *session, struct session_wait *wait)
{
    if (session->state == SESSION_OFFERED) {
        wait_for(wait, since(session, session->progress_ns, 0), first_silent(session));
    } else if (session->state == SESSION_MOVING && session->verdict_ns != UINT64_MAX) {
        wait_for(wait, session->verdict_ns, SESSION_NOBODY);
    } else if (session->state == SESSION_MOVING) {
        wait_for_writes(session, wait);
        /* The receivers' own clocks are quicker; this one is for those that say nothing. */
        if (session->sealed)
            wait_for(wait, since(session, session->progress_ns, session->steps + session->config.window),
                     first_unfinished(session));
    }
}

/* To start or to cancel. The root itself may wait stall_ns for others before it does. */
static void wait_for_root(const struct session *session, struct session_wait *wait, uint64_t start_ns)
{
    wait_for(wait, since(session, since(session, start_ns, 0), 0), SESSION_ROOT);
}

static void wait_of_receiver(struct session *session, struct session_wait *wait)
{
    /* In how many steps nothing comes: it may be all at once. */
    uint64_t idle_steps = session->steps - session->config.schedule.blocks;

    if (session->failed) {
        if (session->state != SESSION_ORDERING && !session->edges[SESSION_ROOT].cut)
            wait_for_root(session, wait, session->failed_ns);
    } else if (session->state == SESSION_OFFERED) {
        if (session->accepted)
            wait_for_root(session, wait, session->progress_ns);
    } else {
        wait_for_writes(session, wait);
        if (session->held_count < session->config.schedule.blocks)
            wait_for(wait, since(session, session->progress_ns, idle_steps + session->config.window),
                     session_edge_due(session));
        else if (!session->sealed)
            wait_for(wait, since(session, session->progress_ns, session->config.window), SESSION_ROOT);
    }
}

struct session_wait session_first_wait(struct session *session)
{
    struct session_wait wait = {.until_ns = UINT64_MAX, .culprit = SESSION_NOBODY};

    if (session->state == SESSION_DELIVERED || session->state == SESSION_DRAINING)
        wait_for_ends(session, &wait);
    else if (session->state == SESSION_CLOSED)
        return wait;
    else if (session_is_root(session))
        wait_of_root(session, &wait);
    else
        wait_of_receiver(session, &wait);
    return wait;
}

/* The peer that has kept a write of the root's waiting for long, if there is one. */
static uint32_t slowest_write(const struct session *session)
{
    uint64_t oldest_ns = session->now_ns - session->config.stall_ns / 2;
    uint32_t slowest = SESSION_NOBODY;

    for (uint32_t peer = 1; peer < session->config.schedule.members; peer++) {
        const struct edge *edge = &session->edges[peer];

        if (edge->inflight > 0 && edge->wrote_ns <= oldest_ns) {
            oldest_ns = edge->wrote_ns;
            slowest = peer;
        }
    }
    return slowest;
}

uint32_t session_verdict(const struct session *session)
{
    uint32_t culprit = session->first_reporter;

    for (uint32_t hops = 0; hops < session->config.schedule.members; hops++) {
        if (session->edges[culprit].blames == SESSION_NOBODY)
            break;
        culprit = session->edges[culprit].blames;
    }
    if (culprit == SESSION_ROOT && slowest_write(session) != SESSION_NOBODY)
        culprit = slowest_write(session); /* its own clock would have said so a little later */
    return culprit;
}
