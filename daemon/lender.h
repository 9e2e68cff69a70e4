/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_LENDER_H
#define DAEMON_LENDER_H

/* Memory that a bench lends to a group with covey_put(): it may be used again, or freed, only when on_release
 * has named it. Any thread. */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct lender {
    pthread_mutex_t mutex;
    pthread_cond_t returned;
    struct loan *loans;
};

void lender_init(struct lender *lender);

/* Free everything, lent or not: only when the node is closed. */
void lender_fini(struct lender *lender);

/* Memory for one buffer, filled with zeros; NULL if there is none. */
void *lender_take(struct lender *lender, size_t bytes);

/* A put with this memory begins. */
void lender_lend(struct lender *lender, void *base);

/* on_release named it. Memory that is not the lender's is ignored. */
void lender_return(struct lender *lender, const void *base);

/* Wait up to timeout_ms until the memory is not lent. Whether that is so. */
bool lender_await(struct lender *lender, const void *base, int timeout_ms);

/* The bench is over: free the memory now, or when it comes back. */
void lender_drop(struct lender *lender, void *base);

#endif
