"""PyTorch DDP jobs on two GPUs that meet a fault and that go well, and what `dynamiccl doctor --job` says of each.

    python3 scripts/live_gpu_jobs.py --program build/release/dynamiccl --out FOLDER [--only NAME,...] [--seed 1]
        [--part known|held-out|all] [--set broken,healthy] [--seconds 500] [--launcher shell] [--cost PAIRS]

As scripts/live_jobs.py, whose launches are MPI's. Two ranks of scripts/live_jobs/ddp_rank.py over NCCL (over Gloo where the machine
has no GPU, to try the harness) under torchrun, or started one by one where Debian's torchrun is broken. The faulty rank is drawn by
the seed, and so is the third of the faults that is held out. One job at a time has the GPUs; the next one loads its Python meanwhile.
Nothing is set beforehand; as root. Begins no job that would end after --seconds; where time is left the set is gone through
again with the next seed. FOLDER/results.jsonl has a line for each job: what was planted, all that was said, what NCCL's RAS answers
before and after the look, the threads of the ranks, stacks and their time, and the steps that the job has made meanwhile.
--cost: instead of that, how much longer a step of one plain job takes while it is looked at, in so many pairs of stretches with and
without a look that follow each other; FOLDER/cost.jsonl has a line for each pair.
"""
import argparse
import json
import math
import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import live_jobs

RANKS = 2
RANK = os.path.join(live_jobs.SOURCES, "ddp_rank.py")
SLOW_PATH = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
LONGEST = 28  # seconds of a job once it has loaded
HELD_OUT_SEED = 54

# name, launcher, kind of rank, deed from outside, states that are right, words that are right, whether the rank has to be named
BROKEN = [
    ("stopped", "torchrun", "plain", "stop", "hung", "stopped", True),
    ("killed", "shell", "plain", "kill", "hung", "ended", True),
    ("nice beside a busy core", "torchrun", "plain", "nice", "slow", "starved", True),
    ("slow loader", "torchrun", "slow-loader", "", "slow", "late.*asleep", True),
    ("slow loader process", "torchrun", "slow-worker", "", "slow", "late", True),
    ("loader process never answers", "torchrun", "stuck-worker", "pipe", "hung", "held", True),
    ("lock of its own thread", "torchrun", "lock", "", "hung", "held.*(lock|Python)", True),
    # Which of two ranks differs from what was meant nobody can see.
    ("larger count", "torchrun", "other-count", "", "hung", "same-call|other-call", False),
    ("other collective", "torchrun", "other-collective", "", "hung", "same-call|other-call", False),
    ("one call more", "torchrun", "one-more-call", "", "hung", "same-call|other-call", False),
    ("forced to sockets", "torchrun", "plain", "slow-path", "running|waiting|slow", "NCCL_P2P_DISABLE|NOTE [^ ]*(p2p|shm-off|forced|slow)", False),
    ("small /dev/shm", "torchrun", "plain", "shm", "running|waiting", "NOTE shm-small", False),
    ("slow in Python", "torchrun", "python-work", "", "slow", "late.*Python", True),
    ("more work on the GPU", "torchrun", "more-work", "", "slow", "late", True),
    ("stopped in a container", "apart", "plain", "stop", "hung", "stopped", True),
    ("slow loader in a container", "apart", "slow-loader", "", "slow", "late.*asleep", True),
]
HEALTHY = [(name, "torchrun", kind) for name, kind in (
    ("plain", "plain"), ("loader processes", "workers"), ("checkpoints", "checkpoint"), ("evaluation on rank 0", "evaluation"),
    ("accumulation", "accumulation"), ("uneven steps", "uneven"), ("long steps", "long-steps"), ("small calls", "small-calls"),
    ("first epoch", "first-epoch"))] + [("in containers", "apart", "plain")]


def is_rank(pid, rank):
    """A loader's processes have their rank's variables, too: a rank is no such one's child."""
    try:
        words = open(f"/proc/{pid}/environ", "rb").read().split(b"\0")
        line = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
        parent = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1]
        above = open(f"/proc/{parent}/cmdline", "rb").read().split(b"\0")
    except OSError:
        return False
    mine = RANK.encode()
    return b"RANK=%d" % rank in words and mine in line[:3] and mine not in above[:3]


