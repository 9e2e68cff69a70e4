/* SPDX-License-Identifier: BSD-3-Clause */
/* Every schedule is run in lock step and held to what schedule.h promises; tables of the literature. */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <covey/error.h>

#include "schedule/schedule.h"
#include "tests/lib/suite.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* --- The checker: it knows the promises, not the schedules -------------------------------------------- */

/* One schedule in lock step. Marks are indexed [rank * members + peer] and [rank * blocks + block]. */
struct run {
    struct schedule schedule;
    uint64_t steps;
    struct schedule_rank parts[SCHEDULE_MEMBERS_MAX];
    struct transfer sent[SCHEDULE_MEMBERS_MAX], got[SCHEDULE_MEMBERS_MAX];
    bool sends[SCHEDULE_MEMBERS_MAX], gets[SCHEDULE_MEMBERS_MAX];
    uint32_t newest[SCHEDULE_MEMBERS_MAX], disorder; /* highest block so far; how far one came behind it */
    bool *has, *peers_out, *peers_in;
    char problem[160]; /* "" while there is none */
};

static struct run run;

static bool wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns false, for the caller to return. The first problem stays. */
static bool wrong(const char *format, ...)
{
    int length;
    va_list arguments;

    if (run.problem[0] != '\0')
        return false;
    length = snprintf(run.problem, sizeof(run.problem), "%s n=%u k=%u: ", schedule_name(run.schedule.kind),
                      run.schedule.members, run.schedule.blocks);
    va_start(arguments, format);
    vsnprintf(run.problem + length, sizeof(run.problem) - (size_t)length, format, arguments);
    va_end(arguments);
    return false;
}

static void *zeroed(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);

    ck_assert_ptr_nonnull(memory);
    return memory;
}

static void run_open(enum schedule_kind kind, uint32_t members, uint32_t blocks)
{
    run.schedule = (struct schedule){.kind = kind, .members = members, .blocks = blocks};
    run.steps = schedule_steps(&run.schedule);
    run.disorder = 0;
    run.problem[0] = '\0';
    memset(run.newest, 0, sizeof(run.newest));
    run.has = zeroed((size_t)members * blocks, sizeof(bool));
    run.peers_out = zeroed((size_t)members * members, sizeof(bool));
    run.peers_in = zeroed((size_t)members * members, sizeof(bool));
    for (uint32_t rank = 0; rank < members; rank++)
        schedule_rank_init(&run.parts[rank], &run.schedule, rank);
    for (uint32_t block = 0; block < blocks; block++)
        run.has[block] = true;
}

static void run_close(void)
{
    free(run.has);
    free(run.peers_out);
    free(run.peers_in);
}

static void ask_all(uint64_t step)
{
    for (uint32_t rank = 0; rank < run.schedule.members; rank++) {
        run.sends[rank] = schedule_outgoing(&run.parts[rank], step, &run.sent[rank]);
        run.gets[rank] = schedule_incoming(&run.parts[rank], step, &run.got[rank]);
    }
}

/* What one side of a transfer says, the other says too. */
static bool sides_agree(uint64_t step, uint32_t rank)
{
    const struct transfer *out = &run.sent[rank], *in = &run.got[rank];

    if (run.sends[rank]) {
        if (out->peer >= run.schedule.members || out->peer == rank || out->block >= run.schedule.blocks)
            return wrong("step %ju: %u sends %u to %u", (uintmax_t)step, rank, out->block, out->peer);
        if (!run.gets[out->peer] || run.got[out->peer].peer != rank || run.got[out->peer].block != out->block)
            return wrong("step %ju: %u>%u:%u is not expected", (uintmax_t)step, rank, out->peer, out->block);
    }
    if (run.gets[rank]) {
        if (in->peer >= run.schedule.members || in->block >= run.schedule.blocks || rank == 0)
            return wrong("step %ju: %u gets %u from %u", (uintmax_t)step, rank, in->block, in->peer);
        if (!run.sends[in->peer] || run.sent[in->peer].peer != rank || run.sent[in->peer].block != in->block)
            return wrong("step %ju: %u>%u:%u is not sent", (uintmax_t)step, in->peer, rank, in->block);
    }
    return true;
}

static bool sends_only_what_it_has(uint64_t step, uint32_t rank)
{
    const struct transfer *out = &run.sent[rank];

    if (!run.sends[rank])
        return true;
    if (!run.has[(size_t)rank * run.schedule.blocks + out->block])
        return wrong("step %ju: %u does not have %u", (uintmax_t)step, rank, out->block);
    run.peers_out[(size_t)rank * run.schedule.members + out->peer] = true;
    return true;
}

static bool gets_only_what_it_lacks(uint64_t step, uint32_t rank)
{
    const struct transfer *in = &run.got[rank];
    bool *has = &run.has[(size_t)rank * run.schedule.blocks + in->block];

    if (!run.gets[rank])
        return true;
    if (*has)
        return wrong("step %ju: %u gets %u again", (uintmax_t)step, rank, in->block);
    *has = true;
    if (in->block > run.newest[rank])
        run.newest[rank] = in->block;
    if (run.newest[rank] - in->block > run.disorder)
        run.disorder = run.newest[rank] - in->block;
    run.peers_in[(size_t)rank * run.schedule.members + in->peer] = true;
    return true;
}

