/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers as the covey command shows and takes them. */

#include "daemon/units.h"
#include "tests/lib/suite.h"

START_TEST(test_bytes_have_three_digits_and_a_binary_unit)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {1, "1 B"},
                 {1023, "1023 B"},
                 {1024, "1 KiB"},
                 {1536, "1.5 KiB"},
                 {10239, "10 KiB"},
                 {102400, "100 KiB"},
                 {1048575, "1 MiB"},
                 {(uint64_t)64 << 20, "64 MiB"},
                 {(uint64_t)5 << 30, "5 GiB"},
                 {UINT64_C(1234567890123), "1.12 TiB"},
                 {UINT64_MAX, "16 EiB"}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_str_eq(UNITS_BYTES(cases[i].bytes), cases[i].text);
}
END_TEST

START_TEST(test_seconds_choose_their_unit)
{
    ck_assert_str_eq(UNITS_SECONDS(0), "0 us");
    ck_assert_str_eq(UNITS_SECONDS(0.00000125), "1.25 us");
    ck_assert_str_eq(UNITS_SECONDS(0.0009994), "999 us");
    ck_assert_str_eq(UNITS_SECONDS(0.0009996), "1 ms");
    ck_assert_str_eq(UNITS_SECONDS(0.9996), "1 s");
    ck_assert_str_eq(UNITS_SECONDS(1.344), "1.34 s");
    ck_assert_str_eq(UNITS_SECONDS(59.99), "0:59 min");
    ck_assert_str_eq(UNITS_SECONDS(125), "2:05 min");
}
END_TEST

START_TEST(test_ages_have_two_units)
{
    const uint64_t second = UINT64_C(1000000000);

    ck_assert_str_eq(UNITS_AGE(0), "0s");
    ck_assert_str_eq(UNITS_AGE(59 * second), "59s");
    ck_assert_str_eq(UNITS_AGE(192 * second), "3m 12s");
    ck_assert_str_eq(UNITS_AGE(7500 * second), "2h 5m");
    ck_assert_str_eq(UNITS_AGE(349200 * second), "4d 1h");
}
END_TEST

START_TEST(test_rates_are_decimal)
{
    ck_assert_str_eq(UNITS_RATE(1.344), "1.34 GB/s");
    ck_assert_str_eq(UNITS_RATE(0.0125), "12.5 MB/s");
    ck_assert_str_eq(UNITS_RATE(0.0000125), "12.5 kB/s");
    ck_assert_str_eq(UNITS_RATE(381.6), "382 GB/s");
}
END_TEST

START_TEST(test_nouns_are_counted)
{
    ck_assert_str_eq(UNITS_COUNT(0, "buffer"), "0 buffers");
    ck_assert_str_eq(UNITS_COUNT(1, "buffer"), "1 buffer");
    ck_assert_str_eq(UNITS_COUNT(2, "buffer"), "2 buffers");
}
END_TEST

START_TEST(test_numbers_are_digits_in_their_range_and_nothing_else)
{
    static const char *const bad[] = {"",   "-1",  "+1",  " 1", "1 ",
                                      "1x", "0x1", "101", "0",  "18446744073709551616"};
    uint64_t number = 7;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!units_parse_number(bad[i], 1, 100, &number), "%s", bad[i]);
    ck_assert_uint_eq(number, 7);
    ck_assert(units_parse_number("1", 1, 100, &number));
    ck_assert_uint_eq(number, 1);
    ck_assert(units_parse_number("18446744073709551615", 0, UINT64_MAX, &number));
    ck_assert_uint_eq(number, UINT64_MAX);
}
END_TEST

SUITE_MAIN("units", 10, SUITE_TEST(test_bytes_have_three_digits_and_a_binary_unit),
           SUITE_TEST(test_seconds_choose_their_unit), SUITE_TEST(test_ages_have_two_units),
           SUITE_TEST(test_rates_are_decimal), SUITE_TEST(test_nouns_are_counted),
           SUITE_TEST(test_numbers_are_digits_in_their_range_and_nothing_else))
