/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NODE_NODE_H
#define NODE_NODE_H

/* One node: the loop that owns all protocol state, and what the files of this folder share.
 *
 *      application threads        the loop thread                           callback thread
 *      api.c --- request ------>  node.c: turn                  --- call --->  on_object, on_landing, ...
 *                <--- result ---    peers.c     links up and down   <- request --
 *                                   members.c   views: the membership on real links
 *                                   ordering.c  the order of a group on real links
 *                                   group.c     what is delivered in a group, and its state
 *                                   replication.c  one session: messages, writes, memory
 *                                   feed.c      work on bytes, done by libuv's worker threads
 *
 * Everything here runs on the loop thread unless it says otherwise; there are no locks but those of the two
 * queues and of operations. In a driven node there are no threads: requests run at once, calls at the end of
 * a turn. */

#include <pthread.h>
#include <stdatomic.h>
#include <uv.h>

#include "config/options.h"
#include "core/session.h"
#include "fabric/fabric.h"
#include "node/peers.h"
#include "store/store.h"
#include "wire/message.h"

struct replication;
struct outgoing;
struct stage;
struct ordering;
struct order_entry;

/* --- Queues between threads (calls.c) ------------------------------------------------------------------- */

/* Work for the loop thread, from any thread. */
struct request {
    void (*run)(struct covey_node *node, struct request *request);
    bool detached; /* run() frees it; otherwise the submitter waits, and owns it */
    bool deferred; /* run() has put it off: it runs again later */
    bool done;
    struct request *next;
};

/* Work for the callback thread, from the loop thread. run() frees it. */
struct call {
    void (*run)(struct call *call);
    struct call *next;
};

struct node_view {
    uint64_t number, epoch;
    uint32_t count;
    uint32_t *ids; /* by rank */
    uint64_t *incarnations;
};

struct node_counters {
    uint64_t puts, puts_failed, delivered, removed, cancelled, views;
    uint64_t sent_bytes, received_bytes, sent_blocks, received_blocks;
    uint64_t messages_sent, messages_received, turns;
    uint64_t group_sent, group_messages; /* messages of groups: given to this node; delivered here */
    uint64_t pushes, pushed_bytes;       /* to rows of groups; entries among what was pushed */
    uint64_t held_ns;                    /* the longest round of a turn */
    uint64_t wedge_ns;                   /* of the last view change */
    uint64_t strays;                     /* messages of another view, or of nobody in it: dropped */
};

struct followup {
    struct replication *replication;
    struct session_event event;
};

struct covey_node {
    struct covey_options *options;
    struct covey_callbacks callbacks;
    void *context;
    struct log log;
    unsigned flags;
    pid_t pid;
    uint64_t incarnation;
    uint64_t sequence; /* of sessions and requests made here */

    uv_loop_t loop;
    uv_poll_t fabric_watch;
    uv_poll_t timer_watch; /* driven: of timer_fd */
    int timer_fd;
    uv_async_t wake;
    uv_timer_t timer;
    uv_prepare_t turn;
    uv_idle_t busy; /* active while there is more to do at once */
    pthread_t loop_thread, call_thread;
    bool loop_thread_started, call_thread_started;
    uint64_t now_ns; /* CLOCK_MONOTONIC, read once a turn */
    bool slept;      /* since now_ns was read */
    uint64_t work;   /* things done: tells covey_node_progress() whether anything was */

    struct fabric *fabric;
    struct peers *peers; /* NULL once they are closed */

    struct node_view view;
    enum covey_state state;
    struct members *members;
    bool closing;       /* nothing begins any more */
    bool anew;          /* evicted: the links are on their way down, then it joins as another incarnation */
    uint64_t return_ns; /* anew: not before; 0: as soon as it can */
    uint64_t wedged_ns; /* since when; 0: it is not */
    struct request *deferred; /* puts that wait for the next view */
    uint64_t started_ns;      /* CLOCK_REALTIME */

    struct covey_group **groups; /* by index of the configuration; NULL where this node is not selected */

    struct replication *replications[IMMEDIATE_SLOTS]; /* by slot */
    struct replication *replications_by_id;
    uint64_t link_bytes_per_second; /* as measured, for schedule_choose() */
    struct stage *stage;            /* NULL until something needs it */
    uint64_t asks;                  /* blocks that peers were asked to take into their staging */
    struct orphan_fence *orphans;   /* fences owed for sessions that are gone */
    size_t orphan_count, orphan_capacity;
    uint32_t replication_count, slot_next;
    struct followup *followups; /* ring of events that events caused */
    size_t followup_capacity, followup_first, followup_count;
    bool stepping;

    pthread_mutex_t mutex; /* of the two queues, the groups' states, and `stopped` */
    pthread_cond_t request_done, call_ready, state_changed; /* state_changed: also room for messages */
    struct request *requests, **requests_end;
    struct call *calls, **calls_end;
    bool stopped;

    struct node_counters counters;
};

struct known_member {
    uint32_t id;
    uint64_t incarnation;
};

struct covey_group {
    struct covey_node *node;
    uint16_t index;
    const struct group_options *options;
    bool open;
    struct covey_group_callbacks callbacks;
    void *context;
    struct store *store;
    int device;             /* of the store's memory */
    enum covey_state state; /* as last told to the application */

    struct ordering *ordering;
    struct delivery *deliveries, **deliveries_end; /* stable, not yet delivered here */
    atomic_uint_fast64_t undelivered; /* of messages that the application was not told of: bytes */
    struct request resume;            /* there is room again */
    atomic_bool resuming;             /* it is submitted */
    uint64_t sending_bytes;           /* under the node's mutex: of messages that wait for room in the ring */
    struct removal *removals;         /* asked for here, not yet done everywhere */
    struct known_member *told;        /* the view that the application was told last */
    uint32_t told_count;
};

