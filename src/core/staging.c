/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/staging.h"

#include <assert.h>
#include <string.h>

#include "base/bitmap.h"

#define UNITS_MAX UINT32_C(16384)
#define NAMES     1024 /* buckets */
#define NO_UNIT   UINT32_MAX

struct side {
    uint32_t quota, used; /* units */
    uint32_t waiting;
    struct staging_want *first, **last;
};

struct staging {
    uint64_t region_bytes, unit_bytes;
    uint32_t units, free_units, kept_units;
    uint32_t search; /* where the next search for units begins */
    struct side sides[STAGING_SIDES];
    struct staging_slot *names[NAMES];
    struct staging_slot *oldest, *newest; /* kept: the longest unused first */
    struct staging_slot *spare;           /* not in use, by next_named */
    uint64_t *taken;                      /* bitmap of units */
    uint32_t *next_unit;                  /* chains of units */
};

/* --- Layout --------------------------------------------------------------------------------------------- */

static uint64_t unit_of(uint64_t region_bytes)
{
    uint64_t unit = STAGING_UNIT_MIN;

    while (region_bytes / unit > UNITS_MAX)
        unit *= 2;
    return unit;
}

static uint32_t units_of(uint64_t region_bytes)
{
    return (uint32_t)(region_bytes / unit_of(region_bytes));
}

size_t staging_memory(uint64_t region_bytes)
{
    size_t units = units_of(region_bytes);

    return sizeof(struct staging) + units * sizeof(struct staging_slot) +
           BITMAP_WORDS(units) * sizeof(uint64_t) + units * sizeof(uint32_t);
}

struct staging *staging_init(void *memory, uint64_t region_bytes)
{
    struct staging *staging = memory;
    struct staging_slot *slots = (struct staging_slot *)(staging + 1);
    uint32_t units = units_of(region_bytes);

    assert(units >= 2);
    memset(memory, 0, staging_memory(region_bytes));
    staging->region_bytes = region_bytes;
    staging->unit_bytes = unit_of(region_bytes);
    staging->units = units;
    staging->free_units = units;
    staging->taken = (uint64_t *)(slots + units);
    staging->next_unit = (uint32_t *)(staging->taken + BITMAP_WORDS(units));
    for (uint32_t i = 0; i < units; i++) {
        slots[i].next_named = staging->spare;
        staging->spare = &slots[i];
    }
    for (int i = 0; i < STAGING_SIDES; i++) {
        staging->sides[i].quota = units / 2;
        staging->sides[i].last = &staging->sides[i].first;
    }
    return staging;
}

uint64_t staging_block_max(const struct staging *staging)
{
    return staging->sides[STAGING_IN].quota * staging->unit_bytes;
}

/* --- Names ---------------------------------------------------------------------------------------------- */

static size_t bucket(uint64_t session, uint32_t block)
{
    return ((session * UINT64_C(0x9e3779b97f4a7c15) >> 32) + block) % NAMES;
}

struct staging_slot *staging_find(const struct staging *staging, uint64_t session, uint32_t block)
{
    struct staging_slot *slot = staging->names[bucket(session, block)];

    while (slot != NULL && (slot->session != session || slot->block != block || !slot->filled))
        slot = slot->next_named;
    return slot;
}

static void name_add(struct staging *staging, struct staging_slot *slot)
{
    struct staging_slot **head = &staging->names[bucket(slot->session, slot->block)];

    slot->next_named = *head;
    *head = slot;
}

static void name_remove(struct staging *staging, const struct staging_slot *slot)
{
    struct staging_slot **link = &staging->names[bucket(slot->session, slot->block)];

    while (*link != slot)
        link = &(*link)->next_named;
    *link = slot->next_named;
}

/* --- Units ---------------------------------------------------------------------------------------------- */

/* The first of `count` free units that lie together, at or behind `from`; NO_UNIT if there are none. */
static uint32_t find_run(const struct staging *staging, uint32_t from, uint32_t count)
{
    uint32_t run = 0;

    for (uint32_t unit = from; unit < staging->units; unit++) {
        run = bitmap_get(staging->taken, unit) ? 0 : run + 1;
        if (run == count)
            return unit + 1 - count;
    }
    return NO_UNIT;
}

static uint32_t next_free(const struct staging *staging, uint32_t from)
{
    while (bitmap_get(staging->taken, from))
        from++;
    return from;
}

/* Chain `count` units: together if that can be, else wherever they are. So many are free. */
static uint32_t units_take(struct staging *staging, uint32_t count)
{
    uint32_t unit = find_run(staging, staging->search, count);
    uint32_t first;

    if (unit == NO_UNIT)
        unit = find_run(staging, 0, count);
    if (unit == NO_UNIT)
        unit = next_free(staging, 0);
    first = unit;
    for (uint32_t taken = 1;; taken++) {
        bitmap_set(staging->taken, unit);
        staging->next_unit[unit] = taken < count ? next_free(staging, unit + 1) : NO_UNIT;
        if (taken == count)
            break;
        unit = staging->next_unit[unit];
    }
    staging->search = (unit + 1) % staging->units;
    staging->free_units -= count;
    return first;
}

static void units_give(struct staging *staging, const struct staging_slot *slot)
{
    for (uint32_t unit = slot->first; unit != NO_UNIT; unit = staging->next_unit[unit])
        bitmap_clear(staging->taken, unit);
    staging->free_units += slot->units;
}

