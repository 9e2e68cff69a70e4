/* SPDX-License-Identifier: BSD-3-Clause */
/* Several nodes' peers in one process, each at a loopback address of its own: real TCP, a fabric in memory.
 *
 * One loop runs them all. A test waits for a condition and nothing else; a clock decides only that it waited
 * too long. Where a test is about a time that runs out, it makes that time short. */

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "node/peers_private.h"
#include "node/tcp.h"
#include "tests/lib/fake_fabric.h"
#include "tests/lib/suite.h"

#define NODES_MAX 5
#define PORT      7400
#define PATIENCE  20 /* seconds */

static char cluster_name[] = "demo", other_cluster_name[] = "prod", provider[] = "tcp", group_name[] = "g";
static uint8_t secret[] = "sixteen bytes or more", other_secret[] = "sixteen bytes or less";

struct lines {
    char text[512][FAIL_TEXT_MAX];
    size_t count;
};

struct node {
    uint16_t id;
    struct covey_options options;
    struct node_options list[NODES_MAX];
    struct group_options group;
    uint64_t incarnation;
    uv_loop_t *loop;
    uv_poll_t watch; /* of the fabric */
    struct fabric *fabric;
    struct peers *peers;
    struct peers_callbacks callbacks;
    struct log log;
    struct lines lines;
    unsigned ups, downs, messages;
    char last_message[64];
    char last_down[FAIL_TEXT_MAX];
    bool closed, leave_on_up, send_on_up;
};

struct cluster {
    uv_loop_t loop;
    size_t count;
    struct node nodes[NODES_MAX];
};

/* --- A node --------------------------------------------------------------------------------------------- */

static void keep_line(void *context, enum covey_log_level level, const char *line)
{
    struct lines *lines = context;

    (void)level;
    if (lines->count < sizeof(lines->text) / sizeof(lines->text[0]))
        snprintf(lines->text[lines->count++], FAIL_TEXT_MAX, "%s", line);
}

static size_t logged(const struct node *node, const char *part)
{
    size_t count = 0;

    for (size_t i = 0; i < node->lines.count; i++)
        count += strstr(node->lines.text[i], part) != NULL;
    return count;
}

static void on_up(void *context, struct peer *peer)
{
    struct node *node = context;

    node->ups++;
    ck_assert(peer->up && peer->incarnation != 0);
    ck_assert_str_eq(peer->problem, "");
    if (node->send_on_up)
        ck_assert_int_eq(fabric_send(peer->links[FABRIC_CONTROL], "hello", 5), COVEY_OK);
    if (node->leave_on_up)
        peers_disconnect(node->peers, peer, COVEY_PROTOCOL, "a test does not like it");
}

static void on_down(void *context, struct peer *peer, int error, const char *text)
{
    struct node *node = context;

    ck_assert(!peer->up && error < 0 && text[0] != '\0');
    ck_assert(peer->links[FABRIC_CONTROL] != NULL && peer->links[FABRIC_DATA] != NULL);
    node->downs++;
    snprintf(node->last_down, sizeof(node->last_down), "%s", text);
}

static void on_event(void *context, struct peer *peer, enum fabric_lane lane,
                     const struct fabric_event *event)
{
    struct node *node = context;

    ck_assert(peer->up && peer->links[lane] == event->link);
    if (event->type == FABRIC_MESSAGE) {
        node->messages++;
        snprintf(node->last_message, sizeof(node->last_message), "%.*s", (int)event->bytes,
                 (const char *)event->data);
    }
}

static void poll_fabric(uv_poll_t *watch, int status, int events)
{
    struct node *node = watch->data;
    struct fabric_event list[4];
    size_t count;

    (void)status;
    (void)events;
    count = fabric_poll(node->fabric, list, sizeof(list) / sizeof(list[0]));
    for (size_t i = 0; i < count; i++)
        peers_fabric_event(node->peers, &list[i]);
}

static void set_address(struct node_options *node, uint32_t host, uint16_t port)
{
    struct sockaddr_in *in = (struct sockaddr_in *)&node->sockaddr;
    char text[64];

    memset(&node->sockaddr, 0, sizeof(node->sockaddr));
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = htonl(0x7f000000 | host);
    in->sin_port = htons(port);
    node->sockaddr_bytes = sizeof(*in);
    snprintf(text, sizeof(text), "%s:%u", inet_ntoa(in->sin_addr), port);
    free(node->address);
    node->address = strdup(text);
}

/* Addresses that are this process's alone: 127.high.low.id. */
static uint32_t own_host(uint16_t id)
{
    return ((uint32_t)getpid() & 0xffff) << 8 | (id + 1u);
}

static struct node_options make_node_options(uint16_t id)
{
    struct node_options node = {.id = id};
    char name[16];

    snprintf(name, sizeof(name), "n%u", id);
    node.name = strdup(name);
    set_address(&node, own_host(id), PORT);
    return node;
}

