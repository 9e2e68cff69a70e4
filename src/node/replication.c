/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a replication: made, stepped, ended. Its messages are in replication_messages.c, its bytes in
 * replication_writes.c. */

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bitmap.h"
#include "node/feed.h"
#include "node/op.h"
#include "node/replication_private.h"
#include "node/stage.h"

/* Blocks in flight: enough to keep a link full, and no more, for what is in the way of a shared link cannot
 * be put in order again. A fast link wants what it carries in WINDOW_NS. */
#define WINDOW_LEAST   4
#define WINDOW_MOST    8
#define WINDOW_NS      UINT64_C(1000000)

/* What a block may take where nothing stalls: this, and its bytes at 1 MB/s. */
#define BLOCK_NS       UINT64_C(1000000)

/* How long a step may hold up later ones. */
#define OVERTAKE_NS    UINT64_C(50000000)

/* Cost of a block that the wire does not hide, for schedule_choose(). */
#define BLOCK_COST_NS  20000
/* Of one that is staged: it is asked for and copied as well, and whoever relays it does so twice. */
#define STAGED_COST_NS 120000

struct replication *replication_find(const struct covey_node *node, uint64_t id)
{
    struct replication *replication;

    HASH_FIND(hh, node->replications_by_id, &id, sizeof(id), replication);
    return replication;
}

uint32_t replication_rank_of(const struct replication *replication, const struct peer *peer)
{
    for (uint32_t rank = 0; rank < replication->members; rank++) {
        if (replication->peers[rank] == peer)
            return rank;
    }
    return SESSION_NOBODY;
}

const char *replication_rank_name(const struct replication *replication, uint32_t rank)
{
    return rank < replication->members ? node_name(replication->node, replication->ids[rank]) : "nobody";
}

/* --- Made --------------------------------------------------------------------------------------------------
 */

static bool slot_take(struct covey_node *node, struct replication *replication)
{
    for (uint32_t tried = 0; tried < IMMEDIATE_SLOTS; tried++) {
        uint32_t slot = node->slot_next++ % IMMEDIATE_SLOTS;

        if (node->replications[slot] == NULL) {
            node->replications[slot] = replication;
            replication->slot = slot;
            return true;
        }
    }
    return false;
}

/* Room for what one event of each replication can cause. */
static bool followups_reserve(struct covey_node *node)
{
    size_t capacity = 8 * ((size_t)node->replication_count + 1);
    struct followup *ring;

    if (node->followup_capacity >= capacity)
        return true;
    capacity *= 2;
    ring = malloc(capacity * sizeof(*ring));
    if (ring == NULL)
        return false;
    for (size_t i = 0; i < node->followup_count; i++)
        ring[i] = node->followups[(node->followup_first + i) % node->followup_capacity];
    free(node->followups);
    node->followups = ring;
    node->followup_first = 0;
    node->followup_capacity = capacity;
    return true;
}

/* What belongs to one session. */
static void forget_session(struct replication *replication)
{
    for (uint32_t rank = 0; replication->edges != NULL && rank < replication->members; rank++) {
        free(replication->edges[rank].extents);
        free(replication->edges[rank].skip);
    }
    free(replication->ids);
    free(replication->peers);
    free(replication->edges);
    free(replication->session);
    free(replication->actions.list);
    free(replication->skip);
}

static void forget_party(struct replication *replication)
{
    free(replication->party.ids);
    free(replication->party.incarnations);
    free(replication->finish);
    replication->party = (struct party){0};
    replication->finish = NULL;
}

/* The members of this session are those who finish it. Without memory for them it is as if they had gone. */
static void make_party(struct replication *replication)
{
    struct party party = {.members = replication->members};

    party.ids = calloc(party.members, sizeof(*party.ids));
    party.incarnations = calloc(party.members, sizeof(*party.incarnations));
    forget_party(replication);
    if (party.ids == NULL || party.incarnations == NULL)
        party.members = 0;
    for (uint32_t rank = 0; rank < party.members; rank++) {
        const struct peer *peer = replication->peers[rank];

        party.ids[rank] = replication->ids[rank];
        party.incarnations[rank] = peer != NULL ? peer->incarnation : replication->node->incarnation;
    }
    replication->party = party;
}

