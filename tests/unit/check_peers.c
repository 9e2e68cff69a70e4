/* SPDX-License-Identifier: BSD-3-Clause */
/* Several nodes' peers in one process: real TCP, a fabric in memory. Where a test is about a time that runs
 * out, it makes that time short. */

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "node/tcp.h"
#include "tests/lib/fake_fabric.h"
#include "tests/lib/handshake_forge.h"
#include "tests/lib/peers_lab.h"
#include "tests/lib/suite.h"

static char other_cluster_name[] = "prod";
static uint8_t other_secret[] = "sixteen bytes or less";

/* As the others see a kill: the kernel ends its connections, and nobody says anything. */
static void kill_node(struct lab_node *node)
{
    for (struct conn *conn = node->peers->conns; conn != NULL; conn = conn->next)
        shutdown(conn->fd, SHUT_RDWR);
    fake_fabric_kill(node->fabric);
    lab_node_close(node);
    node->ups = node->downs = 0;
}

static const char *address_of(const struct lab *lab, uint32_t id)
{
    return lab->nodes[id].options.self.address;
}

/* --- Up and down ---------------------------------------------------------------------------------------- */

START_TEST(test_all_pairs_come_up)
{
    struct lab *lab = lab_new(4);

    lab_open(lab);
    LAB_WAIT(lab, lab_all_up(lab));
    for (size_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(peers_count(lab->nodes[i].peers), 3);
        ck_assert_uint_eq(lab->nodes[i].ups, 3);
        ck_assert_uint_eq(peers_find(lab->nodes[i].peers, (uint32_t)(i + 1) % 4)->incarnation,
                          100 + (i + 1) % 4);
        ck_assert_uint_eq(lab_logged(&lab->nodes[i], " is up"), 3);
    }
    ck_assert_uint_eq(peers_at(lab->nodes[1].peers, 0)->id, 0);
    ck_assert_uint_eq(peers_at(lab->nodes[1].peers, 2)->id, 3);
    ck_assert_ptr_null(peers_find(lab->nodes[1].peers, 1));
    lab_free(lab);
}
END_TEST

/* What a node sends as soon as it is up is never lost, whatever the other end has heard by then. */
START_TEST(test_message_sent_at_once_arrives)
{
    struct lab *lab = lab_new(3);

    for (size_t i = 0; i < 3; i++)
        lab->nodes[i].send_on_up = true;
    lab_open(lab);
    for (size_t i = 0; i < 3; i++)
        LAB_WAIT(lab, lab->nodes[i].messages == 2);
    ck_assert_str_eq(lab->nodes[0].last_message, "hello");
    lab_free(lab);
}
END_TEST

/* A peer is up only when both lanes are, at both ends. */
START_TEST(test_one_lane_is_not_up)
{
    struct lab *lab = lab_new(2);
    enum fabric_lane lane = (enum fabric_lane)(_i % 2);
    struct lab_node *slow = &lab->nodes[_i / 2];

    lab->nodes[0].send_on_up = lab->nodes[1].send_on_up = true;
    lab_open(lab);
    fake_fabric_hold(slow->fabric, lane, true);
    LAB_WAIT(lab, slow->peers->conns != NULL && slow->peers->conns->lanes[!lane].up);
    ck_assert(!lab_is_up(&lab->nodes[0], 1) && !lab_is_up(&lab->nodes[1], 0));
    fake_fabric_hold(slow->fabric, lane, false);
    LAB_WAIT(lab, lab->nodes[0].messages == 1 && lab->nodes[1].messages == 1);
    lab_free(lab);
}
END_TEST

START_TEST(test_killed_peer_goes_down_and_comes_back)
{
    struct lab *lab = lab_new(3);
    struct lab_node *killed = &lab->nodes[_i];

    lab_open(lab);
    LAB_WAIT(lab, lab_all_up(lab));
    kill_node(killed);
    for (size_t i = 0; i < 3; i++) {
        if ((int)i != _i)
            LAB_WAIT(lab, lab->nodes[i].downs == 1);
    }
    killed->incarnation = 1000;
    lab_node_open(killed);
    LAB_WAIT(lab, lab_all_up(lab));
    for (size_t i = 0; i < 3; i++) {
        if ((int)i != _i)
            ck_assert_uint_eq(peers_find(lab->nodes[i].peers, (uint32_t)_i)->incarnation, 1000);
    }
    lab_free(lab);
}
END_TEST

START_TEST(test_disconnected_peer_is_dialed_again)
{
    struct lab *lab = lab_new(2);
    struct lab_node *node = &lab->nodes[_i];

    lab_open(lab);
    LAB_WAIT(lab, lab_all_up(lab));
    peers_disconnect(node->peers, peers_find(node->peers, !_i), COVEY_PROTOCOL, "a test does not like it");
    LAB_WAIT(lab, node->downs == 1);
    ck_assert_ptr_nonnull(strstr(node->last_down, "was disconnected: a test does not like it"));
    LAB_WAIT(lab, node->ups == 2 && lab_all_up(lab));
    lab_free(lab);
}
END_TEST

START_TEST(test_owner_may_disconnect_and_close_in_callbacks)
{
    struct lab *lab = lab_new(2);

    lab->nodes[0].disconnect_on_up = true;
    lab->nodes[1].send_on_up = true;
    lab_open(lab);
    LAB_WAIT(lab, lab->nodes[0].downs == 3);
    ck_assert_uint_eq(lab->nodes[0].messages, 0); /* an owner that has ended a peer hears no more of it */
    lab_free(lab);
}
END_TEST

/* The end of either lane alone takes the peer down. */
START_TEST(test_end_of_a_lane_takes_the_peer_down)
{
    struct lab *lab = lab_new(2);
    struct peer *peer;

    lab_open(lab);
    LAB_WAIT(lab, lab_all_up(lab));
    peer = peers_find(lab->nodes[1].peers, 0);
    fabric_link_close(peer->links[_i]);
    LAB_WAIT(lab, lab->nodes[0].downs == 1 && lab->nodes[1].downs == 1);
    LAB_WAIT(lab, lab_all_up(lab));
    lab_free(lab);
}
END_TEST

/* --- Who is missing, and why ---------------------------------------------------------------------------- */

START_TEST(test_missing_node_is_told_once)
{
    struct lab *lab = lab_new(2);
    struct lab_node *node = &lab->nodes[_i];
    char sentence[FAIL_TEXT_MAX];

    lab_node_open(node);
    if (_i == 0) /* it waits to be dialed, and looks whether anyone is there */
        dial_schedule((struct entry *)peers_find(node->peers, 1), 0);
    snprintf(sentence, sizeof(sentence),
             "n%d (%s) does not answer: connection refused; is coveyd running there?", !_i,
             address_of(lab, !_i));
    LAB_WAIT(lab, strcmp(peers_find(node->peers, !_i)->problem, sentence) == 0);
    ck_assert_int_eq(peers_find(node->peers, !_i)->problem_code, COVEY_UNREACHABLE);
    if (_i == 1) { /* several tries, one line */
        struct entry *entry = (struct entry *)peers_find(node->peers, 0);
        LAB_WAIT(lab, entry->backoff_ms >= 400);
    }
    ck_assert_uint_eq(lab_logged(node, "does not answer"), 1);
    lab_node_open(&lab->nodes[!_i]);
    LAB_WAIT(lab, lab_all_up(lab));
    lab_free(lab);
}
END_TEST