static void node_init(struct node *node, uv_loop_t *loop, uint16_t id, size_t count)
{
    *node = (struct node){.id = id, .loop = loop, .incarnation = 100 + id};
    for (uint16_t i = 0; i < count; i++)
        node->list[i] = make_node_options(i);
    node->group = (struct group_options){.name = group_name, .all = true, .keep_versions = 1};
    node->options = (struct covey_options){.cluster_name = cluster_name,
                                           .secret = secret,
                                           .secret_bytes = sizeof(secret),
                                           .heartbeat_ns = 100,
                                           .suspect_after_ns = 1000,
                                           .nodes = node->list,
                                           .node_count = count,
                                           .self = make_node_options(id),
                                           .elastic = id >= count,
                                           .provider = provider,
                                           .groups = &node->group,
                                           .group_count = 1};
    node->callbacks = (struct peers_callbacks){on_up, on_down, on_event};
    node->log = (struct log){keep_line, &node->lines, COVEY_LOG_DEBUG};
}

static int node_try_open(struct node *node, struct fail *fail)
{
    struct fabric_options options = {.provider = node->options.provider, .log = &node->log};
    int result;

    ck_assert_int_eq(fabric_open(&options, &node->fabric, fail), COVEY_OK);
    result = peers_open(node->loop, &node->options, node->incarnation, node->fabric, &node->log,
                        &node->callbacks, node, &node->peers, fail);
    if (result != COVEY_OK) {
        fabric_close(node->fabric);
        node->fabric = NULL;
        return result;
    }
    ck_assert_int_eq(uv_poll_init(node->loop, &node->watch, fabric_fd(node->fabric)), 0);
    node->watch.data = node;
    ck_assert_int_eq(uv_poll_start(&node->watch, UV_READABLE, poll_fabric), 0);
    node->closed = false;
    return COVEY_OK;
}

static void node_open(struct node *node)
{
    struct fail fail;

    ck_assert_msg(node_try_open(node, &fail) == COVEY_OK, "%s", fail.text);
}

static void on_closed(void *context)
{
    struct node *node = context;

    node->closed = true;
    node->peers = NULL;
}

static void node_close(struct node *node)
{
    if (node->peers == NULL)
        return;
    peers_close(node->peers, on_closed);
    while (!node->closed)
        uv_run(node->loop, UV_RUN_ONCE);
    ck_assert_uint_eq(fake_fabric_links(node->fabric), 0);
    ck_assert_uint_eq(node->ups, node->downs);
    uv_close((uv_handle_t *)&node->watch, NULL);
    uv_run(node->loop, UV_RUN_NOWAIT);
    fabric_close(node->fabric);
    node->fabric = NULL;
}

/* As the others see a kill: the kernel ends its connections, and nobody says anything. */
static void node_kill(struct node *node)
{
    for (struct conn *conn = node->peers->conns; conn != NULL; conn = conn->next)
        shutdown(conn->fd, SHUT_RDWR);
    fake_fabric_kill(node->fabric);
    node_close(node);
}

static void free_node_options(struct node_options *node)
{
    free(node->name);
    free(node->address);
}

static void node_fini(struct node *node)
{
    node_close(node);
    for (size_t i = 0; i < node->options.node_count; i++)
        free_node_options(&node->list[i]);
    free_node_options(&node->options.self);
}

/* --- A cluster ------------------------------------------------------------------------------------------ */

static struct cluster *cluster_new(size_t count)
{
    struct cluster *cluster = calloc(1, sizeof(*cluster));

    ck_assert_int_eq(uv_loop_init(&cluster->loop), 0);
    cluster->count = count;
    for (size_t i = 0; i < count; i++)
        node_init(&cluster->nodes[i], &cluster->loop, (uint16_t)i, count);
    return cluster;
}

static void cluster_open(struct cluster *cluster)
{
    for (size_t i = 0; i < cluster->count; i++)
        node_open(&cluster->nodes[i]);
}

static void cluster_free(struct cluster *cluster)
{
    for (size_t i = 0; i < NODES_MAX; i++)
        node_fini(&cluster->nodes[i]);
    while (uv_run(&cluster->loop, UV_RUN_NOWAIT) != 0)
        ;
    ck_assert_int_eq(uv_loop_close(&cluster->loop), 0);
    free(cluster);
}

static void wake(uv_timer_t *timer)
{
    (void)timer;
}

