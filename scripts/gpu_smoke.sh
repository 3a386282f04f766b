#!/bin/bash
# The cheap first run on a GPU machine: is everything in place, does every environment start, are one
# rank's results right? No figure to quote.
#   [BUNDLE=FOLDER] scripts/gpu_smoke.sh OUTPUT_FOLDER
set -uo pipefail
out=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/.."
. scripts/gpu_setup.sh
step() { echo "== $1 ($SECONDS s)"; }
failed=0
step "machine"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; uname -r; nproc
ls -d /proc/driver/nvidia/gpus/* 2>&1; ls /dev/nvidia* 2>&1
echo "NCCL: $DYNAMICCL_NCCL_LIBRARY"
find / -xdev \( -name 'libcuda.so.1' -o -name 'libnvidia-ml.so.1' \) 2>/dev/null; ls -d /usr/local/nvidia/lib* 2>/dev/null
command -v mpirun.openmpi mpirun.mpich apptainer docker dockerd
for worker in build/release/dynamiccl build/release/dynamiccl-worker*; do
  missing=$(ldd "$worker" | grep 'not found'); [ -z "$missing" ] || { echo "$worker: $missing"; failed=1; }
done
step "apptainer"
apptainer --version || failed=1
step "experiment"
timeout 300 "$program" run experiments/gpu_smoke.toml --db "$out/smoke.sqlite" --out "$out/runs" >"$out/answer.md" 2>"$out/run.log"
echo "exit code $?"; tail -n 40 "$out/run.log"; head -n 60 "$out/answer.md"
"$program" query "SELECT environment, backend, collective, size_bytes, status, reason FROM v_measurement ORDER BY 1, 2, 3, 4" \
  --db "$out/smoke.sqlite" 2>&1 | cut -c1-220 | head -n 80
step "doctor"
timeout 180 "$program" doctor --db "$out/doctor.sqlite" 2>&1 | head -n 80
tar -C "$out" -czf "$out/runs.tar.gz" runs 2>/dev/null; rm -rf "$out/runs"
step "end"
exit $failed
