#!/bin/bash
# What the orchestrator adds to a launch: `dynamiccl run` of one launch of about 5 s, from the command to the
# stored result, against a bare mpirun of the same worker with the same run.json, in alternation.
#   benchmarks/orchestration_overhead.sh [ROUNDS]         needs build/release
# Prints both times per round and the ratio's median and range; exit code 1 above 1.10.
set -euo pipefail
rounds=${1:-5}
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cat >"$work/five_seconds.toml" <<'TOML'
name = "five-seconds"
seed = 1
[axes]
environment = "bare-metal"
backend = "openmpi"
architecture = "ring"
ranks = 2
[[work]]
collective = "allreduce"
size = "1MiB"
[protocol]
warmup = 10
iterations = 1000000
launches = 1
cell_time_cap = "4500ms"
TOML
now() { echo "$EPOCHREALTIME"; }
for ((round = 1; round <= rounds; ++round)); do
  rm -rf "$work/out"
  start=$(now)
  build/release/dynamiccl run "$work/five_seconds.toml" --db "$work/$round.sqlite" --out "$work/out" >"$work/answer" 2>"$work/log" ||
    { cat "$work/log" >&2; exit 1; }
  ours=$(awk -v a="$start" -v b="$(now)" "BEGIN { print b - a }")
  json=$(find "$work/out" -name run.json)
  # The same file again, into a folder of its own.
  mkdir -p "$work/bare"; rm -rf "$work/bare"/*
  sed "s#$(dirname "$json")#$work/bare#g" "$json" >"$work/bare/run.json"
  mapfile -t argv < <(build/release/dynamiccl query "SELECT value FROM launch, json_each(argv_json) ORDER BY json_each.key" \
    --db "$work/$round.sqlite" --format csv | tr -d "\r" | tail -n +2 | sed "s/^\"//; s/\"$//; s#$json#$work/bare/run.json#")
  start=$(now)
  "${argv[@]}" >"$work/bare/stdout" 2>&1 || { cat "$work/bare/stdout" >&2; exit 1; }
  bare=$(awk -v a="$start" -v b="$(now)" "BEGIN { print b - a }")
  ls "$work"/bare/rank0.jsonl >/dev/null
  echo "$ours $bare" | awk '{ printf "run %.2f s, bare %.2f s, ratio %.3f\n", $1, $2, $1 / $2 }' | tee -a "$work/ratios"
done
awk '{ print $NF }' "$work/ratios" | sort -n | awk '{ v[NR] = $1 } END {
  m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2
  printf "ratio: median %.3f, range %.3f to %.3f over %d rounds, allowed 1.10\n", m, v[1], v[NR], NR; exit m > 1.10 }'
