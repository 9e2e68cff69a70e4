/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "daemon/cli.h"

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <covey/covey.h>

#include "base/name.h"
#include "control/endpoint.h"
#include "control/item.h"

/* --- Errors --------------------------------------------------------------------------------------------- */

void cli_error(const char *format, ...)
{
    char *text;
    va_list args;
    int length;

    va_start(args, format);
    length = vasprintf(&text, format, args);
    va_end(args);
    fflush(stdout);
    if (length < 0) {
        fputs("covey: out of memory\n", stderr);
        return;
    }
    fputs("covey: ", stderr);
    for (const char *c = text; *c != '\0'; c++) {
        bool control = ((unsigned char)*c < 0x20 && *c != '\n') || *c == 0x7f;

        fputc(control ? '?' : *c, stderr);
    }
    fputc('\n', stderr);
    free(text);
}

static void print_usage(FILE *file, const struct command *command)
{
    fprintf(file, "Usage: covey %s%s%s\n", command->name, command->arguments[0] == '\0' ? "" : " ",
            command->arguments);
}

int cli_usage(const struct command *command, const char *problem)
{
    if (problem != NULL)
        cli_error("%s: %s", command->name, problem);
    print_usage(stderr, command);
    return EXIT_USAGE;
}

/* --- Arguments ------------------------------------------------------------------------------------------ */

int cli_option(struct cli *cli, const struct command *command, int option)
{
    if (option == CLI_OPTION_JSON) {
        cli->json = true;
        return -1;
    }
    if (option == CLI_OPTION_HELP) {
        print_usage(stdout, command);
        printf("%s.\n", command->summary);
        return EXIT_SUCCESS;
    }
    return cli_usage(command, NULL);
}

int cli_count(const struct command *command, int argc, int minimum, int maximum)
{
    if (argc - optind < minimum)
        return cli_usage(command, "an argument is missing");
    if (argc - optind > maximum)
        return cli_usage(command, "there are too many arguments");
    return -1;
}

int cli_parse(struct cli *cli, const struct command *command, int argc, char **argv, int minimum, int maximum)
{
    static const struct option options[] = {CLI_OPTIONS};
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        int status = cli_option(cli, command, option);

        if (status >= 0)
            return status;
    }
    return cli_count(command, argc, minimum, maximum);
}

bool cli_check_name(const char *what, const char *name)
{
    size_t bytes = strlen(name);
    struct fail fail = {0};

    if (bytes == 0 || bytes > COVEY_NAME_MAX)
        cli_error("%s: a name has 1 to %d bytes, this has %zu", what, COVEY_NAME_MAX, bytes);
    else if (name_check_printable(name, bytes, &fail) != 0)
        cli_error("%s: the name \"%s\": %s", what, name, fail.text);
    else
        return true;
    return false;
}

/* --- Finding the daemon --------------------------------------------------------------------------------- */

static bool is_socket_name(const char *name)
{
    size_t length = strlen(name);

    return length > 5 && strcmp(name + length - 5, ".sock") == 0;
}

/* The only socket of the run directory, to be freed; NULL after an error. */
static char *find_only_socket(void)
{
    DIR *directory = opendir(CLI_RUN_DIRECTORY);
    char names[256] = "", *path = NULL;
    const struct dirent *entry;
    int count = 0;

    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        if (!is_socket_name(entry->d_name))
            continue;
        snprintf(names + strlen(names), sizeof(names) - strlen(names), " %.*s",
                 (int)strlen(entry->d_name) - 5, entry->d_name);
        free(path);
        if (asprintf(&path, CLI_RUN_DIRECTORY "/%s", entry->d_name) < 0)
            path = NULL;
        count++;
    }
    if (directory != NULL)
        closedir(directory);
    if (count == 1)
        return path;
    free(path);
    if (count == 0)
        cli_error("no coveyd runs here: there is no socket in " CLI_RUN_DIRECTORY
                  " (-s SOCKET or COVEY_SOCKET names one elsewhere)");
    else
        cli_error("several nodes run here: choose one with -n NODE:%s", names);
    return NULL;
}

