"""Stochastic gradient push: the inner problem over directed networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import arguments, checks
from hgp_ref.averaging import PushSum, Traffic
from hgp_ref.backend import Array, array_namespace, device, from_host, scalar, to_host
from hgp_ref.errors import DivergenceError
from hgp_ref.networks import Network
from hgp_ref.problems.batches import sample_batches
from hgp_ref.progress import bar

VARIANTS = ("assran", "nedic")
GROWTH_LIMIT = 1e8  # parameters that have grown by this, from 1 or from where they started, are not coming back


@dataclass(frozen=True)
class Fit:
    """What training returns; with a run axis on `lam`, `x` has it too and the gap and norm are arrays."""

    x: Array  # (n, d_x), each client's debiased parameters
    consensus_gap: Any  # max_i ‖x_i − x̄‖
    grad_norm: Any  # ‖mean_i ∂_x g_i(x̄, λ_i)‖ on full batches: zero at the inner solution
    steps: int
    traffic: Traffic


def sgp(
    problem: Any,
    net: Network,
    lam: Array,
    steps: int = 5000,
    lr: float = 2.0,
    milestones: Sequence[int] = (3000, 4000),
    variant: str = "assran",
    *,
    decay: float = 0.1,
    batch_size: int | None = None,
    seed: int = 0,
    x0: Array | None = None,
    progress: bool = False,
) -> Fit:
    """Minimise Σ_k g_k(x, λ_k) by gradient steps on what Push-Sum has mixed so far.

    With z = x / ω and the learning rate a, step s takes graph s of the network:

        "assran":  x ← W_s (x − a ∂g(z)),  ω ← W_s ω
        "nedic":   x ← W_s x,  ω ← W_s ω,  z = x / ω,  x ← x − a ∂g(z)

    a starts as `lr` and is multiplied by `decay` at each of `milestones` (numbered from 0). `x0` is (n, d_x), zeros by
    default. `lam` may carry a leading run axis where the problem broadcasts: all runs are trained at once.
    """
    arguments.same_kind(lam=lam, x0=x0)
    arguments.shape("lam", lam, (problem.n_clients, problem.dim_lam), "(n, d_lam)")
    arguments.finite("lam", lam)
    steps, lr = arguments.integer("steps", steps), arguments.positive("lr", lr)
    arguments.choice("variant", variant, VARIANTS)
    if lam.ndim > 2 and not getattr(problem, "broadcasts", False):
        raise ValueError(f"lam: shape {tuple(lam.shape)} given, but the problem knows no run axis: needed (n, d_lam)")
    averaging = PushSum(net, 1, debias="conserve")
    checks.same_clients([averaging], problem)
    checks.warn_unreachable([averaging], steps)
    size = checks.batch_size(problem, batch_size)
    rates = _rates(steps, lr, milestones, decay)
    shown = bar(steps, "sgp", progress)
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is reported as divergence
            x, messages = _train(problem, averaging, lam, rates, variant, size, seed, x0, shown)
    finally:
        shown.close()
    gap, norm = _diagnose(problem, x, lam)
    _check_progress(problem, lam, x0, x, norm, lr)
    return Fit(x, gap, norm, steps, averaging.traffic(messages, steps, x))


def _rates(steps: int, lr: float, milestones: Sequence[int], decay: float) -> np.ndarray:
    """The learning rate of each step."""
    at = np.asarray(milestones)
    if at.ndim != 1 or (at.size and at.dtype.kind not in "iu"):
        raise ValueError(f"milestones={milestones!r} given, needed a list of step numbers")
    passed = np.searchsorted(np.sort(at), np.arange(steps), side="right")
    return lr * arguments.positive("decay", decay) ** passed


def _train(
    problem: Any,
    averaging: PushSum,
    lam: Array,
    rates: np.ndarray,
    variant: str,
    size: int | None,
    seed: int,
    x0: Array | None,
    shown: Any,
) -> tuple[Array, int]:
    z = _start(problem, lam, x0)
    x = z  # Push-Sum's sums; z = x / ω
    reach = 1.0 + scalar(array_namespace(x).max(abs(x)))
    messages = 0
    for first in range(0, len(rates), 256):
        count = min(256, len(rates) - first)
        calls = averaging.prepare(first, count, x)
        batches = None
        if size is not None:
            batches = from_host(sample_batches(problem.counts, size, seed, first, count), like=lam)
        for m in range(count):
            rate, batch = float(rates[first + m]), None if batches is None else batches[m, ...]
            if variant == "assran":
                z = calls.apply(m, x - rate * problem.inner_grad(z, lam, batch=batch))
                x = calls.restart(m) * z
            else:
                z = calls.apply(m, x)
                x = calls.restart(m) * z - rate * problem.inner_grad(z, lam, batch=batch)
            messages += int(calls.messages(m))
        shown.update(count)
        _check_size(x, GROWTH_LIMIT * reach, first + count, rates[first])
    return (z if variant == "assran" else x / calls.restart(count - 1)), messages


def _start(problem: Any, lam: Array, x0: Array | None) -> Array:
    shape = (*lam.shape[:-1], problem.dim_x)
    if x0 is None:
        return array_namespace(lam).zeros(shape, dtype=lam.dtype, device=device(lam))
    arguments.shape("x0", x0, (problem.n_clients, problem.dim_x), "(n, d_x)")
    arguments.finite("x0", x0)
    xp = array_namespace(x0)
    return xp.broadcast_to(x0, shape) + xp.zeros_like(x0)


def _check_size(x: Array, limit: float, step: int, rate: float) -> None:
    size = scalar(array_namespace(x).max(abs(x)))
    if not size <= limit:
        raise DivergenceError(
            f"training diverged: parameters up to {size:.2g} after {step} steps, learning rate {rate:g}: "
            "take a smaller lr"
        )


def _check_progress(problem: Any, lam: Array, x0: Array | None, x: Array, grad_norm: Any, lr: float) -> None:
    """Training that ends far from its start with a gradient far above those it started from has diverged."""
    xp, start = array_namespace(x), _start(problem, lam, x0)
    before = to_host(xp.max(xp.linalg.vector_norm(problem.inner_grad(start, lam), axis=-1), axis=-1))
    moved = scalar(xp.max(abs(x))) > 10 * (1 + scalar(xp.max(abs(start))))
    if moved and np.any(grad_norm > 10 * before):
        raise DivergenceError(
            f"training diverged: the mean gradient is {np.max(grad_norm):.2g} at its end, clients' gradients were at "
            f"most {np.max(before):.2g} at its start, learning rate {lr:g}: take a smaller lr"
        )


def _diagnose(problem: Any, x: Array, lam: Array) -> tuple[Any, Any]:
    """max_i ‖x_i − x̄‖ and ‖mean_i ∂g_i(x̄)‖ on the host."""
    xp = array_namespace(x)
    mean = xp.broadcast_to(xp.mean(x, axis=-2, keepdims=True), x.shape)
    gap = to_host(xp.max(xp.linalg.vector_norm(x - mean, axis=-1), axis=-1))
    norm = to_host(xp.linalg.vector_norm(xp.mean(problem.inner_grad(mean, lam), axis=-2), axis=-1))
    return (gap, norm) if x.ndim > 2 else (float(gap), float(norm))
