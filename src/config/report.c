/* SPDX-License-Identifier: BSD-3-Clause */
#include "config/report.h"

#include <stdarg.h>
#include <stdlib.h>

#include "base/text.h"

void report_init(struct report *report, const char *path)
{
    *report = (struct report){.path = path};
}

void report_fini(struct report *report)
{
    for (size_t i = 0; i < report->count; i++)
        free(report->lines[i].text);
    free(report->lines);
    *report = (struct report){0};
}

static bool report_grow(struct report *report)
{
    size_t capacity = report->capacity == 0 ? 16 : 2 * report->capacity;
    struct report_line *lines;

    if (report->count < report->capacity)
        return true;
    lines = realloc(report->lines, capacity * sizeof(*lines));
    if (lines == NULL)
        return false;
    report->lines = lines;
    report->capacity = capacity;
    return true;
}

void report_add(struct report *report, unsigned line, const char *format, ...)
{
    struct text text = {0};
    va_list args;
    char *sentence;

    va_start(args, format);
    text_append_list(&text, format, args);
    va_end(args);
    sentence = text_take(&text);
    if (sentence == NULL || !report_grow(report)) {
        report->no_memory = true;
        free(sentence);
        return;
    }
    report->lines[report->count] = (struct report_line){line, report->count, sentence};
    report->count++;
}

bool report_is_clean(const struct report *report)
{
    return report->count == 0 && !report->no_memory;
}

static int compare_lines(const void *left, const void *right)
{
    const struct report_line *a = left, *b = right;

    if (a->line != b->line)
        return a->line < b->line ? -1 : 1;
    return (a->order > b->order) - (a->order < b->order);
}

static void mask_controls(char *bytes)
{
    for (char *c = bytes; *c != '\0'; c++) {
        if (((unsigned char)*c < 0x20 && *c != '\n') || *c == 0x7f)
            *c = '?';
    }
}

char *report_text(struct report *report)
{
    struct text text = {0};
    char *bytes;

    if (report->no_memory)
        return NULL;
    if (report->count > 1)
        qsort(report->lines, report->count, sizeof(*report->lines), compare_lines);
    for (size_t i = 0; i < report->count; i++) {
        const struct report_line *line = &report->lines[i];

        if (line->line == 0)
            text_append(&text, "%s: %s\n", report->path, line->text);
        else
            text_append(&text, "%s:%u: %s\n", report->path, line->line, line->text);
    }
    bytes = text_take(&text);
    if (bytes != NULL)
        mask_controls(bytes);
    return bytes;
}
