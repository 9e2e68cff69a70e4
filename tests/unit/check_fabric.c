/* SPDX-License-Identifier: BSD-3-Clause */
/* Conformance of a backend to fabric.h: two fabrics in one process. The environment chooses the provider; see
 * tests/lib/fabric_ends.h. */

#include <netinet/in.h>
#include <arpa/inet.h>
#include <dirent.h>
#include <linux/capability.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/rng.h"
#include "tests/lib/fabric_ends.h"

static const struct log quiet;

static void fill(uint8_t *bytes, size_t count, uint64_t seed)
{
    struct rng rng;

    rng_init(&rng, seed);
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)rng_next(&rng);
}

static void check_filled(const uint8_t *bytes, size_t count, uint64_t seed)
{
    struct rng rng;
    size_t same = 0;

    rng_init(&rng, seed);
    while (same < count && bytes[same] == (uint8_t)rng_next(&rng))
        same++;
    ck_assert_msg(same == count, "byte %zu of %zu differs", same, count);
}

static struct fabric_write immediate_alone(uint32_t immediate)
{
    return (struct fabric_write){.immediate = immediate};
}

/* --- Opening -------------------------------------------------------------------------------------------- */

START_TEST(test_open_fabric_says_what_it_is)
{
    uint8_t address[FABRIC_ADDRESS_MAX];
    struct host host;

    host_open(&host, NULL);
    ck_assert_str_eq(fabric_provider(host.fabric), ends_provider());
    ck_assert_uint_gt(fabric_address(host.fabric, address), 0);
    ck_assert_uint_le(fabric_address(host.fabric, address), FABRIC_ADDRESS_MAX);
    ck_assert_uint_ge(fabric_limits(host.fabric)->write_bytes, 1 << 20);
    ck_assert_uint_ge(fabric_limits(host.fabric)->outstanding, 8);
    ck_assert_int_ge(fabric_fd(host.fabric), 0);
    ck_assert(!host_drain(&host));
    ck_assert(fabric_arm(host.fabric));
    host_close(&host);
    fabric_close(NULL);
}
END_TEST

START_TEST(test_provider_that_is_not_there_is_unsupported)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct fabric_options options = {.provider = "no-such-provider",
                                           .address = (struct sockaddr *)&address,
                                           .address_bytes = sizeof(address),
                                           .log = &quiet};
    struct fabric *fabric = NULL;
    struct fail fail;

    ck_assert_int_eq(fabric_open(&options, &fabric, &fail), COVEY_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(fail.text, "no-such-provider"));
    ck_assert_ptr_null(fabric);
}
END_TEST

START_TEST(test_address_of_another_host_is_refused)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    const struct fabric_options options = {.provider = ends_provider(),
                                           .address = (struct sockaddr *)&address,
                                           .address_bytes = sizeof(address),
                                           .log = &quiet};
    struct fabric *fabric = NULL;
    struct fail fail;

    ck_assert_int_eq(inet_pton(AF_INET, "198.51.100.7", &address.sin_addr), 1);
    ck_assert_int_lt(fabric_open(&options, &fabric, &fail), 0);
    ck_assert_ptr_nonnull(strstr(fail.text, ends_provider()));
    ck_assert_ptr_null(fabric);
}
END_TEST

START_TEST(test_address_family_that_is_none_is_invalid)
{
    struct sockaddr address = {.sa_family = AF_UNIX};
    const struct fabric_options options = {
        .provider = ends_provider(), .address = &address, .address_bytes = sizeof(address), .log = &quiet};
    struct fabric *fabric = NULL;
    struct fail fail;

    ck_assert_int_eq(fabric_open(&options, &fabric, &fail), COVEY_INVALID);
}
END_TEST

/* --- Links ---------------------------------------------------------------------------------------------- */

START_TEST(test_both_lanes_come_up)
{
    struct host a, b;
    struct end from[FABRIC_LANES] = {0}, to[FABRIC_LANES] = {0};

    host_open(&a, NULL);
    host_open(&b, NULL);
    /* One token may serve both: lane and token together say which link it is. */
    for (int lane = 0; lane < FABRIC_LANES; lane++)
        ends_join(&a, &b, (enum fabric_lane)lane, 7, &from[lane], &to[lane]);
    for (int lane = 0; lane < FABRIC_LANES; lane++)
        HOSTS_UNTIL(&a, &b, from[lane].up && to[lane].up);
    for (int lane = 0; lane < FABRIC_LANES; lane++) {
        end_close(&from[lane], &b);
        end_close(&to[lane], &a);
    }
    host_close(&a);
    host_close(&b);
}
END_TEST

START_TEST(test_token_is_expected_once)
{
    struct host host;
    struct end end = {.host = &host};
    struct fabric_link *second = NULL;
    uint8_t token[FABRIC_TOKEN_BYTES];
    struct fail fail;

    host_open(&host, NULL);
    ends_token(3, token);
    ck_assert_int_eq(fabric_link_expect(host.fabric, FABRIC_CONTROL, token, &end, &end.link, &fail), 0);
    ck_assert_int_eq(fabric_link_expect(host.fabric, FABRIC_CONTROL, token, &end, &second, &fail),
                     COVEY_EXISTS);
    ck_assert_ptr_null(second);
    end_close(&end, NULL);
    host_close(&host);
}
END_TEST

enum stranger { OTHER_TOKEN, OTHER_LANE, TOKEN_USED, TOKEN_CLOSED, STRANGERS };

START_TEST(test_connection_without_the_right_token_is_refused)
{
    struct pair pair;
    struct end end = {.host = &pair.a}, waiting = {.host = &pair.b};
    uint8_t token[FABRIC_TOKEN_BYTES], address[FABRIC_ADDRESS_MAX];
    struct fabric_counters counters;
    struct fail fail;
    size_t bytes;

    pair_open(&pair, NULL); /* has used token 1 on the data lane */
    bytes = fabric_address(pair.b.fabric, address);
    ends_token(2, token);
    ck_assert_int_eq(fabric_link_expect(pair.b.fabric, FABRIC_CONTROL, token, &waiting, &waiting.link, &fail),
                     0);
    if (_i == TOKEN_CLOSED)
        end_close(&waiting, NULL);
    if (_i == OTHER_TOKEN || _i == TOKEN_USED)
        ends_token(_i == TOKEN_USED ? 1 : 99, token);
    ck_assert_int_eq(fabric_link_connect(pair.a.fabric,
                                         _i == OTHER_LANE || _i == TOKEN_USED ? FABRIC_DATA : FABRIC_CONTROL,
                                         address, bytes, token, &end, &end.link, &fail),
                     0);
    PAIR_UNTIL(&pair, end.down);
    ck_assert(!end.up);
    ck_assert_int_eq(end.error, COVEY_UNREACHABLE);
    fabric_counters(pair.b.fabric, &counters);
    ck_assert_uint_eq(counters.refused_connections, 1);
    end_free(&end);
    if (_i != TOKEN_CLOSED) {
        ck_assert(!waiting.up);
        end_close(&waiting, NULL);
    }
    pair_close(&pair);
}
END_TEST

