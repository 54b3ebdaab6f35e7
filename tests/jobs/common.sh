# Sourced by the tests of the job scripts: a folder of their own, checks, a small run. $BUILD is the build folder.
# shellcheck shell=bash disable=SC2034
set -uo pipefail

SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=${1:?"the build folder is the first argument"}
BUILD=$(cd "$BUILD" && pwd)
# Threads of several ranks share few cores here.
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1
# What the machine's own scheduler says is not meant.
while read -r variable; do unset "$variable"; done < <(compgen -e | grep -E '^(SLURM|PBS|LSB|LSF|FLUX|LOCKSTEP)_' || true)
export PATH=$BUILD/bin:$PATH

WORK=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-jobs.XXXXXX")
failures=0

skip() {
    if ((failures > 0)); then finish; fi
    echo "skipped: $*"
    exit 77
}
complain() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}
# WHAT EXPECTED ACTUAL
equal() {
    if [[ $2 == "$3" ]]; then echo "ok: $1"; else complain "$1: expected \"$2\", found \"$3\""; fi
}
# WHAT TEXT FILE
contains() {
    if grep -qF -e "$2" "$3"; then echo "ok: $1"; else
        complain "$1: \"$2\" is not in $3:"
        tail -n 40 "$3" >&2
    fi
}
# WHAT COMMAND …
holds() {
    local what=$1
    shift
    if "$@"; then echo "ok: $what"; else complain "$what: $*"; fi
}
# SECONDS COMMAND …: until it succeeds
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        if ((SECONDS > end)); then return 1; fi
        sleep 0.2
    done
}
finish() {
    if ((failures > 0)); then
        echo "$failures checks failed" >&2
        exit 1
    fi
    echo "all checks passed"
    exit 0
}
state_is() { # RUN STATE
    grep -qs "\"state\": \"$2\"" "runs/$1/status.json"
}
has_step() { # RUN STEP: this many steps were written
    [[ -r runs/$1/metrics.jsonl && $(grep -c '"loss"' "runs/$1/metrics.jsonl") -ge $2 ]]
}
# RUN: step and loss of every step, as they are written
losses() {
    sed -n 's/.*\("step":[0-9]*\),\("loss":[^,]*\),.*/\1 \2/p' "runs/$1/metrics.jsonl"
}

# run.toml of a run that takes STEPS steps of a few milliseconds, and its data.
small_run() { # NAME STEPS
    for _ in $(seq 400); do echo "One line of text among others, to be learnt."; done >text.txt
    cat >run.toml <<END
[run]
name = "$1" # with a comment
[model]
mixer = "attention"
width = 32
layers = 1
heads = 2
vocabulary = 256
context = 32
[data]
train = ["text.txt"]
[batch]
global = 4
[schedule]
steps = $2
peak_lr = 1e-3
[checkpoint]
every = 1000000
END
}