static char *find_socket(const struct cli *cli)
{
    const char *environment = getenv("COVEY_SOCKET");
    char *path;

    if (cli->socket_path != NULL)
        return strdup(cli->socket_path);
    if (cli->node != NULL)
        return asprintf(&path, CLI_RUN_DIRECTORY "/%s.sock", cli->node) < 0 ? NULL : path;
    if (environment != NULL && environment[0] != '\0')
        return strdup(environment);
    return find_only_socket();
}

static bool connect_once(struct cli *cli)
{
    struct fail fail = {0};

    if (cli->socket >= 0)
        return true;
    cli->found_path = find_socket(cli);
    if (cli->found_path == NULL)
        return false;
    if (endpoint_connect(cli->found_path, cli->silence_ms, &cli->socket, &fail) == 0)
        return true;
    cli_error("%s", fail.text);
    return false;
}

void cli_set_silence(struct cli *cli, int silence_ms)
{
    cli->silence_ms = silence_ms;
    endpoint_set_silence(cli->socket, silence_ms);
}

void cli_fini(struct cli *cli)
{
    if (cli->socket >= 0)
        close(cli->socket);
    frame_reader_fini(&cli->reader);
    free(cli->found_path);
}

/* --- Signals -------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;
static const char *interrupted_sentence = "interrupted";

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

void cli_catch_signals(const char *sentence)
{
    const struct sigaction action = {.sa_handler = on_signal};
    sigset_t signals;

    interrupted_sentence = sentence;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

/* --- Asking --------------------------------------------------------------------------------------------- */

static void stream_failed(const struct cli *cli, const struct fail *fail)
{
    if (fail->code == COVEY_TIMEOUT)
        cli_error("coveyd at %s does not answer: it is stopped or stuck", cli->found_path);
    else
        cli_error("coveyd at %s: %s", cli->found_path, fail->text);
}

static bool send_request(struct cli *cli, const struct request *request, const int *descriptors, size_t count)
{
    struct fail fail = {0};
    json_t *document = request_encode(request);

    if (document == NULL)
        fail_set(&fail, COVEY_INVALID,
                 "the request cannot be written: a name is not UTF-8, or memory is out");
    else
        frame_send(cli->socket, document, descriptors, count, &fail);
    json_decref(document);
    /* A daemon that turns a client away closes first: its reply says why. */
    if (fail.code == 0 || fail.code == COVEY_CLOSED)
        return true;
    stream_failed(cli, &fail);
    return false;
}

/* Signals that were caught come here and nowhere else. 0: there is something to read. */
static int await_reply(const struct cli *cli, struct fail *fail)
{
    const struct timespec silence = {.tv_sec = cli->silence_ms / 1000,
                                     .tv_nsec = cli->silence_ms % 1000 * 1000000L};
    struct pollfd polled = {.fd = cli->socket, .events = POLLIN};
    sigset_t none;
    int ready;

    sigemptyset(&none);
    do
        ready = ppoll(&polled, 1, &silence, &none);
    while (ready < 0 && errno == EINTR && !interrupted);
    if (interrupted)
        return fail_set(fail, COVEY_CANCELLED, "%s", interrupted_sentence);
    return ready > 0 ? 0 : fail_set(fail, COVEY_TIMEOUT, "silence");
}

static bool receive(struct cli *cli, json_t **document)
{
    struct fail fail = {0};
    int result = await_reply(cli, &fail);

    if (result == COVEY_CANCELLED) {
        cli_error("%s", fail.text);
        return false;
    }
    if (result == 0) {
        do
            result = frame_receive(cli->socket, &cli->reader, document, &fail);
        while (result == COVEY_AGAIN);
        if (result == 0)
            fail_set(&fail, COVEY_CLOSED, "it closed the connection");
    }
    if (result <= 0)
        stream_failed(cli, &fail);
    return result > 0;
}

