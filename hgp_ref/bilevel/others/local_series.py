"""MDBO and VRDBO: the Local hyper-gradient with momentum or STORM, and gradient tracking.  Gao, Gu, Thai 2022."""

from __future__ import annotations

from typing import Any

from hgp_ref import arguments
from hgp_ref.backend import Array
from hgp_ref.bilevel.others.filters import Average, Filter, Storm
from hgp_ref.bilevel.others.hyper import LocalSeries
from hgp_ref.bilevel.others.joint import Own, SingleLoop
from hgp_ref.bilevel.others.run import run
from hgp_ref.bilevel.path import Path
from hgp_ref.methods.rules import Tracked
from hgp_ref.networks import Network
from hgp_ref.problems import Problem


def mdbo(
    problem: Problem,
    net: Network,
    lam: Array,
    outer_steps: int = 100,
    *,
    lr: float,
    inner_lr: float,
    ell: float,
    terms: int = 20,
    eta: float = 0.5,
    momentum: float = 1.0,
    shared: bool = False,
    **options: Any,
) -> Path:
    """MDBO (Gao, Gu, Thai 2022, on the convergence of distributed stochastic bilevel optimization over a network):

        u ← (1 − θ) u + θ d,    t ← W t + u⁺ − u,    s ← s + η (W s − α t − s),    θ = α₁ η,

    for s = x with d_i = ∂_x g_i and for s = λ with the Local hyper-gradient of `LocalSeries`,
    d_i = ∂_λ f_i − J_i (1/ℓ) Σ_{j<J} (I − H_i/ℓ)^j ∂_x f_i, the mean over J̃ of what the paper draws. Its class is
    Local, whatever is tracked: where clients differ it descends along something that is not the derivative of Σ_k f_k.
    2 d_λ + 2 d_x numbers a message; where λ is not shared λ_i ← λ_i − η α u_i, and λ is not sent.

    Parameters
    ----------
    problem, net, lam, outer_steps : as for `bilevel.optimise`; `net` must be one undirected graph.
    lr, inner_lr : α of λ and of x.
    ell, terms : ℓ and J.
    eta, momentum : η in (0, 1] and θ in [0, 1].
    shared : whether all clients share one λ.
    options : x0, project, batch_size, seed, every, callback: see `bilevel.others.run.run`.

    Returns
    -------
    Path
        λ of every outer step, the outer cost there, and what was sent until it was known.

    Raises
    ------
    TypeError, ValueError
        `net` must be one undirected graph, rates and ℓ positive, `eta` and `momentum` in (0, 1].
    DivergenceError
        x or λ is not finite any more.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1, heterogeneity=0.0)
    >>> net = hgp.networks.StaticUndirected(n=4, seed=1)
    >>> path = hgp.bilevel.mdbo(problem, net, np.zeros((4, 2)), 200, lr=0.02, inner_lr=0.3, ell=1.0)
    >>> path.method, path.traffic.rounds
    ('MDBO', 200)
    """
    filtered = Average(arguments.between("momentum", momentum, 0, 1))
    method = _method("MDBO", lr, inner_lr, ell, terms, eta, filtered, shared)
    return run(method, problem, net, lam, outer_steps, **options)


def vrdbo(
    problem: Problem,
    net: Network,
    lam: Array,
    outer_steps: int = 100,
    *,
    lr: float,
    inner_lr: float,
    ell: float,
    terms: int = 20,
    eta: float = 0.5,
    momentum: float = 0.1,
    shared: bool = False,
    **options: Any,
) -> Path:
    """VRDBO (Gao, Gu, Thai 2022): `mdbo` with STORM in place of momentum, θ = α₁ η²,

        u ← (1 − θ) (u − d₋) + d,    d₋ the direction one iteration ago, on this iteration's mini-batch.

    On full batches u = d whatever θ is. Parameters and class are those of `mdbo`.

    Parameters
    ----------
    problem, net, lam, outer_steps, lr, inner_lr, ell, terms, eta, momentum, shared
        As for `mdbo`.

    Returns
    -------
    Path
        λ of every outer step, the outer cost there, and what was sent until it was known.

    Raises
    ------
    TypeError, ValueError
        `net` must be one undirected graph, rates and ℓ positive, `eta` and `momentum` in (0, 1].
    DivergenceError
        x or λ is not finite any more.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1, heterogeneity=0.0)
    >>> net = hgp.networks.StaticUndirected(n=4, seed=1)
    >>> settings = dict(lr=0.02, inner_lr=0.3, ell=1.0, shared=True)
    >>> one = hgp.bilevel.vrdbo(problem, net, np.zeros((4, 2)), 50, **settings)
    >>> other = hgp.bilevel.mdbo(problem, net, np.zeros((4, 2)), 50, **settings)  # θ = 1: u = d here, too
    >>> bool(np.allclose(one.lam, other.lam, atol=1e-12))
    True
    """
    filtered = Storm(arguments.between("momentum", momentum, 0, 1))
    method = _method("VRDBO", lr, inner_lr, ell, terms, eta, filtered, shared)
    return run(method, problem, net, lam, outer_steps, **options)


def _method(
    name: str, lr: float, inner_lr: float, ell: float, terms: int, eta: float, filtered: Filter, shared: bool
) -> SingleLoop:
    lr, inner_lr = arguments.positives(lr=lr, inner_lr=inner_lr)
    hyper = LocalSeries(arguments.integer("terms", terms, 1, arguments.LONGEST), arguments.positive("ell", ell))
    damping = arguments.between("eta", eta, 0, 1)
    if damping == 0:
        raise ValueError(f"eta={eta!r} given, needed a number in (0, 1]")
    lam_rule = Tracked(lr, damping) if arguments.boolean("shared", shared) else Own(damping * lr)
    return SingleLoop(name, Tracked(inner_lr, damping), hyper, lam_rule, filtered, filtered)
