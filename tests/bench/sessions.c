/* SPDX-License-Identifier: BSD-3-Clause */
/* How near sessions come to the floor (an object's bytes over one link), and what the state machine costs.
 *
 *   sessions order    on the simulator: time to the last member over the floor, 256 blocks of 256 KiB at
 *                     1 Gbit/s and 50 us, per way in which writes complete, schedule, members and windows.
 *                     FAIR/WORST: links shared evenly among lanes, and the worst of all ways to share them.
 *   sessions speed    on this machine: nanoseconds per block, and per session, with the most blocks. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/sim/session_sim.h"

static const enum schedule_kind kinds[] = {SCHEDULE_CHAIN, SCHEDULE_BINOMIAL, SCHEDULE_CIRCULANT};
static const uint32_t members[] = {4, 6, 8, 16};
static const struct windows {
    uint32_t all, edge;
} windows[] = {{1, 1}, {2, 1}, {2, 2}, {3, 1}, {3, 2}, {3, 3},
               {4, 1}, {4, 2}, {4, 3}, {4, 4}, {5, 4}, {6, 5}};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* --- Order --------------------------------------------------------------------------------------- */

static double over_floor(const struct sim_options *options)
{
    struct sim *sim = sim_open(options);
    double ratio;

    sim_run(sim, UINT64_MAX);
    if (sim_checker(sim)->text[0] != '\0' || sim_result(sim)->code != 0) {
        fprintf(stderr, "sessions: %s\n", sim_checker(sim)->text);
        exit(EXIT_FAILURE);
    }
    ratio = (double)sim_result(sim)->received_ns / (double)sim_floor_ns(options);
    sim_close(sim);
    return ratio;
}

static void print_row(struct sim_options *options)
{
    printf("%-9s %2u", schedule_name(options->schedule.kind), options->schedule.members);
    for (size_t w = 0; w < COUNT(windows); w++) {
        double fair = 0, worst = 0;

        options->window = windows[w].all;
        options->edge_window = windows[w].edge;
        for (int sharing = 0; sharing < SIM_SHARINGS; sharing++) {
            double ratio;

            options->sharing = (enum sim_sharing)sharing;
            ratio = over_floor(options);
            if (sharing == SIM_FAIR)
                fair = ratio;
            if (ratio > worst)
                worst = ratio;
        }
        printf(" %.2f/%.2f", fair, worst);
    }
    printf("\n");
}

static void print_table(const char *title, uint64_t buffer_bytes, bool delivery_complete)
{
    struct sim_options options = {.stall_ns = UINT64_MAX,
                                  .overtake_ns = 4000000,
                                  .block_bytes = 262144,
                                  .chunk_bytes = 16384,
                                  .buffer_bytes = buffer_bytes,
                                  .link_rate = 125000000,
                                  .latency_ns = 50000,
                                  .jitter_ns = 5000,
                                  .local_ns = 1000,
                                  .view_ns = 1,
                                  .seed = 1,
                                  .delivery_complete = delivery_complete};

    printf("%s\nFAIR/WORST, window/edge", title);
    for (size_t w = 0; w < COUNT(windows); w++)
        printf("%s%u/%u", w == 0 ? " " : "       ", windows[w].all, windows[w].edge);
    printf("\n");
    for (size_t k = 0; k < COUNT(kinds); k++) {
        for (size_t n = 0; n < COUNT(members); n++) {
            options.schedule = (struct schedule){.kind = kinds[k], .members = members[n], .blocks = 256};
            print_row(&options);
        }
    }
}

static void print_order(void)
{
    print_table("a write is done when the peer has it", UINT64_C(1) << 20, true);
    print_table("a write is done when it is in a send buffer of 256 KiB", UINT64_C(1) << 18, false);
    print_table("a write is done when it is in a send buffer of 1 MiB", UINT64_C(1) << 20, false);
}

/* --- Speed --------------------------------------------------------------------------------------- */

static uint64_t clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

struct driven {
    struct session *session;
    struct session_actions actions;
    uint64_t now_ns, writes;
};

static void tell(struct driven *driven, enum session_event_type type, uint32_t peer, uint32_t block)
{
    struct session_event event = {
        .type = type, .now_ns = ++driven->now_ns, .peer = peer, .block = block, .culprit = SESSION_NOBODY};

    if (session_step(driven->session, &event, &driven->actions) != 0)
        abort();
}

static void write_all(struct driven *driven)
{
    struct transfer write;

    while (session_next_write(driven->session, driven->now_ns, &write)) {
        session_posted(driven->session, ++driven->now_ns, &write);
        tell(driven, SESSION_WRITTEN, write.peer, write.block);
        driven->writes++;
    }
}

/* A receiver that gets everything in order and passes it on. */
static uint64_t relay(struct driven *driven, const struct session_config *config, uint32_t peers[])
{
    struct schedule_rank part;
    struct transfer in;
    uint64_t start_ns, steps = schedule_steps(&config->schedule);
    size_t count;

    schedule_rank_init(&part, &config->schedule, config->rank);
    tell(driven, SESSION_BEGIN, config->rank, 0);
    tell(driven, SESSION_LANDED, config->rank, 0);
    tell(driven, SESSION_START, 0, 0);
    count = schedule_out_peers(&part, peers);
    for (size_t i = 0; i < count; i++)
        tell(driven, SESSION_GRANT, peers[i], 0);
    start_ns = clock_ns();
    for (uint64_t step = 0; step < steps; step++) {
        if (!schedule_incoming(&part, step, &in))
            continue;
        tell(driven, SESSION_ARRIVED, in.peer, in.block);
        write_all(driven);
    }
    return clock_ns() - start_ns;
}

static void print_speed(void)
{
    struct session_action list[SESSION_ACTIONS_MAX(16)];
    uint32_t peers[16];

    printf("16 members, rank 5, %u blocks: an arrival, the writes that it allows and their ends\n",
           SCHEDULE_BLOCKS_MAX);
    for (size_t k = 0; k < COUNT(kinds); k++) {
        struct session_config config = {
            .schedule = {.kind = kinds[k], .members = 16, .blocks = SCHEDULE_BLOCKS_MAX},
            .rank = 5,
            .window = 4,
            .edge_window = 3,
            .overtake_ns = 1000000,
            .stall_ns = UINT64_MAX};
        struct driven driven = {.actions = {.list = list}};
        void *memory = malloc(session_bytes(&config.schedule));
        uint64_t init_ns = clock_ns(), relay_ns;

        if (memory == NULL)
            abort();
        driven.session = session_init(memory, &config);
        init_ns = clock_ns() - init_ns;
        relay_ns = relay(&driven, &config, peers);
        printf("%-9s %6.1f ns a block; session_init %5.1f ns a block, %zu bytes\n", schedule_name(kinds[k]),
               (double)relay_ns / SCHEDULE_BLOCKS_MAX, (double)init_ns / SCHEDULE_BLOCKS_MAX,
               session_bytes(&config.schedule));
        free(memory);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "order") == 0) {
        print_order();
    } else if (argc == 2 && strcmp(argv[1], "speed") == 0) {
        print_speed();
    } else {
        fprintf(stderr, "usage: sessions order | speed\n");
        return 2;
    }
    return 0;
}
