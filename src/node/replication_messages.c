/* SPDX-License-Identifier: BSD-3-Clause */
/* The control lane of sessions: offers, grants and the short words between root and receivers. */

#include <stdlib.h>
#include <string.h>

#include "base/bitmap.h"
#include "node/feed.h"
#include "node/replication_private.h"
#include "node/stage.h"

/* --- Sending -----------------------------------------------------------------------------------------------
 */

static struct message message_new(const struct replication *replication, enum message_type type)
{
    return (struct message){.type = type, .group = replication->group->index, .session = replication->id};
}

static struct manifest_entry entry_of(const struct covey_buffer *buffer)
{
    return (struct manifest_entry){.bytes = buffer->bytes,
                                   .memory = (uint8_t)buffer->memory,
                                   .device = (uint8_t)buffer->device,
                                   .name = buffer->name,
                                   .name_bytes = (uint8_t)strlen(buffer->name)};
}

static void send_manifest(struct replication *replication, struct peer *peer)
{
    const struct object *object = replication->object;
    struct message message = message_new(replication, MESSAGE_MANIFEST);
    struct message_page *page = &message.manifest;
    uint8_t data[MESSAGE_PAGE_MAX];

    page->data = data;
    for (size_t i = 0; i < object->count;) {
        page->first = (uint32_t)i;
        page->count = 0;
        page->data_bytes = 0;
        while (i < object->count && page->count < UINT16_MAX) {
            struct manifest_entry entry = entry_of(&object->buffers[i]);
            size_t used = manifest_put(data, page->data_bytes, sizeof(data), &entry);

            if (used == 0)
                break;
            page->data_bytes += used;
            page->count++;
            i++;
        }
        page->last = i == object->count;
        node_send(replication->node, peer, &message);
    }
}

static void send_offer(struct replication *replication, struct peer *peer)
{
    struct message message = message_new(replication, MESSAGE_OFFER);
    uint8_t ids[COVEY_MEMBERS_MAX * sizeof(uint16_t)];
    size_t used = 0;

    for (uint32_t rank = 0; rank < replication->members; rank++)
        used += message_put_id(ids + used, (uint16_t)replication->ids[rank]);
    message.offer =
        (struct message_offer){.view = replication->view,
                               .bytes = replication->bytes,
                               .block_bytes = replication->block_bytes,
                               .schedule = (uint8_t)replication->schedule.kind,
                               .members = (uint16_t)replication->members,
                               .ids = ids,
                               .buffers = (uint32_t)replication->object->count,
                               .purpose = (uint8_t)replication->purpose,
                               .subject = replication->purpose != OFFER_PUT ? replication->origin : 0,
                               .name = replication->name,
                               .name_bytes = (uint8_t)strlen(replication->name)};
    node_send(replication->node, peer, &message);
    send_manifest(replication, peer);
}

/* Words of the set from `first` on, until one page is full or the rest of the set is empty. */
static void fill_page(struct message_blocks *blocks, uint8_t *data, const uint64_t *set, uint32_t count)
{
    size_t words = BITMAP_WORDS(count), used = 0;

    for (blocks->words = 0; blocks->words < MESSAGE_WORDS_MAX && blocks->first / 64 + blocks->words < words;
         blocks->words++)
        used += message_put_word(data + used, set[blocks->first / 64 + blocks->words]);
    blocks->data = data;
}

void replication_send_blocks(struct replication *replication, struct peer *peer, struct message *message,
                             struct message_blocks *blocks, bool *last, const uint64_t *set)
{
    uint32_t count = replication->schedule.blocks;
    uint8_t data[MESSAGE_WORDS_MAX * sizeof(uint64_t)];

    for (uint32_t first = 0; first < count; first += 64 * (uint32_t)MESSAGE_WORDS_MAX) {
        blocks->first = first;
        fill_page(blocks, data, set, count);
        *last = first + 64 * MESSAGE_WORDS_MAX >= count;
        node_send(replication->node, peer, message);
    }
}

