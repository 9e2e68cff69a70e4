/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONFIG_HOST_H
#define CONFIG_HOST_H

/* All that loading a configuration asks of the machine it runs on, so that tests can answer instead. */

#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/fail.h"

struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_storage storage;
    };
    socklen_t bytes;
};

struct host {
    /* Look a host name up: its first IPv4 address, else its first IPv6 address, with port 0.
     * COVEY_NOT_FOUND and why. */
    int (*resolve)(const char *name, struct address *address, struct fail *fail);

    /* The addresses of this machine's interfaces, the caller's to free. */
    int (*addresses)(struct address **list, size_t *count, struct fail *fail);

    /* Read a regular file of at most max_bytes whole; *bytes is the caller's to free. Waits for nothing: what
     * is no regular file is refused. COVEY_IO and why, COVEY_TOO_LARGE, COVEY_NO_MEMORY. */
    int (*read_file)(const char *path, size_t max_bytes, char **bytes, size_t *count, struct stat *status,
                     struct fail *fail);
};

/* The machine itself. */
extern const struct host host_here;

#endif
