"""The faults. Each is given the trial and the running command, and says what it did; "" = met nothing."""
import fcntl
import glob
import os
import random
import shutil
import signal
import sqlite3
import time

from faults.machine import docker, engine_process, is_launcher, is_rank, of_a_run, processes, read, send
from faults.trial import has_unfinished_run


def wait_for(child, find, limit=20.0):
    """What find() gives once it is not empty; empty when the command ended before."""
    end = time.monotonic() + limit
    while time.monotonic() < end and child.poll() is None:
        if found := find():
            return found
        time.sleep(0.01)
    return []


def orchestrators(child):
    return [child.pid] if child.poll() is None else []


def kill_orchestrator(trial, child):
    return "SIGKILL" if orchestrators(child) and send(child.pid, signal.SIGKILL) else ""


def signal_orchestrator(trial, child):
    # QUIT ends it at once, as KILL does; PIPE it does not heed.
    number = random.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE])
    if not orchestrators(child) or not send(child.pid, number):
        return ""
    if random.random() < 0.3:  # an impatient user
        time.sleep(random.uniform(0, 0.3))
        send(child.pid, number)
    return number.name


def stop_orchestrator(trial, child):
    if not orchestrators(child) or not send(child.pid, signal.SIGSTOP):
        return ""
    time.sleep(random.uniform(0.1, 2.5))
    send(child.pid, signal.SIGCONT)
    return "SIGSTOP for a while"


def kill_ranks(trial, child):
    ranks = wait_for(child, lambda: [one for one in processes() if is_rank(one)])
    if not ranks:
        return ""
    time.sleep(random.uniform(0, 0.3))
    number = random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM])
    return number.name if send(random.choice(ranks).pid, number) else ""


def stop_rank(trial, child):
    ranks = wait_for(child, lambda: [one for one in processes() if is_rank(one)])
    if not ranks:
        return ""
    rank = random.choice(ranks)
    time.sleep(random.uniform(0, 0.2))
    if not send(rank.pid, signal.SIGSTOP):
        return ""
    if random.random() < 0.3:
        return "SIGSTOP without end"
    time.sleep(random.uniform(0.1, 2))
    send(rank.pid, signal.SIGCONT)
    return "SIGSTOP for a while"


def kill_launcher(trial, child):
    launchers = wait_for(child, lambda: [one for one in processes() if is_launcher(one)], 8)
    if not launchers:
        return ""
    time.sleep(random.uniform(0, 0.4))
    return "SIGKILL" if send(random.choice(launchers).pid, signal.SIGKILL) else ""


