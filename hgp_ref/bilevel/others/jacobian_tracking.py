"""DBO, DBOGT: the matrix H̄⁻¹ J̄ᵀ by gradient tracking, the JHIP oracle.  Chen, Huang, Ma 2022, arXiv 2206.05670."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hgp_ref import arguments
from hgp_ref.averaging.talks import Talk, beside
from hgp_ref.backend import Array, array_namespace, device
from hgp_ref.bilevel.others.hyper import Hyper
from hgp_ref.bilevel.others.joint import Nested, Own
from hgp_ref.bilevel.others.networks import STATIC
from hgp_ref.bilevel.others.points import Point
from hgp_ref.bilevel.others.run import run
from hgp_ref.bilevel.path import Path
from hgp_ref.methods.rules import Consensus, Moving, Tracked, follow, followed
from hgp_ref.networks import Network
from hgp_ref.problems import Problem


@dataclass(frozen=True)
class _State:
    Z: Moving  # (n, d_x k)
    seen: Point  # at which B was formed
    B: Array  # J_iᵀ by columns, (k, n, d_x)
    memory: Any  # of the tracked products


class JacobianTracking(Hyper):
    """Z → H̄⁻¹ mean_i B_i by gradient tracking on matrices, B_i = J_iᵀ (JHIP), and v from Zᵀ ∂_x f:

        Z_i ← Σ_j W_ij Z_j − γ R_i,    R_i ← Σ_j W_ij R_j + (H_i Z_i⁺ − B_i) − (H_i Z_i − B_i),    R⁰ = −B at Z⁰ = 0.

    With a shared λ, k = d_λ columns: u_i = ∂_λ f_i − Z_iᵀ ∂_x f_i is of class Client, and the mean of u over clients is
    Global; `tracked` finds it by y ← W y + u⁺ − u, as DBOGT does. Where λ_i belongs to client i, the shared variable is
    (λ_1, …, λ_n) with n d_λ columns, of which J_i fills the i-th block: then

        Client  v_i = ∂_λ f_i − (Z_iᵀ ∂_x f_i)_i,    Global  v_i = ∂_λ f_i − n (y_i)_i,  y → mean_k Z_kᵀ ∂_x f_k.

    A message carries two matrices, 2 d_x k numbers, and k of the tracked products. Exact in the limit.
    """

    def __init__(self, step: float, shared: bool = False, tracked: bool = True) -> None:
        self.rule = Tracked(step)
        self.shared, self.tracked = arguments.boolean("shared", shared), arguments.boolean("tracked", tracked)

    def begin(self, point: Point) -> _State:
        B = self._right(point)
        Z = array_namespace(B).zeros_like(_flat(B))
        return _State(Moving(Z), point, B, None)

    def again(self, state: _State, point: Point) -> _State:
        return _State(Moving(state.Z.s), point, self._right(point), None)

    def talk(self, state: _State, point: Point) -> Talk:
        B = state.B if state.seen is point else self._right(point)
        d = lambda Z: _flat(point.lin.hvp(_columns(Z, B)) - B)  # noqa: E731
        talks = [self.rule.talk(state.Z, d)]
        if self.tracked:
            talks.append(follow(state.memory, self._products(state, point)))
        Z, *memory = yield from beside(*talks)
        return _State(Z, point, B, memory[0] if memory else None)

    def value(self, state: _State, point: Point) -> Array:
        u = self._products(state, point)
        if self.tracked:
            u = followed(state.memory, u)
        if self.shared:
            return u
        xp, (n, p) = array_namespace(u), point.outer[1].shape
        own = xp.sum(_identity(u) * xp.reshape(u, (n, n, p)), axis=1)
        return point.outer[1] + (n if self.tracked else 1) * own

    def _products(self, state: _State, point: Point) -> Array:
        """∂_λ f_i − Z_iᵀ ∂_x f_i, or −Z_iᵀ ∂_x f_i where λ is not shared.  # (n, k)"""
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
    """Which block is whose.  # (n, n, 1)"""
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
    net: Network,
    lam: Array,
    outer_steps: int = 100,
    *,
    lr: float,
    inner_lr: float,
    jhip_lr: float,
    inner_steps: int = 10,
    jhip_steps: int = 10,
    shared: bool = False,
    tracking: bool = False,
    **options: Any,
) -> Path:
    """DBO (arXiv 2206.05670; with `tracking` DBOGT): in each outer iteration

        T times    x_i ← Σ_j W_ij x_j − β ∂_x g_i(x_i, λ_i),
        N times    JHIP (`JacobianTracking`), from the Z of before,
        then       λ_i ← Σ_j W_ij λ_j − α u_i,    u_i = ∂_λ f_i − Z_iᵀ ∂_x f_i,    or with u_i tracked (DBOGT).

    That is with a shared λ, whose u_i is of class Client and whose mean is Global. Where λ_i belongs to client i, λ_i ←
    λ_i − α v_i with the Global v_i, whose products Zᵀ ∂_x f are tracked beside Z.

    Parameters
    ----------
    problem, net, lam, outer_steps : as for `bilevel.optimise`; `net` must be one undirected graph.
    lr, inner_lr, jhip_lr : α, β and γ.
    inner_steps, jhip_steps : T and N.
    shared : whether all clients share one λ, which is then mixed, too.
    tracking : DBOGT, where λ is shared.
    options : x0, project, batch_size, seed, every, callback: see `bilevel.others.run.run`.

    Returns
    -------
    Path
        λ of every outer step, the outer cost there, and what was sent until it was known.

    Raises
    ------
    TypeError, ValueError
        `net` must be one undirected graph, rates positive, numbers of steps integers ≥ 1.
    DivergenceError
        x or λ is not finite any more.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> net = hgp.networks.StaticUndirected(n=4, seed=1)
    >>> path = hgp.bilevel.dbo(problem, net, np.zeros((4, 2)), 100, lr=0.02, inner_lr=0.2, jhip_lr=0.2)
    >>> cost = lambda lam: problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum()
    >>> bool(cost(path.lam[-1]) < 0.6 * cost(path.lam[0]))
    True
    """
    shared, tracking = arguments.boolean("shared", shared), arguments.boolean("tracking", tracking)
    lr, inner_lr, jhip_lr = arguments.positives(lr=lr, inner_lr=inner_lr, jhip_lr=jhip_lr)
    hyper = JacobianTracking(jhip_lr, shared=shared, tracked=not shared)
    lam_rule = Own(lr) if not shared else Tracked(lr) if tracking else Consensus(lr)
    T, N = (
        arguments.integer("inner_steps", inner_steps, 1, arguments.LONGEST),
        arguments.integer("jhip_steps", jhip_steps, 1, arguments.LONGEST),
    )
    method = Nested("DBOGT" if tracking else "DBO", Consensus(inner_lr), hyper, lam_rule, T, N, network=STATIC)
    return run(method, problem, net, lam, outer_steps, **options)
