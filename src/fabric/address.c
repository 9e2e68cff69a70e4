/* SPDX-License-Identifier: BSD-3-Clause */
#include "fabric/address.h"

#include <netinet/in.h>
#include <string.h>

#define HEADER_BYTES 4

size_t address_encode(const struct sockaddr_storage *from, uint8_t out[FABRIC_ADDRESS_MAX])
{
    const struct sockaddr_in *in4 = (const struct sockaddr_in *)from;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)from;
    bool four = from->ss_family == AF_INET;
    size_t bytes = four ? sizeof(in4->sin_addr) : sizeof(in6->sin6_addr);

    out[0] = four ? 4 : 6;
    out[1] = 0;
    memcpy(out + 2, four ? &in4->sin_port : &in6->sin6_port, 2);
    memcpy(out + HEADER_BYTES, four ? (const void *)&in4->sin_addr : &in6->sin6_addr, bytes);
    return HEADER_BYTES + bytes;
}

size_t address_decode(const uint8_t *address, size_t bytes, struct sockaddr_storage *out)
{
    struct sockaddr_in *in4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;

    memset(out, 0, sizeof(*out));
    if (bytes == HEADER_BYTES + sizeof(in4->sin_addr) && address[0] == 4 && address[1] == 0) {
        in4->sin_family = AF_INET;
        memcpy(&in4->sin_port, address + 2, 2);
        memcpy(&in4->sin_addr, address + HEADER_BYTES, sizeof(in4->sin_addr));
        return sizeof(*in4);
    }
    if (bytes == HEADER_BYTES + sizeof(in6->sin6_addr) && address[0] == 6 && address[1] == 0) {
        in6->sin6_family = AF_INET6;
        memcpy(&in6->sin6_port, address + 2, 2);
        memcpy(&in6->sin6_addr, address + HEADER_BYTES, sizeof(in6->sin6_addr));
        return sizeof(*in6);
    }
    return 0;
}
