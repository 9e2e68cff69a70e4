/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts through the public API between nodes of one process, over real links. */
#define _GNU_SOURCE /* memfd_create */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/nodes.h"
#include "tests/lib/suite.h"

#define KIB     ((size_t)1024)
#define MIB     (KIB * 1024)
#define WAIT_MS 60000

/* Every member holds the version with these bytes. */
static void expect_everywhere(struct nodes *nodes, const char *name, uint64_t version, size_t bytes,
                              uint64_t seed)
{
    for (size_t i = 0; i < nodes->count; i++) {
        struct covey_object *object;
        struct covey_buffer buffer;

        ck_assert_msg(covey_get(nodes->group[i], name, version, &object) == 0, "n%zu: %s", i,
                      covey_error_detail(nodes->node[i]));
        ck_assert_uint_eq(covey_object_version(object), version);
        ck_assert_uint_eq(covey_object_bytes(object), bytes);
        ck_assert_int_eq(covey_object_buffer(object, 0, &buffer), 0);
        ck_assert_uint_eq(pattern_check(buffer.base, bytes, seed), bytes);
        covey_object_release(object);
    }
}

static void put_pattern(struct nodes *nodes, size_t from, const char *name, size_t bytes, uint64_t seed)
{
    char *memory = malloc(bytes + 1);
    struct covey_buffer buffer = {.base = memory, .bytes = bytes};
    uint64_t version;

    pattern_fill(memory, bytes, seed);
    version = nodes_put(nodes, from, name, &buffer, 1);
    expect_everywhere(nodes, name, version, bytes, seed);
    nodes_put(nodes, from, name, NULL, 0); /* keep_versions = 1: the buffer is ours again */
    free(memory);
}

static const size_t member_counts[] = {1, 2, 3, 4, 6, 8};

START_TEST(test_object_reaches_every_member_from_any)
{
    struct nodes nodes;
    size_t count = member_counts[_i];

    nodes_open(&nodes, count, "keep_versions = 1; block = \"64KiB\";");
    for (size_t from = 0; from < count; from++)
        put_pattern(&nodes, from, "model", MIB + 12345, from);
    nodes_close(&nodes);
}
END_TEST

/* Until node i has looked for member id in vain. */
static void wait_missing(struct nodes *nodes, size_t i, uint32_t id)
{
    bool missing = false;

    for (int waited_ms = 0; !missing; waited_ms++) {
        struct covey_view view;

        ck_assert_int_lt(waited_ms, WAIT_MS);
        ck_assert_int_eq(covey_node_view(nodes->node[i], &view), 0);
        for (uint32_t k = 0; k < view.count; k++)
            missing = missing || (view.members[k].id == id && view.members[k].problem[0] != '\0');
        covey_view_free(&view);
        poll(NULL, 0, 1);
    }
}

/* n2 has looked for n1 in vain and will look again in a moment; n1 finds n0 at once. So the first view is
 * there before n1 and n2 are linked. */
START_TEST(test_put_before_all_members_are_linked_reaches_them)
{
    struct nodes nodes;

    nodes_configure(&nodes, 3, "", "keep_versions = 1; block = \"64KiB\";");
    nodes_open_one(&nodes, 0, 0, NULL, NULL);
    nodes_open_one(&nodes, 2, 0, NULL, NULL);
    wait_missing(&nodes, 2, 1);
    nodes_open_one(&nodes, 1, 0, NULL, NULL);
    nodes_wait_size(&nodes, 0, nodes.count);
    put_pattern(&nodes, 0, "early", 200 * KIB, (uint64_t)_i);
    nodes_close(&nodes);
}
END_TEST

static const char *const schedules[] = {"sequential", "chain", "tree", "binomial", "circulant", "auto"};

START_TEST(test_every_schedule_replicates)
{
    struct nodes nodes;
    char settings[128];

    snprintf(settings, sizeof(settings), "keep_versions = 1; block = \"64KiB\"; schedule = \"%s\";",
             schedules[_i]);
    nodes_open(&nodes, 5, settings);
    put_pattern(&nodes, 3, "model", 3 * MIB + 1, 7);
    nodes_close(&nodes);
}
END_TEST

START_TEST(test_sizes_around_every_border)
{
    static const size_t sizes[] = {0,         1,         7,           64 * KIB - 1, 64 * KIB,   64 * KIB + 1,
                                   128 * KIB, 130 * KIB, 1 * MIB - 1, 1 * MIB + 1,  5 * MIB + 3};
    struct nodes nodes;

    nodes_open(&nodes, 3, "keep_versions = 1;");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        put_pattern(&nodes, i % 3, "model", sizes[i], i);
    nodes_close(&nodes);
}
END_TEST

/* Thousands of tiny buffers, empty ones among them, are one object: names, sizes and bytes arrive as they
 * were. */
