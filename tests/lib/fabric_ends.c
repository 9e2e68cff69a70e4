/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/lib/fabric_ends.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define EVENTS_MAX 64
#define DRAIN_MAX  200 /* events */

uint64_t ends_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void words_add(struct words *words, uint64_t word)
{
    if (words->count == words->room) {
        words->room = words->room == 0 ? 64 : 2 * words->room;
        words->at = realloc(words->at, words->room * sizeof(word));
        ck_assert_ptr_nonnull(words->at);
    }
    words->at[words->count++] = word;
}

/* --- Hosts ---------------------------------------------------------------------------------------------- */

const char *ends_provider(void)
{
    const char *provider = getenv("COVEY_TEST_PROVIDER");

    return provider == NULL ? "tcp" : provider;
}

void ends_address(struct sockaddr_storage *address, size_t *bytes)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    const char *text = getenv("COVEY_TEST_ADDRESS");
    struct addrinfo *info;

    ck_assert_int_eq(getaddrinfo(text == NULL ? "127.0.0.1" : text, NULL, &hints, &info), 0);
    memcpy(address, info->ai_addr, info->ai_addrlen);
    *bytes = info->ai_addrlen;
    freeaddrinfo(info);
}

int ends_run(const char *name, const struct suite_test *tests, size_t count, double timeout)
{
    struct suite_test *chosen = calloc(count, sizeof(*chosen));
    const char *only = getenv("COVEY_TEST_ONLY");
    size_t chosen_count = 0;
    int status;

    for (size_t i = 0; i < count; i++) {
        if (only == NULL || strstr(tests[i].test->name, only) != NULL)
            chosen[chosen_count++] = tests[i];
    }
    status = suite_run(name, chosen, chosen_count, timeout);
    free(chosen);
    return status;
}

void ends_load(void)
{
    static const struct log quiet;
    const struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct fabric_options options = {.provider = "no-such-provider",
                                           .address = (const struct sockaddr *)&address,
                                           .address_bytes = sizeof(address),
                                           .log = &quiet};
    struct fabric *fabric;
    struct fail fail;

    if (strcmp(ends_provider(), "tcp") == 0 && fabric_open(&options, &fabric, &fail) == 0)
        fabric_close(fabric);
}

void host_open(struct host *host, const struct fabric_options *extra)
{
    static const struct log quiet;
    struct fabric_options options = {.provider = ends_provider(), .log = &quiet};
    struct sockaddr_storage address;
    struct fail fail;

    ends_address(&address, &options.address_bytes);
    options.address = (const struct sockaddr *)&address;
    if (extra != NULL) {
        options.connect_timeout_ns = extra->connect_timeout_ns;
        options.write_bytes_limit = extra->write_bytes_limit;
    }
    host->max_events = EVENTS_MAX;
    ck_assert_msg(fabric_open(&options, &host->fabric, &fail) == 0, "%s", fail.text);
}

void host_close(struct host *host)
{
    fabric_close(host->fabric);
}

static void end_message(struct end *end, const struct fabric_event *event)
{
    ck_assert_uint_ge(event->bytes, 1);
    ck_assert_uint_le(event->bytes, FABRIC_MESSAGE_MAX);
    words_add(&end->lengths, event->bytes);
    if (end->forgets)
        return;
    end->bytes = realloc(end->bytes, end->byte_count + event->bytes);
    ck_assert_ptr_nonnull(end->bytes);
    memcpy(end->bytes + end->byte_count, event->data, event->bytes);
    end->byte_count += event->bytes;
}

static void end_event(const struct fabric_event *event)
{
    struct end *end = event->context;

    ck_assert_msg(!end->down, "an event of type %d after LINK_DOWN", (int)event->type);
    ck_assert_msg(end->up || event->type == FABRIC_LINK_UP || event->type == FABRIC_LINK_DOWN,
                  "an event of type %d before LINK_UP", (int)event->type);
    ck_assert_ptr_eq(event->link, end->link);
    switch (event->type) {
    case FABRIC_LINK_UP:
        ck_assert(!end->up);
        end->up = true;
        break;
    case FABRIC_LINK_DOWN:
        end->down = true;
        end->error = event->error;
        snprintf(end->text, sizeof(end->text), "%s", event->text);
        ck_assert_uint_gt(strlen(event->text), 0);
        break;
    case FABRIC_ARRIVED:
        words_add(&end->immediates, event->immediate);
        break;
    case FABRIC_WRITE_DONE:
        words_add(&end->cookies, event->cookie);
        break;
    case FABRIC_MESSAGE:
        end_message(end, event);
        break;
    }
    if (end->on_event != NULL)
        end->on_event(end, event);
}

size_t host_poll(struct host *host)
{
    struct fabric_event events[EVENTS_MAX];
    size_t count = fabric_poll(host->fabric, events, host->max_events);

    ck_assert_uint_le(count, host->max_events);
    for (size_t i = 0; i < count; i++)
        end_event(&events[i]);
    return count;
}

