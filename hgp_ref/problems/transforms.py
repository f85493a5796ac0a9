"""Problems made from another one by a change of variables λ = φ(θ), weights of clients, damping, or f = g.

Reparametrised, entry by entry:

    g_i(x, φ(θ_i)),    ∂_θ f_i = φ'(θ_i) ⊙ ∂_λ f_i,    ∂²_{xθ} g_i u = φ'(θ_i) ⊙ ∂²_{xλ} g_i u,    ∂²_x g_i unchanged.

Hyper-gradients are then along θ, and a certificate bounds their error there, row by row of diag(φ') J.

Clients with weights c_i in the inner cost, such as c_i = n N_i / Σ_k N_k of FedAvg:

    x(λ) = argmin_x Σ_i c_i g_i(x, λ_i),    d_{λ_i} Σ_k f_k = ∂_λ f_i − c_i J_i (Σ_k c_k H_k)⁻¹ Σ_k ∂_x f_k.

With f = g, the vector w = (Σ H_k)⁻¹ Σ ∂_x g_k that hyper-gradient methods compute is Newton's step of training.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, computes_on_device, device, from_host, host_dtype
from hgp_ref.problems import lipschitz as constants
from hgp_ref.problems.base import (
    CURVATURES,
    Clients,
    FullLinearization,
    FullProblem,
    Problem,
    as_problem,
    check_argument,
    client_indices,
    optional,
    separately,
)
from hgp_ref.problems.instances import digest, digest_of
from hgp_ref.problems.linear import LinearProblem
from hgp_ref.problems.lipschitz import Lipschitz
from hgp_ref.problems.neural import NeuralProblem
from hgp_ref.problems.quadratic import Quadratic
from hgp_ref.problems.term_sizes import TermSizes, scaled


class Transformed(FullProblem):
    """A problem that passes every call on to the problem `inner`; subclasses override what they change."""

    _like: Callable[[], Array]  # where the inner problem is a built-in one

    def __init__(self, inner: Problem) -> None:
        self._set_inner(inner)

    def _set_inner(self, inner: Problem) -> None:
        self._inner = as_problem(inner)
        self.n_clients, self.dim_x, self.dim_lam = self._inner.n_clients, self._inner.dim_x, self._inner.dim_lam
        self.clients = self._inner.clients
        like = optional(self._inner.wrapped, "_like")
        if like is not None:
            self._like = like

    def _with_inner(self, inner: Problem) -> Any:
        """The same transform of another problem."""
        other = copy.copy(self)
        other._set_inner(inner)
        return other

    @property
    def counts(self) -> np.ndarray | None:
        """The training instances of each client, on the host; None without instances.  # (n,)"""
        return self._inner.counts

    def inner_cost(self, x: Array, lam: Array, batch: Any = None) -> Array:
        """g_i.  # (n,)"""
        return self._inner.inner_cost(x, lam, batch)

    def inner_grad(self, x: Array, lam: Array, batch: Any = None) -> Array:
        """∂_x g_i.  # (n, d_x)"""
        return self._inner.inner_grad(x, lam, batch)

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """f_i.  # (n,)"""
        return self._inner.outer_cost(x, lam)

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """∂_x f_i and ∂_λ f_i.  # (n, d_x), (n, d_λ)"""
        return self._inner.outer_grad(x, lam)

    def linearize(self, x: Array, lam: Array, batch: Any = None) -> FullLinearization:
        """H_i and J_i."""
        return self._inner.linearize(x, lam, batch)

    @property
    def term_sizes(self) -> Any:
        """The function (x, lam) ↦ `TermSizes`, or None."""
        return None if self._inner.term_sizes is None else self._term_sizes

    @abstractmethod
    def _term_sizes(self, x: Array, lam: Array) -> TermSizes: ...

    def prepare_batches(self, host_batches: np.ndarray, like: Array) -> Any:
        """Mini-batches (count, streams, [runs,] n, b) on the device of `like`; entry [k, stream] is a `batch`."""
        return self._inner.prepare_batches(host_batches, like)

    def device_batches(self, size: int, replace: bool, like: Array) -> Any | None:
        """Draws mini-batches on the device of `like`; None if the host draws them."""
        return self._inner.device_batches(size, replace, like)

    def data_digest(self) -> str | None:
        """SHA-256 of the data of the inner problem and of this transform; None if the inner problem has no digest."""
        inner = digest_of(self._inner)
        return None if inner is None else digest(self, inner, *self._digest_parts())

    def _digest_parts(self) -> tuple[Any, ...]:
        return ()

    def restrict(self, clients: Clients) -> Any:
        """The same problem for some of its clients, a slice or indices."""
        return self._with_inner(self._inner.restrict(clients).wrapped)

    def to(self, target: Any, dtype: Any = None, device: Any = None) -> Any:
        """The same problem in another library (its name, or one of its arrays), and optionally another dtype.

        `device` chooses the device of a library given by its name, as in `hgp.backend.get_backend`.
        """
        move = optional(self._inner.wrapped, "to")
        if not callable(move):
            name = type(self._inner.wrapped).__name__
            raise TypeError(f"problem must have a method to(target, dtype), got {name}, which has none")
        return self._with_inner(move(target, dtype) if device is None else move(target, dtype, device))


