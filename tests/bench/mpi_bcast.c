/* SPDX-License-Identifier: BSD-3-Clause */
/* The peer of the benchmarks: MPI_Bcast of one object, timed as a put of Covey is timed.
 *
 *   mpi_bcast BYTES REPETITIONS [PAUSE]     under mpirun; built by scripts/bench with mpicc
 *
 * For each repetition rank 0 prints a line "SECONDS PROCESSOR_SECONDS PEAK_BYTES": from the root's call to
 * the return at the last rank (all ranks share one clock: they are on one machine), the processor time of all
 * ranks meanwhile, and the largest resident set of a rank so far. The root waits PAUSE seconds in between,
 * while the others are in the call already. Each repetition sends other bytes, and every rank checks them.
 * The first one touches the memory; whoever reads the lines drops it. */

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static double peak_bytes(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return 1024.0 * (double)usage.ru_maxrss;
}

static double processor_seconds(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static uint64_t word(uint64_t index, int repetition)
{
    return (index + 1) * (UINT64_C(0x9e3779b97f4a7c15) + 2 * (uint64_t)repetition);
}

static void fill(uint64_t *words, uint64_t count, int repetition)
{
    for (uint64_t i = 0; i < count; i++)
        words[i] = word(i, repetition);
}

static void verify(const uint64_t *words, uint64_t count, int repetition, int rank)
{
    for (uint64_t i = 0; i < count; i++) {
        if (words[i] != word(i, repetition)) {
            fprintf(stderr, "mpi_bcast: rank %d has wrong bytes at %llu\n", rank,
                    (unsigned long long)(8 * i));
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

static void repeat(uint64_t *words, uint64_t count, int repetition, unsigned pause_seconds)
{
    double begin, end, used, peak, last, all, largest;
    int rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        fill(words, count, repetition);
    MPI_Barrier(MPI_COMM_WORLD);
    used = processor_seconds();
    begin = now();
    if (rank == 0 && pause_seconds > 0)
        sleep(pause_seconds);
    MPI_Bcast(words, (int)count, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    end = now();
    used = processor_seconds() - used;
    peak = peak_bytes();
    MPI_Reduce(&end, &last, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&used, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&peak, &largest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    verify(words, count, repetition, rank);
    if (rank == 0) {
        printf("%.6f %.6f %.0f\n", last - begin, all, largest);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    bool complete = argc == 3 || argc == 4;
    uint64_t *words, count = complete ? strtoull(argv[1], NULL, 10) / sizeof(*words) : 0;
    int repetitions = complete ? atoi(argv[2]) : 0;
    unsigned pause_seconds = argc == 4 ? (unsigned)atoi(argv[3]) : 0;

    MPI_Init(&argc, &argv);
    words = malloc(count * sizeof(*words));
    if (words == NULL || count == 0 || count > INT32_MAX || repetitions < 1) {
        fprintf(stderr, "usage: mpi_bcast BYTES REPETITIONS [PAUSE]\n");
        MPI_Abort(MPI_COMM_WORLD, 64);
        abort();
    }
    for (int repetition = 0; repetition < repetitions; repetition++)
        repeat(words, count, repetition, pause_seconds);
    free(words);
    MPI_Finalize();
    return 0;
}
