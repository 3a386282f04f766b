#!/usr/bin/env python3
"""Runs the libFuzzer program of the readers for so long on so many cores, all targets at the same time.

    fuzz_run.py FOLDER SECONDS CORES OUT [--targets NAME,...] [--goal CPU_SECONDS] [--slice SECONDS] [--from STATE]
                [--archive FILE] [--minimise SECONDS]

FOLDER   what `scripts/fuzz.sh --pack FOLDER [STATE]` made: fuzz_readers, corpus/, profiles/, lib/ and, perhaps, state/
CORES    a list as taskset takes it (0-15,20) or a number of cores (the first ones this process may use)
OUT      what it found, and what a later call goes on from: counts.json, table.jsonl, corpus.tar.xz, finds.tar.xz
--from   OUT of an earlier call or its archive, copied to OUT first where OUT has no counts; where it is not there,
         state/ of FOLDER
--archive  at the end also all of OUT as one tar file
--minimise  how much of the time goes into minimising the corpora at its end, none where it is 6 s or less: 12 % and 60 s
         at most where it is not said

The time is divided into slices, an eighth more at once than there are cores, as some readers wait; a slice goes to the
target that is furthest from its goal of CPU seconds, so all targets get there together. Slices of one target share a corpus.
A call in which the last one gets there ends then, its corpora minimised; a later one goes on, to the target with the least.
A slice ends early by a find (crash, leak, hang, memory); its input and log lie in finds.tar.xz, and the target
goes on until it has made 10 finds in this call. Exit: 0 nothing found, 1 something found, 2 cannot run.
"""

import argparse
import ctypes
import json
import lzma
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

FINDS_PER_CALL = 10
HANG_S = 20
PACKING_S = 6
START_TRIES = 20  # clang's address sanitizer does not start at some random addresses
ADDR_NO_RANDOMIZE = 0x0040000
NO_LEAK_CHECK = "LeakSanitizer has encountered a fatal error"


class CannotRun(Exception):
    """Why there is nothing to run, and what to do."""


def cores_of(text):
    allowed = sorted(os.sched_getaffinity(0))
    if re.fullmatch(r"\d+", text):
        return allowed[: max(1, int(text))]
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        raise CannotRun(f"CORES is \"{text}\": give a number of cores or a list such as 0-15,20")
    cores = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    missing = [core for core in cores if core not in allowed]
    if missing:
        raise CannotRun(f"this process may not use cores {missing}: give some of {allowed}")
    return cores


def settle(cores):
    """In the child: lowest priority, the cores, addresses that the sanitizer can start at."""

    def run():
        os.nice(19)
        os.sched_setaffinity(0, cores)
        libc = ctypes.CDLL(None)
        now = libc.personality(0xFFFFFFFF)
        if now >= 0:
            libc.personality(now | ADDR_NO_RANDOMIZE)
        os.setpgid(0, 0)

    return run


