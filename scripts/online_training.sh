#!/bin/bash
# Training that learns its all-reduces while it trains, against the library's own and against what `tune` finds offline:
# two containers, Gloo and MPICH, unshaped and at 1 Gbit/s, 1,000 steps each, the four side by side.
#   [BUNDLE=FOLDER] scripts/online_training.sh OUTPUT_FOLDER SECONDS
#   scripts/online_training.sh results/online-training 420
# Needs root and eight cores for each of the four. Leaves BACKEND-ENVIRONMENT.sqlite, .json (tune's table), .log and
# summary.md (scripts/online_steps.py). Exit code 1: a search or a training run failed; that the time was over is none.
set -uo pipefail
[ $# -eq 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd)
end=$((SECONDS + $2)) experiment=${EXPERIMENT:-experiments/online_training.toml}
cd "$(dirname "$0")/.." || exit
. scripts/gpu_setup.sh
if ! docker version >/dev/null 2>&1; then
  engine=$(mktemp -d /tmp/online-engine-XXXX)
  export DOCKER_HOST=unix://$engine/s.sock
  setsid dockerd --data-root "$engine/data" --exec-root "$engine/exec" --host "$DOCKER_HOST" \
    --pidfile "$engine/pid" >"$engine/log" 2>&1 &
  trap 'kill "$(cat "$engine/pid")" 2>/dev/null' EXIT
  for _ in $(seq 60); do docker version >/dev/null 2>&1 && break; sleep 0.5; done
fi
limited() {
  local left=$((end - SECONDS))
  [ "$left" -gt 5 ] || return 124
  timeout --signal=INT --kill-after=30 "$left" "$@"
}
one() { # BACKEND ENVIRONMENT
  local name=$1-$2 code place="environment == $2 and backend == $1"
  limited "$program" tune "$experiment" --own --only "$place and collective == allreduce" --db "$out/$name.sqlite" \
    --table "$out/$name.json" >"$out/$name.tune.md" 2>"$out/$name.log"
  code=$?
  [ $code = 0 ] || { echo "$name: tune ended with $code"; [ $code = 124 ]; return; }
  limited "$program" run "$experiment" --only "$place and collective == training" --no-report --db "$out/$name.sqlite" \
    --set "work.1.tuner=[\"off\",\"online\",\"$out/$name.json\"]" >"$out/$name.md" 2>>"$out/$name.log"
  code=$?
  echo "$name: training ended with $code"
  [ $code = 0 ] || [ $code = 124 ] || [ $code = 130 ]
}
result=0 pids=()
for backend in ${BACKENDS:-gloo mpich}; do
  for environment in ${ENVIRONMENTS:-cross-docker cross-docker-1gbit}; do one "$backend" "$environment" & pids+=($!); done
done
for pid in "${pids[@]}"; do wait "$pid" || result=1; done
python3 scripts/online_steps.py "$out"/*.sqlite | tee "$out/summary.md"
exit $result
