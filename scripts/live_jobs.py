"""Jobs that meet a fault and jobs that go well, and what `dynamiccl doctor --job` says of each.

    python3 scripts/live_jobs.py --program build/dev/dynamiccl [--only NAME,...] [--seed 1] [--set hung,slow,noted,healthy]

Compiles the ranks in scripts/live_jobs/ against the MPI libraries and Gloo of this machine, starts each job, lets it meet its
fault (the faulty rank is drawn by the seed), looks, and ends what it has started. Prints a table: what was planted, in which
rank, what was said, whether cause and rank are right, seconds. Ends with 1 where a healthy job is called hung or slow. Faults
are named by what they do; which verdicts would be right for each is in its row. Several programs (--program A,B) look at jobs
of their own, one after the other. As root, for networks and control groups; rows of torch where python3 has it.
"""
import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "live_jobs")
RANKS = 3
GROUP = "/sys/fs/cgroup/cpu/live-jobs"
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_hwloc_base_binding_policy="none")

# name, launcher, kind of rank, deed from outside, states that are right, words that are right, whether the rank has to be named
# Of "hosts", two process namespaces of this machine, the doctor sees one host's ranks and asks the other host for its own.
BROKEN = [
    ("stopped", "openmpi", "plain", "stop", "hung", "stopped", True),
    ("stopped", "mpich", "plain", "stop", "hung", "stopped", True),
    ("stopped", "gloo", "plain", "stop", "hung", "stopped", True),
    ("killed", "openmpi", "plain", "kill", "hung", "ended", True),
    ("killed", "openmpi-tcp", "plain", "kill", "hung", "ended", True),
    ("held by a debugger", "mpich", "plain", "trace", "hung", "debugger", True),
    ("left early", "mpich", "left-early", "", "hung", "ended|Finalize", True),
    ("other collective", "openmpi", "other-collective", "", "hung", "other-call", True),
    ("other collective", "gloo", "other-collective", "", "hung", "other-call", True),
    ("other communicator", "openmpi", "other-communicator", "", "hung", "same-call", False),
    # Who is wrong about the root cannot be seen: others may have left the call rightly.
    ("other root", "mpich", "other-root", "", "hung", "other-call", False),
    ("larger count", "openmpi", "larger-count", "", "hung", "same-call|other-call", False),
    ("other communicator", "mpich", "other-communicator", "", "hung", "same-call", False),
    ("lost message", "openmpi", "lost-message", "", "hung", "other-call|MPI_Recv", True),
    ("asleep for ever", "openmpi", "stuck-sleep", "", "hung", "held.*asleep", True),
    ("asleep for ever", "gloo", "stuck-sleep", "", "hung", "held.*asleep", True),
    ("loader's pipe is empty", "mpich", "stuck-pipe", "pipe", "hung", "held.*read of", True),
    ("lock of its own thread", "openmpi", "stuck-lock", "", "hung", "held.*lock", True),
    ("child that never ends", "openmpi", "stuck-child", "", "hung", "held.*process it started", True),
    ("circle in C", "mpich", "circle", "", "hung|waiting", "(held|waits-for).*works", True),
    ("circle in Python", "python", "python-circle", "", "hung|waiting", "(held|waits-for).*Python", True),
    ("asleep in Python", "python", "python-sleep", "", "hung", "held.*Python code, asleep", True),
    ("firewall between", "gloo", "plain", "firewall", "hung", "unreachable", False),
    ("link is down", "openmpi-tcp", "plain", "firewall", "hung", "unreachable", False),
    ("stopped", "torch", "plain", "stop", "hung", "stopped", True),
    ("other collective", "torch", "other-collective", "", "hung", "other-call|same-call", False),
    ("asleep for ever", "torch", "stuck-sleep", "", "hung", "held.*asleep", True),
    ("stopped", "hosts", "plain", "stop", "hung", "stopped", True),
    ("asleep for ever", "hosts", "stuck-sleep", "", "hung", "held.*asleep", True),
    ("other collective", "hosts", "other-collective", "", "hung", "other-call", True),
    ("slow loader", "hosts", "slow-loader", "", "slow", "late.*asleep", True),
    ("slow loader", "openmpi", "slow-loader", "", "slow", "late.*asleep", True),
    ("slow loader", "gloo", "slow-loader", "", "slow", "late.*asleep", True),
    ("slow pipe", "mpich", "slow-pipe", "trickle", "slow", "late.*read of", True),
    ("slow loader", "torch", "slow-loader", "", "slow", "late.*asleep", True),
    ("more work", "torch", "more-work", "", "slow", "late", True),
    ("slow loader in Python", "python", "python-loader", "", "slow", "late.*Python code, asleep", True),
    ("slow in Python", "python", "python-slow", "", "slow", "late.*Python", True),
    ("more work", "openmpi", "more-work", "", "slow", "late", True),
    ("more work", "gloo", "more-work", "", "slow", "late", True),
    ("nice beside a busy core", "gloo", "plain", "nice", "slow", "starved", True),
    ("busy core", "openmpi", "plain", "busy", "slow", "starved", True),
    ("limit of a control group", "openmpi", "plain", "limit", "slow", "throttled", True),
    ("small /dev/shm", "mpich", "plain", "shm", "running", "NOTE shm-small", False),
    ("user namespaces apart", "openmpi", "plain", "userns", "running", "NOTE user-namespaces", False),
    ("two copies of a library", "openmpi", "two-libraries", "copy", "running", "NOTE two-libraries", False),
    ("all on one core", "openmpi", "plain", "one-core", "running|slow", "NOTE one-core", False),
]
HEALTHY = [
    ("plain", "openmpi", "plain"), ("plain", "mpich", "plain"), ("plain", "gloo", "plain"),
    ("small calls back to back", "openmpi", "fast"), ("small calls back to back", "mpich", "fast"),
    ("large calls back to back", "openmpi", "large"), ("large calls back to back", "mpich", "large"),
    ("long steps", "openmpi", "long-steps"), ("checkpoints", "openmpi", "checkpoint"),
    ("checkpoints", "mpich", "checkpoint"), ("evaluation on rank 0", "openmpi", "evaluation"),
    ("evaluation on rank 0", "mpich", "evaluation"), ("long evaluation on rank 0", "openmpi", "long-evaluation"),
    ("long evaluation on rank 0", "mpich", "long-evaluation"), ("long checkpoint on rank 0", "openmpi", "long-checkpoint"),
    ("long checkpoint on rank 0", "mpich", "long-checkpoint"), ("reduce to rank 0", "openmpi", "reduce"),
    ("pipeline", "openmpi", "pipeline"), ("pipeline", "mpich", "pipeline"), ("first epoch", "openmpi", "first-epoch"),
    ("first epoch", "mpich", "first-epoch"), ("uneven steps", "openmpi", "uneven"), ("reads files", "mpich", "reads-files"),
    ("overlap", "openmpi", "overlap"), ("Python", "python", "plain"), ("one rank", "alone", "plain"),
    ("plain", "torch", "plain"), ("evaluation on rank 0", "torch", "evaluation"), ("checkpoints", "torch", "checkpoint"),
    ("small calls back to back", "gloo", "fast"), ("plain", "hosts", "plain"), ("small calls back to back", "hosts", "fast"),
]


