/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "control/item.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NS_PER_S UINT64_C(1000000000)

json_t *item_u64(uint64_t number)
{
    return json_integer(number > INT64_MAX ? INT64_MAX : (json_int_t)number);
}

json_t *item_hex(uint64_t number)
{
    return json_sprintf("%016" PRIx64, number);
}

json_t *item_time(uint64_t realtime_ns)
{
    char text[ITEM_TIME_BYTES];

    if (realtime_ns == 0)
        return json_null();
    item_format_time(realtime_ns, text);
    return json_string(text);
}

void item_format_time(uint64_t realtime_ns, char out[ITEM_TIME_BYTES])
{
    time_t seconds = (time_t)(realtime_ns / NS_PER_S);
    struct tm utc;
    size_t used;

    gmtime_r(&seconds, &utc);
    used = strftime(out, ITEM_TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out + used, ITEM_TIME_BYTES - used, ".%09uZ", (unsigned)(realtime_ns % NS_PER_S));
}

uint64_t item_parse_time(const char *text)
{
    struct tm utc = {0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);
    unsigned long ns;
    char *end;

    if (rest == NULL || *rest != '.')
        return 0;
    ns = strtoul(rest + 1, &end, 10);
    if (end != rest + 10 || strcmp(end, "Z") != 0)
        return 0;
    return (uint64_t)timegm(&utc) * NS_PER_S + ns;
}

/* Bytes of the UTF-8 sequence at text; 0 if there is none. json_string() is the judge. */
static size_t sequence_bytes(const char *text)
{
    size_t left = strnlen(text, 4);

    for (size_t bytes = 1; bytes <= left; bytes++) {
        json_t *string = json_stringn(text, bytes);
        bool valid = string != NULL;

        json_decref(string);
        if (valid)
            return bytes;
    }
    return 0;
}

static json_t *repaired_text(const char *text)
{
    static const char replacement[] = "\xef\xbf\xbd";
    char *out = malloc(strlen(text) * (sizeof(replacement) - 1) + 1);
    size_t used = 0;
    json_t *string;

    if (out == NULL)
        return NULL;
    while (*text != '\0') {
        size_t bytes = sequence_bytes(text);

        if (bytes == 0) {
            memcpy(out + used, replacement, sizeof(replacement) - 1);
            used += sizeof(replacement) - 1;
            text++;
            continue;
        }
        memcpy(out + used, text, bytes);
        used += bytes;
        text += bytes;
    }
    string = json_stringn(out, used);
    free(out);
    return string;
}

json_t *item_text(const char *text)
{
    json_t *string = json_string(text);

    return string != NULL ? string : repaired_text(text);
}

uint64_t item_get_u64(const json_t *object, const char *key)
{
    json_int_t number = json_integer_value(json_object_get(object, key));

    return number > 0 ? (uint64_t)number : 0;
}

double item_get_real(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

bool item_get_bool(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

const char *item_get_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL ? text : "";
}
