/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FABRIC_VERBS_H
#define FABRIC_VERBS_H

/* The backend on RDMA devices themselves: reliable connected queue pairs (InfiniBand Architecture 9.7) of
 * libibverbs, made by librdmacm, for InfiniBand and RoCE. verbs.c opens, listens and registers; verbs_link.c
 * makes links and ends them; verbs_post.c posts on them; verbs_poll.c reads the queues.
 *
 * A link is a queue pair. All share one protection domain, one completion queue, one completion channel and
 * one channel of rdma_cm, on the device that has the node's address. A completion may be read after its queue
 * pair is gone, so a work request's id is never a pointer but names its link by slot and generation:
 *
 *     63                    48 47                  32 31  30                                   0
 *     +-----------------------+-----------------------+---+------------------------------------+
 *     | generation of the slot| slot                  | R | sequence of a send or write, or    |
 *     |                       |                       |   | number of a receive (R = 1)        |
 *     +-----------------------+-----------------------+---+------------------------------------+
 *
 * Credit. A message, or a write with an immediate, takes a receive that the peer has posted; one that finds
 * none would be refused (receiver not ready) and tried again later. That never happens: each side posts
 * VERBS_CREDIT receives for the other, which sends no more than that until it is told of new ones. It is told
 * in the immediate of every message, and by an empty message once VERBS_CREDIT / 2 are owed:
 *
 *     31         24 23          16 15                                0
 *     +------------+--------------+----------------------------------+
 *     | kind       | 0            | receives posted again            |
 *     +------------+--------------+----------------------------------+
 *
 * Empty messages and the goodbye take no credit, but receives of their own. Those suffice: of the first kind
 * an end sends one for VERBS_CREDIT / 2 that it received; its peer can send VERBS_CREDIT at first and as many
 * again as the empty messages that it has seen say; so at most two that it has not seen are under way.
 *
 * Connecting, the private data of the request (integers little-endian), and its first 8 bytes as the answer:
 *
 *     0                4          6          8                              40
 *     +----------------+----------+----------+---------- ... ---------------+
 *     | magic and lane | credit   | 0        | token                        |
 *     +----------------+----------+----------+---------- ... ---------------+
 *
 * The end. Of a link that was up the queue pair goes to its error state, where all that is posted fails, and
 * so does one last send and one last receive that are posted then. When both have come back no completion of
 * the link is left unseen; the queue pair is destroyed, and no DMA of it happens any more: LINK_DOWN.
 *
 * The device's asynchronous events are not read: its context is rdma_cm's, shared by all fabrics of the
 * process, and what they tell also comes as a failed completion or as an event of rdma_cm. */

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "fabric/backend.h"

#define VERBS_OUTSTANDING     128 /* a power of two */
#define VERBS_OWN_SENDS       4   /* besides those: empty messages, */
#define VERBS_LAST_SENDS      2   /* the goodbye and the last one */
#define VERBS_SENDS           (VERBS_OUTSTANDING + VERBS_OWN_SENDS + VERBS_LAST_SENDS)
#define VERBS_OPS             256 /* a power of two, as sequences wrap, and at least VERBS_SENDS */
#define VERBS_CREDIT          64
#define VERBS_RECEIVES        (VERBS_CREDIT + 3) /* two empty messages and a goodbye */
#define VERBS_SEND_RING_BYTES (1 << 17)          /* per link: copies of messages on their way */
#define VERBS_INLINE_BYTES    256 /* asked for; what is no longer is copied into the work request */
#define VERBS_BATCH           16  /* completions read at once */
#define VERBS_REQUEST_BYTES   40
#define VERBS_ANSWER_BYTES    8

/* Of the connection, where rdma_cm leaves the choice. The path's MTU and the GID are those of the port and of
 * the address: rdma_cm knows them. A peer's death is noticed by its connection's end or by heartbeats; these
 * are for packets that are lost on the way. A link that loses its route for 3 s survives. */
#define VERBS_ACK_TIMEOUT     17 /* 4.096 us * 2^17 = 0.54 s until a packet is sent again */
#define VERBS_RETRIES         6  /* times; 7 is what rdma_rxe takes as without end */
#define VERBS_RNR_RETRIES     3  /* never needed: see above */

enum verbs_ending {
    VERBS_SAYS_BYE, /* until the peer answers the goodbye, or the deadline */
    VERBS_DRAINS,   /* until the last completions, or the deadline */
    VERBS_DRAINED   /* nothing to wait for */
};

/* A send or write that has not completed. */
struct verbs_op {
    uint64_t cookie;
    uint32_t ring_bytes; /* of the send ring that its completion frees */
    bool signalled;      /* WRITE_DONE is due */
};

struct verbs_receive {
    struct verbs_receive *next; /* in struct verbs: to post again */
    struct verbs_link *link;
    uint32_t number;
};

struct verbs_link {
    struct fabric_link base;
    struct verbs *verbs;
    struct rdma_cm_id *id; /* with the queue pair; NULL before it is connecting and once it is closed */
    uint32_t number;       /* generation and slot */
    bool expecting, accepted;
    bool starved; /* a post was answered COVEY_AGAIN and nothing has completed since */
    uint8_t token[FABRIC_TOKEN_BYTES];
    uint64_t deadline_ns; /* while connecting, accepting or ending, else 0 */

    enum verbs_ending ending;
    bool delivers; /* what still arrives while it drains */
    bool sends_drained, receives_drained;
    int error;
    const char *text;
    struct verbs_link *next; /* in struct verbs: ending, or ended */

