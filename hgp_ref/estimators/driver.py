"""The driver of every method: what is the same whatever the increments are.

    w^(m) = w^(m-1) + p^(m),    v^(m) = v^(m-1) − ∂²_{xλ} g(ξ̂^(m)) p^(m),    v^(0) = ∂_λ f − ∂²_{xλ} g w^(0),

so that with full batches v^(m) = ∂_λ f − ∂²_{xλ} g w^(m): there the product with ∂²_{xλ} g is left to the end. With
mini-batches that is a choice (`whole_cross`), which keeps the noise of ∂²_{xλ} g out of v.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.averaging import Mean
from hgp_ref.backend import Array, array_namespace, is_numpy
from hgp_ref.estimators.derivatives import FullBatch, Sampled
from hgp_ref.estimators.divergence import GrowthWatch
from hgp_ref.methods import Method
from hgp_ref.problems.protocol import FullLinearization
from hgp_ref.progress import Bar

LOOKS = 4  # times that a run's growth is looked at, at least, besides its first iteration
STRIDE = 256  # iterations between two looks, at most
SAMPLE = 8  # iterations between two glances at whether numbers are finite, where they are on the host


@dataclass
class Iteration:
    """A run of `method`: its state and what is kept of it."""

    method: Method
    average: Mean
    derivatives: FullBatch | Sampled
    watch: GrowthWatch
    state: Any
    w: Array  # w^(0)
    v: Array  # v^(0)
    f_lam: Array  # ∂_λ f
    keep_history: bool
    callback: Callable[[int, Array], object] | None
    tol: float | None
    whole_cross: bool = False  # whether v takes ∂²_{xλ} g on full batches in a run of mini-batches

    def __post_init__(self) -> None:
        self.whole_v = self.derivatives.constant or self.whole_cross  # v^(m) follows from w^(m)
        self.deferred = self.whole_v and self.callback is None
        self.kept: list[Array] = []
        self.m, self.stopped = 0, "iterations"

    def run(self, M: int, shown: Bar) -> None:
        """Iterations 1 .. M, or fewer."""
        stride, sampled = max(1, min(STRIDE, -(-M // LOOKS))), is_numpy(self.w)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is reported as divergence
            while self.m < M and self.stopped == "iterations":
                p = self._iterate()
                last = self.m in (1, M) or self.stopped != "iterations"
                if last or self.tol is not None or self.m % stride == 0:
                    self._look(p)
                elif sampled and not self.m % SAMPLE:
                    self.watch.sample(p, self.m)
                del p  # not to be held beside that of the next iteration
                shown.update(1)
            self.watch.conclude(self.m, self.w)

    def _iterate(self) -> Array:
        for_v, for_w = self.derivatives.at(self.m)
        shared = _Shared(for_w) if for_v is for_w and not (self.deferred or self.whole_cross) else None
        p, self.state = _answer(self.method.step(self.state, self.average, shared or for_w))
        arguments.answer("step", p, tuple(self.w.shape), like=self.w, owner="method")
        self.w = self.w + p
        if self.whole_cross and not self.deferred:
            self.v = self._whole_v(self.w)
        elif not self.deferred:
            self.v = self.v - (shared or for_v).cross(p)
        self.m += 1
        if self.keep_history:
            self.kept.append(self.w if self.deferred else self.v)
        if self.callback is not None:
            copy = array_namespace(self.v).asarray(self.v, copy=True)  # the caller's, to do with as it likes
            if self.average.channel.anyone(arguments.truth("callback", self.callback(self.m, copy))):
                self.stopped = "callback"
        return p

    def _look(self, p: Array) -> None:
        left = self.method.residual(self.state)
        self.watch.look(p if left is None else self.average.divided(left), self.m)
        if self.tol is None or self.stopped != "iterations" or not self.method.may_end(self.state):
            return
        if np.all(self.watch.left <= self.tol):
            self.stopped = "tolerance"

    def values(self) -> tuple[Array, Array | None]:
        """v^(M), and v^(1) .. v^(M) if they were to be kept."""
        kept = array_namespace(self.v).stack(self.kept, axis=-3) if self.keep_history else None
        if not self.deferred:
            return self.v, kept
        return self._whole_v(self.w), None if kept is None else self._whole_v(kept)

    def _whole_v(self, w: Array) -> Array:
        """∂_λ f − ∂²_{xλ} g w on full batches; w may have an axis of iterations before its clients."""
        f_lam = self.f_lam if w.ndim == self.f_lam.ndim else array_namespace(w).expand_dims(self.f_lam, axis=-3)
        return f_lam - self.derivatives.whole().cross(w)


def _answer(returned: Any) -> tuple[Array, Any]:
    """What `Method.step` returned."""
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise TypeError(
            f"method: step returned {type(returned).__name__}, needed a tuple of the increment and the state"
        )
    return returned


class _Shared:
    """One linearization for v and w: both products of the same vector come from one pass over the data."""

    def __init__(self, linearization: FullLinearization) -> None:
        self.linearization = linearization
        self._vector: Array | None = None  # the last one that hvp was asked for
        self._crossed: Array | None = None

    def hvp(self, u: Array) -> Array:
        bent, self._crossed = self.linearization.products(u)
        self._vector = u
        return bent

    def cross(self, u: Array) -> Array:
        return self._crossed if self._vector is u else self.linearization.cross(u)
