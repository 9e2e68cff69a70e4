/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_LIB_DOCUMENTS_H
#define TESTS_LIB_DOCUMENTS_H

/* The JSON that covey prints, against what covey(1) says of it. Whatever differs fails the test. */

#include <jansson.h>

#include "tests/lib/process.h"

/* Check that an object has exactly the keys of "KEY:TYPES KEY:TYPES ...", each of one of its types: i
 * integer, r real, b boolean, n null, a array, o object, x 16 hexadecimal digits, t time, s other text. */
void expect_keys(const json_t *object, const char *keys);

/* The only document of a command that went well, which has the schema; freed by the caller. */
json_t *parse_output(const struct result *result);

/* Check the document of a command, and each of its items. */
void expect_document(const struct result *result, const char *keys, const char *list, const char *item_keys);

#endif
