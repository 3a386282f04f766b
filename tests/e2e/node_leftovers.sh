#!/bin/bash
# What is left on nodes with engines of their own (namespace_slurm.sh, NODE_ENGINES) when the worker image does not arrive, and
# of containers whose program is over. $F is the nodes' folder, $RUN a run's beginning, $ENGINE the engine's on a node, $TAR the
# worker image's archive. Prints what cluster_containers_test.cpp compares; the runs' logs go to stderr.
set -m # Otherwise runs in the background do not hear SIGINT.
way="--hosts node1:2,node2:2 --only backend==gloo --remote-shell"

# How many both nodes have of it; a run finds it by the first part of its name. A node that cannot be asked is not without.
images() { # REST_OF_ITS_NAME
  local all
  all=$(for node in node1 node2; do "$F/into" $node "$ENGINE images --format '{{.Repository}}:{{.Tag}}'" || exit; done) ||
    { echo "unknown"; return; }
  sed 's#localhost/##' <<<"$all" | grep -xc "dynamiccl-worker:[0-9a-f]*$1"
}

# The user interrupts while it is on its way, at a pace at which it is so for seconds whatever the disk. As behind ssh, the engine
# is not ended by what it says to a program that is gone.
echo 0.2 >"$F/pace"
cat >"$F/slow" <<SLOW
#!/bin/sh
case "\$*" in *' import '*) python3 -c 'import sys, time
while part := sys.stdin.buffer.read(1 << 20):
    sys.stdout.buffer.write(part)
    time.sleep(float(open("$F/pace").read()))' | $F/into "\$@" >>$F/said 2>&1; exit ;; esac
exec $F/into "\$@"
SLOW
chmod 755 "$F/slow"
$RUN $way "$F/slow" >"$F/1.log" 2>&1 &
run=$!
for _ in $(seq 600); do grep -q 'importing the worker image' "$F/1.log" && break; sleep 0.05; done
sleep 1
kill -INT $run
wait $run
echo "interrupted: $?"
importing='^[^ ]*(docker|podman) import .* - dynamiccl-worker'
for _ in $(seq 50); do pgrep -f "$importing" >/dev/null || break; sleep 0.2; done
pgrep -fa "$importing"
echo "images: $(images)"

# The connection is cut between two files of it, which engines take for its end.
python3 -c 'import sys, tarfile
print(next(one.offset for one in tarfile.open(sys.argv[1]) if one.offset > 20000000))' "$TAR" >"$F/offset"
cat >"$F/cutting" <<CUTTING
#!/bin/sh
case "\$*" in *' import '*) head -c $(cat "$F/offset") | $F/into "\$@"; exit 255 ;; esac
exec $F/into "\$@"
CUTTING
chmod 755 "$F/cutting"
$RUN $way "$F/cutting" >"$F/2.log" 2>&1
echo "cut: $?"
grep -om 1 'cannot import the worker image' "$F/2.log"
echo "images: $(images '.*')"
# The program is killed while it is on its way: what has arrived of it bears another name, and goes with the next run.
echo 0.05 >"$F/pace"
$RUN $way "$F/slow" >"$F/5.log" 2>&1 &
run=$!
for _ in $(seq 600); do [ "$(pgrep -fc "$importing")" -ge 2 ] && break; sleep 0.05; done
kill -KILL $run
wait $run
echo "killed: $?"
for _ in $(seq 600); do pgrep -f "$importing" >/dev/null || break; sleep 0.2; done
echo "images: $(images '.*')"
$RUN $way "$F/into" >"$F/3.log" 2>&1
whole=$?
echo "removed on $(grep -c '1 images that runs which are over were sending removed' "$F/3.log") nodes"
echo "whole: $whole"
echo "images: $(images '.*')"

# Of a plan's program, which is over, and of another machine's, of which nothing is known here.
leave() { # NAME MARK
  "$F/into" node1 "$ENGINE run --detach --name $1 --network host --label 'dynamiccl.holder=$2' \$($ENGINE images --quiet | head -1) sleep 600" >&2
}
mark=$(${RUN/ run / plan -v } $way "$F/into" | grep -o "dynamiccl run=RUN host=[^'\\]*" | head -1)
leave over "$mark"
leave elsewhere "${mark/host=*/host=elsewhere owner=1.1.0.0}"
$RUN $way "$F/into" >"$F/4.log" 2>&1
grep -o 'node1: 1 containers of runs that are over removed' "$F/4.log"
"$F/into" node1 "$ENGINE ps --all --format '{{.Names}}'"
cat "$F"/?.log >&2
