"""How clients train: gradient push over changing graphs, or rounds of local epochs and averages.

A recipe is called as `recipe(problem, net, lam, x0=, seed=, first_batch=, outer_step=, callback=)` and returns a `Fit`:
what `hgp_ref.bilevel.optimise` takes as its `train`. Which outer step it is makes no difference to it.

    Push      every step mixes: RandU, RandD (Nedić's form, as the paper trains there)
    Rounds    FC averages models by training size, FixU mixes them with its fixed weights
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.averaging import Averaging, ExactAverage, Gossip, PushSum
from hgp_ref.backend import Array
from hgp_ref.networks import FullyConnected, Network
from hgp_ref.networks.after import After
from hgp_ref.training import Fit, local_rounds, sgp
from hgp_ref.training.descent import check_momentum, read_rates
from hgp_ref.training.gradient_push import VARIANTS


def exact(net: Network, steps: int) -> ExactAverage:
    """The mean itself, for clients who all hear each other."""
    if not isinstance(net.net if isinstance(net, After) else net, FullyConnected):
        raise ValueError(
            f"net: {net!r} given, over which not everybody hears everybody, with averaging='exact'; needed "
            "FullyConnected, or averaging='gossip' or 'push_sum'"
        )
    return ExactAverage(net.n)


AVERAGINGS: dict[str, Callable[[Network, int], Averaging]] = {
    "exact": exact,
    "gossip": Gossip,
    "push_sum": PushSum,
}


@dataclass(frozen=True)
class Push:
    """`steps` steps of stochastic gradient push.

    Parameters
    ----------
    steps : of gradient push.
    lr : the rate at the start.
    milestones : steps at which it falls; by default after 3/5 and 4/5 of them.
    decay : by which factor.
    momentum : of the steps.
    batch_size : None for full batches.
    variant : "nedic" or "assran": see `hgp.sgp`.

    Raises
    ------
    TypeError, ValueError
        `steps` must be an integer ≥ 1, rates positive, `variant` one of the two.

    Examples
    --------
    >>> hgp.personalization.Push(steps=4, lr=1.0, milestones=(2,)).rates()
    array([1. , 1. , 0.1, 0.1])
    """

    steps: int = 600
    lr: float = 0.1
    milestones: tuple[int, ...] | None = None
    decay: float = 0.1
    momentum: float = 0.0
    batch_size: int | None = 128
    variant: str = "nedic"

    def __post_init__(self) -> None:
        arguments.integer("steps", self.steps, 1, arguments.LONGEST)
        arguments.choice("variant", self.variant, VARIANTS)
        _check(self)

    @property
    def turns(self) -> int:
        """How often clients average."""
        return self.steps

    def rates(self) -> np.ndarray:
        """The rate of each turn, (turns,).

        Returns
        -------
        (turns,).
        """
        return read_rates(self.turns, self.lr, self.milestones, self.decay)[1]

    def __call__(self, problem: Any, net: Network, lam: Array, *, first_batch: int = 0, outer_step: int = 0,
                 **options: Any) -> Fit:  # fmt: skip
        return sgp(problem, net, lam, first_batch=first_batch, **asdict(self), **options)


@dataclass(frozen=True)
class Rounds:
    """`rounds` rounds of `epochs` local epochs; averaging "exact", "gossip" or "push_sum" with `steps` graphs a round.

    Parameters
    ----------
    rounds : of local training and averaging.
    lr : the rate at the start.
    milestones : rounds at which it falls; by default after 3/5 and 4/5 of them.
    decay : by which factor.
    momentum : of local steps.
    batch_size : None for full batches.
    epochs : local epochs of a round.
    averaging : "exact" (over `FullyConnected` only), "gossip" or "push_sum".
    steps : S of the averaging.
    by_size : whether models are weighed by training sizes N_i. Over "exact" Σ_i N_i g_i is minimised then; over
        "gossip" and "push_sum" Σ_i π_i g_i with weights π that are N only as `steps` grows (over gossip with fixed
        symmetric weights W^S π_i ∝ N_i [W^S N]_i): see `hgp_ref.training.rounds`. What gives Σ_i N_i g_i there is
        `local_rounds(..., PushSum(net, S, debias="conserve"), weights=N)`.

    Raises
    ------
    TypeError, ValueError
        Numbers of rounds, epochs and steps must be integers ≥ 1, rates positive, `averaging` one of its values.

    Examples
    --------
    >>> hgp.personalization.Rounds(rounds=10).average(hgp.networks.FullyConnected(3))
    ExactAverage(3)
    """

    rounds: int = 200
    lr: float = 0.03
    milestones: tuple[int, ...] | None = None
    decay: float = 0.1
    momentum: float = 0.9
    batch_size: int | None = 128
    epochs: int = 1
    averaging: str = "exact"
    steps: int = 1
    by_size: bool = True

    def __post_init__(self) -> None:
        arguments.choice("averaging", self.averaging, AVERAGINGS)
        for name in ("rounds", "epochs", "steps"):
            arguments.integer(name, getattr(self, name), 1, arguments.LONGEST)
        arguments.boolean("by_size", self.by_size)
        _check(self)

    @property
    def turns(self) -> int:
        """How often clients average."""
        return self.rounds

    def rates(self) -> np.ndarray:
        """The rate of each turn, (turns,).

        Returns
        -------
        (turns,).
        """
        return read_rates(self.turns, self.lr, self.milestones, self.decay)[1]

    def average(self, net: Network) -> Averaging:
        """The averaging of every round over `net`.

        Parameters
        ----------
        net : the network.

        Returns
        -------
        Averaging.
        """
        return AVERAGINGS[self.averaging](net, self.steps)

    def weights(self, problem: Any) -> np.ndarray | None:
        """Training sizes, where models are weighed by them.

        Parameters
        ----------
        problem : whose counts are the sizes.

        Returns
        -------
        (n,) or None.
        """
        return problem.counts if self.by_size else None

    def __call__(self, problem: Any, net: Network, lam: Array, *, first_batch: int = 0, outer_step: int = 0,
                 **options: Any) -> Fit:  # fmt: skip
        given = {name: value for name, value in asdict(self).items() if name not in ("averaging", "steps", "by_size")}
        weights = self.weights(problem)
        first = first_batch * self.epochs  # what the loop counts are rounds
        return local_rounds(problem, self.average(net), lam, first_epoch=first, weights=weights, **given, **options)


Recipe = Push | Rounds


def _check(recipe: Recipe) -> None:
    """What both kinds have."""
    recipe.rates()
    check_momentum(recipe.momentum)
    if recipe.batch_size is not None:
        arguments.integer("batch_size", recipe.batch_size, 1, 2**31 - 1)


def need_recipe(recipe: Recipe) -> Recipe:
    """TypeError unless it is one."""
    if not isinstance(recipe, Push | Rounds):
        raise TypeError(f"recipe={recipe!r} given ({type(recipe).__name__}), needed Push(...) or Rounds(...)")
    return recipe


def need_rounds(recipe: Recipe, method: str) -> Rounds:
    """The recipe of a method that is made of rounds."""
    if not isinstance(recipe, Rounds):
        raise TypeError(f"recipe={recipe!r} given, needed Rounds(...): {method} goes by rounds")
    return recipe
