/* SPDX-License-Identifier: BSD-3-Clause */
/* Configuration files: what is taken, and what is said of each mistake. The host is answered for by the test
 * (its addresses, its names); files are real ones in a folder of the test's own. */

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/quantity.h"
#include "base/text.h"
#include "config/load.h"
#include "config/values.h"
#include "config/words.h"
#include "tests/lib/suite.h"

/* --- The host ------------------------------------------------------------------------------------------ */

#define HOST_ADDRESSES 4

static const char *host_addresses[HOST_ADDRESSES]; /* of the host; NULL past the last one */

static void set_address(struct address *address, const char *ip)
{
    *address = (struct address){0};
    if (inet_pton(AF_INET, ip, &address->v4.sin_addr) == 1) {
        address->v4.sin_family = AF_INET;
        address->bytes = sizeof(address->v4);
    } else {
        ck_assert_int_eq(inet_pton(AF_INET6, ip, &address->v6.sin6_addr), 1);
        address->v6.sin6_family = AF_INET6;
        address->bytes = sizeof(address->v6);
    }
}

static int fake_resolve(const char *name, struct address *address, struct fail *fail)
{
    static const char *const names[][2] = {
        {"a.example", "10.0.0.1"}, {"b.example", "10.0.0.2"}, {"own.example", "127.0.1.1"}};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i][0], name) == 0) {
            set_address(address, names[i][1]);
            return 0;
        }
    }
    return fail_set(fail, COVEY_NOT_FOUND, "Name or service not known");
}

static int fake_addresses(struct address **list, size_t *count, struct fail *fail)
{
    (void)fail;
    *list = calloc(HOST_ADDRESSES, sizeof(**list));
    ck_assert_ptr_nonnull(*list);
    for (*count = 0; *count < HOST_ADDRESSES && host_addresses[*count] != NULL; (*count)++)
        set_address(&(*list)[*count], host_addresses[*count]);
    return 0;
}

static int read_real_file(const char *path, size_t max_bytes, char **bytes, size_t *count,
                          struct stat *status, struct fail *fail)
{
    return host_here.read_file(path, max_bytes, bytes, count, status, fail);
}

static const struct host fake_host = {fake_resolve, fake_addresses, read_real_file};

/* --- Texts --------------------------------------------------------------------------------------------- */

#define CLUSTER                "cluster: { name = \"demo\"; };\n"
#define NODE0                  "{ id = 0; name = \"n0\"; address = \"127.0.0.1:7400\"; }"
#define NODE1                  "{ id = 1; name = \"n1\"; address = \"127.0.0.1:7401\"; }"
#define NODE2                  "{ id = 2; name = \"n2\"; address = \"127.0.0.1:7402\"; }"
#define NODES                  "nodes: ( " NODE0 ", " NODE1 ", " NODE2 " );\n"
#define BASE                   CLUSTER NODES

/* A file of which one value matters. */
#define WITH_CLUSTER(settings) "cluster: { name = \"demo\";\n" settings " };\n" NODES
#define WITH_GROUP(settings)   BASE "groups: ( { name = \"g\";\n" settings " } );\n"
#define WITH_ADDRESS(address)                                                                                \
    "cluster: { name = \"demo\"; insecure = true; };\nnodes: ( { id = 0; name = \"n0\";\naddress = " address \
    "; } );\n"

static int load(const char *text, const char *node_name, struct covey_options **options, char **errors)
{
    *errors = NULL;
    *options = NULL;
    return options_load_text("t.conf", text, strlen(text), node_name, &fake_host, options, errors);
}

/* The options of a text that must load. */
static struct covey_options *load_good(const char *text, const char *node_name)
{
    struct covey_options *options;
    char *errors;

    ck_assert_msg(load(text, node_name, &options, &errors) == 0, "%s\n%s", text, errors);
    return options;
}

/* --- Mistakes ------------------------------------------------------------------------------------------ */

#define SAYS_MAX 6

struct said {
    const char *begin; /* "LINE: KEY:" */
    const char *part;  /* somewhere after it */
};

struct mistake {
    const char *text;
    struct said said[SAYS_MAX]; /* exactly these, in this order */
};

