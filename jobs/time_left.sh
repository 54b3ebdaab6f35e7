# Sourced by jobs/launch: how much of the job's time is left. It uses launch's variables: scheduler, lsf_index, margin, stop_after.
# shellcheck shell=bash disable=SC2154

# [days-][hours:]minutes:seconds in seconds.
seconds_of() {
    awk -v text="$1" 'BEGIN {
        days = 0
        if (split(text, parts, "-") == 2) { days = parts[1]; text = parts[2] }
        count = split(text, part, ":"); seconds = 0
        for (i = 1; i <= count; ++i) seconds = seconds * 60 + part[i]
        printf "%d\n", seconds + days * 86400
    }'
}

# Seconds until the time limit; nothing if unknown.
remaining_seconds() {
    local text used
    case $scheduler in
        slurm)
            if [[ ${SLURM_JOB_END_TIME:-} =~ ^[1-9][0-9]{0,11}$ ]]; then
                echo $((SLURM_JOB_END_TIME - $(date +%s)))
                return
            fi
            text=$(squeue --noheader --job "$slurm_job" --format=%L 2>/dev/null) || return 0
            if [[ $text =~ ^[0-9:-]+$ ]]; then seconds_of "$text"; fi
            ;;
        pbs)
            text=$(qstat -f "$PBS_JOBID" 2>/dev/null) || return 0
            used=$(awk '$1 == "resources_used.walltime" { print $3 }' <<<"$text")
            text=$(awk '$1 == "Resource_List.walltime" { print $3 }' <<<"$text")
            if [[ $text =~ ^[0-9:]+$ ]]; then echo $(($(seconds_of "$text") - $(seconds_of "${used:-0}"))); fi
            ;;
        lsf)
            # "1:30 L": hours and minutes
            text=$(bjobs -noheader -o time_left "$LSB_JOBID$lsf_index" 2>/dev/null) || return 0
            if [[ $text =~ ([0-9]{1,6}):([0-9]{1,2}) ]]; then echo $((10#${BASH_REMATCH[1]} * 3600 + 10#${BASH_REMATCH[2]} * 60)); fi
            ;;
        flux)
            text=$(flux job timeleft 2>/dev/null) || return 0
            if [[ $text =~ ^[0-9]+$ && $text -lt 315360000 ]]; then echo "$text"; fi
            ;;
    esac
}

# What is left of the time, in minutes, into stop_in: of the job, or of --stop-after; empty if nothing limits it. Fails if
# that is less than the margin.
first_asked_at=
time_left() {
    local remaining
    stop_in=
    if [[ -n $stop_after ]]; then
        # It counts from the first launch on, as the program counts it.
        first_asked_at=${first_asked_at:-$SECONDS}
        stop_in=$(awk -v minutes="$stop_after" -v seconds="$((SECONDS - first_asked_at))" 'BEGIN { print minutes - seconds / 60 }')
        awk -v minutes="$stop_in" 'BEGIN { exit !(minutes > 0) }'
        return
    fi
    remaining=$(remaining_seconds)
    if [[ -z $remaining ]]; then return 0; fi
    stop_in=$(awk -v seconds="$remaining" -v margin="$margin" 'BEGIN {
        minutes = seconds / 60 - margin
        if (minutes < seconds / 120) minutes = seconds / 120
        printf "%.2f", minutes < 0.05 ? 0.05 : minutes }')
    awk -v seconds="$remaining" -v margin="$margin" 'BEGIN { exit !(seconds > margin * 60) }'
}
