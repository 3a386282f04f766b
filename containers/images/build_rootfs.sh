#!/bin/bash
# build_rootfs.sh FOLDER: makes the worker image without an image registry.
# FOLDER/rootfs.tar is for Docker and Podman, FOLDER/rootfs for Apptainer: one content.
# FOLDER/manifest.json says what is in it. The same package versions give the same bytes.
set -euo pipefail
umask 022
here=$(cd "$(dirname "$0")" && pwd)
. "$here/apt.sh"
[ $# -eq 1 ] || fail "usage: build_rootfs.sh FOLDER"
target=$1
packages=$here/packages.txt
[ -r "$packages" ] || packages=$here/../packages.txt
command -v mmdebstrap >/dev/null || fail "mmdebstrap is missing: apt-get install -y --no-install-recommends mmdebstrap uidmap"

codename=$(machine_codename)
sources=$(machine_sources "$codename")
[ -n "$sources" ] || fail "no mirror of '$codename' in this machine's apt sources (/etc/apt/sources.list*): add one, then run apt-get update"
mkdir -p "$(dirname "$target")"
work=$(mktemp -d "$target.part.XXXXXX")
cleanup() {
  # An unpacked root may hold folders without write permission.
  chmod -R u+rwX "$work" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# A fixed date keeps equal package versions at equal bytes; what no rank reads stays out.
export SOURCE_DATE_EPOCH=1700000000
excludes=()
for path in '/usr/share/doc/*' '/usr/share/man/*' '/usr/share/locale/*' '/usr/share/info/*' \
  '/usr/share/zoneinfo/*' '/usr/share/lintian/*' '/usr/lib/*/gconv/*' '/usr/lib/*/perl/*/CORE/*'; do
  excludes+=("--dpkgopt=path-exclude=$path")
done
include=$(awk '$1 == "image" { printf "%s%s", sep, $2; sep = "," }' "$packages")
if ! mmdebstrap --variant=essential --include="$include" "${excludes[@]}" "$codename" \
  "$work/rootfs.tar" - <<<"$sources" >"$work/log" 2>&1; then
  tail -n 15 "$work/log" >&2
  fail "mmdebstrap failed; as an ordinary user it needs uidmap and a range in /etc/subuid (sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER)"
fi
mkdir "$work/rootfs"
tar -C "$work/rootfs" --no-same-owner --exclude='./dev/*' -xf "$work/rootfs.tar"
sum=$(sha256sum "$work/rootfs.tar" | cut -d' ' -f1)
{
  printf '{\n  "content_sha256": "%s",\n  "suite": "%s",\n  "architecture": "%s",\n  "packages": {' \
    "$sum" "$codename" "$(dpkg --print-architecture)"
  dpkg-query --admindir="$work/rootfs/var/lib/dpkg" -W -f '${Package} ${Version}\n' |
    awk '{ printf "%s\n    \"%s\": \"%s\"", sep, $1, $2; sep = "," }'
  printf '\n  }\n}\n'
} >"$work/manifest.json"
rm "$work/log"
chmod 755 "$work"
rm -rf "$target"
mv "$work" "$target"
