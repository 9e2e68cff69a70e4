/* SPDX-License-Identifier: BSD-3-Clause */
/* The daemon: a node that takes part in every group that selects it, at the command of `covey` (coveyd(8)).
 *
 * The main thread waits for signals, for clients, and for news from the node; clients have threads of their
 * own (daemon/server.h). */

#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <covey/covey.h>

#include "control/endpoint.h"
#include "control/notify.h"
#include "daemon/logger.h"
#include "daemon/reload.h"
#include "daemon/server.h"

#define EXIT_USAGE 2
#define FILES_FEW  4096 /* below this a folder of ordinary size may not fit one put */

struct arguments {
    const char *config_path;
    const char *node_name; /* NULL: the node whose address is this host's */
    bool check, detach;
};

/* --- The command line ----------------------------------------------------------------------------------- */

static const char usage_text[] =
    "Usage: coveyd [-d] [-c FILE] [-n NODE]\n"
    "       coveyd --check [-c FILE] [-n NODE]\n"
    "\n"
    "  -c, --config FILE  the cluster's configuration (" CONFIG_PATH ")\n"
    "  -n, --node NODE    which of its nodes this is (the one with this host's address)\n"
    "  -d, --detach       go to the background once the node listens\n"
    "      --check        print the configuration with its defaults, start nothing\n"
    "      --version      print the version\n"
    "      --help         print this\n";

static int usage_error(const char *problem, const char *what)
{
    fprintf(stderr, "coveyd: %s%s\n%s", problem, what, usage_text);
    return EXIT_USAGE;
}

/* Returns -1 to go on, or the exit status. */
static int parse(int argc, char **argv, struct arguments *arguments)
{
    enum { OPTION_CHECK = 256, OPTION_VERSION, OPTION_HELP };
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"node", required_argument, NULL, 'n'},
                                            {"detach", no_argument, NULL, 'd'},
                                            {"check", no_argument, NULL, OPTION_CHECK},
                                            {"version", no_argument, NULL, OPTION_VERSION},
                                            {"help", no_argument, NULL, OPTION_HELP},
                                            {NULL, 0, NULL, 0}};
    int option;

    *arguments = (struct arguments){.config_path = CONFIG_PATH};
    while ((option = getopt_long(argc, argv, "c:n:d", options, NULL)) != -1) {
        switch (option) {
        case 'c':
            arguments->config_path = optarg;
            break;
        case 'n':
            arguments->node_name = optarg;
            break;
        case 'd':
            arguments->detach = true;
            break;
        case OPTION_CHECK:
            arguments->check = true;
            break;
        case OPTION_VERSION:
            puts("coveyd " PACKAGE_VERSION);
            return EXIT_SUCCESS;
        case OPTION_HELP:
            fputs(usage_text, stdout);
            return EXIT_SUCCESS;
        default:
            fputs(usage_text, stderr);
            return EXIT_USAGE;
        }
    }
    return optind < argc ? usage_error("unexpected argument ", argv[optind]) : -1;
}

static int print_options(const struct covey_options *options)
{
    char *text;
    int result = covey_options_text(options, &text);

    if (result != 0) {
        fprintf(stderr, "coveyd: %s\n", covey_strerror(result));
        return EXIT_FAILURE;
    }
    fputs(text, stdout);
    free(text);
    if (fflush(stdout) == 0)
        return EXIT_SUCCESS;
    fprintf(stderr, "coveyd: cannot write: %s\n", strerror(errno));
    return EXIT_FAILURE;
}

/* --- The background ------------------------------------------------------------------------------------- */

/* In the parent: wait until the child says that it is ready, or ends. The exit status. */
static int await_child(pid_t child, int ready_fd)
{
    char byte;
    ssize_t got;
    int status;

    do
        got = read(ready_fd, &byte, 1);
    while (got < 0 && errno == EINTR);
    if (got == 1)
        return EXIT_SUCCESS;
    if (waitpid(child, &status, 0) == child && WIFEXITED(status))
        return WEXITSTATUS(status);
    fprintf(stderr, "coveyd: the daemon ended while it started\n");
    return EXIT_FAILURE;
}

/* In the child returns the descriptor for detach_ready(). */
static int detach_begin(void)
{
    int ends[2];
    pid_t child;

    if (pipe2(ends, O_CLOEXEC) != 0 || (child = fork()) < 0) {
        fprintf(stderr, "coveyd: cannot go to the background: %s\n", strerror(errno));
        exit(EXIT_FAILURE);
    }
    if (child > 0) {
        close(ends[1]);
        _exit(await_child(child, ends[0]));
    }
    close(ends[0]);
    setsid();
    return ends[1];
}

static void detach_ready(int ready_fd)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct stat status;

    logger_detach();
    dup2(null_fd, STDIN_FILENO);
    dup2(null_fd, STDOUT_FILENO);
    if (fstat(STDERR_FILENO, &status) != 0 || !S_ISREG(status.st_mode))
        dup2(null_fd, STDERR_FILENO);
    close(null_fd);
    if (write(ready_fd, "", 1) != 1)
        logger_print(COVEY_LOG_WARNING, "whoever started the daemon has gone already");
    close(ready_fd);
}

