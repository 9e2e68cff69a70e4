/* SPDX-License-Identifier: BSD-3-Clause */
/* The two fabric links of a connection: a peer is up when both are, at both ends. */

#include <assert.h>

#include "node/peers_private.h"

_Static_assert(HANDSHAKE_LANES == FABRIC_LANES, "a token for each lane");
_Static_assert(HANDSHAKE_TOKEN_BYTES == FABRIC_TOKEN_BYTES, "a token of the handshake is one of the fabric");
_Static_assert(HANDSHAKE_ADDRESS_MAX == FABRIC_ADDRESS_MAX, "a fabric address fits into the handshake");

static const char *lane_name(enum fabric_lane lane)
{
    return lane == FABRIC_CONTROL ? "control" : "data";
}

int links_expect(struct conn *conn, struct fail *fail)
{
    uint8_t token[FABRIC_TOKEN_BYTES];
    int result = COVEY_OK;

    for (unsigned i = 0; result == COVEY_OK && i < FABRIC_LANES; i++) {
        handshake_token(conn->handshake, i, token);
        result = fabric_link_expect(conn->peers->fabric, (enum fabric_lane)i, token, &conn->lanes[i],
                                    &conn->lanes[i].link, fail);
    }
    return result;
}

void links_connect(struct conn *conn)
{
    const struct handshake_identity *peer = handshake_peer(conn->handshake);
    uint8_t token[FABRIC_TOKEN_BYTES];
    struct fail fail;

    for (unsigned i = 0; i < FABRIC_LANES; i++) {
        handshake_token(conn->handshake, i, token);
        if (fabric_link_connect(conn->peers->fabric, (enum fabric_lane)i, peer->fabric_address,
                                peer->fabric_address_bytes, token, &conn->lanes[i], &conn->lanes[i].link,
                                &fail) != COVEY_OK) {
            conn_close(conn, fail.code, "cannot be reached by the fabric: %s", fail.text);
            return;
        }
    }
}

static bool both_up(const struct conn *conn)
{
    return conn->lanes[FABRIC_CONTROL].up && conn->lanes[FABRIC_DATA].up;
}

static void links_up(struct conn *conn)
{
    struct entry *entry = conn->entry;
    struct peers *peers = conn->peers;
    struct peer *peer = &entry->peer;

    conn_set_state(conn, CONN_UP, 0);
    conn->was_up = true;
    entry->up_since_ns = uv_hrtime();
    peer->incarnation = conn->incarnation;
    peer->up = true;
    peer->problem[0] = '\0';
    peer->problem_code = COVEY_OK;
    for (size_t i = 0; i < FABRIC_LANES; i++)
        peer->links[i] = conn->lanes[i].link;
    log_info(peers->log, "%s (%s) is up", peer->name, peer->address);
    peers->callbacks->up(peers->context, peer);
}

void links_check(struct conn *conn)
{
    if (conn->state != CONN_LINKING || !both_up(conn))
        return;
    if (!conn->linked_sent) {
        conn->linked_sent = true;
        conn_signal(conn, SIGNAL_LINKED);
    }
    if (conn->linked_received)
        links_up(conn);
}

static void links_deliver(struct conn *conn, enum fabric_lane lane, const struct fabric_event *event)
{
    struct peers *peers = conn->peers;

    if (conn->state == CONN_LINKING && conn->linked_sent)
        links_up(conn);
    if (conn->was_up && !conn->muted)
        peers->callbacks->event(peers->context, &conn->entry->peer, lane, event);
    else if (!conn->was_up)
        conn_close(conn, COVEY_PROTOCOL, "broke the protocol: it used a link before it was up");
}

static void links_down(struct lane *lane, const struct fabric_event *event)
{
    struct conn *conn = lane->conn;
    int code = event->error != COVEY_OK ? event->error : COVEY_PEER_LOST;
    const char *text = event->text != NULL ? event->text : "it was closed";

    lane->up = false;
    lane->down = true;
    if (conn->was_up)
        conn_close(conn, code, "has gone: its %s link ended: %s", lane_name(lane->index), text);
    else
        conn_close(conn, code, "was let in, but its %s link did not come up: %s", lane_name(lane->index),
                   text);
    conn_finish(conn);
}

void peers_fabric_event(struct peers *peers, const struct fabric_event *event)
{
    struct lane *lane = event->context;

    assert(lane->conn->peers == peers && lane->link == event->link);
    switch (event->type) {
    case FABRIC_LINK_UP:
        lane->up = true;
        links_check(lane->conn);
        break;
    case FABRIC_LINK_DOWN:
        links_down(lane, event);
        break;
    default:
        links_deliver(lane->conn, lane->index, event);
    }
}