/* The address of a fabric that is gone. */
START_TEST(test_connecting_to_nobody_ends)
{
    struct host a, gone;
    struct end end = {.host = &a};
    uint8_t token[FABRIC_TOKEN_BYTES], address[FABRIC_ADDRESS_MAX];
    struct fail fail;
    size_t bytes;

    host_open(&a, NULL);
    host_open(&gone, NULL);
    bytes = fabric_address(gone.fabric, address);
    host_close(&gone);
    ends_token(1, token);
    if (fabric_link_connect(a.fabric, FABRIC_DATA, address, bytes, token, &end, &end.link, &fail) == 0) {
        HOSTS_UNTIL(&a, NULL, end.down);
        ck_assert(!end.up);
        ck_assert_int_eq(end.error, COVEY_UNREACHABLE);
        end_free(&end);
    } else {
        ck_assert_int_eq(fail.code, COVEY_UNREACHABLE);
    }
    host_close(&a);
}
END_TEST

/* b is not driven, so nobody answers. */
START_TEST(test_connecting_without_an_answer_times_out)
{
    const struct fabric_options options = {.connect_timeout_ns = 300 * UINT64_C(1000000)};
    struct host a, b;
    struct end from = {0}, to = {0};

    host_open(&a, &options);
    host_open(&b, NULL);
    ends_join(&a, &b, FABRIC_DATA, 1, &from, &to);
    HOSTS_UNTIL(&a, NULL, from.down);
    ck_assert(!from.up);
    ck_assert_int_eq(from.error, COVEY_UNREACHABLE);
    end_free(&from);
    fabric_link_close(to.link);
    HOSTS_UNTIL(&a, &b, to.down);
    end_free(&to);
    host_close(&a);
    host_close(&b);
}
END_TEST

START_TEST(test_malformed_address_is_invalid)
{
    uint8_t token[FABRIC_TOKEN_BYTES] = {0}, address[FABRIC_ADDRESS_MAX] = {0};
    struct fabric_link *link = NULL;
    struct host host;
    struct fail fail;

    host_open(&host, NULL);
    for (size_t bytes = 0; bytes <= FABRIC_ADDRESS_MAX; bytes++) {
        memset(address, (int)bytes * 37, sizeof(address));
        ck_assert_int_eq(
            fabric_link_connect(host.fabric, FABRIC_DATA, address, bytes, token, NULL, &link, &fail),
            COVEY_INVALID);
    }
    ck_assert_ptr_null(link);
    host_close(&host);
}
END_TEST

START_TEST(test_posts_before_up_and_after_close_say_peer_lost)
{
    const struct fabric_write write = immediate_alone(1);
    struct host a, b;
    struct end from = {0}, to = {0};

    host_open(&a, NULL);
    host_open(&b, NULL);
    ends_join(&a, &b, FABRIC_DATA, 1, &from, &to);
    ck_assert_int_eq(fabric_write(from.link, &write), COVEY_PEER_LOST);
    ck_assert_int_eq(fabric_send(to.link, "x", 1), COVEY_PEER_LOST);
    HOSTS_UNTIL(&a, &b, from.up && to.up);
    fabric_link_close(from.link);
    fabric_link_close(from.link);
    ck_assert_int_eq(fabric_write(from.link, &write), COVEY_PEER_LOST);
    ck_assert_int_eq(fabric_send(from.link, "x", 1), COVEY_PEER_LOST);
    HOSTS_UNTIL(&a, &b, from.down && to.down);
    ck_assert_int_eq(from.error, 0);
    ck_assert_int_eq(to.error, COVEY_PEER_LOST);
    ck_assert_int_eq(fabric_write(to.link, &write), COVEY_PEER_LOST);
    end_free(&from);
    end_free(&to);
    host_close(&a);
    host_close(&b);
}
END_TEST

/* Connecting, waiting, accepting: a close at any moment ends in LINK_DOWN at both. */
START_TEST(test_close_while_connecting)
{
    struct host a, b;
    struct end from = {0}, to = {0};

    host_open(&a, NULL);
    host_open(&b, NULL);
    ends_join(&a, &b, FABRIC_DATA, 1, &from, &to);
    for (int step = 0; step < _i / 2; step++) {
        host_drain(&a);
        host_drain(&b);
    }
    fabric_link_close(_i % 2 == 0 ? from.link : to.link);
    HOSTS_UNTIL(_i % 2 == 0 ? &a : &b, NULL, _i % 2 == 0 ? from.down : to.down); /* the other does not help */
    fabric_link_close(from.link);
    fabric_link_close(to.link);
    HOSTS_UNTIL(&a, &b, from.down && to.down);
    end_free(&from);
    end_free(&to);
    host_close(&a);
    host_close(&b);
}
END_TEST

START_TEST(test_links_come_again_after_either_side_closed)
{
    struct pair pair;

    pair_open(&pair, NULL);
    for (int round = 0; round < 20; round++) {
        struct fabric_write write = immediate_alone((uint32_t)round);

        pair_write(&pair, &write);
        PAIR_UNTIL(&pair, pair.to.immediates.count == 1);
        ck_assert_uint_eq(pair.to.immediates.at[0], (uint64_t)round);
        fabric_link_close(round % 2 == 0 ? pair.from.link : pair.to.link);
        PAIR_UNTIL(&pair, pair.from.down && pair.to.down);
        ck_assert_int_eq((round % 2 == 0 ? pair.from : pair.to).error, 0);
        ck_assert_int_eq((round % 2 == 0 ? pair.to : pair.from).error, COVEY_PEER_LOST);
        end_free(&pair.from);
        end_free(&pair.to);
        ends_join(round % 3 == 0 ? &pair.b : &pair.a, round % 3 == 0 ? &pair.a : &pair.b, FABRIC_DATA,
                  (uint64_t)round + 2, round % 3 == 0 ? &pair.to : &pair.from,
                  round % 3 == 0 ? &pair.from : &pair.to);
        PAIR_UNTIL(&pair, pair.from.up && pair.to.up);
    }
    pair_close(&pair);
}
END_TEST

