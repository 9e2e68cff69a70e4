/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ends of a handshake in memory: who agrees, who is kept out, and what both sides say about it. */

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "tests/lib/handshake_forge.h"
#include "tests/lib/suite.h"
#include "wire/handshake.h"

#define UNDAMAGED SIZE_MAX

static const uint8_t secret[] = "sixteen bytes or more";

/* What a side has sent, as it was given. */
struct side {
    struct handshake_local local;
    struct handshake handshake;
    uint8_t sent[HANDSHAKE_BYTES];
    size_t sent_bytes;
};

struct pair {
    struct side dialer, acceptor;
    /* Turn a bit of the n-th byte on its way from a side, or UNDAMAGED. */
    size_t damage_of_dialer, damage_of_acceptor;
};

static void set_identity(struct handshake_identity *self, uint16_t id)
{
    *self = (struct handshake_identity){.id = id,
                                        .incarnation = UINT64_C(0x8000000000000000) + id,
                                        .cluster = "demo",
                                        .parts = {11, 22, 33},
                                        .listen = {4, 0, 0x1c, 0xe8, 127, 0, 0, 1},
                                        .provider = "tcp",
                                        .fabric_address = {1, 2, 3},
                                        .fabric_address_bytes = 3};
    snprintf(self->name, sizeof(self->name), "n%u", id);
    snprintf(self->address, sizeof(self->address), "127.0.0.1:%u", 7400 + id);
}

static void side_init(struct side *side, uint16_t id)
{
    memset(side, 0, sizeof(*side));
    set_identity(&side->local.self, id);
    ck_assert_int_eq(handshake_key_init(&side->local.key, secret, sizeof(secret)), COVEY_OK);
    side->local.part_names[0] = "cluster";
    side->local.part_names[1] = "nodes";
    side->local.part_names[2] = "groups";
}

/* Node 2 dials node 1. */
static void pair_init(struct pair *pair)
{
    side_init(&pair->dialer, 2);
    side_init(&pair->acceptor, 1);
    pair->damage_of_dialer = pair->damage_of_acceptor = UNDAMAGED;
}

static void side_begin(struct side *side, enum handshake_role role, uint32_t expected_id, uint8_t nonce_byte)
{
    uint8_t nonce[HANDSHAKE_NONCE_BYTES];

    memset(nonce, nonce_byte, sizeof(nonce));
    handshake_init(&side->handshake, &side->local, role, expected_id, nonce);
    side->sent_bytes = 0;
}

static void pair_begin(struct pair *pair)
{
    side_begin(&pair->dialer, HANDSHAKE_DIALER, 1, 0xdd);
    side_begin(&pair->acceptor, HANDSHAKE_ACCEPTOR, HANDSHAKE_ANYONE, 0xaa);
}

/* Collect what the side has to send behind what it has sent before; returns how much is new. */
static size_t collect(struct side *side)
{
    size_t bytes = handshake_give(&side->handshake, side->sent + side->sent_bytes,
                                  sizeof(side->sent) - side->sent_bytes);

    side->sent_bytes += bytes;
    return bytes;
}

static size_t carry(struct side *from, struct side *to, size_t damage)
{
    size_t before = from->sent_bytes, bytes = collect(from);

    if (damage >= before && damage < from->sent_bytes)
        from->sent[damage] ^= 0x10;
    handshake_take(&to->handshake, from->sent + before, bytes);
    return bytes;
}

static void pair_pump(struct pair *pair)
{
    size_t moved;

    do {
        moved = carry(&pair->dialer, &pair->acceptor, pair->damage_of_dialer);
        moved += carry(&pair->acceptor, &pair->dialer, pair->damage_of_acceptor);
    } while (moved > 0);
}

static void accept_if_asked(struct side *side)
{
    if (handshake_state(&side->handshake) == HANDSHAKE_JUDGE)
        handshake_verdict(&side->handshake, COVEY_OK, "");
}

static void pair_settle(struct pair *pair)
{
    pair_pump(pair);
    accept_if_asked(&pair->dialer);
    accept_if_asked(&pair->acceptor);
    pair_pump(pair);
}

static void pair_run(struct pair *pair)
{
    pair_begin(pair);
    pair_settle(pair);
}

static void pair_fini(struct pair *pair)
{
    handshake_fini(&pair->dialer.handshake);
    handshake_fini(&pair->acceptor.handshake);
    ck_assert(sodium_is_zero((const uint8_t *)&pair->dialer.handshake, sizeof(struct handshake)));
}

static void expect_state(const struct side *side, enum handshake_state state)
{
    ck_assert_int_eq(handshake_state(&side->handshake), state);
}

