/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_UNITS_H
#define DAEMON_UNITS_H

/* Numbers as people read and write them. */

#include <stdbool.h>
#include <stdint.h>

struct unit_text {
    char text[32];
};

/* "0 B", "1.5 KiB", "16 MiB": three digits, powers of 1024. */
const char *units_bytes(uint64_t bytes, struct unit_text *out);

/* "850 us", "1.34 s", "2:05 min": a duration. */
const char *units_seconds(double seconds, struct unit_text *out);

/* "5s", "3m 12s", "2h 5m", "4d 1h": an age. */
const char *units_age(uint64_t ns, struct unit_text *out);

/* "1.34 GB/s", "12.5 MB/s": powers of 1000. */
const char *units_rate(double gb_per_s, struct unit_text *out);

/* "1 buffer", "2 buffers". */
const char *units_count(uint64_t number, const char *noun, struct unit_text *out);

#define UNITS_COUNT(number, noun) units_count((number), (noun), &(struct unit_text){{0}})
#define UNITS_BYTES(bytes)        units_bytes((bytes), &(struct unit_text){{0}})
#define UNITS_SECONDS(seconds)    units_seconds((seconds), &(struct unit_text){{0}})
#define UNITS_AGE(ns)             units_age((ns), &(struct unit_text){{0}})
#define UNITS_RATE(gb_per_s)      units_rate((gb_per_s), &(struct unit_text){{0}})

/* A decimal number and nothing else, minimum..maximum. */
bool units_parse_number(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *number);

#endif
