/* SPDX-License-Identifier: BSD-3-Clause */
/* The order of a group among members whose pushes arrive when the test says so. Histories with faults are in
 * tests/sim. */

#include <stdlib.h>
#include <string.h>

#include <covey/error.h>

#include "core/order.h"
#include "tests/lib/suite.h"

#define MEMBERS 4
#define RING    1024
#define KIND    5

static const struct order_config config = {.members_max = MEMBERS, .ring_bytes = RING};

struct member_lab {
    struct order *order;
    void *memory;
    char *row;
    char *peers[MEMBERS];          /* what the others write */
    uint32_t pushes, pushed_bytes; /* by this member */
};

static struct member_lab lab[MEMBERS];
static uint32_t members;

static void *allocate(size_t bytes)
{
    void *memory = aligned_alloc(16, (bytes + 15) / 16 * 16);

    ck_assert_ptr_nonnull(memory);
    memset(memory, 0, bytes);
    return memory;
}

static void bind_all(void)
{
    for (uint32_t at = 0; at < members; at++) {
        for (uint32_t peer = 0; peer < members; peer++) {
            if (peer == at)
                continue;
            order_bind(lab[at].order, peer, lab[at].peers[peer]);
            order_link(lab[at].order, peer);
        }
    }
}

static void enter_all(uint64_t number, uint64_t position)
{
    for (uint32_t at = 0; at < members; at++)
        order_enter(lab[at].order, number, members, at, position);
    bind_all();
}

static void open_lab(uint32_t count)
{
    members = count;
    for (uint32_t at = 0; at < members; at++) {
        lab[at] = (struct member_lab){.memory = allocate(order_bytes(&config)),
                                      .row = allocate(order_row_bytes(&config))};
        lab[at].order = order_init(&config, lab[at].memory, lab[at].row);
        for (uint32_t peer = 0; peer < members; peer++)
            lab[at].peers[peer] = allocate(order_row_bytes(&config));
    }
    enter_all(1, 0);
}

static void close_lab(void)
{
    for (uint32_t at = 0; at < members; at++) {
        for (uint32_t peer = 0; peer < members; peer++)
            free(lab[at].peers[peer]);
        free(lab[at].memory);
        free(lab[at].row);
    }
}

/* What `from` has to say becomes visible at `to`. Returns whether it had anything to say. */
static bool push_to(uint32_t from, uint32_t to)
{
    struct order_push push;
    char *there = lab[to].peers[from];

    if (!order_push(lab[from].order, to, &push))
        return false;
    lab[from].pushes++;
    for (uint32_t i = 0; i < push.range_count; i++) {
        memcpy(there + push.ranges[i].offset, lab[from].row + push.ranges[i].offset, push.ranges[i].bytes);
        lab[from].pushed_bytes += push.ranges[i].bytes;
    }
    memcpy(there + push.words_offset, push.words, sizeof(push.words));
    ck_assert_int_eq(order_look(lab[to].order, from), 0);
    return true;
}

/* One way: everyone pushes to everyone, then everyone looks. Returns whether anything was pushed. */
static bool one_way(void)
{
    bool any = false;

    for (uint32_t from = 0; from < members; from++) {
        for (uint32_t to = 0; to < members; to++)
            any = (to != from && push_to(from, to)) || any;
    }
    for (uint32_t at = 0; at < members; at++)
        order_advance(lab[at].order);
    return any;
}

static void settle(void)
{
    while (one_way())
        ;
}

static void send_text(uint32_t from, const char *text)
{
    ck_assert_int_eq(order_send(lab[from].order, KIND, text, (uint32_t)strlen(text)), 0);
    order_advance(lab[from].order);
}

static void expect(uint32_t at, uint64_t position, uint32_t rank, const char *text)
{
    struct order_entry entry;

    ck_assert(order_next(lab[at].order, &entry));
    ck_assert_uint_eq(entry.position, position);
    ck_assert_uint_eq(entry.rank, rank);
    ck_assert_uint_eq(entry.kind, KIND);
    ck_assert_uint_eq(entry.bytes, strlen(text));
    ck_assert_int_eq(memcmp(entry.data, text, entry.bytes), 0);
}

