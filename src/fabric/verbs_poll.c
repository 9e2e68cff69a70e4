/* SPDX-License-Identifier: BSD-3-Clause */
#include "fabric/verbs.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdlib.h>

#define READS_MAX   64 /* of the completion queue, and events of rdma_cm, in one poll */
#define EVENT_TURNS 16 /* so often events of rdma_cm are asked for while this thread does not sleep */

/* Where the events of one poll go. */
struct sink {
    struct fabric_event *events;
    size_t count, max;
};

static bool sink_full(const struct sink *sink)
{
    return sink->count == sink->max;
}

static struct fabric_event *sink_put(struct sink *sink, enum fabric_event_type type, struct verbs_link *link)
{
    struct fabric_event *event = &sink->events[sink->count++];

    assert(sink->count <= sink->max);
    *event = (struct fabric_event){.type = type, .link = &link->base, .context = link->base.context};
    return event;
}

/* --- Ends of links -------------------------------------------------------------------------------------- */

static void shut_drained(struct verbs *verbs)
{
    struct verbs_list waiting = {.last = &waiting.first};

    while (verbs->ending.first != NULL) {
        struct verbs_link *link = verbs_list_pop(&verbs->ending);

        if (link->ending == VERBS_DRAINED) {
            verbs_link_shut(link);
            verbs_list_append(&verbs->ended, link);
        } else {
            verbs_list_append(&waiting, link);
        }
    }
    while (waiting.first != NULL)
        verbs_list_append(&verbs->ending, verbs_list_pop(&waiting));
}

static void deliver_ended(struct verbs *verbs, struct sink *sink)
{
    while (verbs->ended.first != NULL && !sink_full(sink)) {
        struct verbs_link *link = verbs_list_pop(&verbs->ended);
        struct fabric_event *event = sink_put(sink, FABRIC_LINK_DOWN, link);

        event->error = link->error;
        event->text = link->text;
        link->base.state = FABRIC_LINK_ENDED;
    }
}

/* --- Events of rdma_cm ---------------------------------------------------------------------------------- */

static void read_events(struct verbs *verbs, struct sink *sink)
{
    struct verbs_link *up;

    for (int reads = 0; !sink_full(sink) && reads < READS_MAX; reads++) {
        if (!verbs_link_event(verbs, &up))
            return;
        if (up != NULL)
            sink_put(sink, FABRIC_LINK_UP, up);
    }
    verbs->slept = true; /* there may be more */
}

/* --- Completions ---------------------------------------------------------------------------------------- */

static void take_credit(struct verbs_link *link, uint32_t count)
{
    link->credit += count;
    if (link->credit > UINT16_MAX)
        verbs_link_end(link, COVEY_PROTOCOL, "the peer gives more receives than it can have", false);
    if (count == 0)
        return;
    link->verbs->room |= link->starved;
    link->starved = false;
}

static void message_arrived(struct verbs_link *link, struct verbs_receive *receive, const struct ibv_wc *wc,
                            struct sink *sink)
{
    uint32_t immediate = ntohl(wc->imm_data);
    struct fabric_event *event;

    take_credit(link, immediate & UINT16_MAX);
    switch (immediate >> 24) {
    case VERBS_BYE:
        verbs_link_end(link, COVEY_PEER_LOST, "the peer closed the connection", false);
        break;
    case VERBS_CREDITS:
        verbs_link_repost(receive, false);
        break;
    case VERBS_MESSAGE:
        event = sink_put(sink, FABRIC_MESSAGE, link);
        event->data = link->buffers + (size_t)receive->number * FABRIC_MESSAGE_MAX;
        event->bytes = wc->byte_len;
        receive->next = link->verbs->repost;
        link->verbs->repost = receive;
        break;
    default:
        verbs_link_end(link, COVEY_PROTOCOL, "a message of no kind that there is", false);
    }
}

