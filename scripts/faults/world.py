"""What surrounds the trials: folders, an engine of somebody else, and what is left over."""
import glob
import os
import signal
import socket
import subprocess
import time

from faults.machine import docker, engine_process, of_a_run, processes, read, send
from faults.trial import COMMAND_LIMIT_S, EXPERIMENT


def answers(path):
    """Does somebody listen at this socket?"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        return caller.connect_ex(path) == 0


class World:
    def __init__(self, options):
        self.program, self.keep = os.path.abspath(options.program), options.keep
        self.kept = os.path.abspath(options.kept)
        self.program_folder, self.test_folder = os.path.dirname(self.program), os.path.abspath(options.tests)
        self.base = "/tmp/trials"
        self.run_folder, self.cache = "/tmp/run-folder", "/tmp/cache"
        self.settings = 0  # changes that ranks of jobs agreed on
        self.compared, self.age_run_folders = 0, False
        self.foreign = None
        for folder in (self.base, self.cache, self.kept):
            os.makedirs(folder, exist_ok=True)
        if os.path.isdir(options.images):
            os.symlink(options.images, f"{self.cache}/images")
        os.environ.update(DYNAMICCL_CACHE=self.cache, DYNAMICCL_RUN_FOLDER=self.run_folder)
        os.environ.pop("DOCKER_HOST", None)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)

    def engine_folder(self):
        return "/tmp/foreign" if self.foreign else f"{self.cache}/docker"

    def socket(self):
        return f"{self.engine_folder()}/s.sock"

    def start_foreign_engine(self):
        """An engine of somebody else, which runs find and use, with a container and a network of its own."""
        os.makedirs("/tmp/foreign", exist_ok=True)
        self.foreign = "/tmp/foreign"
        self.bring_back_foreign()
        sleep = os.path.realpath("/bin/sleep")[1:]
        image = subprocess.run(
            f"tar -C / -c -h {sleep} $(ldd /bin/sleep | grep -o '/[^ ]*' | cut -c2-) | "
            f"docker --host unix://{self.socket()} import - foreign",
            shell=True,
            capture_output=True,
            text=True,
        )
        if image.returncode != 0:
            raise SystemExit("the foreign engine takes no image: " + image.stderr)
        docker(self, "network", "create", "foreign-net")
        words = ["--name", "foreign", "--network", "foreign-net", "foreign", f"/{sleep}", "100000"]
        docker(self, "run", "--detach", *words)
        self.foreign_state = self.look_at_foreign()
        if not self.foreign_state[0]:
            raise SystemExit("the foreign container does not run")

    def bring_back_foreign(self):
        for one in engine_process(self):
            send(one.pid, signal.SIGCONT)
        version = ["docker", "--host", f"unix://{self.socket()}", "version"]
        # A dockerd answers although the containerd that a fault killed does not, and starts no container then.
        daemons = answers("/tmp/foreign/exec/containerd/containerd.sock")
        if daemons and subprocess.run(version, capture_output=True).returncode == 0:
            return
        for one in engine_process(self):
            send(one.pid, signal.SIGKILL)
        for stale in ("pid", "s.sock", "exec/containerd/containerd.pid"):
            if os.path.lexists(f"/tmp/foreign/{stale}"):
                os.remove(f"/tmp/foreign/{stale}")
        time.sleep(0.3)
        with open("/tmp/foreign.log", "ab") as log:
            words = ["--data-root", "/tmp/foreign/d", "--exec-root", "/tmp/foreign/exec", "--pidfile", "/tmp/foreign/pid"]
            words = ["dockerd", "--live-restore", "--host", f"unix://{self.socket()}", *words]
            # What its daemons leave in temporary files when they are killed is the foreign engine's own.
            os.makedirs("/tmp/foreign/tmp", exist_ok=True)
            own = {**os.environ, "TMPDIR": "/tmp/foreign/tmp"}
            subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True, env=own)
        os.environ["DOCKER_HOST"] = f"unix://{self.socket()}"
        for _ in range(150):
            if subprocess.run(["docker", "version"], capture_output=True).returncode == 0:
                return
            time.sleep(0.2)
        raise SystemExit("the foreign dockerd does not start: " + read("/tmp/foreign.log")[-800:].decode())

    def holds_foreign(self, process):
        return self.foreign is not None and any(one in process.argv for one in self.foreign_state[0])

    def look_at_foreign(self):
        return (
            docker(self, "ps", "--quiet", "--no-trunc", "--filter", "name=^foreign$"),
            docker(self, "network", "ls", "--quiet", "--no-trunc", "--filter", "name=foreign-net"),
            docker(self, "inspect", "--format", "{{.State.StartedAt}}", "foreign"),
        )

    def baseline(self):
        self.seen = self.things()

    def things(self):
        """What may be left over, each as a line; a process by number and start."""
        seen = set()
        for one in processes():
            if one.pid != os.getpid() and one.argv and one.base() not in ("docker",):
                seen.add(f"process {one.pid} {one.start} {' '.join(one.argv)[:150]}")
        for line in read("/proc/mounts").decode().split("\n"):
            if line and "/tmp/trials/" not in line:
                seen.add("mount " + line.split()[1])
        # Not of /sys, which shows the network in which it was mounted.
        seen.update("link " + line.split(":")[0].strip() for line in read("/proc/net/dev").decode().split("\n")[2:-1])
        seen.update("file /dev/shm/" + name for name in os.listdir("/dev/shm"))
        seen.update("file /tmp/" + name for name in os.listdir("/tmp"))
        if os.path.isdir(self.run_folder):
            seen.update("run folder " + name for name in os.listdir(self.run_folder))
        seen.update("namespace " + name for name in (os.listdir("/run/netns") if os.path.isdir("/run/netns") else []))
        for line in read("/proc/sysvipc/shm").decode().split("\n")[1:]:
            if line:
                seen.add("shared memory segment " + line.split()[1])
        if self.foreign:
            seen.update("container " + one for one in of_a_run(self, "ps", "--all"))
            seen.update("network " + one for one in of_a_run(self, "network", "ls"))
        return seen

    def left_over(self):
        """After `clean`: what was not there before the trials."""
        if self.age_run_folders:
            self.age_run_folders = False
            for folder in glob.glob(f"{self.run_folder}/dyn-*"):
                os.utime(folder, (time.time() - 120,) * 2)
        cleaned = subprocess.run([self.program, "clean"], capture_output=True, text=True, timeout=COMMAND_LIMIT_S)
        left = set()
        if cleaned.returncode != 0:
            left.add(f"clean ended with {cleaned.returncode}: {cleaned.stderr.strip()[-300:]}")
        for _ in range(20):
            new = {one for one in self.things() - self.seen if not self.is_of_foreign(one)}
            if not new:
                break
            time.sleep(0.1)
        if self.foreign and self.look_at_foreign() != self.foreign_state:
            left.add("the foreign container or network is not as it was")
        return left | new

    def is_of_foreign(self, line):
        # An engine that a fault killed comes back under another number.
        return self.foreign is not None and line.startswith("process") and ("/tmp/foreign/" in line or "moby" in line)


def make_foreign_database(world):
    folder = f"{world.base}/foreign"
    os.makedirs(folder)
    with open(f"{folder}/x.toml", "w") as file:
        file.write(
            EXPERIMENT.format(
                environments='"bare-metal"',
                backends='"gloo"',
                collectives='"allreduce"',
                size="1KiB",
                iterations=5,
                cap=50,
                launches=2,
                retries=0,
                timeout=30,
            )
        )
    words = [world.program, "run", "x.toml", "--db", f"{world.base}/foreign.sqlite", "--no-report"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit("a run without a fault fails here: " + done.stderr)
