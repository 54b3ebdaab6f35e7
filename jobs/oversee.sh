# Sourced by jobs/launch: what a run shows from outside while its launcher runs, and the end of a launcher that stays. It uses
# launch's variables: program, name, folder, status_file, status_before, signs_before and the limits.
# shellcheck shell=bash disable=SC2034,SC2154

status_now() { cat "$status_file" 2>/dev/null || true; }
# KEY of status.json; nothing if there is none.
status_value() { "$program" inspect "$folder" --print "$1" 2>/dev/null || true; }

# Into seen_…: what this launch has written into status.json; nothing before it has. A file that cannot be read, or is being
# overwritten in place, changes nothing: it is read again. Read without lockstep inspect, which would be started every few
# seconds of every run.
look_at_status() {
    local now of_state='"state": *"([a-z]+)"' of_step='"step": *(-?[0-9]+)' of_code='"exit_code": *([0-9]+)'
    now=$(status_now)
    if [[ -z $now || $now == "$seen_status" || $now == "$status_before" ]]; then return 0; fi
    local written_state written_step
    if ! [[ $now =~ $of_state ]]; then return 0; fi
    written_state=${BASH_REMATCH[1]}
    if ! [[ $now =~ $of_step ]]; then return 0; fi
    written_step=${BASH_REMATCH[1]}
    if ! [[ $now =~ $of_code ]]; then return 0; fi
    seen_code=${BASH_REMATCH[1]}
    seen_state=$written_state
    seen_step=$written_step
    seen_status=$now
}
forget_status() {
    seen_status=
    seen_state=
    seen_step=
    seen_code=
}
is_running_here() {
    look_at_status
    [[ $seen_state == running ]]
}

# Changes with whatever the run writes. On a full disk that is the time of the lock alone, which rank 0 renews while anything
# moves (watch/watchdog.cpp).
signs_of_life() {
    stat -c '%n %y %s' "$status_file" "$folder/lock" "$folder/log.txt" "$folder/metrics.jsonl" 2>/dev/null || true
}
lock_time() { stat -c %y "$folder/lock" 2>/dev/null || true; }

# Ends a launcher that stays: MPICH's waits for a node that is gone, although the run has ended, or before it has begun.
# Returns launcher_ended where it did; until then ALRM ends it.
launcher_ended=3
oversee() { # PID
    trap '' USR1 USR2 TERM INT
    local clock=0 last=$SECONDS passed why limit ended_at='' first_step='' begun=no renewed=no moved_at=0
    local signs=$signs_before lock signs_now lock_now
    lock=$(lock_time)
    while kill -0 "$1" 2>/dev/null; do
        sleep 2 >/dev/null 2>&1
        passed=$((SECONDS - last))
        last=$SECONDS
        # A job that was suspended as a whole did not wait.
        clock=$((clock + (passed < 60 ? passed : 2)))
        look_at_status
        signs_now=$(signs_of_life)
        lock_now=$(lock_time)
        if [[ -n $signs_now && $signs_now != "$signs" ]]; then
            if [[ $begun == yes && $lock_now != "$lock" ]]; then renewed=yes; fi
            begun=yes
            signs=$signs_now
            lock=$lock_now
            moved_at=$clock
        fi
        if [[ -n $seen_state ]]; then begun=yes; fi
        case $seen_state in
            "" | running)
                ended_at=
                if [[ $begun == no ]]; then
                    if ((start_limit == 0 || clock <= start_limit)); then continue; fi
                    why="no sign of the run within $start_limit s (watchdog.first_step_seconds)"
                else
                    # Until the lock is renewed there is no watchdog: a checkpoint is being checked.
                    if [[ $seen_state != running && $renewed == no ]]; then continue; fi
                    first_step=${first_step:-$seen_step}
                    limit=$start_limit
                    if [[ $seen_step != "$first_step" ]]; then limit=$step_limit; fi
                    if ((limit == 0 || clock - moved_at <= 2 * limit + stall_seconds)); then continue; fi
                    why="nothing in $folder has changed for $((clock - moved_at)) s"
                fi
                ;;
            *)
                ended_at=${ended_at:-$clock}
                limit=$launcher_seconds
                # Ranks that all end, with or without an error, wait up to a minute for MPI_Finalize.
                if [[ $seen_state != lost && $seen_code != 5 ]]; then limit=$((5 * limit)); fi
                if ((clock - ended_at < limit)); then continue; fi
                why="the run has ended, the launcher has not"
                ;;
        esac
        trap '' ALRM
        say "$name: $why: ending the launcher"
        kill -TERM "$1" 2>/dev/null || true
        for _ in {1..30}; do
            if ! kill -0 "$1" 2>/dev/null; then break; fi
            sleep 0.1 >/dev/null 2>&1
        done
        kill -KILL "$1" 2>/dev/null || true
        exit "$launcher_ended"
    done
}
