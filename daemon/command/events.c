/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/command/command.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "control/item.h"

static void print_event(void *context, const json_t *event)
{
    (void)context;
    printf("%.23sZ  ", item_get_text(event, "time"));
    table_print_text(item_get_text(event, "type"));
    printf("  ");
    table_print_text(item_get_text(event, "subject"));
    printf("  ");
    table_print_text(item_get_text(event, "text"));
    putchar('\n');
}

/* One document per event: a stream has no end to wait for. */
static void print_event_json(void *context, const json_t *event)
{
    (void)context;
    cli_print_json(event);
}

/* Print what there is after *last; with a word where the daemon kept no more. */
static bool print_events(struct cli *cli, struct request *request)
{
    const struct cli_listener listener = {.item = cli->json ? print_event_json : print_event};
    json_t *done;
    uint64_t lost;

    if (!cli_ask(cli, request, NULL, 0, &listener, &done))
        return false;
    lost = item_get_u64(done, "lost");
    if (lost > 0)
        cli_error("%" PRIu64 " older events are not kept any more", lost);
    request->after = item_get_u64(done, "last");
    json_decref(done);
    return fflush(stdout) == 0;
}

int command_events(struct cli *cli, const struct command *command, int argc, char **argv)
{
    static const struct option options[] = {{"follow", no_argument, NULL, 'f'}, CLI_OPTIONS};
    struct request request = {.kind = REQUEST_EVENTS};
    bool follow = false;
    int option;

    while ((option = getopt_long(argc, argv, "f", options, NULL)) != -1) {
        int status = option == 'f' ? -1 : cli_option(cli, command, option);

        if (status >= 0)
            return status;
        follow |= option == 'f';
    }
    if (optind < argc)
        return cli_usage(command, "there are too many arguments");
    if (!print_events(cli, &request))
        return EXIT_FAILURE;
    request.wait = true;
    while (follow) {
        if (!print_events(cli, &request))
            return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
