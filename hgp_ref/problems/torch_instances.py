"""Instances of n clients as torch tensors of one shape, padded with zero weight, for functions that run under vmap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hgp_ref.backend import Array


class TorchInstances:
    """Inputs X (n, N, ...), labels y (n, N, ...) and whether an instance is a client's own, (n, N).

    Padding repeats an instance of the same client: where that one's loss is a number, so is the padding's, and its
    weight zero makes it nothing.
    """

    def __init__(self, X: Array, y: Array, counts: Array) -> None:
        import torch

        self.X, self.y, self._limit = X, y, counts
        self.valid = torch.arange(X.shape[1], device=X.device) < counts[:, None]

    @property
    def counts(self) -> np.ndarray:
        """Instances of each client, on the host.  # (n,)"""
        return self._limit.cpu().numpy()

    def mean(self, like: Array) -> Array:
        """The weight of each instance in its client's mean, 0 for padding.  # (n, N)"""
        number = self.valid.sum(1, keepdim=True)
        return self.valid.to(like.dtype) / number.clamp(min=1)

    def padded_client(self) -> int | None:
        """A client that has padding behind instances of its own, as many of these as any; None if there is none."""
        number, longest = self.valid.sum(1), self.valid.shape[1]
        own = number * (number < longest)
        return int(own.argmax()) if bool(own.any()) else None

    def __getitem__(self, clients: slice | Array) -> TorchInstances:
        """The instances of some clients."""
        some = object.__new__(type(self))
        some.X, some.y, some._limit = self.X[clients], self.y[clients], self._limit[clients]
        some.valid = self.valid[clients]
        return some

    def select(self, batch: Array | None) -> TorchInstances:
        """The instances of a mini-batch (n, b), -1 for padding."""
        import torch

        if batch is None:
            return self
        batch = batch.long()  # short integers are no indices to PyTorch
        valid = batch >= 0
        first = batch.gather(1, valid.to(torch.int8).argmax(1, keepdim=True))  # one that the batch has
        index = torch.where(valid, batch, first).clamp(min=0)
        rows = torch.arange(len(batch), device=batch.device)[:, None]
        some = object.__new__(type(self))
        some.X, some.y, some._limit, some.valid = self.X[rows, index], self.y[rows, index], self._limit, valid
        return some


def read_tensors(names: tuple[str, str], X: Any, y: Any) -> TorchInstances:
    """Arrays (n, N, ...), or lists of n arrays (N_i, ...), torch's or NumPy's."""
    parts = [_parts(name, a) for name, a in zip(names, (X, y), strict=True)]
    if len(parts[0]) != len(parts[1]):
        raise ValueError(f"{names[1]}: {len(parts[1])} clients given, needed {len(parts[0])} as in {names[0]}")
    for i, (a, b) in enumerate(zip(*parts, strict=True)):
        if a.ndim < 1 or b.ndim < 1 or len(a) < 1 or len(b) != len(a):
            raise ValueError(
                f"{names[0]}[{i}], {names[1]}[{i}]: shapes {tuple(a.shape)} and {tuple(b.shape)} given, "
                "needed (N_i, ...) and (N_i, ...) with the same N_i >= 1"
            )
    import torch

    counts = [len(part) for part in parts[0]]
    inputs, labels = (_stacked(name, part, max(counts)) for name, part in zip(names, parts, strict=True))
    return TorchInstances(inputs, labels, torch.tensor(counts, device=inputs.device))


def _parts(name: str, a: Any) -> list[Array]:
    import torch

    if not isinstance(a, torch.Tensor | np.ndarray | Sequence) or isinstance(a, str) or len(a) < 1:
        raise TypeError(f"{name}: {type(a).__name__} given, needed an array (n, N, ...) or a list of n arrays")
    return [torch.as_tensor(part) for part in a]


def _stacked(name: str, parts: list[Array], longest: int) -> Array:
    import torch

    kinds = {(tuple(part.shape[1:]), part.dtype, part.device) for part in parts}
    if len(kinds) > 1:
        listing = "; ".join(f"{shape}, {dtype}, {device}" for shape, dtype, device in sorted(kinds, key=str))
        raise ValueError(f"{name}: clients with different shapes, dtypes or devices given ({listing}), needed the same")
    return torch.stack([torch.cat([part, part[:1].expand(longest - len(part), *part.shape[1:])]) for part in parts])