#define LINKS 48

START_TEST(test_many_links_keep_apart)
{
    struct end from[LINKS] = {0}, to[LINKS] = {0};
    struct host a, b;

    host_open(&a, NULL);
    host_open(&b, NULL);
    for (int i = 0; i < LINKS; i++)
        ends_join(&a, &b, (enum fabric_lane)(i % 2), (uint64_t)i, &from[i], &to[i]);
    for (int i = 0; i < LINKS; i++)
        HOSTS_UNTIL(&a, &b, from[i].up && to[i].up);
    for (int i = 0; i < LINKS; i++) {
        const struct fabric_write write = immediate_alone((uint32_t)i);

        ck_assert_int_eq(fabric_write(from[i].link, &write), 0);
        ck_assert_int_eq(fabric_send(to[i].link, &i, sizeof(i)), 0);
    }
    for (int i = 0; i < LINKS; i++) {
        HOSTS_UNTIL(&a, &b, to[i].immediates.count == 1 && from[i].lengths.count == 1);
        ck_assert_uint_eq(to[i].immediates.at[0], (uint64_t)i);
        ck_assert_mem_eq(from[i].bytes, &i, sizeof(i));
    }
    for (int i = 0; i < LINKS; i++)
        fabric_link_close(i % 2 == 0 ? from[i].link : to[i].link);
    for (int i = 0; i < LINKS; i++) {
        HOSTS_UNTIL(&a, &b, from[i].down && to[i].down);
        end_free(&from[i]);
        end_free(&to[i]);
    }
    host_close(&a);
    host_close(&b);
}
END_TEST

/* --- Writes --------------------------------------------------------------------------------------------- */

/* "A write may become visible piece by piece and must be looked at only after its immediate, or that of a
 * later write on the link, has arrived: data and the counter that guards it are two writes, data first." */
#define PAIRS      2000
#define SLOT_BYTES 4096

static void check_slot(struct end *end, const struct fabric_event *event)
{
    const struct target *target = end->user;

    if (event->type != FABRIC_ARRIVED)
        return;
    ck_assert_uint_lt(event->immediate, PAIRS);
    check_filled(target->base + (event->immediate % 64) * SLOT_BYTES, SLOT_BYTES,
                 event->immediate / 64 * 64 + event->immediate % 64);
}

START_TEST(test_data_is_there_when_its_flag_arrives)
{
    struct target source, target;
    struct pair pair;

    pair_open(&pair, NULL);
    target_open(&source, &pair.a, 64 * SLOT_BYTES, false);
    target_open(&target, &pair.b, 64 * SLOT_BYTES, true);
    pair.to.on_event = check_slot;
    pair.to.user = &target;
    for (uint32_t i = 0; i < PAIRS; i++) {
        size_t offset = (i % 64) * SLOT_BYTES;
        struct fabric_write data = target_write(&source, &target, offset, SLOT_BYTES),
                            flag = immediate_alone(i);

        if (i >= 64) /* the slot is free once its former data were looked at */
            PAIR_UNTIL(&pair, pair.to.immediates.count > i - 64 && pair.from.cookies.count > i - 64);
        fill(source.base + offset, SLOT_BYTES, i);
        flag.signalled = true;
        pair_write(&pair, &data);
        pair_write(&pair, &flag);
    }
    PAIR_UNTIL(&pair, pair.to.immediates.count == PAIRS && pair.from.cookies.count == PAIRS);
    for (uint32_t i = 0; i < PAIRS; i++)
        ck_assert_uint_eq(pair.to.immediates.at[i], i);
    target_close(&source);
    target_close(&target);
    pair_close(&pair);
}
END_TEST

/* What the table relies on: on the control lane a word that is read while it is written over is the old one
 * or the new one, wherever the wire cuts the stream. The reader is a thread of its own; messages of odd sizes
 * between the writes move the cuts into words. */
enum { WORDS = FABRIC_WORDS_MAX / 8, WORD_WRITES = 30000, WORD_ROUND = 16 };

struct reader {
    struct pair *pair;
    const struct target *target;
    atomic_bool stop;
    uint64_t torn; /* words */
};

static uint64_t uniform_word(uint64_t number)
{
    return (number & 0xff) * UINT64_C(0x0101010101010101);
}

static void *read_words(void *argument)
{
    struct reader *reader = argument;
    const uint64_t *words = (const uint64_t *)reader->target->base;

    while (!reader->stop) {
        host_poll(&reader->pair->b);
        for (size_t i = 0; i < WORDS; i++) {
            uint64_t word = __atomic_load_n(&words[i], __ATOMIC_ACQUIRE);

            reader->torn += word != uniform_word(word);
        }
    }
    return NULL;
}

static void write_words(struct pair *pair, struct target *source, const struct target *target)
{
    for (uint32_t i = 0; i < WORD_WRITES; i++) {
        struct fabric_write write = target_write(source, target, 0, WORDS * sizeof(uint64_t));

        if (i % WORD_ROUND == 0) {
            while (pair->from.cookies.count < i / WORD_ROUND)
                host_poll(&pair->a);
            for (size_t word = 0; word < WORDS; word++)
                ((uint64_t *)source->base)[word] = uniform_word(i / WORD_ROUND + 1);
        }
        write.signalled = i % WORD_ROUND == WORD_ROUND - 1;
        while (fabric_send(pair->from.link, source->base, 1 + i % 13) == COVEY_AGAIN)
            host_poll(&pair->a);
        while (fabric_write(pair->from.link, &write) == COVEY_AGAIN)
            host_poll(&pair->a);
    }
    while (pair->from.cookies.count < WORD_WRITES / WORD_ROUND)
        host_poll(&pair->a);
}

