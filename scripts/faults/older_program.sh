#!/bin/bash
# What a program does where its surroundings break, one item after another: to see of an older build that it did otherwise.
#   scripts/faults/older_program.sh PROGRAM [BACKEND]     (gloo; the program's worker must lie next to it)
# Prints per item what was done to it and what came of it. Needs bash, sqlite3, python3; two minutes. All in a folder of its own.
set -u
P=$(realpath "$1")
backend=${2:-gloo}
W=$(mktemp -d)
cd "$W" || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

experiment() {  # NAME TIMEOUT PROTOCOL_LINES...
  name=$1 timeout=$2
  shift 2
  {
    printf 'name = "x"\nseed = 1\n[axes]\nenvironment = ["bare-metal"]\nbackend = ["%s"]\narchitecture = ["ring"]\nranks = [2]\n' "$backend"
    printf '[[work]]\ncollective = ["allreduce"]\nsize = ["64KiB"]\n[protocol]\nwarmup = 0\nretries = 0\nmin_iterations = 1\n'
    printf 'launch_timeout = "%s"\n' "$timeout"
    printf '%s\n' "$@"
  } >"$name.toml"
}
experiment quick 60s 'iterations = 5' 'launches = 3'
experiment slow 60s 'iterations = 1000000' 'cell_time_cap = "700ms"' 'launches = 3'
experiment short 8s 'iterations = 1000000' 'cell_time_cap = "700ms"' 'launches = 3'

item() { printf '\n## %s\n' "$*"; }
sql() { sqlite3 "$1" "$2" 2>&1; }
ok_launches() { sql "$1" "select count(*) from launch where status='ok'"; }
first_launch() { for _ in $(seq 600); do [ "$(ok_launches "$1")" = 1 ] && return; sleep 0.05; done; }
first_rank() { for _ in $(seq 600); do rank=$(pgrep -n -f "dynamiccl-worker.*$W") && { sleep 0.5; return; }; sleep 0.05; done; }
# Starts `run FILE --db DB` next to us, as $pid; ended tells its exit code.
start() { "$P" run "$1.toml" --db "$2.sqlite" >"$2.out" 2>"$2.err" & pid=$!; }
ended() { wait "$pid"; echo "exit $?; $(tail -1 "$1.err" | cut -c1-200)"; }