START_TEST(test_thousands_of_buffers_are_one_object)
{
    enum { COUNT = 5000 };
    struct covey_buffer *buffers = calloc(COUNT, sizeof(*buffers));
    struct nodes nodes;
    char *memory = malloc(COUNT * 100), *next = memory;
    uint64_t version;

    nodes_open(&nodes, 3, "");
    for (size_t i = 0; i < COUNT; i++) {
        size_t bytes = i * 37 % 91;
        char *name = malloc(32);

        snprintf(name, 32, "layer.%zu/weight", i);
        pattern_fill(next, bytes, i);
        buffers[i] = (struct covey_buffer){.base = bytes > 0 ? next : NULL, .bytes = bytes, .name = name};
        next += bytes + i % 2; /* every other one is not contiguous with the next */
    }
    version = nodes_put(&nodes, 1, "model", buffers, COUNT);
    for (size_t n = 0; n < 3; n++) {
        struct covey_object *object;

        ck_assert_int_eq(covey_get(nodes.group[n], "model", version, &object), 0);
        ck_assert_uint_eq(covey_object_count(object), COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            struct covey_buffer buffer;

            ck_assert_int_eq(covey_object_buffer(object, i, &buffer), 0);
            ck_assert_str_eq(buffer.name, buffers[i].name);
            ck_assert_uint_eq(buffer.bytes, buffers[i].bytes);
            ck_assert_uint_eq(pattern_check(buffer.base, buffer.bytes, i), buffer.bytes);
        }
        covey_object_release(object);
    }
    nodes_close(&nodes);
    for (size_t i = 0; i < COUNT; i++)
        free((char *)buffers[i].name);
    free(buffers);
    free(memory);
}
END_TEST

/* Memory of `bytes` that is `period` bytes of a file over and over, so that it takes no more room than those.
 */