static void replication_free(struct replication *replication)
{
    struct covey_node *node = replication->node;

    if (replication->slot != IMMEDIATE_SLOTS) {
        node->replications[replication->slot] = NULL;
        node->replication_count--;
        HASH_DELETE(hh, node->replications_by_id, replication);
    }
    stage_forget(replication);
    replication_forget_runs(replication);
    replication_forget_offer(replication);
    if (replication->object != NULL)
        object_unref(replication->object);
    feed_free(replication->feed);
    free(replication->held);
    forget_party(replication);
    forget_session(replication);
    free(replication);
}

static bool allocate_session(struct replication *replication)
{
    size_t members = replication->members;

    replication->ids = calloc(members, sizeof(*replication->ids));
    replication->skip = NULL;
    replication->peers = calloc(members, sizeof(*replication->peers));
    replication->edges = calloc(members, sizeof(*replication->edges));
    replication->session = malloc(session_bytes(&replication->schedule));
    replication->actions.list = calloc(SESSION_ACTIONS_MAX(members), sizeof(*replication->actions.list));
    return replication->ids != NULL && replication->peers != NULL && replication->edges != NULL &&
           replication->session != NULL && replication->actions.list != NULL;
}

static bool replication_allocate(struct replication *replication)
{
    replication->held = calloc(BITMAP_WORDS(replication->schedule.blocks), sizeof(uint64_t));
    return replication->held != NULL && allocate_session(replication) &&
           followups_reserve(replication->node) && slot_take(replication->node, replication);
}

static uint32_t window_of(const struct covey_node *node, uint64_t block_bytes)
{
    uint64_t blocks = node->link_bytes_per_second / (1000000000 / WINDOW_NS) / block_bytes;

    return blocks < WINDOW_LEAST ? WINDOW_LEAST : blocks > WINDOW_MOST ? WINDOW_MOST : (uint32_t)blocks;
}

/* Take part in the session `id` with ids[0..members), the root first. */
static void enter_session(struct replication *replication, uint64_t id, const uint32_t *ids)
{
    struct covey_node *node = replication->node;
    uint32_t window = window_of(node, replication->block_bytes);
    struct session_config config = {.schedule = replication->schedule,
                                    .window = window,
                                    .edge_window = window - 1,
                                    .overtake_ns = OVERTAKE_NS,
                                    .stall_ns = node->options->stall_after_ns,
                                    .block_ns = BLOCK_NS + replication->block_bytes * 1000};

    for (uint32_t rank = 0; rank < replication->members; rank++) {
        replication->ids[rank] = ids[rank];
        replication->peers[rank] = peers_find(node->peers, ids[rank]);
        if (ids[rank] == node->options->self.id)
            config.rank = rank;
    }
    replication->id = id;
    replication->rank = config.rank;
    replication->view = node->view.number;
    HASH_ADD(hh, node->replications_by_id, id, sizeof(replication->id), replication);
    replication->session = session_init(replication->session, &config);
}

/* The members are ids[0..members), the root first. */
struct replication *replication_new(struct covey_group *group, uint64_t id, const struct schedule *schedule,
                                    uint64_t bytes, uint64_t block_bytes, const uint32_t *ids)
{
    struct covey_node *node = group->node;
    struct replication *replication = calloc(1, sizeof(*replication));

    if (replication == NULL)
        return NULL;
    replication->group = group;
    replication->node = node;
    replication->slot = IMMEDIATE_SLOTS;
    replication->origin = id;
    replication->schedule = *schedule;
    replication->members = schedule->members;
    replication->bytes = bytes;
    replication->block_bytes = block_bytes;
    replication->started_ns = node->now_ns;
    if (!replication_allocate(replication)) {
        replication_free(replication);
        return NULL;
    }
    node->replication_count++;
    enter_session(replication, id, ids);
    return replication;
}

