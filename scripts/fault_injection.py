#!/usr/bin/env python3
"""Breaks runs at random moments, resumes them, and judges what is stored.

    sudo scripts/fault_injection.py --faults 500                     every kind in turn
    sudo scripts/fault_injection.py --faults 40 --kinds kill-rank,fill-disk --seed 7 --keep

Works in PID, network, mount and IPC namespaces of its own, so that whatever is left there is a run's, and nothing
outside is touched. A trial is a small experiment: started, met by one to four faults with `run --resume` after each,
then completed. Judged after every trial:

  * a (group, block) was measured once; every launch stored before a fault is there after it, unchanged;
  * every stored sample is a line of the ranks' own records, which they append to and `--out` keeps; of a launch that
    counts, all of them are;
  * a resume completes the run or says why not, with an exit code of the list; no command hangs;
  * after the next command nothing of ours is left: processes, containers, networks, links, mounts, sockets, files in
    /tmp, /dev/shm and the run folder; the foreign engine's container and network next to it are as they were.

Kinds for leaders and the plugin's folder meet a job without a database instead: ranks that ask the plugin's tuner for every
call's setting (judged: all calls made, the same settings on every rank).

Needs root (or one who may make namespaces); container kinds need dockerd and the worker image, which one container
run makes before. Prints one line a trial and, last, a table of faults by kind, with --report FILE as JSON. Ends with 1
when a judgement failed, and keeps those trials' folders; with 77 where it cannot run.
"""
import argparse
import collections
import json
import os
import random
import shutil
import subprocess
import sys
import time

from faults.jobs import JOBS, job_trial
from faults.kinds import BARE, CONTAINERS
from faults.trial import Trial, has_unfinished_run
from faults.world import World, make_foreign_database

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
APART = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--net", "--ipc", "--mount-proc"]
NOT_HERE = 77
KINDS = {**BARE, **CONTAINERS, **JOBS}


