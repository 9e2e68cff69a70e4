/* SPDX-License-Identifier: BSD-3-Clause */
#include "node/stage.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "node/copier.h"
#include "node/feed.h"
#include "node/replication_private.h"

/* Blocks that are made ready ahead of their turn: as long as an ASK and its CREDIT take, the link has others.
 */
#define AHEAD          8
/* Blocks that a root reads for nothing but their digest, at once. */
#define DIGESTS        4
/* Ranges in one CREDIT: a slot has more only if its units lie far apart. */
#define CREDIT_EXTENTS 256
/* A peer that asks for more at once has lost count. */
#define ASKS_MAX       64

struct stage {
    struct covey_node *node;
    char *base;
    size_t bytes;
    bool lent, pin_told;
    struct fabric_region *region;
    struct staging *slots;
    struct copier *copier;
    struct stage_usage usage;
};

/* A block that a peer sends into a slot here. */
struct arrival {
    struct staging_want want; /* first: the queue knows this */
    struct replication *replication;
    uint32_t rank;
    struct staging_slot *slot; /* once the peer has credit */
    bool copying;
    struct arrival *next;
};

/* A block that is sent from here, or (digest) only read. */
struct departure {
    struct staging_want want; /* first */
    struct replication *replication;
    struct transfer what;
    struct staging_slot *slot;    /* NULL: it is not there yet, or sent from where it belongs */
    struct grant_extent *extents; /* of the CREDIT; NULL: as the grant says */
    size_t extent_count;
    bool digest;
    bool begun;    /* its part here is there or on its way */
    bool ready;    /* its part here is there */
    bool copying;  /* on its way */
    bool credited; /* the peer's part is there */
    bool posted;
    bool dropped; /* wanted no more: goes when the copy is done */
    struct departure *next;
};

/* --- The region ----------------------------------------------------------------------------------------- */

static void wake(void *context)
{
    struct covey_node *node = context;

    uv_async_send(&node->wake);
}

static int region_map(struct stage *stage, size_t bytes, struct fail *fail)
{
    const struct memory_ops *host;
    void *base;
    int rc = memory_ops(COVEY_MEMORY_HOST, &host, fail);

    if (rc == 0)
        rc = host->allocate(0, bytes, &base, fail);
    if (rc != 0)
        return fail_prefix(fail, "staging.size: ");
    stage->base = base;
    return 0;
}

static void region_unmap(struct stage *stage)
{
    const struct memory_ops *host;
    struct fail fail;

    if (!stage->lent && stage->base != NULL && memory_ops(COVEY_MEMORY_HOST, &host, &fail) == 0)
        host->release(0, stage->base, stage->bytes);
}

static void stage_free(struct stage *stage)
{
    if (stage->copier != NULL)
        copier_close(stage->copier);
    if (stage->region != NULL)
        fabric_deregister(stage->region);
    region_unmap(stage);
    free(stage->slots);
    free(stage);
}

/* base: NULL for memory of our own. */
static int stage_open(struct covey_node *node, void *base, size_t bytes, struct fail *fail)
{
    struct stage *stage = calloc(1, sizeof(*stage));
    void *slots = malloc(staging_memory(bytes));
    int rc = 0;

    if (stage == NULL || slots == NULL) {
        free(slots);
        free(stage);
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for a staging region");
    }
    stage->node = node;
    stage->bytes = bytes;
    stage->lent = base != NULL;
    stage->base = base;
    stage->slots = staging_init(slots, bytes);
    if (base == NULL)
        rc = region_map(stage, bytes, fail);
    if (rc == 0)
        rc = fabric_register(node->fabric, stage->base, bytes, COVEY_MEMORY_HOST, 0, true, &stage->region,
                             fail);
    if (rc == 0)
        rc = copier_open(stage->base, bytes, wake, node, &stage->copier, fail);
    if (rc != 0) {
        stage_free(stage);
        return rc;
    }
    node->stage = stage;
    log_info(&node->log, "staging: %zu bytes, %s", bytes, stage->lent ? "lent by the application" : "taken");
    return 0;
}

