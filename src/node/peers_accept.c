/* SPDX-License-Identifier: BSD-3-Clause */
/* The listener, who is let in, and two connections of one id. */

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "node/peers_private.h"
#include "node/tcp.h"

#define ACCEPT_BURST 16

/* --- The listener --------------------------------------------------------------------------------------- */

static size_t half_open_count(const struct peers *peers)
{
    size_t count = 0;

    for (const struct conn *conn = peers->conns; conn != NULL; conn = conn->next)
        count += conn_is_half_open(conn);
    return count;
}

static void accept_ready(uv_poll_t *poll, int status, int events);

static void accept_watch(struct peers *peers)
{
    uv_timer_stop(&peers->accept_timer);
    uv_poll_start(&peers->accept_poll, UV_READABLE, accept_ready);
}

static void accept_evict(struct conn *conn)
{
    char host[TCP_HOST_MAX];

    tcp_host_text(&conn->remote, host);
    peers_complain(conn->peers, "%d connections prove nothing: one from %s makes room for others",
                   PEERS_HALF_OPEN_MAX, host);
    conn_close(conn, COVEY_BUSY, "made room for others");
}

/* Whoever keeps connections half open on purpose shall not keep others out: those that had time enough for an
 * honest handshake make room. Newer ones have waited in the kernel's queue. */
static void accept_again(uv_timer_t *timer)
{
    struct peers *peers = timer->data;
    uint64_t grace_ns = peers->timing.half_open_grace * UINT64_C(1000000), now_ns = uv_hrtime();

    if (half_open_count(peers) >= PEERS_HALF_OPEN_MAX) {
        for (struct conn *conn = peers->conns; conn != NULL; conn = conn->next) {
            if (conn_is_half_open(conn) && now_ns - conn->since_ns >= grace_ns)
                accept_evict(conn);
        }
    }
    accept_watch(peers);
}

static void accept_pause(struct peers *peers)
{
    uv_poll_stop(&peers->accept_poll);
    uv_timer_start(&peers->accept_timer, accept_again, peers->timing.half_open_grace, 0);
}

void accept_resume(struct peers *peers)
{
    if (!peers->closing && uv_is_active((uv_handle_t *)&peers->accept_timer) &&
        half_open_count(peers) < PEERS_HALF_OPEN_MAX)
        accept_watch(peers);
}

static void accept_begin(struct peers *peers, int fd, const struct sockaddr_storage *remote)
{
    struct conn *conn = conn_new(peers, fd, HANDSHAKE_ACCEPTOR, CONN_HANDSHAKE);

    if (conn == NULL) {
        peers_complain(peers, "a connection was not accepted: out of memory");
        return;
    }
    conn->remote = *remote;
    conn_begin_handshake(conn, HANDSHAKE_ANYONE);
}

static void accept_failed(struct peers *peers, int error)
{
    peers_complain(peers, "cannot accept connections: %s%s", strerror(error),
                   error == EMFILE || error == ENFILE ? "; raise the limit of open files (nofile)" : "");
    accept_pause(peers);
}

static void accept_ready(uv_poll_t *poll, int status, int events)
{
    struct peers *peers = poll->data;
    struct sockaddr_storage remote;
    int fd, result;

    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPT_BURST; i++) {
        if (half_open_count(peers) >= PEERS_HALF_OPEN_MAX) {
            accept_pause(peers);
            return;
        }
        result = tcp_accept(peers->listener, &remote, &fd);
        if (result == -EAGAIN)
            return;
        if (result != 0) {
            accept_failed(peers, -result);
            return;
        }
        accept_begin(peers, fd, &remote);
    }
}

static void accept_handle_closed(uv_handle_t *handle)
{
    peers_handle_closed(handle->data);
}

int accept_open(struct peers *peers)
{
    int result = uv_poll_init(peers->loop, &peers->accept_poll, peers->listener);

    if (result != 0)
        return result;
    uv_timer_init(peers->loop, &peers->accept_timer);
    peers->accept_poll.data = peers->accept_timer.data = peers;
    peers_handle_opened(peers);
    peers_handle_opened(peers);
    accept_watch(peers);
    return 0;
}

void accept_close(struct peers *peers)
{
    uv_close((uv_handle_t *)&peers->accept_poll, accept_handle_closed);
    uv_close((uv_handle_t *)&peers->accept_timer, accept_handle_closed);
    close(peers->listener);
}

/* --- What the operator hears ---------------------------------------------------------------------------- */