    uint32_t credit; /* receives of the peer's that are free */
    uint32_t owed;   /* receives posted again that the peer was not told of */

    /* Sequences count posted operations and wrap. Operations complete in order, so a completion of one is
     * that of all before it. */
    uint32_t posted, done, reported; /* reported: the last that was posted with a completion */
    struct verbs_op ops[VERBS_OPS];

    char *buffers; /* receives, then the send ring */
    struct ibv_mr *buffers_mr;
    size_t ring_head, ring_used;
    struct verbs_receive receives[VERBS_RECEIVES];
};

struct verbs_slot {
    struct verbs_link *link;
    uint16_t generation; /* >= 1 */
};

struct verbs_list {
    struct verbs_link *first, **last;
};

struct verbs {
    struct fabric base;
    struct log log;

    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener;
    struct ibv_context *context; /* rdma_cm's */
    struct ibv_device_attr device;
    struct ibv_port_attr port;
    struct ibv_pd *pd;
    struct ibv_comp_channel *completions;
    struct ibv_cq *cq;
    unsigned unacknowledged; /* events of `completions` */
    int epoll_fd, timer_fd;
    uint64_t connect_timeout_ns;
    struct sockaddr_storage self;
    uint8_t address[FABRIC_ADDRESS_MAX];
    size_t address_bytes;
    uint32_t inline_bytes;

    struct verbs_slot *slots;
    uint32_t slot_count;
    uint32_t links_max;   /* that the completion queue has room for */
    uint64_t deadline_ns; /* of the timer, no later than that of any link; 0: not set */

    struct ibv_wc batch[VERBS_BATCH];
    int batch_next, batch_count;
    struct verbs_receive *repost;
    struct verbs_list ending, ended; /* ended: closed, LINK_DOWN not yet delivered */
    uint32_t turn;
    bool slept; /* since the channel of rdma_cm was looked at */
    bool room;  /* for a link that was starved */
};

struct verbs_region {
    struct fabric_region base;
    struct ibv_mr *mr;
};

#define VERBS_ID_RECEIVE UINT32_C(0x80000000)
#define VERBS_LAST       VERBS_RECEIVES /* number of the last receive, which has no buffer */

enum verbs_kind { VERBS_MESSAGE = 1, VERBS_CREDITS, VERBS_BYE };

static inline struct verbs *verbs_of(const struct fabric *fabric)
{
    return (struct verbs *)fabric;
}

static inline struct verbs_link *verbs_link_of(struct fabric_link *link)
{
    return (struct verbs_link *)link;
}

static inline uint64_t verbs_id(const struct verbs_link *link, uint32_t low)
{
    return (uint64_t)link->number << 32 | low;
}

/* verbs.c */
uint64_t verbs_now_ns(void);
void verbs_timer_set(struct verbs *verbs, uint64_t deadline_ns);
void verbs_list_append(struct verbs_list *list, struct verbs_link *link);
struct verbs_link *verbs_list_pop(struct verbs_list *list);
struct ibv_mr *verbs_register_raw(struct verbs *verbs, void *base, size_t bytes, int access,
                                  struct fail *fail);
/* Room in the completion queue for so many links. */
int verbs_cq_grow(struct verbs *verbs, uint32_t links, struct fail *fail);

/* verbs_link.c */
int verbs_link_connect(struct fabric *fabric, enum fabric_lane lane, const uint8_t *address,
                       size_t address_bytes, const uint8_t token[FABRIC_TOKEN_BYTES],
                       struct fabric_link **link, struct fail *fail);
int verbs_link_expect(struct fabric *fabric, enum fabric_lane lane, const uint8_t token[FABRIC_TOKEN_BYTES],
                      struct fabric_link **link, struct fail *fail);
void verbs_link_close(struct fabric_link *link);
void verbs_link_free(struct fabric_link *link);
struct verbs_link *verbs_link_find(const struct verbs *verbs, uint32_t number); /* NULL: stale */
/* Take one event of rdma_cm. False if there is none. *up: the link that is up by it, or NULL. */
bool verbs_link_event(struct verbs *verbs, struct verbs_link **up);
bool verbs_link_established(struct verbs_link *link); /* whether it is UP now and was not */
/* Begin the end: LINK_DOWN with that error and text. What still arrives is delivered if `delivers`. */
void verbs_link_end(struct verbs_link *link, int error, const char *text, bool delivers);
void verbs_link_shut(struct verbs_link *link); /* destroy the queue pair */
void verbs_link_expire(struct verbs *verbs);   /* the links whose deadline has passed */
/* Post a receive again, of which the peer is told if it took credit; of a link that is ending: nothing. */
void verbs_link_repost(struct verbs_receive *receive, bool took_credit);

/* verbs_post.c */
int verbs_write(struct fabric_link *link, const struct fabric_write *write, uint64_t bytes);
int verbs_send(struct fabric_link *link, const void *data, size_t bytes);
void verbs_give_credit(struct verbs_link *link); /* by an empty message, if enough is owed */
/* The last send of a link, in its error state too. Returns ibv_post_send()'s error. */
int verbs_bye(struct verbs_link *link);
/* The operation of that sequence and all before it are done. False if there is none. */
bool verbs_complete(struct verbs_link *link, uint32_t sequence, struct verbs_op *op);

/* verbs_poll.c */
size_t verbs_poll(struct fabric *fabric, struct fabric_event events[], size_t max);
bool verbs_arm(struct fabric *fabric);

#endif
