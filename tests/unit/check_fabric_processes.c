/* SPDX-License-Identifier: BSD-3-Clause */
/* Conformance of a backend to fabric.h between processes: what peers do that are killed, stopped or
 * strangers. The environment chooses the provider; see tests/lib/fabric_ends.h. */

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/fabric_ends.h"

#define TARGET_BYTES (1 << 20)
#define BLOCK_BYTES  (1 << 18)

/* What a peer process does once its link is up. */
enum role {
    ROLE_ANSWER, /* looks at each block that arrives, and answers its immediate by a message */
    ROLE_WRITE,  /* writes without end */
    ROLE_SEND,   /* sends messages without end */
    ROLES
};

struct hello {
    uint8_t address[FABRIC_ADDRESS_MAX];
    uint64_t address_bytes, target_address, target_key;
};

struct peer {
    pid_t pid;
    int fd; /* its end is the peer's sign to stop */
    struct hello hello;
};

static void hello_exchange(int fd, const struct host *host, const struct target *target, struct hello *other)
{
    struct hello own = {.target_address = target->address, .target_key = target->key};

    own.address_bytes = fabric_address(host->fabric, own.address);
    ck_assert_int_eq(write(fd, &own, sizeof(own)), sizeof(own));
    ck_assert_int_eq(recv(fd, other, sizeof(*other), MSG_WAITALL), sizeof(*other));
}

/* --- The peer's side ------------------------------------------------------------------------------------ */

static void answer(struct end *end, const struct fabric_event *event)
{
    const struct target *target = end->user;
    const uint8_t *block = target->base + (event->immediate % 4) * BLOCK_BYTES;

    if (event->type != FABRIC_ARRIVED)
        return;
    ck_assert(block[0] == (uint8_t)event->immediate && memcmp(block, block + 1, BLOCK_BYTES - 1) == 0);
    ck_assert_int_eq(fabric_send(end->link, &event->immediate, sizeof(event->immediate)), 0);
}

/* Post as much as there is room for. */
static void pour(enum role role, const struct end *end, const struct target *source, const struct hello *to)
{
    struct target target = {.address = to->target_address, .key = to->target_key};
    struct fabric_write write = target_write(source, &target, 0, BLOCK_BYTES);

    if (role == ROLE_WRITE) {
        write.immediate = 1;
        while (fabric_write(end->link, &write) == 0)
            continue;
    } else if (role == ROLE_SEND) {
        while (fabric_send(end->link, source->base, FABRIC_MESSAGE_MAX) == 0)
            continue;
    }
}

static bool ended(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

static void peer_main(enum role role, int fd)
{
    struct end end = {.on_event = role == ROLE_ANSWER ? answer : NULL};
    uint8_t token[FABRIC_TOKEN_BYTES];
    struct target target;
    struct hello hello;
    struct host host;
    struct fail fail;

    host_open(&host, NULL);
    target_open(&target, &host, TARGET_BYTES, true);
    memset(target.base, 0x77, TARGET_BYTES);
    ends_token(1, token);
    end.host = &host;
    end.user = &target;
    ck_assert_int_eq(fabric_link_expect(host.fabric, FABRIC_DATA, token, &end, &end.link, &fail), 0);
    hello_exchange(fd, &host, &target, &hello);
    while (!end.down && !ended(fd)) {
        pour(role, &end, &target, &hello);
        hosts_step(&host, NULL, fd);
    }
    if (end.down)
        end_free(&end);
    else
        end_close(&end, NULL);
    target_close(&target);
    host_close(&host);
}

/* Before this process opens a fabric of its own. */
static void peer_start(struct peer *peer, enum role role)
{
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    peer->pid = fork();
    ck_assert_int_ge(peer->pid, 0);
    if (peer->pid == 0) {
        close(pair[0]);
        peer_main(role, pair[1]);
        exit(EXIT_SUCCESS);
    }
    close(pair[1]);
    peer->fd = pair[0];
}

static void peer_join(struct peer *peer, struct host *host, const struct target *target, struct end *end)
{
    uint8_t token[FABRIC_TOKEN_BYTES];
    struct fail fail;

    hello_exchange(peer->fd, host, target, &peer->hello);
    ends_token(1, token);
    memset(end, 0, sizeof(*end));
    end->host = host;
    ck_assert_int_eq(fabric_link_connect(host->fabric, FABRIC_DATA, peer->hello.address,
                                         peer->hello.address_bytes, token, end, &end->link, &fail),
                     0);
    HOSTS_UNTIL(host, NULL, end->up || end->down);
    ck_assert_msg(end->up, "%s", end->text);
}

/* Wait for the process's end. Returns its status as of wait(2). */
static int peer_wait(struct peer *peer)
{
    int status;

    close(peer->fd);
    ck_assert_int_eq(waitpid(peer->pid, &status, 0), peer->pid);
    return status;
}

/* Ask it to end, which it does in order. */
static void peer_stop(struct peer *peer, struct end *end)
{
    int status;

    end_close(end, NULL);
    status = peer_wait(peer);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the peer ended with status %#x",
                  (unsigned)status);
}

