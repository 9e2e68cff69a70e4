/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_LIB_NODES_H
#define TESTS_LIB_NODES_H

/* A cluster whose nodes live in this process, through the public API alone: real links over loopback. */

#include <covey/covey.h>

#define NODES_MAX 16

struct nodes {
    size_t count;
    char directory[64];
    char config[96];
    struct covey_node *node[NODES_MAX];
    struct covey_group *group[NODES_MAX];
};

/* Write the configuration of `count` nodes n0, n1, ... with one group called "g"; `settings` are keys of the
 * group, e.g. "budget = \"64MiB\";", `cluster` are keys of the cluster. Addresses are this process's own. */
void nodes_configure(struct nodes *nodes, size_t count, const char *cluster, const char *settings);

/* Open node i (with or without callbacks of the group) in threads of its own. */
void nodes_open_one(struct nodes *nodes, size_t i, unsigned flags,
                    const struct covey_group_callbacks *callbacks, void *context);

/* Configure, open all without callbacks, wait until the group runs everywhere. */
void nodes_open(struct nodes *nodes, size_t count, const char *settings);
/* Until every open node runs in one view with all of them. */
void nodes_wait(struct nodes *nodes);
/* Members in node i's view; 0 while its group does not run. */
size_t nodes_view_size(struct nodes *nodes, size_t i);
void nodes_wait_size(struct nodes *nodes, size_t i, size_t size);

/* Close what is open and remove the configuration. */
void nodes_close(struct nodes *nodes);

/* Put from node i; asserts success. Returns the version. */
uint64_t nodes_put(struct nodes *nodes, size_t i, const char *name, const struct covey_buffer *buffers,
                   size_t count);

/* Fill memory with bytes that depend on their position and the seed. */
void pattern_fill(void *memory, size_t bytes, uint64_t seed);
/* The first byte that differs, or `bytes`. */
size_t pattern_check(const void *memory, size_t bytes, uint64_t seed);

#endif
