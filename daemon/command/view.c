/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/command/command.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control/item.h"
#include "daemon/units.h"

static const struct column columns[] = {{"RANK", true},         {"ID", true},     {"NAME", false},
                                        {"ADDRESS", false},     {"STATE", false}, {"SINCE", true},
                                        {"INCARNATION", false}, {"", false}};

static const char *age_of(const json_t *item, struct unit_text *out)
{
    uint64_t since_ns = item_parse_time(item_get_text(item, "since"));
    struct timespec now;
    uint64_t now_ns;

    if (since_ns == 0)
        return "-";
    clock_gettime(CLOCK_REALTIME, &now);
    now_ns = (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
    return units_age(now_ns > since_ns ? now_ns - since_ns : 0, out);
}

static const char *text_or_dash(const json_t *item, const char *key)
{
    const char *text = item_get_text(item, key);

    return text[0] != '\0' ? text : "-";
}

static void add_member(struct table *table, const json_t *member)
{
    const char *state = item_get_text(member, "state");
    struct unit_text age;

    if (json_is_integer(json_object_get(member, "rank")))
        table_cell(table, "%" PRIu64, item_get_u64(member, "rank"));
    else
        table_cell(table, "-");
    table_cell(table, "%" PRIu64, item_get_u64(member, "id"));
    table_cell(table, "%s%s", item_get_text(member, "name"), item_get_bool(member, "self") ? "*" : "");
    table_cell(table, "%s", item_get_text(member, "address"));
    table_cell(table, "%s", state);
    table_paint(table, strcmp(state, "member") == 0 ? PAINT_GOOD : PAINT_BAD);
    table_cell(table, "%s", age_of(member, &age));
    table_cell(table, "%s", text_or_dash(member, "incarnation"));
    table_cell(table, "%s", item_get_text(member, "problem"));
}

static void print_head(const json_t *view)
{
    printf("view %" PRIu64 "  %s  %s  %" PRIu64 " of %" PRIu64 " members  epoch %s\n",
           item_get_u64(view, "number"), item_get_text(view, "state"),
           item_get_bool(view, "quorate") ? "quorate" : "NOT QUORATE", item_get_u64(view, "size"),
           item_get_u64(view, "count"), text_or_dash(view, "epoch"));
}

static int show(struct cli *cli, const struct request *request, uint64_t *change)
{
    static const struct cli_list list = {"members", columns, sizeof(columns) / sizeof(columns[0]), add_member,
                                         print_head};
    json_t *view;
    bool quorate;

    if (!cli_print_list(cli, request, &list, &view))
        return EXIT_FAILURE;
    quorate = item_get_bool(view, "quorate");
    *change = item_get_u64(view, "change");
    json_decref(view);
    return quorate ? EXIT_SUCCESS : EXIT_NOT_QUORATE;
}

/* Until it is interrupted or the daemon ends. */
static int watch(struct cli *cli)
{
    struct request request = {.kind = REQUEST_VIEW, .wait = true};

    for (;;) {
        if (show(cli, &request, &request.after) == EXIT_FAILURE)
            return EXIT_FAILURE;
        if (!cli->json)
            putchar('\n');
        if (fflush(stdout) != 0)
            return EXIT_FAILURE;
    }
}

int command_view(struct cli *cli, const struct command *command, int argc, char **argv)
{
    static const struct option options[] = {
        {"watch", no_argument, NULL, 'w'}, {"yes", no_argument, NULL, 'y'}, CLI_OPTIONS};
    const struct request request = {.kind = REQUEST_VIEW};
    bool watched = false, agreed = false, forced;
    uint64_t change;
    int option;

    while ((option = getopt_long(argc, argv, "wy", options, NULL)) != -1) {
        int status = option == 'w' || option == 'y' ? -1 : cli_option(cli, command, option);

        if (status >= 0)
            return status;
        watched |= option == 'w';
        agreed |= option == 'y';
    }
    forced = optind + 1 == argc && strcmp(argv[optind], "force") == 0;
    if (optind < argc && !forced)
        return cli_usage(command, "there are too many arguments");
    if (forced ? watched : agreed)
        return cli_usage(command, forced ? "force has no --watch" : "--yes is for force");
    if (forced)
        return force_view(cli, command, agreed);
    return watched ? watch(cli) : show(cli, &request, &change);
}
