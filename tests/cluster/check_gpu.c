/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects in device memory, between nodes in this process, over real links: with the stand-in driver, whose
 * device memory faults when the processor touches it and whose copies come late. */

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/fake_cuda.h"
#include "tests/lib/nodes.h"
#include "tests/lib/suite.h"

#define WAIT_MS     60000
#define BUFFERS_MAX 8
#define MIB         (UINT64_C(1) << 20)

static const struct fake_cuda *fake;

/* Where memory comes from. */
enum place { HOST, PLAIN, POOL, CHUNKS, MANAGED };

static enum covey_memory memory_of(enum place place)
{
    return place == HOST      ? COVEY_MEMORY_HOST
           : place == MANAGED ? COVEY_MEMORY_CUDA_MANAGED
                              : COVEY_MEMORY_CUDA;
}

static struct covey_buffer buffer_new(enum place place, int device, size_t bytes)
{
    static const enum fake_cuda_kind kinds[] = {[PLAIN] = FAKE_CUDA_PLAIN,
                                                [POOL] = FAKE_CUDA_POOL,
                                                [CHUNKS] = FAKE_CUDA_CHUNKS,
                                                [MANAGED] = FAKE_CUDA_MANAGED};
    struct covey_buffer buffer = {.bytes = bytes, .memory = memory_of(place), .device = device};

    if (bytes > 0 && place == HOST)
        buffer.base = malloc(bytes);
    else if (bytes > 0)
        buffer.base = (void *)(uintptr_t)fake->allocate(kinds[place], device, bytes);
    return buffer;
}

static void buffer_free(const struct covey_buffer *buffer)
{
    if (buffer->memory == COVEY_MEMORY_HOST)
        free(buffer->base);
    else if (buffer->bytes > 0)
        fake->release((uint64_t)(uintptr_t)buffer->base);
}

static void buffer_fill(const struct covey_buffer *buffer, uint64_t seed)
{
    char *bytes = malloc(buffer->bytes + 1);

    pattern_fill(bytes, buffer->bytes, seed);
    if (buffer->memory == COVEY_MEMORY_HOST && buffer->bytes > 0)
        memcpy(buffer->base, bytes, buffer->bytes);
    else if (buffer->bytes > 0)
        fake->poke((uint64_t)(uintptr_t)buffer->base, bytes, buffer->bytes);
    free(bytes);
}

static void buffer_expect(const struct covey_buffer *buffer, uint64_t seed, const char *what)
{
    char *bytes = calloc(1, buffer->bytes + 1);
    size_t differs;

    if (buffer->memory == COVEY_MEMORY_HOST && buffer->bytes > 0)
        memcpy(bytes, buffer->base, buffer->bytes);
    else if (buffer->bytes > 0)
        fake->peek((uint64_t)(uintptr_t)buffer->base, bytes, buffer->bytes);
    differs = pattern_check(bytes, buffer->bytes, seed);
    ck_assert_msg(differs == buffer->bytes, "%s: byte %zu of %zu differs", what, differs, buffer->bytes);
    free(bytes);
}

/* What a member does with an offer: buffer i goes to places[i % count]. It keeps what it was given to free.
 */
struct lander {
    enum place places[4];
    int devices[4];
    size_t count;
    pthread_mutex_t mutex;
    size_t landed;
    struct covey_buffer buffers[256];
};

static int land(void *context, struct covey_group *group, const struct covey_offer *offer,
                struct covey_buffer *buffers)
{
    struct lander *lander = context;

    (void)group;
    for (size_t i = 0; i < offer->count; i++) {
        size_t which = i % lander->count;

        buffers[i] = buffer_new(lander->places[which], lander->devices[which], offer->buffers[i].bytes);
        ck_assert_uint_lt(lander->landed, sizeof(lander->buffers) / sizeof(lander->buffers[0]));
        lander->buffers[lander->landed++] = buffers[i];
    }
    return 0;
}

static const struct covey_group_callbacks landing = {.on_landing = land};

static void landers_free(struct lander *landers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < landers[i].landed; k++)
            buffer_free(&landers[i].buffers[k]);
        landers[i].landed = 0;
    }
}

/* Open `count` nodes that land as told; each lends a region of so many bytes, unless 0. Returns the regions.
 */
