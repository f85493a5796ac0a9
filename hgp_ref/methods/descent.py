"""Decentralized descent on ½ wᵀ H̄ w − ḡᵀ w: how the methods that came after find w* with doubly stochastic mixing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hgp_ref.averaging import Mean, exchange
from hgp_ref.backend import Array, array_namespace
from hgp_ref.methods.base import Curvature, Method
from hgp_ref.methods.rules import Moving, read_rule, require_balanced


@dataclass(frozen=True)
class _State:
    w: Moving
    g: Array  # ∂_x f − ∂²_x g w₀


class Descent(Method):
    """w* as the minimiser of ½ wᵀ H̄ w − ḡᵀ w: client i moves its w_i by a rule with d_i = H_i w_i − ∂_x f_i.

    With one round an iteration (`Gossip(net, steps=1)`) these are, at a fixed point (x, λ), the auxiliary variables of

        "tracking"     MA-DSBO (HIGP oracle, arXiv 2210.12839): z ← W z − γ d,  d ← W d + s⁺ − s,  s = H_i z − ∂_x f_i
        "diffusion"    D-SOBA (arXiv 2402.03167): z ← W (z − γ (H_i z − ∂_x f_i)), biased where clients differ
        "ED", "EXTRA", "GT"    SPARKLE (arXiv 2411.14166) with the correction of that name
        "consensus"    z ← W z − γ d, the plain form, biased alike

    all of class Global: but for the bias of "diffusion" and "consensus", which shrinks with the step, w_i → w*. The
    rules are written out in `hgp_ref.methods.rules`. Over a network whose matrices are only column-stochastic they have
    no such limit, except "tracking", which then is push-pull (PushSum with one step, reset weights).

    Parameters
    ----------
    rule : one of the names above.
    step : its step size.

    Raises
    ------
    TypeError, ValueError
        `rule` must be one of its values, `step` positive.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> x, lam = np.ones((4, 3)), np.zeros((4, 2))
    >>> avg = hgp.Gossip(hgp.networks.StaticUndirected(n=4, seed=1), steps=1)
    >>> truth = hgp.exact.hypergradient(problem, x, lam)
    >>> est = hgp.hypergradient(problem, x, lam, avg, method=hgp.methods.Descent("tracking", 0.5), iterations=400)
    >>> bool(np.abs(est.value - truth).max() < 1e-10)
    True
    """

    def __init__(self, rule: str, step: float) -> None:
        self.rule, self.name = read_rule("rule", rule, step), rule

    def start(self, g: Array) -> _State:
        return _State(Moving(array_namespace(g).zeros_like(g)), g)

    def begin(self, state: _State, average: Mean, whole: Callable[[], Curvature]) -> _State:
        if not self.rule.directed:
            require_balanced(repr(self), average)
        return state

    def step(self, state: _State, average: Mean, linearization: Curvature) -> tuple[Array, _State]:
        (w,) = exchange(average, self.rule.talk(state.w, lambda w: linearization.hvp(w) - state.g))
        return w.s - state.w.s, _State(w, state.g)

    def __repr__(self) -> str:
        return f"Descent({self.name!r}, step={self.rule.step:g})"
