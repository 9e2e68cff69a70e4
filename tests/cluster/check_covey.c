/* SPDX-License-Identifier: BSD-3-Clause */
/* The commands of covey against a node: what they print, what they write, and how they fail. */

#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "control/endpoint.h"
#include "control/frame.h"
#include "control/item.h"
#include "control/reply.h"
#include "control/request.h"
#include "tests/lib/documents.h"
#include "tests/lib/process.h"
#include "tests/lib/suite.h"

static void expect(const struct result *result, int status)
{
    ck_assert_msg(result->status == status, "status %d: %s%s", result->status, result->output,
                  result->errors);
}

static void expect_error(const struct result *result, const char *words)
{
    expect(result, 1);
    ck_assert_msg(strstr(result->errors, words) != NULL, "%s", result->errors);
    ck_assert_int_eq(strncmp(result->errors, "covey: ", 7), 0);
}

static void put_file(const struct node *node, const char *name, const char *path)
{
    struct result result;

    node_covey(node, &result, "put", "models", name, path, NULL);
    expect(&result, 0);
}

/* Entries of the directory that begin so. */
static int count_entries(const char *path, const char *begin)
{
    DIR *directory = opendir(path);
    const struct dirent *entry;
    int count = 0;

    while ((entry = readdir(directory)) != NULL)
        count += strncmp(entry->d_name, begin, strlen(begin)) == 0;
    closedir(directory);
    return count;
}

static int scratch_count(const struct node *node)
{
    return count_entries(node->directory, ".covey-get");
}

/* --- Without a daemon ----------------------------------------------------------------------------------- */

START_TEST(test_every_command_names_the_socket_when_no_daemon_runs)
{
    struct node node;
    struct result result;
    const char *file;

    node_init(&node, 1);
    file = node_file(&node, "file", 10, 1);
#define WITHOUT_DAEMON(...)                            \
    do {                                               \
        node_covey(&node, &result, __VA_ARGS__, NULL); \
        expect_error(&result, node.socket);            \
        ck_assert_str_eq(result.output, "");           \
    } while (0)
    WITHOUT_DAEMON("view");
    WITHOUT_DAEMON("view", "--watch");
    WITHOUT_DAEMON("view", "force", "--yes");
    WITHOUT_DAEMON("table");
    WITHOUT_DAEMON("evict", "n1");
    WITHOUT_DAEMON("groups");
    WITHOUT_DAEMON("objects", "models");
    WITHOUT_DAEMON("put", "models", "name", file);
    WITHOUT_DAEMON("get", "models", "name", "-o", node_path(&node, "out"));
    WITHOUT_DAEMON("rm", "models", "name");
    WITHOUT_DAEMON("route");
    WITHOUT_DAEMON("stats");
    WITHOUT_DAEMON("events", "--follow");
    WITHOUT_DAEMON("bench");
    WITHOUT_DAEMON("reload");
    WITHOUT_DAEMON("leave");
    ck_assert_int_eq(scratch_count(&node), 0);
    node_fini(&node);
}
END_TEST

/* Run covey without -s; its errors. */
static void run_bare(const struct node *node, struct result *result, const char *const *arguments)
{
    const char *output = node_path(node, "bare.output"), *errors = node_path(node, "bare.errors");

    result->status = process_wait(process_start(arguments, output, errors));
    process_read(output, result->output, sizeof(result->output));
    process_read(errors, result->errors, sizeof(result->errors));
}

