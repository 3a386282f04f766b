#!/bin/bash
# Time to a target accuracy next to PyTorch DDP's communication hooks: ResNet-18 on two GPUs, a Docker container for each,
# their links shaped to 1 and 10 Gbit/s. As root; after `scripts/gpu_train.sh OUTPUT build`.
#   scripts/gpu_hooks.sh OUTPUT_FOLDER trajectories=SECONDS steps=SECONDS [direct=SECONDS]
# trajectories: steps until the target, of seeds FIRST (1) to SEEDS (5), LANES (2) at once: what a step computes does not depend on the
#   link, so this runs outside of containers over what NCCL takes by itself, twice LANES jobs at once, and its times mean nothing.
#   TRAJECTORY_HOOKS: of these of DDP's; TRAJECTORIES: ours for which it holds, "-": none of ours (no trainer is needed then).
# steps: what a step takes behind the links, both sides in turn, the order alternating, until the time is over:
#   of DDP's HOOKS (all), and those of ours for which OURS holds (a condition as of --only).
# direct: whole trainings behind the first link, of seeds FIRST to SEEDS, of the sides in DIRECT_HOOKS and DIRECT_OURS ("-": none),
#   against the product of the two; a job of theirs that takes longer than JOB_SECONDS (240) is given up.
# CORES: a list for taskset, where other work has the rest. Leaves times.md (scripts/hook_times.py), trajectories.jsonl,
# steps.jsonl, direct.jsonl, ours-*.sqlite and logs.
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd); shift
cd "$(dirname "$0")/.." || exit
unset BUNDLE
. scripts/gpu_setup.sh
. scripts/gpu_engine.sh
# Both sides on the NCCL that PyTorch loads.
DYNAMICCL_NCCL_LIBRARY=$(python3 -c 'import os, nvidia.nccl; print(os.path.join(list(nvidia.nccl.__path__)[0], "lib", "libnccl.so.2"))')
export DYNAMICCL_NCCL_LIBRARY DYNAMICCL_NCCL_PROFILER=0 OMP_NUM_THREADS=1
read -ra hooks <<<"${HOOKS:-none bf16 fp16 powersgd post-local}"
# Images of trainings outside and inside of containers, made once.
images=$(mkdir -p "${IMAGES:-/tmp/hooks-images.d}" && cd "${IMAGES:-/tmp/hooks-images.d}" && pwd) || exit
failed=0
[ -z "${CORES:-}" ] || taskset -pc "$CORES" $$ >/dev/null
say() { echo "== $* ($SECONDS s)"; }
trap engine_down EXIT

