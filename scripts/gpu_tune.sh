#!/bin/bash
# Finds NCCL settings by itself on a GPU machine, exports them, and measures them against NCCL's
# default on fresh launches in random order: across containers (one GPU each, on a bridge, the same
# containers and flags on both sides) and over NVLink on bare metal. Then an unchanged PyTorch DDP
# job with and without them.
#   [BUNDLE=FOLDER] scripts/gpu_tune.sh OUTPUT_FOLDER PART=SECONDS...
#   [BUNDLE=FOLDER] scripts/gpu_tune.sh OUTPUT_FOLDER cross-search=120 cross-confirm=200 ddp=120
#   [BUNDLE=FOLDER] scripts/gpu_tune.sh OUTPUT_FOLDER nvlink-search=90 nvlink-confirm=150
#   [BUNDLE=FOLDER] scripts/gpu_tune.sh OUTPUT_FOLDER judge=280     on two GPUs: experiments/gpu_tune_judge.toml, 24 launches of
#     about ten seconds, nothing else. A second grid for scripts/agents_report.sh (JUDGE=OUTPUT_FOLDER/tune.sqlite.xz there).
# Leaves tune.sqlite.xz (all launches), the exported files in tar archives, compare-*.md and
# ddp.jsonl. All of the machine's GPUs take part, or the first RANKS. A confirm part without its search before it takes TABLES/PART/table.json, where
# TABLES=FOLDER is set. A part whose budget ends keeps the launches that were stored.
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd); shift
cd "$(dirname "$0")/.."
root=$(pwd)
. scripts/gpu_setup.sh
. scripts/gpu_engine.sh
trap engine_down EXIT
db=$out/tune.sqlite
# Containers see the build folder under its own path.
gpus=${RANKS:-$(nvidia-smi -L | wc -l)}
tuned=$root/build/release/tuned
mkdir -p "$tuned"
failed=0
say() { echo "== $* ($SECONDS s)"; }

run_part() { # EXPERIMENT_FILE SECONDS NAME
  timeout --signal=INT --kill-after=40 "$2" "$program" run "$1" --set "axes.ranks=$gpus" --db "$db" >"$out/$3.md" 2>"$out/$3.log"
  local code=$?
  say "$3: exit code $code"; tail -n 4 "$out/$3.log"
  case $code in 0|1|124|130) return 0 ;; *) failed=1; return 1 ;; esac
}

search() { # cross|nvlink SECONDS
  local file=experiments/gpu_tune_search.toml
  [ "$1" = nvlink ] && file=experiments/gpu_tune_nvlink_search.toml
  run_part "$file" "$2" "$1-search" || return
  mkdir -p "$tuned/$1"
  "$program" export "$tuned/$1/table.json" --measured last --db "$db" --backend nccl \
    --format nccl,env,toml --out "$tuned/$1" || { failed=1; return; }
  cat "$tuned/$1/nccl.conf" "$tuned/$1/nccl.table"
}

confirm() { # cross|nvlink SECONDS
  if [ ! -e "$tuned/$1/nccl.conf" ] && [ -n "${TABLES:-}" ]; then
    mkdir -p "$tuned/$1"
    "$program" export "$TABLES/$1/table.json" --format nccl --out "$tuned/$1" || { failed=1; return; }
  fi
  [ -e "$tuned/$1/nccl.conf" ] || { say "$1-confirm: no settings; run $1-search first"; failed=1; return; }
  sed "s|@CONF@|$tuned/$1/nccl.conf|" "experiments/gpu_tune_$1_confirm.toml" >"$out/$1-confirm.toml"
  run_part "$out/$1-confirm.toml" "$2" "$1-confirm" || return
  ratios | tee "$out/compare-$1.md"
}

# Per size: geometric means over launches, the ratio's 95 % interval (normal approximation on logarithms), and the
# default against itself (odd against even blocks) as the band of what is noise.
ratios() {
  "$program" query --db "$db" --format markdown "
    WITH m AS (SELECT size_bytes, ln(median_us) AS l, block % 2 AS half,
                      group_knobs LIKE '%NCCL_CONF_FILE%' AS tuned
               FROM v_measurement WHERE counts AND run_id = (SELECT run_id FROM v_run ORDER BY run_row DESC LIMIT 1)),
    s AS (SELECT size_bytes, tuned, count(*) AS n, avg(l) AS mean, avg(l * l) - avg(l) * avg(l) AS var
          FROM m GROUP BY size_bytes, tuned),
    h AS (SELECT size_bytes, avg(CASE WHEN half = 1 THEN l END) - avg(CASE WHEN half = 0 THEN l END) AS d
          FROM m WHERE NOT tuned GROUP BY size_bytes)
    SELECT d.size_bytes, d.n AS default_launches, t.n AS tuned_launches,
           round(exp(d.mean), 2) AS default_us, round(exp(t.mean), 2) AS tuned_us,
           round(exp(d.mean - t.mean), 3) AS times_faster,
           round(exp(d.mean - t.mean - 2.1 * sqrt(max(d.var, 0) / max(d.n - 1, 1) + max(t.var, 0) / max(t.n - 1, 1))), 3) AS low,
           round(exp(d.mean - t.mean + 2.1 * sqrt(max(d.var, 0) / max(d.n - 1, 1) + max(t.var, 0) / max(t.n - 1, 1))), 3) AS high,
           round(exp(abs(h.d)), 3) AS default_against_default
    FROM s d JOIN s t ON t.size_bytes = d.size_bytes AND t.tuned AND NOT d.tuned
    JOIN h ON h.size_bytes = d.size_bytes ORDER BY d.size_bytes"
}

