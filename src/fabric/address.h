/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FABRIC_ADDRESS_H
#define FABRIC_ADDRESS_H

/* Fabric addresses of backends that connect by IP address and port, valid at any node, in any byte order:
 *
 *     0        1        2                4
 *     +--------+--------+----------------+------- ... -------+
 *     | 4 or 6 | 0      | port, big end  | 4 or 16 bytes     |
 *     +--------+--------+----------------+------- ... -------+
 */

#include <sys/socket.h>

#include "fabric/fabric.h"

/* Of a socket address of IPv4 or IPv6. Returns how many bytes. */
size_t address_encode(const struct sockaddr_storage *from, uint8_t out[FABRIC_ADDRESS_MAX]);

/* Returns the size of the socket address, 0 if the bytes are none. */
size_t address_decode(const uint8_t *address, size_t bytes, struct sockaddr_storage *out);

#endif
