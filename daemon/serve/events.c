/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/serve/serve.h"

#include "control/item.h"

/* Wait for an event after this one. 1: it came; 0: the daemon stops; or the client is gone. */
static int await_event(struct client *client, uint64_t after)
{
    int result = 0;

    while (result == 0 && !client->server->stopping) {
        if (journal_await_event(&client->server->journal, after, REPLY_BEAT_MS) > after)
            return 1;
        result = client_beat(client, REPLY_BEAT_MS, 0, 0);
    }
    return result;
}

/* Send what there is, a page at a time, so that the journal is never locked while a client reads. */
static int send_events(struct client *client, uint64_t *last, uint64_t *lost)
{
    for (;;) {
        json_t *items = json_array();
        int result;

        journal_read(&client->server->journal, last, REPLY_PAGE_ITEMS, items, lost);
        if (json_array_size(items) == 0) {
            json_decref(items);
            return 0;
        }
        result = client_send(client, REPLY_ITEMS, items);
        if (result != 0)
            return result;
    }
}

int serve_events(struct client *client, const struct request *request)
{
    uint64_t last = request->after, lost = 0;
    int result = request->wait ? await_event(client, last) : 1;

    if (result == 0)
        return client_refuse(client, COVEY_CLOSED, "the daemon stops");
    if (result > 0)
        result = send_events(client, &last, &lost);
    if (result != 0)
        return result;
    return client_send(client, REPLY_DONE,
                       json_pack("{s:o, s:o}", "last", item_u64(last), "lost", item_u64(lost)));
}