/* --- Running -------------------------------------------------------------------------------------------- */

static void raise_file_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < FILES_FEW)
        logger_print(
            COVEY_LOG_WARNING,
            "the daemon may open %llu files (RLIMIT_NOFILE), and a put needs two for each of its own: raise "
            "LimitNOFILE= or `ulimit -n`",
            (unsigned long long)limit.rlim_max);
}

/* Signals come through a descriptor; the node's and the clients' threads have them blocked. */
static int open_signals(void)
{
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN); /* a log that nobody reads */
    signal(SIGXFSZ, SIG_IGN); /* a file larger than this process may write */
    return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* From here on a second signal ends the process at once. */
static void close_signals(int signal_fd)
{
    sigset_t signals;

    close(signal_fd);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_UNBLOCK, &signals, NULL);
}

/* Tell the service manager assignments and the view. */
static int tell_manager(struct server *server, const char *assignments, struct fail *fail)
{
    char view[256];

    server_describe(server, view, sizeof(view));
    return notify_send(fail, "%sSTATUS=%s", assignments, view);
}

static void take_client(struct server *server, struct endpoint *endpoint)
{
    struct fail fail = {0};
    int socket;
    int result = endpoint_accept(endpoint, &socket, &fail);

    if (result == 0)
        server_accept(server, socket);
    else if (result != COVEY_AGAIN)
        logger_print(COVEY_LOG_WARNING, "control socket: %s", fail.text);
}

/* Whether the daemon goes on. */
static bool take_signal(struct server *server, int signal_fd)
{
    struct signalfd_siginfo info;
    char *problem = NULL;

    if (read(signal_fd, &info, sizeof(info)) != sizeof(info))
        return true;
    if (info.ssi_signo != SIGHUP) {
        logger_print(COVEY_LOG_INFO, "signal %s: leaving", info.ssi_signo == SIGTERM ? "TERM" : "INT");
        return false;
    }
    reload_server(server, &problem);
    free(problem);
    return true;
}

/* Whether the daemon goes on. */
static bool take_news(struct server *server)
{
    struct fail ignored = {0};
    uint64_t count;

    if (read(server->wake_fd, &count, sizeof(count)) == sizeof(count))
        tell_manager(server, "", &ignored);
    return !server->stop_wanted;
}

static void serve_until_stopped(struct server *server, struct endpoint *endpoint, int signal_fd)
{
    bool running = true;

    while (running) {
        struct pollfd polled[] = {{.fd = signal_fd, .events = POLLIN},
                                  {.fd = server->wake_fd, .events = POLLIN},
                                  {.fd = endpoint_fd(endpoint), .events = POLLIN}};

        if (poll(polled, sizeof(polled) / sizeof(polled[0]), -1) < 0)
            continue;
        if (polled[0].revents != 0)
            running = take_signal(server, signal_fd);
        if (polled[1].revents != 0)
            running &= take_news(server);
        if (polled[2].revents != 0)
            take_client(server, endpoint);
    }
}

static bool start(struct server *server, struct endpoint **endpoint, const struct arguments *arguments,
                  const struct covey_options *options, struct fail *fail)
{
    if (endpoint_bind(covey_options_control_socket(options), endpoint, fail) != 0)
        return false;
    if (server_open(server, arguments->config_path, options, fail) != 0) {
        endpoint_close(*endpoint);
        return false;
    }
    if (endpoint_listen(*endpoint, fail) != 0) {
        server_close(server);
        endpoint_close(*endpoint);
        return false;
    }
    return true;
}

static int run(const struct arguments *arguments, const struct covey_options *options, int ready_fd)
{
    static struct server server;
    struct endpoint *endpoint = NULL;
    struct fail fail = {0};
    int signal_fd;
    bool left;

    logger_init();
    signal_fd = open_signals();
    raise_file_limit();
    if (!start(&server, &endpoint, arguments, options, &fail)) {
        logger_print(COVEY_LOG_ERROR, "%s", fail.text);
        return EXIT_FAILURE;
    }
    logger_print(COVEY_LOG_INFO, "coveyd " PACKAGE_VERSION ": node %s listens, control socket %s",
                 server.node_name, covey_options_control_socket(options));
    if (tell_manager(&server, "READY=1\n", &fail) != 0)
        logger_print(COVEY_LOG_WARNING, "%s", fail.text);
    if (ready_fd >= 0)
        detach_ready(ready_fd);
    serve_until_stopped(&server, endpoint, signal_fd);
    tell_manager(&server, "STOPPING=1\n", &fail);
    close_signals(signal_fd);
    endpoint_retire(endpoint);
    left = server_close(&server);
    endpoint_close(endpoint);
    return left ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    struct arguments arguments;
    struct covey_options *options;
    int status = parse(argc, argv, &arguments);

    if (status >= 0)
        return status;
    if (covey_options_load(arguments.config_path, arguments.node_name, &options) != 0) {
        fputs(covey_options_error(), stderr);
        return EXIT_FAILURE;
    }
    if (arguments.check)
        status = print_options(options);
    else
        status = run(&arguments, options, arguments.detach ? detach_begin() : -1);
    covey_options_free(options);
    return status;
}
