/* SPDX-License-Identifier: BSD-3-Clause */
/* Loading, printing and copying a configuration when memory runs out: each allocation of Covey's fails once,
 * and the result is COVEY_NO_MEMORY with nothing written and nothing lost (the sanitizers and valgrind look).
 *
 * Linked with --wrap, so that only calls from Covey's own objects come here, not libconfig's. */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/load.h"
#include "tests/lib/suite.h"

#define NEVER SIZE_MAX

static size_t allocations_left = NEVER; /* until one fails; NEVER: none does */

static bool may_allocate(void)
{
    if (allocations_left == NEVER)
        return true;
    if (allocations_left == 0)
        return false;
    allocations_left--;
    return true;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t bytes)
{
    return may_allocate() ? __real_malloc(bytes) : NULL;
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return may_allocate() ? __real_calloc(count, bytes) : NULL;
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    return may_allocate() ? __real_realloc(memory, bytes) : NULL;
}

char *__wrap_strdup(const char *text)
{
    return may_allocate() ? __real_strdup(text) : NULL;
}

static int resolve(const char *name, struct address *address, struct fail *fail)
{
    (void)name;
    (void)address;
    return fail_set(fail, COVEY_NOT_FOUND, "no names here");
}

static int addresses(struct address **list, size_t *count, struct fail *fail)
{
    *list = calloc(1, sizeof(**list));
    if (*list == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "out of memory");
    (*list)->v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a000001)};
    (*list)->bytes = sizeof((*list)->v4);
    *count = 1;
    return 0;
}

static int read_file(const char *path, size_t max_bytes, char **bytes, size_t *count, struct stat *status,
                     struct fail *fail)
{
    static const char secret[] = "a secret that is long enough";

    (void)path;
    (void)max_bytes;
    *bytes = strdup(secret);
    if (*bytes == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "out of memory");
    *count = strlen(secret);
    *status = (struct stat){.st_mode = S_IFREG | 0600};
    return 0;
}

static const struct host host = {resolve, addresses, read_file};

#define NODES                                                        \
    "nodes: ( { id = 0; name = \"n0\"; address = \"10.0.0.1:1\"; }," \
    "{ id = 1; name = \"n1\"; address = \"10.0.0.2:1\"; } );\n"
#define GOOD                                                             \
    "cluster: { name = \"demo\"; secret_file = \"/secret\"; };\n" NODES  \
    "fabric: { provider = \"tcp\"; }; control: { socket = \"/%n\"; };\n" \
    "groups: ( { name = \"g\"; members = ( \"n1\", \"n0\" ); memory = \"cuda\"; }, { name = \"h\"; } );\n"

static const char *const texts[] = {
    GOOD,
    GOOD "node: { id = 2; name = \"e\"; address = \"10.0.0.3:1\"; };\n",
    /* mistakes of each kind, so that reporting them runs out of memory, too */
    "cluster: { nam = 1; heartbeat = true; secret_file = \"x\"; };\n" NODES
    "groups: ( { name = 5; members = 3; } );",
    "cluster: { name = \"demo\"; };\n" NODES "node: { id = 0; name = \"n0\"; address = \"x\"; };",
    "cluster: { a = ; b = c; };\n};",
};
#define TEXTS           ((int)(sizeof(texts) / sizeof(texts[0])))
#define GOOD_ONES       2

#define ALLOCATIONS_MAX 1000 /* more than any of them takes */

/* Load with the nth allocation failing. */
static int load(const char *text, size_t nth, struct covey_options **options, char **errors)
{
    int error;

    *options = NULL;
    *errors = NULL;
    allocations_left = nth;
    error = options_load_text("t.conf", text, strlen(text), NULL, &host, options, errors);
    allocations_left = NEVER;
    return error;
}

START_TEST(test_load_survives_every_failed_allocation)
{
    int last = _i < GOOD_ONES ? 0 : COVEY_CONFIG;
    struct covey_options *options;
    size_t nth = 0;
    char *errors;
    int error;

    while ((error = load(texts[_i], nth, &options, &errors)) == COVEY_NO_MEMORY) {
        ck_assert_ptr_null(options);
        ck_assert_ptr_null(errors);
        ck_assert_uint_lt(++nth, ALLOCATIONS_MAX);
    }
    ck_assert_int_eq(error, last);
    ck_assert_uint_gt(nth, 5);
    covey_options_free(options);
    free(errors);
}
END_TEST

START_TEST(test_text_and_copy_survive_every_failed_allocation)
{
    struct covey_options *options, *copy = NULL;
    char *errors, *text = NULL;
    size_t nth = 0;

    ck_assert_int_eq(load(texts[_i], NEVER, &options, &errors), 0);
    while (copy == NULL) {
        allocations_left = nth++;
        copy = options_copy(options);
        allocations_left = NEVER;
        ck_assert_uint_lt(nth, ALLOCATIONS_MAX);
    }
    ck_assert_uint_gt(nth, 10);
    for (nth = 0; text == NULL; nth++) {
        int error;

        allocations_left = nth;
        error = covey_options_text(copy, &text);
        allocations_left = NEVER;
        ck_assert_int_eq(error, text == NULL ? COVEY_NO_MEMORY : 0);
        ck_assert_uint_lt(nth, ALLOCATIONS_MAX);
    }
    free(text);
    covey_options_free(options);
    covey_options_free(copy);
}
END_TEST

SUITE_MAIN("config memory", 60, SUITE_LOOP(test_load_survives_every_failed_allocation, TEXTS),
           SUITE_LOOP(test_text_and_copy_survive_every_failed_allocation, GOOD_ONES))
