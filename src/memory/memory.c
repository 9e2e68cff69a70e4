/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/memory.h"

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
    if (kind != COVEY_MEMORY_HOST)
        return fail_set(fail, COVEY_UNSUPPORTED, "%s memory is not supported by this build: use host memory",
                        memory_kind_name(kind));
    *ops = &memory_host;
    return 0;
}
