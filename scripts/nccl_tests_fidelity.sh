#!/bin/bash
# Compares our NCCL worker with nccl-tests: the same sizes, calls back to back over rotated buffers, the slowest
# rank counts, launches alternated; nccl-tests runs twice a round, so that its own spread is printed next to ours.
#   [BUNDLE=FOLDER] scripts/nccl_tests_fidelity.sh NCCL_TESTS_BUILD_FOLDER OUTPUT_FOLDER [ROUNDS] [GPUS] [SECONDS]
# NCCL_TESTS_BUILD_FOLDER holds all_reduce_perf, broadcast_perf, all_gather_perf and alltoallv_perf (2.18 or newer) built with
# MPI=1. CALLS=N: calls per size (200). COLLECTIVES="alltoallv": these alone.
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
tests=$(cd "$1" && pwd) out=$(mkdir -p "$2" && cd "$2" && pwd) rounds=${3:-10} gpus=${4:-4} budget=${5:-420}
cd "$(dirname "$0")/.."
. scripts/gpu_setup.sh
[ -z "$DYNAMICCL_NCCL_LIBRARY" ] || export LD_LIBRARY_PATH="$(dirname "$DYNAMICCL_NCCL_LIBRARY"):${LD_LIBRARY_PATH:-}"
mpirun=$(command -v mpirun.openmpi || command -v mpirun)
table=$out/fidelity.csv
echo "round,who,collective,size_bytes,us,wrong" >"$table"
calls=${CALLS:-200} collectives=${COLLECTIVES:-allreduce broadcast allgather alltoallv}
# Every size once, each four times the one before, as nccl-tests steps through them; four are compared.
sizes=(1024 4096 16384 65536 262144 1048576 4194304 16777216 67108864 268435456 1073741824)
compared=" 1024 1048576 67108864 1073741824 "

perf() { # BINARY FIRST_SIZE LAST_SIZE
  "$mpirun" --allow-run-as-root --bind-to none --mca btl_tcp_if_include lo -n "$gpus" "$tests/$1" -b "$2" -e "$3" -f 4 \
    -g 1 -w 10 -n "$calls" -c 1 -a 3 2>>"$out/theirs.log"
}

# Who sends how much to whom, as the worker's alltoallv has it: of N(N+1)/2 shares one to itself, two to the next rank, and so on.
matrix() { # SIZE
  awk -v n="$gpus" -v elements="$(($1 / 4))" 'BEGIN {
    for (from = 0; from < n; ++from)
      for (to = 0; to < n; ++to)
        printf "%d%s", 4 * int(elements * ((to - from + n) % n + 1) * 2 / (n * (n + 1))), to + 1 < n ? " " : "\n" }'
}

# Its matrix holds for one size, so that every size is a start of its own. It rounds each share down to 16 bytes and prints their sum.
alltoallv_sizes() { # BINARY
  for size in $compared; do
    matrix "$size" >"$out/matrix.txt"
    NCCL_TESTS_ALLTOALLV_MATRIX_FILE=$out/matrix.txt perf "$1" "$size" "$size" | awk -v size="$size" '$1 ~ /^[0-9]+$/ { $1 = size; print }'
  done
}

run_theirs() { # ROUND WHO COLLECTIVE BINARY
  if [ "$3" = alltoallv ]; then alltoallv_sizes "$4"; else perf "$4" 1K 1G; fi |
    awk -v r="$1" -v w="$2" -v c="$3" -v wanted="$compared" \
      '# Our broadcast has one buffer, which nccl-tests calls in place.
       BEGIN { us = c == "broadcast" ? 10 : 6 }
       $1 ~ /^[0-9]+$/ && index(wanted, " " $1 " ") { print r "," w "," c "," $1 "," $us "," $(us + 3) }' >>"$table"
}

cells_of_launch() {
  local comma=
  for collective in $collectives; do
    for size in "${sizes[@]}"; do
      printf '%s\n  {"id": "%s %s", "collective": "%s", "size_bytes": %s, "datatype": "float32", "algorithm": "library", "in_place": false, "knobs": {}}' \
        "$comma" "$collective" "$size" "$collective" "$size"
      comma=,
    done
  done
}

