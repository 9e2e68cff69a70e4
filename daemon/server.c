/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utlist.h>

#include "control/endpoint.h"
#include "daemon/client.h"
#include "daemon/condition.h"
#include "daemon/logger.h"
#include "daemon/serve/serve.h"

#define GRACE_MS 5000 /* for clients that do not read, when the daemon stops */

/* --- What the node tells -------------------------------------------------------------------------------- */

static void wake(struct server *server)
{
    const uint64_t one = 1;

    /* It fails only when the counter is full, and then the main thread is awake. */
    if (write(server->wake_fd, &one, sizeof(one)) < 0)
        return;
}

static void on_log(void *context, enum covey_log_level level, const char *line)
{
    (void)context;
    logger_line(level, line);
}

static void on_event(void *context, const struct covey_event *event)
{
    struct server *server = context;

    journal_add(&server->journal, event);
    wake(server);
}

static void on_view(void *context, struct covey_group *group, const struct covey_view *view,
                    const uint32_t *joined, size_t joined_count, const uint32_t *left, size_t left_count)
{
    struct server *server = context;

    (void)group, (void)view, (void)joined, (void)joined_count, (void)left, (void)left_count;
    journal_change(&server->journal);
    wake(server);
}

static void on_state(void *context, struct covey_group *group, enum covey_state state)
{
    struct server *server = context;

    (void)group, (void)state;
    journal_change(&server->journal);
    wake(server);
}

static void on_release(void *context, struct covey_group *group, const char *name, uint64_t version,
                       bool delivered, void *first_base)
{
    struct server *server = context;

    (void)group, (void)name, (void)version, (void)delivered;
    lender_return(&server->lender, first_base);
}

/* --- Opening -------------------------------------------------------------------------------------------- */

static int open_groups(struct server *server, const struct covey_options *options, struct fail *fail)
{
    static const struct covey_group_callbacks callbacks = {
        .on_view = on_view, .on_release = on_release, .on_state = on_state};
    size_t count = covey_options_group_count(options);

    server->groups = calloc(count + 1, sizeof(*server->groups));
    if (server->groups == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for %zu groups", count);
    for (size_t i = 0; i < count; i++) {
        const char *name = covey_options_group_name(options, i);
        int result = covey_group_open(server->node, name, &callbacks, server, &server->groups[i]);

        if (result != 0)
            return fail_set(fail, result, "cannot open group %s: %s", name, covey_error_detail(server->node));
        server->group_count++;
    }
    return 0;
}

static int open_node(struct server *server, const struct covey_options *options, struct fail *fail)
{
    static const struct covey_callbacks callbacks = {.on_log = on_log, .on_event = on_event};
    int result = covey_node_open(options, &callbacks, server, &server->node);

    return result == 0 ? 0 : fail_set(fail, result, "%s", covey_node_open_error());
}

int server_open(struct server *server, const char *config_path, const struct covey_options *options,
                struct fail *fail)
{
    int result = 0;

    memset(server, 0, sizeof(*server));
    server->config_path = config_path;
    server->node_name = covey_options_node_name(options);
    journal_init(&server->journal);
    lender_init(&server->lender);
    pthread_mutex_init(&server->reload_mutex, NULL);
    pthread_mutex_init(&server->mutex, NULL);
    condition_init(&server->changed);
    server->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->wake_fd < 0)
        result = fail_set(fail, COVEY_IO, "cannot make an eventfd: %s", strerror(errno));
    if (result == 0)
        result = open_node(server, options, fail);
    if (result == 0)
        result = open_groups(server, options, fail);
    if (result != 0)
        server_close(server);
    return result;
}

/* --- Clients -------------------------------------------------------------------------------------------- */

static void turn_away(int socket, int code, const char *text)
{
    struct client client = {.socket = socket};

    client_refuse(&client, code, text);
    close(socket);
}

static bool add_client(struct server *server, struct client *client)
{
    bool fits;

    pthread_mutex_lock(&server->mutex);
    fits = server->client_count < SERVER_CLIENTS_MAX;
    if (fits) {
        DL_APPEND(server->clients, client);
        server->client_count++;
    }
    pthread_mutex_unlock(&server->mutex);
    return fits;
}

static void remove_client(struct server *server, struct client *client)
{
    pthread_mutex_lock(&server->mutex);
    DL_DELETE(server->clients, client);
    server->client_count--;
    pthread_mutex_unlock(&server->mutex);
}

