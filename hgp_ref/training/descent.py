"""One step of a client: gradient, weight decay, a pull towards an anchor, momentum.

    d = ∂g(z) + c z + μ (z − a),        b ← m b + d,        z ← z − rate b

with the weight decay c, the proximal weight μ and the momentum m (0: d itself). Nothing here meets another client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array
from hgp_ref.problems.normalised import Normalised

Rate = float | Callable[[int], float]


@dataclass(frozen=True)
class Descent:
    """The directions b of a client's steps on `problem` at `lam`."""

    problem: Normalised
    lam: Array
    momentum: float = 0.0
    weight_decay: float = 0.0
    prox: float = 0.0

    def __post_init__(self) -> None:
        # As Python floats: a NumPy float64 would turn float32 arrays into float64, and arrays refuse a Fraction.
        object.__setattr__(self, "momentum", check_momentum(self.momentum))
        for name in ("weight_decay", "prox"):
            object.__setattr__(self, name, arguments.nonnegative(name, getattr(self, name)))

    def gradient(self, z: Array, batch: Array | None = None) -> Array:
        """∂g(z) + c z: what vanishes where training ends.  # (..., n, d_x)"""
        gradient = self.problem.inner_grad(z, self.lam, batch=batch)
        return gradient + self.weight_decay * z if self.weight_decay else gradient

    def direction(self, z: Array, batch: Array | None, b: Array | None, anchor: Array | None = None) -> Array:
        """The next b, from the last one (None before the first step).  # (..., n, d_x)"""
        d = self.gradient(z, batch)
        if self.prox and anchor is not None:
            d = d + self.prox * (z - anchor)
        return d if b is None or not self.momentum else self.momentum * b + d


def check_momentum(momentum: float) -> float:
    """m as a Python float; an error unless 0 <= m < 1."""
    checked = arguments.number("momentum", momentum, "a number in [0, 1)")
    if not 0 <= checked < 1:
        raise ValueError(f"momentum={momentum!r} given, needed a number in [0, 1)")
    return checked


def read_rates(steps: int, lr: Rate, milestones: Sequence[int] | None, decay: float
               ) -> tuple[tuple[int, ...], np.ndarray]:  # fmt: skip
    """The milestones, and the rate of each step: lr decay^(milestones passed), or lr(step) for a function."""
    if callable(lr):
        if milestones is not None:
            raise ValueError(f"milestones={milestones!r} given beside a function lr, needed one of them")
        return (), np.array([arguments.positive(f"lr({s})", lr(s)) for s in range(steps)])
    lr = arguments.positive("lr", lr)
    if milestones is None:
        milestones = (-(-3 * steps // 5), -(-4 * steps // 5))
    at = arguments.host_array("milestones", milestones)
    if at.ndim != 1 or (at.size and at.dtype.kind not in "iu"):
        raise ValueError(f"milestones={milestones!r} given, needed a list of step numbers")
    passed = np.searchsorted(np.sort(at), np.arange(steps), side="right")
    return tuple(at.tolist()), lr * arguments.positive("decay", decay) ** passed
