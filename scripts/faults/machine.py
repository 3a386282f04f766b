"""What is seen of the machine: processes, and containers of an engine."""
import os
import subprocess


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


class Process:
    def __init__(self, pid):
        self.pid = pid
        self.argv = [word.decode(errors="replace") for word in read(f"/proc/{pid}/cmdline").split(b"\0")[:-1]]
        stat = read(f"/proc/{pid}/stat").decode(errors="replace")
        self.name = stat[stat.find("(") + 1 : stat.rfind(")")]
        fields = stat[stat.rfind(")") + 2 :].split()
        self.state = fields[0] if fields else "X"
        self.parent = fields[1] if len(fields) > 1 else ""
        self.start = fields[19] if len(fields) > 19 else ""

    def base(self):
        return os.path.basename(self.argv[0]) if self.argv else self.name


def processes():
    found = [Process(int(name)) for name in os.listdir("/proc") if name.isdigit()]
    return [one for one in found if one.state not in "ZX"]


def session_seconds(leader):
    """Processor time of what lives of a session, and of children that were waited for."""
    ticks = 0
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/stat") as file:
                words = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(words[3]) == leader:
            ticks += sum(map(int, words[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def is_rank(process):
    return process.base().startswith("dynamiccl-worker")


def is_launcher(process):
    return process.base() in {"mpirun.openmpi", "mpirun", "orted", "mpiexec.hydra", "mpiexec.mpich", "hydra_pmi_proxy"}


def send(pid, number):
    try:
        os.kill(pid, number)
        return True
    except OSError:
        return False


def docker(world, *arguments):
    done = subprocess.run(["docker", "--host", f"unix://{world.socket()}", *arguments], capture_output=True, text=True)
    return done.stdout.split() if done.returncode == 0 else []


def of_a_run(world, *listing):
    return docker(world, *listing, "--quiet", "--filter", "label=dynamiccl.run")


def engine_process(world, names=("dockerd", "containerd")):
    return [
        one
        for one in processes()
        if one.name in names and any(world.engine_folder() + "/" in word for word in one.argv)
    ]
