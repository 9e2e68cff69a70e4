/* SPDX-License-Identifier: BSD-3-Clause */
/* One TCP connection: bytes in and out, deadlines, the end. */

#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "node/peers_private.h"
#include "node/tcp.h"

#define STEADY_NS UINT64_C(1000000000) /* a peer that was up for less is dialed with the back-off it had */

static void conn_ready(uv_poll_t *poll, int status, int events);
static void conn_timeout(uv_timer_t *timer);

/* --- Beginning ------------------------------------------------------------------------------------------ */

static void link_in(struct peers *peers, struct conn *conn)
{
    conn->next = peers->conns;
    if (conn->next != NULL)
        conn->next->previous = conn;
    peers->conns = conn;
}

static void link_out(struct conn *conn)
{
    if (conn->next != NULL)
        conn->next->previous = conn->previous;
    if (conn->previous != NULL)
        conn->previous->next = conn->next;
    else
        conn->peers->conns = conn->next;
}

struct conn *conn_new(struct peers *peers, int fd, enum handshake_role role, enum conn_state state)
{
    struct conn *conn = calloc(1, sizeof(*conn));
    struct handshake *handshake = calloc(1, sizeof(*handshake));

    if (conn == NULL || handshake == NULL || uv_poll_init(peers->loop, &conn->poll, fd) != 0) {
        free(conn);
        free(handshake);
        close(fd);
        return NULL;
    }
    uv_timer_init(peers->loop, &conn->timer);
    conn->poll.data = conn->timer.data = conn;
    conn->open_handles = 2;
    peers_handle_opened(peers);
    peers_handle_opened(peers);
    conn->peers = peers;
    conn->fd = fd;
    conn->role = role;
    conn->state = state;
    conn->handshake = handshake;
    conn->since_ns = uv_hrtime();
    for (size_t i = 0; i < FABRIC_LANES; i++)
        conn->lanes[i] = (struct lane){.conn = conn, .index = (enum fabric_lane)i};
    link_in(peers, conn);
    return conn;
}

static bool conn_is_open(const struct conn *conn)
{
    return conn->state != CONN_CLOSING && conn->state != CONN_CLOSED;
}

bool conn_is_half_open(const struct conn *conn)
{
    return conn->role == HANDSHAKE_ACCEPTOR && conn->incarnation == 0 && conn_is_open(conn);
}

static void conn_watch(struct conn *conn)
{
    int events = conn->state == CONN_CONNECTING ? UV_WRITABLE : UV_READABLE;

    if (conn->out_bytes > 0)
        events |= UV_WRITABLE;
    uv_poll_start(&conn->poll, events, conn_ready);
}

/* deadline_ms 0: none. */
void conn_set_state(struct conn *conn, enum conn_state state, uint64_t deadline_ms)
{
    conn->state = state;
    uv_timer_stop(&conn->timer);
    if (deadline_ms > 0)
        uv_timer_start(&conn->timer, conn_timeout, deadline_ms, 0);
    conn_watch(conn);
}

void conn_begin_handshake(struct conn *conn, uint32_t expected_id)
{
    uint8_t nonce[HANDSHAKE_NONCE_BYTES];

    randombytes_buf(nonce, sizeof(nonce));
    handshake_init(conn->handshake, &conn->peers->local, conn->role, expected_id, nonce);
    conn_set_state(conn, CONN_HANDSHAKE, conn->peers->timing.handshake);
    conn_progress(conn);
}

/* --- The end -------------------------------------------------------------------------------------------- */

static void conn_forget_handshake(struct conn *conn)
{
    if (conn->handshake != NULL)
        handshake_fini(conn->handshake);
    free(conn->handshake);
    conn->handshake = NULL;
}

static void conn_handle_closed(uv_handle_t *handle)
{
    struct conn *conn = handle->data;
    struct peers *peers = conn->peers;

    if (--conn->open_handles == 0) {
        link_out(conn);
        conn_forget_handshake(conn);
        free(conn);
    }
    peers_handle_closed(peers);
}

/* The peer's entry has nothing to do with the connection any more: what waits for its end goes on. */
void conn_leave_entry(struct conn *conn)
{
    struct entry *entry = conn->entry;

    conn->entry = NULL;
    if (entry == NULL)
        return;
    if (entry->current == conn)
        entry->current = NULL;
    if (entry->successor == conn)
        entry->successor = NULL;
    if (entry->knock == conn)
        entry->knock = NULL;
    if (entry->current == NULL && entry->successor != NULL)
        accept_successor(entry->successor);
    dial_again(entry);
}

static void conn_tell_down(struct conn *conn)
{
    struct entry *entry = conn->entry;
    struct peers *peers = conn->peers;

    if (entry == NULL || entry->current != conn)
        return;
    if (conn->end.code != COVEY_AGAIN)
        entry_problem(entry, conn->end.code, "%s", conn->end.text);
    if (!conn->was_up)
        return;
    conn->was_up = false;
    entry->peer.up = false;
    if (uv_hrtime() - entry->up_since_ns > STEADY_NS)
        entry->backoff_ms = 0;
    peers->callbacks->down(peers->context, &entry->peer, conn->end.code, entry->peer.problem);
    memset(entry->peer.links, 0, sizeof(entry->peer.links));
}

