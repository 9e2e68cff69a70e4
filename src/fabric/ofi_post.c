/* SPDX-License-Identifier: BSD-3-Clause */
#include "fabric/ofi.h"

#include <string.h>

static int no_room(struct ofi_link *link)
{
    link->starved = true;
    return COVEY_AGAIN;
}

static bool link_full(const struct ofi_link *link)
{
    return link->posted - link->done >= link->ofi->base.limits.outstanding;
}

/* Whether the next operation must complete visibly, so that the ones before it are seen to be done. */
static bool completion_due(const struct ofi_link *link)
{
    return link->posted - link->reported >= link->ofi->base.limits.outstanding / 2;
}

static void *next_context(const struct ofi_link *link)
{
    return (void *)(uintptr_t)ofi_context(link, link->posted & ~OFI_CONTEXT_RECEIVE);
}

/* On the data lane a completion says that the peer has it. All or none of a link's do, for they shall come in
 * the order of the posts; nothing is injected then. */
static bool acknowledges(const struct ofi_link *link)
{
    return link->base.lane == FABRIC_DATA && link->ofi->completes_early;
}

static uint64_t acknowledged(const struct ofi_link *link, uint64_t flags)
{
    return flags & FI_COMPLETION && acknowledges(link) ? FI_DELIVERY_COMPLETE : 0;
}

/* Account for a post that the provider took with flags, or say what its refusal means. */
static int posted(struct ofi_link *link, ssize_t result, uint64_t flags, const struct ofi_op *op)
{
    if (result == -FI_EAGAIN)
        return no_room(link);
    if (result != 0) {
        ofi_link_fail(link, COVEY_PEER_LOST, fi_strerror((int)-result));
        return COVEY_PEER_LOST;
    }
    link->ops[link->posted % OFI_OUTSTANDING] = *op;
    link->posted++;
    if (flags & FI_COMPLETION)
        link->reported = link->posted;
    return 0;
}

/* A write of nothing is a message of nothing: the peer's link says which it is, whatever the provider does
 * with the address and key of an empty range. Messages and writes keep their order. */
static int write_nothing(struct ofi_link *link, const struct fabric_write *write, uint64_t flags,
                         const struct ofi_op *op)
{
    struct iovec iov = {.iov_base = link->buffers};
    struct fi_msg message = {.msg_iov = &iov, .context = next_context(link), .data = write->immediate};

    if (write->immediate == FABRIC_IMMEDIATE_NONE)
        message.data = 0;
    return posted(link, fi_sendmsg(link->ep, &message, flags), flags, op);
}

/* The pieces that are not empty. Returns how many, or COVEY_INVALID if one lacks its region. */
static int gather(const struct ofi_link *link, const struct fabric_write *write, struct iovec *iov,
                  void **desc)
{
    int count = 0;

    for (size_t i = 0; i < write->count; i++) {
        const struct fabric_piece *piece = &write->pieces[i];

        if (piece->bytes == 0)
            continue;
        if (piece->region == NULL && link->ofi->base.needs_local)
            return COVEY_INVALID;
        iov[count].iov_base = (void *)piece->base;
        iov[count].iov_len = piece->bytes;
        desc[count++] = piece->region == NULL ? NULL : fi_mr_desc(((struct ofi_region *)piece->region)->mr);
    }
    return count;
}

static int write_something(struct ofi_link *link, const struct fabric_write *write, uint64_t bytes,
                           uint64_t flags, const struct ofi_op *op)
{
    struct ofi *ofi = link->ofi;
    struct iovec iov[FABRIC_PIECES_MAX];
    void *desc[FABRIC_PIECES_MAX];
    struct fi_rma_iov remote = {.addr = write->remote_address, .len = bytes, .key = write->remote_key};
    struct fi_msg_rma message = {
        .msg_iov = iov, .desc = desc, .rma_iov = &remote, .rma_iov_count = 1, .context = next_context(link)};
    int count = gather(link, write, iov, desc);

    if (count < 0)
        return count;
    message.iov_count = (size_t)count;
    if (write->immediate != FABRIC_IMMEDIATE_NONE) {
        message.data = write->immediate;
        if (!ofi->takes_receives)
            message.data |= (uint64_t)link->peer_id << 32;
    }
    if (bytes <= ofi->info->tx_attr->inject_size && !acknowledges(link))
        flags |= FI_INJECT;
    return posted(link, fi_writemsg(link->ep, &message, flags), flags, op);
}

/* Where in the send ring the next `bytes` go, which are then *used bytes of it; false if there is no room. */
static bool ring_place(const struct ofi_link *link, size_t bytes, size_t *offset, size_t *used)
{
    size_t room_to_end = OFI_SEND_RING_BYTES - link->ring_head;

    *used = (bytes + 7) & ~(size_t)7;
    *offset = link->ring_head;
    if (*used > room_to_end) {
        *used += room_to_end;
        *offset = 0;
    }
    return link->ring_used + *used <= OFI_SEND_RING_BYTES;
}

static void copy_parts(char *to, const struct iovec *parts, int count)
{
    for (int i = 0; i < count; i++) {
        memcpy(to, parts[i].iov_base, parts[i].iov_len);
        to += parts[i].iov_len;
    }
}

