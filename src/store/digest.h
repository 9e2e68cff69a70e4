/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef STORE_DIGEST_H
#define STORE_DIGEST_H

/* The digest of an object's content, in a form that blocks arriving in any order can fill in.
 *
 * A leaf is the xxh3-64 of DIGEST_LEAF_BYTES of the content (the buffers end to end; the last leaf may be
 * shorter). The digest is the xxh3-64 of the leaves as little-endian integers, seeded with the number of
 * bytes: it does not depend on block size, schedule or how the content is cut in buffers. Pure; any thread.
 */

#include "store/store.h"

#define DIGEST_LEAF_BYTES (UINT64_C(64) << 10)

static inline uint64_t digest_leaf_count(uint64_t bytes)
{
    return (bytes + DIGEST_LEAF_BYTES - 1) / DIGEST_LEAF_BYTES;
}

/* Fill in the leaves of [offset, offset + bytes): offset is a multiple of DIGEST_LEAF_BYTES, and so is the
 * end unless it is the object's. The CPU must see the object's memory. */
void digest_leaves(const struct object *object, uint64_t offset, uint64_t bytes, uint64_t *leaves);

/* The same for bytes that are not where they belong: those of [offset, offset + bytes) are at base. */
void digest_flat(const void *base, uint64_t offset, uint64_t bytes, uint64_t *leaves);

/* The digest of an object of so many bytes from all its leaves. */
uint64_t digest_root(const uint64_t *leaves, uint64_t bytes);

#endif
