/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_LIB_FABRIC_ENDS_H
#define TESTS_LIB_FABRIC_ENDS_H

/* For tests of fabric.h: hosts (a fabric each) that are driven together, and ends (a link each) that record
 * every event of their link and check what holds for all of them: nothing before LINK_UP, nothing after
 * LINK_DOWN.
 *
 * The environment chooses what is tested: COVEY_TEST_PROVIDER ("tcp") at COVEY_TEST_ADDRESS ("127.0.0.1"). */

#include <poll.h>
#include <sys/socket.h>

#include "fabric/fabric.h"
#include "tests/lib/suite.h"

#define ENDS_PATIENCE_MS 60000 /* for a stuck test only */

struct words {
    uint64_t *at;
    size_t count, room;
};

struct host {
    struct fabric *fabric;
    size_t max_events; /* taken per poll */
};

/* Give an end to fabric_link_connect() or _expect() as the link's context. */
struct end {
    struct host *host;
    struct fabric_link *link;
    bool up, down;
    bool forgets; /* counts messages in lengths, does not keep their bytes */
    int error;
    char text[256];
    struct words immediates, cookies, lengths; /* arrived, done; bytes of messages */
    uint8_t *bytes;                            /* of all messages, end to end */
    size_t byte_count;
    void (*on_event)(struct end *end, const struct fabric_event *event); /* may be NULL */
    void *user;
};

struct pair {
    struct host a, b;
    struct end from, to; /* a link from a (connects) to b (expects) */
};

const char *ends_provider(void);
void ends_address(struct sockaddr_storage *address, size_t *bytes);

/* Run the tests whose names contain COVEY_TEST_ONLY, by default all: for places where some can take minutes.
 */
int ends_run(const char *name, const struct suite_test *tests, size_t count, double timeout);

/* Once, before tests fork: load what the backend loads for all its fabrics, if that is only software (the
 * kernel does not let a child use a device that its parent opened). */
void ends_load(void);

/* extra may be NULL: options to take connect_timeout_ns and write_bytes_limit from. */
void host_open(struct host *host, const struct fabric_options *extra);
void host_close(struct host *host);
/* Poll once, take max_events at most. Returns how many there were. */
size_t host_poll(struct host *host);
/* Poll until nothing is left, or a good while under a flood. Returns whether there was anything. */
bool host_drain(struct host *host);
/* Drive the hosts (NULL: none) once, asleep until one of them or fd (-1: none) has something. */
void hosts_step(struct host *a, struct host *b, int fd);

/* A distinct token for each number. */
void ends_token(uint64_t number, uint8_t token[FABRIC_TOKEN_BYTES]);
/* Begin a link from one host to the other. */
void ends_join(struct host *a, struct host *b, enum fabric_lane lane, uint64_t number, struct end *from,
               struct end *to);
/* Forget what an end recorded and free its link, which is down. */
void end_free(struct end *end);
/* Close the link, wait for LINK_DOWN, free. peer is driven too. */
void end_close(struct end *end, struct host *peer);

/* Two hosts and a link between them that is up, on the data lane unless it says which. */
void pair_open(struct pair *pair, const struct fabric_options *extra);
void pair_open_lane(struct pair *pair, enum fabric_lane lane, const struct fabric_options *extra);
void pair_close(struct pair *pair);

/* Post, driving both hosts while the answer is COVEY_AGAIN. Fails the test on another error. */
void pair_write(struct pair *pair, const struct fabric_write *write);
void pair_send(struct pair *pair, const void *data, size_t bytes);

/* Drive two hosts until the condition holds. */
#define HOSTS_UNTIL(a, b, condition)                                                     \
    do {                                                                                 \
        const uint64_t until_ms_ = ends_now_ms() + ENDS_PATIENCE_MS;                     \
        while (!(condition)) {                                                           \
            ck_assert_msg(ends_now_ms() < until_ms_, "never came true: %s", #condition); \
            hosts_step(a, b, -1);                                                        \
        }                                                                                \
    } while (0)
#define PAIR_UNTIL(pair, condition) HOSTS_UNTIL(&(pair)->a, &(pair)->b, condition)
uint64_t ends_now_ms(void);

/* Registered memory, and how its peer writes to it. */
struct target {
    uint8_t *base;
    size_t bytes;
    struct fabric_region *region;
    uint64_t address, key;
};
void target_open(struct target *target, struct host *host, size_t bytes, bool remote);
void target_close(struct target *target);
/* A write of one piece of `from` to the same offset of `to`. */
struct fabric_write target_write(const struct target *from, const struct target *to, size_t offset,
                                 size_t bytes);

#endif
