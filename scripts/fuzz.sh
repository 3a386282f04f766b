#!/bin/sh
# Builds the libFuzzer program of the readers (needs clang) and runs it, all targets at the same time:
#   scripts/fuzz.sh [SECONDS [CORES [NAME,...]]]   in build/fuzz/out, on CORES cores (default 1), going on where the last call ended
#   scripts/fuzz.sh --pack FOLDER [STATE]          what another machine needs for it (no clang, no checkout): program, libraries,
#                                                  kept corpus, profiles, fuzz_run.py and, of an earlier call, its OUT to go on
#                                                  from; also as FOLDER.tar.xz
#   FOLDER/fuzz_run.py FOLDER SECONDS CORES OUT    there; FOLDER/README has it whole
# Finds lie in OUT/finds.tar.xz, counts in OUT/table.jsonl. Ends with 1 when a reader crashed, hung or leaked, 2 when it cannot run.
set -eu
usage() {
  echo "fuzz.sh: $1: scripts/fuzz.sh [SECONDS [CORES [NAME,...]]] or scripts/fuzz.sh --pack FOLDER [STATE]" >&2
  exit 2
}
cd "$(dirname "$0")/.."
# Before the build, which takes minutes.
if [ "${1:-}" = --pack ]; then
  [ -n "${2:-}" ] || usage "--pack lacks its folder"
  [ ! -e "$2" ] || usage "$2 exists, name a new folder"
  [ -z "${3:-}" ] || [ -e "$3/counts.json" ] || usage "$3 has no counts.json, so no call left it"
else
  case ${1:-3600} in *[!0-9.]*) usage "SECONDS is \"$1\", not a number" ;; esac
  case ${2:-1} in *[!0-9,-]*) usage "CORES is \"$2\", neither a number nor a list such as 0-3 (names of targets come third)" ;; esac
fi
command -v clang++ >/dev/null || { echo "fuzz.sh: clang is missing: apt-get install -y clang" >&2; exit 2; }
cmake -S . -B build/fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCMAKE_C_FLAGS_RELWITHDEBINFO="-O2 -gline-tables-only" -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O2 -gline-tables-only" \
  -DCMAKE_UNITY_BUILD=ON -DDYNAMICCL_FUZZ=ON -DDYNAMICCL_WERROR=OFF -DDYNAMICCL_BENCHMARKS=OFF -DDYNAMICCL_SANITIZE=fuzzer-no-link,address,undefined \
  -DCMAKE_PREFIX_PATH="$PWD/.deps/catch2/usr" >/dev/null || exit 2
cmake --build build/fuzz --target fuzz_readers || exit 2

pack() {
  folder=$1
  mkdir -p "$folder/lib" "$folder/profiles"
  # Symbols stay for the names in a stack; lines come from the unstripped program in build/fuzz/fuzz.
  objcopy --strip-debug build/fuzz/fuzz/fuzz_readers "$folder/fuzz_readers"
  # glibc comes from the other machine, which may be newer and not older.
  ldd build/fuzz/fuzz/fuzz_readers | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' |
    grep -Ev '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*)\.so' | while read -r library; do
    cp -L "$library" "$folder/lib/"
  done
  cp -r tests/fuzz/corpus "$folder/corpus"
  cp -r profiles/environments "$folder/profiles/environments"
  cp scripts/fuzz_run.py "$folder/"
}

if [ "${1:-}" = --pack ]; then
  pack "$2"
  if [ -n "${3:-}" ]; then
    mkdir "$2/state"
    cp "$3/counts.json" "$3/corpus.tar.xz" "$2/state/"
    [ ! -e "$3/finds.tar.xz" ] || cp "$3/finds.tar.xz" "$2/state/"
  fi
  cat >"$2/README" <<'END'
All targets on N cores (a number, or a list such as 0-31) for S seconds; the same command again goes on where the last call ended:

    S=576; N=32; mkdir -p /tmp/fz && python3 -m tarfile -e fuzz.tar.xz /tmp/fz && python3 -B /tmp/fz/fuzz/fuzz_run.py /tmp/fz/fuzz $S $N /tmp/fz/out \
      --minimise 0 --from fuzz-state.tar --archive fuzz-state.tar >fuzz.log 2>&1; echo "rc=$?"; tail -n 1 fuzz.log

fuzz-state.tar holds counts.json (CPU seconds and executions by target), table.jsonl, corpus.tar.xz and, of what was found, finds.tar.xz.
Where neither /tmp/fz/out nor fuzz-state.tar is there, a call goes on from state/ of this folder, else from zero. Needs python3 alone.
rc: 0 nothing found, 1 something found (by an earlier call, too), 2 cannot run. The last line of the log says how much is left.
END
  tar -C "$(dirname "$2")" -c "$(basename "$2")" | xz -9e >"$2.tar.xz"
  du -h "$2.tar.xz"
  exit 0
fi
rm -rf build/fuzz/pack
pack build/fuzz/pack
cp build/fuzz/fuzz/fuzz_readers build/fuzz/pack/  # with lines for the stacks
exec python3 scripts/fuzz_run.py build/fuzz/pack "${1:-3600}" "${2:-1}" build/fuzz/out ${3:+--targets "$3"}
