/* SPDX-License-Identifier: BSD-3-Clause */
#include "control/request.h"

#include <string.h>

#include <covey/covey.h>

#include "control/frame.h"
#include "control/item.h"

enum field_type { FIELD_NAME, FIELD_NUMBER, FIELD_FLAG, FIELD_NAMES };

enum field_bit {
    HAS_GROUP = 1 << 0,
    HAS_NAME = 1 << 1,
    HAS_VERSION = 1 << 2,
    HAS_AFTER = 1 << 3,
    HAS_WAIT = 1 << 4,
    HAS_FIRST = 1 << 5,
    HAS_COUNT = 1 << 6,
    HAS_BYTES = 1 << 7,
    HAS_FILES = 1 << 8
};

/* The index of a field is the number of its bit. */
static const struct field {
    const char *key;
    enum field_type type;
    size_t offset;
} fields[] = {
    {"group", FIELD_NAME, offsetof(struct request, group)},
    {"name", FIELD_NAME, offsetof(struct request, name)},
    {"version", FIELD_NUMBER, offsetof(struct request, version)},
    {"after", FIELD_NUMBER, offsetof(struct request, after)},
    {"wait", FIELD_FLAG, offsetof(struct request, wait)},
    {"first", FIELD_NUMBER, offsetof(struct request, first)},
    {"count", FIELD_NUMBER, offsetof(struct request, count)},
    {"bytes", FIELD_NUMBER, offsetof(struct request, bytes)},
    {"files", FIELD_NAMES, offsetof(struct request, files)},
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static const struct form {
    const char *command;
    unsigned required, optional;
} forms[REQUEST_KINDS] = {
    [REQUEST_VIEW] = {"view", 0, HAS_AFTER | HAS_WAIT},
    [REQUEST_GROUPS] = {"groups", 0, 0},
    [REQUEST_OBJECTS] = {"objects", HAS_GROUP, 0},
    [REQUEST_FILES] = {"files", HAS_FILES, 0},
    [REQUEST_PUT] = {"put", HAS_GROUP | HAS_NAME, 0},
    [REQUEST_OPEN] = {"open", HAS_GROUP | HAS_NAME, HAS_VERSION},
    [REQUEST_STORE] = {"store", HAS_FIRST | HAS_COUNT, 0},
    [REQUEST_REMOVE] = {"remove", HAS_GROUP | HAS_NAME, 0},
    [REQUEST_STATS] = {"stats", 0, 0},
    [REQUEST_EVENTS] = {"events", 0, HAS_AFTER | HAS_WAIT},
    [REQUEST_BENCH] = {"bench", HAS_BYTES | HAS_COUNT, HAS_GROUP},
    [REQUEST_RELOAD] = {"reload", 0, 0},
    [REQUEST_LEAVE] = {"leave", 0, 0},
    [REQUEST_EVICT] = {"evict", HAS_NAME, 0},
    [REQUEST_FORCE] = {"force", 0, 0},
    [REQUEST_TABLE] = {"table", 0, 0},
    [REQUEST_ROUTE] = {"route", 0, HAS_NAME},
};

const char *request_command(enum request_kind kind)
{
    return forms[kind].command;
}

static void *slot(const struct field *field, struct request *request)
{
    return (char *)request + field->offset;
}

static bool is_name(const json_t *value)
{
    size_t bytes = json_string_length(value);

    return json_is_string(value) && bytes >= 1 && bytes <= COVEY_NAME_MAX;
}

static bool is_name_list(const json_t *value)
{
    size_t count = json_array_size(value);

    for (size_t i = 0; i < count; i++) {
        if (!is_name(json_array_get(value, i)))
            return false;
    }
    return count >= 1 && count <= FRAME_DESCRIPTORS_MAX;
}

/* Put value into the request; NULL, or what it should have been. */
static const char *decode_field(const struct field *field, const json_t *value, struct request *request)
{
    switch (field->type) {
    case FIELD_NAME:
        if (!is_name(value))
            return "a string of 1 to 255 bytes";
        *(const char **)slot(field, request) = json_string_value(value);
        return NULL;
    case FIELD_NUMBER:
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return "an integer, at least 0";
        *(uint64_t *)slot(field, request) = (uint64_t)json_integer_value(value);
        return NULL;
    case FIELD_FLAG:
        if (!json_is_boolean(value))
            return "true or false";
        *(bool *)slot(field, request) = json_is_true(value);
        return NULL;
    case FIELD_NAMES:
        if (!is_name_list(value))
            return "a list of 1 to 253 strings of 1 to 255 bytes";
        *(const json_t **)slot(field, request) = value;
        return NULL;
    }
    return "known";
}

static int decode_kind(const json_t *document, struct request *request, struct fail *fail)
{
    const json_t *schema = json_object_get(document, "schema");
    const char *command = json_string_value(json_object_get(document, "command"));

    if (!json_is_integer(schema) || command == NULL)
        return fail_set(fail, COVEY_PROTOCOL, "a request needs a schema and a command");
    if (json_integer_value(schema) != CONTROL_SCHEMA)
        return fail_set(fail, COVEY_UNSUPPORTED,
                        "schema %lld of the control protocol is not known here, only %d: use the covey "
                        "that came with this coveyd",
                        (long long)json_integer_value(schema), CONTROL_SCHEMA);
    for (size_t i = 0; i < REQUEST_KINDS; i++) {
        if (strcmp(forms[i].command, command) == 0) {
            request->kind = (enum request_kind)i;
            return 0;
        }
    }
    return fail_set(fail, COVEY_UNSUPPORTED, "command \"%s\" is not known here", command);
}

/* Decode the member called key; adds its bit to *seen. */
static int decode_member(const char *key, const json_t *value, struct request *request, unsigned *seen,
                         struct fail *fail)
{
    const struct form *form = &forms[request->kind];

    if (strcmp(key, "schema") == 0 || strcmp(key, "command") == 0)
        return 0;
    for (unsigned i = 0; i < FIELDS; i++) {
        const char *wanted;

        if (strcmp(fields[i].key, key) != 0 || !((form->required | form->optional) & 1U << i))
            continue;
        wanted = decode_field(&fields[i], value, request);
        if (wanted != NULL)
            return fail_set(fail, COVEY_PROTOCOL, "%s: \"%s\" must be %s", form->command, key, wanted);
        *seen |= 1U << i;
        return 0;
    }
    return fail_set(fail, COVEY_PROTOCOL, "%s: no key \"%s\" is known", form->command, key);
}

static int check_required(const struct request *request, unsigned seen, struct fail *fail)
{
    const struct form *form = &forms[request->kind];

    for (unsigned i = 0; i < FIELDS; i++) {
        if (form->required & ~seen & 1U << i)
            return fail_set(fail, COVEY_PROTOCOL, "%s: \"%s\" is missing", form->command, fields[i].key);
    }
    return 0;
}

static int check_ranges(const struct request *request, struct fail *fail)
{
    if (request->kind == REQUEST_BENCH && (request->bytes == 0 || request->count == 0))
        return fail_set(fail, COVEY_PROTOCOL, "bench: \"bytes\" and \"count\" must be at least 1");
    if (request->kind == REQUEST_BENCH && request->count > REQUEST_BENCH_COUNT_MAX)
        return fail_set(fail, COVEY_PROTOCOL, "bench: \"count\" is more than %d", REQUEST_BENCH_COUNT_MAX);
    return 0;
}

static int check_descriptors(const struct request *request, size_t descriptor_count, struct fail *fail)
{
    uint64_t wanted = 0;

    if (request->kind == REQUEST_FILES)
        wanted = json_array_size(request->files);
    else if (request->kind == REQUEST_STORE)
        wanted = request->count;
    if (descriptor_count != wanted || (request->kind == REQUEST_STORE && wanted == 0))
        return fail_set(fail, COVEY_PROTOCOL, "%s: %llu descriptors are needed, %zu came",
                        forms[request->kind].command, (unsigned long long)wanted, descriptor_count);
    return 0;
}

int request_decode(const json_t *document, size_t descriptor_count, struct request *request,
                   struct fail *fail)
{
    struct request decoded = {0};
    unsigned seen = 0;
    const char *key;
    json_t *value;
    int result = decode_kind(document, &decoded, fail);

    if (result != 0)
        return result;
    json_object_foreach ((json_t *)(uintptr_t)document, key, value) {
        result = decode_member(key, value, &decoded, &seen, fail);
        if (result != 0)
            return result;
    }
    result = check_required(&decoded, seen, fail);
    if (result == 0)
        result = check_ranges(&decoded, fail);
    if (result == 0)
        result = check_descriptors(&decoded, descriptor_count, fail);
    if (result == 0)
        *request = decoded;
    return result;
}

/* The field's value as JSON; *given tells whether the request has one. */
static json_t *encode_field(const struct field *field, struct request *request, bool *given)
{
    const json_t *names;
    const char *name;
    uint64_t number;

    switch (field->type) {
    case FIELD_NAME:
        name = *(const char **)slot(field, request);
        *given = name != NULL;
        return *given ? json_string(name) : NULL;
    case FIELD_NUMBER:
        number = *(uint64_t *)slot(field, request);
        *given = number != 0;
        return item_u64(number);
    case FIELD_FLAG:
        *given = *(bool *)slot(field, request);
        return json_boolean(*given);
    case FIELD_NAMES:
        names = *(const json_t **)slot(field, request);
        *given = names != NULL;
        return json_incref((json_t *)(uintptr_t)names);
    }
    return NULL;
}

json_t *request_encode(const struct request *request)
{
    const struct form *form = &forms[request->kind];
    struct request copy = *request;
    json_t *document = json_pack("{s:i, s:s}", "schema", CONTROL_SCHEMA, "command", form->command);

    for (unsigned i = 0; i < FIELDS && document != NULL; i++) {
        bool given = false;
        json_t *value;

        if (!((form->required | form->optional) & 1U << i))
            continue;
        value = encode_field(&fields[i], &copy, &given);
        if (!given && !(form->required & 1U << i)) {
            json_decref(value);
        } else if (json_object_set_new(document, fields[i].key, value) != 0) {
            json_decref(document);
            document = NULL;
        }
    }
    return document;
}
