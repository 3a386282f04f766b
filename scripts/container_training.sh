#!/bin/bash
# The container study's training on CPUs (experiments/container_training.toml), in as many calls as it takes: each goes on where the
# one before it ended.
#   scripts/container_training.sh OUTPUT_FOLDER SECONDS [CORES [ARGUMENT...]]
# CORES, "8-31": a third for each library, at the same time; without, one library after the other on what there is. ARGUMENT: of
# every `dynamiccl run`, the same in each call, as --set protocol.launches=2. OUTPUT_FOLDER is kept between calls; it holds
# LIBRARY.sqlite, and when all of a library's launches are there LIBRARY.md (its answers) and LIBRARY.done. Exit code 0: all are
# done; 75: time was over, call again.
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd) || exit 2
end=$((SECONDS + $2)) cores=${3:-}; shift $(($# < 3 ? $# : 3))
cd "$(dirname "$0")/.." || exit
program=${DYNAMICCL:-build/release/dynamiccl}
libraries=(openmpi mpich gloo)

# One library until the time is over.
library() { # NAME CORES ARGUMENT...
  local name=$1 cpus=$2 db=$out/$1.sqlite pinned=() resume=() code; shift 2
  [ ! -e "$out/$name.done" ] || return 0
  [ $((end - SECONDS)) -gt 20 ] || return 75
  # Containers are their engine's children: they are told their cores by their profile.
  [ -z "$cpus" ] || pinned=(taskset -c "$cpus")
  [ -z "$cpus" ] || set -- --set "profile.single-docker.cpus=\"$cpus\"" --set "profile.cross-docker.cpus=\"$cpus\"" "$@"
  [ ! -e "$db" ] || resume=(--resume)
  timeout --signal=INT --kill-after=30 $((end - SECONDS - 15)) "${pinned[@]}" "$program" run experiments/container_training.toml \
    --set "axes.backend=[\"$name\"]" --no-report --db "$db" "${resume[@]}" "$@" >>"$out/$name.log" 2>&1
  code=$?
  [ $code != 1 ] || [ -e "$db" ] || code=2  # nothing was started
  case $code in
    # 1: cells that cannot be had here, or failed, are stored with their reason.
    0 | 1) answers "$name" >"$out/$name.md" 2>>"$out/$name.log" && touch "$out/$name.done" ;;
    124 | 130) return 75 ;;
    *) tail -n 5 "$out/$name.log" >&2; return $code ;;
  esac
}
answers() { # NAME
  local query
  for query in training rankings published_training ps_against_ring scheduling_tradeoff flags attribution; do
    echo "## $query"; "$program" query --db "$out/$1.sqlite" --format markdown $query
  done
}

# The PART-th (from 0) of three equal shares of "8-15,24-31", as "8,9,10".
third() { # CORES PART
  local range all=() each
  for range in ${1//,/ }; do all+=($(seq "${range%-*}" "${range#*-}")); done
  each=$((${#all[@]} / 3))
  [ $each -gt 0 ] || { echo "$1 is fewer than three cores: leave CORES empty" >&2; exit 2; }
  (IFS=,; echo "${all[*]:$(($2 * each)):each}")
}

codes=() pids=()
for part in 0 1 2; do
  if [ -n "$cores" ]; then
    share=$(third "$cores" $part) || exit 2
    library "${libraries[part]}" "$share" "$@" & pids+=($!)
  else
    library "${libraries[part]}" "" "$@"; codes+=($?)
  fi
done
for each in "${pids[@]}"; do wait "$each"; codes+=($?); done
worst=0
for each in "${codes[@]}"; do [ "$each" -le $worst ] || worst=$each; done
exit $worst
