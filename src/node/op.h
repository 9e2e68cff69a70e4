/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NODE_OP_H
#define NODE_OP_H

/* An operation that the application waits for: one reference is the application's handle, one the loop's. The
 * result is written once, under the mutex, by the loop thread. */

#include "node/node.h"

struct covey_op {
    struct covey_node *node;
    atomic_int refs;
    atomic_uint_fast64_t bytes_done, bytes_total;
    pthread_mutex_t mutex;
    pthread_cond_t ended_condition;
    bool ended;
    int result;
    char text[FAIL_TEXT_MAX];
    struct covey_op_result outcome;
    uint64_t started_ns;
    void (*cancel)(struct covey_op *op); /* loop thread; NULL once its fate is decided */
    void *subject;                       /* loop thread: the replication or removal */
};

/* Two references. NULL without memory. */
struct covey_op *op_new(struct covey_node *node);
/* Loop thread: the end. Gives up the loop's reference. */
void op_end(struct covey_op *op, int result, const char *text);
void op_unref(struct covey_op *op);

#endif
