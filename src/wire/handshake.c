/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/handshake.h"

#include <assert.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/name.h"
#include "base/text.h"
#include "wire/bytes.h"

#define MAGIC         "COVEY\r\n\x1a"
#define MAGIC_BYTES   8
#define HEAD_BYTES    12 /* magic, version, id: the same in every version of the protocol */
#define TAG_BYTES     crypto_aead_chacha20poly1305_ietf_ABYTES
#define BODY_PLAIN    (HANDSHAKE_BODY_BYTES - TAG_BYTES)
#define VERDICT_PLAIN (HANDSHAKE_VERDICT_BYTES - TAG_BYTES)
#define VERDICT_TEXT  (VERDICT_PLAIN - 4)
#define BODY_RESERVED 32

/* Numbers of the sealed frames of a direction: their nonces. */
enum frame { FRAME_BODY, FRAME_VERDICT };

_Static_assert(TAG_BYTES == 16, "the sizes of frames have the tag in them");
_Static_assert(crypto_aead_chacha20poly1305_ietf_KEYBYTES == 32, "keys are BLAKE2b-256");
_Static_assert(HANDSHAKE_NAME_MAX + 1 == 256 && HANDSHAKE_PROVIDER_MAX + 1 == 32, "as drawn");

static void failed(struct handshake *handshake)
{
    handshake->state = HANDSHAKE_FAILED;
}

/* --- Keys ----------------------------------------------------------------------------------------------- */

static void hash(const uint8_t key[32], const char *label, uint8_t index, const uint8_t *data, size_t bytes,
                 uint8_t out[32])
{
    crypto_generichash_state state;

    crypto_generichash_init(&state, key, key != NULL ? 32 : 0, 32);
    crypto_generichash_update(&state, (const uint8_t *)label, strlen(label) + 1);
    crypto_generichash_update(&state, &index, 1);
    crypto_generichash_update(&state, data, bytes);
    crypto_generichash_final(&state, out, 32);
    sodium_memzero(&state, sizeof(state));
}

int handshake_key_init(struct handshake_key *key, const uint8_t *secret, size_t bytes)
{
    if (sodium_init() < 0)
        return COVEY_UNSUPPORTED;
    key->secret = bytes > 0;
    hash(NULL, "covey secret", key->secret, secret, bytes, key->bytes);
    return COVEY_OK;
}

static void derive_keys(struct handshake *handshake, const struct handshake_key *key)
{
    for (uint8_t sender = 0; sender < 2; sender++)
        hash(key->bytes, "covey handshake", sender, handshake->prefixes[0], sizeof(handshake->prefixes),
             handshake->keys[sender]);
}

void handshake_token(const struct handshake *handshake, unsigned lane, uint8_t token[HANDSHAKE_TOKEN_BYTES])
{
    assert(lane < HANDSHAKE_LANES);
    assert(handshake_proven(handshake));
    hash(handshake->local->key.bytes, "covey lane", (uint8_t)lane, handshake->prefixes[0],
         sizeof(handshake->prefixes), token);
}

static void frame_nonce(enum frame frame, uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES])
{
    memset(nonce, 0, crypto_aead_chacha20poly1305_ietf_NPUBBYTES);
    nonce[0] = (uint8_t)frame;
}

/* Seal plain[0..bytes) behind what is to be sent. */
static void seal(struct handshake *handshake, enum frame frame, const uint8_t *plain, size_t bytes)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];

    assert(handshake->out_bytes + bytes + TAG_BYTES <= sizeof(handshake->out));
    frame_nonce(frame, nonce);
    crypto_aead_chacha20poly1305_ietf_encrypt(handshake->out + handshake->out_bytes, NULL, plain, bytes, NULL,
                                              0, NULL, nonce, handshake->keys[handshake->role]);
    handshake->out_bytes += bytes + TAG_BYTES;
}

