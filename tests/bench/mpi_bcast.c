/* SPDX-License-Identifier: BSD-3-Clause */
/* The peer of the benchmarks: MPI_Bcast of one object, timed as a put of Covey is timed.
 *
 *   mpi_bcast BYTES REPETITIONS     under mpirun; built by scripts/bench with mpicc
 *
 * For each repetition rank 0 prints a line "SECONDS PROCESSOR_SECONDS": from the root's call to the return at
 * the last rank (all ranks share one clock: they are on one machine), and the processor time of all ranks
 * meanwhile. Each repetition sends other bytes, and every rank checks them. The first one touches the memory;
 * whoever reads the lines drops it. */

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
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

static void repeat(uint64_t *words, uint64_t count, int repetition, int rank)
{
    double begin, end, used, last, all;

    if (rank == 0)
        fill(words, count, repetition);
    MPI_Barrier(MPI_COMM_WORLD);
    used = processor_seconds();
    begin = now();
    MPI_Bcast(words, (int)count, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    end = now();
    used = processor_seconds() - used;
    MPI_Reduce(&end, &last, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&used, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    verify(words, count, repetition, rank);
    if (rank == 0) {
        printf("%.6f %.6f\n", last - begin, all);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    uint64_t *words, count;
    int rank, repetitions;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    count = argc == 3 ? strtoull(argv[1], NULL, 10) / sizeof(*words) : 0;
    repetitions = argc == 3 ? atoi(argv[2]) : 0;
    words = malloc(count * sizeof(*words));
    if (words == NULL || count == 0 || count > INT32_MAX || repetitions < 1) {
        fprintf(stderr, "usage: mpi_bcast BYTES REPETITIONS\n");
        MPI_Abort(MPI_COMM_WORLD, 64);
        abort();
    }
    for (int repetition = 0; repetition < repetitions; repetition++)
        repeat(words, count, repetition, rank);
    free(words);
    MPI_Finalize();
    return 0;
}
