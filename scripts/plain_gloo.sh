#!/bin/bash
# What a plain Gloo program gains from an exported file that it loads: two ranks over the loopback interface, twenty sizes of each
# collective from 4 B to 64 MiB, with and without in turn.
#   scripts/plain_gloo.sh OUTPUT_FOLDER SECONDS GLOO_ENV [RANKS]
#   ./dynamiccl export results/tuned.json --format gloo --out exported
#   scripts/plain_gloo.sh results/plain-gloo 200 exported/gloo.env
# Leaves plain.txt (turn, side, collective, size, microseconds) and gains.txt (scripts/plain_gains.py). PROGRAM names another build of
# plain-gloo-sizes (build/release). Whole turns alone count; PAIRS bounds them (12).
set -uo pipefail
[ $# -ge 3 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd) || exit 2
end=$((SECONDS + $2)) file=$(realpath "$3") ranks=${4:-2}
cd "$(dirname "$0")/.." || exit
. scripts/plain_turns.sh
program=${PROGRAM:-build/release/plain-gloo-sizes}
[ -x "$program" ] || cmake --build build/release --target plain-gloo-sizes || exit
[ -r "$file" ] || { echo "$file cannot be read" >&2; exit 2; }
launch() { # COLLECTIVE
  local meet rank pids=() code=0
  meet=$(mktemp -d)
  for ((rank = 1; rank < ranks; rank++)); do timeout 120 "$program" "$meet" $rank "$ranks" "$1" 8 & pids+=($!); done
  timeout 120 "$program" "$meet" 0 "$ranks" "$1" 8 || code=1
  wait "${pids[@]}" || code=1
  rm -rf "$meet"
  return $code
}
one_turn() { turn_of "$file" "$1" "$2" launch allreduce broadcast allgather alltoall; } # TURN SIDES
plain_turns $end "$out" one_turn
result=$?
tail -n 2 "$out/gains.txt"
exit $result
