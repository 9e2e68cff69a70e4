/* SPDX-License-Identifier: BSD-3-Clause */
#include "fabric/verbs.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "fabric/address.h"

#define CONNECT_TIMEOUT_NS UINT64_C(10000000000)
#define BACKLOG            1024
#define WRITE_BYTES_MAX    (UINT64_C(1) << 30) /* of one write, where the device would take more */
#define LINKS_AT_FIRST     32                  /* that the completion queue has room for */
#define CQ_PER_LINK        (VERBS_SENDS + VERBS_RECEIVES + 1)

static_assert(VERBS_SENDS <= VERBS_OPS, "each posted send has its place");
static_assert(VERBS_OUTSTANDING / 2 > VERBS_OWN_SENDS, "a completion comes before the queue is full");

uint64_t verbs_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* The descriptor becomes readable at deadline_ns; never with 0. */
void verbs_timer_set(struct verbs *verbs, uint64_t deadline_ns)
{
    const struct itimerspec when = {.it_value = {.tv_sec = (time_t)(deadline_ns / UINT64_C(1000000000)),
                                                 .tv_nsec = (long)(deadline_ns % UINT64_C(1000000000))}};

    verbs->deadline_ns = deadline_ns;
    timerfd_settime(verbs->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

void verbs_list_append(struct verbs_list *list, struct verbs_link *link)
{
    link->next = NULL;
    *list->last = link;
    list->last = &link->next;
}

struct verbs_link *verbs_list_pop(struct verbs_list *list)
{
    struct verbs_link *link = list->first;

    list->first = link->next;
    if (list->first == NULL)
        list->last = &list->first;
    return link;
}

static size_t verbs_address(const struct fabric *base, uint8_t address[FABRIC_ADDRESS_MAX])
{
    const struct verbs *verbs = (const struct verbs *)base;

    memcpy(address, verbs->address, verbs->address_bytes);
    return verbs->address_bytes;
}

/* --- Opening -------------------------------------------------------------------------------------------- */

static int fail_step(const char *step, int error, struct fail *fail)
{
    return fail_set(fail, COVEY_FABRIC, "provider verbs: %s: %s", step, strerror(error));
}

static int fail_no_rdma(int error, struct fail *fail)
{
    return fail_set(
        fail, COVEY_UNSUPPORTED,
        "provider verbs: this host has no RDMA: %s (module rdma_ucm must be loaded; in a container "
        "/dev/infiniband must be there)",
        strerror(error));
}

static int fail_no_device(const char *host, int error, struct fail *fail)
{
    return fail_set(
        fail, COVEY_UNSUPPORTED,
        "provider verbs: no RDMA device has the address %s: %s (`rdma link` shows the devices and "
        "their interfaces)",
        host, strerror(error));
}

/* Bind to the node's address: that names the device and its port. */
static int device_find(struct verbs *verbs, const struct fabric_options *options, struct fail *fail)
{
    char host[NI_MAXHOST];

    if ((options->address->sa_family != AF_INET && options->address->sa_family != AF_INET6) ||
        getnameinfo(options->address, (socklen_t)options->address_bytes, host, sizeof(host), NULL, 0,
                    NI_NUMERICHOST) != 0)
        return fail_set(fail, COVEY_INVALID, "the fabric's address is neither IPv4 nor IPv6");
    memcpy(&verbs->self, options->address, options->address_bytes);
    if (verbs->self.ss_family == AF_INET)
        ((struct sockaddr_in *)&verbs->self)->sin_port = 0;
    else
        ((struct sockaddr_in6 *)&verbs->self)->sin6_port = 0;
    verbs->channel = rdma_create_event_channel();
    if (verbs->channel == NULL)
        return fail_no_rdma(errno, fail);
    if (rdma_create_id(verbs->channel, &verbs->listener, NULL, RDMA_PS_TCP) != 0) {
        verbs->listener = NULL;
        return fail_no_rdma(errno, fail);
    }
    if (rdma_bind_addr(verbs->listener, (struct sockaddr *)&verbs->self) != 0)
        return fail_no_device(host, errno, fail);
    verbs->context = verbs->listener->verbs;
    if (verbs->context == NULL)
        return fail_no_device(host, ENODEV, fail);
    return 0;
}

/* What the device and its port can do, and whether that will do. */
static int limits_take(struct verbs *verbs, struct fail *fail)
{
    const char *name = ibv_get_device_name(verbs->context->device);
    struct fabric_limits *limits = &verbs->base.limits;
    int error = ibv_query_device(verbs->context, &verbs->device);

    if (error == 0)
        error = ibv_query_port(verbs->context, verbs->listener->port_num, &verbs->port);
    if (error != 0)
        return fail_step("cannot ask the device", error, fail);
    if (verbs->port.state != IBV_PORT_ACTIVE)
        return fail_set(fail, COVEY_UNSUPPORTED,
                        "provider verbs: port %u of %s is %s: is its cable in, is the interface up, and on "
                        "InfiniBand does a subnet manager run?",
                        verbs->listener->port_num, name, ibv_port_state_str(verbs->port.state));
    if (verbs->device.max_qp_wr < VERBS_SENDS || verbs->device.max_sge < FABRIC_PIECES_MAX ||
        verbs->device.max_cqe < CQ_PER_LINK || verbs->port.max_msg_sz < FABRIC_MESSAGE_MAX)
        return fail_set(
            fail, COVEY_UNSUPPORTED,
            "provider verbs: %s queues %d work requests of %d pieces and %d completions, and sends "
            "%u bytes at once: too little for Covey",
            name, verbs->device.max_qp_wr, verbs->device.max_sge, verbs->device.max_cqe,
            verbs->port.max_msg_sz);
    limits->write_bytes = verbs->port.max_msg_sz > WRITE_BYTES_MAX ? WRITE_BYTES_MAX : verbs->port.max_msg_sz;
    limits->outstanding = VERBS_OUTSTANDING;
    verbs->base.needs_local = true;
    return 0;
}

static int entries_for(const struct verbs *verbs, uint32_t links)
{
    uint64_t entries = (uint64_t)links * CQ_PER_LINK;

    return entries < (uint64_t)verbs->device.max_cqe ? (int)entries : verbs->device.max_cqe;
}

static int queues_open(struct verbs *verbs, struct fail *fail)
{
    verbs->pd = ibv_alloc_pd(verbs->context);
    if (verbs->pd == NULL)
        return fail_step("cannot make a protection domain", errno, fail);
    verbs->completions = ibv_create_comp_channel(verbs->context);
    if (verbs->completions == NULL)
        return fail_step("cannot make a completion channel", errno, fail);
    verbs->cq =
        ibv_create_cq(verbs->context, entries_for(verbs, LINKS_AT_FIRST), NULL, verbs->completions, 0);
    if (verbs->cq == NULL)
        return fail_step("cannot make a completion queue", errno, fail);
    verbs->links_max = (uint32_t)verbs->cq->cqe / CQ_PER_LINK;
    return 0;
}

int verbs_cq_grow(struct verbs *verbs, uint32_t links, struct fail *fail)
{
    int error;

    if (links <= verbs->links_max)
        return 0;
    error = ibv_resize_cq(verbs->cq, entries_for(verbs, 2 * verbs->links_max));
    verbs->links_max = (uint32_t)verbs->cq->cqe / CQ_PER_LINK;
    if (error == 0 && links <= verbs->links_max)
        return 0;
    return fail_set(fail, COVEY_NO_MEMORY, "the RDMA device has room for %u links%s%s", verbs->links_max,
                    error == 0 ? "" : ": ", error == 0 ? "" : strerror(error));
}

/* Inline sends of that size, or as much as the device takes. */
static void inline_probe(struct verbs *verbs)
{
    for (verbs->inline_bytes = VERBS_INLINE_BYTES; verbs->inline_bytes > 0; verbs->inline_bytes /= 2) {
        struct ibv_qp_init_attr attr = {.send_cq = verbs->cq,
                                        .recv_cq = verbs->cq,
                                        .cap = {.max_send_wr = VERBS_SENDS,
                                                .max_recv_wr = VERBS_RECEIVES + 1,
                                                .max_send_sge = FABRIC_PIECES_MAX,
                                                .max_recv_sge = 1,
                                                .max_inline_data = verbs->inline_bytes},
                                        .qp_type = IBV_QPT_RC};
        struct ibv_qp *qp = ibv_create_qp(verbs->pd, &attr);

        if (qp != NULL) {
            ibv_destroy_qp(qp);
            return;
        }
    }
}

static int listen_open(struct verbs *verbs, struct fail *fail)
{
    if (rdma_listen(verbs->listener, BACKLOG) != 0)
        return fail_step("cannot listen", errno, fail);
    verbs->address_bytes =
        address_encode((const struct sockaddr_storage *)rdma_get_local_addr(verbs->listener), verbs->address);
    return 0;
}

static int watch(const struct verbs *verbs, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0)
        return -1;
    return epoll_ctl(verbs->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int wait_open(struct verbs *verbs, struct fail *fail)
{
    verbs->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    verbs->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (verbs->epoll_fd < 0 || verbs->timer_fd < 0)
        return fail_step("cannot make descriptors", errno, fail);
    if (watch(verbs, verbs->completions->fd) != 0 || watch(verbs, verbs->channel->fd) != 0 ||
        watch(verbs, verbs->timer_fd) != 0)
        return fail_step("cannot wait for its queues", errno, fail);
    return 0;
}

static void verbs_close(struct fabric *base)
{
    struct verbs *verbs = verbs_of(base);

    if (verbs->listener != NULL)
        rdma_destroy_id(verbs->listener);
    if (verbs->cq != NULL) {
        ibv_ack_cq_events(verbs->cq, verbs->unacknowledged);
        ibv_destroy_cq(verbs->cq);
    }
    if (verbs->completions != NULL)
        ibv_destroy_comp_channel(verbs->completions);
    if (verbs->pd != NULL)
        ibv_dealloc_pd(verbs->pd);
    if (verbs->channel != NULL)
        rdma_destroy_event_channel(verbs->channel);
    if (verbs->timer_fd >= 0)
        close(verbs->timer_fd);
    if (verbs->epoll_fd >= 0)
        close(verbs->epoll_fd);
    free(verbs->slots);
    free(verbs);
}

static int verbs_open(const struct fabric_options *options, struct fabric **fabric, struct fail *fail)
{
    struct verbs *verbs = calloc(1, sizeof(*verbs));
    int error;

    if (verbs == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory to open provider verbs");
    verbs->epoll_fd = verbs->timer_fd = -1;
    verbs->log = *options->log;
    verbs->connect_timeout_ns =
        options->connect_timeout_ns > 0 ? options->connect_timeout_ns : CONNECT_TIMEOUT_NS;
    verbs->ending.last = &verbs->ending.first;
    verbs->ended.last = &verbs->ended.first;
    verbs->base.provider = "verbs";

    error = device_find(verbs, options, fail);
    if (error == 0)
        error = limits_take(verbs, fail);
    if (error == 0)
        error = queues_open(verbs, fail);
    if (error == 0)
        error = listen_open(verbs, fail);
    if (error == 0)
        error = wait_open(verbs, fail);
    if (error != 0) {
        verbs_close(&verbs->base);
        return error;
    }
    inline_probe(verbs);
    *fabric = &verbs->base;
    return 0;
}

/* --- Registrations -------------------------------------------------------------------------------------- */

/* Devices pin what is registered, and the kernel counts that against the limit of locked memory. */
static int fail_register(size_t bytes, int error, struct fail *fail)
{
    struct rlimit limit;

    if (error == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        return fail_set(fail, COVEY_NO_MEMORY,
                        "provider verbs cannot register %zu bytes: they are pinned, and the limit of locked "
                        "memory is %llu "
                        "bytes for all together; raise it (ulimit -l unlimited, or LimitMEMLOCK=infinity in "
                        "the service's "
                        "unit, or --ulimit memlock=-1 for a container)",
                        bytes, (unsigned long long)limit.rlim_cur);
    return fail_set(fail, error == ENOMEM ? COVEY_NO_MEMORY : COVEY_FABRIC,
                    "provider verbs cannot register %zu bytes: %s", bytes, strerror(error));
}

struct ibv_mr *verbs_register_raw(struct verbs *verbs, void *base, size_t bytes, int access,
                                  struct fail *fail)
{
    struct ibv_mr *mr = ibv_reg_mr(verbs->pd, base, bytes, access);

    if (mr == NULL)
        fail_register(bytes, errno, fail);
    return mr;
}

static int verbs_register(struct fabric *fabric, void *base, size_t bytes, enum covey_memory memory,
                          int device, bool remote, struct fabric_region **out, struct fail *fail)
{
    struct verbs_region *region;

    (void)device;
    if (memory != COVEY_MEMORY_HOST)
        return fail_set(fail, COVEY_UNSUPPORTED, "provider verbs reaches host memory only");
    region = calloc(1, sizeof(*region));
    if (region == NULL)
        return fail_set(fail, COVEY_NO_MEMORY, "no memory for a registration");
    /* Memory that peers do not write to may be read-only. */
    region->mr = verbs_register_raw(verbs_of(fabric), base, bytes,
                                    remote ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0, fail);
    if (region->mr == NULL) {
        free(region);
        return fail->code;
    }
    *out = &region->base;
    return 0;
}

static void verbs_deregister(struct fabric_region *base)
{
    struct verbs_region *region = (struct verbs_region *)base;

    ibv_dereg_mr(region->mr);
    free(region);
}

static void verbs_region_remote(const struct fabric_region *base, uint64_t *address, uint64_t *key)
{
    const struct verbs_region *region = (const struct verbs_region *)base;

    *address = (uintptr_t)region->mr->addr;
    *key = region->mr->rkey;
}

static int verbs_fd(const struct fabric *fabric)
{
    return ((const struct verbs *)fabric)->epoll_fd;
}

const struct fabric_backend fabric_verbs = {
    .name = "verbs",
    .open = verbs_open,
    .close = verbs_close,
    .address = verbs_address,
    .link_connect = verbs_link_connect,
    .link_expect = verbs_link_expect,
    .link_close = verbs_link_close,
    .link_free = verbs_link_free,
    .write = verbs_write,
    .send = verbs_send,
    .register_memory = verbs_register,
    .deregister = verbs_deregister,
    .region_remote = verbs_region_remote,
    .poll = verbs_poll,
    .fd = verbs_fd,
    .arm = verbs_arm,
};
