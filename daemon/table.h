/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_TABLE_H
#define DAEMON_TABLE_H

/* Aligned columns for a terminal. What is printed may come from other hosts, so control characters become
 * '?'. */

#include <stdbool.h>
#include <stddef.h>

struct column {
    const char *title;
    bool right; /* aligned to */
};

enum paint { PAINT_NONE, PAINT_GOOD, PAINT_BAD, PAINT_WARN };

struct cell {
    char *text;
    enum paint paint;
};

struct table {
    const struct column *columns;
    size_t column_count;
    bool colour;
    struct cell *cells; /* row by row */
    size_t count, room;
};

void table_init(struct table *table, const struct column *columns, size_t column_count, bool colour);

/* The next cell of the row, or the first of the next row. Ends the process when memory runs out. */
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Colour for the last cell. */
void table_paint(struct table *table, enum paint paint);

/* Print to stdout, with titles if any column has one, and free what was in it. */
void table_print(struct table *table);

/* Print the text, control characters replaced. */
void table_print_text(const char *text);

#endif
