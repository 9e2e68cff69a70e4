/* SPDX-License-Identifier: BSD-3-Clause */
#include "fabric/verbs.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "fabric/address.h"

#define MAGIC0     'C'
#define MAGIC1     'R'
#define MAGIC2     1                    /* version of this layout */
#define LEAVE_NS   UINT64_C(200000000)  /* that the peer has to answer a goodbye */
#define DRAIN_NS   UINT64_C(2000000000) /* that the device has to return what was posted */
#define RESOLVE_MS 2000                 /* that an address and a route may take to be found */
#define LINKS_MAX  UINT16_MAX

/* --- Private data of connecting ------------------------------------------------------------------------- */

static void answer_encode(const struct verbs_link *link, uint8_t out[VERBS_ANSWER_BYTES])
{
    const uint8_t answer[VERBS_ANSWER_BYTES] = {
        MAGIC0, MAGIC1, MAGIC2, (uint8_t)link->base.lane, VERBS_CREDIT & 0xff, VERBS_CREDIT >> 8};

    memcpy(out, answer, sizeof(answer));
}

/* Lane and credit of a request or answer, which arrive with bytes added. */
static bool answer_decode(const uint8_t *data, size_t bytes, uint8_t *lane, uint32_t *credit)
{
    if (bytes < VERBS_ANSWER_BYTES || data[0] != MAGIC0 || data[1] != MAGIC1 || data[2] != MAGIC2)
        return false;
    *lane = data[3];
    *credit = (uint32_t)data[4] | (uint32_t)data[5] << 8;
    return *credit != 0;
}

/* --- Slots ---------------------------------------------------------------------------------------------- */

static int slots_grow(struct verbs *verbs)
{
    uint32_t count = verbs->slot_count == 0 ? 16 : 2 * verbs->slot_count;
    struct verbs_slot *slots = realloc(verbs->slots, count * sizeof(*slots));

    if (slots == NULL)
        return COVEY_NO_MEMORY;
    for (uint32_t i = verbs->slot_count; i < count; i++)
        slots[i] = (struct verbs_slot){.link = NULL, .generation = 1};
    verbs->slots = slots;
    verbs->slot_count = count;
    return 0;
}

static int slot_take(struct verbs *verbs, struct verbs_link *link, struct fail *fail)
{
    uint32_t slot = 0, used = 0;
    int error;

    for (uint32_t i = verbs->slot_count; i-- > 0;) {
        if (verbs->slots[i].link == NULL)
            slot = i;
        else
            used++;
    }
    if (used >= LINKS_MAX)
        return fail_set(fail, COVEY_NO_MEMORY, "provider verbs has room for %u links", LINKS_MAX);
    error = verbs_cq_grow(verbs, used + 1, fail);
    if (error != 0)
        return error;
    if (used == verbs->slot_count) {
        slot = used;
        if (slots_grow(verbs) != 0)
            return fail_set(fail, COVEY_NO_MEMORY, "no memory for another link");
    }
    verbs->slots[slot].link = link;
    link->number = (uint32_t)verbs->slots[slot].generation << 16 | slot;
    return 0;
}

static void slot_retire(struct verbs *verbs, const struct verbs_link *link)
{
    struct verbs_slot *slot = &verbs->slots[link->number & 0xffff];

    slot->link = NULL;
    if (++slot->generation == 0)
        slot->generation = 1;
}

struct verbs_link *verbs_link_find(const struct verbs *verbs, uint32_t number)
{
    uint32_t slot = number & 0xffff;

    if (slot >= verbs->slot_count || verbs->slots[slot].link == NULL ||
        verbs->slots[slot].link->number != number)
        return NULL;
    return verbs->slots[slot].link;
}

/* The link that expects the token on the lane. */
static struct verbs_link *link_expecting(const struct verbs *verbs, uint8_t lane, const uint8_t *token)
{
    for (uint32_t i = 0; i < verbs->slot_count; i++) {
        struct verbs_link *link = verbs->slots[i].link;

        if (link != NULL && link->expecting && link->base.lane == lane &&
            sodium_memcmp(link->token, token, FABRIC_TOKEN_BYTES) == 0)
            return link;
    }
    return NULL;
}

/* --- A link and its queue pair ---------------------------------------------------------------------------
 */

static int link_new(struct verbs *verbs, enum fabric_lane lane, const uint8_t token[FABRIC_TOKEN_BYTES],
                    struct verbs_link **out, struct fail *fail)
{
    struct verbs_link *link = calloc(1, sizeof(*link));
    int error;

