/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "tests/lib/daemons.h"

#include <check.h>
#include <ftw.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX 16

/* --- Processes ------------------------------------------------------------------------------------------ */

static void path_of(const struct daemons *daemons, const char *name, char path[96])
{
    snprintf(path, 96, "%s/%s", daemons->directory, name);
}

static void address_of(unsigned i, char text[32])
{
    unsigned pid = (unsigned)getpid();

    snprintf(text, 32, "127.%u.%u.%u:%u", 128 + (pid >> 16) % 64, (pid >> 8) % 256, pid % 256, 7400 + i);
}

/* Elastic nodes differ in the block that says who they are. */
static void write_config(const struct daemons *daemons, unsigned i, unsigned id)
{
    char path[96], name[32], address[32];
    FILE *file;

    snprintf(name, sizeof(name), "n%u.conf", i);
    path_of(daemons, name, path);
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fprintf(file, "cluster: { name = \"test\"; heartbeat = \"20ms\"; %s };\nnodes: (", daemons->settings);
    for (unsigned n = 0; n < daemons->listed; n++) {
        address_of(n, address);
        fprintf(file, "%s\n  { id = %u; name = \"n%u\"; address = \"%s\"; }", n == 0 ? "" : ",", n, n,
                address);
    }
    address_of(i, address);
    fprintf(file, "\n);\n");
    if (i >= daemons->listed)
        fprintf(file, "node: { id = %u; name = \"n%u\"; address = \"%s\"; };\n", id, i, address);
    fprintf(
        file,
        "groups: ( { name = \"g\"; members = \"all\"; memory = \"host\"; budget = \"256MiB\"; "
        "keep_versions = 2; } );\ncontrol: { socket = \"%s/%%n.sock\"; };\nlog: { level = \"debug\"; };\n",
        daemons->directory);
    ck_assert_int_eq(fclose(file), 0);
}

