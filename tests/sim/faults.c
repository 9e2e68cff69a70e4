/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/faults.h"

#include "tests/sim/sim_internal.h"

#define NOBODY UINT32_MAX

static uint64_t draw(struct sim *sim, uint64_t bound)
{
    return rng_below(&sim->rng, bound);
}

static bool chance(struct sim *sim, uint32_t percent)
{
    return draw(sim, 100) < percent;
}

static void draw_options(struct sim_options *options, uint64_t seed)
{
    struct rng rng;

    rng_init(&rng, seed ^ UINT64_C(0x5eed));
    sim_defaults(options, 3 + (uint32_t)rng_below(&rng, 7));
    if (rng_below(&rng, 4) == 0)
        options->quorum = MEMBERSHIP_TIE_BREAKER;
    options->latency_ns = (10 + rng_below(&rng, 200)) * SIM_US;
    options->jitter_ns = rng_below(&rng, 10) * options->latency_ns;
    options->torn_percent = (uint32_t)rng_below(&rng, 60);
    options->silent_percent = (uint32_t)rng_below(&rng, 50);
}

static struct sim_process *process_of(const struct sim *sim, uint32_t node)
{
    return sim->current[node] == NOBODY ? NULL : sim->processes[sim->current[node]];
}

/* Any live node, now and then the one that leads. */
static uint32_t pick(struct sim *sim)
{
    const struct view *newest = sim_newest(sim);

    if (newest != NULL && newest->count > 0 && chance(sim, 30) && sim_alive(sim, newest->members[0].id))
        return newest->members[0].id;
    for (int i = 0; i < 20; i++) {
        uint32_t node = (uint32_t)draw(sim, sim->nodes);
        if (sim_alive(sim, node) && !process_of(sim, node)->paused)
            return node;
    }
    return NOBODY;
}

static bool any_blank(const struct sim *sim)
{
    for (uint32_t node = 0; node < sim->nodes; node++) {
        if (sim_alive(sim, node) && sim_view(sim, node)->number == 0)
            return true;
    }
    return false;
}

static bool any_apart(const struct sim *sim)
{
    for (uint32_t a = 0; a < sim->nodes; a++) {
        if (sim_alive(sim, a) && process_of(sim, a)->paused)
            return true;
        for (uint32_t b = 0; b < sim->nodes; b++) {
            if (sim->cut[a][b])
                return true;
        }
    }
    return false;
}

/* --- Faults --------------------------------------------------------------------------------------------- */

static void restart(struct sim *sim, void *object, uint64_t node)
{
    (void)object;
    if (sim_alive(sim, (uint32_t)node))
        return;
    if (sim_newest(sim) == NULL || any_apart(sim))
        sim_at(sim, sim->now_ns + sim->options.suspect_after_ns, restart, NULL, node);
    else
        sim_boot(sim, (uint32_t)node);
}

static void crash_node(struct sim *sim, uint32_t node)
{
    if (node == NOBODY || !sim_quorum_lives(sim, node))
        return;
    sim_crash(sim, node);
    if (chance(sim, 70))
        sim_at(sim, sim->now_ns + draw(sim, 3 * sim->options.suspect_after_ns), restart, NULL, node);
}

static void crash(struct sim *sim)
{
    crash_node(sim, pick(sim));
}

static void resume(struct sim *sim, void *object, uint64_t node)
{
    struct sim_process *process = object;

    if (process->paused && sim->current[node] == process->index)
        sim_resume(sim, (uint32_t)node);
}

static void stand_still_node(struct sim *sim, uint32_t node)
{
    if (node == NOBODY || (any_blank(sim) && sim_newest(sim) != NULL))
        return;
    sim_pause(sim, node);
    sim_at(sim, sim->now_ns + draw(sim, 3 * sim->options.suspect_after_ns), resume, process_of(sim, node),
           node);
}

static void stand_still(struct sim *sim)
{
    stand_still_node(sim, pick(sim));
}

static void cut(struct sim *sim)
{
    uint32_t a = pick(sim), b = pick(sim);

    if (a == NOBODY || b == NOBODY || a == b || (any_blank(sim) && sim_newest(sim) != NULL))
        return;
    switch (draw(sim, 3)) {
    case 0:
        sim_cut(sim, a, b);
        break;
    case 1:
        sim_cut_both(sim, a, b);
        break;
    default:
        sim_partition(sim, draw(sim, UINT64_C(1) << sim->nodes));
    }
}

static void slow(struct sim *sim)
{
    uint32_t node = (uint32_t)draw(sim, sim->nodes);

    sim->slow_ns[node] = draw(sim, sim->options.suspect_after_ns / 2);
    sim_tracef(sim, "%u is slow", node);
}

static void break_link(struct sim *sim)
{
    uint32_t a = pick(sim), b = pick(sim);

    if (a != NOBODY && b != NOBODY && a != b)
        sim_break(sim, a, b);
}

static void join(struct sim *sim)
{
    uint32_t count = 1 + (uint32_t)draw(sim, 2);

    while (count-- > 0 && sim->nodes < sim->options.configured + 8)
        sim_join(sim);
}

static void leave(struct sim *sim)
{
    uint32_t node = pick(sim);

    if (node == NOBODY || sim_newest(sim) == NULL || !sim_quorum_lives(sim, node))
        return;
    sim_leave(sim, node);
    if (chance(sim, 50))
        sim_at(sim, sim->now_ns + 4 * sim->options.suspect_after_ns, restart, NULL, node);
}

