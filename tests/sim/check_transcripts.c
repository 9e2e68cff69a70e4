/* SPDX-License-Identifier: BSD-3-Clause */
/* Transcripts: text files of commands, and after a line of dashes what must come of them.
 *
 *     check_transcripts             compare all of them
 *     check_transcripts --rewrite   write what comes out into them, to be read and committed
 *
 * Commands: boot nodes=N [tie-breaker] [silent]; start NODE; join; crash NODE; crash NODE at RULE; pause
 * NODE; resume NODE; cut A B [one-way]; apart NODE...; heal; break A B; leave NODE; evict AT NODE; force AT;
 * run MICROSECONDS; settle. Lines with # are remarks. Times are fixed: 100 us one way. */

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

#define DASHES    "----\n"
#define WORDS_MAX 10
#define FILES_MAX 64

static struct sim sim;
static uint32_t crash_node;
static const char *crash_rule;

/* --- Commands --------------------------------------------------------------------------------------------
 */

struct words {
    char *word[WORDS_MAX];
    int count;
};

static uint32_t number(const struct words *words, int index)
{
    return index < words->count ? (uint32_t)strtoul(words->word[index], NULL, 10) : 0;
}

static bool has(const struct words *words, const char *word)
{
    for (int i = 0; i < words->count; i++) {
        if (strcmp(words->word[i], word) == 0)
            return true;
    }
    return false;
}

static void do_boot(const struct words *words)
{
    struct sim_options options;

    sim_close(&sim);
    sim_defaults(&options, (uint32_t)strtoul(words->word[1] + strlen("nodes="), NULL, 10));
    options.application = false;
    options.quorum = has(words, "tie-breaker") ? MEMBERSHIP_TIE_BREAKER : MEMBERSHIP_MAJORITY;
    options.silent_percent = has(words, "silent") ? 100 : 0;
    sim_init(&sim, &options, 1);
    sim_boot_all(&sim);
}

static void crash_at_rule(struct sim *in, uint32_t node, enum membership_rule rule)
{
    if (node != crash_node || strcmp(membership_rule_name(rule), crash_rule) != 0)
        return;
    in->on_rule = NULL;
    sim_crash(in, node);
}

static void do_crash(const struct words *words)
{
    static char rule[64];

    if (words->count < 4) {
        sim_crash(&sim, number(words, 1));
        return;
    }
    crash_node = number(words, 1);
    snprintf(rule, sizeof(rule), "%s", words->word[3]);
    crash_rule = rule;
    sim.on_rule = crash_at_rule;
}

static void do_cut(const struct words *words)
{
    if (has(words, "one-way"))
        sim_cut(&sim, number(words, 1), number(words, 2));
    else
        sim_cut_both(&sim, number(words, 1), number(words, 2));
}

static void do_apart(const struct words *words)
{
    uint64_t set = 0;

    for (int i = 1; i < words->count; i++)
        set |= UINT64_C(1) << number(words, i);
    sim_partition(&sim, set);
}

static void do_start(const struct words *words)
{
    sim_boot(&sim, number(words, 1));
}

static void do_join(const struct words *words)
{
    (void)words;
    sim_join(&sim);
}

static void do_pause(const struct words *words)
{
    sim_pause(&sim, number(words, 1));
}

static void do_resume(const struct words *words)
{
    sim_resume(&sim, number(words, 1));
}

static void do_heal(const struct words *words)
{
    (void)words;
    sim_heal(&sim);
}

static void do_break(const struct words *words)
{
    sim_break(&sim, number(words, 1), number(words, 2));
}

static void do_leave(const struct words *words)
{
    sim_leave(&sim, number(words, 1));
}

static void do_evict(const struct words *words)
{
    sim_evict(&sim, number(words, 1), number(words, 2));
}

static void do_force(const struct words *words)
{
    sim_force(&sim, number(words, 1));
}

static void do_run(const struct words *words)
{
    sim_run(&sim, number(words, 1) * SIM_US);
}

