#!/bin/bash
# Online learning in an unchanged PyTorch job of two ranks against a table handed over at the start, on a GPU machine; then a
# neighbour that starts in the middle, and a leader that dies.
#   [PROGRAMS=FOLDER] scripts/gpu_job_online.sh OUTPUT_FOLDER PART...
# learn: a leader that may cost what it likes learns in 600 steps, and its table is what is handed over; table: instead,
# `dynamiccl tune -- JOB` finds launch settings and table; pairs: launches with the table, accompanied by `tune --online`, and
# (SIDES) without both, in turn; neighbour: a second job of the same kind begins next to an accompanied one and ends before it;
# kills: dynamiccl-leader is killed, started again, its folder damaged, and the job's sums are looked at (JOB=sizes);
# tables: a table that slows calls of 64 MiB, as made here, with another NCCL, for more ranks, and over other links: is it used,
# and does NCCL's log say why not; planted: a job accompanied that was started with that table (both JOB=sizes, loopback).
# JOB: sizes (default, scripts/nccl_sizes.py) or a model of scripts/ddp_steps.py: bert-medium has even, short steps.
# WALL=loopback (default) or docker, as gpu_job_tune.sh. All sides have the launch settings that the part "table" found, or
# LAUNCH (NCCL_NET=Socket NCCL_SOCKET_NTHREADS=2 NCCL_MIN_CTAS=8). PAIRS (3); SIDES ("table online"); AGENT (ppo): who learns;
# STEPS (1000), of which those after LATE (300) are compared; NEAR (300): steps of the neighbour; LEARN_COST (2): --learn-cost; WITHIN
# (120): seconds that an accompanied job may take. Leaves steps-*.txt (every step by the job's own clock), online-*.log,
# answer.txt, online.sqlite.xz. About five minutes in all:
#   WALL=docker JOB=bert-medium PAIRS=2 scripts/gpu_job_online.sh OUTPUT/bert learn pairs neighbour
#   WALL=docker JOB=sizes PAIRS=2 scripts/gpu_job_online.sh OUTPUT/sizes learn pairs
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,19s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd); shift
cd "$(dirname "$0")/.."
root=$PWD
programs=$(cd "${PROGRAMS:-build/release}" && pwd)
. scripts/gpu_job_command.sh
trap job_down EXIT
kind=${JOB:-sizes}
job_command "$kind"
failed=0 steps=${STEPS:-1000} agent=${AGENT:-ppo}
say() { echo "== $* ($SECONDS s)"; }

part_table() {
  timeout --signal=INT --kill-after=30 200 "$programs/dynamiccl" tune --db "$out/online.sqlite" --out "$out/tuned" \
    --launches "${LAUNCHES:-6}" --pairs 3 --steps 20 --trial-seconds 25 --learn-seconds 10 --call-agent "$agent" \
    -- "$out/job.sh" 100000 /dev/null >"$out/answer.txt" 2>"$out/table.log"
  say "tune ended with $?"
  cat "$out/answer.txt"
}

part_learn() {
  local folder=$out/learning leader
  launch_settings
  mkdir -p "$folder" "$out/tuned" && chmod 1777 "$folder"
  printf '%s\n' "NCCL_TUNER_PLUGIN=$programs/libdynamiccl-nccl-plugin.so" "NCCL_PROFILER_PLUGIN=$programs/libdynamiccl-nccl-plugin.so" \
    "DYNAMICCL_TUNER_FOLDER=$folder" | cat - "$out/launch.conf" >"$out/learn.conf"
  timeout --signal=INT 120 "$programs/dynamiccl-leader" "$folder" --agent "$agent" --learn-cost 0 --out "$out/learnt.json" \
    >"$out/learn.log" 2>&1 & leader=$!
  NCCL_CONF_FILE=$out/learn.conf timeout 120 "$out/job.sh" "${LEARN_STEPS:-600}" "$out/steps-learn.txt" || failed=1
  kill -INT $leader 2>/dev/null
  wait $leader || failed=1
  cat "$out/learn.log"
  "$programs/dynamiccl" export "$out/learnt.json" --format nccl --out "$out/tuned" --plugin "$programs/libdynamiccl-nccl-plugin.so" || failed=1
  # The first value of a name counts.
  cat "$out/launch.conf" "$out/tuned/nccl.conf" >"$out/first.conf" && mv "$out/first.conf" "$out/tuned/nccl.conf"
  rm -rf "$folder"
  say learn
}

