#!/bin/bash
# What the boundary between isolated ranks costs NCCL, and what the transport through a shared folder wins back: two ranks
# of one machine in mount, PID, network, IPC and UTS namespaces of their own, joined by a veth pair and one folder.
#   scripts/gpu_boundary.sh OUTPUT_FOLDER PART[=ARGUMENT]...
#   scripts/gpu_boundary.sh OUTPUT_FOLDER check=20000 times=1 ddp=40 kills=10
# check: NCCL's operations, each element checked, on every side, and what they leave taken; cycles: three communicators
# made, used and destroyed so often while one stays, and what that leaves taken (CYCLES=all: none stays, and NCCL would
# forget NCCL_NET_PLUGIN without NCCL_NET_PLUGIN_REF_COUNT=1); times: that many alternated launches of all sides;
# ddp: BERT-Large's step in plain PyTorch DDP (scripts/ddp_steps.py), that many steps; kills: one rank killed in the midst,
# how long until the others are told; jobkills: one rank of a PyTorch job is killed, after how long does the other end by
# itself. MODELS=resnet18,... and DDP_OPTIONS="--workers 4 --seconds 100 ..." narrow and change ddp and jobkills.
# SIDES="sockets host8 ..." narrows the sides: sockets (NCCL's default), sockets8 (2 threads, 8 channels), sockets16 (4
# threads, 4 sockets each, 8 channels), host2, host8, host16 (own GPU visible alone, channels), device2, device8, device16
# (all device nodes; the experiment that may stop for good), a "t" behind these: channels capped per call by the tuner, with
# the table TABLE or its own; tcp8, tcp8t, ... (as host8, host8t, but each rank has a folder of its own, so that the plugin's
# bytes go by TCP); nvlink (not isolated), shm (not isolated, P2P off). SIZES=1024,... narrows the sizes.
# WALL=docker: Docker containers instead of bare namespaces, each with the device node of its own GPU ("device*": of all), a
# bridge, and the folder. RANKS=4: more ranks than GPUs take turns on them (WALL=docker; the sides sockets* and host*).
# GPUS_EACH=2: check with processes that drive as many GPUs each, all of whose nodes they have (WALL=docker). API=10: NCCL finds
# the plugin's network by that version of its interface at most. EXTRA="NAME=VALUE ...": for every rank of every side.
# IDLE=2: times also takes the CPU time of so many seconds without a call. AT_ONCE=8: kills are made in that many jobs beside each other.
# Runs as root with nccl_boundary and libdynamiccl-nccl-plugin.so in build/release (or PROGRAMS=FOLDER) and libnccl.so.2
# where DYNAMICCL_NCCL_LIBRARY says, or PyTorch's.
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,24s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd); shift
cd "$(dirname "$0")/.." && root=$(pwd)
. scripts/gpu_engine.sh
programs=$(cd "${PROGRAMS:-build/release}" && pwd)
ranks=${RANKS:-2} each=${GPUS_EACH:-1} gpus=$(nvidia-smi -L | wc -l) wall=${WALL:-namespaces}
plugin=$programs/libdynamiccl-nccl-plugin.so
export DYNAMICCL_NCCL_LIBRARY=${DYNAMICCL_NCCL_LIBRARY:-$(python3 -c 'import os, nvidia.nccl; print(os.path.join(list(nvidia.nccl.__path__)[0], "lib", "libnccl.so.2"))' 2>/dev/null)}
export NCCL_NVLS_ENABLE=0
work=$(mktemp -d /tmp/boundary-XXXX)
shared=$work/shared
mkdir -m 700 "$shared"
# NCCL takes the newest version that it finds: in this copy the newer ones have other names.
if [ -n "${API:-}" ]; then
  hide=()
  for ((version = API + 1; version <= 11; ++version)); do hide+=(-e "s/ncclNetPlugin_v$version/noneNetPlugin_v$version/g"); done
  sed "${hide[@]}" "$plugin" >"$shared/plugin-v$API.so" && plugin=$shared/plugin-v$API.so
fi
failed=0
holders=()
start=$SECONDS
say() { echo "== $* ($((SECONDS - start)) s)"; }

