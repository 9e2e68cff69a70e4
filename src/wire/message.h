/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WIRE_MESSAGE_H
#define WIRE_MESSAGE_H

/* The small messages of the control lane: encode and decode. All integers are little-endian and of fixed
 * width.
 *
 *     0        1        2                4                                8                               16
 *     +--------+--------+----------------+--------------------------------+--------------------------------+
 *     | type   | 0      | group          | bytes of the whole message     | session                        |
 *     +--------+--------+----------------+--------------------------------+--------------------------------+
 *     | body, by type ...
 *
 * `group` is the group's index in the configuration, which all nodes of a cluster share; the TABLE that is
 * the cluster's has MESSAGE_NO_GROUP. `session` is (root's node id << 48 | sequence).
 *
 * message_decode() checks every length and every range that can be checked without knowing the receiver's
 * state; a message that fails is COVEY_PROTOCOL and changes nothing. Decoded strings and arrays point into
 * the given bytes.
 *
 * The immediate of a write on the data lane: receiver's session slot (12 bits) and block (20 bits).
 *
 *     31                    20 19                                      0
 *     +-----------------------+----------------------------------------+
 *     | slot                  | block, or IMMEDIATE_FENCE              |
 *     +-----------------------+----------------------------------------+
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <covey/error.h>

#define MESSAGE_MAX          16384 /* bytes; the fabric's FABRIC_MESSAGE_MAX */
#define MESSAGE_HEADER_BYTES 16
#define MESSAGE_TEXT_MAX     511
#define MESSAGE_NAME_MAX     255
#define MESSAGE_SCHEDULES    5 /* kinds that an OFFER can name */
#define MESSAGE_NO_GROUP     UINT16_MAX
#define MESSAGE_NOBODY       UINT32_MAX

#define IMMEDIATE_SLOTS      UINT32_C(4096)
#define IMMEDIATE_FENCE      UINT32_C(0xfffff)
#define IMMEDIATE_GROUP      UINT32_C(0x80000000) /* on the control lane: a push to a group's row */

static inline uint32_t immediate_encode(uint32_t slot, uint32_t block)
{
    return slot << 20 | block;
}

static inline void immediate_decode(uint32_t immediate, uint32_t *slot, uint32_t *block)
{
    *slot = immediate >> 20;
    *block = immediate & IMMEDIATE_FENCE;
}

enum message_type {
    MESSAGE_OFFER = 1, /* root: an object is coming */
    MESSAGE_MANIFEST,  /* root: some of its buffers, in order, behind the OFFER */
    MESSAGE_ACCEPT,
    MESSAGE_REFUSE,
    MESSAGE_START,
    MESSAGE_GRANT, /* some of the extents, in order; `last` ends the grant */
    MESSAGE_SEAL,
    MESSAGE_RECEIVED,
    MESSAGE_FAILED,
    MESSAGE_CANCEL,
    MESSAGE_DELIVERED, /* also answers an ordered removal */
    MESSAGE_TABLE,     /* where the receiver's row goes in the sender's table, or a group's */
    MESSAGE_HELD,      /* before a GRANT: blocks that are here already */
    MESSAGE_HAVE,      /* of the interrupted object `session`: the blocks that are here, page by page */
    MESSAGE_FORGET,    /* the object `session` is unknown, or cannot be finished: why */
    MESSAGE_WANT,      /* bring me what I lack of the object `session`: OFFER answers, or FORGET */
    MESSAGE_COMMIT,    /* root of a session outside the order: everyone has everything */
    MESSAGE_ASK,       /* to who stages it: this block is ready to be sent */
    MESSAGE_CREDIT     /* its answer: write the block there. As GRANT, page.first is the block */
};

/* What a session is for, and what OFFER's `subject` names. */
enum offer_purpose {
    OFFER_PUT,    /* a new object: 0 */
    OFFER_FINISH, /* an interrupted object, to everyone: the session that began it, as in HAVE */
    OFFER_PULL    /* some blocks of it, to the one who finishes it: likewise */
};
#define OFFER_PURPOSES 3

struct message_offer {
    uint64_t view;
    uint64_t bytes, block_bytes;
    uint8_t schedule;   /* enum schedule_kind */
    uint16_t members;   /* 2..1024 */
    const uint8_t *ids; /* members x u16: message_offer_id() */
    uint32_t buffers;   /* 0..COVEY_BUFFERS_MAX: so many entries follow in MANIFEST messages */
    uint8_t purpose;    /* enum offer_purpose */
    uint64_t subject;
    const char *name;   /* not terminated */
    uint8_t name_bytes; /* 1..255 */
};

struct manifest_entry {
    uint64_t bytes;
    uint8_t memory; /* enum covey_memory, as the sender has it */
    uint8_t device;
    const char *name; /* not terminated */
    uint8_t name_bytes;
};

/* A page of entries: count of them, encoded back to back in data. */
struct message_page {
    uint32_t first; /* index of the first entry */
    uint16_t count; /* >= 1 */
    bool last;
    const uint8_t *data;
    size_t data_bytes;
};