def run(*argv, **options):
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, **options).stdout


def below(root):
    """Process ids below one, itself first."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = open(f"/proc/{entry}/stat").read()
                children.setdefault(int(text[text.rindex(")") + 2:].split()[1]), []).append(int(entry))
            except (OSError, ValueError):
                pass
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def is_rank(pid, rank):
    try:
        words = open(f"/proc/{pid}/environ", "rb").read().split(b"\0")
        program = os.path.basename(open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")[0])
    except OSError:
        return False
    numbers = [b"%s=%d" % (name, rank) for name in (b"OMPI_COMM_WORLD_RANK", b"PMI_RANK", b"RANK")]
    return any(number in words for number in numbers) and program.startswith((b"rank.", b"gloo_rank", b"python"))


class Job:
    def __init__(self, build, launcher, kind, deed, faulty):
        self.build, self.launcher, self.kind, self.deed = build, launcher, kind, deed
        self.folder = tempfile.mkdtemp(prefix="live-job-")
        self.helpers = []
        self.ranks = 1 if launcher == "alone" else RANKS
        self.faulty = faulty % self.ranks
        environment = dict(ENVIRONMENT)
        if deed == "pipe" or deed == "trickle":
            os.mkfifo(self.folder + "/pipe")
        if deed == "copy":
            library = self.folder + "/libmpi.so.40.copy"
            shutil.copy(os.path.realpath("/usr/lib/x86_64-linux-gnu/libmpi.so.40"), library)
            environment["SECOND_LIBRARY"] = library
        self.port = str(random.randrange(20000, 40000))
        self.process = subprocess.Popen(self.command(), env=environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def command(self):
        rank = [f"{self.build}/rank.{'mpich' if self.launcher == 'mpich' else 'openmpi'}"]
        words = [self.kind, str(self.faulty), self.folder]
        if self.deed == "userns":
            rank = ["unshare", "--user", "--map-root-user"] + rank
        prefix = []
        if self.deed == "shm":
            prefix = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs -o size=32m none /dev/shm && exec \"$@\"", "sh"]
        if self.deed == "one-core":
            prefix = ["taskset", "-c", "0"]
        if self.deed == "firewall":
            prefix = ["unshare", "--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]
        if self.launcher == "hosts":
            rank = "RANK=$r WORLD_SIZE=3 MASTER_PORT=%s %s/gloo_rank %s 127.0.0.1" % (self.port, self.build, " ".join(words))
            host = "unshare --pid --fork --mount-proc sh -c 'for r in %s; do " + rank + " & done; wait' &"
            return ["sh", "-c", host % "0 1" + host % "2" + " wait"]
        if self.launcher in ("gloo", "torch"):
            rank = [f"{self.build}/gloo_rank"]
            if self.launcher == "torch":
                rank = [os.path.realpath("/usr/bin/python3"), SOURCES + "/torch_rank.py"]
            start = "for r in 0 1 2; do RANK=$r WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 \"$@\" 127.0.0.1 & done; wait"
            return prefix + ["sh", "-c", start, "sh"] + rank + words
        if self.launcher == "python":
            rank = [os.path.realpath("/usr/bin/python3"), SOURCES + "/python_rank.py"]
        if self.launcher == "mpich":
            return prefix + ["mpiexec.mpich", "-disable-auto-cleanup", "-n", str(self.ranks)] + rank + words
        tcp = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"] if self.launcher == "openmpi-tcp" else []
        return prefix + ["mpirun.openmpi", "--oversubscribe", "--enable-recovery"] + tcp + ["-np", str(self.ranks)] + \
            rank + words

    def pid_of(self, rank):
        for pid in below(self.process.pid):
            if is_rank(pid, rank):
                return pid
        raise RuntimeError(f"no rank {rank}")

    def begin(self):
        until = time.time() + 60
        while not all(os.path.exists(f"{self.folder}/ready.{rank}") for rank in range(self.ranks)):
            if time.time() > until or self.process.poll() is not None:
                raise RuntimeError("the job did not begin")
            time.sleep(0.1)
        time.sleep(1)

    def named(self):
        """What the doctor is asked for."""
        if self.launcher != "hosts":
            return ["--job", str(self.process.pid)]
        firsts = {self.pid_of(0): "a", self.pid_of(2): "b"}
        for pid, host in firsts.items():
            above = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1]
            with open(f"{self.folder}/{host}", "w") as file:
                file.write(above)
        with open(self.folder + "/into", "w") as file:
            file.write(f'#!/bin/sh\nhost=$1; shift\nexec nsenter --target "$(cat {self.folder}/$host)" --pid --mount sh -c "$*"\n')
        os.chmod(self.folder + "/into", 0o755)
        return ["--job", "MASTER_PORT=" + self.port, "--hosts", "a,b", "--remote-shell", self.folder + "/into"]

    def meet_fault(self):
        pid = self.pid_of(self.faulty)
        if self.deed == "stop":
            os.kill(pid, signal.SIGSTOP)
        elif self.deed == "kill":
            os.kill(pid, signal.SIGKILL)
        elif self.deed == "trace":
            self.help("gdb", "-batch", "-nx", "-p", str(pid), "-ex", "shell sleep 60")
            time.sleep(3)
        elif self.deed == "trickle":
            self.help("sh", "-c", f"exec 3<>{self.folder}/pipe; while :; do echo row >&3; sleep 0.2; done")
        elif self.deed in ("nice", "busy"):
            core = str(min(os.sched_getaffinity(pid)))
            run("taskset", "-apc", core, str(pid))
            if self.deed == "nice":
                run("renice", "-n", "15", "-p", str(pid))
            for _ in range(1 if self.deed == "nice" else 4):
                self.help("timeout", "40", "taskset", "-c", core, "sh", "-c", "while :; do :; done")
        elif self.deed == "limit":
            os.makedirs(GROUP, exist_ok=True)
            open(GROUP + "/cpu.cfs_quota_us", "w").write("20000")
            open(GROUP + "/cgroup.procs", "w").write(str(pid))
        elif self.deed == "firewall":
            how = ["ip", "link", "set", "lo", "down"]
            if self.launcher == "gloo":
                how = ["iptables", "-A", "INPUT", "-i", "lo", "-j", "DROP"]
            run("nsenter", "-t", str(pid), "-n", *how)
        if self.deed in ("", "pipe", "trickle"):
            open(self.folder + "/go", "w").close()

    def help(self, *argv):
        self.helpers.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                             stderr=subprocess.DEVNULL, start_new_session=True))

    def end(self):
        for process in self.helpers + [self.process]:
            for pid in below(process.pid) + [process.pid]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.deed == "limit":
            for _ in range(20):
                try:
                    os.rmdir(GROUP)
                    break
                except OSError:
                    time.sleep(0.1)


def compile_ranks(build):
    run("mpicc.openmpi", "-O2", "-o", build + "/rank.openmpi", SOURCES + "/rank.c", "-ldl", "-lpthread")
    run("mpicc.mpich", "-O2", "-o", build + "/rank.mpich", SOURCES + "/rank.c", "-ldl", "-lpthread")
    run("g++", "-O2", "-std=c++17", "-o", build + "/gloo_rank", SOURCES + "/gloo_rank.cpp", "-lgloo", "-lpthread")


def look(program, job):
    begun = time.time()
    said = subprocess.run([program, "doctor", "--json"] + job.named(), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True)
    seconds = time.time() - begun
    try:
        return json.loads(said.stdout), seconds
    except ValueError:
        return {"state": "failed", "verdict": f"code {said.returncode}", "says": said.stderr.strip(), "ranks": [],
                "remarks": [], "evidence": [], "seconds": 0, "core_seconds": 0}, seconds


def try_job(program, build, row, faulty, healthy, wait):
    name, launcher, kind = row[:3]
    deed = "" if healthy else row[3]
    job = Job(build, launcher, kind, deed, faulty)
    try:
        job.begin()
        job.meet_fault()
        time.sleep(wait)
        return look(program, job)
    finally:
        job.end()


def judge(row, faulty, said, healthy):
    if healthy:
        return said["state"] in ("running", "waiting")
    states, words, ranked = row[4:7]
    notes = " ".join("NOTE " + remark["id"] for remark in said["remarks"])
    text = f"{said['verdict']}: {said['says']} {notes}"
    return (said["state"] in states.split("|") and re.search(words, text) is not None
            and (not ranked or said["ranks"] == [faulty]))


def set_of(row):
    """What a row's job is: healthy, hung, slow, or noted (a cause that need not show yet)."""
    if len(row) == 3:
        return "healthy"
    return "noted" if row[4].startswith("running") else row[4].split("|")[0]