static char *map_periodic(size_t bytes, size_t period)
{
    char *base = mmap(NULL, bytes + period, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int fd = memfd_create("period", MFD_CLOEXEC);

    ck_assert_ptr_ne(base, MAP_FAILED);
    ck_assert_int_eq(ftruncate(fd, (off_t)period), 0);
    for (size_t at = 0; at < bytes; at += period)
        ck_assert_ptr_ne(mmap(base + at, period, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0),
                         MAP_FAILED);
    close(fd);
    return base;
}

static int land_at(void *context, struct covey_group *group, const struct covey_offer *offer,
                   struct covey_buffer *buffers)
{
    (void)group;
    (void)offer;
    buffers[0].base = context;
    return 0;
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SHADOWED true
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define SHADOWED true
#endif
#ifndef SHADOWED
#define SHADOWED false
#endif

/* A length or an offset that is cut to 32 bits would put bytes at another phase of the period. */
START_TEST(test_object_of_more_than_4_gib_has_every_byte_in_its_place)
{
    static const struct covey_group_callbacks callbacks = {.on_landing = land_at};
    const size_t period = 48 * MIB + 12 * KIB, bytes = (UINT64_C(1) << 32) + 5 * MIB + 1;
    struct covey_buffer buffer = {.bytes = bytes};
    struct nodes nodes;
    char *source, *target;

    if (SHADOWED) {
        puts("skip the object of more than 4 GiB: the thread sanitizer would need several times its size");
        return;
    }
    source = map_periodic(bytes, period);
    target = map_periodic(bytes, period);
    buffer.base = source;
    pattern_fill(source, period, 4);
    nodes_configure(&nodes, 2, "", "");
    nodes_open_one(&nodes, 0, 0, NULL, NULL);
    nodes_open_one(&nodes, 1, 0, &callbacks, target);
    nodes_wait(&nodes);
    nodes_put(&nodes, 0, "model", &buffer, 1);
    ck_assert_uint_eq(pattern_check(target, period, 4), period);
    nodes_close(&nodes);
    munmap(source, bytes + period);
    munmap(target, bytes + period);
}
END_TEST

/* --- Several at once -------------------------------------------------------------------------------------
 */

struct history {
    pthread_mutex_t mutex;
    size_t count;
    uint64_t versions[256];
    char names[256][16];
};

static void record(void *context, struct covey_group *group, struct covey_object *object)
{
    struct history *history = context;

    (void)group;
    pthread_mutex_lock(&history->mutex);
    history->versions[history->count] = covey_object_version(object);
    snprintf(history->names[history->count++], 16, "%s", covey_object_name(object));
    pthread_mutex_unlock(&history->mutex);
}

START_TEST(test_puts_from_all_at_once_are_delivered_in_one_order)
{
    enum { NODES = 4, EACH = 12 };
    static const struct covey_group_callbacks callbacks = {.on_object = record};
    static struct history histories[NODES];
    static char memory[NODES][EACH][100000];
    struct covey_op *ops[NODES][EACH];
    struct nodes nodes;

    nodes_configure(&nodes, NODES, "", "block = \"64KiB\";");
    memset(histories, 0, sizeof(histories));
    for (size_t i = 0; i < NODES; i++) {
        pthread_mutex_init(&histories[i].mutex, NULL);
        nodes_open_one(&nodes, i, 0, &callbacks, &histories[i]);
    }
    nodes_wait(&nodes);
    for (size_t k = 0; k < EACH; k++) {
        for (size_t i = 0; i < NODES; i++) {
            struct covey_buffer buffer = {.base = memory[i][k],
                                          .bytes = 1 + 99999 * ((i * 7 + k * 3) % 11) / 10};
            char name[16];

            snprintf(name, sizeof(name), "o%zu", (i + k) % 5);
            ck_assert_int_eq(covey_put(nodes.group[i], name, &buffer, 1, &ops[i][k]), 0);
        }
    }
    for (size_t i = 0; i < NODES; i++) {
        for (size_t k = 0; k < EACH; k++) {
            ck_assert_msg(covey_op_wait(ops[i][k], WAIT_MS) == 0, "%s", covey_op_error(ops[i][k]));
            covey_op_free(ops[i][k]);
        }
    }
    for (size_t i = 0; i < NODES; i++) {
        ck_assert_uint_eq(histories[i].count, NODES * EACH);
        ck_assert_mem_eq(histories[i].versions, histories[0].versions, NODES * EACH * sizeof(uint64_t));
        ck_assert_mem_eq(histories[i].names, histories[0].names, NODES * EACH * 16);
        for (size_t k = 1; k < histories[i].count; k++)
            ck_assert_uint_gt(histories[i].versions[k], histories[i].versions[k - 1]);
    }
    nodes_close(&nodes);
}
END_TEST

/* --- Landing and lent memory ------------------------------------------------------------------------------
 */

struct application {
    char *memory; /* where the second buffer goes; the first one has 10 bytes in `head` */
    char head[10];
    int refuse;
    int landings, releases;
    bool delivered;
    uint64_t version;
    void *released;
    char seen_name[32];
};

static int land(void *context, struct covey_group *group, const struct covey_offer *offer,
                struct covey_buffer *buffers)
{
    struct application *application = context;

    (void)group;
    application->landings++;
    snprintf(application->seen_name, sizeof(application->seen_name), "%s", offer->name);
    if (application->refuse != 0)
        return application->refuse;
    if (application->memory == NULL)
        return 0;
    buffers[0].base = application->head;
    buffers[1].base = application->memory;
    return 0;
}

static void released(void *context, struct covey_group *group, const char *name, uint64_t version,
                     bool delivered, void *first_base)
{
    struct application *application = context;

    (void)group;
    (void)name;
    application->releases++;
    application->version = version;
    application->delivered = delivered;
    application->released = first_base;
}

static const struct covey_group_callbacks landing = {.on_landing = land, .on_release = released};

static void open_with_landing(struct nodes *nodes, struct application applications[], size_t count)
{
    nodes_configure(nodes, count, "", "");
    for (size_t i = 0; i < count; i++)
        nodes_open_one(nodes, i, 0, &landing, &applications[i]);
    nodes_wait(nodes);
}

/* The application names the memory of each buffer; the bytes go straight there, and it hears when it is its
 * own again. */
START_TEST(test_landing_puts_bytes_in_the_applications_memory)
{
    struct application applications[3] = {0};
    char head[10], *body = malloc(300000);
    struct covey_buffer buffers[2] = {{.base = head, .bytes = 10, .name = "head"},
                                      {.base = body, .bytes = 300000, .name = "body"}};
    struct covey_op *op;
    struct nodes nodes;
    uint64_t version;

    pattern_fill(head, 10, 1);
    pattern_fill(body, 300000, 2);
    applications[1].memory = malloc(300000);
    open_with_landing(&nodes, applications, 3);
    version = nodes_put(&nodes, 0, "model", buffers, 2);
    ck_assert_int_eq(applications[0].landings, 0);
    ck_assert_int_eq(applications[1].landings, 1);
    ck_assert_str_eq(applications[2].seen_name, "model");
    ck_assert_uint_eq(pattern_check(applications[1].head, 10, 1), 10);
    ck_assert_uint_eq(pattern_check(applications[1].memory, 300000, 2), 300000);
    ck_assert_int_eq(covey_remove(nodes.group[2], "model", &op), 0);
    ck_assert_msg(covey_op_wait(op, WAIT_MS) == 0, "%s", covey_op_error(op));
    covey_op_free(op);
    nodes_close(&nodes);
    ck_assert_int_eq(applications[0].releases, 1);
    ck_assert_int_eq(applications[1].releases, 1);
    ck_assert_int_eq(applications[2].releases, 0);
    ck_assert_ptr_eq(applications[0].released, head);
    ck_assert_ptr_eq(applications[1].released, applications[1].head);
    ck_assert(applications[1].delivered);
    ck_assert_uint_eq(applications[1].version, version);
    free(applications[1].memory);
    free(body);
}
END_TEST

/* One refusal cancels the put everywhere before bytes move, and the error names the member and why. */
START_TEST(test_refusal_cancels_everywhere_and_names_the_member)
{
    struct application applications[3] = {0};
    char head[10] = "", *body = calloc(1, 300000);
    struct covey_buffer buffers[2] = {{.base = head, .bytes = 10}, {.base = body, .bytes = 300000}};
    struct covey_object *object;
    struct covey_op *op;
    struct nodes nodes;

    applications[1].memory = malloc(300000);
    memset(applications[1].memory, 'u', 300000);
    applications[2].refuse = COVEY_NO_MEMORY;
    open_with_landing(&nodes, applications, 3);
    ck_assert_int_eq(covey_put(nodes.group[0], "model", buffers, 2, &op), 0);
    ck_assert_int_eq(covey_op_wait(op, WAIT_MS), COVEY_NO_MEMORY);
    ck_assert_msg(strstr(covey_op_error(op), "n2") != NULL && strstr(covey_op_error(op), "refused") != NULL,
                  "%s", covey_op_error(op));
    covey_op_free(op);
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_eq(covey_get(nodes.group[i], "model", 0, &object), COVEY_NOT_FOUND);
    for (size_t i = 0; i < 300000; i++)
        ck_assert_int_eq(applications[1].memory[i], 'u');
    nodes_close(&nodes);
    ck_assert_int_eq(applications[0].releases, 1);
    /* The refusal may have been quicker than this member's landing. */
    ck_assert_int_eq(applications[1].releases, applications[1].landings);
    ck_assert(!applications[1].delivered);
    free(applications[1].memory);
    free(body);
}
END_TEST

START_TEST(test_budget_of_one_member_refuses_with_both_sizes_and_the_remedy)
{
    char *memory = calloc(1, 3 * MIB);
    struct covey_buffer buffer = {.base = memory, .bytes = 3 * MIB};
    struct covey_op *op;
    struct nodes nodes;

    nodes_open(&nodes, 3, "budget = \"2MiB\";");
    ck_assert_int_eq(covey_put(nodes.group[0], "model", &buffer, 1, &op), 0);
    ck_assert_int_eq(covey_op_wait(op, WAIT_MS), COVEY_BUDGET);
    ck_assert_msg(strstr(covey_op_error(op), "3145728") != NULL &&
                      strstr(covey_op_error(op), "2097152") != NULL &&
                      strstr(covey_op_error(op), "budget") != NULL,
                  "%s", covey_op_error(op));
    covey_op_free(op);
    put_pattern(&nodes, 1, "small", MIB, 3);
    nodes_close(&nodes);
    free(memory);
}
END_TEST

/* --- Files
 * -------------------------------------------------------------------------------------------------- */

static int file_with(const char *directory, size_t bytes, uint64_t seed)
{
    char path[128], *memory = malloc(bytes + 1);
    int fd;

    snprintf(path, sizeof(path), "%s/file", directory);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    unlink(path);
    pattern_fill(memory, bytes, seed);
    ck_assert_int_eq(write(fd, memory, bytes), (ssize_t)bytes);
    free(memory);
    return fd;
}

START_TEST(test_files_become_buffers)
{
    struct covey_file files[3];
    struct covey_object *object;
    struct covey_buffer buffer;
    struct covey_op *op;
    struct nodes nodes;

    nodes_open(&nodes, 3, "block = \"64KiB\";");
    for (size_t i = 0; i < 3; i++)
        files[i] = (struct covey_file){.fd = file_with(nodes.directory, i * 9 * MIB + i, i),
                                       .name = i == 1 ? "one" : NULL};
    ck_assert_int_eq(covey_put_files(nodes.group[2], "model", files, 3, &op), 0);
    for (size_t i = 0; i < 3; i++)
        close(files[i].fd);
    ck_assert_msg(covey_op_wait(op, WAIT_MS) == 0, "%s", covey_op_error(op));
    covey_op_free(op);
    for (size_t n = 0; n < 3; n++) {
        ck_assert_int_eq(covey_get(nodes.group[n], "model", 0, &object), 0);
        for (size_t i = 0; i < 3; i++) {
            ck_assert_int_eq(covey_object_buffer(object, i, &buffer), 0);
            ck_assert_uint_eq(buffer.bytes, i * 9 * MIB + i);
            ck_assert_uint_eq(pattern_check(buffer.base, buffer.bytes, i), buffer.bytes);
        }
        ck_assert_str_eq(buffer.name, "2");
        covey_object_release(object);
    }
    nodes_close(&nodes);
}
END_TEST

/* A file that shrinks while it is read fails the put; nothing is delivered anywhere, and the next put works.
 */
START_TEST(test_shrinking_file_fails_the_put)
{
    struct covey_file file;
    struct covey_object *object;
    struct covey_op *op;
    struct nodes nodes;

    nodes_open(&nodes, 3, "");
    file = (struct covey_file){.fd = file_with(nodes.directory, 64 * MIB, 1), .name = "weights"};
    ck_assert_int_eq(covey_put_files(nodes.group[0], "model", &file, 1, &op), 0);
    ck_assert_int_eq(ftruncate(file.fd, 100), 0);
    ck_assert_int_eq(covey_op_wait(op, WAIT_MS), COVEY_CHANGED);
    ck_assert_ptr_nonnull(strstr(covey_op_error(op), "weights"));
    covey_op_free(op);
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_eq(covey_get(nodes.group[i], "model", 0, &object), COVEY_NOT_FOUND);
    close(file.fd);
    put_pattern(&nodes, 1, "model", MIB, 1);
    nodes_close(&nodes);
}
END_TEST

START_TEST(test_what_is_no_regular_file_is_refused)
{
    struct covey_file file = {.name = "pipe"};
    struct covey_op *op;
    struct nodes nodes;
    int ends[2];

    nodes_open(&nodes, 1, "");
    ck_assert_int_eq(pipe(ends), 0);
    file.fd = ends[0];
    ck_assert_int_eq(covey_put_files(nodes.group[0], "model", &file, 1, &op), COVEY_INVALID);
    ck_assert_str_eq(covey_error_detail(nodes.node[0]), "file pipe is not a regular file");
    close(ends[0]);
    close(ends[1]);
    file.fd = -1;
    ck_assert_int_eq(covey_put_files(nodes.group[0], "model", &file, 1, &op), COVEY_IO);
    nodes_close(&nodes);
}
END_TEST

/* --- Versions
 * ------------------------------------------------------------------------------------------------ */

START_TEST(test_pinned_version_stays_whole_while_newer_ones_come)
{
    struct covey_object *pinned;
    struct covey_buffer buffer;
    struct nodes nodes;
    char *memory = malloc(MIB);
    struct covey_buffer first = {.base = memory, .bytes = MIB};

    pattern_fill(memory, MIB, 100);
    nodes_open(&nodes, 2, "keep_versions = 1; budget = \"16MiB\";");
    nodes_put(&nodes, 0, "model", &first, 1);
    ck_assert_int_eq(covey_get(nodes.group[1], "model", 0, &pinned), 0);
    for (uint64_t i = 0; i < 5; i++)
        put_pattern(&nodes, 1, "model", MIB, i);
    ck_assert_int_eq(covey_object_buffer(pinned, 0, &buffer), 0);
    ck_assert_uint_eq(pattern_check(buffer.base, MIB, 100), MIB);
    covey_object_release(pinned);
    nodes_close(&nodes);
    free(memory);
}
END_TEST

START_TEST(test_removal_is_everywhere_and_unknown_names_are_said)
{
    struct covey_object *object;
    struct covey_object_info *list;
    struct covey_op *op;
    struct nodes nodes;
    size_t count;

    nodes_open(&nodes, 3, "keep_versions = 3;");
    nodes_put(&nodes, 0, "model", NULL, 0);
    nodes_put(&nodes, 1, "model", NULL, 0);
    nodes_put(&nodes, 2, "other", NULL, 0);
    ck_assert_int_eq(covey_remove(nodes.group[1], "model", &op), 0);
    ck_assert_msg(covey_op_wait(op, WAIT_MS) == 0, "%s", covey_op_error(op));
    covey_op_free(op);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(covey_get(nodes.group[i], "model", 0, &object), COVEY_NOT_FOUND);
        ck_assert_int_eq(covey_objects(nodes.group[i], &list, &count), 0);
        ck_assert_uint_eq(count, 1);
        ck_assert_str_eq(list[0].name, "other");
        free(list);
    }
    ck_assert_int_eq(covey_remove(nodes.group[1], "model", &op), COVEY_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(covey_error_detail(nodes.node[1]), "model"));
    nodes_close(&nodes);
}
END_TEST

START_TEST(test_digest_is_the_same_however_the_bytes_were_put)
{
    char *memory = malloc(MIB);
    struct covey_buffer whole = {.base = memory, .bytes = MIB};
    struct covey_buffer halves[2] = {{.base = memory, .bytes = MIB / 2},
                                     {.base = memory + MIB / 2, .bytes = MIB / 2}};
    struct covey_object *a, *b;
    struct nodes nodes;

    pattern_fill(memory, MIB, 5);
    nodes_open(&nodes, 2, "block = \"64KiB\";");
    nodes_put(&nodes, 0, "whole", &whole, 1);
    nodes_put(&nodes, 1, "halves", halves, 2);
    ck_assert_int_eq(covey_get(nodes.group[1], "whole", 0, &a), 0);
    ck_assert_int_eq(covey_get(nodes.group[0], "halves", 0, &b), 0);
    ck_assert_uint_eq(covey_object_digest(a), covey_object_digest(b));
    covey_object_release(a);
    covey_object_release(b);
    nodes_close(&nodes);
    free(memory);
}
END_TEST

/* --- Bad requests
 * --------------------------------------------------------------------------------------------- */

START_TEST(test_bad_buffers_are_refused_with_the_reason)
{
    char byte = 0;
    struct covey_buffer null = {.base = NULL, .bytes = 5, .name = "w"};
    struct covey_buffer device = {.base = &byte, .bytes = 1, .memory = COVEY_MEMORY_CUDA};
    struct covey_buffer twins[2] = {{.name = "w"}, {.name = "w"}};
    struct covey_group *group;
    struct covey_op *op;
    struct nodes nodes;

    nodes_open(&nodes, 1, "");
    ck_assert_int_eq(covey_put(nodes.group[0], "m", &null, 1, &op), COVEY_INVALID);
    ck_assert_int_eq(covey_put(nodes.group[0], "m", &device, 1, &op), COVEY_UNSUPPORTED);
    ck_assert_int_eq(covey_put(nodes.group[0], "m", twins, 2, &op), COVEY_INVALID);
    ck_assert_int_eq(covey_put(nodes.group[0], "", NULL, 0, &op), COVEY_INVALID);
    ck_assert_int_eq(covey_put(nodes.group[0], "m", twins, COVEY_BUFFERS_MAX + 1, &op), COVEY_TOO_LARGE);
    ck_assert_int_eq(covey_group_open(nodes.node[0], "nope", NULL, NULL, &group), COVEY_NOT_FOUND);
    ck_assert_int_eq(covey_group_open(nodes.node[0], "g", NULL, NULL, &group), COVEY_EXISTS);
    nodes_close(&nodes);
}
END_TEST

START_TEST(test_put_before_the_view_says_who_is_missing)
{
    struct covey_op *op;
    struct nodes nodes;

    nodes_configure(&nodes, 2, "", "");
    nodes_open_one(&nodes, 0, 0, NULL, NULL);
    ck_assert_int_eq(covey_group_wait(nodes.group[0], 300), COVEY_TIMEOUT);
    ck_assert_msg(strstr(covey_error_detail(nodes.node[0]), "n1") != NULL, "%s",
                  covey_error_detail(nodes.node[0]));
    ck_assert_int_eq(covey_put(nodes.group[0], "m", NULL, 0, &op), COVEY_FORMING);
    ck_assert_msg(strstr(covey_error_detail(nodes.node[0]), "n1") != NULL, "%s",
                  covey_error_detail(nodes.node[0]));
    nodes_close(&nodes);
}
END_TEST

START_TEST(test_cancelled_put_is_nowhere)
{
    struct application applications[2] = {0};
    char *memory = calloc(1, 64 * MIB);
    struct covey_buffer buffers[2] = {{.base = memory, .bytes = 10},
                                      {.base = memory + 10, .bytes = 64 * MIB - 10}};
    struct covey_object *object;
    struct covey_op *op;
    struct nodes nodes;
    int rc;

    open_with_landing(&nodes, applications, 2);
    ck_assert_int_eq(covey_put(nodes.group[0], "model", buffers, 2, &op), 0);
    covey_op_cancel(op);
    rc = covey_op_wait(op, WAIT_MS);
    ck_assert_int_eq(rc, COVEY_CANCELLED);
    covey_op_free(op);
    for (size_t i = 0; i < 2; i++)
        ck_assert_int_eq(covey_get(nodes.group[i], "model", 0, &object), COVEY_NOT_FOUND);
    nodes_close(&nodes);
    ck_assert_int_eq(applications[0].releases, 1);
    free(memory);
}
END_TEST

/* --- Members come and go
 * ---------------------------------------------------------------------------------------- */

START_TEST(test_survivors_go_on_without_a_member_and_with_it_again)
{
    struct covey_view view;
    struct nodes nodes;

    nodes_open(&nodes, 3, "keep_versions = 1;");
    put_pattern(&nodes, 0, "model", MIB, 1);
    covey_node_close(nodes.node[2]);
    nodes.node[2] = NULL;
    nodes.count = 2;
    nodes_wait_size(&nodes, 0, 2);
    put_pattern(&nodes, 1, "model", MIB, 2);
    ck_assert_int_eq(covey_node_view(nodes.node[0], &view), 0);
    ck_assert(view.quorate);
    ck_assert_uint_eq(view.count, 3);
    ck_assert_int_eq(view.members[2].state, COVEY_MEMBER_MISSING);
    ck_assert_uint_eq(view.members[2].id, 2);
    covey_view_free(&view);
    nodes.count = 3;
    nodes_open_one(&nodes, 2, 0, NULL, NULL);
    nodes_wait(&nodes);
    put_pattern(&nodes, 2, "model", MIB, 3);
    nodes_close(&nodes);
}
END_TEST

struct watcher {
    pthread_mutex_t mutex;
    uint64_t number;
    uint32_t joined[8], left[8];
    size_t joined_count, left_count;
};

static void watch_view(void *context, struct covey_group *group, const struct covey_view *view,
                       const uint32_t *joined, size_t joined_count, const uint32_t *left, size_t left_count)
{
    struct watcher *watcher = context;

    (void)group;
    pthread_mutex_lock(&watcher->mutex);
    watcher->number = view->number;
    watcher->joined_count = joined_count;
    watcher->left_count = left_count;
    memcpy(watcher->joined, joined, joined_count * sizeof(*joined));
    memcpy(watcher->left, left, left_count * sizeof(*left));
    pthread_mutex_unlock(&watcher->mutex);
}

static bool has_seen(struct watcher *watcher, uint64_t number)
{
    bool seen;

    pthread_mutex_lock(&watcher->mutex);
    seen = watcher->number == number;
    pthread_mutex_unlock(&watcher->mutex);
    return seen;
}

/* The one in the middle leaves, so that the rank of the last changes; then it comes back behind it. */
START_TEST(test_on_view_names_who_left_and_who_joined)
{
    static const struct covey_group_callbacks callbacks = {.on_view = watch_view};
    struct watcher watcher = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    struct covey_view view;
    struct nodes nodes;

    nodes_configure(&nodes, 3, "suspect_after = \"10s\"; stall_after = \"20s\";", "");
    nodes_open_one(&nodes, 0, 0, &callbacks, &watcher);
    nodes_open_one(&nodes, 1, 0, NULL, NULL);
    nodes_open_one(&nodes, 2, 0, NULL, NULL);
    nodes_wait(&nodes);
    ck_assert_int_eq(covey_view(nodes.group[0], &view), 0);
    covey_node_close(nodes.node[1]);
    nodes.node[1] = NULL;
    for (int waited_ms = 0; !has_seen(&watcher, view.number + 1); waited_ms++)
        ck_assert_int_lt(waited_ms + poll(NULL, 0, 1), WAIT_MS);
    ck_assert_uint_eq(watcher.joined_count, 0);
    ck_assert_uint_eq(watcher.left_count, 1);
    ck_assert_uint_eq(watcher.left[0], 1);
    nodes_open_one(&nodes, 1, 0, NULL, NULL);
    for (int waited_ms = 0; !has_seen(&watcher, view.number + 2); waited_ms++)
        ck_assert_int_lt(waited_ms + poll(NULL, 0, 1), WAIT_MS);
    ck_assert_uint_eq(watcher.left_count, 0);
    ck_assert_uint_eq(watcher.joined_count, 1);
    ck_assert_uint_eq(watcher.joined[0], 1);
    covey_view_free(&view);
    nodes_close(&nodes);
}
END_TEST

/* --- Driven mode
 * --------------------------------------------------------------------------------------------------- */

START_TEST(test_nodes_driven_by_one_thread_replicate)
{
    char *memory = malloc(3 * MIB);
    struct covey_buffer buffer = {.base = memory, .bytes = 3 * MIB};
    struct covey_object *object;
    struct covey_op *op;
    struct nodes nodes;

    pattern_fill(memory, 3 * MIB, 9);
    nodes_configure(&nodes, 2, "", "");
    for (size_t i = 0; i < 2; i++) {
        nodes_open_one(&nodes, i, COVEY_NODE_DRIVEN, NULL, NULL);
        ck_assert_int_ge(covey_node_fd(nodes.node[i]), 0);
    }
    while (covey_group_wait(nodes.group[0], 0) != 0 || covey_group_wait(nodes.group[1], 0) != 0) {
        ck_assert_int_ge(covey_node_progress(nodes.node[0], 1), 0);
        ck_assert_int_ge(covey_node_progress(nodes.node[1], 1), 0);
    }
    ck_assert_int_eq(covey_put(nodes.group[0], "model", &buffer, 1, &op), 0);
    while (covey_op_test(op) == COVEY_AGAIN) {
        covey_node_progress(nodes.node[0], 1);
        covey_node_progress(nodes.node[1], 1);
    }
    ck_assert_msg(covey_op_test(op) == 0, "%s", covey_op_error(op));
    covey_op_free(op);
    ck_assert_int_eq(covey_get(nodes.group[1], "model", 0, &object), 0);
    ck_assert_int_eq(covey_object_buffer(object, 0, &buffer), 0);
    ck_assert_uint_eq(pattern_check(buffer.base, buffer.bytes, 9), 3 * MIB);
    covey_object_release(object);
    nodes_close(&nodes);
    free(memory);
}
END_TEST

/* A node that nobody drives stands still for the others. */

static const char quick[] = "heartbeat = \"20ms\"; suspect_after = \"1s\";";

struct sleeper {
    struct nodes *nodes;
    bool sleeps; /* through its next object */
    size_t objects;
};

static enum covey_state driven_state(struct nodes *nodes, size_t i)
{
    enum covey_state state;
    struct covey_view view;

    ck_assert_int_eq(covey_view(nodes->group[i], &view), 0);
    state = view.state;
    covey_view_free(&view);
    return state;
}

static void drive_until(struct nodes *nodes, size_t i, enum covey_state state)
{
    for (int waited_ms = 0; driven_state(nodes, i) != state; waited_ms++) {
        ck_assert_int_lt(waited_ms, WAIT_MS);
        ck_assert_int_ge(covey_node_progress(nodes->node[i], 1), 0);
    }
}

static void sleep_through(void *context, struct covey_group *group, struct covey_object *object)
{
    struct sleeper *sleeper = context;

    (void)group;
    (void)object;
    sleeper->objects++;
    if (!sleeper->sleeps)
        return;
    sleeper->sleeps = false;
    nodes_wait_size(sleeper->nodes, 0, 2);
    drive_until(sleeper->nodes, 2, COVEY_STATE_EVICTED);
}

static const struct covey_group_callbacks sleeping = {.on_object = sleep_through};

static void open_with_sleeper(struct nodes *nodes, const struct covey_group_callbacks *callbacks,
                              struct sleeper *sleeper)
{
    nodes_configure(nodes, 3, quick, "");
    sleeper->nodes = nodes;
    nodes_open_one(nodes, 0, 0, NULL, NULL);
    nodes_open_one(nodes, 1, 0, NULL, NULL);
    nodes_open_one(nodes, 2, COVEY_NODE_DRIVEN, callbacks, sleeper);
    while (nodes_view_size(nodes, 2) != 3)
        ck_assert_int_ge(covey_node_progress(nodes->node[2], 1), 0);
}

static void expect_return(struct nodes *nodes)
{
    for (int waited_ms = 0; nodes_view_size(nodes, 0) != 3 || nodes_view_size(nodes, 2) != 3; waited_ms++) {
        ck_assert_int_lt(waited_ms, WAIT_MS);
        ck_assert_int_ge(covey_node_progress(nodes->node[2], 1), 0);
    }
    nodes_put(nodes, 2, "after", NULL, 0);
}

/* Left out of the view in the middle of on_object: what the application was told of is there, and the node is
 * back once the callback has returned. */
START_TEST(test_object_told_of_survives_the_eviction_of_its_node)
{
    struct sleeper sleeper = {0};
    struct covey_object *object;
    struct nodes nodes;

    open_with_sleeper(&nodes, &sleeping, &sleeper);
    sleeper.sleeps = true;
    nodes_put(&nodes, 2, "model", NULL, 0);
    ck_assert(!sleeper.sleeps);
    expect_return(&nodes);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_msg(covey_get(nodes.group[i], "model", 0, &object) == 0, "n%zu: %s", i,
                      covey_error_detail(nodes.node[i]));
        covey_object_release(object);
    }
    nodes_close(&nodes);
}
END_TEST