static const struct mistake mistakes[] = {
    /* one id, one name or one address twice: said once, with both places */
    {CLUSTER "nodes: (\n{ id = 1; name = \"a\"; address = \"127.0.0.1:1\"; },\n"
             "{ id = 1; name = \"n0\"; address = \"127.0.0.1:2\"; } );\n",
     {{"4: nodes[1].id:", "1 is the id of nodes[0] too (line 3)"}}},
    {CLUSTER "nodes: (\n{ id = 1; name = \"n0\"; address = \"127.0.0.1:1\"; },\n"
             "{ id = 2; name = \"n0\"; address = \"127.0.0.1:2\"; } );\n",
     {{"4: nodes[1].name:", "\"n0\" is the name of nodes[0] too (line 3)"}}},
    {CLUSTER "nodes: (\n{ id = 1; name = \"n0\"; address = \"127.0.0.1:1\"; },\n"
             "{ id = 2; name = \"b\"; address = \"127.0.0.1:1\"; } );\n",
     {{"4: nodes[1].address:", "\"127.0.0.1:1\" is the address of nodes[0] too (line 3)"}}},
    {BASE "node: { id = 2; name = \"n0\"; address = \"127.0.0.1:7400\"; };",
     {{"3: node.id:", "2 is the id of nodes[2] too (line 2)"},
      {"3: node.name:", "nodes[0] too (line 2)"},
      {"3: node.address:", "nodes[0] too (line 2)"}}},

    /* entries that lack something */
    {CLUSTER "nodes: (\n{ name = \"n0\"; address = \"127.0.0.1:1\"; } );\n",
     {{"3: nodes[0].id:", "is missing; wants an integer from 0 to 65535"}}},
    {CLUSTER "nodes: (\n{ id = 0; } );\n",
     {{"3: nodes[0].name:", "is missing"}, {"3: nodes[0].address:", "is missing"}}},
    {"cluster: { };\n" NODES, {{"1: cluster.name:", "is missing"}}},
    {"", {{"1: cluster:", "is missing"}, {"1: nodes:", "is missing"}}},
    {CLUSTER "nodes: ( );\n", {{"2: nodes:", "the list is empty"}}},

    /* bytes that cannot be seen */
    {CLUSTER "nodes: ( { id = 0; name = \"n0\";\n\xC2\xA0 address = \"127.0.0.1:1\"; } );\n",
     {{"3: nodes[0]:", "non-ASCII bytes \"\\xC2\\xA0\""}}},
    {"\xEF\xBB\xBF" BASE, {{"1: syntax:", "byte order mark"}}},
    {CLUSTER "nodes: ( { id = 0; name = \"n\xC2\xA0\"; address = \"127.0.0.1:1\"; } );\n",
     {{"2: nodes[0].name:", "the unprintable character U+00A0"}}},
    {CLUSTER "nodes: ( { id = 0; name = \"n\xFF\"; address = \"127.0.0.1:1\"; } );\n",
     {{"2: nodes[0].name:", "(0xFF) is not UTF-8"}}},
    {BASE "\f", {{"3: syntax:", "the character \"\\x0C\""}}},

    /* braces */
    {BASE "};};", {{"3: syntax:", "'}' closes nothing: no '{' is open"}}},
    {BASE "log: {{ level = \"info\"; };", {{"3: log:", "found \"{\" where a key or '}' belongs"}}},
    {BASE "log: {\n level = \"info\"; ", {{"3: log:", "the '{' is never closed"}}},
    {BASE "log: {\n level = \"info\"; );",
     {{"4: log:", "')' stands where the '{' of line 3 is to be closed"}}},
    {CLUSTER "nodes: ( " NODE0 ",\n );", {{"3: nodes[1]:", "the value is missing: found \")\""}}},
    {CLUSTER "nodes: ( " NODE0 "\n" NODE1 " );", {{"3: nodes[0]:", "found \"{\" where ',' or ')' belongs"}}},

    /* values that are missing, misplaced or said twice */
    {WITH_CLUSTER("heartbeat = ;"), {{"2: cluster.heartbeat:", "the value is missing: found \";\""}}},
    {WITH_CLUSTER("heartbeat ;"), {{"2: cluster.heartbeat:", "found \";\" where '=' and a value belong"}}},
    {WITH_CLUSTER("quorum = majority;"),
     {{"2: cluster.quorum:", "a bare word is no value; a string stands in quotes, as \"majority\""}}},
    {WITH_CLUSTER("heartbeat = 100ms;"), {{"2: cluster.heartbeat:", "\"100ms\" is not a number"}}},
    {WITH_CLUSTER("quorum = \"majority;"), {{"2: cluster.quorum:", "the string is not closed"}}},
    {WITH_CLUSTER("quorum = \"major\\qity\";"), {{"2: cluster.quorum:", "unknown escape"}}},
    {WITH_CLUSTER("quorum = \"majority\" \"\";"), {{"2: cluster:", "where a key or '}' belongs"}}},
    {WITH_CLUSTER("insecure = true;\n\ninsecure = true;"),
     {{"4: cluster.insecure:", "stands here again, after line 2"}}},
    {BASE "log: { };\nlog: { };", {{"4: log:", "stands here again, after line 3"}}},
    {BASE "log: { level = ; };;\ncontrol: {\nsocket ; };",
     {{"3: log.level:", "the value is missing"},
      {"3: syntax:", "found \";\" where a key belongs"},
      {"5: control.socket:", "found \";\" where '=' and a value belong"}}},
    {BASE "/* open", {{"3: syntax:", "the comment is not closed"}}},
    {BASE "@include \"other.conf\"", {{"3: syntax:", "@include is not taken"}}},
    {BASE "log", {{"3: log:", "the file ends where '=' and a value belong"}}},

    /* keys that are unknown or stand in the wrong place */
    {WITH_GROUP("blok = 65536;"), {{"4: groups[0].blok:", "did you mean \"block\"?"}}},
    {WITH_CLUSTER("block = 65536;"), {{"2: cluster.block:", "it belongs to \"groups\""}}},
    {WITH_CLUSTER("log = { };"), {{"2: cluster.log:", "it belongs to the outermost level"}}},
    {WITH_CLUSTER("token = 3;"), {{"2: cluster.token:", "unknown key; known here are name, secret_file,"}}},
    {BASE "heartbeat = 3;", {{"3: heartbeat:", "it belongs to \"cluster\""}}},

    /* integers beyond 32 and 64 bits, hexadecimal ones too: never another number */
    {WITH_GROUP("block = 4294971392;"), {{"4: groups[0].block:", "the integer 4294971392 is out of range"}}},
    {WITH_GROUP("block = 4295032832;"), {{"4: groups[0].block:", "the integer 4295032832 is out of range"}}},
    {WITH_GROUP("block = 10737418240;"),
     {{"4: groups[0].block:", "the integer 10737418240 is out of range"}}},
    {WITH_GROUP("block = 0xFFFF0000;"), {{"4: groups[0].block:", "the integer 4294901760 is out of range"}}},
    {WITH_GROUP("block = 0x10000000000010000;"),
     {{"4: groups[0].block:", "an integer of more than 64 bits is out of range"}}},
    {WITH_GROUP("budget = 18446744073709551616;"), {{"4: groups[0].budget:", "more than 64 bits"}}},
    {WITH_GROUP("budget = -9223372036854775809;"), {{"4: groups[0].budget:", "more than 64 bits"}}},
    {WITH_GROUP("keep_versions = 4294967297;"),
     {{"4: groups[0].keep_versions:", "wants an integer from 1 to 1000"}}},
    {WITH_CLUSTER("heartbeat = 9223372036854775000;"), {{"2: cluster.heartbeat:", "is out of range"}}},
    {CLUSTER "nodes: ( { id = 4294967296; name = \"n0\"; address = \"127.0.0.1:1\"; } );\n",
     {{"2: nodes[0].id:", "the integer 4294967296 is out of range; wants an integer from 0 to 65535"}}},
    {CLUSTER "nodes: ( { id = -1; name = \"n0\"; address = \"127.0.0.1:1\"; } );\n",
     {{"2: nodes[0].id:", "the integer -1 is out of range"}}},
    {CLUSTER "nodes: ( { id = 12abc = 3; name = \"n0\"; address = \"127.0.0.1:1\"; } );\n",
     {{"2: nodes[0].id:", "\"12abc\" is not a number"}, {"2: nodes[0]:", "found \"=\""}}},

    /* types: what is wanted and what is found */
    {WITH_GROUP("members = 3;"), {{"4: groups[0].members:", "as ( \"n0\", \"n1\" ), found the integer 3"}}},
    {WITH_GROUP("members = \"n0\";"), {{"4: groups[0].members:", "found the string \"n0\""}}},
    {WITH_GROUP("members = (0);"),
     {{"4: groups[0].members[0]:", "wants the name of a node, in quotes, found the integer 0"}}},
    {WITH_GROUP("members = [];"), {{"4: groups[0].members:", "the list is empty"}}},
    {WITH_GROUP("members = ();"), {{"4: groups[0].members:", "the list is empty"}}},
    {WITH_GROUP("members = { };"), {{"4: groups[0].members:", "found a group { }"}}},
    {WITH_GROUP("keep_versions = 1.5;"), {{"4: groups[0].keep_versions:", "found a floating-point number"}}},
    {WITH_GROUP("keep_versions = true;"), {{"4: groups[0].keep_versions:", "found the boolean true"}}},
    {WITH_GROUP("budget = ( 1, 2 );"), {{"4: groups[0].budget:", "found a list ( )"}}},
    {WITH_CLUSTER("insecure = 1;"), {{"2: cluster.insecure:", "wants true or false, found the integer 1"}}},
    {CLUSTER "nodes: { };\n",
     {{"2: nodes:", "wants a list of groups, as nodes: ( { ... }, { ... } ), found a group"}}},
    {CLUSTER "nodes: [ 1, 2 ];\n", {{"2: nodes:", "found an array [ ]"}}},
    {CLUSTER "nodes: ( 5 );\n", {{"2: nodes[0]:", "wants a group, as { ... }, found the integer 5"}}},
    {"cluster = 5;\n" NODES, {{"1: cluster:", "wants a group, as cluster: { ... }, found the integer 5"}}},
    {BASE "groups: [ \"a\", 5 ];", {{"3: groups[1]:", "an array [ ] holds values of one type"}}},
    {BASE "groups: [ { name = \"g\"; } ];", {{"3: groups[0]:", "an array [ ] holds plain values; a list"}}},
    {BASE "true = 1;", {{"3: syntax:", "found \"true\" where a key belongs"}}},

    /* ranges and forms */
    {WITH_GROUP("keep_versions = 0;"), {{"4: groups[0].keep_versions:", "the integer 0 is out of range"}}},
    {WITH_GROUP("keep_versions = -1;"), {{"4: groups[0].keep_versions:", "the integer -1 is out of range"}}},
    {WITH_GROUP("budget = \"1023KiB\";"),
     {{"4: groups[0].budget:", "\"1023KiB\" is out of range; wants a size from 1MiB"}}},
    {WITH_GROUP("budget = \"8GB\";"),
     {{"4: groups[0].budget:", "\"8GB\" has an unknown unit; known are B, KiB"}}},
    {WITH_GROUP("budget = \"8\";"), {{"4: groups[0].budget:", "\"8\" has no unit"}}},
    {WITH_GROUP("budget = \"1.0000001MiB\";"), {{"4: groups[0].budget:", "not a whole number of bytes"}}},
    {WITH_GROUP("budget = \"99999999TiB\";"), {{"4: groups[0].budget:", "is too large"}}},
    {WITH_GROUP("block = \"100000B\";"), {{"4: groups[0].block:", "it is not a power of two"}}},
    {WITH_GROUP("block = 32768;"), {{"4: groups[0].block:", "out of range; wants \"auto\" or"}}},
    {WITH_GROUP("schedule = \"fast\";"),
     {{"4: groups[0].schedule:", "\"binomial\", \"circulant\" or \"auto\", found the string \"fast\""}}},
    {WITH_GROUP("memory = \"gpu\";"),
     {{"4: groups[0].memory:", "unknown kind of memory; wants \"host\", \"cuda\""}}},
    {WITH_GROUP("memory = \"cuda:\";"), {{"4: groups[0].memory:", "is not a number"}}},
    {WITH_GROUP("memory = \"cuda:256\";"), {{"4: groups[0].memory:", "a device is 0 to 255"}}},
    {WITH_GROUP("members = ( \"n0\", \"n7\" );"),
     {{"4: groups[0].members[1]:", "no node of the list is called \"n7\""}}},
    {WITH_GROUP("members = ( \"all\" );"),
     {{"4: groups[0].members[0]:", "or members = \"all\" without a list"}}},
    {WITH_GROUP("members = ( \"n0\", \"n1\",\n\"n0\" );"),
     {{"5: groups[0].members[2]:", "\"n0\" is members[0] too (line 4)"}}},
    {BASE "groups: ( { name = \"g\"; },\n{ name = \"g\"; } );",
     {{"4: groups[1].name:", "\"g\" is the name of groups[0] too (line 3)"}}},
    {BASE "groups: ( { name = \"a/b\"; } );", {{"3: groups[0].name:", "a name cannot contain '/'"}}},
    {BASE "groups: ( { name = \"\"; } );", {{"3: groups[0].name:", "a name cannot be empty"}}},
    {BASE "groups: ( { name = \"a\\tb\"; } );", {{"3: groups[0].name:", "the unprintable character U+0009"}}},
    {CLUSTER "nodes: ( { id = 0; name = \".n0\"; address = \"127.0.0.1:1\"; } );\n",
     {{"2: nodes[0].name:", "cannot begin with '.'"}}},
    {BASE "fabric: { provider = \"rdma\"; };",
     {{"3: fabric.provider:", "unknown provider; wants \"auto\", \"tcp\""}}},
    {BASE "fabric: { provider = \"ofi:\"; };", {{"3: fabric.provider:", "no name of a libfabric provider"}}},
    {BASE "log: { level = \"loud\"; };",
     {{"3: log.level:", "wants \"error\", \"warning\", \"info\" or \"debug\", found the string \"loud\""}}},
    {BASE "staging: { size = 0; };", {{"3: staging.size:", "the integer 0 is out of range"}}},
    {BASE
     "staging: { size = \"2MiB\"; };\ngroups: ( { name = \"g\"; memory = \"cuda\"; block = \"1MiB\"; } );",
     {{"4: groups[0].block:", "4 blocks of 1MiB do not fit in staging.size, 2MiB"}}},
    {BASE "control: { socket = \"covey.sock\"; };", {{"3: control.socket:", "the path is not absolute"}}},
    {BASE "control: { socket = \"/run/%i.sock\"; };", {{"3: control.socket:", "after % stands neither n"}}},
    {BASE "control: { socket = \"/run/0123456789012345678901234567890123456789012345678901234567890123456789"
          "0123456789012345678901234567/%n.s\"; };",
     {{"3: control.socket:", "for node \"n0\" the path has 108 bytes, and a socket's has at most 107"}}},

    /* times against one another, defaults too */
    {WITH_CLUSTER("heartbeat = \"1s\"; suspect_after = \"500ms\";"),
     {{"2: cluster.suspect_after:",
       "500ms is less than two times heartbeat, which is 1s; wants at least 2s"}}},
    {WITH_CLUSTER("heartbeat = \"1s\"; suspect_after = \"1s\";"),
     {{"2: cluster.suspect_after:", "wants at least 2s"}}},
    {WITH_CLUSTER("heartbeat = \"1s\";"),
     {{"2: cluster.suspect_after:", "1s (the default) is less than two times"}}},
    {WITH_CLUSTER("suspect_after = 0;"), {{"2: cluster.suspect_after:", "the integer 0 is out of range"}}},
    {WITH_CLUSTER("suspect_after = \"11s\";"),
     {{"2: cluster.stall_after:",
       "10s (the default) is less than suspect_after, which is 11s; wants at least 11s"}}},
    {WITH_CLUSTER("heartbeat = \"9ms\";"), {{"2: cluster.heartbeat:", "wants a time from 10ms to 10s"}}},
    {WITH_CLUSTER("heartbeat = \"11s\";"), {{"2: cluster.heartbeat:", "is out of range"}}},

    /* addresses */
    {WITH_ADDRESS("\"10.0.0.1:7400 # first\""),
     {{"3: nodes[0].address:", "\"10.0.0.1:7400 # first\" contains a blank"}}},
    {WITH_ADDRESS("\" 10.0.0.1:7400\""), {{"3: nodes[0].address:", "\" 10.0.0.1:7400\" contains a blank"}}},
    {WITH_ADDRESS("\"10.0.0.1\""), {{"3: nodes[0].address:", "\"10.0.0.1\" has no port"}}},
    {WITH_ADDRESS("\"10.0.0.1:\""), {{"3: nodes[0].address:", "the port \"\" is not a plain number"}}},
    {WITH_ADDRESS("\"10.0.0.1:0\""), {{"3: nodes[0].address:", "the port 0 is out of range 1..65535"}}},
    {WITH_ADDRESS("\"10.0.0.1:65536\""), {{"3: nodes[0].address:", "the port 65536 is out of range"}}},
    {WITH_ADDRESS("\"10.0.0.1:4294967297\""), {{"3: nodes[0].address:", "is out of range"}}},
    {WITH_ADDRESS("\"10.0.0.1:0x50\""), {{"3: nodes[0].address:", "is not a plain number"}}},
    {WITH_ADDRESS("\"10.0.0.256:7400\""), {{"3: nodes[0].address:", "neither an address nor a host name"}}},
    {WITH_ADDRESS("\"10.1:7400\""), {{"3: nodes[0].address:", "neither an address nor a host name"}}},
    {WITH_ADDRESS("\":7400\""), {{"3: nodes[0].address:", "\"\" is neither"}}},
    {WITH_ADDRESS("\"\""), {{"3: nodes[0].address:", "has no port"}}},
    {WITH_ADDRESS("\"2001:db8::1\""), {{"3: nodes[0].address:", "an IPv6 address stands in brackets"}}},
    {WITH_ADDRESS("\"2001:db8::1:7400\""), {{"3: nodes[0].address:", "an IPv6 address stands in brackets"}}},
    {WITH_ADDRESS("\"[2001:db8::1]\""), {{"3: nodes[0].address:", "has no port after its brackets"}}},
    {WITH_ADDRESS("\"[10.0.0.1]:7400\""), {{"3: nodes[0].address:", "is no IPv6 address"}}},
    {WITH_ADDRESS("\"0.0.0.0:7400\""), {{"3: nodes[0].address:", "an unspecified address"}}},
    {WITH_ADDRESS("\"[::]:7400\""), {{"3: nodes[0].address:", "the unspecified address"}}},
    {WITH_ADDRESS("\"224.0.0.1:7400\""), {{"3: nodes[0].address:", "a multicast address"}}},
    {WITH_ADDRESS("\"[fe80::1]:7400\""), {{"3: nodes[0].address:", "a link-local address"}}},
    {WITH_ADDRESS("\"[::ffff:10.0.0.1]:7400\""), {{"3: nodes[0].address:", "an IPv4 address in IPv6 form"}}},
    {WITH_ADDRESS("\"no-such-host.invalid:7400\""),
     {{"3: nodes[0].address:", "\"no-such-host.invalid\" cannot be looked up: Name or service not known"}}},
    {"cluster: { name = \"demo\"; insecure = true; };\nnodes: (\n{ id = 0; name = \"n0\"; address = "
     "\"10.0.0.1:1\"; },\n"
     "{ id = 1; name = \"n1\"; address = \"[2001:db8::1]:1\"; } );\n",
     {{"4: nodes[1].address:", "\"[2001:db8::1]:1\" is IPv6, but nodes[0] in line 3 is IPv4"}}},
    {"cluster: { name = \"demo\"; insecure = true; };\nnodes: (\n{ id = 0; name = \"n0\"; address = "
     "\"own.example:1\"; },\n"
     "{ id = 1; name = \"n1\"; address = \"b.example:1\"; } );\n",
     {{"3: nodes[0].address:",
       "\"own.example:1\" is the loopback address 127.0.1.1, but nodes[1] in line 4"}}},

    /* trust */
    {CLUSTER "nodes: (\n{ id = 0; name = \"n0\"; address = \"10.0.0.1:1\"; } );\n",
     {{"1: cluster.secret_file:", "is missing although nodes[0] in line 3 (\"10.0.0.1:1\") can be reached"}}},
    {WITH_CLUSTER("secret_file = \"secret\";"), {{"2: cluster.secret_file:", "the path is not absolute"}}},
    {WITH_CLUSTER("secret_file = \"/nonexistent/secret\";"),
     {{"2: cluster.secret_file:", "\"/nonexistent/secret\": No such file or directory"}}},

    /* several at once: all of them, in the order of lines */
    {"cluster: { nam = \"demo\";\nheartbeat = true; };\nnodes: (\n{ id = 70000; name = \"n0\";\naddress = "
     "\"n0\"; } );\n"
     "stagin: { };",
     {{"1: cluster.nam:", "did you mean \"name\"?"},
      {"1: cluster.name:", "is missing"},
      {"2: cluster.heartbeat:", "found the boolean true"},
      {"4: nodes[0].id:", "out of range"},
      {"5: nodes[0].address:", "has no port"},
      {"6: stagin:", "did you mean \"staging\"?"}}},
};
#define MISTAKES ((int)(sizeof(mistakes) / sizeof(mistakes[0])))