int stage_lend(struct covey_node *node, void *base, size_t bytes, struct fail *fail)
{
    if (node->stage != NULL)
        return fail_set(
            fail, COVEY_EXISTS,
            "this node has a staging region already: lend one before the first object in device memory");
    if (base == NULL || bytes < 2 * STAGING_UNIT_MIN)
        return fail_set(fail, COVEY_INVALID,
                        "a staging region has room for two blocks at least: %llu bytes, not %zu",
                        (unsigned long long)(2 * STAGING_UNIT_MIN), bytes);
    return stage_open(node, base, bytes, fail);
}

void stage_close(struct covey_node *node)
{
    if (node->stage != NULL)
        stage_free(node->stage);
    node->stage = NULL;
}

uint64_t stage_block_max(const struct covey_node *node)
{
    return node->stage != NULL ? staging_block_max(node->stage->slots) : 0;
}

int stage_need(struct covey_node *node, uint64_t block_bytes, struct fail *fail)
{
    int rc = 0;

    if (node->stage == NULL)
        rc = stage_open(node, NULL, node->options->staging_bytes, fail);
    if (rc == 0 && block_bytes > stage_block_max(node))
        rc = fail_set(
            fail, COVEY_TOO_LARGE,
            "blocks of %llu bytes do not pass through a staging region of %zu bytes, which has room for "
            "two of %llu: enlarge it (staging.size, covey_node_lend_staging) or lower groups.block",
            (unsigned long long)block_bytes, node->stage->bytes, (unsigned long long)stage_block_max(node));
    return rc;
}

static void tell_pinning(struct stage *stage)
{
    struct fail fail;
    int rc;

    if (stage->pin_told)
        return;
    rc = copier_pinned(stage->copier, &fail);
    stage->pin_told = rc != COVEY_AGAIN;
    stage->usage.pinned = rc == 0;
    if (rc != 0 && rc != COVEY_AGAIN)
        log_warning(&stage->node->log, "staging: copies will be slow: %s", fail.text);
}

/* --- Copies --------------------------------------------------------------------------------------------- */

/* Names the replication's blocks in the region, through all sessions that bring its object. */
static uint64_t key_of(const struct replication *replication)
{
    return (uint64_t)(uintptr_t)replication;
}

/* Cut the block where the slot or the memory is not contiguous. pieces: NULL to count only. */
static size_t cut(const struct replication *replication, const struct staging_slot *slot, uint32_t block,
                  struct copy_piece *pieces)
{
    const struct stage *stage = replication->node->stage;
    uint64_t offset = block * replication->block_bytes;
    uint64_t end = offset + replication_block_size(replication, block), place, room;
    uint32_t cursor = 0;
    size_t count = 0;

    while (offset < end && staging_extent(stage->slots, slot, &cursor, &place, &room)) {
        char *host = stage->base + place;

        while (offset < end && room > 0) {
            const struct run *run = replication_run_at(replication, offset);
            uint64_t skip = offset - run->offset, bytes = run->bytes - skip;

            bytes = bytes < room ? bytes : room;
            bytes = bytes < end - offset ? bytes : end - offset;
            if (pieces != NULL)
                pieces[count] =
                    (struct copy_piece){run->memory, run->device, run->base + skip, host, bytes, NULL};
            count++;
            host += bytes;
            offset += bytes;
            room -= bytes;
        }
    }
    return count;
}

/* Begin a copy; false without memory, and the replication is on its way to an end. */
static bool copy(struct replication *replication, const struct staging_slot *slot, uint32_t block, bool store,
                 void (*done)(struct copier_job *job), void *owner)
{
    size_t count = cut(replication, slot, block, NULL);
    struct copier_job *job = calloc(1, sizeof(*job) + count * sizeof(job->pieces[0]));
    struct fail fail = {0};

    if (job == NULL) {
        fail_set(&fail, COVEY_NO_MEMORY, "no memory for a copy of object %s", replication->name);
        replication_broken(replication, &fail);
        return false;
    }
    job->store = store;
    job->offset = block * replication->block_bytes;
    job->leaves = replication->feed != NULL ? feed_claim(replication->feed, block) : NULL;
    job->done = done;
    job->owner = owner;
    job->count = cut(replication, slot, block, job->pieces);
    replication->copies++;
    copier_submit(replication->node->stage->copier, job);
    return true;
}

