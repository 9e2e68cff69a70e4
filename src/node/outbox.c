/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages to a peer, in order; what the fabric does not take at once waits here. */

#include <stdlib.h>
#include <string.h>

#include "node/node.h"

struct outgoing {
    struct outgoing *next;
    size_t bytes;
    uint8_t data[];
};

struct outbox {
    struct outgoing *first, **end;
};

static struct outbox *outbox_of(struct peer *peer)
{
    struct outbox *box = peer->user;

    if (box != NULL)
        return box;
    box = calloc(1, sizeof(*box));
    if (box != NULL)
        box->end = &box->first;
    peer->user = box;
    return box;
}

static bool outbox_append(struct peer *peer, const uint8_t *data, size_t bytes)
{
    struct outbox *box = outbox_of(peer);
    struct outgoing *outgoing = box != NULL ? malloc(sizeof(*outgoing) + bytes) : NULL;

    if (outgoing == NULL)
        return false;
    outgoing->next = NULL;
    outgoing->bytes = bytes;
    memcpy(outgoing->data, data, bytes);
    *box->end = outgoing;
    box->end = &outgoing->next;
    return true;
}

void node_send(struct covey_node *node, struct peer *peer, const struct message *message)
{
    uint8_t data[MESSAGE_MAX];
    struct outbox *box = peer->user;
    size_t bytes;

    if (!peer->up)
        return;
    bytes = message_encode(message, data);
    node->counters.messages_sent++;
    /* Any other error than AGAIN means that the link is going down: its event follows, and drops the outbox.
     */
    if ((box == NULL || box->first == NULL) &&
        fabric_send(peer->links[FABRIC_CONTROL], data, bytes) != COVEY_AGAIN)
        return;
    if (!outbox_append(peer, data, bytes))
        peers_disconnect(node->peers, peer, COVEY_NO_MEMORY, "no memory for messages to it");
}

void outbox_flush(struct peer *peer)
{
    struct outbox *box = peer->user;

    if (box == NULL || !peer->up)
        return;
    while (box->first != NULL) {
        struct outgoing *outgoing = box->first;

        if (fabric_send(peer->links[FABRIC_CONTROL], outgoing->data, outgoing->bytes) == COVEY_AGAIN)
            return;
        box->first = outgoing->next;
        if (box->first == NULL)
            box->end = &box->first;
        free(outgoing);
    }
}

void outbox_drop(struct peer *peer)
{
    struct outbox *box = peer->user;

    if (box == NULL)
        return;
    while (box->first != NULL) {
        struct outgoing *outgoing = box->first;

        box->first = outgoing->next;
        free(outgoing);
    }
    free(box);
    peer->user = NULL;
}

void node_send_group(struct covey_group *group, const struct message *message)
{
    struct covey_node *node = group->node;
    uint32_t ids[COVEY_MEMBERS_MAX];
    uint32_t count = group_members(group, ids);

    for (uint32_t i = 0; i < count; i++) {
        struct peer *peer = peers_find(node->peers, ids[i]);

        if (peer != NULL)
            node_send(node, peer, message);
    }
}
