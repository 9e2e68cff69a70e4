/* SPDX-License-Identifier: BSD-3-Clause */
/* Versions, references, the budget, lent memory, digests. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/digest.h"
#include "store/store.h"
#include "tests/lib/suite.h"

#define MIB (UINT64_C(1) << 20)

static struct {
    int forgotten; /* regions unmapped */
    int given_back;
    char last_given_back[COVEY_NAME_MAX + 1];
} seen;

static void forget(void *context, struct region *region)
{
    (void)context;
    (void)region;
    seen.forgotten++;
}

static void give_back(void *context, struct object *object)
{
    (void)context;
    seen.given_back++;
    snprintf(seen.last_given_back, sizeof(seen.last_given_back), "%s", object->name);
}

static struct store *open_store(uint64_t budget_bytes, uint32_t keep_versions)
{
    struct store_config config = {.memory = COVEY_MEMORY_HOST,
                                  .budget_bytes = budget_bytes,
                                  .keep_versions = keep_versions,
                                  .forget = forget,
                                  .give_back = give_back};
    struct fail fail = {0};
    struct store *store;

    memset(&seen, 0, sizeof(seen));
    ck_assert_int_eq(store_open(&config, &store, &fail), 0);
    return store;
}

static struct object *new_object(struct store *store, const char *name, uint64_t bytes)
{
    struct covey_buffer buffer = {.bytes = bytes};
    struct fail fail = {0};
    struct object *object;

    ck_assert_msg(object_new(store, name, &buffer, 1, &object, &fail) == 0, "%s", fail.text);
    return object;
}

static int place_and_insert(struct store *store, const char *name, uint64_t bytes, uint64_t version)
{
    struct object *object = new_object(store, name, bytes);
    struct fail fail = {0};
    int rc = object_place(object, &fail);

    if (rc != 0) {
        object_unref(object);
        return rc;
    }
    store_insert(store, object, version, 0);
    return 0;
}

static uint64_t used(struct store *store)
{
    struct store_usage usage;

    store_usage(store, &usage);
    return usage.used_bytes;
}

START_TEST(test_newest_version_is_found_and_old_ones_are_dropped_past_keep_versions)
{
    struct store *store = open_store(64 * MIB, 2);

    for (uint64_t version = 1; version <= 3; version++)
        ck_assert_int_eq(place_and_insert(store, "model", MIB, version), 0);
    ck_assert_uint_eq(store_find(store, "model", 0)->version, 3);
    ck_assert_uint_eq(store_find(store, "model", 2)->version, 2);
    ck_assert_ptr_null(store_find(store, "model", 1));
    ck_assert_ptr_null(store_find(store, "other", 0));
    store_close(store);
}
END_TEST

START_TEST(test_a_reader_keeps_its_version_past_its_drop)
{
    struct store *store = open_store(64 * MIB, 1);
    struct object *first;

    ck_assert_int_eq(place_and_insert(store, "model", MIB, 1), 0);
    first = store_find(store, "model", 0);
    memset(first->buffers[0].base, 7, MIB);
    object_ref(first);
    ck_assert_int_eq(place_and_insert(store, "model", MIB, 2), 0);
    memset(store_find(store, "model", 0)->buffers[0].base, 9, MIB);
    ck_assert_ptr_null(store_find(store, "model", 1));
    ck_assert_int_eq(((char *)first->buffers[0].base)[MIB - 1], 7);
    object_unref(first);
    store_close(store);
}
END_TEST

START_TEST(test_budget_refuses_what_does_not_fit_and_says_what_to_do)
{
    struct store *store = open_store(10 * MIB, 3);
    struct object *object;
    struct fail fail = {0};

    ck_assert_int_eq(place_and_insert(store, "a", 6 * MIB, 1), 0);
    object = new_object(store, "b", 6 * MIB);
    ck_assert_int_eq(object_place(object, &fail), COVEY_BUDGET);
    ck_assert_ptr_nonnull(strstr(fail.text, "budget"));
    object_unref(object);
    ck_assert_uint_eq(used(store), 6 * MIB);
    store_close(store);
}
END_TEST

START_TEST(test_budget_drops_old_versions_first_but_never_the_newest_or_a_read_one)
{
    struct store *store = open_store(10 * MIB, 4);
    struct object *pinned;

    ck_assert_int_eq(place_and_insert(store, "a", 3 * MIB, 1), 0);
    ck_assert_int_eq(place_and_insert(store, "a", 3 * MIB, 2), 0);
    ck_assert_int_eq(place_and_insert(store, "a", 3 * MIB, 3), 0);
    pinned = store_find(store, "a", 1);
    object_ref(pinned);
    ck_assert_int_eq(place_and_insert(store, "b", 3 * MIB, 4), 0);
    ck_assert_ptr_null(store_find(store, "a", 2));
    ck_assert_ptr_nonnull(store_find(store, "a", 1));
    ck_assert_ptr_nonnull(store_find(store, "a", 3));
    ck_assert_int_eq(place_and_insert(store, "b", 3 * MIB, 5), COVEY_BUDGET);
    object_unref(pinned);
    ck_assert_int_eq(place_and_insert(store, "b", 3 * MIB, 5), 0);
    ck_assert_ptr_null(store_find(store, "a", 1));
    store_close(store);
}
END_TEST

