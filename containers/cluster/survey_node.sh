# survey_node.sh NONCE_FILE NONCE PROBE PROGRAM... -- FOLDER...: what this node says of itself, a word
# and its value a line, then the facts as one line of JSON.
nonce_file=$1 nonce=$2 probe=$3
shift 3
echo "time $(date +%s.%N)"
echo "boot_id $(cat /proc/sys/kernel/random/boot_id)"
echo "cores $(nproc)"
grep '^oom_kill ' /proc/vmstat
echo "locked_memory $(ulimit -l)"
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  [ -x "$1" ] || echo "missing $1"
  shift
done
shift
for folder in "$@"; do
  [ -d "$folder" ] || echo "missing $folder"
done
# An error of the shell's own redirection is printed as well.
folder=${TMPDIR:-/tmp}
if temporary=$(mktemp "$folder/dynamiccl-XXXXXX" 2>&1); then
  said=$({ head -c 65536 /dev/zero >"$temporary"; } 2>&1) || echo "temporary $folder: ${said##*: }"
  rm -f "$temporary"
else
  echo "temporary $folder: ${temporary##*: }"
fi
[ "$(cat "$nonce_file" 2>/dev/null)" = "$nonce" ] || echo "apart ${nonce_file%/*}"
[ -x "$probe" ] && echo "facts $("$probe" --compact)"
exit 0
