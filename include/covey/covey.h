/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COVEY_H
#define COVEY_H

/* Covey: replicate large objects to every member of a group, into place, all or nothing.
 *
 * A process that opens a node is a full member of the cluster that its options describe; no daemon is needed.
 * The node runs one loop thread that owns all protocol state and one thread that runs the callbacks, so a
 * slow callback never delays the node's heartbeats. With COVEY_NODE_DRIVEN there are no such threads: the
 * application drives the loop with covey_node_progress() and the callbacks run inside it.
 *
 * Threads: every function may be called from any thread, callbacks included, unless it says otherwise. In a
 * driven node all calls come from the one thread that drives it.
 *
 * Errors: 0 or a negative code of covey/error.h; outputs are written only on success.
 *
 * Memory: strings and arrays given to a call are copied before it returns. Object bytes never are: the memory
 * of a buffer is lent to the group (see covey_put and on_landing) until on_release names it.
 *
 * Processes: a node belongs to the process that opened it: after fork() every call in the child returns
 * COVEY_FORKED and covey_node_close() there frees nothing of the parent's. The library never exits, prints,
 * installs a signal handler or changes a signal disposition.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default) /* the library hides all else */
#endif

#define COVEY_MEMBERS_MAX 1024    /* members of a cluster */
#define COVEY_NAME_MAX    255     /* bytes of an object's, a buffer's, a group's or a node's name */
#define COVEY_BUFFERS_MAX 1048576 /* buffers of an object */
#define COVEY_MESSAGE_MAX 32768   /* bytes of a message: what is larger is an object */

struct covey_options;
struct covey_node;
struct covey_group;
struct covey_op;
struct covey_object;

enum covey_log_level { COVEY_LOG_ERROR, COVEY_LOG_WARNING, COVEY_LOG_INFO, COVEY_LOG_DEBUG };

/* Where the bytes of a buffer are. */
enum covey_memory {
    COVEY_MEMORY_HOST = 0,    /* ordinary memory of this process */
    COVEY_MEMORY_CUDA,        /* memory of CUDA device `device` */
    COVEY_MEMORY_CUDA_MANAGED /* CUDA managed memory */
};

/* What a group can do now. */
enum covey_state {
    COVEY_STATE_FORMING,   /* waits for the first view */
    COVEY_STATE_RUNNING,   /* delivers */
    COVEY_STATE_SYNCING,   /* a member that fetches what was delivered before it joined */
    COVEY_STATE_WEDGED,    /* between two views */
    COVEY_STATE_NO_QUORUM, /* reads only, until a majority is back */
    COVEY_STATE_EVICTED    /* left out of the view */
};

/* --- Options -------------------------------------------------------------------------------------------- */

/* Read the cluster's configuration file (covey.conf(5)) for the node called node_name, or, with NULL, for the
 * one node whose address is this host's. Addresses that are host names are looked up, which may wait for the
 * resolver. The caller frees *options with covey_options_free().
 * COVEY_CONFIG when anything is wrong; covey_options_error() then has one line per mistake. */
int covey_options_load(const char *path, const char *node_name, struct covey_options **options);

/* The lines of the last failed covey_options_load() of this thread, each "FILE:LINE: KEY: what is wrong and
 * what would be right" and a newline; "" if there was none. Valid until the next load in this thread. */
const char *covey_options_error(void);

/* The effective configuration, defaults filled in, in the syntax of the file. The caller frees the text. */
int covey_options_text(const struct covey_options *options, char **text);

const char *covey_options_node_name(const struct covey_options *options);
const char *covey_options_control_socket(const struct covey_options *options); /* with %n replaced */
enum covey_log_level covey_options_log_level(const struct covey_options *options);
size_t covey_options_group_count(const struct covey_options *options);
/* Name of the index-th group that selects this node; NULL past covey_options_group_count(). */
const char *covey_options_group_name(const struct covey_options *options, size_t index);
void covey_options_free(struct covey_options *options);

/* --- Node ----------------------------------------------------------------------------------------------- */

/* Something an operator wants to know: `covey events` shows these. Strings live until the callback returns.
 */