static void expect_failure(const struct side *side, int code, const char *text)
{
    expect_state(side, HANDSHAKE_FAILED);
    ck_assert_str_eq(handshake_fail(&side->handshake)->text, text);
    ck_assert_int_eq(handshake_fail(&side->handshake)->code, code);
}

/* One side refuses and the other hears it, or both refuse: both tell the same reason. */
static void expect_refusal(const struct pair *pair, int code, const char *reason)
{
    const struct side *sides[] = {&pair->dialer, &pair->acceptor};
    char ours[FAIL_TEXT_MAX], theirs[FAIL_TEXT_MAX];

    snprintf(ours, sizeof(ours), "is refused: %s", reason);
    snprintf(theirs, sizeof(theirs), "refuses this node: %s", reason);
    for (size_t i = 0; i < 2; i++) {
        const struct fail *fail = handshake_fail(&sides[i]->handshake);
        ck_assert_int_eq(fail->code, code);
        ck_assert_msg(strcmp(fail->text, ours) == 0 || strcmp(fail->text, theirs) == 0, "%s", fail->text);
    }
}

static void expect_identity(const struct handshake_identity *got, const struct handshake_identity *wanted)
{
    ck_assert_uint_eq(got->id, wanted->id);
    ck_assert_int_eq(got->elastic, wanted->elastic);
    ck_assert_uint_eq(got->incarnation, wanted->incarnation);
    ck_assert_str_eq(got->cluster, wanted->cluster);
    ck_assert_str_eq(got->name, wanted->name);
    ck_assert_str_eq(got->address, wanted->address);
    ck_assert_mem_eq(got->listen, wanted->listen, sizeof(got->listen));
    ck_assert_mem_eq(got->parts, wanted->parts, sizeof(got->parts));
    ck_assert_str_eq(got->provider, wanted->provider);
    ck_assert_uint_eq(got->fabric_address_bytes, wanted->fabric_address_bytes);
    ck_assert_mem_eq(got->fabric_address, wanted->fabric_address, wanted->fabric_address_bytes);
}

/* --- Who agrees ----------------------------------------------------------------------------------------- */

START_TEST(test_both_agree_and_know_each_other)
{
    struct pair pair;
    uint8_t token[2][2][HANDSHAKE_TOKEN_BYTES];

    pair_init(&pair);
    pair.dialer.local.self.elastic = true;
    pair_run(&pair);
    expect_state(&pair.dialer, HANDSHAKE_DONE);
    expect_state(&pair.acceptor, HANDSHAKE_DONE);
    expect_identity(handshake_peer(&pair.dialer.handshake), &pair.acceptor.local.self);
    expect_identity(handshake_peer(&pair.acceptor.handshake), &pair.dialer.local.self);
    for (unsigned lane = 0; lane < 2; lane++) {
        handshake_token(&pair.dialer.handshake, lane, token[0][lane]);
        handshake_token(&pair.acceptor.handshake, lane, token[1][lane]);
        ck_assert_mem_eq(token[0][lane], token[1][lane], HANDSHAKE_TOKEN_BYTES);
    }
    ck_assert_mem_ne(token[0][0], token[0][1], HANDSHAKE_TOKEN_BYTES);
    pair_fini(&pair);
}
END_TEST

START_TEST(test_tokens_differ_in_every_handshake)
{
    struct pair pair;
    uint8_t first[HANDSHAKE_TOKEN_BYTES], second[HANDSHAKE_TOKEN_BYTES];

    pair_init(&pair);
    pair_run(&pair);
    handshake_token(&pair.acceptor.handshake, 0, first);
    side_begin(&pair.dialer, HANDSHAKE_DIALER, 1, 0xdd); /* the same nonce again */
    side_begin(&pair.acceptor, HANDSHAKE_ACCEPTOR, HANDSHAKE_ANYONE, 0xab);
    pair_settle(&pair);
    expect_state(&pair.acceptor, HANDSHAKE_DONE);
    handshake_token(&pair.acceptor.handshake, 0, second);
    ck_assert_mem_ne(first, second, HANDSHAKE_TOKEN_BYTES);
    pair_fini(&pair);
}
END_TEST

START_TEST(test_without_a_secret_on_both_sides_they_agree)
{
    struct pair pair;

    pair_init(&pair);
    handshake_key_init(&pair.dialer.local.key, NULL, 0);
    handshake_key_init(&pair.acceptor.local.key, NULL, 0);
    pair_run(&pair);
    expect_state(&pair.dialer, HANDSHAKE_DONE);
    expect_state(&pair.acceptor, HANDSHAKE_DONE);
    pair_fini(&pair);
}
END_TEST

