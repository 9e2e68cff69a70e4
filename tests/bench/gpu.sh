#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Objects in the memory of this machine's GPU: first every kind of device memory to every other, then the time of a
# put between processes beside doing it by hand. The programs' heads say what is measured, and what "ratio" means.
#
# Only the two programs and the driver are needed: on a machine without a compiler run them from a folder with the
# libraries that `ldd` names.
set -euo pipefail

if [[ -e $COVEY_BUILD/Makefile ]]; then
    make -s -C "$COVEY_BUILD" tests/gpu/gpu_kinds tests/gpu/gpu_bench >&2
fi
"$COVEY_BUILD/tests/gpu/gpu_kinds"
if [[ $COVEY_BENCH_QUICK = 1 ]]; then
    exec "$COVEY_BUILD/tests/gpu/gpu_bench" --bytes $((256 << 20)) --rounds 3 --nodes 2,4
fi
exec "$COVEY_BUILD/tests/gpu/gpu_bench"
