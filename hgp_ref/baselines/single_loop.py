"""D-SOBA and SPARKLE: x, z and λ in one round.  Kong et al., arXiv 2402.03167; Zhu et al., arXiv 2411.14166."""

from __future__ import annotations

from typing import Any

from hgp_ref import validation
from hgp_ref.backend import Array
from hgp_ref.baselines.driver import DIRECTED, Auxiliary, Average, Hyper, Nested, Own, Point, SingleLoop, run
from hgp_ref.bilevel.trajectory import Path
from hgp_ref.methods.spectrum import Consensus, Diffusion, Moving, Tracked, read_rule
from hgp_ref.mixing.consensus import MixingRoutine
from hgp_ref.networks import Network
from hgp_ref.problems import Problem


def dsoba(
    problem: Problem,
    net: Network,
    lam: Array,
    outer_steps: int = 100,
    *,
    lr: float,
    inner_lr: float,
    aux_lr: float,
    momentum: float = 1.0,
    shared: bool = False,
    **options: Any,
) -> Path:
    """D-SOBA (arXiv 2402.03167), class Global: one round an iteration of

        x ← W (x − β ∂_x g_i),               z ← W (z − γ (H_i z_i − ∂_x f_i)),
        h ← (1 − θ) h + θ (∂_λ f_i − J_i z_i),    λ ← W (λ − α h),

    with all derivatives at the same (x, z, λ); h starts as its first direction. Nothing corrects for clients that
    differ: x and z keep a bias in proportion to β and γ. d_λ + 2 d_x numbers a message; where λ is not shared
    λ_i ← λ_i − α h_i, and λ is not sent.

    Parameters
    ----------
    problem, net, lam, outer_steps : as for `bilevel.optimise`; `net` must be one undirected graph.
    lr, inner_lr, aux_lr : α, β and γ.
    momentum : θ in [0, 1].
    shared : whether all clients share one λ.
    options : x0, project, batch_size, seed, every, callback: see `baselines.driver.run`.

    Returns
    -------
    Path
        λ of every outer step, the outer cost there, and what was sent until it was known.

    Raises
    ------
    TypeError, ValueError
        `net` must be one undirected graph, steps positive, `momentum` in [0, 1].
    DivergenceError
        x or λ is not finite any more.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> net = hgp.networks.StaticUndirected(n=4, seed=1)
    >>> path = hgp.baselines.dsoba(problem, net, np.zeros((4, 2)), 600, lr=0.002, inner_lr=0.2, aux_lr=0.2, shared=True)
    >>> cost = lambda lam: problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum()
    >>> bool(cost(path.lam[-1]) < 0.8 * cost(path.lam[0]))
    True
    """
    lr, inner_lr, aux_lr = validation.positives(lr=lr, inner_lr=inner_lr, aux_lr=aux_lr)
    lam_rule = Diffusion(lr) if validation.boolean("shared", shared) else Own(lr)
    filtered = Average(validation.between("momentum", momentum, 0, 1))
    z = Auxiliary(Diffusion(aux_lr))
    method = SingleLoop("D-SOBA", Diffusion(inner_lr), z, lam_rule, lam_filter=filtered)
    return run(method, problem, net, lam, outer_steps, **options)


def sparkle(
    problem: Problem,
    net: Network,
    lam: Array,
    outer_steps: int = 100,
    *,
    lr: float,
    inner_lr: float,
    aux_lr: float,
    x: str = "ED",
    z: str = "ED",
    outer: str = "ED",
    momentum: float = 1.0,
    shared: bool = False,
    **options: Any,
) -> Path:
    """SPARKLE (arXiv 2411.14166), class Global: the directions of `dsoba`, each variable with its own
    correction for clients that differ, "ED", "EXTRA" or "GT" (see `hgp_ref.methods.spectrum`), here with d eliminated:

        ED     s^{k+2} = W (2s^{k+1} − s^k − α Δd),            EXTRA  s^{k+2} = 2W s^{k+1} − W s^k − α Δd,
        GT     s^{k+2} = 2W s^{k+1} − W² s^k − α W² Δd,        Δd = d^{k+1} − d^k.

    In ED and EXTRA W is the lazy (I + W)/2. ED and EXTRA send one vector a variable and round, GT one in each of two
    rounds. All derivatives are taken at the same (x, z, λ).

    Parameters
    ----------
    problem, net, lam, outer_steps : as for `bilevel.optimise`; `net` must be one undirected graph.
    lr, inner_lr, aux_lr : steps of λ, x and z.
    x, z, outer : the corrections of x, z and, where it is shared, λ.
    momentum : θ in [0, 1].
    shared : whether all clients share one λ.
    options : x0, project, batch_size, seed, every, callback: see `baselines.driver.run`.

    Returns
    -------
    Path
        λ of every outer step, the outer cost there, and what was sent until it was known.

    Raises
    ------
    TypeError, ValueError
        Rules must be "ED", "EXTRA" or "GT", `net` one undirected graph, rates positive.
    DivergenceError
        x or λ is not finite any more.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> net = hgp.networks.StaticUndirected(n=4, seed=1)
    >>> path = hgp.baselines.sparkle(problem, net, np.zeros((4, 2)), 600, lr=0.002, inner_lr=0.4, aux_lr=0.4, z="GT")
    >>> cost = lambda lam: problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum()
    >>> bool(cost(path.lam[-1]) < 0.6 * cost(path.lam[0]))
    True
    """
    lr, inner_lr, aux_lr = validation.positives(lr=lr, inner_lr=inner_lr, aux_lr=aux_lr)
    for name, rule in (("x", x), ("z", z), ("outer", outer)):
        validation.choice(name, rule, ("ED", "EXTRA", "GT"))
    lam_rule = read_rule("outer", outer, lr) if validation.boolean("shared", shared) else Own(lr)
    filtered = Average(validation.between("momentum", momentum, 0, 1))
    hyper = Auxiliary(read_rule("z", z, aux_lr))
    method = SingleLoop("SPARKLE", read_rule("x", x, inner_lr), hyper, lam_rule, lam_filter=filtered)
    return run(method, problem, net, lam, outer_steps, **options)


