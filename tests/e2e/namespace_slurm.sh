#!/bin/bash
# Slurm over namespaces of this machine (network, host name, processes), for engines that containers may not use: munge and
# slurmctld on node0, a slurmd each on node1 and node2.
#
#   unshare --mount --propagation private bash namespace_slurm.sh FOLDER COMMAND...
#
# Runs COMMAND on node0. All see the same files. FOLDER must be short (sockets). The namespaces' names are gone with the
# mount namespace, their processes with this script. FOLDER/into HOST COMMAND... is a remote shell to the nodes. With
# NODE_ENGINES=docker every node has a dockerd of its own under the usual socket, in its own namespaces; with
# NODE_ENGINES=podman it has Podman's images and containers to itself.
set -euo pipefail
folder=$1
shift
mkdir -p /run/netns "$folder/munge"
exec </dev/null
mount -t tmpfs tmpfs /run/netns
holders=()
cgroups=/dynamiccl-$$
made=
leave() {
  pkill -TERM -f "^dockerd --data-root $folder/" || true
  for _ in $(seq 100); do pgrep -f "^dockerd --data-root $folder/" >/dev/null || break; sleep 0.1; done
  [ ! -e "$folder/slurmctld.pid" ] || kill -KILL "$(cat "$folder/slurmctld.pid")" 2>/dev/null || true
  kill -KILL "${holders[@]}" 2>/dev/null || true
  [ -z "$made" ] || { umount "$made"; rmdir "$made"; } || true
  find /sys/fs/cgroup -depth -type d -path "*$cgroups*" -exec rmdir {} + 2>/dev/null || true
}
trap leave EXIT
trap 'exit 143' TERM INT HUP
ip netns add hub
ip -n hub link add bridge0 type bridge
ip -n hub link set bridge0 up

head -c 1024 /dev/urandom >"$folder/munge/key"
chmod 400 "$folder/munge/key"
chown -R munge:munge "$folder/munge"
chmod 755 "$folder/munge" "$folder"
setpriv --reuid munge --regid munge --clear-groups munged --foreground --num-threads=1 --key-file "$folder/munge/key" \
  --socket "$folder/munge/socket" --pid-file "$folder/munge/pid" --log-file "$folder/munge/log" \
  --seed-file "$folder/munge/seed" &
holders+=($!)

export SLURM_CONF=$folder/slurm.conf
cat >"$SLURM_CONF" <<CONF
ClusterName=namespaces
SlurmctldHost=node0(10.88.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
SlurmdParameters=config_overrides
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
TmpFS=$folder/tmp-%n
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd-%n.log
KillWait=2
SchedulerParameters=sched_interval=1,batch_sched_delay=0
NodeName=node1 NodeAddr=10.88.0.2 CPUs=4 State=UNKNOWN
NodeName=node2 NodeAddr=10.88.0.3 CPUs=4 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
mkdir -p "$folder"/{state,spool-node1,spool-node2,tmp-node1,tmp-node2}

# What Podman needs where root may not raise limits and control groups are of both versions.
if [ "${NODE_ENGINES:-}" = podman ]; then
  cat >"$folder/containers.conf" <<CONF
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
CONF
  mkdir -p "$folder"/{node1,node2}-p
  # What Podman writes there goes with the folder where this machine has none.
  if [ ! -e /etc/containers ]; then
    mkdir /etc/containers "$folder/etc-containers"
    made=/etc/containers
    mount --bind "$folder/etc-containers" "$made"
  fi
fi

# What runs on each node dies with its first process; the head has no process numbers of its own, so that it finds the others.
start_node() {
  local n=$1 daemon=$2 apart=(--pid --mount-proc)
  [ "$n" != 0 ] || apart=(--mount)
  ip netns add "n$n"
  ip -n hub link add "v$n" type veth peer name eth0 netns "n$n"
  ip -n hub link set "v$n" master bridge0 up
  ip -n "n$n" link set lo up
  ip -n "n$n" link set eth0 up
  ip -n "n$n" addr add "10.88.0.$((n + 1))/24" dev eth0
  # shellcheck disable=SC2016
  nsenter --net="/run/netns/n$n" unshare --uts "${apart[@]}" --fork --kill-child sh -c \
    'hostname "$1"; for i in 0 1 2; do echo "10.88.0.$((i + 1)) node$i"; done >"$2/hosts.$1"
     mount --bind "$2/hosts.$1" /etc/hosts
     if [ "${NODE_ENGINES:-}" = docker ] && [ "$1" != node0 ]; then
       mount -t tmpfs tmpfs /run
       dockerd --data-root "$2/$1-d" --exec-root "$2/$1-e" --pidfile "/run/docker.pid" --host unix:///run/docker.sock \
         --bridge none --iptables=false --ip-masq=false --cgroup-parent "$4" >"$2/engine-$1.log" 2>&1 &
     elif [ "${NODE_ENGINES:-}" = podman ] && [ "$1" != node0 ]; then
       mount -t tmpfs tmpfs /run
       mount --bind "$2/$1-p" /var/lib/containers
       export CONTAINERS_CONF="$2/containers.conf"
     fi
     "$3" -D >"$2/$1.out" 2>&1 & touch "$2/$1.up"; exec sleep 900' sh \
    "node$n" "$folder" "$daemon" "$cgroups" &
  holders+=($!)
}
start_node 0 slurmctld
start_node 1 slurmd
start_node 2 slurmd
cat >"$folder/on-head" <<HEAD
#!/bin/sh
exec nsenter --target "\$(pgrep -P ${holders[1]})" --net --uts --mount -- "\$@"
HEAD
# node1 is the holder after munged's and node0's.
cat >"$folder/into" <<INTO
#!/bin/sh
case \$1 in
  node1) holder=${holders[2]} ;;
  node2) holder=${holders[3]} ;;
  *) echo "\$1: no such host" >&2; exit 255 ;;
esac
shift
exec nsenter --target "\$(pgrep -P \$holder)" --net --uts --mount --pid -- sh -c "\$*"
INTO
chmod 755 "$folder/on-head" "$folder/into"
if [ "${NODE_ENGINES:-}" = docker ]; then
  for node in node1 node2; do
    for _ in $(seq 200); do "$folder/into" $node docker info >/dev/null 2>&1 && break || sleep 0.1; done
  done
fi
for _ in $(seq 150); do
  [ "$("$folder/on-head" sinfo --noheader --Node --states idle --format %N 2>/dev/null | wc -l)" = 2 ] && break || sleep 0.1
done
"$folder/on-head" "$@"
