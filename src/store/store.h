/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef STORE_STORE_H
#define STORE_STORE_H

/* The objects of one group at one member: names, versions, references, memory within the budget.
 *
 * An object is immutable once it is in the store. Whoever uses its bytes holds a reference: the store for the
 * versions that it keeps, a reader for its pin, a transfer that reads or fills it. The last reference gone,
 * the memory goes back to the pool (the store's own) or to the application (lent).
 *
 * Memory of the store's own comes in regions, one per object, page-aligned and never moved. A freed region is
 * kept for the next object of about its size, because touching fresh memory costs more than moving the bytes
 * does; the pool counts within the budget and gives way to it. When the budget is short, versions older than
 * the newest of their name are dropped, oldest first, unless somebody reads them; the newest never.
 *
 * One thread (the loop's). Names and buffers of a referenced object may be read by any thread. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "memory/memory.h"

struct store;
struct store_name;

/* Memory of the store's own. */
struct region {
    void *base;
    size_t bytes; /* of the mapping */
    bool fresh;   /* its pages have not been touched since it was mapped */
    void *user;   /* the owner's: a registration. See store_config.forget */
    struct region *next;
};

struct object {
    char *name;
    uint64_t version; /* 0 until it is in the store */
    uint64_t bytes;
    uint64_t digest;
    size_t count;
    struct covey_buffer *buffers; /* names are in `names` */
    uint64_t *offsets;            /* count + 1: where each buffer begins in the object; the last is `bytes` */
    char *names;
    struct region *region; /* NULL: lent, or no bytes */
    bool lent;
    void *user;        /* the owner's: registrations of lent memory */
    uint64_t since_ns; /* CLOCK_REALTIME of delivery */
    uint32_t pins;     /* references of readers, within refs */
    uint32_t refs;
    struct store *store;
    struct store_name *entry; /* of its name, made ahead so that store_insert() cannot fail */
    struct object *older;     /* next version of the name, while in the store */
};

struct store_config {
    enum covey_memory memory;
    int device;
    uint64_t budget_bytes;
    uint32_t keep_versions;
    void *context;
    /* A region is about to be unmapped: let go of what `user` holds. */
    void (*forget)(void *context, struct region *region);
    /* A lent object is gone: its memory is the application's again. The object is freed on return. */
    void (*give_back)(void *context, struct object *object);
};

struct store_usage {
    uint64_t used_bytes; /* regions of objects and of the pool */
    uint64_t pool_bytes;
    uint64_t objects; /* versions in the store */
};

int store_open(const struct store_config *config, struct store **store, struct fail *fail);
/* Drops everything; no reference but the store's own may be left. */
void store_close(struct store *store);
void store_usage(const struct store *store, struct store_usage *usage);

/* A new object with one reference, not yet in the store. Copies the name, and names and sizes of the buffers;
 * a NULL buffer name becomes the index in decimal. memory, device and base are kept as given (base is set
 * later by object_place or by the caller). COVEY_INVALID for an empty, too long or repeated name,
 * COVEY_TOO_LARGE for an overflow. */
int object_new(struct store *store, const char *name, const struct covey_buffer *buffers, size_t count,
               struct object **object, struct fail *fail);

/* Give the object memory of the store: one region, buffers back to back. COVEY_BUDGET or COVEY_NO_MEMORY,
 * with the sizes and the remedy. */
int object_place(struct object *object, struct fail *fail);

void object_ref(struct object *object);
void object_unref(struct object *object);

/* Buffer that holds the byte at `offset` < bytes (never one of zero bytes). */
size_t object_find(const struct object *object, uint64_t offset);

/* Put a version in the store (takes over the caller's reference) and drop what keep_versions no longer keeps,
 * and versions of the name that are not below it: of a history that its group has lost. Cannot fail. */
void store_insert(struct store *store, struct object *object, uint64_t version, uint64_t now_ns);

/* Remove every version of the name below `version`. Returns how many. */
size_t store_remove(struct store *store, const char *name, uint64_t version);

/* A version (0: the newest) of the name; NULL if there is none. Adds no reference. */
struct object *store_find(const struct store *store, const char *name, uint64_t version);

/* Every version, names in the order in which they first came, newest version first. NULL: the first; NULL at
 * the end. Nothing may be inserted or removed meanwhile. */
struct object *store_next(const struct store *store, const struct object *object);

#endif
