#!/bin/sh
# Records the latency traces that tests/tuner/trace_test.cpp judges the trigger on. On idle cores:
#   cmake --build build/release --target latency-watch
#   scripts/record_traces.sh [BUILD_FOLDER [OUTPUT_FOLDER]]
# stationary.bin.xz: 21 pieces of 50,000 all-reduce calls over Gloo, Open MPI and MPICH, 1 KiB to 256 KiB.
# load.bin.xz: 120 traces of 700 calls over TCP; a neighbour's two streams over the same link of 1 Gbit/s start
# after about 600 of them. The link is lo of a network namespace of its own, which takes root.
# Each trace says the machine, the library and the CPU pressure before and after it. About fifteen minutes on 2 cores.
# PARTS="stationary load" names what is recorded.
set -eu
parts=${PARTS:-stationary load}
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

record_stationary() {
  for backend in gloo openmpi mpich; do
    # Gloo takes a millisecond for 256 KiB.
    largest=256KiB
    [ $backend != gloo ] || largest=4KiB
    for size in 1KiB 16KiB 64KiB 1KiB 16KiB 64KiB $largest; do
      echo "stationary: $backend $size" >&2
      watch "$backend" --record "$work/stationary.bin" --size "$size" --calls "${STATIONARY_CALLS:-50000}"
    done
  done
}

# Called again inside the network namespace.
record_load() {
  ip link set lo up
  tc qdisc add dev lo root tbf rate 1gbit burst 256kb latency 4ms
  # Both libraries would take shared memory.
  export OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo OMPI_MCA_pml=ob1
  export MPIR_CVAR_NOLOCAL=1 UCX_TLS=tcp,self UCX_NET_DEVICES=lo
  for backend in gloo openmpi mpich; do
    for size in 4KiB 64KiB 256KiB 64KiB; do
      echo "load: $backend $size" >&2
      watch "$backend" --record "$work/load.bin" --size "$size" --calls 700 --load-at 600 --load link --repeat 10
    done
  done
}

if [ "${1:-}" = --load ]; then
  build=$2 work=$3
  record_load
  exit
fi
build=${1:-build/release}
out=${2:-tests/tuner/traces}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
for part in $parts; do
  case $part in
    stationary) record_stationary ;;
    load) unshare --net "$0" --load "$build" "$work" ;;
    *) echo "PARTS: no part \"$part\"; known: stationary, load" >&2; exit 2 ;;
  esac
  xz -9e -c "$work/$part.bin" >"$out/$part.bin.xz"
done
ls -l "$out" >&2