    if (link == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for another link");
    link->verbs = verbs;
    link->base.lane = lane;
    link->base.state = FABRIC_LINK_STARTING;
    memcpy(link->token, token, FABRIC_TOKEN_BYTES);
    error = slot_take(verbs, link, fail);
    if (error != 0) {
        free(link);
        return error;
    }
    *out = link;
    return 0;
}

static int buffers_open(struct verbs_link *link, struct fail *fail)
{
    const size_t bytes = VERBS_RECEIVES * FABRIC_MESSAGE_MAX + VERBS_SEND_RING_BYTES;

    link->buffers = aligned_alloc(4096, bytes);
    if (link->buffers == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for the %zu bytes of a link's messages", bytes);
    link->buffers_mr = verbs_register_raw(link->verbs, link->buffers, bytes, IBV_ACCESS_LOCAL_WRITE, fail);
    return link->buffers_mr == NULL ? fail->code : 0;
}

static void buffers_close(struct verbs_link *link)
{
    if (link->buffers_mr != NULL)
        ibv_dereg_mr(link->buffers_mr);
    link->buffers_mr = NULL;
    free(link->buffers);
    link->buffers = NULL;
}

static int receive_post(struct verbs_link *link, uint32_t number)
{
    struct ibv_sge piece = {.length = FABRIC_MESSAGE_MAX, .lkey = link->buffers_mr->lkey};
    struct ibv_recv_wr request = {.wr_id = verbs_id(link, VERBS_ID_RECEIVE | number)}, *bad;

    if (number != VERBS_LAST) {
        piece.addr = (uintptr_t)link->buffers + (size_t)number * FABRIC_MESSAGE_MAX;
        request.sg_list = &piece;
        request.num_sge = 1;
    }
    return ibv_post_recv(link->id->qp, &request, &bad);
}

void verbs_link_repost(struct verbs_receive *receive, bool took_credit)
{
    struct verbs_link *link = receive->link;
    int error;

    if (link->base.state != FABRIC_LINK_READY)
        return;
    error = receive_post(link, receive->number);
    if (error != 0) {
        verbs_link_end(link, COVEY_FABRIC, strerror(error), true);
        return;
    }
    link->owed += took_credit;
    verbs_give_credit(link);
}

/* A queue pair with its receives posted, ready to connect or accept. */
static int queue_pair_open(struct verbs_link *link, struct fail *fail)
{
    struct verbs *verbs = link->verbs;
    struct ibv_qp_init_attr attr = {.qp_context = link,
                                    .send_cq = verbs->cq,
                                    .recv_cq = verbs->cq,
                                    .cap = {.max_send_wr = VERBS_SENDS,
                                            .max_recv_wr = VERBS_RECEIVES + 1,
                                            .max_send_sge = FABRIC_PIECES_MAX,
                                            .max_recv_sge = 1,
                                            .max_inline_data = verbs->inline_bytes},
                                    .qp_type = IBV_QPT_RC};
    int error = buffers_open(link, fail);

    if (error != 0)
        return error;
    if (rdma_create_qp(link->id, verbs->pd, &attr) != 0)
        return fail_set(fail, errno == ENOMEM ? COVEY_NO_MEMORY : COVEY_FABRIC,
                        "provider verbs cannot make a queue pair: %s", strerror(errno));
    for (uint32_t i = 0; i < VERBS_RECEIVES; i++) {
        link->receives[i] = (struct verbs_receive){.link = link, .number = i};
        error = receive_post(link, i);
        if (error != 0)
            return fail_set(fail, COVEY_FABRIC, "provider verbs cannot post a receive: %s", strerror(error));
    }
    return 0;
}

static void queue_pair_close(struct verbs_link *link)
{
    if (link->id == NULL)
        return;
    if (link->id->qp != NULL)
        rdma_destroy_qp(link->id);
    rdma_destroy_id(link->id);
    link->id = NULL;
}

static void deadline_set(struct verbs_link *link, uint64_t duration_ns)
{
    struct verbs *verbs = link->verbs;

    link->deadline_ns = verbs_now_ns() + duration_ns;
    if (verbs->deadline_ns == 0 || link->deadline_ns < verbs->deadline_ns)
        verbs_timer_set(verbs, link->deadline_ns);
}

/* No responder resources: a peer may write and no more, neither read nor swap. */
static struct rdma_conn_param connection(const void *data, size_t bytes)
{
    return (struct rdma_conn_param){.private_data = data,
                                    .private_data_len = (uint8_t)bytes,
                                    .retry_count = VERBS_RETRIES,
                                    .rnr_retry_count = VERBS_RNR_RETRIES};
}

/* A hint that older kernels do not know. */
static void prefer_ack_timeout(struct rdma_cm_id *id)
{
    uint8_t timeout = VERBS_ACK_TIMEOUT;

    rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout));
}

