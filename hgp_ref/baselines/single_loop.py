"""Baselines whose messages hold vectors only.

D-SOBA    x, z and λ in one round                                 Kong et al., arXiv 2402.03167
SPARKLE   the same, with corrections for clients that differ      Zhu et al., arXiv 2411.14166
MA-DSBO   nested loops with gradient tracking                     Chen et al. 2022, arXiv 2210.12839
FAB       a penalty instead of second derivatives, over time-varying directed graphs      arXiv 2605.06328
"""

from __future__ import annotations

from typing import Unpack

from hgp_ref import validation
from hgp_ref.backend import Array
from hgp_ref.baselines.driver import (
    DIRECTED,
    Auxiliary,
    HypergradientEstimator,
    LocalGradientStep,
    MovingAverage,
    Nested,
    Point,
    RunOptions,
    SingleLoop,
    read_shared,
    run,
)
from hgp_ref.bilevel.trajectory import Path
from hgp_ref.methods.descent import Consensus, Diffusion, Moving, Tracked, read_rule
from hgp_ref.mixing.consensus import MixingRoutine
from hgp_ref.networks import Network
from hgp_ref.problems import Problem


def dsoba(
    problem: Problem,
    lam: Array,
    net: Network,
    outer_steps: int = 100,
    *,
    lr: float,
    inner_lr: float,
    aux_lr: float,
    momentum: float = 1.0,
    **options: Unpack[RunOptions],
) -> Path:
    """D-SOBA (arXiv 2402.03167), class Global. Each iteration is one round of

        x ← W (x − β ∂_x g_i),               z ← W (z − γ (H_i z_i − ∂_x f_i)),
        h ← (1 − θ) h + θ (∂_λ f_i − J_i z_i),    λ ← W (λ − α h),

    with all derivatives at the same (x, z, λ) and h starting as its first direction. If clients differ, x and z keep a
    bias proportional to β and γ. A message carries d_λ + 2 d_x numbers. If λ is not shared, λ_i ← λ_i − α h_i.

    Parameters
    ----------
    lr, inner_lr, aux_lr : α, β and γ.
    momentum : θ in [0, 1].
    options : see `RunOptions`.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> net = hgp.networks.StaticUndirected(n=4, seed=1)
    >>> path = hgp.baselines.dsoba(problem, np.zeros((4, 2)), net, 600, lr=0.002, inner_lr=0.2, aux_lr=0.2, shared=True)
    >>> cost = lambda lam: problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum()
    >>> bool(cost(path.lam[-1]) < 0.8 * cost(path.lam[0]))
    True
    """
    lr, inner_lr, aux_lr = validation.positives(lr=lr, inner_lr=inner_lr, aux_lr=aux_lr)
    lam_rule = Diffusion(lr) if read_shared(options) else LocalGradientStep(lr)
    lam_filter = MovingAverage(validation.between("momentum", momentum, 0, 1))
    method = SingleLoop("D-SOBA", Diffusion(inner_lr), Auxiliary(Diffusion(aux_lr)), lam_rule, lam_filter=lam_filter)
    return run(method, problem, lam, net, outer_steps, **options)


