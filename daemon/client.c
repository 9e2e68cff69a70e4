/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/client.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <utlist.h>

#include "control/request.h"
#include "control/item.h"
#include "daemon/condition.h"
#include "daemon/serve/serve.h"

#define AWAIT_MS 100 /* between two looks at an operation, and two frames of progress */

typedef int serve_function(struct client *client, const struct request *request);

static serve_function *const serve[REQUEST_KINDS] = {
    [REQUEST_VIEW] = serve_view,     [REQUEST_GROUPS] = serve_groups, [REQUEST_OBJECTS] = serve_objects,
    [REQUEST_FILES] = serve_files,   [REQUEST_PUT] = serve_put,       [REQUEST_OPEN] = serve_open,
    [REQUEST_STORE] = serve_store,   [REQUEST_REMOVE] = serve_remove, [REQUEST_STATS] = serve_stats,
    [REQUEST_EVENTS] = serve_events, [REQUEST_BENCH] = serve_bench,   [REQUEST_RELOAD] = serve_reload,
    [REQUEST_LEAVE] = serve_leave,   [REQUEST_EVICT] = serve_evict,   [REQUEST_FORCE] = serve_force,
    [REQUEST_TABLE] = serve_table,   [REQUEST_ROUTE] = serve_route,
};

/* --- Replies -------------------------------------------------------------------------------------------- */

int client_send(struct client *client, enum reply_kind kind, json_t *body)
{
    struct fail fail = {0};
    json_t *document = reply_encode(kind, body);
    int result = COVEY_NO_MEMORY;

    if (document != NULL)
        result = frame_send(client->socket, document, NULL, 0, &fail);
    json_decref(document);
    client->beat_ns = condition_now_ns();
    return result;
}

int client_refuse(struct client *client, int code, const char *text)
{
    return client_send(client, REPLY_ERROR,
                       json_pack("{s:s, s:o}", "code", covey_error_name(code), "text", item_text(text)));
}

int client_fail(struct client *client, const struct fail *fail)
{
    return client_refuse(client, fail->code, fail->text);
}

int client_fail_node(struct client *client, int code)
{
    const char *detail = covey_error_detail(client->server->node);

    return client_refuse(client, code, detail[0] != '\0' ? detail : covey_strerror(code));
}

int client_beat(struct client *client, int interval_ms, uint64_t done, uint64_t total)
{
    if (condition_now_ns() - client->beat_ns < (uint64_t)interval_ms * 1000000U)
        return 0;
    return client_send(client, REPLY_PROGRESS,
                       json_pack("{s:o, s:o}", "done", item_u64(done), "total", item_u64(total)));
}

int client_await(struct client *client, struct covey_op *op, int *result)
{
    uint64_t done = 0, total = 0;
    int sent = 0;

    while (sent == 0) {
        covey_op_wait(op, AWAIT_MS);
        *result = covey_op_test(op);
        if (*result != COVEY_AGAIN)
            return 0;
        *result = COVEY_CLOSED;
        if (client->server->stopping)
            return 0;
        covey_op_progress(op, &done, &total);
        sent = client_beat(client, AWAIT_MS, done, total);
    }
    return sent;
}

void page_begin(struct page *page, struct client *client)
{
    *page = (struct page){.client = client, .items = json_array()};
}

static void page_flush(struct page *page)
{
    if (page->result == 0)
        page->result = client_send(page->client, REPLY_ITEMS, page->items);
    else
        json_decref(page->items);
    page->items = NULL;
}

void page_add(struct page *page, json_t *item)
{
    if (json_array_append_new(page->items, item) != 0 && page->result == 0)
        page->result = COVEY_NO_MEMORY;
    if (json_array_size(page->items) < REPLY_PAGE_ITEMS)
        return;
    page_flush(page);
    page->items = json_array();
}

int page_end(struct page *page)
{
    if (json_array_size(page->items) > 0)
        page_flush(page);
    json_decref(page->items);
    return page->result;
}

/* --- The thread ----------------------------------------------------------------------------------------- */

void client_drop_files(struct client *client)
{
    for (size_t i = 0; i < client->file_count; i++) {
        close(client->files[i].fd);
        free((char *)(uintptr_t)client->files[i].name);
    }
    free(client->files);
    client->files = NULL;
    client->file_count = client->file_room = 0;
}

void client_unpin(struct client *client)
{
    if (client->pinned != NULL)
        covey_object_release(client->pinned);
    client->pinned = NULL;
}

static int serve_document(struct client *client, const json_t *document)
{
    struct request request;
    struct fail fail = {0};

    if (client->reader.descriptors_lost) {
        fail_set(&fail, COVEY_TOO_LARGE,
                 "the daemon may open no more files (RLIMIT_NOFILE): raise its limit, or put fewer files in "
                 "one object");
        return client_fail(client, &fail);
    }
    if (request_decode(document, client->reader.descriptor_count, &request, &fail) != 0)
        return client_fail(client, &fail);
    return serve[request.kind](client, &request);
}

/* Whether there may be another request. */
static bool serve_next(struct client *client)
{
    struct fail fail = {0};
    json_t *document;
    int result;

    do
        result = frame_receive(client->socket, &client->reader, &document, &fail);
    while (result == COVEY_AGAIN);
    if (result < 0)
        client_fail(client, &fail);
    if (result <= 0)
        return false;
    result = serve_document(client, document);
    json_decref(document);
    return result == 0;
}

void *client_main(void *argument)
{
    struct client *client = argument;
    struct server *server = client->server;

    while (serve_next(client))
        ;
    client_drop_files(client);
    client_unpin(client);
    frame_reader_fini(&client->reader);

    pthread_mutex_lock(&server->mutex);
    close(client->socket);
    DL_DELETE(server->clients, client);
    server->client_count--;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
    free(client);
    return NULL;
}