START_TEST(test_words_are_never_torn)
{
    struct target source, target;
    struct pair pair;
    struct reader reader = {.pair = &pair, .target = &target};
    pthread_t thread;

    pair_open_lane(&pair, FABRIC_CONTROL, NULL);
    pair.to.forgets = true;
    target_open(&source, &pair.a, WORDS * sizeof(uint64_t), false);
    target_open(&target, &pair.b, WORDS * sizeof(uint64_t), true);
    ck_assert_int_eq(pthread_create(&thread, NULL, read_words, &reader), 0);
    write_words(&pair, &source, &target);
    reader.stop = true;
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_uint_eq(reader.torn, 0);
    target_close(&source);
    target_close(&target);
    pair_close(&pair);
}
END_TEST

START_TEST(test_writes_of_all_sizes_touch_exactly_their_bytes)
{
    static const size_t sizes[] = {1,     2,     7,     64,     127,     128,           129,    255,   256,
                                   257,   4095,  4096,  4097,   8999,    9000,          9001,   16384, 65535,
                                   65536, 65537, 99999, 262144, 1 << 20, (1 << 20) + 1, 4194304};
    const size_t room = (4 << 20) + 128;
    struct target source, target;
    struct pair pair;

    pair_open(&pair, NULL);
    target_open(&source, &pair.a, room, false);
    target_open(&target, &pair.b, room, true);
    fill(source.base, room, 5);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct fabric_write write = target_write(&source, &target, 63, sizes[i]);

        memset(target.base, 0xee, sizes[i] + 128);
        write.immediate = (uint32_t)(0xfffffff0 + i);
        write.signalled = true;
        write.cookie = UINT64_MAX - i;
        pair_write(&pair, &write);
        PAIR_UNTIL(&pair, pair.to.immediates.count == i + 1 && pair.from.cookies.count == i + 1);
        ck_assert_uint_eq(pair.to.immediates.at[i], (uint32_t)(0xfffffff0 + i));
        ck_assert_uint_eq(pair.from.cookies.at[i], UINT64_MAX - i);
        ck_assert(memcmp(target.base + 63, source.base + 63, sizes[i]) == 0);
        ck_assert_uint_eq(target.base[62], 0xee);
        ck_assert_uint_eq(target.base[63 + sizes[i]], 0xee);
    }
    target_close(&source);
    target_close(&target);
    pair_close(&pair);
}
END_TEST

START_TEST(test_pieces_are_gathered_in_order)
{
    static const size_t lengths[][FABRIC_PIECES_MAX] = {{1},
                                                        {0, 5},
                                                        {3, 0, 9},
                                                        {1, 2, 3, 4},
                                                        {0, 0, 0, 0},
                                                        {5000, 1, 70000, 33},
                                                        {0, 128, 0, 1},
                                                        {65536, 65536, 65536, 65536}};
    const size_t room = 1 << 20;
    struct target source, target;
    struct pair pair;

    pair_open(&pair, NULL);
    target_open(&source, &pair.a, room, false);
    target_open(&target, &pair.b, room, true);
    fill(source.base, room, 6);
    for (uint32_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct fabric_piece pieces[FABRIC_PIECES_MAX];
        struct fabric_write write = {.pieces = pieces,
                                     .count = FABRIC_PIECES_MAX,
                                     .remote_address = target.address + 1000,
                                     .remote_key = target.key,
                                     .immediate = i};
        size_t at = 0;

        for (size_t p = 0; p < FABRIC_PIECES_MAX; p++) /* from scattered places, last first */
            pieces[p] = (struct fabric_piece){
                .base = source.base + (3 - p) * 200000, .bytes = lengths[i][p], .region = source.region};
        pair_write(&pair, &write);
        PAIR_UNTIL(&pair, pair.to.immediates.count == i + 1);
        for (size_t p = 0; p < FABRIC_PIECES_MAX; p++) {
            ck_assert(memcmp(target.base + 1000 + at, pieces[p].base, pieces[p].bytes) == 0);
            at += pieces[p].bytes;
        }
    }
    target_close(&source);
    target_close(&target);
    pair_close(&pair);
}
END_TEST

START_TEST(test_requests_outside_the_limits_are_invalid)
{
    const struct fabric_options options = {.write_bytes_limit = 65536};
    static uint8_t message[FABRIC_MESSAGE_MAX + 1];
    struct fabric_piece pieces[FABRIC_PIECES_MAX + 1];
    struct fabric_write write = {.pieces = pieces, .immediate = FABRIC_IMMEDIATE_NONE};
    struct target source, target;
    struct pair pair;

    pair_open(&pair, &options);
    target_open(&source, &pair.a, 1 << 20, false);
    target_open(&target, &pair.b, 1 << 20, true);
    write.remote_address = target.address;
    write.remote_key = target.key;
    for (size_t i = 0; i <= FABRIC_PIECES_MAX; i++)
        pieces[i] = (struct fabric_piece){.base = source.base, .bytes = 16384, .region = source.region};
    ck_assert_uint_eq(fabric_limits(pair.a.fabric)->write_bytes, 65536);

    write.count = FABRIC_PIECES_MAX + 1;
    ck_assert_int_eq(fabric_write(pair.from.link, &write), COVEY_INVALID);
    write.count = FABRIC_PIECES_MAX;
    ck_assert_int_eq(fabric_write(pair.from.link, &write), 0);
    pieces[0].bytes++;
    ck_assert_int_eq(fabric_write(pair.from.link, &write), COVEY_INVALID);
    pieces[0].bytes = SIZE_MAX;
    ck_assert_int_eq(fabric_write(pair.from.link, &write), COVEY_INVALID);
    write.count = 0;
    write.immediate = UINT64_C(1) << 32;
    ck_assert_int_eq(fabric_write(pair.from.link, &write), COVEY_INVALID);
    ck_assert_int_eq(fabric_send(pair.from.link, message, 0), COVEY_INVALID);
    ck_assert_int_eq(fabric_send(pair.from.link, message, sizeof(message)), COVEY_INVALID);
    ck_assert_int_eq(fabric_send(pair.from.link, message, FABRIC_MESSAGE_MAX), 0);
    PAIR_UNTIL(&pair, pair.to.lengths.count == 1);
    target_close(&source);
    target_close(&target);
    pair_close(&pair);
}
END_TEST

