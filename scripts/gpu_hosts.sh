#!/bin/bash
# Two containers as hosts with one GPU each, joined by a bridge and with `docker exec` in ssh's place (--remote-shell):
# experiments, training and the tuner over hosts, on a machine with two GPUs, docker and no package sources.
#   [BUNDLE=FOLDER] [PROGRAMS=FOLDER] scripts/gpu_hosts.sh OUTPUT_FOLDER PART[=SECONDS]...
#   scripts/gpu_hosts.sh OUTPUT_FOLDER gloo=60 cells=120 apart=90 train=180 tune=240
#   scripts/gpu_hosts.sh OUTPUT_FOLDER cells=40 tune=100     the shortest that shows NCCL and the tuner over hosts
# gloo: all-reduces on CPUs, which need no GPU; cells: NCCL's (experiments/gpu_hosts.toml); apart: the same with a folder of
# launches that the hosts do not see, so that records come by connections; train: its training cell, whose trainer
# scripts/gpu_train.sh builds where there is none; tune: `tune -- COMMAND` with a command that starts a rank on each host.
# SECONDS end a part. Leaves answers, logs, hosts.sqlite.xz and regimes.txt, which says for every launch where its ranks were;
# its last line is `over both hosts: N of N good launches`, and anything less is a failure (exit code 1).
# PROGRAMS holds dynamiccl, workers and plugin (build/release). Runs as root.
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd); shift
cd "$(dirname "$0")/.."
if [ -z "${PROGRAMS:-}" ]; then . scripts/gpu_setup.sh; fi
. scripts/gpu_engine.sh
root=$PWD programs=$(cd "${PROGRAMS:-build/release}" && pwd) failed=0
program=$programs/dynamiccl
export DYNAMICCL_NCCL_LIBRARY=${DYNAMICCL_NCCL_LIBRARY:-$(python3 -c 'import os, nvidia.nccl; print(os.path.join(list(nvidia.nccl.__path__)[0], "lib", "libnccl.so.2"))' 2>/dev/null)}
export NCCL_NVLS_ENABLE=0
shell=$out/into-container db=$out/hosts.sqlite
apart=$(mktemp -d /tmp/gpu-hosts-XXXX)
say() { echo "== $* ($SECONDS s)"; }
cleanup() { engine_down; rm -rf "$apart"; }
trap cleanup EXIT

# A host has this machine's programs, the folder of results, and one GPU where there are any.
start_hosts() {
  local host gpu
  engine_up || { tail -n 5 "$engine/log"; return 1; }
  for host in 0 1; do
    gpu=$host; [ -e "/dev/nvidia$host" ] || gpu=
    engine_container "gpu$host" $((10 + host)) "$gpu" --volume "$out:$out" --volume "$programs:$programs:ro" \
      --volume "$root:$root:ro" --env PATH="$PATH" --env DYNAMICCL_NCCL_LIBRARY="$DYNAMICCL_NCCL_LIBRARY" \
      --tmpfs /tmp:exec || return 1
  done
  cat >"$shell" <<SHELL
#!/bin/sh
# into-container HOST COMMAND...: a command line on a host, as ssh would.
host=\$1; shift
DOCKER_HOST=$DOCKER_HOST exec docker exec -i "\$host" sh -c "\$*"
SHELL
  chmod 755 "$shell"
}

on_hosts=(--hosts gpu0:1,gpu1:1 --remote-shell "$shell" --set cluster.interface=eth0 --db "$db")
run() { # NAME SECONDS WORDS...
  local name=$1 limit=$2 code; shift 2
  say "$name: $*"
  timeout --signal=INT --kill-after=30 "$limit" "$program" run "$@" "${on_hosts[@]}" >"$out/$name.md" 2>"$out/$name.log"
  code=$?
  tail -n 12 "$out/$name.log"
  say "$name ended with $code"
  [ $code = 0 ] || failed=1
}

