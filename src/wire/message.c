/* SPDX-License-Identifier: BSD-3-Clause */
/* The bodies, as offsets in the whole message; all are drawn in doc/protocol.md.
 *
 *     OFFER            16 view u64, 24 bytes u64, 32 block bytes u64, 40 schedule u8, 41 name bytes u8,
 *                      42 members u16, 44 buffers u32, 48 subject u64, 56 purpose u8, 57 0, 58 ids u16 each,
 *                      name
 *     MANIFEST         16 first u32, 20 count u16, 22 last u8, 23 0, 24 entries: bytes u64, memory u8,
 *                      device u8, name bytes u8, name
 *     GRANT            16 slot u16, 18 first u32, 22 count u16, 24 last u8, 25 0, 26 entries: offset u64,
 *                      bytes u64, address u64, key u64
 *     REFUSE, FAILED,
 *     CANCEL, FORGET   16 code i32, 20 culprit u32, 24 text
 *     SEAL             16 digest u64
 *     TABLE            16 address u64, 24 key u64, 32 row bytes u64, 40 slot u32
 *     HELD             16 first u32, 20 words u16, 22 0 u16, 24 words u64 each
 *     HAVE             16 view u64, 24 digest u64, 32 sealed u8, 33 asks u8, 34 last u8, 35 0, 36 first u32,
 *                      40 words u16, 42 0 u16, 44 words u64 each
 *     WANT             16 view u64
 *     ASK              16 block u32
 *     CREDIT           as GRANT
 *     the others       nothing
 *
 * A text or name at the end of a body reaches to the end of the message. */
#include "wire/message.h"

#include <assert.h>
#include <string.h>

#include <covey/covey.h>

#include "base/bitmap.h"
#include "base/text.h"
#include "wire/bytes.h"

#define ID_BYTES         2
#define WORD_BYTES       sizeof(uint64_t)
#define EXTENT_BYTES     32
#define ENTRY_BYTES      11 /* of a manifest, before the name */
#define NODE_IDS         65536
#define PAGE_INDEX_LIMIT ((uint64_t)UINT32_MAX)

/* `take` returns whether the fields are in range; message_decode() then asks whether the body was long enough
 * and nothing is left of it. */
struct body {
    const char *name;
    bool of_cluster; /* can be the cluster's, and then has no group */
    void (*put)(const struct message *message, struct bytes_writer *out);
    bool (*take)(struct bytes_reader *in, struct message *message);
};

static bool is_text(const void *text, size_t bytes)
{
    return bytes == 0 || (text != NULL && memchr(text, '\0', bytes) == NULL);
}

/* --- Arrays of ids -------------------------------------------------------------------------- */

static uint16_t id_at(const uint8_t *data)
{
    struct bytes_reader in = bytes_read(data, ID_BYTES);

    return bytes_take_u16(&in);
}

uint16_t message_offer_id(const struct message_offer *offer, size_t index)
{
    assert(index < offer->members);
    return id_at(offer->ids + index * ID_BYTES);
}

size_t message_put_id(uint8_t *out, uint16_t id)
{
    struct bytes_writer writer = bytes_write(out, ID_BYTES);

    bytes_put_u16(&writer, id);
    return writer.used;
}

/* Whether count ids are all different. */
static bool ids_differ(const uint8_t *data, size_t count)
{
    uint64_t seen[BITMAP_WORDS(NODE_IDS)];

    bitmap_clear_all(seen, NODE_IDS);
    for (size_t i = 0; i < count; i++) {
        uint16_t id = id_at(data + i * ID_BYTES);

        if (bitmap_get(seen, id))
            return false;
        bitmap_set(seen, id);
    }
    return true;
}

/* --- OFFER ---------------------------------------------------------------------------------------------- */

static void put_offer(const struct message *message, struct bytes_writer *out)
{
    const struct message_offer *offer = &message->offer;

    bytes_put_u64(out, offer->view);
    bytes_put_u64(out, offer->bytes);
    bytes_put_u64(out, offer->block_bytes);
    bytes_put_u8(out, offer->schedule);
    bytes_put_u8(out, offer->name_bytes);
    bytes_put_u16(out, offer->members);
    bytes_put_u32(out, offer->buffers);
    bytes_put_u64(out, offer->subject);
    bytes_put_u8(out, offer->purpose);
    bytes_put_u8(out, 0);
    bytes_put(out, offer->ids, (size_t)offer->members * ID_BYTES);
    bytes_put(out, offer->name, offer->name_bytes);
}

