/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/command/command.h"

#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "control/item.h"
#include "daemon/command/files.h"
#include "daemon/units.h"

/* --- Handing over the files ----------------------------------------------------------------------------- */

struct batch {
    int descriptors[FRAME_DESCRIPTORS_MAX];
    size_t count;
    json_t *names;
};

static bool open_batch(const struct file *files, size_t count, struct batch *batch)
{
    for (; batch->count < count; batch->count++) {
        const struct file *file = &files[batch->count];
        int fd = files_open(file->path);

        if (fd < 0)
            return false;
        batch->descriptors[batch->count] = fd;
        if (json_array_append_new(batch->names, json_string(file->name)) != 0) {
            close(fd);
            cli_error("out of memory");
            return false;
        }
    }
    return true;
}

/* The reply is awaited, so that few descriptors are on their way at a time: the system bounds them. */
static bool send_batch(struct cli *cli, const struct file *files, size_t count)
{
    struct batch batch = {.names = json_array()};
    const struct request request = {.kind = REQUEST_FILES, .files = batch.names};
    bool good = open_batch(files, count, &batch) &&
                cli_ask(cli, &request, batch.descriptors, batch.count, NULL, NULL);

    for (size_t i = 0; i < batch.count; i++)
        close(batch.descriptors[i]);
    json_decref(batch.names);
    return good;
}

static bool send_files(struct cli *cli, const struct file_list *list)
{
    for (size_t sent = 0; sent < list->count; sent += FRAME_DESCRIPTORS_MAX) {
        size_t left = list->count - sent;

        if (!send_batch(cli, list->files + sent, left < FRAME_DESCRIPTORS_MAX ? left : FRAME_DESCRIPTORS_MAX))
            return false;
    }
    return true;
}

/* --- The put -------------------------------------------------------------------------------------------- */

static void draw(void *context, uint64_t done, uint64_t total)
{
    progress_draw(context, done, total);
}

static void print_field(struct table *table, const char *name, const char *value)
{
    table_cell(table, "%s", name);
    table_cell(table, "%s", value);
}

static void print_result(const struct cli *cli, const struct request *request, const json_t *done)
{
    static const struct column columns[] = {{"", false}, {"", false}};
    char text[64];
    struct table table;

    table_init(&table, columns, 2, cli->colour);
    print_field(&table, "object", request->name);
    snprintf(text, sizeof(text), "%" PRIu64, item_get_u64(done, "version"));
    print_field(&table, "version", text);
    print_field(&table, "digest", item_get_text(done, "digest"));
    snprintf(text, sizeof(text), "%" PRIu64 " (%s)", item_get_u64(done, "bytes"),
             UNITS_BYTES(item_get_u64(done, "bytes")));
    print_field(&table, "bytes", text);
    print_field(&table, "time", UNITS_SECONDS(item_get_real(done, "seconds")));
    print_field(&table, "rate", UNITS_RATE(item_get_real(done, "gb_per_s")));
    print_field(&table, "schedule", item_get_text(done, "schedule"));
    snprintf(text, sizeof(text), "%" PRIu64 " of %s", item_get_u64(done, "blocks"),
             UNITS_BYTES(item_get_u64(done, "block_bytes")));
    print_field(&table, "blocks", text);
    table_print(&table);
}

static int put(struct cli *cli, const struct request *request, const struct file_list *list)
{
    struct progress progress;
    const struct cli_listener listener = {.progress = draw, .context = &progress};
    json_t *done;
    bool good;

    if (!send_files(cli, list))
        return EXIT_FAILURE;
    progress_init(&progress, request->name, cli->terminal && !cli->json);
    cli_catch_signals("interrupted: the put goes on without you, and `covey objects` shows its end");
    good = cli_ask(cli, request, NULL, 0, &listener, &done);
    progress_clear(&progress);
    if (!good)
        return EXIT_FAILURE;
    if (cli->json)
        cli_print_json(done);
    else
        print_result(cli, request, done);
    json_decref(done);
    return EXIT_SUCCESS;
}

int command_put(struct cli *cli, const struct command *command, int argc, char **argv)
{
    struct request request = {.kind = REQUEST_PUT};
    struct file_list list;
    int status = cli_parse(cli, command, argc, argv, 3, INT_MAX);

    if (status >= 0)
        return status;
    request.group = argv[optind];
    request.name = argv[optind + 1];
    if (!cli_check_name("GROUP", request.group) || !cli_check_name("NAME", request.name))
        return EXIT_FAILURE;
    if (files_expand(argv + optind + 2, (size_t)(argc - optind - 2), &list))
        status = put(cli, &request, &list);
    else
        status = EXIT_FAILURE;
    files_free(&list);
    return status;
}
