/* SPDX-License-Identifier: BSD-3-Clause */
/* The binomial pipeline: P. Ganesan, M. Seshadri, "On Cooperative Content Distribution and the Price of
 * Barter", ICDCS 2005; J. Behrens et al., "RDMC: A Reliable RDMA Multicast for Large Objects", DSN 2018.
 *
 * The ranks sit on the 2^l vertices of a hypercube, l = floor(log2 n), the root alone on vertex 0. Step s
 * uses the edges of dimension s mod l, in both directions at once (n = 8, vertices in binary):
 *
 *          110-----111       dimension 0   000-001  010-011  100-101  110-111
 *         / |     / |        dimension 1   000-010  001-011  100-110  101-111
 *      010-----011  |        dimension 2   000-100  001-101  010-110  011-111
 *       |  100--|--101
 *       | /     | /          The root puts a new block into the cube in every step, along the dimension
 *      000-----001           whose turn it is; what it put in l steps ago now reaches the last vertices.
 *
 * Where n is no power of two, the n - 2^l ranks left over double vertices 1, 2, ...: rank v + 2^l - 1 is the
 * twin of rank v. To the rest of the cube a pair is one node. One of the two, the receiver, takes what enters
 * the vertex; the other, the transmitter, sends what leaves it; and they share blocks in the direction that
 * is left:
 *
 *      in > receiver > transmitter > out       the receiver passes on what came last from outside
 *
 * They swap roles after every step whose dimension bit is set in v, because what entered in that step is the
 * one block that v sends until the next such step. One step more at the end makes the twins even. */

#include "schedule/kinds.h"

struct cube {
    uint32_t dimensions;
    uint32_t vertices; /* 2^dimensions */
    uint32_t pairs;    /* vertices 1..pairs hold two ranks */
};

static struct cube cube_of(const struct schedule *schedule)
{
    uint32_t dimensions = floor_log2(schedule->members);
    uint32_t vertices = UINT32_C(1) << dimensions;

    return (struct cube){
        .dimensions = dimensions, .vertices = vertices, .pairs = schedule->members - vertices};
}

static bool cube_pair(const struct cube *cube, uint32_t vertex)
{
    return vertex >= 1 && vertex <= cube->pairs;
}

static uint32_t cube_vertex(const struct cube *cube, uint32_t rank)
{
    return rank < cube->vertices ? rank : rank - cube->vertices + 1;
}

static uint32_t cube_neighbour(const struct cube *cube, uint32_t vertex, uint64_t step)
{
    return vertex ^ UINT32_C(1) << (step % cube->dimensions);
}

/* The other rank on the vertex; the rank itself where it is alone. */
static uint32_t cube_twin(const struct cube *cube, uint32_t rank)
{
    uint32_t vertex = cube_vertex(cube, rank);

    if (!cube_pair(cube, vertex))
        return rank;
    return rank == vertex ? vertex + cube->vertices - 1 : vertex;
}

/* Of two, the one that receives in `step`. They have swapped once for each earlier step whose dimension bit
 * is set: as often as vertex has ones in each full turn of l steps, and as it has in the begun one. */
static uint32_t cube_receiver(const struct cube *cube, uint32_t vertex, uint64_t step)
{
    uint32_t begun = (UINT32_C(1) << (step % cube->dimensions)) - 1;
    bool odd_turns = step / cube->dimensions % 2 == 1;
    int swaps = (odd_turns ? __builtin_parity(vertex) : 0) + __builtin_parity(vertex & begun);

    return swaps % 2 == 0 ? vertex : cube_twin(cube, vertex);
}

static uint32_t cube_transmitter(const struct cube *cube, uint32_t vertex, uint64_t step)
{
    return cube_twin(cube, cube_receiver(cube, vertex, step));
}

/* Steps from `step` forward to the next one whose dimension bit is set in vertex (!= 0): 1..dimensions. */
static uint32_t cube_steps_to_set(const struct cube *cube, uint32_t vertex, uint64_t step)
{
    uint32_t shift = (uint32_t)(step % cube->dimensions) + 1;
    uint32_t rotated = vertex >> shift | vertex << (cube->dimensions - shift);

    return (uint32_t)__builtin_ctz(rotated) + 1;
}

/* The same backward. */
static uint32_t cube_steps_since_set(const struct cube *cube, uint32_t vertex, uint64_t step)
{
    uint32_t shift = (uint32_t)(step % cube->dimensions);
    uint32_t rotated = (vertex >> shift | vertex << (cube->dimensions - shift)) & (cube->vertices - 1);

    return cube->dimensions - floor_log2(rotated);
}

/* The block that enters the vertex in `step`, if any: where the dimension bit is clear, what the root put in
 * l steps before; where it is set, what that rule says of the next step whose bit is set. So each block
 * enters once. Past the end the rule says the last block. */