/* A block's number fits into an immediate and is not the fence's. */
static bool blocks_fit(uint64_t bytes, uint64_t block_bytes)
{
    return block_bytes != 0 && bytes / block_bytes + (bytes % block_bytes != 0) <= IMMEDIATE_FENCE;
}

static bool take_offer(struct bytes_reader *in, struct message *message)
{
    struct message_offer *offer = &message->offer;
    uint8_t zero;

    offer->view = bytes_take_u64(in);
    offer->bytes = bytes_take_u64(in);
    offer->block_bytes = bytes_take_u64(in);
    offer->schedule = bytes_take_u8(in);
    offer->name_bytes = bytes_take_u8(in);
    offer->members = bytes_take_u16(in);
    offer->buffers = bytes_take_u32(in);
    offer->subject = bytes_take_u64(in);
    offer->purpose = bytes_take_u8(in);
    zero = bytes_take_u8(in);
    offer->ids = bytes_take(in, (size_t)offer->members * ID_BYTES);
    offer->name = (const char *)bytes_take(in, offer->name_bytes);
    return !in->failed && zero == 0 && blocks_fit(offer->bytes, offer->block_bytes) &&
           offer->purpose < OFFER_PURPOSES && (offer->purpose == OFFER_PUT) == (offer->subject == 0) &&
           offer->schedule < MESSAGE_SCHEDULES && offer->members >= 2 &&
           offer->members <= COVEY_MEMBERS_MAX && offer->buffers <= COVEY_BUFFERS_MAX &&
           (offer->buffers > 0 || offer->bytes == 0) && offer->name_bytes > 0 &&
           is_text(offer->name, offer->name_bytes) && ids_differ(offer->ids, offer->members);
}

/* --- Pages ---------------------------------------------------------------------------------------------- */

static void put_page(const struct message_page *page, struct bytes_writer *out)
{
    bytes_put_u32(out, page->first);
    bytes_put_u16(out, page->count);
    bytes_put_u8(out, page->last);
    bytes_put_u8(out, 0);
    bytes_put(out, page->data, page->data_bytes);
}

/* The rest of the message is the page's entries. */
static bool take_page(struct bytes_reader *in, uint64_t limit, struct message_page *page)
{
    uint8_t last, zero;

    page->first = bytes_take_u32(in);
    page->count = bytes_take_u16(in);
    last = bytes_take_u8(in);
    zero = bytes_take_u8(in);
    page->last = last == 1;
    page->data_bytes = in->left;
    page->data = bytes_take(in, in->left);
    return page->data != NULL && last <= 1 && zero == 0 && page->count > 0 &&
           (uint64_t)page->first + page->count <= limit;
}

size_t manifest_put(uint8_t *data, size_t used, size_t capacity, const struct manifest_entry *entry)
{
    struct bytes_writer out = bytes_write(data + used, capacity - used);

    if (capacity - used < (size_t)ENTRY_BYTES + entry->name_bytes)
        return 0;
    bytes_put_u64(&out, entry->bytes);
    bytes_put_u8(&out, entry->memory);
    bytes_put_u8(&out, entry->device);
    bytes_put_u8(&out, entry->name_bytes);
    bytes_put(&out, entry->name, entry->name_bytes);
    return out.used;
}

static bool take_entry(struct bytes_reader *in, struct manifest_entry *entry)
{
    entry->bytes = bytes_take_u64(in);
    entry->memory = bytes_take_u8(in);
    entry->device = bytes_take_u8(in);
    entry->name_bytes = bytes_take_u8(in);
    entry->name = (const char *)bytes_take(in, entry->name_bytes);
    return !in->failed && entry->memory <= COVEY_MEMORY_CUDA_MANAGED &&
           is_text(entry->name, entry->name_bytes);
}

bool manifest_take(const struct message_page *page, size_t *offset, struct manifest_entry *entry)
{
    struct bytes_reader in = bytes_read(page->data + *offset, page->data_bytes - *offset);

    if (in.left == 0 || !take_entry(&in, entry))
        return false;
    *offset = page->data_bytes - in.left;
    return true;
}

static void put_manifest(const struct message *message, struct bytes_writer *out)
{
    put_page(&message->manifest, out);
}

