/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BASE_BITMAP_H
#define BASE_BITMAP_H

/* A set of small integers, one bit each, in 64-bit words that the caller owns. Bits past the count stay 0. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BITMAP_WORDS(bits) (((size_t)(bits) + 63) / 64)

static inline void bitmap_clear_all(uint64_t *words, size_t bits)
{
    memset(words, 0, BITMAP_WORDS(bits) * sizeof(*words));
}

static inline void bitmap_set_all(uint64_t *words, size_t bits)
{
    memset(words, 0xff, BITMAP_WORDS(bits) * sizeof(*words));
    if (bits % 64 != 0)
        words[bits / 64] = (UINT64_C(1) << (bits % 64)) - 1;
}

static inline bool bitmap_get(const uint64_t *words, size_t bit)
{
    return words[bit / 64] >> (bit % 64) & 1;
}

static inline void bitmap_set(uint64_t *words, size_t bit)
{
    words[bit / 64] |= UINT64_C(1) << (bit % 64);
}

static inline void bitmap_clear(uint64_t *words, size_t bit)
{
    words[bit / 64] &= ~(UINT64_C(1) << (bit % 64));
}

static inline size_t bitmap_count(const uint64_t *words, size_t bits)
{
    size_t count = 0;

    for (size_t i = 0; i < BITMAP_WORDS(bits); i++)
        count += (size_t)__builtin_popcountll(words[i]);
    return count;
}

/* The first bit >= from that is set; `bits` if there is none. */
static inline size_t bitmap_next(const uint64_t *words, size_t bits, size_t from)
{
    uint64_t word;

    if (from >= bits)
        return bits;
    word = words[from / 64] >> (from % 64) << (from % 64);
    for (size_t i = from / 64;;) {
        if (word != 0) {
            size_t bit = i * 64 + (size_t)__builtin_ctzll(word);
            return bit < bits ? bit : bits;
        }
        if (++i >= BITMAP_WORDS(bits))
            return bits;
        word = words[i];
    }
}

#define BITMAP_EACH(bit, words, bits) \
    for (size_t bit = bitmap_next(words, bits, 0); bit < (bits); bit = bitmap_next(words, bits, bit + 1))

#endif
