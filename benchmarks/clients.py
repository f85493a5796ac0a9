"""A whole hyper-gradient of 100,000 clients: data, training, HGP over a time-varying network, certificate, truth."""

from __future__ import annotations

import numpy as np

import hgp_ref as hgp
from benchmarks.harness import once
from benchmarks.problems import logistic
from benchmarks.results import Report, Timing

S, M = 10, 100


def run(quick: bool) -> list[Report]:
    """Every part timed once: it is a demonstration, not a comparison."""
    n, train, iterations = (300, 20, 10) if quick else (100_000, 200, M)
    settings = {"n": n, "d": 20, "N": 20, "network": "RandomOut(n, 4)", "S": S, "M": iterations,
                "sgp_steps": train, "dtype": "float64"}  # fmt: skip
    report = Report("clients", f"Hyper-gradient of {n} clients with its certificate", settings)
    net = hgp.networks.RandomOut(n, 4, seed=1)

    def part(label: str, call):  # type: ignore[no-untyped-def]
        result, cpu, wall = once(call)
        report.timings[label] = Timing([cpu], [wall], cpu)
        return result

    problem, _, _, lam = part("data", lambda: logistic(n, 20, 20, "float64"))
    milestones = [train * k // 10 for k in (5, 7, 9)]  # smaller steps at the end, or the clients stay apart
    fit = part(f"SGP, {train} steps", lambda: hgp.sgp(problem, lam, net, steps=train, lr=1.0, milestones=milestones))
    avg = hgp.PushSum(net, S)
    est = part(
        f"HGP, {iterations} iterations",
        lambda: hgp.hypergradient(problem, fit.x, lam, avg, eta=1.0, iterations=iterations),
    )
    certificate = part("certificate", lambda: hgp.certify(problem, fit.x, lam, est))
    report.at_most("minutes of all parts (wall)", sum(t.wall[0] for t in report.timings.values()) / 60, 5.0)
    truth = hgp.exact.hypergradient(problem, fit.x, lam)
    error = np.linalg.norm(est.value - truth, axis=1)
    ratio = float(np.max(error / certificate.centralised))
    report.at_most("largest error over its certified bound", ratio, 1.0)
    report.figures = {
        "error": f"{error.max():.2e} at most over clients; certified {certificate.centralised.max():.2e}; "
        f"hyper-gradients up to {np.linalg.norm(truth, axis=1).max():.2e}",
        "traffic": f"{est.traffic.messages:.3g} messages, {est.traffic.bytes / 1e9:.3g} GB",
        "gap of x": f"{fit.consensus_gap:.2e}, mean gradient {fit.grad_norm:.2e}",
    }
    return [report]
