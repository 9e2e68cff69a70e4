/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "daemon/command/command.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/item.h"
#include "daemon/units.h"

/* How long one piece of 4 MiB may take the daemon to write: a disk can be slow without being broken. */
#define WRITE_SILENCE_MS 60000

/* A get on its way. Everything is written beside PATH under a name that nobody waits for, and renamed when it
 * is whole, so that PATH never holds a part. */
struct get {
    struct cli *cli;
    const char *path;
    bool replace; /* -f */
    char scratch[PATH_MAX];
    json_t *buffers; /* items of the daemon's reply to open */
    json_t *object;  /* its end */
    struct progress progress;
    uint64_t done; /* bytes of earlier requests */
};

/* --- Where it goes -------------------------------------------------------------------------------------- */

static bool fails(const char *verb, const char *path)
{
    cli_error("cannot %s %s: %s", verb, path, strerror(errno));
    return false;
}

/* -f is for files: a device, say, stays one, also when a link leads to it. */
static bool check_path(const struct get *get)
{
    struct stat status;

    if (lstat(get->path, &status) != 0)
        return errno == ENOENT || fails("look at", get->path);
    if (S_ISLNK(status.st_mode) && stat(get->path, &status) != 0)
        status.st_mode = S_IFREG; /* it leads nowhere: nothing but the link is lost */
    if (!S_ISREG(status.st_mode))
        cli_error("%s is there already, and no regular file: name a path that is free", get->path);
    else if (!get->replace)
        cli_error("%s is there already: name a path that is free, or replace the file with -f", get->path);
    return get->replace && S_ISREG(status.st_mode);
}

/* A template for mkstemp() and mkdtemp(), in the directory that PATH is in. */
static bool name_scratch(struct get *get)
{
    const char *slash = strrchr(get->path, '/');
    int directory = slash == NULL ? 0 : (int)(slash - get->path) + 1;
    int length = snprintf(get->scratch, sizeof(get->scratch), "%.*s.covey-get-XXXXXX", directory, get->path);

    if (length > 0 && (size_t)length < sizeof(get->scratch))
        return true;
    cli_error("the path is too long: %s", get->path);
    return false;
}

static mode_t current_umask(void)
{
    mode_t mask = umask(0);

    umask(mask);
    return mask;
}

/* Room on the disk is taken before bytes are written, where the file system can. */
static bool reserve(int fd, uint64_t bytes, const char *path)
{
    if (bytes == 0 || fallocate(fd, 0, 0, (off_t)bytes) == 0)
        return true;
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR)
        return true;
    cli_error("no room for %s at %s: %s", UNITS_BYTES(bytes), path, strerror(errno));
    return false;
}

/* --- The bytes ------------------------------------------------------------------------------------------ */

static void draw(void *context, uint64_t done, uint64_t total)
{
    struct get *get = context;

    (void)total;
    progress_draw(&get->progress, get->done + done, item_get_u64(get->object, "bytes"));
}

/* Have the daemon write buffers first.. into these files, and close them. */
static bool store(struct get *get, size_t first, int *descriptors, size_t count)
{
    const struct request request = {.kind = REQUEST_STORE, .first = first, .count = count};
    const struct cli_listener listener = {.progress = draw, .context = get};
    json_t *done = NULL;
    bool good = cli_ask(get->cli, &request, descriptors, count, &listener, &done);

    get->done += item_get_u64(done, "bytes");
    json_decref(done);
    for (size_t i = 0; i < count; i++) {
        if (close(descriptors[i]) != 0 && good)
            good = fails("write below", get->path);
    }
    return good;
}

static void close_all(const int *descriptors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        close(descriptors[i]);
}

/* --- One file ------------------------------------------------------------------------------------------- */

/* Give the finished file its name, without replacing another unless -f allows it. */
static bool publish_file(const struct get *get)
{
    if (get->replace)
        return rename(get->scratch, get->path) == 0 || fails("rename to", get->path);
    if (renameat2(AT_FDCWD, get->scratch, AT_FDCWD, get->path, RENAME_NOREPLACE) == 0)
        return true;
    if (errno != EINVAL && errno != ENOSYS)
        return fails("rename to", get->path);
    if (link(get->scratch, get->path) != 0)
        return fails("link to", get->path);
    unlink(get->scratch);
    return true;
}

static bool write_file(struct get *get)
{
    const json_t *buffer = json_array_get(get->buffers, 0);
    int fd = mkostemp(get->scratch, O_CLOEXEC);
    bool good;

    if (fd < 0)
        return fails("make a file beside", get->path);
    fchmod(fd, 0666 & ~current_umask());
    if (reserve(fd, item_get_u64(buffer, "bytes"), get->path)) {
        good = store(get, 0, &fd, 1);
    } else {
        close(fd);
        good = false;
    }
    if (good && publish_file(get))
        return true;
    unlink(get->scratch);
    return false;
}

/* --- A directory ---------------------------------------------------------------------------------------- */

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status, (void)type, (void)walk;
    return remove(path);
}

/* Names come from other hosts: none may lead out of the directory. */
static bool is_safe(const char *name)
{
    for (const char *part = name;; part += strcspn(part, "/") + 1) {
        size_t bytes = strcspn(part, "/");

        if (bytes == 0 || (bytes == 1 && part[0] == '.') || (bytes == 2 && strncmp(part, "..", 2) == 0))
            return false;
        if (part[bytes] == '\0')
            return true;
    }
}

