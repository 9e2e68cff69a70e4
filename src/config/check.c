/* SPDX-License-Identifier: BSD-3-Clause */
#include "config/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include <covey/covey.h>

#include "base/quantity.h"
#include "config/values.h"

/* --- Nodes --------------------------------------------------------------------------------------------- */

/* "nodes[1]", or "node" for the file's own block. */
struct entry_key {
    char text[32];
};

static const char *entry_key(const struct draft *draft, size_t index, struct entry_key *key)
{
    if (index < draft->nodes.count)
        snprintf(key->text, sizeof(key->text), "nodes[%zu]", index);
    else
        snprintf(key->text, sizeof(key->text), "node");
    return key->text;
}
#define ENTRY_KEY(draft, index) entry_key(draft, index, &(struct entry_key){{0}})

static bool has_id(const struct draft_node *node)
{
    return node->id.line != 0 && !node->id.wrong;
}

static void resolve_nodes(struct draft *draft, const struct host *host, struct report *report)
{
    for (size_t i = 0; i < draft_entries(draft); i++) {
        struct draft_node *node = draft_entry(draft, i);
        struct fail fail;

        if (node->address.text == NULL ||
            value_parse_address(node->address.text, host, &node->resolved, &fail) == 0)
            continue;
        report_add(report, node->address.line, "%s.address: %s; wants " DRAFT_ADDRESS_WISH,
                   ENTRY_KEY(draft, i), fail.text);
    }
}

/* The first entry before `index` for which same() holds; `index` if there is none. */
static size_t find_twin(struct draft *draft, size_t index,
                        bool (*same)(const struct draft_node *, const struct draft_node *))
{
    for (size_t i = 0; i < index; i++) {
        if (same(draft_entry(draft, i), draft_entry(draft, index)))
            return i;
    }
    return index;
}

static bool same_id(const struct draft_node *left, const struct draft_node *right)
{
    return has_id(left) && has_id(right) && left->id.value == right->id.value;
}

static bool same_name(const struct draft_node *left, const struct draft_node *right)
{
    return left->name.text != NULL && right->name.text != NULL &&
           strcmp(left->name.text, right->name.text) == 0;
}

static bool same_address(const struct draft_node *left, const struct draft_node *right)
{
    return left->resolved.bytes != 0 && right->resolved.bytes != 0 &&
           address_equal(&left->resolved, &right->resolved);
}

static void check_unique(struct draft *draft, size_t index, struct report *report)
{
    const struct draft_node *node = draft_entry(draft, index);
    const char *key = ENTRY_KEY(draft, index);
    size_t twin = find_twin(draft, index, same_id);

    if (twin < index)
        report_add(report, node->id.line,
                   "%s.id: %" PRIu64 " is the id of %s too (line %u); every node needs an id of its own", key,
                   node->id.value, ENTRY_KEY(draft, twin), draft_entry(draft, twin)->id.line);
    twin = find_twin(draft, index, same_name);
    if (twin < index)
        report_add(report, node->name.line,
                   "%s.name: %s is the name of %s too (line %u); every node needs a name of its own", key,
                   QUOTE(node->name.text), ENTRY_KEY(draft, twin), draft_entry(draft, twin)->name.line);
    twin = find_twin(draft, index, same_address);
    if (twin < index)
        report_add(
            report, node->address.line,
            "%s.address: %s is the address of %s too (line %u); every node needs an address and port of "
            "its own",
            key, QUOTE(node->address.text), ENTRY_KEY(draft, twin), draft_entry(draft, twin)->address.line);
}

/* The first entry with an address for which is() differs from the first one's; draft_entries() if none. */
static size_t find_other(struct draft *draft, bool (*is)(const struct address *), size_t *first)
{
    size_t count = draft_entries(draft), known = count;

    *first = count;
    for (size_t i = 0; i < count; i++) {
        const struct address *address = &draft_entry(draft, i)->resolved;

        if (address->bytes == 0)
            continue;
        if (known == count)
            known = i;
        else if (is(address) != is(&draft_entry(draft, known)->resolved)) {
            *first = known;
            return i;
        }
    }
    return count;
}

static bool is_v4(const struct address *address)
{
    return address->any.sa_family == AF_INET;
}

static void check_families(struct draft *draft, struct report *report)
{
    size_t first, other = find_other(draft, is_v4, &first);

    if (other == draft_entries(draft))
        return;
    report_add(report, draft_entry(draft, other)->address.line,
               "%s.address: %s is IPv%d, but %s in line %u is IPv%d; one cluster uses one of the two",
               ENTRY_KEY(draft, other), QUOTE(draft_entry(draft, other)->address.text),
               is_v4(&draft_entry(draft, other)->resolved) ? 4 : 6, ENTRY_KEY(draft, first),
               draft_entry(draft, first)->address.line, is_v4(&draft_entry(draft, first)->resolved) ? 4 : 6);
}

