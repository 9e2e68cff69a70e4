/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MEMORY_MEMORY_H
#define MEMORY_MEMORY_H

/* Memory that object bytes are in: one table of operations per kind, chosen at run time.
 *
 * Allocation is for the store (whole objects); sizes are rounded up to the kind's page. Copies hide whether
 * the CPU can touch the bytes: they go between this kind and host memory, and those of a device run beside
 * the processor from their begin to their finish. Nothing waits for a whole device, launches a kernel, or
 * changes what context the caller's thread has. Any thread, different memory at the same time. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <covey/covey.h>

#include "base/fail.h"

/* A copy that has begun. */
struct memory_copy;

struct memory_ops {
    enum covey_memory kind;
    const char *name; /* "host", "cuda" */

    /* The device to use where the configuration names `wanted` (-1: one of the kind's choice, nodes of one
     * host spread over its devices by `spread`). Makes it ready, which may take a second: not on the loop
     * thread. COVEY_UNSUPPORTED, COVEY_INVALID with the devices that there are. */
    int (*device)(int wanted, uint32_t spread, int *device, struct fail *fail);

    /* Whether [base, base + bytes) is memory of this kind on that device: COVEY_INVALID with what it is
     * instead and what to say. bytes >= 1. May wait for the driver: not on the loop thread. */
    int (*check)(int device, const void *base, size_t bytes, struct fail *fail);

    /* Page-aligned memory of at least `bytes` (>= 1). COVEY_NO_MEMORY, with the size and the limit in fail.
     */
    int (*allocate)(int device, size_t bytes, void **base, struct fail *fail);
    void (*release)(int device, void *base, size_t bytes);

    /* Make the pages of [base, base + bytes) present, so that the first write into them does not pay for it.
     * A hint: cannot fail; may take long: not on the loop thread. */
    void (*populate)(int device, void *base, size_t bytes);

    /* Begin a copy between this kind and host memory, beside those that have begun. Both sides stay until
     * finish() of *copy has returned, which it must be called with once; *copy is NULL if all is done
     * already. COVEY_IO with the driver's reason; then nothing has begun. */
    int (*read)(int device, void *host, const void *base, size_t bytes, struct memory_copy **copy,
                struct fail *fail);
    int (*write)(int device, void *base, const void *host, size_t bytes, struct memory_copy **copy,
                 struct fail *fail);
    /* Wait for its end and free it. COVEY_IO. NULL is done. */
    int (*finish)(struct memory_copy *copy, struct fail *fail);

    /* Whether the CPU may load and store at base. */
    bool cpu_visible;
};

/* The operations of a kind; COVEY_UNSUPPORTED, with why and what would mend it, where this machine has none.
 */
int memory_ops(enum covey_memory kind, const struct memory_ops **ops, struct fail *fail);

const char *memory_kind_name(enum covey_memory kind);

/* Lock host memory in place for copies by devices, once for all of them; a second and slower kind of copy
 * works without. *pinned is false, and nothing to undo, where its owner has pinned it already.
 * COVEY_NO_MEMORY or COVEY_UNSUPPORTED with the reason. Not on the loop thread. */
int memory_pin(void *base, size_t bytes, bool *pinned, struct fail *fail);
void memory_unpin(void *base);

#endif