static bool each_rank(uint64_t step, bool (*check)(uint64_t step, uint32_t rank))
{
    for (uint32_t rank = 0; rank < run.schedule.members; rank++) {
        if (!check(step, rank))
            return false;
    }
    return true;
}

/* schedule_*_peers() against the peers that were met. */
static bool peers_match(uint32_t rank, const bool *met,
                        size_t (*list)(const struct schedule_rank *part, uint32_t peers[]))
{
    uint32_t peers[SCHEDULE_MEMBERS_MAX];
    size_t count = list(&run.parts[rank], peers), next = 0;

    for (uint32_t peer = 0; peer < run.schedule.members; peer++) {
        if (!met[peer])
            continue;
        if (next == count || peers[next] != peer)
            return wrong("%u has peer %u, which is not in its list", rank, peer);
        next++;
    }
    return next == count || wrong("%u lists peer %u, which it never meets", rank, peers[next]);
}

static bool ends_complete(uint32_t rank)
{
    for (uint32_t block = 0; block < run.schedule.blocks; block++) {
        if (!run.has[(size_t)rank * run.schedule.blocks + block])
            return wrong("%u lacks %u in the end", rank, block);
    }
    return true;
}

static void run_all(void)
{
    for (uint64_t step = 0; step < run.steps; step++) {
        ask_all(step);
        if (!each_rank(step, sides_agree) || !each_rank(step, sends_only_what_it_has) ||
            !each_rank(step, gets_only_what_it_lacks))
            return;
    }
    for (uint32_t rank = 0; rank < run.schedule.members; rank++) {
        size_t row = (size_t)rank * run.schedule.members;

        if (!ends_complete(rank) || !peers_match(rank, run.peers_out + row, schedule_out_peers) ||
            !peers_match(rank, run.peers_in + row, schedule_in_peers))
            return;
    }
}

/* --- What each kind promises besides ------------------------------------------------------------------- */

static uint32_t ceil_log2_by_counting(uint32_t n)
{
    uint32_t log = 0;

    for (uint32_t reach = 1; reach < n; reach *= 2)
        log++;
    return log;
}

static uint64_t formula(enum schedule_kind kind, uint64_t n, uint64_t k)
{
    uint64_t log = ceil_log2_by_counting((uint32_t)n);

    switch (kind) {
    case SCHEDULE_SEQUENTIAL:
        return k * (n - 1);
    case SCHEDULE_CHAIN:
        return n == 1 ? 0 : k + n - 2;
    case SCHEDULE_TREE:
        return k * log;
    case SCHEDULE_BINOMIAL:
    case SCHEDULE_CIRCULANT:
        return n == 1 ? 0 : k + log - 1;
    }
    return UINT64_MAX;
}

/* The most ranks that one has to do with, in either direction. */
static uint32_t peers_bound(enum schedule_kind kind, uint32_t n)
{
    uint32_t ceiling = ceil_log2_by_counting(n), floor = UINT32_C(1) << ceiling == n ? ceiling : ceiling - 1;

    switch (kind) {
    case SCHEDULE_CHAIN:
        return 2;
    case SCHEDULE_TREE:
        return ceiling;
    case SCHEDULE_BINOMIAL:
        return floor == ceiling ? floor : 2 * floor + 1;
    case SCHEDULE_CIRCULANT:
        return 2 * ceiling;
    case SCHEDULE_SEQUENTIAL:
        break;
    }
    return n - 1;
}

/* How far a block may come behind a later one. */
static uint32_t disorder_bound(enum schedule_kind kind, uint32_t n)
{
    return kind == SCHEDULE_BINOMIAL || kind == SCHEDULE_CIRCULANT ? 2 * ceil_log2_by_counting(n) : 0;
}

static bool few_peers(uint32_t rank)
{
    const bool *out = run.peers_out + (size_t)rank * run.schedule.members;
    const bool *in = run.peers_in + (size_t)rank * run.schedule.members;
    uint32_t count = 0;

    for (uint32_t peer = 0; peer < run.schedule.members; peer++)
        count += out[peer] || in[peer];
    return count <= peers_bound(run.schedule.kind, run.schedule.members) ||
           wrong("%u has %u peers", rank, count);
}

static void check_run(enum schedule_kind kind, uint32_t members, uint32_t blocks)
{
    run_open(kind, members, blocks);
    if (run.steps != formula(kind, members, blocks))
        wrong("%ju steps", (uintmax_t)run.steps);
    run_all();
    for (uint32_t rank = 0; rank < members; rank++)
        few_peers(rank);
    if (run.disorder > disorder_bound(kind, members))
        wrong("a block comes %u late", run.disorder);
    run_close();
    ck_assert_msg(run.problem[0] == '\0', "%s", run.problem);
}

