/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/command/command.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

int command_rm(struct cli *cli, const struct command *command, int argc, char **argv)
{
    struct request request = {.kind = REQUEST_REMOVE};
    json_t *done;
    int status = cli_parse(cli, command, argc, argv, 2, 2);

    if (status >= 0)
        return status;
    request.group = argv[optind];
    request.name = argv[optind + 1];
    if (!cli_check_name("GROUP", request.group) || !cli_check_name("NAME", request.name) ||
        !cli_ask(cli, &request, NULL, 0, NULL, &done))
        return EXIT_FAILURE;
    if (cli->json)
        cli_print_json(done);
    else
        printf("removed %s from %s\n", request.name, request.group);
    json_decref(done);
    return EXIT_SUCCESS;
}