bool replication_take_blocks(const struct message_blocks *blocks, uint32_t count, uint64_t *words)
{
    size_t first = blocks->first / 64;

    if (first + blocks->words > BITMAP_WORDS(count))
        return false;
    for (uint16_t i = 0; i < blocks->words; i++)
        words[i] = message_blocks_word(blocks, i);
    return first + blocks->words < BITMAP_WORDS(count) || count % 64 == 0 || blocks->words == 0 ||
           words[blocks->words - 1] >> (count % 64) == 0;
}

/* The blocks that are here already, as the session knows them. */
static void send_held(struct replication *replication, struct peer *peer)
{
    struct message message = message_new(replication, MESSAGE_HELD);
    const uint64_t *held = replication->skip != NULL ? replication->skip : replication->held;
    bool last;

    if (bitmap_count(held, replication->schedule.blocks) > 0)
        replication_send_blocks(replication, peer, &message, &message.held, &last, held);
}

/* One extent per run; an object without bytes has one empty extent. */
static void send_grant(struct replication *replication, struct peer *peer)
{
    struct message message = message_new(replication, MESSAGE_GRANT);
    struct message_page *page = &message.grant.page;
    size_t total = replication->run_count > 0 ? replication->run_count : 1;
    uint8_t data[MESSAGE_PAGE_MAX];

    send_held(replication, peer);
    message.grant.slot = (uint16_t)replication->slot;
    page->data = data;
    for (size_t i = 0; i < total;) {
        page->first = (uint32_t)i;
        page->count = 0;
        page->data_bytes = 0;
        for (; i < total; i++) {
            struct grant_extent extent = {0};
            size_t used;

            if (i < replication->run_count) {
                const struct run *run = &replication->runs[i];

                extent.offset = run->offset;
                extent.bytes = run->bytes;
                extent.key = GRANT_STAGED_KEY;
                if (run->memory->cpu_visible) {
                    fabric_region_remote(run->region, &extent.address, &extent.key);
                    extent.address += run->region_offset;
                }
            }
            used = grant_put(data, page->data_bytes, sizeof(data), &extent);
            if (used == 0)
                break;
            page->data_bytes += used;
            page->count++;
        }
        page->last = i == total;
        node_send(replication->node, peer, &message);
    }
}

static void send_reason(struct replication *replication, struct peer *peer, enum message_type type, int code,
                        uint32_t culprit)
{
    struct message message = message_new(replication, type);

    replication_explain(replication, code, culprit);
    message.reason.code = code;
    message.reason.culprit = culprit < replication->members ? replication->ids[culprit] : MESSAGE_NOBODY;
    message.reason.text = replication->fail.text;
    message.reason.text_bytes = (uint16_t)strlen(replication->fail.text);
    node_send(replication->node, peer, &message);
}

static void send_plain(struct replication *replication, struct peer *peer, enum message_type type)
{
    struct message message = message_new(replication, type);

    if (type == MESSAGE_SEAL)
        message.digest = replication->object->digest;
    node_send(replication->node, peer, &message);
}

void replication_send(struct replication *replication, const struct session_action *action)
{
    struct peer *peer = replication->peers[action->peer];

    switch (action->type) {
    case SESSION_SEND_OFFER:
        send_offer(replication, peer);
        break;
    case SESSION_SEND_GRANT:
        send_grant(replication, peer);
        break;
    case SESSION_SEND_REFUSE:
        send_reason(replication, peer, MESSAGE_REFUSE, action->code, action->culprit);
        break;
    case SESSION_SEND_FAILED:
        send_reason(replication, peer, MESSAGE_FAILED, action->code, action->culprit);
        break;
    case SESSION_SEND_CANCEL:
        send_reason(replication, peer, MESSAGE_CANCEL, action->code, action->culprit);
        break;
    case SESSION_SEND_ACCEPT:
        send_plain(replication, peer, MESSAGE_ACCEPT);
        break;
    case SESSION_SEND_START:
        if (replication->moved_ns == 0)
            replication->moved_ns = replication->node->now_ns;
        send_plain(replication, peer, MESSAGE_START);
        break;
    case SESSION_SEND_SEAL:
        send_plain(replication, peer, MESSAGE_SEAL);
        break;
    case SESSION_SEND_RECEIVED:
        send_plain(replication, peer, MESSAGE_RECEIVED);
        break;
    case SESSION_SEND_DELIVERED:
        send_plain(replication, peer, MESSAGE_DELIVERED);
        break;
    default:
        break;
    }
}

