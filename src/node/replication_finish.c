/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects whose session was broken off, on their way to the end (core/finish.h): who has what of them, and
 * the session that brings the rest. */

#include "core/finish.h"

#include <stdlib.h>
#include <string.h>

#include "base/bitmap.h"
#include "node/feed.h"
#include "node/replication_private.h"

static const char lacking[] = "those who are left do not have all of it together";

struct replication *replication_find_origin(const struct covey_group *group, uint64_t origin)
{
    struct replication *replication = group->node->replications_by_id;

    while (replication != NULL && (replication->group != group || replication->origin != origin ||
                                   replication->abandoned || replication->stopped))
        replication = replication->hh.next;
    return replication;
}

/* --- The party ---------------------------------------------------------------------------------------------
 */

static void find_present(const struct replication *replication, uint64_t *present)
{
    const struct party *party = &replication->party;

    bitmap_clear_all(present, party->members);
    for (uint32_t rank = 0; rank < party->members; rank++) {
        if (view_has_process(&replication->node->view, party->ids[rank], party->incarnations[rank]))
            bitmap_set(present, rank);
    }
}

/* The rank of a node in the party; members if it has none. */
static uint32_t party_rank(const struct party *party, uint32_t id)
{
    uint32_t rank = 0;

    while (rank < party->members && party->ids[rank] != id)
        rank++;
    return rank;
}

/* The one who coordinates in this node's view; UINT32_MAX if nobody of the party is left. */
static uint32_t coordinator(const struct replication *replication)
{
    uint64_t present[BITMAP_WORDS(COVEY_MEMBERS_MAX)];
    uint32_t rank;

    find_present(replication, present);
    rank = finish_coordinator(present, replication->party.members);
    return rank < replication->party.members ? replication->party.ids[rank] : UINT32_MAX;
}

/* Whether this node put the object. */
static bool is_root(const struct replication *replication)
{
    return replication->origin >> 48 == replication->node->options->self.id && !replication->landed;
}

static struct finish *finish_of(struct replication *replication)
{
    uint32_t members = replication->party.members, blocks = replication->schedule.blocks;

    if (replication->finish == NULL && members > 0) {
        void *memory = malloc(finish_bytes(members, blocks));

        if (memory != NULL)
            replication->finish = finish_init(memory, members, blocks);
    }
    return replication->finish;
}

/* --- What is here ------------------------------------------------------------------------------------------
 */

static void send_have(struct replication *replication, struct peer *peer, bool asks)
{
    struct message message = {
        .type = MESSAGE_HAVE, .group = replication->group->index, .session = replication->origin};
    struct message_have *have = &message.have;

    have->view = replication->node->view.number;
    have->asks = asks;
    have->sealed = replication->sealed || (is_root(replication) && replication->digested);
    have->digest = !have->sealed ? 0 : is_root(replication) ? replication->object->digest : replication->seal;
    if (asks) {
        have->last = true;
        node_send(replication->node, peer, &message);
        return;
    }
    replication_send_blocks(replication, peer, &message, &have->blocks, &have->last, replication->held);
}

static void ask_party(struct replication *replication, const uint64_t *present)
{
    BITMAP_EACH(rank, present, replication->party.members)
    {
        struct peer *peer = peers_find(replication->node->peers, replication->party.ids[rank]);

        if (peer != NULL)
            send_have(replication, peer, true);
    }
}

/* A view in which all are linked: say what is here, or ask what the others have. */
static void announce(struct replication *replication)
{
    struct covey_node *node = replication->node;
    uint32_t id = coordinator(replication);
    uint64_t present[BITMAP_WORDS(COVEY_MEMBERS_MAX)];

    replication->told_view = node->view.number;
    replication->told_ns = node->now_ns;
    if (id != node->options->self.id) {
        struct peer *peer = peers_find(node->peers, id);

        if (peer != NULL)
            send_have(replication, peer, false);
        return;
    }
    if (finish_of(replication) == NULL)
        return;
    find_present(replication, present);
    finish_open(replication->finish, node->view.number, present);
    ask_party(replication, present);
}

