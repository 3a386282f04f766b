#!/bin/sh
# Packs what a machine without package sources needs to run DynamICCL with GPUs and containers:
# what is installed of a build (cmake/Install.cmake), benchmark programs, MPICH with its launcher,
# container engines. scripts/unpack_bundle.sh puts it in place there.
#   scripts/make_offline_bundle.sh [--build DIR] [--archive TAR_XZ] [--engine DIR] [--apptainer DEB]
#                                  [--openmpi-cuda DIR] [--limit BYTES] OUTPUT_FOLDER
# --archive takes the programs from what `cpack -G TXZ` made (DIR/packages/*.tar.xz) instead.
# Writes OUTPUT_FOLDER/programs.tar.xz (changes with the sources) and OUTPUT_FOLDER/engines.tar.xz
# (made once, reused while it is there). Parts that are not named are looked for on this machine.
set -eu
build=build/release archive= engine= apptainer= openmpi_cuda= limit=$((60 * 1024 * 1024)) out=
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=$2; shift 2 ;;
    --archive) archive=$2; shift 2 ;;
    --engine) engine=$2; shift 2 ;;
    --apptainer) apptainer=$2; shift 2 ;;
    --openmpi-cuda) openmpi_cuda=$2; shift 2 ;;
    --limit) limit=$2; shift 2 ;;
    -*) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    *) out=$1; shift ;;
  esac
done
[ -n "$out" ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
for tool in patchelf xz strip ldd; do
  command -v "$tool" >/dev/null || { echo "$tool is missing: apt-get install patchelf xz-utils binutils" >&2; exit 2; }
done
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# The C library and the driver's, CUDA's and NCCL's libraries are the target machine's; so is Open MPI, which
# must match its mpirun.
left_out='^(linux-vdso|ld-linux|libc|libm|libdl|libpthread|librt|libresolv|libcuda|libnvidia|libnccl|libmpi|libopen-pal|libopen-rte|libstdc\+\+|libgcc_s)[.-]'
copy_libraries() { # TARGET_FOLDER FILE...
  to=$1; shift
  mkdir -p "$to"
  ldd "$@" 2>/dev/null | awk '$3 ~ /^\// { print $1, $3 }' | sort -u | while read -r name path; do
    echo "$name" | grep -Eq "$left_out" || cp -L -n "$path" "$to/$name"
  done
}

# Programs, the plugin and the libraries that the archive of `cpack -G TXZ` has: out of it, or by the same install rules.
# Trainers are made on the target, against its PyTorch.
programs=$work/programs
installed=$work/installed
mkdir -p "$programs" "$installed"
if [ -n "$archive" ]; then
  tar -xJf "$archive" -C "$installed" --strip-components=1
else
  for component in program openmpi mpich gloo plugin onehost bundled; do
    cmake --install "$build" --prefix "$installed/usr" --strip --component "$component" >"$work/install.log" 2>&1 ||
      { cat "$work/install.log" >&2; echo "build first: cmake --build $build" >&2; exit 1; }
  done
fi
[ -x "$installed/usr/lib/dynamiccl/dynamiccl" ] ||
  { echo "${archive:-$build} installs no lib/dynamiccl/dynamiccl" >&2; exit 1; }
mv "$installed/usr/lib/dynamiccl" "$programs/bin"
find "$programs/bin" -maxdepth 1 \( -name 'dynamiccl-trainer*' -o -name dynamiccl-learn \) -delete
mkdir -p "$programs/bin/lib"
# Benchmarks are not installed: they travel where they were built.
for program in fidelity plain-mpi-loop-openmpi plain-mpi-loop-mpich plain-mpi-sizes-openmpi plain-mpi-sizes-mpich nccl_storm; do
  [ ! -e "$build/$program" ] || { cp "$build/$program" "$programs/bin/" && strip --strip-unneeded "$programs/bin/$program"; }
done
# MPICH, whose launcher is brought too, and what benchmarks load. Open MPI's libraries come with the target's launcher.
copy_libraries "$programs/bin/lib" $(find "$programs/bin" -maxdepth 1 -type f ! -name '*openmpi' ! -name '*.so')
find "$programs/bin/lib" -maxdepth 1 -type f -exec strip --strip-unneeded {} +
# DT_RPATH, which also holds for the libraries' own libraries. The probe is static, the plugin and the library of one host need the C library alone.
find "$programs/bin" -maxdepth 1 -type f ! -name dynamiccl-probe ! -name '*.so' \
  -exec patchelf --force-rpath --set-rpath '$ORIGIN/lib' {} \;
ucx=$(dirname "$(ldconfig -p | awk '/libucs\.so/ { print $NF; exit }')")/ucx
if [ -d "$ucx" ]; then
  mkdir -p "$programs/bin/lib/ucx"
  cp -L "$ucx"/*.so.0 "$programs/bin/lib/ucx/"
  strip --strip-unneeded "$programs"/bin/lib/ucx/*
fi
mkdir -p "$programs/mpich"
cp -L "$(command -v mpirun.mpich)" "$programs/mpich/mpirun.mpich"
cp -L "$(dirname "$(readlink -f "$(command -v mpirun.mpich)")")/hydra_pmi_proxy" "$programs/mpich/"
copy_libraries "$programs/mpich/lib" "$programs/mpich/mpirun.mpich" "$programs/mpich/hydra_pmi_proxy"
for program in mpirun.mpich hydra_pmi_proxy; do
  patchelf --force-rpath --set-rpath '$ORIGIN/lib' "$programs/mpich/$program"
done
[ -z "$openmpi_cuda" ] || cp -a "$openmpi_cuda" "$programs/openmpi-cuda"
tar --sort=name -C "$programs" -cf - . | xz -T1 --x86 --lzma2=preset=6,dict=64MiB >"$out/programs.tar.xz"

if [ ! -e "$out/engines.tar.xz" ]; then
  engines=$work/engines
  mkdir -p "$engines"
  if [ -n "$engine" ]; then cp -a "$engine" "$engines/engine"; else
    mkdir -p "$engines/engine/lib" "$engines/engine/xt"
    for program in dockerd containerd containerd-shim-runc-v2 runc docker docker-init ip tc xtables-nft-multi; do
      path=$(command -v "$program") || { echo "$program is missing: apt-get install docker.io iptables iproute2" >&2; exit 2; }
      cp -L "$path" "$engines/engine/"
    done
    copy_libraries "$engines/engine/lib" "$engines"/engine/[a-z]*
    cp -L "$(dirname "$(ldconfig -p | awk '/libxtables\.so/ { print $NF; exit }')")"/xtables/*.so "$engines/engine/xt/"
    strip "$engines"/engine/[a-z]* 2>/dev/null || true
  fi
  if [ -n "$apptainer" ]; then mkdir "$engines/apptainer"; dpkg-deb -x "$apptainer" "$engines/apptainer"; rm -rf "$engines/apptainer/usr/share"; fi
  # Programs of one language share much of their code: one stream with a dictionary over all of them.
  tar --sort=name -C "$engines" -cf - . | xz -T1 --x86 --lzma2=preset=9e,dict=384MiB >"$out/engines.tar.xz"
fi
total=$(cat "$out"/programs.tar.xz "$out"/engines.tar.xz | wc -c)
ls -l "$out" >&2
if [ "$total" -gt "$limit" ]; then echo "the bundle has $total bytes, more than $limit" >&2; exit 1; fi
echo "$total bytes in $out"
