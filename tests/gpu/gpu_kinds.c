/* SPDX-License-Identifier: BSD-3-Clause */
/* Every kind of device memory that a real driver gives, from each to each, between two nodes of this process.
 * Run by `scripts/bench gpu`; needs a device, and says so where there is none. */

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "memory/cuda_driver.h"
#include "memory/memory.h"
#include "tests/lib/nodes.h"
#include "tests/lib/suite.h"

#define BYTES (((size_t)5 << 20) + 77)

enum kind { PLAIN, POOL, MANAGED, CHUNKS, CONTEXT, KINDS };

/* Of the driver, beside what the library uses; structs as in its manual. */
struct location {
    int type, id;
};

struct allocation_properties { /* CUmemAllocationProp */
    int type, handle_types;
    struct location location;
    void *win32;
    unsigned char flags[8];
};

struct access {
    struct location location;
    int flags;
};

static struct {
    int (*alloc_async)(uint64_t *, size_t, void *);
    int (*alloc_managed)(uint64_t *, size_t, unsigned);
    int (*reserve)(uint64_t *, size_t, size_t, uint64_t, unsigned long long);
    int (*create)(unsigned long long *, size_t, const struct allocation_properties *, unsigned long long);
    int (*map)(uint64_t, size_t, size_t, unsigned long long, unsigned long long);
    int (*set_access)(uint64_t, size_t, const struct access *, size_t);
    int (*context_create)(struct cuda_context **, unsigned, int);
    int (*synchronize)(void);
    int (*copy_in)(uint64_t, const void *, size_t);
    int (*copy_out)(void *, uint64_t, size_t);
} real;

static const struct cuda_driver *driver;
static struct cuda_context *primary;

static void find(void *function, const char *symbol)
{
    void *found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), symbol);

    ck_assert_msg(found != NULL, "the driver has no %s", symbol);
    memcpy(function, &found, sizeof(found));
}

static void setup(void)
{
    const struct memory_ops *ops;
    struct fail fail = {0};
    int device;

    ck_assert_msg(memory_ops(COVEY_MEMORY_CUDA, &ops, &fail) == 0, "%s", fail.text);
    ck_assert_msg(ops->device(0, 0, &device, &fail) == 0, "%s", fail.text);
    ck_assert_int_eq(cuda_driver_open(&driver, &fail), 0);
    ck_assert_int_eq(driver->primary_retain(&primary, 0), CUDA_OK);
    ck_assert_int_eq(driver->context_push(primary), CUDA_OK);
    find(&real.alloc_async, "cuMemAllocAsync");
    find(&real.alloc_managed, "cuMemAllocManaged");
    find(&real.reserve, "cuMemAddressReserve");
    find(&real.create, "cuMemCreate");
    find(&real.map, "cuMemMap");
    find(&real.set_access, "cuMemSetAccess");
    find(&real.context_create, "cuCtxCreate_v2");
    find(&real.synchronize, "cuCtxSynchronize");
    find(&real.copy_in, "cuMemcpyHtoD_v2");
    find(&real.copy_out, "cuMemcpyDtoH_v2");
}

/* Two megabytes a chunk, side by side in one range. */
static uint64_t map_chunks(size_t bytes)
{
    const size_t chunk = (size_t)2 << 20, count = (bytes + chunk - 1) / chunk;
    struct allocation_properties properties = {.type = 1 /* pinned */, .location = {1 /* device */, 0}};
    struct access access = {.location = {1, 0}, .flags = 3 /* read and write */};
    unsigned long long handle;
    uint64_t base;

    ck_assert_int_eq(real.reserve(&base, count * chunk, 0, 0, 0), CUDA_OK);
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_eq(real.create(&handle, chunk, &properties, 0), CUDA_OK);
        ck_assert_int_eq(real.map(base + i * chunk, chunk, 0, handle, 0), CUDA_OK);
    }
    ck_assert_int_eq(real.set_access(base, count * chunk, &access, 1), CUDA_OK);
    return base;
}

