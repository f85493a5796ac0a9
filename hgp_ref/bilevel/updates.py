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

from hgp_ref import arguments
from hgp_ref.backend import Array, array_namespace

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
        object.__setattr__(self, "lr", arguments.positive("lr", self.lr))

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
        object.__setattr__(self, "lr", arguments.positive("lr", self.lr))
        object.__setattr__(self, "eps", arguments.positive("eps", self.eps))
        if not isinstance(self.betas, list | tuple) or len(self.betas) != 2:
            raise TypeError(f"betas={self.betas!r} given, needed two numbers in [0, 1)")
        betas = tuple(arguments.between(f"betas[{k}]", beta, 0.0, 1.0) for k, beta in enumerate(self.betas))
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
