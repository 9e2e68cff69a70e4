/* SPDX-License-Identifier: BSD-3-Clause */
#include "config/values.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* --- Sizes and times ----------------------------------------------------------------------------------- */

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

static const char *format_quantity(const struct quantity *quantity, uint64_t value, struct value_text *out)
{
    size_t i = UNITS - 1;

    while (i > 0 && (value == 0 || value % quantity->units[i].factor != 0))
        i--;
    snprintf(out->text, sizeof(out->text), "%" PRIu64 "%s", value / quantity->units[i].factor,
             quantity->units[i].name);
    return out->text;
}

int value_parse_size(const char *text, uint64_t *bytes, struct fail *fail)
{
    return parse_quantity(&size_quantity, text, bytes, fail);
}

int value_parse_time(const char *text, uint64_t *ns, struct fail *fail)
{
    return parse_quantity(&time_quantity, text, ns, fail);
}

const char *value_format_size(uint64_t bytes, struct value_text *out)
{
    return format_quantity(&size_quantity, bytes, out);
}

const char *value_format_time(uint64_t ns, struct value_text *out)
{
    return format_quantity(&time_quantity, ns, out);
}

/* --- Addresses ----------------------------------------------------------------------------------------- */

static void set_port(struct address *address, uint16_t port)
{
    if (address->any.sa_family == AF_INET)
        address->v4.sin_port = htons(port);
    else
        address->v6.sin6_port = htons(port);
}

/* 1..65535 in plain digits. */
static int parse_port(const char *text, uint16_t *port, struct fail *fail)
{
    uint32_t value = 0;
    size_t digits = strspn(text, "0123456789");

    if (digits == 0 || text[digits] != '\0' || (digits > 1 && text[0] == '0'))
        return fail_set(fail, COVEY_INVALID, "the port %s is not a plain number", QUOTE(text));
    for (size_t i = 0; i < digits && value <= UINT16_MAX; i++)
        value = value * 10 + (uint32_t)(text[i] - '0');
    if (value < 1 || value > UINT16_MAX)
        return fail_set(fail, COVEY_INVALID, "the port %s is out of range 1..65535", text);
    *port = (uint16_t)value;
    return 0;
}

/* Why no node can have this address of its own; NULL if one can. */
static const char *useless_v4(uint32_t ip)
{
    return ip >> 24 == 0            ? "an unspecified address"
           : ip == INADDR_BROADCAST ? "the broadcast address"
           : ip >> 28 == 14         ? "a multicast address"
           : ip >> 16 == 0xa9fe     ? "a link-local address"
                                    : NULL;
}

static const char *useless_v6(const struct in6_addr *ip)
{
    return IN6_IS_ADDR_UNSPECIFIED(ip)                            ? "the unspecified address"
           : IN6_IS_ADDR_MULTICAST(ip)                            ? "a multicast address"
           : IN6_IS_ADDR_LINKLOCAL(ip)                            ? "a link-local address"
           : IN6_IS_ADDR_V4MAPPED(ip) || IN6_IS_ADDR_V4COMPAT(ip) ? "an IPv4 address in IPv6 form"
                                                                  : NULL;
}

static int refuse_useless(const struct address *address, const char *text, struct fail *fail)
{
    const char *kind = address->any.sa_family == AF_INET ? useless_v4(ntohl(address->v4.sin_addr.s_addr))
                                                         : useless_v6(&address->v6.sin6_addr);

    if (kind == NULL)
        return 0;
    return fail_set(fail, COVEY_INVALID, "%s is %s; one that the other nodes can connect to is needed",
                    QUOTE(text), kind);
}

