/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/serve/serve.h"

#include <stdlib.h>

#include "daemon/reload.h"

int serve_reload(struct client *client, const struct request *request)
{
    char *problem = NULL;
    int result = reload_server(client->server, &problem);
    int sent;

    (void)request;
    if (result == 0)
        return client_send(client, REPLY_DONE, json_object());
    sent = client_refuse(client, result, problem != NULL ? problem : covey_strerror(result));
    free(problem);
    return sent;
}

int serve_leave(struct client *client, const struct request *request)
{
    (void)request;
    client_drop_files(client);
    client_unpin(client);
    server_leave(client->server);
    return client_send(client, REPLY_DONE, json_pack("{s:s}", "node", client->server->node_name));
}