static struct fabric_write block_write(const struct target *source, const struct peer *peer, uint32_t number)
{
    struct target target = {.address = peer->hello.target_address, .key = peer->hello.target_key};
    struct fabric_write write = target_write(source, &target, (number % 4) * BLOCK_BYTES, BLOCK_BYTES);

    write.immediate = number;
    return write;
}

/* Blocks there, answers back; at most 4 under way, as the target has 4 places. */
static void exchange(struct host *host, const struct target *source, const struct peer *peer, struct end *end,
                     uint32_t blocks)
{
    size_t before = end->lengths.count;

    for (uint32_t i = 0; i < blocks; i++) {
        struct fabric_write write = block_write(source, peer, i);

        HOSTS_UNTIL(host, NULL, end->lengths.count - before + 4 > i);
        memset(source->base + (i % 4) * BLOCK_BYTES, (int)i, BLOCK_BYTES);
        ck_assert_int_eq(fabric_write(end->link, &write), 0);
    }
    HOSTS_UNTIL(host, NULL, end->lengths.count == before + blocks);
    for (uint32_t i = 0; i < blocks; i++)
        ck_assert_mem_eq(end->bytes + (before + i) * sizeof(i), &i, sizeof(i));
}

/* --- Tests ---------------------------------------------------------------------------------------------- */

START_TEST(test_two_processes_exchange_blocks)
{
    struct target source;
    struct peer peer;
    struct host host;
    struct end end;

    peer_start(&peer, ROLE_ANSWER);
    host_open(&host, NULL);
    target_open(&source, &host, TARGET_BYTES, true);
    peer_join(&peer, &host, &source, &end);
    exchange(&host, &source, &peer, &end, 200);
    peer_stop(&peer, &end);
    target_close(&source);
    host_close(&host);
}
END_TEST

/* What this process does when its peer is killed. */
enum moment { IDLE, WRITING, WRITTEN, SENT_TO, MOMENTS };

static void keep_writing(struct host *host, const struct target *source, const struct peer *peer,
                         struct end *end)
{
    struct fabric_write write = block_write(source, peer, 0);
    int error;

    write.immediate = FABRIC_IMMEDIATE_NONE;
    while ((error = fabric_write(end->link, &write)) == 0)
        continue;
    ck_assert(error == COVEY_AGAIN || error == COVEY_PEER_LOST);
    hosts_step(host, NULL, -1);
}

/* "When LINK_DOWN is delivered no more DMA of that peer's touches memory here." A killed peer's link goes
 * down, once; other links go on. */
START_TEST(test_killed_peer_ends_its_link_and_no_other)
{
    static const enum role roles[MOMENTS] = {ROLE_ANSWER, ROLE_ANSWER, ROLE_WRITE, ROLE_SEND};
    struct peer victim, survivor;
    struct end end, other;
    struct target source, landing; /* blocks go from one, and the victim writes to the other */
    struct host host;
    int moment = _i % MOMENTS;

    peer_start(&victim, roles[moment]);
    peer_start(&survivor, ROLE_ANSWER);
    host_open(&host, NULL);
    target_open(&source, &host, TARGET_BYTES, true);
    target_open(&landing, &host, TARGET_BYTES, true);
    peer_join(&victim, &host, &landing, &end);
    end.forgets = true;
    peer_join(&survivor, &host, &source, &other);
    exchange(&host, &source, &survivor, &other, 8);
    if (moment == WRITTEN)
        HOSTS_UNTIL(&host, NULL, end.immediates.count > 20);
    if (moment == SENT_TO)
        HOSTS_UNTIL(&host, NULL, end.lengths.count > 20);
    for (int i = 0; i < 20 && moment == WRITING; i++)
        keep_writing(&host, &source, &victim, &end);
    kill(victim.pid, SIGKILL);
    while (!end.down && moment == WRITING)
        keep_writing(&host, &source, &victim, &end);
    HOSTS_UNTIL(&host, NULL, end.down);
    ck_assert_int_eq(end.error, COVEY_PEER_LOST);
    memset(landing.base, 0, TARGET_BYTES);
    ck_assert_int_eq(fabric_send(end.link, "x", 1), COVEY_PEER_LOST);
    host_drain(&host); /* the end has nothing more to say: see end_event() */
    ck_assert(landing.base[0] == 0 && memcmp(landing.base, landing.base + 1, TARGET_BYTES - 1) == 0);
    end_free(&end);
    ck_assert(WIFSIGNALED(peer_wait(&victim)));
    exchange(&host, &source, &survivor, &other, 8);
    peer_stop(&survivor, &other);
    target_close(&landing);
    target_close(&source);
    host_close(&host);
}
END_TEST