int replication_take_have(struct covey_group *group, struct peer *peer, const struct message *message)
{
    const struct message_have *have = &message->have;
    struct replication *replication = replication_find_origin(group, message->session);
    uint64_t words[MESSAGE_WORDS_MAX];
    uint32_t rank;

    if (replication == NULL || (!replication->begun && !replication->landed)) {
        replication_say(group, peer, MESSAGE_FORGET, message->session, COVEY_CANCELLED,
                        "it was given up, or never began there");
        return 0;
    }
    if (have->sealed && !replication->sealed && !is_root(replication)) {
        replication->seal = have->digest;
        replication->sealed = true;
    }
    if (finish_of(replication) == NULL)
        return 0;
    if (have->asks) {
        /* Whole here, while the one who asked for its place has begun anew. */
        if (replication->root_lost && !replication->decided && replication_is_whole(replication))
            replication_abort(replication, COVEY_PEER_LOST, "its root was out of reach");
        return 0;
    }
    rank = party_rank(&replication->party, peer->id);
    if (rank == replication->party.members)
        return 0;
    if (!replication_take_blocks(&have->blocks, replication->schedule.blocks, words))
        return COVEY_PROTOCOL;
    finish_have(replication->finish, have->view, rank, words, have->blocks.first, have->blocks.words,
                have->last);
    return 0;
}

int replication_take_forget(struct covey_group *group, struct peer *peer, const struct message *message)
{
    struct replication *replication = replication_find_origin(group, message->session);
    char text[FAIL_TEXT_MAX];
    uint32_t rank;

    if (replication == NULL || !replication->interrupted)
        return 0;
    rank = party_rank(&replication->party, peer->id);
    if (coordinator(replication) == peer->id) {
        snprintf(text, sizeof(text), "%s: %.*s", peer->name, (int)message->reason.text_bytes,
                 message->reason.text);
        replication_drop(replication, message->reason.code, text);
    } else if (rank < replication->party.members && finish_of(replication) != NULL) {
        finish_forgot(replication->finish, rank);
    }
    return 0;
}

/* --- What comes next ---------------------------------------------------------------------------------------
 */

void replication_tell_forgotten(struct replication *replication)
{
    const struct party *party = &replication->party;

    for (uint32_t rank = 0; replication->finish != NULL && rank < party->members; rank++) {
        struct peer *peer = peers_find(replication->node->peers, party->ids[rank]);

        if (peer != NULL)
            replication_say(replication->group, peer, MESSAGE_FORGET, replication->origin,
                            replication->fail.code, replication->fail.text);
    }
}

void replication_give_up(struct replication *replication, int code, const char *text)
{
    if (is_root(replication))
        finish_of(replication); /* everyone hears it, though nobody has asked yet */
    replication_drop(replication, code, text);
}

static void pull(struct replication *replication)
{
    struct covey_node *node = replication->node;
    struct message message = {.type = MESSAGE_WANT,
                              .group = replication->group->index,
                              .session = replication->origin,
                              .view = node->view.number};
    struct peer *peer = peers_find(node->peers, replication->party.ids[finish_source(replication->finish)]);

    if (peer != NULL)
        node_send(node, peer, &message);
}

/* This node, those of the party who are left in their order, then who has come since. */
static uint32_t list_members(const struct replication *replication, uint32_t ids[])
{
    uint64_t present[BITMAP_WORDS(COVEY_MEMBERS_MAX)];
    uint32_t all[COVEY_MEMBERS_MAX], count = 0, members = group_members(replication->group, all);

    find_present(replication, present);
    BITMAP_EACH(rank, present, replication->party.members)
    ids[count++] = replication->party.ids[rank];
    for (uint32_t i = 0; i < members; i++) {
        uint32_t rank = party_rank(&replication->party, all[i]);

        if (rank == replication->party.members || !bitmap_get(present, rank))
            ids[count++] = all[i];
    }
    return count;
}

/* The digest of the whole is known, and right. */
static bool check_seal(struct replication *replication)
{
    uint64_t digest;

    if (is_root(replication) || !feed_digest(replication->feed, &digest))
        return is_root(replication);
    replication->object->digest = digest;
    replication->digested = true;
    if (!replication->sealed || replication->seal == digest)
        return true;
    replication_give_up(replication, COVEY_CORRUPT, "what those who are left have is not what was put");
    return false;
}

static void start(struct replication *replication)
{
    struct covey_node *node = replication->node;
    uint32_t ids[COVEY_MEMBERS_MAX], members = list_members(replication, ids);
    struct schedule schedule;
    struct fail fail = {0};
    uint64_t block_bytes;
    int rc;

    if (!check_seal(replication))
        return; /* the last digests are being taken: each turn asks again */
    rc = replication_choose(replication->group, replication->object, members, replication->block_bytes,
                            &schedule, &block_bytes, &fail);
    if (rc == 0 && replication_restart(replication, node_next_id(node), &schedule, ids, OFFER_FINISH) != 0)
        rc = fail_set(&fail, COVEY_NO_MEMORY, "no memory to finish object %s", replication->name);
    if (rc != 0) {
        replication_give_up(replication, rc, fail.text);
        return;
    }
    node_event(node, "finish", replication->name, "finishes %s with %u members", replication->name, members);
    replication_begin(replication);
}

