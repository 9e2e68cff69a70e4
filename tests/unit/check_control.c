/* SPDX-License-Identifier: BSD-3-Clause */
/* The control protocol: frames and their descriptors, requests, replies, values, and the path where daemon
 * and client meet. */

#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <covey/covey.h>

#include "control/endpoint.h"
#include "control/frame.h"
#include "control/item.h"
#include "control/notify.h"
#include "control/reply.h"
#include "control/request.h"
#include "tests/lib/suite.h"

#define NOBODY 65534

/* --- Frames --------------------------------------------------------------------------------------------- */

/* Both ends of a connection, and a reader at the second. */
struct line {
    int near, far;
    struct frame_reader reader;
    struct fail fail;
};

static void line_open(struct line *line)
{
    int ends[2];

    memset(line, 0, sizeof(*line));
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    line->near = ends[0];
    line->far = ends[1];
}

static void line_close(struct line *line)
{
    frame_reader_fini(&line->reader);
    close(line->near);
    close(line->far);
}

static void write_raw(struct line *line, const void *bytes, size_t count)
{
    ck_assert_int_eq(write(line->near, bytes, count), (ssize_t)count);
}

/* Send {"n": number} with descriptors. */
static void send_number(struct line *line, int number, const int *descriptors, size_t count)
{
    json_t *document = json_pack("{s:i}", "n", number);

    ck_assert_int_eq(frame_send(line->near, document, descriptors, count, &line->fail), 0);
    json_decref(document);
}

/* Receive such a frame: its number, and how many descriptors came with it. */
static int receive_number(struct line *line, size_t *descriptor_count)
{
    json_t *document;
    int number;

    ck_assert_int_eq(frame_receive(line->far, &line->reader, &document, &line->fail), 1);
    number = (int)json_integer_value(json_object_get(document, "n"));
    *descriptor_count = line->reader.descriptor_count;
    json_decref(document);
    return number;
}

static int receive_error(struct line *line)
{
    json_t *document;

    return frame_receive(line->far, &line->reader, &document, &line->fail);
}

static size_t open_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    size_t count = 0;

    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

START_TEST(test_frames_arrive_in_order_and_one_at_a_time)
{
    struct line line;
    size_t descriptors;

    line_open(&line);
    for (int i = 0; i < 100; i++)
        send_number(&line, i, NULL, 0);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(receive_number(&line, &descriptors), i);
    close(line.near);
    line.near = -1;
    ck_assert_int_eq(receive_error(&line), 0);
    line_close(&line);
}
END_TEST

START_TEST(test_frame_is_length_and_json)
{
    struct line line;
    uint8_t bytes[16];

    line_open(&line);
    send_number(&line, 7, NULL, 0);
    ck_assert_int_eq(read(line.far, bytes, sizeof(bytes)), 11);
    ck_assert_mem_eq(bytes, "\x07\0\0\0{\"n\":7}", 11);
    line_close(&line);
}
END_TEST

START_TEST(test_descriptors_belong_to_their_frame_and_no_other)
{
    struct line line;
    int many[FRAME_DESCRIPTORS_MAX];
    size_t descriptors, before;

    line_open(&line);
    for (size_t i = 0; i < FRAME_DESCRIPTORS_MAX; i++)
        many[i] = line.near;
    before = open_descriptors();
    send_number(&line, 1, NULL, 0);
    send_number(&line, 2, many, FRAME_DESCRIPTORS_MAX);
    send_number(&line, 3, many, 1);
    send_number(&line, 4, NULL, 0);
    ck_assert_int_eq(receive_number(&line, &descriptors), 1);
    ck_assert_uint_eq(descriptors, 0);
    ck_assert_int_eq(receive_number(&line, &descriptors), 2);
    ck_assert_uint_eq(descriptors, FRAME_DESCRIPTORS_MAX);
    ck_assert_uint_eq(open_descriptors(), before + FRAME_DESCRIPTORS_MAX);
    ck_assert_int_eq(receive_number(&line, &descriptors), 3);
    ck_assert_uint_eq(descriptors, 1);
    ck_assert_int_eq(receive_number(&line, &descriptors), 4);
    ck_assert_uint_eq(descriptors, 0);
    /* what nobody took was closed */
    ck_assert_uint_eq(open_descriptors(), before);
    line_close(&line);
}
END_TEST

START_TEST(test_descriptor_is_the_file_that_was_sent)
{
    struct line line;
    struct stat sent, received;
    int taken[FRAME_DESCRIPTORS_MAX];
    size_t descriptors;

    line_open(&line);
    send_number(&line, 1, &line.near, 1);
    receive_number(&line, &descriptors);
    ck_assert_uint_eq(frame_reader_take_descriptors(&line.reader, taken), 1);
    ck_assert_int_eq(fcntl(taken[0], F_GETFD), FD_CLOEXEC);
    fstat(line.near, &sent);
    fstat(taken[0], &received);
    ck_assert_uint_eq(sent.st_ino, received.st_ino);
    close(taken[0]);
    line_close(&line);
}
END_TEST

