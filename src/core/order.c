/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/order.h"

#include <assert.h>
#include <string.h>

#include <covey/covey.h>

#define WORDS_BYTES  64 /* before a bank's ring: a line of the cache of its own */
#define HEADER_BYTES 16
#define COUNT_BITS   48 /* of a word; above it the tag */
#define HEAD_BITS    28 /* of PUBLISHED */
#define END_BITS     20

enum word { WORD_PUBLISHED, WORD_RECEIVED, WORD_DELIVERED };

#define COUNT_MASK ((UINT64_C(1) << COUNT_BITS) - 1)
#define HEAD_MASK  ((UINT64_C(1) << HEAD_BITS) - 1)
#define END_MASK   ((UINT64_C(1) << END_BITS) - 1)

/* What this member knows of a member of the view, itself included. */
struct sender {
    const char *bank; /* in its row, of this view; NULL: unbound */
    bool linked;
    bool malformed;
    uint64_t head;                        /* rounds it has made up its mind about */
    uint64_t end;                         /* of its entries */
    uint64_t received;                    /* entries, as it says */
    uint64_t freed;                       /* units of this member's ring that it has delivered */
    uint64_t last;                        /* the round behind that of its last entry */
    uint64_t checked, counted, delivered; /* how far its entries were: units */
    /* what was pushed to it */
    uint64_t pushed_head, pushed_end, pushed_received, pushed_delivered;
};

/* A slot of the order: a round, and a rank within it. */
struct slot {
    uint64_t round;
    uint32_t rank;
};

struct order {
    struct order_config config;
    uint32_t units; /* of a ring */
    char *own_row;
    uint64_t number; /* of the view; 0: none */
    uint32_t members, rank;
    bool wedged;
    uint64_t base;                        /* position before the view's first entry */
    uint64_t received, stable, delivered; /* entries of this view */
    struct slot counting, delivering;     /* the next slots to look at */
    struct sender senders[];
};

/* An entry's header, as read once. */
struct header {
    uint32_t bytes;
    uint8_t kind;
    uint64_t round;
    uint64_t end; /* of the entry, in units since the view began */
    const char *data;
};

/* --- Layout --------------------------------------------------------------------------------------------- */

static size_t bank_bytes(const struct order_config *config)
{
    return WORDS_BYTES + (size_t)config->ring_bytes;
}

size_t order_row_bytes(const struct order_config *config)
{
    return 2 * bank_bytes(config);
}

size_t order_bytes(const struct order_config *config)
{
    return sizeof(struct order) + config->members_max * sizeof(struct sender);
}

uint32_t order_entry_bytes_max(const struct order_config *config)
{
    return config->ring_bytes / 8 * 3 - HEADER_BYTES;
}

static uint64_t entry_units(uint32_t bytes)
{
    return ((uint64_t)bytes + HEADER_BYTES + ORDER_UNIT_BYTES - 1) / ORDER_UNIT_BYTES;
}

static uint32_t bank_offset(const struct order *order)
{
    return (uint32_t)(order->number & 1) * (uint32_t)bank_bytes(&order->config);
}

/* Never 0, and not the same for a view and the one before it in the same bank. */
static uint64_t tag(const struct order *order)
{
    return (order->number % 65535 + 1) << COUNT_BITS;
}

static struct sender *self(struct order *order)
{
    return &order->senders[order->rank];
}

static char *own_ring(struct order *order)
{
    return order->own_row + bank_offset(order) + WORDS_BYTES;
}

/* --- Entries -------------------------------------------------------------------------------------------- */

static uint64_t room_to_end(const struct order *order, uint64_t units)
{
    return order->units - units % order->units;
}

/* Read the entry at a place, or behind what only fills the ring up there. False if there is none below the
 * end of the sender's entries, or if it is none: then *broken is set. */
static bool read_header(const struct order *order, const struct sender *sender, uint64_t from,
                        struct header *header, bool *broken)
{
    *broken = false;
    while (from < sender->end) {
        uint64_t room = room_to_end(order, from), units, words[2];
        const char *at = sender->bank + WORDS_BYTES + (order->units - room) * ORDER_UNIT_BYTES;

        memcpy(words, at, sizeof(words));
        header->bytes = (uint32_t)words[0];
        header->kind = (uint8_t)(words[0] >> 32);
        header->round = words[1];
        header->data = at + HEADER_BYTES;
        units = header->kind == 0 ? room : entry_units(header->bytes);
        *broken = units > room || units > sender->end - from || header->round >= sender->head ||
                  (header->kind != 0 && header->bytes > order_entry_bytes_max(&order->config));
        if (*broken)
            return false;
        from += units;
        header->end = from;
        if (header->kind != 0)
            return true;
    }
    return false;
}

