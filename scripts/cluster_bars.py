#!/usr/bin/env python3
"""Figures of a cluster of containers (tests/e2e/cluster_rig.sh) that runs are compared with.

    sudo scripts/cluster_bars.py --build build/dev start plan overhead records preflight

start      seconds until two, and four, nodes with munge, slurmctld, slurmd and sshd are idle
plan       seconds until a thousand groups are planned, and planned and submitted with a job of Slurm each
overhead   what a group takes beyond its own srun, launches of about five seconds, over a bare srun of the same length
records    rows a second of eight writers over TCP, over those that db_ingest_benchmark takes in the same run (medians of three)
preflight  doctor on four nodes of 1 Gbit/s: fifty times without a slow one, ten times with one of 500 Mbit/s

Prints one line of JSON per part; exit code 1 when a limit is passed, 77 where no such cluster can be, or where others keep
the CPUs busy (--busy): the limits are those of an idle machine.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from cluster_faults import Rig, experiment, rig_is_possible
from faults.ending import NOT_HERE, end_on_sigterm

SOURCE = Path(__file__).resolve().parent.parent

# Jobs of a thousand that are in the queue at once when all are submitted: the first ones have run by then.
SUBMITTED = 990


def cpu_ticks():
    """@returns (busy, all) of all CPUs since the machine's start"""
    with open("/proc/stat") as text:
        ticks = [int(word) for word in text.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def busy_percent(seconds=3):
    """What others take of the CPUs now: the load's average would still count what ended a minute ago."""
    before = cpu_ticks()
    time.sleep(seconds)
    busy, every = (now - then for now, then in zip(cpu_ticks(), before))
    return 100 * busy / every if every else 0


class Bars:
    def __init__(self, arguments):
        self.arguments = arguments
        self.build = arguments.build.resolve()
        self.rig = None
        self.wrong = []

    def say(self, part, figures, limits, least=None):
        """@param limits of figures, by name, @param least those that they must reach; a figure that is None was missed"""
        least = least or {}
        figures["load"] = round(os.getloadavg()[0], 1)
        print(json.dumps({"part": part, **figures, "limits": limits, **({"least": least} if least else {})}), flush=True)
        for name, limit in limits.items():
            if figures[name] is None:
                self.wrong.append(f"{part}: {name} was not reached, at most {limit} expected")
            elif figures[name] > limit:
                self.wrong.append(f"{part}: {name} is {figures[name]}, at most {limit} expected")
        for name, limit in least.items():
            if figures[name] is None or figures[name] < limit:
                self.wrong.append(f"{part}: {name} is {figures[name]}, at least {limit} expected")

    def with_rig(self):
        if self.rig is None:
            self.rig = Rig(self.build, 4)
        return self.rig

    def down(self):
        if self.rig is not None:
            self.rig.down()
            self.rig = None

    def program(self, *words):
        return self.with_rig().on("head", str(self.build / "dynamiccl"), *words)

    def experiment(self, groups, iterations, cap):
        text = experiment("cluster-bars", groups, f'iterations = {iterations}\ncell_time_cap = "{cap}"\n')
        Path(self.with_rig().folder, "shared", "bars.toml").write_text(text)

    def start(self):
        figures = {}
        for nodes in (2, 4):
            begin = time.time()
            rig = Rig(self.build, nodes)
            figures[f"seconds_{nodes}_nodes"] = round(time.time() - begin, 1)
            rig.down()
        self.say("start", figures, {"seconds_2_nodes": 15, "seconds_4_nodes": 15})

    def plan(self):
        self.experiment(1000, 3, "1s")
        begin = time.time()
        planned = self.program("plan", "bars.toml", "--slurm", "--nodes", "2")
        figures = {"groups": 1000, "plan_s": round(time.time() - begin, 2)}
        if planned.returncode != 0:
            figures["plan_s"] = None
            self.wrong.append("plan: " + planned.stderr[-500:])
        for jobs in ("array", "afterany"):
            figures[f"submit_{jobs}_s"] = self.submit(jobs)
        self.say("plan", figures, {"plan_s": 10, "submit_array_s": 10, "submit_afterany_s": 10})

    def submit(self, jobs):
        """@returns seconds from the program's start until all thousand were submitted, None = they never were"""
        words = (f"{self.build}/dynamiccl run bars.toml --db {jobs}.sqlite --slurm --nodes 2 --set cluster.jobs={jobs} "
                 "--set cluster.jobs_ahead=1000")
        line = (f"begin=$(date +%s.%N); {words} >{jobs}.log 2>&1 & run=$!; seen=0; for i in $(seq 600); do "
                "seen=$(squeue -h -r 2>/dev/null | wc -l); "
                f"[ $seen -ge {SUBMITTED} ] && break; "
                "kill -0 $run || break; sleep 0.1; done; echo \"$begin $(date +%s.%N) $seen\"; kill -KILL $run")
        begin, end, seen = self.with_rig().shell("head", line).stdout.split()
        self.program("clean")
        # Jobs that are cancelled are listed until Slurm has completed them.
        left = self.with_rig().shell("head", "for i in $(seq 60); do left=$(squeue -h -r | wc -l); [ $left = 0 ] && break; "
                                     "sleep 0.5; done; echo $left").stdout.strip()
        if left != "0":
            self.wrong.append(f"plan: {left} jobs left after clean")
        if int(seen) < SUBMITTED:
            said = self.with_rig().shell("head", f"tail -3 {jobs}.log").stdout.strip()
            self.wrong.append(f"plan: {seen} of {SUBMITTED} jobs were seen with {jobs}: {said}")
            return None
        return round(float(end) - float(begin), 2)

    def overhead(self):
        """In turns: the program's groups, and between them a bare srun that sleeps as long."""
        groups = 6
        self.experiment(groups, 10000000, "1550ms")
        ran = self.program("run", "bars.toml", "--db", "overhead.sqlite", "--slurm", "--nodes", "2")
        rows = json.loads(self.program(
            "query", "SELECT count(*) AS n, sum(duration_s) AS launches, (julianday(max(ended_utc)) - "
            "julianday(min(started_utc))) * 86400 AS wall FROM launch WHERE status = 'ok'", "--json",
            "--db", "overhead.sqlite").stdout or "[{\"n\": 0}]")[0]
        if rows["n"] != groups:
            self.wrong.append(f"overhead: {rows['n']} of {groups} groups were measured: {ran.stderr[-500:]}")
            return
        alone = rows["launches"] / rows["n"]
        line = (f"salloc --nodes=2 --ntasks-per-node=2 bash -c 'for i in 1 2 3 4 5; do begin=$(date +%s.%N); srun "
                f"--mpi=none sleep {alone:.2f}; echo $begin $(date +%s.%N); done'")
        spans = [span.split() for span in self.with_rig().shell("head", line).stdout.split("\n") if span]
        bare = sorted(float(end) - float(begin) for begin, end in spans)[2] - alone
        beyond = (rows["wall"] - rows["launches"]) / rows["n"]
        self.say("overhead", {"groups": rows["n"], "launch_s": round(alone, 2), "beyond_its_srun_s": round(beyond, 3),
                              "percent": round(100 * beyond / alone, 1), "bare_srun_beyond_its_program_s": round(bare, 3)},
                 {"percent": 15})

    def records(self):
        words = ["--benchmark_repetitions=3", "--benchmark_enable_random_interleaving=true", "--benchmark_format=json",
                 "--benchmark_filter=^(ingest/(20/2/110|60/2/1000)|records_over_tcp)/"]
        ran = subprocess.run([str(self.build / "db_ingest_benchmark"), *words], capture_output=True, text=True)
        if ran.returncode != 0:
            self.wrong.append("records: " + ran.stderr[-500:])
            return
        medians = {one["run_name"]: one["rows/s"] for one in json.loads(ran.stdout)["benchmarks"]
                   if one.get("aggregate_name") == "median"}
        figures = {}
        for cells, calls in ((20, 110), (60, 1000)):
            taken = medians[f"ingest/{cells}/2/{calls}/real_time"]
            sent = medians[f"records_over_tcp/{cells}/{calls}/real_time"]
            figures |= {f"taken_{cells}_cells": round(taken), f"sent_{cells}_cells": round(sent),
                        f"ratio_{cells}_cells": round(sent / taken, 2)}
        self.say("records", figures, {}, {"ratio_20_cells": 0.6, "ratio_60_cells": 0.6})

    def preflight(self):
        rig = self.with_rig()
        nodes = ["node1", "node2", "node3", "node4"]
        for node in nodes:
            rig.script("cut", rig.folder, node, "1gbit")
        well = [self.look(nodes) for _ in range(self.arguments.well)]
        rig.script("cut", rig.folder, "node3", "500mbit")
        slow = [self.look(nodes) for _ in range(self.arguments.slow)]
        found = [one for one in slow if one["drained"] == ["node3"]]
        self.say("preflight", {
            "runs_without": len(well), "false_alarms": sum(bool(one["drained"]) for one in well),
            "runs_with": len(slow), "missed": len(slow) - len(found),
            "most_launches": max(one["launches"] for one in well + slow),
            "lowest_end_of_an_interval": min((one["low"] for one in found), default=None),
            "an_interval": found[0]["interval"] if found else None},
            {"false_alarms": 0, "missed": 0, "most_launches": 10})

    def look(self, nodes):
        answer = self.program("doctor", "--hosts", ",".join(nodes), "--json")
        said = json.loads(answer.stdout)
        named = [one for one in said["suspects"] if one["confirmed"]]
        ratio = named[0]["time_ratio"] if named else None
        return {"drained": [one["node"] for one in named], "launches": len(said["launches"]),
                "low": ratio["low"] if ratio else None, "interval": ratio}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=SOURCE / "build/dev")
    parser.add_argument("--well", type=int, default=50, help="looks without a slow node")
    parser.add_argument("--slow", type=int, default=10, help="looks with one")
    parser.add_argument("--busy", type=float, default=40, help="percent of all CPUs that others may take before the first part")
    parser.add_argument("parts", nargs="*", default=["start", "plan", "overhead", "records", "preflight"])
    arguments = parser.parse_args()
    if not rig_is_possible():
        return NOT_HERE
    end_on_sigterm()
    busy = busy_percent()
    for _ in range(5):
        if busy > arguments.busy:  # what ran before may be ending
            busy = busy_percent()
    if busy > arguments.busy:
        print(f"others take {busy:.0f} % of the CPUs, at most {arguments.busy:g} % may be busy (--busy): try again when they are idle")
        return NOT_HERE
    bars = Bars(arguments)
    try:
        for part in arguments.parts:
            getattr(bars, part)()
    finally:
        bars.down()
    for line in bars.wrong:
        print("WRONG:", line)
    return 1 if bars.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