START_TEST(test_daemon_is_found_by_environment_by_node_or_alone)
{
    static const char *const plain[] = {"./covey", "view", NULL};
    static const char *const by_node[] = {"./covey", "-n", "n7", "view", NULL};
    struct node node;
    struct result result;

    unsetenv("COVEY_SOCKET");
    node_init(&node, 1);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/run", "tmpfs", 0, NULL) != 0) {
        fputs("skipped: /run cannot be hidden here\n", stderr);
        return;
    }
    run_bare(&node, &result, plain);
    expect_error(&result, "there is no socket in /run/covey");
    mkdir("/run/covey", 0755);
    close(open("/run/covey/n1.sock", O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    run_bare(&node, &result, plain);
    expect_error(&result, "/run/covey/n1.sock");
    close(open("/run/covey/n2.sock", O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    close(open("/run/covey/n2.sock.lock", O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    run_bare(&node, &result, plain);
    expect_error(&result, "choose one with -n NODE:");
    ck_assert(strstr(result.errors, " n1") != NULL && strstr(result.errors, " n2") != NULL);
    run_bare(&node, &result, by_node);
    expect_error(&result, "/run/covey/n7.sock");
    setenv("COVEY_SOCKET", node.socket, 1);
    run_bare(&node, &result, plain);
    expect_error(&result, node.socket);
    run_bare(&node, &result, by_node);
    expect_error(&result, "/run/covey/n7.sock");
    node_fini(&node);
}
END_TEST

START_TEST(test_wrong_command_line_is_status_64)
{
    struct node node;
    struct result result;

    node_init(&node, 1);
#define WRONG(...)                                     \
    do {                                               \
        node_covey(&node, &result, __VA_ARGS__, NULL); \
        expect(&result, 64);                           \
        ck_assert_str_ne(result.errors, "");           \
    } while (0)
    WRONG("fly");
    WRONG("view", "extra");
    WRONG("view", "--no-such");
    WRONG("view", "--yes");
    WRONG("view", "force", "--watch");
    WRONG("evict");
    WRONG("objects");
    WRONG("put", "models", "name");
    WRONG("get", "models", "name");
    WRONG("get", "models", "name", "-o", "x", "-v", "0");
    WRONG("get", "models", "name", "-o", "x", "-v", "1x");
    WRONG("bench", "--bytes", "0");
    WRONG("bench", "--bytes", "12Q");
    WRONG("bench", "--bytes", "-1");
    WRONG("bench", "--bytes", "0.3B");
    WRONG("bench", "--bytes", "16777216TiB");
    WRONG("bench", "--count", "0");
    WRONG("bench", "one", "two");
    WRONG("-n", "n0", "view"); /* beside -s */
    WRONG("table", "extra");
    ck_assert_ptr_nonnull(strstr(result.errors, "Usage: covey table\n"));
    node_fini(&node);
}
END_TEST

/* --- Looking -------------------------------------------------------------------------------------------- */

#define TABLE_KEYS                                                                                       \
    "rank:i id:i name:s incarnation:x self:b linked:b silent:rn heartbeat:i view:i flags:a suspected:a " \
    "evicted:a promised:sn accepted:sn committed:sn received:on"
#define PUT_KEYS "version:i digest:x bytes:i seconds:r gb_per_s:r schedule:s block_bytes:i blocks:i"

START_TEST(test_json_has_the_documented_keys)
{
    struct node node;
    struct result result;

    node_init(&node, 1);
    node_start(&node);
    node_covey(&node, &result, "--json", "put", "models", "object", node_file(&node, "file", 1000, 1), NULL);
    expect(&result, 0);
    {
        json_t *document = parse_output(&result);

        expect_keys(document, "schema:i " PUT_KEYS);
        json_decref(document);
    }
    node_covey(&node, &result, "--json", "view", NULL);
    expect_document(&result, "schema:i members:a number:i epoch:x state:s quorate:b size:i count:i change:i",
                    "members", "rank:i id:i name:s address:s incarnation:x state:s self:b since:t problem:n");
    node_covey(&node, &result, "groups", "--json", NULL);
    expect_document(&result, "schema:i groups:a", "groups",
                    "name:s state:s members:i memory:s budget_bytes:i used_bytes:i objects:i keep_versions:i "
                    "schedule:s block_bytes:in");
    node_covey(&node, &result, "--json", "objects", "models", NULL);
    expect_document(&result, "schema:i objects:a group:s", "objects",
                    "name:s version:i bytes:i digest:x buffers:i state:s bytes_done:i pins:i since:t");
    node_covey(&node, &result, "--json", "route", NULL);
    expect_document(&result, "schema:i routes:a", "routes",
                    "id:i name:s memory:s transport:sn staged:b text:s");
    node_covey(&node, &result, "--json", "stats", NULL);
    expect_document(&result, "schema:i stats:a", "stats", "name:s value:ir unit:s");
    node_covey(&node, &result, "--json", "table", NULL);
    expect_document(&result, "schema:i rows:a number:i epoch:x", "rows", TABLE_KEYS);
    node_covey(&node, &result, "--json", "bench", "--bytes", "4KiB", "--count", "3", NULL);
    expect_document(&result,
                    "schema:i group:s members:i memory:s bytes:i count:i seconds:o gb_per_s:o puts:a", "puts",
                    "number:i " PUT_KEYS);
    node_covey(&node, &result, "--json", "get", "models", "object", "-o", node_path(&node, "out"), NULL);
    {
        json_t *document = parse_output(&result);

        expect_keys(document, "schema:i name:s version:i bytes:i digest:x buffers:i path:s seconds:r");
        json_decref(document);
    }
    node_covey(&node, &result, "--json", "rm", "models", "object", NULL);
    {
        json_t *document = parse_output(&result);

        expect_keys(document, "schema:i seconds:r");
        json_decref(document);
    }
    node_fini(&node);
}
END_TEST

START_TEST(test_every_counter_is_in_the_manual)
{
    const char *srcdir = getenv("srcdir");
    char path[256], manual[OUTPUT_MAX];
    struct node node;
    struct result result;
    json_t *document;
    const json_t *stats;

    snprintf(path, sizeof(path), "%s/doc/covey.1", srcdir != NULL ? srcdir : ".");
    process_read(path, manual, sizeof(manual));
    node_init(&node, 1);
    node_start(&node);
    node_covey(&node, &result, "--json", "stats", NULL);
    document = parse_output(&result);
    stats = json_object_get(document, "stats");
    ck_assert_uint_gt(json_array_size(stats), 0);
    for (size_t i = 0; i < json_array_size(stats); i++) {
        const char *name = item_get_text(json_array_get(stats, i), "name");

        ck_assert_msg(strstr(manual, name) != NULL, "%s is not in covey(1)", name);
    }
    json_decref(document);
    node_fini(&node);
}
END_TEST

START_TEST(test_view_without_quorum_is_status_2)
{
    struct node node;
    struct result result;

    node_init(&node, 3);
    node_start(&node);
    node_covey(&node, &result, "view", NULL);
    expect(&result, 2);
    ck_assert_ptr_nonnull(strstr(result.output, "NOT QUORATE"));
    ck_assert_ptr_nonnull(strstr(result.output, "n2"));
    node_covey(&node, &result, "--json", "view", NULL);
    expect(&result, 2);
    ck_assert_ptr_nonnull(strstr(result.output, "\"quorate\":false"));
    node_covey(&node, &result, "rm", "models", "object", NULL);
    expect_error(&result, "group models waits for the view to form: n1 (127.");
    node_fini(&node);
}
END_TEST

START_TEST(test_piped_output_has_no_escape_codes)
{
    struct node node;
    struct result result;

    node_init(&node, 1);
    node_start(&node);
    node_covey(&node, &result, "view", NULL);
    ck_assert_ptr_null(strchr(result.output, '\033'));
    node_covey(&node, &result, "put", "models", "object", node_file(&node, "file", 4000000, 1), NULL);
    expect(&result, 0);
    ck_assert_str_eq(result.errors, "");
    ck_assert_ptr_null(strchr(result.output, '\r'));
    node_fini(&node);
}
END_TEST

START_TEST(test_events_follow_what_happens)
{
    struct node node;
    struct result result;
    const char *arguments[] = {"./covey", "-s", NULL, "--json", "events", "--follow", NULL};
    char text[OUTPUT_MAX];
    const char *output;
    pid_t follower;

    node_init(&node, 1);
    node_start(&node);
    output = node_path(&node, "followed");
    arguments[2] = node.socket;
    follower = process_start(arguments, output, "/dev/null");
    put_file(&node, "seen-by-follower", node_file(&node, "file", 1000, 1));
    PROCESS_AWAIT((process_read(output, text, sizeof(text)), strstr(text, "seen-by-follower") != NULL));
    kill(follower, SIGTERM);
    process_wait(follower);
    node_covey(&node, &result, "events", NULL);
    expect(&result, 0);
    ck_assert_ptr_nonnull(strstr(result.output, "seen-by-follower"));
    node_fini(&node);
}
END_TEST

START_TEST(test_watchers_of_the_view_end_with_the_daemon)
{
    struct node node;
    const char *arguments[] = {"./covey", "-s", NULL, "view", "--watch", NULL};
    char text[OUTPUT_MAX];
    const char *output;
    pid_t watcher;

    node_init(&node, 1);
    node_start(&node);
    output = node_path(&node, "watched");
    arguments[2] = node.socket;
    watcher = process_start(arguments, output, "/dev/null");
    PROCESS_AWAIT((process_read(output, text, sizeof(text)), strstr(text, "n0*") != NULL));
    node_stop(&node);
    ck_assert_int_eq(process_wait(watcher), 1);
    node_fini(&node);
}
END_TEST

/* --- put and get ---------------------------------------------------------------------------------------- */

START_TEST(test_file_comes_back_as_it_was)
{
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 1000003, 9000000};
    struct node node;

    node_init(&node, 1);
    node_start(&node);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const char *in = node_file(&node, "in", sizes[i], (unsigned)i), *out = node_path(&node, "out");
        struct result result;

        put_file(&node, "object", in);
        node_covey(&node, &result, "get", "models", "object", "-f", "-o", out, NULL);
        expect(&result, 0);
        ck_assert(files_equal(in, out));
    }
    ck_assert_int_eq(scratch_count(&node), 0);
    node_fini(&node);
}
END_TEST

START_TEST(test_versions_are_told_apart)
{
    struct node node;
    struct result result;
    json_t *document;
    char version[24];
    const char *first, *out;

    node_init(&node, 1);
    node_start(&node);
    first = node_file(&node, "first", 1000, 1);
    node_covey(&node, &result, "--json", "put", "models", "object", first, NULL);
    document = parse_output(&result);
    snprintf(version, sizeof(version), "%lld",
             (long long)json_integer_value(json_object_get(document, "version")));
    json_decref(document);
    put_file(&node, "object", node_file(&node, "second", 1000, 2));
    out = node_path(&node, "out");
    node_covey(&node, &result, "get", "models", "object", "-o", out, "-v", version, NULL);
    expect(&result, 0);
    ck_assert(files_equal(first, out));
    node_covey(&node, &result, "get", "models", "object", "-o", node_path(&node, "none"), "-v", "999999",
               NULL);
    expect_error(&result, "object");
    node_fini(&node);
}
END_TEST

START_TEST(test_folder_comes_back_as_it_was)
{
    struct node node;
    struct result result;
    const char *folder, *out;

    node_init(&node, 1);
    node_start(&node);
    folder = node_path(&node, "folder");
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    ck_assert_int_eq(mkdir(node_path(&node, "folder/sub folder"), 0700), 0);
    node_file(&node, "folder/a", 10, 1);
    node_file(&node, "folder/sub folder/a", 20, 2);
    ck_assert_int_eq(symlink("a", node_path(&node, "folder/link")), 0);
    node_covey(&node, &result, "put", "models", "object", folder, NULL);
    expect(&result, 0);
    out = node_path(&node, "out");
    node_covey(&node, &result, "get", "models", "object", "-o", out, NULL);
    expect(&result, 0);
    ck_assert(files_equal(node_path(&node, "folder/a"), node_path(&node, "out/a")));
    ck_assert(files_equal(node_path(&node, "folder/a"), node_path(&node, "out/link")));
    ck_assert(files_equal(node_path(&node, "folder/sub folder/a"), node_path(&node, "out/sub folder/a")));
    node_fini(&node);
}
END_TEST

START_TEST(test_files_of_the_same_name_get_longer_ones)
{
    struct node node;
    struct result result;
    const char *left, *right;

    node_init(&node, 1);
    node_start(&node);
    mkdir(node_path(&node, "left"), 0700);
    mkdir(node_path(&node, "right"), 0700);
    left = node_file(&node, "left/same", 10, 1);
    right = node_file(&node, "right/same", 20, 2);
    node_covey(&node, &result, "put", "models", "object", left, right, node_file(&node, "other", 5, 3), NULL);
    expect(&result, 0);
    node_covey(&node, &result, "get", "models", "object", "-o", node_path(&node, "out"), NULL);
    expect(&result, 0);
    ck_assert(files_equal(left, node_path(&node, "out/left/same")));
    ck_assert(files_equal(right, node_path(&node, "out/right/same")));
    ck_assert(files_equal(node_path(&node, "other"), node_path(&node, "out/other")));
    node_covey(&node, &result, "put", "models", "object", left, right, left, NULL);
    expect_error(&result, "given twice");
    node_fini(&node);
}
END_TEST

/* More files than fit a frame, a client that may have few open, and a daemon that starts with few. */
START_TEST(test_thousands_of_files_are_one_object)
{
    enum { FILES = 1100 };
    struct rlimit limit, few = {0};
    struct node node;
    struct result result;
    char name[32];

    getrlimit(RLIMIT_NOFILE, &limit);
    few = (struct rlimit){.rlim_cur = 300, .rlim_max = limit.rlim_max};
    node_init(&node, 1);
    mkdir(node_path(&node, "folder"), 0700);
    for (unsigned i = 0; i < FILES; i++) {
        snprintf(name, sizeof(name), "folder/%u", i);
        node_file(&node, name, i % 7, i);
    }
    setrlimit(RLIMIT_NOFILE, &few);
    node_start(&node);
    node_covey(&node, &result, "put", "models", "object", node_path(&node, "folder"), NULL);
    expect(&result, 0);
    node_covey(&node, &result, "get", "models", "object", "-o", node_path(&node, "out"), NULL);
    expect(&result, 0);
    ck_assert_int_eq(count_entries(node_path(&node, "out"), ""), FILES + 2);
    for (unsigned i = 0; i < FILES; i += 97) {
        char out[32];

        snprintf(name, sizeof(name), "folder/%u", i);
        snprintf(out, sizeof(out), "out/%u", i);
        ck_assert(files_equal(node_path(&node, name), node_path(&node, out)));
    }
    node_fini(&node);
}
END_TEST

START_TEST(test_daemon_that_may_open_too_few_files_says_so)
{
    enum { FILES = 600 };
    const struct rlimit few = {.rlim_cur = 400, .rlim_max = 400};
    struct node node;
    struct result result;
    char name[32];

    node_init(&node, 1);
    mkdir(node_path(&node, "folder"), 0700);
    for (unsigned i = 0; i < FILES; i++) {
        snprintf(name, sizeof(name), "folder/%u", i);
        node_file(&node, name, 1, i);
    }
    setrlimit(RLIMIT_NOFILE, &few);
    node_start(&node);
    node_covey(&node, &result, "put", "models", "object", node_path(&node, "folder"), NULL);
    expect_error(&result, "RLIMIT_NOFILE");
    put_file(&node, "small", node_path(&node, "folder/1"));
    node_fini(&node);
}
END_TEST

START_TEST(test_put_names_the_file_that_it_cannot_take)
{
    struct node node;
    struct result result;
    const char *fifo, *empty;

    node_init(&node, 1);
    node_start(&node);
    fifo = node_path(&node, "fifo");
    mkfifo(fifo, 0600);
    empty = node_path(&node, "empty");
    mkdir(empty, 0700);
    node_covey(&node, &result, "put", "models", "object", node_path(&node, "missing"), NULL);
    expect_error(&result, "missing: No such file or directory");
    node_covey(&node, &result, "put", "models", "object", fifo, NULL);
    expect_error(&result, "fifo is not a regular file");
    node_covey(&node, &result, "put", "models", "object", empty, NULL);
    expect_error(&result, "has no files");
    node_file(&node, "empty/new\nline", 10, 1);
    node_covey(&node, &result, "put", "models", "object", empty, NULL);
    expect_error(&result, "unprintable character U+000A");
    expect_error(&result, empty);
    ck_assert_int_eq(unlink(node_path(&node, "empty/new\nline")), 0);
    node_file(&node, "empty/\xff", 10, 1);
    node_covey(&node, &result, "put", "models", "object", empty, NULL);
    expect_error(&result, "is not UTF-8");
    expect_error(&result, empty);
    ck_assert_int_eq(unlink(node_path(&node, "empty/\xff")), 0);
    node_covey(&node, &result, "put", "models", "", fifo, NULL);
    expect_error(&result, "NAME: a name has 1 to 255 bytes, this has 0");
    symlink(".", node_path(&node, "empty/loop"));
    node_covey(&node, &result, "put", "models", "object", empty, NULL);
    expect_error(&result, "leads back");
    node_covey(&node, &result, "put", "no-group", "object", node_file(&node, "file", 10, 1), NULL);
    expect_error(&result, "no-group");
    node_covey(&node, &result, "objects", "models", NULL);
    expect(&result, 0);
    ck_assert_ptr_null(strstr(result.output, "object "));
    node_fini(&node);
}
END_TEST

START_TEST(test_get_leaves_what_is_there)
{
    struct node node;
    struct result result;
    const char *in, *there, *folder;

    node_init(&node, 1);
    node_start(&node);
    in = node_file(&node, "in", 1000, 1);
    put_file(&node, "object", in);
    there = node_file(&node, "there", 10, 9);
    folder = node_path(&node, "folder");
    mkdir(folder, 0700);
    node_covey(&node, &result, "get", "models", "object", "-o", there, NULL);
    expect_error(&result, "is there already");
    node_covey(&node, &result, "get", "models", "object", "-f", "-o", folder, NULL);
    expect_error(&result, "is there already");
    node_covey(&node, &result, "get", "models", "object", "-o", node_path(&node, "no/such"), NULL);
    expect_error(&result, "No such file or directory");
    node_covey(&node, &result, "get", "models", "none", "-f", "-o", there, NULL);
    expect_error(&result, "none");
    ck_assert(files_equal(there, node_file(&node, "same", 10, 9)));
    node_covey(&node, &result, "get", "models", "object", "-f", "-o", there, NULL);
    expect(&result, 0);
    ck_assert(files_equal(in, there));
    ck_assert_int_eq(scratch_count(&node), 0);
    node_fini(&node);
}
END_TEST

START_TEST(test_get_replaces_regular_files_only)
{
    struct node node;
    struct result result;
    struct stat status;
    const char *in, *fifo, *link, *there;

    node_init(&node, 1);
    node_start(&node);
    in = node_file(&node, "in", 1000, 1);
    put_file(&node, "object", in);
    fifo = node_path(&node, "fifo");
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    link = node_path(&node, "link");
    ck_assert_int_eq(symlink("fifo", link), 0);
    node_covey(&node, &result, "get", "models", "object", "-f", "-o", fifo, NULL);
    expect_error(&result, "no regular file");
    ck_assert(lstat(fifo, &status) == 0 && S_ISFIFO(status.st_mode));
    node_covey(&node, &result, "get", "models", "object", "-f", "-o", link, NULL);
    expect_error(&result, "no regular file");
    ck_assert(lstat(link, &status) == 0 && S_ISLNK(status.st_mode));
    there = node_file(&node, "there", 10, 9);
    ck_assert_int_eq(unlink(link), 0);
    ck_assert_int_eq(symlink("there", link), 0);
    node_covey(&node, &result, "get", "models", "object", "-f", "-o", link, NULL);
    expect(&result, 0);
    ck_assert(files_equal(in, link));
    ck_assert(files_equal(there, node_file(&node, "same", 10, 9)));
    ck_assert_int_eq(scratch_count(&node), 0);
    node_fini(&node);
}
END_TEST

/* Put one file under a name that the command would not give it. */
static void put_as(const struct node *node, const char *object, const char *buffer)
{
    json_t *names = json_pack("[s, s]", buffer, "good");
    const struct request requests[] = {{.kind = REQUEST_FILES, .files = names},
                                       {.kind = REQUEST_PUT, .group = "models", .name = object}};
    int file = open(node->config, O_RDONLY | O_CLOEXEC);
    int descriptors[] = {file, file}, socket;
    struct frame_reader reader = {0};
    struct fail fail = {0};

    ck_assert_int_eq(endpoint_connect(node->socket, 4000, &socket, &fail), 0);
    for (size_t i = 0; i < 2; i++) {
        json_t *document = request_encode(&requests[i]), *reply;
        bool done;

        ck_assert_int_eq(frame_send(socket, document, descriptors, i == 0 ? 2 : 0, &fail), 0);
        json_decref(document);
        do {
            ck_assert_int_eq(frame_receive(socket, &reader, &reply, &fail), 1);
            ck_assert_ptr_null(json_object_get(reply, "error"));
            done = json_object_get(reply, "done") != NULL;
            json_decref(reply);
        } while (!done);
    }
    frame_reader_fini(&reader);
    close(socket);
    close(file);
    json_decref(names);
}

START_TEST(test_buffer_cannot_lead_out_of_its_directory)
{
    static const char *const names[] = {"../evil", "/tmp/covey-evil", "a/../../evil", "a//b", "..", "./a",
                                        "a/"};
    struct node node;
    struct result result;

    node_init(&node, 1);
    node_start(&node);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        put_as(&node, "object", names[i]);
        node_covey(&node, &result, "get", "models", "object", "-o", node_path(&node, "out"), NULL);
        expect_error(&result, "leads elsewhere");
        ck_assert_int_eq(scratch_count(&node), 0);
        ck_assert_int_lt(access(node_path(&node, "out"), F_OK), 0);
        ck_assert_int_lt(access(node_path(&node, "evil"), F_OK), 0);
    }
    node_fini(&node);
}
END_TEST

START_TEST(test_full_disk_is_a_sentence_and_leaves_no_part)
{
    struct node node;
    struct result result;
    const char *disk, *out;

    node_init(&node, 1);
    disk = node_path(&node, "disk");
    mkdir(disk, 0700);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", disk, "tmpfs", 0, "size=1m") != 0) {
        fputs("skipped: a small disk cannot be mounted here\n", stderr);
        return;
    }
    node_start(&node);
    put_file(&node, "object", node_file(&node, "in", 4000000, 1));
    out = node_path(&node, "disk/out");
    node_covey(&node, &result, "get", "models", "object", "-o", out, NULL);
    expect_error(&result, "No space left on device");
    ck_assert_int_eq(count_entries(disk, ""), 2);
    umount(disk);
    node_fini(&node);
}
END_TEST

START_TEST(test_file_size_limit_is_a_sentence_and_leaves_no_part)
{
    const struct rlimit small = {.rlim_cur = 1000000, .rlim_max = 1000000};
    struct node node;
    struct result result;

    node_init(&node, 1);
    node_start(&node);
    put_file(&node, "object", node_file(&node, "in", 4000000, 1));
    setrlimit(RLIMIT_FSIZE, &small);
    node_covey(&node, &result, "get", "models", "object", "-o", node_path(&node, "out"), NULL);
    expect_error(&result, "File too large");
    ck_assert_int_eq(scratch_count(&node), 0);
    node_fini(&node);
}
END_TEST

/* --- A daemon that says what the test wants ------------------------------------------------------------- */

struct puppet {
    struct endpoint *endpoint;
    int socket;
    struct frame_reader reader;
};

static void puppet_init(struct puppet *puppet, const struct node *node)
{
    struct fail fail = {0};

    memset(puppet, 0, sizeof(*puppet));
    ck_assert_int_eq(endpoint_bind(node->socket, &puppet->endpoint, &fail), 0);
    ck_assert_int_eq(endpoint_listen(puppet->endpoint, &fail), 0);
}

static void puppet_accept(struct puppet *puppet)
{
    struct fail fail = {0};

    PROCESS_AWAIT(endpoint_accept(puppet->endpoint, &puppet->socket, &fail) == 0);
}

/* The next request must be this one. */
static void puppet_expect(struct puppet *puppet, const char *command)
{
    struct fail fail = {0};
    json_t *document;

    ck_assert_int_eq(frame_receive(puppet->socket, &puppet->reader, &document, &fail), 1);
    ck_assert_str_eq(item_get_text(document, "command"), command);
    json_decref(document);
}

static void puppet_say(struct puppet *puppet, enum reply_kind kind, json_t *body)
{
    json_t *document = reply_encode(kind, body);
    struct fail fail = {0};

    ck_assert_int_eq(frame_send(puppet->socket, document, NULL, 0, &fail), 0);
    json_decref(document);
}

static void puppet_fini(struct puppet *puppet)
{
    frame_reader_fini(&puppet->reader);
    close(puppet->socket);
    endpoint_close(puppet->endpoint);
}

START_TEST(test_interrupted_get_leaves_no_part)
{
    struct node node;
    struct puppet puppet;
    const char *arguments[] = {"./covey", "-s", NULL, "get", "models", "object", "-o", NULL, NULL};
    char errors[OUTPUT_MAX];
    const char *errors_path;
    pid_t get;

    node_init(&node, 1);
    arguments[2] = node.socket;
    arguments[7] = node_path(&node, "out");
    errors_path = node_path(&node, "get.errors");
    puppet_init(&puppet, &node);
    get = process_start(arguments, "/dev/null", errors_path);
    puppet_accept(&puppet);
    puppet_expect(&puppet, "open");
    puppet_say(&puppet, REPLY_ITEMS,
               json_pack("[{s:i, s:s, s:i, s:s}, {s:i, s:s, s:i, s:s}]", "index", 0, "name", "a", "bytes",
                         1000, "memory", "host", "index", 1, "name", "sub/b", "bytes", 1000, "memory",
                         "host"));
    puppet_say(&puppet, REPLY_DONE, json_pack("{s:i, s:i}", "bytes", 2000, "buffers", 2));
    puppet_expect(&puppet, "store");
    ck_assert_int_eq(scratch_count(&node), 1);
    kill(get, SIGINT);
    ck_assert_int_eq(process_wait(get), 1);
    process_read(errors_path, errors, sizeof(errors));
    ck_assert_str_eq(errors, "covey: interrupted: nothing was written\n");
    ck_assert_int_eq(scratch_count(&node), 0);
    ck_assert_int_lt(access(arguments[7], F_OK), 0);
    puppet_fini(&puppet);
    node_fini(&node);
}
END_TEST

START_TEST(test_interrupted_put_says_what_becomes_of_it)
{
    struct node node;
    struct puppet puppet;
    const char *arguments[] = {"./covey", "-s", NULL, "put", "models", "object", NULL, NULL};
    char errors[OUTPUT_MAX];
    const char *errors_path;
    pid_t put;

    node_init(&node, 1);
    arguments[2] = node.socket;
    arguments[6] = node_file(&node, "file", 10, 1);
    errors_path = node_path(&node, "put.errors");
    puppet_init(&puppet, &node);
    put = process_start(arguments, "/dev/null", errors_path);
    puppet_accept(&puppet);
    puppet_expect(&puppet, "files");
    puppet_say(&puppet, REPLY_DONE, json_object());
    puppet_expect(&puppet, "put");
    kill(put, SIGTERM);
    ck_assert_int_eq(process_wait(put), 1);
    process_read(errors_path, errors, sizeof(errors));
    ck_assert_ptr_nonnull(strstr(errors, "the put goes on"));
    puppet_fini(&puppet);
    node_fini(&node);
}
END_TEST

START_TEST(test_daemon_that_answers_nonsense_is_an_error)
{
    static const char *const answers[] = {"{}", "{\"schema\":2,\"done\":{}}", "{\"schema\":1,\"done\":3}"};
    struct node node;
    struct puppet puppet;
    const char *arguments[] = {"./covey", "-s", NULL, "groups", NULL};

    node_init(&node, 1);
    arguments[2] = node.socket;
    puppet_init(&puppet, &node);
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        pid_t groups = process_start(arguments, node_path(&node, "output"), node_path(&node, "errors"));
        json_t *answer = json_loads(answers[i], 0, NULL);
        struct fail fail = {0};
        struct stat status;

        puppet_accept(&puppet);
        puppet_expect(&puppet, "groups");
        ck_assert_int_eq(frame_send(puppet.socket, answer, NULL, 0, &fail), 0);
        json_decref(answer);
        ck_assert_int_eq(process_wait(groups), 1);
        stat(node_path(&node, "output"), &status);
        ck_assert_int_eq(status.st_size, 0);
        close(puppet.socket);
    }
    puppet.socket = -1;
    puppet_fini(&puppet);
    node_fini(&node);
}
END_TEST

