/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared-state table as the application sees it. */

#include <stdlib.h>
#include <string.h>

#include "base/bitmap.h"
#include "node/members.h"

/* The ids of the members in a set of ranks, in memory from the pool. */
static uint32_t take_ids(const struct view *view, const uint64_t *ranks, uint32_t **pool, uint32_t **ids)
{
    uint32_t count = 0;

    *ids = *pool;
    for (uint32_t rank = 0; ranks != NULL && rank < view->count; rank++) {
        if (bitmap_get(ranks, rank))
            (*ids)[count++] = view->members[rank].id;
    }
    *pool += count;
    return count;
}

struct pools {
    uint64_t *positions;
    uint32_t *ids;
};

static void fill_row(const struct covey_node *node, const struct membership_row *row, struct pools *pools,
                     struct covey_table_row *out)
{
    const struct view *view = membership_view(members_membership(node));
    size_t groups = node->options->group_count;

    *out = (struct covey_table_row){.id = row->peer.id,
                                    .incarnation = row->peer.incarnation,
                                    .rank = row->rank,
                                    .self = row->self,
                                    .linked = row->linked,
                                    .silent_ns = row->silent_ns,
                                    .heartbeat = row->heartbeat,
                                    .view = row->number,
                                    .flags = (unsigned)row->flags,
                                    .promised = row->promised,
                                    .accepted = row->accepted,
                                    .committed = row->committed};
    snprintf(out->name, sizeof(out->name), "%s", node_name(node, row->peer.id));
    out->suspected_count = take_ids(view, row->suspected, &pools->ids, &out->suspected);
    out->evicted_count = take_ids(view, row->evicted, &pools->ids, &out->evicted);
    if (row->received == NULL)
        return;
    out->received = memcpy(pools->positions, row->received, groups * sizeof(*row->received));
    pools->positions += groups;
}

static uint32_t count_rows(const struct membership *membership)
{
    struct membership_row row;
    uint32_t count = 0;

    for (uint32_t place = 0; place < membership_places(membership); place++)
        count += membership_row(membership, place, &row);
    return count;
}

/* One piece of memory: the rows, then names of groups, then positions, then ids. */
static bool allocate(const struct covey_node *node, uint32_t count, struct covey_table *table,
                     struct pools *pools)
{
    size_t groups = node->options->group_count, positions = count * groups;
    size_t ids = (size_t)2 * count * membership_view(members_membership(node))->count;

    table->rows = calloc(1, count * sizeof(*table->rows) + groups * sizeof(*table->groups) +
                                positions * sizeof(uint64_t) + ids * sizeof(uint32_t));
    if (table->rows == NULL)
        return false;
    table->groups = (const char **)(table->rows + count);
    for (size_t i = 0; i < groups; i++)
        table->groups[i] = node->options->groups[i].name;
    pools->positions = (uint64_t *)(table->groups + groups);
    pools->ids = (uint32_t *)(pools->positions + positions);
    return true;
}

int members_table(const struct covey_node *node, struct covey_table *table)
{
    const struct membership *membership = members_membership(node);
    struct covey_table made = {.number = membership_view(membership)->number,
                               .epoch = membership_view(membership)->epoch,
                               .group_count = node->options->group_count};
    struct membership_row row;
    struct pools pools;

    if (!allocate(node, count_rows(membership), &made, &pools))
        return COVEY_NO_MEMORY;
    for (uint32_t place = 0; place < membership_places(membership); place++) {
        if (membership_row(membership, place, &row))
            fill_row(node, &row, &pools, &made.rows[made.count++]);
    }
    *table = made;
    return 0;
}

void covey_table_free(struct covey_table *table)
{
    free(table->rows);
    table->rows = NULL;
    table->groups = NULL;
    table->count = 0;
}
