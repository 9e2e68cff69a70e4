/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/command/command.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "control/item.h"
#include "daemon/units.h"

static const struct column columns[] = {{"RANK", true},      {"NAME", false},      {"VIEW", true},
                                        {"HEARTBEAT", true}, {"SILENT", true},     {"FLAGS", false},
                                        {"SUSPECTS", false}, {"EVICTS", false},    {"PROMISED", false},
                                        {"ACCEPTED", false}, {"COMMITTED", false}, {"RECEIVED", false}};

static void add_texts(struct table *table, const json_t *row, const char *key)
{
    const json_t *texts = json_object_get(row, key);
    char joined[256] = "";
    size_t length = 0;

    for (size_t i = 0; i < json_array_size(texts) && length < sizeof(joined); i++)
        length += (size_t)snprintf(joined + length, sizeof(joined) - length, "%s%s", i == 0 ? "" : ",",
                                   json_string_value(json_array_get(texts, i)));
    table_cell(table, "%s", length == 0 ? "-" : joined);
}

static void add_text(struct table *table, const json_t *row, const char *key)
{
    const char *text = item_get_text(row, key);

    table_cell(table, "%s", text[0] != '\0' ? text : "-");
}

static void add_silence(struct table *table, const json_t *row)
{
    if (json_is_real(json_object_get(row, "silent")))
        table_cell(table, "%s", UNITS_SECONDS(item_get_real(row, "silent")));
    else
        table_cell(table, "%s", item_get_bool(row, "self") ? "-" : "no link");
    if (!item_get_bool(row, "linked"))
        table_paint(table, PAINT_BAD);
}

static void add_received(struct table *table, const json_t *row)
{
    char joined[512] = "";
    const char *group;
    json_t *position;
    size_t length = 0;

    json_object_foreach (json_object_get(row, "received"), group, position) {
        if (length < sizeof(joined))
            length += (size_t)snprintf(joined + length, sizeof(joined) - length, "%s%s:%" PRIu64,
                                       length == 0 ? "" : " ", group, (uint64_t)json_integer_value(position));
    }
    table_cell(table, "%s", length == 0 ? "-" : joined);
}

static void add_row(struct table *table, const json_t *row)
{
    if (json_is_integer(json_object_get(row, "rank")))
        table_cell(table, "%" PRIu64, item_get_u64(row, "rank"));
    else
        table_cell(table, "-");
    table_cell(table, "%s%s", item_get_text(row, "name"), item_get_bool(row, "self") ? "*" : "");
    table_cell(table, "%" PRIu64, item_get_u64(row, "view"));
    table_cell(table, "%" PRIu64, item_get_u64(row, "heartbeat"));
    add_silence(table, row);
    add_texts(table, row, "flags");
    add_texts(table, row, "suspected");
    if (json_array_size(json_object_get(row, "suspected")) > 0)
        table_paint(table, PAINT_BAD);
    add_texts(table, row, "evicted");
    add_text(table, row, "promised");
    add_text(table, row, "accepted");
    add_text(table, row, "committed");
    add_received(table, row);
}

int command_table(struct cli *cli, const struct command *command, int argc, char **argv)
{
    static const struct cli_list list = {"rows", columns, sizeof(columns) / sizeof(columns[0]), add_row,
                                         NULL};
    const struct request request = {.kind = REQUEST_TABLE};
    int status = cli_parse(cli, command, argc, argv, 0, 0);

    if (status >= 0)
        return status;
    return cli_print_list(cli, &request, &list, NULL) ? EXIT_SUCCESS : EXIT_FAILURE;
}
