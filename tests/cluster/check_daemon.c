/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a coveyd: its start, its socket, its service manager, its end, and clients that behave badly.
 */

#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <unistd.h>

#include "control/endpoint.h"
#include "control/frame.h"
#include "control/request.h"
#include "tests/lib/process.h"
#include "tests/lib/suite.h"

#define NOBODY 65534

/* --- Start and end -------------------------------------------------------------------------------------- */

static bool exists(const char *path)
{
    struct stat status;

    return lstat(path, &status) == 0;
}

static ino_t inode(const char *path)
{
    struct stat status;

    ck_assert_msg(lstat(path, &status) == 0, "%s: %s", path, strerror(errno));
    return status.st_ino;
}

static void kill_node(struct node *node)
{
    kill(node->pid, SIGKILL);
    process_wait(node->pid);
    node->pid = 0;
}

START_TEST(test_daemon_ends_politely_and_leaves_no_file)
{
    struct node node;

    node_init(&node, 1);
    node_start(&node);
    node_stop(&node);
    node_start(&node);
    kill(node.pid, SIGINT);
    ck_assert_int_eq(process_wait(node.pid), 0);
    node.pid = 0;
    node_fini(&node);
}
END_TEST

START_TEST(test_leave_ends_the_daemon_and_says_so)
{
    struct node node;
    struct result result;

    node_init(&node, 1);
    node_start(&node);
    node_covey(&node, &result, "leave", NULL);
    ck_assert_int_eq(result.status, 0);
    ck_assert_str_eq(result.output, "n0 has left the cluster\n");
    ck_assert_int_eq(process_wait(node.pid), 0);
    node.pid = 0;
    node_fini(&node);
}
END_TEST

START_TEST(test_second_daemon_changes_nothing_of_the_first)
{
    struct node node;
    struct result result;
    ino_t socket_inode, lock_inode;

    node_init(&node, 1);
    node_start(&node);
    socket_inode = inode(node.socket);
    lock_inode = inode(node_path(&node, "n0.sock.lock"));
    snprintf(node.log, sizeof(node.log), "%s/second.log", node.directory);
    node_run(&node, &result);
    ck_assert_int_eq(result.status, 1);
    ck_assert_ptr_nonnull(strstr(result.errors, node.socket));
    ck_assert_uint_eq(inode(node.socket), socket_inode);
    ck_assert_uint_eq(inode(node_path(&node, "n0.sock.lock")), lock_inode);
    node_covey(&node, &result, "groups", NULL);
    ck_assert_int_eq(result.status, 0);
    node_fini(&node);
}
END_TEST

START_TEST(test_killed_daemon_is_replaced)
{
    struct node node;

    node_init(&node, 1);
    for (int i = 0; i < 3; i++) {
        node_start(&node);
        kill_node(&node);
        ck_assert(exists(node.socket));
    }
    node_start(&node);
    node_fini(&node);
}
END_TEST

/* A process number in a file decides nothing: there is only the lock. */
START_TEST(test_what_a_lock_file_holds_does_not_matter)
{
    static const char *const contents[] = {"", "1", "999999999", "text"};
    struct node node;

    node_init(&node, 1);
    for (size_t i = 0; i < sizeof(contents) / sizeof(contents[0]); i++) {
        FILE *file = fopen(node_path(&node, "n0.sock.lock"), "w");

        fputs(contents[i], file);
        fclose(file);
        node_start(&node);
        node_stop(&node);
    }
    node_fini(&node);
}
END_TEST

START_TEST(test_file_at_the_path_is_refused_and_kept)
{
    struct node node;
    struct result result;

    node_init(&node, 1);
    node_file(&node, "n0.sock", 10, 1);
    node_run(&node, &result);
    ck_assert_int_eq(result.status, 1);
    ck_assert_ptr_nonnull(strstr(result.errors, "is not a socket"));
    ck_assert(exists(node.socket));
    ck_assert(!exists(node_path(&node, "n0.sock.lock")));
    unlink(node.socket);
    node_fini(&node);
}
END_TEST

