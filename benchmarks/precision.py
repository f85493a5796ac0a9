"""Precision: float32 runs of every workload against the same runs in float64.

A step of Algorithm 2 rounds its sums of N, d and n terms: relative error γ = eps (N + d + n). Later steps do not
enlarge earlier errors (averaging is row-stochastic, I − ηH contracts); errors add up like the series itself. With ρ
the factor by which terms shrink per iteration, the relative error of w, and of v through J, is at most about
γ / (1 − ρ), or γ M if terms hardly shrink. Push-Sum alone: eps (S (messages received per step) + 1).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import hgp_ref as hgp
from benchmarks.problems import logistic, mixture
from benchmarks.results import Report

EPS = float(np.finfo(np.float32).eps)


def run(quick: bool) -> list[Report]:
    """Largest error over clients, relative to the largest float64 result."""
    report = Report("precision", "Relative error of float32 against float64, over what rounding allows", {"eps": EPS})
    for name, error, allowed in (*_hypergradients(quick), *_averagings(quick)):
        report.at_most(name, error / allowed, 1.0)
        report.figures[name] = f"{error:.1e}, {error / EPS:.0f} eps; allowed {allowed:.1e}"
    return [report]


def _relative(single: np.ndarray, double: np.ndarray) -> float:
    assert single.dtype == np.float32 and double.dtype == np.float64
    return float(np.abs(single - double).max() / np.abs(double).max())


def _hypergradients(quick: bool) -> list[tuple[str, float, float]]:
    rows = []
    M = 50 if quick else 1000
    x = 0.5 * np.ones((3, 6))
    for S in (1, 100):
        runs = []
        for dtype in ("float32", "float64"):
            problem, _ = mixture(dtype)
            avg = hgp.PushSum(hgp.networks.RandomDirected(3, seed=0), S)
            runs.append(_estimate(problem, x.astype(dtype), np.zeros((3, 6), dtype), avg, M))
        rows.append(_compare(f"figure, S = {S}", runs, 100 + 6 + 3, M))
    n, N, d = (10, 20, 300) if quick else (100, 100, 1000)
    rows.append(
        _of_logistic("dense", n, N, d, lambda n: hgp.networks.RandomDirected(n, seed=1), n, 20 if quick else 100)
    )
    n = 200 if quick else 10_000
    rows.append(_of_logistic("many clients", n, 20, 20, lambda n: hgp.networks.RandomOut(n, 4, seed=1), 5, 50))
    return rows


def _of_logistic(name: str, n: int, N: int, d: int, network: Any, in_degree: int, M: int) -> tuple[str, float, float]:
    runs = []
    for dtype in ("float32", "float64"):
        problem, _, x, lam = logistic(n, N, d, "float32")  # the same data in both
        problem, x, lam = problem.to("numpy", dtype), x.astype(dtype), lam.astype(dtype)
        runs.append(_estimate(problem, x, lam, hgp.PushSum(network(n), 10), M))
    return _compare(name, runs, N + d + 10 * in_degree, M)


def _estimate(problem: Any, x: np.ndarray, lam: np.ndarray, avg: Any, M: int) -> Any:
    return hgp.hypergradient(problem, x, lam, avg, eta=1.0, iterations=M)


def _compare(name: str, runs: list[Any], terms: int, M: int) -> tuple[str, float, float]:
    shrink = float(runs[1].residual_ratio) ** (1 / M)  # ρ
    return name, _relative(runs[0].value, runs[1].value), EPS * terms * min(M, 1 / (1 - min(shrink, 1 - 1e-12)))


def _averagings(quick: bool) -> list[tuple[str, float, float]]:
    rows = []
    n = 500 if quick else 100_000
    for name, net, in_degree, d in (
        ("composed, n = 100", hgp.networks.RandomDirected(100, seed=1), 100, 20_000),
        (f"stepping, n = {n}", hgp.networks.RandomOut(n, 4, seed=1), 5, 8),
    ):
        u = np.random.default_rng(0).standard_normal((net.n, d), dtype=np.float32)
        avg = hgp.PushSum(net, 10)
        error = np.abs(avg.apply(u) - avg.apply(u.astype(np.float64))).max() / np.abs(u).max()  # means may cancel
        rows.append((name, float(error), EPS * (10 * in_degree + 1)))
    return rows
