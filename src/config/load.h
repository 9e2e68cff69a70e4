/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONFIG_LOAD_H
#define CONFIG_LOAD_H

/* Loading, with the host as an argument: what covey_options_load() does, for tests and fuzzers too. */

#include "config/host.h"
#include "config/options.h"

#define OPTIONS_FILE_MAX (UINT64_C(1) << 20) /* bytes */

/* Load the text of a file. path is for messages and kept in the options.
 *
 * COVEY_CONFIG: *errors has a line per mistake, the caller's to free. COVEY_NO_MEMORY: nothing is written. */
int options_load_text(const char *path, const char *bytes, size_t count, const char *node_name,
                      const struct host *host, struct covey_options **options, char **errors);

/* The same with the file that path names. */
int options_load_file(const char *path, const char *node_name, const struct host *host,
                      struct covey_options **options, char **errors);

#endif
