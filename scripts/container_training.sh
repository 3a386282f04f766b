#!/bin/bash
# The container study's training on CPUs (experiments/container_training.toml), in as many calls as it takes: each goes on where the
# one before it ended.
#   scripts/container_training.sh OUTPUT_FOLDER SECONDS [CORES [ARGUMENT...]]
# CORES, "8-31": a third for each library, at the same time; without, one library after the other on what there is. ARGUMENT: of
# every `dynamiccl run`, the same in each call, as --set protocol.launches=2. BESIDE=3: three runs of each library at the same time,
# each in an order of its own and on a ninth of CORES; the launches of all of them are taken together. OUTPUT_FOLDER is kept between
# calls; it holds LIBRARY.sqlite (LIBRARY-1.sqlite to LIBRARY-3) and .log, .md (its answers), and .done when no launch is left to
# measure; then all.sqlite with all of them, and all.md: the libraries next to the published order, servers against rings, and
# environments against bare metal. Exit code 0: all are done; 75: time was over, call again; 1: something failed, as launches twice
# or an engine that did not come up: mend it and call again; 130, 143: ended by a signal, with all that it had started. Others are
# the program's.
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd) || exit 2
end=$((SECONDS + $2)) cores=${3:-}; shift $(($# < 3 ? $# : 3))
cd "$(dirname "$0")/.." || exit
program=${DYNAMICCL:-build/release/dynamiccl}
libraries=(openmpi mpich gloo)
beside=${BESIDE:-1}
case $beside in [1-9]) ;; *) echo "BESIDE=$beside: from 1 to 9 runs" >&2; exit 2 ;; esac
[ "$beside" = 1 ] || [ -n "$cores" ] || { echo "BESIDE=$beside: needs CORES" >&2; exit 2; }
names=()
for library in "${libraries[@]}"; do
  for part in $(seq "$beside"); do
    if [ "$beside" = 1 ]; then names+=("$library"); else names+=("$library-$part"); fi
  done
done

# COMMAND, which a signal to this shell ends before the shell.
guarded() { # COMMAND...
  local child='' stopped='' code
  trap 'stopped=1; trap "" TERM HUP; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM HUP
  "$@" &
  child=$!
  [ -z "$stopped" ] || kill -TERM "$child" 2>/dev/null
  wait "$child"; code=$?
  [ -z "$stopped" ] || { wait "$child"; exit 143; }
  trap - TERM HUP
  return $code
}
# Whether a run was begun in this database: `run` makes the file before its checks are done.
begun() { # DATABASE
  [ -s "$1" ] && [ "$("$program" query --db "$1" --format csv 'SELECT count(*) FROM run' 2>/dev/null | tail -n 1)" != 0 ]
}
# One run of one library until the time is over.
library() { # NAME CORES ARGUMENT...
  local name=$1 cpus=$2 db=$out/$1.sqlite pinned=() resume code try; shift 2
  [ ! -e "$out/$name.done" ] || return 0
  [ $((end - SECONDS)) -gt 20 ] || return 75
  # Containers are their engine's children: they get their cores from their profile.
  [ -z "$cpus" ] || pinned=(taskset -c "$cpus")
  [ -z "$cpus" ] || set -- --set "profile.single-docker.cpus=\"$cpus\"" --set "profile.cross-docker.cpus=\"$cpus\"" "$@"
  # The seed decides the order of launches.
  [ "$beside" = 1 ] || set -- --set "seed=${name##*-}" "$@"
  # Of other arguments "nothing to resume" would tell nothing.
  [ -e "$out/$name.arguments" ] || echo "$*" >"$out/$name.arguments"
  [ "$(cat "$out/$name.arguments")" = "$*" ] ||
    { echo "$out/$name.sqlite was begun with other CORES or ARGUMENTs: give those again, or another OUTPUT_FOLDER" >&2; return 2; }
  # 1: a launch or a cell failed, an engine did not come up, or the disk is full. Asked again, the program tries what is left; cells
  # that failed in a launch that ended well are stored with their reason, and then nothing is.
  for try in first second; do
    resume=()
    ! begun "$db" || resume=(--resume)
    guarded timeout --signal=INT --kill-after=30 $((end - SECONDS - 15)) "${pinned[@]}" "$program" run \
      experiments/container_training.toml --set "axes.backend=[\"${name%-*}\"]" --no-report --db "$db" "${resume[@]}" "$@" \
      >>"$out/$name.log" 2>&1
    code=$?
    if [ $code != 1 ] || [ $((end - SECONDS)) -le 20 ]; then break; fi
  done
  if [ $code = 2 ] && [ ${#resume[@]} -gt 0 ] && tail -n 1 "$out/$name.log" | grep -q ': nothing to resume: '; then code=0; fi
  case $code in
    0) answers "$name" >"$out/$name.md" 2>>"$out/$name.log" && touch "$out/$name.done" ;;
    1) echo "$name: something failed (the $try time); another call tries again what is left:" >&2
      tail -n 5 "$out/$name.log" >&2
      answers "$name" >"$out/$name.md" 2>>"$out/$name.log"; return 1 ;;
    124 | 130) return 75 ;;
    *) tail -n 5 "$out/$name.log" >&2; return $code ;;
  esac
}
answers() { # NAME
  local query code=0
  for query in training architecture published flags attribution; do
    echo "## $query"; guarded "$program" query --db "$out/$1.sqlite" --format markdown $query || code=1
  done
  return $code
}

