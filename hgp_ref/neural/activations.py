"""Functions of each number by itself: z = σ(a),  ż = σ'(a) ȧ,  δ' = σ'(a) δ,  δ̇' = σ'(a) δ̇ + σ''(a) ȧ δ."""

from __future__ import annotations

from hgp_ref.backend import Array, Namespace
from hgp_ref.neural.layer import Shape, Unparametrised


class Elementwise(Unparametrised):
    """Keeps the shape."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def output_shape(self, shape: Shape) -> Shape:
        return shape


class ReLU(Elementwise):
    """max(a, 0), with σ'(0) = 0; NaN stays NaN.

    Examples
    --------
    >>> hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3), hgp.neural.ReLU(), hgp.neural.Linear(3, 2)).dim
    23
    """

    def forward(self, p: list[Array], a: Array, xp: Namespace) -> tuple[Array, Array]:
        dead = a <= 0
        return self.push(dead, a, xp), dead

    def push(self, kept: Array, a_dot: Array, xp: Namespace) -> Array:
        return xp.where(kept, xp.zeros_like(a_dot), a_dot)

    def back(self, kept: Array, delta: Array, xp: Namespace) -> Array:
        return self.push(kept, delta, xp)


class Tanh(Elementwise):
    """σ = tanh, σ' = 1 - σ², σ'' = -2 σ σ'.

    Examples
    --------
    >>> hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3), hgp.neural.Tanh(), hgp.neural.Linear(3, 2)).dim
    23
    """

    def forward(self, p: list[Array], a: Array, xp: Namespace) -> tuple[Array, Array]:
        t = xp.tanh(a)
        return t, t

    def push(self, kept: Array, a_dot: Array, xp: Namespace) -> Array:
        return (1 - kept * kept) * a_dot

    def back(self, kept: Array, delta: Array, xp: Namespace) -> Array:
        return self.push(kept, delta, xp)

    def bend(self, kept: Array, a_dot: Array, delta: Array, xp: Namespace) -> Array:
        return -2 * kept * (1 - kept * kept) * a_dot * delta


class Softplus(Elementwise):
    """σ = log(1 + exp a), σ' = 1 / (1 + exp(-a)), σ'' = σ' (1 - σ').

    PyTorch replaces σ by a beyond a = 20, which is wrong by up to 2e-9; here it is exact everywhere.

    Examples
    --------
    >>> hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3), hgp.neural.Softplus(), hgp.neural.Linear(3, 2)).dim
    23
    """

    def forward(self, p: list[Array], a: Array, xp: Namespace) -> tuple[Array, tuple[Array, Array]]:
        e = xp.exp(-xp.abs(a))
        up, small = a >= 0, 1 / (1 + e)  # σ'(|a|)
        slope, rest = xp.where(up, small, e * small), xp.where(up, e * small, small)  # σ'(a), 1 - σ'(a)
        return xp.where(up, a, xp.zeros_like(a)) + xp.log1p(e), (slope, slope * rest)

    def push(self, kept: tuple[Array, Array], a_dot: Array, xp: Namespace) -> Array:
        return kept[0] * a_dot

    def back(self, kept: tuple[Array, Array], delta: Array, xp: Namespace) -> Array:
        return kept[0] * delta

    def bend(self, kept: tuple[Array, Array], a_dot: Array, delta: Array, xp: Namespace) -> Array:
        return kept[1] * a_dot * delta
