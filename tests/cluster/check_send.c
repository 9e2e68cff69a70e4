/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages through the public API: one order for everyone, with objects and removals, whoever dies. */

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/nodes.h"
#include "tests/lib/suite.h"

#define WAIT_MS  60000

/* --- What a member was told, line by line --------------------------------------------------------------- */

#define TOLD_MAX (1u << 22)

struct told {
    pthread_mutex_t mutex;
    char *text;
    size_t bytes;
    size_t messages, objects, removals;
};

static void told_open(struct told *told)
{
    memset(told, 0, sizeof(*told));
    pthread_mutex_init(&told->mutex, NULL);
    told->text = malloc(TOLD_MAX);
    ck_assert_ptr_nonnull(told->text);
}

static void told_close(struct told *told)
{
    pthread_mutex_destroy(&told->mutex);
    free(told->text);
}

static void add(struct told *told, size_t *count, const char *kind, uint64_t number, const void *data,
                size_t bytes)
{
    uint64_t sum = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ ((const unsigned char *)data)[i]) * UINT64_C(1099511628211);
    pthread_mutex_lock(&told->mutex);
    if (told->bytes + 80 < TOLD_MAX)
        told->bytes += (size_t)snprintf(told->text + told->bytes, 80, "%s %llu %zu %016llx\n", kind,
                                        (unsigned long long)number, bytes, (unsigned long long)sum);
    (*count)++;
    pthread_mutex_unlock(&told->mutex);
}

static void on_message(void *context, struct covey_group *group, uint32_t sender, const void *data,
                       size_t bytes)
{
    struct told *told = context;

    (void)group;
    add(told, &told->messages, "message", sender, data, bytes);
}

static void on_object(void *context, struct covey_group *group, struct covey_object *object)
{
    struct told *told = context;

    (void)group;
    add(told, &told->objects, "object", covey_object_version(object), covey_object_name(object),
        strlen(covey_object_name(object)));
}

static void on_remove(void *context, struct covey_group *group, const char *name, uint64_t version)
{
    struct told *told = context;

    (void)group;
    add(told, &told->removals, "removal", version, name, strlen(name));
}

static const struct covey_group_callbacks tell = {
    .on_message = on_message, .on_object = on_object, .on_remove = on_remove};

static size_t count_of(struct told *told, const size_t *count)
{
    size_t value;

    pthread_mutex_lock(&told->mutex);
    value = *count;
    pthread_mutex_unlock(&told->mutex);
    return value;
}

static void wait_for(struct told *told, const size_t *count, size_t wanted)
{
    for (int waited_ms = 0; count_of(told, count) != wanted; waited_ms++) {
        ck_assert_msg(waited_ms < WAIT_MS, "%zu of %zu", count_of(told, count), wanted);
        usleep(1000);
    }
}

static void open_all(struct nodes *nodes, struct told *told, size_t count)
{
    nodes_configure(nodes, count, "", "");
    for (size_t i = 0; i < count; i++) {
        told_open(&told[i]);
        nodes_open_one(nodes, i, 0, &tell, &told[i]);
    }
    nodes_wait(nodes);
}

static void close_all(struct nodes *nodes, struct told *told)
{
    size_t count = nodes->count;

    nodes_close(nodes);
    for (size_t i = 0; i < count; i++)
        told_close(&told[i]);
}

/* --- Many senders --------------------------------------------------------------------------------------- */

#define MEMBERS  3
#define MESSAGES 2000

struct sender {
    pthread_t thread;
    struct covey_group *group;
    unsigned seed;
    bool puts;
};

static void put_and_remove(struct covey_group *group, unsigned number)
{
    char bytes[4096], name[32];
    struct covey_buffer buffer = {.base = bytes, .bytes = 1 + number * 97 % sizeof(bytes)};
    struct covey_op *op;

    pattern_fill(bytes, buffer.bytes, number);
    snprintf(name, sizeof(name), "object %u", number);
    ck_assert_int_eq(covey_put(group, name, &buffer, 1, &op), 0);
    ck_assert_int_eq(covey_op_wait(op, WAIT_MS), 0);
    covey_op_free(op);
    ck_assert_int_eq(covey_remove(group, name, &op), 0);
    ck_assert_int_eq(covey_op_wait(op, WAIT_MS), 0);
    covey_op_free(op);
}