/* Bytes with copies of a descriptor, outside of the rules that frame_send() keeps. */
static void send_raw(struct line *line, const void *bytes, size_t count, int descriptor, size_t copies)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(FRAME_DESCRIPTORS_MAX * sizeof(int))];
    } space = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = count};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &space,
                             .msg_controllen = CMSG_SPACE(copies * sizeof(int))};
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&message);

    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(copies * sizeof(int));
    for (size_t i = 0; i < copies; i++)
        memcpy(CMSG_DATA(cmsg) + i * sizeof(int), &descriptor, sizeof(int));
    ck_assert_int_eq(sendmsg(line->near, &message, 0), (ssize_t)count);
}

START_TEST(test_frame_with_too_many_descriptors_is_refused_and_leaks_none)
{
    struct line line;
    size_t before;

    line_open(&line);
    before = open_descriptors();
    send_raw(&line, "\x0f", 1, line.near, FRAME_DESCRIPTORS_MAX);
    send_raw(&line, "\0\0\0", 3, line.near, 1);
    ck_assert_int_eq(receive_error(&line), COVEY_PROTOCOL);
    frame_reader_fini(&line.reader);
    ck_assert_uint_eq(open_descriptors(), before);
    line_close(&line);
}
END_TEST

/* Allow no descriptor from `first` on. */
static void limit_descriptors(int first)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = (rlim_t)first;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Whether that works: valgrind keeps a limit of its own and does not tell the kernel. */
static bool can_limit_descriptors(void)
{
    const char *preloaded = getenv("LD_PRELOAD");
    bool can = preloaded == NULL || strstr(preloaded, "vgpreload") == NULL;

    if (!can)
        fputs("skipped: valgrind does not limit descriptors\n", stderr);
    return can;
}

START_TEST(test_reader_knows_when_the_kernel_dropped_descriptors)
{
    struct rlimit limit;
    struct line line;
    int many[8];
    size_t descriptors;

    if (!can_limit_descriptors())
        return;
    line_open(&line);
    for (size_t i = 0; i < 8; i++)
        many[i] = line.near;
    send_number(&line, 5, many, 8);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit_descriptors(line.far + 1);
    ck_assert_int_eq(receive_number(&line, &descriptors), 5);
    setrlimit(RLIMIT_NOFILE, &limit);
    ck_assert(line.reader.descriptors_lost);
    ck_assert_uint_lt(descriptors, 8);
    line_close(&line);
}
END_TEST

/* What a stream is that ends, or breaks the rules. */
static const struct broken {
    const char *bytes;
    size_t count;
} broken[] = {
    {"\x05", 1},                         /* ends in the header */
    {"\x05\0\0\0", 4},                   /* ends before the body */
    {"\x05\0\0\0[1", 6},                 /* ends in the body */
    {"\0\0\0\0", 4},                     /* empty */
    {"\xff\xff\xff\xff{", 5},            /* 4 GiB */
    {"\x01\0\x10\0{", 5},                /* one byte too long */
    {"\x02\0\0\0{]", 6},                 /* not JSON */
    {"\x03\0\0\0{}x", 7},                /* more than JSON */
    {"\x04\0\0\0[\"\xff", 7},            /* ends, and not UTF-8 */
    {"\x0d\0\0\0{\"a\":1,\"a\":2}", 17}, /* a key twice */
    {"\x08\0\0\0[\"\\u0000\"]", 12},     /* a NUL in a string: \u0000 is cut short */
};

START_TEST(test_broken_stream_is_an_error)
{
    struct line line;

    line_open(&line);
    write_raw(&line, broken[_i].bytes, broken[_i].count);
    shutdown(line.near, SHUT_WR);
    ck_assert_int_eq(receive_error(&line), COVEY_PROTOCOL);
    ck_assert_str_ne(line.fail.text, "");
    line_close(&line);
}
END_TEST

START_TEST(test_silence_ends_a_wait_and_loses_nothing)
{
    const struct timeval short_time = {.tv_usec = 1000};
    struct line line;
    size_t descriptors;

    line_open(&line);
    setsockopt(line.far, SOL_SOCKET, SO_RCVTIMEO, &short_time, sizeof(short_time));
    ck_assert_int_eq(receive_error(&line), COVEY_TIMEOUT);
    write_raw(&line, "\x07\0", 2);
    ck_assert_int_eq(receive_error(&line), COVEY_TIMEOUT);
    write_raw(&line, "\0\0{\"n\"", 6);
    ck_assert_int_eq(receive_error(&line), COVEY_TIMEOUT);
    write_raw(&line, ":9}", 3);
    ck_assert_int_eq(receive_number(&line, &descriptors), 9);
    line_close(&line);
}
END_TEST