static char *open_landing(struct nodes *nodes, size_t count, const char *settings, struct lander *landers,
                          size_t lent)
{
    char *regions = lent > 0 ? malloc(count * lent) : NULL;

    nodes_configure(nodes, count, "", settings);
    for (size_t i = 0; i < count; i++) {
        nodes_open_one(nodes, i, 0, &landing, &landers[i]);
        if (lent > 0)
            ck_assert_msg(covey_node_lend_staging(nodes->node[i], regions + i * lent, lent) == 0, "%s",
                          covey_error_detail(nodes->node[i]));
    }
    nodes_wait(nodes);
    return regions;
}

static void expect_everywhere(struct nodes *nodes, const char *name, uint64_t seed)
{
    for (size_t i = 0; i < nodes->count; i++) {
        struct covey_object *object;
        char what[64];

        if (nodes->node[i] == NULL)
            continue;
        ck_assert_int_eq(covey_get(nodes->group[i], name, 0, &object), 0);
        for (size_t k = 0; k < covey_object_count(object); k++) {
            struct covey_buffer buffer;

            ck_assert_int_eq(covey_object_buffer(object, k, &buffer), 0);
            snprintf(what, sizeof(what), "n%zu, %s, buffer %zu", i, name, k);
            buffer_expect(&buffer, seed + k, what);
        }
        covey_object_release(object);
    }
}

static uint64_t stat_of(struct nodes *nodes, size_t i, const char *name)
{
    struct covey_stat *stats;
    size_t count;
    uint64_t value = UINT64_MAX;

    ck_assert_int_eq(covey_node_stats(nodes->node[i], &stats, &count), 0);
    for (size_t k = 0; k < count; k++) {
        if (strcmp(stats[k].name, name) == 0)
            value = stats[k].value;
    }
    free(stats);
    ck_assert_msg(value != UINT64_MAX, "no counter %s", name);
    return value;
}

static void setup(void)
{
    fake = fake_cuda_open();
}

/* G01, G06, G07, G16, G17: every kind of memory to every other, several devices, source and destinations each
 * with their own. */
START_TEST(test_kinds_of_source_and_destinations_are_independent)
{
    static const enum place places[] = {HOST, PLAIN, POOL, CHUNKS, MANAGED};
    struct lander landers[3] = {{.count = 0},
                                {.places = {places[(_i + 1) % 5]}, .devices = {1}, .count = 1},
                                {.places = {places[(_i + 3) % 5]}, .devices = {0}, .count = 1}};
    struct covey_buffer buffer;
    struct nodes nodes;
    size_t before;

    setup();
    buffer = buffer_new(places[_i], 1, 5 * MIB + 77);
    before = fake->allocations();
    open_landing(&nodes, 3, "", landers, 0);
    for (uint64_t round = 0; round < 3; round++) {
        buffer_fill(&buffer, round);
        nodes_put(&nodes, 0, "x", &buffer, 1);
        expect_everywhere(&nodes, "x", round);
    }
    nodes_close(&nodes);
    landers_free(landers, 3);
    ck_assert_uint_eq(fake->allocations(), before);
    ck_assert_uint_eq(fake->pinned_bytes(), 0);
    buffer_free(&buffer);
}
END_TEST

/* G19, G20: one object of host and device buffers, with empty ones between, lands in another mix; blocks
 * cross from one to the other. */
START_TEST(test_buffers_of_one_object_are_mixed)
{
    struct lander landers[4] = {{.places = {HOST, PLAIN}, .devices = {0, 0}, .count = 2},
                                {.places = {PLAIN, HOST, CHUNKS}, .devices = {0, 0, 1}, .count = 3},
                                {.places = {MANAGED, PLAIN}, .devices = {1, 1}, .count = 2},
                                {.places = {HOST}, .count = 1}};
    struct covey_buffer buffers[BUFFERS_MAX];
    struct nodes nodes;

    setup();
    buffers[0] = buffer_new(HOST, 0, 16);
    buffers[1] = buffer_new(PLAIN, 0, MIB);
    buffers[2] = buffer_new(HOST, 0, 0);
    buffers[3] = buffer_new(PLAIN, 1, 3);
    buffers[4] = buffer_new(POOL, 1, 200000);
    buffers[5] = buffer_new(PLAIN, 0, 0);
    buffers[6] = buffer_new(HOST, 0, 3 * MIB + 1);
    buffers[7] = buffer_new(CHUNKS, 0, 4 * MIB + 5);
    for (size_t i = 0; i < BUFFERS_MAX; i++) {
        static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};

        buffers[i].name = names[i];
        buffer_fill(&buffers[i], 40 + i);
    }
    open_landing(&nodes, 4, "block = \"128KiB\";", landers, 0);
    nodes_put(&nodes, (size_t)_i, "mixed", buffers, BUFFERS_MAX);
    expect_everywhere(&nodes, "mixed", 40);
    nodes_close(&nodes);
    landers_free(landers, 4);
    for (size_t i = 0; i < BUFFERS_MAX; i++)
        buffer_free(&buffers[i]);
}
END_TEST

