/* SPDX-License-Identifier: BSD-3-Clause */
/* The layout of every message, and that nothing malformed is let in. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "fabric/fabric.h"
#include "schedule/schedule.h"
#include "tests/lib/suite.h"
#include "wire/message.h"

_Static_assert(MESSAGE_MAX == FABRIC_MESSAGE_MAX, "a message goes into one of the fabric's");
_Static_assert(MESSAGE_SCHEDULES == SCHEDULE_KINDS, "an offer can name every schedule");
_Static_assert(IMMEDIATE_FENCE == SCHEDULE_BLOCKS_MAX, "every block of a schedule has an immediate");
_Static_assert(MESSAGE_NAME_MAX == COVEY_NAME_MAX, "names of objects fit");

#define SESSION                    UINT64_C(0x0002000000000007) /* of node 2 */
#define HEADER(type, group, bytes) type "00" group bytes "0700000000000200"

struct vector {
    enum message_type type;
    const char *hex;
};

/* clang-format off */
static const struct vector vectors[] = {
    {MESSAGE_OFFER, HEADER("01", "0100", "44000000")
        "0500000000000000" "0000010001000000" "0000100000000000" "03" "04" "0300" "02000000"
        "0900000000000200" "01" "00"
        "0200" "0000" "ffff" "6d646c31"},
    {MESSAGE_MANIFEST, HEADER("02", "0100", "2f000000")
        "00000000" "0200" "01" "00"
        "0000000001000000" "00" "00" "01" "61"
        "0000010000000000" "01" "03" "00"},
    {MESSAGE_ACCEPT, HEADER("03", "0100", "10000000")},
    {MESSAGE_REFUSE, HEADER("04", "0100", "1f000000") "faffffff" "ffff0000" "6e6f20726f6f6d"},
    {MESSAGE_START, HEADER("05", "0100", "10000000")},
    {MESSAGE_GRANT, HEADER("06", "0100", "3a000000")
        "ff0f" "07000000" "0100" "00" "00"
        "0000100000000000" "0000200000000000" "00f0ffffff7f0000" "8877665544332211"},
    {MESSAGE_SEAL, HEADER("07", "0100", "18000000") "efcdab8967452301"},
    {MESSAGE_RECEIVED, HEADER("08", "0100", "10000000")},
    {MESSAGE_FAILED, HEADER("09", "0100", "18000000") "d7ffffff" "ffffffff"},
    {MESSAGE_CANCEL, HEADER("0a", "0100", "19000000") "f8ffffff" "02000000" "78"},
    {MESSAGE_DELIVERED, HEADER("0b", "0100", "10000000")},
    {MESSAGE_TABLE, HEADER("0c", "ffff", "2c000000")
        "00f0ffffff7f0000" "8877665544332211" "4002000000000000" "07000000"},
    {MESSAGE_HELD, HEADER("0d", "0100", "28000000") "40000000" "0200" "0000"
        "0500000000000000" "0000000000000080"},
    {MESSAGE_HAVE, HEADER("0e", "0100", "34000000") "0300000000000000" "efcdab8967452301" "01" "00" "01" "00"
        "00000000" "0100" "0000" "0700000000000000"},
    {MESSAGE_FORGET, HEADER("0f", "0100", "19000000") "f8ffffff" "02000000" "78"},
    {MESSAGE_WANT, HEADER("10", "0100", "18000000") "0300000000000000"},
    {MESSAGE_COMMIT, HEADER("11", "0100", "10000000")},
    {MESSAGE_ASK, HEADER("12", "0100", "14000000") "feff0f00"},
    {MESSAGE_CREDIT, HEADER("13", "0100", "3a000000")
        "ff0f" "07000000" "0100" "01" "00"
        "0000000000000000" "0000100000000000" "00f0ffffff7f0000" "8877665544332211"},
};
/* clang-format on */
#define VECTORS (sizeof(vectors) / sizeof(vectors[0]))

static const struct vector *vector_of(enum message_type type)
{
    for (size_t i = 0; i < VECTORS; i++) {
        if (vectors[i].type == type)
            return &vectors[i];
    }
    ck_abort_msg("no vector of type %d", type);
}

