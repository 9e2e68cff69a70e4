/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as a message of the control lane. What is taken is in bounds, and is the one encoding of what it
 * means. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool good)
{
    if (!good)
        abort();
}

/* Copy what the decoder points to: a sanitizer sees what is not there. */
static void touch(const void *data, size_t bytes)
{
    static uint8_t copy[MESSAGE_MAX];

    if (bytes > 0)
        memcpy(copy, data, bytes);
}

static void walk(const struct message *message)
{
    struct manifest_entry entry;
    struct grant_extent extent;
    size_t offset = 0, count = 0;

    if (message->type == MESSAGE_OFFER) {
        touch(message->offer.name, message->offer.name_bytes);
        for (size_t i = 0; i < message->offer.members; i++)
            message_offer_id(&message->offer, i);
    } else if (message->type == MESSAGE_MANIFEST) {
        for (; manifest_take(&message->manifest, &offset, &entry); count++)
            touch(entry.name, entry.name_bytes);
        need(count == message->manifest.count);
    } else if (message->type == MESSAGE_GRANT || message->type == MESSAGE_CREDIT) {
        while (grant_take(&message->grant.page, &offset, &extent))
            count++;
        need(count == message->grant.page.count);
    } else if (message->type == MESSAGE_HELD) {
        touch(message->held.data, message->held.words * sizeof(uint64_t));
    } else if (message->type == MESSAGE_HAVE) {
        touch(message->have.blocks.data, message->have.blocks.words * sizeof(uint64_t));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t again[MESSAGE_MAX];
    struct message message;

    if (message_decode(data, size, &message) != COVEY_OK)
        return 0;
    walk(&message);
    need(message_encode(&message, again) == size);
    need(memcmp(again, data, size) == 0);
    return 0;
}