void conn_finish(struct conn *conn)
{
    if (conn->state != CONN_CLOSING)
        return;
    for (size_t i = 0; i < FABRIC_LANES; i++) {
        if (conn->lanes[i].link != NULL && !conn->lanes[i].down)
            return;
    }
    conn->state = CONN_CLOSED;
    conn_tell_down(conn);
    for (size_t i = 0; i < FABRIC_LANES; i++) {
        if (conn->lanes[i].link != NULL)
            fabric_link_free(conn->lanes[i].link);
        conn->lanes[i].link = NULL;
    }
    uv_close((uv_handle_t *)&conn->poll, conn_handle_closed);
    uv_close((uv_handle_t *)&conn->timer, conn_handle_closed);
    close(conn->fd);
    conn_leave_entry(conn);
    accept_resume(conn->peers);
}

/* The TCP connection stays until the links are down: then what was sent on them is at the peer before it sees
 * the end. */
void conn_close(struct conn *conn, int code, const char *format, ...)
{
    char text[FAIL_TEXT_MAX];
    va_list args;

    if (!conn_is_open(conn))
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fail_set(&conn->end, code, "%s", text);
    conn->state = CONN_CLOSING;
    uv_timer_stop(&conn->timer);
    uv_poll_stop(&conn->poll);
    for (size_t i = 0; i < FABRIC_LANES; i++) {
        if (conn->lanes[i].link != NULL && !conn->lanes[i].down)
            fabric_link_close(conn->lanes[i].link);
    }
    conn_finish(conn);
}

/* COVEY_AGAIN is nothing that is wrong: one of two connections gives way to the other. */
static void conn_report(struct conn *conn, int code, const char *text)
{
    if (code == COVEY_AGAIN)
        log_debug(conn->peers->log, "a connection %s", text);
    else if (conn->entry != NULL && (conn->role == HANDSHAKE_DIALER || conn->entry->current == conn))
        entry_problem(conn->entry, code, "%s", text);
    else
        accept_report(conn, code, text);
}

void conn_give_up(struct conn *conn, int code, const char *text)
{
    conn_report(conn, code, text);
    conn_close(conn, code, "%s", text);
}

/* What was sent last, a verdict above all, shall arrive: closing at once while the peer sends would reset the
 * connection and lose it. */
static void conn_linger(struct conn *conn)
{
    conn_set_state(conn, CONN_LINGER, conn->peers->timing.linger);
    if (conn->out_bytes == 0)
        shutdown(conn->fd, SHUT_WR);
    conn_leave_entry(conn);
}

static void conn_refused(struct conn *conn)
{
    struct fail fail = *handshake_fail(conn->handshake);

    if (conn->lanes[FABRIC_CONTROL].link != NULL) {
        conn_give_up(conn, fail.code, fail.text);
        return;
    }
    conn_report(conn, fail.code, fail.text);
    conn_linger(conn);
}

/* --- Bytes ---------------------------------------------------------------------------------------------- */

/* An error here shows when the rest is read: what the peer said before is worth more. */
static void conn_flush(struct conn *conn)
{
    ssize_t sent = conn->out_bytes > 0 ? tcp_send(conn->fd, conn->out, conn->out_bytes) : 0;

    if (sent < 0)
        sent = (ssize_t)conn->out_bytes;
    conn->out_bytes -= (size_t)sent;
    memmove(conn->out, conn->out + sent, conn->out_bytes);
    if (conn->state == CONN_LINGER && conn->out_bytes == 0)
        shutdown(conn->fd, SHUT_WR);
    conn_watch(conn);
}

/* Sent in the next turn, with others that come in this one. */
void conn_signal(struct conn *conn, enum signal signal)
{
    if (conn->out_bytes == sizeof(conn->out))
        return; /* a peer that asks without end and does not read the answers */
    conn->out[conn->out_bytes++] = (uint8_t)signal;
    conn_watch(conn);
}

static void conn_judge(struct conn *conn)
{
    conn->incarnation = handshake_peer(conn->handshake)->incarnation;
    accept_resume(conn->peers);
    if (conn->role == HANDSHAKE_ACCEPTOR) {
        accept_judge(conn);
        return;
    }
    entry_describe(conn->entry, handshake_peer(conn->handshake));
    handshake_verdict(conn->handshake, COVEY_OK, "");
}

static void conn_agreed(struct conn *conn)
{
    conn_set_state(conn, CONN_LINKING, conn->peers->timing.link);
    if (conn->role == HANDSHAKE_DIALER)
        links_connect(conn);
    conn_forget_handshake(conn);
    links_check(conn);
}

/* The peer's own verdict is worth a moment: it may say the same, or more. */
static void conn_hurry(struct conn *conn)
{
    uint32_t linger = conn->peers->timing.linger;

    if (uv_timer_get_due_in(&conn->timer) > linger)
        conn_set_state(conn, conn->state, linger);
}

