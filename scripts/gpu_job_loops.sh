#!/bin/bash
# Does the step that `tune -- COMMAND` finds from the rhythm of calls agree with the job's own clock? Five training loops
# (scripts/ddp_loops.py), looked at twice each, nothing set; two GPUs of one host.
#   [PROGRAMS=FOLDER] scripts/gpu_job_loops.sh OUTPUT_FOLDER [LOOP...]
# Leaves loops.txt: per loop and launch the step found, the own clock's median over the same launch, and their ratio.
set -uo pipefail
[ $# -ge 1 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd); shift
cd "$(dirname "$0")/.."
programs=$(cd "${PROGRAMS:-build/release}" && pwd)
loops=("$@")
[ $# -gt 0 ] || loops=(plain accumulation groups evaluation sharded)
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 NCCL_NVLS_ENABLE=0
cat >"$out/job.sh" <<JOB
#!/bin/bash
# Two ranks, one GPU each.   job.sh LOOP FILE_OF_STEPS
pids=() code=0
trap 'kill "\${pids[@]}" 2>/dev/null' TERM INT
export MASTER_PORT=\$((20000 + RANDOM % 20000))
for rank in 0 1; do
  RANK=\$rank LOCAL_RANK=0 CUDA_VISIBLE_DEVICES=\$rank python3 $PWD/scripts/ddp_loops.py --loop "\$1" --steps 100000 --each "\$2" & pids+=(\$!)
done
for pid in "\${pids[@]}"; do wait "\$pid" || code=1; done
wait
exit \$code
JOB
chmod +x "$out/job.sh"
for loop in "${loops[@]}"; do
  timeout --signal=INT --kill-after=30 90 "$programs/dynamiccl" tune --db "$out/loops.sqlite" --out "$out/$loop" --agent default --call-agent none \
    --launches 2 --steps 120 --trial-seconds 40 -- "$out/job.sh" "$loop" "$out/steps-$loop.txt" >"$out/$loop.answer" 2>"$out/$loop.log" ||
    { echo "$loop: tune ended with $?"; tail -n 4 "$out/$loop.log"; }
  python3 - "$loop" "$out" <<'PYTHON' | tee -a "$out/loops.txt"
import collections, re, statistics, sys
loop, out = sys.argv[1:]
launches = collections.defaultdict(list)
for line in open(f"{out}/steps-{loop}.txt"):
    launch, _, step, ms = line.split()[:4]
    if int(step) >= 5:
        launches[launch].append(float(ms))
unit = {"us": 1e-3, "ms": 1, "s": 1e3}
found = [float(a) * unit[b] for a, b in re.findall(r": ([\d.]+) (ms|us|s) a step: ok", open(f"{out}/{loop}.log").read())]
for mine, times in zip(found, launches.values()):
    clock = statistics.median(times)
    print(f"{loop}: found {mine:.3f} ms, own clock {clock:.3f} ms over {len(times)} steps, ratio {mine / clock:.4f}")
PYTHON
done
rm -rf "$out"/*/launches "$out"/*/network
