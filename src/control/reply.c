/* SPDX-License-Identifier: BSD-3-Clause */
#include "control/reply.h"

#include "control/request.h"

static const char *const keys[] = {
    [REPLY_ITEMS] = "items",
    [REPLY_PROGRESS] = "progress",
    [REPLY_DONE] = "done",
    [REPLY_ERROR] = "error",
};

json_t *reply_encode(enum reply_kind kind, json_t *body)
{
    return json_pack("{s:i, s:o}", "schema", CONTROL_SCHEMA, keys[kind], body);
}

static bool items_are_objects(const json_t *items)
{
    for (size_t i = 0; i < json_array_size(items); i++) {
        if (!json_is_object(json_array_get(items, i)))
            return false;
    }
    return json_is_array(items);
}

int reply_decode(const json_t *document, struct reply *reply, struct fail *fail)
{
    json_int_t schema = json_integer_value(json_object_get(document, "schema"));

    if (schema != CONTROL_SCHEMA)
        return fail_set(fail, COVEY_UNSUPPORTED,
                        "the daemon speaks schema %lld of the control protocol, not %d", (long long)schema,
                        CONTROL_SCHEMA);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const json_t *body = json_object_get(document, keys[i]);

        if (body == NULL)
            continue;
        if (i == REPLY_ITEMS ? !items_are_objects(body) : !json_is_object(body))
            break;
        reply->kind = (enum reply_kind)i;
        reply->body = body;
        return 0;
    }
    return fail_set(fail, COVEY_PROTOCOL, "the daemon's reply is not one of the control protocol");
}
