/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/lib/fake_fabric.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define OUTSTANDING 64

struct queued {
    struct fabric_event event;
    struct queued *next;
    uint8_t data[];
};

struct fabric_region {
    struct fabric *fabric;
    uint8_t *base;
    size_t bytes;
    uint64_t key;
    bool remote;
    struct fabric_region *next;
};

enum link_state { LINK_STARTING, LINK_READY, LINK_ENDED };

struct fabric_link {
    struct fabric *fabric;
    enum fabric_lane lane;
    enum link_state state;
    bool down_delivered;
    uint8_t token[FABRIC_TOKEN_BYTES];
    void *context;
    struct fabric_link *other; /* the other end */
    struct fabric_link *next;
};

struct fabric {
    uint64_t address;
    int fd;
    bool dead;
    unsigned fail_in; /* 1: the next link; 0: none */
    bool held[FABRIC_LANES];
    struct queued *first, **end;
    struct queued *shown; /* by the last poll */
    struct fabric_link *links;
    struct fabric_region *regions;
    struct fabric_counters counters;
    char provider[16];
    struct fabric *next;
};

static struct fabric *fabrics;
static uint64_t next_number = 1;

/* --- Events --------------------------------------------------------------------------------------------- */

static void queue(struct fabric_link *link, struct fabric_event event)
{
    struct fabric *fabric = link->fabric;
    struct queued *queued = calloc(1, sizeof(*queued) + event.bytes);

    assert(queued != NULL);
    event.link = link;
    event.context = link->context;
    queued->event = event;
    if (event.bytes > 0) {
        memcpy(queued->data, event.data, event.bytes);
        queued->event.data = queued->data;
    }
    *fabric->end = queued;
    fabric->end = &queued->next;
    eventfd_write(fabric->fd, 1);
}

static void end_link(struct fabric_link *link, int error, const char *text)
{
    struct fabric_link *other = link->other;

    if (link->state == LINK_ENDED)
        return;
    link->state = LINK_ENDED;
    link->other = NULL;
    queue(link, (struct fabric_event){.type = FABRIC_LINK_DOWN, .error = error, .text = text});
    if (other != NULL) {
        other->other = NULL;
        end_link(other, COVEY_PEER_LOST, "the other end closed it");
    }
}

static void free_queued(struct queued *list)
{
    while (list != NULL) {
        struct queued *next = list->next;
        free(list);
        list = next;
    }
}

/* Unlink *at from the queue and keep it until the next poll. */
static void show(struct fabric *fabric, struct queued **at, struct fabric_event *event)
{
    struct queued *queued = *at;

    *at = queued->next;
    if (fabric->end == &queued->next)
        fabric->end = at;
    queued->next = fabric->shown;
    fabric->shown = queued;
    *event = queued->event;
    if (event->type == FABRIC_LINK_DOWN)
        event->link->down_delivered = true;
}

size_t fabric_poll(struct fabric *fabric, struct fabric_event events[], size_t max)
{
    struct queued **at = &fabric->first;
    uint64_t count;
    size_t taken = 0;

    free_queued(fabric->shown);
    fabric->shown = NULL;
    eventfd_read(fabric->fd, &count);
    while (*at != NULL && taken < max) {
        if (fabric->held[(*at)->event.link->lane])
            at = &(*at)->next;
        else
            show(fabric, at, &events[taken++]);
    }
    if (*at != NULL)
        eventfd_write(fabric->fd, 1);
    return taken;
}

int fabric_fd(const struct fabric *fabric)
{
    return fabric->fd;
}

bool fabric_arm(struct fabric *fabric)
{
    for (const struct queued *queued = fabric->first; queued != NULL; queued = queued->next) {
        if (!fabric->held[queued->event.link->lane])
            return false;
    }
    return true;
}

/* --- The fabric ----------------------------------------------------------------------------------------- */

int fabric_open(const struct fabric_options *options, struct fabric **fabric, struct fail *fail)
{
    struct fabric *opened = calloc(1, sizeof(*opened));

    (void)fail;
    assert(opened != NULL);
    opened->address = next_number++;
    opened->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert(opened->fd >= 0);
    opened->end = &opened->first;
    strncpy(opened->provider, options->provider, sizeof(opened->provider) - 1);
    opened->next = fabrics;
    fabrics = opened;
    *fabric = opened;
    return COVEY_OK;
}