# Until all of a job's ranks have ended; where one fails, the others wait for it and are ended.
all_end() { # PID...
  local left=("$@") each ended code
  while [ ${#left[@]} -gt 0 ]; do
    wait -n -p ended "${left[@]}"; code=$?
    for each in "${!left[@]}"; do [ "${left[each]}" != "$ended" ] || unset "left[each]"; done
    [ $code != 0 ] || continue
    [ ${#left[@]} = 0 ] || kill "${left[@]}" 2>/dev/null
    wait
    return 1
  done
}

# One DDP job outside of containers; its JSON line goes to standard output.
bare_job() { # ARGUMENT...
  local rank pids=() port=$((20000 + RANDOM % 20000))
  for rank in 0 1; do
    CUDA_VISIBLE_DEVICES=$rank RANK=$rank LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
      timeout 240 python3 scripts/ddp_hooks.py "$@" 2>>"$out/ddp.log" &
    pids+=($!)
  done
  all_end "${pids[@]}"
}

# The same in the two containers.
boxed_job() { # ARGUMENT...
  local rank pids=() port=$((20000 + RANDOM % 20000))
  for rank in 0 1; do
    docker exec --env RANK=$rank --env LOCAL_RANK=0 --env WORLD_SIZE=2 --env MASTER_ADDR=$engine_subnet.10 \
      --env MASTER_PORT=$port --env NCCL_SOCKET_IFNAME=eth0 --env GLOO_SOCKET_IFNAME=eth0 --env OMP_NUM_THREADS=1 --env PATH="$PATH" \
      hooks$rank timeout "${JOB_SECONDS:-240}" python3 "$root/scripts/ddp_hooks.py" "$@" 2>>"$out/ddp.log" &
    pids+=($!)
  done
  all_end "${pids[@]}" && return
  # What a client started goes on without it.
  for rank in 0 1; do docker exec hooks$rank pkill -f ddp_hooks.py; done
  return 1
}

# The same token bucket as profiles/environments/cross-docker-*gbit.toml: on both ends of each container's link.
shape() { # RATE
  local rank pid host bits
  bits=$(numfmt --from=si "$(echo "${1%bit}" | tr '[:lower:]' '[:upper:]')")
  local bucket=$((bits / 8 / 500)); [ $bucket -ge 262144 ] || bucket=262144
  for rank in 0 1; do
    pid=$(docker inspect --format '{{.State.Pid}}' hooks$rank)
    host=$(grep -lx "$(docker exec hooks$rank cat /sys/class/net/eth0/iflink)" /sys/class/net/*/ifindex | cut -d/ -f5)
    tc qdisc replace dev "$host" root tbf rate "${bits}bit" burst "${bucket}b" latency 50ms &&
      nsenter --target "$pid" --net tc qdisc replace dev eth0 root tbf rate "${bits}bit" burst "${bucket}b" latency 50ms || return
  done
}

# Ours: an experiment, whole; its training cells as lines of JSON.
ours() { # FILE NAME SECONDS ARGUMENT...
  local file=$1 name=$2 seconds=$3; shift 3
  timeout --signal=INT --kill-after=30 "$seconds" "$program" run "experiments/$file.toml" --no-report --db "$out/ours-$name.sqlite" "$@" \
    >>"$out/ours-$name.md" 2>>"$out/ours-$name.log"
  local code=$?
  [ $code = 0 ] || say "ours $name: exit code $code: $(tail -n 1 "$out/ours-$name.log" | cut -c1-200)"
  return $code
}

cells() { # NAME
  [ -e "$out/ours-$1.sqlite" ] || return
  "$program" query --db "$out/ours-$1.sqlite" --format json "SELECT r.seed AS seed, v.environment AS environment,
      v.synchronisation AS synchronisation, v.compression AS compression,
      json_extract(t.details_json, '\$.target_reached') AS reached, json_extract(t.details_json, '\$.worker_steps') AS steps,
      v.accuracy AS accuracy, v.step_us AS step_us, json_extract(t.details_json, '\$.trained_us') AS trained_us, v.settings AS settings
    FROM v_training v JOIN run r ON r.id = v.run_row JOIN training t ON t.measurement_id = v.measurement_row AND t.rank = 0
    WHERE v.counts" >"$out/ours-$1.json"
}

trajectories() { # SECONDS
  local end=$((SECONDS + $1)) seed hook lane lanes=()
  # 16 bits take as many steps as 32, to within what seeds differ by.
  local which=${TRAJECTORIES:-compression == powersgd or compression == topk or synchronisation == post-local}
  for seed in $(seq "${FIRST:-1}" "${SEEDS:-5}"); do
    # A seed's hooks one after the other next to ours: at most twice LANES jobs share the GPUs.
    (
      for hook in ${TRAJECTORY_HOOKS:-none powersgd post-local}; do
        [ $SECONDS -lt $end ] || break
        bare_job --hook "$hook" --seed "$seed" --images "$images/train" >>"$out/trajectories.jsonl" ||
          { say "$hook, seed $seed: failed"; exit 1; }
      done
    ) & lanes+=($!)
    [ "$which" = - ] || { ours gpu_training_hooks "seed$seed" $((end - SECONDS)) --set "seed=$seed" --only "$which" & lanes+=($!); }
    [ $(((seed - ${FIRST:-1} + 1) % ${LANES:-2})) = 0 ] || [ "$seed" = "${SEEDS:-5}" ] || continue
    for lane in "${lanes[@]}"; do wait "$lane" || failed=1; done
    lanes=()
    [ $((end - SECONDS)) -gt 30 ] || break
  done
  for seed in $(seq "${FIRST:-1}" "${SEEDS:-5}"); do cells "seed$seed"; done
  wc -l "$out/trajectories.jsonl"
}

containers_up() {
  [ -z "${engine:-}" ] || return 0
  engine_up || { tail -n 5 "$engine/log"; failed=1; return 1; }
  local rank
  for rank in 0 1; do
    engine_container hooks$rank $((10 + rank)) $rank --cap-add SYS_NICE --volume "$root/scripts:$root/scripts:ro" \
      --volume "$images:$images" || return
  done
}

theirs() { # LINK FILE MORE...
  local link=$1 file=$2 hook more=(); shift 2
  shape "$link" || { say "the links cannot be shaped: tc or its token bucket is not to be had"; failed=1; return 1; }
  for hook in "${hooks[@]}"; do
    more=()
    # From the first step on, as the trajectory says how many came before.
    [ "$hook" != post-local ] || more=(--local-after 0)
    boxed_job --hook "$hook" "$@" "${more[@]}" | sed "s/^{/{\"link\": \"$link\", /" >>"$out/$file" || { failed=1; say "$hook at $link: failed"; }
  done
}

steps() { # SECONDS
  local end=$((SECONDS + $1)) round=0 link start longest=0
  containers_up || return
  while [ $((SECONDS + longest)) -lt $end ]; do
    round=$((round + 1)) start=$SECONDS
    for link in ${LINKS:-1gbit 10gbit}; do
      [ $((round % 2)) = 0 ] || theirs "$link" steps.jsonl --samples 2560 --epochs 1 --target 2 --seed "$round" || return
      ours gpu_training_link_steps "steps" $((end - SECONDS + 60)) --set "seed=$round" --only "environment == cross-docker-$link${OURS:+ and ($OURS)}" || failed=1
      [ $((round % 2)) = 1 ] || theirs "$link" steps.jsonl --samples 2560 --epochs 1 --target 2 --seed "$round" || return
    done
    [ $((SECONDS - start)) -le $longest ] || longest=$((SECONDS - start))
    say "steps: round $round"
  done
  cells steps
}

direct() { # SECONDS
  local end=$((SECONDS + $1)) left seed=$((${FIRST:-1} - 1)) link=${LINKS:-1gbit 10gbit} hook
  link=${link%% *}
  pin_to "${CORES:-}" "cross-docker-$link"
  containers_up || { failed=1; return 1; }
  shape "$link" || { say "the links cannot be shaped: tc or its token bucket is not to be had"; failed=1; return 1; }
  while [ $SECONDS -lt $end ] && [ $seed -lt "${SEEDS:-5}" ]; do
    seed=$((seed + 1))
    for hook in ${DIRECT_HOOKS:-powersgd}; do
      [ "$hook" != - ] || continue
      boxed_job --hook "$hook" --seed $seed --images "$images/train" | sed "s/^{/{\"link\": \"$link\", /" >>"$out/direct.jsonl" ||
        { failed=1; say "direct $hook: failed"; }
    done
    left=$((end - SECONDS + 30))
    [ $left -gt 0 ] || break
    [ "${DIRECT_OURS:-}" = - ] ||
      ours gpu_training_hooks direct $left --set "seed=$seed" --set "axes.environment=\"cross-docker-$link\"" \
        "${pins[@]}" --set 'knobs.nccl.env={}' --only "compression in ${DIRECT_OURS:-[powersgd]}" || break
  done
  cells direct
}

for part in "$@"; do
  name=${part%%=*} seconds=${part#*=}
  say "$name"
  case $name in
    trajectories | steps | direct) "$name" "$seconds" ;;
    *) echo "no part \"$name\"; known: trajectories, steps, direct" >&2; failed=1 ;;
  esac
done
python3 scripts/hook_times.py "$out" | tee "$out/times.md"
rm -rf "$out/runs"
say "end"
exit $failed
