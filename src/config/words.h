/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONFIG_WORDS_H
#define CONFIG_WORDS_H

/* The words of a configuration file for what is an enum inside: indexed by it, NULL at the end. */

#include "schedule/schedule.h"

#define SCHEDULE_WORD_AUTO SCHEDULE_KINDS /* in place of a kind */

extern const char *const quorum_words[];   /* enum quorum_rule */
extern const char *const schedule_words[]; /* enum schedule_kind, SCHEDULE_WORD_AUTO */
extern const char *const level_words[];    /* enum covey_log_level */

#endif
