/* SPDX-License-Identifier: BSD-3-Clause */
/* Members that are killed in the middle of an object: those who are left finish it from what they hold, or
 * none of them has it, and whoever waits for it hears which. */

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/nodes.h"
#include "tests/lib/suite.h"

#define MEMBERS 4
#define BYTES   ((size_t)48 << 20)
#define WAIT_MS 60000

static const char *const schedules[] = {"sequential", "chain", "tree", "binomial", "circulant"};
#define SCHEDULES (int)(sizeof(schedules) / sizeof(schedules[0]))

/* --- A member in a process of its own ---------------------------------------------------------------------
 */

static void configure(struct nodes *nodes, const char *schedule)
{
    char settings[128];

    snprintf(settings, sizeof(settings), "keep_versions = 1; block = \"64KiB\"; schedule = \"%s\";",
             schedule);
    nodes_configure(nodes, MEMBERS, "", settings);
}

/* Bytes that have come of an object that is on its way; 0 if none is. */
static uint64_t bytes_received(struct covey_group *group)
{
    struct covey_object_info *list;
    uint64_t bytes = 0;
    size_t count;

    ck_assert_int_eq(covey_objects(group, &list, &count), 0);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(list[i].state, "receiving") == 0)
            bytes = list[i].bytes_done;
    }
    free(list);
    return bytes;
}

/* Dies as soon as so much, and not all, of an object has come. */
static void receive_and_die(struct nodes *nodes, size_t i, uint64_t bytes)
{
    uint64_t done;

    do {
        poll(NULL, 0, 1);
        done = bytes_received(nodes->group[i]);
    } while (done < bytes || done == BYTES);
    raise(SIGKILL);
}

/* Puts an object and dies when so much of what it sends has gone out. */
static void put_and_die(struct nodes *nodes, size_t i, uint64_t bytes)
{
    struct covey_buffer buffer = {.base = malloc(BYTES), .bytes = BYTES};
    uint64_t done = 0, total;
    struct covey_op *op;

    pattern_fill(buffer.base, BYTES, 3);
    ck_assert_int_eq(covey_put(nodes->group[i], "model", &buffer, 1, &op), 0);
    while (done < bytes && covey_op_test(op) == COVEY_AGAIN)
        covey_op_progress(op, &done, &total);
    raise(SIGKILL);
}

typedef void (*life)(struct nodes *nodes, size_t i, uint64_t bytes);

/* Before this process has threads: a child that is node i, and lives so. */
static pid_t start_child(struct nodes *nodes, size_t i, life live, uint64_t bytes)
{
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid != 0)
        return pid;
    nodes_open_one(nodes, i, 0, NULL, NULL);
    nodes_wait_size(nodes, i, MEMBERS);
    live(nodes, i, bytes);
    _exit(1);
}

static void expect_killed(pid_t pid)
{
    int status;

    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* --- Those who are left ------------------------------------------------------------------------------------
 */

static atomic_int landings;

static int count_landing(void *context, struct covey_group *group, const struct covey_offer *offer,
                         struct covey_buffer *buffers)
{
    (void)context;
    (void)group;
    (void)offer;
    (void)buffers;
    atomic_fetch_add(&landings, 1);
    return 0;
}

static void open_others(struct nodes *nodes, size_t victim)
{
    static const struct covey_group_callbacks callbacks = {.on_landing = count_landing};

    atomic_store(&landings, 0);
    for (size_t i = 0; i < MEMBERS; i++) {
        if (i != victim)
            nodes_open_one(nodes, i, 0, &callbacks, NULL);
    }
}

static uint64_t counter(struct covey_node *node, const char *name)
{
    struct covey_stat *list;
    uint64_t value = 0;
    size_t count;

    ck_assert_int_eq(covey_node_stats(node, &list, &count), 0);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(list[i].name, name) == 0)
            value = list[i].value;
    }
    free(list);
    return value;
}

static uint64_t bytes_received_by_all(struct nodes *nodes)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < MEMBERS; i++)
        sum += nodes->node[i] != NULL ? counter(nodes->node[i], "received_bytes") : 0;
    return sum;
}

static bool has_object(struct nodes *nodes, size_t i)
{
    struct covey_object *object;
    struct covey_buffer buffer;

    if (covey_get(nodes->group[i], "model", 0, &object) != 0)
        return false;
    ck_assert_int_eq(covey_object_buffer(object, 0, &buffer), 0);
    ck_assert_uint_eq(pattern_check(buffer.base, BYTES, 3), BYTES);
    covey_object_release(object);
    return true;
}

