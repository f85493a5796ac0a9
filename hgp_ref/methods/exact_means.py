"""Methods for exact means: conjugate gradients, and one solve with the mean Hessian.

Push-Sum's averages differ between clients, which conjugate gradients do not tolerate. With exact means (`TreeAverage`,
`ExactAverage`, `ServerAverage`) all clients hold the same vectors, and the scalars of the method need no messages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from hgp_ref.backend import Array, array_namespace, from_host, host_dtype, host_float64, to_host
from hgp_ref.methods.base import Derivatives, Method, Start
from hgp_ref.methods.curvature import check_symmetric_matrices, check_symmetric_products, first_run
from hgp_ref.mixing import Mixer, Runs, TreeChannel
from hgp_ref.results import Result
from hgp_ref.validation import Boolean, check_memory, checked

DENSE = 1000  # largest d_x for which a client forms its Hessian
SHIFT = 0.3  # δ of the root's preconditioner, in multiples of ‖(H̄ − H_0)p‖/‖p‖


@dataclass(frozen=True)
class ConjugateGradientState(Result):
    r: Array  # mean residual / scale; one row at the root, or equal rows at all clients
    p: Array  # direction / scale, at every client
    rho: Array  # rᵀ P⁻¹ r
    scale: Array  # a power of 2 near the largest entry of the first residual, so that squares do not underflow
    inverse: Array | None = None  # P⁻¹ at the root
    m: int = 0

    @property
    def residual(self) -> Array:
        return self.scale * (self.r + 0 * self.p)


class ConjugateGradient(Method):
    """Conjugate gradients for H̄ w = mean_i ∂_x f_i, with exact means.

    From w = 0, r = mean_i ∂_x f_i, p = P⁻¹ r:

        s = mean_i H_i p,    α = rᵀP⁻¹r / pᵀs,    w ← w + αp,    r ← r − αs,    p ← P⁻¹r + β p,

    with β the ratio of the new rᵀP⁻¹r to the old one. One mean per iteration and one at the start. The first iteration
    has P = I. After m iterations the error in the norm of H̄ is at most 2q^(m−1) of that after the first one,
    q = (√κ − 1)/(√κ + 1), with κ of P⁻¹H̄. It is 0 after d_x + 1 iterations but for rounding. H̄ must be positive
    definite; clients may be anything.

    Over a `TreeAverage` the root preconditions without further messages. s travels up, and α and the next p travel
    down. The first iteration shows the root how far its own Hessian H_0 is from the mean. From then on
    P = |H_0| + δI with δ = 0.3 ‖s − H_0 p‖/‖p‖. Where clients are alike, P is close to H̄; where they are not, it is
    close to a multiple of I. For d_x > 1000, for a list of averagings, and over other averagings P = I.

    Refuses averagings that are not exact, mini-batches, Hessians that are not symmetric, and directions along which H̄
    is not positive.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> x, lam = np.ones((3, 4)), np.zeros((3, 2))
    >>> avg = hgp.mixing.TreeAverage(hgp.networks.RandomDirected(n=3, seed=1))
    >>> est = hgp.hypergradient(problem, x, lam, avg, method=hgp.methods.ConjugateGradient(), iterations=6)
    >>> bool(np.abs(est.value - hgp.exact.hypergradient(problem, x, lam)).max() < 1e-10)
    True
    """

    @checked(precondition=Boolean())
    def __init__(self, precondition: bool = True) -> None:
        self.precondition = precondition

    def init(self, start: Start) -> ConjugateGradientState:
        check_exact(self, start.mixer, start.derivatives)
        channel = start.mixer.channel
        check_symmetric_products(start.derivatives.full(), first_run(start.residual), channel)
        if isinstance(channel, TreeChannel):
            r = channel.to_root(start.residual)
            scale = power_of_two(r)
            p = channel.from_root(r / scale)
            r = r / scale
        else:
            r = start.mixer.average(start.residual)
            scale = power_of_two(r)
            p = r = r / scale
        return ConjugateGradientState(r, p, dot(r, r), scale)

    def resume(self, state: ConjugateGradientState, start: Start) -> ConjugateGradientState:
        check_exact(self, start.mixer, start.derivatives)
        return state

    def step(
        self, state: ConjugateGradientState, mixer: Mixer, derivatives: Derivatives
    ) -> tuple[Array, ConjugateGradientState]:
        xp, channel, p = array_namespace(state.p), mixer.channel, state.p
        Hp, inverse, rho = derivatives.hvp(p), state.inverse, state.rho
        if not isinstance(channel, TreeChannel):
            s = mixer.average(Hp)
            alpha = ratio(rho, positive(dot(p, s), rho, p, s))
            r = state.r - alpha * s
            rho_next = dot(r, r)
            p_next = r + ratio(rho_next, rho) * p
            return state.scale * (alpha * p), replace(state, r=r, p=p_next, rho=rho_next, m=state.m + 1)
        root = channel.tree(p).root
        s, Hp0, p0 = channel.to_root(Hp), Hp[..., root : root + 1, :], p[..., root : root + 1, :]
        alpha = ratio(rho, positive(dot(p0, s), rho, p0, s, Hp0))
        r = state.r - alpha * s
        first = state.m == 0 and self.precondition and p.shape[-1] <= DENSE
        if first:
            check_memory("preconditioners of all outer costs", math.prod(r.shape) * r.shape[-1])
            delta = SHIFT * ratio(dot(s - Hp0, s - Hp0), dot(p0, p0)) ** 0.5
            inverse = shifted_inverse(derivatives.hessians()[root, ...], delta)
        z = r if inverse is None else xp.matmul(r, inverse)
        rho_next = dot(r, z)
        p_next = z if first else z + ratio(rho_next, rho) * p0
        sent = channel.from_root(xp.concat([p_next, state.scale * alpha], axis=-1))
        state = ConjugateGradientState(r, sent[..., :-1], rho_next, state.scale, inverse, state.m + 1)
        return sent[..., -1:] * p, state

    def __repr__(self) -> str:
        return f"ConjugateGradient({'' if self.precondition else 'precondition=False'})"


@dataclass(frozen=True)
class DirectSolveState(Result):
    local: Array  # ∂_x f_i − H_i w_i
    residual: Array  # its mean as the root knows it, in every row; `local` at the start
    mean: Array | None = None  # H̄ at the root


class DirectSolve(Method):
    """Solve with the mean Hessian at the root of a `TreeAverage`, in one iteration.

    Clients send the upper triangles of their H_i up the tree, with their residuals. The root solves H̄ p = mean r and
    sends p down: (n − 1)(d(d + 1)/2 + 2d) numbers, as many as (d + 5)/4 iterations of `ConjugateGradient`. Each further
    iteration is a step of iterative refinement, for which only vectors travel.

    The root learns the sum of all Hessians. d_x is at most 1000.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> x, lam = np.ones((3, 4)), np.zeros((3, 2))
    >>> avg = hgp.mixing.TreeAverage(hgp.networks.RandomDirected(n=3, seed=1))
    >>> est = hgp.hypergradient(problem, x, lam, avg, method=hgp.methods.DirectSolve(), iterations=1)
    >>> bool(np.abs(est.value - hgp.exact.hypergradient(problem, x, lam)).max() < 1e-12)
    True
    """

    def init(self, start: Start) -> DirectSolveState:
        check_exact(self, start.mixer, start.derivatives)
        if not isinstance(start.mixer.channel, TreeChannel):
            averagings = start.mixer.averagings
            got = f"a list of {len(averagings)}" if isinstance(start.mixer.channel, Runs) else repr(averagings[0])
            raise ValueError(f"avg must be one TreeAverage for DirectSolve, got {got}")
        if start.w.shape[-1] > DENSE:
            raise ValueError(
                f"DirectSolve needs d_x <= {DENSE}, got {start.w.shape[-1]}; use ConjugateGradient, which sends vectors"
            )
        return DirectSolveState(start.residual, start.residual)

    def resume(self, state: DirectSolveState, start: Start) -> DirectSolveState:
        return replace(self.init(start), mean=state.mean)

    def step(self, state: DirectSolveState, mixer: Mixer, derivatives: Derivatives) -> tuple[Array, DirectSolveState]:
        xp, channel, mean = array_namespace(state.local), mixer.channel, state.mean
        assert isinstance(channel, TreeChannel)
        d = state.local.shape[-1]
        if mean is None:
            rows, columns = np.triu_indices(d)
            place = np.zeros((d, d), dtype=np.int64)
            place[rows, columns] = place[columns, rows] = np.arange(rows.size)
            hessians = derivatives.hessians()
            check_symmetric_matrices(hessians, state.local, channel)
            H = xp.reshape(hessians, (-1, d * d))
            triangle = xp.take(H, from_host(rows * d + columns, like=H), axis=-1)
            vectors = xp.reshape(xp.moveaxis(state.local, -2, 0), (H.shape[0], -1))  # of all outer costs
            sums = channel.to_root(xp.concat([triangle, vectors], axis=-1))[0, :]
            entries = triangle.shape[-1]
            mean = xp.reshape(xp.take(sums[:entries], from_host(place.ravel(), like=H), axis=-1), (d, d))
            r = xp.reshape(sums[entries:], (*state.local.shape[:-2], 1, d))
            check_definite(mean)
        else:
            r = channel.to_root(state.local)
        p = channel.from_root(xp.matrix_transpose(xp.linalg.solve(mean, xp.matrix_transpose(r))))
        r_next = r - xp.matmul(p[..., :1, :], mean) + xp.zeros_like(p)
        return p, DirectSolveState(state.local - derivatives.hvp(p), r_next, mean)

    def __repr__(self) -> str:
        return "DirectSolve()"


def check_exact(method: Method, mixer: Mixer, derivatives: Derivatives) -> None:
    """Raise ValueError unless means are exact and batches full."""
    for averaging in mixer.averagings:
        if not averaging.exact:
            raise ValueError(
                f"{type(method).__name__} needs exact means (TreeAverage, ExactAverage, ServerAverage), got "
                f"{averaging!r}; use Tracking or Chebyshev there"
            )
    if derivatives.sampled:
        raise ValueError(f"batches must be None for {type(method).__name__}, which needs the same H̄ at every iteration")


def dot(a: Array, b: Array) -> Array:
    """The scalar products of rows, (..., n, 1)."""
    return array_namespace(a).sum(a * b, axis=-1, keepdims=True)


def power_of_two(r: Array) -> Array:
    """The power of 2 just below the largest entry of every run, (..., 1, 1); 1/2 if all entries are 0."""
    exponent = np.frexp(np.max(np.abs(host_float64(r)), axis=(-2, -1), keepdims=True))[1]
    return from_host(np.ldexp(1.0, exponent - 1).astype(host_dtype(r)), like=r)


def ratio(a: Array, b: Array) -> Array:
    """a / b, and 0 where b = 0: a method that has converged stays where it is."""
    xp = array_namespace(a)
    return xp.where(b == 0, xp.zeros_like(a), a / xp.where(b == 0, xp.ones_like(b), b))


def shifted_inverse(H: Array, delta: Array) -> Array:
    """(|H| + δI)⁻¹ of a symmetric matrix, with eigenvalues of at least its rounding."""
    xp = array_namespace(H)
    values, vectors = xp.linalg.eigh((H + xp.matrix_transpose(H)) / 2)
    size = xp.abs(values)
    least = xp.max(size) * float(np.finfo(host_dtype(H)).eps)
    return xp.matmul(vectors / xp.maximum(size + delta, least), xp.matrix_transpose(vectors))


NOT_DEFINITE = "problem: the mean Hessian must be positive definite at x"


def positive(curvature: Array, rho: Array, p: Array, *products: Array) -> Array:
    """pᵀH̄p; ValueError if it is not above the rounding of these products with p before the method has converged."""
    xp, finfo = array_namespace(p), np.finfo(host_dtype(p))
    size = sum(xp.sqrt(dot(p, p)) * xp.sqrt(dot(s, s)) for s in products)
    underflow = float(finfo.smallest_normal) / float(finfo.eps) ** 2  # curvature may be 0 for a smaller ρ
    wrong = (curvature <= float(finfo.eps) * size) & (rho > underflow)
    if bool(to_host(xp.any(wrong))):
        least = float(np.min(host_float64(xp.where(wrong, curvature / dot(p, p), xp.full_like(curvature, np.inf)))))
        raise ValueError(f"{NOT_DEFINITE}, got p^T H p / p^T p = {least:.3g} for a direction p")
    return curvature


def check_definite(mean: Array) -> None:
    """Raise ValueError unless the symmetric matrix is positive definite beyond rounding."""
    values = host_float64(array_namespace(mean).linalg.eigvalsh(mean))
    if not values.min() > np.finfo(host_dtype(mean)).eps * len(values) * np.abs(values).max():
        raise ValueError(f"{NOT_DEFINITE}, got a smallest eigenvalue of {values.min():.3g}")
