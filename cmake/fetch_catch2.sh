#!/bin/bash
# fetch_catch2.sh FOLDER: unpacks Catch2 v3 into FOLDER (FOLDER/usr/...) where the distribution's own
# package is older, from its backports suite on this machine's mirror. Installs nothing.
set -euo pipefail
umask 022
. "$(cd "$(dirname "$0")" && pwd)/../containers/images/apt.sh"
[ $# -eq 1 ] || fail "usage: fetch_catch2.sh FOLDER"
target=$(realpath -m "$1")
mkdir -p "$(dirname "$target")"
work=$(mktemp -d "$target.part.XXXXXX")
trap 'rm -rf "$work"' EXIT
private_apt "$work/apt" "$(machine_codename)-backports"
(cd "$work" && "${APT[@]}" download libcatch2-dev >"$work/log" 2>&1) ||
  fail "cannot fetch libcatch2-dev: $(tail -n 3 "$work/log" | tr '\n' ' ')"
mkdir "$work/tree"
dpkg-deb -x "$work"/libcatch2-dev_*.deb "$work/tree"
rm -rf "$target"
mv "$work/tree" "$target"
chmod 755 "$target"
