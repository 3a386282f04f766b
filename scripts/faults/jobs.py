"""Jobs that load the plugin, on CPUs, and the faults that meet them: its tuner's leader and folder.

Unlike runs these have no database: a job is started, met by one fault, and judged by what its ranks say."""
import glob
import os
import random
import shutil
import signal
import subprocess
import time

from faults.machine import processes, read, send, session_seconds

JOB_LIMIT_S = 90


class Job:
    """A folder of its own on a disk of its own, processes, and what was found wrong."""

    def __init__(self, number, world):
        self.number, self.world = number, world
        self.faults, self.problems, self.lost = [], [], None
        self.base = f"{world.base}/t{number}"
        os.makedirs(self.base)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,nr_inodes=400,mode=700", "trial", self.base], check=True)
        self.folder = f"{self.base}/folder"
        os.mkdir(self.folder, 0o700)
        # What ranks write down lies elsewhere: a fault may fill the folder's disk.
        self.records = f"{world.base}/t{number}.records"
        os.mkdir(self.records)
        self.log = f"{world.base}/t{number}.log"
        open(self.log, "w").close()
        self.children = []

    def problem(self, text):
        self.problems.append(text)

    def start(self, argv, variables=None):
        with open(self.log, "ab") as log:
            log.write(("$ " + " ".join(argv) + "\n").encode())
        out = open(self.log, "ab")
        # As an ordinary program: what it leaves is its own.
        child = subprocess.Popen(
            argv, cwd=self.base, env={**os.environ, **(variables or {})}, stdout=out, stderr=out, start_new_session=True
        )
        out.close()
        self.children.append(child)
        return child

    def wait(self, child, limit, what):
        """@returns its exit code; None: it hangs, be it asleep or spinning. Where cores are scarce, limits are of its own time."""
        began = moved = time.monotonic()
        used = 0
        while True:
            try:
                return child.wait(1)
            except subprocess.TimeoutExpired:
                now, before = time.monotonic(), used
                used = max(used, session_seconds(child.pid))
                moved = now if used > before else moved
            if now - began > limit and (used > limit or now - moved > limit / 3):
                self.problem(f"{what} still runs after {now - began:.0f} s, {used:.0f} s of them on a core")
                return None

    def said(self):
        return read(self.log).decode(errors="replace")

    def close(self):
        for child in self.children:
            if child.poll() is None:
                send(child.pid, signal.SIGCONT)
                child.kill()
            child.wait()
        if self.problems or self.world.keep:
            shutil.copy(self.log, f"{self.world.kept}/t{self.number}.log")
            shutil.copytree(self.base, f"{self.world.kept}/t{self.number}", dirs_exist_ok=True, ignore=special)
            shutil.copytree(self.records, f"{self.world.kept}/t{self.number}.records", dirs_exist_ok=True)
        shutil.rmtree(self.records)
        os.remove(self.log)
        if subprocess.run(["umount", self.base], capture_output=True).returncode != 0:
            self.problem("the trial's folder is still in use")
            subprocess.run(["umount", "-l", self.base])
        os.rmdir(self.base)


def special(folder, names):
    """Sockets and pipes are not copied."""
    return [name for name in names if not os.path.isfile(f"{folder}/{name}") and not os.path.isdir(f"{folder}/{name}")]


def fill_inodes(folder, seconds):
    """No file can be made on the folder's disk for a while."""
    made, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            path = f"{folder}/ballast-{len(made)}"
            open(path, "w").close()
            made.append(path)
        except OSError:
            time.sleep(0.01)
    for path in made:
        os.remove(path)


def fill_blocks(folder, seconds):
    """Nothing can be written on the folder's disk for a while."""
    path, end = f"{folder}/ballast", time.monotonic() + seconds
    with open(path, "wb", buffering=0) as file:
        while time.monotonic() < end:
            try:
                file.write(b"x" * 65536)
            except OSError:
                time.sleep(0.01)
    os.remove(path)


