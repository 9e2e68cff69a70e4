/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/fake_cuda.h"

/* A library that is loaded is found again by its name, wherever it came from. */
const struct fake_cuda *fake_cuda_open(void)
{
    void *library = dlopen(FAKE_CUDA_PATH, RTLD_NOW | RTLD_GLOBAL);
    const struct fake_cuda *fake = library != NULL ? dlsym(library, "fake_cuda_controls") : NULL;

    if (fake == NULL) {
        fprintf(stderr, "no stand-in driver: %s\n", dlerror());
        abort();
    }
    return fake;
}
