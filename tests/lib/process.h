/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_LIB_PROCESS_H
#define TESTS_LIB_PROCESS_H

/* Programs as tests run them: coveyd and covey of the build folder, in a directory of the test's own.
 *
 * Whatever goes wrong fails the test. A test that ends early leaves its directory in /tmp, for a look; its
 * processes end with it. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define OUTPUT_MAX 65536

/* --- One program ---------------------------------------------------------------------------------------- */

struct result {
    int status; /* of its exit; 128 + the signal that ended it */
    char output[OUTPUT_MAX], errors[OUTPUT_MAX];
};

/* Start a program; its output goes to the two files. It gets SIGKILL when the test ends. */
pid_t process_start(const char *const *arguments, const char *output_path, const char *errors_path);

/* Wait for its end; the status as in struct result. */
int process_wait(pid_t pid);

/* How many descriptors and threads it has. */
size_t process_descriptors(pid_t pid);
size_t process_threads(pid_t pid);

/* The whole file as text, cut at `room` - 1 bytes. */
void process_read(const char *path, char *out, size_t room);

/* Poll until the condition holds; fails the test after half a minute. */
#define PROCESS_AWAIT(condition)                                                        \
    do {                                                                                \
        for (int tries_ = 0; !(condition); tries_++)                                    \
            ck_assert_msg(process_pause() && tries_ < 3000, "in vain: %s", #condition); \
    } while (0)
bool process_pause(void); /* 10 ms; true */

/* --- A node --------------------------------------------------------------------------------------------- */

struct node {
    char name[8];
    char directory[40];
    char config[64], socket[64], log[64];
    char address[32]; /* of node n0; n1 and so on are on the ports above */
    pid_t pid;        /* 0: not running */
};

/* A directory with the configuration of a cluster of `nodes`, which has the one group "models". */
void node_init(struct node *node, unsigned nodes);
/* The same file with log.level and heartbeat. */
void node_configure(const struct node *node, unsigned nodes, const char *level, const char *heartbeat);

/* Node n<number> of the same cluster, for node_start() and what follows; it is not for node_fini(). */
void node_beside(const struct node *first, unsigned number, struct node *node);

/* Start it and wait until it answers. */
void node_start(struct node *node);

/* Start it, whatever comes of it; its log is the result's errors. */
void node_run(const struct node *node, struct result *result);

/* kill -9. */
void node_kill(struct node *node);

/* End it politely; checks that its exit status is 0. */
void node_stop(struct node *node);

/* End it if it runs, and remove the directory; checks that nothing of the daemon's is left there. */
void node_fini(struct node *node);

/* covey -s SOCKET ARGUMENTS..., the last of which is NULL. */
void node_covey(const struct node *node, struct result *result, ...) __attribute__((sentinel));

/* A path in the node's directory, in one of a few static buffers. */
const char *node_path(const struct node *node, const char *name);

/* A file there of that many bytes, which depend on the seed only. */
const char *node_file(const struct node *node, const char *name, size_t bytes, unsigned seed);

bool files_equal(const char *left, const char *right);

#endif
