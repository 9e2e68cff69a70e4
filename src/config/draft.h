/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONFIG_DRAFT_H
#define CONFIG_DRAFT_H

/* A configuration as its file has it: every value well-formed by itself, with the line that it comes from, in
 * the file's order. What the values mean together is not looked at here (see check.h). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <covey/covey.h>

#include "config/host.h"
#include "config/report.h"

struct draft_number {
    uint64_t value; /* the default while the file has none */
    unsigned line;  /* 0: not in the file */
    bool wrong;     /* in the file and refused: reported already */
};

struct draft_string {
    char *text;    /* NULL: not in the file, or refused */
    unsigned line; /* 0: not in the file */
};

struct draft_list {
    void *items; /* `count` structs, see draft_node() and draft_group() */
    size_t count;
    unsigned line; /* 0: not in the file */
};

struct draft_node {
    unsigned line;
    struct draft_number id;
    struct draft_string name, address;
    struct address resolved; /* by draft_check(); bytes 0: not */
};

/* What an address should be, for messages. */
#define DRAFT_ADDRESS_WISH     "an address with a port, as \"10.0.0.1:7400\" or \"[2001:db8::1]:7400\""

#define DRAFT_PROVIDER_DEFAULT "auto"
#define DRAFT_SOCKET_DEFAULT   "/run/covey/%n.sock"

struct draft_group {
    unsigned line;
    struct draft_string name;
    struct draft_list members; /* struct draft_string; no items: all */
    struct draft_string memory;
    struct draft_number budget_bytes, keep_versions;
    struct draft_number schedule;    /* enum schedule_kind, or SCHEDULE_WORD_AUTO */
    struct draft_number block_bytes; /* 0: auto */
};

struct draft_cluster {
    unsigned line; /* 0: not in the file */
    struct draft_string name, secret_file;
    struct draft_number insecure, quorum, heartbeat_ns, suspect_after_ns, stall_after_ns;
};

struct draft_fabric {
    unsigned line;
    struct draft_string provider;
};

struct draft_staging {
    unsigned line;
    struct draft_number bytes;
};

struct draft_control {
    unsigned line;
    struct draft_string socket; /* with %n */
};

struct draft_log {
    unsigned line;
    struct draft_number level;
};

struct draft {
    unsigned line;
    struct draft_cluster cluster;
    struct draft_list nodes;
    struct draft_node own; /* the `node` block */
    struct draft_fabric fabric;
    struct draft_list groups;
    struct draft_staging staging;
    struct draft_control control;
    struct draft_log log;
};

/* The form of a group's memory: "host", "cuda" (device -1), "cuda:0". COVEY_INVALID and what is wrong. */
int draft_parse_memory(const char *text, enum covey_memory *memory, int *device, struct fail *fail);

/* Fill *draft from the text of a file; what is wrong goes to the report. Returns whether the text could be
 * read at all: if not, *draft has nothing but defaults. draft_fini() in any case. */
bool draft_parse(struct draft *draft, const char *bytes, size_t count, struct report *report);
void draft_fini(struct draft *draft);

static inline struct draft_node *draft_node(const struct draft *draft, size_t index)
{
    return (struct draft_node *)draft->nodes.items + index;
}

/* The nodes of the list, and past them the `node` block if there is one: all that share the id, name and
 * address space. */
static inline size_t draft_entries(const struct draft *draft)
{
    return draft->nodes.count + (draft->own.line != 0);
}

static inline struct draft_node *draft_entry(struct draft *draft, size_t index)
{
    return index < draft->nodes.count ? draft_node(draft, index) : &draft->own;
}

static inline struct draft_group *draft_group(const struct draft *draft, size_t index)
{
    return (struct draft_group *)draft->groups.items + index;
}

static inline struct draft_string *draft_member(const struct draft_group *group, size_t index)
{
    return (struct draft_string *)group->members.items + index;
}

#endif
