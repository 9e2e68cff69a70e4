/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FABRIC_OFI_H
#define FABRIC_OFI_H

/* The backend on libfabric's connected endpoints (FI_EP_MSG), written to what the `verbs` provider promises,
 * so that `tcp` and others are served by the same code. ofi.c opens, listens and registers; ofi_link.c makes
 * links and ends them; ofi_post.c posts on them; ofi_poll.c reads the queues; ofi_words.c writes whole words.
 *
 * All links share one completion queue and one event queue. A completion may be read after its endpoint was
 * closed, so an operation's context is never a pointer but names its link by slot and generation:
 *
 *     63                    48 47                  32 31  30                                   0
 *     +-----------------------+-----------------------+---+------------------------------------+
 *     | generation of the slot| slot                  | R | sequence of a send or write, or    |
 *     |                       |                       |   | number of a receive (R = 1)        |
 *     +-----------------------+-----------------------+---+------------------------------------+
 *
 * The upper 32 bits are the link's id. The generation changes when the endpoint is closed, which makes
 * everything that is still queued for it stale.
 *
 * A write's immediate arrives by itself, without a context, unless the provider has it take a posted receive
 * (mode FI_RX_CQ_DATA). There the upper half of the 8 bytes of completion data carries the receiver's link
 * id, which both sides tell each other while connecting; with FI_RX_CQ_DATA the receive's context says it.
 *
 * Where the processor copies the bytes of writes out of a stream, it can leave a word in half until more of
 * them come. There the control lane's writes of up to FABRIC_WORDS_MAX bytes are messages with completion
 * data, which the receiver carries out word by word:
 *
 *     0                8                16
 *     +----------------+----------------+---------- ...
 *     | remote address | remote key     | what is written          OFI_WORDS_IMMEDIATE | immediate, or 0
 *     +----------------+----------------+---------- ...
 *
 * Connecting, the private data of the request (all integers little-endian):
 *
 *     0                4                8                              40
 *     +----------------+----------------+---------- ... ---------------+
 *     | magic and lane | link id        | token                        |
 *     +----------------+----------------+---------- ... ---------------+
 *
 * and of the answer its first 8 bytes. */

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <sys/socket.h>
#include <uthash.h>

#include "fabric/backend.h"

#define OFI_OUTSTANDING     128       /* a power of two: sequences wrap */
#define OFI_RECEIVES        16        /* posted per link, for messages */
#define OFI_RECEIVES_DATA   64        /* where immediates take them too */
#define OFI_SEND_RING_BYTES (1 << 18) /* per link: copies of messages on their way */
#define OFI_BATCH           16        /* completions read at once */
#define OFI_REQUEST_BYTES   40
#define OFI_BYE_BYTES       1
#define OFI_ANSWER_BYTES    8
#define OFI_INJECT_MAX      256 /* bytes of a small message that are copied to the stack on their way */
#define OFI_WORDS_IMMEDIATE (UINT64_C(1) << 32)

struct ofi_words {
    uint64_t address, key;
};

/* How a link that is ending is closed. */
enum ofi_ending {
    OFI_ENDS_NOW,
    OFI_ENDS_EMPTY,   /* once what has arrived before its end was delivered: an empty completion queue */
    OFI_ENDS_ANSWERED /* once the peer has closed it, in answer to a goodbye, or the deadline has passed */
};

/* A send or write that has not completed. */
struct ofi_op {
    uint64_t cookie;
    uint32_t ring_bytes; /* of the send ring that its completion frees */
    bool signalled;      /* WRITE_DONE is due */
};

struct ofi_receive {
    struct ofi_receive *next; /* in struct ofi: to post again */
    struct ofi_link *link;
    uint32_t number;
};

struct ofi_link {
    struct fabric_link base;
    struct ofi *ofi;
    struct fid_ep *ep; /* NULL before it is connecting and once it is closed */
    uint32_t id, peer_id;
    bool expecting;
    bool starved; /* a post was answered COVEY_AGAIN and nothing has completed since */
    uint8_t token[FABRIC_TOKEN_BYTES];
    uint64_t deadline_ns; /* while connecting, accepting or leaving, else 0 */
    enum ofi_ending ending;
    uint64_t finish_turn; /* OFI_ENDS_EMPTY: from this turn on */
    bool said_bye;
    int error;
    const char *text;
    struct ofi_link *next; /* in struct ofi: ending, or ended */

    /* Sequences count posted operations and wrap. Operations complete in order, so a completion of one is
     * that of all before it. */
    uint32_t posted, done, reported; /* reported: the last that was posted with a completion */
    struct ofi_op ops[OFI_OUTSTANDING];

    char *buffers; /* receives, then the send ring */
    struct fid_mr *buffers_mr;
    size_t ring_head, ring_used;
    struct ofi_receive receives[OFI_RECEIVES_DATA];
};

struct ofi_slot {
    struct ofi_link *link;
    uint16_t generation; /* >= 1 */
};

struct ofi_list {
    struct ofi_link *first, **last;
};

