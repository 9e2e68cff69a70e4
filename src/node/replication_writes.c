/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes: what is contiguous in memory, blocks as writes, and what arrives. */

#include <stdlib.h>

#include "base/bitmap.h"
#include "node/feed.h"
#include "node/replication_private.h"
#include "node/stage.h"

/* A write's cookie: slot, rank and block. */
static uint64_t cookie_encode(uint32_t slot, uint32_t rank, uint32_t block)
{
    return (uint64_t)slot << 40 | (uint64_t)rank << 20 | block;
}

/* --- Runs ------------------------------------------------------------------------------------------------
 */

/* The store's regions stay registered while they are mapped. */
static int register_region(struct fabric *fabric, struct region *region, struct fabric_region **registered,
                           struct fail *fail)
{
    int rc = 0;

    if (region->user == NULL)
        rc = fabric_register(fabric, region->base, region->bytes, COVEY_MEMORY_HOST, 0, true,
                             (struct fabric_region **)&region->user, fail);
    *registered = region->user;
    return rc;
}

static int register_run(struct replication *replication, struct run *run, bool remote, struct fail *fail)
{
    struct object *object = replication->object;
    struct fabric *fabric = replication->node->fabric;
    int rc;

    if (object->region != NULL) {
        run->region_offset = (uint64_t)(run->base - (char *)object->region->base);
        return register_region(fabric, object->region, &run->region, fail);
    }
    rc = fabric_register(fabric, run->base, run->bytes, COVEY_MEMORY_HOST, 0, remote, &run->region, fail);
    run->owned = rc == 0;
    return rc;
}

static int run_memory(const struct covey_buffer *buffer, struct run *run, struct fail *fail)
{
    run->device = buffer->device;
    return memory_ops(buffer->memory, &run->memory, fail);
}

/* Whether the buffer goes on where the run ends. */
static bool continues(const struct run *run, const struct covey_buffer *buffer)
{
    return run->base + run->bytes == buffer->base && run->memory->kind == buffer->memory &&
           (run->memory->cpu_visible || run->device == buffer->device);
}

static int merge_runs(const struct object *object, struct run *runs, size_t *out, struct fail *fail)
{
    size_t count = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < object->count; i++) {
        const struct covey_buffer *buffer = &object->buffers[i];

        if (buffer->bytes == 0)
            continue;
        if (count > 0 && continues(&runs[count - 1], buffer)) {
            runs[count - 1].bytes += buffer->bytes;
            continue;
        }
        runs[count] =
            (struct run){.offset = object->offsets[i], .bytes = buffer->bytes, .base = buffer->base};
        rc = run_memory(buffer, &runs[count++], fail);
    }
    *out = count;
    return rc;
}

/* Register what the wire reaches; for the rest there is the staging region. */
static int reach_run(struct replication *replication, struct run *run, bool registered, bool remote,
                     struct fail *fail)
{
    if (run->memory->cpu_visible)
        return registered ? register_run(replication, run, remote, fail) : 0;
    if (replication->staged)
        return 0;
    replication->staged = true;
    return stage_need(replication->node, replication->block_bytes, fail);
}

int replication_make_runs(struct replication *replication, bool registered, bool remote, struct fail *fail)
{
    const struct object *object = replication->object;
    int rc;

    replication->runs = calloc(object->count + 1, sizeof(*replication->runs));
    if (replication->runs == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for the %zu buffers of object %s", object->count,
                        object->name);
    rc = merge_runs(object, replication->runs, &replication->run_count, fail);
    for (size_t i = 0; rc == 0 && i < replication->run_count; i++)
        rc = reach_run(replication, &replication->runs[i], registered, remote, fail);
    if (rc != 0)
        replication_forget_runs(replication);
    return rc;
}

void replication_forget_runs(struct replication *replication)
{
    for (size_t i = 0; i < replication->run_count; i++) {
        if (replication->runs[i].owned)
            fabric_deregister(replication->runs[i].region);
    }
    free(replication->runs);
    replication->runs = NULL;
    replication->run_count = 0;
}