/* Nothing of the sender's is polled: at some point there is no more room, and a poll makes some. */
START_TEST(test_posts_beyond_the_outstanding_ask_to_come_again)
{
    bool signalled = _i % 2 == 0, message = _i / 2 == 1;
    struct target source, target;
    uint64_t posted = 0, limit;
    struct pair pair;
    int error = 0;

    pair_open(&pair, NULL);
    limit = fabric_limits(pair.a.fabric)->outstanding;
    target_open(&source, &pair.a, 65536, false);
    target_open(&target, &pair.b, 65536, true);
    for (int round = 0; round < 20; round++) {
        for (uint64_t burst = 0; burst <= limit; burst++) {
            struct fabric_write write = target_write(&source, &target, 0, 64);

            write.signalled = signalled;
            write.cookie = posted;
            error = message ? fabric_send(pair.from.link, &posted, sizeof(posted))
                            : fabric_write(pair.from.link, &write);
            if (error != 0)
                break;
            posted++;
        }
        ck_assert_int_eq(error, COVEY_AGAIN);
        PAIR_UNTIL(&pair, fabric_send(pair.from.link, "?", 1) == 0);
    }
    PAIR_UNTIL(&pair, pair.to.lengths.count == 20 + (message ? posted : 0));
    if (signalled && !message) {
        PAIR_UNTIL(&pair, pair.from.cookies.count == posted);
        for (uint64_t i = 0; i < posted; i++)
            ck_assert_uint_eq(pair.from.cookies.at[i], i);
    } else {
        ck_assert_uint_eq(pair.from.cookies.count, 0);
    }
    target_close(&source);
    target_close(&target);
    pair_close(&pair);
}
END_TEST

/* Writes and messages of one link become visible in posting order, whatever their sizes. */
START_TEST(test_mixed_posts_arrive_in_order)
{
    enum { POSTS = 3000 };
    uint8_t *message = malloc(FABRIC_MESSAGE_MAX);
    struct target source, target;
    struct pair pair;
    struct rng rng;

    rng_init(&rng, (uint64_t)_i);
    pair_open(&pair, NULL);
    pair.a.max_events = pair.b.max_events = _i == 0 ? 1 : 64;
    target_open(&source, &pair.a, 1 << 18, false);
    target_open(&target, &pair.b, 1 << 18, true);
    for (uint32_t i = 0; i < POSTS; i++) {
        size_t bytes = (size_t)1 << rng_below(&rng, 15);

        bytes = 1 + (size_t)rng_below(&rng, bytes);
        if (rng_below(&rng, 2) == 0) {
            fill(message, bytes, i);
            pair_send(&pair, message, bytes);
        } else {
            struct fabric_write write =
                target_write(&source, &target, 0, rng_below(&rng, 3) == 0 ? 0 : bytes);

            write.immediate = i;
            write.signalled = rng_below(&rng, 2) == 0;
            write.cookie = i;
            pair_write(&pair, &write);
        }
    }
    PAIR_UNTIL(&pair, pair.to.immediates.count + pair.to.lengths.count == POSTS);
    for (size_t i = 1; i < pair.to.immediates.count; i++)
        ck_assert_uint_lt(pair.to.immediates.at[i - 1], pair.to.immediates.at[i]);
    for (size_t i = 1; i < pair.from.cookies.count; i++)
        ck_assert_uint_lt(pair.from.cookies.at[i - 1], pair.from.cookies.at[i]);
    target_close(&source);
    target_close(&target);
    pair_close(&pair);
    free(message);
}
END_TEST

START_TEST(test_messages_of_all_sizes_arrive_whole)
{
    static const size_t sizes[] = {1, 2, 127, 128, 129, 255, 256, 257, 1000, 4096, 8999, 9001, 16383, 16384};
    uint8_t *message = malloc(FABRIC_MESSAGE_MAX);
    struct pair pair;
    size_t at = 0;

    pair_open(&pair, NULL);
    for (int round = 0; round < 30; round++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            fill(message, sizes[i], i);
            pair_send(&pair, message, sizes[i]);
            memset(message, 0, sizes[i]); /* it was copied */
        }
    }
    PAIR_UNTIL(&pair, pair.to.lengths.count == 30 * sizeof(sizes) / sizeof(sizes[0]));
    for (size_t i = 0; i < pair.to.lengths.count; i++) {
        ck_assert_uint_eq(pair.to.lengths.at[i], sizes[i % (sizeof(sizes) / sizeof(sizes[0]))]);
        check_filled(pair.to.bytes + at, pair.to.lengths.at[i], i % (sizeof(sizes) / sizeof(sizes[0])));
        at += pair.to.lengths.at[i];
    }
    pair_close(&pair);
    free(message);
}
END_TEST

/* --- The end -------------------------------------------------------------------------------------------- */

/* Whatever was posted before the close is received, though the peer itself sends without end and is not
 * listened to. */
START_TEST(test_what_was_posted_before_close_is_received)
{
    uint8_t *flood = calloc(1, FABRIC_MESSAGE_MAX);
    struct target source, target;
    struct pair pair;

    pair_open(&pair, NULL);
    target_open(&source, &pair.a, 1 << 20, false);
    target_open(&target, &pair.b, 1 << 20, true);
    for (int i = 0; i < 500 && fabric_send(pair.to.link, flood, FABRIC_MESSAGE_MAX) == 0; i++)
        host_drain(&pair.b);
    for (uint32_t i = 0; i < 20; i++) {
        struct fabric_write write = target_write(&source, &target, 0, 50000);

        write.immediate = i;
        ck_assert_int_eq(fabric_write(pair.from.link, &write), 0);
        ck_assert_int_eq(fabric_send(pair.from.link, &i, sizeof(i)), 0);
    }
    fabric_link_close(pair.from.link);
    PAIR_UNTIL(&pair, pair.from.down && pair.to.down);
    ck_assert_uint_eq(pair.to.immediates.count, 20);
    ck_assert_uint_eq(pair.to.lengths.count, 20);
    ck_assert_int_eq(pair.to.error, COVEY_PEER_LOST);
    ck_assert_uint_eq(pair.from.lengths.count, 0); /* nothing but LINK_DOWN after the close */
    end_free(&pair.from);
    end_free(&pair.to);
    target_close(&source);
    target_close(&target);
    host_close(&pair.a);
    host_close(&pair.b);
    free(flood);
}
END_TEST

