/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

/* Text that grows as it is written.
 *
 * Start from {0}. A failed allocation is remembered and every later append does nothing, so that only
 * text_take() needs to be looked at. */

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct text {
    char *bytes; /* with a NUL after `length` bytes; NULL while empty */
    size_t length, capacity;
    bool failed;
};

void text_append(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_append_list(struct text *text, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
void text_append_bytes(struct text *text, const void *bytes, size_t count);

/* The text, the caller's to free; text is {0} again. NULL if memory ran out on the way. */
char *text_take(struct text *text);

void text_fini(struct text *text);

/* How many of the bytes are left without a UTF-8 character that is cut off at their end. */
size_t text_whole(const char *bytes, size_t count);

/* A value of the user's or a peer's as it may stand in a message: in double quotes, bytes that do not print
 * as \xHH, the middle of a long one left out. The result is `quoted`'s. */
struct quoted {
    char text[256];
};
const char *text_quote(const char *value, size_t bytes, struct quoted *quoted);
#define QUOTE(value) text_quote((value), strlen(value), &(struct quoted){{0}})

#endif