struct putter {
    struct nodes *nodes;
    size_t from;
    struct covey_buffer buffer;
    pthread_t thread;
};

static void *put_some(void *context)
{
    struct putter *putter = context;

    for (int round = 0; round < 3; round++) {
        char name[16];
        struct covey_op *op;

        snprintf(name, sizeof(name), "o%zu", putter->from);
        ck_assert_int_eq(covey_put(putter->nodes->group[putter->from], name, &putter->buffer, 1, &op), 0);
        ck_assert_msg(covey_op_wait(op, WAIT_MS) == 0, "%s", covey_op_error(op));
        covey_op_free(op);
    }
    return NULL;
}

/* Everyone puts at once, and everyone relays for the others, through regions of two blocks each, or three, or
 * sixteen: nobody waits for ever. */
START_TEST(test_smallest_regions_carry_all_at_once)
{
    static const char *const schedules[] = {"chain", "tree", "binomial", "circulant", "sequential"};
    static const size_t regions[] = {2, 3, 16};
    struct lander landers[4] = {{.places = {PLAIN}, .devices = {0}, .count = 1},
                                {.places = {POOL}, .devices = {1}, .count = 1},
                                {.places = {HOST}, .devices = {0}, .count = 1},
                                {.places = {CHUNKS}, .devices = {1}, .count = 1}};
    struct putter putters[4];
    struct nodes nodes;
    char settings[64], *lent;

    setup();
    snprintf(settings, sizeof(settings), "schedule = \"%s\"; block = \"64KiB\";", schedules[_i % 5]);
    lent = open_landing(&nodes, 4, settings, landers, regions[_i / 5] * 65536);
    for (size_t i = 0; i < 4; i++) {
        putters[i] =
            (struct putter){.nodes = &nodes, .from = i, .buffer = buffer_new(PLAIN, 0, MIB + 13 * i)};
        buffer_fill(&putters[i].buffer, 100 + i);
        ck_assert_int_eq(pthread_create(&putters[i].thread, NULL, put_some, &putters[i]), 0);
    }
    for (size_t i = 0; i < 4; i++)
        pthread_join(putters[i].thread, NULL);
    for (size_t i = 0; i < 4; i++) {
        char name[16];

        snprintf(name, sizeof(name), "o%zu", i);
        expect_everywhere(&nodes, name, 100 + i);
        ck_assert_uint_eq(stat_of(&nodes, i, "staging_in_use"), 0);
        ck_assert_uint_eq(stat_of(&nodes, i, "staging_bytes"), regions[_i / 5] * 65536);
    }
    nodes_close(&nodes);
    ck_assert_uint_eq(fake->pinned_bytes(), 0);
    landers_free(landers, 4);
    for (size_t i = 0; i < 4; i++)
        buffer_free(&putters[i].buffer);
    free(lent);
}
END_TEST

/* The route is known beforehand, and what is relayed leaves from the slot that it came to: nobody but the
 * root reads its device, and every byte crosses once. */
