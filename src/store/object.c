/* SPDX-License-Identifier: BSD-3-Clause */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/name.h"
#include "store/store_private.h"

/* Bytes that the name of an unnamed buffer may need. */
#define INDEX_NAME_BYTES sizeof("1048576")

static struct store_name *store_name_new(const char *name)
{
    struct store_name *entry = calloc(1, sizeof(*entry));

    if (entry == NULL)
        return NULL;
    entry->name = strdup(name);
    if (entry->name == NULL) {
        free(entry);
        return NULL;
    }
    return entry;
}

void store_name_free(struct store_name *entry)
{
    if (entry == NULL)
        return;
    free(entry->name);
    free(entry);
}

static int check_name(const char *what, const char *name, struct fail *fail)
{
    size_t bytes = strnlen(name, COVEY_NAME_MAX + 1);

    if (bytes > COVEY_NAME_MAX)
        return fail_set(fail, COVEY_INVALID, "the name of %s has more than %d bytes: %.32s...", what,
                        COVEY_NAME_MAX, name);
    if (bytes == 0)
        return fail_set(fail, COVEY_INVALID, "%s has an empty name", what);
    if (name_check_printable(name, bytes, fail) != 0)
        return fail_prefix(fail, "the name of %s: ", what);
    return 0;
}

struct seen_name {
    UT_hash_handle hh;
};

/* Names of buffers are unique in their object. */
static int names_unique(const struct object *object, struct fail *fail)
{
    struct seen_name *all = calloc(object->count ? object->count : 1, sizeof(*all));
    struct seen_name *seen = NULL, *found = NULL;

    if (all == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for %zu names", object->count);
    for (size_t i = 0; i < object->count; i++) {
        const char *name = object->buffers[i].name;

        HASH_FIND_STR(seen, name, found);
        if (found != NULL) {
            fail_set(fail, COVEY_INVALID, "object %s has two buffers called %s", object->name, name);
            break;
        }
        HASH_ADD_KEYPTR(hh, seen, name, strlen(name), &all[i]);
    }
    HASH_CLEAR(hh, seen);
    free(all);
    return found != NULL ? COVEY_INVALID : 0;
}

/* Bytes that the names of all buffers need, or an error. */
static int names_bytes(const struct covey_buffer *buffers, size_t count, size_t *bytes, struct fail *fail)
{
    *bytes = 1;
    for (size_t i = 0; i < count; i++) {
        if (buffers[i].name == NULL) {
            *bytes += INDEX_NAME_BYTES;
            continue;
        }
        if (check_name("a buffer", buffers[i].name, fail) != 0)
            return fail->code;
        *bytes += strlen(buffers[i].name) + 1;
    }
    return 0;
}

static int buffers_copy(struct object *object, const struct covey_buffer *buffers, struct fail *fail)
{
    char *name = object->names;
    uint64_t offset = 0;

    for (size_t i = 0; i < object->count; i++) {
        if (buffers[i].bytes > (uint64_t)INT64_MAX - offset)
            return fail_set(fail, COVEY_TOO_LARGE, "object %s has more than 2^63 bytes", object->name);
        object->buffers[i] = buffers[i];
        object->buffers[i].name = name;
        object->offsets[i] = offset;
        offset += buffers[i].bytes;
        if (buffers[i].name != NULL)
            strcpy(name, buffers[i].name);
        else
            snprintf(name, INDEX_NAME_BYTES, "%u", (unsigned)i);
        name += strlen(name) + 1;
    }
    object->offsets[object->count] = offset;
    object->bytes = offset;
    return 0;
}

static void object_free(struct object *object)
{
    store_name_free(object->entry);
    free(object->name);
    free(object->buffers);
    free(object->offsets);
    free(object->names);
    free(object);
}

static struct object *object_allocate(struct store *store, const char *name, size_t count, size_t names)
{
    struct object *object = calloc(1, sizeof(*object));

    if (object == NULL)
        return NULL;
    object->store = store;
    object->refs = 1;
    object->count = count;
    object->name = strdup(name);
    object->entry = store_name_new(name);
    object->buffers = calloc(count ? count : 1, sizeof(*object->buffers));
    object->offsets = calloc(count + 1, sizeof(*object->offsets));
    object->names = malloc(names);
    if (object->name == NULL || object->entry == NULL || object->buffers == NULL || object->offsets == NULL ||
        object->names == NULL) {
        object_free(object);
        return NULL;
    }
    return object;
}

int object_new(struct store *store, const char *name, const struct covey_buffer *buffers, size_t count,
               struct object **out, struct fail *fail)
{
    struct object *object;
    size_t names;
    int rc = check_name("an object", name, fail);

    if (rc != 0)
        return rc;
    if (count > COVEY_BUFFERS_MAX)
        return fail_set(fail, COVEY_TOO_LARGE, "object %s has %zu buffers, at most %d are possible", name,
                        count, COVEY_BUFFERS_MAX);
    rc = names_bytes(buffers, count, &names, fail);
    if (rc != 0)
        return rc;
    object = object_allocate(store, name, count, names);
    if (object == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for object %s with %zu buffers", name, count);
    rc = buffers_copy(object, buffers, fail);
    if (rc == 0)
        rc = names_unique(object, fail);
    if (rc != 0) {
        object_free(object);
        return rc;
    }
    *out = object;
    return 0;
}

int object_place(struct object *object, struct fail *fail)
{
    struct store *store = object->store;

    assert(object->region == NULL && !object->lent);
    if (object->bytes != 0) {
        int rc = store_take_region(store, object->name, object->bytes, &object->region, fail);

        if (rc != 0)
            return rc;
    }
    for (size_t i = 0; i < object->count; i++) {
        struct covey_buffer *buffer = &object->buffers[i];

        buffer->memory = store->config.memory;
        buffer->device = store->config.device;
        buffer->base = buffer->bytes == 0 ? NULL : (char *)object->region->base + object->offsets[i];
    }
    return 0;
}

void object_ref(struct object *object)
{
    object->refs++;
}

void object_unref(struct object *object)
{
    struct store *store = object->store;

    assert(object->refs > 0);
    if (--object->refs > 0)
        return;
    if (object->region != NULL)
        store_put_region(store, object->region);
    if (object->lent)
        store->config.give_back(store->config.context, object);
    object_free(object);
}

size_t object_find(const struct object *object, uint64_t offset)
{
    size_t low = 0, high = object->count;

    assert(offset < object->bytes);
    /* The last buffer that begins at or before the offset: of several that begin there, the one with bytes.
     */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (object->offsets[middle] <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}