static size_t from_hex(const char *hex, uint8_t *out)
{
    size_t bytes = strlen(hex) / 2;

    for (size_t i = 0; i < bytes; i++) {
        unsigned value;
        ck_assert_int_eq(sscanf(hex + 2 * i, "%2x", &value), 1);
        out[i] = (uint8_t)value;
    }
    return bytes;
}

static void set_length(uint8_t *data, size_t bytes)
{
    for (int i = 0; i < 4; i++)
        data[4 + i] = (uint8_t)(bytes >> (8 * i));
}

/* Decode a copy that ends where its memory ends, so that a sanitizer sees a read past it. What is accepted
 * must be the one encoding of what was understood. */
static int decode(const uint8_t *data, size_t bytes)
{
    static uint8_t again[MESSAGE_MAX];
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    struct message message;
    int result;

    memcpy(copy, data, bytes);
    result = message_decode(copy, bytes, &message);
    if (result == COVEY_OK) {
        ck_assert_uint_eq(message_encode(&message, again), bytes);
        ck_assert_mem_eq(again, data, bytes);
    }
    free(copy);
    return result;
}

static void expect_text(const char *text, size_t bytes, const char *expected)
{
    ck_assert_uint_eq(bytes, strlen(expected));
    ck_assert_mem_eq(text, expected, bytes);
}

static void expect_header(const struct message *message, enum message_type type)
{
    bool cluster = type == MESSAGE_TABLE;

    ck_assert_int_eq(message->type, type);
    ck_assert_uint_eq(message->group, cluster ? MESSAGE_NO_GROUP : 1);
    ck_assert_uint_eq(message->session, SESSION);
}

static struct message decoded(enum message_type type, uint8_t *data)
{
    struct message message;
    size_t bytes = from_hex(vector_of(type)->hex, data);

    ck_assert_int_eq(message_decode(data, bytes, &message), COVEY_OK);
    expect_header(&message, type);
    return message;
}

/* --- What the bytes mean -------------------------------------------------------------------------------- */

START_TEST(test_every_type_has_a_vector_that_is_its_only_encoding)
{
    uint8_t data[MESSAGE_MAX];
    size_t bytes = from_hex(vectors[_i].hex, data);

    ck_assert_uint_eq(VECTORS, MESSAGE_CREDIT);
    ck_assert_int_eq(vectors[_i].type, _i + 1);
    decoded(vectors[_i].type, data);
    ck_assert_int_eq(decode(data, bytes), COVEY_OK);
}
END_TEST

START_TEST(test_offer_fields)
{
    uint8_t data[MESSAGE_MAX];
    struct message message = decoded(MESSAGE_OFFER, data);

    ck_assert_uint_eq(message.offer.view, 5);
    ck_assert_uint_eq(message.offer.bytes, UINT64_C(0x100010000));
    ck_assert_uint_eq(message.offer.block_bytes, 1 << 20);
    ck_assert_uint_eq(message.offer.schedule, SCHEDULE_BINOMIAL);
    ck_assert_uint_eq(message.offer.members, 3);
    ck_assert_uint_eq(message_offer_id(&message.offer, 0), 2);
    ck_assert_uint_eq(message_offer_id(&message.offer, 1), 0);
    ck_assert_uint_eq(message_offer_id(&message.offer, 2), 65535);
    ck_assert_uint_eq(message.offer.buffers, 2);
    ck_assert_uint_eq(message.offer.purpose, OFFER_FINISH);
    ck_assert_uint_eq(message.offer.subject, UINT64_C(0x0002000000000009));
    expect_text(message.offer.name, message.offer.name_bytes, "mdl1");
}
END_TEST

