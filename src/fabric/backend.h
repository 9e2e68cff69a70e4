/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FABRIC_BACKEND_H
#define FABRIC_BACKEND_H

/* What a backend of fabric.h gives: one table of operations, and the beginnings of its three structures.
 *
 * fabric.c checks what is the same for all backends (sizes, counts, that a link is up, who is left at close)
 * and calls through the table; the contract of each operation is that of its namesake in fabric.h. A backend
 * keeps `state` of its links and the counters of its fabric, except those of regions and links, which
 * fabric.c counts. */

#include <pthread.h>
#include <signal.h>

#include "fabric/fabric.h"

/* A signal that interrupts what a device does on opening, connecting and registering makes it fail half-way:
 * none is delivered meanwhile. */
static inline void fabric_signals_block(sigset_t *before)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

static inline void fabric_signals_restore(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

enum fabric_link_state {
    FABRIC_LINK_STARTING, /* connecting, expecting or accepting */
    FABRIC_LINK_READY,    /* FABRIC_LINK_UP was delivered, or is the next event */
    FABRIC_LINK_ENDING,   /* FABRIC_LINK_DOWN will be delivered */
    FABRIC_LINK_ENDED     /* FABRIC_LINK_DOWN was delivered */
};

struct fabric_backend {
    const char *name;
    int (*open)(const struct fabric_options *options, struct fabric **fabric, struct fail *fail);
    void (*close)(struct fabric *fabric);
    size_t (*address)(const struct fabric *fabric, uint8_t address[FABRIC_ADDRESS_MAX]);

    int (*link_connect)(struct fabric *fabric, enum fabric_lane lane, const uint8_t *address,
                        size_t address_bytes, const uint8_t token[FABRIC_TOKEN_BYTES],
                        struct fabric_link **link, struct fail *fail);
    int (*link_expect)(struct fabric *fabric, enum fabric_lane lane, const uint8_t token[FABRIC_TOKEN_BYTES],
                       struct fabric_link **link, struct fail *fail);
    void (*link_close)(struct fabric_link *link); /* of a link that is STARTING or READY */
    void (*link_free)(struct fabric_link *link);

    int (*write)(struct fabric_link *link, const struct fabric_write *write, uint64_t bytes);
    int (*send)(struct fabric_link *link, const void *data, size_t bytes);

    int (*register_memory)(struct fabric *fabric, void *base, size_t bytes, enum covey_memory memory,
                           int device, bool remote, struct fabric_region **region, struct fail *fail);
    void (*deregister)(struct fabric_region *region);
    void (*region_remote)(const struct fabric_region *region, uint64_t *address, uint64_t *key);

    size_t (*poll)(struct fabric *fabric, struct fabric_event events[], size_t max);
    int (*fd)(const struct fabric *fabric);
    bool (*arm)(struct fabric *fabric);
};

struct fabric {
    const struct fabric_backend *backend;
    const char *provider;
    bool needs_local;
    struct fabric_limits limits;
    struct fabric_counters counters;
    uint32_t links, regions;
};

struct fabric_link {
    struct fabric *fabric;
    enum fabric_lane lane;
    enum fabric_link_state state;
    void *context;
};

struct fabric_region {
    struct fabric *fabric;
};

extern const struct fabric_backend fabric_ofi, fabric_verbs;

#endif
