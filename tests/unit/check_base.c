/* SPDX-License-Identifier: BSD-3-Clause */
/* The error list, fail sentences, bitmaps, the generator, log lines. */

#include <stdio.h>
#include <string.h>

#include "base/bitmap.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/text.h"
#include "tests/lib/suite.h"

START_TEST(test_every_error_has_its_own_number_name_and_text)
{
    static const int codes[] = {
#define CODE(name, number, text) COVEY_##name,
        COVEY_ERRORS(CODE)
#undef CODE
    };

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        ck_assert_int_lt(codes[i], 0);
        ck_assert_str_ne(covey_strerror(codes[i]), "unknown error");
        ck_assert_str_ne(covey_error_name(codes[i]), "UNKNOWN");
        for (size_t j = 0; j < i; j++) {
            ck_assert_int_ne(codes[i], codes[j]);
            ck_assert_str_ne(covey_strerror(codes[i]), covey_strerror(codes[j]));
        }
    }
    ck_assert_str_eq(covey_strerror(1), "unknown error");
    ck_assert_str_eq(covey_error_name(-9999), "UNKNOWN");
    ck_assert_str_eq(covey_error_name(0), "OK");
}
END_TEST

START_TEST(test_fail_prefix_keeps_code_and_sentence)
{
    struct fail fail = {0};

    ck_assert_int_eq(fail_set(&fail, COVEY_IO, "cannot read %s", "x"), COVEY_IO);
    ck_assert_int_eq(fail_prefix(&fail, "put %s: ", "model"), COVEY_IO);
    ck_assert_str_eq(fail.text, "put model: cannot read x");
    /* the text may be an argument of its own replacement */
    fail_set(&fail, COVEY_BUSY, "again: %s", fail.text);
    ck_assert_str_eq(fail.text, "again: put model: cannot read x");
}
END_TEST

START_TEST(test_fail_cuts_long_text)
{
    struct fail fail = {0};
    char longer[2 * FAIL_TEXT_MAX];

    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    fail_set(&fail, COVEY_IO, "%s", longer);
    ck_assert_uint_eq(strlen(fail.text), FAIL_TEXT_MAX - 1);
    fail_prefix(&fail, "%s", longer);
    ck_assert_uint_eq(strlen(fail.text), FAIL_TEXT_MAX - 1);
}
END_TEST

START_TEST(test_bitmap_next_finds_what_was_set)
{
    uint64_t words[BITMAP_WORDS(200)];

    bitmap_clear_all(words, 200);
    ck_assert_uint_eq(bitmap_next(words, 200, 0), 200);
    bitmap_set(words, 0);
    bitmap_set(words, 63);
    bitmap_set(words, 64);
    bitmap_set(words, 199);
    ck_assert_uint_eq(bitmap_next(words, 200, 0), 0);
    ck_assert_uint_eq(bitmap_next(words, 200, 1), 63);
    ck_assert_uint_eq(bitmap_next(words, 200, 64), 64);
    ck_assert_uint_eq(bitmap_next(words, 200, 65), 199);
    ck_assert_uint_eq(bitmap_next(words, 200, 200), 200);
    ck_assert_uint_eq(bitmap_count(words, 200), 4);
    bitmap_clear(words, 199);
    ck_assert_uint_eq(bitmap_next(words, 200, 65), 200);
}
END_TEST

START_TEST(test_bitmap_set_all_leaves_the_tail_clear)
{
    uint64_t words[2] = {0, 0};

    bitmap_set_all(words, 65);
    ck_assert_uint_eq(words[0], UINT64_MAX);
    ck_assert_uint_eq(words[1], 1);
    ck_assert_uint_eq(bitmap_count(words, 65), 65);
}
END_TEST

START_TEST(test_rng_repeats_with_its_seed_and_stays_below)
{
    struct rng a, b;

    rng_init(&a, 7);
    rng_init(&b, 7);
    for (int i = 0; i < 1000; i++) {
        uint64_t x = rng_below(&a, 10);
        ck_assert_uint_lt(x, 10);
        ck_assert_uint_eq(x, rng_below(&b, 10));
    }
}
END_TEST

START_TEST(test_text_whole_drops_a_character_that_is_cut_off)
{
    static const char text[] = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x90\xa6"; /* of 1, 2, 3 and 4 bytes */
    static const size_t whole[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10};

    for (size_t count = 0; count < sizeof(whole) / sizeof(whole[0]); count++)
        ck_assert_uint_eq(text_whole(text, count), whole[count]);
    ck_assert_uint_eq(text_whole("\x80\x80\x80\x80\x80", 5), 5); /* no UTF-8: left alone */
}
END_TEST

static void keep_line(void *context, enum covey_log_level level, const char *line)
{
    (void)level;
    snprintf(context, 64, "%s", line);
}

START_TEST(test_log_replaces_control_characters_and_drops_low_levels)
{
    char line[64] = "";
    struct log log = {.write = keep_line, .context = line, .level = COVEY_LOG_INFO};

    log_debug(&log, "hidden");
    ck_assert_str_eq(line, "");
    log_info(&log, "a%cb\n", 27);
    ck_assert_str_eq(line, "a?b?");
}
END_TEST

SUITE_MAIN("base", 60, SUITE_TEST(test_every_error_has_its_own_number_name_and_text),
           SUITE_TEST(test_fail_prefix_keeps_code_and_sentence), SUITE_TEST(test_fail_cuts_long_text),
           SUITE_TEST(test_text_whole_drops_a_character_that_is_cut_off),
           SUITE_TEST(test_bitmap_next_finds_what_was_set),
           SUITE_TEST(test_bitmap_set_all_leaves_the_tail_clear),
           SUITE_TEST(test_rng_repeats_with_its_seed_and_stays_below),
           SUITE_TEST(test_log_replaces_control_characters_and_drops_low_levels))