/* Run the loop until the condition holds. The timer only makes a loop without events look at it. */
#define WAIT(cluster, condition)                                                    \
    do {                                                                            \
        uv_timer_t timer_;                                                          \
        uint64_t end_ = uv_hrtime() + PATIENCE * UINT64_C(1000000000);              \
        uv_timer_init(&(cluster)->loop, &timer_);                                   \
        uv_timer_start(&timer_, wake, 10, 10);                                      \
        while (!(condition)) {                                                      \
            ck_assert_msg(uv_hrtime() < end_, "waited in vain for %s", #condition); \
            uv_run(&(cluster)->loop, UV_RUN_ONCE);                                  \
        }                                                                           \
        uv_close((uv_handle_t *)&timer_, NULL);                                     \
        uv_run(&(cluster)->loop, UV_RUN_NOWAIT);                                    \
    } while (0)

static bool is_up(const struct node *node, uint32_t id)
{
    return peers_find(node->peers, id) != NULL && peers_find(node->peers, id)->up;
}

static bool all_up(const struct cluster *cluster)
{
    for (size_t i = 0; i < cluster->count; i++) {
        for (uint32_t id = 0; id < cluster->count; id++) {
            if (id != i && !is_up(&cluster->nodes[i], id))
                return false;
        }
    }
    return true;
}

static bool problem_has(const struct node *node, uint32_t id, const char *part)
{
    return strstr(peers_find(node->peers, id)->problem, part) != NULL;
}

static const char *address_of(const struct cluster *cluster, uint32_t id)
{
    return cluster->nodes[id].options.self.address;
}

static int raw_connect(const struct node *node)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(
        connect(fd, (const struct sockaddr *)&node->options.self.sockaddr, node->options.self.sockaddr_bytes),
        0);
    return fd;
}

static bool has_ended(int fd)
{
    char bytes[4096];
    ssize_t count;

    do {
        count = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    } while (count > 0);
    return count == 0 || errno == ECONNRESET;
}

/* --- Up and down ---------------------------------------------------------------------------------------- */

START_TEST(test_all_pairs_come_up)
{
    struct cluster *cluster = cluster_new(4);

    cluster_open(cluster);
    WAIT(cluster, all_up(cluster));
    for (size_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(peers_count(cluster->nodes[i].peers), 3);
        ck_assert_uint_eq(cluster->nodes[i].ups, 3);
        ck_assert_uint_eq(peers_find(cluster->nodes[i].peers, (uint32_t)(i + 1) % 4)->incarnation,
                          100 + (i + 1) % 4);
        ck_assert_uint_eq(logged(&cluster->nodes[i], " is up"), 3);
    }
    ck_assert_uint_eq(peers_at(cluster->nodes[1].peers, 0)->id, 0);
    ck_assert_uint_eq(peers_at(cluster->nodes[1].peers, 2)->id, 3);
    ck_assert_ptr_null(peers_find(cluster->nodes[1].peers, 1));
    cluster_free(cluster);
}
END_TEST

/* What a node sends as soon as it is up is never lost, whatever the other end has heard by then. */
START_TEST(test_message_sent_at_once_arrives)
{
    struct cluster *cluster = cluster_new(3);

    for (size_t i = 0; i < 3; i++)
        cluster->nodes[i].send_on_up = true;
    cluster_open(cluster);
    for (size_t i = 0; i < 3; i++)
        WAIT(cluster, cluster->nodes[i].messages == 2);
    ck_assert_str_eq(cluster->nodes[0].last_message, "hello");
    cluster_free(cluster);
}
END_TEST

/* A peer is up only when both lanes are, at both ends. */
START_TEST(test_one_lane_is_not_up)
{
    struct cluster *cluster = cluster_new(2);
    enum fabric_lane lane = (enum fabric_lane)(_i % 2);
    struct node *slow = &cluster->nodes[_i / 2];

    cluster->nodes[0].send_on_up = cluster->nodes[1].send_on_up = true;
    cluster_open(cluster);
    fake_fabric_hold(slow->fabric, lane, true);
    WAIT(cluster, slow->peers->conns != NULL && slow->peers->conns->lanes[!lane].up);
    ck_assert(!is_up(&cluster->nodes[0], 1) && !is_up(&cluster->nodes[1], 0));
    fake_fabric_hold(slow->fabric, lane, false);
    WAIT(cluster, cluster->nodes[0].messages == 1 && cluster->nodes[1].messages == 1);
    cluster_free(cluster);
}
END_TEST

START_TEST(test_killed_peer_goes_down_and_comes_back)
{
    struct cluster *cluster = cluster_new(3);
    struct node *killed = &cluster->nodes[_i];

    cluster_open(cluster);
    WAIT(cluster, all_up(cluster));
    node_kill(killed);
    for (size_t i = 0; i < 3; i++) {
        if ((int)i != _i)
            WAIT(cluster, cluster->nodes[i].downs == 1);
    }
    killed->incarnation = 1000;
    killed->ups = killed->downs = 0;
    node_open(killed);
    WAIT(cluster, all_up(cluster));
    for (size_t i = 0; i < 3; i++) {
        if ((int)i != _i)
            ck_assert_uint_eq(peers_find(cluster->nodes[i].peers, (uint32_t)_i)->incarnation, 1000);
    }
    cluster_free(cluster);
}
END_TEST

START_TEST(test_disconnected_peer_is_dialed_again)
{
    struct cluster *cluster = cluster_new(2);
    struct node *node = &cluster->nodes[_i];

    cluster_open(cluster);
    WAIT(cluster, all_up(cluster));
    peers_disconnect(node->peers, peers_find(node->peers, !_i), COVEY_PROTOCOL, "a test does not like it");
    WAIT(cluster, node->downs == 1);
    ck_assert_ptr_nonnull(strstr(node->last_down, "was disconnected: a test does not like it"));
    WAIT(cluster, node->ups == 2 && all_up(cluster));
    cluster_free(cluster);
}
END_TEST

