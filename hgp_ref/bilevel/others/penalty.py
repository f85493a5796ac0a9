"""FAB: a penalty instead of second derivatives, over time-varying directed graphs.  arXiv 2605.06328."""

from __future__ import annotations

from typing import Any

from hgp_ref import arguments
from hgp_ref.averaging.talks import Talk
from hgp_ref.backend import Array
from hgp_ref.bilevel.others.hyper import Hyper
from hgp_ref.bilevel.others.joint import Own, SingleLoop
from hgp_ref.bilevel.others.networks import DIRECTED
from hgp_ref.bilevel.others.points import Point
from hgp_ref.bilevel.others.run import run
from hgp_ref.bilevel.path import Path
from hgp_ref.methods.rules import Moving, Tracked
from hgp_ref.networks import Network
from hgp_ref.problems import Problem


class Penalty(Hyper):
    """y descends f_i(y, λ) + c g_i(y, λ) by push-pull, beside the inner solution x of g alone:

        y ← A y − η t,    t ← B t + d⁺ − d,    d_i = ∂_x f_i(y_i, λ_i) + c ∂_x g_i(y_i, λ_i),
        v_i = ∂_λ f_i(y_i, λ_i) + c (∂_λ g_i(λ_i, y_i) − ∂_λ g_i(λ_i, x_i)).

    B is the column-stochastic matrix of the round's graph and A = diag(B1)⁻¹ B the row-stochastic one with the same
    edges (`averaging.talks`). Class Global with a bias of order 1/c: H̄ (y − x) = −ḡ/c + O(1/c²), so that v_i → ∂_λ f_i
    − J_i w*. x must be the inner solution, and ∂_λ g at y less that at x is taken as an integral of J
    (`Point.lam_gap`, with `nodes` nodes), since problems offer J and not ∂_λ g.
    """

    def __init__(self, step: float, penalty: float, nodes: int = 2) -> None:
        self.c, self.nodes = arguments.positive("penalty", penalty), arguments.integer("nodes", nodes, 1, 64)
        self.rule = Tracked(step)

    def begin(self, point: Point) -> Moving:
        return Moving(point.x)

    def talk(self, state: Moving, point: Point) -> Talk:
        return self.rule.talk(state, lambda y: point.at(y, point.lam).outer[0] + self.c * point.inner_grad(y))

    def value(self, state: Moving, point: Point) -> Array:
        gap = point.lam_gap(state.s, point.x, self.nodes)
        return point.at(state.s, point.lam).outer[1] + self.c * gap


def fab(
    problem: Problem,
    net: Network,
    lam: Array,
    outer_steps: int = 100,
    *,
    lr: float,
    inner_lr: float,
    penalty: float,
    shared: bool = False,
    nodes: int = 2,
    **options: Any,
) -> Path:
    """FAB (arXiv 2605.06328), first order: with L_i = f_i(λ, y) + c (g_i(λ, y) − g_i(λ, x)), one round an iteration,

        pull with A:   λ ← A λ − α t_λ,    y ← A y − η t_y,    x ← A x − η t_x,
        push with B:   t ← B t + d⁺ − d    for each,    d_y = ∂_x f_i + c ∂_x g_i at y,    d_x = c ∂_x g_i at x,
                       d_λ = ∂_λ f_i(λ, y) + c (∂_λ g_i(λ, y) − ∂_λ g_i(λ, x)),

    A row- and B column-stochastic with the edges of the round's graph: 2 d_λ + 4 d_x numbers and a weight a message.
    The paper takes c = O(K^{1/3}), η = O(K^{-1/3}), here they are given. Where λ is not shared λ_i ← λ_i − α d_λ, and
    λ is not sent. The path's x is x, which follows the inner solution.

    Parameters
    ----------
    problem, net, lam, outer_steps : as for `bilevel.optimise`; any network, also time-varying and directed.
    lr, inner_lr, penalty : α, η and c; x moves by η c, so that η c λ_max(H̄) < 2 is needed, and less on sparse graphs.
    shared : whether all clients share one λ.
    nodes : of the quadrature for ∂_λ g(y) − ∂_λ g(x), exact for polynomials in x of degree 2 · nodes.
    options : x0, project, batch_size, seed, every, callback: see `bilevel.others.run.run`.

    Returns
    -------
    Path
        λ of every outer step, the outer cost there, and what was sent until it was known.

    Raises
    ------
    TypeError, ValueError
        Rates and the penalty must be positive; x0 and λ must fit the problem.
    DivergenceError
        x or λ is not finite any more.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> net = hgp.networks.RandomDirected(n=4, seed=1)
    >>> path = hgp.bilevel.fab(problem, net, np.zeros((4, 2)), 600, lr=0.002, inner_lr=0.02, penalty=20.0)
    >>> cost = lambda lam: problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum()
    >>> bool(cost(path.lam[-1]) < 0.6 * cost(path.lam[0]))
    True
    """
    shared = arguments.boolean("shared", shared)
    lr, inner_lr = arguments.positives(lr=lr, inner_lr=inner_lr)
    hyper = Penalty(inner_lr, penalty, nodes)
    x_rule = Tracked(hyper.rule.step * hyper.c)
    method = SingleLoop("FAB", x_rule, hyper, Tracked(lr) if shared else Own(lr), network=DIRECTED)
    return run(method, problem, net, lam, outer_steps, **options)