START_TEST(test_sender_learns_that_nobody_reads)
{
    struct line line;
    json_t *document = json_object();

    line_open(&line);
    close(line.far);
    line.far = -1;
    ck_assert_int_eq(frame_send(line.near, document, NULL, 0, &line.fail), COVEY_CLOSED);
    json_decref(document);
    line_close(&line);
}
END_TEST

static void *send_document(void *argument)
{
    struct line *line = ((void **)argument)[0];
    const json_t *document = ((void **)argument)[1];

    frame_send(line->near, document, &line->near, 1, &line->fail);
    return NULL;
}

START_TEST(test_longest_frame_goes_through_and_a_longer_one_is_not_begun)
{
    char *text = malloc(FRAME_BYTES_MAX);
    struct line line;
    json_t *longest, *longer, *received;
    void *argument[2];
    pthread_t thread;

    memset(text, 'x', FRAME_BYTES_MAX);
    longest = json_pack("[s#]", text, (int)FRAME_BYTES_MAX - 4);
    longer = json_pack("[s#]", text, (int)FRAME_BYTES_MAX - 3);
    line_open(&line);
    ck_assert_int_eq(frame_send(line.near, longer, NULL, 0, &line.fail), COVEY_TOO_LARGE);
    argument[0] = &line;
    argument[1] = longest;
    pthread_create(&thread, NULL, send_document, argument);
    ck_assert_int_eq(frame_receive(line.far, &line.reader, &received, &line.fail), 1);
    pthread_join(thread, NULL);
    ck_assert(json_equal(longest, received));
    ck_assert_uint_eq(line.reader.descriptor_count, 1);
    json_decref(longest);
    json_decref(longer);
    json_decref(received);
    free(text);
    line_close(&line);
}
END_TEST

/* --- Requests and replies ------------------------------------------------------------------------------- */

static json_t *parse(const char *text)
{
    json_t *document = json_loads(text, 0, NULL);

    ck_assert_ptr_nonnull(document);
    return document;
}

static const struct good_request {
    const char *text;
    size_t descriptors;
} good_requests[] = {
    {"{\"schema\":1,\"command\":\"view\"}", 0},
    {"{\"schema\":1,\"command\":\"view\",\"after\":4294967300,\"wait\":true}", 0},
    {"{\"schema\":1,\"command\":\"groups\"}", 0},
    {"{\"schema\":1,\"command\":\"objects\",\"group\":\"g\"}", 0},
    {"{\"schema\":1,\"command\":\"files\",\"files\":[\"a\",\"b/c\"]}", 2},
    {"{\"schema\":1,\"command\":\"put\",\"group\":\"g\",\"name\":\"n\"}", 0},
    {"{\"schema\":1,\"command\":\"open\",\"group\":\"g\",\"name\":\"n\",\"version\":9007199254740993}", 0},
    {"{\"schema\":1,\"command\":\"store\",\"first\":0,\"count\":3}", 3},
    {"{\"schema\":1,\"command\":\"remove\",\"group\":\"g\",\"name\":\"n\"}", 0},
    {"{\"schema\":1,\"command\":\"stats\"}", 0},
    {"{\"schema\":1,\"command\":\"events\",\"after\":1}", 0},
    {"{\"schema\":1,\"command\":\"bench\",\"group\":\"g\",\"count\":1,\"bytes\":9223372036854775807}", 0},
    {"{\"schema\":1,\"command\":\"reload\"}", 0},
    {"{\"schema\":1,\"command\":\"leave\"}", 0},
    {"{\"schema\":1,\"command\":\"evict\",\"name\":\"n2\"}", 0},
    {"{\"schema\":1,\"command\":\"force\"}", 0},
    {"{\"schema\":1,\"command\":\"table\"}", 0},
    {"{\"schema\":1,\"command\":\"route\",\"name\":\"n2\"}", 0},
};

START_TEST(test_request_is_the_same_after_decoding_and_encoding)
{
    json_t *document = parse(good_requests[_i].text), *again;
    struct request request;
    struct fail fail = {0};

    ck_assert_msg(request_decode(document, good_requests[_i].descriptors, &request, &fail) == 0, "%s",
                  fail.text);
    again = request_encode(&request);
    ck_assert(json_equal(document, again));
    json_decref(document);
    json_decref(again);
}
END_TEST

START_TEST(test_request_keeps_numbers_exact)
{
    json_t *document = parse(
        "{\"schema\":1,\"command\":\"open\",\"group\":\"g\",\"name\":\"n\",\"version\":9007199254740993}");
    struct request request;
    struct fail fail = {0};

    ck_assert_int_eq(request_decode(document, 0, &request, &fail), 0);
    ck_assert_uint_eq(request.version, UINT64_C(9007199254740993));
    json_decref(document);
}
END_TEST

