/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NODE_ORDERING_H
#define NODE_ORDERING_H

/* The order of a group (core/order.h) on real links.
 *
 * For every peer of the group that is up there is memory for its row here; the peer learns where it is in a
 * TABLE message of the group, and then writes it on the control lane, the last write of a push with an
 * immediate that names the group. The memory is the link's: it outlives views, and the link, for as long as
 * entries in it may be delivered.
 *
 * What this node sends waits in `waiting` until its ring has room, and then in `sent`, without its bytes,
 * until it is delivered here. The order sends it again in the next view if need be, so each is in one of the
 * two lists until it has its place.
 *
 * Whatever happens between two turns is done in one: what has arrived is looked at, what waits is sent, and
 * each peer gets one push of all of it. A peer whose outbox is full gets it later. */

#include "core/order.h"
#include "node/node.h"

/* What this node sends. */
struct sending {
    struct request request; /* covey_send() */
    struct sending *next;
    struct covey_group *group;
    struct covey_op *op; /* ends when it is delivered here; NULL: nobody waits */
    uint8_t kind;        /* enum order_kind */
    uint32_t bytes;
    uint8_t data[];
};

/* Without memory, NULL. */
struct sending *sending_new(struct covey_group *group, enum order_kind kind, const void *data,
                            uint32_t bytes);
/* What it takes while it waits for room in the ring. */
uint64_t sending_cost(uint64_t bytes);
/* Over: its operation ends, with a result. */
void sending_end(struct sending *sending, int code, const char *text);

int ordering_open(struct covey_group *group, struct fail *fail);
void ordering_close(struct covey_group *group);

void ordering_peer_up(struct covey_group *group, struct peer *peer);
void ordering_peer_down(struct covey_group *group, const struct peer *peer);
/* TABLE of the group. 0 or COVEY_PROTOCOL. */
int ordering_table(struct covey_group *group, const struct peer *peer, const struct message_table *table);
/* A push has announced itself. 0 or COVEY_PROTOCOL. */
int ordering_arrived(struct covey_group *group, const struct peer *peer);

/* Send, in the order of the calls. Takes it over. */
void ordering_send(struct covey_group *group, struct sending *sending);
/* An entry of this node's was delivered: the first that was sent. */
struct sending *ordering_delivered(struct covey_group *group);

/* What is due; each round. */
void ordering_turn(struct covey_group *group);
/* There is room for more of what is stable. */
void ordering_resume(struct covey_group *group);

/* A view is installed: hand out everything up to the trim of the one before, then enter it. In two steps, for
 * what the first one hands out is of the view before. */
void ordering_trim(struct covey_group *group, uint64_t trim);
void ordering_enter(struct covey_group *group, uint64_t position);
/* Left out of the view: hand out what is stable, forget the rest, end what was sent with this. */
void ordering_reset(struct covey_group *group, int code, const char *text);

#endif