START_TEST(test_names_from_elsewhere_cannot_command_the_terminal)
{
    struct node node;
    struct puppet puppet;
    const char *arguments[] = {"./covey", "-s", NULL, "groups", NULL};
    char output[OUTPUT_MAX];
    const char *output_path;
    pid_t groups;

    node_init(&node, 1);
    arguments[2] = node.socket;
    output_path = node_path(&node, "output");
    puppet_init(&puppet, &node);
    groups = process_start(arguments, output_path, "/dev/null");
    puppet_accept(&puppet);
    puppet_expect(&puppet, "groups");
    puppet_say(&puppet, REPLY_ITEMS, json_pack("[{s:s}]", "name", "bad\033[2Jname\n"));
    puppet_say(&puppet, REPLY_DONE, json_object());
    ck_assert_int_eq(process_wait(groups), 0);
    process_read(output_path, output, sizeof(output));
    ck_assert_ptr_nonnull(strstr(output, "bad?[2Jname?"));
    puppet_fini(&puppet);
    node_fini(&node);
}
END_TEST

/* M09: a number over 32 bits comes out as it went in. */
START_TEST(test_view_numbers_over_32_bits_are_exact)
{
    struct node node;
    struct puppet puppet;

    node_init(&node, 1);
    puppet_init(&puppet, &node);
    for (int i = 0; i < 2; i++) {
        const char *arguments[] = {"./covey", "-s", node.socket, "view", i == 0 ? NULL : "--json", NULL};
        const char *output_path = node_path(&node, "output");
        char output[OUTPUT_MAX];
        pid_t view = process_start(arguments, output_path, "/dev/null");

        puppet_accept(&puppet);
        puppet_expect(&puppet, "view");
        puppet_say(&puppet, REPLY_DONE,
                   json_pack("{s:I, s:b, s:I, s:I, s:I}", "number", (json_int_t)4294967300, "quorate", 1,
                             "size", (json_int_t)1, "count", (json_int_t)1, "change", (json_int_t)1));
        ck_assert_int_eq(process_wait(view), 0);
        process_read(output_path, output, sizeof(output));
        ck_assert_ptr_nonnull(strstr(output, i == 0 ? "view 4294967300 " : "\"number\":4294967300,"));
        close(puppet.socket);
    }
    puppet.socket = -1;
    puppet_fini(&puppet);
    node_fini(&node);
}
END_TEST

