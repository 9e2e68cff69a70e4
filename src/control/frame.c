/* SPDX-License-Identifier: BSD-3-Clause */
#include "control/frame.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Room for the descriptors of one frame, aligned as control messages are. */
union control_space {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(FRAME_DESCRIPTORS_MAX * sizeof(int))];
};

static uint32_t header_length(const uint8_t *header)
{
    return (uint32_t)header[0] | (uint32_t)header[1] << 8 | (uint32_t)header[2] << 16 |
           (uint32_t)header[3] << 24;
}

void frame_reader_want(struct frame_reader *reader, void **at, size_t *bytes)
{
    if (reader->header_have < FRAME_HEADER_BYTES) {
        *at = reader->header + reader->header_have;
        *bytes = FRAME_HEADER_BYTES - reader->header_have;
    } else {
        *at = reader->body + reader->body_have;
        *bytes = reader->body_bytes - reader->body_have;
    }
}

static int body_begin(struct frame_reader *reader, struct fail *fail)
{
    uint32_t length = header_length(reader->header);

    if (length == 0 || length > FRAME_BYTES_MAX)
        return fail_set(fail, COVEY_PROTOCOL, "a frame of %u bytes (1 to %u are allowed)", length,
                        FRAME_BYTES_MAX);
    reader->body = malloc(length);
    if (reader->body == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for a frame of %u bytes", length);
    reader->body_bytes = length;
    reader->body_have = 0;
    return 0;
}

static int body_parse(struct frame_reader *reader, json_t **document, struct fail *fail)
{
    json_error_t error;
    json_t *parsed = json_loadb(reader->body, reader->body_bytes, JSON_REJECT_DUPLICATES, &error);

    free(reader->body);
    reader->body = NULL;
    reader->header_have = 0;
    if (parsed == NULL)
        return fail_set(fail, COVEY_PROTOCOL, "a frame is not JSON: %s", error.text);
    *document = parsed;
    return 1;
}

int frame_reader_feed(struct frame_reader *reader, size_t bytes, json_t **document, struct fail *fail)
{
    if (reader->header_have < FRAME_HEADER_BYTES) {
        reader->header_have += bytes;
        assert(reader->header_have <= FRAME_HEADER_BYTES);
        return reader->header_have == FRAME_HEADER_BYTES ? body_begin(reader, fail) : 0;
    }
    reader->body_have += bytes;
    assert(reader->body_have <= reader->body_bytes);
    return reader->body_have == reader->body_bytes ? body_parse(reader, document, fail) : 0;
}

static void close_descriptors(struct frame_reader *reader)
{
    for (size_t i = 0; i < reader->descriptor_count; i++)
        close(reader->descriptors[i]);
    reader->descriptor_count = 0;
    reader->descriptors_lost = false;
}

size_t frame_reader_take_descriptors(struct frame_reader *reader, int *out)
{
    size_t count = reader->descriptor_count;

    memcpy(out, reader->descriptors, count * sizeof(*out));
    reader->descriptor_count = 0;
    return count;
}

void frame_reader_fini(struct frame_reader *reader)
{
    close_descriptors(reader);
    free(reader->body);
    memset(reader, 0, sizeof(*reader));
}

/* Keep the descriptors of one SCM_RIGHTS message; false if the frame has more than it may. */
static bool keep_descriptors(struct frame_reader *reader, const struct cmsghdr *cmsg)
{
    size_t count = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    bool fits = true;

    for (size_t i = 0; i < count; i++) {
        int descriptor;

        memcpy(&descriptor, CMSG_DATA(cmsg) + i * sizeof(descriptor), sizeof(descriptor));
        if (reader->descriptor_count < FRAME_DESCRIPTORS_MAX) {
            reader->descriptors[reader->descriptor_count++] = descriptor;
        } else {
            close(descriptor);
            fits = false;
        }
    }
    return fits;
}

static int collect_descriptors(struct frame_reader *reader, struct msghdr *message, struct fail *fail)
{
    bool fits = true;

    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(message); cmsg != NULL; cmsg = CMSG_NXTHDR(message, cmsg)) {
        if (cmsg->cmsg_level == SOL_SOCKET && cmsg->cmsg_type == SCM_RIGHTS)
            fits &= keep_descriptors(reader, cmsg);
    }
    if (message->msg_flags & MSG_CTRUNC)
        reader->descriptors_lost = true;
    if (!fits)
        return fail_set(fail, COVEY_PROTOCOL, "a frame with more than %d descriptors", FRAME_DESCRIPTORS_MAX);
    return 0;
}

