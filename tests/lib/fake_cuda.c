/* SPDX-License-Identifier: BSD-3-Clause */
/* The stand-in driver: see fake_cuda.h. */

#include "tests/lib/fake_cuda.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "memory/cuda_driver.h"

#define DEVICES_MAX 8
#define CHUNK_BYTES ((size_t)2 << 20)

/* --- State ---------------------------------------------------------------------------------------------- */

struct cuda_context {
    int device;
    bool destroyed;
};

struct allocation {
    char *address; /* nobody may touch it */
    char *shadow;  /* the bytes; for managed memory the address itself */
    size_t bytes;
    int device;
    bool managed, chunks;
    uint64_t id;
    struct cuda_context *context; /* NULL: none */
    struct allocation *next;
};

struct pinned {
    char *base;
    size_t bytes;
    struct pinned *next;
};

struct cuda_event {
    bool pending;
};

/* One thing that a stream is to do: a copy, or to set an event. */
struct work {
    char *to;
    const char *from;
    size_t bytes;
    struct cuda_event *event;
    struct work *next;
};

struct cuda_stream {
    struct cuda_context *context;
    pthread_t thread;
    struct work *first, **last;
    bool closing;
};

struct failure {
    const char *symbol;
    int after, times, result;
    size_t calls;
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool initialised;
    int devices;
    size_t device_total;
    unsigned delay_us;
    struct cuda_context *primary[DEVICES_MAX];
    size_t used[DEVICES_MAX];
    size_t count, bytes, peak;
    uint64_t next_id;
    struct allocation *allocations;
    struct pinned *pinned;
} fake = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

#define STACK_MAX 16
static __thread struct cuda_context *stack[STACK_MAX];
static __thread int depth;

static struct cuda_context *current(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

/* --- Failures on demand --------------------------------------------------------------------------------- */

static struct failure failures[] = {
#define FAILURE(name, symbol, arguments) {#symbol, 0, 0, 0, 0},
    CUDA_DRIVER_CALLS(FAILURE)
#undef FAILURE
};

static struct failure *failure_of(const char *symbol)
{
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        if (strcmp(failures[i].symbol, symbol) == 0)
            return &failures[i];
    }
    fprintf(stderr, "fake_cuda: no call named %s\n", symbol);
    abort();
}

static void fake_fail(const char *symbol, int nth, int times, int result)
{
    pthread_mutex_lock(&fake.mutex);
    failure_of(symbol)->after = nth;
    failure_of(symbol)->times = times;
    failure_of(symbol)->result = result;
    pthread_mutex_unlock(&fake.mutex);
}

/* The result that was demanded of this call, or 0. With the mutex. */
static int failure_now(const char *symbol)
{
    struct failure *failure = failure_of(symbol);

    failure->calls++;
    if (failure->after == 0 || --failure->after > 0)
        return CUDA_OK;
    if (--failure->times > 0)
        failure->after = 1;
    return failure->result;
}

static size_t fake_calls(const char *symbol)
{
    size_t calls;

    pthread_mutex_lock(&fake.mutex);
    calls = failure_of(symbol)->calls;
    pthread_mutex_unlock(&fake.mutex);
    return calls;
}

static void fail_by_environment(void)
{
    const char *text = getenv("FAKE_CUDA_FAIL");
    char symbol[64];
    int nth, result;

    if (text != NULL && sscanf(text, "%63[^:]:%d:%d", symbol, &nth, &result) == 3) {
        failure_of(symbol)->after = nth;
        failure_of(symbol)->times = 1;
        failure_of(symbol)->result = result;
    }
}

