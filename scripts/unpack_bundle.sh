#!/bin/sh
# Puts an offline bundle (scripts/make_offline_bundle.sh) in place on a machine of which one is root:
# programs next to the checkout's profiles, container engines in /opt/engine, Apptainer in /usr, MPICH's
# launcher in /usr/bin. For machines that are thrown away, or that lack these programs: nothing that
# is there already is replaced. A bundle without engines.tar.xz brings programs alone.
#   scripts/unpack_bundle.sh BUNDLE_FOLDER          run in the checkout's root
set -eu
bundle=$1
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p /opt/dynamiccl "$root/build/release"
tar -xJf "$bundle/programs.tar.xz" -C /opt/dynamiccl
# Removed first: a program that runs, and libraries that it has mapped, stay as they are.
cp -a --remove-destination /opt/dynamiccl/bin/. "$root/build/release/"
for program in mpirun.mpich hydra_pmi_proxy; do
  [ -e "/usr/bin/$program" ] || [ ! -e "/opt/dynamiccl/mpich/$program" ] ||
    ln -sf "/opt/dynamiccl/mpich/$program" "/usr/bin/$program"
done
if [ ! -x /opt/engine/dockerd ] && [ -e "$bundle/engines.tar.xz" ]; then
  mkdir -p /opt/unpacked
  xz -dc "$bundle/engines.tar.xz" | tar -x -C /opt/unpacked
  mv /opt/unpacked/engine /opt/engine
  ln -sf xtables-nft-multi /opt/engine/iptables
  ln -sf xtables-nft-multi /opt/engine/ip6tables
  # The engine's libraries are for the engine alone: ranks must not find them.
  mkdir -p /opt/engine/bin
  for program in dockerd containerd containerd-shim-runc-v2 runc docker docker-init ip tc iptables ip6tables; do
    printf '#!/bin/sh\nLD_LIBRARY_PATH=/opt/engine/lib XTABLES_LIBDIR=/opt/engine/xt exec /opt/engine/%s "$@"\n' \
      "$program" >"/opt/engine/bin/$program"
    chmod 755 "/opt/engine/bin/$program"
  done
  # It runs inside containers, where the wrapper's interpreter may be missing; it needs no library.
  ln -sf /opt/engine/docker-init /opt/engine/bin/docker-init
  if [ -d /opt/unpacked/apptainer ] && ! command -v apptainer >/dev/null; then
    cp -a /opt/unpacked/apptainer/usr/. /usr/
    cp -a /opt/unpacked/apptainer/etc/. /etc/
    mkdir -p /var/lib/apptainer/mnt/session
    for library in libseccomp.so.2 libsqlite3.so.0; do
      ldconfig -p | grep -q "$library" && continue
      for from in /opt/engine/lib /opt/dynamiccl/bin/lib; do
        [ ! -e "$from/$library" ] || cp "$from/$library" /usr/lib/x86_64-linux-gnu/
      done
    done
    ldconfig
  fi
fi