/* --- rm and bench --------------------------------------------------------------------------------------- */

START_TEST(test_removed_object_is_gone)
{
    struct node node;
    struct result result;

    node_init(&node, 1);
    node_start(&node);
    put_file(&node, "object", node_file(&node, "in", 1000, 1));
    node_covey(&node, &result, "rm", "models", "object", NULL);
    expect(&result, 0);
    node_covey(&node, &result, "objects", "models", NULL);
    expect(&result, 0);
    ck_assert_ptr_null(strstr(result.output, "object "));
    node_covey(&node, &result, "rm", "models", "object", NULL);
    expect_error(&result, "object");
    node_fini(&node);
}
END_TEST

START_TEST(test_bench_tells_of_every_put_and_leaves_no_object)
{
    struct node node;
    struct result result;
    json_t *document;
    double minimum, median, maximum;

    node_init(&node, 1);
    node_start(&node);
    node_covey(&node, &result, "--json", "bench", "--bytes", "100KiB", "--count", "7", "models", NULL);
    document = parse_output(&result);
    ck_assert_uint_eq(json_array_size(json_object_get(document, "puts")), 7);
    ck_assert_int_eq(json_unpack(document, "{s:{s:f, s:f, s:f}}", "seconds", "minimum", &minimum, "median",
                                 &median, "maximum", &maximum),
                     0);
    ck_assert(minimum > 0 && minimum <= median && median <= maximum);
    json_decref(document);
    node_covey(&node, &result, "--json", "objects", "models", NULL);
    ck_assert_ptr_nonnull(strstr(result.output, "\"objects\":[]"));
    node_covey(&node, &result, "bench", "--bytes", "1TiB", NULL);
    expect_error(&result, "budget");
    node_fini(&node);
}
END_TEST

