#!/usr/bin/env python3
"""Breaks runs on a cluster of containers (tests/e2e/cluster_rig.sh) at random moments and resumes them.

    scripts/cluster_faults.py --build build/dev --way slurm --groups 200 --kills 20
    scripts/cluster_faults.py --build build/dev --way hosts --groups 200 --kills 20
    scripts/cluster_faults.py --build build/dev --way slurm --groups 40 --faults node,slurmctld,orchestrator
    scripts/cluster_faults.py --build build/dev --way hosts --groups 40 --faults node,orchestrator --apart

A fault is `orchestrator` (the program gets SIGKILL), `node` (a node's container is killed and started
again after a while) or `slurmctld` (killed and started again). After the faults the run is resumed until
it ends, and judged: every (group, block) has one good launch, none has two, nothing is left running in
the database, on the nodes or in the queue, and `clean` then finds nothing. Prints one line per fault and
a summary; exit code 1 when anything is amiss, 77 where no such cluster can be.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from faults.ending import NOT_HERE, end_on_sigterm, verdict

SOURCE = Path(__file__).resolve().parent.parent

PROTOCOL = """iterations = 3
retries = 3
launch_timeout = "20s"
connect_timeout = "5s"
"""


def experiment(name, groups, protocol):
    """@returns the TOML of so many groups of one small cell on four ranks, each group a launch of its own"""
    values = ", ".join(f'"{i}"' for i in range(groups))
    return f"""name = "{name}"