START_TEST(test_relayed_blocks_cross_once)
{
    enum { BYTES = 8 << 20 };
    struct lander landers[4] = {{.count = 1},
                                {.places = {PLAIN}, .devices = {1}, .count = 1},
                                {.places = {PLAIN}, .devices = {1}, .count = 1},
                                {.places = {PLAIN}, .devices = {0}, .count = 1}};
    struct covey_buffer buffer;
    struct covey_route route;
    struct nodes nodes;

    setup();
    buffer = buffer_new(PLAIN, 0, BYTES);
    buffer_fill(&buffer, 5);
    open_landing(&nodes, 4, "schedule = \"chain\"; block = \"256KiB\";", landers, 0);
    ck_assert_int_eq(covey_route(nodes.group[0], 2, COVEY_MEMORY_HOST, &route), 0);
    ck_assert(!route.staged);
    ck_assert_int_eq(covey_route(nodes.group[0], 2, COVEY_MEMORY_CUDA, &route), 0);
    ck_assert(route.staged);
    ck_assert_str_eq(route.transport, "tcp");
    ck_assert_ptr_nonnull(strstr(route.text, "staging.size"));
    ck_assert_int_eq(covey_route(nodes.group[0], 77, COVEY_MEMORY_CUDA, &route), COVEY_NOT_FOUND);
    nodes_put(&nodes, 0, "x", &buffer, 1);
    expect_everywhere(&nodes, "x", 5);
    ck_assert_uint_eq(stat_of(&nodes, 0, "staging_loaded_bytes"), BYTES);
    ck_assert_uint_eq(stat_of(&nodes, 0, "staging_stored_bytes"), 0);
    for (size_t i = 1; i < 4; i++) {
        ck_assert_uint_eq(stat_of(&nodes, i, "staging_loaded_bytes"), 0);
        ck_assert_uint_eq(stat_of(&nodes, i, "staging_stored_bytes"), BYTES);
        ck_assert_uint_eq(stat_of(&nodes, i, "staging_sent_on_bytes"), i < 3 ? BYTES : 0);
    }
    nodes_close(&nodes);
    landers_free(landers, 4);
    buffer_free(&buffer);
}
END_TEST

/* A group that keeps its objects on a device: the store's memory is there, within the budget, and is used
 * again. */
START_TEST(test_group_in_device_memory_keeps_its_objects_there)
{
    struct covey_buffer buffers[2];
    struct covey_object *object;
    struct covey_group_info info;
    struct covey_buffer seen;
    struct nodes nodes;
    size_t before;

    setup();
    buffers[0] = buffer_new(HOST, 0, MIB + 1);
    buffers[1] = buffer_new(PLAIN, 0, 3 * MIB);
    before = fake->allocations();
    nodes_open(&nodes, 3, "memory = \"cuda:1\"; budget = \"16MiB\"; keep_versions = 2;");
    for (uint64_t round = 0; round < 5; round++) {
        buffer_fill(&buffers[0], round);
        buffer_fill(&buffers[1], round + 1);
        nodes_put(&nodes, 0, "x", buffers, 2);
        expect_everywhere(&nodes, "x", round);
    }
    ck_assert_int_eq(covey_get(nodes.group[2], "x", 0, &object), 0);
    ck_assert_int_eq(covey_object_buffer(object, 1, &seen), 0);
    ck_assert_int_eq(seen.memory, COVEY_MEMORY_CUDA);
    ck_assert_int_eq(seen.device, 1);
    covey_object_release(object);
    ck_assert_int_eq(covey_group_info(nodes.group[1], &info), 0);
    ck_assert_int_eq(info.memory, COVEY_MEMORY_CUDA);
    ck_assert_int_eq(info.device, 1);
    ck_assert_uint_le(info.used_bytes, 16 * MIB);
    nodes_close(&nodes);
    ck_assert_uint_eq(fake->allocations(), before);
    buffer_free(&buffers[0]);
    buffer_free(&buffers[1]);
}
END_TEST

/* A node alone in its group has the digest that the others would have. */
START_TEST(test_digest_is_the_same_wherever_the_bytes_are)
{
    struct covey_buffer host, device;
    struct covey_object *object;
    struct nodes nodes;
    uint64_t digest;

    setup();
    host = buffer_new(HOST, 0, 3 * MIB + 1234);
    device = buffer_new(PLAIN, 1, host.bytes);
    buffer_fill(&host, 8);
    buffer_fill(&device, 8);
    nodes_open(&nodes, _i == 0 ? 1 : 2, "block = \"256KiB\";");
    nodes_put(&nodes, 0, "host", &host, 1);
    nodes_put(&nodes, 0, "device", &device, 1);
    ck_assert_int_eq(covey_get(nodes.group[0], "host", 0, &object), 0);
    digest = covey_object_digest(object);
    covey_object_release(object);
    ck_assert_int_eq(covey_get(nodes.group[0], "device", 0, &object), 0);
    ck_assert_uint_eq(covey_object_digest(object), digest);
    covey_object_release(object);
    nodes_close(&nodes);
    buffer_free(&host);
    buffer_free(&device);
}
END_TEST

