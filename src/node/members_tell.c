/* SPDX-License-Identifier: BSD-3-Clause */
#include "node/members_tell.h"

#include "base/text.h"

#define NAMES_MAX 400 /* bytes of a list of names in a sentence */

/* --- Rules ---------------------------------------------------------------------------------------------- */

/* How loud a rule is, and the type of its event, if it is one. What is not here is for debugging: the steps
 * of an agreement, of which the view is the result. */
static const struct telling {
    enum covey_log_level level;
    const char *event;
} tellings[MEMBERSHIP_RULE_COUNT] = {
    [MEMBERSHIP_RULE_SUSPECT_LINK] = {COVEY_LOG_INFO, "suspected"},
    [MEMBERSHIP_RULE_SUSPECT_SILENT] = {COVEY_LOG_INFO, "suspected"},
    [MEMBERSHIP_RULE_SUSPECT_ABSENT] = {COVEY_LOG_INFO, "suspected"},
    [MEMBERSHIP_RULE_TRUST] = {COVEY_LOG_INFO, "trusted"},
    [MEMBERSHIP_RULE_FORGIVE] = {COVEY_LOG_INFO, "stood-still"},
    [MEMBERSHIP_RULE_SURVIVOR] = {COVEY_LOG_INFO, "survivor"},
    [MEMBERSHIP_RULE_SURVIVOR_GONE] = {COVEY_LOG_INFO, "survivor-gone"},
    [MEMBERSHIP_RULE_OTHER_EPOCH] = {COVEY_LOG_WARNING, "other-epoch"},
    [MEMBERSHIP_RULE_ID_TAKEN] = {COVEY_LOG_WARNING, "id-taken"},
    [MEMBERSHIP_RULE_FORCE] = {COVEY_LOG_WARNING, "force"},
    [MEMBERSHIP_RULE_EVICT] = {COVEY_LOG_INFO, "evict"},
    [MEMBERSHIP_RULE_MALFORMED] = {COVEY_LOG_WARNING, "malformed"},
};

/* What the rule does not know of the reason. */
static void append_cause(const struct covey_node *node, const struct membership_trace *trace,
                         struct text *text)
{
    const struct peer *peer = node->peers != NULL ? peers_find(node->peers, trace->id) : NULL;

    if (trace->rule == MEMBERSHIP_RULE_SUSPECT_SILENT)
        text_append(text, " for %.3g s", (double)node->options->suspect_after_ns / 1e9);
    else if (peer != NULL && !peer->up && peer->problem[0] != '\0')
        text_append(text, " (%s)", peer->problem);
}

static void append_sentence(const struct covey_node *node, const struct membership_trace *trace,
                            struct text *text)
{
    const char *self = node->options->self.name, *name = node_name(node, trace->id);
    const char *sentence = membership_rule_sentence(trace->rule);

    switch (trace->rule) {
    case MEMBERSHIP_RULE_SUSPECT_LINK:
    case MEMBERSHIP_RULE_SUSPECT_SILENT:
    case MEMBERSHIP_RULE_SUSPECT_ABSENT:
        text_append(text, "%s suspects %s: %s", self, name, sentence);
        append_cause(node, trace, text);
        return;
    case MEMBERSHIP_RULE_TRUST:
        text_append(text, "%s trusts %s again: %s", self, name, sentence);
        return;
    case MEMBERSHIP_RULE_FORGIVE:
    case MEMBERSHIP_RULE_SURVIVOR_GONE:
    case MEMBERSHIP_RULE_ID_TAKEN:
        text_append(text, "%s: %s", name, sentence);
        return;
    case MEMBERSHIP_RULE_SURVIVOR:
    case MEMBERSHIP_RULE_PROMISE:
    case MEMBERSHIP_RULE_ACCEPT:
    case MEMBERSHIP_RULE_LEARN:
        text_append(text, "%s %s (%s)", self, sentence, name);
        return;
    default:
        text_append(text, "%s %s", name, sentence);
    }
}

static void tell_rule(struct covey_node *node, const struct membership_trace *trace)
{
    const struct telling *telling = &tellings[trace->rule];
    struct text text = {0};

    append_sentence(node, trace, &text);
    if (text.bytes == NULL)
        return;
    /* Whom the first view waits for, is in the view. */
    if (telling->event == NULL || (trace->number == 0 && trace->rule <= MEMBERSHIP_RULE_TRUST)) {
        log_debug(&node->log, "view %llu: %s: %s (%llx)", (unsigned long long)trace->number,
                  membership_rule_name(trace->rule), text.bytes, (unsigned long long)trace->value);
    } else {
        log_line(&node->log, telling->level, "view %llu: %s", (unsigned long long)trace->number, text.bytes);
        node_event(node, telling->event, node_name(node, trace->id), "%s", text.bytes);
    }
    text_fini(&text);
}

