/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/session_checker.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void *zeroed(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);

    if (memory == NULL)
        abort();
    return memory;
}

/* What the root has in a block: never 0. */
static uint64_t original(const struct session_checker *checker, uint32_t block)
{
    return (checker->seed << 21 ^ block) | UINT64_C(1) << 63;
}

void checker_init(struct session_checker *checker, uint32_t members, uint32_t blocks, uint64_t seed)
{
    *checker = (struct session_checker){.members = members, .blocks = blocks, .seed = seed};
    checker->member = zeroed(members, sizeof(*checker->member));
    for (uint32_t i = 0; i < members; i++)
        checker->member[i].content = zeroed(blocks, sizeof(uint64_t));
    for (uint32_t block = 0; block < blocks; block++)
        checker_has(checker, 0, block);
}

void checker_free(struct session_checker *checker)
{
    for (uint32_t i = 0; i < checker->members; i++)
        free(checker->member[i].content);
    free(checker->member);
}

void checker_fail(struct session_checker *checker, const char *format, ...)
{
    va_list arguments;

    if (checker->text[0] != '\0')
        return;
    va_start(arguments, format);
    vsnprintf(checker->text, sizeof(checker->text), format, arguments);
    va_end(arguments);
}

void checker_has(struct session_checker *checker, uint32_t member, uint32_t block)
{
    checker->member[member].content[block] = original(checker, block);
}

uint64_t checker_read(struct session_checker *checker, uint32_t member, uint32_t block)
{
    struct checker_member *from = &checker->member[member];

    if (from->closed && from->release_count > 0)
        checker_fail(checker, "block %u is read in released memory of member %u", block, member);
    if (from->content[block] != original(checker, block))
        checker_fail(checker, "block %u is read in member %u, which does not have it", block, member);
    return from->content[block];
}

void checker_touch(struct session_checker *checker, uint32_t member)
{
    if (checker->member[member].closed)
        checker_fail(checker, "something arrives for the closed session of member %u", member);
}

void checker_landed(struct session_checker *checker, uint32_t member, uint32_t block, uint64_t content)
{
    struct checker_member *to = &checker->member[member];

    checker_touch(checker, member);
    if (to->content[block] != 0)
        checker_fail(checker, "block %u lands in member %u, which has it", block, member);
    to->content[block] = content;
}

static bool is_complete(const struct session_checker *checker, uint32_t member)
{
    for (uint32_t block = 0; block < checker->blocks; block++)
        if (checker->member[member].content[block] != original(checker, block))
            return false;
    return true;
}

void checker_delivered(struct session_checker *checker, uint32_t member)
{
    if (checker->member[member].deliver_count++ > 0)
        checker_fail(checker, "member %u delivers twice", member);
    if (checker->member[member].release_count > 0)
        checker_fail(checker, "member %u delivers what it released", member);
    for (uint32_t i = 0; i < checker->members; i++)
        if (!checker->member[i].stopped && !is_complete(checker, i))
            checker_fail(checker, "member %u delivers, and member %u is not complete", member, i);
}

void checker_released(struct session_checker *checker, uint32_t member)
{
    if (checker->member[member].release_count++ > 0)
        checker_fail(checker, "member %u releases twice", member);
    if (checker->member[member].deliver_count > 0)
        checker_fail(checker, "member %u releases what it delivered", member);
}

void checker_done(struct session_checker *checker, uint32_t member, int code)
{
    struct checker_member *root = &checker->member[member];

    if (member != 0 || root->done_count++ > 0)
        checker_fail(checker, "the operation ends again, at member %u", member);
    root->done_code = code;
    if ((code == 0) != (root->deliver_count == 1) || (code == 0) == (root->release_count == 1))
        checker_fail(checker, "the operation ends with %d, delivered %u, released %u", code,
                     root->deliver_count, root->release_count);
}

void checker_closed(struct session_checker *checker, uint32_t member)
{
    checker->member[member].closed = true;
}

void checker_stopped(struct session_checker *checker, uint32_t member)
{
    checker->member[member].stopped = true;
}

void checker_finish(struct session_checker *checker)
{
    uint32_t running = 0, delivered = 0;

    for (uint32_t i = 0; i < checker->members; i++) {
        const struct checker_member *member = &checker->member[i];

        if (member->stopped)
            continue;
        running++;
        delivered += member->deliver_count;
        if (!member->closed)
            checker_fail(checker, "member %u is stuck", i);
        if (member->deliver_count + member->release_count != 1)
            checker_fail(checker, "member %u neither delivers nor releases", i);
    }
    if (delivered != 0 && delivered != running)
        checker_fail(checker, "%u of %u members deliver", delivered, running);
    if (!checker->member[0].stopped && checker->member[0].done_count != 1)
        checker_fail(checker, "the operation does not end");
}
