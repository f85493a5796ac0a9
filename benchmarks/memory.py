"""`python -m benchmarks.memory push_sum n d k S` or `... sgp n d`: peak memory as JSON, in a process of its own."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import hgp_ref as hgp
from benchmarks.problems import logistic

CHUNK = 32 * 2**20  # bytes of graphs that a run may hold at once; one graph where it is larger


def push_sum(n: int, d: int, k: int, steps: int) -> dict[str, float]:
    """One call of Push-Sum on RandomOut(n, k).

    Needed: u, the result, one array between steps, one graph (receivers and where each sender's begin), ω twice.
    """
    small = np.ones((50, d))
    hgp.PushSum(hgp.networks.RandomOut(50, k, seed=0), steps, mode="stepping").apply(small)  # load and compile
    needed = 3 * 8 * n * d + 4 * n * (k + 1) + 8 * (n + 1) + 2 * 8 * n

    def run() -> None:
        u = np.ones((n, d))
        hgp.PushSum(hgp.networks.RandomOut(n, k, seed=0), steps, mode="stepping").apply(u)

    return _above(run, needed)


def sgp(n: int, d: int, instances: int = 5, steps: int = 300) -> dict[str, float]:
    """`steps` steps of SGP on RandomDirected(n): n × d parameters and graphs of n² weights, float64.

    Needed: the data; λ, Push-Sum's sums x, the parameters z, the gradient, and two arrays between operations; one
    chunk of graphs, drawn and as they are applied.
    """
    _train(8, 16, instances, 40)  # load and compile
    validation = max(1, instances // 5)
    data = 8 * n * (instances + validation) * (d + 1)
    chunk = min(max(CHUNK, 8 * n * n), 8 * n * n * steps)
    return _above(lambda: _train(n, d, instances, steps), data + 6 * 8 * n * d + 2 * chunk)


def _train(n: int, d: int, instances: int, steps: int) -> None:
    problem, _, _, lam = logistic(n, instances, d, "float64")
    hgp.sgp(problem, lam, hgp.networks.RandomDirected(n, seed=1), steps=steps, lr=0.5, milestones=(0.6, 0.8))


def _above(run: Callable[[], None], needed: int) -> dict[str, float]:
    """Megabytes at the peak of a run, above what the interpreter held before, and megabytes needed."""
    before = highest()
    run()
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
    measure: Callable[..., Any] = {"push_sum": push_sum, "sgp": sgp}[sys.argv[1]]  # type: ignore[assignment]
    print(json.dumps(measure(*(int(a) for a in sys.argv[2:]))))