START_TEST(test_node_that_answers_but_does_not_connect_is_told)
{
    struct lab *lab = lab_new(2);
    int fd;
    struct fail fail;
    struct node_options *there = &lab->nodes[1].options.self;

    ck_assert_int_eq(tcp_listen(&there->sockaddr, there->sockaddr_bytes, there->address, &fd, &fail), 0);
    lab_node_open(&lab->nodes[0]);
    dial_schedule((struct entry *)peers_find(lab->nodes[0].peers, 1), 0);
    LAB_WAIT(lab, lab_problem_has(&lab->nodes[0], 1, "answers, but has not connected to this node"));
    close(fd);
    lab_free(lab);
}
END_TEST

/* A stopped process: its kernel takes connections, it says nothing. */
START_TEST(test_silent_node_is_told)
{
    struct lab *lab = lab_new(2);
    int fd;
    struct fail fail;
    struct node_options *there = &lab->nodes[0].options.self;

    ck_assert_int_eq(tcp_listen(&there->sockaddr, there->sockaddr_bytes, there->address, &fd, &fail), 0);
    lab_node_open(&lab->nodes[1]);
    lab->nodes[1].peers->timing.handshake = 50;
    LAB_WAIT(lab, lab_problem_has(&lab->nodes[1], 0, "takes the connection but says nothing"));
    close(fd);
    lab_free(lab);
}
END_TEST