struct squatter {
    struct sleeper sleeper;
    int fd; /* listens at the address of node 2 */
};

static void take_the_port(void *context, struct covey_group *group, struct covey_object *object)
{
    struct squatter *squatter = context;
    struct nodes *nodes = squatter->sleeper.nodes;
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct covey_view view;
    char host[16];
    int on = 1;

    sleep_through(&squatter->sleeper, group, object);
    if (squatter->fd >= 0)
        return;
    ck_assert_int_eq(covey_node_view(nodes->node[0], &view), 0);
    for (uint32_t i = 0; i < view.count; i++) {
        unsigned port;

        if (view.members[i].id != 2)
            continue;
        ck_assert_int_eq(sscanf(view.members[i].address, "%15[0-9.]:%u", host, &port), 2);
        ck_assert_int_eq(inet_pton(AF_INET, host, &address.sin_addr), 1);
        address.sin_port = htons((uint16_t)port);
    }
    covey_view_free(&view);
    squatter->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(setsockopt(squatter->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    for (int waited_ms = 0; bind(squatter->fd, (const struct sockaddr *)&address, sizeof(address)) != 0;
         waited_ms++) {
        ck_assert_int_lt(waited_ms, WAIT_MS);
        ck_assert_int_ge(covey_node_progress(nodes->node[2], 1), 0);
    }
    ck_assert_int_eq(listen(squatter->fd, 1), 0);
}

/* Its port is another's when it would come back: it waits for it. */
START_TEST(test_evicted_node_waits_for_its_port)
{
    static const struct covey_group_callbacks callbacks = {.on_object = take_the_port};
    struct squatter squatter = {.fd = -1};
    struct covey_node *node;
    struct nodes nodes;

    open_with_sleeper(&nodes, &callbacks, &squatter.sleeper);
    node = nodes.node[2];
    squatter.sleeper.sleeps = true;
    nodes_put(&nodes, 2, "model", NULL, 0);
    ck_assert_int_ge(squatter.fd, 0);
    for (int round = 0; round < 100; round++)
        ck_assert_int_ge(covey_node_progress(node, 10), 0);
    ck_assert_int_eq(driven_state(&nodes, 2), COVEY_STATE_EVICTED);
    ck_assert_int_ne(covey_node_evict(node, 0), 0); /* it is asked meanwhile, and answers */
    close(squatter.fd);
    expect_return(&nodes);
    nodes_close(&nodes);
}
END_TEST

START_TEST(test_put_of_an_evicted_node_fails_with_the_reason)
{
    char *memory = calloc(1, 64 * MIB);
    struct covey_buffer buffer = {.base = memory, .bytes = 64 * MIB};
    struct sleeper sleeper = {0};
    struct covey_object *object;
    struct covey_op *op;
    struct nodes nodes;
    int rc;

    open_with_sleeper(&nodes, &sleeping, &sleeper);
    ck_assert_int_eq(covey_put(nodes.group[2], "model", &buffer, 1, &op), 0);
    ck_assert_int_ge(covey_node_progress(nodes.node[2], 0), 0);
    nodes_wait_size(&nodes, 0, 2);
    rc = covey_op_wait(op, WAIT_MS);
    ck_assert_msg(rc == COVEY_EVICTED || rc == COVEY_PEER_LOST, "%s: %s", covey_strerror(rc),
                  covey_op_error(op));
    covey_op_free(op);
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_eq(covey_get(nodes.group[i], "model", 0, &object), COVEY_NOT_FOUND);
    expect_return(&nodes);
    nodes_close(&nodes);
    free(memory);
}
END_TEST

SUITE_MAIN("put", 120, SUITE_LOOP(test_object_reaches_every_member_from_any, 6),
           SUITE_LOOP(test_put_before_all_members_are_linked_reaches_them, 4),
           SUITE_LOOP(test_every_schedule_replicates, 6), SUITE_TEST(test_sizes_around_every_border),
           SUITE_TEST(test_thousands_of_buffers_are_one_object),
           SUITE_TEST(test_object_of_more_than_4_gib_has_every_byte_in_its_place),
           SUITE_TEST(test_puts_from_all_at_once_are_delivered_in_one_order),
           SUITE_TEST(test_landing_puts_bytes_in_the_applications_memory),
           SUITE_TEST(test_refusal_cancels_everywhere_and_names_the_member),
           SUITE_TEST(test_budget_of_one_member_refuses_with_both_sizes_and_the_remedy),
           SUITE_TEST(test_files_become_buffers), SUITE_TEST(test_shrinking_file_fails_the_put),
           SUITE_TEST(test_what_is_no_regular_file_is_refused),
           SUITE_TEST(test_pinned_version_stays_whole_while_newer_ones_come),
           SUITE_TEST(test_removal_is_everywhere_and_unknown_names_are_said),
           SUITE_TEST(test_digest_is_the_same_however_the_bytes_were_put),
           SUITE_TEST(test_bad_buffers_are_refused_with_the_reason),
           SUITE_TEST(test_put_before_the_view_says_who_is_missing),
           SUITE_TEST(test_cancelled_put_is_nowhere),
           SUITE_TEST(test_survivors_go_on_without_a_member_and_with_it_again),
           SUITE_TEST(test_on_view_names_who_left_and_who_joined),
           SUITE_TEST(test_nodes_driven_by_one_thread_replicate),
           SUITE_TEST(test_object_told_of_survives_the_eviction_of_its_node),
           SUITE_TEST(test_evicted_node_waits_for_its_port),
           SUITE_TEST(test_put_of_an_evicted_node_fails_with_the_reason))
