/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void log_line(const struct log *log, enum covey_log_level level, const char *format, ...)
{
    char line[1024];
    va_list args;

    if (log->write == NULL || level > __atomic_load_n(&log->level, __ATOMIC_RELAXED))
        return;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    for (char *c = line; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    }
    log->write(log->context, level, line);
}
