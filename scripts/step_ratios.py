#!/usr/bin/env python3
"""Step times of training methods over PyTorch DDP's, launch by launch: a table with intervals.

    step_ratios.py STEPS_JSON DDP_JSONL

STEPS_JSON: rows with model, method, run_row and step_us, one per launch, in the order of launches; DDP_JSONL: lines of
ddp_steps.py whose label is the number of the launch, from 1. A ratio is the geometric mean over pairs of launches;
its interval is Student's at 95 % on logarithms.
"""
import collections
import json
import math
import sys

STUDENT = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
DDP_NAME = {"resnet18": "resnet18-cifar"}


def rows_of(path):
    """A JSON list, or an object that holds one under "rows"."""
    found = json.load(open(path))
    if isinstance(found, dict):
        found = found["rows"]
    return found


def main():
    ours = collections.defaultdict(dict)
    launches = sorted({row["run_row"] for row in rows_of(sys.argv[1])})
    for row in rows_of(sys.argv[1]):
        ours[row["model"], row["method"]][launches.index(row["run_row"]) + 1] = row["step_us"] / 1e3
    theirs = collections.defaultdict(dict)
    for line in open(sys.argv[2]):
        row = json.loads(line)
        theirs[row["model"]][int(row["label"])] = row["median_ms"]
    print("| model | method | DDP ms | method ms | ratio | low | high | pairs |\n|---|---|---|---|---|---|---|---|")
    for (model, method), times in sorted(ours.items()):
        base = theirs[DDP_NAME.get(model, model)]
        pairs = sorted(set(times) & set(base))
        if not pairs:
            continue
        logs = [math.log(times[i] / base[i]) for i in pairs]
        n = len(logs)
        mean = sum(logs) / n
        deviation = math.sqrt(sum((x - mean) ** 2 for x in logs) / (n - 1)) if n > 1 else math.inf
        half = STUDENT.get(n - 1, 2.0) * deviation / math.sqrt(n) if n > 1 else math.inf
        bounds = [f"{math.exp(mean - half):.4f}", f"{math.exp(mean + half):.4f}"] if n > 1 else ["-", "-"]
        typical = [math.exp(sum(math.log(side[i]) for i in pairs) / n) for side in (base, times)]
        print(f"| {model} | {method} | {typical[0]:.2f} | {typical[1]:.2f} | {math.exp(mean):.4f} | {bounds[0]} | {bounds[1]} | {n} |")


if __name__ == "__main__":
    main()
