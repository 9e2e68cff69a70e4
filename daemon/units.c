/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/units.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const byte_units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
#define BYTE_UNITS (sizeof(byte_units) / sizeof(byte_units[0]))

/* Digits behind the point so that there are three in all, without needless zeros. */
static void format_short(double number, const char *unit, struct unit_text *out)
{
    int digits = number < 9.995 ? 2 : number < 99.95 ? 1 : 0;
    char text[24];
    size_t used = (size_t)snprintf(text, sizeof(text), "%.*f", digits, number);

    while (digits > 0 && text[used - 1] == '0')
        text[--used] = '\0';
    if (digits > 0 && text[used - 1] == '.')
        text[--used] = '\0';
    snprintf(out->text, sizeof(out->text), "%s %s", text, unit);
}

const char *units_bytes(uint64_t bytes, struct unit_text *out)
{
    double number = (double)bytes;
    size_t unit = 0;

    while (number >= 1023.5 && unit + 1 < BYTE_UNITS) {
        number /= 1024;
        unit++;
    }
    format_short(number, byte_units[unit], out);
    return out->text;
}

const char *units_seconds(double seconds, struct unit_text *out)
{
    if (seconds < 0.0009995)
        format_short(seconds * 1e6, "us", out);
    else if (seconds < 0.9995)
        format_short(seconds * 1e3, "ms", out);
    else if (seconds < 59.95)
        format_short(seconds, "s", out);
    else
        snprintf(out->text, sizeof(out->text), "%.0f:%02d min", (double)(uint64_t)(seconds / 60),
                 (int)((uint64_t)seconds % 60));
    return out->text;
}

const char *units_age(uint64_t ns, struct unit_text *out)
{
    uint64_t seconds = ns / 1000000000U;

    if (seconds < 60)
        snprintf(out->text, sizeof(out->text), "%" PRIu64 "s", seconds);
    else if (seconds < 3600)
        snprintf(out->text, sizeof(out->text), "%" PRIu64 "m %" PRIu64 "s", seconds / 60, seconds % 60);
    else if (seconds < 86400)
        snprintf(out->text, sizeof(out->text), "%" PRIu64 "h %" PRIu64 "m", seconds / 3600,
                 seconds / 60 % 60);
    else
        snprintf(out->text, sizeof(out->text), "%" PRIu64 "d %" PRIu64 "h", seconds / 86400,
                 seconds / 3600 % 24);
    return out->text;
}

const char *units_rate(double gb_per_s, struct unit_text *out)
{
    if (gb_per_s < 0.0009995)
        format_short(gb_per_s * 1e6, "kB/s", out);
    else if (gb_per_s < 0.9995)
        format_short(gb_per_s * 1e3, "MB/s", out);
    else
        format_short(gb_per_s, "GB/s", out);
    return out->text;
}

const char *units_count(uint64_t number, const char *noun, struct unit_text *out)
{
    snprintf(out->text, sizeof(out->text), "%" PRIu64 " %s%s", number, noun, number == 1 ? "" : "s");
    return out->text;
}

bool units_parse_number(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *number)
{
    unsigned long long parsed;
    char *end;

    errno = 0;
    parsed = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 || parsed < minimum ||
        parsed > maximum)
        return false;
    *number = parsed;
    return true;
}
