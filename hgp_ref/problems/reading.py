"""Data as users give them, arrays or lists of arrays: checked, padded to the longest client, labels encoded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, array_namespace, detached, device, to_host
from hgp_ref.problems.instances import Instances
from hgp_ref.problems.losses import Loss

Data = Array | Sequence[Array]  # (n, N, ...), or n arrays (N_i, ...)


def read_instances(X: Data, y: Data, loss: Loss, names: tuple[str, str]) -> Instances:
    """Check features and labels, pad clients to equal length, encode the labels.

    All of it is copied: what a caller does with his arrays afterwards does not reach the problem.
    """
    features, counts = pad(names[0], X, 2)
    if hasattr(X, "shape"):
        features = array_namespace(features).asarray(features, copy=True)
    labels, label_counts = read_labels(names[1], y, features)
    if counts.shape != label_counts.shape:
        raise ValueError(
            f"{names[1]}: labels of {len(label_counts)} clients given, needed {len(counts)} as in {names[0]}"
        )
    for i in np.flatnonzero(counts != label_counts)[:1]:
        raise ValueError(f"{names[1]}: client {i} has {label_counts[i]} labels, needed {counts[i]} as in {names[0]}")
    check_labels(names[1], labels, 2 if loss.logits == 1 else loss.logits)
    return Instances(features, loss.encode(labels, xp=array_namespace(labels)), counts)


def read_labels(name: str, y: Data, features: Array) -> tuple[Array, np.ndarray]:
    """Labels (n, N_max) as floats beside `features`, and how many each client has."""
    arguments.dense(name, y)
    if not hasattr(y, "shape") and not isinstance(y, list | tuple):
        raise TypeError(f"{name}: {type(y).__name__} given, needed labels (n, N) or a list of n arrays (N_i,)")
    parts: list[Array] = [y] if hasattr(y, "shape") else list(y)
    for part in parts:
        if part is None or isinstance(part, np.ma.MaskedArray):
            raise TypeError(f"{name}: {type(part).__name__} given, needed plain arrays")
        arguments.dense(name, part)
        try:
            xp = array_namespace(part, features)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from error
        if not xp.isdtype(part.dtype, ("bool", "integral", "real floating")):
            raise TypeError(f"{name}: {part.dtype} given, needed numbers")
        if device(part) != device(features):
            raise TypeError(f"{name}: on device {device(part)}, needed the features' device {device(features)}")
    cast = [xp.astype(part, features.dtype) for part in parts]
    return pad(name, cast[0] if hasattr(y, "shape") else cast, 1)


def check_labels(name: str, labels: Array, n_classes: int) -> None:
    """ValueError unless every label is a whole number from 0 to n_classes - 1."""
    xp = array_namespace(labels)
    good = (labels >= 0) & (labels <= n_classes - 1) & (labels == xp.floor(labels))
    if not bool(to_host(xp.all(good))):
        bad = to_host(labels)[~to_host(good)][0]
        needed = "0 or 1" if n_classes == 2 else f"whole numbers from 0 to {n_classes - 1}"
        raise ValueError(f"{name}: label {bad} given, needed {needed}")


def pad(name: str, data: Data, ndim: int) -> tuple[Array, np.ndarray]:
    """An array (n, N, ...) as it is, or a sequence of n arrays (N_i, ...) padded with zeros; and the N_i."""
    arguments.dense(name, data)
    form = "(n, N, d) or a list of n arrays (N_i, d)" if ndim == 2 else "(n, N) or a list of n arrays (N_i,)"
    if hasattr(data, "shape"):
        arguments.same_kind(**{name: data})
        if len(data.shape) != ndim + 1 or data.shape[0] < 1 or 0 in data.shape[2:]:
            raise ValueError(f"{name}: shape {tuple(data.shape)} given, needed {form}")
        parts, counts = None, np.full(data.shape[0], data.shape[1], dtype=np.int64)
    else:
        parts = list(data) if isinstance(data, Sequence) else []
        if not parts:
            raise ValueError(f"{name}: {type(data).__name__} without arrays given, needed {form}")
        arguments.same_kind(**{f"{name}[{i}]": part for i, part in enumerate(parts)})
        for i, part in enumerate(parts):
            if part.ndim != ndim or tuple(part.shape[1:]) != tuple(parts[0].shape[1:]) or 0 in part.shape[1:]:
                raise ValueError(f"{name}[{i}]: shape {tuple(part.shape)} given, needed {form}")
        counts = np.array([part.shape[0] for part in parts], dtype=np.int64)
    for i in np.flatnonzero(counts == 0)[:1]:
        raise ValueError(f"{name}: client {i} has no instances, needed at least one for every client")
    padded = data if parts is None else _stack(parts, int(counts.max()))
    arguments.finite(name, padded)
    return detached(padded), counts


def _stack(parts: list[Array], longest: int) -> Array:
    xp = array_namespace(parts[0])
    rows = []
    for part in parts:
        shape = (longest - part.shape[0], *part.shape[1:])
        rows.append(xp.concat([part, xp.zeros(shape, dtype=part.dtype, device=device(part))], axis=0))
    return xp.stack(rows, axis=0)
