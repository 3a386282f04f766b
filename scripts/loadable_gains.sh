#!/bin/bash
# What MPI jobs gain from files they can load: searches experiments/tune_jobs.toml, checks what it keeps over twenty
# sizes as jobs load it (`tune check`), exports it, and loads that into a plain program, with and without in turn.
#   [BUNDLE=FOLDER] [TABLES=FOLDER] scripts/loadable_gains.sh OUTPUT_FOLDER SECONDS [RANKS...]
#   scripts/loadable_gains.sh results/loadable 1500 2
#   TABLES=results/loadable TOGETHER=1 scripts/loadable_gains.sh results/loadable-again 270 2 4
# TABLES: no search; the NAME.json of an earlier call there are checked, exported and loaded again.
# Environments and libraries of one number of ranks are measured side by side, so a machine needs four cores for each
# rank; all RANKS at once where TOGETHER=1. ENVIRONMENTS and BACKENDS name others than all; TUNE_FLAGS and CHECK_FLAGS
# add to `tune`. CHECK_SECONDS is what a check plans to take (two fifths of SECONDS with TABLES, else its own 360) and
# is ended after half as much again; PAIRS bounds the plain program's turns (12), of which only whole ones count.
# Leaves NAME.json (settings), NAME.check.md (twenty sizes, our worker), NAME.plain.txt and NAME.gains.txt (the plain
# program, bare metal alone: its times, and what they say), NAME.sqlite and a folder of exported files for each of
# them, and summary.txt. Exit code 1: a search, check, export or plain program failed; that the time was over, or that
# there was nothing to export, is no failure.
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,18s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd)
end=$((SECONDS + $2)) experiment=${EXPERIMENT:-experiments/tune_jobs.toml}
shift 2
ranks_list=${*:-2 4 8}
cd "$(dirname "$0")/.." || exit
. scripts/gpu_setup.sh
read -ra tune_flags <<<"${TUNE_FLAGS:-}"
tables=${TABLES:+$(cd "$TABLES" && pwd)}
check_s=${CHECK_SECONDS:-360}
[ -n "${CHECK_SECONDS:-}" ] || [ -z "$tables" ] || check_s=$(((end - SECONDS) * 2 / 5))
# A hundred cells a launch, 64 MiB among them: launches differ by more than the calls of one, so short ones and more.
read -ra check_flags <<<"${CHECK_FLAGS:---set protocol.warmup=20 --set protocol.cell_time_cap=5ms --set protocol.min_iterations=3 --set tune.confirm_launches=6}"
pairs=${PAIRS:-12}

# One engine for all of them: each would end its own.
if [[ ${ENVIRONMENTS:-cross-docker} == *docker* ]] && ! docker version >/dev/null 2>&1; then
  engine=$(mktemp -d /tmp/loadable-engine-XXXX)
  export DOCKER_HOST=unix://$engine/s.sock
  setsid dockerd --data-root "$engine/data" --exec-root "$engine/exec" --host "$DOCKER_HOST" \
    --pidfile "$engine/pid" >"$engine/log" 2>&1 &
  trap 'kill "$(cat "$engine/pid")" 2>/dev/null' EXIT
  for _ in $(seq 60); do docker version >/dev/null 2>&1 && break; sleep 0.5; done
fi

say() { echo "$SECONDS s: $*" | tee -a "$out/summary.txt"; }

# 124: the time was over.
failed() { [ "$1" != 0 ] && [ "$1" != 124 ]; }

# What is left of the time, at most MOST seconds; 0 ends a step at once.
limited() { # MOST COMMAND...
  local left=$((end - SECONDS)) most=$1
  shift
  [ "$left" -gt 5 ] || return 124
  timeout --signal=INT --kill-after=30 "$((left < most ? left : most))" "$@"
}

