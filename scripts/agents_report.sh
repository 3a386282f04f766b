#!/bin/sh
# Remakes reports/measured/agents-2026-11: lets every agent search the stored sweeps, ten seeds each, and says which
# is best. Needs nothing of the machines that measured them.
#   scripts/agents_report.sh [OUTPUT_FOLDER [BUILD_FOLDER [NAME=POLICY_FILE]...]]
#   scripts/agents_report.sh results/agents build/release
# Leaves report.md and rows.csv (agent by seed and part) in OUTPUT_FOLDER. SEEDS=N for another number; TERMS="hints
# hints,wall" adds ppo and bandit with these terms of the search (tune --terms), each against itself without.
# UNTRAINED=N holds the trained networks (ours and those of POLICY_FILE) against N random ones.
# SWEEPS="a.sqlite b.sqlite" takes other sweeps of EXPERIMENT (experiments/tune_loadable.toml), as scripts/tune_sweep.sh leaves them:
# one per environment and backend, or per collective of them, which are put together again.
set -eu
case ${1:-} in -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
out=${1:-results/agents}
build=${2:-build/release}
[ $# -lt 2 ] || shift
[ $# -lt 1 ] || shift
cd "$(dirname "$0")/.."
[ -x "$build/agents_report" ] || cmake --build "$build" --target agents_report
mkdir -p "$out"
databases=$(mktemp -d)
trap 'rm -rf "$databases"' EXIT
unpack() { xz -dc "$1" >"$databases/$2.sqlite"; }
unpack reports/measured/agents-2026-11/loadable.sqlite.xz loadable
unpack reports/measured/h200x2-2026-11/tuned-cross.sqlite.xz nccl
policies=
[ -z "${UNTRAINED:-}" ] || policies="--untrained $UNTRAINED"
for terms in ${TERMS:-}; do policies="$policies --terms $terms"; done
for policy in "$@"; do policies="$policies --policy $policy"; done
sweeps=
for database in ${SWEEPS:-$databases/loadable.sqlite}; do sweeps="$sweeps --sweep ${EXPERIMENT:-experiments/tune_loadable.toml} $database last"; done
# shellcheck disable=SC2086 # one word per option
"$build/agents_report" --seeds "${SEEDS:-10}" --rows "$out/rows.csv" $policies $sweeps \
  --grid gpu-tune-search "$databases/nccl.sqlite" >"$out/report.md"
grep '^\*\*Best' "$out/report.md"