class TransformedLinearization:
    """The second derivatives a H_i + μI and b J_i, from H_i and J_i of a linearization; None leaves a part out."""

    def __init__(
        self, inner: FullLinearization, a: Array | None = None, b: Array | None = None, mu: float | None = None
    ) -> None:
        self._inner, self._a, self._b, self._mu = inner, a, b, mu

    def hvp(self, u: Array) -> Array:
        """a H_i u_i + μ u_i.  # (n, d_x)"""
        return self._hvp(self._inner.hvp(u), u)

    def cross(self, u: Array) -> Array:
        """b ⊙ J_i u_i.  # (n, d_λ)"""
        return self._cross(self._inner.cross(u))

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u)."""
        Hu, Ju = self._inner.products(u)
        return self._hvp(Hu, u), self._cross(Ju)

    def _hvp(self, Hu: Array, u: Array) -> Array:
        Hu = Hu if self._a is None else self._a * Hu
        return Hu if self._mu is None else Hu + self._mu * u

    def _cross(self, Ju: Array) -> Array:
        return Ju if self._b is None else self._b * Ju

    def separately(self) -> TransformedLinearization:
        """The same point, with one product for each entry of the run axes of u."""
        return TransformedLinearization(separately(self._inner), self._a, self._b, self._mu)

    @property
    def on(self) -> Any:
        """The function batch ↦ the same point on a mini-batch, or None if the inner linearization has none."""
        on = optional(self._inner, "on")
        return None if on is None else lambda batch: TransformedLinearization(on(batch), self._a, self._b, self._mu)


# ------------------------------------------------------------------------------------------ change of variables


class Reparametrised(Transformed):
    """The problem `inner` in the variable θ, which the methods call lam; a subclass defines φ and φ'."""

    weighs_instances = False  # φ(0) does not remove an instance
    _roundings = 40  # of φ(θ) and φ'(θ): two exponentials of 4 units in the last place, quotients and a product

    @abstractmethod
    def _value(self, theta: Array) -> Array:
        """φ(θ), in a new array."""

    @abstractmethod
    def _slope(self, theta: Array) -> Array:
        """φ'(θ)."""

    def inner_cost(self, x: Array, lam: Array, batch: Any = None) -> Array:
        """g_i(x, φ(θ_i)).  # (n,)"""
        return self._inner.inner_cost(x, self._phi(x, lam), batch)

    def inner_grad(self, x: Array, lam: Array, batch: Any = None) -> Array:
        """∂_x g_i.  # (n, d_x)"""
        return self._inner.inner_grad(x, self._phi(x, lam), batch)

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """f_i(x, φ(θ_i)).  # (n,)"""
        return self._inner.outer_cost(x, self._phi(x, lam))

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """∂_x f_i and φ'(θ_i) ⊙ ∂_λ f_i.  # (n, d_x), (n, d_λ)"""
        f_x, f_lam = self._inner.outer_grad(x, self._phi(x, lam))
        return f_x, self._slope(lam) * f_lam

    def linearize(self, x: Array, lam: Array, batch: Any = None) -> TransformedLinearization:
        """∂²_x g_i and diag(φ'(θ_i)) ∂²_{xλ} g_i."""
        return TransformedLinearization(self._inner.linearize(x, self._phi(x, lam), batch), b=self._slope(lam))

    @property
    def hessian(self) -> Any:
        """The function (x, lam, batch=None) ↦ ∂²_x g_i in closed form, or None.  # (n, d_x, d_x)"""
        closed = self._inner.hessian
        if closed is None:
            return None
        return computes_on_device(lambda x, lam, batch=None: closed(x, self._phi(x, lam), batch))

    @property
    def jacobian(self) -> Any:
        """The function (x, lam, batch=None) ↦ diag(φ'(θ_i)) ∂²_{xλ} g_i, or None.  # (n, d_λ, d_x)"""
        closed = self._inner.jacobian
        if closed is None:
            return None
        return computes_on_device(
            lambda x, lam, batch=None: closed(x, self._phi(x, lam), batch) * self._slope(lam)[..., None]
        )

    @property
    def lipschitz(self) -> Any:
        """The function lam ↦ constants along x: those of ∂_λ f and J times max |φ'|."""
        return None if self._inner.lipschitz is None else self._lipschitz

    def _phi(self, x: Array, theta: Array) -> Array:
        """λ = φ(θ); validates θ, and x unless the inner problem does."""
        like = x
        if hasattr(self, "_like"):
            like = self._like()
        else:
            validation.array("x", x)
        check_argument("lam", theta, like, (self.n_clients, self.dim_lam), "n_clients, dim_lam")
        return self._value(theta)

    def _term_sizes(self, x: Array, lam: Array) -> TermSizes:
        """φ(θ) ≥ 0 and φ'(θ) have `_roundings` roundings each, which are added to those of terms with λ.

        An error below the smallest normal number is covered by u · `floor`. A neural problem takes the roundings of λ
        as an argument. In other problems λ is a factor of terms, at most twice. For linear models and quadratic costs
        the terms without λ are known: they are the size at λ = 0.
        """
        value, slope, inner, k = self._phi(x, lam), self._slope(lam), self._inner.wrapped, self._roundings
        f_lam, kind = self._inner.outer_grad(x, value)[1], np.finfo(host_dtype(x))
        floor = 2 * float(kind.smallest_normal) / float(kind.eps)
        value, slope = value + floor, array_namespace(slope).abs(slope) + floor
        sizes = inner._term_sizes(x, value, k) if isinstance(inner, NeuralProblem) else self._with_factors(x, value)
        K = sizes.roundings
        return replace(
            sizes,
            outer_grad=(sizes.outer_grad[0], scaled(slope, sizes.outer_grad[1], k + 2, K, f_lam)),
            cross=lambda u: scaled(slope, sizes.cross(u), k + 2, K),
        )

    def _with_factors(self, x: Array, lam: Array) -> TermSizes:
        """Sizes if every factor λ of a term has `_roundings` roundings."""
        xp, sizes = array_namespace(lam), self._inner.term_sizes(x, lam)
        separable = isinstance(self._inner.wrapped, LinearProblem | Quadratic)
        at_zero = self._inner.term_sizes(x, xp.zeros_like(lam)) if separable else None

        def grown(get: Callable[[TermSizes], Array]) -> Array:
            size = get(sizes)
            rest = xp.zeros_like(size) if at_zero is None else get(at_zero)
            with_lam = xp.maximum(size - rest, xp.zeros_like(size)) + 8 * float(xp.finfo(size.dtype).eps) * size
            return size + 2 * self._roundings * with_lam

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
        inner = self._inner.lipschitz(self._value(lam))
        if inner is None:
            return None
        steepest = float(np.max(np.abs(constants.host(self._slope(lam))))) * (1 + 8 * np.finfo(np.float32).eps)
        nu = inner if isinstance(inner, Lipschitz) else Lipschitz(**inner)
        return constants.representable(
            nu_flam=nu.nu_flam * steepest,
            nu_fx=nu.nu_fx,
            nu_J=nu.nu_J * steepest,
            nu_H=nu.nu_H,
            strong_convexity=nu.strong_convexity,
            holds_apart=nu.holds_apart,
        )


