/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MEMORY_HOST_H
#define MEMORY_HOST_H

/* Ordinary memory of this process: anonymous mappings, huge pages where the kernel has them. */

#include "memory/memory.h"

extern const struct memory_ops memory_host;

/* Make pages present without madvise(MADV_POPULATE_WRITE), for kernels before 5.14: the same promise. */
void memory_host_touch(void *base, size_t bytes);

#endif