int replication_restart(struct replication *replication, uint64_t id, const struct schedule *schedule,
                        const uint32_t *ids, enum offer_purpose purpose)
{
    struct replication before = *replication;

    replication->schedule = *schedule;
    replication->members = schedule->members;
    if (!allocate_session(replication)) {
        forget_session(replication);
        *replication = before;
        return COVEY_NO_MEMORY;
    }
    forget_session(&before);
    stage_end_session(replication);
    HASH_DELETE(hh, replication->node->replications_by_id, replication);
    replication->purpose = purpose;
    replication->begun = replication->interrupted = replication->decided = replication->root_lost = false;
    replication->offered_count = 0;
    replication->moved_ns = 0;
    replication->told_view = 0;
    memset(&replication->fail, 0, sizeof(replication->fail));
    enter_session(replication, id, ids);
    return 0;
}

/* The group's members with this node first and the others in the order of their ranks behind it. */
static uint32_t participants(const struct covey_group *group, uint32_t ids[])
{
    uint32_t sorted[COVEY_MEMBERS_MAX];
    uint32_t count = group_members(group, sorted), self = 0;

    while (sorted[self] != group->node->options->self.id)
        self++;
    for (uint32_t i = 0; i < count; i++)
        ids[i] = sorted[(self + i) % count];
    return count;
}

static void cancel_put(struct covey_op *op)
{
    replication_abort(op->subject, COVEY_CANCELLED, "cancelled by the caller");
}

static bool object_is_out_of_reach(const struct object *object)
{
    for (size_t i = 0; i < object->count; i++) {
        if (object->buffers[i].memory != COVEY_MEMORY_HOST && object->buffers[i].bytes > 0)
            return true;
    }
    return false;
}

int replication_choose(const struct covey_group *group, const struct object *object, uint32_t members,
                       uint64_t fixed_block_bytes, struct schedule *schedule, uint64_t *block_bytes,
                       struct fail *fail)
{
    const struct group_options *options = group->options;
    struct schedule_cost cost = {.block_ns = object_is_out_of_reach(object) ? STAGED_COST_NS : BLOCK_COST_NS,
                                 .bytes_per_second = group->node->link_bytes_per_second};

    if (schedule_choose(object->bytes, members, &cost, options->schedule_auto ? NULL : &options->schedule,
                        fixed_block_bytes, schedule, block_bytes) != 0)
        return fail_set(fail, COVEY_TOO_LARGE, "object %s has %llu bytes, more than can be cut in blocks",
                        object->name, (unsigned long long)object->bytes);
    return 0;
}

/* Where the block size is ours to choose, it is one that passes through the staging region. */
static int fit_staging(const struct covey_group *group, const struct object *object, uint32_t members,
                       struct schedule *schedule, uint64_t *block_bytes, struct fail *fail)
{
    int rc = stage_need(group->node, 0, fail);
    uint64_t most = stage_block_max(group->node), fitting = SCHEDULE_BLOCK_MAX;

    if (rc != 0 || group->options->block_bytes != 0 || *block_bytes <= most)
        return rc;
    while (fitting > most)
        fitting /= 2;
    return replication_choose(group, object, members, fitting, schedule, block_bytes, fail);
}

int replication_put(struct covey_group *group, struct object *object, struct file_source *files,
                    struct covey_op *op, struct fail *fail)
{
    uint32_t ids[COVEY_MEMBERS_MAX];
    uint32_t members = participants(group, ids);
    struct schedule schedule;
    struct replication *replication;
    uint64_t block_bytes;
    int rc = replication_choose(group, object, members, group->options->block_bytes, &schedule, &block_bytes,
                                fail);

    if (rc != 0)
        return rc;
    if (object_is_out_of_reach(object))
        rc = fit_staging(group, object, members, &schedule, &block_bytes, fail);
    if (rc != 0)
        return rc;
    replication =
        replication_new(group, node_next_id(group->node), &schedule, object->bytes, block_bytes, ids);
    if (replication == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory or no slot for the replication of object %s",
                        object->name);
    snprintf(replication->name, sizeof(replication->name), "%s", object->name);
    replication->object = object;
    rc = replication_make_runs(replication, fabric_needs_local(group->node->fabric), false, fail);
    if (rc == 0)
        rc = feed_new(replication, files, fail);
    if (rc != 0) {
        replication->object = NULL;
        replication_free(replication);
        return rc;
    }
    replication->op = op;
    op->subject = replication;
    op->cancel = cancel_put;
    atomic_store(&op->bytes_total, object->bytes);
    group->node->counters.puts++;
    node_event(group->node, "put", object->name,
               "put %s: %llu bytes to %u members, %s in blocks of %llu bytes", object->name,
               (unsigned long long)object->bytes, members, schedule_name(schedule.kind),
               (unsigned long long)block_bytes);
    replication_begin(replication);
    feed_start_root(replication->feed);
    return 0;
}