/* Make the directories in which path, which is below scratch, is. */
static bool make_parents(const struct get *get, char *path)
{
    for (char *slash = strchr(path + strlen(get->scratch) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return fails("make the directory", path);
        *slash = '/';
    }
    return true;
}

/* The descriptor of the buffer's file, or -1 after an error. */
static int create_file(const struct get *get, const json_t *buffer)
{
    const char *name = item_get_text(buffer, "name");
    char path[PATH_MAX];
    int fd;

    if (!is_safe(name)) {
        cli_error("buffer %s cannot be a file: its name leads elsewhere", name);
        return -1;
    }
    if (snprintf(path, sizeof(path), "%s/%s", get->scratch, name) >= (int)sizeof(path)) {
        cli_error("the path of buffer %s is too long", name);
        return -1;
    }
    if (!make_parents(get, path))
        return -1;
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        cli_error("cannot make a file for buffer %s: %s", name, strerror(errno));
        return -1;
    }
    if (reserve(fd, item_get_u64(buffer, "bytes"), get->path))
        return fd;
    close(fd);
    return -1;
}

static bool write_batch(struct get *get, size_t first, size_t count)
{
    int descriptors[FRAME_DESCRIPTORS_MAX];

    for (size_t i = 0; i < count; i++) {
        descriptors[i] = create_file(get, json_array_get(get->buffers, first + i));
        if (descriptors[i] < 0) {
            close_all(descriptors, i);
            return false;
        }
    }
    return store(get, first, descriptors, count);
}

static bool write_batches(struct get *get)
{
    size_t count = json_array_size(get->buffers);

    for (size_t first = 0; first < count; first += FRAME_DESCRIPTORS_MAX) {
        size_t left = count - first;

        if (!write_batch(get, first, left < FRAME_DESCRIPTORS_MAX ? left : FRAME_DESCRIPTORS_MAX))
            return false;
    }
    return true;
}

static bool write_directory(struct get *get)
{
    if (mkdtemp(get->scratch) == NULL)
        return fails("make a directory beside", get->path);
    if (write_batches(get)) {
        chmod(get->scratch, 0777 & ~current_umask());
        if (rename(get->scratch, get->path) == 0)
            return true;
        fails("rename to", get->path);
    }
    nftw(get->scratch, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return false;
}

/* --- The command ---------------------------------------------------------------------------------------- */

static void keep_buffer(void *context, const json_t *item)
{
    struct get *get = context;

    json_array_append(get->buffers, (json_t *)(uintptr_t)item);
}

static void print_result(const struct get *get, double seconds)
{
    uint64_t bytes = item_get_u64(get->object, "bytes");

    if (get->cli->json) {
        json_object_set_new(get->object, "path", json_string(get->path));
        json_object_set_new(get->object, "seconds", json_real(seconds));
        cli_print_json(get->object);
        return;
    }
    printf("%s: %s in %s, version %" PRIu64 ", digest %s, in %s\n", get->path, UNITS_BYTES(bytes),
           UNITS_COUNT(item_get_u64(get->object, "buffers"), "buffer"), item_get_u64(get->object, "version"),
           item_get_text(get->object, "digest"), UNITS_SECONDS(seconds));
}

static int get_object(struct get *get, const struct request *request)
{
    const struct cli_listener listener = {.item = keep_buffer, .context = get};
    bool good;

    if (!check_path(get) || !name_scratch(get) ||
        !cli_ask(get->cli, request, NULL, 0, &listener, &get->object))
        return EXIT_FAILURE;
    if (get->replace && json_array_size(get->buffers) != 1) {
        cli_error("%s has %zu buffers, and -f is for one file", request->name, json_array_size(get->buffers));
        return EXIT_FAILURE;
    }
    cli_set_silence(get->cli, WRITE_SILENCE_MS);
    cli_catch_signals("interrupted: nothing was written");
    signal(SIGXFSZ, SIG_IGN);
    progress_init(&get->progress, request->name, get->cli->terminal && !get->cli->json);
    good = json_array_size(get->buffers) == 1 ? write_file(get) : write_directory(get);
    progress_clear(&get->progress);
    if (!good)
        return EXIT_FAILURE;
    print_result(get, progress_seconds(&get->progress));
    return EXIT_SUCCESS;
}

/* Returns -1 to go on, or the exit status. */
static int parse(struct get *get, struct request *request, const struct command *command, int argc,
                 char **argv)
{
    static const struct option options[] = {{"output", required_argument, NULL, 'o'},
                                            {"version", required_argument, NULL, 'v'},
                                            {"force", no_argument, NULL, 'f'},
                                            CLI_OPTIONS};
    int option, status;

    while ((option = getopt_long(argc, argv, "o:v:f", options, NULL)) != -1) {
        switch (option) {
        case 'o':
            get->path = optarg;
            break;
        case 'v':
            if (!units_parse_number(optarg, 1, INT64_MAX, &request->version))
                return cli_usage(command, "a version is a number from 1");
            break;
        case 'f':
            get->replace = true;
            break;
        default:
            status = cli_option(get->cli, command, option);
            if (status >= 0)
                return status;
        }
    }
    if (get->path == NULL || get->path[0] == '\0')
        return cli_usage(command, "-o PATH is missing");
    return cli_count(command, argc, 2, 2);
}

int command_get(struct cli *cli, const struct command *command, int argc, char **argv)
{
    struct get get = {.cli = cli};
    struct request request = {.kind = REQUEST_OPEN};
    int status = parse(&get, &request, command, argc, argv);

    if (status >= 0)
        return status;
    request.group = argv[optind];
    request.name = argv[optind + 1];
    if (!cli_check_name("GROUP", request.group) || !cli_check_name("NAME", request.name))
        return EXIT_FAILURE;
    get.buffers = json_array();
    status = get_object(&get, &request);
    json_decref(get.buffers);
    json_decref(get.object);
    return status;
}
