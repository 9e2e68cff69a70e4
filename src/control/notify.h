/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONTROL_NOTIFY_H
#define CONTROL_NOTIFY_H

/* What a service manager wants to be told: sd_notify(3)'s protocol, datagrams to $NOTIFY_SOCKET.
 * Without that variable, or with a socket that does not answer, nothing happens: a daemon runs without a
 * manager too. */

#include <covey/error.h>

#include "base/fail.h"

/* Send assignments, one a line ("READY=1\nSTATUS=..."). COVEY_IO with a sentence when there is a manager that
 * cannot be reached, COVEY_INVALID for an address that is none. Any thread. */
int notify_send(struct fail *fail, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
