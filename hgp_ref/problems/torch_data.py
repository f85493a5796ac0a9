"""The instances of clients that train a torch.nn.Module: tensors, or Datasets that are read when they are needed.

Datasets stay where they are. A client has the numbers of its instances in a Dataset that all clients may share, and
instances are read for each evaluation: those of a mini-batch, or all those of the clients of one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref.backend import Array, to_host

Pair = tuple[Array, Array]
Move = Callable[[Array], Array]


@dataclass(frozen=True)
class TorchInstances:
    """Instances of n clients, padded to one length.

    Padding repeats an instance of the same client: if the loss of that one is finite, so is the loss of the padding,
    and its weight zero removes it.
    """

    X: Array  # (n, N, ...)
    y: Array  # (n, N, ...)
    counts: np.ndarray  # (n,) instances of each client
    valid: Array  # (n, N) False for padding
    index: Array = None  # (n, N) the numbers of the instances, None for 0 … N-1

    def mean(self, like: Array) -> Array:
        """The weight of each instance in the mean of its client, 0 for padding.  # (n, N)"""
        return self.valid.to(like.dtype) / self.valid.sum(1, keepdim=True).clamp(min=1)

    def pick(self, lam: Array) -> Array:
        """The entries of lam (n, N_max) that belong to these instances.  # (n, N)"""
        return lam[:, : self.valid.shape[1]] if self.index is None else lam.gather(1, self.index)

    def padded_client(self) -> int | None:
        """Of the clients with padding, one with most instances; None if there is none."""
        number = self.valid.sum(1)
        number = number * (number < self.valid.shape[1])
        return int(number.argmax()) if bool(number.any()) else None

    def __getitem__(self, clients: slice | np.ndarray) -> TorchInstances:
        return TorchInstances(self.X[clients], self.y[clients], self.counts[clients], self.valid[clients])

    def select(self, batch: Array | None) -> TorchInstances:
        """The instances of a mini-batch (n, b), -1 for padding."""
        import torch

        if batch is None:
            return self
        index, valid = _filled(batch)
        rows = torch.arange(len(batch), device=batch.device)[:, None]
        return TorchInstances(self.X[rows, index], self.y[rows, index], self.counts, valid, index)

    def to(self, move: Move) -> TorchInstances:
        """The same instances on another device, or of another dtype."""
        return TorchInstances(move(self.X), move(self.y), self.counts, move(self.valid))

    def clients(self) -> list[Pair]:
        """X_i and y_i of each client, without padding."""
        return [(X[:N], y[:N]) for X, y, N in zip(self.X, self.y, self.counts, strict=True)]


@dataclass(frozen=True)
class Source:
    """The instances of one client in a Dataset."""

    dataset: Any
    numbers: np.ndarray  # (N,) of the client's instances in the Dataset
    length: int | None  # of the Dataset, which must not change; None if it has no length
    collate: Callable[[list[Any]], Any] | None  # None for a TensorDataset
    name: str

    def read(self, which: np.ndarray) -> Pair:
        """Inputs and labels of some of the instances."""
        import torch

        numbers = self.numbers[which]
        if (length := _length(self.dataset)) != self.length:
            raise ValueError(f"{self.name} must keep the {self.length} instances of its Dataset, got {length} later")
        if self.collate is None:
            X, y = (tensor[torch.as_tensor(numbers, device=tensor.device)] for tensor in self.dataset.tensors)
            return X, y
        instances = [self.dataset[k] for k in numbers.tolist()]
        try:
            pair = self.collate(instances)
        except (RuntimeError, TypeError) as error:  # of PyTorch, where instances differ in shape or kind
            raise ValueError(
                f"{self.name} must have instances that can be collated, got this error: {error}"
            ) from error
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise TypeError(f"{self.name} must have instances (input, label), got {type(pair).__name__} from collation")
        for part in pair:
            if not isinstance(part, torch.Tensor) or part.ndim < 1 or len(part) != len(numbers):
                got = f"shape {tuple(part.shape)}" if isinstance(part, torch.Tensor) else type(part).__name__
                raise TypeError(f"{self.name} must collate {len(numbers)} instances to tensors (N, ...), got {got}")
        return pair[0], pair[1]