static void hear(const struct cli_listener *listener, const struct reply *reply)
{
    if (listener == NULL)
        return;
    if (reply->kind == REPLY_PROGRESS && listener->progress != NULL)
        listener->progress(listener->context, item_get_u64(reply->body, "done"),
                           item_get_u64(reply->body, "total"));
    for (size_t i = 0;
         reply->kind == REPLY_ITEMS && listener->item != NULL && i < json_array_size(reply->body); i++)
        listener->item(listener->context, json_array_get(reply->body, i));
}

/* 1: there is more to come; 0: that was the end; -1: an error. */
static int take_reply(struct cli *cli, const struct cli_listener *listener, json_t **done)
{
    struct fail fail = {0};
    struct reply reply;
    json_t *document;
    int result = -1;

    if (!receive(cli, &document))
        return -1;
    if (reply_decode(document, &reply, &fail) != 0) {
        stream_failed(cli, &fail);
    } else if (reply.kind == REPLY_ERROR) {
        cli_error("%s", item_get_text(reply.body, "text"));
    } else if (reply.kind == REPLY_DONE) {
        if (done != NULL)
            *done = json_incref((json_t *)(uintptr_t)reply.body);
        result = 0;
    } else {
        hear(listener, &reply);
        result = 1;
    }
    json_decref(document);
    return result;
}

bool cli_ask(struct cli *cli, const struct request *request, const int *descriptors, size_t descriptor_count,
             const struct cli_listener *listener, json_t **done)
{
    int result;

    if (!connect_once(cli) || !send_request(cli, request, descriptors, descriptor_count))
        return false;
    do
        result = take_reply(cli, listener, done);
    while (result > 0);
    return result == 0;
}

/* --- Printing ------------------------------------------------------------------------------------------- */

#define JSON_FLAGS (JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9))

/* The members of an object, each behind a comma. */
static void print_members(const json_t *object)
{
    const char *key;
    json_t *value;

    json_object_foreach ((json_t *)(uintptr_t)object, key, value) {
        printf(",\"%s\":", key);
        json_dumpf(value, stdout, JSON_FLAGS);
    }
}

void cli_print_json(const json_t *object)
{
    printf("{\"schema\":%d", CONTROL_SCHEMA);
    print_members(object);
    puts("}");
}

struct printer {
    const struct cli_list *list;
    struct table table;
    bool begun; /* JSON */
};

/* Nothing is printed before the first good word of the daemon. */
static void begin_json(struct printer *printer)
{
    if (!printer->begun)
        printf("{\"schema\":%d,\"%s\":[", CONTROL_SCHEMA, printer->list->key);
    printer->begun = true;
}

static void print_item(void *context, const json_t *item)
{
    struct printer *printer = context;

    if (printer->begun)
        putchar(',');
    begin_json(printer);
    json_dumpf(item, stdout, JSON_FLAGS);
}

static void add_row(void *context, const json_t *item)
{
    struct printer *printer = context;

    printer->list->row(&printer->table, item);
}

bool cli_print_list(struct cli *cli, const struct request *request, const struct cli_list *list,
                    json_t **done)
{
    struct printer printer = {.list = list};
    const struct cli_listener listener = {.item = cli->json ? print_item : add_row, .context = &printer};
    json_t *end;

    table_init(&printer.table, list->columns, list->column_count, cli->colour);
    if (!cli_ask(cli, request, NULL, 0, &listener, &end))
        return false;
    if (cli->json) {
        begin_json(&printer);
        putchar(']');
        print_members(end);
        puts("}");
    } else {
        if (list->head != NULL)
            list->head(end);
        table_print(&printer.table);
    }
    if (done != NULL)
        *done = json_incref(end);
    json_decref(end);
    return true;
}
