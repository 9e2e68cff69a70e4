/* SPDX-License-Identifier: BSD-3-Clause */
#include "fabric/fabric.h"

#include <assert.h>
#include <string.h>

#include "fabric/backend.h"

int fabric_open(const struct fabric_options *options, struct fabric **fabric, struct fail *fail)
{
    const struct fabric_backend *backend =
        strcmp(options->provider, "verbs") == 0 ? &fabric_verbs : &fabric_ofi;
    sigset_t signals;
    int error;

    fabric_signals_block(&signals);
    error = backend->open(options, fabric, fail);
    fabric_signals_restore(&signals);
    if (error != 0)
        return error;
    (*fabric)->backend = backend;
    if (options->write_bytes_limit > 0 && options->write_bytes_limit < (*fabric)->limits.write_bytes)
        (*fabric)->limits.write_bytes = options->write_bytes_limit;
    return 0;
}

void fabric_close(struct fabric *fabric)
{
    sigset_t signals;

    if (fabric == NULL)
        return;
    assert(fabric->links == 0);
    assert(fabric->regions == 0);
    fabric_signals_block(&signals);
    fabric->backend->close(fabric);
    fabric_signals_restore(&signals);
}

const struct fabric_limits *fabric_limits(const struct fabric *fabric)
{
    return &fabric->limits;
}

const char *fabric_provider(const struct fabric *fabric)
{
    return fabric->provider;
}

size_t fabric_address(const struct fabric *fabric, uint8_t address[FABRIC_ADDRESS_MAX])
{
    return fabric->backend->address(fabric, address);
}

/* --- Links ---------------------------------------------------------------------------------------------- */

static void link_begin(struct fabric *fabric, struct fabric_link *link, enum fabric_lane lane, void *context)
{
    link->fabric = fabric;
    link->lane = lane;
    link->context = context;
    fabric->links++;
}

int fabric_link_connect(struct fabric *fabric, enum fabric_lane lane, const uint8_t *address,
                        size_t address_bytes, const uint8_t token[FABRIC_TOKEN_BYTES], void *context,
                        struct fabric_link **link, struct fail *fail)
{
    sigset_t signals;
    int error;

    fabric_signals_block(&signals);
    error = fabric->backend->link_connect(fabric, lane, address, address_bytes, token, link, fail);
    fabric_signals_restore(&signals);
    if (error == 0)
        link_begin(fabric, *link, lane, context);
    return error;
}

int fabric_link_expect(struct fabric *fabric, enum fabric_lane lane, const uint8_t token[FABRIC_TOKEN_BYTES],
                       void *context, struct fabric_link **link, struct fail *fail)
{
    int error = fabric->backend->link_expect(fabric, lane, token, link, fail);

    if (error == 0)
        link_begin(fabric, *link, lane, context);
    return error;
}

void fabric_link_close(struct fabric_link *link)
{
    if (link->state == FABRIC_LINK_STARTING || link->state == FABRIC_LINK_READY)
        link->fabric->backend->link_close(link);
}

void fabric_link_free(struct fabric_link *link)
{
    assert(link->state == FABRIC_LINK_ENDED);
    assert(link->fabric->links > 0);
    link->fabric->links--;
    link->fabric->backend->link_free(link);
}

/* --- Posts ---------------------------------------------------------------------------------------------- */

/* Sum of the pieces; UINT64_MAX if it has no 64-bit value. */
static uint64_t write_bytes(const struct fabric_write *write)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < write->count; i++) {
        if (__builtin_add_overflow(bytes, write->pieces[i].bytes, &bytes))
            return UINT64_MAX;
    }
    return bytes;
}

int fabric_write(struct fabric_link *link, const struct fabric_write *write)
{
    struct fabric *fabric = link->fabric;
    uint64_t bytes;
    int error;

    if (write->count > FABRIC_PIECES_MAX)
        return COVEY_INVALID;
    bytes = write_bytes(write);
    if (bytes > fabric->limits.write_bytes)
        return COVEY_INVALID;
    if (write->immediate > UINT32_MAX && write->immediate != FABRIC_IMMEDIATE_NONE)
        return COVEY_INVALID;
    if (link->state != FABRIC_LINK_READY)
        return COVEY_PEER_LOST;
    error = fabric->backend->write(link, write, bytes);
    if (error == 0) {
        fabric->counters.writes++;
        fabric->counters.written_bytes += bytes;
    }
    return error;
}

int fabric_send(struct fabric_link *link, const void *data, size_t bytes)
{
    int error;

    if (bytes == 0 || bytes > FABRIC_MESSAGE_MAX)
        return COVEY_INVALID;
    if (link->state != FABRIC_LINK_READY)
        return COVEY_PEER_LOST;
    error = link->fabric->backend->send(link, data, bytes);
    if (error == 0)
        link->fabric->counters.messages++;
    return error;
}

/* --- Memory --------------------------------------------------------------------------------------------- */

bool fabric_needs_local(const struct fabric *fabric)
{
    return fabric->needs_local;
}

int fabric_register(struct fabric *fabric, void *base, size_t bytes, enum covey_memory memory, int device,
                    bool remote, struct fabric_region **region, struct fail *fail)
{
    sigset_t signals;
    int error;

    assert(bytes > 0);
    fabric_signals_block(&signals);
    error = fabric->backend->register_memory(fabric, base, bytes, memory, device, remote, region, fail);
    fabric_signals_restore(&signals);
    if (error == 0) {
        (*region)->fabric = fabric;
        fabric->regions++;
    }
    return error;
}

void fabric_deregister(struct fabric_region *region)
{
    sigset_t signals;

    assert(region->fabric->regions > 0);
    region->fabric->regions--;
    fabric_signals_block(&signals);
    region->fabric->backend->deregister(region);
    fabric_signals_restore(&signals);
}

void fabric_region_remote(const struct fabric_region *region, uint64_t *address, uint64_t *key)
{
    region->fabric->backend->region_remote(region, address, key);
}

/* --- Progress ------------------------------------------------------------------------------------------- */

size_t fabric_poll(struct fabric *fabric, struct fabric_event events[], size_t max)
{
    return fabric->backend->poll(fabric, events, max);
}

int fabric_fd(const struct fabric *fabric)
{
    return fabric->backend->fd(fabric);
}

bool fabric_arm(struct fabric *fabric)
{
    return fabric->backend->arm(fabric);
}

void fabric_counters(const struct fabric *fabric, struct fabric_counters *counters)
{
    *counters = fabric->counters;
}
