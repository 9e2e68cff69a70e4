#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What a death in the middle of a put costs: the bytes that all members on one host put on the wire together for
# an object to 6 nodes, with a relay killed when half of them have gone, over those of an undisturbed put.
#
# ratio: the worst of those, per number of bytes. What the dead one would still have received is not in it, so
# it can be below 1; a put that starts anew makes it 1.5.

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"

nodes=6
bytes=$((1 << 20)) # of a MiB
mebibytes=$(pick 128 1024)
deaths=$(pick 2 4)

# All bytes on the loopback interface, which is this run's own.
wire() { awk '$1 == "lo:" { print $10 }' /proc/net/dev; }

# start: a new cluster whose memory has been touched.
start() {
    cluster_start
    cluster_wait 30
    cluster_covey 0 put models warm "$bench_work/object" >"$bench_work/out"
}

# put: leaves the bytes on the wire of one put in $moved.
put() {
    local before
    before=$(wire)
    cluster_covey 0 put models object "$bench_work/object" >"$bench_work/out"
    moved=$(($(wire) - before))
}

# kill_at RANK BYTES: node RANK dies when so much has gone over the wire from now on.
kill_at() {
    local from
    from=$(wire)
    until (($(wire) - from >= $2)); do :; done
    kill -KILL "${cluster_pids[$1]}"
}

# disturbed RANK: the same with a death at half; every survivor must have what was put.
disturbed() {
    local killer i
    disown "${cluster_pids[$1]}" # the shell has nothing to say about its end
    kill_at "$1" $((undisturbed / 2)) &
    killer=$!
    put
    wait $killer
    for ((i = 0; i < nodes; i++)); do
        ((i != $1)) || continue
        cluster_covey $i get models object -f -o "$bench_work/back" >"$bench_work/out"
        cmp -s "$bench_work/object" "$bench_work/back" || { echo "node n$i has other bytes" >&2; exit 1; }
    done
    cluster_kill
}

mapfile -t addresses < <(loopback_addresses $nodes)
cluster_keep=1
cluster_define "$bench_work" "${addresses[@]}"
head -c $((mebibytes * bytes)) /dev/urandom >"$bench_work/object"
start
put
undisturbed=$moved
cluster_kill
worst=0
printf '%d MiB to %d nodes over loopback; bytes on the wire over those of an undisturbed put\n' "$mebibytes" $nodes
printf '%-12s %8d MiB\n' undisturbed $((undisturbed >> 20))
for ((victim = 1; victim <= deaths; victim++)); do
    start
    disturbed $victim
    ratio=$(calculate "$moved / $undisturbed")
    printf '%-12s %8d MiB  %6.3f\n' "n$victim killed" $((moved >> 20)) "$ratio"
    if less "$worst" "$ratio"; then worst=$ratio; fi
done
printf 'ratio %.3f\n' "$worst"
