"""Decentralized descent: rules by which clients with gradients d_i approach a zero of the mean gradient.

Every variable of a decentralized bilevel method (inner x, auxiliary z, outer λ) moves by one of these rules. W is the
mixing of one round, α the step size; gradients are taken at the current point:

    consensus   s ← W s − α d                                          bias of order α if clients differ
    diffusion   s ← W (s − α d)                                        likewise
    tracking    s ← W s − α t,  t ← W t + d⁺ − d,  t⁰ = d⁰             exact; two vectors a round
    ED          s^{k+2} = W (2s^{k+1} − s^k − α (d^{k+1} − d^k))       exact; s¹ = W (s⁰ − α d⁰)
    EXTRA       s^{k+2} = 2W s^{k+1} − W s^k − α (d^{k+1} − d^k)       exact; s¹ = W s⁰ − α d⁰
    GT          s ← W (s − α y),  y ← W (y + d⁺ − d),  y⁰ = W d⁰       exact; two rounds of one vector,
                i.e. s^{k+2} = 2W s^{k+1} − W² s^k − α W² (d^{k+1} − d^k)

"Exact" means that at a fixed point of the rule all clients agree and Σ_i d_i = 0. "tracking" conserves Σ_i (t_i − d_i)
= 0; ED and EXTRA conserve Σ_i (s^{k+1} − s^k + α d^k)_i = 0 from the first step on. In ED and EXTRA, W is the lazy
matrix (I + W)/2, which clients form themselves; otherwise W must have no eigenvalue near −1. "tracking" pushes t and
pulls s, so it also works over directed graphs (`hgp_ref.mixing.consensus`). All others need doubly stochastic W. A
damping η in "tracking" gives s ← (1 − η) s + η (W s − α t).

`Descent` applies a rule to ½ wᵀ H̄ w − ḡᵀ w. `HessianGossip` averages the Hessians themselves.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, device
from hgp_ref.methods.base import Curvature, Derivatives, Method, Start
from hgp_ref.mixing import Mixer, WeightRule, run_round
from hgp_ref.mixing.consensus import MixingRoutine, SumPreserving
from hgp_ref.results import Result

Gradient = Callable[[Array], Array]


@dataclass(frozen=True)
class Moving(Result):
    """A variable of every client, (n, d), and the memory of its rule."""

    s: Array
    memory: Any = None


class Rule(ABC):
    """One iteration as a mixing routine, for `yield from` or `run_round` (`hgp_ref.mixing.consensus`)."""

    directed = False  # whether column-stochastic matrices suffice

    def __init__(self, step: float) -> None:
        self.step = validation.positive("step", step)

    @abstractmethod
    def talk(self, moving: Moving, gradient: Gradient) -> MixingRoutine:
        """From one state to the next; gradient(s) are the clients' d at s."""

    def projected(self, moving: Moving, s: Array) -> Moving:
        """The state after a projection of its variable to s."""
        return Moving(s, moving.memory)


class Consensus(Rule):
    """s ← W s − α d."""

    def talk(self, moving: Moving, gradient: Gradient) -> MixingRoutine:
        d = gradient(moving.s)
        (mixed,) = yield (moving.s,)
        return Moving(mixed - self.step * d)


class Diffusion(Rule):
    """s ← W (s − α d)."""

    def talk(self, moving: Moving, gradient: Gradient) -> MixingRoutine:
        (mixed,) = yield (moving.s - self.step * gradient(moving.s),)
        return Moving(mixed)


class Tracked(Rule):
    """s ← (1 − η) s + η (W s − α t),  t ← W t + d⁺ − d."""

    directed = True

    def __init__(self, step: float, damping: float = 1.0) -> None:
        super().__init__(step)
        self.damping = validation.between("damping", damping, 0, 1)

    def talk(self, moving: Moving, gradient: Gradient) -> MixingRoutine:
        d = gradient(moving.s)
        t = followed(moving.memory, d)
        mixed, mixed_t = yield moving.s, SumPreserving(t)
        s = mixed - self.step * t
        return Moving(s if self.damping == 1 else moving.s + self.damping * (s - moving.s), (mixed_t, d))


