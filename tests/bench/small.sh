#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Small messages between members on one host, over loopback TCP: the time from covey_send() to the last on_message, one
# message at a time, beside a TCP ping-pong of the same size in the same run (two one-way latencies, the least that an
# order takes which everybody must agree to); and messages a second, with one sender and with all.
#
# ratio: the worst median latency in units of the ping-pong's median.

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"

small=$COVEY_BUILD/tests/bench/small
latencies=$(pick 500 3000)
flood_ms=$(pick 300 2000)
worst=0

values() { awk -v what="$1" '$1 == what { print $2 }' "$bench_work/all"; } # values WHAT: of the last measurement

microseconds() { # microseconds FILE: minimum, median, maximum
    spread "$1" 1 | awk '{ printf "%9.1f %9.1f %9.1f", $1 * 1e6, $2 * 1e6, $3 * 1e6 }'
}

measure() { # measure N BYTES
    local floor ratio alone one all
    mapfile -t addresses < <(loopback_addresses "$1")
    cluster_define "$bench_work" "${addresses[@]}"
    "$small" --floor "$2" "$latencies" >"$bench_work/all"
    values floor >"$bench_work/floor"
    "$small" "$bench_work/covey.conf" "$1" "$2" "$latencies" "$flood_ms" >"$bench_work/all"
    values latency >"$bench_work/latency"
    floor=$(median "$bench_work/floor")
    ratio=$(calculate "$(median "$bench_work/latency") / $floor")
    if less "$worst" "$ratio"; then worst=$ratio; fi
    alone=$(calculate "1 / $(median "$bench_work/latency")")
    one=$(values one) all=$(values all)
    printf '%3d %6d  %s %9.1f %7.2f %10.0f %10.0f %10.0f %7.1f\n' "$1" "$2" "$(microseconds "$bench_work/latency")" \
        "$(calculate "$floor * 1e6")" "$ratio" "$alone" "$one" "$all" "$(calculate "$one / $alone")"
}

printf 'messages over loopback, %d cores; %d one at a time, then %d ms as fast as they go; us, and messages a second\n' \
    "$(nproc)" "$latencies" "$flood_ms"
printf '%3s %6s  %9s %9s %9s %9s %7s %10s %10s %10s %7s\n' n bytes min median max ping-pong ratio "at a time" one all batching
for n in 2 3 5 8; do
    for bytes in $(pick "64 4096" "64 256 1024 4096"); do measure "$n" "$bytes"; done
done
cat <<'END'
Not measured in this run, for comparison: Derecho, 100 B, one sender, quiet 16-core machine, libfabric tcp
  n = 2 56000 .. 105000 messages a second, n = 3 54000 .. 60000, n = 4 5000 .. 7000, n = 8 530 .. 580
END
printf 'ratio %.3f\n' "$worst"
