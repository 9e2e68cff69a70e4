/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "daemon/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GAP 2

static const char *const colours[] = {
    [PAINT_NONE] = "", [PAINT_GOOD] = "\033[32m", [PAINT_BAD] = "\033[31m", [PAINT_WARN] = "\033[33m"};

void table_init(struct table *table, const struct column *columns, size_t column_count, bool colour)
{
    *table = (struct table){.columns = columns, .column_count = column_count, .colour = colour};
}

static void make_printable(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
    }
}

static void *need_memory(void *memory)
{
    if (memory != NULL)
        return memory;
    fputs("covey: out of memory\n", stderr);
    exit(EXIT_FAILURE);
}

void table_cell(struct table *table, const char *format, ...)
{
    struct cell cell = {0};
    va_list args;

    va_start(args, format);
    if (vasprintf(&cell.text, format, args) < 0)
        cell.text = NULL;
    va_end(args);
    make_printable(need_memory(cell.text));
    if (table->count == table->room) {
        table->room = table->room == 0 ? 64 : 2 * table->room;
        table->cells = need_memory(realloc(table->cells, table->room * sizeof(cell)));
    }
    table->cells[table->count++] = cell;
}

void table_paint(struct table *table, enum paint paint)
{
    table->cells[table->count - 1].paint = paint;
}

/* Characters of UTF-8 text. */
static int text_width(const char *text)
{
    int width = 0;

    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static int column_width(const struct table *table, size_t column)
{
    int widest = text_width(table->columns[column].title);

    for (size_t i = column; i < table->count; i += table->column_count) {
        int width = text_width(table->cells[i].text);

        widest = width > widest ? width : widest;
    }
    return widest;
}

/* Print a cell after `gap` blanks. Returns the blanks that are due before the next one: what is left empty at
 * the end of a line stays unprinted. */
static int print_cell(const char *text, const char *colour, int width, bool right, int gap)
{
    int blanks = width - text_width(text);

    if (text[0] == '\0')
        return gap + width + GAP;
    printf("%*s", gap + (right ? blanks : 0), "");
    if (colour[0] != '\0')
        printf("%s%s\033[0m", colour, text);
    else
        fputs(text, stdout);
    return (right ? 0 : blanks) + GAP;
}

static void print_titles(const struct table *table, const int *widths)
{
    bool any = false;
    int gap = 0;

    for (size_t i = 0; i < table->column_count; i++)
        any |= table->columns[i].title[0] != '\0';
    if (!any)
        return;
    for (size_t i = 0; i < table->column_count; i++)
        gap = print_cell(table->columns[i].title, table->colour ? "\033[1m" : "", widths[i],
                         table->columns[i].right, gap);
    putchar('\n');
}

static void print_row(const struct table *table, const struct cell *cells, const int *widths)
{
    int gap = 0;

    for (size_t i = 0; i < table->column_count; i++)
        gap = print_cell(cells[i].text, table->colour ? colours[cells[i].paint] : "", widths[i],
                         table->columns[i].right, gap);
    putchar('\n');
}

void table_print(struct table *table)
{
    int *widths = need_memory(calloc(table->column_count, sizeof(*widths)));

    for (size_t i = 0; i < table->column_count; i++)
        widths[i] = column_width(table, i);
    print_titles(table, widths);
    for (size_t i = 0; i < table->count; i += table->column_count)
        print_row(table, table->cells + i, widths);
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i].text);
    free(table->cells);
    free(widths);
    table->cells = NULL;
    table->count = table->room = 0;
}

void table_print_text(const char *text)
{
    for (; *text != '\0'; text++)
        putchar((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
}
