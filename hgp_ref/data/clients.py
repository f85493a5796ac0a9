"""Labelled data of n clients in up to three parts: training, validation and test, one list entry for each client.

    (X_i, y_i),  (X_val_i, y_val_i),  (X_test_i, y_test_i),    i = 0 .. n-1

Every data set of this package comes in this form (the synthetic mixture by its method `clients`). Problems take
arrays, so a part is handed to one as it is:

    problem = hgp.problems.PersonalMask(model, *data.train)
    problem = hgp.problems.NeuralInstanceWeights(model, *data.train, *data.validation)
    accuracy = problem.accuracy(x, lam, *data.test)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref import validation as arguments
from hgp_ref.problems.base import client_indices
from hgp_ref.results import Result
from hgp_ref.validation import LONGEST, Choice, Integer, Positive, check_memory, checked

Part = tuple[list[np.ndarray], list[np.ndarray]]
PARTS = {"train": ("X", "y"), "validation": ("X_val", "y_val"), "test": ("X_test", "y_test")}


@dataclass(frozen=True)
class Clients(Result):
    """Data of n clients, a list entry each; numbers of instances differ between clients.

    A part that a data set does not have is an empty list. Clients in clusters see their inputs as
    (X - means[c]) / stds[c], c = clusters[i]; `clustered` makes them so.

    Parameters
    ----------
    X : n arrays (N_i, ...).
    y : n arrays (N_i,) of labels 0 … n_classes − 1.
    X_val : the same for validation.
    y_val : their labels.
    n_classes : number of classes.
    name : of the data.
    X_test : the same for tests; empty where there are none.
    y_test : their labels.
    clusters : (n,) the cluster of each client.
    means : (number of clusters,).
    stds : (number of clusters,).

    Raises
    ------
    TypeError, ValueError
        Every part needs as many clients as X, every client as many labels as inputs, labels 0 … n_classes − 1.

    Examples
    --------
    >>> clients = hgp.data.synthetic_mixture(n_clients=2, n_train=10, n_val=5, n_test=5).clients()
    >>> clients.n_clients, clients.counts.tolist()
    (2, [10, 10])
    """

    X: list[np.ndarray]
    y: list[np.ndarray]
    X_val: list[np.ndarray]
    y_val: list[np.ndarray]
    n_classes: int
    name: str
    X_test: list[np.ndarray] = field(default_factory=list)
    y_test: list[np.ndarray] = field(default_factory=list)
    clusters: np.ndarray | None = None
    means: np.ndarray | None = None
    stds: np.ndarray | None = None

    def __post_init__(self) -> None:
        arguments.integer("n_classes", self.n_classes)
        arguments.instance("name", self.name, str)
        for names in PARTS.values():
            inputs, labels = (self._arrays(name) for name in names)
            for name, part in zip(names, (inputs, labels), strict=True):
                if len(part) != len(self.X) and not (len(inputs) == len(labels) == 0):
                    raise ValueError(f"{name}: {len(part)} clients given, needed {len(self.X)} as in X")
            for i, (a, b) in enumerate(zip(inputs, labels, strict=True)):
                self._check_inputs(f"{names[0]}[{i}]", a)
                if len(a) != len(b):
                    raise ValueError(f"{names[1]}[{i}]: {len(b)} labels given, needed {len(a)} as in {names[0]}[{i}]")
                self._check_labels(f"{names[1]}[{i}]", b)
        self._check_clusters()

    def _arrays(self, name: str) -> list[np.ndarray]:
        """The list called `name`, after a look at its entries."""
        part = getattr(self, name)
        if not isinstance(part, list | tuple):
            raise TypeError(f"{name}: {type(part).__name__} given, needed a list with an array for each client")
        if name in PARTS["train"] and not part:
            raise ValueError(f"{name}: no clients given, needed at least one")
        for i, entry in enumerate(part):
            arguments.plain_numbers(f"{name}[{i}]", entry)
        return list(part)

    def _check_inputs(self, name: str, inputs: np.ndarray) -> None:
        needed = self.X[0].shape[1:]
        if inputs.shape[1:] != needed:
            letters = ", ".join(map(str, ("N_i", *needed)))
            raise ValueError(f"{name}: shape {inputs.shape} given, needed ({letters}) as in X[0]")
        if inputs.dtype.kind == "f":
            arguments.finite(name, inputs)

    def _check_labels(self, name: str, labels: np.ndarray) -> None:
        good = (labels >= 0) & (labels < self.n_classes) & (labels == np.floor(labels))
        if labels.ndim != 1:
            raise ValueError(f"{name}: shape {labels.shape} given, needed (N_i,)")
        if not good.all():
            raise ValueError(
                f"{name}: label {labels[~good][0]} given, needed whole numbers from 0 to {self.n_classes - 1}"
            )

    def _check_clusters(self) -> None:
        for name, low in (("means", None), ("stds", 0.0)):
            if getattr(self, name) is not None:
                arguments.real_array(name, getattr(self, name), (None,), "(number of clusters,)", low)
        if self.clusters is not None:
            arguments.plain_numbers("clusters", self.clusters, "iu")
            arguments.shape("clusters", self.clusters, (len(self.X),), "(n,)", run_axes=False)
            most = self.clusters.max() if self.means is None else len(self.means) - 1
            if not 0 <= self.clusters.min() <= self.clusters.max() <= most:
                raise ValueError(f"clusters={self.clusters} given, needed numbers from 0 to {most}")

    @property
    def n_clients(self) -> int:
        """n."""
        return len(self.X)

    @property
    def counts(self) -> np.ndarray:
        """Training instances of each client, (n,)."""
        return self.counts_of("train")

    def counts_of(self, part: str) -> np.ndarray:
        """Instances of each client in "train", "validation" or "test", (n,).

        Parameters
        ----------
        part : its name.

        Returns
        -------
        (n,) integers.
        """
        return np.array([len(y) for y in self.part(part)[1]])

    def part(self, part: str) -> Part:
        """Inputs and labels of "train", "validation" or "test"; ValueError if the data have no such part.

        Parameters
        ----------
        part : its name.

        Returns
        -------
        (inputs, labels), n arrays each.
        """
        inputs, labels = (getattr(self, name) for name in PARTS[arguments.choice("part", part, PARTS)])
        if not inputs:
            raise ValueError(f"part={part!r} given, but {self.name} has no such part")
        return inputs, labels

    @property
    def train(self) -> Part:
        """X and y."""
        return self.part("train")

    @property
    def validation(self) -> Part:
        """X_val and y_val."""
        return self.part("validation")

    @property
    def test(self) -> Part:
        """X_test and y_test."""
        return self.part("test")

    def restrict(self, clients: slice | Sequence[int] | np.ndarray) -> Clients:
        """The same data with some of the clients, a slice or indices.

        Parameters
        ----------
        clients : a slice or a sequence of indices.

        Returns
        -------
        Clients.
        """
        which = client_indices(clients, self.n_clients)
        numbers = np.arange(self.n_clients)[which]
        lists = {name: getattr(self, name) for names in PARTS.values() for name in names}
        taken: dict[str, Any] = {
            name: [entries[i] for i in numbers] if entries else [] for name, entries in lists.items()
        }
        return replace(self, **taken, clusters=None if self.clusters is None else self.clusters[which])

    def map_inputs(self, change: Callable[[int, np.ndarray], np.ndarray]) -> Clients:
        """The same data with change(i, X_i) for the inputs of client i, in every part.

        Parameters
        ----------
        change : a function (i, X_i) → array.

        Returns
        -------
        Clients.
        """
        arguments.function("change", change)

        def changed_input(i: int, X: np.ndarray) -> np.ndarray:
            answer = change(i, X.copy())  # which it may write into
            arguments.plain_numbers(f"change: what it returned for client {i}", answer)
            return answer

        names = [inputs for inputs, _ in PARTS.values()]
        changed: dict[str, Any] = {
            name: [changed_input(i, X) for i, X in enumerate(getattr(self, name))] for name in names
        }
        return replace(self, **changed)

    def clustered(
        self, means: Sequence[float] | np.ndarray, stds: Sequence[float] | np.ndarray, *, seed: int | None = None
    ) -> Clients:
        """Clients in clusters c of (nearly) equal size, each seeing (X - means[c]) / stds[c] for its inputs X.

        Client i is in cluster i mod C, or with a seed in one drawn by a random order of the clients (NumPy's generator
        seeded with [seed, 3]). `draw_clusters` draws means and stds as the paper does.

        Parameters
        ----------
        means : one for each cluster.
        stds : one for each cluster.
        seed : of who is in which.

        Returns
        -------
        Clients, with `clusters`, `means` and `stds`.
        """
        if self.clusters is not None:
            raise ValueError(f"clustered: {self.name} is in clusters already, needed data that are not")
        centre = arguments.real_array("means", means, (None,), "(number of clusters,)")
        scale = arguments.real_array("stds", stds, (len(centre),), f"({len(centre)},), one for each of means", 0.0)
        if not scale.all():
            raise ValueError(f"stds={stds!r} given, needed numbers > 0")
        clusters = np.arange(self.n_clients) % len(centre)
        if seed is not None:
            clusters = np.random.default_rng([arguments.integer("seed", seed, 0), 3]).permutation(clusters)

        def seen(i: int, X: np.ndarray) -> np.ndarray:
            return ((X - centre[clusters[i]]) / scale[clusters[i]]).astype(X.dtype)

        return replace(self.map_inputs(seen), clusters=clusters, means=centre, stds=scale)


# ----------------------------------------------------------------------------------------------------
# Labelled data split over clients by label: the usual way to make heterogeneous clients.
#
# For every label c a vector of shares q_c ~ Dirichlet(α 1_n) is drawn, then the N_c instances of that label are given
# to
# the n clients in numbers ~ Multinomial(N_c, q_c), which ones at random. Every instance goes to exactly one client.
# Small α makes clients that see few labels, large α makes them alike.


@checked(n_clients=Integer(1), alpha=Positive(), seed=Integer(0), min_per_client=Integer(0))
def dirichlet_partition(
    labels: np.ndarray | Sequence[int], n_clients: int, alpha: float = 0.4, seed: int = 0, min_per_client: int = 0
) -> list[np.ndarray]:
    """Indices of each client's instances, a list of n sorted int64 arrays that together are 0 … N−1.

    `labels` (N,) are integers or anything that can be sorted; a label that does not equal itself (NaN) is refused. A
    client may end up with nothing; with `min_per_client` a draw that leaves some client with fewer raises ValueError
    with the client and what it has.

    Parameters
    ----------
    labels : array (N,)
        Classes.
    n_clients : int
        n.
    alpha : float
        Of the Dirichlet distribution; large: every client gets all classes alike.
    seed : int
        Another partition.
    min_per_client : int
        How many instances a client must get; a draw that leaves one with fewer is an error, not drawn again.

    Returns
    -------
    list of arrays
        Indices of each client, disjoint.

    Raises
    ------
    TypeError, ValueError
        Labels must be (N,) and sortable, `n_clients` ≥ 1, `alpha` positive.
    ValueError
        A client gets fewer than `min_per_client` instances.

    Examples
    --------
    >>> [part.tolist() for part in hgp.data.dirichlet_partition([0, 0, 1, 1, 1, 0], n_clients=2, alpha=1.0, seed=3)]
    [[5], [0, 1, 2, 3, 4]]
    """
    labels = validation.host_array("labels", labels)
    if labels.ndim != 1 or labels.size == 0:
        raise ValueError(f"labels: shape {labels.shape} given, needed (N,) with N >= 1")
    for k in np.flatnonzero(labels != labels)[:1]:
        raise ValueError(f"labels: instance {k} has the label {labels[k]}, needed labels that equal themselves")
    if min_per_client * n_clients > labels.size:
        raise ValueError(
            f"n_clients={n_clients} given with min_per_client={min_per_client}, but only {labels.size} instances"
        )
    check_memory(f"n_clients={n_clients}", 4 * n_clients)
    rng = np.random.default_rng(seed)
    owner = np.empty(labels.size, dtype=np.int64)
    try:
        kinds, kind = np.unique(labels, return_inverse=True)  # every instance has exactly one kind
    except TypeError as error:
        raise TypeError(f"labels: {error}; needed labels that can be sorted") from error
    for c in range(len(kinds)):
        members = rng.permutation(np.flatnonzero(kind == c))
        shares = dirichlet(rng, alpha, n_clients)
        counts = rng.multinomial(members.size, shares)
        owner[members] = np.repeat(np.arange(n_clients), counts)
    parts = [np.flatnonzero(owner == i) for i in range(n_clients)]
    poorest = min(range(n_clients), key=lambda i: parts[i].size)
    if parts[poorest].size < min_per_client:
        raise ValueError(
            f"client {poorest} got {parts[poorest].size} instances, needed min_per_client={min_per_client}: "
            f"try another seed (given {seed}) or a larger alpha (given {alpha})"
        )
    return parts


def dirichlet(rng: np.random.Generator | np.random.RandomState, alpha: float, parts: int) -> np.ndarray:
    """Shares ~ Dirichlet(α 1), (parts,); ValueError where α is too large for its sums to be numbers."""
    shares = rng.dirichlet(np.full(parts, alpha))
    if not abs(np.sum(shares) - 1) < 1e-6:
        raise ValueError(f"alpha={alpha} given, too large for {parts} shares that sum to 1; needed below 1e300")
    return shares


# ----------------------------------------------------------------------------------------------------
# Labelled data over n clients: by label (`dirichlet_partition`), then each client's instances in three parts.
#
# Of N_i instances round(share N_i) go to validation and to test, at least one where the share is not 0, the rest to
# training. Which ones is drawn by NumPy's generator seeded with [seed, 1], client after client; `dirichlet_partition`
# uses the one seeded with `seed`.


Indices = list[np.ndarray]


def split_over_clients(
    labels: np.ndarray, n_clients: int, alpha: float, seed: int, validation: float, test: float = 0.0
) -> tuple[Indices, Indices, Indices]:
    """Indices of each client's training, validation and test instances; no part that was asked for is empty."""
    parts = dirichlet_partition(labels, n_clients, alpha, seed, min_per_client=1 + (validation > 0) + (test > 0))
    rng = np.random.default_rng([seed, 1])
    train, held_out, kept = [], [], []
    for part in parts:
        part = rng.permutation(part)
        a = _number(validation, part.size, part.size - 1 - (test > 0))
        b = a + _number(test, part.size, part.size - 1 - a)
        held_out.append(part[:a])
        kept.append(part[a:b])
        train.append(part[b:])
    return train, held_out, kept


