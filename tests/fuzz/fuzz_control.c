/* SPDX-License-Identifier: BSD-3-Clause */
/* The control protocol's decoders: a stream of frames as a hostile process would send it to a daemon. The
 * first byte says how many descriptors are claimed to come with each frame. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "control/frame.h"
#include "control/reply.h"
#include "control/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool good)
{
    if (!good)
        abort();
}

/* What was understood can be said again, and means the same. */
static void check_request(const struct request *request, size_t descriptor_count)
{
    json_t *document = request_encode(request);
    struct request again;
    struct fail fail = {0};

    need(document != NULL && request_decode(document, descriptor_count, &again, &fail) == 0);
    need(again.kind == request->kind && again.version == request->version && again.after == request->after);
    need(again.first == request->first && again.count == request->count && again.bytes == request->bytes);
    need(again.wait == request->wait && json_equal(again.files, request->files) == (request->files != NULL));
    json_decref(document);
}

static void check_document(const json_t *document, size_t descriptor_count)
{
    struct fail fail = {0};
    struct request request;
    struct reply reply;

    if (request_decode(document, descriptor_count, &request, &fail) == 0)
        check_request(&request, descriptor_count);
    else
        need(fail.code < 0 && fail.text[0] != '\0');
    if (reply_decode(document, &reply, &fail) == 0)
        need(reply.kind == REPLY_ITEMS ? json_is_array(reply.body) : json_is_object(reply.body));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct frame_reader reader = {0};
    size_t descriptor_count = size > 0 ? data[0] : 0, at = 1;
    int result = 0;

    while (result >= 0 && at < size) {
        struct fail fail = {0};
        json_t *document;
        size_t wanted, bytes;
        void *to;

        frame_reader_want(&reader, &to, &wanted);
        bytes = size - at < wanted ? size - at : wanted;
        memcpy(to, data + at, bytes);
        at += bytes;
        result = frame_reader_feed(&reader, bytes, &document, &fail);
        if (result == 1) {
            check_document(document, descriptor_count);
            json_decref(document);
        }
    }
    frame_reader_fini(&reader);
    return 0;
}
