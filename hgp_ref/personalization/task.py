"""What every personalization method is given: a model, the clients' data, and how results are judged.

    task = Task(model, data, l2=1e-3, seed=0)
    result = fedavg(task, net, Rounds(rounds=100, lr=0.03, momentum=0.9, batch_size=128))

g_i = mean cross-entropy of client i's training data + (l2/2)|x|². All methods start from the same x, drawn from `seed`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.averaging.base import check_network
from hgp_ref.backend import Array, all_finite, array_namespace, device, from_host, to_host
from hgp_ref.channels import Traffic
from hgp_ref.data import Clients
from hgp_ref.errors import DivergenceError
from hgp_ref.networks import Network
from hgp_ref.neural import Ensemble, Sequential
from hgp_ref.personalization.result import PARTS, Personalized
from hgp_ref.philox import check_seed
from hgp_ref.problems import NeuralProblem
from hgp_ref.problems.neural_cost import CrossEntropy
from hgp_ref.problems.neural_data import classes_of


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
        arguments.kind("data", self.data, Clients)
        for part in PARTS:
            self.data.part(part)
        arguments.nonnegative("l2", self.l2)
        check_seed(self.seed)
        if self.like is not None:
            arguments.same_kind(like=self.like)
        arguments.integer("look", self.look)

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
    arguments.kind("task", task, Task)
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
