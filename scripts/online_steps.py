#!/usr/bin/env python3
"""What a tuner that learns while it trains costs and brings, launch by launch: a Markdown table with intervals.

    online_steps.py DATABASE...

Databases of `run` of experiments/online_training.toml; the newest run of each. Steps are the first worker's. Per
environment and backend, against the same block's launch with tuner = "off", geometric means over blocks with Student's
interval at 95 %:
  all steps   time of all measured steps: learning included
  late steps  median of the last half of the steps: what was learnt
  table       median step under the table that `tune` wrote
  of tune's   what the late steps save, of what the table saves, percent; empty where the table saves nothing surely
  learning    what the steps until it froze took more than as many late ones of "off", of all its steps, percent
"""
import collections
import json
import math
import sqlite3
import statistics
import sys

STUDENT = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 11: 2.201,
           12: 2.179, 13: 2.160, 14: 2.145, 15: 2.131, 16: 2.120, 17: 2.110, 18: 2.101, 19: 2.093, 20: 2.086, 21: 2.080,
           22: 2.074, 23: 2.069, 24: 2.064, 25: 2.060, 26: 2.056, 27: 2.052, 28: 2.048, 29: 2.045, 30: 2.042}


def kind_of(knobs):
    tuner = json.loads(knobs or "{}").get("tuner", "off")
    return tuner if tuner in ("off", "online") else "table"


def launches_of(path):
    """{(environment, backend): {block: {kind: (step times, frozen after)}}}"""
    try:
        db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        db.execute("SELECT 1 FROM run LIMIT 1")
    except sqlite3.Error as error:
        print(f"{path}: {error}", file=sys.stderr)
        return {}
    run = db.execute("SELECT id FROM run WHERE id IN (SELECT run_row FROM v_training) ORDER BY id DESC LIMIT 1").fetchone()
    found = collections.defaultdict(lambda: collections.defaultdict(dict))
    if run is None:
        return found
    rows = db.execute(
        "SELECT m.environment, m.backend, m.block, m.cell_knobs, t.measurement_row FROM v_training t "
        "JOIN v_measurement m ON m.measurement_row = t.measurement_row WHERE t.run_row = ? AND m.counts", run).fetchall()
    for environment, backend, block, knobs, row in rows:
        steps = [us for us, in db.execute(
            "SELECT total_us FROM sample WHERE measurement_id = ? AND phase = 1 AND rank = 0 ORDER BY iteration", (row,))]
        details, = db.execute("SELECT details_json FROM training WHERE measurement_id = ? AND rank = 0", (row,)).fetchone()
        tuner = json.loads(details).get("tuner", {})
        found[environment, backend][block][kind_of(knobs)] = (steps, tuner.get("frozen_after_steps", 0))
    return found


def ratio(logs):
    if not logs:
        return None
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return (math.exp(mean), 0, math.inf)
    # Beyond the table its last row: a little wide.
    half = STUDENT[min(len(logs) - 1, max(STUDENT))] * statistics.stdev(logs) / math.sqrt(len(logs))
    return (math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def shown(one):
    return "-" if one is None else f"{one[0]:.3f} [{one[1]:.3f}, {one[2]:.3f}]"


def late(steps):
    return statistics.median(steps[len(steps) // 2:])


def row_of(blocks):
    whole, end, table, cost, frozen, open_ones = [], [], [], [], [], 0
    for kinds in blocks.values():
        off = kinds.get("off", ([], 0))[0]
        if not off:
            continue
        online, after = kinds.get("online", ([], 0))
        if online:
            count = min(len(off), len(online))
            whole.append(math.log(sum(online[:count]) / sum(off[:count])))
            end.append(math.log(late(online) / late(off)))
            if after:
                frozen.append(after)
                learning = online[:after]
                cost.append(100 * (sum(learning) - len(learning) * late(off)) / sum(online))
            else:
                open_ones += 1
        if kinds.get("table", ([], 0))[0]:
            table.append(math.log(late(kinds["table"][0]) / late(off)))
    gains = ratio(end), ratio(table)
    share = "-"
    if gains[0] and gains[1] and gains[1][2] < 1:
        share = f"{100 * (1 - gains[0][0]) / (1 - gains[1][0]):.0f}"
    verdict = "-" if not end else "SLOWER" if ratio(end)[1] > 1.02 else "FASTER" if ratio(end)[2] < 1 / 1.02 else "no worse shown"
    return [shown(ratio(whole)), shown(gains[0]), shown(gains[1]), share,
            f"{statistics.median(cost):.2f}" if cost else "-",
            (f"{statistics.median(frozen):.0f}" if frozen else "-") + (f" ({open_ones} never)" if open_ones else ""), verdict,
            str(len(end))]


def main(paths):
    print("| environment | backend | all steps | late steps | table | of tune's, % | learning, % of its steps | frozen after | late steps are | blocks |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    rows = {}
    for path in paths:
        rows.update(launches_of(path))
    for (environment, backend), blocks in sorted(rows.items()):
        print("| " + " | ".join([environment, backend] + row_of(blocks)) + " |")


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        sys.exit(0 if len(sys.argv) > 1 else 2)
    main(sys.argv[1:])
