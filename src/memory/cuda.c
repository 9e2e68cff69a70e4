/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/cuda.h"

#include <pthread.h>
#include <stdlib.h>

#include "memory/cuda_driver.h"

enum direction { READ, WRITE, DIRECTIONS };

/* Our streams in one context. */
struct lane {
    struct cuda_context *context;
    struct cuda_stream *streams[DIRECTIONS];
    struct lane *next;
};

struct memory_copy {
    struct cuda_context *context;
    struct cuda_event *event;
};

static struct {
    pthread_mutex_t mutex;
    struct lane *lanes;
    struct cuda_context **primary; /* by device; NULL: not retained yet */
} cuda = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* --- Whose an address is -------------------------------------------------------------------------------- */

struct owner {
    unsigned type; /* 0: not CUDA's */
    unsigned managed;
    int device;
    struct cuda_context *context; /* NULL: of the device, not of a context */
    cuda_pointer start;           /* of the allocation or mapping */
    size_t bytes;
};

static void look_up(const struct cuda_driver *driver, cuda_pointer address, struct owner *owner)
{
    static const int attributes[] = {CUDA_POINTER_MEMORY_TYPE,    CUDA_POINTER_IS_MANAGED,
                                     CUDA_POINTER_DEVICE_ORDINAL, CUDA_POINTER_CONTEXT,
                                     CUDA_POINTER_RANGE_START,    CUDA_POINTER_RANGE_BYTES};
    void *values[] = {&owner->type,    &owner->managed, &owner->device,
                      &owner->context, &owner->start,   &owner->bytes};

    *owner = (struct owner){.device = -1};
    if (driver->pointer_attributes(sizeof(attributes) / sizeof(attributes[0]), attributes, values, address) !=
        CUDA_OK)
        owner->type = 0;
}

static bool is_of_device(const struct owner *owner)
{
    return owner->type == CUDA_TYPE_DEVICE || owner->managed != 0;
}

static enum covey_memory kind_of(const struct owner *owner)
{
    return !is_of_device(owner) ? COVEY_MEMORY_HOST
           : owner->managed     ? COVEY_MEMORY_CUDA_MANAGED
                                : COVEY_MEMORY_CUDA;
}

int memory_cuda_check_host(const void *base, struct fail *fail)
{
    const struct cuda_driver *driver = cuda_driver_if_loaded();
    struct owner owner;

    if (driver == NULL)
        return 0;
    look_up(driver, (cuda_pointer)(uintptr_t)base, &owner);
    if (owner.type != CUDA_TYPE_DEVICE || owner.managed != 0)
        return 0;
    return fail_set(fail, COVEY_INVALID,
                    "%p is memory of CUDA device %d, not of the host: say COVEY_MEMORY_CUDA, device %d", base,
                    owner.device, owner.device);
}

static int check_kind(enum covey_memory kind, int device, cuda_pointer at, const struct owner *owner,
                      struct fail *fail)
{
    if (kind_of(owner) == COVEY_MEMORY_HOST)
        return fail_set(
            fail, COVEY_INVALID,
            "0x%llx is not memory of a CUDA device, or not any more: say COVEY_MEMORY_HOST if the "
            "processor may touch it, and lend memory until on_release names it",
            (unsigned long long)at);
    if (kind_of(owner) != kind)
        return fail_set(fail, COVEY_INVALID, "0x%llx is %s memory, not %s memory: say which it is",
                        (unsigned long long)at, memory_kind_name(kind_of(owner)), memory_kind_name(kind));
    if (owner->device != device && kind == COVEY_MEMORY_CUDA)
        return fail_set(fail, COVEY_INVALID,
                        "0x%llx is memory of CUDA device %d, not of device %d: say which it is",
                        (unsigned long long)at, owner->device, device);
    return 0;
}

/* Memory that is mapped in chunks has an owner per chunk. */
static int check_range(enum covey_memory kind, int device, const void *base, size_t bytes, struct fail *fail)
{
    cuda_pointer at = (cuda_pointer)(uintptr_t)base, end = at + bytes;
    const struct cuda_driver *driver;
    int rc = cuda_driver_open(&driver, fail);

    while (rc == 0 && at < end) {
        struct owner owner;

        look_up(driver, at, &owner);
        rc = check_kind(kind, device, at, &owner, fail);
        if (rc == 0 && owner.bytes <= at - owner.start)
            rc = fail_set(fail, COVEY_INVALID, "the CUDA driver knows no range around 0x%llx",
                          (unsigned long long)at);
        at = owner.start + owner.bytes;
    }
    return rc != 0 ? fail_prefix(fail, "%zu bytes at %p: ", bytes, base) : 0;
}

static int cuda_check(int device, const void *base, size_t bytes, struct fail *fail)
{
    return check_range(COVEY_MEMORY_CUDA, device, base, bytes, fail);
}