/* Begin and end of every call: with the mutex, unless it is to fail. */
#define ENTER(symbol)                           \
    do {                                        \
        int demanded_;                          \
        pthread_mutex_lock(&fake.mutex);        \
        demanded_ = failure_now(#symbol);       \
        if (demanded_ != CUDA_OK)               \
            return leave(demanded_);            \
        if (!fake.initialised)                  \
            return leave(CUDA_NOT_INITIALIZED); \
    } while (0)

static int leave(int result)
{
    pthread_mutex_unlock(&fake.mutex);
    return result;
}

/* --- Memory --------------------------------------------------------------------------------------------- */

static struct allocation *find(const char *address)
{
    struct allocation *allocation = fake.allocations;

    while (allocation != NULL &&
           (address < allocation->address || address >= allocation->address + allocation->bytes))
        allocation = allocation->next;
    return allocation;
}

static struct allocation *allocate(int device, size_t bytes, struct cuda_context *context)
{
    struct allocation *allocation = calloc(1, sizeof(*allocation));

    assert(allocation != NULL && bytes > 0);
    if (bytes > fake.device_total - fake.used[device]) {
        free(allocation);
        return NULL;
    }
    allocation->address = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    allocation->shadow = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(allocation->address != MAP_FAILED && allocation->shadow != MAP_FAILED);
    allocation->bytes = bytes;
    allocation->device = device;
    allocation->context = context;
    allocation->id = ++fake.next_id;
    allocation->next = fake.allocations;
    fake.allocations = allocation;
    fake.used[device] += bytes;
    fake.count++;
    fake.bytes += bytes;
    fake.peak = fake.bytes > fake.peak ? fake.bytes : fake.peak;
    return allocation;
}

static void release(struct allocation *allocation)
{
    struct allocation **link = &fake.allocations;

    while (*link != allocation)
        link = &(*link)->next;
    *link = allocation->next;
    fake.used[allocation->device] -= allocation->bytes;
    fake.bytes -= allocation->bytes;
    fake.count--;
    if (!allocation->managed)
        munmap(allocation->address, allocation->bytes);
    munmap(allocation->shadow, allocation->bytes);
    free(allocation);
}

/* Where the bytes at an address are: a device's, or the host's. NULL if they run past an allocation's end. */
static char *bytes_at(uint64_t address, size_t bytes)
{
    char *at = (char *)(uintptr_t)address; // NOLINT
    struct allocation *allocation = find(at);

    if (allocation == NULL)
        return at;
    if (bytes > (size_t)(allocation->address + allocation->bytes - at))
        return NULL;
    return allocation->shadow + (at - allocation->address);
}

int cuMemAlloc_v2(cuda_pointer *base, size_t bytes);
int cuMemAlloc_v2(cuda_pointer *base, size_t bytes)
{
    struct allocation *allocation;

    ENTER(cuMemAlloc_v2);
    if (current() == NULL)
        return leave(CUDA_INVALID_CONTEXT);
    if (bytes == 0)
        return leave(CUDA_INVALID_VALUE);
    allocation = allocate(current()->device, bytes, current());
    if (allocation == NULL)
        return leave(CUDA_OUT_OF_MEMORY);
    *base = (cuda_pointer)(uintptr_t)allocation->address;
    return leave(CUDA_OK);
}

int cuMemFree_v2(cuda_pointer base);
int cuMemFree_v2(cuda_pointer base)
{
    struct allocation *allocation;

    ENTER(cuMemFree_v2);
    allocation = find((char *)(uintptr_t)base);
    if (current() == NULL)
        return leave(CUDA_INVALID_CONTEXT);
    if (allocation == NULL || allocation->address != (char *)(uintptr_t)base)
        return leave(CUDA_INVALID_VALUE);
    release(allocation);
    return leave(CUDA_OK);
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    ENTER(cuMemGetInfo_v2);
    if (current() == NULL)
        return leave(CUDA_INVALID_CONTEXT);
    *total_bytes = fake.device_total;
    *free_bytes = fake.device_total - fake.used[current()->device];
    return leave(CUDA_OK);
}

/* The part of the allocation that has the address: the driver knows chunks by themselves. */
static void attribute(const struct allocation *allocation, const char *address, int which, void *value)
{
    size_t chunk =
        allocation->chunks ? (size_t)(address - allocation->address) / CHUNK_BYTES * CHUNK_BYTES : 0;
    size_t left = allocation->bytes - chunk;

    switch (which) {
    case CUDA_POINTER_CONTEXT:
        *(struct cuda_context **)value = allocation->context;
        break;
    case CUDA_POINTER_MEMORY_TYPE:
        *(unsigned *)value = CUDA_TYPE_DEVICE;
        break;
    case CUDA_POINTER_BUFFER_ID:
        *(uint64_t *)value = allocation->id;
        break;
    case CUDA_POINTER_IS_MANAGED:
        *(unsigned *)value = allocation->managed;
        break;
    case CUDA_POINTER_DEVICE_ORDINAL:
        *(int *)value = allocation->device;
        break;
    case CUDA_POINTER_RANGE_START:
        *(cuda_pointer *)value = (cuda_pointer)(uintptr_t)allocation->address + chunk;
        break;
    case CUDA_POINTER_RANGE_BYTES:
        *(size_t *)value = allocation->chunks && left > CHUNK_BYTES ? CHUNK_BYTES : left;
        break;
    default:
        break;
    }
}

/* What is no memory of a device leaves every value as it is, but for a device that there is not. */
int cuPointerGetAttributes(unsigned count, const int *attributes, void **values, cuda_pointer pointer);
int cuPointerGetAttributes(unsigned count, const int *attributes, void **values, cuda_pointer pointer)
{
    const char *address = (const char *)(uintptr_t)pointer;
    struct allocation *allocation;

    ENTER(cuPointerGetAttributes);
    allocation = find(address);
    for (unsigned i = 0; i < count; i++) {
        if (allocation != NULL)
            attribute(allocation, address, attributes[i], values[i]);
        else if (attributes[i] == CUDA_POINTER_DEVICE_ORDINAL)
            *(int *)values[i] = -2;
    }
    return leave(CUDA_OK);
}

int cuMemHostRegister_v2(void *base, size_t bytes, unsigned flags);
int cuMemHostRegister_v2(void *base, size_t bytes, unsigned flags)
{
    struct pinned *pinned;

    (void)flags;
    ENTER(cuMemHostRegister_v2);
    if (current() == NULL)
        return leave(CUDA_INVALID_CONTEXT);
    for (pinned = fake.pinned; pinned != NULL; pinned = pinned->next) {
        if ((char *)base < pinned->base + pinned->bytes && pinned->base < (char *)base + bytes)
            return leave(CUDA_HOST_MEMORY_ALREADY_REGISTERED);
    }
    pinned = calloc(1, sizeof(*pinned));
    assert(pinned != NULL);
    *pinned = (struct pinned){base, bytes, fake.pinned};
    fake.pinned = pinned;
    return leave(CUDA_OK);
}

int cuMemHostUnregister(void *base);
int cuMemHostUnregister(void *base)
{
    ENTER(cuMemHostUnregister);
    for (struct pinned **link = &fake.pinned; *link != NULL; link = &(*link)->next) {
        struct pinned *pinned = *link;

        if (pinned->base != base)
            continue;
        *link = pinned->next;
        free(pinned);
        return leave(CUDA_OK);
    }
    return leave(CUDA_INVALID_VALUE);
}

/* --- Devices and contexts ------------------------------------------------------------------------------- */

static size_t from_environment(const char *name, size_t otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
    int demanded;

    (void)flags;
    pthread_mutex_lock(&fake.mutex);
    if (!fake.initialised) {
        fake.devices = (int)from_environment("FAKE_CUDA_DEVICES", 2);
        fake.device_total = from_environment("FAKE_CUDA_BYTES", (size_t)1 << 30);
        fake.delay_us = (unsigned)from_environment("FAKE_CUDA_DELAY_US", 100);
        fail_by_environment();
    }
    demanded = failure_now("cuInit");
    fake.initialised = fake.initialised || demanded == CUDA_OK;
    return leave(demanded);
}

int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return CUDA_OK;
}

