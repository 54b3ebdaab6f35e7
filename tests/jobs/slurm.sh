# Sourced by tests of the Slurm scripts: a real Slurm of their own. Its daemons, ports, keys and files are its own, and go
# with the test, however that ends.
#
#   slurm_start [NODE …]  starts it: of this machine, or of nodes of tests/nodes/nodes.sh, with its controller on n0. Ends
#                         the test with 77 and a sentence where that is not possible
#   slurm_up NODE         the daemon of a node that has been started again
#   slurm_idle            succeeds if all its nodes are free
#   no_jobs               succeeds if its queue is empty
#   slurm_stop
#
# Sourced after tests/jobs/common.sh: it uses WORK, skip, complain, within and finish. With nodes, sbatch, squeue,
# scontrol and scancel are run on n0, by node_run.
# shellcheck shell=bash disable=SC2034

slurm_nodes=()
slurm_daemons=()
slurm_started=no
# Seconds after which Slurm gives up a silent node.
slurm_node_seconds=300

on_head() { if ((${#slurm_nodes[@]})); then node_run n0 "$@"; else "$@"; fi; }

free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 12000))
        if ! (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return
        fi
    done
}

slurm_start() { # [NODE …]
    local program host address='' state=$WORK/slurm names node
    slurm_nodes=("$@")
    export PATH=$PATH:/usr/sbin
    for program in slurmctld slurmd sbatch srun munged setpriv; do
        command -v "$program" >/dev/null || skip "$program is not installed (tools/install_dependencies --tests)"
    done
    [[ $EUID -eq 0 ]] || skip "a Slurm of one's own needs root here"
    host=$(hostname -s)
    if (($#)); then host=n0 address=10.77.0.1; fi
    chmod 755 "$WORK" # the daemons want to be reached through it
    mkdir -p "$state/state"
    export SLURM_CONF=$state/slurm.conf
    slurm_started=yes
    cat >"$SLURM_CONF" <<END
ClusterName=lockstep
SlurmctldHost=$host(${address:-127.0.0.1})
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$state/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$state/state
SlurmdSpoolDir=$state/spool-%n
SlurmctldPidFile=$state/slurmctld.pid
SlurmdPidFile=$state/slurmd-%n.pid
SlurmctldLogFile=$state/slurmctld.log
SlurmdLogFile=$state/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,sched_interval=1
MpiDefault=none
JobRequeue=1
KillWait=10
SlurmdTimeout=$slurm_node_seconds
ReturnToService=2
MailProg=/bin/true
SlurmdParameters=config_overrides
END
    if (($#)); then
        for node in "$@"; do echo "NodeName=$node NodeAddr=10.77.0.$((${node#n} + 1)) CPUs=2 State=UNKNOWN"; done
        names=$(printf '%s,' "$@")
    else
        echo "NodeName=$host NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN"
        names=$host
    fi >>"$SLURM_CONF"
    echo "PartitionName=test Nodes=${names%,} Default=YES MaxTime=60 State=UP" >>"$SLURM_CONF"
    # On the nodes no control groups are mounted, by which Slurm would choose the plugin.
    if (($#)); then echo CgroupPlugin=cgroup/v1 >"$state/cgroup.conf"; fi
    head -c 1024 /dev/urandom >"$state/munge.key"
    chmod 600 "$state/munge.key"
    # Whatever becomes of the test, its daemons end with it.
    setpriv --pdeathsig KILL munged --foreground --key-file="$state/munge.key" --socket="$state/munge.socket" \
        --pid-file="$state/munged.pid" --log-file="$state/munged.log" --seed-file="$state/munged.seed" \
        >"$state/munged.out" 2>&1 &
    slurm_daemons+=($!)
    within 10 test -S "$state/munge.socket" || skip "munged did not start: $(cat "$state/munged.out" "$state/munged.log")"
    if (($#)); then
        slurm_controller_up
        for node in "$@"; do slurm_up "$node"; done
    else
        setpriv --pdeathsig KILL slurmctld -D >"$state/slurmctld.out" 2>&1 &
        slurm_daemons=($! "${slurm_daemons[@]}")
        setpriv --pdeathsig KILL slurmd -D -N "$host" >"$state/slurmd.out" 2>&1 &
        slurm_daemons=($! "${slurm_daemons[@]}")
    fi
    if ! within 30 slurm_idle; then
        tail -n 20 "$state"/*.log "$state"/*.out
        complain "the private Slurm did not start"
        finish
    fi
}
# They end with their nodes, which this shell would report if they were its children.
slurm_controller_up() { (node_run n0 slurmctld -D >>"$WORK/slurm/slurmctld.out" 2>&1 </dev/null &); }
slurm_up() { (node_run "$1" slurmd -D -N "$1" >>"$WORK/slurm/$1.out" 2>&1 </dev/null &); }

slurm_idle() { [[ $(on_head sinfo --noheader --format=%T 2>/dev/null) == idle ]]; }
no_jobs() {
    local jobs
    jobs=$(on_head squeue --noheader 2>/dev/null) && [[ -z $jobs ]]
}

slurm_stop() {
    local pid
    # Without one, scancel would mean the machine's own.
    if [[ $slurm_started == no ]]; then return; fi
    on_head scancel --signal=KILL --full --user root 2>/dev/null
    on_head scancel --user root 2>/dev/null
    within 20 no_jobs
    for pid in ${slurm_daemons[@]+"${slurm_daemons[@]}"}; do
        kill "$pid" 2>/dev/null
        for _ in $(seq 50); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
    slurm_daemons=()
    slurm_started=no
    unset SLURM_CONF
}
