/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>
#include <xxhash.h>

#include "config/options.h"
#include "config/values.h"

/* The canonical form is a sequence of numbers (8 bytes, little-endian) and strings. It is only ever hashed:
 * the digest of each item (xxh3-64) is the seed of the next one's. */

static void add_number(uint64_t *digest, uint64_t number)
{
    unsigned char bytes[8];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(number >> (8 * i));
    *digest = XXH3_64bits_withSeed(bytes, sizeof(bytes), *digest);
}

static void add_string(uint64_t *digest, const char *string)
{
    *digest = XXH3_64bits_withSeed(string, strlen(string), *digest);
}

static void add_cluster(uint64_t *digest, const struct covey_options *options)
{
    add_string(digest, options->cluster_name);
    add_number(digest, options->insecure);
    add_number(digest, options->quorum);
    add_number(digest, options->heartbeat_ns);
    add_number(digest, options->suspect_after_ns);
    add_number(digest, options->stall_after_ns);
}

/* An IPv6 address has many spellings; the rest has one. A host name counts as it is written: what it stands
 * for may depend on the host that asks. */
static void add_address(uint64_t *digest, const struct node_options *node)
{
    const struct address address = {.storage = node->sockaddr, .bytes = node->sockaddr_bytes};
    struct address_text plain;

    if (node->address[0] == '[') {
        add_string(digest, address_format(&address, &plain));
        add_string(digest, strrchr(node->address, ':'));
    } else {
        add_string(digest, node->address);
    }
}

static void add_nodes(uint64_t *digest, const struct covey_options *options)
{
    for (size_t i = 0; i < options->node_count; i++) {
        add_number(digest, options->nodes[i].id);
        add_string(digest, options->nodes[i].name);
        add_address(digest, &options->nodes[i]);
    }
}

static void add_groups(uint64_t *digest, const struct covey_options *options)
{
    for (size_t i = 0; i < options->group_count; i++) {
        const struct group_options *group = &options->groups[i];

        add_string(digest, group->name);
        add_number(digest, group->all);
        add_number(digest, group->member_count);
        for (size_t j = 0; j < group->member_count; j++)
            add_number(digest, group->member_ids[j]);
        add_number(digest, group->memory);
        add_number(digest, (uint64_t)group->device);
        add_number(digest, group->budget_bytes);
        add_number(digest, group->keep_versions);
        add_number(digest, group->schedule_auto ? SCHEDULE_KINDS : group->schedule);
        add_number(digest, group->block_bytes);
    }
}

const char *options_part_name(enum options_part part)
{
    static const char *const names[OPTIONS_PARTS] = {"cluster", "nodes", "groups"};

    return names[part];
}

uint64_t options_part_digest(const struct covey_options *options, enum options_part part)
{
    static void (*const add[OPTIONS_PARTS])(uint64_t *, const struct covey_options *) = {
        add_cluster, add_nodes, add_groups};
    uint64_t digest = 0;

    add[part](&digest, options);
    return digest;
}