class Job:
    """Loads when it is made; touches a GPU when it begins."""

    def __init__(self, python, launcher, kind, deed, faulty):
        self.launcher, self.kind, self.deed, self.faulty = launcher, kind, deed, faulty
        self.folder = tempfile.mkdtemp(prefix="live-gpu-job-")
        self.helpers = []
        os.mkfifo(self.folder + "/pipe")
        environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(random.randrange(20000, 40000)), OMP_NUM_THREADS="1")
        if deed == "slow-path":
            environment.update(SLOW_PATH)
        words = [RANK, kind, str(faulty), self.folder]
        prefix = []
        if deed == "shm":
            prefix = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs -o size=64m none /dev/shm && exec \"$@\"", "sh"]
        if launcher == "torchrun":
            command = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--master-port",
                       environment["MASTER_PORT"]] + words
        elif launcher == "apart":  # as containers that share the machine's network: processes, mounts, memory and host name of their own
            start = "for r in 0 1; do RANK=$r LOCAL_RANK=$r WORLD_SIZE=2 unshare --pid --fork --mount-proc --ipc --uts " \
                    "sh -c 'hostname box$RANK; \"$@\"' sh \"$@\" & done; wait"
            command = ["sh", "-c", start, "sh", python] + words
        else:
            start = "for r in 0 1; do RANK=$r LOCAL_RANK=$r WORLD_SIZE=2 \"$@\" & done; wait"
            command = ["sh", "-c", start, "sh", python] + words
        self.log = open(self.folder + "/log", "w")
        self.process = subprocess.Popen(prefix + command, env=environment, stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log, start_new_session=True)

    def pid_of(self, rank):
        for pid in live_jobs.below(self.process.pid):
            if is_rank(pid, rank):
                return pid
        raise RuntimeError(f"no rank {rank}")

    def named(self):
        if self.launcher != "apart":
            return ["--job", str(self.process.pid)]
        above = [open(f"/proc/{self.pid_of(rank)}/stat").read().rsplit(")", 1)[1].split()[1] for rank in range(RANKS)]
        return ["--job", above[0], "--job", above[1]]

    def text(self):
        return open(self.folder + "/log").read()

    def wait_for(self, file, seconds):
        until = time.time() + seconds
        while not all(os.path.exists(f"{self.folder}/{file}.{rank}") for rank in range(RANKS)):
            if time.time() > until or self.process.poll() is not None:
                raise RuntimeError(f"the job did not become {file}: " + self.text()[-500:])
            time.sleep(0.05)

    def begin(self):
        self.wait_for("loaded", 60)
        open(self.folder + "/start", "w").close()
        if self.kind == "first-epoch":  # looked at while it begins
            return
        self.wait_for("ready", 30)
        time.sleep(1)

    def meet_fault(self):
        if self.deed in ("stop", "kill"):
            os.kill(self.pid_of(self.faulty), signal.SIGSTOP if self.deed == "stop" else signal.SIGKILL)
        elif self.deed == "nice":
            pid = self.pid_of(self.faulty)
            core = str(max(os.sched_getaffinity(pid)))
            live_jobs.run("taskset", "-apc", core, str(pid))
            for task in os.listdir(f"/proc/{pid}/task"):
                subprocess.run(["renice", "-n", "15", "-p", task], capture_output=True, check=False)
            self.helpers.append(subprocess.Popen(["timeout", "60", "taskset", "-c", core, "sh", "-c", "while :; do :; done"],
                                                 start_new_session=True))
        open(self.folder + "/go", "w").close()

    def end(self):
        for process in self.helpers + [self.process]:
            for pid in live_jobs.below(process.pid) + [process.pid]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def ask_ras():
    """What NCCL's RAS answers, as it came."""
    answer = b""
    try:
        with socket.create_connection(("localhost", 28028), 2) as port:
            port.settimeout(3)
            port.sendall(b"client protocol 2\ntimeout 1\nset format json\nverbose status\n")
            while part := port.recv(65536):
                answer += part
    except OSError as error:
        answer += f" [{error}]".encode()
    return answer.decode(errors="replace")[-20000:]


def threads_of(job):
    """Of each thread of each rank: name, state, times on a core and waiting for one, what it waits in."""
    found = {}
    for rank in range(RANKS):
        try:
            pid = job.pid_of(rank)
            for task in os.listdir(f"/proc/{pid}/task"):
                folder = f"/proc/{pid}/task/{task}/"
                read = {name: open(folder + name).read().strip() for name in ("comm", "schedstat", "wchan", "syscall")}
                read["state"] = open(folder + "stat").read().rsplit(")", 1)[1].split()[0]
                found[f"{rank}/{task}"] = read
        except (OSError, RuntimeError) as error:
            found[f"{rank}/?"] = str(error)
    return found


