"""Labelled data of n clients, in up to three parts: training, validation and test.

    (X_i, y_i),  (X_val_i, y_val_i),  (X_test_i, y_test_i),    i = 0 .. n-1

Every data set of this package has this form. Problems take arrays, so a part is passed to one as it is:

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
from hgp_ref.backend import is_array
from hgp_ref.problems.base import client_indices
from hgp_ref.results import Result
from hgp_ref.validation import Choice, Integer, Positive, check_memory, checked, nonnegative

Arrays = Any  # n arrays (N_i, ...), or one array (n, N, ...)
Part = tuple[Arrays, Arrays]
PARTS = {"train": ("X", "y"), "validation": ("X_val", "y_val"), "test": ("X_test", "y_test")}
VARIANTS = ("paper", "published")


@dataclass(frozen=True)
class Clients(Result):
    """Data of n clients. The numbers of instances N_i may differ between clients.

    A part that a data set does not have is an empty list.

    Parameters
    ----------
    X : n arrays (N_i, ...), or one array (n, N, ...) if all clients have N instances.
    y : n arrays (N_i,) of labels 0 … n_classes − 1.
    X_val, y_val, X_test, y_test : the same for validation and test.
    clusters, means, stds : of `clustered`. Client i sees its inputs as (X − means[c]) / stds[c], c = clusters[i].
    mixture, components : π (n, C) and θ (C, d) of `synthetic_mixture`.

    Examples
    --------
    >>> clients = hgp.data.digit_images().clients(2, alpha=100.0)
    >>> clients.n_clients, clients.X[0].shape[1:]
    (2, (1, 8, 8))
    """

    X: Arrays
    y: Arrays
    X_val: Arrays
    y_val: Arrays
    n_classes: int
    name: str
    X_test: Arrays = field(default_factory=list)
    y_test: Arrays = field(default_factory=list)
    clusters: np.ndarray | None = None
    means: np.ndarray | None = None
    stds: np.ndarray | None = None
    mixture: np.ndarray | None = None
    components: np.ndarray | None = None

    def __post_init__(self) -> None:
        validation.integer("n_classes", self.n_classes)
        validation.instance("name", self.name, str)
        for inputs, labels in PARTS.values():
            for name in (inputs, labels):
                self._check_entries(name)
            self._check_part(inputs, labels)
        for name, low in (("means", None), ("stds", 0.0)):
            if getattr(self, name) is not None:
                validation.real_array(name, getattr(self, name), (None,), "(number of clusters,)", low)
        if self.clusters is not None:
            validation.plain_numbers("clusters", self.clusters, "iu")
            validation.shape("clusters", self.clusters, (self.n_clients,), "(n,)", run_axes=False)
            last = self.clusters.max() if self.means is None else len(self.means) - 1
            if not 0 <= self.clusters.min() <= self.clusters.max() <= last:
                raise ValueError(f"clusters must contain integers from 0 to {last}, got {self.clusters}")
        if self.mixture is not None:
            validation.real_array("mixture", self.mixture, (self.n_clients, None), "(n, n_components)", 0.0)
        if self.components is not None:
            validation.real_array("components", self.components, (None, None), "(n_components, d)")

    def _check_entries(self, name: str) -> None:
        """An array of numbers for each client."""
        part = getattr(self, name)
        if not isinstance(part, list | tuple | np.ndarray) or getattr(part, "ndim", 1) == 0:
            validation.wrong_type(name, part, "a list with one array per client")
        if name in PARTS["train"] and len(part) == 0:
            raise ValueError(f"{name} must have at least one client, got none")
        for i, entry in enumerate(part):
            validation.plain_numbers(f"{name}[{i}]", entry)

    def _check_part(self, inputs: str, labels: str) -> None:
        """Inputs of one shape, and a label that is a class for each of them."""
        X, y, axes = getattr(self, inputs), getattr(self, labels), self.X[0].shape[1:]
        for name, part in ((inputs, X), (labels, y)):
            if len(part) != self.n_clients and not (len(X) == len(y) == 0):
                raise ValueError(f"{name} must have {self.n_clients} clients like X, got {len(part)}")
        for i, (a, b) in enumerate(zip(X, y, strict=True)):
            if a.shape[1:] != axes:
                expected = ", ".join(map(str, ("N_i", *axes)))
                raise ValueError(f"{inputs}[{i}] must have shape ({expected}) like X[0], got {a.shape}")
            if a.dtype.kind == "f":
                validation.finite(f"{inputs}[{i}]", a)
            if b.ndim != 1:
                raise ValueError(f"{labels}[{i}] must have shape (N_i,), got {b.shape}")
            if len(a) != len(b):
                raise ValueError(f"{labels}[{i}] must have {len(a)} labels like {inputs}[{i}], got {len(b)}")
            classes = (b >= 0) & (b < self.n_classes) & (b == np.floor(b))
            if not classes.all():
                wrong = b[~classes][0]
                raise ValueError(f"{labels}[{i}] must contain integers from 0 to {self.n_classes - 1}, got {wrong}")

    @property
    def n_clients(self) -> int:
        """n."""
        return len(self.X)

    @property
    def counts(self) -> np.ndarray:
        """Number of training instances of each client, (n,)."""
        return self.counts_of("train")

    @checked(part=Choice(*PARTS))
    def counts_of(self, part: str) -> np.ndarray:
        """Number of instances of each client in "train", "validation" or "test", (n,)."""
        return np.array([len(y) for y in self.part(part)[1]])

    @checked(part=Choice(*PARTS))
    def part(self, part: str) -> Part:
        """Inputs and labels of "train", "validation" or "test"; ValueError if the data have no such part."""
        inputs, labels = (getattr(self, name) for name in PARTS[part])
        if len(inputs) == 0:
            raise ValueError(f"part must be a part of {self.name} with data, got {part!r}")
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
        """The data of some of the clients, given by a slice or by indices."""
        which = client_indices(clients, self.n_clients)
        indices = np.arange(self.n_clients)[which]
        selected: dict[str, Any] = {}
        for name in (name for names in PARTS.values() for name in names):
            entries = getattr(self, name)
            selected[name] = [entries[i] for i in indices] if len(entries) else []
        for name in ("clusters", "mixture"):
            selected[name] = None if getattr(self, name) is None else getattr(self, name)[which]
        return replace(self, **selected)

    def map_inputs(self, change: Callable[[int, np.ndarray], np.ndarray]) -> Clients:
        """The data with change(i, X_i) as the inputs of client i, in every part."""
        validation.function("change", change)

        def changed(i: int, X: np.ndarray) -> np.ndarray:
            inputs = change(i, X.copy())  # which it may overwrite
            validation.plain_numbers(f"change: what it returned for client {i}", inputs)
            return inputs

        parts: dict[str, Any] = {
            name: [changed(i, X) for i, X in enumerate(getattr(self, name))] for name, _ in PARTS.values()
        }
        return replace(self, **parts)

    def clustered(
        self, means: Sequence[float] | np.ndarray, stds: Sequence[float] | np.ndarray, *, seed: int | None = None
    ) -> Clients:
        """Clients in clusters of (nearly) equal size; those of cluster c see (X − means[c]) / stds[c].

        Client i is in cluster i mod C. With a seed, clusters are permuted by NumPy's generator seeded with [seed, 3].
        `draw_clusters` draws means and stds as the paper does.
        """
        if self.clusters is not None:
            raise ValueError(f"data must have no clusters yet, got {self.name}, which has some")
        mean = validation.real_array("means", means, (None,), "(number of clusters,)")
        std = validation.real_array("stds", stds, (len(mean),), f"({len(mean)},), one for each of means", 0.0)
        if not std.all():
            validation.wrong_value("stds", stds, "numbers > 0")
        clusters = np.arange(self.n_clients) % len(mean)
        if seed is not None:
            clusters = np.random.default_rng([validation.integer("seed", seed, 0), 3]).permutation(clusters)

        def normalise(i: int, X: np.ndarray) -> np.ndarray:
            return ((X - mean[clusters[i]]) / std[clusters[i]]).astype(X.dtype)

        return replace(self.map_inputs(normalise), clusters=clusters, means=mean, stds=std)


# Partitions -----------------------------------------------------------------------------------------------------------
#
# A partition is a list of n index arrays. X[part] are a client's rows of an array, and
# torch.utils.data.Subset(dataset, part) its part of a PyTorch Dataset.


@checked(n_clients=Integer(1), alpha=Positive(), seed=Integer(0), min_per_client=Integer(0))
def dirichlet_partition(
    labels: np.ndarray | Sequence[int], n_clients: int, alpha: float = 0.4, seed: int = 0, min_per_client: int = 0
) -> list[np.ndarray]:
    """Split labelled instances over clients, label by label: the usual way to make heterogeneous clients.

    For every label c, shares q_c ~ Dirichlet(α 1_n) are drawn. The N_c instances of that label go to the n clients at
    random, in numbers ~ Multinomial(N_c, q_c). With small α clients see few labels, with large α they are alike.
    Returns the sorted indices of each client's instances.

    Parameters
    ----------
    labels : (N,), of any type that can be sorted; or a Dataset with `targets`, or a TensorDataset.
    min_per_client : raise ValueError if a client gets fewer instances; nothing is drawn again. By default clients may
        get none.

    Examples
    --------
    >>> [part.tolist() for part in hgp.data.dirichlet_partition([0, 0, 1, 1, 1, 0], n_clients=2, alpha=1.0, seed=3)]
    [[5], [0, 1, 2, 3, 4]]
    """
    classes = _classes(labels)
    check_partition("min_per_client", min_per_client, n_clients, classes.size)
    rng = np.random.default_rng(seed)
    owner = np.empty(classes.size, dtype=np.int64)
    for c in range(classes.max() + 1):
        members = rng.permutation(np.flatnonzero(classes == c))
        counts = rng.multinomial(members.size, dirichlet(rng, alpha, n_clients))
        owner[members] = np.repeat(np.arange(n_clients), counts)
    return _parts(owner, n_clients, alpha, seed, min_per_client)


@checked(n_clients=Integer(1), shards=Integer(1), seed=Integer(0))
def shard_partition(
    labels: np.ndarray | Sequence[int], n_clients: int, shards: int = 2, seed: int = 0
) -> list[np.ndarray]:
    """Sort instances by label, cut them into n · shards pieces, and give each client `shards` of them at random.

    Pieces differ in size by at most one instance, so clients have (nearly) equally many. A client sees few labels: at
    most 2 · shards if every label fills a piece [1]. Instances of one label are sorted at random. Returns the sorted
    indices of each client's instances.

    [1] B. McMahan et al. Communication-efficient learning of deep networks from decentralized data. AISTATS 2017.

    Parameters
    ----------
    labels : (N,), of any type that can be sorted; or a Dataset with `targets`, or a TensorDataset.

    Examples
    --------
    >>> [part.tolist() for part in hgp.data.shard_partition([0, 1, 0, 1, 2, 2], n_clients=3, shards=1, seed=0)]
    [[0, 2], [1, 3], [4, 5]]
    """
    classes = _classes(labels)
    check_partition("shards", shards, n_clients, classes.size)
    rng = np.random.default_rng(seed)
    order = rng.permutation(classes.size)
    order = order[np.argsort(classes[order], kind="stable")]
    pieces = np.array_split(order, n_clients * shards)
    dealt = rng.permutation(len(pieces)).reshape(n_clients, shards)
    return [np.sort(np.concatenate([pieces[k] for k in client_pieces])) for client_pieces in dealt]


@checked(n_clients=Integer(1), alpha=Positive(), seed=Integer(0), min_per_client=Integer(0))
def quantity_partition(
    data: Any, n_clients: int, alpha: float = 1.0, seed: int = 0, min_per_client: int = 1
) -> list[np.ndarray]:
    """Split instances over clients of unequal size but equal distribution.

    Shares q ~ Dirichlet(α 1_n) are drawn, and the N instances go to the n clients at random, in numbers
    ~ Multinomial(N, q). With small α few clients have most instances. Returns the sorted indices of each client's
    instances.

    Parameters
    ----------
    data : N, or anything of length N: labels, an array, a Dataset.
    min_per_client : raise ValueError if a client gets fewer instances; nothing is drawn again.

    Examples
    --------
    >>> [part.tolist() for part in hgp.data.quantity_partition(8, n_clients=2, seed=3)]
    [[6, 7], [0, 1, 2, 3, 4, 5]]
    """
    if is_array(data) and data.ndim:  # not every library's arrays have a length
        data = data.shape[0]
    elif hasattr(data, "__len__") and not is_array(data):
        data = len(data)
    N = validation.integer("data", data, 1, validation.LONGEST)
    check_partition("min_per_client", min_per_client, n_clients, N)
    check_memory(f"data={N}", 3 * N)
    rng = np.random.default_rng(seed)
    owner = np.empty(N, dtype=np.int64)
    members = rng.permutation(N)
    owner[members] = np.repeat(np.arange(n_clients), rng.multinomial(N, dirichlet(rng, alpha, n_clients)))
    return _parts(owner, n_clients, alpha, seed, min_per_client)


def _classes(labels: Any) -> np.ndarray:
    """Labels as numbers 0, 1, … in their order, (N,)."""
    if hasattr(labels, "targets"):
        labels = labels.targets
    elif hasattr(labels, "tensors"):  # a TensorDataset of inputs and labels
        labels = labels.tensors[-1]
    labels = validation.host_array("labels", labels)
    if labels.ndim != 1 or labels.size == 0:
        raise ValueError(f"labels must have shape (N,) with N >= 1, got {labels.shape}")
    for k in np.flatnonzero(labels != labels)[:1]:  # NaN and NaT
        raise ValueError(f"labels must not contain NaN or NaT, got {labels[k]} at index {k}")
    try:
        return np.unique(labels, return_inverse=True)[1]
    except TypeError as error:
        raise TypeError(f"labels must be of a type that can be sorted: {error}") from error


def check_partition(name: str, each: int, n_clients: int, size: int) -> None:
    """ValueError unless there are `each` instances for every client."""
    if each * n_clients > size:
        raise ValueError(
            f"{name} * n_clients must be at most the number of instances, {size}, got {each} * {n_clients}"
        )
    check_memory(f"n_clients={n_clients}", 4 * n_clients)


def _parts(owner: np.ndarray, n_clients: int, alpha: float, seed: int, min_per_client: int) -> list[np.ndarray]:
    """The instances of each client, which must be enough."""
    parts = [np.flatnonzero(owner == i) for i in range(n_clients)]
    smallest = min(range(n_clients), key=lambda i: parts[i].size)
    if parts[smallest].size < min_per_client:
        raise ValueError(
            f"client {smallest} must get min_per_client={min_per_client} instances, got {parts[smallest].size}; "
            f"try another seed than {seed} or a larger alpha than {alpha}"
        )
    return parts


def dirichlet(rng: np.random.Generator | np.random.RandomState, alpha: float, parts: int) -> np.ndarray:
    """Shares ~ Dirichlet(α 1), (parts,); ValueError if α is so large that they overflow."""
    shares = rng.dirichlet(np.full(parts, alpha))
    if not abs(np.sum(shares) - 1) < 1e-6:
        raise ValueError(f"alpha must be below 1e300, got {alpha}: {parts} shares do not sum to 1")
    return shares


def split_over_clients(
    labels: np.ndarray, n_clients: int, alpha: float, seed: int, validation: float, test: float = 0.0
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Indices of each client's training, validation and test instances.

    `dirichlet_partition` gives N_i instances to client i. Of these round(share N_i) are for validation and for test, at
    least one if the share is not 0; the rest is for training. NumPy's generator seeded with [seed, 1] draws which.
    """
    parts = dirichlet_partition(labels, n_clients, alpha, seed, min_per_client=1 + (validation > 0) + (test > 0))
    rng = np.random.default_rng([seed, 1])

    def number(share: float, size: int, most: int) -> int:
        return min(max(1, round(share * size)), most) if share > 0 else 0

    train_indices, val_indices, test_indices = [], [], []
    for part in parts:
        part = rng.permutation(part)
        a = number(validation, part.size, part.size - 1 - (test > 0))
        b = a + number(test, part.size, part.size - 1 - a)
        val_indices.append(part[:a])
        test_indices.append(part[a:b])
        train_indices.append(part[b:])
    return train_indices, val_indices, test_indices