/* The run that holds the byte at offset. */
static size_t run_find(const struct replication *replication, uint64_t offset)
{
    size_t low = 0, high = replication->run_count;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (replication->runs[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

const struct run *replication_run_at(const struct replication *replication, uint64_t offset)
{
    return &replication->runs[run_find(replication, offset)];
}

static const struct grant_extent *extent_find(const struct edge *edge, uint64_t offset)
{
    size_t low = 0, high = edge->count;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (edge->extents[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    return &edge->extents[low];
}

uint64_t replication_block_size(const struct replication *replication, uint32_t block)
{
    uint64_t left = replication->bytes - block * replication->block_bytes;

    return left < replication->block_bytes ? left : replication->block_bytes;
}

bool replication_stages(const struct replication *replication, uint32_t block)
{
    uint64_t offset = block * replication->block_bytes,
             end = offset + replication_block_size(replication, block);
    size_t index;

    if (!replication->staged)
        return false;
    for (index = run_find(replication, offset); index < replication->run_count; index++) {
        const struct run *run = &replication->runs[index];

        if (run->offset >= end)
            break;
        if (!run->memory->cpu_visible)
            return true;
    }
    return false;
}

bool replication_peer_stages(const struct replication *replication, uint32_t rank, uint32_t block)
{
    const struct edge *edge = &replication->edges[rank];
    uint64_t offset = block * replication->block_bytes,
             end = offset + replication_block_size(replication, block);

    if (!edge->staged)
        return false;
    for (const struct grant_extent *extent = extent_find(edge, offset);
         extent < edge->extents + edge->count && extent->offset < end; extent++) {
        if (extent->key == GRANT_STAGED_KEY && extent->bytes > 0)
            return true;
    }
    return false;
}

/* --- Posting ---------------------------------------------------------------------------------------------
 */

/* Gather up to `bytes` from offset. Returns the bytes gathered. */
static uint64_t gather(const struct replication *replication, uint64_t offset, uint64_t bytes,
                       struct fabric_piece pieces[FABRIC_PIECES_MAX], size_t *count)
{
    uint64_t gathered = 0;
    size_t index;

    *count = 0;
    if (bytes == 0)
        return 0;
    for (index = run_find(replication, offset); gathered < bytes && *count < FABRIC_PIECES_MAX; index++) {
        const struct run *run = &replication->runs[index];
        uint64_t skip = offset + gathered - run->offset;
        uint64_t piece = run->bytes - skip;

        if (piece > bytes - gathered)
            piece = bytes - gathered;
        pieces[(*count)++] = (struct fabric_piece){run->base + skip, piece, run->region};
        gathered += piece;
    }
    return gathered;
}

static uint64_t block_offset(const struct replication *replication, const struct posting *posting)
{
    return posting->what.block * replication->block_bytes;
}

/* The range at the peer for what is next of the block, and what its offset counts from: the block, in a
 * credit, or the object. */
static const struct grant_extent *target(const struct replication *replication, const struct posting *posting,
                                         uint64_t *origin)
{
    const struct grant_extent *credited = NULL;

    *origin = block_offset(replication, posting);
    if (posting->departure != NULL)
        credited = stage_target(posting->departure, posting->offset - *origin);
    if (credited != NULL)
        return credited;
    *origin = 0;
    return extent_find(&replication->edges[posting->what.peer], posting->offset);
}

/* One write of the block: as much as one remote range, the device and the pieces allow. */
static int post_write(struct replication *replication)
{
    struct posting *posting = &replication->posting;
    const struct edge *edge = &replication->edges[posting->what.peer];
    uint64_t origin;
    const struct grant_extent *extent = target(replication, posting, &origin);
    uint64_t within = posting->offset - origin - extent->offset;
    uint64_t bytes = posting->end - posting->offset;
    struct fabric_piece pieces[FABRIC_PIECES_MAX];
    struct fabric_write write = {.pieces = pieces,
                                 .remote_address = extent->address + within,
                                 .remote_key = extent->key,
                                 .immediate = FABRIC_IMMEDIATE_NONE};
    int rc;

    if (bytes > extent->bytes - within)
        bytes = extent->bytes - within;
    if (bytes > fabric_limits(replication->node->fabric)->write_bytes)
        bytes = fabric_limits(replication->node->fabric)->write_bytes;
    bytes = posting->departure != NULL && stage_has_slot(posting->departure)
                ? stage_gather(posting->departure, posting->offset - block_offset(replication, posting),
                               bytes, pieces, &write.count)
                : gather(replication, posting->offset, bytes, pieces, &write.count);
    if (posting->offset + bytes == posting->end) {
        write.immediate = immediate_encode(edge->slot, posting->what.block);
        write.signalled = true;
        write.cookie = cookie_encode(replication->slot, posting->what.peer, posting->what.block);
    }
    rc = fabric_write(replication->peers[posting->what.peer]->links[FABRIC_DATA], &write);
    if (rc == 0) {
        posting->offset += bytes;
        posting->active = !write.signalled;
    }
    return rc;
}

/* Whether the whole block is posted. Otherwise the link is full, or going down. */
static bool go_on(struct replication *replication)
{
    struct posting *posting = &replication->posting;
    struct covey_node *node = replication->node;

    while (posting->active) {
        if (!replication->peers[posting->what.peer]->up || post_write(replication) != 0)
            return false;
    }
    session_posted(replication->session, node->now_ns, &posting->what);
    node->counters.sent_blocks++;
    node->counters.sent_bytes += replication_block_size(replication, posting->what.block);
    node->work++;
    return true;
}

bool replication_post_block(struct replication *replication, const struct transfer *what,
                            const struct departure *departure)
{
    uint64_t offset = what->block * replication->block_bytes;

    replication->posting = (struct posting){.active = true,
                                            .what = *what,
                                            .departure = departure,
                                            .offset = offset,
                                            .end = offset + replication_block_size(replication, what->block)};
    return go_on(replication);
}

static int post_fence(struct peer *peer, uint16_t slot, bool signalled, uint64_t cookie)
{
    struct fabric_write write = {
        .immediate = immediate_encode(slot, IMMEDIATE_FENCE), .signalled = signalled, .cookie = cookie};

    return peer->up ? fabric_write(peer->links[FABRIC_DATA], &write) : COVEY_PEER_LOST;
}

static void post_fences(struct replication *replication)
{
    for (uint32_t rank = 0; rank < replication->members; rank++) {
        struct edge *edge = &replication->edges[rank];

        if (edge->fence && post_fence(replication->peers[rank], edge->slot, true,
                                      cookie_encode(replication->slot, rank, IMMEDIATE_FENCE)) == 0)
            edge->fence = false;
    }
}

static bool is_draining(const struct replication *replication)
{
    enum session_state state = session_state(replication->session);

    return state == SESSION_DRAINING || state == SESSION_CLOSED;
}

void replication_post(struct replication *replication)
{
    struct transfer what;

    if (is_draining(replication)) {
        /* A block half posted has no immediate yet: it is dropped, the fence comes behind it. */
        replication->posting.active = false;
        stage_drop(replication);
        post_fences(replication);
        return;
    }
    if (replication->posting.active && !go_on(replication))
        return;
    if (replication->staged || replication->staged_peers) {
        stage_post(replication);
        return;
    }
    while (session_next_write(replication->session, replication->node->now_ns, &what)) {
        if (!replication_post_block(replication, &what, NULL))
            return;
    }
}

/* --- Arriving and done -------------------------------------------------------------------------------------
 */

int replication_arrived(struct covey_node *node, struct peer *peer, uint32_t immediate)
{
    struct session_event event = {.type = SESSION_ARRIVED};
    struct replication *replication;
    uint32_t slot;
    bool staged;
    int rc;

    immediate_decode(immediate, &slot, &event.block);
    replication = node->replications[slot];
    if (replication == NULL || !replication->begun)
        return COVEY_PROTOCOL;
    event.peer = replication_rank_of(replication, peer);
    if (event.peer == SESSION_NOBODY)
        return COVEY_PROTOCOL;
    if (event.block == IMMEDIATE_FENCE) {
        event.type = SESSION_FENCE;
        return replication_event(replication, event);
    }
    staged = event.block < replication->schedule.blocks && replication_stages(replication, event.block);
    if (staged && !stage_expects(replication, event.peer, event.block))
        return COVEY_PROTOCOL;
    rc = replication_event(replication, event);
    if (rc != 0)
        return rc;
    node->counters.received_blocks++;
    node->counters.received_bytes += replication_block_size(replication, event.block);
    bitmap_set(replication->held, event.block);
    if (staged)
        stage_arrived(replication, event.block);
    else
        feed_block(replication->feed, event.block);
    return 0;
}

void replication_written(struct covey_node *node, uint64_t cookie)
{
    struct replication *replication = node->replications[cookie >> 40 & (IMMEDIATE_SLOTS - 1)];
    struct session_event event = {
        .type = SESSION_WRITTEN, .peer = cookie >> 20 & IMMEDIATE_FENCE, .block = cookie & IMMEDIATE_FENCE};

    if (replication == NULL)
        return;
    if (event.block == IMMEDIATE_FENCE)
        event.type = SESSION_FENCED;
    else
        stage_written(replication, event.peer, event.block);
    replication_event(replication, event);
}

/* --- Orphans -----------------------------------------------------------------------------------------------
 */

/* A grant for a session that is over here: its owner waits for a fence before it uses the memory again. */
void replication_owe_fence(struct covey_node *node, struct peer *peer, uint16_t slot)
{
    if (node->orphan_count == node->orphan_capacity) {
        size_t capacity = node->orphan_capacity * 2 + 16;
        struct orphan_fence *orphans = realloc(node->orphans, capacity * sizeof(*orphans));

        if (orphans == NULL) {
            peers_disconnect(node->peers, peer, COVEY_NO_MEMORY, "no memory for a fence to it");
            return;
        }
        node->orphans = orphans;
        node->orphan_capacity = capacity;
    }
    node->orphans[node->orphan_count++] = (struct orphan_fence){peer, slot};
}

void replication_pay_fences(struct covey_node *node)
{
    size_t kept = 0;

    for (size_t i = 0; i < node->orphan_count; i++) {
        struct orphan_fence orphan = node->orphans[i];

        if (post_fence(orphan.peer, orphan.slot, false, 0) == COVEY_AGAIN)
            node->orphans[kept++] = orphan;
    }
    node->orphan_count = kept;
}
