/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as a configuration file. What is refused has a reason, which is not libconfig's; what is taken
 * prints as a file that loads to the same options. Nothing of the host is touched. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int resolve(const char *name, struct address *address, struct fail *fail)
{
    if (strcmp(name, "localhost") != 0)
        return fail_set(fail, COVEY_NOT_FOUND, "unknown host");
    *address = (struct address){.v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)},
                                .bytes = sizeof(address->v4)};
    return 0;
}

static int addresses(struct address **list, size_t *count, struct fail *fail)
{
    struct address *loopback = calloc(1, sizeof(*loopback));

    if (loopback == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "out of memory");
    resolve("localhost", loopback, fail);
    *list = loopback;
    *count = 1;
    return 0;
}

static int read_file(const char *path, size_t max_bytes, char **bytes, size_t *count, struct stat *status,
                     struct fail *fail)
{
    static const char secret[] = "a secret that is long enough\n";
    char *copy = strdup(secret);

    (void)path;
    if (copy == NULL || max_bytes < strlen(secret))
        abort();
    *status = (struct stat){.st_mode = S_IFREG | 0600};
    *bytes = copy;
    *count = strlen(copy);
    (void)fail;
    return 0;
}

static const struct host nowhere = {resolve, addresses, read_file};

static void require(int holds, const char *what, const char *text)
{
    if (holds)
        return;
    fprintf(stderr, "%s:\n%s\n", what, text);
    abort();
}

static void check_errors(const char *errors)
{
    static const char begin[] = "fuzz.conf:", by_libconfig[] = ": syntax: libconfig says:";

    require(*errors != '\0', "refused without a reason", errors);
    for (const char *line = errors; *line != '\0'; line = strchr(line, '\n') + 1) {
        const char *number = line + strlen(begin);

        require(strncmp(line, begin, strlen(begin)) == 0, "a line without its file", errors);
        require(*number >= '1' && *number <= '9', "a line without its number", errors);
        number += strspn(number, "0123456789");
        require(strncmp(number, by_libconfig, strlen(by_libconfig)) != 0, "the scanner let it pass", errors);
        require(strchr(line, '\n') != NULL, "a line without its end", errors);
    }
}

static char *text_of(const struct covey_options *options)
{
    char *text;

    if (covey_options_text(options, &text) != 0)
        abort();
    return text;
}

static void check_options(const struct covey_options *options)
{
    struct covey_options *again = NULL;
    char *text = text_of(options), *text_again, *errors = NULL;
    int error =
        options_load_text("fuzz.conf", text, strlen(text), options->self.name, &nowhere, &again, &errors);

    require(error == 0, "its own text is refused", errors == NULL ? text : errors);
    text_again = text_of(again);
    require(strcmp(text, text_again) == 0, "its own text means something else", text);
    free(text);
    free(text_again);
    covey_options_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"n0", NULL};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct covey_options *options = NULL;
        char *errors = NULL;

        if (options_load_text("fuzz.conf", (const char *)data, size, names[i], &nowhere, &options, &errors) ==
            0)
            check_options(options);
        else
            check_errors(errors);
        covey_options_free(options);
        free(errors);
    }
    return 0;
}
