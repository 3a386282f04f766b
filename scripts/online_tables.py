#!/usr/bin/env python3
"""Static tables of NCCL's all-reduce, and how near to the best of them a tuner ends that learns while it trains.

    online_tables.py make FOLDER       a table per setting of the grid; prints them as a TOML list for --set
    online_tables.py judge DATABASE    newest run of experiments/gpu_online_training.toml with these tables

Judged are medians of the first worker's steps, of "online" the last third. The best table is chosen on the other launches
and compared with online on this one, in turn, so that the best of many lucky ones counts for nothing; geometric means over
launches with Student's interval at 95 % where there are several.
"""
import collections
import hashlib
import json
import math
import os
import sqlite3
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from online_steps import ratio, shown  # noqa: E402

FEATURES = 45


def make(folder):
    os.makedirs(folder, exist_ok=True)
    paths = []
    choices = [("", ""), ("ring", "Simple"), ("ring", "LL"), ("tree", "Simple"), ("tree", "LL")]
    for algorithm, protocol in choices:
        for channels in ("", "2", "4", "8", "16"):
            if not algorithm and not channels:
                continue
            call = {}
            if protocol:
                call["protocol"] = protocol
            if channels:
                call["channels"] = channels
            name = "-".join(part for part in (algorithm, protocol, channels) if part)
            evidence = {"default_us": 0.0, "tuned_us": 0.0, "ratio": 1.0, "ratio_low": 1.0, "ratio_high": 1.0, "launches": 0,
                        "verdict": "not measured", "candidate": ""}
            # The row of one size stands for all: the nearest one is taken.
            body = {"format": "dynamiccl-table", "version": 1, "epoch": 1, "provenance": {"made": "by hand"},
                    "regimes": [{"id": "any", "name": "any", "json": {}}],
                    "entries": [{"key": "nccl/ring/allreduce/2^24/r2n1", "regime": "any", "size_bytes": 1 << 24, "arm": name,
                                 "setting": {"algorithm": algorithm or "library", "call": call, "launch": {}}, "flags": [],
                                 "evidence": evidence}]}
            text = json.dumps(body, sort_keys=True, separators=(",", ":"))
            body["sha256"] = hashlib.sha256(text.encode()).hexdigest()
            path = os.path.join(os.path.abspath(folder), name + ".json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(body, file, sort_keys=True)
            paths.append(path)
    print(json.dumps(paths))


def cells_of(db, run):
    """{(model, method): {block: {kind or table: (steps, details)}}}"""
    found = collections.defaultdict(lambda: collections.defaultdict(dict))
    rows = db.execute("SELECT t.model, t.method, m.block, m.cell_knobs, t.measurement_row FROM v_training t JOIN v_measurement m "
                      "ON m.measurement_row = t.measurement_row WHERE t.run_row = ? AND m.counts", (run,)).fetchall()
    for model, method, block, knobs, row in rows:
        steps = [us for us, in db.execute("SELECT total_us FROM sample WHERE measurement_id = ? AND phase = 1 AND rank = 0 "
                                          "ORDER BY iteration", (row,))]
        details, = db.execute("SELECT details_json FROM training WHERE measurement_id = ? AND rank = 0", (row,)).fetchone()
        kind = json.loads(knobs or "{}").get("tuner", "off")
        found[model, method][block][os.path.basename(kind).removesuffix(".json")] = (steps, json.loads(details).get("tuner", {}))
    return found


def late(steps):
    return statistics.median(steps[2 * len(steps) // 3:])


def best_table(blocks, names):
    level = {name: statistics.fmean(math.log(statistics.median(block[name][0])) for block in blocks if name in block)
             for name in names if any(name in block for block in blocks)}
    return min(level, key=level.get)


def judge_cell(title, blocks):
    blocks = [block for _, block in sorted(blocks.items()) if "online" in block]
    names = sorted({name for block in blocks for name in block} - {"online"})
    tables = [name for name in names if name != "off"]
    if not blocks or not tables:
        print(f"{title}: no launch with online and tables")
        return
    over_table, over_off, cost, chosen = [], [], [], []
    for i, block in enumerate(blocks):
        others = blocks[:i] + blocks[i + 1:] or blocks
        best = best_table(others, [name for name in names if name in block])
        chosen.append(best)
        end = late(block["online"][0])
        over_table.append(math.log(end / statistics.median(block[best][0])))
        if "off" in block:
            off = statistics.median(block["off"][0])
            over_off.append(math.log(end / off))
        steps, tuner = block["online"]
        learning = steps[:tuner.get("frozen_after_steps") or len(steps)]
        cost.append(100 * sum(us - statistics.median(block.get("off", (steps, 0))[0]) for us in learning) / sum(steps))
    print(f"\n## {title}\n")
    print("| setting | step, ms, by launch |\n|---|---|")
    for name in sorted(names, key=lambda name: statistics.fmean(statistics.median(b[name][0]) for b in blocks if name in b)):
        print(f"| {name} | " + ", ".join(f"{statistics.median(b[name][0]) / 1e3:.2f}" for b in blocks if name in b) + " |")
    print("| **online**, last third | " + ", ".join(f"{late(b['online'][0]) / 1e3:.2f}" for b in blocks) + " |\n")
    within = statistics.fmean(over_table) <= math.log(1.03)
    print(f"online over the best static table ({', '.join(chosen)}): {shown(ratio(over_table))}: "
          f"{'within 3 %' if within else 'NOT within 3 %'}{'' if len(blocks) > 1 else ' in one launch, which proves nothing'}")
    print(f"online over NCCL's own choices: {shown(ratio(over_off))}")
    print(f"learning, % of its steps' time: {', '.join(f'{one:.2f}' for one in cost)}")
    for block in blocks:
        tuner = block["online"][1]
        print(f"frozen after {tuner.get('frozen_after_steps')} of {tuner.get('steps')} steps, {tuner.get('alarms')} alarms: " +
              "; ".join(f"{key['task']}: {key['setting']} of {key['settings']}" for key in tuner.get("keys", [])))


def judge(path):
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    run = db.execute("SELECT id FROM run WHERE name = 'gpu-online-training' AND id IN (SELECT run_row FROM v_training) "
                     "ORDER BY id DESC LIMIT 1").fetchone()
    if run is None:
        print("no run of gpu-online-training", file=sys.stderr)
        return 1
    for (model, method), blocks in sorted(cells_of(db, run[0]).items()):
        if model == "cnn":
            continue
        judge_cell(f"{model}, {method}", blocks)
    print("\n## Sums under every setting in turn\n\n| method | counts | wrong | largest difference from one process |\n|---|---|---|---|")
    for row in db.execute("SELECT method, counts, wrong, max_difference FROM v_training WHERE run_row = ? AND model = 'cnn' "
                          "ORDER BY method", run):
        print("| " + " | ".join(str(one) for one in row) + " |")
    for row in db.execute("SELECT algorithm, status, reason FROM v_measurement WHERE run_row = ? AND status <> 'ok'", run):
        print("not ok: " + ", ".join(str(one) for one in row))
    print("\n## A step by channel: kernel, proxy, network, us\n")
    for model, method, settings, text in db.execute(
            "SELECT v.model, v.method, v.settings, t.details_json FROM v_training v JOIN training t ON t.measurement_id = v.measurement_row "
            "WHERE v.run_row = ? AND t.rank = 0 AND v.counts ORDER BY v.measurement_row", run):
        details = json.loads(text)
        if "channels" not in details or ".json" in (settings or ""):
            continue
        told = details["channels"]
        share = details.get("tuner", {}).get("sm_share")
        print(f"{model}, {method}, {settings}: step {told['step_us']:.0f} us, {100 * told['sm_share']:.2f} % of multiprocessors"
              f"{'' if share is None else f' (median while it learnt {100 * share:.2f} %)'}: " +
              "; ".join(f"{one['channel']}: {one['kernel_us']:.0f}, {one['proxy_us']:.0f}, {one['network_us']:.0f}"
                        for one in told["channels"]))
    known = [json.loads(text) for text, in db.execute(
        "SELECT d.state_json FROM decision d JOIN tuning t ON t.id = d.tuning_id WHERE t.run_id = ? AND d.kind <> 'final' "
        "ORDER BY d.id DESC LIMIT 1", run)]
    for state in known:
        print(f"\nfeatures known: {len(state)} of {FEATURES}: {', '.join(sorted(state))}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("make", "judge"):
        print(__doc__)
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)
    sys.exit(make(sys.argv[2]) if sys.argv[1] == "make" else judge(sys.argv[2]))