static void write_header(char *at, uint32_t bytes, uint8_t kind, uint64_t round)
{
    uint64_t words[2] = {bytes | (uint64_t)kind << 32, round};

    memcpy(at, words, sizeof(words));
}

/* The entry of a sender in a round that it has made up its mind about; false: a null. What was an entry when
 * it was checked and is none now is taken for a null, and ends the trust in its sender. */
static bool entry_of_round(const struct order *order, struct sender *sender, uint64_t from, uint64_t round,
                           struct header *header)
{
    bool broken;

    if (!read_header(order, sender, from, header, &broken)) {
        sender->malformed = sender->malformed || broken;
        return false;
    }
    return header->round == round;
}

/* --- Begin and end -------------------------------------------------------------------------------------- */

struct order *order_init(const struct order_config *config, void *memory, void *own_row)
{
    struct order *order = memory;

    assert(config->members_max >= 1 && config->members_max <= COVEY_MEMBERS_MAX &&
           config->ring_bytes >= 256 && config->ring_bytes <= UINT32_C(1) << 20 &&
           config->ring_bytes % 128 == 0);
    memset(order, 0, order_bytes(config));
    order->config = *config;
    order->units = config->ring_bytes / ORDER_UNIT_BYTES;
    order->own_row = own_row;
    return order;
}

void order_reset(struct order *order)
{
    order_init(&(struct order_config){order->config.members_max, order->config.ring_bytes}, order,
               order->own_row);
}

/* --- Views ---------------------------------------------------------------------------------------------- */

void order_wedge(struct order *order)
{
    order->wedged = true;
}

void order_trim(struct order *order, uint64_t position)
{
    assert(order->number != 0 && position >= order_stable(order) && position <= order_received(order));
    order->wedged = true;
    order->stable = MUTANT(MUTANT_IGNORE_TRIM) ? order->received : position - order->base;
}

/* What everyone has delivered of the own ring. */
static uint64_t freed_units(const struct order *order)
{
    uint64_t least = order->senders[order->rank].delivered;

    for (uint32_t rank = 0; rank < order->members && !MUTANT(MUTANT_FREE_EARLY); rank++) {
        if (rank != order->rank && order->senders[rank].freed < least)
            least = order->senders[rank].freed;
    }
    return least;
}

/* The entries of the former view, in own_row, that are sent again. */
struct unsent {
    struct sender sender;
    uint64_t cursor;
};

static void send_again(struct order *order, struct unsent *unsent)
{
    struct header header;
    bool broken;

    while (read_header(order, &unsent->sender, unsent->cursor, &header, &broken)) {
        int rc = order_send(order, header.kind, header.data, header.bytes);

        assert(rc == 0); /* without what was delivered they take no more room than before */
        unsent->cursor = header.end;
    }
}

void order_enter(struct order *order, uint64_t number, uint32_t members, uint32_t rank, uint64_t position)
{
    struct unsent unsent = {.sender.end = 0};

    assert(number != 0 && rank < members && members <= order->config.members_max &&
           (order->number == 0 || number == order->number + 1));
    if (order->number != 0) {
        unsent.sender = *self(order);
        unsent.cursor = MUTANT(MUTANT_SEND_TWICE) ? freed_units(order) : self(order)->delivered;
    }
    order->number = number;
    order->members = members;
    order->rank = rank;
    order->wedged = false;
    order->base = position;
    order->received = order->stable = order->delivered = 0;
    order->counting = order->delivering = (struct slot){0, 0};
    memset(order->senders, 0, members * sizeof(*order->senders));
    self(order)->bank = order->own_row + bank_offset(order);
    if (!MUTANT(MUTANT_SEND_NONE))
        send_again(order, &unsent);
    order_advance(order);
}

void order_bind(struct order *order, uint32_t rank, const void *row)
{
    assert(rank < order->members && rank != order->rank && !order_bound(order, rank));
    order->senders[rank].bank = (const char *)row + bank_offset(order);
}

bool order_bound(const struct order *order, uint32_t rank)
{
    assert(rank < order->members);
    return order->senders[rank].bank != NULL;
}