struct grant_extent {
    uint64_t offset, bytes; /* range of the object; in a CREDIT, of the block */
    uint64_t address, key;  /* where it goes, for fabric_write; or GRANT_STAGED_KEY */
};

/* The range cannot be written: each block that touches it needs a CREDIT. */
#define GRANT_STAGED_KEY UINT64_MAX

struct message_grant {
    uint16_t slot; /* of the receiver, < IMMEDIATE_SLOTS */
    struct message_page page;
};

/* A part of a set of blocks: words of a bitmap (base/bitmap.h), message_blocks_word(). */
struct message_blocks {
    uint32_t first;      /* the block of the first word's lowest bit: a multiple of 64 */
    uint16_t words;      /* 0..MESSAGE_WORDS_MAX */
    const uint8_t *data; /* words x u64 */
};

struct message_have {
    uint64_t view;   /* the sender's */
    uint64_t digest; /* of the whole object, if `sealed` */
    bool sealed;
    bool asks; /* nothing about the sender: whoever does not know the object says FORGET */
    bool last;
    struct message_blocks blocks;
};

/* REFUSE, FAILED, CANCEL, FORGET: why. */
struct message_reason {
    int32_t code;     /* negative, of error.h (an unknown one is accepted) */
    uint32_t culprit; /* node id, or MESSAGE_NOBODY */
    const char *text; /* not terminated */
    uint16_t text_bytes;
};

/* Memory of the sender that is the receiver's to write: a slot of the cluster's table (core/table.h), or,
 * with a group, its row of the group's order (core/order.h). */
struct message_table {
    uint64_t address, key; /* for fabric_write */
    uint64_t row_bytes;    /* both sides have the same layout */
    uint32_t slot;         /* announces a push, as immediate; of a group, with IMMEDIATE_GROUP */
};

struct message {
    enum message_type type;
    uint16_t group;
    uint64_t session;
    union {
        struct message_offer offer;
        struct message_page manifest;
        struct message_grant grant;
        struct message_reason reason;
        uint64_t digest; /* SEAL */
        uint64_t view;   /* WANT: the sender's */
        struct message_blocks held;
        struct message_have have;
        uint32_t block; /* ASK */
        struct message_table table;
    };
};

/* Encode into out[0..MESSAGE_MAX). Returns the bytes written; asserts that the message is well formed and
 * fits (a reason's text is cut at MESSAGE_TEXT_MAX). */
size_t message_encode(const struct message *message, uint8_t out[MESSAGE_MAX]);

/* 0, or COVEY_PROTOCOL. */
int message_decode(const uint8_t *data, size_t bytes, struct message *message);

uint16_t message_offer_id(const struct message_offer *offer, size_t index);

/* Build the ids for the encoder: write one at out, return its bytes. */
size_t message_put_id(uint8_t *out, uint16_t id);

/* One word of a set, lowest first; build the words for the encoder: write one at out, return its bytes. */
#define MESSAGE_WORDS_MAX ((MESSAGE_MAX - 64) / sizeof(uint64_t))
uint64_t message_blocks_word(const struct message_blocks *blocks, size_t index);
size_t message_put_word(uint8_t *out, uint64_t word);

/* Pages. Writing: append an entry to a page's data of `capacity` bytes; returns its bytes, 0 if it does not
 * fit. Reading: take the entry at *offset and advance it; false at the end. message_decode() has checked
 * every entry. */
#define MESSAGE_PAGE_MAX (MESSAGE_MAX - 64) /* data bytes of a page that always fit */
size_t manifest_put(uint8_t *data, size_t used, size_t capacity, const struct manifest_entry *entry);
bool manifest_take(const struct message_page *page, size_t *offset, struct manifest_entry *entry);
size_t grant_put(uint8_t *data, size_t used, size_t capacity, const struct grant_extent *extent);
bool grant_take(const struct message_page *page, size_t *offset, struct grant_extent *extent);

/* --- Entries of a group's order --------------------------------------------------------------------------
 */

enum order_kind {
    ORDER_COMMIT = 1, /* the object of session `id` is whole at every member of it */
    ORDER_REMOVE,     /* an object; `id` is the request's, made like a session's */
    ORDER_MESSAGE     /* bytes of the application */
};

/* Of ORDER_COMMIT and ORDER_REMOVE: id u64, then the name, to the end. */
struct entry {
    uint8_t kind;
    uint64_t id;
    const char *name; /* ORDER_REMOVE: the object; not terminated */
    uint8_t name_bytes;
};
#define ENTRY_MAX (8 + MESSAGE_NAME_MAX) /* bytes */

/* Returns the bytes written. */
size_t entry_encode(const struct entry *entry, uint8_t out[ENTRY_MAX]);
/* 0, or COVEY_PROTOCOL. The name points into the given bytes. */
int entry_decode(uint8_t kind, const void *data, size_t bytes, struct entry *entry);

/* "offer", ... for logs; "unknown" otherwise. */
const char *message_name(enum message_type type);

#endif
