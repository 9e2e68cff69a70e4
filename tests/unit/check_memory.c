/* SPDX-License-Identifier: BSD-3-Clause */
/* Host memory: allocation, populating under writers, copies. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "memory/host.h"
#include "memory/memory.h"
#include "tests/lib/suite.h"

static const struct memory_ops *host_ops(void)
{
    const struct memory_ops *ops = NULL;
    struct fail fail;

    ck_assert_int_eq(memory_ops(COVEY_MEMORY_HOST, &ops, &fail), 0);
    return ops;
}

static size_t resident_pages(void *base, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), count = (bytes + page - 1) / page, resident = 0;
    unsigned char *map = malloc(count);

    ck_assert_int_eq(mincore(base, bytes, map), 0);
    for (size_t i = 0; i < count; i++)
        resident += map[i] & 1;
    free(map);
    return resident;
}

START_TEST(test_host_kind_says_what_it_is)
{
    ck_assert_str_eq(host_ops()->name, "host");
    ck_assert_int_eq(host_ops()->kind, COVEY_MEMORY_HOST);
    ck_assert(host_ops()->cpu_visible);
    ck_assert_str_eq(memory_kind_name(COVEY_MEMORY_HOST), "host");
    ck_assert_str_eq(memory_kind_name(COVEY_MEMORY_CUDA), "cuda");
    ck_assert_str_eq(memory_kind_name((enum covey_memory)77), "unknown");
}
END_TEST

START_TEST(test_kind_that_does_not_exist_is_unsupported)
{
    const struct memory_ops *ops = NULL;
    struct fail fail;

    ck_assert_int_eq(memory_ops((enum covey_memory)77, &ops, &fail), COVEY_UNSUPPORTED);
    ck_assert_ptr_null(ops);
}
END_TEST

START_TEST(test_allocation_is_aligned_zero_and_writable_to_its_end)
{
    static const size_t sizes[] = {1,       4095,          4096,   4097, 65537, (2 << 20) - 1,
                                   2 << 20, (2 << 20) + 1, 5 << 20};
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = sizes[_i];
    unsigned char *base;
    struct fail fail;
    void *memory;

    ck_assert_int_eq(host_ops()->allocate(0, bytes, &memory, &fail), 0);
    base = memory;
    ck_assert_uint_eq((uintptr_t)base % page, 0);
    for (size_t i = 0; i < bytes; i += 997)
        ck_assert_uint_eq(base[i], 0);
    memset(base, 0xa5, bytes);
    host_ops()->release(0, base, bytes);
    ck_assert_msg(mincore(base, page, &(unsigned char){0}) != 0, "still mapped after release");
}
END_TEST

START_TEST(test_large_allocation_begins_at_a_huge_page)
{
    struct fail fail;
    void *base;

    ck_assert_int_eq(host_ops()->allocate(0, (8 << 20) + 5, &base, &fail), 0);
    ck_assert_uint_eq((uintptr_t)base % (2 << 20), 0);
    host_ops()->release(0, base, (8 << 20) + 5);
}
END_TEST

START_TEST(test_allocation_that_cannot_be_names_size_and_limit)
{
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4096, SIZE_MAX / 2, (size_t)1 << 46};
    const struct rlimit limit = {(rlim_t)1 << 46, (rlim_t)1 << 46}; /* more than sanitizers map */
    void *base = NULL;
    struct fail fail;
    char bytes[32];

    if (_i % 2 == 1)
        setrlimit(RLIMIT_AS, &limit);
    ck_assert_int_eq(host_ops()->allocate(0, sizes[_i / 2], &base, &fail), COVEY_NO_MEMORY);
    ck_assert_ptr_null(base);
    snprintf(bytes, sizeof(bytes), "%zu", sizes[_i / 2]);
    ck_assert_ptr_nonnull(strstr(fail.text, bytes));
    ck_assert_ptr_nonnull(
        strstr(fail.text, _i % 2 == 1 ? "70368744177664 bytes (ulimit -v" : "/proc/meminfo"));
}
END_TEST

/* populate() and its fallback, by number. */
static void make_present(int way, void *base, size_t bytes)
{
    if (way == 0)
        host_ops()->populate(0, base, bytes);
    else
        memory_host_touch(base, bytes);
}

