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

/* Another session for an interrupted object, as one of ids[0..schedule->members). COVEY_NO_MEMORY changes
 * nothing. */
int replication_restart(struct replication *replication, uint64_t id, const struct schedule *schedule,
                        const uint32_t *ids, enum offer_purpose purpose);
/* Schedule and block size for so many members; block_bytes: 0, or what it has to be. */
int replication_choose(const struct covey_group *group, const struct object *object, uint32_t members,
                       uint64_t fixed_block_bytes, struct schedule *schedule, uint64_t *block_bytes,
                       struct fail *fail);
/* The session is over, the object is not. */
void replication_set_aside(struct replication *replication);
void replication_abandon(struct replication *replication);
/* An interrupted object will not be finished. */
void replication_drop(struct replication *replication, int code, const char *text);
/* It is not for the group's order: a pull, which brings some of its blocks. */
bool replication_is_apart(const struct replication *replication);

/* replication_finish.c */
struct replication *replication_find_origin(const struct covey_group *group, uint64_t origin);
/* Tell what is here; as coordinator, do what comes next. Each turn while it is interrupted. */
void replication_finish_turn(struct replication *replication);
/* This node has asked the peer for blocks of it. */
bool replication_pulls_from(const struct replication *replication, const struct peer *peer);
/* The peer's offer of those blocks. */
int replication_take_pull(struct replication *replication, uint64_t id, const struct schedule *schedule,
                          const uint32_t ids[]);
/* A pull is over. */
void replication_pulled(struct replication *replication);
/* Who waits for what this node has of it hears that it has given up: everyone, if it coordinates. */
void replication_tell_forgotten(struct replication *replication);
/* This node will not finish it. */
void replication_give_up(struct replication *replication, int code, const char *text);
int replication_take_have(struct covey_group *group, struct peer *peer, const struct message *message);
int replication_take_forget(struct covey_group *group, struct peer *peer, const struct message *message);
int replication_take_want(struct covey_group *group, struct peer *peer, const struct message *message);

/* replication_messages.c */
void replication_say(struct covey_group *group, struct peer *peer, enum message_type type, uint64_t id,
                     int code, const char *text);
/* Call send with each page of words that holds one of the blocks, and with the last in any case. */
void replication_send_blocks(struct replication *replication, struct peer *peer, struct message *message,
                             struct message_blocks *blocks, bool *last, const uint64_t *set);
/* Copy the words of a page. False if they are not those of a set of so many blocks. */
bool replication_take_blocks(const struct message_blocks *blocks, uint32_t count, uint64_t *words);
void replication_send(struct replication *replication, const struct session_action *action);
void replication_land(struct replication *replication);
void replication_forget_offer(struct replication *replication);

/* replication_writes.c */

/* Find what is contiguous; register each run if asked (for peers to write: remote) and if the wire reaches
 * it; where it does not, have the staging region. */
int replication_make_runs(struct replication *replication, bool registered, bool remote, struct fail *fail);
void replication_forget_runs(struct replication *replication);
void replication_owe_fence(struct covey_node *node, struct peer *peer, uint16_t slot);
/* The last block may be shorter. */
uint64_t replication_block_size(const struct replication *replication, uint32_t block);
/* The run that holds the byte at offset. */
const struct run *replication_run_at(const struct replication *replication, uint64_t offset);
/* Whether some of the block is out of the wire's reach: here, and at a peer. */
bool replication_stages(const struct replication *replication, uint32_t block);
bool replication_peer_stages(const struct replication *replication, uint32_t rank, uint32_t block);
/* Begin to post a block that the session can post. Whether all of it is posted; otherwise replication_post
 * goes on with it. */
bool replication_post_block(struct replication *replication, const struct transfer *what,
                            const struct departure *departure);
/* Post blocks and fences, as many as the session and the fabric take. */
void replication_post(struct replication *replication);

#endif