static int managed_check(int device, const void *base, size_t bytes, struct fail *fail)
{
    return check_range(COVEY_MEMORY_CUDA_MANAGED, device, base, bytes, fail);
}

/* --- Contexts ------------------------------------------------------------------------------------------- */

/* The device's primary context, which the CUDA runtime uses as well. Retained for good: it is as costly to
 * make again as it is to keep, and at the process's end the driver may be gone before us. */
static int primary_context(const struct cuda_driver *driver, int device, struct cuda_context **context,
                           struct fail *fail)
{
    cuda_result result = CUDA_OK;
    cuda_device handle;

    if (device < 0 || device >= driver->devices)
        return fail_set(fail, COVEY_INVALID,
                        "there is no CUDA device %d: this process sees %d (CUDA_VISIBLE_DEVICES)", device,
                        driver->devices);
    pthread_mutex_lock(&cuda.mutex);
    if (cuda.primary == NULL)
        cuda.primary = calloc((size_t)driver->devices, sizeof(struct cuda_context *));
    if (cuda.primary != NULL && cuda.primary[device] == NULL) {
        result = driver->device_get(&handle, device);
        if (result == CUDA_OK)
            result = driver->primary_retain(&cuda.primary[device], handle);
    }
    *context = cuda.primary != NULL ? cuda.primary[device] : NULL;
    pthread_mutex_unlock(&cuda.mutex);
    if (result != CUDA_OK)
        return cuda_driver_fail(driver, result, fail, COVEY_IO, "no context on CUDA device %d", device);
    return *context != NULL ? 0
                            : fail_set(fail, COVEY_NO_MEMORY, "no memory for %d devices", driver->devices);
}

static int context_enter(const struct cuda_driver *driver, struct cuda_context *context, struct fail *fail)
{
    cuda_result result = driver->context_push(context);

    if (result != CUDA_OK)
        return cuda_driver_fail(driver, result, fail, COVEY_IO,
                                "the context of the memory cannot be used (was it destroyed?)");
    return 0;
}

static void context_leave(const struct cuda_driver *driver)
{
    struct cuda_context *ours;

    driver->context_pop(&ours);
}

static int cuda_choose(int wanted, uint32_t spread, int *device, struct fail *fail)
{
    const struct cuda_driver *driver;
    struct cuda_context *context;
    int chosen;
    int rc = cuda_driver_open(&driver, fail);

    if (rc != 0)
        return rc;
    chosen = wanted >= 0 ? wanted : (int)(spread % (uint32_t)driver->devices);
    rc = primary_context(driver, chosen, &context, fail);
    if (rc == 0)
        *device = chosen;
    return rc;
}

/* --- Allocation ----------------------------------------------------------------------------------------- */

static int fail_allocation(const struct cuda_driver *driver, cuda_result result, int device, size_t bytes,
                           struct fail *fail)
{
    size_t free_bytes = 0, total_bytes = 0;

    if (result != CUDA_OUT_OF_MEMORY || driver->memory_info(&free_bytes, &total_bytes) != CUDA_OK)
        return cuda_driver_fail(driver, result, fail, COVEY_NO_MEMORY,
                                "cannot allocate %zu bytes on CUDA device %d", bytes, device);
    return fail_set(fail, COVEY_NO_MEMORY,
                    "cannot allocate %zu bytes on CUDA device %d: %zu of its %zu bytes are free; lower the "
                    "groups' budget or keep_versions, or end what else uses it",
                    bytes, device, free_bytes, total_bytes);
}

static int cuda_allocate(int device, size_t bytes, void **base, struct fail *fail)
{
    const struct cuda_driver *driver;
    struct cuda_context *context;
    cuda_pointer address;
    cuda_result result;
    int rc = cuda_driver_open(&driver, fail);

    if (rc == 0)
        rc = primary_context(driver, device, &context, fail);
    if (rc == 0)
        rc = context_enter(driver, context, fail);
    if (rc != 0)
        return rc;
    result = driver->allocate(&address, bytes);
    if (result == CUDA_OK)
        *base = (void *)(uintptr_t)address;
    else
        rc = fail_allocation(driver, result, device, bytes, fail);
    context_leave(driver);
    return rc;
}

/* The driver may have gone before us at the process's end, and the memory with it: no error means anything.
 */
static void cuda_release(int device, void *base, size_t bytes)
{
    const struct cuda_driver *driver;
    struct cuda_context *context;
    struct fail fail;

    (void)bytes;
    if (cuda_driver_open(&driver, &fail) != 0 || primary_context(driver, device, &context, &fail) != 0 ||
        context_enter(driver, context, &fail) != 0)
        return;
    driver->release((cuda_pointer)(uintptr_t)base);
    context_leave(driver);
}

