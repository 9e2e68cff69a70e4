/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/view.h"

#include <assert.h>
#include <string.h>

#define FLAG_FORCED 1u
#define ID_MAX      65535u

_Static_assert(sizeof(struct member) == VIEW_MEMBER_WORDS * sizeof(uint64_t), "a member is five words");

size_t view_words_max(uint32_t members_max, uint32_t groups)
{
    return VIEW_HEADER_WORDS + groups + (size_t)members_max * VIEW_MEMBER_WORDS;
}

size_t view_encode(const struct view *view, const uint64_t *trim, uint32_t groups, uint64_t *words)
{
    words[0] = view->epoch;
    words[1] = view->number;
    words[2] = view->origin;
    words[3] = view->first;
    words[4] = (uint64_t)(view->forced ? FLAG_FORCED : 0) << 32 | view->count;
    memcpy(words + VIEW_HEADER_WORDS, trim, groups * sizeof(*trim));
    memcpy(words + VIEW_HEADER_WORDS + groups, view->members, view->count * sizeof(view->members[0]));
    return view_words_max(view->count, groups);
}

size_t view_value_words(const uint64_t *words, uint32_t members_max, uint32_t groups)
{
    uint32_t count = (uint32_t)words[4];

    return count <= members_max ? view_words_max(count, groups) : 0;
}

struct member view_value_member(const uint64_t *words, uint32_t groups, uint32_t rank)
{
    struct member member;

    memcpy(&member, words + VIEW_HEADER_WORDS + groups + (size_t)rank * VIEW_MEMBER_WORDS, sizeof(member));
    return member;
}

/* Ids are 16 bits: a set of those seen finds a repeated one in one pass. */
static bool members_are_valid(const uint64_t *words, uint32_t groups, uint32_t count)
{
    uint64_t seen[(ID_MAX + 1) / 64] = {0};

    for (uint32_t rank = 0; rank < count; rank++) {
        struct member member = view_value_member(words, groups, rank);
        if (member.id > ID_MAX || member.reserved != 0 || member.incarnation == 0 ||
            (seen[member.id / 64] >> (member.id % 64) & 1) != 0)
            return false;
        seen[member.id / 64] |= UINT64_C(1) << (member.id % 64);
    }
    return true;
}

bool view_decode(const uint64_t *words, uint32_t members_max, uint32_t groups, struct view *view,
                 uint64_t *trim)
{
    uint32_t count = (uint32_t)words[4];

    assert(members_max <= COVEY_MEMBERS_MAX && groups <= VIEW_GROUPS_MAX);
    if (words[0] == 0 || words[1] == 0 || words[3] == 0 || words[3] > words[1] || words[4] >> 33 != 0 ||
        count > members_max || !members_are_valid(words, groups, count))
        return false;
    view->epoch = words[0];
    view->number = words[1];
    view->origin = words[2];
    view->first = words[3];
    view->forced = (words[4] >> 32 & FLAG_FORCED) != 0;
    view->count = count;
    memcpy(trim, words + VIEW_HEADER_WORDS, groups * sizeof(*trim));
    memcpy(view->members, words + VIEW_HEADER_WORDS + groups, count * sizeof(view->members[0]));
    return true;
}

void view_copy(struct view *to, const struct view *from)
{
    memcpy(to, from, offsetof(struct view, members));
    memcpy(to->members, from->members, from->count * sizeof(from->members[0]));
}

uint32_t view_rank(const struct view *view, uint32_t id, uint64_t incarnation)
{
    uint32_t rank = view_rank_of_id(view, id);

    if (rank == VIEW_RANK_NONE || view->number == 0 || view->members[rank].incarnation == incarnation)
        return rank;
    return VIEW_RANK_NONE;
}

uint32_t view_rank_of_id(const struct view *view, uint32_t id)
{
    for (uint32_t rank = 0; rank < view->count; rank++) {
        if (view->members[rank].id == id)
            return rank;
    }
    return VIEW_RANK_NONE;
}