START_TEST(test_manifest_fields)
{
    uint8_t data[MESSAGE_MAX];
    struct message message = decoded(MESSAGE_MANIFEST, data);
    struct manifest_entry entry;
    size_t offset = 0;

    ck_assert_uint_eq(message.manifest.first, 0);
    ck_assert_uint_eq(message.manifest.count, 2);
    ck_assert(message.manifest.last);
    ck_assert(manifest_take(&message.manifest, &offset, &entry));
    ck_assert_uint_eq(entry.bytes, UINT64_C(0x100000000));
    ck_assert_uint_eq(entry.memory, COVEY_MEMORY_HOST);
    expect_text(entry.name, entry.name_bytes, "a");
    ck_assert(manifest_take(&message.manifest, &offset, &entry));
    ck_assert_uint_eq(entry.bytes, 65536);
    ck_assert_uint_eq(entry.memory, COVEY_MEMORY_CUDA);
    ck_assert_uint_eq(entry.device, 3);
    ck_assert_uint_eq(entry.name_bytes, 0);
    ck_assert(!manifest_take(&message.manifest, &offset, &entry));
}
END_TEST

START_TEST(test_grant_fields)
{
    uint8_t data[MESSAGE_MAX];
    struct message message = decoded(MESSAGE_GRANT, data);
    struct grant_extent extent;
    size_t offset = 0;

    ck_assert_uint_eq(message.grant.slot, 4095);
    ck_assert_uint_eq(message.grant.page.first, 7);
    ck_assert_uint_eq(message.grant.page.count, 1);
    ck_assert(!message.grant.page.last);
    ck_assert(grant_take(&message.grant.page, &offset, &extent));
    ck_assert_uint_eq(extent.offset, 1 << 20);
    ck_assert_uint_eq(extent.bytes, 2 << 20);
    ck_assert_uint_eq(extent.address, UINT64_C(0x7ffffffff000));
    ck_assert_uint_eq(extent.key, UINT64_C(0x1122334455667788));
    ck_assert(!grant_take(&message.grant.page, &offset, &extent));
}
END_TEST

START_TEST(test_reason_fields)
{
    uint8_t data[MESSAGE_MAX];
    struct message message = decoded(MESSAGE_REFUSE, data);

    ck_assert_int_eq(message.reason.code, COVEY_BUDGET);
    ck_assert_uint_eq(message.reason.culprit, 65535);
    expect_text(message.reason.text, message.reason.text_bytes, "no room");
    message = decoded(MESSAGE_FAILED, data);
    ck_assert_int_eq(message.reason.code, COVEY_PEER_STALLED);
    ck_assert_uint_eq(message.reason.culprit, MESSAGE_NOBODY);
    ck_assert_uint_eq(message.reason.text_bytes, 0);
    message = decoded(MESSAGE_CANCEL, data);
    ck_assert_int_eq(message.reason.code, COVEY_CANCELLED);
    ck_assert_uint_eq(message.reason.culprit, 2);
}
END_TEST

START_TEST(test_seal_and_table_fields)
{
    uint8_t data[MESSAGE_MAX];
    struct message message = decoded(MESSAGE_SEAL, data);

    ck_assert_uint_eq(message.digest, UINT64_C(0x0123456789abcdef));
    message = decoded(MESSAGE_TABLE, data);
    ck_assert_uint_eq(message.table.address, UINT64_C(0x7ffffffff000));
    ck_assert_uint_eq(message.table.key, UINT64_C(0x1122334455667788));
    ck_assert_uint_eq(message.table.row_bytes, 0x240);
    ck_assert_uint_eq(message.table.slot, 7);
}
END_TEST

START_TEST(test_held_have_and_want_fields)
{
    uint8_t data[MESSAGE_MAX];
    struct message message = decoded(MESSAGE_HELD, data);

    ck_assert_uint_eq(message.held.first, 64);
    ck_assert_uint_eq(message.held.words, 2);
    ck_assert_uint_eq(message_blocks_word(&message.held, 0), 5);
    ck_assert_uint_eq(message_blocks_word(&message.held, 1), UINT64_C(1) << 63);
    message = decoded(MESSAGE_HAVE, data);
    ck_assert_uint_eq(message.have.view, 3);
    ck_assert_uint_eq(message.have.digest, UINT64_C(0x0123456789abcdef));
    ck_assert(message.have.sealed && !message.have.asks && message.have.last);
    ck_assert_uint_eq(message.have.blocks.first, 0);
    ck_assert_uint_eq(message_blocks_word(&message.have.blocks, 0), 7);
    message = decoded(MESSAGE_FORGET, data);
    ck_assert_int_eq(message.reason.code, COVEY_CANCELLED);
    message = decoded(MESSAGE_WANT, data);
    ck_assert_uint_eq(message.view, 3);
}
END_TEST

