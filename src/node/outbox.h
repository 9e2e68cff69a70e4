/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NODE_OUTBOX_H
#define NODE_OUTBOX_H

/* What goes to a peer on the control lane, in order: messages, and pushes of rows. What the fabric does
 * not take at once waits here. All of it ends with the link. */

#include "node/node.h"

struct outgoing;

/* What this node keeps of a peer while it is up (peer->user). */
struct peer_link {
    struct outgoing *first, **end; /* to be posted */
    struct outgoing *posted;       /* pushes on their way: their memory is the fabric's until WRITE_DONE */
    uint32_t slot;                 /* of this node's table that is the peer's to write */
    bool linked;                   /* the peer's TABLE came: */
    struct message_table table;
};

/* At peer up; false without memory. */
bool outbox_open(struct peer *peer);
/* At peer down. */
void outbox_close(struct peer *peer);

/* Send behind what waits already; a peer that is not up loses it. */
void node_send(struct covey_node *node, struct peer *peer, const struct message *message);

/* Write bytes (copied) to the peer's memory, with an immediate or FABRIC_IMMEDIATE_NONE. */
void outbox_push(struct covey_node *node, struct peer *peer, const void *data, size_t bytes,
                 uint64_t remote_address, uint64_t remote_key, uint64_t immediate);

/* The same from memory that lasts until the write is done, behind what waits already. */
void outbox_write(struct covey_node *node, struct peer *peer, const struct fabric_piece *piece,
                  uint64_t remote_address, uint64_t remote_key, uint64_t immediate);
/* Whether anything waits to be posted. */
bool outbox_waits(const struct peer *peer);

/* Whatever the fabric takes now. */
void outbox_flush(struct peer *peer);
/* A WRITE_DONE of the control lane. */
void outbox_written(struct peer *peer, uint64_t cookie);

#endif
