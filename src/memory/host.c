/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/host.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "memory/cuda.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define HUGE_BYTES ((size_t)2 << 20)

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* 0 if the sum does not fit. */
static size_t round_up(size_t bytes, size_t unit)
{
    size_t rounded = (bytes + unit - 1) & ~(unit - 1);

    return rounded < bytes ? 0 : rounded;
}

static int fail_no_memory(size_t bytes, int error, struct fail *fail)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        return fail_set(
            fail, COVEY_NO_MEMORY,
            "cannot allocate %zu bytes of host memory: %s; the limit of address space is %llu bytes "
            "(ulimit -v, LimitAS=)",
            bytes, strerror(error), (unsigned long long)limit.rlim_cur);
    return fail_set(fail, COVEY_NO_MEMORY,
                    "cannot allocate %zu bytes of host memory: %s; see MemAvailable and CommitLimit in "
                    "/proc/meminfo",
                    bytes, strerror(error));
}

/* Map `bytes` (whole pages), beginning at a huge page's border where that can pay. NULL with errno set. */
static void *map_aligned(size_t bytes)
{
    size_t slack = bytes >= HUGE_BYTES ? HUGE_BYTES : 0;
    char *mapped, *base;

    if (bytes + slack < bytes) {
        errno = ENOMEM;
        return NULL;
    }
    mapped = mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        return NULL;
    if (slack == 0)
        return mapped;
    base = mapped + (-(uintptr_t)mapped & (HUGE_BYTES - 1));
    if (base > mapped)
        munmap(mapped, (size_t)(base - mapped));
    if (base < mapped + slack)
        munmap(base + bytes, (size_t)(mapped + slack - base));
    madvise(base, bytes, MADV_HUGEPAGE);
    return base;
}

static int host_allocate(int device, size_t bytes, void **base, struct fail *fail)
{
    size_t rounded = round_up(bytes, page_bytes());
    void *mapped;

    (void)device;
    if (rounded == 0)
        return fail_no_memory(bytes, ENOMEM, fail);
    mapped = map_aligned(rounded);
    if (mapped == NULL)
        return fail_no_memory(bytes, errno, fail);
    *base = mapped;
    return 0;
}

static void host_release(int device, void *base, size_t bytes)
{
    (void)device;
    munmap(base, round_up(bytes, page_bytes()));
}

/* A locked read-modify-write of one byte per page that changes no bit: a byte that somebody else (thread,
 * kernel or device) writes at the same time keeps his value, as he has the cache line before or after. */
void memory_host_touch(void *base, size_t bytes)
{
    unsigned char *byte = base, *end = byte + bytes;

    while (byte < end) {
        __atomic_fetch_or(byte, 0, __ATOMIC_RELAXED);
        byte += page_bytes() - (uintptr_t)byte % page_bytes();
    }
}

static void host_populate(int device, void *base, size_t bytes)
{
    uintptr_t first = (uintptr_t)base & ~(page_bytes() - 1);
    size_t span = (uintptr_t)base + bytes - first;

    (void)device;
    if (bytes == 0)
        return;
    if (madvise((void *)first, 0, MADV_POPULATE_WRITE) != 0) { /* the kernel does not know it */
        memory_host_touch(base, bytes);
        return;
    }
    while (madvise((void *)first, span, MADV_POPULATE_WRITE) != 0 && errno == EINTR)
        continue;
}

static int host_device(int wanted, uint32_t spread, int *device, struct fail *fail)
{
    (void)wanted, (void)spread, (void)fail;
    *device = 0;
    return 0;
}

static int host_check(int device, const void *base, size_t bytes, struct fail *fail)
{
    (void)device, (void)bytes;
    return memory_cuda_check_host(base, fail);
}

static int host_read(int device, void *host, const void *base, size_t bytes, struct memory_copy **copy,
                     struct fail *fail)
{
    (void)device, (void)fail;
    if (bytes > 0)
        memcpy(host, base, bytes);
    *copy = NULL;
    return 0;
}

static int host_write(int device, void *base, const void *host, size_t bytes, struct memory_copy **copy,
                      struct fail *fail)
{
    return host_read(device, base, host, bytes, copy, fail);
}

static int host_finish(struct memory_copy *copy, struct fail *fail)
{
    (void)copy, (void)fail;
    return 0;
}

const struct memory_ops memory_host = {
    .kind = COVEY_MEMORY_HOST,
    .name = "host",
    .device = host_device,
    .check = host_check,
    .allocate = host_allocate,
    .release = host_release,
    .populate = host_populate,
    .read = host_read,
    .write = host_write,
    .finish = host_finish,
    .cpu_visible = true,
};