/* Open the received frame into plain[0..bytes). */
static bool unseal(const struct handshake *handshake, enum frame frame, uint8_t *plain, size_t bytes)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];

    assert(handshake->in_bytes == bytes + TAG_BYTES);
    frame_nonce(frame, nonce);
    return crypto_aead_chacha20poly1305_ietf_decrypt(plain, NULL, NULL, handshake->in, handshake->in_bytes,
                                                     NULL, 0, nonce, handshake->keys[!handshake->role]) == 0;
}

/* --- PREFIX --------------------------------------------------------------------------------------------- */

static void send_prefix(struct handshake *handshake)
{
    memcpy(handshake->out + handshake->out_bytes, handshake->prefixes[handshake->role],
           HANDSHAKE_PREFIX_BYTES);
    handshake->out_bytes += HANDSHAKE_PREFIX_BYTES;
}

void handshake_init(struct handshake *handshake, const struct handshake_local *local,
                    enum handshake_role role, uint32_t expected_id,
                    const uint8_t nonce[HANDSHAKE_NONCE_BYTES])
{
    struct bytes_writer prefix = bytes_write(handshake->prefixes[role], HANDSHAKE_PREFIX_BYTES);

    assert(local->self.incarnation != 0);
    memset(handshake, 0, sizeof(*handshake));
    handshake->local = local;
    handshake->role = role;
    handshake->expected_id = expected_id;
    bytes_put(&prefix, MAGIC, MAGIC_BYTES);
    bytes_put_u16(&prefix, HANDSHAKE_VERSION);
    bytes_put_u16(&prefix, local->self.id);
    bytes_put_u8(&prefix, (uint8_t)role);
    bytes_put_uint(&prefix, 0, 3);
    bytes_put(&prefix, nonce, HANDSHAKE_NONCE_BYTES);
    assert(prefix.used == HANDSHAKE_PREFIX_BYTES);
    if (role == HANDSHAKE_DIALER)
        send_prefix(handshake);
}

void handshake_fini(struct handshake *handshake)
{
    sodium_memzero(handshake, sizeof(*handshake));
}

static void refuse_magic(struct handshake *handshake)
{
    size_t bytes = handshake->in_bytes < MAGIC_BYTES ? handshake->in_bytes : MAGIC_BYTES;
    struct quoted seen;

    fail_set(&handshake->fail, COVEY_PROTOCOL, "is not a Covey node: it begins with %s",
             text_quote((const char *)handshake->in, bytes, &seen));
    failed(handshake);
}

static void refuse_version(struct handshake *handshake, uint16_t version)
{
    fail_set(&handshake->fail, COVEY_PEER_VERSION,
             "speaks protocol version %u, this node version %u: run the same release of Covey on both",
             version, HANDSHAKE_VERSION);
    failed(handshake);
}

/* The head says whose prefix it is, and whether the rest can be understood. */
static bool take_head(struct handshake *handshake)
{
    struct bytes_reader in = bytes_read(handshake->in + MAGIC_BYTES, HEAD_BYTES - MAGIC_BYTES);
    uint16_t version = bytes_take_u16(&in);

    handshake->claimed_id = bytes_take_u16(&in);
    handshake->claimed = true;
    if (handshake->role == HANDSHAKE_ACCEPTOR)
        send_prefix(handshake);
    if (version == HANDSHAKE_VERSION)
        return true;
    refuse_version(handshake, version);
    return false;
}

static void send_body(struct handshake *handshake);

static void take_prefix(struct handshake *handshake)
{
    static const uint8_t zeros[3];
    const uint8_t *prefix = handshake->in;
    enum handshake_role peer_role = !handshake->role;

    if (prefix[HEAD_BYTES] != peer_role || memcmp(prefix + HEAD_BYTES + 1, zeros, sizeof(zeros)) != 0) {
        fail_set(&handshake->fail, COVEY_PROTOCOL, "is not a Covey node: %s",
                 prefix[HEAD_BYTES] == handshake->role ? "it sends back what it is sent"
                                                       : "its prefix is malformed");
        failed(handshake);
        return;
    }
    memcpy(handshake->prefixes[peer_role], prefix, HANDSHAKE_PREFIX_BYTES);
    derive_keys(handshake, &handshake->local->key);
    handshake->state = HANDSHAKE_BODY;
    send_body(handshake);
}

