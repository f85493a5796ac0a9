"""The functions of an array library for numbers that carry their errors; see `running_errors`."""

from __future__ import annotations

from typing import Any

from hgp_ref.backend import Array, Namespace
from hgp_ref.problems.running_errors import Choice, Magnitude, Number, Sized, Unit

FUNCTION = 8  # roundings of exp, log and log1p: 4 units in the last place
TANH = 16


class SizedNamespace:
    """The functions of the array library that layers, losses and costs call, for Sized arrays."""

    def __init__(self, unit: Unit, xp: Namespace) -> None:
        self._unit, self._xp = unit, xp
        self.int32, self.int64 = xp.int32, xp.int64

    def exact(self, v: Array) -> Sized:
        """Data, and points as they are given."""
        return Sized(v, None, self._unit, self._xp)

    def rounded(self, v: Array, k: int) -> Sized:
        """Numbers that were rounded k times, exact for k = 0."""
        return self.exact(v) if k == 0 else Sized(v, self._unit.share(k) * self._xp.abs(v), self._unit, self._xp)

    def direction(self, u: Array) -> Sized:
        """A direction, of which only absolute values count."""
        return Magnitude(self._xp.abs(u), None, self._unit, self._xp)

    # Places of entries

    def _moved(self, a: Any, move: Any) -> Any:
        if not isinstance(a, Sized):
            return move(a)
        return a.like(move(a.v), None if a.e is None else move(a.e))

    def reshape(self, a: Any, shape: tuple[int, ...]) -> Any:
        return self._moved(a, lambda b: self._xp.reshape(b, shape))

    def permute_dims(self, a: Any, axes: tuple[int, ...]) -> Any:
        return self._moved(a, lambda b: self._xp.permute_dims(b, axes))

    def matrix_transpose(self, a: Any) -> Any:
        return self._moved(a, self._xp.matrix_transpose)

    def expand_dims(self, a: Any, *, axis: int) -> Any:
        return self._moved(a, lambda b: self._xp.expand_dims(b, axis=axis))

    def broadcast_to(self, a: Any, shape: tuple[int, ...]) -> Any:
        return self._moved(a, lambda b: self._xp.broadcast_to(b, shape))

    def take_along_axis(self, a: Any, index: Array, *, axis: int) -> Any:
        return self._moved(a, lambda b: self._xp.take_along_axis(b, index, axis=axis))

    def concat(self, parts: list[Sized], *, axis: int) -> Sized:
        return self._joined(self._xp.concat, parts, axis)

    def stack(self, parts: list[Sized], *, axis: int) -> Sized:
        return self._joined(self._xp.stack, parts, axis)

    def _joined(self, join: Any, parts: list[Sized], axis: int) -> Sized:
        exact = all(part.e is None for part in parts)
        e = None if exact else join([part.error for part in parts], axis=axis)
        first = next((part for part in parts if isinstance(part, Magnitude)), parts[0])
        return first.like(join([part.v for part in parts], axis=axis), e)

    # Constants

    def zeros(self, shape: tuple[int, ...], *, dtype: Any, device: Any) -> Sized:
        return self.exact(self._xp.zeros(shape, dtype=dtype, device=device))

    def zeros_like(self, a: Any, *, dtype: Any = None) -> Any:
        zeros = self._xp.zeros_like(a.v, dtype=dtype)
        return self.exact(zeros) if dtype is None else Number(zeros, self._xp.zeros_like(a.v, dtype=self._xp.bool))

    def ones_like(self, a: Sized) -> Sized:
        return self.exact(self._xp.ones_like(a.v))

    def full_like(self, a: Any, value: float) -> Any:
        full = self._xp.full_like(a.v, value)
        return Number(full, self._xp.zeros_like(a.unsure)) if isinstance(a, Number) else self.exact(full)

    def arange(self, stop: int, *, dtype: Any, device: Any) -> Array:
        return self._xp.arange(stop, device=device)  # the library's own integers: 64 bits may be switched off

    def astype(self, a: Any, dtype: Any) -> Any:
        return self.exact(self._xp.astype(a, dtype))

    def isnan(self, a: Sized) -> Array:
        return self._xp.isnan(a.v)

    # Choices

    def where(self, chosen: Any, a: Any, b: Any) -> Any:
        xp = self._xp
        sure = not isinstance(chosen, Choice)
        v = chosen if sure else chosen.v
        if isinstance(a, Number):
            unsure = xp.where(v, a.unsure, b.unsure)
            return Number(xp.where(v, a.v, b.v), unsure if sure else unsure | chosen.unsure)
        e = None if a.e is None and b.e is None else xp.where(v, a.error, b.error)
        if not sure:
            if isinstance(a, Magnitude) or isinstance(b, Magnitude):  # the same, linear in both
                either = a.error + b.error + (a.v + b.v) / self._unit.gamma
            else:
                either = xp.maximum(a.error, b.error) + xp.abs(a.v - b.v) / self._unit.gamma
            e = xp.where(chosen.unsure, either, xp.zeros_like(either) if e is None else e)
        return a.made(b, xp.where(v, a.v, b.v), e)

    # Sums

    def sum(self, a: Sized, *, axis: int, keepdims: bool = False) -> Sized:
        xp = self._xp
        e = self._unit.of_sum(a.shape[axis]) * a.size
        e = xp.sum(e if a.e is None else e + a.e, axis=axis, keepdims=keepdims)
        return a.like(xp.sum(a.v, axis=axis, keepdims=keepdims), e)

    def matmul(self, a: Sized, b: Sized) -> Sized:
        xp, share = self._xp, self._unit.of_sum(a.shape[-1])
        M, N = a.size, b.size
        e = xp.matmul(M, share * N if b.e is None else share * N + b.e)
        if a.e is not None:
            e = e + xp.matmul(a.e, N)
        v, w = a.parts(b)
        return a.made(b, xp.matmul(v, w), e + xp.where(e > 0, a.shape[-1] * self._unit.tiny * xp.ones_like(e), 0 * e))

    def max(self, a: Sized, *, axis: int, keepdims: bool = False) -> Sized:
        """The largest as an exact number: losses use it as a shift, t + log Σ exp(a − t), which no t changes."""
        return a.like(self._xp.max(a.v, axis=axis, keepdims=keepdims), None)

    # Functions

    def abs(self, a: Sized) -> Sized:
        return a.like(self._xp.abs(a.v), a.e)

    def exp(self, a: Sized) -> Sized:
        xp, unit = self._xp, self._unit
        v, moved = xp.exp(a.v), 2 * unit.gamma * a.error
        return a.like(v, v * (xp.exp(moved) * a.error + unit.share(FUNCTION) * xp.exp(moved)) + unit.tiny)

    def log(self, a: Sized) -> Sized:
        return self._logarithm(a, self._xp.log(a.v), a.v)

    def log1p(self, a: Sized) -> Sized:
        return self._logarithm(a, self._xp.log1p(a.v), 1 + a.v)

    def _logarithm(self, a: Sized, v: Array, inverse_slope: Array) -> Sized:
        xp, unit = self._xp, self._unit
        below = inverse_slope - 2 * unit.gamma * a.error
        e = a.error / xp.where(below > 0, below, xp.zeros_like(below))
        return a.like(v, e + unit.share(FUNCTION) * (xp.abs(v) + unit.gamma * e) + unit.tiny)

    def tanh(self, a: Sized) -> Sized:
        xp, unit = self._xp, self._unit
        v = xp.tanh(a.v)
        near = xp.tanh(xp.maximum(xp.abs(a.v) - 2 * unit.gamma * a.error, xp.zeros_like(v)))  # where it is steepest
        return a.like(v, (1 - near * near + 64 * unit.u) * a.error + unit.share(TANH) * xp.abs(v))