static const char *expect_line(const char *line, const struct said *said, const struct mistake *mistake,
                               const char *errors)
{
    const char *end = strchr(line, '\n'), *part;
    size_t begin = strlen("t.conf:") + strlen(said->begin);

    ck_assert_msg(end != NULL, "too few lines for\n%s\n%s", mistake->text, errors);
    ck_assert_msg(strncmp(line, "t.conf:", strlen("t.conf:")) == 0 &&
                      strncmp(line + strlen("t.conf:"), said->begin, strlen(said->begin)) == 0,
                  "wants \"%s\" for\n%s\n%s", said->begin, mistake->text, errors);
    part = strstr(line + begin, said->part);
    ck_assert_msg(part != NULL && part < end, "wants \"%s\" for\n%s\n%s", said->part, mistake->text, errors);
    return end + 1;
}

START_TEST(test_mistake_is_named_with_line_and_key_and_once)
{
    const struct mistake *mistake = &mistakes[_i];
    struct covey_options *options;
    const char *line;
    char *errors;

    ck_assert_msg(load(mistake->text, "n0", &options, &errors) == COVEY_CONFIG, "taken:\n%s", mistake->text);
    ck_assert_ptr_null(options);
    line = errors;
    for (size_t i = 0; i < SAYS_MAX && mistake->said[i].begin != NULL; i++)
        line = expect_line(line, &mistake->said[i], mistake, errors);
    ck_assert_msg(*line == '\0', "too many lines for\n%s\n%s", mistake->text, errors);
    free(errors);
}
END_TEST

