/* SPDX-License-Identifier: BSD-3-Clause */
#include "config/scan.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define KEY_SHOWN_MAX 64 /* bytes of a key in a message */

/* What the grammar allows next:
 *
 *     group:  { KEY = VALUE [;,] ... }      KEY_NEXT -> ASSIGN_NEXT -> VALUE_NEXT -> END_NEXT -> KEY_NEXT
 *     list:   ( VALUE, ... )                VALUE_NEXT -> END_NEXT -> VALUE_NEXT; VALUE_OR_CLOSE at its start
 *
 * The file itself is a group without braces. The mark after a value of a group may be left out. */
enum expect { KEY_NEXT, ASSIGN_NEXT, VALUE_NEXT, VALUE_OR_CLOSE, END_NEXT };

struct scanned_key {
    const char *name;
    size_t bytes;
    unsigned line;
};

enum value_type { NO_VALUE, BOOLEAN_VALUE, INTEGER_VALUE, FLOAT_VALUE, STRING_VALUE, GROUP_VALUE };

struct scope {
    char open; /* '{', '(' or '['; 0: the file */
    unsigned line;
    size_t first_key;     /* of this group, in scan.keys */
    size_t index;         /* of the current value, in a list */
    enum value_type type; /* of an array's first value */
};

struct scan {
    const char *at, *end;
    unsigned line;
    struct report *report;
    struct text *clean;
    enum expect expect;
    struct scope scopes[SCAN_DEPTH_MAX + 1];
    size_t depth;
    struct scanned_key *keys; /* of the open groups, outermost first */
    size_t key_count, key_capacity;
    bool stop; /* the rest cannot be understood */
};

static bool in_list(const struct scan *scan)
{
    return scan->scopes[scan->depth].open == '(' || scan->scopes[scan->depth].open == '[';
}

/* Where the scan is, as in "nodes[1].id"; "syntax" outside of any key. */
static void where(const struct scan *scan, struct text *text)
{
    bool at_value = scan->expect == ASSIGN_NEXT || scan->expect == VALUE_NEXT;

    for (size_t i = 0; i <= scan->depth; i++) {
        const struct scope *scope = &scan->scopes[i];
        size_t past = i < scan->depth ? scan->scopes[i + 1].first_key : scan->key_count;

        if (scope->open == '(' || scope->open == '[') {
            text_append(text, "[%zu]", scope->index);
        } else if (past > scope->first_key && (i < scan->depth || at_value)) {
            const struct scanned_key *key = &scan->keys[past - 1];

            text_append(text, "%s%.*s", text->length == 0 ? "" : ".",
                        (int)(key->bytes < KEY_SHOWN_MAX ? key->bytes : KEY_SHOWN_MAX), key->name);
        }
    }
    if (text->length == 0)
        text_append(text, "syntax");
}

