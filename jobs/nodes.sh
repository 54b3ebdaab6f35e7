# Sourced by jobs/launch: the nodes of a job, the launch command for some of them, and which are left out.
# It uses launch's variables.
# shellcheck shell=bash disable=SC2034,SC2154

# The nodes of this job, one per line, in its order; nothing if they are not known.
allocation() {
    if [[ -n ${LOCKSTEP_NODES:-} ]]; then
        tr -s '[:blank:],' '\n' <<<"$LOCKSTEP_NODES" | sed '/^$/d'
        return
    fi
    case $scheduler in
        slurm) if [[ -n ${SLURM_JOB_NODELIST:-} ]]; then scontrol show hostnames "$SLURM_JOB_NODELIST" 2>/dev/null; fi ;;
        pbs) awk '!seen[$1]++ { print $1 }' "${PBS_NODEFILE:-/dev/null}" ;;
        lsf) xargs -n 2 <<<"${LSB_MCPU_HOSTS:-}" | awk '$1 != "" { print $1 }' ;;
        flux)
            flux hostlist --expand --delimiter=' ' \
                "$(flux resource list --no-header --states=all --format='{nodelist}' 2>/dev/null)" 2>/dev/null |
                tr ' ' '\n' | sed '/^$/d'
            ;;
    esac
    return 0
}

joined() { # SEPARATOR WORD …
    local separator=$1 text
    shift
    text=$(printf "%s$separator" "$@")
    echo "${text%"$separator"}"
}

is_one_of() { # WORD OF …
    local word=$1 other
    shift
    for other in "$@"; do if [[ $word == "$other" ]]; then return 0; fi; done
    return 1
}

is_address() { [[ $1 == *:* || $1 =~ ^[0-9]+([.][0-9]+){3}$ ]]; }

# The nodes of the job that these host names mean: those of the same name, or else those whose names differ in the domain
# only. The first part of an address is no name.
nodes_named() { # "HOST …"
    local host node hosts=()
    read -ra hosts <<<"${1//$'\n'/ }"
    for host in ${hosts[@]+"${hosts[@]}"}; do
        if is_one_of "$host" ${all_nodes[@]+"${all_nodes[@]}"}; then
            echo "$host"
        elif ! is_address "$host"; then
            for node in ${all_nodes[@]+"${all_nodes[@]}"}; do
                if [[ ${node%%.*} == "${host%%.*}" ]]; then echo "$node"; fi
            done
        fi
    done
}

# hydra, openmpi, or nothing, into mpirun_kind: asked once.
asked_mpirun=
find_mpirun_kind() { # MPIRUN
    if [[ $asked_mpirun == "$1" ]]; then return; fi
    asked_mpirun=$1
    mpirun_kind=
    case $("$1" --version 2>/dev/null </dev/null || true) in
        *HYDRA* | *"Intel(R) MPI"*) mpirun_kind=hydra ;;
        *"Open MPI"* | *OpenRTE* | *PRRTE*) mpirun_kind=openmpi ;;
    esac
}

