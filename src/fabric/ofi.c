/* SPDX-License-Identifier: BSD-3-Clause */
#include "fabric/ofi.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "fabric/address.h"

#define API_VERSION        FI_VERSION(1, 17)
#define LINKS_MAX          (COVEY_MEMBERS_MAX * FABRIC_LANES)
#define CONNECT_TIMEOUT_NS UINT64_C(10000000000)

static_assert(sizeof(void *) == sizeof(uint64_t), "contexts are 64-bit numbers");

struct ofi *ofi_of(const struct fabric *fabric)
{
    return (struct ofi *)fabric;
}

uint64_t ofi_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* The descriptor becomes readable at deadline_ns; never with 0. */
void ofi_timer_set(struct ofi *ofi, uint64_t deadline_ns)
{
    const struct itimerspec when = {.it_value = {.tv_sec = (time_t)(deadline_ns / UINT64_C(1000000000)),
                                                 .tv_nsec = (long)(deadline_ns % UINT64_C(1000000000))}};

    ofi->deadline_ns = deadline_ns;
    timerfd_settime(ofi->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

void ofi_list_append(struct ofi_list *list, struct ofi_link *link)
{
    link->next = NULL;
    *list->last = link;
    list->last = &link->next;
}

int ofi_error(int fi_error)
{
    switch (abs(fi_error)) {
    case FI_ENOMEM:
        return COVEY_NO_MEMORY;
    case FI_EAGAIN:
        return COVEY_AGAIN;
    default:
        return COVEY_FABRIC;
    }
}

static size_t ofi_address(const struct fabric *fabric, uint8_t address[FABRIC_ADDRESS_MAX])
{
    const struct ofi *ofi = ofi_of(fabric);

    memcpy(address, ofi->address, ofi->address_bytes);
    return ofi->address_bytes;
}

/* --- Opening -------------------------------------------------------------------------------------------- */

static int fail_step(struct ofi *ofi, const char *step, int error, struct fail *fail)
{
    return fail_set(fail, COVEY_FABRIC, "provider %s: %s: %s", ofi->name, step, fi_strerror(abs(error)));
}

static struct fi_info *hints_new(const char *provider, int family)
{
    struct fi_info *hints = fi_allocinfo();

    if (hints == NULL)
        return NULL;
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_RX_CQ_DATA;
    hints->addr_format = family == AF_INET ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
    hints->ep_attr->type = FI_EP_MSG;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->cq_data_size = sizeof(uint32_t);
    hints->tx_attr->msg_order = FI_ORDER_WAW | FI_ORDER_WAS | FI_ORDER_SAW | FI_ORDER_SAS;
    hints->fabric_attr->prov_name = strdup(provider);
    if (hints->fabric_attr->prov_name == NULL) {
        fi_freeinfo(hints);
        return NULL;
    }
    return hints;
}

static int fail_unsupported(const struct ofi *ofi, const char *host, int error, struct fail *fail)
{
    return fail_set(fail, COVEY_UNSUPPORTED,
                    "provider %s cannot serve address %s here: %s (`fi_info -p %s` shows what it can)",
                    ofi->name, host, fi_strerror(abs(error)), ofi->provider);
}

/* Providers that pin memory keep a registration alive in a cache of theirs after it was closed, with access
 * for all: its key would go on to let a peer write. Neither a flag nor an attribute prevents that, only
 * libfabric's environment, which must say so before the library is used first. What is set there already is
 * left alone. */
static void cache_forbid(const struct ofi *ofi)
{
    if (strcmp(ofi->provider, "tcp") != 0)
        setenv("FI_MR_CACHE_MONITOR", "disabled", 0);
}

static int info_open(struct ofi *ofi, const struct fabric_options *options, struct fail *fail)
{
    int family = options->address->sa_family;
    char host[NI_MAXHOST];
    struct fi_info *hints;
    int error;

    if ((family != AF_INET && family != AF_INET6) ||
        getnameinfo(options->address, (socklen_t)options->address_bytes, host, sizeof(host), NULL, 0,
                    NI_NUMERICHOST) != 0)
        return fail_set(fail, COVEY_INVALID, "the fabric's address is neither IPv4 nor IPv6");
    cache_forbid(ofi);
    hints = hints_new(ofi->provider, family);
    if (hints == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory to open provider %s", ofi->name);
    error = fi_getinfo(API_VERSION, host, NULL, FI_SOURCE | FI_NUMERICHOST, hints, &ofi->info);
    fi_freeinfo(hints);
    if (error != 0)
        return fail_unsupported(ofi, host, error, fail);
    return 0;
}

/* What the provider is like, and whether that will do. */
static int limits_take(struct ofi *ofi, struct fail *fail)
{
    const struct fi_info *info = ofi->info;
    struct fabric *base = &ofi->base;

    ofi->takes_receives = info->mode & FI_RX_CQ_DATA;
    ofi->completes_early = strncmp(ofi->provider, "tcp", 3) == 0 || strncmp(ofi->provider, "net", 3) == 0;
    ofi->tears_words = ofi->completes_early;
    ofi->receives = ofi->takes_receives ? OFI_RECEIVES_DATA : OFI_RECEIVES;
    base->needs_local = info->domain_attr->mr_mode & FI_MR_LOCAL;
    base->limits.write_bytes = info->ep_attr->max_msg_size;
    base->limits.outstanding = OFI_OUTSTANDING;
    while (base->limits.outstanding > info->tx_attr->size)
        base->limits.outstanding /= 2;
    if (info->tx_attr->iov_limit < FABRIC_PIECES_MAX || base->limits.write_bytes < FABRIC_MESSAGE_MAX ||
        base->limits.outstanding == 0 || info->rx_attr->size < ofi->receives ||
        (!ofi->takes_receives && info->domain_attr->cq_data_size < sizeof(uint64_t)))
        return fail_set(fail, COVEY_UNSUPPORTED,
                        "provider %s gathers %zu pieces, sends %zu bytes at once, queues %zu sends and %zu "
                        "receives and carries %zu bytes of completion data: too little for Covey",
                        ofi->name, info->tx_attr->iov_limit, info->ep_attr->max_msg_size, info->tx_attr->size,
                        info->rx_attr->size, info->domain_attr->cq_data_size);
    return 0;
}

/* Software queues grow. A device's do not: ask for room for all links there can be, else for what small
 * devices have, and bound the links by that. Few tries: libfabric 1.17 keeps two descriptors for each one
 * that fails. */
static int cq_open(struct ofi *ofi, struct fail *fail)
{
    const size_t per_link = ofi->base.limits.outstanding + ofi->receives;
    const size_t device_entries[] = {LINKS_MAX * per_link, 16384, 2048}, soft_entries[] = {1024};
    const size_t *entries = ofi->takes_receives ? device_entries : soft_entries;
    size_t tries = ofi->takes_receives ? 3 : 1;
    int error = 0;

    for (size_t i = 0; i < tries; i++) {
        struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD, .size = entries[i]};

        error = fi_cq_open(ofi->domain, &attr, &ofi->cq, NULL);
        if (error == 0) {
            ofi->links_max = ofi->takes_receives ? (uint32_t)(entries[i] / per_link) : UINT16_MAX;
            return 0;
        }
    }
    return fail_step(ofi, "cannot open a completion queue", error, fail);
}

static int domain_open(struct ofi *ofi, struct fail *fail)
{
    struct fi_eq_attr attr = {.wait_obj = FI_WAIT_FD};
    int error = fi_fabric(ofi->info->fabric_attr, &ofi->fabric, NULL);

    if (error != 0)
        return fail_step(ofi, "cannot open the fabric", error, fail);
    error = fi_domain(ofi->fabric, ofi->info, &ofi->domain, NULL);
    if (error != 0)
        return fail_step(ofi, "cannot open the domain", error, fail);
    error = fi_eq_open(ofi->fabric, &attr, &ofi->eq, NULL);
    if (error != 0)
        return fail_step(ofi, "cannot open an event queue", error, fail);
    return cq_open(ofi, fail);
}

static int listen_open(struct ofi *ofi, struct fail *fail)
{
    struct sockaddr_storage name;
    size_t bytes = sizeof(name);
    int error = fi_passive_ep(ofi->fabric, ofi->info, &ofi->pep, NULL);

    if (error == 0)
        error = fi_pep_bind(ofi->pep, &ofi->eq->fid, 0);
    if (error == 0)
        error = fi_listen(ofi->pep);
    if (error == 0)
        error = fi_getname(&ofi->pep->fid, &name, &bytes);
    if (error != 0)
        return fail_step(ofi, "cannot listen", error, fail);
    ofi->address_bytes = address_encode(&name, ofi->address);
    return 0;
}

static int watch(struct ofi *ofi, struct fid *fid, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    if (fid != NULL && fi_control(fid, FI_GETWAIT, &fd) != 0)
        return -1;
    return epoll_ctl(ofi->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int wait_open(struct ofi *ofi, struct fail *fail)
{
    ofi->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    ofi->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (ofi->epoll_fd < 0 || ofi->timer_fd < 0)
        return fail_step(ofi, "cannot make descriptors", errno, fail);
    if (watch(ofi, &ofi->cq->fid, -1) != 0 || watch(ofi, &ofi->eq->fid, -1) != 0 ||
        watch(ofi, NULL, ofi->timer_fd) != 0)
        return fail_step(ofi, "cannot wait for its queues", errno, fail);
    return 0;
}

static void close_fid(struct fid *fid)
{
    int error = fi_close(fid);

    assert(error == 0);
    (void)error;
}

static void ofi_close(struct fabric *fabric)
{
    struct ofi *ofi = ofi_of(fabric);

    if (ofi->pep != NULL)
        close_fid(&ofi->pep->fid);
    if (ofi->cq != NULL)
        close_fid(&ofi->cq->fid);
    if (ofi->eq != NULL)
        close_fid(&ofi->eq->fid);
    if (ofi->domain != NULL)
        close_fid(&ofi->domain->fid);
    if (ofi->fabric != NULL)
        close_fid(&ofi->fabric->fid);
    if (ofi->info != NULL)
        fi_freeinfo(ofi->info);
    if (ofi->timer_fd >= 0)
        close(ofi->timer_fd);
    if (ofi->epoll_fd >= 0)
        close(ofi->epoll_fd);
    free(ofi->slots);
    free(ofi);
}

/* "tcp" and "ofi:tcp" are the same, but "verbs" is a backend of its own. */
static void provider_name(struct ofi *ofi, const char *provider)
{
    if (strncmp(provider, "ofi:", 4) == 0)
        provider += 4;
    snprintf(ofi->provider, sizeof(ofi->provider), "%s", provider);
    snprintf(ofi->name, sizeof(ofi->name), "%s%s", strcmp(provider, "tcp") == 0 ? "" : "ofi:", ofi->provider);
    ofi->base.provider = ofi->name;
}

static int ofi_open(const struct fabric_options *options, struct fabric **fabric, struct fail *fail)
{
    struct ofi *ofi = calloc(1, sizeof(*ofi));
    int error;

    if (ofi == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory to open provider %s", options->provider);
    ofi->epoll_fd = ofi->timer_fd = -1;
    ofi->log = *options->log;
    ofi->connect_timeout_ns =
        options->connect_timeout_ns > 0 ? options->connect_timeout_ns : CONNECT_TIMEOUT_NS;
    ofi->ending.last = &ofi->ending.first;
    ofi->ended.last = &ofi->ended.first;
    provider_name(ofi, options->provider);

    error = info_open(ofi, options, fail);
    if (error == 0)
        error = limits_take(ofi, fail);
    if (error == 0)
        error = domain_open(ofi, fail);
    if (error == 0)
        error = listen_open(ofi, fail);
    if (error == 0)
        error = wait_open(ofi, fail);
    if (error != 0) {
        ofi_close(&ofi->base);
        return error;
    }
    *fabric = &ofi->base;
    return 0;
}

/* --- Registrations -------------------------------------------------------------------------------------- */

static int fail_register(const struct ofi *ofi, size_t bytes, int error, struct fail *fail)
{
    struct rlimit limit;

    if (abs(error) == FI_ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        return fail_set(
            fail, COVEY_NO_MEMORY,
            "provider %s cannot register %zu bytes: the limit of locked memory is %llu bytes; raise "
            "it (ulimit -l unlimited, or LimitMEMLOCK=infinity in the service's unit)",
            ofi->name, bytes, (unsigned long long)limit.rlim_cur);
    return fail_set(fail, ofi_error(error), "provider %s cannot register %zu bytes: %s", ofi->name, bytes,
                    fi_strerror(abs(error)));
}

int ofi_register_raw(struct ofi *ofi, void *base, size_t bytes, uint64_t access, struct fid_mr **mr,
                     struct fail *fail)
{
    int error = fi_mr_reg(ofi->domain, base, bytes, access, 0, ++ofi->next_key, 0, mr, NULL);

    return error == 0 ? 0 : fail_register(ofi, bytes, error, fail);
}

static int ofi_register(struct fabric *fabric, void *base, size_t bytes, enum covey_memory memory, int device,
                        bool remote, struct fabric_region **out, struct fail *fail)
{
    struct ofi *ofi = ofi_of(fabric);
    struct ofi_region *region;
    int error;

    (void)device;
    if (memory != COVEY_MEMORY_HOST)
        return fail_set(fail, COVEY_UNSUPPORTED, "provider %s reaches host memory only", ofi->name);
    region = calloc(1, sizeof(*region));
    if (region == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for a registration");
    error = ofi_register_raw(ofi, base, bytes, FI_WRITE | (remote ? FI_REMOTE_WRITE : 0), &region->mr, fail);
    if (error != 0) {
        free(region);
        return error;
    }
    if (ofi->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
        region->address = (uintptr_t)base;
    region->key = fi_mr_key(region->mr);
    region->memory = base;
    region->bytes = bytes;
    if (remote && ofi->tears_words)
        ofi_words_open(ofi, region);
    *out = &region->base;
    return 0;
}

static void ofi_deregister(struct fabric_region *base)
{
    struct ofi_region *region = (struct ofi_region *)base;

    ofi_words_close(ofi_of(base->fabric), region);
    close_fid(&region->mr->fid);
    free(region);
}

static void ofi_region_remote(const struct fabric_region *base, uint64_t *address, uint64_t *key)
{
    const struct ofi_region *region = (const struct ofi_region *)base;

    *address = region->address;
    *key = region->key;
}

static int ofi_fd(const struct fabric *fabric)
{
    return ofi_of(fabric)->epoll_fd;
}

const struct fabric_backend fabric_ofi = {
    .name = "ofi",
    .open = ofi_open,
    .close = ofi_close,
    .address = ofi_address,
    .link_connect = ofi_link_connect,
    .link_expect = ofi_link_expect,
    .link_close = ofi_link_close,
    .link_free = ofi_link_free,
    .write = ofi_write,
    .send = ofi_send,
    .register_memory = ofi_register,
    .deregister = ofi_deregister,
    .region_remote = ofi_region_remote,
    .poll = ofi_poll,
    .fd = ofi_fd,
    .arm = ofi_arm,
};
