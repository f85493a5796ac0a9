"""Estimators of the hyper-gradient in other bilevel methods: iterations at a point (x, λ) that may move meanwhile.

With H_i = ∂²_x g_i, J_i = ∂²_{λx} g_i, H̄ and ḡ the means of H_i and ∂_x f_i, and w* = H̄⁻¹ ḡ:

    Auxiliary           z → w* by a rule of decentralized descent                    MA-DSBO, D-SOBA, SPARKLE
    RandomTerm          one term of the Neumann series, drawn at random              FedNest
    HessianGossip       means of H_i and ∂_x f_i, inverted by each client            GBDSBO
    JacobianTracking    Z → H̄⁻¹ J̄ᵀ, a matrix, by gradient tracking                  DBO, DBOGT
    LocalSeries         H_i⁻¹ ∂_x f_i in place of w*, without communication          MDBO, VRDBO
    Penalty             ∂_λ of f + c g from first derivatives                        FAB

The class of an estimator says what it converges to (`hgp_ref.exact`): Global is d_λ Σ_k f_k, Client d_λ of the
client's own f_i, Local ∂_λ f_i − J_i H_i⁻¹ ∂_x f_i. `at_point` runs an estimator at a fixed point.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, signature
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from hgp_ref import philox, validation
from hgp_ref.backend import Array, all_finite, array_namespace, device
from hgp_ref.baselines.rules import CORRECTED, DescentRule, Diffusion, Tracking, Variable, track, tracker
from hgp_ref.errors import DivergenceError
from hgp_ref.mixing import Averaging, Gossip, PushSum, ServerAverage, Traffic, run_round, start_averaging
from hgp_ref.mixing.averaging import check_network
from hgp_ref.mixing.consensus import MixingRoutine, concurrently, no_communication
from hgp_ref.mixing.simulated import balance_tolerance
from hgp_ref.networks import FullyConnected, Network
from hgp_ref.problems import Problem, as_problem
from hgp_ref.problems.base import FullLinearization, FullProblem, check_point
from hgp_ref.results import Result
from hgp_ref.training.gradient_push import check_clients
from hgp_ref.validation import Between, Boolean, Integer, Positive, checked

COUNT = Integer(1, validation.LONGEST)

# ---- Derivatives


class BilevelPoint:
    """Derivatives at (x, λ), on full batches or on one mini-batch, each computed at its first use."""

    def __init__(self, problem: FullProblem, x: Array, lam: Array, batch: Array | None = None) -> None:
        self.problem, self.x, self.lam, self.batch = problem, x, lam, batch

    @cached_property
    def outer(self) -> tuple[Array, Array]:
        """∂_x f and ∂_λ f."""
        return self.problem.outer_grad(self.x, self.lam)

    @cached_property
    def lin(self) -> FullLinearization:
        """u ↦ H u and u ↦ J u."""
        return self.problem.linearize(self.x, self.lam, self.batch)

    def inner_grad(self, x: Array) -> Array:
        """∂_x g at another x and the same λ."""
        return self.problem.inner_grad(x, self.lam, self.batch)

    def hessians(self) -> Array:
        """H_i by products with unit vectors.  # (n, d_x, d_x)"""
        return unit_products(self.lin.hvp, self.x)

    def jacobians(self) -> Array:
        """J_i by the problem's closed form, or by products with unit vectors.  # (n, d_lam, d_x)"""
        if self.problem.jacobian is not None:
            return self.problem.jacobian(self.x, self.lam, self.batch)
        return unit_products(self.lin.cross, self.x)

    def at(self, x: Array, lam: Array) -> BilevelPoint:
        """Another point, on the same mini-batch."""
        return BilevelPoint(self.problem, x, lam, self.batch)

    def lam_gap(self, x: Array, z: Array, nodes: int) -> Array:
        """∂_λ g(x) − ∂_λ g(z) = ∫₀¹ J(z + t (x − z)) (x − z) dt, by Gauss–Legendre quadrature.  # (n, d_lam)

        Problems offer J but not ∂_λ g. The result is exact if ∂_λ g_i is a polynomial in x of degree 2 · nodes.
        """
        t, weight = np.polynomial.legendre.leggauss(nodes)
        parts = [
            float(w) / 2 * self.at(z + (1 + float(s)) / 2 * (x - z), self.lam).lin.cross(x - z)
            for s, w in zip(t, weight, strict=True)
        ]
        return sum(parts[1:], parts[0])