START_TEST(test_bytes_may_come_one_by_one)
{
    struct pair pair;
    size_t dialer_at = 0, acceptor_at = 0;

    pair_init(&pair);
    pair_begin(&pair);
    for (int turn = 0; turn < 2 * HANDSHAKE_BYTES; turn++) {
        collect(&pair.dialer);
        collect(&pair.acceptor);
        if (dialer_at < pair.dialer.sent_bytes)
            handshake_take(&pair.acceptor.handshake, pair.dialer.sent + dialer_at++, 1);
        if (acceptor_at < pair.acceptor.sent_bytes)
            handshake_take(&pair.dialer.handshake, pair.acceptor.sent + acceptor_at++, 1);
        accept_if_asked(&pair.dialer);
        accept_if_asked(&pair.acceptor);
    }
    expect_state(&pair.dialer, HANDSHAKE_DONE);
    expect_state(&pair.acceptor, HANDSHAKE_DONE);
    pair_fini(&pair);
}
END_TEST

/* The peer's verdict may come before ours is decided. */
START_TEST(test_verdicts_may_cross)
{
    struct pair pair;

    pair_init(&pair);
    pair_begin(&pair);
    pair_pump(&pair);
    expect_state(&pair.acceptor, HANDSHAKE_JUDGE);
    handshake_verdict(&pair.dialer.handshake, COVEY_OK, "");
    expect_state(&pair.dialer, HANDSHAKE_WAIT);
    pair_pump(&pair);
    expect_state(&pair.acceptor, HANDSHAKE_JUDGE);
    handshake_verdict(&pair.acceptor.handshake, COVEY_OK, "");
    expect_state(&pair.acceptor, HANDSHAKE_DONE);
    pair_pump(&pair);
    expect_state(&pair.dialer, HANDSHAKE_DONE);
    pair_fini(&pair);
}
END_TEST

/* The bytes of the clear part, and a digest of all that a dialer sends, sealed parts included: a change of
 * either needs a new HANDSHAKE_VERSION. */
START_TEST(test_bytes_on_the_wire_are_those_of_version_1)
{
    static const uint8_t head[16] = {'C', 'O', 'V', 'E', 'Y', '\r', '\n', 0x1a, 1, 0, 2, 0, 0, 0, 0, 0};
    struct pair pair;
    uint8_t digest[32];
    char hex[65];

    pair_init(&pair);
    pair_run(&pair);
    ck_assert_uint_eq(pair.dialer.sent_bytes, 48 + 1040 + 528);
    ck_assert_mem_eq(pair.dialer.sent, head, sizeof(head));
    for (size_t i = sizeof(head); i < 48; i++)
        ck_assert_uint_eq(pair.dialer.sent[i], 0xdd);
    ck_assert_uint_eq(pair.acceptor.sent[12], 1); /* role */
    crypto_generichash(digest, sizeof(digest), pair.dialer.sent, pair.dialer.sent_bytes, NULL, 0);
    sodium_bin2hex(hex, sizeof(hex), digest, sizeof(digest));
    ck_assert_str_eq(hex, "ca93a04cfcae0a67d345d855ff9f2a6822f2c8029deb9b019bb3d3454cbb1ad8");
    pair_fini(&pair);
}
END_TEST

/* --- The secret ----------------------------------------------------------------------------------------- */

START_TEST(test_another_secret_is_named_on_both_sides)
{
    static const uint8_t another[] = "sixteen bytes or mere";
    struct pair pair;

    pair_init(&pair);
    handshake_key_init(&pair.dialer.local.key, another, sizeof(another));
    pair_run(&pair);
    expect_failure(&pair.dialer, COVEY_PEER_SECRET,
                   "does not prove this cluster's secret: compare secret_file on both nodes");
    expect_failure(&pair.acceptor, COVEY_PEER_SECRET,
                   "does not prove this cluster's secret: compare secret_file on both nodes");
    ck_assert(!handshake_proven(&pair.acceptor.handshake));
    pair_fini(&pair);
}
END_TEST

START_TEST(test_a_side_without_secret_is_named_on_both_sides)
{
    struct pair pair;
    struct side *without = _i == 0 ? &pair.dialer : &pair.acceptor;
    struct side *with = _i == 0 ? &pair.acceptor : &pair.dialer;

    pair_init(&pair);
    handshake_key_init(&without->local.key, NULL, 0);
    pair_run(&pair);
    expect_failure(with, COVEY_PEER_SECRET,
                   "does not prove this cluster's secret: it has none; set secret_file there");
    expect_failure(without, COVEY_PEER_SECRET,
                   "does not prove this cluster's secret: it has one and this node has none; set secret_file "
                   "here");
    pair_fini(&pair);
}
END_TEST