/* A closed link's memory is not written any more, and what was under way does not reach the next link. */
START_TEST(test_close_under_fire_stops_the_peers_writes)
{
    struct target source, target;
    struct pair pair;

    pair_open(&pair, NULL);
    target_open(&source, &pair.a, 1 << 20, false);
    target_open(&target, &pair.b, 1 << 20, true);
    memset(source.base, 1, source.bytes);
    for (uint64_t round = 0; round < 4; round++) {
        struct fabric_write write = target_write(&source, &target, 0, 1 << 20);

        write.immediate = (uint32_t)round;
        while (fabric_write(pair.from.link, &write) == 0)
            continue;
        host_drain(&pair.b);
        fabric_link_close(pair.to.link);
        HOSTS_UNTIL(&pair.b, NULL, pair.to.down);
        memset(target.base, 0, target.bytes);
        PAIR_UNTIL(&pair, pair.from.down);
        ck_assert(target.base[0] == 0 && memcmp(target.base, target.base + 1, target.bytes - 1) == 0);
        end_free(&pair.from);
        end_free(&pair.to);
        ends_join(&pair.a, &pair.b, FABRIC_DATA, round + 2, &pair.from, &pair.to);
        PAIR_UNTIL(&pair, pair.from.up && pair.to.up);
        ck_assert_uint_eq(pair.to.immediates.count, 0);
    }
    target_close(&source);
    target_close(&target);
    pair_close(&pair);
}
END_TEST

START_TEST(test_both_ends_close_at_once)
{
    struct pair pair;

    pair_open(&pair, NULL);
    fabric_link_close(pair.from.link);
    fabric_link_close(pair.to.link);
    PAIR_UNTIL(&pair, pair.from.down && pair.to.down);
    ck_assert_int_eq(pair.from.error, 0);
    ck_assert_int_eq(pair.to.error, 0);
    end_free(&pair.from);
    end_free(&pair.to);
    host_close(&pair.a);
    host_close(&pair.b);
}
END_TEST

/* --- Memory --------------------------------------------------------------------------------------------- */

enum wild { KEY_GONE, KEY_WRONG, PAST_END, NOT_REMOTE, WILD };

/* A write to what was not granted changes nothing and takes the link down, and no more than that. */
START_TEST(test_write_to_what_is_not_registered_ends_the_link)
{
    struct target source, target, neighbour;
    struct fabric_write write;
    const enum fabric_lane lane = _i < WILD ? FABRIC_DATA : FABRIC_CONTROL;
    const enum wild wild = (enum wild)(_i % WILD);
    struct pair pair;

    pair_open_lane(&pair, lane, NULL);
    target_open(&source, &pair.a, 1 << 20, false);
    target_open(&target, &pair.b, 1 << 16, wild != NOT_REMOTE);
    target_open(&neighbour, &pair.b, 1 << 16, true);
    write = target_write(&source, &target, 0, 1 << 12);
    memset(source.base, 1, source.bytes);
    if (wild == KEY_GONE)
        fabric_deregister(target.region);
    if (wild == KEY_WRONG)
        write.remote_key ^= 0x5a5a00;
    if (wild == PAST_END)
        write.remote_address += target.bytes - 1;
    pair_write(&pair, &write);
    PAIR_UNTIL(&pair, pair.from.down && pair.to.down);
    ck_assert_int_eq(pair.from.error, COVEY_PEER_LOST);
    ck_assert(target.base[0] == 0 && memcmp(target.base, target.base + 1, target.bytes - 1) == 0);
    end_free(&pair.from);
    end_free(&pair.to);

    ends_join(&pair.a, &pair.b, lane, 2, &pair.from, &pair.to);
    PAIR_UNTIL(&pair, pair.from.up && pair.to.up);
    write = target_write(&source, &neighbour, 0, 1 << 12);
    write.immediate = 9;
    pair_write(&pair, &write);
    PAIR_UNTIL(&pair, pair.to.immediates.count == 1);
    ck_assert(memcmp(source.base, neighbour.base, 1 << 12) == 0);
    if (wild == KEY_GONE)
        munmap(target.base, target.bytes);
    else
        target_close(&target);
    target_close(&neighbour);
    target_close(&source);
    pair_close(&pair);
}
END_TEST

/* Memory is registered and deregistered while links are up and idle; a key is never given twice. */
START_TEST(test_registration_comes_and_goes_under_a_link)
{
    struct target source, target;
    uint64_t last_key = 0;
    struct pair pair;

    pair_open(&pair, NULL);
    target_open(&source, &pair.a, 1 << 16, false);
    fill(source.base, source.bytes, 8);
    for (uint32_t i = 0; i < 50; i++) {
        struct fabric_write write;

        target_open(&target, &pair.b, 1 << 16, true);
        ck_assert(i == 0 || target.key != last_key);
        last_key = target.key;
        write = target_write(&source, &target, 0, 1 << 16);
        write.immediate = i;
        pair_write(&pair, &write);
        PAIR_UNTIL(&pair, pair.to.immediates.count == i + 1);
        ck_assert(memcmp(source.base, target.base, 1 << 16) == 0);
        target_close(&target);
    }
    target_close(&source);
    pair_close(&pair);
}
END_TEST

START_TEST(test_other_kinds_of_memory_are_refused_or_registered)
{
    struct fabric_region *region = NULL;
    struct host host;
    struct fail fail;
    char byte;

    host_open(&host, NULL);
    ck_assert_int_eq(
        fabric_register(host.fabric, &byte, 1, COVEY_MEMORY_CUDA_MANAGED, 0, true, &region, &fail),
        COVEY_UNSUPPORTED);
    ck_assert_ptr_null(region);
    host_close(&host);
}
END_TEST

/* The capability that lifts the limit of locked memory. */
static void drop_ipc_lock(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];

    ck_assert_int_eq(syscall(SYS_capget, &header, data), 0);
    data[CAP_IPC_LOCK / 32].effective &= ~(UINT32_C(1) << CAP_IPC_LOCK % 32);
    ck_assert_int_eq(syscall(SYS_capset, &header, data), 0);
}