class Lazy(Rule):
    """Rules whose W is (I + W)/2 unless `lazy` is False."""

    def __init__(self, step: float, lazy: bool = True) -> None:
        super().__init__(step)
        self.lazy = validation.boolean("lazy", lazy)

    def mixed(self, s: Array) -> MixingRoutine:
        (mixed,) = yield (s,)
        return 0.5 * (s + mixed) if self.lazy else mixed


class ExactDiffusion(Lazy):
    """ψ⁺ = s − α d,  s ← W (ψ⁺ + s − ψ),  ψ⁰ = s⁰.

    With a projection, s ← Π y, y ← W (ψ⁺ + y − ψ): the part removed remains in y − ψ.
    """

    def talk(self, moving: Moving, gradient: Gradient) -> MixingRoutine:
        psi = moving.s - self.step * gradient(moving.s)
        s = yield from self.mixed(psi if moving.memory is None else psi + (moving.s - moving.memory))
        return Moving(s, psi)

    def projected(self, moving: Moving, s: Array) -> Moving:
        return Moving(s, None if moving.memory is None else moving.memory + (s - moving.s))


class Extra(Lazy):
    """With m = W s and e = α d:  s ← 2m − m₋ − (e − e₋), where m₋ and e₋ are those of the previous step.

    With a projection, s ← Π y, y ← 2m − s + y − m₋ − (e − e₋).
    """

    def talk(self, moving: Moving, gradient: Gradient) -> MixingRoutine:
        e = self.step * gradient(moving.s)
        m = yield from self.mixed(moving.s)
        s = m - e if moving.memory is None else m + (m - moving.memory[0]) - (e - moving.memory[1])
        return Moving(s, (m, e))

    def projected(self, moving: Moving, s: Array) -> Moving:
        return Moving(s, None if moving.memory is None else (moving.memory[0] + (s - moving.s), moving.memory[1]))


class AdaptThenTrack(Rule):
    """y ← W (y + d⁺ − d), then s ← W (s − α y): two rounds."""

    def talk(self, moving: Moving, gradient: Gradient) -> MixingRoutine:
        d = gradient(moving.s)
        (y,) = yield (followed(moving.memory, d),)
        (s,) = yield (moving.s - self.step * y,)
        return Moving(s, (y, d))


RULES: dict[str, Callable[[float], Rule]] = {
    "consensus": Consensus,
    "diffusion": Diffusion,
    "tracking": Tracked,
    "ED": ExactDiffusion,
    "EXTRA": Extra,
    "GT": AdaptThenTrack,
}


class Svrg(Rule):
    """FedInn and FedOut of FedNest: with y = s and d̄ = W d(s), τ local steps y ← y − α (d(y) − d(s) + d̄), then s ← W y.

    This takes two rounds; W is the exact mean."""

    def __init__(self, step: float, local_steps: int = 1) -> None:
        super().__init__(step)
        self.local_steps = validation.integer("local_steps", local_steps, 1, validation.LONGEST)

    def talk(self, moving: Moving, gradient: Gradient) -> MixingRoutine:
        d = gradient(moving.s)
        (mean,) = yield (d,)
        y = moving.s - self.step * mean
        for _ in range(self.local_steps - 1):
            y = y - self.step * (gradient(y) - d + mean)
        (s,) = yield (y,)
        return Moving(s)


def follow(memory: Any, d: Array) -> MixingRoutine:
    """The tracker t ← W t + d⁺ − d alone, t⁰ = d⁰: the next memory, from which `followed` computes t."""
    (mixed,) = yield (SumPreserving(followed(memory, d)),)
    return mixed, d


def followed(memory: Any, d: Array) -> Array:
    """t at the new direction d: the mixed t plus the change of d."""
    return d if memory is None else memory[0] + (d - memory[1])


