/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NODE_TCP_H
#define NODE_TCP_H

/* TCP sockets between nodes: non-blocking, closed on exec, without SIGPIPE and EINTR (a library has no say in
 * how the application handles signals), and tuned so that a peer which vanishes is noticed.
 *
 * Functions return 0 or a count, or a negated errno. The caller closes descriptors. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/fail.h"

#define TCP_HOST_MAX 64 /* bytes of a host's text, terminated */

/* Listen at the address, which is written `text` in the configuration. A socket of a process that was killed
 * does not stand in the way. COVEY_BUSY (with the process that holds the port, if it can be seen),
 * COVEY_CONFIG if the address is not this host's, COVEY_PERMISSION, COVEY_IO. */
int tcp_listen(const struct sockaddr_storage *address, socklen_t bytes, const char *text, int *fd,
               struct fail *fail);

/* Begin a connection from the host of `from` to `to`; when *fd is writable tcp_connected() has the outcome.
 */
int tcp_connect(const struct sockaddr_storage *from, const struct sockaddr_storage *to, socklen_t bytes,
                int *fd);
int tcp_connected(int fd);

/* The next connection that waits; -EAGAIN if there is none. */
int tcp_accept(int listener, struct sockaddr_storage *from, int *fd);

/* Bytes sent, 0 if none can be sent now. */
ssize_t tcp_send(int fd, const void *data, size_t bytes);

/* Bytes received, 0 at the end of the stream, -EAGAIN if there are none now. */
ssize_t tcp_receive(int fd, void *data, size_t bytes);

bool tcp_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b);

/* An address and its port in 24 bytes, the same at every node:
 *
 *     0        1        2                 4                                    20                24
 *     +--------+--------+-----------------+---------------- ... --------------+-----------------+
 *     | 4 or 6 | 0      | port, big-endian| host: 4 bytes and zeros, or 16    | 0               |
 *     +--------+--------+-----------------+---------------- ... --------------+-----------------+
 *
 * tcp_decode_address() returns false, and writes nothing, if the bytes are none. A scope is not carried: it
 * means something on its own host only. */
#define TCP_ADDRESS_BYTES 24
void tcp_encode_address(const struct sockaddr_storage *address, uint8_t out[TCP_ADDRESS_BYTES]);
bool tcp_decode_address(const uint8_t in[TCP_ADDRESS_BYTES], struct sockaddr_storage *address,
                        socklen_t *bytes);

/* "10.0.0.1", "2001:db8::1". */
void tcp_host_text(const struct sockaddr_storage *address, char text[TCP_HOST_MAX]);

#endif