class LogRates(Reparametrised):
    """Regularisation rates by their logarithms: the costs of `inner` at λ = exp(θ), with hyper-gradients along θ.

    Rates must be positive and may differ by orders of magnitude. θ may be any number, and equal steps of θ are equal
    ratios of λ. Updates of `bilevel.optimise` with log=True use this class.

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

    trusted = True
    _roundings = 8  # of one exponential

    def _value(self, theta: Array) -> Array:
        with np.errstate(over="ignore"):  # an infinite rate is for the problem to refuse
            return array_namespace(theta).exp(theta)

    def _slope(self, theta: Array) -> Array:
        return self._value(theta)


# ------------------------------------------------------------------------------------------- weights of clients


class WeightedClients(Transformed):
    """The problem `inner` with c_i g_i in place of g_i, for weights c (n,) > 0 on the host; f_i is unchanged."""

    trusted = True

    def __init__(self, inner: Problem, weights: np.ndarray) -> None:
        super().__init__(inner)
        self._c = np.asarray(weights, dtype=np.float64)

    def inner_cost(self, x: Array, lam: Array, batch: Any = None) -> Array:
        """c_i g_i.  # (n,)"""
        return self._weights(x)[:, 0] * self._inner.inner_cost(x, lam, batch)

    def inner_grad(self, x: Array, lam: Array, batch: Any = None) -> Array:
        """c_i ∂_x g_i.  # (n, d_x)"""
        return self._weights(x) * self._inner.inner_grad(x, lam, batch)

    def linearize(self, x: Array, lam: Array, batch: Any = None) -> TransformedLinearization:
        """c_i ∂²_x g_i and c_i ∂²_{xλ} g_i."""
        c = self._weights(x)
        return TransformedLinearization(self._inner.linearize(x, lam, batch), c, c)

    def restrict(self, clients: Clients) -> WeightedClients:
        """The same problem for some of its clients, a slice or indices."""
        some: WeightedClients = super().restrict(clients)
        some._c = self._c[client_indices(clients, self.n_clients)]
        return some

    def _term_sizes(self, x: Array, lam: Array) -> TermSizes:
        """c_i times those of g_i, and two more roundings: of c_i and of the product."""
        sizes, c = self._inner.term_sizes(x, lam), self._weights(x)
        K, cost, gradient = sizes.roundings, self._inner.inner_cost(x, lam), self._inner.inner_grad(x, lam)
        return replace(
            sizes,
            inner_cost=scaled(c[:, 0], sizes.inner_cost, 3, K, cost),
            inner_grad=scaled(c, sizes.inner_grad, 3, K, gradient),
            hvp=lambda u: scaled(c, sizes.hvp(u), 3, K),
            cross=lambda u: scaled(c, sizes.cross(u), 3, K),
        )

    def _digest_parts(self) -> tuple[Any, ...]:
        return (self._c,)

    def _weights(self, like: Array) -> Array:
        return from_host(self._c.astype(host_dtype(like))[:, None], like=like)  # (n, 1)


