/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/lender.h"

#include <stdlib.h>
#include <sys/mman.h>

#include <utlist.h>

#include "daemon/condition.h"

struct loan {
    struct loan *next;
    void *base;
    size_t bytes;
    bool lent;
    bool dropped; /* nobody waits for it any more */
};

void lender_init(struct lender *lender)
{
    lender->loans = NULL;
    pthread_mutex_init(&lender->mutex, NULL);
    condition_init(&lender->returned);
}

static void free_loan(struct lender *lender, struct loan *loan)
{
    LL_DELETE(lender->loans, loan);
    munmap(loan->base, loan->bytes);
    free(loan);
}

void lender_fini(struct lender *lender)
{
    while (lender->loans != NULL)
        free_loan(lender, lender->loans);
    pthread_cond_destroy(&lender->returned);
    pthread_mutex_destroy(&lender->mutex);
}

void *lender_take(struct lender *lender, size_t bytes)
{
    struct loan *loan = calloc(1, sizeof(*loan));

    if (loan == NULL)
        return NULL;
    loan->bytes = bytes;
    loan->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (loan->base == MAP_FAILED) {
        free(loan);
        return NULL;
    }
    pthread_mutex_lock(&lender->mutex);
    LL_PREPEND(lender->loans, loan);
    pthread_mutex_unlock(&lender->mutex);
    return loan->base;
}

static struct loan *find(struct lender *lender, const void *base)
{
    struct loan *loan;

    LL_FOREACH(lender->loans, loan)
    {
        if (loan->base == base)
            return loan;
    }
    return NULL;
}

void lender_lend(struct lender *lender, void *base)
{
    pthread_mutex_lock(&lender->mutex);
    find(lender, base)->lent = true;
    pthread_mutex_unlock(&lender->mutex);
}

void lender_return(struct lender *lender, const void *base)
{
    struct loan *loan;

    pthread_mutex_lock(&lender->mutex);
    loan = find(lender, base);
    if (loan != NULL && loan->dropped) {
        free_loan(lender, loan);
    } else if (loan != NULL) {
        loan->lent = false;
        pthread_cond_broadcast(&lender->returned);
    }
    pthread_mutex_unlock(&lender->mutex);
}

bool lender_await(struct lender *lender, const void *base, int timeout_ms)
{
    const struct timespec until = condition_deadline(timeout_ms);
    struct loan *loan;
    int waited = 0;
    bool back;

    pthread_mutex_lock(&lender->mutex);
    loan = find(lender, base);
    while (loan->lent && waited == 0)
        waited = pthread_cond_timedwait(&lender->returned, &lender->mutex, &until);
    back = !loan->lent;
    pthread_mutex_unlock(&lender->mutex);
    return back;
}

void lender_drop(struct lender *lender, void *base)
{
    struct loan *loan;

    pthread_mutex_lock(&lender->mutex);
    loan = find(lender, base);
    if (loan->lent)
        loan->dropped = true;
    else
        free_loan(lender, loan);
    pthread_mutex_unlock(&lender->mutex);
}
