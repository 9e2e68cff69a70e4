# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# A cluster of coveyd processes from one configuration, for scripts: source it.
#
#   cluster_build                   compile what is needed; sets coveyd and covey
#   cluster_define FOLDER ADDRESS...   writes FOLDER/covey.conf with nodes n0, n1, ... and one group, "models"
#   cluster_addresses N             loopback addresses that are free, one a line
#   cluster_start                   starts every node, as "${cluster_wrapper[@]} I coveyd ..." if that is set
#   cluster_wait SECONDS            until every node says that the cluster is quorate
#   cluster_covey I ARGUMENT...     the covey command, talking to node I
#   cluster_cpu                     processor seconds of all nodes so far
#   cluster_memory FIELD            of each node, in bytes: VmHWM, VmRSS (proc(5))
#   cluster_stop                    ends every node politely; fails if one did not end well
#   cluster_kill                    ends them at once
#
# Each node's log is FOLDER/NAME.log and its control socket FOLDER/NAME.sock.

cluster_top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
cluster_folder=
cluster_size=0
cluster_pids=()
cluster_wrapper=()

# COVEY_BUILD names a build folder to take the programs from, as they are.
cluster_build() {
    local folder=${COVEY_BUILD:-}
    if [[ -z $folder ]]; then
        "$cluster_top/scripts/install-deps" build || return 1
        folder=$("$cluster_top/scripts/plain_path" "$cluster_top")/build-release || return 1
        cluster_compile "$folder" || return 1
    fi
    coveyd=$folder/coveyd
    covey=$folder/covey
    [[ -x $coveyd && -x $covey ]] || { echo "there are no coveyd and covey in $folder" >&2; return 1; }
}

cluster_compile() { # cluster_compile FOLDER
    [[ -x $cluster_top/configure ]] || (cd "${1%/*}" && autoreconf -i) || return 1
    mkdir -p "$1"
    (
        cd "$1" || exit 1
        [[ -e config.status ]] || ../configure -q || exit 1
        make -s -j "$(nproc)"
    )
}

# Set before if need be: $cluster_name ("test"), $cluster_budget ("8GiB"), $cluster_keep (1 version), $cluster_suspect_after (5s).
cluster_define() {
    local folder=$1 address separator="" i=0
    shift
    cluster_folder=$folder cluster_size=$#
    (umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$folder/secret")
    {
        # All members share this machine: one may wait seconds for a processor, or for memory touched the first time.
        echo "cluster: { name = \"${cluster_name:-test}\"; secret_file = \"$folder/secret\"; suspect_after = \"${cluster_suspect_after:-5s}\"; };"
        echo "nodes: ("
        for address; do
            printf '%s    { id = %d; name = "n%d"; address = "%s"; }' "$separator" $i $i "$address"
            separator=$',\n'
            ((i += 1))
        done
        printf '\n);\n'
        echo "groups: ( { name = \"models\"; members = \"all\"; memory = \"host\";"
        echo "            budget = \"${cluster_budget:-8GiB}\"; keep_versions = ${cluster_keep:-1}; } );"
        echo "control: { socket = \"$folder/%n.sock\"; };"
    } >"$folder/covey.conf"
}

# cluster_addresses N: loopback addresses at which nobody listens, one a line. Each is of its own in 127.0.0.0/8,
# with a port below those that the kernel gives to clients.
cluster_addresses() {
    local network i
    network=127.$((RANDOM % 250 + 2)).$((RANDOM % 250 + 2))
    for ((i = 1; i <= $1; i++)); do
        if (: <>"/dev/tcp/$network.$i/7400") 2>/dev/null; then
            cluster_addresses "$1" # somebody answers: look elsewhere
            return
        fi
    done
    for ((i = 1; i <= $1; i++)); do echo "$network.$i:7400"; done
}

cluster_start() {
    local i
    cluster_pids=()
    for ((i = 0; i < cluster_size; i++)); do
        cluster_node $i </dev/null >"$cluster_folder/n$i.log" 2>&1 &
        cluster_pids+=($!)
    done
}

cluster_node() { # cluster_node I: becomes node I
    local wrapper=()
    ((${#cluster_wrapper[@]} == 0)) || wrapper=("${cluster_wrapper[@]}" "$1")
    exec "${wrapper[@]}" "$coveyd" -c "$cluster_folder/covey.conf" -n "n$1"
}

cluster_covey() { # cluster_covey I ARGUMENT...
    local i=$1
    shift
    "$covey" -s "$cluster_folder/n$i.sock" "$@"
}

cluster_is_whole() { # cluster_is_whole I: node I runs in a view of all
    cluster_covey "$1" --json view 2>/dev/null | grep -q "\"state\":\"running\".*\"size\":$cluster_size,"
}

cluster_wait() { # cluster_wait SECONDS
    local i end=$((SECONDS + $1))
    for ((i = 0; i < cluster_size; i++)); do
        until cluster_is_whole $i; do
            if ! kill -0 "${cluster_pids[i]}" 2>/dev/null; then
                echo "node n$i ended:" >&2
                tail -n 5 "$cluster_folder/n$i.log" >&2
                return 1
            fi
            if ((SECONDS >= end)); then
                echo "no view of all after $1 s; node n$i says:" >&2
                tail -n 5 "$cluster_folder/n$i.log" >&2
                return 1
            fi
            sleep 0.05
        done
    done
}

cluster_cpu() { # user and system time of all their threads, those that ended too
    local pid
    for pid in "${cluster_pids[@]}"; do
        cat "/proc/$pid/stat"
    done | awk -v tick="$(getconf CLK_TCK)" '{ sum += $14 + $15 } END { printf "%.2f\n", sum / tick }'
}

cluster_memory() { # cluster_memory FIELD
    local pid
    for pid in "${cluster_pids[@]}"; do
        awk -v field="$1:" '$1 == field { printf "%.0f\n", $2 * 1024 }' "/proc/$pid/status"
    done
}

cluster_stop() {
    local pid status=0
    ((${#cluster_pids[@]})) || return 0
    kill -TERM "${cluster_pids[@]}" 2>/dev/null || true
    for pid in "${cluster_pids[@]}"; do
        wait "$pid" || status=1
    done
    cluster_pids=()
    return $status
}

cluster_kill() {
    ((${#cluster_pids[@]})) || return 0
    kill -KILL "${cluster_pids[@]}" 2>/dev/null || true
    { wait "${cluster_pids[@]}"; } 2>/dev/null || true
    cluster_pids=()
}