/* The session learns what is here from sessions before it, or has been read meanwhile. In a pull it takes
 * what the pull shall not bring for being here. */
static void tell_held(struct replication *replication)
{
    const uint64_t *held = replication->skip != NULL ? replication->skip : replication->held;
    uint32_t blocks = replication->schedule.blocks;

    for (uint32_t first = (uint32_t)bitmap_next(held, blocks, 0), end; first < blocks;
         first = (uint32_t)bitmap_next(held, blocks, end)) {
        for (end = first + 1; end < blocks && bitmap_get(held, end);)
            end++;
        replication_event(
            replication, (struct session_event){.type = SESSION_READY, .block = first, .count = end - first});
    }
}

/* The root's blocks are all here: those of the whole, or those that a pull is about. */
static void seal(struct replication *replication)
{
    if (replication->rank == 0 && (replication->digested || replication->purpose == OFFER_PULL))
        replication_event(replication, (struct session_event){.type = SESSION_SEALED});
}

void replication_begin(struct replication *replication)
{
    if (replication->purpose != OFFER_PULL)
        make_party(replication);
    tell_held(replication);
    replication->begun = true;
    replication_event(replication, (struct session_event){.type = SESSION_BEGIN});
    seal(replication);
}

/* --- Why ---------------------------------------------------------------------------------------------------
 */

/* Keep the first sentence: later ones are its consequences. */
void replication_reason(struct replication *replication, int code, const char *text)
{
    if (replication->fail.code == 0)
        fail_set(&replication->fail, code, "%s", text);
}

/* A sentence for what the core found out by itself. */
void replication_explain(struct replication *replication, int code, uint32_t culprit)
{
    char text[FAIL_TEXT_MAX];
    const char *who = replication_rank_name(replication, culprit);

    if (replication->fail.code != 0)
        return;
    if (code == COVEY_PEER_STALLED)
        snprintf(text, sizeof(text), "no progress for %.3g s (stall_after): member %s is stuck",
                 (double)replication->node->options->stall_after_ns / 1e9, who);
    else if (code == COVEY_PEER_LOST)
        snprintf(text, sizeof(text), "member %s was lost", who);
    else if (code == COVEY_CORRUPT)
        snprintf(text, sizeof(text), "what arrived at member %s has another digest than what was sent", who);
    else
        snprintf(text, sizeof(text), "%s: %s", who, covey_strerror(code));
    replication_reason(replication, code, text);
}

/* --- Actions -----------------------------------------------------------------------------------------------
 */

static void learn_rate(struct replication *replication)
{
    struct covey_node *node = replication->node;
    uint64_t passed = node->now_ns - replication->moved_ns;
    uint64_t rate;

    if (replication->purpose != OFFER_PUT || replication->members < 2 ||
        replication->bytes < (UINT64_C(1) << 20) || passed == 0)
        return;
    rate = (uint64_t)((unsigned __int128)replication->bytes * 1000000000 / passed);
    node->link_bytes_per_second = (node->link_bytes_per_second + rate) / 2 + 1;
}

static void op_done(struct replication *replication, int code, uint32_t culprit)
{
    struct covey_node *node = replication->node;
    struct covey_op *op = replication->op;

    if (op == NULL || replication->interrupted || replication_is_apart(replication))
        return;
    if (code != 0) {
        replication_explain(replication, code, culprit);
        node->counters.puts_failed++;
    } else {
        op->outcome.version = replication->object->version;
        op->outcome.digest = replication->object->digest;
        op->outcome.bytes = replication->bytes;
        op->outcome.block_bytes = replication->block_bytes;
        op->outcome.blocks = replication->schedule.blocks;
        snprintf(op->outcome.schedule, sizeof(op->outcome.schedule), "%s",
                 schedule_name(replication->schedule.kind));
        atomic_store(&op->bytes_done, replication->bytes);
    }
    replication->op = NULL;
    op_end(op, code, replication->fail.text);
}