START_TEST(test_of_daemons_that_start_at_once_one_lives)
{
    enum { DAEMONS = 4 };
    const char *arguments[] = {"./coveyd", "-c", NULL, "-n", "n0", NULL};
    struct node node;
    pid_t pids[DAEMONS];

    node_init(&node, 1);
    arguments[2] = node.config;
    for (int i = 0; i < DAEMONS; i++)
        pids[i] = process_start(arguments, "/dev/null", "/dev/null");
    for (int lost = 0; lost < DAEMONS - 1; lost++) {
        int status;
        pid_t ended = waitpid(-1, &status, 0);

        ck_assert_int_eq(WEXITSTATUS(status), 1);
        for (int i = 0; i < DAEMONS; i++) {
            if (pids[i] == ended)
                pids[i] = 0;
        }
    }
    for (int i = 0; i < DAEMONS; i++)
        node.pid = pids[i] != 0 ? pids[i] : node.pid;
    PROCESS_AWAIT(exists(node.socket));
    node_fini(&node);
}
END_TEST

/* Listen at the node's address, as another program would. */
static int hold_port(const struct node *node)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7400)};
    char host[32];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(host, sizeof(host), "%.*s", (int)strcspn(node->address, ":"), node->address);
    ck_assert_int_eq(inet_pton(AF_INET, host, &address.sin_addr), 1);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    return fd;
}

START_TEST(test_port_in_use_is_named_and_nothing_is_left)
{
    struct node node;
    struct result result;
    int held;

    node_init(&node, 1);
    held = hold_port(&node);
    node_run(&node, &result);
    ck_assert_int_eq(result.status, 1);
    ck_assert_msg(strstr(result.errors, node.address) != NULL, "%s", result.errors);
    ck_assert(!exists(node.socket));
    close(held);
    node_fini(&node);
}
END_TEST

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SHADOWED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SHADOWED true
#endif
#endif
#ifndef SHADOWED
#define SHADOWED false
#endif

START_TEST(test_too_few_threads_are_a_sentence)
{
    const rlim_t bytes = 300U << 20; /* the stacks of 64 threads take 512 MiB */
    const struct rlimit little = {.rlim_cur = bytes, .rlim_max = bytes};
    struct node node;
    struct result result;

    if (SHADOWED) {
        fputs("skipped: a sanitizer's shadow does not fit into a limit of address space\n", stderr);
        return;
    }
    node_init(&node, 1);
    setenv("UV_THREADPOOL_SIZE", "64", 1);
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &little), 0);
    node_run(&node, &result);
    ck_assert_int_eq(result.status, 1);
    ck_assert_msg(strstr(result.errors, "cannot start 64 worker threads") != NULL, "%s", result.errors);
    ck_assert(!exists(node.socket));
    node_fini(&node);
}
END_TEST

/* Run coveyd with these arguments, the last of which is NULL; its output and errors. */
static void run_daemon(const struct node *node, struct result *result, const char *const *arguments)
{
    const char *output = node_path(node, "run.output"), *errors = node_path(node, "run.errors");

    result->status = process_wait(process_start(arguments, output, errors));
    process_read(output, result->output, sizeof(result->output));
    process_read(errors, result->errors, sizeof(result->errors));
}

START_TEST(test_bad_configuration_creates_nothing)
{
    struct node node;
    struct result result;
    const char *arguments[] = {"./coveyd", "-c", NULL, "-n", "n0", NULL};
    FILE *file;

    node_init(&node, 1);
    arguments[2] = node.config;
    file = fopen(node.config, "a");
    fprintf(file, "clutser: { };\ncontrol_socket = 1;\n");
    fclose(file);
    run_daemon(&node, &result, arguments);
    ck_assert_int_eq(result.status, 1);
    ck_assert_ptr_nonnull(strstr(result.errors, "clutser"));
    ck_assert_ptr_nonnull(strstr(result.errors, "control_socket"));
    ck_assert_ptr_null(strstr(result.errors, "\n\n"));
    ck_assert(!exists(node.socket));
    ck_assert(!exists(node_path(&node, "n0.sock.lock")));
    node_fini(&node);
}
END_TEST

