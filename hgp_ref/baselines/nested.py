"""Baselines with nested loops, Jacobians or Hessians in messages, or local series.

FedNest      through a server                                   Tarzanagh, Li, Thrampoulidis, Oymak, ICML 2022
GBDSBO       gossip of gradients, Jacobians and Hessians        Yang, Zhang, Wang 2022, arXiv 2206.10870
DBO, DBOGT   the matrix H̄⁻¹ J̄ᵀ by gradient tracking (JHIP)      Chen, Huang, Ma 2022, arXiv 2206.05670
MDBO, VRDBO  the Local hyper-gradient, momentum or STORM        Gao, Gu, Thai 2022
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, device
from hgp_ref.baselines.driver import (
    SERVER,
    STATIC,
    Filter,
    HypergradientEstimator,
    LocalGradientStep,
    LocalSeries,
    MovingAverage,
    Nested,
    Point,
    RunOptions,
    SingleLoop,
    Storm,
    read_shared,
    run,
)
from hgp_ref.bilevel.trajectory import Path
from hgp_ref.methods import RandomTerm
from hgp_ref.methods.descent import (
    Consensus,
    HessianGossip,
    Moving,
    Svrg,
    Tracked,
    damped,
    follow,
    followed,
    hessians,
    inverse_times,
)
from hgp_ref.mixing.consensus import MixingRoutine, concurrently, no_communication
from hgp_ref.networks import Network
from hgp_ref.problems import Problem

# ---- FedNest


@dataclass(frozen=True)
class _FederatedState:
    w: Array
    m: int  # rounds so far
    term: RandomTerm  # holds N'


class RandomTermMean(HypergradientEstimator):
    """FedIHGP: p ← (N/ℓ) mean ∂_x f_i, then N' times p ← mean (p − H_i p/ℓ), N' uniform on 0 .. N−1.

    v_i = ∂_λ f_i − J_i p is of class Global. Its expectation over N' is that of N terms of the Neumann series; see
    `hgp.methods.RandomTerm`.
    """

    def __init__(self, terms: int, ell: float, seed: int = 0, draw: int = 0) -> None:
        self.first = RandomTerm(terms, ell, seed, draw)

    def init(self, point: Point) -> _FederatedState:
        return _FederatedState(array_namespace(point.x).zeros_like(point.x), 0, self.first)

    def restart(self, state: _FederatedState, point: Point) -> _FederatedState:
        """Every outer iteration draws a new N'."""
        term = state.term
        if state.m:
            term = RandomTerm(term.terms, term.ell, term.seed, term.draw + 1)
        return _FederatedState(array_namespace(point.x).zeros_like(point.x), 0, term)

    def talk(self, state: _FederatedState, point: Point) -> MixingRoutine:
        term = state.term
        if state.m > term.last:
            return (yield from no_communication(state))
        if state.m == 0:
            (mean,) = yield (point.outer[0],)
            w = (term.terms / term.ell) * mean
        else:
            (w,) = yield (state.w - point.lin.hvp(state.w) / term.ell,)
        return _FederatedState(w, state.m + 1, term)

    def value(self, state: _FederatedState, point: Point) -> Array:
        return point.outer[1] - point.lin.cross(state.w)


