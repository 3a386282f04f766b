#!/usr/bin/env python3
"""An experiment by two builds of this project, launches by turns: does the newer one measure what the older one did?

  scripts/builds_ab.py OLD NEW OUTPUT [--launches 12] [--seconds 400] [--lanes N] [--environments E,...] [--backends B,...]
  scripts/builds_ab.py --judge OUTPUT --program DYNAMICCL

OLD and NEW are checkouts with build/release. A lane is an environment and a backend on two cores of its own, next to the
other lanes; in it both builds run the experiment for one launch of each group, one right after the other, first one then the
other first, as often as --launches says. A lane's containers get its cores by a copy of their profile. Images are made before,
by either build. Nothing begins that would not be over after --seconds.

OUTPUT keeps a database per build and lane, and pairs.json: the pairs, and how many of which lanes were asked for. --judge, by default done at the end, puts all launches into one
run, in which the build is a setting of the group, and lets `compare` judge the pairs at a band of 5 %: cell by cell in
cells.json, in short on stdout. Ends with 1 where a cell is SLOWER or a lane lacks one of its pairs, 2 where it cannot run.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import threading
import time

BUILDS = ("before", "now")


def stop(why):
    print(f"builds_ab.py: {why}", file=sys.stderr)
    sys.exit(2)


def cores_by_lane():
    """Pairs of CPUs whose ranks share no core, neighbours first; hyper-threads' second halves last."""
    allowed = os.sched_getaffinity(0)
    by_thread = {}
    rows = subprocess.run(["lscpu", "-p=CPU,CORE,SOCKET"], capture_output=True, text=True, check=True).stdout
    cores = {}
    for line in rows.splitlines():
        if line.startswith("#"):
            continue
        cpu, core, socket = (int(word) for word in line.split(",")[:3])
        if cpu in allowed:
            cores.setdefault((socket, core), []).append(cpu)
    for place in sorted(cores):
        for thread, cpu in enumerate(sorted(cores[place])):
            by_thread.setdefault(thread, []).append(cpu)
    pairs = []
    for thread in sorted(by_thread):
        cpus = by_thread[thread]
        pairs += [cpus[i:i + 2] for i in range(0, len(cpus) - 1, 2)]
    return pairs


class Lane:
    def __init__(self, arguments, environment, backend, cpus):
        self.arguments, self.backend, self.cpus = arguments, backend, ",".join(map(str, cpus))
        self.name = f"{environment}-{backend}"
        self.folder = os.path.join(arguments.output, self.name)
        self.environment = self.name if "docker" in environment else environment
        for build in BUILDS:
            profiles = os.path.join(self.folder, build)
            os.makedirs(profiles, exist_ok=True)
            if self.environment == self.name:
                self.write_profile(environment, arguments.trees[build], os.path.join(profiles, self.name + ".toml"))
        with open(os.path.join(arguments.trees["before"], "experiments", arguments.experiment + ".toml")) as text:
            experiment = text.read()
        experiment = re.sub(r"(?m)^environment = .*$", f'environment = "{self.environment}"', experiment)
        experiment = re.sub(r"(?m)^backend = .*$", f'backend = "{backend}"', experiment)
        self.file = os.path.join(self.folder, arguments.experiment + ".toml")
        with open(self.file, "w") as out:
            out.write(experiment)

    def write_profile(self, environment, tree, path):
        with open(os.path.join(tree, "profiles/environments", environment + ".toml")) as text:
            profile = text.read()
        profile = re.sub(r'(?m)^name = "' + re.escape(environment) + r'"$', f'name = "{self.name}"\ncpus = "{self.cpus}"', profile, count=1)
        with open(path, "w") as out:
            out.write(profile)

    def run(self, build, database, *more):
        """Seconds that one run took, and its id; None where it left no run."""
        program = os.path.join(self.arguments.trees[build], "build/release/dynamiccl")
        before = newest_run(database)
        environment = dict(os.environ, DYNAMICCL_CACHE=os.path.join(self.arguments.output, "cache-" + build))
        begun = time.monotonic()
        with open(os.path.join(self.folder, build + ".log"), "a") as log:
            command = ["taskset", "-c", self.cpus, program, "run", self.file, "--set", "protocol.launches=1", "--profiles",
                       os.path.join(self.folder, build), "--db", database, *self.arguments.options[build], *more]
            subprocess.run(command, stdout=log, stderr=log, check=False, env=environment)
        after = newest_run(database)
        return time.monotonic() - begun, None if after == before else after


