/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/lib/handshake_forge.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

static void put(uint8_t *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

void forge_init(struct forge *forge, unsigned role, uint16_t id, uint8_t nonce_byte)
{
    uint8_t *prefix = forge->prefixes[role];

    forge->role = role;
    memcpy(prefix, "COVEY\r\n\x1a", 8);
    put(prefix + 8, 1, 2);
    put(prefix + 10, id, 2);
    put(prefix + 12, role, 4);
    memset(prefix + 16, nonce_byte, 32);
}

static void hash(const uint8_t *key, const char *label, uint8_t number, const uint8_t *data, size_t bytes,
                 uint8_t out[32])
{
    uint8_t text[2048];
    size_t used = strlen(label) + 1;

    memcpy(text, label, used);
    text[used++] = number;
    if (bytes > 0)
        memcpy(text + used, data, bytes);
    crypto_generichash(out, 32, text, used + bytes, key, key != NULL ? 32 : 0);
}

void forge_keys(struct forge *forge, const uint8_t other[FORGE_PREFIX], const uint8_t *secret, size_t bytes)
{
    uint8_t k[32];

    memcpy(forge->prefixes[!forge->role], other, FORGE_PREFIX);
    hash(NULL, "covey secret", secret != NULL, secret, bytes, k);
    for (uint8_t i = 0; i < 2; i++) {
        hash(k, "covey handshake", i, forge->prefixes[0], sizeof(forge->prefixes), forge->keys[i]);
        hash(k, "covey lane", i, forge->prefixes[0], sizeof(forge->prefixes), forge->tokens[i]);
    }
}

void forge_seal(const struct forge *forge, uint8_t number, const uint8_t *plain, size_t bytes, uint8_t *out)
{
    uint8_t nonce[12] = {number};

    crypto_aead_chacha20poly1305_ietf_encrypt(out, NULL, plain, bytes, NULL, 0, NULL, nonce,
                                              forge->keys[forge->role]);
}

void forge_body(uint8_t plain[FORGE_BODY], uint16_t id)
{
    memset(plain, 0, FORGE_BODY);
    put(plain, id, 2);
    plain[3] = 3;           /* bytes of the fabric address */
    put(plain + 8, 7, 8);   /* incarnation */
    put(plain + 16, 11, 8); /* digests of cluster, nodes, groups */
    put(plain + 24, 22, 8);
    put(plain + 32, 33, 8);
    memcpy(plain + 40, "\1\2\3", 3);
    memcpy(plain + 168, "tcp", 3);
    memcpy(plain + 200, "demo", 4);
    snprintf((char *)plain + 456, 256, "n%u", id);
    snprintf((char *)plain + 712, 256, "127.0.0.1:%u", 7400 + id);
    memcpy(plain + 968, "\4\0\x1c\xe8\x7f\0\0\1", 8); /* 127.0.0.1:7400 */
}
