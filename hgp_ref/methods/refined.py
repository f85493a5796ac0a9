"""Iterative refinement: another method, restarted on what it has left over."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hgp_ref import arguments
from hgp_ref.averaging import Mean
from hgp_ref.averaging.base import read_steps
from hgp_ref.backend import Array
from hgp_ref.methods.base import Curvature, Method


@dataclass(frozen=True)
class _State:
    inner: Any  # of the method that is refined
    g: Array  # ∂_x f − ∂²_x g w₀
    w0: Array | float
    w: Array | float  # w₀ and all increments
    whole: Callable[[], Curvature] | None = None
    m: int = 0  # iterations made


class Refined(Method):
    """Cycles of `method`. Each but the first begins with a better average of w and the residual there,

        w ← Θ̂ w,    r = ∂_x f − ∂²_x g w on full batches,

    and solves H̄ δ = mean r from δ = 0. `method` errs in proportion to what it is given: its increments, and with them
    the noise of mini-batches and the disagreement between clients, shrink from cycle to cycle. What does not shrink is
    r − mean r, which the first average of a cycle must remove: it takes `steps` steps, as does that of w.

    Parameters
    ----------
    method : any method.
    cycles : how many; a run of M iterations has ⌈M/cycles⌉ in each.
        With `tol`, the last cycle ends once so little is left.
    steps : steps of the averages at a restart, larger than those in between; a sequence gives those of the first,
        second, ... restart, and its last entry is repeated.

    Raises
    ------
    TypeError, ValueError
        `method` must be a method, `cycles` and `steps` integers ≥ 1.

    Examples
    --------
    Calls of four steps, six of forty at three restarts:

    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> x, lam = np.ones((3, 4)), np.zeros((3, 2))
    >>> avg = hgp.PushSum(hgp.networks.RandomDirected(n=3, seed=1), steps=4)
    >>> method = hgp.methods.Refined(hgp.methods.Chebyshev(), cycles=4, steps=40)
    >>> est = hgp.hypergradient(problem, x, lam, avg, method=method, iterations=100)
    >>> bool(np.abs(est.value - hgp.exact.hypergradient(problem, x, lam)).max() < 1e-6)
    True
    """

    def __init__(self, method: Method, cycles: int = 4, steps: Any = 40) -> None:
        if not isinstance(method, Method):
            given = f"{type(method).__module__}.{type(method).__name__}"
            raise TypeError(f"method: {given} given, needed a method of hgp_ref.methods")
        self.method, self.cycles = method, arguments.integer("cycles", cycles, 1, arguments.LONGEST)
        self.steps = read_steps(steps)
        self.length: int | None = None  # iterations of a cycle, once a run is known

    @property
    def transients(self) -> bool:  # type: ignore[override]
        return self.method.transients

    @property
    def conserves(self) -> bool:  # type: ignore[override]
        return self.method.conserves

    @property
    def remedy(self) -> str:  # type: ignore[override]
        return self.method.remedy

    def for_run(self, iterations: int) -> Refined:
        other = copy.copy(self)
        other.length = -(-iterations // self.cycles)
        other.method = self.method.for_run(other.length)
        return other

    def start(self, g: Array) -> _State:
        return _State(self.method.start(g), g, 0.0, 0.0)

    def start_from(self, g: Array, w: Array) -> _State:
        return _State(self.method.start_from(g, w), g, w, w)

    def begin(self, state: _State, average: Mean, whole: Callable[[], Curvature]) -> _State:
        return replace(state, inner=self.method.begin(state.inner, average, whole), whole=whole)

    def restart(self, state: _State, g: Array, w: Array, average: Mean, whole: Callable[[], Curvature]) -> _State:
        return _State(self.method.restart(state.inner, g, w, average, whole), g, w, w, whole)

    def step(self, state: _State, average: Mean, linearization: Curvature) -> tuple[Array, _State]:
        length = self.length or 1
        if state.m and state.m % length == 0:
            return self._restarted(state, average, linearization, state.m // length)
        p, inner = self.method.step(state.inner, average, linearization)
        return p, replace(state, inner=inner, w=state.w + p, m=state.m + 1)

    def _restarted(self, state: _State, average: Mean, linearization: Curvature, restart: int) -> tuple[Array, _State]:
        """The first step of a cycle, and what the average of w has moved."""
        better = average.taking(self.steps if isinstance(self.steps, int) else self.steps[:restart][-1])
        w = better(average.kept(state.w))
        whole = state.whole or (lambda: linearization)
        r = state.g - whole().hvp(w - state.w0)
        inner = self.method.restart(state.inner, r, w, average, whole)
        p, inner = self.method.step(inner, better, linearization)
        return (w - state.w) + p, replace(state, inner=inner, w=w + p, m=state.m + 1)

    def residual(self, state: _State) -> Array | None:
        return self.method.residual(state.inner)

    def may_end(self, state: _State) -> bool:
        """In the last cycle: in those before, little may be left of what the method solves for, but not of r."""
        return state.m > (self.cycles - 1) * (self.length or 1)

    def carry(self, state: _State) -> Array | None:
        return self.method.carry(state.inner)

    def resume(self, g: Array, w: Array, carried: Array) -> _State:
        return _State(self.method.resume(g, w, carried), g, w, w)

    def __repr__(self) -> str:
        return f"Refined({self.method!r}, cycles={self.cycles}, steps={self.steps})"
