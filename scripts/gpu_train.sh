#!/bin/bash
# Trains on a GPU machine: builds there against its PyTorch, checks that every method trains the same model, and
# measures methods over NCCL (experiments/gpu_training.toml) against plain PyTorch DDP (scripts/ddp_steps.py) on fresh
# launches in turn, both under the same NCCL_* variables.
#   scripts/gpu_train.sh --pack FOLDER                                   here: headers and libraries the build there needs
#   [BUNDLE=FOLDER] scripts/gpu_train.sh OUTPUT_FOLDER PART[=SECONDS]... there: FOLDER as --pack and
#                                                                        scripts/make_offline_bundle.sh left it
#   [BUNDLE=FOLDER] scripts/gpu_train.sh OUTPUT_FOLDER build check=60 ratio=200
# check: every method trains what one process would; cuda-mpi: the same over CUDA-aware MPI; test: train_gpu_tests;
# rounds, codecs, served: the same of local steps and gossip, of encoded gradients, of servers that answer each worker by
# itself; servers: the same of servers that sum on their GPU, and of one behind a chief, next to sums in host memory;
# rates: what codecs' kernels do a second (time to an accuracy next to PyTorch DDP's hooks: scripts/gpu_hooks.sh);
# parts: whether a step's parts by the GPU's clock make the step, and what is exposed of the last step's communication;
# containers: the container study's training, next to the published order; study: libraries, servers, rings and training in one run;
# online: a tuner that learns while it trains over sockets with a raised ceiling, next to all static tables of what it may set;
# ratio: the models and batches of experiments/gpu_training.toml over what NCCL takes by itself; network: BERT-Large over
# NCCL's sockets alone. Leaves OUTPUT/PART.md (per model the methods' step times over DDP's, the geometric mean over pairs
# of launches with its 95 % interval), train.sqlite.xz (all launches), texts.tar.gz (ddp-*.jsonl, steps-*.json,
# settings.txt and logs).
# All of the machine's GPUs take part, or the first RANKS; where RANKS are more than there are, ranks take turns on them,
# each a host of its own to NCCL. A part whose time is over keeps what was stored.
set -uo pipefail
usage() { sed -n '2,22s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
if [ "$1" = --pack ]; then
  mkdir -p "$2"
  # What a Debian machine builds trainers with, as files below one prefix, links resolved.
  dpkg -L libfmt-dev libfmt9 nlohmann-json3-dev libeigen3-dev libgloo-dev libgloo0 libhiredis0.14 libibverbs1 libnl-3-200 libnl-route-3-200 |
    grep -E '^/usr/(include|share/cmake|share/eigen3|lib)/|^/lib/' | grep -v '/pkgconfig/' |
    while read -r path; do if [ -f "$path" ]; then echo ".${path#/usr}"; fi; done | sort -u >"$2/files"
  # MPICH's headers; its library comes with the programs.
  [ ! -e /usr/include/x86_64-linux-gnu/mpich/mpi.h ] || ls -d /usr/include/x86_64-linux-gnu/mpich/*.h | sed 's#^/usr#.#' >>"$2/files"
  tar -C /usr --dereference -cf - --files-from "$2/files" | xz -T1 -6 >"$2/train-deps.tar.xz" && rm "$2/files"
  ls -l "$2/train-deps.tar.xz"
  exit
fi
out=$(mkdir -p "$1" && cd "$1" && pwd); shift
cd "$(dirname "$0")/.."
root=$(pwd)
# Below the programs, where containers see it too.
deps=$root/build/release/train-deps
failed=0
say() { echo "== $* ($SECONDS s)"; }

# The trainer and what it needs next to it, with CUDA; not again where it is there.
build() {
  local torch nccl options
  mkdir -p "$deps" build/release
  [ -z "${BUNDLE:-}" ] || tar -xJf "$BUNDLE/train-deps.tar.xz" -C "$deps"
  if [ ! -x build/release/dynamiccl-trainer ]; then
    torch=$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))') || { say "build: python3 has no torch"; return 1; }
    # NCCL's header comes with PyTorch where the machine has none.
    nccl=$(python3 -c 'import os, nvidia.nccl; print(os.path.join(list(nvidia.nccl.__path__)[0], "include"))' 2>/dev/null)
    # The libraries' own libraries are found by the same path (DT_RPATH), which holds no MPI: which one a rank loads is
    # the launcher's choice. Warnings of another compiler's release and of other headers are no reason to stop.
    options=(-DCMAKE_BUILD_TYPE=Release -DDYNAMICCL_WERROR=OFF -DDYNAMICCL_WORKERS_ONLY=ON -DDYNAMICCL_REQUIRE_GPU=ON
      "-DCMAKE_PREFIX_PATH=$deps;$torch" -DCMAKE_SKIP_RPATH=ON
      "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags,-rpath,$deps/lib/$(gcc -print-multiarch):$deps/lib:$torch/lib:$root/build/release/lib,--allow-shlib-undefined"
      ${nccl:+-DDYNAMICCL_NCCL_INCLUDE=$nccl})
    local mpich_include mpich_library=$root/build/release/lib/libmpich.so.12
    mpich_include=$deps/include/$(gcc -print-multiarch)/mpich
    if [ -e "$mpich_include/mpi.h" ] && [ -e "$mpich_library" ]; then
      options+=("-DDYNAMICCL_mpich_INCLUDE=$mpich_include" "-DDYNAMICCL_mpich_LIBRARY=$mpich_library")
    fi
    command -v ninja >/dev/null && options+=(-G Ninja)
    cmake -S . -B build/trainer "${options[@]}" >"$out/build.log" 2>&1 || { tail -n 15 "$out/build.log"; return 1; }
    # Where the machine has MPI's headers, or Catch2, there is more to build.
    local targets=(dynamiccl-trainer dynamiccl-worker dynamiccl-nccl-plugin)
    grep -q 'Open MPI: yes' "$out/build.log" && targets+=(dynamiccl-trainer-openmpi dynamiccl-worker-openmpi)
    grep -q '^Catch2_DIR:PATH=/' build/trainer/CMakeCache.txt && targets+=(train_gpu_tests)
    cmake --build build/trainer -j "$(nproc)" --target "${targets[@]}" >>"$out/build.log" 2>&1 ||
      { grep -E -m 20 'error|Error' "$out/build.log"; tail -n 15 "$out/build.log"; return 1; }
    # Of use for CPU cells alone: the others do without.
    if [ -e "$mpich_include/mpi.h" ] && [ -e "$mpich_library" ]; then
      cmake --build build/trainer -j "$(nproc)" --target dynamiccl-trainer-mpich >>"$out/build.log" 2>&1 ||
        { say "build: no trainer for MPICH"; grep -E -m 5 'error|undefined' "$out/build.log"; }
    fi
    # By renaming: a job that has the old file mapped keeps it.
    local file
    for file in build/trainer/dynamiccl-{trainer,worker}* build/trainer/libdynamiccl-nccl-plugin.so; do
      [ ! -f "$file" ] || { cp "$file" build/release/.new && mv build/release/.new "build/release/${file##*/}"; } || return 1
    done
  fi
  say "build: done"
}