struct ofi {
    struct fabric base;
    struct log log;
    char provider[32]; /* libfabric's name; base.provider is ours: "tcp", or "ofi:" before it */
    char name[40];

    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_eq *eq;
    struct fid_cq *cq;
    struct fid_pep *pep;
    int epoll_fd, timer_fd;
    uint64_t connect_timeout_ns;
    uint8_t address[FABRIC_ADDRESS_MAX];
    size_t address_bytes;

    bool takes_receives;  /* FI_RX_CQ_DATA */
    bool completes_early; /* a write is complete when the kernel has buffered it, unless it is told otherwise
                           */
    bool tears_words;     /* a word that is being written may be seen in half */
    uint32_t receives;    /* per link */
    uint32_t links_max;   /* that the completion queue has room for */
    uint64_t next_key;
    struct ofi_region *regions; /* that peers may write, by key; where words are torn */

    struct ofi_slot *slots;
    uint32_t slot_count;
    uint64_t deadline_ns; /* of the timer, no later than that of any link; 0: not set */

    struct fi_cq_data_entry batch[OFI_BATCH];
    size_t batch_next, batch_count;
    struct ofi_receive *repost;
    struct ofi_list ending; /* to be closed in a later part of a poll */
    struct ofi_list ended;  /* closed, LINK_DOWN not yet delivered */
    uint64_t turn;
    bool room; /* for a link that was starved */
};

struct ofi_region {
    struct fabric_region base;
    struct fid_mr *mr;
    uint64_t address, key; /* for peers */
    char *memory;
    size_t bytes;
    bool listed;
    UT_hash_handle hh; /* in struct ofi */
};

static inline struct ofi_link *ofi_link_of(struct fabric_link *link)
{
    return (struct ofi_link *)link;
}

static inline size_t ofi_receive_bytes(const struct ofi *ofi)
{
    return (size_t)ofi->receives * FABRIC_MESSAGE_MAX;
}

static inline uint64_t ofi_context(const struct ofi_link *link, uint32_t low)
{
    return (uint64_t)link->id << 32 | low;
}
#define OFI_CONTEXT_RECEIVE UINT32_C(0x80000000)

/* ofi.c */
struct ofi *ofi_of(const struct fabric *fabric);
uint64_t ofi_now_ns(void);
void ofi_timer_set(struct ofi *ofi, uint64_t deadline_ns);
void ofi_list_append(struct ofi_list *list, struct ofi_link *link);
int ofi_error(int fi_error); /* libfabric's number, positive or negative, as one of ours */
int ofi_register_raw(struct ofi *ofi, void *base, size_t bytes, uint64_t access, struct fid_mr **mr,
                     struct fail *fail);

/* ofi_link.c */
int ofi_link_connect(struct fabric *fabric, enum fabric_lane lane, const uint8_t *address,
                     size_t address_bytes, const uint8_t token[FABRIC_TOKEN_BYTES], struct fabric_link **link,
                     struct fail *fail);
int ofi_link_expect(struct fabric *fabric, enum fabric_lane lane, const uint8_t token[FABRIC_TOKEN_BYTES],
                    struct fabric_link **link, struct fail *fail);
void ofi_link_close(struct fabric_link *link);
void ofi_link_free(struct fabric_link *link);
struct ofi_link *ofi_link_find(const struct ofi *ofi, uint32_t id); /* NULL: stale */
struct ofi_link *ofi_link_of_endpoint(const struct ofi *ofi, const struct fid *fid);
void ofi_link_request(struct ofi *ofi, struct fi_info *info, const uint8_t *data, size_t bytes);
bool ofi_link_connected(struct ofi_link *link, const uint8_t *data, size_t bytes); /* whether it is UP now */
void ofi_link_fail(struct ofi_link *link, int error, const char *text); /* begin the end, at once */
void ofi_link_finish(struct ofi_link *link, const char *text); /* begin the end, after what has arrived */
void ofi_link_shut(struct ofi_link *link); /* close the endpoint; its completions are stale from here */
void ofi_link_expire(struct ofi *ofi);     /* fail the links whose deadline has passed */
void *ofi_link_desc(const struct ofi_link *link); /* of its buffers */
void ofi_link_repost(struct ofi_receive *receive);

/* ofi_post.c */
int ofi_write(struct fabric_link *link, const struct fabric_write *write, uint64_t bytes);
int ofi_send(struct fabric_link *link, const void *data, size_t bytes);
void ofi_bye(struct ofi_link *link); /* unless it was said, or there is no room now */
/* The operation of that sequence and all before it are done. False if there is none. */
bool ofi_complete(struct ofi_link *link, uint32_t sequence, struct ofi_op *op);

/* ofi_words.c */
void ofi_words_open(struct ofi *ofi, struct ofi_region *region);  /* peers may write there from now on */
void ofi_words_close(struct ofi *ofi, struct ofi_region *region); /* no more */
/* Carry out a write that came as a message. False if nothing like it is registered. */
bool ofi_words_write(const struct ofi *ofi, const void *message, size_t bytes);

/* ofi_poll.c */
size_t ofi_poll(struct fabric *fabric, struct fabric_event events[], size_t max);
bool ofi_arm(struct fabric *fabric);

#endif
