# Sourced by the tests of lost nodes: N "nodes" on this machine, and a head node from which jobs are started.
#
# Each is a set of Linux namespaces: network (eth0 with an address 10.77.0.x on a bridge inside the head's namespace, no way
# out), host name, processes, mounts with a /tmp, a /dev/shm and a local disk of its own, in memory. The other folders are
# the parallel file system: all nodes see the same. The nodes are called n1 to nN, the head is n0.
#
#   nodes_start N         makes them; ends the test with 77 and a sentence where that is not possible
#   node_run NODE WORD …  runs a command there, in the current folder
#   node_kill NODE        power off: the link falls silent, all processes and what the local disk held are gone
#   node_crash NODE       all processes are killed; the others' connections are closed
#   node_start NODE       a new one in place of one that was killed
#   node_pause NODE, node_continue NODE
#   link_cut NODE, link_mend NODE
#   link_slow NODE RATE   as tc takes it, such as 10mbit; link_fast NODE takes that and a delay back
#   link_delay NODE TIME  such as 20ms; fails with a sentence where the kernel has no netem
#   disk_fill NODE, disk_empty NODE: the local disk, $NODES_DISK
#   nodes_stop            ends all of it; it ends with the script too, however that ends
#
# $NODES_SSH stands in for ssh in Hydra's -launcher-exec; as ssh it stays when its node goes without a word. $NODES_DIR, which
# may not be there before, takes what this needs. Sourced after tests/jobs/common.sh: it uses WORK, SOURCE, BUILD and skip.
# shellcheck shell=bash disable=SC2034

NODES_DISK_SIZE=${NODES_DISK_SIZE:-64m}

nodes_start() {
    local count=$1 tool node
    NODES_DIR=$WORK/nodes
    NODES_DISK=$NODES_DIR/disk
    NODES_SSH=$NODES_DIR/ssh
    [[ $EUID -eq 0 ]] || skip "nodes are made of namespaces, and those of root"
    for tool in unshare nsenter setpriv ip tc mount pgrep; do
        command -v "$tool" >/dev/null || skip "$tool is not installed (packages iproute2, procps, util-linux)"
    done
    unshare --net --mount --uts --ipc --pid --fork true 2>/dev/null ||
        skip "this machine does not allow namespaces (unshare --net --mount --uts --ipc --pid)"
    unshare --net sh -c 'ip link add br0 type bridge && ip link add ve0 type veth peer name ve1 && ip link set ve0 master br0' \
        2>/dev/null || skip "this kernel has no bridge or no veth"
    mkdir -p "$NODES_DIR/root" "$NODES_DISK" || return 1
    {
        echo "127.0.0.1 localhost"
        for node in $(seq 0 "$count"); do echo "10.77.0.$((node + 1)) n$node"; done
    } >"$NODES_DIR/hosts"
    nodes_write_init
    nodes_write_ssh
    # All nodes are below the head's first process: when it dies, the kernel kills every process of every node. It dies
    # with this script, even if that is killed.
    setpriv --pdeathsig KILL unshare --net --mount --uts --ipc --pid --fork --kill-child "$NODES_DIR/init" n0 \
        >"$NODES_DIR/n0.log" 2>&1 &
    NODES_HOLDER=$!
    nodes_wait_for "$NODES_DIR/n0.pid" || return 1
    NODES_HEAD=$(pgrep -P "$NODES_HOLDER") || return 1
    # An address of its own: else the bridge has that of one of its ports, and another when that port's node goes.
    node_run n0 sh -c 'ip link add eth0 address 02:00:0a:4d:00:01 type bridge && ip link set eth0 up &&
        ip address add 10.77.0.1/24 dev eth0' || return 1
    for node in $(seq "$count"); do node_start "n$node" || return 1; done
}

nodes_wait_for() { # FILE
    local patience=400
    until [[ -e $1 ]]; do
        if ((patience-- == 0)); then
            echo "nodes: $1 did not appear" >&2
            return 1
        fi
        sleep 0.05
    done
}

