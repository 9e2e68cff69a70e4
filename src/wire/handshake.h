/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WIRE_HANDSHAKE_H
#define WIRE_HANDSHAKE_H

/* The beginning of every connection between two nodes: each proves that it knows the cluster's secret, says
 * who it is, and hears whether it is taken.
 *
 *      dialer                                   acceptor
 *      PREFIX  -------------------------------->            clear: magic, version, id, role, nonce
 *              <--------------------------------  PREFIX    once the magic was right
 *      BODY    -------------------------------->            sealed: who I am, what I was configured with
 *              <--------------------------------  BODY
 *      VERDICT -------------------------------->            sealed: 0, or why not
 *              <--------------------------------  VERDICT
 *
 * Every frame has a fixed size (drawn in doc/protocol.md), so no length is read from someone who has proved
 * nothing, and a connection needs a fixed amount of memory. BODY and VERDICT of the two sides may cross.
 *
 * Keys.  K is BLAKE2b of the secret. For each direction a key is BLAKE2b, keyed with K, of a label, the
 * direction and both PREFIXes as sent; a frame is ChaCha20-Poly1305 under it, with the frame's number as
 * nonce. So what opens was sealed by someone who knows the secret, in this connection (both nonces are in the
 * key: no replay), for this direction (no reflection), and with these ids, roles and versions (the prefixes
 * are in the key). Nothing of a BODY is parsed before it opens. The tokens of the fabric lanes are BLAKE2b
 * keyed with K as well, with a label of their own: both sides know them without sending them, they differ in
 * every handshake, and one that is seen on the wire says nothing of the keys.
 *
 * Without a secret K is a constant that everyone knows. The configuration allows that for loopback addresses,
 * or when told `insecure`; the handshake is then the same, and proves nothing.
 *
 * What this does not do: hide from someone who learns the secret later what was said (the fabric's traffic is
 * in clear anyway), or protect a secret that can be guessed; a secret is 16 bytes or more, at random.
 *
 * This module is a state machine without a transport, a clock or a random source: bytes go in by
 * handshake_take(), bytes to send come out of handshake_give(). It never allocates. Its owner bounds the time
 * and the number of handshakes. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

#define HANDSHAKE_VERSION       1
#define HANDSHAKE_PREFIX_BYTES  48
#define HANDSHAKE_BODY_BYTES    1040 /* sealed */
#define HANDSHAKE_VERDICT_BYTES 528  /* sealed */
#define HANDSHAKE_BYTES         (HANDSHAKE_PREFIX_BYTES + HANDSHAKE_BODY_BYTES + HANDSHAKE_VERDICT_BYTES)

#define HANDSHAKE_NONCE_BYTES   32
#define HANDSHAKE_TOKEN_BYTES   32
#define HANDSHAKE_ADDRESS_MAX   128 /* bytes of a fabric address */
#define HANDSHAKE_LISTEN_BYTES  24  /* of the address that a node listens at */
#define HANDSHAKE_NAME_MAX      255
#define HANDSHAKE_PROVIDER_MAX  31
#define HANDSHAKE_PARTS         3
#define HANDSHAKE_LANES         2
#define HANDSHAKE_ANYONE        UINT32_MAX

enum handshake_role { HANDSHAKE_DIALER, HANDSHAKE_ACCEPTOR };

/* K, and whether it is of a secret. */
struct handshake_key {
    uint8_t bytes[32];
    bool secret;
};

/* What a node says of itself in its BODY. Strings are terminated. */
struct handshake_identity {
    uint16_t id;
    bool elastic;         /* not in the list of nodes */
    uint64_t incarnation; /* not 0 */
    char cluster[HANDSHAKE_NAME_MAX + 1];
    char name[HANDSHAKE_NAME_MAX + 1];
    char address[HANDSHAKE_NAME_MAX + 1];      /* as configured: host:port */
    uint8_t listen[HANDSHAKE_LISTEN_BYTES];    /* the same, resolved; opaque here */
    uint64_t parts[HANDSHAKE_PARTS];           /* digests of the configuration's parts */
    char provider[HANDSHAKE_PROVIDER_MAX + 1]; /* of the fabric */
    uint8_t fabric_address[HANDSHAKE_ADDRESS_MAX];
    size_t fabric_address_bytes;
};

