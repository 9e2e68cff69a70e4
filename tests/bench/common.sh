# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034 # what is set here is used by those who source it
# What the benchmarks share: sourced by tests/bench/NAME.sh, which scripts/bench runs in a lab of its own.
#
# A measurement is a file of lines "SECONDS PROCESSOR_SECONDS ...", one a repetition. The first repetition, in which
# memory is touched for the first time, is not among them.

set -euo pipefail
export LC_ALL=C

bench_top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
# shellcheck source=tests/lib/cluster.sh
. "$bench_top/tests/lib/cluster.sh"
cluster_build
netlab=$bench_top/tests/lib/netlab
mpi_bcast=$COVEY_BENCH_BUILD/mpi_bcast
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

bench_work=$(mktemp -d "${TMPDIR:-/tmp}/covey-bench.XXXXXX")
trap 'cluster_kill; rm -rf "$bench_work"' EXIT
trap 'exit 130' INT TERM HUP

quick() { [[ $COVEY_BENCH_QUICK = 1 ]]; }

# pick QUICK FULL: whichever applies.
pick() { if quick; then echo "$1"; else echo "$2"; fi; }

# spread FILE COLUMN: minimum, median and maximum of a column.
spread() {
    awk -v column="$2" '{ print $column }' "$1" | sort -g | awk '
        { value[NR] = $1 }
        END {
            middle = NR % 2 ? value[(NR + 1) / 2] : (value[NR / 2] + value[NR / 2 + 1]) / 2
            print value[1], middle, value[NR]
        }'
}

median() { spread "$1" "${2:-1}" | cut -d' ' -f2; }

# calculate EXPRESSION: with decimals.
calculate() { awk "BEGIN { printf \"%.6g\n\", $1 }"; }

less() { awk "BEGIN { exit !($1 < $2) }"; }

mebibytes() { echo "$(($1 >> 20)) MiB"; }

# loopback_addresses N: for cluster_define, one a line.
loopback_addresses() { seq -f '127.0.0.1:%g' 7400 $((7400 + $1 - 1)); }

# --- The two sides -------------------------------------------------------------------------------------------

# mpi_run FILE N BYTES REPETITIONS MPIRUN_ARGUMENT...: MPI_Bcast by N ranks; $mpi_pause: see mpi_bcast.c.
mpi_pause=0
mpi_run() {
    local file=$1 n=$2 bytes=$3 repetitions=$4
    shift 4
    if ! timeout 600 mpirun -np "$n" --mca btl tcp,self --mca mpi_yield_when_idle 1 --bind-to none --oversubscribe \
        "$@" "$mpi_bcast" "$bytes" $((repetitions + 1)) $mpi_pause >"$bench_work/mpi.out" 2>"$bench_work/mpi.err"; then
        cat "$bench_work/mpi.err" >&2
        return 1
    fi
    tail -n +2 "$bench_work/mpi.out" >"$file"
}

# mpi_run over the loopback interface of this network.
mpi_run_loopback() {
    mpi_run "$@" --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo
}

# mpi_algorithm NUMBER SEGMENT: arguments that make Open MPI broadcast so.
mpi_algorithm() {
    echo --mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_bcast_algorithm "$1" \
        --mca coll_tuned_bcast_algorithm_segmentsize "$2"
}

mpi_algorithm_name() {
    local names=(default linear chain pipeline split-binary binary binomial knomial scatter-allgather scatter-ring)
    if (($2)); then echo "MPI_Bcast ${names[$1]} $(($2 >> 10)) KiB"; else echo "MPI_Bcast ${names[$1]}"; fi
}

# covey_bench FILE BYTES COUNT: that many puts by node 0 of the running cluster, after one to warm up. Leaves their
# seconds in FILE, and sets covey_how to the schedule and block size that they used, covey_cpu to the processor
# time of all nodes.
covey_bench() {
    local before after json=$bench_work/covey.json
    before=$(cluster_cpu)
    cluster_covey 0 --json bench models --bytes "$2" --count "$3" >"$json"
    after=$(cluster_cpu)
    covey_cpu=$(calculate "$after - $before")
    jq -r '.puts[] | select(.warm_up != true) | .seconds' "$json" >"$1"
    covey_how=$(jq -r '.puts[-1] | "covey \(.schedule) \(.block_bytes / 1024) KiB"' "$json")
}

# covey_warm BYTES: touches the memory that later puts of this size use, on every member of a new cluster.
covey_warm() { covey_bench "$bench_work/covey.warm" "$1" 1; }

# covey_calibrate BYTES: what a run costs besides all but one of its puts, to be left out by covey_run.
covey_calibrate() {
    covey_bench "$bench_work/covey.once" "$1" 1
    covey_besides=$covey_cpu
}
covey_besides=""

# covey_run FILE BYTES COUNT: the measurement.
covey_run() {
    local each
    covey_bench "$1.seconds" "$2" "$3"
    if [[ -n $covey_besides ]]; then
        each=$(calculate "($covey_cpu - $covey_besides) / ($3 - 1)")
    else
        each=$(calculate "$covey_cpu / ($3 + 1)")
    fi
    awk -v cpu="$each" '{ print $1, cpu }' "$1.seconds" >"$1"
}