/* --- Limits of what is looked at ----------------------------------------------------------------------- */

static void expect_begin(const char *bytes, size_t count, const char *said)
{
    struct covey_options *options = NULL;
    char *errors = NULL;

    ck_assert_int_eq(options_load_text("t.conf", bytes, count, "n0", &fake_host, &options, &errors),
                     COVEY_CONFIG);
    ck_assert_msg(strncmp(errors, said, strlen(said)) == 0, "wants \"%s\"\n%s", said, errors);
    free(errors);
}

static void expect_text_begin(struct text *text, const char *said)
{
    ck_assert(!text->failed);
    expect_begin(text->bytes, text->length, said);
    text_fini(text);
}

START_TEST(test_lists_have_a_largest_length)
{
    struct text text = {0};

    text_append(&text, CLUSTER "nodes: (");
    for (int i = 0; i <= COVEY_MEMBERS_MAX; i++)
        text_append(&text, "%s { id = %d; name = \"n%d\"; address = \"127.0.0.1:%d\"; }", i == 0 ? "" : ",",
                    i, i, i + 1);
    text_append(&text, " );");
    expect_text_begin(&text, "t.conf:2: nodes: the list has 1025 entries; wants at most 1024\n");

    text_append(&text, BASE "groups: (");
    for (int i = 0; i <= 1024; i++)
        text_append(&text, "%s { name = \"g%d\"; }", i == 0 ? "" : ",", i);
    text_append(&text, " );");
    expect_text_begin(&text, "t.conf:3: groups: the list has 1025 entries; wants at most 1024\n");

    text_append(&text, BASE "groups: ( { name = \"g\"; members = (");
    for (int i = 0; i <= COVEY_MEMBERS_MAX; i++)
        text_append(&text, "%s \"n0\"", i == 0 ? "" : ",");
    text_append(&text, " ); } );");
    expect_text_begin(&text, "t.conf:3: groups[0].members: the list has 1025 entries; wants at most 1024\n");
}
END_TEST

START_TEST(test_groups_have_a_largest_depth_and_number_of_keys)
{
    struct text text = {0};

    text_append(&text, "a: ");
    for (int i = 0; i < 100000; i++)
        text_append(&text, "(");
    expect_text_begin(&text,
                      "t.conf:1: a[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]: more than 16 groups and "
                      "lists inside one another\n");
    for (int i = 0; i < 65; i++)
        text_append(&text, "a%d = 1;", i);
    expect_text_begin(&text, "t.conf:1: syntax: more than 64 keys in one group\n");
}
END_TEST

/* Neither a long list nor many mistakes take long or make much text. */
START_TEST(test_many_mistakes_are_counted)
{
    struct text text = {0};
    struct covey_options *options;
    char *errors;

    for (size_t i = 0; i < OPTIONS_FILE_MAX; i++)
        text_append_bytes(&text, ";", 1);
    ck_assert_int_eq(load(text.bytes, NULL, &options, &errors), COVEY_CONFIG);
    ck_assert_ptr_nonnull(strstr(errors, "\nt.conf: 1047576 more mistakes are not shown\n"));
    ck_assert_uint_lt(strlen(errors), 100000);
    free(errors);
    text_fini(&text);

    text_append(&text, "nodes: (0");
    while (text.length < OPTIONS_FILE_MAX - 2)
        text_append_bytes(&text, ",0", 2);
    text_append(&text, ")");
    expect_text_begin(&text, "t.conf:1: nodes: the list has 524284 entries; wants at most 1024\n");
}
END_TEST

START_TEST(test_nul_bytes_are_refused_wherever_they_are)
{
    static const char in_string[] = "cluster: { name = \"de\0mo\"; };", in_number[] = "a = 1\0;",
                      outside[] = BASE "\0", in_comment[] = "# a\0\n" BASE;
    struct covey_options *options = NULL;
    char *errors;

    expect_begin(in_string, sizeof(in_string) - 1, "t.conf:1: cluster.name: a byte 0x00 is in the string\n");
    expect_begin(in_number, sizeof(in_number) - 1,
                 "t.conf:1: syntax: the character \"\\x00\" belongs nowhere here\n");
    expect_begin(outside, sizeof(outside) - 1,
                 "t.conf:3: syntax: the character \"\\x00\" belongs nowhere here\n");
    ck_assert_int_eq(
        options_load_text("t.conf", in_comment, sizeof(in_comment) - 1, "n0", &fake_host, &options, &errors),
        0);
    covey_options_free(options);
}
END_TEST

START_TEST(test_path_cannot_forge_a_line)
{
    struct covey_options *options = NULL;
    char *errors;

    ck_assert_int_eq(options_load_text("a\nb.conf", "x", 1, NULL, &fake_host, &options, &errors),
                     COVEY_CONFIG);
    ck_assert_str_eq(errors, "a?b.conf:1: x: the file ends where '=' and a value belong\n");
    free(errors);
}
END_TEST

START_TEST(test_long_lists_of_names_are_cut)
{
    struct text text = {0};

    text_append(&text, CLUSTER "nodes: (");
    for (int i = 0; i < 12; i++)
        text_append(&text, "%s { id = %d; name = \"m%d\"; address = \"127.0.0.1:%d\"; }", i == 0 ? "" : ",",
                    i, i, i + 1);
    text_append(&text, " );");
    expect_text_begin(
        &text, "t.conf:2: nodes: no node is called \"n0\"; listed are m0, m1, m2, m3, m4, m5, m6, m7, m8, "
               "m9, ...\n");
}
END_TEST

/* --- What is taken ------------------------------------------------------------------------------------- */

START_TEST(test_absent_keys_have_the_documented_defaults)
{
    struct covey_options *options = load_good(BASE "groups: ( { name = \"models\"; } );", "n1");
    const struct group_options *group = &options->groups[0];

    ck_assert_str_eq(options->cluster_name, "demo");
    ck_assert_int_eq(options->quorum, QUORUM_MAJORITY);
    ck_assert_uint_eq(options->heartbeat_ns, 100000000);
    ck_assert_uint_eq(options->suspect_after_ns, 1000000000);
    ck_assert_uint_eq(options->stall_after_ns, 10000000000);
    ck_assert_str_eq(options->provider, "auto");
    ck_assert_uint_eq(options->staging_bytes, UINT64_C(256) << 20);
    ck_assert_str_eq(options->control_socket, "/run/covey/n1.sock");
    ck_assert_int_eq(options->log_level, COVEY_LOG_INFO);
    ck_assert(group->all && group->schedule_auto);
    ck_assert_int_eq(group->memory, COVEY_MEMORY_HOST);
    ck_assert_uint_eq(group->budget_bytes, UINT64_C(8) << 30);
    ck_assert_uint_eq(group->keep_versions, 2);
    ck_assert_uint_eq(group->block_bytes, 0);
    ck_assert_uint_eq(options->self.id, 1);
    ck_assert(!options->elastic && !options->insecure && options->secret == NULL);
    covey_options_free(options);
}
END_TEST

START_TEST(test_id_zero_is_an_ordinary_id)
{
    struct covey_options *options =
        load_good(BASE "groups: ( { name = \"g\"; members = [ \"n2\", \"n0\" ]; } );", "n0");

    ck_assert_uint_eq(options->node_count, 3);
    ck_assert_uint_eq(options->self.id, 0);
    ck_assert_str_eq(options_node(options, 0)->name, "n0");
    ck_assert_ptr_null(options_node(options, 3));
    ck_assert_uint_eq(options->groups[0].member_count, 2);
    ck_assert_uint_eq(options->groups[0].member_ids[0], 0);
    ck_assert_uint_eq(options->groups[0].member_ids[1], 2);
    ck_assert(options_group_selects(&options->groups[0], 0));
    ck_assert(!options_group_selects(&options->groups[0], 1));
    ck_assert(options_group_selects(&options->groups[0], 2));
    covey_options_free(options);
}
END_TEST

/* Ids are in the file, never positions: who leaves the list takes no other's id away. */
START_TEST(test_removing_a_node_leaves_the_other_ids)
{
    struct covey_options *options = load_good(CLUSTER "nodes: ( " NODE2 ", " NODE0 " );", "n2");

    ck_assert_uint_eq(options->self.id, 2);
    ck_assert_str_eq(options->nodes[0].name, "n0");
    ck_assert_str_eq(options->nodes[1].name, "n2");
    ck_assert_uint_eq(options->nodes[1].id, 2);
    ck_assert_ptr_null(options_node(options, 1));
    covey_options_free(options);
}
END_TEST

