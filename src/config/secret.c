/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/check.h"
#include "config/options.h"

static int check_owner(const struct stat *status, struct fail *fail)
{
    if (status->st_uid != geteuid() && status->st_uid != 0)
        return fail_set(fail, COVEY_CONFIG, "it belongs to user %lu; wants a file of user %lu or of root",
                        (unsigned long)status->st_uid, (unsigned long)geteuid());
    if ((status->st_mode & 077) != 0)
        return fail_set(fail, COVEY_CONFIG, "mode %04o lets others at it; wants mode 0600 (chmod 600)",
                        (unsigned)status->st_mode & 07777);
    return 0;
}

static int check_length(size_t count, struct fail *fail)
{
    if (count < OPTIONS_SECRET_MIN)
        return fail_set(fail, COVEY_CONFIG,
                        "it has %zu bytes; wants at least %d, as from `head -c 32 /dev/urandom | base64`",
                        count, OPTIONS_SECRET_MIN);
    if (count > OPTIONS_SECRET_MAX)
        return fail_set(fail, COVEY_CONFIG, "it has more than %d bytes; wants fewer", OPTIONS_SECRET_MAX);
    return 0;
}

static size_t without_line_end(const char *bytes, size_t count)
{
    if (count > 0 && bytes[count - 1] == '\n')
        count--;
    return count;
}

int secret_read(const char *path, const struct host *host, char **bytes, size_t *count, struct fail *fail)
{
    struct stat status;
    char *secret;
    size_t read;
    int error = host->read_file(path, OPTIONS_SECRET_MAX + 1, &secret, &read, &status, fail);

    if (error != 0) {
        fail_prefix(fail, "%s: ", QUOTE(path));
        return error == COVEY_NO_MEMORY ? error : COVEY_CONFIG;
    }
    *count = without_line_end(secret, read);
    error = check_owner(&status, fail);
    if (error == 0)
        error = check_length(*count, fail);
    if (error == 0) {
        *bytes = secret;
        return 0;
    }
    explicit_bzero(secret, read);
    free(secret);
    return fail_prefix(fail, "%s: ", QUOTE(path));
}