ENTRIES = 2**23  # numbers in the unit vectors of one product, at most


def unit_products(product: Callable[[Array], Array], like: Array) -> Array:
    """The matrices A_i of u ↦ A_i u_i, from products with unit vectors along a run axis.  # (n, k, d)"""
    xp, d = array_namespace(like), like.shape[-1]
    unit = xp.reshape(xp.eye(d, dtype=like.dtype, device=device(like)), (d, 1, d))
    step = max(1, ENTRIES // max(1, math.prod(like.shape)))
    parts = [product(unit[j : min(j + step, d), ...] + xp.zeros_like(like)[None, ...]) for j in range(0, d, step)]
    return xp.moveaxis(parts[0] if len(parts) == 1 else xp.concat(parts, axis=0), 0, -1)


# ---- Estimators


class HypergradientEstimator(ABC):
    """An iteration towards the hyper-gradient at a point that may move between two iterations.

        state = init(point);    (state,) = run_round(mixer, iterate(state, point));    v = value(state, point)

    Its messages travel together with those of x and λ.
    """

    @abstractmethod
    def init(self, point: BilevelPoint) -> Any:
        """The state before the first iteration."""

    @abstractmethod
    def iterate(self, state: Any, point: BilevelPoint) -> MixingRoutine:
        """One iteration at `point`: the next state."""

    @abstractmethod
    def value(self, state: Any, point: BilevelPoint) -> Array:
        """v of every client.  # (n, d_lam)"""

    def restart(self, state: Any, point: BilevelPoint) -> Any:
        """The state from which a nested method starts its next N iterations."""
        return state


@dataclass(frozen=True)
class Auxiliary(HypergradientEstimator):
    """z → w* by a rule with the gradient H_i z_i − ∂_x f_i;  v_i = ∂_λ f_i − J_i z_i.  Class Global."""

    rule: DescentRule

    def init(self, point: BilevelPoint) -> Variable:
        return Variable(array_namespace(point.x).zeros_like(point.x))

    def iterate(self, state: Variable, point: BilevelPoint) -> MixingRoutine:
        return self.rule.move(state, lambda z: point.lin.hvp(z) - point.outer[0])

    def value(self, state: Variable, point: BilevelPoint) -> Array:
        return point.outer[1] - point.lin.cross(state.s)

    def restart(self, state: Variable, point: BilevelPoint) -> Variable:
        return Variable(state.s)  # gradient tracking restarts from z


@checked(terms=COUNT, ell=Positive())
@dataclass(frozen=True)
class LocalSeries(HypergradientEstimator):
    """v_i = ∂_λ f_i − J_i (1/ℓ) Σ_{j<J} (I − H_i/ℓ)^j ∂_x f_i, from each client's own derivatives.  Class Local."""

    terms: int  # J
    ell: float  # ℓ

    def init(self, point: BilevelPoint) -> None:
        return None

    def iterate(self, state: None, point: BilevelPoint) -> MixingRoutine:
        return no_communication(None)

    def value(self, state: None, point: BilevelPoint) -> Array:
        u = point.outer[0]
        w = u / self.ell
        for _ in range(self.terms - 1):
            u = u - point.lin.hvp(u) / self.ell
            w = w + u / self.ell
        return point.outer[1] - point.lin.cross(w)


class _RandomTermState(NamedTuple):
    w: Array
    iterations: int  # so far
    draw: int


@checked(terms=COUNT, ell=Positive(), draw=Integer(0, philox.MAX_STEP))
@dataclass(frozen=True)
class RandomTerm(HypergradientEstimator):
    """FedIHGP of FedNest, with the exact mean over clients and N' uniform on 0 .. N−1, the same for all clients:

        p ← (N/ℓ) mean ∂_x f_i,    then N' times    p ← mean (p − H_i p/ℓ),    v_i = ∂_λ f_i − J_i p.

    E p = (1/ℓ) Σ_{k<N} (I − H̄/ℓ)^k ḡ, which is N terms of the Neumann series with η = 1/ℓ, for (N + 1)/2 means on
    average. Class Global in expectation. A single draw has its variance, however large N is.
    """

    terms: int  # N
    ell: float  # ℓ >= the largest eigenvalue of any H_i
    seed: int = 0
    draw: int = 0  # N' is number `draw` of the sequence of `seed`; each restart takes the next one

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", philox.check_seed(self.seed))

    def length(self, draw: int) -> int:
        """N' of a draw."""
        high, low, *_ = philox.philox4x32(0, 0, *philox.step_counter(draw, philox.TERMS), *philox.key(self.seed))
        return int(philox.below(high, low, self.terms))

    def init(self, point: BilevelPoint) -> _RandomTermState:
        return _RandomTermState(array_namespace(point.x).zeros_like(point.x), 0, self.draw)

    def restart(self, state: _RandomTermState, point: BilevelPoint) -> _RandomTermState:
        return self.init(point)._replace(draw=state.draw + (state.iterations > 0))

    def iterate(self, state: _RandomTermState, point: BilevelPoint) -> MixingRoutine:
        if state.iterations > self.length(state.draw):
            return (yield from no_communication(state))
        if state.iterations == 0:
            (mean,) = yield (point.outer[0],)
            w = (self.terms / self.ell) * mean
        else:
            (w,) = yield (state.w - point.lin.hvp(state.w) / self.ell,)
        return _RandomTermState(w, state.iterations + 1, state.draw)

    def value(self, state: _RandomTermState, point: BilevelPoint) -> Array:
        return point.outer[1] - point.lin.cross(state.w)


class _HessianGossipState(NamedTuple):
    means: tuple[Array, ...]  # h, V and, if λ is shared, s and U
    point: BilevelPoint
    local: tuple[Array, ...]  # the client's own derivatives at `point`


@checked(step=Between(0, 1, exclude_low=True), ell=Positive(), terms=COUNT, shared=Boolean())
@dataclass(frozen=True)
class HessianGossip(HypergradientEstimator):
    """With s ← (1 − β) W s + β ∂_λ f_i, and likewise h of ∂_x f_i, U of J_i, V of H_i:

        v_i = s_i − U_i Q_i h_i,    Q_i = (1/ℓ) Σ_{j ≤ b} (I − V_i/ℓ)^j.

    Class Global, with a bias of order β if clients differ, and the bias (1 − λ/ℓ)^{b+1} of the polynomial. If λ_i
    belongs to client i, ∂_λ f_i and J_i are not sent, and v_i = ∂_λ f_i − J_i Q_i h_i. A message carries d_x² + d_x
    numbers, or d_x² + d_x d_λ + d_x + d_λ with a shared λ. The paper's b independent V_j of b mini-batches are the same
    on full batches and sent once, which is to the method's advantage.
    """

    step: float  # β
    ell: float  # ℓ >= the largest eigenvalue of any H_i
    terms: int  # b
    shared: bool = False

    def init(self, point: BilevelPoint) -> _HessianGossipState:
        local = self._local(point)
        return _HessianGossipState(local, point, local)

    def iterate(self, state: _HessianGossipState, point: BilevelPoint) -> MixingRoutine:
        local = state.local if state.point is point else self._local(point)
        mixed = yield state.means
        means = tuple((1 - self.step) * s + self.step * d for s, d in zip(mixed, local, strict=True))
        return _HessianGossipState(means, point, local)

    def value(self, state: _HessianGossipState, point: BilevelPoint) -> Array:
        h, V, *rest = state.means
        w = self._inverse_times(V, h)
        if not self.shared:
            return point.outer[1] - point.lin.cross(w)
        s, U = rest
        xp = array_namespace(s)
        return s - xp.matmul(xp.reshape(U, (*s.shape, w.shape[-1])), w[..., None])[..., 0]

    def _inverse_times(self, V: Array, h: Array) -> Array:
        """Q_i h_i, with V by rows.  # (n, d_x)"""
        xp, (n, d) = array_namespace(h), h.shape
        matrices, q = xp.reshape(V, (n, d, d)), h
        for _ in range(self.terms):
            q = h + q - xp.matmul(matrices, q[..., None])[..., 0] / self.ell
        return q / self.ell

    def _local(self, point: BilevelPoint) -> tuple[Array, ...]:
        local = (point.outer[0], _rows(point.hessians()))
        return (*local, point.outer[1], _rows(point.jacobians())) if self.shared else local


def _rows(A: Array) -> Array:
    """(n, k d) from (n, k, d)."""
    return array_namespace(A).reshape(A, (A.shape[0], -1))


class _JacobianTrackingState(NamedTuple):
    Z: Variable  # (n, d_x k)
    point: BilevelPoint  # where B was computed
    B: Array  # J_iᵀ by columns, (k, n, d_x)
    memory: Any = None  # of the tracked products


@checked(step=Positive(), shared=Boolean())
@dataclass(frozen=True)
class JacobianTracking(HypergradientEstimator):
    """Z → H̄⁻¹ mean_i B_i by gradient tracking on matrices, B_i = J_iᵀ (JHIP), and v from Zᵀ ∂_x f:

        Z_i ← Σ_j W_ij Z_j − γ R_i,    R_i ← Σ_j W_ij R_j + (H_i Z_i⁺ − B_i) − (H_i Z_i − B_i),    R⁰ = −B at Z⁰ = 0.

    With a shared λ there are k = d_λ columns. v_i = ∂_λ f_i − Z_iᵀ ∂_x f_i is of class Client, its mean over clients
    Global. If λ_i belongs to client i, the shared variable is (λ_1, …, λ_n) with k = n d_λ columns, J_i fills the i-th
    block, and v_i is of class Global with the tracked products y:

        v_i = ∂_λ f_i + n (y_i)_i,    y ← W y + u⁺ − u → mean_k u_k,    u_i = −Z_iᵀ ∂_x f_i.

    A message carries two matrices, 2 d_x k numbers, and the k tracked products. The limit is exact.
    """

    step: float  # γ
    shared: bool = False

    def init(self, point: BilevelPoint) -> _JacobianTrackingState:
        B = self._right_hand_side(point)
        return _JacobianTrackingState(Variable(array_namespace(B).zeros_like(_flat(B))), point, B)

    def restart(self, state: _JacobianTrackingState, point: BilevelPoint) -> _JacobianTrackingState:
        return _JacobianTrackingState(Variable(state.Z.s), point, self._right_hand_side(point))

    def iterate(self, state: _JacobianTrackingState, point: BilevelPoint) -> MixingRoutine:
        B = state.B if state.point is point else self._right_hand_side(point)
        gradient = lambda Z: _flat(point.lin.hvp(_columns(Z, B)) - B)  # noqa: E731
        routines = [Tracking(self.step).move(state.Z, gradient)]
        if not self.shared:
            routines.append(track(state.memory, self._products(state, point)))
        Z, *memory = yield from concurrently(*routines)
        return _JacobianTrackingState(Z, point, B, memory[0] if memory else None)

    def value(self, state: _JacobianTrackingState, point: BilevelPoint) -> Array:
        u = self._products(state, point)
        if self.shared:
            return point.outer[1] + u
        y = tracker(state.memory, u)
        xp, (n, p) = array_namespace(y), point.outer[1].shape
        block = xp.sum(_identity(y) * xp.reshape(y, (n, n, p)), axis=1)  # (n, d_lam), the i-th block of y_i
        return point.outer[1] + n * block

    def _products(self, state: _JacobianTrackingState, point: BilevelPoint) -> Array:
        """−Z_iᵀ ∂_x f_i.  # (n, k)"""
        xp, Z = array_namespace(point.x), _columns(state.Z.s, state.B)
        return -xp.matrix_transpose(xp.sum(Z * point.outer[0], axis=-1))

    def _right_hand_side(self, point: BilevelPoint) -> Array:
        """J_iᵀ by columns, in the block of client i unless λ is shared.  # (k, n, d_x)"""
        xp = array_namespace(point.x)
        J = xp.moveaxis(point.jacobians(), 0, 1)  # (d_lam, n, d_x)
        if self.shared:
            return J
        p, n, d = J.shape
        return xp.reshape(_identity(point.x)[:, None, ...] * J[None, ...], (n * p, n, d))


def _identity(rows: Array) -> Array:
    """1 where block j belongs to client i.  # (n, n, 1)"""
    return array_namespace(rows).eye(rows.shape[0], dtype=rows.dtype, device=device(rows))[..., None]


def _flat(columns: Array) -> Array:
    """(n, k d) from (k, n, d)."""
    xp, (k, n, d) = array_namespace(columns), columns.shape
    return xp.reshape(xp.moveaxis(columns, 1, 0), (n, k * d))


def _columns(Z: Array, like: Array) -> Array:
    """(k, n, d) from (n, k d)."""
    xp, (k, n, d) = array_namespace(Z), like.shape
    return xp.moveaxis(xp.reshape(Z, (n, k, d)), 1, 0)


@checked(step=Positive(), penalty=Positive(), nodes=Integer(1, 64))
@dataclass(frozen=True)
class Penalty(HypergradientEstimator):
    """y descends f_i(y, λ) + c g_i(y, λ) by push-pull, while x approaches the minimiser of g:

        y ← A y − η t,    t ← B t + d⁺ − d,    d_i = ∂_x f_i(y_i, λ_i) + c ∂_x g_i(y_i, λ_i),
        v_i = ∂_λ f_i(y_i, λ_i) + c (∂_λ g_i(λ_i, y_i) − ∂_λ g_i(λ_i, x_i)).

    B is the column-stochastic matrix of the round's graph, A = diag(B1)⁻¹ B the row-stochastic one with the same edges.
    The class is Global with a bias of order 1/c: if x is the inner solution, H̄ (y − x) = −ḡ/c + O(1/c²), so that
    v_i → ∂_λ f_i − J_i w*. The difference of ∂_λ g between y and x is an integral of J (`BilevelPoint.lam_gap`).
    """

    step: float  # η
    penalty: float  # c
    nodes: int = 2  # of the quadrature

    def init(self, point: BilevelPoint) -> Variable:
        return Variable(point.x)

    def iterate(self, state: Variable, point: BilevelPoint) -> MixingRoutine:
        gradient = lambda y: point.at(y, point.lam).outer[0] + self.penalty * point.inner_grad(y)  # noqa: E731
        return Tracking(self.step).move(state, gradient)

    def value(self, state: Variable, point: BilevelPoint) -> Array:
        gap = point.lam_gap(state.s, point.x, self.nodes)
        return point.at(state.s, point.lam).outer[1] + self.penalty * gap


# ---- Networks


STATIC, DIRECTED, SERVER = "static undirected", "directed", "server"


def one_round(name: str, kind: str, net: Network, n: int) -> Averaging:
    """The averaging of n clients whose calls are one round of the method `name` over `net`."""
    check_network(net)
    check_clients(net, n)
    if kind == DIRECTED:
        return PushSum(net, 1)
    if kind == SERVER:
        if not isinstance(net, FullyConnected):
            raise ValueError(
                f"net must be FullyConnected({net.n}), because {name} averages through a server that reaches all "
                f"clients in every round (n messages to the server, n back), got {net!r}"
            )
        return ServerAverage(net.n)
    missing = _not_static_undirected(net)
    if missing:
        raise ValueError(
            f"{name} needs one undirected graph with symmetric doubly stochastic weights, the same in every round, "
            f"such as StaticUndirected, got {net!r}: {missing}. baselines.fab and bilevel.optimise support other "
            "networks"
        )
    return Gossip(net, 1)


def _not_static_undirected(net: Network) -> str:
    """Why `net` is not one graph with symmetric doubly stochastic weights; "" if it is."""
    if net.period != 1:
        return "its graphs change"
    indptr, senders, shares = net.csr(1)
    W = csr_array((shares, senders, indptr), shape=(net.n, net.n))
    if abs(W - W.T).max() > balance_tolerance(net.n, 1):
        return "its weights are not symmetric"
    off = float(np.abs(W.sum(axis=1) - 1).max())
    return "" if off <= balance_tolerance(net.n, 1) else f"a row of its weights differs from 1 by {off:.2g}"


# ---- At a fixed point


def _corrected(rule: str, step: float) -> Auxiliary:
    return Auxiliary(CORRECTED[validation.choice("rule", rule, CORRECTED)](step))


ESTIMATORS: dict[str, tuple[str, Callable[..., HypergradientEstimator]]] = {
    "fednest": (SERVER, RandomTerm),
    "dbo": (STATIC, JacobianTracking),
    "gbdsbo": (STATIC, HessianGossip),
    "mdbo": (STATIC, LocalSeries),
    "vrdbo": (STATIC, LocalSeries),
    "ma_dsbo": (STATIC, lambda step: Auxiliary(Tracking(step))),
    "dsoba": (STATIC, lambda step: Auxiliary(Diffusion(step))),
    "sparkle": (STATIC, _corrected),
    "fab": (DIRECTED, Penalty),
}


@dataclass(frozen=True)
class FixedPointEstimate(Result):
    """The hyper-gradient of a baseline at a fixed point, after the last iteration and along the way.

    Attributes
    ----------
    history : (entries, n, d_lam), v after each of `iterations`.
    floats, rounds : (entries,), cumulative.
    """

    value: Array
    history: Array
    iterations: np.ndarray
    floats: np.ndarray
    rounds: np.ndarray
    traffic: Traffic
    method: str


@checked(iterations=COUNT, every=COUNT)
def at_point(
    problem: Problem,
    x: Array,
    lam: Array,
    net: Network,
    method: str,
    *,
    iterations: int = 100,
    every: int = 1,
    callback: Callable[[int, Array], object] | None = None,
    **settings: Any,
) -> FixedPointEstimate:
    """The hyper-gradient that a baseline computes, with x and λ fixed and on full batches: only its estimator moves.

    Parameters
    ----------
    x : "fab" needs the inner solution.
    method : the name of a baseline. Each has its own `settings`:
        "fednest" (terms, ell, seed, draw), "dbo" (step, shared), "gbdsbo" (step, ell, terms, shared),
        "mdbo" and "vrdbo" (terms, ell), "ma_dsbo" (step), "dsoba" (step), "sparkle" (rule, step),
        "fab" (step, penalty, nodes).
    every : how often v is recorded.
    callback : called as callback(m, v) whenever v is recorded; a true result stops.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> x, lam, net = np.ones((4, 3)), np.zeros((4, 2)), hgp.networks.StaticUndirected(n=4, seed=1)
    >>> est = hgp.baselines.at_point(problem, x, lam, net, "dbo", iterations=400, step=0.5)
    >>> bool(np.abs(est.value - hgp.exact.hypergradient(problem, x, lam)).max() < 1e-10)
    True
    >>> edges = len(net.edges(1)[0]) - 4
    >>> est.traffic.floats == 400 * edges * (2 * 3 * 8 + 8)  # two matrices of 3 × (4·2), and the tracked products
    True
    """
    network, make = ESTIMATORS[validation.choice("method", method, ESTIMATORS)]
    estimator = _configured(method, make, settings)
    problem = as_problem(problem, needs=("outer_grad", "linearize", "inner_grad"))
    x, lam = check_point(problem, x, lam)
    if callback is not None:
        validation.function("callback", callback)
    mixer = start_averaging([one_round(method, network, net, x.shape[0])], x.shape[0], x, iterations)
    point = BilevelPoint(problem, x, lam)
    state, values, counters = estimator.init(point), [], []
    with np.errstate(over="ignore", invalid="ignore"):
        for m in range(1, iterations + 1):
            (state,) = run_round(mixer, estimator.iterate(state, point))
            if m % every and m != iterations:
                continue
            values.append(estimator.value(state, point))
            if not all_finite(values[-1]):
                raise DivergenceError(f"diverged: the hyper-gradient of {method} is not finite after {m} iterations")
            counters.append((m, mixer.channel.traffic.floats, mixer.channel.traffic.rounds))
            if callback is not None:
                answer = callback(m, array_namespace(x).asarray(values[-1], copy=True))
                if validation.returned_bool("callback", answer):
                    break
    history = array_namespace(x).stack(values)
    marks, floats, rounds = np.array(counters, dtype=np.int64).T
    return FixedPointEstimate(values[-1], history, marks, floats, rounds, mixer.record_traffic(), method)


def _configured(
    method: str, make: Callable[..., HypergradientEstimator], settings: dict[str, Any]
) -> HypergradientEstimator:
    """make(**settings); TypeError if a setting is missing or unknown."""
    known = signature(make).parameters.values()
    required = [p.name for p in known if p.default is Parameter.empty]
    optional = [p.name for p in known if p.default is not Parameter.empty]
    if not set(required) <= set(settings) <= {*required, *optional}:
        raise TypeError(
            f"method={method!r} takes the settings {', '.join(required)}"
            + (f" and optionally {', '.join(optional)}" if optional else "")
            + f", got {', '.join(settings) or 'none'}"
        )
    return make(**settings)