# What all sides share: the launch settings of the table, without the table.
launch_settings() {
  if [ -e "$out/tuned/nccl.conf" ]; then
    grep -vE '^(NCCL_TUNER_PLUGIN|DYNAMICCL_TUNER_TABLE)=' "$out/tuned/nccl.conf" >"$out/launch.conf"
  else
    printf '%s\n' ${LAUNCH:-NCCL_NET=Socket NCCL_SOCKET_NTHREADS=2 NCCL_MIN_CTAS=8} >"$out/launch.conf"
  fi
  export NCCL_CONF_FILE=$out/launch.conf
}

accompanied() { # STEPS FILE LOG
  timeout --signal=INT --kill-after=30 "${WITHIN:-120}" "$programs/dynamiccl" tune --online --call-agent "$agent" \
    --learn-cost "${LEARN_COST:-2}" --db "$out/online.sqlite" \
    --out "$out/nothing" -- "$out/job.sh" "$1" "$2" >>"$3" 2>&1
}

side_table() {
  [ ! -e "$out/tuned/nccl.conf" ] || NCCL_CONF_FILE=$out/tuned/nccl.conf timeout 120 "$out/job.sh" "$steps" "$out/steps-table.txt"
}
side_online() { accompanied "$steps" "$out/steps-online.txt" "$out/online-pairs.log"; }
side_plain() { timeout 120 "$out/job.sh" "$steps" "$out/steps-plain.txt"; }

part_pairs() {
  local round side turned
  launch_settings
  for round in $(seq "${PAIRS:-3}"); do
    turned=
    for side in ${SIDES:-table online}; do
      if [ $((round % 2)) = 1 ]; then turned="$turned $side"; else turned="$side $turned"; fi
    done
    for side in $turned; do "side_$side" || failed=1; done
    say "pair $round"
  done
  grep -E ' s: |communicator|the leader' "$out/online-pairs.log"
}

rounds_of() { if [ -e "$1" ]; then grep -cE " (round|$kind) " "$1"; else echo 0; fi; }

part_neighbour() {
  local file=$out/steps-beside.txt job neighbour
  launch_settings
  # With the wall clock before each line, which the steps' times have too.
  { accompanied $((2 * steps)) "$file" /dev/stdout | while IFS= read -r line; do echo "$EPOCHREALTIME $line"; done \
    >"$out/online-neighbour.log"; } & job=$!
  until [ "$(rounds_of "$file")" -ge "$steps" ] || ! kill -0 $job 2>/dev/null; do sleep 0.05; done
  cp "$out/job.sh" "$out/neighbour.sh"
  sed -i 's/\bjob\([0-9$]\)/near\1/g; s/10 + rank/20 + rank/; s/subnet.10/subnet.20/' "$out/neighbour.sh"
  ( [ "${WALL:-loopback}" != docker ] || export MASTER_ADDR=$engine_subnet.20
    timeout 60 "$out/neighbour.sh" "${NEAR:-300}" "$out/steps-neighbour.txt" ) & neighbour=$!
  wait $job || failed=1
  kill $neighbour 2>/dev/null
  wait $neighbour 2>/dev/null
  grep -E ' s: |communicator' "$out/online-neighbour.log"
  say neighbour
}

part_kills() {
  local folder=$out/led pid file job n=0
  launch_settings
  mkdir -p "$folder" && chmod 1777 "$folder"
  printf '%s\n' "NCCL_TUNER_PLUGIN=$programs/libdynamiccl-nccl-plugin.so" "NCCL_PROFILER_PLUGIN=$programs/libdynamiccl-nccl-plugin.so" \
    "DYNAMICCL_TUNER_FOLDER=$folder" | cat - "$out/launch.conf" >"$out/led.conf"
  NCCL_CONF_FILE=$out/led.conf timeout 120 "$out/job.sh" "$steps" "$out/steps-kills.txt" & job=$!
  while kill -0 $job 2>/dev/null; do
    "$programs/dynamiccl-leader" "$folder" --agent bandit >>"$out/kills.log" 2>&1 & pid=$!
    sleep "1.$((RANDOM % 9))"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    n=$((n + 1))
    # Once, what is no region lies next to the regions, and regions' names are taken away.
    if [ $n = 6 ]; then
      head -c 65536 /dev/urandom >"$folder/comm-0123456789abcdef.region"
      mkfifo "$folder/rank-0123456789abcdef-0.json"
      for file in "$folder"/calls-*.ring; do rm -f "$file"; done
    fi
  done
  if wait $job; then say "kills: the job ended by itself with right sums, leader killed $n times"; else
    failed=1; say "kills: THE JOB FAILED, leader killed $n times"; fi
  tail -n 3 "$out/kills.log"
  ls "$folder"
}

