/* SPDX-License-Identifier: BSD-3-Clause */
#include "config/report.h"

#include <stdarg.h>
#include <stdio.h>
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

    if (report->count == REPORT_LINES_MAX) {
        report->hidden++;
        return;
    }
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

static void mask_controls(char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if ((unsigned char)bytes[i] < 0x20 || bytes[i] == 0x7f)
            bytes[i] = '?';
    }
}

static void append_line(struct text *text, const char *path, const struct report_line *line)
{
    size_t begin = text->length;

    text_append(text, "%s:", path);
    if (line->line != 0)
        text_append(text, "%u:", line->line);
    text_append(text, " %s", line->text);
    if (!text->failed)
        mask_controls(text->bytes + begin, text->length - begin);
    text_append(text, "\n");
}

char *report_text(struct report *report)
{
    struct text text = {0};

    if (report->no_memory)
        return NULL;
    if (report->count > 1)
        qsort(report->lines, report->count, sizeof(*report->lines), compare_lines);
    for (size_t i = 0; i < report->count; i++)
        append_line(&text, report->path, &report->lines[i]);
    if (report->hidden > 0) {
        char more[64];

        snprintf(more, sizeof(more), "%zu more mistakes are not shown", report->hidden);
        append_line(&text, report->path, &(struct report_line){.text = more});
    }
    return text_take(&text);
}
