#!/usr/bin/env python3
"""What a plain program gained from the files it loaded, out of scripts/loadable_gains.sh's NAME.plain.txt.

    scripts/plain_gains.py NAME.plain.txt...

Lines are "TURN default|loaded COLLECTIVE SIZE_BYTES MICROSECONDS". Prints for every file a row per collective and size:
medians of both sides, the ratio loaded/default paired by turn with its 95 % interval (signed-rank from six turns on,
Student's t on the logarithms below), and a verdict. FASTER and SLOWER: sure with all rows of the file in mind
(Benjamini and Hochberg at 5 % over paired t tests) and by more than 5 %. The last line counts them, and next to them
what each row's own interval says, of which 1 of 40 rows that are equal is expected on either side by chance.
"""
import math
import sys
from collections import defaultdict

MARGIN = math.log(1.05)


def median(values):
    ordered = sorted(values)
    n = len(ordered)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def t_two_sided(t, degrees):
    """P(|T| > t) by Simpson's rule over u = x / (1 + x), which maps [t, inf) to a finite interval."""
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)

    def density(u):
        if u >= 1:
            return 0.0
        x = u / (1 - u)
        return scale * (1 + x * x / degrees) ** (-(degrees + 1) / 2) / (1 - u) ** 2

    low, steps = t / (1 + t), 2000
    width = (1 - low) / steps
    inner = sum((4 if i % 2 else 2) * density(low + i * width) for i in range(1, steps))
    return min(1.0, 2 * width / 3 * (density(low) + inner + density(1 - 1e-12)))


def t_quantile(degrees, beyond):
    low, high = 0.0, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_two_sided(middle, degrees) > beyond else (low, middle)
    return high


def signed_rank_interval(values):
    """Hodges and Lehmann's centre with the exact 95 % interval of the signed-rank test."""
    n = len(values)
    averages = sorted((values[i] + values[j]) / 2 for i in range(n) for j in range(i, n))
    counts = [1]
    for rank in range(1, n + 1):
        counts = [(counts[k] if k < len(counts) else 0) + (counts[k - rank] if k >= rank else 0)
                  for k in range(len(counts) + rank)]
    below, cut = 0, 0
    while below + counts[cut] <= 0.025 * 2 ** n:
        below += counts[cut]
        cut += 1
    # P(W < cut) <= 2.5 %: the cut-th average from either end.
    return median(averages), averages[cut - 1], averages[len(averages) - cut]


def interval_of(logs):
    if len(logs) >= 6:
        return signed_rank_interval(logs)
    n = len(logs)
    centre = sum(logs) / n
    if n < 3:
        return centre, -math.inf, math.inf
    spread = math.sqrt(sum((x - centre) ** 2 for x in logs) / (n - 1) / n)
    half = t_quantile(n - 1, 0.05) * spread
    return median(logs), centre - half, centre + half


def probability(logs):
    n = len(logs)
    if n < 3:
        return 1.0
    centre = sum(logs) / n
    spread = math.sqrt(sum((x - centre) ** 2 for x in logs) / (n - 1) / n)
    return t_two_sided(abs(centre) / spread, n - 1) if spread > 0 else 0.0 if centre else 1.0


def adjusted(probabilities):
    order = sorted(range(len(probabilities)), key=lambda i: -probabilities[i])
    result, least = [1.0] * len(probabilities), 1.0
    for place, i in enumerate(order):
        least = min(least, probabilities[i] * len(probabilities) / (len(probabilities) - place))
        result[i] = least
    return result


def rows_of(path):
    """Rows of (collective, size, default us, loaded us, logs by turn)."""
    times = defaultdict(lambda: defaultdict(dict))
    names = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            parts = line.split()
            try:
                turn, side, collective, size, us = parts
                size, us = int(size), float(us)
            except ValueError:
                continue  # torn by the end of the time
            if collective not in names:
                names.append(collective)
            times[names.index(collective), size][turn][side] = us
    for (place, size), turns in sorted(times.items()):
        both = [t for t in turns.values() if t.get("default", 0) > 0 and t.get("loaded", 0) > 0]
        if both:
            yield (names[place], size, median([t["default"] for t in both]), median([t["loaded"] for t in both]),
                   [math.log(t["loaded"] / t["default"]) for t in both])


def report(path):
    rows = list(rows_of(path))
    print(f"{path}: loaded over default, plain program")
    if not rows:
        print(f"{path}: no turn has both sides: nothing was compared\n")
        return
    chances = adjusted([probability(logs) for *_, logs in rows])
    faster, slower, alone = [], 0, [0, 0]
    print("collective      size_bytes  default_us  loaded_us  ratio    low   high  turns  verdict")
    for (collective, size, default, loaded, logs), chance in zip(rows, chances):
        centre, low, high = interval_of(logs)
        verdict = ""
        if chance <= 0.05 and abs(centre) > MARGIN:
            verdict = "FASTER" if centre < 0 else "SLOWER"
        faster += [centre] if verdict == "FASTER" else []
        slower += verdict == "SLOWER"
        alone[0] += high < 0 and centre < -MARGIN
        alone[1] += low > 0 and centre > MARGIN
        # Below three turns nothing bounds the ratio.
        numbers = [f"{math.exp(max(-50, min(50, x))):.3g}" if math.isfinite(x) else "-"
                   for x in (centre, low, high)]
        print(f"{collective:<14} {size:>11} {default:>11.4g} {loaded:>10.4g} " +
              " ".join(f"{x:>6}" for x in numbers) + f" {len(logs):>6}  {verdict}")
    best = math.exp(-min(faster)) if faster else 1
    middle = math.exp(-median(faster)) if faster else 1
    most = max(len(logs) for *_, logs in rows)
    if most < 3:
        print(f"{path}: {most} of at least 3 turns: too few to call any of {len(rows)} sizes FASTER or SLOWER\n")
        return
    print(f"{path}: {len(faster)} of {len(rows)} sizes FASTER (median {middle:.2f}x, best {best:.2f}x), {slower} SLOWER; "
          f"by their own intervals alone {alone[0]} and {alone[1]}, of which about {len(rows) / 40:.0f} each by chance\n")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for name in sys.argv[1:]:
        report(name)