START_TEST(test_check_prints_the_configuration_and_creates_nothing)
{
    struct node node;
    struct result result;
    const char *arguments[] = {"./coveyd", "--check", "-c", NULL, "-n", "n0", NULL};

    node_init(&node, 1);
    arguments[3] = node.config;
    run_daemon(&node, &result, arguments);
    ck_assert_int_eq(result.status, 0);
    ck_assert_ptr_nonnull(strstr(result.output, "stall_after"));
    ck_assert_str_eq(result.errors, "");
    ck_assert(!exists(node.socket));
    arguments[5] = "n9";
    run_daemon(&node, &result, arguments);
    ck_assert_int_eq(result.status, 1);
    ck_assert_ptr_nonnull(strstr(result.errors, "n9"));
    node_fini(&node);
}
END_TEST

START_TEST(test_wrong_command_line_is_status_2)
{
    static const char *const lines[][4] = {
        {"./coveyd", "--no-such", NULL}, {"./coveyd", "extra", NULL}, {"./coveyd", "-c", NULL}};
    struct node node;
    struct result result;

    node_init(&node, 1);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        run_daemon(&node, &result, lines[i]);
        ck_assert_int_eq(result.status, 2);
        ck_assert_ptr_nonnull(strstr(result.errors, "Usage"));
    }
    node_fini(&node);
}
END_TEST

START_TEST(test_socket_path_too_long_is_a_sentence)
{
    struct node node;
    struct result result;
    FILE *file;

    node_init(&node, 1);
    file = fopen(node.config, "w");
    fprintf(file,
            "cluster: { name = \"test\"; };\nnodes: ( { id = 0; name = \"n0\"; address = \"%s\"; } );\n"
            "control: { socket = \"%s/%0120d\"; };\n",
            node.address, node.directory, 0);
    fclose(file);
    node_run(&node, &result);
    ck_assert_int_eq(result.status, 1);
    ck_assert_ptr_nonnull(strstr(result.errors, "socket"));
    node_fini(&node);
}
END_TEST

START_TEST(test_directory_that_cannot_be_written_is_named)
{
    struct node node;
    pid_t child;

    if (geteuid() != 0) {
        fputs("skipped: only root can become a user without rights\n", stderr);
        return;
    }
    node_init(&node, 1);
    chmod(node.directory, 0755);
    chmod(node.config, 0644);
    child = fork();
    if (child == 0) {
        const char *const arguments[] = {"./coveyd", "-c", node.config, "-n", "n0", NULL};
        int log = open(node.log, O_WRONLY | O_CREAT, 0600);

        if (dup2(log, STDERR_FILENO) < 0 || setuid(NOBODY) != 0)
            _exit(126);
        execv(arguments[0], (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    {
        char log[4096];
        int status = process_wait(child);

        if (status == 126 || status == 127) {
            fputs("skipped: the build folder is closed to other users\n", stderr);
            return;
        }
        process_read(node.log, log, sizeof(log));
        ck_assert_int_eq(status, 1);
        ck_assert_msg(strstr(log, node.socket) != NULL && strstr(log, "Permission denied") != NULL, "%s",
                      log);
    }
    node_fini(&node);
}
END_TEST

/* --- The background ------------------------------------------------------------------------------------- */

static int connect_to(const struct node *node)
{
    struct fail fail = {0};
    int fd;

    ck_assert_msg(endpoint_connect(node->socket, 4000, &fd, &fail) == 0, "%s", fail.text);
    return fd;
}

/* The process that listens on the control socket. */
static pid_t listener_pid(const struct node *node)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);
    int fd = connect_to(node);

    ck_assert_int_eq(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes), 0);
    close(fd);
    return peer.pid;
}