static uint64_t allocate(enum kind kind, struct cuda_context **context)
{
    struct cuda_context *popped;
    uint64_t base = 0;

    *context = primary;
    switch (kind) {
    case PLAIN:
        ck_assert_int_eq(driver->allocate(&base, BYTES), CUDA_OK);
        break;
    case POOL:
        ck_assert_int_eq(real.alloc_async(&base, BYTES, NULL), CUDA_OK);
        ck_assert_int_eq(real.synchronize(), CUDA_OK);
        break;
    case MANAGED:
        ck_assert_int_eq(real.alloc_managed(&base, BYTES, 1), CUDA_OK);
        break;
    case CHUNKS:
        base = map_chunks(BYTES);
        break;
    default:
        ck_assert_int_eq(real.context_create(context, 0, 0), CUDA_OK);
        ck_assert_int_eq(driver->allocate(&base, BYTES), CUDA_OK);
        driver->context_pop(&popped);
        break;
    }
    return base;
}

struct lander {
    struct covey_buffer buffer;
};

static int land(void *context, struct covey_group *group, const struct covey_offer *offer,
                struct covey_buffer *buffers)
{
    const struct lander *lander = context;

    (void)group, (void)offer;
    buffers[0].base = lander->buffer.base;
    buffers[0].memory = lander->buffer.memory;
    buffers[0].device = 0;
    return 0;
}

static enum covey_memory memory_of(enum kind kind)
{
    return kind == MANAGED ? COVEY_MEMORY_CUDA_MANAGED : COVEY_MEMORY_CUDA;
}

START_TEST(test_real_memory_of_each_kind_to_each)
{
    static const struct covey_group_callbacks landing = {.on_landing = land};
    enum kind from = (enum kind)(_i / KINDS), to = (enum kind)(_i % KINDS);
    struct cuda_context *contexts[2], *popped;
    char *sent = malloc(BYTES), *seen = calloc(1, BYTES);
    struct covey_buffer buffer = {.bytes = BYTES, .memory = memory_of(from)};
    struct lander lander;
    struct nodes nodes;

    setup();
    buffer.base = (void *)(uintptr_t)allocate(from, &contexts[0]);
    lander.buffer = (struct covey_buffer){
        .base = (void *)(uintptr_t)allocate(to, &contexts[1]), .bytes = BYTES, .memory = memory_of(to)};
    pattern_fill(sent, BYTES, (uint64_t)_i);
    driver->context_push(contexts[0]);
    ck_assert_int_eq(real.copy_in((uint64_t)(uintptr_t)buffer.base, sent, BYTES), CUDA_OK);
    driver->context_pop(&popped);
    nodes_configure(&nodes, 2, "", "");
    nodes_open_one(&nodes, 0, 0, NULL, NULL);
    nodes_open_one(&nodes, 1, 0, &landing, &lander);
    nodes_wait(&nodes);
    nodes_put(&nodes, 0, "x", &buffer, 1);
    driver->context_push(contexts[1]);
    ck_assert_int_eq(real.copy_out(seen, (uint64_t)(uintptr_t)lander.buffer.base, BYTES), CUDA_OK);
    driver->context_pop(&popped);
    ck_assert_uint_eq(pattern_check(seen, BYTES, (uint64_t)_i), BYTES);
    nodes_close(&nodes);
    free(sent);
    free(seen);
}
END_TEST

int main(void)
{
    const struct suite_test tests[] = {SUITE_LOOP(test_real_memory_of_each_kind_to_each, KINDS * KINDS)};

    /* The question whether there is a driver is asked of the loader alone: a child of a process that has
     * started a driver cannot use it. */
    if (dlopen("libcuda.so.1", RTLD_NOW) == NULL) {
        printf("skipped: %s\n", dlerror());
        return 77;
    }
    return suite_run("gpu_kinds", tests, 1, 60);
}
