#!/bin/bash
# Backend, architecture and schedule chosen between runs, held against the best fixed way and the published prior
# alone: every way is run, every agent searches what was stored with ten seeds, and one search runs for itself.
#   [BUNDLE=FOLDER] scripts/between_runs.sh OUTPUT_FOLDER SECONDS
#   LAUNCHES=6 scripts/between_runs.sh results/between 450
# Called again with the same folder and settings it goes on where the time was over, and measures nothing twice. Agents
# search once all ways were run. EXPERIMENT names another file; ENVIRONMENTS a list of its environments; LAUNCHES of each way
# (3 at least, the file's own where none are said), STEPS and THREADS of each cell: fewer take less time.
# Leaves runs.sqlite, replay.md and replay-environments.md (the environment a choice, too), live.md and summary.txt.
# Exit code 0: all of it is there; 75: the time was over, call again; 1: a step failed.
set -uo pipefail
[ $# -eq 2 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd) || exit
end=$((SECONDS + $2)) experiment=${EXPERIMENT:-experiments/between_runs.toml}
cd "$(dirname "$0")/.." || exit
. scripts/gpu_setup.sh
file=() # what makes the plan another one
# shellcheck disable=SC2086 # a list
[ -z "${ENVIRONMENTS:-}" ] || file+=(--set "axes.environment=[$(printf '"%s",' $ENVIRONMENTS | sed 's/,$//')]")
[ -z "${LAUNCHES:-}" ] || file+=(--set "protocol.launches=$LAUNCHES")
for ((work = 0; work < $(grep -c '^\[\[work\]\]' "$experiment"); work++)); do
  [ -z "${STEPS:-}" ] || file+=(--set "work.$work.steps=$STEPS")
  [ -z "${THREADS:-}" ] || file+=(--set "work.$work.threads=$THREADS")
done
say() { echo "$SECONDS s: $*" | tee -a "$out/summary.txt"; }
# Runs what was not done yet; ends the script where the time is over or the step failed.
step() { # NAME COMMAND...
  local name=$1 left=$((end - SECONDS)) code
  shift
  [ ! -e "$out/$name.done" ] || return 0
  [ "$left" -gt 8 ] || { say "$name: no time left; call this again with the same folder"; exit 75; }
  timeout --signal=INT --kill-after=20 "$left" "$@" >"$out/$name.md.new" 2>"$out/$name.log"
  code=$?
  case $code in
    0) mv "$out/$name.md.new" "$out/$name.md" && : >"$out/$name.done"; say "$name: done" ;;
    124 | 130 | 137) say "$name: the time is over; call this again with the same folder"; exit 75 ;;
    *) say "$name ended with $code: $(tail -n 1 "$out/$name.log" | cut -c1-300)"; exit 1 ;;
  esac
}
: >"$out/summary.txt"
resume=()
[ ! -e "$out/runs.sqlite" ] || resume=(--resume)
step runs "$program" run "$experiment" "${file[@]}" "${resume[@]}" --no-report --db "$out/runs.sqlite"
for extra in "" --environments; do
  step "replay${extra#-}" "$program" tune "$experiment" "${file[@]}" --between-runs $extra --replay --from last \
    --agent default,prior,random,coordinate-descent,bandit,exhaustive --db "$out/runs.sqlite"
done
step live "$program" tune "$experiment" "${file[@]}" --between-runs --db "$out/live.sqlite"
for name in replay replay-environments live; do cat "$out/$name.md"; done | tee -a "$out/summary.txt"
