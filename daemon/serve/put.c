/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/serve/serve.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/item.h"

static bool grow_files(struct client *client, size_t count)
{
    size_t room = client->file_room == 0 ? 64 : client->file_room;
    struct covey_file *files;

    while (room < client->file_count + count)
        room *= 2;
    if (room == client->file_room)
        return true;
    files = realloc(client->files, room * sizeof(*files));
    if (files == NULL)
        return false;
    client->files = files;
    client->file_room = room;
    return true;
}

/* Keep the frame's descriptors under its names. Descriptors without a name for want of memory are closed. */
static bool keep_files(struct client *client, const json_t *names)
{
    int descriptors[FRAME_DESCRIPTORS_MAX];
    size_t count = frame_reader_take_descriptors(&client->reader, descriptors);
    bool kept = grow_files(client, count);

    for (size_t i = 0; i < count; i++) {
        char *name = kept ? strdup(json_string_value(json_array_get(names, i))) : NULL;

        kept = name != NULL;
        if (kept)
            client->files[client->file_count++] = (struct covey_file){.fd = descriptors[i], .name = name};
        else
            close(descriptors[i]);
    }
    return kept;
}

int serve_files(struct client *client, const struct request *request)
{
    if (client->file_count + json_array_size(request->files) > COVEY_BUFFERS_MAX) {
        client_drop_files(client);
        return client_refuse(client, COVEY_TOO_LARGE, "an object has at most 1048576 buffers");
    }
    if (!keep_files(client, request->files)) {
        client_drop_files(client);
        return client_refuse(client, COVEY_NO_MEMORY, "the daemon has no memory for the list of files");
    }
    return client_send(client, REPLY_DONE, json_pack("{s:o}", "files", item_u64(client->file_count)));
}

json_t *serve_result_json(const struct covey_op_result *result)
{
    double seconds = (double)result->duration_ns / 1e9;

    return json_pack(
        "{s:o, s:o, s:o, s:f, s:f, s:s, s:o, s:o}", "version", item_u64(result->version), "digest",
        item_hex(result->digest), "bytes", item_u64(result->bytes), "seconds", seconds, "gb_per_s",
        result->duration_ns == 0 ? 0.0 : (double)result->bytes / (double)result->duration_ns, "schedule",
        result->schedule, "block_bytes", item_u64(result->block_bytes), "blocks", item_u64(result->blocks));
}

static json_t *removal_json(const struct covey_op_result *result)
{
    return json_pack("{s:f}", "seconds", (double)result->duration_ns / 1e9);
}

/* Wait for the operation, show its result, and free it. */
static int finish(struct client *client, struct covey_op *op, json_t *show(const struct covey_op_result *))
{
    struct covey_op_result done;
    int result;
    int sent = client_await(client, op, &result);

    if (sent == 0 && result == COVEY_CLOSED)
        sent = client_refuse(client, result, "the daemon stops before this has ended");
    else if (sent == 0 && result != 0)
        sent = client_refuse(client, result,
                             covey_op_error(op)[0] != '\0' ? covey_op_error(op) : covey_strerror(result));
    else if (sent == 0 && covey_op_result(op, &done) == 0)
        sent = client_send(client, REPLY_DONE, show(&done));
    covey_op_free(op);
    return sent;
}

int serve_put(struct client *client, const struct request *request)
{
    struct covey_group *group;
    struct covey_op *op;
    struct fail fail = {0};
    int result = server_group(client->server, request->group, &group, &fail);

    if (result != 0) {
        client_drop_files(client);
        return client_fail(client, &fail);
    }
    result = covey_put_files(group, request->name, client->files, client->file_count, &op);
    client_drop_files(client);
    return result != 0 ? client_fail_node(client, result) : finish(client, op, serve_result_json);
}

int serve_remove(struct client *client, const struct request *request)
{
    struct covey_group *group;
    struct covey_op *op;
    struct fail fail = {0};
    int result = server_group(client->server, request->group, &group, &fail);

    if (result != 0)
        return client_fail(client, &fail);
    result = covey_remove(group, request->name, &op);
    return result != 0 ? client_fail_node(client, result) : finish(client, op, removal_json);
}