void members_tell_rules(struct covey_node *node, const struct membership_actions *actions)
{
    for (uint32_t i = 0; i < actions->trace_count; i++)
        tell_rule(node, &actions->traces[i]);
    if (actions->traces_lost > 0)
        log_debug(&node->log, "view %llu: %u more rules fired", (unsigned long long)node->view.number,
                  actions->traces_lost);
}

/* --- Views ---------------------------------------------------------------------------------------------- */

static void append_changes(const struct covey_node *node, const struct membership_actions *actions,
                           struct text *text)
{
    BITMAP_EACH(rank, actions->joined, actions->view->count)
    text_append(text, " +%s", node_name(node, actions->view->members[rank].id));
    BITMAP_EACH(rank, actions->left, actions->previous->count)
    text_append(text, " -%s", node_name(node, actions->previous->members[rank].id));
}

void members_tell_view(struct covey_node *node, const struct membership_actions *actions)
{
    const struct node_view *view = &node->view;
    uint64_t wedge_ns = node->counters.wedge_ns;
    struct text text = {0};

    append_changes(node, actions, &text);
    log_info(&node->log, "view %llu of epoch %016llx%s: %u members,%.*s; wedged for %.3f ms",
             (unsigned long long)view->number, (unsigned long long)view->epoch,
             actions->view->forced ? " (forced)" : "", view->count, NAMES_MAX,
             text.bytes != NULL ? text.bytes : " the same", (double)wedge_ns / 1e6);
    node_event_view(node, wedge_ns, "view %llu with %u members:%.*s", (unsigned long long)view->number,
                    view->count, NAMES_MAX, text.bytes != NULL ? text.bytes : " the same");
    text_fini(&text);
}

/* --- States --------------------------------------------------------------------------------------------- */

static void append_name(struct text *text, const char *name)
{
    text_append(text, "%s%s", text->length > 0 ? ", " : "", name);
}

static void no_quorum(struct covey_node *node, const struct membership *membership)
{
    struct text away = {0};

    for (uint32_t rank = 0; rank < node->view.count; rank++) {
        if (membership_suspects(membership, rank))
            append_name(&away, node_name(node, node->view.ids[rank]));
    }
    log_warning(&node->log,
                "view %llu has no quorum here, without %.*s: nothing can be put until they are back",
                (unsigned long long)node->view.number, NAMES_MAX, away.bytes != NULL ? away.bytes : "others");
    node_event(node, "no-quorum", node->options->cluster_name, "view %llu has no quorum here, without %.*s",
               (unsigned long long)node->view.number, NAMES_MAX, away.bytes != NULL ? away.bytes : "others");
    text_fini(&away);
}

static void quorum_back(struct covey_node *node)
{
    log_info(&node->log, "view %llu is quorate again", (unsigned long long)node->view.number);
    node_event(node, "quorum", node->options->cluster_name, "view %llu is quorate again",
               (unsigned long long)node->view.number);
}

/* Who suspected this node, or passed on that an operator wants it out, as far as their rows still tell. */
static void find_accusers(const struct covey_node *node, const struct membership *membership,
                          struct text *suspecting, struct text *evicting)
{
    uint32_t self = view_rank_of_id(membership_view(membership), node->options->self.id);
    struct membership_row row;

    for (uint32_t place = 0; self != VIEW_RANK_NONE && place < membership_places(membership); place++) {
        if (!membership_row(membership, place, &row) || row.suspected == NULL)
            continue;
        if (bitmap_get(row.suspected, self))
            append_name(suspecting, node_name(node, row.peer.id));
        if (bitmap_get(row.evicted, self))
            append_name(evicting, node_name(node, row.peer.id));
    }
}

static void evicted(struct covey_node *node, const struct membership *membership)
{
    struct text suspecting = {0}, evicting = {0}, reason = {0};

    find_accusers(node, membership, &suspecting, &evicting);
    if (evicting.bytes != NULL)
        text_append(&reason, " as the operator said at %.*s", NAMES_MAX, evicting.bytes);
    else if (suspecting.bytes != NULL)
        text_append(&reason, ", suspected by %.*s", NAMES_MAX, suspecting.bytes);
    log_warning(&node->log, "%s was evicted after view %llu%s: it joins again as a newcomer",
                node->options->self.name, (unsigned long long)node->view.number,
                reason.bytes != NULL ? reason.bytes : "");
    node_event(node, "evicted", node->options->self.name, "%s was evicted after view %llu%s",
               node->options->self.name, (unsigned long long)node->view.number,
               reason.bytes != NULL ? reason.bytes : "");
    text_fini(&suspecting);
    text_fini(&evicting);
    text_fini(&reason);
}

void members_tell_state(struct covey_node *node, const struct membership *membership,
                        enum membership_state state)
{
    if (state == MEMBERSHIP_NO_QUORUM)
        no_quorum(node, membership);
    else if (state == MEMBERSHIP_EVICTED)
        evicted(node, membership);
    else if (node->state == COVEY_STATE_NO_QUORUM &&
             (state == MEMBERSHIP_RUNNING || state == MEMBERSHIP_WEDGED))
        quorum_back(node);
}