bool host_drain(struct host *host)
{
    size_t count, total = 0;

    do {
        count = host_poll(host);
        total += count;
    } while (count > 0 && total < DRAIN_MAX);
    return total > 0;
}

void hosts_step(struct host *a, struct host *b, int fd)
{
    struct host *hosts[] = {a, b};
    struct pollfd fds[3];
    nfds_t count = 0;
    bool busy = false;

    for (int i = 0; i < 2; i++) {
        if (hosts[i] == NULL)
            continue;
        busy |= host_drain(hosts[i]);
        fds[count++] = (struct pollfd){.fd = fabric_fd(hosts[i]->fabric), .events = POLLIN};
    }
    for (int i = 0; i < 2 && !busy; i++)
        busy = hosts[i] != NULL && !fabric_arm(hosts[i]->fabric);
    if (fd >= 0)
        fds[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
    if (!busy)
        poll(fds, count, 1000);
}

/* --- Links ---------------------------------------------------------------------------------------------- */

void ends_token(uint64_t number, uint8_t token[FABRIC_TOKEN_BYTES])
{
    memset(token, 0x5a, FABRIC_TOKEN_BYTES);
    memcpy(token, &number, sizeof(number));
}

void ends_join(struct host *a, struct host *b, enum fabric_lane lane, uint64_t number, struct end *from,
               struct end *to)
{
    uint8_t token[FABRIC_TOKEN_BYTES], address[FABRIC_ADDRESS_MAX];
    size_t bytes = fabric_address(b->fabric, address);
    struct fail fail;

    ends_token(number, token);
    from->host = a;
    to->host = b;
    ck_assert_msg(fabric_link_expect(b->fabric, lane, token, to, &to->link, &fail) == 0, "%s", fail.text);
    ck_assert_msg(fabric_link_connect(a->fabric, lane, address, bytes, token, from, &from->link, &fail) == 0,
                  "%s", fail.text);
}

void end_free(struct end *end)
{
    fabric_link_free(end->link);
    free(end->immediates.at);
    free(end->cookies.at);
    free(end->lengths.at);
    free(end->bytes);
    memset(end, 0, sizeof(*end));
}

void end_close(struct end *end, struct host *peer)
{
    fabric_link_close(end->link);
    HOSTS_UNTIL(end->host, peer, end->down);
    end_free(end);
}

void pair_open(struct pair *pair, const struct fabric_options *extra)
{
    pair_open_lane(pair, FABRIC_DATA, extra);
}

void pair_open_lane(struct pair *pair, enum fabric_lane lane, const struct fabric_options *extra)
{
    memset(pair, 0, sizeof(*pair));
    host_open(&pair->a, extra);
    host_open(&pair->b, extra);
    ends_join(&pair->a, &pair->b, lane, 1, &pair->from, &pair->to);
    PAIR_UNTIL(pair, (pair->from.up && pair->to.up) || pair->from.down);
    ck_assert_msg(!pair->from.down, "%s", pair->from.text);
}

void pair_close(struct pair *pair)
{
    end_close(&pair->from, &pair->b);
    end_close(&pair->to, &pair->a);
    host_close(&pair->a);
    host_close(&pair->b);
}

void pair_write(struct pair *pair, const struct fabric_write *write)
{
    int error;

    while ((error = fabric_write(pair->from.link, write)) == COVEY_AGAIN)
        hosts_step(&pair->a, &pair->b, -1);
    ck_assert_int_eq(error, 0);
}

void pair_send(struct pair *pair, const void *data, size_t bytes)
{
    int error;

    while ((error = fabric_send(pair->from.link, data, bytes)) == COVEY_AGAIN)
        hosts_step(&pair->a, &pair->b, -1);
    ck_assert_int_eq(error, 0);
}

/* --- Memory --------------------------------------------------------------------------------------------- */

void target_open(struct target *target, struct host *host, size_t bytes, bool remote)
{
    struct fail fail;

    target->bytes = bytes;
    target->base =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert_ptr_ne(target->base, MAP_FAILED);
    ck_assert_msg(fabric_register(host->fabric, target->base, bytes, COVEY_MEMORY_HOST, 0, remote,
                                  &target->region, &fail) == 0,
                  "%s", fail.text);
    fabric_region_remote(target->region, &target->address, &target->key);
}

void target_close(struct target *target)
{
    fabric_deregister(target->region);
    munmap(target->base, target->bytes);
}

struct fabric_write target_write(const struct target *from, const struct target *to, size_t offset,
                                 size_t bytes)
{
    static struct fabric_piece pieces[8];
    static size_t next;
    struct fabric_piece *piece = &pieces[next++ % 8];

    *piece = (struct fabric_piece){.base = from->base + offset, .bytes = bytes, .region = from->region};
    return (struct fabric_write){.pieces = piece,
                                 .count = 1,
                                 .remote_address = to->address + offset,
                                 .remote_key = to->key,
                                 .immediate = FABRIC_IMMEDIATE_NONE};
}
