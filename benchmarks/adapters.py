"""Fifty small networks written in PyTorch and in JAX: one call for all clients, compared with a loop over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hgp_ref as hgp
from benchmarks.harness import interleave
from benchmarks.results import Report

INPUTS, HIDDEN, CLASSES = 20, 16, 4
SIZES = [INPUTS * HIDDEN, HIDDEN, HIDDEN * CLASSES, CLASSES]  # of the weights and biases, in PyTorch's order

Pair = tuple[dict[str, Any], list[Any], Callable[[Any], Any]]  # problems by name, (x, lam, u), how to wait


def run(quick: bool) -> list[Report]:
    """Time the gradient and both products, at a new point (as mini-batches need them) and at a stored one."""
    n, N = (3, 4) if quick else (50, 32)
    settings = {"n": n, "N": N, "parameters": sum(SIZES), "network": "Linear, Tanh, Linear", "dtype": "float64"}
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, N, INPUTS)), rng.integers(0, CLASSES, (n, N))
    point = [0.3 * rng.standard_normal((n, d)) for d in (sum(SIZES), CLASSES, sum(SIZES))]
    reports = []
    for name, pair in (("torch", _torch), ("jax", _jax)):
        problems, (x, lam, u), wait = pair(X, y, point)
        report = Report(f"adapters-{name}", f"{n} small networks in {name}: one call and a loop", settings)
        for label in ("gradient", "products, new point", "products, point kept"):
            calls = {f"{label}, {way}": _call(label, problem, x, lam, u, wait) for way, problem in problems.items()}
            report.timings |= interleave(calls, 1 if quick else 7)
            one, loop = (report.timings[f"{label}, {way}"].median for way in problems)
            report.at_most(f"{label}, one call / loop", one / loop, 1.0)
        firsts = {way: report.timings[f"gradient, {way}"].first for way in problems}
        report.figures = {"first gradient": ", ".join(f"{way} {first:.2f} s" for way, first in firsts.items())}
        reports.append(report)
    return reports


def _call(label: str, problem: Any, x: Any, lam: Any, u: Any, wait: Callable[[Any], Any]) -> Callable[[], Any]:
    """What is timed under `label`; `wait` returns when its argument has been computed."""
    if label == "gradient":
        return lambda: wait(problem.inner_grad(x, lam))
    if label == "products, new point":
        return lambda: wait(problem.linearize(x, lam).products(u))
    kept = problem.linearize(x, lam)
    return lambda: wait(kept.products(u))


def _torch(X: np.ndarray, y: np.ndarray, point: list[np.ndarray]) -> Pair:
    import torch
    from torch import nn

    net = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES)).double()
    data, labels = torch.from_numpy(X), torch.from_numpy(y)
    named = {name: p.shape for name, p in net.named_parameters()}

    def loss(z: Any, y: Any, lam: Any) -> Any:
        return nn.functional.cross_entropy(torch.exp(lam) * z, y, reduction="none")

    def cost(i: int, x: Any, lam: Any, batch: Any = None) -> Any:
        parameters = {k: a.view(shape) for (k, shape), a in zip(named.items(), x.split(SIZES), strict=True)}
        return loss(torch.func.functional_call(net, parameters, (data[i],)), labels[i], lam).mean()

    problems = {
        "one call": hgp.problems.from_torch(net, loss, X, y, dim_lam=CLASSES),
        "loop": hgp.problems.from_torch(cost, cost, len(X), sum(SIZES), CLASSES),
    }
    return problems, [torch.from_numpy(a) for a in point], lambda a: a


def _jax(X: np.ndarray, y: np.ndarray, point: list[np.ndarray]) -> Pair:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    data, labels = jnp.asarray(X), jnp.asarray(y)
    ends = np.cumsum(SIZES)[:-1].tolist()

    def cost(i: Any, x: Any, lam: Any, batch: Any = None) -> Any:
        W, b, V, c = jnp.split(x, ends)
        z = jnp.tanh(data[i] @ W.reshape(HIDDEN, INPUTS).T + b) @ V.reshape(CLASSES, HIDDEN).T + c
        scores = jax.nn.log_softmax(jnp.exp(lam) * z)
        return -jnp.mean(jnp.take_along_axis(scores, labels[i][:, None], axis=1))

    sizes = len(X), sum(SIZES), CLASSES
    ways = {"one call": True, "loop": False}
    problems = {way: hgp.problems.from_jax(cost, cost, *sizes, vmap=vmap) for way, vmap in ways.items()}
    return problems, [jnp.asarray(a) for a in point], jax.block_until_ready
