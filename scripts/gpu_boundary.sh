#!/bin/bash
# What the boundary between isolated ranks costs NCCL, and what the transport through a shared folder wins back: two ranks
# of one machine in mount, PID, network, IPC and UTS namespaces of their own, joined by a veth pair and one folder.
#   scripts/gpu_boundary.sh OUTPUT_FOLDER PART[=ARGUMENT]...
#   scripts/gpu_boundary.sh OUTPUT_FOLDER check=20000 times=1 ddp=40 kills=10
# check: NCCL's operations, each element checked, on every side; times: that many alternated launches of all sides;
# ddp: BERT-Large's step in plain PyTorch DDP (scripts/ddp_steps.py), that many steps; kills: one rank killed in the midst.
# SIDES="sockets host8 ..." narrows the sides: sockets (NCCL's default), sockets8 (2 threads, 8 channels), sockets16 (4
# threads, 4 sockets each, 8 channels), host2, host8, host16 (own GPU visible alone, channels), device2, device8, device16
# (all device nodes; the experiment that may stop for good), a "t" behind these: channels capped per call by the tuner with
# the table TABLE; nvlink (not isolated), shm (not isolated, P2P off). SIZES=1024,... narrows the sizes.
# Runs as root with nccl_boundary and libdynamiccl-nccl-plugin.so in build/release (or PROGRAMS=FOLDER) and libnccl.so.2
# where DYNAMICCL_NCCL_LIBRARY says, or PyTorch's.
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd); shift
cd "$(dirname "$0")/.." && root=$(pwd)
programs=${PROGRAMS:-$root/build/release}
plugin=$programs/libdynamiccl-nccl-plugin.so
export DYNAMICCL_NCCL_LIBRARY=${DYNAMICCL_NCCL_LIBRARY:-$(python3 -c 'import os, nvidia.nccl; print(os.path.join(list(nvidia.nccl.__path__)[0], "lib", "libnccl.so.2"))' 2>/dev/null)}
export NCCL_NVLS_ENABLE=0
work=$(mktemp -d /tmp/boundary-XXXX)
shared=$work/shared
mkdir -m 700 "$shared"
failed=0
holders=()
start=$SECONDS
say() { echo "== $* ($((SECONDS - start)) s)"; }

cleanup() {
  [ ${#holders[@]} -eq 0 ] || kill "${holders[@]}" 2>/dev/null
  rm -rf "$work"
}
trap cleanup EXIT

# One network namespace per rank, held by a sleeping process.
networks() {
  local rank
  for rank in 0 1; do
    unshare -n sleep 3600 & holders+=($!)
  done
  sleep 0.3
  ip link add dynb0 type veth peer name dynb1 || return 1
  for rank in 0 1; do
    ip link set "dynb$rank" netns "${holders[$rank]}"
    nsenter -t "${holders[$rank]}" -n sh -c "ip link set lo up; ip addr add 10.213.77.1$rank/24 dev dynb$rank; ip link set dynb$rank up"
  done
}

# Becomes the rank: own mounts, /dev/shm and, for "own", the device node of one GPU alone.
cat >"$work/rank.sh" <<'RANK'
rank=$1 devices=$2; shift 2
hostname "rank$rank"
mount --make-rprivate /
mount -t proc proc /proc
if [ "$devices" = own ]; then
  new=$(mktemp -d); mount -t tmpfs tmpfs "$new"
  for node in null zero full random urandom nvidiactl nvidia-uvm nvidia-uvm-tools "nvidia$rank"; do
    [ ! -e "/dev/$node" ] || cp -a "/dev/$node" "$new/"
  done
  mkdir "$new/shm"; mount --bind "$new" /dev
  # CUDA makes the nodes that it misses, where it may.
  mount -o remount,bind,ro /dev
else
  export CUDA_VISIBLE_DEVICES=$rank
fi
mount -t tmpfs tmpfs /dev/shm
export NCCL_SOCKET_IFNAME=dynb$rank MASTER_ADDR=10.213.77.10 RANK=$rank LOCAL_RANK=0 WORLD_SIZE=2
exec "$@"
RANK

side_variables() { # SIDE: NAME=VALUE lines
  case $1 in
    sockets8) echo NCCL_SOCKET_NTHREADS=2 NCCL_MIN_CTAS=8 NCCL_MAX_CTAS=8 ;;
    sockets16) echo NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=4 NCCL_MIN_CTAS=8 NCCL_MAX_CTAS=8 ;;
    shm) echo NCCL_P2P_DISABLE=1 ;;
    host*t) echo "$(side_variables "${1%t}") NCCL_TUNER_PLUGIN=$plugin DYNAMICCL_TUNER_TABLE=${TABLE:-}" ;;
    host*) echo "NCCL_NET_PLUGIN=$plugin NCCL_NET=DynamICCL DYNAMICCL_SHARED_FOLDER=$shared NCCL_MIN_CTAS=${1#host} NCCL_MAX_CTAS=${1#host}" ;;
    device*t) echo "$(side_variables "${1%t}") NCCL_TUNER_PLUGIN=$plugin DYNAMICCL_TUNER_TABLE=${TABLE:-}" ;;
    device*) echo "NCCL_NET_PLUGIN=$plugin NCCL_NET=DynamICCL DYNAMICCL_SHARED_FOLDER=$shared NCCL_MIN_CTAS=${1#device} NCCL_MAX_CTAS=${1#device} NCCL_NET_GDR_LEVEL=SYS DYNAMICCL_TRANSPORT_DEVICE=1 CUDA_MODULE_LOADING=EAGER ${DEVICE_VARIABLES:-}" ;;
  esac
}