START_TEST(test_owner_may_disconnect_and_close_in_callbacks)
{
    struct cluster *cluster = cluster_new(2);

    cluster->nodes[0].leave_on_up = true;
    cluster->nodes[1].send_on_up = true;
    cluster_open(cluster);
    WAIT(cluster, cluster->nodes[0].downs == 3);
    ck_assert_uint_eq(cluster->nodes[0].messages, 0); /* an owner that has ended a peer hears no more of it */
    cluster_free(cluster);
}
END_TEST

/* The end of either lane alone takes the peer down. */
START_TEST(test_end_of_a_lane_takes_the_peer_down)
{
    struct cluster *cluster = cluster_new(2);
    struct peer *peer;

    cluster_open(cluster);
    WAIT(cluster, all_up(cluster));
    peer = peers_find(cluster->nodes[1].peers, 0);
    fabric_link_close(peer->links[_i]);
    WAIT(cluster, cluster->nodes[0].downs == 1 && cluster->nodes[1].downs == 1);
    WAIT(cluster, all_up(cluster));
    cluster_free(cluster);
}
END_TEST

/* --- Who is missing, and why ---------------------------------------------------------------------------- */

START_TEST(test_missing_node_is_told_once)
{
    struct cluster *cluster = cluster_new(2);
    struct node *node = &cluster->nodes[_i];
    char sentence[FAIL_TEXT_MAX];

    node_open(node);
    if (_i == 0) /* it waits to be dialed, and looks whether anyone is there */
        dial_schedule((struct entry *)peers_find(node->peers, 1), 0);
    snprintf(sentence, sizeof(sentence),
             "n%d (%s) does not answer: connection refused; is coveyd running there?", !_i,
             address_of(cluster, !_i));
    WAIT(cluster, strcmp(peers_find(node->peers, !_i)->problem, sentence) == 0);
    ck_assert_int_eq(peers_find(node->peers, !_i)->problem_code, COVEY_UNREACHABLE);
    if (_i == 1) { /* several tries, one line */
        struct entry *entry = (struct entry *)peers_find(node->peers, 0);
        WAIT(cluster, entry->backoff_ms >= 400);
    }
    ck_assert_uint_eq(logged(node, "does not answer"), 1);
    node_open(&cluster->nodes[!_i]);
    WAIT(cluster, all_up(cluster));
    cluster_free(cluster);
}
END_TEST

START_TEST(test_node_that_answers_but_does_not_connect_is_told)
{
    struct cluster *cluster = cluster_new(2);
    int fd;
    struct fail fail;
    struct node_options *there = &cluster->nodes[1].options.self;

    ck_assert_int_eq(tcp_listen(&there->sockaddr, there->sockaddr_bytes, there->address, &fd, &fail), 0);
    node_open(&cluster->nodes[0]);
    dial_schedule((struct entry *)peers_find(cluster->nodes[0].peers, 1), 0);
    WAIT(cluster, problem_has(&cluster->nodes[0], 1, "answers, but has not connected to this node"));
    close(fd);
    cluster_free(cluster);
}
END_TEST

/* A stopped process: its kernel takes connections, it says nothing. */
START_TEST(test_silent_node_is_told)
{
    struct cluster *cluster = cluster_new(2);
    int fd;
    struct fail fail;
    struct node_options *there = &cluster->nodes[0].options.self;

    ck_assert_int_eq(tcp_listen(&there->sockaddr, there->sockaddr_bytes, there->address, &fd, &fail), 0);
    node_open(&cluster->nodes[1]);
    cluster->nodes[1].peers->timing.handshake = 50;
    WAIT(cluster, problem_has(&cluster->nodes[1], 0, "takes the connection but says nothing"));
    close(fd);
    cluster_free(cluster);
}
END_TEST

START_TEST(test_another_secret_is_told_by_both)
{
    struct cluster *cluster = cluster_new(2);

    cluster->nodes[1].options.secret = other_secret;
    cluster_open(cluster);
    WAIT(cluster, problem_has(&cluster->nodes[0], 1, "does not prove this cluster's secret"));
    WAIT(cluster, problem_has(&cluster->nodes[1], 0, "does not prove this cluster's secret"));
    ck_assert_int_eq(peers_find(cluster->nodes[0].peers, 1)->problem_code, COVEY_PEER_SECRET);
    ck_assert_int_eq(peers_find(cluster->nodes[1].peers, 0)->problem_code, COVEY_PEER_SECRET);
    ck_assert_uint_eq(logged(&cluster->nodes[0], "compare secret_file on both nodes"), 1);
    ck_assert_uint_eq(logged(&cluster->nodes[1], "compare secret_file on both nodes"), 1);
    ck_assert_uint_eq(cluster->nodes[0].ups, 0);
    cluster_free(cluster);
}
END_TEST