static bool block_entering(const struct schedule *schedule, const struct cube *cube, uint32_t vertex,
                           int64_t step, uint32_t *block)
{
    int64_t number = step - (int64_t)cube->dimensions;

    if (vertex == 0 || step < 0)
        return false;
    if (vertex >> (step % cube->dimensions) & 1)
        number += cube_steps_to_set(cube, vertex, (uint64_t)step);
    if (number < 0)
        return false;
    *block = number < schedule->blocks ? (uint32_t)number : schedule->blocks - 1;
    return true;
}

/* The block that `rank` owes its twin in `step`: what entered in the last earlier step in which rank was the
 * receiver. */
static bool block_owed(const struct schedule *schedule, const struct cube *cube, uint32_t rank, uint64_t step,
                       uint32_t *block)
{
    uint32_t vertex = cube_vertex(cube, rank);
    uint32_t ago;

    if (!cube_pair(cube, vertex) || step == 0)
        return false;
    ago = cube_steps_since_set(cube, vertex, step); /* the last swap: the transmitter received until then */
    if (rank == cube_receiver(cube, vertex, step)) {
        if (ago > 1)
            ago = 1;
        else
            ago += cube_steps_since_set(cube, vertex, step - 1); /* the swap before */
    }
    return block_entering(schedule, cube, vertex, (int64_t)step - ago, block);
}

static uint64_t binomial_steps(const struct schedule *schedule)
{
    return (uint64_t)schedule->blocks + ceil_log2(schedule->members) - 1;
}

/* The step after those of the plain hypercube, which only n other than a power of two has. */
static bool extra_step(const struct schedule *schedule, const struct cube *cube, uint64_t step)
{
    return cube->pairs > 0 && step == binomial_steps(schedule) - 1;
}

/* In the extra step twins give each other the block that they owe. */
static bool twins_even_out(const struct schedule *schedule, const struct cube *cube, uint64_t step)
{
    return schedule->blocks > 1 && extra_step(schedule, cube, step);
}

/* With a single block the extra step crosses the cube once more instead, into the vertices of which one rank
 * still lacks it, as in a binomial tree. */
static bool vertex_is_open(const struct schedule *schedule, const struct cube *cube, uint32_t vertex,
                           uint64_t step)
{
    return !extra_step(schedule, cube, step) || cube_pair(cube, vertex);
}

static bool binomial_outgoing(const struct schedule_rank *part, uint64_t step, struct transfer *out)
{
    const struct schedule *schedule = &part->schedule;
    const struct cube cube = cube_of(schedule);
    uint32_t vertex = cube_vertex(&cube, part->rank);
    uint32_t neighbour = cube_neighbour(&cube, vertex, step);

    if (part->rank != cube_transmitter(&cube, vertex, step) || twins_even_out(schedule, &cube, step)) {
        if (!block_owed(schedule, &cube, part->rank, step, &out->block))
            return false;
        out->peer = cube_twin(&cube, part->rank);
        return true;
    }
    if (!vertex_is_open(schedule, &cube, neighbour, step) ||
        !block_entering(schedule, &cube, neighbour, (int64_t)step, &out->block))
        return false;
    out->peer = cube_receiver(&cube, neighbour, step);
    return true;
}

static bool binomial_incoming(const struct schedule_rank *part, uint64_t step, struct transfer *in)
{
    const struct schedule *schedule = &part->schedule;
    const struct cube cube = cube_of(schedule);
    uint32_t vertex = cube_vertex(&cube, part->rank);
    uint32_t twin = cube_twin(&cube, part->rank);

    if (part->rank != cube_receiver(&cube, vertex, step) || twins_even_out(schedule, &cube, step)) {
        if (!block_owed(schedule, &cube, twin, step, &in->block))
            return false;
        in->peer = twin;
        return true;
    }
    if (!vertex_is_open(schedule, &cube, vertex, step) ||
        !block_entering(schedule, &cube, vertex, (int64_t)step, &in->block))
        return false;
    in->peer = cube_transmitter(&cube, cube_neighbour(&cube, vertex, step), step);
    return true;
}

static struct step_range binomial_revealing(const struct schedule_rank *part)
{
    uint32_t dimensions = floor_log2(part->schedule.members);

    /* Roles and dimensions repeat every 2l steps, and from step 2l + 1 on every edge has a block to carry. */
    return (struct step_range){.first = 0, .stride = 1, .count = 4 * dimensions + 1};
}

const struct schedule_ops schedule_binomial = {
    .name = "binomial",
    .steps = binomial_steps,
    .outgoing = binomial_outgoing,
    .incoming = binomial_incoming,
    .revealing = binomial_revealing,
};
