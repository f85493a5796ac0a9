"""Sampling of graphs with exact integer thresholds, against NumPy and networkx."""

from __future__ import annotations

import numpy as np

import hgp_ref as hgp
from benchmarks.harness import interleave
from benchmarks.peers import samplers
from benchmarks.results import Report


def run(quick: bool) -> list[Report]:
    """Dense, with a fixed number of receivers, and sparse."""
    sizes = (20, 100) if quick else (100, 1000)
    return [*(_dense(n, quick) for n in sizes), _random_out(quick), _erdos_renyi(quick)]


def _dense(n: int, quick: bool) -> Report:
    report = Report(f"sampling-dense-{n}", f"Dense Bernoulli graphs of {n} clients: mixing matrix", {"n": n})
    net = hgp.networks.RandomDirected(n, seed=1)
    rng, steps = np.random.default_rng(0), iter(range(1, 2**31))
    rates, last = net.rates, np.rint(net.rates * 2.0**32 - 1).astype(np.uint32)
    cases = {
        "hgp_ref": lambda: net.mixing_matrix(next(steps)),
        "NumPy, float64 uniforms": lambda: samplers.dense_matrix(rng, rates),
        "NumPy, integer thresholds": lambda: samplers.dense_matrix_of_integers(rng, last),
        "networkx, one rate, graph only": lambda: samplers.dense_networkx(0, n, 0.6),
    }
    report.timings = interleave(cases, 3 if quick else 9)
    ours, uniform, integer, _ = (t.median for t in report.timings.values())
    report.at_least("faster than the faster NumPy", min(uniform, integer) / ours, 1.5)
    report.figures["per pair"] = f"{ours / n**2 * 1e9:.2f} ns"
    return report


def _random_out(quick: bool) -> Report:
    n, k = (5000 if quick else 1_000_000), 4
    report = Report("sampling-random-out", f"RandomOut({n}, {k}): receivers of all senders", {"n": n, "k": k})
    net = hgp.networks.RandomOut(n, k, seed=1)
    rng, steps = np.random.default_rng(0), iter(range(1, 2**31))
    cases = {
        "hgp_ref": lambda: net.out_adjacency(next(steps)),
        "hgp_ref, and by receiver (CSR)": lambda: net.csr(next(steps)),
        "NumPy": lambda: samplers.random_out(rng, n, k),
    }
    report.timings = interleave(cases, 3 if quick else 7)
    ours, _, numpy = (t.median for t in report.timings.values())
    report.at_least("faster than NumPy", numpy / ours, 10.0)
    report.figures["per edge"] = f"{ours / (n * (k + 1)) * 1e9:.2f} ns"
    return report


def _erdos_renyi(quick: bool) -> Report:
    n, degree = (2000 if quick else 100_000), 10.0
    settings = {"n": n, "mean_degree": degree}
    report = Report("sampling-erdos-renyi", f"SparseErdosRenyi({n}, {degree:g}): receivers of all senders", settings)
    net = hgp.networks.SparseErdosRenyi(n, degree, seed=1)
    rng, steps = np.random.default_rng(0), iter(range(1, 2**31))
    cases = {
        "hgp_ref": lambda: net.out_adjacency(next(steps)),
        "hgp_ref, and by receiver (CSR)": lambda: net.csr(next(steps)),
        "NumPy, without self-loops": lambda: samplers.erdos_renyi(rng, n, degree),
        "networkx, graph only": lambda: samplers.erdos_renyi_networkx(0, n, degree),
    }
    report.timings = interleave(cases, 3)
    ours, _, numpy, _ = (t.median for t in report.timings.values())
    report.at_least("faster than NumPy", numpy / ours, 1.4)
    report.figures["per edge"] = f"{ours / (n * (degree + 1)) * 1e9:.2f} ns"
    return report