/* Put before the sentence what to call the other end, by what it has proved or claims. */
static void name_it(const struct conn *conn, struct fail *fail)
{
    const struct entry *entry;
    char host[TCP_HOST_MAX];
    uint16_t id;

    tcp_host_text(&conn->remote, host);
    if (handshake_proven(conn->handshake)) {
        const struct handshake_identity *peer = handshake_peer(conn->handshake);
        fail_prefix(fail, "%s (%s) ", peer->name, peer->address);
        return;
    }
    if (!handshake_claimed_id(conn->handshake, &id)) {
        fail_prefix(fail, "%s ", host);
        return;
    }
    entry = entry_find(conn->peers, id);
    if (entry != NULL)
        fail_prefix(fail, "%s, which says that it is %s (%s), ", host, entry->peer.name, entry->peer.address);
    else
        fail_prefix(fail, "%s, which says that it is node %u, ", host, id);
}

/* The peer that is meant: proved, or claimed from the host that it is configured at. */
static struct entry *meant(const struct conn *conn)
{
    struct entry *entry;
    uint16_t id;

    if (!handshake_claimed_id(conn->handshake, &id))
        return NULL;
    entry = entry_find(conn->peers, id);
    if (entry == NULL || handshake_proven(conn->handshake))
        return entry;
    if (entry->peer.options == NULL || !tcp_same_host(&entry->peer.sockaddr, &conn->remote))
        return NULL;
    return entry;
}

void accept_report(struct conn *conn, int code, const char *text)
{
    struct entry *entry = meant(conn);
    struct fail fail;

    if (entry != NULL && entry->current == NULL) {
        entry_problem(entry, code, "%s", text);
        return;
    }
    fail_set(&fail, code, "%s", text);
    name_it(conn, &fail);
    if (conn->heard)
        peers_complain(conn->peers, "%s", fail.text);
    else
        log_debug(conn->peers->log, "%s", fail.text);
}

/* --- Who is let in -------------------------------------------------------------------------------------- */

static const struct peer *find_name(const struct peers *peers, const char *name)
{
    for (size_t i = 0; i < peers->count; i++) {
        if (strcmp(peers->entries[i]->peer.name, name) == 0)
            return &peers->entries[i]->peer;
    }
    return NULL;
}

static int admit_elastic(const struct peers *peers, const struct handshake_identity *peer, struct fail *fail)
{
    const struct handshake_identity *self = &peers->local.self;
    const struct node_options *listed = options_node(peers->options, peer->id);
    const struct peer *named = find_name(peers, peer->name);
    struct sockaddr_storage listens;
    socklen_t bytes;

    if (listed != NULL)
        return fail_set(fail, COVEY_PEER_CONFIG,
                        "%s is not in the list of nodes but has id %u, which is %s's there: give it another",
                        peer->name, peer->id, listed->name);
    if ((named != NULL && named->id != peer->id) || strcmp(self->name, peer->name) == 0)
        return fail_set(fail, COVEY_PEER_CONFIG, "node %u is called %s as node %u is: give it another name",
                        peer->id, peer->name, named != NULL ? named->id : self->id);
    if (entry_find(peers, peer->id) == NULL && peers->count + 1 >= COVEY_MEMBERS_MAX)
        return fail_set(fail, COVEY_BUSY, "%s knows %d nodes already, and no more fit into a cluster",
                        self->name, COVEY_MEMBERS_MAX);
    if (!tcp_decode_address(peer->listen, &listens, &bytes))
        return fail_set(fail, COVEY_PROTOCOL, "%s says that it listens at no address", peer->name);
    return COVEY_OK;
}

int accept_admit(void *context, const struct handshake_identity *peer, struct fail *fail)
{
    const struct peers *peers = context;

    if (peer->elastic)
        return admit_elastic(peers, peer, fail);
    if (options_node(peers->options, peer->id) == NULL)
        return fail_set(fail, COVEY_PEER_CONFIG, "node %u (%s) is not in the list of nodes of %s", peer->id,
                        peer->name, peers->local.self.name);
    return COVEY_OK;
}

