/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_LIB_FAKE_FABRIC_H
#define TESTS_LIB_FAKE_FABRIC_H

/* fabric.h between the fabrics of one process, for tests: link fake_fabric.c instead of the real one.
 *
 * Everything is done at once: a write copies, an event is queued at its fabric until that is polled. A write
 * outside of a remote region, or with a wrong key, ends both ends of its link. One thread. */

#include "fabric/fabric.h"

/* As if the process of the fabric were killed: every link of it ends, at the other ends too; connecting to it
 * fails. Its own links deliver LINK_DOWN as well. */
void fake_fabric_kill(struct fabric *fabric);

/* Let link events wait: while a lane is held, LINK_UP and LINK_DOWN of that lane are not delivered, nor what
 * comes behind them on the link. */
void fake_fabric_hold(struct fabric *fabric, enum fabric_lane lane, bool hold);

/* A fabric_link_expect() or fabric_link_connect() fails: the next one, or after so many more. */
void fake_fabric_fail_next(struct fabric *fabric, unsigned after);

/* Links that are not freed yet. */
size_t fake_fabric_links(const struct fabric *fabric);

#endif