static void deliver(struct replication *replication)
{
    struct covey_node *node = replication->node;
    struct object *object = replication->object;

    object_ref(object);
    store_insert(replication->group->store, object, replication->position, node_realtime_ns());
    node->counters.delivered++;
    node_event(node, "delivered", object->name, "delivered %s version %llu: %llu bytes", object->name,
               (unsigned long long)object->version, (unsigned long long)object->bytes);
}

bool replication_is_apart(const struct replication *replication)
{
    return replication->purpose == OFFER_PULL;
}

void replication_set_aside(struct replication *replication)
{
    struct covey_node *node = replication->node;

    replication->interrupted = true;
    replication->told_view = 0;
    stage_end_session(replication);
    if (replication->purpose == OFFER_PULL) {
        replication_pulled(replication);
        return;
    }
    log_info(&node->log, "group %s: %s is interrupted (%s): it goes on when all are linked again",
             replication->group->options->name, replication->name,
             replication->fail.code != 0 ? replication->fail.text : "a member was lost");
    node_event(node, "interrupted", replication->name, "%s is interrupted: %s", replication->name,
               replication->fail.code != 0 ? replication->fail.text : "a member was lost");
}

/* Who has lost a member and nothing else goes on with those who are left. */
static bool goes_on(const struct replication *replication, int code)
{
    const struct covey_node *node = replication->node;

    if (node->closing || node->anew || (replication->rank != 0 && !replication->landed))
        return false;
    return code == COVEY_PEER_LOST || replication->purpose == OFFER_PULL;
}

static void tell_cancelled(struct replication *replication)
{
    struct covey_node *node = replication->node;

    node->counters.cancelled++;
    log_warning(&node->log, "group %s: put of %s by %s cancelled: %s", replication->group->options->name,
                replication->name, replication_rank_name(replication, 0), replication->fail.text);
    node_event(node, "cancelled", replication->name, "put of %s by %s cancelled: %s", replication->name,
               replication_rank_name(replication, 0), replication->fail.text);
    if (replication->feed != NULL)
        feed_stop(replication->feed);
}

static void release(struct replication *replication, int code)
{
    if (goes_on(replication, code)) {
        replication_set_aside(replication);
        return;
    }
    replication_explain(replication, code != 0 ? code : COVEY_CANCELLED, 0);
    tell_cancelled(replication);
    replication_tell_forgotten(replication);
}

void replication_drop(struct replication *replication, int code, const char *text)
{
    replication->interrupted = false;
    replication->abandoned = !replication->begun;
    memset(&replication->fail, 0, sizeof(replication->fail));
    replication_reason(replication, code, text);
    tell_cancelled(replication);
    replication_tell_forgotten(replication);
    replication->purpose = OFFER_PUT;
    op_done(replication, code, replication->rank);
}

/* Everyone has everything of a session outside the order. */
static void commit_apart(struct replication *replication)
{
    struct message message = {
        .type = MESSAGE_COMMIT, .group = replication->group->index, .session = replication->id};

    for (uint32_t rank = 1; rank < replication->members; rank++)
        node_send(replication->node, replication->peers[rank], &message);
    replication_event(replication, (struct session_event){.type = SESSION_COMMIT});
}

static void disconnect(struct replication *replication, uint32_t rank)
{
    struct peer *peer = replication->peers[rank];

    if (peer != NULL && peer->up)
        peers_disconnect(replication->node->peers, peer, COVEY_PEER_STALLED,
                         "it does not end a cancelled replication");
    else
        replication_event(replication, (struct session_event){.type = SESSION_LOST, .peer = rank});
}

static void verify(struct replication *replication)
{
    learn_rate(replication);
    if (replication->purpose == OFFER_PULL) {
        replication_event(replication, (struct session_event){.type = SESSION_VERIFIED});
        return;
    }
    replication->verify = true;
    replication_check_digest(replication);
}

static void order(struct replication *replication)
{
    if (replication_is_apart(replication)) {
        commit_apart(replication);
        return;
    }
    learn_rate(replication);
    if (replication->op != NULL)
        replication->op->cancel = NULL;
    group_order(replication->group, ORDER_COMMIT, replication->id, NULL);
}