# What every run needs; the NCCL that PyTorch loads serves both sides.
set_up() {
  [ -z "${program:-}" ] || return 0
  export DYNAMICCL_NCCL_LIBRARY
  DYNAMICCL_NCCL_LIBRARY=${DYNAMICCL_NCCL_LIBRARY:-$(python3 -c 'import os, nvidia.nccl; print(os.path.join(list(nvidia.nccl.__path__)[0], "lib", "libnccl.so.2"))' 2>/dev/null)}
  . scripts/gpu_setup.sh
  # NCCL runs without a plugin on both sides.
  export DYNAMICCL_NCCL_PROFILER=0
  devices=$(nvidia-smi -L | wc -l)
  gpus=${RANKS:-$devices}
  shared=()
  [ "$gpus" -le "$devices" ] || shared=(--set "knobs.nccl.env.DYNAMICCL_SHARED_GPUS=$devices" --set 'protocol.launch_timeout="10m"')
  db=$out/train.sqlite
  {
    nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader
    python3 -c 'import torch; print("torch", torch.__version__, "nccl", torch.cuda.nccl.version())'
    echo "trainer's NCCL: $DYNAMICCL_NCCL_LIBRARY"
    env | grep '^NCCL_' | sort
  } >"$out/settings.txt" 2>&1
}