START_TEST(test_other_configuration_is_told_by_both)
{
    static const char *const parts[] = {"differ in: cluster;", "differ in: groups;"};
    struct cluster *cluster = cluster_new(2);

    if (_i == 0)
        cluster->nodes[1].options.heartbeat_ns++;
    else
        cluster->nodes[1].group.keep_versions++;
    cluster_open(cluster);
    for (size_t i = 0; i < 2; i++) {
        WAIT(cluster, problem_has(&cluster->nodes[i], !i, parts[_i]));
        ck_assert_int_eq(peers_find(cluster->nodes[i].peers, !i)->problem_code, COVEY_PEER_CONFIG);
        ck_assert_uint_eq(cluster->nodes[i].ups, 0);
    }
    cluster_free(cluster);
}
END_TEST

START_TEST(test_other_cluster_is_told_by_both)
{
    struct cluster *cluster = cluster_new(2);

    cluster->nodes[1].options.cluster_name = other_cluster_name;
    cluster_open(cluster);
    for (size_t i = 0; i < 2; i++)
        WAIT(cluster,
             problem_has(&cluster->nodes[i], !i, "n1 is of cluster \"prod\", n0 of cluster \"demo\""));
    cluster_free(cluster);
}
END_TEST

START_TEST(test_links_that_do_not_come_up_are_told)
{
    struct cluster *cluster = cluster_new(2);

    cluster_open(cluster);
    fake_fabric_hold(cluster->nodes[0].fabric, FABRIC_DATA, true);
    cluster->nodes[0].peers->timing.link = 50;
    WAIT(cluster,
         cluster->nodes[0].peers->conns != NULL && cluster->nodes[0].peers->conns->state == CONN_CLOSING);
    fake_fabric_hold(cluster->nodes[0].fabric, FABRIC_DATA, false);
    WAIT(cluster, logged(&cluster->nodes[0], "its fabric links did not come up in 50 ms") == 1);
    cluster->nodes[0].peers->timing.link = 10000;
    WAIT(cluster, all_up(cluster));
    cluster_free(cluster);
}
END_TEST

START_TEST(test_fabric_that_cannot_take_a_link_is_told)
{
    struct cluster *cluster = cluster_new(2);

    node_open(&cluster->nodes[0]);
    fake_fabric_fail_next(cluster->nodes[0].fabric);
    node_open(&cluster->nodes[1]);
    WAIT(cluster, logged(&cluster->nodes[1], "refuses this node: n0 cannot take a link") == 1);
    WAIT(cluster, all_up(cluster));
    fake_fabric_fail_next(cluster->nodes[1].fabric);
    peers_disconnect(cluster->nodes[1].peers, peers_find(cluster->nodes[1].peers, 0), COVEY_PROTOCOL, "x");
    WAIT(cluster, logged(&cluster->nodes[1], "cannot be reached by the fabric") == 1);
    WAIT(cluster, all_up(cluster));
    cluster_free(cluster);
}
END_TEST

/* --- Elastic nodes, and ids that are taken ----------------------------------------------------------------
 */

/* A node that is not in the others' list, beside a cluster of two. */
static struct node *add_elastic(struct cluster *cluster, size_t slot, uint16_t id)
{
    struct node *node = &cluster->nodes[slot];

    node_init(node, &cluster->loop, id, 2);
    node->incarnation = 1000 + slot;
    set_address(&node->options.self, own_host((uint16_t)(100 + slot)), PORT);
    return node;
}

START_TEST(test_elastic_node_dials_all)
{
    struct cluster *cluster = cluster_new(2);
    struct node *elastic = add_elastic(cluster, 2, 9);
    struct peer *peer;

    cluster_open(cluster);
    node_open(elastic);
    WAIT(cluster, all_up(cluster) && is_up(elastic, 0) && is_up(elastic, 1));
    WAIT(cluster, is_up(&cluster->nodes[0], 9) && is_up(&cluster->nodes[1], 9));
    peer = peers_find(cluster->nodes[0].peers, 9);
    ck_assert_ptr_null(peer->options);
    ck_assert_str_eq(peer->name, "n9");
    ck_assert_str_eq(peer->address, elastic->options.self.address);
    ck_assert_ptr_eq(peers_at(cluster->nodes[0].peers, 1), peer);
    node_close(elastic);
    WAIT(cluster, !peer->up);
    cluster_free(cluster);
}
END_TEST

START_TEST(test_second_process_with_an_id_that_lives_is_refused)
{
    struct cluster *cluster = cluster_new(2);
    struct node *first = add_elastic(cluster, 2, 9), *second = add_elastic(cluster, 3, 9);
    char sentence[FAIL_TEXT_MAX];

    cluster_open(cluster);
    node_open(first);
    WAIT(cluster, is_up(&cluster->nodes[0], 9) && is_up(&cluster->nodes[1], 9));
    node_open(second);
    snprintf(sentence, sizeof(sentence), "two processes run as node 9: n9 at %s came while n9 at %s is up",
             second->options.self.address, first->options.self.address);
    WAIT(cluster, problem_has(second, 0, sentence) && problem_has(second, 1, sentence));
    ck_assert_int_eq(peers_find(second->peers, 0)->problem_code, COVEY_EXISTS);
    ck_assert_uint_eq(logged(&cluster->nodes[0], sentence), 1);
    ck_assert_uint_eq(second->ups, 0);
    ck_assert_uint_eq(cluster->nodes[0].downs, 0);
    /* when the first has gone, the second is taken */
    node_close(first);
    WAIT(cluster, is_up(second, 0) && is_up(second, 1));
    ck_assert_uint_eq(peers_find(cluster->nodes[0].peers, 9)->incarnation, second->incarnation);
    cluster_free(cluster);
}
END_TEST