/* --- Offers ------------------------------------------------------------------------------------------------
 */

/* A reason about a session that is not here. */
void replication_say(struct covey_group *group, struct peer *peer, enum message_type type, uint64_t id,
                     int code, const char *text)
{
    struct message message = {.type = type, .group = group->index, .session = id};

    message.reason.code = code;
    message.reason.culprit = group->node->options->self.id;
    message.reason.text = text;
    message.reason.text_bytes = (uint16_t)strlen(text);
    node_send(group->node, peer, &message);
}

static void refuse(struct covey_group *group, struct peer *peer, uint64_t id, int code, const char *text)
{
    replication_say(group, peer, MESSAGE_REFUSE, id, code, text);
}

/* The sender is the root, this node takes part, and everyone is a member. */
static bool offer_is_sound(const struct covey_group *group, const struct peer *peer,
                           const struct message *message, uint32_t ids[])
{
    const struct message_offer *offer = &message->offer;
    bool self = false;

    for (size_t i = 0; i < offer->members; i++) {
        ids[i] = message_offer_id(offer, i);
        self = self || ids[i] == group->node->options->self.id;
        if (ids[i] != group->node->options->self.id && peers_find(group->node->peers, ids[i]) == NULL)
            return false;
        if (!options_group_selects(group->options, ids[i]))
            return false;
    }
    return self && ids[0] == peer->id && message->session >> 48 == peer->id &&
           offer->block_bytes >= SCHEDULE_BLOCK_MIN && offer->block_bytes <= SCHEDULE_BLOCK_MAX &&
           (offer->block_bytes & (offer->block_bytes - 1)) == 0 && offer->bytes <= INT64_MAX;
}

/* Whether the peer sends in a view in which it is not. Of a later view it may be a member. */
static bool is_outsider(const struct covey_node *node, const struct peer *peer, uint64_t view)
{
    return view <= node->view.number && !view_has_process(&node->view, peer->id, peer->incarnation);
}

static uint32_t blocks_of(uint64_t bytes, uint64_t block_bytes)
{
    return bytes == 0 ? 1 : (uint32_t)((bytes + block_bytes - 1) / block_bytes);
}

static void refuse_offer(struct replication *replication, int code, const char *text)
{
    refuse(replication->group, replication->peers[0], replication->id, code, text);
    replication_abandon(replication);
}

static bool has_left(const struct replication *replication)
{
    for (uint32_t rank = 0; rank < replication->members; rank++) {
        if (!view_has(&replication->node->view, replication->ids[rank]))
            return true;
    }
    return false;
}

void replication_refuse_unlinked(struct covey_group *group)
{
    struct replication *replication, *next;

    HASH_ITER (hh, group->node->replications_by_id, replication, next) {
        if (replication->group == group && !replication->begun && !replication->abandoned &&
            !replication->interrupted && has_left(replication))
            refuse_offer(replication, COVEY_PEER_LOST, "a member that takes part has left");
    }
}

static void complete_offer(struct replication *replication)
{
    struct covey_group *group = replication->group;
    struct fail fail = {0};
    uint64_t bytes = 0;
    int rc;

    for (uint32_t i = 0; i < replication->offered_total; i++)
        bytes += replication->offered[i].bytes;
    rc = bytes != replication->bytes
             ? fail_set(&fail, COVEY_PROTOCOL, "the offer's buffers do not add up to its bytes")
             : object_new(group->store, replication->name, replication->offered, replication->offered_total,
                          &replication->object, &fail);
    replication_forget_offer(replication);
    if (rc != 0)
        refuse_offer(replication, rc, fail.text);
}

