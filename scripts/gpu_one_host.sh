#!/bin/bash
# Ranks of NCCL in Docker containers of their own (PID, IPC, UTS, mount and network namespaces, a bridge) that share one tmpfs
# folder: whether they are one host with libdynamiccl-onehost.so, with the recipe of docs/one-host.md, and without, and how fast.
#   scripts/gpu_one_host.sh OUTPUT_FOLDER SECONDS PART[=NUMBER]...
#   RANKS=4 scripts/gpu_one_host.sh OUTPUT_FOLDER 540 sizes=10 steps=5        as many containers with a GPU each (2); the other parts have two
#   scripts/gpu_one_host.sh OUTPUT_FOLDER 540 record matrix sizes=10 steps=5 endure=1000000 train=5000 restarts kills=40
# record    which of NCCL's calls come to the library, by the loader's word
# matrix    {the machine's NCCL, PyTorch's} x {cuMem default, 0} x {own, all, unequal device nodes} x {library, recipe, none}: every
#           kind of call, each element checked
# sizes=N   all-reduce from 1 KiB to 256 MiB, N launches of every side in turn: library with all nodes and with the own one, recipe,
#           and not isolated, with P2P and with NCCL's shared memory; sockets once
# steps=N   DDP steps of plain PyTorch, a decoder of 300 M parameters and BERT-Large, N launches of every side in turn
# endure=N  N random operations with all nodes, a fifth with the own one, each element checked
# train=N   N DDP steps of ResNet-18     restarts  torchrun's, after its worker is killed
# communicators=N  made and destroyed N times with the tuner's plugin loaded: NCCL unloads it with the last one, and loads it anew
# kills=N   one rank killed by signal 9, half of them with all nodes, and as many again not isolated
# Parts end, and later ones are left out, where SECONDS do not suffice. LIBRARY=FILE, PROGRAM=FILE: not built here. BUNDLE=FOLDER: an
# offline bundle (scripts/make_offline_bundle.sh), for the container engine and the plugin (else PLUGIN=FILE). NVLink's multicast stays off.
set -uo pipefail
[ $# -ge 3 ] || { sed -n '2,22s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd) || exit 2
end=$((SECONDS + $2)); shift 2
cd "$(dirname "$0")/.." && root=$(pwd) || exit 2
. scripts/gpu_engine.sh
[ -z "${BUNDLE:-}" ] || scripts/unpack_bundle.sh "$BUNDLE" || exit 2
[ ! -d /opt/engine/bin ] || PATH=/opt/engine/bin:$PATH
export PATH NCCL_NVLS_ENABLE=0 ENGINE_SHM=16g
build=$root/build/one_host
program=${PROGRAM:-$build/one_host} library=${LIBRARY:-$build/libdynamiccl-onehost.so}
# A bundle brings them.
[ ! -x "$root/build/release/one_host" ] || program=${PROGRAM:-$root/build/release/one_host}
[ ! -e "$root/build/release/libdynamiccl-onehost.so" ] || library=${LIBRARY:-$root/build/release/libdynamiccl-onehost.so}
plugin=${PLUGIN:-$root/build/release/libdynamiccl-nccl-plugin.so}
work=$(mktemp -d /tmp/one-host-XXXX)
shared=$(mktemp -d /dev/shm/one-host-XXXX) recipe=$(mktemp -d /dev/shm/one-host-recipe-XXXX)
mkdir -p "$build" "$work/ids"
failed=0 port=29500 begun=$SECONDS last=$((${RANKS:-2} - 1))
ranks=$(seq -s ' ' 0 $last)
say() { echo "== $* ($((SECONDS - begun)) s)" | tee -a "$out/log.txt"; }
left() { echo $((end - SECONDS)); }
trap 'engine_down; rm -rf "$work" "$shared" "$recipe"' EXIT

find_nccls() {
  local path
  for path in ${NCCL_LIBRARY:-} /usr/local/cuda/lib64/libnccl.so.2 /usr/local/cuda/lib/libnccl.so.2 $(ldconfig -p | awk '/libnccl\.so\.2/ { print $NF }'); do
    [ ! -e "$path" ] || { machine_nccl=$path; break; }
  done
  torch_nccl=$(python3 -c 'import os, nvidia.nccl; print(os.path.join(list(nvidia.nccl.__path__)[0], "lib", "libnccl.so.2"))' 2>/dev/null)
  machine_nccl=${machine_nccl:-$torch_nccl}
  [ -n "$machine_nccl" ] || { echo "no libnccl.so.2" >&2; exit 2; }
  torch_nccl=${torch_nccl:-$machine_nccl}
}
make_programs() {
  [ -e "$library" ] || gcc -std=gnu11 -O2 -fPIC -shared -fvisibility=hidden -fno-delete-null-pointer-checks -o "$library" \
    onehost/onehost.c -Wl,--no-as-needed -l:libdl.so.2 -Wl,-z,now || exit 2
  if [ ! -x "$program" ]; then
    local header
    header=$(find -L "$(dirname "$machine_nccl")/../include" /usr/local/cuda/include /usr/include "$(dirname "$torch_nccl")/../include" \
      -maxdepth 2 -name nccl.h 2>/dev/null | head -n 1)
    nvcc -std=c++17 -O2 -gencode=arch=compute_90,code=sm_90 -I"$(dirname "$header")" -o "$program" scripts/one_host.cu \
      -L"$(dirname "$machine_nccl")" -l:libnccl.so.2 || exit 2
  fi
}
# own0, own1, all0, all1 have the folder; recipe-own0, ... have their /dev/shm in common.
containers() {
  local rank kind gpus
  engine_up || { tail -n 5 "$engine/log"; return 1; }
  for rank in $ranks; do
    for kind in own all; do
      gpus=$rank; [ $kind = own ] || gpus=${ranks// /,}
      engine_container "$kind$rank" "$((rank + (${#gpus} > 1 ? 20 : 10)))" $gpus --volume "$root:$root:ro" --volume "$work/ids:$work/ids" \
        --volume "$shared:/run/job" || return 1
      engine_container "recipe-$kind$rank" "$((rank + (${#gpus} > 1 ? 40 : 30)))" $gpus --volume "$root:$root:ro" \
        --volume "$work/ids:$work/ids" --volume "$recipe:/dev/shm" || return 1
    done
  done
}
address_of() { docker inspect --format '{{(index .NetworkSettings.Networks "gpu-net").IPAddress}}' "$1"; }

# One launch of two ranks. Sets codes, and leaves their output in $place/0, $place/1, their errors in $place/0.log, ...
launch() { # SIDE NODES SECONDS COMMAND...; nodes: bare, own, all, unequal
  local side=$1 nodes=$2 seconds=$3 rank container settings pids=() first
  shift 3
  [ "$seconds" -le "$(left)" ] || seconds=$(left)
  [ "$seconds" -ge 5 ] || { codes="no time"; return 1; }
  port=$((port + 1))
  place=${place:-$work}
  mkdir -p "$place"
  for rank in $ranks; do
    settings=("RANK=$rank" "WORLD_SIZE=$((last + 1))" "MASTER_PORT=$port" "PATH=$PATH" NCCL_NVLS_ENABLE=0 ${EXTRA:-})
    case $nodes in own) container=own$rank ;; all) container=all$rank ;; unequal) container=$([ $rank = 0 ] && echo all0 || echo own1) ;; esac
    case $side in
      library) settings+=("LD_PRELOAD=$library" "DYNAMICCL_SHARED_FOLDER=/run/job${FOLDER:-}") ;;
      recipe) settings+=(NCCL_HOSTID=one-job NCCL_P2P_DISABLE=1 NCCL_CUMEM_HOST_ENABLE=0 NCCL_WIN_ENABLE=0); container=recipe-$container ;;
      shm) settings+=(NCCL_P2P_DISABLE=1) ;;
    esac
    if [ "$nodes" = bare ]; then
      env "${settings[@]}" LD_LIBRARY_PATH="$nccl:${LD_LIBRARY_PATH:-}" LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 \
        timeout -k 2 "$seconds" "$@" >"$place/$rank" 2>"$place/$rank.log" &
    else
      [ $rank = 1 ] || first=$(address_of "$container")
      case $container in *all*) settings+=("CUDA_VISIBLE_DEVICES=$rank") ;; esac
      local flags=() setting
      for setting in "${settings[@]}" "LD_LIBRARY_PATH=$nccl:${LD_LIBRARY_PATH:-}" LOCAL_RANK=0 "MASTER_ADDR=$first" NCCL_SOCKET_IFNAME=eth0; do
        flags+=(--env "$setting")
      done
      docker exec "${flags[@]}" "$container" timeout -k 2 "$seconds" "$@" >"$place/$rank" 2>"$place/$rank.log" &
    fi
    pids+=($!)
  done
  codes=""
  for rank in $ranks; do wait "${pids[$rank]}"; codes+="${codes:+ }$?"; done
  [ -z "${codes//[0 ]/}" ]
}
new_id() { id=$work/ids/id.$((ids = ${ids:-0} + 1)); }
names_left() { find "$shared" "$recipe" -mindepth 1 ! -type d | wc -l; }
# What NCCL's log says of the ways between the ranks, and what the library said.
ways() { cat "$work"/ids/nccl.* 2>/dev/null | grep -ohE 'via [A-Z0-9]+(/[A-Za-z]+)?' | sort | uniq -c | tr -s ' ' | paste -sd, ; rm -f "$work"/ids/nccl.*; }
said() { cat "$work"/[0-9].log 2>/dev/null | grep -h '^dynamiccl-onehost' | sort -u | cut -c1-300 | paste -sd'|' | tr -d '"\\'; }
row() { # FILE NAME VALUE...: values that begin with { or [ or are numbers stay as they are
  local file=$1; shift
  python3 - "$@" <<'PYTHON' >>"$out/$file"
import json, sys
row = {}
for name, value in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        row[name] = json.loads(value) if value and (value[0] in "{[" or value.lstrip("-").replace(".", "", 1).isdigit()) else value
    except ValueError:
        row[name] = value
print(json.dumps(row))
PYTHON
}
results() { cat "$work"/[0-9] 2>/dev/null | grep '^{' | paste -sd, | sed 's/.*/[&]/'; }
fail_lines() { local rank; for rank in $ranks; do tail -qn 3 "$work/$rank" "$work/$rank.log" 2>/dev/null | cut -c1-300; done | tee -a "$out/log.txt"; }

