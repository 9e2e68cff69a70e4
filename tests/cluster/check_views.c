/* SPDX-License-Identifier: BSD-3-Clause */
/* What people see of views, and do about them: view, table, evict, view force, events, against real daemons.
 */

#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/item.h"
#include "tests/lib/documents.h"
#include "tests/lib/process.h"
#include "tests/lib/suite.h"

#define NODES 3

struct cluster {
    struct node nodes[NODES];
};

/* Whether covey -n n<at> view prints the words. */
static bool view_says(const struct cluster *cluster, unsigned at, const char *words)
{
    struct result result;

    node_covey(&cluster->nodes[at], &result, "view", NULL);
    return strstr(result.output, words) != NULL;
}

static void cluster_start(struct cluster *cluster)
{
    node_init(&cluster->nodes[0], NODES);
    for (unsigned i = 1; i < NODES; i++)
        node_beside(&cluster->nodes[0], i, &cluster->nodes[i]);
    for (unsigned i = 0; i < NODES; i++)
        node_start(&cluster->nodes[i]);
    for (unsigned i = 0; i < NODES; i++)
        PROCESS_AWAIT(view_says(cluster, i, "running  quorate  3 of 3 members"));
}

static void cluster_end(struct cluster *cluster)
{
    for (unsigned i = 1; i < NODES; i++) {
        if (cluster->nodes[i].pid != 0)
            node_kill(&cluster->nodes[i]);
    }
    node_fini(&cluster->nodes[0]);
}

static void expect_refusal(const struct result *result, const char *words)
{
    ck_assert_msg(result->status == 1, "status %d: %s", result->status, result->output);
    ck_assert_msg(strstr(result->errors, words) != NULL, "%s", result->errors);
}

/* The first item of a list whose key has that text; NULL if there is none. */
static const json_t *find_item(const json_t *items, const char *key, const char *text)
{
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i);

        if (strcmp(item_get_text(item, key), text) == 0)
            return item;
    }
    return NULL;
}

