/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/serve/serve.h"

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "control/item.h"
#include "daemon/units.h"

#define FILL_BYTES ((size_t)16 << 20) /* between two beats */
#define BEAT_MS    500

/* A bench on its way: one object of one buffer, put again and again, and removed after each put so that the
 * memory is ours again and the next put finds the members as the last one did. */
struct bench {
    struct client *client;
    struct covey_group *group;
    char name[COVEY_NAME_MAX + 1];
    struct covey_buffer buffer;
    uint64_t done, total; /* puts */
    int gone;             /* not 0: the client is, so finish this put, clean up and end */
};

static void beat(struct bench *bench)
{
    if (bench->gone == 0)
        bench->gone = client_beat(bench->client, BEAT_MS, bench->done, bench->total);
}

/* Content that no layer can compress or find equal. */
static void fill(struct bench *bench)
{
    char *base = bench->buffer.base;
    size_t bytes = bench->buffer.bytes;
    struct rng rng;

    rng_init(&rng, bytes);
    for (size_t done = 0; done < bytes && bench->gone == 0;) {
        uint64_t word = rng_next(&rng);
        size_t part = bytes - done < sizeof(word) ? bytes - done : sizeof(word);

        memcpy(base + done, &word, part);
        done += part;
        if (done % FILL_BYTES == 0)
            beat(bench);
    }
}

/* Wait for the operation, client or no client, and free it. */
static int finish(struct bench *bench, struct covey_op *op, struct covey_op_result *done, struct fail *fail)
{
    int result = COVEY_AGAIN;

    while (result == COVEY_AGAIN && !bench->client->server->stopping) {
        covey_op_wait(op, BEAT_MS);
        result = covey_op_test(op);
        beat(bench);
    }
    if (result == COVEY_AGAIN)
        fail_set(fail, COVEY_CLOSED, "the daemon stops before the bench has ended");
    else if (result != 0)
        fail_set(fail, result, "%s",
                 covey_op_error(op)[0] != '\0' ? covey_op_error(op) : covey_strerror(result));
    else
        covey_op_result(op, done);
    covey_op_free(op);
    return fail->code;
}

static int refused(const struct bench *bench, int code, struct fail *fail)
{
    return fail_set(fail, code, "%s", covey_error_detail(bench->client->server->node));
}

static int put_once(struct bench *bench, struct covey_op_result *done, struct fail *fail)
{
    struct lender *lender = &bench->client->server->lender;
    struct covey_op *op;
    int result;

    lender_lend(lender, bench->buffer.base);
    result = covey_put(bench->group, bench->name, &bench->buffer, 1, &op);
    if (result != 0) {
        lender_return(lender, bench->buffer.base);
        return refused(bench, result, fail);
    }
    return finish(bench, op, done, fail);
}

/* Remove what was put and wait until its memory is ours again. */
static int take_back(struct bench *bench, struct fail *fail)
{
    struct covey_op_result ignored;
    struct covey_op *op;
    int result = covey_remove(bench->group, bench->name, &op);

    if (result != 0)
        return refused(bench, result, fail);
    result = finish(bench, op, &ignored, fail);
    while (result == 0 && !lender_await(&bench->client->server->lender, bench->buffer.base, BEAT_MS)) {
        beat(bench);
        if (bench->client->server->stopping)
            return fail_set(fail, COVEY_CLOSED, "the daemon stops before the bench has ended");
    }
    return result;
}

static json_t *put_item(const struct bench *bench, const struct covey_op_result *done)
{
    json_t *item = serve_result_json(done);

    if (item == NULL)
        return NULL;
    json_object_set_new(item, "number", item_u64(bench->done + 1));
    return item;
}

static int repeat(struct bench *bench, struct fail *fail)
{
    for (; bench->done < bench->total && bench->gone == 0; bench->done++) {
        struct covey_op_result done;
        json_t *items;

        if (put_once(bench, &done, fail) != 0 || take_back(bench, fail) != 0)
            return fail->code;
        if (bench->gone != 0)
            return 0;
        items = json_array();
        json_array_append_new(items, put_item(bench, &done));
        bench->gone = client_send(bench->client, REPLY_ITEMS, items);
    }
    return 0;
}

static int check_size(const struct covey_group_info *info, uint64_t bytes, struct fail *fail)
{
    if (bytes <= info->budget_bytes)
        return 0;
    return fail_set(fail, COVEY_BUDGET, "the group's budget is %s, an object of %s does not fit",
                    UNITS_BYTES(info->budget_bytes), UNITS_BYTES(bytes));
}

static json_t *summary(const struct bench *bench, const struct covey_group_info *info)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "group", item_text(covey_group_name(bench->group)),
                     "members", item_u64(info->members), "memory",
                     serve_memory_json(info->memory, info->device), "bytes", item_u64(bench->buffer.bytes),
                     "count", item_u64(bench->total));
}

static int run(struct bench *bench, const struct covey_group_info *info)
{
    struct lender *lender = &bench->client->server->lender;
    struct fail fail = {0};

    bench->buffer.base = lender_take(lender, bench->buffer.bytes);
    if (bench->buffer.base == NULL) {
        fail_set(&fail, COVEY_NO_MEMORY, "the daemon has no memory for %zu bytes", bench->buffer.bytes);
        return client_fail(bench->client, &fail);
    }
    fill(bench);
    repeat(bench, &fail);
    lender_drop(lender, bench->buffer.base);
    if (bench->gone != 0)
        return bench->gone;
    if (fail.code != 0)
        return client_fail(bench->client, &fail);
    return client_send(bench->client, REPLY_DONE, summary(bench, info));
}

int serve_bench(struct client *client, const struct request *request)
{
    struct bench bench = {.client = client, .total = request->count};
    struct covey_group_info info;
    struct fail fail = {0};
    int result;

    if (server_group(client->server, request->group, &bench.group, &fail) != 0)
        return client_fail(client, &fail);
    result = covey_group_info(bench.group, &info);
    if (result != 0)
        return client_fail_node(client, result);
    if (check_size(&info, request->bytes, &fail) != 0)
        return client_fail(client, &fail);
    snprintf(bench.name, sizeof(bench.name), "bench-%u-%.200s", ++client->server->benches,
             client->server->node_name);
    bench.buffer = (struct covey_buffer){.bytes = request->bytes, .memory = COVEY_MEMORY_HOST};
    return run(&bench, &info);
}
