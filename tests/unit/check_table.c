/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared-state table: what a reader sees of a row while it is being written. */

#include <pthread.h>
#include <string.h>

#include "core/table.h"
#include "tests/lib/suite.h"

#define SLOTS     3
#define MEMBERS   70
#define GROUPS    2
#define ROUNDS    20000

#define ROW_WORDS 2048 /* at least */

static struct table table;
static uint64_t slots_memory[SLOTS * ROW_WORDS], private_memory[(SLOTS + 1) * ROW_WORDS];

/* A table in which nothing was written. */
static void open_table(void)
{
    struct table_layout layout;

    table_layout_init(&layout, SLOTS, MEMBERS, GROUPS);
    ck_assert_uint_le(table_slots_bytes(&layout), sizeof(slots_memory));
    ck_assert_uint_le(table_private_bytes(&layout), sizeof(private_memory));
    memset(slots_memory, 0, sizeof(slots_memory));
    memset(private_memory, 0, sizeof(private_memory));
    table_init(&table, &layout, slots_memory, private_memory);
}

static uint64_t *live_row(uint32_t slot)
{
    return table.slots + (size_t)slot * table.layout.row_words;
}

START_TEST(test_columns_do_not_overlap)
{
    const struct table_layout *layout = &table.layout;

    open_table();
    ck_assert_uint_eq(layout->bitmap_words, 2);
    ck_assert_uint_ge(layout->candidates.offset, TABLE_LINKED + TABLE_JOINS);
    ck_assert_uint_eq(layout->banks, layout->candidates.offset + layout->candidates.words + 2);
    ck_assert_uint_eq(layout->accepted.offset, BANK_ACCEPTED);
    ck_assert_uint_eq(layout->received, layout->accepted.offset + layout->accepted.words + 2);
    ck_assert_uint_eq(layout->suspected, layout->received + GROUPS);
    ck_assert_uint_eq(layout->evicted, layout->suspected + layout->bitmap_words);
    ck_assert_uint_eq(layout->met, layout->evicted + layout->bitmap_words);
    ck_assert_uint_eq(layout->tag_head, layout->met + layout->bitmap_words);
    ck_assert_uint_eq(layout->bank_words, layout->tag_head + 1);
    ck_assert_uint_eq(layout->row_words, layout->banks + 2 * layout->bank_words);
    ck_assert_uint_eq(layout->accepted.words, 1 + view_words_max(MEMBERS, GROUPS));
}
END_TEST

START_TEST(test_a_guarded_column_is_unreadable_until_its_tail_is_there)
{
    const struct table_guarded *column = &table.layout.candidates;
    uint64_t *live;

    open_table();
    live = live_row(1);
    live[column->offset + column->words + 1] = 1;
    table_snapshot(&table, 1);
    ck_assert_ptr_null(table_guarded_words(table_row(&table, 1), column));
    live[column->offset + 1] = 77;
    live[column->offset] = 1;
    table_snapshot(&table, 1);
    ck_assert_uint_eq(table_guarded_words(table_row(&table, 1), column)[0], 77);
    /* the next update has begun: what was read stays, for its tail is the one that counts */
    live[column->offset + column->words + 1] = 2;
    live[column->offset + 1] = 78;
    table_snapshot(&table, 1);
    ck_assert_uint_eq(table_guarded_words(table_row(&table, 1), column)[0], 77);
}
END_TEST

START_TEST(test_a_missed_update_under_an_unfinished_one_is_unreadable_not_old)
{
    const struct table_guarded *column = &table.layout.accepted;
    const uint64_t *seen;
    uint64_t *live;

    open_table();
    live = live_row(0) + table.layout.banks;
    seen = table_row(&table, 0) + table.layout.banks;
    live[table.layout.tag_head] = live[BANK_TAG] = 1;
    live[column->offset] = live[column->offset + column->words + 1] = 1;
    table_snapshot(&table, 0);
    ck_assert_ptr_nonnull(table_guarded_words(seen, column));
    live[column->offset] = 2;
    live[column->offset + column->words + 1] = 3;
    table_snapshot(&table, 0);
    ck_assert_ptr_null(table_guarded_words(seen, column));
}
END_TEST

START_TEST(test_a_bank_in_preparation_says_nothing)
{
    const uint64_t *seen;
    uint64_t *live;

    open_table();
    live = live_row(0) + table.layout.banks;
    seen = table_row(&table, 0) + table.layout.banks;
    live[table.layout.tag_head] = live[BANK_TAG] = 3;
    live[BANK_EPOCH] = 9;
    table_snapshot(&table, 0);
    ck_assert(table_bank_is(seen, 9, 2));
    ck_assert(!table_bank_is(seen, 9, 4));
    ck_assert(!table_bank_is(seen, 8, 2));
    live[table.layout.tag_head] = 5;
    table_snapshot(&table, 0);
    ck_assert(!table_bank_is(seen, 9, 2));
    ck_assert(!table_bank_is(seen, 9, 4));
}
END_TEST

START_TEST(test_a_cleared_slot_knows_nothing_of_its_former_owner)
{
    open_table();
    memset(live_row(2), 0xab, table.layout.row_words * sizeof(uint64_t));
    table_snapshot(&table, 2);
    table_slot_clear(&table, 2);
    table_snapshot(&table, 2);
    for (uint32_t i = 0; i < table.layout.row_words; i++)
        ck_assert_uint_eq(table_row(&table, 2)[i], 0);
}
END_TEST