/* --- Connecting ------------------------------------------------------------------------------------------
 */

static int resolve_begin(struct verbs_link *link, struct sockaddr_storage *to, struct fail *fail)
{
    struct verbs *verbs = link->verbs;
    struct sockaddr_storage from = verbs->self;

    if (rdma_create_id(verbs->channel, &link->id, link, RDMA_PS_TCP) != 0) {
        link->id = NULL;
        return fail_set(fail, COVEY_FABRIC, "provider verbs cannot make a connection: %s", strerror(errno));
    }
    prefer_ack_timeout(link->id);
    if (rdma_resolve_addr(link->id, (struct sockaddr *)&from, (struct sockaddr *)to, RESOLVE_MS) != 0)
        return fail_set(fail, COVEY_UNREACHABLE, "cannot connect: %s", strerror(errno));
    return 0;
}

int verbs_link_connect(struct fabric *fabric, enum fabric_lane lane, const uint8_t *address,
                       size_t address_bytes, const uint8_t token[FABRIC_TOKEN_BYTES],
                       struct fabric_link **out, struct fail *fail)
{
    struct verbs *verbs = verbs_of(fabric);
    struct sockaddr_storage to;
    struct verbs_link *link;
    int error;

    if (address_decode(address, address_bytes, &to) == 0 || to.ss_family != verbs->self.ss_family)
        return fail_set(fail, COVEY_INVALID, "the peer's fabric address is not one of provider verbs");
    error = link_new(verbs, lane, token, &link, fail);
    if (error != 0)
        return error;
    error = resolve_begin(link, &to, fail);
    if (error != 0) {
        queue_pair_close(link);
        slot_retire(verbs, link);
        free(link);
        return error;
    }
    deadline_set(link, verbs->connect_timeout_ns);
    *out = &link->base;
    return 0;
}

static void address_resolved(struct verbs_link *link)
{
    if (link->id->verbs != link->verbs->context)
        verbs_link_end(link, COVEY_UNREACHABLE, "the way to the peer leads over another RDMA device", false);
    else if (rdma_resolve_route(link->id, RESOLVE_MS) != 0)
        verbs_link_end(link, COVEY_UNREACHABLE, strerror(errno), false);
}

static void route_resolved(struct verbs_link *link)
{
    uint8_t request[VERBS_REQUEST_BYTES];
    struct rdma_conn_param param = connection(request, sizeof(request));
    struct fail fail;
    int error = queue_pair_open(link, &fail);

    if (error != 0) {
        log_warning(&link->verbs->log, "fabric: cannot connect to a peer: %s", fail.text);
        verbs_link_end(link, error, "no resources for the connection", false);
        return;
    }
    answer_encode(link, request);
    memcpy(request + VERBS_ANSWER_BYTES, link->token, FABRIC_TOKEN_BYTES);
    if (rdma_connect(link->id, &param) != 0)
        verbs_link_end(link, COVEY_UNREACHABLE, strerror(errno), false);
}

int verbs_link_expect(struct fabric *fabric, enum fabric_lane lane, const uint8_t token[FABRIC_TOKEN_BYTES],
                      struct fabric_link **out, struct fail *fail)
{
    struct verbs *verbs = verbs_of(fabric);
    struct verbs_link *link;
    int error;

    if (link_expecting(verbs, (uint8_t)lane, token) != NULL)
        return fail_set(fail, COVEY_EXISTS, "a link expects that token already");
    error = link_new(verbs, lane, token, &link, fail);
    if (error != 0)
        return error;
    link->expecting = true;
    *out = &link->base;
    return 0;
}