def newest_run(database):
    if not os.path.exists(database):
        return None
    connection = sqlite3.connect(database)
    rows = connection.execute("SELECT uuid FROM run ORDER BY id DESC LIMIT 1").fetchall()
    connection.close()
    return rows[0][0] if rows else None


def prepare(lanes, arguments):
    """The images of every environment, made by both builds at the same time; their launches count for nothing."""
    first = {}
    for lane in lanes:
        first.setdefault(lane.name.removesuffix("-" + lane.backend), lane)

    def make(build):
        for environment, lane in sorted(first.items()):
            seconds, run = lane.run(build, os.path.join(arguments.output, f"prepare-{build}.sqlite"), "--only",
                                    "size == 1KiB and (collective == allreduce or collective == push_pull)")
            print(f"{environment}, {build}: ready after {seconds:.0f} s{'' if run else ', WITHOUT a run'}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(make, BUILDS))


def measure(arguments):
    pairs, lock = [], threading.Lock()
    places = cores_by_lane()
    work = [(e, b) for e in arguments.environments.split(",") for b in arguments.backends.split(",")]
    work += [tuple(lane.split("/")) for lane in arguments.more]
    if not places:
        stop("two CPUs are needed whose ranks share no core, and this process may use "
             f"{', '.join(map(str, sorted(os.sched_getaffinity(0))))}")
    count = min(arguments.lanes, len(places), len(work))
    lanes = [Lane(arguments, e, b, places[i % count]) for i, (e, b) in enumerate(work)]
    prepare(lanes, arguments)

    def follow(place):
        mine, longest = lanes[place::count], 0.0
        for block in range(arguments.launches):
            for lane in mine:
                begun = time.monotonic()
                if begun + longest * 1.1 > arguments.end:
                    return
                row = {"lane": lane.name, "block": block, "cpus": lane.cpus}
                for build in BUILDS if block % 2 == 0 else BUILDS[::-1]:
                    database = os.path.join(arguments.output, f"{build}-{lane.name}.sqlite")
                    row[build + "_s"], row[build] = lane.run(build, database)
                longest = max(longest, time.monotonic() - begun)
                with lock:
                    pairs.append(row)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        list(pool.map(follow, range(count)))
    with open(os.path.join(arguments.output, "pairs.json"), "w") as out:
        json.dump({"lanes": [lane.name for lane in lanes], "launches": arguments.launches, "pairs": pairs}, out, indent=1)
    print(f"{len(pairs)} of {arguments.launches * len(lanes)} pairs in {count} lanes", flush=True)


def joined(arguments, pairs):
    """One database with one run of all launches; returns its path and what each cell lacks."""
    path = os.path.join(arguments.output, "joint.sqlite")
    for name in (path, path + "-wal", path + "-shm"):
        if os.path.exists(name):
            os.remove(name)
    for lane in sorted({row["lane"] for row in pairs}):
        for build in BUILDS:
            # A copy: importing a database of an older build may change its schema.
            source, copy = (os.path.join(arguments.output, f"{stem}-{lane}.sqlite") for stem in (build, "copy-of-" + build))
            if not os.path.exists(source):
                continue
            shutil.copy(source, copy)
            subprocess.run([arguments.program, "import", copy, "--db", path, "-q"], check=True, stdout=subprocess.DEVNULL)
            for name in (copy, copy + "-wal", copy + "-shm"):
                if os.path.exists(name):
                    os.remove(name)
    db = sqlite3.connect(path)
    db.execute("PRAGMA foreign_keys = OFF")
    runs = {uuid: row for row, uuid in db.execute("SELECT id, uuid FROM run")}
    # The newer build's first run stands for all.
    base = min(runs[row["now"]] for row in pairs if row["now"])
    groups, cells, planned = {}, {}, {}
    for run, group, key in db.execute("SELECT run_id, id, key FROM plan_group"):
        planned.setdefault(run, []).append((group, key))
    for row in sorted(pairs, key=lambda one: (one["lane"], one["block"])):
        for build in BUILDS:
            if row[build]:
                take_in(db, base, planned.get(runs[row[build]], []), build, row["block"], groups, cells)
    kept = set(groups.values())
    for (group,) in db.execute("SELECT id FROM plan_group").fetchall():
        if group not in kept:
            db.execute("DELETE FROM plan_group WHERE id = ?", (group,))
    kept = set(cells.values())
    for (cell,) in db.execute("SELECT id FROM run_cell").fetchall():
        if cell not in kept:
            db.execute("DELETE FROM run_cell WHERE id = ?", (cell,))
    mixed = leave_out_unlike(db)
    db.execute("UPDATE run SET status = 'complete' WHERE id = ?", (base,))
    uuid = db.execute("SELECT uuid FROM run WHERE id = ?", (base,)).fetchone()[0]
    db.commit()
    db.close()
    return path, uuid, mixed


def take_in(db, base, planned, build, block, groups, cells):
    """Moves the launches of one run's groups to the base run, as this build's block."""
    for group, key in planned:
        whole = groups.setdefault((build, key), group)
        if whole == group:
            db.execute("UPDATE plan_group SET run_id = ?, key = ?, knobs_json = ? WHERE id = ?",
                       (base, f"{build} {key}", json.dumps({"build": build}, separators=(",", ":")), group))
        for cell, cell_key in db.execute("SELECT id, key FROM run_cell WHERE group_id = ?", (group,)).fetchall():
            target = cells.setdefault((build, key, cell_key), cell)
            if target != cell:
                db.execute("UPDATE measurement SET cell_id = ? WHERE cell_id = ?", (target, cell))
        db.execute("UPDATE launch SET group_id = ?, block = ? WHERE group_id = ?", (whole, block, group))


UNLIKE = """SELECT a.id, b.id FROM measurement a JOIN launch la ON la.id = a.launch_id JOIN run_cell ca ON ca.id = a.cell_id
  JOIN plan_group ga ON ga.id = ca.group_id JOIN profile pa ON pa.id = ga.profile_id
  JOIN plan_group gb ON gb.backend = ga.backend AND gb.architecture = ga.architecture AND gb.ranks = ga.ranks
  JOIN profile pb ON pb.id = gb.profile_id AND pb.environment = pa.environment
  JOIN run_cell cb ON cb.group_id = gb.id AND cb.collective = ca.collective AND cb.size_bytes = ca.size_bytes
  JOIN launch lb ON lb.group_id = gb.id AND lb.block = la.block
  JOIN measurement b ON b.launch_id = lb.id AND b.cell_id = cb.id
  WHERE ga.knobs_json LIKE '%before%' AND gb.knobs_json LIKE '%now%' AND a.cadence IS NOT b.cadence"""


def leave_out_unlike(db):
    """Pairs of which one was timed call by call and the other in batches are no pairs."""
    rows = db.execute(UNLIKE).fetchall()
    for row in rows:
        for measurement in row:
            db.execute("DELETE FROM sample WHERE measurement_id = ?", (measurement,))
            db.execute("DELETE FROM measurement WHERE id = ?", (measurement,))
    return len(rows)


def judge(arguments):
    file = os.path.join(arguments.output, "pairs.json")
    if not os.path.exists(file):
        stop(f"{file} is missing: nothing was measured there")
    with open(file) as text:
        asked = json.load(text)
    if not isinstance(asked, dict):
        stop(f"{file} does not say how many pairs were asked for: it is an older script's, measure anew")
    pairs = asked["pairs"]
    if not any(whole(row) for row in pairs):
        print(f"no whole pair of runs in {len(asked['lanes'])} lanes, of {asked['launches']} each: see the logs in {arguments.output}")
        return 1
    path, run, mixed = joined(arguments, pairs)
    sides = [f'group_knobs={{"build":"{build}"}}' for build in BUILDS]
    answer = subprocess.run([arguments.program, "compare", *sides, "--run", run, "--band", "5%", "--anyway", "--json", "--db", path],
                            capture_output=True, text=True, check=False)
    if answer.returncode not in (0, 3, 5):
        stop(f"compare ended with {answer.returncode}: {answer.stderr[-2000:]}")
    found = json.loads(answer.stdout)
    with open(os.path.join(arguments.output, "cells.json"), "w") as out:
        json.dump(found, out, indent=1)
    return told(found, asked, mixed)


def whole(row):
    return all(row[build] for build in BUILDS)


def told(found, asked, mixed):
    pairs = asked["pairs"]
    cells, by_verdict, halves, outside = found["cells"], {}, [], 0
    for cell in cells:
        by_verdict.setdefault(cell["verdict"], []).append(cell)
        low, high = cell.get("ratio_low"), cell.get("ratio_high")
        if low is None:
            outside += 1
            continue
        halves.append((high - low) / 2 / cell["ratio"])
    launches = [cell["launches_b"] for cell in cells] or [0]
    print(f"{len(cells)} cells, {len(pairs)} pairs of runs, launches a side {min(launches)} to {max(launches)}; "
          f"{mixed} pairs of cells left out as timed in two ways; {outside} cells without an interval")
    print(", ".join(f"{len(group)} {verdict}" for verdict, group in sorted(by_verdict.items())) + " at a band of 5 %")
    if halves:
        ratios = [cell["ratio"] for cell in cells if cell.get("ratio_low") is not None]
        print(f"now / before: median {statistics.median(ratios):.4f}, from {min(ratios):.3f} to {max(ratios):.3f}; half-width of the "
              f"intervals: median {100 * statistics.median(halves):.2f} %, 90th percentile {100 * sorted(halves)[int(0.9 * (len(halves) - 1))]:.2f} %")
    worst = sorted((cell for cell in cells if cell.get("ratio_low") is not None), key=lambda cell: -cell["ratio_low"])[:10]
    for cell in worst:
        print(f"  {cell['environment']} {cell['backend']} {cell['architecture']} {cell['collective']} {cell['size_bytes']} B: "
              f"{cell['ratio']:.3f} [{cell['ratio_low']:.3f}, {cell['ratio_high']:.3f}] {cell['verdict']}")
    # Also of lanes that never had their turn.
    short = {lane: sum(1 for row in pairs if row["lane"] == lane and whole(row)) for lane in asked["lanes"]}
    short = {lane: count for lane, count in short.items() if count < asked["launches"]}
    for lane, count in short.items():
        print(f"  {lane}: {count} of {asked['launches']} pairs")
    return 1 if by_verdict.get("SLOWER") or short else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="*", metavar="OLD NEW OUTPUT")
    parser.add_argument("--judge", metavar="OUTPUT")
    parser.add_argument("--program", help="which dynamiccl judges (NEW's)")
    parser.add_argument("--experiment", default="quickstart", help="file of OLD's experiments/, without .toml")
    parser.add_argument("--environments", default="bare-metal,singularity,single-docker,cross-docker")
    parser.add_argument("--backends", default="openmpi,mpich,gloo")
    parser.add_argument("--more", nargs="*", default=[], metavar="ENVIRONMENT/BACKEND", help="further lanes: bare-metal/nccl")
    parser.add_argument("--launches", type=int, default=12, help="of each group by each build")
    parser.add_argument("--lanes", type=int, default=99, help="pairs of cores that measure at the same time")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--no-judge", action="store_true")
    arguments = parser.parse_args()
    if arguments.judge:
        arguments.output = os.path.abspath(arguments.judge)
        if not arguments.program:
            parser.error("--judge needs --program")
        return judge(arguments)
    if len(arguments.trees) != 3:
        parser.error("OLD NEW OUTPUT")
    arguments.end = time.monotonic() + arguments.seconds
    old, new, arguments.output = (os.path.abspath(path) for path in arguments.trees)
    arguments.trees = dict(zip(BUILDS, (old, new)))
    arguments.program = arguments.program or os.path.join(new, "build/release/dynamiccl")
    os.makedirs(arguments.output, exist_ok=True)
    # The page is not what is compared; older builds write none.
    arguments.options = {}
    for build, tree in arguments.trees.items():
        text = subprocess.run([os.path.join(tree, "build/release/dynamiccl"), "run", "--help"], capture_output=True, text=True, check=True).stdout
        arguments.options[build] = ["--no-report"] if "--no-report" in text else []
    measure(arguments)
    return 0 if arguments.no_judge else judge(arguments)


if __name__ == "__main__":
    sys.exit(main())