def fill(folder, child):
    """Takes all space of the folder's disk until the command ends or a while has passed."""
    path, end = f"{folder}/ballast", time.monotonic() + random.uniform(0.2, 3)
    block = b"x" * 65536
    with open(path, "wb", buffering=0) as file:
        while time.monotonic() < end and child.poll() is None:
            try:
                file.write(block)
            except OSError:
                block = block[: max(1, len(block) // 2)]
                if len(block) == 1:
                    time.sleep(0.02)
    os.remove(path)


def fill_disk(trial, child):
    if child.poll() is not None:
        return ""
    fill(trial.folder, child)
    return "the disk of database and launches full for a while"


def fill_shared_memory(trial, child):
    if child.poll() is not None:
        return ""
    fill("/dev/shm", child)
    return "/dev/shm full for a while"


def lock_database(trial, child):
    if not wait_for(child, lambda: [trial.db] if os.path.exists(trial.db) else []):
        return ""
    connection = sqlite3.connect(trial.db, timeout=5, isolation_level=None)
    try:
        connection.execute(random.choice(["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"]))
        held = random.uniform(0.2, 3) if random.random() < 0.9 else 32
        end = time.monotonic() + held
        while time.monotonic() < end and child.poll() is None:
            time.sleep(0.02)
        connection.execute("ROLLBACK")
        return f"a write lock held for {'longer than is waited' if held > 30 else 'a while'}"
    except sqlite3.OperationalError:
        return ""  # the run wrote all the time, or has not made the file yet
    finally:
        connection.close()


def replace_database(trial, child):
    if not wait_for(child, lambda: [trial.db] if os.path.exists(trial.db) else []):
        return ""
    # The command stands still meanwhile: what is stored at this moment is known.
    send(child.pid, signal.SIGSTOP)
    try:
        time.sleep(0.02)
        trial.look()
        ended = has_unfinished_run(trial) is None
        how = random.choice(["moved", "replaced", "deleted", "truncated", "overwritten"])
        spare, foreign = f"{trial.folder}/moved.sqlite", f"{trial.world.base}/foreign.sqlite"
        if how in ("moved", "replaced", "deleted"):
            os.link(trial.db, spare)
            os.remove(trial.db)
        if how == "replaced":
            shutil.copy(foreign, trial.db)
        if how == "truncated":
            os.truncate(trial.db, random.choice([0, 1000, 4096, 16384]))
        if how == "overwritten":
            with open(trial.db, "r+b") as file:
                file.write(read(foreign))
                file.truncate()
        before = read(trial.db)
    finally:
        send(child.pid, signal.SIGCONT)
    code = trial.wait(child)
    # After the end of the run is stored nothing more is written, and nothing can be noticed.
    if code == 0 and not ended:
        trial.problem(f"database {how}, unnoticed by the run")
    if how in ("replaced", "overwritten") and read(trial.db) != before:
        trial.problem("another's database was written into")
    if how in ("replaced", "overwritten") and os.path.exists(trial.db + "-wal") and os.path.getsize(trial.db + "-wal"):
        trial.problem("a log is left that would be applied to another's database")
    if how in ("truncated", "overwritten"):
        trial.lost = how
        return how
    for suffix in ("", "-wal", "-shm"):
        if os.path.exists(trial.db + suffix):
            os.remove(trial.db + suffix)
    os.rename(spare, trial.db)
    return how


def remove_launch_folder(trial, child):
    folders = wait_for(
        child,
        lambda: [one for one in glob.glob(f"{trial.out}/*/*-*") if not glob.glob(f"{one}/rank*.jsonl")]
        if random.random() < 0.5
        else [one for one in glob.glob(f"{trial.out}/*/*-*") if os.path.basename(one) not in trial.stored],
        10,
    )
    if not folders:
        return ""
    folder = random.choice(folders)
    trial.removed.add(os.path.basename(folder))
    time.sleep(random.uniform(0, 0.3))
    shutil.rmtree(folder, ignore_errors=True)
    return "removed"


def spoil_run_folder(trial, child):
    """What names the owner of a run's own folder becomes a pipe, a device's endless file, or goes."""
    owners = wait_for(child, lambda: glob.glob(f"{trial.world.run_folder}/dyn-*/owner"), 10)
    if not owners:
        return ""
    how = random.choice(["pipe", "link to /dev/zero", "gone"])
    try:
        os.remove(owners[0])
        if how == "pipe":
            os.mkfifo(owners[0])
        if how == "link to /dev/zero":
            os.symlink("/dev/zero", owners[0])
    except OSError:
        return ""
    if random.random() < 0.5:
        time.sleep(random.uniform(0, 0.2))
        send(child.pid, signal.SIGKILL)
    # Without a token its maker may be between two steps: it counts as left over after a minute.
    trial.world.age_run_folders = True
    return how




def kill_container(trial, child):
    world = trial.world
    found = wait_for(child, lambda: of_a_run(world, "ps"), 40)
    if not found:
        return ""
    time.sleep(random.uniform(0, 1))
    how = random.choice(["kill", "rm", "pause", "disconnect"])
    victim = random.choice(found)
    if how == "disconnect":
        for network in of_a_run(world, "network", "ls"):
            docker(world, "network", "disconnect", "--force", network, victim)
        return how
    done = docker(world, *{"kill": ["kill"], "rm": ["rm", "--force"], "pause": ["pause"]}[how], victim)
    if how == "pause" and random.random() < 0.7:
        time.sleep(random.uniform(0.2, 2))
        docker(world, "unpause", victim)
    return how if done else ""




def kill_engine(trial, child):
    name = random.choice(["dockerd", "dockerd", "containerd", "containerd-shim"])
    # The shim of the foreign container is that container: without it, it ends.
    mine = lambda: [one for one in engine_process(trial.world, (name,)) if not trial.world.holds_foreign(one)]
    found = wait_for(child, mine, 30)
    if not found:
        return ""
    time.sleep(random.uniform(0, 3))
    hit = send(random.choice(found).pid, signal.SIGKILL)
    return name if hit else ""


def stop_engine(trial, child):
    found = wait_for(child, lambda: engine_process(trial.world, ("dockerd",)), 30)
    if not found:
        return ""
    time.sleep(random.uniform(0, 3))
    if not send(found[0].pid, signal.SIGSTOP):
        return ""
    time.sleep(random.uniform(0.3, 4))
    send(found[0].pid, signal.SIGCONT)
    return "SIGSTOP for a while"


def lock_engine(trial, child):
    path = f"{trial.world.engine_folder()}/start.lock"
    if not wait_for(child, lambda: [path] if os.path.exists(path) else [], 10):
        return ""
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return ""
        time.sleep(random.uniform(0.2, 3))
    return "start.lock held for a while"


BARE = {
    "kill-orchestrator": kill_orchestrator,
    "signal-orchestrator": signal_orchestrator,
    "stop-orchestrator": stop_orchestrator,
    "kill-rank": kill_ranks,
    "stop-rank": stop_rank,
    "kill-launcher": kill_launcher,
    "fill-disk": fill_disk,
    "fill-shared-memory": fill_shared_memory,
    "lock-database": lock_database,
    "replace-database": replace_database,
    "remove-launch-folder": remove_launch_folder,
    "spoil-run-folder": spoil_run_folder,
}
CONTAINERS = {
    "kill-container": kill_container,
    "kill-engine": kill_engine,
    "stop-engine": stop_engine,
    "lock-engine": lock_engine,
    "kill-orchestrator-containers": kill_orchestrator,
    "kill-rank-containers": kill_ranks,
}