/* A row of a group is told of like a slot of the cluster's table. */
START_TEST(test_a_table_is_the_clusters_or_a_groups)
{
    uint8_t data[MESSAGE_MAX];
    size_t bytes = from_hex(vector_of(MESSAGE_TABLE)->hex, data);
    struct message message;

    data[2] = 1;
    data[3] = 0;
    ck_assert_int_eq(message_decode(data, bytes, &message), 0);
    ck_assert_uint_eq(message.group, 1);
}
END_TEST

static const struct {
    uint8_t kind;
    const char *hex;
    const char *what; /* is wrong; NULL: nothing */
} entries[] = {
    {ORDER_COMMIT, "0400000001000300", NULL},
    {ORDER_REMOVE,
     "0400000001000300"
     "6d646c31",
     NULL},
    {ORDER_COMMIT, "04000000010003", "less than an id"},
    {ORDER_COMMIT, "", "nothing"},
    {ORDER_COMMIT,
     "0400000001000300"
     "6d",
     "a commit with a name"},
    {ORDER_REMOVE, "0400000001000300", "a removal of nothing"},
    {ORDER_REMOVE,
     "0400000001000300"
     "6d00",
     "a NUL in the name"},
    {ORDER_MESSAGE, "0400000001000300", "another kind"},
    {0, "0400000001000300", "another kind"},
};
#define ENTRIES (sizeof(entries) / sizeof(entries[0]))

START_TEST(test_entries_are_checked)
{
    uint8_t data[ENTRY_MAX], again[ENTRY_MAX];
    size_t bytes = from_hex(entries[_i].hex, data);
    struct entry entry;

    ck_assert_msg((entry_decode(entries[_i].kind, data, bytes, &entry) == 0) == (entries[_i].what == NULL),
                  "%s", entries[_i].hex);
    if (entries[_i].what != NULL)
        return;
    ck_assert_uint_eq(entry.id, UINT64_C(0x3000100000004));
    ck_assert_uint_eq(entry_encode(&entry, again), bytes);
    ck_assert_mem_eq(again, data, bytes);
}
END_TEST

START_TEST(test_a_longer_name_than_any_is_no_removal)
{
    uint8_t data[ENTRY_MAX + 1];
    struct entry entry;

    memset(data, 'x', sizeof(data));
    ck_assert_int_eq(entry_decode(ORDER_REMOVE, data, sizeof(data) - 1, &entry), 0);
    ck_assert_uint_eq(entry.name_bytes, MESSAGE_NAME_MAX);
    ck_assert_int_eq(entry_decode(ORDER_REMOVE, data, sizeof(data), &entry), COVEY_PROTOCOL);
}
END_TEST

START_TEST(test_immediate_layout)
{
    uint32_t slot, block;

    ck_assert_uint_eq(immediate_encode(1, 2), 0x00100002);
    ck_assert_uint_eq(immediate_encode(IMMEDIATE_SLOTS - 1, IMMEDIATE_FENCE), UINT32_MAX);
    immediate_decode(0xabc12345, &slot, &block);
    ck_assert_uint_eq(slot, 0xabc);
    ck_assert_uint_eq(block, 0x12345);
}
END_TEST

/* --- What is kept out ----------------------------------------------------------------------------------- */

START_TEST(test_cut_at_every_byte_is_refused)
{
    uint8_t data[MESSAGE_MAX];
    size_t bytes = from_hex(vectors[_i].hex, data);

    for (size_t i = 0; i < bytes; i++)
        ck_assert_int_eq(decode(data, i), COVEY_PROTOCOL);
    /* and one byte more */
    ck_assert_int_eq(decode(data, bytes + 1), COVEY_PROTOCOL);
}
END_TEST

