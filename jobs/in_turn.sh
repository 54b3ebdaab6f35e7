# Sourced by jobs/launch: several runs in one job, each by a launch of its own. It uses launch's variables.
# shellcheck shell=bash disable=SC2034,SC2154

check_in_turn() {
    local setting file names=() name
    for setting in ${settings[@]+"${settings[@]}"}; do
        if [[ $setting == run.name=* ]]; then fail "--set $setting would give ${#run_files[@]} runs one name; write it into their descriptions"; fi
    done
    [[ -z ${LOCKSTEP_MANIFEST:-} ]] || fail "a manifest takes one run description, not ${#run_files[@]}"
    for file in "${run_files[@]}"; do
        run_file=$file
        name=$(value_of run.name) || exit 2
        [[ -n $name ]] || fail "$file has no run.name; add one"
        if is_one_of "$name" ${names[@]+"${names[@]}"}; then fail "$file: another run of this job is named $name; rename one"; fi
        names+=("$name")
    done
}

launched=
# shellcheck disable=SC2317  # called by the traps
pass_on() { # SIGNAL
    request=$1
    interrupted=yes
    if [[ -n $launched ]]; then kill -"$1" "$launched" 2>/dev/null || true; fi
}

# Ends with the exit code of the run that did not finish, else with 0.
launch_in_turn() {
    local file folder name of_settings=() of_time setting waited=0
    check_in_turn
    for setting in ${settings[@]+"${settings[@]}"}; do of_settings+=(--set "$setting"); done
    trap 'pass_on USR1' USR1
    trap 'pass_on USR2' USR2
    trap 'pass_on TERM' TERM
    trap 'pass_on TERM' INT # which background commands ignore
    for file in "${run_files[@]}"; do
        run_file=$file
        name=$(value_of run.name) || exit 2
        folder=$(value_of run.folder) || exit 2
        if [[ $("$program" inspect "$folder/$name" --print state 2>/dev/null) == finished ]]; then
            say "$name: finished"
            continue
        fi
        if [[ -n $request ]]; then
            say "$name: not started after signal $request"
            exit 4
        fi
        of_time=()
        if [[ -n $stop_after ]]; then
            if ! time_left; then
                say "$name: not started: --stop-after $stop_after minutes are over"
                exit 4
            fi
            of_time=(--stop-after "$stop_in")
        fi
        "$here/launch" "$file" ${arguments[@]+"${arguments[@]}"} ${of_time[@]+"${of_time[@]}"} --resume "$resume" \
            ${of_settings[@]+"${of_settings[@]}"} &
        launched=$!
        if [[ -n $request ]]; then # since the question above
            sleep 1
            pass_on "$request"
        fi
        wait_for "$launched"
        launched=
        if [[ $waited -ne 0 ]]; then exit "$waited"; fi
    done
    exit 0
}