void fabric_close(struct fabric *fabric)
{
    struct fabric **at = &fabrics;

    if (fabric == NULL)
        return;
    assert(fabric->links == NULL && fabric->regions == NULL);
    while (*at != fabric)
        at = &(*at)->next;
    *at = fabric->next;
    free_queued(fabric->first);
    free_queued(fabric->shown);
    close(fabric->fd);
    free(fabric);
}

const struct fabric_limits *fabric_limits(const struct fabric *fabric)
{
    static const struct fabric_limits limits = {.write_bytes = UINT64_C(1) << 30, .outstanding = OUTSTANDING};

    (void)fabric;
    return &limits;
}

const char *fabric_provider(const struct fabric *fabric)
{
    return fabric->provider;
}

size_t fabric_address(const struct fabric *fabric, uint8_t address[FABRIC_ADDRESS_MAX])
{
    memcpy(address, &fabric->address, sizeof(fabric->address));
    return sizeof(fabric->address);
}

void fabric_counters(const struct fabric *fabric, struct fabric_counters *counters)
{
    *counters = fabric->counters;
}

/* --- Links ---------------------------------------------------------------------------------------------- */

static struct fabric_link *new_link(struct fabric *fabric, enum fabric_lane lane,
                                    const uint8_t token[FABRIC_TOKEN_BYTES], void *context)
{
    struct fabric_link *link = calloc(1, sizeof(*link));

    assert(link != NULL);
    link->fabric = fabric;
    link->lane = lane;
    link->context = context;
    memcpy(link->token, token, sizeof(link->token));
    link->next = fabric->links;
    fabric->links = link;
    return link;
}

static struct fabric *find_fabric(const uint8_t *address, size_t bytes)
{
    struct fabric *fabric = fabrics;

    while (fabric != NULL && (bytes != sizeof(fabric->address) ||
                              memcmp(&fabric->address, address, bytes) != 0 || fabric->dead))
        fabric = fabric->next;
    return fabric;
}

static struct fabric_link *find_expected(const struct fabric *fabric, const struct fabric_link *link)
{
    struct fabric_link *expected = fabric->links;

    while (expected != NULL &&
           (expected->state != LINK_STARTING || expected->other != NULL || expected->lane != link->lane ||
            memcmp(expected->token, link->token, sizeof(link->token)) != 0))
        expected = expected->next;
    return expected;
}

static bool fails_now(struct fabric *fabric, struct fail *fail)
{
    if (fabric->fail_in == 0 || --fabric->fail_in > 0)
        return false;
    fail_set(fail, COVEY_FABRIC, "the fake fabric was told to fail");
    return true;
}

int fabric_link_connect(struct fabric *fabric, enum fabric_lane lane, const uint8_t *address,
                        size_t address_bytes, const uint8_t token[FABRIC_TOKEN_BYTES], void *context,
                        struct fabric_link **link, struct fail *fail)
{
    struct fabric *there = find_fabric(address, address_bytes);
    struct fabric_link *other;

    if (fails_now(fabric, fail))
        return fail->code;
    *link = new_link(fabric, lane, token, context);
    other = there != NULL ? find_expected(there, *link) : NULL;
    if (other == NULL) {
        if (there != NULL)
            there->counters.refused_connections++;
        end_link(*link, COVEY_UNREACHABLE, there != NULL ? "unknown token" : "nobody is there");
        return COVEY_OK;
    }
    other->other = *link;
    (*link)->other = other;
    (*link)->state = other->state = LINK_READY;
    queue(*link, (struct fabric_event){.type = FABRIC_LINK_UP});
    queue(other, (struct fabric_event){.type = FABRIC_LINK_UP});
    return COVEY_OK;
}

int fabric_link_expect(struct fabric *fabric, enum fabric_lane lane, const uint8_t token[FABRIC_TOKEN_BYTES],
                       void *context, struct fabric_link **link, struct fail *fail)
{
    if (fails_now(fabric, fail))
        return fail->code;
    *link = new_link(fabric, lane, token, context);
    return COVEY_OK;
}

void fabric_link_close(struct fabric_link *link)
{
    end_link(link, COVEY_OK, "closed here");
}

void fabric_link_free(struct fabric_link *link)
{
    struct fabric_link **at = &link->fabric->links;

    assert(link->down_delivered);
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    free(link);
}

/* --- Bytes ---------------------------------------------------------------------------------------------- */

