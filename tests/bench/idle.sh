#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Processor time of the members of a cluster that has nothing to do, over 10 s, in cores; beside ranks of MPI that
# wait in MPI_Bcast.
#
# ratio: the cores that the busiest member uses.

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"

n=4
seconds=10
mapfile -t addresses < <(loopback_addresses $n)

each_cpu() { # processor seconds of each member so far, to the nanosecond
    local pid
    for pid in "${cluster_pids[@]}"; do
        cat "/proc/$pid/task/"*/schedstat | awk '{ sum += $1 } END { printf "%.9f\n", sum / 1e9 }'
    done
}

row() { # row WHAT FILE
    local least middle most
    read -r least middle most <<<"$(spread "$2" 1)"
    printf '%-28s %9.6f %9.6f %9.6f\n' "$1" "$least" "$middle" "$most"
}

cluster_define "$bench_work" "${addresses[@]}"
cluster_start
cluster_wait 30
cluster_covey 0 bench models --bytes $((1 << 20)) --count 3 >/dev/null # every link was used once
sleep 1
each_cpu >"$bench_work/before"
sleep $seconds
each_cpu | paste - "$bench_work/before" | awk -v s=$seconds '{ printf "%.7f\n", ($1 - $2) / s }' >"$bench_work/covey"
cluster_stop

# All ranks but the root wait in the call; the root sleeps.
mpi_pause=3
mpi_run_loopback "$bench_work/mpi" $n 1024 2
awk -v ranks=$((n - 1)) '{ printf "%.4f\n", $2 / $1 / ranks }' "$bench_work/mpi" >"$bench_work/ranks"

printf '%d members that have nothing to do for %d s; cores each\n' $n $seconds
printf '%-28s %9s %9s %9s\n' what min median max
row "covey" "$bench_work/covey"
row "MPI_Bcast, a waiting rank" "$bench_work/ranks"
printf 'ratio %.6f\n' "$(spread "$bench_work/covey" 1 | cut -d' ' -f3)"
