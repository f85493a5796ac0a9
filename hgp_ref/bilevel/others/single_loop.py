"""D-SOBA and SPARKLE: x, z and λ in one round.  Kong et al., arXiv 2402.03167; Zhu et al., arXiv 2411.14166."""

from __future__ import annotations

from typing import Any

from hgp_ref import arguments
from hgp_ref.backend import Array
from hgp_ref.bilevel.others.filters import Average
from hgp_ref.bilevel.others.hyper import Auxiliary
from hgp_ref.bilevel.others.joint import Own, SingleLoop
from hgp_ref.bilevel.others.run import run
from hgp_ref.bilevel.path import Path
from hgp_ref.methods.rules import Diffusion, read_rule
from hgp_ref.networks import Network
from hgp_ref.problems import Problem


def d_soba(
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
    options : x0, project, batch_size, seed, every, callback: see `bilevel.others.run.run`.

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
    >>> path = hgp.bilevel.d_soba(problem, net, np.zeros((4, 2)), 600, lr=0.002, inner_lr=0.2, aux_lr=0.2, shared=True)
    >>> cost = lambda lam: problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum()
    >>> bool(cost(path.lam[-1]) < 0.8 * cost(path.lam[0]))
    True
    """
    lr, inner_lr, aux_lr = arguments.positives(lr=lr, inner_lr=inner_lr, aux_lr=aux_lr)
    lam_rule = Diffusion(lr) if arguments.boolean("shared", shared) else Own(lr)
    filtered = Average(arguments.between("momentum", momentum, 0, 1))
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
    """SPARKLE (arXiv 2411.14166), class Global: the directions of `d_soba`, each variable with its own
    correction for clients that differ, "ED", "EXTRA" or "GT" (see `hgp_ref.methods.rules`), here with d eliminated:

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
    options : x0, project, batch_size, seed, every, callback: see `bilevel.others.run.run`.

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
    >>> path = hgp.bilevel.sparkle(problem, net, np.zeros((4, 2)), 600, lr=0.002, inner_lr=0.4, aux_lr=0.4, z="GT")
    >>> cost = lambda lam: problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum()
    >>> bool(cost(path.lam[-1]) < 0.6 * cost(path.lam[0]))
    True
    """
    lr, inner_lr, aux_lr = arguments.positives(lr=lr, inner_lr=inner_lr, aux_lr=aux_lr)
    for name, rule in (("x", x), ("z", z), ("outer", outer)):
        arguments.choice(name, rule, ("ED", "EXTRA", "GT"))
    lam_rule = read_rule("outer", outer, lr) if arguments.boolean("shared", shared) else Own(lr)
    filtered = Average(arguments.between("momentum", momentum, 0, 1))
    hyper = Auxiliary(read_rule("z", z, aux_lr))
    method = SingleLoop("SPARKLE", read_rule("x", x, inner_lr), hyper, lam_rule, lam_filter=filtered)
    return run(method, problem, net, lam, outer_steps, **options)
