#!/usr/bin/env bash
# `make demo-scaling`, in build/demo-scaling: a small model on 1, 2 and 4 single-threaded ranks, with constant work (strong
# scaling) and with work proportional to the ranks (weak scaling); then tables and a report of both.
# Usage: tools/demo_scaling.sh [BUILD-FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
folder=build/demo-scaling
description=jobs/examples/demo.toml
steps=40
batch=16

fail() {
    echo "demo-scaling: $1" >&2
    exit 1
}
heading() { printf '\n== %s\n' "$1"; }
show() {
    printf '$%s\n' "$(printf ' %q' "$@")" >&2
    "$@"
}
# A CMake cache variable of the build.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt" | head -n 1; }

for program in lockstep lockstep-analyze; do
    [[ -x $build/bin/$program ]] || fail "$build/bin/$program is not built; run make programs"
done
mpirun=$(cached MPIEXEC_EXECUTABLE)
# One core per rank; ranks that share a core must not spin while waiting.
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

# train NAME RANKS BATCH
train() {
    local log=$folder/$1.log
    mkdir -p "$folder"
    rm -rf "$folder/runs/$1" "$folder/checkpoints/$1"
    show "$mpirun" -np "$2" "$build/bin/lockstep" train "$description" --set "run.name=$1" --set "run.folder=$folder/runs" \
        --set "checkpoint.folder=$folder/checkpoints" --set checkpoint.every=0 --set "schedule.steps=$steps" --set "schedule.warmup=4" \
        --set validation.every=0 --set "batch.global=$3" >"$log" 2>&1 || fail "the run $1 failed with exit code $?; see $log"
    sed -n 's/^[0-9: -]*\(finished: .*\)/\1/p' "$log"
}

heading "Training $steps steps on 1, 2 and 4 ranks"
echo "This machine has $(env -u OMP_NUM_THREADS nproc) cores. Each run takes half a minute to a minute."
for ranks in 1 2 4; do train "strong-$ranks" "$ranks" "$batch"; done
for ranks in 2 4; do train "weak-$ranks" "$ranks" "$((batch * ranks))"; done

heading "Speedup, efficiency and their limits"
show "$build/bin/lockstep-analyze" scaling "$folder/runs"

heading "The report"
show "$build/bin/lockstep-analyze" report "$folder/runs" --out "$folder/report.html" --title "Scaling on one machine"
