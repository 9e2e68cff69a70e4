/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "control/endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "control/frame.h"
#include "control/reply.h"

#define LOCK_SUFFIX ".lock"
#define BACKLOG     128

struct endpoint {
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    char lock_path[sizeof(((struct sockaddr_un *)0)->sun_path) + sizeof(LOCK_SUFFIX)];
    int lock_fd;   /* holds the lock */
    int listen_fd; /* -1 once retired */
    int spare_fd;  /* given up to tell a client that there are no more */
};

static int path_failed(int error, const char *verb, const char *path, struct fail *fail)
{
    int code = error == EACCES || error == EPERM || error == EROFS ? COVEY_PERMISSION : COVEY_IO;

    return fail_set(fail, code, "cannot %s %s: %s", verb, path, strerror(error));
}

static int address_of(const char *path, struct sockaddr_un *address, struct fail *fail)
{
    size_t bytes = strlen(path);

    if (bytes == 0)
        return fail_set(fail, COVEY_INVALID, "the path of the control socket is empty");
    if (bytes >= sizeof(address->sun_path))
        return fail_set(fail, COVEY_TOO_LARGE,
                        "the path of the control socket has %zu bytes, and the system allows %zu: choose a "
                        "shorter one than %s",
                        bytes, sizeof(address->sun_path) - 1, path);
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, path, bytes + 1);
    return 0;
}

/* --- Taking the path ------------------------------------------------------------------------------------ */

static int make_directory(const char *path, struct fail *fail)
{
    char directory[PATH_MAX];
    const char *slash = strrchr(path, '/');

    if (slash == NULL || slash == path)
        return 0;
    snprintf(directory, sizeof(directory), "%.*s", (int)(slash - path), path);
    if (mkdir(directory, 0755) == 0 || errno == EEXIST)
        return 0;
    return path_failed(errno, "make the control socket's directory", directory, fail);
}

/* Whether the descriptor is still the file of that name, not one that was removed in the meantime. */
static bool is_file_at(int fd, const char *path)
{
    struct stat opened, named;

    return fstat(fd, &opened) == 0 && stat(path, &named) == 0 && opened.st_dev == named.st_dev &&
           opened.st_ino == named.st_ino;
}

static int lock_failed(const struct endpoint *endpoint, struct fail *fail)
{
    if (errno == EWOULDBLOCK)
        return fail_set(fail, COVEY_BUSY, "another coveyd runs with the control socket %s", endpoint->path);
    return path_failed(errno, "lock", endpoint->lock_path, fail);
}

/* Whoever closes removes the file while it holds the lock, so a lock on a file without a name is void. */
static int take_lock(struct endpoint *endpoint, struct fail *fail)
{
    for (;;) {
        int fd = open(endpoint->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

        if (fd < 0)
            return path_failed(errno, "open", endpoint->lock_path, fail);
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            int result = lock_failed(endpoint, fail);

            close(fd);
            return result;
        }
        if (is_file_at(fd, endpoint->lock_path)) {
            endpoint->lock_fd = fd;
            return 0;
        }
        close(fd);
    }
}

/* Whether a process listens at the address, whatever the lock says. */
static bool is_answered(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool answered = fd >= 0 && (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 ||
                                errno == EAGAIN || errno == EINPROGRESS);

    if (fd >= 0)
        close(fd);
    return answered;
}

static int clear_path(const struct sockaddr_un *address, struct fail *fail)
{
    const char *path = address->sun_path;
    struct stat status;

    if (lstat(path, &status) != 0)
        return errno == ENOENT ? 0 : path_failed(errno, "look at", path, fail);
    if (!S_ISSOCK(status.st_mode))
        return fail_set(fail, COVEY_EXISTS,
                        "%s is there and is not a socket: move it, or set another control.socket", path);
    if (is_answered(address))
        return fail_set(fail, COVEY_BUSY, "another process listens on the control socket %s", path);
    if (unlink(path) != 0)
        return path_failed(errno, "remove the old control socket", path, fail);
    return 0;
}

static int bind_socket(struct endpoint *endpoint, const struct sockaddr_un *address, struct fail *fail)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t old_mask;
    int bound;

    if (fd < 0)
        return path_failed(errno, "make a socket for", address->sun_path, fail);
    old_mask = umask(0177);
    bound = bind(fd, (const struct sockaddr *)address, sizeof(*address));
    umask(old_mask);
    if (bound != 0) {
        int error = errno;

        close(fd);
        return path_failed(error, "bind the control socket", address->sun_path, fail);
    }
    endpoint->listen_fd = fd;
    return 0;
}