static void *run_sender(void *context)
{
    struct sender *sender = context;
    char data[COVEY_MESSAGE_MAX];
    unsigned random = sender->seed;

    for (unsigned i = 0; i < MESSAGES; i++) {
        size_t bytes;

        random = random * 1103515245 + 12345;
        bytes = random >> 16 & (i % 50 == 0 ? COVEY_MESSAGE_MAX - 1 : 127);
        pattern_fill(data, bytes, random);
        ck_assert_int_eq(covey_send(sender->group, data, bytes, NULL), 0);
        if (sender->puts && i % 200 == 0)
            put_and_remove(sender->group, i);
    }
    return NULL;
}

/* T24: sizes at random, small and large ones in one order, nobody gets stuck. */
START_TEST(test_all_members_are_told_the_same_in_the_same_order)
{
    struct nodes nodes;
    struct told told[MEMBERS];
    struct sender senders[MEMBERS];

    open_all(&nodes, told, MEMBERS);
    for (unsigned i = 0; i < MEMBERS; i++) {
        senders[i] = (struct sender){.group = nodes.group[i], .seed = i + 1, .puts = i == 1};
        ck_assert_int_eq(pthread_create(&senders[i].thread, NULL, run_sender, &senders[i]), 0);
    }
    for (unsigned i = 0; i < MEMBERS; i++)
        pthread_join(senders[i].thread, NULL);
    for (unsigned i = 0; i < MEMBERS; i++) {
        wait_for(&told[i], &told[i].messages, (size_t)MEMBERS * MESSAGES);
        wait_for(&told[i], &told[i].removals, MESSAGES / 200);
        ck_assert_uint_eq(told[i].objects, MESSAGES / 200);
        ck_assert_uint_eq(told[i].bytes, told[0].bytes);
        ck_assert_mem_eq(told[i].text, told[0].text, told[0].bytes);
    }
    close_all(&nodes, told);
}
END_TEST

/* --- One message ---------------------------------------------------------------------------------------- */

static uint64_t send_and_wait(struct covey_group *group, const void *data, size_t bytes)
{
    struct covey_op_result result;
    struct covey_op *op;

    ck_assert_int_eq(covey_send(group, data, bytes, &op), 0);
    ck_assert_msg(covey_op_wait(op, WAIT_MS) == 0, "%s", covey_op_error(op));
    ck_assert_int_eq(covey_op_result(op, &result), 0);
    ck_assert_uint_eq(result.bytes, bytes);
    covey_op_free(op);
    return result.version;
}

/* T25: the largest, one byte more, none, and more than there can be. */
START_TEST(test_a_message_has_a_largest_size)
{
    static char data[COVEY_MESSAGE_MAX + 1];
    struct nodes nodes;
    struct told told[2];
    struct covey_op *op;

    open_all(&nodes, told, 2);
    ck_assert_int_eq(covey_send(nodes.group[0], data, sizeof(data), &op), COVEY_TOO_LARGE);
    ck_assert_ptr_nonnull(strstr(covey_error_detail(nodes.node[0]), "32768"));
    ck_assert_ptr_nonnull(strstr(covey_error_detail(nodes.node[0]), "32769"));
    ck_assert_int_eq(covey_send(nodes.group[0], data, SIZE_MAX / 2 + 1, &op), COVEY_TOO_LARGE);
    ck_assert_int_eq(covey_send(nodes.group[0], NULL, 1, &op), COVEY_INVALID);
    send_and_wait(nodes.group[0], data, COVEY_MESSAGE_MAX);
    send_and_wait(nodes.group[0], NULL, 0);
    wait_for(&told[1], &told[1].messages, 2);
    close_all(&nodes, told);
}
END_TEST

/* The position that an operation tells grows, and counts what has a place, versions among it. */
START_TEST(test_an_operation_tells_the_position)
{
    struct nodes nodes;
    struct told told[2];
    struct covey_buffer none = {0};
    uint64_t first;

    open_all(&nodes, told, 2);
    first = send_and_wait(nodes.group[0], "x", 1);
    ck_assert_uint_eq(send_and_wait(nodes.group[1], "y", 1), first + 1);
    ck_assert_uint_eq(nodes_put(&nodes, 0, "o", &none, 1), first + 2);
    ck_assert_uint_eq(send_and_wait(nodes.group[0], "z", 1), first + 3);
    close_all(&nodes, told);
}
END_TEST

/* Whether a version could be read while its callback ran. */
static void try_to_read(void *context, struct covey_group *group, struct covey_object *object)
{
    atomic_int *result = context;
    struct covey_object *read;
    int rc = covey_get(group, covey_object_name(object), covey_object_version(object), &read);

    if (rc == 0)
        covey_object_release(read);
    atomic_store(result, rc);
}

/* O11: what an application derives from a version it derives before any reader can have the version, and
 * every read says which one it is. */