def fednest(
    problem: Problem,
    lam: Array,
    net: Network,
    outer_steps: int = 100,
    *,
    lr: float,
    inner_lr: float,
    ell: float,
    terms: int = 20,
    inner_steps: int = 5,
    local_steps: int = 1,
    **options: Unpack[RunOptions],
) -> Path:
    """FedNest as its paper describes it (the published program differs). In each outer iteration

        T times    FedInn   d̄ = mean ∂_x g_i(x), τ times y_i ← y_i − β (∂_x g_i(y_i) − ∂_x g_i(x) + d̄), x = mean y_i,
        then       FedIHGP  p ← (N/ℓ) mean ∂_x f_i, N' times p ← mean (I − H_i/ℓ) p, N' uniform on 0 .. N−1,
        then       FedOut   the same with h_i = ∂_λ f_i − J_i p in place of ∂_x g_i and α in place of β.

    2T + N' + 3 rounds through a server. If λ is not shared, FedOut is λ_i ← λ_i − α h_i and sends nothing.

    Parameters
    ----------
    net : FullyConnected(n). A round is counted as n messages to the server and n back.
    lr, inner_lr : α and β of every local step.
    ell, terms : ℓ and N.
    inner_steps, local_steps : T and τ.
    options : see `RunOptions`.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> net = hgp.networks.FullyConnected(4)
    >>> path = hgp.baselines.fednest(problem, np.zeros((4, 2)), net, 100, lr=0.02, inner_lr=0.5, ell=1.0)
    >>> cost = lambda lam: problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum()
    >>> bool(cost(path.lam[-1]) < 0.6 * cost(path.lam[0]))
    True
    """
    lr, inner_lr = validation.positives(lr=lr, inner_lr=inner_lr)
    estimator = RandomTermMean(terms, ell, options.get("seed", 0))
    lam_rule = Svrg(lr, local_steps) if read_shared(options) else LocalGradientStep(lr)
    T = validation.integer("inner_steps", inner_steps, 1, validation.LONGEST)
    N = estimator.first.terms
    method = Nested("FedNest", Svrg(inner_lr, local_steps), estimator, lam_rule, T, N, network=SERVER)
    return run(method, problem, lam, net, outer_steps, **options)


# ---- GBDSBO


@dataclass(frozen=True)
class _HessianMeansState:
    means: tuple[Array, ...]  # h, V and, if λ is shared, s and U
    point: Point
    local: tuple[Array, ...]  # the client's own derivatives at `point`


class MeanHessian(HypergradientEstimator):
    """With s ← (1 − β) W s + β ∂_λ f_i, and alike h of ∂_x f_i, U of J_i, V of H_i:

        v_i = s_i − U_i Q_i h_i,    Q = (1/ℓ) Σ_{j ≤ b} (I − V_i/ℓ)^j,

    of class Global with a shared λ. If λ_i belongs to client i, ∂_λ f_i and J_i are not sent,
    v_i = ∂_λ f_i − J_i Q_i h_i, and a message carries d_x² + d_x numbers instead of d_x² + d_x d_λ + d_x + d_λ.
    See `methods.HessianGossip`.
    """

    def __init__(self, step: float, ell: float, terms: int, shared: bool = False) -> None:
        checked = HessianGossip(step, ell, terms)
        self.beta, self.ell, self.terms = checked.beta, checked.ell, checked.terms
        self.shared = validation.boolean("shared", shared)

    def init(self, point: Point) -> _HessianMeansState:
        local = self._local(point)
        return _HessianMeansState(local, point, local)

    def talk(self, state: _HessianMeansState, point: Point) -> MixingRoutine:
        local = state.local if state.point is point else self._local(point)
        means = yield from damped(self.beta, state.means, local)
        return _HessianMeansState(means, point, local)

    def value(self, state: _HessianMeansState, point: Point) -> Array:
        h, V, *rest = state.means
        w = inverse_times(V, h, self.ell, self.terms)
        if not self.shared:
            return point.outer[1] - point.lin.cross(w)
        s, U = rest
        xp = array_namespace(s)
        return s - xp.matmul(xp.reshape(U, (*s.shape, w.shape[-1])), w[..., None])[..., 0]

    def _local(self, point: Point) -> tuple[Array, ...]:
        local = (point.outer[0], hessians(point.lin, point.x))
        if not self.shared:
            return local
        J = point.jacobians()
        return (*local, point.outer[1], array_namespace(J).reshape(J, (J.shape[0], -1)))


