"""How clients train: gradient push over changing graphs, or rounds of local epochs and averages.

A recipe is called as `recipe(problem, net, lam, x0=, seed=, first_batch=, outer_step=, callback=)` and returns a `Fit`:
what `hgp_ref.bilevel.optimise` takes as its `train`. Which outer step it is makes no difference to it.

    Push      every step mixes: RandU, RandD (Nedić's form, as the paper trains there)
    Rounds    FC averages models by training size, FixU mixes them with its fixed weights
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, all_finite, array_namespace, device, from_host, to_host
from hgp_ref.data import Clients
from hgp_ref.errors import DivergenceError
from hgp_ref.mixing import Averaging, ExactAverage, Gossip, PushSum, Traffic
from hgp_ref.mixing.averaging import check_network
from hgp_ref.networks import FullyConnected, Network
from hgp_ref.networks.base import ShiftedNetwork
from hgp_ref.neural import Ensemble, Sequential
from hgp_ref.philox import check_seed
from hgp_ref.problems import MiniBatches, NeuralProblem
from hgp_ref.problems.neural import classes_of
from hgp_ref.problems.neural_costs import CrossEntropy
from hgp_ref.results import Result
from hgp_ref.training import SGP, Fit, LocalRounds, train
from hgp_ref.training.gradient_push import VARIANTS, Rates, check_momentum


def exact(net: Network, steps: int) -> ExactAverage:
    """The mean itself, for clients who all hear each other."""
    if not isinstance(net.net if isinstance(net, ShiftedNetwork) else net, FullyConnected):
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
    milestones : steps at which it falls; numbers, or fractions of them.
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
    milestones: tuple[float, ...] = (0.6, 0.8)
    decay: float = 0.1
    momentum: float = 0.0
    batch_size: int | None = 128
    variant: str = "nedic"

    def __post_init__(self) -> None:
        validation.integer("steps", self.steps, 1, validation.LONGEST)
        validation.choice("variant", self.variant, VARIANTS)
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
        return Rates(self.turns, self.lr, self.milestones, self.decay).until(self.turns)

    def __call__(self, problem: Any, net: Network, lam: Array, *, first_batch: int = 0, outer_step: int = 0,
                 **options: Any) -> Fit:  # fmt: skip
        seed = options.pop("seed", 0)
        batches = None if self.batch_size is None else MiniBatches(self.batch_size, seed, offset=first_batch)
        method = SGP(self.steps, self.lr, self.milestones, variant=self.variant, decay=self.decay,
                     momentum=self.momentum, batches=batches)  # fmt: skip
        return train(problem, lam, net, method, **options)


@dataclass(frozen=True)
class Rounds:
    """`rounds` rounds of `epochs` local epochs; averaging "exact", "gossip" or "push_sum" with `steps` graphs a round.

    Parameters
    ----------
    rounds : of local training and averaging.
    lr : the rate at the start.
    milestones : rounds at which it falls; numbers, or fractions of them.
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
    milestones: tuple[float, ...] = (0.6, 0.8)
    decay: float = 0.1
    momentum: float = 0.9
    batch_size: int | None = 128
    epochs: int = 1
    averaging: str = "exact"
    steps: int = 1
    by_size: bool = True

    def __post_init__(self) -> None:
        validation.choice("averaging", self.averaging, AVERAGINGS)
        for name in ("rounds", "epochs", "steps"):
            validation.integer(name, getattr(self, name), 1, validation.LONGEST)
        validation.boolean("by_size", self.by_size)
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
        return Rates(self.turns, self.lr, self.milestones, self.decay).until(self.turns)

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
        seed = options.pop("seed", 0)
        first = first_batch * self.epochs  # the outer loop counts rounds
        batches = None if self.batch_size is None else MiniBatches(self.batch_size, seed, offset=first)
        method = LocalRounds(self.rounds, self.lr, self.milestones, epochs=self.epochs, decay=self.decay,
                             momentum=self.momentum, prox=options.pop("prox", 0.0), weights=self.weights(problem),
                             batches=batches)  # fmt: skip
        return train(problem, lam, self.average(net), method, **options)


Recipe = Push | Rounds


def _check(recipe: Recipe) -> None:
    """What both kinds have."""
    recipe.rates()
    check_momentum(recipe.momentum)
    if recipe.batch_size is not None:
        validation.integer("batch_size", recipe.batch_size, 1, 2**31 - 1)


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


# ----------------------------------------------------------------------------------------------------
# What a personalization method returns.


PARTS = ("validation", "test")


def best_look(accuracy: np.ndarray, sizes: np.ndarray) -> int:
    """The look with the most right answers, of accuracies (K, n) on `sizes` (n,) instances; the first one of those.

    Right answers are whole numbers: accuracies weighed by sizes may differ by rounding where these are alike.
    """
    return int(np.argmax(np.rint(accuracy * sizes).sum(axis=1)))