static void accept_refuse(struct conn *conn, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void accept_refuse(struct conn *conn, int code, const char *format, ...)
{
    char text[FAIL_TEXT_MAX];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    handshake_verdict(conn->handshake, code, text);
    conn_set_state(conn, CONN_HANDSHAKE, conn->peers->timing.handshake);
    conn_leave_entry(conn);
    conn_progress(conn);
}

/* Expect the links first: the peer may make them as soon as it hears that it is taken. */
static void accept_take(struct conn *conn)
{
    struct fail fail;

    conn->entry->current = conn;
    entry_describe(conn->entry, handshake_peer(conn->handshake));
    if (links_expect(conn, &fail) != COVEY_OK) {
        accept_refuse(conn, fail.code, "%s cannot take a link: %s", conn->peers->local.self.name, fail.text);
        return;
    }
    handshake_verdict(conn->handshake, COVEY_OK, "");
    conn_set_state(conn, CONN_HANDSHAKE, conn->peers->timing.handshake);
    conn_progress(conn);
}

/* --- Two connections of one id -------------------------------------------------------------------------- */

void accept_successor(struct conn *conn)
{
    struct entry *entry = conn->entry;

    assert(entry->successor == conn && entry->current == NULL);
    entry->successor = NULL;
    if (conn->peers->closing)
        conn_close(conn, COVEY_CLOSED, "came as this node was leaving");
    else
        accept_take(conn);
}

/* Two elastic nodes may dial each other at the same time: the connection of the higher id counts. */
static bool gives_way(const struct conn *conn)
{
    const struct conn *current = conn->entry->current;
    bool linked = current->state == CONN_LINKING || current->state == CONN_UP;

    return current->role == HANDSHAKE_DIALER && conn->peers->local.self.id > conn->entry->peer.id &&
           (!linked || current->incarnation == conn->incarnation) && current->state != CONN_CLOSING;
}

/* A peer that dials again has given up its older connection. Another incarnation may also be a second process
 * with the same id, while the first is well: the first is asked. A connection that this node dialed meanwhile
 * is refused by the peer, which has the higher id. */
static void accept_park(struct conn *conn)
{
    struct conn *current = conn->entry->current;
    bool linked = current->state == CONN_LINKING || current->state == CONN_UP;

    conn->entry->successor = conn;
    conn->probing = linked && current->incarnation != conn->incarnation;
    conn_set_state(conn, CONN_PARKED,
                   conn->probing ? conn->peers->timing.probe : conn->peers->timing.handshake);
    if (conn->probing)
        conn_signal(current, SIGNAL_PROBE);
    else if (current->state == CONN_CONNECTING)
        conn_close(current, COVEY_AGAIN, "was dialed, and dials itself");
    else if (linked || current->role == HANDSHAKE_ACCEPTOR)
        conn_close(current, COVEY_PEER_LOST, "has gone: it connects anew");
}

void accept_alive(struct conn *predecessor)
{
    struct conn *conn = predecessor->entry->successor;
    const struct handshake_identity *peer;

    if (conn == NULL || !conn->probing)
        return;
    peer = handshake_peer(conn->handshake);
    accept_refuse(
        conn, COVEY_EXISTS,
        "two processes run as node %u: %s at %s came while %s at %s is up; every node needs an id of "
        "its own",
        peer->id, peer->name, peer->address, conn->entry->peer.name, conn->entry->peer.address);
}

void accept_parked_too_long(struct conn *conn)
{
    struct conn *current = conn->entry->current;

    if (!conn->probing) {
        accept_refuse(conn, COVEY_BUSY, "an older connection of it has not ended yet");
        return;
    }
    conn->probing = false;
    conn_set_state(conn, CONN_PARKED, conn->peers->timing.handshake);
    conn_close(current, COVEY_PEER_LOST, "has gone: it does not answer, and another process takes its place");
}

void accept_judge(struct conn *conn)
{
    const struct handshake_identity *peer = handshake_peer(conn->handshake);
    struct peers *peers = conn->peers;
    struct entry *entry = entry_find(peers, peer->id);

    if (!peer->elastic && dial_is_ours(peers, peer->id, false)) {
        accept_refuse(conn, COVEY_PROTOCOL, "%s dialed %s, but %s is the one to dial", peer->name,
                      peers->local.self.name, peers->local.self.name);
        return;
    }
    if (entry == NULL)
        entry = entry_add(peers, peer->id, peer->name, peer->address);
    if (entry == NULL) {
        accept_refuse(conn, COVEY_NO_MEMORY, "%s is out of memory", peers->local.self.name);
        return;
    }
    conn->entry = entry;
    if (entry->successor != NULL)
        accept_refuse(entry->successor, COVEY_AGAIN, "a later connection of node %u took its place",
                      peer->id);
    if (entry->current != NULL && gives_way(conn))
        accept_refuse(conn, COVEY_AGAIN, "%s dials %s itself", peers->local.self.name, peer->name);
    else if (entry->current != NULL)
        accept_park(conn);
    else
        accept_take(conn);
}