START_TEST(test_a_hundred_versions_use_the_memory_of_three)
{
    struct store *store = open_store(64 * MIB, 2);

    for (uint64_t version = 1; version <= 100; version++)
        ck_assert_int_eq(place_and_insert(store, "model", 2 * MIB, version), 0);
    ck_assert_uint_le(used(store), 6 * MIB);
    ck_assert_int_eq(seen.forgotten, 0);
    store_close(store);
    ck_assert_int_le(seen.forgotten, 3);
}
END_TEST

START_TEST(test_pool_gives_way_to_the_budget)
{
    struct store *store = open_store(8 * MIB, 1);

    ck_assert_int_eq(place_and_insert(store, "small", 2 * MIB, 1), 0);
    ck_assert_uint_eq(store_remove(store, "small", 2), 1);
    ck_assert_uint_eq(used(store), 2 * MIB);
    ck_assert_int_eq(place_and_insert(store, "large", 8 * MIB, 3), 0);
    ck_assert_uint_eq(used(store), 8 * MIB);
    ck_assert_int_eq(seen.forgotten, 1);
    store_close(store);
}
END_TEST

START_TEST(test_remove_spares_versions_that_come_after_it)
{
    struct store *store = open_store(64 * MIB, 4);

    for (uint64_t version = 1; version <= 3; version++)
        ck_assert_int_eq(place_and_insert(store, "model", MIB, version), 0);
    ck_assert_uint_eq(store_remove(store, "model", 3), 2);
    ck_assert_uint_eq(store_find(store, "model", 0)->version, 3);
    ck_assert_uint_eq(store_remove(store, "model", 4), 1);
    ck_assert_uint_eq(store_remove(store, "model", 5), 0);
    ck_assert_ptr_null(store_find(store, "model", 0));
    store_close(store);
}
END_TEST

START_TEST(test_lent_memory_is_given_back_once_when_the_last_reference_goes)
{
    struct store *store = open_store(MIB, 1);
    static char memory[64];
    struct object *object = new_object(store, "lent", sizeof(memory));

    object->buffers[0].base = memory;
    object->lent = true;
    store_insert(store, object, 1, 0);
    object_ref(object);
    store_remove(store, "lent", 2);
    ck_assert_int_eq(seen.given_back, 0);
    object_unref(object);
    ck_assert_int_eq(seen.given_back, 1);
    ck_assert_str_eq(seen.last_given_back, "lent");
    ck_assert_uint_eq(used(store), 0);
    store_close(store);
}
END_TEST

START_TEST(test_listing_shows_every_version_once)
{
    struct store *store = open_store(64 * MIB, 2);
    char text[64] = "";

    ck_assert_int_eq(place_and_insert(store, "a", 1, 1), 0);
    ck_assert_int_eq(place_and_insert(store, "b", 0, 2), 0);
    ck_assert_int_eq(place_and_insert(store, "a", 1, 3), 0);
    for (struct object *object = store_next(store, NULL); object != NULL; object = store_next(store, object))
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%d ", object->name,
                 (int)object->version);
    ck_assert_str_eq(text, "a3 a1 b2 ");
    store_close(store);
}
END_TEST

START_TEST(test_bad_names_are_refused)
{
    struct store *store = open_store(MIB, 1);
    struct covey_buffer twins[2] = {{.name = "w"}, {.name = "w"}};
    struct covey_buffer unnamed[2] = {{.name = "1"}, {.name = NULL}};
    char longest[COVEY_NAME_MAX + 2];
    struct fail fail = {0};
    struct object *object;

    memset(longest, 'x', sizeof(longest));
    longest[COVEY_NAME_MAX + 1] = '\0';
    ck_assert_int_eq(object_new(store, "", NULL, 0, &object, &fail), COVEY_INVALID);
    ck_assert_int_eq(object_new(store, longest, NULL, 0, &object, &fail), COVEY_INVALID);
    ck_assert_int_eq(object_new(store, "a\nb", NULL, 0, &object, &fail), COVEY_INVALID);
    ck_assert_int_eq(object_new(store, "twins", twins, 2, &object, &fail), COVEY_INVALID);
    ck_assert_ptr_nonnull(strstr(fail.text, "two buffers called w"));
    ck_assert_int_eq(object_new(store, "index", unnamed, 2, &object, &fail), COVEY_INVALID);
    longest[COVEY_NAME_MAX] = '\0';
    ck_assert_int_eq(object_new(store, longest, NULL, 0, &object, &fail), 0);
    object_unref(object);
    store_close(store);
}
END_TEST

