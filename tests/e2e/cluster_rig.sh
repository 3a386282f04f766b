#!/bin/bash
# A cluster on one machine: containers as nodes, with real munge, slurmctld, slurmd and sshd.
#
#   cluster_rig.sh up FOLDER NODES BIND...   a head (slurmctld, where programs are started) and node1 to nodeN
#   cluster_rig.sh exec FOLDER HOST CMD...   runs a command in one of them, in the folder shared by all
#   cluster_rig.sh cut FOLDER NODE RATE      caps a node's link, "500mbit"; "off" lifts the cap
#   cluster_rig.sh delay FOLDER NODE RATE    makes each packet of a node's link wait as at that rate; "off"
#   cluster_rig.sh blackhole FOLDER NODE add|del OTHER   takes a node's way to another, or gives it back
#   cluster_rig.sh kill FOLDER NODE          ends a node at once, as a power cut would
#   cluster_rig.sh down FOLDER               leaves nothing
#
# FOLDER must be short (sockets). Its dockerd has a network namespace of its own, so that it meets no
# other engine of this machine; the nodes' files are this machine's /usr, read-only, and a copy of
# /etc. Each BIND is visible in every node under its own path. No node is privileged.
set -euo pipefail

command=$1
folder=$2
shift 2
export DOCKER_HOST="unix://$folder/s.sock"
image=dynamiccl-rig:1
shared=$folder/shared

start_engine() {
  mkdir -p "$folder" "$shared"
  # ip_forward is its own namespace's.
  unshare --net setsid dockerd --data-root "$folder/data" --exec-root "$folder/exec" \
    --host "$DOCKER_HOST" --pidfile "$folder/pid" >"$folder/dockerd.log" 2>&1 &
  for _ in $(seq 2400); do
    docker info >/dev/null 2>&1 && return 0
    sleep 0.05
  done
  tail -5 "$folder/dockerd.log" >&2
  return 1
}

write_slurm_conf() {
  local nodes=$1 file=$2
  cat >"$file" <<CONF
ClusterName=rig
SlurmctldHost=head
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
SlurmdParameters=config_overrides
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
SlurmdTimeout=20
InactiveLimit=0
KillWait=2
MinJobAge=30
SchedulerParameters=sched_interval=1,batch_sched_delay=0
TopologyPlugin=topology/tree
NodeName=node[1-$nodes] CPUs=4 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes=ALL MaxTime=1 State=UP
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=low Nodes=ALL PriorityTier=1 PreemptMode=CANCEL State=UP
PartitionName=high Nodes=ALL PriorityTier=10 State=UP
CONF
}

# Two leaf switches below a spine, half of the nodes at each.
write_topology_conf() {
  local nodes=$1 file=$2 half=$((($1 + 1) / 2))
  echo "SwitchName=leaf1 Nodes=node[1-$half]" >"$file"
  [ "$half" -eq "$nodes" ] || echo "SwitchName=leaf2 Nodes=node[$((half + 1))-$nodes]" >>"$file"
  echo "SwitchName=spine Switches=leaf[1-$((nodes > half ? 2 : 1))]" >>"$file"
}

# Links into /usr, which comes from this machine, and an /etc of the cluster's own.
make_image() {
  local root=$folder/root
  mkdir -p "$root"/{usr,sbin,opt,tmp,proc,sys,dev,run/sshd,run/munge,root/.ssh,home,var/{tmp,log/munge,spool/slurmctld,spool/slurmd,lib/munge}}
  chmod 1777 "$root/tmp" "$root/var/tmp"
  for name in bin lib lib64; do ln -sfn "usr/$name" "$root/$name"; done
  : >"$root/sbin/docker-init"  # where the engine puts its init; /usr is read-only
  cp -a /etc "$root/etc"
  mkdir -p "$root/etc/slurm" "$root/etc/munge" "$root/etc/ssh/ssh_config.d"
  write_slurm_conf "$1" "$root/etc/slurm/slurm.conf"
  write_topology_conf "$1" "$root/etc/slurm/topology.conf"
  head -c 1024 /dev/urandom >"$root/etc/munge/munge.key"
  chmod 400 "$root/etc/munge/munge.key"
  chown -R munge:munge "$root"/{etc/munge,run/munge,var/lib/munge,var/log/munge}
  rm -f "$root"/etc/ssh/ssh_host_*
  ssh-keygen -q -t ed25519 -N '' -f "$root/etc/ssh/ssh_host_ed25519_key"
  ssh-keygen -q -t ed25519 -N '' -f "$root/root/.ssh/id_ed25519"
  cp "$root/root/.ssh/id_ed25519.pub" "$root/root/.ssh/authorized_keys"
  chmod 700 "$root/root/.ssh"
  printf 'Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n' \
    >"$root/etc/ssh/ssh_config.d/rig.conf"
  cat >"$root/start-node" <<'START'
#!/bin/sh
mkdir -p /run/munge /run/sshd
chown munge:munge /run/munge
setpriv --reuid munge --regid munge --clear-groups munged --num-threads=1
case $(hostname) in
  head) slurmctld ;;
  *) slurmd && /usr/sbin/sshd ;;
