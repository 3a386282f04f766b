#!/bin/bash
# benchmarks/report_page.sh [BUILD] [SAMPLES]: how long `report --html` takes on a run of 1,000,000 raw
# samples, how large its file is, and when Chromium has drawn its first chart. Bars: 5 s, 5 MiB, 2 s, held by
# the middle of three tries; exit code 1 when one is missed.
#   cmake --workflow --preset release && benchmarks/report_page.sh build/release
set -euo pipefail
build=$(cd "${1:-build/release}" && pwd)
samples=${2:-1000000}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
missed=0

# bar NAME LIMIT VALUE...: prints the values and whether the middle one is within the limit.
bar() {
  local name=$1 limit=$2 middle
  shift 2
  middle=$(printf '%s\n' "$@" | sort -g | sed -n "$((($# + 1) / 2))p")
  if awk -v value="$middle" -v limit="$limit" 'BEGIN { exit !(value ~ /^[0-9.]+$/ && value + 0 <= limit + 0) }'; then
    echo "$name $* (holds: at most $limit)"
  else
    echo "$name $* (MISSED: at most $limit)"
    missed=1
  fi
}

"$build/report_database" "$folder/report.sqlite" "$samples"
program=$build/dynamiccl
"$program" query "SELECT count(*) AS samples FROM sample" --db "$folder/report.sqlite"
times=()
for _ in 1 2 3; do
  before=$(date +%s.%N)
  "$program" report --html --quiet --out "$folder/report.html" --db "$folder/report.sqlite"
  times+=("$(awk -v a="$before" -v b="$(date +%s.%N)" 'BEGIN { printf "%.2f", b - a }')")
done
bar report_s 5 "${times[@]}"
bar file_bytes $((5 * 1024 * 1024)) "$(stat -c %s "$folder/report.html")"
charts=()
for _ in 1 2 3; do
  seen=$("$build/tests/page_viewer" "$folder/report.html") || { echo "$seen"; missed=1; }
  charts+=("$(awk '$1 == "first_chart_ms" { print $2 }' <<<"$seen")")
done
bar first_chart_ms 2000 "${charts[@]}"
exit "$missed"
