/* SPDX-License-Identifier: BSD-3-Clause */
#include "config/load.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "config/check.h"
#include "config/draft.h"
#include "config/words.h"

/* A copy of text; NULL for NULL. The report says if there is no memory for it. */
static char *copy_text(const char *text, struct report *report)
{
    char *copy = text == NULL ? NULL : strdup(text);

    if (text != NULL && copy == NULL)
        report->no_memory = true;
    return copy;
}

/* --- From draft to options ----------------------------------------------------------------------------- */

static void fill_cluster(struct covey_options *options, const struct draft_cluster *cluster,
                         struct report *report)
{
    options->cluster_name = copy_text(cluster->name.text, report);
    options->secret_file = copy_text(cluster->secret_file.text, report);
    options->insecure = cluster->insecure.value != 0;
    options->quorum = (enum quorum_rule)cluster->quorum.value;
    options->heartbeat_ns = cluster->heartbeat_ns.value;
    options->suspect_after_ns = cluster->suspect_after_ns.value;
    options->stall_after_ns = cluster->stall_after_ns.value;
}

static void fill_node(struct node_options *node, const struct draft_node *draft, struct report *report)
{
    node->id = (uint32_t)draft->id.value;
    node->name = copy_text(draft->name.text, report);
    node->address = copy_text(draft->address.text, report);
    node->sockaddr = draft->resolved.storage;
    node->sockaddr_bytes = draft->resolved.bytes;
}

static int compare_ids(const void *left, const void *right)
{
    uint32_t a = ((const struct node_options *)left)->id, b = ((const struct node_options *)right)->id;

    return (a > b) - (a < b);
}

static void fill_nodes(struct covey_options *options, const struct draft *draft, struct report *report)
{
    options->nodes = calloc(draft->nodes.count, sizeof(*options->nodes));
    if (options->nodes == NULL) {
        report->no_memory = true;
        return;
    }
    options->node_count = draft->nodes.count;
    for (size_t i = 0; i < draft->nodes.count; i++)
        fill_node(&options->nodes[i], draft_node(draft, i), report);
    qsort(options->nodes, options->node_count, sizeof(*options->nodes), compare_ids);
}

/* The id of the node called name, which draft_check() has found to be there. */
static uint32_t id_of(const struct draft *draft, const char *name)
{
    size_t i = 0;

    while (strcmp(draft_node(draft, i)->name.text, name) != 0)
        i++;
    return (uint32_t)draft_node(draft, i)->id.value;
}

static int compare_numbers(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

    return (a > b) - (a < b);
}

static void fill_members(struct group_options *group, const struct draft_group *from,
                         const struct draft *draft, struct report *report)
{
    group->all = from->members.items == NULL;
    if (group->all)
        return;
    group->member_ids = calloc(from->members.count, sizeof(*group->member_ids));
    if (group->member_ids == NULL) {
        report->no_memory = true;
        return;
    }
    group->member_count = from->members.count;
    for (size_t i = 0; i < group->member_count; i++)
        group->member_ids[i] = id_of(draft, draft_member(from, i)->text);
    qsort(group->member_ids, group->member_count, sizeof(*group->member_ids), compare_numbers);
}

static void fill_group(struct group_options *group, const struct draft_group *from, const struct draft *draft,
                       struct report *report)
{
    struct fail fail;

    group->name = copy_text(from->name.text, report);
    group->device = -1;
    if (from->memory.text != NULL)
        draft_parse_memory(from->memory.text, &group->memory, &group->device, &fail);
    group->budget_bytes = from->budget_bytes.value;
    group->keep_versions = (uint32_t)from->keep_versions.value;
    group->schedule_auto = from->schedule.value == SCHEDULE_WORD_AUTO;
    if (!group->schedule_auto)
        group->schedule = (enum schedule_kind)from->schedule.value;
    group->block_bytes = from->block_bytes.value;
    fill_members(group, from, draft, report);
}

static void fill_groups(struct covey_options *options, const struct draft *draft, struct report *report)
{
    if (draft->groups.count == 0)
        return;
    options->groups = calloc(draft->groups.count, sizeof(*options->groups));
    if (options->groups == NULL) {
        report->no_memory = true;
        return;
    }
    options->group_count = draft->groups.count;
    for (size_t i = 0; i < options->group_count; i++)
        fill_group(&options->groups[i], draft_group(draft, i), draft, report);
}