gloo() {
  run gloo "$1" experiments/two_nodes.toml --only 'backend == gloo' --set axes.ranks=2 --set cluster.gpus_per_node=0 --out "$out/runs"
}
# A cell that cannot run here is no failure of a run, but one of this script's. PART IN | "NOT IN"
require_cells() {
  "$program" query "SELECT count(*) AS measured FROM v_measurement WHERE backend = 'nccl' AND status = 'ok'
    AND measurement_row $2 (SELECT measurement_row FROM v_training)" --db "$db" |
    grep -qE '^ *[1-9]' || { say "$1: no cell of NCCL was measured"; failed=1; }
}
cells() {
  run cells "$1" experiments/gpu_hosts.toml --only 'collective != training' --out "$out/runs"
  require_cells cells "NOT IN"
}
# The hosts have a /tmp of their own.
apart() {
  if [ -e /dev/nvidia0 ]; then run apart "$1" experiments/gpu_hosts.toml --only 'collective != training' --out "$apart"
  else run apart "$1" experiments/two_nodes.toml --only 'backend == gloo' --set axes.ranks=2 --out "$apart"; fi
}
train() {
  [ -x "$programs/dynamiccl-trainer" ] || scripts/gpu_train.sh "$out" build || { failed=1; return; }
  run train "$1" experiments/gpu_hosts.toml --only 'collective == training' --set protocol.launches=1 --out "$out/runs"
  require_cells train IN
}

# A job of one rank per host, started from here: job.sh STEPS
write_job() {
  cat >"$out/job.sh" <<JOB
#!/bin/bash
pids=() code=0
trap 'kill "\${pids[@]}" 2>/dev/null; for host in gpu0 gpu1; do $shell \$host "pkill -KILL -f [n]ccl_sizes"; done' TERM INT
port=\$((20000 + RANDOM % 20000))
for rank in 0 1; do
  $shell gpu\$rank "exec env RANK=\$rank WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=$engine_subnet.10 MASTER_PORT=\$port \\
    NCCL_SOCKET_IFNAME=eth0 \${NCCL_CONF_FILE:+NCCL_CONF_FILE=\$NCCL_CONF_FILE} \\
    python3 $root/scripts/nccl_sizes.py --steps \$1" & pids+=(\$!)
done
for pid in "\${pids[@]}"; do wait "\$pid" || code=1; done
exit \$code
JOB
  chmod 755 "$out/job.sh"
}

tune() {
  write_job
  say "tune"
  timeout --signal=INT --kill-after=30 "$1" "$program" tune --db "$db" --out "$out/tuned" --launches 4 --pairs 2 \
    --steps 8 --warmup-steps 2 --trial-seconds 20 --learn-seconds 3 --plugin "$programs/libdynamiccl-nccl-plugin.so" -- "$out/job.sh" 100000 \
    >"$out/tune.txt" 2>"$out/tune.log"
  local code=$?
  cat "$out/tune.txt"; tail -n 15 "$out/tune.log"
  say "tune ended with $code"
  [ $code = 0 ] || failed=1
}

start_hosts || exit 2
for part in "$@"; do
  name=${part%%=*} seconds=120
  [ "$name" = "$part" ] || seconds=${part#*=}
  case $name in
    gloo | cells | apart | train | tune) $name "$seconds" ;;
    *) echo "$name: no such part" >&2; exit 2 ;;
  esac
done
if [ -e "$db" ]; then
  "$program" query "SELECT l.id AS launch, g.backend, l.status, r.rank, json_extract(r.facts_json, '\$.system.hostname') AS host,
    json_extract(r.facts_json, '\$.gpu.gpus[0].pci') AS gpu, x.name AS regime, l.reason
    FROM launch l JOIN plan_group g ON g.id = l.group_id LEFT JOIN launch_rank r ON r.launch_id = l.id
    LEFT JOIN regime x ON x.id = l.regime_id ORDER BY l.id, r.rank" \
    --db "$db" 2>&1 | tee "$out/regimes.txt"
  "$program" query "SELECT backend, collective, size_bytes, status, count(*) AS cells, round(min(median_us), 1) AS least_us,
    min(reason) AS reason FROM v_measurement GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3" --db "$db" 2>&1 | cut -c1-200
  read -r both good < <("$program" query "SELECT coalesce(sum(hosts = 2), 0) AS both, count(*) AS good FROM
    (SELECT count(DISTINCT json_extract(r.facts_json, '\$.system.hostname')) AS hosts FROM launch l
    JOIN launch_rank r ON r.launch_id = l.id WHERE l.status = 'ok' GROUP BY l.id)" --db "$db" | tail -n 1)
  echo "over both hosts: $both of $good good launches" | tee -a "$out/regimes.txt"
  [ "$good" -gt 0 ] && [ "$both" = "$good" ] || failed=1
  xz -kf "$db"; rm -f "$db" "$db"-*
fi
exit $failed
