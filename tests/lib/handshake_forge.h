/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_LIB_HANDSHAKE_FORGE_H
#define TESTS_LIB_HANDSHAKE_FORGE_H

/* The peer's side of a handshake, written a second time from doc/protocol.md and with none of its checks: it
 * knows the secret, and seals whatever it is given. */

#include <stddef.h>
#include <stdint.h>

#define FORGE_PREFIX  48
#define FORGE_BODY    1024 /* in clear */
#define FORGE_VERDICT 512
#define FORGE_TAG     16

struct forge {
    uint8_t prefixes[2][FORGE_PREFIX]; /* by role: dialer, acceptor */
    uint8_t keys[2][32];               /* by the role of the sender */
    uint8_t tokens[2][32];             /* by lane */
    unsigned role;                     /* of the forger */
};

/* Fill in the forger's own prefix. */
void forge_init(struct forge *forge, unsigned role, uint16_t id, uint8_t nonce_byte);
/* When the other's prefix is known: secret NULL for none. */
void forge_keys(struct forge *forge, const uint8_t other[FORGE_PREFIX], const uint8_t *secret, size_t bytes);
/* Seal the frame of that number into out, of bytes + FORGE_TAG. */
void forge_seal(const struct forge *forge, uint8_t number, const uint8_t *plain, size_t bytes, uint8_t *out);

/* A body that is well formed: node n<id> of cluster "demo" at 127.0.0.1. */
void forge_body(uint8_t plain[FORGE_BODY], uint16_t id);

#endif
