/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/serve/serve.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/item.h"

#define CHUNK_BYTES ((size_t)4 << 20) /* between two looks at the client */
#define BEAT_MS     100

/* --- open ----------------------------------------------------------------------------------------------- */

static json_t *buffer_item(size_t index, const struct covey_buffer *buffer)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "index", item_u64(index), "name", item_text(buffer->name),
                     "bytes", item_u64(buffer->bytes), "memory",
                     serve_memory_json(buffer->memory, buffer->device));
}

static json_t *object_summary(const struct covey_object *object)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "name", item_text(covey_object_name(object)), "version",
                     item_u64(covey_object_version(object)), "bytes", item_u64(covey_object_bytes(object)),
                     "digest", item_hex(covey_object_digest(object)), "buffers",
                     item_u64(covey_object_count(object)));
}

int serve_open(struct client *client, const struct request *request)
{
    struct covey_group *group;
    struct fail fail = {0};
    struct page page;
    int result;

    client_unpin(client);
    if (server_group(client->server, request->group, &group, &fail) != 0)
        return client_fail(client, &fail);
    result = covey_get(group, request->name, request->version, &client->pinned);
    if (result != 0)
        return client_fail_node(client, result);
    page_begin(&page, client);
    for (size_t i = 0; i < covey_object_count(client->pinned) && page.result == 0; i++) {
        struct covey_buffer buffer;

        covey_object_buffer(client->pinned, i, &buffer);
        page_add(&page, buffer_item(i, &buffer));
    }
    if (page_end(&page) != 0)
        return page.result;
    return client_send(client, REPLY_DONE, object_summary(client->pinned));
}

/* --- store ---------------------------------------------------------------------------------------------- */

/* One store request on its way. */
struct storing {
    struct client *client;
    uint64_t done, total;
    int gone; /* the client is: not 0 */
};

static int check_buffer(const struct covey_buffer *buffer, int fd, struct fail *fail)
{
    struct stat status;

    if (buffer->memory != COVEY_MEMORY_HOST)
        return fail_set(fail, COVEY_UNSUPPORTED,
                        "buffer %s is in GPU memory, which cannot be written to a file", buffer->name);
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return fail_set(fail, COVEY_INVALID, "buffer %s: the descriptor is not a regular file", buffer->name);
    return 0;
}

/* Write the buffer from the file's beginning. 0 also when the client is gone. */
static int write_buffer(struct storing *storing, const struct covey_buffer *buffer, int fd, struct fail *fail)
{
    const char *base = buffer->base;
    size_t done = 0;

    while (done < buffer->bytes && storing->gone == 0) {
        size_t left = buffer->bytes - done;
        ssize_t wrote = pwrite(fd, base + done, left < CHUNK_BYTES ? left : CHUNK_BYTES, (off_t)done);

        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return fail_set(fail, COVEY_IO, "cannot write buffer %s: %s", buffer->name, strerror(errno));
        if (storing->client->server->stopping)
            return fail_set(fail, COVEY_CLOSED, "the daemon stops before everything is written");
        done += (size_t)wrote;
        storing->done += (uint64_t)wrote;
        storing->gone = client_beat(storing->client, BEAT_MS, storing->done, storing->total);
    }
    return 0;
}

static int store_buffers(struct storing *storing, size_t first, const int *descriptors, size_t count,
                         struct fail *fail)
{
    int result = 0;

    for (size_t i = 0; i < count && result == 0 && storing->gone == 0; i++) {
        struct covey_buffer buffer;

        covey_object_buffer(storing->client->pinned, first + i, &buffer);
        result = check_buffer(&buffer, descriptors[i], fail);
        if (result == 0)
            result = write_buffer(storing, &buffer, descriptors[i], fail);
    }
    return result;
}

static int check_range(const struct client *client, const struct request *request, struct fail *fail)
{
    uint64_t count;

    if (client->pinned == NULL)
        return fail_set(fail, COVEY_INVALID, "store: no object is open");
    count = covey_object_count(client->pinned);
    if (request->first > count || request->count > count - request->first)
        return fail_set(fail, COVEY_INVALID, "store: the object has %llu buffers", (unsigned long long)count);
    return 0;
}

static uint64_t buffer_bytes(const struct covey_object *object, size_t first, size_t count)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        struct covey_buffer buffer;

        covey_object_buffer(object, first + i, &buffer);
        bytes += buffer.bytes;
    }
    return bytes;
}

int serve_store(struct client *client, const struct request *request)
{
    struct storing storing = {.client = client};
    struct fail fail = {0};

    if (check_range(client, request, &fail) != 0)
        return client_fail(client, &fail);
    storing.total = buffer_bytes(client->pinned, request->first, request->count);
    store_buffers(&storing, request->first, client->reader.descriptors, request->count, &fail);
    if (storing.gone != 0)
        return storing.gone;
    if (fail.code != 0)
        return client_fail(client, &fail);
    return client_send(client, REPLY_DONE, json_pack("{s:o}", "bytes", item_u64(storing.done)));
}
