/* SPDX-License-Identifier: BSD-3-Clause */
#include "fabric/ofi.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define READS_MAX    64   /* of the completion queue, and of the event queue, in one poll */
#define EVENT_TURNS  16   /* so often the event queue comes first; else when there are no completions */
#define FINISH_TURNS 1024 /* polls that a finishing link waits at most for an empty completion queue */
#define CM_DATA_MAX  256

/* Where the events of one poll go. */
struct sink {
    struct fabric_event *events;
    size_t count, max;
};

static bool sink_full(const struct sink *sink)
{
    return sink->count == sink->max;
}

static struct fabric_event *sink_put(struct sink *sink, enum fabric_event_type type, struct ofi_link *link)
{
    struct fabric_event *event = &sink->events[sink->count++];

    assert(sink->count <= sink->max);
    *event = (struct fabric_event){.type = type, .link = &link->base, .context = link->base.context};
    return event;
}

/* --- Ends of links -------------------------------------------------------------------------------------- */

static struct ofi_link *list_pop(struct ofi_list *list)
{
    struct ofi_link *link = list->first;

    list->first = link->next;
    if (list->first == NULL)
        list->last = &list->first;
    return link;
}

static bool ends_now(const struct ofi *ofi, const struct ofi_link *link, bool empty)
{
    switch (link->ending) {
    case OFI_ENDS_NOW:
        return true;
    case OFI_ENDS_EMPTY:
        return (empty && ofi->turn >= link->finish_turn) || ofi->turn >= link->finish_turn + FINISH_TURNS;
    case OFI_ENDS_ANSWERED:
        return false;
    }
    return true;
}

/* Close the links that are ending and have nothing to wait for. */
static void shut_ending(struct ofi *ofi, bool empty)
{
    struct ofi_list waiting = {.last = &waiting.first};

    while (ofi->ending.first != NULL) {
        struct ofi_link *link = list_pop(&ofi->ending);

        if (ends_now(ofi, link, empty)) {
            ofi_link_shut(link);
            ofi_list_append(&ofi->ended, link);
        } else {
            if (link->ending == OFI_ENDS_ANSWERED)
                ofi_bye(link);
            ofi_list_append(&waiting, link);
        }
    }
    while (waiting.first != NULL)
        ofi_list_append(&ofi->ending, list_pop(&waiting));
}

static void deliver_ended(struct ofi *ofi, struct sink *sink)
{
    while (ofi->ended.first != NULL && !sink_full(sink)) {
        struct ofi_link *link = list_pop(&ofi->ended);
        struct fabric_event *event = sink_put(sink, FABRIC_LINK_DOWN, link);

        event->error = link->error;
        event->text = link->text;
        link->base.state = FABRIC_LINK_ENDED;
    }
}

/* --- The event queue ------------------------------------------------------------------------------------ */

union cm_event {
    struct fi_eq_cm_entry entry;
    uint8_t room[sizeof(struct fi_eq_cm_entry) + CM_DATA_MAX];
};

static void event_happened(struct ofi *ofi, uint32_t type, union cm_event *event, size_t bytes,
                           struct sink *sink)
{
    size_t data_bytes = bytes > sizeof(event->entry) ? bytes - sizeof(event->entry) : 0;
    struct ofi_link *link;

    if (type == FI_CONNREQ) {
        ofi_link_request(ofi, event->entry.info, event->entry.data, data_bytes);
        return;
    }
    link = ofi_link_of_endpoint(ofi, event->entry.fid);
    if (link == NULL)
        return;
    if (type == FI_CONNECTED && ofi_link_connected(link, event->entry.data, data_bytes))
        sink_put(sink, FABRIC_LINK_UP, link);
    else if (type == FI_SHUTDOWN)
        ofi_link_finish(link, "the peer closed the connection or died");
}

static void event_failed(struct ofi *ofi)
{
    struct fi_eq_err_entry failure = {.err_data_size = 0};
    struct ofi_link *link;

    if (fi_eq_readerr(ofi->eq, &failure, 0) <= 0)
        return;
    link = failure.fid == NULL ? NULL : ofi_link_of_endpoint(ofi, failure.fid);
    if (link != NULL)
        ofi_link_finish(link, fi_strerror(abs(failure.err)));
    ofi->base.counters.errors++;
}

/* Returns true once the queue is seen to be empty. */
static bool read_events(struct ofi *ofi, struct sink *sink)
{
    for (int reads = 0; !sink_full(sink) && reads < READS_MAX; reads++) {
        union cm_event event;
        uint32_t type;
        ssize_t bytes = fi_eq_read(ofi->eq, &type, &event, sizeof(event), 0);

        if (bytes == -FI_EAVAIL)
            event_failed(ofi);
        else if (bytes < (ssize_t)sizeof(event.entry))
            return true;
        else
            event_happened(ofi, type, &event, (size_t)bytes, sink);
    }
    return false;
}