def gbdsbo(
    problem: Problem,
    lam: Array,
    net: Network,
    outer_steps: int = 100,
    *,
    lr: float,
    inner_lr: float,
    mixing: float,
    ell: float,
    terms: int = 20,
    **options: Unpack[RunOptions],
) -> Path:
    """GBDSBO (arXiv 2206.10870). Each iteration is one round of

        λ ← W λ − α (s − U Q h),    x ← W x − β' ∂_x g_i,    and s, h, U, V as in `MeanHessian`.

    The paper couples the steps, α, β = Θ(√(n/K)); here each is an argument. If λ is not shared, λ_i ← λ_i − α v_i.

    Parameters
    ----------
    lr, inner_lr, mixing : α, β' and the β of the means.
    ell, terms : ℓ and the degree b of the polynomial.
    options : see `RunOptions`.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> net = hgp.networks.StaticUndirected(n=4, seed=1)
    >>> path = hgp.baselines.gbdsbo(
    ...     problem, np.zeros((4, 2)), net, 900, lr=0.003, inner_lr=0.1, mixing=0.05, ell=1.0, shared=True)
    >>> cost = lambda lam: problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum()
    >>> bool(cost(path.lam[-1]) < 0.6 * cost(path.lam[0]))
    True
    """
    lr, inner_lr, mixing = validation.positives(lr=lr, inner_lr=inner_lr, mixing=mixing)
    shared = read_shared(options)
    estimator = MeanHessian(validation.between("mixing", mixing, 0, 1), ell, terms, shared)
    lam_rule = Consensus(lr) if shared else LocalGradientStep(lr)
    method = SingleLoop("GBDSBO", Consensus(inner_lr), estimator, lam_rule)
    return run(method, problem, lam, net, outer_steps, **options)


# ---- DBO, DBOGT


@dataclass(frozen=True)
class _JacobianTrackingState:
    Z: Moving  # (n, d_x k)
    point: Point  # where B was computed
    B: Array  # J_iᵀ by columns, (k, n, d_x)
    memory: Any  # of the tracked products


class JacobianTracking(HypergradientEstimator):
    """Z → H̄⁻¹ mean_i B_i by gradient tracking on matrices, B_i = J_iᵀ (JHIP), and v from Zᵀ ∂_x f:

        Z_i ← Σ_j W_ij Z_j − γ R_i,    R_i ← Σ_j W_ij R_j + (H_i Z_i⁺ − B_i) − (H_i Z_i − B_i),    R⁰ = −B at Z⁰ = 0.

    With a shared λ there are k = d_λ columns. u_i = ∂_λ f_i − Z_iᵀ ∂_x f_i is of class Client, its mean over clients
    Global; `tracked` finds it by y ← W y + u⁺ − u, as DBOGT does. If λ_i belongs to client i, the shared variable is
    (λ_1, …, λ_n) with n d_λ columns. J_i fills the i-th block, and

        Client  v_i = ∂_λ f_i − (Z_iᵀ ∂_x f_i)_i,    Global  v_i = ∂_λ f_i − n (y_i)_i,  y → mean_k Z_kᵀ ∂_x f_k.

    A message carries two matrices, 2 d_x k numbers, and the k tracked products. The limit is exact.
    """

    def __init__(self, step: float, shared: bool = False, tracked: bool = True) -> None:
        self.rule = Tracked(step)
        self.shared, self.tracked = validation.boolean("shared", shared), validation.boolean("tracked", tracked)

    def init(self, point: Point) -> _JacobianTrackingState:
        B = self._right(point)
        Z = array_namespace(B).zeros_like(_flat(B))
        return _JacobianTrackingState(Moving(Z), point, B, None)

    def restart(self, state: _JacobianTrackingState, point: Point) -> _JacobianTrackingState:
        return _JacobianTrackingState(Moving(state.Z.s), point, self._right(point), None)

    def talk(self, state: _JacobianTrackingState, point: Point) -> MixingRoutine:
        B = state.B if state.point is point else self._right(point)
        d = lambda Z: _flat(point.lin.hvp(_columns(Z, B)) - B)  # noqa: E731
        talks = [self.rule.talk(state.Z, d)]
        if self.tracked:
            talks.append(follow(state.memory, self._products(state, point)))
        Z, *memory = yield from concurrently(*talks)
        return _JacobianTrackingState(Z, point, B, memory[0] if memory else None)

    def value(self, state: _JacobianTrackingState, point: Point) -> Array:
        u = self._products(state, point)
        if self.tracked:
            u = followed(state.memory, u)
        if self.shared:
            return u
        xp, (n, p) = array_namespace(u), point.outer[1].shape
        block = xp.sum(_identity(u) * xp.reshape(u, (n, n, p)), axis=1)  # (n, d_lam), the i-th block of u_i
        return point.outer[1] + (n if self.tracked else 1) * block

    def _products(self, state: _JacobianTrackingState, point: Point) -> Array:
        """∂_λ f_i − Z_iᵀ ∂_x f_i, or −Z_iᵀ ∂_x f_i if λ is not shared.  # (n, k)"""
        xp, Z = array_namespace(point.x), _columns(state.Z.s, state.B)
        u = -xp.matrix_transpose(xp.sum(Z * point.outer[0], axis=-1))
        return point.outer[1] + u if self.shared else u

    def _right(self, point: Point) -> Array:
        """J_iᵀ by columns, in the block of client i unless λ is shared.  # (k, n, d_x)"""
        xp = array_namespace(point.x)
        J = point.jacobians()  # (n, d_lam, d_x)
        n, p, q = J.shape
        if self.shared:
            return xp.moveaxis(J, 0, 1)
        blocks = _identity(point.x)[:, None, ...] * xp.moveaxis(J, 0, 1)[None, ...]  # (n, d_lam, n, d_x)
        return xp.reshape(blocks, (n * p, n, q))