record() {
  local which
  for which in machine torch; do
    nccl=$work/ids/$which
    new_id
    EXTRA="LD_DEBUG=bindings LD_DEBUG_OUTPUT=$work/ids/bindings" launch library all 60 "$program" "$id" check 50
    { echo "# $which: $(readlink "$nccl/libnccl.so.2"), exit codes $codes; calls bound to the library:"
      cat "$work"/ids/bindings* | grep -E 'libnccl|one_host' | grep -oE 'binding file [^ ]*/?(libnccl.so.2|one_host) .* to .*onehost.so.*' |
        sed -E 's/.*binding file ([^ ]*\/)?([^ /]+) .*symbol .(\w+).*/\2 \3/' | sort | uniq -c
      echo "# imports"; nm -D --undefined-only "$(readlink "$nccl/libnccl.so.2")" 2>/dev/null |
        awk '{print $2}' | sed 's/@.*//' | grep -E '^(_?_?x?stat|_*[fl]xstat|open|creat|fopen|bind|connect|send|recv|mk|unlink|remove|rename|shm_|getenv|secure_getenv|statx|dl)' | paste -sd' '
    } >>"$out/record.txt"
    rm -f "$work"/ids/bindings*
  done
  cat "$out/record.txt"
  find "$shared" -mindepth 1 -delete
}