START_TEST(test_detached_daemon_answers_when_its_parent_ends)
{
    struct node node;
    struct result result;
    const char *arguments[] = {"./coveyd", "-d", "-c", NULL, "-n", "n0", NULL};

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    node_init(&node, 1);
    arguments[3] = node.config;
    run_daemon(&node, &result, arguments);
    ck_assert_msg(result.status == 0, "%s", result.errors);
    node_covey(&node, &result, "groups", NULL);
    ck_assert_int_eq(result.status, 0);
    node.pid = listener_pid(&node);
    node_fini(&node);
}
END_TEST

START_TEST(test_detached_daemon_that_cannot_start_is_an_error_of_its_parent)
{
    struct node node;
    struct result result;
    const char *arguments[] = {"./coveyd", "-d", "-c", NULL, "-n", "n0", NULL};

    node_init(&node, 1);
    arguments[3] = node.config;
    node_start(&node);
    run_daemon(&node, &result, arguments);
    ck_assert_int_eq(result.status, 1);
    ck_assert_ptr_nonnull(strstr(result.errors, node.socket));
    node_fini(&node);
}
END_TEST

/* --- The service manager -------------------------------------------------------------------------------- */

static int open_manager(const struct node *node)
{
    const char *path = node_path(node, "notify.sock");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    setenv("NOTIFY_SOCKET", path, 1);
    return fd;
}

/* The next notice that has these words; what comes before it is dropped. */
static void await_notice(int manager, const char *words, char *text, size_t room)
{
    ssize_t bytes;

    do {
        bytes = recv(manager, text, room - 1, 0);
        ck_assert_int_gt(bytes, 0);
        text[bytes] = '\0';
    } while (strstr(text, words) == NULL);
}

START_TEST(test_ready_is_said_when_the_daemon_answers)
{
    struct node node;
    struct result result;
    char text[512];
    int manager;

    node_init(&node, 1);
    manager = open_manager(&node);
    node.pid = process_start((const char *const[]){"./coveyd", "-c", node.config, "-n", "n0", NULL},
                             "/dev/null", node.log);
    await_notice(manager, "READY=1", text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "STATUS="));
    node_covey(&node, &result, "groups", NULL);
    ck_assert_int_eq(result.status, 0);
    kill(node.pid, SIGTERM);
    await_notice(manager, "STOPPING=1", text, sizeof(text));
    ck_assert_int_eq(process_wait(node.pid), 0);
    node.pid = 0;
    close(manager);
    node_fini(&node);
}
END_TEST

START_TEST(test_ready_is_not_said_by_a_daemon_that_fails)
{
    struct node node;
    struct result result;
    char text[512];
    int manager, held;

    node_init(&node, 1);
    manager = open_manager(&node);
    held = hold_port(&node);
    node_run(&node, &result);
    ck_assert_int_eq(result.status, 1);
    ck_assert_int_lt(recv(manager, text, sizeof(text), MSG_DONTWAIT), 0);
    close(held);
    close(manager);
    node_fini(&node);
}
END_TEST

START_TEST(test_manager_that_is_not_there_is_not_fatal)
{
    static const char *const addresses[] = {"/no/such/socket", "nonsense", ""};
    struct node node;

    node_init(&node, 1);
    for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
        setenv("NOTIFY_SOCKET", addresses[i], 1);
        node_start(&node);
        node_stop(&node);
    }
    node_fini(&node);
}
END_TEST

START_TEST(test_reload_is_told_with_its_time_and_its_end)
{
    struct node node;
    char text[512];
    int manager;

    node_init(&node, 1);
    manager = open_manager(&node);
    node_start(&node);
    await_notice(manager, "READY=1", text, sizeof(text));
    kill(node.pid, SIGHUP);
    await_notice(manager, "RELOADING=1", text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "MONOTONIC_USEC="));
    ck_assert_int_gt(strtoll(strstr(text, "MONOTONIC_USEC=") + 15, NULL, 10), 0);
    await_notice(manager, "READY=1", text, sizeof(text));
    close(manager);
    node_fini(&node);
}
END_TEST