static const struct bad_request {
    const char *text;
    size_t descriptors;
    const char *sentence; /* a part of it */
} bad_requests[] = {
    {"[]", 0, "needs a schema"},
    {"{}", 0, "needs a schema"},
    {"{\"schema\":\"1\",\"command\":\"view\"}", 0, "needs a schema"},
    {"{\"schema\":1,\"command\":7}", 0, "needs a schema and a command"},
    {"{\"schema\":2,\"command\":\"view\"}", 0, "schema 2"},
    {"{\"schema\":1,\"command\":\"fly\"}", 0, "\"fly\" is not known"},
    {"{\"schema\":1,\"command\":\"view\",\"colour\":1}", 0, "no key \"colour\""},
    {"{\"schema\":1,\"command\":\"view\",\"group\":\"g\"}", 0, "no key \"group\""},
    {"{\"schema\":1,\"command\":\"objects\"}", 0, "\"group\" is missing"},
    {"{\"schema\":1,\"command\":\"objects\",\"group\":\"\"}", 0, "\"group\" must be"},
    {"{\"schema\":1,\"command\":\"objects\",\"group\":null}", 0, "\"group\" must be"},
    {"{\"schema\":1,\"command\":\"open\",\"group\":\"g\",\"name\":\"n\",\"version\":-1}", 0,
     "\"version\" must be"},
    {"{\"schema\":1,\"command\":\"open\",\"group\":\"g\",\"name\":\"n\",\"version\":1.5}", 0,
     "\"version\" must be"},
    {"{\"schema\":1,\"command\":\"view\",\"wait\":1}", 0, "\"wait\" must be"},
    {"{\"schema\":1,\"command\":\"files\",\"files\":[]}", 0, "\"files\" must be"},
    {"{\"schema\":1,\"command\":\"files\",\"files\":\"a\"}", 1, "\"files\" must be"},
    {"{\"schema\":1,\"command\":\"files\",\"files\":[1]}", 1, "\"files\" must be"},
    {"{\"schema\":1,\"command\":\"files\",\"files\":[\"a\",\"b\"]}", 1, "2 descriptors are needed, 1 came"},
    {"{\"schema\":1,\"command\":\"view\"}", 1, "0 descriptors are needed, 1 came"},
    {"{\"schema\":1,\"command\":\"store\",\"first\":0,\"count\":0}", 0, "descriptors"},
    {"{\"schema\":1,\"command\":\"store\",\"first\":0,\"count\":9223372036854775807}", 253, "descriptors"},
    {"{\"schema\":1,\"command\":\"bench\",\"bytes\":0,\"count\":1}", 0, "at least 1"},
    {"{\"schema\":1,\"command\":\"bench\",\"bytes\":1,\"count\":1000001}", 0, "more than 1000000"},
};

START_TEST(test_bad_request_is_refused_with_a_sentence_and_nothing_written)
{
    const struct bad_request *bad = &bad_requests[_i];
    json_t *document = parse(bad->text);
    struct request request = {.kind = REQUEST_LEAVE, .version = 77};
    struct fail fail = {0};

    ck_assert_int_lt(request_decode(document, bad->descriptors, &request, &fail), 0);
    ck_assert_msg(strstr(fail.text, bad->sentence) != NULL, "%s: %s", bad->text, fail.text);
    ck_assert_int_eq(request.kind, REQUEST_LEAVE);
    ck_assert_uint_eq(request.version, 77);
    json_decref(document);
}
END_TEST

START_TEST(test_names_of_255_bytes_are_the_longest)
{
    char name[COVEY_NAME_MAX + 2];
    struct request request = {.kind = REQUEST_OBJECTS, .group = name}, decoded;
    struct fail fail = {0};
    json_t *document;

    memset(name, 'n', sizeof(name));
    name[COVEY_NAME_MAX] = '\0';
    document = request_encode(&request);
    ck_assert_int_eq(request_decode(document, 0, &decoded, &fail), 0);
    ck_assert_str_eq(decoded.group, name);
    json_decref(document);
    name[COVEY_NAME_MAX] = 'n';
    name[COVEY_NAME_MAX + 1] = '\0';
    document = request_encode(&request);
    ck_assert_int_eq(request_decode(document, 0, &decoded, &fail), COVEY_PROTOCOL);
    json_decref(document);
}
END_TEST

START_TEST(test_request_that_cannot_be_json_is_not_encoded)
{
    const struct request not_utf8 = {.kind = REQUEST_OBJECTS, .group = "\xff"};
    const struct request missing = {.kind = REQUEST_OBJECTS};

    ck_assert_ptr_null(request_encode(&not_utf8));
    ck_assert_ptr_null(request_encode(&missing));
}
END_TEST

START_TEST(test_reply_is_what_was_encoded)
{
    static const enum reply_kind kinds[] = {REPLY_ITEMS, REPLY_PROGRESS, REPLY_DONE, REPLY_ERROR};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        json_t *body = kinds[i] == REPLY_ITEMS ? json_array() : json_object();
        json_t *document = reply_encode(kinds[i], body);
        struct reply reply;
        struct fail fail = {0};

        ck_assert_int_eq(reply_decode(document, &reply, &fail), 0);
        ck_assert_int_eq(reply.kind, kinds[i]);
        ck_assert_ptr_eq(reply.body, body);
        json_decref(document);
    }
    ck_assert_ptr_null(reply_encode(REPLY_DONE, NULL));
}
END_TEST