cleanup() {
  [ ${#holders[@]} -eq 0 ] || kill "${holders[@]}" 2>/dev/null
  engine_down
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

# One container per rank with its own GPU, and one with all device nodes where a side asks for it.
containers() {
  local rank
  local mounts=(--volume "$programs:$programs:ro" --volume "$root/scripts:$root/scripts:ro" --volume "$shared:$shared")
  engine_up || { tail -n 5 "$engine/log"; return 1; }
  for ((rank = 0; rank < ranks; ++rank)); do
    engine_container "own$rank" $((10 + rank)) $((rank % gpus)) "${mounts[@]}" || return 1
    case " ${SIDES:-device} $each" in *" device"* | *[!1])
      engine_container "all$rank" $((110 + rank)) "$(seq -s, 0 $((gpus - 1)))" "${mounts[@]}" || return 1 ;;
    esac
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

folder_variables() { # CHANNELS
  echo "NCCL_NET_PLUGIN=$plugin NCCL_NET_PLUGIN_REF_COUNT=1 NCCL_NET=DynamICCL DYNAMICCL_SHARED_FOLDER=$shared NCCL_MIN_CTAS=$1 NCCL_MAX_CTAS=$1"
}
side_variables() { # SIDE: NAME=VALUE lines
  case $1 in
    sockets8) echo NCCL_SOCKET_NTHREADS=2 NCCL_MIN_CTAS=8 NCCL_MAX_CTAS=8 ;;
    sockets16) echo NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=4 NCCL_MIN_CTAS=8 NCCL_MAX_CTAS=8 ;;
    shm) echo NCCL_P2P_DISABLE=1 ;;
    tcp*) echo "$(side_variables "host${1#tcp}")" ;;
    host*t) echo "$(folder_variables "${1//[!0-9]/}") NCCL_TUNER_PLUGIN=$plugin ${TABLE:+DYNAMICCL_TUNER_TABLE=$TABLE}" ;;
    host*) echo "$(folder_variables "${1#host}") NCCL_TUNER_PLUGIN=none" ;;
    device*t) echo "$(side_variables "${1%t}") NCCL_TUNER_PLUGIN=$plugin ${TABLE:+DYNAMICCL_TUNER_TABLE=$TABLE}" ;;
    device*) echo "$(folder_variables "${1#device}") NCCL_NET_GDR_LEVEL=SYS DYNAMICCL_TRANSPORT_DEVICE=1 CUDA_MODULE_LOADING=EAGER ${DEVICE_VARIABLES:-}" ;;
  esac
}

# One rank of a side behind its wall.
isolated_rank() { # RANK DEVICES(own|all) SECONDS VARIABLE=VALUE... -- COMMAND...
  local rank=$1 devices=$2 seconds=$3 variables=(); shift 3
  while [ "$1" != -- ]; do variables+=("$1"); shift; done
  shift
  if [ "$wall" = docker ]; then
    local settings=() variable first=10
    [ "$devices" = own ] || first=110
    if [ "$each" != 1 ]; then variables+=("LOCAL_GPUS=$each"); elif [ "$devices" = all ]; then
      variables+=("CUDA_VISIBLE_DEVICES=$((rank % gpus))")
    fi
    for variable in "${variables[@]}" NCCL_SOCKET_IFNAME=eth0 "MASTER_ADDR=$engine_subnet.$first" "RANK=$rank" LOCAL_RANK=0 \
      "WORLD_SIZE=$ranks" "DYNAMICCL_NCCL_LIBRARY=$DYNAMICCL_NCCL_LIBRARY" "PATH=$PATH"; do settings+=(--env "$variable"); done
    docker exec "${settings[@]}" "$devices$rank" timeout -k 2 "$seconds" "$@"
  else
    env "${variables[@]}" timeout -k 2 "$seconds" nsenter -t "${holders[$rank]}" -n \
      unshare -m -p -f -i -u --kill-child bash "$work/rank.sh" "$rank" "$devices" "$@"
  fi
}

# Starts all ranks of a side, waits; the ranks' output in $place/0, $place/1, ...
ranks() { # SIDE SECONDS COMMAND...
  local side=$1 seconds=$2; shift 2
  local rank pids=() code=0 variables devices=own
  read -ra variables <<<"$(side_variables "$side")"
  case $side in device*) devices=all ;; esac
  [ "$each" = 1 ] || devices=all
  port=$((${port:-29600} + 1))
  for ((rank = 0; rank < ranks; ++rank)); do
    case $side in tcp*)
      mkdir -p -m 700 "$shared/own$rank"
      variables+=("DYNAMICCL_SHARED_FOLDER=$shared/own$rank") ;;
    esac
    if [ "$side" = nvlink ] || [ "$side" = shm ]; then
      env "${variables[@]}" ${EXTRA:-} RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        timeout -k 2 "$seconds" "$@" >"$place/$rank" 2>"$place/$rank.log" &
    else
      isolated_rank $rank $devices "$seconds" "${variables[@]}" ${EXTRA:-} MASTER_PORT=$port -- "$@" >"$place/$rank" 2>"$place/$rank.log" &
    fi
    pids+=($!)
  done
  for rank in "${!pids[@]}"; do wait "${pids[$rank]}" || code=$?; done
  if [ $code != 0 ]; then
    say "$side: exit code $code"
    for rank in "${!pids[@]}"; do tail -n "${FAIL_LINES:-4}" "$place/$rank" "$place/$rank.log"; done
  fi
  return $code
}
place=$work
new_id() { id=$shared/id.$((ids = ${ids:-0} + 1)); }