/* The sentence names the need, the limit and how to raise it. */
START_TEST(test_limit_of_locked_memory_is_named)
{
    const struct rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    const size_t bytes = 16 << 20;
    struct fabric_region *region = NULL;
    struct host host;
    struct fail fail;
    void *memory;

    host_open(&host, NULL);
    if (!fabric_needs_local(host.fabric)) {
        fprintf(stderr, "skipped: provider %s pins no memory\n", ends_provider());
        host_close(&host);
        return;
    }
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    drop_ipc_lock();
    ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    ck_assert_int_eq(fabric_register(host.fabric, memory, bytes, COVEY_MEMORY_HOST, 0, true, &region, &fail),
                     COVEY_NO_MEMORY);
    ck_assert_ptr_null(region);
    ck_assert_ptr_nonnull(strstr(fail.text, "16777216 bytes"));
    ck_assert_ptr_nonnull(strstr(fail.text, "limit of locked memory is 1048576"));
    ck_assert_ptr_nonnull(strstr(fail.text, "ulimit -l"));
    host_close(&host);
    munmap(memory, bytes);
}
END_TEST

/* Offsets at and past 4 GiB, as far as the backend can register so much. */
START_TEST(test_offsets_past_4_gib)
{
    const uint64_t four_gib = UINT64_C(1) << 32;
    const uint64_t offsets[] = {0, four_gib - 1000, four_gib - 1, four_gib, four_gib + 1, four_gib + 12345};
    struct target source, target;
    struct pair pair;

    pair_open(&pair, NULL);
    if (fabric_needs_local(pair.a.fabric)) {
        fprintf(stderr, "skipped: provider %s pins memory, and this takes 4 GiB\n", ends_provider());
        pair_close(&pair);
        return;
    }
    target_open(&source, &pair.a, 1000, false);
    target_open(&target, &pair.b, four_gib + 65536, true);
    for (uint32_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        struct fabric_write write = target_write(&source, &target, 0, 1000);

        fill(source.base, 1000, i);
        write.remote_address = target.address + offsets[i];
        write.immediate = i;
        pair_write(&pair, &write);
        PAIR_UNTIL(&pair, pair.to.immediates.count == i + 1);
        check_filled(target.base + offsets[i], 1000, i);
    }
    target_close(&source);
    target_close(&target);
    pair_close(&pair);
}
END_TEST

/* --- Sleep and surroundings ----------------------------------------------------------------------------- */

static bool readable(const struct host *host, int timeout_ms)
{
    struct pollfd fd = {.fd = fabric_fd(host->fabric), .events = POLLIN};

    return poll(&fd, 1, timeout_ms) == 1;
}

static void sleep_ready(struct host *host)
{
    do
        host_drain(host);
    while (!fabric_arm(host->fabric));
}

/* b sleeps; whatever a does wakes it, and only that. */
START_TEST(test_sleeper_is_woken_by_each_kind_of_arrival)
{
    struct target source, target;
    struct pair pair;

    pair_open(&pair, NULL);
    target_open(&source, &pair.a, 1 << 16, false);
    target_open(&target, &pair.b, 1 << 16, true);
    for (uint32_t i = 0; i < 60; i++) {
        struct fabric_write write = target_write(&source, &target, 0, i % 3 == 0 ? 0 : 4000);
        size_t before = pair.to.immediates.count + pair.to.lengths.count;

        write.immediate = i;
        PAIR_UNTIL(&pair, !host_drain(&pair.a) && !host_drain(&pair.b));
        sleep_ready(&pair.b);
        ck_assert_msg(!readable(&pair.b, 0), "awake without a reason");
        if (i % 3 == 2)
            pair_send(&pair, "wake", 4);
        else
            pair_write(&pair, &write);
        while (pair.to.immediates.count + pair.to.lengths.count == before) {
            ck_assert_msg(readable(&pair.b, ENDS_PATIENCE_MS), "slept through arrival %u", i);
            sleep_ready(&pair.b);
            host_drain(&pair.a);
        }
    }
    sleep_ready(&pair.b);
    fabric_link_close(pair.from.link);
    while (!pair.to.down) {
        ck_assert_msg(readable(&pair.b, ENDS_PATIENCE_MS), "slept through the end");
        sleep_ready(&pair.b);
        host_drain(&pair.a);
    }
    PAIR_UNTIL(&pair, pair.from.down);
    end_free(&pair.from);
    end_free(&pair.to);
    target_close(&source);
    target_close(&target);
    host_close(&pair.a);
    host_close(&pair.b);
}
END_TEST

/* Idle links ask for nothing: in a second the loop turns a few times at most. */
START_TEST(test_idle_fabric_sleeps)
{
    const uint64_t until_ms = ends_now_ms() + 500;
    struct pair pair;
    int turns = 0;

    pair_open(&pair, NULL);
    PAIR_UNTIL(&pair, !host_drain(&pair.a) && !host_drain(&pair.b));
    for (; ends_now_ms() < until_ms; turns++) {
        struct pollfd fds[] = {{.fd = fabric_fd(pair.a.fabric), .events = POLLIN},
                               {.fd = fabric_fd(pair.b.fabric), .events = POLLIN}};

        sleep_ready(&pair.a);
        sleep_ready(&pair.b);
        poll(fds, 2, 100);
    }
    ck_assert_int_le(turns, 20);
    pair_close(&pair);
}
END_TEST

static int descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    ck_assert_ptr_nonnull(folder);
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

START_TEST(test_nothing_is_left_after_close)
{
    struct pair pair;
    int before = 0;

    for (int round = 0; round < 5; round++) {
        pair_open(&pair, NULL);
        pair_close(&pair);
        if (round == 0)
            before = descriptors();
    }
    if (strcmp(ends_provider(), "ofi:verbs") != 0)
        ck_assert_int_eq(descriptors(), before);
    else
        fprintf(stderr, "not checked: what libfabric itself keeps with provider %s\n", ends_provider());
}
END_TEST

