/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of peers, what is wrong with each, opening and closing. */

#include "node/peers.h"

#include <assert.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "node/peers_private.h"
#include "node/tcp.h"

_Static_assert(HANDSHAKE_PARTS == OPTIONS_PARTS, "a digest of each part goes into the handshake");
_Static_assert(HANDSHAKE_NAME_MAX == COVEY_NAME_MAX, "names fit into the handshake");
_Static_assert(HANDSHAKE_LISTEN_BYTES == TCP_ADDRESS_BYTES, "an address goes into the handshake");

static const struct peers_timing default_timing = {
    .connect = 5000,
    .handshake = 5000,
    .probe = 1000,
    .link = 15000, /* the fabric's own limit comes first, and says more */
    .linger = 1000,
    .backoff_min = 50,
    .backoff_max = 2000,
    .knock = 3000,
    .half_open_grace = 200,
};

/* --- The list ------------------------------------------------------------------------------------------- */

/* Index of the first entry whose id is not below id. */
static size_t entry_index(const struct peers *peers, uint32_t id)
{
    size_t low = 0, high = peers->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (peers->entries[middle]->peer.id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct entry *entry_find(const struct peers *peers, uint32_t id)
{
    size_t index = entry_index(peers, id);

    if (index < peers->count && peers->entries[index]->peer.id == id)
        return peers->entries[index];
    return NULL;
}

/* Without its timer yet. */
static struct entry *entry_new(struct peers *peers, uint32_t id, const char *name, const char *address)
{
    const struct node_options *options = options_node(peers->options, id);
    size_t index = entry_index(peers, id);
    struct entry *entry = calloc(1, sizeof(*entry));

    assert(peers->count < COVEY_MEMBERS_MAX);
    if (entry == NULL)
        return NULL;
    entry->peers = peers;
    entry->peer.id = id;
    entry->peer.options = options;
    if (options != NULL) {
        entry->peer.sockaddr = options->sockaddr;
        entry->peer.sockaddr_bytes = options->sockaddr_bytes;
        entry->wanted = true;
    }
    snprintf(entry->peer.name, sizeof(entry->peer.name), "%s", name);
    snprintf(entry->peer.address, sizeof(entry->peer.address), "%s", address);
    snprintf(entry->peer.problem, sizeof(entry->peer.problem), "%s (%s) has not connected yet", name,
             address);
    entry->peer.problem_code = COVEY_UNREACHABLE;
    memmove(&peers->entries[index + 1], &peers->entries[index],
            (peers->count - index) * sizeof(peers->entries[0]));
    peers->entries[index] = entry;
    peers->count++;
    return entry;
}

static void entry_open(struct entry *entry)
{
    uv_timer_init(entry->peers->loop, &entry->retry);
    entry->retry.data = entry;
    peers_handle_opened(entry->peers);
}

struct entry *entry_add(struct peers *peers, uint32_t id, const char *name, const char *address)
{
    struct entry *entry = entry_new(peers, id, name, address);

    if (entry != NULL)
        entry_open(entry);
    return entry;
}

void entry_describe(struct entry *entry, const struct handshake_identity *peer)
{
    if (entry->peer.options != NULL)
        return;
    memcpy(entry->peer.name, peer->name, sizeof(peer->name));
    memcpy(entry->peer.address, peer->address, sizeof(peer->address));
    tcp_decode_address(peer->listen, &entry->peer.sockaddr, &entry->peer.sockaddr_bytes);
}

size_t peers_count(const struct peers *peers)
{
    return peers != NULL ? peers->count : 0;
}

struct peer *peers_at(const struct peers *peers, size_t index)
{
    assert(index < peers->count);
    return &peers->entries[index]->peer;
}

struct peer *peers_find(const struct peers *peers, uint32_t id)
{
    struct entry *entry = peers != NULL ? entry_find(peers, id) : NULL;

    return entry != NULL ? &entry->peer : NULL;
}

int peers_learn(struct peers *peers, uint32_t id, const struct sockaddr_storage *address, socklen_t bytes,
                struct fail *fail)
{
    struct entry *entry = entry_find(peers, id);
    char name[32], host[TCP_HOST_MAX];

    if (peers->closing || id == peers->options->self.id || options_node(peers->options, id) != NULL)
        return COVEY_OK;
    if (entry == NULL) {
        if (peers->count + 1 >= COVEY_MEMBERS_MAX)
            return fail_set(fail, COVEY_BUSY, "node %u is one more than fit into a cluster", id);
        snprintf(name, sizeof(name), "node %u", id);
        tcp_host_text(address, host);
        entry = entry_add(peers, id, name, host);
        if (entry == NULL)
            return fail_set(fail, COVEY_NO_MEMORY, "out of memory for node %u", id);
    }
    entry->peer.sockaddr = *address;
    entry->peer.sockaddr_bytes = bytes;
    entry->wanted = true;
    if (!uv_is_active((uv_handle_t *)&entry->retry))
        dial_again(entry);
    return COVEY_OK;
}

void peers_forget(struct peers *peers, struct peer *peer)
{
    struct entry *entry = (struct entry *)peer;

    assert(entry->peers == peers);
    if (peer->options != NULL || peers->closing)
        return;
    entry->wanted = false;
    uv_timer_stop(&entry->retry);
}

void peers_disconnect(struct peers *peers, struct peer *peer, int error, const char *text)
{
    struct entry *entry = (struct entry *)peer;

    assert(entry->peers == peers);
    if (entry->current == NULL)
        return;
    entry->current->muted = true;
    conn_close(entry->current, error, "was disconnected: %s", text);
}

/* --- What is wrong -------------------------------------------------------------------------------------- */

void entry_problem(struct entry *entry, int code, const char *format, ...)
{
    struct peer *peer = &entry->peer;
    char text[FAIL_TEXT_MAX];
    struct fail sentence;
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fail_set(&sentence, code, "%s", text);
    fail_prefix(&sentence, "%s (%s) ", peer->name, peer->address);
    peer->problem_code = code;
    if (strcmp(sentence.text, peer->problem) == 0)
        return;
    memcpy(peer->problem, sentence.text, sizeof(sentence.text));
    if (!entry->peers->closing)
        log_warning(entry->peers->log, "%s", sentence.text);
}

/* The one that was said longest ago makes room. */
void peers_complain(struct peers *peers, const char *format, ...)
{
    struct stranger *oldest = &peers->strangers[0];
    uint64_t now_ns = uv_hrtime();
    char text[FAIL_TEXT_MAX];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    for (size_t i = 0; i < PEERS_STRANGERS; i++) {
        struct stranger *stranger = &peers->strangers[i];
        if (strcmp(stranger->text, text) == 0 && now_ns - stranger->said_ns < PEERS_STRANGER_HUSH_NS)
            return;
        if (stranger->said_ns < oldest->said_ns)
            oldest = stranger;
    }
    memcpy(oldest->text, text, sizeof(text));
    oldest->said_ns = now_ns;
    log_warning(peers->log, "%s", text);
}

/* --- Opening -------------------------------------------------------------------------------------------- */

static int fill_local(struct peers *peers, uint64_t incarnation, struct fail *fail)
{
    const struct covey_options *options = peers->options;
    struct handshake_local *local = &peers->local;
    struct handshake_identity *self = &local->self;

    if (handshake_key_init(&local->key, options->secret,
                           options->secret != NULL ? options->secret_bytes : 0) != COVEY_OK)
        return fail_set(fail, COVEY_UNSUPPORTED, "libsodium finds no source of random bytes here");
    self->id = (uint16_t)options->self.id;
    self->elastic = options->elastic;
    self->incarnation = incarnation;
    snprintf(self->cluster, sizeof(self->cluster), "%s", options->cluster_name);
    snprintf(self->name, sizeof(self->name), "%s", options->self.name);
    snprintf(self->address, sizeof(self->address), "%s", options->self.address);
    snprintf(self->provider, sizeof(self->provider), "%s", fabric_provider(peers->fabric));
    tcp_encode_address(&options->self.sockaddr, self->listen);
    self->fabric_address_bytes = fabric_address(peers->fabric, self->fabric_address);
    for (int i = 0; i < OPTIONS_PARTS; i++) {
        self->parts[i] = options_part_digest(options, (enum options_part)i);
        local->part_names[i] = options_part_name((enum options_part)i);
    }
    local->admit = accept_admit;
    local->context = peers;
    return COVEY_OK;
}

static void peers_free(struct peers *peers)
{
    for (size_t i = 0; i < peers->count; i++)
        free(peers->entries[i]);
    free(peers->entries);
    sodium_memzero(&peers->local.key, sizeof(peers->local.key));
    free(peers);
}

static int add_listed(struct peers *peers)
{
    const struct covey_options *options = peers->options;

    for (size_t i = 0; i < options->node_count; i++) {
        const struct node_options *node = &options->nodes[i];
        if (node->id != options->self.id && entry_new(peers, node->id, node->name, node->address) == NULL)
            return COVEY_NO_MEMORY;
    }
    return COVEY_OK;
}

/* Those that this node dials at once; whether the others are there is looked at if they do not come. */
static void begin_dialing(struct peers *peers)
{
    for (size_t i = 0; i < peers->count; i++) {
        struct entry *entry = peers->entries[i];
        entry_open(entry);
        if (dial_is_ours(peers, entry->peer.id, false))
            dial_schedule(entry, 0);
        else
            dial_again(entry);
    }
}

/* Everything that can fail, the handle of the listener last: a handle that is open takes a turn of the loop
 * to close. */
static int open_all(struct peers *peers, uint64_t incarnation, struct fail *fail)
{
    const struct node_options *self = &peers->options->self;
    int result = fill_local(peers, incarnation, fail);

    if (result != COVEY_OK)
        return result;
    if (add_listed(peers) != COVEY_OK)
        return fail_set(fail, COVEY_NO_MEMORY, "out of memory for the list of peers");
    result = tcp_listen(&self->sockaddr, self->sockaddr_bytes, self->address, &peers->listener, fail);
    if (result != COVEY_OK)
        return result;
    result = accept_open(peers);
    if (result != 0) {
        close(peers->listener);
        return fail_set(fail, COVEY_IO, "cannot watch the socket that listens at %s: %s", self->address,
                        uv_strerror(result));
    }
    begin_dialing(peers);
    return COVEY_OK;
}

int peers_open(uv_loop_t *loop, const struct covey_options *options, uint64_t incarnation,
               struct fabric *fabric, const struct log *log, const struct peers_callbacks *callbacks,
               void *context, struct peers **peers, struct fail *fail)
{
    struct peers *opened = calloc(1, sizeof(*opened));
    struct entry **entries = calloc(COVEY_MEMBERS_MAX, sizeof(struct entry *));
    int result;

    assert(incarnation != 0);
    if (opened == NULL || entries == NULL) {
        free(opened);
        free(entries);
        return fail_set(fail, COVEY_NO_MEMORY, "out of memory for the list of peers");
    }
    *opened = (struct peers){.loop = loop,
                             .options = options,
                             .fabric = fabric,
                             .log = log,
                             .callbacks = callbacks,
                             .context = context,
                             .timing = default_timing,
                             .entries = entries};
    rng_init(&opened->rng, incarnation);
    result = open_all(opened, incarnation, fail);
    if (result == COVEY_OK)
        *peers = opened;
    else
        peers_free(opened);
    return result;
}

/* --- Closing -------------------------------------------------------------------------------------------- */

void peers_handle_opened(struct peers *peers)
{
    peers->open_handles++;
}

void peers_handle_closed(struct peers *peers)
{
    void (*closed)(void *context) = peers->closed;
    void *context = peers->context;

    assert(peers->open_handles > 0);
    if (--peers->open_handles > 0 || !peers->closing)
        return;
    peers_free(peers);
    closed(context);
}

static void entry_handle_closed(uv_handle_t *handle)
{
    struct entry *entry = handle->data;

    peers_handle_closed(entry->peers);
}

void peers_close(struct peers *peers, void (*closed)(void *context))
{
    struct conn *next;

    assert(!peers->closing);
    peers->closed = closed;
    peers->closing = true;
    accept_close(peers);
    for (size_t i = 0; i < peers->count; i++)
        uv_close((uv_handle_t *)&peers->entries[i]->retry, entry_handle_closed);
    for (struct conn *conn = peers->conns; conn != NULL; conn = next) {
        next = conn->next;
        conn_close(conn, COVEY_CLOSED, "is not needed any more: this node is leaving");
    }
}
