/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_LOGGER_H
#define DAEMON_LOGGER_H

/* The daemon's log: one line an event, each one write, so that lines of threads do not mix.
 *
 *     2025-01-31T12:00:00.123Z warning n2: no heartbeat for 1.0 s
 *     <4>n2: no heartbeat for 1.0 s                             when stderr is the journal
 *
 * Any thread. */

#include <covey/covey.h>

/* Find out what stderr is. Before any other call. */
void logger_init(void);

/* The daemon leaves its terminal: lines go to syslog(3) from now on, unless stderr is a file. */
void logger_detach(void);

void logger_line(enum covey_log_level level, const char *line);
void logger_print(enum covey_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
