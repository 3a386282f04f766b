# Sourced by the gpu_*.sh scripts in the checkout's root: puts an offline bundle in place where one is
# named, and sets what every run on a GPU machine needs.
#   BUNDLE=FOLDER . scripts/gpu_setup.sh
root=$(pwd)
if [ -n "${BUNDLE:-}" ]; then scripts/unpack_bundle.sh "$BUNDLE"; fi
[ -d /opt/engine/bin ] && PATH=/opt/engine/bin:$PATH
export PATH
program=$root/build/release/dynamiccl
[ -x "$program" ] || { echo "$program is not built: ./dynamiccl test, or name a bundle with BUNDLE=FOLDER" >&2; exit 2; }
if [ -z "${DYNAMICCL_NCCL_LIBRARY:-}" ]; then
  for library in $(ldconfig -p | awk '/libnccl\.so\.2/ { print $NF; exit }') /usr/local/cuda/lib/libnccl.so.2 \
    /usr/local/cuda/lib64/libnccl.so.2 $(find /opt /usr/local -name libnccl.so.2 2>/dev/null | head -n 1); do
    if [ -e "$library" ]; then DYNAMICCL_NCCL_LIBRARY=$library; break; fi
  done
fi
export DYNAMICCL_NCCL_LIBRARY="${DYNAMICCL_NCCL_LIBRARY:-}"
# Containers do not inherit the variable; the programs look next to themselves too.
if [ -n "${BUNDLE:-}" ] && [ -n "$DYNAMICCL_NCCL_LIBRARY" ]; then
  ln -sf "$DYNAMICCL_NCCL_LIBRARY" build/release/lib/libnccl.so.2
fi
# Multicast over NVLink is left alone unless an experiment turns it on.
export NCCL_NVLS_ENABLE="${NCCL_NVLS_ENABLE:-0}"
export DYNAMICCL_CACHE="${DYNAMICCL_CACHE:-/var/cache/dynamiccl}"
# A machine without package sources makes its containers from its own files.
[ -z "${BUNDLE:-}" ] || export DYNAMICCL_IMAGE_SOURCE="${DYNAMICCL_IMAGE_SOURCE:-host-root}"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# For what is measured side by side: the PART-th (from 0) of OF equal shares of this shell's cores, "0,1,2"; nothing where
# there are too few. Containers are their engine's children, so they need it from their profile.
cores_of() { # PART OF
  local range all=() each
  for range in $(taskset -cp $$ | sed 's/.*: //; s/,/ /g'); do all+=($(seq "${range%-*}" "${range#*-}")); done
  each=$((${#all[@]} / $2))
  (IFS=,; echo "${all[*]:$(($1 * each)):each}")
}
# Sets `pinned`, what starts the program on these cores, and `pins`, what its containers need of them.
pin_to() { # CORES ENVIRONMENT
  pinned=() pins=()
  [ -n "$1" ] || return 0
  pinned=(taskset -c "$1")
  case $2 in *docker*) pins=(--set "profile.$2.cpus=\"$1\"") ;; esac
}
