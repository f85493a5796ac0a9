"""MA-DSBO: vectors only, by gradient tracking.  Chen, Huang, Ma, Balasubramanian 2022, arXiv 2210.12839."""

from __future__ import annotations

from typing import Any

from hgp_ref import arguments
from hgp_ref.backend import Array
from hgp_ref.bilevel.others.filters import Average
from hgp_ref.bilevel.others.hyper import Auxiliary
from hgp_ref.bilevel.others.joint import Nested, Own
from hgp_ref.bilevel.others.run import run
from hgp_ref.bilevel.path import Path
from hgp_ref.methods.rules import Consensus, Tracked
from hgp_ref.networks import Network
from hgp_ref.problems import Problem


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
    options : x0, project, batch_size, seed, every, callback: see `bilevel.others.run.run`.

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
    >>> path = hgp.bilevel.ma_dsbo(problem, net, np.zeros((4, 2)), 100, lr=0.02, inner_lr=0.2, higp_lr=0.2)
    >>> cost = lambda lam: problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum()
    >>> bool(cost(path.lam[-1]) < 0.6 * cost(path.lam[0]))
    True
    """
    lr, inner_lr, higp_lr = arguments.positives(lr=lr, inner_lr=inner_lr, higp_lr=higp_lr)
    lam_rule = Consensus(lr) if arguments.boolean("shared", shared) else Own(lr)
    T, N = (
        arguments.integer("inner_steps", inner_steps, 1, arguments.LONGEST),
        arguments.integer("higp_steps", higp_steps, 1, arguments.LONGEST),
    )
    filtered = Average(arguments.between("momentum", momentum, 0, 1))
    method = Nested("MA-DSBO", Consensus(inner_lr), Auxiliary(Tracked(higp_lr)), lam_rule, T, N, lam_filter=filtered)
    return run(method, problem, net, lam, outer_steps, **options)
