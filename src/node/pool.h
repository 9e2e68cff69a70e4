/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NODE_POOL_H
#define NODE_POOL_H

/* libuv's pool of worker threads, one for the whole process. It begins with the first work, and libuv aborts
 * the process when it cannot have its threads then: a limit of processes or of address space is enough. */

#include "base/fail.h"

/* Have the pool begin now; 0, or COVEY_NO_MEMORY if there cannot be that many threads. The threads take no
 * signals. */
int pool_begin(struct fail *fail);

#endif
