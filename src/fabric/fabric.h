/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FABRIC_FABRIC_H
#define FABRIC_FABRIC_H

/* How bytes reach another node: reliable connections with one-sided writes, the same for every backend.
 *
 * The contract is that of RC queue pairs of verbs (InfiniBand Architecture 9.5, 9.7):
 *
 * - A link joins this node and one peer on one lane. Writes and messages of one link become visible at the
 * peer in posting order. A write may become visible piece by piece and must be looked at only after its
 * immediate, or that of a later write on the link, has arrived: data and the counter that guards it are two
 * writes, data first.
 * - On the control lane each aligned word of 8 bytes of a write of up to FABRIC_WORDS_MAX bytes becomes
 * visible whole: who looks at it early sees the old one or the new one.
 * - Arrival is known by completion (FABRIC_ARRIVED, FABRIC_MESSAGE), never by polling memory.
 * - FABRIC_LINK_DOWN is the last event of a link: when it is delivered no more DMA of that peer's touches
 * memory here through this link, and writes posted on it that have not completed never will. The link is then
 * freed by fabric_link_free().
 * - A peer's fault is an event, never an abort. Every post can fail; every completion's status is read.
 *
 * One thread uses a fabric; none of these functions blocks. A fabric knows nothing of sessions, groups and
 * views. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "base/log.h"
#include "memory/memory.h"

struct fabric;
struct fabric_link;
struct fabric_region;

enum fabric_lane {
    FABRIC_CONTROL, /* messages and table pushes: small, never behind data */
    FABRIC_DATA     /* blocks and fences */
};
#define FABRIC_LANES          2

#define FABRIC_MESSAGE_MAX    16384 /* bytes of a two-sided message */
#define FABRIC_WORDS_MAX      16368 /* bytes of a control lane's write of whole words */
#define FABRIC_ADDRESS_MAX    128   /* bytes of a fabric address */
#define FABRIC_PIECES_MAX     4     /* local pieces that one write gathers */
#define FABRIC_TOKEN_BYTES    32    /* proof that a connection belongs to a handshake */
#define FABRIC_IMMEDIATE_NONE UINT64_MAX

struct fabric_options {
    const char *provider;           /* "tcp", "verbs", or "ofi:" and libfabric's name of one */
    const struct sockaddr *address; /* listen here (its port is not used) and connect from here */
    size_t address_bytes;
    const struct log *log;
    uint64_t connect_timeout_ns; /* a connection that is not made by then is LINK_DOWN; 0: 10 s */
    uint64_t write_bytes_limit;  /* tests: as if the device's largest write were this; 0: the device's own */
};

/* What the backend can do; constant after open. */
struct fabric_limits {
    uint64_t write_bytes; /* largest single write; fabric_write refuses more */
    uint32_t outstanding; /* writes and messages posted and not completed, per link; more gives COVEY_AGAIN */
};

enum fabric_event_type {
    FABRIC_LINK_UP,
    FABRIC_LINK_DOWN, /* error and text say why (0 after fabric_link_close()); last event of the link */
    FABRIC_ARRIVED,   /* a write with `immediate` is visible, and all before it on the link */
    FABRIC_MESSAGE,   /* data is valid until the next fabric_poll */
    FABRIC_WRITE_DONE /* the write posted with `cookie`, and all before it on the link, are done: the local
                         memory is free, and the peer's side has the bytes (an acknowledged RC write), not
                         only a buffer on the way (on the control lane a buffer will do) */
};

struct fabric_event {
    enum fabric_event_type type;
    struct fabric_link *link;
    void *context; /* of the link */
    uint32_t immediate;
    uint64_t cookie;
    const void *data;
    size_t bytes;
    int error;
    const char *text; /* static or valid until the next fabric_poll */
};

/* One contiguous range at the peer, gathered from local pieces. */
struct fabric_piece {
    const void *base;
    size_t bytes;
    const struct fabric_region
        *region; /* that covers it; NULL where the backend needs none (fabric_needs_local) */
};

struct fabric_write {
    const struct fabric_piece *pieces; /* 0..FABRIC_PIECES_MAX; none: zero bytes, for an immediate alone */
    size_t count;
    uint64_t remote_address, remote_key; /* as fabric_region_remote() gave them at the peer, plus an offset */
    uint64_t immediate;                  /* 32 bits, or FABRIC_IMMEDIATE_NONE */
    bool signalled;                      /* whether FABRIC_WRITE_DONE with cookie shall follow */
    uint64_t cookie;
};

