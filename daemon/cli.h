/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_CLI_H
#define DAEMON_CLI_H

/* What the commands of `covey` share: finding the daemon, asking it, and printing what it says.
 *
 * Whoever finds an error prints its sentence (cli_error) and returns false or an exit status; nobody prints
 * it twice. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "control/frame.h"
#include "control/reply.h"
#include "control/request.h"
#include "daemon/progress.h"
#include "daemon/table.h"

#define EXIT_NOT_QUORATE  2
#define EXIT_USAGE        64

#define CLI_RUN_DIRECTORY "/run/covey"

struct cli {
    const char *socket_path; /* -s */
    const char *node;        /* -n */
    bool json;
    bool terminal; /* stdout and stderr are terminals: draw progress */
    bool colour;

    char *found_path; /* where the daemon was found */
    int socket;       /* -1 until then */
    int silence_ms;   /* how long the daemon may say nothing */
    struct frame_reader reader;
};

struct command {
    const char *name;
    const char *arguments; /* for the usage line */
    const char *summary;
    int (*run)(struct cli *cli, const struct command *command, int argc, char **argv); /* the exit status */
};

/* The sentence on stderr, behind "covey: ". */
void cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The command's usage line on stderr, after what was wrong (unless that is NULL). Returns EXIT_USAGE. */
int cli_usage(const struct command *command, const char *problem);

/* --- Arguments ------------------------------------------------------------------------------------------ */

/* Options that every command takes besides its own; the end of a getopt_long() table. */
enum { CLI_OPTION_JSON = 256, CLI_OPTION_HELP, CLI_OPTION_OWN };
#define CLI_OPTIONS                                                                             \
    {"json", no_argument, NULL, CLI_OPTION_JSON}, {"help", no_argument, NULL, CLI_OPTION_HELP}, \
    {                                                                                           \
        NULL, 0, NULL, 0                                                                        \
    }

/* Handle one of them, or an unknown option. Returns -1 to go on, or the exit status. */
int cli_option(struct cli *cli, const struct command *command, int option);

/* Check that minimum..maximum operands are left. Returns -1 to go on, or the exit status. */
int cli_count(const struct command *command, int argc, int minimum, int maximum);

/* Parse the arguments of a command that has no options of its own and wants minimum..maximum operands, which
 * begin at argv[optind] then. Returns -1 to go on, or the exit status. */
int cli_parse(struct cli *cli, const struct command *command, int argc, char **argv, int minimum,
              int maximum);

/* Whether this can be a name in the cluster; false after an error, which begins with what it is a name of. */
bool cli_check_name(const char *what, const char *name);

/* --- Asking --------------------------------------------------------------------------------------------- */

/* Called for what comes before the end of a reply; each may be NULL. */
struct cli_listener {
    void (*item)(void *context, const json_t *item);
    void (*progress)(void *context, uint64_t done, uint64_t total);
    void *context;
};

/* Ask the daemon, with descriptors, and hear its whole reply. *done (a new reference) is its end; done may be
 * NULL. */
bool cli_ask(struct cli *cli, const struct request *request, const int *descriptors, size_t descriptor_count,
             const struct cli_listener *listener, json_t **done);

/* How long the daemon may say nothing from now on, in place of REPLY_SILENCE_MS. It is found already. */
void cli_set_silence(struct cli *cli, int silence_ms);

/* SIGINT, SIGTERM and SIGHUP from now on end cli_ask() with the sentence in place of the process. */
void cli_catch_signals(const char *sentence);

void cli_fini(struct cli *cli);

/* --- Printing ------------------------------------------------------------------------------------------- */

/* A reply with items, as one JSON document {"schema": 1, KEY: [items], and what is in the reply's end}, or as
 * a table. */
struct cli_list {
    const char *key;
    const struct column *columns;
    size_t column_count;
    void (*row)(struct table *table, const json_t *item);
    void (*head)(const json_t *done); /* printed above the table; may be NULL */
};

/* Ask and print. *done as in cli_ask(). */
bool cli_print_list(struct cli *cli, const struct request *request, const struct cli_list *list,
                    json_t **done);

/* {"schema": 1, and what is in the object}. */
void cli_print_json(const json_t *object);

#endif