void order_link(struct order *order, uint32_t rank)
{
    assert(rank < order->members && rank != order->rank && !order->senders[rank].linked);
    order->senders[rank].linked = true;
}

void order_unlink(struct order *order, uint32_t rank)
{
    assert(rank < order->members);
    order->senders[rank].linked = false;
}

/* --- Sending -------------------------------------------------------------------------------------------- */

int order_send(struct order *order, uint8_t kind, const void *data, uint32_t bytes)
{
    uint64_t units = entry_units(bytes), room, fill, used;
    struct sender *own;
    char *at;

    assert(kind != 0);
    if (bytes > order_entry_bytes_max(&order->config))
        return COVEY_TOO_LARGE;
    if (order->number == 0 || order->wedged)
        return COVEY_AGAIN;
    own = self(order);
    room = room_to_end(order, own->end);
    fill = units > room ? room : 0;
    used = own->end - freed_units(order);
    if (used + fill + units > order->units)
        return COVEY_AGAIN;
    if (fill > 0)
        write_header(own_ring(order) + (order->units - room) * ORDER_UNIT_BYTES, 0, 0, own->head);
    at = own_ring(order) + (own->end + fill) % order->units * ORDER_UNIT_BYTES;
    write_header(at, bytes, kind, own->head);
    if (bytes > 0)
        memcpy(at + HEADER_BYTES, data, bytes);
    own->end += fill + units;
    own->last = ++own->head;
    return 0;
}

/* The units that were added since the last push: a range, or two around the ring's end. */
static void add_ranges(const struct order *order, uint64_t from, uint64_t to, struct order_push *push)
{
    uint32_t ring = bank_offset(order) + WORDS_BYTES;

    push->range_count = 0;
    while (from < to) {
        uint64_t room = room_to_end(order, from), units = to - from < room ? to - from : room;

        push->ranges[push->range_count++] = (struct order_range){
            .offset = ring + (uint32_t)(order->units - room) * ORDER_UNIT_BYTES,
            .bytes = (uint32_t)units * ORDER_UNIT_BYTES,
        };
        from += units;
    }
}

bool order_push(struct order *order, uint32_t rank, struct order_push *push)
{
    struct sender *to, *own;
    uint64_t unsaid;

    if (order->number == 0 || order->wedged)
        return false;
    assert(rank < order->members);
    to = &order->senders[rank];
    own = self(order);
    unsaid = to->delivered - to->pushed_delivered;
    if (!to->linked || (to->pushed_head == own->head && to->pushed_end == own->end &&
                        to->pushed_received == order->received && unsaid < order->units / 4))
        return false;
    add_ranges(order, to->pushed_end, own->end, push);
    push->words_offset = bank_offset(order);
    push->words[WORD_PUBLISHED] = tag(order) | (own->end & END_MASK) << HEAD_BITS | (own->head & HEAD_MASK);
    push->words[WORD_RECEIVED] = tag(order) | order->received;
    push->words[WORD_DELIVERED] = tag(order) | to->delivered;
    to->pushed_head = own->head;
    to->pushed_end = own->end;
    to->pushed_received = order->received;
    to->pushed_delivered = to->delivered;
    return true;
}

/* --- Receiving ------------------------------------------------------------------------------------------ */

/* A word of this view; false if the peer has said nothing in it yet. */
static bool read_word(const struct order *order, const struct sender *sender, enum word word, uint64_t *count)
{
    uint64_t value = __atomic_load_n((const uint64_t *)(const void *)sender->bank + word, __ATOMIC_ACQUIRE);

    *count = value & COUNT_MASK;
    return (value & ~COUNT_MASK) == tag(order) || MUTANT(MUTANT_IGNORE_TAG);
}

/* The number that ends in these bits and is `before` or the next one behind it. */
static uint64_t widen(uint64_t before, uint64_t bits, uint64_t mask)
{
    return before + ((bits - before) & mask);
}

/* Every entry once, when it has come: later it is known to be one. */
static int check_entries(const struct order *order, struct sender *sender)
{
    struct header header;
    bool broken;

    while (read_header(order, sender, sender->checked, &header, &broken)) {
        if (header.round < sender->last)
            return COVEY_PROTOCOL;
        sender->last = header.round + 1;
        sender->checked = header.end;
    }
    return broken ? COVEY_PROTOCOL : 0;
}

/* No head is further ahead than that: each entry that is not yet counted here takes a unit of its sender's
 * ring and is at most two rounds behind one that is before it. */
