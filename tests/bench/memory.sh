#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Peak memory (VmHWM) of the members of a fresh cluster that replicates one file of S bytes, beside the ranks of
# MPI_Bcast; and what 100 more puts add to a member that has done some.
#
# ratio: the worst member's (peak - 64 MiB) / S.

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"

n=3
bytes=$(pick $((256 << 20)) $((1 << 30)))
repetitions=$(pick 2 3)
small=$((16 << 20))
mapfile -t addresses < <(loopback_addresses $n)

row() { # row WHAT FILE: a file of bytes, one a line
    local least middle most
    read -r least middle most <<<"$(spread "$2" 1)"
    printf '%-28s %9.1f %9.1f %9.1f   %6.3f\n' "$1" "$(calculate "$least / 1048576")" \
        "$(calculate "$middle / 1048576")" "$(calculate "$most / 1048576")" \
        "$(calculate "($most - (64 * 1048576)) / $bytes")"
}

begin_cluster() {
    cluster_define "$bench_work" "${addresses[@]}"
    cluster_start
    cluster_wait 30
}

head -c "$bytes" /dev/urandom >"$bench_work/object"
for ((i = 0; i < repetitions; i++)); do
    begin_cluster
    cluster_covey 0 put models object "$bench_work/object" >/dev/null
    cluster_memory VmHWM >"$bench_work/peak"
    head -n 1 "$bench_work/peak" >>"$bench_work/root"
    tail -n +2 "$bench_work/peak" >>"$bench_work/receivers"
    cluster_stop
done
mpi_run_loopback "$bench_work/mpi" $n "$bytes" 1
cut -d' ' -f3 "$bench_work/mpi" >"$bench_work/ranks"

printf 'one object of %s to %d members; peak memory in MiB\n' "$(mebibytes "$bytes")" $n
printf '%-28s %9s %9s %9s   %6s\n' what min median max "(max - 64) / S"
row "covey, root" "$bench_work/root"
row "covey, receivers" "$bench_work/receivers"
row "MPI_Bcast, largest rank" "$bench_work/ranks"

begin_cluster
cluster_covey 0 bench models --bytes $small --count 10 >/dev/null
cluster_memory VmRSS >"$bench_work/before"
cluster_covey 0 bench models --bytes $small --count 100 >/dev/null
cluster_memory VmRSS | paste - "$bench_work/before" | awk '{ print $1 - $2 }' >"$bench_work/growth"
cluster_stop
read -r least middle most <<<"$(spread "$bench_work/growth" 1)"
printf 'growth over 100 puts of %s, KiB a member: %d %d %d (min, median, max)\n' "$(mebibytes $small)" \
    $((least / 1024)) "$(calculate "int($middle / 1024)")" $((most / 1024))
cat "$bench_work/root" "$bench_work/receivers" | sort -g | tail -n 1 |
    awk -v bytes="$bytes" '{ printf "ratio %.3f\n", ($1 - 64 * 1048576) / bytes }'