/* The same object in the same blocks. */
static bool offers_same(const struct replication *replication, const struct message_offer *offer)
{
    return replication->bytes == offer->bytes && replication->block_bytes == offer->block_bytes &&
           replication->object->count == offer->buffers && strlen(replication->name) == offer->name_bytes &&
           memcmp(replication->name, offer->name, offer->name_bytes) == 0;
}

/* Another session for an object that is interrupted here. */
static int take_up(struct replication *replication, struct peer *peer, const struct message *message,
                   const struct schedule *schedule, const uint32_t ids[])
{
    const struct message_offer *offer = &message->offer;
    bool pull = offer->purpose == OFFER_PULL;
    int rc;

    if (!replication->interrupted || offer->view < replication->node->view.number ||
        (pull && !replication_pulls_from(replication, peer))) {
        refuse(replication->group, peer, message->session, COVEY_PEER_LOST, "a view has come between");
        return 0;
    }
    if (!offers_same(replication, offer) || (pull && offer->members != 2))
        return COVEY_PROTOCOL;
    rc = pull ? replication_take_pull(replication, message->session, schedule, ids)
              : replication_restart(replication, message->session, schedule, ids, offer->purpose);
    if (rc != 0)
        refuse(replication->group, peer, message->session, rc, "no memory for the transfer");
    else
        replication->offered_total = offer->buffers;
    return 0;
}

/* A new object, or one that this node does not have. */
static int take_new(struct covey_group *group, struct peer *peer, const struct message *message,
                    const struct schedule *schedule, const uint32_t ids[])
{
    const struct message_offer *offer = &message->offer;
    struct replication *replication =
        replication_new(group, message->session, schedule, offer->bytes, offer->block_bytes, ids);

    if (replication != NULL)
        replication->offered = calloc(offer->buffers + (size_t)1, sizeof(*replication->offered));
    if (replication == NULL || replication->offered == NULL) {
        if (replication != NULL)
            replication->abandoned = true;
        refuse(group, peer, message->session, COVEY_NO_MEMORY, "no memory or no slot for the transfer");
        return 0;
    }
    replication->purpose = (enum offer_purpose)offer->purpose;
    if (offer->purpose != OFFER_PUT)
        replication->origin = offer->subject;
    memcpy(replication->name, offer->name, offer->name_bytes);
    replication->offered_total = offer->buffers;
    node_event(group->node, "offer", replication->name, "%s offers %s: %llu bytes", peer->name,
               replication->name, (unsigned long long)offer->bytes);
    if (offer->buffers == 0)
        complete_offer(replication);
    return 0;
}

static int take_offer(struct covey_group *group, struct peer *peer, const struct message *message)
{
    const struct message_offer *offer = &message->offer;
    uint32_t ids[COVEY_MEMBERS_MAX];
    struct schedule schedule = {.kind = offer->schedule,
                                .members = offer->members,
                                .blocks = blocks_of(offer->bytes, offer->block_bytes)};
    struct replication *replication = NULL;

    if (!offer_is_sound(group, peer, message, ids) || replication_find(group->node, message->session) != NULL)
        return COVEY_PROTOCOL;
    if (is_outsider(group->node, peer, offer->view)) {
        group->node->counters.strays++;
        refuse(group, peer, message->session, COVEY_EVICTED, "the sender is not in its view");
        return 0;
    }
    if (offer->purpose != OFFER_PUT)
        replication = replication_find_origin(group, offer->subject);
    if (replication != NULL)
        return take_up(replication, peer, message, &schedule, ids);
    if (offer->purpose == OFFER_PULL) {
        refuse(group, peer, message->session, COVEY_CANCELLED, "it was given up");
        return 0;
    }
    return take_new(group, peer, message, &schedule, ids);
}