@dataclass(frozen=True)
class Personalized(Result):
    """Each client's accuracy at every look, what was trained and what it cost.

    `best` is the look with the most right answers on validation data, the earlier one of two alike; test data have no
    part in that choice.

    Attributes
    ----------
    method : its name.
    turns : (K,) rounds, steps or outer steps at which it was looked at.
    validation : (K, n) accuracy of each client.
    test : (K, n), the same on test data.
    sizes : (n,) instances of each client in "validation" and "test".
    x : (n, d_x) at the end.
    lam : (n, d_λ) at the end, where the method has any.
    traffic : what clients sent.
    settings : what repeats it.
    notes : what went wrong or happened on the way.

    Examples
    --------
    >>> seen = np.array([[0.5, 0.7], [0.8, 0.6]])  # two looks, two clients
    >>> sizes = {"validation": np.array([10, 10]), "test": np.array([30, 10])}
    >>> result = hgp.personalization.Personalized(
    ...     "mine", np.array([1, 2]), seen, seen, sizes, np.zeros((2, 1)), None, hgp.Traffic())
    >>> result.best, round(result.accuracy(), 3), round(result.bottom(), 3)
    (1, 0.75, 0.62)
    """

    method: str
    turns: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    sizes: dict[str, np.ndarray]
    x: Array
    lam: Array | None
    traffic: Traffic
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def _summary(self) -> list[str]:
        best = self.best
        return validation.table(
            f"{self.method}: models of {self.validation.shape[1]} clients after {int(self.turns[-1])} turns",
            accuracy=f"test {self.accuracy():.3f}, validation {self.accuracy('validation'):.3f}, by turn "
            f"{int(self.turns[best])}, which validation data choose",
            bottom=f"test {self.bottom():.3f} at the client below which 10 % of the clients are",
            notes=f"{len(self.notes)}, the last one: {validation.cut(self.notes[-1])}" if self.notes else "",
            traffic=self.traffic.in_words(),
        )

    @property
    def best(self) -> int:
        """The look that validation data choose."""
        return best_look(self.validation, self.sizes["validation"])

    def curve(self, part: str = "test", *, weighted: bool = True) -> np.ndarray:
        """Mean accuracy over clients at each look, by their sizes or (weighted=False) not.  # (K,)

        Parameters
        ----------
        part : "validation" or "test".
        weighted : whether by sizes.

        Returns
        -------
        (K,).
        """
        accuracy = getattr(self, validation.choice("part", part, PARTS))
        weights = self.sizes[part] if validation.boolean("weighted", weighted) else np.ones(accuracy.shape[1])
        return np.asarray(accuracy @ (weights / weights.sum()))

    def accuracy(self, part: str = "test", *, weighted: bool = True) -> float:
        """Mean accuracy at the best look.

        Parameters
        ----------
        part : "validation" or "test".
        weighted : whether by sizes.

        Returns
        -------
        float in [0, 1].
        """
        return float(self.curve(part, weighted=weighted)[self.best])

    def bottom(self, share: float = 0.1, part: str = "test") -> float:
        """Accuracy at the best look of the client below which a share of the clients is (linear between two).

        Parameters
        ----------
        share : 0.1 for the bottom 10 %.
        part : "validation" or "test".

        Returns
        -------
        float in [0, 1].
        """
        accuracy = getattr(self, validation.choice("part", part, PARTS))
        return float(np.quantile(accuracy[self.best], validation.probability("share", share)))


# ----------------------------------------------------------------------------------------------------
# What every personalization method is given: a model, the clients' data, and how results are judged.
#
#     task = Task(model, data, l2=1e-3, seed=0)
#     result = fedavg(task, net, Rounds(rounds=100, lr=0.03, momentum=0.9, batch_size=128))
#
# g_i = mean cross-entropy of client i's training data + (l2/2)|x|². All methods start from the same x, drawn from
# `seed`.