static void give_up_waiting(struct replication *replication)
{
    uint32_t rank = finish_silent(replication->finish);
    char text[FAIL_TEXT_MAX];

    if (replication->node->now_ns - replication->told_ns < replication->node->options->stall_after_ns)
        return;
    if (rank == replication->party.members)
        rank = finish_source(replication->finish);
    if (rank == replication->party.members)
        return;
    snprintf(text, sizeof(text), "member %s does not say what it has of it (stall_after)",
             node_name(replication->node, replication->party.ids[rank]));
    replication_give_up(replication, COVEY_PEER_STALLED, text);
}

static void coordinate(struct replication *replication)
{
    const struct party *party = &replication->party;

    switch (finish_next(replication->finish, party_rank(party, replication->node->options->self.id),
                        replication->held, is_root(replication))) {
    case FINISH_PULL:
        pull(replication);
        break;
    case FINISH_START:
        start(replication);
        break;
    case FINISH_DROP:
        replication_give_up(replication, COVEY_PEER_LOST, lacking);
        break;
    default:
        give_up_waiting(replication);
        break;
    }
}

void replication_finish_turn(struct replication *replication)
{
    struct covey_node *node = replication->node;
    struct fail fail = {0};
    uint32_t id;

    if (group_check_running(replication->group, &fail) != 0)
        return;
    id = coordinator(replication);
    if (id == UINT32_MAX) {
        replication_drop(replication, COVEY_PEER_LOST, lacking);
        return;
    }
    if (replication->told_view != node->view.number)
        announce(replication);
    if (id == node->options->self.id && replication->finish != NULL)
        coordinate(replication);
}

/* --- Pulls -------------------------------------------------------------------------------------------------
 */

/* The coordinator lacks blocks that are here: a session of two brings them. */
int replication_take_want(struct covey_group *group, struct peer *peer, const struct message *message)
{
    struct covey_node *node = group->node;
    struct replication *replication = replication_find_origin(group, message->session);
    uint32_t ids[2] = {node->options->self.id, peer->id};
    struct schedule schedule = {.kind = SCHEDULE_SEQUENTIAL, .members = 2};

    if (message->view < node->view.number)
        return 0; /* it asks again */
    if (replication != NULL && replication->interrupted && replication->landed &&
        coordinator(replication) == peer->id) {
        schedule.blocks = replication->schedule.blocks;
        if (replication_restart(replication, node_next_id(node), &schedule, ids, OFFER_PULL) == 0) {
            replication_begin(replication);
            return 0;
        }
    }
    replication_say(group, peer, MESSAGE_FORGET, message->session, COVEY_NO_MEMORY, "it cannot be brought");
    return 0;
}

bool replication_pulls_from(const struct replication *replication, const struct peer *peer)
{
    const struct party *party = &replication->party;

    return replication->finish != NULL && finish_source(replication->finish) < party->members &&
           party->ids[finish_source(replication->finish)] == peer->id;
}

int replication_take_pull(struct replication *replication, uint64_t id, const struct schedule *schedule,
                          const uint32_t ids[])
{
    uint64_t *skip = calloc(BITMAP_WORDS(schedule->blocks), sizeof(*skip));
    int rc = skip != NULL ? replication_restart(replication, id, schedule, ids, OFFER_PULL) : COVEY_NO_MEMORY;

    if (rc != 0) {
        free(skip);
        return rc;
    }
    finish_skip(replication->finish, replication->held, skip);
    replication->skip = skip;
    return 0;
}

/* Whether every block is here that the pull did not skip. */
static bool brought_all(const struct replication *replication)
{
    uint32_t blocks = replication->schedule.blocks, block = 0;

    while (block < blocks && (bitmap_get(replication->skip, block) || bitmap_get(replication->held, block)))
        block++;
    return block == blocks;
}

void replication_pulled(struct replication *replication)
{
    if (replication->skip == NULL)
        return; /* it was the one who brought them */
    replication->told_ns = replication->node->now_ns;
    finish_pulled(replication->finish);
    if (!brought_all(replication) && replication->fail.code != COVEY_PEER_LOST)
        replication_give_up(replication,
                            replication->fail.code != 0 ? replication->fail.code : COVEY_CANCELLED,
                            replication->fail.text);
}
