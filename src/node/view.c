/* SPDX-License-Identifier: BSD-3-Clause */
/* The view as the application sees it. */

#include <stdlib.h>
#include <string.h>

#include "node/members.h"

bool view_has(const struct node_view *view, uint32_t id)
{
    for (uint32_t i = 0; i < view->count; i++) {
        if (view->ids[i] == id)
            return true;
    }
    return false;
}

bool view_has_process(const struct node_view *view, uint32_t id, uint64_t incarnation)
{
    for (uint32_t i = 0; i < view->count; i++) {
        if (view->ids[i] == id)
            return view->incarnations[i] == incarnation;
    }
    return false;
}

static void fill_self(const struct covey_node *node, struct covey_member *member)
{
    snprintf(member->name, sizeof(member->name), "%s", node->options->self.name);
    snprintf(member->address, sizeof(member->address), "%s", node->options->self.address);
    member->incarnation = node->incarnation;
    member->since_ns = node->started_ns;
}

static void fill_member(const struct covey_node *node, uint32_t id, bool in_view, struct covey_member *member)
{
    const struct node_options *listed = options_node(node->options, id);
    const struct peer *peer = peers_find(node->peers, id);

    member->id = id;
    member->rank = UINT32_MAX;
    member->state = in_view ? COVEY_MEMBER_MEMBER : COVEY_MEMBER_MISSING;
    if (id == node->options->self.id) {
        fill_self(node, member);
        return;
    }
    if (listed != NULL) {
        snprintf(member->name, sizeof(member->name), "%s", listed->name);
        snprintf(member->address, sizeof(member->address), "%s", listed->address);
    }
    if (peer == NULL)
        return;
    snprintf(member->name, sizeof(member->name), "%s", peer->name);
    snprintf(member->address, sizeof(member->address), "%s", peer->address);
    member->incarnation = peer->incarnation;
    member->since_ns = peer->since_ns != 0 ? peer->since_ns : node->started_ns;
    if (peer->up)
        return;
    if (in_view)
        member->state = COVEY_MEMBER_SUSPECTED;
    snprintf(member->problem, sizeof(member->problem), "%.*s", (int)sizeof(member->problem) - 1,
             peer->problem);
}

static bool selects(const struct covey_group *group, uint32_t id)
{
    return group == NULL || options_group_selects(group->options, id);
}

int view_snapshot(const struct covey_node *node, const struct covey_group *group, struct covey_view *view)
{
    const struct covey_options *options = node->options;
    struct covey_view made = {.number = node->view.number,
                              .epoch = node->view.epoch,
                              .state = group != NULL ? group->state : node->state,
                              .self = UINT32_MAX};

    made.quorate = node->state == COVEY_STATE_RUNNING || node->state == COVEY_STATE_WEDGED;
    made.members = calloc(options->node_count + node->view.count + 2, sizeof(*made.members));
    if (made.members == NULL)
        return COVEY_NO_MEMORY;
    for (uint32_t i = 0; node->view.number != 0 && i < node->view.count; i++) {
        if (!selects(group, node->view.ids[i]))
            continue;
        fill_member(node, node->view.ids[i], true, &made.members[made.count]);
        made.members[made.count].incarnation = node->view.incarnations[i];
        made.members[made.count].rank = made.count;
        made.count++;
    }
    made.size = made.count;
    for (size_t i = 0; i < options->node_count; i++) {
        uint32_t id = options->nodes[i].id;

        if (selects(group, id) && (node->view.number == 0 || !view_has(&node->view, id)))
            fill_member(node, id, false, &made.members[made.count++]);
    }
    if (options->elastic && !view_has(&node->view, options->self.id))
        fill_member(node, options->self.id, false, &made.members[made.count++]);
    for (uint32_t i = 0; i < made.count; i++) {
        if (made.members[i].id == options->self.id)
            made.self = i;
    }
    *view = made;
    return 0;
}

void covey_view_free(struct covey_view *view)
{
    free(view->members);
    view->members = NULL;
    view->count = view->size = 0;
}
