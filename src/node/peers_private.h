/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NODE_PEERS_PRIVATE_H
#define NODE_PEERS_PRIVATE_H

/* What the files of peers share.
 *
 *      peers.c        the list of peers, what is wrong with each, opening and closing
 *      peers_dial.c   who dials whom, and when again
 *      peers_accept.c the listener, who is let in, two connections of one id
 *      peers_conn.c   one TCP connection: bytes, time, the end
 *      peers_links.c  its two fabric links: up and down
 *
 * The life of a connection:
 *
 *                    dialed          accepted
 *                       |                |
 *                  CONNECTING            |
 *                       |                |        refused, or garbage
 *                       +--> HANDSHAKE <-+ -----------------------------> LINGER (what was sent arrives)
 *                            |       |  an older connection of the peer      |
 *                            |       +-----------------> PARKED              |
 *                            |  both accept                |  it has ended   |
 *                            v  <--------------------------+                 |
 *                         LINKING  the dialer makes the links                |
 *                            |     both lanes up, at both ends               |
 *                            v                                               |
 *                            UP                                              |
 *                            |     the end of anything                       |
 *                            v                                               v
 *                         CLOSING: until both links are down -------> CLOSED: its handles close, it is freed
 *
 * After the handshake a connection carries single bytes, enum signal. LINKED says that both lanes are up at
 * the sender. A node that has both lanes up and got LINKED is up: it may use the links. What it sends on them
 * may be at the peer before its own LINKED is there; so a node with both lanes up that has sent LINKED takes
 * any event of the links as LINKED. No event of a link can come earlier, and none is lost. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/rng.h"
#include "node/peers.h"
#include "wire/handshake.h"

#define PEERS_HALF_OPEN_MAX    64 /* accepted connections that have proved nothing */
#define PEERS_STRANGERS        8  /* complaints about connections of nobody known that are not repeated */
#define PEERS_STRANGER_HUSH_NS (UINT64_C(60) * 1000 * 1000 * 1000)

enum signal { SIGNAL_LINKED = 1, SIGNAL_PROBE, SIGNAL_ALIVE };

enum conn_state {
    CONN_CONNECTING,
    CONN_HANDSHAKE,
    CONN_PARKED,
    CONN_LINKING,
    CONN_UP,
    CONN_LINGER,
    CONN_CLOSING,
    CONN_CLOSED
};

struct lane {
    struct conn *conn;
    enum fabric_lane index;
    struct fabric_link *link; /* NULL until it is made */
    bool up, down;
};

/* One TCP connection and what hangs on it. */
struct conn {
    struct peers *peers;
    struct entry *entry; /* of the peer; NULL while it is not known, or not concerned any more */
    struct conn *previous, *next;
    enum conn_state state;
    enum handshake_role role;
    bool knock; /* dialed only to see whether someone is there */
    int fd;
    struct sockaddr_storage remote;
    uint64_t since_ns;
    uv_poll_t poll;
    uv_timer_t timer; /* the deadline of the state */
    int open_handles;
    struct handshake *handshake; /* NULL once it is done */
    uint64_t incarnation;        /* of the peer, once it proved it */
    uint8_t out[HANDSHAKE_BYTES + 16];
    size_t out_bytes;
    bool heard; /* anything */
    bool linked_sent, linked_received;
    bool probing; /* parked: its predecessor was asked whether it lives */
    bool was_up;  /* `up` was called, `down` is owed */
    bool muted;   /* its owner has ended it: no more events */
    struct lane lanes[FABRIC_LANES];
    struct fail end; /* CLOSING: why */
};

/* A peer, and what to do about it. */
struct entry {
    struct peer peer; /* first: struct peer * is struct entry * */
    struct peers *peers;
    struct conn *current;   /* dialed, or accepted: the one that is or becomes the peer */
    struct conn *successor; /* parked until `current` has ended */
    struct conn *knock;
    bool wanted; /* it is, or may become, a member: look for it */
    uv_timer_t retry;
    uint32_t backoff_ms;
    uint64_t up_since_ns;
};

/* Times in ms. */
struct peers_timing {
    uint32_t connect, handshake, probe, link, linger;
    uint32_t backoff_min, backoff_max;
    uint32_t knock;           /* between looks whether a node that should dial this one is there */
    uint32_t half_open_grace; /* a connection that proved nothing is safe from eviction for so long */
};