static size_t gather(const struct fabric_write *write, uint8_t *to)
{
    size_t bytes = 0;

    for (size_t i = 0; i < write->count; i++) {
        if (to != NULL && write->pieces[i].bytes > 0)
            memcpy(to + bytes, write->pieces[i].base, write->pieces[i].bytes);
        bytes += write->pieces[i].bytes;
    }
    return bytes;
}

static bool is_granted(const struct fabric *fabric, const struct fabric_write *write, size_t bytes)
{
    for (const struct fabric_region *region = fabric->regions; region != NULL; region = region->next) {
        uint64_t base = (uint64_t)(uintptr_t)region->base;
        if (region->key == write->remote_key && region->remote && write->remote_address >= base &&
            write->remote_address - base <= region->bytes &&
            bytes <= region->bytes - (write->remote_address - base))
            return true;
    }
    return bytes == 0;
}

int fabric_write(struct fabric_link *link, const struct fabric_write *write)
{
    size_t bytes = gather(write, NULL);

    if (write->count > FABRIC_PIECES_MAX || bytes > fabric_limits(link->fabric)->write_bytes)
        return COVEY_INVALID;
    if (link->state != LINK_READY)
        return COVEY_PEER_LOST;
    if (!is_granted(link->other->fabric, write, bytes)) {
        end_link(link, COVEY_FABRIC, "a write was not granted");
        return COVEY_OK;
    }
    gather(write, (uint8_t *)(uintptr_t)write->remote_address);
    link->fabric->counters.writes++;
    link->fabric->counters.written_bytes += bytes;
    if (write->immediate != FABRIC_IMMEDIATE_NONE)
        queue(link->other,
              (struct fabric_event){.type = FABRIC_ARRIVED, .immediate = (uint32_t)write->immediate});
    if (write->signalled)
        queue(link, (struct fabric_event){.type = FABRIC_WRITE_DONE, .cookie = write->cookie});
    return COVEY_OK;
}

int fabric_send(struct fabric_link *link, const void *data, size_t bytes)
{
    if (bytes == 0 || bytes > FABRIC_MESSAGE_MAX)
        return COVEY_INVALID;
    if (link->state != LINK_READY)
        return COVEY_PEER_LOST;
    link->fabric->counters.messages++;
    queue(link->other, (struct fabric_event){.type = FABRIC_MESSAGE, .data = data, .bytes = bytes});
    return COVEY_OK;
}

/* --- Memory --------------------------------------------------------------------------------------------- */

bool fabric_needs_local(const struct fabric *fabric)
{
    (void)fabric;
    return false;
}

int fabric_register(struct fabric *fabric, void *base, size_t bytes, enum covey_memory memory, int device,
                    bool remote, struct fabric_region **region, struct fail *fail)
{
    struct fabric_region *registered = calloc(1, sizeof(*registered));

    (void)device;
    (void)fail;
    assert(registered != NULL && memory == COVEY_MEMORY_HOST && bytes > 0);
    *registered = (struct fabric_region){fabric, base, bytes, next_number++, remote, fabric->regions};
    fabric->regions = registered;
    *region = registered;
    return COVEY_OK;
}

void fabric_deregister(struct fabric_region *region)
{
    struct fabric_region **at = &region->fabric->regions;

    while (*at != region)
        at = &(*at)->next;
    *at = region->next;
    free(region);
}

void fabric_region_remote(const struct fabric_region *region, uint64_t *address, uint64_t *key)
{
    *address = (uint64_t)(uintptr_t)region->base;
    *key = region->key;
}

/* --- For tests ------------------------------------------------------------------------------------------ */

void fake_fabric_kill(struct fabric *fabric)
{
    fabric->dead = true;
    for (struct fabric_link *link = fabric->links; link != NULL; link = link->next)
        end_link(link, COVEY_PEER_LOST, "this end was killed");
}

void fake_fabric_hold(struct fabric *fabric, enum fabric_lane lane, bool hold)
{
    fabric->held[lane] = hold;
    eventfd_write(fabric->fd, 1);
}

void fake_fabric_fail_next(struct fabric *fabric, unsigned after)
{
    fabric->fail_in = 1 + after;
}

size_t fake_fabric_links(const struct fabric *fabric)
{
    size_t count = 0;

    for (const struct fabric_link *link = fabric->links; link != NULL; link = link->next)
        count++;
    return count;
}