@dataclass(frozen=True)
class DatasetInstances:
    """Instances of n clients in Datasets, as `TorchInstances` when they are read."""

    sources: tuple[Source, ...]
    counts: np.ndarray  # (n,)
    X: Array  # (n, 1, ...) the first instance of each client
    move: Move

    def __getitem__(self, clients: slice | np.ndarray) -> DatasetInstances:
        chosen = tuple(self.sources[i] for i in np.arange(len(self.sources))[clients])
        return DatasetInstances(chosen, self.counts[clients], self.X[clients], self.move)

    def select(self, batch: Array | None) -> TorchInstances:
        """The instances of a mini-batch (n, b), -1 for padding; all instances without one."""
        import torch

        if batch is None:
            return stacked("X", "y", self.clients())
        index, valid = _filled(batch)
        pairs = [source.read(rows) for source, rows in zip(self.sources, to_host(index), strict=True)]
        X, y = (self.move(torch.stack(parts)) for parts in zip(*pairs, strict=True))
        return TorchInstances(X, y, self.counts, valid, index)

    def to(self, move: Move) -> DatasetInstances:
        """The same instances, moved after they are read."""
        before = self.move
        return DatasetInstances(self.sources, self.counts, move(self.X), lambda a: move(before(a)))

    def clients(self) -> list[Pair]:
        """X_i and y_i of each client."""
        read = [source.read(np.arange(len(source.numbers))) for source in self.sources]
        return [(self.move(X), self.move(y)) for X, y in read]


Data = TorchInstances | DatasetInstances


def read_instances(names: tuple[str, str], X: Any, y: Any) -> Data:
    """Instances from arrays (n, N, ...), lists of n arrays (N_i, ...), or lists of n Datasets or DataLoaders."""
    import torch

    FORMS = "an array (n, N, ...), or a list of n arrays, Datasets or DataLoaders"
    if isinstance(X, torch.utils.data.Dataset | torch.utils.data.DataLoader):
        raise TypeError(f"{names[0]} must be {FORMS}, got one {type(X).__name__}; give each client a Subset of it")
    for name, a in zip(names, (X, y), strict=True):
        if name == names[1] and of_datasets(X):
            if y is not None:
                raise TypeError(f"{name} must be None, the Datasets of {names[0]} have labels, got {type(y).__name__}")
            return _read_datasets(names[0], X)
        if not isinstance(a, torch.Tensor | np.ndarray | Sequence) or isinstance(a, str) or len(a) < 1:
            raise TypeError(f"{name} must be {FORMS}, got {type(a).__name__}")
    parts = [[torch.as_tensor(part) for part in a] for a in (X, y)]
    if len(parts[0]) != len(parts[1]):
        raise ValueError(f"{names[1]} must have {len(parts[0])} clients like {names[0]}, got {len(parts[1])}")
    return stacked(*names, list(zip(*parts, strict=True)))


def stacked(inputs: str, labels: str, pairs: list[Pair]) -> TorchInstances:
    """One array (n, N, ...) of the inputs (N_i, ...) of all clients, and one of their labels."""
    import torch

    for i, (a, b) in enumerate(pairs):
        if a.ndim < 1 or b.ndim < 1 or len(a) < 1 or len(b) != len(a):
            raise ValueError(
                f"{inputs}[{i}] and {labels}[{i}] must have shapes (N_i, ...) with the same N_i >= 1, "
                f"got {tuple(a.shape)} and {tuple(b.shape)}"
            )
    counts = np.array([len(a) for a, _ in pairs])
    X, y = (_pad(name, [pair[k] for pair in pairs], counts.max()) for k, name in enumerate((inputs, labels)))
    numbers = torch.arange(int(counts.max()), device=X.device)
    return TorchInstances(X, y, counts, numbers < torch.as_tensor(counts, device=X.device)[:, None])


def _pad(name: str, parts: list[Array], longest: int) -> Array:
    import torch

    kinds = {(tuple(part.shape[1:]), part.dtype, part.device) for part in parts}
    if len(kinds) > 1:
        listing = "; ".join(f"{shape}, {dtype}, {device}" for shape, dtype, device in sorted(kinds, key=str))
        raise ValueError(f"{name} must have the same shape, dtype and device for all clients, got {listing}")
    return torch.stack([torch.cat([part, part[:1].expand(longest - len(part), *part.shape[1:])]) for part in parts])