START_TEST(test_populate_makes_every_page_present)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = 64 * page;
    struct fail fail;
    void *base;

    ck_assert_int_eq(host_ops()->allocate(0, bytes, &base, &fail), 0);
    ck_assert_uint_eq(resident_pages(base, bytes), 0);
    make_present(_i, (char *)base + 17, 3 * page); /* reaches into the fourth page */
    ck_assert_uint_eq(resident_pages(base, bytes), 4);
    make_present(_i, base, bytes);
    ck_assert_uint_eq(resident_pages(base, bytes), 64);
    host_ops()->populate(0, base, 0);
    host_ops()->release(0, base, bytes);
}
END_TEST

START_TEST(test_populate_changes_no_value)
{
    size_t bytes = 1 << 20, same = 0;
    unsigned char *base;
    struct fail fail;
    void *memory;

    ck_assert_int_eq(host_ops()->allocate(0, bytes, &memory, &fail), 0);
    base = memory;
    for (size_t i = 0; i < bytes; i++)
        base[i] = (unsigned char)(i * 7 + i / 251);
    make_present(_i, base + 3, bytes - 5);
    while (same < bytes && base[same] == (unsigned char)(same * 7 + same / 251))
        same++;
    ck_assert_uint_eq(same, bytes);
    host_ops()->release(0, base, bytes);
}
END_TEST

struct writer {
    _Atomic uint8_t *byte;
    atomic_bool stop;
    unsigned lost;
};

/* A byte that only this thread writes must read as what it wrote last. */
static void *write_on(void *argument)
{
    struct writer *writer = argument;

    for (uint8_t value = 1; !atomic_load(&writer->stop); value++) {
        atomic_store_explicit(writer->byte, value, memory_order_relaxed);
        for (int i = 0; i < 8; i++)
            writer->lost += atomic_load_explicit(writer->byte, memory_order_relaxed) != value;
    }
    return NULL;
}

/* A peer's write that lands while a page is made present is never undone. */
START_TEST(test_populate_beside_a_writer_loses_nothing)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct writer writer = {.lost = 0};
    pthread_t thread;
    struct fail fail;
    void *base;

    ck_assert_int_eq(host_ops()->allocate(0, page, &base, &fail), 0);
    writer.byte = base;
    ck_assert_int_eq(pthread_create(&thread, NULL, write_on, &writer), 0);
    for (int i = 0; i < 20000; i++)
        make_present(_i, base, page);
    atomic_store(&writer.stop, true);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(writer.lost, 0);
    host_ops()->release(0, base, page);
}
END_TEST

/* A hint cannot fail: memory that is not writable stays as it is. */
START_TEST(test_populate_of_read_only_memory_does_nothing)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *base = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    ck_assert_ptr_ne(base, MAP_FAILED);
    host_ops()->populate(0, base, page);
    ck_assert_uint_eq(*(unsigned char *)base, 0);
    munmap(base, page);
}
END_TEST

START_TEST(test_copies_touch_exactly_their_bytes)
{
    unsigned char from[300], to[300];
    struct memory_copy *copy;
    struct fail fail;

    for (size_t bytes = 0; bytes <= 256; bytes++) {
        memset(from, (int)bytes + 1, sizeof(from));
        memset(to, 0, sizeof(to));
        if (_i == 0)
            ck_assert_int_eq(host_ops()->read(0, to + 20, from, bytes, &copy, &fail), 0);
        else
            ck_assert_int_eq(host_ops()->write(0, to + 20, from, bytes, &copy, &fail), 0);
        ck_assert_int_eq(host_ops()->finish(copy, &fail), 0);
        ck_assert_mem_eq(to + 20, from, bytes);
        ck_assert_uint_eq(to[19], 0);
        ck_assert_uint_eq(to[20 + bytes], 0);
    }
    ck_assert_int_eq(host_ops()->read(0, NULL, NULL, 0, &copy, &fail), 0);
    ck_assert_int_eq(host_ops()->write(0, NULL, NULL, 0, &copy, &fail), 0);
}
END_TEST

SUITE_MAIN("memory", 60, SUITE_TEST(test_host_kind_says_what_it_is),
           SUITE_TEST(test_kind_that_does_not_exist_is_unsupported),
           SUITE_LOOP(test_allocation_is_aligned_zero_and_writable_to_its_end, 9),
           SUITE_TEST(test_large_allocation_begins_at_a_huge_page),
           SUITE_LOOP(test_allocation_that_cannot_be_names_size_and_limit, 8),
           SUITE_LOOP(test_populate_makes_every_page_present, 2),
           SUITE_LOOP(test_populate_changes_no_value, 2),
           SUITE_LOOP(test_populate_beside_a_writer_loses_nothing, 2),
           SUITE_TEST(test_populate_of_read_only_memory_does_nothing),
           SUITE_LOOP(test_copies_touch_exactly_their_bytes, 2))
