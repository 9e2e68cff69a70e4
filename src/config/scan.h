/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONFIG_SCAN_H
#define CONFIG_SCAN_H

/* A first look at the text of a configuration file, before libconfig reads it.
 *
 * libconfig stops at its first mistake and calls it "syntax error", wraps integers over 32 bits that lack an
 * L silently (4294971392 becomes 4096), opens whatever @include names, joins "a" "b" to one string, and takes
 * no comment in the last line without a newline. So the text is scanned here: mistakes are reported with what
 * would be right, and what libconfig then gets is a clean copy, line for line, in which every integer is
 * exact. */

#include <stddef.h>

#include "base/text.h"
#include "config/report.h"

#define SCAN_DEPTH_MAX 16 /* groups and lists inside one another */
#define SCAN_KEYS_MAX  64 /* keys of one group */

/* Whether the text is well-formed; `clean` is then complete.
 *
 * Integers beyond 64 bits become INT64_MIN or INT64_MAX, which no key takes, and floats become 0.0, because
 * no key takes a float. */
bool scan_text(const char *bytes, size_t count, struct report *report, struct text *clean);

#endif