# One experiment file, SECONDS at most; "$@": further arguments.
experiment() { # FILE SECONDS NAME ...
  local file=$1 seconds=$2 name=$3; shift 3
  timeout --signal=INT --kill-after=40 "$seconds" "$program" run "$file" --db "$db" "$@" >>"$out/$name.md" 2>>"$out/$name.log"
  local code=$?
  case $code in
    0) return 0 ;;
    124 | 130) say "$name: time is over" ;;
    *) failed=1; say "$name: exit code $code"; tail -n 12 "$out/$name.log" ;;
  esac
  # 1: a cell failed, the others count.
  [ $code = 1 ]
}

check() { # SECONDS
  local ranks="[2, $gpus]"
  [ "$gpus" -gt 2 ] || ranks=$gpus
  experiment experiments/gpu_training_check.toml "$1" check --set "axes.ranks=$ranks" "${shared[@]}" "${given[@]}"
  "$program" query --db "$db" --format markdown "SELECT model, method, ranks, max_difference, wrong, counts FROM v_training
    WHERE run_id = (SELECT run_id FROM v_run ORDER BY run_row DESC LIMIT 1) ORDER BY model, ranks, method" | tee -a "$out/check.md"
}

# The same over CUDA-aware MPI. Four ranks need four GPUs, or share the only one; with two or three there are two.
cuda_mpi() { # SECONDS
  local ranks='[2, 4]'
  case $devices in 2 | 3) ranks=2 ;; esac
  experiment experiments/gpu_training_check.toml "$1" cuda-mpi --set 'axes.backend="cuda-aware-mpi"' --set "axes.ranks=$ranks" \
    "${given[@]}"
  "$program" query --db "$db" --format markdown "SELECT model, method, ranks, max_difference, wrong, step_us, counts FROM v_training
    WHERE run_id = (SELECT run_id FROM v_run ORDER BY run_row DESC LIMIT 1) ORDER BY model, ranks, method" | tee -a "$out/cuda-mpi.md"
}

# Cells that lose something of plain SGD, on the first two GPUs, or with RANKS workers: three ranks where one is a server
# without a GPU.
lossy() { # SECONDS NAME EXPERIMENT
  local seconds=$1 name=$2 file=$3 ranks=()
  [ -z "${RANKS:-}" ] || ranks=(--set "axes.ranks=$gpus" "${shared[@]}")
  experiment "experiments/$file.toml" "$seconds" "$name" "${ranks[@]}" "${given[@]}"
  {
    "$program" query --db "$db" --format markdown "SELECT model, method, synchronisation, compression, settings, max_difference,
        wrong, step_us, counts FROM v_training
      WHERE run_id = (SELECT run_id FROM v_run ORDER BY run_row DESC LIMIT 1) ORDER BY model, method, synchronisation, compression"
    "$program" query --db "$db" --format markdown "SELECT algorithm, cell_knobs, status, reason FROM v_measurement
      WHERE status <> 'ok' AND run_id = (SELECT run_id FROM v_run ORDER BY run_row DESC LIMIT 1)"
  } 2>>"$out/$name.log" | tee -a "$out/$name.md" | cut -c1-230
}

