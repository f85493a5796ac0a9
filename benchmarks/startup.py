"""Start-up: importing the package, compiling on first use, and finding compiled functions again."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time

from benchmarks.results import Report, Timing

IMPORT = "import hgp_ref"
PARTS = "import hgp_ref as hgp; hgp.hypergradient, hgp.sgp, hgp.PushSum, hgp.networks, hgp.problems, hgp.exact"
USE = """
import numpy as np
import hgp_ref as hgp
rng = np.random.default_rng(0)
X, y = rng.standard_normal((4, 30, 5)), rng.integers(0, 2, (4, 30))
problem, lam = hgp.problems.LogisticRegression(X, y, X, y), np.full((4, 5), 0.1)
net = hgp.networks.RandomDirected(4, seed=0)
x = hgp.sgp(problem, lam, net, steps=50, lr=0.5).x
hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 3), eta=0.5, iterations=50)
"""
LARGE = """
import numpy as np
import hgp_ref as hgp
hgp.PushSum(hgp.networks.RandomOut(3000, 4, seed=0), 2).apply(np.ones((3000, 20)))
"""


def run(quick: bool) -> list[Report]:
    """Run each measurement in new processes. Imports are timed inside the process, the rest from outside."""
    repetitions = 1 if quick else 7
    report = Report("startup", "Start-up, in fresh processes", {"repetitions": repetitions})
    empty = _seconds("pass", repetitions)
    labelled = {"import hgp_ref": IMPORT, "import and load the parts": PARTS}
    for label, code in labelled.items():
        report.timings[label] = _minus(_seconds(code, repetitions), empty)
    with tempfile.TemporaryDirectory() as folder:
        cache = {"NUMBA_CACHE_DIR": folder}
        for label, code in {"training and HGP": USE, "sparse Push-Sum": LARGE}.items():
            if quick and code is LARGE:
                continue
            report.timings[f"{label}, first use (compiles)"] = _minus(_seconds(code, 1, cache), empty)
            report.timings[f"{label}, compiled before"] = _minus(_seconds(code, repetitions, cache), empty)
    report.at_most("seconds of import hgp_ref (wall, warm)", report.timings["import hgp_ref"].wall_median, 0.5)
    loaded = report.timings["import and load the parts"].wall_median
    report.figures["import and load the parts"] = f"{loaded:.2f} s wall"
    report.figures["an empty interpreter"] = f"{empty.wall_median:.3f} s wall, taken off all others"
    return [report]


def _seconds(code: str, repetitions: int, environment: dict[str, str] | None = None) -> Timing:
    """Seconds of whole processes. One run before them, not counted, warms the disk, unless a cache is to be filled."""
    timings = [_process(code, environment or {}) for _ in range(repetitions + (environment is None))]
    measured = timings[1:] if environment is None else timings
    return Timing([cpu for cpu, _ in measured], [wall for _, wall in measured], timings[0][0])


def _process(code: str, environment: dict[str, str]) -> tuple[float, float]:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | environment)
    after, end = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, end - start


def _minus(timing: Timing, empty: Timing) -> Timing:
    cpu, wall = empty.median, empty.wall_median
    return Timing([max(0.0, c - cpu) for c in timing.cpu], [max(0.0, w - wall) for w in timing.wall], timing.first)
