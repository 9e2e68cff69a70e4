/* SPDX-License-Identifier: BSD-3-Clause */
#include "fabric/verbs.h"

#include <arpa/inet.h>
#include <string.h>

static int no_room(struct verbs_link *link)
{
    link->starved = true;
    return COVEY_AGAIN;
}

static uint32_t outstanding(const struct verbs_link *link)
{
    return link->posted - link->done;
}

/* Whether the next operation must complete visibly, so that the ones before it are seen to be done. */
static bool completion_due(const struct verbs_link *link)
{
    return link->posted - link->reported >= VERBS_OUTSTANDING / 2 ||
           link->ring_used >= VERBS_SEND_RING_BYTES / 2;
}

/* Fill in what is the same for all and post. Returns ibv_post_send()'s error. */
static int post(struct verbs_link *link, struct ibv_send_wr *request, const struct verbs_op *op)
{
    struct ibv_send_wr *bad;
    int error;

    request->wr_id = verbs_id(link, link->posted & ~VERBS_ID_RECEIVE);
    if (op->signalled || completion_due(link))
        request->send_flags |= IBV_SEND_SIGNALED;
    error = ibv_post_send(link->id->qp, request, &bad);
    if (error != 0)
        return error;
    link->ops[link->posted++ % VERBS_OPS] = *op;
    if (request->send_flags & IBV_SEND_SIGNALED)
        link->reported = link->posted;
    return 0;
}

static int post_of_user(struct verbs_link *link, struct ibv_send_wr *request, const struct verbs_op *op)
{
    int error = post(link, request, op);

    if (error == 0)
        return 0;
    verbs_link_end(link, COVEY_PEER_LOST, strerror(error), true);
    return COVEY_PEER_LOST;
}

/* --- Writes --------------------------------------------------------------------------------------------- */

/* The pieces that are not empty. Returns how many, or COVEY_INVALID if one lacks its region. */
static int gather(const struct fabric_write *write, struct ibv_sge *list)
{
    int count = 0;

    for (size_t i = 0; i < write->count; i++) {
        const struct fabric_piece *piece = &write->pieces[i];

        if (piece->bytes == 0)
            continue;
        if (piece->region == NULL)
            return COVEY_INVALID;
        list[count++] = (struct ibv_sge){.addr = (uintptr_t)piece->base,
                                         .length = (uint32_t)piece->bytes,
                                         .lkey = ((const struct verbs_region *)piece->region)->mr->lkey};
    }
    return count;
}

int verbs_write(struct fabric_link *base, const struct fabric_write *write, uint64_t bytes)
{
    struct verbs_link *link = verbs_link_of(base);
    const struct verbs_op op = {.cookie = write->cookie, .signalled = write->signalled};
    bool tells = write->immediate != FABRIC_IMMEDIATE_NONE;
    struct ibv_sge list[FABRIC_PIECES_MAX];
    struct ibv_send_wr request = {.sg_list = list,
                                  .opcode = tells ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE};
    int error;

    if (write->remote_key > UINT32_MAX)
        return COVEY_INVALID;
    if (outstanding(link) >= VERBS_OUTSTANDING || (tells && link->credit == 0))
        return no_room(link);
    request.num_sge = gather(write, list);
    if (request.num_sge < 0)
        return request.num_sge;
    request.imm_data = htonl((uint32_t)write->immediate);
    request.wr.rdma.remote_addr = write->remote_address;
    request.wr.rdma.rkey = (uint32_t)write->remote_key;
    if (bytes <= link->verbs->inline_bytes)
        request.send_flags = IBV_SEND_INLINE;
    error = post_of_user(link, &request, &op);
    if (error == 0 && tells)
        link->credit--;
    return error;
}

/* --- Messages ------------------------------------------------------------------------------------------- */

