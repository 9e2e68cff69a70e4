/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONFIG_REPORT_H
#define CONFIG_REPORT_H

/* The mistakes of one configuration file, collected so that all of them can be shown. */

#include <stdbool.h>
#include <stddef.h>

#define REPORT_LINES_MAX 1000 /* of those that are shown; the rest is counted */

struct report_line {
    unsigned line; /* of the file; 0: the file as a whole */
    size_t order;  /* among those found */
    char *text;
};

struct report {
    const char *path; /* borrowed */
    struct report_line *lines;
    size_t count, capacity;
    size_t hidden;  /* found beyond REPORT_LINES_MAX */
    bool no_memory; /* of collecting them, or of what the collector of them did */
};

void report_init(struct report *report, const char *path);
void report_fini(struct report *report);

/* Add "KEY: what is wrong and what would be right". */
void report_add(struct report *report, unsigned line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Nothing to complain about so far, and no lack of memory. */
bool report_is_clean(const struct report *report);

/* "PATH:LINE: KEY: ...\n" per mistake, in the order of lines, without control characters; the caller's to
 * free. NULL without memory. */
char *report_text(struct report *report);

#endif
