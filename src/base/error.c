/* SPDX-License-Identifier: BSD-3-Clause */
#include <covey/error.h>

const char *covey_strerror(int error)
{
    switch (error) {
    case COVEY_OK:
        return "success";
#define ERROR_TEXT(name, number, text) \
    case COVEY_##name:                 \
        return text;
        COVEY_ERRORS(ERROR_TEXT)
#undef ERROR_TEXT
    default:
        return "unknown error";
    }
}

const char *covey_error_name(int error)
{
    switch (error) {
    case COVEY_OK:
        return "OK";
#define ERROR_NAME(name, number, text) \
    case COVEY_##name:                 \
        return #name;
        COVEY_ERRORS(ERROR_NAME)
#undef ERROR_NAME
    default:
        return "UNKNOWN";
    }
}