[axes]
environment = "bare-metal"
backend = "gloo"
architecture = "ring"
ranks = 4
[knobs.gloo.env]
GROUP = [{values}]
[[work]]
collective = "allreduce"
size = "1KiB"
[protocol]
launches = 1
warmup = 1
{protocol}"""


def rig_is_possible():
    """@returns whether such a cluster can be here; prints what it lacks"""
    missing = [name for name in ("dockerd", "docker", "slurmctld", "slurmd", "munged", "sshd") if not shutil.which(name)]
    lacks = (["to be root"] if os.geteuid() != 0 else []) + [f"{name} in PATH" for name in missing]
    if lacks:
        print("a cluster of containers needs", ", ".join(lacks))
    return not lacks


class Rig:
    """The cluster, and the program on its head."""

    def __init__(self, build, nodes):
        self.build = build
        self.folder = tempfile.mkdtemp(prefix="dyn-cf-", dir="/tmp")
        self.nodes = [f"node{i + 1}" for i in range(nodes)]
        try:
            self.script("up", self.folder, str(nodes), str(SOURCE), str(build))
        except BaseException:
            self.down()
            raise

    def script(self, command, folder, *words, check=True):
        argv = ["bash", str(SOURCE / "tests/e2e/cluster_rig.sh"), command, folder, *words]
        return subprocess.run(argv, check=check, capture_output=True, text=True)

    def on(self, host, *words):
        return self.script("exec", self.folder, host, *words, check=False)

    def shell(self, host, line):
        return self.on(host, "bash", "-c", line)

    def down(self):
        self.script("down", self.folder, check=False)


class Run:
    """One experiment, started and resumed until it is complete."""

    def __init__(self, rig, way, groups, apart):
        self.rig = rig
        self.way = way
        self.groups = groups
        where = ["--slurm", "--nodes", "2"] if way == "slurm" else ["--hosts", "node1:2,node2:2"]
        Path(rig.folder, "shared", "faults.toml").write_text(experiment("cluster-faults", groups, PROTOCOL))
        # Every node has a /tmp of its own.
        where += ["--out", "/tmp/apart"] if apart else []
        self.words = [str(rig.build / "dynamiccl"), "run", "faults.toml", "--db", "faults.sqlite", *where]

    def start(self, resume):
        line = " ".join(self.words + (["--resume"] if resume else []))
        self.rig.shell("head", f"({line} >>faults.log 2>&1; echo $? >faults.rc) & sleep 0.3; "
                               "pgrep -f -n '^[^ ]*dynamiccl run faults.toml' >faults.pid; true")

    def started(self):
        return Path(self.rig.folder, "shared", "faults.sqlite").exists() and self.rows(
            "SELECT count(*) AS n FROM run")[0]["n"] > 0

    def kill(self):
        self.rig.shell("head", "kill -KILL $(cat faults.pid)")

    def alive(self):
        return self.rig.shell("head", "kill -0 $(cat faults.pid)").returncode == 0

    def wait(self, seconds):
        end = time.time() + seconds
        while time.time() < end and self.alive():
            time.sleep(0.3)
        return not self.alive()

    def rows(self, sql):
        answer = self.rig.on("head", str(self.rig.build / "dynamiccl"), "query", sql, "--json", "--db", "faults.sqlite")
        if answer.returncode != 0:
            raise RuntimeError(answer.stderr)
        return json.loads(answer.stdout)

    def done(self):
        return self.rows("SELECT count(DISTINCT group_id) AS n FROM launch WHERE status = 'ok'")[0]["n"]


def break_orchestrator(run, rand):
    run.kill()
    run.wait(10)


def break_node(run, rand):
    node = rand.choice(["node1", "node2"])
    run.rig.script("kill", run.rig.folder, node)
    time.sleep(rand.uniform(1, 4))
    run.rig.script("revive", run.rig.folder, node)


def break_slurmctld(run, rand):
    run.rig.shell("head", "pkill -KILL -x slurmctld; sleep %.1f; slurmctld" % rand.uniform(0.5, 3))


FAULTS = {"orchestrator": break_orchestrator, "node": break_node, "slurmctld": break_slurmctld}


def ranks_left(rig, node, within=5):
    """Ranks on the node; those by ssh end with the connection, which takes a moment to be noticed."""
    until = time.monotonic() + within
    while True:
        left = rig.shell(node, "pgrep -xc dynamiccl-worke || true").stdout.strip()
        if left == "0" or time.monotonic() > until:
            return left
        time.sleep(1)


def judge(run, counts):
    wrong = []

    def check(what, value, expected):
        counts[what] = value
        if value != expected:
            wrong.append(f"{what}: {value}, expected {expected}")

    check("runs", run.rows("SELECT count(*) AS n FROM run")[0]["n"], 1)
    check("groups with a good launch", run.done(), run.groups)
    check("groups with two good launches", run.rows(
        "SELECT count(*) AS n FROM (SELECT group_id FROM launch WHERE status = 'ok' "
        "GROUP BY group_id, block HAVING count(*) > 1)")[0]["n"], 0)
    check("launches left running", run.rows("SELECT count(*) AS n FROM launch WHERE status = 'running'")[0]["n"], 0)
    check("good launches without every rank's times", run.rows(
        "SELECT count(*) AS n FROM launch l WHERE status = 'ok' AND "
        "(SELECT count(*) FROM launch_rank r WHERE r.launch_id = l.id) <> 4")[0]["n"], 0)
    counts["attempts"] = run.rows("SELECT count(*) AS n FROM launch")[0]["n"]
    for node in ["node1", "node2"]:
        check(f"ranks left on {node}", ranks_left(run.rig, node), "0")
    if run.way == "slurm":
        check("jobs left", run.rig.shell("head", "squeue -h -t PENDING,RUNNING | wc -l").stdout.strip(), "0")
    cleaned = run.rig.on("head", str(run.rig.build / "dynamiccl"), "clean", "--db", "faults.sqlite")
    counts["clean"] = (cleaned.stdout + cleaned.stderr).strip()
    return wrong


def longest(run):
    """@returns seconds in which a run ends that nothing breaks any more, also where others keep the CPUs busy"""
    return max(900, 20 * run.groups)


def complete(run, resumes):
    """Resumes until the run is whole; a run may end with failed groups while a node is down."""
    for _ in range(resumes):
        if run.alive():
            return f"the run has not ended, {run.done()} of {run.groups} groups are done"
        run.start(resume=True)
        run.wait(longest(run))
        if run.done() == run.groups:
            return ""
        time.sleep(3)
    return "the run is never complete"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=SOURCE / "build/dev")
    parser.add_argument("--way", choices=["slurm", "hosts"], default="slurm")
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20, help="how many faults")
    parser.add_argument("--apart", action="store_true", help="nodes do not see the folder of launches: records by TCP")
    parser.add_argument("--faults", default="orchestrator", help="kinds in turns: " + ", ".join(FAULTS))
    parser.add_argument("--longest", type=float, default=10, help="seconds until the next fault at most")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if not rig_is_possible():
        return NOT_HERE
    end_on_sigterm()
    rand = random.Random(arguments.seed)
    kinds = arguments.faults.split(",")
    begin = time.time()
    rig = Rig(arguments.build.resolve(), 2)
    wrong = []
    counts = {"way": arguments.way, "groups": arguments.groups, "faults": 0}
    try:
        run = Run(rig, arguments.way, arguments.groups, arguments.apart)
        run.start(resume=False)
        for number in range(arguments.kills):
            kind = kinds[number % len(kinds)]
            time.sleep(rand.uniform(0.2, arguments.longest))
            if not run.alive() and run.started() and run.done() == run.groups:
                break
            FAULTS[kind](run, rand)
            counts["faults"] += 1
            print(f"{time.time() - begin:6.1f} s  {kind}: {run.done() if run.started() else 0} of {run.groups} groups done",
                  flush=True)
            if not run.alive():
                run.start(resume=run.started())
        run.wait(longest(run))
        problem = complete(run, 5) if run.done() < run.groups else ""
        wrong = ([problem] if problem else []) + judge(run, counts)
        if wrong:
            print(Path(rig.folder, "shared", "faults.log").read_text()[-6000:], file=sys.stderr)
    finally:
        rig.down()
    return verdict(counts, wrong, begin)


if __name__ == "__main__":
    sys.exit(main())
