/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NODE_PEERS_H
#define NODE_PEERS_H

/* The other nodes: find them, prove who is who, join them by fabric links, notice when they go.
 *
 * Every node listens on its one configured TCP address. Of two nodes one dials: the elastic one (not in the
 * list), else the one with the higher id; of two elastic ones whoever learns of the other, and if both do,
 * the connection of the higher id counts. On the connection both prove knowledge of the cluster's secret
 * before anything else is parsed, and compare protocol version, cluster, configuration and ids
 * (src/wire/handshake.h); in the sealed part each gives its incarnation and its fabric address. The dialer
 * then makes both fabric links, with tokens that follow from the handshake. A peer is up when both lanes are;
 * the TCP connection stays open, idle, and its end (a killed process closes it at once) takes the peer down.
 * When anything of a peer breaks, everything of it is closed; `down` is called after the last event of both
 * lanes. Then the dialer tries again, with a back-off from 50 ms to 2 s with jitter.
 *
 * A peer that presents a new incarnation while the old one is up replaces it: first `down`, then `up`. A
 * second process with the id of this node, or of a peer that is up and answers, is refused and named; whether
 * the peer answers is asked on its TCP connection.
 *
 * Whether a node that should dial this one is there at all is looked at every few seconds, by a connection
 * that says nothing, so that the log of every node says why another is missing.
 *
 * Everything runs on the thread of the uv loop. Nothing blocks. */

#include <uv.h>

#include "config/options.h"
#include "fabric/fabric.h"

struct peers;

struct peer {
    uint32_t id;
    const struct node_options *options; /* of the list; NULL for an elastic node */
    char name[COVEY_NAME_MAX + 1];
    char address[COVEY_NAME_MAX + 1];
    struct sockaddr_storage sockaddr; /* where it listens */
    socklen_t sockaddr_bytes;
    uint64_t incarnation; /* 0 until it was up once */
    bool up;
    struct fabric_link *links[FABRIC_LANES]; /* valid while up */
    char problem[FAIL_TEXT_MAX];             /* why it is not up, a sentence with its name; "" while up */
    int problem_code;                        /* of error.h */
    uint64_t since_ns; /* CLOCK_REALTIME of the last up or down; 0: neither yet. The owner's */
    void *user;        /* the owner's */
};

struct peers_callbacks {
    void (*up)(void *context, struct peer *peer);
    /* Both links are down: none of their writes touches memory here any more. The links are freed on return.
     * text is the peer's problem: a sentence with its name. Also called for every peer that is up when peers
     * is closed. */
    void (*down)(void *context, struct peer *peer, int error, const char *text);
    /* A FABRIC_ARRIVED, FABRIC_MESSAGE or FABRIC_WRITE_DONE of a link of a peer that is up. */
    void (*event)(void *context, struct peer *peer, enum fabric_lane lane, const struct fabric_event *event);
};

/* Listen and begin to look for every other node of the list. options, fabric, log, callbacks outlive peers.
 * incarnation is this node's, not 0. COVEY_BUSY if the address is in use (the text says by which process,
 * where that can be known). The log gets one line for each change of a peer's problem, not one a try. */
int peers_open(uv_loop_t *loop, const struct covey_options *options, uint64_t incarnation,
               struct fabric *fabric, const struct log *log, const struct peers_callbacks *callbacks,
               void *context, struct peers **peers, struct fail *fail);

/* An elastic node listens there, as another member says: dial it, if this node is elastic too (it dials the
 * listed ones by itself). Nothing new about a peer that is known there. COVEY_BUSY if no more nodes fit. */
int peers_learn(struct peers *peers, uint32_t id, const struct sockaddr_storage *address, socklen_t bytes,
                struct fail *fail);

/* An elastic node is a member no more: do not dial it until it is learned again. */
void peers_forget(struct peers *peers, struct peer *peer);

/* Feed the fabric's events: call for each event of fabric_poll(). Calls back up, down, event. Poll and arm
 * the fabric in every turn of the loop before it sleeps: links are closed by timers and sockets too. */
void peers_fabric_event(struct peers *peers, const struct fabric_event *event);

/* Close everything of a peer, e.g. because it broke the protocol; down follows, later. */
void peers_disconnect(struct peers *peers, struct peer *peer, int error, const char *text);

/* Every known peer (this node is none), ascending ids. An entry lives as long as peers; an elastic node that
 * comes for the first time adds one, so that the count grows and indexes change: keep what belongs to a peer
 * in its `user`. */
size_t peers_count(const struct peers *peers);
struct peer *peers_at(const struct peers *peers, size_t index);
struct peer *peers_find(const struct peers *peers, uint32_t id); /* NULL if unknown */

/* Stop listening, close all links; `closed` is called when the last has ended and every uv handle is closed:
 * peers is freed by then. The caller goes on polling the fabric and running the loop meanwhile. */
void peers_close(struct peers *peers, void (*closed)(void *context));

#endif
