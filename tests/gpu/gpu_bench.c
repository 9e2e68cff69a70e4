/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects from device memory to device memory between processes of one host, over loopback TCP, beside what
 * one would do by hand, in the same run.
 *
 *     gpu_bench [--bytes N] [--rounds N] [--nodes N,N,...]        1 GiB, 3 rounds after one that is not
 * counted
 *
 *     device     covey_put from a device, landing on a device: staged
 *     host       the same from host to host
 *     pinned     by hand: copy to pinned host memory, put it, copy what arrived from pinned memory to the
 * device pageable   the same through ordinary memory
 *
 * A round lasts from the call at the root until the bytes are in their place at everyone. Each line has the
 * minimum, median and maximum of seconds, and GB/s of the median. The last line is "ratio X": the least of
 * pageable / 1.5, pinned / 1.1, and host / 0.9, in units of device's median, over all numbers of nodes.
 *
 * Every node is a process with a context of its own. What arrived is compared, byte for byte, in the last
 * round. */

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <covey/covey.h>

#include "memory/memory.h"

#define NODES_MAX  16
#define ROUNDS_MAX 64
#define BUFFERS    3 /* in turn: the last version stays lent until the next is delivered */
#define WAIT_MS    60000

enum mode { DEVICE, HOST, PINNED, PAGEABLE, MODES };
static const char *const mode_names[] = {"device", "host", "pinned", "pageable"};

static struct {
    size_t bytes;
    int rounds;
    size_t sizes[8], size_count;
} settings = {.bytes = (size_t)1 << 30, .rounds = 3, .sizes = {2, 4, 8}, .size_count = 3};

/* What the processes of a run share. */
struct shared {
    _Atomic uint64_t placed_ns[NODES_MAX]; /* when this round's bytes were in their place; 0: not yet */
    _Atomic int ready;
    _Atomic uint64_t seconds_ns[ROUNDS_MAX];
    _Atomic uint64_t host_extra[NODES_MAX];
};