/* The first event of that type about that subject, the caller's to free; NULL if there is none. */
static json_t *find_event(const struct node *node, const char *type, const char *subject)
{
    struct result result;
    char *rest, *line;

    node_covey(node, &result, "--json", "events", NULL);
    for (line = strtok_r(result.output, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        json_t *event = json_loads(line, 0, NULL);

        if (strcmp(item_get_text(event, "type"), type) == 0 &&
            strcmp(item_get_text(event, "subject"), subject) == 0)
            return event;
        json_decref(event);
    }
    return NULL;
}

static bool log_says(const struct node *node, const char *words)
{
    char log[OUTPUT_MAX];

    process_read(node->log, log, sizeof(log));
    return strstr(log, words) != NULL;
}

/* --- Events --------------------------------------------------------------------------------------------- */

START_TEST(test_death_is_told_with_who_suspects_whom_and_why)
{
    struct cluster cluster;
    json_t *event;

    cluster_start(&cluster);
    node_kill(&cluster.nodes[2]);
    PROCESS_AWAIT(view_says(&cluster, 0, "running  quorate  2 of 3 members"));
    event = find_event(&cluster.nodes[0], "suspected", "n2");
    ck_assert_ptr_nonnull(event);
    expect_keys(event, "schema:i number:i time:t type:s subject:s text:s view:i wedge_ms:n");
    ck_assert_ptr_nonnull(strstr(item_get_text(event, "text"), "n0 suspects n2: the link is down (n2 "));
    ck_assert(log_says(&cluster.nodes[0], "n0 suspects n2: the link is down (n2 "));
    json_decref(event);
    cluster_end(&cluster);
}
END_TEST

START_TEST(test_view_is_told_with_who_came_and_went_and_its_wedge)
{
    struct cluster cluster;
    struct result result;
    json_t *event, *stats;
    const json_t *wedge;
    char words[32];

    cluster_start(&cluster);
    node_kill(&cluster.nodes[2]);
    PROCESS_AWAIT(log_says(&cluster.nodes[0], "2 members, -n2; wedged for "));
    node_start(&cluster.nodes[2]);
    PROCESS_AWAIT(log_says(&cluster.nodes[0], "3 members, +n2; wedged for "));
    event = find_event(&cluster.nodes[0], "view", "test");
    expect_keys(event, "schema:i number:i time:t type:s subject:s text:s view:i wedge_ms:r");
    snprintf(words, sizeof(words), "view %d with ", (int)item_get_u64(event, "view"));
    ck_assert_int_eq(strncmp(item_get_text(event, "text"), words, strlen(words)), 0);
    json_decref(event);

    node_covey(&cluster.nodes[0], &result, "--json", "stats", NULL);
    stats = parse_output(&result);
    wedge = find_item(json_object_get(stats, "stats"), "name", "wedge_ms");
    ck_assert_ptr_nonnull(wedge);
    expect_keys(wedge, "name:s value:r unit:s");
    ck_assert_str_eq(item_get_text(wedge, "unit"), "ms");
    ck_assert(item_get_real(wedge, "value") > 0);
    json_decref(stats);
    node_covey(&cluster.nodes[0], &result, "stats", NULL);
    ck_assert_ptr_nonnull(strstr(result.output, "wedge_ms"));
    cluster_end(&cluster);
}
END_TEST

/* Members that stand still, and go on before they are out of any view. */
START_TEST(test_quorum_is_told_when_it_goes_and_when_it_is_back)
{
    struct cluster cluster;
    json_t *event = NULL;

    cluster_start(&cluster);
    kill(cluster.nodes[1].pid, SIGSTOP);
    kill(cluster.nodes[2].pid, SIGSTOP);
    PROCESS_AWAIT((event = find_event(&cluster.nodes[0], "no-quorum", "test")) != NULL);
    json_decref(event);
    event = find_event(&cluster.nodes[0], "suspected", "n1");
    ck_assert_ptr_nonnull(strstr(item_get_text(event, "text"), "its heartbeat stands still for 5 s"));
    json_decref(event);
    ck_assert(view_says(&cluster, 0, "NOT QUORATE"));
    kill(cluster.nodes[1].pid, SIGCONT);
    kill(cluster.nodes[2].pid, SIGCONT);
    PROCESS_AWAIT((event = find_event(&cluster.nodes[0], "quorum", "test")) != NULL);
    json_decref(event);
    cluster_end(&cluster);
}
END_TEST

START_TEST(test_watcher_and_follower_see_the_next_view)
{
    struct cluster cluster;
    const struct node *node = &cluster.nodes[0];
    const char *watch[] = {"./covey", "-s", node->socket, "view", "--watch", NULL};
    const char *follow[] = {"./covey", "-s", node->socket, "events", "--follow", NULL};
    const char *watched, *followed;
    char text[OUTPUT_MAX];
    pid_t watcher, follower;

    cluster_start(&cluster);
    watched = node_path(node, "watched");
    followed = node_path(node, "followed");
    watcher = process_start(watch, watched, "/dev/null");
    follower = process_start(follow, followed, "/dev/null");
    PROCESS_AWAIT((process_read(watched, text, sizeof(text)), strstr(text, "3 of 3 members") != NULL));
    PROCESS_AWAIT((process_read(followed, text, sizeof(text)), strstr(text, "with 3 members") != NULL));
    node_kill(&cluster.nodes[1]);
    PROCESS_AWAIT((process_read(watched, text, sizeof(text)), strstr(text, "2 of 3 members") != NULL));
    PROCESS_AWAIT((process_read(followed, text, sizeof(text)), strstr(text, "with 2 members: -n1") != NULL));
    kill(watcher, SIGTERM);
    kill(follower, SIGTERM);
    process_wait(watcher);
    process_wait(follower);
    cluster_end(&cluster);
}
END_TEST

/* --- The table ------------------------------------------------------------------------------------------ */

START_TEST(test_table_has_a_row_for_each_member)
{
    struct cluster cluster;
    struct result result;
    json_t *table;
    const json_t *rows;

    cluster_start(&cluster);
    node_covey(&cluster.nodes[1], &result, "--json", "table", NULL);
    table = parse_output(&result);
    rows = json_object_get(table, "rows");
    ck_assert_uint_eq(json_array_size(rows), NODES);
    for (unsigned rank = 0; rank < NODES; rank++) {
        const json_t *row = json_array_get(rows, rank);

        ck_assert_uint_eq(item_get_u64(row, "rank"), rank);
        ck_assert_uint_eq(item_get_u64(row, "view"), item_get_u64(table, "number"));
        ck_assert_uint_gt(item_get_u64(row, "heartbeat"), 0);
        ck_assert_int_eq(item_get_bool(row, "self"), strcmp(item_get_text(row, "name"), "n1") == 0);
        ck_assert_uint_eq(json_array_size(json_object_get(row, "suspected")), 0);
    }
    json_decref(table);
    node_covey(&cluster.nodes[1], &result, "table", NULL);
    ck_assert_ptr_nonnull(strstr(result.output, " n1* "));
    cluster_end(&cluster);
}
END_TEST

START_TEST(test_table_shows_whom_a_member_suspects)
{
    struct cluster cluster;
    struct result result;
    json_t *table;
    const json_t *row;

    cluster_start(&cluster);
    node_kill(&cluster.nodes[1]);
    node_kill(&cluster.nodes[2]);
    PROCESS_AWAIT(view_says(&cluster, 0, "NOT QUORATE"));
    node_covey(&cluster.nodes[0], &result, "--json", "table", NULL);
    table = parse_output(&result);
    row = find_item(json_object_get(table, "rows"), "name", "n0");
    ck_assert_uint_gt(json_array_size(json_object_get(row, "suspected")), 0);
    row = find_item(json_object_get(table, "rows"), "name", "n2");
    ck_assert(row == NULL || !item_get_bool(row, "linked"));
    json_decref(table);
    cluster_end(&cluster);
}
END_TEST

/* --- evict ---------------------------------------------------------------------------------------------- */

START_TEST(test_evicted_member_knows_it_and_comes_back_as_a_newcomer)
{
    struct cluster cluster;
    struct result result;
    json_t *document, *event = NULL;

    cluster_start(&cluster);
    node_covey(&cluster.nodes[0], &result, "--json", "evict", "n2", NULL);
    document = parse_output(&result);
    expect_keys(document, "schema:i node:s id:i number:i");
    ck_assert_str_eq(item_get_text(document, "node"), "n2");
    json_decref(document);
    PROCESS_AWAIT((event = find_event(&cluster.nodes[2], "evicted", "n2")) != NULL);
    ck_assert_ptr_nonnull(strstr(item_get_text(event, "text"), "as the operator said at n0"));
    json_decref(event);
    PROCESS_AWAIT(view_says(&cluster, 2, "running  quorate  3 of 3 members"));
    node_covey(&cluster.nodes[1], &result, "evict", "0", NULL); /* by id; the leader */
    ck_assert_int_eq(result.status, 0);
    ck_assert_str_eq(result.output, "n0 was evicted\n");
    cluster_end(&cluster);
}
END_TEST

START_TEST(test_evict_says_why_it_cannot)
{
    struct cluster cluster;
    struct result result;
    struct node alone;

    cluster_start(&cluster);
    node_covey(&cluster.nodes[0], &result, "evict", "n7", NULL);
    expect_refusal(&result, "has no member called n7");
    node_kill(&cluster.nodes[1]);
    node_kill(&cluster.nodes[2]);
    PROCESS_AWAIT(view_says(&cluster, 0, "NOT QUORATE"));
    node_covey(&cluster.nodes[0], &result, "evict", "n0", NULL);
    expect_refusal(&result, "cannot evict n0 now: no quorum");
    cluster_end(&cluster);

    node_init(&alone, 1);
    node_start(&alone);
    node_covey(&alone, &result, "evict", "n0", NULL);
    expect_refusal(&result, "n0 is the last member of view 1");
    node_covey(&alone, &result, "view", NULL);
    ck_assert_int_eq(result.status, 0);
    node_fini(&alone);
}
END_TEST

/* --- leave ---------------------------------------------------------------------------------------------- */

/* A polite leave is no suspicion: nobody has to find out. */
START_TEST(test_leave_is_told_and_suspected_by_nobody)
{
    struct cluster cluster;
    struct result result;
    json_t *document;

    cluster_start(&cluster);
    node_covey(&cluster.nodes[2], &result, "--json", "leave", NULL);
    document = parse_output(&result);
    expect_keys(document, "schema:i node:s");
    json_decref(document);
    ck_assert_int_eq(process_wait(cluster.nodes[2].pid), 0);
    cluster.nodes[2].pid = 0;
    ck_assert(view_says(&cluster, 0, "running  quorate  2 of 3 members"));
    ck_assert(log_says(&cluster.nodes[0], "2 members, -n2; wedged for "));
    ck_assert(!log_says(&cluster.nodes[0], "suspects"));
    cluster_end(&cluster);
}
END_TEST

/* --- view force ----------------------------------------------------------------------------------------- */

/* Run covey view force at a terminal and answer what it asks; its exit status, and all that it said. */
static int force_at_terminal(const struct node *node, const char *answer, char *said, size_t room)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    bool asked = false;
    size_t bytes = 0;
    ssize_t got;
    pid_t pid;

    ck_assert_int_ge(master, 0);
    ck_assert(grantpt(master) == 0 && unlockpt(master) == 0);
    pid = fork();
    if (pid == 0) {
        int terminal;

        setsid();
        terminal = open(ptsname(master), O_RDWR);
        dup2(terminal, STDIN_FILENO);
        dup2(terminal, STDOUT_FILENO);
        dup2(terminal, STDERR_FILENO);
        execl("./covey", "covey", "-s", node->socket, "view", "force", NULL);
        _exit(127);
    }
    memset(said, 0, room);
    while ((got = read(master, said + bytes, room - 1 - bytes)) > 0) {
        bytes += (size_t)got;
        if (asked || strstr(said, "[y/N]") == NULL)
            continue;
        asked = true;
        ck_assert_int_eq(write(master, answer, strlen(answer)), (ssize_t)strlen(answer));
    }
    close(master);
    return process_wait(pid);
}