/* Packets that go nowhere: here into a queue that is full. */
START_TEST(test_host_that_does_not_answer_is_told)
{
    struct lab *lab = lab_new(2);
    const struct node_options *there = &lab->nodes[0].options.self;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1, fd;

    ck_assert_int_eq(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    ck_assert_int_eq(bind(listener, (const struct sockaddr *)&there->sockaddr, there->sockaddr_bytes), 0);
    ck_assert_int_eq(listen(listener, 0), 0);
    fd = lab_connect(&lab->nodes[0]);
    lab_node_open(&lab->nodes[1]);
    lab->nodes[1].peers->timing.connect = 50;
    LAB_WAIT(lab, lab_problem_has(&lab->nodes[1], 0, "does not answer: timed out; is the host up"));
    close(fd);
    close(listener);
    lab_free(lab);
}
END_TEST

START_TEST(test_address_that_cannot_be_reached_is_told)
{
    struct lab *lab = lab_new(2);
    struct sockaddr_in *in = (struct sockaddr_in *)&lab->nodes[1].list[0].sockaddr;

    in->sin_addr.s_addr = htonl(0xc0000201); /* 192.0.2.1, from a loopback address */
    lab_node_open(&lab->nodes[1]);
    LAB_WAIT(lab, lab_problem_has(&lab->nodes[1], 0, "cannot be reached: "));
    ck_assert_int_eq(peers_find(lab->nodes[1].peers, 0)->problem_code, COVEY_UNREACHABLE);
    lab_free(lab);
}
END_TEST

START_TEST(test_another_secret_is_told_by_both)
{
    struct lab *lab = lab_new(2);

    lab->nodes[1].options.secret = other_secret;
    lab_open(lab);
    LAB_WAIT(lab, lab_problem_has(&lab->nodes[0], 1, "does not prove this cluster's secret"));
    LAB_WAIT(lab, lab_problem_has(&lab->nodes[1], 0, "does not prove this cluster's secret"));
    ck_assert_int_eq(peers_find(lab->nodes[0].peers, 1)->problem_code, COVEY_PEER_SECRET);
    ck_assert_int_eq(peers_find(lab->nodes[1].peers, 0)->problem_code, COVEY_PEER_SECRET);
    ck_assert_uint_eq(lab_logged(&lab->nodes[0], "compare secret_file on both nodes"), 1);
    ck_assert_uint_eq(lab_logged(&lab->nodes[1], "compare secret_file on both nodes"), 1);
    ck_assert_uint_eq(lab->nodes[0].ups, 0);
    lab_free(lab);
}
END_TEST

START_TEST(test_other_configuration_is_told_by_both)
{
    static const char *const parts[] = {"differ in: cluster;", "differ in: groups;"};
    struct lab *lab = lab_new(2);

    if (_i == 0)
        lab->nodes[1].options.heartbeat_ns *= 2;
    else
        lab->nodes[1].group.keep_versions++;
    lab_open(lab);
    for (size_t i = 0; i < 2; i++) {
        LAB_WAIT(lab, lab_problem_has(&lab->nodes[i], !i, parts[_i]));
        ck_assert_int_eq(peers_find(lab->nodes[i].peers, !i)->problem_code, COVEY_PEER_CONFIG);
        ck_assert_uint_eq(lab->nodes[i].ups, 0);
    }
    lab_free(lab);
}
END_TEST

START_TEST(test_other_cluster_is_told_by_both)
{
    struct lab *lab = lab_new(2);

    lab->nodes[1].options.cluster_name = other_cluster_name;
    lab_open(lab);
    for (size_t i = 0; i < 2; i++)
        LAB_WAIT(lab,
                 lab_problem_has(&lab->nodes[i], !i, "n1 is of cluster \"prod\", n0 of cluster \"demo\""));
    lab_free(lab);
}
END_TEST

START_TEST(test_links_that_do_not_come_up_are_told)
{
    struct lab *lab = lab_new(2);

    lab_open(lab);
    fake_fabric_hold(lab->nodes[0].fabric, FABRIC_DATA, true);
    lab->nodes[0].peers->timing.link = 50;
    LAB_WAIT(lab, lab->nodes[0].peers->conns != NULL && lab->nodes[0].peers->conns->state == CONN_CLOSING);
    fake_fabric_hold(lab->nodes[0].fabric, FABRIC_DATA, false);
    LAB_WAIT(lab, lab_logged(&lab->nodes[0], "its fabric links did not come up in 50 ms") == 1);
    lab->nodes[0].peers->timing.link = 10000;
    LAB_WAIT(lab, lab_all_up(lab));
    lab_free(lab);
}
END_TEST

START_TEST(test_fabric_that_cannot_take_a_link_is_told)
{
    struct lab *lab = lab_new(2);

    lab_node_open(&lab->nodes[0]);
    fake_fabric_fail_next(lab->nodes[0].fabric, (unsigned)_i);
    lab_node_open(&lab->nodes[1]);
    LAB_WAIT(lab, lab_logged(&lab->nodes[1], "refuses this node: n0 cannot take a link") == 1);
    LAB_WAIT(lab, lab_all_up(lab));
    fake_fabric_fail_next(lab->nodes[1].fabric, (unsigned)_i);
    peers_disconnect(lab->nodes[1].peers, peers_find(lab->nodes[1].peers, 0), COVEY_PROTOCOL, "x");
    LAB_WAIT(lab, lab_logged(&lab->nodes[1], "cannot be reached by the fabric") == 1);
    LAB_WAIT(lab, lab_all_up(lab));
    lab_free(lab);
}
END_TEST

/* --- Elastic nodes, and ids that are taken ----------------------------------------------------------------
 */

/* A node that is not in the list of so many nodes. */
static struct lab_node *add_elastic(struct lab *lab, size_t slot, uint16_t id, size_t listed)
{
    struct lab_node *node = &lab->nodes[slot];

    lab_node_init(node, &lab->loop, id, listed);
    node->options.elastic = true;
    node->incarnation = 1000 + slot;
    lab_node_set_address(&node->options.self, lab_host((uint16_t)(100 + slot)), LAB_PORT);
    return node;
}

START_TEST(test_elastic_node_dials_all)
{
    struct lab *lab = lab_new(2);
    struct lab_node *elastic = add_elastic(lab, 2, 9, 2);
    struct peer *peer;

    lab_open(lab);
    lab_node_open(elastic);
    LAB_WAIT(lab, lab_all_up(lab) && lab_is_up(elastic, 0) && lab_is_up(elastic, 1));
    LAB_WAIT(lab, lab_is_up(&lab->nodes[0], 9) && lab_is_up(&lab->nodes[1], 9));
    peer = peers_find(lab->nodes[0].peers, 9);
    ck_assert_ptr_null(peer->options);
    ck_assert_str_eq(peer->name, "n9");
    ck_assert_str_eq(peer->address, elastic->options.self.address);
    ck_assert_ptr_eq(peers_at(lab->nodes[0].peers, 1), peer);
    lab_node_close(elastic);
    LAB_WAIT(lab, !peer->up);
    lab_free(lab);
}
END_TEST

/* Elastic nodes know of each other by what members say. */
START_TEST(test_elastic_nodes_learn_of_each_other)
{
    struct lab *lab = lab_new(2);
    struct lab_node *low = add_elastic(lab, 2, 8, 2), *high = add_elastic(lab, 3, 9, 2);
    struct node_options *low_self = &low->options.self, *high_self = &high->options.self;
    struct peer *peer;
    struct fail fail;

    lab_open(lab);
    lab_node_open(low);
    lab_node_open(high);
    LAB_WAIT(lab, lab_is_up(&lab->nodes[0], 8) && lab_is_up(&lab->nodes[0], 9));
    ck_assert_ptr_null(peers_find(high->peers, 8));
    peer = peers_find(lab->nodes[0].peers, 8); /* where a listed node knows it to listen */
    ck_assert_mem_eq(&peer->sockaddr, &low_self->sockaddr, low_self->sockaddr_bytes);
    ck_assert_int_eq(peers_learn(high->peers, 8, &peer->sockaddr, peer->sockaddr_bytes, &fail), COVEY_OK);
    ck_assert_int_eq(peers_learn(low->peers, 9, &high_self->sockaddr, high_self->sockaddr_bytes, &fail),
                     COVEY_OK);
    LAB_WAIT(lab, lab_is_up(low, 9) && lab_is_up(high, 8));
    ck_assert_str_eq(peers_find(high->peers, 8)->name, "n8");
    ck_assert_str_eq(peers_find(high->peers, 8)->address, low_self->address);

    peers_forget(high->peers, peers_find(high->peers, 8));
    lab_node_close(low);
    LAB_WAIT(lab, !lab_is_up(high, 8));
    ck_assert(!uv_is_active((uv_handle_t *)&((struct entry *)peers_find(high->peers, 8))->retry));
    low->ups = low->downs = 0;
    lab_node_open(low);
    ck_assert_int_eq(peers_learn(high->peers, 8, &low_self->sockaddr, low_self->sockaddr_bytes, &fail),
                     COVEY_OK);
    LAB_WAIT(lab, lab_is_up(high, 8));
    lab_free(lab);
}
END_TEST

static size_t conn_count(const struct lab_node *node)
{
    size_t count = 0;

    for (const struct conn *conn = node->peers->conns; conn != NULL; conn = conn->next)
        count++;
    return count;
}

/* Both dial at once: one connection counts, and nobody is told of a problem. */
START_TEST(test_elastic_nodes_that_dial_each_other_meet_once)
{
    struct lab *lab = lab_new(0);
    struct lab_node *low = add_elastic(lab, 0, 8, 0), *high = add_elastic(lab, 1, 9, 0);
    struct node_options *low_self = &low->options.self, *high_self = &high->options.self;
    struct fail fail;

    low->log.level = high->log.level = COVEY_LOG_WARNING;
    lab_node_open(low);
    lab_node_open(high);
    low->peers->timing.linger = high->peers->timing.linger = 20;
    low->peers->timing.backoff_min = 1 + (uint32_t)_i % 3;
    high->peers->timing.backoff_min = 1 + (uint32_t)_i / 3;
    ck_assert_int_eq(peers_learn(high->peers, 8, &low_self->sockaddr, low_self->sockaddr_bytes, &fail),
                     COVEY_OK);
    ck_assert_int_eq(peers_learn(low->peers, 9, &high_self->sockaddr, high_self->sockaddr_bytes, &fail),
                     COVEY_OK);
    LAB_WAIT(lab, lab_is_up(low, 9) && lab_is_up(high, 8));
    LAB_WAIT(lab, conn_count(low) == 1 && conn_count(high) == 1);
    ck_assert(lab_is_up(low, 9) && lab_is_up(high, 8));
    ck_assert_uint_eq(low->ups, 1);
    ck_assert_uint_eq(high->ups, 1);
    ck_assert_msg(low->lines.count + high->lines.count == 0, "%s%s", low->lines.text[0], high->lines.text[0]);
    lab_free(lab);
}
END_TEST

/* What is known already, or is this node itself, needs no learning. */
START_TEST(test_learning_of_a_listed_node_changes_nothing)
{
    struct lab *lab = lab_new(2);
    struct node_options *other = &lab->nodes[1].options.self;
    struct sockaddr_storage elsewhere = other->sockaddr;
    struct lab_node *node = &lab->nodes[0];
    struct fail fail;

    lab_node_open(node);
    ((struct sockaddr_in *)&elsewhere)->sin_port = htons(9);
    for (uint32_t id = 0; id < 2; id++)
        ck_assert_int_eq(peers_learn(node->peers, id, &elsewhere, other->sockaddr_bytes, &fail), COVEY_OK);
    ck_assert_uint_eq(peers_count(node->peers), 1);
    ck_assert_mem_eq(&peers_find(node->peers, 1)->sockaddr, &other->sockaddr, other->sockaddr_bytes);
    peers_forget(node->peers, peers_find(node->peers, 1));
    lab_node_open(&lab->nodes[1]);
    LAB_WAIT(lab, lab_all_up(lab));
    lab_free(lab);
}
END_TEST

START_TEST(test_no_more_nodes_than_fit_are_known)
{
    struct lab *lab = lab_new(1);
    struct lab_node *node = &lab->nodes[0];
    struct node_options *self = &node->options.self;
    struct fail fail;

    lab_node_open(node);
    for (uint32_t id = 1; id < COVEY_MEMBERS_MAX; id++)
        ck_assert_int_eq(peers_learn(node->peers, 2000 - id, &self->sockaddr, self->sockaddr_bytes, &fail),
                         COVEY_OK);
    ck_assert_int_eq(peers_learn(node->peers, 5000, &self->sockaddr, self->sockaddr_bytes, &fail),
                     COVEY_BUSY);
    ck_assert_uint_eq(peers_count(node->peers), COVEY_MEMBERS_MAX - 1);
    for (size_t i = 1; i < peers_count(node->peers); i++)
        ck_assert_uint_lt(peers_at(node->peers, i - 1)->id, peers_at(node->peers, i)->id);
    lab_free(lab);
}
END_TEST

START_TEST(test_address_survives_its_24_bytes)
{
    struct sockaddr_storage address = {0}, again;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&address;
    uint8_t bytes[TCP_ADDRESS_BYTES];
    socklen_t length;

    in6->sin6_family = AF_INET6;
    in6->sin6_addr = in6addr_loopback;
    in6->sin6_port = htons(7400);
    tcp_encode_address(&address, bytes);
    ck_assert(tcp_decode_address(bytes, &again, &length));
    ck_assert_uint_eq(length, sizeof(*in6));
    ck_assert_mem_eq(&address, &again, sizeof(address));
    for (size_t i = 0; i < sizeof(bytes); i++) {
        uint8_t damaged[TCP_ADDRESS_BYTES];
        memcpy(damaged, bytes, sizeof(bytes));
        damaged[i] = 5;
        /* the port and the host may be any; the rest may not */
        ck_assert(tcp_decode_address(damaged, &again, &length) == (i >= 2 && i < 20));
    }
    memset(bytes + 2, 0, 2);
    ck_assert(!tcp_decode_address(bytes, &again, &length)); /* port 0 */
}
END_TEST

START_TEST(test_second_process_with_an_id_that_lives_is_refused)
{
    struct lab *lab = lab_new(2);
    struct lab_node *first = add_elastic(lab, 2, 9, 2), *second = add_elastic(lab, 3, 9, 2);
    char sentence[FAIL_TEXT_MAX];

    lab_open(lab);
    lab_node_open(first);
    LAB_WAIT(lab, lab_is_up(&lab->nodes[0], 9) && lab_is_up(&lab->nodes[1], 9));
    lab_node_open(second);
    snprintf(sentence, sizeof(sentence), "two processes run as node 9: n9 at %s came while n9 at %s is up",
             second->options.self.address, first->options.self.address);
    LAB_WAIT(lab, lab_problem_has(second, 0, sentence) && lab_problem_has(second, 1, sentence));
    ck_assert_int_eq(peers_find(second->peers, 0)->problem_code, COVEY_EXISTS);
    ck_assert_uint_eq(lab_logged(&lab->nodes[0], sentence), 1);
    ck_assert_uint_eq(second->ups, 0);
    ck_assert_uint_eq(lab->nodes[0].downs, 0);
    /* when the first has gone, the second is taken */
    lab_node_close(first);
    LAB_WAIT(lab, lab_is_up(second, 0) && lab_is_up(second, 1));
    ck_assert_uint_eq(peers_find(lab->nodes[0].peers, 9)->incarnation, second->incarnation);
    lab_free(lab);
}
END_TEST

/* The first process is stopped: it does not answer, and the second takes its place. */
START_TEST(test_second_process_replaces_one_that_does_not_answer)
{
    struct lab *lab = lab_new(2);
    struct lab_node *first = add_elastic(lab, 2, 9, 2), *second = add_elastic(lab, 3, 9, 2);
    uv_loop_t other_loop;
    bool up = false;

    lab_open(lab);
    lab->nodes[0].peers->timing.probe = lab->nodes[1].peers->timing.probe = 50;
    ck_assert_int_eq(uv_loop_init(&other_loop), 0);
    first->loop = &other_loop; /* which can be left to itself */
    lab_node_open(first);
    while (!up) {
        uv_run(&other_loop, UV_RUN_NOWAIT);
        uv_run(&lab->loop, UV_RUN_NOWAIT);
        up = lab_is_up(&lab->nodes[0], 9) && lab_is_up(&lab->nodes[1], 9) && lab_is_up(first, 0) &&
             lab_is_up(first, 1);
    }
    lab_node_open(second);
    LAB_WAIT(lab, lab_is_up(second, 0) && lab_is_up(second, 1));
    ck_assert_uint_eq(lab_logged(&lab->nodes[0], "does not answer, and another process takes its place"), 1);
    ck_assert_uint_eq(lab->nodes[0].downs, 1);
    lab_node_close(first);
    ck_assert_int_eq(uv_loop_close(&other_loop), 0);
    lab_free(lab);
}
END_TEST

START_TEST(test_elastic_node_with_a_listed_id_or_name_is_refused)
{
    struct lab *lab = lab_new(2);
    struct lab_node *elastic = add_elastic(lab, 2, _i == 0 ? 1 : 9, 2);

    if (_i == 1) {
        free(elastic->options.self.name);
        elastic->options.self.name = strdup("n1");
    }
    lab_node_open(&lab->nodes[0]);
    lab_node_open(elastic);
    LAB_WAIT(lab, lab_problem_has(elastic, 0,
                                  _i == 0 ? "has id 1, which is n1's there" : "is called n1 as node 1"));
    ck_assert_uint_eq(elastic->ups, 0);
    lab_free(lab);
}
END_TEST

/* A node that believes to be in the list, and is not in that of the others. */
START_TEST(test_unknown_id_is_told_by_both)
{
    struct lab *lab = lab_new(2);
    struct lab_node *stranger = &lab->nodes[2];

    lab_node_init(stranger, &lab->loop, 2, 3);
    lab_open(lab);
    lab_node_open(stranger);
    for (uint32_t id = 0; id < 2; id++) {
        LAB_WAIT(lab, lab_problem_has(stranger, id, "node 2 (n2) is not in the list of nodes of n"));
        LAB_WAIT(lab, lab_logged(&lab->nodes[id], "n2 (") >= 1);
        ck_assert_uint_eq(lab_logged(&lab->nodes[id], "is refused: node 2 (n2) is not in the list"), 1);
    }
    lab_free(lab);
}
END_TEST

START_TEST(test_second_process_with_this_nodes_id_is_refused)
{
    struct lab *lab = lab_new(2);
    struct lab_node *twin = &lab->nodes[2];

    lab_node_init(twin, &lab->loop, 0, 2);
    twin->incarnation = 5000;
    lab_node_set_address(&twin->options.self, lab_host(50), LAB_PORT);
    twin->options.self.id = 1; /* it dials node 0, whose id it then says it has */
    lab_node_open(&lab->nodes[0]);
    lab_node_open(twin);
    twin->peers->local.self.id = 0;
    LAB_WAIT(lab, lab_logged(&lab->nodes[0], "two processes run as node 0") == 1);
    LAB_WAIT(lab, lab_logged(twin, "two processes run as node 0") >= 1);
    lab_free(lab);
}
END_TEST

/* The old links of a peer may still write: a new connection of it waits until they are down. */
START_TEST(test_new_connection_waits_until_the_old_links_are_down)
{
    struct lab *lab = lab_new(2);
    struct lab_node *node = &lab->nodes[0];
    const struct entry *entry;

    lab_open(lab);
    LAB_WAIT(lab, lab_all_up(lab));
    entry = (const struct entry *)peers_find(node->peers, 1);
    fake_fabric_hold(node->fabric, FABRIC_DATA, true); /* its end is not known */
    kill_node(&lab->nodes[1]);
    lab->nodes[1].incarnation = 1000;
    lab_node_open(&lab->nodes[1]);
    LAB_WAIT(lab, entry->successor != NULL);
    ck_assert_uint_eq(node->downs, 0);
    fake_fabric_hold(node->fabric, FABRIC_DATA, false);
    LAB_WAIT(lab, lab_all_up(lab));
    ck_assert_uint_eq(node->downs, 1);
    ck_assert_uint_eq(peers_find(node->peers, 1)->incarnation, 1000);
    lab_free(lab);
}
END_TEST

/* If it waits too long, or another one comes, it hears why. */
START_TEST(test_connection_that_waits_in_vain_is_refused)
{
    struct lab *lab = lab_new(2);
    struct lab_node *node = &lab->nodes[0];

    lab_open(lab);
    LAB_WAIT(lab, lab_all_up(lab));
    fake_fabric_hold(node->fabric, FABRIC_DATA, true);
    node->peers->timing.handshake = 50;
    kill_node(&lab->nodes[1]);
    lab_node_open(&lab->nodes[1]);
    LAB_WAIT(lab, lab_logged(&lab->nodes[1], "refuses this node: an older connection of it") == 1);
    ck_assert_int_eq(peers_find(lab->nodes[1].peers, 0)->problem_code, COVEY_BUSY);
    fake_fabric_hold(node->fabric, FABRIC_DATA, false);
    LAB_WAIT(lab, lab_all_up(lab));
    lab_free(lab);
}
END_TEST

/* --- A peer that knows the secret, and misbehaves ---------------------------------------------------------
 */

static bool receive_more(int fd, uint8_t *data, size_t bytes, size_t *got)
{
    ssize_t count = recv(fd, data + *got, bytes - *got, MSG_DONTWAIT);

    *got += count > 0 ? (size_t)count : 0;
    return *got == bytes;
}

static void send_exactly(int fd, const uint8_t *data, size_t bytes)
{
    ck_assert_int_eq(send(fd, data, bytes, MSG_NOSIGNAL), bytes);
}

static void send_sealed(int fd, const struct forge *forge, uint8_t number, const uint8_t *plain, size_t bytes)
{
    uint8_t sealed[FORGE_BODY + FORGE_TAG];

    forge_seal(forge, number, plain, bytes, sealed);
    send_exactly(fd, sealed, bytes + FORGE_TAG);
}

/* What a node would say of itself, with the other's configuration. */
static void forge_plain(const struct lab_node *node, uint16_t id, uint8_t plain[FORGE_BODY])
{
    forge_body(plain, id);
    for (size_t i = 0; i < 3; i++) {
        uint64_t digest = options_part_digest(&node->options, (enum options_part)i);
        for (size_t byte = 0; byte < 8; byte++)
            plain[16 + 8 * i + byte] = (uint8_t)(digest >> (8 * byte));
    }
}

/* A connection that has exchanged prefixes with the node, as node `id`. */
static int forge_connect(struct lab *lab, const struct lab_node *node, uint16_t id, struct forge *forge)
{
    uint8_t heard[FORGE_PREFIX + FORGE_BODY + FORGE_TAG];
    int fd = lab_connect(node);
    size_t got = 0;

    forge_init(forge, HANDSHAKE_DIALER, id, 1);
    send_exactly(fd, forge->prefixes[0], FORGE_PREFIX);
    LAB_WAIT(lab, receive_more(fd, heard, sizeof(heard), &got));
    forge_keys(forge, heard, node->options.secret, node->options.secret_bytes);
    return fd;
}

/* The same, and it has proved to be that node. */
static int forge_node(struct lab *lab, const struct lab_node *node, uint16_t id, struct forge *forge)
{
    uint8_t plain[FORGE_BODY];
    int fd = forge_connect(lab, node, id, forge);

    forge_plain(node, id, plain);
    send_sealed(fd, forge, 0, plain, sizeof(plain));
    return fd;
}

/* The same, and it accepts the node: its links are expected then. */
static int forge_friend(struct lab *lab, const struct lab_node *node, uint16_t id, struct forge *forge)
{
    static const uint8_t accepts[FORGE_VERDICT];
    uint8_t heard[FORGE_VERDICT + FORGE_TAG];
    const struct entry *entry = (const struct entry *)peers_find(node->peers, id);
    size_t got = 0;
    int fd = forge_node(lab, node, id, forge);

    send_sealed(fd, forge, 1, accepts, sizeof(accepts));
    LAB_WAIT(lab, receive_more(fd, heard, sizeof(heard), &got));
    LAB_WAIT(lab, entry->current != NULL && entry->current->state == CONN_LINKING);
    return fd;
}

START_TEST(test_peer_that_is_not_the_one_to_dial_is_refused)
{
    struct lab *lab = lab_new(2);
    struct forge forge;
    int fd;

    lab_node_open(&lab->nodes[1]);
    lab->nodes[1].peers->timing.linger = 50;
    fd = forge_node(lab, &lab->nodes[1], 0, &forge);
    LAB_WAIT(lab, lab_logged(&lab->nodes[1], "n0 dialed n1, but n1 is the one to dial") == 1);
    close(fd);
    lab_free(lab);
}
END_TEST

START_TEST(test_peer_that_goes_on_unaccepted_is_left)
{
    uint8_t more[FORGE_VERDICT + FORGE_TAG + 1] = {0};
    struct lab *lab = lab_new(2);
    struct lab_node *node = &lab->nodes[0];
    struct forge forge;
    int fd;

    lab_open(lab);
    LAB_WAIT(lab, lab_all_up(lab));
    fake_fabric_hold(node->fabric, FABRIC_DATA, true);
    kill_node(&lab->nodes[1]); /* whose end is not known: the forged one has to wait */
    fd = forge_node(lab, node, 1, &forge);
    forge_seal(&forge, 1, more, FORGE_VERDICT, more);
    send_exactly(fd, more, sizeof(more));
    LAB_WAIT(lab, lab_logged(node, "goes on before this node has accepted it") == 1);
    fake_fabric_hold(node->fabric, FABRIC_DATA, false);
    LAB_WAIT(lab, lab_has_ended(fd));
    close(fd);
    lab_free(lab);
}
END_TEST

START_TEST(test_peer_that_sends_nonsense_is_left)
{
    struct lab *lab = lab_new(2);
    struct lab_node *node = &lab->nodes[0];
    struct forge forge;
    int fd;

    lab_node_open(node);
    fd = forge_friend(lab, node, 1, &forge);
    send_exactly(fd, (const uint8_t *)"\x7f", 1);
    LAB_WAIT(lab, lab_has_ended(fd));
    ck_assert(lab_problem_has(node, 1, "broke the protocol: unknown byte 127 on its connection"));
    ck_assert_int_eq(peers_find(node->peers, 1)->problem_code, COVEY_PROTOCOL);
    ck_assert_uint_eq(node->downs, 0); /* it was never up */
    close(fd);
    lab_free(lab);
}
END_TEST

/* Questions without end, whose answers are not read: the answers that do not fit are not kept. */
START_TEST(test_peer_that_asks_without_end_costs_nothing)
{
    static uint8_t questions[1 << 16];
    struct lab *lab = lab_new(2);
    struct lab_node *node = &lab->nodes[0];
    struct forge forge;
    const struct conn *conn;
    int fd, small = 4096;
    size_t sent = 0;

    memset(questions, SIGNAL_PROBE, sizeof(questions));
    lab_node_open(node);
    node->peers->timing.probe = 50;
    fd = forge_friend(lab, node, 1, &forge);
    conn = ((const struct entry *)peers_find(node->peers, 1))->current;
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    ck_assert_int_eq(setsockopt(conn->fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
    while (conn->out_bytes < sizeof(conn->out)) {
        ssize_t count = send(fd, questions, sizeof(questions), MSG_NOSIGNAL | MSG_DONTWAIT);
        sent += count > 0 ? (size_t)count : 0;
        ck_assert_uint_lt(sent, 64 << 20);
        uv_run(&lab->loop, UV_RUN_NOWAIT);
    }
    lab_node_open(&lab->nodes[1]); /* the real one replaces it */
    LAB_WAIT(lab, lab_all_up(lab));
    close(fd);
    lab_free(lab);
}
END_TEST

START_TEST(test_peer_that_makes_no_links_is_left)
{
    struct lab *lab = lab_new(2);
    struct lab_node *node = &lab->nodes[0];
    struct forge forge;
    int fd;

    lab_node_open(node);
    node->peers->timing.link = 50;
    fd = forge_friend(lab, node, 1, &forge);
    LAB_WAIT(lab, lab_has_ended(fd));
    ck_assert(lab_problem_has(node, 1, "its fabric links did not come up in 50 ms"));
    close(fd);
    lab_free(lab);
}
END_TEST

/* A fabric of the test's own, from which a forged peer makes its lanes. */
static struct fabric *forge_lanes(const struct lab_node *node, const struct forge *forge, unsigned count,
                                  struct fabric_link *links[])
{
    struct fabric_options options = {.provider = "tcp"};
    uint8_t address[FABRIC_ADDRESS_MAX];
    size_t bytes = fabric_address(node->fabric, address);
    struct fabric *fabric;
    struct fail fail;

    ck_assert_int_eq(fabric_open(&options, &fabric, &fail), COVEY_OK);
    for (unsigned lane = 0; lane < count; lane++)
        ck_assert_int_eq(fabric_link_connect(fabric, (enum fabric_lane)lane, address, bytes,
                                             forge->tokens[lane], NULL, &links[lane], &fail),
                         COVEY_OK);
    return fabric;
}

/* When the other end has closed them. */
static void forge_lanes_close(struct fabric *fabric, unsigned count, struct fabric_link *links[])
{
    struct fabric_event events[8];

    ck_assert_uint_eq(fabric_poll(fabric, events, 8), 2 * count); /* each was up, and is down */
    for (unsigned lane = 0; lane < count; lane++)
        fabric_link_free(links[lane]);
    fabric_close(fabric);
}

/* It makes one lane, and uses it without waiting for the other. */
START_TEST(test_peer_that_uses_a_lane_too_early_is_left)
{
    struct lab *lab = lab_new(2);
    struct lab_node *node = &lab->nodes[0];
    struct fabric_link *link;
    struct fabric *fabric;
    struct forge forge;
    int fd;

    lab_node_open(node);
    fd = forge_friend(lab, node, 1, &forge);
    fabric = forge_lanes(node, &forge, 1, &link);
    ck_assert_int_eq(fabric_send(link, "hello", 5), COVEY_OK);
    LAB_WAIT(lab, lab_has_ended(fd));
    ck_assert(lab_problem_has(node, 1, "broke the protocol: it used a link before it was up"));
    ck_assert_uint_eq(node->messages, 0);
    forge_lanes_close(fabric, 1, &link);
    close(fd);
    lab_free(lab);
}
END_TEST

/* A message that overtakes the peer's LINKED, which is on another connection, is not lost. */
START_TEST(test_message_may_come_before_linked)
{
    static const uint8_t linked[] = {SIGNAL_LINKED};
    struct lab *lab = lab_new(2);
    struct lab_node *node = &lab->nodes[0];
    struct fabric_link *links[FABRIC_LANES];
    struct fabric *fabric;
    struct forge forge;
    uint8_t signal = 0;
    int fd;

    lab_node_open(node);
    fd = forge_friend(lab, node, 1, &forge);
    fabric = forge_lanes(node, &forge, FABRIC_LANES, links);
    LAB_WAIT(lab, recv(fd, &signal, 1, MSG_DONTWAIT) == 1);
    ck_assert_uint_eq(signal, SIGNAL_LINKED);
    ck_assert(!lab_is_up(node, 1));
    ck_assert_int_eq(fabric_send(links[FABRIC_CONTROL], "hello", 5), COVEY_OK);
    LAB_WAIT(lab, node->messages == 1);
    ck_assert(lab_is_up(node, 1));
    send_exactly(fd, linked, sizeof(linked));
    close(fd);
    LAB_WAIT(lab, node->downs == 1);
    ck_assert_uint_eq(node->ups, 1);
    forge_lanes_close(fabric, FABRIC_LANES, links);
    lab_free(lab);
}
END_TEST

START_TEST(test_reset_connection_is_told)
{
    struct lab *lab = lab_new(2);
    struct lab_node *node = &lab->nodes[0];
    struct linger at_once = {.l_onoff = 1};
    struct forge forge;
    int fd;

    lab_node_open(node);
    fd = forge_friend(lab, node, 1, &forge);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
    close(fd);
    LAB_WAIT(lab, lab_problem_has(node, 1, "has gone: Connection reset by peer"));
    lab_free(lab);
}
END_TEST

/* Of several connections that wait for the end of an older one, the latest counts. */
START_TEST(test_only_the_latest_connection_waits)
{
    struct lab *lab = lab_new(2);
    struct lab_node *node = &lab->nodes[0];
    const struct entry *entry;
    struct forge forge;
    int first, second;

    lab_open(lab);
    LAB_WAIT(lab, lab_all_up(lab));
    entry = (const struct entry *)peers_find(node->peers, 1);
    node->peers->timing.linger = 50;
    fake_fabric_hold(node->fabric, FABRIC_DATA, true);
    kill_node(&lab->nodes[1]);
    first = forge_node(lab, node, 1, &forge);
    LAB_WAIT(lab, entry->successor != NULL);
    second = forge_node(lab, node, 1, &forge);
    LAB_WAIT(lab, lab_has_ended(first));
    ck_assert(entry->successor != NULL && !lab_has_ended(second));
    fake_fabric_hold(node->fabric, FABRIC_DATA, false);
    lab_node_close(node); /* and the one that waits is not taken any more */
    ck_assert(lab_has_ended(second));
    close(first);
    close(second);
    lab_free(lab);
}
END_TEST

START_TEST(test_elastic_node_that_cannot_be_one_is_refused)
{
    static const char *const reasons[] = {"n40 says that it listens at no address",
                                          "n0 knows 1024 nodes already, and no more fit into a cluster"};
    struct lab *lab = lab_new(1);
    struct lab_node *node = &lab->nodes[0];
    struct node_options *self = &node->options.self;
    uint8_t plain[FORGE_BODY];
    struct forge forge;
    struct fail fail;
    int fd;

    lab_node_open(node);
    node->peers->timing.linger = 50;
    for (uint32_t id = 1000; _i == 1 && id < 1000 + COVEY_MEMBERS_MAX - 1; id++)
        ck_assert_int_eq(peers_learn(node->peers, id, &self->sockaddr, self->sockaddr_bytes, &fail),
                         COVEY_OK);
    fd = forge_connect(lab, node, 40, &forge);
    forge_plain(node, 40, plain);
    plain[2] = 1; /* elastic */
    if (_i == 0)
        plain[968] = 5;
    send_sealed(fd, &forge, 0, plain, sizeof(plain));
    LAB_WAIT(lab, lab_logged(node, reasons[_i]) == 1);
    LAB_WAIT(lab, node->peers->conns == NULL); /* the other end need not close */
    close(fd);
    lab_free(lab);
}
END_TEST

/* Whoever claims an id from elsewhere changes nothing of what is known about that node. */
START_TEST(test_impostor_is_told_apart)
{
    struct lab *lab = lab_new(2);
    struct lab_node *node = &lab->nodes[0];
    uint8_t nonsense[FORGE_BODY] = {0};
    char sentence[FAIL_TEXT_MAX], who[64] = "node 77";
    struct forge forge;
    int fd;

    lab_node_open(node);
    fd = forge_connect(lab, node, _i == 0 ? 1 : 77, &forge);
    memset(forge.keys, 0, sizeof(forge.keys));
    send_sealed(fd, &forge, 0, nonsense, sizeof(nonsense));
    if (_i == 0)
        snprintf(who, sizeof(who), "n1 (%s)", address_of(lab, 1));
    snprintf(sentence, sizeof(sentence),
             "127.0.0.1, which says that it is %s, does not prove this cluster's secret", who);
    LAB_WAIT(lab, lab_logged(node, sentence) == 1);
    ck_assert(lab_problem_has(node, 1, "has not connected yet"));
    close(fd);
    lab_free(lab);
}
END_TEST

/* --- The listener --------------------------------------------------------------------------------------- */

START_TEST(test_port_in_use_names_the_process)
{
    struct lab *lab = lab_new(1);
    struct lab_node *second = &lab->nodes[1];
    char sentence[FAIL_TEXT_MAX];
    struct fail fail;

    lab_node_open(&lab->nodes[0]);
    lab_node_init(second, &lab->loop, 0, 1);
    ck_assert_int_eq(lab_node_try_open(second, &fail), COVEY_BUSY);
    snprintf(sentence, sizeof(sentence), "cannot listen at %s: process %ld (", address_of(lab, 0),
             (long)getpid());
    ck_assert_msg(strstr(fail.text, sentence) == fail.text, "%s", fail.text);
    lab_free(lab);
}
END_TEST

START_TEST(test_address_of_another_host_is_refused)
{
    struct lab *lab = lab_new(1);
    struct sockaddr_in *in = (struct sockaddr_in *)&lab->nodes[0].options.self.sockaddr;
    struct fail fail;

    in->sin_addr.s_addr = htonl(0xc0000201); /* 192.0.2.1, for documentation */
    ck_assert_int_eq(lab_node_try_open(&lab->nodes[0], &fail), COVEY_CONFIG);
    ck_assert_ptr_nonnull(strstr(fail.text, "is not an address of this host"));
    lab_free(lab);
}
END_TEST

/* The listener's end of open connections, and of closed ones, does not keep the port. */
START_TEST(test_restart_listens_at_once)
{
    struct lab *lab = lab_new(2);

    lab_open(lab);
    lab->nodes[1].peers->timing.backoff_max = 20; /* a peer that is never up for long waits longer */
    for (int i = 0; i < 20; i++) {
        LAB_WAIT(lab, lab_all_up(lab));
        kill_node(&lab->nodes[0]);
        lab->nodes[0].incarnation++;
        lab_node_open(&lab->nodes[0]);
    }
    LAB_WAIT(lab, lab_all_up(lab));
    lab_free(lab);
}
END_TEST

START_TEST(test_garbage_is_told_once_and_ends)
{
    static const char http[] = "GET /metrics HTTP/1.1\r\n\r\n";
    struct lab *lab = lab_new(2);
    struct lab_node *node = &lab->nodes[0];

    lab_open(lab);
    LAB_WAIT(lab, lab_all_up(lab));
    for (int i = 0; i < 3; i++) {
        int fd = lab_connect(node);
        ck_assert_int_eq(send(fd, http, sizeof(http) - 1, MSG_NOSIGNAL), sizeof(http) - 1);
        LAB_WAIT(lab, lab_has_ended(fd));
        close(fd);
    }
    ck_assert_uint_eq(lab_logged(node, "127.0.0.1 is not a Covey node: it begins with \"GET /met\""), 1);
    ck_assert(lab_all_up(lab));
    ck_assert_uint_eq(node->downs, 0);
    lab_free(lab);
}
END_TEST

/* A port scanner, a health check: nothing is said, nothing is lab_logged for an operator. */
START_TEST(test_connection_that_says_nothing_is_not_worth_a_warning)
{
    struct lab *lab = lab_new(1);
    struct lab_node *node = &lab->nodes[0];
    int fd;

    node->log.level = COVEY_LOG_WARNING;
    lab_node_open(node);
    fd = lab_connect(node);
    LAB_WAIT(lab, node->peers->conns != NULL);
    close(fd);
    LAB_WAIT(lab, node->peers->conns == NULL);
    ck_assert_uint_eq(node->lines.count, 0);
    lab_free(lab);
}
END_TEST

START_TEST(test_slow_handshake_ends)
{
    struct lab *lab = lab_new(1);
    struct lab_node *node = &lab->nodes[0];
    int fd;

    lab_node_open(node);
    node->peers->timing.handshake = 50;
    fd = lab_connect(node);
    ck_assert_int_eq(send(fd, "COVEY", 5, MSG_NOSIGNAL), 5);
    LAB_WAIT(lab, lab_has_ended(fd));
    ck_assert_uint_eq(lab_logged(node, "127.0.0.1 was too slow: 50 ms passed before it said what it is"), 1);
    close(fd);
    lab_free(lab);
}
END_TEST

/* More half-open connections than are kept: they cannot keep a node out, and their number is bounded. */
START_TEST(test_half_open_flood_does_not_keep_nodes_out)
{
    struct lab *lab = lab_new(2);
    struct lab_node *node = &lab->nodes[0];
    int fds[3 * PEERS_HALF_OPEN_MAX];
    size_t kept = 0;

    lab_node_open(node);
    node->peers->timing.half_open_grace = 20;
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        fds[i] = lab_connect(node);
    lab_node_open(&lab->nodes[1]);
    LAB_WAIT(lab, lab_all_up(lab));
    for (const struct conn *conn = node->peers->conns; conn != NULL; conn = conn->next)
        kept += conn_is_half_open(conn);
    ck_assert_uint_le(kept, PEERS_HALF_OPEN_MAX);
    ck_assert_uint_eq(lab_logged(node, "connections prove nothing"), 1);
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        close(fds[i]);
    lab_free(lab);
}
END_TEST

/* As soon as one of the half-open connections has ended, the next is taken. */
START_TEST(test_place_that_becomes_free_is_used_at_once)
{
    struct lab *lab = lab_new(1);
    struct lab_node *node = &lab->nodes[0];
    int fds[PEERS_HALF_OPEN_MAX], last;
    struct forge forge;
    uint8_t byte;

    lab_node_open(node);
    node->peers->timing.half_open_grace = 60000;
    for (size_t i = 0; i < PEERS_HALF_OPEN_MAX; i++)
        fds[i] = lab_connect(node);
    last = lab_connect(node);
    forge_init(&forge, HANDSHAKE_DIALER, 1, 1);
    send_exactly(last, forge.prefixes[0], FORGE_PREFIX);
    LAB_WAIT(lab, uv_is_active((uv_handle_t *)&node->peers->accept_timer));
    ck_assert_int_eq(recv(last, &byte, 1, MSG_DONTWAIT), -1);
    close(fds[0]);
    LAB_WAIT(lab, recv(last, &byte, 1, MSG_DONTWAIT) == 1);
    for (size_t i = 1; i < PEERS_HALF_OPEN_MAX; i++)
        close(fds[i]);
    close(last);
    lab_free(lab);
}
END_TEST

/* Without descriptors nothing can be accepted; when there are some again, it goes on. */
START_TEST(test_lack_of_descriptors_passes)
{
    struct lab *lab = lab_new(2);
    struct lab_node *node = &lab->nodes[0];
    struct rlimit limit, low;
    int fd;

    lab_node_open(node);
    fd = lab_connect(node);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = (rlim_t)fd;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    node->peers->timing.half_open_grace = 20;
    LAB_WAIT(lab, lab_logged(node, "raise the limit of open files (nofile)") == 1);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    close(fd);
    lab_node_open(&lab->nodes[1]);
    LAB_WAIT(lab, lab_all_up(lab));
    /* To dial takes one as well. */
    lab->nodes[1].peers->timing.backoff_max = 20;
    kill_node(node);
    LAB_WAIT(lab, lab->nodes[1].peers->conns == NULL);
    fd = dup(0);
    low.rlim_cur = (rlim_t)fd;
    close(fd);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    LAB_WAIT(lab, lab_logged(&lab->nodes[1], "cannot be dialed: Too many open files; raise the limit") == 1);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    lab_free(lab);
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
    struct lab *lab = lab_new(3);
    struct sigaction action = {.sa_handler = on_signal}, pipe_action;
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};

    ck_assert_int_eq(sigaction(SIGPIPE, NULL, &pipe_action), 0);
    ck_assert_ptr_eq(pipe_action.sa_handler, SIG_DFL);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    lab_open(lab);
    LAB_WAIT(lab, lab_all_up(lab));
    kill_node(&lab->nodes[1]);
    LAB_WAIT(lab, lab->nodes[0].downs == 1 && lab->nodes[2].downs == 1);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGPIPE, NULL, &pipe_action);
    ck_assert_ptr_eq(pipe_action.sa_handler, SIG_DFL);
    lab_free(lab);
}
END_TEST

/* The other end has sent its last byte, and then reset the connection, before this one answers. */
START_TEST(test_sending_to_a_dead_connection_raises_no_signal)
{
    struct lab *lab = lab_new(2);
    struct lab_node *node = &lab->nodes[0];
    struct linger at_once = {.l_onoff = 1};
    struct forge forge;
    int fd;

    lab_node_open(node);
    fd = lab_connect(node);
    forge_init(&forge, HANDSHAKE_DIALER, 1, 1);
    send_exactly(fd, forge.prefixes[0], FORGE_PREFIX);
    ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
    close(fd);
    LAB_WAIT(lab, lab_logged(node, "closed the connection before it proved the cluster's secret") == 1);
    lab_free(lab);
}
END_TEST

START_TEST(test_descriptors_do_not_reach_children)
{
    struct lab *lab = lab_new(2);

    lab_open(lab);
    LAB_WAIT(lab, lab_all_up(lab));
    for (const struct conn *conn = lab->nodes[0].peers->conns; conn != NULL; conn = conn->next)
        ck_assert_int_ne(fcntl(conn->fd, F_GETFD) & FD_CLOEXEC, 0);
    ck_assert_int_ne(fcntl(lab->nodes[0].peers->listener, F_GETFD) & FD_CLOEXEC, 0);
    lab_free(lab);
}
END_TEST

START_TEST(test_connections_come_from_the_configured_address)
{
    struct lab *lab = lab_new(2);
    struct sockaddr_storage from;
    socklen_t bytes = sizeof(from);

    lab_open(lab);
    LAB_WAIT(lab, lab_all_up(lab));
    ck_assert_int_eq(getpeername(lab->nodes[0].peers->conns->fd, (struct sockaddr *)&from, &bytes), 0);
    ck_assert(tcp_same_host(&from, &lab->nodes[1].options.self.sockaddr));
    lab_free(lab);
}
END_TEST

static void set_ipv6(struct node_options *node, uint16_t port)
{
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&node->sockaddr;
    char text[32];

    memset(&node->sockaddr, 0, sizeof(node->sockaddr));
    in6->sin6_family = AF_INET6;
    in6->sin6_addr = in6addr_loopback;
    in6->sin6_port = htons(port);
    node->sockaddr_bytes = sizeof(*in6);
    snprintf(text, sizeof(text), "[::1]:%u", port);
    free(node->address);
    node->address = strdup(text);
}

/* Ports that are free now, below the ephemeral range, so that they stay so. */
static bool free_ipv6_ports(uint16_t ports[2])
{
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    size_t found = 0;

    for (uint16_t port = (uint16_t)(20000 + getpid() % 8000); found < 2 && port < 32000; port++) {
        int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
        in6.sin6_port = htons(port);
        if (fd >= 0 && bind(fd, (const struct sockaddr *)&in6, sizeof(in6)) == 0)
            ports[found++] = port;
        if (fd >= 0)
            close(fd);
    }
    return found == 2;
}

START_TEST(test_ipv6_addresses)
{
    struct lab *lab = lab_new(2);
    struct lab_node *second = &lab->nodes[2];
    struct fail fail;
    uint16_t ports[2];

    if (!free_ipv6_ports(ports)) {
        printf("skip test_ipv6_addresses: this host has no ::1\n");
        lab_free(lab);
        return;
    }
    for (size_t i = 0; i < 2; i++) {
        set_ipv6(&lab->nodes[i].options.self, ports[i]);
        for (size_t j = 0; j < 2; j++)
            set_ipv6(&lab->nodes[i].list[j], ports[j]);
    }
    lab_open(lab);
    LAB_WAIT(lab, lab_all_up(lab));
    lab_node_init(second, &lab->loop, 0, 2);
    set_ipv6(&second->options.self, ports[0]);
    ck_assert_int_eq(lab_node_try_open(second, &fail), COVEY_BUSY);
    ck_assert_msg(strstr(fail.text, "]: process ") == NULL && strstr(fail.text, ": process ") != NULL, "%s",
                  fail.text);
    lab_free(lab);
}
END_TEST

START_TEST(test_close_in_any_state_frees_everything)
{
    struct lab *lab = lab_new(3);

    lab_open(lab);
    for (int turn = 0; turn < _i; turn++)
        uv_run(&lab->loop, UV_RUN_NOWAIT);
    lab_free(lab);
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
    SUITE_LOOP(test_fabric_that_cannot_take_a_link_is_told, 2), SUITE_TEST(test_elastic_node_dials_all),
    SUITE_TEST(test_elastic_nodes_learn_of_each_other),
    SUITE_LOOP(test_elastic_nodes_that_dial_each_other_meet_once, 9),
    SUITE_TEST(test_learning_of_a_listed_node_changes_nothing),
    SUITE_TEST(test_no_more_nodes_than_fit_are_known), SUITE_TEST(test_address_survives_its_24_bytes),
    SUITE_TEST(test_second_process_with_an_id_that_lives_is_refused),
    SUITE_TEST(test_second_process_replaces_one_that_does_not_answer),
    SUITE_LOOP(test_elastic_node_with_a_listed_id_or_name_is_refused, 2),
    SUITE_TEST(test_unknown_id_is_told_by_both),
    SUITE_TEST(test_second_process_with_this_nodes_id_is_refused),
    SUITE_TEST(test_new_connection_waits_until_the_old_links_are_down),
    SUITE_TEST(test_connection_that_waits_in_vain_is_refused),
    SUITE_TEST(test_peer_that_is_not_the_one_to_dial_is_refused),
    SUITE_TEST(test_peer_that_goes_on_unaccepted_is_left), SUITE_TEST(test_peer_that_sends_nonsense_is_left),
    SUITE_TEST(test_peer_that_asks_without_end_costs_nothing),
    SUITE_TEST(test_peer_that_makes_no_links_is_left),
    SUITE_TEST(test_peer_that_uses_a_lane_too_early_is_left), SUITE_TEST(test_message_may_come_before_linked),
    SUITE_TEST(test_reset_connection_is_told), SUITE_TEST(test_sending_to_a_dead_connection_raises_no_signal),
    SUITE_TEST(test_only_the_latest_connection_waits),
    SUITE_LOOP(test_elastic_node_that_cannot_be_one_is_refused, 2),
    SUITE_LOOP(test_impostor_is_told_apart, 2), SUITE_TEST(test_host_that_does_not_answer_is_told),
    SUITE_TEST(test_address_that_cannot_be_reached_is_told),
    SUITE_TEST(test_place_that_becomes_free_is_used_at_once), SUITE_TEST(test_ipv6_addresses),
    SUITE_TEST(test_port_in_use_names_the_process), SUITE_TEST(test_address_of_another_host_is_refused),
    SUITE_TEST(test_restart_listens_at_once), SUITE_TEST(test_garbage_is_told_once_and_ends),
    SUITE_TEST(test_connection_that_says_nothing_is_not_worth_a_warning),
    SUITE_TEST(test_slow_handshake_ends), SUITE_TEST(test_half_open_flood_does_not_keep_nodes_out),
    SUITE_TEST(test_lack_of_descriptors_passes), SUITE_TEST(test_signals_are_the_applications),
    SUITE_TEST(test_descriptors_do_not_reach_children),
    SUITE_TEST(test_connections_come_from_the_configured_address),
    SUITE_LOOP(test_close_in_any_state_frees_everything, 30))
