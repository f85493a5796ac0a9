"""Running error analysis: arrays that carry a rigorous bound on their rounding error.

A `Sized` array holds computed values v and sizes e ≥ 0 with

    |computed − exact| ≤ γ e,    γ = γ_K, the relative error of K roundings (see `term_sizes`).

"Computed" is what any evaluation of the same formula gives, whatever the order of its sums. M = |v| + 2γe is at least
its absolute value. Every operation propagates the errors of its arguments and adds its own:

    a b            e = e_a M_b + M_a e_b + (k/K) M_a M_b                     k = 2
    Σ_j a_j b_j    the sum of these                                          k = twice the number of terms
    a + b          e = e_a + e_b + (k/K) (M_a + M_b), the last term only if M_a, M_b > 0
    a − b          e = e_a + e_b + (k/K) (|v| + 2γ (e_a + e_b)), likewise    k = 2
    f(a)           e = sup|f'| e_a + (k/K) |f|, the supremum over |t − v| ≤ γ e_a

The first line is rigorous because fl(ab) − ab = (fl(ab) − âb̂) + (â − a) b̂ + a (b̂ − b), where |b̂| and |a| are at most
M_b and M_a. k/K bounds γ_k/γ_K. Twice the number of terms covers evaluations that compute one sum as two. For an
addition k is the longest chain of additions, whose terms may come in any order.

Comparisons. A comparison is `unsure` if its sides are within 2γ(e_a + e_b) of each other: rounding may have decided it.
`where` then allows for either branch, e = max(e_a, e_b) + |a − b|/γ. That is little if both branches agree at the kink
(ReLU itself), and the whole jump if they do not (its derivative). Two exact sides are compared exactly, so that equal
pixels of blank images leave no doubt.

Directions are `Magnitude`s: sizes of products must be linear in |u|, and values that cancel are not.

Results of products and exponentials below the smallest normal number have at most that error: `tiny`/γ is added.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from hgp_ref.backend import Array, Namespace, device, host_dtype
from hgp_ref.problems.term_sizes import allowance

NO_BOUND = 2.0**64  # units of γ: larger than any useful error


class Unit:
    """γ in the dtype of `like`, and the rounding error of the sizes themselves.

    `chain` is the largest number of additions in a row: each may round the sum of those before it.
    """

    K = 64

    def __init__(self, like: Array, chain: int) -> None:
        kind = np.finfo(host_dtype(like))
        self.u, self.chain = float(kind.eps) / 2, chain
        self.gamma = allowance(self.K, float(kind.eps))
        self.tiny = float(kind.tiny) / self.gamma
        self.blocks, self.lengths = 1, frozenset[int]()  # sums of these lengths continue over so many blocks
        self.rounded = 0.0  # sum of the relative errors of the sizes on the way to a result

    def share(self, k: int) -> float:
        """The error of k roundings in units of γ: at least γ_k/γ."""
        self.rounded += 4 * k * self.u
        return k / self.K / (1 - k * self.u) if 2 * k * self.u < 1 else NO_BOUND

    def of_sum(self, terms: int) -> float:
        """The share of a sum of `terms`, which may be computed as two sums, and be one block of several."""
        return self.share(2 * terms * (self.blocks if terms in self.lengths else 1) + 2)

    def safe(self, a: Sized) -> Sized:
        """`a` with sizes that include their own rounding."""
        return a.like(a.v, a.error * math.exp(min(self.rounded, 100.0)))


class Sized:
    """An array with its error; e is None if it is exact."""

    __array_ufunc__ = None  # NumPy arrays on the left then leave operations to this class
    __array_priority__ = 1000

    def __init__(self, v: Array, e: Array | None, unit: Unit, xp: Namespace) -> None:
        self.v, self.e, self.unit, self.xp = v, e, unit, xp

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.v.shape)

    @property
    def ndim(self) -> int:
        return int(self.v.ndim)

    @property
    def dtype(self) -> Any:
        return self.v.dtype

    @property
    def device(self) -> Any:
        return device(self.v)

    @property
    def size(self) -> Array:
        """M."""
        absolute = self.xp.abs(self.v)
        return absolute if self.e is None else absolute + 2 * self.unit.gamma * self.e

    @property
    def error(self) -> Array:
        """e, zeros if it is None."""
        return self.xp.zeros_like(self.v) if self.e is None else self.e

    def like(self, v: Array, e: Array | None) -> Sized:
        return type(self)(v, e, self.unit, self.xp)

    def result(self, b: Sized, v: Array, e: Array | None) -> Sized:
        """The result of an operation on self and b: a `Magnitude` if one of them is."""
        return (b if isinstance(b, Magnitude) else self).like(v, e)

    def operands(self, b: Sized) -> tuple[Array, Array]:
        """The values of self and b, or their absolute values if one is a `Magnitude`."""
        if isinstance(self, Magnitude) or isinstance(b, Magnitude):
            return self.xp.abs(self.v), self.xp.abs(b.v)
        return self.v, b.v

    def convert(self, other: Any) -> Sized:
        """`other` as a Sized array; arrays and numbers are exact."""
        if isinstance(other, Sized):
            return other
        if isinstance(other, int | float):
            other = self.xp.full_like(self.v, other)
        return Sized(other, None, self.unit, self.xp)

    def __getitem__(self, key: Any) -> Sized:
        return self.like(self.v[key], None if self.e is None else self.e[key])

    def __neg__(self) -> Sized:
        return self.like(-self.v, self.e)

    def __add__(self, other: Any) -> Sized:
        if isinstance(other, int) and other == 0:
            return self
        b = self.convert(other)
        v, w = self.operands(b)
        return self._sum(b, v + w, self.unit.share(self.unit.chain) * (self.size + b.size))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Sized:
        b = self.convert(other)
        if isinstance(self, Magnitude) or isinstance(b, Magnitude):
            return self + b
        v = self.v - b.v
        apart = self.xp.abs(v) + 2 * self.unit.gamma * (self.error + b.error)
        return self._sum(b, v, self.unit.share(2) * apart)

    def __rsub__(self, other: Any) -> Sized:
        return self.convert(other) - self

    def _sum(self, b: Sized, v: Array, local: Array) -> Sized:
        """v = a ± b with the errors of a and b and its own, `local`, unless one of them is zero."""
        xp, e = self.xp, local
        if not (isinstance(self, Magnitude) or isinstance(b, Magnitude)):
            e = xp.where((self.size > 0) & (b.size > 0) & xp.isfinite(local), local, xp.zeros_like(local))
        for operand in (self, b):
            e = e if operand.e is None else e + operand.e
        return self.result(b, v, e)

    def __mul__(self, other: Any) -> Sized:
        b, xp = self.convert(other), self.xp
        (v, w), M, N = self.operands(b), self.size, b.size
        floor = xp.where((M > 0) & (N > 0), xp.full_like(M * N, self.unit.tiny), xp.zeros_like(M * N))
        e = self.unit.share(2) * (M * N) + floor
        e = e if self.e is None else e + self.e * N
        return self.result(b, v * w, e if b.e is None else e + M * b.e)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Sized:
        b, xp = self.convert(other), self.xp
        over, under = self.operands(b)
        v = over / under
        below = xp.abs(b.v) - 2 * self.unit.gamma * b.error
        e = (self.error + xp.abs(v) * b.error) / xp.where(below > 0, below, xp.zeros_like(below))
        return self.result(b, v, e + self.unit.share(4) * (xp.abs(v) + self.unit.gamma * e) + self.unit.tiny)

    def __rtruediv__(self, other: Any) -> Sized:
        return self.convert(other) / self

    def __gt__(self, other: Any) -> SizedBooleans:
        return self._compare(other, operator.gt)

    def __ge__(self, other: Any) -> SizedBooleans:
        return self._compare(other, operator.ge)

    def __le__(self, other: Any) -> SizedBooleans:
        return self._compare(other, operator.le)

    def _compare(self, other: Any, holds: Callable[[Array, Array], Array]) -> SizedBooleans:
        b = self.convert(other)
        margin = 2 * self.unit.gamma * (self.error + b.error)
        return SizedBooleans(holds(self.v, b.v), (self.xp.abs(self.v - b.v) <= margin) & (margin > 0))


class Magnitude(Sized):
    """Upper bounds v ≥ |computed| in place of values: signs are dropped, and differences become sums.

    Products with a direction u start from Magnitude(|u|). Every operation is linear in the magnitudes, so that v and e
    are linear in |u|.
    """

    def __neg__(self) -> Sized:
        return self


class SizedBooleans:
    """Booleans v, and where rounding may have decided them."""

    def __init__(self, v: Array, unsure: Array) -> None:
        self.v, self.unsure = v, unsure

    def __or__(self, other: Array) -> SizedBooleans:
        return SizedBooleans(self.v | other, self.unsure)


class SizedIntegers:
    """Integers v that were selected by `SizedBooleans`, and where these were unsure."""

    def __init__(self, v: Array, unsure: Array) -> None:
        self.v, self.unsure = v, unsure

    def __eq__(self, k: object) -> SizedBooleans:  # type: ignore[override]
        return SizedBooleans(self.v == k, self.unsure)

    __hash__ = None  # type: ignore[assignment]


# ------------------------------------------------------------------------------------- functions of the array library


FUNCTION = 8  # roundings of exp, log and log1p: 4 units in the last place
TANH = 16


class SizedNamespace:
    """The functions of the array library that layers, losses and costs call, for Sized arrays."""

    def __init__(self, unit: Unit, xp: Namespace) -> None:
        self._unit, self._xp = unit, xp
        self.int32, self.int64 = xp.int32, xp.int64

    def exact(self, v: Array) -> Sized:
        """Numbers without error: data and points."""
        return Sized(v, None, self._unit, self._xp)

    def rounded(self, v: Array, k: int) -> Sized:
        """Numbers that were rounded k times, exact for k = 0."""
        return self.exact(v) if k == 0 else Sized(v, self._unit.share(k) * self._xp.abs(v), self._unit, self._xp)

    def direction(self, u: Array) -> Sized:
        """A direction u, as |u|."""
        return Magnitude(self._xp.abs(u), None, self._unit, self._xp)

    # Rearrangements

    def reshape(self, a: Any, shape: tuple[int, ...]) -> Any:
        return self._rearrange(a, lambda b: self._xp.reshape(b, shape))

    def permute_dims(self, a: Any, axes: tuple[int, ...]) -> Any:
        return self._rearrange(a, lambda b: self._xp.permute_dims(b, axes))

    def matrix_transpose(self, a: Any) -> Any:
        return self._rearrange(a, self._xp.matrix_transpose)

    def expand_dims(self, a: Any, *, axis: int) -> Any:
        return self._rearrange(a, lambda b: self._xp.expand_dims(b, axis=axis))

    def broadcast_to(self, a: Any, shape: tuple[int, ...]) -> Any:
        return self._rearrange(a, lambda b: self._xp.broadcast_to(b, shape))

    def take_along_axis(self, a: Any, index: Array, *, axis: int) -> Any:
        return self._rearrange(a, lambda b: self._xp.take_along_axis(b, index, axis=axis))

    def _rearrange(self, a: Any, function: Callable[[Array], Array]) -> Any:
        if not isinstance(a, Sized):
            return function(a)
        return a.like(function(a.v), None if a.e is None else function(a.e))

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
        return (
            self.exact(zeros) if dtype is None else SizedIntegers(zeros, self._xp.zeros_like(a.v, dtype=self._xp.bool))
        )

    def ones_like(self, a: Sized) -> Sized:
        return self.exact(self._xp.ones_like(a.v))

    def full_like(self, a: Any, value: float) -> Any:
        full = self._xp.full_like(a.v, value)
        return SizedIntegers(full, self._xp.zeros_like(a.unsure)) if isinstance(a, SizedIntegers) else self.exact(full)

    def arange(self, stop: int, *, dtype: Any, device: Any) -> Array:
        return self._xp.arange(stop, device=device)  # default integers: 64 bits may be disabled

    def astype(self, a: Any, dtype: Any) -> Any:
        return self.exact(self._xp.astype(a, dtype))

    def isnan(self, a: Sized) -> Array:
        return self._xp.isnan(a.v)

    # Choices

    def where(self, chosen: Any, a: Any, b: Any) -> Any:
        xp = self._xp
        sure = not isinstance(chosen, SizedBooleans)
        v = chosen if sure else chosen.v
        if isinstance(a, SizedIntegers):
            unsure = xp.where(v, a.unsure, b.unsure)
            return SizedIntegers(xp.where(v, a.v, b.v), unsure if sure else unsure | chosen.unsure)
        e = None if a.e is None and b.e is None else xp.where(v, a.error, b.error)
        if not sure:
            if isinstance(a, Magnitude) or isinstance(b, Magnitude):  # the same bound, linear in both
                either = a.error + b.error + (a.v + b.v) / self._unit.gamma
            else:
                either = xp.maximum(a.error, b.error) + xp.abs(a.v - b.v) / self._unit.gamma
            e = xp.where(chosen.unsure, either, xp.zeros_like(either) if e is None else e)
        return a.result(b, xp.where(v, a.v, b.v), e)

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
        v, w = a.operands(b)
        terms = xp.matmul(xp.astype(M > 0, M.dtype), xp.astype(N > 0, N.dtype))  # e itself may underflow
        return a.result(b, xp.matmul(v, w), xp.where(terms > 0, e + a.shape[-1] * self._unit.tiny, e))

    def max(self, a: Sized, *, axis: int, keepdims: bool = False) -> Sized:
        """The largest entry, as an exact number: losses use it as a shift t + log Σ exp(a − t), and any t is right."""
        return a.like(self._xp.max(a.v, axis=axis, keepdims=keepdims), None)

    # Functions

    def abs(self, a: Sized) -> Sized:
        return a.like(self._xp.abs(a.v), a.e)

    def exp(self, a: Sized) -> Sized:
        xp, unit = self._xp, self._unit
        v, growth = xp.exp(a.v), xp.exp(2 * unit.gamma * a.error)
        return a.like(v, v * (growth * a.error + unit.share(FUNCTION) * growth) + unit.tiny)

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
        steepest = xp.tanh(xp.maximum(xp.abs(a.v) - 2 * unit.gamma * a.error, xp.zeros_like(v)))
        return a.like(v, (1 - steepest * steepest + 64 * unit.u) * a.error + unit.share(TANH) * xp.abs(v))
