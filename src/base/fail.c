/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/fail.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int fail_set(struct fail *fail, int code, const char *format, ...)
{
    char text[FAIL_TEXT_MAX];
    va_list args;

    assert(code < 0);
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    memcpy(fail->text, text, sizeof(text));
    fail->code = code;
    return code;
}

int fail_prefix(struct fail *fail, const char *format, ...)
{
    char text[FAIL_TEXT_MAX];
    va_list args;
    size_t used;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    used = strlen(text);
    snprintf(text + used, sizeof(text) - used, "%s", fail->text);
    memcpy(fail->text, text, sizeof(text));
    return fail->code;
}
