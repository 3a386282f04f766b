#!/bin/sh
# The trigger at work on live calls: a key is searched and frozen, a CPU load appears, the trigger finds the change
# and opens the key again, which is then searched and frozen under the load. Each event is printed and logged.
#   cmake --build build/release --target latency-watch
#   scripts/trigger_demo.sh [BUILD_FOLDER [LOG]]
set -eu
build=${1:-build/release}
log=${2:-trigger_demo.jsonl}
meet=$(mktemp -d)
trap 'rm -rf "$meet"' EXIT
set -- --folder "$meet" --watch "$log" --size "${SIZE:-256KiB}" --calls "${CALLS:-20000}" --load-at "${LOAD_AT:-3000}" \
  --load-calls "${LOAD_CALLS:-6000}"
DYNAMICCL_RANK=1 "$build/latency-watch-gloo" "$@" &
DYNAMICCL_RANK=0 "$build/latency-watch-gloo" "$@"
wait $!
echo "events in $log" >&2
