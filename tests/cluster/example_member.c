/* SPDX-License-Identifier: BSD-3-Clause */
/* A program that is a member of a cluster without a daemon.
 *
 *   example_member CONFIGURATION NODE [TEXT]
 *
 * Joins the first group of its node and waits for an object called "greeting"; the member that is given TEXT
 * puts it. Every member prints what was delivered and leaves. Build it against the installed library:
 *
 *   cc -o example_member example_member.c $(pkg-config --cflags --libs covey) */

#define _POSIX_C_SOURCE 200809L

#include <covey/covey.h>

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAIT_SECONDS 60

static void show(const struct covey_object *object)
{
    struct covey_buffer buffer;

    if (covey_object_buffer(object, 0, &buffer) == 0)
        printf("version %llu: %.*s\n", (unsigned long long)covey_object_version(object), (int)buffer.bytes,
               (const char *)buffer.base);
}

/* Runs on the node's callback thread, in the same order at every member. The object is pinned meanwhile. */
static void object_delivered(void *context, struct covey_group *group, struct covey_object *object)
{
    (void)group;
    if (strcmp(covey_object_name(object), "greeting") != 0)
        return;
    show(object);
    sem_post(context);
}

static int await(sem_t *semaphore)
{
    struct timespec deadline;

    timespec_get(&deadline, TIME_UTC);
    deadline.tv_sec += WAIT_SECONDS;
    return sem_timedwait(semaphore, &deadline) == 0 ? 0 : COVEY_TIMEOUT;
}

/* The memory of text is lent to the group until the version is dropped: here, until the node is closed. */
static int put(struct covey_group *group, char *text)
{
    struct covey_buffer buffer = {.base = text, .bytes = strlen(text), .name = "text"};
    struct covey_op *op;
    int error = covey_put(group, "greeting", &buffer, 1, &op);

    if (error != 0)
        return error;
    error = covey_op_wait(op, -1);
    if (error != 0)
        fprintf(stderr, "put: %s\n", covey_op_error(op));
    covey_op_free(op);
    return error;
}

static int take_part(struct covey_node *node, const char *group_name, char *text)
{
    const struct covey_group_callbacks callbacks = {.on_object = object_delivered};
    struct covey_group *group;
    sem_t delivered;
    int error;

    sem_init(&delivered, 0, 0);
    error = covey_group_open(node, group_name, &callbacks, &delivered, &group);
    if (error == 0)
        error = covey_group_wait(group, WAIT_SECONDS * 1000);
    if (error == 0 && text != NULL)
        error = put(group, text);
    if (error == 0)
        error = await(&delivered);
    return error;
}

int main(int argc, char **argv)
{
    struct covey_options *options;
    struct covey_node *node;
    int error;

    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: example_member CONFIGURATION NODE [TEXT]\n");
        return 2;
    }
    if (covey_options_load(argv[1], argv[2], &options) != 0) {
        fputs(covey_options_error(), stderr);
        return 1;
    }
    if (covey_node_open(options, NULL, NULL, &node) != 0) {
        fprintf(stderr, "%s\n", covey_node_open_error());
        covey_options_free(options);
        return 1;
    }
    error = take_part(node, covey_options_group_name(options, 0), argc == 4 ? argv[3] : NULL);
    if (error != 0)
        fprintf(stderr, "%s: %s\n", covey_strerror(error), covey_error_detail(node));
    covey_node_close(node);
    covey_options_free(options);
    return error == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
