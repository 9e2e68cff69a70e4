/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/progress.h"

#include <stdio.h>
#include <time.h>

#include "daemon/units.h"

#define BAR_WIDTH 24

static uint64_t monotonic_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

void progress_init(struct progress *progress, const char *label, bool shown)
{
    *progress = (struct progress){.label = label, .shown = shown, .begin_ns = monotonic_ns()};
}

void progress_draw(struct progress *progress, uint64_t done, uint64_t total)
{
    uint64_t elapsed_ns = monotonic_ns() - progress->begin_ns;
    double part;
    int filled;

    if (!progress->shown || total == 0)
        return;
    part = done < total ? (double)done / (double)total : 1;
    filled = (int)(part * BAR_WIDTH);
    fprintf(stderr, "\r\033[K%s  [%.*s%.*s]  %3.0f%%  %s of %s  %s", progress->label, filled,
            "########################", BAR_WIDTH - filled, "------------------------", part * 100,
            UNITS_BYTES(done), UNITS_BYTES(total),
            UNITS_RATE(elapsed_ns == 0 ? 0 : (double)done / (double)elapsed_ns));
    progress->drawn = true;
}

double progress_seconds(const struct progress *progress)
{
    return (double)(monotonic_ns() - progress->begin_ns) / 1e9;
}

void progress_clear(struct progress *progress)
{
    if (progress->drawn)
        fputs("\r\033[K", stderr);
    progress->drawn = false;
}