def require_balanced(what: str, mixer: Mixer) -> None:
    """ValueError unless the averaging uses doubly stochastic matrices, which `what` needs."""
    for averaging in mixer.averagings:
        if averaging.weight_rule is not WeightRule.NONE:
            raise ValueError(
                f"avg must be Gossip(net, steps) over a network with doubly stochastic matrices, such as "
                f"StaticUndirected, for {what}, got {averaging!r}"
            )


def read_rule(name: str, rule: object, step: float) -> Rule:
    """The rule called `rule`, with step size `step`."""
    return RULES[validation.choice(name, rule, RULES)](step)


# Methods --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DescentState(Result):
    w: Moving
    g: Array  # ∂_x f − H w at the start


class Descent(Method):
    """w* as the minimiser of ½ wᵀ H̄ w − ḡᵀ w: client i moves its w_i by a rule with d_i = H_i w_i − ∂_x f_i.

    With one round an iteration (`Gossip(net, steps=1)`) these are, at a fixed point (x, λ), the auxiliary variables of

        "tracking"     MA-DSBO (HIGP oracle, arXiv 2210.12839): z ← W z − γ d,  d ← W d + s⁺ − s,  s = H_i z − ∂_x f_i
        "diffusion"    D-SOBA (arXiv 2402.03167): z ← W (z − γ (H_i z − ∂_x f_i)), biased if clients differ
        "ED", "EXTRA", "GT"    SPARKLE (arXiv 2411.14166) with the correction of that name
        "consensus"    z ← W z − γ d, biased as well

    All are of class Global: w_i → w* except for the bias of "diffusion" and "consensus", which shrinks with the step.
    Over column-stochastic matrices this limit fails except for "tracking", which then is push-pull (PushSum with one
    step and reset weights). `hgp_ref.methods.descent` has the equations.

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

    def init(self, start: Start) -> DescentState:
        if not self.rule.directed:
            require_balanced(repr(self), start.mixer)
        return DescentState(Moving(array_namespace(start.residual).zeros_like(start.residual)), start.residual)

    def step(self, state: DescentState, mixer: Mixer, derivatives: Derivatives) -> tuple[Array, DescentState]:
        (w,) = run_round(mixer, self.rule.talk(state.w, lambda w: derivatives.hvp(w) - state.g))
        return w.s - state.w.s, DescentState(w, state.g)

    def __repr__(self) -> str:
        return f"Descent({self.name!r}, step={self.rule.step:g})"


ENTRIES = 2**23  # numbers in the unit vectors of one product, at most


@dataclass(frozen=True)
class HessianGossipState(Result):
    g: Array  # ∂_x f_i, (..., n, d_x)
    h: Array  # estimate of its mean
    V: Array | None  # estimate of the mean Hessian, (..., n, d_x²)
    w: Array
    H: Array | None  # H_i, (..., n, d_x²)


class HessianGossip(Method):
    """GBDSBO at a fixed point (Yang et al. 2022, arXiv 2206.10870).

    Clients estimate the mean gradient and the mean Hessian by damped gossip and invert by a Neumann polynomial,

        h ← (1 − β) W h + β ∂_x f_i,    V ← (1 − β) W V + β H_i,    w_i = (1/ℓ) Σ_{j ≤ b} (I − V_i/ℓ)^j h_i.

    Class Global. Its bias shrinks with β if clients differ (h = β (I − (1 − β) W)⁻¹ ∂_x f in the limit), and that of
    the polynomial is (1 − λ/ℓ)^{b+1}. A message carries V, d_x² numbers, and h. ∂_λ f_i and J_i are not sent, because
    λ_i belongs to client i here; `hgp.baselines.gbdsbo(shared=True)` sends them. The paper's b independent V_j of b
    mini-batches are equal on full batches and sent once, which favours the method.

    Parameters
    ----------
    step : β in (0, 1].
    ell : ℓ >= the largest eigenvalue of any client's Hessian.
    terms : degree b of the polynomial.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> x, lam = np.ones((4, 3)), np.zeros((4, 2))
    >>> avg = hgp.Gossip(hgp.networks.StaticUndirected(n=4, seed=1), steps=1)
    >>> truth = hgp.exact.hypergradient(problem, x, lam)
    >>> def error(step):
    ...     method = hgp.methods.HessianGossip(step, ell=1.0, terms=200)
    ...     est = hgp.hypergradient(problem, x, lam, avg, method=method, iterations=int(40 / step))
    ...     return np.linalg.norm(est.value - truth)
    >>> bool(error(0.01) < 0.2 * error(0.1))
    True
    """

    def __init__(self, step: float, ell: float, terms: int) -> None:
        self.beta = validation.positive("step", step)
        if self.beta > 1:
            raise ValueError(f"step must be a number in (0, 1], got {step!r}")
        self.ell = validation.positive("ell", ell)
        self.terms = validation.integer("terms", terms, 1, validation.LONGEST)

    def init(self, start: Start) -> HessianGossipState:
        require_balanced(repr(self), start.mixer)
        g = start.residual
        return HessianGossipState(g, g, None, array_namespace(g).zeros_like(g), None)

    def step(
        self, state: HessianGossipState, mixer: Mixer, derivatives: Derivatives
    ) -> tuple[Array, HessianGossipState]:
        H = hessians(derivatives, state.g) if state.H is None or derivatives.sampled else state.H
        V = H if state.V is None else state.V
        ((h, V),) = run_round(mixer, damped(self.beta, (state.h, V), (state.g, H)))
        w = inverse_times(V, h, self.ell, self.terms)
        return w - state.w, HessianGossipState(state.g, h, V, w, H)

    def __repr__(self) -> str:
        return f"HessianGossip(step={self.beta:g}, ell={self.ell:g}, terms={self.terms})"


def damped(beta: float, estimates: tuple[Array, ...], values: tuple[Array, ...]) -> MixingRoutine:
    """s ← (1 − β) W s + β d for each estimate s and the clients' own values d."""
    mixed = yield estimates
    return tuple((1 - beta) * s + beta * d for s, d in zip(mixed, values, strict=True))


