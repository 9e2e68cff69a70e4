/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/lib/peers_lab.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char cluster_name[] = "demo", provider[] = "tcp", group_name[] = "g";
static uint8_t secret[] = "sixteen bytes or more";

/* Check's own assertions work inside of its tests only; a node may run in a process beside them. */
#define NEED(condition, text)                                                  \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s: needs %s: %s\n", __func__, #condition, text); \
            abort();                                                           \
        }                                                                      \
    } while (0)

/* --- A node --------------------------------------------------------------------------------------------- */

static void keep_line(void *context, enum covey_log_level level, const char *line)
{
    struct lab_lines *lines = context;

    (void)level;
    if (lines->count < sizeof(lines->text) / sizeof(lines->text[0]))
        snprintf(lines->text[lines->count++], FAIL_TEXT_MAX, "%s", line);
}

size_t lab_logged(const struct lab_node *node, const char *part)
{
    size_t count = 0;

    for (size_t i = 0; i < node->lines.count; i++)
        count += strstr(node->lines.text[i], part) != NULL;
    return count;
}

static void on_up(void *context, struct peer *peer)
{
    struct lab_node *node = context;

    node->ups++;
    NEED(peer->up && peer->incarnation != 0, "");
    NEED(strcmp(peer->problem, "") == 0, peer->problem);
    if (node->send_on_up)
        NEED(fabric_send(peer->links[FABRIC_CONTROL], "hello", 5) == COVEY_OK, "");
    if (node->disconnect_on_up)
        peers_disconnect(node->peers, peer, COVEY_PROTOCOL, "a test does not like it");
}

static void on_down(void *context, struct peer *peer, int error, const char *text)
{
    struct lab_node *node = context;

    NEED(!peer->up && error < 0 && text[0] != '\0', "");
    NEED(peer->links[FABRIC_CONTROL] != NULL && peer->links[FABRIC_DATA] != NULL, "");
    node->downs++;
    snprintf(node->last_down, sizeof(node->last_down), "%s", text);
}

static void on_event(void *context, struct peer *peer, enum fabric_lane lane,
                     const struct fabric_event *event)
{
    struct lab_node *node = context;

    NEED(peer->up && peer->links[lane] == event->link, "");
    if (event->type == FABRIC_MESSAGE) {
        node->messages++;
        snprintf(node->last_message, sizeof(node->last_message), "%.*s", (int)event->bytes,
                 (const char *)event->data);
    }
}

/* Before the loop sleeps: what was closed in this turn may have ended already. */
static void poll_fabric(uv_prepare_t *turn)
{
    struct lab_node *node = turn->data;
    struct fabric_event list[4];
    size_t count;

    do {
        count = fabric_poll(node->fabric, list, sizeof(list) / sizeof(list[0]));
        for (size_t i = 0; i < count; i++)
            peers_fabric_event(node->peers, &list[i]);
    } while (count > 0 || !fabric_arm(node->fabric));
}

/* The descriptor only ends the sleep. */
static void fabric_readable(uv_poll_t *watch, int status, int events)
{
    (void)watch;
    (void)status;
    (void)events;
}

void lab_node_set_address(struct node_options *node, uint32_t host, uint16_t port)
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

static uint32_t host_base;

void lab_set_hosts(uint32_t base)
{
    host_base = base;
}

uint32_t lab_host(uint16_t n)
{
    if (host_base == 0)
        host_base = ((uint32_t)getpid() & 0xffff) << 8;
    return host_base | (n + 1u);
}

static struct node_options make_options(uint16_t id)
{
    struct node_options node = {.id = id};
    char name[16];

    snprintf(name, sizeof(name), "n%u", id);
    node.name = strdup(name);
    lab_node_set_address(&node, lab_host(id), LAB_PORT);
    return node;
}

void lab_node_init(struct lab_node *node, uv_loop_t *loop, uint16_t id, size_t count)
{
    *node = (struct lab_node){.id = id, .loop = loop, .incarnation = 100 + id};
    for (uint16_t i = 0; i < count; i++)
        node->list[i] = make_options(i);
    node->group = (struct group_options){.name = group_name, .all = true, .keep_versions = 1};
    node->options = (struct covey_options){.cluster_name = cluster_name,
                                           .secret = secret,
                                           .secret_bytes = sizeof(secret),
                                           .heartbeat_ns = 100000000,
                                           .suspect_after_ns = 1000000000,
                                           .nodes = node->list,
                                           .node_count = count,
                                           .self = make_options(id),
                                           .elastic = id >= count,
                                           .provider = provider,
                                           .groups = &node->group,
                                           .group_count = 1};
    node->callbacks = (struct peers_callbacks){on_up, on_down, on_event};
    node->log = (struct log){keep_line, &node->lines, COVEY_LOG_DEBUG};
}