static int receive_failed(const struct frame_reader *reader, ssize_t got, struct fail *fail)
{
    bool ended = got == 0 || errno == ECONNRESET;

    if (ended && reader->header_have == 0)
        return 0;
    if (ended)
        return fail_set(fail, COVEY_PROTOCOL, "the stream ended inside a frame");
    if (errno == EINTR)
        return fail_set(fail, COVEY_AGAIN, "interrupted");
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return fail_set(fail, COVEY_TIMEOUT, "nothing came in time");
    return fail_set(fail, COVEY_IO, "cannot read the socket: %s", strerror(errno));
}

int frame_receive(int socket, struct frame_reader *reader, json_t **document, struct fail *fail)
{
    int done = 0;

    if (reader->header_have == 0)
        close_descriptors(reader);
    while (done == 0) {
        union control_space space;
        struct iovec part;
        struct msghdr message = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = &space, .msg_controllen = sizeof(space)};
        ssize_t got;

        frame_reader_want(reader, &part.iov_base, &part.iov_len);
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
        if (got <= 0)
            return receive_failed(reader, got, fail);
        done = collect_descriptors(reader, &message, fail);
        if (done == 0)
            done = frame_reader_feed(reader, (size_t)got, document, fail);
    }
    return done;
}

static void attach_descriptors(struct msghdr *message, union control_space *space, const int *descriptors,
                               size_t count)
{
    struct cmsghdr *cmsg;

    if (count == 0)
        return;
    memset(space, 0, sizeof(*space));
    message->msg_control = space;
    message->msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsg = CMSG_FIRSTHDR(message);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(cmsg), descriptors, count * sizeof(int));
}

static int send_failed(struct fail *fail)
{
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return fail_set(fail, COVEY_TIMEOUT, "the other side does not read");
    if (errno == EPIPE || errno == ECONNRESET)
        return fail_set(fail, COVEY_CLOSED, "the other side closed the connection");
    return fail_set(fail, COVEY_IO, "cannot write to the socket: %s", strerror(errno));
}

static int send_all(int socket, const char *bytes, size_t count, const int *descriptors,
                    size_t descriptor_count, struct fail *fail)
{
    while (count > 0) {
        union control_space space;
        struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = count};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        ssize_t sent;

        attach_descriptors(&message, &space, descriptors, descriptor_count);
        sent = sendmsg(socket, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return send_failed(fail);
        bytes += sent;
        count -= (size_t)sent;
        descriptor_count = 0;
    }
    return 0;
}

int frame_send(int socket, const json_t *document, const int *descriptors, size_t count, struct fail *fail)
{
    const size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(12);
    size_t length = json_dumpb(document, NULL, 0, flags);
    char *frame;
    int result;

    assert(count <= FRAME_DESCRIPTORS_MAX);
    if (length == 0 || length > FRAME_BYTES_MAX)
        return fail_set(fail, COVEY_TOO_LARGE, "a frame of %zu bytes (at most %u)", length, FRAME_BYTES_MAX);
    frame = malloc(FRAME_HEADER_BYTES + length);
    if (frame == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for a frame of %zu bytes", length);
    for (size_t i = 0; i < FRAME_HEADER_BYTES; i++)
        frame[i] = (char)(length >> (8 * i) & 0xff);
    json_dumpb(document, frame + FRAME_HEADER_BYTES, length, flags);
    result = send_all(socket, frame, FRAME_HEADER_BYTES + length, descriptors, count, fail);
    free(frame);
    return result;
}
