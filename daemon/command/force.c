/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/command/command.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/item.h"

/* The view as it is, and who of it is out of reach. */
struct prospect {
    json_t *view;
    json_t *away; /* names */
};

static void note_member(void *context, const json_t *member)
{
    const struct prospect *prospect = context;

    if (strcmp(item_get_text(member, "state"), "member") != 0 && !item_get_bool(member, "self"))
        json_array_append_new(prospect->away, json_string(item_get_text(member, "name")));
}

static void print_away(const struct prospect *prospect)
{
    for (size_t i = 0; i < json_array_size(prospect->away); i++) {
        printf("%s", i == 0 ? "" : ", ");
        table_print_text(json_string_value(json_array_get(prospect->away, i)));
    }
}

static bool ask_person(const struct prospect *prospect)
{
    char answer[16];

    printf("view %" PRIu64 " has no quorum. Out of reach: ", item_get_u64(prospect->view, "number"));
    print_away(prospect);
    puts(".\nA forced view goes on without them. If they run and go on, too, there are two clusters, and "
         "what is "
         "put in one\nis not in the other: the nodes of one of them must be started anew. Be sure that they "
         "are "
         "stopped.");
    printf("Declare a view without them? [y/N] ");
    fflush(stdout);
    return fgets(answer, sizeof(answer), stdin) != NULL &&
           (strcmp(answer, "y\n") == 0 || strcmp(answer, "yes\n") == 0);
}

static int declare(struct cli *cli)
{
    const struct request request = {.kind = REQUEST_FORCE};
    json_t *done;

    if (!cli_ask(cli, &request, NULL, 0, NULL, &done))
        return EXIT_FAILURE;
    if (cli->json)
        cli_print_json(done);
    else
        printf("view %" PRIu64 " is quorate with %" PRIu64 " members\n", item_get_u64(done, "number"),
               item_get_u64(done, "size"));
    json_decref(done);
    return EXIT_SUCCESS;
}

static int confirm(const struct prospect *prospect, const struct command *command)
{
    if (item_get_bool(prospect->view, "quorate")) {
        cli_error("view %" PRIu64 " is quorate: there is nothing to force",
                  item_get_u64(prospect->view, "number"));
        return EXIT_FAILURE;
    }
    if (!isatty(STDIN_FILENO))
        return cli_usage(command, "there is no terminal to ask on: say --yes");
    if (ask_person(prospect))
        return -1;
    cli_error("nothing was done");
    return EXIT_FAILURE;
}

int force_view(struct cli *cli, const struct command *command, bool agreed)
{
    const struct request request = {.kind = REQUEST_VIEW};
    struct prospect prospect = {.away = json_array()};
    const struct cli_listener listener = {.item = note_member, .context = &prospect};
    int status = -1;

    if (!agreed) {
        status = EXIT_FAILURE;
        if (cli_ask(cli, &request, NULL, 0, &listener, &prospect.view))
            status = confirm(&prospect, command);
        json_decref(prospect.view);
    }
    json_decref(prospect.away);
    return status >= 0 ? status : declare(cli);
}
