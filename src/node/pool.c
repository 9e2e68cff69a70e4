/* SPDX-License-Identifier: BSD-3-Clause */
#include "node/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <uv.h>

/* As libuv has them (threadpool.c). */
#define POOL_THREADS       4
#define POOL_THREADS_MAX   1024
#define POOL_STACK_BYTES   (8U << 20)
#define POOL_SIZE_VARIABLE "UV_THREADPOOL_SIZE"

static unsigned pool_size(void)
{
    const char *wanted = getenv(POOL_SIZE_VARIABLE);
    int count = wanted == NULL ? POOL_THREADS : atoi(wanted);

    if (count <= 0)
        return 1;
    return count < POOL_THREADS_MAX ? (unsigned)count : POOL_THREADS_MAX;
}

static void wait_until_all_are_there(void *context)
{
    uv_mutex_lock(context);
    uv_mutex_unlock(context);
}

/* Whether this many threads can be at a time: each waits for the lock that is held until then. */
static int try_threads(unsigned count, struct fail *fail)
{
    const uv_thread_options_t options = {.flags = UV_THREAD_HAS_STACK_SIZE, .stack_size = POOL_STACK_BYTES};
    uv_thread_t threads[POOL_THREADS_MAX];
    unsigned begun = 0;
    uv_mutex_t lock;
    int rc;

    rc = uv_mutex_init(&lock);
    if (rc == 0) {
        uv_mutex_lock(&lock);
        while (rc == 0 && begun < count) {
            rc = uv_thread_create_ex(&threads[begun], &options, wait_until_all_are_there, &lock);
            begun += rc == 0;
        }
        uv_mutex_unlock(&lock);
        for (unsigned i = 0; i < begun; i++)
            uv_thread_join(&threads[i]);
        uv_mutex_destroy(&lock);
    }
    return rc == 0
               ? 0
               : fail_set(fail, COVEY_NO_MEMORY,
                          "cannot start %u worker threads, but %u: %s; raise the limit of processes or of "
                          "address space (ulimit -u, -v; TasksMax=, LimitAS=)",
                          count, begun, uv_strerror(rc));
}

static void do_nothing(uv_work_t *work)
{
    (void)work;
}

static int begin(struct fail *fail)
{
    uv_loop_t loop;
    uv_work_t work;
    int rc = uv_loop_init(&loop);

    if (rc != 0)
        return fail_set(fail, COVEY_NO_MEMORY, "cannot make an event loop: %s", uv_strerror(rc));
    uv_queue_work(&loop, &work, do_nothing, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    return 0;
}

int pool_begin(struct fail *fail)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static bool begun;
    sigset_t all, before;
    int rc = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&mutex);
    if (!begun)
        rc = try_threads(pool_size(), fail);
    if (!begun && rc == 0)
        rc = begin(fail);
    begun = rc == 0;
    pthread_mutex_unlock(&mutex);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}
