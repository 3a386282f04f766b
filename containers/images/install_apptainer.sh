#!/bin/bash
# install_apptainer.sh FOLDER: Apptainer from suite sid of this machine's own mirror, with its own C
# library, into FOLDER (absolute, final). The machine's apt sources and packages stay as they are.
set -euo pipefail
umask 022
here=$(cd "$(dirname "$0")" && pwd)
. "$here/apt.sh"
[ $# -eq 1 ] && [ "${1#/}" != "$1" ] || fail "usage: install_apptainer.sh /ABSOLUTE/FOLDER"
target=$1
for tool in patchelf dpkg-deb; do
  command -v $tool >/dev/null || fail "$tool is missing: apt-get install -y --no-install-recommends patchelf dpkg"
done
# From here on the exit code tells what the mirror does not give (69, EX_UNAVAILABLE) from what
# broke on this machine.
code=1
fail() {
  echo "$(basename "$0"): $*" >&2
  case "$*" in *"No space left"*) exit 1 ;; esac
  exit $code
}
mkdir -p "$(dirname "$target")"
work=$(mktemp -d "$(dirname "$target")/.apptainer.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

code=69
machine_repositories "$(machine_codename)" | grep -q . ||
  fail "no mirror of this release in this machine's apt sources (/etc/apt/sources.list*): add one, then run apt-get update"
private_apt "$work/apt" sid
# With an empty status apt resolves every library Apptainer needs, its C library included.
"${APT[@]}" -y --no-install-recommends --download-only install apptainer >"$work/log" 2>&1 ||
  fail "cannot fetch apptainer: $(tail -n 3 "$work/log" | tr '\n' ' ')"
code=1
mkdir "$work/tree" "$work/new" "$work/new/glibc"
for deb in "$work"/apt/cache/archives/*.deb; do
  case "$(basename "$deb")" in
    containernetworking-plugins_*|ca-certificates_*|debconf_*|openssl_*|squashfs-tools_*|uidmap_*) ;;
    *) dpkg-deb -x "$deb" "$work/tree" ;;
  esac
done
multiarch=$(basename "$(dirname "$(find "$work/tree/usr/lib" -maxdepth 2 -name 'libc.so.6')")")
find "$work/tree/usr/lib/$multiarch" -maxdepth 1 -name '*.so*' -exec cp -L {} "$work/new/glibc/" \;
loader=$(cd "$work/new/glibc" && ls ld-linux*.so.* | head -n 1)
chmod 755 "$work/new/glibc/$loader"
cp -a "$work/tree/usr/bin" "$work/new/bin"
mkdir -p "$work/new/lib/$multiarch"
cp -a "$work/tree/usr/lib/$multiarch/apptainer" "$work/new/lib/$multiarch/"
for program in bin/apptainer "lib/$multiarch/apptainer/bin/starter"; do
  patchelf --set-interpreter "$target/glibc/$loader" --force-rpath --set-rpath "$target/glibc" \
    "$work/new/$program"
done
# The command line tool looks for its settings next to itself, the starter next to lib.
for prefix in "$work/new" "$work/new/lib"; do
  mkdir -p "$prefix/etc" "$prefix/var/lib/apptainer/mnt/session"
  cp -a "$work/tree/etc/apptainer" "$prefix/etc/"
done
{
  printf '{\n  "suite": "sid",\n  "expired": %s,\n  "packages": {' "$([ "$APT_EXPIRED" = 1 ] && echo true || echo false)"
  for deb in "$work"/apt/cache/archives/*.deb; do
    printf '%s\n    "%s": {"version": "%s", "sha256": "%s"}' "${separator:-}" \
      "$(dpkg-deb -f "$deb" Package)" "$(dpkg-deb -f "$deb" Version)" "$(sha256sum "$deb" | cut -d' ' -f1)"
    separator=,
  done
  printf '\n  }\n}\n'
} >"$work/new/manifest.json"
chmod 755 "$work/new"
rm -rf "$target"
mv "$work/new" "$target"
"$target/bin/apptainer" --version >/dev/null || { rm -rf "$target"; fail "the fetched apptainer does not start on this machine"; }
