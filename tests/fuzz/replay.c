/* SPDX-License-Identifier: BSD-3-Clause */
/* The main() of a fuzz target where no fuzzer drives it: feeds it each file of its corpus, once whole, once
 * cut at every length up to a bound, and once with every bit of its first bytes turned. What crashes a
 * decoder once is kept in the corpus and so never comes back.
 *
 *   fuzz_NAME [FILE...]     without arguments: the files of $srcdir/tests/fuzz/NAME */

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUTS_MAX  512 /* lengths that are tried */
#define FLIPS_MAX 128 /* bytes whose bits are turned */
#define FILE_MAX  (1u << 20)
#define PATH_SIZE 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy of exactly `size` bytes, so that a read past the end is seen by the sanitizers. */
static void feed(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);

    if (copy == NULL)
        abort();
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void feed_variants(uint8_t *data, size_t size)
{
    feed(data, size);
    for (size_t cut = 0; cut < size && cut < CUTS_MAX; cut++)
        feed(data, cut);
    for (size_t bit = 0; bit < 8 * size && bit < 8 * FLIPS_MAX; bit++) {
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        feed(data, size);
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static int replay(const char *path)
{
    static uint8_t data[FILE_MAX];
    FILE *file = fopen(path, "rb");
    size_t size;

    if (file == NULL) {
        printf("not ok %s: cannot be read\n", path);
        return 1;
    }
    size = fread(data, 1, sizeof(data), file);
    fclose(file);
    feed_variants(data, size);
    printf("ok %s\n", path);
    return 0;
}

static int replay_folder(const char *name)
{
    const char *srcdir = getenv("srcdir");
    char path[PATH_SIZE];
    struct dirent **entries;
    int count, failed = 0, files = 0;

    snprintf(path, sizeof(path), "%s/tests/fuzz/%s", srcdir != NULL ? srcdir : ".", name);
    count = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.') {
            snprintf(path, sizeof(path), "%s/tests/fuzz/%s/%s", srcdir != NULL ? srcdir : ".", name,
                     entries[i]->d_name);
            failed += replay(path);
            files++;
        }
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    if (files == 0) {
        printf("not ok %s has no files\n", path);
        failed++;
    }
    return failed;
}

int main(int argc, char **argv)
{
    const char *name = strstr(argv[0], "fuzz_");
    int failed = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 1)
        return name == NULL || replay_folder(name + strlen("fuzz_")) > 0;
    for (int i = 1; i < argc; i++)
        failed += replay(argv[i]);
    return failed > 0;
}
