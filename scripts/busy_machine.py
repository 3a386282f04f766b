#!/usr/bin/env python3
"""What a run says next to loops that take the cores: experiments/busy.toml, again and again.

  scripts/busy_machine.py OUTPUT.sqlite --runs 4 --loops 8 [--nice -10] [--within SECONDS] [-- MORE OF run]

A line per run: how many ratios of environments that are the same when the machine is quiet are said to differ (none
should), how many are not judged, and the least factor that is said of cross-docker. The loops end with the script, and
with each run at the latest. Exit code 1: an environment was said to differ that does not.
"""

import argparse
import csv
import io
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("DYNAMICCL", str(ROOT / "build/dev/dynamiccl"))
SAME = ("singularity", "single-docker")


def begin_loops(count, seconds):
    # In the session of the program, where nice values count; each ends by itself, whatever becomes of this process.
    return [subprocess.Popen(["timeout", str(seconds), "sh", "-c", "while :; do :; done"]) for _ in range(count)]


def overhead(database):
    text = subprocess.run([PROGRAM, "query", "overhead", "--run", "last", "--db", database, "--format", "csv"],
                          check=True, capture_output=True, text=True).stdout
    return list(csv.DictReader(io.StringIO(text)))


def one_run(arguments):
    loops = begin_loops(arguments.loops, arguments.run_seconds + 30)
    began = time.monotonic()
    try:
        run = subprocess.run(["timeout", "--signal=INT", "--kill-after=60", str(arguments.run_seconds),
                              "nice", "-n", str(arguments.nice), PROGRAM, "run", "experiments/busy.toml", "--db",
                              arguments.database, "--no-report", *arguments.more],
                             cwd=ROOT, capture_output=True, text=True)
    finally:
        for loop in loops:
            loop.terminate()
            loop.wait()
    if run.returncode not in (0, 1, 124):  # 124: the time was over, and what there is was stored
        sys.exit(run.stderr)
    return time.monotonic() - began


def told(number, seconds, rows, nice):
    sure = [row for row in rows if row["verdict"] in ("SLOWER", "FASTER")]
    wrong = [row for row in sure if row["environment"] in SAME]
    cross = [row for row in sure if row["environment"] == "cross-docker" and row["verdict"] == "SLOWER"]
    least = [row["note"].split(":")[0] if "at least" in (row["note"] or "") else f"{float(row['ratio']):.3g}" for row in cross]
    open_rows = sum(row["verdict"] == "NOT JUDGED" for row in rows)
    print(f"run {number}, nice {nice}, {seconds:.0f} s: {len(wrong)} wrong of {sum(r['environment'] in SAME for r in rows)}, "
          f"{open_rows} of {len(rows)} not judged, cross-docker SLOWER in {len(cross)}: {', '.join(least)}", flush=True)
    for row in wrong:
        print("  ", row["environment"], row["backend"], row["size_bytes"], row["verdict"], row["ratio"], row["note"])
    return bool(wrong), bool(cross), open_rows, len(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database")
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--loops", type=int, default=8)
    parser.add_argument("--nice", type=int, default=0, help="of the program in every second run")
    parser.add_argument("--within", type=float, default=3600, help="seconds after which no run begins")
    parser.add_argument("--run-seconds", type=int, default=180)
    # Divided here: argparse takes nothing for "more" where options stand between it and the database.
    own, more = sys.argv[1:], []
    if "--" in own:
        own, more = own[:own.index("--")], own[own.index("--") + 1:]
    arguments = parser.parse_args(own)
    arguments.more = more
    usual, other = 0, arguments.nice
    began = time.monotonic()
    results = []
    for number in range(arguments.runs):
        if time.monotonic() - began > arguments.within:
            break
        arguments.nice = other if number % 2 else usual
        seconds = one_run(arguments)
        results.append(told(number + 1, seconds, overhead(arguments.database), arguments.nice))
    print(f"{len(results)} runs: {sum(r[0] for r in results)} with a wrong difference, cross-docker's factor said in "
          f"{sum(r[1] for r in results)}, {sum(r[2] for r in results)} of {sum(r[3] for r in results)} ratios not judged")
    return 1 if any(r[0] for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
