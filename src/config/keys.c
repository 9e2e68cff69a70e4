/* SPDX-License-Identifier: BSD-3-Clause */
#include "config/keys.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/name.h"
#include "base/quantity.h"
#include "base/text.h"
#include "config/draft.h"
#include "config/values.h"

#define NS_PER_MS UINT64_C(1000000)

/* --- Words for messages -------------------------------------------------------------------------------- */

static void append_path(struct text *text, const config_setting_t *setting)
{
    const config_setting_t *parent = config_setting_parent(setting);

    if (parent == NULL)
        return;
    append_path(text, parent);
    if (config_setting_name(setting) != NULL)
        text_append(text, "%s%.64s", text->length == 0 ? "" : ".", config_setting_name(setting));
    else
        text_append(text, "[%d]", config_setting_index(setting));
}

/* Report "PATH[.MEMBER]: SENTENCE" at the setting's line. */
__attribute__((format(printf, 4, 5))) static void
complain(struct reader *reader, const config_setting_t *setting, const char *member, const char *format, ...)
{
    unsigned line = config_setting_source_line(setting);
    struct text text = {0};
    char *sentence;
    va_list args;

    append_path(&text, setting);
    if (member != NULL)
        text_append(&text, "%s%s", text.length == 0 ? "" : ".", member);
    text_append(&text, ": ");
    va_start(args, format);
    text_append_list(&text, format, args);
    va_end(args);
    sentence = text_take(&text);
    if (sentence == NULL)
        reader->report->no_memory = true;
    else
        report_add(reader->report, line == 0 ? 1 : line, "%s", sentence);
    free(sentence);
}

struct found {
    char text[300];
};

/* What the setting holds, as in "found the integer 5". */
static const char *describe(const config_setting_t *setting, struct found *found)
{
    long long number;

    switch (config_setting_type(setting)) {
    case CONFIG_TYPE_INT64:
        number = config_setting_get_int64(setting);
        if (number == INT64_MAX || number == INT64_MIN)
            return "an integer of more than 64 bits";
        snprintf(found->text, sizeof(found->text), "the integer %lld", number);
        return found->text;
    case CONFIG_TYPE_STRING:
        snprintf(found->text, sizeof(found->text), "the string %s",
                 QUOTE(config_setting_get_string(setting)));
        return found->text;
    case CONFIG_TYPE_FLOAT:
        return "a floating-point number";
    case CONFIG_TYPE_BOOL:
        return config_setting_get_bool(setting) ? "the boolean true" : "the boolean false";
    case CONFIG_TYPE_GROUP:
        return "a group { }";
    case CONFIG_TYPE_LIST:
        return config_setting_length(setting) == 0 ? "an empty list ( )" : "a list ( )";
    case CONFIG_TYPE_ARRAY:
        return config_setting_length(setting) == 0 ? "an empty array [ ]" : "an array [ ]";
    default:
        return "something else";
    }
}

/* "PATH: CLAIM; wants WISH" */
static void refuse_value(struct reader *reader, const config_setting_t *setting, const struct key *key,
                         const char *claim)
{
    struct wish wish;

    key->kind->wish(key, &wish);
    complain(reader, setting, NULL, "%s; wants %s", claim, wish.text);
}

static void refuse_type(struct reader *reader, const config_setting_t *setting, const struct key *key)
{
    struct found found;
    struct wish wish;

    key->kind->wish(key, &wish);
    complain(reader, setting, NULL, "wants %s, found %s", wish.text, describe(setting, &found));
}

static void refuse_range(struct reader *reader, const config_setting_t *setting, const struct key *key)
{
    struct found found;
    struct wish wish;

    key->kind->wish(key, &wish);
    complain(reader, setting, NULL, "%s is out of range; wants %s", describe(setting, &found), wish.text);
}

/* --- Numbers ------------------------------------------------------------------------------------------- */

static struct draft_number *number_of(const struct key *key, void *object)
{
    return (struct draft_number *)((char *)object + key->offset);
}

/* The scanner gives every integer its L. */
static bool is_integer(const config_setting_t *setting)
{
    return config_setting_type(setting) == CONFIG_TYPE_INT64;
}

static bool is_string(const config_setting_t *setting)
{
    return config_setting_type(setting) == CONFIG_TYPE_STRING;
}

static bool in_range(const struct key *key, uint64_t value)
{
    return value >= key->min && value <= key->max;
}

/* The number is known to be there; `wrong` until set_number() says otherwise. */
static struct draft_number *begin_number(const config_setting_t *setting, const struct key *key, void *object)
{
    struct draft_number *number = number_of(key, object);

    number->line = config_setting_source_line(setting);
    number->wrong = true;
    return number;
}

