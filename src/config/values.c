/* SPDX-License-Identifier: BSD-3-Clause */
#include "config/values.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

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
