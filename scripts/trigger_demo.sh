#!/bin/sh
# The trigger at work on live calls: a key is searched and frozen, a neighbour's streams fill the link, the trigger
# finds the change and opens the key again, which is then searched and frozen under the load. Each event is printed
# and logged. The link is lo of a network namespace of its own, held to 1 Gbit/s, which takes root.
#   cmake --build build/release --target latency-watch
#   scripts/trigger_demo.sh [BUILD_FOLDER [LOG]]
# SIZE, CALLS, LOAD_AT (calls after the key was frozen), LOAD_CALLS: how large, how many, from when, for how long.
set -eu
if [ "${1:-}" != --inside ]; then exec unshare --net "$0" --inside "$@"; fi
shift
build=${1:-build/release}
log=${2:-trigger_demo.jsonl}
ip link set lo up
tc qdisc add dev lo root tbf rate 1gbit burst 256kb latency 4ms
meet=$(mktemp -d)
trap 'rm -rf "$meet"' EXIT
set -- --folder "$meet" --watch "$log" --size "${SIZE:-256KiB}" --calls "${CALLS:-8000}" --load link \
  --load-at "${LOAD_AT:-1000}" --load-calls "${LOAD_CALLS:-2500}"
DYNAMICCL_RANK=1 "$build/latency-watch-gloo" "$@" &
DYNAMICCL_RANK=0 "$build/latency-watch-gloo" "$@"
wait $!
echo "events in $log" >&2