/* Called with more bytes of the prefix each time. */
static void step_prefix(struct handshake *handshake)
{
    size_t magic_bytes = handshake->in_bytes < MAGIC_BYTES ? handshake->in_bytes : MAGIC_BYTES;

    if (memcmp(handshake->in, MAGIC, magic_bytes) != 0)
        refuse_magic(handshake);
    else if (handshake->in_bytes >= HEAD_BYTES && !handshake->claimed && !take_head(handshake))
        return;
    else if (handshake->in_bytes == HANDSHAKE_PREFIX_BYTES)
        take_prefix(handshake);
}

/* --- BODY ----------------------------------------------------------------------------------------------- */

static void put_text(struct bytes_writer *out, const char *text, size_t bytes)
{
    static const char zeros[256];
    size_t used = strnlen(text, bytes - 1);

    bytes_put(out, text, used);
    bytes_put(out, zeros, bytes - used);
}

/* A text is terminated, and zeros follow it. */
static bool take_text(struct bytes_reader *in, size_t bytes, char *text)
{
    const uint8_t *data = bytes_take(in, bytes);
    size_t used;

    if (data == NULL)
        return false;
    used = strnlen((const char *)data, bytes);
    if (used == bytes || !sodium_is_zero(data + used, bytes - used))
        return false;
    memcpy(text, data, bytes);
    return true;
}

static void send_body(struct handshake *handshake)
{
    const struct handshake_identity *self = &handshake->local->self;
    uint8_t plain[BODY_PLAIN] = {0};
    struct bytes_writer out = bytes_write(plain, sizeof(plain));

    bytes_put_u16(&out, self->id);
    bytes_put_u8(&out, self->elastic);
    bytes_put_u8(&out, (uint8_t)self->fabric_address_bytes);
    bytes_put_u32(&out, 0);
    bytes_put_u64(&out, self->incarnation);
    for (size_t i = 0; i < HANDSHAKE_PARTS; i++)
        bytes_put_u64(&out, self->parts[i]);
    bytes_put(&out, self->fabric_address, HANDSHAKE_ADDRESS_MAX);
    put_text(&out, self->provider, sizeof(self->provider));
    put_text(&out, self->cluster, sizeof(self->cluster));
    put_text(&out, self->name, sizeof(self->name));
    put_text(&out, self->address, sizeof(self->address));
    bytes_put(&out, self->listen, HANDSHAKE_LISTEN_BYTES);
    assert(out.used + BODY_RESERVED == sizeof(plain));
    seal(handshake, FRAME_BODY, plain, sizeof(plain));
}

static bool take_identity(const uint8_t *plain, struct handshake_identity *peer)
{
    struct bytes_reader in = bytes_read(plain, BODY_PLAIN);
    const uint8_t *reserved;
    struct fail fail;
    uint8_t elastic;
    uint32_t zero;

    peer->id = bytes_take_u16(&in);
    elastic = bytes_take_u8(&in);
    peer->elastic = elastic == 1;
    peer->fabric_address_bytes = bytes_take_u8(&in);
    zero = bytes_take_u32(&in);
    peer->incarnation = bytes_take_u64(&in);
    for (size_t i = 0; i < HANDSHAKE_PARTS; i++)
        peer->parts[i] = bytes_take_u64(&in);
    memcpy(peer->fabric_address, bytes_take(&in, HANDSHAKE_ADDRESS_MAX), HANDSHAKE_ADDRESS_MAX);
    if (!take_text(&in, sizeof(peer->provider), peer->provider) ||
        !take_text(&in, sizeof(peer->cluster), peer->cluster) ||
        !take_text(&in, sizeof(peer->name), peer->name) ||
        !take_text(&in, sizeof(peer->address), peer->address))
        return false;
    memcpy(peer->listen, bytes_take(&in, HANDSHAKE_LISTEN_BYTES), HANDSHAKE_LISTEN_BYTES);
    reserved = bytes_take(&in, BODY_RESERVED);
    assert(bytes_done(&in));
    return elastic <= 1 && zero == 0 && peer->incarnation != 0 &&
           name_check_file(peer->name, strlen(peer->name), &fail) == COVEY_OK &&
           name_check_printable(peer->address, strlen(peer->address), &fail) == COVEY_OK &&
           peer->fabric_address_bytes > 0 && peer->fabric_address_bytes <= HANDSHAKE_ADDRESS_MAX &&
           sodium_is_zero(reserved, BODY_RESERVED);
}

