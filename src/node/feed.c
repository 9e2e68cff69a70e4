/* SPDX-License-Identifier: BSD-3-Clause */
#include "node/feed.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bitmap.h"
#include "memory/memory.h"
#include "store/digest.h"

#define FEED_JOBS      2
#define JOB_BYTES      (UINT64_C(4) << 20)   /* read and digested in one job */
#define BATCH_BYTES    (UINT64_C(1) << 20)   /* arrived blocks are digested so many bytes a job */
#define POPULATE_BYTES (UINT64_C(64) << 20)  /* made present in one job */
#define INLINE_BYTES   (UINT64_C(128) << 10) /* an object so small is digested at once: a thread costs more */

struct feed {
    struct replication *replication;
    struct object *object;
    struct file_source *source;
    uint64_t block_bytes;
    uint32_t blocks, done_count; /* done: their leaves are known */
    uint64_t *leaves;
    uint64_t *claimed;                   /* bitmap of blocks: see feed_claim() */
    uint64_t work_next;                  /* root: where the next job begins */
    uint64_t populate_next;              /* receiver: likewise */
    uint32_t *arrived;                   /* receiver: blocks in the order of their coming */
    uint32_t arrived_count, taken_count; /* taken: a job has them */
    uint32_t jobs, populate_jobs;
    atomic_bool stopped;
    bool root; /* it reads, or has, the whole */
    bool broken, inline_digest;
};

struct job {
    uv_work_t work;
    struct feed *feed;
    uint64_t offset, bytes;
    uint32_t first, count; /* of `arrived` */
    struct fail fail;
};

/* --- Files -------------------------------------------------------------------------------------------------
 */

static const char *file_label(const struct covey_file *file, size_t index, char text[32])
{
    if (file->name != NULL)
        return file->name;
    snprintf(text, 32, "%zu", index);
    return text;
}

static int file_add(struct file_source *source, const struct covey_file *file, struct fail *fail)
{
    size_t index = source->count;
    char label[32];

    source->fds[index] = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
    if (source->fds[index] < 0)
        return fail_set(fail, COVEY_IO, "file %s: %s%s", file_label(file, index, label), strerror(errno),
                        errno == EMFILE ? ": raise the limit of open files (nofile)" : "");
    source->count++;
    if (fstat(source->fds[index], &source->stats[index]) != 0)
        return fail_set(fail, COVEY_IO, "file %s: %s", file_label(file, index, label), strerror(errno));
    if (!S_ISREG(source->stats[index].st_mode))
        return fail_set(fail, COVEY_INVALID, "file %s is not a regular file", file_label(file, index, label));
    return 0;
}

int file_source_open(const struct covey_file *files, size_t count, struct file_source **out,
                     struct fail *fail)
{
    struct file_source *source = calloc(1, sizeof(*source));
    int rc = 0;

    if (source != NULL) {
        source->fds = calloc(count + 1, sizeof(*source->fds));
        source->stats = calloc(count + 1, sizeof(*source->stats));
    }
    if (source == NULL || source->fds == NULL || source->stats == NULL)
        rc = fail_set(fail, COVEY_NO_MEMORY, "no memory for %zu files", count);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = file_add(source, &files[i], fail);
    if (rc != 0) {
        file_source_close(source);
        return rc;
    }
    *out = source;
    return 0;
}

void file_source_close(struct file_source *source)
{
    if (source == NULL)
        return;
    for (size_t i = 0; source->fds != NULL && i < source->count; i++)
        close(source->fds[i]);
    free(source->fds);
    free(source->stats);
    free(source);
}