START_TEST(test_integers_are_taken_exactly)
{
    struct covey_options *options =
        load_good("cluster: { name = \"demo\"; heartbeat = 250; suspect_after = 0x3E8L; };\n" NODES
                  "groups: ( { name = \"a\"; budget = 10737418240; block = 0x10000; },"
                  "{ name = \"b\"; budget = 4296015872L; block = 65536LL; keep_versions = +7; } );",
                  "n0");

    ck_assert_uint_eq(options->heartbeat_ns, 250000000);
    ck_assert_uint_eq(options->suspect_after_ns, 1000000000);
    ck_assert_uint_eq(options->groups[0].budget_bytes, UINT64_C(10737418240));
    ck_assert_uint_eq(options->groups[0].block_bytes, 65536);
    ck_assert_uint_eq(options->groups[1].budget_bytes, UINT64_C(4296015872));
    ck_assert_uint_eq(options->groups[1].block_bytes, 65536);
    ck_assert_uint_eq(options->groups[1].keep_versions, 7);
    covey_options_free(options);
}
END_TEST

/* Each of these ends in a way that libconfig alone refuses or misreads. */
static const char *const endings[] = {"# end",
                                      "// end",
                                      "/* end */",
                                      "log: { level = \"debug\" }",
                                      "log: { level = \"debug\"; }; # \xC3\xA9\xFF",
                                      "\r\n\t"};

START_TEST(test_file_may_end_without_newline)
{
    char text[512];

    snprintf(text, sizeof(text), "%s%s", BASE, endings[_i]);
    covey_options_free(load_good(text, "n0"));
}
END_TEST

START_TEST(test_group_memory_and_schedule_are_read)
{
    struct covey_options *options = load_good(
        BASE "groups: ( { name = \"a\"; memory = \"cuda\"; schedule = \"chain\"; block = \"auto\"; },"
             "{ name = \"b\"; memory = \"cuda:13\"; block = \"64MiB\"; budget = \"1.5GiB\"; } );",
        "n0");

    ck_assert_int_eq(options->groups[0].memory, COVEY_MEMORY_CUDA);
    ck_assert_int_eq(options->groups[0].device, -1);
    ck_assert(!options->groups[0].schedule_auto);
    ck_assert_int_eq(options->groups[0].schedule, SCHEDULE_CHAIN);
    ck_assert_int_eq(options->groups[1].device, 13);
    ck_assert_uint_eq(options->groups[1].block_bytes, UINT64_C(64) << 20);
    ck_assert_uint_eq(options->groups[1].budget_bytes, UINT64_C(3) << 29);
    covey_options_free(options);
}
END_TEST

/* The port in the socket address is the one of the file, and the address itself no other of the interface. */
START_TEST(test_addresses_are_those_of_the_file)
{
    struct covey_options *options =
        load_good("cluster: { name = \"demo\"; insecure = true; };\nnodes: (\n"
                  "{ id = 0; name = \"n0\"; address = \"[2001:DB8::1]:7000\"; },\n"
                  "{ id = 1; name = \"n1\"; address = \"[2001:db8::2]:7000\"; } );",
                  "n0");
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&options->self.sockaddr;
    char text[INET6_ADDRSTRLEN];

    ck_assert_str_eq(options->self.address, "[2001:DB8::1]:7000");
    ck_assert_uint_eq(options->self.sockaddr_bytes, sizeof(*v6));
    ck_assert_uint_eq(ntohs(v6->sin6_port), 7000);
    ck_assert_str_eq(inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text)), "2001:db8::1");
    covey_options_free(options);

    options = load_good("cluster: { name = \"demo\"; insecure = true; };\n"
                        "nodes: ( { id = 0; name = \"n0\"; address = \"b.example:65535\"; } );",
                        "n0");
    ck_assert_uint_eq(ntohs(((const struct sockaddr_in *)&options->self.sockaddr)->sin_port), 65535);
    ck_assert_uint_eq(ntohl(((const struct sockaddr_in *)&options->self.sockaddr)->sin_addr.s_addr),
                      0x0a000002);
    covey_options_free(options);
}
END_TEST

/* --- Which node ---------------------------------------------------------------------------------------- */

#define TWO_HOSTS                                                                                   \
    "cluster: { name = \"demo\"; insecure = true; };\nnodes: ( { id = 0; name = \"n0\"; address = " \
    "\"10.0.0.10:1\"; },"                                                                           \
    "{ id = 1; name = \"n1\"; address = \"10.0.0.11:1\"; } );\n"

static void set_host(const char *first, const char *second)
{
    host_addresses[0] = first;
    host_addresses[1] = second;
    host_addresses[2] = NULL;
}

static void expect_refusal(const char *text, const char *node_name, const char *said)
{
    struct covey_options *options;
    char *errors;

    ck_assert_int_eq(load(text, node_name, &options, &errors), COVEY_CONFIG);
    ck_assert_str_eq(errors, said);
    free(errors);
}

START_TEST(test_node_is_the_one_whose_address_is_the_hosts)
{
    struct covey_options *options;

    set_host("127.0.0.1", "10.0.0.11");
    options = load_good(TWO_HOSTS, NULL);
    ck_assert_str_eq(options->self.name, "n1");
    covey_options_free(options);
}
END_TEST

START_TEST(test_no_node_of_this_host_lists_its_addresses)
{
    set_host("127.0.0.1", "fd00::2");
    expect_refusal(
        TWO_HOSTS, NULL,
        "t.conf:2: nodes: no node has an address of this host; say which one it is (coveyd -n NAME). "
        "Addresses of this host: 127.0.0.1, fd00::2\n");
}
END_TEST

START_TEST(test_several_nodes_of_this_host_need_a_name)
{
    set_host("127.0.0.1", NULL);
    expect_refusal(BASE, NULL,
                   "t.conf:2: nodes: 3 nodes have an address of this host (n0, n1, n2); say which one it is "
                   "(coveyd -n NAME). Addresses of this host: 127.0.0.1\n");
}
END_TEST

START_TEST(test_unknown_name_lists_the_known_ones)
{
    expect_refusal(BASE, "n9", "t.conf:2: nodes: no node is called \"n9\"; listed are n0, n1, n2\n");
}
END_TEST

START_TEST(test_node_block_makes_an_elastic_node)
{
    static const char text[] = BASE "node: { id = 7; name = \"e\"; address = \"127.0.0.1:7407\"; };\n"
                                    "groups: ( { name = \"a\"; }, { name = \"b\"; members = ( \"n0\" ); } );";
    struct covey_options *options = load_good(text, NULL);

    ck_assert(options->elastic);
    ck_assert_uint_eq(options->self.id, 7);
    ck_assert_uint_eq(options->node_count, 3);
    ck_assert_uint_eq(covey_options_group_count(options), 1);
    ck_assert_str_eq(covey_options_group_name(options, 0), "a");
    ck_assert_ptr_null(covey_options_group_name(options, 1));
    covey_options_free(options);
    covey_options_free(load_good(text, "e"));
    expect_refusal(
        text, "n1",
        "t.conf:3: node.name: the file's own node is \"e\", but \"n1\" was asked for; ask for the one, "
        "or remove the block\n");
}
END_TEST

/* --- Files --------------------------------------------------------------------------------------------- */

/* A folder of the test's own, removed by the fixture of the end. */
static char folder[] = "/tmp/covey-config-XXXXXX";

static void make_folder(void)
{
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static const char *in_folder(const char *name)
{
    static char path[512];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static size_t remove_folder(void)
{
    DIR *entries = opendir(folder);
    size_t count = 0;

    ck_assert_ptr_nonnull(entries);
    for (struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        if (entry->d_name[0] == '.')
            continue;
        ck_assert_int_eq(unlink(in_folder(entry->d_name)), 0);
        count++;
    }
    closedir(entries);
    ck_assert_int_eq(rmdir(folder), 0);
    return count;
}

static void write_file(const char *name, const char *bytes, size_t count, mode_t mode)
{
    int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, count), (ssize_t)count);
    ck_assert_int_eq(fchmod(fd, mode), 0);
    ck_assert_int_eq(close(fd), 0);
}

static void expect_unreadable(const char *path, const char *why)
{
    struct covey_options *options = NULL;
    char said[512];

    ck_assert_int_eq(covey_options_load(path, NULL, &options), COVEY_CONFIG);
    ck_assert_ptr_null(options);
    snprintf(said, sizeof(said), "%s: the configuration cannot be read: %s\n", path, why);
    ck_assert_str_eq(covey_options_error(), said);
}

START_TEST(test_what_is_no_regular_file_is_refused_at_once)
{
    make_folder();
    ck_assert_int_eq(mkfifo(in_folder("fifo"), 0600), 0);
    expect_unreadable(in_folder("fifo"), "it is a FIFO; a regular file is needed");
    expect_unreadable(in_folder("missing"), "No such file or directory");
    expect_unreadable(folder, "it is a directory; a regular file is needed");
    expect_unreadable("/dev/zero", "it is a character device; a regular file is needed");
    expect_unreadable("", "No such file or directory");
    ck_assert_uint_eq(remove_folder(), 1);
}
END_TEST

START_TEST(test_file_over_the_bound_is_refused)
{
    size_t count = OPTIONS_FILE_MAX + 1;
    char *bytes = malloc(count);

    ck_assert_ptr_nonnull(bytes);
    memset(bytes, ' ', count);
    make_folder();
    write_file("large.conf", bytes, count, 0644);
    expect_unreadable(in_folder("large.conf"), "it has more than the 1048576 bytes that are allowed");
    remove_folder();
    free(bytes);
}
END_TEST

