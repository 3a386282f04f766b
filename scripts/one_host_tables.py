#!/usr/bin/env python3
"""Times of scripts/gpu_one_host.sh side by side: medians, and ratios of launches made in turn with their 95 % intervals.

    one_host_tables.py sizes sizes.jsonl
    one_host_tables.py steps steps.jsonl
"""
import json
import math
import statistics
import sys

PAIRS = [("library:all", "none:bare"), ("library:own", "shm:bare"), ("recipe:own", "shm:bare")]
# Student's t, two-sided 95 %, by degrees of freedom.
T = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23, 11: 2.20}


def ratio(of, over):
    """Geometric mean and interval of the ratios of the launches that both have."""
    logs = [math.log(of[launch] / over[launch]) for launch in of if launch in over]
    if not logs:
        return ""
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return f"{math.exp(mean):.3f}"
    half = T.get(len(logs) - 1, 2.1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(mean):.3f} [{math.exp(mean - half):.3f}, {math.exp(mean + half):.3f}]"


def right(row):
    return row["codes"] == "0 0" and all(rank.get("wrong") == 0 for rank in row["ranks"]) and len(row["ranks"]) == 2


def matrix(path):
    """One row a setting; what ran without and does not with counts as broken."""
    cells = {}
    for line in open(path):
        row = json.loads(line)
        cells.setdefault((row["nccl"], row["cumem"], row["nodes"]), {})[row["side"]] = row
    print("\nmatrix\n| NCCL | cuMem | nodes | none | library | recipe |\n|---|---|---|---|---|---|")
    broken = left = 0
    for setting, sides in cells.items():
        texts = []
        for side in ("none", "library", "recipe"):
            row = sides.get(side)
            texts.append("" if row is None else f"{'right' if right(row) else 'FAILED ' + str(row['codes'])}{row['ways']}")
            if row is not None and side != "none":
                broken += right(sides["none"]) and not right(row)
                left += row["files_left"] if right(row) else 0
        print(f"| {' | '.join(map(str, setting))} | {' | '.join(texts)} |")
    print(f"broken by library or recipe: {broken}; files left by those that ended right: {left}")


def main():
    kind, path = sys.argv[1:]
    if kind == "matrix":
        matrix(path)
        return
    times = {}  # what -> side -> launch -> time
    for line in open(path):
        row = json.loads(line)
        values = row["rank0"]["median_us"] if kind == "sizes" else {row["rank0"]["model"]: row["rank0"]["median_ms"]}
        for what, value in values.items():
            times.setdefault(what, {}).setdefault(row["side"], {})[row["launch"]] = value
    sides = sorted({side for by_side in times.values() for side in by_side})
    print(f"\n{kind}: medians over launches, {'us' if kind == 'sizes' else 'ms'}")
    print("| what | launches | " + " | ".join(sides) + " |\n|" + "---|" * (len(sides) + 2))
    for what, by_side in times.items():
        count = max(len(launches) for launches in by_side.values())
        print(f"| {what} | {count} | " + " | ".join(
            f"{statistics.median(by_side[side].values()):.1f}" if side in by_side else "" for side in sides) + " |")
    print("\n| ratio | " + " | ".join(f"{a} over {b}" for a, b in PAIRS) + " |\n|" + "---|" * (len(PAIRS) + 1))
    for what, by_side in times.items():
        print(f"| {what} | " + " | ".join(ratio(by_side.get(a, {}), by_side.get(b, {})) for a, b in PAIRS) + " |")


if __name__ == "__main__":
    main()
