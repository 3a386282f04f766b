#!/usr/bin/env python3
"""CPU seconds of every named query over one database, as CSV, the slowest first on stderr.

    scripts/query_times.py DATABASE [--program build/release/dynamiccl] [--import FOLDER] [--limit 2] > times.csv

Each query runs twice by itself: over all runs (--all) and as it is asked without an option (the newest run). Seconds are the
process's and its children's, user and system. --import FOLDER: DATABASE is made anew of every *.sqlite.xz below the folder
and of the databases in its *.tar.xz. Ends with 1 where a query took more than --limit seconds or failed.
"""
import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time


def run(command, **how):
    """@returns the exit code, CPU and wall seconds"""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **how)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_utime + used.ru_stime, time.monotonic() - begin


def databases_below(folder, into):
    for archive in sorted(pathlib.Path(folder).rglob("*.xz")):
        flat = "_".join(archive.relative_to(folder).parts)
        if archive.name.endswith(".sqlite.xz"):
            with open(into / flat.removesuffix(".xz"), "wb") as out:
                subprocess.run(["xz", "-dc", archive], stdout=out, check=True)
        elif archive.name.endswith(".tar.xz"):
            names = subprocess.run(["tar", "-tJf", archive], capture_output=True, text=True, check=True).stdout.split()
            inside = [name for name in names if name.endswith(".sqlite")]
            if inside:
                # In a folder of its own: other archives have files of the same names.
                (into / flat).mkdir()
                subprocess.run(["tar", "-xJf", archive, "-C", into / flat, *inside], check=True)
    return sorted(str(path) for path in into.rglob("*.sqlite"))


def import_all(program, folder, database):
    for part in ("", "-wal", "-shm"):
        pathlib.Path(database + part).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as into:
        files = databases_below(folder, pathlib.Path(into))
        code, cpu, wall = run([program, "import", *files, "--db", database], stdout=subprocess.DEVNULL)
    size = os.path.getsize(database) / 2**20
    print(f"{len(files)} databases imported: exit code {code}, {cpu:.2f} s of CPU, {wall:.2f} s, {size:.1f} MiB", file=sys.stderr)
    if code != 0:
        sys.exit("not all of them were imported: nothing was timed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database")
    parser.add_argument("--program", default="build/release/dynamiccl")
    parser.add_argument("--import", dest="folder")
    parser.add_argument("--limit", type=float, default=2)
    options = parser.parse_args()
    if options.folder:
        import_all(options.program, options.folder, options.database)
    listed = subprocess.run([options.program, "query", "--all", "--json"], capture_output=True, text=True, check=True)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["query", "runs", "cpu_s", "wall_s", "exit_code"])
    slowest, failed = [], False
    for query in json.loads(listed.stdout):
        for runs in (["--all"], []):
            code, cpu, wall = run([options.program, "query", query["name"], *runs, "--db", options.database],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            out.writerow([query["name"], "all" if runs else "newest", f"{cpu:.3f}", f"{wall:.3f}", code])
            sys.stdout.flush()
            failed |= code != 0
            slowest.append((cpu, query["name"], "all runs" if runs else "newest run"))
    slowest.sort(reverse=True)
    for cpu, name, runs in slowest[:8]:
        print(f"{cpu:7.3f} s of CPU: {name}, {runs}", file=sys.stderr)
    return 1 if failed or slowest[0][0] > options.limit else 0


if __name__ == "__main__":
    sys.exit(main())
