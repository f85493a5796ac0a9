"""Leave-one-out retraining: the actual change of Σ_k f_k for each removal, to check a prediction against.

    actual_r = f(x(λ without removal r)) − f(x(λ)),    f = Σ_k f_k,

with x(·) either exact (Newton to machine precision) or by the same stochastic gradient push that trained the model, on
the same graphs. All removals, and the training with nothing removed, run at once on a leading axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref.attribution.newton import inner_solutions
from hgp_ref.attribution.removals import Removal, without
from hgp_ref.backend import array_namespace, from_host, to_host
from hgp_ref.exact import inner_solution
from hgp_ref.results import Result
from hgp_ref.training import sgp


@dataclass(frozen=True)
class Retraining(Result):
    """Actual changes, the cost with nothing removed, and the models. Arrays are on the host."""

    actual: np.ndarray  # (R,)
    cost: float  # Σ_k f_k with nothing removed
    x: np.ndarray  # (R, n, d_x)
    x_base: np.ndarray  # (n, d_x)


def retrain(problem: Any, lam: Any, removals: Sequence[Removal], *, x0: np.ndarray | None = None) -> Retraining:
    """Actual changes with exact inner solutions, starting from `x0` (d_x,) where given.

    `removals` are tuples of (client, index) pairs, such as `Influence.removals`; lam (n, N_max) is the weighting that
    they change.
    """
    base = to_host(inner_solution(problem, lam, x0=x0))  # (n, d_x)
    rows = inner_solutions(problem, without(lam, removals), lam, base[0])  # (R, d_x)
    x = np.repeat(rows[:, None, :], problem.n_clients, axis=1)
    return _compare(problem, lam, removals, base, x)


def retrain_sgp(problem: Any, net: Any, lam: Any, removals: Sequence[Removal], **settings: Any) -> Retraining:
    """Actual changes when every model, the one with nothing removed included, is trained by `sgp(**settings)`."""
    xp = array_namespace(lam)
    runs = xp.concat([lam[None, ...], without(lam, removals)], axis=0)  # (1 + R, n, N_max)
    x = to_host(sgp(problem, net, runs, **settings).x)
    return _compare(problem, lam, removals, x[0], x[1:])


def _compare(problem: Any, lam: Any, removals: Sequence[Removal], base: np.ndarray, x: np.ndarray) -> Retraining:
    weights = without(lam, removals)
    dtype = to_host(lam).dtype
    cost = _total(problem.outer_cost(from_host(base.astype(dtype), like=lam), lam))
    if getattr(problem, "broadcasts", False):
        costs = _total(problem.outer_cost(from_host(x.astype(dtype), like=lam), weights))
    else:
        points = [from_host(rows.astype(dtype), like=lam) for rows in x]
        costs = np.array([_total(problem.outer_cost(p, weights[r, ...])) for r, p in enumerate(points)])
    return Retraining(np.asarray(costs - cost), float(cost), x, base)


def _total(costs: Any) -> np.ndarray:
    """Σ_k f_k over the last axis, in float64 on the host."""
    return np.asarray(np.sum(to_host(costs), axis=-1, dtype=np.float64))
