/* SPDX-License-Identifier: BSD-3-Clause */
/* What a fabric moves between two processes, beside a TCP stream of blocks of the same size in the same run:
 * GB/s, and processor seconds per GB of both processes together; then half the round trip of 64 bytes, asleep
 * and spinning.
 *
 *     fabric_bench [-p PROVIDER] [-a ADDRESS] [-m MIB] [-r REPETITIONS] [-c CONGESTION]
 *
 * -m is what one measurement moves (256); its first repetition is not counted, and the median of the others
 * is printed. -c sets TCP_CONGESTION on the stream's sockets; for the fabric's, run the program where that is
 * the default: `unshare -n sh -c 'ip link set lo up; sysctl -w net.ipv4.tcp_congestion_control=cubic;
 * fabric_bench'`. */

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fabric/fabric.h"

#define DEPTH_MAX      8
#define BLOCK_MAX      ((size_t)4 << 20)
#define EVENTS         32
#define PING_BYTES     64
#define PINGS          5000
#define REPETITION_MAX 64

enum order_kind { ORDER_BLOCKS, ORDER_PING, ORDER_STREAM, ORDER_END };

struct order {
    enum order_kind kind;
    bool spin;
    uint64_t bytes, count;
};

struct hello {
    uint8_t address[FABRIC_ADDRESS_MAX];
    uint64_t address_bytes, target_address, target_key;
};

struct side {
    struct fabric *fabric;
    struct fabric_link *link;
    struct fabric_region *region;
    uint8_t *memory;
    struct hello other;
    int orders; /* a socket between the two processes */
    int stream;
    bool up;
    uint64_t arrived, done, messages;
};

static const uint8_t token[FABRIC_TOKEN_BYTES] = {1};
static const char *provider = "tcp", *address_text = "127.0.0.1", *congestion;
static uint64_t move_mib = 256;
static int repetitions = 3;

static void die(const char *what)
{
    perror(what);
    exit(EXIT_FAILURE);
}