/* With a length that agrees, only a body that ends in a text may be shorter. */
START_TEST(test_shorter_body_is_refused_unless_its_text_is_shorter)
{
    uint8_t data[MESSAGE_MAX];
    size_t bytes = from_hex(vectors[_i].hex, data), shortest = bytes;

    if (vectors[_i].type == MESSAGE_REFUSE || vectors[_i].type == MESSAGE_CANCEL ||
        vectors[_i].type == MESSAGE_FORGET)
        shortest = 24;
    for (size_t i = 0; i < bytes; i++) {
        set_length(data, i);
        ck_assert_int_eq(decode(data, i), i < shortest ? COVEY_PROTOCOL : COVEY_OK);
    }
}
END_TEST

START_TEST(test_mutations_are_refused_or_mean_something_else)
{
    uint8_t original[MESSAGE_MAX], data[MESSAGE_MAX];
    size_t bytes = from_hex(vectors[_i].hex, original);
    struct rng rng;

    rng_init(&rng, (uint64_t)_i);
    for (int round = 0; round < 3000; round++) {
        size_t count = 1 + rng_below(&rng, 4), now = bytes;

        memcpy(data, original, bytes);
        for (size_t i = 0; i < count; i++)
            data[rng_below(&rng, bytes)] = (uint8_t)rng_next(&rng);
        if (round % 3 == 0) { /* also another length, told truly */
            now = rng_below(&rng, bytes + 64);
            for (size_t i = bytes; i < now; i++)
                data[i] = (uint8_t)rng_next(&rng);
            if (now >= MESSAGE_HEADER_BYTES)
                set_length(data, now);
        }
        decode(data, now);
    }
}
END_TEST