START_TEST(test_huge_string_is_shown_short)
{
    static char text[OPTIONS_FILE_MAX];
    struct covey_options *options;
    size_t begin = (size_t)snprintf(text, sizeof(text), "cluster: { name = \"");
    char *errors;

    memset(text + begin, 'x', sizeof(text) - 1024);
    strcpy(text + sizeof(text) - 1024, "\"; };\n" NODES);
    ck_assert_int_eq(load(text, "n0", &options, &errors), COVEY_CONFIG);
    ck_assert_ptr_nonnull(strstr(errors, "t.conf:1: cluster.name: \"xxx"));
    ck_assert_ptr_nonnull(strstr(errors, "a name has at most 255 bytes"));
    ck_assert_uint_lt(strlen(errors), 512);
    free(errors);
}
END_TEST

/* A file that does not fit this host must leave no trace. */
START_TEST(test_refused_file_creates_nothing)
{
    struct covey_options *options = NULL;
    char text[1024], before[512];

    make_folder();
    snprintf(before, sizeof(before), "%s", in_folder("covey.conf"));
    snprintf(text, sizeof(text),
             "cluster: { name = \"demo\"; insecure = true; };\n"
             "nodes: ( { id = 0; name = \"n0\"; address = \"192.0.2.77:7400\"; } );\n"
             "control: { socket = \"%s/%%n.sock\"; };",
             folder);
    write_file("covey.conf", text, strlen(text), 0644);
    ck_assert_int_eq(covey_options_load(before, NULL, &options), COVEY_CONFIG);
    ck_assert_ptr_nonnull(strstr(covey_options_error(), "no node has an address of this host"));
    ck_assert_ptr_nonnull(strstr(covey_options_error(), "127.0.0.1"));
    ck_assert_int_eq(covey_options_load(before, "n0", &options), 0);
    ck_assert_str_eq(covey_options_error(), "");
    ck_assert_str_eq(covey_options_node_name(options), "n0");
    ck_assert_str_eq(covey_options_control_socket(options), in_folder("n0.sock"));
    ck_assert_int_eq(covey_options_log_level(options), COVEY_LOG_INFO);
    covey_options_free(options);
    ck_assert_uint_eq(remove_folder(), 1);
}
END_TEST

START_TEST(test_missing_arguments_are_invalid)
{
    struct covey_options *options;

    ck_assert_int_eq(covey_options_load(NULL, NULL, &options), COVEY_INVALID);
    ck_assert_int_eq(covey_options_load("x", NULL, NULL), COVEY_INVALID);
    ck_assert_str_eq(covey_options_error(), "");
}
END_TEST

static void *load_missing(void *error)
{
    struct covey_options *options;

    ck_assert_str_eq(covey_options_error(), "");
    ck_assert_int_eq(covey_options_load("/nonexistent/thread", NULL, &options), COVEY_CONFIG);
    ck_assert_ptr_nonnull(strstr(covey_options_error(), "/nonexistent/thread"));
    return error;
}

