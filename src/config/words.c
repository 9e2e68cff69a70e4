/* SPDX-License-Identifier: BSD-3-Clause */
#include "config/words.h"

#include <stddef.h>

#include "config/options.h"

const char *const quorum_words[] = {
    [QUORUM_MAJORITY] = "majority", [QUORUM_TIE_BREAKER] = "tie-breaker", NULL};

const char *const schedule_words[] = {[SCHEDULE_SEQUENTIAL] = "sequential",
                                      [SCHEDULE_CHAIN] = "chain",
                                      [SCHEDULE_TREE] = "tree",
                                      [SCHEDULE_BINOMIAL] = "binomial",
                                      [SCHEDULE_CIRCULANT] = "circulant",
                                      [SCHEDULE_WORD_AUTO] = "auto",
                                      NULL};

const char *const level_words[] = {[COVEY_LOG_ERROR] = "error",
                                   [COVEY_LOG_WARNING] = "warning",
                                   [COVEY_LOG_INFO] = "info",
                                   [COVEY_LOG_DEBUG] = "debug",
                                   NULL};
