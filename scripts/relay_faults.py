#!/usr/bin/env python3
"""Agreement of ranks on several hosts, with leader and relays killed, stopped and cut off.

    sudo scripts/relay_faults.py --build build/dev --jobs 20 --hosts 4 --calls 3000
    sudo scripts/relay_faults.py --build build/dev --jobs 200 --hosts 4 --calls 10000 --pause 2 --dense --enough 1000000 10000

Hosts are network namespaces on one bridge, each with a folder, a relay (`dynamiccl-leader --relay`; on the
first one the leader, `--listen`) and its ranks, which load the NCCL plugin and ask it for every call's
setting. The leader tries settings all the time. Meanwhile a fault of a random kind comes every few hundred
milliseconds: leader or relay killed (and started anew), stopped for a while, or a host's link cut for a
while, at times for longer than connections live. Judged after every job: no call for which two ranks got
different settings, every rank either made all its calls or was ended by its tuner because its relay was
lost, nothing runs any more, and without faults the leader's table is filed under the regime of all ranks, not
only of those on its own host. The namespaces go with the script, however it ends: they are named in a mount
namespace of its own. Prints a line a job and a summary as JSON; exit code 1 when anything is
amiss, 77 where it cannot run.
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


def sh(*argv, check=True):
    return subprocess.run(argv, check=check, capture_output=True, text=True)


def in_own_mounts():
    """Starts this script anew where the names of its network namespaces are nobody else's, once."""
    mark = "RELAY_FAULTS_MOUNTS"
    if mark not in os.environ:
        os.environ[mark] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, "-B", *sys.argv])
    del os.environ[mark]
    Path("/run/netns").mkdir(exist_ok=True)
    sh("mount", "-t", "tmpfs", "tmpfs", "/run/netns")


class Hosts:
    """Network namespaces on a bridge, which lies in one of its own."""

    def __init__(self, count):
        self.tag = f"dr{os.getpid()}"
        self.count = count
        try:
            self.make(count)
        except BaseException:
            self.remove()
            raise

    def make(self, count):
        sh("ip", "netns", "add", self.hub)
        sh("ip", "-n", self.hub, "link", "add", "name", "bridge0", "type", "bridge")
        sh("ip", "-n", self.hub, "link", "set", "bridge0", "up")
        for h in range(count):
            sh("ip", "netns", "add", self.name(h))
            sh("ip", "-n", self.hub, "link", "add", "name", f"v{h}", "type", "veth", "peer", "name", "eth0", "netns",
               self.name(h))
            sh("ip", "-n", self.hub, "link", "set", f"v{h}", "master", "bridge0", "up")
            for device in ("lo", "eth0"):
                sh("ip", "-n", self.name(h), "link", "set", device, "up")
            sh("ip", "-n", self.name(h), "addr", "add", f"10.77.0.{h + 1}/24", "dev", "eth0")

    @property
    def hub(self):
        return self.tag + "hub"

    def name(self, host):
        return f"{self.tag}h{host}"

    def link(self, host, state):
        sh("ip", "-n", self.hub, "link", "set", f"v{host}", state, check=False)

    def start(self, host, argv, env=None, log=None):
        out = open(log, "a") if log else subprocess.DEVNULL
        return subprocess.Popen(["ip", "netns", "exec", self.name(host), *argv], env={**os.environ, **(env or {})},
                                stdout=out, stderr=out, start_new_session=True)

    def remove(self):
        for name in [self.name(h) for h in range(self.count)] + [self.hub]:
            sh("ip", "netns", "delete", name, check=False)


