#!/bin/bash
# A grid of 28 launch settings of an unchanged PyTorch job, each by the job's own clock, and a search of `dynamiccl tune -- COMMAND` on
# the same machine: which part of the grid's gain the search found, and in how many launches.
#   [PROGRAMS=FOLDER] scripts/gpu_job_grid.sh OUTPUT_FOLDER MODEL SECONDS
# MODEL and WALL (docker) as in gpu_job_tune.sh. It ends after SECONDS; called again with the same folder on the same machine it goes
# on where it ended. Leaves grid.tsv (setting, microseconds; for `job_search`), steps/*.txt, tune.log. GRID_STEPS (7): steps of a
# launch, the first two are left out.
set -uo pipefail
[ $# -eq 3 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1/steps" && cd "$1" && pwd) model=$2 seconds=$3
cd "$(dirname "$0")/.."
root=$PWD
programs=$(cd "${PROGRAMS:-build/release}" && pwd)
export WALL=${WALL:-docker}
. scripts/gpu_job_command.sh
trap job_down EXIT
job_command "$model"
# The search, once: few pairs, as the grid judges it here.
if [ ! -e "$out/answer.txt" ]; then
  echo "== tune ($SECONDS s)"
  timeout --signal=INT --kill-after=30 $((seconds - SECONDS - 10)) "$programs/dynamiccl" tune --db "$out/job.sqlite" --out "$out/tuned" \
    --trial-seconds 40 --steps 5 --warmup-steps 2 --call-agent none --launches 11 --pairs 2 \
    -- "$out/job.sh" 100000 "$out/steps/tune.txt" >"$out/answer.new" 2> >(tee "$out/tune.log" >&2) && mv "$out/answer.new" "$out/answer.txt"
  cat "$out/answer.txt"
fi
# SETTING as the tuner calls it; writes the file that a launch with it reads.
conf_of() {
  local word
  for word in $1; do case $word in
    default) ;;
    tuned) cat "$out/tuned/nccl.conf" ;;
    socket_threads=*) echo "NCCL_SOCKET_NTHREADS=${word#*=}" ;;
    sockets=*) echo "NCCL_NSOCKS_PERTHREAD=${word#*=}" ;;
    channels=*) echo "NCCL_MIN_CTAS=${word#*=}" ;;
  esac; done
}
# The search's choice stands among them, and the default again at the end of each call: a machine's pace drifts.
settings=("default" "tuned")
for threads in "" "socket_threads=1 " "socket_threads=2 " "socket_threads=4 "; do
  for channels in "" "channels=2" "channels=4" "channels=8" "channels=16"; do
    setting="$threads$channels"
    [ -z "$setting" ] || settings+=("${setting% }")
  done
done
settings+=("socket_threads=2 sockets=4" "socket_threads=4 sockets=2" "socket_threads=4 sockets=4")
launch() { # SETTING NAME
  conf_of "$1" >"$out/grid.conf"
  rm -f "$out/steps/$2.txt"
  NCCL_CONF_FILE=$out/grid.conf LD_PRELOAD=$(preload_of "$out/grid.conf") timeout 60 "$out/job.sh" "${GRID_STEPS:-7}" "$out/steps/$2.txt" >/dev/null 2>>"$out/grid.log" ||
    { echo "$2: failed ($SECONDS s)"; return; }
  python3 - "$1" "$out/steps/$2.txt" <<'PYTHON' | tee -a "$out/grid.tsv"
import statistics, sys
times = [float(line.split()[3]) for line in open(sys.argv[2]) if int(line.split()[2]) >= 2]
if times:
    print(f"{sys.argv[1]}\t{statistics.median(times) * 1e3:.1f}")
PYTHON
}
for setting in "${settings[@]}"; do
  [ $((SECONDS + 30)) -lt "$seconds" ] || break
  cut -f1 "$out/grid.tsv" 2>/dev/null | grep -qxF "$setting" || launch "$setting" "${setting// /_}"
done
[ $((SECONDS + 25)) -ge "$seconds" ] || launch default default-again
python3 - "$out" "${#settings[@]}" <<'PYTHON'
import collections, statistics, sys
times = collections.defaultdict(list)
try:
    for line in open(f"{sys.argv[1]}/grid.tsv"):
        setting, us = line.rstrip("\n").split("\t")
        times[setting].append(float(us))
except OSError:
    pass
step = {setting: statistics.median(us) for setting, us in times.items()}
grid = {setting: us for setting, us in step.items() if setting != "tuned"}
print(f"{len(step)} of {sys.argv[2]} settings, the search's choice among them, are measured")
if "default" in grid and len(grid) > 1:
    best = min(grid, key=grid.get)
    print(f"default {grid['default'] / 1e3:.1f} ms ({len(times['default'])} launches), best {grid[best] / 1e3:.1f} ms: {best}")
    if "tuned" in step:
        gain = (grid["default"] - step["tuned"]) / (grid["default"] - grid[best])
        print(f"the search's choice {step['tuned'] / 1e3:.1f} ms: {100 * gain:.1f} % of the grid's gain; its launches: tune.log's last line")
PYTHON
rm -rf "$out"/tuned/launches
