/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/serve/serve.h"

#include "control/item.h"
#include "daemon/condition.h"

static const char *const member_states[] = {
    [COVEY_MEMBER_MISSING] = "missing",
    [COVEY_MEMBER_MEMBER] = "member",
    [COVEY_MEMBER_SUSPECTED] = "suspected",
};

const char *serve_state_name(enum covey_state state)
{
    static const char *const names[] = {
        [COVEY_STATE_FORMING] = "forming",     [COVEY_STATE_RUNNING] = "running",
        [COVEY_STATE_SYNCING] = "syncing",     [COVEY_STATE_WEDGED] = "wedged",
        [COVEY_STATE_NO_QUORUM] = "no-quorum", [COVEY_STATE_EVICTED] = "evicted",
    };

    return names[state];
}

static json_t *member_item(const struct covey_member *member, bool self)
{
    return json_pack("{s:o, s:i, s:o, s:o, s:o, s:s, s:b, s:o, s:o}", "rank",
                     member->rank == UINT32_MAX ? json_null() : item_u64(member->rank), "id", (int)member->id,
                     "name", item_text(member->name), "address", item_text(member->address), "incarnation",
                     member->incarnation == 0 ? json_null() : item_hex(member->incarnation), "state",
                     member_states[member->state], "self", (int)self, "since", item_time(member->since_ns),
                     "problem", member->problem[0] == '\0' ? json_null() : item_text(member->problem));
}

static json_t *view_summary(const struct covey_view *view, uint64_t change)
{
    return json_pack("{s:o, s:o, s:s, s:b, s:o, s:o, s:o}", "number", item_u64(view->number), "epoch",
                     view->epoch == 0 ? json_null() : item_hex(view->epoch), "state",
                     serve_state_name(view->state), "quorate", (int)view->quorate, "size",
                     item_u64(view->size), "count", item_u64(view->count), "change", item_u64(change));
}

int serve_await_change(struct client *client, uint64_t after, uint64_t until_ns)
{
    int result = 0;

    while (result == 0 && !client->server->stopping) {
        if (journal_await_change(&client->server->journal, after, REPLY_BEAT_MS) > after ||
            condition_now_ns() >= until_ns)
            return 1;
        result = client_beat(client, REPLY_BEAT_MS, 0, 0);
    }
    return result;
}

int serve_view(struct client *client, const struct request *request)
{
    struct covey_view view;
    struct page page;
    uint64_t change;
    int result = request->wait ? serve_await_change(client, request->after, UINT64_MAX) : 1;

    if (result == 0)
        return client_refuse(client, COVEY_CLOSED, "the daemon stops");
    if (result < 0)
        return result;
    /* Read before the view: what changes in between is told again rather than missed. */
    change = journal_await_change(&client->server->journal, 0, 0);
    result = covey_node_view(client->server->node, &view);
    if (result != 0)
        return client_fail_node(client, result);
    page_begin(&page, client);
    for (uint32_t i = 0; i < view.count; i++)
        page_add(&page, member_item(&view.members[i], i == view.self));
    result = page_end(&page);
    if (result == 0)
        result = client_send(client, REPLY_DONE, view_summary(&view, change));
    covey_view_free(&view);
    return result;
}