struct covey_event {
    uint64_t time_ns;    /* CLOCK_REALTIME */
    const char *type;    /* "view", "suspected", "no-quorum", "peer-up", "offer", ...: covey(1) has all */
    const char *subject; /* a node's, cluster's or object's name: whom or what it is about */
    const char *text;    /* one sentence: who did it, and why */
    uint64_t view;       /* that this node was in */
    uint64_t wedge_ns;   /* "view": for how long this node delivered nothing before it; else 0 */
};

struct covey_callbacks {
    /* One line of log, without a newline. Called on the thread that logs: return quickly, call nothing of
     * Covey. */
    void (*on_log)(void *context, enum covey_log_level level, const char *line);
    void (*on_event)(void *context, const struct covey_event *event);
};

enum covey_node_flags {
    COVEY_NODE_DRIVEN = 1 /* the application drives the loop */
};

/* Open the node that the options name: listen on its address, then look for the others in the background.
 * callbacks may be NULL; it and the options are copied. Does not wait for the view: see covey_group_wait().
 */
int covey_node_open(const struct covey_options *options, const struct covey_callbacks *callbacks,
                    void *context, struct covey_node **node);
int covey_node_open_flags(const struct covey_options *options, const struct covey_callbacks *callbacks,
                          void *context, unsigned flags, struct covey_node **node);

/* Why the last covey_node_open() of this thread failed; "" if it did not. */
const char *covey_node_open_error(void);

/* Driven mode: readable when covey_node_progress() has work. -1 for a node with threads of its own. */
int covey_node_fd(const struct covey_node *node);

/* Driven mode: do what can be done now; wait up to timeout_ms (-1: without end) for something if there is
 * nothing. Returns 1 if anything was done, 0 if not, or an error. */
int covey_node_progress(struct covey_node *node, int timeout_ms);

/* Take over from options what can change while the node runs: log.level. COVEY_UNSUPPORTED when anything else
 * differs from what it runs by; covey_error_detail() names the keys then, and nothing changes. */
int covey_node_reload(struct covey_node *node, const struct covey_options *options);

/* Have bytes between device memory and the network pass through [base, base + bytes) of the application's own
 * memory instead of a region that the node takes (staging.size): pinned once, never grown, the application's
 * again when covey_node_close() has returned. Room for two blocks is enough, more is faster; blocks are as
 * large as the largest object's need (groups.block), 64 KiB at least. Before the first object in device
 * memory: COVEY_EXISTS afterwards. */
int covey_node_lend_staging(struct covey_node *node, void *base, size_t bytes);

/* Leave politely and free the node. Objects must have been released and operations freed. Groups end with it.
 */
void covey_node_close(struct covey_node *node);

/* The sentence for the last error that a call on this node returned in this thread. Valid until the next one.
 */
const char *covey_error_detail(const struct covey_node *node);

enum covey_member_state {
    COVEY_MEMBER_MISSING, /* configured, not in the view */
    COVEY_MEMBER_MEMBER,
    COVEY_MEMBER_SUSPECTED
};

struct covey_member {
    uint32_t rank; /* position in the view; UINT32_MAX while missing */
    uint32_t id;
    char name[COVEY_NAME_MAX + 1];
    char address[COVEY_NAME_MAX + 1];
    uint64_t incarnation; /* 0 while it was never seen */
    enum covey_member_state state;
    uint64_t since_ns;                /* CLOCK_REALTIME of the last change of state */
    char problem[COVEY_NAME_MAX + 1]; /* why it is missing, "" otherwise */
};

/* A view and the configured nodes that are not in it. members[0..size) are in the view, in rank order;
 * members[size..count) are missing. */
struct covey_view {
    uint64_t number; /* 0 before the first view */
    uint64_t epoch;  /* random, drawn with view 1; 0 before */
    enum covey_state state;
    bool quorate;
    uint32_t self;  /* index in members of this node */
    uint32_t size;  /* members of the view */
    uint32_t count; /* entries of members */
    struct covey_member *members;
};

