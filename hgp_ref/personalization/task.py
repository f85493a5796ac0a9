"""The task that personalization methods solve, and how their models are evaluated.

    g_i(x) = mean cross-entropy on client i's training data + (l2/2) ‖x‖²

All methods start from the same x, drawn from the task's seed. Every client's model is evaluated on its validation and
test data. Validation accuracy chooses the model that is reported; test data have no part in that choice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hgp_ref.backend import Array, all_finite, array_namespace, device, from_host, to_host
from hgp_ref.data import Clients
from hgp_ref.errors import DivergenceError
from hgp_ref.mixing import Traffic
from hgp_ref.mixing.averaging import check_network
from hgp_ref.networks import Network
from hgp_ref.neural import Ensemble, Sequential
from hgp_ref.problems import NeuralProblem
from hgp_ref.problems.neural import classes_of
from hgp_ref.problems.neural_costs import CrossEntropy
from hgp_ref.results import Result
from hgp_ref.validation import (
    Instance,
    Integer,
    Nonnegative,
    Seed,
    boolean,
    checked,
    choice,
    cut,
    probability,
    same_kind,
    table,
)

PARTS = ("validation", "test")


@checked(data=Instance(Clients), l2=Nonnegative(), seed=Seed(), eval_every=Integer(1))
@dataclass(frozen=True)
class Task:
    """A model, the clients' data, and how often accuracies are evaluated.

    Parameters
    ----------
    data : with validation and test parts.
    seed : of the initial parameters and of mini-batches.
    eval_every : rounds (steps of gradient push) between two evaluations. The last round is always evaluated.
    like : an array whose library, device and dtype are used; by default those of the data.

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
    eval_every: int = 50
    like: Array | None = None

    def __post_init__(self) -> None:
        classes_of(self.model)
        for part in PARTS:
            self.data.part(part)
        if self.like is not None:
            same_kind(like=self.like)

    @property
    def n(self) -> int:
        """Number of clients."""
        return self.data.n_clients

    @property
    def classes(self) -> int:
        """Number of classes, C."""
        return classes_of(self.model)

    @cached_property
    def problem(self) -> NeuralProblem:
        """Cross-entropy of one model. λ, of shape (n, 1), does not enter it."""
        return self.to_backend(NeuralProblem(self.model, CrossEntropy(self.classes, 1), *self.data.train, l2=self.l2))

    def to_backend(self, problem: Any) -> Any:
        """`problem` with its arrays in the library and dtype of `like`."""
        return problem if self.like is None else problem.to(self.like, dtype=str(self.like.dtype).rsplit(".", 1)[-1])

    def as_array(self, host: np.ndarray) -> Array:
        """A host array in the library and dtype of the problem."""
        like = self.problem._like()
        return array_namespace(like).astype(from_host(np.ascontiguousarray(host), like=like), like.dtype)

    def zeros(self, width: int = 1) -> Array:
        """λ = 0, of shape (n, width)."""
        like = self.problem._like()
        return array_namespace(like).zeros((self.n, width), dtype=like.dtype, device=device(like))

    def start(self, model: Sequential | Ensemble | None = None) -> Array:
        """Initial parameters of `model`, the same for all clients, (n, d)."""
        return (self.model if model is None else model).init(self.n, self.seed, like=self.problem._like())

    def check_network(self, net: Network) -> None:
        """Raise unless `net` is a network of as many clients as the data have."""
        if check_network(net).n != self.n:
            raise ValueError(f"net must have {self.n} clients like the data, got {net!r} with {net.n}")