/* Who is the dialer and who the acceptor: sentences name both in this order, so that both sides log the same.
 */
static void both_sides(const struct handshake *handshake, const struct handshake_identity **dialer,
                       const struct handshake_identity **acceptor)
{
    const struct handshake_identity *self = &handshake->local->self, *peer = &handshake->peer;

    *dialer = handshake->role == HANDSHAKE_DIALER ? self : peer;
    *acceptor = handshake->role == HANDSHAKE_DIALER ? peer : self;
}

static int check_ids(const struct handshake *handshake, struct fail *fail)
{
    const struct handshake_identity *dialer, *acceptor;

    both_sides(handshake, &dialer, &acceptor);
    if (dialer->id == acceptor->id)
        return fail_set(
            fail, COVEY_EXISTS,
            "two processes run as node %u: %s at %s and %s at %s; every node needs an id of its own",
            dialer->id, dialer->name, dialer->address, acceptor->name, acceptor->address);
    if (handshake->expected_id != HANDSHAKE_ANYONE && handshake->expected_id != handshake->peer.id)
        return fail_set(
            fail, COVEY_PEER_CONFIG,
            "%s looked for node %u and found %s, which is node %u: one of them has another's address",
            dialer->name, handshake->expected_id, acceptor->name, acceptor->id);
    return COVEY_OK;
}

static int check_cluster(const struct handshake *handshake, struct fail *fail)
{
    const struct handshake_identity *dialer, *acceptor;

    both_sides(handshake, &dialer, &acceptor);
    if (strcmp(dialer->cluster, acceptor->cluster) == 0)
        return COVEY_OK;
    return fail_set(fail, COVEY_PEER_CONFIG, "%s is of cluster %s, %s of cluster %s", dialer->name,
                    QUOTE(dialer->cluster), acceptor->name, QUOTE(acceptor->cluster));
}

static int check_parts(const struct handshake *handshake, struct fail *fail)
{
    const struct handshake_identity *dialer, *acceptor;
    char list[128] = "";
    size_t used = 0;

    both_sides(handshake, &dialer, &acceptor);
    for (size_t i = 0; i < HANDSHAKE_PARTS; i++) {
        if (dialer->parts[i] != acceptor->parts[i] && used < sizeof(list))
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", used > 0 ? ", " : "",
                                     handshake->local->part_names[i]);
    }
    if (used == 0)
        return COVEY_OK;
    return fail_set(fail, COVEY_PEER_CONFIG,
                    "the configurations of %s and %s differ in: %s; every node needs the same file",
                    dialer->name, acceptor->name, list);
}

static int check_provider(const struct handshake *handshake, struct fail *fail)
{
    const struct handshake_identity *dialer, *acceptor;

    both_sides(handshake, &dialer, &acceptor);
    if (strcmp(dialer->provider, acceptor->provider) == 0)
        return COVEY_OK;
    return fail_set(fail, COVEY_PEER_CONFIG,
                    "the fabric of %s is %s, that of %s is %s: set fabric.provider to one that both have",
                    dialer->name, QUOTE(dialer->provider), acceptor->name, QUOTE(acceptor->provider));
}