# One row that slows calls of 64 MiB, so that its use shows by their time.
slow_table() { # FILE NCCL RANKS NANOSECONDS: what NCCL is said to have expected of ring and Simple
  python3 - "$@" <<'PYTHON'
import sys
file, nccl, ranks, ns = sys.argv[1:]
text = (f"dynamiccl-nccl-table 2\nmade nccl {nccl}\nmade cost allreduce 26 ring Simple {ns}\n"
        f"row {ranks} - allreduce 26 26 ring LL 1\n")
checksum = 0xcbf29ce484222325
for byte in text.encode():
    checksum = (checksum ^ byte) * 0x100000001b3 % 2**64
with open(file, "w") as out:
    out.write(f"{text}checksum {checksum:016x}\n")
PYTHON
}

# The job under the launch settings and a table: what its log says of the table, and the calls of 64 MiB.
with_table() { # NAME NCCL RANKS NANOSECONDS [COMMAND BEFORE THE JOB...]
  local name=$1; shift
  slow_table "$out/$name.table" "$1" "$2" "$3"; shift 3
  printf '%s\n' "NCCL_TUNER_PLUGIN=$programs/libdynamiccl-nccl-plugin.so" "DYNAMICCL_TUNER_TABLE=$out/$name.table" |
    cat - "$out/launch.conf" >"$out/$name.conf"
  NCCL_CONF_FILE=$out/$name.conf NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING timeout 60 "$@" "$out/job.sh" 30 "$out/steps-$name.txt" \
    >"$out/$name.log" 2>&1 || { failed=1; tail -n 5 "$out/$name.log"; }
  python3 - "$name" "$out/steps-$name.txt" "$out/$name.log" <<'PYTHON'
import re, statistics, sys
name, steps, log = sys.argv[1:]
large = [float(line.split()[3]) for line in open(steps) if line.split()[1] == str(64 << 20)]
said = sorted(set(re.findall(r"DynamICCL: (?!channels)(.*table.*)", open(log, errors="replace").read())))
print(f"{name}: a call of 64 MiB {statistics.median(large[5:]):.2f} ms; NCCL's log: {' | '.join(said) or 'nothing'}")
PYTHON
}

part_tables() {
  local here expected
  launch_settings
  here=$(python3 -c 'import torch; print("%d.%d" % torch.cuda.nccl.version()[:2])')
  with_table unlike-expected "$here" "$WORLD_SIZE" 1000
  expected=$(sed -n 's/.*where it was made, and \([0-9.e+]*\) us here.*/\1/p' "$out/unlike-expected.log" | head -n 1)
  [ -n "$expected" ] || { failed=1; say "tables: NCCL's log does not say what NCCL expects"; return; }
  expected=$(python3 -c 'import sys; print(round(float(sys.argv[1]) * 1000))' "$expected")
  with_table as-made "$here" "$WORLD_SIZE" "$expected"
  with_table other-nccl 2.19 "$WORLD_SIZE" "$expected"
  with_table other-ranks "$here" 16 "$expected"
  with_table other-links "$here" "$WORLD_SIZE" "$expected" env -u NCCL_P2P_DISABLE -u NCCL_SHM_DISABLE
  say tables
}

part_planted() {
  launch_settings
  slow_table "$out/planted.table" "$(python3 -c 'import torch; print("%d.%d" % torch.cuda.nccl.version()[:2])')" "$WORLD_SIZE" 1
  # What NCCL expects is not looked at where a leader may change the table.
  echo "DYNAMICCL_TUNER_TABLE=$out/planted.table" >>"$out/launch.conf"
  accompanied 700 "$out/steps-planted.txt" "$out/planted.log" || failed=1
  grep -E ' s: |communicator|taken back' "$out/planted.log"
  "$programs/dynamiccl" query --db "$out/online.sqlite" --format markdown "SELECT kind, arm, guard, time_us, reference_us FROM decision
    WHERE task_key LIKE 'nccl/job/table/%' ORDER BY id"
  python3 - "$out/steps-planted.txt" <<'PYTHON'
import statistics, sys
large = [float(line.split()[3]) for line in open(sys.argv[1]) if line.split()[1] == str(64 << 20)]
print(f"planted: a call of 64 MiB, first 20: {statistics.median(large[:20]):.2f} ms, last 100: {statistics.median(large[-100:]):.2f} ms")
PYTHON
  say planted
}

for part in "$@"; do "part_$part"; done
python3 - "$out" "$kind" "${LATE:-300}" <<'PYTHON'
import collections, math, re, statistics, sys
LATE = int(sys.argv[3])
def launches(side):
    found = collections.OrderedDict()
    try:
        for line in open(f"{sys.argv[1]}/steps-{side}.txt"):
            words = line.split()
            if words[1] in ("round", sys.argv[2]):
                found.setdefault(words[0], []).append((float(words[3]), float(words[4])))
    except OSError:
        pass
    return list(found.values())