@dataclass(frozen=True)
class Personalized(Result):
    """Each client's accuracy at every evaluation, the trained parameters and the traffic.

    Attributes
    ----------
    method : its name.
    evaluated_at : (K,) rounds, steps or outer steps of the evaluations.
    validation, test : (K, n) accuracy of each client.
    sizes : (n,) numbers of instances, for "validation" and for "test".
    x : (n, d_x), at the end.
    lam : (n, d_λ), at the end; None if the method has no personal parameters λ.
    settings : net, trainer and settings of the method.
    notes : events of the run, such as refused hyper-gradients and splits of clusters.

    Examples
    --------
    >>> accuracy = np.array([[0.5, 0.7], [0.8, 0.6]])  # two evaluations, two clients
    >>> sizes = {"validation": np.array([10, 10]), "test": np.array([30, 10])}
    >>> result = hgp.personalization.Personalized(
    ...     "mine", np.array([1, 2]), accuracy, accuracy, sizes, np.zeros((2, 1)), None, hgp.Traffic())
    >>> result.best, round(result.accuracy(), 3), round(result.bottom(), 3)
    (1, 0.75, 0.62)
    """

    method: str
    evaluated_at: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    sizes: dict[str, np.ndarray]
    x: Array
    lam: Array | None
    traffic: Traffic
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def _summary(self) -> list[str]:
        rounds = self.evaluated_at
        return table(
            f"{self.method}: models of {self.validation.shape[1]} clients after {int(rounds[-1])} rounds",
            accuracy=f"test {self.accuracy():.3f}, validation {self.accuracy('validation'):.3f}, "
            f"at round {int(rounds[self.best])}, which has the best validation accuracy",
            bottom=f"test {self.bottom():.3f}, the 10 % quantile over clients",
            notes=f"{len(self.notes)}, the last one: {cut(self.notes[-1])}" if self.notes else "",
            traffic=self.traffic.one_line(),
        )

    @property
    def best(self) -> int:
        """Index of the evaluation with the best validation accuracy, the first one of equals."""
        return best_evaluation(self.validation, self.sizes["validation"])

    def curve(self, part: str = "test", *, weighted: bool = True) -> np.ndarray:
        """Mean accuracy over clients at each evaluation, (K,), weighted by their numbers of instances or not.

        `part` is "validation" or "test".
        """
        accuracy = self._accuracy(part)
        weights = self.sizes[part] if boolean("weighted", weighted) else np.ones(accuracy.shape[1])
        return np.asarray(accuracy @ (weights / weights.sum()))

    def accuracy(self, part: str = "test", *, weighted: bool = True) -> float:
        """Mean accuracy over clients at the best evaluation."""
        return float(self.curve(part, weighted=weighted)[self.best])

    def bottom(self, share: float = 0.1, part: str = "test") -> float:
        """The quantile `share` over clients of the accuracy at the best evaluation."""
        return float(np.quantile(self._accuracy(part)[self.best], probability("share", share)))

    def _accuracy(self, part: str) -> np.ndarray:
        return np.asarray(getattr(self, choice("part", part, PARTS)))


def best_evaluation(accuracy: np.ndarray, sizes: np.ndarray) -> int:
    """Index of the first evaluation with the most correct predictions; accuracies (K, n) on sizes (n,) instances.

    Correct predictions are counted as integers, because weighted means of accuracies differ by rounding.
    """
    return int(np.argmax(np.rint(accuracy * sizes).sum(axis=1)))


class Evaluator:
    """Records each client's accuracy on validation and test data during a run of `n_rounds` rounds."""

    def __init__(self, task: Task, problem: Any, n_rounds: int) -> None:
        self.task, self.problem, self.n_rounds = task, problem, n_rounds
        self.rounds: list[int] = []
        self.accuracy: dict[str, list[np.ndarray]] = {part: [] for part in PARTS}
        self._data = {}
        for part in PARTS:
            X, y = task.data.part(part)
            inputs = [task.as_array(a) for a in X]
            self._data[part] = inputs, [b if task.like is None else from_host(b, like=inputs[0]) for b in y]

    def scheduled(self, k: int) -> bool:
        """Whether round k, from 1, is evaluated."""
        return k == self.n_rounds or k % self.task.eval_every == 0

    def evaluate(self, k: int, x: Array, lam: Array) -> None:
        """Record the accuracies after round k; DivergenceError if x is not finite."""
        if not all_finite(x):
            raise DivergenceError(
                f"training diverged: parameters are not finite after {k} rounds; use a smaller lr in the trainer"
            )
        self.rounds.append(k)
        for part, (X, labels) in self._data.items():
            self.accuracy[part].append(to_host(self.problem.accuracy(x, lam, X, labels)).astype(np.float64))

    def callback(self, lam: Array, tune: Callable[[int, Array], Array] | None = None) -> Callable[[int, Array], None]:
        """A callback for training that evaluates x, or tune(k, x), in the scheduled rounds k."""

        def evaluate(k: int, x: Array) -> None:
            if self.scheduled(k):
                self.evaluate(k, x if tune is None else tune(k, x), lam)

        return evaluate

    def result(self, method: str, x: Array, lam: Array | None, traffic: Traffic, settings: dict[str, Any],
               notes: tuple[str, ...] = ()) -> Personalized:  # fmt: skip
        """The result with all evaluations so far."""
        task = self.task
        return Personalized(
            method=method,
            evaluated_at=np.array(self.rounds),
            validation=np.stack(self.accuracy["validation"]),
            test=np.stack(self.accuracy["test"]),
            sizes={part: task.data.counts_of(part) for part in PARTS},
            x=x,
            lam=lam,
            traffic=traffic,
            settings={"l2": task.l2, "seed": task.seed, "model": repr(task.model), **settings},
            notes=notes,
        )
