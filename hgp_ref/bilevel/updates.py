"""Updates of λ, and projections onto convex sets.

    state = update.start(lam)
    lam, state = update.step(state, lam, v)

Every entry of λ is updated from its own hyper-gradient, so that no client needs another's. A state is a tuple of
numbers and arrays like λ, which a checkpoint can hold. With `log=True`, `lam` is θ = log λ and v the hyper-gradient
with respect to θ: steps then change λ by factors, and λ stays positive.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, all_finite, array_namespace, host_dtype, to_host
from hgp_ref.problems.lipschitz import Lipschitz
from hgp_ref.validation import Boolean, Instance, Number, Optional, Positive, checked

UpdateState = tuple[Any, ...]


class Update(ABC):
    """From λ and v to the next λ."""

    log = False  # whether the loop applies the update to log λ

    @abstractmethod
    def start(self, lam: Array) -> UpdateState:
        """The state before the first step."""

    @abstractmethod
    def step(self, state: UpdateState, lam: Array, v: Array) -> tuple[Array, UpdateState]:
        """The next λ, in a new array, and the next state."""


@checked(lr=Positive(), log=Boolean())
@dataclass(frozen=True)
class GradientDescent(Update):
    """Gradient descent, λ ← λ − γ v.

    Parameters
    ----------
    lr : γ.
    log : update log λ.

    Examples
    --------
    >>> update = hgp.bilevel.GradientDescent(0.5)
    >>> update.step(update.start(np.ones((1, 2))), np.ones((1, 2)), np.array([[1.0, -2.0]]))
    (array([[0.5, 2. ]]), ())
    """

    lr: float
    log: bool = field(default=False, kw_only=True)

    def start(self, lam: Array) -> UpdateState:
        return ()

    def step(self, state: UpdateState, lam: Array, v: Array) -> tuple[Array, UpdateState]:
        return lam - self.lr * v, state


@checked(lr=Positive(), theta=Number(), lipschitz=Optional(Instance(Lipschitz)), log=Boolean())
@dataclass(frozen=True)
class CertifiedDescent(GradientDescent):
    """λ ← Π(λ − γ v), taken only if the outer cost F is certified to fall; see `hgp_ref.bilevel.certified`.

    S, M and the accuracy of training are raised only when ‖v − ∇F‖ ≤ θ‖v‖ cannot be certified. All decisions use
    numbers that the clients compute over the network. Hyper-gradients must use full batches.

    Parameters
    ----------
    lr : the first γ. It is adapted from step to step.
    theta : θ in (0, 1).
    lipschitz : constants of the problem; by default `problem.lipschitz(lam)`, which built-in problems with positive L2
        rates have.

    Examples
    --------
    >>> hgp.bilevel.CertifiedDescent(0.5, theta=0.3).theta
    0.3
    """

    theta: float = 0.5
    lipschitz: Lipschitz | None = None

    def __post_init__(self) -> None:
        if not 0 < self.theta < 1:
            raise ValueError(f"theta must be a number strictly between 0 and 1, got {self.theta:g}")


@checked(lr=Positive(), eps=Positive(), log=Boolean())
@dataclass(frozen=True)
class Adam(Update):
    """Adam, with means of the hyper-gradient and of its squares.

        m ← β₁ m + (1 − β₁) v,   s ← β₂ s + (1 − β₂) v²,   λ ← λ − γ m̂ / (√ŝ + ε),

    with m̂ = m / (1 − β₁ᵗ) and ŝ = s / (1 − β₂ᵗ) in step t = 1, 2, … The first step moves every entry by
    about γ, however small its hyper-gradient.

    Parameters
    ----------
    lr, betas, eps : γ, (β₁, β₂) and ε.
    log : update log λ.

    Examples
    --------
    >>> update = hgp.bilevel.Adam(0.1)
    >>> lam, state = update.step(update.start(np.ones((1, 2))), np.ones((1, 2)), np.array([[3.0, -2e-3]]))
    >>> lam.round(4)
    array([[0.9, 1.1]])

    [1] D. P. Kingma, J. Ba. Adam: a method for stochastic optimization. ICLR 2015.
    """

    lr: float = 0.1
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    log: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.betas, list | tuple) or len(self.betas) != 2:
            raise TypeError(f"betas must be two numbers in [0, 1), got {self.betas!r}")
        betas = tuple(validation.between(f"betas[{k}]", beta, 0.0, 1.0) for k, beta in enumerate(self.betas))
        if max(betas) == 1:
            raise ValueError(f"betas must be two numbers in [0, 1), got {self.betas!r}")
        object.__setattr__(self, "betas", betas)

    def start(self, lam: Array) -> UpdateState:
        zeros = array_namespace(lam).zeros_like(lam)
        return 0, zeros, zeros

    def step(self, state: UpdateState, lam: Array, v: Array) -> tuple[Array, UpdateState]:
        t, m, s = state
        (b1, b2), t, xp = self.betas, t + 1, array_namespace(lam)
        m = b1 * m + (1 - b1) * v
        s = b2 * s + (1 - b2) * v * v
        direction = (m / (1 - b1**t)) / (xp.sqrt(s / (1 - b2**t)) + self.eps)
        return lam - self.lr * direction, (t, m, s)


# ---- Projections: Π(λ) = argmin_{μ ∈ C} |μ − λ| for each client's row
#
# Any function λ → λ is a projection for `optimise`. The set must be convex, because `optimise` may halve a step.


def _check_shape(lam: Array) -> None:
    validation.same_kind(lam=lam)
    if lam.ndim < 2 or lam.shape[-1] < 1:
        raise ValueError(f"lam must have shape (..., n, d_lam), got {tuple(lam.shape)}")


@checked(low=Number(), high=Number())
@dataclass(frozen=True)
class Box:
    """Projection onto low ≤ λ_ij ≤ high.

    Examples
    --------
    >>> hgp.bilevel.Box(0.0, 1.0)(np.array([[-0.5, 0.5, 1.5]]))
    array([[0. , 0.5, 1. ]])
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low must be <= high, got low={self.low:g}, high={self.high:g}")

    def __call__(self, lam: Array) -> Array:
        _check_shape(lam)
        xp = array_namespace(lam)
        lam = xp.where(lam < self.low, xp.full_like(lam, self.low), lam)
        return xp.where(lam > self.high, xp.full_like(lam, self.high), lam)