int cuGetErrorName(int result, const char **name);
int cuGetErrorName(int result, const char **name)
{
    *name = result == CUDA_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_THE_STAND_IN";
    return CUDA_OK;
}

int cuGetErrorString(int result, const char **text);
int cuGetErrorString(int result, const char **text)
{
    *text = result == CUDA_OUT_OF_MEMORY ? "out of memory" : "an error of the stand-in driver";
    return CUDA_OK;
}

int cuDeviceGetCount(int *count);
int cuDeviceGetCount(int *count)
{
    ENTER(cuDeviceGetCount);
    *count = fake.devices;
    return leave(CUDA_OK);
}

int cuDeviceGet(cuda_device *device, int index);
int cuDeviceGet(cuda_device *device, int index)
{
    ENTER(cuDeviceGet);
    if (index < 0 || index >= fake.devices)
        return leave(CUDA_INVALID_VALUE);
    *device = index;
    return leave(CUDA_OK);
}

int cuDeviceGetName(char *name, int bytes, cuda_device device);
int cuDeviceGetName(char *name, int bytes, cuda_device device)
{
    snprintf(name, (size_t)bytes, "stand-in %d", device);
    return CUDA_OK;
}

static struct cuda_context *context_new(int device)
{
    struct cuda_context *context = calloc(1, sizeof(*context));