/* `rank` is who waits for a block that was to be sent: once the session's fate is the order's, it alone is
 * failed. Until then all are, and for good if a block is not in its place. */
static void copy_failed(struct replication *replication, const struct fail *fail, uint32_t rank)
{
    enum session_state state = session_state(replication->session);
    bool fails_alone = state == SESSION_ORDERING || state == SESSION_DELIVERED;

    if (rank == SESSION_NOBODY || !fails_alone)
        replication_broken(replication, fail);
    else if (replication->peers[rank]->up)
        peers_disconnect(replication->node->peers, replication->peers[rank], fail->code, fail->text);
}

static void copied(struct replication *replication, const struct copier_job *job, uint32_t rank)
{
    uint32_t block = (uint32_t)(job->offset / replication->block_bytes);
    struct stage_usage *usage = &replication->node->stage->usage;

    replication->copies--;
    replication->node->work++;
    *(job->store ? &usage->stored_bytes : &usage->loaded_bytes) += replication_block_size(replication, block);
    if (job->fail.code != 0)
        copy_failed(replication, &job->fail, rank);
    else if (job->leaves != NULL)
        feed_claimed(replication->feed);
}

void stage_take_done(struct covey_node *node)
{
    struct copier_job *job;

    if (node->stage == NULL)
        return;
    tell_pinning(node->stage);
    job = copier_take(node->stage->copier);
    while (job != NULL) {
        struct copier_job *next = job->next;

        job->done(job);
        free(job);
        job = next;
    }
}

/* --- Arrivals ------------------------------------------------------------------------------------------- */

static struct arrival *arrival_find(const struct replication *replication, uint32_t block)
{
    struct arrival *arrival = replication->arrivals;

    while (arrival != NULL && arrival->want.block != block)
        arrival = arrival->next;
    return arrival;
}

static void arrival_free(struct arrival *arrival)
{
    struct replication *replication = arrival->replication;
    struct staging *slots = replication->node->stage->slots;
    struct arrival **link = &replication->arrivals;

    while (*link != arrival)
        link = &(*link)->next;
    *link = arrival->next;
    staging_withdraw(slots, &arrival->want);
    if (arrival->slot != NULL)
        staging_release(slots, arrival->slot);
    free(arrival);
}

static size_t asked_by(const struct replication *replication, uint32_t rank)
{
    size_t count = 0;

    for (const struct arrival *arrival = replication->arrivals; arrival != NULL; arrival = arrival->next)
        count += arrival->rank == rank && !arrival->copying;
    return count;
}

int stage_ask(struct replication *replication, uint32_t rank, uint32_t block)
{
    struct arrival *arrival;

    if (session_state(replication->session) != SESSION_MOVING)
        return 0; /* it crossed the CANCEL */
    if (!session_awaits(replication->session, rank, block) || !replication_stages(replication, block) ||
        arrival_find(replication, block) != NULL || asked_by(replication, rank) >= ASKS_MAX)
        return COVEY_PROTOCOL;
    arrival = calloc(1, sizeof(*arrival));
    if (arrival == NULL)
        return COVEY_NO_MEMORY;
    arrival->want = (struct staging_want){.side = STAGING_IN,
                                          .session = key_of(replication),
                                          .block = block,
                                          .bytes = replication_block_size(replication, block)};
    arrival->replication = replication;
    arrival->rank = rank;
    arrival->next = replication->arrivals;
    replication->arrivals = arrival;
    staging_ask(replication->node->stage->slots, &arrival->want);
    return 0;
}

