/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_LIB_DAEMONS_H
#define TESTS_LIB_DAEMONS_H

/* A cluster of real coveyd processes on loopback, asked through covey. Each test has a cluster, a folder and
 * addresses of its own. Whatever goes wrong fails the test. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/lib/process.h"

#define DAEMONS_MAX 16

struct daemons {
    unsigned listed; /* nodes n0, n1, ... of the list; those beyond are elastic */
    unsigned count;
    const char *settings;
    char directory[40];
    pid_t pids[DAEMONS_MAX];    /* 0: does not run */
    char logs[DAEMONS_MAX][96]; /* of the last start */
};

/* What a node says of its view. */
struct seen {
    bool answered; /* else all the rest is 0 */
    uint64_t number, epoch;
    char state[16];
    bool quorate;
    uint32_t size;
    uint32_t ids[DAEMONS_MAX]; /* by rank */
    uint64_t incarnations[DAEMONS_MAX];
    uint64_t own_incarnation;
};

/* A configuration for `listed` nodes and `elastic` more. settings: keys of the cluster besides the
 * heartbeat, which is 20ms. */
void daemons_init(struct daemons *daemons, unsigned listed, unsigned elastic, const char *settings);
/* Let elastic node i say that its id is that one. */
void daemons_identify(struct daemons *daemons, unsigned i, unsigned id);
/* Start node i, without waiting for anything. */
void daemons_start(struct daemons *daemons, unsigned i);
/* Start all of the list, wait for a view of them all. */
void daemons_start_all(struct daemons *daemons);
/* SIGKILL, and wait for the end. */
void daemons_kill(struct daemons *daemons, unsigned i);
/* SIGSTOP, and wait until it stands still; SIGCONT. */
void daemons_pause(const struct daemons *daemons, unsigned i);
void daemons_resume(const struct daemons *daemons, unsigned i);
/* Whether the log of node i, since its last start, has that text. */
bool daemons_logged(const struct daemons *daemons, unsigned i, const char *text);
/* SIGTERM, and check that it ends well. */
void daemons_stop(struct daemons *daemons, unsigned i);
/* End all that run, check that each ends well, and remove the folder. */
void daemons_fini(struct daemons *daemons);

/* covey -s SOCKET --json ARGUMENTS..., the last of which is NULL. */
void daemons_covey(const struct daemons *daemons, unsigned i, struct result *result, ...)
    __attribute__((sentinel));
/* The same in the background. Its output is for daemons_end(). */
pid_t daemons_covey_start(const struct daemons *daemons, unsigned i, const char *const *arguments);
bool daemons_covey_ended(pid_t pid);
void daemons_covey_end(const struct daemons *daemons, pid_t pid, struct result *result);

void daemons_view(const struct daemons *daemons, unsigned i, struct seen *seen);
bool daemons_is_running(const struct daemons *daemons, unsigned i, uint32_t size);
bool daemons_is_in_state(const struct daemons *daemons, unsigned i, const char *state);
/* Until each node that runs is in a running view with exactly these many members. */
void daemons_await(const struct daemons *daemons, uint32_t size);
/* A counter of `covey stats`. */
uint64_t daemons_stat(const struct daemons *daemons, unsigned i, const char *name);

/* A file in the folder, as node_file() makes it. Static buffer. */
const char *daemons_file(const struct daemons *daemons, const char *name, size_t bytes, unsigned seed);

/* Put from node i; it must succeed. */
void daemons_put(const struct daemons *daemons, unsigned i, const char *name, const char *file);
/* "VERSION DIGEST" of the newest version of the object at node i; "" if it has none that is delivered. */
void daemons_object(const struct daemons *daemons, unsigned i, const char *name, char text[64]);

#endif