START_TEST(test_bad_reply_is_refused)
{
    static const char *const texts[] = {
        "{}",
        "{\"schema\":2,\"done\":{}}",
        "{\"schema\":1}",
        "{\"schema\":1,\"done\":[]}",
        "{\"schema\":1,\"items\":{}}",
        "{\"schema\":1,\"items\":[1]}",
        "{\"schema\":1,\"error\":\"x\"}",
        "[1]",
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        json_t *document = parse(texts[i]);
        struct reply reply;
        struct fail fail = {0};

        ck_assert_msg(reply_decode(document, &reply, &fail) < 0, "%s", texts[i]);
        json_decref(document);
    }
}
END_TEST

START_TEST(test_full_page_of_longest_names_fits_a_frame)
{
    char name[COVEY_NAME_MAX + 1];
    json_t *items = json_array(), *document;

    memset(name, '\x01', COVEY_NAME_MAX); /* six characters each: \u0001 */
    name[COVEY_NAME_MAX] = '\0';
    for (size_t i = 0; i < REPLY_PAGE_ITEMS; i++)
        json_array_append_new(items, json_pack("{s:s, s:I, s:I, s:s}", "name", name, "version", INT64_MAX,
                                               "bytes", INT64_MAX, "digest", "0123456789abcdef"));
    document = reply_encode(REPLY_ITEMS, items);
    ck_assert_uint_le(json_dumpb(document, NULL, 0, JSON_COMPACT), FRAME_BYTES_MAX);
    json_decref(document);
}
END_TEST

/* --- Values --------------------------------------------------------------------------------------------- */

START_TEST(test_numbers_are_exact_past_2_to_the_53)
{
    static const struct {
        uint64_t number;
        const char *text;
    } numbers[] = {{0, "[0]"},
                   {UINT64_C(4294967300), "[4294967300]"},
                   {UINT64_C(9007199254740993), "[9007199254740993]"},
                   {INT64_MAX, "[9223372036854775807]"},
                   {UINT64_MAX, "[9223372036854775807]"}};

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        json_t *array = json_pack("[o]", item_u64(numbers[i].number));
        char *text = json_dumps(array, JSON_COMPACT);

        ck_assert_str_eq(text, numbers[i].text);
        free(text);
        json_decref(array);
    }
}
END_TEST

START_TEST(test_times_survive_being_text)
{
    static const uint64_t times[] = {1, UINT64_C(1700000000123456789), UINT64_C(4102444800000000000)};
    char text[ITEM_TIME_BYTES];

    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        item_format_time(times[i], text);
        ck_assert_uint_eq(item_parse_time(text), times[i]);
    }
    item_format_time(UINT64_C(1700000000123456789), text);
    ck_assert_str_eq(text, "2023-11-14T22:13:20.123456789Z");
    ck_assert_uint_eq(item_parse_time(""), 0);
    ck_assert_uint_eq(item_parse_time("2023-11-14T22:13:20Z"), 0);
    ck_assert_uint_eq(item_parse_time("2023-11-14T22:13:20.12Z"), 0);
    ck_assert_uint_eq(item_parse_time("2023-11-14T22:13:20.123456789"), 0);
}
END_TEST

START_TEST(test_random_numbers_are_16_digits)
{
    json_t *small = item_hex(10), *never = item_time(0);

    ck_assert_str_eq(json_string_value(small), "000000000000000a");
    ck_assert(json_is_null(never));
    json_decref(small);
    json_decref(never);
}
END_TEST

START_TEST(test_text_that_is_not_utf8_is_repaired)
{
    static const struct {
        const char *bytes, *text;
    } texts[] = {{"plain", "plain"},
                 {"\xe2\x82\xac", "\xe2\x82\xac"},
                 {"a\xff"
                  "b",
                  "a\xef\xbf\xbd"
                  "b"},
                 {"\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd"},
                 {"\xc3\xa9\x80", "\xc3\xa9\xef\xbf\xbd"},
                 {"", ""}};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        json_t *string = item_text(texts[i].bytes);

        ck_assert_str_eq(json_string_value(string), texts[i].text);
        json_decref(string);
    }
}
END_TEST

/* --- The path ------------------------------------------------------------------------------------------- */

/* A directory of the test's own, and a path in it. */
struct place {
    char directory[64], path[96], lock[104];
};