/* The first process is stopped: it does not answer, and the second takes its place. */
START_TEST(test_second_process_replaces_one_that_does_not_answer)
{
    struct cluster *cluster = cluster_new(2);
    struct node *first = add_elastic(cluster, 2, 9), *second = add_elastic(cluster, 3, 9);
    uv_loop_t other_loop;
    bool up = false;

    cluster_open(cluster);
    cluster->nodes[0].peers->timing.probe = cluster->nodes[1].peers->timing.probe = 50;
    ck_assert_int_eq(uv_loop_init(&other_loop), 0);
    first->loop = &other_loop; /* which can be left to itself */
    node_open(first);
    while (!up) {
        uv_run(&other_loop, UV_RUN_NOWAIT);
        uv_run(&cluster->loop, UV_RUN_NOWAIT);
        up = is_up(&cluster->nodes[0], 9) && is_up(&cluster->nodes[1], 9) && is_up(first, 0) &&
             is_up(first, 1);
    }
    node_open(second);
    WAIT(cluster, is_up(second, 0) && is_up(second, 1));
    ck_assert_uint_eq(logged(&cluster->nodes[0], "does not answer, and another process takes its place"), 1);
    ck_assert_uint_eq(cluster->nodes[0].downs, 1);
    node_close(first);
    ck_assert_int_eq(uv_loop_close(&other_loop), 0);
    cluster_free(cluster);
}
END_TEST

START_TEST(test_elastic_node_with_a_listed_id_or_name_is_refused)
{
    struct cluster *cluster = cluster_new(2);
    struct node *elastic = add_elastic(cluster, 2, _i == 0 ? 1 : 9);

    if (_i == 0) {
        elastic->options.elastic = true;
    } else {
        free(elastic->options.self.name);
        elastic->options.self.name = strdup("n1");
    }
    node_open(&cluster->nodes[0]);
    node_open(elastic);
    WAIT(cluster,
         problem_has(elastic, 0, _i == 0 ? "has id 1, which is n1's there" : "is called n1 as node 1"));
    ck_assert_uint_eq(elastic->ups, 0);
    cluster_free(cluster);
}
END_TEST

/* A node that believes to be in the list, and is not in that of the others. */
START_TEST(test_unknown_id_is_told_by_both)
{
    struct cluster *cluster = cluster_new(2);
    struct node *stranger = &cluster->nodes[2];

    node_init(stranger, &cluster->loop, 2, 3);
    cluster_open(cluster);
    node_open(stranger);
    for (uint32_t id = 0; id < 2; id++) {
        WAIT(cluster, problem_has(stranger, id, "node 2 (n2) is not in the list of nodes of n"));
        WAIT(cluster, logged(&cluster->nodes[id], "n2 (") >= 1);
        ck_assert_uint_eq(logged(&cluster->nodes[id], "is refused: node 2 (n2) is not in the list"), 1);
    }
    cluster_free(cluster);
}
END_TEST

START_TEST(test_second_process_with_this_nodes_id_is_refused)
{
    struct cluster *cluster = cluster_new(2);
    struct node *twin = &cluster->nodes[2];

    node_init(twin, &cluster->loop, 0, 2);
    twin->incarnation = 5000;
    set_address(&twin->options.self, own_host(50), PORT);
    twin->options.self.id = 1; /* it dials node 0, whose id it then says it has */
    node_open(&cluster->nodes[0]);
    node_open(twin);
    twin->peers->local.self.id = 0;
    WAIT(cluster, logged(&cluster->nodes[0], "two processes run as node 0") == 1);
    WAIT(cluster, logged(twin, "two processes run as node 0") >= 1);
    cluster_free(cluster);
}
END_TEST

/* --- The listener --------------------------------------------------------------------------------------- */

START_TEST(test_port_in_use_names_the_process)
{
    struct cluster *cluster = cluster_new(1);
    struct node *second = &cluster->nodes[1];
    char sentence[FAIL_TEXT_MAX];
    struct fail fail;

    node_open(&cluster->nodes[0]);
    node_init(second, &cluster->loop, 0, 1);
    ck_assert_int_eq(node_try_open(second, &fail), COVEY_BUSY);
    snprintf(sentence, sizeof(sentence), "cannot listen at %s: process %ld (", address_of(cluster, 0),
             (long)getpid());
    ck_assert_msg(strstr(fail.text, sentence) == fail.text, "%s", fail.text);
    cluster_free(cluster);
}
END_TEST