# What a node's first process does: name and mounts; then it waits, and reaps what others leave.
nodes_write_init() {
    cat >"$NODES_DIR/init" <<END
#!/usr/bin/env bash
set -e
node=\$1
trap '' HUP INT TERM
# Its number in the namespace it comes from, whose /proc this still is.
outer=\$(sed -n 's/^PPid:[[:blank:]]*//p' /proc/self/status)
mount --make-rprivate /
hostname "\$node"
mount -t sysfs sysfs /sys
mount --bind "$NODES_DIR/hosts" /etc/hosts
mount -t tmpfs -o size=256m tmpfs /dev/shm
mount -t tmpfs -o size=$NODES_DISK_SIZE tmpfs "$NODES_DISK"
# A /tmp of its own, in which the shared folders are still there.
if [[ \$node != n0 ]]; then
    mount -t tmpfs -o size=64m,mode=1777 tmpfs "$NODES_DIR/root"
    for folder in "$WORK" "$SOURCE" "$BUILD"; do
        if [[ \$folder == /tmp/* ]]; then
            mkdir -p "$NODES_DIR/root\${folder#/tmp}"
            mount --rbind "\$folder" "$NODES_DIR/root\${folder#/tmp}"
        fi
    done
    mount --move "$NODES_DIR/root" /tmp
fi
mount -t proc proc /proc
ip link set lo up
echo "\$outer" >"$NODES_DIR/\$node.pid.new"
mv "$NODES_DIR/\$node.pid.new" "$NODES_DIR/\$node.pid"
while :; do
    sleep 1000 &
    wait || true
done
END
    chmod +x "$NODES_DIR/init"
}

# Called by Hydra as ssh -x HOST WORD …
nodes_write_ssh() {
    cat >"$NODES_DIR/ssh" <<END
#!/usr/bin/env bash
while [[ \$1 == -* ]]; do shift; done
node=\$1
shift
silent() { [[ -e "$NODES_DIR/\$node.down" || -e "$NODES_DIR/\$node.paused" ]]; }
while silent; do sleep 1; done
# ssh joins the words too, for a shell on the other side to split.
code=0
nsenter --target "\$(<"$NODES_DIR/\$node.pid")" --all --wd="\$PWD" -- sh -c "\$*" || code=\$?
while silent; do sleep 1; done
exit "\$code"
END
    chmod +x "$NODES_DIR/ssh"
}

node_start() { # NODE
    local node=$1 address=10.77.0.$((${1#n} + 1))
    rm -f "$NODES_DIR/$node".{pid,down,paused}
    node_run n0 ip link delete "v-$node" 2>/dev/null || true
    # In a shell of its own, since this one would report its end.
    (node_run n0 unshare --net --mount --uts --ipc --pid --fork --kill-child "$NODES_DIR/init" "$node" \
        >"$NODES_DIR/$node.log" 2>&1 &)
    nodes_wait_for "$NODES_DIR/$node.pid" || return 1
    node_run n0 sh -c "ip link add v-$node type veth peer name eth0 netns $(<"$NODES_DIR/$node.pid") &&
        ip link set v-$node master eth0 && ip link set v-$node up" &&
        node_run "$node" sh -c "ip address add $address/24 dev eth0 && ip link set eth0 up"
}

node_run() { # NODE WORD …
    local node=$1
    shift
    if [[ $node == n0 ]]; then
        nsenter --target "$NODES_HEAD" --all --wd="$PWD" -- "$@"
    else
        node_run n0 nsenter --target "$(<"$NODES_DIR/$node.pid")" --all --wd="$PWD" -- "$@"
    fi
}

node_kill() {
    : >"$NODES_DIR/$1.down"
    link_cut "$1"
    node_run n0 kill -KILL "$(<"$NODES_DIR/$1.pid")"
}
node_crash() { node_run n0 kill -KILL "$(<"$NODES_DIR/$1.pid")"; }
# All processes but the first, which only root outside could stop.
node_pause() {
    : >"$NODES_DIR/$1.paused"
    node_run "$1" bash -c 'kill -STOP -1'
}
node_continue() {
    rm -f "$NODES_DIR/$1.paused"
    node_run "$1" bash -c 'kill -CONT -1'
    # An nsenter stops with its child.
    node_run n0 pkill -CONT -x nsenter || true
}
link_cut() { node_run n0 ip link set "v-$1" down; }
link_mend() { node_run n0 ip link set "v-$1" up; }
# Both ways.
link_shape() { # NODE QDISC WORD …
    local node=$1
    shift
    node_run n0 tc qdisc replace dev "v-$node" root "$@" && node_run "$node" tc qdisc replace dev eth0 root "$@"
}
link_slow() { link_shape "$1" tbf rate "$2" burst 32kbit latency 400ms; }
link_delay() {
    link_shape "$1" netem delay "$2" 2>/dev/null || {
        echo "this kernel has no netem: no delays"
        return 1
    }
}
link_fast() {
    node_run n0 tc qdisc delete dev "v-$1" root
    node_run "$1" tc qdisc delete dev eth0 root
}
disk_fill() { node_run "$1" sh -c "cat /dev/zero >'$NODES_DISK/filler' 2>/dev/null || true"; }
disk_empty() { node_run "$1" rm -f "$NODES_DISK/filler"; }

nodes_stop() {
    if [[ -z ${NODES_HOLDER:-} ]]; then return; fi
    kill -KILL "$NODES_HOLDER" 2>/dev/null
    wait "$NODES_HOLDER" 2>/dev/null
    NODES_HOLDER=
    # The files are free once the last process is gone.
    local patience=100
    until rm -rf "$NODES_DIR" 2>/dev/null || ((patience-- == 0)); do sleep 0.05; done
}