static void perform(struct replication *replication, const struct session_action *action)
{
    switch (action->type) {
    case SESSION_POST_FENCE:
        replication->edges[action->peer].fence = true;
        break;
    case SESSION_LAND:
        if (replication->landed)
            replication_event(replication, (struct session_event){.type = SESSION_LANDED});
        else
            replication_land(replication);
        break;
    case SESSION_VERIFY:
        verify(replication);
        break;
    case SESSION_ORDER:
        order(replication);
        break;
    case SESSION_DELIVER:
        if (!replication_is_apart(replication))
            deliver(replication);
        break;
    case SESSION_DISCONNECT:
        disconnect(replication, action->peer);
        break;
    case SESSION_DONE:
        op_done(replication, action->code, action->culprit);
        break;
    case SESSION_RELEASE:
        release(replication, action->code);
        break;
    default:
        replication_send(replication, action);
        break;
    }
}

/* --- Steps -------------------------------------------------------------------------------------------------
 */

static int step(struct replication *replication, struct session_event event)
{
    int rc;

    event.now_ns = replication->node->now_ns;
    rc = session_step(replication->session, &event, &replication->actions);
    for (size_t i = 0; rc == 0 && i < replication->actions.count; i++)
        perform(replication, &replication->actions.list[i]);
    return rc;
}

static void followup_push(struct covey_node *node, struct replication *replication,
                          struct session_event event)
{
    size_t at = (node->followup_first + node->followup_count) % node->followup_capacity;

    assert(node->followup_count < node->followup_capacity);
    node->followups[at] = (struct followup){replication, event};
    node->followup_count++;
}

int replication_event(struct replication *replication, struct session_event event)
{
    struct covey_node *node = replication->node;
    int rc;

    if (node->stepping) {
        followup_push(node, replication, event);
        return 0;
    }
    node->stepping = true;
    rc = step(replication, event);
    while (node->followup_count > 0) {
        struct followup next = node->followups[node->followup_first];

        node->followup_first = (node->followup_first + 1) % node->followup_capacity;
        node->followup_count--;
        (void)step(next.replication, next.event);
    }
    node->stepping = false;
    return rc;
}

void replication_abort(struct replication *replication, int code, const char *text)
{
    if (replication->interrupted) {
        replication_give_up(replication, code, text);
        return;
    }
    replication_reason(replication, code, text);
    replication_event(replication, (struct session_event){
                                       .type = SESSION_ABORT, .code = code, .culprit = replication->rank});
}

void replication_abort_all(struct covey_node *node, int code, const char *text)
{
    struct replication *replication, *next;

    HASH_ITER (hh, node->replications_by_id, replication, next) {
        if ((replication->begun || replication->interrupted) && !replication->decided &&
            !replication_is_whole(replication))
            replication_abort(replication, code, text);
    }
}

void replication_stop_all(struct covey_node *node, int code, const char *text)
{
    struct replication *replication, *next;

    HASH_ITER (hh, node->replications_by_id, replication, next) {
        if (replication->decided && (!node->closing || group_is_calling(replication->group)))
            continue; /* it is being delivered */
        replication->stopped = true;
        if (replication->feed != NULL)
            feed_stop(replication->feed);
        replication_reason(replication, code, text);
        if (replication->op != NULL)
            op_end(replication->op, replication->fail.code, replication->fail.text);
        replication->op = NULL;
    }
}

void replication_commit(struct replication *replication, uint64_t position)
{
    replication->position = position;
    replication_event(replication, (struct session_event){.type = SESSION_COMMIT});
}

bool replication_is_whole(const struct replication *replication)
{
    return session_state(replication->session) == SESSION_ORDERING;
}

/* Whose root is no member any more nobody will give a place. Everyone concludes that from the view alone,
 * so that either all drop it or none. While the link to a root was down it may have given up and could not
 * say so: it is told again that all is here, and answers if it has. */