START_TEST(test_bytes_that_do_not_add_up_are_refused)
{
    struct store *store = open_store(MIB, 1);
    struct covey_buffer buffers[2] = {{.bytes = SIZE_MAX / 2}, {.bytes = SIZE_MAX / 2}};
    struct fail fail = {0};
    struct object *object;

    ck_assert_int_eq(object_new(store, "huge", buffers, 2, &object, &fail), COVEY_TOO_LARGE);
    object = new_object(store, "large", UINT64_C(1) << 62);
    ck_assert_int_eq(object_place(object, &fail), COVEY_BUDGET);
    object_unref(object);
    store_close(store);
}
END_TEST

START_TEST(test_a_byte_is_found_in_the_buffer_that_has_it_among_empty_ones)
{
    struct store *store = open_store(MIB, 1);
    struct covey_buffer buffers[] = {{.bytes = 0}, {.bytes = 3}, {.bytes = 0},
                                     {.bytes = 0}, {.bytes = 2}, {.bytes = 0}};
    struct fail fail = {0};
    struct object *object;

    ck_assert_int_eq(object_new(store, "o", buffers, 6, &object, &fail), 0);
    ck_assert_uint_eq(object->bytes, 5);
    ck_assert_uint_eq(object_find(object, 0), 1);
    ck_assert_uint_eq(object_find(object, 2), 1);
    ck_assert_uint_eq(object_find(object, 3), 4);
    ck_assert_uint_eq(object_find(object, 4), 4);
    ck_assert_int_eq(object_place(object, &fail), 0);
    ck_assert_ptr_null(object->buffers[0].base);
    ck_assert_ptr_eq(object->buffers[4].base, (char *)object->buffers[1].base + 3);
    object_unref(object);
    store_close(store);
}
END_TEST

/* The same content in one buffer and in many has one digest; a flipped bit has another. */
START_TEST(test_digest_depends_on_the_content_alone)
{
    enum { BYTES = 3 * 65536 + 777 };
    struct store *store = open_store(16 * MIB, 1);
    struct covey_buffer pieces[] = {
        {.bytes = 1}, {.bytes = 0}, {.bytes = 65535}, {.bytes = 100}, {.bytes = BYTES - 65636}};
    struct object *whole = new_object(store, "whole", BYTES), *parts;
    uint64_t leaves[4], digest, blockwise[4];
    struct fail fail = {0};
    char *content;

    ck_assert_int_eq(object_place(whole, &fail), 0);
    content = whole->buffers[0].base;
    for (int i = 0; i < BYTES; i++)
        content[i] = (char)(i * 131 + i / 251);
    ck_assert_int_eq(object_new(store, "parts", pieces, 5, &parts, &fail), 0);
    /* memory of its own for each piece */
    for (size_t i = 0; i < 5; i++) {
        parts->buffers[i].base = malloc(pieces[i].bytes + 1);
        memcpy(parts->buffers[i].base, content + parts->offsets[i], pieces[i].bytes);
    }
    ck_assert_uint_eq(digest_leaf_count(BYTES), 4);
    digest_leaves(whole, 0, BYTES, leaves);
    digest = digest_root(leaves, BYTES);
    digest_leaves(parts, 131072, BYTES - 131072, blockwise);
    digest_leaves(parts, 0, 131072, blockwise);
    ck_assert_uint_eq(digest_root(blockwise, BYTES), digest);
    ((char *)parts->buffers[3].base)[50] ^= 1;
    digest_leaves(parts, 0, BYTES, blockwise);
    ck_assert_uint_ne(digest_root(blockwise, BYTES), digest);
    for (size_t i = 0; i < 5; i++)
        free(parts->buffers[i].base);
    object_unref(parts);
    object_unref(whole);
    store_close(store);
}
END_TEST

SUITE_MAIN("store", 60, SUITE_TEST(test_newest_version_is_found_and_old_ones_are_dropped_past_keep_versions),
           SUITE_TEST(test_a_reader_keeps_its_version_past_its_drop),
           SUITE_TEST(test_budget_refuses_what_does_not_fit_and_says_what_to_do),
           SUITE_TEST(test_budget_drops_old_versions_first_but_never_the_newest_or_a_read_one),
           SUITE_TEST(test_a_hundred_versions_use_the_memory_of_three),
           SUITE_TEST(test_pool_gives_way_to_the_budget),
           SUITE_TEST(test_remove_spares_versions_that_come_after_it),
           SUITE_TEST(test_lent_memory_is_given_back_once_when_the_last_reference_goes),
           SUITE_TEST(test_listing_shows_every_version_once), SUITE_TEST(test_bad_names_are_refused),
           SUITE_TEST(test_bytes_that_do_not_add_up_are_refused),
           SUITE_TEST(test_a_byte_is_found_in_the_buffer_that_has_it_among_empty_ones),
           SUITE_TEST(test_digest_depends_on_the_content_alone))
