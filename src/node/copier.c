/* SPDX-License-Identifier: BSD-3-Clause */
#include "node/copier.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "store/digest.h"

struct queue {
    struct copier_job *first, **last;
};

struct copier {
    pthread_t thread;
    pthread_mutex_t mutex; /* of the two queues, `closing` and `pinned` */
    pthread_cond_t changed;
    struct queue submitted, done;
    bool closing;
    struct fail pinned;
    void *region;
    size_t bytes;
    void (*wake)(void *context);
    void *context;
};

static void queue_init(struct queue *queue)
{
    queue->first = NULL;
    queue->last = &queue->first;
}

static void queue_add(struct queue *queue, struct copier_job *job)
{
    job->next = NULL;
    *queue->last = job;
    queue->last = &job->next;
}

static struct copier_job *queue_take(struct queue *queue)
{
    struct copier_job *job = queue->first;

    if (job != NULL)
        queue->first = job->next;
    if (queue->first == NULL)
        queue->last = &queue->first;
    return job;
}

/* --- The thread ----------------------------------------------------------------------------------------- */

static void job_begin(struct copier_job *job)
{
    while (job->fail.code == 0 && job->begun < job->count) {
        struct copy_piece *piece = &job->pieces[job->begun];
        int rc = job->store ? piece->memory->write(piece->device, piece->base, piece->host, piece->bytes,
                                                   &piece->copy, &job->fail)
                            : piece->memory->read(piece->device, piece->host, piece->base, piece->bytes,
                                                  &piece->copy, &job->fail);

        job->begun += rc == 0;
    }
}

/* Pieces of a block lie together in the region for whole leaves at least. */
static void job_digest(const struct copier_job *job)
{
    uint64_t offset = job->offset;

    for (size_t i = 0; i < job->count;) {
        const struct copy_piece *first = &job->pieces[i];
        uint64_t bytes = first->bytes;

        for (i++; i < job->count && job->pieces[i].host == first->host + bytes; i++)
            bytes += job->pieces[i].bytes;
        digest_flat(first->host, offset, bytes, job->leaves);
        offset += bytes;
    }
}

/* The digest of what leaves the region is taken beside the copy. */
static void job_end(struct copier_job *job)
{
    if (job->store && job->leaves != NULL)
        job_digest(job);
    for (size_t i = 0; i < job->begun; i++) {
        struct fail fail = {0};

        if (job->pieces[i].memory->finish(job->pieces[i].copy, &fail) != 0 && job->fail.code == 0)
            job->fail = fail;
    }
    if (!job->store && job->leaves != NULL && job->fail.code == 0)
        job_digest(job);
}

/* Wait until there is something to do; whether there is. Takes over what was submitted. */
static bool wait_for_work(struct copier *copier, struct queue *begun)
{
    struct copier_job *fresh;
    bool goes_on;

    pthread_mutex_lock(&copier->mutex);
    while (copier->submitted.first == NULL && begun->first == NULL && !copier->closing)
        pthread_cond_wait(&copier->changed, &copier->mutex);
    fresh = copier->submitted.first;
    queue_init(&copier->submitted);
    goes_on = fresh != NULL || begun->first != NULL;
    pthread_mutex_unlock(&copier->mutex);
    while (fresh != NULL) {
        struct copier_job *next = fresh->next;

        job_begin(fresh);
        queue_add(begun, fresh);
        fresh = next;
    }
    return goes_on;
}

static bool pin(struct copier *copier)
{
    struct fail fail = {0};
    bool pinned = false;

    memory_pin(copier->region, copier->bytes, &pinned, &fail);
    pthread_mutex_lock(&copier->mutex);
    copier->pinned = fail;
    pthread_mutex_unlock(&copier->mutex);
    copier->wake(copier->context);
    return pinned;
}

static void *copier_run(void *argument)
{
    struct copier *copier = argument;
    bool pinned = pin(copier);
    struct queue begun;

    queue_init(&begun);
    while (wait_for_work(copier, &begun)) {
        struct copier_job *job = queue_take(&begun);

        job_end(job);
        pthread_mutex_lock(&copier->mutex);
        queue_add(&copier->done, job);
        pthread_mutex_unlock(&copier->mutex);
        copier->wake(copier->context);
    }
    if (pinned)
        memory_unpin(copier->region);
    return NULL;
}

/* --- The owner's side ----------------------------------------------------------------------------------- */

int copier_open(void *region, size_t bytes, void (*wake)(void *context), void *context, struct copier **out,
                struct fail *fail)
{
    struct copier *copier = calloc(1, sizeof(*copier));

    if (copier == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for a thread that copies");
    pthread_mutex_init(&copier->mutex, NULL);
    pthread_cond_init(&copier->changed, NULL);
    queue_init(&copier->submitted);
    queue_init(&copier->done);
    copier->pinned.code = COVEY_AGAIN;
    copier->region = region;
    copier->bytes = bytes;
    copier->wake = wake;
    copier->context = context;
    if (pthread_create(&copier->thread, NULL, copier_run, copier) != 0) {
        pthread_mutex_destroy(&copier->mutex);
        pthread_cond_destroy(&copier->changed);
        free(copier);
        return fail_set(fail, COVEY_NO_MEMORY, "cannot start a thread that copies");
    }
    *out = copier;
    return 0;
}

void copier_close(struct copier *copier)
{
    pthread_mutex_lock(&copier->mutex);
    copier->closing = true;
    pthread_cond_signal(&copier->changed);
    pthread_mutex_unlock(&copier->mutex);
    pthread_join(copier->thread, NULL);
    assert(copier->submitted.first == NULL && copier->done.first == NULL);
    pthread_mutex_destroy(&copier->mutex);
    pthread_cond_destroy(&copier->changed);
    free(copier);
}

void copier_submit(struct copier *copier, struct copier_job *job)
{
    pthread_mutex_lock(&copier->mutex);
    queue_add(&copier->submitted, job);
    pthread_cond_signal(&copier->changed);
    pthread_mutex_unlock(&copier->mutex);
}

struct copier_job *copier_take(struct copier *copier)
{
    struct copier_job *done;

    pthread_mutex_lock(&copier->mutex);
    done = copier->done.first;
    queue_init(&copier->done);
    pthread_mutex_unlock(&copier->mutex);
    return done;
}

int copier_pinned(struct copier *copier, struct fail *fail)
{
    pthread_mutex_lock(&copier->mutex);
    *fail = copier->pinned;
    pthread_mutex_unlock(&copier->mutex);
    return fail->code;
}
