"""The figure's workload: n = 3, d = 6, N = 100, M = 1000, S in {1, 2, 5, 10, 100}, 10 seeds, and SGP of 5000 steps."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import hgp_ref as hgp
from benchmarks.harness import interleave, once
from benchmarks.peers import jax_scan, torch_loop
from benchmarks.problems import mixture
from benchmarks.results import Report

PUBLISHED = 2410.0  # CPU seconds of the authors' program for the whole of it


def run(quick: bool) -> list[Report]:
    """SGP and 50 runs of HGP at once, against JAX and a PyTorch loop."""
    steps = (1, 2, 5) if quick else (1, 2, 5, 10, 100)
    seeds, M, train_steps = (2, 20, 100) if quick else (10, 1000, 5000)
    problem, data = mixture()
    lam = np.zeros((3, 6))
    x = hgp.sgp(problem, lam, _net(0), steps=train_steps, lr=2.0, milestones=(0.6, 0.8)).x
    settings = {"n": 3, "d": 6, "N": 100, "M": M, "S": steps, "seeds": seeds, "sgp_steps": train_steps,
                "dtype": "float64", "history": True}  # fmt: skip
    report = Report("figure", "Figure workload: all seeds and S, float64", settings)

    def ours() -> Any:
        runs = [hgp.PushSum(_net(seed), S) for S in steps for seed in range(seeds)]
        return hgp.hypergradient(problem, x, lam, runs, eta=1.0, iterations=M, history=True)

    programs, compile_seconds = _jax_programs(data, x, lam, steps, seeds, M)
    clients = [torch_loop.Client(*(part[i] for part in data)) for i in range(3)]
    short = 2 if quick else 10  # iterations of the loop, which needs no more to be timed

    def loop() -> None:
        for S in steps:
            torch_loop.hypergradient(clients, x, lam, torch_loop.sampled_graphs(3, 0), S, short)

    runs_label = f"hgp_ref: {len(steps) * seeds} HGP runs"
    cases = {
        f"hgp_ref: SGP, {train_steps} steps": lambda: hgp.sgp(
            problem, lam, _net(0), steps=train_steps, lr=2.0, milestones=(0.6, 0.8)
        ),
        runs_label: ours,
        "JAX: the same runs, compiled before": lambda: [program() for program in programs],
        f"torch loop: {len(steps)} runs of {short} iterations": loop,
    }
    report.timings = interleave(cases, 3 if quick else 9)
    sgp, hgp_runs, jax_runs, torch_runs = (t.median for t in report.timings.values())
    ours_each = hgp_runs / (len(steps) * seeds * M)
    torch_each = torch_runs / (len(steps) * short)
    report.at_most("CPU seconds of SGP and all HGP runs", sgp + hgp_runs, 1.0)
    report.at_least("faster than the torch loop, per iteration and seed", torch_each / ours_each, 1000)
    report.at_least("faster than JAX without its compile time", jax_runs / hgp_runs, 1.0)
    report.figures = {
        "per iteration and seed": f"hgp_ref {ours_each * 1e6:.2f} µs, torch loop {torch_each * 1e3:.2f} ms",
        "JAX compile time": ", ".join(f"S={S}: {c:.2f} s" for S, c in zip(steps, compile_seconds, strict=True)),
        "interpreter": _overhead(hgp_runs, M),
    }
    if not quick:
        report.figures["authors' program"] = f"{PUBLISHED:.0f} CPU s, {PUBLISHED / (sgp + hgp_runs):.0f} times as long"
    return [report]


def _net(seed: int) -> Any:
    return hgp.networks.RandomDirected(3, seed=seed)


def _jax_programs(data: Any, x: Any, lam: Any, steps: Any, seeds: int, M: int) -> tuple[list[Any], list[float]]:
    """A compiled program for each S, and the CPU seconds of compiling it."""
    import jax

    jax.config.update("jax_enable_x64", True)
    compiled = []
    for S in steps:
        options = {"steps": S, "iterations": M, "history": True}
        compiled.append(once(lambda o=options: jax_scan.compiled(data, x, lam, seeds, **o)))  # type: ignore[misc]
    programs = [program for program, *_ in compiled]
    return programs, [cpu for _, cpu, _ in compiled]


def _overhead(seconds: float, iterations: int) -> str:
    """The time of an iteration of all runs, relative to one NumPy call on three numbers."""
    a = np.ones(3)
    numbers = itertools.repeat(None, 20000)
    _, cpu, _ = once(lambda: [a + a for _ in numbers])
    return (
        f"one iteration of all runs {seconds / iterations * 1e6:.0f} µs; one call of NumPy {cpu / 20000 * 1e6:.2f} µs"
    )
