/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONFIG_CHECK_H
#define CONFIG_CHECK_H

/* What the values of a configuration must be together, and which node of it this one is. */

#include "base/text.h"
#include "config/draft.h"

/* Resolve the addresses and check everything that spans several keys. */
void draft_check(struct draft *draft, const struct host *host, struct report *report);

/* The node called name, or, with NULL, the `node` block if there is one, else the one node of the list whose
 * address is this host's. NULL after a complaint, or when the list has mistakes that were reported already.
 */
struct draft_node *draft_choose(struct draft *draft, const char *name, const struct host *host,
                                struct report *report);

/* Read a secret: a regular file that its owner alone can read. One line end at its end is no part of it. The
 * caller wipes and frees *bytes. COVEY_CONFIG and why, or COVEY_NO_MEMORY. */
int secret_read(const char *path, const struct host *host, char **bytes, size_t *count, struct fail *fail);

/* The control socket's path: pattern with %n replaced by the node's name and %% by %. */
void socket_append(struct text *path, const char *pattern, const char *node_name);
const char *draft_socket_pattern(const struct draft *draft);

#endif