@dataclass(frozen=True)
class NonNegative:
    """Projection onto λ_ij ≥ 0.

    Examples
    --------
    >>> hgp.bilevel.NonNegative()(np.array([[-0.5, 0.5]]))
    array([[0. , 0.5]])
    """

    def __call__(self, lam: Array) -> Array:
        _check_shape(lam)
        xp = array_namespace(lam)
        return xp.where(lam < 0, xp.zeros_like(lam), lam)


@checked(total=Positive())
@dataclass(frozen=True)
class Simplex:
    """Projection onto λ_ij ≥ 0 with Σ_j λ_ij = total for each client.

    Π(λ) = max(λ − τ_i, 0) with the τ_i that gives the sum: τ = (Σ_{j ∈ A} λ_j − total)/|A| over the entries A that stay
    positive. A starts as all of them and loses those that are not above τ, until it loses none (at most d_λ times) [1].

    Examples
    --------
    >>> hgp.bilevel.Simplex()(np.array([[0.5, 0.9, -2.0]]))
    array([[0.3, 0.7, 0. ]])

    [1] C. Michelot. A finite algorithm for finding the projection of a point onto the canonical simplex of Rⁿ. 1986.
    """

    total: float = 1.0

    def __call__(self, lam: Array) -> Array:
        _check_shape(lam)
        if not all_finite(lam):
            raise ValueError("lam must not contain NaN or infinite values")
        info = np.finfo(host_dtype(lam))
        if not lam.shape[-1] * float(info.tiny) <= self.total <= float(info.max):
            raise ValueError(f"total must be a sum that entries of lam ({info.dtype}) can have, got {self.total:g}")
        xp = array_namespace(lam)
        half = lam / 2 - xp.max(lam, axis=-1, keepdims=True) / 2  # λ − max λ has the same projection; no overflow
        far = half <= -self.total / 2  # 0 in the projection, as −total is
        lam = xp.where(far, xp.full_like(lam, -self.total), 2 * xp.where(far, xp.zeros_like(lam), half))
        active, zero = xp.ones_like(lam), xp.zeros_like(lam)
        while True:
            count = xp.sum(active, axis=-1, keepdims=True)
            tau = (xp.sum(xp.where(active > 0, lam, zero), axis=-1, keepdims=True) - self.total) / count
            above = xp.astype((lam > tau) & (active > 0), lam.dtype)
            if bool(to_host(xp.all(above == active))):
                return xp.where(lam > tau, lam - tau, zero)
            active = above