    assert(context != NULL);
    context->device = device;
    return context;
}

int cuDevicePrimaryCtxRetain(struct cuda_context **context, cuda_device device);
int cuDevicePrimaryCtxRetain(struct cuda_context **context, cuda_device device)
{
    ENTER(cuDevicePrimaryCtxRetain);
    if (fake.primary[device] == NULL)
        fake.primary[device] = context_new(device);
    *context = fake.primary[device];
    return leave(CUDA_OK);
}

int cuCtxPushCurrent_v2(struct cuda_context *context);
int cuCtxPushCurrent_v2(struct cuda_context *context)
{
    ENTER(cuCtxPushCurrent_v2);
    if (context == NULL || context->destroyed)
        return leave(CUDA_INVALID_CONTEXT);
    assert(depth < STACK_MAX);
    stack[depth++] = context;
    return leave(CUDA_OK);
}

int cuCtxPopCurrent_v2(struct cuda_context **context);
int cuCtxPopCurrent_v2(struct cuda_context **context)
{
    ENTER(cuCtxPopCurrent_v2);
    if (depth == 0)
        return leave(CUDA_INVALID_CONTEXT);
    *context = stack[--depth];
    return leave(CUDA_OK);
}

/* --- Streams -------------------------------------------------------------------------------------------- */

static void wait_delay(void)
{
    struct timespec delay = {.tv_sec = fake.delay_us / 1000000, .tv_nsec = fake.delay_us % 1000000 * 1000};

    pthread_mutex_unlock(&fake.mutex);
    nanosleep(&delay, NULL);
    pthread_mutex_lock(&fake.mutex);
}

/* A copy's source is read, and its target written, only here: late. */
static void perform(struct work *work)
{
    if (work->bytes > 0)
        wait_delay();
    if (work->bytes > 0) {
        char *to = bytes_at((cuda_pointer)(uintptr_t)work->to, work->bytes);
        const char *from = bytes_at((cuda_pointer)(uintptr_t)work->from, work->bytes);

        if (to != NULL && from != NULL)
            memcpy(to, from, work->bytes);
    }
    if (work->event != NULL) {
        work->event->pending = false;
        pthread_cond_broadcast(&fake.changed);
    }
}

static void *stream_run(void *argument)
{
    struct cuda_stream *stream = argument;

    pthread_mutex_lock(&fake.mutex);
    while (!stream->closing || stream->first != NULL) {
        struct work *work = stream->first;

        if (work == NULL) {
            pthread_cond_wait(&fake.changed, &fake.mutex);
            continue;
        }
        stream->first = work->next;
        if (stream->first == NULL)
            stream->last = &stream->first;
        perform(work);
        free(work);
    }
    pthread_mutex_unlock(&fake.mutex);
    return NULL;
}