# Who carried and summed what servers got, next to each rank's share of a step.
servers() { # SECONDS
  lossy "$1" servers gpu_training_servers
  "$program" query --db "$db" --format markdown "SELECT v.model, v.method, v.settings, t.rank, t.role, v.step_us,
      json_extract(t.details_json, '\$.path') AS path, json_extract(t.details_json, '\$.carried_by') AS carried_by,
      json_extract(t.details_json, '\$.exposed_of_busy') AS exposed_of_busy, t.wire_bytes
    FROM v_training v JOIN training t ON t.measurement_id = v.measurement_row
    WHERE v.run_id = (SELECT run_id FROM v_run ORDER BY run_row DESC LIMIT 1)
    ORDER BY v.model, v.method, v.settings, t.rank" 2>>"$out/servers.log" | tee -a "$out/servers.md" | cut -c1-330
}

# What each method's steps are made of.
parts() { # SECONDS
  experiment experiments/gpu_training_parts.toml "$1" parts "${given[@]}"
  "$program" query --db "$db" --format markdown "SELECT v.model, v.method, v.synchronisation, v.compression, v.settings, t.rank, v.step_us,
      t.forward_us, t.backward_us, t.update_us, t.exposed_us, json_extract(t.details_json, '\$.data_us') AS data_us,
      json_extract(t.details_json, '\$.accounted') AS accounted, json_extract(t.details_json, '\$.exposed_of_busy') AS exposed_of_busy,
      t.wire_bytes
    FROM v_training v JOIN training t ON t.measurement_id = v.measurement_row
    WHERE v.run_id = (SELECT run_id FROM v_run ORDER BY run_row DESC LIMIT 1) AND t.role = 'worker'
    ORDER BY v.model, v.method, v.synchronisation, v.compression, v.settings, t.rank" 2>>"$out/parts.log" | tee -a "$out/parts.md" | cut -c1-330
}

# Bytes of gradients a second, by the GPU's clock.
rates() { # SECONDS
  experiment experiments/gpu_training_rates.toml "$1" rates "${given[@]}"
  "$program" query --db "$db" --format markdown "SELECT compression, rank,
      nominal_bytes / encode_us / 1000 AS encode_gb_s, nominal_bytes / decode_us / 1000 AS decode_gb_s, message_bytes
    FROM (SELECT v.compression AS compression, t.rank AS rank,
        json_extract(t.details_json, '\$.compression.nominal_bytes') AS nominal_bytes,
        json_extract(t.details_json, '\$.compression.message_bytes') AS message_bytes,
        json_extract(t.details_json, '\$.compression.encode_us') AS encode_us,
        json_extract(t.details_json, '\$.compression.decode_us') AS decode_us
      FROM v_training v JOIN training t ON t.measurement_id = v.measurement_row
      WHERE v.run_id = (SELECT run_id FROM v_run ORDER BY run_row DESC LIMIT 1))
    ORDER BY compression, rank" 2>>"$out/rates.log" | tee -a "$out/rates.md"
  # A plain copy of BERT-Base's gradients on each GPU, by its own clock, too: bytes of gradients a second.
  python3 - 2>>"$out/rates.log" <<'END' | tee -a "$out/rates.md"
import torch
for gpu in range(min(2, torch.cuda.device_count())):
    torch.cuda.set_device(gpu)
    gradients = torch.zeros(109514298, device="cuda")
    copied, times = torch.empty_like(gradients), []
    for _ in range(20):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(), copied.copy_(gradients), end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    print(f"copy, GPU {gpu}: {gradients.numel() * 4 / sorted(times)[10] / 1e6:.0f} GB/s")
END
}