START_TEST(test_errors_belong_to_their_thread)
{
    struct covey_options *options;
    pthread_t thread;

    ck_assert_int_eq(covey_options_load("/nonexistent/main", NULL, &options), COVEY_CONFIG);
    ck_assert_int_eq(pthread_create(&thread, NULL, load_missing, NULL), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_ptr_nonnull(strstr(covey_options_error(), "/nonexistent/main"));
}
END_TEST

/* --- The secret ---------------------------------------------------------------------------------------- */

#define SECRET "0123456789abcdef"

struct secret_file {
    const char *bytes;
    mode_t mode;
    const char *said; /* NULL: it is taken */
};

static const struct secret_file secret_files[] = {
    {SECRET, 0600, NULL},
    {SECRET "\n", 0400, NULL},
    {SECRET, 0640, "mode 0640 lets others at it; wants mode 0600"},
    {SECRET, 0604, "mode 0604 lets others at it"},
    {"0123456789abcde", 0600, "it has 15 bytes; wants at least 16"},
    {"0123456789abcde\n", 0600, "it has 15 bytes; wants at least 16"},
    {"", 0600, "it has 0 bytes"},
};

static struct covey_options *load_with_secret(const char *name, char **errors)
{
    struct covey_options *options;
    char text[1024];

    snprintf(text, sizeof(text),
             "cluster: { name = \"demo\";\nsecret_file = \"%s\"; };\n"
             "nodes: ( { id = 0; name = \"n0\"; address = \"10.0.0.1:7400\"; } );\n",
             in_folder(name));
    load(text, "n0", &options, errors);
    return options;
}

START_TEST(test_secret_is_private_and_long_enough)
{
    const struct secret_file *file = &secret_files[_i];
    struct covey_options *options;
    char *errors;

    make_folder();
    write_file("secret", file->bytes, strlen(file->bytes), file->mode);
    options = load_with_secret("secret", &errors);
    if (file->said == NULL) {
        ck_assert_msg(options != NULL, "%s", errors);
        ck_assert_uint_eq(options->secret_bytes, strlen(SECRET));
        ck_assert_mem_eq(options->secret, SECRET, strlen(SECRET));
        covey_options_free(options);
    } else {
        ck_assert_ptr_null(options);
        ck_assert_msg(strstr(errors, file->said) != NULL, "%s", errors);
        ck_assert_int_eq(strncmp(errors, "t.conf:2: cluster.secret_file: ", 31), 0);
        free(errors);
    }
    remove_folder();
}
END_TEST

START_TEST(test_secret_must_be_a_regular_file_of_some_kilobytes)
{
    char bytes[OPTIONS_SECRET_MAX + 2], *errors;

    memset(bytes, 'x', sizeof(bytes));
    make_folder();
    ck_assert_int_eq(mkfifo(in_folder("fifo"), 0600), 0);
    ck_assert_ptr_null(load_with_secret("fifo", &errors));
    ck_assert_ptr_nonnull(strstr(errors, "it is a FIFO"));
    free(errors);
    write_file("long", bytes, OPTIONS_SECRET_MAX + 1, 0600);
    ck_assert_ptr_null(load_with_secret("long", &errors));
    ck_assert_ptr_nonnull(strstr(errors, "it has more than 4096 bytes"));
    free(errors);
    write_file("longer", bytes, OPTIONS_SECRET_MAX + 2, 0600);
    ck_assert_ptr_null(load_with_secret("longer", &errors));
    ck_assert_ptr_nonnull(strstr(errors, "bytes that are allowed"));
    free(errors);
    remove_folder();
}
END_TEST

static int read_foreign_file(const char *path, size_t max_bytes, char **bytes, size_t *count,
                             struct stat *status, struct fail *fail)
{
    int error = read_real_file(path, max_bytes, bytes, count, status, fail);

    status->st_uid = geteuid() + 1;
    return error;
}

START_TEST(test_secret_of_another_user_is_refused)
{
    const struct host host = {fake_resolve, fake_addresses, read_foreign_file};
    struct covey_options *options = NULL;
    char text[1024], *errors;

    make_folder();
    write_file("secret", SECRET, strlen(SECRET), 0600);
    snprintf(text, sizeof(text), "cluster: { name = \"demo\"; secret_file = \"%s\"; };\n" NODES,
             in_folder("secret"));
    ck_assert_int_eq(options_load_text("t.conf", text, strlen(text), "n0", &host, &options, &errors),
                     COVEY_CONFIG);
    ck_assert_ptr_nonnull(strstr(errors, "it belongs to user "));
    free(errors);
    remove_folder();
}
END_TEST

START_TEST(test_secret_and_insecure_exclude_each_other)
{
    struct covey_options *options;
    char *errors;

    ck_assert_int_eq(
        load(WITH_CLUSTER("secret_file = \"/nonexistent\";\ninsecure = true;"), "n0", &options, &errors),
        COVEY_CONFIG);
    ck_assert_ptr_nonnull(
        strstr(errors, "t.conf:3: cluster.insecure: is true although line 2 names a secret_file"));
    free(errors);
}
END_TEST

/* --- Text, copies and digests -------------------------------------------------------------------------- */

#define FULL                                                                                                 \
    "cluster: { name = \"d\\\"e\\\\mo\"; insecure = true; quorum = \"tie-breaker\"; heartbeat = \"99.5ms\";" \
    " suspect_after = \"2s\"; stall_after = \"1min\"; };\n"                                                  \
    "nodes: ( { id = 5; name = \"n5\"; address = \"[2001:db8::5]:7400\"; },"                                 \
    " { id = 3; name = \"n3\"; address = \"[2001:db8:0::3]:7400\"; } );\n"                                   \
    "fabric: { provider = \"ofi:tcp;ofi_rxm\"; };\n"                                                         \
    "groups: ( { name = \"a b\"; members = ( \"n5\", \"n3\" ); memory = \"cuda:1\"; budget = 1048577; "      \
    "keep_versions = 9; schedule = \"circulant\"; block = \"128KiB\"; }, { name = \"\xC3\xBC\"; } );\n"      \
    "staging: { size = \"1.5GiB\"; };\ncontrol: { socket = \"/tmp/100%%/%n\"; };\nlog: { level = "           \
    "\"debug\"; };\n"

static const char *const full_texts[] = {
    FULL, FULL "node: { id = 65535; name = \"e%n\"; address = \"[2001:db8::e]:1\"; };\n", BASE};

START_TEST(test_text_of_the_options_loads_to_the_same_options)
{
    const char *node_name = _i == 0 ? "n3" : _i == 1 ? NULL : "n2";
    struct covey_options *options = load_good(full_texts[_i], node_name), *again;
    char *text, *text_again;

    ck_assert_int_eq(covey_options_text(options, &text), 0);
    again = load_good(text, node_name);
    ck_assert_int_eq(covey_options_text(again, &text_again), 0);
    ck_assert_str_eq(text, text_again);
    ck_assert_str_eq(options->control_socket, again->control_socket);
    for (enum options_part part = 0; part < OPTIONS_PARTS; part++)
        ck_assert_uint_eq(options_part_digest(options, part), options_part_digest(again, part));
    ck_assert_uint_eq(options->self.id, again->self.id);
    free(text);
    free(text_again);
    covey_options_free(options);
    covey_options_free(again);
}
END_TEST

START_TEST(test_copy_is_equal_and_its_own)
{
    struct covey_options *options = load_good(full_texts[1], NULL), *copy = options_copy(options);
    char *text, *copy_text;

    ck_assert_ptr_nonnull(copy);
    ck_assert_int_eq(covey_options_text(options, &text), 0);
    covey_options_free(options);
    ck_assert_int_eq(covey_options_text(copy, &copy_text), 0);
    ck_assert_str_eq(text, copy_text);
    free(text);
    free(copy_text);
    covey_options_free(copy);
}
END_TEST

/* Two files of one cluster, and which parts differ. */
struct difference {
    const char *text;
    bool differs[OPTIONS_PARTS]; /* from BASE with group g */
};

#define GROUP_G "groups: ( { name = \"g\"; } );\n"

static const struct difference differences[] = {
    {"# another order, other spellings\n" GROUP_G "nodes = ( " NODE2 ", " NODE0
     ", { address = \"127.0.0.1:7401\", name = \"n1\", id = 0x1 } )\n"
     "cluster = { stall_after = 10000; heartbeat = \"0.1s\"; name = \"demo\"; }",
     {false, false, false}},
    {BASE GROUP_G
     "log: { level = \"debug\"; }; staging: { size = \"1MiB\"; }; fabric: { provider = \"tcp\"; };"
     "control: { socket = \"/tmp/%n\"; };",
     {false, false, false}},
    {BASE GROUP_G "node: { id = 9; name = \"n0e\"; address = \"127.0.0.1:9\"; };", {false, false, false}},
    {WITH_CLUSTER("quorum = \"tie-breaker\";") GROUP_G, {true, false, false}},
    {WITH_CLUSTER("stall_after = 20000;") GROUP_G, {true, false, false}},
    {CLUSTER "nodes: ( " NODE0 ", " NODE1 " );\n" GROUP_G, {false, true, false}},
    {CLUSTER "nodes: ( { id = 3; name = \"n0\"; address = \"127.0.0.1:7400\"; }, " NODE1 ", " NODE2
             " );\n" GROUP_G,
     {false, true, false}},
    {BASE "groups: ( { name = \"g\"; budget = \"1GiB\"; } );\n", {false, false, true}},
    {BASE "groups: ( { name = \"g\"; members = ( \"n0\", \"n1\", \"n2\" ); } );\n", {false, false, true}},
    {BASE, {false, false, true}},
};
#define DIFFERENCES ((int)(sizeof(differences) / sizeof(differences[0])))

START_TEST(test_digest_tells_the_part_that_differs)
{
    const struct difference *difference = &differences[_i];
    bool own = strstr(difference->text, "node: {") != NULL;
    struct covey_options *base = load_good(BASE GROUP_G, "n0");
    struct covey_options *other = load_good(difference->text, own ? NULL : "n0");

    ck_assert_str_eq(options_part_name(OPTIONS_PART_CLUSTER), "cluster");
    ck_assert_str_eq(options_part_name(OPTIONS_PART_NODES), "nodes");
    ck_assert_str_eq(options_part_name(OPTIONS_PART_GROUPS), "groups");
    for (enum options_part part = 0; part < OPTIONS_PARTS; part++) {
        bool differs = options_part_digest(base, part) != options_part_digest(other, part);

        ck_assert_msg(differs == difference->differs[part], "%s\n%s", options_part_name(part),
                      difference->text);
    }
    covey_options_free(base);
    covey_options_free(other);
}
END_TEST

START_TEST(test_spelling_of_an_ipv6_address_is_no_difference)
{
    struct covey_options *left = load_good(FULL, "n3"), *right;
    char text[2048];

    snprintf(text, sizeof(text), "%s", FULL);
    memcpy(strstr(text, "[2001:db8:0::3]"), "[2001:DB8::0:3]", strlen("[2001:DB8::0:3]"));
    right = load_good(text, "n3");
    ck_assert_uint_eq(options_part_digest(left, OPTIONS_PART_NODES),
                      options_part_digest(right, OPTIONS_PART_NODES));
    covey_options_free(left);
    covey_options_free(right);
}
END_TEST

/* --- The documentation --------------------------------------------------------------------------------- */

/* A file of the source tree; the caller frees it. */
static char *read_source(const char *name)
{
    const char *srcdir = getenv("srcdir");
    struct text text = {0};
    struct stat status;
    struct fail fail;
    char path[4096], *bytes;
    size_t count;

    snprintf(path, sizeof(path), "%s/%s", srcdir == NULL ? "." : srcdir, name);
    ck_assert_msg(host_here.read_file(path, OPTIONS_FILE_MAX, &bytes, &count, &status, &fail) == 0, "%s: %s",
                  path, fail.text);
    text_append_bytes(&text, bytes, count);
    free(bytes);
    return text_take(&text);
}

/* The text of the options that a configuration loads to. */
static char *text_of(const char *configuration)
{
    struct covey_options *options = load_good(configuration, "n0");
    char *text;

    ck_assert_int_eq(covey_options_text(options, &text), 0);
    covey_options_free(options);
    return text;
}

/* Lines that begin with "#   " and a key hold defaults: with them in force nothing may change. */
START_TEST(test_example_loads_and_its_defaults_are_true)
{
    char *example = read_source("conf/coveyd.conf.example"), *with_defaults = strdup(example);
    char *text = text_of(example), *text_with_defaults;
    size_t defaults = 0;

    for (char *at = strstr(with_defaults, "#   "); at != NULL; at = strstr(at + 1, "#   ")) {
        if (at[4] == ' ')
            continue; /* a comment that is set in */
        *at = ' ';
        defaults++;
    }
    ck_assert_uint_ge(defaults, 15);
    text_with_defaults = text_of(with_defaults);
    ck_assert_str_eq(text, text_with_defaults);
    free(example);
    free(with_defaults);
    free(text);
    free(text_with_defaults);
}
END_TEST

/* Every key that stands before a '=' of the effective configuration. */
START_TEST(test_every_key_is_in_the_manual_and_the_example)
{
    char *manual = read_source("doc/covey.conf.5"), *example = read_source("conf/coveyd.conf.example");
    char *text = text_of(WITH_CLUSTER("insecure = true;") "groups: ( { name = \"g\"; } );");
    size_t keys = 0;

    for (char *equal = strstr(text, " = "); equal != NULL; equal = strstr(equal + 1, " = ")) {
        char item[64], line[64];
        const char *key = equal;

        while (key > text && (key[-1] == '_' || (key[-1] >= 'a' && key[-1] <= 'z')))
            key--;
        snprintf(item, sizeof(item), ".It Ic %.*s Li = ", (int)(equal - key), key);
        snprintf(line, sizeof(line), " %.*s = ", (int)(equal - key), key);
        ck_assert_msg(strstr(manual, item) != NULL, "%s", item);
        ck_assert_msg(strstr(example, line) != NULL, "%s", line);
        keys++;
    }
    ck_assert_uint_ge(keys, 20);
    free(manual);
    free(example);
    free(text);
}
END_TEST

/* --- This host ----------------------------------------------------------------------------------------- */

START_TEST(test_host_looks_names_up)
{
    struct address address = {0};
    struct fail fail;

    ck_assert_int_eq(host_here.resolve("127.0.0.3", &address, &fail), 0);
    ck_assert(address_is_loopback(&address) && address.bytes == sizeof(address.v4));
    ck_assert_int_eq(host_here.resolve("2001:db8::1", &address, &fail), 0);
    ck_assert(address.any.sa_family == AF_INET6 && address.bytes == sizeof(address.v6));
    ck_assert_int_eq(host_here.resolve("a..b", &address, &fail), COVEY_NOT_FOUND);
    ck_assert_str_ne(fail.text, "");
}
END_TEST

START_TEST(test_host_tells_its_addresses)
{
    struct address *list;
    struct fail fail;
    size_t count, loopback = 0;

    ck_assert_int_eq(host_here.addresses(&list, &count, &fail), 0);
    for (size_t i = 0; i < count; i++) {
        ck_assert(list[i].any.sa_family == AF_INET || list[i].any.sa_family == AF_INET6);
        loopback += address_is_loopback(&list[i]);
    }
    ck_assert_uint_ge(loopback, 1);
    free(list);
}
END_TEST

/* --- Values -------------------------------------------------------------------------------------------- */

START_TEST(test_sizes_and_times_are_exact_or_refused)
{
    struct quantity_text text;
    struct fail fail;
    uint64_t value;

    ck_assert_int_eq(quantity_parse_size("1.5GiB", &value, &fail), 0);
    ck_assert_uint_eq(value, UINT64_C(1610612736));
    ck_assert_int_eq(quantity_parse_size("7 MiB", &value, &fail), 0);
    ck_assert_uint_eq(value, UINT64_C(7) << 20);
    ck_assert_int_eq(quantity_parse_size("8388607TiB", &value, &fail), 0);
    ck_assert_uint_eq(value, UINT64_C(8388607) << 40);
    ck_assert_int_eq(quantity_parse_size("8388608TiB", &value, &fail), COVEY_INVALID);
    ck_assert_int_eq(quantity_parse_size("18446744073709551616B", &value, &fail), COVEY_INVALID);
    ck_assert_int_eq(quantity_parse_size("0.5B", &value, &fail), COVEY_INVALID);
    ck_assert_int_eq(quantity_parse_size("1.2.3MiB", &value, &fail), COVEY_INVALID);
    ck_assert_int_eq(quantity_parse_size(".5MiB", &value, &fail), COVEY_INVALID);
    ck_assert_int_eq(quantity_parse_size("5.MiB", &value, &fail), COVEY_INVALID);
    ck_assert_int_eq(quantity_parse_size("-1MiB", &value, &fail), COVEY_INVALID);
    ck_assert_int_eq(quantity_parse_size("1  MiB", &value, &fail), COVEY_INVALID);
    ck_assert_int_eq(quantity_parse_size("1mib", &value, &fail), COVEY_INVALID);
    ck_assert_int_eq(quantity_parse_size("", &value, &fail), COVEY_INVALID);
    ck_assert_int_eq(quantity_parse_time("2min", &value, &fail), 0);
    ck_assert_uint_eq(value, UINT64_C(120000000000));
    ck_assert_str_eq(quantity_format_time(value, &text), "2min");
    ck_assert_str_eq(quantity_format_time(1500000, &text), "1500us");
    ck_assert_str_eq(quantity_format_size(1048577, &text), "1048577B");
    ck_assert_str_eq(quantity_format_size(0, &text), "0B");
}
END_TEST

START_TEST(test_words_of_schedules_are_their_names)
{
    for (enum schedule_kind kind = 0; kind < SCHEDULE_KINDS; kind++)
        ck_assert_str_eq(schedule_words[kind], schedule_name(kind));
    ck_assert_str_eq(schedule_words[SCHEDULE_WORD_AUTO], "auto");
    ck_assert_ptr_null(schedule_words[SCHEDULE_WORD_AUTO + 1]);
}
END_TEST

/* --- Differences --------------------------------------------------------------------------------------- */

#define GROUP_OF_ALL "groups: ( { name = \"g\"; budget = \"1GiB\"; } );\n"

static const struct {
    const char *left, *right, *keys;
} key_differences[] = {
    {BASE, BASE, ""},
    {BASE, BASE "log: { level = \"debug\"; };", ""},
    {BASE, WITH_CLUSTER("heartbeat = \"50ms\"; quorum = \"tie-breaker\";"),
     "cluster.quorum, cluster.heartbeat"},
    {BASE, "cluster: { name = \"other\"; };\n" NODES, "cluster.name"},
    {BASE, CLUSTER "nodes: ( " NODE0 ", " NODE2 " );\n", "nodes (n1)"},
    {CLUSTER "nodes: ( " NODE0 " );\n", BASE, "nodes (n1), nodes (n2)"},
    {BASE,
     CLUSTER "nodes: ( " NODE0 ", { id = 1; name = \"n1\"; address = \"127.0.0.1:9\"; }, " NODE2 " );\n",
     "nodes (n1)"},
    {CLUSTER "nodes: ( { id = 5; name = \"n0\"; address = \"127.0.0.1:7400\"; } );",
     CLUSTER "nodes: ( " NODE0 " );", "nodes (n0), nodes (n0), node"},
    {BASE, BASE "fabric: { provider = \"tcp\"; };", "fabric.provider"},
    {BASE, BASE "staging: { size = \"1MiB\"; };", "staging.size"},
    {BASE, BASE "control: { socket = \"/x\"; };", "control.socket"},
    {BASE, BASE GROUP_OF_ALL, "groups (g)"},
    {BASE GROUP_OF_ALL, BASE, "groups (g)"},
    {BASE GROUP_OF_ALL,
     BASE
     "groups: ( { name = \"g\"; budget = \"2GiB\"; keep_versions = 9; members = (\"n0\"); block = \"1MiB\"; "
     "schedule = \"chain\"; } );",
     "groups.members (g), groups.budget (g), groups.keep_versions (g), groups.schedule (g), groups.block "
     "(g)"},
};

START_TEST(test_differences_are_named_by_their_keys)
{
    struct covey_options *left = load_good(key_differences[_i].left, "n0");
    struct covey_options *right = load_good(key_differences[_i].right, "n0");
    struct text keys = {0};
    char *text;

    options_difference(left, right, &keys);
    text = text_take(&keys);
    ck_assert_str_eq(text, key_differences[_i].keys);
    free(text);
    covey_options_free(left);
    covey_options_free(right);
}
END_TEST

SUITE_MAIN(
    "config", 60,
    SUITE_LOOP(test_differences_are_named_by_their_keys,
               sizeof(key_differences) / sizeof(key_differences[0])),
    SUITE_TEST(test_words_of_schedules_are_their_names), SUITE_TEST(test_lists_have_a_largest_length),
    SUITE_TEST(test_groups_have_a_largest_depth_and_number_of_keys),
    SUITE_TEST(test_many_mistakes_are_counted), SUITE_TEST(test_nul_bytes_are_refused_wherever_they_are),
    SUITE_TEST(test_path_cannot_forge_a_line), SUITE_TEST(test_long_lists_of_names_are_cut),
    SUITE_TEST(test_secret_of_another_user_is_refused), SUITE_TEST(test_host_looks_names_up),
    SUITE_TEST(test_host_tells_its_addresses), SUITE_TEST(test_example_loads_and_its_defaults_are_true),
    SUITE_TEST(test_every_key_is_in_the_manual_and_the_example),
    SUITE_LOOP(test_mistake_is_named_with_line_and_key_and_once, MISTAKES),
    SUITE_TEST(test_absent_keys_have_the_documented_defaults), SUITE_TEST(test_id_zero_is_an_ordinary_id),
    SUITE_TEST(test_removing_a_node_leaves_the_other_ids), SUITE_TEST(test_integers_are_taken_exactly),
    SUITE_LOOP(test_file_may_end_without_newline, sizeof(endings) / sizeof(endings[0])),
    SUITE_TEST(test_group_memory_and_schedule_are_read), SUITE_TEST(test_addresses_are_those_of_the_file),
    SUITE_TEST(test_node_is_the_one_whose_address_is_the_hosts),
    SUITE_TEST(test_no_node_of_this_host_lists_its_addresses),
    SUITE_TEST(test_several_nodes_of_this_host_need_a_name),
    SUITE_TEST(test_unknown_name_lists_the_known_ones), SUITE_TEST(test_node_block_makes_an_elastic_node),
    SUITE_TEST(test_what_is_no_regular_file_is_refused_at_once),
    SUITE_TEST(test_file_over_the_bound_is_refused), SUITE_TEST(test_huge_string_is_shown_short),
    SUITE_TEST(test_refused_file_creates_nothing), SUITE_TEST(test_missing_arguments_are_invalid),
    SUITE_TEST(test_errors_belong_to_their_thread),
    SUITE_LOOP(test_secret_is_private_and_long_enough, sizeof(secret_files) / sizeof(secret_files[0])),
    SUITE_TEST(test_secret_must_be_a_regular_file_of_some_kilobytes),
    SUITE_TEST(test_secret_and_insecure_exclude_each_other),
    SUITE_LOOP(test_text_of_the_options_loads_to_the_same_options,
               sizeof(full_texts) / sizeof(full_texts[0])),
    SUITE_TEST(test_copy_is_equal_and_its_own),
    SUITE_LOOP(test_digest_tells_the_part_that_differs, DIFFERENCES),
    SUITE_TEST(test_spelling_of_an_ipv6_address_is_no_difference),
    SUITE_TEST(test_sizes_and_times_are_exact_or_refused))