START_TEST(test_view_is_forced_only_without_quorum_and_with_consent)
{
    struct cluster cluster;
    struct result result;
    char said[4096], epoch[64];
    const struct node *node = &cluster.nodes[0];

    cluster_start(&cluster);
    node_covey(node, &result, "view", "force", "--yes", NULL);
    expect_refusal(&result, "has a quorum: there is nothing to force");
    ck_assert_int_eq(force_at_terminal(node, "y\n", said, sizeof(said)), 1);
    ck_assert_ptr_nonnull(strstr(said, "is quorate: there is nothing to force"));
    node_kill(&cluster.nodes[1]);
    node_kill(&cluster.nodes[2]);
    PROCESS_AWAIT(view_says(&cluster, 0, "NOT QUORATE"));
    node_covey(node, &result, "view", NULL);
    ck_assert_int_eq(result.status, 2);
    snprintf(epoch, sizeof(epoch), "%.22s", strstr(result.output, "epoch "));

    node_covey(node, &result, "view", "force", NULL);
    ck_assert_int_eq(result.status, 64);
    ck_assert_int_eq(force_at_terminal(node, "n\n", said, sizeof(said)), 1);
    ck_assert_ptr_nonnull(strstr(said, "nothing was done"));
    ck_assert(view_says(&cluster, 0, "NOT QUORATE"));
    ck_assert_int_eq(force_at_terminal(node, "y\n", said, sizeof(said)), 0);
    ck_assert_ptr_nonnull(strstr(said, "is quorate with 1 members"));

    node_covey(node, &result, "view", NULL);
    ck_assert_int_eq(result.status, 0);
    ck_assert_ptr_null(strstr(result.output, epoch));
    ck_assert(log_says(node, "n0 goes on without a quorum, as its operator said"));
    cluster_end(&cluster);
}
END_TEST