# ------------------------------------------------------------------------------------------------ damping


class Damped(Transformed):
    """The problem `inner` with damped curvature: H_i + μI in place of H_i, everything else unchanged.

    Where the inner cost is not convex, as for neural networks, H̄ = mean_i H_i may have eigenvalues near or below 0. The
    series for w* = H̄⁻¹ mean_i ∂_x f_i then diverges or amplifies directions without information. With damping

        (H̄ + μI) w = mean_i ∂_x f_i,    d_i = ∂_λ f_i − J_i w.

    At the point x₀ where the problem is linearized these are the derivatives of the inner cost g_i(x) + (μ/2)|x − x₀|²:
    the predicted change is that of training which must stay near x₀. Costs and gradients are those of `inner`, so
    training and retraining do not change. Certificates refer to the damped system and say so (`cert.damping`), and
    report the smallest eigenvalue of H̄ itself (`cert.smallest_eigenvalue`).

    Parameters
    ----------
    mu : μ >= 0. It must exceed −λ_min(H̄) for the series to converge.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> x, lam = np.ones((3, 4)), np.zeros((3, 2))
    >>> damped = hgp.problems.Damped(problem, mu=0.5)
    >>> bool(np.allclose(damped.linearize(x, lam).hvp(x), problem.linearize(x, lam).hvp(x) + 0.5 * x))
    True
    """

    trusted = True

    def __init__(self, inner: Problem, mu: float) -> None:
        super().__init__(inner)
        self.mu = validation.nonnegative("mu", mu)

    @property
    def undamped(self) -> Problem:
        """The problem without damping."""
        return self._inner.wrapped

    @property
    def weighs_instances(self) -> bool | None:
        """Whether λ weighs training instances; None if the inner problem does not say so."""
        return optional(self.undamped, "weighs_instances")

    @property
    def validation_counts(self) -> np.ndarray | None:
        """Validation instances of each client, or None.  # (n,)"""
        return optional(self._inner, "validation_counts")

    @property
    def validation_grad(self) -> Any:
        """The function (x, lam, batch) ↦ gradient on validation instances, or None."""
        return optional(self._inner, "validation_grad")

    @property
    def jacobian(self) -> Any:
        """The function (x, lam, batch=None) ↦ J_i in closed form, or None."""
        return self._inner.jacobian

    @property
    def jacobian_norms(self) -> Any:
        """The function (x, lam) ↦ upper bounds on the norms of J_i, or None."""
        return self._inner.jacobian_norms

    def linearize(self, x: Array, lam: Array, batch: Any = None) -> TransformedLinearization:
        """H_i + μI and J_i."""
        return TransformedLinearization(self._inner.linearize(x, lam, batch), mu=self.mu)

    @property
    def hessian(self) -> Any:
        """The function (x, lam, batch=None) ↦ H_i + μI in closed form, or None.  # (n, d_x, d_x)"""
        closed = self._inner.hessian
        return None if closed is None else lambda x, lam, batch=None: self._with_mu(closed(x, lam, batch))

    def _with_mu(self, H: Array) -> Array:
        return H + self.mu * array_namespace(H).eye(self.dim_x, dtype=H.dtype, device=device(H))

    def _term_sizes(self, x: Array, lam: Array) -> TermSizes:
        """One more term μ u of a product, with the roundings of μ, of the product and of the sum."""
        sizes, xp = self._inner.term_sizes(x, lam), array_namespace(x)
        tiny = float(np.finfo(host_dtype(x)).smallest_normal)
        return replace(
            sizes,
            roundings=max(sizes.roundings + 1, 3),
            hvp=lambda u: sizes.hvp(u) + (self.mu * xp.abs(u) + tiny),
        )