matrix() {
  local which cumem nodes side by
  for which in machine torch; do
    nccl=$work/ids/$which
    for cumem in default 0; do
      for nodes in bare own all unequal; do
        for side in none library recipe; do
          [ $nodes != bare ] || [ $side = none ] || continue
          new_id
          EXTRA="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,P2P,SHM,NET NCCL_DEBUG_FILE=$work/ids/nccl.%h.%p"
          [ $cumem = default ] || EXTRA+=" NCCL_CUMEM_ENABLE=0"
          launch $side $nodes 45 "$program" "$id" calls; local code=$?
          [ "$codes" != "no time" ] || { say "matrix: no time left"; break 4; }
          by=$(ways)
          row matrix.jsonl nccl $which cumem $cumem nodes $nodes side $side codes "$codes" ways "$by" files_left "$(names_left)" \
            said "$(said)" ranks "$(results)"
          say "matrix $which cuMem $cumem $nodes $side: codes $codes;$by; left $(names_left); $(cat "$work/0" | cut -c1-160) $(said | cut -c1-120)"
          [ $code = 0 ] || fail_lines
          # Another side's files are not this one's.
          find "$shared" "$recipe" -mindepth 1 -delete
        done
      done
    done
  done
  python3 scripts/one_host_tables.py matrix "$out/matrix.jsonl" | tee -a "$out/summary.txt"
  ! grep -q '^broken by library or recipe: [1-9]' "$out/summary.txt" || failed=1
}

