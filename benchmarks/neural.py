"""The paper's personalization network (2.3 million parameters), ten clients, mini-batches of 128, against PyTorch.

`python -m benchmarks neural` measures all parts. `python -m benchmarks.neural PART FILE [--quick]` writes the report of
one part with OMP_NUM_THREADS threads: "ten" (clients, against PyTorch), "hundred" (clients) or "iteration" (of them).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import hgp_ref as hgp
from benchmarks.harness import interleave, once
from benchmarks.memory import highest
from benchmarks.results import Report, Timing

CLASSES = 62


def run(quick: bool) -> list[Report]:
    """Ten clients with one thread and with two, each in a process of its own, and a hundred clients."""
    reports = [_in_process(threads, "ten", quick) for threads in (1, 2)]
    return [*reports, *(_in_process(1, part, quick) for part in ("hundred", "iteration"))]


def _in_process(threads: int, part: str, quick: bool) -> Report:
    """The report of a part, run in a process of its own: BLAS libraries read their number of threads when they load."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = os.environ | dict.fromkeys(names, str(threads))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        command = [sys.executable, "-m", "benchmarks.neural", part, str(file), *(["--quick"] if quick else [])]
        subprocess.run(command, check=True, env=environment)
        return Report.of(json.loads(file.read_text(encoding="utf-8")))


def problem_of(n: int, N: int) -> tuple[Any, tuple[np.ndarray, ...]]:
    """HGP-PL on random images, and (x, lam, X, y, u)."""
    rng = np.random.default_rng(0)
    model = hgp.neural.personalization_cnn(CLASSES)
    X, y = rng.random((n, N, 1, 28, 28), dtype=np.float32), rng.integers(0, CLASSES, (n, N))
    x = model.init(n, 0, dtype="float32", same_for_all=False)
    u = rng.standard_normal(x.shape, dtype=np.float32)
    lam = 0.1 * rng.standard_normal((n, CLASSES), dtype=np.float32)
    return hgp.problems.PersonalMask(model, X, y, l2=0.0), (x, lam, X, y, u)


def ten(quick: bool) -> Report:
    """Gradient, Hessian-vector product and mixed derivative, at new points and at a stored one."""
    import torch

    from benchmarks.peers.torch_networks import Clients

    threads = int(os.environ["OMP_NUM_THREADS"])
    torch.set_num_threads(threads)
    n, N = (2, 8) if quick else (10, 128)
    problem, (x, lam, X, y, u) = problem_of(n, N)
    peer = Clients(x, lam, X, y, u)
    kept, graphs = problem.linearize(x, lam), peer.graphs()
    leaves = peer.leaves
    vmap_gradient, vmap_hvp = peer.by_vmap()

    def again() -> object:
        peer.leaves = leaves
        return peer.second(graphs, True, False)

    groups = (  # those that are compared take turns; vmap's large arrays stay out of the way of the others
        {"gradient": lambda: problem.inner_grad(x, lam), "gradient, torch": peer.gradient},
        {
            "hvp": lambda: problem.linearize(x, lam).hvp(u),
            "hvp and cross": lambda: problem.linearize(x, lam).products(u),
            "hvp, torch": lambda: peer.second(peer.graphs(), False, False),
            "hvp and cross, torch": lambda: peer.second(peer.graphs(), False, True),
        },
        {
            "hvp, point kept": lambda: kept.hvp(u),
            "hvp and cross, point kept": lambda: kept.products(u),
            "hvp, graph kept, torch": again,
        },
        {"gradient, torch.func vmap": vmap_gradient, "hvp, torch.func vmap": vmap_hvp},
    )
    settings = {"n": n, "batch": N, "parameters": problem.dim_x, "dtype": "float32", "cost": "HGP-PL"}
    title = f"Personalization CNN of {n} clients, CPU time with {threads} thread{'s' if threads > 1 else ''}"
    report = Report(f"neural-{threads}", title, settings, threads)
    for cases, repetitions in zip(groups, (7, 3, 3, 1), strict=True):
        report.timings |= interleave(cases, 1 if quick else repetitions)
    _add_goals(report)
    return report


def _add_goals(report: Report) -> None:
    cpu = {label: timing.median for label, timing in report.timings.items()}
    wall = {label: timing.wall_median for label, timing in report.timings.items()}
    bars = (("gradient", "gradient, torch", 1.0), ("hvp", "hvp, torch", 1.0), ("hvp and cross", "hvp, torch", 1.1),
            ("hvp, point kept", "hvp, graph kept, torch", 1.0),
            ("hvp and cross, point kept", "hvp, graph kept, torch", 1.1))  # fmt: skip
    for ours, theirs, limit in bars:
        report.at_most(f"{ours} / {theirs}", cpu[ours] / cpu[theirs], limit)
    report.figures = {
        "wall time": ", ".join(f"{ours} {wall[ours] / wall[theirs]:.2f} × torch" for ours, theirs, _ in bars),
        "torch.func vmap": f"gradient {cpu['gradient, torch.func vmap'] / cpu['gradient, torch']:.2f} ×, "
        f"hvp {cpu['hvp, torch.func vmap'] / cpu['hvp, torch']:.2f} × torch's loop",
    }


def hundred(quick: bool) -> Report:
    """One gradient, and the products of one iteration of HGP, for a hundred clients."""
    n, N = (3, 8) if quick else (100, 128)
    report = Report("neural-hundred", f"Personalization CNN of {n} clients", {"n": n, "batch": N, "dtype": "float32"})
    small, (x, lam, *_, u) = problem_of(1, 2)
    small.linearize(x, lam).products(u)  # load and compile
    problem, (x, lam, *_, u) = problem_of(n, N)
    for label, call in (("gradient", lambda: problem.inner_grad(x, lam)),
                        ("hvp and cross", lambda: problem.linearize(x, lam).products(u))):  # fmt: skip
        _, cpu, wall = once(call)
        report.timings[label] = Timing([cpu], [wall], cpu)
    report.at_most("GB at the peak", highest() / 1e9, 12.0)
    report.figures = {"parameters of all clients": f"{x.nbytes / 1e9:.2f} GB; an iteration holds x, u and the results"}
    return report


def iteration(quick: bool) -> Report:
    """The second iteration of HGP for a hundred clients, by Push-Sum, v and w on batches of their own."""
    n, N, S = (3, 8, 10) if quick else (100, 128, 10)
    settings = {"n": n, "batch": N, "S": S, "dtype": "float32"}
    report = Report("neural-iteration", f"One HGP iteration, personalization CNN of {n} clients", settings)
    problem, (x, lam, *others) = problem_of(n, N)
    del others  # a direction as large as x
    marks: list[tuple[float, float]] = []
    average = hgp.PushSum(hgp.networks.RandomDirected(n, 0.4, 0.8, seed=1), steps=S)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # two iterations are not enough for an estimate
        mark = lambda m, v: marks.append((time.process_time(), time.perf_counter()))  # noqa: E731
        hgp.hypergradient(problem, x, lam, average, eta=0.01, iterations=2, callback=mark, batches=N)
    (cpu, wall), (cpu_end, wall_end) = marks
    report.timings["iteration"] = Timing([cpu_end - cpu], [wall_end - wall], cpu_end - cpu)
    report.at_most("CPU seconds of an iteration", cpu_end - cpu, 45.0)
    report.at_most("GB at the peak", highest() / 1e9, 12.0)
    return report


def main(part: str, file: str, *options: str) -> None:
    """Measure one part and write its report as JSON."""
    report = {"ten": ten, "hundred": hundred, "iteration": iteration}[part]("--quick" in options)
    Path(file).write_text(json.dumps(report.document()), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
