#!/usr/bin/env python3
"""Twenty profiles of containers whose flags `doctor --least` sorts, and whether what it leaves is minimal.

    sudo scripts/least_cases.py --build build/dev [--only 3,7] > least.jsonl

Of each case: the search with at most 25 launches; then a launch of the least flags, by the doctor, and one of them without
each flag that was said to be needed, which must fail or take another way than the least flags' launch. A flag that is needed
for its time alone is told apart ("by time"): one more launch says nothing about it. Prints a line of JSON per case and the
sum of all; exit code 1 where a case is not minimal, was not found, or took more launches. About a quarter of an hour.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LAUNCHES = 25
SHARED = 'ipc = "shared"\n'


def capabilities_line(names):
    return "capabilities = [%s]\n" % ", ".join('{ name = "%s", reason = "tried" }' % name for name in names)


WIDE = capabilities_line(["SYS_PTRACE", "SYS_NICE", "IPC_LOCK", "NET_ADMIN", "SYS_RAWIO"])
EVERYTHING = 'network = "host"\nipc = "host"\npid = "host"\nuts = "host"\n'

# Base profile, what is said besides, library.
CASES = [
    ("single-docker", "", "openmpi"),
    ("single-docker", "", "mpich"),
    ("single-docker", "", "gloo"),
    ("single-docker", "privileged = true\n", "openmpi"),
    ("single-docker", "privileged = true\n", "mpich"),
    ("single-docker", "privileged = true\n", "gloo"),
    ("single-docker", WIDE + 'security_options = ["seccomp=unconfined"]\n', "mpich"),
    ("single-docker", EVERYTHING + "shm_size = 0\n", "openmpi"),
    ("single-docker-no-cma", 'security_options = ["seccomp=unconfined"]\n', "mpich"),
    ("cross-docker", "", "openmpi"),
    ("cross-docker", "", "gloo"),
    ("cross-docker-shared-ipc", "", "openmpi"),
    ("cross-docker-shared-ipc", "", "mpich"),
    ("cross-docker-pod", WIDE, "mpich"),
    ("cross-docker-shared", "", "openmpi"),
    ("cross-docker-shared", "", "mpich"),
    ("cross-docker-host-network", SHARED, "openmpi"),
    ("cross-docker-host-network", SHARED + 'pid = "shared"\nprivileged = true\n', "mpich"),
    ("cross-docker", EVERYTHING + "shm_size = 0\n" + WIDE, "mpich"),
    ("cross-docker", 'uts = "host"\n' + WIDE, "gloo"),
]


def run(program, words, folder):
    done = subprocess.run([program, *words, "--json"], cwd=folder, capture_output=True, text=True)
    try:
        return json.loads(done.stdout), done
    except json.JSONDecodeError:
        return None, done


def profile_of(name, base, flags):
    """The base with those flags of `docker run` and no others."""
    shared = {key: "private" for key in ("network", "ipc", "pid", "uts")}
    rest = {"shm_size": "0", "shared_tmpfs": '""'}
    capabilities, options = [], []
    for flag in flags:
        key, value = flag.removeprefix("--").split(" ", 1)
        if key in shared:
            shared[key] = "host" if value == "host" else "shared"
        elif key == "shm-size":
            rest["shm_size"] = '"%s"' % value.replace("g", "GiB").replace("m", "MiB").removesuffix("b")
        elif key == "volume":
            rest["shared_tmpfs"] = '"%s"' % value.split(":", 1)[1]
        elif key == "cap-add":
            capabilities.append(value)
        elif key == "security-opt":
            options.append(value)
        else:
            raise ValueError(flag)
    text = f'name = "{name}"\nextends = "{base}"\n'
    text += "".join(f'{key} = "{value}"\n' for key, value in shared.items())
    text += "".join(f"{key} = {value}\n" for key, value in rest.items() if value != '""')
    return text + capabilities_line(capabilities) + f"security_options = {json.dumps(options)}\n"


def look(program, folder, name, text, backend):
    """What one launch of the doctor says: the way bytes took, or why it did not run."""
    path = folder / f"{name}.toml"
    path.write_text(text)
    words = ["doctor", "--profile", str(path), "--backend", backend, "--db", str(folder / "x.sqlite")]
    told, done = run(program, words, folder)
    if told is None:
        return "not asked: " + done.stderr.strip()[-300:]
    of = told["environments"][0]
    if of["unavailable"]:
        return "fails: " + of["unavailable"].split("\n")[0]
    first = of["backends"][0]
    failure = first["impossible"] or first["failure"]
    return "fails: " + failure.split("\n")[0] if failure else first["used_transport"]


def judge(program, folder, number, case):
    base, more, backend = case
    name = f"case-{number}"
    path = folder / f"{name}.toml"
    path.write_text(f'name = "{name}"\nextends = "{base}"\n{more}')
    began = time.time()
    words = ["doctor", "--least", "--profile", str(path), "--backend", backend, "--launches", str(LAUNCHES)]
    told, done = run(program, [*words, "--db", str(folder / "x.sqlite")], folder)
    result = {"case": number, "base": base, "more": more.strip().replace("\n", "; "), "backend": backend}
    if told is None:
        return {**result, "wrong": "no answer: " + done.stderr.strip()[-300:]}
    least = told["least"][0]
    result["launches"] = least["launches"]
    if least["impossible"]:
        return {**result, "wrong": least["impossible"]}
    needed = {flag["flag"]: flag["without"] for flag in least["flags"] if flag["needed"]}
    result.update(flags=len(least["flags"]), transport=least["transport"], needed=needed)
    with_least = look(program, folder, f"{name}-least", profile_of(f"{name}-least", base, needed), backend)
    result["least_runs_by"] = with_least
    result["without"] = {}
    for place, flag in enumerate(needed):
        rest = [other for other in needed if other != flag]
        text = profile_of(f"{name}-without-{place}", base, rest)
        result["without"][flag] = look(program, folder, f"{name}-without-{place}", text, backend)
    by_time = [flag for flag, why in needed.items() if not why.startswith(("transport", "its launch", "whether its launch"))]
    result["by_time"] = by_time
    same = [flag for flag, way in result["without"].items() if way == with_least and flag not in by_time]
    if with_least != least["transport"]:
        result["wrong"] = f"the least flags' launch went by {with_least}"
    elif same:
        result["wrong"] = "no launch breaks without " + ", ".join(same)
    result["seconds"] = round(time.time() - began)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path("build/dev"))
    parser.add_argument("--only", default="", help="numbers of cases, from 1")
    arguments = parser.parse_args()
    program = str(arguments.build.resolve() / "dynamiccl")
    asked = [int(word) for word in arguments.only.split(",") if word] or range(1, len(CASES) + 1)
    wrong = most = by_time = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in asked:
            result = judge(program, Path(folder), number, CASES[number - 1])
            print(json.dumps(result), flush=True)
            wrong += "wrong" in result
            by_time += len(result.get("by_time", []))
            most = max(most, result.get("launches", 0))
    print(json.dumps({"cases": len(asked), "wrong": wrong, "most_launches": most, "flags_by_time": by_time}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
