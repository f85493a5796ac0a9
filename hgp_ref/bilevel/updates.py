"""How λ follows a hyper-gradient: small pure objects whose state the outer loop carries from step to step.

    state = update.start(lam)
    lam, state = update.step(state, lam, v)

Every entry of λ is updated from its own hyper-gradient alone, so that no client needs another's. A state is a tuple of
numbers and arrays like λ, which is what a file can keep.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, all_finite, array_namespace, host_dtype, to_host

State = tuple[Any, ...]


class Update(ABC):
    """λ and v to the next λ.

    Examples
    --------
    >>> isinstance(hgp.bilevel.Adam(0.1), hgp.bilevel.Update)
    True
    """

    @abstractmethod
    def start(self, lam: Array) -> State:
        """The state before the first step.

        Parameters
        ----------
        lam : (n, d_λ).

        Returns
        -------
        tuple of numbers and arrays like λ: the state.
        """

    @abstractmethod
    def step(self, state: State, lam: Array, v: Array) -> tuple[Array, State]:
        """The next λ, in an array of its own, and the next state.

        Parameters
        ----------
        state : what `start` or the last step gave.
        lam : (n, d_λ).
        v : (n, d_λ), the hyper-gradient there.

        Returns
        -------
        (λ, state).
        """


@dataclass(frozen=True)
class GradientDescent(Update):
    """λ ← λ − γ v.

    Parameters
    ----------
    lr : γ.

    Raises
    ------
    TypeError, ValueError
        `lr` must be positive.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> update = hgp.bilevel.GradientDescent(0.5)
    >>> update.step(update.start(np.ones((1, 2))), np.ones((1, 2)), np.array([[1.0, -2.0]]))
    (array([[0.5, 2. ]]), ())
    """

    lr: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", validation.positive("lr", self.lr))

    def start(self, lam: Array) -> State:
        return ()

    def step(self, state: State, lam: Array, v: Array) -> tuple[Array, State]:
        return lam - self.lr * v, state


@dataclass(frozen=True)
class Adam(Update):
    """m ← β₁ m + (1 − β₁) v,   s ← β₂ s + (1 − β₂) v²,   λ ← λ − γ m̂ / (√ŝ + ε).

    with m̂ = m / (1 − β₁ᵗ) and ŝ = s / (1 − β₂ᵗ) in step t = 1, 2, …

    The first step moves every entry by about γ, however small its hyper-gradient: a hyper-gradient that has diverged
    looks like any other afterwards, which is why `optimise` keeps it out.

    Parameters
    ----------
    lr : γ.
    betas : β₁, β₂.
    eps : ε.

    Raises
    ------
    TypeError, ValueError
        `lr` and `eps` must be positive, `betas` two numbers in [0, 1).

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> update = hgp.bilevel.Adam(0.1)
    >>> lam, state = update.step(update.start(np.ones((1, 2))), np.ones((1, 2)), np.array([[3.0, -2e-3]]))
    >>> lam.round(4)
    array([[0.9, 1.1]])

    [1] D. P. Kingma, J. Ba. Adam: a method for stochastic optimization. ICLR 2015.
    """

    lr: float = 0.1
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", validation.positive("lr", self.lr))
        object.__setattr__(self, "eps", validation.positive("eps", self.eps))
        if not isinstance(self.betas, list | tuple) or len(self.betas) != 2:
            raise TypeError(f"betas={self.betas!r} given, needed two numbers in [0, 1)")
        betas = tuple(validation.between(f"betas[{k}]", beta, 0.0, 1.0) for k, beta in enumerate(self.betas))
        if max(betas) == 1:
            raise ValueError(f"betas={self.betas!r} given, needed two numbers in [0, 1)")
        object.__setattr__(self, "betas", betas)

    def start(self, lam: Array) -> State:
        zeros = array_namespace(lam).zeros_like(lam)
        return 0, zeros, zeros

    def step(self, state: State, lam: Array, v: Array) -> tuple[Array, State]:
        t, m, s = state
        (b1, b2), t, xp = self.betas, t + 1, array_namespace(lam)
        m = b1 * m + (1 - b1) * v
        s = b2 * s + (1 - b2) * v * v
        direction = (m / (1 - b1**t)) / (xp.sqrt(s / (1 - b2**t)) + self.eps)
        return lam - self.lr * direction, (t, m, s)


# ----------------------------------------------------------------------------------------------------
# Where λ may lie: projections onto convex sets, each client's row onto its own.
#
#     Π(λ) = argmin_{μ ∈ C} |μ − λ|
#
# A projection is a function λ → λ; these are three of them, any other function will do. The sets are convex, so that a
# point between two allowed ones is allowed, too: what `optimise` needs where it halves a step.


def _checked(lam: Array) -> None:
    validation.same_kind(lam=lam)
    if lam.ndim < 2 or lam.shape[-1] < 1:
        raise ValueError(f"lam: shape {tuple(lam.shape)} given, needed (..., n, d_lam)")


@dataclass(frozen=True)
class Box:
    """low ≤ λ_ij ≤ high.

    Parameters
    ----------
    low : smallest value of any λ.
    high : largest one.

    Raises
    ------
    TypeError, ValueError
        `low` and `high` must be numbers with low ≤ high.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> hgp.bilevel.Box(0.0, 1.0)(np.array([[-0.5, 0.5, 1.5]]))
    array([[0. , 0.5, 1. ]])
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, validation.number(name, getattr(self, name)))
        if self.low > self.high:
            raise ValueError(f"low={self.low:g}, high={self.high:g} given, needed low <= high")

    def __call__(self, lam: Array) -> Array:
        _checked(lam)
        xp = array_namespace(lam)
        lam = xp.where(lam < self.low, xp.full_like(lam, self.low), lam)
        return xp.where(lam > self.high, xp.full_like(lam, self.high), lam)