/* The loop index is the kind. Sequential takes k(n - 1) steps, too many to run all of them for all ranks. */
START_TEST(test_every_block_reaches_every_rank_once_from_one_that_has_it)
{
    enum schedule_kind kind = (enum schedule_kind)_i;

    for (uint32_t n = 1; n <= 130; n++) {
        uint32_t most = kind == SCHEDULE_SEQUENTIAL && n > 32 ? 6 : 40;

        for (uint32_t k = 1; k <= most; k++)
            check_run(kind, n, k);
        if (most == 40) {
            check_run(kind, n, 64);
            check_run(kind, n, 100);
        }
    }
}
END_TEST

START_TEST(test_large_groups_are_served_too)
{
    static const uint32_t members[] = {255, 513, 1000, SCHEDULE_MEMBERS_MAX - 1, SCHEDULE_MEMBERS_MAX};

    for (size_t i = 0; i < COUNT(members); i++) {
        for (uint32_t k = 1; k <= 3; k++) {
            check_run(SCHEDULE_BINOMIAL, members[i], k);
            check_run(SCHEDULE_CIRCULANT, members[i], k);
        }
        check_run(SCHEDULE_TREE, members[i], 2);
    }
    check_run(SCHEDULE_CHAIN, 1000, 2);
    check_run(SCHEDULE_SEQUENTIAL, 255, 2);
}
END_TEST

/* Numbers as large as they get, where a run through all steps would take too long. */
START_TEST(test_both_sides_agree_anywhere_in_the_longest_schedule)
{
    static const uint32_t members[] = {2, 3, 512, 1000, SCHEDULE_MEMBERS_MAX};
    enum schedule_kind kind = (enum schedule_kind)_i;

    for (size_t i = 0; i < COUNT(members); i++) {
        uint64_t stride;

        run_open(kind, members[i], 1);
        run.schedule.blocks = SCHEDULE_BLOCKS_MAX;
        run.steps = schedule_steps(&run.schedule);
        ck_assert_uint_eq(run.steps, formula(kind, members[i], SCHEDULE_BLOCKS_MAX));
        for (uint32_t rank = 0; rank < members[i]; rank++)
            schedule_rank_init(&run.parts[rank], &run.schedule, rank);
        stride = run.steps / 61 + 1;
        for (uint64_t step = 0; step < run.steps; step += stride) {
            ask_all(step);
            each_rank(step, sides_agree);
            ask_all(run.steps - 1 - step / stride);
            each_rank(run.steps - 1 - step / stride, sides_agree);
        }
        run_close();
        ck_assert_msg(run.problem[0] == '\0', "%s", run.problem);
    }
}
END_TEST

/* --- Tables -------------------------------------------------------------------------------------------- */

/* "0>1:0 | 0>2:1 1>3:0": sender > receiver : block, steps apart by bars. */
static void print_schedule(enum schedule_kind kind, uint32_t members, uint32_t blocks, char *text,
                           size_t size)
{
    size_t length = 0;

    run_open(kind, members, blocks);
    text[0] = '\0';
    for (uint64_t step = 0; step < run.steps; step++) {
        const char *before = step == 0 ? "" : " | ";

        ask_all(step);
        for (uint32_t rank = 0; rank < members; rank++) {
            if (!run.sends[rank])
                continue;
            length += (size_t)snprintf(text + length, size - length, "%s%u>%u:%u", before, rank,
                                       run.sent[rank].peer, run.sent[rank].block);
            ck_assert_uint_lt(length, size);
            before = " ";
        }
    }
    run_close();
}

START_TEST(test_schedules_are_those_of_the_literature)
{
    static const struct {
        enum schedule_kind kind;
        uint32_t members, blocks;
        const char *steps;
    } tables[] = {
        {SCHEDULE_BINOMIAL, 4, 4,
         "0>1:0 | 0>2:1 1>3:0 | 0>1:2 2>3:1 3>2:0 | 0>2:3 1>3:2 3>1:1 | 0>1:3 2>3:3 3>2:2"},
        {SCHEDULE_BINOMIAL, 6, 4,
         "0>1:0 | 0>2:1 1>3:0 | 0>4:2 2>3:1 3>5:0 | 0>5:3 1>4:0 3>1:1 4>3:2 5>2:0 | "
         "0>1:3 1>4:1 2>5:1 3>2:2 5>3:3 | 1>4:3 2>5:2 4>1:2 5>2:3"},
        {SCHEDULE_BINOMIAL, 3, 2, "0>1:0 | 0>2:1 | 1>2:0 2>1:1"},
        {SCHEDULE_BINOMIAL, 6, 1, "0>1:0 | 0>2:0 1>3:0 | 0>4:0 3>5:0"},
        {SCHEDULE_BINOMIAL, 5, 1, "0>1:0 | 0>2:0 1>3:0 | 0>4:0"},
        {SCHEDULE_CIRCULANT, 5, 4,
         "0>1:0 | 0>2:1 | 0>3:2 1>4:0 | 0>1:3 1>2:0 2>3:1 3>4:2 | 0>2:3 1>3:0 2>4:1 4>1:2 | "
         "0>3:3 1>4:3 3>1:1 4>2:2"},
        {SCHEDULE_CHAIN, 4, 2, "0>1:0 | 0>1:1 1>2:0 | 1>2:1 2>3:0 | 2>3:1"},
        {SCHEDULE_TREE, 4, 2, "0>1:0 | 0>1:1 | 0>2:0 1>3:0 | 0>2:1 1>3:1"},
        {SCHEDULE_SEQUENTIAL, 3, 2, "0>1:0 | 0>1:1 | 0>2:0 | 0>2:1"},
    };
    char text[512];

    for (size_t i = 0; i < COUNT(tables); i++) {
        print_schedule(tables[i].kind, tables[i].members, tables[i].blocks, text, sizeof(text));
        ck_assert_str_eq(text, tables[i].steps);
    }
}
END_TEST

