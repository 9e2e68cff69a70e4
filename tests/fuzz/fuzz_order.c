/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as a member's row of a group's order, and then other ones in their place: whatever a peer writes,
 * and whenever, nothing outside of its row is read, and nothing runs for ever. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/order.h"
#include "wire/message.h"

#define RING 256

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct order_config config = {.members_max = 2, .ring_bytes = RING};

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);

    if (memory == NULL)
        abort();
    return memory;
}

/* View 1 is in the second half of a row; of it, the words and the ring. */
static void fill(char *row, const uint8_t **data, size_t *size)
{
    size_t bytes = order_row_bytes(&config) / 2, some = *size < bytes ? *size : bytes;

    memcpy(row + bytes, *data, some);
    *data += some;
    *size -= some;
}

static void take_all(struct order *order)
{
    static uint8_t copy[RING];
    struct order_entry taken;
    struct entry entry;

    while (order_next(order, &taken)) {
        memcpy(copy, taken.data, taken.bytes);
        if (entry_decode(taken.kind, taken.data, taken.bytes, &entry) == 0)
            memcpy(copy, entry.name, entry.name_bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    void *memory = allocate(order_bytes(&config)), *own = allocate(order_row_bytes(&config));
    char *row = allocate(order_row_bytes(&config));
    struct order *order = order_init(&config, memory, own);

    order_enter(order, 1, 2, 0, 0);
    order_bind(order, 1, row);
    order_link(order, 1);
    while (size > 0) {
        struct order_push push;

        fill(row, &data, &size);
        (void)order_look(order, 1);
        order_send(order, 1, "own", 3);
        order_advance(order);
        take_all(order);
        order_push(order, 1, &push);
    }
    order_trim(order, order_received(order));
    take_all(order);
    order_enter(order, 2, 1, 0, order_received(order));
    free(memory);
    free(own);
    free(row);
    return 0;
}