static void received(struct verbs_link *link, const struct ibv_wc *wc, struct sink *sink)
{
    uint32_t number = (uint32_t)wc->wr_id & ~VERBS_ID_RECEIVE;

    assert(number < VERBS_RECEIVES);
    if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
        sink_put(sink, FABRIC_ARRIVED, link)->immediate = ntohl(wc->imm_data);
        link->verbs->base.counters.arrivals++;
        verbs_link_repost(&link->receives[number], true);
    } else if (wc->wc_flags & IBV_WC_WITH_IMM) {
        message_arrived(link, &link->receives[number], wc, sink);
    } else {
        verbs_link_end(link, COVEY_PROTOCOL, "a message without an immediate", false);
    }
}

static void sent(struct verbs_link *link, const struct ibv_wc *wc, struct sink *sink)
{
    struct verbs_op op;

    if (!verbs_complete(link, (uint32_t)wc->wr_id & ~VERBS_ID_RECEIVE, &op))
        verbs_link_end(link, COVEY_FABRIC, "a completion of nothing that was posted", false);
    else if (op.signalled && sink != NULL)
        sink_put(sink, FABRIC_WRITE_DONE, link)->cookie = op.cookie;
    verbs_give_credit(link);
}

/* After fabric_link_close() nothing is told; the peer's goodbye answers ours. All that it may post it has the
 * credit for, so that nothing holds it up. */
static void arrived_unseen(struct verbs_link *link, const struct ibv_wc *wc)
{
    if (!(wc->wr_id & VERBS_ID_RECEIVE))
        sent(link, wc, NULL);
    else if (wc->opcode == IBV_WC_RECV && wc->wc_flags & IBV_WC_WITH_IMM &&
             ntohl(wc->imm_data) >> 24 == VERBS_BYE)
        verbs_link_end(link, 0, NULL, false);
}

/* Something came by a link before the event that it is connected: look for that. Where the accepting side has
 * none yet, what came proves it: InfiniBand calls that "communication established". */
static void connected_first(struct verbs *verbs, struct verbs_link *link, struct sink *sink)
{
    read_events(verbs, sink);
    if (link->base.state == FABRIC_LINK_STARTING && !sink_full(sink) && verbs_link_established(link))
        sink_put(sink, FABRIC_LINK_UP, link);
}

/* What was posted comes back in its order, so the last send and the last receive are the ends of the two. */
static void drained(struct verbs_link *link, const struct ibv_wc *wc)
{
    uint32_t low = (uint32_t)wc->wr_id;

    if (low == (VERBS_ID_RECEIVE | VERBS_LAST))
        link->receives_drained = true;
    else if (low == ((link->posted - 1) & ~VERBS_ID_RECEIVE))
        link->sends_drained = true;
    if (link->sends_drained && link->receives_drained)
        link->ending = VERBS_DRAINED;
}

/* The first failed operation ends its link: the device will fail all others. */
static void failed(struct verbs_link *link, const struct ibv_wc *wc)
{
    struct verbs *verbs = link->verbs;

    if (link->base.state == FABRIC_LINK_STARTING) /* rdma_cm has the reason */
        return;
    if (link->base.state == FABRIC_LINK_ENDING && link->ending != VERBS_SAYS_BYE) {
        drained(link, wc);
        return;
    }
    verbs->base.counters.errors++;
    log_debug(&verbs->log, "fabric: a completion with status %d (%s), vendor's error %#x", (int)wc->status,
              ibv_wc_status_str(wc->status), wc->vendor_err);
    verbs_link_end(link, COVEY_PEER_LOST,
                   wc->status == IBV_WC_WR_FLUSH_ERR ? "the connection ended" : ibv_wc_status_str(wc->status),
                   true);
}

/* At most one event comes of it. Returns false if the entry must be looked at again: other events came first.
 */
