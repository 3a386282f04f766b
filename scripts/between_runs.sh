#!/bin/bash
# Backend, architecture and schedule chosen between runs, compared with the best fixed way and the published prior
# alone: every way is run, every agent searches what was stored with ten seeds, and one search runs for itself.
#   [BUNDLE=FOLDER] scripts/between_runs.sh OUTPUT_FOLDER SECONDS
#   LAUNCHES=6 scripts/between_runs.sh results/between 450
# Called again with the same folder and settings the runs go on where the time was over and no launch of theirs is measured
# twice. A search begins anew in each call until it ends in one: live.md, of which each launch is measured then, never comes
# where SECONDS is less than that search takes. Agents search once all ways were run; a launch that failed is tried again by
# the next call, and what it adds is searched again. EXPERIMENT names another file; ENVIRONMENTS a list of its environments;
# LAUNCHES of each way (3 at least, the file's own where none are said), STEPS and THREADS of each cell: fewer take less time.
# Leaves runs.sqlite, replay.md and replay-environments.md (the environment a choice, too), live.md and summary.txt.
# Exit code 0: all of it is there; 75: the time was over, call again; 1: a step failed, the others were done where they could be.
set -uo pipefail
[ $# -eq 2 ] || { sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd) || exit 2
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
failed() { say "$name ended with $code: $(tail -n 1 "$out/$name.log" | cut -c1-300)"; }
# Runs what was not done yet. 1: a part of it failed; the script ends where the time is over or nothing of it can be had.
step() { # NAME COMMAND...
  local name=$1 left=$((end - SECONDS)) code
  shift
  [ ! -e "$out/$name.done" ] || return 0
  [ "$left" -gt 8 ] || { say "$name: no time left; call this again with the same folder"; exit 75; }
  timeout --signal=INT --kill-after=20 "$left" "$@" >"$out/$name.md.new" 2>"$out/$name.log"
  code=$?
  case $code in
    2) # Cells that failed in launches that ended well are stored with their reason, and no launch is left.
      tail -n 1 "$out/$name.log" | grep -q ': nothing to resume: ' || { failed; exit 1; }
      : >"$out/$name.done"; say "$name: nothing is left to measure" ;;
    0) mv "$out/$name.md.new" "$out/$name.md" && : >"$out/$name.done"; say "$name: done" ;;
    124 | 130 | 137) say "$name: the time is over; call this again with the same folder$again"; exit 75 ;;
    *) failed
      [ $code = 1 ] || exit 1
      return 1 ;;
  esac
}
# Runs that the database holds and their launches that ended well, "1,36": `run` makes the file before its checks are done.
stored() {
  if [ ! -s "$out/runs.sqlite" ]; then echo 0,; return; fi
  # shellcheck disable=SC2154 # gpu_setup.sh sets it
  "$program" query --db "$out/runs.sqlite" --format csv \
    'SELECT count(*) AS runs, sum(launches_ok) AS ok FROM v_run' 2>/dev/null | tail -n 1
}
# Of other settings "nothing to resume" would tell nothing.
[ -e "$out/settings" ] || echo "$experiment ${file[*]}" >"$out/settings"
[ "$(cat "$out/settings")" = "$experiment ${file[*]}" ] ||
  { echo "$out was begun with other settings ($(cat "$out/settings")): give those again, or another OUTPUT_FOLDER" >&2; exit 2; }
: >"$out/summary.txt"
before=$(stored) resume=(--resume) again='' worst=0
case $before in 0,*) resume=() ;; esac
step runs "$program" run "$experiment" "${file[@]}" "${resume[@]}" --no-report --db "$out/runs.sqlite" || worst=1
[ "$(stored)" = "$before" ] || rm -f "$out"/replay*.done
again=', and more SECONDS where the search had all of them: it begins anew'
for extra in "" --environments; do
  step "replay${extra#-}" "$program" tune "$experiment" "${file[@]}" --between-runs $extra --replay --from last \
    --agent default,prior,random,coordinate-descent,bandit,exhaustive --db "$out/runs.sqlite" || worst=1
done
step live "$program" tune "$experiment" "${file[@]}" --between-runs --db "$out/live.sqlite" || worst=1
for name in replay replay-environments live; do [ ! -e "$out/$name.done" ] || cat "$out/$name.md"; done | tee -a "$out/summary.txt"
exit $worst
