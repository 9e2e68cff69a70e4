/* SPDX-License-Identifier: BSD-3-Clause */
#include "node/port_holder.h"

#include <ctype.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define HEX_MAX      33 /* an IPv6 address as /proc/net/tcp6 writes it */
#define STATE_LISTEN 0x0a

static unsigned port_of(const struct sockaddr_storage *address)
{
    return ntohs(address->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)address)->sin6_port
                                                : ((const struct sockaddr_in *)address)->sin_port);
}

/* The kernel prints an address as 32-bit words in the machine's byte order. */
static void host_hex(const struct sockaddr_storage *address, char hex[HEX_MAX])
{
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
    uint32_t word;

    if (address->ss_family != AF_INET6) {
        snprintf(hex, HEX_MAX, "%08X", ((const struct sockaddr_in *)address)->sin_addr.s_addr);
        return;
    }
    for (size_t i = 0; i < 4; i++) {
        memcpy(&word, in6->sin6_addr.s6_addr + 4 * i, sizeof(word));
        snprintf(hex + 8 * i, HEX_MAX - 8 * i, "%08X", word);
    }
}

static bool is_wildcard(const char *hex)
{
    return hex[strspn(hex, "0")] == '\0';
}

/* The inode of the socket that listens at the port, at this host's address or at all of them; 0: none. */
static unsigned long listener_inode(const char *table, const char *hex, unsigned port)
{
    char line[512], host[HEX_MAX];
    unsigned found_port, state;
    unsigned long inode, found = 0;
    FILE *file = fopen(table, "re");

    if (file == NULL)
        return 0;
    while (found == 0 && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, " %*d: %32[0-9A-F]:%x %*[0-9A-F]:%*x %x %*x:%*x %*x:%*x %*x %*d %*d %lu", host,
                   &found_port, &state, &inode) == 4 &&
            state == STATE_LISTEN && found_port == port && (strcasecmp(host, hex) == 0 || is_wildcard(host)))
            found = inode;
    }
    fclose(file);
    return found;
}

static bool has_open(const char *pid, const char *target)
{
    char folder[64], path[512], link[64];
    struct dirent *entry;
    bool found = false;
    DIR *fds;

    snprintf(folder, sizeof(folder), "/proc/%.20s/fd", pid);
    fds = opendir(folder);
    if (fds == NULL)
        return false;
    while (!found && (entry = readdir(fds)) != NULL) {
        ssize_t bytes;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        bytes = readlink(path, link, sizeof(link) - 1);
        link[bytes < 0 ? 0 : bytes] = '\0';
        found = strcmp(link, target) == 0;
    }
    closedir(fds);
    return found;
}

static void read_name(const char *pid, char *name, size_t bytes)
{
    char path[64];
    FILE *file;

    snprintf(name, bytes, "?");
    snprintf(path, sizeof(path), "/proc/%.20s/comm", pid);
    file = fopen(path, "re");
    if (file == NULL)
        return;
    if (fgets(name, (int)bytes, file) != NULL)
        name[strcspn(name, "\n")] = '\0';
    fclose(file);
}

static bool find_process(unsigned long inode, struct port_holder *holder)
{
    char target[64];
    struct dirent *entry;
    bool found = false;
    DIR *processes = opendir("/proc");

    if (processes == NULL)
        return false;
    snprintf(target, sizeof(target), "socket:[%lu]", inode);
    while (!found && (entry = readdir(processes)) != NULL) {
        if (!isdigit((unsigned char)entry->d_name[0]) || !has_open(entry->d_name, target))
            continue;
        holder->pid = atol(entry->d_name);
        read_name(entry->d_name, holder->name, sizeof(holder->name));
        found = true;
    }
    closedir(processes);
    return found;
}

bool port_holder_find(const struct sockaddr_storage *address, struct port_holder *holder)
{
    char hex[HEX_MAX];
    unsigned long inode = 0;

    host_hex(address, hex);
    if (address->ss_family == AF_INET)
        inode = listener_inode("/proc/self/net/tcp", hex, port_of(address));
    if (inode == 0)
        inode = listener_inode("/proc/self/net/tcp6", hex, port_of(address));
    return inode != 0 && find_process(inode, holder);
}