def sub_reaper():
    """Children of killed parents come to this process, which is the first of its namespace."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def one_trial(number, world, wanted, counts):
    """One experiment with faults of the wanted kinds in turn. @returns the trial"""
    if wanted[0] in JOBS:
        trial = job_trial(number, world, wanted[0], counts)
        leave(trial, world)
        return trial
    containers = any(kind in CONTAINERS for kind in wanted)
    trial = Trial(number, world, containers)
    resume = False
    for kind in wanted:
        child = trial.start(resume)
        fault = (CONTAINERS if kind in CONTAINERS else BARE)[kind]
        moment = random.uniform(0, 6 if containers else 1.5)
        end = time.monotonic() + moment
        while time.monotonic() < end and child.poll() is None:
            time.sleep(0.01)
        did = fault(trial, child)
        if child.returncode is None:
            trial.wait(child)
        if did:
            trial.faults.append((kind, did))
            counts[kind] += 1
        if world.foreign:
            world.bring_back_foreign()
        if trial.lost:
            break
        trial.look()
        resume = has_unfinished_run(trial)
        if resume is None:
            break
    if not trial.lost:
        complete(trial, world, resume)
    leave(trial, world)
    return trial




def complete(trial, world, resume):
    for _ in range(3):
        if resume is None:
            break
        child = trial.start(resume)
        code = trial.wait(child)
        trial.look()
        if code == 0:
            break
        if code in (None, 2):
            trial.problem(f"a resume without a fault ended with {code}: {trial.said()[-300:]}")
            break
        resume = has_unfinished_run(trial)
    else:
        trial.problem("three resumes without a fault did not complete the run: " + trial.said()[-400:])
    trial.judge_end()
    trial.judge_rows()
    trial.judge_folders()


def leave(trial, world):
    for problem in world.left_over():
        trial.problem("left over: " + problem)
    trial.close()


def kinds_in_turn(kinds, most, counts, share):
    """Lists of one to `most` kinds that have not had their share; containers and bare metal are not mixed, a job meets one."""
    while order := [kind for kind in kinds if counts[kind] < share]:
        random.shuffle(order)
        for group in (BARE, CONTAINERS, JOBS):
            mine = [kind for kind in order if kind in group]
            while mine:
                count = 1 if group is JOBS else random.randint(1, most)
                yield mine[:count]
                mine = mine[count:]


def has_jobs(options):
    """Are the programs built that load the plugin?"""
    return os.access(f"{options.tests}/tuned-rank", os.X_OK)


def inside(options):
    random.seed(options.seed)
    world = World(options)
    kinds = options.kinds.split(",") if options.kinds else [*BARE] if options.bare else [*BARE, *CONTAINERS]
    if not options.kinds and has_jobs(options):
        kinds += [*JOBS]
    if options.foreign_engine:
        world.start_foreign_engine()
    make_foreign_database(world)
    world.baseline()
    counts, did, failed, trials = collections.Counter(), collections.Counter(), [], 0
    began = time.monotonic()
    share = -(-options.faults // len(kinds))
    for wanted in kinds_in_turn(kinds, options.per_trial, counts, share):
        if time.monotonic() - began > options.minutes * 60:
            break
        trials += 1
        trial = one_trial(trials, world, wanted, counts)
        sub_reaper()
        did.update(f"{kind}: {how}" for kind, how in trial.faults)
        met = ", ".join(f"{kind} ({how})" for kind, how in trial.faults)
        print(f"{trials:4} {counts.total():4} faults  {'FAILED' if trial.problems else 'ok    '}  {met}", flush=True)
        for problem in trial.problems:
            print("       ", problem, flush=True)
        if trial.problems:
            failed.append({"trial": trials, "faults": trial.faults, "problems": trial.problems})
    answer = {
        "seed": options.seed,
        "trials": trials,
        "faults": counts.total(),
        "by_kind": dict(sorted(counts.items())),
        "how": dict(sorted(did.items())),
        "samples_compared": world.compared,
        "settings_agreed_on": world.settings,
        "foreign_engine": options.foreign_engine,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "failed": failed,
    }
    if options.report:
        with open(options.report, "w") as file:
            json.dump(answer, file, indent=1)
    print(json.dumps({key: value for key, value in answer.items() if key != "failed"}, indent=1))
    print(f"{len(failed)} of {trials} trials failed" + (f", kept in {world.kept}" if failed else ""))
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default=f"{HERE}/build/release/dynamiccl")
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=600, help="begin no trial after so long")
    parser.add_argument("--kinds", help="comma-separated: " + ", ".join(KINDS))
    parser.add_argument("--bare", action="store_true", help="all kinds without containers")
    parser.add_argument("--per-trial", type=int, default=4, help="most faults of a trial")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--foreign-engine", action="store_true", help="containers run in an engine of somebody else")
    parser.add_argument("--images", default="/var/cache/dynamiccl/images", help="where runs left the worker image")
    parser.add_argument("--kept", default="/var/tmp/dynamiccl-faults", help="folders of failed trials")
    parser.add_argument("--keep", action="store_true", help="keep every trial's folder")
    parser.add_argument("--report")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--tests", help="where tuned-rank is (tests/ next to the program)")
    options = parser.parse_args()
    options.tests = os.path.abspath(options.tests or f"{os.path.dirname(os.path.abspath(options.program))}/tests")
    unknown = [kind for kind in (options.kinds or "").split(",") if kind and kind not in KINDS]
    if unknown:
        parser.error("no such kind: " + ", ".join(unknown))
    if not has_jobs(options) and any(kind in JOBS for kind in (options.kinds or "").split(",")):
        parser.error(f"{options.tests}: tuned-rank is not built, or name its folder with --tests")
    if not os.access(options.program, os.X_OK):
        parser.error(f"{options.program}: not built, or name another with --program")
    if options.inside:
        sys.exit(inside(options))
    paths = {name: os.path.abspath(getattr(options, name) or "/") for name in ("program", "kept", "report")}
    hidden = [name for name, path in paths.items() if path.startswith("/tmp/")]
    if hidden:
        parser.error(", ".join("--" + name for name in hidden) + ": not below /tmp, which trials have for themselves")
    if subprocess.run([*APART, "true"], capture_output=True).returncode != 0:
        print("needs root, or leave to make namespaces", file=sys.stderr)
        sys.exit(NOT_HERE)
    private = f"/var/tmp/dynamiccl-faults-{os.getpid()}"
    os.makedirs(private)
    script = (
        "mount --make-rprivate / && mount --bind \"$0\" /tmp && mount -t tmpfs -o size=64m shm /dev/shm && "
        "{ mkdir -p /run/netns; mount -t tmpfs run /run/netns; exec \"$@\"; }"
    )
    words = [sys.executable, "-B", os.path.abspath(__file__), "--inside", *sys.argv[1:], "--seed", str(options.seed)]
    words += ["--program", paths["program"], "--kept", paths["kept"], "--tests", options.tests]
    words += ["--report", paths["report"]] if options.report else []
    try:
        code = subprocess.call([*APART, "bash", "-c", script, private, *words])
    finally:
        shutil.rmtree(private, ignore_errors=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