# The container study's training, methods and libraries next to the published order. In Docker containers too where dockerd
# starts here.
containers() { # SECONDS
  local end=$((SECONDS + $1)) environments='["bare-metal"]' query
  . scripts/gpu_engine.sh
  if command -v dockerd >/dev/null && engine_up 2>>"$out/containers.log"; then
    trap engine_down EXIT
    environments='["bare-metal", "single-docker"]'
  fi
  export DYNAMICCL_IMAGE_SOURCE=${DYNAMICCL_IMAGE_SOURCE:-host-root}
  experiment experiments/gpu_container_training.toml $((end - SECONDS)) containers --set "axes.environment=$environments" "${given[@]}"
  if [ -n "${engine:-}" ]; then engine_down; trap - EXIT; fi
  for query in training architecture published flags; do
    { echo "## $query"; "$program" query --db "$db" --format markdown "$query"; } 2>>"$out/containers.log" >>"$out/containers.md"
  done
  "$program" query --db "$db" --format markdown "SELECT algorithm, environment, backend, cell_knobs, status, reason FROM v_measurement
    WHERE status <> 'ok' AND run_id = (SELECT run_id FROM v_run ORDER BY run_row DESC LIMIT 1)" 2>>"$out/containers.log" >>"$out/containers.md"
  cut -c1-230 "$out/containers.md"
}

# The container study in one run, libraries and training, in containers that stay apart and are one host, too; a call goes on where
# the one before ended.
study() { # SECONDS
  local end=$((SECONDS + $1)) resume=() query
  . scripts/gpu_engine.sh
  engine_up 2>>"$out/study.log" && trap engine_down EXIT
  # What containers of one host share lies there; an engine's own container has 64 MiB of it.
  mount -o remount,size=32g /dev/shm 2>>"$out/study.log"
  export DYNAMICCL_IMAGE_SOURCE=${DYNAMICCL_IMAGE_SOURCE:-host-root}
  [ -s "$db" ] || [ ! -e "$db.xz" ] || xz -dk "$db.xz"
  [ ! -s "$db" ] || resume=(--resume)
  experiment experiments/gpu_container_study.toml $((end - SECONDS)) study --no-report "${resume[@]}" "${given[@]}"
  engine_down; trap - EXIT
  for query in published architecture overhead transports training coverage; do
    { echo "## $query"; "$program" query --db "$db" --format markdown "$query"; } 2>>"$out/study.log"
  done >"$out/study.md"
  cut -c1-200 "$out/study.md" | head -n 120
}

# tuner = "online" over sockets, next to the whole grid of static tables and NCCL's own choices: two GPUs, a launch a round.
online() { # SECONDS
  local end=$((SECONDS + $1)) tables
  tables=$(python3 scripts/online_tables.py make "$out/tables") || { failed=1; return 1; }
  # Its records have NCCL's times by channel.
  DYNAMICCL_NCCL_PROFILER=1 experiment experiments/gpu_online_training.toml $((end - SECONDS)) online --no-report --set "work.0.tuner=[\"off\", ${tables#[}" "${shared[@]}" "${given[@]}"
  python3 scripts/online_tables.py judge "$db" 2>>"$out/online.log" | tee -a "$out/online.md"
  "$program" query energy --db "$db" --format markdown >>"$out/online.md" 2>>"$out/online.log"
}

# train_gpu_tests, whose ranks share GPUs over sockets where there are too few: at 2 and 4 ranks on any machine.
tests() { # SECONDS
  timeout --kill-after=40 "$1" build/trainer/tests/train_gpu_tests --durations yes >"$out/test.log" 2>&1 || failed=1
  grep -v '^$' "$out/test.log" | tail -n 25
}

# One DDP job: a process per GPU, as torchrun starts them.
ddp() { # FILE LABEL ARGUMENT... VARIABLE=VALUE...
  local file=$1 label=$2 rank arguments=() variables=(OMP_NUM_THREADS=1) host=() pids=() code=0; shift 2
  for word in "$@"; do case $word in NCCL_*=*) variables+=("$word") ;; *) arguments+=("$word") ;; esac; done
  export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 20000)) WORLD_SIZE=$gpus
  for ((rank = 0; rank < gpus; rank++)); do
    [ "$gpus" -le "$devices" ] || host=("NCCL_HOSTID=rank-$rank")
    RANK=$rank LOCAL_RANK=$((rank % devices)) timeout 300 env "${variables[@]}" "${host[@]}" python3 scripts/ddp_steps.py \
      --best --momentum 0.9 --buckets 25,100 $([ "$label" != 1 ] || echo --alone) \
      --label "$label" "${arguments[@]}" >>"$out/$file.jsonl" 2>>"$out/ddp.log" &
    pids+=($!)
  done
  for rank in "${pids[@]}"; do wait "$rank" || code=1; done
  [ $code = 0 ] || { failed=1; say "ddp: failed"; tail -n 12 "$out/ddp.log"; }
  return $code
}

