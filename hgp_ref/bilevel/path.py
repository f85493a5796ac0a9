"""What a bilevel method returns: the path of λ, what it cost, and what it gained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hgp_ref.backend import Array
from hgp_ref.channels import Traffic
from hgp_ref.results import Result


@dataclass(frozen=True)
class OuterStep(Result):
    """What was done between λ_k and λ_{k+1}.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> path = hgp.bilevel.optimise(problem, hgp.networks.FullyConnected(3), lam, outer_steps=1,
    ...     train={"steps": 100, "lr": 0.5}, estimate={"steps": 1, "iterations": 50})
    >>> path.steps[0].iterations
    50
    """

    train: Traffic  # of training at λ_k
    estimate: Traffic  # of the hyper-gradient at λ_k, refused ones included
    gradient_norm: float | None  # ‖v‖ over all clients; None where there is none
    iterations: int  # of the estimate
    scale: float = 1.0  # share of the update's step that was taken; 0 where it was refused
    note: str = ""  # what went wrong, if anything
    bound: float | None = None  # on ‖v − ∇F(λ_k)‖, where steps are certified
    averaging_steps: int | None = None  # S, where it may change
    interval: tuple[float, float] | None = None  # in which F(λ_{k+1}) lies, where steps are certified


@dataclass(frozen=True)
class Path(Result):
    """λ_0, ..., λ_K with Σ_k f_k(x_k(λ), λ_k) at each of them, and what was sent until it was known.

    `floats` and `rounds` are cumulative: entry k is what it took until `outer_cost[k]` was known, the last one is the
    total. They are what outer costs of different methods are drawn over.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> path = hgp.bilevel.optimise(problem, hgp.networks.FullyConnected(3), lam, outer_steps=2,
    ...     train={"steps": 100, "lr": 0.5}, estimate={"steps": 1, "iterations": 50})
    >>> path.lam.shape, path.outer_cost.shape, len(path.steps)
    ((3, 3, 2), (3,), 2)
    """

    lam: Array  # (K+1, n, d_λ)
    x: Array  # (n, d_x), trained at the last λ
    outer_cost: np.ndarray  # (K+1,), Σ_k f_k
    traffic: Traffic  # in all
    floats: np.ndarray  # (K+1,)
    rounds: np.ndarray  # (K+1,)
    stopped: str  # "steps", "callback", "patience" or "divergence", and what a method has besides
    method: str  # which bilevel method
    settings: dict[str, Any] = field(default_factory=dict)  # what repeats it
    steps: tuple[OuterStep, ...] = ()  # what each of the K steps took, where the method tells
    measure: np.ndarray | None = None  # (K+1,), what the caller's measure said, the smaller the better
    best: int | None = None  # where it was smallest
    best_x: Array | None = None  # (n, d_x), trained at that λ
    note: str = ""  # what ended it, in words, where a certificate did

    def plot(self, over: str = "step") -> Any:
        """A matplotlib figure of the outer cost and of λ over steps, "floats" or "rounds".

        Needs `pip install 'hgp_ref[figures]'`.
        """
        from hgp_ref.bilevel.plot import plot_path

        return plot_path(self, over)