# The command for the first RANKS on all nodes of the job, into launcher.
set_launcher() { # RANKS
    local on_nodes=$nodes filled
    if [[ -n ${LOCKSTEP_LAUNCH:-} ]]; then
        filled=${LOCKSTEP_LAUNCH//\{ranks\}/$1}
        if [[ $filled == *"{hosts}"* ]]; then
            [[ ${#all_nodes[@]} -gt 0 ]] || fail "{hosts} is in LOCKSTEP_LAUNCH, but no nodes are known; set LOCKSTEP_NODES"
            filled=${filled//\{hosts\}/$(joined , "${all_nodes[@]}")}
        fi
        read -ra launcher <<<"${filled//\{nodes\}/$on_nodes}"
    elif [[ $scheduler == slurm ]] && command -v srun >/dev/null; then
        launcher=(srun "--mpi=${LOCKSTEP_MPI:-pmi2}" "--ntasks=$1" --kill-on-bad-exit=1)
        # Since Slurm 22.05 srun does not inherit this from the job.
        if [[ -n ${SLURM_CPUS_PER_TASK:-} ]]; then launcher+=("--cpus-per-task=$SLURM_CPUS_PER_TASK"); fi
    elif [[ $scheduler == flux ]]; then
        launcher=(flux run "--nodes=$on_nodes" "--ntasks=$1")
    elif [[ $scheduler == lsf ]] && command -v jsrun >/dev/null; then
        launcher=(jsrun --nrs "$1" --tasks_per_rs 1)
    elif command -v mpirun >/dev/null; then
        launcher=(mpirun -np "$1")
    elif command -v mpiexec >/dev/null; then
        launcher=(mpiexec -n "$1")
    else
        fail "neither mpirun nor mpiexec is in PATH; load an MPI module, or set LOCKSTEP_LAUNCH"
    fi
}

# The same on these nodes only. Fails if the launcher cannot do that; why_not says so.
set_launcher_on() { # RANKS NODE …
    local of_ranks=$1 node others=() per_node
    shift
    per_node=$(((of_ranks + $# - 1) / $#))
    if [[ ${LOCKSTEP_LAUNCH:-} == *"{hosts}"* ]]; then
        local nodes=$# all_nodes=("$@")
        set_launcher "$of_ranks"
        share_cores
        return
    fi
    local all=("${all_nodes[@]}")
    local nodes=$#
    set_launcher "$of_ranks"
    local first=${launcher[0]}
    case ${first##*/} in
        srun)
            launcher=("$first" "--nodes=$#" "--nodelist=$(joined , "$@")" "${launcher[@]:1}")
            share_cores
            ;;
        flux)
            for node in "${all[@]}"; do if ! is_one_of "$node" "$@"; then others+=("$node"); fi; done
            if [[ ${#others[@]} -gt 0 ]]; then
                launcher=("${launcher[@]:0:2}" "--requires=-host:$(joined , "${others[@]}")" "${launcher[@]:2}")
            fi
            ;;
        mpirun | mpiexec | mpiexec.hydra | mpirun.*)
            find_mpirun_kind "$first"
            case $mpirun_kind in
                hydra) launcher=("$first" -hosts "$(joined , "$@")" -ppn "$per_node" "${launcher[@]:1}") ;;
                openmpi) launcher=("$first" --host "$(joined , "${@/%/:$per_node}")" "${launcher[@]:1}") ;;
                *)
                    why_not="$first is neither MPICH's nor Open MPI's; name the nodes with {hosts} in LOCKSTEP_LAUNCH"
                    return 1
                    ;;
            esac
            ;;
        *)
            why_not="${first##*/} cannot be told which nodes to use; use another launcher, with {hosts} in LOCKSTEP_LAUNCH"
            return 1
            ;;
    esac
}

# --- which answer ---------------------------------------------------------------------------------------------
# Starts one process on a node within the time limit.
answers() { # NODE
    local launcher=() nodes=1
    set_launcher_on 1 "$1" || return 0
    timeout --kill-after=2 "$probe_seconds" "${launcher[@]}" true >/dev/null </dev/null
}
# Slurm counts the step of a launch that lost a node as running until that node is back or given up, and since 20.11 a
# step has its cores to itself unless srun says otherwise. Before 22.05 that shares cores alone, no memory and no GPUs.
share_cores() {
    if [[ ${launcher[0]##*/} == srun && $srun_overlaps == yes ]]; then
        launcher=("${launcher[0]}" --overlap "${launcher[@]:1}")
    fi
}
# Asked after the first launch of a job, which has it to itself. Before 20.11 srun does not know the option.
srun_overlaps=
find_srun_overlap() {
    if [[ ${launcher[0]##*/} != srun || -n $srun_overlaps ]]; then return; fi
    srun_overlaps=no
    if [[ $("${launcher[0]}" --help 2>/dev/null </dev/null || true) == *--overlap* ]]; then srun_overlaps=yes; fi
}
# Of these, those that do not answer, asked some at a time: this host is to be no reason for the silence of others.
silent_nodes() { # NODE …
    local at_once=32 node asked index
    while [[ $# -gt 0 ]]; do
        asked=()
        for node in "${@:1:at_once}"; do
            answers "$node" 2>/dev/null &
            asked+=("$!")
        done
        index=0
        for node in "${@:1:at_once}"; do
            wait "${asked[index]}" || echo "$node"
            index=$((index + 1))
        done
        shift $(($# < at_once ? $# : at_once))
    done
}

# Keeps a process on another node that requeues the job when Slurm has given up the node of this script (jobs/deputy).
# Before 22.05 it would take memory and GPUs from the ranks.
deputy=
start_deputy() {
    local version of_version='([0-9]+)[.]([0-9]+)' own=${SLURMD_NODENAME:-} node chosen=''
    # Only a batch script, of one component, is what Slurm calls the job's batch host.
    if [[ $scheduler != slurm || -z $own || -n ${SLURM_STEP_ID:-}${SLURM_HET_SIZE:-} ]]; then return 0; fi
    if [[ $deputy_seconds -eq 0 ]] || ! command -v srun >/dev/null; then return 0; fi
    if [[ -n $deputy ]] && kill -0 "$deputy" 2>/dev/null; then return 0; fi
    version=$(srun --version 2>/dev/null </dev/null || true)
    [[ $version =~ $of_version ]] || return 0
    if ((10#${BASH_REMATCH[1]} * 100 + 10#${BASH_REMATCH[2]} < 2205)); then return 0; fi
    # The last one, which may be a spare.
    while read -r node; do
        if [[ -n $node && $node != "$own" ]] && ! is_one_of "$node" ${excluded[@]+"${excluded[@]}"}; then chosen=$node; fi
    done <<<"$(scontrol show hostnames "${SLURM_JOB_NODELIST:-}" 2>/dev/null || true)"
    if [[ -z $chosen ]]; then return 0; fi
    # The number of GPUs of the whole job is not that of this step.
    env -u SLURM_GPUS srun --overlap --nodes=1 --nodelist="$chosen" --mpi=none --ntasks=1 \
        "$here/deputy" "$slurm_job" "$own" "$deputy_seconds" "$folder/excluded-nodes" >/dev/null 2>&1 </dev/null &
    deputy=$!
}
stop_deputy() {
    if [[ -n $deputy ]]; then kill -TERM "$deputy" 2>/dev/null || true; fi
    deputy=
}

# --- which are left out -----------------------------------------------------------------------------------------
# runs/NAME/excluded-nodes: node, time, reason; a line counts for LOCKSTEP_EXCLUDE_HOURS.
excluded_before() {
    local node time _ now
    now=$(date +%s)
    [[ -f $folder/excluded-nodes && -r $folder/excluded-nodes ]] || return 0
    while read -r node time _; do
        time=$(date -d "$time" +%s 2>/dev/null) || continue
        if ((now - time < exclude_hours * 3600)); then echo "$node"; fi
    done <"$folder/excluded-nodes" | sort -u
}
exclude() { # NODE REASON
    excluded+=("$1")
    excluded_here+=("$1")
    mkdir -p "$folder"
    printf '%s %s %s\n' "$1" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$2" >>"$folder/excluded-nodes" ||
        say "cannot write $folder/excluded-nodes"
}

# The nodes and the number of ranks of the next launch, into used and ranks: all ranks where there are nodes for them, else
# as many as the run's grid takes. Nodes that were suspected come last. Fails if there is no such number.
select_nodes() {
    local node healthy=() doubtful=() most
    for node in "${all_nodes[@]}"; do
        if is_one_of "$node" ${excluded[@]+"${excluded[@]}"}; then
            continue
        elif is_one_of "$node" ${suspected[@]+"${suspected[@]}"}; then
            doubtful+=("$node")
        else
            healthy+=("$node")
        fi
    done
    healthy+=(${doubtful[@]+"${doubtful[@]}"})
    most=$((${#healthy[@]} * ranks_per_node))
    if ((most >= ranks_wanted)); then
        ranks=$ranks_wanted
    elif ((most == 0)); then
        why_not="no node is left"
        return 1
    elif [[ -n ${LOCKSTEP_MANIFEST:-} ]]; then
        why_not="${#healthy[@]} of ${#all_nodes[@]} nodes are left, too few for the $ranks_wanted ranks that the manifest requests"
        return 1
    else
        local of_settings=() setting fewer
        for setting in ${settings[@]+"${settings[@]}"}; do of_settings+=(--set "$setting"); done
        fewer=$("$program" inspect "$run_file" ${of_settings[@]+"${of_settings[@]}"} --ranks-at-most "$most") || {
            why_not="${#healthy[@]} of ${#all_nodes[@]} nodes are left, too few for the run's grid"
            return 1
        }
        ranks=$fewer
    fi
    used=("${healthy[@]:0:(ranks + ranks_per_node - 1) / ranks_per_node}")
}

# Nodes that this job has just left out may still hold the locks of the run. They cannot go on with it: their ranks have lost
# the others.
release_locks() { # NODE …
    local lock host node holders
    for lock in "$folder/lock" "$checkpoints/.lock"; do
        host=$(sed -n 's/.* on \([^ ]*\) since .*/\1/p' "$lock" 2>/dev/null || true)
        if [[ -z $host ]]; then continue; fi
        mapfile -t holders < <(nodes_named "$host")
        if [[ ${#holders[@]} -eq 0 ]]; then continue; fi
        for node in "${holders[@]}"; do if ! is_one_of "$node" "$@"; then continue 2; fi; done
        rm -f "$lock"
    done
}
