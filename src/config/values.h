/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONFIG_VALUES_H
#define CONFIG_VALUES_H

/* Text of one value to what it means, and back. All return 0 or COVEY_INVALID with what is wrong. */

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"
#include "config/host.h"

/* "10.0.0.1:7400", "[2001:db8::1]:7400", "host.example:7400". A port is always there, 1..65535. Addresses
 * that are nobody's own (unspecified, multicast, broadcast, link-local, IPv4 in IPv6) are refused. Host names
 * are looked up with host->resolve. */
int value_parse_address(const char *text, const struct host *host, struct address *address,
                        struct fail *fail);

bool address_is_loopback(const struct address *address);
/* Without the port, and without it and with it. */
bool address_same_host(const struct address *left, const struct address *right);
bool address_equal(const struct address *left, const struct address *right);

/* "10.0.0.1", "2001:db8::1": the address alone, without port and brackets. */
struct address_text {
    char text[INET6_ADDRSTRLEN];
};
const char *address_format(const struct address *address, struct address_text *out);

#endif