static int check_peer(const struct handshake *handshake, struct fail *fail)
{
    const struct handshake_local *local = handshake->local;
    int result = check_cluster(handshake, fail);

    if (result == COVEY_OK)
        result = check_ids(handshake, fail);
    if (result == COVEY_OK && local->admit != NULL)
        result = local->admit(local->context, &handshake->peer, fail);
    if (result == COVEY_OK)
        result = check_parts(handshake, fail);
    if (result == COVEY_OK)
        result = check_provider(handshake, fail);
    return result;
}

/* Another secret is the most usual mistake of an operator: say which kind it is. That a body opens with the
 * key that everyone knows is looked at for this sentence only. */
static void refuse_proof(struct handshake *handshake)
{
    struct handshake_key known;
    uint8_t plain[BODY_PLAIN];
    const char *why = "compare secret_file on both nodes";

    if (!handshake->local->key.secret) {
        why = "it has one and this node has none; set secret_file here";
    } else if (handshake_key_init(&known, NULL, 0) == COVEY_OK) {
        derive_keys(handshake, &known);
        if (unseal(handshake, FRAME_BODY, plain, sizeof(plain)))
            why = "it has none; set secret_file there";
    }
    fail_set(&handshake->fail, COVEY_PEER_SECRET, "does not prove this cluster's secret: %s", why);
    failed(handshake);
}

static void step_body(struct handshake *handshake)
{
    struct handshake_identity peer;
    uint8_t plain[BODY_PLAIN];
    struct fail fail;

    if (!unseal(handshake, FRAME_BODY, plain, sizeof(plain))) {
        refuse_proof(handshake);
        return;
    }
    if (!take_identity(plain, &peer) || peer.id != handshake->claimed_id) {
        fail_set(&handshake->fail, COVEY_PROTOCOL, "knows the secret but says nothing sensible of itself");
        failed(handshake);
        return;
    }
    handshake->peer = peer;
    handshake->state = HANDSHAKE_JUDGE;
    if (check_peer(handshake, &fail) != COVEY_OK)
        handshake_verdict(handshake, fail.code, fail.text);
}

/* --- VERDICT -------------------------------------------------------------------------------------------- */

void handshake_verdict(struct handshake *handshake, int code, const char *text)
{
    uint8_t plain[VERDICT_PLAIN];
    struct bytes_writer out = bytes_write(plain, sizeof(plain));

    assert(handshake->state == HANDSHAKE_JUDGE);
    assert(code == 0 || (code < 0 && text[0] != '\0'));
    bytes_put_u32(&out, (uint32_t)code);
    memset(plain + out.used, 0, VERDICT_TEXT);
    if (code != 0)
        bytes_put(&out, text, text_whole(text, strnlen(text, VERDICT_TEXT - 1)));
    seal(handshake, FRAME_VERDICT, plain, sizeof(plain));
    if (code != 0) {
        fail_set(&handshake->fail, code, "is refused: %s", text);
        handshake->state = handshake->accepted ? HANDSHAKE_FAILED : HANDSHAKE_REFUSED;
    } else {
        handshake->state = handshake->accepted ? HANDSHAKE_DONE : HANDSHAKE_WAIT;
    }
}

/* The peer's verdict may come before ours. */
static void step_verdict(struct handshake *handshake)
{
    uint8_t plain[VERDICT_PLAIN] = {0};
    struct bytes_reader in = bytes_read(plain, sizeof(plain));
    char text[VERDICT_TEXT];
    struct fail fail;
    int32_t code;

    if (!unseal(handshake, FRAME_VERDICT, plain, sizeof(plain))) {
        fail_set(&handshake->fail, COVEY_PROTOCOL,
                 "proved the secret, but its answer was damaged on the way");
        failed(handshake);
        return;
    }
    code = (int32_t)bytes_take_u32(&in);
    if (!take_text(&in, sizeof(text), text) || code > 0 || (code == 0) != (text[0] == '\0') ||
        name_check_printable(text, strlen(text), &fail) != COVEY_OK) {
        fail_set(&handshake->fail, COVEY_PROTOCOL, "knows the secret but gives no sensible answer");
        failed(handshake);
    } else if (code < 0) {
        if (handshake->state != HANDSHAKE_REFUSED || handshake->role == HANDSHAKE_DIALER)
            fail_set(&handshake->fail, code, "refuses this node: %s", text);
        failed(handshake);
    } else if (handshake->state == HANDSHAKE_REFUSED) {
        failed(handshake);
    } else {
        handshake->accepted = true;
        if (handshake->state == HANDSHAKE_WAIT)
            handshake->state = HANDSHAKE_DONE;
    }
}