/* Of an object that is here: nothing new. */
static int compare_manifest(struct replication *replication, const struct message_page *page)
{
    const struct object *object = replication->object;
    struct manifest_entry entry;
    size_t offset = 0;

    while (manifest_take(page, &offset, &entry)) {
        if (entry.bytes != object->buffers[replication->offered_count++].bytes)
            return COVEY_PROTOCOL;
    }
    return 0;
}

static int take_manifest(struct replication *replication, const struct message_page *page)
{
    struct manifest_entry entry;
    size_t offset = 0;

    if (replication->abandoned)
        return 0;
    if (page->first != replication->offered_count ||
        page->count > replication->offered_total - replication->offered_count)
        return COVEY_PROTOCOL;
    if (replication->object != NULL)
        return compare_manifest(replication, page);
    while (manifest_take(page, &offset, &entry)) {
        struct covey_buffer *buffer = &replication->offered[replication->offered_count++];

        *buffer = (struct covey_buffer){
            .bytes = entry.bytes, .memory = (enum covey_memory)entry.memory, .device = entry.device};
        buffer->name = strndup(entry.name, entry.name_bytes);
        if (buffer->name == NULL || entry.bytes > INT64_MAX)
            return COVEY_PROTOCOL;
    }
    if (replication->offered_count == replication->offered_total)
        complete_offer(replication);
    return 0;
}

/* The buffers are known: their names are the object's now. */
void replication_forget_offer(struct replication *replication)
{
    for (uint32_t i = 0; replication->offered != NULL && i < replication->offered_count; i++)
        free((char *)replication->offered[i].name);
    free(replication->offered);
    replication->offered = NULL;
}

/* --- Landing -----------------------------------------------------------------------------------------------
 */

static void landed(struct replication *replication, struct fail *fail)
{
    int rc = fail->code;

    if (rc == 0)
        rc = replication_make_runs(replication, true, true, fail);
    if (rc == 0)
        rc = feed_new(replication, NULL, fail);
    replication->landed = rc == 0;
    if (rc != 0)
        replication_reason(replication, rc, fail->text);
    else
        feed_start_receiver(replication->feed);
    replication_event(replication, (struct session_event){.type = SESSION_LANDED, .code = rc});
}

struct landing_call {
    struct call call;
    struct request request;
    struct covey_group *group;
    uint64_t id;
    struct object *object;
    struct covey_buffer *buffers;
    int result;
    struct fail fail; /* of what it placed */
};

/* Whether the application gave all memory (1), left it to the store (0), or half of it (an error). */
static int placed_by_application(const struct object *object, const struct covey_buffer *buffers,
                                 struct fail *fail)
{
    size_t given = 0, needed = 0;

    for (size_t i = 0; i < object->count; i++) {
        if (object->buffers[i].bytes == 0)
            continue;
        needed++;
        given += buffers[i].base != NULL;
    }
    if (given != 0 && given != needed)
        return fail_set(fail, COVEY_INVALID, "on_landing placed %zu of %zu buffers: place all or none", given,
                        needed);
    return needed != 0 && given == needed;
}

/* Take over the application's memory, if it gave any. */
static int adopt(struct object *object, const struct covey_buffer *buffers, struct fail *fail)
{
    int placed = placed_by_application(object, buffers, fail);

    if (placed <= 0)
        return placed;
    for (size_t i = 0; i < object->count; i++) {
        object->buffers[i].base = buffers[i].base;
        object->buffers[i].memory = buffers[i].memory;
        object->buffers[i].device = buffers[i].device;
    }
    object->lent = true;
    return placed;
}

