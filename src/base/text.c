/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUOTE_HEAD 40 /* bytes shown of a long value */
#define QUOTE_TAIL 8

/* Room for `more` bytes and a NUL. */
static bool text_reserve(struct text *text, size_t more)
{
    size_t capacity = text->capacity == 0 ? 256 : text->capacity;
    char *bytes;

    if (text->failed || more > SIZE_MAX / 4 - text->length) {
        text->failed = true;
        return false;
    }
    while (capacity < text->length + more + 1)
        capacity *= 2;
    if (capacity == text->capacity)
        return true;
    bytes = realloc(text->bytes, capacity);
    if (bytes == NULL) {
        text->failed = true;
        return false;
    }
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

void text_append_list(struct text *text, const char *format, va_list args)
{
    va_list again;
    int more;

    va_copy(again, args);
    more = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (more < 0) {
        text->failed = true;
    } else if (text_reserve(text, (size_t)more)) {
        vsnprintf(text->bytes + text->length, (size_t)more + 1, format, args);
        text->length += (size_t)more;
    }
}

void text_append(struct text *text, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    text_append_list(text, format, args);
    va_end(args);
}

void text_append_bytes(struct text *text, const void *bytes, size_t count)
{
    if (!text_reserve(text, count))
        return;
    memcpy(text->bytes + text->length, bytes, count);
    text->length += count;
    text->bytes[text->length] = '\0';
}

char *text_take(struct text *text)
{
    char *bytes = NULL;

    text_append_bytes(text, "", 0);
    if (!text->failed) {
        bytes = text->bytes;
        text->bytes = NULL;
    }
    text_fini(text);
    return bytes;
}

void text_fini(struct text *text)
{
    free(text->bytes);
    *text = (struct text){0};
}

static char *quote_bytes(char *out, const char *bytes, size_t count)
{
    static const char hex[] = "0123456789ABCDEF";

    for (size_t i = 0; i < count; i++) {
        unsigned char byte = (unsigned char)bytes[i];

        if (byte >= 0x20 && byte < 0x7f) {
            *out++ = (char)byte;
        } else {
            *out++ = '\\';
            *out++ = 'x';
            *out++ = hex[byte >> 4];
            *out++ = hex[byte & 15];
        }
    }
    return out;
}

const char *text_quote(const char *value, size_t bytes, struct quoted *quoted)
{
    char *out = quoted->text;

    _Static_assert(sizeof(quoted->text) >= 4 * (QUOTE_HEAD + QUOTE_TAIL) + sizeof("\"...\""), "quoted fits");
    *out++ = '"';
    if (bytes <= QUOTE_HEAD + QUOTE_TAIL) {
        out = quote_bytes(out, value, bytes);
    } else {
        out = quote_bytes(out, value, QUOTE_HEAD);
        memcpy(out, "...", 3);
        out = quote_bytes(out + 3, value + bytes - QUOTE_TAIL, QUOTE_TAIL);
    }
    memcpy(out, "\"", 2);
    return quoted->text;
}

size_t text_whole(const char *bytes, size_t count)
{
    size_t tail = 0, need;
    unsigned char first;

    while (tail < count && tail < 4 && ((unsigned char)bytes[count - 1 - tail] & 0xc0) == 0x80)
        tail++;
    if (tail == count || tail == 4)
        return count; /* no UTF-8 */
    first = (unsigned char)bytes[count - 1 - tail];
    need = first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 1;
    return tail + 1 < need ? count - tail - 1 : count;
}
