#!/bin/bash
# scripts/report_picture.sh [BUILD] [RUN]: takes docs/report.png anew, the picture of the README, from a run
# in the database ($DYNAMICCL_DB; the newest unless named). Needs Chromium, and ImageMagick for a small file.
#   ./dynamiccl run experiments/quickstart.toml && ./dynamiccl test -R browser_tests
#   scripts/report_picture.sh build/dev
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-$root/build/dev}" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$build/dynamiccl" report "${2:-last}" --html --out "$folder/report.html"
"$build/tests/page_viewer" "$folder/report.html" --width 1280 --height 1010 --png "$folder/report.png"
if command -v convert >/dev/null; then
  convert "$folder/report.png" -colors 96 "PNG8:$root/docs/report.png"
else
  cp "$folder/report.png" "$root/docs/report.png"
fi