sizes() { # LAUNCHES
  local i side all=1024,4096,16384,65536,262144,1048576,4194304,16777216,67108864,268435456
  nccl=$work/ids/torch EXTRA=
  for ((i = 0; i <= $1; ++i)); do
    for side in none:bare library:all shm:bare library:own recipe:own $([ $i != 0 ] || echo none:own); do
      new_id
      # What files take in the folder, the most of it.
      if [ $i = 0 ]; then (while sleep 0.3; do du -sm "$shared" | cut -f1; done >"$work/most") & watcher=$!; fi
      launch "${side%:*}" "${side#*:}" 40 "$program" "$id" time "${CALLS:-60}" $all; local code=$?
      [ $i != 0 ] || { kill $watcher; wait $watcher 2>/dev/null; say "$side: at most $(sort -n "$work/most" | tail -n 1) MiB in the folder"; }
      [ "$codes" != "no time" ] || { say "sizes: no time left after $i launches"; break 2; }
      [ $code = 0 ] || { failed=1; say "sizes $side: codes $codes"; fail_lines; continue; }
      # The first launch warms what is shared.
      [ $i = 0 ] && [ "$side" != none:own ] || row sizes.jsonl side "$side" launch $i files_left "$(names_left)" rank0 "$(cat "$work/0")"
    done
  done
  python3 scripts/one_host_tables.py sizes "$out/sizes.jsonl" | tee -a "$out/summary.txt"
}

steps() { # LAUNCHES
  local i side
  nccl=$work/ids/torch EXTRA=
  for ((i = 0; i < $1; ++i)); do
    for side in none:bare library:all shm:bare library:own; do
      launch "${side%:*}" "${side#*:}" 80 python3 "$root/scripts/ddp_steps.py" --label "$side" --models bert-large,decoder-300m --steps "${STEPS:-30}" --warmup 6; local code=$?
      [ "$codes" != "no time" ] || { say "steps: no time left after $i launches"; break 2; }
      [ $code = 0 ] || { failed=1; say "steps $side: codes $codes"; fail_lines; continue; }
      while read -r line; do row steps.jsonl side "$side" launch $i files_left "$(names_left)" rank0 "$line"; done < <(grep '^{' "$work/0")
    done
  done
  python3 scripts/one_host_tables.py steps "$out/steps.jsonl" | tee -a "$out/summary.txt"
}

