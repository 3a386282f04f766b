#!/usr/bin/env python3
"""Step times of two builds of this project, by turns: is a training method as fast as it was?

  scripts/trainer_ab.py OLD NEW OUTPUT [--blocks N] [--seconds S] [--backends B,...] [--models M,...] [--methods T,...]
                        [--beside N --cores C]

OLD and NEW are checkouts with build/release. Every block starts each cell's launch once with either, one right after
the other and the order changed from block to block, so that whoever else uses the machine slows both. A cell's figure
is the ratio of the two median steps of each pair, new over old; its mean (geometric) has a 95 % interval by Student's t.
Next to it is the same of the step that a tenth are quicker than: a neighbour lengthens most steps, but seldom all.
Both sides run the same experiment file, with settings that both know. OUTPUT keeps old.sqlite, new.sqlite, pairs.csv and
ratios.md (with --beside databases of each place); a second call with the same OUTPUT adds blocks. A launch that left no new
run in its database is no half of a pair; then the exit code is 1. What neither side measures is not tried in later blocks.
On a machine with many idle cores --beside 8 --cores 4 has eight blocks under way, each on four cores of its own.
"""
import argparse
import concurrent.futures
import csv
import json
import math
import os
import statistics
import subprocess
import sys
import threading
import time

# Two-sided 95 %, by degrees of freedom.
STUDENT = [0, 12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
           2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042]
BAND = 1.02
# Where two GPUs are the workers', the server is a rank without one.
SERVER_WITHOUT_GPU = '[knobs.nccl.env]\nDYNAMICCL_SERVER_GPU = "none"'
REDUCED = ["bsp-a2a", "wfbp-a2a", "mg-wfbp", "bytescheduler-a2a", "dear"]
SERVED = ["bsp-ps", "wfbp-ps", "bytescheduler-ps"]


NEWEST = "SELECT run_id FROM v_run ORDER BY run_row DESC LIMIT 1"
REASONS = "SELECT DISTINCT reason FROM v_measurement WHERE status <> 'ok' AND run_id = '{run_id}' LIMIT 3"
# Of one run: the median step, and the one that a tenth of the steps are quicker than.
STEPS = """WITH steps AS (
  SELECT v.backend, v.model, v.method, v.settings, v.measurement_row, v.step_us, avg(s.total_us) AS us
  FROM v_training v JOIN training t ON t.measurement_id = v.measurement_row AND t.role = 'worker'
  JOIN sample s ON s.measurement_id = v.measurement_row AND s.rank = t.rank AND s.phase = 1
  WHERE v.counts AND v.run_id = '{run_id}'
  GROUP BY v.measurement_row, s.iteration),
placed AS (SELECT *, row_number() OVER (PARTITION BY measurement_row ORDER BY us) AS place,
                  count(*) OVER (PARTITION BY measurement_row) AS n FROM steps)
SELECT backend, model, method, settings, step_us, us AS quick_us FROM placed WHERE place = n / 10 + 1"""


def experiment_text(backend, served, model, methods, steps, batch):
    placement = 'placement = ["dedicated", "colocated"]\n' if served else ""
    # A dedicated server is a rank more.
    exclude = ("placement == dedicated and ranks == 2", "placement == colocated and ranks == 3")
    return f"""name = "trainer-ab"
description = "Two builds of the trainer by turns: {backend}, {model}."
seed = 1
{"exclude = " + json.dumps(list(exclude)) if served else ""}

[axes]
environment = "bare-metal"
backend = "{backend}"
architecture = "{"ps" if served else "ring"}"
ranks = {"[2, 3]" if served else 2}

[[work]]
training = {json.dumps(methods)}
architecture = "{"ps" if served else "ring"}"
{placement}model = "{model}"
batch = {batch}
{"" if backend == "nccl" else "threads = 1"}
steps = {steps}

[protocol]
rank_aggregation = "mean"
warmup = 5
launches = 1
cell_time_cap = "1s"
launch_timeout = "5m"
{SERVER_WITHOUT_GPU if backend == "nccl" and served else ""}
"""


