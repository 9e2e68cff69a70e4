#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Members on one host, joined by loopback TCP: GB/s to the last receiver (object bytes over time), beside
# MPI_Bcast over TCP with its default and with its best algorithm.
#
# ratio: the smallest covey / best MPI_Bcast, of medians.

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"

rounds=$(pick 2 4) # covey and its peer take turns, so that what else the machine does hits both
repetitions=$(pick 3 4)
read -r -a sizes <<<"$(pick "$((64 << 20))" "$((64 << 20)) $((256 << 20))")"
members=(2 4 8)
if (($(nproc) >= 16)); then members+=(16); fi
# Algorithm and segment of MPI_Bcast; the quick ones are those that are the best in full runs.
read -r -a candidates <<<"$(pick "0:0 1:0 6:1048576 9:0" \
    "0:0 1:0 2:131072 3:65536 3:131072 3:262144 3:1048576 5:1048576 6:1048576 7:1048576 8:0 9:0")"

row() { # row N BYTES WHAT FILE
    local slowest middle fastest cpu
    read -r fastest middle slowest <<<"$(spread "$4" 1)"
    cpu=$(median "$4" 2)
    printf '%3d %8s  %-32s %7.3f %7.3f %7.3f   %6.2f\n' "$1" "$(mebibytes "$2")" "$3" \
        "$(calculate "$2 / $slowest / 1e9")" "$(calculate "$2 / $middle / 1e9")" "$(calculate "$2 / $fastest / 1e9")" \
        "$(calculate "$cpu / ($2 * ($1 - 1) / 1e9)")"
}

peer() { # peer N BYTES ALGORITHM:SEGMENT REPETITIONS: leaves its measurement in $bench_work/peer
    local arguments=() algorithm=${3%:*} segment=${3#*:}
    ((algorithm == 0)) || read -r -a arguments <<<"$(mpi_algorithm "$algorithm" "$segment")"
    mpi_run_loopback "$bench_work/peer" "$1" "$2" "$4" "${arguments[@]}"
}

name() { mpi_algorithm_name "${1%:*}" "${1#*:}"; }

# find_best N BYTES: a short look at every candidate; sets best.
find_best() {
    local candidate found least=1e99
    for candidate in "${candidates[@]}"; do
        peer "$1" "$2" "$candidate" 3
        found=$(median "$bench_work/peer")
        if less "$found" "$least"; then least=$found best=$candidate; fi
    done
}

# compare N BYTES: the rows of the running cluster and of its peer.
compare() {
    local round
    rm -f "$bench_work"/{covey,default,best}.all
    find_best "$1" "$2"
    covey_warm "$2"
    covey_calibrate "$2"
    for ((round = 0; round < rounds; round++)); do
        covey_run "$bench_work/covey" "$2" "$repetitions"
        cat "$bench_work/covey" >>"$bench_work/covey.all"
        peer "$1" "$2" 0:0 "$repetitions"
        cat "$bench_work/peer" >>"$bench_work/default.all"
        [[ $best != 0:0 ]] || continue
        peer "$1" "$2" "$best" "$repetitions"
        cat "$bench_work/peer" >>"$bench_work/best.all"
    done
    row "$1" "$2" "$covey_how" "$bench_work/covey.all"
    row "$1" "$2" "$(name 0:0)" "$bench_work/default.all"
    if [[ $best = 0:0 ]]; then
        cp "$bench_work/default.all" "$bench_work/best.all"
    else
        row "$1" "$2" "$(name "$best")" "$bench_work/best.all"
    fi
}

printf 'loopback TCP, %s, %d cores; GB/s to the last receiver\n' \
    "$(sysctl -n net.ipv4.tcp_congestion_control)" "$(nproc)"
printf '%3s %8s  %-32s %7s %7s %7s   %6s\n' n bytes what min median max "cpu s/GB"
worst=1e99
for n in "${members[@]}"; do
    mapfile -t addresses < <(loopback_addresses "$n")
    for bytes in "${sizes[@]}"; do
        cluster_define "$bench_work" "${addresses[@]}"
        cluster_start
        cluster_wait 30
        compare "$n" "$bytes"
        cluster_stop
        ratio=$(calculate "$(median "$bench_work/best.all") / $(median "$bench_work/covey.all")")
        printf '%3d %8s  covey / best MPI_Bcast: %.2f\n' "$n" "$(mebibytes "$bytes")" "$ratio"
        if less "$ratio" "$worst"; then worst=$ratio; fi
    done
done
printf 'ratio %.3f\n' "$worst"
