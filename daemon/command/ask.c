/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/command/command.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "control/item.h"

/* Ask what has no arguments and print its end: in words, which may name the member called key. */
static int ask(struct cli *cli, const struct request *request, const char *key, const char *words)
{
    json_t *done;

    if (!cli_ask(cli, request, NULL, 0, NULL, &done))
        return EXIT_FAILURE;
    if (cli->json) {
        cli_print_json(done);
    } else {
        if (key != NULL) {
            table_print_text(item_get_text(done, key));
            putchar(' ');
        }
        puts(words);
    }
    json_decref(done);
    return EXIT_SUCCESS;
}

int command_reload(struct cli *cli, const struct command *command, int argc, char **argv)
{
    const struct request request = {.kind = REQUEST_RELOAD};
    int status = cli_parse(cli, command, argc, argv, 0, 0);

    return status >= 0 ? status : ask(cli, &request, NULL, "the configuration was read again");
}

int command_leave(struct cli *cli, const struct command *command, int argc, char **argv)
{
    const struct request request = {.kind = REQUEST_LEAVE};
    int status = cli_parse(cli, command, argc, argv, 0, 0);

    return status >= 0 ? status : ask(cli, &request, "node", "has left the cluster");
}

int command_evict(struct cli *cli, const struct command *command, int argc, char **argv)
{
    struct request request = {.kind = REQUEST_EVICT};
    int status = cli_parse(cli, command, argc, argv, 1, 1);

    if (status >= 0)
        return status;
    request.name = argv[optind];
    if (!cli_check_name("NODE", request.name))
        return EXIT_FAILURE;
    return ask(cli, &request, "node", "was evicted");
}