void daemons_init(struct daemons *daemons, unsigned listed, unsigned elastic, const char *settings)
{
    memset(daemons, 0, sizeof(*daemons));
    daemons->settings = settings;
    daemons->listed = listed;
    daemons->count = listed + elastic;
    ck_assert_uint_le(daemons->count, DAEMONS_MAX);
    snprintf(daemons->directory, sizeof(daemons->directory), "/tmp/covey-test.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(daemons->directory));
    for (unsigned i = 0; i < daemons->count; i++)
        write_config(daemons, i, i);
}

void daemons_identify(struct daemons *daemons, unsigned i, unsigned id)
{
    write_config(daemons, i, id);
}

/* A log for each start, so that a look at a failed test shows them all. */
void daemons_start(struct daemons *daemons, unsigned i)
{
    static unsigned starts;
    const char *arguments[] = {"./coveyd", "-c", NULL, "-n", NULL, NULL};
    char config[96], name[32], file[32];

    snprintf(name, sizeof(name), "n%u", i);
    snprintf(file, sizeof(file), "n%u.conf", i);
    path_of(daemons, file, config);
    snprintf(file, sizeof(file), "n%u.%u.log", i, starts++);
    path_of(daemons, file, daemons->logs[i]);
    arguments[2] = config;
    arguments[4] = name;
    ck_assert_int_eq(daemons->pids[i], 0);
    daemons->pids[i] = process_start(arguments, "/dev/null", daemons->logs[i]);
}

void daemons_start_all(struct daemons *daemons)
{
    for (unsigned i = 0; i < daemons->listed; i++)
        daemons_start(daemons, i);
    daemons_await(daemons, daemons->listed);
}

void daemons_kill(struct daemons *daemons, unsigned i)
{
    kill(daemons->pids[i], SIGKILL);
    ck_assert_int_eq(process_wait(daemons->pids[i]), 128 + SIGKILL);
    daemons->pids[i] = 0;
}

void daemons_stop(struct daemons *daemons, unsigned i)
{
    kill(daemons->pids[i], SIGTERM);
    ck_assert_int_eq(process_wait(daemons->pids[i]), 0);
    daemons->pids[i] = 0;
}

static char process_state(pid_t pid)
{
    char path[32], text[512];

    snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    process_read(path, text, sizeof(text));
    return strrchr(text, ')')[2];
}

void daemons_pause(const struct daemons *daemons, unsigned i)
{
    kill(daemons->pids[i], SIGSTOP);
    PROCESS_AWAIT(process_state(daemons->pids[i]) == 'T');
}

void daemons_resume(const struct daemons *daemons, unsigned i)
{
    kill(daemons->pids[i], SIGCONT);
}

bool daemons_logged(const struct daemons *daemons, unsigned i, const char *text)
{
    static char log[1 << 20];

    process_read(daemons->logs[i], log, sizeof(log));
    return strstr(log, text) != NULL;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status, (void)type, (void)walk;
    return remove(path);
}

void daemons_fini(struct daemons *daemons)
{
    for (unsigned i = 0; i < daemons->count; i++) {
        if (daemons->pids[i] != 0)
            kill(daemons->pids[i], SIGTERM);
    }
    for (unsigned i = 0; i < daemons->count; i++) {
        if (daemons->pids[i] != 0)
            ck_assert_int_eq(process_wait(daemons->pids[i]), 0);
    }
    ck_assert_int_eq(nftw(daemons->directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* --- covey ---------------------------------------------------------------------------------------------- */

static void output_paths(const struct daemons *daemons, unsigned tag, char output[96], char errors[96])
{
    char name[32];

    snprintf(name, sizeof(name), "output.%u", tag);
    path_of(daemons, name, output);
    snprintf(name, sizeof(name), "errors.%u", tag);
    path_of(daemons, name, errors);
}

static pid_t covey_start(const struct daemons *daemons, unsigned i, const char *const *arguments,
                         unsigned tag)
{
    const char *line[ARGUMENTS_MAX] = {"./covey", "-s", NULL, "--json"};
    char socket[96], name[32], output[96], errors[96];
    size_t count = 4;

    snprintf(name, sizeof(name), "n%u.sock", i);
    path_of(daemons, name, socket);
    line[2] = socket;
    for (; *arguments != NULL; arguments++) {
        ck_assert_uint_lt(count + 1, ARGUMENTS_MAX);
        line[count++] = *arguments;
    }
    output_paths(daemons, tag, output, errors);
    return process_start(line, output, errors);
}

static void covey_end(const struct daemons *daemons, pid_t pid, struct result *result, unsigned tag)
{
    char output[96], errors[96];

    output_paths(daemons, tag, output, errors);
    result->status = process_wait(pid);
    process_read(output, result->output, sizeof(result->output));
    process_read(errors, result->errors, sizeof(result->errors));
}

void daemons_covey(const struct daemons *daemons, unsigned i, struct result *result, ...)
{
    const char *arguments[ARGUMENTS_MAX];
    size_t count = 0;
    va_list list;

    va_start(list, result);
    do {
        ck_assert_uint_lt(count, ARGUMENTS_MAX);
        arguments[count] = va_arg(list, const char *);
    } while (arguments[count++] != NULL);
    va_end(list);
    covey_end(daemons, covey_start(daemons, i, arguments, 0), result, 0);
}

pid_t daemons_covey_start(const struct daemons *daemons, unsigned i, const char *const *arguments)
{
    return covey_start(daemons, i, arguments, 1);
}

bool daemons_covey_ended(pid_t pid)
{
    siginfo_t info = {0};

    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    return info.si_pid == pid;
}

void daemons_covey_end(const struct daemons *daemons, pid_t pid, struct result *result)
{
    covey_end(daemons, pid, result, 1);
}

static json_t *parse(const struct result *result)
{
    json_t *root = json_loads(result->output, 0, NULL);

    ck_assert_msg(root != NULL, "no JSON: %s%s", result->output, result->errors);
    return root;
}

/* --- Views ---------------------------------------------------------------------------------------------- */

static uint64_t hex_of(const json_t *item, const char *key)
{
    const char *text = json_string_value(json_object_get(item, key));

    return text != NULL ? strtoull(text, NULL, 16) : 0;
}

static void take_member(const json_t *member, struct seen *seen)
{
    uint64_t incarnation = hex_of(member, "incarnation");

    if (json_is_true(json_object_get(member, "self")))
        seen->own_incarnation = incarnation;
    if (strcmp(json_string_value(json_object_get(member, "state")), "missing") == 0)
        return;
    ck_assert_uint_lt(seen->size, DAEMONS_MAX);
    seen->ids[seen->size] = (uint32_t)json_integer_value(json_object_get(member, "id"));
    seen->incarnations[seen->size++] = incarnation;
}

void daemons_view(const struct daemons *daemons, unsigned i, struct seen *seen)
{
    static struct result result;
    json_t *root, *member;
    size_t index;

    memset(seen, 0, sizeof(*seen));
    daemons_covey(daemons, i, &result, "view", NULL);
    if (result.output[0] == '\0')
        return;
    root = parse(&result);
    json_array_foreach (json_object_get(root, "members"), index, member)
        take_member(member, seen);
    seen->answered = true;
    seen->number = (uint64_t)json_integer_value(json_object_get(root, "number"));
    seen->epoch = hex_of(root, "epoch");
    seen->quorate = json_is_true(json_object_get(root, "quorate"));
    snprintf(seen->state, sizeof(seen->state), "%s", json_string_value(json_object_get(root, "state")));
    json_decref(root);
}

bool daemons_is_in_state(const struct daemons *daemons, unsigned i, const char *state)
{
    struct seen seen;

    daemons_view(daemons, i, &seen);
    return strcmp(seen.state, state) == 0;
}

bool daemons_is_running(const struct daemons *daemons, unsigned i, uint32_t size)
{
    struct seen seen;

    daemons_view(daemons, i, &seen);
    return strcmp(seen.state, "running") == 0 && seen.size == size;
}

void daemons_await(const struct daemons *daemons, uint32_t size)
{
    for (unsigned i = 0; i < daemons->count; i++) {
        if (daemons->pids[i] != 0)
            PROCESS_AWAIT(daemons_is_running(daemons, i, size));
    }
}

uint64_t daemons_stat(const struct daemons *daemons, unsigned i, const char *name)
{
    static struct result result;
    json_t *root, *stat;
    uint64_t value = UINT64_MAX;
    size_t index;

    daemons_covey(daemons, i, &result, "stats", NULL);
    root = parse(&result);
    json_array_foreach (json_object_get(root, "stats"), index, stat) {
        if (strcmp(json_string_value(json_object_get(stat, "name")), name) == 0)
            value = (uint64_t)json_integer_value(json_object_get(stat, "value"));
    }
    json_decref(root);
    ck_assert_msg(value != UINT64_MAX, "no counter %s", name);
    return value;
}

/* --- Objects -------------------------------------------------------------------------------------------- */

const char *daemons_file(const struct daemons *daemons, const char *name, size_t bytes, unsigned seed)
{
    static char path[96];
    FILE *file;
    uint32_t state = seed * 2654435761U + 1;

    path_of(daemons, name, path);
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    for (size_t i = 0; i < bytes; i += sizeof(state)) {
        state = state * 1664525U + 1013904223U;
        fwrite(&state, 1, bytes - i < sizeof(state) ? bytes - i : sizeof(state), file);
    }
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

void daemons_put(const struct daemons *daemons, unsigned i, const char *name, const char *file)
{
    static struct result result;

    daemons_covey(daemons, i, &result, "put", "g", name, file, NULL);
    ck_assert_msg(result.status == 0, "put of %s at n%u: %s", name, i, result.errors);
}

void daemons_object(const struct daemons *daemons, unsigned i, const char *name, char text[64])
{
    static struct result result;
    json_t *root, *object;
    size_t index;

    text[0] = '\0';
    daemons_covey(daemons, i, &result, "objects", "g", NULL);
    ck_assert_msg(result.status == 0, "n%u: %s", i, result.errors);
    root = parse(&result);
    json_array_foreach (json_object_get(root, "objects"), index, object) {
        if (text[0] != '\0' || strcmp(json_string_value(json_object_get(object, "name")), name) != 0 ||
            strcmp(json_string_value(json_object_get(object, "state")), "delivered") != 0)
            continue;
        snprintf(text, 64, "%lld %s", (long long)json_integer_value(json_object_get(object, "version")),
                 json_string_value(json_object_get(object, "digest")));
    }
    json_decref(root);
}