int endpoint_bind(const char *path, struct endpoint **endpoint, struct fail *fail)
{
    struct sockaddr_un address;
    struct endpoint *made;
    int result = address_of(path, &address, fail);

    if (result != 0)
        return result;
    result = make_directory(path, fail);
    if (result != 0)
        return result;
    made = malloc(sizeof(*made));
    if (made == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for the control socket");
    *made = (struct endpoint){.lock_fd = -1, .listen_fd = -1, .spare_fd = -1};
    snprintf(made->path, sizeof(made->path), "%s", path);
    snprintf(made->lock_path, sizeof(made->lock_path), "%s" LOCK_SUFFIX, path);
    result = take_lock(made, fail);
    if (result == 0)
        result = clear_path(&address, fail);
    if (result == 0)
        result = bind_socket(made, &address, fail);
    if (result != 0) {
        endpoint_close(made);
        return result;
    }
    *endpoint = made;
    return 0;
}

int endpoint_listen(struct endpoint *endpoint, struct fail *fail)
{
    if (listen(endpoint->listen_fd, BACKLOG) != 0)
        return path_failed(errno, "listen on", endpoint->path, fail);
    endpoint->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return 0;
}

int endpoint_fd(const struct endpoint *endpoint)
{
    return endpoint->listen_fd;
}

void endpoint_retire(struct endpoint *endpoint)
{
    if (endpoint->listen_fd < 0)
        return;
    unlink(endpoint->path);
    close(endpoint->listen_fd);
    endpoint->listen_fd = -1;
}

void endpoint_close(struct endpoint *endpoint)
{
    if (endpoint == NULL)
        return;
    endpoint_retire(endpoint);
    if (endpoint->lock_fd >= 0) {
        unlink(endpoint->lock_path);
        close(endpoint->lock_fd);
    }
    if (endpoint->spare_fd >= 0)
        close(endpoint->spare_fd);
    free(endpoint);
}

/* --- Accepting ------------------------------------------------------------------------------------------ */

static void set_timeout(int socket, int option, int timeout_ms)
{
    struct timeval timeout = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};

    setsockopt(socket, SOL_SOCKET, option, &timeout, sizeof(timeout));
}

/* Send a client away with an error; what cannot be sent at once is not. */
static void turn_away(int socket, const struct fail *why)
{
    struct fail ignored = {0};
    json_t *document = reply_encode(
        REPLY_ERROR, json_pack("{s:s, s:s}", "code", covey_error_name(why->code), "text", why->text));

    set_timeout(socket, SO_SNDTIMEO, 1);
    if (document != NULL)
        frame_send(socket, document, NULL, 0, &ignored);
    json_decref(document);
    close(socket);
}

static int check_owner(int socket, struct fail *fail)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);

    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
        return fail_set(fail, COVEY_PERMISSION, "cannot tell who the client is: %s", strerror(errno));
    if (peer.uid != 0 && peer.uid != geteuid())
        return fail_set(fail, COVEY_PERMISSION, "user %u may not command the daemon of user %u",
                        (unsigned)peer.uid, (unsigned)geteuid());
    return 0;
}

/* The client would stay in the backlog, and the backlog readable, for as long as files are short. */
static int accept_without_files(struct endpoint *endpoint, struct fail *fail)
{
    int socket;

    fail_set(fail, COVEY_TOO_LARGE,
             "the daemon may open no more files (RLIMIT_NOFILE): raise the limit, or wait");
    close(endpoint->spare_fd);
    socket = accept4(endpoint->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (socket >= 0)
        turn_away(socket, fail);
    endpoint->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return fail->code;
}

int endpoint_accept(struct endpoint *endpoint, int *socket, struct fail *fail)
{
    int fd = accept4(endpoint->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    int result;

    if (fd < 0 && (errno == EMFILE || errno == ENFILE))
        return accept_without_files(endpoint, fail);
    if (fd < 0)
        return fail_set(fail, COVEY_AGAIN, "no client: %s", strerror(errno));
    result = check_owner(fd, fail);
    if (result != 0) {
        turn_away(fd, fail);
        return result;
    }
    *socket = fd;
    return 0;
}

void endpoint_stop_reading(int socket)
{
    shutdown(socket, SHUT_RD);
}

void endpoint_hang_up(int socket)
{
    shutdown(socket, SHUT_RDWR);
}

/* --- Connecting ----------------------------------------------------------------------------------------- */

static int connect_failed(int error, const char *path, struct fail *fail)
{
    if (error == ENOENT)
        return fail_set(fail, COVEY_NOT_FOUND, "no coveyd runs here: there is no socket %s", path);
    if (error == ECONNREFUSED)
        return fail_set(fail, COVEY_NOT_FOUND, "no coveyd runs here: nobody listens on %s", path);
    if (error == EAGAIN)
        return fail_set(fail, COVEY_TIMEOUT, "coveyd at %s does not answer: it is stopped or stuck", path);
    return path_failed(error, "connect to coveyd at", path, fail);
}

void endpoint_set_silence(int socket, int silence_ms)
{
    set_timeout(socket, SO_SNDTIMEO, silence_ms);
    set_timeout(socket, SO_RCVTIMEO, silence_ms);
}

int endpoint_connect(const char *path, int silence_ms, int *socket_out, struct fail *fail)
{
    struct sockaddr_un address;
    int result = address_of(path, &address, fail);
    int fd;

    if (result != 0)
        return result;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return path_failed(errno, "make a socket for", path, fail);
    endpoint_set_silence(fd, silence_ms);
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        int error = errno;

        close(fd);
        return connect_failed(error, path, fail);
    }
    *socket_out = fd;
    return 0;
}