/* Where in the send ring the next `bytes` go, which are then *used bytes of it; false if there is no room. */
static bool ring_place(const struct verbs_link *link, size_t bytes, size_t *offset, size_t *used)
{
    size_t room_to_end = VERBS_SEND_RING_BYTES - link->ring_head;

    *used = (bytes + 7) & ~(size_t)7;
    *offset = link->ring_head;
    if (*used > room_to_end) {
        *used += room_to_end;
        *offset = 0;
    }
    return link->ring_used + *used <= VERBS_SEND_RING_BYTES;
}

/* A message of a kind, which also gives what is owed. */
static struct ibv_send_wr message(const struct verbs_link *link, enum verbs_kind kind)
{
    return (struct ibv_send_wr){.opcode = IBV_WR_SEND_WITH_IMM,
                                .imm_data = htonl((uint32_t)kind << 24 | link->owed)};
}

static int send_inline(struct verbs_link *link, struct ibv_send_wr *request, const void *data, size_t bytes)
{
    struct ibv_sge piece = {.addr = (uintptr_t)data, .length = (uint32_t)bytes};
    const struct verbs_op op = {.signalled = false};

    request->sg_list = &piece;
    request->num_sge = 1;
    request->send_flags = IBV_SEND_INLINE;
    return post_of_user(link, request, &op);
}

static int send_copied(struct verbs_link *link, struct ibv_send_wr *request, const void *data, size_t bytes)
{
    struct ibv_sge piece = {.length = (uint32_t)bytes, .lkey = link->buffers_mr->lkey};
    struct verbs_op op = {.signalled = false};
    size_t offset, used;
    int error;

    if (!ring_place(link, bytes, &offset, &used))
        return no_room(link);
    piece.addr = (uintptr_t)memcpy(link->buffers + VERBS_RECEIVES * FABRIC_MESSAGE_MAX + offset, data, bytes);
    op.ring_bytes = (uint32_t)used;
    request->sg_list = &piece;
    request->num_sge = 1;
    error = post_of_user(link, request, &op);
    if (error == 0) {
        link->ring_used += used;
        link->ring_head = (offset + ((bytes + 7) & ~(size_t)7)) % VERBS_SEND_RING_BYTES;
    }
    return error;
}

int verbs_send(struct fabric_link *base, const void *data, size_t bytes)
{
    struct verbs_link *link = verbs_link_of(base);
    struct ibv_send_wr request = message(link, VERBS_MESSAGE);
    int error;

    if (outstanding(link) >= VERBS_OUTSTANDING || link->credit == 0)
        return no_room(link);
    error = bytes <= link->verbs->inline_bytes ? send_inline(link, &request, data, bytes)
                                               : send_copied(link, &request, data, bytes);
    if (error == 0) {
        link->credit--;
        link->owed = 0;
    }
    return error;
}

/* --- The link's own ------------------------------------------------------------------------------------- */

/* Without room it waits for a completion, which is due: see completion_due(). */
void verbs_give_credit(struct verbs_link *link)
{
    struct ibv_send_wr request = message(link, VERBS_CREDITS);
    const struct verbs_op op = {.signalled = false};

    if (link->base.state != FABRIC_LINK_READY || link->owed < VERBS_CREDIT / 2 ||
        outstanding(link) >= VERBS_OUTSTANDING + VERBS_OWN_SENDS)
        return;
    if (post_of_user(link, &request, &op) == 0)
        link->owed = 0;
}

int verbs_bye(struct verbs_link *link)
{
    struct ibv_send_wr request = message(link, VERBS_BYE);
    const struct verbs_op op = {.signalled = false};

    request.send_flags = IBV_SEND_SIGNALED;
    return post(link, &request, &op);
}

bool verbs_complete(struct verbs_link *link, uint32_t sequence, struct verbs_op *op)
{
    uint32_t count = ((sequence - link->done) & ~VERBS_ID_RECEIVE) + 1;

    if (count > outstanding(link))
        return false;
    for (uint32_t i = 0; i < count; i++)
        link->ring_used -= link->ops[link->done++ % VERBS_OPS].ring_bytes;
    *op = link->ops[(link->done - 1) % VERBS_OPS];
    link->verbs->room |= link->starved;
    link->starved = false;
    return true;
}
