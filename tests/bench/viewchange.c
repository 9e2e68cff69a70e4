/* SPDX-License-Identifier: BSD-3-Clause */
/* How long a view change takes:
 *
 *     viewchange CONFIG NODES DEATHS STOPS
 *
 * Nodes n0, n1, ... of the configuration are processes that use the public API; their callbacks tell this one
 * what they see and when. It kills a member (SIGKILL) and starts it again DEATHS times, then stops one
 * (SIGSTOP, and SIGCONT once it is out of the view) STOPS times: each rank in turn, so the leader too. One
 * line each, in seconds:
 *
 *     kill TOTAL DETECTED   until on_view at the last survivor; until the first survivor suspected it
 *     stop TOTAL DETECTED
 *     join WEDGE TOTAL      the longest that a member was wedged; until on_view everywhere
 */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <covey/covey.h>

#define NODES_MAX 16
#define WAIT_MS   60000

/* What a member tells: one write of less than PIPE_BUF, so members do not mix. Times are CLOCK_REALTIME, as
 * those of events are. */
enum record_kind { RECORD_INSTALLED, RECORD_VIEW, RECORD_SUSPECTED };
struct record {
    enum record_kind kind;
    uint32_t node;
    uint64_t time_ns;
    uint64_t number;     /* of the view */
    uint32_t size, rank; /* installed */
    uint64_t wedge_ns;   /* view */
};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void die(const char *what, const char *why)
{
    fprintf(stderr, "viewchange: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

/* --- A member ------------------------------------------------------------------------------------------- */

struct member {
    uint32_t node;
    int out;
};

static void tell(const struct member *member, struct record record)
{
    record.node = member->node;
    if (write(member->out, &record, sizeof(record)) != sizeof(record))
        _exit(EXIT_FAILURE); /* whoever listened has gone */
}

static void on_event(void *context, const struct covey_event *event)
{
    if (strcmp(event->type, "view") == 0)
        tell(context, (struct record){.kind = RECORD_VIEW,
                                      .time_ns = event->time_ns,
                                      .number = event->view,
                                      .wedge_ns = event->wedge_ns});
    else if (strcmp(event->type, "suspected") == 0)
        tell(context, (struct record){.kind = RECORD_SUSPECTED, .time_ns = event->time_ns});
}

static void on_view(void *context, struct covey_group *group, const struct covey_view *view,
                    const uint32_t *joined, size_t joined_count, const uint32_t *left, size_t left_count)
{
    (void)group, (void)joined, (void)joined_count, (void)left, (void)left_count;
    tell(context, (struct record){.kind = RECORD_INSTALLED,
                                  .time_ns = now_ns(),
                                  .number = view->number,
                                  .size = view->size,
                                  .rank = view->members[view->self].rank});
}

static void run_member(const char *config, struct member *member)
{
    static const struct covey_callbacks callbacks = {.on_event = on_event};
    static const struct covey_group_callbacks group_callbacks = {.on_view = on_view};
    struct covey_options *options;
    struct covey_group *group;
    struct covey_node *node;
    char name[16];

    snprintf(name, sizeof(name), "n%u", member->node);
    if (covey_options_load(config, name, &options) != 0)
        die(name, covey_options_error());
    if (covey_node_open(options, &callbacks, member, &node) != 0)
        die(name, covey_node_open_error());
    if (covey_group_open(node, covey_options_group_name(options, 0), &group_callbacks, member, &group) != 0)
        die(name, covey_error_detail(node));
    for (;;)
        pause();
}

/* --- The one who watches -------------------------------------------------------------------------------- */

struct seat {
    pid_t pid;
    bool counts; /* is to be in the next view */
    uint64_t number, installed_ns;
    uint32_t size, rank;
    uint64_t suspected_ns; /* first since the last look; 0: none */
    uint64_t wedge_ns;     /* longest since then */
};

struct bench {
    const char *config;
    uint32_t count;
    int pipe[2];
    struct seat seats[NODES_MAX];
};

static void start(struct bench *bench, uint32_t node)
{
    struct seat *seat = &bench->seats[node];
    pid_t parent = getpid(), pid = fork();

    if (pid < 0)
        die("fork", strerror(errno));
    if (pid == 0) {
        struct member member = {node, bench->pipe[1]};

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            run_member(bench->config, &member);
        _exit(EXIT_FAILURE);
    }
    *seat = (struct seat){.pid = pid, .counts = true};
}

static void hear(struct bench *bench, const struct record *record)
{
    struct seat *seat = &bench->seats[record->node];

    switch (record->kind) {
    case RECORD_INSTALLED:
        seat->number = record->number;
        seat->size = record->size;
        seat->rank = record->rank;
        seat->installed_ns = record->time_ns;
        break;
    case RECORD_VIEW:
        if (record->wedge_ns > seat->wedge_ns)
            seat->wedge_ns = record->wedge_ns;
        break;
    case RECORD_SUSPECTED:
        if (seat->suspected_ns == 0)
            seat->suspected_ns = record->time_ns;
        break;
    }
}

static void forget(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->count; i++)
        bench->seats[i].suspected_ns = bench->seats[i].wedge_ns = 0;
}

/* Whether all that count are in one view of them all. */
static bool is_whole(const struct bench *bench)
{
    uint64_t number = 0;
    uint32_t size = 0;

    for (uint32_t i = 0; i < bench->count; i++)
        size += bench->seats[i].counts;
    for (uint32_t i = 0; i < bench->count; i++) {
        const struct seat *seat = &bench->seats[i];

        if (!seat->counts)
            continue;
        if (seat->size != size || (number != 0 && seat->number != number))
            return false;
        number = seat->number;
    }
    return true;
}

/* When the last of them installed it. */
static uint64_t await_view(struct bench *bench)
{
    struct record record;
    uint64_t last_ns = 0;

    while (!is_whole(bench)) {
        struct pollfd polled = {.fd = bench->pipe[0], .events = POLLIN};

        if (poll(&polled, 1, WAIT_MS) <= 0)
            die("a view", "it does not come");
        if (read(bench->pipe[0], &record, sizeof(record)) != sizeof(record))
            die("a view", strerror(errno));
        hear(bench, &record);
    }
    for (uint32_t i = 0; i < bench->count; i++) {
        if (bench->seats[i].counts && bench->seats[i].installed_ns > last_ns)
            last_ns = bench->seats[i].installed_ns;
    }
    return last_ns;
}

static uint64_t first_suspicion(const struct bench *bench)
{
    uint64_t first_ns = UINT64_MAX;

    for (uint32_t i = 0; i < bench->count; i++) {
        uint64_t at_ns = bench->seats[i].suspected_ns;

        if (at_ns != 0 && at_ns < first_ns)
            first_ns = at_ns;
    }
    return first_ns;
}

static uint64_t longest_wedge(const struct bench *bench, uint32_t without)
{
    uint64_t longest_ns = 0;

    for (uint32_t i = 0; i < bench->count; i++) {
        if (i != without && bench->seats[i].wedge_ns > longest_ns)
            longest_ns = bench->seats[i].wedge_ns;
    }
    return longest_ns;
}

static uint32_t node_of_rank(const struct bench *bench, uint32_t rank)
{
    for (uint32_t i = 0; i < bench->count; i++) {
        if (bench->seats[i].rank == rank)
            return i;
    }
    die("a view", "it has no such rank");
    return 0;
}

/* Strike the node with the signal; tells how long the others took. */
static void strike(struct bench *bench, const char *what, uint32_t node, int number)
{
    uint64_t begin_ns, installed_ns;

    forget(bench);
    bench->seats[node].counts = false;
    begin_ns = now_ns();
    kill(bench->seats[node].pid, number);
    installed_ns = await_view(bench);
    printf("%s %.6f %.6f\n", what, (double)(installed_ns - begin_ns) / 1e9,
           (double)(first_suspicion(bench) - begin_ns) / 1e9);
}

static void measure_death(struct bench *bench, uint32_t rank)
{
    uint32_t node = node_of_rank(bench, rank);
    uint64_t begin_ns, installed_ns;

    strike(bench, "kill", node, SIGKILL);
    waitpid(bench->seats[node].pid, NULL, 0);
    forget(bench);
    begin_ns = now_ns();
    start(bench, node);
    installed_ns = await_view(bench);
    printf("join %.6f %.6f\n", (double)longest_wedge(bench, node) / 1e9,
           (double)(installed_ns - begin_ns) / 1e9);
}

static void measure_stop(struct bench *bench, uint32_t rank)
{
    uint32_t node = node_of_rank(bench, rank);

    strike(bench, "stop", node, SIGSTOP);
    kill(bench->seats[node].pid, SIGCONT);
    bench->seats[node].counts = true;
    bench->seats[node].size = 0;
    await_view(bench);
}

static void end(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->count; i++)
        kill(bench->seats[i].pid, SIGKILL);
    for (uint32_t i = 0; i < bench->count; i++)
        waitpid(bench->seats[i].pid, NULL, 0);
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    unsigned long deaths, stops;

    if (argc != 5)
        die("usage", "viewchange CONFIG NODES DEATHS STOPS");
    bench.config = argv[1];
    bench.count = (uint32_t)strtoul(argv[2], NULL, 10);
    deaths = strtoul(argv[3], NULL, 10);
    stops = strtoul(argv[4], NULL, 10);
    if (bench.count < 3 || bench.count > NODES_MAX)
        die(argv[2], "3 to 16 nodes");
    if (pipe(bench.pipe) != 0)
        die("pipe", strerror(errno));
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (uint32_t i = 0; i < bench.count; i++)
        start(&bench, i);
    await_view(&bench);
    for (unsigned long i = 0; i < deaths; i++)
        measure_death(&bench, (uint32_t)(i % bench.count));
    for (unsigned long i = 0; i < stops; i++)
        measure_stop(&bench, (uint32_t)(i % bench.count));
    end(&bench);
    return EXIT_SUCCESS;
}
