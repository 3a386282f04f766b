#!/bin/bash
# What the profiler plugin costs per NCCL call, launches with and without it alternated, and a million calls
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
echo "round,who,bytes,us" >"$table"
storm() { build/release/nccl_storm "$@" 2>>"$out/profiler.log"; }
with_plugin() {
  rm -rf "$out/calls"; mkdir -p "$out/calls"
  NCCL_PROFILER_PLUGIN=$plugin DYNAMICCL_PROFILE_FILE=$out/calls/call DYNAMICCL_PROFILE_EVENTS=$1 storm "${@:2}"
}
us_of() { sed -n 's/.*"us_per_call": \([0-9.]*\).*/\1/p'; }
for ((round = 1; round <= rounds; ++round)); do
  for row in 1024:20000 67108864:600; do
    bytes=${row%%:*} calls=${row#*:}
    echo "$round,none,$bytes,$(storm "$calls" 1 "$bytes" | us_of)" >>"$table"
    for events in calls kernels; do
      echo "$round,$events,$bytes,$(with_plugin "$events" "$calls" 1 "$bytes" | us_of)" >>"$table"
    done
    echo "$round,again,$bytes,$(storm "$calls" 1 "$bytes" | us_of)" >>"$table"
  done
done
with_plugin kernels 1000000 3 1024 | tee "$out/million.json" || failed=1
wc -l "$out"/calls/* 2>/dev/null | tail -n 1
python3 - "$table" <<'PY' | tee "$out/profiler.md"
import csv, statistics, sys
rows = {}
for row in csv.DictReader(open(sys.argv[1])):
    if row["us"]:
        rows.setdefault(int(row["bytes"]), {}).setdefault(row["who"], {})[row["round"]] = float(row["us"])
print("| bytes | us per call without | with calls: + us (range over rounds) | with kernels: + us | without again: + us |")
print("|---|---|---|---|---|")
for size, who in sorted(rows.items()):
    cells = [f"{statistics.median(who['none'].values()):.2f}"]
    for name in ("calls", "kernels", "again"):
        rounds = sorted(set(who["none"]) & set(who.get(name, {})))
        added = sorted(who[name][r] - (who["none"][r] + (who["again"][r] if name != "again" else who["none"][r])) / 2
                       for r in rounds if r in who["again"])
        middle = statistics.median(added)
        cells.append(f"{middle:.2f} ({added[0]:.2f} to {added[-1]:.2f}), {100 * middle / statistics.median(who['none'].values()):.2f} %")
    print(f"| {size} | " + " | ".join(cells) + " |")
PY
rm -rf "$out/calls"
exit $failed