static void apply_landing(struct replication *replication, const struct landing_call *landing)
{
    struct object *object = replication->object;
    struct fail fail = {0};
    int placed = 0;

    if (landing->fail.code != 0)
        fail = landing->fail;
    else if (landing->result != 0)
        fail_set(&fail, landing->result < 0 ? landing->result : COVEY_REFUSED, "the application refused: %s",
                 covey_strerror(landing->result));
    else
        placed = adopt(object, landing->buffers, &fail);
    if (session_state(replication->session) != SESSION_OFFERED) {
        /* Cancelled meanwhile: what was lent goes back with the object. */
        replication_event(replication,
                          (struct session_event){.type = SESSION_LANDED, .code = COVEY_CANCELLED});
        return;
    }
    if (fail.code == 0 && placed == 0)
        object_place(object, &fail);
    landed(replication, &fail);
}

static void run_landed(struct covey_node *node, struct request *request)
{
    struct landing_call *landing =
        (struct landing_call *)((char *)request - offsetof(struct landing_call, request));
    struct replication *replication = replication_find(node, landing->id);

    replication->landing_called = false;
    apply_landing(replication, landing);
    object_unref(landing->object);
    free(landing->buffers);
    free(landing);
}

/* That the memory is what the application says. In its thread: the driver may make it wait. */
static void check_landing(struct landing_call *landing)
{
    for (size_t i = 0; i < landing->object->count && landing->fail.code == 0; i++) {
        const struct covey_buffer *buffer = &landing->buffers[i];
        const struct memory_ops *memory;

        if (buffer->base == NULL || landing->object->buffers[i].bytes == 0)
            continue;
        if (memory_ops(buffer->memory, &memory, &landing->fail) != 0 ||
            memory->check(buffer->device, buffer->base, landing->object->buffers[i].bytes, &landing->fail) !=
                0)
            fail_prefix(&landing->fail, "on_landing placed buffer %.64s: ", landing->object->buffers[i].name);
    }
}

static void run_landing(struct call *call)
{
    struct landing_call *landing = (struct landing_call *)call;
    const struct object *object = landing->object;
    struct covey_group *group = landing->group;
    struct covey_offer offer = {.name = object->name,
                                .sender = (uint32_t)(landing->id >> 48),
                                .bytes = object->bytes,
                                .count = object->count,
                                .buffers = object->buffers};

    landing->result = group->callbacks.on_landing(group->context, group, &offer, landing->buffers);
    if (landing->result == 0)
        check_landing(landing);
    landing->request.run = run_landed;
    node_submit(group->node, &landing->request);
}

static void ask_application(struct replication *replication)
{
    struct object *object = replication->object;
    struct landing_call *landing = calloc(1, sizeof(*landing));
    struct fail fail = {0};

    if (landing != NULL)
        landing->buffers = malloc((object->count + 1) * sizeof(*landing->buffers));
    if (landing == NULL || landing->buffers == NULL) {
        free(landing);
        fail_set(&fail, COVEY_NO_MEMORY, "no memory to ask the application");
        landed(replication, &fail);
        return;
    }
    memcpy(landing->buffers, object->buffers, object->count * sizeof(*landing->buffers));
    object_ref(object);
    landing->call.run = run_landing;
    landing->group = replication->group;
    landing->id = replication->id;
    landing->object = object;
    replication->landing_called = true;
    node_call(replication->node, &landing->call);
}

void replication_land(struct replication *replication)
{
    struct covey_group *group = replication->group;
    struct fail fail = {0};

    replication->landing = !group->open;
    if (!group->open)
        return;
    if (group->callbacks.on_landing != NULL) {
        ask_application(replication);
        return;
    }
    object_place(replication->object, &fail);
    landed(replication, &fail);
}

void replication_land_waiting(struct covey_group *group)
{
    struct replication *replication, *next;

    HASH_ITER (hh, group->node->replications_by_id, replication, next) {
        if (replication->group == group && replication->landing &&
            session_state(replication->session) == SESSION_OFFERED)
            replication_land(replication);
    }
}

/* --- Receiving ---------------------------------------------------------------------------------------------
 */

static bool grow(struct edge *edge, size_t more)
{
    size_t capacity = edge->count + more;
    struct grant_extent *extents;

    if (capacity <= edge->capacity)
        return true;
    extents = realloc(edge->extents, (capacity + edge->capacity) * sizeof(*extents));
    if (extents == NULL)
        return false;
    edge->extents = extents;
    edge->capacity += capacity;
    return true;
}

