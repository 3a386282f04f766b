#!/bin/bash
# Training that learns its all-reduces while it trains, against the library's own and against what `tune` finds offline:
# two containers, Gloo and MPICH, unshaped and at 1 Gbit/s, 1,000 steps each, the four side by side.
#   [BUNDLE=FOLDER] scripts/online_training.sh OUTPUT_FOLDER SECONDS
#   scripts/online_training.sh results/online-training 420
# Needs root and six to eight cores for each of the four, which get them for themselves. Leaves
# BACKEND-ENVIRONMENT.sqlite, .json (tune's table), .log and summary.md (scripts/online_steps.py). Exit code 1: a search
# or a training run failed; that the time was over is none.
set -uo pipefail
[ $# -eq 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd)
end=$((SECONDS + $2)) experiment=${EXPERIMENT:-experiments/online_training.toml}
cd "$(dirname "$0")/.." || exit
. scripts/gpu_setup.sh
. scripts/gpu_engine.sh
pids=()
cleanup() {
  [ ${#pids[@]} = 0 ] || { kill "${pids[@]}" 2>/dev/null; wait "${pids[@]}" 2>/dev/null; }
  engine_down
}
trap cleanup EXIT
trap 'exit 130' INT TERM
if ! docker version >/dev/null 2>&1; then engine_up || { tail -n 5 "$engine/log" >&2; exit 1; }; fi
# In the background, so that `one` hears at once that it shall end; containers go with the program.
limited() {
  local left=$((end - SECONDS))
  [ "$left" -gt 5 ] || return 124
  timeout --signal=INT --kill-after=30 "$left" "$@" &
  running=$!
  wait $running
}
one() { # BACKEND ENVIRONMENT CORES
  local name=$1-$2 code running= pinned pins place="environment == $2 and backend == $1"
  pin_to "$3" "$2"
  trap '[ -z "$running" ] || { kill $running; wait $running; }; exit 130' TERM
  limited "${pinned[@]}" "$program" tune "$experiment" "${pins[@]}" --own --only "$place and collective == allreduce" --db "$out/$name.sqlite" \
    --table "$out/$name.json" >"$out/$name.tune.md" 2>"$out/$name.log"
  code=$?
  [ $code = 0 ] || { echo "$name: tune ended with $code"; [ $code = 124 ]; return; }
  limited "${pinned[@]}" "$program" run "$experiment" "${pins[@]}" --only "$place and collective == training" --no-report --db "$out/$name.sqlite" \
    --set "work.1.tuner=[\"off\",\"online\",\"$out/$name.json\"]" >"$out/$name.md" 2>>"$out/$name.log"
  code=$?
  echo "$name: training ended with $code"
  [ $code = 0 ] || [ $code = 124 ] || [ $code = 130 ]
}
result=0
read -ra backends <<<"${BACKENDS:-gloo mpich}"
read -ra environments <<<"${ENVIRONMENTS:-cross-docker cross-docker-1gbit}"
for backend in "${backends[@]}"; do
  for environment in "${environments[@]}"; do
    one "$backend" "$environment" "$(cores_of ${#pids[@]} $((${#backends[@]} * ${#environments[@]})))" & pids+=($!)
  done
done
for pid in "${pids[@]}"; do wait "$pid" || result=1; done
pids=()
python3 scripts/online_steps.py "$out"/*.sqlite | tee "$out/summary.md"
exit $result