/* A node on loopback among others that are not would form a cluster by itself and look healthy. It happens
 * when a host's own name stands for 127.0.1.1 in its /etc/hosts. */
static void check_loopback(struct draft *draft, struct report *report)
{
    size_t first, other = find_other(draft, address_is_loopback, &first);
    const struct draft_node *inside, *outside;
    size_t index;

    if (other == draft_entries(draft))
        return;
    index = address_is_loopback(&draft_entry(draft, first)->resolved) ? first : other;
    inside = draft_entry(draft, index);
    outside = draft_entry(draft, first + other - index);
    report_add(report, inside->address.line,
               "%s.address: %s is the loopback address %s, but %s in line %u (%s) is not, so the two cannot "
               "reach each other; give an address of the network",
               ENTRY_KEY(draft, index), QUOTE(inside->address.text),
               address_format(&inside->resolved, &(struct address_text){{0}}),
               ENTRY_KEY(draft, first + other - index), outside->address.line, QUOTE(outside->address.text));
}

static void check_nodes(struct draft *draft, const struct host *host, struct report *report)
{
    if (draft->nodes.line == 0)
        return;
    if (draft->nodes.items != NULL && draft->nodes.count == 0)
        report_add(report, draft->nodes.line, "nodes: the list is empty; wants at least one node");
    resolve_nodes(draft, host, report);
    for (size_t i = 0; i < draft_entries(draft); i++)
        check_unique(draft, i, report);
    check_families(draft, report);
    check_loopback(draft, report);
}

/* --- Cluster ------------------------------------------------------------------------------------------- */

static bool is_default(const struct draft_number *number)
{
    return number->line == 0;
}

/* `later` must be at least `times` the `sooner` one. */
static void check_order(const struct draft_number *sooner, const char *sooner_name, unsigned times,
                        const struct draft_number *later, const char *later_name, struct report *report)
{
    struct quantity_text least, is, other;

    if (sooner->wrong || later->wrong || later->value >= times * sooner->value)
        return;
    report_add(report, is_default(later) ? sooner->line : later->line,
               "cluster.%s: %s%s is less than %s%s, which is %s%s; wants at least %s", later_name,
               quantity_format_time(later->value, &is), is_default(later) ? " (the default)" : "",
               times == 2 ? "two times " : "", sooner_name, quantity_format_time(sooner->value, &other),
               is_default(sooner) ? " (the default)" : "",
               quantity_format_time(times * sooner->value, &least));
}

static void check_times(const struct draft_cluster *cluster, struct report *report)
{
    check_order(&cluster->heartbeat_ns, "heartbeat", 2, &cluster->suspect_after_ns, "suspect_after", report);
    check_order(&cluster->suspect_after_ns, "suspect_after", 1, &cluster->stall_after_ns, "stall_after",
                report);
}

/* Only who can prove a secret may speak to a node that others can reach. */
static void check_trust(struct draft *draft, struct report *report)
{
    const struct draft_cluster *cluster = &draft->cluster;

    if (cluster->line == 0 || cluster->insecure.wrong)
        return;
    if (cluster->secret_file.line != 0) {
        if (cluster->insecure.value)
            report_add(
                report, cluster->insecure.line,
                "cluster.insecure: is true although line %u names a secret_file; remove one of the two",
                cluster->secret_file.line);
        return;
    }
    for (size_t i = 0; i < draft_entries(draft) && !cluster->insecure.value; i++) {
        const struct draft_node *node = draft_entry(draft, i);

        if (node->resolved.bytes == 0 || address_is_loopback(&node->resolved))
            continue;
        report_add(
            report, cluster->line,
            "cluster.secret_file: is missing although %s in line %u (%s) can be reached from other hosts; "
            "name a file that holds the cluster's secret, or say insecure = true",
            ENTRY_KEY(draft, i), node->address.line, QUOTE(node->address.text));
        return;
    }
}

/* --- Groups -------------------------------------------------------------------------------------------- */

static void check_group_name(const struct draft *draft, size_t index, struct report *report)
{
    const struct draft_group *group = draft_group(draft, index);

    for (size_t i = 0; i < index && group->name.text != NULL; i++) {
        const struct draft_group *other = draft_group(draft, i);

        if (other->name.text == NULL || strcmp(other->name.text, group->name.text) != 0)
            continue;
        report_add(
            report, group->name.line,
            "groups[%zu].name: %s is the name of groups[%zu] too (line %u); every group needs a name of "
            "its own",
            index, QUOTE(group->name.text), i, other->name.line);
        return;
    }
}