/* Run in the loop thread and wait for the end. COVEY_CLOSED when the loop has ended, COVEY_FORKED in a child.
 */
int node_request(struct covey_node *node, struct request *request);
/* The same without waiting; run() frees it. What is submitted before covey_node_close() returns does run. */
void node_submit(struct covey_node *node, struct request *request);
/* Take over and run what has been submitted. */
void node_run_requests(struct covey_node *node);
void node_call(struct covey_node *node, struct call *call);
/* Driven: run what has been queued. */
void node_run_calls(struct covey_node *node);
void *node_call_thread(void *node);
bool node_is_driven(const struct covey_node *node);
bool node_in_call_thread(const struct covey_node *node);

/* Keep the sentence for covey_error_detail() of this thread. Returns fail->code. */
int node_detail(const struct fail *fail);

/* Put a request off until the view or its state changes. */
void node_defer(struct covey_node *node, struct request *request);
void node_run_deferred(struct covey_node *node);

/* --- Sending (outbox.c) --- */

void node_send(struct covey_node *node, struct peer *peer, const struct message *message);

/* --- Peers (node.c) --- */

void node_peer_up(void *context, struct peer *peer);
void node_peer_down(void *context, struct peer *peer, int error, const char *text);
void node_peer_event(void *context, struct peer *peer, enum fabric_lane lane,
                     const struct fabric_event *event);
/* Evicted: close the links, come back as another incarnation. */
void node_start_anew(struct covey_node *node);

/* --- Events and state ------------------------------------------------------------------------------------
 */

void node_event(struct covey_node *node, const char *type, const char *subject, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* "view", about the cluster: the one that was installed just now, after this node was wedged so long. */
void node_event_view(struct covey_node *node, uint64_t wedge_ns, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
uint64_t node_realtime_ns(void);
/* "n2", or "node 7" if it is unknown. Valid until the next call. */
const char *node_name(const struct covey_node *node, uint32_t id);
uint64_t node_next_id(struct covey_node *node);

/* --- Views (view.c) --- */

bool view_has(const struct node_view *view, uint32_t id);
/* That process, not another incarnation of the id. */
bool view_has_process(const struct node_view *view, uint32_t id, uint64_t incarnation);
/* The view as the application sees it, of the cluster or of a group's members. COVEY_NO_MEMORY. */
int view_snapshot(const struct covey_node *node, const struct covey_group *group, struct covey_view *view);

/* --- Groups (group.c) -------------------------------------------------------------------------------------
 */

int group_new(struct covey_node *node, uint16_t index, struct covey_group **group, struct fail *fail);
/* on_object is under way. */
bool group_is_calling(const struct covey_group *group);
/* End what waits and drop every object. The group itself lives until calls that name it have run. */
void group_stop(struct covey_group *group);
/* Ids of the group's members in the view, ascending; at most COVEY_MEMBERS_MAX. Returns how many. */
uint32_t group_members(const struct covey_group *group, uint32_t ids[]);
int group_message(struct covey_group *group, struct peer *peer, const struct message *message);
/* Give it a place in the order. name: for ORDER_REMOVE, else NULL. */
void group_order(struct covey_group *group, enum order_kind kind, uint64_t id, const char *name);
/* Send a message: the request of a struct sending (ordering.h). */
void group_send(struct covey_node *node, struct request *request);
/* Wait for room for a message that costs so much, and take it; any thread. 0; COVEY_AGAIN where waiting would
 * wait for itself: in callbacks, and in a driven node; COVEY_CLOSED. */
int group_wait_for_room(struct covey_group *group, uint64_t cost);
void group_made_room(struct covey_group *group, uint64_t cost);
/* Whether more of what is stable can be taken. */
bool group_has_room(const struct covey_group *group);
/* An entry is stable: take it over; then carry out what there is, up to what waits for the application. */
void group_take(struct covey_group *group, const struct order_entry *entry, uint32_t sender);
void group_deliver(struct covey_group *group);
/* The view ends. trim: the last position that everyone who stays has received: deliver up to it. */
void group_trim(struct covey_group *group, uint64_t trim);
/* A view was installed. Its entries come behind that position. */
void group_view(struct covey_group *group, uint64_t position);
/* This node was left out of the view: what nobody may have delivered is forgotten. */
void group_start_anew(struct covey_group *group);
/* It is being closed: nothing is delivered any more but what on_object is told of now. */
void group_leave(struct covey_group *group);
void group_set_state(struct covey_group *group, enum covey_state state);
/* A peer has gone: what waited for it does not any more. */
void group_peer_down(struct covey_group *group, const struct peer *peer);
/* Begin a removal; takes over the loop's reference to op, which ends with it. On failure it takes nothing
 * over. */
int group_remove(struct covey_group *group, const char *name, struct covey_op *op, struct fail *fail);
/* The application takes part: from now on there are callbacks, and landings are decided. */
int group_open(struct covey_group *group, const struct covey_group_callbacks *callbacks, void *context,
               struct fail *fail);
/* A handle with a pin on the object; NULL without memory. */
struct covey_object *group_pin(struct covey_group *group, struct object *object);
/* Why nothing can be put now; 0 if something can; COVEY_AGAIN if it can when the next view is installed. */
int group_check_running(const struct covey_group *group, struct fail *fail);

#endif
