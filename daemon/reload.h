/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_RELOAD_H
#define DAEMON_RELOAD_H

/* Reading the configuration again while the daemon runs. */

#include "daemon/server.h"

/* Take from the file what can change while the node runs; the service manager is told about it. If anything
 * else differs, or the file has mistakes, nothing changes, and *problem says what (free it; NULL without
 * memory). Logs either way. Any thread. */
int reload_server(struct server *server, char **problem);

#endif