/* The cluster's view. Free with covey_view_free(). */
int covey_node_view(const struct covey_node *node, struct covey_view *view);
void covey_view_free(struct covey_view *view);

/* Remove a member: the next view is without it. Returns once the wish is noted; on_view tells when it is
 * fulfilled. A node that runs learns of it and joins again, as a newcomer: stop it to keep it out.
 * COVEY_NOT_FOUND if no member has the id, COVEY_NO_QUORUM, COVEY_FORMING, COVEY_EVICTED, COVEY_INVALID for
 * the last member. */
int covey_node_evict(struct covey_node *node, uint32_t id);

/* Go on without a quorum: have the next view made of the members in reach alone, in a new epoch. Only people
 * can know that the others do not go on, too: two halves that both do are two clusters from then on, and the
 * nodes of one of them must be started anew. Returns once the wish is noted. COVEY_INVALID where there is a
 * quorum; COVEY_EXISTS at a node without a past that has met one with a past: force the view there. */
int covey_node_force_view(struct covey_node *node);

enum covey_table_flags {
    COVEY_TABLE_JOIN = 1,  /* wants to be a member */
    COVEY_TABLE_LEAVE = 2, /* wants to be none */
    COVEY_TABLE_FORCE = 4  /* its operator declares a view without a quorum */
};

/* What a node says of itself in the shared-state table, as this node sees it. A ballot is
 * (round << 16 | the rank that leads it), 0 for none. */
struct covey_table_row {
    uint32_t id;
    char name[COVEY_NAME_MAX + 1];
    uint64_t incarnation; /* 0: it was never linked */
    uint32_t rank;        /* in this node's view, before the first in the list of nodes; UINT32_MAX: none */
    bool self;
    bool linked;        /* or the own row */
    uint64_t silent_ns; /* since its heartbeat grew last; 0 without a link */
    uint64_t heartbeat;
    uint64_t view;                          /* that it is in; 0: none yet */
    unsigned flags;                         /* enum covey_table_flags */
    uint64_t promised, accepted, committed; /* ballots, for the view after that */
    uint64_t *received; /* by group: the position up to which it has everything; NULL unless it is wedged */
    uint32_t suspected_count, evicted_count;
    uint32_t *suspected, *evicted; /* ids: whom it suspects, and whom an operator removes */
};

struct covey_table {
    uint64_t number, epoch; /* of this node's view */
    size_t group_count;     /* entries of received: the groups of the configuration */
    const char **groups;    /* their names, valid as long as the node */
    uint32_t count;
    struct covey_table_row *rows; /* members by rank, then others that are linked */
};

/* The shared-state table. Free with covey_table_free(). */
int covey_node_table(const struct covey_node *node, struct covey_table *table);
void covey_table_free(struct covey_table *table);

/* One counter or gauge: `covey stats` prints them all. Names are stable and documented in covey(1). */
struct covey_stat {
    const char *name; /* static */
    const char *unit; /* static: "bytes", "blocks", "ns", "bytes/s", "" */
    uint64_t value;
};

/* All counters of the node; free *stats with free(). */
int covey_node_stats(const struct covey_node *node, struct covey_stat **stats, size_t *count);

/* --- Group ---------------------------------------------------------------------------------------------- */

/* Object bytes: `bytes` at `base`, in host or device memory. base may be NULL only when bytes is 0. */
struct covey_buffer {
    void *base;
    size_t bytes;
    enum covey_memory memory;
    int device;       /* CUDA device index, for the CUDA kinds */
    const char *name; /* unique in its object; NULL: its index in decimal */
};

/* An object that a member wants to replicate here. Lives until on_landing returns. */
struct covey_offer {
    const char *name;
    uint32_t sender; /* node id */
    uint64_t bytes;
    size_t count; /* buffers */
    const struct covey_buffer
        *buffers; /* names and sizes; memory and device as the sender has them; base NULL */
};