# Libraries are ranked against each other, which no database of one of them can.
ranked() {
  local name query code=0
  [ ! -e "$out/all.md" ] || return 0
  for name in "${names[@]}"; do
    guarded "$program" import "$out/$name.sqlite" --db "$out/all.sqlite" >>"$out/all.log" 2>&1 ||
      { tail -n 5 "$out/all.log" >&2; return 1; }
  done
  for query in findings "axis --vary backend" overhead; do
    echo "## $query"
    guarded "$program" query --db "$out/all.sqlite" --all --pool --format markdown $query || code=1
  done >"$out/all.part" 2>>"$out/all.log"
  [ $code = 0 ] || { tail -n 5 "$out/all.log" >&2; return 1; }
  mv "$out/all.part" "$out/all.md"
}

# The PART-th (from 0) of as many equal shares of "8-15,24-31" as there are runs, as "8,9,10".
share_of() { # CORES PART
  local range all=() each
  for range in ${1//,/ }; do all+=($(seq "${range%-*}" "${range#*-}")); done
  each=$((${#all[@]} / ${#names[@]}))
  [ $each -gt 0 ] || { echo "$1 is fewer than ${#names[@]} cores: give more, or leave CORES and BESIDE empty" >&2; exit 2; }
  (IFS=,; echo "${all[*]:$(($2 * each)):each}")
}

# Libraries are jobs, which Ctrl-C does not reach: they and what they measure with are ended before this script.
# shellcheck disable=SC2317 # by the traps
ended() { # EXIT_CODE
  trap '' INT TERM HUP
  # shellcheck disable=SC2046 # a list
  kill -TERM $(jobs -p) 2>/dev/null
  wait
  exit "$1"
}
trap 'ended 129' HUP
trap 'ended 130' INT
trap 'ended 143' TERM
[ -z "$cores" ] || share_of "$cores" 0 >/dev/null || exit 2
# What was begun before this was written down was begun with one run of each.
if ! compgen -G "$out/*.sqlite" >/dev/null; then echo "$beside" >"$out/beside"; elif [ ! -e "$out/beside" ]; then echo 1 >"$out/beside"; fi
[ "$(cat "$out/beside")" = "$beside" ] ||
  { echo "$out was begun with BESIDE=$(cat "$out/beside"): give that again, or another OUTPUT_FOLDER" >&2; exit 2; }
codes=() pids=()
for part in "${!names[@]}"; do
  if [ -n "$cores" ]; then
    share=$(share_of "$cores" "$part")
    library "${names[part]}" "$share" "$@" & pids+=($!)
  else
    library "${names[part]}" "" "$@" &
    wait $!; codes+=($?)
  fi
done
for each in "${pids[@]}"; do wait "$each"; codes+=($?); done
worst=0
for each in "${codes[@]}"; do [ "$each" -le $worst ] || worst=$each; done
[ $worst != 0 ] || ranked || worst=$?
exit $worst