/* --- The completion queue ------------------------------------------------------------------------------- */

static void arrived(struct ofi *ofi, struct ofi_link *link, uint64_t data, struct sink *sink)
{
    sink_put(sink, FABRIC_ARRIVED, link)->immediate = (uint32_t)data;
    ofi->base.counters.arrivals++;
}

static struct ofi_receive *receive_of(struct ofi_link *link, const struct fi_cq_data_entry *entry)
{
    uint32_t number = (uint32_t)(uintptr_t)entry->op_context & ~OFI_CONTEXT_RECEIVE;

    assert(number < link->ofi->receives);
    return &link->receives[number];
}

static bool is_bye(const struct fi_cq_data_entry *entry)
{
    return entry->flags & FI_REMOTE_CQ_DATA && !(entry->flags & (FI_RMA | FI_REMOTE_WRITE)) &&
           entry->len == OFI_BYE_BYTES;
}

static bool is_words(const struct ofi *ofi, const struct ofi_link *link, const struct fi_cq_data_entry *entry)
{
    return ofi->tears_words && link->base.lane == FABRIC_CONTROL && entry->flags & FI_REMOTE_CQ_DATA &&
           entry->len > OFI_BYE_BYTES;
}

static void words_received(struct ofi *ofi, struct ofi_link *link, struct ofi_receive *receive,
                           const struct fi_cq_data_entry *entry, struct sink *sink)
{
    if (!ofi_words_write(ofi, link->buffers + (size_t)receive->number * FABRIC_MESSAGE_MAX, entry->len)) {
        ofi_link_fail(link, COVEY_PEER_LOST, "the peer wrote where nothing was granted");
        return;
    }
    if (entry->data & OFI_WORDS_IMMEDIATE)
        arrived(ofi, link, entry->data, sink);
    if (link->base.state == FABRIC_LINK_READY)
        ofi_link_repost(receive);
}

static void received(struct ofi *ofi, struct ofi_link *link, const struct fi_cq_data_entry *entry,
                     struct sink *sink)
{
    struct ofi_receive *receive = receive_of(link, entry);
    struct fabric_event *event;

    if (is_bye(entry)) {
        ofi_link_fail(link, COVEY_PEER_LOST, "the peer closed the connection");
    } else if (is_words(ofi, link, entry)) {
        words_received(ofi, link, receive, entry, sink);
    } else if (entry->flags & FI_REMOTE_CQ_DATA || entry->len == 0) {
        if (entry->flags & FI_REMOTE_CQ_DATA)
            arrived(ofi, link, entry->data, sink);
        if (link->base.state == FABRIC_LINK_READY)
            ofi_link_repost(receive);
    } else {
        event = sink_put(sink, FABRIC_MESSAGE, link);
        event->data = link->buffers + (size_t)receive->number * FABRIC_MESSAGE_MAX;
        event->bytes = entry->len;
        receive->next = ofi->repost;
        ofi->repost = receive;
    }
}

static void sent(struct ofi_link *link, const struct fi_cq_data_entry *entry, struct sink *sink)
{
    struct ofi_op op;

    if (!ofi_complete(link, (uint32_t)(uintptr_t)entry->op_context, &op))
        ofi_link_fail(link, COVEY_FABRIC, "a completion of nothing that was posted");
    else if (op.signalled)
        sink_put(sink, FABRIC_WRITE_DONE, link)->cookie = op.cookie;
}

/* What still comes after fabric_link_close() is taken, so that the peer's goodbye is not stuck behind it. */
static void complete_unseen(struct ofi_link *link, const struct fi_cq_data_entry *entry, bool alone)
{
    struct ofi_op op;

    if (link->ending == OFI_ENDS_NOW || alone)
        return;
    if (!((uintptr_t)entry->op_context & OFI_CONTEXT_RECEIVE))
        ofi_complete(link, (uint32_t)(uintptr_t)entry->op_context, &op);
    else if (is_bye(entry))
        ofi_link_fail(link, 0, NULL);
    else
        ofi_link_repost(receive_of(link, entry));
}

/* Something came by a link before the event that it is connected was read: read that. Where the accepting
 * side has none yet, what came proves it: InfiniBand calls that "communication established". */
static void connected_first(struct ofi *ofi, struct ofi_link *link, struct sink *sink)
{
    if (read_events(ofi, sink) && link->base.state == FABRIC_LINK_STARTING && !sink_full(sink) &&
        ofi_link_connected(link, NULL, 0))
        sink_put(sink, FABRIC_LINK_UP, link);
}

/* At most one event comes of it. Returns false if the entry must be looked at again: other events came first.
 */