struct covey_group_callbacks {
    /* A new view of the group. joined and left hold node ids. */
    void (*on_view)(void *context, struct covey_group *group, const struct covey_view *view,
                    const uint32_t *joined, size_t joined_count, const uint32_t *left, size_t left_count);
    /* A version was delivered. The object is pinned until the callback returns; covey_object_retain() to keep
     * it longer. No covey_get() returns this version before the callback has returned. */
    void (*on_object)(void *context, struct covey_group *group, struct covey_object *object);
    /* A message was delivered: messages, versions and removals come in one order, the same at every member.
     * data lives until the callback returns. While callbacks are slow, senders wait. */
    void (*on_message)(void *context, struct covey_group *group, uint32_t sender, const void *data,
                       size_t bytes);
    /* A version was removed by covey_remove(). */
    void (*on_remove)(void *context, struct covey_group *group, const char *name, uint64_t version);
    /* Where shall the bytes go? Set base, memory and device of buffers[0..offer->count) (bytes and names are
     * filled in) and return 0; the memory is then lent to the group. Leave every base NULL and return 0 to
     * let the store allocate from the group's budget. Return an error to refuse: that cancels the put
     * everywhere. */
    int (*on_landing)(void *context, struct covey_group *group, const struct covey_offer *offer,
                      struct covey_buffer *buffers);
    /* Lent memory is the application's again: the version was dropped, or its put did not happen (delivered
     * false). first_base is the base of the object's first buffer of non-zero size. */
    void (*on_release)(void *context, struct covey_group *group, const char *name, uint64_t version,
                       bool delivered, void *first_base);
    void (*on_state)(void *context, struct covey_group *group, enum covey_state state);
};

/* Take part in the group called name, which must select this node. Until a member opens the group, puts wait
 * for it (and fail after stall_after, naming it). callbacks may be NULL. A group ends with its node. */
int covey_group_open(struct covey_node *node, const char *name, const struct covey_group_callbacks *callbacks,
                     void *context, struct covey_group **group);

const char *covey_group_name(const struct covey_group *group);

/* Wait until the group is running. COVEY_TIMEOUT after timeout_ms (-1: never). Not in a callback. */
int covey_group_wait(struct covey_group *group, int timeout_ms);

/* The group's view: its members among the cluster's. Free with covey_view_free(). */
int covey_view(const struct covey_group *group, struct covey_view *view);

struct covey_group_info {
    enum covey_state state;
    enum covey_memory memory;
    int device;
    uint64_t budget_bytes, used_bytes;
    uint32_t keep_versions;
    uint32_t members; /* in the view */
    uint64_t objects; /* versions held */
    char schedule[16];
    uint64_t block_bytes; /* 0: chosen per object */
};
int covey_group_info(const struct covey_group *group, struct covey_group_info *info);

/* How bytes of this node's memory of a kind reach a node. */
struct covey_route {
    char transport[32]; /* "tcp", "verbs", ...; "none": it is this node */
    bool staged;        /* through the staging region; else straight from where they are */
    char text[256];     /* why not a better way, and what would mend it; "" where there is none */
};

/* The route that a put takes from memory of this kind to the node called node_id; to land in device memory is
 * the other node's own matter, and has the same route there. Known before anything moves. COVEY_NOT_FOUND for
 * an id that is neither configured nor known, COVEY_UNSUPPORTED where this machine has no such memory: the
 * detail says what is missing. */
int covey_route(struct covey_group *group, uint32_t node_id, enum covey_memory memory,
                struct covey_route *route);

/* --- Operations ----------------------------------------------------------------------------------------- */

/* Replicate buffers[0..count) as the next version of the object called name: every member delivers it or none
 * does. The buffers' memory is lent to the group, unchanged by anyone, until on_release names it (this node
 * serves the version from there: no copy is made). Returns at once; the operation ends when every member has
 * delivered. Zero-length buffers and objects are ordinary. */
int covey_put(struct covey_group *group, const char *name, const struct covey_buffer *buffers, size_t count,
              struct covey_op **op);

/* One buffer read from a descriptor, from its current size's beginning to its end. */
struct covey_file {
    int fd;
    const char *name; /* of the buffer; NULL: its index in decimal */
};

/* The same with one buffer per regular file: they are read into the store's memory, and blocks flow while the
 * rest is being read. The descriptors are duplicated. COVEY_CHANGED if a file changes before it was read. */
