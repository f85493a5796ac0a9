"""The dense workload: n = 100 clients, d = 1000, N = 100, S = 10; Hessian-vector products should read the data once."""

from __future__ import annotations

from typing import Any

import numpy as np

import hgp_ref as hgp
from benchmarks import limits
from benchmarks.harness import interleave, once
from benchmarks.peers import jax_scan
from benchmarks.problems import logistic
from benchmarks.results import Report


def run(quick: bool) -> list[Report]:
    """Products and whole runs in both precisions, and the rule for keeping Hessians."""
    import jax

    jax.config.update("jax_enable_x64", True)
    reports = []
    for dtype in ("float32", "float64"):
        size = (10, 20, 300) if quick else (100, 100, 1000)
        reports += [_products(*size, dtype, quick), _runs(*size, dtype, quick)]
    reports.append(_stored_hessian(quick))
    return reports


def _products(n: int, N: int, d: int, dtype: str, quick: bool) -> Report:
    problem, data, x, lam = logistic(n, N, d, dtype)
    settings = {"n": n, "N": N, "d": d, "dtype": dtype, "megabytes": round(data[0].nbytes / 1e6, 1)}
    report = Report(f"dense-hvp-{dtype}", f"Hessian-vector product of {n} clients, {dtype}", settings)
    lin, along = problem.linearize(x, lam), jax_scan.hvp(data, x, lam)
    u, rows = np.ones_like(x), data[0].reshape(-1, d)
    flat, text = rows.reshape(-1), _two_products(data[0], lin)
    cases = {
        "one read of the data": lambda: limits.read(rows),
        "one read by BLAS (dot)": lambda: np.dot(flat, flat),
        "hgp_ref": lambda: lin.hvp(u),
        "NumPy, two products": lambda: text(u),
        "JAX": lambda: along(u),
    }
    report.timings = interleave(cases, 5 if quick else 25)
    read, dot, ours, twice, jax = (t.median for t in report.timings.values())
    read = min(read, dot)
    report.at_most("times one read of the data", ours / read, 1.3)
    report.figures = {
        "bandwidth": f"{data[0].nbytes / read / 1e9:.1f} GB/s, one thread",
        "NumPy, two products": f"{twice / read:.2f} times one read",
        "JAX": f"{jax / read:.2f} times one read",
    }
    return report


def _two_products(X: np.ndarray, lin: Any) -> Any:
    """The text of the product, in NumPy."""
    curvature, rate = lin._curvature, lin._rate

    def product(u: np.ndarray) -> np.ndarray:
        return (np.swapaxes(X, -1, -2) @ (curvature * (X @ u[..., None])))[..., 0] + rate * u

    return product


def _runs(n: int, N: int, d: int, dtype: str, quick: bool) -> Report:
    S, M = 10, 5 if quick else 100
    problem, data, x, lam = logistic(n, N, d, dtype)
    settings = {"n": n, "N": N, "d": d, "S": S, "M": M, "dtype": dtype}
    report = Report(f"dense-run-{dtype}", f"HGP, {M} iterations of {n} clients, {dtype}", settings)
    avg = hgp.PushSum(hgp.networks.RandomDirected(n, seed=1), S)
    options = {"steps": S, "iterations": M, "history": False}
    program, compile_seconds, _ = once(lambda: jax_scan.compiled(data, x, lam, 1, **options))
    flat = data[0].reshape(-1)
    cases = {
        "hgp_ref": lambda: hgp.hypergradient(problem, x, lam, avg, eta=1.0, iterations=M),
        "JAX": program,
        "one read of the data an iteration": lambda: [np.dot(flat, flat) for _ in range(M)],
    }
    report.timings = interleave(cases, 3 if quick else 9)
    ours, jax, read = (t.median for t in report.timings.values())
    report.at_least("faster than JAX", jax / ours, 3.0)
    report.figures = {
        "limit": f"one read of the data an iteration is {read / ours:.0%} of the run; JAX takes {jax / read:.2f} reads",
        "JAX compile time": f"{compile_seconds:.2f} s",
    }
    return report


def _stored_hessian(quick: bool) -> Report:
    n, N, d = (10, 50, 10) if quick else (100, 500, 50)
    problem, data, x, lam = logistic(n, N, d, "float64")
    settings = {"n": n, "N": N, "d": d, "dtype": "float64", "rule": "d_x <= N"}
    report = Report("dense-kept-hessian", "Where d is small against N the Hessians are kept", settings)
    lin, u = problem.linearize(x, lam), np.ones_like(x)
    text = _two_products(data[0], lin)
    report.timings = interleave({"hgp_ref": lambda: lin.hvp(u), "NumPy, two products": lambda: text(u)}, 9)
    ours, twice = (t.median for t in report.timings.values())
    report.at_least("faster than with the data", twice / ours, 1.0)
    return report