endure() { # OPERATIONS
  local nodes count
  nccl=$work/ids/torch EXTRA=
  for nodes in all own; do
    count=$1; [ $nodes = all ] || count=$(($1 / 5))
    new_id
    launch library $nodes 240 "$program" "$id" check "$count" "${SEED:-1}" || { failed=1; fail_lines; }
    row endure.jsonl what operations nodes $nodes codes "$codes" files_left "$(names_left)" ranks "$(results)"
    say "endure $nodes: codes $codes, left $(names_left), $(results)"
  done
}
train() { # STEPS
  nccl=$work/ids/torch EXTRA=
  launch library all 200 python3 "$root/scripts/ddp_steps.py" --models resnet18 --batch 4 --workers 2 --epoch 500 --steps "$1" --warmup 5 || { failed=1; fail_lines; }
  row endure.jsonl what steps nodes all codes "$codes" files_left "$(names_left)" ranks "$(results)"
  say "train: codes $codes, left $(names_left), $(results)"
}
restarts() {
  cat >"$work/ids/restarts.py" <<'PYTHON'
import os, signal, torch, torch.distributed as dist
torch.cuda.set_device(0)
dist.init_process_group("nccl")
data = torch.ones(1 << 20, device="cuda")
for i in range(50):
    data.fill_(dist.get_rank() + 1)
    dist.all_reduce(data)
    assert bool((data == 3).all())
if int(os.environ["TORCHELASTIC_RESTART_COUNT"]) < 2 and dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
print("{\"restarts\": %s, \"rank\": %d}" % (os.environ["TORCHELASTIC_RESTART_COUNT"], dist.get_rank()), flush=True)
dist.destroy_process_group()
PYTHON
  nccl=$work/ids/torch EXTRA=
  # shellcheck disable=SC2016
  launch library all 120 bash -c 'unset RANK WORLD_SIZE; exec torchrun --nnodes 2 --nproc-per-node 1 --max-restarts 3 --rdzv-backend c10d \
    --rdzv-endpoint "$MASTER_ADDR:$MASTER_PORT" --rdzv-id 1 --monitor-interval 1 "$0"' "$work/ids/restarts.py" || { failed=1; fail_lines; }
  row endure.jsonl what restarts nodes all codes "$codes" files_left "$(names_left)" ranks "$(results)"
  say "restarts: codes $codes, left $(names_left), $(results)"
}

