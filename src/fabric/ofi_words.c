/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes whose words become visible whole, where the provider would copy them byte by byte. */

#include <string.h>

#include "fabric/ofi.h"

_Static_assert(FABRIC_WORDS_MAX + sizeof(struct ofi_words) <= FABRIC_MESSAGE_MAX, "it is a message");

void ofi_words_open(struct ofi *ofi, struct ofi_region *region)
{
    HASH_ADD(hh, ofi->regions, key, sizeof(region->key), region);
    region->listed = true;
}

void ofi_words_close(struct ofi *ofi, struct ofi_region *region)
{
    if (region->listed)
        HASH_DELETE(hh, ofi->regions, region);
    region->listed = false;
}

static char *place_of(const struct ofi *ofi, const struct ofi_words *words, size_t bytes)
{
    struct ofi_region *region;
    uint64_t offset;

    HASH_FIND(hh, ofi->regions, &words->key, sizeof(words->key), region);
    if (region == NULL || words->address < region->address)
        return NULL;
    offset = words->address - region->address;
    return offset <= region->bytes && bytes <= region->bytes - offset ? region->memory + offset : NULL;
}

bool ofi_words_write(const struct ofi *ofi, const void *message, size_t bytes)
{
    const char *from = (const char *)message + sizeof(struct ofi_words);
    struct ofi_words words;
    char *to;

    if (bytes < sizeof(words))
        return false;
    memcpy(&words, message, sizeof(words));
    bytes -= sizeof(words);
    to = place_of(ofi, &words, bytes);
    if (to == NULL)
        return false;
    for (; bytes > 0 && (uintptr_t)to % sizeof(uint64_t) != 0; bytes--)
        *to++ = *from++;
    for (; bytes >= sizeof(uint64_t); bytes -= sizeof(uint64_t)) {
        uint64_t word;

        memcpy(&word, from, sizeof(word));
        __atomic_store_n((uint64_t *)to, word, __ATOMIC_RELEASE);
        to += sizeof(word);
        from += sizeof(word);
    }
    memcpy(to, from, bytes);
    return true;
}