# ----------------------------------------------------------------------------------------------------
# MA-DSBO: vectors only, by gradient tracking.  Chen, Huang, Ma, Balasubramanian 2022, arXiv 2210.12839.


def ma_dsbo(
    problem: Problem,
    net: Network,
    lam: Array,
    outer_steps: int = 100,
    *,
    lr: float,
    inner_lr: float,
    higp_lr: float,
    inner_steps: int = 10,
    higp_steps: int = 10,
    momentum: float = 1.0,
    shared: bool = False,
    **options: Any,
) -> Path:
    """MA-DSBO (arXiv 2210.12839), class Global: in each outer iteration

        T times    x ← W x − β ∂_x g_i(x_i, λ_i),    from the x of before,
        N times    HIGP: z ← W z − γ d,  d ← W d + s⁺ − s,  s_i = H_i z_i − ∂_x f_i,    from the z of before, d⁰ = s⁰,
        then       r ← (1 − θ) r + θ (∂_λ f_i − J_i z_i),    λ ← W λ − α r.

    T d_x + 2 N d_x + d_λ numbers over every edge. The paper has θ proportional to α. Where λ is not shared
    λ_i ← λ_i − α r_i, and λ is not sent.

    Parameters
    ----------
    problem, net, lam, outer_steps : as for `bilevel.optimise`; `net` must be one undirected graph.
    lr, inner_lr, higp_lr : α, β and γ.
    inner_steps, higp_steps : T and N.
    momentum : θ in [0, 1].
    shared : whether all clients share one λ.
    options : x0, project, batch_size, seed, every, callback: see `baselines.driver.run`.

    Returns
    -------
    Path
        λ of every outer step, the outer cost there, and what was sent until it was known.

    Raises
    ------
    TypeError, ValueError
        `net` must be one undirected graph, rates positive, numbers of steps integers ≥ 1, `momentum` in [0, 1].
    DivergenceError
        x or λ is not finite any more.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> net = hgp.networks.StaticUndirected(n=4, seed=1)
    >>> path = hgp.baselines.ma_dsbo(problem, net, np.zeros((4, 2)), 100, lr=0.02, inner_lr=0.2, higp_lr=0.2)
    >>> cost = lambda lam: problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum()
    >>> bool(cost(path.lam[-1]) < 0.6 * cost(path.lam[0]))
    True
    """
    lr, inner_lr, higp_lr = validation.positives(lr=lr, inner_lr=inner_lr, higp_lr=higp_lr)
    lam_rule = Consensus(lr) if validation.boolean("shared", shared) else Own(lr)
    T, N = (
        validation.integer("inner_steps", inner_steps, 1, validation.LONGEST),
        validation.integer("higp_steps", higp_steps, 1, validation.LONGEST),
    )
    filtered = Average(validation.between("momentum", momentum, 0, 1))
    method = Nested("MA-DSBO", Consensus(inner_lr), Auxiliary(Tracked(higp_lr)), lam_rule, T, N, lam_filter=filtered)
    return run(method, problem, net, lam, outer_steps, **options)


# ----------------------------------------------------------------------------------------------------
# FAB: a penalty instead of second derivatives, over time-varying directed graphs.  arXiv 2605.06328.


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
        self.c, self.nodes = validation.positive("penalty", penalty), validation.integer("nodes", nodes, 1, 64)
        self.rule = Tracked(step)

    def begin(self, point: Point) -> Moving:
        return Moving(point.x)

    def talk(self, state: Moving, point: Point) -> MixingRoutine:
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
    options : x0, project, batch_size, seed, every, callback: see `baselines.driver.run`.

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
    >>> path = hgp.baselines.fab(problem, net, np.zeros((4, 2)), 600, lr=0.002, inner_lr=0.02, penalty=20.0)
    >>> cost = lambda lam: problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum()
    >>> bool(cost(path.lam[-1]) < 0.6 * cost(path.lam[0]))
    True
    """
    shared = validation.boolean("shared", shared)
    lr, inner_lr = validation.positives(lr=lr, inner_lr=inner_lr)
    hyper = Penalty(inner_lr, penalty, nodes)
    x_rule = Tracked(hyper.rule.step * hyper.c)
    method = SingleLoop("FAB", x_rule, hyper, Tracked(lr) if shared else Own(lr), network=DIRECTED)
    return run(method, problem, net, lam, outer_steps, **options)