/* Open the backend and listen. COVEY_UNSUPPORTED when the provider is not there, COVEY_FABRIC otherwise; fail
 * has the sentence. */
int fabric_open(const struct fabric_options *options, struct fabric **fabric, struct fail *fail);

/* All links must be down and freed, all regions deregistered; asserts so. NULL is allowed. */
void fabric_close(struct fabric *fabric);

const struct fabric_limits *fabric_limits(const struct fabric *fabric);
const char *fabric_provider(const struct fabric *fabric); /* "tcp", ... */

/* Where peers connect to: at most FABRIC_ADDRESS_MAX bytes, opaque, valid at any node. Returns how many. */
size_t fabric_address(const struct fabric *fabric, uint8_t address[FABRIC_ADDRESS_MAX]);

/* Make a link to the fabric at address, presenting token. FABRIC_LINK_UP or FABRIC_LINK_DOWN follows (DOWN
 * after connect_timeout_ns at the latest). context is returned in every event of the link. */
int fabric_link_connect(struct fabric *fabric, enum fabric_lane lane, const uint8_t *address,
                        size_t address_bytes, const uint8_t token[FABRIC_TOKEN_BYTES], void *context,
                        struct fabric_link **link, struct fail *fail);

/* The other end: a link that becomes UP when a connection presents the token (once). Connections with an
 * unknown token are refused and counted. */
int fabric_link_expect(struct fabric *fabric, enum fabric_lane lane, const uint8_t token[FABRIC_TOKEN_BYTES],
                       void *context, struct fabric_link **link, struct fail *fail);

/* Begin the end: posts fail from now on, and the one event that is still to come is FABRIC_LINK_DOWN, in a
 * later fabric_poll. Messages and writes that were completed have left; what was posted before is received by
 * a peer that goes on polling, for which there are 200 ms: LINK_DOWN comes then at the latest. Idempotent. */
void fabric_link_close(struct fabric_link *link);

/* After FABRIC_LINK_DOWN was delivered. */
void fabric_link_free(struct fabric_link *link);

/* Post a write. COVEY_AGAIN when limits.outstanding are posted, or the peer has no receive left for an
 * immediate: a WRITE_DONE of the link (or, for unsignalled
 * writes, a later poll) makes room. COVEY_INVALID for more than limits.write_bytes or pieces. COVEY_PEER_LOST
 * on a link that is not up. The local memory must stay until WRITE_DONE or LINK_DOWN. */
int fabric_write(struct fabric_link *link, const struct fabric_write *write);

/* Send a message of 1..FABRIC_MESSAGE_MAX bytes (copied). COVEY_AGAIN, COVEY_PEER_LOST as above. */
int fabric_send(struct fabric_link *link, const void *data, size_t bytes);

/* Whether local pieces need a region (FI_MR_LOCAL). */
bool fabric_needs_local(const struct fabric *fabric);

/* Let peers write (remote) or let writes read from (local) memory of a kind. The region covers [base, base +
 * bytes), bytes >= 1. The caller keeps the memory until fabric_deregister(). COVEY_NO_MEMORY names the limit
 * (memlock) and the need. */
int fabric_register(struct fabric *fabric, void *base, size_t bytes, enum covey_memory memory, int device,
                    bool remote, struct fabric_region **region, struct fail *fail);
void fabric_deregister(struct fabric_region *region);

/* Address and key that a peer uses for base + offset: remote_address = *address + offset. */
void fabric_region_remote(const struct fabric_region *region, uint64_t *address, uint64_t *key);

/* Make progress and take at most max events. Never sleeps. Returns how many. */
size_t fabric_poll(struct fabric *fabric, struct fabric_event events[], size_t max);

/* A descriptor that becomes readable when fabric_poll has something, once fabric_arm() returned true; false:
 * poll again first, and try again what was answered COVEY_AGAIN: there may be room now, which no event
 * tells. */
int fabric_fd(const struct fabric *fabric);
bool fabric_arm(struct fabric *fabric);

/* Counters for `covey stats`. */
struct fabric_counters {
    uint64_t written_bytes, writes, messages, arrivals, refused_connections, errors;
};
void fabric_counters(const struct fabric *fabric, struct fabric_counters *counters);

#endif
