/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/finish.h"

#include <assert.h>
#include <string.h>

#include "base/bitmap.h"

#define NOBODY UINT16_MAX

struct finish {
    uint32_t members, blocks;
    uint64_t view;   /* whose answers these are */
    bool open;       /* this member coordinates in it */
    bool forgot;     /* somebody knows nothing of the object */
    uint32_t source; /* who is being pulled from; members: nobody */
    uint64_t *present, *answered;
    uint16_t *holders; /* by block: the first who said that it has it */
};

uint32_t finish_coordinator(const uint64_t *present, uint32_t members)
{
    return (uint32_t)bitmap_next(present, members, 0);
}

size_t finish_bytes(uint32_t members, uint32_t blocks)
{
    return sizeof(struct finish) + 2 * BITMAP_WORDS(members) * sizeof(uint64_t) + blocks * sizeof(uint16_t);
}

static void begin_view(struct finish *finish, uint64_t view)
{
    finish->view = view;
    finish->open = false;
    finish->forgot = false;
    finish->source = finish->members;
    bitmap_clear_all(finish->present, finish->members);
    bitmap_clear_all(finish->answered, finish->members);
    memset(finish->holders, 0xff, finish->blocks * sizeof(*finish->holders));
}

struct finish *finish_init(void *memory, uint32_t members, uint32_t blocks)
{
    struct finish *finish = memory;

    assert(members < NOBODY);
    finish->members = members;
    finish->blocks = blocks;
    finish->present = (uint64_t *)(finish + 1);
    finish->answered = finish->present + BITMAP_WORDS(members);
    finish->holders = (uint16_t *)(finish->answered + BITMAP_WORDS(members));
    begin_view(finish, 0);
    return finish;
}

void finish_open(struct finish *finish, uint64_t view, const uint64_t *present)
{
    if (view > finish->view)
        begin_view(finish, view);
    if (view < finish->view)
        return;
    finish->open = true;
    memcpy(finish->present, present, BITMAP_WORDS(finish->members) * sizeof(*present));
}

void finish_have(struct finish *finish, uint64_t view, uint32_t rank, const uint64_t *words, uint32_t first,
                 uint32_t count, bool last)
{
    if (view < finish->view)
        return;
    if (view > finish->view)
        begin_view(finish, view);
    for (uint32_t i = 0; i < count * 64 && first + i < finish->blocks; i++) {
        if (bitmap_get(words, i) && finish->holders[first + i] == NOBODY)
            finish->holders[first + i] = (uint16_t)rank;
    }
    if (last)
        bitmap_set(finish->answered, rank);
}

void finish_forgot(struct finish *finish, uint32_t rank)
{
    finish->forgot = true;
    bitmap_set(finish->answered, rank);
}

uint32_t finish_silent(const struct finish *finish)
{
    uint32_t rank = 0;

    while (rank < finish->members &&
           (!bitmap_get(finish->present, rank) || bitmap_get(finish->answered, rank)))
        rank++;
    return rank;
}

/* The holder of the first missing block; members if none is missing, NOBODY if nobody has it. */
static uint32_t holder_of_missing(const struct finish *finish, const uint64_t *held)
{
    uint32_t source = finish->members;

    for (uint32_t block = 0; block < finish->blocks; block++) {
        if (bitmap_get(held, block))
            continue;
        if (finish->holders[block] == NOBODY)
            return NOBODY;
        if (source == finish->members)
            source = finish->holders[block];
    }
    return source;
}

enum finish_step finish_next(struct finish *finish, uint32_t self, const uint64_t *held, bool root)
{
    uint32_t source;

    if (!finish->open || finish->source != finish->members)
        return FINISH_WAIT;
    bitmap_set(finish->answered, self);
    if (finish_silent(finish) != finish->members)
        return FINISH_WAIT;
    if (root)
        return FINISH_START;
    source = finish->forgot ? NOBODY : holder_of_missing(finish, held);
    if (source == NOBODY)
        return FINISH_DROP;
    if (source == finish->members)
        return FINISH_START;
    finish->source = source;
    bitmap_clear(finish->answered, source); /* until its part of the pull is over, too */
    return FINISH_PULL;
}

uint32_t finish_source(const struct finish *finish)
{
    return finish->source;
}

void finish_skip(const struct finish *finish, const uint64_t *held, uint64_t *skip)
{
    bitmap_set_all(skip, finish->blocks);
    for (uint32_t block = 0; block < finish->blocks; block++) {
        if (finish->holders[block] == finish->source && !bitmap_get(held, block))
            bitmap_clear(skip, block);
    }
}

void finish_pulled(struct finish *finish)
{
    finish->source = finish->members;
}
