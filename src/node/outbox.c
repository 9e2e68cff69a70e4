/* SPDX-License-Identifier: BSD-3-Clause */
#include "node/outbox.h"

#include <stdlib.h>
#include <string.h>

struct outgoing {
    struct outgoing *next, *previous; /* previous: while posted */
    struct fabric_region *region;     /* of data, where the fabric needs one to read it */
    bool push;
    struct fabric_piece lasting; /* what to push in place of data, if it has bytes */
    uint64_t remote_address, remote_key, immediate;
    size_t bytes;
    uint8_t data[];
};

bool outbox_open(struct peer *peer)
{
    struct peer_link *link = calloc(1, sizeof(*link));

    if (link == NULL)
        return false;
    link->end = &link->first;
    link->slot = UINT32_MAX;
    peer->user = link;
    return true;
}

static void outgoing_free(struct outgoing *outgoing)
{
    if (outgoing->region != NULL)
        fabric_deregister(outgoing->region);
    free(outgoing);
}

static void free_list(struct outgoing *outgoing)
{
    while (outgoing != NULL) {
        struct outgoing *next = outgoing->next;

        outgoing_free(outgoing);
        outgoing = next;
    }
}

void outbox_close(struct peer *peer)
{
    struct peer_link *link = peer->user;

    if (link == NULL)
        return;
    free_list(link->first);
    free_list(link->posted);
    free(link);
    peer->user = NULL;
}

static struct outgoing *outgoing_new(const void *data, size_t bytes)
{
    struct outgoing *outgoing = calloc(1, sizeof(*outgoing) + bytes);

    if (outgoing == NULL)
        return NULL;
    outgoing->bytes = bytes;
    if (bytes > 0)
        memcpy(outgoing->data, data, bytes);
    return outgoing;
}

static void append(struct peer_link *link, struct outgoing *outgoing)
{
    *link->end = outgoing;
    link->end = &outgoing->next;
}

static void no_memory(struct covey_node *node, struct peer *peer)
{
    peers_disconnect(node->peers, peer, COVEY_NO_MEMORY, "no memory for what goes to it");
}

void node_send(struct covey_node *node, struct peer *peer, const struct message *message)
{
    uint8_t data[MESSAGE_MAX];
    struct peer_link *link = peer->user;
    struct outgoing *outgoing;
    size_t bytes;

    if (!peer->up || link == NULL)
        return;
    bytes = message_encode(message, data);
    node->counters.messages_sent++;
    /* Any other error than AGAIN means that the link is going down: its event follows, and closes the outbox.
     */
    if (link->first == NULL && fabric_send(peer->links[FABRIC_CONTROL], data, bytes) != COVEY_AGAIN)
        return;
    outgoing = outgoing_new(data, bytes);
    if (outgoing == NULL)
        no_memory(node, peer);
    else
        append(link, outgoing);
}

static bool is_lasting(const struct outgoing *outgoing)
{
    return outgoing->lasting.bytes > 0;
}

static int post_push(struct peer *peer, const struct outgoing *outgoing)
{
    struct fabric_piece piece = {outgoing->data, outgoing->bytes, outgoing->region};
    struct fabric_write write = {.pieces = is_lasting(outgoing) ? &outgoing->lasting : &piece,
                                 .count = 1,
                                 .remote_address = outgoing->remote_address,
                                 .remote_key = outgoing->remote_key,
                                 .immediate = outgoing->immediate,
                                 .signalled = !is_lasting(outgoing),
                                 .cookie = (uint64_t)(uintptr_t)outgoing};

    return fabric_write(peer->links[FABRIC_CONTROL], &write);
}

void outbox_push(struct covey_node *node, struct peer *peer, const void *data, size_t bytes,
                 uint64_t remote_address, uint64_t remote_key, uint64_t immediate)
{
    struct peer_link *link = peer->user;
    struct outgoing *outgoing = outgoing_new(data, bytes);
    struct fail fail = {0};

    if (outgoing == NULL || (fabric_needs_local(node->fabric) &&
                             fabric_register(node->fabric, outgoing->data, bytes, COVEY_MEMORY_HOST, 0, false,
                                             &outgoing->region, &fail) != 0)) {
        free(outgoing);
        no_memory(node, peer);
        return;
    }
    outgoing->push = true;
    outgoing->remote_address = remote_address;
    outgoing->remote_key = remote_key;
    outgoing->immediate = immediate;
    append(link, outgoing);
    outbox_flush(peer);
}

void outbox_write(struct covey_node *node, struct peer *peer, const struct fabric_piece *piece,
                  uint64_t remote_address, uint64_t remote_key, uint64_t immediate)
{
    struct fabric_write write = {.pieces = piece,
                                 .count = 1,
                                 .remote_address = remote_address,
                                 .remote_key = remote_key,
                                 .immediate = immediate};
    struct outgoing *outgoing;

    if (!outbox_waits(peer) && fabric_write(peer->links[FABRIC_CONTROL], &write) != COVEY_AGAIN)
        return;
    outgoing = outgoing_new(NULL, 0);
    if (outgoing == NULL) {
        no_memory(node, peer);
        return;
    }
    outgoing->push = true;
    outgoing->lasting = *piece;
    outgoing->remote_address = remote_address;
    outgoing->remote_key = remote_key;
    outgoing->immediate = immediate;
    append(peer->user, outgoing);
}

bool outbox_waits(const struct peer *peer)
{
    const struct peer_link *link = peer->user;

    return link->first != NULL;
}

static void keep_posted(struct peer_link *link, struct outgoing *outgoing)
{
    outgoing->previous = NULL;
    outgoing->next = link->posted;
    if (link->posted != NULL)
        link->posted->previous = outgoing;
    link->posted = outgoing;
}

void outbox_flush(struct peer *peer)
{
    struct peer_link *link = peer->user;

    while (peer->up && link != NULL && link->first != NULL) {
        struct outgoing *outgoing = link->first;
        int rc = outgoing->push ? post_push(peer, outgoing)
                                : fabric_send(peer->links[FABRIC_CONTROL], outgoing->data, outgoing->bytes);

        if (rc == COVEY_AGAIN)
            return;
        link->first = outgoing->next;
        if (link->first == NULL)
            link->end = &link->first;
        if (outgoing->push && rc == 0 && !is_lasting(outgoing))
            keep_posted(link, outgoing);
        else
            outgoing_free(outgoing);
    }
}

void outbox_written(struct peer *peer, uint64_t cookie)
{
    struct outgoing *outgoing = (struct outgoing *)(uintptr_t)cookie;
    struct peer_link *link = peer->user;

    if (outgoing->previous != NULL)
        outgoing->previous->next = outgoing->next;
    else
        link->posted = outgoing->next;
    if (outgoing->next != NULL)
        outgoing->next->previous = outgoing->previous;
    outgoing_free(outgoing);
}
