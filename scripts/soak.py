#!/usr/bin/env python3
"""Many launches in a row of the smallest cell, watched from outside: does the orchestrator grow?

    scripts/soak.py [--launches 1000] [--environment bare-metal] [--backend gloo] [--program build/release/dynamiccl]

Samples the orchestrator's resident memory, descriptors and threads after every launch, and the size of everything below
its folder that is not the database. Fails (1) where memory of the last tenth is more than 5 % above that of the tenth
after the first tenth, where descriptors or threads grew, or where anything but the database is left on the disk,
in /dev/shm or of processes. Prints the figures as JSON.
"""
import argparse
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EXPERIMENT = """name = "soak"
[axes]
environment = "{environment}"
backend = "{backend}"
architecture = "ring"
ranks = 2
[[work]]
collective = "allreduce"
size = "1KiB"
[protocol]
warmup = 0
iterations = 5
launches = {launches}
retries = 0
"""


def watch(pid):
    """Resident bytes, descriptors and threads; None once it has ended."""
    try:
        with open(f"/proc/{pid}/status") as file:
            lines = dict(line.split(":", 1) for line in file)
        if "VmRSS" not in lines:
            return None
        return int(lines["VmRSS"].split()[0]) * 1024, len(os.listdir(f"/proc/{pid}/fd")), int(lines["Threads"])
    except OSError:
        return None


def launches_of(db):
    try:
        connection = sqlite3.connect(f"file:{db}?mode=ro", uri=True, timeout=30)
        try:
            return connection.execute("SELECT count(*) FROM launch WHERE status <> 'running'").fetchone()[0]
        finally:
            connection.close()
    except sqlite3.OperationalError:
        return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--launches", type=int, default=1000)
    parser.add_argument("--environment", default="bare-metal")
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--program", default=f"{HERE}/build/release/dynamiccl")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="dynamiccl-soak-", dir="/var/tmp")
    db = f"{folder}/soak.sqlite"
    with open(f"{folder}/soak.toml", "w") as file:
        file.write(EXPERIMENT.format(**vars(options)))
    shm = set(os.listdir("/dev/shm"))
    began, seen, samples = time.monotonic(), -1, []
    with open(f"{folder}/log", "w") as log:
        words = [os.path.abspath(options.program), "run", "soak.toml", "--db", db, "--no-report"]
        child = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log)
        while child.poll() is None:
            done = launches_of(db)
            if done > seen and (found := watch(child.pid)):
                samples.append((done, *found))
                seen = done
            time.sleep(0.05)
    tenth = max(1, len(samples) // 10)
    early, late = samples[tenth : 2 * tenth], samples[-tenth:]
    memory = [statistics.median(row[1] for row in part) for part in (early, late)]
    # Between launches: while one runs, its pipes are open.
    quiet = [min(row[2] for row in part) for part in (early, late)]
    threads = [max(row[3] for row in part) for part in (early, late)]
    left = sorted(
        os.path.relpath(os.path.join(where, name), folder)
        for where, _, names in os.walk(folder)
        for name in names
        # With its log, which stays where this program reads at the end.
        if name not in ("soak.toml", "log", "soak.sqlite", "soak.sqlite-wal", "soak.sqlite-shm")
    )
    answer = {
        "launches": launches_of(db),
        "exit_code": child.returncode,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "resident_bytes": memory,
        "memory_ratio": round(memory[1] / memory[0], 4),
        "descriptors": quiet,
        "threads": threads,
        "database_bytes": os.path.getsize(db),
        "files_left": left[:10],
        "shared_memory_left": sorted(set(os.listdir("/dev/shm")) - shm),
    }
    print(json.dumps(answer, indent=1))
    good = (
        child.returncode == 0
        and answer["launches"] == options.launches
        and memory[1] <= 1.05 * memory[0]
        and quiet[1] <= quiet[0]
        and threads[1] <= threads[0]
        and not left
        and not answer["shared_memory_left"]
    )
    if good:
        shutil.rmtree(folder)
    else:
        print(f"kept: {folder}", file=sys.stderr)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
