#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# n hosts whose links carry 100 Mbit/s each way: the time of a 16 MiB object to all of them, over the least
# time that any method could take (its bytes over the rate of one link).
#
# ratio: the worst n's median over that floor.

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"

bytes=$((16 << 20))
floor=$(calculate "$bytes * 8 / 100e6")
repetitions=$(pick 2 7)
peer_repetitions=$(pick 2 5)

row() { # row N WHAT FILE
    local cpu times
    times=$(spread "$3" 1)
    cpu=$(median "$3" 2)
    # shellcheck disable=SC2086 # three numbers
    printf '%3d  %-32s %7.3f %7.3f %7.3f   %6.3f   %6.2f\n' "$1" "$2" $times \
        "$(calculate "$(median "$3") / $floor")" "$(calculate "$cpu / ($bytes * ($1 - 1) / 1e9)")"
}

peer() { # peer N FILE ALGORITHM SEGMENT REPETITIONS
    local arguments=()
    (($3 == 0)) || read -r -a arguments <<<"$(mpi_algorithm "$3" "$4")"
    mpi_run "$2" "$1" $bytes "$5" --host "$("$netlab" hosts)" --mca plm_rsh_agent "$netlab ssh" "${arguments[@]}"
    row "$1" "$(mpi_algorithm_name "$3" "$4")" "$2"
}

# In a lab of N hosts. Leaves "N COVEY_MEDIAN BEST_PEER_MEDIAN" in the file of results.
measure() {
    local n=$COVEY_NETLAB_HOSTS i addresses=() best
    for ((i = 0; i < n; i++)); do addresses+=("$("$netlab" addr $i):7400"); done
    cluster_define "$bench_work" "${addresses[@]}"
    cluster_wrapper=("$netlab" exec)
    cluster_start
    cluster_wait 30
    covey_warm $bytes
    covey_run "$bench_work/covey" $bytes "$repetitions"
    row "$n" "$covey_how" "$bench_work/covey"
    cluster_stop
    # mpirun starts on a host of the lab, as its processes have to reach it.
    "$netlab" exec 0 "$0" --peers >"$bench_work/peers"
    grep -v '^best ' "$bench_work/peers"
    best=$(sed -n 's/^best //p' "$bench_work/peers")
    echo "$n $(median "$bench_work/covey") $best" >>"$1"
}

peers() {
    local n=$COVEY_NETLAB_HOSTS segment best=1e99
    # The default takes 4 to 17 s here.
    if ! quick; then peer "$n" "$bench_work/default" 0 0 2; fi
    for segment in $(pick "65536" "32768 65536 131072"); do
        peer "$n" "$bench_work/pipeline" 3 "$segment" "$peer_repetitions"
        if less "$(median "$bench_work/pipeline")" "$best"; then best=$(median "$bench_work/pipeline"); fi
    done
    echo "best $best"
}

case ${1:-} in
    --peers) peers; exit ;;
    --measure) measure "$2"; exit ;;
esac

results=$bench_work/results
printf '16 MiB to every member, links of 100 Mbit/s both ways, %s; floor %.3f s\n' \
    "$("$netlab" run 1 100mbit printenv COVEY_CONGESTION)" "$floor"
printf '%3s  %-32s %7s %7s %7s   %6s   %6s\n' n what min median "max s" "/floor" "cpu s/GB"
for n in 4 6 8 16; do
    "$netlab" run $n 100mbit "$0" --measure "$results"
done
awk -v floor="$floor" '{
    over = $2 / floor; if (over > worst) worst = over
    printf "n = %-2d  covey / best MPI_Bcast: %.3f\n", $1, $2 / $3
} END { printf "ratio %.3f\n", worst }' "$results"
