/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NODE_REPLICATION_PRIVATE_H
#define NODE_REPLICATION_PRIVATE_H

/* What replication.c (life), replication_messages.c (control lane) and replication_writes.c (data lane,
 * memory) share. */

#include "node/replication.h"

/* Fences to owe: a grant came for a session that is gone. */
struct orphan_fence {
    struct peer *peer;
    uint16_t slot;
};

/* replication.c */
struct replication *replication_new(struct covey_group *group, uint64_t id, const struct schedule *schedule,
                                    uint64_t bytes, uint64_t block_bytes, const uint32_t *ids);
void replication_begin(struct replication *replication);
uint32_t replication_rank_of(const struct replication *replication, const struct peer *peer);
const char *replication_rank_name(const struct replication *replication, uint32_t rank);
void replication_reason(struct replication *replication, int code, const char *text);
void replication_explain(struct replication *replication, int code, uint32_t culprit);
void replication_check_digest(struct replication *replication);

/* replication_messages.c */
void replication_send(struct replication *replication, const struct session_action *action);
void replication_land(struct replication *replication);
void replication_forget_offer(struct replication *replication);

/* replication_writes.c */

/* Find what is contiguous; register each run if asked (for peers to write: remote). */
int replication_make_runs(struct replication *replication, bool registered, bool remote, struct fail *fail);
void replication_forget_runs(struct replication *replication);
void replication_owe_fence(struct covey_node *node, struct peer *peer, uint16_t slot);
/* Post blocks and fences, as many as the session and the fabric take. */
void replication_post(struct replication *replication);

#endif