int covey_put_files(struct covey_group *group, const char *name, const struct covey_file *files, size_t count,
                    struct covey_op **op);

/* Send a message of 0..COVEY_MESSAGE_MAX bytes to every member, this one included: all that stay deliver it,
 * in one order with what others send and put, and each sender's in the order of its calls; or none does. The
 * bytes, in host memory, are copied. The operation ends when every member has it and it is delivered here;
 * its result's version is the message's position. op may be NULL: then nobody hears if it was not sent (the
 * group has no quorum, this node was left out of the view). While a new view is made messages wait for it.
 * Waits itself while the members do not keep up; in a callback, or in a driven node, it returns COVEY_AGAIN
 * instead. COVEY_TOO_LARGE. */
int covey_send(struct covey_group *group, const void *data, size_t bytes, struct covey_op **op);

/* Remove every version of the object, in the same order at every member. */
int covey_remove(struct covey_group *group, const char *name, struct covey_op **op);

/* What a finished operation did. */
struct covey_op_result {
    uint64_t version; /* the position of the version in the group's order: unique and growing */
    uint64_t digest;  /* of the content: see covey_object_digest() */
    uint64_t bytes;
    uint64_t block_bytes;
    uint64_t blocks;
    uint64_t duration_ns; /* from the call to delivery at every member */
    char schedule[16];
};

/* Wait for the end. Returns its result, or COVEY_TIMEOUT after timeout_ms (-1: never). Not in a callback, and
 * in driven mode drives the node. */
int covey_op_wait(struct covey_op *op, int timeout_ms);
/* The result if it has ended, COVEY_AGAIN while it runs. */
int covey_op_test(const struct covey_op *op);
/* How far it is, for a progress bar: done grows up to total. */
void covey_op_progress(const struct covey_op *op, uint64_t *bytes_done, uint64_t *bytes_total);
/* The sentence for its error: which member, why, and what to do; "" without one. Lives as long as the op. */
const char *covey_op_error(const struct covey_op *op);
/* COVEY_AGAIN while it runs. */
int covey_op_result(const struct covey_op *op, struct covey_op_result *result);
/* Ask for its end: it fails with COVEY_CANCELLED unless its fate is decided already. */
void covey_op_cancel(struct covey_op *op);
/* A running operation goes on without a handle. */
void covey_op_free(struct covey_op *op);

/* --- Objects -------------------------------------------------------------------------------------------- */

/* Pin a version (0: the newest delivered) and see it whole; nothing is copied. Release it with
 * covey_object_release(). */
int covey_get(struct covey_group *group, const char *name, uint64_t version, struct covey_object **object);

const char *covey_object_name(const struct covey_object *object);
uint64_t covey_object_version(const struct covey_object *object);
uint64_t covey_object_bytes(const struct covey_object *object);
/* xxh3-64 of the little-endian xxh3-64 of each 64 KiB of the content (the buffers end to end, without their
 * names), seeded with its number of bytes: equal content, equal digest. */
uint64_t covey_object_digest(const struct covey_object *object);
size_t covey_object_count(const struct covey_object *object);
/* COVEY_NOT_FOUND past the last one. The buffer's name lives as long as the pin. */
int covey_object_buffer(const struct covey_object *object, size_t index, struct covey_buffer *buffer);
/* One more pin; each is released once. */
void covey_object_retain(struct covey_object *object);
void covey_object_release(struct covey_object *object);

struct covey_object_info {
    char name[COVEY_NAME_MAX + 1];
    uint64_t version, bytes, digest;
    size_t count;        /* buffers */
    const char *state;   /* static: "delivered", "receiving", "sending", "interrupted" */
    uint64_t bytes_done; /* of a version on its way */
    uint32_t pins;       /* readers */
    uint64_t since_ns;   /* CLOCK_REALTIME of delivery, or of the offer */
};

/* Every version that this member holds or receives; free *list with free(). */
int covey_objects(const struct covey_group *group, struct covey_object_info **list, size_t *count);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
