#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# How long members on one host take to the next view: after kill -9 and SIGSTOP of a member, each rank in turn, to
# on_view at the last survivor; and how long a join wedges the members.
#
# ratio: the worst median in units of its bound: 20 ms from the first suspicion to the last on_view after kill -9
# (the link breaks, no timeout is waited for), suspect_after and two heartbeats after SIGSTOP, 10 ms of wedge.

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"

viewchange=$COVEY_BUILD/tests/bench/viewchange
runs=$(pick 6 24)
stops=$(pick 3 20)
cluster_suspect_after=1s # the default, and part of the bound below

worst=0

# row N WHAT FILE COLUMN [BOUND_MS]: of a column of seconds. The bound is of the median, for the ratio.
row() {
    local least middle most ratio=""
    read -r least middle most <<<"$(spread "$3" "$4")"
    if [[ -n ${5:-} ]]; then
        ratio=$(calculate "$middle * 1000 / $5")
        if less "$worst" "$ratio"; then worst=$ratio; fi
        ratio=$(printf '%8d %6.3f' "$5" "$ratio")
    fi
    awk -v n="$1" -v what="$2" -v least="$least" -v middle="$middle" -v most="$most" -v ratio="$ratio" 'BEGIN {
        printf "%3d  %-42s %9.2f %9.2f %9.2f %s\n", n, what, least * 1000, middle * 1000, most * 1000, ratio }'
}

measure() { # measure N
    local what
    mapfile -t addresses < <(loopback_addresses "$1")
    cluster_define "$bench_work" "${addresses[@]}"
    "$viewchange" "$bench_work/covey.conf" "$1" "$runs" "$stops" >"$bench_work/all"
    for what in kill stop join; do
        awk -v what=$what '$1 == what { print $2, $3, $2 - $3 }' "$bench_work/all" >"$bench_work/$what"
    done
    row "$1" "kill -9 to the last on_view" "$bench_work/kill" 1
    row "$1" "  beyond the first suspicion" "$bench_work/kill" 3 20
    row "$1" "SIGSTOP to the last on_view" "$bench_work/stop" 1 1200
    row "$1" "join: wedge of a member" "$bench_work/join" 1 10
    row "$1" "join: process start to the last on_view" "$bench_work/join" 2
}

printf 'view changes over loopback, %d cores, heartbeat 100 ms, suspect_after 1 s; %d deaths and joins, %d stops; ms\n' \
    "$(nproc)" "$runs" "$stops"
printf '%3s  %-42s %9s %9s %9s %8s %6s\n' n what min median max bound ratio
for n in 3 5 8; do measure $n; done
cat <<'END'
Not measured in this run, for comparison:
  3  Derecho, kill -9 to the new view, 100 ms timeout    340 .. 420   (quiet 2-core machine, libfabric tcp)
     Corosync, token timeout before anything begins           3000   (its default)
END
printf 'ratio %.3f\n' "$worst"
