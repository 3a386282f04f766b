#!/bin/bash
# Backend, architecture and schedule chosen between runs, held against the best fixed way and the published prior
# alone: every way is run, every agent searches what was stored with ten seeds, and one search runs for itself.
#   [BUNDLE=FOLDER] scripts/between_runs.sh OUTPUT_FOLDER SECONDS
#   scripts/between_runs.sh results/between 450
# EXPERIMENT names another file; ENVIRONMENTS a list of its environments. Two thirds of the time go to the runs.
# Leaves runs.sqlite, replay.md and replay-environments.md (the environment a choice, too), live.md and summary.txt.
set -uo pipefail
[ $# -eq 2 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd)
end=$((SECONDS + $2)) share=$(($2 * 2 / 3)) experiment=${EXPERIMENT:-experiments/between_runs.toml}
cd "$(dirname "$0")/.." || exit
. scripts/gpu_setup.sh
only=()
[ -z "${ENVIRONMENTS:-}" ] || only=(--set "axes.environment=[$(printf '"%s",' $ENVIRONMENTS | sed 's/,$//')]")
result=0
say() { echo "$SECONDS s: $*" | tee -a "$out/summary.txt"; }
: >"$out/summary.txt"
step() { # MOST NAME COMMAND...
  local most=$1 name=$2 left=$((end - SECONDS)) code
  shift 2
  [ "$left" -gt 8 ] || { say "$name: no time left"; return; }
  timeout --signal=INT --kill-after=20 "$((left < most ? left : most))" "$@" >"$out/$name.md" 2>"$out/$name.log"
  code=$?
  say "$name ended with $code$([ $code = 0 ] || echo ": $(tail -n 1 "$out/$name.log" | cut -c1-300)")"
  # 124: the time was over; what is stored by then counts.
  [ $code = 0 ] || [ $code = 124 ] || [ $code = 130 ] || result=1
}
step "$share" runs "$program" run "$experiment" "${only[@]}" --no-report --db "$out/runs.sqlite"
for extra in "" --environments; do
  step 60 "replay${extra#-}" "$program" tune "$experiment" "${only[@]}" --between-runs $extra --replay --from last \
    --agent default,prior,random,coordinate-descent,bandit,exhaustive --db "$out/runs.sqlite"
done
cat "$out"/replay*.md | tee -a "$out/summary.txt"
step 600 live "$program" tune "$experiment" "${only[@]}" --between-runs --db "$out/live.sqlite"
cat "$out/live.md" | tee -a "$out/summary.txt"
exit $result
