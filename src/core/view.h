/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CORE_VIEW_H
#define CORE_VIEW_H

/* A view: the numbered membership of the cluster, and its form as a value that members agree on.
 *
 * Members are in rank order: who stays keeps its place, who joins is appended. A node is the pair (id,
 * incarnation): a process that was started again is another node. View 0 is the list of configured nodes; its
 * incarnations are 0, which stands for any.
 *
 * An epoch is drawn when a first view is formed and when a view is forced without a quorum. `origin` is the
 * epoch before this one (0: none) and `first` the number of this epoch's first view, so that a node of the
 * origin can tell that it was left behind.
 *
 * The value is an array of 64-bit words in host order:
 *
 *     0       epoch
 *     1       number
 *     2       origin
 *     3       first
 *     4       flags << 32 | count
 *     5       trim[groups]          last position of each group that every member kept has
 *     5 + g   count * 5 words       id, incarnation, 24 bytes of address
 *
 * Any thread; nothing here has state of its own. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <covey/covey.h>

#define VIEW_ADDRESS_BYTES 24 /* opaque here; the node layer encodes an IP address, a port and a scope */
#define VIEW_GROUPS_MAX    64
#define VIEW_HEADER_WORDS  5
#define VIEW_MEMBER_WORDS  5
#define VIEW_RANK_NONE     UINT32_MAX
#define VIEW_TRIM_NONE     UINT64_MAX /* no member of the group was kept: it starts anew */

struct member {
    uint32_t id;          /* 0..65535 */
    uint32_t reserved;    /* 0 */
    uint64_t incarnation; /* 0 in view 0 only */
    uint8_t address[VIEW_ADDRESS_BYTES];
};

struct view {
    uint64_t epoch;  /* 0 in view 0 */
    uint64_t number; /* grows by one, across epochs too */
    uint64_t origin;
    uint64_t first;
    bool forced; /* declared without a quorum: committed when every member that it keeps accepted it */
    uint32_t count;
    struct member members[COVEY_MEMBERS_MAX];
};

/* Epoch of the view that decided this one. */
static inline uint64_t view_parent_epoch(const struct view *view)
{
    return view->number == view->first ? view->origin : view->epoch;
}

/* Words of the longest value. */
size_t view_words_max(uint32_t members_max, uint32_t groups);

/* Write the value; returns its words. trim[0..groups). */
size_t view_encode(const struct view *view, const uint64_t *trim, uint32_t groups, uint64_t *words);

/* Read a value that a peer wrote. False, and nothing written, unless it is one: number and epoch not 0, at
 * most members_max members, ids in range and unique, incarnations not 0, nothing reserved in use. */
bool view_decode(const uint64_t *words, uint32_t members_max, uint32_t groups, struct view *view,
                 uint64_t *trim);

/* A member of the value in words[], which has as many. */
struct member view_value_member(const uint64_t *words, uint32_t groups, uint32_t rank);

/* Words that the value in words[] has by its own count; 0 if that count is too large. */
size_t view_value_words(const uint64_t *words, uint32_t members_max, uint32_t groups);

/* Copies only the members that there are. */
void view_copy(struct view *to, const struct view *from);

/* Rank of the node; VIEW_RANK_NONE if it is not a member. In view 0 the incarnation does not matter. */
uint32_t view_rank(const struct view *view, uint32_t id, uint64_t incarnation);

/* Rank of any incarnation of the id; VIEW_RANK_NONE if there is none. */
uint32_t view_rank_of_id(const struct view *view, uint32_t id);

#endif
