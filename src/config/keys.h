/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONFIG_KEYS_H
#define CONFIG_KEYS_H

/* Reading groups of settings by tables of keys: type, range and form of every value, unknown and missing
 * keys. A new key is a line in a table (draft.c). */

#include <libconfig.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "config/report.h"

struct key;
struct table;

struct reader {
    struct report *report;
    const struct table *root; /* to find where a misplaced key belongs */
};

/* What a person is told that a key wants. */
struct wish {
    char text[200];
};

struct kind {
    /* Check the setting and fill the key's part of the object in. */
    void (*read)(struct reader *reader, const config_setting_t *setting, const struct key *key, void *object);
    void (*wish)(const struct key *key, struct wish *wish);
};

extern const struct kind kind_integer; /* draft_number in min..max */
extern const struct kind kind_size;    /* draft_number: bytes in min..max */
extern const struct kind kind_power;   /* draft_number: a power of two in min..max; 0 for "auto" */
extern const struct kind kind_time;    /* draft_number: ns in min..max; integers are milliseconds */
extern const struct kind kind_boolean; /* draft_number: 0 or 1 */
extern const struct kind kind_choice;  /* draft_number: index in words */
extern const struct kind kind_string;  /* draft_string that passes check */
extern const struct kind kind_strings; /* draft_list of draft_string, or the word: no items */
extern const struct kind kind_group;   /* the table's struct, at offset */
extern const struct kind kind_groups;  /* draft_list of the table's struct */

struct key {
    const char *name;
    const struct kind *kind;
    size_t offset; /* in the object */
    bool required;
    uint64_t min, max;        /* of numbers; max of a list's entries */
    const char *const *words; /* NULL at the end */
    int (*check)(const char *bytes, size_t count, struct fail *fail);
    const char *wants; /* what a string should be */
    const struct table *table;
};

struct table {
    const struct key *keys; /* name NULL at the end */
    size_t bytes;           /* of the struct that it fills */
    size_t line;            /* offset of its `unsigned line` */
    void (*init)(void *object);
};

/* Read the group by the table. The object holds the defaults already. */
void keys_read(struct reader *reader, const config_setting_t *group, const struct table *table, void *object);

#endif
