/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/command/command.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/quantity.h"
#include "control/item.h"
#include "daemon/units.h"

#define BYTES_DEFAULT ((uint64_t)64 << 20)
#define COUNT_DEFAULT 10

/* What the daemon told of each put. */
struct bench {
    struct cli *cli;
    json_t *puts;
    double *seconds, *rates;
    size_t counted, room;
};

struct spread {
    double minimum, median, maximum;
};

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

/* Of at least one number, which this sorts. */
static struct spread spread_of(double *numbers, size_t count)
{
    qsort(numbers, count, sizeof(*numbers), compare);
    return (struct spread){numbers[0], (numbers[(count - 1) / 2] + numbers[count / 2]) / 2,
                           numbers[count - 1]};
}

static void print_put(const json_t *put)
{
    printf("%-8" PRIu64 " %10s %12s  %-10s %s\n", item_get_u64(put, "number"),
           UNITS_SECONDS(item_get_real(put, "seconds")), UNITS_RATE(item_get_real(put, "gb_per_s")),
           item_get_text(put, "schedule"), UNITS_BYTES(item_get_u64(put, "block_bytes")));
    fflush(stdout);
}

static void take_put(void *context, const json_t *put)
{
    struct bench *bench = context;

    if (bench->counted < bench->room) {
        bench->seconds[bench->counted] = item_get_real(put, "seconds");
        bench->rates[bench->counted] = item_get_real(put, "gb_per_s");
        bench->counted++;
    }
    if (bench->cli->json)
        json_array_append(bench->puts, (json_t *)(uintptr_t)put);
    else
        print_put(put);
}

static json_t *spread_json(struct spread spread)
{
    return json_pack("{s:f, s:f, s:f}", "minimum", spread.minimum, "median", spread.median, "maximum",
                     spread.maximum);
}

static void print_summary(const struct bench *bench, json_t *done)
{
    struct spread seconds = spread_of(bench->seconds, bench->counted);
    struct spread rates = spread_of(bench->rates, bench->counted);

    if (bench->cli->json) {
        json_object_set_new(done, "seconds", spread_json(seconds));
        json_object_set_new(done, "gb_per_s", spread_json(rates));
        json_object_set(done, "puts", bench->puts);
        cli_print_json(done);
        return;
    }
    printf("\n%-8s %10s %12s\n", "minimum", UNITS_SECONDS(seconds.minimum), UNITS_RATE(rates.minimum));
    printf("%-8s %10s %12s\n", "median", UNITS_SECONDS(seconds.median), UNITS_RATE(rates.median));
    printf("%-8s %10s %12s\n", "maximum", UNITS_SECONDS(seconds.maximum), UNITS_RATE(rates.maximum));
    printf("\n%s of %s to %s of %s, %s memory\n", UNITS_COUNT(bench->counted, "put"),
           UNITS_BYTES(item_get_u64(done, "bytes")), UNITS_COUNT(item_get_u64(done, "members"), "member"),
           item_get_text(done, "group"), item_get_text(done, "memory"));
}

static bool prepare(struct bench *bench, size_t count)
{
    bench->room = count;
    bench->seconds = calloc(count, sizeof(*bench->seconds));
    bench->rates = calloc(count, sizeof(*bench->rates));
    bench->puts = json_array();
    if (bench->seconds != NULL && bench->rates != NULL && bench->puts != NULL)
        return true;
    cli_error("out of memory");
    return false;
}

static int run(struct bench *bench, const struct request *request)
{
    const struct cli_listener listener = {.item = take_put, .context = bench};
    json_t *done;

    if (!prepare(bench, request->count) || !cli_ask(bench->cli, request, NULL, 0, &listener, &done))
        return EXIT_FAILURE;
    if (bench->counted == request->count)
        print_summary(bench, done);
    else
        cli_error("the daemon told of %zu puts, not of %" PRIu64, bench->counted, request->count);
    json_decref(done);
    return bench->counted == request->count ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* A number of bytes, or one with a unit. Whether it is. */
static bool parse_size(const char *text, uint64_t *bytes, struct fail *fail)
{
    if (units_parse_number(text, 1, INT64_MAX, bytes))
        return true;
    return quantity_parse_size(text, bytes, fail) == 0 && *bytes > 0;
}

/* Returns -1 to go on, or the exit status. */
static int parse(struct cli *cli, const struct command *command, int argc, char **argv,
                 struct request *request)
{
    static const struct option options[] = {
        {"bytes", required_argument, NULL, 'b'}, {"count", required_argument, NULL, 'c'}, CLI_OPTIONS};
    struct fail fail = {0};
    int option, status;

    while ((option = getopt_long(argc, argv, "b:c:", options, NULL)) != -1) {
        switch (option) {
        case 'b':
            if (!parse_size(optarg, &request->bytes, &fail))
                return cli_usage(command, fail.code != 0 ? fail.text : "--bytes is at least 1");
            break;
        case 'c':
            if (!units_parse_number(optarg, 1, REQUEST_BENCH_COUNT_MAX, &request->count))
                return cli_usage(command, "--count takes a number from 1 to 1000000");
            break;
        default:
            status = cli_option(cli, command, option);
            if (status >= 0)
                return status;
        }
    }
    return cli_count(command, argc, 0, 1);
}

int command_bench(struct cli *cli, const struct command *command, int argc, char **argv)
{
    struct bench bench = {.cli = cli};
    struct request request = {.kind = REQUEST_BENCH, .bytes = BYTES_DEFAULT, .count = COUNT_DEFAULT};
    int status = parse(cli, command, argc, argv, &request);

    if (status >= 0)
        return status;
    request.group = optind < argc ? argv[optind] : NULL;
    if (request.group != NULL && !cli_check_name("GROUP", request.group))
        return EXIT_FAILURE;
    status = run(&bench, &request);
    free(bench.seconds);
    free(bench.rates);
    json_decref(bench.puts);
    return status;
}