static uint64_t edge_end(const struct edge *edge)
{
    return edge->count > 0 ? edge->extents[edge->count - 1].offset + edge->extents[edge->count - 1].bytes : 0;
}

/* Blocks that the peer holds already, before its grant. */
static int take_held(struct replication *replication, uint32_t rank, const struct message_blocks *blocks)
{
    struct edge *edge = &replication->edges[rank];
    uint32_t count = replication->schedule.blocks;
    uint64_t words[MESSAGE_WORDS_MAX];

    if (edge->complete || !replication_take_blocks(blocks, count, words))
        return COVEY_PROTOCOL;
    if (edge->skip == NULL)
        edge->skip = calloc(BITMAP_WORDS(count), sizeof(*edge->skip));
    if (edge->skip == NULL)
        return COVEY_NO_MEMORY;
    memcpy(edge->skip + blocks->first / 64, words, blocks->words * sizeof(*words));
    return 0;
}

static int take_grant(struct replication *replication, uint32_t rank, const struct message_grant *grant)
{
    struct edge *edge = &replication->edges[rank];
    size_t offset = 0;

    if (edge->complete || grant->page.first != edge->count || grant->page.first > COVEY_BUFFERS_MAX)
        return COVEY_PROTOCOL;
    if (!grow(edge, grant->page.count))
        return COVEY_NO_MEMORY;
    edge->slot = grant->slot;
    while (grant_take(&grant->page, &offset, &edge->extents[edge->count])) {
        if (edge->extents[edge->count].offset != edge_end(edge))
            return COVEY_PROTOCOL;
        edge->staged = edge->staged || edge->extents[edge->count].key == GRANT_STAGED_KEY;
        edge->count++;
        if (edge->count == edge->capacity)
            break;
    }
    if (!grant->page.last)
        return 0;
    if (edge_end(edge) != replication->bytes)
        return COVEY_PROTOCOL;
    edge->complete = true;
    replication->staged_peers = replication->staged_peers || edge->staged;
    return replication_event(replication,
                             (struct session_event){.type = SESSION_GRANT, .peer = rank, .skip = edge->skip});
}

/* REFUSE, FAILED, CANCEL: keep the sentence, with who said it. */
static int take_reason(struct replication *replication, uint32_t rank, enum session_event_type type,
                       const struct message_reason *reason)
{
    struct session_event event = {
        .type = type, .peer = rank, .code = reason->code, .culprit = SESSION_NOBODY};
    char text[FAIL_TEXT_MAX];

    for (uint32_t i = 0; i < replication->members; i++) {
        if (replication->ids[i] == reason->culprit)
            event.culprit = i;
    }
    if (type == SESSION_CANCEL)
        snprintf(text, sizeof(text), "%.*s", (int)reason->text_bytes, reason->text);
    else
        snprintf(text, sizeof(text), "%s: %.*s", replication_rank_name(replication, rank),
                 (int)reason->text_bytes, reason->text);
    if (reason->code != COVEY_PEER_STALLED || type == SESSION_CANCEL)
        replication_reason(replication, reason->code, text);
    return replication_event(replication, event);
}

static int take_word(struct replication *replication, uint32_t rank, const struct message *message)
{
    static const enum session_event_type events[] = {
        [MESSAGE_ACCEPT] = SESSION_ACCEPT,      [MESSAGE_START] = SESSION_START,
        [MESSAGE_SEAL] = SESSION_SEAL,          [MESSAGE_RECEIVED] = SESSION_RECEIVED,
        [MESSAGE_DELIVERED] = SESSION_DELIVERY,
    };

    if (message->type == MESSAGE_START)
        replication->moved_ns = replication->node->now_ns;
    if (message->type == MESSAGE_SEAL && replication->purpose != OFFER_PULL) {
        replication->seal = message->digest;
        replication->sealed = true;
    }
    return replication_event(replication,
                             (struct session_event){.type = events[message->type], .peer = rank});
}

