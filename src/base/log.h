/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BASE_LOG_H
#define BASE_LOG_H

/* One line an event, to whoever gave the sink. The library itself never prints. */

#include <covey/covey.h>

struct log {
    void (*write)(void *context, enum covey_log_level level, const char *line); /* may be NULL */
    void *context;
    enum covey_log_level level; /* lines above it are not formatted */
};

/* Change the level while others log. Any thread. */
static inline void log_set_level(struct log *log, enum covey_log_level level)
{
    __atomic_store_n(&log->level, level, __ATOMIC_RELAXED);
}

/* Format and hand over one line (cut at 1023 bytes; control characters become '?'). Any thread, if the sink
 * is. */
void log_line(const struct log *log, enum covey_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_error(log, ...)   log_line(log, COVEY_LOG_ERROR, __VA_ARGS__)
#define log_warning(log, ...) log_line(log, COVEY_LOG_WARNING, __VA_ARGS__)
#define log_info(log, ...)    log_line(log, COVEY_LOG_INFO, __VA_ARGS__)
#define log_debug(log, ...)   log_line(log, COVEY_LOG_DEBUG, __VA_ARGS__)

#endif