# The plain program, with and without the exported files, PAIRS times in an order that alternates. Eight milliseconds a
# size: launches differ by more than the calls of one.
plain() { # NAME BACKEND RANKS
  local name=$1 backend=$2 ranks=$3 turn side collective launcher sides result=0
  local folder=$out/$name program=$root/build/release/plain-mpi-sizes-$backend
  [ -x "$program" ] || { say "$name: plain-mpi-sizes-$backend is not built"; return 1; }
  launcher=(mpirun --bind-to none --oversubscribe -np "$ranks")
  [ "$backend" = openmpi ] || launcher=(mpirun.mpich -np "$ranks")
  : >"$out/$name.plain.txt"
  for turn in $(seq "$pairs"); do
    [ $((end - SECONDS)) -gt 8 ] || break
    sides="default loaded"
    [ $((turn % 2)) -eq 1 ] || sides="loaded default"
    for collective in allreduce broadcast allgather reduce_scatter alltoall; do
      for side in $sides; do
        (
          if [ "$side" = loaded ]; then set -a; . "$folder/$backend.env"; fi
          limited 60 "${pinned[@]}" "${launcher[@]}" "$program" "$collective" 8
        ) 2>>"$out/$name.plain.log" | sed "s/^/$turn $side $collective /" >>"$out/$name.plain.txt"
        ! failed $? || { result=1; say "$name: $collective $side failed"; }
      done
    done
  done
  python3 scripts/plain_gains.py "$out/$name.plain.txt" >"$out/$name.gains.txt" 2>>"$out/$name.plain.log"
  say "$(tail -n 2 "$out/$name.gains.txt" | head -n 1)"
  return $result
}

search() { # NAME CELLS
  local code
  limited 3600 "${pinned[@]}" "$program" tune "$experiment" "${pins[@]}" --only "$2" "${tune_flags[@]}" --db "$out/$1.sqlite" \
    --table "$out/$1.json" >"$out/$1.md" 2>"$out/$1.log"
  code=$?
  say "$1: tune ended with $code"
  ! failed $code
}

measure() { # ENVIRONMENT BACKEND RANKS CORES
  local pinned pins name=$1-$2-$3 cells="environment == $1 and backend == $2 and ranks == $3" code result=0
  pin_to "$4" "$1"
  if [ -n "$tables" ]; then
    cp "$tables/$name.json" "$out/$name.json.new" && mv "$out/$name.json.new" "$out/$name.json" || result=1
  else
    search "$name" "$cells" || result=1
  fi
  [ -e "$out/$name.json" ] || { say "$name: no settings to check"; return $result; }
  limited $((check_s * 3 / 2)) "${pinned[@]}" "$program" tune check "$experiment" "$out/$name.json" "${pins[@]}" --only "$cells" \
    --check-seconds "$check_s" "${check_flags[@]}" --db "$out/$name.sqlite" >"$out/$name.check.md" 2>"$out/$name.check.log"
  code=$?
  say "$name: --check ended with $code"
  ! failed $code || result=1
  grep "^$1 $2 $3 ranks: " "$out/$name.check.log" | tee -a "$out/summary.txt"
  if [ -n "$tables" ] && cmp -s "$tables/$name.json" "$out/$name.json"; then
    say "$name: the check came to no answer"
    return $result
  fi
  rm -rf "${out:?}/$name"
  "$program" export "$out/$name.json" --format "$2" --out "$out/$name" >"$out/$name.export.txt" 2>&1
  code=$?
  say "$name: export ended with $code: $(tail -n 1 "$out/$name.export.txt")"
  if [ $code != 0 ] && ! grep -qE 'nothing to load|has nothing that|none was surely faster' "$out/$name.export.txt"; then result=1; fi
  if [ "$1" = bare-metal ] && [ -e "$out/$name/$2.env" ]; then plain "$name" "$2" "$3" || result=1; fi
  return $result
}

# Of the places that were begun.
ended() {
  local pid
  for pid in "${pids[@]}"; do wait "$pid" || result=1; done
  pids=()
}

: >"$out/summary.txt"
pids=() result=0
environments=${ENVIRONMENTS:-bare-metal cross-docker} backends=${BACKENDS:-openmpi mpich}
places=$(($(wc -w <<<"$environments") * $(wc -w <<<"$backends")))
[ "${TOGETHER:-0}" != 1 ] || places=$((places * $(wc -w <<<"$ranks_list")))
for ranks in $ranks_list; do
  for environment in $environments; do
    for backend in $backends; do
      measure "$environment" "$backend" "$ranks" "$(cores_of ${#pids[@]} $places)" & pids+=($!)
    done
  done
  [ "${TOGETHER:-0}" = 1 ] || ended
done
ended
[ $result = 0 ] || say "something of it failed"
say "all done"
exit $result