START_TEST(test_steps_are_counted)
{
    static const struct {
        uint32_t members, blocks;
        uint64_t binomial, chain, tree, sequential;
    } rows[] = {{8, 256, 258, 262, 768, 1792}, {16, 4, 7, 18, 16, 60}, {16, 64, 67, 78, 256, 960}};

    for (size_t i = 0; i < COUNT(rows); i++) {
        struct schedule schedule = {.members = rows[i].members, .blocks = rows[i].blocks};
        const uint64_t steps[SCHEDULE_KINDS] = {
            [SCHEDULE_SEQUENTIAL] = rows[i].sequential,
            [SCHEDULE_CHAIN] = rows[i].chain,
            [SCHEDULE_TREE] = rows[i].tree,
            [SCHEDULE_BINOMIAL] = rows[i].binomial,
            [SCHEDULE_CIRCULANT] = rows[i].binomial,
        };

        for (unsigned kind = 0; kind < SCHEDULE_KINDS; kind++) {
            schedule.kind = (enum schedule_kind)kind;
            ck_assert_uint_eq(schedule_steps(&schedule), steps[kind]);
        }
    }
}
END_TEST

/* The tables of all ranks of a circulant graph of p. */
static int32_t receive_of[SCHEDULE_MEMBERS_MAX][SCHEDULE_ROUNDS_MAX];
static struct schedule_rank circulant[SCHEDULE_MEMBERS_MAX];

static void circulant_open(uint32_t p)
{
    const struct schedule schedule = {.kind = SCHEDULE_CIRCULANT, .members = p, .blocks = 1};

    for (uint32_t rank = 0; rank < p; rank++) {
        schedule_rank_init(&circulant[rank], &schedule, rank);
        memcpy(receive_of[rank], circulant[rank].receive, sizeof(receive_of[rank]));
    }
}

START_TEST(test_circulant_receive_tables_are_those_of_the_paper)
{
    static const struct {
        uint32_t p;
        const char *tables; /* rank 0 first */
    } papers[] = {
        {5, "(-3,-1,-2) (0,-1,-2) (-3,1,-1) (-2,-3,2) (-1,-2,0)"},
        {9, "(-2,-3,-1,-4) (0,-2,-3,-1) (-4,1,-2,-1) (-3,-4,2,-1) (-2,-3,0,-1) (-4,-2,-3,3) (-1,-2,-3,0) "
            "(-4,-1,-2,1) (-3,-4,-1,2)"},
        {17, "(-4,-5,-2,-1,-3) (0,-4,-2,-3,-1) (-5,1,-2,-3,-1) (-4,-5,2,-2,-1) (-3,-4,0,-2,-1) "
             "(-5,-3,-4,3,-1) (-2,-3,-4,0,-1) (-5,-2,-3,1,-1) (-4,-5,-2,2,-1) (-3,-4,-2,-5,4) "
             "(-1,-3,-4,-2,0) (-5,-1,-3,-2,1) (-4,-5,-1,-2,2) (-3,-4,-1,-2,0) (-5,-3,-4,-1,3) "
             "(-2,-3,-4,-1,0) (-5,-2,-3,-1,1)"},
    };

    for (size_t i = 0; i < COUNT(papers); i++) {
        char text[512];
        int length = 0;

        circulant_open(papers[i].p);
        for (uint32_t rank = 0; rank < papers[i].p; rank++) {
            for (uint32_t c = 0; c < circulant[rank].rounds; c++)
                length += snprintf(text + length, sizeof(text) - (size_t)length, "%s%d",
                                   c > 0      ? ","
                                   : rank > 0 ? ") ("
                                              : "(",
                                   receive_of[rank][c]);
        }
        snprintf(text + length, sizeof(text) - (size_t)length, ")");
        ck_assert_str_eq(text, papers[i].tables);
    }
}
END_TEST

static bool skips_halve(const struct schedule_rank *part, uint32_t p)
{
    uint32_t q = ceil_log2_by_counting(p);

    if (part->rounds != q || part->skips[q] != p || part->skips[0] != 1)
        return false;
    for (uint32_t i = 0; i < q; i++) {
        if (part->skips[i] != part->skips[i + 1] - part->skips[i + 1] / 2)
            return false;
    }
    return true;
}