static void do_settle(const struct words *words)
{
    (void)words;
    if (!sim_settle(&sim, 4000 * SIM_MS))
        snprintf(sim.failure, sizeof(sim.failure), "it does not settle");
}

static const struct command {
    const char *name;
    int words; /* at least */
    void (*run)(const struct words *words);
} commands[] = {{"boot", 2, do_boot},   {"start", 2, do_start}, {"join", 1, do_join},
                {"crash", 2, do_crash}, {"pause", 2, do_pause}, {"resume", 2, do_resume},
                {"cut", 3, do_cut},     {"apart", 2, do_apart}, {"heal", 1, do_heal},
                {"break", 3, do_break}, {"leave", 2, do_leave}, {"evict", 3, do_evict},
                {"force", 2, do_force}, {"run", 2, do_run},     {"settle", 1, do_settle}};

static bool run_line(char *line)
{
    struct words words = {.count = 0};

    if (line[0] == '#')
        return true;
    for (char *word = strtok(line, " \n"); word != NULL && words.count < WORDS_MAX;
         word = strtok(NULL, " \n"))
        words.word[words.count++] = word;
    if (words.count == 0)
        return true;
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(words.word[0], commands[i].name) != 0 || words.count < commands[i].words)
            continue;
        commands[i].run(&words);
        return true;
    }
    printf("not a command: %s\n", words.word[0]);
    return false;
}

/* --- Files -----------------------------------------------------------------------------------------------
 */

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = calloc(1, SIM_TRACE_BYTES);

    if (file == NULL || text == NULL || fread(text, 1, SIM_TRACE_BYTES - 1, file) == 0)
        text[0] = '\0';
    if (file != NULL)
        fclose(file);
    return text;
}

static bool write_file(const char *path, const char *head, const char *output)
{
    FILE *file = fopen(path, "w");
    bool written = file != NULL && fprintf(file, "%s%s%s", head, DASHES, output) > 0;

    return file != NULL && fclose(file) == 0 && written;
}

/* The commands before the dashes; the rest is what is expected. */
static bool run_commands(char *commands_text)
{
    char *copy = strdup(commands_text), *rest = copy;
    bool understood = copy != NULL;

    while (understood && *rest != '\0') {
        char *line = rest, *end = strchr(rest, '\n');
        rest = end != NULL ? end + 1 : rest + strlen(rest);
        if (end != NULL)
            *end = '\0';
        understood = run_line(line);
    }
    free(copy);
    return understood;
}

static bool check_file(const char *name, bool rewrite)
{
    char path[4096];
    char *text, *dashes;
    bool right;

    snprintf(path, sizeof(path), "%s/%s", TRANSCRIPTS, name);
    text = read_file(path);
    dashes = strstr(text, DASHES);
    if (dashes != NULL)
        *dashes = '\0';
    right = run_commands(text) && sim.failure[0] == '\0';
    if (right && rewrite)
        right = write_file(path, text, sim.trace);
    else if (right)
        right = dashes != NULL && strcmp(dashes + strlen(DASHES), sim.trace) == 0;
    printf("%s %s\n", right ? "ok" : "not ok", name);
    if (!right)
        printf("%s\n%s", sim.failure, sim.trace);
    free(text);
    return right;
}

static int is_transcript(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);

    return length > 4 && strcmp(entry->d_name + length - 4, ".txt") == 0;
}

int main(int count, char **arguments)
{
    bool rewrite = count == 2 && strcmp(arguments[1], "--rewrite") == 0, right = true;
    struct dirent **entries;
    struct sim_options options;
    int found = scandir(TRANSCRIPTS, &entries, is_transcript, alphasort);

    sim_defaults(&options, 1);
    sim_init(&sim, &options, 1);
    for (int i = 0; i < found; i++) {
        right &= check_file(entries[i]->d_name, rewrite);
        free(entries[i]);
    }
    sim_close(&sim);
    if (found > 0)
        free(entries);
    return right && found > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