esac
touch /run/node-is-up
exec sleep infinity
START
  chmod 755 "$root/start-node"
  tar -C "$root" --numeric-owner -c . | docker import - "$image" >/dev/null
  rm -rf "$root"
}

start_node() {
  local name=$1
  shift
  local binds=()
  for bind in "$@"; do binds+=(--volume "$bind:$bind"); done
  docker run --detach --init --name "$name" --hostname "$name" --network rig \
    --cap-add SYS_PTRACE --shm-size 256m --workdir "$shared" \
    --env OMPI_ALLOW_RUN_AS_ROOT=1 --env OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    --volume /usr:/usr:ro --volume /opt:/opt:ro --volume "$shared:$shared" "${binds[@]}" \
    "$image" /start-node >/dev/null
}

up() {
  local nodes=$1
  shift
  start_engine
  make_image "$nodes"
  docker network create --subnet 172.29.0.0/24 rig >/dev/null
  local started=()
  for name in head $(seq -f 'node%.0f' "$nodes"); do
    start_node "$name" "$@" &
    started+=($!)
  done
  for one in "${started[@]}"; do wait "$one"; done
  for _ in $(seq 1200); do
    local idle
    idle=$(docker exec head sinfo --noheader --Node --partition main --states idle --format %N 2>/dev/null | wc -l || true)
    [ "$idle" = "$nodes" ] && return 0
    sleep 0.1
  done
  docker exec head sinfo >&2 || true
  for name in $(seq -f 'node%.0f' "$nodes"); do
    docker logs "$name" 2>&1 | tail -3 >&2
    docker exec "$name" tail -3 /var/log/slurmd.log >&2 || true
  done
  return 1
}

down() {
  [ -e "$folder/s.sock" ] && docker ps -aq | xargs -r docker rm --force >/dev/null 2>&1 || true
  if [ -e "$folder/pid" ]; then
    local pid
    pid=$(cat "$folder/pid")
    kill "$pid" 2>/dev/null || true
    for _ in $(seq 200); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.05
    done
  fi
  awk -v below="$folder/" 'index($5, below) == 1 {print $5}' /proc/self/mountinfo | sort -r |
    while read -r mount; do umount "$mount" 2>/dev/null || true; done
  rm -rf "$folder"
}

# A node's link has two ends, each of which shapes what it sends: the engine's, which is the interface
# with the number that the node's eth0 names, and the node's own.
cut_link() {
  local number engine inside name
  number=$(docker exec "$1" cat /sys/class/net/eth0/iflink)
  inside=$(docker inspect --format '{{.State.Pid}}' "$1")
  engine=$(cat "$folder/pid")
  name=$(nsenter --target "$engine" --net ip -o link | awk -F': ' -v n="$number" '$1 == n {sub(/@.*/, "", $2); print $2}')
  shape_end "$engine" "$name" "$2" "$3"
  shape_end "$inside" eth0 "$2" "$3"
}

shape_end() {
  nsenter --target "$1" --net tc qdisc del dev "$2" root 2>/dev/null || true
  [ "$3" = off ] && return 0
  nsenter --target "$1" --net tc qdisc add dev "$2" root tbf rate "$3" burst "$4" latency 50ms
}

case $command in
  up) up "$@" ;;
  down) down ;;
  exec)
    host=$1
    shift
    exec docker exec --workdir "$shared" "$host" "$@"
    ;;
  cut) cut_link "$1" "$2" 256kb ;;
  delay) cut_link "$1" "$2" 1540b ;;
  blackhole)
    address=$(docker inspect --format '{{.NetworkSettings.Networks.rig.IPAddress}}' "$3")
    nsenter --target "$(docker inspect --format '{{.State.Pid}}' "$1")" --net ip route "$2" blackhole "$address/32"
    ;;
  kill) docker kill "$1" >/dev/null ;;
  revive) docker start "$1" >/dev/null ;;
  *)
    echo "cluster_rig.sh: $command: no such command" >&2
    exit 2
    ;;
esac
