#!/bin/bash
# Hosts node1 and node2 as namespaces of this machine (network and host name), for engines that containers may not use.
#
#   [NODES=2] [RATE=200mbit] unshare --mount --propagation private bash namespace_hosts.sh FOLDER LOGIN_SHELL COMMAND...
#
# With RATE each node's link sends and receives no faster than that (token buckets, as of the profiles' `link`).
# Runs COMMAND on a third one, with FOLDER/into in ssh's place, which hands its words to LOGIN_SHELL as sshd does. The
# namespaces' names are gone with the mount namespace, their processes with this script.
set -euo pipefail
folder=$1
login_shell=$2
shift 2
nodes=${NODES:-2}
mkdir -p /run/netns
mount -t tmpfs tmpfs /run/netns
# MPICH's proxies call the launcher's host by name.
cp /etc/hosts "$folder/hosts"
for n in $(seq 0 "$nodes"); do echo "10.88.0.$((n + 1)) node$n" >>"$folder/hosts"; done
mount --bind "$folder/hosts" /etc/hosts
holders=()
trap 'kill "${holders[@]}" 2>/dev/null || true' EXIT
ip netns add hub
ip -n hub link add bridge0 type bridge
ip -n hub link set bridge0 up
for n in $(seq 0 "$nodes"); do
  ip netns add "n$n"
  ip -n hub link add "v$n" type veth peer name eth0 netns "n$n"
  ip -n hub link set "v$n" master bridge0 up
  ip -n "n$n" link set lo up
  ip -n "n$n" link set eth0 up
  ip -n "n$n" addr add "10.88.0.$((n + 1))/24" dev eth0
  if [ -n "${RATE:-}" ] && [ "$n" != 0 ]; then
    # Both ways out of a link: to the node, and from it. A small bucket, so that it carries little of a message of 1 MiB.
    tc -n hub qdisc add dev "v$n" root tbf rate "$RATE" burst 65536b latency 50ms
    tc -n "n$n" qdisc add dev eth0 root tbf rate "$RATE" burst 65536b latency 50ms
  fi
  ip netns exec "n$n" unshare --uts sh -c 'hostname "$1"; echo $$ >"$2.part"; mv "$2.part" "$2"; exec sleep 900' sh \
    "node$n" "$folder/node$n" &
  holders+=($!)
done
for n in $(seq 0 "$nodes"); do
  for _ in $(seq 100); do [ -e "$folder/node$n" ] && break || sleep 0.05; done
done
cat >"$folder/into" <<INTO
#!/bin/sh
[ "\$1" != -x ] || shift # Hydra's, as to ssh
host=\$1
shift
exec nsenter --target "\$(cat "$folder/\$host")" --net --uts -- $login_shell -c "\$*"
INTO
chmod 755 "$folder/into"
nsenter --target "$(cat "$folder/node0")" --net --uts -- "$@"