int cuStreamCreate(struct cuda_stream **out, unsigned flags);
int cuStreamCreate(struct cuda_stream **out, unsigned flags)
{
    struct cuda_stream *stream;

    ENTER(cuStreamCreate);
    if (current() == NULL)
        return leave(CUDA_INVALID_CONTEXT);
    if (flags != CUDA_STREAM_NON_BLOCKING)
        return leave(CUDA_INVALID_VALUE); /* a blocking one would wait for the application's */
    stream = calloc(1, sizeof(*stream));
    assert(stream != NULL);
    stream->context = current();
    stream->last = &stream->first;
    if (pthread_create(&stream->thread, NULL, stream_run, stream) != 0) {
        free(stream);
        return leave(CUDA_OUT_OF_MEMORY);
    }
    *out = stream;
    return leave(CUDA_OK);
}

int cuStreamDestroy_v2(struct cuda_stream *stream);
int cuStreamDestroy_v2(struct cuda_stream *stream)
{
    ENTER(cuStreamDestroy_v2);
    stream->closing = true;
    pthread_cond_broadcast(&fake.changed);
    leave(CUDA_OK);
    pthread_join(stream->thread, NULL);
    free(stream);
    return CUDA_OK;
}

static int stream_add(struct cuda_stream *stream, const struct work *work)
{
    struct work *copy;

    if (current() == NULL)
        return CUDA_INVALID_CONTEXT;
    if (stream->context != current())
        return CUDA_INVALID_HANDLE;
    copy = malloc(sizeof(*copy));
    assert(copy != NULL);
    *copy = *work;
    *stream->last = copy;
    stream->last = &copy->next;
    pthread_cond_broadcast(&fake.changed);
    return CUDA_OK;
}

int cuMemcpyAsync(cuda_pointer to, cuda_pointer from, size_t bytes, struct cuda_stream *stream);
int cuMemcpyAsync(cuda_pointer to, cuda_pointer from, size_t bytes, struct cuda_stream *stream)
{
    struct work work = {.to = (char *)(uintptr_t)to, .from = (char *)(uintptr_t)from, .bytes = bytes};

    ENTER(cuMemcpyAsync);
    if (bytes == 0 || bytes_at(to, bytes) == NULL || bytes_at(from, bytes) == NULL)
        return leave(CUDA_INVALID_VALUE);
    return leave(stream_add(stream, &work));
}

int cuEventCreate(struct cuda_event **event, unsigned flags);
int cuEventCreate(struct cuda_event **event, unsigned flags)
{
    (void)flags;
    ENTER(cuEventCreate);
    if (current() == NULL)
        return leave(CUDA_INVALID_CONTEXT);
    *event = calloc(1, sizeof(**event));
    assert(*event != NULL);
    return leave(CUDA_OK);
}

int cuEventDestroy_v2(struct cuda_event *event);
int cuEventDestroy_v2(struct cuda_event *event)
{
    ENTER(cuEventDestroy_v2);
    while (event->pending)
        pthread_cond_wait(&fake.changed, &fake.mutex);
    free(event);
    return leave(CUDA_OK);
}

int cuEventRecord(struct cuda_event *event, struct cuda_stream *stream);
int cuEventRecord(struct cuda_event *event, struct cuda_stream *stream)
{
    struct work work = {.event = event};
    int result;

    ENTER(cuEventRecord);
    result = stream_add(stream, &work);
    event->pending = result == CUDA_OK;
    return leave(result);
}

int cuEventSynchronize(struct cuda_event *event);
int cuEventSynchronize(struct cuda_event *event)
{
    ENTER(cuEventSynchronize);
    while (event->pending)
        pthread_cond_wait(&fake.changed, &fake.mutex);
    return leave(CUDA_OK);
}

/* --- Controls ------------------------------------------------------------------------------------------- */

static struct allocation *allocate_for_test(int device, size_t bytes, struct cuda_context *context)
{
    struct allocation *allocation = allocate(device, bytes, context);

    if (allocation == NULL) {
        fprintf(stderr, "fake_cuda: device %d has no %zu bytes\n", device, bytes);
        abort();
    }
    return allocation;
}

