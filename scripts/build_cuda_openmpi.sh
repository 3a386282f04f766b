#!/bin/sh
# Builds Open MPI with CUDA from the distribution's source package into a prefix of its own, for
# machines whose packaged Open MPI cannot take device pointers. The prefix may be moved: the launcher
# sets OPAL_PREFIX.
#   scripts/build_cuda_openmpi.sh [--prefix DIR] [--cuda DIR] [--source ARCHIVE] [--jobs N]
# Needs a C compiler, make, xz and (without --source) dpkg-source's apt; about 10 minutes on 2 cores.
set -eu
prefix=${DYNAMICCL_CACHE:-/var/cache/dynamiccl}/openmpi-cuda
cuda=${CUDA_HOME:-/usr/local/cuda}
archive=
jobs=$(nproc)
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) prefix=$2; shift 2 ;;
    --cuda) cuda=$2; shift 2 ;;
    --source) archive=$2; shift 2 ;;
    --jobs) jobs=$2; shift 2 ;;
    *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done
[ -e "$cuda/include/cuda.h" ] || { echo "$cuda/include/cuda.h is not there: name the toolkit with --cuda DIR" >&2; exit 2; }
if [ -x "$prefix/bin/mpirun" ]; then echo "$prefix holds an Open MPI already" >&2; exit 0; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
if [ -z "$archive" ]; then
  # The machine's own package sources, asked for source packages, without changing its configuration.
  mkdir -p "$work/sources" "$work/lists/partial"
  for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list.d/ubuntu.sources; do
    [ -e "$file" ] && sed 's/^Types:.*/Types: deb-src/' "$file" >"$work/sources/$(basename "$file")"
  done
  [ -e /etc/apt/sources.list ] && sed 's/^deb /deb-src /' /etc/apt/sources.list >"$work/sources/list.list"
  apt_options="-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$work/sources -o Dir::State::lists=$work/lists"
  # shellcheck disable=SC2086
  apt-get $apt_options update >/dev/null
  # shellcheck disable=SC2086
  (cd "$work" && apt-get $apt_options source --download-only openmpi >/dev/null)
  archive=$(ls "$work"/openmpi_*.orig.tar.*)
fi
mkdir "$work/source"
tar -xf "$archive" -C "$work/source" --strip-components=1
cd "$work/source"
# Only what one host with GPUs needs: shared memory, CUDA IPC (smcuda) and TCP.
./configure --prefix="$prefix" --with-cuda="$cuda" --disable-mpi-fortran --disable-oshmem --disable-io-romio \
  --without-ucx --without-ofi --without-verbs --without-psm --without-psm2 --without-slurm --without-lustre \
  --with-hwloc=internal --with-libevent=internal --with-pmix=internal --enable-shared --disable-static \
  --disable-sphinx --disable-man-pages >"$work/configure.log" 2>&1 || { tail -n 30 "$work/configure.log" >&2; exit 1; }
make -j "$jobs" >"$work/make.log" 2>&1 || { tail -n 30 "$work/make.log" >&2; exit 1; }
make install >"$work/install.log" 2>&1 || { tail -n 30 "$work/install.log" >&2; exit 1; }
rm -rf "$prefix/share/man" "$prefix/share/doc"
find "$prefix" -name '*.la' -delete
find "$prefix/bin" "$prefix/lib" -type f \( -name '*.so*' -o -perm -100 \) -exec strip --strip-unneeded {} + 2>/dev/null || true
"$prefix/bin/ompi_info" --parsable --all | grep 'mpi_built_with_cuda_support:value'