void server_accept(struct server *server, int socket)
{
    struct client *client = calloc(1, sizeof(*client));
    pthread_t thread;

    if (client == NULL) {
        turn_away(socket, COVEY_NO_MEMORY, "the daemon has no memory for another client");
        return;
    }
    client->server = server;
    client->socket = socket;
    if (!add_client(server, client)) {
        turn_away(socket, COVEY_BUSY, "the daemon serves 256 clients already: try again when one has ended");
        free(client);
        return;
    }
    if (pthread_create(&thread, NULL, client_main, client) != 0) {
        remove_client(server, client);
        turn_away(socket, COVEY_NO_MEMORY, "the daemon cannot start another thread");
        free(client);
        return;
    }
    pthread_detach(thread);
}

static void interrupt_clients(struct server *server, void (*interrupt)(int socket))
{
    struct client *client;

    pthread_mutex_lock(&server->mutex);
    DL_FOREACH (server->clients, client) {
        interrupt(client->socket);
    }
    pthread_mutex_unlock(&server->mutex);
}

/* Wait until as few clients are left as *few says, which may change in the meantime. */
static bool await_clients(struct server *server, const size_t *few)
{
    const struct timespec until = condition_deadline(GRACE_MS);
    int waited = 0;
    bool gone;

    pthread_mutex_lock(&server->mutex);
    while (server->client_count > *few && waited == 0)
        waited = pthread_cond_timedwait(&server->changed, &server->mutex, &until);
    gone = server->client_count <= *few;
    pthread_mutex_unlock(&server->mutex);
    return gone;
}

void server_leave(struct server *server)
{
    pthread_mutex_lock(&server->mutex);
    server->leaver_count++;
    pthread_cond_broadcast(&server->changed);
    server->stop_wanted = true;
    wake(server);
    while (!server->left)
        pthread_cond_wait(&server->changed, &server->mutex);
    server->leaver_count--;
    pthread_mutex_unlock(&server->mutex);
}

/* --- Closing -------------------------------------------------------------------------------------------- */

/* Requests that run see `stopping` and answer; a client that does not read its answer is hung up on. */
static bool end_clients(struct server *server)
{
    server->stopping = true;
    journal_end(&server->journal);
    interrupt_clients(server, endpoint_stop_reading);
    if (await_clients(server, &server->leaver_count))
        return true;
    interrupt_clients(server, endpoint_hang_up);
    return await_clients(server, &server->leaver_count);
}

static bool end_leavers(struct server *server)
{
    static const size_t none = 0;

    pthread_mutex_lock(&server->mutex);
    server->left = true;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
    return await_clients(server, &none);
}

bool server_close(struct server *server)
{
    if (!end_clients(server)) {
        logger_print(COVEY_LOG_ERROR, "a client's request does not end: the node stops without leaving");
        return false;
    }
    if (server->node != NULL)
        covey_node_close(server->node);
    if (!end_leavers(server))
        return false;
    free(server->groups);
    if (server->wake_fd >= 0)
        close(server->wake_fd);
    lender_fini(&server->lender);
    journal_fini(&server->journal);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->mutex);
    pthread_mutex_destroy(&server->reload_mutex);
    return true;
}

/* --- Looking -------------------------------------------------------------------------------------------- */

static int group_missing(const struct server *server, const char *name, struct fail *fail)
{
    if (name == NULL)
        fail_set(fail, COVEY_NOT_FOUND, "%s is in %zu groups, name one of them:", server->node_name,
                 server->group_count);
    else
        fail_set(fail, COVEY_NOT_FOUND, "%s is in no group called %s; its groups:", server->node_name, name);
    for (size_t i = 0; i < server->group_count; i++)
        fail_set(fail, COVEY_NOT_FOUND, "%s %s", fail->text, covey_group_name(server->groups[i]));
    return fail->code;
}

int server_group(const struct server *server, const char *name, struct covey_group **group, struct fail *fail)
{
    if (server->group_count == 0)
        return fail_set(fail, COVEY_NOT_FOUND, "%s is in no group", server->node_name);
    if (name == NULL && server->group_count > 1)
        return group_missing(server, NULL, fail);
    for (size_t i = 0; i < server->group_count; i++) {
        if (name == NULL || strcmp(covey_group_name(server->groups[i]), name) == 0) {
            *group = server->groups[i];
            return 0;
        }
    }
    return group_missing(server, name, fail);
}

void server_describe(const struct server *server, char *out, size_t room)
{
    struct covey_view view;

    if (covey_node_view(server->node, &view) != 0) {
        snprintf(out, room, "no view");
        return;
    }
    snprintf(out, room, "%s, view %" PRIu64 ": %" PRIu32 " of %" PRIu32 " members, %squorate",
             serve_state_name(view.state), view.number, view.size, view.count, view.quorate ? "" : "not ");
    covey_view_free(&view);
}
