# Sourced by jobs/launch: another launch in the same job after a rank or node was lost. It uses nodes.sh and launch's variables.
# shellcheck shell=bash disable=SC2034,SC2154

recoveries=0
recovered_step=-1
# After a lost rank or node: another launch in the same job, without the nodes that are lost. Fails with why_not if that is
# not possible; the job then goes back into the queue.
recover() {
    local start=$SECONDS lost=() named=() asked=() silent=() silent_in_use=0 node n pause longest before=$ranks because=() error
    why_not=
    if [[ -n $request ]]; then return 1; fi
    if [[ ${LOCKSTEP_RECOVER:-yes} != yes ]]; then
        if [[ $ended != 1 ]]; then why_not="LOCKSTEP_RECOVER=no"; fi
        return 1
    fi
    if [[ ${#all_nodes[@]} -eq 0 ]]; then
        if [[ $ended != 1 ]]; then why_not="the names of the nodes are not known (set LOCKSTEP_NODES)"; fi
        return 1
    fi
    if ! set_launcher_on "$ranks" "${used[@]}"; then
        if [[ $ended == 1 ]]; then why_not=; fi
        return 1
    fi
    find_srun_overlap
    for node in "${all_nodes[@]}"; do
        if ! is_one_of "$node" ${excluded[@]+"${excluded[@]}"}; then asked+=("$node"); fi
    done
    mapfile -t silent < <(silent_nodes "${asked[@]}")
    # One that was only slow answers now.
    if [[ ${#silent[@]} -gt 0 ]]; then mapfile -t silent < <(silent_nodes "${silent[@]}"); fi
    # Who ends the job ends the probes too: their silence says nothing.
    if [[ -n $request ]]; then return 1; fi
    for node in ${silent[@]+"${silent[@]}"}; do
        if is_one_of "$node" "${used[@]}"; then silent_in_use=$((silent_in_use + 1)); fi
    done
    # A fault of the program is no reason to go on; that of a rank that has lost another is.
    if [[ $ended == 1 ]]; then
        if [[ $silent_in_use -eq 0 ]]; then return 1; fi
        ended=lost
    fi
    if [[ ${#silent[@]} -eq ${#asked[@]} ]]; then
        error=$(answers "${asked[0]}" 2>&1 | tail -n 1) || true
        why_not="no node answers${error:+ (${asked[0]}: $error)}"
        return 1
    fi
    if ((2 * ${#silent[@]} > ${#asked[@]})); then
        why_not="${#silent[@]} of ${#asked[@]} nodes do not answer; the fault may be with the node asking"
        return 1
    fi
    if [[ $status != "$status_before" ]]; then
        mapfile -t lost < <(nodes_named "$(status_value lost_nodes)")
        mapfile -t named < <(nodes_named "$(status_value suspects)")
    fi
    for node in ${silent[@]+"${silent[@]}"}; do
        exclude "$node" "did not answer after a launch had ended (step $step)"
        because+=("$node does not answer")
    done
    # Of most nodes it says more about the file system, through which the watchdogs report.
    if ((2 * ${#lost[@]} <= ${#used[@]})); then
        for node in ${lost[@]+"${lost[@]}"}; do
            if is_one_of "$node" ${excluded[@]+"${excluded[@]}"}; then continue; fi
            exclude "$node" "no rank there reported to the watchdog (step $step)"
            because+=("no rank on $node reported")
        done
    fi
    # Where a node is lost, that ranks died elsewhere is the launcher's doing. Else it may have been the rank's fault: another node
    # is taken where there is one. Twice it is the node's.
    if [[ ${#because[@]} -gt 0 ]]; then named=(); fi
    for node in ${named[@]+"${named[@]}"}; do
        if is_one_of "$node" ${excluded[@]+"${excluded[@]}"}; then continue; fi
        if is_one_of "$node" ${suspected[@]+"${suspected[@]}"}; then
            exclude "$node" "ranks there failed twice in one job (step $step)"
            because+=("ranks on $node failed twice")
        else
            suspected+=("$node")
        fi
    done
    # Only now: a job that starts anew leaves the lost nodes out too.
    if [[ $step -gt $recovered_step ]]; then
        recovered_step=$step
        recoveries=0
    fi
    if ((recoveries >= retries)); then
        why_not="$retries launches in this job made no new step"
        return 1
    fi
    recoveries=$((recoveries + 1))
    if ! select_nodes || ! set_launcher_on "$ranks" "${used[@]}"; then return 1; fi
    if ! time_left; then
        why_not="the job's time is up"
        return 1
    fi
    # It may be on a lost node.
    stop_deputy
    start_deputy
    release_locks ${excluded_here[@]+"${excluded_here[@]}"}
    pause=$pause_seconds
    longest=$((pause > 300 ? pause : 300))
    for ((n = 1; n < recoveries && pause < longest; ++n)); do pause=$((2 * pause)); done
    for ((pause = pause < longest ? pause : longest; pause > 0; --pause)); do if [[ -z $request ]]; then sleep 1; fi; done
    if [[ -n $request ]]; then return 1; fi
    if ! time_left; then
        why_not="the job's time is up"
        return 1
    fi
    nodes=${#used[@]}
    resume=auto
    if [[ ${#because[@]} -eq 0 ]]; then because=("every node answers"); fi
    say "$name: $(joined ', ' "${because[@]}"): continuing in this job after $((SECONDS - start)) s, on ${used[*]}," \
        "$ranks ranks$(if ((ranks != before)); then echo " instead of $before"; fi)"
}
