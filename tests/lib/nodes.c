/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/lib/nodes.h"

#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_MS 60000

static void write_config(struct nodes *nodes, const char *cluster, const char *settings)
{
    unsigned host = 1 + (unsigned)getpid() % 250, net = (unsigned)getpid() / 250 % 250;
    FILE *file = fopen(nodes->config, "w");

    ck_assert_ptr_nonnull(file);
    /* A test that is not about suspicion has all the time that a busy machine under a sanitizer may take. */
    fprintf(file, "cluster: { name = \"test\"; %s };\nnodes: (\n",
            strstr(cluster, "suspect_after") != NULL ? cluster
                                                     : "suspect_after = \"10s\"; stall_after = \"60s\";");
    for (size_t i = 0; i < nodes->count; i++)
        fprintf(file, "  { id = %zu; name = \"n%zu\"; address = \"127.%u.%u.%zu:7400\"; }%s\n", i, i, 1 + net,
                host, i + 1, i + 1 < nodes->count ? "," : "");
    fprintf(file, ");\ngroups: ( { name = \"g\"; members = \"all\"; %s } );\n", settings);
    fprintf(file, "control: { socket = \"%s/%%n.sock\"; };\n", nodes->directory);
    fprintf(file, "log: { level = \"debug\"; };\n");
    ck_assert_int_eq(fclose(file), 0);
}

void nodes_configure(struct nodes *nodes, size_t count, const char *cluster, const char *settings)
{
    memset(nodes, 0, sizeof(*nodes));
    ck_assert_uint_le(count, NODES_MAX);
    nodes->count = count;
    snprintf(nodes->directory, sizeof(nodes->directory), "/tmp/covey-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(nodes->directory));
    snprintf(nodes->config, sizeof(nodes->config), "%s/covey.conf", nodes->directory);
    write_config(nodes, cluster, settings);
}

static void show_log(void *context, enum covey_log_level level, const char *line)
{
    (void)level;
    if (getenv("COVEY_TEST_LOG") != NULL)
        fprintf(stderr, "n%zu: %s\n", (size_t)(uintptr_t)context, line);
}

void nodes_open_one(struct nodes *nodes, size_t i, unsigned flags,
                    const struct covey_group_callbacks *callbacks, void *context)
{
    static const struct covey_callbacks log = {.on_log = show_log};
    struct covey_options *options;
    char name[16];

    snprintf(name, sizeof(name), "n%zu", i);
    ck_assert_msg(covey_options_load(nodes->config, name, &options) == 0, "%s", covey_options_error());
    ck_assert_msg(covey_node_open_flags(options, &log, (void *)(uintptr_t)i, flags, &nodes->node[i]) == 0,
                  "%s", covey_node_open_error());
    covey_options_free(options);
    ck_assert_msg(covey_group_open(nodes->node[i], "g", callbacks, context, &nodes->group[i]) == 0, "%s",
                  covey_error_detail(nodes->node[i]));
}

size_t nodes_view_size(struct nodes *nodes, size_t i)
{
    struct covey_view view;
    size_t size;

    ck_assert_int_eq(covey_view(nodes->group[i], &view), 0);
    size = view.state == COVEY_STATE_RUNNING ? view.size : 0;
    covey_view_free(&view);
    return size;
}

void nodes_wait_size(struct nodes *nodes, size_t i, size_t size)
{
    for (int waited_ms = 0; nodes_view_size(nodes, i) != size; waited_ms++) {
        ck_assert_msg(waited_ms < WAIT_MS, "n%zu has a view of %zu, not %zu", i, nodes_view_size(nodes, i),
                      size);
        poll(NULL, 0, 1);
    }
}

void nodes_wait(struct nodes *nodes)
{
    size_t open = 0;

    for (size_t i = 0; i < nodes->count; i++) {
        if (nodes->node[i] != NULL)
            ck_assert_msg(covey_group_wait(nodes->group[i], WAIT_MS) == 0, "n%zu: %s", i,
                          covey_error_detail(nodes->node[i]));
        open += nodes->node[i] != NULL;
    }
    for (size_t i = 0; i < nodes->count; i++) {
        if (nodes->node[i] != NULL)
            nodes_wait_size(nodes, i, open);
    }
}

void nodes_open(struct nodes *nodes, size_t count, const char *settings)
{
    nodes_configure(nodes, count, "", settings);
    for (size_t i = 0; i < count; i++)
        nodes_open_one(nodes, i, 0, NULL, NULL);
    nodes_wait(nodes);
}

void nodes_close(struct nodes *nodes)
{
    for (size_t i = 0; i < nodes->count; i++)
        covey_node_close(nodes->node[i]);
    unlink(nodes->config);
    rmdir(nodes->directory);
}

uint64_t nodes_put(struct nodes *nodes, size_t i, const char *name, const struct covey_buffer *buffers,
                   size_t count)
{
    struct covey_op_result result;
    struct covey_op *op;

    ck_assert_msg(covey_put(nodes->group[i], name, buffers, count, &op) == 0, "%s",
                  covey_error_detail(nodes->node[i]));
    ck_assert_msg(covey_op_wait(op, WAIT_MS) == 0, "put %s: %s", name, covey_op_error(op));
    ck_assert_int_eq(covey_op_result(op, &result), 0);
    covey_op_free(op);
    return result.version;
}

static uint64_t pattern_word(uint64_t index, uint64_t seed)
{
    uint64_t z = (index + seed * 1000003) * UINT64_C(0x9e3779b97f4a7c15);

    return z ^ z >> 29;
}

void pattern_fill(void *memory, size_t bytes, uint64_t seed)
{
    char *out = memory;

    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word = pattern_word(i, seed);

        memcpy(out + i, &word, bytes - i < sizeof(word) ? bytes - i : sizeof(word));
    }
}

size_t pattern_check(const void *memory, size_t bytes, uint64_t seed)
{
    const char *in = memory;

    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word = pattern_word(i, seed);

        if (memcmp(in + i, &word, bytes - i < sizeof(word) ? bytes - i : sizeof(word)) != 0)
            return i;
    }
    return bytes;
}
