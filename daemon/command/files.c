/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "daemon/command/files.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/cli.h"

/* --- Collecting ----------------------------------------------------------------------------------------- */

/* The directory part of path made absolute, and its last component as it is: a link keeps its own name. */
static char *absolute_file(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *parent = slash == NULL ? strdup(".") : strndup(path, (size_t)(slash - path) + 1);
    char *real = parent != NULL ? realpath(parent, NULL) : NULL;
    char *full = NULL;

    if (real != NULL &&
        asprintf(&full, "%s/%s", strcmp(real, "/") == 0 ? "" : real, slash == NULL ? path : slash + 1) < 0)
        full = NULL;
    free(parent);
    free(real);
    return full;
}

/* What to put before the paths within a root; of a directory its true path. */
static char *absolute_root(const char *path)
{
    struct stat status;
    char *real;

    if (stat(path, &status) == 0 && !S_ISDIR(status.st_mode))
        return absolute_file(path);
    real = realpath(path, NULL);
    if (real != NULL && strcmp(real, "/") == 0)
        real[0] = '\0';
    return real;
}

/* Where the last `count` components of an absolute path begin; its first one if it has fewer. */
static const char *last_components(const char *full, size_t count)
{
    const char *at = full + strlen(full);

    while (at > full + 1 && (at[-1] != '/' || --count > 0))
        at--;
    return at;
}

static bool add_file(struct file_list *list, const char *path, const char *root, const char *within,
                     size_t components)
{
    struct file file = {.components = components};

    if (list->count == list->room) {
        size_t room = list->room == 0 ? 64 : 2 * list->room;
        struct file *files = realloc(list->files, room * sizeof(*files));

        if (files == NULL)
            return false;
        list->files = files;
        list->room = room;
    }
    file.path = strdup(path);
    if (file.path == NULL || asprintf(&file.full, "%s%s", root, within) < 0) {
        free(file.path);
        return false;
    }
    file.name = last_components(file.full, components);
    list->files[list->count++] = file;
    return true;
}

/* Whether the walk goes on. */
static bool add_entry(struct file_list *list, const FTSENT *entry, const char *root, size_t root_bytes)
{
    size_t components = entry->fts_level < 1 ? 1 : (size_t)entry->fts_level;

    switch (entry->fts_info) {
    case FTS_D:
    case FTS_DP:
        return true;
    case FTS_F:
        if (add_file(list, entry->fts_path, root, entry->fts_path + root_bytes, components))
            return true;
        cli_error("out of memory");
        return false;
    case FTS_DC:
        cli_error("%s: a link that leads back into its own directory", entry->fts_path);
        return false;
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
        cli_error("cannot read %s: %s", entry->fts_path, strerror(entry->fts_errno));
        return false;
    case FTS_SLNONE:
        cli_error("%s: a link to nothing", entry->fts_path);
        return false;
    default:
        cli_error("%s is not a regular file", entry->fts_path);
        return false;
    }
}

static int by_name(const FTSENT **left, const FTSENT **right)
{
    return strcmp((*left)->fts_name, (*right)->fts_name);
}

static bool walk(struct file_list *list, char *path, const char *root, size_t root_bytes)
{
    char *paths[] = {path, NULL};
    FTS *fts = fts_open(paths, FTS_LOGICAL | FTS_NOCHDIR, by_name);
    const FTSENT *entry;
    bool good = fts != NULL;

    errno = good ? 0 : errno;
    while (good && (entry = fts_read(fts)) != NULL)
        good = add_entry(list, entry, root, root_bytes);
    if (good && errno != 0) {
        cli_error("cannot read %s: %s", path, strerror(errno));
        good = false;
    }
    if (fts != NULL)
        fts_close(fts);
    return good;
}

static bool add_argument(struct file_list *list, const char *argument)
{
    size_t before = list->count;
    char *path = strdup(argument), *root;
    size_t bytes;
    bool good;

    if (path == NULL || path[0] == '\0') {
        cli_error("a file's name is empty");
        free(path);
        return false;
    }
    for (bytes = strlen(path); bytes > 1 && path[bytes - 1] == '/'; bytes--)
        path[bytes - 1] = '\0';
    root = absolute_root(path);
    if (root == NULL) {
        cli_error("cannot read %s: %s", path, strerror(errno));
        free(path);
        return false;
    }
    good = walk(list, path, root, strcmp(path, "/") == 0 ? 0 : bytes);
    if (good && list->count == before) {
        cli_error("%s has no files", path);
        good = false;
    }
    free(root);
    free(path);
    return good;
}

/* --- Naming --------------------------------------------------------------------------------------------- */

static int compare_names(const void *left, const void *right)
{
    const struct file *const *a = left, *const *b = right;

    return strcmp((*a)->name, (*b)->name);
}

/* Give every file of a run with the same name one more component. false: some are the same file. */
static bool lengthen(struct file **same, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (strcmp(same[i]->full, same[0]->full) == 0) {
            cli_error("%s is given twice", same[i]->path);
            return false;
        }
    }
    for (size_t i = 0; i < count; i++)
        same[i]->name = last_components(same[i]->full, ++same[i]->components);
    return true;
}

/* One pass over the sorted names. Returns how many files had a name that another has, or -1 after an error.
 */
static long lengthen_all(struct file **sorted, size_t count)
{
    long changed = 0;

    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && strcmp(sorted[end]->name, sorted[first]->name) == 0; end++)
            ;
        if (end - first == 1)
            continue;
        if (!lengthen(sorted + first, end - first))
            return -1;
        changed += (long)(end - first);
    }
    return changed;
}

static bool make_unique(struct file_list *list)
{
    struct file **sorted = calloc(list->count, sizeof(struct file *));
    long changed;

    if (sorted == NULL) {
        cli_error("out of memory");
        return false;
    }
    for (size_t i = 0; i < list->count; i++)
        sorted[i] = &list->files[i];
    do {
        qsort(sorted, list->count, sizeof(struct file *), compare_names);
        changed = lengthen_all(sorted, list->count);
    } while (changed > 0);
    free(sorted);
    return changed == 0;
}

bool files_expand(char *const *arguments, size_t count, struct file_list *list)
{
    *list = (struct file_list){0};
    for (size_t i = 0; i < count; i++) {
        if (!add_argument(list, arguments[i]))
            return false;
    }
    if (!make_unique(list))
        return false;
    for (size_t i = 0; i < list->count; i++) {
        if (!cli_check_name(list->files[i].path, list->files[i].name))
            return false;
    }
    return true;
}

void files_free(struct file_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->files[i].path);
        free(list->files[i].full);
    }
    free(list->files);
}

int files_open(const char *path)
{
    /* A FIFO would wait for its writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat status;

    if (fd < 0) {
        cli_error("cannot open %s: %s", path, strerror(errno));
        return -1;
    }
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        cli_error("%s is not a regular file", path);
        close(fd);
        return -1;
    }
    return fd;
}
