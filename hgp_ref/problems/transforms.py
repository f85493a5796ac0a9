"""Costs as functions of θ where λ = φ(θ), entry by entry: the chain rule, done once for every such map.

    g_i(x, φ(θ_i)),    ∂_θ f_i = φ'(θ_i) ⊙ ∂_λ f_i,    ∂²_{xθ} g_i u = φ'(θ_i) ⊙ ∂²_{xλ} g_i u,    ∂²_x g_i as it is.

Everything downstream then speaks of θ: hyper-gradients are along θ, and a certificate bounds their error there, row by
row of diag(φ') J, not through the largest φ'.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, from_host, host_dtype
from hgp_ref.problems import lipschitz as constants
from hgp_ref.problems.base import FullLinearization, Problem, as_problem, check_argument, optional
from hgp_ref.problems.instances import PreparedBatch, digest, digest_of
from hgp_ref.problems.linear import LinearProblem
from hgp_ref.problems.lipschitz import Lipschitz
from hgp_ref.problems.neural import NeuralProblem
from hgp_ref.problems.quadratic import Quadratic
from hgp_ref.problems.term_sizes import TermSizes, scaled

Batch = Array | PreparedBatch | None


class Elementwise(ABC):
    """The problem `inner` in the variable θ, which the members below call lam; a subclass gives φ and φ'."""

    broadcasts = True
    weighs_instances = False  # φ(0) is no removal
    _roundings = 40  # of φ(θ) and φ'(θ): two exponentials of 4 units in the last place, quotients and a product

    def __init__(self, inner: Problem) -> None:
        self._inner = as_problem(inner)
        self.n_clients, self.dim_x, self.dim_lam = self._inner.n_clients, self._inner.dim_x, self._inner.dim_lam

    @abstractmethod
    def _value(self, theta: Array) -> Array:
        """φ(θ), in an array of its own."""

    @abstractmethod
    def _slope(self, theta: Array) -> Array:
        """φ'(θ)."""

    @property
    def clients(self) -> np.ndarray:
        """Their numbers in the problem that this one is a restriction of."""
        return self._inner.clients

    @property
    def counts(self) -> np.ndarray | None:
        """Training instances of each client, on the host; None where the problem has none.  # (n,)"""
        return self._inner.counts

    def inner_cost(self, x: Array, lam: Array, batch: Batch = None) -> Array:
        """g_i(x, φ(θ_i)).  # (n,)"""
        return self._inner.inner_cost(x, self._at(x, lam), **_given(batch))

    def inner_grad(self, x: Array, lam: Array, batch: Batch = None) -> Array:
        """∂_x g_i.  # (n, d_x)"""
        return self._inner.inner_grad(x, self._at(x, lam), **_given(batch))

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """f_i(x, φ(θ_i)).  # (n,)"""
        return self._inner.outer_cost(x, self._at(x, lam))

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """∂_x f_i and φ'(θ_i) ⊙ ∂_λ f_i.  # (n, d_x), (n, d_λ)"""
        along_x, along_lam = self._inner.outer_grad(x, self._at(x, lam))
        return along_x, self._slope(lam) * along_lam

    def linearize(self, x: Array, lam: Array, batch: Batch = None) -> ElementwiseLinearization:
        """∂²_x g_i, and ∂²_{xλ} g_i with rows times φ'(θ_i)."""
        inner = self._inner.linearize(x, self._at(x, lam), **_given(batch))
        return ElementwiseLinearization(inner, self._slope(lam))

    @property
    def hessian(self) -> Callable[..., Array] | None:
        """∂²_x g_i in closed form, where the problem has one.  # (n, d_x, d_x)"""
        return None if self._inner.hessian is None else self._hessian

    @property
    def jacobian(self) -> Callable[..., Array] | None:
        """diag(φ'(θ_i)) ∂²_{xλ} g_i in closed form, where the problem has one.  # (n, d_λ, d_x)"""
        return None if self._inner.jacobian is None else self._jacobian

    @property
    def lipschitz(self) -> Callable[[Array], Lipschitz | None] | None:
        """Constants along x: those of ∂_λ f and J are at most max |φ'| times those of the problem."""
        return None if self._inner.lipschitz is None else self._lipschitz

    @property
    def term_sizes(self) -> Callable[[Array, Array], TermSizes] | None:
        """Those of the problem, times |φ'| along θ, where it has them; see `problems.term_sizes`."""
        return None if self._inner.term_sizes is None else self._term_sizes

    def prepare_batches(self, host_batches: np.ndarray, like: Array) -> Any:
        """Mini-batches taken to the device of `like` at once; see `problems.normalised`."""
        return self._inner.prepare_batches(host_batches, like)

    def data_digest(self) -> str | None:
        """SHA-256 of the problem's data, None where it does not say; see `digests`."""
        inner = digest_of(self._inner)
        return None if inner is None else digest(self, inner)

    def restrict(self, clients: slice | Sequence[int] | np.ndarray) -> Any:
        """The same problem with some of its clients, a slice or indices."""
        return self._of(self._inner.restrict(clients).given)

    def to(self, target: Any, dtype: Any = None) -> Any:
        """The same problem in another library (its name, or an array to be beside) and, if given, another dtype."""
        move = optional(self._inner.given, "to")
        if not callable(move):
            raise TypeError(f"problem: {type(self._inner.given).__name__} has no method to(target, dtype), needed here")
        return self._of(move(target, dtype))

    def _of(self, inner: Problem) -> Any:
        other = copy.copy(self)
        other._inner = as_problem(inner)
        other.n_clients = other._inner.n_clients
        return other

    def _like(self) -> Array:
        given: Any = self._inner.given
        return given._like()

    def _at(self, x: Array, theta: Array) -> Array:
        """λ = φ(θ), after a look at what was given."""
        data = getattr(self._inner.given, "_like", None)  # of built-in problems, which look at x themselves
        if data is None:
            validation.array("x", x)
        check_argument(
            "lam", theta, x if data is None else data(), (self.n_clients, self.dim_lam), "n_clients, dim_lam"
        )
        return self._value(theta)

    def _hessian(self, x: Array, lam: Array, batch: Batch = None) -> Array:
        closed: Any = self._inner.hessian
        return closed(x, self._at(x, lam), batch)

    def _jacobian(self, x: Array, lam: Array, batch: Batch = None) -> Array:
        closed: Any = self._inner.jacobian
        return closed(x, self._at(x, lam), batch) * self._slope(lam)[..., None]

    def _term_sizes(self, x: Array, lam: Array) -> TermSizes:
        """φ(θ) ≥ 0 and φ'(θ) round `_roundings` times each, and so does what is multiplied by them.

        Below the smallest normal number they are known to that number only.

        A neural problem is told that its λ was rounded. In other problems λ is a factor of terms, at most twice, so
        that these terms are rounded more often. How much of a size they are is known of the linear models and of
        quadratic costs, whose sizes at λ = 0 are those of the other terms.
        """
        at, slope, given, k = self._at(x, lam), self._slope(lam), self._inner.given, self._roundings
        f_lam, kind = self._inner.outer_grad(x, at)[1], np.finfo(host_dtype(x))
        floor = 2 * float(kind.smallest_normal) / float(kind.eps)  # φ and φ' among subnormal numbers: u · floor
        at, slope = at + floor, array_namespace(slope).abs(slope) + floor
        sizes = given._term_sizes(x, at, k) if isinstance(given, NeuralProblem) else self._with_factors(x, at)
        K = sizes.roundings
        return replace(
            sizes,
            outer_grad=(sizes.outer_grad[0], scaled(slope, sizes.outer_grad[1], k + 2, K, f_lam)),
            cross=lambda u: scaled(slope, sizes.cross(u), k + 2, K),
        )

    def _with_factors(self, x: Array, lam: Array) -> TermSizes:
        """Sizes where every factor λ of a term was rounded `_roundings` times."""
        told: Any = self._inner.term_sizes
        xp, sizes = array_namespace(lam), told(x, lam)
        own = isinstance(self._inner.given, LinearProblem | Quadratic)
        rest = told(x, xp.zeros_like(lam)) if own else None

        def grown(get: Callable[[TermSizes], Array]) -> Array:
            size = get(sizes)
            others = xp.zeros_like(size) if rest is None else get(rest)
            factors = xp.maximum(size - others, xp.zeros_like(size)) + 8 * float(xp.finfo(size.dtype).eps) * size
            return size + 2 * self._roundings * factors

        return replace(
            sizes,
            inner_cost=grown(lambda s: s.inner_cost),
            inner_grad=grown(lambda s: s.inner_grad),
            outer_cost=grown(lambda s: s.outer_cost),
            outer_grad=(grown(lambda s: s.outer_grad[0]), grown(lambda s: s.outer_grad[1])),
            hvp=lambda u: grown(lambda s: s.hvp(u)),
            cross=lambda u: grown(lambda s: s.cross(u)),
        )

    def _lipschitz(self, lam: Array) -> Lipschitz | None:
        validation.same_kind(lam=lam)
        validation.shape("lam", lam, (self.n_clients, self.dim_lam), "(n_clients, dim_lam)", run_axes=False)
        told: Any = self._inner.lipschitz(self._value(lam))  # type: ignore[misc]
        if told is None:
            return None
        steepest = float(np.max(np.abs(constants.host(self._slope(lam))))) * (1 + 8 * np.finfo(np.float32).eps)
        nu = told if isinstance(told, Lipschitz) else Lipschitz(**told)
        return constants.representable(
            nu_flam=nu.nu_flam * steepest,
            nu_fx=nu.nu_fx,
            nu_J=nu.nu_J * steepest,
            nu_H=nu.nu_H,
            strong_convexity=nu.strong_convexity,
            holds_apart=nu.holds_apart,
        )