static bool take_manifest(struct bytes_reader *in, struct message *message)
{
    struct message_page *page = &message->manifest;
    struct manifest_entry entry;
    size_t offset = 0;

    if (!take_page(in, COVEY_BUFFERS_MAX, page))
        return false;
    for (uint16_t i = 0; i < page->count; i++) {
        if (!manifest_take(page, &offset, &entry))
            return false;
    }
    return offset == page->data_bytes;
}

size_t grant_put(uint8_t *data, size_t used, size_t capacity, const struct grant_extent *extent)
{
    struct bytes_writer out = bytes_write(data + used, capacity - used);

    if (capacity - used < EXTENT_BYTES)
        return 0;
    bytes_put_u64(&out, extent->offset);
    bytes_put_u64(&out, extent->bytes);
    bytes_put_u64(&out, extent->address);
    bytes_put_u64(&out, extent->key);
    return out.used;
}

bool grant_take(const struct message_page *page, size_t *offset, struct grant_extent *extent)
{
    struct bytes_reader in = bytes_read(page->data + *offset, page->data_bytes - *offset);

    if (in.left < EXTENT_BYTES)
        return false;
    extent->offset = bytes_take_u64(&in);
    extent->bytes = bytes_take_u64(&in);
    extent->address = bytes_take_u64(&in);
    extent->key = bytes_take_u64(&in);
    *offset += EXTENT_BYTES;
    return true;
}

static void put_grant(const struct message *message, struct bytes_writer *out)
{
    bytes_put_u16(out, message->grant.slot);
    put_page(&message->grant.page, out);
}

static bool take_grant(struct bytes_reader *in, struct message *message)
{
    struct message_grant *grant = &message->grant;
    struct grant_extent extent;
    uint64_t end = 0;
    size_t offset = 0;

    grant->slot = bytes_take_u16(in);
    if (!take_page(in, PAGE_INDEX_LIMIT, &grant->page) || grant->slot >= IMMEDIATE_SLOTS ||
        grant->page.data_bytes != (size_t)grant->page.count * EXTENT_BYTES)
        return false;
    while (grant_take(&grant->page, &offset, &extent)) {
        if (extent.offset < end || extent.bytes > UINT64_MAX - extent.offset ||
            extent.bytes > UINT64_MAX - extent.address)
            return false;
        end = extent.offset + extent.bytes;
    }
    return true;
}

/* --- Sets of blocks ------------------------------------------------------------------------------------- */

uint64_t message_blocks_word(const struct message_blocks *blocks, size_t index)
{
    struct bytes_reader in;

    assert(index < blocks->words);
    in = bytes_read(blocks->data + index * WORD_BYTES, WORD_BYTES);
    return bytes_take_u64(&in);
}

size_t message_put_word(uint8_t *out, uint64_t word)
{
    struct bytes_writer writer = bytes_write(out, WORD_BYTES);

    bytes_put_u64(&writer, word);
    return writer.used;
}

static void put_blocks(const struct message_blocks *blocks, struct bytes_writer *out)
{
    bytes_put_u32(out, blocks->first);
    bytes_put_u16(out, blocks->words);
    bytes_put_u16(out, 0);
    bytes_put(out, blocks->data, blocks->words * WORD_BYTES);
}

static bool take_blocks(struct bytes_reader *in, struct message_blocks *blocks)
{
    uint16_t zero;

    blocks->first = bytes_take_u32(in);
    blocks->words = bytes_take_u16(in);
    zero = bytes_take_u16(in);
    blocks->data = bytes_take(in, blocks->words * WORD_BYTES);
    return !in->failed && zero == 0 && blocks->first % 64 == 0 && blocks->words <= MESSAGE_WORDS_MAX &&
           (uint64_t)blocks->first + 64 * (uint64_t)blocks->words <= IMMEDIATE_FENCE + UINT64_C(1);
}

static void put_held(const struct message *message, struct bytes_writer *out)
{
    put_blocks(&message->held, out);
}

static bool take_held(struct bytes_reader *in, struct message *message)
{
    return take_blocks(in, &message->held) && message->held.words > 0;
}

static void put_have(const struct message *message, struct bytes_writer *out)
{
    const struct message_have *have = &message->have;

    bytes_put_u64(out, have->view);
    bytes_put_u64(out, have->digest);
    bytes_put_u8(out, have->sealed);
    bytes_put_u8(out, have->asks);
    bytes_put_u8(out, have->last);
    bytes_put_u8(out, 0);
    put_blocks(&have->blocks, out);
}