/* What node 2 sent once does not let anyone be node 2 again. */
START_TEST(test_replay_proves_nothing)
{
    struct pair pair;
    uint8_t recorded[HANDSHAKE_BYTES];

    pair_init(&pair);
    pair_run(&pair);
    memcpy(recorded, pair.dialer.sent, sizeof(recorded));
    side_begin(&pair.acceptor, HANDSHAKE_ACCEPTOR, HANDSHAKE_ANYONE, 0xab);
    handshake_take(&pair.acceptor.handshake, recorded, sizeof(recorded));
    expect_failure(&pair.acceptor, COVEY_PEER_SECRET,
                   "does not prove this cluster's secret: compare secret_file on both nodes");
    pair_fini(&pair);
}
END_TEST

START_TEST(test_echo_proves_nothing)
{
    struct pair pair;

    pair_init(&pair);
    side_begin(&pair.dialer, HANDSHAKE_DIALER, 1, 0xdd);
    collect(&pair.dialer);
    handshake_take(&pair.dialer.handshake, pair.dialer.sent, pair.dialer.sent_bytes);
    expect_failure(&pair.dialer, COVEY_PROTOCOL, "is not a Covey node: it sends back what it is sent");
    handshake_fini(&pair.dialer.handshake);
}
END_TEST

/* A mirror that knows the format: it makes up a prefix of the right role, then sends the sealed part back. */
START_TEST(test_reflection_proves_nothing)
{
    enum handshake_role role = _i == 0 ? HANDSHAKE_DIALER : HANDSHAKE_ACCEPTOR;
    uint8_t prefix[HANDSHAKE_PREFIX_BYTES];
    struct side victim;

    side_init(&victim, 1);
    side_begin(&victim, HANDSHAKE_DIALER, HANDSHAKE_ANYONE, 0xdd);
    collect(&victim);
    memcpy(prefix, victim.sent, sizeof(prefix));
    prefix[12] = !role;

    side_begin(&victim, role, HANDSHAKE_ANYONE, 0xdd);
    collect(&victim);
    handshake_take(&victim.handshake, prefix, sizeof(prefix));
    expect_state(&victim, HANDSHAKE_BODY);
    collect(&victim);
    ck_assert_uint_eq(victim.sent_bytes, HANDSHAKE_PREFIX_BYTES + HANDSHAKE_BODY_BYTES);
    handshake_take(&victim.handshake, victim.sent + HANDSHAKE_PREFIX_BYTES, HANDSHAKE_BODY_BYTES);
    expect_failure(&victim, COVEY_PEER_SECRET,
                   "does not prove this cluster's secret: compare secret_file on both nodes");
    handshake_fini(&victim.handshake);
}
END_TEST

/* Someone in the middle who joins a node's own dialing to its own listening: the secret is proved, by itself.
 */
START_TEST(test_node_that_meets_itself_refuses)
{
    struct pair pair;

    pair_init(&pair);
    set_identity(&pair.dialer.local.self, 1);
    pair_run(&pair);
    expect_refusal(
        &pair, COVEY_EXISTS,
        "two processes run as node 1: n1 at 127.0.0.1:7401 and n1 at 127.0.0.1:7401; every node needs "
        "an id of its own");
    pair_fini(&pair);
}
END_TEST

/* --- The clear part ------------------------------------------------------------------------------------- */

START_TEST(test_other_version_is_told_to_both)
{
    struct pair pair;

    pair_init(&pair);
    pair_begin(&pair);
    collect(&pair.dialer);
    pair.dialer.sent[8] = 2; /* a node of version 2 */
    handshake_take(&pair.acceptor.handshake, pair.dialer.sent, HANDSHAKE_PREFIX_BYTES);
    expect_failure(&pair.acceptor, COVEY_PEER_VERSION,
                   "speaks protocol version 2, this node version 1: run the same release of Covey on both");
    /* it hears our version before it is left */
    ck_assert_uint_eq(collect(&pair.acceptor), HANDSHAKE_PREFIX_BYTES);
    pair.acceptor.sent[8] = 0;
    pair.acceptor.sent[9] = 1;
    handshake_take(&pair.dialer.handshake, pair.acceptor.sent, 12); /* more may not come */
    expect_failure(&pair.dialer, COVEY_PEER_VERSION,
                   "speaks protocol version 256, this node version 1: run the same release of Covey on both");
    pair_fini(&pair);
}
END_TEST

START_TEST(test_other_program_is_told_by_its_first_bytes)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    struct side side;

    side_init(&side, 1);
    side_begin(&side, HANDSHAKE_ACCEPTOR, HANDSHAKE_ANYONE, 1);
    handshake_take(&side.handshake, (const uint8_t *)http, sizeof(http) - 1);
    expect_failure(&side, COVEY_PROTOCOL, "is not a Covey node: it begins with \"GET / HT\"");
    ck_assert_uint_eq(collect(&side), 0); /* who is no node learns nothing */
    side_begin(&side, HANDSHAKE_DIALER, 2, 1);
    handshake_take(&side.handshake, (const uint8_t *)"CO\x01", 3); /* one wrong byte is enough */
    expect_failure(&side, COVEY_PROTOCOL, "is not a Covey node: it begins with \"CO\\x01\"");
    handshake_fini(&side.handshake);
}
END_TEST

