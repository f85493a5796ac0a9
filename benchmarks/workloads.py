"""Named workloads for comparing versions of the package: public names only, so that they run on old and new alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hgp_ref as hgp
from benchmarks.problems import logistic, mixture

Call = Callable[[], Any]


def _figure(quick: bool, batch_size: int | None = None) -> Call:
    """50 runs of HGP at once: n = 3, d = 6, M = 1000, S in {1, 2, 5, 10, 100}, 10 seeds."""
    steps, seeds, M = ((1, 5), 2, 20) if quick else ((1, 2, 5, 10, 100), 10, 1000)
    problem, _ = mixture()
    lam, x = np.zeros((3, 6)), 0.5 * np.ones((3, 6))

    def call() -> Any:
        runs = [hgp.PushSum(hgp.networks.RandomDirected(3, seed=k), S) for S in steps for k in range(seeds)]
        return hgp.hypergradient(problem, x, lam, runs, eta=1.0, iterations=M, history=True, batches=batch_size)

    return call


def _figure_minibatch(quick: bool) -> Call:
    """The same with mini-batches of 20."""
    return _figure(quick, batch_size=20)


def _figure_sgp(quick: bool) -> Call:
    """SGP of 5000 steps: n = 3, d = 6."""
    problem, _ = mixture()
    lam, net = np.zeros((3, 6)), hgp.networks.RandomDirected(3, seed=0)
    return lambda: hgp.sgp(problem, lam, net, steps=100 if quick else 5000, lr=2.0, milestones=(0.6, 0.8))


def _dense(quick: bool, dtype: str) -> Call:
    """HGP: n = 100, d = 1000, N = 100, S = 10, M = 100."""
    n, N, d, M = (10, 20, 100, 5) if quick else (100, 100, 1000, 100)
    problem, _, x, lam = logistic(n, N, d, dtype)
    avg = hgp.PushSum(hgp.networks.RandomDirected(n, seed=1), 10)
    return lambda: hgp.hypergradient(problem, x, lam, avg, eta=1.0, iterations=M)


def _sparse(quick: bool, dtype: str, drawn: bool) -> Call:
    """Steps of a sparse matrix: n = 1e5, d = 64, degree 10; of a given graph (pulled), or drawn for each (pushed)."""
    n = 2000 if quick else 100_000
    net = hgp.networks.SparseErdosRenyi(n, 10, seed=1)
    if not drawn:
        net = hgp.networks.Schedule([net.edges(1)], n=n)
    u = np.random.default_rng(0).standard_normal((n, 64)).astype(dtype)
    avg = hgp.PushSum(net, 4, mode="stepping")
    return lambda: avg.apply(u)


def _composed(quick: bool) -> Call:
    """Push-Sum, composed: n = 100, d = 2.3e5, S = 10, float32."""
    u = np.random.default_rng(0).standard_normal((100, 2000 if quick else 230_000), dtype=np.float32)
    avg = hgp.PushSum(hgp.networks.RandomDirected(100, seed=1), 10)
    return lambda: avg.apply(u)


def _scale(quick: bool, n: int) -> Call:
    """Push-Sum on RandomOut(n, 4): d = 8, S = 5, float64."""
    n = n // 100 if quick else n
    u = np.random.default_rng(0).standard_normal((n, 8))
    avg = hgp.PushSum(hgp.networks.RandomOut(n, 4, seed=1), 5, mode="stepping")
    return lambda: avg.apply(u)


# What makes the call that is timed, by name.
TIMED: dict[str, Callable[[bool], Call]] = {
    "figure": _figure,
    "figure-minibatch": _figure_minibatch,
    "figure-sgp": _figure_sgp,
    "dense-float32": lambda quick: _dense(quick, "float32"),
    "dense-float64": lambda quick: _dense(quick, "float64"),
    "sparse-pulled-float32": lambda quick: _sparse(quick, "float32", drawn=False),
    "sparse-pulled-float64": lambda quick: _sparse(quick, "float64", drawn=False),
    "sparse-pushed-float32": lambda quick: _sparse(quick, "float32", drawn=True),
    "composed": _composed,
    "scale-1e4": lambda quick: _scale(quick, 10_000),
    "scale-1e5": lambda quick: _scale(quick, 100_000),
}
# Arguments of `python -m benchmarks.memory`, whose peak is compared, by name; small ones for --quick.
MEASURED: dict[str, tuple[list[str], list[str]]] = {
    "sgp-memory-n300": (["sgp", "300", "1000"], ["sgp", "20", "1000"]),
    "sgp-memory-n1000": (["sgp", "1000", "1000"], ["sgp", "30", "1000"]),
}
NAMES = (*TIMED, *MEASURED)
