/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/logger.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1280

static const struct level {
    const char *name;
    int priority;
} levels[] = {
    [COVEY_LOG_ERROR] = {"error", LOG_ERR},
    [COVEY_LOG_WARNING] = {"warning", LOG_WARNING},
    [COVEY_LOG_INFO] = {"info", LOG_INFO},
    [COVEY_LOG_DEBUG] = {"debug", LOG_DEBUG},
};

enum target { TO_STDERR, TO_JOURNAL, TO_SYSLOG };

static _Atomic enum target target = TO_STDERR; /* set by the main thread, while others log */

/* systemd says "device:inode" of the stream that it gave. */
static int is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat status;

    return stream != NULL && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
           fstat(STDERR_FILENO, &status) == 0 && status.st_dev == device && status.st_ino == inode;
}

void logger_init(void)
{
    target = is_journal() ? TO_JOURNAL : TO_STDERR;
}

void logger_detach(void)
{
    struct stat status;

    if (fstat(STDERR_FILENO, &status) == 0 && S_ISREG(status.st_mode))
        return;
    openlog("coveyd", LOG_PID, LOG_DAEMON);
    target = TO_SYSLOG;
}

static int format_prefix(char *out, size_t room, const struct level *level)
{
    struct timespec now;
    struct tm utc;
    char seconds[32];

    if (target == TO_JOURNAL)
        return snprintf(out, room, "<%d>", level->priority);
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &utc);
    return snprintf(out, room, "%s.%03ldZ %s ", seconds, now.tv_nsec / 1000000, level->name);
}

void logger_line(enum covey_log_level level, const char *line)
{
    char out[LINE_MAX_BYTES];
    int used;

    if (target == TO_SYSLOG) {
        syslog(levels[level].priority, "%s", line);
        return;
    }
    used = format_prefix(out, sizeof(out) - 1, &levels[level]);
    used += snprintf(out + used, sizeof(out) - 1 - (size_t)used, "%s", line);
    if ((size_t)used > sizeof(out) - 2)
        used = sizeof(out) - 2;
    out[used] = '\n';
    /* With nobody to read it the log is lost; the daemon goes on. */
    if (write(STDERR_FILENO, out, (size_t)used + 1) < 0)
        return;
}

void logger_print(enum covey_log_level level, const char *format, ...)
{
    char line[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    logger_line(level, line);
}
