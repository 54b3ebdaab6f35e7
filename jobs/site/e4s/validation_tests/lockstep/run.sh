#!/bin/bash
# Packs a text, trains two steps on the ranks that TEST_RUN starts, checks the checkpoint, summarizes the trace.
set -e
# shellcheck source-path=SCRIPTDIR source=setup.sh
. ./setup.sh
set -x
./clean.sh
for line in $(seq 1000); do echo "Line $line of a text that is to be learnt."; done >text.txt
lockstep --version
lockstep pack --out tokens.h5 text.txt
# TEST_RUN is a command with its arguments.
eval "$TEST_RUN lockstep train run.toml"
lockstep verify checkpoints/e4s
lockstep-analyze summary runs/e4s