static void expect_nothing(uint32_t at)
{
    struct order_entry entry;

    ck_assert(!order_next(lab[at].order, &entry));
}

START_TEST(test_rounds_come_before_ranks)
{
    open_lab(3);
    settle();
    send_text(2, "a");
    send_text(1, "b");
    send_text(1, "c");
    send_text(0, "d");
    settle();
    for (uint32_t at = 0; at < 3; at++) {
        expect(at, 1, 0, "d");
        expect(at, 2, 1, "b");
        expect(at, 3, 2, "a");
        expect(at, 4, 1, "c");
        expect_nothing(at);
    }
    close_lab();
}
END_TEST

/* Two one-way delays from send to stable everywhere, for every sender that goes on sending; and a null never
 * costs a push of its own. */
START_TEST(test_one_sender_waits_for_two_one_way_delays)
{
    uint32_t sender = (uint32_t)_i;

    open_lab(4);
    settle();
    send_text(sender, "the first one");
    settle();
    for (int i = 0; i < 20; i++) {
        uint64_t before = order_stable(lab[0].order);
        uint32_t pushes = lab[0].pushes + lab[1].pushes + lab[2].pushes + lab[3].pushes;

        send_text(sender, "one");
        ck_assert(one_way());
        ck_assert(one_way());
        for (uint32_t at = 0; at < 4; at++) {
            struct order_entry entry;

            ck_assert_uint_eq(order_stable(lab[at].order), before + 1);
            while (order_next(lab[at].order, &entry))
                ;
        }
        ck_assert(!one_way());
        pushes = lab[0].pushes + lab[1].pushes + lab[2].pushes + lab[3].pushes - pushes;
        ck_assert_uint_eq(pushes, 3 + 3 * 3);
    }
    close_lab();
}
END_TEST

START_TEST(test_who_has_nothing_to_say_pushes_nothing)
{
    open_lab(3);
    settle();
    ck_assert(!one_way());
    send_text(1, "x");
    settle();
    ck_assert(!one_way());
    close_lab();
}
END_TEST

START_TEST(test_many_entries_are_one_push_of_their_bytes_only)
{
    open_lab(2);
    settle();
    for (int i = 0; i < 10; i++)
        send_text(0, "0123456789");
    lab[0].pushes = lab[0].pushed_bytes = 0;
    ck_assert(push_to(0, 1));
    ck_assert(!push_to(0, 1));
    ck_assert_uint_eq(lab[0].pushes, 1);
    ck_assert_uint_eq(lab[0].pushed_bytes, 10 * 32);
    close_lab();
}
END_TEST

START_TEST(test_nothing_is_delivered_that_one_member_has_not)
{
    open_lab(3);
    settle();
    send_text(0, "x");
    push_to(0, 1);
    order_advance(lab[1].order);
    for (int i = 0; i < 3; i++) {
        push_to(0, 1);
        push_to(1, 0);
        order_advance(lab[0].order);
        order_advance(lab[1].order);
    }
    ck_assert_uint_eq(order_received(lab[1].order), 1);
    expect_nothing(0);
    expect_nothing(1);
    settle();
    expect(0, 1, 0, "x");
    expect(1, 1, 0, "x");
    expect(2, 1, 0, "x");
    close_lab();
}
END_TEST

