/* SPDX-License-Identifier: BSD-3-Clause */
/* Nodes that are in nobody's list: they join a cluster of two listed ones, and find each other. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/nodes.h"
#include "tests/lib/suite.h"

#define LISTED  2
#define ELASTIC 2

/* The cluster's file, and a block of the node's own behind it; its address is a neighbour of n0's. */
static void configure_elastic(struct nodes *nodes, size_t i, char path[128])
{
    struct covey_view view;
    unsigned high, low;
    char line[512];
    FILE *from, *to;

    ck_assert_int_eq(covey_node_view(nodes->node[0], &view), 0);
    ck_assert_int_eq(sscanf(view.members[0].address, "127.%u.%u.", &high, &low), 2);
    covey_view_free(&view);
    snprintf(path, 128, "%s/e%zu.conf", nodes->directory, i);
    from = fopen(nodes->config, "r");
    to = fopen(path, "w");
    ck_assert(from != NULL && to != NULL);
    while (fgets(line, sizeof(line), from) != NULL)
        fputs(line, to);
    fprintf(to, "node: { id = %zu; name = \"e%zu\"; address = \"127.%u.%u.%zu:7400\"; };\n", 40 + i, i, high,
            low, 100 + i);
    ck_assert_int_eq(fclose(from) + fclose(to), 0);
}

static void open_elastic(struct nodes *nodes, size_t i)
{
    struct covey_options *options;
    char path[128];

    configure_elastic(nodes, i, path);
    ck_assert_msg(covey_options_load(path, NULL, &options) == 0, "%s", covey_options_error());
    unlink(path);
    ck_assert_msg(covey_node_open(options, NULL, NULL, &nodes->node[i]) == 0, "%s", covey_node_open_error());
    covey_options_free(options);
    ck_assert_int_eq(covey_group_open(nodes->node[i], "g", NULL, NULL, &nodes->group[i]), 0);
    if (nodes->count <= i)
        nodes->count = i + 1;
}

static void expect_everywhere(struct nodes *nodes, const char *name, const char *content)
{
    for (size_t i = 0; i < nodes->count; i++) {
        struct covey_object *object;
        struct covey_buffer buffer;

        ck_assert_int_eq(covey_get(nodes->group[i], name, 0, &object), 0);
        ck_assert_int_eq(covey_object_buffer(object, 0, &buffer), 0);
        ck_assert_uint_eq(buffer.bytes, strlen(content));
        ck_assert_mem_eq(buffer.base, content, buffer.bytes);
        covey_object_release(object);
    }
}

START_TEST(test_elastic_nodes_join_leave_and_join_again)
{
    char content[] = "put by one elastic node, delivered at another";
    struct covey_buffer buffer = {.base = content, .bytes = sizeof(content) - 1};
    struct nodes nodes;

    nodes_open(&nodes, LISTED, "");
    for (size_t i = LISTED; i < LISTED + ELASTIC; i++)
        open_elastic(&nodes, i);
    nodes_wait(&nodes);
    nodes_put(&nodes, LISTED, "model", &buffer, 1);
    expect_everywhere(&nodes, "model", content);

    covey_node_close(nodes.node[LISTED]);
    nodes.node[LISTED] = NULL;
    nodes_wait(&nodes);
    open_elastic(&nodes, LISTED);
    nodes_wait(&nodes);
    nodes_close(&nodes);
}
END_TEST

SUITE_MAIN("elastic", 120, SUITE_TEST(test_elastic_nodes_join_leave_and_join_again))