def _identity(rows: Array) -> Array:
    """1 where block j belongs to client i.  # (n, n, 1)"""
    n = rows.shape[-2]
    return array_namespace(rows).eye(n, dtype=rows.dtype, device=device(rows))[..., None]


def _flat(columns: Array) -> Array:
    """(n, k d) from (k, n, d)."""
    xp = array_namespace(columns)
    k, n, d = columns.shape
    return xp.reshape(xp.moveaxis(columns, 1, 0), (n, k * d))


def _columns(Z: Array, like: Array) -> Array:
    """(k, n, d) from (n, k d)."""
    xp = array_namespace(Z)
    k, n, d = like.shape
    return xp.moveaxis(xp.reshape(Z, (n, k, d)), 1, 0)


def dbo(
    problem: Problem,
    lam: Array,
    net: Network,
    outer_steps: int = 100,
    *,
    lr: float,
    inner_lr: float,
    jhip_lr: float,
    inner_steps: int = 10,
    jhip_steps: int = 10,
    tracking: bool = False,
    **options: Unpack[RunOptions],
) -> Path:
    """DBO (arXiv 2206.05670), with `tracking` DBOGT. In each outer iteration

        T times    x_i ← Σ_j W_ij x_j − β ∂_x g_i(x_i, λ_i),
        N times    JHIP (`JacobianTracking`), from the last Z,
        then       λ_i ← Σ_j W_ij λ_j − α u_i,    u_i = ∂_λ f_i − Z_iᵀ ∂_x f_i,    or with u_i tracked (DBOGT).

    This is for a shared λ: u_i is of class Client, its mean Global. If λ_i belongs to client i, λ_i ← λ_i − α v_i with
    the Global v_i, for which the products Zᵀ ∂_x f are tracked together with Z.

    Parameters
    ----------
    lr, inner_lr, jhip_lr : α, β and γ.
    inner_steps, jhip_steps : T and N.
    tracking : DBOGT. It differs from DBO only if λ is shared.
    options : see `RunOptions`.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> net = hgp.networks.StaticUndirected(n=4, seed=1)
    >>> path = hgp.baselines.dbo(problem, np.zeros((4, 2)), net, 100, lr=0.02, inner_lr=0.2, jhip_lr=0.2)
    >>> cost = lambda lam: problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum()
    >>> bool(cost(path.lam[-1]) < 0.6 * cost(path.lam[0]))
    True
    """
    shared, tracking = read_shared(options), validation.boolean("tracking", tracking)
    lr, inner_lr, jhip_lr = validation.positives(lr=lr, inner_lr=inner_lr, jhip_lr=jhip_lr)
    estimator = JacobianTracking(jhip_lr, shared=shared, tracked=not shared)
    lam_rule = LocalGradientStep(lr) if not shared else Tracked(lr) if tracking else Consensus(lr)
    T = validation.integer("inner_steps", inner_steps, 1, validation.LONGEST)
    N = validation.integer("jhip_steps", jhip_steps, 1, validation.LONGEST)
    method = Nested("DBOGT" if tracking else "DBO", Consensus(inner_lr), estimator, lam_rule, T, N, network=STATIC)
    return run(method, problem, lam, net, outer_steps, **options)