/* Too few descriptors: a sentence instead of a fabric, and nothing left behind. */
START_TEST(test_open_without_descriptors_fails_whole)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct fabric_options options = {.provider = "tcp",
                                           .address = (struct sockaddr *)&address,
                                           .address_bytes = sizeof(address),
                                           .log = &quiet};
    const rlim_t before = (rlim_t)descriptors() - 3; /* without ".", ".." and the folder's own */
    struct rlimit limit;
    int opened = 0;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    for (rlim_t room = 0; room < 16; room++) {
        struct fabric *fabric;
        struct fail fail;

        limit.rlim_cur = before + room;
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
        if (fabric_open(&options, &fabric, &fail) == 0) {
            fabric_close(fabric);
            opened++;
        } else {
            ck_assert_int_lt(fail.code, 0);
            ck_assert_ptr_nonnull(strstr(fail.text, "tcp"));
        }
        limit.rlim_cur = limit.rlim_max;
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
        ck_assert_int_eq(descriptors() - 3, before);
    }
    ck_assert_int_gt(opened, 0);
    ck_assert_int_lt(opened, 16);
}
END_TEST

START_TEST(test_counters_count)
{
    struct fabric_counters a, b;
    struct target source, target;
    struct pair pair;

    pair_open(&pair, NULL);
    target_open(&source, &pair.a, 1 << 16, false);
    target_open(&target, &pair.b, 1 << 16, true);
    for (uint32_t i = 0; i < 10; i++) {
        struct fabric_write write = target_write(&source, &target, 0, 1000);

        write.immediate = i;
        pair_write(&pair, &write);
        pair_send(&pair, "x", 1);
    }
    PAIR_UNTIL(&pair, pair.to.lengths.count == 10);
    fabric_counters(pair.a.fabric, &a);
    fabric_counters(pair.b.fabric, &b);
    ck_assert_uint_eq(a.writes, 10);
    ck_assert_uint_eq(a.written_bytes, 10000);
    ck_assert_uint_eq(a.messages, 10);
    ck_assert_uint_eq(b.arrivals, 10);
    ck_assert_uint_eq(a.errors + b.errors + a.refused_connections + b.refused_connections, 0);
    target_close(&source);
    target_close(&target);
    pair_close(&pair);
}
END_TEST

static void nothing(int number)
{
    (void)number;
}

/* Signals that interrupt system calls are not failures. */
START_TEST(test_signals_disturb_nothing)
{
    const struct itimerval fast = {.it_interval.tv_usec = 500, .it_value.tv_usec = 500},
                           never = {{0, 0}, {0, 0}};
    const struct sigaction action = {.sa_handler = nothing};
    struct target source, target;
    struct pair pair;

    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &fast, NULL);
    pair_open(&pair, NULL);
    target_open(&source, &pair.a, 1 << 20, false);
    target_open(&target, &pair.b, 1 << 20, true);
    fill(source.base, source.bytes, 3);
    for (uint32_t i = 0; i < 100; i++) {
        struct fabric_write write = target_write(&source, &target, 0, 1 << 20);

        write.immediate = i;
        pair_write(&pair, &write);
    }
    PAIR_UNTIL(&pair, pair.to.immediates.count == 100);
    ck_assert(memcmp(source.base, target.base, 1 << 20) == 0);
    setitimer(ITIMER_REAL, &never, NULL);
    target_close(&source);
    target_close(&target);
    pair_close(&pair);
}
END_TEST

/* The application's signals are its own. */
START_TEST(test_no_signal_disposition_changes)
{
    struct sigaction before[65], after;
    struct pair pair;

    for (int number = 1; number < 65; number++)
        sigaction(number, NULL, &before[number]);
    pair_open(&pair, NULL);
    for (int number = 1; number < 65; number++) {
        if (sigaction(number, NULL, &after) == 0)
            ck_assert_msg(after.sa_handler == before[number].sa_handler, "signal %d", number);
    }
    pair_close(&pair);
}
END_TEST

int main(void)
{
    const struct suite_test tests[] = {
        SUITE_TEST(test_open_fabric_says_what_it_is),
        SUITE_TEST(test_provider_that_is_not_there_is_unsupported),
        SUITE_TEST(test_address_of_another_host_is_refused),
        SUITE_TEST(test_address_family_that_is_none_is_invalid),
        SUITE_TEST(test_both_lanes_come_up),
        SUITE_TEST(test_token_is_expected_once),
        SUITE_LOOP(test_connection_without_the_right_token_is_refused, STRANGERS),
        SUITE_TEST(test_connecting_to_nobody_ends),
        SUITE_TEST(test_connecting_without_an_answer_times_out),
        SUITE_TEST(test_malformed_address_is_invalid),
        SUITE_TEST(test_posts_before_up_and_after_close_say_peer_lost),
        SUITE_LOOP(test_close_while_connecting, 12),
        SUITE_TEST(test_links_come_again_after_either_side_closed),
        SUITE_TEST(test_many_links_keep_apart),
        SUITE_TEST(test_data_is_there_when_its_flag_arrives),
        SUITE_TEST(test_words_are_never_torn),
        SUITE_TEST(test_writes_of_all_sizes_touch_exactly_their_bytes),
        SUITE_TEST(test_pieces_are_gathered_in_order),
        SUITE_TEST(test_requests_outside_the_limits_are_invalid),
        SUITE_LOOP(test_posts_beyond_the_outstanding_ask_to_come_again, 4),
        SUITE_LOOP(test_mixed_posts_arrive_in_order, 3),
        SUITE_TEST(test_messages_of_all_sizes_arrive_whole),
        SUITE_TEST(test_what_was_posted_before_close_is_received),
        SUITE_TEST(test_close_under_fire_stops_the_peers_writes),
        SUITE_TEST(test_both_ends_close_at_once),
        SUITE_LOOP(test_write_to_what_is_not_registered_ends_the_link, FABRIC_LANES * WILD),
        SUITE_TEST(test_registration_comes_and_goes_under_a_link),
        SUITE_TEST(test_other_kinds_of_memory_are_refused_or_registered),
        SUITE_TEST(test_limit_of_locked_memory_is_named),
        SUITE_TEST(test_offsets_past_4_gib),
        SUITE_TEST(test_sleeper_is_woken_by_each_kind_of_arrival),
        SUITE_TEST(test_idle_fabric_sleeps),
        SUITE_TEST(test_nothing_is_left_after_close),
        SUITE_TEST(test_open_without_descriptors_fails_whole),
        SUITE_TEST(test_counters_count),
        SUITE_TEST(test_signals_disturb_nothing),
        SUITE_TEST(test_no_signal_disposition_changes),
    };

    ends_load();
    return ends_run("fabric", tests, sizeof(tests) / sizeof(tests[0]), 120);
}