static uint64_t fake_allocate(enum fake_cuda_kind kind, int device, size_t bytes)
{
    struct allocation *allocation;
    struct cuda_context *context = NULL;

    cuInit(0);
    if (kind == FAKE_CUDA_PLAIN || kind == FAKE_CUDA_MANAGED)
        cuDevicePrimaryCtxRetain(&context, device);
    pthread_mutex_lock(&fake.mutex);
    allocation = allocate_for_test(device, bytes, context);
    allocation->chunks = kind == FAKE_CUDA_CHUNKS;
    if (kind == FAKE_CUDA_MANAGED) {
        munmap(allocation->address, bytes);
        allocation->address = allocation->shadow;
        allocation->managed = true;
    }
    pthread_mutex_unlock(&fake.mutex);
    return (uint64_t)(uintptr_t)allocation->address;
}

static void fake_release(uint64_t address)
{
    pthread_mutex_lock(&fake.mutex);
    release(find((char *)(uintptr_t)address));
    pthread_mutex_unlock(&fake.mutex);
}

static void *fake_make_context(int device)
{
    cuInit(0);
    return context_new(device);
}

static uint64_t fake_allocate_in(void *context, size_t bytes)
{
    struct allocation *allocation;

    pthread_mutex_lock(&fake.mutex);
    allocation = allocate_for_test(((struct cuda_context *)context)->device, bytes, context);
    pthread_mutex_unlock(&fake.mutex);
    return (uint64_t)(uintptr_t)allocation->address;
}

/* The struct stays: handles of it may be used, and are refused. */
static void fake_destroy_context(void *context)
{
    pthread_mutex_lock(&fake.mutex);
    ((struct cuda_context *)context)->destroyed = true;
    for (struct allocation *allocation = fake.allocations, *next; allocation != NULL; allocation = next) {
        next = allocation->next;
        if (allocation->context == context)
            release(allocation);
    }
    pthread_mutex_unlock(&fake.mutex);
}

static void fake_peek(uint64_t address, void *out, size_t bytes)
{
    pthread_mutex_lock(&fake.mutex);
    memcpy(out, bytes_at(address, bytes), bytes);
    pthread_mutex_unlock(&fake.mutex);
}

static void fake_poke(uint64_t address, const void *data, size_t bytes)
{
    pthread_mutex_lock(&fake.mutex);
    memcpy(bytes_at(address, bytes), data, bytes);
    pthread_mutex_unlock(&fake.mutex);
}

static void fake_delay(unsigned microseconds)
{
    pthread_mutex_lock(&fake.mutex);
    fake.delay_us = microseconds;
    pthread_mutex_unlock(&fake.mutex);
}

static size_t locked(const size_t *value)
{
    size_t copy;

    pthread_mutex_lock(&fake.mutex);
    copy = *value;
    pthread_mutex_unlock(&fake.mutex);
    return copy;
}

static size_t fake_allocations(void)
{
    return locked(&fake.count);
}

static size_t fake_device_bytes(void)
{
    return locked(&fake.bytes);
}

static size_t fake_device_bytes_peak(void)
{
    return locked(&fake.peak);
}

static size_t fake_pinned_bytes(void)
{
    size_t bytes = 0;

    pthread_mutex_lock(&fake.mutex);
    for (const struct pinned *pinned = fake.pinned; pinned != NULL; pinned = pinned->next)
        bytes += pinned->bytes;
    pthread_mutex_unlock(&fake.mutex);
    return bytes;
}

const struct fake_cuda fake_cuda_controls;
const struct fake_cuda fake_cuda_controls = {
    .allocate = fake_allocate,
    .release = fake_release,
    .make_context = fake_make_context,
    .allocate_in = fake_allocate_in,
    .destroy_context = fake_destroy_context,
    .peek = fake_peek,
    .poke = fake_poke,
    .break_call = fake_fail,
    .delay = fake_delay,
    .allocations = fake_allocations,
    .device_bytes = fake_device_bytes,
    .device_bytes_peak = fake_device_bytes_peak,
    .pinned_bytes = fake_pinned_bytes,
    .calls = fake_calls,
};