# ---- MDBO and VRDBO


def mdbo(
    problem: Problem,
    lam: Array,
    net: Network,
    outer_steps: int = 100,
    *,
    lr: float,
    inner_lr: float,
    ell: float,
    terms: int = 20,
    eta: float = 0.5,
    momentum: float = 1.0,
    **options: Unpack[RunOptions],
) -> Path:
    """MDBO (Gao, Gu, Thai 2022, on the convergence of distributed stochastic bilevel optimization over a network):

        u ← (1 − θ) u + θ d,    t ← W t + u⁺ − u,    s ← s + η (W s − α t − s),    θ = α₁ η,

    for s = x with d_i = ∂_x g_i and for s = λ with the Local hyper-gradient of `LocalSeries`,
    d_i = ∂_λ f_i − J_i (1/ℓ) Σ_{j<J} (I − H_i/ℓ)^j ∂_x f_i, the mean over the paper's random J̃. Its class is Local,
    with or without tracking: if clients differ, it is not the derivative of Σ_k f_k. A message carries 2 d_λ + 2 d_x
    numbers. If λ is not shared, λ_i ← λ_i − η α u_i.

    Parameters
    ----------
    lr, inner_lr : α of λ and of x.
    ell, terms : ℓ and J.
    eta, momentum : η in (0, 1] and θ in [0, 1].
    options : see `RunOptions`.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1, heterogeneity=0.0)
    >>> net = hgp.networks.StaticUndirected(n=4, seed=1)
    >>> path = hgp.baselines.mdbo(problem, np.zeros((4, 2)), net, 200, lr=0.02, inner_lr=0.3, ell=1.0)
    >>> path.method, path.traffic.rounds
    ('MDBO', 200)
    """
    filtered = MovingAverage(validation.between("momentum", momentum, 0, 1))
    method = _mdbo("MDBO", lr, inner_lr, ell, terms, eta, filtered, read_shared(options))
    return run(method, problem, lam, net, outer_steps, **options)


def vrdbo(
    problem: Problem,
    lam: Array,
    net: Network,
    outer_steps: int = 100,
    *,
    lr: float,
    inner_lr: float,
    ell: float,
    terms: int = 20,
    eta: float = 0.5,
    momentum: float = 0.1,
    **options: Unpack[RunOptions],
) -> Path:
    """VRDBO (Gao, Gu, Thai 2022): `mdbo` with STORM in place of momentum, θ = α₁ η²,

        u ← (1 − θ) (u − d₋) + d,    d₋ the direction one iteration ago, on this iteration's mini-batch.

    On full batches u = d for every θ. Parameters and class are those of `mdbo`.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1, heterogeneity=0.0)
    >>> net = hgp.networks.StaticUndirected(n=4, seed=1)
    >>> settings = dict(lr=0.02, inner_lr=0.3, ell=1.0, shared=True)
    >>> one = hgp.baselines.vrdbo(problem, np.zeros((4, 2)), net, 50, **settings)
    >>> other = hgp.baselines.mdbo(problem, np.zeros((4, 2)), net, 50, **settings)  # θ = 1, so that u = d
    >>> bool(np.allclose(one.lam, other.lam, atol=1e-12))
    True
    """
    filtered = Storm(validation.between("momentum", momentum, 0, 1))
    method = _mdbo("VRDBO", lr, inner_lr, ell, terms, eta, filtered, read_shared(options))
    return run(method, problem, lam, net, outer_steps, **options)


def _mdbo(
    name: str, lr: float, inner_lr: float, ell: float, terms: int, eta: float, filtered: Filter, shared: bool
) -> SingleLoop:
    lr, inner_lr = validation.positives(lr=lr, inner_lr=inner_lr)
    estimator = LocalSeries(validation.integer("terms", terms, 1, validation.LONGEST), validation.positive("ell", ell))
    damping = validation.between("eta", eta, 0, 1)
    if damping == 0:
        raise ValueError(f"eta must be a number in (0, 1], got {eta!r}")
    lam_rule = Tracked(lr, damping) if shared else LocalGradientStep(damping * lr)
    return SingleLoop(name, Tracked(inner_lr, damping), estimator, lam_rule, filtered, filtered)