def check_shares(validation: float, test: float) -> tuple[float, float]:
    """Two shares >= 0 that leave something for training."""
    shares = nonnegative("validation", validation), nonnegative("test", test)
    if not sum(shares) < 1:
        raise ValueError(f"validation + test must be below 1, got {validation} + {test}")
    return shares


@checked(n_clusters=Integer(1, validation.LONGEST), seed=Integer(0), variant=Choice(*VARIANTS))
def draw_clusters(n_clusters: int = 3, seed: int = 0, variant: str = "paper") -> tuple[np.ndarray, np.ndarray]:
    """Means m and standard deviations s for `Clients.clustered`, (n_clusters,) each, as the paper draws them.

        "paper"        m_c ~ U(0, 1),  s_c² ~ U(0, 1)      the text: a mean and a variance
        "published"    m_c ~ U(0, 1),  s_c  ~ U(0, 1)      the authors' program: a standard deviation

    Both variants use the same random numbers, of NumPy's generator seeded with [seed, 2].

    A small s_c scales inputs up. The published variant has s < 0.05 in one cluster of twenty, which makes inputs twenty
    times as large; the paper's networks do not survive that. For comparisons choose fixed means and deviations.

    Examples
    --------
    >>> means, stds = hgp.data.draw_clusters(3, seed=1, variant="published")
    >>> bool(np.all(stds**0.5 == hgp.data.draw_clusters(3, seed=1)[1]))
    True
    """
    check_memory(f"n_clusters={n_clusters}", 5 * n_clusters)
    means, uniform = 1 - np.random.default_rng([seed, 2]).random((2, n_clusters))  # in (0, 1]: no division by zero
    return means, np.sqrt(uniform) if variant == "paper" else uniform
