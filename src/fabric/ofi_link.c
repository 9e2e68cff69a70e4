/* SPDX-License-Identifier: BSD-3-Clause */
#include "fabric/ofi.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "fabric/address.h"

#define MAGIC0   'C'
#define MAGIC1   'V'
#define MAGIC2   1                   /* version of this layout */
#define LEAVE_NS UINT64_C(200000000) /* that the peer has to answer a goodbye */

/* --- Private data of connecting ------------------------------------------------------------------------- */

static void put_u32(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

static uint32_t get_u32(const uint8_t *in)
{
    return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

static void answer_encode(const struct ofi_link *link, uint8_t out[OFI_ANSWER_BYTES])
{
    out[0] = MAGIC0;
    out[1] = MAGIC1;
    out[2] = MAGIC2;
    out[3] = (uint8_t)link->base.lane;
    put_u32(out + 4, link->id);
}

static void request_encode(const struct ofi_link *link, uint8_t out[OFI_REQUEST_BYTES])
{
    answer_encode(link, out);
    memcpy(out + OFI_ANSWER_BYTES, link->token, FABRIC_TOKEN_BYTES);
}

/* Lane and link id of a request or answer, which some providers deliver with bytes added. */
static bool answer_decode(const uint8_t *data, size_t bytes, uint8_t *lane, uint32_t *id)
{
    if (bytes < OFI_ANSWER_BYTES || data[0] != MAGIC0 || data[1] != MAGIC1 || data[2] != MAGIC2)
        return false;
    *lane = data[3];
    *id = get_u32(data + 4);
    return *id != 0;
}

/* --- Slots ---------------------------------------------------------------------------------------------- */

static int slots_grow(struct ofi *ofi)
{
    uint32_t count = ofi->slot_count == 0 ? 16 : 2 * ofi->slot_count;
    struct ofi_slot *slots = realloc(ofi->slots, count * sizeof(*slots));

    if (slots == NULL)
        return COVEY_NO_MEMORY;
    for (uint32_t i = ofi->slot_count; i < count; i++)
        slots[i] = (struct ofi_slot){.link = NULL, .generation = 1};
    ofi->slots = slots;
    ofi->slot_count = count;
    return 0;
}

static int slot_take(struct ofi *ofi, struct ofi_link *link, struct fail *fail)
{
    uint32_t slot = 0, used = 0;

    for (uint32_t i = ofi->slot_count; i-- > 0;) {
        if (ofi->slots[i].link == NULL)
            slot = i;
        else
            used++;
    }
    if (used >= ofi->links_max)
        return fail_set(fail, COVEY_NO_MEMORY, "provider %s has room for %u links", ofi->name,
                        ofi->links_max);
    if (used == ofi->slot_count) {
        slot = used;
        if (slots_grow(ofi) != 0)
            return fail_set(fail, COVEY_NO_MEMORY, "no memory for another link");
    }
    ofi->slots[slot].link = link;
    link->id = (uint32_t)ofi->slots[slot].generation << 16 | slot;
    return 0;
}

static void slot_retire(struct ofi *ofi, const struct ofi_link *link)
{
    struct ofi_slot *slot = &ofi->slots[link->id & 0xffff];

    slot->link = NULL;
    if (++slot->generation == 0)
        slot->generation = 1;
}

struct ofi_link *ofi_link_find(const struct ofi *ofi, uint32_t id)
{
    uint32_t slot = id & 0xffff;

    if (slot >= ofi->slot_count || ofi->slots[slot].link == NULL || ofi->slots[slot].link->id != id)
        return NULL;
    return ofi->slots[slot].link;
}

struct ofi_link *ofi_link_of_endpoint(const struct ofi *ofi, const struct fid *fid)
{
    for (uint32_t i = 0; i < ofi->slot_count; i++) {
        struct ofi_link *link = ofi->slots[i].link;

        if (link != NULL && link->ep != NULL && &link->ep->fid == fid)
            return link;
    }
    return NULL;
}

/* The link that expects the token on the lane. */
static struct ofi_link *link_expecting(const struct ofi *ofi, uint8_t lane, const uint8_t *token)
{
    for (uint32_t i = 0; i < ofi->slot_count; i++) {
        struct ofi_link *link = ofi->slots[i].link;

        if (link != NULL && link->expecting && link->base.lane == lane &&
            sodium_memcmp(link->token, token, FABRIC_TOKEN_BYTES) == 0)
            return link;
    }
    return NULL;
}

/* --- Memory of a link ----------------------------------------------------------------------------------- */

static int link_new(struct ofi *ofi, enum fabric_lane lane, const uint8_t token[FABRIC_TOKEN_BYTES],
                    struct ofi_link **out, struct fail *fail)
{
    struct ofi_link *link = calloc(1, sizeof(*link));
    int error;

    if (link == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for another link");
    link->ofi = ofi;
    link->base.lane = lane;
    link->base.state = FABRIC_LINK_STARTING;
    memcpy(link->token, token, FABRIC_TOKEN_BYTES);
    error = slot_take(ofi, link, fail);
    if (error != 0) {
        free(link);
        return error;
    }
    *out = link;
    return 0;
}

static int buffers_open(struct ofi_link *link, struct fail *fail)
{
    struct ofi *ofi = link->ofi;
    size_t bytes = ofi_receive_bytes(ofi) + OFI_SEND_RING_BYTES;
    int error;

    link->buffers = aligned_alloc(4096, bytes);
    if (link->buffers == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for the %zu bytes of a link's messages", bytes);
    if (!ofi->base.needs_local)
        return 0;
    error = ofi_register_raw(ofi, link->buffers, bytes, FI_SEND | FI_RECV, &link->buffers_mr, fail);
    if (error != 0) {
        free(link->buffers);
        link->buffers = NULL;
    }
    return error;
}

static void buffers_close(struct ofi_link *link)
{
    if (link->buffers_mr != NULL)
        fi_close(&link->buffers_mr->fid);
    link->buffers_mr = NULL;
    free(link->buffers);
    link->buffers = NULL;
}

void *ofi_link_desc(const struct ofi_link *link)
{
    return link->buffers_mr == NULL ? NULL : fi_mr_desc(link->buffers_mr);
}

static int receive_post(struct ofi_receive *receive)
{
    struct ofi_link *link = receive->link;
    uint64_t context = ofi_context(link, OFI_CONTEXT_RECEIVE | receive->number);

    return (int)fi_recv(link->ep, link->buffers + (size_t)receive->number * FABRIC_MESSAGE_MAX,
                        FABRIC_MESSAGE_MAX, ofi_link_desc(link), 0, (void *)(uintptr_t)context);
}

void ofi_link_repost(struct ofi_receive *receive)
{
    int error = receive_post(receive);

    if (error != 0)
        ofi_link_fail(receive->link, COVEY_FABRIC, fi_strerror(-error));
}

/* --- Endpoints ------------------------------------------------------------------------------------------ */

static int endpoint_start(struct ofi_link *link)
{
    struct ofi *ofi = link->ofi;
    int error = fi_ep_bind(link->ep, &ofi->eq->fid, 0);

    if (error == 0)
        error = fi_ep_bind(link->ep, &ofi->cq->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION);
    if (error == 0)
        error = fi_ep_bind(link->ep, &ofi->cq->fid, FI_RECV);
    if (error == 0)
        error = fi_enable(link->ep);
    for (uint32_t i = 0; i < ofi->receives && error == 0; i++) {
        link->receives[i] = (struct ofi_receive){.link = link, .number = i};
        error = receive_post(&link->receives[i]);
    }
    return error;
}

static void endpoint_close(struct ofi_link *link)
{
    if (link->ep != NULL)
        fi_close(&link->ep->fid);
    link->ep = NULL;
    buffers_close(link);
}

/* An endpoint for info with its receives posted, ready to connect or accept. The link has its buffers, which
 * go if this fails. */
static int endpoint_open(struct ofi_link *link, struct fi_info *info, struct fail *fail)
{
    struct ofi *ofi = link->ofi;
    int error = fi_endpoint(ofi->domain, info, &link->ep, NULL);

    if (error == 0)
        error = endpoint_start(link);
    if (error != 0) {
        endpoint_close(link);
        return fail_set(fail, ofi_error(error), "provider %s cannot make an endpoint: %s", ofi->name,
                        fi_strerror(-error));
    }
    return 0;
}

static void deadline_set(struct ofi_link *link, uint64_t duration_ns)
{
    struct ofi *ofi = link->ofi;

    link->deadline_ns = ofi_now_ns() + duration_ns;
    if (ofi->deadline_ns == 0 || link->deadline_ns < ofi->deadline_ns)
        ofi_timer_set(ofi, link->deadline_ns);
}

void ofi_link_expire(struct ofi *ofi)
{
    uint64_t now_ns = ofi_now_ns(), next_ns = UINT64_MAX;

    for (uint32_t i = 0; i < ofi->slot_count; i++) {
        struct ofi_link *link = ofi->slots[i].link;

        if (link == NULL || link->deadline_ns == 0)
            continue;
        if (link->deadline_ns <= now_ns)
            ofi_link_fail(link, COVEY_UNREACHABLE, "no answer while connecting");
        else if (link->deadline_ns < next_ns)
            next_ns = link->deadline_ns;
    }
    ofi_timer_set(ofi, next_ns == UINT64_MAX ? 0 : next_ns);
}

/* --- Connecting ----------------------------------------------------------------------------------------- */

static int connect_to(struct ofi_link *link, const struct sockaddr_storage *to, size_t to_bytes,
                      struct fail *fail)
{
    struct ofi *ofi = link->ofi;
    struct fi_info *info = fi_dupinfo(ofi->info);
    uint8_t request[OFI_REQUEST_BYTES];
    int error;

    if (info == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for another link");
    free(info->dest_addr);
    info->dest_addr = malloc(to_bytes);
    info->dest_addrlen = to_bytes;
    if (info->dest_addr == NULL) {
        fi_freeinfo(info);
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for another link");
    }
    memcpy(info->dest_addr, to, to_bytes);
    error = buffers_open(link, fail);
    if (error == 0)
        error = endpoint_open(link, info, fail);
    if (error == 0) {
        request_encode(link, request);
        error = fi_connect(link->ep, info->dest_addr, request, sizeof(request));
        if (error != 0) {
            endpoint_close(link);
            error = fail_set(fail, COVEY_UNREACHABLE, "cannot connect: %s", fi_strerror(-error));
        }
    }
    fi_freeinfo(info);
    return error;
}

int ofi_link_connect(struct fabric *fabric, enum fabric_lane lane, const uint8_t *address,
                     size_t address_bytes, const uint8_t token[FABRIC_TOKEN_BYTES], struct fabric_link **out,
                     struct fail *fail)
{
    struct ofi *ofi = ofi_of(fabric);
    struct sockaddr_storage to;
    size_t to_bytes = address_decode(address, address_bytes, &to);
    struct ofi_link *link;
    int error;

    if (to_bytes != ofi->info->src_addrlen)
        return fail_set(fail, COVEY_INVALID, "the peer's fabric address is not one of provider %s",
                        ofi->name);
    error = link_new(ofi, lane, token, &link, fail);
    if (error != 0)
        return error;
    error = connect_to(link, &to, to_bytes, fail);
    if (error != 0) {
        slot_retire(ofi, link);
        free(link);
        return error;
    }
    deadline_set(link, link->ofi->connect_timeout_ns);
    *out = &link->base;
    return 0;
}

int ofi_link_expect(struct fabric *fabric, enum fabric_lane lane, const uint8_t token[FABRIC_TOKEN_BYTES],
                    struct fabric_link **out, struct fail *fail)
{
    struct ofi *ofi = ofi_of(fabric);
    struct ofi_link *link;
    int error;

    if (link_expecting(ofi, (uint8_t)lane, token) != NULL)
        return fail_set(fail, COVEY_EXISTS, "a link expects that token already");
    error = link_new(ofi, lane, token, &link, fail);
    if (error != 0)
        return error;
    link->expecting = true;
    *out = &link->base;
    return 0;
}

static void link_accept(struct ofi_link *link, struct fi_info *info)
{
    uint8_t answer[OFI_ANSWER_BYTES];
    struct fail fail;
    int error;

    link->expecting = false;
    error = buffers_open(link, &fail);
    if (error != 0)
        fi_reject(link->ofi->pep, info->handle, NULL, 0);
    else
        error = endpoint_open(link, info, &fail); /* takes the handle */
    if (error != 0) {
        log_warning(&link->ofi->log, "fabric: a peer's connection was not accepted: %s", fail.text);
        ofi_link_fail(link, error, "no resources for the peer's connection");
        return;
    }
    answer_encode(link, answer);
    error = fi_accept(link->ep, answer, sizeof(answer));
    if (error != 0) {
        ofi_link_fail(link, COVEY_UNREACHABLE, fi_strerror(-error));
        return;
    }
    deadline_set(link, link->ofi->connect_timeout_ns);
}

void ofi_link_request(struct ofi *ofi, struct fi_info *info, const uint8_t *data, size_t bytes)
{
    struct ofi_link *link = NULL;
    sigset_t signals;
    uint32_t peer_id;
    uint8_t lane;

    fabric_signals_block(&signals);
    if (bytes >= OFI_REQUEST_BYTES && answer_decode(data, bytes, &lane, &peer_id))
        link = link_expecting(ofi, lane, data + OFI_ANSWER_BYTES);
    if (link == NULL) {
        ofi->base.counters.refused_connections++;
        fi_reject(ofi->pep, info->handle, NULL, 0);
    } else {
        link->peer_id = peer_id;
        link_accept(link, info);
    }
    fi_freeinfo(info);
    fabric_signals_restore(&signals);
}

bool ofi_link_connected(struct ofi_link *link, const uint8_t *data, size_t bytes)
{
    uint8_t lane;

    if (link->base.state != FABRIC_LINK_STARTING)
        return false;
    if (link->peer_id == 0 &&
        (!answer_decode(data, bytes, &lane, &link->peer_id) || lane != (uint8_t)link->base.lane)) {
        ofi_link_fail(link, COVEY_PROTOCOL, "malformed answer while connecting");
        return false;
    }
    link->deadline_ns = 0;
    link->base.state = FABRIC_LINK_READY;
    return true;
}

/* --- The end -------------------------------------------------------------------------------------------- */

void ofi_link_fail(struct ofi_link *link, int error, const char *text)
{
    link->ending = OFI_ENDS_NOW;
    if (link->base.state == FABRIC_LINK_ENDING) /* the first reason stays */
        return;
    link->base.state = FABRIC_LINK_ENDING;
    link->error = error;
    link->text = text;
    link->expecting = false;
    link->deadline_ns = 0;
    ofi_list_append(&link->ofi->ending, link);
}

void ofi_link_finish(struct ofi_link *link, const char *text)
{
    if (link->base.state == FABRIC_LINK_ENDING) {
        if (link->ending == OFI_ENDS_ANSWERED)
            link->ending = OFI_ENDS_NOW;
        return;
    }
    ofi_link_fail(link, link->base.state == FABRIC_LINK_READY ? COVEY_PEER_LOST : COVEY_UNREACHABLE, text);
    link->ending = OFI_ENDS_EMPTY;
    link->finish_turn = link->ofi->turn + 1;
}

/* To close a connection at once may destroy what was sent on it and has not been received: TCP resets a
 * connection that is closed with bytes unread. So say goodbye behind everything else, and let the peer, which
 * then has it all, close first. */
void ofi_link_close(struct fabric_link *base)
{
    struct ofi_link *link = ofi_link_of(base);
    bool was_up = base->state == FABRIC_LINK_READY;

    ofi_link_fail(link, 0, "closed here");
    if (!was_up)
        return;
    link->ending = OFI_ENDS_ANSWERED;
    deadline_set(link, LEAVE_NS);
    ofi_bye(link);
}

/* Forget the receives of the link that wait for being posted again. */
static void repost_forget(struct ofi_link *link)
{
    struct ofi_receive **receive = &link->ofi->repost;

    while (*receive != NULL) {
        if ((*receive)->link == link)
            *receive = (*receive)->next;
        else
            receive = &(*receive)->next;
    }
}

void ofi_link_shut(struct ofi_link *link)
{
    sigset_t signals;

    repost_forget(link);
    fabric_signals_block(&signals);
    if (link->ep != NULL) {
        fi_shutdown(link->ep, 0);
        fi_close(&link->ep->fid);
        link->ep = NULL;
    }
    fabric_signals_restore(&signals);
    slot_retire(link->ofi, link);
}

void ofi_link_free(struct fabric_link *base)
{
    struct ofi_link *link = ofi_link_of(base);

    buffers_close(link);
    free(link);
}