static bool complete(struct ofi *ofi, const struct fi_cq_data_entry *entry, struct sink *sink)
{
    bool alone = entry->flags & FI_REMOTE_WRITE && !ofi->takes_receives;
    uint64_t context = (uintptr_t)entry->op_context;
    struct ofi_link *link = ofi_link_find(ofi, (uint32_t)((alone ? entry->data : context) >> 32));

    if (link == NULL)
        return true;
    if (link->base.state == FABRIC_LINK_STARTING) {
        connected_first(ofi, link, sink);
        return false;
    }
    if (link->base.state == FABRIC_LINK_ENDING && link->ending != OFI_ENDS_EMPTY)
        complete_unseen(link, entry, alone);
    else if (alone)
        arrived(ofi, link, entry->data, sink);
    else if (context & OFI_CONTEXT_RECEIVE)
        received(ofi, link, entry, sink);
    else
        sent(link, entry, sink);
    return true;
}

/* The first failed operation ends its link: the others that are posted on it may never complete, or fail
 * without end. */
static void read_failure(struct ofi *ofi)
{
    struct fi_cq_err_entry failure = {.err_data_size = 0};
    struct ofi_link *link;
    uint64_t id;

    if (fi_cq_readerr(ofi->cq, &failure, 0) <= 0)
        return;
    id = (uintptr_t)failure.op_context >> 32;
    if (id == 0 && failure.flags & FI_REMOTE_CQ_DATA)
        id = failure.data >> 32;
    link = ofi_link_find(ofi, (uint32_t)id);
    if (link == NULL || link->base.state == FABRIC_LINK_STARTING) /* the event queue has the reason */
        return;
    ofi->base.counters.errors++;
    ofi_link_fail(link, COVEY_PEER_LOST,
                  failure.err == FI_ECANCELED ? "the connection ended" : fi_strerror(failure.err));
    shut_ending(ofi, false);
}

/* The queue itself failed: no link can go on. */
static void fail_all(struct ofi *ofi, int error)
{
    log_error(&ofi->log, "fabric: the completion queue failed: %s", fi_strerror(error));
    for (uint32_t i = 0; i < ofi->slot_count; i++) {
        if (ofi->slots[i].link != NULL)
            ofi_link_fail(ofi->slots[i].link, COVEY_FABRIC, "the fabric's completion queue failed");
    }
}

/* Returns true once the queue is seen to be empty. */
static bool read_completions(struct ofi *ofi, struct sink *sink)
{
    for (int reads = 0; !sink_full(sink);) {
        ssize_t count;

        if (ofi->batch_next < ofi->batch_count) {
            if (complete(ofi, &ofi->batch[ofi->batch_next], sink))
                ofi->batch_next++;
            continue;
        }
        if (reads++ == READS_MAX)
            return false;
        count = fi_cq_read(ofi->cq, ofi->batch, OFI_BATCH);
        ofi->batch_next = 0;
        ofi->batch_count = count > 0 ? (size_t)count : 0;
        if (count == -FI_EAGAIN)
            return true;
        if (count == -FI_EAVAIL)
            read_failure(ofi);
        else if (count < 0)
            fail_all(ofi, (int)-count);
    }
    return false;
}

/* --- Poll and sleep ------------------------------------------------------------------------------------- */

static void post_again(struct ofi *ofi)
{
    while (ofi->repost != NULL) {
        struct ofi_receive *receive = ofi->repost;

        ofi->repost = receive->next;
        if (receive->link->base.state == FABRIC_LINK_READY)
            ofi_link_repost(receive);
    }
}

size_t ofi_poll(struct fabric *fabric, struct fabric_event events[], size_t max)
{
    struct ofi *ofi = ofi_of(fabric);
    struct sink sink = {.events = events, .max = max};
    bool empty;

    ofi->turn++;
    post_again(ofi);
    if (ofi->deadline_ns != 0 && ofi_now_ns() >= ofi->deadline_ns)
        ofi_link_expire(ofi);
    shut_ending(ofi, false);
    deliver_ended(ofi, &sink);
    if (ofi->turn % EVENT_TURNS == 0)
        read_events(ofi, &sink);
    empty = read_completions(ofi, &sink);
    if (empty)
        read_events(ofi, &sink);
    shut_ending(ofi, empty);
    deliver_ended(ofi, &sink);
    return sink.count;
}

/* Whether a poll is due that no queue asks for. */
static bool poll_due(const struct ofi *ofi)
{
    for (const struct ofi_link *link = ofi->ending.first; link != NULL; link = link->next) {
        if (link->ending != OFI_ENDS_ANSWERED)
            return true;
    }
    return ofi->batch_next < ofi->batch_count || ofi->repost != NULL || ofi->ended.first != NULL;
}

bool ofi_arm(struct fabric *fabric)
{
    struct ofi *ofi = ofi_of(fabric);
    struct fid *fids[] = {&ofi->cq->fid, &ofi->eq->fid};
    bool room = ofi->room;

    ofi->room = false;
    return !room && !poll_due(ofi) && fi_trywait(ofi->fabric, fids, 2) == 0;
}