/* R holds -1 to -q, and for the base block b, b in place of b - q. Returns b; q for the root; -1 if wrong. */
static int32_t base_of(uint32_t rank, int32_t q)
{
    uint32_t seen = 0; /* bit q + entry, or the entry itself for b: b stands for b - q */
    int32_t base = q;

    for (int32_t c = 0; c < q; c++) {
        int32_t entry = receive_of[rank][c];

        if (entry >= q || entry < -q || (entry >= 0 && base < q))
            return -1;
        if (entry >= 0)
            base = entry;
        seen |= UINT32_C(1) << (entry < 0 ? entry + q : entry);
    }
    if (seen != (UINT32_C(1) << q) - 1 || (rank == 0) != (base == q))
        return -1;
    return base;
}

/* In round c of a phase a rank can send what it got earlier in the phase, or had before: b - q only, since
 * the others below 0 come in this very phase. */
static bool can_send(uint32_t rank, int32_t base, int32_t q, int32_t round)
{
    int32_t entry = circulant[rank].send[round];

    if (entry == base - q)
        return true;
    for (int32_t c = 0; c < round; c++) {
        if (receive_of[rank][c] == entry)
            return true;
    }
    return false;
}

static bool circulant_holds(uint32_t p, uint32_t rank)
{
    const struct schedule_rank *part = &circulant[rank];
    int32_t q = (int32_t)part->rounds, base;

    if (!skips_halve(part, p))
        return false;
    base = base_of(rank, q);
    if (base < 0)
        return false;
    for (int32_t c = 0; c < q; c++) {
        uint32_t to = (rank + part->skips[c]) % p;

        /* nobody listens to what is sent to the root */
        if (to != 0 && part->send[c] != receive_of[to][c])
            return false;
        if (rank == 0 ? part->send[c] != c : to != 0 && !can_send(rank, base, q, c))
            return false;
    }
    return true;
}

/* With these properties, which the paper asks of its tables, the broadcast is right for any number of blocks.
 * The loop index only shares the work. */
START_TEST(test_circulant_tables_hold_for_every_group_size)
{
    for (uint32_t p = 2 + (uint32_t)_i; p < 1100; p += 4) {
        circulant_open(p);
        for (uint32_t rank = 0; rank < p; rank++)
            ck_assert_msg(circulant_holds(p, rank), "p=%u rank=%u", p, rank);
    }
}
END_TEST

/* --- One slow link ------------------------------------------------------------------------------------- */