class Job:
    """Ranks on all hosts, with whoever leads and relays them."""

    PORT = "7077"

    def __init__(self, hosts, arguments, number):
        self.hosts = hosts
        self.arguments = arguments
        self.folder = Path(tempfile.mkdtemp(prefix="relay-faults-"))
        self.number = number
        self.control = {}
        self.leaders = []
        for h in range(hosts.count):
            (self.folder / f"host{h}").mkdir()
            self.start_control(h)
        self.ranks = [self.start_rank(r) for r in range(hosts.count * arguments.ranks_a_host)]

    def start_control(self, host):
        argv = [str(self.arguments.build / "dynamiccl-leader"), str(self.folder / f"host{host}")]
        argv += (["--listen", self.PORT, "--agent", "random", "--calls", "4", "--seed", str(self.number),
                  "--out", str(self.folder / "table")]
                 if host == 0 else ["--relay", f"10.77.0.1:{self.PORT}"])
        if host == 0 and self.arguments.dense:
            argv = [str(self.arguments.build / "tests/relay-leader"), argv[1], self.PORT,
                    str(self.number + 1000 * len(self.leaders))]
            self.leaders.append(argv)
        self.control[host] = self.hosts.start(host, argv, log=str(self.folder / f"control{host}.txt"))

    def start_rank(self, rank):
        host = rank // self.arguments.ranks_a_host
        plugin = str(self.arguments.build / "libdynamiccl-nccl-plugin.so")
        env = {"NCCL_TUNER_PLUGIN": plugin, "NCCL_PROFILER_PLUGIN": plugin,
               "DYNAMICCL_TUNER_FOLDER": str(self.folder / f"host{host}"),
               "DYNAMICCL_TUNER_HOSTS": str(self.hosts.count), "DYNAMICCL_TUNER_PATIENCE": "20"}
        if host == 0 and self.arguments.leave_first:
            env["RELAY_RANK_STAYS_MS"] = "1500"
        total = self.hosts.count * self.arguments.ranks_a_host
        argv = [str(self.arguments.build / "tests/relay-rank"), str(rank), str(total), str(self.hosts.count),
                str(1000 + self.number), str(self.folder / "sync"), str(self.folder / f"log{rank}"),
                str(self.arguments.calls)]
        return self.hosts.start(host, argv, env, str(self.folder / f"rank{rank}.txt"))

    def running(self):
        return [r for r in self.ranks if r.poll() is None]

    def fault(self, rand, counts):
        host = rand.randrange(self.hosts.count)
        # A kill ends most jobs whose proposals are always open: rarer, and a job has its share of the others.
        often = 5 if self.arguments.dense else 1
        kinds = ["kill"] + often * ["stop", "stop", "cut", "cut"]
        kind = rand.choice(kinds + (often * ["long-cut"] if rand.random() < 0.1 / often else []))
        counts[kind] = counts.get(kind, 0) + 1
        process = self.control[host]
        if kind == "kill":
            process.kill()
            process.wait()
            time.sleep(rand.uniform(0, 0.3))
            self.start_control(host)
        elif kind == "stop":
            sh("kill", "-STOP", str(process.pid), check=False)
            time.sleep(rand.uniform(0, 0.6))
            sh("kill", "-CONT", str(process.pid), check=False)
        else:
            self.hosts.link(host, "down")
            time.sleep(rand.uniform(13, 15) if kind == "long-cut" else rand.uniform(0.1, 1))
            self.hosts.link(host, "up")

    def end(self):
        for process in list(self.control.values()) + self.ranks:
            if process.poll() is None:
                process.kill()
            process.wait()

    def lose_a_relay(self):
        """For good, once something was learnt."""
        decisions = self.folder / "host0" / "decisions.jsonl"
        while self.running() and (not decisions.exists() or decisions.read_text().count("\n") < 12):
            time.sleep(0.05)
        self.control[self.hosts.count - 1].kill()

    def table(self):
        """@returns the table that the leader has written; {} without one"""
        path = self.folder / "table"
        return json.loads(path.read_text()) if path.exists() else {}

    def learnt(self):
        """@returns rows of that table"""
        return len(self.table().get("entries", []))

    def judge_regime(self):
        """Relays pass on what the ranks of their hosts have told."""
        said = (self.folder / "control0.txt").read_text()
        ranks = len(self.ranks)
        expected = f"told by {ranks} of {ranks} ranks on {self.hosts.count} nodes"
        wrong = [] if expected in said else [f"job {self.number}: the leader does not say \"{expected}\""]
        names = [regime["name"] for regime in self.table().get("regimes", [])]
        if not names or any(" ranks seen" in name for name in names):
            wrong.append(f"job {self.number}: the table's regimes are {names}")
        return wrong

    def judge(self, counts):
        """@returns what is wrong, one line each"""
        wrong = []
        counts["learnt"] = counts.get("learnt", 0) + self.learnt()
        if (self.arguments.leave_first or self.arguments.lose_relay) and self.learnt() == 0:
            wrong.append(f"job {self.number}: what was learnt is not in the leader's table")
        if self.arguments.calm and not self.arguments.dense:
            wrong += self.judge_regime()
        logs = []
        for rank, process in enumerate(self.ranks):
            path = self.folder / f"log{rank}"
            lines = path.read_text().split("\n")[:-1] if path.exists() else []
            if lines and lines[-1] == "lost":
                counts["ended"] = counts.get("ended", 0) + 1
                lines.pop()
            logs.append(lines)
            # Who waits for an ended rank stops too.
            if process.returncode not in (0, 7, 8):
                wrong.append(f"rank {rank} ended with {process.returncode}")
        if any(p.returncode == 8 for p in self.ranks) and not any(p.returncode == 7 for p in self.ranks):
            wrong.append("ranks stopped, and none was ended by its tuner")
        most = max(logs, key=len)
        for rank, lines in enumerate(logs):
            counts["calls"] = counts.get("calls", 0) + len(lines)
            for call, (mine, other) in enumerate(zip(lines, most)):
                if mine != other:
                    counts["differing"] = counts.get("differing", 0) + 1
                    wrong.append(f"job {self.number} rank {rank} call {call}: {mine} and {other}")
        # Calls of two sizes alternate: a switch is a change of either.
        for first in (0, 1):
            size = [line for n, line in enumerate(most) if (n % 3 == 0) == (first == 0)]
            counts["switches"] = counts.get("switches", 0) + sum(a != b for a, b in zip(size, size[1:]))
        return wrong[:20]

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def one_job(hosts, arguments, number, rand, counts):
    job = Job(hosts, arguments, number)
    begin = time.time()
    try:
        if arguments.lose_relay:
            job.lose_a_relay()
        while job.running() and time.time() - begin < arguments.longest:
            time.sleep(rand.uniform(0, arguments.pause))
            if job.running() and not arguments.calm:
                job.fault(rand, counts)
        end = time.time() + 60
        while job.running() and time.time() < end:
            time.sleep(0.1)
        # The leader ends with its ranks, and writes what was learnt.
        while (arguments.leave_first or arguments.lose_relay) and job.control[0].poll() is None and time.time() < end:
            time.sleep(0.1)
        hung = [f"rank {r} still runs after {time.time() - begin:.0f} s" for r, p in enumerate(job.ranks)
                if p.poll() is None]
    finally:
        job.end()
    wrong = hung + job.judge(counts)
    if wrong or arguments.keep:
        print(f"kept: {job.folder}")
    else:
        job.remove()
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=SOURCE / "build/dev")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--ranks-a-host", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--calls", type=int, default=3000, help="of each rank of a job")
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between faults at most")
    parser.add_argument("--longest", type=float, default=120, help="seconds of faults in a job at most")
    parser.add_argument("--least-switches", type=int, default=0, help="fewer settings changed is amiss too")
    parser.add_argument("--lose-relay", action="store_true",
                        help="a relay is killed for good when something was learnt, which the table must have")
    parser.add_argument("--dense", action="store_true",
                        help="led by one who proposes all the time (tests/relay-leader): many more switches")
    parser.add_argument("--enough", type=int, nargs=2, metavar=("CALLS", "SWITCHES"),
                        help="no further job when there were so many of both")
    parser.add_argument("--calm", action="store_true", help="no faults")
    parser.add_argument("--leave-first", action="store_true",
                        help="ranks leave before those of the leader's host; its table must have what was learnt")
    parser.add_argument("--keep", action="store_true", help="keep the jobs' folders")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    if os.geteuid() != 0 or shutil.which("ip") is None or sh("ip", "netns", "list", check=False).returncode != 0:
        print("needs root and ip (iproute2) for network namespaces")
        return NOT_HERE
    if sh("unshare", "--mount", "true", check=False).returncode != 0:
        print("needs a mount namespace of its own")
        return NOT_HERE
    in_own_mounts()
    end_on_sigterm()
    rand = random.Random(arguments.seed)
    counts = {"jobs": 0, "hosts": arguments.hosts, "calls": 0, "switches": 0, "differing": 0, "ended": 0}
    wrong = []
    begin = time.time()
    hosts = Hosts(arguments.hosts)
    try:
        for number in range(arguments.jobs):
            wrong += one_job(hosts, arguments, number, rand, counts)
            counts["jobs"] += 1
            print(f"{time.time() - begin:6.1f} s  {json.dumps(counts)}", flush=True)
            if arguments.enough and counts["calls"] >= arguments.enough[0] and counts["switches"] >= arguments.enough[1]:
                break
    finally:
        hosts.remove()
    if counts["switches"] < arguments.least_switches:
        wrong.append(f"{counts['switches']} switches, at least {arguments.least_switches} expected")
    return verdict(counts, wrong, begin)


if __name__ == "__main__":
    sys.exit(main())