START_TEST(test_claimed_id_is_known_before_the_proof)
{
    struct pair pair;
    uint16_t id = 0;

    pair_init(&pair);
    pair_begin(&pair);
    ck_assert(!handshake_claimed_id(&pair.acceptor.handshake, &id));
    carry(&pair.dialer, &pair.acceptor, UNDAMAGED);
    ck_assert(handshake_claimed_id(&pair.acceptor.handshake, &id));
    ck_assert_uint_eq(id, 2);
    ck_assert(!handshake_proven(&pair.acceptor.handshake));
    ck_assert_str_eq(handshake_step(&pair.acceptor.handshake), "proved the cluster's secret");
    ck_assert_str_eq(handshake_step(&pair.dialer.handshake), "said what it is");
    pair_fini(&pair);
}
END_TEST

/* --- Damage --------------------------------------------------------------------------------------------- */

/* However short it is cut, the peer is not taken, and nothing of it is believed before all of it is there. */
START_TEST(test_cut_at_every_byte_is_not_done)
{
    struct pair pair;
    uint8_t sent[HANDSHAKE_BYTES];

    pair_init(&pair);
    pair_run(&pair);
    memcpy(sent, pair.dialer.sent, sizeof(sent));
    for (size_t bytes = 0; bytes < sizeof(sent); bytes++) {
        side_begin(&pair.acceptor, HANDSHAKE_ACCEPTOR, HANDSHAKE_ANYONE, 0xaa);
        ck_assert_uint_eq(handshake_take(&pair.acceptor.handshake, sent, bytes), bytes);
        accept_if_asked(&pair.acceptor);
        ck_assert_int_lt(handshake_state(&pair.acceptor.handshake), HANDSHAKE_DONE);
        ck_assert(handshake_proven(&pair.acceptor.handshake) ==
                  (bytes >= HANDSHAKE_PREFIX_BYTES + HANDSHAKE_BODY_BYTES));
    }
    pair_fini(&pair);
}
END_TEST

/* One bit of one byte, in each direction: whoever receives it does not agree. */
START_TEST(test_damage_at_every_byte_is_found)
{
    struct pair pair;

    for (size_t at = 0; at < HANDSHAKE_BYTES; at++) {
        pair_init(&pair);
        pair.damage_of_dialer = at;
        pair_run(&pair);
        ck_assert_msg(handshake_state(&pair.acceptor.handshake) != HANDSHAKE_DONE, "byte %zu", at);
        pair_init(&pair);
        pair.damage_of_acceptor = at;
        pair_run(&pair);
        ck_assert_msg(handshake_state(&pair.dialer.handshake) != HANDSHAKE_DONE, "byte %zu", at);
    }
    pair_fini(&pair);
}
END_TEST

START_TEST(test_what_follows_is_not_taken)
{
    struct pair pair;
    uint8_t sent[HANDSHAKE_BYTES + 5] = {0};

    pair_init(&pair);
    pair_run(&pair);
    memcpy(sent, pair.acceptor.sent, HANDSHAKE_BYTES);
    side_begin(&pair.dialer, HANDSHAKE_DIALER, 1, 0xdd);
    handshake_take(&pair.dialer.handshake, sent, HANDSHAKE_PREFIX_BYTES + HANDSHAKE_BODY_BYTES);
    accept_if_asked(&pair.dialer);
    ck_assert_uint_eq(handshake_take(&pair.dialer.handshake,
                                     sent + HANDSHAKE_PREFIX_BYTES + HANDSHAKE_BODY_BYTES,
                                     HANDSHAKE_VERDICT_BYTES + 5),
                      HANDSHAKE_VERDICT_BYTES);
    expect_state(&pair.dialer, HANDSHAKE_DONE);
    pair_fini(&pair);
}
END_TEST

START_TEST(test_peer_that_does_not_wait_for_the_verdict_is_left)
{
    struct pair pair;
    uint8_t sent[HANDSHAKE_BYTES + 1] = {0};

    pair_init(&pair);
    pair_run(&pair);
    memcpy(sent, pair.dialer.sent, HANDSHAKE_BYTES);
    side_begin(&pair.acceptor, HANDSHAKE_ACCEPTOR, HANDSHAKE_ANYONE, 0xaa);
    handshake_take(&pair.acceptor.handshake, sent, sizeof(sent));
    expect_failure(&pair.acceptor, COVEY_PROTOCOL, "goes on before this node has accepted it");
    pair_fini(&pair);
}
END_TEST

