/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h" /* accept4() needs the system's extensions */

#include "node/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include "node/port_holder.h"

#define BACKLOG         1024
#define KEEP_IDLE_S     5
#define KEEP_INTERVAL_S 2
#define KEEP_COUNT      3
#define USER_TIMEOUT_MS 10000 /* of bytes that are not acknowledged, and of keepalives */

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

static int set_option(int fd, int level, int option, int value)
{
    return setsockopt(fd, level, option, &value, sizeof(value)) == 0 ? 0 : -errno;
}

/* Options of a connection only make a failure known sooner: a kernel that lacks one is good enough. */
static void tune(int fd)
{
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEP_COUNT);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, USER_TIMEOUT_MS);
}

/* SO_REUSEADDR on every socket, dialing ones too: a port that a connection uses, or used, can be listened at.
 */
static int open_socket(int family, int *fd)
{
    int result, opened = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (opened < 0)
        return -errno;
    result = set_option(opened, SOL_SOCKET, SO_REUSEADDR, 1);
    if (result == 0 && family == AF_INET6)
        result = set_option(opened, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    if (result != 0) {
        close(opened);
        return result;
    }
    *fd = opened;
    return 0;
}

static int listen_fail(const struct sockaddr_storage *address, const char *text, int error, struct fail *fail)
{
    struct port_holder holder;

    switch (error) {
    case EADDRINUSE:
        if (port_holder_find(address, &holder))
            return fail_set(fail, COVEY_BUSY, "cannot listen at %s: process %ld (%s) does", text, holder.pid,
                            holder.name);
        return fail_set(fail, COVEY_BUSY, "cannot listen at %s: another process does", text);
    case EADDRNOTAVAIL:
        return fail_set(fail, COVEY_CONFIG,
                        "cannot listen at %s: it is not an address of this host (see `ip address`)", text);
    case EACCES:
        return fail_set(fail, COVEY_PERMISSION, "cannot listen at %s: %s", text, strerror(error));
    default:
        return fail_set(fail, COVEY_IO, "cannot listen at %s: %s", text, strerror(error));
    }
}

int tcp_listen(const struct sockaddr_storage *address, socklen_t bytes, const char *text, int *fd,
               struct fail *fail)
{
    int opened, error, result = open_socket(address->ss_family, &opened);

    if (result != 0)
        return listen_fail(address, text, -result, fail);
    if (bind(opened, (const struct sockaddr *)address, bytes) != 0 || listen(opened, BACKLOG) != 0) {
        error = errno;
        close(opened);
        return listen_fail(address, text, error, fail);
    }
    *fd = opened;
    return 0;
}

static void set_port(struct sockaddr_storage *address, in_port_t port)
{
    if (address->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)address)->sin6_port = port;
    else
        ((struct sockaddr_in *)address)->sin_port = port;
}

/* The port is chosen by connect(), when the kernel knows both ends: then ports are not used up. */
static int bind_host(int fd, const struct sockaddr_storage *from, socklen_t bytes)
{
    struct sockaddr_storage host = *from;

    set_port(&host, 0);
    set_option(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    return bind(fd, (const struct sockaddr *)&host, bytes) == 0 ? 0 : -errno;
}

int tcp_connect(const struct sockaddr_storage *from, const struct sockaddr_storage *to, socklen_t bytes,
                int *fd)
{
    int opened, result = open_socket(to->ss_family, &opened);

    if (result != 0)
        return result;
    tune(opened);
    if (from->ss_family == to->ss_family)
        result = bind_host(opened, from, bytes);
    /* An interrupted connect() goes on by itself. */
    if (result == 0 && connect(opened, (const struct sockaddr *)to, bytes) != 0 && errno != EINPROGRESS &&
        errno != EINTR)
        result = -errno;
    if (result != 0) {
        close(opened);
        return result;
    }
    *fd = opened;
    return 0;
}

/* A port of the ephemeral range can be dialed from itself while nobody listens there: TCP then connects the
 * socket with itself. */
static bool is_own_mirror(int fd)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_bytes = sizeof(here), there_bytes = sizeof(there);

    return getsockname(fd, (struct sockaddr *)&here, &here_bytes) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &there_bytes) == 0 && here_bytes == there_bytes &&
           memcmp(&here, &there, here_bytes) == 0;
}

int tcp_connected(int fd)
{
    int error = 0;
    socklen_t bytes = sizeof(error);

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        return -errno;
    if (error == 0 && is_own_mirror(fd))
        error = ECONNREFUSED;
    return -error;
}

int tcp_accept(int listener, struct sockaddr_storage *from, int *fd)
{
    socklen_t bytes = sizeof(*from);
    int accepted;

    memset(from, 0, sizeof(*from));
    do {
        accepted = accept4(listener, (struct sockaddr *)from, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    } while (accepted < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (accepted < 0)
        return -errno;
    tune(accepted);
    *fd = accepted;
    return 0;
}

ssize_t tcp_send(int fd, const void *data, size_t bytes)
{
    ssize_t sent;

    do {
        sent = send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return errno == EAGAIN || errno == ENOBUFS ? 0 : -errno;
    return sent;
}

ssize_t tcp_receive(int fd, void *data, size_t bytes)
{
    ssize_t received;

    do {
        received = recv(fd, data, bytes, MSG_DONTWAIT);
    } while (received < 0 && errno == EINTR);
    return received < 0 ? -errno : received;
}

bool tcp_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    if (a->ss_family != b->ss_family)
        return false;
    if (a->ss_family == AF_INET6)
        return memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
                      &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
    return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
           ((const struct sockaddr_in *)b)->sin_addr.s_addr;
}

void tcp_encode_address(const struct sockaddr_storage *address, uint8_t out[TCP_ADDRESS_BYTES])
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;

    memset(out, 0, TCP_ADDRESS_BYTES);
    if (address->ss_family == AF_INET6) {
        out[0] = 6;
        memcpy(out + 2, &in6->sin6_port, 2);
        memcpy(out + 4, &in6->sin6_addr, 16);
    } else {
        out[0] = 4;
        memcpy(out + 2, &in->sin_port, 2);
        memcpy(out + 4, &in->sin_addr, 4);
    }
}

bool tcp_decode_address(const uint8_t in[TCP_ADDRESS_BYTES], struct sockaddr_storage *address,
                        socklen_t *bytes)
{
    struct sockaddr_storage decoded = {0};
    uint8_t again[TCP_ADDRESS_BYTES];

    if (in[0] == 6) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&decoded;
        in6->sin6_family = AF_INET6;
        memcpy(&in6->sin6_port, in + 2, 2);
        memcpy(&in6->sin6_addr, in + 4, 16);
    } else {
        struct sockaddr_in *in4 = (struct sockaddr_in *)&decoded;
        in4->sin_family = AF_INET;
        memcpy(&in4->sin_port, in + 2, 2);
        memcpy(&in4->sin_addr, in + 4, 4);
    }
    tcp_encode_address(&decoded, again);
    if (memcmp(again, in, TCP_ADDRESS_BYTES) != 0 || (in[2] | in[3]) == 0)
        return false;
    *address = decoded;
    *bytes = in[0] == 6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    return true;
}

void tcp_host_text(const struct sockaddr_storage *address, char text[TCP_HOST_MAX])
{
    const void *host = address->ss_family == AF_INET6
                           ? (const void *)&((const struct sockaddr_in6 *)address)->sin6_addr
                           : (const void *)&((const struct sockaddr_in *)address)->sin_addr;

    if (inet_ntop(address->ss_family, host, text, TCP_HOST_MAX) == NULL)
        memcpy(text, "?", 2);
}
