"""Leave-one-out retraining: the actual change of Σ_k f_k for each removal, to check a prediction against.

    actual_r = f(x(λ without removal r)) − f(x(λ)),    f = Σ_k f_k,

with x(·) either exact (Newton to machine precision) or by the same stochastic gradient push that trained the model, on
the same graphs. All removals, and the training with nothing removed, run at once on a leading axis. Where the inner
cost is not convex both compare different minima; `more_steps` asks for what a hyper-gradient estimates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import arguments, texts
from hgp_ref.attribution.newton import inner_solutions
from hgp_ref.attribution.removals import Pair, Removal, given_removals, without
from hgp_ref.backend import Array, array_namespace, from_host, to_host
from hgp_ref.exact import inner_solution
from hgp_ref.networks import Network
from hgp_ref.problems.normalised import as_problem
from hgp_ref.problems.protocol import Problem
from hgp_ref.results import Result
from hgp_ref.training import sgp


@dataclass(frozen=True)
class Retraining(Result):
    """Actual changes, the cost with nothing removed, and the models. Arrays are on the host.

    Attributes
    ----------
    actual : (R,), change of Σ_k f_k by each removal.
    cost : Σ_k f_k with nothing removed.
    x : (R, n, d_x), retrained without each.
    x_base : (n, d_x), with nothing removed.

    Examples
    --------
    >>> data = hgp.data.synthetic_mixture(n_clients=2, n_train=20, seed=0)
    >>> problem = hgp.problems.InstanceWeights(data.X, data.y, data.X_val, data.y_val, l2=0.1)
    >>> ones = np.ones((2, 20))
    >>> retrained = hgp.attribution.retrain(problem, ones, [(0, 0), (1, 3)])
    >>> retrained.actual.shape, bool(retrained.cost > 0)
    ((2,), True)
    """

    actual: np.ndarray
    cost: float
    x: np.ndarray
    x_base: np.ndarray

    def _summary(self) -> list[str]:
        least, most = (float(f(self.actual)) if self.actual.size else 0.0 for f in (np.min, np.max))
        return texts.table(
            f"actual changes of the total validation cost for {len(self.actual)} removals",
            actual=f"from {least:+.2e} to {most:+.2e}",
            cost=f"{self.cost:.4g} with nothing removed",
        )


def retrain(problem: Problem, lam: Array, removals: Sequence[Removal | Pair], *, x0: Array | None = None) -> Retraining:
    """Actual changes with exact inner solutions, starting from `x0` (d_x,) where given.

    `removals` are tuples of (client, index) pairs, such as `Influence.removals`, or single pairs, such as
    `Influence.most_influential` returns; lam (n, N_max) is the weighting that they change.

    Parameters
    ----------
    problem : Problem
        With weights on instances as λ.
    lam : array (n, N_max)
        The weights of the base solution.
    removals : sequence
        Tuples of (client, index) pairs, or single pairs.
    x0 : array (d_x,), optional
        Where the solver starts.

    Returns
    -------
    Retraining
        `actual` changes of the total outer cost, one for each removal.

    Raises
    ------
    ValueError
        λ or the removals do not fit the problem.
    RuntimeError
        The inner problem cannot be solved to machine precision.

    Examples
    --------
    >>> data = hgp.data.synthetic_mixture(n_clients=2, n_train=20, seed=0)
    >>> problem = hgp.problems.InstanceWeights(data.X, data.y, data.X_val, data.y_val, l2=0.1)
    >>> ones = np.ones((2, 20))
    >>> bool(np.all(np.abs(hgp.attribution.retrain(problem, ones, [(0, 0), (1, 3)]).actual) < 1))
    True
    """
    removals = check_removals(problem, lam, removals)
    base = to_host(inner_solution(problem, lam, x0=x0))  # (n, d_x)
    rows = inner_solutions(problem, without(lam, removals), lam, base[0])  # (R, d_x)
    x = np.repeat(rows[:, None, :], problem.n_clients, axis=1)
    return compare(problem, lam, without(lam, removals), base, x)


def retrain_sgp(
    problem: Problem, net: Network, lam: Array, removals: Sequence[Removal | Pair], **settings: Any
) -> Retraining:
    """Actual changes when every model, the one with nothing removed included, is trained by `sgp(**settings)`.

    Parameters
    ----------
    problem : Problem
        With weights on instances as λ.
    net : Network
        Over which clients train.
    lam : array (n, N_max)
        The weights of the base solution.
    removals : sequence
        Tuples of (client, index) pairs, or single pairs.
    **settings
        Of `hgp.sgp`: steps, lr, milestones and so on.

    Returns
    -------
    Retraining
        `actual` changes of the total outer cost, one for each removal.

    Raises
    ------
    ValueError
        λ or the removals do not fit the problem.
    DivergenceError
        Training diverged.

    Examples
    --------
    >>> data = hgp.data.synthetic_mixture(n_clients=2, n_train=20, seed=0)
    >>> problem = hgp.problems.InstanceWeights(data.X, data.y, data.X_val, data.y_val, l2=0.1)
    >>> ones = np.ones((2, 20))
    >>> net = hgp.networks.RandomDirected(n=2, seed=0)
    >>> retrained = hgp.attribution.retrain_sgp(problem, net, ones, [(0, 0)], steps=300, lr=1.0)
    >>> retrained.actual.shape
    (1,)
    """
    removals = check_removals(problem, lam, removals)
    xp = array_namespace(lam)
    runs = xp.concat([lam[None, ...], without(lam, removals)], axis=0)  # (1 + R, n, N_max)
    x = to_host(sgp(problem, net, runs, **settings).x)
    return compare(problem, lam, runs[1:, ...], x[0], x[1:])


def check_removals(problem: Problem, lam: Array, removals: Sequence[Removal | Pair]) -> tuple[Removal, ...]:
    """The removals in full, after a look at them and at the weights."""
    checked = given_removals(problem, removals)
    arguments.same_kind(lam=lam)
    arguments.shape("lam", lam, (problem.n_clients, problem.dim_lam), "(n, N_max)", run_axes=False)
    return checked


def compare(problem: Problem, lam: Array, changed: Array, base: np.ndarray, x: np.ndarray) -> Retraining:
    """f at `base` with weights lam (n, N), and at each of x (R, n, d) with those of changed (R, n, N)."""
    dtype, outer_cost = to_host(lam).dtype, as_problem(problem).outer_cost
    cost = _total(outer_cost(from_host(base.astype(dtype), like=lam), lam))
    if not changed.shape[0]:
        return Retraining(np.zeros(0), float(cost), x, base)
    costs = _total(outer_cost(from_host(x.astype(dtype), like=lam), changed))
    return Retraining(np.asarray(costs - cost), float(cost), x, base)


def _total(costs: Array) -> np.ndarray:
    """Σ_k f_k over the last axis, in float64 on the host."""
    return np.asarray(np.sum(to_host(costs), axis=-1, dtype=np.float64))
