/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/text.h"
#include "config/options.h"

/* The keys in which two configurations differ, by the names that they have in the file. */

struct difference {
    const struct covey_options *left, *right;
    struct text *keys;
};

static bool same_string(const char *left, const char *right)
{
    return left == NULL || right == NULL ? left == right : strcmp(left, right) == 0;
}

/* Add the key unless it is the same. */
static void compare(struct difference *difference, bool same, const char *key, ...)
    __attribute__((format(printf, 3, 4)));

static void compare(struct difference *difference, bool same, const char *key, ...)
{
    va_list args;

    if (same)
        return;
    text_append(difference->keys, "%s", difference->keys->length == 0 ? "" : ", ");
    va_start(args, key);
    text_append_list(difference->keys, key, args);
    va_end(args);
}

static void compare_cluster(struct difference *difference)
{
    const struct covey_options *left = difference->left, *right = difference->right;
    bool same_secret =
        left->secret_bytes == right->secret_bytes &&
        (left->secret_bytes == 0 || memcmp(left->secret, right->secret, left->secret_bytes) == 0);

    compare(difference, same_string(left->cluster_name, right->cluster_name), "cluster.name");
    compare(difference, same_string(left->secret_file, right->secret_file), "cluster.secret_file");
    compare(difference, same_secret, "what cluster.secret_file holds");
    compare(difference, left->insecure == right->insecure, "cluster.insecure");
    compare(difference, left->quorum == right->quorum, "cluster.quorum");
    compare(difference, left->heartbeat_ns == right->heartbeat_ns, "cluster.heartbeat");
    compare(difference, left->suspect_after_ns == right->suspect_after_ns, "cluster.suspect_after");
    compare(difference, left->stall_after_ns == right->stall_after_ns, "cluster.stall_after");
}

static bool same_node(const struct node_options *left, const struct node_options *right)
{
    return left->id == right->id && same_string(left->name, right->name) &&
           same_string(left->address, right->address) && left->sockaddr_bytes == right->sockaddr_bytes &&
           memcmp(&left->sockaddr, &right->sockaddr, left->sockaddr_bytes) == 0;
}

/* Nodes by their id: added, dropped or changed. */
static void compare_nodes(struct difference *difference)
{
    const struct covey_options *left = difference->left, *right = difference->right;

    for (size_t i = 0; i < left->node_count; i++) {
        const struct node_options *other = options_node(right, left->nodes[i].id);

        compare(difference, other != NULL && same_node(&left->nodes[i], other), "nodes (%s)",
                left->nodes[i].name);
    }
    for (size_t i = 0; i < right->node_count; i++)
        compare(difference, options_node(left, right->nodes[i].id) != NULL, "nodes (%s)",
                right->nodes[i].name);
    compare(difference, left->elastic == right->elastic && same_node(&left->self, &right->self), "node");
}

static bool same_members(const struct group_options *left, const struct group_options *right)
{
    return left->all == right->all && left->member_count == right->member_count &&
           (left->member_count == 0 ||
            memcmp(left->member_ids, right->member_ids, left->member_count * sizeof(*left->member_ids)) == 0);
}

static void compare_group(struct difference *difference, const struct group_options *left,
                          const struct group_options *right)
{
    const char *name = left->name;
    bool same_schedule = left->schedule_auto == right->schedule_auto &&
                         (left->schedule_auto || left->schedule == right->schedule);

    compare(difference, same_string(left->name, right->name), "groups (%s)", name);
    compare(difference, same_members(left, right), "groups.members (%s)", name);
    compare(difference, left->memory == right->memory && left->device == right->device, "groups.memory (%s)",
            name);
    compare(difference, left->budget_bytes == right->budget_bytes, "groups.budget (%s)", name);
    compare(difference, left->keep_versions == right->keep_versions, "groups.keep_versions (%s)", name);
    compare(difference, same_schedule, "groups.schedule (%s)", name);
    compare(difference, left->block_bytes == right->block_bytes, "groups.block (%s)", name);
}

/* Groups are known by their place in the list. */
static void compare_groups(struct difference *difference)
{
    const struct covey_options *left = difference->left, *right = difference->right;

    for (size_t i = 0; i < left->group_count && i < right->group_count; i++)
        compare_group(difference, &left->groups[i], &right->groups[i]);
    for (size_t i = right->group_count; i < left->group_count; i++)
        compare(difference, false, "groups (%s)", left->groups[i].name);
    for (size_t i = left->group_count; i < right->group_count; i++)
        compare(difference, false, "groups (%s)", right->groups[i].name);
}

void options_difference(const struct covey_options *left, const struct covey_options *right,
                        struct text *keys)
{
    struct difference difference = {left, right, keys};

    compare_cluster(&difference);
    compare_nodes(&difference);
    compare(&difference, same_string(left->provider, right->provider), "fabric.provider");
    compare_groups(&difference);
    compare(&difference, left->staging_bytes == right->staging_bytes, "staging.size");
    compare(&difference, same_string(left->control_socket, right->control_socket), "control.socket");
}