static void place_make(struct place *place)
{
    snprintf(place->directory, sizeof(place->directory), "/tmp/covey-control.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(place->directory));
    snprintf(place->path, sizeof(place->path), "%s/n0.sock", place->directory);
    snprintf(place->lock, sizeof(place->lock), "%s.lock", place->path);
}

/* Fails if anything is left in it. */
static void place_remove(const struct place *place)
{
    ck_assert_msg(rmdir(place->directory) == 0, "%s: %s", place->directory, strerror(errno));
}

static struct endpoint *bind_good(const char *path)
{
    struct endpoint *endpoint;
    struct fail fail = {0};

    ck_assert_msg(endpoint_bind(path, &endpoint, &fail) == 0, "%s", fail.text);
    ck_assert_int_eq(endpoint_listen(endpoint, &fail), 0);
    return endpoint;
}

static int bind_bad(const char *path, const char *sentence)
{
    struct endpoint *endpoint;
    struct fail fail = {0};
    int result = endpoint_bind(path, &endpoint, &fail);

    ck_assert_int_lt(result, 0);
    ck_assert_msg(strstr(fail.text, sentence) != NULL, "%s", fail.text);
    return result;
}

START_TEST(test_client_reaches_the_daemon_and_both_files_go_at_the_end)
{
    struct place place;
    struct endpoint *endpoint;
    struct fail fail = {0};
    struct stat status;
    int client, served;

    place_make(&place);
    endpoint = bind_good(place.path);
    stat(place.path, &status);
    ck_assert_uint_eq(status.st_mode & 07777, 0600);
    ck_assert_int_eq(endpoint_accept(endpoint, &served, &fail), COVEY_AGAIN);
    ck_assert_int_eq(endpoint_connect(place.path, 1000, &client, &fail), 0);
    ck_assert_int_eq(endpoint_accept(endpoint, &served, &fail), 0);
    close(client);
    close(served);
    endpoint_close(endpoint);
    place_remove(&place);
}
END_TEST

START_TEST(test_directory_is_made_if_only_that_is_missing)
{
    struct place place;
    char path[128];

    place_make(&place);
    snprintf(path, sizeof(path), "%s/run/n0.sock", place.directory);
    endpoint_close(bind_good(path));
    snprintf(path, sizeof(path), "%s/run", place.directory);
    ck_assert_int_eq(rmdir(path), 0);
    snprintf(path, sizeof(path), "%s/far/away/n0.sock", place.directory);
    bind_bad(path, "No such file or directory");
    place_remove(&place);
}
END_TEST

/* A socket that a killed process left. */
static void leave_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    close(fd);
}

START_TEST(test_stale_socket_is_replaced)
{
    struct place place;
    struct endpoint *endpoint;
    struct fail fail = {0};
    int client;

    place_make(&place);
    leave_socket(place.path);
    close(open(place.lock, O_CREAT | O_RDWR, 0600));
    endpoint = bind_good(place.path);
    ck_assert_int_eq(endpoint_connect(place.path, 1000, &client, &fail), 0);
    close(client);
    endpoint_close(endpoint);
    place_remove(&place);
}
END_TEST

START_TEST(test_living_daemon_is_left_alone)
{
    struct place place;
    struct endpoint *endpoint;
    struct stat before, after;

    place_make(&place);
    endpoint = bind_good(place.path);
    stat(place.path, &before);
    ck_assert_int_eq(bind_bad(place.path, "another coveyd runs"), COVEY_BUSY);
    /* also if a cleaner of /tmp took the lock's file */
    unlink(place.lock);
    ck_assert_int_eq(bind_bad(place.path, "another process listens"), COVEY_BUSY);
    stat(place.path, &after);
    ck_assert_uint_eq(before.st_ino, after.st_ino);
    endpoint_close(endpoint);
    place_remove(&place);
}
END_TEST

START_TEST(test_what_is_no_socket_is_kept)
{
    struct place place;
    char text[8] = "";
    int fd;

    place_make(&place);
    fd = open(place.path, O_CREAT | O_RDWR, 0600);
    ck_assert_int_eq(write(fd, "precious", 8), 8);
    ck_assert_int_eq(bind_bad(place.path, "is not a socket"), COVEY_EXISTS);
    ck_assert_int_eq(pread(fd, text, 8, 0), 8);
    close(fd);
    ck_assert_int_eq(unlink(place.path), 0);
    place_remove(&place);
}
END_TEST

START_TEST(test_path_too_long_is_a_sentence)
{
    struct sockaddr_un address;
    char path[2 * sizeof(address.sun_path)];
    struct fail fail = {0};
    int fd;

    memset(path, 'p', sizeof(path) - 1);
    path[0] = '/';
    path[sizeof(path) - 1] = '\0';
    ck_assert_int_eq(bind_bad(path, "choose a shorter one"), COVEY_TOO_LARGE);
    ck_assert_int_eq(endpoint_connect(path, 10, &fd, &fail), COVEY_TOO_LARGE);
    ck_assert_int_eq(bind_bad("", "empty"), COVEY_INVALID);
}
END_TEST

/* Wait until it is the time that the pipe's other end is closed. */
static void await_start(int pipe_end)
{
    char byte;

    ck_assert_int_eq(read(pipe_end, &byte, 1), 0);
}

