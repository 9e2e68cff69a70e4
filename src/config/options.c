/* SPDX-License-Identifier: BSD-3-Clause */
#include "config/options.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "config/load.h"

/* --- The last error of a thread ------------------------------------------------------------------------ */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t last_error; /* of the calling thread: a text to free */
static bool has_last_error;      /* the key could be made */

static void make_key(void)
{
    has_last_error = pthread_key_create(&last_error, free) == 0;
}

/* Takes the text. */
static void keep_error(char *text)
{
    pthread_once(&once, make_key);
    if (!has_last_error) {
        free(text);
        return;
    }
    free(pthread_getspecific(last_error));
    if (pthread_setspecific(last_error, text) != 0)
        free(text);
}

const char *covey_options_error(void)
{
    const char *text;

    pthread_once(&once, make_key);
    text = has_last_error ? pthread_getspecific(last_error) : NULL;
    return text == NULL ? "" : text;
}

int covey_options_load(const char *path, const char *node_name, struct covey_options **options)
{
    char *errors = NULL;
    int error = COVEY_INVALID;

    if (path != NULL && options != NULL)
        error = options_load_file(path, node_name, &host_here, options, &errors);
    keep_error(errors);
    return error;
}

/* --- Reading ------------------------------------------------------------------------------------------- */

bool options_group_selects(const struct group_options *group, uint32_t node_id)
{
    size_t low = 0, high = group->member_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (group->member_ids[middle] < node_id)
            low = middle + 1;
        else
            high = middle;
    }
    return group->all || (low < group->member_count && group->member_ids[low] == node_id);
}

const struct node_options *options_node(const struct covey_options *options, uint32_t id)
{
    for (size_t i = 0; i < options->node_count; i++) {
        if (options->nodes[i].id == id)
            return &options->nodes[i];
    }
    return NULL;
}

const char *covey_options_node_name(const struct covey_options *options)
{
    return options->self.name;
}

const char *covey_options_control_socket(const struct covey_options *options)
{
    return options->control_socket;
}

enum covey_log_level covey_options_log_level(const struct covey_options *options)
{
    return options->log_level;
}

size_t covey_options_group_count(const struct covey_options *options)
{
    size_t count = 0;

    for (size_t i = 0; i < options->group_count; i++)
        count += options_group_selects(&options->groups[i], options->self.id);
    return count;
}

const char *covey_options_group_name(const struct covey_options *options, size_t index)
{
    for (size_t i = 0; i < options->group_count; i++) {
        if (options_group_selects(&options->groups[i], options->self.id) && index-- == 0)
            return options->groups[i].name;
    }
    return NULL;
}

/* --- Copying and freeing ------------------------------------------------------------------------------- */

/* Replace *text, which points into the original, by a copy. *good becomes false without memory. */
static void own_text(char **text, bool *good)
{
    if (*text == NULL)
        return;
    *text = strdup(*text);
    *good = *good && *text != NULL;
}

/* A copy of an array. Its count becomes 0 if that fails, so that nothing of the original is freed. */
static void *copy_array(const void *array, size_t *count, size_t bytes, bool *good)
{
    void *copy;

    if (*count == 0)
        return NULL;
    copy = malloc(*count * bytes);
    if (copy != NULL) {
        memcpy(copy, array, *count * bytes);
    } else {
        *count = 0;
        *good = false;
    }
    return copy;
}

static void own_node(struct node_options *node, bool *good)
{
    own_text(&node->name, good);
    own_text(&node->address, good);
}

static void own_group(struct group_options *group, bool *good)
{
    own_text(&group->name, good);
    group->member_ids = copy_array(group->member_ids, &group->member_count, sizeof(*group->member_ids), good);
}

struct covey_options *options_copy(const struct covey_options *options)
{
    struct covey_options *copy = malloc(sizeof(*copy));
    bool good = true;

    if (copy == NULL)
        return NULL;
    *copy = *options;
    own_text(&copy->path, &good);
    own_text(&copy->cluster_name, &good);
    own_text(&copy->secret_file, &good);
    copy->secret = copy_array(copy->secret, &copy->secret_bytes, 1, &good);
    copy->nodes = copy_array(copy->nodes, &copy->node_count, sizeof(*copy->nodes), &good);
    for (size_t i = 0; i < copy->node_count; i++)
        own_node(&copy->nodes[i], &good);
    own_node(&copy->self, &good);
    own_text(&copy->provider, &good);
    copy->groups = copy_array(copy->groups, &copy->group_count, sizeof(*copy->groups), &good);
    for (size_t i = 0; i < copy->group_count; i++)
        own_group(&copy->groups[i], &good);
    own_text(&copy->control_socket, &good);
    if (good)
        return copy;
    covey_options_free(copy);
    return NULL;
}

static void free_node(struct node_options *node)
{
    free(node->name);
    free(node->address);
}

void covey_options_free(struct covey_options *options)
{
    if (options == NULL)
        return;
    if (options->secret != NULL)
        explicit_bzero(options->secret, options->secret_bytes);
    for (size_t i = 0; i < options->node_count; i++)
        free_node(&options->nodes[i]);
    for (size_t i = 0; i < options->group_count; i++) {
        free(options->groups[i].name);
        free(options->groups[i].member_ids);
    }
    free_node(&options->self);
    free(options->path);
    free(options->cluster_name);
    free(options->secret_file);
    free(options->secret);
    free(options->nodes);
    free(options->provider);
    free(options->groups);
    free(options->control_socket);
    free(options);
}
