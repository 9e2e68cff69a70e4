/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/journal.h"

#include <stdlib.h>
#include <string.h>

#include "control/item.h"
#include "daemon/condition.h"

void journal_init(struct journal *journal)
{
    memset(journal, 0, sizeof(*journal));
    journal->change = 1;
    pthread_mutex_init(&journal->mutex, NULL);
    condition_init(&journal->grew);
}

static void clear_entry(struct journal_entry *entry)
{
    free(entry->type);
    free(entry->subject);
    free(entry->text);
    memset(entry, 0, sizeof(*entry));
}

void journal_fini(struct journal *journal)
{
    for (size_t i = 0; i < JOURNAL_EVENTS; i++)
        clear_entry(&journal->entries[i]);
    pthread_cond_destroy(&journal->grew);
    pthread_mutex_destroy(&journal->mutex);
}

void journal_add(struct journal *journal, const struct covey_event *event)
{
    struct journal_entry *entry;

    pthread_mutex_lock(&journal->mutex);
    journal->last++;
    journal->change++;
    entry = &journal->entries[journal->last % JOURNAL_EVENTS];
    clear_entry(entry);
    entry->time_ns = event->time_ns;
    entry->view = event->view;
    entry->wedge_ns = event->wedge_ns;
    entry->type = strdup(event->type);
    entry->subject = strdup(event->subject);
    entry->text = strdup(event->text);
    pthread_cond_broadcast(&journal->grew);
    pthread_mutex_unlock(&journal->mutex);
}

void journal_change(struct journal *journal)
{
    pthread_mutex_lock(&journal->mutex);
    journal->change++;
    pthread_cond_broadcast(&journal->grew);
    pthread_mutex_unlock(&journal->mutex);
}

void journal_end(struct journal *journal)
{
    pthread_mutex_lock(&journal->mutex);
    journal->ended = true;
    pthread_cond_broadcast(&journal->grew);
    pthread_mutex_unlock(&journal->mutex);
}

static uint64_t await(struct journal *journal, const uint64_t *number, uint64_t after, int timeout_ms)
{
    const struct timespec until = condition_deadline(timeout_ms);
    uint64_t reached;
    int waited = 0;

    pthread_mutex_lock(&journal->mutex);
    while (*number <= after && !journal->ended && waited == 0)
        waited = pthread_cond_timedwait(&journal->grew, &journal->mutex, &until);
    reached = *number;
    pthread_mutex_unlock(&journal->mutex);
    return reached;
}

uint64_t journal_await_event(struct journal *journal, uint64_t after, int timeout_ms)
{
    return await(journal, &journal->last, after, timeout_ms);
}

uint64_t journal_await_change(struct journal *journal, uint64_t after, int timeout_ms)
{
    return await(journal, &journal->change, after, timeout_ms);
}

static json_t *entry_item(uint64_t number, const struct journal_entry *entry)
{
    bool is_view = entry->type != NULL && strcmp(entry->type, "view") == 0;

    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "number", item_u64(number), "time",
                     item_time(entry->time_ns), "type", item_text(entry->type != NULL ? entry->type : ""),
                     "subject", item_text(entry->subject != NULL ? entry->subject : ""), "text",
                     item_text(entry->text != NULL ? entry->text : "(no memory was left to keep it)"), "view",
                     item_u64(entry->view), "wedge_ms",
                     is_view ? json_real((double)entry->wedge_ns / 1e6) : json_null());
}

void journal_read(struct journal *journal, uint64_t *after, size_t max, json_t *items, uint64_t *lost)
{
    pthread_mutex_lock(&journal->mutex);
    if (journal->last > JOURNAL_EVENTS && *after < journal->last - JOURNAL_EVENTS) {
        *lost += journal->last - JOURNAL_EVENTS - *after;
        *after = journal->last - JOURNAL_EVENTS;
    }
    while (*after < journal->last && max-- > 0) {
        ++*after;
        json_array_append_new(items, entry_item(*after, &journal->entries[*after % JOURNAL_EVENTS]));
    }
    pthread_mutex_unlock(&journal->mutex);
}