def check_shares(validation: float, test: float) -> tuple[float, float]:
    """Two shares >= 0 that leave something for training."""
    shares = arguments.nonnegative("validation", validation), arguments.nonnegative("test", test)
    if not sum(shares) < 1:
        raise ValueError(f"validation={validation} and test={test} given, needed shares whose sum is below 1")
    return shares


def _number(share: float, size: int, most: int) -> int:
    return min(max(1, round(share * size)), most) if share > 0 else 0


# ----------------------------------------------------------------------------------------------------
# How clusters of clients normalise their inputs in the paper: X -> (X - m_c) / s_c, drawn anew for each cluster c.
#
#     "paper"        m_c ~ U(0, 1),  s_c² ~ U(0, 1)      the text: a mean and a variance
#     "published"    m_c ~ U(0, 1),  s_c  ~ U(0, 1)      the program that the authors published: a standard deviation
#
# Both variants use the same numbers. A draw near zero multiplies inputs by a large number: s = 0.05, one published
# cluster in twenty, makes inputs twenty times as large, which the networks of the paper do not survive. For runs that
# are to be compared give means and standard deviations of your own to `Clients.clustered`.


VARIANTS = ("paper", "published")


@checked(n_clusters=Integer(1, LONGEST), seed=Integer(0), variant=Choice(*VARIANTS))
def draw_clusters(n_clusters: int = 3, seed: int = 0, variant: str = "paper") -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations, (n_clusters,) each, from NumPy's generator seeded with [seed, 2].

    Parameters
    ----------
    n_clusters : int
        How many.
    seed : int
        Another draw.
    variant : {"paper", "published"}
        Which of variance and standard deviation is uniform.

    Returns
    -------
    two arrays (n_clusters,)
        Means and standard deviations.

    Raises
    ------
    TypeError, ValueError
        `n_clusters` must be an integer ≥ 1, `variant` one of the two.

    Examples
    --------
    >>> means, stds = hgp.data.draw_clusters(3, seed=1, variant="published")
    >>> bool(np.all(stds**0.5 == hgp.data.draw_clusters(3, seed=1)[1]))
    True
    """
    check_memory(f"n_clusters={n_clusters}", 5 * n_clusters)
    means, spread = 1 - np.random.default_rng([seed, 2]).random((2, n_clusters))  # in (0, 1]: no division by zero
    return means, np.sqrt(spread) if variant == "paper" else spread