def sparkle(
    problem: Problem,
    lam: Array,
    net: Network,
    outer_steps: int = 100,
    *,
    lr: float,
    inner_lr: float,
    aux_lr: float,
    inner_rule: str = "ED",
    aux_rule: str = "ED",
    outer_rule: str = "ED",
    momentum: float = 1.0,
    **options: Unpack[RunOptions],
) -> Path:
    """SPARKLE (arXiv 2411.14166), class Global: the directions of `dsoba`, and for each variable a correction for
    clients that differ: "ED", "EXTRA" or "GT" (see `hgp_ref.methods.descent`), here with d eliminated.

        ED     s^{k+2} = W (2s^{k+1} − s^k − α Δd),            EXTRA  s^{k+2} = 2W s^{k+1} − W s^k − α Δd,
        GT     s^{k+2} = 2W s^{k+1} − W² s^k − α W² Δd,        Δd = d^{k+1} − d^k.

    In ED and EXTRA, W is the lazy (I + W)/2. They send one vector per variable and iteration; GT sends two, in two
    rounds. All derivatives are at the same (x, z, λ).

    Parameters
    ----------
    lr, inner_lr, aux_lr : steps of λ, x and z.
    inner_rule, aux_rule, outer_rule : the corrections of x, of z and, if it is shared, of λ.
    momentum : θ in [0, 1].
    options : see `RunOptions`.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> net = hgp.networks.StaticUndirected(n=4, seed=1)
    >>> path = hgp.baselines.sparkle(problem, np.zeros((4, 2)), net, 600, lr=0.002, inner_lr=0.4, aux_lr=0.4,
    ...                              aux_rule="GT")
    >>> cost = lambda lam: problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum()
    >>> bool(cost(path.lam[-1]) < 0.6 * cost(path.lam[0]))
    True
    """
    lr, inner_lr, aux_lr = validation.positives(lr=lr, inner_lr=inner_lr, aux_lr=aux_lr)
    for name, rule in (("inner_rule", inner_rule), ("aux_rule", aux_rule), ("outer_rule", outer_rule)):
        validation.choice(name, rule, ("ED", "EXTRA", "GT"))
    lam_rule = read_rule("outer_rule", outer_rule, lr) if read_shared(options) else LocalGradientStep(lr)
    lam_filter = MovingAverage(validation.between("momentum", momentum, 0, 1))
    estimator = Auxiliary(read_rule("aux_rule", aux_rule, aux_lr))
    x_rule = read_rule("inner_rule", inner_rule, inner_lr)
    method = SingleLoop("SPARKLE", x_rule, estimator, lam_rule, lam_filter=lam_filter)
    return run(method, problem, lam, net, outer_steps, **options)


def ma_dsbo(
    problem: Problem,
    lam: Array,
    net: Network,
    outer_steps: int = 100,
    *,
    lr: float,
    inner_lr: float,
    higp_lr: float,
    inner_steps: int = 10,
    higp_steps: int = 10,
    momentum: float = 1.0,
    **options: Unpack[RunOptions],
) -> Path:
    """MA-DSBO (arXiv 2210.12839), class Global. In each outer iteration

        T times    x ← W x − β ∂_x g_i(x_i, λ_i),    from the last x,
        N times    HIGP: z ← W z − γ d,  d ← W d + s⁺ − s,  s_i = H_i z_i − ∂_x f_i,    from the last z and d⁰ = s⁰,
        then       r ← (1 − θ) r + θ (∂_λ f_i − J_i z_i),    λ ← W λ − α r.

    Every edge carries T d_x + 2 N d_x + d_λ numbers. In the paper θ is proportional to α. If λ is not shared,
    λ_i ← λ_i − α r_i.

    Parameters
    ----------
    lr, inner_lr, higp_lr : α, β and γ.
    inner_steps, higp_steps : T and N.
    momentum : θ in [0, 1].
    options : see `RunOptions`.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> net = hgp.networks.StaticUndirected(n=4, seed=1)
    >>> path = hgp.baselines.ma_dsbo(problem, np.zeros((4, 2)), net, 100, lr=0.02, inner_lr=0.2, higp_lr=0.2)
    >>> cost = lambda lam: problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum()
    >>> bool(cost(path.lam[-1]) < 0.6 * cost(path.lam[0]))
    True
    """
    lr, inner_lr, higp_lr = validation.positives(lr=lr, inner_lr=inner_lr, higp_lr=higp_lr)
    lam_rule = Consensus(lr) if read_shared(options) else LocalGradientStep(lr)
    T = validation.integer("inner_steps", inner_steps, 1, validation.LONGEST)
    N = validation.integer("higp_steps", higp_steps, 1, validation.LONGEST)
    lam_filter = MovingAverage(validation.between("momentum", momentum, 0, 1))
    estimator = Auxiliary(Tracked(higp_lr))
    method = Nested("MA-DSBO", Consensus(inner_lr), estimator, lam_rule, T, N, lam_filter=lam_filter)
    return run(method, problem, lam, net, outer_steps, **options)


