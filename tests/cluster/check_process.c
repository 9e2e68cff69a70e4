/* SPDX-License-Identifier: BSD-3-Clause */
/* The library as a guest in somebody's process: forks, signals, many descriptors, exit without leaving. */

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/nodes.h"
#include "tests/lib/suite.h"

#define MIB ((size_t)1 << 20)

static void put_some(struct nodes *nodes, const char *name)
{
    char *memory = malloc(4 * MIB);
    struct covey_buffer buffer = {.base = memory, .bytes = 4 * MIB};

    pattern_fill(memory, 4 * MIB, 3);
    nodes_put(nodes, 0, name, &buffer, 1);
    nodes_put(nodes, 0, name, NULL, 0);
    free(memory);
}

/* In a child every call is a defined error, closing frees nothing of the parent's, and exit works; the parent
 * goes on. */
START_TEST(test_child_of_a_fork_is_refused_and_harmless)
{
    struct covey_object *object;
    struct covey_view view;
    struct covey_op *op;
    struct nodes nodes;
    int status;
    pid_t child;

    nodes_open(&nodes, 2, "keep_versions = 1;");
    put_some(&nodes, "before");
    child = fork();
    if (child == 0) {
        int rc = covey_put(nodes.group[0], "child", NULL, 0, &op) != COVEY_FORKED ||
                 covey_get(nodes.group[0], "before", 0, &object) != COVEY_FORKED ||
                 covey_remove(nodes.group[0], "before", &op) != COVEY_FORKED ||
                 covey_node_view(nodes.node[0], &view) != COVEY_FORKED ||
                 covey_group_wait(nodes.group[0], 10) != COVEY_FORKED;

        covey_node_close(nodes.node[0]);
        _exit(rc);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    put_some(&nodes, "after");
    nodes_close(&nodes);
}
END_TEST

static const int signals[] = {SIGUSR1, SIGUSR2, SIGINT, SIGTERM, SIGCHLD, SIGPIPE, SIGALRM, SIGHUP};

static void ignore(int number)
{
    (void)number;
}

START_TEST(test_signal_dispositions_are_not_touched)
{
    struct sigaction before[8], after;
    struct nodes nodes;

    for (size_t i = 0; i < 8; i++) {
        struct sigaction action = {.sa_handler = ignore};

        ck_assert_int_eq(sigaction(signals[i], &action, NULL), 0);
        sigaction(signals[i], NULL, &before[i]);
    }
    nodes_open(&nodes, 2, "keep_versions = 1;");
    put_some(&nodes, "model");
    covey_node_close(nodes.node[1]);
    nodes.node[1] = NULL;
    for (size_t i = 0; i < 8; i++) {
        sigaction(signals[i], NULL, &after);
        ck_assert_msg(after.sa_handler == before[i].sa_handler && after.sa_flags == before[i].sa_flags,
                      "signal %d", signals[i]);
    }
    nodes_close(&nodes);
}
END_TEST

START_TEST(test_interrupted_system_calls_have_no_visible_effect)
{
    struct sigaction action = {.sa_handler = ignore}; /* without SA_RESTART */
    struct itimerval every = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    struct nodes nodes;

    ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
    ck_assert_int_eq(setitimer(ITIMER_REAL, &every, NULL), 0);
    nodes_open(&nodes, 3, "keep_versions = 1;");
    for (int i = 0; i < 5; i++)
        put_some(&nodes, "model");
    nodes_close(&nodes);
    ck_assert_int_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
}
END_TEST

START_TEST(test_descriptors_above_1024_work)
{
    static int extra[1100];
    struct rlimit limit;
    struct nodes nodes;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < 2000)
        return; /* the limit of this machine forbids it */
    limit.rlim_cur = limit.rlim_max < 8192 ? limit.rlim_max : 8192;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (size_t i = 0; i < 1100; i++) {
        extra[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        ck_assert_int_ge(extra[i], 0);
    }
    nodes_open(&nodes, 2, "keep_versions = 1;");
    put_some(&nodes, "model");
    nodes_close(&nodes);
    for (size_t i = 0; i < 1100; i++)
        close(extra[i]);
}
END_TEST

/* The leak checker asks. A process that exits amid its node's work has memory that is on its way somewhere.
 */
static bool leaks_are_meant;
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return leaks_are_meant;
}

/* exit() without leaving: no abort, no hang, the exit code is kept. */
START_TEST(test_exit_without_leaving_keeps_the_exit_code)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        struct nodes nodes;

        leaks_are_meant = true;
        nodes_configure(&nodes, 2, "", "");
        nodes_open_one(&nodes, 0, 0, NULL, NULL);
        nodes_open_one(&nodes, 1, 0, NULL, NULL);
        unlink(nodes.config);
        rmdir(nodes.directory);
        exit(42);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 42);
}
END_TEST

static size_t open_descriptors(void)
{
    size_t count = 0;

    for (int fd = 0; fd < 4096; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

START_TEST(test_opening_and_closing_leaves_nothing_behind)
{
    size_t before = 0;

    for (int i = 0; i < 6; i++) {
        struct nodes nodes;

        nodes_open(&nodes, 2, "keep_versions = 1;");
        put_some(&nodes, "model");
        nodes_close(&nodes);
        if (i == 1)
            before = open_descriptors();
    }
    ck_assert_uint_eq(open_descriptors(), before);
}
END_TEST

SUITE_MAIN("process", 120, SUITE_TEST(test_child_of_a_fork_is_refused_and_harmless),
           SUITE_TEST(test_signal_dispositions_are_not_touched),
           SUITE_TEST(test_interrupted_system_calls_have_no_visible_effect),
           SUITE_TEST(test_descriptors_above_1024_work),
           SUITE_TEST(test_exit_without_leaving_keeps_the_exit_code),
           SUITE_TEST(test_opening_and_closing_leaves_nothing_behind))
