"""How scripts that break things on nodes and between hosts begin and end."""
import json
import signal
import sys
import time

NOT_HERE = 77  # exit code where a script cannot run, which test runners take for skipped


def end_on_sigterm():
    """So that `finally` removes what was made."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def verdict(counts, wrong, begin):
    """Prints what was counted and what is amiss. @returns the exit code"""
    counts["seconds"] = round(time.time() - begin)
    print(json.dumps(counts))
    for line in wrong:
        print("WRONG:", line)
    return 1 if wrong else 0