def late(one):
    return statistics.median(t for t, _ in one[LATE:])
def interval(logs):  # Student's t, 95 %, of pairs made in turn
    quantile = [12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]
    mean = statistics.mean(logs)
    if len(logs) < 2: return f"{math.exp(mean):.4f} (one pair)"
    half = quantile[min(len(logs), 10) - 2] * statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(mean):.4f} [{math.exp(mean - half):.4f}, {math.exp(mean + half):.4f}], {len(logs)} pairs"
BEGIN = 5  # the first steps start CUDA and connect
sides = {side: [one for one in launches(side) if len(one) > 2 * LATE] for side in ("table", "online", "plain")}
base = "table" if sides["table"] else "plain"
for side, of in sides.items():
    if of: print(f"{side}: median step after step {LATE}, each launch: {[round(late(one), 3) for one in of]} ms")
    for one in of:
        # Within a launch, as launches differ: a step above five times the later pace counts as five.
        pace = late(one)
        lost = sum(min(t, 5 * pace) - pace for t, _ in one[BEGIN:LATE]) / (len(one) * pace)
        print(f"{side}: steps {BEGIN} to {LATE} took {100 * lost:.2f} % of {len(one)} steps more than the later pace says")
try:
    log = open(f"{sys.argv[1]}/online-pairs.log").read()
except OSError:
    log = ""
for one, ms in zip(launches("online"), re.findall(r"settings? tried, which cost (\d+) ms in all", log)):
    print(f"online: lost by trying, as the learner counts: {100 * float(ms) / sum(t for t, _ in one):.2f} % of {len(one)} steps")
pairs = list(zip(sides["online"], sides[base]))
if pairs:
    steps = [math.log(late(a) / late(b)) for a, b in pairs]
    cost = [math.log(sum(t for t, _ in a[BEGIN:]) / sum(t for t, _ in b[BEGIN:])) for a, b in pairs]
    print(f"online over {base}, step after step {LATE}: {interval(steps)}, each {[round(math.exp(x), 3) for x in steps]}")
    print(f"online over {base}, time of all steps: {interval(cost)}, each {[round(math.exp(x), 3) for x in cost]}")
beside, near = launches("beside"), launches("neighbour")
if beside and near:
    begun, ended = near[0][0][1] - near[0][0][0] / 1e3, near[0][-1][1]
    steps, log = beside[0], open(f"{sys.argv[1]}/online-neighbour.log").read()
    parts = {"before": [t for t, end in steps[LATE:] if end < begun - 1],
             "beside it": [t for t, end in steps if begun + 0.5 < end < ended],
             "after it": [t for t, end in steps if end > ended + 1]}
    print(f"a step's median, ms, the neighbour's steps taking {ended - begun:.1f} s: " +
          ", ".join(f"{name} {statistics.median(t):.2f} ({len(t)})" for name, t in parts.items() if t))
    calls = 50 if sys.argv[2] == "sizes" else int((re.findall(r" steps?, (\d+) calls? each", log) or [0])[-1])
    settled = []
    for line in log.splitlines():
        when, _, said = line.strip().partition(" ")
        if " searched anew" in said or "settled" in said.partition(": ")[2][:7]:
            at = float(when) - begun
            if "searched anew" not in said: settled.append(float(when))
            done = sum(begun < end <= begun + at for _, end in steps)
            print(f"{at:9.3f} s after the neighbour's first step began" +
                  (f", {done} steps ({calls * done} to {calls * (done + 1)} calls)" if at > 0 else "") + f": {said}")
    for what, since, until in ("came", begun, ended), ("went", ended, steps[-1][1]):
        last = max([when for when in settled if since < when < until], default=None)
        pace = [t for t, end in steps if (last or since + 1) < end < until]
        if not last or len(pace) < 5:
            print(f"the neighbour {what}: " + ("nothing settled anew meanwhile" if not last else "too few steps after it to tell"))
            continue
        pace = statistics.median(pace)
        lost = sum(t / pace - 1 for t, end in steps if since < end <= last)
        print(f"the neighbour {what}: settled anew after {last - since:.1f} s; until then {lost:.1f} steps were lost "
              f"({lost * calls:.0f} calls) against the pace of {pace:.2f} ms after it")
PYTHON
xz -kf "$out/online.sqlite" 2>/dev/null; rm -f "$out"/online.sqlite "$out"/online.sqlite-*
rm -rf "$out"/tuned/launches "$out"/tuned/network "$out"/nothing
exit $failed