# Both sides in turn, the first of a pair alternating, until the time is over.
pairs() { # SECONDS NAME EXPERIMENT DDP'S_ARGUMENTS...
  local begin=$SECONDS end name=$2 experiment=$3 round=0 longest=0 start
  end=$((begin + $1)); shift 3
  while [ $((SECONDS + longest)) -lt $end ]; do
    start=$SECONDS
    round=$((round + 1))
    if [ $((round % 2)) = 1 ]; then ddp "ddp-$name" $round "$@" || break; fi
    experiment "experiments/$experiment.toml" $((end - SECONDS + 60)) "$name" --set "axes.ranks=$gpus" --set protocol.launches=1 \
      --set "seed=$round" "${shared[@]}" "${given[@]}" || break
    if [ $((round % 2)) = 0 ]; then ddp "ddp-$name" $round "$@" || break; fi
    [ $((SECONDS - start)) -le $longest ] || longest=$((SECONDS - start))
    say "$name: round $round"
  done
  "$program" query --db "$db" --format json "SELECT run_row, CAST(r.seed AS INTEGER) AS pair, model, method, step_us, predicted_us,
      exposed_us, single_us FROM v_training JOIN run r ON r.id = run_row
    WHERE counts AND ranks = $gpus AND r.name = '${experiment//_/-}' ORDER BY run_row" >"$out/steps-$name.json"
  python3 scripts/step_ratios.py "$out/steps-$name.json" "$out/ddp-$name.jsonl" | tee "$out/$name.md"
}

given=()
for part in "$@"; do
  case $part in --*) given+=("$part"); continue ;; esac
  name=${part%%=*} seconds=${part#*=}
  say "$name"
  case $name in
    build) build || { failed=1; break; } ;;
    check) set_up; check "$seconds" ;;
    cuda-mpi) set_up; cuda_mpi "$seconds" ;;
    test) set_up; tests "$seconds" ;;
    rounds | codecs | served) set_up; lossy "$seconds" "$name" "gpu_training_$name" ;;
    servers) set_up; servers "$seconds" ;;
    rates) set_up; rates "$seconds" ;;
    parts) set_up; parts "$seconds" ;;
    online) set_up; online "$seconds" ;;
    containers) set_up; containers "$seconds" ;;
    study) set_up; study "$seconds" ;;
    ratio) set_up; pairs "$seconds" ratio gpu_training --models resnet18-cifar,resnet50,bert-base,bert-large --steps 30 --warmup 5 ;;
    network)
      set_up
      pairs "$seconds" network gpu_training_network --models bert-large --steps 15 --warmup 3 NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 ;;
    *) echo "no part \"$name\"; known: build, check, cuda-mpi, test, rounds, codecs, served, servers, rates, parts, online, containers, study, ratio, network" >&2; failed=1 ;;
  esac
done
[ ! -e "$out/train.sqlite" ] || xz -T0 -6 -kf "$out/train.sqlite"
rm -f "$out"/train.sqlite "$out"/train.sqlite-{wal,shm}
# Few files travel better than many.
(cd "$out" && tar -czf texts.tar.gz ./*.log ./*.md ./*.json ./*.jsonl ./*.txt 2>/dev/null && rm -rf ./*.log ./*.json ./*.jsonl ./settings.txt ./runs)
say "end"; ls -l "$out"
exit $failed
