# Sourced by jobs/launch: whether the job goes back into the queue, and how. It uses launch's variables.
# shellcheck shell=bash disable=SC2034,SC2154

# Prints what was done; fails if the scheduler refused or cannot requeue.
requeue() {
    case $scheduler in
        slurm)
            scontrol requeue "$slurm_job" >&2 && echo "Slurm job $SLURM_JOB_ID is requeued"
            ;;
        lsf)
            brequeue "$LSB_JOBID$lsf_index" >&2 && echo "LSF job $LSB_JOBID is requeued"
            ;;
        pbs | flux)
            if [[ -z ${LOCKSTEP_JOB_FILE:-} ]]; then
                say "cannot resubmit: the job was not submitted with jobs/submit"
                return 1
            fi
            LOCKSTEP_SUBMIT_AGAIN=${LOCKSTEP_INDEX:-${PBS_ARRAY_INDEX:-single}} bash "$LOCKSTEP_JOB_FILE" >&2 &&
                echo "resubmitted"
            ;;
        none) return 1 ;;
    esac
}

# Counts consecutive requeues without a new step in the run folder: highest step, count. Where it says no, why into
# refused.
may_requeue() {
    local counter=$folder/requeues highest=-1 count=0
    if [[ -f $counter && -r $counter ]]; then read -r highest count <"$counter" || true; fi
    if ! is_count "$count" || ! is_count "$highest"; then # none, or a damaged one
        highest=-1
        count=0
    fi
    if [[ $step -gt $highest ]]; then
        highest=$step
        count=0
    else
        count=$((count + 1))
    fi
    # Without a count the job would come back for ever; a full disk must not lose the one that is there.
    if ! { mkdir -p "$folder" && echo "$highest $count" >"$counter.new" && mv -fT "$counter.new" "$counter"; } 2>/dev/null; then
        rm -f "$counter.new"
        refused="$counter, which counts requeues, cannot be written"
        return 1
    fi
    refused="$retries requeues made no new step; once the cause is fixed, remove $counter"
    [[ $count -le $retries ]]
}

job_is_ending() {
    case $scheduler in
        slurm) [[ $(squeue --noheader --job "$slurm_job" --format=%T 2>/dev/null || echo RUNNING) != RUNNING ]] ;;
        none) return 1 ;;
        *) [[ $request == TERM || $request == INT ]] ;;
    esac
}

decide() {
    local by_hand='' done_word
    if [[ -z $request && ($reason == *'"stop"'* || $reason == *--stop-at*) ]]; then by_hand=yes; fi
    if [[ $ended == [123] ]]; then
        decision="not requeued"
    elif [[ $ended != lost && $ended != [45] ]]; then
        decision="not requeued: not an exit code of lockstep"
    elif [[ -n $by_hand ]]; then
        decision="not requeued: stopped by hand; run it again to continue"
    elif job_is_ending; then
        decision="not requeued: the job is being ended externally; if it does not come back, resubmit it"
    elif [[ $scheduler == none ]]; then
        decision="run it again to continue"
    elif ! may_requeue; then
        decision="not requeued: $refused"
    elif done_word=$(requeue); then
        decision=$done_word
    else
        decision="could not be requeued; resubmit it to continue"
    fi
}
