/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NODE_MEMBERS_H
#define NODE_MEMBERS_H

/* The membership (core/membership.h) on real links.
 *
 * Each node's table of peers' rows is registered memory. When a peer is up both sides tell each other, in a
 * TABLE message, which slot is the other's to write; with the peer's TABLE in hand the link is up for the
 * core. A push is a one-sided write on the control lane, the last of a step with the slot's number as
 * immediate.
 *
 * An evicted node starts anew: all links are closed, and it comes back as another incarnation that joins.
 * What it had delivered stays readable meanwhile. */

#include "core/membership.h"
#include "node/node.h"

struct members;

/* Members that a view can have. */
uint32_t members_max(const struct covey_options *options);

/* Open the peers and begin to look for the others. */
int members_open(struct covey_node *node, struct fail *fail);
/* The peers are closed. NULL is allowed. */
void members_free(struct members *members);

void members_peer_up(struct covey_node *node, struct peer *peer);
void members_peer_down(struct covey_node *node, struct peer *peer);
/* TABLE. 0 or COVEY_PROTOCOL. */
int members_message(struct covey_node *node, struct peer *peer, const struct message *message);
/* A push has announced itself. 0 or COVEY_PROTOCOL. */
int members_arrived(struct covey_node *node, struct peer *peer, uint32_t immediate);

/* What time makes due; each turn. */
void members_turn(struct covey_node *node);
uint64_t members_deadline_ns(const struct covey_node *node);

/* The operator's wishes. 0 or an error with its sentence. */
int members_evict(struct covey_node *node, uint32_t id, struct fail *fail);
int members_force(struct covey_node *node, struct fail *fail);
/* Leave politely; members_has_left() when it is done, or there is nobody to ask. */
void members_leave(struct covey_node *node);
bool members_has_left(const struct covey_node *node);

/* Everything of the group up to position is here: what the next trim rests on. */
void members_received(struct covey_group *group, uint64_t position);
bool members_wedged(const struct covey_node *node);
/* Whether this node suspects the member of that rank. */
bool members_suspects(const struct covey_node *node, uint32_t rank);
const struct membership *members_membership(const struct covey_node *node);
/* The shared-state table as the application sees it (members_table.c). COVEY_NO_MEMORY. */
int members_table(const struct covey_node *node, struct covey_table *table);

#endif
