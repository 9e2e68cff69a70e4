/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COVEY_ERROR_H
#define COVEY_ERROR_H

/* Every error that Covey returns: one list, negative codes, grouped by what the error ends.
 *
 * A function that can fail returns 0 or one of these; outputs are written only on success. The sentence for a
 * particular failure (which key, file or member, and what to do) is in covey_error_detail() or
 * covey_op_error(). Numbers are part of the ABI: add at the end of a group's range, never renumber. */

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default) /* the library hides all else */
#endif

/* X(NAME, number, text) */
#define COVEY_ERRORS(X)                                               \
    /* the request: nothing else is affected */                       \
    X(INVALID, 1, "invalid argument")                                 \
    X(NO_MEMORY, 2, "out of memory")                                  \
    X(NOT_FOUND, 3, "not found")                                      \
    X(EXISTS, 4, "exists already")                                    \
    X(TOO_LARGE, 5, "too large")                                      \
    X(BUDGET, 6, "the group's memory budget does not allow it")       \
    X(REFUSED, 7, "a member refused")                                 \
    X(CANCELLED, 8, "cancelled")                                      \
    X(TIMEOUT, 9, "timed out")                                        \
    X(AGAIN, 10, "not now, try again")                                \
    X(CHANGED, 11, "a file changed while it was read")                \
    X(IO, 12, "input or output error")                                \
    X(CORRUPT, 13, "digest mismatch")                                 \
    X(UNSUPPORTED, 14, "not supported here")                          \
    X(PERMISSION, 15, "permission denied")                            \
    X(BUSY, 16, "in use")                                             \
    X(CONFIG, 17, "invalid configuration")                            \
    X(PROTOCOL, 18, "malformed or unexpected message")                \
    /* a peer: its links are closed, the group goes on */             \
    X(PEER_LOST, 40, "a member was lost")                             \
    X(PEER_STALLED, 41, "a member makes no progress")                 \
    X(PEER_SECRET, 42, "a peer does not prove this cluster's secret") \
    X(PEER_VERSION, 43, "a peer speaks another protocol version")     \
    X(PEER_CONFIG, 44, "a peer has another configuration")            \
    X(UNREACHABLE, 45, "a peer cannot be reached")                    \
    /* the group: it accepts nothing until its state changes */       \
    X(FORMING, 60, "the first view has not formed yet")               \
    X(NO_QUORUM, 61, "no quorum")                                     \
    X(EVICTED, 62, "this node was evicted")                           \
    /* the node: close it */                                          \
    X(FABRIC, 80, "the fabric failed")                                \
    X(CLOSED, 81, "the node is closed")                               \
    X(FORKED, 82, "the node belongs to the parent process")

enum covey_error {
    COVEY_OK = 0,
#define COVEY_ERROR_ENUM(name, number, text) COVEY_##name = -(number),
    COVEY_ERRORS(COVEY_ERROR_ENUM)
#undef COVEY_ERROR_ENUM
};

/* One lower-case phrase for an error code, never NULL; "unknown error" for a number that is none. Any thread.
 */
const char *covey_strerror(int error);

/* The code's name without its prefix ("PEER_LOST"; "OK" for 0), never NULL. Any thread. */
const char *covey_error_name(int error);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