class TunedJob(Job):
    """Ranks of one host that ask the plugin's tuner for every call's setting, and a leader that changes it all the time."""

    def __init__(self, number, world):
        super().__init__(number, world)
        self.ranks_count, self.calls = random.choice([2, 3]), 2500
        self.leader = self.start_leader()
        plugin = f"{world.program_folder}/libdynamiccl-nccl-plugin.so"
        variables = {"NCCL_TUNER_PLUGIN": plugin, "NCCL_PROFILER_PLUGIN": plugin, "DYNAMICCL_TUNER_FOLDER": self.folder}
        self.ranks = []
        for rank in range(self.ranks_count):
            words = [rank, self.ranks_count, 1000 + number, f"{self.records}/sync", f"{self.records}/log{rank}", self.calls]
            program = f"{world.test_folder}/tuned-rank"
            self.ranks.append(self.start([program, *map(str, words)], variables))

    def start_leader(self):
        words = ["--agent", "random", "--calls", "4", "--seed", str(self.number)]
        return self.start([f"{self.world.program_folder}/dynamiccl-leader", self.folder, *words])

    def began(self):
        """Waits until the ranks have made some calls, so that a fault meets a job and not its start."""
        end = time.monotonic() + 20
        while time.monotonic() < end and not all(len(read(f"{self.records}/log{r}")) > 200 for r in range(self.ranks_count)):
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.6))

    def judge(self):
        codes = [self.wait(rank, JOB_LIMIT_S, "a rank") for rank in self.ranks]
        if any(code != 0 for code in codes):
            self.problem(f"ranks ended with {codes}")
        logs = [read(f"{self.records}/log{rank}").decode().split("\n")[:-1] for rank in range(self.ranks_count)]
        if any(len(lines) != self.calls for lines in logs):
            self.problem(f"ranks made {[len(lines) for lines in logs]} of {self.calls} calls")
        for rank, lines in enumerate(logs[1:], 1):
            differing = [call for call, (mine, first) in enumerate(zip(lines, logs[0])) if mine != first]
            if differing:
                self.problem(f"ranks 0 and {rank} got different settings for call {differing[0]}")
        self.world.settings += sum(a != b for a, b in zip(logs[0], logs[0][2:]))
        # It ends when its jobs do, whoever started it.
        for child in self.children:
            if child not in self.ranks:
                self.wait(child, 30, "a leader")


def kill_leader(job):
    job.began()
    if not send(job.leader.pid, signal.SIGKILL):
        return ""
    job.leader.wait()
    if random.random() < 0.7:
        time.sleep(random.uniform(0, 0.3))
        job.start_leader()
        return "SIGKILL, another one started"
    return "SIGKILL"


def stop_leader(job):
    job.began()
    if not send(job.leader.pid, signal.SIGSTOP):
        return ""
    time.sleep(random.uniform(0.05, 1))
    send(job.leader.pid, signal.SIGCONT)
    return "SIGSTOP for a while"


def spoil_tuner_folder(job):
    """Cutting a region short is not among these: SECURITY.md says what that does."""
    job.began()
    how = random.choice(["regions removed", "regions replaced", "moved", "deleted", "disk full", "no inodes"])
    regions = glob.glob(f"{job.folder}/*.region")
    if how == "regions removed":
        for region in regions:
            os.remove(region)
    elif how == "regions replaced":
        for region in regions:
            with open(region + ".new", "wb") as file:
                file.write(os.urandom(random.choice([0, 100, 200_000])))
            os.rename(region + ".new", region)
    elif how == "moved":
        os.rename(job.folder, job.folder + "-moved")
    elif how == "deleted":
        shutil.rmtree(job.folder, ignore_errors=True)
    else:
        (fill_blocks if how == "disk full" else fill_inodes)(job.folder, random.uniform(0.1, 0.8))
    # A leader that comes now meets what is left.
    if os.path.isdir(job.folder) and random.random() < 0.5 and send(job.leader.pid, signal.SIGKILL):
        job.leader.wait()
        job.start_leader()
        how += ", another leader started"
    return how


JOBS = {
    "kill-leader": (TunedJob, kill_leader),
    "stop-leader": (TunedJob, stop_leader),
    "spoil-tuner-folder": (TunedJob, spoil_tuner_folder),
}


def job_trial(number, world, kind, counts):
    """One job of the kind with one fault. @returns it, judged"""
    make, fault = JOBS[kind]
    job = make(number, world)
    did = fault(job)
    if did:
        job.faults.append((kind, did))
        counts[kind] += 1
    job.judge()
    return job
