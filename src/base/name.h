/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BASE_NAME_H
#define BASE_NAME_H

/* What may be a name of a cluster, a node, a group, an object or a buffer: 1..COVEY_NAME_MAX bytes of
 * printable UTF-8 without '/'. Characters that cannot be seen (controls, no-break and zero-width blanks, byte
 * order marks, direction marks) are refused, so that two names that look alike at least have the same
 * letters. */

#include <stddef.h>

#include "base/fail.h"

/* 0, or COVEY_INVALID and what is wrong with the bytes as text that a person can read. They need no NUL. */
int name_check_printable(const char *bytes, size_t count, struct fail *fail);

/* 0, or COVEY_INVALID and what is wrong with the name. */
int name_check(const char *bytes, size_t count, struct fail *fail);

/* Stricter, for what becomes part of a file's name (a node): no blank, and neither '.' nor '-' at its
 * beginning. */
int name_check_file(const char *bytes, size_t count, struct fail *fail);

#endif
