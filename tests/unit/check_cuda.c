/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory behind the memory contract, with the stand-in driver. */

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "memory/cuda_driver.h"
#include "memory/memory.h"
#include "tests/lib/fake_cuda.h"
#include "tests/lib/suite.h"

/* Our own declarations say what the driver's header says. */
#if __has_include(<cuda.h>)
#include <cuda.h>
#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME(CUDA_OK, CUDA_SUCCESS);
SAME(CUDA_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(CUDA_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(CUDA_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
SAME(CUDA_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(CUDA_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME(CUDA_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
SAME(CUDA_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(CUDA_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME(CUDA_HOST_MEMORY_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME(CUDA_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(CUDA_POINTER_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT);
SAME(CUDA_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(CUDA_POINTER_BUFFER_ID, CU_POINTER_ATTRIBUTE_BUFFER_ID);
SAME(CUDA_POINTER_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME(CUDA_POINTER_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(CUDA_POINTER_RANGE_START, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
SAME(CUDA_POINTER_RANGE_BYTES, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
SAME(CUDA_TYPE_HOST, CU_MEMORYTYPE_HOST);
SAME(CUDA_TYPE_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(CUDA_EVENT_BLOCKING_SYNC, CU_EVENT_BLOCKING_SYNC);
SAME(CUDA_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(CUDA_HOST_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME(sizeof(cuda_pointer), sizeof(CUdeviceptr));
SAME(sizeof(cuda_device), sizeof(CUdevice));
#endif

static const struct fake_cuda *fake;
static const struct memory_ops *ops, *managed;

static void setup(void)
{
    struct fail fail;
    int device;

    fake = fake_cuda_open();
    ck_assert_int_eq(memory_ops(COVEY_MEMORY_CUDA, &ops, &fail), 0);
    ck_assert_int_eq(memory_ops(COVEY_MEMORY_CUDA_MANAGED, &managed, &fail), 0);
    ck_assert_int_eq(ops->device(0, 0, &device, &fail), 0);
}

static void *pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

static void copy_out(int device, void *host, const void *base, size_t bytes)
{
    struct memory_copy *copy;
    struct fail fail = {0};

    ck_assert_msg(ops->read(device, host, base, bytes, &copy, &fail) == 0, "%s", fail.text);
    ck_assert_msg(ops->finish(copy, &fail) == 0, "%s", fail.text);
}

static void copy_in(int device, void *base, const void *host, size_t bytes)
{
    struct memory_copy *copy;
    struct fail fail = {0};

    ck_assert_msg(ops->write(device, base, host, bytes, &copy, &fail) == 0, "%s", fail.text);
    ck_assert_msg(ops->finish(copy, &fail) == 0, "%s", fail.text);
}

static void fill(unsigned char *bytes, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(i * 7 + seed + (i >> 8));
}

/* G01, G06, G07, G17: memory of any kind, allocated before the library looked, is known for what it is, and
 * read and written through the driver. */
START_TEST(test_every_kind_of_device_memory_is_copied)
{
    enum { BYTES = (5 << 20) + 77 };
    static const enum fake_cuda_kind kinds[] = {FAKE_CUDA_PLAIN, FAKE_CUDA_POOL, FAKE_CUDA_CHUNKS,
                                                FAKE_CUDA_MANAGED};
    unsigned char *sent = malloc(BYTES), *seen = malloc(BYTES);
    const struct memory_ops *its;
    struct fail fail = {0};
    uint64_t address;

    address = fake_cuda_open()->allocate(kinds[_i], 1, BYTES);
    setup();
    its = kinds[_i] == FAKE_CUDA_MANAGED ? managed : ops;
    ck_assert_msg(its->check(1, pointer(address), BYTES, &fail) == 0, "%s", fail.text);
    fill(sent, BYTES, 3);
    copy_in(1, pointer(address), sent, BYTES);
    fake->peek(address, seen, BYTES);
    ck_assert_mem_eq(sent, seen, BYTES);
    memset(seen, 0, BYTES);
    copy_out(1, seen, pointer(address), BYTES);
    ck_assert_mem_eq(sent, seen, BYTES);
    fake->release(address);
    free(sent);
    free(seen);
}
END_TEST

/* G21: any size at any offset; nothing beside it is touched. */
START_TEST(test_odd_sizes_touch_exactly_their_bytes)
{
    unsigned char sent[512], seen[1024], blank[1024] = {0};
    uint64_t address;

    setup();
    fake->delay(0);
    address = fake->allocate(FAKE_CUDA_PLAIN, 0, sizeof(seen));
    fill(sent, sizeof(sent), 9);
    for (size_t bytes = 1; bytes <= 300; bytes += bytes < 70 ? 1 : 23) {
        size_t offset = bytes * 13 % 64;

        fake->poke(address, blank, sizeof(blank));
        copy_in(0, pointer(address + offset), sent, bytes);
        fake->peek(address, seen, sizeof(seen));
        ck_assert_mem_eq(seen, blank, offset);
        ck_assert_mem_eq(seen + offset, sent, bytes);
        ck_assert_mem_eq(seen + offset + bytes, blank, sizeof(seen) - offset - bytes);
        memset(seen, 0, sizeof(seen));
        copy_out(0, seen + 1, pointer(address + offset), bytes);
        ck_assert_mem_eq(seen + 1, sent, bytes);
        ck_assert_uint_eq(seen[bytes + 1], 0);
    }
    fake->release(address);
}
END_TEST

/* A copy is under way until finish() says that it is not, and several are at once. */
START_TEST(test_copies_run_beside_the_caller)
{
    enum { COUNT = 8, BYTES = 4096 };
    unsigned char sent[COUNT][BYTES], seen[BYTES];
    struct memory_copy *copies[COUNT];
    struct fail fail;
    uint64_t address;

    setup();
    fake->delay(20000);
    address = fake->allocate(FAKE_CUDA_PLAIN, 0, sizeof(sent));
    for (size_t i = 0; i < COUNT; i++) {
        fill(sent[i], BYTES, (unsigned)i);
        ck_assert_int_eq(ops->write(0, pointer(address + i * BYTES), sent[i], BYTES, &copies[i], &fail), 0);
        ck_assert_ptr_nonnull(copies[i]);
    }
    fake->peek(address + (COUNT - 1) * BYTES, seen, BYTES);
    ck_assert_uint_eq(seen[17], 0); /* the last cannot be done: 140 ms lie before it */
    for (size_t i = 0; i < COUNT; i++) {
        ck_assert_int_eq(ops->finish(copies[i], &fail), 0);
        fake->peek(address + i * BYTES, seen, BYTES);
        ck_assert_mem_eq(seen, sent[i], BYTES);
    }
    fake->release(address);
}
END_TEST

static struct cuda_context *current_context(void)
{
    const struct cuda_driver *driver;
    struct cuda_context *context = NULL;
    struct fail fail;

    ck_assert_int_eq(cuda_driver_open(&driver, &fail), 0);
    if (driver->context_pop(&context) != CUDA_OK)
        return NULL;
    driver->context_push(context);
    return context;
}

static void *copy_in_thread(void *argument)
{
    uint64_t *addresses = argument;
    unsigned char sent[1000], seen[1000];

    ck_assert_ptr_null(current_context());
    for (int device = 0; device < 2; device++) {
        fill(sent, sizeof(sent), (unsigned)device);
        copy_in(device, pointer(addresses[device]), sent, sizeof(sent));
        copy_out(device, seen, pointer(addresses[device]), sizeof(seen));
        ck_assert_mem_eq(sent, seen, sizeof(sent));
    }
    ck_assert_ptr_null(current_context());
    return NULL;
}

/* G15, G16: threads without a context use memory of any device; what was current stays so. */
START_TEST(test_callers_context_is_its_own)
{
    uint64_t addresses[2];
    struct cuda_context *mine;
    const struct cuda_driver *driver;
    struct fail fail;
    pthread_t thread;

    setup();
    ck_assert_int_eq(cuda_driver_open(&driver, &fail), 0);
    mine = fake->make_context(0);
    driver->context_push(mine);
    for (int i = 0; i < 2; i++)
        addresses[i] = fake->allocate(FAKE_CUDA_PLAIN, i, 1000);
    ck_assert_int_eq(pthread_create(&thread, NULL, copy_in_thread, addresses), 0);
    pthread_join(thread, NULL);
    copy_in(1, pointer(addresses[1]), "x", 1);
    ck_assert_ptr_eq(current_context(), mine);
    driver->context_pop(&mine);
    for (int i = 0; i < 2; i++)
        fake->release(addresses[i]);
    free(mine);
}
END_TEST

/* G15: memory of a context that was destroyed is an error, and only that. */
START_TEST(test_destroyed_context_is_an_error)
{
    void *context;
    uint64_t address;
    struct memory_copy *copy;
    struct fail fail;
    char byte;

    setup();
    context = fake->make_context(1);
    address = fake->allocate_in(context, 100);
    copy_in(1, pointer(address), "abc", 3);
    fake->destroy_context(context);
    ck_assert_int_eq(ops->check(1, pointer(address), 100, &fail), COVEY_INVALID);
    ck_assert_int_eq(ops->read(1, &byte, pointer(address), 1, &copy, &fail), COVEY_IO);
    ck_assert_ptr_nonnull(strstr(fail.text, "freed"));
}
END_TEST

/* G04: an address that is freed and given again is new memory: of another device, too. */
START_TEST(test_address_given_again_is_asked_for_again)
{
    unsigned char sent[64], seen[64];

    setup();
    fake->delay(0);
    for (unsigned round = 0; round < 200; round++) {
        int device = (int)(round % 2);
        uint64_t address =
            fake->allocate(round % 3 == 0 ? FAKE_CUDA_POOL : FAKE_CUDA_PLAIN, device, sizeof(sent));

        fill(sent, sizeof(sent), round);
        fake->poke(address, sent, sizeof(sent));
        copy_out(device, seen, pointer(address), sizeof(seen));
        ck_assert_mem_eq(sent, seen, sizeof(sent));
        fake->release(address);
    }
}
END_TEST

START_TEST(test_wrong_memory_is_refused_with_what_it_is)
{
    const struct memory_ops *host;
    uint64_t address;
    struct fail fail = {0};
    char byte = 0;

    setup();
    ck_assert_int_eq(memory_ops(COVEY_MEMORY_HOST, &host, &fail), 0);
    address = fake->allocate(FAKE_CUDA_PLAIN, 1, 8192);
    ck_assert_int_eq(ops->check(1, pointer(address + 1), 8191, &fail), 0);
    ck_assert_int_eq(ops->check(0, pointer(address), 8192, &fail), COVEY_INVALID);
    ck_assert_ptr_nonnull(strstr(fail.text, "device 1, not of device 0"));
    ck_assert_int_eq(ops->check(1, pointer(address), 8193, &fail), COVEY_INVALID);
    ck_assert_int_eq(ops->check(0, &byte, 1, &fail), COVEY_INVALID);
    ck_assert_ptr_nonnull(strstr(fail.text, "COVEY_MEMORY_HOST"));
    ck_assert_int_eq(managed->check(1, pointer(address), 1, &fail), COVEY_INVALID);
    ck_assert_int_eq(host->check(0, pointer(address), 1, &fail), COVEY_INVALID);
    ck_assert_ptr_nonnull(strstr(fail.text, "COVEY_MEMORY_CUDA, device 1"));
    ck_assert_int_eq(host->check(0, &byte, 1, &fail), 0);
    fake->release(address);
}
END_TEST

START_TEST(test_allocation_and_what_stands_against_it)
{
    void *base = NULL;
    struct fail fail = {0};
    int device = -1;
    size_t before;

    setup();
    before = fake->allocations();
    ck_assert_int_eq(ops->device(-1, 5, &device, &fail), 0);
    ck_assert_int_eq(device, 1);
    ck_assert_int_eq(ops->device(2, 0, &device, &fail), COVEY_INVALID);
    ck_assert_ptr_nonnull(strstr(fail.text, "no CUDA device 2: this process sees 2"));
    ck_assert_int_eq(ops->allocate(1, 1 << 20, &base, &fail), 0);
    copy_in(1, base, "hello", 5);
    ops->release(1, base, 1 << 20);
    ck_assert_uint_eq(fake->allocations(), before);
    base = NULL;
    ck_assert_int_eq(ops->allocate(1, (size_t)2 << 30, &base, &fail), COVEY_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(fail.text, "of its 1073741824 bytes are free"));
    ck_assert_ptr_null(base);
    ck_assert_int_eq(managed->allocate(0, 1, &base, &fail), COVEY_UNSUPPORTED);
}
END_TEST

/* G23: a copy that fails leaves nothing behind, and the next one works. */
START_TEST(test_failing_copies_leave_nothing)
{
    static const char *const symbols[] = {"cuStreamCreate", "cuEventCreate", "cuMemcpyAsync", "cuEventRecord",
                                          "cuCtxPushCurrent_v2"};
    struct memory_copy *copy;
    struct fail fail;
    uint64_t address;
    char byte;

    setup();
    fake->delay(0);
    address = fake->allocate(FAKE_CUDA_PLAIN, 0, 100);
    for (int i = 0; i < 50; i++) {
        fake->break_call(symbols[_i], 1, 1, 719);
        ck_assert_int_eq(ops->read(0, &byte, pointer(address), 1, &copy, &fail), COVEY_IO);
        ck_assert_ptr_null(copy);
        if (_i == 0) /* the streams are kept: the next needs none */
            break;
    }
    copy_out(0, &byte, pointer(address), 1);
    fake->break_call("cuEventSynchronize", 1, 1, 719);
    ck_assert_int_eq(ops->read(0, &byte, pointer(address), 1, &copy, &fail), 0);
    ck_assert_int_eq(ops->finish(copy, &fail), COVEY_IO);
    copy_out(0, &byte, pointer(address), 1);
    fake->release(address);
}
END_TEST

START_TEST(test_pinning_is_once_and_undone)
{
    enum { BYTES = 1 << 16 };
    char *base = malloc(BYTES);
    struct fail fail;
    bool pinned = false, again = true;

    setup();
    ck_assert_int_eq(memory_pin(base, BYTES, &pinned, &fail), 0);
    ck_assert(pinned);
    ck_assert_uint_eq(fake->pinned_bytes(), BYTES);
    ck_assert_int_eq(memory_pin(base, BYTES, &again, &fail), 0);
    ck_assert(!again);
    memory_unpin(base);
    ck_assert_uint_eq(fake->pinned_bytes(), 0);
    fake->break_call("cuMemHostRegister_v2", 1, 1, CUDA_OUT_OF_MEMORY);
    ck_assert_int_eq(memory_pin(base, BYTES, &pinned, &fail), COVEY_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(fail.text, "LimitMEMLOCK"));
    ck_assert(!pinned);
    free(base);
}
END_TEST

/* The stand-in itself: its device memory is no memory of the processor's. */
START_TEST(test_processor_cannot_touch_device_memory)
{
    uint64_t address;

    setup();
    address = fake->allocate(FAKE_CUDA_PLAIN, 0, 4096);
    signal(SIGSEGV, SIG_DFL);
    ck_assert_int_ne(*(volatile char *)pointer(address), 1);
}
END_TEST

static int suite_with_signal(void)
{
    Suite *suite = suite_create("stand-in");
    TCase *tcase = tcase_create("stand-in");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test_raise_signal(tcase, test_processor_cannot_touch_device_memory, SIGSEGV);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_fork_status(runner) == CK_FORK ? srunner_ntests_failed(runner) : 0;
    srunner_free(runner);
    return failed;
}

int main(void)
{
    const struct suite_test tests[] = {
        SUITE_LOOP(test_every_kind_of_device_memory_is_copied, 4),
        SUITE_TEST(test_odd_sizes_touch_exactly_their_bytes),
        SUITE_TEST(test_copies_run_beside_the_caller),
        SUITE_TEST(test_callers_context_is_its_own),
        SUITE_TEST(test_destroyed_context_is_an_error),
        SUITE_TEST(test_address_given_again_is_asked_for_again),
        SUITE_TEST(test_wrong_memory_is_refused_with_what_it_is),
        SUITE_TEST(test_allocation_and_what_stands_against_it),
        SUITE_LOOP(test_failing_copies_leave_nothing, 5),
        SUITE_TEST(test_pinning_is_once_and_undone),
    };

    if (suite_run("cuda", tests, sizeof(tests) / sizeof(tests[0]), 60) != 0)
        return EXIT_FAILURE;
    return suite_with_signal() == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
