/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONFIG_OPTIONS_H
#define CONFIG_OPTIONS_H

/* What a configuration file says, checked, with defaults filled in (covey.conf(5)).
 *
 * Loading is strict: unknown keys, wrong types, duplicates and values out of range are mistakes, each
 * reported with file, line, key and what would be right; all of them, not only the first. Nothing is created
 * or opened besides the configuration and the secret. libconfig is used in src/config only. */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <covey/covey.h>

#include "schedule/schedule.h"

#define OPTIONS_SECRET_MIN 16   /* bytes */
#define OPTIONS_SECRET_MAX 4096 /* bytes */

enum quorum_rule { QUORUM_MAJORITY, QUORUM_TIE_BREAKER };

struct node_options {
    uint32_t id; /* 0..65535 */
    char *name;
    char *address;                    /* as in the file: "10.0.0.1:7400", "[2001:db8::1]:7400" */
    struct sockaddr_storage sockaddr; /* resolved */
    socklen_t sockaddr_bytes;
};

struct group_options {
    char *name;
    bool all;             /* every node, elastic ones too */
    uint32_t *member_ids; /* ascending; NULL when all */
    size_t member_count;
    enum covey_memory memory;
    int device; /* -1: the node chooses ("cuda") */
    uint64_t budget_bytes;
    uint32_t keep_versions; /* >= 1 */
    bool schedule_auto;
    enum schedule_kind schedule;
    uint64_t block_bytes; /* 0: auto; else a power of two in SCHEDULE_BLOCK_MIN..MAX */
};

struct covey_options {
    char *path; /* of the file */

    char *cluster_name;
    char *secret_file; /* NULL: none */
    uint8_t *secret;   /* what it holds, without the line's end; NULL: none */
    size_t secret_bytes;
    bool insecure; /* no secret although an address is not loopback */
    enum quorum_rule quorum;
    uint64_t heartbeat_ns, suspect_after_ns, stall_after_ns;

    struct node_options *nodes; /* the list, ascending ids */
    size_t node_count;
    struct node_options self; /* a copy of the list's entry, or the file's own `node` block */
    bool elastic;             /* self is not in the list */

    char *provider; /* "auto", "tcp", "verbs", "ofi:<provider>" */

    struct group_options *groups; /* in the file's order; the same index at every node */
    size_t group_count;

    uint64_t staging_bytes;
    char *control_socket; /* with %n replaced */
    enum covey_log_level log_level;
};

/* Whether the group selects the node. */
bool options_group_selects(const struct group_options *group, uint32_t node_id);

/* Node of the list by id; NULL if it is not listed. */
const struct node_options *options_node(const struct covey_options *options, uint32_t id);

/* A deep copy; NULL without memory. Free with covey_options_free(). */
struct covey_options *options_copy(const struct covey_options *options);

/* Append the keys in which two configurations differ, with commas between; nothing if they say the same.
 * Left out is what a running node can take over: log.level. */
struct text;
void options_difference(const struct covey_options *left, const struct covey_options *right,
                        struct text *keys);

/* What all nodes of a cluster must agree on, in parts, so that a difference can be named. Each is a digest of
 * the canonical form of that part (no comments, no order of keys, no node-local values). */
enum options_part {
    OPTIONS_PART_CLUSTER, /* name, insecure, quorum, heartbeat, suspect_after, stall_after */
    OPTIONS_PART_NODES,
    OPTIONS_PART_GROUPS
};
#define OPTIONS_PARTS 3
const char *options_part_name(enum options_part part); /* "cluster", "nodes", "groups" */
uint64_t options_part_digest(const struct covey_options *options, enum options_part part);

#endif
