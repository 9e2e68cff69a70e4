/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/store.h"

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

#include "store/store_private.h"

int store_open(const struct store_config *config, struct store **out, struct fail *fail)
{
    const struct memory_ops *memory;
    struct store *store;
    int rc = memory_ops(config->memory, &memory, fail);

    if (rc != 0)
        return rc;
    store = calloc(1, sizeof(*store));
    if (store == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for a store");
    store->config = *config;
    store->memory = memory;
    *out = store;
    return 0;
}

/* --- Regions -------------------------------------------------------------------------------------------- */

/* Freed regions kept for reuse: one for the object that comes while another is being dropped, and one to
 * spare. */
#define POOL_REGIONS 2

static void region_free(struct store *store, struct region *region)
{
    store->config.forget(store->config.context, region);
    store->memory->release(store->config.device, region->base, region->bytes);
    free(region);
}

/* Unmap the longest unused until at most `regions` are left. */
static void pool_trim(struct store *store, size_t regions)
{
    while (store->pool_count > regions) {
        struct region **last = &store->pool;
        struct region *region;

        while ((*last)->next != NULL)
            last = &(*last)->next;
        region = *last;
        *last = NULL;
        store->pool_count--;
        store->pool_bytes -= region->bytes;
        region_free(store, region);
    }
}

static void pool_put(struct store *store, struct region *region)
{
    store->region_bytes -= region->bytes;
    region->next = store->pool;
    store->pool = region;
    store->pool_count++;
    store->pool_bytes += region->bytes;
    pool_trim(store, POOL_REGIONS);
}

/* A pooled region that fits without wasting more than a sixteenth; NULL if there is none. */
static struct region *pool_take(struct store *store, size_t bytes)
{
    for (struct region **link = &store->pool; *link != NULL; link = &(*link)->next) {
        struct region *region = *link;

        if (region->bytes < bytes || region->bytes - bytes > region->bytes / 16)
            continue;
        *link = region->next;
        region->next = NULL;
        store->pool_count--;
        store->pool_bytes -= region->bytes;
        store->region_bytes += region->bytes;
        return region;
    }
    return NULL;
}

static int region_new(struct store *store, size_t bytes, struct region **out, struct fail *fail)
{
    struct region *region = calloc(1, sizeof(*region));
    int rc;

    if (region == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for a region");
    rc = store->memory->allocate(store->config.device, bytes, &region->base, fail);
    if (rc != 0) {
        free(region);
        return rc;
    }
    region->bytes = bytes;
    region->fresh = true;
    store->region_bytes += bytes;
    *out = region;
    return 0;
}

/* --- Names and versions --------------------------------------------------------------------------------- */

static struct store_name *name_find(const struct store *store, const char *name)
{
    struct store_name *entry;

    HASH_FIND_STR(store->names, name, entry);
    return entry;
}

/* Take *link out of its name's list and give up the store's reference. */
static void version_drop(struct store *store, struct object **link)
{
    struct object *object = *link;

    *link = object->older;
    object->older = NULL;
    store->objects--;
    object_unref(object);
}

static void versions_drop(struct store *store, struct object **link)
{
    while (*link != NULL)
        version_drop(store, link);
}

static void name_drop_if_empty(struct store *store, struct store_name *entry)
{
    if (entry->newest != NULL)
        return;
    HASH_DEL(store->names, entry);
    store_name_free(entry);
}

/* The oldest version with memory of ours that is not the newest of its name and that only the store refers
 * to; NULL if there is none. */
static struct object **version_to_spare(struct store *store)
{
    struct object **oldest = NULL;

    for (struct store_name *entry = store->names; entry != NULL; entry = entry->hh.next) {
        for (struct object **link = &entry->newest->older; *link != NULL; link = &(*link)->older) {
            if ((*link)->refs == 1 && (*link)->region != NULL &&
                (oldest == NULL || (*link)->version < (*oldest)->version))
                oldest = link;
        }
    }
    return oldest;
}

static bool fits(const struct store *store, size_t bytes)
{
    return store->region_bytes <= store->config.budget_bytes &&
           bytes <= store->config.budget_bytes - store->region_bytes;
}

/* Make room for `bytes` more: old versions give way (into the pool), then the pool. */
static int make_room(struct store *store, const char *name, size_t bytes, struct fail *fail)
{
    while (!fits(store, bytes)) {
        struct object **spare = version_to_spare(store);

        if (spare == NULL)
            return fail_set(
                fail, COVEY_BUDGET,
                "object %s needs %zu bytes, but %llu of the group's budget of %llu bytes are in use by "
                "other objects: raise `budget`, lower `keep_versions`, or remove objects",
                name, bytes, (unsigned long long)store->region_bytes,
                (unsigned long long)store->config.budget_bytes);
        version_drop(store, spare);
    }
    while (store->pool_count > 0 &&
           store->pool_bytes > store->config.budget_bytes - store->region_bytes - bytes)
        pool_trim(store, store->pool_count - 1);
    return 0;
}

int store_take_region(struct store *store, const char *name, uint64_t bytes, struct region **region,
                      struct fail *fail)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t rounded = ((size_t)bytes + page - 1) / page * page;
    int rc;

    if (fits(store, rounded)) {
        *region = pool_take(store, rounded);
        if (*region != NULL)
            return 0;
    }
    rc = make_room(store, name, rounded, fail);
    if (rc != 0)
        return rc;
    *region = pool_take(store, rounded);
    return *region != NULL ? 0 : region_new(store, rounded, region, fail);
}

void store_put_region(struct store *store, struct region *region)
{
    pool_put(store, region);
}

void store_insert(struct store *store, struct object *object, uint64_t version, uint64_t now_ns)
{
    struct store_name *entry = name_find(store, object->name);
    struct object **link;

    if (entry == NULL) {
        entry = object->entry;
        object->entry = NULL;
        HASH_ADD_KEYPTR(hh, store->names, entry->name, strlen(entry->name), entry);
    }
    while (entry->newest != NULL && entry->newest->version >= version)
        version_drop(store, &entry->newest);
    object->version = version;
    object->since_ns = now_ns;
    object->older = entry->newest;
    entry->newest = object;
    store->objects++;
    link = &entry->newest;
    for (uint32_t kept = 0; *link != NULL && kept < store->config.keep_versions; kept++)
        link = &(*link)->older;
    versions_drop(store, link);
}

size_t store_remove(struct store *store, const char *name, uint64_t version)
{
    struct store_name *entry = name_find(store, name);
    struct object **link;
    uint64_t before = store->objects;

    if (entry == NULL)
        return 0;
    for (link = &entry->newest; *link != NULL && (*link)->version >= version;)
        link = &(*link)->older;
    versions_drop(store, link);
    name_drop_if_empty(store, entry);
    return before - store->objects;
}

struct object *store_find(const struct store *store, const char *name, uint64_t version)
{
    struct store_name *entry = name_find(store, name);
    struct object *object = entry != NULL ? entry->newest : NULL;

    while (object != NULL && version != 0 && object->version != version)
        object = object->older;
    return object;
}

struct object *store_next(const struct store *store, const struct object *object)
{
    struct store_name *entry;

    if (object == NULL)
        return store->names != NULL ? store->names->newest : NULL;
    if (object->older != NULL)
        return object->older;
    entry = name_find(store, object->name)->hh.next;
    return entry != NULL ? entry->newest : NULL;
}

void store_usage(const struct store *store, struct store_usage *usage)
{
    usage->used_bytes = store->region_bytes + store->pool_bytes;
    usage->pool_bytes = store->pool_bytes;
    usage->objects = store->objects;
}

void store_close(struct store *store)
{
    while (store->names != NULL) {
        struct store_name *entry = store->names;

        versions_drop(store, &entry->newest);
        name_drop_if_empty(store, entry);
    }
    pool_trim(store, 0);
    assert(store->region_bytes == 0);
    free(store);
}