static bool take_have(struct bytes_reader *in, struct message *message)
{
    struct message_have *have = &message->have;
    uint8_t sealed, asks, last, zero;

    have->view = bytes_take_u64(in);
    have->digest = bytes_take_u64(in);
    sealed = bytes_take_u8(in);
    asks = bytes_take_u8(in);
    last = bytes_take_u8(in);
    zero = bytes_take_u8(in);
    have->sealed = sealed == 1;
    have->asks = asks == 1;
    have->last = last == 1;
    return take_blocks(in, &have->blocks) && sealed <= 1 && asks <= 1 && last <= 1 && zero == 0;
}

static void put_want(const struct message *message, struct bytes_writer *out)
{
    bytes_put_u64(out, message->view);
}

static bool take_want(struct bytes_reader *in, struct message *message)
{
    message->view = bytes_take_u64(in);
    return true;
}

/* --- REFUSE, FAILED, CANCEL, FORGET
 * ----------------------------------------------------------------------------- */

static size_t text_cut(const char *text, size_t bytes)
{
    return bytes <= MESSAGE_TEXT_MAX ? bytes : text_whole(text, MESSAGE_TEXT_MAX);
}

static void put_reason(const struct message *message, struct bytes_writer *out)
{
    const struct message_reason *reason = &message->reason;

    bytes_put_u32(out, (uint32_t)reason->code);
    bytes_put_u32(out, reason->culprit);
    bytes_put(out, reason->text, text_cut(reason->text, reason->text_bytes));
}

static bool take_reason(struct bytes_reader *in, struct message *message)
{
    struct message_reason *reason = &message->reason;
    size_t bytes;

    reason->code = (int32_t)bytes_take_u32(in);
    reason->culprit = bytes_take_u32(in);
    bytes = in->left;
    reason->text = (const char *)bytes_take(in, bytes);
    if (bytes > MESSAGE_TEXT_MAX)
        return false;
    reason->text_bytes = (uint16_t)bytes;
    return reason->code < 0 && (reason->culprit < NODE_IDS || reason->culprit == MESSAGE_NOBODY) &&
           is_text(reason->text, bytes);
}

/* --- SEAL, TABLE, and the empty ones ---------------------------------------------------------------------
 */

static void put_seal(const struct message *message, struct bytes_writer *out)
{
    bytes_put_u64(out, message->digest);
}

static bool take_seal(struct bytes_reader *in, struct message *message)
{
    message->digest = bytes_take_u64(in);
    return true;
}

static void put_ask(const struct message *message, struct bytes_writer *out)
{
    bytes_put_u32(out, message->block);
}

static bool take_ask(struct bytes_reader *in, struct message *message)
{
    message->block = bytes_take_u32(in);
    return message->block < IMMEDIATE_FENCE;
}

static void put_table(const struct message *message, struct bytes_writer *out)
{
    bytes_put_u64(out, message->table.address);
    bytes_put_u64(out, message->table.key);
    bytes_put_u64(out, message->table.row_bytes);
    bytes_put_u32(out, message->table.slot);
}

static bool take_table(struct bytes_reader *in, struct message *message)
{
    struct message_table *table = &message->table;

    table->address = bytes_take_u64(in);
    table->key = bytes_take_u64(in);
    table->row_bytes = bytes_take_u64(in);
    table->slot = bytes_take_u32(in);
    return table->row_bytes <= UINT64_MAX - table->address;
}

static void put_nothing(const struct message *message, struct bytes_writer *out)
{
    (void)message;
    (void)out;
}

static bool take_nothing(struct bytes_reader *in, struct message *message)
{
    (void)message;
    return in->left == 0;
}

/* --- The whole ------------------------------------------------------------------------------------------ */