static void order_again(struct replication *replication)
{
    const struct node_view *view = &replication->node->view;

    if (replication->rank == 0)
        return; /* what the order has not placed goes on in this view */
    if (!view_has_process(view, replication->party.ids[0], replication->party.incarnations[0]))
        replication_abort(replication, COVEY_PEER_LOST, "its root was lost before it was delivered");
    else if (replication->root_lost)
        replication_send(replication, &(struct session_action){.type = SESSION_SEND_RECEIVED, .peer = 0});
}

void replication_order_again(struct covey_group *group)
{
    struct replication *replication, *next;

    HASH_ITER (hh, group->node->replications_by_id, replication, next) {
        if (replication->group == group && replication->begun && !replication->decided &&
            replication_is_whole(replication) && !replication_is_apart(replication))
            order_again(replication);
    }
}

/* Its root is out of reach, and nobody else will decide what it waits for: what is outside the order, or
 * became whole when the root had left the view. */
static bool is_orphaned(const struct replication *replication)
{
    const struct party *party = &replication->party;

    return replication_is_apart(replication) ||
           !view_has_process(&replication->node->view, party->ids[0], party->incarnations[0]);
}

static void lose(struct replication *replication, uint32_t rank, const char *text)
{
    enum session_state state = session_state(replication->session);

    replication->root_lost = replication->root_lost || rank == 0;
    if (replication->interrupted)
        return;
    if (!replication->begun) {
        if (rank == 0)
            replication_abandon(replication);
        return;
    }
    if (state == SESSION_OFFERED || state == SESSION_MOVING) {
        char sentence[FAIL_TEXT_MAX];

        snprintf(sentence, sizeof(sentence), "member %s was lost: %.400s",
                 replication_rank_name(replication, rank), text);
        replication_reason(replication, COVEY_PEER_LOST, sentence);
    }
    if (replication->posting.active && replication->posting.what.peer == rank)
        replication->posting.active = false;
    replication->edges[rank].fence = false;
    stage_lose(replication, rank);
    replication_event(replication, (struct session_event){.type = SESSION_LOST, .peer = rank});
    if (rank == 0 && replication_is_whole(replication) && !replication->decided && is_orphaned(replication))
        replication_abort(replication, COVEY_PEER_LOST, "its root was lost before it was delivered");
}

/* Its session never begins. What is here of it from sessions before stays. */
void replication_abandon(struct replication *replication)
{
    if (replication->landed)
        replication_set_aside(replication);
    else
        replication->abandoned = true;
}

void replication_peer_down(struct covey_node *node, struct peer *peer, const char *text)
{
    struct replication *replication, *next;

    HASH_ITER (hh, node->replications_by_id, replication, next) {
        uint32_t rank = replication_rank_of(replication, peer);

        replication->told_view = 0; /* what was told may not have come */
        if (rank != SESSION_NOBODY)
            lose(replication, rank, text);
    }
}

/* --- Feed --------------------------------------------------------------------------------------------------
 */

void replication_ready(struct replication *replication, uint64_t offset, uint64_t bytes)
{
    uint32_t first = (uint32_t)(offset / replication->block_bytes);
    uint32_t count = (uint32_t)((bytes + replication->block_bytes - 1) / replication->block_bytes);

    count = count > 0 ? count : 1;
    for (uint32_t i = 0; i < count; i++)
        bitmap_set(replication->held, first + i);
    replication_event(replication,
                      (struct session_event){.type = SESSION_READY, .block = first, .count = count});
}

void replication_digested(struct replication *replication, uint64_t digest)
{
    replication->object->digest = digest;
    replication->digested = true;
    if (replication->rank != 0)
        replication_check_digest(replication);
    else if (replication->begun && replication->purpose != OFFER_PULL)
        seal(replication);
}

void replication_broken(struct replication *replication, const struct fail *fail)
{
    replication_abort(replication, fail->code, fail->text);
    if (!replication->verify)
        return;
    replication->verify = false;
    replication_event(replication, (struct session_event){.type = SESSION_VERIFIED, .code = fail->code});
}

void replication_check_digest(struct replication *replication)
{
    uint64_t digest;

    if (!replication->verify || !feed_digest(replication->feed, &digest))
        return;
    replication->verify = false;
    replication->object->digest = digest;
    replication->digested = true;
    replication_event(replication,
                      (struct session_event){.type = SESSION_VERIFIED,
                                             .code = digest == replication->seal ? 0 : COVEY_CORRUPT});
}