# Starts both ranks of a side, waits; the ranks' output in $work/0 and $work/1.
ranks() { # SIDE SECONDS COMMAND...
  local side=$1 seconds=$2; shift 2
  local rank pids=() code=0 variables devices=all
  read -ra variables <<<"$(side_variables "$side")"
  case $side in host*) devices=own ;; esac
  port=$((${port:-29600} + 1))
  for rank in 0 1; do
    if [ "$side" = nvlink ] || [ "$side" = shm ]; then
      env "${variables[@]}" ${EXTRA:-} RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        timeout -k 2 "$seconds" "$@" >"$work/$rank" 2>"$work/$rank.log" &
    else
      env "${variables[@]}" ${EXTRA:-} MASTER_PORT=$port timeout -k 2 "$seconds" nsenter -t "${holders[$rank]}" -n \
        unshare -m -p -f -i -u --kill-child bash "$work/rank.sh" $rank $devices "$@" >"$work/$rank" 2>"$work/$rank.log" &
    fi
    pids+=($!)
  done
  for rank in 0 1; do wait "${pids[$rank]}" || code=$?; done
  if [ $code != 0 ]; then
    say "$side: exit code $code"
    for rank in 0 1; do tail -n "${FAIL_LINES:-4}" "$work/$rank" "$work/$rank.log"; done
  fi
  return $code
}
new_id() { id=$shared/id.$((ids = ${ids:-0} + 1)); }

check() { # OPERATIONS
  local side
  for side in ${SIDES:-sockets host2 host8 device8}; do
    new_id
    ranks "$side" "${CHECK_SECONDS:-60}" "$programs/nccl_boundary" --id "$id" check "$1" "${SEED:-1}" || failed=1
    say "check $side: $(cat "$work/0") $(cat "$work/1")"
    echo "{\"side\": \"$side\", \"ranks\": [$(cat "$work/0"), $(cat "$work/1")]}" >>"$out/check.jsonl"
  done
}
times() { # LAUNCHES
  local side launch
  for ((launch = 0; launch < $1; ++launch)); do
    for side in ${SIDES:-sockets sockets8 sockets16 host2 host8 device2 device8 device16 shm nvlink}; do
      new_id
      ranks "$side" "${TIME_SECONDS:-40}" "$programs/nccl_boundary" --id "$id" time "${CALLS:-100}" \
        "${SIZES:-1024,65536,1048576,4194304,16777216,67108864,268435456}" || { failed=1; continue; }
      echo "{\"side\": \"$side\", \"launch\": $launch, \"rank0\": $(cat "$work/0")}" >>"$out/times.jsonl"
      say "$side $(cat "$work/0")"
    done
  done
}
ddp() { # STEPS
  local side launch
  for ((launch = 0; launch < ${LAUNCHES:-1}; ++launch)); do
    for side in ${SIDES:-sockets sockets8 host8 device8 nvlink}; do
      ranks "$side" "${DDP_SECONDS:-90}" python3 "$root/scripts/ddp_steps.py" --label "$side" --models "${MODELS:-bert-large}" --steps "$1" --warmup 5 ||
        failed=1
      cat "$work/0" >>"$out/ddp.jsonl"
      say "ddp $side $(cat "$work/0")"
    done
  done
}
kills() { # KILLS
  local side i victim pids rank code told
  for side in ${SIDES:-host8 device8}; do
    told=0
    for ((i = 0; i < $1; ++i)); do
      new_id
      victim=$((i % 2))
      ranks "$side" 40 bash -c '"$@" & child=$!; [ "$RANK" != '$victim' ] || { sleep '$((6 + i % 3))'; kill -9 $child; exit 0; }; begin=$SECONDS; wait $child; code=$?; echo "survivor: code $code"; [ $code = 10 ]' \
        _ "$programs/nccl_boundary" --id "$id" loop && told=$((told + 1))
    done
    say "kills $side: $told of $1 survivors were told by ncclCommGetAsyncError"
    echo "{\"side\": \"$side\", \"kills\": $1, \"told\": $told, \"files_left\": $(find "$shared" -name 'dynamiccl-*' | wc -l)}" >>"$out/kills.jsonl"
    [ $told = "$1" ] || failed=1
  done
}

nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader
networks || { echo "no network namespaces: run as root with iproute2" >&2; exit 2; }
for part in "$@"; do
  case ${part%%=*} in
    check | times | ddp | kills) "${part%%=*}" "${part#*=}" ;;
    *) echo "no part \"$part\"; known: check, times, ddp, kills" >&2; failed=1 ;;
  esac
done
say "end; left in the folder: $(find "$shared" -name 'dynamiccl-*' | wc -l)"
exit $failed
