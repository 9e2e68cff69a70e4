/* SPDX-License-Identifier: BSD-3-Clause */
#include "control/notify.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define PATIENCE_S 2 /* with a manager that does not read */

/* "/path", or "@name" in the abstract namespace. */
static int address_of(const char *text, struct sockaddr_un *address, socklen_t *bytes, struct fail *fail)
{
    size_t length = strlen(text);

    if ((text[0] != '/' && text[0] != '@') || length < 2 || length >= sizeof(address->sun_path))
        return fail_set(fail, COVEY_INVALID, "NOTIFY_SOCKET is not the address of a socket: %s", text);
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, text, length);
    if (text[0] == '@')
        address->sun_path[0] = '\0';
    *bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (text[0] == '/'));
    return 0;
}

int notify_send(struct fail *fail, const char *format, ...)
{
    const char *text = getenv("NOTIFY_SOCKET");
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    struct sockaddr_un address;
    socklen_t address_bytes = 0;
    char message[1024];
    va_list args;
    ssize_t sent;
    int fd;

    if (text == NULL || text[0] == '\0')
        return 0;
    if (address_of(text, &address, &address_bytes, fail) != 0)
        return fail->code;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail_set(fail, COVEY_IO, "cannot make a socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    sent =
        sendto(fd, message, strlen(message), MSG_NOSIGNAL, (const struct sockaddr *)&address, address_bytes);
    if (sent < 0)
        fail_set(fail, COVEY_IO, "cannot tell the service manager at %s: %s", text, strerror(errno));
    close(fd);
    return sent < 0 ? fail->code : 0;
}