static int managed_allocate(int device, size_t bytes, void **base, struct fail *fail)
{
    (void)device, (void)base;
    return fail_set(
        fail, COVEY_UNSUPPORTED,
        "a group keeps no objects in managed memory (%zu bytes): use memory = \"cuda\" or \"host\", or "
        "let on_landing name managed memory",
        bytes);
}

static void managed_release(int device, void *base, size_t bytes)
{
    (void)device, (void)base, (void)bytes;
}

/* Device memory is there when it is allocated. */
static void cuda_populate(int device, void *base, size_t bytes)
{
    (void)device, (void)base, (void)bytes;
}

/* --- Copies --------------------------------------------------------------------------------------------- */

static void lane_free(const struct cuda_driver *driver, struct lane *lane)
{
    for (int i = 0; i < DIRECTIONS; i++) {
        if (lane->streams[i] != NULL)
            driver->stream_destroy(lane->streams[i]);
    }
    free(lane);
}

/* Of the current context. */
static cuda_result lane_open(const struct cuda_driver *driver, struct cuda_context *context,
                             struct lane **out)
{
    struct lane *lane = calloc(1, sizeof(*lane));
    cuda_result result = lane != NULL ? CUDA_OK : CUDA_OUT_OF_MEMORY;

    for (int i = 0; result == CUDA_OK && i < DIRECTIONS; i++)
        result = driver->stream_create(&lane->streams[i], CUDA_STREAM_NON_BLOCKING);
    if (result != CUDA_OK) {
        if (lane != NULL)
            lane_free(driver, lane);
        return result;
    }
    lane->context = context;
    lane->next = cuda.lanes;
    cuda.lanes = lane;
    *out = lane;
    return CUDA_OK;
}

/* The context is gone, and its streams with it; another may come under its address. */
static void lane_forget(struct cuda_context *context)
{
    for (struct lane **link = &cuda.lanes; *link != NULL; link = &(*link)->next) {
        struct lane *lane = *link;

        if (lane->context != context)
            continue;
        *link = lane->next;
        free(lane);
        return;
    }
}

static cuda_result lane_find(const struct cuda_driver *driver, struct cuda_context *context,
                             struct lane **lane)
{
    for (*lane = cuda.lanes; *lane != NULL; *lane = (*lane)->next) {
        if ((*lane)->context == context)
            return CUDA_OK;
    }
    return lane_open(driver, context, lane);
}

static bool is_gone(cuda_result result)
{
    return result == CUDA_INVALID_CONTEXT || result == CUDA_CONTEXT_IS_DESTROYED ||
           result == CUDA_INVALID_HANDLE;
}

/* Copy on our stream of the current context, and have the event behind it. */
static cuda_result copy_begin(const struct cuda_driver *driver, struct memory_copy *copy,
                              enum direction direction, cuda_pointer to, cuda_pointer from, size_t bytes)
{
    struct lane *lane;
    cuda_result result;

    pthread_mutex_lock(&cuda.mutex);
    result = lane_find(driver, copy->context, &lane);
    if (result == CUDA_OK)
        result = driver->event_create(&copy->event, CUDA_EVENT_BLOCKING_SYNC | CUDA_EVENT_DISABLE_TIMING);
    if (result == CUDA_OK)
        result = driver->copy(to, from, bytes, lane->streams[direction]);
    if (result == CUDA_OK)
        result = driver->event_record(copy->event, lane->streams[direction]);
    if (is_gone(result))
        lane_forget(copy->context);
    pthread_mutex_unlock(&cuda.mutex);
    return result;
}

static int copy_in_context(const struct cuda_driver *driver, struct cuda_context *context,
                           enum direction direction, cuda_pointer to, cuda_pointer from, size_t bytes,
                           struct memory_copy **out, struct fail *fail)
{
    struct memory_copy *copy = calloc(1, sizeof(*copy));
    cuda_result result;

    if (copy == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for a copy");
    if (context_enter(driver, context, fail) != 0) {
        free(copy);
        return fail->code;
    }
    copy->context = context;
    result = copy_begin(driver, copy, direction, to, from, bytes);
    if (result != CUDA_OK) {
        if (copy->event != NULL)
            driver->event_destroy(copy->event);
        free(copy);
        cuda_driver_fail(driver, result, fail, COVEY_IO, "cannot copy %zu bytes %s device memory", bytes,
                         direction == READ ? "from" : "to");
    } else {
        *out = copy;
    }
    context_leave(driver);
    return result != CUDA_OK ? fail->code : 0;
}

static int copy_any(enum direction direction, int device, const void *base, const void *host, size_t bytes,
                    struct memory_copy **copy, struct fail *fail)
{
    cuda_pointer ours = (cuda_pointer)(uintptr_t)base, theirs = (cuda_pointer)(uintptr_t)host;
    const struct cuda_driver *driver;
    struct owner owner;
    int rc = cuda_driver_open(&driver, fail);