static void link_accept(struct verbs_link *link, struct rdma_cm_id *id)
{
    uint8_t answer[VERBS_ANSWER_BYTES];
    struct rdma_conn_param param = connection(answer, sizeof(answer));
    struct fail fail;
    int error;

    link->expecting = false;
    link->id = id;
    id->context = link;
    prefer_ack_timeout(id);
    error = queue_pair_open(link, &fail);
    if (error != 0) {
        log_warning(&link->verbs->log, "fabric: a peer's connection was not accepted: %s", fail.text);
        rdma_reject(id, NULL, 0);
        verbs_link_end(link, error, "no resources for the peer's connection", false);
        return;
    }
    answer_encode(link, answer);
    if (rdma_accept(id, &param) != 0) {
        verbs_link_end(link, COVEY_UNREACHABLE, strerror(errno), false);
        return;
    }
    link->accepted = true;
    deadline_set(link, link->verbs->connect_timeout_ns);
}

/* The token is looked at before anything is made for the connection. */
static void connection_requested(struct verbs *verbs, struct rdma_cm_id *id, const uint8_t *data,
                                 size_t bytes)
{
    struct verbs_link *link = NULL;
    uint32_t credit;
    uint8_t lane;

    if (bytes >= VERBS_REQUEST_BYTES && id->verbs == verbs->context &&
        answer_decode(data, bytes, &lane, &credit))
        link = link_expecting(verbs, lane, data + VERBS_ANSWER_BYTES);
    if (link == NULL) {
        verbs->base.counters.refused_connections++;
        rdma_reject(id, NULL, 0);
        rdma_destroy_id(id);
        return;
    }
    link->credit = credit;
    link_accept(link, id);
}

bool verbs_link_established(struct verbs_link *link)
{
    if (link->base.state != FABRIC_LINK_STARTING)
        return false;
    link->deadline_ns = 0;
    link->base.state = FABRIC_LINK_READY;
    return true;
}

/* The side that asked learns with it what the other answered. */
static bool connected(struct verbs_link *link, const uint8_t *data, size_t bytes)
{
    uint8_t lane;

    if (!link->accepted && link->base.state == FABRIC_LINK_STARTING &&
        (!answer_decode(data, bytes, &lane, &link->credit) || lane != (uint8_t)link->base.lane)) {
        verbs_link_end(link, COVEY_PROTOCOL, "malformed answer while connecting", false);
        return false;
    }
    return verbs_link_established(link);
}

/* --- Events of rdma_cm -----------------------------------------------------------------------------------
 */

struct happened {
    enum rdma_cm_event_type type;
    struct rdma_cm_id *id;
    size_t bytes;
    uint8_t data[256];
};

/* Copied, because an id cannot be destroyed while an event of it is not acknowledged. */
static bool event_take(struct verbs *verbs, struct happened *out)
{
    struct rdma_cm_event *event;

    if (rdma_get_cm_event(verbs->channel, &event) != 0)
        return false;
    out->type = event->event;
    out->id = event->id;
    out->bytes = 0;
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST || event->event == RDMA_CM_EVENT_ESTABLISHED) {
        out->bytes = event->param.conn.private_data == NULL ? 0 : event->param.conn.private_data_len;
        memcpy(out->data, event->param.conn.private_data == NULL ? "" : event->param.conn.private_data,
               out->bytes);
    }
    rdma_ack_cm_event(event);
    return true;
}

/* A peer that ends the connection before it has seen it made refuses it, though it is made here. */
static void connection_ended(struct verbs_link *link, const char *text)
{
    if (link->base.state == FABRIC_LINK_READY)
        verbs_link_end(link, COVEY_PEER_LOST, "the peer closed the connection or died", true);
    else
        verbs_link_end(link, COVEY_UNREACHABLE, text, false);
}

static void link_event(struct verbs_link *link, const struct happened *event, struct verbs_link **up)
{
    switch (event->type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        address_resolved(link);
        break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        route_resolved(link);
        break;
    case RDMA_CM_EVENT_ESTABLISHED:
        if (connected(link, event->data, event->bytes))
            *up = link;
        break;
    case RDMA_CM_EVENT_REJECTED:
        connection_ended(link, "the peer refused the connection");
        break;
    case RDMA_CM_EVENT_DISCONNECTED:
        connection_ended(link, "the connection ended before it was made");
        break;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        verbs_link_end(link, COVEY_FABRIC, "the RDMA device was removed", false);
        break;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
        connection_ended(link, rdma_event_str(event->type));
        break;
    default:
        break;
    }
}

