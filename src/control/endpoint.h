/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONTROL_ENDPOINT_H
#define CONTROL_ENDPOINT_H

/* Where a daemon and its clients meet: a UNIX stream socket of mode 0600 at a path, and PATH.lock beside it.
 *
 * The lock (flock) decides who owns the path, not the socket file: a socket that a killed daemon left is
 * replaced, that of a living one never is. Both files go when the owner closes. Anything else at the path is
 * kept and refused. */

#include <stdbool.h>

#include "base/fail.h"

struct endpoint;

/* Take the path: make its directory if only that is missing, take the lock, bind. Connections are refused
 * until endpoint_listen(). Changes the umask for a moment: call it before there are threads.
 * COVEY_BUSY when another process has it, COVEY_EXISTS when something is there that is no socket,
 * COVEY_TOO_LARGE for a path that no socket address holds, COVEY_PERMISSION, COVEY_IO. */
int endpoint_bind(const char *path, struct endpoint **endpoint, struct fail *fail);

int endpoint_listen(struct endpoint *endpoint, struct fail *fail);

/* Readable when endpoint_accept() has something. */
int endpoint_fd(const struct endpoint *endpoint);

/* The next client's socket, the caller's to close. COVEY_AGAIN: there is none. COVEY_PERMISSION: it was
 * another user's, and was closed. COVEY_TOO_LARGE: this process may open no more files; the client was told
 * so and closed. */
int endpoint_accept(struct endpoint *endpoint, int *socket, struct fail *fail);

/* Stop listening: the socket file goes, the lock stays until endpoint_close(). */
void endpoint_retire(struct endpoint *endpoint);

/* Remove both files and free. NULL is allowed. */
void endpoint_close(struct endpoint *endpoint);

/* Of a client's socket, from any thread: whoever reads from it sees its end; nor can anybody write. */
void endpoint_stop_reading(int socket);
void endpoint_hang_up(int socket);

/* Connect to a daemon; its replies and our requests time out after silence_ms.
 * COVEY_NOT_FOUND: no daemon is there; COVEY_TIMEOUT: one is, but it does not accept; COVEY_PERMISSION. */
int endpoint_connect(const char *path, int silence_ms, int *socket, struct fail *fail);
void endpoint_set_silence(int socket, int silence_ms);

#endif