static bool complete(struct verbs *verbs, const struct ibv_wc *wc, struct sink *sink)
{
    struct verbs_link *link = verbs_link_find(verbs, (uint32_t)(wc->wr_id >> 32));

    if (link == NULL)
        return true;
    if (wc->status != IBV_WC_SUCCESS) {
        failed(link, wc);
    } else if (link->base.state == FABRIC_LINK_STARTING) {
        connected_first(verbs, link, sink);
        return false;
    } else if (link->base.state == FABRIC_LINK_ENDING && !link->delivers) {
        arrived_unseen(link, wc);
    } else if (wc->wr_id & VERBS_ID_RECEIVE) {
        received(link, wc, sink);
    } else {
        sent(link, wc, sink);
    }
    return true;
}

/* The queue itself failed: no link can go on. */
static void fail_all(struct verbs *verbs)
{
    log_error(&verbs->log, "fabric: the completion queue of the RDMA device failed");
    for (uint32_t i = 0; i < verbs->slot_count; i++) {
        if (verbs->slots[i].link != NULL)
            verbs_link_end(verbs->slots[i].link, COVEY_FABRIC, "the fabric's completion queue failed", false);
    }
}

/* Read what there is, at most a batch. Returns whether there was anything. */
static bool batch_read(struct verbs *verbs)
{
    int count = ibv_poll_cq(verbs->cq, VERBS_BATCH, verbs->batch);

    verbs->batch_next = 0;
    verbs->batch_count = count > 0 ? count : 0;
    if (count < 0)
        fail_all(verbs);
    return count > 0;
}

static void read_completions(struct verbs *verbs, struct sink *sink)
{
    for (int reads = 0; !sink_full(sink);) {
        if (verbs->batch_next < verbs->batch_count) {
            if (complete(verbs, &verbs->batch[verbs->batch_next], sink))
                verbs->batch_next++;
        } else if (reads++ == READS_MAX || !batch_read(verbs)) {
            return;
        }
    }
}

/* --- Poll and sleep ------------------------------------------------------------------------------------- */

static void post_again(struct verbs *verbs)
{
    while (verbs->repost != NULL) {
        struct verbs_receive *receive = verbs->repost;

        verbs->repost = receive->next;
        verbs_link_repost(receive, true);
    }
}

size_t verbs_poll(struct fabric *fabric, struct fabric_event events[], size_t max)
{
    struct verbs *verbs = verbs_of(fabric);
    struct sink sink = {.events = events, .max = max};
    bool look = verbs->slept || verbs->turn++ % EVENT_TURNS == 0;

    verbs->slept = false;
    post_again(verbs);
    if (verbs->deadline_ns != 0 && verbs_now_ns() >= verbs->deadline_ns)
        verbs_link_expire(verbs);
    shut_drained(verbs);
    deliver_ended(verbs, &sink);
    /* A connection that has ended is drained: what arrived on it before is delivered all the same. */
    if (look)
        read_events(verbs, &sink);
    read_completions(verbs, &sink);
    shut_drained(verbs);
    deliver_ended(verbs, &sink);
    return sink.count;
}

/* Whether a poll is due that no descriptor asks for. */
static bool poll_due(const struct verbs *verbs)
{
    for (const struct verbs_link *link = verbs->ending.first; link != NULL; link = link->next) {
        if (link->ending == VERBS_DRAINED)
            return true;
    }
    return verbs->batch_next < verbs->batch_count || verbs->repost != NULL || verbs->ended.first != NULL;
}

/* Empty the completion channel, so that its descriptor says something new. */
static void notices_take(struct verbs *verbs)
{
    struct ibv_cq *cq;
    void *context;

    while (ibv_get_cq_event(verbs->completions, &cq, &context) == 0)
        verbs->unacknowledged++;
}

/* Ask for a notice of the next completion, then look once more: one may have come between. */
bool verbs_arm(struct fabric *fabric)
{
    struct verbs *verbs = verbs_of(fabric);
    bool room = verbs->room;

    verbs->room = false;
    verbs->slept = true;
    if (room || poll_due(verbs))
        return false;
    notices_take(verbs);
    if (ibv_req_notify_cq(verbs->cq, 0) != 0) {
        fail_all(verbs);
        return false;
    }
    return !batch_read(verbs) && !poll_due(verbs);
}