/* --- Reload --------------------------------------------------------------------------------------------- */

static bool logged(const struct node *node, const char *words)
{
    char log[OUTPUT_MAX];

    process_read(node->log, log, sizeof(log));
    return strstr(log, words) != NULL;
}

START_TEST(test_reload_takes_the_log_level)
{
    struct node node;
    struct result result;

    node_init(&node, 1);
    node_start(&node);
    node_configure(&node, 1, "debug", "100ms");
    node_covey(&node, &result, "reload", NULL);
    ck_assert_msg(result.status == 0, "%s", result.errors);
    kill(node.pid, SIGHUP);
    PROCESS_AWAIT(logged(&node, "reloaded"));
    node_fini(&node);
}
END_TEST

START_TEST(test_reload_refuses_all_when_anything_else_differs)
{
    struct node node;
    struct result result;

    node_init(&node, 1);
    node_start(&node);
    node_configure(&node, 1, "debug", "200ms");
    node_covey(&node, &result, "reload", NULL);
    ck_assert_int_eq(result.status, 1);
    ck_assert_msg(strstr(result.errors, "cluster.heartbeat") != NULL, "%s", result.errors);
    node_configure(&node, 2, "debug", "100ms");
    node_covey(&node, &result, "reload", NULL);
    ck_assert_int_eq(result.status, 1);
    ck_assert_msg(strstr(result.errors, "n1") != NULL, "%s", result.errors);
    node_fini(&node);
}
END_TEST

START_TEST(test_reload_of_a_bad_file_names_its_mistakes)
{
    struct node node;
    struct result result;
    FILE *file;

    node_init(&node, 1);
    node_start(&node);
    file = fopen(node.config, "a");
    fputs("clutser: { };\n", file);
    fclose(file);
    node_covey(&node, &result, "reload", NULL);
    ck_assert_int_eq(result.status, 1);
    ck_assert_msg(strstr(result.errors, "clutser") != NULL, "%s", result.errors);
    ck_assert_ptr_null(strstr(result.errors, "\n\n"));
    node_covey(&node, &result, "groups", NULL);
    ck_assert_int_eq(result.status, 0);
    node_fini(&node);
}
END_TEST

/* --- Clients that behave badly -------------------------------------------------------------------------- */

static void send_request(int socket, const struct request *request, const int *descriptors, size_t count)
{
    json_t *document = request_encode(request);
    struct fail fail = {0};

    ck_assert_int_eq(frame_send(socket, document, descriptors, count, &fail), 0);
    json_decref(document);
}

/* One client that goes away at a point which `kind` chooses. */
static void die_as_client(const struct node *node, unsigned kind)
{
    static const struct request requests[] = {
        {.kind = REQUEST_VIEW},
        {.kind = REQUEST_EVENTS, .after = INT64_MAX, .wait = true},
        {.kind = REQUEST_OPEN, .group = "models", .name = "pinned"},
        {.kind = REQUEST_BENCH, .bytes = 65536, .count = 1000},
    };
    static const struct request put = {.kind = REQUEST_PUT, .group = "models", .name = "orphan"};
    static const struct request store = {.kind = REQUEST_STORE, .count = 1};
    json_t *names = json_pack("[s, s]", "a", "b");
    const struct request files = {.kind = REQUEST_FILES, .files = names};
    int fd = connect_to(node), file = open(node->config, O_RDONLY | O_CLOEXEC);
    int descriptors[] = {file, file};

    if (kind % 8 < 4) {
        send_request(fd, &requests[kind % 8], NULL, 0);
    } else if (kind % 8 == 4) {
        ck_assert_int_eq(write(fd, "\x40\0\0", kind % 3 + 1), kind % 3 + 1);
    } else if (kind % 8 == 5) {
        send_request(fd, &requests[2], NULL, 0);
        send_request(fd, &store, descriptors, 1);
    } else if (kind % 8 == 6) {
        send_request(fd, &files, descriptors, 2);
        send_request(fd, &put, NULL, 0);
    } else {
        send_request(fd, &files, descriptors, 2);
    }
    close(file);
    close(fd);
    json_decref(names);
}