static void set_number(struct draft_number *number, uint64_t value)
{
    number->value = value;
    number->wrong = false;
}

static void read_integer(struct reader *reader, const config_setting_t *setting, const struct key *key,
                         void *object)
{
    struct draft_number *number = begin_number(setting, key, object);
    long long value = config_setting_get_int64(setting);

    if (!is_integer(setting))
        refuse_type(reader, setting, key);
    else if (value < 0 || !in_range(key, (uint64_t)value))
        refuse_range(reader, setting, key);
    else
        set_number(number, (uint64_t)value);
}

static void wish_integer(const struct key *key, struct wish *wish)
{
    snprintf(wish->text, sizeof(wish->text), "an integer from %" PRIu64 " to %" PRIu64, key->min, key->max);
}

/* A string with a unit, read by parse, or an integer in `factor`. Returns whether *value was set; complains
 * if not. The range is not looked at. */
static bool read_quantity(struct reader *reader, const config_setting_t *setting, const struct key *key,
                          int (*parse)(const char *, uint64_t *, struct fail *), uint64_t factor,
                          uint64_t *value)
{
    struct fail fail;
    long long number;

    if (is_string(setting)) {
        if (parse(config_setting_get_string(setting), value, &fail) == 0)
            return true;
        refuse_value(reader, setting, key, fail.text);
        return false;
    }
    if (!is_integer(setting)) {
        refuse_type(reader, setting, key);
        return false;
    }
    number = config_setting_get_int64(setting);
    if (number < 0 || (uint64_t)number > (uint64_t)INT64_MAX / factor) {
        refuse_range(reader, setting, key);
        return false;
    }
    *value = (uint64_t)number * factor;
    return true;
}

static void read_size(struct reader *reader, const config_setting_t *setting, const struct key *key,
                      void *object)
{
    struct draft_number *number = begin_number(setting, key, object);
    uint64_t bytes;

    if (!read_quantity(reader, setting, key, quantity_parse_size, 1, &bytes))
        return;
    if (in_range(key, bytes))
        set_number(number, bytes);
    else
        refuse_range(reader, setting, key);
}

static void wish_size(const struct key *key, struct wish *wish)
{
    struct quantity_text min, max;

    snprintf(wish->text, sizeof(wish->text),
             "a size from %s to %s, in quotes with its unit or an integer of bytes",
             quantity_format_size(key->min, &min), quantity_format_size(key->max, &max));
}

static void read_power(struct reader *reader, const config_setting_t *setting, const struct key *key,
                       void *object)
{
    struct draft_number *number = begin_number(setting, key, object);
    uint64_t bytes;

    if (is_string(setting) && strcmp(config_setting_get_string(setting), "auto") == 0) {
        set_number(number, 0);
        return;
    }
    if (!read_quantity(reader, setting, key, quantity_parse_size, 1, &bytes))
        return;
    if (!in_range(key, bytes))
        refuse_range(reader, setting, key);
    else if ((bytes & (bytes - 1)) != 0)
        refuse_value(reader, setting, key, "it is not a power of two");
    else
        set_number(number, bytes);
}

static void wish_power(const struct key *key, struct wish *wish)
{
    struct quantity_text min, max;

    snprintf(wish->text, sizeof(wish->text), "\"auto\" or a size that is a power of two from %s to %s",
             quantity_format_size(key->min, &min), quantity_format_size(key->max, &max));
}

static void read_time(struct reader *reader, const config_setting_t *setting, const struct key *key,
                      void *object)
{
    struct draft_number *number = begin_number(setting, key, object);
    uint64_t ns;

    if (!read_quantity(reader, setting, key, quantity_parse_time, NS_PER_MS, &ns))
        return;
    if (in_range(key, ns))
        set_number(number, ns);
    else
        refuse_range(reader, setting, key);
}

static void wish_time(const struct key *key, struct wish *wish)
{
    struct quantity_text min, max;

    snprintf(wish->text, sizeof(wish->text),
             "a time from %s to %s, in quotes with its unit or an integer of milliseconds",
             quantity_format_time(key->min, &min), quantity_format_time(key->max, &max));
}

static void read_boolean(struct reader *reader, const config_setting_t *setting, const struct key *key,
                         void *object)
{
    struct draft_number *number = begin_number(setting, key, object);

    if (config_setting_type(setting) != CONFIG_TYPE_BOOL)
        refuse_type(reader, setting, key);
    else
        set_number(number, config_setting_get_bool(setting) != 0);
}

static void wish_boolean(const struct key *key, struct wish *wish)
{
    (void)key;
    snprintf(wish->text, sizeof(wish->text), "true or false");
}