/* Letters, digits, '-' and '.', and a last label that is not a number: "10.0.0.256" is no host name. */
static bool is_host_name(const char *text)
{
    const char *last = strrchr(text, '.');
    size_t count = strlen(text);

    if (count == 0 || count > 253 || text[0] == '.' || text[0] == '-')
        return false;
    if (strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-.") != count)
        return false;
    last = last == NULL ? text : last + 1;
    return strspn(last, "0123456789") != strlen(last);
}

/* The part before the port. */
static int parse_host(const char *text, bool brackets, const struct host *host, struct address *address,
                      struct fail *fail)
{
    *address = (struct address){0};
    if (brackets) {
        if (inet_pton(AF_INET6, text, &address->v6.sin6_addr) != 1)
            return fail_set(fail, COVEY_INVALID, "%s in brackets is no IPv6 address", QUOTE(text));
        address->any.sa_family = AF_INET6;
        address->bytes = sizeof(struct sockaddr_in6);
    } else if (inet_pton(AF_INET, text, &address->v4.sin_addr) == 1) {
        address->any.sa_family = AF_INET;
        address->bytes = sizeof(struct sockaddr_in);
    } else if (!is_host_name(text)) {
        return fail_set(fail, COVEY_INVALID, "%s is neither an address nor a host name", QUOTE(text));
    } else if (host->resolve(text, address, fail) != 0) {
        return fail_prefix(fail, "the host name %s cannot be looked up: ", QUOTE(text));
    }
    return refuse_useless(address, text, fail);
}

/* Split at the colon before the port. */
static int split_address(const char *text, char *name, size_t room, const char **port, bool *brackets,
                         struct fail *fail)
{
    const char *end, *begin = text;

    *brackets = text[0] == '[';
    if (*brackets) {
        begin++;
        end = strchr(text, ']');
        if (end == NULL || end[1] != ':')
            return fail_set(fail, COVEY_INVALID, "%s has no port after its brackets", QUOTE(text));
        *port = end + 2;
    } else {
        end = strchr(text, ':');
        if (end == NULL)
            return fail_set(fail, COVEY_INVALID, "%s has no port", QUOTE(text));
        if (strchr(end + 1, ':') != NULL)
            return fail_set(fail, COVEY_INVALID,
                            "%s could be read in two ways: an IPv6 address stands in brackets", QUOTE(text));
        *port = end + 1;
    }
    if ((size_t)(end - begin) >= room)
        return fail_set(fail, COVEY_INVALID, "%s is too long", QUOTE(text));
    memcpy(name, begin, (size_t)(end - begin));
    name[end - begin] = '\0';
    return 0;
}

int value_parse_address(const char *text, const struct host *host, struct address *address, struct fail *fail)
{
    char name[256];
    const char *port_text = "";
    struct address found;
    bool brackets;
    uint16_t port = 0;

    if (strpbrk(text, " \t") != NULL)
        return fail_set(fail, COVEY_INVALID, "%s contains a blank", QUOTE(text));
    if (split_address(text, name, sizeof(name), &port_text, &brackets, fail) != 0 ||
        parse_port(port_text, &port, fail) != 0 || parse_host(name, brackets, host, &found, fail) != 0)
        return fail->code;
    set_port(&found, port);
    *address = found;
    return 0;
}

bool address_is_loopback(const struct address *address)
{
    if (address->any.sa_family == AF_INET)
        return ntohl(address->v4.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr);
}

bool address_same_host(const struct address *left, const struct address *right)
{
    if (left->any.sa_family != right->any.sa_family)
        return false;
    if (left->any.sa_family == AF_INET)
        return left->v4.sin_addr.s_addr == right->v4.sin_addr.s_addr;
    return IN6_ARE_ADDR_EQUAL(&left->v6.sin6_addr, &right->v6.sin6_addr);
}

static uint16_t address_port(const struct address *address)
{
    return address->any.sa_family == AF_INET ? address->v4.sin_port : address->v6.sin6_port;
}

bool address_equal(const struct address *left, const struct address *right)
{
    return address_same_host(left, right) && address_port(left) == address_port(right);
}

const char *address_format(const struct address *address, struct address_text *out)
{
    const void *ip = address->any.sa_family == AF_INET ? (const void *)&address->v4.sin_addr
                                                       : (const void *)&address->v6.sin6_addr;

    if (inet_ntop(address->any.sa_family, ip, out->text, sizeof(out->text)) == NULL)
        out->text[0] = '\0';
    return out->text;
}
