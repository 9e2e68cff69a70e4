/* SPDX-License-Identifier: BSD-3-Clause */
#include "node/op.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct covey_op *op_new(struct covey_node *node)
{
    struct covey_op *op = calloc(1, sizeof(*op));
    pthread_condattr_t monotonic;

    if (op == NULL)
        return NULL;
    op->node = node;
    atomic_init(&op->refs, 2);
    pthread_mutex_init(&op->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&op->ended_condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
    op->started_ns = uv_hrtime();
    return op;
}

void op_unref(struct covey_op *op)
{
    if (atomic_fetch_sub(&op->refs, 1) > 1)
        return;
    pthread_mutex_destroy(&op->mutex);
    pthread_cond_destroy(&op->ended_condition);
    free(op);
}

void op_end(struct covey_op *op, int result, const char *text)
{
    op->cancel = NULL;
    op->subject = NULL;
    pthread_mutex_lock(&op->mutex);
    op->outcome.duration_ns = uv_hrtime() - op->started_ns;
    op->result = result;
    if (result != 0)
        snprintf(op->text, sizeof(op->text), "%s", text);
    op->ended = true;
    pthread_mutex_unlock(&op->mutex);
    pthread_cond_broadcast(&op->ended_condition); /* unlocked: who wakes need not wait again, for the mutex */
    op_unref(op);
}

static bool op_ended(struct covey_op *op)
{
    bool ended;

    pthread_mutex_lock(&op->mutex);
    ended = op->ended;
    pthread_mutex_unlock(&op->mutex);
    return ended;
}

/* timeout_ms from now, on the monotonic clock. */
static struct timespec deadline_after(int timeout_ms)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += timeout_ms / 1000;
    at.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (at.tv_nsec >= 1000000000L) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000L;
    }
    return at;
}

static int wait_threaded(struct covey_op *op, int timeout_ms)
{
    struct timespec deadline = deadline_after(timeout_ms < 0 ? 0 : timeout_ms);
    int rc = 0;

    pthread_mutex_lock(&op->mutex);
    while (!op->ended && rc != ETIMEDOUT) {
        rc = timeout_ms < 0 ? pthread_cond_wait(&op->ended_condition, &op->mutex)
                            : pthread_cond_timedwait(&op->ended_condition, &op->mutex, &deadline);
    }
    rc = op->ended ? op->result : COVEY_TIMEOUT;
    pthread_mutex_unlock(&op->mutex);
    return rc;
}

static int wait_driven(struct covey_op *op, int timeout_ms)
{
    uint64_t start = uv_hrtime();
    int left = timeout_ms;

    while (!op_ended(op)) {
        int rc;

        if (timeout_ms >= 0) {
            uint64_t passed = (uv_hrtime() - start) / 1000000;

            if (passed >= (uint64_t)timeout_ms)
                return COVEY_TIMEOUT;
            left = timeout_ms - (int)passed;
        }
        rc = covey_node_progress(op->node, left);
        if (rc < 0)
            return rc;
    }
    return op->result;
}

int covey_op_wait(struct covey_op *op, int timeout_ms)
{
    if (node_is_driven(op->node))
        return wait_driven(op, timeout_ms);
    if (node_in_call_thread(op->node) && !op_ended(op))
        return COVEY_INVALID;
    return wait_threaded(op, timeout_ms);
}

int covey_op_test(const struct covey_op *op)
{
    return op_ended((struct covey_op *)op) ? op->result : COVEY_AGAIN;
}

void covey_op_progress(const struct covey_op *op, uint64_t *bytes_done, uint64_t *bytes_total)
{
    *bytes_done = atomic_load(&op->bytes_done);
    *bytes_total = atomic_load(&op->bytes_total);
}

const char *covey_op_error(const struct covey_op *op)
{
    return op_ended((struct covey_op *)op) ? op->text : "";
}

int covey_op_result(const struct covey_op *op, struct covey_op_result *result)
{
    if (!op_ended((struct covey_op *)op))
        return COVEY_AGAIN;
    if (op->result == 0)
        *result = op->outcome;
    return op->result;
}

struct cancel_request {
    struct request request;
    struct covey_op *op;
};

static void run_cancel(struct covey_node *node, struct request *request)
{
    struct covey_op *op = ((struct cancel_request *)request)->op;

    (void)node;
    if (op->cancel != NULL)
        op->cancel(op);
}

void covey_op_cancel(struct covey_op *op)
{
    struct cancel_request cancel = {.request.run = run_cancel, .op = op};

    node_request(op->node, &cancel.request);
}

void covey_op_free(struct covey_op *op)
{
    if (op != NULL)
        op_unref(op);
}
