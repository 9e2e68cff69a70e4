/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/name.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <covey/covey.h>

struct range {
    uint32_t first, last;
};

/* Characters without a shape of their own. */
static const struct range unseen[] = {
    {0x0000, 0x001f}, {0x007f, 0x00a0}, {0x00ad, 0x00ad}, {0x061c, 0x061c},    {0x115f, 0x1160},
    {0x1680, 0x1680}, {0x180b, 0x180f}, {0x2000, 0x200f}, {0x2028, 0x202f},    {0x205f, 0x206f},
    {0x3000, 0x3000}, {0x3164, 0x3164}, {0xfe00, 0xfe0f}, {0xfeff, 0xfeff},    {0xffa0, 0xffa0},
    {0xfff0, 0xfffb}, {0xfffe, 0xffff}, {0xe000, 0xf8ff}, {0xe0000, 0x10ffff},
};

static bool is_unseen(uint32_t character)
{
    for (size_t i = 0; i < sizeof(unseen) / sizeof(unseen[0]); i++) {
        if (character >= unseen[i].first && character <= unseen[i].last)
            return true;
    }
    return false;
}

/* Decode the character at bytes, count >= 1. Returns its length, 0 if it is not UTF-8 (RFC 3629). */
static size_t utf8_decode(const char *bytes, size_t count, uint32_t *character)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = (unsigned char)bytes[0];
    size_t length = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
    uint32_t value;

    if (length == 0 || length > count)
        return 0;
    value = length == 1 ? first : first & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (((unsigned char)bytes[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | ((unsigned char)bytes[i] & 0x3f);
    }
    if (value < smallest[length] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
        return 0;
    *character = value;
    return length;
}

int name_check_printable(const char *bytes, size_t count, struct fail *fail)
{
    size_t length;

    for (size_t i = 0; i < count; i += length) {
        uint32_t character;

        length = utf8_decode(bytes + i, count - i, &character);
        if (length == 0)
            return fail_set(fail, COVEY_INVALID, "byte %zu (0x%02X) is not UTF-8", i + 1,
                            (unsigned char)bytes[i]);
        if (is_unseen(character))
            return fail_set(fail, COVEY_INVALID, "byte %zu is the unprintable character U+%04X", i + 1,
                            character);
    }
    return 0;
}

int name_check(const char *bytes, size_t count, struct fail *fail)
{
    if (count == 0)
        return fail_set(fail, COVEY_INVALID, "a name cannot be empty");
    if (count > COVEY_NAME_MAX)
        return fail_set(fail, COVEY_INVALID, "a name has at most %d bytes, this has %zu", COVEY_NAME_MAX,
                        count);
    if (memchr(bytes, '/', count) != NULL)
        return fail_set(fail, COVEY_INVALID, "a name cannot contain '/'");
    return name_check_printable(bytes, count, fail);
}

int name_check_file(const char *bytes, size_t count, struct fail *fail)
{
    int error = name_check(bytes, count, fail);

    if (error != 0)
        return error;
    if (bytes[0] == '.' || bytes[0] == '-')
        return fail_set(fail, COVEY_INVALID, "this name cannot begin with '%c'", bytes[0]);
    if (memchr(bytes, ' ', count) != NULL)
        return fail_set(fail, COVEY_INVALID, "this name cannot contain a blank");
    return 0;
}
