"""One step of a client: gradient, weight decay, a pull towards an anchor, momentum.

    d = ∂g(z) + c z + μ (z − a),        b ← m b + d,        z ← z − rate b

with the weight decay c, the proximal weight μ and the momentum m (0: d itself). Nothing here meets another client.
"""

from __future__ import annotations

from bisect import bisect_right
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


class Rates:
    """The learning rate of each step from 0 on: lr decay^(milestones passed), or lr(step) for a function.

    Rates are computed as they are asked for: a run may end long before its last step.
    """

    def __init__(self, steps: int, lr: Rate, milestones: Sequence[int] | None, decay: float) -> None:
        self.steps, self._function = steps, lr if callable(lr) else None
        if self._function is not None:
            if milestones is not None:
                raise ValueError(f"milestones={milestones!r} given beside a function lr, needed one of them")
            self.milestones: tuple[int, ...] = ()
            self.largest = max(self.sample().tolist())  # of those asked for so far
            return
        rate = arguments.positive("lr", lr)
        if milestones is None:
            milestones = (-(-3 * steps // 5), -(-4 * steps // 5))
        at = arguments.host_array("milestones", milestones)
        if at.ndim != 1 or (at.size and at.dtype.kind not in "iu"):
            raise ValueError(f"milestones={milestones!r} given, needed a list of step numbers")
        self.milestones, self._sorted = tuple(at.tolist()), sorted(at.tolist())
        self._table = (rate * arguments.positive("decay", decay) ** np.arange(at.size + 1)).tolist()
        passed = bisect_right(self._sorted, 0), bisect_right(self._sorted, steps - 1)
        self.largest = max(self._table[passed[0]], self._table[passed[1]])  # the rate is monotone

    def __getitem__(self, step: int) -> float:
        if self._function is None:
            return self._table[bisect_right(self._sorted, step)]
        rate = arguments.positive(f"lr({step})", self._function(step))
        self.largest = max(rate, getattr(self, "largest", rate))
        return rate

    def until(self, steps: int) -> np.ndarray:
        """The rates of the first `steps` steps."""
        return np.array([self[s] for s in range(steps)])

    def sample(self) -> np.ndarray:
        """The rates of steps 0, 1, 2, 4, 8, … and of the last: what ranks compare."""
        powers = [2**k for k in range((self.steps - 1).bit_length()) if 2**k < self.steps]
        return np.array([self[s] for s in dict.fromkeys([0, *powers, self.steps - 1])])


def read_rates(steps: int, lr: Rate, milestones: Sequence[int] | None, decay: float
               ) -> tuple[tuple[int, ...], np.ndarray]:  # fmt: skip
    """The milestones, and the rates of all steps."""
    rates = Rates(steps, lr, milestones, decay)
    return rates.milestones, rates.until(steps)