/* T25: the largest entry, one byte more, and more than anyone has. */
START_TEST(test_an_entry_has_a_largest_size)
{
    uint32_t most = order_entry_bytes_max(&config);
    char *data = allocate(most + 1);
    struct order_entry entry;

    open_lab(2);
    settle();
    ck_assert_uint_eq(most, RING / 8 * 3 - 16);
    ck_assert_int_eq(order_send(lab[0].order, KIND, data, most + 1), COVEY_TOO_LARGE);
    ck_assert_int_eq(order_send(lab[0].order, KIND, data, UINT32_MAX), COVEY_TOO_LARGE);
    ck_assert_int_eq(order_send(lab[0].order, KIND, data, most), 0);
    ck_assert_int_eq(order_send(lab[0].order, KIND, NULL, 0), 0);
    order_advance(lab[0].order);
    settle();
    ck_assert(order_next(lab[1].order, &entry));
    ck_assert_uint_eq(entry.bytes, most);
    ck_assert(order_next(lab[1].order, &entry));
    ck_assert_uint_eq(entry.bytes, 0);
    free(data);
    close_lab();
}
END_TEST

static uint32_t take_all(uint32_t at)
{
    struct order_entry entry;
    uint32_t count = 0;

    while (order_next(lab[at].order, &entry))
        count++;
    return count;
}

/* Whatever was sent before, and however little is said about what was delivered: once everything is, the
 * largest entry fits. */
START_TEST(test_the_largest_entry_fits_once_what_is_before_it_is_delivered)
{
    char data[RING] = {0};
    uint32_t most = order_entry_bytes_max(&config), sent = 0, taken[2] = {0, 0};

    open_lab(2);
    for (uint32_t i = 0; i < 3000; i++) {
        uint32_t bytes = i % 7 == 0 ? most : i * 37 % (most + 1);

        ck_assert_int_eq(order_send(lab[0].order, KIND, data, bytes), 0);
        sent++;
        order_advance(lab[0].order);
        for (int ways = 0; ways < 4; ways++) {
            one_way();
            taken[0] += take_all(0);
            taken[1] += take_all(1);
        }
        ck_assert_uint_eq(taken[0], sent);
        ck_assert_uint_eq(taken[1], sent);
    }
    close_lab();
}
END_TEST

START_TEST(test_a_full_ring_waits_for_the_slowest_member)
{
    char data[100] = {0};
    uint32_t sent = 0;

    open_lab(3);
    settle();
    while (order_send(lab[0].order, KIND, data, sizeof(data)) == 0)
        sent++;
    ck_assert_uint_eq(sent, RING / 128);
    order_advance(lab[0].order);
    settle();
    ck_assert_uint_eq(take_all(0), sent);
    ck_assert_uint_eq(take_all(1), sent);
    settle();
    ck_assert_int_eq(order_send(lab[0].order, KIND, data, sizeof(data)), COVEY_AGAIN);
    ck_assert_uint_eq(take_all(2), sent);
    settle();
    ck_assert_int_eq(order_send(lab[0].order, KIND, data, sizeof(data)), 0);
    close_lab();
}
END_TEST

static void next_view(uint64_t number, uint64_t trim)
{
    for (uint32_t at = 0; at < members; at++) {
        order_wedge(lab[at].order);
        order_trim(lab[at].order, trim);
    }
    for (uint32_t at = 0; at < members; at++)
        take_all(at);
    enter_all(number, trim);
}

/* Rank 1 has both messages of rank 0, rank 2 the first one only. */
START_TEST(test_what_the_trim_leaves_out_goes_on_in_the_next_view_once)
{
    open_lab(3);
    settle();
    send_text(0, "first");
    settle();
    for (uint32_t at = 0; at < 3; at++)
        expect(at, 1, 0, "first");
    send_text(0, "second");
    send_text(2, "another");
    push_to(0, 1);
    order_advance(lab[1].order);
    next_view(2, 1);
    settle();
    for (uint32_t at = 0; at < 3; at++) {
        expect(at, 2, 0, "second");
        expect(at, 3, 2, "another");
        expect_nothing(at);
    }
    next_view(3, 3);
    settle();
    for (uint32_t at = 0; at < 3; at++)
        expect_nothing(at);
    close_lab();
}
END_TEST