bool staging_extent(const struct staging *staging, const struct staging_slot *slot, uint32_t *cursor,
                    uint64_t *offset, uint64_t *bytes)
{
    uint32_t unit = slot->first, count = 1;

    if (*cursor == slot->units)
        return false;
    for (uint32_t i = 0; i < *cursor; i++)
        unit = staging->next_unit[unit];
    *offset = unit * staging->unit_bytes;
    for (; staging->next_unit[unit] == unit + 1; unit++)
        count++;
    *cursor += count;
    *bytes = count * staging->unit_bytes;
    return true;
}

/* --- Slots ---------------------------------------------------------------------------------------------- */

static void kept_add(struct staging *staging, struct staging_slot *slot)
{
    slot->newer = NULL;
    slot->older = staging->newest;
    if (staging->newest != NULL)
        staging->newest->newer = slot;
    else
        staging->oldest = slot;
    staging->newest = slot;
    staging->kept_units += slot->units;
}

static void kept_remove(struct staging *staging, struct staging_slot *slot)
{
    if (slot->older != NULL)
        slot->older->newer = slot->newer;
    else
        staging->oldest = slot->newer;
    if (slot->newer != NULL)
        slot->newer->older = slot->older;
    else
        staging->newest = slot->older;
    staging->kept_units -= slot->units;
}

static void slot_free(struct staging *staging, struct staging_slot *slot)
{
    units_give(staging, slot);
    name_remove(staging, slot);
    slot->next_named = staging->spare;
    staging->spare = slot;
}

static void drop_oldest(struct staging *staging)
{
    struct staging_slot *slot = staging->oldest;

    assert(slot != NULL);
    kept_remove(staging, slot);
    slot_free(staging, slot);
}

static struct staging_slot *slot_new(struct staging *staging, const struct staging_want *want, uint32_t units)
{
    struct staging_slot *slot;

    while (staging->free_units < units)
        drop_oldest(staging);
    slot = staging->spare;
    assert(slot != NULL); /* there are as many as units */
    staging->spare = slot->next_named;
    *slot = (struct staging_slot){.session = want->session,
                                  .block = want->block,
                                  .units = units,
                                  .first = units_take(staging, units),
                                  .holds = 1,
                                  .side = want->side};
    name_add(staging, slot);
    staging->sides[want->side].used += units;
    return slot;
}

void staging_fill(struct staging_slot *slot)
{
    slot->filled = true;
}

bool staging_send_on(struct staging *staging, struct staging_slot *slot)
{
    struct side *out = &staging->sides[STAGING_OUT];
    bool counted = slot->holds > 0 && slot->side == STAGING_OUT;

    assert(slot->filled);
    if (!counted && (out->first != NULL || out->used + slot->units > out->quota))
        return false;
    if (slot->holds == 0)
        kept_remove(staging, slot);
    else if (!counted)
        staging->sides[STAGING_IN].used -= slot->units;
    if (!counted)
        out->used += slot->units;
    slot->side = STAGING_OUT;
    slot->holds++;
    return true;
}

void staging_release(struct staging *staging, struct staging_slot *slot)
{
    assert(slot->holds > 0);
    if (--slot->holds > 0)
        return;
    staging->sides[slot->side].used -= slot->units;
    if (slot->filled && !slot->dropped)
        kept_add(staging, slot);
    else
        slot_free(staging, slot);
}

void staging_forget(struct staging *staging, uint64_t session)
{
    for (size_t i = 0; i < NAMES; i++) {
        struct staging_slot *next;

        for (struct staging_slot *slot = staging->names[i]; slot != NULL; slot = next) {
            next = slot->next_named;
            if (slot->session != session)
                continue;
            slot->dropped = true;
            if (slot->holds > 0)
                continue;
            kept_remove(staging, slot);
            slot_free(staging, slot);
        }
    }
}

/* --- Waiting -------------------------------------------------------------------------------------------- */

void staging_ask(struct staging *staging, struct staging_want *want)
{
    struct side *side = &staging->sides[want->side];

    assert(!want->waiting && want->bytes <= staging_block_max(staging));
    want->waiting = true;
    want->next = NULL;
    *side->last = want;
    side->last = &want->next;
    side->waiting++;
}

void staging_withdraw(struct staging *staging, struct staging_want *want)
{
    struct side *side = &staging->sides[want->side];
    struct staging_want **link = &side->first;

    if (!want->waiting)
        return;
    while (*link != want)
        link = &(*link)->next;
    *link = want->next;
    if (want->next == NULL)
        side->last = link;
    want->waiting = false;
    side->waiting--;
}

struct staging_slot *staging_serve(struct staging *staging, enum staging_side which,
                                   struct staging_want **out)
{
    struct side *side = &staging->sides[which];
    struct staging_want *want = side->first;
    uint32_t units;

    if (want == NULL)
        return NULL;
    units = (uint32_t)((want->bytes + staging->unit_bytes - 1) / staging->unit_bytes);
    units = units > 0 ? units : 1;
    if (side->used + units > side->quota)
        return NULL;
    staging_withdraw(staging, want);
    *out = want;
    return slot_new(staging, want, units);
}

void staging_usage(const struct staging *staging, struct staging_usage *usage)
{
    usage->region_bytes = staging->region_bytes;
    usage->kept_bytes = staging->kept_units * staging->unit_bytes;
    for (int i = 0; i < STAGING_SIDES; i++) {
        usage->held_bytes[i] = staging->sides[i].used * staging->unit_bytes;
        usage->waiting[i] = staging->sides[i].waiting;
    }
}
