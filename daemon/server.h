/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_SERVER_H
#define DAEMON_SERVER_H

/* The daemon as its clients see it: the node, the groups that it has opened, and the clients themselves.
 *
 * Each client is served by a thread of its own, one request after the other: what it asks for may wait (for a
 * put, a disk, an event), the library's calls are for any thread, and so a handler is a plain function that
 * waits where it must. The node never waits for a client. A client that goes away cancels nothing that it has
 * started; whatever was held for it is let go when its thread ends. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <covey/covey.h>

#include "base/fail.h"
#include "daemon/journal.h"
#include "daemon/lender.h"

#define SERVER_CLIENTS_MAX 256

struct client;

struct server {
    const char *config_path; /* for a reload */
    const char *node_name;
    struct covey_node *node;
    struct covey_group **groups;
    size_t group_count;
    struct journal journal;
    struct lender lender;
    int wake_fd; /* eventfd: the view changed, or a client wants the daemon to stop */
    atomic_bool stopping;
    atomic_bool stop_wanted;
    atomic_uint benches; /* started so far */

    pthread_mutex_t reload_mutex; /* one at a time */
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* clients, left */
    struct client *clients;
    size_t client_count;
    size_t leaver_count; /* clients that only wait to hear that the node has left */
    bool left;
};

/* Open the node and every group that selects it. Both the path and the options must outlive the server, which
 * needs no server_close() after an error. */
int server_open(struct server *server, const char *config_path, const struct covey_options *options,
                struct fail *fail);

/* Serve one more client, whose socket is the server's from now on. */
void server_accept(struct server *server, int socket);

/* Let the requests end, leave the cluster, and free everything. false: a request does not end (a disk that
 * hangs), so the node did not leave and nothing was freed; the process should end. */
bool server_close(struct server *server);

/* The group by name; with NULL the only one. */
int server_group(const struct server *server, const char *name, struct covey_group **group,
                 struct fail *fail);

/* Ask the daemon's main thread to stop, and wait until the node has left. In a client's thread. */
void server_leave(struct server *server);

/* One line about the view, for people. */
void server_describe(const struct server *server, char *out, size_t room);

#endif
