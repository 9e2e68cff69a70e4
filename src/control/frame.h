/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONTROL_FRAME_H
#define CONTROL_FRAME_H

/* Frames of the control protocol, on a blocking UNIX stream socket.
 *
 *     0        4                4 + length
 *     +--------+----------------+
 *     | length | one JSON value |     length: 32 bits, little-endian, 1..FRAME_BYTES_MAX
 *     +--------+----------------+
 *
 * File descriptors travel with the first byte of a frame (SCM_RIGHTS). A reader never asks the socket for
 * bytes past the frame that it is in, so what arrives with them belongs to that frame and to no other.
 * A frame that breaks these rules is COVEY_PROTOCOL, after which the stream has no meaning: close it. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/fail.h"

#define FRAME_HEADER_BYTES    4
#define FRAME_BYTES_MAX       (1U << 20) /* of the JSON text */
#define FRAME_DESCRIPTORS_MAX 253        /* the kernel's SCM_MAX_FD */

/* Zero is an empty reader. Descriptors are the reader's until frame_reader_take_descriptors(). */
struct frame_reader {
    uint8_t header[FRAME_HEADER_BYTES];
    size_t header_have;
    char *body;
    size_t body_bytes, body_have;
    int descriptors[FRAME_DESCRIPTORS_MAX];
    size_t descriptor_count;
    bool descriptors_lost; /* the kernel dropped some: this process may open no more */
};

/* Where the next bytes of the frame go, and how many are missing (>= 1). */
void frame_reader_want(struct frame_reader *reader, void **at, size_t *bytes);

/* Bytes arrived where frame_reader_want() said. 1: *document is the frame's JSON, the caller's reference, and
 * the reader is at the start of the next frame; 0: more are missing; or an error. */
int frame_reader_feed(struct frame_reader *reader, size_t bytes, json_t **document, struct fail *fail);

/* Hand over the descriptors of the frame: copied to out (room for FRAME_DESCRIPTORS_MAX), which the caller
 * closes. Returns how many. */
size_t frame_reader_take_descriptors(struct frame_reader *reader, int *out);

/* Close what was not taken and free the rest. */
void frame_reader_fini(struct frame_reader *reader);

/* Read until a frame is whole; descriptors that were not taken from the frame before are closed first.
 *
 * 1: a frame; 0: the other side closed between two frames; COVEY_TIMEOUT: nothing came within the socket's
 * receive timeout; COVEY_AGAIN: a signal came (call again: nothing is lost); COVEY_PROTOCOL; COVEY_IO. */
int frame_receive(int socket, struct frame_reader *reader, json_t **document, struct fail *fail);

/* Write one frame whole, with copies of count descriptors. COVEY_TOO_LARGE past FRAME_BYTES_MAX (nothing was
 * written), COVEY_TIMEOUT, COVEY_CLOSED when nobody reads any more, COVEY_IO. */
int frame_send(int socket, const json_t *document, const int *descriptors, size_t count, struct fail *fail);

#endif
