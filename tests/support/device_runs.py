"""Runs on CuPy whose launches and transfers are counted per iteration, and the most that each may launch.

    HGP_REF_TEST_CUPY=1 .cupy-rig/bin/python -m tests.support.device_runs  # after make test-cupy

writes the tables of the documentation, docs/measured/launches.md and docs/measured/memory.md.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]

import hgp_ref as hgp
from support.libraries import open_library

SHORT, LONG = 64, 128  # lengths of runs that are compared, with as many blocks of prepared calls


class Case(NamedTuple):
    """A run of M iterations: at most `launches` in each, including its share of the graphs prepared together."""

    launches: float
    problem: Callable[[], Any]
    options: dict[str, Any]
    trains: bool = False


def clients(number: int, instances: int, features: int, classes: int = 2) -> tuple[np.ndarray, ...]:
    """X, y, X_val, y_val of so many clients."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((number, instances, features)), rng.integers(0, classes, (number, instances)) * 1.0
    y[:, :classes] = np.arange(classes)
    return X, y, X[:, :10], y[:, :10]


def quadratic() -> Any:
    return hgp.problems.Quadratic.random(16, 40, 40, seed=1)


def logistic() -> Any:
    return hgp.problems.LogisticRegression(*clients(16, 20, 40))


def softmax() -> Any:
    return hgp.problems.SoftmaxRegression(*clients(16, 20, 40, classes=3), n_classes=3)


def weights() -> Any:
    return hgp.problems.InstanceWeights(*clients(16, 20, 40), l2=0.3)


def neural() -> Any:
    layers = hgp.neural.Linear(20, 16), hgp.neural.ReLU(), hgp.neural.Linear(16, 3)
    model = hgp.neural.Sequential((20,), *layers)
    return hgp.problems.NeuralInstanceWeights(model, *clients(8, 30, 20, classes=3))


CASES = {
    "HGP, quadratic": Case(6, quadratic, {"eta": 0.01}),
    "HGP, logistic": Case(7, logistic, {"eta": 0.01}),
    "HGP, softmax": Case(7, softmax, {"eta": 0.01}),
    "HGP, instance weights": Case(7, weights, {"eta": 0.01}),
    "HGP with history, logistic": Case(7, logistic, {"eta": 0.01, "history": True}),
    "HGP, mini-batches, logistic": Case(12, logistic, {"eta": 0.01, "batches": 5}),
    "HGP, mini-batches, softmax": Case(12, softmax, {"eta": 0.01, "batches": 5}),
    "HGP, mini-batches, instance weights": Case(12, weights, {"eta": 0.01, "batches": 5}),
    "Chebyshev, logistic": Case(10, logistic, {"method": hgp.methods.Chebyshev(0.1, 100.0)}),
    "Tracking, logistic": Case(12, logistic, {"method": hgp.methods.Tracking(1e-4)}),
    "Preconditioned tracking, logistic": Case(110, logistic, {"method": hgp.methods.PreconditionedTracking()}),
    "Preconditioned tracking, degree 16, logistic": Case(
        600, logistic, {"method": hgp.methods.PreconditionedTracking(degree=16)}
    ),
    "Preconditioned tracking, shift and step given, logistic": Case(
        22, logistic, {"method": hgp.methods.PreconditionedTracking(1.0, 0.3)}
    ),
    "SGP, quadratic": Case(10, quadratic, {}, trains=True),
    "SGP, logistic": Case(10, logistic, {}, trains=True),
    "SGP, softmax": Case(10, softmax, {}, trains=True),
    "SGP, instance weights": Case(10, weights, {}, trains=True),
    "SGP, mini-batches, logistic": Case(10, logistic, {"batches": 5}, trains=True),
    "SGP, mini-batches, softmax": Case(10, softmax, {"batches": 5}, trains=True),
    "SGP, mini-batches, instance weights": Case(12, weights, {"batches": 5}, trains=True),
    "HGP, neural network": Case(36, neural, {"eta": 0.01}),
    "HGP, mini-batches, neural network": Case(80, neural, {"eta": 0.01, "batches": 10}),
    "SGP, mini-batches, neural network": Case(35, neural, {"batches": 10}, trains=True),
}