def groups_of(arguments):
    for backend in arguments.backends.split(","):
        for model in arguments.models.split(","):
            wanted = arguments.methods.split(",") if arguments.methods else None
            reduced = REDUCED + (["ddp"] if backend == "gloo" else [])
            for served, methods in ((False, reduced), (True, SERVED)):
                chosen = [m for m in methods if wanted is None or m in wanted]
                if chosen:
                    yield backend, served, model, chosen


def query(program, database, sql):
    text = subprocess.run([program, "query", "--db", database, "--json", sql], capture_output=True, text=True, check=True).stdout
    return json.loads(text)


def newest_run(program, database):
    rows = query(program, database, NEWEST) if os.path.exists(database) else []
    return rows[0]["run_id"] if rows else None


def database_of(side, place, arguments):
    return os.path.join(arguments.output, (side if arguments.beside == 1 else f"{side}-{place}") + ".sqlite")


def why_nothing(side, run_id, place, arguments):
    """Of the run that measured nothing; of one that was not added the database knows nothing."""
    program = os.path.join(getattr(arguments, side), "build/release/dynamiccl")
    database = database_of(side, place, arguments)
    rows = query(program, database, REASONS.format(run_id=run_id)) if run_id else []
    return "".join(f": {row['reason']}" for row in rows if row.get("reason")) or ", see its log"


def launch(tree, side, file, place, arguments):
    """Times of the run that this call added, and its id; none where it added none, whatever the database has of earlier ones."""
    program = os.path.join(tree, "build/release/dynamiccl")
    database = database_of(side, place, arguments)
    name = os.path.basename(database).removesuffix(".sqlite")
    before = newest_run(program, database)
    with open(os.path.join(arguments.output, name + ".log"), "a") as log:
        ended = subprocess.run([program, "run", file, "--db", database], stdout=log, stderr=log, check=False).returncode
    run_id = newest_run(program, database)
    if run_id == before:
        print(f"{file}: {side} added no run (exit code {ended}), see {name}.log", file=sys.stderr)
        return {}, None
    rows = query(program, database, STEPS.format(run_id=run_id))
    times = {}
    for row in rows:
        placement = json.loads(row["settings"]).get("placement", "")
        if not placement and row["method"].endswith("-ps"):
            placement = "dedicated"
        times[(row["backend"], row["model"], row["method"], placement)] = (row["step_us"], row["quick_us"])
    return times, run_id


