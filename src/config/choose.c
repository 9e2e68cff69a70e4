/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "config/check.h"
#include "config/values.h"

/* Names in a message about a long list. */
#define SHOWN_MAX 10

/* Whether every entry has what the choice looks at. */
static bool is_sound(const struct draft *draft)
{
    for (size_t i = 0; i < draft->nodes.count; i++) {
        if (draft_node(draft, i)->name.text == NULL || draft_node(draft, i)->resolved.bytes == 0)
            return false;
    }
    return draft->nodes.count > 0;
}

static void append_name(struct text *text, size_t index, const char *name)
{
    if (index < SHOWN_MAX)
        text_append(text, "%s%s", index == 0 ? "" : ", ", name);
    else if (index == SHOWN_MAX)
        text_append(text, ", ...");
}

static void complain(struct report *report, unsigned line, struct text *text)
{
    char *sentence = text_take(text);

    if (sentence == NULL)
        report->no_memory = true;
    else
        report_add(report, line, "%s", sentence);
    free(sentence);
}

static struct draft_node *choose_by_name(struct draft *draft, const char *name, struct report *report)
{
    struct text text = {0};

    for (size_t i = 0; i < draft->nodes.count; i++) {
        if (strcmp(draft_node(draft, i)->name.text, name) == 0)
            return draft_node(draft, i);
    }
    text_append(&text, "nodes: no node is called %s; listed are ", QUOTE(name));
    for (size_t i = 0; i < draft->nodes.count; i++)
        append_name(&text, i, draft_node(draft, i)->name.text);
    complain(report, draft->nodes.line, &text);
    return NULL;
}

/* The `node` block is this node; a name that was asked for must be its name. */
static struct draft_node *choose_own(struct draft *draft, const char *name, struct report *report)
{
    struct draft_node *own = &draft->own;

    if (own->name.text == NULL || own->resolved.bytes == 0)
        return NULL;
    if (name == NULL || strcmp(name, own->name.text) == 0)
        return own;
    report_add(
        report, own->name.line,
        "node.name: the file's own node is %s, but %s was asked for; ask for the one, or remove the block",
        QUOTE(own->name.text), QUOTE(name));
    return NULL;
}

static bool is_of_host(const struct address *address, const struct address *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        /* All of 127.0.0.0/8 is this host's, although the interface has one address. */
        if (address_same_host(address, &list[i]) ||
            (address_is_loopback(address) && address_is_loopback(&list[i]) &&
             address->any.sa_family == list[i].any.sa_family))
            return true;
    }
    return false;
}

static struct draft_node *choose_among(struct draft *draft, const struct address *list, size_t count,
                                       struct report *report)
{
    struct draft_node *chosen = NULL;
    struct text names = {0}, text = {0};
    size_t matches = 0;

    for (size_t i = 0; i < draft->nodes.count; i++) {
        struct draft_node *node = draft_node(draft, i);

        if (is_of_host(&node->resolved, list, count)) {
            append_name(&names, matches++, node->name.text);
            chosen = node;
        }
    }
    if (matches != 1) {
        if (matches == 0)
            text_append(&text, "nodes: no node has an address of this host");
        else
            text_append(&text, "nodes: %zu nodes have an address of this host (%s)", matches,
                        names.bytes == NULL ? "" : names.bytes);
        text_append(&text, "; say which one it is (coveyd -n NAME). Addresses of this host: ");
        for (size_t i = 0; i < count; i++)
            append_name(&text, i, address_format(&list[i], &(struct address_text){{0}}));
        complain(report, draft->nodes.line, &text);
        chosen = NULL;
    }
    text_fini(&names);
    return chosen;
}

static struct draft_node *choose_by_address(struct draft *draft, const struct host *host,
                                            struct report *report)
{
    struct address *list;
    size_t count;
    struct fail fail;
    struct draft_node *chosen;

    if (host->addresses(&list, &count, &fail) != 0) {
        report_add(report, draft->nodes.line,
                   "nodes: the addresses of this host cannot be read (%s); say which "
                   "node it is (coveyd -n NAME)",
                   fail.text);
        return NULL;
    }
    chosen = choose_among(draft, list, count, report);
    free(list);
    return chosen;
}

struct draft_node *draft_choose(struct draft *draft, const char *name, const struct host *host,
                                struct report *report)
{
    if (draft->own.line != 0)
        return choose_own(draft, name, report);
    if (!is_sound(draft))
        return NULL;
    return name != NULL ? choose_by_name(draft, name, report) : choose_by_address(draft, host, report);
}