static const struct body bodies[] = {
    [MESSAGE_OFFER] = {"offer", false, put_offer, take_offer},
    [MESSAGE_MANIFEST] = {"manifest", false, put_manifest, take_manifest},
    [MESSAGE_ACCEPT] = {"accept", false, put_nothing, take_nothing},
    [MESSAGE_REFUSE] = {"refuse", false, put_reason, take_reason},
    [MESSAGE_START] = {"start", false, put_nothing, take_nothing},
    [MESSAGE_GRANT] = {"grant", false, put_grant, take_grant},
    [MESSAGE_SEAL] = {"seal", false, put_seal, take_seal},
    [MESSAGE_RECEIVED] = {"received", false, put_nothing, take_nothing},
    [MESSAGE_FAILED] = {"failed", false, put_reason, take_reason},
    [MESSAGE_CANCEL] = {"cancel", false, put_reason, take_reason},
    [MESSAGE_DELIVERED] = {"delivered", false, put_nothing, take_nothing},
    [MESSAGE_TABLE] = {"table", true, put_table, take_table},
    [MESSAGE_HELD] = {"held", false, put_held, take_held},
    [MESSAGE_HAVE] = {"have", false, put_have, take_have},
    [MESSAGE_FORGET] = {"forget", false, put_reason, take_reason},
    [MESSAGE_WANT] = {"want", false, put_want, take_want},
    [MESSAGE_COMMIT] = {"commit", false, put_nothing, take_nothing},
    [MESSAGE_ASK] = {"ask", false, put_ask, take_ask},
    [MESSAGE_CREDIT] = {"credit", false, put_grant, take_grant},
};

static const struct body *body_of(unsigned type)
{
    if (type >= sizeof(bodies) / sizeof(bodies[0]) || bodies[type].name == NULL)
        return NULL;
    return &bodies[type];
}

const char *message_name(enum message_type type)
{
    const struct body *body = body_of(type);

    return body != NULL ? body->name : "unknown";
}

static void put_header(const struct message *message, size_t bytes, uint8_t *out)
{
    struct bytes_writer header = bytes_write(out, MESSAGE_HEADER_BYTES);

    bytes_put_u8(&header, (uint8_t)message->type);
    bytes_put_u8(&header, 0);
    bytes_put_u16(&header, message->group);
    bytes_put_u32(&header, (uint32_t)bytes);
    bytes_put_u64(&header, message->session);
}

size_t message_encode(const struct message *message, uint8_t out[MESSAGE_MAX])
{
    struct bytes_writer writer = bytes_write(out, MESSAGE_MAX);
    const struct body *body = body_of(message->type);

    assert(body != NULL);
    writer.used = MESSAGE_HEADER_BYTES;
    body->put(message, &writer);
    put_header(message, writer.used, out);
    /* What a peer would refuse is a bug here. */
    assert(message_decode(out, writer.used, &(struct message){0}) == COVEY_OK);
    return writer.used;
}

int message_decode(const uint8_t *data, size_t bytes, struct message *message)
{
    struct bytes_reader in = bytes_read(data, bytes);
    struct message taken = {0};
    const struct body *body;
    uint8_t type, zero;
    uint32_t length;

    type = bytes_take_u8(&in);
    zero = bytes_take_u8(&in);
    taken.group = bytes_take_u16(&in);
    length = bytes_take_u32(&in);
    taken.session = bytes_take_u64(&in);
    body = body_of(type);
    if (body == NULL || zero != 0 || bytes > MESSAGE_MAX || length != bytes ||
        (taken.group == MESSAGE_NO_GROUP && !body->of_cluster))
        return COVEY_PROTOCOL;
    taken.type = type;
    if (!body->take(&in, &taken) || !bytes_done(&in))
        return COVEY_PROTOCOL;
    *message = taken;
    return COVEY_OK;
}

/* --- Entries ---------------------------------------------------------------------------------------------
 */

size_t entry_encode(const struct entry *entry, uint8_t out[ENTRY_MAX])
{
    struct bytes_writer writer = bytes_write(out, ENTRY_MAX);

    bytes_put_u64(&writer, entry->id);
    bytes_put(&writer, entry->name, entry->name_bytes);
    return writer.used;
}

int entry_decode(uint8_t kind, const void *data, size_t bytes, struct entry *entry)
{
    struct bytes_reader in = bytes_read(data, bytes);
    struct entry taken = {.kind = kind, .id = bytes_take_u64(&in)};
    size_t name_bytes = in.failed ? 0 : bytes - sizeof(taken.id);

    taken.name = (const char *)bytes_take(&in, name_bytes);
    taken.name_bytes = (uint8_t)name_bytes;
    if (in.failed || name_bytes > MESSAGE_NAME_MAX || !is_text(taken.name, name_bytes) ||
        !((kind == ORDER_COMMIT && name_bytes == 0) || (kind == ORDER_REMOVE && name_bytes > 0)))
        return COVEY_PROTOCOL;
    *entry = taken;
    return 0;
}
