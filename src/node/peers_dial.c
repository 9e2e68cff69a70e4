/* SPDX-License-Identifier: BSD-3-Clause */
/* Who dials whom, and when again. */

#include <errno.h>
#include <string.h>

#include "node/peers_private.h"
#include "node/tcp.h"

/* Of a listed and an elastic node the elastic one dials; of two listed ones the one with the higher id; of
 * two elastic ones whoever knows of the other. */
bool dial_is_ours(const struct peers *peers, uint32_t id, bool elastic)
{
    if (peers->options->elastic)
        return true;
    return !elastic && peers->options->self.id > id;
}

static bool entry_is_ours(const struct entry *entry)
{
    return dial_is_ours(entry->peers, entry->peer.id, entry->peer.options == NULL);
}

static void dial_fail(const struct entry *entry, int error, struct fail *fail)
{
    switch (error) {
    case ECONNREFUSED:
        fail_set(fail, COVEY_UNREACHABLE, "does not answer: connection refused; is coveyd running there?");
        break;
    case ETIMEDOUT:
        fail_set(fail, COVEY_UNREACHABLE,
                 "does not answer: timed out; is the host up, and does a firewall let the port through?");
        break;
    case EADDRNOTAVAIL:
        fail_set(fail, COVEY_UNREACHABLE, "cannot be dialed from %s: %s", entry->peers->options->self.address,
                 strerror(error));
        break;
    case EMFILE:
    case ENFILE:
        fail_set(fail, COVEY_IO, "cannot be dialed: %s; raise the limit of open files (nofile)",
                 strerror(error));
        break;
    default:
        fail_set(fail, COVEY_UNREACHABLE, "cannot be reached: %s", strerror(error));
    }
}

/* Before there is a connection. */
static void dial_failed(struct entry *entry, int error)
{
    struct fail fail;

    dial_fail(entry, error, &fail);
    entry_problem(entry, fail.code, "%s", fail.text);
    dial_again(entry);
}

static void dial(struct entry *entry, bool knock)
{
    struct peers *peers = entry->peers;
    const struct peer *peer = &entry->peer;
    struct conn *conn;
    int fd, result = tcp_connect(&peers->options->self.sockaddr, &peer->sockaddr, peer->sockaddr_bytes, &fd);

    if (result != 0) {
        dial_failed(entry, -result);
        return;
    }
    conn = conn_new(peers, fd, HANDSHAKE_DIALER, CONN_CONNECTING);
    if (conn == NULL) {
        dial_failed(entry, ENOMEM);
        return;
    }
    conn->entry = entry;
    conn->knock = knock;
    conn->remote = peer->sockaddr;
    if (knock)
        entry->knock = conn;
    else
        entry->current = conn;
    conn_set_state(conn, CONN_CONNECTING, peers->timing.connect);
}

static void dial_retry(uv_timer_t *timer)
{
    struct entry *entry = timer->data;

    if (entry->current == NULL && entry->successor == NULL && entry->knock == NULL)
        dial(entry, !entry_is_ours(entry));
}

void dial_schedule(struct entry *entry, uint64_t delay_ms)
{
    uv_timer_start(&entry->retry, dial_retry, delay_ms, 0);
}

/* Half of the back-off is fixed, half is drawn: nodes that were started together do not stay together. */
static uint64_t next_backoff_ms(struct entry *entry)
{
    const struct peers_timing *timing = &entry->peers->timing;
    uint32_t backoff = entry->backoff_ms;

    if (backoff < timing->backoff_min)
        backoff = timing->backoff_min;
    entry->backoff_ms = 2 * backoff < timing->backoff_max ? 2 * backoff : timing->backoff_max;
    return backoff / 2 + rng_below(&entry->peers->rng, backoff / 2 + 1);
}

void dial_again(struct entry *entry)
{
    struct peers *peers = entry->peers;

    if (peers->closing || !entry->wanted || entry->current != NULL || entry->successor != NULL)
        return;
    if (entry_is_ours(entry))
        dial_schedule(entry, next_backoff_ms(entry));
    else if (entry->peer.options != NULL)
        dial_schedule(entry, peers->timing.knock + rng_below(&peers->rng, peers->timing.knock / 2 + 1));
}

/* The peer ought to dial this node; whether anyone is there at all tells the operator where to look. What the
 * peer said itself is better known than that somebody answers. */
static void knock_answered(struct entry *entry)
{
    int code = entry->peer.problem_code;

    if (code == COVEY_OK || code == COVEY_UNREACHABLE || code == COVEY_PEER_LOST)
        entry_problem(entry, COVEY_UNREACHABLE,
                      "answers, but has not connected to this node: its log says why");
}

void dial_connected(struct conn *conn)
{
    struct entry *entry = conn->entry;
    int result = tcp_connected(conn->fd);
    struct fail fail;

    if (result != 0) {
        dial_fail(entry, -result, &fail);
        conn_give_up(conn, fail.code, fail.text);
    } else if (conn->knock) {
        knock_answered(entry);
        conn_close(conn, COVEY_CLOSED, "was only knocked at");
    } else {
        conn_begin_handshake(conn, entry->peer.id);
    }
}

void dial_timed_out(struct conn *conn)
{
    struct fail fail;

    dial_fail(conn->entry, ETIMEDOUT, &fail);
    conn_give_up(conn, fail.code, fail.text);
}
