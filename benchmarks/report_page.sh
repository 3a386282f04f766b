#!/bin/bash
# benchmarks/report_page.sh [BUILD] [SAMPLES]: how long `report --html` takes on a run of 1,000,000 raw
# samples, how large its file is, and when Chromium has drawn its first chart. Bars: 5 s, 5 MiB, 2 s.
#   cmake --workflow --preset release && benchmarks/report_page.sh build/release
set -euo pipefail
build=$(cd "${1:-build/release}" && pwd)
samples=${2:-1000000}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$build/report_database" "$folder/report.sqlite" "$samples"
program=$build/dynamiccl
"$program" query "SELECT count(*) AS samples FROM sample" --db "$folder/report.sqlite"
for _ in 1 2 3; do
  before=$(date +%s.%N)
  "$program" report --html --quiet --out "$folder/report.html" --db "$folder/report.sqlite"
  awk -v a="$before" -v b="$(date +%s.%N)" 'BEGIN { printf "report_s %.2f\n", b - a }'
done
echo "file_bytes $(stat -c %s "$folder/report.html")"
for _ in 1 2 3; do "$build/tests/page_viewer" "$folder/report.html"; done
