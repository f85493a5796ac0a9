"""Images (or other instances) of n clients as flat rows with encoded labels, in the form that linear models use."""

from __future__ import annotations

import math
from typing import Any

from hgp_ref.backend import Array, array_namespace
from hgp_ref.neural import Sequential
from hgp_ref.problems.instances import Instances
from hgp_ref.problems.losses import SoftmaxLoss
from hgp_ref.problems.neural_parts import Model
from hgp_ref.problems.reading import read_instances


def read_images(model: Model, X: Any, y: Any, loss: SoftmaxLoss, names: tuple[str, str]) -> Instances:
    """Check shapes against the model's input, flatten, pad clients to equal length, encode labels."""
    shape = model.input_shape
    if not _is_array(X) and not isinstance(X, list | tuple):
        raise TypeError(f"{names[0]}: {type(X).__name__} given, needed an array (n, N, ...) or a list of n arrays")
    flat = _flat(names[0], X, shape, 2) if _is_array(X) else [
        _flat(f"{names[0]}[{i}]", part, shape, 1) for i, part in enumerate(X)
    ]  # fmt: skip
    return read_instances(flat, y, loss, names)


def _is_array(X: Any) -> bool:
    return hasattr(X, "shape") and hasattr(X, "ndim") and not callable(X.shape)


def _flat(name: str, a: Array, shape: tuple[int, ...], leading: int) -> Array:
    if not _is_array(a) or tuple(a.shape[leading:]) != shape or a.ndim != leading + len(shape):
        given = f"shape {tuple(a.shape)}" if _is_array(a) else type(a).__name__
        letters = ("n, N" if leading == 2 else "N_i") + ", " + ", ".join(map(str, shape))
        raise ValueError(f"{name}: {given} given, needed ({letters}) as the model's input")
    return array_namespace(a).reshape(a, (*a.shape[:leading], math.prod(shape)))


def classes_of(model: Sequential) -> int:
    """C, for a model whose outputs are logits of C >= 2 classes."""
    if not isinstance(model, Sequential):
        raise TypeError(f"model: {type(model).__name__} given, needed a hgp_ref.neural.Sequential")
    if len(model.output_shape) != 1 or model.output_shape[0] < 2:
        raise ValueError(f"model: outputs of shape {model.output_shape} given, needed logits (C,) of C >= 2 classes")
    return model.output_shape[0]


def longest_of(name: str, X: Any) -> int:
    """Instances of the client that has most."""
    if _is_array(X):
        lengths = list(X.shape[1:2])
    elif not isinstance(X, list | tuple):
        raise TypeError(f"{name}: {type(X).__name__} given, needed an array (n, N, ...) or a list of n arrays")
    else:
        lengths = [part.shape[0] for part in X if getattr(part, "ndim", 0)]
    if not lengths or max(lengths) < 1:
        raise ValueError(f"{name}: {type(X).__name__} without instances given, needed an array (n, N, ...) or a list")
    return int(max(lengths))