check() { # OPERATIONS
  local side
  for side in ${SIDES:-sockets host2 host8 device8}; do
    operations "$side" check "$1"
  done
}
cycles() { # CYCLES
  local side
  for side in ${SIDES:-sockets host8}; do
    operations "$side" cycles "$1"
  done
}
operations() { # SIDE VERB NUMBER
  local side=$1 verb=$2 said loaded left which=()
  new_id
  if [ "$verb" = cycles ] && [ "${CYCLES:-}" = all ]; then which=(all); fi
  # The log says which version of the interface NCCL took; standard output is the program's own.
  EXTRA="${EXTRA:-} NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET NCCL_DEBUG_FILE=$shared/nccl.%h.%p" \
    ranks "$side" "${CHECK_SECONDS:-60}" "$programs/nccl_boundary" --id "$id" "$verb" "$3" "${SEED:-1}" "${which[@]}" || failed=1
  said=$(for ((rank = 0; rank < ranks; ++rank)); do cat "$work/$rank"; done | paste -sd,)
  loaded=$(cat "$shared"/nccl.* 2>/dev/null | grep -ohE 'Loaded net plugin .*|Using network .*' | sort | uniq -c | tr -s ' ' | paste -sd';' | tr -d '"')
  cp "$shared"/nccl.* "$out/" 2>/dev/null
  rm -f "$shared"/nccl.*
  left=$(find "$shared" -name 'dynamiccl-*' | wc -l)
  say "$verb $side: $said; files left in the folder: $left; NCCL:$loaded"
  [ "$left" = 0 ] || failed=1
  echo "{\"what\": \"$verb\", \"side\": \"$side\", \"wall\": \"$wall\", \"gpus_each\": $each, \"extra\": $(printf %s "${EXTRA:-}" | python3 -c 'import json, sys; print(json.dumps(sys.stdin.read()))'), \"nccl\": \"$loaded\", \"files_left\": $left, \"ranks\": [$said]}" >>"$out/check.jsonl"
}
times() { # LAUNCHES
  local side launch
  for ((launch = 0; launch < $1; ++launch)); do
    for side in ${SIDES:-sockets sockets8 sockets16 host2 host8 device2 device8 device16 shm nvlink}; do
      new_id
      ranks "$side" "${TIME_SECONDS:-40}" "$programs/nccl_boundary" --id "$id" time "${CALLS:-100}" \
        "${SIZES:-1024,65536,1048576,4194304,16777216,67108864,268435456}" "${IDLE:-0}" || { failed=1; continue; }
      echo "{\"side\": \"$side\", \"wall\": \"$wall\", \"launch\": $launch, \"rank0\": $(cat "$work/0")}" >>"$out/times.jsonl"
      say "$side $(cat "$work/0")"
    done
  done
}
ddp() { # STEPS
  local side launch left
  for ((launch = 0; launch < ${LAUNCHES:-1}; ++launch)); do
    for side in ${SIDES:-sockets sockets8 host8 device8 nvlink}; do
      ranks "$side" "${DDP_SECONDS:-90}" python3 "$root/scripts/ddp_steps.py" --label "$side" --models "${MODELS:-bert-large}" --steps "$1" --warmup 5 ${DDP_OPTIONS:-} || failed=1
      left=$(find "$shared" -name 'dynamiccl-*' | wc -l)
      [ "$left" = 0 ] || failed=1
      python3 -c 'import json, sys
for line in sys.stdin: print(json.dumps({**json.loads(line), "options": sys.argv[1], "files_left": int(sys.argv[2])}))' \
        "${DDP_OPTIONS:-}" "$left" <"$work/0" >>"$out/ddp.jsonl" || failed=1
      say "ddp $side $(cat "$work/0"); files left in the folder: $left"
    done
  done
}
one_kill() { # SIDE VICTIM SECONDS: the exit code of ranks(): 0 when every survivor was told
  ranks "$1" 60 bash -c '"$@" & child=$!; [ "$RANK" != '"$2"' ] || { sleep '"$3"'; echo "killed $(date +%s.%N)"; kill -9 $child; exit 0; }; wait $child; code=$?; echo "survivor: code $code"; [ $code = 10 ]' \
    _ "$programs/nccl_boundary" --id "$id" loop
}
kills() { # KILLS
  local side i told jobs job after
  for side in ${SIDES:-host8 device8}; do
    told=0 jobs=() after=
    for ((i = 0; i < $1; ++i)); do
      new_id
      # The victims die at their own moments, from before the ranks are connected to the midst of their work.
      (place=$work/kill.$i; mkdir -p "$place"; one_kill "$side" $((i % ranks)) $((${KILL_AFTER:-6} + i % 5)).$((i * 37 % 10))) & jobs+=($!)
      [ $(((i + 1) % ${AT_ONCE:-1})) = 0 ] || [ $((i + 1)) = "$1" ] || continue
      for job in "${jobs[@]}"; do wait "$job" && told=$((told + 1)); done
      jobs=()
    done
    # Seconds from a kill until the last survivor was told, least to most.
    after=$(for ((i = 0; i < $1; ++i)); do
      cat "$work/kill.$i"/[0-9]* 2>/dev/null | awk '/^killed /{k=$2} /^told /{if ($2>t) t=$2} END{if (k && t) printf "%.2f\n", t-k}'
    done | sort -n | paste -sd,)
    say "kills $side: in $told of $1 every survivor was told by ncclCommGetAsyncError; seconds after the kill: $after"
    echo "$after" | tr ',' '\n' | awk '$1 > 10 {late = 1} END {exit late}' || failed=1
    echo "{\"side\": \"$side\", \"wall\": \"$wall\", \"ranks\": $ranks, \"kills\": $1, \"told\": $told, \"seconds_after\": [$after], \"files_left\": $(find "$shared" -name 'dynamiccl-*' | wc -l)}" >>"$out/kills.jsonl"
    [ $told = "$1" ] || failed=1
  done
}

