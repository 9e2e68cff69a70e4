/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_JOURNAL_H
#define DAEMON_JOURNAL_H

/* What happened, for those who follow: the last JOURNAL_EVENTS events, numbered from 1, and a number that
 * grows whenever the view may look different. Any thread. */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include <covey/covey.h>

#define JOURNAL_EVENTS 4096

struct journal_entry {
    uint64_t time_ns, view, wedge_ns;
    char *type, *subject, *text; /* NULL: no memory was left for it */
};

struct journal {
    pthread_mutex_t mutex;
    pthread_cond_t grew;
    uint64_t last;   /* number of the newest event; 0: none */
    uint64_t change; /* of the view; 1 at the start */
    bool ended;
    struct journal_entry entries[JOURNAL_EVENTS]; /* event n is at n % JOURNAL_EVENTS */
};

void journal_init(struct journal *journal);
void journal_fini(struct journal *journal);

/* Keep a copy; the oldest event makes room. */
void journal_add(struct journal *journal, const struct covey_event *event);

/* The view may look different now. */
void journal_change(struct journal *journal);

/* Nobody shall wait any more. */
void journal_end(struct journal *journal);

/* Wait up to timeout_ms until the last event's number, or the change number, exceeds after. Returns it. */
uint64_t journal_await_event(struct journal *journal, uint64_t after, int timeout_ms);
uint64_t journal_await_change(struct journal *journal, uint64_t after, int timeout_ms);

/* Append up to max events after *after to items, as the control protocol shows them, and advance *after to
 * the last one that was. Adds to *lost those that had made room already. */
void journal_read(struct journal *journal, uint64_t *after, size_t max, json_t *items, uint64_t *lost);

#endif