START_TEST(test_forced_view_in_json)
{
    struct cluster cluster;
    struct result result;
    json_t *document;

    cluster_start(&cluster);
    node_kill(&cluster.nodes[1]);
    node_kill(&cluster.nodes[2]);
    PROCESS_AWAIT(view_says(&cluster, 0, "NOT QUORATE"));
    node_covey(&cluster.nodes[0], &result, "--json", "view", "force", "--yes", NULL);
    document = parse_output(&result);
    expect_keys(document, "schema:i number:i epoch:x size:i");
    ck_assert_uint_eq(item_get_u64(document, "size"), 1);
    json_decref(document);
    cluster_end(&cluster);
}
END_TEST

/* --- Other versions ------------------------------------------------------------------------------------- */

/* Greet n0 as node 1 of a release to come, from the address of all nodes. */
static void greet_as_version_2(const struct node *node)
{
    unsigned char greeting[48] = "COVEY\r\n\x1a\x02\x00\x01\x00", answer[48];
    struct sockaddr_in address = {.sin_family = AF_INET};
    char host[32];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(host, sizeof(host), "%.*s", (int)strcspn(node->address, ":"), node->address);
    ck_assert_int_eq(inet_pton(AF_INET, host, &address.sin_addr), 1);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    address.sin_port = htons(7400);
    ck_assert_msg(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "%s: %s", host,
                  strerror(errno));
    ck_assert_int_eq(write(fd, greeting, sizeof(greeting)), sizeof(greeting));
    while (read(fd, answer, sizeof(answer)) > 0)
        ;
    close(fd);
}

/* M26: a peer of another version is named as that, not as one that is away. */
START_TEST(test_view_and_log_tell_a_peer_of_another_version)
{
    struct node node;
    struct result result;
    const char *words = "speaks protocol version 2, this node version 1";

    node_init(&node, 2);
    node_start(&node);
    PROCESS_AWAIT((greet_as_version_2(&node), node_covey(&node, &result, "view", NULL),
                   strstr(result.output, words) != NULL));
    ck_assert(log_says(&node, words));
    node_fini(&node);
}
END_TEST

SUITE_MAIN("views", 120, SUITE_TEST(test_death_is_told_with_who_suspects_whom_and_why),
           SUITE_TEST(test_view_is_told_with_who_came_and_went_and_its_wedge),
           SUITE_TEST(test_quorum_is_told_when_it_goes_and_when_it_is_back),
           SUITE_TEST(test_watcher_and_follower_see_the_next_view),
           SUITE_TEST(test_table_has_a_row_for_each_member),
           SUITE_TEST(test_table_shows_whom_a_member_suspects),
           SUITE_TEST(test_evicted_member_knows_it_and_comes_back_as_a_newcomer),
           SUITE_TEST(test_evict_says_why_it_cannot), SUITE_TEST(test_leave_is_told_and_suspected_by_nobody),
           SUITE_TEST(test_view_is_forced_only_without_quorum_and_with_consent),
           SUITE_TEST(test_forced_view_in_json), SUITE_TEST(test_view_and_log_tell_a_peer_of_another_version))