/* A process that ends without closing anything is a lost peer too. */
START_TEST(test_peer_that_exits_is_lost)
{
    struct target source;
    struct peer peer;
    struct host host;
    struct end end;

    peer_start(&peer, ROLE_ANSWER);
    host_open(&host, NULL);
    target_open(&source, &host, TARGET_BYTES, true);
    peer_join(&peer, &host, &source, &end);
    shutdown(peer.fd, SHUT_WR); /* it closes in order */
    HOSTS_UNTIL(&host, NULL, end.down);
    ck_assert_int_eq(end.error, COVEY_PEER_LOST);
    end_free(&end);
    ck_assert_int_eq(peer_wait(&peer), 0);
    target_close(&source);
    host_close(&host);
}
END_TEST

/* A stopped peer takes what its queues hold and no more; nothing ends, others are not held up, and it all
 * arrives when the peer goes on. */
START_TEST(test_stopped_peer_holds_up_its_own_link_only)
{
    struct peer sleeper, other;
    struct end end, other_end;
    struct target source;
    struct host host;
    uint64_t posted = 0;
    int status;

    peer_start(&sleeper, ROLE_ANSWER);
    peer_start(&other, ROLE_ANSWER);
    host_open(&host, NULL);
    target_open(&source, &host, TARGET_BYTES, true);
    peer_join(&sleeper, &host, &source, &end);
    peer_join(&other, &host, &source, &other_end);
    kill(sleeper.pid, SIGSTOP);
    ck_assert_int_eq(waitpid(sleeper.pid, &status, WUNTRACED), sleeper.pid);
    memset(source.base, 7, BLOCK_BYTES);
    for (int tries = 0; tries < 100 && posted < 256; tries++) { /* more than sockets hold */
        struct fabric_write write = block_write(&source, &sleeper, 0);

        write.immediate = FABRIC_IMMEDIATE_NONE;
        write.signalled = true;
        write.cookie = posted;
        while (posted < 256 && fabric_write(end.link, &write) == 0)
            write.cookie = ++posted;
        host_drain(&host);
        ck_assert_uint_le(posted - end.cookies.count, fabric_limits(host.fabric)->outstanding);
    }
    ck_assert(!end.down);
    exchange(&host, &source, &other, &other_end, 20);
    kill(sleeper.pid, SIGCONT);
    HOSTS_UNTIL(&host, NULL, end.cookies.count == posted);
    for (uint64_t i = 0; i < posted; i++)
        ck_assert_uint_eq(end.cookies.at[i], i);
    exchange(&host, &source, &sleeper, &end, 8);
    peer_stop(&sleeper, &end);
    peer_stop(&other, &other_end);
    target_close(&source);
    host_close(&host);
}
END_TEST

/* A peer that does not answer cannot hold up a close for long, nor write here after LINK_DOWN. */
START_TEST(test_link_to_a_stopped_peer_can_be_closed)
{
    struct target source;
    struct peer peer;
    struct host host;
    struct end end;
    int status;

    peer_start(&peer, ROLE_WRITE);
    host_open(&host, NULL);
    target_open(&source, &host, TARGET_BYTES, true);
    peer_join(&peer, &host, &source, &end);
    HOSTS_UNTIL(&host, NULL, end.immediates.count > 3);
    kill(peer.pid, SIGSTOP);
    ck_assert_int_eq(waitpid(peer.pid, &status, WUNTRACED), peer.pid);
    end_close(&end, NULL);
    memset(source.base, 0, TARGET_BYTES);
    kill(peer.pid, SIGCONT);
    ck_assert_int_eq(peer_wait(&peer), 0);
    host_drain(&host);
    ck_assert(source.base[0] == 0 && memcmp(source.base, source.base + 1, TARGET_BYTES - 1) == 0);
    target_close(&source);
    host_close(&host);
}
END_TEST