static int try_put(struct nodes *nodes, const struct covey_buffer *buffer, char text[512])
{
    struct covey_op *op;
    int rc;

    ck_assert_int_eq(covey_put(nodes->group[0], "x", buffer, 1, &op), 0);
    rc = covey_op_wait(op, WAIT_MS);
    snprintf(text, 512, "%s", covey_op_error(op));
    covey_op_free(op);
    return rc;
}

/* G23: a copy that fails, wherever it is, fails its put everywhere with the driver's reason, and leaves
 * nothing held; the next put works. */
START_TEST(test_failing_copy_fails_its_put_alone)
{
    static const char *const symbols[] = {"cuMemcpyAsync", "cuEventSynchronize", "cuPointerGetAttributes"};
    struct lander landers[3] = {{.count = 1},
                                {.places = {PLAIN}, .devices = {1}, .count = 1},
                                {.places = {PLAIN}, .devices = {0}, .count = 1}};
    struct covey_buffer buffer;
    struct nodes nodes;
    char text[512];

    setup();
    buffer = buffer_new(PLAIN, 0, 4 * MIB);
    buffer_fill(&buffer, 1);
    open_landing(&nodes, 3, "block = \"256KiB\";", landers, 0);
    nodes_put(&nodes, 0, "x", &buffer, 1);
    for (int nth = 5; nth < 20; nth += 7) {
        fake->break_call(symbols[_i], nth, 1, 719);
        ck_assert_int_ne(try_put(&nodes, &buffer, text), 0);
        ck_assert_ptr_nonnull(strstr(text, _i == 2 ? "CUDA" : "stand-in"));
        expect_everywhere(&nodes, "x", 1);
        nodes_put(&nodes, 0, "y", &buffer, 1);
        expect_everywhere(&nodes, "y", 1);
        for (size_t i = 0; i < 3; i++)
            ck_assert_uint_eq(stat_of(&nodes, i, "staging_in_use"), 0);
    }
    nodes_close(&nodes);
    landers_free(landers, 3);
    buffer_free(&buffer);
}
END_TEST

/* A member whose device is full refuses, with what is free and what to do. */
START_TEST(test_full_device_refuses_and_names_the_member)
{
    struct covey_buffer buffer;
    struct nodes nodes;
    char text[512];

    setup();
    buffer = buffer_new(HOST, 0, MIB);
    nodes_open(&nodes, 2, "memory = \"cuda:0\";");
    fake->break_call("cuMemAlloc_v2", 1, 1, 2);
    ck_assert_int_eq(try_put(&nodes, &buffer, text), COVEY_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(text, "n1"));
    ck_assert_ptr_nonnull(strstr(text, "bytes are free"));
    buffer_fill(&buffer, 3);
    nodes_put(&nodes, 0, "x", &buffer, 1);
    expect_everywhere(&nodes, "x", 3);
    nodes_close(&nodes);
    buffer_free(&buffer);
}
END_TEST

/* A region that cannot be pinned is slower, and does. */
START_TEST(test_region_that_cannot_be_pinned_works)
{
    struct lander landers[2] = {{.count = 1}, {.places = {PLAIN}, .devices = {1}, .count = 1}};
    struct covey_buffer buffer;
    struct nodes nodes;

    setup();
    buffer = buffer_new(PLAIN, 0, 4 * MIB);
    buffer_fill(&buffer, 1);
    fake->break_call("cuMemHostRegister_v2", 1, 2, 2);
    open_landing(&nodes, 2, "", landers, 0);
    nodes_put(&nodes, 0, "x", &buffer, 1);
    expect_everywhere(&nodes, "x", 1);
    ck_assert_uint_eq(stat_of(&nodes, 0, "staging_pinned"), 0);
    nodes_close(&nodes);
    landers_free(landers, 2);
    buffer_free(&buffer);
}
END_TEST

/* A member that goes while blocks are in its slots, or on their way to it, leaves nothing held at the others.
 */