START_TEST(test_address_of_another_host_is_refused)
{
    struct cluster *cluster = cluster_new(1);
    struct sockaddr_in *in = (struct sockaddr_in *)&cluster->nodes[0].options.self.sockaddr;
    struct fail fail;

    in->sin_addr.s_addr = htonl(0xc0000201); /* 192.0.2.1, for documentation */
    ck_assert_int_eq(node_try_open(&cluster->nodes[0], &fail), COVEY_CONFIG);
    ck_assert_ptr_nonnull(strstr(fail.text, "is not an address of this host"));
    cluster_free(cluster);
}
END_TEST

/* The listener's end of open connections, and of closed ones, does not keep the port. */
START_TEST(test_restart_listens_at_once)
{
    struct cluster *cluster = cluster_new(2);

    cluster_open(cluster);
    cluster->nodes[1].peers->timing.backoff_max = 20; /* a peer that is never up for long waits longer */
    for (int i = 0; i < 20; i++) {
        WAIT(cluster, all_up(cluster));
        node_kill(&cluster->nodes[0]);
        cluster->nodes[0].incarnation++;
        cluster->nodes[0].ups = cluster->nodes[0].downs = 0;
        node_open(&cluster->nodes[0]);
    }
    WAIT(cluster, all_up(cluster));
    cluster_free(cluster);
}
END_TEST

START_TEST(test_garbage_is_told_once_and_ends)
{
    static const char http[] = "GET /metrics HTTP/1.1\r\n\r\n";
    struct cluster *cluster = cluster_new(2);
    struct node *node = &cluster->nodes[0];

    cluster_open(cluster);
    WAIT(cluster, all_up(cluster));
    for (int i = 0; i < 3; i++) {
        int fd = raw_connect(node);
        ck_assert_int_eq(send(fd, http, sizeof(http) - 1, MSG_NOSIGNAL), sizeof(http) - 1);
        WAIT(cluster, has_ended(fd));
        close(fd);
    }
    ck_assert_uint_eq(logged(node, "127.0.0.1 is not a Covey node: it begins with \"GET /met\""), 1);
    ck_assert(all_up(cluster));
    ck_assert_uint_eq(node->downs, 0);
    cluster_free(cluster);
}
END_TEST

/* A port scanner, a health check: nothing is said, nothing is logged for an operator. */
START_TEST(test_connection_that_says_nothing_is_not_worth_a_warning)
{
    struct cluster *cluster = cluster_new(1);
    struct node *node = &cluster->nodes[0];
    int fd;

    node->log.level = COVEY_LOG_WARNING;
    node_open(node);
    fd = raw_connect(node);
    WAIT(cluster, node->peers->conns != NULL);
    close(fd);
    WAIT(cluster, node->peers->conns == NULL);
    ck_assert_uint_eq(node->lines.count, 0);
    cluster_free(cluster);
}
END_TEST

START_TEST(test_slow_handshake_ends)
{
    struct cluster *cluster = cluster_new(1);
    struct node *node = &cluster->nodes[0];
    int fd;

    node_open(node);
    node->peers->timing.handshake = 50;
    fd = raw_connect(node);
    ck_assert_int_eq(send(fd, "COVEY", 5, MSG_NOSIGNAL), 5);
    WAIT(cluster, has_ended(fd));
    ck_assert_uint_eq(logged(node, "127.0.0.1 was too slow: 50 ms passed before it said what it is"), 1);
    close(fd);
    cluster_free(cluster);
}
END_TEST

/* More half-open connections than are kept: they cannot keep a node out, and their number is bounded. */
START_TEST(test_half_open_flood_does_not_keep_nodes_out)
{
    struct cluster *cluster = cluster_new(2);
    struct node *node = &cluster->nodes[0];
    int fds[3 * PEERS_HALF_OPEN_MAX];
    size_t kept = 0;

    node_open(node);
    node->peers->timing.half_open_grace = 20;
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        fds[i] = raw_connect(node);
    node_open(&cluster->nodes[1]);
    WAIT(cluster, all_up(cluster));
    for (const struct conn *conn = node->peers->conns; conn != NULL; conn = conn->next)
        kept += conn_is_half_open(conn);
    ck_assert_uint_le(kept, PEERS_HALF_OPEN_MAX);
    ck_assert_uint_eq(logged(node, "connections prove nothing"), 1);
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        close(fds[i]);
    cluster_free(cluster);
}
END_TEST

/* Without descriptors nothing can be accepted; when there are some again, it goes on. */
START_TEST(test_lack_of_descriptors_passes)
{
    struct cluster *cluster = cluster_new(2);
    struct node *node = &cluster->nodes[0];
    struct rlimit limit, low;
    int fd;

    node_open(node);
    fd = raw_connect(node);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = (rlim_t)fd;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    node->peers->timing.half_open_grace = 20;
    WAIT(cluster, logged(node, "raise the limit of open files (nofile)") == 1);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    close(fd);
    node_open(&cluster->nodes[1]);
    WAIT(cluster, all_up(cluster));
    cluster_free(cluster);
}
END_TEST

