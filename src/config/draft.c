/* SPDX-License-Identifier: BSD-3-Clause */
#include "config/draft.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <covey/covey.h>

#include "base/name.h"
#include "base/text.h"
#include "config/keys.h"
#include "config/scan.h"
#include "config/words.h"

#define MS             UINT64_C(1000000)
#define SECONDS        (1000 * MS)
#define MINUTES        (60 * SECONDS)
#define MIB            (UINT64_C(1) << 20)
#define GIB            (UINT64_C(1) << 30)
#define TIB            (UINT64_C(1) << 40)

#define GROUPS_MAX     1024
#define NODE_ID_MAX    65535
#define CUDA_DEVICES   256
#define PROVIDER_BYTES 64

/* --- Forms of strings ---------------------------------------------------------------------------------- */

int draft_parse_memory(const char *text, enum covey_memory *memory, int *device, struct fail *fail)
{
    const char *digits = text + strlen("cuda:");
    int number = 0;

    if (strcmp(text, "host") == 0 || strcmp(text, "cuda") == 0) {
        *memory = *text == 'h' ? COVEY_MEMORY_HOST : COVEY_MEMORY_CUDA;
        *device = -1;
        return 0;
    }
    if (strncmp(text, "cuda:", strlen("cuda:")) != 0)
        return fail_set(fail, COVEY_INVALID, "unknown kind of memory");
    if (*digits == '\0' || strspn(digits, "0123456789") != strlen(digits))
        return fail_set(fail, COVEY_INVALID, "the device after \"cuda:\" is not a number");
    for (; *digits != '\0' && number < CUDA_DEVICES; digits++)
        number = number * 10 + (*digits - '0');
    if (number >= CUDA_DEVICES)
        return fail_set(fail, COVEY_INVALID, "a device is 0 to %d", CUDA_DEVICES - 1);
    *memory = COVEY_MEMORY_CUDA;
    *device = number;
    return 0;
}

static int check_memory(const char *bytes, size_t count, struct fail *fail)
{
    enum covey_memory memory;
    int device;

    (void)count;
    return draft_parse_memory(bytes, &memory, &device, fail);
}

static int check_provider(const char *bytes, size_t count, struct fail *fail)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-;.";

    if (strcmp(bytes, "auto") == 0 || strcmp(bytes, "tcp") == 0 || strcmp(bytes, "verbs") == 0)
        return 0;
    if (strncmp(bytes, "ofi:", 4) != 0)
        return fail_set(fail, COVEY_INVALID, "unknown provider");
    if (count == 4 || count > 4 + PROVIDER_BYTES || strspn(bytes + 4, allowed) != count - 4)
        return fail_set(fail, COVEY_INVALID, "no name of a libfabric provider stands after \"ofi:\"");
    return 0;
}

static int check_path(const char *bytes, size_t count, struct fail *fail)
{
    if (bytes[0] != '/')
        return fail_set(fail, COVEY_INVALID, "the path is not absolute");
    if (count >= PATH_MAX)
        return fail_set(fail, COVEY_INVALID, "the path has more than %d bytes", PATH_MAX - 1);
    return 0;
}

static int check_socket(const char *bytes, size_t count, struct fail *fail)
{
    for (const char *at = strchr(bytes, '%'); at != NULL; at = strchr(at + 2, '%')) {
        if (at[1] != 'n' && at[1] != '%')
            return fail_set(fail, COVEY_INVALID,
                            "after %% stands neither n (the node's name) nor another %%");
    }
    return check_path(bytes, count, fail);
}

/* --- Tables -------------------------------------------------------------------------------------------- */

static const char *const all_word[] = {"all", NULL};

#define AT(type, member) .offset = offsetof(struct draft_##type, member)

static const struct key cluster_keys[] = {
    {"name", &kind_string, AT(cluster, name), .required = true, .check = name_check,
     .wants = "a name of 1 to 255 bytes, as \"demo\""},
    {"secret_file", &kind_string, AT(cluster, secret_file), .check = check_path,
     .wants = "the absolute path of a file, as \"/etc/covey/secret\""},
    {"insecure", &kind_boolean, AT(cluster, insecure)},
    {"quorum", &kind_choice, AT(cluster, quorum), .words = quorum_words},
    {"heartbeat", &kind_time, AT(cluster, heartbeat_ns), .min = 10 * MS, .max = 10 * SECONDS},
    {"suspect_after", &kind_time, AT(cluster, suspect_after_ns), .min = 20 * MS, .max = 10 * MINUTES},
    {"stall_after", &kind_time, AT(cluster, stall_after_ns), .min = 100 * MS, .max = 60 * MINUTES},
    {0},
};

static const struct key node_keys[] = {
    {"id", &kind_integer, AT(node, id), .required = true, .max = NODE_ID_MAX},
    {"name", &kind_string, AT(node, name), .required = true, .check = name_check_file,
     .wants = "a name of 1 to 255 bytes that may be part of a file's name, as \"n0\""},
    {"address", &kind_string, AT(node, address), .required = true, .wants = DRAFT_ADDRESS_WISH},
    {0},
};

static const struct key fabric_keys[] = {
    {"provider", &kind_string, AT(fabric, provider), .check = check_provider,
     .wants = "\"auto\", \"tcp\", \"verbs\" or \"ofi:\" and a libfabric provider"},
    {0},
};