/* Also while a node's own name was refused: it may be the one that is meant. */
static bool may_name_node(const struct draft *draft, const char *name)
{
    for (size_t i = 0; i < draft->nodes.count; i++) {
        const char *node_name = draft_node(draft, i)->name.text;

        if (node_name == NULL || strcmp(node_name, name) == 0)
            return true;
    }
    return false;
}

static void check_member(const struct draft *draft, size_t index, size_t member, struct report *report)
{
    const struct draft_group *group = draft_group(draft, index);
    const struct draft_string *name = draft_member(group, member);

    if (name->text == NULL)
        return;
    if (!may_name_node(draft, name->text)) {
        report_add(report, name->line,
                   "groups[%zu].members[%zu]: no node of the list is called %s; wants names of nodes%s",
                   index, member, QUOTE(name->text),
                   strcmp(name->text, "all") == 0 ? ", or members = \"all\" without a list" : "");
        return;
    }
    for (size_t i = 0; i < member; i++) {
        const struct draft_string *other = draft_member(group, i);

        if (other->text == NULL || strcmp(other->text, name->text) != 0)
            continue;
        report_add(report, name->line,
                   "groups[%zu].members[%zu]: %s is members[%zu] too (line %u); name it once", index, member,
                   QUOTE(name->text), i, other->line);
        return;
    }
}

/* Staged blocks travel several at a time. */
#define STAGING_BLOCKS_MIN 4

static void check_staging(const struct draft *draft, size_t index, struct report *report)
{
    const struct draft_group *group = draft_group(draft, index);
    const struct draft_number *staging = &draft->staging.bytes;
    uint64_t least = STAGING_BLOCKS_MIN * group->block_bytes.value;
    struct quantity_text is, block, wants;

    if (group->memory.text == NULL || strcmp(group->memory.text, "host") == 0)
        return;
    if (staging->wrong || group->block_bytes.wrong || staging->value >= least)
        return;
    report_add(report, group->block_bytes.line,
               "groups[%zu].block: %d blocks of %s do not fit in staging.size, %s; wants smaller blocks or a "
               "staging.size of at least %s",
               index, STAGING_BLOCKS_MIN, quantity_format_size(group->block_bytes.value, &block),
               quantity_format_size(staging->value, &is), quantity_format_size(least, &wants));
}

static void check_groups(const struct draft *draft, struct report *report)
{
    for (size_t i = 0; i < draft->groups.count; i++) {
        check_group_name(draft, i, report);
        check_staging(draft, i, report);
        for (size_t j = 0; j < draft_group(draft, i)->members.count; j++)
            check_member(draft, i, j, report);
    }
}

/* --- Control socket ------------------------------------------------------------------------------------ */

void socket_append(struct text *path, const char *pattern, const char *node_name)
{
    for (const char *at = pattern; *at != '\0'; at++) {
        if (*at == '%' && *++at == 'n')
            text_append(path, "%s", node_name);
        else
            text_append_bytes(path, at, 1);
    }
}

const char *draft_socket_pattern(const struct draft *draft)
{
    return draft->control.socket.text == NULL ? DRAFT_SOCKET_DEFAULT : draft->control.socket.text;
}

/* Checked for every node, as the file is every host's. The worst one is named. */
static void check_socket(struct draft *draft, struct report *report)
{
    const struct draft_node *longest = NULL;
    struct text path = {0};

    for (size_t i = 0; i < draft_entries(draft); i++) {
        const struct draft_node *node = draft_entry(draft, i);

        if (node->name.text != NULL &&
            (longest == NULL || strlen(node->name.text) > strlen(longest->name.text)))
            longest = node;
    }
    if (longest == NULL)
        return;
    socket_append(&path, draft_socket_pattern(draft), longest->name.text);
    if (path.failed)
        report->no_memory = true;
    else if (path.length >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
        report_add(
            report, draft->control.socket.line != 0 ? draft->control.socket.line : longest->name.line,
            "control.socket: for node %s the path has %zu bytes, and a socket's has at most %zu; wants a "
            "shorter path or name",
            QUOTE(longest->name.text), path.length, sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1);
    text_fini(&path);
}

void draft_check(struct draft *draft, const struct host *host, struct report *report)
{
    check_nodes(draft, host, report);
    check_times(&draft->cluster, report);
    check_trust(draft, report);
    check_groups(draft, report);
    check_socket(draft, report);
}