def modified_curvature(problem: object) -> tuple[float, str]:
    """How products differ from those with the Hessian: the sum of μ of `Damped` problems, and the kind of curvature."""
    mu = 0.0
    while isinstance(problem, Transformed):
        mu += problem.mu if isinstance(problem, Damped) else 0.0
        problem = problem._inner.wrapped
    return mu, optional(problem, "curvature") if optional(problem, "curvature") in CURVATURES else "hessian"


# ------------------------------------------------------------------------------------------------ Newton's step


class InnerGradientProblem(Transformed):
    """The problem `inner` with f = g, of which only ∂_x counts: w is then Newton's step of the inner problem."""

    trusted = True

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """g_i.  # (n,)"""
        return self._inner.inner_cost(x, lam)

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """∂_x g_i, and 0 along λ.  # (n, d_x), (n, d_λ)"""
        return self._inner.inner_grad(x, lam), array_namespace(lam).zeros_like(lam)

    def _term_sizes(self, x: Array, lam: Array) -> TermSizes:
        """The sizes of g in place of those of f, and none along λ."""
        sizes = self._inner.term_sizes(x, lam)
        return replace(
            sizes,
            outer_cost=sizes.inner_cost,
            outer_grad=(sizes.inner_grad, array_namespace(lam).zeros_like(lam)),
        )