static void give_credit(struct arrival *arrival, struct staging_slot *slot)
{
    struct replication *replication = arrival->replication;
    struct stage *stage = replication->node->stage;
    struct message message = {
        .type = MESSAGE_CREDIT, .group = replication->group->index, .session = replication->id};
    struct message_page *page = &message.grant.page;
    uint8_t data[MESSAGE_PAGE_MAX];
    uint64_t place, room, key, address, offset = 0;
    uint32_t cursor = 0;

    arrival->slot = slot;
    stage->usage.credits++;
    fabric_region_remote(stage->region, &address, &key);
    message.grant.slot = (uint16_t)replication->slot;
    *page = (struct message_page){.first = slot->block, .data = data};
    while (!page->last) {
        page->count = 0;
        page->data_bytes = 0;
        while (page->count < CREDIT_EXTENTS && staging_extent(stage->slots, slot, &cursor, &place, &room)) {
            struct grant_extent extent = {offset, room, address + place, key};

            page->data_bytes += grant_put(data, page->data_bytes, sizeof(data), &extent);
            page->count++;
            offset += room;
        }
        page->last = cursor == slot->units;
        node_send(replication->node, replication->peers[arrival->rank], &message);
    }
}

bool stage_expects(const struct replication *replication, uint32_t rank, uint32_t block)
{
    const struct arrival *arrival = arrival_find(replication, block);

    return arrival != NULL && arrival->rank == rank && arrival->slot != NULL && !arrival->copying;
}

static void stored(struct copier_job *job)
{
    struct arrival *arrival = job->owner;
    struct replication *replication = arrival->replication;

    arrival_free(arrival);
    copied(replication, job, SESSION_NOBODY);
}

void stage_arrived(struct replication *replication, uint32_t block)
{
    struct arrival *arrival = arrival_find(replication, block);

    staging_fill(arrival->slot);
    arrival->copying = copy(replication, arrival->slot, block, true, stored, arrival);
    if (!arrival->copying)
        arrival_free(arrival);
}

/* --- Departures ----------------------------------------------------------------------------------------- */

static struct departure *departure_find(const struct replication *replication, uint32_t rank, uint32_t block)
{
    struct departure *departure = replication->departures;

    while (departure != NULL &&
           (departure->what.peer != rank || departure->what.block != block || departure->digest))
        departure = departure->next;
    return departure;
}

static void departure_free(struct departure *departure)
{
    struct replication *replication = departure->replication;
    struct stage *stage = replication->node->stage;
    struct departure **link = &replication->departures;

    while (*link != departure)
        link = &(*link)->next;
    *link = departure->next;
    if (stage != NULL)
        staging_withdraw(stage->slots, &departure->want);
    if (departure->slot != NULL)
        staging_release(stage->slots, departure->slot);
    free(departure->extents);
    free(departure);
}

/* Now, or when its copy is done. */
static void departure_drop(struct departure *departure)
{
    departure->dropped = true;
    if (!departure->copying)
        departure_free(departure);
}

static struct departure *departure_new(struct replication *replication, const struct transfer *what,
                                       bool digest)
{
    struct departure *departure = calloc(1, sizeof(*departure));
    struct departure **last = &replication->departures;
    struct fail fail = {0};

    if (departure == NULL) {
        fail_set(&fail, COVEY_NO_MEMORY, "no memory to send object %s", replication->name);
        replication_broken(replication, &fail);
        return NULL;
    }
    departure->want = (struct staging_want){.side = STAGING_OUT,
                                            .session = key_of(replication),
                                            .block = what->block,
                                            .bytes = replication_block_size(replication, what->block)};
    departure->replication = replication;
    departure->what = *what;
    departure->digest = digest;
    while (*last != NULL)
        last = &(*last)->next;
    *last = departure;
    return departure;
}

/* Ask the peer, now that this side has what it needs. */
static void ask_peer(struct departure *departure)
{
    struct replication *replication = departure->replication;
    struct message message = {.type = MESSAGE_ASK,
                              .group = replication->group->index,
                              .session = replication->id,
                              .block = departure->what.block};

    departure->begun = true;
    departure->credited = departure->digest ||
                          !replication_peer_stages(replication, departure->what.peer, departure->what.block);
    if (departure->credited)
        return;
    replication->node->asks++;
    node_send(replication->node, replication->peers[departure->what.peer], &message);
}

static void loaded(struct copier_job *job)
{
    struct departure *departure = job->owner;
    struct replication *replication = departure->replication;
    uint32_t rank = departure->what.peer;

    departure->copying = false;
    departure->ready = job->fail.code == 0;
    if (departure->ready)
        staging_fill(departure->slot);
    if (departure->digest || departure->dropped || !departure->ready)
        departure_free(departure);
    copied(replication, job, rank);
}

