/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/digest.h"

#include <assert.h>
#include <endian.h>

/* The library's own choice of vector instructions at run time, where it has one: three times the speed in
 * cache. */
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#define XXH_STATIC_LINKING_ONLY /* the state of a leaf in pieces lives on the stack */
#include <xxh_x86dispatch.h>
#else
#define XXH_INLINE_ALL
#include <xxhash.h>
#endif

/* A leaf that crosses buffers. */
static uint64_t leaf_of_pieces(const struct object *object, size_t index, uint64_t offset, uint64_t bytes)
{
    XXH3_state_t state;

    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    for (; bytes > 0; index++) {
        uint64_t skip = offset - object->offsets[index];
        uint64_t piece = object->offsets[index + 1] - offset;

        if (piece > bytes)
            piece = bytes;
        if (piece > 0)
            XXH3_64bits_update(&state, (const char *)object->buffers[index].base + skip, piece);
        offset += piece;
        bytes -= piece;
    }
    return XXH3_64bits_digest(&state);
}

static uint64_t leaf(const struct object *object, uint64_t offset, uint64_t bytes)
{
    size_t index = object_find(object, offset);

    if (offset + bytes > object->offsets[index + 1])
        return leaf_of_pieces(object, index, offset, bytes);
    return XXH3_64bits((const char *)object->buffers[index].base + (offset - object->offsets[index]), bytes);
}

void digest_leaves(const struct object *object, uint64_t offset, uint64_t bytes, uint64_t *leaves)
{
    uint64_t end = offset + bytes;

    assert(offset % DIGEST_LEAF_BYTES == 0 && end <= object->bytes);
    assert(end % DIGEST_LEAF_BYTES == 0 || end == object->bytes);
    for (; offset < end; offset += DIGEST_LEAF_BYTES) {
        uint64_t part = end - offset < DIGEST_LEAF_BYTES ? end - offset : DIGEST_LEAF_BYTES;

        leaves[offset / DIGEST_LEAF_BYTES] = htole64(leaf(object, offset, part));
    }
}

void digest_flat(const void *base, uint64_t offset, uint64_t bytes, uint64_t *leaves)
{
    assert(offset % DIGEST_LEAF_BYTES == 0);
    for (uint64_t done = 0; done < bytes; done += DIGEST_LEAF_BYTES) {
        uint64_t part = bytes - done < DIGEST_LEAF_BYTES ? bytes - done : DIGEST_LEAF_BYTES;

        leaves[(offset + done) / DIGEST_LEAF_BYTES] = htole64(XXH3_64bits((const char *)base + done, part));
    }
}

uint64_t digest_root(const uint64_t *leaves, uint64_t bytes)
{
    return XXH3_64bits_withSeed(leaves, digest_leaf_count(bytes) * sizeof(*leaves), bytes);
}
