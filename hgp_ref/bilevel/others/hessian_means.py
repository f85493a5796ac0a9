"""GBDSBO: damped gossip of gradients, Jacobians and Hessians.  Yang, Zhang, Wang 2022, arXiv 2206.10870."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hgp_ref import arguments
from hgp_ref.averaging.talks import Talk
from hgp_ref.backend import Array, array_namespace
from hgp_ref.bilevel.others.hyper import Hyper
from hgp_ref.bilevel.others.joint import Own, SingleLoop
from hgp_ref.bilevel.others.points import Point
from hgp_ref.bilevel.others.run import run
from hgp_ref.bilevel.path import Path
from hgp_ref.methods.hessian_gossip import HessianGossip, damped, hessians, inverse_times
from hgp_ref.methods.rules import Consensus
from hgp_ref.networks import Network
from hgp_ref.problems import Problem


@dataclass(frozen=True)
class _State:
    held: tuple[Array, ...]  # h, V and, where λ is shared, s and U
    seen: Point
    own: tuple[Array, ...]  # what the client sees itself at that point


class MeanHessian(Hyper):
    """With s ← (1 − β) W s + β ∂_λ f_i, and alike h of ∂_x f_i, U of J_i, V of H_i:

        v_i = s_i − U_i Q_i h_i,    Q = (1/ℓ) Σ_{j ≤ b} (I − V_i/ℓ)^j,

    of class Global with a shared λ. Where λ_i belongs to client i, ∂_λ f_i and J_i stay at home,
    v_i = ∂_λ f_i − J_i Q_i h_i, and a message carries d_x² + d_x numbers instead of d_x² + d_x d_λ + d_x + d_λ.
    See `methods.HessianGossip`.
    """

    def __init__(self, step: float, ell: float, terms: int, shared: bool = False) -> None:
        read = HessianGossip(step, ell, terms)
        self.beta, self.ell, self.terms = read.beta, read.ell, read.terms
        self.shared = arguments.boolean("shared", shared)

    def begin(self, point: Point) -> _State:
        own = self._own(point)
        return _State(own, point, own)

    def talk(self, state: _State, point: Point) -> Talk:
        own = state.own if state.seen is point else self._own(point)
        held = yield from damped(self.beta, state.held, own)
        return _State(held, point, own)

    def value(self, state: _State, point: Point) -> Array:
        h, V, *shared = state.held
        w = inverse_times(V, h, self.ell, self.terms)
        if not self.shared:
            return point.outer[1] - point.lin.cross(w)
        s, U = shared
        xp = array_namespace(s)
        return s - xp.matmul(xp.reshape(U, (*s.shape, w.shape[-1])), w[..., None])[..., 0]

    def _own(self, point: Point) -> tuple[Array, ...]:
        own = (point.outer[0], hessians(point.lin, point.x))
        if not self.shared:
            return own
        J = point.jacobians()
        return (*own, point.outer[1], array_namespace(J).reshape(J, (J.shape[0], -1)))


def gbdsbo(
    problem: Problem,
    net: Network,
    lam: Array,
    outer_steps: int = 100,
    *,
    lr: float,
    inner_lr: float,
    mixing: float,
    ell: float,
    terms: int = 20,
    shared: bool = False,
    **options: Any,
) -> Path:
    """GBDSBO (arXiv 2206.10870): in each iteration one round of all of

        λ ← W λ − α (s − U Q h),    x ← W x − β' ∂_x g_i,    and s, h, U, V as in `MeanHessian`.

    The paper ties all steps together, α, β = Θ(√(n/K)); here they are given. Where λ is not shared λ_i ← λ_i − α v_i.

    Parameters
    ----------
    problem, net, lam, outer_steps : as for `bilevel.optimise`; `net` must be one undirected graph.
    lr, inner_lr, mixing : α, β' and the β of the means.
    ell, terms : ℓ and the degree b of the polynomial.
    shared : whether all clients share one λ.
    options : x0, project, batch_size, seed, every, callback: see `bilevel.others.run.run`.

    Returns
    -------
    Path
        λ of every outer step, the outer cost there, and what was sent until it was known.

    Raises
    ------
    TypeError, ValueError
        `net` must be one undirected graph, rates and ℓ positive, `mixing` in (0, 1], `terms` an integer ≥ 1.
    DivergenceError
        x or λ is not finite any more.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> net = hgp.networks.StaticUndirected(n=4, seed=1)
    >>> path = hgp.bilevel.gbdsbo(
    ...     problem, net, np.zeros((4, 2)), 900, lr=0.003, inner_lr=0.1, mixing=0.05, ell=1.0, shared=True)
    >>> cost = lambda lam: problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum()
    >>> bool(cost(path.lam[-1]) < 0.6 * cost(path.lam[0]))
    True
    """
    lr, inner_lr, mixing = arguments.positives(lr=lr, inner_lr=inner_lr, mixing=mixing)
    hyper = MeanHessian(arguments.between("mixing", mixing, 0, 1), ell, terms, shared)
    method = SingleLoop("GBDSBO", Consensus(inner_lr), hyper, Consensus(lr) if hyper.shared else Own(lr))
    return run(method, problem, net, lam, outer_steps, **options)
