#!/usr/bin/env bash
# `make demo`, in build/demo: packs text, trains on 2 ranks, stops halfway, resumes, prints a sample, checks the validation
# loss, analyses. The complete training log is build/demo/train.log.
# Usage: tools/demo.sh [BUILD-FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
folder=build/demo
run=$folder/runs/demo
checkpoints=$folder/checkpoints/demo
log=$folder/train.log
description=jobs/examples/demo.toml
settings=(--set "data.train=$folder/tokens.h5" --set "run.folder=$folder/runs" --set "checkpoint.folder=$folder/checkpoints")

fail() {
    echo "demo: $1" >&2
    exit 1
}
heading() { printf '\n== %s\n' "$1"; }
show() {
    printf '$%s\n' "$(printf ' %q' "$@")" >&2
    "$@"
}
# Trains with the given options.
train() {
    show "$mpirun" -np 2 "$build/bin/lockstep" train "$description" "${settings[@]}" "$@" 2>&1 | tee -a "$log"
}
# A CMake cache variable of the build.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt" | head -n 1; }
# The last number under a key in a JSON or JSON-lines file.
last_number() { sed -n "s/.*\"$1\": *\\([-+0-9.eE][-+0-9.eE]*\\).*/\\1/p" "$2" | tail -n 1; }

for program in lockstep lockstep-analyze; do
    [[ -x $build/bin/$program ]] || fail "$build/bin/$program is not built; run make programs"
done
compiler=$(cached CMAKE_CXX_COMPILER)
mpirun=$(cached MPIEXEC_EXECUTABLE)
# Open MPI by default refuses two things that a demo in a container needs; MPICH ignores these.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

heading "Text: the compiler's C++ standard library headers"
headers=
while read -r path; do
    if [[ -z $headers && -f $path/vector && -f $path/string ]]; then headers=$(cd "$path" && pwd -P); fi
done < <(LC_ALL=C "$compiler" -E -x c++ - -v </dev/null 2>&1 >/dev/null | sed -n '/^#include </,/^End of search/p')
[[ -n $headers ]] || fail "$compiler reports no folder with the C++ standard library headers"
mkdir -p "$folder"
rm -rf "$run" "$checkpoints" "$log"
show "$build/bin/lockstep" pack --out "$folder/tokens.h5" --format json "$headers" >"$folder/pack.json" ||
    fail "packing failed"
cat "$folder/pack.json"
conditional=$(last_number conditional_entropy "$folder/pack.json")
[[ -n $conditional ]] || fail "lockstep pack did not print the conditional entropy"

steps=$(sed -n 's/^steps *= *\([0-9]*\).*/\1/p' "$description")
half=$((steps / 2))

heading "Training on 2 ranks, stopped after step $half of $steps"
code=0
train --stop-at "$half" || code=$?
[[ $code -eq 4 ]] || fail "expected exit code 4 (stopped early with a checkpoint), not $code; see $log"
echo "Exit code 4: stopped early, with a checkpoint to resume from."

heading "Resuming to the end"
train --resume auto || fail "the resumed run exited with code $?; see $log"

heading "A sample"
newest=
for file in "$checkpoints"/step-*.h5; do newest=$file; done
[[ -f $newest ]] || fail "no checkpoint found in $checkpoints"
show "$build/bin/lockstep" generate --checkpoint "$newest" --prompt $'template<typename _Tp>\n    struct ' --tokens 300 \
    --temperature 0.7 --top-k 40 --seed 1
echo

heading "Validation"
loss=$(last_number validation_loss "$run/metrics.jsonl")
[[ -n $loss ]] || fail "no validation loss found in $run/metrics.jsonl"
awk -v loss="$loss" -v conditional="$conditional" 'BEGIN {
    printf "final validation loss                                %.4f nats per byte\n", loss
    printf "conditional entropy of a byte given the previous one %.4f nats per byte\n", conditional
    printf "difference                                           %.4f nats per byte\n", conditional - loss
    exit !(conditional - loss >= 0.3)
}' || fail "the validation loss should be at least 0.3 nats below the conditional entropy"

heading "Where the time went"
show "$build/bin/lockstep-analyze" summary "$run"

printf '\nThe run is in %s, its checkpoints in %s, the training log in %s.\n' "$run" "$checkpoints" "$log"