communicators() { # TIMES
  cat >"$work/ids/communicators.py" <<'PYTHON'
import os, sys, torch, torch.distributed as dist
torch.cuda.set_device(0)
dist.init_process_group("gloo")
rank, times, loaded, unloaded = dist.get_rank(), int(sys.argv[1]), 0, 0
mapped = lambda: "libdynamiccl-nccl-plugin.so" in open("/proc/self/maps").read()
for i in range(times):
    groups = [dist.new_group(backend="nccl") for _ in range(1 + i % 2)]
    for group in groups:
        data = torch.full((1 + i * 997,), rank + 1.0, device="cuda")
        dist.all_reduce(data, group=group)
        assert bool((data == 3).all()), f"round {i}"
    loaded += mapped()
    for group in groups:
        dist.destroy_process_group(group)
    unloaded += not mapped()
dist.barrier()
print('{"communicators": %d, "rank": %d, "plugin_loaded": %d, "plugin_unloaded": %d}' % (times * 3 // 2, rank, loaded, unloaded), flush=True)
dist.destroy_process_group()
PYTHON
  nccl=$work/ids/torch
  mkdir -p "$work/ids/records"
  EXTRA="NCCL_TUNER_PLUGIN=$plugin NCCL_PROFILER_PLUGIN=$plugin DYNAMICCL_TUNER_FOLDER=$work/ids/records GLOO_SOCKET_IFNAME=eth0"
  launch library all 120 python3 "$work/ids/communicators.py" "$1" || { failed=1; fail_lines; }
  row endure.jsonl what communicators nodes all codes "$codes" files_left "$(names_left)" ranks "$(results)"
  say "communicators: codes $codes, left $(names_left), $(results)"
}

one_kill() { # SIDE NODES NUMBER
  place=$work/kill.$1.$2.$3 FOLDER=/$3 port=$((31000 + $3 * 7 + RANDOM % 7))
  mkdir -p "$shared/$3"
  # shellcheck disable=SC2016
  launch "$1" "$2" 55 bash -c 'if [ "$RANK" = '$(($3 % 2))' ]; then
      "$@" & child=$!; sleep '"$((12 + $3 % 5)).$(($3 * 37 % 10))"'; kill -9 $child; echo "killed $(date +%s.%N)"
    else timeout -s KILL 32 "$@"; echo "survivor $? $(date +%s.%N)"; fi' _ "$program" "$work/ids/kill.$1.$2.$3" loop
}
kills() { # KILLS
  local side i jobs first
  nccl=$work/ids/torch EXTRA=
  for side in library:all none:bare library:own shm:bare; do
    [ "$(left)" -gt 60 ] || { say "kills: no time left for $side"; continue; }
    jobs=()
    for ((i = 0; i < $1 / 2; ++i)); do
      (one_kill "${side%:*}" "${side#*:}" $i) & jobs+=($!)
      [ $(((i + 1) % 10)) = 0 ] || [ $((i + 1)) = $(($1 / 2)) ] || continue
      wait "${jobs[@]}"; jobs=()
    done
    python3 - "$side" "$work" "$(names_left)" <<'PYTHON' | tee -a "$out/kills.jsonl"
import glob, json, re, sys
side, work, names = sys.argv[1:]
ends, seconds = {}, []
for place in sorted(glob.glob(f"{work}/kill.{side.replace(':', '.')}.*")):
    text = "".join(open(f"{place}/{rank}", errors="replace").read() for rank in "01")
    killed, told = re.search(r"killed ([\d.]+)", text), re.search(r"told ([\d.]+) (.*)", text)
    survivor = re.search(r"survivor (\d+) ([\d.]+)", text)
    end = "looped not" if text.count("looping") < 2 else f"told: {told[2]}" if told else f"code {survivor[1]}" if survivor else "nothing"
    ends[end] = ends.get(end, 0) + 1
    if killed and told:
        seconds.append(round(float(told[1]) - float(killed[1]), 2))
print(json.dumps({"side": side, "ends": ends, "seconds_after_kill": sorted(seconds), "names_left_by_killed": int(names)}))
PYTHON
  done
  # What they left goes with the next start in the same folder.
  sleep 11
  for ((i = 0; i < $1 / 2 && i < 3; ++i)); do
    new_id; FOLDER=/$i
    first=$(find "$shared/$i" ! -type d | wc -l)
    launch library all 40 "$program" "$id" check 100 && launch library own 40 "$program" "$id.own" check 100 || { failed=1; fail_lines; }
    say "kills: folder $i had $first names, has $(find "$shared/$i" ! -type d | wc -l) after the next start"
  done
  FOLDER=
}

nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader | tee -a "$out/log.txt"
find_nccls
mkdir -p "$work/ids/machine" "$work/ids/torch"
ln -s "$machine_nccl" "$work/ids/machine/libnccl.so.2"; ln -s "$torch_nccl" "$work/ids/torch/libnccl.so.2"
make_programs
say "$program, $library; NCCL of the machine: $machine_nccl $(strings "$machine_nccl" 2>/dev/null | grep -om1 'NCCL version [0-9.]*'), of PyTorch: $torch_nccl"
containers || { echo "no containers: run as root with dockerd" >&2; exit 2; }
say "ready"
for part in "$@"; do
  [ "$(left)" -gt 15 ] || { say "$part: no time left"; continue; }
  case $part in
    record | matrix | restarts | sizes=* | steps=* | endure=* | train=* | communicators=* | kills=*) place=$work; "${part%%=*}" "${part#*=}" ;;
    *) echo "no part \"$part\"" >&2; failed=1 ;;
  esac
done
say "end, names left $(names_left)"
cat "$out/summary.txt" 2>/dev/null
exit $failed