START_TEST(test_a_version_is_told_of_before_it_can_be_read)
{
    static const struct covey_group_callbacks callbacks = {.on_object = try_to_read};
    struct covey_buffer none = {0};
    struct covey_object *object;
    struct nodes nodes;
    atomic_int result = 1;
    uint64_t version;

    nodes_configure(&nodes, 2, "", "");
    nodes_open_one(&nodes, 0, 0, NULL, NULL);
    nodes_open_one(&nodes, 1, 0, &callbacks, &result);
    nodes_wait(&nodes);
    for (int i = 0; i < 20; i++) {
        version = nodes_put(&nodes, 0, "weights", &none, 1);
        ck_assert_int_eq(atomic_load(&result), COVEY_NOT_FOUND);
        ck_assert_int_eq(covey_get(nodes.group[1], "weights", 0, &object), 0);
        ck_assert_uint_eq(covey_object_version(object), version);
        covey_object_release(object);
        atomic_store(&result, 1);
    }
    nodes_close(&nodes);
}
END_TEST

/* --- Callbacks ------------------------------------------------------------------------------------------ */

struct echo {
    struct told told;
    uint32_t self;
};

static void answer(void *context, struct covey_group *group, uint32_t sender, const void *data, size_t bytes)
{
    struct echo *echo = context;

    add(&echo->told, &echo->told.messages, "message", sender, data, bytes);
    if (echo->self == 1 && sender == 0)
        ck_assert_int_eq(covey_send(group, "answer", 6, NULL), 0);
}

START_TEST(test_a_callback_may_send)
{
    static const struct covey_group_callbacks callbacks = {.on_message = answer};
    struct nodes nodes;
    struct echo echo[2];

    nodes_configure(&nodes, 2, "", "");
    for (uint32_t i = 0; i < 2; i++) {
        told_open(&echo[i].told);
        echo[i].self = i;
        nodes_open_one(&nodes, i, 0, &callbacks, &echo[i]);
    }
    nodes_wait(&nodes);
    for (int i = 0; i < 100; i++)
        send_and_wait(nodes.group[0], "question", 8);
    for (uint32_t i = 0; i < 2; i++)
        wait_for(&echo[i].told, &echo[i].told.messages, 200);
    ck_assert_mem_eq(echo[0].told.text, echo[1].told.text, echo[0].told.bytes);
    nodes_close(&nodes);
    told_close(&echo[0].told);
    told_close(&echo[1].told);
}
END_TEST

struct gate {
    struct told told;
    pthread_mutex_t mutex; /* held: on_message waits */
};

