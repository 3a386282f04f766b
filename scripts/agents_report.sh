#!/bin/sh
# Remakes reports/measured/agents-2026-11: lets every agent search stored measurements, the same budgets for all, and says
# what the choices of each take. Needs nothing of the machines that measured.
#   scripts/agents_report.sh [OUTPUT_FOLDER [BUILD_FOLDER [OPTION_OF_agents_report]...]]
#   scripts/agents_report.sh results/agents build/release
#   scripts/agents_report.sh results/agents build/release --agents means,bandit --looks 2
#   scripts/agents_report.sh results/agents build/release --hold-out machine      (or size; "+places" saw nothing of it)
#   scripts/agents_report.sh results/agents build/release --agents prior --looks 0 --write-places all.tsv
#   grep -vw -e gloo -e nccl all.tsv >tuner/places/measured.tsv      (what ships: libraries whose searches it helps)
# Leaves report.md and rows.csv.xz (part, agent, looks, seed) in OUTPUT_FOLDER. SEEDS=100, and SLOW_SEEDS=20 of them for agents with a
# Gaussian process. Twelve sweeps of CPU libraries and the NCCL grids that are stored are searched; SWEEPS="a.sqlite b.sqlite"
# takes other sweeps of EXPERIMENT (experiments/tune_cpu.toml), as scripts/tune_sweep.sh leaves them: one per environment and
# backend, or per collective of them, which are put together again; JUDGE=FILE.sqlite.xz another run of scripts/gpu_tune.sh judge.
set -eu
case ${1:-} in -h | --help) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
out=${1:-results/agents}
build=${2:-build/release}
[ $# -lt 2 ] || shift
[ $# -lt 1 ] || shift
cd "$(dirname "$0")/.."
[ -x "$build/agents_report" ] || cmake --build "$build" --target agents_report
mkdir -p "$out"
databases=$(mktemp -d)
trap 'rm -rf "$databases"' EXIT
stored=reports/measured/agents-2026-11
unpacked() { xz -dc "$1" >"$databases/$2.sqlite"; }
unpacked reports/measured/h200x2-2026-11/tuned-cross.sqlite.xz nccl
unpacked reports/measured/h200x2-2026-11/tuned-nvlink.sqlite.xz nvlink
unpacked reports/measured/h100x2-2026-11-sweep/sweep.sqlite.xz h100
drawn="--drawn --grid gpu-tune-nvlink-search $databases/nvlink.sqlite"
set -- --grid gpu-tune-search "$databases/nccl.sqlite" "$@"
judge=${JUDGE:-$stored/judge.sqlite.xz}
if [ -e "$judge" ]; then
  xz -dc "$judge" >"$databases/judge.sqlite"
  set -- --grid gpu-tune-judge "$databases/judge.sqlite" "$@"
fi
if [ -z "${SWEEPS:-}" ]; then
  mkdir "$databases/sweeps"
  tar -C "$databases/sweeps" -xJf "$stored/cpu/sweeps.tar.xz"
  SWEEPS=$(ls "$databases"/sweeps/*.sqlite)
fi
for database in $SWEEPS; do set -- --sweep "${EXPERIMENT:-experiments/tune_cpu.toml}" "$database" last "$@"; done
set -- --machine '2x H200' $drawn --searched "$@" --drawn --machine '2x H100' --grid gpu-sweep "$databases/h100.sqlite"
"$build/agents_report" --seeds "${SEEDS:-100}" --slow-seeds "${SLOW_SEEDS:-20}" --rows "$out/rows.csv" "$@" >"$out/report.md"
xz -f "$out/rows.csv"
sed -n '/^## All/,/^Over/p' "$out/report.md"