def sockets_between(job):
    """How many TCP connections lead from one rank to the other."""
    ends = []
    for rank in range(RANKS):
        mine = set()
        try:
            pid = job.pid_of(rank)
            own = {os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")}
            for table in ("tcp", "tcp6"):
                for line in open(f"/proc/{pid}/net/{table}").read().splitlines()[1:]:
                    field = line.split()
                    if field[3] == "01" and f"socket:[{field[9]}]" in own:
                        mine.add((field[1][-13:], field[2][-13:]))
        except (OSError, RuntimeError):
            pass
        ends.append(mine)
    return sum((there, here) in ends[1] for here, there in ends[0])


def stacks_of(job):
    """Stacks of the ranks' main threads, and what one takes."""
    found = {}
    for rank in range(RANKS):
        try:
            pid = job.pid_of(rank)
            for name, words in (("main", ["-1"]), ("all", [])) if rank == job.faulty else (("main", ["-1"]),):
                begun = time.time()
                done = subprocess.run(["eu-stack"] + words + ["--module", "-n", "64", "-p", str(pid)], stdin=subprocess.DEVNULL,
                                      capture_output=True, text=True, timeout=6)
                found[f"{rank} {name}"] = {"seconds": round(time.time() - begun, 3), "said": done.stdout[:6000 if name == "main" else 30000],
                                           "errors": done.stderr[:300]}
        except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
            found[f"{rank}"] = str(error)
    return found


def look_at(arguments, job):
    evidence = {}
    if job.kind != "first-epoch":
        time.sleep(1)
        evidence["ras_before"] = ask_ras()
        time.sleep(1)
    steps = len(job.text().splitlines())
    evidence["threads_before"] = threads_of(job)
    evidence["began"] = time.time()
    said, seconds = live_jobs.look(arguments.program, job)
    evidence["ended"] = time.time()
    evidence["threads_after"] = threads_of(job)
    evidence["steps_printed_while_looked_at"] = len(job.text().splitlines()) - steps
    evidence["ras_after"] = ask_ras() if job.deed != "stop" else ""
    evidence["sockets_between"] = sockets_between(job)
    evidence["stacks"] = stacks_of(job) if arguments.stacks else {}
    evidence["log"] = job.text()[-1500:]
    return said, seconds, evidence


def rows_of(arguments):
    """One round of jobs after the other, with the seed of each."""
    draw = random.Random(HELD_OUT_SEED)
    of_two = [row for row in BROKEN if row[1] != "apart"]
    held_out = {row[0] for row in draw.sample(of_two, (len(of_two) + 2) // 3)}
    for seed in range(arguments.seed, arguments.seed + arguments.rounds):
        places = random.Random(seed)
        rows = [(kind, row, places.randrange(RANKS)) for kind, of in (("broken", BROKEN), ("healthy", HEALTHY)) for row in of]
        places.shuffle(rows)
        for kind, row, faulty in rows:
            part = "held-out" if kind == "broken" and row[0] in held_out else "known"
            if kind in arguments.set and (not arguments.only or any(word in row[0] for word in arguments.only.split(","))) \
                    and arguments.part in ("all", part):
                yield seed, kind, row, faulty, part


def tell(arguments, counts, seed, kind, row, faulty, part, said, seconds, evidence):
    right = said["state"] not in ("hung", "slow", "failed") if kind == "healthy" else live_jobs.judge(row, faulty, said, False)
    counts.setdefault((seed, kind, part), []).append(right)
    with open(arguments.out + "/results.jsonl", "a") as out:
        out.write(json.dumps({"seed": seed, "set": kind, "part": part, "job": row[0], "planted": faulty, "right": right,
                              "seconds": round(seconds, 2), "said": said, **evidence}) + "\n")
    notes = "".join(f" [{remark['id']}]" for remark in said["remarks"])
    print(f"{seed} {kind:8}{part:9}{row[0]:30}{'-' if kind == 'healthy' else faulty:>2}  {'right' if right else 'WRONG'}  {seconds:5.1f} s "
          f"{said.get('looks', 0):3} looks, {evidence['steps_printed_while_looked_at']} lines; {said['state']} {said['verdict']} "
          f"{said['ranks']}: {said['says']}{notes}", flush=True)
    for line in said["evidence"]:
        print("        " + line, flush=True)


def step_ms(lines, begin, end):
    """Mean of the steps whose ends were printed between the two times; None where there are fewer than two."""
    inside = [(int(step), float(at)) for step, at in lines if begin <= float(at) <= end]
    if not inside or inside[-1][0] == inside[0][0]:
        return None
    return 1000 * (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])


def cost(arguments, begun):
    """With a look and without in turn, which of both is first in turn, too. One job, so that placement and clocks are its own.
    As many pairs as --seconds lets it."""
    job = Job(arguments.python, arguments.launcher or "torchrun", "plain", "", -1)
    stretches = []
    try:
        job.begin()
        for pair in range(arguments.cost):
            if time.time() - begun > arguments.seconds - 17:
                break
            for looks in ((True, False), (False, True))[pair % 2]:
                begin = time.monotonic()
                said = live_jobs.look(arguments.program, job)[0] if looks else None
                time.sleep(0 if looks else 4)
                stretches.append((pair, begin, time.monotonic(), said))
        lines = [line.split()[::2] for line in job.text().splitlines() if re.fullmatch(r"\d+ \S+ [\d.]+", line)]
    finally:
        job.end()
    ratios, failed = [], 0
    for pair in range(len(stretches) // 2):
        looked, alone = sorted((one for one in stretches if one[0] == pair), key=lambda one: one[3] is None)
        with_look, without = step_ms(lines, *looked[1:3]), step_ms(lines, *alone[1:3])
        if looked[3]["state"] == "failed":
            failed += 1
            print(f"cost: the look of pair {pair} failed: {looked[3]['says']}", flush=True)
            continue
        if with_look is None or without is None:
            print(f"cost: pair {pair} is left out: a stretch has fewer than two steps", flush=True)
            continue
        ratios.append(math.log(with_look / without))
        with open(arguments.out + "/cost.jsonl", "a") as out:
            out.write(json.dumps({"pair": pair, "with_ms": with_look, "without_ms": without, "seconds": looked[2] - looked[1],
                                  "said": looked[3]["state"], "stack_core_seconds": looked[3]["core_seconds"]}) + "\n")
    if len(ratios) < 2:
        print("cost: fewer than two pairs fitted into the seconds and had steps to compare")
        return 1
    middle = statistics.fmean(ratios)
    # Student's t of 95 %; of more pairs than are listed it is smaller still.
    quantile = {2: 12.71, 3: 4.31, 4: 3.19, 5: 2.78, 6: 2.58, 7: 2.45, 8: 2.37}.get(len(ratios), 2.37)
    half = quantile * statistics.stdev(ratios) / math.sqrt(len(ratios))
    print(f"cost: a step takes {math.exp(middle):.4f} times as long while it is looked at ({math.exp(middle - half):.4f} to "
          f"{math.exp(middle + half):.4f}, {len(ratios)} pairs); pairs " + " ".join(f"{math.exp(one):.4f}" for one in ratios), flush=True)
    return 1 if failed else 0


def main():
    begun = time.time()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/release/dynamiccl")
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--part", default="all", choices=("known", "held-out", "all"))
    parser.add_argument("--set", default="broken,healthy")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--launcher", default="", help="shell: without torchrun")
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--stacks", action="store_true", help="stacks after each look, and what they take")
    parser.add_argument("--cost", type=int, default=0, metavar="PAIRS", help="only measure what a look costs (at least 6)")
    parser.add_argument("--out", required=True, help="folder for results.jsonl")
    arguments = parser.parse_args()
    arguments.program = os.path.abspath(arguments.program)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what it has started
    if arguments.cost:
        return cost(arguments, begun)
    counts, jobs, rows = {}, [], rows_of(arguments)

    def load():
        one = next(rows, None)
        if one is not None:
            _, kind, row, faulty, _ = one
            launcher = row[1] if row[1] == "apart" else arguments.launcher or row[1]
            jobs.append((one, Job(arguments.python, launcher, row[2], "" if kind == "healthy" else row[3], faulty)))

    try:
        load()
        while jobs and time.time() - begun < arguments.seconds - LONGEST:
            one, job = jobs[0]
            try:
                job.wait_for("loaded", 60)
                load()
                job.begin()
                job.meet_fault()
                tell(arguments, counts, *one, *look_at(arguments, job))
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                print(f"{one[0]} {one[1]:8}{one[4]:9}{one[2][0]:30}{one[3]:>2}  not tried: {error}", flush=True)
                if len(jobs) == 1:
                    load()
            job.end()
            jobs.pop(0)
    finally:
        for _, job in jobs:
            job.end()
    for (seed, kind, part), right in counts.items():
        print(f"seed {seed} {kind} {part}: {sum(right)} of {len(right)} right")
    print(f"{time.time() - begun:.0f} s")
    return 0 if all(all(right) for (_, kind, _), right in counts.items() if kind == "healthy") else 1


if __name__ == "__main__":
    sys.exit(main())