int lab_node_try_open(struct lab_node *node, struct fail *fail)
{
    struct fabric_options options = {.provider = node->options.provider,
                                     .address = (const struct sockaddr *)&node->options.self.sockaddr,
                                     .address_bytes = node->options.self.sockaddr_bytes,
                                     .log = &node->log};
    int result;

    NEED(fabric_open(&options, &node->fabric, fail) == COVEY_OK, fail->text);
    result = peers_open(node->loop, &node->options, node->incarnation, node->fabric, &node->log,
                        &node->callbacks, node, &node->peers, fail);
    if (result != COVEY_OK) {
        fabric_close(node->fabric);
        node->fabric = NULL;
        return result;
    }
    NEED(uv_poll_init(node->loop, &node->watch, fabric_fd(node->fabric)) == 0, "");
    NEED(uv_poll_start(&node->watch, UV_READABLE, fabric_readable) == 0, "");
    uv_prepare_init(node->loop, &node->turn);
    node->turn.data = node;
    uv_prepare_start(&node->turn, poll_fabric);
    return COVEY_OK;
}

void lab_node_open(struct lab_node *node)
{
    struct fail fail;

    NEED(lab_node_try_open(node, &fail) == COVEY_OK, fail.text);
}

static void on_closed(void *context)
{
    struct lab_node *node = context;

    node->peers = NULL;
}

void lab_node_close(struct lab_node *node)
{
    if (node->peers == NULL)
        return;
    peers_close(node->peers, on_closed);
    while (node->peers != NULL)
        uv_run(node->loop, UV_RUN_ONCE);
    NEED(node->ups == node->downs, "");
    uv_close((uv_handle_t *)&node->watch, NULL);
    uv_close((uv_handle_t *)&node->turn, NULL);
    uv_run(node->loop, UV_RUN_NOWAIT);
    fabric_close(node->fabric);
    node->fabric = NULL;
}

static void free_options(struct node_options *node)
{
    free(node->name);
    free(node->address);
}

void lab_node_fini(struct lab_node *node)
{
    lab_node_close(node);
    for (size_t i = 0; i < node->options.node_count; i++)
        free_options(&node->list[i]);
    free_options(&node->options.self);
}

/* --- A lab ------------------------------------------------------------------------------------------ */

struct lab *lab_new(size_t count)
{
    struct lab *lab = calloc(1, sizeof(*lab));

    NEED(uv_loop_init(&lab->loop) == 0, "");
    lab->count = count;
    for (size_t i = 0; i < count; i++)
        lab_node_init(&lab->nodes[i], &lab->loop, (uint16_t)i, count);
    return lab;
}

void lab_open(struct lab *lab)
{
    for (size_t i = 0; i < lab->count; i++)
        lab_node_open(&lab->nodes[i]);
}

void lab_free(struct lab *lab)
{
    for (size_t i = 0; i < LAB_NODES_MAX; i++)
        lab_node_fini(&lab->nodes[i]);
    while (uv_run(&lab->loop, UV_RUN_NOWAIT) != 0)
        ;
    NEED(uv_loop_close(&lab->loop) == 0, "");
    free(lab);
}

void lab_wake(uv_timer_t *timer)
{
    (void)timer;
}

bool lab_is_up(const struct lab_node *node, uint32_t id)
{
    return peers_find(node->peers, id) != NULL && peers_find(node->peers, id)->up;
}

bool lab_all_up(const struct lab *lab)
{
    for (size_t i = 0; i < lab->count; i++) {
        for (uint32_t id = 0; id < lab->count; id++) {
            if (id != i && !lab_is_up(&lab->nodes[i], id))
                return false;
        }
    }
    return true;
}

bool lab_problem_has(const struct lab_node *node, uint32_t id, const char *part)
{
    return strstr(peers_find(node->peers, id)->problem, part) != NULL;
}

int lab_connect(const struct lab_node *node)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    NEED(fd >= 0, "");
    NEED(connect(fd, (const struct sockaddr *)&node->options.self.sockaddr,
                 node->options.self.sockaddr_bytes) == 0,
         strerror(errno));
    return fd;
}

bool lab_has_ended(int fd)
{
    char bytes[4096];
    ssize_t count;

    do {
        count = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    } while (count > 0);
    return count == 0 || errno == ECONNRESET;
}