/* A message of these parts that is its own until it has left: a copy in the send ring. */
static int send_copied(struct ofi_link *link, const struct iovec *parts, int count, struct fi_msg *message,
                       uint64_t flags, struct ofi_op *op)
{
    size_t bytes = message->msg_iov->iov_len, offset, used;
    struct iovec iov = {.iov_len = bytes};
    void *desc = ofi_link_desc(link);
    int error;

    if (!ring_place(link, bytes, &offset, &used))
        return no_room(link);
    iov.iov_base = link->buffers + ofi_receive_bytes(link->ofi) + offset;
    copy_parts(iov.iov_base, parts, count);
    message->msg_iov = &iov;
    message->desc = &desc;
    op->ring_bytes = (uint32_t)used;
    flags |= FI_COMPLETION;
    error = posted(link, fi_sendmsg(link->ep, message, flags | acknowledged(link, flags)), flags, op);
    if (error == 0) {
        link->ring_used += used;
        link->ring_head = (offset + ((bytes + 7) & ~(size_t)7)) % OFI_SEND_RING_BYTES;
    }
    return error;
}

static int send_injected(struct ofi_link *link, const struct iovec *parts, int count, struct fi_msg *message,
                         uint64_t flags, const struct ofi_op *op)
{
    char bytes[OFI_INJECT_MAX];
    struct iovec iov = {.iov_base = bytes, .iov_len = message->msg_iov->iov_len};

    copy_parts(bytes, parts, count);
    message->msg_iov = &iov;
    flags |= FI_INJECT | (completion_due(link) ? FI_COMPLETION : 0);
    return posted(link, fi_sendmsg(link->ep, message, flags), flags, op);
}

/* flags and data: of fi_sendmsg(). The parts may be used again at once. */
static int send_parts(struct ofi_link *link, const struct iovec *parts, int count, uint64_t flags,
                      uint64_t data, struct ofi_op *op)
{
    struct iovec whole = {.iov_len = 0};
    struct fi_msg message = {.msg_iov = &whole, .iov_count = 1, .context = next_context(link), .data = data};

    for (int i = 0; i < count; i++)
        whole.iov_len += parts[i].iov_len;
    if (whole.iov_len <= link->ofi->info->tx_attr->inject_size && whole.iov_len <= OFI_INJECT_MAX &&
        !acknowledges(link))
        return send_injected(link, parts, count, &message, flags, op);
    return send_copied(link, parts, count, &message, flags, op);
}

int ofi_send(struct fabric_link *base, const void *data, size_t bytes)
{
    struct ofi_link *link = ofi_link_of(base);
    const struct iovec part = {.iov_base = (void *)data, .iov_len = bytes};
    struct ofi_op op = {.signalled = false};

    if (link_full(link))
        return no_room(link);
    return send_parts(link, &part, 1, 0, 0, &op);
}

/* A write that the receiver carries out word by word: see ofi_words.c. */
static int write_words(struct ofi_link *link, const struct fabric_write *write, uint64_t flags,
                       struct ofi_op *op)
{
    struct ofi_words header = {.address = write->remote_address, .key = write->remote_key};
    struct iovec parts[1 + FABRIC_PIECES_MAX] = {{.iov_base = &header, .iov_len = sizeof(header)}};
    void *desc[FABRIC_PIECES_MAX];
    int count = gather(link, write, parts + 1, desc);
    uint64_t data = 0;

    if (count < 0)
        return count;
    if (write->immediate != FABRIC_IMMEDIATE_NONE)
        data = OFI_WORDS_IMMEDIATE | write->immediate;
    return send_parts(link, parts, 1 + count, flags | FI_REMOTE_CQ_DATA, data, op);
}

int ofi_write(struct fabric_link *base, const struct fabric_write *write, uint64_t bytes)
{
    struct ofi_link *link = ofi_link_of(base);
    struct ofi_op op = {.cookie = write->cookie, .signalled = write->signalled};
    uint64_t flags = 0;

    if (link_full(link))
        return no_room(link);
    if (write->signalled || completion_due(link))
        flags |= FI_COMPLETION;
    flags |= acknowledged(link, flags);
    if (bytes > 0 && bytes <= FABRIC_WORDS_MAX && link->ofi->tears_words && base->lane == FABRIC_CONTROL)
        return write_words(link, write, flags, &op);
    if (write->immediate != FABRIC_IMMEDIATE_NONE)
        flags |= FI_REMOTE_CQ_DATA;
    if (bytes == 0)
        return write_nothing(link, write, flags, &op);
    return write_something(link, write, bytes, flags, &op);
}

/* A message that carries completion data is none of the user's: the last of its link. */
void ofi_bye(struct ofi_link *link)
{
    static const char nothing[OFI_BYE_BYTES];
    struct iovec iov = {.iov_base = (void *)nothing, .iov_len = sizeof(nothing)};
    struct fi_msg message = {.msg_iov = &iov, .iov_count = 1, .context = next_context(link)};
    const struct ofi_op op = {.signalled = false};
    const uint64_t flags = FI_REMOTE_CQ_DATA | FI_COMPLETION |
                           (acknowledges(link) ? acknowledged(link, FI_COMPLETION) : FI_INJECT);

    if (!link->said_bye && !link_full(link))
        link->said_bye = posted(link, fi_sendmsg(link->ep, &message, flags), flags, &op) == 0;
}

bool ofi_complete(struct ofi_link *link, uint32_t sequence, struct ofi_op *op)
{
    uint32_t count = ((sequence - link->done) & ~OFI_CONTEXT_RECEIVE) + 1;

    if (count > link->posted - link->done)
        return false;
    for (uint32_t i = 0; i < count; i++)
        link->ring_used -= link->ops[link->done++ % OFI_OUTSTANDING].ring_bytes;
    *op = link->ops[(link->done - 1) % OFI_OUTSTANDING];
    link->ofi->room |= link->starved;
    link->starved = false;
    return true;
}