static int read_all(int fd, char *base, uint64_t bytes, uint64_t offset, const char *name, struct fail *fail)
{
    while (bytes > 0) {
        ssize_t got = pread(fd, base, bytes, (off_t)offset);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_set(fail, COVEY_IO, "file %s: %s", name, strerror(errno));
        if (got == 0)
            return fail_set(fail, COVEY_CHANGED, "file %s became shorter while it was read", name);
        base += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return 0;
}

/* Read [offset, offset + bytes) of the object from its files. Worker thread. */
static int read_range(const struct feed *feed, uint64_t offset, uint64_t bytes, struct fail *fail)
{
    const struct object *object = feed->object;
    int rc = 0;

    for (size_t i = object_find(object, offset); rc == 0 && bytes > 0; i++) {
        uint64_t skip = offset - object->offsets[i];
        uint64_t piece = object->buffers[i].bytes - skip;

        if (atomic_load(&feed->stopped))
            return fail_set(fail, COVEY_CANCELLED, "cancelled");
        if (piece > bytes)
            piece = bytes;
        if (piece > 0) /* an empty buffer has no base to count from */
            rc = read_all(feed->source->fds[i], (char *)object->buffers[i].base + skip, piece, skip,
                          object->buffers[i].name, fail);
        offset += piece;
        bytes -= piece;
    }
    return rc;
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* What was read is what was there when the put began. */
static int files_unchanged(const struct feed *feed, struct fail *fail)
{
    for (size_t i = 0; feed->source != NULL && i < feed->source->count; i++) {
        const struct stat *before = &feed->source->stats[i];
        struct stat now;

        if (fstat(feed->source->fds[i], &now) != 0)
            return fail_set(fail, COVEY_IO, "file %s: %s", feed->object->buffers[i].name, strerror(errno));
        if (now.st_size != before->st_size || !same_time(now.st_mtim, before->st_mtim))
            return fail_set(fail, COVEY_CHANGED, "file %s changed while it was read: put it again",
                            feed->object->buffers[i].name);
    }
    return 0;
}

/* --- Jobs --------------------------------------------------------------------------------------------------
 */

static void feed_go_on(struct feed *feed);

static uint64_t block_bytes_of(const struct feed *feed, uint32_t block)
{
    uint64_t left = feed->object->bytes - block * feed->block_bytes;

    return left < feed->block_bytes ? left : feed->block_bytes;
}

static void feed_break(struct feed *feed, const struct fail *fail)
{
    if (feed->broken || atomic_load(&feed->stopped))
        return;
    feed->broken = true;
    replication_broken(feed->replication, fail);
}

/* Hand a job to a worker; takes it over. */
static void job_start(struct job *job, uv_work_cb run, uv_after_work_cb done)
{
    struct feed *feed = job->feed;
    int rc = uv_queue_work(&feed->replication->node->loop, &job->work, run, done);

    if (rc == 0) {
        feed->jobs++;
        return;
    }
    fail_set(&job->fail, COVEY_NO_MEMORY, "cannot start a worker: %s", uv_strerror(rc));
    feed_break(feed, &job->fail);
    free(job);
}

static struct job *job_new(struct feed *feed)
{
    struct job *job = calloc(1, sizeof(*job));
    struct fail fail = {0};

    if (job != NULL) {
        job->feed = feed;
        return job;
    }
    fail_set(&fail, COVEY_NO_MEMORY, "no memory for work on object %s", feed->object->name);
    feed_break(feed, &fail);
    return NULL;
}

static void feed_finished(struct feed *feed)
{
    struct fail fail = {0};

    if (feed->done_count < feed->blocks || feed->broken || atomic_load(&feed->stopped))
        return;
    if (files_unchanged(feed, &fail) != 0) {
        feed_break(feed, &fail);
        return;
    }
    if (feed->object->region != NULL)
        feed->object->region->fresh = false;
    replication_digested(feed->replication, digest_root(feed->leaves, feed->object->bytes));
}

/* Root: read a range, if there are files, and take its leaves. */
static void run_work(uv_work_t *work)
{
    struct job *job = (struct job *)work;
    struct feed *feed = job->feed;

    if (atomic_load(&feed->stopped))
        return;
    if (feed->source == NULL || read_range(feed, job->offset, job->bytes, &job->fail) == 0)
        digest_leaves(feed->object, job->offset, job->bytes, feed->leaves);
}

static void work_done(uv_work_t *work, int status)
{
    struct job *job = (struct job *)work;
    struct feed *feed = job->feed;

    (void)status;
    feed->jobs--;
    if (job->fail.code != 0) {
        feed_break(feed, &job->fail);
    } else if (!atomic_load(&feed->stopped)) {
        feed->done_count += (uint32_t)((job->bytes + feed->block_bytes - 1) / feed->block_bytes);
        if (feed->source != NULL)
            replication_ready(feed->replication, job->offset, job->bytes);
        feed_finished(feed);
    }
    free(job);
    feed_go_on(feed);
}

/* Receiver: take the leaves of some blocks that arrived. */
static void run_digest(uv_work_t *work)
{
    struct job *job = (struct job *)work;
    struct feed *feed = job->feed;

    for (uint32_t i = job->first; i < job->first + job->count && !atomic_load(&feed->stopped); i++)
        digest_leaves(feed->object, feed->arrived[i] * feed->block_bytes,
                      block_bytes_of(feed, feed->arrived[i]), feed->leaves);
}

static void digest_done(uv_work_t *work, int status)
{
    struct job *job = (struct job *)work;
    struct feed *feed = job->feed;

    (void)status;
    feed->jobs--;
    feed->done_count += job->count;
    free(job);
    feed_finished(feed);
    feed_go_on(feed);
}

static void run_populate(uv_work_t *work)
{
    struct job *job = (struct job *)work;
    const struct memory_ops *ops;
    struct fail fail = {0};
    struct region *region = job->feed->object->region;

    if (!atomic_load(&job->feed->stopped) && memory_ops(COVEY_MEMORY_HOST, &ops, &fail) == 0)
        ops->populate(0, (char *)region->base + job->offset, job->bytes);
}

static void populate_done(uv_work_t *work, int status)
{
    struct job *job = (struct job *)work;
    struct feed *feed = job->feed;

    (void)status;
    feed->jobs--;
    feed->populate_jobs--;
    if (feed->populate_next >= feed->object->region->bytes)
        feed->object->region->fresh = false;
    free(job);
    feed_go_on(feed);
}

/* --- What to do next ---------------------------------------------------------------------------------------
 */

static void start_work(struct feed *feed)
{
    uint64_t bytes = feed->block_bytes > JOB_BYTES ? feed->block_bytes : JOB_BYTES;
    struct job *job = job_new(feed);

    if (job == NULL)
        return;
    if (bytes > feed->object->bytes - feed->work_next)
        bytes = feed->object->bytes - feed->work_next;
    job->offset = feed->work_next;
    job->bytes = bytes;
    feed->work_next += bytes;
    job_start(job, run_work, work_done);
}

/* A worker is woken for a batch, or for the rest. */
static bool wants_digest(const struct feed *feed)
{
    uint32_t waiting = feed->arrived_count - feed->taken_count;

    return waiting > 0 && (feed->arrived_count == feed->blocks || waiting * feed->block_bytes >= BATCH_BYTES);
}

static void start_digest(struct feed *feed)
{
    struct job *job = job_new(feed);

    if (job == NULL)
        return;
    job->first = feed->taken_count;
    job->count = feed->arrived_count - feed->taken_count;
    feed->taken_count = feed->arrived_count;
    job_start(job, run_digest, digest_done);
}

static void start_populate(struct feed *feed)
{
    uint64_t left = feed->object->region->bytes - feed->populate_next;
    struct job *job = job_new(feed);

    if (job == NULL)
        return;
    job->offset = feed->populate_next;
    job->bytes = left < POPULATE_BYTES ? left : POPULATE_BYTES;
    feed->populate_next += job->bytes;
    feed->populate_jobs++;
    job_start(job, run_populate, populate_done);
}

static bool wants_populate(const struct feed *feed)
{
    return !feed->root && !feed->replication->staged && feed->object->region != NULL &&
           feed->object->region->fresh && feed->populate_jobs == 0 &&
           feed->populate_next < feed->object->region->bytes;
}

static void feed_go_on(struct feed *feed)
{
    while (feed->root && feed->jobs < FEED_JOBS && feed->work_next < feed->object->bytes && !feed->broken &&
           !atomic_load(&feed->stopped))
        start_work(feed);
    while (feed->jobs - feed->populate_jobs < FEED_JOBS && wants_digest(feed) && !feed->broken &&
           !atomic_load(&feed->stopped))
        start_digest(feed);
    if (!feed->broken && !atomic_load(&feed->stopped) && wants_populate(feed))
        start_populate(feed);
}

/* --- The owner's side --------------------------------------------------------------------------------------
 */

/* With a processor to spare a worker takes the digests of what arrives, and the loop goes on receiving: a
 * quarter more throughput. With few, the wake-ups and the cold caches cost more than they gain. */
static bool processors_are_few(void)
{
    return sysconf(_SC_NPROCESSORS_ONLN) < 4;
}

int feed_new(struct replication *replication, struct file_source *source, struct fail *fail)
{
    struct object *object = replication->object;
    struct feed *feed = calloc(1, sizeof(*feed));
    uint32_t blocks = object->bytes > 0 ? replication->schedule.blocks : 0;

    if (feed == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for work on object %s", object->name);
    feed->replication = replication;
    feed->object = object;
    feed->block_bytes = replication->block_bytes;
    feed->blocks = blocks;
    feed->leaves = calloc(digest_leaf_count(object->bytes) + 1, sizeof(*feed->leaves));
    feed->arrived = calloc(blocks + (size_t)1, sizeof(*feed->arrived));
    feed->claimed = calloc(BITMAP_WORDS(blocks) + 1, sizeof(*feed->claimed));
    feed->inline_digest = object->bytes <= INLINE_BYTES || processors_are_few();
    if (feed->leaves == NULL || feed->arrived == NULL || feed->claimed == NULL) {
        feed_free(feed);
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for the digests of object %s", object->name);
    }
    feed->source = source;
    replication->feed = feed;
    return 0;
}

void feed_start_root(struct feed *feed)
{
    feed->root = true;
    if (feed->source == NULL || feed->object->bytes == 0)
        replication_ready(feed->replication, 0, feed->object->bytes);
    if (feed->replication->staged && feed->source == NULL) {
        feed->work_next = feed->object->bytes; /* digests are taken as blocks pass */
        return;
    }
    if (feed->source == NULL && feed->object->bytes <= INLINE_BYTES) {
        digest_leaves(feed->object, 0, feed->object->bytes, feed->leaves);
        feed->work_next = feed->object->bytes;
        feed->done_count = feed->blocks;
    }
    feed_finished(feed);
    feed_go_on(feed);
}

void feed_start_receiver(struct feed *feed)
{
    feed_go_on(feed);
}

void feed_block(struct feed *feed, uint32_t block)
{
    if (feed->blocks == 0 || feed->inline_digest) {
        if (feed->blocks > 0)
            digest_leaves(feed->object, block * feed->block_bytes, block_bytes_of(feed, block), feed->leaves);
        feed->done_count += feed->blocks > 0;
        feed_finished(feed);
        return;
    }
    feed->arrived[feed->arrived_count++] = block;
    feed_go_on(feed);
}

uint64_t *feed_claim(struct feed *feed, uint32_t block)
{
    if (bitmap_get(feed->claimed, block))
        return NULL;
    bitmap_set(feed->claimed, block);
    return feed->leaves;
}

void feed_claimed(struct feed *feed)
{
    feed->done_count++;
    feed_finished(feed);
}

bool feed_unclaimed(const struct feed *feed, uint32_t *block)
{
    for (size_t word = 0; feed->root && word < BITMAP_WORDS(feed->blocks); word++) {
        if (feed->claimed[word] == UINT64_MAX)
            continue;
        *block = (uint32_t)word * 64 + (uint32_t)__builtin_ctzll(~feed->claimed[word]);
        return *block < feed->blocks;
    }
    return false;
}

bool feed_digest(const struct feed *feed, uint64_t *digest)
{
    if (feed->done_count < feed->blocks || feed->broken)
        return false;
    *digest = digest_root(feed->leaves, feed->object->bytes);
    return true;
}

void feed_stop(struct feed *feed)
{
    atomic_store(&feed->stopped, true);
}

bool feed_idle(const struct feed *feed)
{
    return feed->jobs == 0;
}

void feed_free(struct feed *feed)
{
    if (feed == NULL)
        return;
    assert(feed->jobs == 0);
    file_source_close(feed->source);
    free(feed->leaves);
    free(feed->arrived);
    free(feed->claimed);
    free(feed);
}