@dataclass(frozen=True)
class Task:
    """Model, data with three parts, L2 rate, seed of initial parameters and of orders, and when to look.

    Parameters
    ----------
    model : the network that everybody trains.
    data : with validation and test parts.
    l2 : weight decay.
    seed : of initial parameters and batches.
    look : turns between two looks at accuracies; the last turn is always looked at.
    like : an array whose library, device and dtype are used; by default those of the data.

    Raises
    ------
    TypeError, ValueError
        `data` must be Clients with validation and test parts, `l2` ≥ 0.

    Examples
    --------
    >>> from hgp_ref.neural import Flatten, Linear, Sequential
    >>> data = hgp.data.digit_images().clients(4, seed=0)
    >>> task = hgp.personalization.Task(Sequential((1, 8, 8), Flatten(), Linear(64, 10)), data)
    >>> task.start().shape
    (4, 650)
    """

    model: Sequential
    data: Clients
    l2: float = 1e-3
    seed: int = 0
    look: int = 50
    like: Array | None = None

    def __post_init__(self) -> None:
        classes_of(self.model)
        validation.instance("data", self.data, Clients)
        for part in PARTS:
            self.data.part(part)
        validation.nonnegative("l2", self.l2)
        check_seed(self.seed)
        if self.like is not None:
            validation.same_kind(like=self.like)
        validation.integer("look", self.look)

    @property
    def n(self) -> int:
        """Clients."""
        return self.data.n_clients

    @property
    def classes(self) -> int:
        """C."""
        return classes_of(self.model)

    @cached_property
    def plain(self) -> NeuralProblem:
        """Cross-entropy of one model, in which λ (n, 1) has no part."""
        return self.moved(NeuralProblem(self.model, CrossEntropy(self.classes, 1), *self.data.train, l2=self.l2))

    def moved(self, problem: Any) -> Any:
        """A problem made of the data in the library of `like`."""
        return problem if self.like is None else problem.to(self.like, dtype=str(self.like.dtype).rsplit(".", 1)[-1])

    def there(self, host: np.ndarray) -> Array:
        """A host array in the library and dtype of the problems."""
        like = self.plain._like()
        return array_namespace(like).astype(from_host(np.ascontiguousarray(host), like=like), like.dtype)

    def zeros(self, width: int = 1) -> Array:
        """λ = 0.  # (n, width)"""
        like = self.plain._like()
        return array_namespace(like).zeros((self.n, width), dtype=like.dtype, device=device(like))

    def start(self, model: Sequential | Ensemble | None = None) -> Array:
        """Initial parameters, the same for all clients.  # (n, d)"""
        return (self.model if model is None else model).init(self.n, self.seed, like=self.plain._like())

    def over(self, net: Network) -> Network:
        """`net`, if it is one of as many clients."""
        if check_network(net).n != self.n:
            raise ValueError(f"net: {net!r} has {net.n} clients, but the data have {self.n}")
        return net

    def judge(self, problem: Any, turns: int) -> Judge:
        """Looks at a training of so many turns on `problem`."""
        return Judge(self, problem, turns)


def need_task(task: Task) -> Task:
    """TypeError unless it is one."""
    validation.instance("task", task, Task)
    return task


@dataclass
class Judge:
    """Accuracies of each client on validation and test data, look after look."""

    task: Task
    problem: Any
    turns: int
    seen: list[int] = field(default_factory=list)
    accuracy: dict[str, list[np.ndarray]] = field(default_factory=lambda: {part: [] for part in PARTS})

    def __post_init__(self) -> None:
        inputs = {part: self.task.data.part(part) for part in PARTS}
        self._data = {
            part: ([self.task.there(a) for a in X], [np.asarray(b) for b in y]) for part, (X, y) in inputs.items()
        }

    def due(self, turn: int) -> bool:
        """Whether turn (from 1) is one of those at which accuracies are wanted."""
        return turn == self.turns or turn % self.task.look == 0

    def look(self, turn: int, x: Array, lam: Array) -> None:
        """Note accuracies of x_i and λ_i; DivergenceError where they are not finite."""
        if not all_finite(x):
            raise DivergenceError(
                f"training diverged: parameters are not finite after {turn} turns: take a smaller lr in the recipe"
            )
        self.seen.append(turn)
        for part, (X, y) in self._data.items():
            labels = y if self.task.like is None else [from_host(b, like=X[0]) for b in y]
            self.accuracy[part].append(to_host(self.problem.accuracy(x, lam, X, labels)).astype(np.float64))

    def watching(
        self, lam: Array, seen_as: Callable[[int, Array], Array] | None = None
    ) -> Callable[[int, Array], None]:
        """A callback of a training: looks at x where a look is due, or at what `seen_as` makes of it."""

        def callback(turn: int, x: Array) -> None:
            if self.due(turn):
                self.look(turn, x if seen_as is None else seen_as(turn, x), lam)

        return callback

    def result(self, method: str, x: Array, lam: Array | None, traffic: Traffic, settings: dict[str, Any],
               notes: tuple[str, ...] = ()) -> Personalized:  # fmt: skip
        """All looks together."""
        given = {"l2": self.task.l2, "seed": self.task.seed, "model": repr(self.task.model), **settings}
        return Personalized(
            method=method,
            turns=np.array(self.seen),
            validation=np.stack(self.accuracy["validation"]),
            test=np.stack(self.accuracy["test"]),
            sizes={part: self.task.data.counts_of(part) for part in PARTS},
            x=x,
            lam=lam,
            traffic=traffic,
            settings=given,
            notes=notes,
        )
