/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MEMORY_CUDA_DRIVER_H
#define MEMORY_CUDA_DRIVER_H

/* The part of the CUDA driver API that Covey calls, opened at run time.
 *
 * These are declarations of our own of a stable binary interface (CUDA Driver API reference manual, sections
 * 6.1 to 6.18), so that building needs no CUDA and one binary runs with and without GPUs. Where cuda.h is
 * installed the unit tests compare every number here with it.
 *
 * Any thread. Once opened the driver stays: it must outlive every thread that may be inside it, and at exit
 * it may be gone before us, so nothing is called from a destructor. */

#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

typedef int cuda_result;
typedef int cuda_device;
typedef uint64_t cuda_pointer; /* CUdeviceptr, of 64-bit systems */

enum {
    CUDA_OK = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NOT_INITIALIZED = 3,
    CUDA_DEINITIALIZED = 4,
    CUDA_NO_DEVICE = 100,
    CUDA_INVALID_CONTEXT = 201,
    CUDA_INVALID_HANDLE = 400,
    CUDA_NOT_READY = 600,
    CUDA_CONTEXT_IS_DESTROYED = 709,
    CUDA_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_NOT_SUPPORTED = 801,

    /* CUpointer_attribute */
    CUDA_POINTER_CONTEXT = 1,
    CUDA_POINTER_MEMORY_TYPE = 2,
    CUDA_POINTER_BUFFER_ID = 7,
    CUDA_POINTER_IS_MANAGED = 8,
    CUDA_POINTER_DEVICE_ORDINAL = 9,
    CUDA_POINTER_RANGE_START = 11,
    CUDA_POINTER_RANGE_BYTES = 12,

    /* CUmemorytype */
    CUDA_TYPE_HOST = 1,
    CUDA_TYPE_DEVICE = 2,

    /* flags */
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_EVENT_BLOCKING_SYNC = 1,
    CUDA_EVENT_DISABLE_TIMING = 2,
    CUDA_HOST_REGISTER_PORTABLE = 1
};

struct cuda_context; /* CUcontext */
struct cuda_stream;  /* CUstream */
struct cuda_event;   /* CUevent */

/* X(name here, symbol of libcuda, arguments) */
#define CUDA_DRIVER_CALLS(X)                                                                          \
    X(init, cuInit, (unsigned flags))                                                                 \
    X(version, cuDriverGetVersion, (int *version))                                                    \
    X(error_name, cuGetErrorName, (cuda_result result, const char **name))                            \
    X(error_text, cuGetErrorString, (cuda_result result, const char **text))                          \
    X(device_count, cuDeviceGetCount, (int *count))                                                   \
    X(device_get, cuDeviceGet, (cuda_device * device, int index))                                     \
    X(device_name, cuDeviceGetName, (char *name, int bytes, cuda_device device))                      \
    X(primary_retain, cuDevicePrimaryCtxRetain, (struct cuda_context * *context, cuda_device device)) \
    X(context_push, cuCtxPushCurrent_v2, (struct cuda_context * context))                             \
    X(context_pop, cuCtxPopCurrent_v2, (struct cuda_context * *context))                              \
    X(memory_info, cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                      \
    X(allocate, cuMemAlloc_v2, (cuda_pointer * base, size_t bytes))                                   \
    X(release, cuMemFree_v2, (cuda_pointer base))                                                     \
    X(pointer_attributes, cuPointerGetAttributes,                                                     \
      (unsigned count, const int *attributes, void **values, cuda_pointer pointer))                   \
    X(host_register, cuMemHostRegister_v2, (void *base, size_t bytes, unsigned flags))                \
    X(host_unregister, cuMemHostUnregister, (void *base))                                             \
    X(stream_create, cuStreamCreate, (struct cuda_stream * *stream, unsigned flags))                  \
    X(stream_destroy, cuStreamDestroy_v2, (struct cuda_stream * stream))                              \
    X(event_create, cuEventCreate, (struct cuda_event * *event, unsigned flags))                      \
    X(event_destroy, cuEventDestroy_v2, (struct cuda_event * event))                                  \
    X(event_record, cuEventRecord, (struct cuda_event * event, struct cuda_stream * stream))          \
    X(event_synchronize, cuEventSynchronize, (struct cuda_event * event))                             \
    X(copy, cuMemcpyAsync, (cuda_pointer to, cuda_pointer from, size_t bytes, struct cuda_stream * stream))

struct cuda_driver {
#define CUDA_DRIVER_MEMBER(name, symbol, arguments) cuda_result(*name) arguments;
    CUDA_DRIVER_CALLS(CUDA_DRIVER_MEMBER)
#undef CUDA_DRIVER_MEMBER
    int devices;
};

/* The driver, initialised: opened once for the process, the answer kept (the first call may take a second).
 * COVEY_UNSUPPORTED, with what is missing, where there is none, or no device. */
int cuda_driver_open(const struct cuda_driver **driver, struct fail *fail);

/* The driver if something in this process, we or anyone else, has loaded it, started or not; NULL if not:
 * then no address of the process is a device's. */
const struct cuda_driver *cuda_driver_if_loaded(void);

/* Put the driver's name and text for the result behind a sentence. Returns code. */
int cuda_driver_fail(const struct cuda_driver *driver, cuda_result result, struct fail *fail, int code,
                     const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