START_TEST(test_noise_is_survived)
{
    struct side side;
    struct rng rng;
    uint8_t noise[2 * HANDSHAKE_BYTES];

    rng_init(&rng, (uint64_t)_i);
    side_init(&side, 1);
    for (int round = 0; round < 100; round++) {
        size_t keep = rng_below(&rng, HANDSHAKE_PREFIX_BYTES + 1);
        side_begin(&side, _i % 2 == 0 ? HANDSHAKE_DIALER : HANDSHAKE_ACCEPTOR, HANDSHAKE_ANYONE, 1);
        for (size_t i = 0; i < sizeof(noise); i++)
            noise[i] = (uint8_t)rng_next(&rng);
        memcpy(noise, side.handshake.prefixes[side.handshake.role], keep); /* a beginning that is right */
        handshake_take(&side.handshake, noise, rng_below(&rng, sizeof(noise) + 1));
        ck_assert(!handshake_proven(&side.handshake));
    }
    handshake_fini(&side.handshake);
}
END_TEST

/* --- Who is refused ------------------------------------------------------------------------------------- */

START_TEST(test_other_cluster_is_named)
{
    struct pair pair;

    pair_init(&pair);
    snprintf(pair.dialer.local.self.cluster, sizeof(pair.dialer.local.self.cluster), "prod");
    pair.dialer.local.self.parts[0] = 99; /* a part differs too: the name says more */
    pair_run(&pair);
    expect_refusal(&pair, COVEY_PEER_CONFIG, "n2 is of cluster \"prod\", n1 of cluster \"demo\"");
    pair_fini(&pair);
}
END_TEST

static const struct {
    uint64_t parts[HANDSHAKE_PARTS];
    const char *list;
} differences[] = {{{0, 22, 33}, "cluster"},
                   {{11, 0, 33}, "nodes"},
                   {{11, 22, 0}, "groups"},
                   {{11, 0, 0}, "nodes, groups"},
                   {{0, 0, 0}, "cluster, nodes, groups"}};

START_TEST(test_part_of_the_configuration_that_differs_is_named)
{
    struct pair pair;
    char reason[FAIL_TEXT_MAX];

    pair_init(&pair);
    memcpy(pair.acceptor.local.self.parts, differences[_i].parts, sizeof(differences[_i].parts));
    pair_run(&pair);
    snprintf(reason, sizeof(reason),
             "the configurations of n2 and n1 differ in: %s; every node needs the same file",
             differences[_i].list);
    expect_refusal(&pair, COVEY_PEER_CONFIG, reason);
    pair_fini(&pair);
}
END_TEST

START_TEST(test_other_fabric_is_named)
{
    struct pair pair;

    pair_init(&pair);
    snprintf(pair.acceptor.local.self.provider, sizeof(pair.acceptor.local.self.provider), "verbs");
    pair_run(&pair);
    expect_refusal(
        &pair, COVEY_PEER_CONFIG,
        "the fabric of n2 is \"tcp\", that of n1 is \"verbs\": set fabric.provider to one that both "
        "have");
    pair_fini(&pair);
}
END_TEST

START_TEST(test_other_node_than_the_one_dialed_is_refused)
{
    struct pair pair;

    pair_init(&pair);
    pair_begin(&pair);
    side_begin(&pair.dialer, HANDSHAKE_DIALER, 0, 0xdd); /* it looks for node 0 */
    pair_settle(&pair);
    expect_refusal(&pair, COVEY_PEER_CONFIG,
                   "n2 looked for node 0 and found n1, which is node 1: one of them has another's address");
    pair_fini(&pair);
}
END_TEST

static int admit_nobody(void *context, const struct handshake_identity *peer, struct fail *fail)
{
    (void)context;
    return fail_set(fail, COVEY_PEER_CONFIG, "node %u (%s) is not in the list", peer->id, peer->name);
}

START_TEST(test_unknown_id_is_told_rather_than_what_follows_from_it)
{
    struct pair pair;

    pair_init(&pair);
    pair.acceptor.local.admit = admit_nobody;
    pair.acceptor.local.self.parts[1] = 0;
    pair_run(&pair);
    expect_refusal(&pair, COVEY_PEER_CONFIG, "node 2 (n2) is not in the list");
    expect_state(&pair.dialer, HANDSHAKE_FAILED);
    expect_state(&pair.acceptor, HANDSHAKE_FAILED);
    pair_fini(&pair);
}
END_TEST

