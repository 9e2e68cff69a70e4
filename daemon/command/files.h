/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_COMMAND_FILES_H
#define DAEMON_COMMAND_FILES_H

/* The files that the arguments of `covey put` mean, and the names that their buffers get.
 *
 * An argument that is a directory stands for every file below it, in the order of their names; links are
 * followed. A file's name is its last path component, or its path within the directory that was given.
 * Where two would have the same name, more components of their paths make them differ. */

#include <stdbool.h>
#include <stddef.h>

struct file {
    char *path;        /* to open */
    char *full;        /* absolute, as far as names need it */
    const char *name;  /* the end of full */
    size_t components; /* of full that are in name */
};

struct file_list {
    struct file *files;
    size_t count, room;
};

/* false after an error, whose sentence was printed. */
bool files_expand(char *const *arguments, size_t count, struct file_list *list);
void files_free(struct file_list *list);

/* Open a regular file for reading; -1 after an error, whose sentence was printed. */
int files_open(const char *path);

#endif
