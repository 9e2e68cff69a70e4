/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BASE_QUANTITY_H
#define BASE_QUANTITY_H

/* Sizes and times as text with a unit, exact in both directions: in the configuration and on command lines.
 */

#include <stdint.h>

#include "base/fail.h"

/* "256MiB", "1.5GiB", "65536B": units B, KiB, MiB, GiB, TiB, and a whole number of bytes in the end. 0, or
 * COVEY_INVALID and what is wrong. */
int quantity_parse_size(const char *text, uint64_t *bytes, struct fail *fail);

/* "100ms", "1.5s": units ns, us, ms, s, min, and a whole number of nanoseconds in the end.
 * The same errors. */
int quantity_parse_time(const char *text, uint64_t *ns, struct fail *fail);

/* The same exactly, in the largest unit that has no fraction. */
struct quantity_text {
    char text[32];
};
const char *quantity_format_size(uint64_t bytes, struct quantity_text *out);
const char *quantity_format_time(uint64_t ns, struct quantity_text *out);

#endif