/* Write one more group into the configuration, behind those that it has. */
static void add_group(const struct node *node, const char *name)
{
    char text[4096];
    FILE *file = fopen(node->config, "r+");
    size_t bytes = fread(text, 1, sizeof(text) - 1, file);
    char *rest;

    text[bytes] = '\0';
    rest = strstr(text, " );\ncontrol");
    ck_assert_ptr_nonnull(rest);
    ck_assert_int_eq(fseek(file, rest - text, SEEK_SET), 0);
    fprintf(file, ", { name = \"%s\"; budget = \"1MiB\"; }%s", name, rest);
    ck_assert_int_eq(fclose(file), 0);
}

START_TEST(test_bench_wants_a_group_where_there_are_two)
{
    struct node node;
    struct result result;

    node_init(&node, 1);
    add_group(&node, "others");
    node_start(&node);
    node_covey(&node, &result, "bench", NULL);
    expect_error(&result, "n0 is in 2 groups, name one of them: models others");
    node_fini(&node);
}
END_TEST

SUITE_MAIN("covey", 120, SUITE_TEST(test_every_command_names_the_socket_when_no_daemon_runs),
           SUITE_TEST(test_daemon_is_found_by_environment_by_node_or_alone),
           SUITE_TEST(test_wrong_command_line_is_status_64), SUITE_TEST(test_json_has_the_documented_keys),
           SUITE_TEST(test_every_counter_is_in_the_manual), SUITE_TEST(test_view_without_quorum_is_status_2),
           SUITE_TEST(test_piped_output_has_no_escape_codes), SUITE_TEST(test_events_follow_what_happens),
           SUITE_TEST(test_watchers_of_the_view_end_with_the_daemon),
           SUITE_TEST(test_file_comes_back_as_it_was), SUITE_TEST(test_versions_are_told_apart),
           SUITE_TEST(test_folder_comes_back_as_it_was),
           SUITE_TEST(test_files_of_the_same_name_get_longer_ones),
           SUITE_TEST(test_thousands_of_files_are_one_object),
           SUITE_TEST(test_daemon_that_may_open_too_few_files_says_so),
           SUITE_TEST(test_put_names_the_file_that_it_cannot_take), SUITE_TEST(test_get_leaves_what_is_there),
           SUITE_TEST(test_get_replaces_regular_files_only),
           SUITE_TEST(test_buffer_cannot_lead_out_of_its_directory),
           SUITE_TEST(test_full_disk_is_a_sentence_and_leaves_no_part),
           SUITE_TEST(test_file_size_limit_is_a_sentence_and_leaves_no_part),
           SUITE_TEST(test_interrupted_get_leaves_no_part),
           SUITE_TEST(test_interrupted_put_says_what_becomes_of_it),
           SUITE_TEST(test_daemon_that_answers_nonsense_is_an_error),
           SUITE_TEST(test_names_from_elsewhere_cannot_command_the_terminal),
           SUITE_TEST(test_view_numbers_over_32_bits_are_exact), SUITE_TEST(test_removed_object_is_gone),
           SUITE_TEST(test_bench_tells_of_every_put_and_leaves_no_object),
           SUITE_TEST(test_bench_wants_a_group_where_there_are_two))
