/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/reload.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control/notify.h"
#include "daemon/logger.h"

/* A problem may be several lines. */
static void log_lines(const char *text)
{
    while (*text != '\0') {
        int bytes = (int)strcspn(text, "\n");

        logger_print(COVEY_LOG_ERROR, "reload: %.*s", bytes, text);
        text += bytes;
        text += *text == '\n';
    }
}

static void tell_manager_begin(void)
{
    struct timespec now;
    struct fail ignored = {0};

    clock_gettime(CLOCK_MONOTONIC, &now);
    notify_send(&ignored, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
                (uint64_t)now.tv_sec * 1000000U + (uint64_t)now.tv_nsec / 1000U);
}

static void tell_manager_end(void)
{
    struct fail ignored = {0};

    notify_send(&ignored, "READY=1");
}

/* A text whose last line ends without a newline, as every other message does. */
static char *copy_lines(const char *text)
{
    size_t bytes = strlen(text);

    return strndup(text, bytes > 0 && text[bytes - 1] == '\n' ? bytes - 1 : bytes);
}

static int read_again(struct server *server, char **problem)
{
    struct covey_options *options;
    int result = covey_options_load(server->config_path, server->node_name, &options);

    if (result != 0) {
        *problem = copy_lines(covey_options_error());
        return result;
    }
    result = covey_node_reload(server->node, options);
    if (result != 0)
        *problem = strdup(covey_error_detail(server->node));
    covey_options_free(options);
    return result;
}

int reload_server(struct server *server, char **problem)
{
    int result;

    pthread_mutex_lock(&server->reload_mutex);
    tell_manager_begin();
    result = read_again(server, problem);
    if (result == 0)
        logger_print(COVEY_LOG_INFO, "reloaded %s", server->config_path);
    else
        log_lines(*problem != NULL ? *problem : covey_strerror(result));
    tell_manager_end();
    pthread_mutex_unlock(&server->reload_mutex);
    return result;
}
