/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NODE_COPIER_H
#define NODE_COPIER_H

/* A thread that copies blocks between the staging region and where they belong, and takes their digests on
 * the way. The loop thread never calls a device's driver: whatever the application does to it at the time,
 * this node's heartbeats go on.
 *
 * Copies are begun in the order of their coming, beside one another, and end in that order. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "memory/memory.h"

struct copier;

/* Contiguous on both sides. */
struct copy_piece {
    const struct memory_ops *memory;
    int device;
    char *base; /* where it belongs */
    char *host; /* in the region */
    uint64_t bytes;
    struct memory_copy *copy;
};

/* A block. The owner's from copier_take() on, who frees it with free(). */
struct copier_job {
    bool store;       /* from the region to where it belongs; otherwise into the region */
    uint64_t *leaves; /* of the object, to fill in the block's; NULL: not wanted */
    uint64_t offset;  /* of the block in the object */
    void (*done)(struct copier_job *job);
    void *owner;
    struct fail fail;
    struct copier_job *next;
    size_t count, begun; /* pieces */
    struct copy_piece pieces[];
};

/* Also pins the region, which the thread unpins at its end. wake is called on the thread when something is
 * done. */
int copier_open(void *region, size_t bytes, void (*wake)(void *context), void *context,
                struct copier **copier, struct fail *fail);
/* Nothing may be under way. */
void copier_close(struct copier *copier);

/* Any thread but one at a time. */
void copier_submit(struct copier *copier, struct copier_job *job);
/* What is done, as a list, in order; NULL: nothing. */
struct copier_job *copier_take(struct copier *copier);

/* COVEY_AGAIN while the region is not pinned yet, 0, or why it never will be: copies are slower then. */
int copier_pinned(struct copier *copier, struct fail *fail);

#endif
