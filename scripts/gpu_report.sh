#!/bin/bash
# Measures the GPU experiments within a time budget per part and leaves what a report is made of:
# one compressed database, Markdown and CSV per part. Parts are complete in themselves; a part whose
# budget ends keeps every launch that was stored.
#   [BUNDLE=FOLDER] scripts/gpu_report.sh OUTPUT_FOLDER PART=SECONDS...
#   [BUNDLE=FOLDER] scripts/gpu_report.sh OUTPUT_FOLDER gpu_boundary=180 gpu_environments=300
# PART is the name of a file in experiments/ without .toml; ONLY='ranks == 4' narrows all parts, and
# SET='axes.ranks=2 protocol.launches=10' replaces keys of their files.
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd); shift
cd "$(dirname "$0")/.."
. scripts/gpu_setup.sh
failed=0
nvidia-smi --query-gpu=index,name,driver_version,pcie.link.gen.max --format=csv,noheader
for part in "$@"; do
  name=${part%%=*} seconds=${part#*=}
  db=$out/$name.sqlite
  arguments=(run "experiments/$name.toml" --db "$db")
  [ -z "${ONLY:-}" ] || arguments+=(--only "$ONLY")
  for pair in ${SET:-}; do arguments+=(--set "$pair"); done
  echo "== $name, at most $seconds s ($SECONDS s)"
  # Ctrl-C ends a run in order: what was measured is stored.
  timeout --signal=INT --kill-after=40 "$seconds" "$program" "${arguments[@]}" >"$out/$name.md" 2>"$out/$name.log"
  code=$?
  case $code in 0|1|124|130) ;; *) failed=1 ;; esac
  echo "exit code $code"; tail -n 5 "$out/$name.log"
  "$program" query latency --db "$db" --format csv >"$out/$name.csv" 2>>"$out/$name.log"
  "$program" query coverage --db "$db" --format markdown >>"$out/$name.md" 2>>"$out/$name.log"
  "$program" query transports --db "$db" --format markdown >>"$out/$name.md" 2>>"$out/$name.log"
  xz -T0 -6 -f "$db"
  # One archive: few files travel better than many.
  tar -C "$out" -cf "$out/$name.tar" "$name.sqlite.xz" "$name.md" "$name.csv" "$name.log" 2>/dev/null &&
    rm -f "$out/$name".sqlite* "$out/$name.md" "$out/$name.csv" "$out/$name.log"
done
echo "== end ($SECONDS s)"; ls -l "$out"
exit $failed
