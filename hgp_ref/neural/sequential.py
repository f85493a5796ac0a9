"""Sequential: z = layer_L(... layer_1(X)), for n clients whose parameters are the rows of one array x (n, d).

Row i holds client i's parameters in PyTorch's order and layout: layer by layer, weight before bias, each in C order, as
`torch.nn.utils.parameters_to_vector(net.parameters())` gives them.
"""

from __future__ import annotations

import math
from typing import Any

from hgp_ref import arguments
from hgp_ref.backend import Array, Namespace, array_namespace, is_numpy
from hgp_ref.neural.fused import fuse
from hgp_ref.neural.initial import draw
from hgp_ref.neural.layer import Layer, Shape
from hgp_ref.neural.tape import Tape


class Sequential:
    """Layers one after the other. input_shape: of one instance, (C, H, W) or (features,), as in PyTorch.

    On NumPy a layer with parameters, the ReLU and the pooling behind it run as one compiled step; fused=False keeps the
    array-API text there too. Both give the same numbers up to rounding.

    Parameters
    ----------
    input_shape : tuple
        Of one instance, (C, H, W) or (features,).
    *layers : Layer
        One after the other.
    fused : bool
        Whether NumPy runs compiled steps.

    Raises
    ------
    TypeError, ValueError
        Layers must be layers of this package, one of them with parameters, and take each other's shapes.

    Examples
    --------
    >>> from hgp_ref.neural import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential
    >>> model = Sequential((1, 8, 8), Conv2d(1, 4, 3), ReLU(), MaxPool2d(2), Flatten(), Linear(36, 10))
    >>> model.dim
    410
    """

    def __init__(self, input_shape: Any, *layers: Layer, fused: bool = True) -> None:
        self.input_shape = _check_shape(input_shape)
        if not layers:
            raise ValueError("layers: none given, needed at least one")
        self.layers, self.shapes = layers, [self.input_shape]
        for k, layer in enumerate(layers):
            if not isinstance(layer, Layer):
                raise TypeError(f"layers[{k}]: {type(layer).__name__} given, needed a layer of hgp_ref.neural")
            self.shapes.append(layer.output_shape(self.shapes[-1]))
        self.output_shape = self.shapes[-1]
        self.dim = sum(math.prod(shape) for layer in layers for shape in layer.shapes)
        if self.dim == 0:
            raise ValueError("layers: none with parameters given, needed at least one")
        self._fused = fuse(layers) if arguments.boolean("fused", fused) else list(layers)

    def __repr__(self) -> str:
        return f"Sequential({self.input_shape}, {', '.join(map(repr, self.layers))})"

    def forward(self, x: Array, X: Array) -> Tape:
        """Outputs of every instance, with what their derivatives need; x (n, d), X (n, N, *input_shape).

        Parameters
        ----------
        x : (n, d).
        X : (n, N, *input_shape).

        Returns
        -------
        Tape.
        """
        xp = self._check(x, X)
        return Tape(self._fused if is_numpy(x) else self.layers, x, X, xp)

    def logits(self, x: Array, X: Array) -> Array:
        """Outputs of every instance; x (n, d), X (n, N, *input_shape).  # (n, N, *output_shape)

        Parameters
        ----------
        x : (n, d).
        X : (n, N, *input_shape).

        Returns
        -------
        (n, N, *output_shape).
        """
        return self.forward(x, X).output

    def init(self, n: int, seed: int = 0, *, like: Array | None = None, dtype: Any = None,
             same_for_all: bool = True) -> Array:  # fmt: skip
        """Initial parameters of n clients, U(-1/√fan_in, 1/√fan_in) for weights and biases (PyTorch's default).

        Numbers of client i are a pure function of (seed, i), and of (seed, 0) for all with same_for_all: the same on
        every library. like: an array whose library, device and (unless `dtype` is given) dtype the result has;
        without it, NumPy and float64.  # (n, d)

        Parameters
        ----------
        n : clients.
        seed : of the generator.
        like : an array in whose library and on whose device.
        dtype : such as "float32".
        same_for_all : whether clients begin alike.

        Returns
        -------
        (n, d).
        """
        n, same = arguments.integer("n", n), arguments.boolean("same_for_all", same_for_all)
        return draw([(math.prod(shape), layer.fan_in) for layer in self.layers for shape in layer.shapes],
                    n, seed, like, dtype, same)  # fmt: skip

    def numbers(self, kept: bool = True) -> int:
        """Numbers per instance that a tape and its adjoint keep or, with kept=False, that one pass has at hand.

        Parameters
        ----------
        kept : whether those that are kept are meant.

        Returns
        -------
        int.
        """
        kept = arguments.boolean("kept", kept)
        steps = sum(math.prod(shape) for shape in self.shapes)
        rows = [math.prod(shape[1:]) * layer.fan_in for layer, shape in zip(self.layers, self.shapes[1:], strict=True)]
        return 2 * steps if kept else 2 * steps + 2 * max(rows)

    def _check(self, x: Array, X: Array) -> Namespace:
        arguments.same_kind(x=x, X=X)
        if x.ndim != 2 or x.shape[1] != self.dim:
            raise ValueError(f"x: shape {tuple(x.shape)} given, needed (n, {self.dim}) = (n, model.dim)")
        if X.ndim != 2 + len(self.input_shape) or tuple(X.shape[2:]) != self.input_shape or X.shape[0] != x.shape[0]:
            needed = ", ".join(map(str, (x.shape[0], "N", *self.input_shape)))
            raise ValueError(f"X: shape {tuple(X.shape)} given, needed ({needed}) = (n, N, *model.input_shape)")
        if X.shape[1] < 1:
            raise ValueError("X: no instances given, needed at least one")
        return array_namespace(x)


def _check_shape(shape: Any) -> Shape:
    if not isinstance(shape, tuple | list) or len(shape) not in (1, 3):
        raise ValueError(f"input_shape={shape!r} given, needed (features,) or (C, H, W)")
    return tuple(arguments.integer(f"input_shape[{k}]", size) for k, size in enumerate(shape))
