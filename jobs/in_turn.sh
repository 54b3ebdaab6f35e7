# Sourced by jobs/launch: several runs in one job, each by a launch of its own. It uses launch's variables.
# shellcheck shell=bash disable=SC2034,SC2154

names=()
folders=()
check_in_turn() {
    local setting file name folder
    for setting in ${settings[@]+"${settings[@]}"}; do
        if [[ $setting == run.name=* ]]; then fail "--set $setting would give ${#run_files[@]} runs the same name; set run.name in their descriptions"; fi
    done
    [[ -z ${LOCKSTEP_MANIFEST:-} ]] || fail "a manifest takes one run description, not ${#run_files[@]}"
    [[ $resume == auto ]] || fail "--resume $resume applies to a single run; of several, each resumes from its own newest checkpoint"
    for file in "${run_files[@]}"; do
        run_file=$file
        name=$(value_of run.name) || exit 2
        [[ -n $name ]] || fail "$file has no run.name; add one"
        if is_one_of "$name" ${names[@]+"${names[@]}"}; then fail "$file: another run of this job is named $name; rename one"; fi
        folder=$(value_of run.folder) || exit 2
        names+=("$name")
        folders+=("$folder")
    done
}

launched=
# A signal before the launch handles it would end the launch.
# shellcheck disable=SC2317  # called by the traps
pass_on() { # SIGNAL
    request=$1
    interrupted=yes
    if [[ -z $launched ]]; then return; fi
    until [[ -e $ready_file ]]; do
        kill -0 "$launched" 2>/dev/null || return 0
        sleep 0.05
    done
    kill -"$1" "$launched" 2>/dev/null || true
}

# The next run is not started: what becomes of the job is decided as if it had been stopped at its first step.
stop_before_next() { # REASON
    trap '' USR1 USR2 TERM INT # they would end what requeues the job
    reason=$1
    ended=4
    step=0
    decide
    say "$name: not started ($reason): $decision"
    exit 4
}

# Nodes that were left out of the run before are left out of this one too.
pass_on_exclusions() { # FOLDER-BEFORE
    if [[ -s $1/excluded-nodes ]]; then
        mkdir -p "$folder"
        touch "$folder/excluded-nodes"
        sort -u "$1/excluded-nodes" "$folder/excluded-nodes" >"$folder/excluded-nodes.new"
        mv "$folder/excluded-nodes.new" "$folder/excluded-nodes"
    fi
}

# Ends with the exit code of the run that did not finish, else with 0.
launch_in_turn() {
    local file before='' begun=no number of_settings=() of_time setting waited=0
    check_in_turn
    for setting in ${settings[@]+"${settings[@]}"}; do of_settings+=(--set "$setting"); done
    [[ -d ${TMPDIR:-/tmp} && -w ${TMPDIR:-/tmp} ]] || fail "TMPDIR is ${TMPDIR:-/tmp}, where no file can be made"
    ready_file=$(mktemp -u "${TMPDIR:-/tmp}/lockstep-launch.XXXXXX")
    trap 'rm -f "$ready_file"' EXIT
    trap 'pass_on USR1' USR1
    trap 'pass_on USR2' USR2
    trap 'pass_on TERM' TERM
    trap 'pass_on TERM' INT # which background commands ignore
    for number in "${!run_files[@]}"; do
        file=${run_files[number]}
        run_file=$file
        name=${names[number]}
        folder=$(plain_path "${folders[number]}/$name")
        if [[ $("$program" inspect "$folder" --print state 2>/dev/null) == finished ]]; then
            say "$name: finished"
            before=$folder
            continue
        fi
        if [[ -n $request ]]; then stop_before_next "signal $request"; fi
        if [[ $begun == yes && -z $stop_after ]] && ! time_left; then stop_before_next "the job's time is up"; fi
        of_time=()
        if [[ -n $stop_after ]]; then
            if ! time_left; then stop_before_next "--stop-after $stop_after minutes have passed"; fi
            of_time=(--stop-after "$stop_in")
        fi
        if [[ -n $before ]]; then pass_on_exclusions "$before"; fi
        rm -f "$ready_file"
        LOCKSTEP_READY_FILE=$ready_file "$here/launch" "$file" ${arguments[@]+"${arguments[@]}"} \
            ${of_time[@]+"${of_time[@]}"} ${of_settings[@]+"${of_settings[@]}"} &
        launched=$!
        begun=yes
        if [[ -n $request ]]; then pass_on "$request"; fi # since the question above
        wait_for "$launched"
        launched=
        if [[ $waited -ne 0 ]]; then exit "$waited"; fi
        before=$folder
    done
    exit 0
}
