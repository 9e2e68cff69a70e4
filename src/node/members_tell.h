/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NODE_MEMBERS_TELL_H
#define NODE_MEMBERS_TELL_H

/* What the membership does, for people: a line of log for every rule that fires, with who and why, and an
 * event for what an operator wants to know. Called by members.c only. */

#include "core/membership.h"
#include "node/node.h"

void members_tell_rules(struct covey_node *node, const struct membership_actions *actions);
/* A view is installed; node->view is the new one. */
void members_tell_view(struct covey_node *node, const struct membership_actions *actions);
/* The state changes; node->state is still the old one. */
void members_tell_state(struct covey_node *node, const struct membership *membership,
                        enum membership_state state);

#endif