static void read_choice(struct reader *reader, const config_setting_t *setting, const struct key *key,
                        void *object)
{
    struct draft_number *number = begin_number(setting, key, object);

    for (size_t i = 0; is_string(setting) && key->words[i] != NULL; i++) {
        if (strcmp(config_setting_get_string(setting), key->words[i]) == 0) {
            set_number(number, i);
            return;
        }
    }
    refuse_type(reader, setting, key);
}

static void wish_choice(const struct key *key, struct wish *wish)
{
    size_t used = 0;

    for (size_t i = 0; key->words[i] != NULL; i++) {
        const char *mark = i == 0 ? "" : key->words[i + 1] == NULL ? " or " : ", ";
        int more = snprintf(wish->text + used, sizeof(wish->text) - used, "%s\"%s\"", mark, key->words[i]);

        used += (size_t)more;
        assert(used < sizeof(wish->text));
    }
}

/* --- Strings ------------------------------------------------------------------------------------------- */

static void read_one_string(struct reader *reader, const config_setting_t *setting, const struct key *key,
                            struct draft_string *string)
{
    struct fail fail;
    const char *value;
    char *copy;

    string->line = config_setting_source_line(setting);
    if (!is_string(setting)) {
        refuse_type(reader, setting, key);
        return;
    }
    value = config_setting_get_string(setting);
    if (name_check_printable(value, strlen(value), &fail) != 0 ||
        (key->check != NULL && key->check(value, strlen(value), &fail) != 0)) {
        fail_prefix(&fail, "%s: ", QUOTE(value));
        refuse_value(reader, setting, key, fail.text);
        return;
    }
    copy = strdup(value);
    if (copy == NULL) {
        reader->report->no_memory = true;
        return;
    }
    free(string->text); /* the default */
    string->text = copy;
}

static void read_string(struct reader *reader, const config_setting_t *setting, const struct key *key,
                        void *object)
{
    read_one_string(reader, setting, key, (struct draft_string *)((char *)object + key->offset));
}

static void wish_string(const struct key *key, struct wish *wish)
{
    snprintf(wish->text, sizeof(wish->text), "%s", key->wants);
}

/* --- Lists and groups ---------------------------------------------------------------------------------- */

static struct draft_list *list_of(const struct key *key, void *object)
{
    return (struct draft_list *)((char *)object + key->offset);
}

/* Make room for the elements, zeroed; complains and returns false if there are too many. */
static bool begin_list(struct reader *reader, const config_setting_t *setting, const struct key *key,
                       size_t bytes, struct draft_list *list)
{
    size_t count = (size_t)config_setting_length(setting);

    if (count > key->max) {
        complain(reader, setting, NULL, "the list has %zu entries; wants at most %" PRIu64, count, key->max);
        return false;
    }
    list->items = calloc(count + 1, bytes);
    if (list->items == NULL) {
        reader->report->no_memory = true;
        return false;
    }
    list->count = count;
    return true;
}

static bool is_word(const config_setting_t *setting, const struct key *key)
{
    return is_string(setting) && strcmp(config_setting_get_string(setting), key->words[0]) == 0;
}

static void read_strings(struct reader *reader, const config_setting_t *setting, const struct key *key,
                         void *object)
{
    static const struct key element = {.kind = &kind_string, .wants = "the name of a node, in quotes"};
    struct draft_list *list = list_of(key, object);

    list->line = config_setting_source_line(setting);
    if (is_word(setting, key))
        return;
    if (!config_setting_is_list(setting) && !config_setting_is_array(setting)) {
        refuse_type(reader, setting, key);
        return;
    }
    if (config_setting_length(setting) == 0)
        refuse_value(reader, setting, key, "the list is empty");
    if (!begin_list(reader, setting, key, sizeof(struct draft_string), list))
        return;
    for (size_t i = 0; i < list->count; i++)
        read_one_string(reader, config_setting_get_elem(setting, (unsigned)i), &element,
                        (struct draft_string *)list->items + i);
}

static void read_group(struct reader *reader, const config_setting_t *setting, const struct key *key,
                       void *object)
{
    void *part = (char *)object + key->offset;

    if (config_setting_is_group(setting))
        keys_read(reader, setting, key->table, part);
    else
        refuse_type(reader, setting, key);
}

static void wish_group(const struct key *key, struct wish *wish)
{
    snprintf(wish->text, sizeof(wish->text), "a group, as %s%s{ ... }", key->name,
             *key->name == '\0' ? "" : ": ");
}