static void kill_a_command(const struct node *node, unsigned kind)
{
    static const char *const commands[] = {"view", "events", "bench", "stats"};
    const char *const arguments[] = {
        "./covey", "-s", node->socket, commands[kind % 4], kind % 2 ? "--json" : NULL, NULL};
    pid_t pid = process_start(arguments, "/dev/null", "/dev/null");

    for (unsigned i = 0; i < kind % 4; i++)
        process_pause();
    kill(pid, SIGKILL);
    process_wait(pid);
}

START_TEST(test_clients_that_die_leave_nothing_behind)
{
    struct node node;
    struct result result;
    size_t descriptors, threads;

    node_init(&node, 1);
    node_start(&node);
    node_covey(&node, &result, "put", "models", "pinned", node_file(&node, "file", 100000, 1), NULL);
    ck_assert_msg(result.status == 0, "%s", result.errors);
    descriptors = process_descriptors(node.pid);
    threads = process_threads(node.pid);
    for (unsigned i = 0; i < 1000; i++) {
        die_as_client(&node, i);
        if (i % 50 == 0)
            kill_a_command(&node, i / 50);
    }
    PROCESS_AWAIT(process_threads(node.pid) <= threads && process_descriptors(node.pid) <= descriptors);
    node_covey(&node, &result, "rm", "models", "pinned", NULL);
    ck_assert_msg(result.status == 0, "%s", result.errors);
    /* benches whose clients died remove what they put */
    PROCESS_AWAIT((node_covey(&node, &result, "--json", "objects", "models", NULL),
                   result.status == 0 && strstr(result.output, "bench-") == NULL));
    node_fini(&node);
}
END_TEST

START_TEST(test_many_clients_at_once_are_served_or_told_why_not)
{
    enum { CLIENTS = 300 };
    static int clients[CLIENTS];
    struct frame_reader reader = {0};
    struct node node;
    struct result result;
    int served = 0, refused = 0;

    node_init(&node, 1);
    node_start(&node);
    for (int i = 0; i < CLIENTS; i++) {
        const struct request groups = {.kind = REQUEST_GROUPS};
        json_t *request = request_encode(&groups), *reply;
        struct fail fail = {0};

        clients[i] = connect_to(&node);
        frame_send(clients[i], request, NULL, 0, &fail);
        ck_assert_int_eq(frame_receive(clients[i], &reader, &reply, &fail), 1);
        if (json_object_get(reply, "error") == NULL)
            served++;
        else
            refused++;
        json_decref(request);
        json_decref(reply);
    }
    ck_assert_int_eq(served, 256);
    ck_assert_int_eq(refused, CLIENTS - 256);
    for (int i = 0; i < CLIENTS; i++)
        close(clients[i]);
    PROCESS_AWAIT((node_covey(&node, &result, "groups", NULL), result.status == 0));
    frame_reader_fini(&reader);
    node_fini(&node);
}
END_TEST

START_TEST(test_hostile_bytes_end_their_connection_only)
{
    static const char *const texts[] = {"\xff\xff\xff\xff", "GET / HTTP/1.1\r\n\r\n", "\x02\0\0\0{]"};
    struct node node;
    struct result result;

    node_init(&node, 1);
    node_start(&node);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        int fd = connect_to(&node);
        size_t bytes = i == 1 ? strlen(texts[i]) : i == 0 ? 4 : 6;
        char answer[512];

        ck_assert_int_eq(write(fd, texts[i], bytes), (ssize_t)bytes);
        ck_assert_int_gt(read(fd, answer, sizeof(answer)), 0);
        PROCESS_AWAIT(read(fd, answer, sizeof(answer)) <= 0);
        close(fd);
    }
    node_covey(&node, &result, "groups", NULL);
    ck_assert_int_eq(result.status, 0);
    node_fini(&node);
}
END_TEST

