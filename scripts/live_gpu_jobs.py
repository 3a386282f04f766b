"""PyTorch DDP jobs on two GPUs that meet a fault and that go well, and what `dynamiccl doctor --job` says of each.

    python3 scripts/live_gpu_jobs.py --program build/release/dynamiccl [--only NAME,...] [--seed 1] [--set broken|healthy]
        [--python FILE] [--lanes 1] [--out FILE]

As scripts/live_jobs.py, whose launches are MPI's. Two ranks of scripts/live_jobs/ddp_rank.py over NCCL (over Gloo where the machine
has no GPU, to try the harness) under torchrun, or started one by one where Debian's torchrun is broken. The faulty rank is drawn by
the seed. --lanes: so many jobs at the same time, which then share the GPUs. Nothing is set beforehand; as root.
"""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import live_jobs

RANKS = 2
RANK = os.path.join(live_jobs.SOURCES, "ddp_rank.py")
SLOW_PATH = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}

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
]
HEALTHY = [(name, "torchrun", kind) for name, kind in (
    ("plain", "plain"), ("loader processes", "workers"), ("checkpoints", "checkpoint"), ("evaluation on rank 0", "evaluation"),
    ("accumulation", "accumulation"), ("uneven steps", "uneven"), ("long steps", "long-steps"), ("small calls", "small-calls"),
    ("first epoch", "first-epoch"))]


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
    def __init__(self, python, launcher, kind, deed, faulty):
        self.kind, self.deed, self.faulty = kind, deed, faulty
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

    def begin(self):
        until = time.time() + 90
        if self.kind == "first-epoch":  # looked at while it begins
            while not os.path.exists(f"{self.folder}/ready.0") and time.time() < until:
                try:
                    self.pid_of(1)
                    break
                except RuntimeError:
                    time.sleep(0.1)
            return
        while not all(os.path.exists(f"{self.folder}/ready.{rank}") for rank in range(RANKS)):
            if time.time() > until or self.process.poll() is not None:
                raise RuntimeError("the job did not begin: " + open(self.folder + "/log").read()[-500:])
            time.sleep(0.1)
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


def try_job(arguments, row, faulty, healthy):
    job = Job(arguments.python, arguments.launcher or row[1], row[2], "" if healthy else row[3], faulty)
    try:
        job.begin()
        job.meet_fault()
        time.sleep(0 if row[2] == "first-epoch" else 2)
        said, seconds = live_jobs.look(arguments.program, job)
        said["log"] = open(job.folder + "/log").read()[-1500:]
        return said, seconds
    finally:
        job.end()


def work(arguments, rows, counts, lock):
    while True:
        with lock:
            if not rows:
                return
            kind, row, faulty = rows.pop(0)
        try:
            said, seconds = try_job(arguments, row, faulty, kind == "healthy")
        except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
            print(f"{kind:8}{row[0]:32} not tried: {error}", flush=True)
            continue
        right = said["state"] not in ("hung", "slow", "failed") if kind == "healthy" else live_jobs.judge(row, faulty, said, False)
        with lock:
            counts[kind][0] += right
            counts[kind][1] += 1
            if arguments.out:
                with open(arguments.out, "a") as out:
                    out.write(json.dumps({"set": kind, "job": row[0], "planted": faulty, "right": right, "seconds": round(seconds, 2),
                                          "said": said}) + "\n")
            notes = "".join(f" [{remark['id']}]" for remark in said["remarks"])
            print(f"{kind:8}{row[0]:32}{'-' if kind == 'healthy' else faulty:>2}  {'right' if right else 'WRONG'}  {seconds:5.1f} s  "
                  f"{said['state']} {said['verdict']} {said['ranks']}: {said['says']}{notes}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/release/dynamiccl")
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", default="broken,healthy")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--launcher", default="", help="shell: without torchrun")
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--out", default="", help="one line of JSON for each job, with all that was said")
    arguments = parser.parse_args()
    arguments.program = os.path.abspath(arguments.program)
    draw = random.Random(arguments.seed)
    counts = {"broken": [0, 0], "healthy": [0, 0]}
    rows = [(kind, row, draw.randrange(RANKS)) for kind, of in (("broken", BROKEN), ("healthy", HEALTHY)) for row in of]
    rows = [(kind, row, faulty) for kind, row, faulty in rows
            if kind in arguments.set and (not arguments.only or any(word in row[0] for word in arguments.only.split(",")))]
    lock = threading.Lock()
    lanes = [threading.Thread(target=work, args=(arguments, rows, counts, lock)) for _ in range(arguments.lanes)]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    for kind, (right, tried) in counts.items():
        print(f"{kind}: {right} of {tried} right")
    return 0 if counts["healthy"][0] == counts["healthy"][1] else 1


if __name__ == "__main__":
    sys.exit(main())
