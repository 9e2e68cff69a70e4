/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_PROGRESS_H
#define DAEMON_PROGRESS_H

/* One line on the terminal that shows how far a long work is, while it lasts:
 *
 *     put model  [##########----------]  52%  1.3 GiB of 2.5 GiB  1.21 GB/s
 */

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *label;
    bool shown; /* stdout and stderr are terminals */
    bool drawn;
    uint64_t begin_ns;
};

void progress_init(struct progress *progress, const char *label, bool shown);
void progress_draw(struct progress *progress, uint64_t done, uint64_t total);
double progress_seconds(const struct progress *progress); /* since progress_init() */
void progress_clear(struct progress *progress);

#endif
