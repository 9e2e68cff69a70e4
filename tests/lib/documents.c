/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "tests/lib/documents.h"

#include <check.h>
#include <string.h>

#include "control/item.h"

static bool is_hex(const char *text)
{
    return strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16;
}

static bool has_type(const json_t *value, const char *types)
{
    const char *text = json_string_value(value);
    char type = 's';

    if (json_is_integer(value))
        type = 'i';
    else if (json_is_real(value))
        type = 'r';
    else if (json_is_boolean(value))
        type = 'b';
    else if (json_is_null(value))
        type = 'n';
    else if (json_is_array(value))
        type = 'a';
    else if (json_is_object(value))
        type = 'o';
    else if (is_hex(text))
        type = 'x';
    else if (item_parse_time(text) != 0)
        type = 't';
    return strchr(types, type) != NULL;
}

void expect_keys(const json_t *object, const char *keys)
{
    size_t count = 0;
    char copy[1024], *rest;

    ck_assert(json_is_object(object));
    snprintf(copy, sizeof(copy), "%s", keys);
    for (char *key = strtok_r(copy, " ", &rest); key != NULL; key = strtok_r(NULL, " ", &rest)) {
        char *types = strchr(key, ':');
        const json_t *value;

        *types++ = '\0';
        value = json_object_get(object, key);
        ck_assert_msg(value != NULL, "no key %s", key);
        ck_assert_msg(has_type(value, types), "%s is not one of %s", key, types);
        count++;
    }
    ck_assert_msg(count == json_object_size(object), "more keys than %s", keys);
}

json_t *parse_output(const struct result *result)
{
    json_error_t error;
    json_t *document;

    ck_assert_msg(result->status == 0, "status %d: %s", result->status, result->errors);
    document = json_loads(result->output, 0, &error);
    ck_assert_msg(document != NULL, "%s: %s", error.text, result->output);
    ck_assert_int_eq(json_integer_value(json_object_get(document, "schema")), 1);
    return document;
}

void expect_document(const struct result *result, const char *keys, const char *list, const char *item_keys)
{
    json_t *document = parse_output(result);
    const json_t *items = json_object_get(document, list);

    expect_keys(document, keys);
    ck_assert_uint_gt(json_array_size(items), 0);
    for (size_t i = 0; i < json_array_size(items); i++)
        expect_keys(json_array_get(items, i), item_keys);
    json_decref(document);
}
