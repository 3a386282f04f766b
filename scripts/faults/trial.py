"""One experiment that faults meet, and the judgement of what is stored of it."""
import glob
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess

from faults.machine import read, send

COMMAND_LIMIT_S = 150
# Ended by the signal itself, which shells show as 128 and more: it came before the program had begun or after its end.
ALLOWED_ENDS = {0, 1, 2, 129, 130, 143, -signal.SIGHUP, -signal.SIGINT, -signal.SIGTERM, -signal.SIGQUIT}

EXPERIMENT = """name = "fault"
[axes]
environment = [{environments}]
backend = [{backends}]
architecture = "ring"
ranks = 2
[[work]]
collective = [{collectives}]
size = "{size}"
[protocol]
warmup = 0
iterations = {iterations}
cell_time_cap = "{cap}ms"
launches = {launches}
retries = {retries}
launch_timeout = "{timeout}s"
"""


def quoted(words):
    return ", ".join(f'"{word}"' for word in words)


class Trial:
    """One experiment with its database, files and what was seen of it so far."""

    def __init__(self, number, world, containers):
        self.number, self.world = number, world
        self.folder = f"{world.base}/t{number}"
        os.makedirs(self.folder)
        # A disk of its own, so that filling it fills nothing else.
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "trial", self.folder], check=True)
        self.db, self.out = f"{self.folder}/db.sqlite", f"{self.folder}/out"
        self.log = f"{world.base}/t{number}.log"
        self.faults, self.problems = [], []
        self.stored = {}  # launches that were ok when last looked at: uuid -> digest of their samples
        self.removed = set()  # launch folders that a fault took away
        self.lost = None  # why the database cannot be judged any more
        dice = random
        if containers:
            environments = [dice.choice(["cross-docker", "single-docker"])]
            backends = dice.sample(["gloo", "openmpi"], dice.choice([1, 1, 2]))
            self.launches = dice.choice([1, 2])
        else:
            environments = ["bare-metal"]
            backends = dice.sample(["gloo", "openmpi", "mpich"], dice.choice([1, 1, 2]))
            self.launches = dice.choice([2, 3])
        self.groups = len(backends)
        with open(f"{self.folder}/x.toml", "w") as file:
            file.write(
                EXPERIMENT.format(
                    environments=quoted(environments),
                    backends=quoted(backends),
                    collectives=quoted(dice.choice([["allreduce"], ["allreduce", "broadcast"]])),
                    size=dice.choice(["1KiB", "1MiB"]),
                    iterations=dice.choice([5, 100, 500]),
                    cap=500,
                    launches=self.launches,
                    retries=dice.choice([0, 0, 1]),
                    timeout=40 if containers else 12,
                )
            )

    def start(self, resume):
        argv = [self.world.program, "run", "x.toml", "--db", self.db, "--out", self.out, "--no-report"]
        argv += ["--resume"] if resume else []
        with open(self.log, "ab") as log:
            log.write(("$ " + " ".join(argv) + "\n").encode())
        self.log_from = os.path.getsize(self.log)
        out = open(self.log, "ab")
        child = subprocess.Popen(argv, cwd=self.folder, stdout=out, stderr=out, start_new_session=True)
        out.close()
        return child

    def said(self):
        with open(self.log, "rb") as file:
            file.seek(self.log_from)
            return file.read().decode(errors="replace")

    def wait(self, child):
        try:
            code = child.wait(COMMAND_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.problem(f"a command did not end within {COMMAND_LIMIT_S} s")
            send(child.pid, signal.SIGKILL)
            child.wait()
            return None
        if code not in ALLOWED_ENDS and code != -signal.SIGKILL:
            self.problem(f"a command ended with {code}")
        if "bug in DynamICCL" in self.said():
            self.problem("a command called itself a bug")
        return code

    def problem(self, text):
        self.problems.append(text)

    # Reads without ever writing: a last connection that may write would move the log into the file.
    def query(self, sql, path=None):
        path = path or self.db
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=40)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def samples(self, launch):
        return self.query(
            "SELECT c.key, s.rank, s.iteration, s.total_us FROM sample s JOIN measurement m ON m.id = "
            f"s.measurement_id JOIN run_cell c ON c.id = m.cell_id WHERE m.launch_id = {int(launch)} AND s.phase = 1 "
            "ORDER BY 1, 2, 3"
        )

    def look(self):
        """Remembers the launches that are stored, and misses those that are not any more."""
        if not os.path.exists(self.db) or self.lost:
            return
        try:
            rows = self.query("SELECT id, uuid FROM launch WHERE status = 'ok'")
            now = {uuid: hash(tuple(self.samples(row))) for row, uuid in rows}
        except sqlite3.OperationalError as error:
            if "no such table" in str(error) or "unable to open" in str(error):
                return  # not yet made
            raise
        for uuid, digest in self.stored.items():
            if uuid not in now:
                self.problem(f"launch {uuid} was stored and is lost")
            elif now[uuid] != digest:
                self.problem(f"launch {uuid} was stored and has changed")
        self.stored.update(now)

    def records(self, uuid):
        """Timed calls by (cell, rank, iteration), as the ranks wrote them; None without the files."""
        folders = glob.glob(f"{self.out}/*/{uuid}")
        if not folders:
            return None
        found = {}
        for path in glob.glob(f"{folders[0]}/rank*.jsonl"):
            for line in read(path).split(b"\n"):
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                if record.get("type") != "cell":
                    continue
                for at, total in enumerate(record.get("measured", {}).get("total_us", [])):
                    found[(record["cell_id"], record["rank"], at)] = total
        return found

    def judge_rows(self):
        if self.query("PRAGMA integrity_check") != [("ok",)]:
            self.problem("the database is damaged")
        twice = self.query(
            "SELECT count(*) FROM launch WHERE status = 'ok' GROUP BY group_id, block HAVING count(*) > 1"
        )
        if twice:
            self.problem("a launch is doubled")
        running = self.query("SELECT count(*) FROM launch WHERE status = 'running'")[0][0]
        if running:
            self.problem("a launch is stored as running although nothing runs")
        compared = 0
        for row, uuid, status in self.query("SELECT id, uuid, status FROM launch"):
            records = self.records(uuid)
            if records is None:
                if status == "ok" and uuid not in self.removed:
                    self.problem(f"launch {uuid} has no records although --out keeps them")
                continue
            stored = {(cell, rank, at): total for cell, rank, at, total in self.samples(row)}
            foreign = [key for key, total in stored.items() if records.get(key) != total]
            if foreign and uuid not in self.removed:
                self.problem(f"launch {uuid} ({status}) has samples that no rank recorded: {foreign[:2]}")
            if status == "ok" and len(stored) != len(records):
                self.problem(f"launch {uuid} has {len(stored)} of {len(records)} recorded samples")
            compared += len(stored)
        self.world.compared += compared

    def judge_end(self):
        runs = self.query("SELECT count(*), min(status), max(status) FROM run")[0]
        if runs != (1, "complete", "complete"):
            self.problem(f"not one complete run but {runs}")
        counted = self.query("SELECT count(*) FROM launch WHERE status = 'ok'")[0][0]
        if counted != self.groups * self.launches:
            self.problem(f"{counted} launches instead of {self.groups * self.launches}")

    def judge_folders(self):
        """Every folder of a launch belongs to a row, or says that its outcome could not be stored."""
        known = {row[0] for row in self.query("SELECT uuid FROM launch")}
        for folder in glob.glob(f"{self.out}/*/*-*"):
            if os.path.basename(folder) not in known and not os.path.exists(f"{folder}/not-stored"):
                self.problem(f"the folder of a launch without a row is left: {folder}")

    def close(self):
        kept = bool(self.problems) or self.world.keep
        if kept:
            shutil.copytree(self.folder, f"{self.world.kept}/t{self.number}", symlinks=True, dirs_exist_ok=True)
            shutil.copy(self.log, f"{self.world.kept}/t{self.number}.log")
        os.remove(self.log)
        if subprocess.run(["umount", self.folder], capture_output=True).returncode != 0:
            self.problem("the trial's folder is still in use")
            subprocess.run(["umount", "-l", self.folder])
        os.rmdir(self.folder)


def has_unfinished_run(trial):
    """@returns True or False; None when its run is complete already"""
    try:
        rows = trial.query("SELECT status FROM run")
    except sqlite3.OperationalError:
        return False
    if not rows:
        return False
    return None if rows == [("complete",)] and not failed_launches(trial) else True


def failed_launches(trial):
    return trial.query(
        "SELECT 1 FROM launch l WHERE status IN ('failed', 'timed_out') AND NOT EXISTS (SELECT 1 FROM launch k WHERE "
        "k.group_id = l.group_id AND k.block = l.block AND k.status = 'ok')"
    )
