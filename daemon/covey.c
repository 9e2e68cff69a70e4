/* SPDX-License-Identifier: BSD-3-Clause */
/* The command for people (covey(1)): finds a daemon's control socket, asks, and prints. */

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "daemon/command/command.h"

static const struct command commands[] = {
    {"view", "[--watch] | force [--yes]",
     "Show the cluster's view: its number, quorum and members; or declare one without a quorum",
     command_view},
    {"table", "", "Show the shared-state table as the node sees it", command_table},
    {"evict", "NODE", "Remove a member from the view", command_evict},
    {"groups", "", "Show the groups of the node", command_groups},
    {"objects", "GROUP", "Show the objects that the node holds in a group", command_objects},
    {"put", "GROUP NAME FILE...", "Replicate files as one object, a buffer each", command_put},
    {"get", "[-f] [-v VERSION] -o PATH GROUP NAME", "Write an object to a file, or to a directory",
     command_get},
    {"rm", "GROUP NAME", "Remove an object from every member", command_rm},
    {"route", "[NODE]", "Show how bytes reach the other nodes from each kind of memory", command_route},
    {"stats", "", "Show the node's counters", command_stats},
    {"events", "[--follow]", "Show what happened to members and objects", command_events},
    {"bench", "[--bytes SIZE] [--count N] [GROUP]", "Measure puts in a group", command_bench},
    {"reload", "", "Have the daemon read its configuration again", command_reload},
    {"leave", "", "Have the node leave the cluster and its daemon end", command_leave},
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void print_usage(FILE *stream)
{
    fputs("Usage: covey [-s SOCKET | -n NODE] [--json] COMMAND\n\n", stream);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(stream, "  %-8s %s\n", commands[i].name, commands[i].summary);
    fputs("\n"
          "  -s, --socket SOCKET  the daemon's control socket (or COVEY_SOCKET in the environment)\n"
          "  -n, --node NODE      the node whose socket is " CLI_RUN_DIRECTORY "/NODE.sock\n"
          "      --json           print JSON\n"
          "      --version        print the version\n"
          "      --help           print this, or behind a command what it takes\n"
          "\n"
          "Exit status: 0 done, 1 error, 2 the view is not quorate, 64 usage.\n",
          stream);
}

static int usage_error(const char *problem, const char *what)
{
    fprintf(stderr, "covey: %s%s (see covey --help)\n", problem, what);
    return EXIT_USAGE;
}

/* Options before the command. Returns -1 to go on, or the exit status. */
static int parse(struct cli *cli, int argc, char **argv)
{
    enum { OPTION_VERSION = CLI_OPTION_OWN };
    static const struct option options[] = {{"socket", required_argument, NULL, 's'},
                                            {"node", required_argument, NULL, 'n'},
                                            {"version", no_argument, NULL, OPTION_VERSION},
                                            CLI_OPTIONS};
    int option;

    while ((option = getopt_long(argc, argv, "+s:n:", options, NULL)) != -1) {
        switch (option) {
        case 's':
            cli->socket_path = optarg;
            break;
        case 'n':
            cli->node = optarg;
            break;
        case CLI_OPTION_JSON:
            cli->json = true;
            break;
        case OPTION_VERSION:
            puts("covey " PACKAGE_VERSION);
            return EXIT_SUCCESS;
        case CLI_OPTION_HELP:
            print_usage(stdout);
            return EXIT_SUCCESS;
        default:
            return usage_error("what stands before the command is wrong", "");
        }
    }
    if (cli->socket_path != NULL && cli->node != NULL)
        return usage_error("-s and -n exclude each other", "");
    if (cli->node != NULL && strchr(cli->node, '/') != NULL)
        return usage_error("a node's name has no '/': ", cli->node);
    return optind < argc ? -1 : usage_error("a command is missing", "");
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

/* The command sees itself as a program "covey NAME", which getopt puts before its messages. */
static int run_command(struct cli *cli, const struct command *command, int argc, char **argv)
{
    char name[64];

    snprintf(name, sizeof(name), "covey %s", command->name);
    argv[0] = name;
    optind = 0;
    return command->run(cli, command, argc, argv);
}

/* What was printed must have arrived: a full disk is an error like others. */
static int flush_output(int status)
{
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return status;
    fprintf(stderr, "covey: cannot write the output: %s\n", strerror(errno));
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    struct cli cli = {.socket = -1, .silence_ms = REPLY_SILENCE_MS};
    const struct command *command;
    int status;

    cli.terminal = isatty(STDOUT_FILENO) && isatty(STDERR_FILENO);
    cli.colour = isatty(STDOUT_FILENO) && (getenv("NO_COLOR") == NULL || getenv("NO_COLOR")[0] == '\0');
    status = parse(&cli, argc, argv);
    if (status >= 0)
        return flush_output(status);
    command = find_command(argv[optind]);
    if (command == NULL)
        return usage_error("there is no command ", argv[optind]);
    status = run_command(&cli, command, argc - optind, argv + optind);
    cli_fini(&cli);
    return flush_output(status);
}