ddp_launch() { # LABEL VARIABLE=VALUE...
  local label=$1; shift
  local variables=() pids=() rank
  for pair in "$@"; do variables+=(--env "$pair"); done
  for rank in $(seq 0 $((gpus - 1))); do
    docker exec "${variables[@]}" --env RANK=$rank --env WORLD_SIZE=$gpus --env LOCAL_RANK=0 --env NCCL_NVLS_ENABLE=0 \
      --env NCCL_SOCKET_IFNAME=eth0 --env MASTER_ADDR=$engine_subnet.10 \
      --env PYTHONPATH="${PYTHONPATH:-}" --env MASTER_PORT=$port "tune$rank" "$python" "$root/scripts/ddp_steps.py" \
      --label "$label" --models "${DDP_MODELS:-resnet18,resnet50,bert-base,bert-large}" --steps "${DDP_STEPS:-15}" --warmup 4 \
      >>"$out/ddp.jsonl" 2>>"$out/ddp.log" &
    pids+=($!)
  done
  local code=0
  for pid in "${pids[@]}"; do wait "$pid" || code=1; done
  port=$((port + 1))
  return $code
}

ddp() { # SECONDS
  python=$(command -v python3)
  "$python" -c 'import torch' 2>/dev/null || { say "ddp: no torch for $python"; failed=1; return; }
  [ -e "$tuned/cross/nccl.conf" ] || { say "ddp: no settings; run cross-search first"; failed=1; return; }
  port=29500
  engine_up || { say "ddp: no engine; see $engine/log"; tail -n 5 "$engine/log"; failed=1; engine_down; return; }
  local begin=$SECONDS rank
  for rank in $(seq 0 $((gpus - 1))); do
    engine_container "tune$rank" $((10 + rank)) "$rank" --volume "$root:$root" || failed=1
  done
  local round=0
  # Both sides in turn, the first of a pair alternating.
  while [ $((SECONDS - begin)) -lt "$1" ]; do
    local order=(default tuned)
    [ $((round % 2)) -eq 0 ] || order=(tuned default)
    for side in "${order[@]}"; do
      if [ $side = tuned ]; then ddp_launch tuned "NCCL_CONF_FILE=$tuned/cross/nccl.conf"; else ddp_launch default; fi ||
        { say "ddp: a launch failed"; tail -n 5 "$out/ddp.log"; failed=1; round=99; break; }
    done
    round=$((round + 1))
    [ $round -lt 99 ] || break
    say "ddp: round $round"
  done
  engine_down
  "$python" - "$out/ddp.jsonl" <<'PYTHON'
import collections, json, math, sys
times = collections.defaultdict(lambda: collections.defaultdict(list))
for line in open(sys.argv[1]):
    row = json.loads(line)
    times[row["model"]][row["label"]].append(row["median_ms"])
print("| model | default ms | tuned ms | times faster | launches per side |\n|---|---|---|---|---|")
for model, sides in times.items():
    mean = {side: math.exp(sum(map(math.log, values)) / len(values)) for side, values in sides.items()}
    if len(mean) == 2:
        print(f"| {model} | {mean['default']:.1f} | {mean['tuned']:.1f} | {mean['default'] / mean['tuned']:.2f} | "
              f"{len(sides['default'])} |")
PYTHON
}

# After every part: a script that is cut short leaves what its parts found. Few files travel better than many.
pack() {
  [ ! -e "$db" ] || xz -T0 -1 -kf "$db"
  tar -C "$tuned" -czf "$out/tuned.tar.gz" . 2>/dev/null
  (cd "$out" && tar -czf texts.tar.gz ./*.md ./*.log ./*.toml 2>/dev/null)
}

nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader
for part in "$@"; do
  name=${part%%=*} seconds=${part#*=}
  say "$name, at most $seconds s"
  case $name in
    cross-search) search cross "$seconds" ;;
    cross-confirm) confirm cross "$seconds" ;;
    nvlink-search) search nvlink "$seconds" ;;
    nvlink-confirm) confirm nvlink "$seconds" ;;
    judge) run_part experiments/gpu_tune_judge.toml "$seconds" judge ;;
    ddp) ddp "$seconds" ;;
    *) echo "no part \"$name\"; known: cross-search, cross-confirm, nvlink-search, nvlink-confirm, judge, ddp" >&2; failed=1 ;;
  esac
  pack
done
rm -f "$db" "$db"-wal "$db"-shm
(cd "$out" && rm -f ./*-search.md ./*.log ./*.toml)
say "end"; ls -l "$out"
exit $failed