static const struct key group_keys[] = {
    {"name", &kind_string, AT(group, name), .required = true, .check = name_check,
     .wants = "a name of 1 to 255 bytes, as \"models\""},
    {"members", &kind_strings, AT(group, members), .max = COVEY_MEMBERS_MAX, .words = all_word,
     .wants = "\"all\" or a list of node names, as ( \"n0\", \"n1\" )"},
    {"memory", &kind_string, AT(group, memory), .check = check_memory,
     .wants = "\"host\", \"cuda\" or \"cuda:\" and a device number"},
    {"budget", &kind_size, AT(group, budget_bytes), .min = MIB, .max = 1024 * TIB},
    {"keep_versions", &kind_integer, AT(group, keep_versions), .min = 1, .max = 1000},
    {"schedule", &kind_choice, AT(group, schedule), .words = schedule_words},
    {"block", &kind_power, AT(group, block_bytes), .min = SCHEDULE_BLOCK_MIN, .max = SCHEDULE_BLOCK_MAX},
    {0},
};

static const struct key staging_keys[] = {
    {"size", &kind_size, AT(staging, bytes), .min = MIB, .max = TIB},
    {0},
};

static const struct key control_keys[] = {
    {"socket", &kind_string, AT(control, socket), .check = check_socket,
     .wants = "the absolute path of a socket, as \"/run/covey/%n.sock\""},
    {0},
};

static const struct key log_keys[] = {
    {"level", &kind_choice, AT(log, level), .words = level_words},
    {0},
};

static void init_group(void *object)
{
    struct draft_group *group = object;

    group->budget_bytes.value = 8 * GIB;
    group->keep_versions.value = 2;
    group->schedule.value = SCHEDULE_WORD_AUTO;
}

#define TABLE(type, init)                                                                   \
    {                                                                                       \
        type##_keys, sizeof(struct draft_##type), offsetof(struct draft_##type, line), init \
    }

static const struct table cluster_table = TABLE(cluster, NULL);
static const struct table node_table = TABLE(node, NULL);
static const struct table fabric_table = TABLE(fabric, NULL);
static const struct table group_table = TABLE(group, init_group);
static const struct table staging_table = TABLE(staging, NULL);
static const struct table control_table = TABLE(control, NULL);
static const struct table log_table = TABLE(log, NULL);

static const struct key root_keys[] = {
    {"cluster", &kind_group, offsetof(struct draft, cluster), .required = true, .table = &cluster_table},
    {"nodes", &kind_groups, offsetof(struct draft, nodes), .required = true, .max = COVEY_MEMBERS_MAX,
     .table = &node_table},
    {"node", &kind_group, offsetof(struct draft, own), .table = &node_table},
    {"fabric", &kind_group, offsetof(struct draft, fabric), .table = &fabric_table},
    {"groups", &kind_groups, offsetof(struct draft, groups), .max = GROUPS_MAX, .table = &group_table},
    {"staging", &kind_group, offsetof(struct draft, staging), .table = &staging_table},
    {"control", &kind_group, offsetof(struct draft, control), .table = &control_table},
    {"log", &kind_group, offsetof(struct draft, log), .table = &log_table},
    {0},
};

static const struct table root_table = {root_keys, sizeof(struct draft), offsetof(struct draft, line), NULL};

/* --- The whole ----------------------------------------------------------------------------------------- */

static void init_draft(struct draft *draft)
{
    *draft = (struct draft){
        .cluster = {.heartbeat_ns.value = 100 * MS,
                    .suspect_after_ns.value = SECONDS,
                    .stall_after_ns.value = 10 * SECONDS},
        .staging.bytes.value = 256 * MIB,
        .log.level.value = COVEY_LOG_INFO,
    };
}

static bool parse_clean(struct draft *draft, const char *clean, struct report *report)
{
    struct reader reader = {.report = report, .root = &root_table};
    config_t config;
    bool good;

    config_init(&config);
    good = config_read_string(&config, clean) == CONFIG_TRUE;
    if (good)
        keys_read(&reader, config_root_setting(&config), &root_table, draft);
    else
        report_add(report, (unsigned)config_error_line(&config), "syntax: libconfig says: %s",
                   config_error_text(&config));
    config_destroy(&config);
    return good;
}

bool draft_parse(struct draft *draft, const char *bytes, size_t count, struct report *report)
{
    struct text clean = {0};
    bool good;

    init_draft(draft);
    good = scan_text(bytes, count, report, &clean) && parse_clean(draft, clean.bytes, report);
    text_fini(&clean);
    return good;
}

static void fini_node(struct draft_node *node)
{
    free(node->name.text);
    free(node->address.text);
}

static void fini_group(struct draft_group *group)
{
    for (size_t i = 0; i < group->members.count; i++)
        free(draft_member(group, i)->text);
    free(group->members.items);
    free(group->name.text);
    free(group->memory.text);
}

void draft_fini(struct draft *draft)
{
    for (size_t i = 0; i < draft->nodes.count; i++)
        fini_node(draft_node(draft, i));
    for (size_t i = 0; i < draft->groups.count; i++)
        fini_group(draft_group(draft, i));
    fini_node(&draft->own);
    free(draft->nodes.items);
    free(draft->groups.items);
    free(draft->cluster.name.text);
    free(draft->cluster.secret_file.text);
    free(draft->fabric.provider.text);
    free(draft->control.socket.text);
}
