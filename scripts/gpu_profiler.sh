#!/bin/bash
# What the profiler plugin costs per NCCL call, its events on and off in turn within a process, and a million calls
# over three communicators with it.
#   [BUNDLE=FOLDER] scripts/gpu_profiler.sh OUTPUT_FOLDER [ROUNDS]
set -uo pipefail
[ $# -ge 1 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd) rounds=${2:-10}
cd "$(dirname "$0")/.."
. scripts/gpu_setup.sh
plugin=$PWD/build/release/libdynamiccl-nccl-plugin.so
table=$out/profiler.csv
failed=0
echo "round,events,bytes,gpus,us_without,us_added,low,high" >"$table"
# EVENTS: calls (choices alone), sampled (GPU times of one call in four), kernels (of every call, the default).
with_plugin() { # EVENTS NCCL_STORM_ARGUMENTS
  local events=kernels every=4
  case $1 in calls) events=calls ;; kernels) every=1 ;; esac
  rm -rf "$out/calls"; mkdir -p "$out/calls"
  NCCL_PROFILER_PLUGIN=$plugin DYNAMICCL_PROFILE_FILE=$out/calls/call DYNAMICCL_PROFILE_EVENTS=$events \
    DYNAMICCL_PROFILE_EVERY=$every \
    build/release/nccl_storm "${@:2}" 2>>"$out/profiler.log"
}
for ((round = 1; round <= rounds; ++round)); do
  # Calls, bytes, calls of a block: events are off and on in turn within one process.
  for row in 40000:1024:250 1200:67108864:20; do
    IFS=: read -r calls bytes block <<<"$row"
    for events in calls sampled kernels; do
      with_plugin $events "$calls" 1 "$bytes" "$block" |
        sed -n "s/.*\"gpus\": \([0-9]*\).*\"us_without\": \([0-9.]*\), \"us_added\": \([-0-9.]*\), \"us_added_low\": \([-0-9.]*\), \"us_added_high\": \([-0-9.]*\).*/$round,$events,$bytes,\1,\2,\3,\4,\5/p" >>"$table"
    done
  done
done
with_plugin sampled 1000000 3 1024 | tee "$out/million.json" || failed=1
wc -l "$out"/calls/* 2>/dev/null | tail -n 1
python3 - "$table" <<'PY' | tee "$out/profiler.md"
import csv, statistics, sys
rows = {}
for row in csv.DictReader(open(sys.argv[1])):
    rows.setdefault((int(row["bytes"]), row["events"]), []).append({k: float(v) for k, v in row.items() if k != "events"})
print("| bytes | events | us per call of all GPUs without | added us per collective (lowest to highest bound of the rounds) | added % |")
print("|---|---|---|---|---|")
for (size, events), launches in sorted(rows.items()):
    gpus = launches[0]["gpus"]
    without = statistics.median(l["us_without"] for l in launches)
    added = statistics.median(l["us_added"] for l in launches)
    low, high = min(l["low"] for l in launches), max(l["high"] for l in launches)
    print(f"| {size} | {events} | {without:.2f} | {added / gpus:.2f} ({low / gpus:.2f} to {high / gpus:.2f}) | {100 * added / without:.2f} |")
PY
rm -rf "$out/calls"
exit $failed