static void must(int error, const char *what, const struct fail *fail)
{
    if (error == 0)
        return;
    fprintf(stderr, "%s: %s\n", what, fail == NULL ? covey_strerror(error) : fail->text);
    exit(EXIT_FAILURE);
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double processor(void)
{
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void put(int fd, const void *data, size_t bytes)
{
    if (send(fd, data, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
        die("send");
}

static void get(int fd, void *data, size_t bytes)
{
    if (recv(fd, data, bytes, MSG_WAITALL) != (ssize_t)bytes)
        die("recv");
}

/* --- The fabric ----------------------------------------------------------------------------------------- */

static void turn(struct side *side, bool spin)
{
    struct pollfd fd = {.fd = fabric_fd(side->fabric), .events = POLLIN};
    struct fabric_event events[EVENTS];
    size_t count = fabric_poll(side->fabric, events, EVENTS);

    for (size_t i = 0; i < count; i++) {
        side->up |= events[i].type == FABRIC_LINK_UP;
        side->arrived += events[i].type == FABRIC_ARRIVED;
        side->done += events[i].type == FABRIC_WRITE_DONE;
        side->messages += events[i].type == FABRIC_MESSAGE;
        if (events[i].type == FABRIC_LINK_DOWN && events[i].error != 0) {
            fprintf(stderr, "the link went down: %s\n", events[i].text);
            exit(EXIT_FAILURE);
        }
    }
    if (count == 0 && !spin && fabric_arm(side->fabric))
        poll(&fd, 1, -1);
}

static void side_open(struct side *side, int orders)
{
    static const struct log quiet;
    struct fabric_options options = {.provider = provider, .log = &quiet};
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    const size_t bytes = DEPTH_MAX * BLOCK_MAX;
    struct hello own = {.address_bytes = 0};
    struct addrinfo *info;
    struct fail fail;

    if (getaddrinfo(address_text, NULL, &hints, &info) != 0)
        die("address");
    options.address = info->ai_addr;
    options.address_bytes = info->ai_addrlen;
    must(fabric_open(&options, &side->fabric, &fail), "open", &fail);
    freeaddrinfo(info);
    side->orders = orders;
    side->memory = aligned_alloc(2 << 20, bytes);
    if (side->memory == NULL)
        die("memory");
    memset(side->memory, 1, bytes);
    must(fabric_register(side->fabric, side->memory, bytes, COVEY_MEMORY_HOST, 0, true, &side->region, &fail),
         "register", &fail);
    own.address_bytes = fabric_address(side->fabric, own.address);
    fabric_region_remote(side->region, &own.target_address, &own.target_key);
    put(orders, &own, sizeof(own));
    get(orders, &side->other, sizeof(side->other));
}

static void side_write(struct side *side, uint64_t number, uint64_t bytes, bool signalled, bool spin)
{
    const uint64_t offset = number % DEPTH_MAX * bytes;
    const struct fabric_piece piece = {.base = side->memory + offset, .bytes = bytes, .region = side->region};
    const struct fabric_write write = {.pieces = &piece,
                                       .count = 1,
                                       .remote_address = side->other.target_address + offset,
                                       .remote_key = side->other.target_key,
                                       .immediate = (uint32_t)number,
                                       .signalled = signalled};
    int error;

    while ((error = fabric_write(side->link, &write)) == COVEY_AGAIN)
        turn(side, spin);
    must(error, "write", NULL);
}

static void blocks_receive(struct side *side, const struct order *order)
{
    uint64_t end = side->arrived + order->count;

    while (side->arrived < end)
        turn(side, order->spin);
    must(fabric_send(side->link, "", 1), "send", NULL);
}

static void blocks_send(struct side *side, const struct order *order, uint64_t depth)
{
    uint64_t answers = side->messages, done = side->done;

    for (uint64_t i = 0; i < order->count; i++) {
        while (i - (side->done - done) >= depth)
            turn(side, order->spin);
        side_write(side, i, order->bytes, true, order->spin);
    }
    while (side->messages == answers)
        turn(side, order->spin);
}

static void ping(struct side *side, const struct order *order, bool first)
{
    for (uint64_t i = 0, begin = side->arrived; i < order->count; i++) {
        if (first)
            side_write(side, i, order->bytes, false, order->spin);
        while (side->arrived - begin == i)
            turn(side, order->spin);
        if (!first)
            side_write(side, i, order->bytes, false, order->spin);
    }
}

/* --- The stream ----------------------------------------------------------------------------------------- */

static void stream_set(int fd)
{
    const int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (congestion != NULL &&
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, strlen(congestion)) != 0)
        die(congestion);
}

static int stream_listen(struct sockaddr_storage *name, socklen_t *bytes)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *info;
    int fd;

    if (getaddrinfo(address_text, NULL, &hints, &info) != 0)
        die("address");
    fd = socket(info->ai_family, SOCK_STREAM, 0);
    stream_set(fd);
    if (bind(fd, info->ai_addr, info->ai_addrlen) != 0 || listen(fd, 1) != 0 ||
        getsockname(fd, (struct sockaddr *)name, bytes) != 0)
        die("listen");
    freeaddrinfo(info);
    return fd;
}

static void stream_receive(struct side *side, const struct order *order)
{
    for (uint64_t i = 0; i < order->count; i++)
        get(side->stream, side->memory + i % DEPTH_MAX * order->bytes, order->bytes);
    put(side->stream, "", 1);
}

static void stream_send(struct side *side, const struct order *order)
{
    char byte;

    for (uint64_t i = 0; i < order->count; i++) {
        const uint8_t *block = side->memory + i % DEPTH_MAX * order->bytes;

        for (uint64_t sent = 0; sent < order->bytes;) {
            ssize_t some = send(side->stream, block + sent, order->bytes - sent, MSG_NOSIGNAL);

            if (some <= 0)
                die("stream");
            sent += (uint64_t)some;
        }
    }
    get(side->stream, &byte, 1);
}

/* --- Two processes -------------------------------------------------------------------------------------- */

static void serve(int orders, int listener)
{
    struct side side = {.up = false};
    struct order order;
    struct fail fail;

    side_open(&side, orders);
    must(fabric_link_expect(side.fabric, FABRIC_DATA, token, NULL, &side.link, &fail), "expect", &fail);
    put(orders, "", 1);
    side.stream = accept(listener, NULL, NULL);
    while (!side.up)
        turn(&side, false);
    for (;;) {
        double begin = processor();

        get(orders, &order, sizeof(order));
        if (order.kind == ORDER_BLOCKS)
            blocks_receive(&side, &order);
        else if (order.kind == ORDER_PING)
            ping(&side, &order, false);
        else if (order.kind == ORDER_STREAM)
            stream_receive(&side, &order);
        else
            _exit(EXIT_SUCCESS);
        begin = processor() - begin;
        put(orders, &begin, sizeof(begin));
    }
}

struct result {
    double seconds, processor;
};

static struct result measure_once(struct side *side, const struct order *order, uint64_t depth)
{
    double cpu = processor(), begin = now(), theirs;
    struct result result;

    put(side->orders, order, sizeof(*order));
    if (order->kind == ORDER_BLOCKS)
        blocks_send(side, order, depth);
    else if (order->kind == ORDER_PING)
        ping(side, order, true);
    else
        stream_send(side, order);
    result.seconds = now() - begin;
    get(side->orders, &theirs, sizeof(theirs));
    result.processor = processor() - cpu + theirs;
    return result;
}

static int by_seconds(const void *a, const void *b)
{
    double x = ((const struct result *)a)->seconds, y = ((const struct result *)b)->seconds;

    return (x > y) - (x < y);
}

static struct result measure(struct side *side, const struct order *order, uint64_t depth)
{
    struct result results[REPETITION_MAX];

    measure_once(side, order, depth);
    for (int i = 0; i < repetitions; i++)
        results[i] = measure_once(side, order, depth);
    qsort(results, (size_t)repetitions, sizeof(results[0]), by_seconds);
    return results[repetitions / 2];
}

static void print_rate(const char *what, uint64_t bytes, uint64_t depth, uint64_t total, struct result result)
{
    double gb = (double)total / 1e9;

    printf("%-8s %7llu %5llu %8.3f %8.3f\n", what, (unsigned long long)(bytes >> 10),
           (unsigned long long)depth, gb / result.seconds, result.processor / gb);
}

static void bandwidth(struct side *side)
{
    static const uint64_t sizes[] = {64 << 10, 256 << 10, 1 << 20, 4 << 20}, depths[] = {1, 2, 4, 8};

    printf("%-8s %7s %5s %8s %8s\n", "what", "KiB", "depth", "GB/s", "cpu s/GB");
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        struct order order = {.kind = ORDER_STREAM, .bytes = sizes[s], .count = (move_mib << 20) / sizes[s]};

        print_rate("stream", sizes[s], 0, order.bytes * order.count, measure(side, &order, 0));
        order.kind = ORDER_BLOCKS;
        for (size_t d = 0; d < sizeof(depths) / sizeof(depths[0]); d++)
            print_rate(provider, sizes[s], depths[d], order.bytes * order.count,
                       measure(side, &order, depths[d]));
    }
}

static void latency(struct side *side)
{
    for (int spin = 0; spin < 2; spin++) {
        const struct order order = {.kind = ORDER_PING, .spin = spin, .bytes = PING_BYTES, .count = PINGS};
        struct result result = measure(side, &order, 0);

        printf("half a round trip of %d bytes, %s: %.1f us, %.1f us of processor time\n", PING_BYTES,
               spin ? "spinning" : "asleep", result.seconds / PINGS / 2 * 1e6,
               result.processor / PINGS / 2 * 1e6);
    }
}

static void drive(int orders, const struct sockaddr_storage *name, socklen_t name_bytes)
{
    const struct order end = {.kind = ORDER_END};
    struct side side = {.up = false};
    struct fail fail;
    char ready;

    side_open(&side, orders);
    get(orders, &ready, 1);
    side.stream = socket(name->ss_family, SOCK_STREAM, 0);
    stream_set(side.stream);
    if (connect(side.stream, (const struct sockaddr *)name, name_bytes) != 0)
        die("connect");
    must(fabric_link_connect(side.fabric, FABRIC_DATA, side.other.address, side.other.address_bytes, token,
                             NULL, &side.link, &fail),
         "connect", &fail);
    while (!side.up)
        turn(&side, false);
    bandwidth(&side);
    latency(&side);
    put(orders, &end, sizeof(end));
}

static void options_read(int argc, char **argv)
{
    for (int option; (option = getopt(argc, argv, "p:a:m:r:c:")) != -1;) {
        if (option == 'p')
            provider = optarg;
        else if (option == 'a')
            address_text = optarg;
        else if (option == 'm')
            move_mib = strtoull(optarg, NULL, 10);
        else if (option == 'r')
            repetitions = atoi(optarg);
        else if (option == 'c')
            congestion = optarg;
        else
            exit(64);
    }
    if (move_mib < 4 || repetitions < 1 || repetitions > REPETITION_MAX) {
        fprintf(stderr, "-m 4 or more, -r 1 to %d\n", REPETITION_MAX);
        exit(64);
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_storage name;
    socklen_t name_bytes = sizeof(name);
    int orders[2], listener, status;
    pid_t child;

    options_read(argc, argv);
    listener = stream_listen(&name, &name_bytes);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, orders) != 0)
        die("socketpair");
    child = fork();
    if (child == 0)
        serve(orders[1], listener);
    close(orders[1]);
    drive(orders[0], &name, name_bytes);
    return waitpid(child, &status, 0) == child && status == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
