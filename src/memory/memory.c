/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/memory.h"

#include "memory/cuda.h"
#include "memory/host.h"

const char *memory_kind_name(enum covey_memory kind)
{
    switch (kind) {
    case COVEY_MEMORY_HOST:
        return "host";
    case COVEY_MEMORY_CUDA:
        return "cuda";
    case COVEY_MEMORY_CUDA_MANAGED:
        return "cuda-managed";
    }
    return "unknown";
}

int memory_ops(enum covey_memory kind, const struct memory_ops **ops, struct fail *fail)
{
    switch (kind) {
    case COVEY_MEMORY_HOST:
        *ops = &memory_host;
        return 0;
    case COVEY_MEMORY_CUDA:
    case COVEY_MEMORY_CUDA_MANAGED:
        return memory_cuda_ops(kind, ops, fail);
    }
    return fail_set(fail, COVEY_UNSUPPORTED, "%s memory (kind %d) does not exist: see enum covey_memory",
                    memory_kind_name(kind), (int)kind);
}

int memory_pin(void *base, size_t bytes, bool *pinned, struct fail *fail)
{
    return memory_cuda_pin(base, bytes, pinned, fail);
}

void memory_unpin(void *base)
{
    memory_cuda_unpin(base);
}
