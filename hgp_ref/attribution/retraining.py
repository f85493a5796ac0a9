"""Leave-one-out retraining: the actual change of Σ_k f_k for each removal, to check a prediction against.

    actual_r = f(x(λ without removal r)) − f(x(λ)),    f = Σ_k f_k,

with x(·) either exact (Newton to machine precision) or by the same stochastic gradient push that trained the model, on
the same graphs. All removals, and the training with nothing removed, run at once on a leading axis.

Where the inner cost is not convex these two compare different minima, and the third way asks for what a hyper-gradient
estimates: M more gradient steps from the trained x, once with all data and once without,

    x⁰ = x,   xᵐ⁺¹ = xᵐ − η mean_i ∂_x g_i(xᵐ, λ_i),      actual_r = f(x^M of λ without r) − f(x^M of λ).

Let D^m be the derivative of x^m along λ_ik. Where mean_i ∂_x g_i(x) = 0 the steps with all data stay at x, and

    D⁰ = 0,   D^{m+1} = (I − ηH̄) D^m − (η/n) J_ik^T,    hence
    (Σ_j ∂_x f_j) D^M = −J_ik η Σ_{m<M} (I − ηH̄)^m mean_j ∂_x f_j,

which is v^(M) of Algorithm 2 with exact averaging and the same η and M, whatever the sign of the curvature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.attribution.newton import inner_solutions
from hgp_ref.attribution.removals import Pair, Removal, given_removals, without
from hgp_ref.backend import Array, array_namespace, from_host, to_host
from hgp_ref.errors import DivergenceError
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
    removals = _check(problem, lam, removals)
    base = to_host(inner_solution(problem, lam, x0=x0))  # (n, d_x)
    rows = inner_solutions(problem, without(lam, removals), lam, base[0])  # (R, d_x)
    x = np.repeat(rows[:, None, :], problem.n_clients, axis=1)
    return _compare(problem, lam, without(lam, removals), base, x)


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
    removals = _check(problem, lam, removals)
    xp = array_namespace(lam)
    runs = xp.concat([lam[None, ...], without(lam, removals)], axis=0)  # (1 + R, n, N_max)
    x = to_host(sgp(problem, net, runs, **settings).x)
    return _compare(problem, lam, runs[1:, ...], x[0], x[1:])


def retrain_from(
    problem: Problem,
    x: Array,
    lam: Array,
    removals: Sequence[Removal | Pair],
    *,
    eta: float,
    steps: int,
    fraction: float = 1.0,
) -> Retraining:
    """Actual changes after `steps` full-batch gradient steps of size `eta` from the mean of the rows of x (n, d_x).

    fraction: how much of their weights the removals take, all of it by default. Changes divided by a small fraction
    show what first order misses of a whole removal.

    With the eta and iterations of `influence` this is the change that it predicts, up to first order and up to what is
    left of the inner gradient at x: no convexity is needed. Steps that leave the range of numbers raise
    DivergenceError.

    Parameters
    ----------
    problem : Problem
        With weights on instances as λ.
    x, lam : arrays (n, d_x) and (n, N_max)
        The trained point and the weights there.
    removals : sequence
        Tuples of (client, index) pairs, or single pairs.
    eta, steps : float and int
        Size and number of gradient steps: the η and M of `influence`.

    Returns
    -------
    Retraining
        `actual` changes of the total outer cost, one for each removal.

    Raises
    ------
    TypeError, ValueError
        x, λ or the removals do not fit the problem; `eta` must be positive, `fraction` in [0, 1].
    DivergenceError
        The steps left the range of numbers.

    Examples
    --------
    >>> clients = hgp.data.synthetic_mixture(n_clients=3, seed=1).clients()
    >>> problem = hgp.problems.InstanceWeights(*clients.train, *clients.validation, l2=0.1)
    >>> lam = np.ones((3, problem.dim_lam))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> found = hgp.influence(problem, x, lam, hgp.ExactAverage(3), iterations=50)
    >>> pair = found.most_influential(1)[0]
    >>> actual = hgp.attribution.retrain_from(problem, x, lam, [pair], eta=1.0, steps=50, fraction=1e-3).actual[0]
    >>> bool(abs(actual / (1e-3 * found.per_instance[pair]) - 1) < 0.01)
    True
    """
    removals = _check(problem, lam, removals)
    eta, steps = arguments.positive("eta", eta), arguments.integer("steps", steps, 0, arguments.LONGEST)
    fraction = arguments.probability("fraction", fraction)
    arguments.same_kind(x=x, lam=lam)
    arguments.shape("x", x, (problem.n_clients, problem.dim_x), "(n, d_x)", run_axes=False)
    xp, gradient = array_namespace(lam), as_problem(problem).inner_grad
    runs = xp.concat([lam[None, ...], without(lam, removals, fraction)], axis=0)  # (1 + R, n, N_max)
    z = xp.zeros_like(xp.concat([x[None, ...]] * int(runs.shape[0]), axis=0)) + xp.mean(x, axis=0)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is reported as divergence
        for _ in range(steps):
            z = z - eta * xp.mean(gradient(z, runs), axis=-2, keepdims=True)
    if not bool(xp.all(xp.isfinite(z))):
        raise DivergenceError(f"{steps} steps of size eta={eta:g} from x left the range of numbers: take a smaller eta")
    rows = to_host(z)
    return _compare(problem, lam, runs[1:, ...], rows[0], rows[1:])


def _check(problem: Problem, lam: Array, removals: Sequence[Removal | Pair]) -> tuple[Removal, ...]:
    checked = given_removals(problem, removals)
    arguments.same_kind(lam=lam)
    arguments.shape("lam", lam, (problem.n_clients, problem.dim_lam), "(n, N_max)", run_axes=False)
    return checked


def _compare(problem: Problem, lam: Array, changed: Array, base: np.ndarray, x: np.ndarray) -> Retraining:
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