def inverse_times(V: Array, h: Array, ell: float, terms: int) -> Array:
    """(1/ℓ) Σ_{j ≤ terms} (I − V_i/ℓ)^j h_i, V (..., n, d²)."""
    xp, d = array_namespace(h), h.shape[-1]
    matrices = xp.reshape(V, (*V.shape[:-1], d, d))
    a = h
    for _ in range(terms):
        a = h + a - xp.matmul(matrices, a[..., None])[..., 0] / ell
    return a / ell


def hessians(derivatives: Curvature, like: Array) -> Array:
    """H_i by products with unit vectors, flattened.  # (..., n, d_x²)"""
    return flattened(unit_products(derivatives.hvp, like))


def unit_products(product: Callable[[Array], Array], like: Array) -> Array:
    """The columns A_i e_j of the maps u_i ↦ A_i u_i, (d, ..., n, k); like (..., n, d).

    Unit vectors form a run axis, at most ENTRIES numbers at a time.
    """
    xp, d = array_namespace(like), like.shape[-1]
    unit = xp.reshape(xp.eye(d, dtype=like.dtype, device=device(like)), (d, *(1,) * (like.ndim - 1), d))
    most = max(1, ENTRIES // max(1, math.prod(like.shape)))
    parts = [product(unit[j : min(j + most, d), ...] + xp.zeros_like(like)[None, ...]) for j in range(0, d, most)]
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)


def flattened(columns: Array) -> Array:
    """A_i by rows, (..., n, k d), from its columns (d, ..., n, k)."""
    xp = array_namespace(columns)
    A = xp.moveaxis(columns, 0, -1)
    return xp.reshape(A, (*A.shape[:-2], A.shape[-2] * A.shape[-1]))