/* --- The whole ------------------------------------------------------------------------------------------ */

static size_t frame_bytes(enum handshake_state state)
{
    switch (state) {
    case HANDSHAKE_PREFIX:
        return HANDSHAKE_PREFIX_BYTES;
    case HANDSHAKE_BODY:
        return HANDSHAKE_BODY_BYTES;
    default:
        return HANDSHAKE_VERDICT_BYTES;
    }
}

static void step_frame(struct handshake *handshake)
{
    if (handshake->state == HANDSHAKE_BODY)
        step_body(handshake);
    else
        step_verdict(handshake);
    handshake->in_bytes = 0;
}

/* Take the bytes of one frame at most; returns how many. */
static size_t take_frame(struct handshake *handshake, const uint8_t *data, size_t bytes)
{
    size_t need = frame_bytes(handshake->state) - handshake->in_bytes;

    if (bytes > need)
        bytes = need;
    memcpy(handshake->in + handshake->in_bytes, data, bytes);
    handshake->in_bytes += bytes;
    if (handshake->state == HANDSHAKE_PREFIX) {
        step_prefix(handshake);
        if (handshake->state == HANDSHAKE_BODY)
            handshake->in_bytes = 0;
    } else if (bytes == need) {
        step_frame(handshake);
    }
    return bytes;
}

static bool is_over(const struct handshake *handshake)
{
    return handshake->state == HANDSHAKE_DONE || handshake->state == HANDSHAKE_FAILED;
}

size_t handshake_take(struct handshake *handshake, const uint8_t *data, size_t bytes)
{
    size_t taken = 0;

    while (taken < bytes && !is_over(handshake)) {
        if (handshake->state == HANDSHAKE_JUDGE && handshake->accepted) {
            fail_set(&handshake->fail, COVEY_PROTOCOL, "goes on before this node has accepted it");
            failed(handshake);
            break;
        }
        taken += take_frame(handshake, data + taken, bytes - taken);
    }
    return taken;
}

size_t handshake_give(struct handshake *handshake, uint8_t *out, size_t capacity)
{
    size_t bytes = handshake->out_bytes - handshake->out_given;

    if (bytes > capacity)
        bytes = capacity;
    memcpy(out, handshake->out + handshake->out_given, bytes);
    handshake->out_given += bytes;
    return bytes;
}

enum handshake_state handshake_state(const struct handshake *handshake)
{
    return handshake->state;
}

bool handshake_claimed_id(const struct handshake *handshake, uint16_t *id)
{
    if (handshake->claimed)
        *id = handshake->claimed_id;
    return handshake->claimed;
}

bool handshake_proven(const struct handshake *handshake)
{
    return handshake->peer.incarnation != 0;
}

const struct handshake_identity *handshake_peer(const struct handshake *handshake)
{
    assert(handshake_proven(handshake));
    return &handshake->peer;
}

const struct fail *handshake_fail(const struct handshake *handshake)
{
    assert(handshake->state == HANDSHAKE_FAILED || handshake->state == HANDSHAKE_REFUSED);
    return &handshake->fail;
}

const char *handshake_step(const struct handshake *handshake)
{
    switch (handshake->state) {
    case HANDSHAKE_PREFIX:
        return "said what it is";
    case HANDSHAKE_BODY:
        return "proved the cluster's secret";
    case HANDSHAKE_JUDGE:
    case HANDSHAKE_WAIT:
        return "agreed to connect";
    default:
        return "went on";
    }
}
