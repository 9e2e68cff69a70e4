/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/command/command.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/item.h"
#include "daemon/units.h"

/* --- groups --------------------------------------------------------------------------------------------- */

static const struct column group_columns[] = {
    {"NAME", false},  {"STATE", false},  {"MEMBERS", true}, {"MEMORY", false},   {"USED", true},
    {"BUDGET", true}, {"OBJECTS", true}, {"KEEP", true},    {"SCHEDULE", false}, {"BLOCK", true}};

static void add_group(struct table *table, const json_t *group)
{
    const char *state = item_get_text(group, "state");
    uint64_t block_bytes = item_get_u64(group, "block_bytes");

    table_cell(table, "%s", item_get_text(group, "name"));
    table_cell(table, "%s", state);
    table_paint(table, strcmp(state, "running") == 0 ? PAINT_GOOD : PAINT_WARN);
    table_cell(table, "%" PRIu64, item_get_u64(group, "members"));
    table_cell(table, "%s", item_get_text(group, "memory"));
    table_cell(table, "%s", UNITS_BYTES(item_get_u64(group, "used_bytes")));
    table_cell(table, "%s", UNITS_BYTES(item_get_u64(group, "budget_bytes")));
    table_cell(table, "%" PRIu64, item_get_u64(group, "objects"));
    table_cell(table, "%" PRIu64, item_get_u64(group, "keep_versions"));
    table_cell(table, "%s", item_get_text(group, "schedule"));
    table_cell(table, "%s", block_bytes == 0 ? "auto" : UNITS_BYTES(block_bytes));
}

int command_groups(struct cli *cli, const struct command *command, int argc, char **argv)
{
    static const struct cli_list list = {"groups", group_columns,
                                         sizeof(group_columns) / sizeof(group_columns[0]), add_group, NULL};
    const struct request request = {.kind = REQUEST_GROUPS};
    int status = cli_parse(cli, command, argc, argv, 0, 0);

    if (status >= 0)
        return status;
    return cli_print_list(cli, &request, &list, NULL) ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* --- objects -------------------------------------------------------------------------------------------- */

static const struct column object_columns[] = {{"NAME", false}, {"VERSION", true}, {"BUFFERS", true},
                                               {"BYTES", true}, {"DIGEST", false}, {"STATE", false},
                                               {"PINS", true},  {"SINCE", false}};

static void add_state(struct table *table, const json_t *object)
{
    const char *state = item_get_text(object, "state");
    uint64_t bytes = item_get_u64(object, "bytes"), done = item_get_u64(object, "bytes_done");

    if (strcmp(state, "delivered") == 0) {
        table_cell(table, "%s", state);
        table_paint(table, PAINT_GOOD);
    } else {
        table_cell(table, "%s %.0f%%", state, bytes == 0 ? 100.0 : 100.0 * (double)done / (double)bytes);
        table_paint(table, PAINT_WARN);
    }
}

static void add_object(struct table *table, const json_t *object)
{
    table_cell(table, "%s", item_get_text(object, "name"));
    table_cell(table, "%" PRIu64, item_get_u64(object, "version"));
    table_cell(table, "%" PRIu64, item_get_u64(object, "buffers"));
    table_cell(table, "%s", UNITS_BYTES(item_get_u64(object, "bytes")));
    table_cell(table, "%s", item_get_text(object, "digest"));
    add_state(table, object);
    table_cell(table, "%" PRIu64, item_get_u64(object, "pins"));
    table_cell(table, "%.19sZ", item_get_text(object, "since"));
}

int command_objects(struct cli *cli, const struct command *command, int argc, char **argv)
{
    static const struct cli_list list = {
        "objects", object_columns, sizeof(object_columns) / sizeof(object_columns[0]), add_object, NULL};
    struct request request = {.kind = REQUEST_OBJECTS};
    int status = cli_parse(cli, command, argc, argv, 1, 1);

    if (status >= 0)
        return status;
    request.group = argv[optind];
    if (!cli_check_name("GROUP", request.group))
        return EXIT_FAILURE;
    return cli_print_list(cli, &request, &list, NULL) ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* --- stats ---------------------------------------------------------------------------------------------- */

static const struct column stat_columns[] = {{"COUNTER", false}, {"VALUE", true}, {"", true}};

static void add_stat(struct table *table, const json_t *stat)
{
    const char *unit = item_get_text(stat, "unit");
    uint64_t value = item_get_u64(stat, "value");

    table_cell(table, "%s", item_get_text(stat, "name"));
    if (strcmp(unit, "ms") == 0)
        table_cell(table, "%.3f", item_get_real(stat, "value"));
    else
        table_cell(table, "%" PRIu64, value);
    if (strcmp(unit, "bytes") == 0)
        table_cell(table, "%s", UNITS_BYTES(value));
    else
        table_cell(table, "%s", unit);
}

int command_stats(struct cli *cli, const struct command *command, int argc, char **argv)
{
    static const struct cli_list list = {"stats", stat_columns,
                                         sizeof(stat_columns) / sizeof(stat_columns[0]), add_stat, NULL};
    const struct request request = {.kind = REQUEST_STATS};
    int status = cli_parse(cli, command, argc, argv, 0, 0);

    if (status >= 0)
        return status;
    return cli_print_list(cli, &request, &list, NULL) ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* --- route ---------------------------------------------------------------------------------------------- */

static const struct column route_columns[] = {
    {"NODE", false}, {"MEMORY", false}, {"TRANSPORT", false}, {"WAY", false}, {"", false}};

static void add_route(struct table *table, const json_t *route)
{
    const char *transport = item_get_text(route, "transport");

    table_cell(table, "%s", item_get_text(route, "name"));
    table_cell(table, "%s", item_get_text(route, "memory"));
    table_cell(table, "%s", transport[0] != '\0' ? transport : "-");
    if (transport[0] == '\0')
        table_cell(table, "-");
    else
        table_cell(table, "%s", json_is_true(json_object_get(route, "staged")) ? "staged" : "direct");
    table_cell(table, "%s", item_get_text(route, "text"));
}

int command_route(struct cli *cli, const struct command *command, int argc, char **argv)
{
    static const struct cli_list list = {"routes", route_columns,
                                         sizeof(route_columns) / sizeof(route_columns[0]), add_route, NULL};
    struct request request = {.kind = REQUEST_ROUTE};
    int status = cli_parse(cli, command, argc, argv, 0, 1);

    if (status >= 0)
        return status;
    request.name = argv[optind];
    if (request.name != NULL && !cli_check_name("a node", request.name))
        return EXIT_FAILURE;
    return cli_print_list(cli, &request, &list, NULL) ? EXIT_SUCCESS : EXIT_FAILURE;
}
