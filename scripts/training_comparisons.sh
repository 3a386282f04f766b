#!/bin/bash
# Measures what waiting costs in training, on a quiet machine of 16 cores or more, in about ten minutes: stragglers
# (experiments/training_straggler.toml), then side by side a link of 100 Mbit/s (training_local.toml: root, Docker) and
# gossip (training_gossip.toml: accuracies of 4 and 8 workers, no times). Five launches each, every one with its own weights
# and order. On two cores name gossip=840 alone: a launch of each group took two minutes on a busy machine, all under ten.
#   [BUNDLE=FOLDER] scripts/training_comparisons.sh OUTPUT_FOLDER [PART=SECONDS]... [--set KEY=VALUE]...
# PART: build, straggler, local, gossip; without one: straggler=340 local=270 gossip=270. With BUNDLE, as
# scripts/gpu_train.sh --pack and scripts/make_offline_bundle.sh left it, `build` makes the trainers against the machine's
# PyTorch, as gpu_train.sh does. local and gossip, named one after the other, run side by side. Where there is no trainer
# for Open MPI, Gloo stands in. Leaves OUTPUT/PART.md (what queries say), comparisons.sqlite.xz and the logs.
# A part whose time is over keeps the launches that were stored.
set -uo pipefail
usage() { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 1 ] || usage
case $1 in -*) usage ;; esac
out=$(mkdir -p "$1" && cd "$1" && pwd); shift
cd "$(dirname "$0")/.."
failed=0 given=() parts=()
while [ $# -gt 0 ]; do
  case $1 in
    --set) [ $# -ge 2 ] || usage; given+=(--set "$2"); shift 2 ;;
    build | straggler=* | local=* | gossip=*) parts+=("$1"); shift ;;
    *) echo "no part \"$1\"" >&2; usage ;;
  esac
done
[ ${#parts[@]} -gt 0 ] || parts=(straggler=340 local=270 gossip=270)
say() { echo "== $* ($SECONDS s)"; }

set_up() {
  [ -z "${program:-}" ] || return 0
  . scripts/gpu_setup.sh
  [ -x build/release/dynamiccl-trainer ] || { say "no trainer is built: name the part build, or ./dynamiccl test"; exit 2; }
  backend=openmpi
  [ -x build/release/dynamiccl-trainer-openmpi ] && command -v mpirun >/dev/null || backend=gloo
}

# Databases apart, so that parts side by side do not wait for each other.
part() { # NAME SECONDS ARGUMENT...
  local name=$1 seconds=$2 code db=$out/$1.sqlite; shift 2
  timeout --signal=INT --kill-after=40 "$seconds" "$program" run "experiments/training_$name.toml" --db "$db" "$@" "${given[@]}" \
    >"$out/$name.run.md" 2>"$out/$name.log"
  code=$?
  case $code in
    0) ;;
    124 | 130) say "$name: time is over" ;;
    *) say "$name: exit code $code"; tail -n 12 "$out/$name.log" ;;
  esac
  {
    "$program" query --db "$db" --format markdown time_to_target
    echo
    "$program" query --db "$db" --format markdown "SELECT v.block, v.method, v.synchronisation, v.workers, v.step_us, v.settings,
        json_extract(r.details_json, '$.trained_us') AS trained_us, json_extract(r.details_json, '$.target_reached') AS reached,
        json_extract(r.details_json, '$.accuracies') AS accuracies, v.counts
      FROM v_training v JOIN training r ON r.measurement_id = v.measurement_row AND r.role = 'worker'
        AND r.rank = (SELECT max(rank) FROM training WHERE measurement_id = v.measurement_row)
      WHERE v.run_row = (SELECT max(id) FROM run) ORDER BY v.settings, v.method, v.synchronisation, v.workers, v.block"
  } >"$out/$name.md" 2>>"$out/$name.log"
  say "$name: done"
  return $code
}

running=()
finish() { local each; for each in "${running[@]}"; do wait "$each" || failed=1; done; running=(); }
for each in "${parts[@]}"; do
  name=${each%%=*} seconds=${each#*=}
  [ "$name" = gossip ] || finish
  case $name in
    build)
      scripts/gpu_train.sh "$out/build" build || exit 1 ;;
    straggler)
      set_up; part straggler "$seconds" --set "axes.backend=\"$backend\"" || failed=1 ;;
    local)
      set_up; part local "$seconds" & running+=($!) ;;
    gossip)
      set_up; part gossip "$seconds" --set "axes.backend=\"$backend\"" & running+=($!) ;;
  esac
done
finish
for db in "$out"/*.sqlite; do
  [ -e "$db" ] || continue
  xz -T0 -6 -f "$db"
  rm -f "$db"-wal "$db"-shm
done
for name in straggler local gossip; do
  [ ! -s "$out/$name.md" ] || { echo; echo "## $name"; cat "$out/$name.md"; }
done
say end; ls -l "$out"
exit $failed