class ElementwiseLinearization:
    """Second derivatives at a fixed point; `slope` is φ'(θ)."""

    def __init__(self, inner: FullLinearization, slope: Array) -> None:
        self._inner, self._slope = inner, slope

    def hvp(self, u: Array) -> Array:
        """∂²_x g_i u_i.  # (n, d_x)"""
        return self._inner.hvp(u)

    def cross(self, u: Array) -> Array:
        """φ'(θ_i) ⊙ ∂²_{xλ} g_i u_i.  # (n, d_λ)"""
        return self._slope * self._inner.cross(u)

    def products(self, u: Array) -> tuple[Array, Array]:
        """Both."""
        bent, crossed = self._inner.products(u)
        return bent, self._slope * crossed

    def on(self, batch: Any) -> ElementwiseLinearization:
        """The same point on a mini-batch, of a problem whose linearization can."""
        inner: Any = self._inner
        return ElementwiseLinearization(inner.on(batch), self._slope)


class LogRates(Elementwise):
    """Rates by their logarithms: the costs of `problem` at λ = exp(θ), with hyper-gradients along θ.

    Rates such as L2 terms must be positive and may differ by orders of magnitude; θ may be any number, and equal steps
    of it are equal ratios of λ. `bilevel.optimise(..., log=True)` uses this.

    Parameters
    ----------
    inner : Problem
        Whose λ are rates.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> data = hgp.data.synthetic_mixture(n_clients=3, seed=3)
    >>> rates = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
    >>> lam = np.full((3, rates.dim_lam), 0.03)
    >>> x = hgp.exact.inner_solution(rates, lam)
    >>> along_theta = hgp.exact.hypergradient(hgp.problems.LogRates(rates), x, np.log(lam))
    >>> bool(np.allclose(along_theta, lam * hgp.exact.hypergradient(rates, x, lam)))
    True
    """

    _roundings = 8  # of one exponential

    def _value(self, theta: Array) -> Array:
        with np.errstate(over="ignore"):  # an infinite rate is for the problem to refuse
            return array_namespace(theta).exp(theta)

    def _slope(self, theta: Array) -> Array:
        return self._value(theta)


