/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_CLIENT_H
#define DAEMON_CLIENT_H

/* One client and the thread that serves it. All calls are for that thread.
 *
 * What sends returns 0, or an error when the client is gone: then its thread ends, without more ado. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <covey/covey.h>

#include "base/fail.h"
#include "control/frame.h"
#include "control/reply.h"
#include "daemon/server.h"

struct client {
    struct client *next, *prev; /* the server's list */
    struct server *server;
    int socket;
    struct frame_reader reader;
    uint64_t beat_ns; /* when the last frame was sent */

    struct covey_file *files; /* for the next put */
    size_t file_count, file_room;
    struct covey_object *pinned; /* by open, for store */
};

/* Serve it until it goes, then free it. The thread's function. */
void *client_main(void *client);

/* Send one reply; takes the body's reference, which may be NULL for want of memory. */
int client_send(struct client *client, enum reply_kind kind, json_t *body);

/* Send the error. text may be of any length. */
int client_refuse(struct client *client, int code, const char *text);
int client_fail(struct client *client, const struct fail *fail);

/* The same for a call on the node that returned code: with the library's sentence. */
int client_fail_node(struct client *client, int code);

/* Say "still here", with how far it is, if the last frame was interval_ms ago. total 0: unknown. */
int client_beat(struct client *client, int interval_ms, uint64_t done, uint64_t total);

/* Wait for the end of the operation, with progress. *result is its result, or COVEY_CLOSED when the daemon
 * stops before its end. The operation is still the caller's to free. */
int client_await(struct client *client, struct covey_op *op, int *result);

/* What is held for the client's next request. */
void client_drop_files(struct client *client);
void client_unpin(struct client *client);

/* Items of a reply, a page at a time. */
struct page {
    struct client *client;
    json_t *items;
    int result; /* of the first send that failed */
};

void page_begin(struct page *page, struct client *client);
void page_add(struct page *page, json_t *item); /* takes the reference, which may be NULL */
int page_end(struct page *page);                /* sends the rest; 0 if all was sent */

#endif
