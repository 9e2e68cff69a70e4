/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONTROL_REQUEST_H
#define CONTROL_REQUEST_H

/* What a client can ask a daemon, and how that looks in a frame:
 *
 *     {"schema": 1, "command": "objects", "group": "models"}
 *
 * Decoding is strict: a command, a key or a value that is not foreseen is an error with a sentence.
 *
 *   command  keys                    the reply's items     what is done at its end
 *   view     [after, wait]           members               number, epoch, state, ..., "change"
 *   groups                           groups
 *   objects  group                   versions
 *   files    files + descriptors                           files are kept for this connection's next put
 *   put      group, name             (progress)            what the put did
 *   open     group, name, [version]  buffers               this connection pins the version
 *   store    first, count + descr.   (progress)            buffers first.. are in the descriptors' files
 *   remove   group, name                                   every version is removed
 *   stats                            counters
 *   route    [name]                  routes                to the node (a name or an id), or to all
 *   events   [after, wait]           events                "last", and how many were "lost"
 *   bench    [group], bytes, count   puts                  the group's and the bench's description
 *   reload                                                 the configuration was read again
 *   leave                                                  the node has left the cluster
 *   evict    name                                          the member (a name or an id) is in the view no
 * more force                                                  a view without a quorum is installed table rows
 * number and epoch of the node's view
 *
 * With "wait", view answers when its change number exceeds "after", events when an event's number does. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/fail.h"

#define CONTROL_SCHEMA          1
#define REQUEST_BENCH_COUNT_MAX 1000000

enum request_kind {
    REQUEST_VIEW,
    REQUEST_GROUPS,
    REQUEST_OBJECTS,
    REQUEST_FILES,
    REQUEST_PUT,
    REQUEST_OPEN,
    REQUEST_STORE,
    REQUEST_REMOVE,
    REQUEST_STATS,
    REQUEST_EVENTS,
    REQUEST_BENCH,
    REQUEST_RELOAD,
    REQUEST_LEAVE,
    REQUEST_EVICT,
    REQUEST_FORCE,
    REQUEST_TABLE,
    REQUEST_ROUTE
};
#define REQUEST_KINDS (REQUEST_ROUTE + 1)

/* Zero or NULL is a key that was not given. */
struct request {
    enum request_kind kind;
    const char *group, *name; /* 1..COVEY_NAME_MAX bytes */
    uint64_t version;
    uint64_t after;
    bool wait;
    uint64_t first, count;
    uint64_t bytes;
    const json_t *files; /* array of names, 1..FRAME_DESCRIPTORS_MAX */
};

/* The request's command word. */
const char *request_command(enum request_kind kind);

/* Check a document that came with descriptor_count descriptors. The request's strings live as long as the
 * document. COVEY_PROTOCOL, COVEY_UNSUPPORTED for another schema. */
int request_decode(const json_t *document, size_t descriptor_count, struct request *request,
                   struct fail *fail);

/* The document of a request: a new reference, NULL without memory. */
json_t *request_encode(const struct request *request);

#endif
