/* SPDX-License-Identifier: BSD-3-Clause */
/* The view of the configured nodes: it forms when all of them are there, and again when one that went is
 * back.
 *
 *      every node            leader (the lowest id of the list)
 *      links to all are up
 *      POSITION of each group, READY(last view, epoch, incarnations that I see)  -->
 *                            everyone sees the incarnations that I see
 *      <--  POSITION of each group, VIEW(last + 1, epoch, incarnations)
 *      install
 *
 * A READY names the incarnations it is about, so one that was overtaken by a restart never counts. While a
 * member is missing the view stays, nothing is accepted, and what was delivered can be read. */

#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "node/node.h"

/* What the leader knows of a peer's last READY. */
struct readiness {
    uint64_t view, epoch;
    uint64_t set; /* of the incarnations it sees; 0: none */
};

bool view_has(const struct node_view *view, uint32_t id)
{
    for (uint32_t i = 0; i < view->count; i++) {
        if (view->ids[i] == id)
            return true;
    }
    return false;
}

static uint32_t listed(const struct covey_node *node)
{
    return (uint32_t)node->options->node_count;
}

static bool is_leader(const struct covey_node *node)
{
    return node->options->nodes[0].id == node->options->self.id;
}

static struct peer *leader_of(const struct covey_node *node)
{
    return peers_find(node->peers, node->options->nodes[0].id);
}

static uint64_t incarnation_of(const struct covey_node *node, uint32_t id)
{
    const struct peer *peer;

    if (id == node->options->self.id)
        return node->incarnation;
    peer = peers_find(node->peers, id);
    return peer != NULL && peer->up ? peer->incarnation : 0;
}

/* Every listed node is up, as far as this one sees. An elastic node is no member of such a view. */
static bool all_up(const struct covey_node *node)
{
    if (node->options->elastic)
        return false;
    for (uint32_t i = 0; i < listed(node); i++) {
        if (incarnation_of(node, node->options->nodes[i].id) == 0)
            return false;
    }
    return true;
}

/* A number for a set of (id, incarnation): different sets, different numbers, but for 2^-64. Never 0. */
static uint64_t set_add(uint64_t set, uint32_t id, uint64_t incarnation)
{
    uint64_t element[3] = {set, id, incarnation};
    uint64_t sum;

    crypto_generichash((unsigned char *)&sum, sizeof(sum), (const unsigned char *)element, sizeof(element),
                       NULL, 0);
    return sum | 1;
}

static uint64_t set_seen(const struct covey_node *node)
{
    uint64_t set = 0;

    for (uint32_t i = 0; i < listed(node); i++) {
        uint32_t id = node->options->nodes[i].id;

        set = set_add(set, id, incarnation_of(node, id));
    }
    return set;
}

static uint64_t set_of_message(const struct message_view *view)
{
    uint64_t set = 0;

    for (size_t i = 0; i < view->members; i++) {
        uint64_t incarnation;
        uint16_t id;

        message_view_member(view, i, &id, &incarnation);
        set = set_add(set, id, incarnation);
    }
    return set;
}

/* --- Installing -------------------------------------------------------------------------------------------
 */

static bool view_reserve(struct node_view *view, uint32_t count)
{
    uint32_t *ids = realloc(view->ids, count * sizeof(*ids));
    uint64_t *incarnations;

    if (ids == NULL)
        return false;
    view->ids = ids;
    incarnations = realloc(view->incarnations, count * sizeof(*incarnations));
    if (incarnations == NULL)
        return false;
    view->incarnations = incarnations;
    return true;
}

static void state_set(struct covey_node *node, enum covey_state state)
{
    node->state = state;
    for (size_t i = 0; i < node->options->group_count; i++) {
        if (node->groups[i] != NULL)
            group_set_state(node->groups[i], state);
    }
}

static void install(struct covey_node *node, uint64_t number, uint64_t epoch)
{
    struct node_view *view = &node->view;

    view->number = number;
    view->epoch = epoch;
    view->count = listed(node);
    for (uint32_t i = 0; i < view->count; i++) {
        view->ids[i] = node->options->nodes[i].id;
        view->incarnations[i] = incarnation_of(node, view->ids[i]);
    }
    node->counters.views++;
    log_info(&node->log, "view %llu of epoch %016llx: %u members", (unsigned long long)number,
             (unsigned long long)epoch, view->count);
    node_event(node, "view", node->options->cluster_name, "view %llu with %u members",
               (unsigned long long)number, view->count);
    state_set(node, COVEY_STATE_RUNNING);
    for (size_t i = 0; i < node->options->group_count; i++) {
        if (node->groups[i] != NULL)
            group_view(node->groups[i]);
    }
}

/* --- Messages ---------------------------------------------------------------------------------------------
 */

