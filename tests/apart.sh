#!/bin/sh
# apart.sh /tmp/FOLDER COMMAND...: runs a test apart from everybody else of this machine, where that may be done: it sees its own
# processes, shared memory and /tmp (FOLDER, which goes with it) alone, nobody else's sweep reaches what it starts, and its processes end
# with it. Containers know nothing of such a /tmp: tests of engines are not for this.
folder=$1
shift
if ! unshare --pid --ipc --fork --kill-child --mount --mount-proc true 2>/dev/null; then
  echo "apart.sh: no namespaces of its own here, the test shares processes and /tmp with others" >&2
  exec "$@"
fi
rm -rf "$folder"
mkdir -p "$folder" && chmod 1777 "$folder" || exit 1
# The first process of the namespace is a shell that stays: it collects whom nobody waits for. Standing in the old /tmp it can still
# remove the folder.
exec unshare --pid --ipc --fork --kill-child --mount --mount-proc sh -c '
  folder=$0
  here=$PWD
  cd /tmp && mount -t tmpfs -o mode=1777 tests /dev/shm || exit 1
  # What is built may itself lie in /tmp, and is needed.
  case "$1 $here/" in *"/tmp/"*) ;; *) mount --bind "$folder" /tmp || exit 1 ;; esac
  (cd "$here" && exec "$@")
  code=$?
  rm -rf "${folder##*/}"
  exit "$code"' "$folder" "$@"
