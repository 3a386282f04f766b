#!/bin/bash
# Measures every setting of an experiment's cells (`tune sweep`), its environments and backends side by
# side, on a machine with two cores for each pair of them and more; then lets the agents search
# what is stored (`tune replay`).
#   [BUNDLE=FOLDER] scripts/tune_sweep.sh STATE_FOLDER OUTPUT_FOLDER SECONDS [EXPERIMENT [SEEDS]]
#   [BUNDLE=FOLDER] scripts/tune_sweep.sh build/sweep results/sweep 3000 experiments/tune_cpu.toml 10
# One database per environment and backend is kept in STATE_FOLDER; called again, unfinished ones are
# completed, on as many cores as before: each pair has its share of them for itself. Leaves sweeps.tar.xz.* (databases and tables) and summary.txt in OUTPUT_FOLDER; no seeds, no replay.
# COLLECTIVES="allreduce broadcast" sweeps each of them by itself, in a database of its own (NAME-COLLECTIVE.sqlite), side by side with
# the others: a library of many settings is done in a fraction of the time. Such parts are searched by scripts/agents_report.sh.
# Further arguments of `dynamiccl tune sweep` stand in SWEEP_FLAGS, of the replay in REPLAY_FLAGS: with --confirm
# all that was chosen is measured on fresh launches, for REPLAY_SECONDS at most (complete rounds count).
set -uo pipefail
[ $# -ge 3 ] || { sed -n '2,14s/^# \{0,1\}//p' "$0" >&2; exit 2; }
state=$(mkdir -p "$1" && cd "$1" && pwd)
out=$(mkdir -p "$2" && cd "$2" && pwd)
seconds=$3 experiment=${4:-experiments/tune_cpu.toml} seeds=${5:-10}
cd "$(dirname "$0")/.."
. scripts/gpu_setup.sh
read -ra sweep_flags <<<"${SWEEP_FLAGS:-}"
read -ra replay_flags <<<"${REPLAY_FLAGS:-}"
environments=${ENVIRONMENTS:-bare-metal singularity single-docker cross-docker}
backends=${BACKENDS:-openmpi mpich gloo}
collectives=${COLLECTIVES:-all}
[ "$collectives" = all ] || [ "$seeds" -eq 0 ] || { echo "COLLECTIVES makes parts, which are not replayed here: SEEDS 0" >&2; exit 2; }

# One engine for all of them: each would end its own.
if [[ $environments == *docker* ]] && ! docker version >/dev/null 2>&1; then
  engine=$(mktemp -d /tmp/sweep-engine-XXXX)
  export DOCKER_HOST=unix://$engine/s.sock
  setsid dockerd --data-root "$engine/data" --exec-root "$engine/exec" --host "$DOCKER_HOST" \
    --pidfile "$engine/pid" >"$engine/log" 2>&1 &
  trap 'kill "$(cat "$engine/pid")" 2>/dev/null' EXIT
  for _ in $(seq 60); do docker version >/dev/null 2>&1 && break; sleep 0.5; done
fi

# Whether a sweep was begun in this database: the program makes the file before its checks are done.
begun() { # DATABASE
  [ -s "$1" ] && [ "$("$program" query --db "$1" --format csv 'SELECT count(*) FROM run' 2>/dev/null | tail -n 1)" != 0 ]
}
sweep() { # ENVIRONMENT BACKEND CORES COLLECTIVE
  local name=$1-$2 cells="environment == $1 and backend == $2" resume=() pinned pins
  [ "$4" = all ] || { name+=-$4 cells+=" and collective == $4"; }
  local what="$experiment ${SWEEP_FLAGS:-}"
  [ "$(cat "$state/$name.done" 2>/dev/null)" != "$what" ] || [ ! -s "$state/$name.sqlite" ] || { echo "sweep $name: done before" >>"$out/summary.txt"; return; }
  pin_to "$3" "$1"
  ! begun "$state/$name.sqlite" || resume=(--resume)
  timeout --signal=INT --kill-after=30 "$seconds" "${pinned[@]}" "$program" tune sweep "$experiment" "${resume[@]}" "${pins[@]}" \
    --only "$cells" "${sweep_flags[@]}" --db "$state/$name.sqlite" \
    >"$state/sweep-$name.md" 2>"$state/sweep-$name.log"
  local code=$?
  [ $code != 0 ] || echo "$what" >"$state/$name.done"
  echo "sweep $name: exit code $code after $SECONDS s: $(tail -n 1 "$state/sweep-$name.log" | tail -c 200)" >>"$out/summary.txt"
}

replay() { # ENVIRONMENT BACKEND CORES
  local name=$1-$2 pinned pins
  pin_to "$3" "$1"
  timeout --signal=INT --kill-after=30 "${REPLAY_SECONDS:-infinity}" "${pinned[@]}" "$program" tune replay "$experiment" --seeds "$seeds" "${pins[@]}" --only "environment == $1 and backend == $2" \
    "${replay_flags[@]}" --db "$state/$name.sqlite" >"$state/replay-$name.md" 2>"$state/replay-$name.log"
  echo "replay $name: exit code $? after $SECONDS s: $(tail -n 1 "$state/replay-$name.log" | tail -c 200)" >>"$out/summary.txt"
}

side_by_side() { # sweep|replay
  local pids=() environment backend collective of
  of=$(($(wc -w <<<"$environments") * $(wc -w <<<"$backends") * $(wc -w <<<"$collectives")))
  for environment in $environments; do
    for backend in $backends; do
      for collective in $collectives; do
        "$1" "$environment" "$backend" "$(cores_of ${#pids[@]} $of)" "$collective" & pids+=($!)
      done
    done
  done
  wait "${pids[@]}"
}

: >"$out/summary.txt"
side_by_side sweep
[ "$seeds" -eq 0 ] || side_by_side replay
cat "$out/summary.txt"
tar -C "$state" -c . | xz -T0 -3 | split -b 15M - "$out/sweeps.tar.xz."
