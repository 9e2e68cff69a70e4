/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MEMORY_MEMORY_H
#define MEMORY_MEMORY_H

/* Memory that object bytes are in: one table of operations per kind, chosen at run time.
 *
 * Allocation is for the store (whole objects); sizes are rounded up to the kind's page. Copies and digests
 * hide whether the CPU can touch the bytes. Any thread, different memory at the same time. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <covey/covey.h>

#include "base/fail.h"

struct memory_ops {
    enum covey_memory kind;
    const char *name; /* "host", "cuda" */

    /* Page-aligned memory of at least `bytes` (>= 1). COVEY_NO_MEMORY, with the size and the limit in fail.
     */
    int (*allocate)(int device, size_t bytes, void **base, struct fail *fail);
    void (*release)(int device, void *base, size_t bytes);

    /* Make the pages of [base, base + bytes) present, so that the first write into them does not pay for it.
     * A hint: cannot fail; may take long: not on the loop thread. */
    void (*populate)(int device, void *base, size_t bytes);

    /* Copy between this kind and host memory; returns when done. */
    int (*read)(int device, void *host, const void *base, size_t bytes, struct fail *fail);
    int (*write)(int device, void *base, const void *host, size_t bytes, struct fail *fail);

    /* Whether the CPU may load and store at base. */
    bool cpu_visible;
};

/* The operations of a kind; COVEY_UNSUPPORTED, with why and what would mend it, where this machine has none.
 */
int memory_ops(enum covey_memory kind, const struct memory_ops **ops, struct fail *fail);

const char *memory_kind_name(enum covey_memory kind);

#endif
