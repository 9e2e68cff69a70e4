/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NODE_FEED_H
#define NODE_FEED_H

/* Work on an object's bytes that would hold up the loop: reading files, digests, making pages present. It is
 * done by libuv's worker threads, a few megabytes a job, at most FEED_JOBS at once for one replication;
 * results come back on the loop thread (replication_ready, replication_digested, replication_broken).
 *
 * A feed outlives its replication's end until its last job has returned: feed_stop(), then wait for
 * feed_idle(). */

#include <sys/stat.h>

#include "node/replication.h"

/* Files to read the object from, one per buffer: descriptors owned by the source. */
struct file_source {
    size_t count;
    int *fds;
    struct stat *stats; /* when the put began */
};

/* Duplicate the descriptors and look at their sizes. COVEY_INVALID for what is no regular file, COVEY_IO. */
int file_source_open(const struct covey_file *files, size_t count, struct file_source **source,
                     struct fail *fail);
void file_source_close(struct file_source *source);

/* Takes over the source (may be NULL). The object has its memory. */
int feed_new(struct replication *replication, struct file_source *source, struct fail *fail);

/* Root: read the files, or take the digest of what is there. */
void feed_start_root(struct feed *feed);
/* Receiver: make fresh pages present ahead of the blocks. */
void feed_start_receiver(struct feed *feed);
/* Receiver: a block is in place: its leaves can be taken. */
void feed_block(struct feed *feed, uint32_t block);
/* For whoever takes the leaves of a block elsewhere (stage.h): where they go, or NULL if another has them in
 * hand already; then tell that they are there. */
uint64_t *feed_claim(struct feed *feed, uint32_t block);
void feed_claimed(struct feed *feed);
/* A block of what the root has that nobody has claimed; false if there is none. */
bool feed_unclaimed(const struct feed *feed, uint32_t *block);
/* Whether all leaves are known, and then the digest. */
bool feed_digest(const struct feed *feed, uint64_t *digest);

void feed_stop(struct feed *feed);
bool feed_idle(const struct feed *feed);
void feed_free(struct feed *feed);

#endif