struct process {
    struct shared *shared;
    enum mode mode;
    size_t index, nodes;
    const struct memory_ops *device;
    void *at_device[BUFFERS], *at_host[BUFFERS]; /* as the mode needs */
    size_t landings;
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "gpu_bench: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

static void check(int rc, const struct fail *fail)
{
    if (rc != 0)
        die("device memory", fail->text);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* --- Memory --------------------------------------------------------------------------------------------- */

static bool lands_on_host(enum mode mode)
{
    return mode != DEVICE;
}

static void memory_open(struct process *process)
{
    struct fail fail;
    bool pinned;
    int device;

    check(memory_ops(COVEY_MEMORY_CUDA, &process->device, &fail), &fail);
    check(process->device->device(0, 0, &device, &fail), &fail);
    for (int i = 0; i < BUFFERS; i++) {
        if (process->mode != HOST)
            check(process->device->allocate(device, settings.bytes, &process->at_device[i], &fail), &fail);
        if (!lands_on_host(process->mode))
            continue;
        process->at_host[i] = aligned_alloc(4096, settings.bytes);
        if (process->at_host[i] == NULL)
            die("memory", strerror(errno));
        memset(process->at_host[i], 1, settings.bytes);
        if (process->mode == PINNED)
            check(memory_pin(process->at_host[i], settings.bytes, &pinned, &fail), &fail);
    }
}

static void copy(struct process *process, bool to_device, int which)
{
    struct memory_copy *copying;
    struct fail fail;
    void *device = process->at_device[which], *host = process->at_host[which];

    check(to_device ? process->device->write(0, device, host, settings.bytes, &copying, &fail)
                    : process->device->read(0, host, device, settings.bytes, &copying, &fail),
          &fail);
    check(process->device->finish(copying, &fail), &fail);
}

static void pattern(uint64_t *words, uint64_t round)
{
    for (size_t i = 0; i < settings.bytes / sizeof(*words); i++)
        words[i] = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ round;
}

/* The root's bytes of this round, where the mode begins. */
static void prepare(struct process *process, int which, uint64_t round)
{
    void *host = process->at_host[which] != NULL ? process->at_host[which] : malloc(settings.bytes);
    struct memory_copy *copying;
    struct fail fail;

    pattern(host, round);
    if (process->mode != HOST) {
        check(process->device->write(0, process->at_device[which], host, settings.bytes, &copying, &fail),
              &fail);
        check(process->device->finish(copying, &fail), &fail);
    }
    if (process->at_host[which] == NULL)
        free(host);
}

static void verify(struct process *process, int which, uint64_t round)
{
    uint64_t *expected = malloc(settings.bytes), *seen = malloc(settings.bytes);
    struct memory_copy *copying;
    struct fail fail;

    pattern(expected, round);
    if (process->mode == HOST) {
        memcpy(seen, process->at_host[which], settings.bytes);
    } else {
        check(process->device->read(0, seen, process->at_device[which], settings.bytes, &copying, &fail),
              &fail);
        check(process->device->finish(copying, &fail), &fail);
    }
    if (memcmp(expected, seen, settings.bytes) != 0)
        die(mode_names[process->mode], "what arrived differs from what was sent");
    free(expected);
    free(seen);
}

static uint64_t resident_peak(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    uint64_t kilobytes = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        sscanf(line, "VmHWM: %lu", &kilobytes);
    if (file != NULL)
        fclose(file);
    return kilobytes << 10;
}

/* --- Nodes ---------------------------------------------------------------------------------------------- */

static int land(void *context, struct covey_group *group, const struct covey_offer *offer,
                struct covey_buffer *buffers)
{
    struct process *process = context;
    size_t which = process->landings++ % BUFFERS;

    (void)group;
    if (offer->count != 1 || offer->bytes != settings.bytes)
        return COVEY_REFUSED;
    buffers[0].base = process->mode == DEVICE ? process->at_device[which] : process->at_host[which];
    buffers[0].memory = process->mode == DEVICE ? COVEY_MEMORY_CUDA : COVEY_MEMORY_HOST;
    return 0;
}

static void delivered(void *context, struct covey_group *group, struct covey_object *object)
{
    struct process *process = context;

    (void)group, (void)object;
    if (process->index == 0)
        return;
    if (process->mode == PINNED || process->mode == PAGEABLE)
        copy(process, true, (int)((process->landings - 1) % BUFFERS));
    atomic_store(&process->shared->placed_ns[process->index], now_ns());
}

static struct covey_node *node_open(struct process *process, const char *config, struct covey_group **group)
{
    static const struct covey_group_callbacks callbacks = {.on_landing = land, .on_object = delivered};
    struct covey_options *options;
    struct covey_node *node;
    char name[16];

    snprintf(name, sizeof(name), "n%zu", process->index);
    if (covey_options_load(config, name, &options) != 0)
        die("configuration", covey_options_error());
    if (covey_node_open(options, NULL, NULL, &node) != 0)
        die("node", covey_node_open_error());
    covey_options_free(options);
    if (covey_group_open(node, "g", &callbacks, process, group) != 0 ||
        covey_group_wait(*group, WAIT_MS) != 0)
        die("group", covey_error_detail(node));
    return node;
}

static void wait_for_view(struct process *process, struct covey_group *group)
{
    struct covey_view view;
    uint32_t size = 0;

    for (int waited = 0; size < process->nodes; waited++) {
        if (covey_view(group, &view) != 0 || waited > WAIT_MS)
            die("view", "not everyone is in it");
        size = view.size;
        covey_view_free(&view);
        usleep(1000);
    }
}

static void wait_for_all(struct process *process)
{
    for (size_t i = 1; i < process->nodes; i++) {
        for (int waited = 0; atomic_load(&process->shared->placed_ns[i]) == 0; waited++) {
            if (waited > WAIT_MS * 50)
                die("wait", "a node does not get its object");
            usleep(20);
        }
    }
}

/* The time from now until the last has its bytes in their place. */
static uint64_t put(struct process *process, struct covey_group *group, int which)
{
    struct covey_buffer buffer = {.bytes = settings.bytes};
    uint64_t begin = now_ns(), end = 0;
    struct covey_op *op;

    for (size_t i = 1; i < process->nodes; i++)
        atomic_store(&process->shared->placed_ns[i], 0);
    if (process->mode == PINNED || process->mode == PAGEABLE)
        copy(process, false, which);
    buffer.base = process->mode == DEVICE ? process->at_device[which] : process->at_host[which];
    buffer.memory = process->mode == DEVICE ? COVEY_MEMORY_CUDA : COVEY_MEMORY_HOST;
    if (covey_put(group, "x", &buffer, 1, &op) != 0)
        die("put", covey_error_detail(NULL));
    if (covey_op_wait(op, WAIT_MS) != 0)
        die("put", covey_op_error(op));
    covey_op_free(op);
    wait_for_all(process);
    for (size_t i = 1; i < process->nodes; i++) {
        uint64_t placed = atomic_load(&process->shared->placed_ns[i]);

        end = placed > end ? placed : end;
    }
    return end - begin;
}

static void run_node(struct process *process, const char *config)
{
    struct covey_group *group;
    struct covey_node *node;
    uint64_t before;

    memory_open(process);
    if (process->index == 0)
        prepare(process, 0, 0);
    before = resident_peak();
    node = node_open(process, config, &group);
    wait_for_view(process, group);
    atomic_fetch_add(&process->shared->ready, 1);
    for (int round = 0; process->index == 0 && round <= settings.rounds; round++) {
        while (round == 0 && atomic_load(&process->shared->ready) < (int)process->nodes)
            usleep(1000);
        atomic_store(&process->shared->seconds_ns[round], put(process, group, round % BUFFERS));
        if (round < settings.rounds)
            prepare(process, (round + 1) % BUFFERS, (uint64_t)round + 1);
    }
    while (process->index != 0 && atomic_load(&process->shared->seconds_ns[settings.rounds]) == 0)
        usleep(1000);
    atomic_store(&process->shared->host_extra[process->index], resident_peak() - before);
    if (process->index != 0)
        verify(process, (int)((process->landings - 1) % BUFFERS), (uint64_t)settings.rounds);
    covey_node_close(node);
}

/* --- A run ---------------------------------------------------------------------------------------------- */

static void write_config(const char *path, size_t nodes)
{
    FILE *file = fopen(path, "w");

    if (file == NULL)
        die(path, strerror(errno));
    fprintf(file,
            "cluster: { name = \"bench\"; suspect_after = \"10s\"; stall_after = \"30s\"; };\nnodes: (\n");
    for (size_t i = 0; i < nodes; i++)
        fprintf(file, "  { id = %zu; name = \"n%zu\"; address = \"127.77.%d.%zu:7400\"; }%s\n", i, i,
                1 + (int)getpid() % 250, i + 1, i + 1 < nodes ? "," : "");
    fprintf(file, ");\ngroups: ( { name = \"g\"; keep_versions = 1; } );\n");
    fprintf(file, "control: { socket = \"%s.%%n.sock\"; };\n", path);
    fclose(file);
}

static void run(const char *config, enum mode mode, size_t nodes, struct shared *shared)
{
    pid_t children[NODES_MAX];
    bool failed = false;

    memset(shared, 0, sizeof(*shared));
    fflush(stdout);
    for (size_t i = 0; i < nodes; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            struct process process = {.shared = shared, .mode = mode, .index = i, .nodes = nodes};

            run_node(&process, config);
            _exit(EXIT_SUCCESS);
        }
    }
    for (size_t i = 0; i < nodes; i++) {
        int status;

        waitpid(children[i], &status, 0);
        failed = failed || status != 0;
    }
    if (failed)
        die(mode_names[mode], "a process failed");
}

static int by_value(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return a < b ? -1 : a > b;
}

/* Prints the line; returns the median in seconds. */
static double report(enum mode mode, size_t nodes, struct shared *shared)
{
    uint64_t rounds[ROUNDS_MAX], extra = 0;
    double median;

    for (int i = 0; i < settings.rounds; i++)
        rounds[i] = atomic_load(&shared->seconds_ns[i + 1]);
    qsort(rounds, (size_t)settings.rounds, sizeof(rounds[0]), by_value);
    for (size_t i = 0; i < nodes; i++)
        extra = shared->host_extra[i] > extra ? shared->host_extra[i] : extra;
    median = (double)rounds[settings.rounds / 2] / 1e9;
    printf("%-9s %5zu %9.4f %9.4f %9.4f %8.2f %10.1f\n", mode_names[mode], nodes, (double)rounds[0] / 1e9,
           median, (double)rounds[settings.rounds - 1] / 1e9, (double)settings.bytes / median / 1e9,
           (double)extra / 1048576);
    return median;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static void parse(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        char *text = argv[i + 1];

        if (strcmp(argv[i], "--bytes") == 0) {
            settings.bytes = strtoull(text, NULL, 10);
        } else if (strcmp(argv[i], "--rounds") == 0) {
            settings.rounds = atoi(text);
        } else if (strcmp(argv[i], "--nodes") == 0) {
            settings.size_count = 0;
            for (char *word = strtok(text, ","); word != NULL && settings.size_count < 8;
                 word = strtok(NULL, ","))
                settings.sizes[settings.size_count++] = strtoull(word, NULL, 10);
        } else {
            die(argv[i], "no such option");
        }
    }
    for (size_t i = 0; i < settings.size_count; i++) {
        if (settings.sizes[i] < 2 || settings.sizes[i] > NODES_MAX)
            die("--nodes", "2 to 16");
    }
    if (settings.rounds < 1 || settings.rounds >= ROUNDS_MAX || settings.bytes < 8 || settings.bytes % 8 != 0)
        die("arguments", "1 to 63 rounds, and a multiple of 8 bytes");
}

int main(int argc, char **argv)
{
    char config[] = "/tmp/covey-gpu-XXXXXX";
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double ratio = 1e9;
    int fd = mkstemp(config);

    parse(argc, argv);
    if (shared == MAP_FAILED || fd < 0)
        die("cannot begin", strerror(errno));
    close(fd);
    printf("%.1f MiB, %d rounds; the least of pageable / 1.5, pinned / 1.1, host / 0.9 in units of device is "
           "the ratio\n",
           (double)settings.bytes / 1048576, settings.rounds);
    printf("%-9s %5s %9s %9s %9s %8s %10s\n", "mode", "nodes", "min s", "median s", "max s", "GB/s",
           "extra MiB");
    for (size_t i = 0; i < settings.size_count; i++) {
        double medians[MODES];

        write_config(config, settings.sizes[i]);
        for (int mode = 0; mode < MODES; mode++) {
            run(config, (enum mode)mode, settings.sizes[i], shared);
            medians[mode] = report((enum mode)mode, settings.sizes[i], shared);
        }
        ratio = smaller(ratio, medians[PAGEABLE] / medians[DEVICE] / 1.5);
        ratio = smaller(ratio, medians[PINNED] / medians[DEVICE] / 1.1);
        ratio = smaller(ratio, medians[HOST] / medians[DEVICE] / 0.9);
    }
    unlink(config);
    printf("ratio %.3f\n", ratio);
    return EXIT_SUCCESS;
}