# One rank of an unchanged PyTorch job is killed: does the other end by itself, how long after?
one_jobkill() { # SIDE VICTIM SECONDS
  ranks "$1" 150 bash -c '"$@" & child=$!; [ "$RANK" != '"$2"' ] || { sleep '"$3"'; kill -9 $child; date +%s.%N; exit 0; }
    wait $child; code=$?; echo "$(date +%s.%N) $code"; exit $code' \
    _ python3 "$root/scripts/ddp_steps.py" --models "${MODELS:-resnet18}" --steps 1000000 --warmup 5 ${DDP_OPTIONS:-} >/dev/null
}
jobkills() { # KILLS
  local side i
  for side in ${SIDES:-host8t}; do
    for ((i = 0; i < $1; ++i)); do
      (place=$work/jobkill.$i port=$((29700 + i)); mkdir -p "$place"; one_jobkill "$side" $((i % ranks)) $((${KILL_AFTER:-20} + i % 5))) &
      jobs[i]=$!
      [ $(((i + 1) % ${AT_ONCE:-1})) = 0 ] || [ $((i + 1)) = "$1" ] || continue
      wait "${jobs[@]}"; jobs=()
    done
    for ((i = 0; i < $1; ++i)); do
      python3 - "$side" "$wall" $((i % ranks)) "$work/jobkill.$i" "$ranks" "$(find "$shared" -name 'dynamiccl-*' | wc -l)" <<'PYTHON' | tee -a "$out/jobkills.jsonl" || failed=1
import json, sys
side, wall, victim, place, ranks, left = sys.argv[1:]
text = lambda rank, suffix="": open(f"{place}/{rank}{suffix}", errors="replace").read()
killed = float(text(victim).split()[-1])
for rank in range(int(ranks)):
    if rank != int(victim):
        ended, code = text(rank).split()[-2:] if len(text(rank).split()) >= 2 else ("nan", "-1")
        said = [line for line in text(rank, ".log").splitlines() if "rror" in line]
        print(json.dumps({"side": side, "wall": wall, "victim": int(victim), "survivor": rank, "exit_code": int(code),
                          "seconds_after": round(float(ended) - killed, 2), "files_left": int(left), "said": said[0][:300] if said else ""}))
PYTHON
    done
    say "jobkills $side; files left: $(find "$shared" -name 'dynamiccl-*' | wc -l)"
  done
}

nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader
if [ "$wall" = docker ]; then
  containers || { echo "no containers: run as root with dockerd" >&2; exit 2; }
else
  [ "$ranks" = 2 ] || { echo "RANKS=$ranks needs WALL=docker" >&2; exit 2; }
  networks || { echo "no network namespaces: run as root with iproute2" >&2; exit 2; }
fi
for part in "$@"; do
  case ${part%%=*} in
    check | cycles | times | ddp | kills | jobkills) "${part%%=*}" "${part#*=}" ;;
    *) echo "no part \"$part\"; known: check, cycles, times, ddp, kills, jobkills" >&2; failed=1 ;;
  esac
done
say "end; left in the folder: $(find "$shared" -name 'dynamiccl-*' | wc -l)"
exit $failed
