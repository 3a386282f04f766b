#!/bin/sh
# Runs the libFuzzer programs of the readers for so many seconds each, from the kept corpus on:
#   scripts/fuzz.sh [SECONDS [NAME...]]
# Needs clang. What it finds lies in build/fuzz/finds/NAME; new inputs that reach new code go to
# build/fuzz/corpus/NAME. Ends with 1 when a reader crashed, hung or leaked.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-3600}
[ $# -gt 0 ] && shift
command -v clang++ >/dev/null || { echo "fuzz.sh: clang is missing: apt-get install -y clang" >&2; exit 1; }
cmake -S . -B build/fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCMAKE_UNITY_BUILD=ON -DDYNAMICCL_FUZZ=ON -DDYNAMICCL_WERROR=OFF -DDYNAMICCL_BENCHMARKS=OFF -DDYNAMICCL_SANITIZE=fuzzer-no-link,address,undefined \
  -DCMAKE_PREFIX_PATH="$PWD/.deps/catch2/usr" >/dev/null
# Every program that CMake knows, with a kept corpus or with seeds that it makes itself.
names=${*:-$(cmake --build build/fuzz --target help | sed -n 's/^fuzz_\([a-z-]*\): .*/\1/p' | sort)}
[ -n "$names" ] || { echo "fuzz.sh: CMake names no program fuzz_NAME" >&2; exit 1; }
targets=
for name in $names; do targets="$targets fuzz_$name"; done
# shellcheck disable=SC2086
cmake --build build/fuzz --target $targets
failed=0
for name in $names; do
  mkdir -p "build/fuzz/corpus/$name" "build/fuzz/finds/$name" "build/fuzz/seeds/$name"
  kept=tests/fuzz/corpus/$name
  [ -d "$kept" ] || kept=
  echo "== $name: $seconds s"
  # shellcheck disable=SC2086
  ASAN_OPTIONS=detect_leaks=1 DYNAMICCL_FUZZ_SEEDS="build/fuzz/seeds/$name" "build/fuzz/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -max_len=65536 -print_final_stats=1 -verbosity=0 "-artifact_prefix=build/fuzz/finds/$name/" \
    "build/fuzz/corpus/$name" "build/fuzz/seeds/$name" $kept || failed=1
done
exit $failed
