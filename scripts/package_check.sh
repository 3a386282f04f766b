#!/bin/bash
# Installs the packages on a minimal Debian 12 without a compiler, runs the quickstart there, checks what it stored, and removes
# them again; where there is an archive too, unpacks that first and looks whether it runs where no package is:
#   cmake --preset release -DDYNAMICCL_TESTS=OFF && cmake --build build/release && (cd build/release && cpack)
#   scripts/package_check.sh [--with-engine] [BUILD_FOLDER] [EXPERIMENT.toml]
# --with-engine also installs docker.io and what Apptainer needs. Needs root and mmdebstrap; takes the machine's own package
# mirror. Prints how long each step took. A run that fails is reported with what became of its launches, and the packages are
# removed all the same; ends with 1 where a step failed or the removal leaves a file that is no result. The quickstart is five
# launches of every group: to look at packages rather than at figures, name a file of one launch a group.
set -euo pipefail
engine=0
if [ "${1:-}" = --with-engine ]; then engine=1; shift; fi
build=$(readlink -f "${1:-build/release}")
experiment=${2:-/usr/share/dynamiccl/experiments/quickstart.toml}
[ "$(id -u)" = 0 ] || { echo "package_check: needs root, for a root folder of its own" >&2; exit 2; }
command -v mmdebstrap >/dev/null || { echo "package_check: apt-get install mmdebstrap" >&2; exit 2; }
ls "$build"/packages/*.deb >/dev/null 2>&1 || { echo "package_check: no packages in $build/packages: run cpack there" >&2; exit 2; }
work=$(mktemp -d /var/tmp/dynamiccl-packages-XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM
step() { # NAME COMMAND...
  local from=$SECONDS
  "${@:2}"
  echo "package_check: $1: $((SECONDS - from)) s"
}
failed=()
look() { # NAME COMMAND...: a step whose failure is printed and does not keep the next ones from being looked at.
  local from=$SECONDS rc=0
  in_root "${@:2}" || rc=$?
  echo "package_check: $1: $((SECONDS - from)) s$([ $rc = 0 ] || echo ", FAILED with $rc")"
  [ $rc = 0 ] || failed+=("$1")
}
root=$work/root
in_root() { # A root of its own, not chroot: engines pivot into roots of theirs.
  unshare --mount --pid --fork --kill-child --propagation private bash -c '
    set -e
    root=$0
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs none "$root/run"
    cd "$root"
    mkdir -p old
    pivot_root . old
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive sh -c "umount -l /old && rmdir /old && exec \"\$@\"" sh "$@"' "$root" "$@"
}
files_of_ours() { in_root find / -xdev -iname '*dynamiccl*' -not -path '/debs/*' -not -path '/proc/*' -not \( -path '/tmp/*' -type d -empty \); }

step "root folder" mmdebstrap --quiet --variant=minbase bookworm "$root"
mkdir "$root/debs"
cp "$build"/packages/dynamiccl_*.deb "$build"/packages/dynamiccl-worker-*.deb "$build"/packages/dynamiccl-nccl-plugin_*.deb "$build"/packages/dynamiccl-onehost_*.deb "$root/debs/"
if [ -f "$experiment" ]; then
  cp "$experiment" "$root/debs/experiment.toml"
  experiment=/debs/experiment.toml
fi
archive=$(ls "$build"/packages/*.tar.xz 2>/dev/null | head -n 1 || true)
if [ -n "$archive" ]; then
  tar -C "$root/tmp" -xf "$archive"
  step "archive: plan" in_root sh -c 'cd /tmp/dynamiccl-* && usr/bin/dynamiccl plan usr/share/dynamiccl/experiments/quickstart.toml >/tmp/plan.txt'
  step "archive: a run" in_root sh -c 'cd /tmp/dynamiccl-* && usr/bin/dynamiccl run usr/share/dynamiccl/experiments/quickstart.toml --only "environment == bare-metal and backend == gloo" --set protocol.launches=1 --no-report --db /tmp/archive.sqlite >/tmp/answer.txt 2>&1 || { cat /tmp/answer.txt; exit 1; }'
  in_root sh -c 'rm -rf /tmp/dynamiccl-* /tmp/archive.sqlite*'
fi
step "package lists" in_root apt-get update -qq
more=()
if [ "$engine" = 1 ]; then more=(docker.io iptables iproute2 mmdebstrap uidmap patchelf); fi
step "apt install" in_root sh -c 'apt-get install -qq -y --no-install-recommends /debs/*.deb "$@" >/tmp/install.log 2>&1 || { cat /tmp/install.log; exit 1; }' sh "${more[@]+"${more[@]}"}"
for compiler in g++ gcc clang cmake; do
  if in_root sh -c "command -v $compiler" >/dev/null; then echo "package_check: $compiler is there: not a minimal system" >&2; exit 1; fi
done
in_root dynamiccl --version
look "$experiment" sh -c 'cd /root && dynamiccl run "$1" >/tmp/answer.txt 2>/tmp/progress.txt || { rc=$?; cat /tmp/progress.txt; exit $rc; }' sh "$experiment"
cat "$root/tmp/answer.txt"
look "launches" sh -c 'cd /root && dynamiccl query "SELECT launch_status, count(*) AS launches FROM v_launch GROUP BY 1"'
look "page" sh -c 'cd /root && ls results/*.html'
[ -n "$(files_of_ours)" ] || { echo "package_check: find sees no file of the installed packages: what is left is unknown" >&2; exit 1; }
look "apt purge" sh -c 'apt-get purge -qq -y "dynamiccl*" >/tmp/purge.log 2>&1 || { cat /tmp/purge.log; exit 1; }'
left=$(files_of_ours | grep -v '^/root/results/' || true)
if [ -n "$left" ]; then
  printf 'package_check: left behind:\n%s\n' "$left" >&2
  failed+=("nothing but results left")
else
  echo "package_check: only results are left"
fi
if [ ${#failed[@]} != 0 ]; then printf 'package_check: FAILED: %s\n' "${failed[@]}" >&2; exit 1; fi
