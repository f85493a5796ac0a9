"""`python -m benchmarks.memory n d k S`: peak memory of one call of Push-Sum, as JSON. A process of its own."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import numpy as np

import hgp_ref as hgp


def measure(n: int, d: int, k: int, steps: int) -> dict[str, float]:
    """Megabytes at the peak, above what the interpreter held before the arrays were made, and megabytes needed.

    Needed: u, the result, one array between steps, one graph (receivers and where each sender's begin), ω twice.
    """
    small = np.ones((50, d))
    hgp.PushSum(hgp.networks.RandomOut(50, k, seed=0), steps, mode="stepping").apply(small)  # load and compile
    before = highest()
    u = np.ones((n, d))
    hgp.PushSum(hgp.networks.RandomOut(n, k, seed=0), steps, mode="stepping").apply(u)
    needed = 3 * u.nbytes + 4 * n * (k + 1) + 8 * (n + 1) + 2 * 8 * n
    peak = highest() - before
    return {"peak": peak / 1e6, "needed": needed / 1e6, "ratio": peak / needed}


def highest() -> int:
    """Largest resident memory of this process so far, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the parent held when it started this process
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    print(json.dumps(measure(*(int(a) for a in sys.argv[1:]))))