static void load(struct departure *departure, struct staging_slot *slot)
{
    departure->slot = slot;
    departure->copying = copy(departure->replication, slot, departure->what.block, false, loaded, departure);
    if (departure->copying)
        ask_peer(departure);
    else
        departure_free(departure);
}

/* What the block needs here: nothing, a slot that it is in, or one to be copied to. */
static void departure_begin(struct departure *departure)
{
    struct replication *replication = departure->replication;
    struct stage *stage = replication->node->stage;
    struct staging_slot *slot;

    if (!departure->digest && !replication_stages(replication, departure->what.block)) {
        departure->ready = true;
        ask_peer(departure);
        return;
    }
    slot = staging_find(stage->slots, key_of(replication), departure->what.block);
    if (slot != NULL && !departure->digest && staging_send_on(stage->slots, slot)) {
        staging_withdraw(stage->slots, &departure->want);
        departure->slot = slot;
        departure->ready = true;
        stage->usage.sent_on_bytes += departure->want.bytes;
        ask_peer(departure);
    } else if (arrival_find(replication, departure->what.block) == NULL && !departure->want.waiting) {
        staging_ask(stage->slots, &departure->want);
    } /* else it is on its way to where it would be read from */
}

static uint64_t credited_bytes(const struct departure *departure)
{
    const struct grant_extent *last = &departure->extents[departure->extent_count - 1];

    return departure->extent_count > 0 ? last->offset + last->bytes : 0;
}

int stage_credit(struct replication *replication, uint32_t rank, const struct message_grant *credit)
{
    struct departure *departure = departure_find(replication, rank, credit->page.first);
    struct grant_extent *extents, extent;
    size_t offset = 0;

    if (departure == NULL)
        return 0; /* dropped: the slot is free again when the session is over there */
    if (departure->credited || !departure->begun || credit->slot != replication->edges[rank].slot)
        return COVEY_PROTOCOL;
    extents = realloc(departure->extents, (departure->extent_count + credit->page.count) * sizeof(*extents));
    if (extents == NULL)
        return COVEY_NO_MEMORY;
    departure->extents = extents;
    while (grant_take(&credit->page, &offset, &extent)) {
        if (extent.offset != credited_bytes(departure) || extent.key == GRANT_STAGED_KEY)
            return COVEY_PROTOCOL;
        extents[departure->extent_count++] = extent;
    }
    departure->credited = credit->page.last;
    return !departure->credited || credited_bytes(departure) >= departure->want.bytes ? 0 : COVEY_PROTOCOL;
}

static size_t unposted(const struct replication *replication)
{
    size_t count = 0;

    for (const struct departure *departure = replication->departures; departure != NULL;
         departure = departure->next)
        count += !departure->posted;
    return count;
}

/* A root whose object is all sent takes the digests of what nobody needed, and of what never passed. */
static void read_rest(struct replication *replication)
{
    uint32_t done, total, block;

    session_progress(replication->session, &done, &total);
    if (replication->rank != 0 || !replication->staged || done < total)
        return;
    while (unposted(replication) < DIGESTS && feed_unclaimed(replication->feed, &block)) {
        struct transfer what = {.peer = SESSION_NOBODY, .block = block};
        struct departure *departure = departure_new(replication, &what, true);

        if (departure == NULL)
            return;
        departure->begun = true;
        staging_ask(replication->node->stage->slots, &departure->want);
    }
}

static void look_ahead(struct replication *replication)
{
    struct transfer next[AHEAD];
    size_t count = session_upcoming(replication->session, next, AHEAD);

    for (size_t i = 0; i < count; i++) {
        if (departure_find(replication, next[i].peer, next[i].block) == NULL &&
            departure_new(replication, &next[i], false) == NULL)
            return;
    }
}

void stage_post(struct replication *replication)
{
    struct departure *departure, *next;

    look_ahead(replication);
    read_rest(replication);
    for (departure = replication->departures; departure != NULL; departure = next) {
        next = departure->next;
        if (!departure->begun)
            departure_begin(departure);
        if (!departure->ready || !departure->credited || departure->posted || departure->dropped ||
            !session_can_post(replication->session, &departure->what))
            continue;
        departure->posted = true;
        if (!replication_post_block(replication, &departure->what, departure))
            return;
    }
}

