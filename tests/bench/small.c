/* SPDX-License-Identifier: BSD-3-Clause */
/* How long small messages take, and how many there can be:
 *
 *     small CONFIG NODES BYTES LATENCIES MILLISECONDS
 *     small --floor BYTES COUNT
 *
 * Nodes n0, n1, ... of the configuration are processes that use the public API. One line each:
 *
 *     latency SECONDS   from covey_send() to the last on_message, one message at a time, n0 sending;
 * LATENCIES lines one RATE          messages a second that all have delivered, n0 sending as fast as it can
 *     all RATE          the same with all of them sending
 *     floor SECONDS     a TCP round trip of BYTES each way between two processes; COUNT lines */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <covey/covey.h>

#define NODES_MAX 16
#define WAIT_MS   60000
#define WARM_UP   200 /* messages */

enum work { WORK_LATENCY, WORK_FLOOD, WORK_IDLE, WORK_END };

struct member {
    sem_t go;
    atomic_uint work; /* enum work */
    _Alignas(64) atomic_uint_fast64_t delivered, delivered_ns, sent;
};

/* In memory that all processes share. */
struct shared {
    struct member members[NODES_MAX];
    _Alignas(64) sem_t done;
    uint32_t count;
    size_t bytes;
    uint32_t latencies;
    uint64_t flood_ns;
};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void die(const char *what, const char *why)
{
    fprintf(stderr, "small: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

static void pause_ns(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* --- A member ------------------------------------------------------------------------------------------- */

static void on_message(void *context, struct covey_group *group, uint32_t sender, const void *data,
                       size_t bytes)
{
    struct member *member = context;

    (void)group, (void)sender, (void)data, (void)bytes;
    atomic_store(&member->delivered_ns, now_ns());
    atomic_fetch_add(&member->delivered, 1);
}

static struct covey_group *open_member(const char *config, uint32_t i, struct member *member)
{
    static const struct covey_group_callbacks callbacks = {.on_message = on_message};
    struct covey_options *options;
    struct covey_group *group;
    struct covey_node *node;
    char name[16];

    snprintf(name, sizeof(name), "n%u", i);
    if (covey_options_load(config, name, &options) != 0)
        die(name, covey_options_error());
    if (covey_node_open(options, NULL, NULL, &node) != 0)
        die(name, covey_node_open_error());
    if (covey_group_open(node, covey_options_group_name(options, 0), &callbacks, member, &group) != 0 ||
        covey_group_wait(group, WAIT_MS) != 0)
        die(name, covey_error_detail(node));
    covey_options_free(options);
    return group;
}

static void wait_for_view(struct covey_group *group, uint32_t count)
{
    struct covey_view view;
    uint32_t size = 0;

    while (size != count) {
        pause_ns(1000000);
        if (covey_view(group, &view) != 0)
            die("view", "none");
        size = view.size;
        covey_view_free(&view);
    }
}

/* When the last member had delivered so many. */
static uint64_t delivered_ns(struct shared *shared, uint64_t messages)
{
    uint64_t last_ns = 0;

    for (uint32_t i = 0; i < shared->count; i++) {
        struct member *member = &shared->members[i];

        while (atomic_load(&member->delivered) < messages)
            pause_ns(20000);
        if (atomic_load(&member->delivered_ns) > last_ns)
            last_ns = atomic_load(&member->delivered_ns);
    }
    return last_ns;
}

static void send_one(struct covey_group *group, const void *data, size_t bytes)
{
    struct covey_op *op;

    if (covey_send(group, data, bytes, &op) != 0 || covey_op_wait(op, WAIT_MS) != 0)
        die("send", "it failed");
    covey_op_free(op);
}

static void measure_latencies(struct covey_group *group, struct shared *shared, const void *data)
{
    for (uint32_t i = 0; i < WARM_UP + shared->latencies; i++) {
        uint64_t before = atomic_load(&shared->members[0].delivered), begin_ns = now_ns();

        send_one(group, data, shared->bytes);
        if (i >= WARM_UP)
            printf("latency %.9f\n", (double)(delivered_ns(shared, before + 1) - begin_ns) / 1e9);
        else
            delivered_ns(shared, before + 1);
    }
}

static void flood(struct covey_group *group, struct shared *shared, struct member *member, const void *data)
{
    uint64_t end_ns = now_ns() + shared->flood_ns;

    while (now_ns() < end_ns) {
        if (covey_send(group, data, shared->bytes, NULL) != 0)
            die("send", "it failed");
        atomic_fetch_add(&member->sent, 1);
    }
    send_one(group, data, shared->bytes);
    atomic_fetch_add(&member->sent, 1);
}

static void run_member(const char *config, uint32_t i, struct shared *shared)
{
    static char data[COVEY_MESSAGE_MAX];
    struct member *member = &shared->members[i];
    struct covey_group *group = open_member(config, i, member);

    wait_for_view(group, shared->count);
    for (;;) {
        sem_post(&shared->done);
        while (sem_wait(&member->go) != 0)
            ;
        switch ((enum work)atomic_load(&member->work)) {
        case WORK_LATENCY:
            measure_latencies(group, shared, data);
            fflush(stdout);
            break;
        case WORK_FLOOD:
            flood(group, shared, member, data);
            break;
        case WORK_IDLE:
            break;
        case WORK_END:
            _exit(EXIT_SUCCESS);
        }
    }
}

/* --- The one who tells them ----------------------------------------------------------------------------- */

static void wait_done(struct shared *shared)
{
    for (uint32_t i = 0; i < shared->count; i++) {
        while (sem_wait(&shared->done) != 0)
            ;
    }
}

/* The first `workers` do it, the others nothing. */
static void have_done(struct shared *shared, enum work work, uint32_t workers)
{
    for (uint32_t i = 0; i < shared->count; i++) {
        atomic_store(&shared->members[i].work, i < workers ? work : WORK_IDLE);
        sem_post(&shared->members[i].go);
    }
    if (work != WORK_END)
        wait_done(shared);
}

static void measure_rate(struct shared *shared, const char *name, uint32_t senders)
{
    uint64_t before = atomic_load(&shared->members[0].delivered), sent = 0, begin_ns = now_ns(), end_ns;

    for (uint32_t i = 0; i < shared->count; i++)
        atomic_store(&shared->members[i].sent, 0);
    have_done(shared, WORK_FLOOD, senders);
    for (uint32_t i = 0; i < shared->count; i++)
        sent += atomic_load(&shared->members[i].sent);
    end_ns = delivered_ns(shared, before + sent);
    printf("%s %.0f\n", name, (double)sent * 1e9 / (double)(end_ns - begin_ns));
}

static struct shared *make_shared(uint32_t count, size_t bytes, uint32_t latencies, uint64_t flood_ns)
{
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (shared == MAP_FAILED)
        die("memory", strerror(errno));
    shared->count = count;
    shared->bytes = bytes;
    shared->latencies = latencies;
    shared->flood_ns = flood_ns;
    sem_init(&shared->done, 1, 0);
    for (uint32_t i = 0; i < count; i++)
        sem_init(&shared->members[i].go, 1, 0);
    return shared;
}

static void start_members(const char *config, struct shared *shared)
{
    for (uint32_t i = 0; i < shared->count; i++) {
        pid_t parent = getpid(), pid = fork();

        if (pid < 0)
            die("fork", strerror(errno));
        if (pid > 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            run_member(config, i, shared);
        _exit(EXIT_FAILURE);
    }
    wait_done(shared);
}

/* --- The floor ------------------------------------------------------------------------------------------ */

static void transfer(int fd, char *data, size_t bytes, bool out)
{
    while (bytes > 0) {
        ssize_t some = out ? write(fd, data, bytes) : read(fd, data, bytes);

        if (some <= 0)
            _exit(EXIT_FAILURE);
        data += some;
        bytes -= (size_t)some;
    }
}

/* A connection over loopback, both ends of it here. */
static void connect_pair(int fds[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);

    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || fds[0] < 0 || bind(listener, (struct sockaddr *)&address, bytes) != 0 ||
        listen(listener, 1) != 0 || getsockname(listener, (struct sockaddr *)&address, &bytes) != 0 ||
        connect(fds[0], (struct sockaddr *)&address, bytes) != 0 ||
        (fds[1] = accept(listener, NULL, NULL)) < 0)
        die("connect", strerror(errno));
    for (int i = 0; i < 2; i++)
        setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    close(listener);
}

static int measure_floor(size_t bytes, uint32_t count)
{
    static char data[COVEY_MESSAGE_MAX];
    int fds[2];
    pid_t pid;

    connect_pair(fds);
    pid = fork();
    if (pid < 0)
        die("fork", strerror(errno));
    for (uint32_t i = 0; i < WARM_UP + count; i++) {
        uint64_t begin_ns = now_ns();

        transfer(fds[pid > 0 ? 0 : 1], data, bytes, pid > 0);
        transfer(fds[pid > 0 ? 0 : 1], data, bytes, pid == 0);
        if (pid > 0 && i >= WARM_UP)
            printf("floor %.9f\n", (double)(now_ns() - begin_ns) / 1e9);
    }
    if (pid == 0)
        _exit(EXIT_SUCCESS);
    waitpid(pid, NULL, 0);
    return EXIT_SUCCESS;
}

static uint64_t number(const char *text, uint64_t most)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);

    if (*text == '\0' || *end != '\0' || value > most)
        die(text, "is no number, or too large");
    return value;
}

int main(int argc, char **argv)
{
    struct shared *shared;

    if (argc == 4 && strcmp(argv[1], "--floor") == 0)
        return measure_floor(number(argv[2], COVEY_MESSAGE_MAX), (uint32_t)number(argv[3], UINT32_MAX));
    if (argc != 6) {
        fprintf(stderr, "usage: small CONFIG NODES BYTES LATENCIES MILLISECONDS\n"
                        "       small --floor BYTES COUNT\n");
        return 64;
    }
    shared = make_shared((uint32_t)number(argv[2], NODES_MAX), number(argv[3], COVEY_MESSAGE_MAX),
                         (uint32_t)number(argv[4], UINT32_MAX), number(argv[5], 600000) * 1000000);
    start_members(argv[1], shared);
    have_done(shared, WORK_LATENCY, 1);
    measure_rate(shared, "one", 1);
    measure_rate(shared, "all", shared->count);
    have_done(shared, WORK_END, shared->count);
    while (wait(NULL) > 0)
        ;
    return EXIT_SUCCESS;
}
