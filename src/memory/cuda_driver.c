/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"

static struct {
    pthread_mutex_t mutex;
    bool loaded;  /* the functions are there */
    bool started; /* it was tried; fail says how it went */
    struct fail fail;
    struct cuda_driver driver;
} opened = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static int find_symbol(void *library, const char *symbol, void *function, struct fail *fail)
{
    void *found = dlsym(library, symbol);

    if (found == NULL)
        return fail_set(fail, COVEY_UNSUPPORTED, "%s has no %s: a driver of CUDA 11.4 or later is needed",
                        LIBRARY, symbol);
    memcpy(function, &found, sizeof(found)); /* ISO C has no cast from object to function pointers */
    return 0;
}

static int find_symbols(void *library, struct cuda_driver *driver, struct fail *fail)
{
    int rc = 0;

#define CUDA_DRIVER_FIND(name, symbol, arguments) \
    if (rc == 0)                                  \
        rc = find_symbol(library, #symbol, &driver->name, fail);
    CUDA_DRIVER_CALLS(CUDA_DRIVER_FIND)
#undef CUDA_DRIVER_FIND
    return rc;
}

int cuda_driver_fail(const struct cuda_driver *driver, cuda_result result, struct fail *fail, int code,
                     const char *format, ...)
{
    const char *name = NULL, *text = NULL;
    char sentence[FAIL_TEXT_MAX / 2];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);
    if (driver->error_name(result, &name) != CUDA_OK || driver->error_text(result, &text) != CUDA_OK)
        return fail_set(fail, code, "%s: CUDA error %d", sentence, result);
    return fail_set(fail, code, "%s: %s (%s)", sentence, text, name);
}

/* The library stays loaded whatever comes of it: threads of its own may run in it. */
static int driver_load(int flags, struct fail *fail)
{
    void *library;
    int rc;

    if (opened.loaded)
        return 0;
    library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | flags);
    if (library == NULL)
        return fail_set(fail, COVEY_UNSUPPORTED,
                        "there is no CUDA driver on this machine (%s): install one, or use host memory",
                        dlerror());
    rc = find_symbols(library, &opened.driver, fail);
    opened.loaded = rc == 0;
    return rc;
}

static int driver_start(struct cuda_driver *driver, struct fail *fail)
{
    cuda_result result = driver->init(0);

    if (result == CUDA_OK)
        result = driver->device_count(&driver->devices);
    if (result != CUDA_OK)
        return cuda_driver_fail(driver, result, fail, COVEY_UNSUPPORTED,
                                "the CUDA driver does not start (does nvidia-smi work here?)");
    if (driver->devices == 0)
        return fail_set(fail, COVEY_UNSUPPORTED,
                        "the CUDA driver shows no device: see nvidia-smi and CUDA_VISIBLE_DEVICES");
    return 0;
}

int cuda_driver_open(const struct cuda_driver **driver, struct fail *fail)
{
    pthread_mutex_lock(&opened.mutex);
    if (!opened.started && driver_load(0, &opened.fail) == 0)
        driver_start(&opened.driver, &opened.fail);
    opened.started = true;
    pthread_mutex_unlock(&opened.mutex);
    if (opened.fail.code != 0)
        return fail_set(fail, opened.fail.code, "%s", opened.fail.text);
    *driver = &opened.driver;
    return 0;
}

const struct cuda_driver *cuda_driver_if_loaded(void)
{
    struct fail fail;
    bool loaded;

    pthread_mutex_lock(&opened.mutex);
    loaded = driver_load(RTLD_NOLOAD, &fail) == 0;
    pthread_mutex_unlock(&opened.mutex);
    return loaded ? &opened.driver : NULL;
}