def runs_of(case: Case) -> Callable[[int], Any]:
    """A run of so many iterations on the device."""
    lib, rng, host = open_library("cupy"), np.random.default_rng(1), case.problem()
    problem, net = host.to(lib.backend, device=lib.device), hgp.networks.RandomDirected(host.n_clients, seed=1)
    x = lib.asarray(0.1 * rng.standard_normal((host.n_clients, host.dim_x)))
    lam = lib.asarray(0.5 + rng.random((host.n_clients, host.dim_lam)))
    if case.trains:
        return lambda steps: hgp.sgp(problem, lam, net, steps=steps, lr=0.01, milestones=(), **case.options)
    avg = hgp.PushSum(net, 10, mode="composed")
    return lambda M: hgp.hypergradient(problem, x, lam, avg, iterations=M, **case.options)


def count(rig: Any, run: Callable[[], Any]) -> Counter[str]:
    """Launches and transfers of `run()`; "all launches" are kernels, cuBLAS calls, memsets and sorts."""
    rig.reset()
    run()
    counts = Counter(rig.counters())
    counts["all launches"] = counts["launches"] + counts["blas"] + counts["memsets"] + counts["sorts"]
    return counts


def counts_of(rig: Any, case: Case) -> tuple[Counter[str], Counter[str]]:
    """Counts of a short and of a long run."""
    run = runs_of(case)
    run(2)  # what is kept from the first use of a problem is not an iteration's
    short, long = (count(rig, lambda length=length: run(length)) for length in (SHORT, LONG))
    return short, long


def launches_table(rig: Any) -> Iterator[str]:
    """Launches of an iteration, and transfers of a run."""
    yield "| iteration | launches | transfers and waits | a run of 128: transfers to the device | to the host |"
    yield "|---|---|---|---|---|"
    for name, case in CASES.items():
        yield launches_row(name, *counts_of(rig, case))


def launches_row(name: str, short: Counter[str], long: Counter[str]) -> str:
    """The line of a case in the table."""
    launches = (long["all launches"] - short["all launches"]) / (LONG - SHORT)
    inside = sum(long[kind] - short[kind] for kind in ("h2d", "d2h", "syncs"))
    return f"| {name} | {launches:.1f} | {inside} | {long['h2d']} | {long['d2h']} |"


def memory_table() -> Iterator[str]:
    """Device memory of logistic regression in float64: of the problem, and the most that a run of HGP adds."""
    yield "| logistic regression, float64 | mini-batches | problem, in copies of X | run, in arrays (n, d_x) |"
    yield "|---|---|---|---|"
    for n, N, d, batches in ((16, 50, 1000, None), (16, 50, 2000, None), (16, 50, 1000, 10), (16, 200, 50, None)):
        copies, arrays = memory(n, N, d, batches)
        yield f"| n = {n}, N = {N}, d_x = {d} | {batches or 'no'} | {copies:.2f} | {arrays:.1f} |"


def memory(n: int, N: int, d: int, batches: int | None) -> tuple[float, float]:
    """Device memory that a problem keeps over that of X, and the most that a run adds over that of x."""
    gc.collect()
    pool = importlib.import_module("cupy").get_default_memory_pool()
    start, used, lib, data = pool.used_bytes(), [0], open_library("cupy"), clients(n, N, d)
    problem = hgp.problems.LogisticRegression(*data).to("cupy", device=lib.device)
    kept = pool.used_bytes() - start
    x, lam = lib.asarray(np.zeros((n, d))), lib.asarray(np.full((n, d), 0.1))
    before, avg = pool.used_bytes(), hgp.PushSum(hgp.networks.RandomDirected(n, seed=1), 5)
    look = {"callback": lambda m, v: used.append(pool.used_bytes())}
    hgp.hypergradient(problem, x, lam, avg, eta=0.1, iterations=70, batches=batches, **look)
    return kept / data[0].nbytes, (max(used) - before) / x.nbytes


def main() -> None:
    rig, folder = importlib.import_module("cupy_on_cpu"), Path(__file__).parents[2] / "docs" / "measured"
    for name, lines in (("memory", memory_table()), ("launches", launches_table(rig))):
        (folder / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
