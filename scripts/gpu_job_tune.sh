#!/bin/bash
# Lets `dynamiccl tune -- COMMAND` tune an unchanged PyTorch DDP job of two ranks on a GPU machine,
# NCCL kept to sockets over loopback, and measures the documented advice beside it by the job's own
# clock.
#   [PROGRAMS=FOLDER] scripts/gpu_job_tune.sh OUTPUT_FOLDER MODEL SECONDS [tune options...]
# PROGRAMS holds dynamiccl and the plugin (build/release). Leaves job.sqlite.xz, what the tuner wrote,
# tune.log, and steps-*.txt: every step by the job's own clock (scripts/ddp_steps.py --each).
set -uo pipefail
[ $# -ge 3 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd) model=$2 seconds=$3; shift 3
cd "$(dirname "$0")/.."
programs=${PROGRAMS:-$PWD/build/release}
ddp=${DDP:-$PWD/scripts/ddp_steps.py}
export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_SOCKET_IFNAME=lo NCCL_NVLS_ENABLE=0
export MASTER_ADDR=127.0.0.1 WORLD_SIZE=2 LOCAL_RANK=0
cat >"$out/ddp2.sh" <<'JOB'
#!/bin/bash
# Two ranks of a plain DDP job, one GPU each: what is being tuned.
export MASTER_PORT=$((20000 + RANDOM % 20000))
pids=()
trap 'kill "${pids[@]}" 2>/dev/null' TERM
for rank in 0 1; do
  RANK=$rank CUDA_VISIBLE_DEVICES=$rank python3 "$DDP" --models "$1" --warmup 2 --steps "$2" --each "$3" & pids+=($!)
done
code=0
for pid in "${pids[@]}"; do wait "$pid" || code=1; done
exit $code
JOB
chmod +x "$out/ddp2.sh"
export DDP=$ddp
nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader | tee "$out/machine.txt"
python3 -c 'import torch; print("torch", torch.__version__, "nccl", torch.cuda.nccl.version())' | tee -a "$out/machine.txt"
echo "== tune ($SECONDS s)"
timeout --signal=INT --kill-after=30 "$seconds" "$programs/dynamiccl" tune --db "$out/job.sqlite" --out "$out/tuned" "$@" \
  -- "$out/ddp2.sh" "$model" 100000 "$out/steps-tune.txt" >"$out/answer.txt" 2> >(tee "$out/tune.log" >&2)
code=$?
cat "$out/answer.txt"
echo "== tune ended with $code ($SECONDS s)"
# The same job under fixed settings and without the plugin, by its own clock, in turn.
for round in 1 2 3; do
  [ $SECONDS -lt "${UNTIL:-480}" ] || break
  NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=4 timeout 60 "$out/ddp2.sh" "$model" 12 "$out/steps-advice.txt" >/dev/null 2>>"$out/fixed.log"
  [ $SECONDS -lt "${UNTIL:-480}" ] || break
  [ ! -e "$out/tuned/nccl.conf" ] ||
    NCCL_CONF_FILE=$out/tuned/nccl.conf timeout 60 "$out/ddp2.sh" "$model" 12 "$out/steps-tuned.txt" >/dev/null 2>>"$out/fixed.log"
  [ $SECONDS -lt "${UNTIL:-480}" ] || break
  timeout 60 "$out/ddp2.sh" "$model" 12 "$out/steps-default.txt" >/dev/null 2>>"$out/fixed.log"
  echo "== fixed settings, round $round ($SECONDS s)"
done
python3 - "$out" <<'PYTHON'
import collections, statistics, sys
for side in ("default", "advice", "tuned"):
    runs = collections.defaultdict(list)
    try:
        for line in open(f"{sys.argv[1]}/steps-{side}.txt"):
            process, model, step, ms = line.split()
            if int(step) >= 2:
                runs[process].append(float(ms))
    except OSError:
        continue
    medians = [round(statistics.median(times), 2) for times in runs.values()]
    print(f"own clock, no profiler: {side}: {medians} ms a step")
PYTHON
xz -kf "$out/job.sqlite"; rm -f "$out"/job.sqlite "$out"/job.sqlite-*
rm -rf "$out/tuned/launches"
exit $code