static const struct {
    enum message_type type;
    size_t offset;
    const char *hex;
    const char *why;
} damages[] = {
    {MESSAGE_ACCEPT, 0, "00", "type 0"},
    {MESSAGE_ACCEPT, 0, "16", "type past the last"},
    {MESSAGE_ACCEPT, 0, "ff", "type 255"},
    {MESSAGE_ACCEPT, 1, "01", "byte 1 is not 0"},
    {MESSAGE_ACCEPT, 2, "ffff", "a group's message without a group"},
    {MESSAGE_ACCEPT, 4, "11000000", "length past the end"},
    {MESSAGE_ACCEPT, 4, "0f000000", "length before the end"},
    {MESSAGE_OFFER, 32, "0000000000000000", "blocks of no bytes"},
    {MESSAGE_OFFER, 32, "0010000000000000", "more blocks than an immediate can name"},
    {MESSAGE_OFFER, 40, "05", "unknown schedule"},
    {MESSAGE_OFFER, 41, "00", "no name"},
    {MESSAGE_OFFER, 41, "ff", "name past the end"},
    {MESSAGE_OFFER, 42, "0100", "one member"},
    {MESSAGE_OFFER, 42, "0104", "1025 members"},
    {MESSAGE_OFFER, 42, "ffff", "members past the end"},
    {MESSAGE_OFFER, 44, "01001000", "buffers past the limit"},
    {MESSAGE_OFFER, 44, "00000000", "bytes without a buffer"},
    {MESSAGE_OFFER, 48, "0000000000000000", "finishes no object"},
    {MESSAGE_OFFER, 56, "00", "a new object that is another"},
    {MESSAGE_OFFER, 56, "03", "unknown purpose"},
    {MESSAGE_OFFER, 57, "01", "byte 57 is not 0"},
    {MESSAGE_OFFER, 60, "0200", "a member twice"},
    {MESSAGE_OFFER, 64, "6d006c31", "a NUL in the name"},
    {MESSAGE_MANIFEST, 16, "ffff0f00", "entries past the limit"},
    {MESSAGE_MANIFEST, 16, "ffffffff", "entries past every limit"},
    {MESSAGE_MANIFEST, 20, "0000", "no entry"},
    {MESSAGE_MANIFEST, 20, "0100", "an entry that is not counted"},
    {MESSAGE_MANIFEST, 20, "0300", "an entry that is not there"},
    {MESSAGE_MANIFEST, 22, "02", "last is neither 0 nor 1"},
    {MESSAGE_MANIFEST, 23, "01", "byte 23 is not 0"},
    {MESSAGE_MANIFEST, 32, "03", "unknown memory"},
    {MESSAGE_MANIFEST, 34, "02", "name runs into the next entry"},
    {MESSAGE_MANIFEST, 46, "01", "name past the end"},
    {MESSAGE_MANIFEST, 35, "00", "a NUL in a name"},
    {MESSAGE_ASK, 16, "ffff0f00", "the fence's number"},
    {MESSAGE_GRANT, 16, "0010", "slot 4096"},
    {MESSAGE_GRANT, 18, "ffffffff", "extents past every limit"},
    {MESSAGE_GRANT, 22, "0000", "no extent"},
    {MESSAGE_GRANT, 22, "0200", "an extent that is not there"},
    {MESSAGE_GRANT, 22, "0108", "count that wraps in 16 bits of bytes"},
    {MESSAGE_GRANT, 24, "02", "last is neither 0 nor 1"},
    {MESSAGE_GRANT, 25, "01", "byte 25 is not 0"},
    {MESSAGE_GRANT, 34, "ffffffffffffffff", "extent past the last offset"},
    {MESSAGE_GRANT, 42, "ffffffffffffffff", "extent past the last address"},
    {MESSAGE_REFUSE, 16, "00000000", "refused with success"},
    {MESSAGE_REFUSE, 16, "01000000", "a code that is positive"},
    {MESSAGE_REFUSE, 20, "00000100", "a culprit that can be no id"},
    {MESSAGE_REFUSE, 25, "00", "a NUL in the text"},
    {MESSAGE_HELD, 16, "41000000", "blocks from within a word"},
    {MESSAGE_HELD, 16, "c0ff0f00", "blocks past every limit"},
    {MESSAGE_HELD, 20, "0000", "no words"},
    {MESSAGE_HELD, 20, "0300", "words that are not there"},
    {MESSAGE_HELD, 22, "0100", "bytes 22 and 23 are not 0"},
    {MESSAGE_HAVE, 32, "02", "sealed is neither 0 nor 1"},
    {MESSAGE_HAVE, 33, "02", "asks is neither 0 nor 1"},
    {MESSAGE_HAVE, 34, "02", "last is neither 0 nor 1"},
    {MESSAGE_HAVE, 35, "01", "byte 35 is not 0"},
    {MESSAGE_HAVE, 40, "0200", "words that are not there"},
    {MESSAGE_TABLE, 32, "ffffffffffffffff", "a row that runs past the last address"},
};
#define DAMAGES (sizeof(damages) / sizeof(damages[0]))

START_TEST(test_field_out_of_range_is_refused)
{
    uint8_t data[MESSAGE_MAX];
    size_t bytes = from_hex(vector_of(damages[_i].type)->hex, data);

    from_hex(damages[_i].hex, data + damages[_i].offset);
    ck_assert_msg(decode(data, bytes) == COVEY_PROTOCOL, "%s was accepted", damages[_i].why);
}
END_TEST

START_TEST(test_refused_message_leaves_the_output_alone)
{
    struct message message, before;
    uint8_t data[MESSAGE_MAX];
    size_t bytes = from_hex(vector_of(MESSAGE_TABLE)->hex, data);

    memset(&message, 0xa5, sizeof(message));
    before = message;
    ck_assert_int_eq(message_decode(data, bytes - 1, &message), COVEY_PROTOCOL);
    ck_assert_mem_eq(&message, &before, sizeof(message));
    ck_assert_int_eq(message_decode(NULL, 0, &message), COVEY_PROTOCOL);
}
END_TEST

