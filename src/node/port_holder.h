/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NODE_PORT_HOLDER_H
#define NODE_PORT_HOLDER_H

/* Which process listens at an address: /proc/net/tcp gives the socket's inode, /proc/PID/fd who has it open.
 * Other users' processes can only be seen by root, so not finding one means nothing. Linux; blocks for as
 * long as it takes to read /proc: for the start of a node only. */

#include <stdbool.h>
#include <sys/socket.h>

struct port_holder {
    long pid;
    char name[64]; /* of its program */
};

/* Whether it was found; *holder is written only then. */
bool port_holder_find(const struct sockaddr_storage *address, struct port_holder *holder);

#endif