@dataclass(frozen=True)
class NonNegative:
    """λ_ij ≥ 0.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> hgp.bilevel.NonNegative()(np.array([[-0.5, 0.5]]))
    array([[0. , 0.5]])
    """

    def __call__(self, lam: Array) -> Array:
        _checked(lam)
        xp = array_namespace(lam)
        return xp.where(lam < 0, xp.zeros_like(lam), lam)


@dataclass(frozen=True)
class Simplex:
    """λ_ij ≥ 0, Σ_j λ_ij = total: Π(λ) = max(λ − τ_i, 0) with the τ_i that gives the sum.

    τ = (Σ_{j ∈ A} λ_j − total)/|A| over the entries A that stay positive; A starts as all of them and loses those that
    are not above τ, until it loses none (at most d_λ times) [1].

    Parameters
    ----------
    total : to which the entries of each λ_i sum.

    Raises
    ------
    TypeError, ValueError
        `total` must be positive, and within the range of λ's floating point.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> hgp.bilevel.Simplex()(np.array([[0.5, 0.9, -2.0]]))
    array([[0.3, 0.7, 0. ]])

    [1] C. Michelot. A finite algorithm for finding the projection of a point onto the canonical simplex of Rⁿ. 1986.
    """

    total: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", validation.positive("total", self.total))

    def __call__(self, lam: Array) -> Array:
        _checked(lam)
        if not all_finite(lam):
            raise ValueError("lam: holds NaN or infinite values, needed finite numbers")
        info = np.finfo(host_dtype(lam))
        if not lam.shape[-1] * float(info.tiny) <= self.total <= float(info.max):
            raise ValueError(f"total={self.total:g} given, which entries of lam ({info.dtype}) cannot sum to")
        xp = array_namespace(lam)
        half = lam / 2 - xp.max(lam, axis=-1, keepdims=True) / 2  # λ − max λ has the same projection; no overflow
        far = half <= -self.total / 2  # 0 in the projection, as −total is
        lam = xp.where(far, xp.full_like(lam, -self.total), 2 * xp.where(far, xp.zeros_like(lam), half))
        kept, zero = xp.ones_like(lam), xp.zeros_like(lam)
        while True:
            count = xp.sum(kept, axis=-1, keepdims=True)
            tau = (xp.sum(xp.where(kept > 0, lam, zero), axis=-1, keepdims=True) - self.total) / count
            above = xp.astype((lam > tau) & (kept > 0), lam.dtype)
            if bool(to_host(xp.all(above == kept))):
                return xp.where(lam > tau, lam - tau, zero)
            kept = above