run_ours() { # ROUND
  rm -rf "$out/launch"; mkdir -p "$out/launch"
  # One sample of the same number of calls, after as many warm-up samples as make 10 calls or more.
  cat >"$out/launch/run.json" <<JSON
{"protocol_version": 1, "launch_id": "fidelity-$1", "backend": "nccl", "architecture": "ring", "ranks": $gpus,
 "server_rank": 0, "seed": $1, "output_dir": "$out/launch", "rendezvous_dir": "$out/launch/meet", "interface": "lo",
 "gpu_of_rank": [$(seq -s , 0 $((gpus - 1)))], "connect_timeout_us": 30000000,
 "protocol": {"warmup": 2, "iterations": 1, "min_iterations": 1, "cell_time_cap_us": 60000000, "batch_target_us": 1e12,
  "max_batch": $calls, "batch_rooted": true, "rotate_buffers": true, "rank_aggregation": "max", "verify": true},
 "cells": [$(cells_of_launch)]}
JSON
  for ((rank = 0; rank < gpus; ++rank)); do
    DYNAMICCL_RANK=$rank build/release/dynamiccl-worker "$out/launch/run.json" 2>>"$out/ours.log" &
  done
  wait
  python3 - "$out/launch" "$1" "$compared" >>"$table" 2>>"$out/ours.log" <<'PY'
import glob, json, sys
folder, number, compared = sys.argv[1:4]
times, wrong = {}, {}
for path in glob.glob(folder + "/rank*.jsonl"):
    for line in open(path):
        record = json.loads(line)
        if record["type"] != "cell":
            continue
        if record["status"] != "ok":
            sys.exit(record["reason"])
        cell = record["cell_id"]
        wrong[cell] = wrong.get(cell, 0) + record["wrong"]
        times.setdefault(cell, []).append(record["measured"]["total_us"][0])
for cell, values in times.items():
    collective, size = cell.split()
    if size in compared.split():
        print(f"{number},ours,{collective},{size},{max(values)},{wrong[cell]}")
PY
}

declare -A binary=([allreduce]=all_reduce_perf [broadcast]=broadcast_perf [allgather]=all_gather_perf [alltoallv]=alltoallv_perf)
for ((round = 1; round <= rounds && SECONDS < budget; ++round)); do
  for one in $collectives; do run_theirs "$round" theirs "$one" "${binary[$one]}"; done
  run_ours "$round"
  for one in $collectives; do run_theirs "$round" again "$one" "${binary[$one]}"; done
  echo "round $round done ($SECONDS s)"
done
python3 - "$table" <<'PY' | tee "$out/fidelity.md"
import csv, random, statistics, sys
rows = {}
wrong = 0
for row in csv.DictReader(open(sys.argv[1])):
    try:
        rows.setdefault((row["collective"], int(row["size_bytes"])), {}).setdefault(row["who"], {})[row["round"]] = float(row["us"])
    except ValueError:
        continue
    wrong += int(row["wrong"]) if row["wrong"].isdigit() else 0
random.seed(1)

def interval(ratios):
    medians = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(4000))
    return medians[100], medians[3899]

print("| collective | bytes | n | nccl-tests us | ours us | ours / theirs (95 %) | theirs / theirs (95 %) | inside |")
print("|---|---|---|---|---|---|---|---|")
for (collective, size), who in sorted(rows.items()):
    shared = sorted(set(who.get("theirs", {})) & set(who.get("ours", {})) & set(who.get("again", {})))
    if len(shared) < 2:
        continue
    # The two runs of nccl-tests stand before and after ours: their mean is free of drift.
    ours = [who["ours"][r] / ((who["theirs"][r] + who["again"][r]) / 2) for r in shared]
    own = [who["again"][r] / who["theirs"][r] for r in shared]
    low, high = interval(ours)
    own_low, own_high = interval(own)
    fits = low >= min(0.98, own_low) and high <= max(1.02, own_high)
    print(f"| {collective} | {size} | {len(shared)} | {statistics.median(who['theirs'].values()):.2f} | "
          f"{statistics.median(who['ours'].values()):.2f} | {low:.3f}-{high:.3f} | {own_low:.3f}-{own_high:.3f} | "
          f"{'yes' if fits else 'NO'} |")
print(f"\nwrong values: {wrong}")
PY
rm -rf "$out/launch"