def _given(batch: Batch) -> dict[str, Any]:
    return {} if batch is None else {"batch": batch}


# ----------------------------------------------------------------------------------------------------
# The costs of a problem with weights on the inner ones: what clients minimise together is Σ_i c_i g_i.
#
#     x(λ) = argmin_x Σ_i c_i g_i(x, λ_i),    d_{λ_i} Σ_k f_k = ∂_λ f_i − c_i J_i (Σ_k c_k H_k)⁻¹ Σ_k ∂_x f_k,
#
# so that c_i g_i takes the place of g_i with all its derivatives, and f_i stays. Means of models by training size, as
# in
# FedAvg, go with c_i = n N_i / Σ_k N_k.


class Weighed:
    """`inner` with c_i g_i in place of g_i, for weights c (n,) > 0 on the host."""

    broadcasts = True

    def __init__(self, inner: Problem, weights: np.ndarray) -> None:
        self._inner, self._c = as_problem(inner), np.asarray(weights, dtype=np.float64)
        self.n_clients, self.dim_x, self.dim_lam = self._inner.n_clients, self._inner.dim_x, self._inner.dim_lam
        self.counts, self.clients = self._inner.counts, self._inner.clients
        self.outer_cost, self.outer_grad = self._inner.outer_cost, self._inner.outer_grad
        self.prepare_batches = self._inner.prepare_batches
        self.term_sizes = None if self._inner.term_sizes is None else self._term_sizes

    def inner_cost(self, x: Array, lam: Array, batch: Batch = None) -> Array:
        """c_i g_i.  # (n,)"""
        return self._weights(x)[:, 0] * self._inner.inner_cost(x, lam, batch)

    def inner_grad(self, x: Array, lam: Array, batch: Batch = None) -> Array:
        """c_i ∂_x g_i.  # (n, d_x)"""
        return self._weights(x) * self._inner.inner_grad(x, lam, batch)

    def linearize(self, x: Array, lam: Array, batch: Batch = None) -> WeighedLinearization:
        """c_i ∂²_x g_i and c_i ∂²_{xλ} g_i."""
        return WeighedLinearization(self._inner.linearize(x, lam, batch), self._weights(x))

    def _term_sizes(self, x: Array, lam: Array) -> TermSizes:
        """c_i times those of g_i, and two roundings of the results: of c_i and of the product."""
        told: Any = self._inner.term_sizes
        sizes, c = told(x, lam), self._weights(x)
        K, cost, gradient = sizes.roundings, self._inner.inner_cost(x, lam), self._inner.inner_grad(x, lam)
        return replace(
            sizes,
            inner_cost=scaled(c[:, 0], sizes.inner_cost, 3, K, cost),
            inner_grad=scaled(c, sizes.inner_grad, 3, K, gradient),
            hvp=lambda u: scaled(c, sizes.hvp(u), 3, K),
            cross=lambda u: scaled(c, sizes.cross(u), 3, K),
        )

    def data_digest(self) -> str | None:
        """SHA-256 of the problem's data and the weights, None where it does not say; see `digests`."""
        inner = digest_of(self._inner)
        return None if inner is None else digest(self, inner, self._c)

    def _weights(self, like: Array) -> Array:
        return from_host(self._c.astype(host_dtype(like))[:, None], like=like)  # (n, 1)


class WeighedLinearization:
    """Second derivatives at a fixed point, times c (n, 1)."""

    def __init__(self, inner: FullLinearization, c: Array) -> None:
        self._inner, self._c = inner, c

    def hvp(self, u: Array) -> Array:
        """c_i ∂²_x g_i u_i.  # (n, d_x)"""
        return self._c * self._inner.hvp(u)

    def cross(self, u: Array) -> Array:
        """c_i ∂²_{xλ} g_i u_i.  # (n, d_λ)"""
        return self._c * self._inner.cross(u)

    def products(self, u: Array) -> tuple[Array, Array]:
        """Both."""
        bent, crossed = self._inner.products(u)
        return self._c * bent, self._c * crossed

    def on(self, batch: Any) -> WeighedLinearization:
        """The same point on a mini-batch, of a problem whose linearization can."""
        inner: Any = self._inner
        return WeighedLinearization(inner.on(batch), self._c)
