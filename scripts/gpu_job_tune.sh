#!/bin/bash
# Lets `dynamiccl tune -- COMMAND` tune an unchanged PyTorch job of RANKS (2) ranks on a GPU machine, and measures the documented
# advice next to it by the job's own clock.
#   [PROGRAMS=FOLDER] scripts/gpu_job_tune.sh OUTPUT_FOLDER MODEL SECONDS [tune options...]
# MODEL is one of scripts/ddp_steps.py, or "sizes": all-reduces of 4 KiB to 64 MiB in turn (scripts/nccl_sizes.py).
# WALL=loopback (default): NCCL kept to sockets over loopback. WALL=docker: a Docker container per rank, on a bridge, with its
# own GPU's node alone, or with GPU_NODES=all all of them, and one memory folder of the machine. PROGRAMS holds dynamiccl, the
# plugin and the library of one host (build/release). ROUNDS (3): launches a side by the job's own clock,
# of the advice three at most; UNTIL: seconds after which none begins. AGENTS ("bandit+ppo"): a search
# for each, BETWEEN_LAUNCHES+PER_CALL, their choices side by side. ADVICE=no leaves the documented advice out, DEFAULT=no NCCL's
# default, which the search has measured. Leaves job.sqlite.xz, what the tuner wrote, tune.log, and steps-*.txt: every step by the
# job's own clock. WALL=docker also says what the choice takes of the same job without containers.
set -uo pipefail
[ $# -ge 3 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd) model=$2 seconds=$3; shift 3
cd "$(dirname "$0")/.."
root=$PWD
programs=$(cd "${PROGRAMS:-build/release}" && pwd)
. scripts/gpu_job_command.sh
trap job_down EXIT
job_command "$model"
# One search: its answer, log and files in $out, of any but the first with a suffix.
search() { # SUFFIX SECONDS TUNE_OPTIONS...
  local suffix=$1 limit=$2; shift 2
  echo "== tune $* ($SECONDS s)"
  timeout --signal=INT --kill-after=30 "$limit" "$programs/dynamiccl" tune --db "$out/job.sqlite" --out "$out/tuned$suffix" "$@" \
    -- "$out/job.sh" 100000 "$out/steps-tune$suffix.txt" >"$out/answer$suffix.txt" 2> >(tee "$out/tune$suffix.log" >&2)
  local code=$?
  cat "$out/answer$suffix.txt"
  echo "== tune ended with $code ($SECONDS s)"
  return $code
}
code=0 sides=()
for agents in ${AGENTS:-bandit+ppo}; do
  [ ${#sides[@]} = 0 ] && suffix= || suffix=-$agents
  sides+=("tuned$suffix")
  search "$suffix" "$seconds" "$@" --agent "${agents%+*}" --call-agent "${agents#*+}" || code=$?
done
# The same job under fixed settings and without the plugin, by its own clock, in turn.
for round in $(seq "${ROUNDS:-3}"); do
  [ $SECONDS -lt "${UNTIL:-480}" ] || break
  [ "$round" -gt 3 ] || [ "${ADVICE:-}" = no ] ||
    NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=4 timeout 60 "$out/job.sh" "${FIXED_STEPS:-12}" "$out/steps-advice.txt" >/dev/null 2>>"$out/fixed.log"
  [ $SECONDS -lt "${UNTIL:-480}" ] || break
  for side in "${sides[@]}"; do
    [ ! -e "$out/$side/nccl.conf" ] || NCCL_CONF_FILE=$out/$side/nccl.conf LD_PRELOAD=$(preload_of "$out/$side/nccl.conf") timeout 60 \
      "$out/job.sh" "${FIXED_STEPS:-12}" "$out/steps-$side.txt" >/dev/null 2>>"$out/fixed.log"
  done
  [ $SECONDS -lt "${UNTIL:-480}" ] || break
  [ "${DEFAULT:-}" = no ] || timeout 60 "$out/job.sh" "${FIXED_STEPS:-12}" "$out/steps-default.txt" >/dev/null 2>>"$out/fixed.log"
  [ "${WALL:-loopback}" != docker ] || timeout 60 "$out/bare.sh" "${FIXED_STEPS:-12}" "$out/steps-bare.txt" >/dev/null 2>>"$out/fixed.log"
  echo "== fixed settings, round $round ($SECONDS s)"
done
python3 - "$out" "${sides[@]}" <<'PYTHON'
import collections, math, statistics, sys
of_side = {}
for side in ["default", "advice", "bare", *sys.argv[2:]]:
    launches = collections.defaultdict(lambda: collections.defaultdict(list))
    try:
        for line in open(f"{sys.argv[1]}/steps-{side}.txt"):
            launch, what, step, ms = line.split()[:4]
            if int(step) >= 2:
                launches[what][launch].append(float(ms))
    except OSError:
        continue
    for what, of in launches.items():
        medians = [round(statistics.median(times), 3) for times in of.values()]
        print(f"own clock, no profiler: {side}, {what}: {medians} ms")
        of_side[side, what] = medians
# Student's t, 95 %, of the logarithms of launches made in turn.
quantile = [0, 12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228]
for (side, what), medians in of_side.items():
    logs = [math.log(a / b) for a, b in zip(medians, of_side.get(("bare", what), []))]
    if side == "bare" or len(logs) < 2:
        continue
    half = quantile[min(len(logs) - 1, 10)] * statistics.stdev(logs) / math.sqrt(len(logs))
    mean = statistics.fmean(logs)
    print(f"{side} over bare, {what}: {math.exp(mean):.3f} [{math.exp(mean - half):.3f}, {math.exp(mean + half):.3f}], {len(logs)} pairs")
PYTHON
xz -kf "$out/job.sqlite"; rm -f "$out"/job.sqlite "$out"/job.sqlite-*
rm -rf "$out"/tuned*/launches "$out"/tuned*/one-host
exit $code