START_TEST(test_too_many_members_or_bytes_are_refused)
{
    static uint8_t data[MESSAGE_MAX + 1];
    size_t bytes = from_hex(vector_of(MESSAGE_OFFER)->hex, data);

    for (uint16_t id = 0; id < 1025; id++)
        bytes = 58 + (size_t)(id + 1) * message_put_id(data + 58 + (size_t)id * 2, id);
    memcpy(data + bytes, "mdl1", 4);
    from_hex("0104", data + 42);
    set_length(data, bytes + 4);
    ck_assert_int_eq(decode(data, bytes + 4), COVEY_PROTOCOL);
    memcpy(data + bytes - 2, "mdl1", 4);
    from_hex("0004", data + 42);
    set_length(data, bytes + 2);
    ck_assert_int_eq(decode(data, bytes + 2), COVEY_OK);

    from_hex(vector_of(MESSAGE_REFUSE)->hex, data);
    memset(data + 24, 'x', sizeof(data) - 24);
    set_length(data, sizeof(data));
    ck_assert_int_eq(message_decode(data, sizeof(data), &(struct message){0}), COVEY_PROTOCOL);
    set_length(data, 24 + MESSAGE_TEXT_MAX + 1);
    ck_assert_int_eq(decode(data, 24 + MESSAGE_TEXT_MAX + 1), COVEY_PROTOCOL);
    set_length(data, 24 + MESSAGE_TEXT_MAX);
    ck_assert_int_eq(decode(data, 24 + MESSAGE_TEXT_MAX), COVEY_OK);
}
END_TEST

START_TEST(test_block_count_is_bounded_exactly)
{
    uint8_t data[MESSAGE_MAX];
    struct message message = decoded(MESSAGE_OFFER, data);
    uint8_t out[MESSAGE_MAX];
    size_t bytes;

    message.offer.block_bytes = 64;
    message.offer.bytes = 64 * (uint64_t)SCHEDULE_BLOCKS_MAX;
    bytes = message_encode(&message, out);
    ck_assert_int_eq(decode(out, bytes), COVEY_OK);
    out[24]++; /* one byte more: one block more */
    ck_assert_int_eq(decode(out, bytes), COVEY_PROTOCOL);
    message.offer.bytes = 0;
    message.offer.buffers = 0;
    bytes = message_encode(&message, out);
    ck_assert_int_eq(decode(out, bytes), COVEY_OK);
    memset(out + 24, 0xff, 16); /* UINT64_MAX bytes in one block: sums must not wrap */
    out[44] = 1;
    ck_assert_int_eq(decode(out, bytes), COVEY_OK);
}
END_TEST

/* --- Encoding ------------------------------------------------------------------------------------------- */

START_TEST(test_long_text_is_cut_between_characters)
{
    struct message message = {.type = MESSAGE_FAILED, .reason = {.code = -1, .culprit = MESSAGE_NOBODY}};
    uint8_t out[MESSAGE_MAX];
    char text[MESSAGE_TEXT_MAX + 2];

    memset(text, 'x', sizeof(text));
    memcpy(text + MESSAGE_TEXT_MAX - 1, "\xc3\xa4", 2); /* the limit is inside it */
    message.reason.text = text;
    message.reason.text_bytes = sizeof(text);
    ck_assert_uint_eq(message_encode(&message, out), 24 + MESSAGE_TEXT_MAX - 1);
    ck_assert_int_eq(message_decode(out, 24 + MESSAGE_TEXT_MAX - 1, &message), COVEY_OK);
    ck_assert_uint_eq(message.reason.text_bytes, MESSAGE_TEXT_MAX - 1);
}
END_TEST

START_TEST(test_full_pages_fit_into_a_message)
{
    static uint8_t data[MESSAGE_PAGE_MAX], out[MESSAGE_MAX];
    struct manifest_entry entry = {.bytes = 1, .name = "layer", .name_bytes = 5}, taken;
    struct grant_extent extent = {.bytes = 8}, taken_extent;
    struct message message = {.type = MESSAGE_MANIFEST, .manifest = {.data = data, .last = true}};
    struct message_page *page = &message.manifest;
    size_t bytes, offset = 0;
    uint16_t count = 0;

    while ((bytes = manifest_put(data, page->data_bytes, sizeof(data), &entry)) > 0) {
        page->data_bytes += bytes;
        page->count++;
        entry.bytes++;
    }
    ck_assert_uint_eq(page->count, MESSAGE_PAGE_MAX / 16);
    ck_assert_int_eq(decode(out, message_encode(&message, out)), COVEY_OK);
    while (manifest_take(page, &offset, &taken))
        ck_assert_uint_eq(taken.bytes, ++count);
    ck_assert_uint_eq(count, page->count);

    message = (struct message){.type = MESSAGE_GRANT, .grant = {.page = {.data = data}}};
    page = &message.grant.page;
    while ((bytes = grant_put(data, page->data_bytes, sizeof(data), &extent)) > 0) {
        page->data_bytes += bytes;
        page->count++;
        extent.offset += 8;
    }
    ck_assert_uint_eq(page->count, MESSAGE_PAGE_MAX / 32);
    ck_assert_int_eq(decode(out, message_encode(&message, out)), COVEY_OK);
    for (offset = 0, count = 0; grant_take(page, &offset, &taken_extent); count++)
        ck_assert_uint_eq(taken_extent.offset, 8 * (uint64_t)count);
    ck_assert_uint_eq(count, page->count);
}
END_TEST

