/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WIRE_BYTES_H
#define WIRE_BYTES_H

/* Reading and writing little-endian fields in order, within bounds.
 *
 * A reader that would pass its end takes nothing more: every later take gives 0 or NULL, and bytes_done() is
 * false. So a decoder takes all its fields and asks once. A writer is our own code filling a buffer that it
 * sized: passing the end is a bug and asserts. */

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct bytes_reader {
    const uint8_t *next;
    size_t left;
    bool failed;
};

static inline struct bytes_reader bytes_read(const uint8_t *data, size_t bytes)
{
    return (struct bytes_reader){.next = data, .left = bytes};
}

/* The next bytes; NULL past the end. */
static inline const uint8_t *bytes_take(struct bytes_reader *reader, size_t bytes)
{
    const uint8_t *data = reader->next;

    if (reader->failed || bytes > reader->left) {
        reader->failed = true;
        return NULL;
    }
    reader->next += bytes;
    reader->left -= bytes;
    return data;
}

static inline uint64_t bytes_take_uint(struct bytes_reader *reader, size_t bytes)
{
    const uint8_t *data = bytes_take(reader, bytes);
    uint64_t value = 0;

    for (size_t i = 0; data != NULL && i < bytes; i++)
        value |= (uint64_t)data[i] << (8 * i);
    return value;
}

static inline uint8_t bytes_take_u8(struct bytes_reader *reader)
{
    return (uint8_t)bytes_take_uint(reader, 1);
}

static inline uint16_t bytes_take_u16(struct bytes_reader *reader)
{
    return (uint16_t)bytes_take_uint(reader, 2);
}

static inline uint32_t bytes_take_u32(struct bytes_reader *reader)
{
    return (uint32_t)bytes_take_uint(reader, 4);
}

static inline uint64_t bytes_take_u64(struct bytes_reader *reader)
{
    return bytes_take_uint(reader, 8);
}

/* Whether everything was taken, and nothing past the end was asked for. */
static inline bool bytes_done(const struct bytes_reader *reader)
{
    return !reader->failed && reader->left == 0;
}

struct bytes_writer {
    uint8_t *base;
    size_t used, capacity;
};

static inline struct bytes_writer bytes_write(uint8_t *base, size_t capacity)
{
    return (struct bytes_writer){.base = base, .capacity = capacity};
}

static inline void bytes_put(struct bytes_writer *writer, const void *data, size_t bytes)
{
    assert(bytes <= writer->capacity - writer->used);
    if (bytes > 0)
        memcpy(writer->base + writer->used, data, bytes);
    writer->used += bytes;
}

static inline void bytes_put_uint(struct bytes_writer *writer, uint64_t value, size_t bytes)
{
    assert(bytes <= writer->capacity - writer->used);
    for (size_t i = 0; i < bytes; i++)
        writer->base[writer->used++] = (uint8_t)(value >> (8 * i));
}

static inline void bytes_put_u8(struct bytes_writer *writer, uint8_t value)
{
    bytes_put_uint(writer, value, 1);
}

static inline void bytes_put_u16(struct bytes_writer *writer, uint16_t value)
{
    bytes_put_uint(writer, value, 2);
}

static inline void bytes_put_u32(struct bytes_writer *writer, uint32_t value)
{
    bytes_put_uint(writer, value, 4);
}

static inline void bytes_put_u64(struct bytes_writer *writer, uint64_t value)
{
    bytes_put_uint(writer, value, 8);
}

#endif