/* --- What the process keeps of its own --------------------------------------------------------------------
 */

static void on_signal(int number)
{
    (void)number;
}

/* Interrupted calls, dead peers: no effect, and no disposition is changed. */
START_TEST(test_signals_are_the_applications)
{
    struct cluster *cluster = cluster_new(3);
    struct sigaction action = {.sa_handler = on_signal}, pipe_action;
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};

    ck_assert_int_eq(sigaction(SIGPIPE, NULL, &pipe_action), 0);
    ck_assert_ptr_eq(pipe_action.sa_handler, SIG_DFL);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    cluster_open(cluster);
    WAIT(cluster, all_up(cluster));
    node_kill(&cluster->nodes[1]);
    WAIT(cluster, cluster->nodes[0].downs == 1 && cluster->nodes[2].downs == 1);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGPIPE, NULL, &pipe_action);
    ck_assert_ptr_eq(pipe_action.sa_handler, SIG_DFL);
    cluster_free(cluster);
}
END_TEST

START_TEST(test_descriptors_do_not_reach_children)
{
    struct cluster *cluster = cluster_new(2);

    cluster_open(cluster);
    WAIT(cluster, all_up(cluster));
    for (const struct conn *conn = cluster->nodes[0].peers->conns; conn != NULL; conn = conn->next)
        ck_assert_int_ne(fcntl(conn->fd, F_GETFD) & FD_CLOEXEC, 0);
    ck_assert_int_ne(fcntl(cluster->nodes[0].peers->listener, F_GETFD) & FD_CLOEXEC, 0);
    cluster_free(cluster);
}
END_TEST

START_TEST(test_connections_come_from_the_configured_address)
{
    struct cluster *cluster = cluster_new(2);
    struct sockaddr_storage from;
    socklen_t bytes = sizeof(from);

    cluster_open(cluster);
    WAIT(cluster, all_up(cluster));
    ck_assert_int_eq(getpeername(cluster->nodes[0].peers->conns->fd, (struct sockaddr *)&from, &bytes), 0);
    ck_assert(tcp_same_host(&from, &cluster->nodes[1].options.self.sockaddr));
    cluster_free(cluster);
}
END_TEST

START_TEST(test_close_in_any_state_frees_everything)
{
    struct cluster *cluster = cluster_new(3);

    cluster_open(cluster);
    for (int turn = 0; turn < _i; turn++)
        uv_run(&cluster->loop, UV_RUN_NOWAIT);
    cluster_free(cluster);
}
END_TEST

SUITE_MAIN(
    "peers", 60, SUITE_TEST(test_all_pairs_come_up), SUITE_TEST(test_message_sent_at_once_arrives),
    SUITE_LOOP(test_one_lane_is_not_up, 4), SUITE_LOOP(test_killed_peer_goes_down_and_comes_back, 3),
    SUITE_LOOP(test_disconnected_peer_is_dialed_again, 2),
    SUITE_TEST(test_owner_may_disconnect_and_close_in_callbacks),
    SUITE_LOOP(test_end_of_a_lane_takes_the_peer_down, 2), SUITE_LOOP(test_missing_node_is_told_once, 2),
    SUITE_TEST(test_node_that_answers_but_does_not_connect_is_told), SUITE_TEST(test_silent_node_is_told),
    SUITE_TEST(test_another_secret_is_told_by_both), SUITE_LOOP(test_other_configuration_is_told_by_both, 2),
    SUITE_TEST(test_other_cluster_is_told_by_both), SUITE_TEST(test_links_that_do_not_come_up_are_told),
    SUITE_TEST(test_fabric_that_cannot_take_a_link_is_told), SUITE_TEST(test_elastic_node_dials_all),
    SUITE_TEST(test_second_process_with_an_id_that_lives_is_refused),
    SUITE_TEST(test_second_process_replaces_one_that_does_not_answer),
    SUITE_LOOP(test_elastic_node_with_a_listed_id_or_name_is_refused, 2),
    SUITE_TEST(test_unknown_id_is_told_by_both),
    SUITE_TEST(test_second_process_with_this_nodes_id_is_refused),
    SUITE_TEST(test_port_in_use_names_the_process), SUITE_TEST(test_address_of_another_host_is_refused),
    SUITE_TEST(test_restart_listens_at_once), SUITE_TEST(test_garbage_is_told_once_and_ends),
    SUITE_TEST(test_connection_that_says_nothing_is_not_worth_a_warning),
    SUITE_TEST(test_slow_handshake_ends), SUITE_TEST(test_half_open_flood_does_not_keep_nodes_out),
    SUITE_TEST(test_lack_of_descriptors_passes), SUITE_TEST(test_signals_are_the_applications),
    SUITE_TEST(test_descriptors_do_not_reach_children),
    SUITE_TEST(test_connections_come_from_the_configured_address),
    SUITE_LOOP(test_close_in_any_state_frees_everything, 30))