/* Extents of a grant ascend and do not overlap; empty ones are ordinary. */
START_TEST(test_extents_are_in_order)
{
    static const struct {
        struct grant_extent first, second;
        int result;
    } cases[] = {
        {{.offset = 0, .bytes = 8}, {.offset = 8, .bytes = 8}, COVEY_OK},
        {{.offset = 0, .bytes = 8}, {.offset = 7, .bytes = 8}, COVEY_PROTOCOL},
        {{.offset = 8, .bytes = 8}, {.offset = 0, .bytes = 8}, COVEY_PROTOCOL},
        {{.offset = 0, .bytes = 0}, {.offset = 0, .bytes = 0}, COVEY_OK},
        {{.offset = 0, .bytes = 8}, {.offset = 16, .bytes = UINT64_MAX - 16}, COVEY_OK},
    };
    uint8_t data[MESSAGE_MAX];
    size_t start = MESSAGE_HEADER_BYTES + 10, used = start;

    from_hex(vector_of(MESSAGE_GRANT)->hex, data);
    used += grant_put(data, used, sizeof(data), &cases[_i].first);
    used += grant_put(data, used, sizeof(data), &cases[_i].second);
    from_hex("0200", data + 22);
    set_length(data, used);
    ck_assert_int_eq(decode(data, used), cases[_i].result);
}
END_TEST

START_TEST(test_names_of_types)
{
    ck_assert_str_eq(message_name(MESSAGE_OFFER), "offer");
    ck_assert_str_eq(message_name(MESSAGE_TABLE), "table");
    ck_assert_str_eq(message_name(0), "unknown");
    ck_assert_str_eq(message_name(255), "unknown");
}
END_TEST

SUITE_MAIN("message", 60, SUITE_LOOP(test_every_type_has_a_vector_that_is_its_only_encoding, VECTORS),
           SUITE_TEST(test_offer_fields), SUITE_TEST(test_manifest_fields), SUITE_TEST(test_grant_fields),
           SUITE_TEST(test_reason_fields), SUITE_TEST(test_seal_and_table_fields),
           SUITE_TEST(test_held_have_and_want_fields), SUITE_TEST(test_a_table_is_the_clusters_or_a_groups),
           SUITE_LOOP(test_entries_are_checked, ENTRIES),
           SUITE_TEST(test_a_longer_name_than_any_is_no_removal), SUITE_TEST(test_immediate_layout),
           SUITE_LOOP(test_cut_at_every_byte_is_refused, VECTORS),
           SUITE_LOOP(test_shorter_body_is_refused_unless_its_text_is_shorter, VECTORS),
           SUITE_LOOP(test_mutations_are_refused_or_mean_something_else, VECTORS),
           SUITE_LOOP(test_field_out_of_range_is_refused, DAMAGES),
           SUITE_TEST(test_refused_message_leaves_the_output_alone),
           SUITE_TEST(test_too_many_members_or_bytes_are_refused),
           SUITE_TEST(test_block_count_is_bounded_exactly),
           SUITE_TEST(test_long_text_is_cut_between_characters),
           SUITE_TEST(test_full_pages_fit_into_a_message), SUITE_LOOP(test_extents_are_in_order, 5),
           SUITE_TEST(test_names_of_types))
