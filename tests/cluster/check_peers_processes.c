/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers in processes of their own over the real fabric: what a kill looks like to the others.
 *
 * The program is its own node: with arguments it runs one node until it is killed. */

#include "config.h" /* pipe2() needs the system's extensions */

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/peers_lab.h"
#include "tests/lib/suite.h"

#define NODES 3

/* --- The child ------------------------------------------------------------------------------------------ */

static int run_node(char *const arguments[])
{
    static struct lab_node node;
    uv_loop_t loop;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    lab_set_hosts((uint32_t)strtoul(arguments[2], NULL, 10));
    uv_loop_init(&loop);
    lab_node_init(&node, &loop, (uint16_t)atoi(arguments[0]), NODES);
    node.incarnation = strtoull(arguments[1], NULL, 10);
    node.send_on_up = true;
    lab_node_open(&node);
    return uv_run(&loop, UV_RUN_DEFAULT);
}

static pid_t start_node(uint16_t id, uint64_t incarnation)
{
    char id_text[24], incarnation_text[24], hosts_text[24];
    uint32_t hosts = lab_host(0) & ~UINT32_C(0xff);
    pid_t pid;

    snprintf(id_text, sizeof(id_text), "%u", id);
    snprintf(incarnation_text, sizeof(incarnation_text), "%llu", (unsigned long long)incarnation);
    snprintf(hosts_text, sizeof(hosts_text), "%u", hosts);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        execl("/proc/self/exe", "node", id_text, incarnation_text, hosts_text, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static void kill_node(pid_t pid)
{
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

/* Returns when the child runs its program, which shares no descriptor that is closed on exec. */
static pid_t start_sleeper(void)
{
    int started[2];
    char byte;
    pid_t pid;

    ck_assert_int_eq(pipe2(started, O_CLOEXEC), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/bin/sleep", "sleep", "60", (char *)NULL);
        _exit(127);
    }
    close(started[1]);
    ck_assert_int_eq(read(started[0], &byte, 1), 0);
    close(started[0]);
    return pid;
}

/* --- The tests ------------------------------------------------------------------------------------------ */

/* This process is node 1: it is dialed by node 2 and dials node 0. Each is killed and started again at once,
 * at the same address, twice. */
START_TEST(test_killed_process_goes_down_and_its_successor_comes_up)
{
    struct lab *lab = lab_new(NODES);
    struct lab_node *self = &lab->nodes[1];
    uint16_t id = _i == 0 ? 0 : 2, other = _i == 0 ? 2 : 0;
    pid_t pid = start_node(id, 1000), other_pid = start_node(other, 1);

    lab_node_open(self);
    for (unsigned round = 0; round < 2; round++) {
        LAB_WAIT(lab, lab_is_up(self, id) && lab_is_up(self, other));
        LAB_WAIT(lab, self->messages == 2 + round); /* over the control lane */
        ck_assert_str_eq(self->last_message, "hello");
        ck_assert_uint_eq(peers_find(self->peers, id)->incarnation, 1000 + round);
        kill_node(pid);
        LAB_WAIT(lab, !lab_is_up(self, id));
        ck_assert_uint_eq(self->downs, round + 1);
        pid = start_node(id, 1001 + round);
    }
    LAB_WAIT(lab, lab_is_up(self, id));
    ck_assert(lab_is_up(self, other)); /* all the while */
    kill_node(pid);
    kill_node(other_pid);
    lab_free(lab);
}
END_TEST

/* Nothing of this process reaches one that it starts: the peer sees the end although the child lives. */
START_TEST(test_child_does_not_keep_the_connections)
{
    struct lab *lab = lab_new(NODES);
    struct lab_node *self = &lab->nodes[1];
    pid_t peer = start_node(0, 1), sleeper;

    lab_node_open(self);
    LAB_WAIT(lab, lab_is_up(self, 0));
    sleeper = start_sleeper();
    lab_node_close(self);
    self->ups = self->downs = 0;
    self->incarnation++;
    lab_node_open(self); /* the address is free, too */
    LAB_WAIT(lab, lab_is_up(self, 0));
    kill_node(sleeper);
    kill_node(peer);
    lab_free(lab);
}
END_TEST

int main(int argc, char **argv)
{
    const struct suite_test tests[] = {
        SUITE_LOOP(test_killed_process_goes_down_and_its_successor_comes_up, 2),
        SUITE_TEST(test_child_does_not_keep_the_connections)};

    if (argc == 4)
        return run_node(argv + 1);
    return suite_run("peers_processes", tests, sizeof(tests) / sizeof(tests[0]), 120);
}