class Fuzzing:
    def __init__(self, options):
        self.folder = pathlib.Path(options.folder).resolve()
        self.program = self.folder / "fuzz_readers"
        self.out = pathlib.Path(options.out).resolve()
        self.goal = options.goal
        self.cores = cores_of(options.cores)
        self.places = range(len(self.cores) + (len(self.cores) + 7) // 8)
        self.archive = options.archive and pathlib.Path(options.archive).resolve()
        self.end = time.monotonic() + options.seconds
        self.leaks = True
        self.stopped = False
        self.finds_now = {}
        self.running = {}
        self.scratch = pathlib.Path(tempfile.gettempdir())
        names = self.known_targets()
        self.names = options.targets.split(",") if options.targets else names
        if set(self.names) - set(names):
            raise CannotRun(f"no target {', '.join(sorted(set(self.names) - set(names)))}: there are {', '.join(names)}")
        self.out.mkdir(parents=True, exist_ok=True)
        if not (self.out / "counts.json").exists():
            self.go_on_from(pathlib.Path(options.from_) if options.from_ else None)
        self.counts = {}
        if (self.out / "counts.json").exists():
            self.counts = json.loads((self.out / "counts.json").read_text())
        for name in names:
            self.counts.setdefault(name, {"cpu_s": 0.0, "executions": 0, "corpus": 0, "corpus_bytes": 0,
                                          "edges": 0, "features": 0, "crashes": 0, "leaks": 0, "hangs": 0,
                                          "out_of_memory": 0, "slices": 0, "start_failures": 0,
                                          "leaks_checked": True})
        memory = pathlib.Path("/dev/shm")
        roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2 << 30
        # Last, as what ends here would leave it.
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="dynamiccl-fuzz-run-", dir=memory if roomy else None))
        try:
            self.unpack()
        except BaseException:
            shutil.rmtree(self.scratch, ignore_errors=True)
            raise

    def go_on_from(self, state):
        if state is None or not state.exists():
            state = self.folder / "state"
        # The counts last: a copy that ends before them is begun anew by the next call.
        parts = ("corpus.tar.xz", "finds.tar.xz", "counts.json")
        if state.is_dir():
            for part in parts:
                if (state / part).exists():
                    shutil.copy(state / part, self.out / part)
        elif state.exists():
            try:
                with tarfile.open(state) as tar:
                    tar.getmember("table.jsonl")  # the last one: an archive that ends before it may lack the finds
                    for part in parts:
                        if part != "finds.tar.xz" or part in tar.getnames():
                            (self.out / part).write_bytes(tar.extractfile(part).read())
            except (KeyError, tarfile.TarError) as why:
                raise CannotRun(f"{state} is torn or no archive of an earlier call: {why}") from why

    def known_targets(self):
        known = subprocess.run([str(self.program)], env=self.environment(None), capture_output=True, text=True)
        names = known.stdout.split()
        if known.returncode != 0 or not names:
            raise CannotRun(f"{self.program} names no targets: {known.stderr.strip()}")
        return names

    def environment(self, name):
        made = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "TMPDIR": str(self.scratch), "LC_ALL": "C",
                "DYNAMICCL_FUZZ_SOURCE": str(self.folder),
                "ASAN_OPTIONS": f"detect_leaks={int(self.leaks)}:handle_abort=1",
                "UBSAN_OPTIONS": "print_stacktrace=1"}
        symbolizer = shutil.which("llvm-symbolizer") or shutil.which("llvm-symbolizer-14")
        if symbolizer:
            made["ASAN_SYMBOLIZER_PATH"] = symbolizer
        if name:
            made["DYNAMICCL_FUZZ_TARGET"] = name
            made["DYNAMICCL_FUZZ_SEEDS"] = str(self.scratch / "seeds" / name)
        return made

    def unpack(self):
        for name in self.names:
            for part in ("corpus", "seeds", "finds"):
                (self.scratch / part / name).mkdir(parents=True)
            kept = self.folder / "corpus" / name
            if kept.is_dir():
                shutil.copytree(kept, self.scratch / "corpus" / name, dirs_exist_ok=True)
        for part in ("corpus", "finds"):
            packed = self.out / f"{part}.tar.xz"
            if packed.exists():
                with tarfile.open(packed) as tar:
                    tar.extractall(self.scratch / part, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))

    def pack(self, part):
        unfinished = self.out / f"{part}.tar.xz.part"
        with tarfile.open(unfinished, "w:xz", preset=1) as tar:
            # Those of targets that this call leaves alone too.
            for folder in sorted((self.scratch / part).iterdir()):
                tar.add(folder, folder.name)
        unfinished.rename(self.out / f"{part}.tar.xz")

    def start(self, place, name, seconds, merge=False):
        log = self.scratch / f"log-{place}"
        corpus = self.scratch / "corpus" / name
        flags = [f"-timeout={HANG_S}", "-rss_limit_mb=2048", "-max_len=65536", "-print_final_stats=1",
                 f"-max_total_time={max(1, int(seconds))}", f"-artifact_prefix={self.scratch}/finds/{name}/"]
        if merge:
            small = self.scratch / "small" / name
            small.mkdir(parents=True, exist_ok=True)
            flags += ["-merge=1", "-verbosity=0", str(small)]
        with open(log, "wb") as output:
            process = subprocess.Popen([self.program, *flags, corpus, self.scratch / "seeds" / name],
                                       stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                       env=self.environment(name), preexec_fn=settle(self.cores))
        self.running[process.pid] = {"place": place, "name": name, "log": log, "seconds": seconds,
                                     "merge": merge, "process": process, "ended": False}

    def reap(self, until):
        """Waits for one child and takes over what it counted; gives its place back, None where none ended in time: a slice
        looks at its clock between inputs."""
        while True:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if pid in self.running:
                break
            if pid == 0:
                if time.monotonic() >= until:
                    return None
                time.sleep(0.05)
        slice_ = self.running.pop(pid)
        slice_["process"].returncode = os.waitstatus_to_exitcode(status)
        text = slice_["log"].read_text(errors="replace")
        if not slice_["merge"]:
            self.take(slice_, slice_["process"].returncode, text, usage.ru_utime + usage.ru_stime)
            self.save()
        return slice_["place"]

    def take(self, slice_, code, text, cpu):
        count = self.counts[slice_["name"]]
        executed = re.search(r"stat::number_of_executed_units:\s*(\d+)", text)
        if executed is None and "INFO: Seed" not in text:
            count["start_failures"] += 1
            return
        if NO_LEAK_CHECK in text:
            self.leaks = False
            return
        count["cpu_s"] += cpu
        count["slices"] += 1
        count["leaks_checked"] = count["leaks_checked"] and self.leaks
        steps = re.findall(r"#(\d+)\t.*? cov: (\d+) ft: (\d+)", text)
        count["executions"] += int(executed.group(1)) if executed else int(steps[-1][0]) if steps else 0
        if steps:
            count["edges"] = max(count["edges"], int(steps[-1][1]))
            count["features"] = max(count["features"], int(steps[-1][2]))
        ended = self.stopped or slice_["ended"]
        if code == 0 or (ended and code in (72, -signal.SIGTERM, -signal.SIGINT, -signal.SIGKILL)):
            return
        kind = ("leaks" if "detected memory leaks" in text else "hangs" if code == 70 or "ERROR: libFuzzer: timeout" in text
                else "out_of_memory" if code == 71 or "out-of-memory" in text else "crashes")
        if kind == "hangs" and self.only_waited(slice_):
            return
        count[kind] += 1
        self.finds_now[slice_["name"]] = self.finds_now.get(slice_["name"], 0) + 1
        number = sum(count[each] for each in ("crashes", "leaks", "hangs", "out_of_memory"))
        # What went wrong stands at the end, with its stack, whichever sanitizer or assertion says it.
        (self.scratch / "finds" / slice_["name"] / f"{kind}-{number}.log").write_text(text[-20000:])
        self.pack("finds")

    def only_waited(self, slice_):
        """Did an input that was ended by the clock wait for its core, as on a busy machine? Then it goes, and is no hang."""
        inputs = sorted((self.scratch / "finds" / slice_["name"]).glob("timeout-*"), key=lambda path: path.stat().st_mtime)
        if not inputs:
            return False

        def limited():
            settle(self.cores)()
            resource.setrlimit(resource.RLIMIT_CPU, (HANG_S, HANG_S))

        again = subprocess.Popen([self.program, "-timeout=36000", inputs[-1]], env=self.environment(slice_["name"]),
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=limited)
        # It may wait for something else than a core, and the call's end comes first: what is not known by then is a hang.
        until = min(time.monotonic() + 10 * HANG_S, self.end - PACKING_S)
        while again.poll() is None and not self.stopped and time.monotonic() < until:
            time.sleep(0.05)
        if again.poll() is None:
            os.killpg(again.pid, signal.SIGKILL)
            again.wait()
        if again.returncode == 0:
            inputs[-1].unlink()
        return again.returncode == 0

    def next_target(self, slice_s):
        """The one furthest from its goal; past all goals, the one with the least CPU time."""
        ahead = {name: self.counts[name]["cpu_s"] for name in self.names}
        for other in self.running.values():
            ahead[other["name"]] += other["seconds"]
        able = [name for name in self.names if self.finds_now.get(name, 0) < FINDS_PER_CALL
                and self.counts[name]["start_failures"] < START_TRIES + self.counts[name]["slices"]]
        if not able:
            return None, 0
        name = min(able, key=lambda each: ahead[each])
        short = self.goal - ahead[name]
        return name, slice_s if short <= 0 else min(slice_s, max(20, short + 2))

    def is_done(self):
        return all(self.counts[name]["cpu_s"] >= self.goal or self.finds_now.get(name, 0) >= FINDS_PER_CALL
                   for name in self.names)

    def fuzz(self, slice_s, until):
        free = list(self.places)
        more = self.is_done()
        while not self.stopped and (more or not self.is_done()):
            while free and until - time.monotonic() >= 3:
                name, seconds = self.next_target(slice_s)
                if name is None:
                    break
                self.start(free.pop(), name, min(seconds, until - time.monotonic() - 1))
            if not self.running:
                break
            place = self.reap(until)
            if place is None:
                break
            free.append(place)
        self.drain(min(20, max(1, (self.end - time.monotonic()) / 3)))

    def drain(self, patience):
        """Ends what still runs: asked first, so that it prints its counts."""
        for end, number in ((time.monotonic() + patience, signal.SIGTERM), (time.monotonic() + 2 * patience, signal.SIGKILL)):
            for pid in self.running:
                try:
                    os.killpg(pid, number)
                    self.running[pid]["ended"] = True
                except ProcessLookupError:
                    pass
            while self.running and time.monotonic() < end:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    time.sleep(0.05)
                elif pid in self.running:
                    slice_ = self.running.pop(pid)
                    slice_["process"].returncode = os.waitstatus_to_exitcode(status)
                    if not slice_["merge"]:
                        self.take(slice_, slice_["process"].returncode, slice_["log"].read_text(errors="replace"),
                                  usage.ru_utime + usage.ru_stime)

    def minimise(self):
        """Keeps, of each corpus, the inputs that its coverage needs; a corpus that is not through in time stays whole."""
        end = min(self.end - 3, time.monotonic() + 60)
        waiting = sorted(self.names, key=lambda name: -len(list((self.scratch / "corpus" / name).iterdir())))
        free, done = list(self.places), []
        while (waiting or self.running) and not self.stopped and time.monotonic() < end:
            while waiting and free:
                self.start(free.pop(), waiting.pop(0), end - time.monotonic(), merge=True)
            try:
                pid, status, _ = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                time.sleep(0.05)
            elif pid in self.running:
                slice_ = self.running.pop(pid)
                slice_["process"].returncode = os.waitstatus_to_exitcode(status)
                free.append(slice_["place"])
                if slice_["process"].returncode == 0 and "MERGE-OUTER" in slice_["log"].read_text(errors="replace"):
                    done.append(slice_["name"])
        self.drain(1)
        for name in done:
            small = self.scratch / "small" / name
            if any(small.iterdir()):
                shutil.rmtree(self.scratch / "corpus" / name)
                small.rename(self.scratch / "corpus" / name)

    def save(self, corpora=False):
        for name in self.names:
            inputs = [each.stat().st_size for each in (self.scratch / "corpus" / name).iterdir()] if corpora else []
            if corpora:
                self.counts[name].update(corpus=len(inputs), corpus_bytes=sum(inputs))
        part = self.out / "counts.json.part"
        part.write_text(json.dumps(self.counts, indent=1))
        part.rename(self.out / "counts.json")
        with open(self.out / "table.jsonl", "w") as table:
            for name, count in self.counts.items():
                rate = count["executions"] / count["cpu_s"] if count["cpu_s"] else 0
                table.write(json.dumps({"target": name, **count, "cpu_s": round(count["cpu_s"], 1),
                                        "per_cpu_s": round(rate)}) + "\n")
        if corpora:
            self.pack("corpus")

    def run(self, slice_s, minimise_s):
        def stop(*_):
            self.stopped = True
            for pid in list(self.running):
                try:
                    os.killpg(pid, signal.SIGTERM)
                except ProcessLookupError:
                    pass

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        try:
            left = self.end - time.monotonic()
            room = min(60, left * 0.12) if minimise_s is None else minimise_s
            self.fuzz(slice_s, self.end - max(room, min(PACKING_S, left * 0.12)))
            if room > PACKING_S or self.end - time.monotonic() > 2 * PACKING_S:
                self.minimise()
            self.save(corpora=True)
        finally:
            self.drain(1)
            shutil.rmtree(self.scratch, ignore_errors=True)
        if self.archive:
            self.archive.parent.mkdir(parents=True, exist_ok=True)
            # Next to its place: the archive that this call went on from may lie there.
            unfinished = self.archive.with_name(self.archive.name + ".part")
            with tarfile.open(unfinished, "w") as tar:
                for part in sorted(self.out.iterdir()):
                    tar.add(part, part.name)
            unfinished.rename(self.archive)
        print((self.out / "table.jsonl").read_text(), end="")
        found = sum(self.counts[name][kind] for name in self.names for kind in ("crashes", "leaks", "hangs", "out_of_memory"))
        total = sum(self.counts[name]["executions"] for name in self.names)
        left = sum(max(0, self.goal - self.counts[name]["cpu_s"]) for name in self.names)
        print(json.dumps({"targets": len(self.names), "executions": total, "finds": found, "left_cpu_s": round(left),
                          "least_cpu_s": round(min(self.counts[name]["cpu_s"] for name in self.names), 1),
                          "least_executions": min(self.counts[name]["executions"] for name in self.names)}))
        return 1 if found else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("seconds", type=float)
    parser.add_argument("cores")
    parser.add_argument("out")
    parser.add_argument("--targets")
    parser.add_argument("--goal", type=float, default=3600)
    parser.add_argument("--slice", type=float, default=100)
    parser.add_argument("--from", dest="from_")
    parser.add_argument("--archive")
    parser.add_argument("--minimise", type=float)
    options = parser.parse_args()
    try:
        fuzzing = Fuzzing(options)
    except (CannotRun, OSError) as why:
        print(f"fuzz_run.py: {why}", file=sys.stderr)
        return 2
    except (ValueError, EOFError, tarfile.TarError, lzma.LZMAError) as why:
        print(f"fuzz_run.py: {options.out} holds a damaged counts.json, corpus.tar.xz or finds.tar.xz; remove it or name a new "
              f"folder: {why}", file=sys.stderr)
        return 2
    return fuzzing.run(options.slice, options.minimise)


if __name__ == "__main__":
    sys.exit(main())