/* Put until the receiver is killed in the middle of it: on a busy machine a whole object may go by between
 * two of its looks. */
static void put_until_killed(struct nodes *nodes, const struct covey_buffer *buffer, pid_t child)
{
    struct covey_op *op;
    int status = 0;

    while (waitpid(child, &status, WNOHANG) == 0) {
        uint64_t before = bytes_received_by_all(nodes);
        int landed = atomic_load(&landings);

        ck_assert_int_eq(covey_put(nodes->group[0], "model", buffer, 1, &op), 0);
        ck_assert_msg(covey_op_wait(op, WAIT_MS) == 0, "%s", covey_op_error(op));
        covey_op_free(op);
        ck_assert_int_eq(atomic_load(&landings) - landed, MEMBERS - 2);
        ck_assert_uint_eq(bytes_received_by_all(nodes) - before, (MEMBERS - 2) * BYTES);
    }
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* T08. A receiver is killed at half of the object, whatever it passes on to others: the put ends well, nobody
 * lands twice, and no block comes twice to anyone. */
START_TEST(test_put_ends_well_though_a_receiver_is_killed)
{
    size_t victim = 1 + (size_t)_i / SCHEDULES;
    struct covey_buffer buffer = {.base = malloc(BYTES), .bytes = BYTES};
    struct nodes nodes;
    pid_t child;

    configure(&nodes, schedules[_i % SCHEDULES]);
    child = start_child(&nodes, victim, receive_and_die, BYTES / 2);
    open_others(&nodes, victim);
    nodes_wait_size(&nodes, 0, MEMBERS);
    pattern_fill(buffer.base, BYTES, 3);
    put_until_killed(&nodes, &buffer, child);
    for (size_t i = 0; i < MEMBERS; i++)
        ck_assert(i == victim || has_object(&nodes, i));
    nodes_close(&nodes);
    free(buffer.base);
}
END_TEST

/* Nothing of it is on its way any more. */
static bool is_settled(struct nodes *nodes, size_t i)
{
    struct covey_object_info *list;
    size_t count, settled = 0;

    ck_assert_int_eq(covey_objects(nodes->group[i], &list, &count), 0);
    for (size_t k = 0; k < count; k++)
        settled += strcmp(list[k].state, "delivered") == 0;
    free(list);
    return settled == count;
}

static void await_settled(struct nodes *nodes, size_t i)
{
    nodes_wait_size(nodes, i, MEMBERS - 1);
    for (int waited_ms = 0; !is_settled(nodes, i); waited_ms++) {
        ck_assert_int_lt(waited_ms, WAIT_MS);
        poll(NULL, 0, 1);
    }
}

static void kill_root(struct nodes *nodes, const char *schedule, uint64_t bytes)
{
    pid_t child;

    configure(nodes, schedule);
    child = start_child(nodes, 0, put_and_die, bytes);
    open_others(nodes, 0);
    expect_killed(child);
    for (size_t i = 1; i < MEMBERS; i++)
        await_settled(nodes, i);
}

/* The root dies early, in the middle, or with everything sent: all who are left have the object, or none. */
START_TEST(test_root_killed_is_all_or_nothing)
{
    size_t holders = 0;
    struct nodes nodes;

    kill_root(&nodes, schedules[_i % SCHEDULES], (uint64_t)(1 + _i / SCHEDULES) * BYTES / 4);
    for (size_t i = 1; i < MEMBERS; i++)
        holders += has_object(&nodes, i);
    ck_assert(holders == 0 || holders == MEMBERS - 1);
    nodes_close(&nodes);
}
END_TEST

/* With what is left of a group whose root died in a put, the next put works. */
START_TEST(test_next_put_after_a_root_was_killed)
{
    struct covey_buffer buffer = {.base = malloc(BYTES), .bytes = BYTES};
    struct nodes nodes;

    kill_root(&nodes, "auto", BYTES / 2);
    pattern_fill(buffer.base, BYTES, 3);
    nodes_put(&nodes, 1, "model", &buffer, 1);
    for (size_t i = 1; i < MEMBERS; i++)
        ck_assert(has_object(&nodes, i));
    nodes_close(&nodes);
    free(buffer.base);
}
END_TEST

SUITE_MAIN("interrupted", 120, SUITE_LOOP(test_put_ends_well_though_a_receiver_is_killed, 3 * SCHEDULES),
           SUITE_LOOP(test_root_killed_is_all_or_nothing, 4 * SCHEDULES),
           SUITE_TEST(test_next_put_after_a_root_was_killed))