    *copy = NULL;
    if (rc != 0 || bytes == 0)
        return rc;
    look_up(driver, ours, &owner);
    if (!is_of_device(&owner))
        return fail_set(fail, COVEY_IO,
                        "%p is no memory of CUDA device %d any more: it was freed while it was lent", base,
                        device);
    if (owner.context == NULL || owner.managed)
        rc = primary_context(driver, owner.managed ? device : owner.device, &owner.context, fail);
    if (rc != 0)
        return rc;
    return direction == READ ? copy_in_context(driver, owner.context, READ, theirs, ours, bytes, copy, fail)
                             : copy_in_context(driver, owner.context, WRITE, ours, theirs, bytes, copy, fail);
}

static int cuda_read(int device, void *host, const void *base, size_t bytes, struct memory_copy **copy,
                     struct fail *fail)
{
    return copy_any(READ, device, base, host, bytes, copy, fail);
}

static int cuda_write(int device, void *base, const void *host, size_t bytes, struct memory_copy **copy,
                      struct fail *fail)
{
    return copy_any(WRITE, device, base, host, bytes, copy, fail);
}

static int cuda_finish(struct memory_copy *copy, struct fail *fail)
{
    const struct cuda_driver *driver;
    cuda_result result;
    int rc = cuda_driver_open(&driver, fail);

    if (rc != 0 || copy == NULL)
        return rc;
    rc = context_enter(driver, copy->context, fail);
    if (rc == 0) {
        result = driver->event_synchronize(copy->event);
        if (result != CUDA_OK)
            rc = cuda_driver_fail(driver, result, fail, COVEY_IO, "a copy of device memory failed");
        driver->event_destroy(copy->event);
        context_leave(driver);
    }
    free(copy);
    return rc;
}

/* --- Pinning -------------------------------------------------------------------------------------------- */

/* A context that is there already, if any device is in use; the first device's otherwise. */
static int any_context(const struct cuda_driver *driver, struct cuda_context **context, struct fail *fail)
{
    int used = 0;

    pthread_mutex_lock(&cuda.mutex);
    for (int i = driver->devices - 1; cuda.primary != NULL && i >= 0; i--) {
        if (cuda.primary[i] != NULL)
            used = i;
    }
    pthread_mutex_unlock(&cuda.mutex);
    return primary_context(driver, used, context, fail);
}

int memory_cuda_pin(void *base, size_t bytes, bool *pinned, struct fail *fail)
{
    const struct cuda_driver *driver;
    struct cuda_context *context;
    cuda_result result;
    int rc = cuda_driver_open(&driver, fail);

    if (rc == 0)
        rc = any_context(driver, &context, fail);
    if (rc == 0)
        rc = context_enter(driver, context, fail);
    if (rc != 0)
        return rc;
    result = driver->host_register(base, bytes, CUDA_HOST_REGISTER_PORTABLE);
    context_leave(driver);
    *pinned = result == CUDA_OK;
    if (result == CUDA_OK || result == CUDA_HOST_MEMORY_ALREADY_REGISTERED)
        return 0;
    return cuda_driver_fail(driver, result, fail, COVEY_NO_MEMORY,
                            "cannot pin %zu bytes for copies by devices (ulimit -l, LimitMEMLOCK=)", bytes);
}

void memory_cuda_unpin(void *base)
{
    const struct cuda_driver *driver;
    struct cuda_context *context;
    struct fail fail;

    if (cuda_driver_open(&driver, &fail) != 0 || any_context(driver, &context, &fail) != 0 ||
        context_enter(driver, context, &fail) != 0)
        return;
    driver->host_unregister(base);
    context_leave(driver);
}

/* --- The table ------------------------------------------------------------------------------------------ */

static const struct memory_ops memory_cuda = {
    .kind = COVEY_MEMORY_CUDA,
    .name = "cuda",
    .device = cuda_choose,
    .check = cuda_check,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .populate = cuda_populate,
    .read = cuda_read,
    .write = cuda_write,
    .finish = cuda_finish,
};

static const struct memory_ops memory_managed = {
    .kind = COVEY_MEMORY_CUDA_MANAGED,
    .name = "cuda-managed",
    .device = cuda_choose,
    .check = managed_check,
    .allocate = managed_allocate,
    .release = managed_release,
    .populate = cuda_populate,
    .read = cuda_read,
    .write = cuda_write,
    .finish = cuda_finish,
};

int memory_cuda_ops(enum covey_memory kind, const struct memory_ops **ops, struct fail *fail)
{
    const struct cuda_driver *driver;
    int rc = cuda_driver_open(&driver, fail);

    if (rc == 0)
        *ops = kind == COVEY_MEMORY_CUDA ? &memory_cuda : &memory_managed;
    return rc;
}