START_TEST(test_of_two_starts_at_once_one_wins)
{
    enum { STARTERS = 4 };
    struct place place;
    int gate[2], done[2], winners = 0;
    pid_t children[STARTERS];

    place_make(&place);
    leave_socket(place.path);
    ck_assert_int_eq(pipe(gate), 0);
    ck_assert_int_eq(pipe(done), 0);
    for (int i = 0; i < STARTERS; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            struct endpoint *endpoint = NULL;
            struct fail fail = {0};

            close(gate[1]);
            close(done[1]);
            await_start(gate[0]);
            if (endpoint_bind(place.path, &endpoint, &fail) == 0)
                endpoint_listen(endpoint, &fail);
            if (endpoint != NULL)
                await_start(done[0]); /* keeps it until everyone has tried */
            endpoint_close(endpoint);
            _exit(endpoint != NULL);
        }
    }
    close(gate[1]);
    for (int i = 0; i < STARTERS - 1; i++)
        ck_assert_int_gt(waitpid(-1, &(int){0}, 0), 0); /* those that lost end by themselves */
    close(done[1]);
    ck_assert_int_gt(waitpid(-1, &winners, 0), 0);
    ck_assert_int_eq(WEXITSTATUS(winners), 1);
    close(gate[0]);
    close(done[0]);
    place_remove(&place);
}
END_TEST

START_TEST(test_missing_daemon_is_named_by_its_path)
{
    struct place place;
    struct fail fail = {0};
    int fd;

    place_make(&place);
    ck_assert_int_eq(endpoint_connect(place.path, 1000, &fd, &fail), COVEY_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(fail.text, place.path));
    leave_socket(place.path);
    ck_assert_int_eq(endpoint_connect(place.path, 1000, &fd, &fail), COVEY_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(fail.text, place.path));
    unlink(place.path);
    place_remove(&place);
}
END_TEST

/* The code of the error that a daemon sends to who has just connected; "" if it sends none. */
static void read_error_code(int socket, char *code, size_t room)
{
    struct frame_reader reader = {0};
    struct reply reply;
    struct fail fail = {0};
    json_t *document;

    code[0] = '\0';
    if (frame_receive(socket, &reader, &document, &fail) == 1) {
        if (reply_decode(document, &reply, &fail) == 0)
            snprintf(code, room, "%s", item_get_text(reply.body, "code"));
        json_decref(document);
    }
    frame_reader_fini(&reader);
}

/* In a child that is another user. 0: the daemon said that it may not; otherwise why it could not connect. */
static int connect_as_nobody(const char *path)
{
    struct fail fail = {0};
    char code[32];
    int fd, result;

    if (setuid(NOBODY) != 0)
        return 1;
    result = endpoint_connect(path, 1000, &fd, &fail);
    if (result != 0)
        return -result;
    read_error_code(fd, code, sizeof(code));
    close(fd);
    return strcmp(code, "PERMISSION") == 0 ? 0 : 1;
}

static int wait_for(pid_t child)
{
    int status;

    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

START_TEST(test_other_users_are_refused)
{
    struct place place;
    struct endpoint *endpoint;
    struct fail fail = {0};
    pid_t child;
    int fd, result;

    if (geteuid() != 0) {
        fputs("skipped: only root can be another user\n", stderr);
        return;
    }
    place_make(&place);
    chmod(place.directory, 0755);
    endpoint = bind_good(place.path);
    /* by the file's mode */
    child = fork();
    if (child == 0)
        _exit(connect_as_nobody(place.path));
    ck_assert_int_eq(wait_for(child), -COVEY_PERMISSION);
    /* and by the peer's credentials, should someone open the file's mode */
    chmod(place.path, 0666);
    child = fork();
    if (child == 0)
        _exit(connect_as_nobody(place.path));
    do
        result = endpoint_accept(endpoint, &fd, &fail);
    while (result == COVEY_AGAIN);
    ck_assert_int_eq(result, COVEY_PERMISSION);
    ck_assert_int_eq(wait_for(child), 0);
    endpoint_close(endpoint);
    place_remove(&place);
}
END_TEST

START_TEST(test_client_is_told_when_the_daemon_may_open_no_more_files)
{
    struct place place;
    struct endpoint *endpoint;
    struct rlimit limit;
    struct frame_reader reader = {0};
    struct reply reply;
    struct fail fail = {0};
    json_t *document;
    int client, served, result;

    if (!can_limit_descriptors())
        return;
    place_make(&place);
    endpoint = bind_good(place.path);
    ck_assert_int_eq(endpoint_connect(place.path, 1000, &client, &fail), 0);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit_descriptors(client + 1);
    result = endpoint_accept(endpoint, &served, &fail);
    setrlimit(RLIMIT_NOFILE, &limit);
    ck_assert_int_eq(result, COVEY_TOO_LARGE);
    ck_assert_int_eq(frame_receive(client, &reader, &document, &fail), 1);
    ck_assert_int_eq(reply_decode(document, &reply, &fail), 0);
    ck_assert_int_eq(reply.kind, REPLY_ERROR);
    json_decref(document);
    close(client);
    endpoint_close(endpoint);
    place_remove(&place);
}
END_TEST

/* --- The service manager -------------------------------------------------------------------------------- */

static int open_manager(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));

    memcpy(address.sun_path, name, strlen(name));
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, bytes), 0);
    return fd;
}

