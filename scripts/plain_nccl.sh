#!/bin/bash
# What a plain PyTorch program gains from exported files of NCCL that it loads: a rank per GPU, all-reduces of twenty sizes from 4 B to
# 64 MiB, with and without in turn, under the same NCCL_* variables. Searches the files first where none are given.
#   [BUNDLE=FOLDER] scripts/plain_nccl.sh OUTPUT_FOLDER SECONDS [EXPORTED_FOLDER]
#   NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 scripts/plain_nccl.sh results/plain-nccl 280
# The search (half of SECONDS) is `tune` of experiments/gpu_tune_protocols.toml, EXPERIMENT another one. Leaves tune.log, exported/,
# plain.txt (turn, side, collective, size, microseconds) and gains.txt (scripts/plain_gains.py). Whole turns alone count; PAIRS bounds
# them (12).
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd) || exit 2
end=$((SECONDS + $2)) exported=${3:+$(realpath "$3")}
cd "$(dirname "$0")/.." || exit
gpus=${RANKS:-$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')}
[ "$gpus" -ge 2 ] || { echo "plain_nccl.sh: $gpus GPUs found by nvidia-smi, two are needed; run it where they are" >&2; exit 1; }
python3 -c 'import torch' 2>/dev/null || { echo "plain_nccl.sh: python3 finds no torch, which the plain program (scripts/nccl_sizes.py) needs" >&2; exit 1; }
. scripts/gpu_setup.sh
. scripts/plain_turns.sh
[ -z "$exported" ] || [ -r "$exported/nccl.conf" ] || { echo "$exported/nccl.conf cannot be read: is it a folder of \`export --format nccl\`?" >&2; exit 2; }
if [ -z "$exported" ]; then
  exported=$out/exported
  timeout --signal=INT --kill-after=30 $(($2 / 2)) "$program" tune "${EXPERIMENT:-experiments/gpu_tune_protocols.toml}" --db "$out/tune.sqlite" \
    --table "$out/table.json" >"$out/tune.md" 2>"$out/tune.log"
  "$program" export "$out/table.json" --format nccl --out "$exported" --plugin "$root/build/release/libdynamiccl-nccl-plugin.so" >>"$out/tune.md" 2>&1 ||
    { tail -n 5 "$out/tune.md"; exit 1; }
fi
launch() {
  local rank pids=() code=0
  export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 20000)) WORLD_SIZE=$gpus
  for ((rank = 0; rank < gpus; rank++)); do
    RANK=$rank LOCAL_RANK=$rank timeout 120 python3 scripts/nccl_sizes.py --sweep 15 2>>"$out/plain.log" & pids+=($!)
  done
  for rank in "${pids[@]}"; do wait "$rank" || code=1; done
  return $code
}
one_turn() { # TURN SIDES
  local side code=0
  for side in $2; do
    (if [ "$side" = loaded ]; then export NCCL_CONF_FILE=$exported/nccl.conf; fi; launch) | sed "s/^/$1 $side allreduce /" || code=1
  done
  return $code
}
plain_turns $end "$out" one_turn
result=$?
cat "$out/gains.txt"
exit $result