static uint64_t latest(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The end of a run in which a block takes 1, but 2 between ranks a and b; each rank sends in the order of its
 * steps, one block after the other. */
static uint64_t time_with_slow_link(enum schedule_kind kind, uint32_t members, uint32_t blocks, uint32_t a,
                                    uint32_t b)
{
    uint64_t *arrived = zeroed((size_t)members * blocks, sizeof(uint64_t)), end = 0;
    uint64_t *sent = zeroed(members, sizeof(uint64_t)), *got = zeroed(members, sizeof(uint64_t));

    run_open(kind, members, blocks);
    for (uint64_t step = 0; step < run.steps; step++) {
        ask_all(step);
        for (uint32_t rank = 0; rank < members; rank++) {
            uint32_t to = run.sent[rank].peer, block = run.sent[rank].block;
            uint64_t time;

            if (!run.sends[rank])
                continue;
            time = latest(arrived[(size_t)rank * blocks + block], latest(sent[rank], got[to]));
            time += (rank == a && to == b) || (rank == b && to == a) ? 2 : 1;
            sent[rank] = got[to] = arrived[(size_t)to * blocks + block] = time;
            end = latest(end, time);
        }
    }
    run_close();
    free(arrived);
    free(sent);
    free(got);
    return end;
}

/* Why `auto` does what it does: see choose.c. The slowdown in percent, 400 blocks. */
static uint64_t slowdown(enum schedule_kind kind, uint32_t members, uint32_t a, uint32_t b)
{
    return 100 * time_with_slow_link(kind, members, 400, a, b) /
           time_with_slow_link(kind, members, 400, 0, 0);
}

START_TEST(test_a_slow_link_harms_a_circulant_graph_least)
{
    static const uint32_t groups[] = {5, 6, 12, 24};

    for (size_t i = 0; i < COUNT(groups); i++) {
        uint32_t n = groups[i], q = ceil_log2_by_counting(n), vertices = UINT32_C(1) << (q - 1);

        for (uint32_t peer = 1; peer < n; peer++) {
            ck_assert_uint_le(slowdown(SCHEDULE_CIRCULANT, n, 0, peer), 100 + 100 / q + 1);
            ck_assert_uint_le(slowdown(SCHEDULE_CIRCULANT, n, peer - 1, peer), 100 + 100 / q + 1);
        }
        ck_assert_uint_ge(slowdown(SCHEDULE_BINOMIAL, n, 1, vertices), 149); /* twins */
        ck_assert_uint_ge(slowdown(SCHEDULE_CHAIN, n, n / 2, n / 2 + 1), 190);
    }
}
END_TEST

/* --- auto ---------------------------------------------------------------------------------------------- */

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define TIB (UINT64_C(1) << 40)

static const struct schedule_cost unknown_cost;

static uint64_t auto_block(uint64_t bytes, uint32_t members, uint64_t block_ns, uint64_t bytes_per_second)
{
    const struct schedule_cost cost = {.block_ns = block_ns, .bytes_per_second = bytes_per_second};
    struct schedule schedule;
    uint64_t block_bytes;

    ck_assert_int_eq(schedule_choose(bytes, members, &cost, NULL, 0, &schedule, &block_bytes), 0);
    ck_assert_uint_eq(schedule.members, members);
    ck_assert_uint_eq(block_bytes & (block_bytes - 1), 0);
    ck_assert_uint_ge(block_bytes, SCHEDULE_BLOCK_MIN);
    ck_assert_uint_le(block_bytes, SCHEDULE_BLOCK_MAX);
    ck_assert_uint_ge(schedule.blocks, 1);
    ck_assert_uint_ge(schedule.blocks * block_bytes, bytes);
    ck_assert_uint_lt((schedule.blocks - 1) * block_bytes, bytes == 0 ? 1 : bytes);
    return block_bytes;
}

START_TEST(test_auto_takes_a_schedule_of_the_fewest_steps)
{
    for (uint32_t n = 1; n <= SCHEDULE_MEMBERS_MAX; n++) {
        struct schedule schedule;
        uint64_t block_bytes;

        ck_assert_int_eq(schedule_choose(64 * MIB, n, &unknown_cost, NULL, 0, &schedule, &block_bytes), 0);
        ck_assert_uint_eq(schedule_steps(&schedule), formula(SCHEDULE_CIRCULANT, n, schedule.blocks));
        ck_assert_int_eq(schedule.kind, n <= 3               ? SCHEDULE_CHAIN
                                        : (n & (n - 1)) == 0 ? SCHEDULE_BINOMIAL
                                                             : SCHEDULE_CIRCULANT);
    }
}
END_TEST

START_TEST(test_auto_takes_small_blocks_where_the_wire_is_slow_or_the_object_small)
{
    const uint64_t megabit_100 = 12500000;

    ck_assert_uint_eq(auto_block(16 * MIB, 4, 50000, megabit_100), 64 * KIB);
    ck_assert_uint_eq(auto_block(16 * MIB, 8, 50000, megabit_100), 64 * KIB);
    ck_assert_uint_eq(auto_block(16 * MIB, 16, 50000, megabit_100), 64 * KIB);
    ck_assert_uint_eq(auto_block(1 * MIB, 8, 5000, 12500000000), 64 * KIB);
    ck_assert_uint_eq(auto_block(1, 8, 50000, 1250000000), 64 * KIB);
}
END_TEST

START_TEST(test_auto_takes_blocks_of_a_mebibyte_and_more_for_large_objects_on_fast_links)
{
    ck_assert_uint_eq(auto_block(1 * GIB, 8, 50000, 1250000000), 1 * MIB);
    ck_assert_uint_eq(auto_block(1 * GIB, 8, 5000, 12500000000), 1 * MIB);
    ck_assert_uint_eq(auto_block(64 * GIB, 16, 5000, 12500000000), 1 * MIB);
    ck_assert_uint_eq(auto_block(64 * GIB, 16, 5000, 50000000000), 4 * MIB);
    ck_assert_uint_eq(auto_block(64 * GIB, 4, 10000, 380000000000), 16 * MIB);
}
END_TEST

/* Time by the model that choose.c describes, here in floating point. */
static double modelled(uint64_t bytes, uint32_t members, uint64_t block_bytes, double block_ns, double rate)
{
    double blocks = (double)((bytes + block_bytes - 1) / block_bytes);
    double fill = (double)formula(members <= 3 ? SCHEDULE_CHAIN : SCHEDULE_CIRCULANT, members, 1) - 1;

    return (blocks + 2 * fill) * (block_ns / 2 + (double)block_bytes * 1e9 / rate);
}

START_TEST(test_auto_is_within_a_thirtieth_of_the_best_block_size)
{
    static const uint64_t sizes[] = {1, 3 * MIB, 100 * MIB, 5 * GIB, 700 * GIB};
    static const uint32_t groups[] = {2, 3, 5, 16, 130, 2048};
    static const uint64_t costs[] = {500, 20000, 400000};
    static const uint64_t rates[] = {12500000, 1250000000, 25000000000};

    for (size_t i = 0; i < COUNT(sizes) * COUNT(groups) * COUNT(costs) * COUNT(rates); i++) {
        uint64_t bytes = sizes[i % COUNT(sizes)];
        uint32_t n = groups[i / COUNT(sizes) % COUNT(groups)];
        uint64_t cost = costs[i / COUNT(sizes) / COUNT(groups) % COUNT(costs)];
        uint64_t rate = rates[i / COUNT(sizes) / COUNT(groups) / COUNT(costs)];
        uint64_t chosen = auto_block(bytes, n, cost, rate);
        double time = modelled(bytes, n, chosen, (double)cost, (double)rate);

        for (uint64_t other = 64 * KIB; other <= 16 * MIB; other *= 2) {
            if (other != 64 * KIB && bytes / other < 16 * ceil_log2_by_counting(n))
                break; /* too few blocks */
            if ((bytes - 1) / other + 1 > SCHEDULE_BLOCKS_MAX)
                continue;
            ck_assert_msg(time <= modelled(bytes, n, other, (double)cost, (double)rate) * 31 / 30,
                          "%ju bytes to %u, %ju ns, %ju B/s: %ju worse than %ju", (uintmax_t)bytes, n,
                          (uintmax_t)cost, (uintmax_t)rate, (uintmax_t)chosen, (uintmax_t)other);
        }
    }
}
END_TEST

/* 16 MiB to 8: never fewer than 16 blocks for each of the three stages. */
START_TEST(test_auto_fills_the_pipeline_whatever_was_measured)
{
    static const struct {
        uint64_t block_ns, bytes_per_second, block_bytes;
    } rows[] = {
        {0, 0, 256 * KIB},
        {50000, 1250000000, 256 * KIB}, /* what 0 stands for */
        {0, 12500000, 64 * KIB},
        {1, 0, 64 * KIB},
        {1000000000, 12500000, 256 * KIB},
        {UINT64_MAX, UINT64_MAX, 256 * KIB},
        {1, UINT64_MAX, 256 * KIB},
        {UINT64_MAX, 1, 64 * KIB},
        {1, 1, 64 * KIB},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        uint64_t block_ns = rows[i].block_ns, bytes_per_second = rows[i].bytes_per_second;

        ck_assert_uint_eq(auto_block(16 * MIB, 8, block_ns, bytes_per_second), rows[i].block_bytes);
        ck_assert_uint_eq(auto_block(0, 8, block_ns, bytes_per_second), 64 * KIB);
        ck_assert_uint_eq(auto_block(SCHEDULE_BLOCKS_MAX * SCHEDULE_BLOCK_MAX, SCHEDULE_MEMBERS_MAX, block_ns,
                                     bytes_per_second),
                          SCHEDULE_BLOCK_MAX);
        ck_assert_uint_eq(auto_block(1 * GIB, 1, block_ns, bytes_per_second), 16 * MIB);
    }
}
END_TEST

/* A byte a second: with the smallest blocks considered just below 2^64 half nanoseconds, with larger ones
 * above. */
START_TEST(test_auto_does_not_wrap_around_at_the_end_of_time)
{
    ck_assert_uint_eq(auto_block(UINT64_C(9213372036), 8, 1, 1), 256 * KIB);
}
END_TEST

START_TEST(test_choose_keeps_what_the_user_fixed)
{
    struct schedule schedule;
    uint64_t block_bytes;

    for (unsigned i = 0; i < SCHEDULE_KINDS; i++) {
        enum schedule_kind kind = (enum schedule_kind)i;

        for (uint64_t fixed = SCHEDULE_BLOCK_MIN; fixed <= SCHEDULE_BLOCK_MAX; fixed *= 2) {
            ck_assert_int_eq(
                schedule_choose(1 * GIB, 5, &unknown_cost, &kind, fixed, &schedule, &block_bytes), 0);
            ck_assert_int_eq(schedule.kind, kind);
            ck_assert_uint_eq(block_bytes, fixed);
            ck_assert_uint_eq(schedule.blocks, 1 * GIB / fixed);
        }
        ck_assert_int_eq(schedule_choose(1 * GIB, 5, &unknown_cost, &kind, 0, &schedule, &block_bytes), 0);
        ck_assert_int_eq(schedule.kind, kind);
    }
}
END_TEST

START_TEST(test_choose_raises_a_fixed_block_to_the_limits)
{
    static const struct {
        uint64_t bytes, fixed, block_bytes, blocks;
    } rows[] = {
        {0, 128 * KIB, 128 * KIB, 1},
        {1 * MIB, 1, 64 * KIB, 16},
        {1 * MIB, 64 * KIB + 1, 128 * KIB, 8},
        {1 * MIB, UINT64_MAX, 64 * MIB, 1},
        {SCHEDULE_BLOCKS_MAX * 64 * KIB, 64 * KIB, 64 * KIB, SCHEDULE_BLOCKS_MAX},
        {SCHEDULE_BLOCKS_MAX * 64 * KIB + 1, 64 * KIB, 128 * KIB, SCHEDULE_BLOCKS_MAX / 2 + 1},
        {32 * TIB, 64 * KIB, 64 * MIB, 512 * KIB},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        struct schedule schedule;
        uint64_t block_bytes;

        ck_assert_int_eq(
            schedule_choose(rows[i].bytes, 4, &unknown_cost, NULL, rows[i].fixed, &schedule, &block_bytes),
            0);
        ck_assert_uint_eq(block_bytes, rows[i].block_bytes);
        ck_assert_uint_eq(schedule.blocks, rows[i].blocks);
    }
}
END_TEST

START_TEST(test_choose_refuses_what_has_too_many_blocks_and_writes_nothing)
{
    const uint64_t most = SCHEDULE_BLOCKS_MAX * SCHEDULE_BLOCK_MAX;
    struct schedule schedule = {.members = 77};
    uint64_t block_bytes = 77;

    ck_assert_int_eq(schedule_choose(most + 1, 4, &unknown_cost, NULL, 0, &schedule, &block_bytes),
                     COVEY_TOO_LARGE);
    ck_assert_int_eq(schedule_choose(UINT64_MAX, 4, &unknown_cost, NULL, MIB, &schedule, &block_bytes),
                     COVEY_TOO_LARGE);
    ck_assert_uint_eq(schedule.members, 77);
    ck_assert_uint_eq(block_bytes, 77);
    ck_assert_int_eq(schedule_choose(most, 4, &unknown_cost, NULL, 0, &schedule, &block_bytes), 0);
    ck_assert_uint_eq(block_bytes, SCHEDULE_BLOCK_MAX);
    ck_assert_uint_eq(schedule.blocks, SCHEDULE_BLOCKS_MAX);
}
END_TEST

START_TEST(test_names_parse_back_and_auto_is_none)
{
    enum schedule_kind kind = SCHEDULE_TREE;

    for (unsigned i = 0; i < SCHEDULE_KINDS; i++) {
        ck_assert(schedule_parse(schedule_name((enum schedule_kind)i), &kind));
        ck_assert_uint_eq(kind, i);
    }
    ck_assert_str_eq(schedule_name(SCHEDULE_BINOMIAL), "binomial");
    ck_assert(!schedule_parse("auto", &kind));
    ck_assert(!schedule_parse("", &kind));
    ck_assert(!schedule_parse("binomial ", &kind));
    ck_assert_str_eq(schedule_name((enum schedule_kind)SCHEDULE_KINDS), "unknown");
}
END_TEST

/* "Written only when true is returned": a caller may keep its last transfer. */
START_TEST(test_a_step_without_a_transfer_writes_nothing)
{
    for (unsigned kind = 0; kind < SCHEDULE_KINDS; kind++) {
        const struct schedule schedule = {.kind = (enum schedule_kind)kind, .members = 7, .blocks = 3};
        uint32_t silent = 0;

        for (uint32_t rank = 0; rank < schedule.members; rank++) {
            struct schedule_rank part;

            schedule_rank_init(&part, &schedule, rank);
            for (uint64_t step = 0; step < schedule_steps(&schedule); step++) {
                struct transfer out = {77, 77}, in = {77, 77};

                if (!schedule_outgoing(&part, step, &out)) {
                    silent++;
                    ck_assert(out.peer == 77 && out.block == 77);
                }
                if (!schedule_incoming(&part, step, &in)) {
                    silent++;
                    ck_assert(in.peer == 77 && in.block == 77);
                }
            }
        }
        ck_assert_uint_gt(silent, 0);
    }
}
END_TEST

SUITE_MAIN("schedule", 120,
           SUITE_LOOP(test_every_block_reaches_every_rank_once_from_one_that_has_it, SCHEDULE_KINDS),
           SUITE_TEST(test_large_groups_are_served_too),
           SUITE_LOOP(test_both_sides_agree_anywhere_in_the_longest_schedule, SCHEDULE_KINDS),
           SUITE_TEST(test_schedules_are_those_of_the_literature), SUITE_TEST(test_steps_are_counted),
           SUITE_TEST(test_circulant_receive_tables_are_those_of_the_paper),
           SUITE_LOOP(test_circulant_tables_hold_for_every_group_size, 4),
           SUITE_TEST(test_a_slow_link_harms_a_circulant_graph_least),
           SUITE_TEST(test_auto_takes_a_schedule_of_the_fewest_steps),
           SUITE_TEST(test_auto_takes_small_blocks_where_the_wire_is_slow_or_the_object_small),
           SUITE_TEST(test_auto_takes_blocks_of_a_mebibyte_and_more_for_large_objects_on_fast_links),
           SUITE_TEST(test_auto_is_within_a_thirtieth_of_the_best_block_size),
           SUITE_TEST(test_auto_fills_the_pipeline_whatever_was_measured),
           SUITE_TEST(test_auto_does_not_wrap_around_at_the_end_of_time),
           SUITE_TEST(test_choose_keeps_what_the_user_fixed),
           SUITE_TEST(test_choose_raises_a_fixed_block_to_the_limits),
           SUITE_TEST(test_choose_refuses_what_has_too_many_blocks_and_writes_nothing),
           SUITE_TEST(test_names_parse_back_and_auto_is_none),
           SUITE_TEST(test_a_step_without_a_transfer_writes_nothing))
