#!/usr/bin/env python3
"""Step times of training methods over PyTorch DDP's, launch by launch: a table with intervals.

    step_ratios.py STEPS_JSON DDP_JSONL

STEPS_JSON: rows with model, method, pair, step_us and single_us, one per launch; DDP_JSONL: lines of ddp_steps.py whose
label is the number of the pair. DDP's step is that of its best bucket size, by the geometric mean over all pairs. A ratio
is the geometric mean over pairs of launches; its interval is Student's at 95 % on logarithms. "alone": what one rank
takes by itself, on both sides: where that differs, so do the models' programs, whatever is sent.
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


def mean_of(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


def interval_of(ratios):
    """Geometric mean and its bounds, as text."""
    logs = [math.log(ratio) for ratio in ratios]
    n, mean = len(logs), sum(math.log(ratio) for ratio in ratios) / len(ratios)
    if n < 2:
        return f"{math.exp(mean):.4f}", "-", "-"
    half = STUDENT.get(n - 1, 2.0) * math.sqrt(sum((x - mean) ** 2 for x in logs) / (n - 1)) / math.sqrt(n)
    return tuple(f"{math.exp(mean + shift):.4f}" for shift in (0, -half, half))


def ddp_steps(path):
    """{model: ({pair: ms} of the best bucket size, its MB, ms alone or None)}"""
    steps = collections.defaultdict(lambda: collections.defaultdict(dict))
    for line in open(path):
        row = json.loads(line)
        steps[row["model"]][row.get("bucket_mb", 25)][int(row["label"])] = row["median_ms"]
    found = {}
    for model, by_bucket in steps.items():
        alone = by_bucket.pop(0, None)
        if by_bucket:
            best = min(by_bucket, key=lambda bucket: mean_of(by_bucket[bucket].values()))
            found[model] = by_bucket[best], best, mean_of(alone.values()) if alone else None
    return found


def main():
    ours, singles = collections.defaultdict(dict), collections.defaultdict(list)
    for row in rows_of(sys.argv[1]):
        ours[row["model"], row["method"]][int(row["pair"])] = row["step_us"] / 1e3
        if row.get("single_us"):
            singles[row["model"]].append(row["single_us"] / 1e3)
    theirs = ddp_steps(sys.argv[2])
    print("| model | method | DDP ms | its bucket MB | method ms | ratio | low | high | pairs | alone: DDP's side ms | ours |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for (model, method), times in sorted(ours.items()):
        base, bucket, alone = theirs.get(DDP_NAME.get(model, model), ({}, 0, None))
        pairs = sorted(set(times) & set(base))
        if not pairs:
            continue
        ratio, low, high = interval_of([times[i] / base[i] for i in pairs])
        own = f"{mean_of(singles[model]):.2f}" if singles[model] else "-"
        print(f"| {model} | {method} | {mean_of([base[i] for i in pairs]):.2f} | {bucket} "
              f"| {mean_of([times[i] for i in pairs]):.2f} | {ratio} | {low} | {high} | {len(pairs)} "
              f"| {f'{alone:.2f}' if alone else '-'} | {own} |")


if __name__ == "__main__":
    main()
