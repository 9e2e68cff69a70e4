/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONTROL_REPLY_H
#define CONTROL_REPLY_H

/* What a daemon answers to a request: any number of these, in any order,
 *
 *     {"schema": 1, "items": [...]}                        a page of at most REPLY_PAGE_ITEMS objects
 *     {"schema": 1, "progress": {"done": 5, "total": 9}}   at least one a second while it works or waits
 *
 * and then one of these:
 *
 *     {"schema": 1, "done": {...}}
 *     {"schema": 1, "error": {"code": "NOT_FOUND", "text": "a sentence"}}
 *
 * A daemon that is silent for REPLY_SILENCE_MS is stopped or stuck: a client need not wait longer. */

#include <jansson.h>

#include "base/fail.h"

#define REPLY_PAGE_ITEMS 256 /* the longest names, all escaped, still fit a frame */
#define REPLY_BEAT_MS    1000
#define REPLY_SILENCE_MS 4000

enum reply_kind { REPLY_ITEMS, REPLY_PROGRESS, REPLY_DONE, REPLY_ERROR };

struct reply {
    enum reply_kind kind;
    const json_t *body; /* array for items, object otherwise */
};

/* A frame with this body, whose reference is taken; NULL without memory (also when body is NULL). */
json_t *reply_encode(enum reply_kind kind, json_t *body);

/* The body lives as long as the document. COVEY_PROTOCOL. */
int reply_decode(const json_t *document, struct reply *reply, struct fail *fail);

#endif