/* A block that is half posted is read until its fence is done. */
void stage_drop(struct replication *replication)
{
    struct departure *next;

    for (struct departure *departure = replication->departures; departure != NULL; departure = next) {
        next = departure->next;
        if (!departure->posted && !departure->dropped)
            departure_drop(departure);
    }
}

void stage_written(struct replication *replication, uint32_t rank, uint32_t block)
{
    struct departure *departure = departure_find(replication, rank, block);

    if (departure != NULL && departure->posted)
        departure_free(departure);
}

uint64_t stage_gather(const struct departure *departure, uint64_t offset, uint64_t bytes,
                      struct fabric_piece pieces[FABRIC_PIECES_MAX], size_t *count)
{
    const struct stage *stage = departure->replication->node->stage;
    uint64_t place, room, begin = 0, gathered = 0;
    uint32_t cursor = 0;

    *count = 0;
    while (gathered < bytes && *count < FABRIC_PIECES_MAX &&
           staging_extent(stage->slots, departure->slot, &cursor, &place, &room)) {
        uint64_t skip = offset + gathered - begin;

        if (skip < room) {
            uint64_t piece = room - skip < bytes - gathered ? room - skip : bytes - gathered;

            pieces[(*count)++] = (struct fabric_piece){stage->base + place + skip, piece, stage->region};
            gathered += piece;
        }
        begin += room;
    }
    return gathered;
}

bool stage_has_slot(const struct departure *departure)
{
    return departure->slot != NULL;
}

const struct grant_extent *stage_target(const struct departure *departure, uint64_t offset)
{
    for (size_t i = 0; i < departure->extent_count; i++) {
        const struct grant_extent *extent = &departure->extents[i];

        if (offset < extent->offset + extent->bytes)
            return extent;
    }
    return NULL;
}

/* --- Both ----------------------------------------------------------------------------------------------- */

void stage_serve(struct covey_node *node)
{
    struct staging_want *want;
    struct staging_slot *slot;

    if (node->stage == NULL)
        return;
    while ((slot = staging_serve(node->stage->slots, STAGING_IN, &want)) != NULL)
        give_credit((struct arrival *)want, slot);
    while ((slot = staging_serve(node->stage->slots, STAGING_OUT, &want)) != NULL)
        load((struct departure *)want, slot);
}

void stage_lose(struct replication *replication, uint32_t rank)
{
    struct departure *departure, *next_departure;
    struct arrival *arrival, *next_arrival;

    for (departure = replication->departures; departure != NULL; departure = next_departure) {
        next_departure = departure->next;
        if (departure->what.peer == rank && !departure->dropped)
            departure_drop(departure);
    }
    for (arrival = replication->arrivals; arrival != NULL; arrival = next_arrival) {
        next_arrival = arrival->next;
        if (arrival->rank == rank && !arrival->copying)
            arrival_free(arrival);
    }
}

bool stage_idle(const struct replication *replication)
{
    return replication->copies == 0;
}

void stage_end_session(struct replication *replication)
{
    struct departure *departure, *next_departure;
    struct arrival *arrival, *next_arrival;

    for (departure = replication->departures; departure != NULL; departure = next_departure) {
        next_departure = departure->next;
        departure_drop(departure);
    }
    for (arrival = replication->arrivals; arrival != NULL; arrival = next_arrival) {
        next_arrival = arrival->next;
        if (!arrival->copying)
            arrival_free(arrival);
    }
    replication->staged_peers = false;
}

void stage_forget(struct replication *replication)
{
    stage_end_session(replication);
    assert(replication->arrivals == NULL && replication->departures == NULL);
    if (replication->node->stage != NULL)
        staging_forget(replication->node->stage->slots, key_of(replication));
}

void stage_usage(const struct covey_node *node, struct stage_usage *usage)
{
    *usage = (struct stage_usage){0};
    if (node->stage != NULL) {
        *usage = node->stage->usage;
        usage->lent = node->stage->lent;
        staging_usage(node->stage->slots, &usage->region);
    }
    usage->asks = node->asks;
}