START_TEST(test_verdict_of_the_owner_reaches_the_peer)
{
    struct pair pair;
    char reason[2 * FAIL_TEXT_MAX];

    pair_init(&pair);
    pair_begin(&pair);
    pair_pump(&pair);
    handshake_verdict(&pair.acceptor.handshake, COVEY_BUSY, "too many");
    pair_settle(&pair);
    expect_refusal(&pair, COVEY_BUSY, "too many");

    memset(reason, 'x', sizeof(reason) - 1);
    reason[sizeof(reason) - 1] = '\0';
    pair_begin(&pair);
    pair_pump(&pair);
    handshake_verdict(&pair.dialer.handshake, COVEY_BUSY, reason);
    pair_settle(&pair);
    ck_assert_int_eq(handshake_fail(&pair.acceptor.handshake)->code, COVEY_BUSY);
    ck_assert_uint_eq(strlen(handshake_fail(&pair.acceptor.handshake)->text), FAIL_TEXT_MAX - 1);
    pair_fini(&pair);
}
END_TEST

/* --- A peer that knows the secret and is wrong all the same ----------------------------------------------
 */

/* An acceptor, node 1, that has taken the prefix of a forged node 2. */
static void forge_begin(struct forge *forge, struct side *side)
{
    side_init(side, 1);
    side_begin(side, HANDSHAKE_ACCEPTOR, HANDSHAKE_ANYONE, 0xaa);
    forge_init(forge, HANDSHAKE_DIALER, 2, 0xdd);
    handshake_take(&side->handshake, forge->prefixes[HANDSHAKE_DIALER], FORGE_PREFIX);
    collect(side);
    forge_keys(forge, side->sent, secret, sizeof(secret));
}

static void forge_send(const struct forge *forge, struct side *side, uint8_t number, const uint8_t *plain,
                       size_t bytes)
{
    uint8_t sealed[FORGE_BODY + FORGE_TAG];

    forge_seal(forge, number, plain, bytes, sealed);
    ck_assert_uint_eq(handshake_take(&side->handshake, sealed, bytes + FORGE_TAG), bytes + FORGE_TAG);
}

/* The protocol as its description says, written a second time: both understand each other. */
START_TEST(test_description_and_code_agree)
{
    uint8_t body[FORGE_BODY], verdict[FORGE_VERDICT] = {0}, token[HANDSHAKE_TOKEN_BYTES];
    struct forge forge;
    struct side side;

    forge_begin(&forge, &side);
    forge_body(body, 2);
    forge_send(&forge, &side, 0, body, sizeof(body));
    expect_state(&side, HANDSHAKE_JUDGE);
    ck_assert_str_eq(handshake_peer(&side.handshake)->name, "n2");
    ck_assert_str_eq(handshake_peer(&side.handshake)->address, "127.0.0.1:7402");
    ck_assert_uint_eq(handshake_peer(&side.handshake)->incarnation, 7);
    forge_send(&forge, &side, 1, verdict, sizeof(verdict));
    handshake_verdict(&side.handshake, COVEY_OK, "");
    expect_state(&side, HANDSHAKE_DONE);
    for (unsigned lane = 0; lane < 2; lane++) {
        handshake_token(&side.handshake, lane, token);
        ck_assert_mem_eq(token, forge.tokens[lane], sizeof(token));
    }
    handshake_fini(&side.handshake);
}
END_TEST

static const struct {
    size_t offset, bytes;
    uint8_t value;
    const char *why;
} body_damages[] = {
    {0, 1, 3, "another id than in the prefix"},
    {2, 1, 2, "elastic is neither 0 nor 1"},
    {3, 1, 0, "no fabric address"},
    {3, 1, 129, "a fabric address longer than its field"},
    {4, 1, 1, "byte 4 is not 0"},
    {7, 1, 1, "byte 7 is not 0"},
    {8, 8, 0, "incarnation 0"},
    {168, 32, 'x', "a provider without an end"},
    {199, 1, 'x', "something behind the provider's end"},
    {200, 256, 'x', "a cluster without an end"},
    {455, 1, 'x', "something behind the cluster's end"},
    {456, 256, 'x', "a name without an end"},
    {456, 256, 0, "no name"},
    {456, 1, '-', "a name that is an option"},
    {457, 1, '/', "a name with a slash"},
    {457, 1, ' ', "a name with a blank"},
    {457, 1, '\n', "a name with a control character"},
    {457, 1, 0xff, "a name that is no UTF-8"},
    {711, 1, 'x', "something behind the name's end"},
    {712, 256, 'x', "an address without an end"},
    {713, 1, 0x1b, "an address with a control character"},
    {992, 1, 1, "the first reserved byte"},
    {1023, 1, 1, "the last reserved byte"},
};
#define BODY_DAMAGES (sizeof(body_damages) / sizeof(body_damages[0]))