item 'stderr takes nothing: run 2>/dev/full, run 2>&-'
"$P" run quick.toml --db full.sqlite >/dev/null 2>/dev/full; echo "exit $?, $(ok_launches full.sqlite) of 3 launches"
"$P" run quick.toml --db closed.sqlite >/dev/null 2>&-; echo "exit $?, $(ok_launches closed.sqlite) of 3 launches"
item 'run 2>&1 | head -1'
"$P" run quick.toml --db pipe.sqlite 2>&1 | head -1
echo "exit ${PIPESTATUS[0]}, $(ok_launches pipe.sqlite) of 3 launches"
item 'list >/dev/full'
"$P" list --db pipe.sqlite >/dev/full; echo "exit $?"
item 'the terminal closes during a run'
python3 - "$P" <<'PYTHON'
import fcntl, os, pty, subprocess, sys, termios, time
ours, theirs = pty.openpty()
run = subprocess.Popen([sys.argv[1], "run", "slow.toml", "--db", "terminal.sqlite"], stdin=theirs, stdout=theirs, stderr=theirs,
                       start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
os.close(theirs)
time.sleep(2.5)
os.close(ours)
try:
    print("exit", run.wait(60))
except subprocess.TimeoutExpired:
    run.kill()
    print("runs on after 60 s")
PYTHON
item 'the database is replaced by another one, is moved, is deleted, is cut, during a run'
"$P" run quick.toml --db other.sqlite >/dev/null 2>&1
start slow replaced; first_launch replaced.sqlite; mv replaced.sqlite ours.sqlite; cp other.sqlite replaced.sqlite; ended replaced
echo "the other's launches: $(ok_launches replaced.sqlite) of 3; ours where it was moved to: $(ok_launches ours.sqlite)"
start slow moved; first_launch moved.sqlite; mv moved.sqlite away.sqlite; ended moved
echo "left at the old name: $(ls moved.sqlite* 2>/dev/null | tr '\n' ' '); launches where it was moved to: $(ok_launches away.sqlite)"
start slow deleted; first_launch deleted.sqlite; rm deleted.sqlite; ended deleted
echo "left at its name: $(ls deleted.sqlite* 2>/dev/null | tr '\n' ' ')"
start slow cut; first_launch cut.sqlite; truncate -s 4096 cut.sqlite; ended cut
item 'a pipe, /dev/zero in an owner file'"'"'s place'
mkdir -p pipes/dyn-pipe-0 zeros/dyn-zero-0
mkfifo pipes/dyn-pipe-0/owner
ln -s /dev/zero zeros/dyn-zero-0/owner
touch -d '2 minutes ago' pipes/dyn-pipe-0 zeros/dyn-zero-0
for folder in pipes zeros; do
  # Kept from engines: clean is to look at this folder alone.
  (ulimit -v 4000000; PATH=/nowhere DYNAMICCL_RUN_FOLDER=$W/$folder /usr/bin/timeout -k 3 20 "$P" clean >/dev/null 2>&1; echo "clean of $folder: exit $?")
done
item 'a rank is killed, is stopped'
start slow killed; first_rank; kill -9 "$rank"; ended killed; sql killed.sqlite "select status, exit_code, signal, reason from launch where status <> 'ok'"
start short stopped; first_rank; kill -STOP "$rank"; ended stopped; sql stopped.sqlite "select status, exit_code, signal, reason from launch where status <> 'ok'"
if [ "$(id -u)" = 0 ]; then
  item 'a rank is ended for want of memory (a control group of 256 MiB)'
  memory=/sys/fs/cgroup/memory limit=memory.limit_in_bytes
  [ -d $memory ] || { memory=/sys/fs/cgroup limit=memory.max; }
  group=$memory/dynamiccl-older-$$
  if mkdir "$group" && echo 268435456 >"$group/$limit"; then
    [ -e "$group/memory.swappiness" ] && echo 0 >"$group/memory.swappiness"
    sed 's/64KiB/512MiB/; s/launches = 3/launches = 1/' quick.toml >big.toml
    sh -c 'echo $$ >"$1/cgroup.procs" && exec "$2" run big.toml --db big.sqlite' sh "$group" "$P" >big.out 2>big.err & pid=$!
    ended big; sql big.sqlite "select status, exit_code, signal, reason from launch"
    rmdir "$group"
  fi
  item "another user has made root's run folder, /tmp/dynamiccl-0, first"
  mkdir -m 1777 tmp
  # A temporary folder of its own; ours is reached by another path (the program must not lie below /tmp).
  unshare -m --propagation private bash -c 'mount --bind "$1" /mnt && cd /mnt && mount --bind tmp /tmp && umask 0 || exit 9
    setpriv --reuid 1000 --regid 1000 --clear-groups mkdir -m 755 /tmp/dynamiccl-0
    umask 022; unset XDG_RUNTIME_DIR
    "$2" run quick.toml --db first.sqlite >first.out 2>first.err; echo "exit $?, $(grep -E "cannot|error:" first.err | head -1 | cut -c1-200)"
    setpriv --reuid 1000 --regid 1000 --clear-groups sh -c "rmdir /tmp/dynamiccl-0 2>/dev/null; mkdir -m 777 /tmp/dynamiccl-0" 2>/dev/null
    "$2" run quick.toml --db open.sqlite >open.out 2>open.err; echo "writable to all: exit $?, $(grep -E "cannot|error:" open.err | head -1 | cut -c1-200)"
    ls -l /tmp' bash "$W" "$P"
  echo "launches: $(ok_launches first.sqlite) and $(ok_launches open.sqlite) of 3"
fi
item 'a resume of what this machine no longer supports (the worker is gone), and a further one with it back'
mkdir bin gone
cp "$(dirname "$P")"/dynamiccl{,-probe,-worker*} bin/
cp "$(dirname "$P")/dynamiccl.source-tree" bin/ 2>/dev/null
all=$P P=$W/bin/dynamiccl
start slow resumed; first_launch resumed.sqlite; kill -INT "$pid"; ended resumed
mv bin/dynamiccl-worker* gone/
"$P" run slow.toml --db resumed.sqlite --resume >/dev/null 2>&1; echo "exit $?, run $(sql resumed.sqlite 'select status from run'), $(ok_launches resumed.sqlite) of 3 launches"
mv gone/* bin/
"$P" run slow.toml --db resumed.sqlite --resume >/dev/null 2>&1; echo "exit $?, run $(sql resumed.sqlite 'select status from run'), $(ok_launches resumed.sqlite) of 3 launches"
P=$all
item 'secrets by other names'
NCCL_token=hush1 UCX_PW=hush2 OMPI_MCA_my_PWD=hush3 UCX_URL=https://me:hush4@host/ "$P" run quick.toml --db secrets.sqlite \
  --set 'name="https://me:hush5@host/x"' >/dev/null 2>&1
echo "exit $?, stored: $(sql secrets.sqlite .dump | grep -o 'hush[0-9]' | sort -u | tr '\n' ' ')"
item 'the orchestrator is killed in its second launch: folders of launches without a row, after a resume'
"$P" run slow.toml --db orphans.sqlite --out orphans >/dev/null 2>&1 & pid=$!
first_launch orphans.sqlite
for _ in $(seq 200); do [ "$(find orphans -mindepth 2 -maxdepth 2 | wc -l)" -ge 2 ] && break; sleep 0.05; done
kill -9 $pid; wait $pid 2>/dev/null
sleep 1
"$P" run slow.toml --db orphans.sqlite --out orphans --resume >/dev/null 2>&1
echo "exit $?, $(find orphans -mindepth 2 -maxdepth 2 | wc -l) folders, $(sql orphans.sqlite 'select count(*) from launch') rows"
if [ "$(id -u)" = 0 ]; then
  item 'a run folder that an ordinary user cannot make'
  chmod 777 "$W"; mkdir -m 555 locked
  setpriv --reuid 1000 --regid 1000 --clear-groups env HOME="$W" DYNAMICCL_RUN_FOLDER="$W/locked/x" "$P" run quick.toml --db "$W/user.sqlite" \
    --out "$W/user" 2>&1 | grep -E 'cannot|error:' | head -1 | grep -o '[^ ]*\(cannot\|error:\).*'
fi
cd / && rm -rf "$W"