void conn_progress(struct conn *conn)
{
    if (conn->state == CONN_HANDSHAKE && handshake_state(conn->handshake) == HANDSHAKE_JUDGE)
        conn_judge(conn);
    if (conn->state != CONN_HANDSHAKE && conn->state != CONN_PARKED)
        return; /* judging went through to the end */
    conn->out_bytes +=
        handshake_give(conn->handshake, conn->out + conn->out_bytes, sizeof(conn->out) - conn->out_bytes);
    conn_flush(conn);
    if (handshake_state(conn->handshake) == HANDSHAKE_REFUSED)
        conn_hurry(conn);
    else if (handshake_state(conn->handshake) == HANDSHAKE_FAILED)
        conn_refused(conn);
    else if (handshake_state(conn->handshake) == HANDSHAKE_DONE)
        conn_agreed(conn);
}

static void conn_take_signal(struct conn *conn, uint8_t signal)
{
    switch (signal) {
    case SIGNAL_LINKED:
        conn->linked_received = true;
        links_check(conn);
        break;
    case SIGNAL_PROBE:
        conn_signal(conn, SIGNAL_ALIVE);
        break;
    case SIGNAL_ALIVE:
        accept_alive(conn);
        break;
    default:
        conn_close(conn, COVEY_PROTOCOL, "broke the protocol: unknown byte %u on its connection", signal);
    }
}

static void conn_take(struct conn *conn, const uint8_t *data, size_t bytes)
{
    size_t taken = 0;

    conn->heard = true;
    if (conn->state == CONN_HANDSHAKE || conn->state == CONN_PARKED) {
        taken = handshake_take(conn->handshake, data, bytes);
        conn_progress(conn);
    }
    while (taken < bytes && (conn->state == CONN_LINKING || conn->state == CONN_UP))
        conn_take_signal(conn, data[taken++]);
}

/* error: 0 for the end of the stream. */
static void handshake_ended(struct conn *conn, int error)
{
    struct fail fail;

    if (handshake_state(conn->handshake) == HANDSHAKE_REFUSED)
        fail = *handshake_fail(conn->handshake);
    else
        fail_set(&fail, COVEY_PEER_LOST, "closed the connection before it %s%s%s",
                 handshake_step(conn->handshake), error != 0 ? ": " : "", error != 0 ? strerror(error) : "");
    conn_give_up(conn, fail.code, fail.text);
}

static void conn_ended(struct conn *conn, int error)
{
    if (conn->state == CONN_HANDSHAKE || conn->state == CONN_PARKED)
        handshake_ended(conn, error);
    else if (error == 0)
        conn_close(conn, COVEY_PEER_LOST, "has gone: it closed the connection");
    else
        conn_close(conn, COVEY_PEER_LOST, "has gone: %s", strerror(error));
}

static void conn_receive(struct conn *conn)
{
    uint8_t data[HANDSHAKE_BYTES];
    ssize_t bytes = tcp_receive(conn->fd, data, sizeof(data));

    if (bytes > 0)
        conn_take(conn, data, (size_t)bytes);
    else if (bytes != -EAGAIN)
        conn_ended(conn, (int)-bytes);
}

static void conn_ready(uv_poll_t *poll, int status, int events)
{
    struct conn *conn = poll->data;

    if (conn->state == CONN_CONNECTING) {
        dial_connected(conn);
        return;
    }
    if (status < 0 || (events & UV_READABLE) != 0)
        conn_receive(conn);
    if ((events & UV_WRITABLE) != 0 && conn_is_open(conn))
        conn_flush(conn);
}

/* --- Time ----------------------------------------------------------------------------------------------- */

static void handshake_timed_out(struct conn *conn)
{
    struct fail fail;

    if (handshake_state(conn->handshake) == HANDSHAKE_REFUSED)
        fail = *handshake_fail(conn->handshake);
    else if (conn->role == HANDSHAKE_DIALER && !conn->heard)
        fail_set(&fail, COVEY_UNREACHABLE,
                 "takes the connection but says nothing: is the process there stopped, or another program?");
    else
        fail_set(&fail, COVEY_UNREACHABLE, "was too slow: %u ms passed before it %s",
                 conn->peers->timing.handshake, handshake_step(conn->handshake));
    conn_give_up(conn, fail.code, fail.text);
}

static void conn_timeout(uv_timer_t *timer)
{
    struct conn *conn = timer->data;

    switch (conn->state) {
    case CONN_CONNECTING:
        dial_timed_out(conn);
        break;
    case CONN_HANDSHAKE:
        handshake_timed_out(conn);
        break;
    case CONN_PARKED:
        accept_parked_too_long(conn);
        break;
    case CONN_LINKING:
        conn_close(
            conn, COVEY_UNREACHABLE,
            "was let in, but its fabric links did not come up in %u ms: can the hosts reach each other by "
            "the fabric (%s)?",
            conn->peers->timing.link, fabric_provider(conn->peers->fabric));
        break;
    default:
        conn_close(conn, COVEY_PEER_LOST, "was refused");
    }
}
