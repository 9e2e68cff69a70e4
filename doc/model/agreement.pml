/* SPDX-License-Identifier: BSD-3-Clause */
/* The agreement on the view after one view, as src/core/agreement.c does it, for spin (scripts/model).
 *
 * N acceptors share a table; each writes its own row. Rows arrive late and one by one: a leader notes each promise
 * in a step of its own, together with what that row accepted and received at that moment, and may act on it much
 * later. That somebody accepted a ballot stays true, so to count such facts late is the same as to count them at
 * once and decide late.
 *
 * The model is freer than the code: anyone may lead at any time (the code leads by suspicion, for liveness only),
 * and a leader may leave out anybody. A node that crashed is one that takes no further step; since no step is ever
 * due, every history with crashes is among those that are searched. BALLOTS bounds how often leaders start, LEADERS
 * who may lead; with KEEP_ALL a leader leaves out only those that have not promised.
 *
 * A value is kept members << 1 | trim. Each node may receive one message until its first promise; who has not
 * decided may deliver it once everyone has it.
 *
 * What must hold: nobody decides differently; nobody, kept or left out, delivers past the trim; and everyone kept
 * has what the trim says.
 *
 * With one of LOWER, FORGET, FEWER, ANY_TRIM, NO_WEDGE, NO_WAIT defined a rule is missing, and spin must find it. */

#ifndef N
#define N 3
#endif
#ifndef BALLOTS
#define BALLOTS 2
#endif
#ifndef LEADERS
#define LEADERS N
#endif
#ifdef FEWER
#define MAJORITY (N / 2)
#else
#define MAJORITY (N / 2 + 1)
#endif
#define ALL        ((1 << N) - 1)
#define BIT(i)     (1 << (i))
#define OWNER(b)   (((b) - 1) % N)
#define COUNT(set) (((set) & 1) + ((set) >> 1 & 1) + ((set) >> 2 & 1) + ((set) >> 3 & 1))

/* The table, by row. */
byte promised[N];
byte accepted_ballot[N];
byte accepted_value[N];
byte received;  /* set of nodes that have the message */
bool delivered; /* by anybody */

/* What each leader noted of other rows. */
byte ballot[N];
byte promises[N];
byte shown_ballot[N];
byte shown_value[N];
byte shown_received[N];
bool proposed[N];

byte voters[N * BALLOTS + 1]; /* by ballot: set of nodes that ever accepted it */
byte ballots_taken;
byte chosen;  /* what somebody decided; 0: nothing yet */
byte decided; /* set of nodes */

inline accept(i, b, v)
{
    accepted_ballot[i] = b;
    accepted_value[i] = v;
    voters[b] = voters[b] | BIT(i)
}

inline decide(i)
{
    assert(chosen == 0 || chosen == accepted_value[i]);
    chosen = accepted_value[i];
    decided = decided | BIT(i);
    assert(!delivered || (chosen & 1));
    assert((chosen & 1) == 0 || (chosen >> 1 & received) == chosen >> 1)
}

/* "If any shows an accepted value, propose the one with the highest ballot. Otherwise compute one": of any of
 * those that have promised, with the least that any of them received. */
inline propose(i, kept)
{
    if
#ifndef FORGET
    :: shown_ballot[i] != 0 ->
        accept(i, ballot[i], shown_value[i])
    :: else ->
#else
    :: true ->
#endif
#ifdef ANY_TRIM
        accept(i, ballot[i], (kept << 1) | ((shown_received[i] & kept) != 0))
#else
        accept(i, ballot[i], (kept << 1) | ((shown_received[i] & kept) == kept))
#endif
    fi;
    proposed[i] = true
}

proctype node(byte i)
{
    byte other = 0;
    byte kept = 0;

end:
    do
    /* receive, until wedged */
#ifdef NO_WEDGE
    :: atomic { (received & BIT(i)) == 0 && (decided & BIT(i)) == 0 -> received = received | BIT(i) }
#else
    :: atomic { (received & BIT(i)) == 0 && promised[i] == 0 -> received = received | BIT(i) }
#endif
    /* deliver what everyone has */
    :: atomic { received == ALL && !delivered && (decided & BIT(i)) == 0 ->
            delivered = true;
            assert(chosen == 0 || (chosen & 1)) }
    /* prepare: a ballot above every one that this node has seen */
    :: atomic { ballots_taken < BALLOTS && i < LEADERS && (decided & BIT(i)) == 0 ->
            ballots_taken++;
            ballot[i] = (promised[i] / N + (promised[i] % N > i -> 1 : 0)) * N + i + 1;
            if
            :: ballot[i] <= promised[i] -> ballot[i] = ballot[i] + N
            :: else
            fi;
            promised[i] = ballot[i];
            promises[i] = BIT(i);
            shown_ballot[i] = accepted_ballot[i];
            shown_value[i] = accepted_value[i];
            shown_received[i] = received & BIT(i);
            proposed[i] = false }
    /* look at one other row */
    :: atomic {
            other = 0;
            do
            :: other < N - 1 -> other++
            :: break
            od;
            if
            /* promise the highest ballot that a leader shows */
            :: promised[other] > promised[i] && OWNER(promised[other]) == other && (decided & BIT(i)) == 0 ->
                promised[i] = promised[other]
            /* accept what a leader proposes, unless a higher ballot is promised */
            :: accepted_ballot[other] != 0 && OWNER(accepted_ballot[other]) == other &&
#ifdef LOWER
               accepted_ballot[other] != accepted_ballot[i] &&
#else
               accepted_ballot[other] >= promised[i] && accepted_ballot[other] > accepted_ballot[i] &&
#endif
               (decided & BIT(i)) == 0 ->
                if
                :: accepted_ballot[other] > promised[i] -> promised[i] = accepted_ballot[other]
                :: else
                fi;
                accept(i, accepted_ballot[other], accepted_value[other])
            /* note a promise, and what was accepted and received before it */
            :: ballot[i] != 0 && !proposed[i] && promised[other] == ballot[i] && (promises[i] & BIT(other)) == 0 ->
                promises[i] = promises[i] | BIT(other);
                shown_received[i] = shown_received[i] | (received & BIT(other));
                if
                :: accepted_ballot[other] > shown_ballot[i] ->
                    shown_ballot[i] = accepted_ballot[other];
                    shown_value[i] = accepted_value[other]
                :: else
                fi
            :: else
            fi;
            other = 0 }
    /* propose */
    :: atomic { ballot[i] != 0 && promised[i] == ballot[i] && !proposed[i] && COUNT(promises[i]) >= MAJORITY ->
            kept = 0;
#ifndef KEEP_ALL
            do
            :: kept < ALL -> kept++
            :: break
            od;
#endif
#ifdef NO_WAIT
            kept = (kept == 0 -> ALL : kept);
#else
            kept = ((kept & promises[i]) == 0 -> promises[i] : kept & promises[i]);
#endif
            propose(i, kept);
            kept = 0 }
    /* decide */
    :: atomic { accepted_ballot[i] != 0 && COUNT(voters[accepted_ballot[i]]) >= MAJORITY && (decided & BIT(i)) == 0 -> decide(i) }
    od
}

init
{
    byte i = 0;

    atomic {
        do
        :: i < N -> run node(i); i++
        :: else -> break
        od
    }
}