/* Idle between two processes costs nothing: no busy loop hides behind the descriptor. */
START_TEST(test_idle_process_uses_no_processor)
{
    const uint64_t until_ms = ends_now_ms() + 1000;
    struct rusage before, after;
    struct target source;
    struct peer peer;
    struct host host;
    struct end end;
    int64_t used_us;

    peer_start(&peer, ROLE_ANSWER);
    host_open(&host, NULL);
    target_open(&source, &host, TARGET_BYTES, true);
    peer_join(&peer, &host, &source, &end);
    exchange(&host, &source, &peer, &end, 8);
    getrusage(RUSAGE_SELF, &before);
    while (ends_now_ms() < until_ms)
        hosts_step(&host, NULL, -1);
    getrusage(RUSAGE_SELF, &after);
    used_us =
        (after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_stime.tv_sec) *
            1000000 +
        after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_stime.tv_usec;
    ck_assert_int_lt(used_us,
                     100000); /* a loop that spins uses ten times that, if it gets a whole processor */
    peer_stop(&peer, &end);
    target_close(&source);
    host_close(&host);
}
END_TEST

/* --- Strangers ------------------------------------------------------------------------------------------ */

/* The address of the socket of this process that listens. */
static struct sockaddr_in listening(void)
{
    struct sockaddr_in name;

    for (int fd = 3; fd < 1024; fd++) {
        socklen_t bytes = sizeof(int);
        int listens = 0;

        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || !listens)
            continue;
        bytes = sizeof(name);
        if (getsockname(fd, (struct sockaddr *)&name, &bytes) == 0 && name.sin_family == AF_INET)
            return name;
    }
    ck_abort_msg("nothing listens");
    return name;
}

static int stranger_connect(const struct sockaddr_in *to)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)to, sizeof(*to)), 0);
    return fd;
}

/* Anything may connect to a port and say anything, or nothing: links come up all the same. */
START_TEST(test_strangers_are_survived)
{
    static const size_t lengths[] = {0, 1, 7, 8, 16, 48, 64, 300, 4096, 65536};
    uint8_t *noise = malloc(65536);
    int fds[2 * sizeof(lengths) / sizeof(lengths[0])], count = 0;
    struct sockaddr_in address;
    struct pair pair;

    if (strcmp(ends_provider(), "tcp") != 0) {
        fprintf(stderr, "skipped: strangers speak TCP, the provider is %s\n", ends_provider());
        free(noise);
        return;
    }
    pair_open(&pair, NULL);
    address = listening();
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (int kind = 0; kind < 2; kind++) {
            memset(noise, kind == 0 ? 0 : 0xa7, 65536);
            noise[0] = kind == 0 ? 3 : 0; /* libfabric's version of its header, or not */
            fds[count] = stranger_connect(&address);
            (void)!send(fds[count++], noise, lengths[i], MSG_NOSIGNAL | MSG_DONTWAIT);
            host_drain(&pair.a);
            host_drain(&pair.b);
        }
    }
    for (int i = 0; i < count; i += 2) /* half of them go, half stay */
        close(fds[i]);
    for (uint32_t i = 0; i < 20; i++) {
        const struct fabric_write write = {.immediate = i};

        pair_write(&pair, &write);
    }
    PAIR_UNTIL(&pair, pair.to.immediates.count == 20);
    end_close(&pair.from, &pair.b);
    end_close(&pair.to, &pair.a);
    ends_join(&pair.b, &pair.a, FABRIC_CONTROL, 5, &pair.to, &pair.from);
    PAIR_UNTIL(&pair, pair.from.up && pair.to.up);
    for (int i = 1; i < count; i += 2)
        close(fds[i]);
    pair_close(&pair);
    free(noise);
}
END_TEST

int main(void)
{
    const struct suite_test tests[] = {
        SUITE_TEST(test_two_processes_exchange_blocks),
        SUITE_LOOP(test_killed_peer_ends_its_link_and_no_other, 2 * MOMENTS),
        SUITE_TEST(test_peer_that_exits_is_lost),
        SUITE_TEST(test_stopped_peer_holds_up_its_own_link_only),
        SUITE_TEST(test_link_to_a_stopped_peer_can_be_closed),
        SUITE_TEST(test_idle_process_uses_no_processor),
        SUITE_TEST(test_strangers_are_survived),
    };

    ends_load();
    return ends_run("fabric processes", tests, sizeof(tests) / sizeof(tests[0]), 120);
}
