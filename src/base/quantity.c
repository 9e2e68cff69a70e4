/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/quantity.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

struct unit {
    const char *name;
    uint64_t factor;
};

/* Ascending. */
static const struct unit size_units[] = {
    {"B", 1}, {"KiB", 1ull << 10}, {"MiB", 1ull << 20}, {"GiB", 1ull << 30}, {"TiB", 1ull << 40},
};
static const struct unit time_units[] = {
    {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {"min", 60000000000},
};
#define UNITS 5

/* What one kind of quantity is called and measured in. */
struct quantity {
    const struct unit *units; /* UNITS of them */
    const char *known;        /* the units, for a message */
    const char *smallest;
};

static const struct quantity size_quantity = {size_units, "B, KiB, MiB, GiB, TiB", "bytes"};
static const struct quantity time_quantity = {time_units, "ns, us, ms, s, min", "nanoseconds"};

#define FRACTION_DIGITS_MAX 12

/* DIGITS[.DIGITS] as number / 10^decimals. Returns what follows it, NULL if it is not that or too long. */
static const char *parse_decimal(const char *text, unsigned __int128 *number, unsigned *decimals)
{
    const char *at = text;
    bool point = false;

    *number = 0;
    *decimals = 0;
    for (; (*at >= '0' && *at <= '9') || (*at == '.' && !point); at++) {
        if (*at == '.') {
            point = true;
            continue;
        }
        *number = *number * 10 + (unsigned)(*at - '0');
        *decimals += point;
        if (*number > UINT64_MAX || *decimals > FRACTION_DIGITS_MAX)
            return NULL;
    }
    if (at == text || *text == '.' || at[-1] == '.')
        return NULL;
    return at;
}

static const struct unit *find_unit(const struct quantity *quantity, const char *name)
{
    for (size_t i = 0; i < UNITS; i++) {
        if (strcmp(quantity->units[i].name, name) == 0)
            return &quantity->units[i];
    }
    return NULL;
}

static int parse_quantity(const struct quantity *quantity, const char *text, uint64_t *value,
                          struct fail *fail)
{
    unsigned __int128 number, scale = 1;
    const struct unit *unit;
    const char *rest;
    unsigned decimals;

    rest = parse_decimal(text, &number, &decimals);
    if (rest == NULL)
        return fail_set(fail, COVEY_INVALID, "%s is not a number with a unit", QUOTE(text));
    rest += *rest == ' ';
    unit = find_unit(quantity, rest);
    if (unit == NULL)
        return fail_set(fail, COVEY_INVALID, "%s has %s; known are %s", QUOTE(text),
                        *rest == '\0' ? "no unit" : "an unknown unit", quantity->known);
    for (unsigned i = 0; i < decimals; i++)
        scale *= 10;
    number *= unit->factor;
    if (number % scale != 0)
        return fail_set(fail, COVEY_INVALID, "%s is not a whole number of %s", QUOTE(text),
                        quantity->smallest);
    if (number / scale > INT64_MAX)
        return fail_set(fail, COVEY_INVALID, "%s is too large", QUOTE(text));
    *value = (uint64_t)(number / scale);
    return 0;
}

static const char *format_quantity(const struct quantity *quantity, uint64_t value, struct quantity_text *out)
{
    size_t i = UNITS - 1;

    while (i > 0 && (value == 0 || value % quantity->units[i].factor != 0))
        i--;
    snprintf(out->text, sizeof(out->text), "%" PRIu64 "%s", value / quantity->units[i].factor,
             quantity->units[i].name);
    return out->text;
}

int quantity_parse_size(const char *text, uint64_t *bytes, struct fail *fail)
{
    return parse_quantity(&size_quantity, text, bytes, fail);
}

int quantity_parse_time(const char *text, uint64_t *ns, struct fail *fail)
{
    return parse_quantity(&time_quantity, text, ns, fail);
}

const char *quantity_format_size(uint64_t bytes, struct quantity_text *out)
{
    return format_quantity(&size_quantity, bytes, out);
}

const char *quantity_format_time(uint64_t ns, struct quantity_text *out)
{
    return format_quantity(&time_quantity, ns, out);
}
