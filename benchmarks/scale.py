"""Push-Sum on RandomOut networks of many clients: time per edge and coordinate, and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np

import hgp_ref as hgp
from benchmarks import limits
from benchmarks.harness import interleave
from benchmarks.results import Report
from hgp_ref._kernels import mixing as kernels

D, K, STEPS = 8, 4, 5


def run(quick: bool) -> list[Report]:
    """The same call for growing n; memory is measured in separate processes."""
    sizes = (500, 1000, 2000) if quick else (10_000, 100_000, 1_000_000)
    settings = {"n": sizes, "d": D, "k": K, "S": STEPS, "dtype": "float64"}
    report = Report("scale", f"Push-Sum on RandomOut(n, {K}), d = {D}, S = {STEPS}, float64", settings)
    cases: dict[str, Any] = {}
    for n in sizes:
        cases |= _cases(n)
    report.timings = interleave(cases, 3 if quick else 7)
    edges = {n: STEPS * (K + 1) * n for n in sizes}
    time = {n: report.timings[f"hgp_ref, n = {n}"].median / edges[n] * 1e9 for n in sizes}  # ns per edge
    random = {n: report.timings[f"random rows and numbers, n = {n}"].median / ((K + 1) * n) * 1e9 for n in sizes}
    report.at_most("largest over smallest time per edge and coordinate", max(time.values()) / min(time.values()), 2.0)
    peaks = {n: _peak(n) for n in sizes}
    for n in sizes:
        if n * D * 8 > 2**25:  # below, the interpreter's own pages blur the figure
            report.at_most(f"peak memory over the arrays needed, n = {n}", peaks[n]["ratio"], 1.3)
    report.figures = {
        "per edge and coordinate": _listing({n: t / D for n, t in time.items()}, "ns"),
        "per edge": _listing(time, "ns"),
        "limit: random rows updated, nothing else": _listing(random, "ns per edge")
        + f": a factor {max(random.values()) / min(random.values()):.1f}; Push-Sum takes "
        + ", ".join(f"{time[n] / random[n]:.2f}" for n in sizes)
        + " times as long",
        "memory": ", ".join(f"n = {n}: {p['peak']:.0f} of {p['needed']:.0f} MB" for n, p in peaks.items()),
    }
    return [report]


def _listing(values: dict[int, float], unit: str) -> str:
    return ", ".join(f"{value:.2f}" for value in values.values()) + f" {unit} for n = " + ", ".join(map(str, values))


def _cases(n: int) -> dict[str, Any]:
    """Push-Sum, and as many updates of random rows and numbers as a step has edges."""
    rng = np.random.default_rng(0)
    u = rng.standard_normal((n, D))
    avg = hgp.PushSum(hgp.networks.RandomOut(n, K, seed=1), STEPS, mode="stepping")
    order = rng.integers(0, n, (K + 1) * n).astype(np.int32)
    out, numbers = kernels.empty_like(u), np.zeros(n)
    out[:] = 0

    def update() -> None:
        limits.update_random_rows(order, u, out)
        limits.update_random_numbers(order, numbers)

    return {f"hgp_ref, n = {n}": lambda: avg.apply(u), f"random rows and numbers, n = {n}": update}


def _peak(n: int) -> dict[str, float]:
    """Peak memory of one call in its own process, and the memory of the arrays that it needs, in megabytes."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", "push_sum", str(n), str(D), str(K), str(STEPS)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)
