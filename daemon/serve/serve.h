/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_SERVE_SERVE_H
#define DAEMON_SERVE_SERVE_H

/* What answers each request of the control protocol (control/request.h), one file for a kind of things. A
 * handler sends items and progress as it likes and then done or error, and returns 0; or an error when the
 * client is gone. */

#include "control/request.h"
#include "daemon/client.h"

int serve_view(struct client *client, const struct request *request);
int serve_groups(struct client *client, const struct request *request);
int serve_objects(struct client *client, const struct request *request);
int serve_files(struct client *client, const struct request *request);
int serve_put(struct client *client, const struct request *request);
int serve_open(struct client *client, const struct request *request);
int serve_store(struct client *client, const struct request *request);
int serve_remove(struct client *client, const struct request *request);
int serve_route(struct client *client, const struct request *request);
int serve_stats(struct client *client, const struct request *request);
int serve_events(struct client *client, const struct request *request);
int serve_bench(struct client *client, const struct request *request);
int serve_reload(struct client *client, const struct request *request);
int serve_leave(struct client *client, const struct request *request);
int serve_evict(struct client *client, const struct request *request);
int serve_force(struct client *client, const struct request *request);
int serve_table(struct client *client, const struct request *request);

/* Wait until the view's change number exceeds after, or until_ns (CLOCK_MONOTONIC) has come. 1: either did;
 * 0: the daemon stops; or the client is gone. */
int serve_await_change(struct client *client, uint64_t after, uint64_t until_ns);

/* What an operation did, as put and bench show it: keys version, digest, bytes, seconds, gb_per_s, schedule,
 * block_bytes, blocks. */
json_t *serve_result_json(const struct covey_op_result *result);

/* "host", "cuda:0", "managed:0"; cuda without a number while the node has not chosen. */
json_t *serve_memory_json(enum covey_memory memory, int device);

/* "running", "no-quorum", ... */
const char *serve_state_name(enum covey_state state);

#endif
