#!/bin/sh
# Records the latency traces that tests/tuner/trace_test.cpp judges the trigger on. On idle cores:
#   cmake --build build/release --target latency-watch
#   scripts/record_traces.sh [BUILD_FOLDER [OUTPUT_FOLDER]]
# stationary.bin.xz: 21 pieces of 50,000 all-reduce calls over Gloo, Open MPI and MPICH, 1 KiB to 256 KiB.
# load.bin.xz: 120 traces of 1,800 calls; a busy process per core starts after about 1,500 of them.
# Each trace says the machine, the library and the CPU pressure before and after it. About ten minutes on 2 cores.
set -eu
build=${1:-build/release}
out=${2:-tests/tuner/traces}
pieces=${STATIONARY_CALLS:-50000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

# watch BACKEND ARGUMENTS: both ranks of one program
watch() {
  backend=$1
  shift
  case $backend in
    gloo)
      meet=$(mktemp -d -p "$work")
      DYNAMICCL_RANK=1 "$build/latency-watch-gloo" --folder "$meet" "$@" &
      DYNAMICCL_RANK=0 "$build/latency-watch-gloo" --folder "$meet" "$@"
      wait $!
      ;;
    openmpi) mpirun.openmpi --bind-to none -n 2 "$build/latency-watch-openmpi" --folder "$work" "$@" ;;
    mpich) mpiexec.mpich -n 2 "$build/latency-watch-mpich" --folder "$work" "$@" ;;
  esac
}

for backend in gloo openmpi mpich; do
  # Gloo takes a millisecond for 256 KiB.
  largest=256KiB
  [ $backend != gloo ] || largest=4KiB
  for size in 1KiB 16KiB 64KiB 1KiB 16KiB 64KiB $largest; do
    echo "stationary: $backend $size" >&2
    watch "$backend" --record "$work/stationary.bin" --size "$size" --calls "$pieces"
  done
  for size in 64KiB 256KiB 1MiB 64KiB; do
    echo "load: $backend $size" >&2
    watch "$backend" --record "$work/load.bin" --size "$size" --calls 1800 --load-at 1500 --repeat 10
  done
done
for name in stationary load; do
  xz -9e -c "$work/$name.bin" >"$out/$name.bin.xz"
done
ls -l "$out" >&2
