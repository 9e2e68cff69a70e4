/* SPDX-License-Identifier: BSD-3-Clause */
/* A handshake with a peer that sends anything. The first byte says how:
 *
 *      bit 0   this side is the acceptor, not the dialer
 *      bit 1   the peer knows the secret: the rest is what it seals, a body and a verdict, filled up with
 * zeros. Else the rest is what it sends bit 2   this side refuses whom it is asked about bit 3   bytes come
 * one by one */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/handshake_forge.h"
#include "wire/handshake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ACCEPTOR   1
#define KNOWS      2
#define REFUSES    4
#define ONE_BY_ONE 8

static const uint8_t secret[] = "sixteen bytes or more";

static void need(bool good)
{
    if (!good)
        abort();
}

static struct handshake_local make_local(void)
{
    struct handshake_local local = {.self = {.id = 1,
                                             .incarnation = 1,
                                             .cluster = "demo",
                                             .name = "n1",
                                             .address = "127.0.0.1:7401",
                                             .parts = {11, 22, 33},
                                             .provider = "tcp",
                                             .fabric_address = {1},
                                             .fabric_address_bytes = 1},
                                    .part_names = {"cluster", "nodes", "groups"}};

    need(handshake_key_init(&local.key, secret, sizeof(secret)) == 0);
    return local;
}

static void check_peer(const struct handshake *handshake)
{
    const struct handshake_identity *peer = handshake_peer(handshake);

    need(peer->incarnation != 0 && strnlen(peer->name, sizeof(peer->name)) < sizeof(peer->name));
    need(strnlen(peer->address, sizeof(peer->address)) < sizeof(peer->address));
    need(strnlen(peer->cluster, sizeof(peer->cluster)) < sizeof(peer->cluster));
    need(peer->fabric_address_bytes <= sizeof(peer->fabric_address));
}

static void look(struct handshake *handshake, uint8_t how)
{
    if (handshake_proven(handshake)) {
        need((how & KNOWS) != 0);
        check_peer(handshake);
    }
    if (handshake_state(handshake) == HANDSHAKE_JUDGE)
        handshake_verdict(handshake, (how & REFUSES) != 0 ? COVEY_BUSY : COVEY_OK, "busy");
    if (handshake_state(handshake) == HANDSHAKE_FAILED)
        need(handshake_fail(handshake)->code < 0 && handshake_fail(handshake)->text[0] != '\0');
    need(handshake_step(handshake)[0] != '\0');
}

static void feed(struct handshake *handshake, uint8_t how, const uint8_t *data, size_t bytes)
{
    size_t step = (how & ONE_BY_ONE) != 0 ? 1 : bytes;

    for (size_t at = 0; at < bytes; at += step) {
        handshake_take(handshake, data + at, step);
        look(handshake, how);
    }
}

/* Seal the next of what the peer has to say, zeros when it has said all. */
static void feed_sealed(struct handshake *handshake, uint8_t how, const struct forge *forge, uint8_t number,
                        const uint8_t *data, size_t size, size_t plain_bytes)
{
    uint8_t plain[FORGE_BODY] = {0}, sealed[FORGE_BODY + FORGE_TAG];

    if (size > 0)
        memcpy(plain, data, size < plain_bytes ? size : plain_bytes);
    forge_seal(forge, number, plain, plain_bytes, sealed);
    feed(handshake, how, sealed, plain_bytes + FORGE_TAG);
}

static void feed_peer_that_knows(struct handshake *handshake, uint8_t how, const uint8_t *data, size_t size)
{
    uint8_t sent[HANDSHAKE_BYTES];
    struct forge forge;
    size_t first = size < FORGE_BODY ? size : FORGE_BODY;

    forge_init(&forge, (how & ACCEPTOR) != 0 ? HANDSHAKE_DIALER : HANDSHAKE_ACCEPTOR, 2, 0xdd);
    feed(handshake, how, forge.prefixes[forge.role], FORGE_PREFIX);
    need(handshake_give(handshake, sent, sizeof(sent)) == HANDSHAKE_PREFIX_BYTES + HANDSHAKE_BODY_BYTES);
    forge_keys(&forge, sent, secret, sizeof(secret));
    feed_sealed(handshake, how, &forge, 0, data, first, FORGE_BODY);
    feed_sealed(handshake, how, &forge, 1, data + first, size - first, FORGE_VERDICT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t nonce[HANDSHAKE_NONCE_BYTES] = {1};
    struct handshake_local local = make_local();
    uint8_t how = size > 0 ? data[0] : 0, sent[HANDSHAKE_BYTES];
    struct handshake handshake;
    size_t bytes;

    handshake_init(&handshake, &local, (how & ACCEPTOR) != 0 ? HANDSHAKE_ACCEPTOR : HANDSHAKE_DIALER,
                   HANDSHAKE_ANYONE, nonce);
    if ((how & KNOWS) != 0)
        feed_peer_that_knows(&handshake, how, data + 1, size - 1);
    else if (size > 1)
        feed(&handshake, how, data + 1, size - 1);
    bytes = handshake_give(&handshake, sent, sizeof(sent));
    need(bytes <= HANDSHAKE_BYTES && handshake_give(&handshake, sent, sizeof(sent)) == 0);
    handshake_fini(&handshake);
    return 0;
}