def tell(row, faulty, said, seconds, verbose):
    kind = set_of(row)
    right = judge(row, faulty, said, kind == "healthy")
    planted = "-" if kind == "healthy" else str(faulty)
    notes = "".join(f" [{remark['id']}]" for remark in said["remarks"])
    cost = 100 * said["core_seconds"] / max(said["seconds"], 0.1)
    print(f"{kind:8}{row[0] + ' (' + row[1] + ')':42}{planted:>2}  {'right' if right else 'WRONG'}  {seconds:5.1f} s {cost:4.1f} %  "
          f"{said['state']} {said['verdict']} {said['ranks']}: {said['says']}{notes}", flush=True)
    if verbose or not right:
        print("\n".join("        " + line for line in said["evidence"]), flush=True)
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/dev/dynamiccl")
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", default="hung,slow,noted,healthy")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what it has started
    programs = [os.path.abspath(program) for program in arguments.program.split(",")]
    draw = random.Random(arguments.seed)
    looks = {}
    with tempfile.TemporaryDirectory(prefix="live-jobs-") as build:
        compile_ranks(build)
        for row in BROKEN + HEALTHY:
            faulty = draw.randrange(RANKS)
            kind, title = set_of(row), f"{row[0]} ({row[1]})"
            if kind not in arguments.set.split(",") or not any(word in title for word in arguments.only.split(",")):
                continue
            for program in programs:
                try:
                    said, seconds = try_job(program, build, row, faulty, kind == "healthy", 1.5)
                except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
                    print(f"{kind:8}{title:42} not tried: {error}", flush=True)
                    continue
                right = tell(row, faulty, said, seconds, arguments.verbose)
                looks.setdefault((program, kind), []).append((right, seconds))
    for (program, kind), found in looks.items():
        times = sorted(seconds for _, seconds in found)
        print(f"{program} {kind}: {sum(right for right, _ in found)} of {len(found)} right; a look took "
              f"{times[len(times) // 2]:.1f} s, {times[-1]:.1f} at most; load {os.getloadavg()[0]:.0f}")
    return 0 if all(right for (_, kind), found in looks.items() if kind == "healthy" for right, _ in found) else 1


if __name__ == "__main__":
    sys.exit(main())