static void read_groups(struct reader *reader, const config_setting_t *setting, const struct key *key,
                        void *object)
{
    const struct key element = {.name = "", .kind = &kind_group, .table = key->table};
    struct draft_list *list = list_of(key, object);

    list->line = config_setting_source_line(setting);
    if (!config_setting_is_list(setting)) {
        refuse_type(reader, setting, key);
        return;
    }
    if (!begin_list(reader, setting, key, key->table->bytes, list))
        return;
    for (size_t i = 0; i < list->count; i++) {
        void *item = (char *)list->items + i * key->table->bytes;

        if (key->table->init != NULL)
            key->table->init(item);
        read_group(reader, config_setting_get_elem(setting, (unsigned)i), &element, item);
    }
}

static void wish_groups(const struct key *key, struct wish *wish)
{
    snprintf(wish->text, sizeof(wish->text), "a list of groups, as %s: ( { ... }, { ... } )", key->name);
}

const struct kind kind_integer = {read_integer, wish_integer};
const struct kind kind_size = {read_size, wish_size};
const struct kind kind_power = {read_power, wish_power};
const struct kind kind_time = {read_time, wish_time};
const struct kind kind_boolean = {read_boolean, wish_boolean};
const struct kind kind_choice = {read_choice, wish_choice};
const struct kind kind_string = {read_string, wish_string};
const struct kind kind_strings = {read_strings, wish_string};
const struct kind kind_group = {read_group, wish_group};
const struct kind kind_groups = {read_groups, wish_groups};

/* --- Tables -------------------------------------------------------------------------------------------- */

static const struct key *find_key(const struct table *table, const char *name)
{
    for (const struct key *key = table->keys; key->name != NULL; key++) {
        if (strcmp(key->name, name) == 0)
            return key;
    }
    return NULL;
}

/* Whether one letter more, less, other or swapped makes the one word of the other. */
static bool nearly_same(const char *left, const char *right)
{
    size_t head = 0;
    const char *a, *b;

    while (left[head] != '\0' && left[head] == right[head])
        head++;
    a = left + head;
    b = right + head;
    if (*a == '\0' || *b == '\0')
        return strlen(a) + strlen(b) <= 1;
    return strcmp(a + 1, b) == 0 || strcmp(a, b + 1) == 0 || strcmp(a + 1, b + 1) == 0 ||
           (a[0] == b[1] && a[1] == b[0] && strcmp(a + 2, b + 2) == 0);
}

static const struct key *find_near_key(const struct table *table, const char *name)
{
    for (const struct key *key = table->keys; key->name != NULL; key++) {
        if (nearly_same(key->name, name))
            return key;
    }
    return NULL;
}

/* The section that has a key of this name; NULL if none has. */
static const struct key *find_section(const struct table *root, const char *name)
{
    for (const struct key *key = root->keys; key->name != NULL; key++) {
        if (key->table != NULL && find_key(key->table, name) != NULL)
            return key;
    }
    return NULL;
}

static void list_keys(const struct table *table, struct text *text)
{
    for (const struct key *key = table->keys; key->name != NULL; key++)
        text_append(text, "%s%s", key == table->keys ? "" : ", ", key->name);
}

static void refuse_unknown(struct reader *reader, const config_setting_t *setting, const struct table *table)
{
    const char *name = config_setting_name(setting);
    const struct key *near = find_near_key(table, name);
    const struct key *section = find_section(reader->root, name);
    struct text known = {0};

    if (near != NULL) {
        complain(reader, setting, NULL, "unknown key; did you mean \"%s\"?", near->name);
    } else if (section != NULL) {
        complain(reader, setting, NULL, "unknown key here; it belongs to \"%s\"", section->name);
    } else if (find_key(reader->root, name) != NULL) {
        complain(reader, setting, NULL, "unknown key here; it belongs to the outermost level");
    } else {
        list_keys(table, &known);
        complain(reader, setting, NULL, "unknown key; known here are %s",
                 known.failed ? "others" : known.bytes);
    }
    text_fini(&known);
}

static void require_keys(struct reader *reader, const config_setting_t *group, const struct table *table)
{
    for (const struct key *key = table->keys; key->name != NULL; key++) {
        struct wish wish;

        if (!key->required || config_setting_get_member(group, key->name) != NULL)
            continue;
        key->kind->wish(key, &wish);
        complain(reader, group, key->name, "is missing; wants %s", wish.text);
    }
}

void keys_read(struct reader *reader, const config_setting_t *group, const struct table *table, void *object)
{
    *(unsigned *)((char *)object + table->line) = config_setting_source_line(group);
    for (int i = 0; i < config_setting_length(group); i++) {
        const config_setting_t *setting = config_setting_get_elem(group, (unsigned)i);
        const struct key *key = find_key(table, config_setting_name(setting));

        if (key == NULL)
            refuse_unknown(reader, setting, table);
        else
            key->kind->read(reader, setting, key, object);
    }
    require_keys(reader, group, table);
}
