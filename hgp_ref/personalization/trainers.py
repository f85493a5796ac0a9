"""How clients train a common model: gradient push, or rounds of local SGD.

    GradientPush   every step mixes the models over the next graph: for time-varying networks
    LocalSGD       epochs on each client's data, then one averaging: FedAvg and its decentralized forms

Both are settings. `fit(problem, lam, net, ...)` trains on any problem and returns a `hgp_ref.training.Fit`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref.backend import Array
from hgp_ref.mixing import Averaging, ExactAverage, Gossip, PushSum
from hgp_ref.networks import FullyConnected, Network
from hgp_ref.networks.base import ShiftedNetwork
from hgp_ref.problems import MiniBatches
from hgp_ref.training import SGP, Fit, LocalRounds, train
from hgp_ref.training.gradient_push import Rates, TrainingMethod
from hgp_ref.validation import Boolean, Choice, Count, Integer, Optional, checked

Callback = Callable[[int, Array], object]


def exact_average(net: Network, steps: int) -> ExactAverage:
    """The mean itself, if every client receives from all others."""
    if not isinstance(net.net if isinstance(net, ShiftedNetwork) else net, FullyConnected):
        raise ValueError(
            f"net must be FullyConnected with averaging='exact', got {net!r}; use averaging='gossip' or 'push_sum'"
        )
    return ExactAverage(net.n)


AVERAGINGS: dict[str, Callable[[Network, int], Averaging]] = {
    "exact": exact_average,
    "gossip": Gossip,
    "push_sum": PushSum,
}

BATCH_SIZE = Optional(Integer(1, 2**31 - 1))


class _Trainer:
    """What both trainers share: the schedule of learning rates, and the checks of settings."""

    lr: float
    milestones: tuple[float, ...]
    decay: float
    momentum: float
    batch_size: int | None
    epochs: int
    averaging: str

    def __post_init__(self) -> None:
        self.method()
        self._schedule()

    def fit(self, problem: Any, lam: Array, net: Network, *, x0: Array | None = None, seed: int = 0,
            first_batch: int = 0, callback: Callback | None = None) -> Fit:  # fmt: skip
        """Train on `problem` at `lam`.

        Mini-batches are those of the sequence `seed`, from number `first_batch` on. LocalSGD counts rounds instead.
        """
        offset = first_batch * self.epochs
        batches = None if self.batch_size is None else MiniBatches(self.batch_size, seed, offset=offset)
        method = self.method(batches, self.weights(problem))
        return train(problem, lam, self.average(net), method, x0=x0, callback=callback)

    @property
    def n_rounds(self) -> int:
        """How often clients mix their models."""
        raise NotImplementedError

    def method(self, batches: MiniBatches | None = None, weights: np.ndarray | None = None) -> TrainingMethod:
        """The method with these settings that `hgp.train` runs."""
        raise NotImplementedError

    def average(self, net: Network) -> Any:
        """What `hgp.train` mixes with: the network, or an averaging over it."""
        return net

    def weights(self, problem: Any) -> np.ndarray | None:
        """Weights of clients in averages, (n,); None for equal ones."""
        return None

    def rates(self) -> np.ndarray:
        """The learning rate of each step or round, (n_rounds,)."""
        return self._schedule().until(self.n_rounds)

    def _schedule(self) -> Rates:
        return Rates(self.n_rounds, self.lr, self.milestones, self.decay)


@checked(batch_size=BATCH_SIZE)
@dataclass(frozen=True)
class GradientPush(_Trainer):
    """Stochastic gradient push, `hgp.training.SGP`.

    Parameters
    ----------
    milestones : steps at which the learning rate is multiplied by `decay`: step numbers, or fractions of the steps.
    batch_size : None for full batches.

    Examples
    --------
    >>> hgp.personalization.GradientPush(steps=4, lr=1.0, milestones=(2,)).rates()
    array([1. , 1. , 0.1, 0.1])
    """

    steps: int = 600
    lr: float = 0.1
    milestones: tuple[float, ...] = (0.6, 0.8)
    decay: float = 0.1
    momentum: float = 0.0
    batch_size: int | None = 128
    variant: str = "nedic"
    averaging = "push_sum"
    epochs = 1

    @property
    def n_rounds(self) -> int:
        return self.steps

    def method(self, batches: MiniBatches | None = None, weights: np.ndarray | None = None) -> SGP:
        return SGP(self.steps, self.lr, self.milestones, variant=self.variant, decay=self.decay,
                   momentum=self.momentum, batches=batches)  # fmt: skip


@checked(batch_size=BATCH_SIZE, averaging=Choice(*AVERAGINGS), averaging_steps=Count(1), by_size=Boolean())
@dataclass(frozen=True)
class LocalSGD(_Trainer):
    """Rounds of local epochs followed by an averaging, `hgp.training.LocalRounds`.

    Parameters
    ----------
    milestones : rounds at which the learning rate is multiplied by `decay`: numbers, or fractions of the rounds.
    batch_size : None for full batches.
    epochs : local epochs per round.
    averaging : "exact" (over `FullyConnected` only), "gossip" or "push_sum".
    averaging_steps : graphs per averaging, S.
    by_size : weight models by training sizes N_i. With averaging="exact" this minimises Σ_i N_i g_i. With "gossip" and
        "push_sum" it minimises Σ_i π_i g_i, where the weights π tend to N as S grows; `hgp_ref.training.rounds` has
        the details, and a form that minimises Σ_i N_i g_i for every S.
    prox : weight μ of the proximal term (μ/2) ‖w − z‖², which keeps local epochs near the round's common model z.

    Examples
    --------
    >>> hgp.personalization.LocalSGD(rounds=10).average(hgp.networks.FullyConnected(3))
    ExactAverage(3)
    """

    rounds: int = 200
    lr: float = 0.03
    milestones: tuple[float, ...] = (0.6, 0.8)
    decay: float = 0.1
    momentum: float = 0.9
    batch_size: int | None = 128
    epochs: int = 1
    averaging: str = "exact"
    averaging_steps: int = 1
    by_size: bool = True
    prox: float = 0.0

    @property
    def n_rounds(self) -> int:
        return self.rounds

    def weights(self, problem: Any) -> np.ndarray | None:
        return problem.counts if self.by_size else None

    def average(self, net: Network) -> Averaging:
        """The averaging at the end of a round."""
        return AVERAGINGS[self.averaging](net, self.averaging_steps)

    def method(self, batches: MiniBatches | None = None, weights: np.ndarray | None = None) -> LocalRounds:
        return LocalRounds(self.rounds, self.lr, self.milestones, epochs=self.epochs, decay=self.decay,
                           momentum=self.momentum, prox=self.prox, weights=weights, batches=batches)  # fmt: skip


Trainer = GradientPush | LocalSGD
