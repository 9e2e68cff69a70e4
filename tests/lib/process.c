/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "tests/lib/process.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ARGUMENTS_MAX 32

/* --- One program ---------------------------------------------------------------------------------------- */

/* The output files are there when this returns, for whoever wants to look into them. */
static int create(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
    return fd;
}

pid_t process_start(const char *const *arguments, const char *output_path, const char *errors_path)
{
    int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int output = create(output_path), errors = create(errors_path);
    pid_t parent = getpid();
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || dup2(input, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
            dup2(errors, STDERR_FILENO) < 0)
            _exit(126);
        execv(arguments[0], (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    close(input);
    close(output);
    close(errors);
    return pid;
}

int process_wait(pid_t pid)
{
    int status;
    pid_t ended;

    do
        ended = waitpid(pid, &status, 0);
    while (ended < 0 && errno == EINTR);
    ck_assert_int_eq(ended, pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static size_t count_entries(const char *path)
{
    DIR *directory = opendir(path);
    size_t count = 0;

    ck_assert_ptr_nonnull(directory);
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count - 2; /* . and .. */
}

size_t process_descriptors(pid_t pid)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/%ld/fd", (long)pid);
    return count_entries(path);
}

size_t process_threads(pid_t pid)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/%ld/task", (long)pid);
    return count_entries(path);
}

void process_read(const char *path, char *out, size_t room)
{
    FILE *file = fopen(path, "r");
    size_t bytes;

    ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
    bytes = fread(out, 1, room - 1, file);
    out[bytes] = '\0';
    fclose(file);
}

bool process_pause(void)
{
    const struct timespec pause = {.tv_nsec = 10000000};

    nanosleep(&pause, NULL);
    return true;
}

/* --- A node --------------------------------------------------------------------------------------------- */

void node_configure(const struct node *node, unsigned nodes, const char *level, const char *heartbeat)
{
    FILE *file = fopen(node->config, "w");

    ck_assert_ptr_nonnull(file);
    fprintf(file, "cluster: { name = \"test\"; heartbeat = \"%s\"; suspect_after = \"5s\"; };\nnodes: (",
            heartbeat);
    for (unsigned i = 0; i < nodes; i++)
        fprintf(file, "%s{ id = %u; name = \"n%u\"; address = \"%.*s:%u\"; }", i == 0 ? "" : ", ", i, i,
                (int)strcspn(node->address, ":"), node->address, 7400 + i);
    fprintf(file,
            ");\ngroups: ( { name = \"models\"; members = \"all\"; memory = \"host\"; budget = \"256MiB\"; "
            "keep_versions = 2; } );\n"
            "control: { socket = \"%s/%%n.sock\"; };\nlog: { level = \"%s\"; };\n",
            node->directory, level);
    fclose(file);
}

static void name_files(struct node *node, unsigned number)
{
    snprintf(node->name, sizeof(node->name), "n%u", number);
    snprintf(node->socket, sizeof(node->socket), "%s/%s.sock", node->directory, node->name);
    snprintf(node->log, sizeof(node->log), "%s/%s.log", node->directory, node->name);
}

void node_beside(const struct node *first, unsigned number, struct node *node)
{
    *node = *first;
    node->pid = 0;
    name_files(node, number);
}

/* Every test is a process, so that its number makes an address of its own. */
void node_init(struct node *node, unsigned nodes)
{
    unsigned pid = (unsigned)getpid();

    memset(node, 0, sizeof(*node));
    snprintf(node->directory, sizeof(node->directory), "/tmp/covey-test.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(node->directory));
    snprintf(node->config, sizeof(node->config), "%s/covey.conf", node->directory);
    name_files(node, 0);
    snprintf(node->address, sizeof(node->address), "127.%u.%u.%u:7400", 64 + (pid >> 16) % 64,
             (pid >> 8) % 256, pid % 256);
    node_configure(node, nodes, "info", "100ms");
}

static pid_t launch(const struct node *node)
{
    const char *const arguments[] = {"./coveyd", "-c", node->config, "-n", node->name, NULL};

    return process_start(arguments, "/dev/null", node->log);
}

static bool answers(const struct node *node)
{
    struct result result;

    node_covey(node, &result, "groups", NULL);
    return result.status == 0;
}

static void show_log(const struct node *node)
{
    char log[4096];

    process_read(node->log, log, sizeof(log));
    fprintf(stderr, "%s", log);
}

void node_start(struct node *node)
{
    node->pid = launch(node);
    while (!answers(node)) {
        if (waitpid(node->pid, NULL, WNOHANG) != 0) {
            show_log(node);
            ck_abort_msg("coveyd did not start");
        }
        process_pause();
    }
}

void node_run(const struct node *node, struct result *result)
{
    result->output[0] = '\0';
    result->status = process_wait(launch(node));
    process_read(node->log, result->errors, sizeof(result->errors));
}

void node_kill(struct node *node)
{
    kill(node->pid, SIGKILL);
    ck_assert_int_eq(process_wait(node->pid), 128 + SIGKILL);
    node->pid = 0;
}

void node_stop(struct node *node)
{
    int status;

    kill(node->pid, SIGTERM);
    status = process_wait(node->pid);
    node->pid = 0;
    if (status != 0)
        show_log(node);
    ck_assert_int_eq(status, 0);
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status, (void)type, (void)walk;
    return remove(path);
}

void node_fini(struct node *node)
{
    struct stat status;

    if (node->pid != 0)
        node_stop(node);
    ck_assert_msg(lstat(node->socket, &status) != 0, "%s is left", node->socket);
    ck_assert_msg(lstat(node_path(node, "n0.sock.lock"), &status) != 0, "the lock is left");
    ck_assert_int_eq(nftw(node->directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

void node_covey(const struct node *node, struct result *result, ...)
{
    const char *arguments[ARGUMENTS_MAX] = {"./covey", "-s", node->socket};
    char output[96], errors[96];
    size_t count = 3;
    va_list list;

    va_start(list, result);
    do {
        arguments[count] = va_arg(list, const char *);
        ck_assert_uint_lt(count + 1, ARGUMENTS_MAX);
    } while (arguments[count++] != NULL);
    va_end(list);
    snprintf(output, sizeof(output), "%s/output.%ld", node->directory, (long)getpid());
    snprintf(errors, sizeof(errors), "%s/errors.%ld", node->directory, (long)getpid());
    result->status = process_wait(process_start(arguments, output, errors));
    process_read(output, result->output, sizeof(result->output));
    process_read(errors, result->errors, sizeof(result->errors));
}

const char *node_path(const struct node *node, const char *name)
{
    static char paths[8][128];
    static unsigned next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof(paths[0]), "%s/%s", node->directory, name);
    return path;
}

const char *node_file(const struct node *node, const char *name, size_t bytes, unsigned seed)
{
    const char *path = node_path(node, name);
    FILE *file = fopen(path, "w");
    uint32_t state = seed * 2654435761U + 1;

    ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
    for (size_t i = 0; i < bytes; i++) {
        state = state * 1664525U + 1013904223U;
        putc((int)(state >> 24), file);
    }
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

bool files_equal(const char *left, const char *right)
{
    FILE *a = fopen(left, "r"), *b = fopen(right, "r");
    bool equal = a != NULL && b != NULL;

    for (int byte = 0; equal && byte != EOF;) {
        byte = getc(a);
        equal = byte == getc(b);
    }
    if (a != NULL)
        fclose(a);
    if (b != NULL)
        fclose(b);
    return equal;
}