START_TEST(test_member_that_leaves_amid_copies_holds_nothing)
{
    struct lander landers[3] = {{.count = 1},
                                {.places = {PLAIN}, .devices = {1}, .count = 1},
                                {.places = {PLAIN}, .devices = {0}, .count = 1}};
    struct covey_buffer buffer;
    struct covey_op *op;
    struct nodes nodes;
    uint64_t done = 0, total;
    int rc;

    setup();
    buffer = buffer_new(PLAIN, 0, 32 * MIB);
    buffer_fill(&buffer, 1);
    open_landing(&nodes, 3, "schedule = \"chain\"; block = \"256KiB\";", landers, 0);
    fake->delay(2000);
    ck_assert_int_eq(covey_put(nodes.group[0], "x", &buffer, 1, &op), 0);
    while (done == 0 && covey_op_test(op) == COVEY_AGAIN)
        covey_op_progress(op, &done, &total);
    if (_i < 2) {
        covey_node_close(nodes.node[1 + _i]);
        nodes.node[1 + _i] = NULL;
    } else {
        covey_op_cancel(op);
    }
    rc = covey_op_wait(op, WAIT_MS);
    ck_assert_int_ne(rc, COVEY_TIMEOUT);
    if (rc == 0)
        expect_everywhere(&nodes, "x", 1); /* those who were left have finished it */
    covey_op_free(op);
    fake->delay(100);
    nodes_wait(&nodes);
    buffer_fill(&buffer, 2);
    nodes_put(&nodes, 0, "y", &buffer, 1);
    for (size_t i = 0; i < 3; i++) {
        if (nodes.node[i] != NULL)
            ck_assert_uint_eq(stat_of(&nodes, i, "staging_in_use"), 0);
    }
    nodes_close(&nodes);
    landers_free(landers, 3);
    buffer_free(&buffer);
}
END_TEST

START_TEST(test_wrong_memory_and_wrong_regions_are_refused)
{
    struct covey_buffer device, wrong;
    struct covey_op *op;
    struct nodes nodes;
    char *region = malloc(1 << 20);

    setup();
    device = buffer_new(PLAIN, 1, MIB);
    nodes_open(&nodes, 1, "block = \"1MiB\";");
    wrong = device;
    wrong.device = 0;
    ck_assert_int_eq(covey_put(nodes.group[0], "x", &wrong, 1, &op), COVEY_INVALID);
    ck_assert_ptr_nonnull(strstr(covey_error_detail(nodes.node[0]), "device 1, not of device 0"));
    wrong.memory = COVEY_MEMORY_HOST;
    ck_assert_int_eq(covey_put(nodes.group[0], "x", &wrong, 1, &op), COVEY_INVALID);
    ck_assert_ptr_nonnull(strstr(covey_error_detail(nodes.node[0]), "say COVEY_MEMORY_CUDA, device 1"));
    ck_assert_int_eq(covey_node_lend_staging(nodes.node[0], region, 65536), COVEY_INVALID);
    ck_assert_int_eq(covey_node_lend_staging(nodes.node[0], region, 1 << 20), 0);
    ck_assert_int_eq(covey_node_lend_staging(nodes.node[0], region, 1 << 20), COVEY_EXISTS);
    ck_assert_int_eq(covey_put(nodes.group[0], "x", &device, 1, &op), COVEY_TOO_LARGE);
    ck_assert_ptr_nonnull(strstr(covey_error_detail(nodes.node[0]), "covey_node_lend_staging"));
    nodes_close(&nodes);
    buffer_free(&device);
    free(region);
}
END_TEST

SUITE_MAIN("gpu", 120, SUITE_LOOP(test_kinds_of_source_and_destinations_are_independent, 5),
           SUITE_LOOP(test_buffers_of_one_object_are_mixed, 2),
           SUITE_LOOP(test_smallest_regions_carry_all_at_once, 15),
           SUITE_TEST(test_relayed_blocks_cross_once),
           SUITE_TEST(test_group_in_device_memory_keeps_its_objects_there),
           SUITE_LOOP(test_digest_is_the_same_wherever_the_bytes_are, 2),
           SUITE_LOOP(test_failing_copy_fails_its_put_alone, 3),
           SUITE_TEST(test_full_device_refuses_and_names_the_member),
           SUITE_TEST(test_region_that_cannot_be_pinned_works),
           SUITE_LOOP(test_member_that_leaves_amid_copies_holds_nothing, 3),
           SUITE_TEST(test_wrong_memory_and_wrong_regions_are_refused))