/* A writer as the fabric is: each write's words in any order, writes in the order of posting. */
static void *write_rounds(void *argument)
{
    const struct table_guarded *column = &table.layout.candidates;
    uint64_t *live = live_row(0) + column->offset;

    (void)argument;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        __atomic_store_n(live + column->words + 1, round, __ATOMIC_RELEASE);
        for (uint32_t i = column->words; i > 0; i--)
            __atomic_store_n(live + i, round, __ATOMIC_RELEASE);
        __atomic_store_n(live, round, __ATOMIC_RELEASE);
    }
    return NULL;
}

START_TEST(test_a_reader_never_sees_half_of_a_guarded_column)
{
    const struct table_guarded *column = &table.layout.candidates;
    pthread_t writer;
    uint64_t last = 0;

    open_table();
    ck_assert_int_eq(pthread_create(&writer, NULL, write_rounds, NULL), 0);
    while (last < ROUNDS) {
        const uint64_t *words;
        table_snapshot(&table, 0);
        words = table_guarded_words(table_row(&table, 0), column);
        if (words == NULL)
            continue;
        ck_assert_uint_ge(words[0], last);
        last = words[0];
        for (uint32_t i = 0; i < column->words; i++)
            ck_assert_uint_eq(words[i], last);
    }
    ck_assert_int_eq(pthread_join(writer, NULL), 0);
}
END_TEST

static struct view view, decoded;

static void make_view(void)
{
    view =
        (struct view){.epoch = 7, .number = 4294967300, .origin = 5, .first = 4294967299, .count = MEMBERS};
    for (uint32_t i = 0; i < MEMBERS; i++) {
        view.members[i] = (struct member){.id = i * 900, .incarnation = 1000 + i};
        memset(view.members[i].address, (int)i, VIEW_ADDRESS_BYTES);
    }
}

/* M09: numbers above 32 bits come back whole. */
START_TEST(test_a_value_comes_back_as_it_was)
{
    uint64_t words[VIEW_HEADER_WORDS + GROUPS + MEMBERS * VIEW_MEMBER_WORDS];
    uint64_t trim[GROUPS] = {12, VIEW_TRIM_NONE}, trim_back[GROUPS];

    make_view();
    ck_assert_uint_eq(view_encode(&view, trim, GROUPS, words), sizeof(words) / sizeof(words[0]));
    ck_assert_uint_eq(view_value_words(words, MEMBERS, GROUPS), sizeof(words) / sizeof(words[0]));
    ck_assert(view_decode(words, MEMBERS, GROUPS, &decoded, trim_back));
    ck_assert_uint_eq(decoded.number, 4294967300);
    ck_assert_uint_eq(view_parent_epoch(&decoded), 7);
    ck_assert_mem_eq(&decoded, &view, offsetof(struct view, members) + MEMBERS * sizeof(struct member));
    ck_assert_mem_eq(trim_back, trim, sizeof(trim));
    ck_assert_uint_eq(view_rank(&decoded, 1800, 1002), 2);
    ck_assert_uint_eq(view_rank(&decoded, 1800, 1003), VIEW_RANK_NONE);
    ck_assert_uint_eq(view_rank_of_id(&decoded, 1800), 2);
}
END_TEST

START_TEST(test_what_is_no_value_is_refused)
{
    uint64_t words[VIEW_HEADER_WORDS + GROUPS + MEMBERS * VIEW_MEMBER_WORDS];
    uint64_t trim[GROUPS] = {0}, before;
    uint32_t members = VIEW_HEADER_WORDS + GROUPS;
    const struct {
        uint32_t word;
        uint64_t value;
    } wrong[] = {{0, 0},                     /* epoch */
                 {1, 0},                     /* number */
                 {3, 0},                     /* first */
                 {3, 4294967301},            /* first after number */
                 {4, MEMBERS + 1},           /* count */
                 {4, UINT64_C(4) << 32 | 1}, /* unknown flag */
                 {4, UINT32_MAX},            /* count */
                 {members, 65536},           /* id out of range */
                 {members, 900},             /* id of the second member */
                 {members + 1, 0}};          /* incarnation */

    make_view();
    view_encode(&view, trim, GROUPS, words);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        before = words[wrong[i].word];
        words[wrong[i].word] = wrong[i].value;
        ck_assert_msg(!view_decode(words, MEMBERS, GROUPS, &decoded, trim), "case %zu", i);
        words[wrong[i].word] = before;
    }
    ck_assert(view_decode(words, MEMBERS, GROUPS, &decoded, trim));
    words[4] = UINT32_MAX;
    ck_assert_uint_eq(view_value_words(words, MEMBERS, GROUPS), 0);
}
END_TEST

SUITE_MAIN("table", 60, SUITE_TEST(test_columns_do_not_overlap),
           SUITE_TEST(test_a_guarded_column_is_unreadable_until_its_tail_is_there),
           SUITE_TEST(test_a_missed_update_under_an_unfinished_one_is_unreadable_not_old),
           SUITE_TEST(test_a_bank_in_preparation_says_nothing),
           SUITE_TEST(test_a_cleared_slot_knows_nothing_of_its_former_owner),
           SUITE_TEST(test_a_reader_never_sees_half_of_a_guarded_column),
           SUITE_TEST(test_a_value_comes_back_as_it_was), SUITE_TEST(test_what_is_no_value_is_refused))