class Penalty(HypergradientEstimator):
    """y descends f_i(y, λ) + c g_i(y, λ) by push-pull, while x approaches the minimiser of g:

        y ← A y − η t,    t ← B t + d⁺ − d,    d_i = ∂_x f_i(y_i, λ_i) + c ∂_x g_i(y_i, λ_i),
        v_i = ∂_λ f_i(y_i, λ_i) + c (∂_λ g_i(λ_i, y_i) − ∂_λ g_i(λ_i, x_i)).

    B is the column-stochastic matrix of the round's graph, A = diag(B1)⁻¹ B the row-stochastic one with the same edges.
    The class is Global with a bias of order 1/c: if x is the inner solution, H̄ (y − x) = −ḡ/c + O(1/c²), so that
    v_i → ∂_λ f_i − J_i w*. The difference of ∂_λ g between y and x is an integral of J (`Point.lam_gap`).
    """

    def __init__(self, step: float, penalty: float, nodes: int = 2) -> None:
        self.c, self.nodes = validation.positive("penalty", penalty), validation.integer("nodes", nodes, 1, 64)
        self.rule = Tracked(step)

    def init(self, point: Point) -> Moving:
        return Moving(point.x)

    def talk(self, state: Moving, point: Point) -> MixingRoutine:
        return self.rule.talk(state, lambda y: point.at(y, point.lam).outer[0] + self.c * point.inner_grad(y))

    def value(self, state: Moving, point: Point) -> Array:
        gap = point.lam_gap(state.s, point.x, self.nodes)
        return point.at(state.s, point.lam).outer[1] + self.c * gap


def fab(
    problem: Problem,
    lam: Array,
    net: Network,
    outer_steps: int = 100,
    *,
    lr: float,
    inner_lr: float,
    penalty: float,
    nodes: int = 2,
    **options: Unpack[RunOptions],
) -> Path:
    """FAB (arXiv 2605.06328), a first-order method: with L_i = f_i(λ, y) + c (g_i(λ, y) − g_i(λ, x)), each round

        pull with A:   λ ← A λ − α t_λ,    y ← A y − η t_y,    x ← A x − η t_x,
        push with B:   t ← B t + d⁺ − d    for each,    d_y = ∂_x f_i + c ∂_x g_i at y,    d_x = c ∂_x g_i at x,
                       d_λ = ∂_λ f_i(λ, y) + c (∂_λ g_i(λ, y) − ∂_λ g_i(λ, x)),

    A row- and B column-stochastic with the edges of the round's graph. A message carries 2 d_λ + 4 d_x numbers and a
    weight. In the paper c = O(K^{1/3}) and η = O(K^{-1/3}); here both are arguments. If λ is not shared,
    λ_i ← λ_i − α d_λ. `path.x` is x, which follows the inner solution.

    Parameters
    ----------
    net : any network, also time-varying and directed.
    lr, inner_lr, penalty : α, η and c. The step of x is η c, so that η c λ_max(H̄) < 2 is necessary, and less on sparse
        graphs.
    nodes : of the quadrature for ∂_λ g(y) − ∂_λ g(x), which is exact for polynomials in x of degree 2 · nodes.
    options : see `RunOptions`.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> net = hgp.networks.RandomDirected(n=4, seed=1)
    >>> path = hgp.baselines.fab(problem, np.zeros((4, 2)), net, 600, lr=0.002, inner_lr=0.02, penalty=20.0)
    >>> cost = lambda lam: problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum()
    >>> bool(cost(path.lam[-1]) < 0.6 * cost(path.lam[0]))
    True
    """
    lr, inner_lr = validation.positives(lr=lr, inner_lr=inner_lr)
    estimator = Penalty(inner_lr, penalty, nodes)
    x_rule = Tracked(estimator.rule.step * estimator.c)
    lam_rule = Tracked(lr) if read_shared(options) else LocalGradientStep(lr)
    method = SingleLoop("FAB", x_rule, estimator, lam_rule, network=DIRECTED)
    return run(method, problem, lam, net, outer_steps, **options)
