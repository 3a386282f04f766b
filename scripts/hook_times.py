#!/usr/bin/env python3
"""Time to a target accuracy behind a link, from what scripts/gpu_hooks.sh leaves: steps until the target, of several seeds,
times what a step takes there.

    hook_times.py FOLDER

Reads trajectories.jsonl, steps.jsonl and direct.jsonl (lines of ddp_hooks.py with the link) and ours-*.json (cells of
`dynamiccl query`). A side's step at a link: the median of its rounds. post-local sends every step until `local_after` (64)
and then averages every eighth: its time is that of plain steps before, of local ones after. Ratios over DDP without a hook
are taken seed by seed; the range of five seeds encloses the median with 94 % confidence. Steps of the same codec are
compared round by round.
"""
import glob
import json
import os
import statistics
import sys
from collections import defaultdict

LOCAL_AFTER = 64
SAME = [("none", "none"), ("bf16", "bf16"), ("fp16", "fp16"), ("powersgd", "powersgd"), ("post-local", "post-local")]


def lines_of(path):
    """What is no whole line is reported and left out: one that is being written, or was when its writer ended."""
    found = []
    for number, line in enumerate(open(path), 1) if os.path.exists(path) else []:
        try:
            found += [json.loads(line)] if line.strip() else []
        except json.JSONDecodeError as error:
            print(f"{path}:{number}: no whole line of JSON ({error.msg}), left out", file=sys.stderr)
    return found


def rows_of(path):
    found = json.load(open(path))
    return found["rows"] if isinstance(found, dict) else found


def side_of(cell):
    """Our cell's name: its codec, or how its workers wait."""
    if cell["synchronisation"] in ("local", "post-local"):
        return "post-local"
    return cell["compression"] or "none"


def trajectories(folder):
    """{(who, side): {seed: (steps, accuracy, reached)}}"""
    found = defaultdict(dict)
    for row in lines_of(f"{folder}/trajectories.jsonl"):
        found["DDP", row["hook"]][row["seed"]] = row["steps"], row["accuracy"], row["reached"]
    for path in glob.glob(f"{folder}/ours-seed*.json"):
        for cell in rows_of(path):
            if cell["steps"] is not None:
                found["ours", side_of(cell)][int(cell["seed"])] = cell["steps"], cell["accuracy"], bool(cell["reached"])
    return found


def step_times(folder):
    """{(link, who, side): {round: ms}}"""
    found = defaultdict(dict)
    for row in lines_of(f"{folder}/steps.jsonl"):
        found[row["link"], "DDP", row["hook"]][row["seed"]] = row["mean_ms"]
    path = f"{folder}/ours-steps.json"
    for cell in rows_of(path) if os.path.exists(path) else []:
        if cell["trained_us"] and cell["steps"]:
            link = cell["environment"].removeprefix("cross-docker-")
            found[link, "ours", side_of(cell)][int(cell["seed"])] = cell["trained_us"] / cell["steps"] / 1e3
    return found


def seconds(side, steps, step, plain):
    """None where a step was not measured."""
    if step is None or plain is None:
        return None
    early = min(steps, LOCAL_AFTER) if side == "post-local" else 0
    return (early * plain + (steps - early) * step) / 1e3


def spread(values, digits):
    middle = f"{statistics.median(values):.{digits}f}"
    return f"{middle} [{min(values):.{digits}f}, {max(values):.{digits}f}]" if len(values) > 1 else middle


def times_at(link, runs, steps):
    """[(median seconds, table row)] and {(who, side): {seed: seconds}} of those that reached the target."""
    step = {key[1:]: statistics.median(by_round.values()) for key, by_round in steps.items() if key[0] == link}
    took = {}
    for (who, side), by_seed in runs.items():
        took[who, side] = {seed: seconds(side, n, step.get((who, side)), step.get((who, "none")))
                           for seed, (n, _, reached) in by_seed.items() if reached}
    took = {key: {s: t for s, t in by_seed.items() if t is not None} for key, by_seed in took.items()}
    plain, rows = took.get(("DDP", "none"), {}), []
    for (who, side), by_seed in took.items():
        if not by_seed:
            continue
        ratios = [by_seed[s] / plain[s] for s in sorted(set(by_seed) & set(plain))]
        counts = [runs[who, side][s][0] for s in by_seed]
        rows.append((statistics.median(by_seed.values()),
                     f"| {who} | {side} | {len(by_seed)} of {len(runs[who, side])} | {spread(counts, 0)} | {step[who, side]:.2f} "
                     f"| {spread(list(by_seed.values()), 2)} | {spread(ratios, 3) if ratios else '-'} |"))
    return rows


def print_whole(folder):
    """Whole trainings behind a link, and ours over DDP's of the same seed where both reached the target."""
    whole = [("DDP", row["hook"], row["link"], row["seed"], row["seconds"], row["steps"], row["reached"])
             for row in lines_of(f"{folder}/direct.jsonl")]
    path = f"{folder}/ours-direct.json"
    for cell in rows_of(path) if os.path.exists(path) else []:
        if cell["trained_us"]:
            whole.append(("ours", side_of(cell), cell["environment"].removeprefix("cross-docker-"), int(cell["seed"]),
                          cell["trained_us"] / 1e6, cell["steps"], bool(cell["reached"])))
    if not whole:
        return
    print("\nWhole trainings behind the link:\n\n| who | side | link | seed | steps | seconds | reached |\n|---|---|---|---|---|---|---|")
    for who, side, link, seed, taken, count, reached in sorted(whole):
        print(f"| {who} | {side} | {link} | {seed} | {count} | {taken:.2f} | {'yes' if reached else 'no'} |")
    took = defaultdict(dict)
    for who, side, link, seed, taken, _, reached in whole:
        if reached:
            took[who, side, link][seed] = taken  # of a seed trained twice the last
    print("\n| ours | DDP's | link | seeds | ours over DDP's |\n|---|---|---|---|---|")
    theirs = [(hook, link, by_seed) for (who, hook, link), by_seed in sorted(took.items()) if who == "DDP"]
    for (_, side, link), mine in sorted(item for item in took.items() if item[0][0] == "ours"):
        for hook, its_link, other in theirs:
            both = sorted(set(mine) & set(other))
            if link == its_link and both:
                print(f"| {side} | {hook} | {link} | {len(both)} | {spread([mine[s] / other[s] for s in both], 3)} |")


def main():
    folder = sys.argv[1]
    runs, steps = trajectories(folder), step_times(folder)
    for link in sorted({key[0] for key in steps}):
        print(f"\nBehind links of {link}, fastest first:\n")
        print("| who | side | seeds that reached it | steps | ms a step | seconds | over DDP without a hook |\n|---|---|---|---|---|---|---|")
        for _, row in sorted(times_at(link, runs, steps)):
            print(row)
        print("\n| step of ours over DDP's | rounds | ratio |\n|---|---|---|")
        for ours, hook in SAME:
            mine, other = steps.get((link, "ours", ours), {}), steps.get((link, "DDP", hook), {})
            both = sorted(set(mine) & set(other))
            if both:
                print(f"| {ours} | {len(both)} | {spread([mine[i] / other[i] for i in both], 3)} |")
    print_whole(folder)


if __name__ == "__main__":
    main()
