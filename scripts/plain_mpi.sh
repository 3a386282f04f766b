#!/bin/bash
# What a plain MPI program gains from an exported file that it loads: twenty sizes of each collective from 4 B to 64 MiB on this
# machine, with and without in turn.
#   scripts/plain_mpi.sh OUTPUT_FOLDER SECONDS openmpi|mpich ENV_FILE [RANKS]
#   ./dynamiccl export results/tuned.json --format mpich --out exported
#   scripts/plain_mpi.sh results/plain-mpich 200 mpich exported/mpich.env
# Leaves plain.txt (turn, side, collective, size, microseconds) and gains.txt (scripts/plain_gains.py). PROGRAM names another build of
# plain-mpi-sizes-BACKEND (build/release), COLLECTIVES some of its five. Whole turns alone count; PAIRS bounds them (12).
set -uo pipefail
[ $# -ge 4 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd) || exit 2
end=$((SECONDS + $2)) backend=$3 file=$(realpath "$4") ranks=${5:-2}
cd "$(dirname "$0")/.." || exit
. scripts/plain_turns.sh
case $backend in
  openmpi) launcher=(mpirun.openmpi --bind-to none --oversubscribe -np "$ranks") ;;
  mpich) launcher=(mpirun.mpich -np "$ranks") ;;
  *) echo "plain_mpi.sh: $backend: openmpi or mpich" >&2; exit 2 ;;
esac
program=${PROGRAM:-build/release/plain-mpi-sizes-$backend}
[ -x "$program" ] || cmake --build build/release --target "plain-mpi-sizes-$backend" || exit
[ -r "$file" ] || { echo "$file cannot be read" >&2; exit 2; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
launch() { timeout 120 "${launcher[@]}" "$program" "$1" 8; } # COLLECTIVE
read -ra collectives <<<"${COLLECTIVES:-allreduce broadcast allgather reduce_scatter alltoall}"
one_turn() { turn_of "$file" "$1" "$2" launch "${collectives[@]}"; } # TURN SIDES
plain_turns $end "$out" one_turn
result=$?
tail -n 2 "$out/gains.txt"
exit $result
