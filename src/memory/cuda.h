/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MEMORY_CUDA_H
#define MEMORY_CUDA_H

/* Memory of CUDA devices: cuMemAlloc's, pools' (cuMemAllocAsync), mapped chunks (cuMemCreate) and managed
 * memory, of any context of the process.
 *
 * Nothing is remembered about an address: whose it is, is asked before each copy, since one that was freed
 * and given again may be another device's or context's. A copy runs in the context that owns the memory, or
 * in the device's primary one where none does, on two non-blocking streams of ours there, one to each side.
 */

#include "memory/memory.h"

/* COVEY_UNSUPPORTED without a driver or a device. */
int memory_cuda_ops(enum covey_memory kind, const struct memory_ops **ops, struct fail *fail);

/* Whether the CPU may touch base; COVEY_INVALID if a device owns it. Needs no driver. */
int memory_cuda_check_host(const void *base, struct fail *fail);

int memory_cuda_pin(void *base, size_t bytes, bool *pinned, struct fail *fail);
void memory_cuda_unpin(void *base);

#endif