static void send_positions(struct covey_node *node, struct peer *peer)
{
    for (size_t i = 0; i < node->options->group_count; i++) {
        struct message message = {.type = MESSAGE_POSITION, .group = (uint16_t)i};

        if (node->groups[i] == NULL || !options_group_selects(node->groups[i]->options, peer->id))
            continue;
        message.session = node->groups[i]->position;
        node_send(node, peer, &message);
    }
}

static void send_view(struct covey_node *node, struct peer *peer, enum message_type type, uint64_t number,
                      uint64_t epoch)
{
    uint8_t entries[MESSAGE_MAX];
    struct message message = {.type = type, .group = MESSAGE_NO_GROUP};
    size_t used = 0;

    for (uint32_t i = 0; i < listed(node); i++) {
        uint32_t id = node->options->nodes[i].id;

        used += message_put_member(entries + used, (uint16_t)id, incarnation_of(node, id));
    }
    message.view = (struct message_view){number, epoch, (uint16_t)listed(node), entries};
    send_positions(node, peer);
    node_send(node, peer, &message);
}

static struct readiness *readiness_of(struct covey_node *node, const struct peer *peer)
{
    for (size_t i = 0; i < peers_count(node->peers); i++) {
        if (peers_at(node->peers, i) == peer)
            return &node->ready[i];
    }
    return NULL;
}

/* The leader makes the view when all see what it sees. */
static void lead(struct covey_node *node)
{
    uint64_t number = node->view.number, epoch = node->view.epoch;
    uint64_t set;

    if (!all_up(node))
        return;
    set = set_seen(node);
    for (size_t i = 0; i < peers_count(node->peers); i++) {
        const struct readiness *ready = &node->ready[i];

        if (peers_at(node->peers, i)->options == NULL)
            continue;
        if (ready->set != set)
            return;
        if (ready->view > number)
            number = ready->view;
        if (epoch == 0)
            epoch = ready->epoch;
    }
    while (epoch == 0)
        randombytes_buf(&epoch, sizeof(epoch));
    for (size_t i = 0; i < peers_count(node->peers); i++) {
        if (peers_at(node->peers, i)->options != NULL)
            send_view(node, peers_at(node->peers, i), MESSAGE_VIEW, number + 1, epoch);
    }
    install(node, number + 1, epoch);
}

static int take_ready(struct covey_node *node, struct peer *peer, const struct message_view *view)
{
    struct readiness *ready = readiness_of(node, peer);

    if (!is_leader(node) || ready == NULL)
        return COVEY_PROTOCOL;
    *ready = (struct readiness){view->number, view->epoch, set_of_message(view)};
    lead(node);
    return 0;
}

static int take_view(struct covey_node *node, struct peer *peer, const struct message_view *view)
{
    if (peer != leader_of(node) || view->members != listed(node))
        return COVEY_PROTOCOL;
    /* A view that this node has run past, or that names incarnations which are gone by now: another follows.
     */
    if (view->number <= node->view.number || !all_up(node) || set_of_message(view) != set_seen(node))
        return 0;
    install(node, view->number, view->epoch);
    return 0;
}

int forming_message(struct covey_node *node, struct peer *peer, const struct message *message)
{
    if (message->type == MESSAGE_READY)
        return take_ready(node, peer, &message->view);
    if (message->type == MESSAGE_VIEW)
        return take_view(node, peer, &message->view);
    return COVEY_PROTOCOL;
}

/* --- Links ------------------------------------------------------------------------------------------------
 */

void forming_peer_up(struct covey_node *node, struct peer *peer)
{
    (void)peer;
    if (!all_up(node))
        return;
    if (is_leader(node))
        lead(node);
    else
        send_view(node, leader_of(node), MESSAGE_READY, node->view.number, node->view.epoch);
}

void forming_peer_down(struct covey_node *node, struct peer *peer)
{
    struct readiness *ready = readiness_of(node, peer);

    if (ready != NULL)
        ready->set = 0;
    if (node->view.number != 0 && view_has(&node->view, peer->id) && node->state != COVEY_STATE_NO_QUORUM) {
        log_warning(&node->log, "view %llu waits for member %s: nothing can be put until it is back",
                    (unsigned long long)node->view.number, peer->name);
        state_set(node, COVEY_STATE_NO_QUORUM);
    }
}

int forming_start(struct covey_node *node, struct fail *fail)
{
    node->ready = calloc(peers_count(node->peers) + 1, sizeof(*node->ready));
    if (node->ready == NULL || !view_reserve(&node->view, listed(node)))
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for a view of %u nodes", listed(node));
    node->state = COVEY_STATE_FORMING;
    if (is_leader(node))
        lead(node);
    return 0;
}

void forming_stop(struct covey_node *node)
{
    free(node->ready);
    free(node->view.ids);
    free(node->view.incarnations);
}