struct stranger {
    char text[FAIL_TEXT_MAX];
    uint64_t said_ns;
};

struct peers {
    uv_loop_t *loop;
    const struct covey_options *options;
    struct fabric *fabric;
    const struct log *log;
    const struct peers_callbacks *callbacks;
    void *context;
    struct peers_timing timing;
    struct handshake_local local;
    struct rng rng; /* jitter */
    int listener;
    uv_poll_t accept_poll;
    uv_timer_t accept_timer; /* runs while accepting is paused */
    struct entry **entries;  /* ascending ids */
    size_t count;
    struct conn *conns;
    struct stranger strangers[PEERS_STRANGERS];
    size_t open_handles;
    bool closing;
    void (*closed)(void *context);
};

/* --- peers.c -------------------------------------------------------------------------------------------- */

struct entry *entry_find(const struct peers *peers, uint32_t id);
/* Add an elastic node; NULL without memory. */
struct entry *entry_add(struct peers *peers, uint32_t id, const char *name, const char *address);
/* What an elastic node has proved to be, and where it listens. */
void entry_describe(struct entry *entry, const struct handshake_identity *peer);
/* Why the peer is not up: a text to follow its name. Logged when it differs from what was known. */
void entry_problem(struct entry *entry, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Log about a connection that belongs to nobody known; the same text once a minute. */
void peers_complain(struct peers *peers, const char *format, ...) __attribute__((format(printf, 2, 3)));
void peers_handle_opened(struct peers *peers);
void peers_handle_closed(struct peers *peers);

/* --- peers_dial.c --------------------------------------------------------------------------------------- */

/* Whether this node dials the peer, by id and whether each is in the list. */
bool dial_is_ours(const struct peers *peers, uint32_t id, bool elastic);
/* Try again, or first, after delay_ms. */
void dial_schedule(struct entry *entry, uint64_t delay_ms);
/* The peer has no connection any more. */
void dial_again(struct entry *entry);
/* The connection is made, or was refused. */
void dial_connected(struct conn *conn);
void dial_timed_out(struct conn *conn);

/* --- peers_accept.c ------------------------------------------------------------------------------------- */

/* 0, or a negated errno. */
int accept_open(struct peers *peers);
void accept_close(struct peers *peers);
/* A connection is half open no more: there may be room for one that waits. */
void accept_resume(struct peers *peers);
/* Whether the peer is one of the list, or an elastic node that may be (struct handshake_local). */
int accept_admit(void *context, const struct handshake_identity *peer, struct fail *fail);
/* The peer has proved who it is: take it, park it, or refuse it. */
void accept_judge(struct conn *conn);
/* The parked connection's predecessor has ended / lives / did not answer in time. */
void accept_successor(struct conn *conn);
void accept_alive(struct conn *predecessor);
void accept_parked_too_long(struct conn *conn);
/* Tell the operator why an accepted connection came to nothing: text follows the peer's name. */
void accept_report(struct conn *conn, int code, const char *text);

/* --- peers_conn.c --------------------------------------------------------------------------------------- */

/* Take over fd; NULL without memory (fd is closed then). */
struct conn *conn_new(struct peers *peers, int fd, enum handshake_role role, enum conn_state state);
void conn_begin_handshake(struct conn *conn, uint32_t expected_id);
bool conn_is_half_open(const struct conn *conn);
void conn_set_state(struct conn *conn, enum conn_state state, uint64_t deadline_ms);
/* After the handshake's state may have changed: judge, send, go on. */
void conn_progress(struct conn *conn);
void conn_signal(struct conn *conn, enum signal signal);
/* The end: links are closed, then `down` is called if `up` was. text follows the peer's name. */
void conn_close(struct conn *conn, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* If it is CLOSING and both links are down: call `down`, close its handles. */
void conn_finish(struct conn *conn);
/* The connection does not concern its peer any more: what waits for its end goes on. */
void conn_leave_entry(struct conn *conn);
/* Before the connection was the peer's: say why it came to nothing, and close it. text as above. */
void conn_give_up(struct conn *conn, int code, const char *text);

/* --- peers_links.c -------------------------------------------------------------------------------------- */

int links_expect(struct conn *conn, struct fail *fail);
void links_connect(struct conn *conn);
/* Whether the connection becomes up by what is known now. */
void links_check(struct conn *conn);

#endif