START_TEST(test_stopped_daemon_is_told_from_a_missing_one)
{
    struct node node;
    struct result result;

    node_init(&node, 1);
    node_start(&node);
    kill(node.pid, SIGSTOP);
    node_covey(&node, &result, "view", NULL);
    ck_assert_int_eq(result.status, 1);
    ck_assert_msg(strstr(result.errors, "does not answer") != NULL, "%s", result.errors);
    ck_assert_ptr_nonnull(strstr(result.errors, node.socket));
    kill(node.pid, SIGCONT);
    node_fini(&node);
}
END_TEST

START_TEST(test_daemon_ends_while_clients_follow_and_hold_objects)
{
    const struct request follow = {.kind = REQUEST_EVENTS, .after = INT64_MAX, .wait = true};
    const struct request open_request = {.kind = REQUEST_OPEN, .group = "models", .name = "held"};
    struct node node;
    struct result result;
    int follower, holder;

    node_init(&node, 1);
    node_start(&node);
    node_covey(&node, &result, "put", "models", "held", node_file(&node, "file", 1000, 1), NULL);
    ck_assert_msg(result.status == 0, "%s", result.errors);
    follower = connect_to(&node);
    send_request(follower, &follow, NULL, 0);
    holder = connect_to(&node);
    send_request(holder, &open_request, NULL, 0);
    node_stop(&node);
    close(follower);
    close(holder);
    node_fini(&node);
}
END_TEST

SUITE_MAIN(
    "daemon", 120, SUITE_TEST(test_daemon_ends_politely_and_leaves_no_file),
    SUITE_TEST(test_leave_ends_the_daemon_and_says_so),
    SUITE_TEST(test_second_daemon_changes_nothing_of_the_first), SUITE_TEST(test_killed_daemon_is_replaced),
    SUITE_TEST(test_what_a_lock_file_holds_does_not_matter),
    SUITE_TEST(test_file_at_the_path_is_refused_and_kept),
    SUITE_TEST(test_of_daemons_that_start_at_once_one_lives),
    SUITE_TEST(test_port_in_use_is_named_and_nothing_is_left),
    SUITE_TEST(test_too_few_threads_are_a_sentence), SUITE_TEST(test_bad_configuration_creates_nothing),
    SUITE_TEST(test_check_prints_the_configuration_and_creates_nothing),
    SUITE_TEST(test_wrong_command_line_is_status_2), SUITE_TEST(test_socket_path_too_long_is_a_sentence),
    SUITE_TEST(test_directory_that_cannot_be_written_is_named),
    SUITE_TEST(test_detached_daemon_answers_when_its_parent_ends),
    SUITE_TEST(test_detached_daemon_that_cannot_start_is_an_error_of_its_parent),
    SUITE_TEST(test_ready_is_said_when_the_daemon_answers),
    SUITE_TEST(test_ready_is_not_said_by_a_daemon_that_fails),
    SUITE_TEST(test_manager_that_is_not_there_is_not_fatal),
    SUITE_TEST(test_reload_is_told_with_its_time_and_its_end), SUITE_TEST(test_reload_takes_the_log_level),
    SUITE_TEST(test_reload_refuses_all_when_anything_else_differs),
    SUITE_TEST(test_reload_of_a_bad_file_names_its_mistakes),
    SUITE_TEST(test_clients_that_die_leave_nothing_behind),
    SUITE_TEST(test_many_clients_at_once_are_served_or_told_why_not),
    SUITE_TEST(test_hostile_bytes_end_their_connection_only),
    SUITE_TEST(test_stopped_daemon_is_told_from_a_missing_one),
    SUITE_TEST(test_daemon_ends_while_clients_follow_and_hold_objects))
