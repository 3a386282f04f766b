#!/bin/sh
# apart.sh /tmp/FOLDER COMMAND...: runs a test apart from everybody else of this machine, where that may be done: it sees its own
# processes, shared memory and /tmp (FOLDER, which goes with it) alone, nobody else's sweep reaches what it starts, and its processes end
# with it. Containers know nothing of such a /tmp: tests of engines are not for this.
# Its network is its own as well: lo, and an eth0 with this host's addresses. Containers that come and go elsewhere make and remove
# interfaces all the time, and a library that opens one which is gone (UCX: "No such device") fails its launch. /sys shows the
# interfaces of the network it was mounted in, so it is mounted anew.
folder=$1
shift
# Texts are compared as they are for anybody.
unset COLUMNS LINES
apart="--pid --ipc --fork --kill-child --mount --mount-proc"
if ! unshare $apart true 2>/dev/null; then
  echo "apart.sh: no namespaces of its own here, the test shares processes and /tmp with others" >&2
  exec "$@"
fi
rm -rf "$folder"
mkdir -p "$folder" && chmod 1777 "$folder" || exit 1
# Addresses that this host has elsewhere, as its own name may be any of them; first that of the way out, none of engines' bridges.
device=$(ip -4 route show default 2>/dev/null | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1)
addresses=$(for of in "${device:-none}" ''; do ip -o address show ${of:+dev $of} scope global 2>/dev/null; done |
  awk '$2 !~ /^(docker|br-|veth)/ && $3 ~ /^inet/ { print $4 }')
addresses=${addresses:-192.0.2.2/24}
export addresses
network='ip link set lo up && ip link add eth0 type veth peer name eth0-end && ip link set eth0-end up && ip link set eth0 up &&
  for address in $addresses; do ip -o address | grep -qF " $address " || ip address add "$address" dev eth0 nodad 2>/dev/null || exit 1; done &&
  ip route add default dev eth0 &&
  mount --rbind /sys/fs/cgroup /mnt && mount -t sysfs sysfs /sys && mount --move /mnt /sys/fs/cgroup'
if unshare --mount --net sh -c "$network" 2>/dev/null; then
  apart="$apart --net"
else
  echo "apart.sh: no network of its own here, the test shares interfaces with others" >&2
  network=true
fi
# The first process of the namespace is a shell that stays: it collects whom nobody waits for. Standing in the old /tmp it can still
# remove the folder.
exec unshare $apart sh -c "$network"' || exit 1
  unset addresses
  folder=$0
  here=$PWD
  cd /tmp && mount -t tmpfs -o mode=1777 tests /dev/shm || exit 1
  # What is built may itself lie in /tmp, and is needed.
  # Names of others may then be seen there: what asks for a place of its own is given the folder.
  case "$1 $here/" in *"/tmp/"*) TMPDIR=$folder; export TMPDIR ;; *) mount --bind "$folder" /tmp || exit 1 ;; esac
  (cd "$here" && exec "$@")
  code=$?
  rm -rf "${folder##*/}"
  exit "$code"' "$folder" "$@"
