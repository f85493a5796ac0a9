"""Mixing: composed matrices against one product per step, and sparse steps against SciPy and PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import hgp_ref as hgp
from benchmarks import limits
from benchmarks.harness import interleave
from benchmarks.peers import sparse
from benchmarks.results import Report
from hgp_ref import _numba
from hgp_ref._kernels import mixing as kernels


def run(quick: bool) -> list[Report]:
    """Dense networks with many columns, then sparse ones in both precisions."""
    return [_composed(quick), *(_stepping(dtype, quick) for dtype in ("float32", "float64"))]


def _composed(quick: bool) -> Report:
    n, S = 100, 10
    d = 2000 if quick else 2_300_000
    settings = {"n": n, "d": d, "S": S, "dtype": "float32"}
    report = Report("mixing-composed", "Push-Sum, S steps composed into one matrix", settings)
    u = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    net = hgp.networks.RandomDirected(n, seed=1)
    avg = hgp.PushSum(net, S)
    part = u[:, : min(d, 100_000)].copy()
    square = np.ones((n, n), dtype=np.float32)
    cases = {
        "hgp_ref": lambda: avg.apply(u),
        "NumPy, one product a step": lambda: sparse.successive(net.mixing_matrices(1, S), u),
        "one dense product, a part of the columns": lambda: limits.multiply(square, part),
    }
    report.timings = interleave(cases, 3)
    ours, successive, product = (t.median for t in report.timings.values())
    report.at_least("faster than one product a step", successive / ours, 9.0)
    peak = 2 * n * n * part.shape[1] / product / 1e9
    report.figures = {
        "dense products": f"{peak:.0f} GFLOP/s in a part, {2 * n * n * d / ours / 1e9:.0f} in the whole call"
    }
    return report


def _stepping(dtype: str, quick: bool) -> Report:
    n, d = (2000, 64) if quick else (100_000, 64)
    net = hgp.networks.SparseErdosRenyi(n, 10, seed=1)
    graph: tuple[Any, ...] = net.csr(1)
    lists: tuple[Any, ...] = net.out_adjacency(1)
    settings = {"n": n, "d": d, "mean_degree": 10, "edges": int(graph[1].size), "dtype": dtype}
    report = Report(f"mixing-sparse-{dtype}", f"One step of a sparse mixing matrix, {dtype}", settings)
    z = kernels.empty_like(np.empty((n, d), dtype=dtype))
    z[:] = np.random.default_rng(0).standard_normal((n, d))
    out = kernels.empty_like(z)
    cases: dict[str, Callable[[], Any]] = {
        "hgp_ref, pulled (CSR)": lambda: kernels.pull_step(graph[0], graph[1], graph[2], z, out),
        "hgp_ref, pushed (lists)": lambda: kernels.push_step(lists[0], lists[1], z, out),
        "row loop, pulled": lambda: kernels.pull_rows(0, n, *graph, z, out),
        "row loop, pushed": lambda: kernels.push_rows(0, n, *lists, z, out),
        "scipy.sparse": sparse.scipy_product(graph, z),
        "torch CSR": sparse.torch_product(graph, z),
        "one read of z": lambda: limits.read(z),
    }
    report.timings = interleave(cases, 3 if quick else 15)
    pulled, pushed, row_pulled, row_pushed, scipy, of_torch, read = (t.median for t in report.timings.values())
    report.at_most("times the time of scipy.sparse", pulled / scipy, 0.6)
    report.at_most("times the time of torch CSR", pulled / of_torch, 0.9)
    gathered = graph[1].size * d * z.itemsize
    report.figures = {
        "row loops, the definition": f"{row_pulled / pulled:.2f} × pulled, {row_pushed / pushed:.2f} × pushed",
        "rows gathered": f"{gathered / pulled / 1e9:.1f} GB/s; one read of z {z.nbytes / read / 1e9:.1f} GB/s",
        **_two_threads({label: cases[label] for label in list(cases)[:2]}, cases["torch CSR"], quick),
    }
    return report


def _two_threads(ours: dict[str, Callable[[], Any]], of_torch: Callable[[], Any], quick: bool) -> dict[str, str]:
    """Wall seconds of one thread over those of two. Takes the shortest of each, because the second core may be busy."""
    cases: dict[str, Callable[[], Any]] = {}
    for number in (1, 2):
        for label, call in {**ours, "torch CSR": of_torch}.items():
            cases[f"{label} {number}"] = _with_threads(number, call)
    timings = interleave(cases, 3 if quick else 25)
    torch.set_num_threads(1)
    labels = [*ours, "torch CSR"]
    gains = [min(timings[f"{label} 1"].wall) / min(timings[f"{label} 2"].wall) for label in labels]
    return {"two threads": ", ".join(f"{label} {gain:.2f} ×" for label, gain in zip(labels, gains, strict=True))}


def _with_threads(number: int, call: Callable[[], Any]) -> Callable[[], Any]:
    def limited() -> None:
        torch.set_num_threads(number)
        with _numba.limited(number):
            call()

    return limited