static bool is_too_far(const struct order *order, uint64_t head)
{
    uint64_t most = 2 * (uint64_t)order->members * order->units + 4;

    return head > order->counting.round && head - order->counting.round > most;
}

/* Take what the sender has published, if it is entries and nothing else. */
static int take_published(struct order *order, struct sender *sender, uint64_t published)
{
    uint64_t end = sender->end, head = sender->head;

    sender->end = widen(end, published >> HEAD_BITS, END_MASK);
    sender->head = widen(head, published & HEAD_MASK, HEAD_MASK);
    if (sender->end - sender->delivered <= order->units && !is_too_far(order, sender->head) &&
        check_entries(order, sender) == 0)
        return 0;
    sender->end = end;
    sender->head = head;
    return COVEY_PROTOCOL;
}

int order_look(struct order *order, uint32_t rank)
{
    struct sender *sender;
    uint64_t count;

    if (order->number == 0 || order->wedged)
        return 0;
    assert(rank < order->members && rank != order->rank);
    sender = &order->senders[rank];
    if (sender->malformed)
        return COVEY_PROTOCOL;
    if (sender->bank == NULL)
        return 0;
    if (read_word(order, sender, WORD_PUBLISHED, &count) && take_published(order, sender, count) != 0)
        sender->malformed = true;
    if (read_word(order, sender, WORD_RECEIVED, &count) && count > sender->received)
        sender->received = count;
    if (read_word(order, sender, WORD_DELIVERED, &count) && count > sender->freed &&
        count <= self(order)->end)
        sender->freed = count;
    return sender->malformed ? COVEY_PROTOCOL : 0;
}

static void next_slot(const struct order *order, struct slot *slot)
{
    if (++slot->rank < order->members)
        return;
    slot->rank = 0;
    slot->round++;
}

/* Go through the slots whose senders have made up their minds. */
static void count_received(struct order *order)
{
    for (;;) {
        struct sender *sender = &order->senders[order->counting.rank];
        struct header header;

        if (sender->head <= order->counting.round && !MUTANT(MUTANT_HASTY_NULL))
            return;
        if (sender->head <= order->counting.round && order->counting.round >= self(order)->head)
            return;
        if (entry_of_round(order, sender, sender->counted, order->counting.round, &header)) {
            sender->counted = header.end;
            order->received++;
        }
        next_slot(order, &order->counting);
    }
}

static void find_stable(struct order *order)
{
    uint64_t least = order->received;

    for (uint32_t rank = 0; rank < order->members && !MUTANT(MUTANT_DELIVER_EARLY); rank++) {
        if (rank != order->rank && order->senders[rank].received < least)
            least = order->senders[rank].received;
    }
    if (least > order->stable)
        order->stable = least;
}

/* One round ahead of the last entry of the others: see the head of order.h. */
static void add_nulls(struct order *order)
{
    uint64_t last = 0;

    for (uint32_t rank = 0; rank < order->members; rank++) {
        if (rank != order->rank && order->senders[rank].last > last)
            last = order->senders[rank].last;
    }
    if (order->members > 1 && self(order)->head < last + 1)
        self(order)->head = last + 1;
}

void order_advance(struct order *order)
{
    if (order->number == 0 || order->wedged)
        return;
    add_nulls(order);
    count_received(order);
    find_stable(order);
}

uint64_t order_received(const struct order *order)
{
    return order->base + order->received;
}

uint64_t order_stable(const struct order *order)
{
    return order->base + order->stable;
}

/* Whether one slot comes before another. */
static bool is_before(const struct slot *a, const struct slot *b)
{
    return a->round != b->round ? a->round < b->round : a->rank < b->rank;
}

/* Not beyond what was counted, even if a sender has spoilt its entries since. */
bool order_next(struct order *order, struct order_entry *entry)
{
    while (order->delivered < order->stable && is_before(&order->delivering, &order->counting)) {
        struct slot slot = order->delivering;
        struct sender *sender = &order->senders[slot.rank];
        struct header header;

        next_slot(order, &order->delivering);
        if (!entry_of_round(order, sender, sender->delivered, slot.round, &header))
            continue;
        sender->delivered = header.end;
        order->delivered++;
        *entry = (struct order_entry){.position = order->base + order->delivered,
                                      .rank = slot.rank,
                                      .kind = header.kind,
                                      .data = header.data,
                                      .bytes = header.bytes};
        return true;
    }
    return false;
}