static void expect_notice(const char *name)
{
    int manager = open_manager(name);
    struct fail fail = {0};
    char text[64] = "";

    setenv("NOTIFY_SOCKET", name, 1);
    ck_assert_msg(notify_send(&fail, "READY=1\nSTATUS=%d", 5) == 0, "%s", fail.text);
    ck_assert_int_gt(recv(manager, text, sizeof(text) - 1, MSG_DONTWAIT), 0);
    ck_assert_str_eq(text, "READY=1\nSTATUS=5");
    close(manager);
}

START_TEST(test_manager_hears_at_a_path_and_at_an_abstract_name)
{
    struct place place;
    char abstract[64];

    place_make(&place);
    expect_notice(place.path);
    unlink(place.path);
    snprintf(abstract, sizeof(abstract), "@covey-control-%ld", (long)getpid());
    expect_notice(abstract);
    place_remove(&place);
}
END_TEST

START_TEST(test_no_manager_or_a_bad_one_is_not_fatal)
{
    struct fail fail = {0};

    unsetenv("NOTIFY_SOCKET");
    ck_assert_int_eq(notify_send(&fail, "READY=1"), 0);
    setenv("NOTIFY_SOCKET", "relative", 1);
    ck_assert_int_eq(notify_send(&fail, "READY=1"), COVEY_INVALID);
    setenv("NOTIFY_SOCKET", "/no/such/socket", 1);
    ck_assert_int_eq(notify_send(&fail, "READY=1"), COVEY_IO);
    ck_assert_ptr_nonnull(strstr(fail.text, "/no/such/socket"));
}
END_TEST

SUITE_MAIN("control", 30, SUITE_TEST(test_frames_arrive_in_order_and_one_at_a_time),
           SUITE_TEST(test_frame_is_length_and_json),
           SUITE_TEST(test_descriptors_belong_to_their_frame_and_no_other),
           SUITE_TEST(test_descriptor_is_the_file_that_was_sent),
           SUITE_TEST(test_frame_with_too_many_descriptors_is_refused_and_leaks_none),
           SUITE_TEST(test_reader_knows_when_the_kernel_dropped_descriptors),
           SUITE_LOOP(test_broken_stream_is_an_error, sizeof(broken) / sizeof(broken[0])),
           SUITE_TEST(test_silence_ends_a_wait_and_loses_nothing),
           SUITE_TEST(test_sender_learns_that_nobody_reads),
           SUITE_TEST(test_longest_frame_goes_through_and_a_longer_one_is_not_begun),
           SUITE_LOOP(test_request_is_the_same_after_decoding_and_encoding,
                      sizeof(good_requests) / sizeof(good_requests[0])),
           SUITE_TEST(test_request_keeps_numbers_exact),
           SUITE_LOOP(test_bad_request_is_refused_with_a_sentence_and_nothing_written,
                      sizeof(bad_requests) / sizeof(bad_requests[0])),
           SUITE_TEST(test_names_of_255_bytes_are_the_longest),
           SUITE_TEST(test_request_that_cannot_be_json_is_not_encoded),
           SUITE_TEST(test_reply_is_what_was_encoded), SUITE_TEST(test_bad_reply_is_refused),
           SUITE_TEST(test_full_page_of_longest_names_fits_a_frame),
           SUITE_TEST(test_numbers_are_exact_past_2_to_the_53), SUITE_TEST(test_times_survive_being_text),
           SUITE_TEST(test_random_numbers_are_16_digits), SUITE_TEST(test_text_that_is_not_utf8_is_repaired),
           SUITE_TEST(test_client_reaches_the_daemon_and_both_files_go_at_the_end),
           SUITE_TEST(test_directory_is_made_if_only_that_is_missing),
           SUITE_TEST(test_stale_socket_is_replaced), SUITE_TEST(test_living_daemon_is_left_alone),
           SUITE_TEST(test_what_is_no_socket_is_kept), SUITE_TEST(test_path_too_long_is_a_sentence),
           SUITE_TEST(test_of_two_starts_at_once_one_wins),
           SUITE_TEST(test_missing_daemon_is_named_by_its_path), SUITE_TEST(test_other_users_are_refused),
           SUITE_TEST(test_client_is_told_when_the_daemon_may_open_no_more_files),
           SUITE_TEST(test_manager_hears_at_a_path_and_at_an_abstract_name),
           SUITE_TEST(test_no_manager_or_a_bad_one_is_not_fatal))