bool verbs_link_event(struct verbs *verbs, struct verbs_link **up)
{
    struct happened event;
    sigset_t signals;

    *up = NULL;
    if (!event_take(verbs, &event))
        return false;
    fabric_signals_block(&signals);
    if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST)
        connection_requested(verbs, event.id, event.data, event.bytes);
    else if (event.id == verbs->listener)
        log_error(&verbs->log, "fabric: provider verbs takes no connections any more: %s",
                  rdma_event_str(event.type));
    else if (((struct verbs_link *)event.id->context)->base.state != FABRIC_LINK_ENDING ||
             event.type == RDMA_CM_EVENT_DISCONNECTED)
        link_event(event.id->context, &event, up);
    fabric_signals_restore(&signals);
    return true;
}

/* --- The end ----------------------------------------------------------------------------------------------
 */

static void drain_begin(struct verbs_link *link)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    link->ending = VERBS_DRAINS;
    deadline_set(link, DRAIN_NS);
    ibv_modify_qp(link->id->qp, &attr, IBV_QP_STATE);
    link->sends_drained = verbs_bye(link) != 0;
    link->receives_drained = receive_post(link, VERBS_LAST) != 0;
    if (link->sends_drained && link->receives_drained)
        link->ending = VERBS_DRAINED;
    rdma_disconnect(link->id);
}

void verbs_link_end(struct verbs_link *link, int error, const char *text, bool delivers)
{
    enum fabric_link_state before = link->base.state;
    sigset_t signals;

    if (before == FABRIC_LINK_ENDING && link->ending != VERBS_SAYS_BYE)
        return;
    if (before != FABRIC_LINK_ENDING) { /* the first reason stays */
        link->base.state = FABRIC_LINK_ENDING;
        link->error = error;
        link->text = text;
        link->delivers = delivers;
        verbs_list_append(&link->verbs->ending, link);
    }
    link->expecting = false;
    link->deadline_ns = 0;
    link->ending = VERBS_DRAINED;
    if (before == FABRIC_LINK_STARTING)
        return;
    fabric_signals_block(&signals);
    drain_begin(link);
    fabric_signals_restore(&signals);
}

/* To end a connection at once would destroy what was sent on it and has not arrived. So say goodbye behind
 * everything else, and let the peer, which then has it all, end it. */
void verbs_link_close(struct fabric_link *base)
{
    struct verbs_link *link = verbs_link_of(base);

    if (base->state != FABRIC_LINK_READY || verbs_bye(link) != 0) {
        verbs_link_end(link, 0, "closed here", false);
        return;
    }
    base->state = FABRIC_LINK_ENDING;
    link->text = "closed here";
    link->ending = VERBS_SAYS_BYE;
    verbs_list_append(&link->verbs->ending, link);
    deadline_set(link, LEAVE_NS);
}

static void link_expired(struct verbs_link *link)
{
    link->deadline_ns = 0;
    if (link->base.state == FABRIC_LINK_STARTING) {
        verbs_link_end(link, COVEY_UNREACHABLE, "no answer while connecting", false);
    } else if (link->ending == VERBS_SAYS_BYE) {
        verbs_link_end(link, 0, NULL, false);
    } else {
        log_warning(&link->verbs->log, "fabric: the RDMA device did not return all that was posted");
        link->ending = VERBS_DRAINED;
    }
}

void verbs_link_expire(struct verbs *verbs)
{
    uint64_t now_ns = verbs_now_ns(), next_ns = UINT64_MAX;

    for (uint32_t i = 0; i < verbs->slot_count; i++) {
        struct verbs_link *link = verbs->slots[i].link;

        if (link == NULL || link->deadline_ns == 0)
            continue;
        if (link->deadline_ns <= now_ns)
            link_expired(link);
        if (link->deadline_ns != 0 && link->deadline_ns < next_ns)
            next_ns = link->deadline_ns;
    }
    verbs_timer_set(verbs, next_ns == UINT64_MAX ? 0 : next_ns);
}

/* Forget the receives of the link that wait for being posted again. */
static void repost_forget(struct verbs_link *link)
{
    struct verbs_receive **receive = &link->verbs->repost;

    while (*receive != NULL) {
        if ((*receive)->link == link)
            *receive = (*receive)->next;
        else
            receive = &(*receive)->next;
    }
}

void verbs_link_shut(struct verbs_link *link)
{
    sigset_t signals;

    repost_forget(link);
    link->deadline_ns = 0;
    fabric_signals_block(&signals);
    queue_pair_close(link);
    fabric_signals_restore(&signals);
    slot_retire(link->verbs, link);
}

void verbs_link_free(struct fabric_link *base)
{
    struct verbs_link *link = verbs_link_of(base);

    buffers_close(link);
    free(link);
}