def blocks_of(place, cores, arguments, out, guard, end):
    """The blocks of one place, into `out`. Returns launches that measured nothing."""
    missed, hopeless = 0, set()
    if arguments.beside > 1:
        # Of this thread, and of what it starts.
        os.sched_setaffinity(0, cores[place * arguments.cores:(place + 1) * arguments.cores])
    for block in range(place, arguments.blocks, arguments.beside):
        for number, (backend, served, model, methods) in enumerate(groups_of(arguments)):
            if time.monotonic() > end:
                return missed
            if number in hopeless:
                continue
            # A place's own, as others write theirs meanwhile.
            name = f"{backend}-{'ps' if served else 'ring'}-{model}"
            file = os.path.join(arguments.output, name + (f"-{place}" if arguments.beside > 1 else "") + ".toml")
            with open(file, "w") as text:
                text.write(experiment_text(backend, served, model, methods, arguments.steps, arguments.batch))
            sides = [("old", arguments.old), ("new", arguments.new)]
            if (block // arguments.beside + place + number) % 2:
                sides.reverse()
            if arguments.at_once:
                with concurrent.futures.ThreadPoolExecutor(2) as pool:
                    both = list(pool.map(lambda one: launch(one[1], one[0], file, place, arguments), sides))
                launched = {side: one for (side, _), one in zip(sides, both)}
            else:
                launched = {side: launch(tree, side, file, place, arguments) for side, tree in sides}
            times = {side: measured for side, (measured, _) in launched.items()}
            with guard:
                for cell in sorted(times["old"].keys() & times["new"].keys()):
                    old, new = times["old"][cell], times["new"][cell]
                    out.writerow([*cell, block, old[0], new[0], old[1], new[1]])
            for side in times:
                if not times[side]:
                    missed += 1
                    print(f"{file}: {side} measured nothing{why_nothing(side, launched[side][1], place, arguments)}", file=sys.stderr)
            if not times["old"] and not times["new"]:
                hopeless.add(number)  # what keeps both from it is there in the next block too
    return missed


def measure(arguments):
    pairs_file = os.path.join(arguments.output, "pairs.csv")
    is_new = not os.path.exists(pairs_file)
    end = time.monotonic() + arguments.seconds
    guard = threading.Lock()
    cores = sorted(os.sched_getaffinity(0))
    with open(pairs_file, "a", newline="", buffering=1) as stream:
        out = csv.writer(stream)
        if is_new:
            out.writerow(["backend", "model", "method", "placement", "block", "old_us", "new_us", "old_quick_us", "new_quick_us"])
        with concurrent.futures.ThreadPoolExecutor(arguments.beside) as pool:
            return sum(pool.map(lambda place: blocks_of(place, cores, arguments, out, guard, end),
                                range(arguments.beside)))


def judged(ratios):
    logs = [math.log(r) for r in ratios]
    mean = statistics.mean(logs)
    if len(logs) < 2:
        return math.exp(mean), None, None, "one pair"
    degrees = len(logs) - 1
    half = STUDENT[min(degrees, len(STUDENT) - 1)] * statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = math.exp(mean - half), math.exp(mean + half)
    if high <= BAND:
        verdict = "FASTER" if high < 1 / BAND else "SAME or FASTER"
    else:
        verdict = "SLOWER" if low > BAND else "open"
    return math.exp(mean), low, high, verdict


def report(arguments):
    cells = {}
    with open(os.path.join(arguments.output, "pairs.csv")) as stream:
        for row in csv.DictReader(stream):
            cell = (row["backend"], row["model"], row["method"], row["placement"])
            names = ("old_us", "new_us", "old_quick_us", "new_quick_us")
            cells.setdefault(cell, []).append([float(row[name]) for name in names])
    with open(os.path.join(arguments.output, "ratios.md"), "w") as out:
        out.write("| backend | model | method | servers | pairs | before, us | now, us | now / before | 95 % | | quick steps | "
                  "95 % | |\n|---|---|---|---|---:|---:|---:|---:|---|---|---:|---|---|\n")
        for cell, pairs in sorted(cells.items()):
            line = f"| {' | '.join(cell)} | {len(pairs)} | {statistics.median(p[0] for p in pairs):.0f} | " \
                   f"{statistics.median(p[1] for p in pairs):.0f} |"
            for before, now in ((0, 1), (2, 3)):
                mean, low, high, verdict = judged([p[now] / p[before] for p in pairs])
                line += f" {mean:.3f} | {f'[{low:.3f}, {high:.3f}]' if low else ''} | {verdict} |"
            out.write(line + "\n")
    print(open(os.path.join(arguments.output, "ratios.md")).read())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("output")
    parser.add_argument("--blocks", type=int, default=8, help="pairs of launches of each cell (0: only report)")
    parser.add_argument("--backends", default="gloo,openmpi")
    parser.add_argument("--models", default="cnn,mlp")
    parser.add_argument("--methods", default="", help="all, unless named")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--at-once", action="store_true", help="both at the same time: alike disturbed where others build")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=math.inf, help="no launch begins later")
    parser.add_argument("--beside", type=int, default=1, help="blocks at the same time, each on cores of its own")
    parser.add_argument("--cores", type=int, default=4, help="of each of them")
    arguments = parser.parse_args()
    if arguments.beside > 1 and arguments.beside * arguments.cores > len(os.sched_getaffinity(0)):
        parser.error(f"{arguments.beside} x {arguments.cores} cores are more than there are")
    os.makedirs(arguments.output, exist_ok=True)
    missed = measure(arguments)
    report(arguments)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
