/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_LIB_PEERS_LAB_H
#define TESTS_LIB_PEERS_LAB_H

/* Nodes that are peers and a fabric and nothing else, each at a loopback address of its own, in one loop.
 *
 * A test waits for a condition and nothing else; a clock decides only that it waited too long. */

#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "node/peers_private.h"

#define LAB_NODES_MAX 5
#define LAB_PORT      7411 /* no other test uses it: the hosts of two may be the same */
#define LAB_PATIENCE  20   /* seconds */

struct lab_lines {
    char text[512][FAIL_TEXT_MAX];
    size_t count;
};

struct lab_node {
    uint16_t id;
    struct covey_options options; /* may be changed between init and open */
    struct node_options list[LAB_NODES_MAX];
    struct group_options group;
    uint64_t incarnation;
    uv_loop_t *loop;
    uv_poll_t watch; /* of the fabric */
    uv_prepare_t turn;
    struct fabric *fabric;
    struct peers *peers; /* NULL while closed */
    struct peers_callbacks callbacks;
    struct log log;
    struct lab_lines lines; /* that were logged */
    unsigned ups, downs, messages;
    char last_message[64];
    char last_down[FAIL_TEXT_MAX];
    bool disconnect_on_up, send_on_up;
};

struct lab {
    uv_loop_t loop;
    size_t count;
    struct lab_node nodes[LAB_NODES_MAX]; /* [0, count) form a cluster; the others are for the test */
};

struct lab *lab_new(size_t count);
void lab_open(struct lab *lab); /* the nodes of the cluster */
void lab_free(struct lab *lab);
bool lab_all_up(const struct lab *lab);

/* Addresses of this test: 127.x.y.(n + 1), x.y by the process that first asked, or as set. */
uint32_t lab_host(uint16_t n);
void lab_set_hosts(uint32_t base);

/* A node of a list of `count` nodes; elastic if its id is not in it. */
void lab_node_init(struct lab_node *node, uv_loop_t *loop, uint16_t id, size_t count);
void lab_node_set_address(struct node_options *node, uint32_t host, uint16_t port);
int lab_node_try_open(struct lab_node *node, struct fail *fail);
void lab_node_open(struct lab_node *node);
void lab_node_close(struct lab_node *node); /* if it is open */
void lab_node_fini(struct lab_node *node);

bool lab_is_up(const struct lab_node *node, uint32_t id);
/* Lines logged that have the part in them. */
size_t lab_logged(const struct lab_node *node, const char *part);
bool lab_problem_has(const struct lab_node *node, uint32_t id, const char *part);

/* A connection that is not a node's. */
int lab_connect(const struct lab_node *node);
bool lab_has_ended(int fd);

void lab_wake(uv_timer_t *timer);

/* Run the loop until the condition holds. The timer only makes a loop without events look at it. */
#define LAB_WAIT(lab, condition)                                                    \
    do {                                                                            \
        uv_timer_t timer_;                                                          \
        uint64_t end_ = uv_hrtime() + LAB_PATIENCE * UINT64_C(1000000000);          \
        uv_timer_init(&(lab)->loop, &timer_);                                       \
        uv_timer_start(&timer_, lab_wake, 10, 10);                                  \
        while (!(condition)) {                                                      \
            ck_assert_msg(uv_hrtime() < end_, "waited in vain for %s", #condition); \
            uv_run(&(lab)->loop, UV_RUN_ONCE);                                      \
        }                                                                           \
        uv_close((uv_handle_t *)&timer_, NULL);                                     \
        uv_run(&(lab)->loop, UV_RUN_NOWAIT);                                        \
    } while (0)

#endif
