/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_LIB_SUITE_H
#define TESTS_LIB_SUITE_H

/* A unit test program in one line: SUITE_MAIN("bitmap", test_a, test_b). Loop tests (START_TEST with _i) go
 * in SUITE_LOOP(test, count), or SUITE_LONG(test, count, long_count) where there is more to find in more
 * rounds: COVEY_TEST_LONG in the environment asks for these (scripts/check long). */

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>

struct suite_test {
    const TTest *test;
    int loops;      /* 0: no loop */
    int long_loops; /* 0: the same */
};

#define SUITE_TEST(name) \
    {                    \
        name, 0, 0       \
    }
#define SUITE_LOOP(name, count) \
    {                           \
        name, count, 0          \
    }

#define SUITE_LONG(name, count, long_count) \
    {                                       \
        name, count, long_count             \
    }

static inline bool suite_is_long(void)
{
    return getenv("COVEY_TEST_LONG") != NULL;
}

static inline int suite_loops(const struct suite_test *test)
{
    return test->long_loops > 0 && suite_is_long() ? test->long_loops : test->loops;
}

static inline int suite_run(const char *name, const struct suite_test *tests, size_t count, double timeout)
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tcase, timeout);
    for (size_t i = 0; i < count; i++) {
        if (tests[i].loops == 0)
            tcase_add_test(tcase, tests[i].test);
        else
            tcase_add_loop_test(tcase, tests[i].test, 0, suite_loops(&tests[i]));
    }
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* seconds: the limit of one test, generous, for a stuck one only. */
#define SUITE_MAIN(name, seconds, ...)                                            \
    int main(void)                                                                \
    {                                                                             \
        const struct suite_test tests[] = {__VA_ARGS__};                          \
        return suite_run(name, tests, sizeof(tests) / sizeof(tests[0]), seconds); \
    }

#endif