def _filled(batch: Array) -> Pair:
    """Instance numbers (n, b), where padding repeats an instance of the same client; and False for padding."""
    import torch

    batch = batch.long()  # PyTorch does not index with short integers
    valid = batch >= 0
    first = batch.gather(1, valid.to(torch.int8).argmax(1, keepdim=True))  # an instance of the batch
    return torch.where(valid, batch, first).clamp(min=0), valid


# ----------------------------------------------------------------------------------------------------------- Datasets


def of_datasets(X: Any) -> bool:
    """Whether X is a list with a Dataset or a DataLoader."""
    from torch.utils.data import DataLoader, Dataset

    return isinstance(X, list | tuple) and any(isinstance(part, Dataset | DataLoader) for part in X)


def _read_datasets(name: str, X: Sequence[Any]) -> DatasetInstances:
    sources = tuple(_source(f"{name}[{i}]", part) for i, part in enumerate(X))
    first = stacked(f"{name}", "labels", [_first(source) for source in sources])
    return DatasetInstances(sources, np.array([len(source.numbers) for source in sources]), first.X, lambda a: a)


def _first(source: Source) -> Pair:
    """The first instance of a client, which must be the same at each access."""
    import torch

    (X, y), (again, label) = (source.read(np.zeros(1, dtype=np.int64)) for _ in range(2))
    if not (torch.equal(torch.nan_to_num(X), torch.nan_to_num(again)) and torch.equal(y, label)):
        raise ValueError(
            f"{source.name} must have the same instance 0 at each access, got two different ones; leave random "
            "transforms out"
        )
    return X, y


def _source(name: str, data: Any) -> Source:
    """The Dataset of one client, through a DataLoader and Subsets."""
    import torch
    from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset, default_collate

    dataset, collate = data, default_collate
    if isinstance(data, torch.utils.data.DataLoader):
        dataset, collate = _behind(name, data)
    if not isinstance(dataset, Dataset):
        raise TypeError(f"{name} must be a Dataset or a DataLoader like the other clients', got {_kind(dataset)}")
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise TypeError(f"{name} must be a Dataset with a length and numbered instances, got {_kind(dataset)}")
    numbers = np.arange(len(dataset))
    if numbers.size == 0:
        raise ValueError(f"{name} must have at least one instance, got none")
    while type(dataset) is Subset:
        numbers, dataset = np.asarray(dataset.indices)[numbers], dataset.dataset
    length = _length(dataset)
    if length is not None and (numbers.min() < -length or numbers.max() >= length):
        raise ValueError(f"{name} must have indices from 0 to {length - 1} of its Dataset, got {numbers.max()}")
    plain = type(dataset) is TensorDataset and len(dataset.tensors) == 2 and collate is default_collate
    return Source(dataset, numbers, length, None if plain else collate, name)


def _length(dataset: Any) -> int | None:
    return len(dataset) if hasattr(dataset, "__len__") else None


def _behind(name: str, loader: Any) -> tuple[Any, Any]:
    """The Dataset of a DataLoader and how it collates. Instances need fixed numbers, so it must not shuffle."""
    from torch.utils.data import BatchSampler, SequentialSampler, default_collate

    batches, sampler = loader.batch_sampler, loader.sampler
    if batches is not None:
        sampler = batches.sampler if type(batches) is BatchSampler else batches
    if type(sampler) is not SequentialSampler and not _iterable(loader):
        raise ValueError(
            f"{name} must be a DataLoader with shuffle=False, got one with a {_kind(sampler)}: instances have fixed "
            "numbers, and batches= draws the mini-batches"
        )
    if type(sampler) is SequentialSampler and len(sampler) != len(loader.dataset):
        raise ValueError(
            f"{name} must be a DataLoader of all {len(loader.dataset)} instances of its Dataset, got a sampler of "
            f"{len(sampler)}; take a Subset"
        )
    if getattr(batches, "drop_last", False) and len(loader.dataset) % batches.batch_size:
        raise ValueError(f"{name} must be a DataLoader with drop_last=False, got True: all instances count")
    return loader.dataset, default_collate if batches is None else loader.collate_fn


def _iterable(loader: Any) -> bool:
    from torch.utils.data import IterableDataset

    return isinstance(loader.dataset, IterableDataset)


def _kind(value: object) -> str:
    return type(value).__name__