/* Its root has given up. While the link was down it could not say so, and the session takes nothing more from
 * it. */
static int take_cancel(struct replication *replication, const struct message_reason *reason)
{
    if (!replication->root_lost)
        return take_reason(replication, 0, SESSION_CANCEL, reason);
    if (!replication->decided && replication_is_whole(replication))
        replication_abort(replication, COVEY_PEER_LOST, "its root gave it up while it was out of reach");
    return 0;
}

/* The root of a session outside the order says that everyone has everything. It may have crossed the end. */
static int take_commit(struct replication *replication, uint32_t rank)
{
    if (rank != 0 || !replication_is_apart(replication))
        return COVEY_PROTOCOL;
    if (replication_is_whole(replication))
        return replication_event(replication, (struct session_event){.type = SESSION_COMMIT});
    return 0;
}

/* For a session that is over here, or never was. Who granted memory waits for a fence; who waits for the word
 * of this root hears that there is none. */
static void answer_late(struct covey_group *group, struct peer *peer, const struct message *message)
{
    bool ours = message->session >> 48 == group->node->options->self.id;

    if (message->type == MESSAGE_GRANT && message->grant.page.last)
        replication_owe_fence(group->node, peer, message->grant.slot);
    else if (message->type == MESSAGE_RECEIVED && ours)
        replication_say(group, peer, MESSAGE_CANCEL, message->session, COVEY_CANCELLED, "it was given up");
}

/* Before the session has begun here its root sends the manifest, or takes it all back. */
static int unbegun_message(struct replication *replication, const struct peer *peer,
                           const struct message *message)
{
    if (peer != replication->peers[0])
        return COVEY_PROTOCOL;
    if (message->type == MESSAGE_CANCEL)
        replication_abandon(replication);
    else if (message->type != MESSAGE_MANIFEST)
        return COVEY_PROTOCOL;
    return message->type == MESSAGE_MANIFEST ? take_manifest(replication, &message->manifest) : 0;
}

int replication_message(struct covey_group *group, struct peer *peer, const struct message *message)
{
    struct replication *replication = replication_find(group->node, message->session);
    uint32_t rank;

    switch (message->type) {
    case MESSAGE_OFFER:
        return take_offer(group, peer, message);
    case MESSAGE_HAVE:
        return replication_take_have(group, peer, message);
    case MESSAGE_FORGET:
        return replication_take_forget(group, peer, message);
    case MESSAGE_WANT:
        return replication_take_want(group, peer, message);
    default:
        break;
    }
    if (replication == NULL || !replication->begun || replication->interrupted) {
        if (replication != NULL && !replication->interrupted && message->type != MESSAGE_GRANT)
            return unbegun_message(replication, peer, message);
        answer_late(group, peer, message);
        return 0;
    }
    rank = replication_rank_of(replication, peer);
    if (rank == SESSION_NOBODY || replication->group != group)
        return COVEY_PROTOCOL;
    switch (message->type) {
    case MESSAGE_HELD:
        return take_held(replication, rank, &message->held);
    case MESSAGE_GRANT:
        return take_grant(replication, rank, &message->grant);
    case MESSAGE_ASK:
        return stage_ask(replication, rank, message->block);
    case MESSAGE_CREDIT:
        return stage_credit(replication, rank, &message->grant);
    case MESSAGE_COMMIT:
        return take_commit(replication, rank);
    case MESSAGE_REFUSE:
        return take_reason(replication, rank, SESSION_REFUSE, &message->reason);
    case MESSAGE_FAILED:
        return take_reason(replication, rank, SESSION_FAILED, &message->reason);
    case MESSAGE_CANCEL:
        return rank == 0 ? take_cancel(replication, &message->reason) : COVEY_PROTOCOL;
    default:
        return take_word(replication, rank, message);
    }
}
