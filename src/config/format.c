/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>

#include "base/quantity.h"
#include "base/text.h"
#include "config/options.h"
#include "config/values.h"
#include "config/words.h"

/* The options as a file that loads to them again. */

/* Strings of the options have no control characters, so that these two are all that needs a backslash. */
static void append_string(struct text *text, const char *string)
{
    text_append_bytes(text, "\"", 1);
    for (; *string != '\0'; string++) {
        if (*string == '"' || *string == '\\')
            text_append_bytes(text, "\\", 1);
        text_append_bytes(text, string, 1);
    }
    text_append_bytes(text, "\"", 1);
}

static void append_key(struct text *text, const char *begin, const char *value)
{
    text_append(text, "%s", begin);
    append_string(text, value);
    text_append(text, ";\n");
}

static void append_cluster(struct text *text, const struct covey_options *options)
{
    struct quantity_text heartbeat, suspect, stall;

    append_key(text, "    name = ", options->cluster_name);
    text_append(text, "    insecure = %s;\n", options->insecure ? "true" : "false");
    append_key(text, "    quorum = ", quorum_words[options->quorum]);
    text_append(text, "    heartbeat = \"%s\";\n    suspect_after = \"%s\";\n    stall_after = \"%s\";\n",
                quantity_format_time(options->heartbeat_ns, &heartbeat),
                quantity_format_time(options->suspect_after_ns, &suspect),
                quantity_format_time(options->stall_after_ns, &stall));
}

static void append_node(struct text *text, const struct node_options *node)
{
    text_append(text, "{ id = %" PRIu32 "; name = ", node->id);
    append_string(text, node->name);
    text_append(text, "; address = ");
    append_string(text, node->address);
    text_append(text, "; }");
}

static void append_nodes(struct text *text, const struct covey_options *options)
{
    for (size_t i = 0; i < options->node_count; i++) {
        text_append(text, "    ");
        append_node(text, &options->nodes[i]);
        text_append(text, i + 1 < options->node_count ? ",\n" : "\n");
    }
}

static void append_members(struct text *text, const struct covey_options *options,
                           const struct group_options *group)
{
    if (group->all) {
        append_key(text, "      members = ", "all");
        return;
    }
    text_append(text, "      members = (");
    for (size_t i = 0; i < group->member_count; i++) {
        text_append(text, i == 0 ? " " : ", ");
        append_string(text, options_node(options, group->member_ids[i])->name);
    }
    text_append(text, " );\n");
}

static void append_memory(struct text *text, const struct group_options *group)
{
    const char *kind = group->memory == COVEY_MEMORY_HOST ? "host" : "cuda";

    if (group->device < 0)
        text_append(text, "      memory = \"%s\";\n", kind);
    else
        text_append(text, "      memory = \"%s:%d\";\n", kind, group->device);
}

static void append_group(struct text *text, const struct covey_options *options,
                         const struct group_options *group)
{
    size_t schedule = group->schedule_auto ? SCHEDULE_WORD_AUTO : (size_t)group->schedule;
    struct quantity_text size;

    append_key(text, "    { name = ", group->name);
    append_members(text, options, group);
    append_memory(text, group);
    text_append(text, "      budget = \"%s\";\n      keep_versions = %" PRIu32 ";\n",
                quantity_format_size(group->budget_bytes, &size), group->keep_versions);
    append_key(text, "      schedule = ", schedule_words[schedule]);
    text_append(text, "      block = \"%s\"; }",
                group->block_bytes == 0 ? "auto" : quantity_format_size(group->block_bytes, &size));
}

static void append_groups(struct text *text, const struct covey_options *options)
{
    for (size_t i = 0; i < options->group_count; i++) {
        append_group(text, options, &options->groups[i]);
        text_append(text, i + 1 < options->group_count ? ",\n" : "\n");
    }
}

static void append_own(struct text *text, const struct covey_options *options)
{
    if (!options->elastic)
        return;
    text_append(text, "node: ");
    append_node(text, &options->self);
    text_append(text, ";\n");
}

/* The path has its node's name in it already. */
static void append_control(struct text *text, const struct covey_options *options)
{
    struct text pattern = {0};
    char *bytes;

    for (const char *at = options->control_socket; *at != '\0'; at++) {
        if (*at == '%')
            text_append_bytes(&pattern, "%", 1);
        text_append_bytes(&pattern, at, 1);
    }
    bytes = text_take(&pattern);
    text->failed = text->failed || bytes == NULL;
    text_append(text, "control: { socket = ");
    append_string(text, bytes == NULL ? "" : bytes);
    text_append(text, "; };\n");
    free(bytes);
}

int covey_options_text(const struct covey_options *options, char **text)
{
    struct text whole = {0};
    struct quantity_text size;
    char *bytes;

    text_append(&whole, "cluster: {\n");
    append_cluster(&whole, options);
    if (options->secret_file != NULL)
        append_key(&whole, "    secret_file = ", options->secret_file);
    text_append(&whole, "};\nnodes: (\n");
    append_nodes(&whole, options);
    text_append(&whole, ");\n");
    append_own(&whole, options);
    text_append(&whole, "fabric: { provider = \"%s\"; };\ngroups: (\n", options->provider);
    append_groups(&whole, options);
    text_append(&whole, ");\nstaging: { size = \"%s\"; };\n",
                quantity_format_size(options->staging_bytes, &size));
    append_control(&whole, options);
    text_append(&whole, "log: { level = \"%s\"; };\n", level_words[options->log_level]);
    bytes = text_take(&whole);
    if (bytes == NULL)
        return COVEY_NO_MEMORY;
    *text = bytes;
    return 0;
}
