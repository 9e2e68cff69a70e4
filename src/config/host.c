/* SPDX-License-Identifier: BSD-3-Clause */
#include "config/host.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int resolve(const char *name, struct address *address, struct fail *fail)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    const struct addrinfo *chosen = NULL;
    struct addrinfo *found;
    int error = getaddrinfo(name, NULL, &hints, &found);

    if (error != 0)
        return fail_set(fail, COVEY_NOT_FOUND, "%s",
                        error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
    for (const struct addrinfo *at = found; at != NULL; at = at->ai_next) {
        if (at->ai_family == AF_INET && (chosen == NULL || chosen->ai_family != AF_INET))
            chosen = at;
        else if (at->ai_family == AF_INET6 && chosen == NULL)
            chosen = at;
    }
    if (chosen != NULL) {
        *address = (struct address){.bytes = chosen->ai_addrlen};
        memcpy(&address->storage, chosen->ai_addr, chosen->ai_addrlen);
    }
    freeaddrinfo(found);
    return chosen != NULL ? 0 : fail_set(fail, COVEY_NOT_FOUND, "it has no IPv4 or IPv6 address");
}

static size_t internet_bytes(const struct ifaddrs *interface)
{
    if (interface->ifa_addr == NULL)
        return 0;
    switch (interface->ifa_addr->sa_family) {
    case AF_INET:
        return sizeof(struct sockaddr_in);
    case AF_INET6:
        return sizeof(struct sockaddr_in6);
    default:
        return 0;
    }
}

static int addresses(struct address **list, size_t *count, struct fail *fail)
{
    struct ifaddrs *interfaces;
    struct address *found;
    size_t total = 0, used = 0;

    if (getifaddrs(&interfaces) != 0)
        return fail_set(fail, COVEY_IO, "getifaddrs: %s", strerror(errno));
    for (const struct ifaddrs *at = interfaces; at != NULL; at = at->ifa_next)
        total += internet_bytes(at) > 0;
    found = calloc(total + 1, sizeof(*found));
    for (const struct ifaddrs *at = interfaces; at != NULL && found != NULL; at = at->ifa_next) {
        size_t bytes = internet_bytes(at);

        if (bytes == 0)
            continue;
        found[used].bytes = (socklen_t)bytes;
        memcpy(&found[used++].storage, at->ifa_addr, bytes);
    }
    freeifaddrs(interfaces);
    if (found == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "out of memory");
    *list = found;
    *count = used;
    return 0;
}

/* What something that is no regular file is, for the message; NULL for a regular file. */
static const char *irregular(mode_t mode)
{
    if (S_ISREG(mode))
        return NULL;
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISCHR(mode)  ? "a character device"
           : S_ISBLK(mode)  ? "a block device"
                            : "something else";
}

/* Read until the end or until `room` bytes. Returns how many; -1 with errno set. */
static ssize_t read_whole(int fd, char *bytes, size_t room)
{
    size_t used = 0;

    while (used < room) {
        ssize_t got = read(fd, bytes + used, room - used);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        used += (size_t)got;
    }
    return (ssize_t)used;
}

/* One byte more than allowed is asked for, so that a file that grows under us is noticed as well. */
static int read_open_file(int fd, size_t max_bytes, char **bytes, size_t *count, struct stat *status,
                          struct fail *fail)
{
    const char *kind;
    char *buffer;
    ssize_t got;

    if (fstat(fd, status) != 0)
        return fail_set(fail, COVEY_IO, "%s", strerror(errno));
    kind = irregular(status->st_mode);
    if (kind != NULL)
        return fail_set(fail, COVEY_IO, "it is %s; a regular file is needed", kind);
    buffer = malloc(max_bytes + 1);
    if (buffer == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "out of memory");
    got = read_whole(fd, buffer, max_bytes + 1);
    if (got >= 0 && (size_t)got <= max_bytes) {
        *bytes = buffer;
        *count = (size_t)got;
        return 0;
    }
    if (got < 0)
        fail_set(fail, COVEY_IO, "%s", strerror(errno));
    else
        fail_set(fail, COVEY_TOO_LARGE, "it has more than the %zu bytes that are allowed", max_bytes);
    explicit_bzero(buffer, max_bytes + 1);
    free(buffer);
    return fail->code;
}

static int read_file(const char *path, size_t max_bytes, char **bytes, size_t *count, struct stat *status,
                     struct fail *fail)
{
    /* Nonblocking: opening a FIFO must not wait for its writer. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    int error;

    if (fd < 0)
        return fail_set(fail, COVEY_IO, "%s", strerror(errno));
    error = read_open_file(fd, max_bytes, bytes, count, status, fail);
    close(fd);
    return error;
}

const struct host host_here = {.resolve = resolve, .addresses = addresses, .read_file = read_file};