static void complain_at(struct scan *scan, unsigned line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define complain(scan, ...) complain_at(scan, (scan)->line, __VA_ARGS__)

static void complain_at(struct scan *scan, unsigned line, const char *format, ...)
{
    struct text text = {0};
    va_list args;
    char *sentence;

    where(scan, &text);
    text_append(&text, ": ");
    va_start(args, format);
    text_append_list(&text, format, args);
    va_end(args);
    sentence = text_take(&text);
    if (sentence == NULL)
        scan->report->no_memory = true;
    else
        report_add(scan->report, line, "%s", sentence);
    free(sentence);
}

/* Complain that `found` is not what the grammar allows here, and give up. */
static void complain_order(struct scan *scan, const char *found, size_t bytes)
{
    const struct scope *scope = &scan->scopes[scan->depth];
    struct quoted quoted;

    text_quote(found, bytes, &quoted);
    scan->stop = true;
    if (scan->expect == ASSIGN_NEXT)
        complain(scan, "found %s where '=' and a value belong", quoted.text);
    else if (scan->expect == VALUE_NEXT || scan->expect == VALUE_OR_CLOSE)
        complain(scan, "the value is missing: found %s in its place", quoted.text);
    else if (in_list(scan))
        complain(scan, "found %s where ',' or '%c' belongs", quoted.text, scope->open == '(' ? ')' : ']');
    else
        complain(scan, "found %s where a key%s belongs", quoted.text, scope->open == 0 ? "" : " or '}'");
}

static void skip_to(struct scan *scan, const char *to)
{
    for (; scan->at < to; scan->at++) {
        if (*scan->at == '\n') {
            scan->line++;
            text_append_bytes(scan->clean, "\n", 1);
        }
    }
}

/* Whether a value of this type may stand here; complains if not. libconfig's arrays hold plain values of one
 * type. */
static bool take_value(struct scan *scan, enum value_type type, const char *found, size_t bytes)
{
    struct scope *scope = &scan->scopes[scan->depth];

    if (scan->expect != VALUE_NEXT && scan->expect != VALUE_OR_CLOSE) {
        complain_order(scan, found, bytes);
        return false;
    }
    if (scope->open != '[')
        return true;
    if (type == GROUP_VALUE)
        complain(scan, "an array [ ] holds plain values; a list ( ) holds groups and lists too");
    else if (scope->type != NO_VALUE && scope->type != type)
        complain(scan, "an array [ ] holds values of one type; a list ( ) may mix them");
    scope->type = type;
    return true;
}

static void end_value(struct scan *scan)
{
    scan->expect = END_NEXT;
}

/* --- Words --------------------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_word_byte(char c)
{
    return is_letter(c) || is_digit(c) || c == '_' || c == '-' || c == '*';
}

static bool keep_key(struct scan *scan, struct scanned_key key)
{
    if (scan->key_count == scan->key_capacity) {
        size_t capacity = scan->key_capacity == 0 ? 32 : 2 * scan->key_capacity;
        struct scanned_key *keys = realloc(scan->keys, capacity * sizeof(*keys));

        if (keys == NULL) {
            scan->report->no_memory = true;
            scan->stop = true;
            return false;
        }
        scan->keys = keys;
        scan->key_capacity = capacity;
    }
    scan->keys[scan->key_count++] = key;
    return true;
}

static bool is_boolean(const char *word, size_t bytes)
{
    return (bytes == 4 && strncasecmp(word, "true", 4) == 0) ||
           (bytes == 5 && strncasecmp(word, "false", 5) == 0);
}

static const struct scanned_key *find_twin(const struct scan *scan, const char *word, size_t bytes)
{
    for (size_t i = scan->scopes[scan->depth].first_key; i < scan->key_count; i++) {
        if (scan->keys[i].bytes == bytes && memcmp(scan->keys[i].name, word, bytes) == 0)
            return &scan->keys[i];
    }
    return NULL;
}

static void scan_key(struct scan *scan, const char *word, size_t bytes)
{
    const struct scanned_key *twin = find_twin(scan, word, bytes);
    unsigned twin_line = twin == NULL ? 0 : twin->line;

    if (is_boolean(word, bytes)) {
        complain_order(scan, word, bytes);
        return;
    }
    if (scan->key_count - scan->scopes[scan->depth].first_key >= SCAN_KEYS_MAX) {
        complain(scan, "more than %d keys in one group", SCAN_KEYS_MAX);
        scan->stop = true;
        return;
    }
    scan->expect = ASSIGN_NEXT;
    if (keep_key(scan, (struct scanned_key){word, bytes, scan->line}) && twin_line != 0)
        complain(scan, "stands here again, after line %u; keep one of them", twin_line);
}

static void scan_word(struct scan *scan)
{
    const char *word = scan->at;
    struct quoted quoted;
    size_t bytes;

    while (scan->at < scan->end && is_word_byte(*scan->at))
        scan->at++;
    bytes = (size_t)(scan->at - word);
    text_append_bytes(scan->clean, word, bytes);
    if (!in_list(scan) && (scan->expect == KEY_NEXT || scan->expect == END_NEXT)) {
        scan_key(scan, word, bytes);
    } else if (take_value(scan, BOOLEAN_VALUE, word, bytes)) {
        if (!is_boolean(word, bytes))
            complain(scan, "a bare word is no value; a string stands in quotes, as %s",
                     text_quote(word, bytes, &quoted));
        end_value(scan);
    }
}

/* --- Numbers ------------------------------------------------------------------------------------------- */

static int digit_value(char c)
{
    if (is_digit(c))
        return c - '0';
    return is_letter(c) ? (c | 0x20) - 'a' + 10 : INT_MAX;
}

/* [+-]DIGITS or 0xDIGITS, with L or LL after it. What does not fit is clamped. */
static bool read_integer(const char *bytes, size_t count, int64_t *value)
{
    const char *at = bytes, *end = bytes + count, *first;
    bool negative = at < end && *at == '-';
    int base = 10;
    __int128 sum = 0;

    if (at < end && (*at == '-' || *at == '+')) {
        at++;
    } else if (end - at > 2 && at[0] == '0' && (at[1] | 0x20) == 'x') {
        base = 16;
        at += 2;
    }
    for (int i = 0; i < 2 && end > at && end[-1] == 'L'; i++)
        end--;
    for (first = at; at < end && digit_value(*at) < base; at++)
        sum = sum > INT64_MAX ? sum : sum * base + digit_value(*at);
    if (at != end || at == first)
        return false;
    sum = negative ? -sum : sum;
    *value = sum > INT64_MAX ? INT64_MAX : sum < INT64_MIN ? INT64_MIN : (int64_t)sum;
    return true;
}

static const char *skip_digits(const char *at, const char *end)
{
    while (at < end && is_digit(*at))
        at++;
    return at;
}

/* [+-]DIGITS[.DIGITS][eE[+-]DIGITS] */
static bool is_float(const char *bytes, size_t count)
{
    const char *end = bytes + count, *at = bytes + (*bytes == '-' || *bytes == '+'), *first = at;

    at = skip_digits(at, end);
    if (at < end && *at == '.')
        at = skip_digits(at + 1, end);
    if (at == first || (at == first + 1 && *first == '.'))
        return false;
    if (at < end && (*at | 0x20) == 'e') {
        at++;
        at += at < end && (*at == '-' || *at == '+');
        if (at == end)
            return false;
        at = skip_digits(at, end);
    }
    return at == end;
}

static void scan_number(struct scan *scan)
{
    const char *number = scan->at;
    struct quoted quoted;
    size_t bytes;
    int64_t value;

    while (scan->at < scan->end && (is_word_byte(*scan->at) || *scan->at == '+' || *scan->at == '.'))
        scan->at++;
    bytes = (size_t)(scan->at - number);
    if (read_integer(number, bytes, &value)) {
        if (take_value(scan, INTEGER_VALUE, number, bytes))
            text_append(scan->clean, "%" PRId64 "L", value);
    } else if (is_float(number, bytes)) {
        if (take_value(scan, FLOAT_VALUE, number, bytes))
            text_append(scan->clean, "0.0");
    } else if (take_value(scan, INTEGER_VALUE, number, bytes)) {
        complain(scan, "%s is not a number; a value with a unit stands in quotes",
                 text_quote(number, bytes, &quoted));
    }
    end_value(scan);
}

/* --- Strings and comments ------------------------------------------------------------------------------ */

/* Length of the escape at `at` (a backslash); 0 if it is none that Covey takes. */
static size_t escape_length(const char *at, const char *end)
{
    if (end - at >= 2 && strchr("\\\"nrtf", at[1]) != NULL && at[1] != '\0')
        return 2;
    if (end - at >= 4 && at[1] == 'x' && digit_value(at[2]) < 16 && digit_value(at[3]) < 16)
        return digit_value(at[2]) + digit_value(at[3]) > 0 ? 4 : 0;
    return 0;
}

/* The byte after the string that begins at scan->at; complains and returns NULL if it does not end. */
static const char *string_end(struct scan *scan)
{
    const char *at = scan->at + 1;

    while (at < scan->end && *at != '"' && *at != '\n' && *at != '\0') {
        size_t escape = *at == '\\' ? escape_length(at, scan->end) : 1;

        if (escape == 0)
            complain(
                scan,
                "unknown escape in a string: \\\\, \\\", \\n, \\r, \\t, \\f and \\x01 to \\xFF are known");
        at += escape == 0 ? 1 : escape;
    }
    if (at < scan->end && *at == '"')
        return at + 1;
    if (at < scan->end && *at == '\0')
        complain(scan, "a byte 0x00 is in the string");
    else
        complain(scan, "the string is not closed: '\"' is missing in its line");
    scan->stop = true;
    return NULL;
}

static void scan_string(struct scan *scan)
{
    const char *string = scan->at, *end = string_end(scan);

    if (end == NULL || !take_value(scan, STRING_VALUE, string, (size_t)(end - string)))
        return;
    text_append_bytes(scan->clean, string, (size_t)(end - string));
    scan->at = end;
    end_value(scan);
}

static bool at_comment(const struct scan *scan)
{
    return *scan->at == '#' ||
           (*scan->at == '/' && scan->end - scan->at > 1 && (scan->at[1] == '/' || scan->at[1] == '*'));
}

/* The end of the block comment that begins at `at`; NULL if it has none. */
static const char *comment_end(const char *at, const char *end)
{
    for (at += 2; end - at >= 2; at++) {
        if (at[0] == '*' && at[1] == '/')
            return at + 2;
    }
    return NULL;
}

static void scan_comment(struct scan *scan)
{
    const char *end;

    text_append_bytes(scan->clean, " ", 1);
    if (scan->at[0] == '/' && scan->at[1] == '*') {
        end = comment_end(scan->at, scan->end);
        if (end == NULL) {
            complain(scan, "the comment is not closed: \"*/\" is missing");
            scan->stop = true;
            return;
        }
        skip_to(scan, end);
    } else {
        end = memchr(scan->at, '\n', (size_t)(scan->end - scan->at));
        skip_to(scan, end == NULL ? scan->end : end);
    }
}

/* --- Marks --------------------------------------------------------------------------------------------- */

static void open_scope(struct scan *scan, char mark)
{
    if (!take_value(scan, GROUP_VALUE, &mark, 1))
        return;
    if (scan->depth == SCAN_DEPTH_MAX) {
        complain(scan, "more than %d groups and lists inside one another", SCAN_DEPTH_MAX);
        scan->stop = true;
        return;
    }
    scan->scopes[++scan->depth] = (struct scope){mark, scan->line, scan->key_count, 0, NO_VALUE};
    scan->expect = mark == '{' ? KEY_NEXT : VALUE_OR_CLOSE;
}

static void close_scope(struct scan *scan, char mark)
{
    const struct scope *scope = &scan->scopes[scan->depth];
    char opener = mark == '}' ? '{' : mark == ')' ? '(' : '[';

    scan->stop = true;
    if (scope->open == 0) {
        complain(scan, "'%c' closes nothing: no '%c' is open", mark, opener);
    } else if (scope->open != opener) {
        complain(scan, "'%c' stands where the '%c' of line %u is to be closed", mark, scope->open,
                 scope->line);
    } else if (scan->expect == ASSIGN_NEXT || scan->expect == VALUE_NEXT) {
        complain_order(scan, &mark, 1);
    } else {
        scan->stop = false;
        scan->key_count = scope->first_key;
        scan->depth--;
        end_value(scan);
    }
}

/* A ';' or ','. A group goes on after a setting that has no value: the next one can be understood again. */
static void end_setting(struct scan *scan, char mark)
{
    bool list = in_list(scan);

    if (scan->expect != END_NEXT || (list && mark == ';')) {
        complain_order(scan, &mark, 1);
        scan->stop = list;
    } else if (list) {
        scan->scopes[scan->depth].index++;
    }
    scan->expect = list ? VALUE_NEXT : KEY_NEXT;
}

static void scan_mark(struct scan *scan, char mark)
{
    switch (mark) {
    case '{':
    case '(':
    case '[':
        open_scope(scan, mark);
        return;
    case '}':
    case ')':
    case ']':
        close_scope(scan, mark);
        return;
    case '=':
    case ':':
        if (scan->expect != ASSIGN_NEXT)
            complain_order(scan, &mark, 1);
        scan->expect = VALUE_NEXT;
        return;
    default: /* ';' or ',' */
        end_setting(scan, mark);
    }
}

/* --- The whole ----------------------------------------------------------------------------------------- */

static void skip_byte_order_mark(struct scan *scan)
{
    if (scan->end - scan->at < 3 || memcmp(scan->at, "\xEF\xBB\xBF", 3) != 0)
        return;
    complain(scan, "the file begins with a byte order mark (bytes EF BB BF): save it as UTF-8 without one");
    scan->at += 3;
}

/* A byte that belongs to no token: said once per run of such bytes. */
static void scan_odd(struct scan *scan)
{
    unsigned char byte = (unsigned char)*scan->at;
    struct quoted quoted;
    const char *run = scan->at;

    if (byte == '@') {
        complain(scan, "@include is not taken: a configuration is one file");
        scan->stop = true;
    } else if (byte < 0x80) {
        complain(scan, "the character %s belongs nowhere here", text_quote(run, 1, &quoted));
        scan->at++;
    } else {
        while (scan->at < scan->end && (unsigned char)*scan->at >= 0x80)
            scan->at++;
        complain(scan,
                 "non-ASCII bytes %s outside of a string or comment; if you see only a blank, type it anew",
                 text_quote(run, (size_t)(scan->at - run), &quoted));
    }
}

static void scan_token(struct scan *scan)
{
    char c = *scan->at;

    if (c == '\n' || c == ' ' || c == '\t' || c == '\r') {
        scan->line += c == '\n';
        text_append_bytes(scan->clean, &c, 1);
        scan->at++;
    } else if (at_comment(scan)) {
        scan_comment(scan);
    } else if (c == '"') {
        scan_string(scan);
    } else if (is_letter(c) || c == '*') {
        scan_word(scan);
    } else if (is_digit(c) || c == '+' || c == '-' || c == '.') {
        scan_number(scan);
    } else if (c != '\0' && strchr("{}()[]=:;,", c) != NULL) {
        scan_mark(scan, c);
        text_append_bytes(scan->clean, &c, 1);
        scan->at++;
    } else {
        scan_odd(scan);
    }
}

static void scan_end(struct scan *scan)
{
    const struct scope *scope = &scan->scopes[scan->depth];

    if (scope->open != 0)
        complain_at(scan, scope->line, "the '%c' is never closed", scope->open);
    else if (scan->expect == ASSIGN_NEXT || scan->expect == VALUE_NEXT)
        complain(scan, "the file ends where '=' and a value belong");
    text_append_bytes(scan->clean, "\n", 1);
}

bool scan_text(const char *bytes, size_t count, struct report *report, struct text *clean)
{
    struct scan scan = {.at = bytes, .end = bytes + count, .line = 1, .report = report, .clean = clean};

    skip_byte_order_mark(&scan);
    while (!scan.stop && scan.at < scan.end)
        scan_token(&scan);
    if (!scan.stop)
        scan_end(&scan);
    free(scan.keys);
    if (clean->failed)
        report->no_memory = true;
    return report_is_clean(report);
}
