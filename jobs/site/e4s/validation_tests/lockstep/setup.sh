#!/bin/bash
# shellcheck source=/dev/null
. ../../setup.sh
spackLoadUnique lockstep