static void evict(struct sim *sim)
{
    uint32_t at = pick(sim), node = pick(sim);

    if (at != NOBODY && node != NOBODY && sim_quorum_lives(sim, node)) {
        sim_tracef(sim, "%u is told to evict %u", at, node);
        sim_evict(sim, at, node);
    }
}

static void one_fault(struct sim *sim)
{
    static void (*const faults[])(struct sim *) = {crash, crash,      crash, stand_still, cut,   cut,
                                                   slow,  break_link, join,  leave,       evict, sim_heal};

    faults[draw(sim, sizeof(faults) / sizeof(faults[0]))](sim);
}

static void strike(struct sim *sim, void *object, uint64_t node)
{
    struct sim_process *process = object;

    if (!process->alive || process->paused || sim->current[node] != process->index)
        return;
    switch (draw(sim, 4)) {
    case 0:
    case 1:
        crash_node(sim, (uint32_t)node);
        break;
    case 2:
        stand_still_node(sim, (uint32_t)node);
        break;
    default:
        if (!any_blank(sim))
            sim_partition(sim, UINT64_C(1) << node);
    }
}

/* The steps of an agreement are short: chance alone seldom hits between them. */
static void strike_at_rule(struct sim *sim, uint32_t node, enum membership_rule rule)
{
    bool critical = rule == MEMBERSHIP_RULE_PREPARE || rule == MEMBERSHIP_RULE_PROPOSE ||
                    rule == MEMBERSHIP_RULE_REPROPOSE || rule == MEMBERSHIP_RULE_COMMIT;
    bool often = critical || rule == MEMBERSHIP_RULE_ACCEPT || rule == MEMBERSHIP_RULE_PROMISE;

    if (sim->strikes == 0 || !often || !chance(sim, critical ? 25 : 5))
        return;
    sim->strikes--;
    sim_at(sim, sim->now_ns, strike, process_of(sim, node), node);
}

/* --- One history ---------------------------------------------------------------------------------------- */

static void boot_one(struct sim *sim, void *object, uint64_t node)
{
    (void)object;
    if (sim->current[node] == NOBODY)
        sim_boot(sim, (uint32_t)node);
}

/* All at once, or one after the other, some of them after the first view. */
static void boot(struct sim *sim)
{
    uint64_t spread_ns = chance(sim, 50) ? SIM_MS : 2 * sim->options.suspect_after_ns;

    for (uint32_t node = 0; node < sim->options.configured; node++)
        sim_at(sim, draw(sim, spread_ns), boot_one, NULL, node);
}

/* Not so fast that the blank ones form a cluster before they have met who survived. */
static void restart_rest(struct sim *sim)
{
    for (uint32_t node = 0; node < sim->options.configured; node++) {
        if (sim_alive(sim, node) || !chance(sim, 60) || sim_newest(sim) == NULL)
            continue;
        sim_boot(sim, node);
        sim_run(sim, 2 * sim->options.heartbeat_ns);
    }
}

/* A leave can be decided while another member dies: then it takes the operator. The node of the newest view
 * is told, as people would. */
static void force_if_stuck(struct sim *sim)
{
    const struct view *newest = sim_newest_known(sim, NOBODY);

    if (newest == NULL || sim_quorum_lives(sim, NOBODY))
        return;
    for (uint32_t rank = 0; rank < newest->count; rank++) {
        uint32_t node = newest->members[rank].id;
        if (!sim_alive(sim, node) || sim_incarnation(sim, node) != newest->members[rank].incarnation)
            continue;
        sim_tracef(sim, "%u is told to go on without a quorum", node);
        if (sim_force(sim, node) != 0)
            sim_fail(sim, "%u refuses to force a view", node);
        return;
    }
}

bool faults_run(struct sim *sim, uint64_t seed)
{
    struct sim_options options;
    uint64_t faults;

    draw_options(&options, seed);
    sim_init(sim, &options, seed);
    faults = 2 + draw(sim, 12);
    sim->strikes = (uint32_t)draw(sim, 8);
    sim->on_rule = strike_at_rule;
    boot(sim);
    sim_run(sim, draw(sim, 4 * options.suspect_after_ns));
    while (faults-- > 0 && sim->failure[0] == '\0') {
        one_fault(sim);
        sim_run(sim, chance(sim, 40) ? draw(sim, 10 * options.latency_ns)
                                     : draw(sim, 2 * options.suspect_after_ns));
    }
    sim->strikes = 0;
    sim->quiet = true;
    sim_heal(sim);
    sim_run(sim, 6 * options.suspect_after_ns);
    if (sim->failure[0] == '\0')
        restart_rest(sim);
    sim_run(sim, 6 * options.suspect_after_ns);
    if (sim->failure[0] == '\0')
        force_if_stuck(sim);
    if (sim->failure[0] == '\0' && !sim_settle(sim, 40 * options.suspect_after_ns) && sim->failure[0] == '\0')
        sim_fail(sim, "no progress once the faults have stopped");
    for (int i = 0; i < 200 && !sim_all_delivered(sim); i++)
        sim_run(sim, options.suspect_after_ns);
    if (sim->failure[0] == '\0' && !sim_all_delivered(sim))
        sim_fail(sim, "messages are stuck, or lost, once the faults have stopped");
    return sim->failure[0] == '\0';
}
