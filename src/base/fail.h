/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BASE_FAIL_H
#define BASE_FAIL_H

/* The sentence that goes with an error code.
 *
 * A function that can fail for a reason worth telling takes a struct fail * (never NULL) and returns
 * fail_set(fail, code, "..."). Callers add context with fail_prefix(), or pass it on. */

#include <covey/error.h>

#define FAIL_TEXT_MAX 512

struct fail {
    int code; /* 0: nothing failed */
    char text[FAIL_TEXT_MAX];
};

/* Write the sentence (cut at FAIL_TEXT_MAX - 1 bytes) and return code, which is negative. Arguments may be
 * parts of fail->text. */
int fail_set(struct fail *fail, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Put context before the sentence that is there; the code stays. Returns the code. */
int fail_prefix(struct fail *fail, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