/* A late write of view 1 is still on its way when view 3 has the same bank. */
START_TEST(test_words_of_an_older_view_say_nothing)
{
    struct order_push late;

    open_lab(2);
    settle();
    send_text(0, "late");
    ck_assert(order_push(lab[0].order, 1, &late));
    next_view(2, 0);
    settle();
    take_all(0);
    take_all(1);
    next_view(3, 1);
    memcpy(lab[1].peers[0] + late.words_offset, late.words, sizeof(late.words));
    ck_assert_int_eq(order_look(lab[1].order, 0), 0);
    order_advance(lab[1].order);
    ck_assert_uint_eq(order_received(lab[1].order), 1);
    settle();
    expect_nothing(1);
    close_lab();
}
END_TEST

START_TEST(test_wedged_it_takes_and_says_nothing)
{
    struct order_push push;

    open_lab(2);
    settle();
    send_text(0, "x");
    order_wedge(lab[1].order);
    push_to(0, 1);
    order_advance(lab[1].order);
    ck_assert_uint_eq(order_received(lab[1].order), 0);
    ck_assert_int_eq(order_send(lab[1].order, KIND, "y", 1), COVEY_AGAIN);
    ck_assert(!order_push(lab[1].order, 0, &push));
    close_lab();
}
END_TEST

START_TEST(test_alone_a_member_delivers_at_once)
{
    open_lab(1);
    send_text(0, "x");
    expect(0, 1, 0, "x");
    close_lab();
}
END_TEST

/* What stands in a row in place of entries. */
START_TEST(test_what_is_no_entry_is_refused)
{
    static const struct {
        uint32_t bytes;
        uint8_t kind;
        uint64_t round;
    } wrong[] = {
        {RING, KIND, 0},    /* longer than the longest */
        {400, KIND, 0},     /* past what was published */
        {UINT32_MAX, 0, 0}, /* fills the ring up, past what was published */
        {1, KIND, 7},       /* of a round that is still open */
        {UINT32_MAX, KIND, 0},
    };
    char *row;
    struct order_push push;

    open_lab(2);
    settle();
    send_text(0, "right");
    ck_assert(order_push(lab[0].order, 1, &push));
    row = lab[1].peers[0];
    memcpy(row + push.words_offset, push.words, sizeof(push.words));
    memcpy(row + push.ranges[0].offset, &wrong[_i].bytes, 4);
    row[push.ranges[0].offset + 4] = (char)wrong[_i].kind;
    memcpy(row + push.ranges[0].offset + 8, &wrong[_i].round, 8);
    ck_assert_int_eq(order_look(lab[1].order, 0), COVEY_PROTOCOL);
    order_advance(lab[1].order);
    ck_assert_uint_eq(order_received(lab[1].order), 0);
    ck_assert_int_eq(order_look(lab[1].order, 0), COVEY_PROTOCOL);
    close_lab();
}
END_TEST

SUITE_MAIN("order", 60, SUITE_TEST(test_rounds_come_before_ranks),
           SUITE_LOOP(test_one_sender_waits_for_two_one_way_delays, 4),
           SUITE_TEST(test_who_has_nothing_to_say_pushes_nothing),
           SUITE_TEST(test_many_entries_are_one_push_of_their_bytes_only),
           SUITE_TEST(test_nothing_is_delivered_that_one_member_has_not),
           SUITE_TEST(test_an_entry_has_a_largest_size),
           SUITE_TEST(test_the_largest_entry_fits_once_what_is_before_it_is_delivered),
           SUITE_TEST(test_a_full_ring_waits_for_the_slowest_member),
           SUITE_TEST(test_what_the_trim_leaves_out_goes_on_in_the_next_view_once),
           SUITE_TEST(test_words_of_an_older_view_say_nothing),
           SUITE_TEST(test_wedged_it_takes_and_says_nothing),
           SUITE_TEST(test_alone_a_member_delivers_at_once), SUITE_LOOP(test_what_is_no_entry_is_refused, 5))
