"""How many numbers an iteration sends as d_x and d_λ grow, from the counted traffic of three iterations.

The problem has instance weights in a logistic model: d_x features, d_λ instances per client, n = 4 clients on one
undirected graph. Settings that would need more than LARGEST numbers in one array are left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import hgp_ref as hgp
from hgp_ref import methods
from hgp_ref.mixing import Traffic
from reporting.store import Arrays, Experiment

N, ITERATIONS, LARGEST = 4, 3, 3e7
SIZES_X, SIZES_LAM, FIXED = (10, 100, 1000, 10000), (10, 30, 100, 300), 10
GRAPH = hgp.networks.StaticUndirected(N, p=0.5, seed=0)


def _at_point(name: str, net: hgp.networks.Network = GRAPH, **settings: object) -> Callable[..., Traffic]:
    return lambda problem, x, lam: (
        hgp.baselines.at_point(problem, x, lam, net, name, iterations=ITERATIONS, **settings).traffic
    )


def _over_push_sum(method: methods.Method) -> Callable[..., Traffic]:
    def run(problem: object, x: np.ndarray, lam: np.ndarray) -> Traffic:
        avg = hgp.PushSum(GRAPH, 1)
        return hgp.hypergradient(problem, x, lam, avg, method=method, iterations=ITERATIONS).traffic

    return run


def _along_tree(problem: object, x: np.ndarray, lam: np.ndarray) -> Traffic:
    avg, method = hgp.mixing.TreeAverage(GRAPH), methods.ConjugateGradient()
    return hgp.hypergradient(problem, x, lam, avg, method=method, iterations=ITERATIONS).traffic


RUNS: dict[str, Callable[..., Traffic]] = {
    "HGP": _over_push_sum(methods.Neumann(0.1)),
    "Chebyshev": _over_push_sum(methods.Chebyshev(0.1, 2.0)),
    "Refined": _over_push_sum(methods.Refined(methods.Chebyshev(0.1, 2.0), cycles=1, steps=1)),
    "Tracking": _over_push_sum(methods.Tracking(0.01)),
    "Preconditioned tracking": _over_push_sum(methods.PreconditionedTracking()),
    "Conjugate gradients": _along_tree,
    "FAB": _at_point("fab", step=1e-3, penalty=2.0),
    "SPARKLE-ED": _at_point("sparkle", rule="ED", step=0.1),
    "SPARKLE-EXTRA": _at_point("sparkle", rule="EXTRA", step=0.1),
    "SPARKLE-GT": _at_point("sparkle", rule="GT", step=0.1),
    "MA-DSBO": _at_point("ma_dsbo", step=0.1),
    "D-SOBA": _at_point("dsoba", step=0.1),
    "DBO": _at_point("dbo", step=0.1),
    "GBDSBO": _at_point("gbdsbo", step=0.1, ell=2.0, terms=2),
    "FedNest": _at_point("fednest", hgp.networks.FullyConnected(N), terms=8, ell=2.0, draw=1),
}


def experiment(quick: bool) -> Experiment:
    """Floats per message of each method, over d_x and over d_λ."""
    settings: dict[str, Any] = {
        "revision": 1,
        "sizes_x": SIZES_X[:2] if quick else SIZES_X,
        "sizes_lam": SIZES_LAM[:2] if quick else SIZES_LAM,
        "fixed": FIXED,
        "iterations": ITERATIONS,
        "methods": list(RUNS),
        "seed": 0,
        "backend": "numpy",
        "dtype": "float64",
    }

    def compute(part: str, finished: Mapping[str, Arrays]) -> Arrays:
        along_x = part == "x"
        sizes = settings["sizes_x" if along_x else "sizes_lam"]
        pairs = [(s, FIXED) if along_x else (FIXED, s) for s in sizes]
        return {"sizes": np.array(sizes)} | {name: _floats(name, pairs) for name in RUNS}

    def join(parts: Mapping[str, Arrays]) -> Arrays:
        return {f"{part}/{name}": a for part, arrays in parts.items() for name, a in arrays.items()}

    return Experiment("comparison_growth", settings, ("x", "lam"), compute, join)


def exponent(sizes: np.ndarray, floats: np.ndarray) -> float:
    """The slope of log floats over log size, by least squares over what was run."""
    run = np.isfinite(floats)
    return float(np.polyfit(np.log(sizes[run]), np.log(floats[run]), 1)[0])


def _floats(name: str, pairs: list[tuple[int, int]]) -> np.ndarray:
    """Floats a message for each (d_x, d_λ); NaN if a matrix would be larger than LARGEST."""
    floats = []
    for d, k in pairs:
        matrix = {"DBO": 2.0 * N * N * k * d, "GBDSBO": 2.0 * N * d * d}.get(name, 0.0)
        if matrix > LARGEST:
            floats.append(np.nan)
            continue
        rng = np.random.default_rng([d, k])
        X, X_val = rng.standard_normal((2, N, k, d)) / d**0.5
        y, y_val = np.tile(np.arange(k) % 2, (2, N, 1)).astype(float)
        problem = hgp.problems.InstanceWeights(X, y, X_val, y_val, l2=0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # three iterations have not converged
            sent = RUNS[name](problem, np.zeros((N, d)), np.ones((N, k)))
        floats.append(sent.floats / sent.messages * sent.rounds / ITERATIONS)
    return np.array(floats)
