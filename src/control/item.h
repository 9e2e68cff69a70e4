/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONTROL_ITEM_H
#define CONTROL_ITEM_H

/* How Covey's values look in JSON, on the control socket and in the output of `covey --json`:
 *
 *   counts, sizes, versions, view numbers   exact integers
 *   digests, epochs, incarnations           strings of 16 hexadecimal digits
 *   times                                   strings, RFC 3339 in UTC with nanoseconds; null: never
 *   names, sentences                        strings; bytes that are not UTF-8 become U+FFFD
 *
 * The makers return a new reference, or NULL without memory, as json_pack()'s "o" likes it. */

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#define ITEM_TIME_BYTES 32 /* room for a time as text */

json_t *item_u64(uint64_t number); /* what exceeds INT64_MAX, which nothing counts to, is INT64_MAX */
json_t *item_hex(uint64_t number);
json_t *item_time(uint64_t realtime_ns);
json_t *item_text(const char *text);

/* The time as text: "2025-01-31T12:00:00.000000000Z". */
void item_format_time(uint64_t realtime_ns, char out[ITEM_TIME_BYTES]);
/* Its inverse; 0 for what is no such text. */
uint64_t item_parse_time(const char *text);

/* Members of an object, with a default for what is missing or of another type. */
uint64_t item_get_u64(const json_t *object, const char *key);     /* 0; also for negative numbers */
double item_get_real(const json_t *object, const char *key);      /* 0 */
bool item_get_bool(const json_t *object, const char *key);        /* false */
const char *item_get_text(const json_t *object, const char *key); /* "" */

#endif