/* What all handshakes of a node share; outlives them. */
struct handshake_local {
    struct handshake_identity self;
    struct handshake_key key;
    const char *part_names[HANDSHAKE_PARTS];
    /* Whether the list of nodes has room for this peer: 0, or a code and a sentence that names both sides.
     * May be NULL. */
    int (*admit)(void *context, const struct handshake_identity *peer, struct fail *fail);
    void *context;
};

enum handshake_state {
    HANDSHAKE_PREFIX, /* waits for the peer's prefix */
    HANDSHAKE_BODY,   /* waits for the peer's proof */
    HANDSHAKE_JUDGE,  /* the peer is who it says, and configured alike: the owner calls handshake_verdict() */
    HANDSHAKE_WAIT,   /* accepted the peer; waits for its verdict */
    HANDSHAKE_DONE,   /* both accepted */
    HANDSHAKE_REFUSED, /* refused the peer; waits for its verdict, if it comes */
    HANDSHAKE_FAILED   /* over; what handshake_give() still has is to be sent */
};

/* Treat as opaque. */
struct handshake {
    const struct handshake_local *local;
    enum handshake_role role;
    enum handshake_state state;
    uint32_t expected_id;
    uint16_t claimed_id;
    bool claimed;                                /* claimed_id was received */
    bool accepted;                               /* the peer's verdict was to accept */
    uint8_t prefixes[2][HANDSHAKE_PREFIX_BYTES]; /* by role */
    uint8_t keys[2][32];                         /* by the role of the sender */
    struct handshake_identity peer;
    struct fail fail;
    uint8_t in[HANDSHAKE_BODY_BYTES]; /* the frame that is being received */
    size_t in_bytes;
    uint8_t out[HANDSHAKE_BYTES];
    size_t out_bytes, out_given;
};

/* Make K of a secret, or (NULL, 0) the key that everyone knows. COVEY_UNSUPPORTED if this machine has no
 * random source for libsodium. Any thread. */
int handshake_key_init(struct handshake_key *key, const uint8_t *secret, size_t bytes);

/* Begin. nonce: fresh random bytes. expected_id: the id of the node that was dialed, or HANDSHAKE_ANYONE.
 * The dialer has bytes to send at once. End with handshake_fini(), which wipes the keys. */
void handshake_init(struct handshake *handshake, const struct handshake_local *local,
                    enum handshake_role role, uint32_t expected_id,
                    const uint8_t nonce[HANDSHAKE_NONCE_BYTES]);
void handshake_fini(struct handshake *handshake);

/* Take bytes from the peer; look at the state and for bytes to send afterwards. Returns how many were taken:
 * all, unless the handshake ended (what follows a handshake that is DONE is not its own). */
size_t handshake_take(struct handshake *handshake, const uint8_t *data, size_t bytes);

/* Move bytes that are to be sent to out; returns how many (0: nothing to send now). */
size_t handshake_give(struct handshake *handshake, uint8_t *out, size_t capacity);

/* In JUDGE: 0 accepts the peer; otherwise code and a sentence that is true on both sides, which both will
 * log. If both refuse, the acceptor's reason is the one that both tell. */
void handshake_verdict(struct handshake *handshake, int code, const char *text);

enum handshake_state handshake_state(const struct handshake *handshake);

/* The id that the peer claims, before it has proved anything; false while it is not known. */
bool handshake_claimed_id(const struct handshake *handshake, uint16_t *id);

/* Whether the peer has proved the secret; handshake_peer() is valid from then on. */
bool handshake_proven(const struct handshake *handshake);
const struct handshake_identity *handshake_peer(const struct handshake *handshake);

/* In REFUSED and FAILED: the code, and a text to follow the peer's name: "does not prove ...", "refuses this
 * node: ...".
 */
const struct fail *handshake_fail(const struct handshake *handshake);

/* What the peer has yet to do, to follow "before it ": "proved the cluster's secret". For a connection that
 * ends or is too slow. */
const char *handshake_step(const struct handshake *handshake);

/* In WAIT and DONE, JUDGE for the acceptor too: what the dialer presents to the acceptor's fabric on a lane.
 */
void handshake_token(const struct handshake *handshake, unsigned lane, uint8_t token[HANDSHAKE_TOKEN_BYTES]);

#endif
