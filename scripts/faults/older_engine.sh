#!/bin/bash
# What a program does when its own dockerd is killed within a run, and what a resume then meets: to see of an older build that it did otherwise.
#   unshare --pid --fork --mount-proc --kill-child --net --ipc --mount scripts/faults/older_engine.sh PROGRAM [IMAGES]
# IMAGES: a cache of images to take (else one is made, minutes). Needs root, dockerd, sqlite3. It kills every dockerd that it sees.
set -u
[ "$$" -lt 20 ] || { echo "older_engine.sh: start it in a PID namespace of its own, as its head says" >&2; exit 2; }
P=$(realpath "$1")
W=$(mktemp -d /var/tmp/older.XXXXXX)  # short: sockets lie in it
cd "$W" || exit 1
ip link set lo up
export DYNAMICCL_CACHE=$W/cache DYNAMICCL_RUN_FOLDER=$W/run
unset DOCKER_HOST
mkdir cache
[ -z "${2:-}" ] || ln -s "$(realpath "$2")" cache/images
cat >x.toml <<'TOML'
name = "x"
seed = 1
[axes]
environment = ["cross-docker"]
backend = ["gloo"]
architecture = ["ring"]
ranks = [2]
[[work]]
collective = ["allreduce"]
size = ["64KiB"]
[protocol]
warmup = 0
retries = 0
min_iterations = 1
iterations = 1000000
cell_time_cap = "700ms"
launches = 3
launch_timeout = "60s"
TOML
sql() { sqlite3 x.sqlite "$1" 2>/dev/null; }
say() { echo "exit $1, run $(sql 'select status from run'), $(sql "select count(*) from launch where status='ok'") of 3 launches"; }

echo '## its dockerd is killed after the first of three launches'
"$P" run x.toml --db x.sqlite >run.out 2>run.err & pid=$!
while kill -0 "$pid" 2>/dev/null && [ "$(sql "select count(*) from launch where status='ok'")" != 1 ]; do sleep 0.05; done
pkill -9 -x dockerd || echo 'no dockerd was there'
wait "$pid"
say $?
grep -m 1 'did not start' run.err | cut -c1-200
echo '## a resume'
"$P" run x.toml --db x.sqlite --resume >resume.out 2>resume.err
say $?
grep -m 1 -E 'did not start|nothing to resume' resume.err | grep -o 'failed: .*\|nothing to resume.*' | cut -c1-200
echo '## left after clean'
"$P" clean >/dev/null 2>&1
ip -br link | grep -v '^lo '
ls run 2>/dev/null
cd / && rm -rf "$W"