START_TEST(test_malformed_body_is_refused)
{
    uint8_t body[FORGE_BODY];
    struct forge forge;
    struct side side;

    forge_begin(&forge, &side);
    forge_body(body, 2);
    memset(body + body_damages[_i].offset, body_damages[_i].value, body_damages[_i].bytes);
    forge_send(&forge, &side, 0, body, sizeof(body));
    ck_assert_msg(handshake_state(&side.handshake) == HANDSHAKE_FAILED, "%s was accepted",
                  body_damages[_i].why);
    expect_failure(&side, COVEY_PROTOCOL, "knows the secret but says nothing sensible of itself");
    ck_assert(!handshake_proven(&side.handshake));
    handshake_fini(&side.handshake);
}
END_TEST

static const struct {
    size_t offset, bytes;
    uint8_t value;
    const char *why;
} verdict_damages[] = {
    {3, 1, 0x7f, "a positive code"},
    {0, 4, 0, "a reason for accepting"},
    {4, 508, 'x', "a text without an end"},
    {511, 1, 'x', "something behind the text's end"},
    {4, 508, 0, "a refusal without a reason"},
    {5, 1, 0x1b, "a control character"},
    {5, 1, 0xff, "no UTF-8"},
};
#define VERDICT_DAMAGES (sizeof(verdict_damages) / sizeof(verdict_damages[0]))

START_TEST(test_malformed_verdict_is_refused)
{
    uint8_t body[FORGE_BODY], verdict[FORGE_VERDICT] = {0xf0, 0xff, 0xff, 0xff, 'b', 'u', 's', 'y'};
    struct forge forge;
    struct side side;

    forge_begin(&forge, &side);
    forge_body(body, 2);
    forge_send(&forge, &side, 0, body, sizeof(body));
    memset(verdict + verdict_damages[_i].offset, verdict_damages[_i].value, verdict_damages[_i].bytes);
    forge_send(&forge, &side, 1, verdict, sizeof(verdict));
    ck_assert_msg(handshake_state(&side.handshake) == HANDSHAKE_FAILED, "%s was accepted",
                  verdict_damages[_i].why);
    expect_failure(&side, COVEY_PROTOCOL, "knows the secret but gives no sensible answer");
    handshake_fini(&side.handshake);
}
END_TEST

/* A frame out of its turn does not open, even if it is sealed with the right key. */
START_TEST(test_frame_out_of_turn_does_not_open)
{
    uint8_t body[FORGE_BODY];
    struct forge forge;
    struct side side;

    forge_begin(&forge, &side);
    forge_body(body, 2);
    forge_send(&forge, &side, 1, body, sizeof(body));
    expect_failure(&side, COVEY_PEER_SECRET,
                   "does not prove this cluster's secret: compare secret_file on both nodes");
    handshake_fini(&side.handshake);
}
END_TEST

SUITE_MAIN(
    "handshake", 60, SUITE_TEST(test_both_agree_and_know_each_other),
    SUITE_TEST(test_tokens_differ_in_every_handshake),
    SUITE_TEST(test_without_a_secret_on_both_sides_they_agree), SUITE_TEST(test_bytes_may_come_one_by_one),
    SUITE_TEST(test_verdicts_may_cross), SUITE_TEST(test_bytes_on_the_wire_are_those_of_version_1),
    SUITE_TEST(test_another_secret_is_named_on_both_sides),
    SUITE_LOOP(test_a_side_without_secret_is_named_on_both_sides, 2), SUITE_TEST(test_replay_proves_nothing),
    SUITE_TEST(test_echo_proves_nothing), SUITE_LOOP(test_reflection_proves_nothing, 2),
    SUITE_TEST(test_node_that_meets_itself_refuses), SUITE_TEST(test_other_version_is_told_to_both),
    SUITE_TEST(test_other_program_is_told_by_its_first_bytes),
    SUITE_TEST(test_claimed_id_is_known_before_the_proof), SUITE_TEST(test_cut_at_every_byte_is_not_done),
    SUITE_TEST(test_damage_at_every_byte_is_found), SUITE_TEST(test_what_follows_is_not_taken),
    SUITE_TEST(test_peer_that_does_not_wait_for_the_verdict_is_left), SUITE_LOOP(test_noise_is_survived, 20),
    SUITE_TEST(test_other_cluster_is_named),
    SUITE_LOOP(test_part_of_the_configuration_that_differs_is_named, 5),
    SUITE_TEST(test_other_fabric_is_named), SUITE_TEST(test_other_node_than_the_one_dialed_is_refused),
    SUITE_TEST(test_unknown_id_is_told_rather_than_what_follows_from_it),
    SUITE_TEST(test_verdict_of_the_owner_reaches_the_peer), SUITE_TEST(test_description_and_code_agree),
    SUITE_LOOP(test_malformed_body_is_refused, BODY_DAMAGES),
    SUITE_LOOP(test_malformed_verdict_is_refused, VERDICT_DAMAGES),
    SUITE_TEST(test_frame_out_of_turn_does_not_open))
