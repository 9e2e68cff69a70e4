/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_COMMAND_COMMAND_H
#define DAEMON_COMMAND_COMMAND_H

/* The commands, one file each (groups, objects, stats and route, which only list things, share list.c;
 * reload, leave and evict, which only ask, share ask.c). Each parses its own arguments and returns the exit
 * status.
 */

#include "daemon/cli.h"

int command_view(struct cli *cli, const struct command *command, int argc, char **argv);
int command_groups(struct cli *cli, const struct command *command, int argc, char **argv);
int command_objects(struct cli *cli, const struct command *command, int argc, char **argv);
int command_put(struct cli *cli, const struct command *command, int argc, char **argv);
int command_get(struct cli *cli, const struct command *command, int argc, char **argv);
int command_rm(struct cli *cli, const struct command *command, int argc, char **argv);
int command_route(struct cli *cli, const struct command *command, int argc, char **argv);
int command_stats(struct cli *cli, const struct command *command, int argc, char **argv);
int command_events(struct cli *cli, const struct command *command, int argc, char **argv);
int command_bench(struct cli *cli, const struct command *command, int argc, char **argv);
int command_reload(struct cli *cli, const struct command *command, int argc, char **argv);
int command_leave(struct cli *cli, const struct command *command, int argc, char **argv);
int command_evict(struct cli *cli, const struct command *command, int argc, char **argv);
int command_table(struct cli *cli, const struct command *command, int argc, char **argv);

/* view force: the exit status. `agreed`: do not ask. */
int force_view(struct cli *cli, const struct command *command, bool agreed);

#endif