/* --- Turns -------------------------------------------------------------------------------------------------
 */

/* Nothing of it is in flight, nothing more will come. */
static bool is_over(const struct replication *replication)
{
    enum session_state state = session_state(replication->session);
    bool ended = state == SESSION_CLOSED || (state == SESSION_DELIVERED && replication->rank != 0);

    if (!stage_idle(replication))
        return false;
    if (replication->stopped)
        return !replication->landing_called && (replication->feed == NULL || feed_idle(replication->feed));
    if (replication->interrupted)
        return false;
    if (!replication->begun)
        return replication->abandoned && (replication->feed == NULL || feed_idle(replication->feed));
    if (!ended || !session_quiet(replication->session) || replication->posting.active)
        return false;
    for (uint32_t rank = 0; rank < replication->members; rank++) {
        if (replication->edges[rank].fence)
            return false;
    }
    return !replication->landing_called && (replication->feed == NULL || feed_idle(replication->feed));
}

static void show_progress(struct replication *replication)
{
    uint32_t done, total;

    if (replication->op == NULL)
        return;
    session_progress(replication->session, &done, &total);
    if (total > 0)
        atomic_store(&replication->op->bytes_done,
                     (uint64_t)((unsigned __int128)replication->bytes * done / total));
}

/* A view can be installed before all its members are linked to each other, and what is sent to a peer that is
 * not up is lost. So a receiver accepts an offer only when it can reach everyone; its root bounds the wait.
 */
static bool can_begin(const struct replication *replication)
{
    if (replication->begun || replication->abandoned || replication->object == NULL ||
        replication->offered_count < replication->offered_total)
        return false;
    for (uint32_t rank = 0; rank < replication->members; rank++) {
        if (replication->peers[rank] != NULL && !replication->peers[rank]->up)
            return false;
    }
    return true;
}

static void session_turn(struct replication *replication)
{
    if (replication->interrupted) {
        replication_finish_turn(replication);
        return;
    }
    if (can_begin(replication))
        replication_begin(replication);
    if (session_deadline_ns(replication->session) <= replication->node->now_ns)
        replication_event(replication, (struct session_event){.type = SESSION_TICK});
    replication_post(replication);
    show_progress(replication);
}

void replication_turn(struct covey_node *node)
{
    struct replication *replication, *next;

    HASH_ITER (hh, node->replications_by_id, replication, next) {
        if (!replication->stopped)
            session_turn(replication);
        if (!is_over(replication))
            continue;
        if (replication->purpose == OFFER_PULL && !replication->stopped &&
            goes_on(replication, COVEY_PEER_LOST))
            replication_set_aside(replication);
        else
            replication_free(replication);
    }
}

uint64_t replication_deadline_ns(const struct covey_node *node)
{
    uint64_t deadline = UINT64_MAX;

    for (const struct replication *replication = node->replications_by_id; replication != NULL;
         replication = replication->hh.next) {
        if (!replication->stopped && session_deadline_ns(replication->session) < deadline)
            deadline = session_deadline_ns(replication->session);
    }
    return deadline;
}

bool replication_is_under_way(const struct replication *replication)
{
    return (replication->interrupted || session_state(replication->session) < SESSION_DELIVERED) &&
           replication->object != NULL && replication->object->version == 0;
}

void replication_info(const struct replication *replication, struct covey_object_info *info)
{
    uint32_t done, total;

    memset(info, 0, sizeof(*info));
    session_progress(replication->session, &done, &total);
    if (replication->interrupted) {
        total = replication->schedule.blocks;
        done = (uint32_t)bitmap_count(replication->held, total);
    }
    snprintf(info->name, sizeof(info->name), "%s", replication->name);
    info->bytes = replication->bytes;
    info->count = replication->object != NULL ? replication->object->count : replication->offered_total;
    info->state = replication->interrupted ? "interrupted" : replication->rank == 0 ? "sending" : "receiving";
    info->bytes_done = total > 0 ? (uint64_t)((unsigned __int128)replication->bytes * done / total) : 0;
    info->since_ns = node_realtime_ns() - (replication->node->now_ns - replication->started_ns);
}
