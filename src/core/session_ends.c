/* SPDX-License-Identifier: BSD-3-Clause */
/* Actions of a session, and how it ends. */

#include <assert.h>

#include "core/session_internal.h"

/* --- Actions ------------------------------------------------------------------------------------- */

void session_emit(const struct session *session, struct session_actions *actions,
                  const struct session_action *action)
{
    assert(actions->count < SESSION_ACTIONS_MAX(session->config.schedule.members));
    actions->list[actions->count++] = *action;
}

void session_emit_to(const struct session *session, struct session_actions *actions,
                     enum session_action_type type, uint32_t peer)
{
    session_emit(session, actions,
                 &(struct session_action){.type = type, .peer = peer, .code = 0, .culprit = SESSION_NOBODY});
}

void session_emit_own(const struct session *session, struct session_actions *actions,
                      enum session_action_type type)
{
    session_emit_to(session, actions, type, session->config.rank);
}

void session_emit_to_all(const struct session *session, struct session_actions *actions,
                         enum session_action_type type)
{
    for (uint32_t peer = 1; peer < session->config.schedule.members; peer++) {
        const struct edge *edge = &session->edges[peer];

        if (!edge->lost && !edge->refused)
            session_emit(session, actions,
                         &(struct session_action){
                             .type = type, .peer = peer, .code = session->code, .culprit = session->culprit});
    }
}

/* --- Ends ---------------------------------------------------------------------------------------- */

bool session_quiet(const struct session *session)
{
    if (session->inflight > 0)
        return false;
    for (uint32_t peer = 0; peer < session->config.schedule.members; peer++)
        if (session->edges[peer].fencing || session_edge_open(&session->edges[peer]))
            return false;
    return true;
}

static void close_cancelled(struct session *session, struct session_actions *actions)
{
    struct session_action end = {
        .peer = session->config.rank, .code = session->code, .culprit = session->culprit};

    if (session->landing || session->verifying || !session_quiet(session))
        return;
    session->state = SESSION_CLOSED;
    end.type = SESSION_RELEASE;
    session_emit(session, actions, &end);
    end.type = SESSION_DONE;
    if (session_is_root(session))
        session_emit(session, actions, &end);
}

static bool everyone_delivered(const struct session *session)
{
    for (uint32_t peer = 1; peer < session->config.schedule.members; peer++)
        if (!session->edges[peer].delivered && !session->edges[peer].lost)
            return false;
    return true;
}

static void close_delivered(struct session *session, struct session_actions *actions)
{
    if (session->inflight > 0)
        return;
    if (session_is_root(session)) {
        if (!everyone_delivered(session))
            return;
        session_emit_own(session, actions, SESSION_DONE);
    }
    session->state = SESSION_CLOSED;
}

void session_settle(struct session *session, struct session_actions *actions)
{
    if (session->state == SESSION_DRAINING)
        close_cancelled(session, actions);
    else if (session->state == SESSION_DELIVERED)
        close_delivered(session, actions);
    if (session->state == SESSION_CLOSED)
        session->alarm_ns = UINT64_MAX;
}

void session_restart_waits(struct session *session)
{
    for (uint32_t peer = 0; peer < session->config.schedule.members; peer++) {
        session->edges[peer].wrote_ns = session->now_ns;
        session->edges[peer].heard_ns = session->now_ns;
    }
    session->progress_ns = session->now_ns;
    session_arm(session, session->now_ns);
}

void session_fence_if_needed(struct session *session, struct session_actions *actions, uint32_t peer)
{
    if (!session_edge_needs_fence(&session->edges[peer]))
        return;
    session->edges[peer].fencing = true;
    session_emit_to(session, actions, SESSION_POST_FENCE, peer);
}

void session_drain(struct session *session, struct session_actions *actions, int code, uint32_t culprit)
{
    session->state = SESSION_DRAINING;
    session->code = code;
    session->culprit = culprit;
    session_sends_stop(session);
    for (uint32_t peer = 0; peer < session->config.schedule.members; peer++)
        session_fence_if_needed(session, actions, peer);
    session_restart_waits(session);
    session_settle(session, actions);
}