static void fill_socket(struct covey_options *options, const struct draft *draft, struct report *report)
{
    struct text path = {0};

    socket_append(&path, draft_socket_pattern(draft), options->self.name);
    options->control_socket = text_take(&path);
    if (options->control_socket == NULL)
        report->no_memory = true;
}

/* The draft has no mistakes. NULL without memory, which the report says. */
static struct covey_options *build_options(const char *path, const struct draft *draft,
                                           const struct draft_node *self, struct report *report)
{
    struct covey_options *options = calloc(1, sizeof(*options));

    if (options == NULL) {
        report->no_memory = true;
        return NULL;
    }
    options->path = copy_text(path, report);
    fill_cluster(options, &draft->cluster, report);
    fill_nodes(options, draft, report);
    fill_node(&options->self, self, report);
    options->elastic = self == &draft->own;
    options->provider = copy_text(
        draft->fabric.provider.text == NULL ? DRAFT_PROVIDER_DEFAULT : draft->fabric.provider.text, report);
    fill_groups(options, draft, report);
    options->staging_bytes = draft->staging.bytes.value;
    options->log_level = (enum covey_log_level)draft->log.level.value;
    if (options->self.name != NULL)
        fill_socket(options, draft, report);
    if (report_is_clean(report))
        return options;
    covey_options_free(options);
    return NULL;
}

/* --- Loading ------------------------------------------------------------------------------------------- */

struct secret {
    char *bytes;
    size_t count;
};

static void load_secret(const struct draft *draft, const struct host *host, struct secret *secret,
                        struct report *report)
{
    const struct draft_string *file = &draft->cluster.secret_file;
    struct fail fail;

    if (file->text == NULL)
        return;
    switch (secret_read(file->text, host, &secret->bytes, &secret->count, &fail)) {
    case 0:
        return;
    case COVEY_NO_MEMORY:
        report->no_memory = true;
        return;
    default:
        report_add(report, file->line, "cluster.secret_file: %s", fail.text);
    }
}

static struct covey_options *load_draft(const char *path, struct draft *draft, const char *node_name,
                                        const struct host *host, struct report *report)
{
    struct covey_options *options = NULL;
    struct secret secret = {0};
    const struct draft_node *self;

    draft_check(draft, host, report);
    self = draft_choose(draft, node_name, host, report);
    load_secret(draft, host, &secret, report);
    if (report_is_clean(report)) {
        assert(self != NULL);
        options = build_options(path, draft, self, report);
    }
    if (options != NULL) {
        options->secret = (uint8_t *)secret.bytes;
        options->secret_bytes = secret.count;
    } else if (secret.bytes != NULL) {
        explicit_bzero(secret.bytes, secret.count);
        free(secret.bytes);
    }
    return options;
}

/* Turn what the report says into the result. */
static int finish(struct report *report, struct covey_options *loaded, struct covey_options **options,
                  char **errors)
{
    char *text;

    if (loaded != NULL) {
        *options = loaded;
        return 0;
    }
    text = report_text(report);
    if (text == NULL)
        return COVEY_NO_MEMORY;
    *errors = text;
    return COVEY_CONFIG;
}

int options_load_text(const char *path, const char *bytes, size_t count, const char *node_name,
                      const struct host *host, struct covey_options **options, char **errors)
{
    struct covey_options *loaded = NULL;
    struct report report;
    struct draft draft;
    int error;

    report_init(&report, path);
    if (draft_parse(&draft, bytes, count, &report))
        loaded = load_draft(path, &draft, node_name, host, &report);
    error = finish(&report, loaded, options, errors);
    draft_fini(&draft);
    report_fini(&report);
    return error;
}

static int refuse_file(const char *path, const struct fail *fail, char **errors)
{
    struct report report;
    int error;

    if (fail->code == COVEY_NO_MEMORY)
        return COVEY_NO_MEMORY;
    report_init(&report, path);
    report_add(&report, 0, "the configuration cannot be read: %s", fail->text);
    error = finish(&report, NULL, NULL, errors);
    report_fini(&report);
    return error;
}

int options_load_file(const char *path, const char *node_name, const struct host *host,
                      struct covey_options **options, char **errors)
{
    struct stat status;
    struct fail fail;
    size_t count;
    char *bytes;
    int error;

    if (host->read_file(path, OPTIONS_FILE_MAX, &bytes, &count, &status, &fail) != 0)
        return refuse_file(path, &fail, errors);
    error = options_load_text(path, bytes, count, node_name, host, options, errors);
    free(bytes);
    return error;
}
