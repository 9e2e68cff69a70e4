/* SPDX-License-Identifier: BSD-3-Clause */
/* The two queues: requests to the loop thread, calls to the callback thread. */

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

#include "node/node.h"

/* The thread that runs callbacks knows its node; so does the one that is inside covey_node_progress(). */
static __thread const struct covey_node *calling;

bool node_is_driven(const struct covey_node *node)
{
    return (node->flags & COVEY_NODE_DRIVEN) != 0;
}

bool node_in_call_thread(const struct covey_node *node)
{
    return calling == node;
}

static void requests_append(struct covey_node *node, struct request *request)
{
    request->next = NULL;
    request->done = request->deferred = false;
    *node->requests_end = request;
    node->requests_end = &request->next;
    if (!node->stopped)
        uv_async_send(&node->wake);
}

void node_submit(struct covey_node *node, struct request *request)
{
    request->detached = true;
    pthread_mutex_lock(&node->mutex);
    requests_append(node, request);
    pthread_mutex_unlock(&node->mutex);
}

/* On the thread that owns the loop. Driven: drive it until a deferred request has run. */
static int run_here(struct covey_node *node, struct request *request)
{
    node->now_ns = uv_hrtime();
    request->run(node, request);
    if (!node_is_driven(node))
        return 0;
    while (request->deferred) {
        int rc = covey_node_progress(node, -1);

        if (rc < 0)
            return rc;
    }
    uv_async_send(&node->wake);
    return 0;
}

int node_request(struct covey_node *node, struct request *request)
{
    request->detached = request->deferred = false;
    if (node->pid != getpid())
        return COVEY_FORKED;
    if (node_is_driven(node) || pthread_equal(pthread_self(), node->loop_thread)) {
        if (node->stopped)
            return COVEY_CLOSED;
        return run_here(node, request);
    }
    pthread_mutex_lock(&node->mutex);
    if (node->stopped) {
        pthread_mutex_unlock(&node->mutex);
        return COVEY_CLOSED;
    }
    requests_append(node, request);
    while (!request->done)
        pthread_cond_wait(&node->request_done, &node->mutex);
    pthread_mutex_unlock(&node->mutex);
    return 0;
}

static struct request *requests_take(struct covey_node *node)
{
    struct request *list;

    pthread_mutex_lock(&node->mutex);
    list = node->requests;
    node->requests = NULL;
    node->requests_end = &node->requests;
    pthread_mutex_unlock(&node->mutex);
    return list;
}

static void request_finish(struct covey_node *node, struct request *request)
{
    pthread_mutex_lock(&node->mutex);
    request->done = true;
    pthread_cond_broadcast(&node->request_done);
    pthread_mutex_unlock(&node->mutex);
}

void node_defer(struct covey_node *node, struct request *request)
{
    request->deferred = true;
    request->next = node->deferred;
    node->deferred = request;
}

void node_run_deferred(struct covey_node *node)
{
    struct request *list = node->deferred;

    node->deferred = NULL;
    while (list != NULL) {
        struct request *request = list;

        list = request->next;
        request->deferred = false;
        request->run(node, request);
        if (!request->deferred)
            request_finish(node, request);
    }
}

void node_run_requests(struct covey_node *node)
{
    struct request *request = requests_take(node);

    while (request != NULL) {
        struct request *next = request->next;
        bool detached = request->detached;

        node->work++;
        request->run(node, request);
        if (!detached && !request->deferred)
            request_finish(node, request);
        request = next;
    }
}

void node_call(struct covey_node *node, struct call *call)
{
    bool first;

    call->next = NULL;
    pthread_mutex_lock(&node->mutex);
    first = node->calls == NULL;
    *node->calls_end = call;
    node->calls_end = &call->next;
    pthread_mutex_unlock(&node->mutex);
    if (first)
        pthread_cond_signal(&node->call_ready);
}

static struct call *calls_take(struct covey_node *node)
{
    struct call *list = node->calls;

    node->calls = NULL;
    node->calls_end = &node->calls;
    return list;
}

/* Returns how many there were. */
static uint64_t calls_run(struct covey_node *node, struct call *call)
{
    const struct covey_node *outer = calling;
    uint64_t count = 0;

    calling = node;
    while (call != NULL) {
        struct call *next = call->next;

        count++;
        call->run(call);
        call = next;
    }
    calling = outer;
    return count;
}

void node_run_calls(struct covey_node *node)
{
    struct call *list;

    if (calling == node)
        return; /* a callback drives the node: its own calls come first */
    pthread_mutex_lock(&node->mutex);
    list = calls_take(node);
    pthread_mutex_unlock(&node->mutex);
    node->work += calls_run(node, list);
}

void *node_call_thread(void *context)
{
    struct covey_node *node = context;
    struct call *list;

    pthread_mutex_lock(&node->mutex);
    for (;;) {
        while (node->calls == NULL && !node->stopped)
            pthread_cond_wait(&node->call_ready, &node->mutex);
        list = calls_take(node);
        if (list == NULL)
            break;
        pthread_mutex_unlock(&node->mutex);
        calls_run(node, list);
        pthread_mutex_lock(&node->mutex);
    }
    pthread_mutex_unlock(&node->mutex);
    return NULL;
}
