"""FedNest: nested federated optimisation through a server.  Tarzanagh, Li, Thrampoulidis, Oymak, ICML 2022."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hgp_ref import arguments
from hgp_ref.averaging.talks import Talk, silent
from hgp_ref.backend import Array, array_namespace
from hgp_ref.bilevel.others.hyper import Hyper
from hgp_ref.bilevel.others.joint import Nested, Own
from hgp_ref.bilevel.others.networks import SERVER
from hgp_ref.bilevel.others.points import Point
from hgp_ref.bilevel.others.run import run
from hgp_ref.bilevel.path import Path
from hgp_ref.methods import RandomTerm
from hgp_ref.methods.rules import Svrg
from hgp_ref.networks import Network
from hgp_ref.problems import Problem


@dataclass(frozen=True)
class _State:
    w: Array
    m: int  # rounds made
    term: RandomTerm  # N' of this draw


class RandomTermMean(Hyper):
    """FedIHGP as a talk: p ← (N/ℓ) mean ∂_x f_i, then N' times p ← mean (p − H_i p/ℓ), N' uniform on 0 .. N−1.

    v_i = ∂_λ f_i − J_i p, of class Global, in expectation over N' that of N terms of the Neumann series. What is more:
    see `hgp.methods.RandomTerm`, which is the same for a run with one draw.
    """

    def __init__(self, terms: int, ell: float, seed: int = 0, draw: int = 0) -> None:
        self.first = RandomTerm(terms, ell, seed, draw)

    def begin(self, point: Point) -> _State:
        return _State(array_namespace(point.x).zeros_like(point.x), 0, self.first)

    def again(self, state: _State, point: Point) -> _State:
        """A draw of its own for every outer iteration."""
        term = state.term
        if state.m:
            term = RandomTerm(term.terms, term.ell, term.seed, term.draw + 1)
        return _State(array_namespace(point.x).zeros_like(point.x), 0, term)

    def talk(self, state: _State, point: Point) -> Talk:
        term = state.term
        if state.m > term.last:
            return (yield from silent(state))
        if state.m == 0:
            (mean,) = yield (point.outer[0],)
            w = (term.terms / term.ell) * mean
        else:
            (w,) = yield (state.w - point.lin.hvp(state.w) / term.ell,)
        return _State(w, state.m + 1, term)

    def value(self, state: _State, point: Point) -> Array:
        return point.outer[1] - point.lin.cross(state.w)


def fednest(
    problem: Problem,
    net: Network,
    lam: Array,
    outer_steps: int = 100,
    *,
    lr: float,
    inner_lr: float,
    ell: float,
    terms: int = 20,
    inner_steps: int = 5,
    local_steps: int = 1,
    shared: bool = False,
    **options: Any,
) -> Path:
    """FedNest (as its paper describes it, not its published program): in each outer iteration

        T times    FedInn   d̄ = mean ∂_x g_i(x), τ times y_i ← y_i − β (∂_x g_i(y_i) − ∂_x g_i(x) + d̄), x = mean y_i,
        then       FedIHGP  p ← (N/ℓ) mean ∂_x f_i, N' times p ← mean (I − H_i/ℓ) p, N' uniform on 0 .. N−1,
        then       FedOut   the like with h_i = ∂_λ f_i − J_i p in place of ∂_x g_i and α in place of β.

    2T + N' + 3 rounds through a server. Where λ is not shared FedOut is λ_i ← λ_i − α h_i, and sends nothing.

    Parameters
    ----------
    problem, lam, outer_steps : as for `bilevel.optimise`.
    net : FullyConnected(n): every client reaches the server in every round. Counted are n messages to it and n back.
    lr, inner_lr : α and β, of every local step.
    ell, terms : ℓ and N.
    inner_steps, local_steps : T and τ.
    shared : whether all clients share one λ.
    options : x0, project, batch_size, seed (also of N'), every, callback: see `bilevel.others.run.run`.

    Returns
    -------
    Path
        λ of every outer step, the outer cost there, and what was sent until it was known.

    Raises
    ------
    TypeError, ValueError
        `net` must be FullyConnected, rates and ℓ positive, numbers of steps integers ≥ 1.
    DivergenceError
        x or λ is not finite any more.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> net = hgp.networks.FullyConnected(4)
    >>> path = hgp.bilevel.fednest(problem, net, np.zeros((4, 2)), 100, lr=0.02, inner_lr=0.5, ell=1.0)
    >>> cost = lambda lam: problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum()
    >>> bool(cost(path.lam[-1]) < 0.6 * cost(path.lam[0]))
    True
    """
    shared = arguments.boolean("shared", shared)
    lr, inner_lr = arguments.positives(lr=lr, inner_lr=inner_lr)
    hyper = RandomTermMean(terms, ell, options.get("seed", 0))
    lam_rule = Svrg(lr, local_steps) if shared else Own(lr)
    T = arguments.integer("inner_steps", inner_steps, 1, arguments.LONGEST)
    method = Nested("FedNest", Svrg(inner_lr, local_steps), hyper, lam_rule, T, hyper.first.terms, network=SERVER)
    return run(method, problem, net, lam, outer_steps, **options)