static void wait_at_gate(void *context, struct covey_group *group, uint32_t sender, const void *data,
                         size_t bytes)
{
    struct gate *gate = context;

    pthread_mutex_lock(&gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
    on_message(&gate->told, group, sender, data, bytes);
}

struct flood {
    struct covey_group *group;
    atomic_size_t sent;
    size_t wanted;
};

static void *run_flood(void *context)
{
    struct flood *flood = context;
    char data[COVEY_MESSAGE_MAX] = {0};

    while (atomic_load(&flood->sent) < flood->wanted) {
        ck_assert_int_eq(covey_send(flood->group, data, sizeof(data), NULL), 0);
        atomic_fetch_add(&flood->sent, 1);
    }
    return NULL;
}

/* 32 MiB of messages, of which the queues and rings hold a few. */
START_TEST(test_a_slow_callback_makes_senders_wait_and_nobody_leave)
{
    static const struct covey_group_callbacks slow = {.on_message = wait_at_gate};
    struct nodes nodes;
    struct gate gate = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    struct flood flood = {.wanted = 1024};
    struct covey_view before, after;
    pthread_t thread;
    size_t sent = SIZE_MAX;

    nodes_configure(&nodes, 2, "heartbeat = \"50ms\"; suspect_after = \"2s\";", "");
    told_open(&gate.told);
    nodes_open_one(&nodes, 0, 0, NULL, NULL);
    nodes_open_one(&nodes, 1, 0, &slow, &gate);
    nodes_wait(&nodes);
    ck_assert_int_eq(covey_view(nodes.group[0], &before), 0);
    pthread_mutex_lock(&gate.mutex);
    flood.group = nodes.group[0];
    ck_assert_int_eq(pthread_create(&thread, NULL, run_flood, &flood), 0);
    while (sent != atomic_load(&flood.sent) || sent == 0) {
        sent = atomic_load(&flood.sent);
        usleep(300000);
    }
    ck_assert_uint_lt(sent, 128);
    ck_assert_uint_eq(count_of(&gate.told, &gate.told.messages), 0);
    pthread_mutex_unlock(&gate.mutex);
    pthread_join(thread, NULL);
    wait_for(&gate.told, &gate.told.messages, 1024);
    ck_assert_int_eq(covey_view(nodes.group[0], &after), 0);
    ck_assert_uint_eq(after.number, before.number);
    covey_view_free(&before);
    covey_view_free(&after);
    nodes_close(&nodes);
    told_close(&gate.told);
}
END_TEST

START_TEST(test_a_driven_node_sends_and_does_not_wait_for_itself)
{
    struct nodes nodes;
    struct told told;
    char data[COVEY_MESSAGE_MAX] = {0};
    size_t sent = 0;
    int rc;

    nodes_configure(&nodes, 1, "", "");
    told_open(&told);
    nodes_open_one(&nodes, 0, COVEY_NODE_DRIVEN, &tell, &told);
    ck_assert_int_eq(covey_group_wait(nodes.group[0], WAIT_MS), 0);
    while ((rc = covey_send(nodes.group[0], data, sizeof(data), NULL)) == 0)
        sent++;
    ck_assert_int_eq(rc, COVEY_AGAIN);
    ck_assert_uint_ge(sent, 16);
    while (told.messages < sent)
        ck_assert_int_ge(covey_node_progress(nodes.node[0], 1000), 0);
    send_and_wait(nodes.group[0], "x", 1);
    nodes_close(&nodes);
    told_close(&told);
}
END_TEST

/* --- Members that are killed ---------------------------------------------------------------------------- */

#define KILL_MEMBERS 4
#define KILL_ROUNDS  6
#define LOG_ENTRIES  (1u << 16)
#define LAST         UINT32_MAX /* number of a message behind all others */

/* In memory that outlives the processes: what each delivered, in its order. */
struct log_entry {
    uint32_t sender, number;
    uint64_t sum;
};
struct member_log {
    atomic_uint count;
    atomic_uint sent; /* given to covey_send() and ended well */
    atomic_bool stop, done;
    struct log_entry entries[LOG_ENTRIES];
};

struct payload {
    uint32_t number;
    unsigned char bytes[200];
};

static void note_message(void *context, struct covey_group *group, uint32_t sender, const void *data,
                         size_t bytes)
{
    struct member_log *log = context;
    unsigned at = atomic_load(&log->count);
    struct payload payload = {0};

    (void)group;
    if (at == LOG_ENTRIES || bytes < sizeof(payload.number) || bytes > sizeof(payload))
        _exit(2);
    memcpy(&payload, data, bytes);
    log->entries[at] = (struct log_entry){sender, payload.number, bytes};
    for (size_t i = 0; i < bytes - sizeof(payload.number); i++)
        log->entries[at].sum = log->entries[at].sum * 31 + payload.bytes[i];
    atomic_store(&log->count, at + 1);
}

static void send_number(struct covey_group *group, struct member_log *log, uint32_t number)
{
    struct payload payload = {.number = number};
    size_t bytes = sizeof(number) + number * 7 % sizeof(payload.bytes);
    struct covey_op *op;

    pattern_fill(payload.bytes, sizeof(payload.bytes), number);
    if (covey_send(group, &payload, bytes, &op) != 0)
        _exit(3);
    if (covey_op_wait(op, number % 16 == 0 ? WAIT_MS : 0) == 0)
        atomic_store(&log->sent, number + 1);
    covey_op_free(op);
}

static void run_member(struct nodes *nodes, size_t i, struct member_log *log)
{
    static const struct covey_group_callbacks callbacks = {.on_message = note_message};
    uint32_t last = LAST;
    struct covey_op *op;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    nodes_open_one(nodes, i, 0, &callbacks, log);
    if (covey_group_wait(nodes->group[i], WAIT_MS) != 0)
        _exit(4);
    for (uint32_t number = 0; !atomic_load(&log->stop); number++)
        send_number(nodes->group[i], log, number);
    if (covey_send(nodes->group[i], &last, sizeof(last), &op) != 0 || covey_op_wait(op, WAIT_MS) != 0)
        _exit(5);
    atomic_store(&log->done, true);
    pause();
}

static void wait_for_count(const struct member_log *log, unsigned wanted)
{
    for (int waited_ms = 0; atomic_load(&log->count) < wanted; waited_ms++) {
        ck_assert_msg(waited_ms < WAIT_MS, "%u of %u delivered", atomic_load(&log->count), wanted);
        usleep(1000);
    }
}

/* What `shorter` delivered is where `longer`, a survivor, began. */
static void check_prefix(const struct member_log *shorter, const struct member_log *longer, const char *what)
{
    unsigned count = atomic_load(&shorter->count);

    ck_assert_msg(count <= atomic_load(&longer->count), "%s: it delivered more than the survivors", what);
    for (unsigned i = 0; i < count; i++) {
        const struct log_entry *a = &shorter->entries[i], *b = &longer->entries[i];

        ck_assert_msg(a->sender == b->sender && a->number == b->number && a->sum == b->sum,
                      "%s: at %u message %u of n%u, elsewhere %u of n%u", what, i, a->number, a->sender,
                      b->number, b->sender);
    }
}

/* Each sender's messages come in its order, without a gap, once. */
static void check_fifo(const struct member_log *log, uint32_t *next)
{
    memset(next, 0, KILL_MEMBERS * sizeof(*next));
    for (unsigned i = 0; i < atomic_load(&log->count); i++) {
        const struct log_entry *entry = &log->entries[i];

        if (entry->number == LAST)
            continue;
        ck_assert_uint_lt(entry->sender, KILL_MEMBERS);
        ck_assert_uint_eq(entry->number, next[entry->sender]);
        next[entry->sender]++;
    }
}

static void wait_until_done(struct member_log *logs, size_t killed)
{
    unsigned most = 0;

    for (size_t i = 0; i < KILL_MEMBERS; i++)
        atomic_store(&logs[i].stop, true);
    for (size_t i = 0; i < KILL_MEMBERS; i++) {
        for (int waited_ms = 0; i != killed && !atomic_load(&logs[i].done); waited_ms++) {
            ck_assert_msg(waited_ms < WAIT_MS, "n%zu does not come to its end", i);
            usleep(1000);
        }
    }
    for (size_t i = 0; i < KILL_MEMBERS; i++) {
        if (i != killed && atomic_load(&logs[i].count) > most)
            most = atomic_load(&logs[i].count);
    }
    for (size_t i = 0; i < KILL_MEMBERS; i++) {
        if (i != killed)
            wait_for_count(&logs[i], most);
    }
}

/* All send, one is killed in the midst of it, another one each time: what it delivered nobody has lost, and
 * the survivors go on with the same. */
START_TEST(test_a_killed_sender_has_delivered_what_the_survivors_deliver)
{
    size_t bytes = KILL_MEMBERS * sizeof(struct member_log), killed = (size_t)_i % KILL_MEMBERS;
    struct member_log *logs = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct member_log *survivor = &logs[(killed + 1) % KILL_MEMBERS];
    uint32_t next[KILL_MEMBERS];
    pid_t members[KILL_MEMBERS];
    struct nodes nodes;

    ck_assert_ptr_ne(logs, MAP_FAILED);
    nodes_configure(&nodes, KILL_MEMBERS, "heartbeat = \"50ms\"; suspect_after = \"2s\";", "");
    for (size_t i = 0; i < KILL_MEMBERS; i++) {
        members[i] = fork();
        ck_assert_int_ge(members[i], 0);
        if (members[i] == 0)
            run_member(&nodes, i, &logs[i]);
    }
    wait_for_count(&logs[killed], 100 + 150 * (unsigned)_i);
    ck_assert_int_eq(kill(members[killed], SIGKILL), 0);
    wait_for_count(&logs[(killed + 1) % KILL_MEMBERS], atomic_load(&logs[killed].count) + 200);
    wait_until_done(logs, killed);
    check_fifo(survivor, next);
    for (size_t i = 0; i < KILL_MEMBERS; i++) {
        check_prefix(&logs[i], survivor, i == killed ? "the killed one" : "a survivor");
        ck_assert_uint_ge(next[i], atomic_load(&logs[i].sent));
        kill(members[i], SIGKILL);
        waitpid(members[i], NULL, 0);
    }
    nodes_close(&nodes);
    munmap(logs, bytes);
}
END_TEST

SUITE_MAIN("send", 240, SUITE_TEST(test_all_members_are_told_the_same_in_the_same_order),
           SUITE_TEST(test_a_message_has_a_largest_size), SUITE_TEST(test_an_operation_tells_the_position),
           SUITE_TEST(test_a_version_is_told_of_before_it_can_be_read), SUITE_TEST(test_a_callback_may_send),
           SUITE_TEST(test_a_slow_callback_makes_senders_wait_and_nobody_leave),
           SUITE_TEST(test_a_driven_node_sends_and_does_not_wait_for_itself),
           SUITE_LOOP(test_a_killed_sender_has_delivered_what_the_survivors_deliver, KILL_ROUNDS))
