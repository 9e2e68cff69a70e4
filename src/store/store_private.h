/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef STORE_STORE_PRIVATE_H
#define STORE_STORE_PRIVATE_H

/* What store.c (versions, regions) and object.c (one object) share. */

#include <uthash.h>

#include "store/store.h"

struct store_name {
    char *name;
    struct object *newest; /* never NULL while in the table */
    UT_hash_handle hh;
};

struct store {
    struct store_config config;
    const struct memory_ops *memory;
    struct store_name *names;
    struct region *pool; /* latest freed first */
    size_t pool_count;
    uint64_t pool_bytes;
    uint64_t region_bytes; /* of objects */
    uint64_t objects;
};

/* NULL is allowed. */
void store_name_free(struct store_name *entry);

/* A region of at least bytes >= 1, from the pool or new, within the budget; name is for the error. */
int store_take_region(struct store *store, const char *name, uint64_t bytes, struct region **region,
                      struct fail *fail);
void store_put_region(struct store *store, struct region *region);

#endif
