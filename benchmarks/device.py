"""The core on an array library and device of your choice, compared with NumPy on one thread of the host."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

import hgp_ref as hgp
from benchmarks.harness import interleave
from benchmarks.problems import logistic
from benchmarks.results import Report
from hgp_ref.backend import get_backend, on_device_of, scalar


def run(quick: bool, backend: str = "numpy", device: str | None = None) -> list[Report]:
    """HGP, a composed and a sparse call of Push-Sum in both precisions; wall times count on a device."""
    library = get_backend(backend, device)
    if backend == "jax":  # 32 bits by default
        importlib.import_module("jax").config.update("jax_enable_x64", True)
    with on_device_of(library.asarray([0.0])):
        return [_core(library, dtype, quick) for dtype in ("float32", "float64")]


def _core(library: Any, dtype: str, quick: bool) -> Report:
    n, N, d, many, M, S = (10, 20, 100, 1000, 5, 10) if quick else (100, 100, 1000, 100_000, 100, 10)
    settings = {"n": n, "N": N, "d": d, "M": M, "S": S, "sparse clients": many, "dtype": dtype}
    report = Report(f"device-{dtype}", f"{library.name} on {library.device}", settings)
    problem, _, x, lam = logistic(n, N, d, dtype)
    sparse = np.random.default_rng(0).standard_normal((many, 8)).astype(dtype)
    cases: dict[str, Callable[[], Any]] = {}
    for label, backend in (("hgp_ref", library), ("NumPy", get_backend("numpy"))):
        placed = problem.to(backend.name, device=backend.device)
        own_x, own_lam, own_sparse = (backend.asarray(a, dtype=dtype) for a in (x, lam, sparse))
        cases |= {
            f"{label}, HGP": _finished(_hypergradient, placed, own_x, own_lam, S, M),
            f"{label}, Push-Sum composed": _finished(_average, hgp.networks.RandomDirected(n, seed=1), S, own_x),
            f"{label}, Push-Sum sparse": _finished(_average, hgp.networks.RandomOut(many, 4, seed=1), S, own_sparse),
        }
    report.timings = interleave(cases, 3)
    for case in ("HGP", "Push-Sum composed", "Push-Sum sparse"):
        ours, numpy = (report.timings[f"{label}, {case}"].wall_median for label in ("hgp_ref", "NumPy"))
        report.figures[case] = f"{numpy / ours:.2f} × the speed of NumPy in wall time"
    return report


def _hypergradient(problem: Any, x: Any, lam: Any, S: int, M: int) -> Any:
    avg = hgp.PushSum(hgp.networks.RandomDirected(problem.n_clients, seed=1), S)
    return hgp.hypergradient(problem, x, lam, avg, eta=1.0, iterations=M).value


def _average(net: Any, S: int, z: Any) -> Any:
    return hgp.PushSum(net, S).apply(z)


def _finished(call: Callable[..., Any], *arguments: Any) -> Callable[[], float]:
    """The call, followed by a copy of one number to the host, which waits for the device."""
    return lambda: scalar(call(*arguments)[0, :1])
