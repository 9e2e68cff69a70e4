/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_LIB_FAKE_CUDA_H
#define TESTS_LIB_FAKE_CUDA_H

/* A stand-in for libcuda.so.1 that keeps to what the real one promises and no more.
 *
 * Device memory is apart: its addresses cannot be touched by the processor (a load faults), the bytes are
 * elsewhere. Copies on a stream happen on another thread some time after they were asked for, and only then
 * is their source read. A call without a current context, on a stream of another context, on memory that is
 * not allocated, or past its end fails as the driver's does. Primary contexts are as in the driver; contexts
 * can be made and destroyed, with what was allocated in them.
 *
 * It is a shared library of its own under the driver's name. A program finds it by LD_LIBRARY_PATH, or opens
 * FAKE_CUDA_PATH itself with fake_cuda_open() before the library under test looks. Environment, read at
 * cuInit: FAKE_CUDA_DEVICES (2), FAKE_CUDA_BYTES of each device (1 GiB), FAKE_CUDA_DELAY_US of a copy (100),
 * FAKE_CUDA_FAIL "symbol:nth:result" (see break_call). */

#include <stddef.h>
#include <stdint.h>

enum fake_cuda_kind {
    FAKE_CUDA_PLAIN,  /* cuMemAlloc in the device's primary context */
    FAKE_CUDA_POOL,   /* cuMemAllocAsync: of no context */
    FAKE_CUDA_CHUNKS, /* cuMemCreate and cuMemMap: of no context, a range for each 2 MiB */
    FAKE_CUDA_MANAGED
};

struct fake_cuda {
    /* Memory of a device; aborts if there is none. */
    uint64_t (*allocate)(enum fake_cuda_kind kind, int device, size_t bytes);
    void (*release)(uint64_t address);
    /* In a context of its own, which destroy_context() ends. */
    void *(*make_context)(int device);
    uint64_t (*allocate_in)(void *context, size_t bytes);
    void (*destroy_context)(void *context);

    /* What a kernel would see and write. */
    void (*peek)(uint64_t address, void *out, size_t bytes);
    void (*poke)(uint64_t address, const void *data, size_t bytes);

    /* The nth call of that symbol from now on (1: the next) returns result; 0: none. `times` in a row. */
    void (*break_call)(const char *symbol, int nth, int times, int result);
    void (*delay)(unsigned microseconds); /* of each copy from now on */

    size_t (*allocations)(void); /* that are not freed */
    size_t (*device_bytes)(void);
    size_t (*device_bytes_peak)(void);
    size_t (*pinned_bytes)(void);
    size_t (*calls)(const char *symbol); /* so far */
};

/* Load it and give it to the driver's name in this process. Aborts if it is not there. */
const struct fake_cuda *fake_cuda_open(void);

#endif
