"""What is removed: instances, groups of instances, or the training data of whole clients.

A removal is a tuple of (client, index) pairs; removing means that the weights λ of these instances become 0 while
everything else, the divisor N_i of the client's mean included, stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, from_host, host_dtype, to_host
from hgp_ref.errors import DivergenceError
from hgp_ref.exact import inner_solution
from hgp_ref.networks import Network
from hgp_ref.philox import MAX_STEP
from hgp_ref.problems.base import FullProblem, Problem, as_problem, optional
from hgp_ref.problems.batches import sample_batches
from hgp_ref.results import Result
from hgp_ref.training import SGP, train
from hgp_ref.validation import check_memory

Pair = tuple[int, int]
Removal = tuple[Pair, ...]


def instance_counts(problem: Problem) -> np.ndarray:
    """Training instances of each client, (n,); ValueError if λ of `problem` cannot be one weight per instance.

    A problem may say so itself by `weighs_instances`; without it λ must have as many columns as the largest client has
    instances.
    """
    normal = as_problem(problem)
    said = optional(normal.wrapped, "weighs_instances")
    needed = "influence needs a problem whose lam weighs training instances"
    if normal.counts is None:
        raise ValueError(f"problem has no `counts`: {needed}")
    largest = int(normal.counts.max())
    if normal.dim_lam < largest or (not said and normal.dim_lam != largest):  # a restricted problem may have more
        raise ValueError(
            f"problem.dim_lam={normal.dim_lam} but the largest client has {largest} training instances: "
            f"{needed}, such as InstanceWeights"
        )
    if said is not None and not said:
        raise ValueError(
            f"problem: lam of {type(normal.wrapped).__name__} does not weigh instances, although it has as "
            "many entries: "
            f"{needed}, such as InstanceWeights"
        )
    return normal.counts


def all_instances(counts: np.ndarray) -> tuple[Removal, ...]:
    """Each instance of each client by itself.

    Parameters
    ----------
    counts : array (n,)
        Training instances of each client.

    Returns
    -------
    tuple of removals
        Each a tuple with one (client, index) pair.

    Examples
    --------
    >>> hgp.attribution.all_instances(np.array([2, 1]))
    (((0, 0),), ((0, 1),), ((1, 0),))
    """
    return tuple(((i, k),) for i, count in enumerate(_counts(counts)) for k in range(int(count)))


def _counts(counts: np.ndarray) -> np.ndarray:
    given = validation.host_array("counts", counts)
    if given.ndim != 1 or given.dtype.kind not in "iu" or given.size == 0 or np.any(given < 0):
        raise ValueError(f"counts: shape {given.shape} of {given.dtype} given, needed (n,) whole numbers >= 0")
    check_memory("counts", int(given.sum()))
    return given


def as_removals(
    counts: np.ndarray,
    instances: Iterable[Pair] | None = None,
    groups: Iterable[Iterable[Pair]] | None = None,
    clients: Iterable[int] | None = None,
) -> tuple[Removal, ...]:
    """The removals that exactly one of the three arguments describes; all single instances if none is given.

    Parameters
    ----------
    counts : array (n,)
        Training instances of each client.
    instances : pairs, optional
        (client, index), each a removal of its own.
    groups : iterables of pairs, optional
        Each group is removed at once.
    clients : integers, optional
        Each client is removed with all its instances.

    Returns
    -------
    tuple of removals
        Tuples of (client, index) pairs.

    Raises
    ------
    ValueError
        More than one of instances, groups and clients is given, or one of them names what is not there.

    Examples
    --------
    >>> hgp.attribution.as_removals(np.array([2, 1]), groups=[[(0, 1), (1, 0)]])
    (((0, 1), (1, 0)),)
    >>> hgp.attribution.as_removals(np.array([2, 1]), clients=[0])
    (((0, 0), (0, 1)),)
    """
    counts = _counts(counts)
    asked = {"instances": instances, "groups": groups, "clients": clients}
    given = [name for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} given together: give one of instances, groups and clients")
    if groups is not None:
        return tuple(_group(f"groups[{r}]", group, counts) for r, group in enumerate(_listed("groups", groups)))
    if clients is not None:
        chosen = [
            validation.integer(f"clients[{r}]: client", i, 0, len(counts) - 1)
            for r, i in enumerate(_listed("clients", clients))
        ]
        return tuple(tuple((i, k) for k in range(int(counts[i]))) for i in chosen)
    if instances is not None:
        return tuple(
            (_pair(f"instances[{r}]", pair, counts),) for r, pair in enumerate(_listed("instances", instances))
        )
    return all_instances(counts)


def given_removals(problem: Problem, removals: Sequence[Removal | Pair]) -> tuple[Removal, ...]:
    """Removals as a user writes them, checked against the instances that there are; a pair is a removal of one."""
    counts = instance_counts(problem)
    return tuple(
        (_pair(f"removals[{r}]", removal, counts),) if _is_pair(removal) else _group(f"removals[{r}]", removal, counts)
        for r, removal in enumerate(_listed("removals", removals))
    )


def without(lam: Array, removals: Sequence[Removal], fraction: float = 1.0) -> Array:
    """Copies of `lam` (n, N), (R, n, N), in which `fraction` of the weights of each removal is taken away."""
    host = to_host(lam)
    weights = np.repeat(host[None], len(removals), axis=0)
    for r, removal in enumerate(removals):
        for i, k in removal:
            weights[r, i, k] = (1 - fraction) * host[i, k]
    return from_host(weights, like=lam)


def _listed(name: str, value: Any) -> list[Any]:
    if (
        isinstance(value, str | bytes)
        or not isinstance(value, Iterable)
        or (hasattr(value, "ndim") and value.ndim == 0)
    ):
        raise TypeError(f"{name}={value!r} given ({type(value).__name__}), needed a list")
    return list(value)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list | np.ndarray) and len(value) == 2 and all(np.ndim(v) == 0 for v in value)


def _group(name: str, group: Any, counts: np.ndarray) -> Removal:
    removal = tuple(_pair(name, pair, counts) for pair in _listed(f"{name}: a removal", group))
    if len(set(removal)) != len(removal):
        raise ValueError(f"{name}: a group names an instance twice: {removal}")
    return removal


def _pair(name: str, pair: Any, counts: np.ndarray) -> Pair:
    if not _is_pair(pair):
        raise ValueError(f"{name}: an instance is a pair (client, index), got {pair!r}")
    i = validation.integer(f"{name}: client", pair[0], 0, len(counts) - 1)
    return i, validation.integer(f"{name}: instance of client {i}", pair[1], 0, int(counts[i]) - 1)


# ----------------------------------------------------------------------------------------------------
# Exact inner solutions of many weightings at once, on a leading axis of runs.
#
# Run r minimises c_r(x) = mean_i g_i(x, λ_ri) over one x common to all clients, starting from the solution of the
# weighting that all runs are small changes of. Two phases, with G the gradient and H̄ the Hessian of c_r:
#
#     chord     p = −H̄₀⁻¹ G with the one Hessian H̄₀ at the start, factorised once: every run whose ‖G‖ at least halves
#               at each step goes on until its step is a short one, which is then also its error;
#     Newton    the others (large removals) continue with their own H̄, p = −H̄⁻¹ G, shortened to t p, t = 1, ½, ¼ …,
#               until ‖G(x + tp)‖ ≤ (1 − t/4) ‖G(x)‖, and finish with a full step shorter than √eps ‖x‖, after which
#               quadratic convergence leaves rounding only.
#
# A chord step is short below max(1e-12, 50 eps) ‖x‖, with eps of the dtype of λ and for ‖x‖ the larger of its own and
# of
# that at the start, so that units do not matter. What no step improves goes to `exact.inner_solution`, which tells
# rounding from failure.


BLOCK_BYTES = 2**28  # of Hessian blocks held at once


def inner_solutions(problem: Problem, lam: Array, lam0: Array, x0: np.ndarray) -> np.ndarray:
    """x(λ_r) for each run of `lam` (R, n, d_λ), host array (R, d_x), starting from `x0` (d_x,) = x(`lam0`).

    Runs go together if the problem has a closed-form Hessian, else one after the other.
    """
    problem = as_problem(problem)
    if int(lam.shape[0]) == 0:
        return np.zeros((0, problem.dim_x))
    if problem.hessian is None:
        return _one_by_one(problem, lam, np.repeat(x0[None], lam.shape[0], axis=0))
    size = float(np.linalg.norm(x0))
    x, done = _chord(problem, lam, lam0, x0)
    left = np.flatnonzero(~done)
    block = max(1, BLOCK_BYTES // (8 * problem.n_clients * problem.dim_x**2))
    for start in range(0, left.size, block):
        few = left[start : start + block]
        x[few] = _newton(problem, _take(lam, few), x[few], size)
    return x


def _chord(
    problem: FullProblem, lam: Array, lam0: Array, x0: np.ndarray, max_iterations: int = 40
) -> tuple[np.ndarray, np.ndarray]:
    """Points (R, d) after chord steps with the Hessian at (x0, lam0), and which of them are solutions (R,)."""
    x = np.repeat(x0[None].astype(np.float64), lam.shape[0], axis=0)  # (R, d)
    H0 = _hessian(problem, _spread(problem, x0[None], lam)[0, ...], lam0)  # (d, d)
    factor, eps, size = cho_factor(H0), _eps(lam), float(np.linalg.norm(x0))
    done = np.zeros(len(x), dtype=bool)
    active = np.arange(len(x))
    weights, G = lam, _gradient(problem, x, lam)
    for _ in range(max_iterations):
        p = -cho_solve(factor, G.T).T
        G_next = _gradient(problem, x[active] + p, weights)
        short = _short(p, x[active], size, max(1e-12, 50 * eps))
        good = short | (np.linalg.norm(G_next, axis=1) <= 0.5 * np.linalg.norm(G, axis=1))
        x[active[good]] += p[good]
        done[active[short]] = True
        stay = good & ~short
        if not np.any(stay):
            break
        active, G, weights = active[stay], G_next[stay], _take(weights, np.flatnonzero(stay))
    return x, done


def _one_by_one(problem: FullProblem, lam: Array, x: np.ndarray) -> np.ndarray:
    """Solutions (R, d) from the points x (R, d), by the stricter rules of `exact.inner_solution`."""
    rows = [to_host(inner_solution(problem.wrapped, lam[r, ...], x0=start))[0] for r, start in enumerate(x)]
    return np.array(rows, dtype=np.float64)


def _newton(problem: FullProblem, lam: Array, x: np.ndarray, size: float = 0.0, max_iterations: int = 60) -> np.ndarray:
    G = _gradient(problem, x, lam)
    for _ in range(max_iterations):
        H = _hessian(problem, _spread(problem, x, lam), lam)  # (R, d, d)
        p = -np.linalg.solve(H, G[..., None])[..., 0]
        short = _short(p, x, size, np.sqrt(_eps(lam)))
        shrunk = _search(problem, x, G, p, lam, free=short)
        if shrunk is None:
            break
        x, G = shrunk
        if np.all(short):
            return x
    return _one_by_one(problem, lam, x)


def _search(
    problem: FullProblem, x: np.ndarray, G: np.ndarray, p: np.ndarray, lam: Array, free: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """x + t p and its gradient, t halved in every run that is not `free` until the gradient has shrunk enough.

    None if in some run no t shrinks it: its gradient is all rounding, or not that of a convex cost.
    """
    size = np.linalg.norm(G, axis=1)
    t = np.ones(len(x))
    for _ in range(50):
        tried = x + t[:, None] * p
        G_tried = _gradient(problem, tried, lam)
        good = free | (np.linalg.norm(G_tried, axis=1) <= (1 - t / 4) * size)
        if np.all(good):
            return tried, G_tried
        t = np.where(good, t, t / 2)
    return None


def _short(p: np.ndarray, x: np.ndarray, size: float, relative: float) -> np.ndarray:
    """Steps that are `relative` to x or to the solution of size `size` that all runs are small changes of."""
    return np.linalg.norm(p, axis=1) <= relative * np.maximum(np.linalg.norm(x, axis=1), size)


def _hessian(problem: FullProblem, x: Array, lam: Array) -> np.ndarray:
    """Mean Hessians over the clients.  # (..., d, d)"""
    if problem.hessian is None:
        raise TypeError("problem: hessian(x, lam) is missing, needed here")
    return _mean(problem.hessian(x, lam), axis=-3)


def _eps(lam: Array) -> float:
    return float(np.finfo(host_dtype(lam)).eps)


def _gradient(problem: FullProblem, x: np.ndarray, lam: Array) -> np.ndarray:
    return _mean(problem.inner_grad(_spread(problem, x, lam), lam), axis=1)  # (R, d)


def _mean(array: Array, axis: int) -> np.ndarray:
    return np.asarray(np.mean(to_host(array), axis=axis, dtype=np.float64))


def _take(lam: Array, rows: np.ndarray) -> Array:
    return from_host(to_host(lam)[rows], like=lam)


def _spread(problem: FullProblem, x: np.ndarray, lam: Array) -> Array:
    """x (R, d) on every client, (R, n, d), in the library and dtype of `lam`."""
    rows = np.repeat(x[:, None, :], problem.n_clients, axis=1)
    return from_host(rows.astype(host_dtype(lam)), like=lam)


# ----------------------------------------------------------------------------------------------------
# Leave-one-out retraining: the actual change of Σ_k f_k for each removal, to check a prediction against.
#
#     actual_r = f(x(λ without removal r)) − f(x(λ)),    f = Σ_k f_k,
#
# with x(·) either exact (Newton to machine precision) or by the same stochastic gradient push that trained the model,
# on
# the same graphs. All removals, and the training with nothing removed, run at once on a leading axis. Where the inner
# cost is not convex both compare different minima; `more_steps` asks for what a hyper-gradient estimates.


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
        return validation.table(
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
    """Actual changes when every model, the one with nothing removed included, is trained by `SGP(**settings)`.

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
        Of `hgp.training.SGP`: steps, lr, milestones and so on; and x0 and tol of `hgp.train`.

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
    start = {name: settings.pop(name, None) for name in ("x0", "tol")}
    x = to_host(train(problem, runs, net, SGP(**settings), **start).x)
    return compare(problem, lam, runs[1:, ...], x[0], x[1:])


def check_removals(problem: Problem, lam: Array, removals: Sequence[Removal | Pair]) -> tuple[Removal, ...]:
    """The removals in full, after a look at them and at the weights."""
    checked = given_removals(problem, removals)
    validation.same_kind(lam=lam)
    validation.shape("lam", lam, (problem.n_clients, problem.dim_lam), "(n, N_max)", run_axes=False)
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


# ----------------------------------------------------------------------------------------------------
# Retraining from the trained x, which is what a hyper-gradient at x estimates, convex or not: M more gradient steps,
#
#     x⁰ = x,   xᵐ⁺¹ = xᵐ − η mean_i ∂_x g_i(xᵐ, λ_i),      actual_r = f(x^M of λ without r) − f(x^M of λ).
#
# Let D^m be the derivative of x^m along λ_ik. Where mean_i ∂_x g_i(x) = 0 the steps with all data stay at x, and
#
#     D⁰ = 0,   D^{m+1} = (I − ηH̄) D^m − (η/n) J_ik^T,    hence
#     (Σ_j ∂_x f_j) D^M = −J_ik η Σ_{m<M} (I − ηH̄)^m mean_j ∂_x f_j,
#
# which is v^(M) of Algorithm 2 with exact averaging and the same η and M, whatever the sign of the curvature.
#
# With mini-batches ζ_0 … ζ_{M−1} the same recursion has H̄(ζ_m) and J_ik(ζ_m) at x^m. J of step m is multiplied by the
# Hessians of all later steps, in Algorithm 2 by those of all earlier iterations. So if steps take the batches of a run
# of Algorithm 2 with `MiniBatches(share=True)`, the last one first, ζ_m = ξ_{M−1−m}, their derivative is v^(M) of that
# run but for one thing: a mini-batch has a gradient at x even where the mean has none, and x^m moves away from x with
# all data too. `held` takes this away. Steps are then −η mean_i (∂_x g_i(xᵐ, λ'_i; ζ_m) − ∂_x g_i(x, λ_i; ζ_m)), λ' the
# weights that are left: with all data they stay at x for any batches and any gradient left there, and the identity is
# exact.


def retrain_from(
    problem: Problem,
    x: Array,
    lam: Array,
    removals: Sequence[Removal | Pair],
    *,
    eta: float,
    steps: int,
    fraction: float = 1.0,
    batch_size: int | None = None,
    seed: int = 0,
    held: bool = False,
) -> Retraining:
    """Actual changes after `steps` gradient steps of size `eta` from the mean of the rows of x (n, d_x).

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
    fraction : float
        How much of their weights the removals take.
    batch_size, seed : int, optional
        Steps on mini-batches, with and without the removals on the same ones: those of `influence` with
        `MiniBatches(share=True)` and this seed, the last one first (see the module).
    held : bool
        Whether steps leave out the gradient that their batch has at x, so that x stays with all data.

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
    >>> clients = hgp.data.synthetic_mixture(n_clients=3, seed=1)
    >>> problem = hgp.problems.InstanceWeights(*clients.train, *clients.validation, l2=0.1)
    >>> lam = np.ones((3, problem.dim_lam))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> predictions = hgp.influence(problem, x, lam, hgp.ExactAverage(3), iterations=50)
    >>> pair = predictions.most_influential(1)[0]
    >>> actual = hgp.attribution.retrain_from(problem, x, lam, [pair], eta=1.0, steps=50, fraction=1e-3).actual[0]
    >>> bool(abs(actual / (1e-3 * predictions.per_instance[pair]) - 1) < 0.01)
    True
    """
    removals = check_removals(problem, lam, removals)
    eta, steps = (
        validation.positive("eta", eta),
        validation.integer("steps", steps, 0, min(validation.LONGEST, MAX_STEP)),
    )
    fraction, held = validation.probability("fraction", fraction), validation.boolean("held", held)
    validation.same_kind(x=x, lam=lam)
    validation.shape("x", x, (problem.n_clients, problem.dim_x), "(n, d_x)", run_axes=False)
    xp, normal = array_namespace(lam), as_problem(problem)
    runs = xp.concat([lam[None, ...], without(lam, removals, fraction)], axis=0)  # (1 + R, n, N_max)
    start = xp.zeros_like(x) + xp.mean(x, axis=0)  # (n, d_x)
    batches = _batches(normal, batch_size, seed, steps, lam)

    def gradient(m: int, z: Array, weights: Array) -> Array:
        """mean_i ∂_x g_i(z, λ_i; ζ_m).  # (..., 1, d_x)"""
        return xp.mean(normal.inner_grad(z, weights, batches(m)), axis=-2, keepdims=True)

    z = xp.concat([start[None, ...]] * int(runs.shape[0]), axis=0)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is reported as divergence
        for m in range(steps):
            left = gradient(m, start, lam) if held else 0.0
            z = z - eta * (gradient(m, z, runs) - left)
    if not bool(xp.all(xp.isfinite(z))):
        raise DivergenceError(f"{steps} steps of size eta={eta:g} from x left the range of numbers: take a smaller eta")
    rows = to_host(z)
    return compare(problem, lam, runs[1:, ...], rows[0], rows[1:])


def _batches(
    problem: FullProblem, size: int | None, seed: int, steps: int, like: Array
) -> Callable[[int], Array | None]:
    """m -> ζ_m, batch M − 1 − m of the sequence of `seed`; None for all instances."""
    if size is None:
        return lambda m: None
    size = validation.integer("batch_size", size, 1, 2**31 - 1)
    assert problem.counts is not None  # removals were checked against them
    drawn = sample_batches(problem.counts, size, seed, 0, steps, clients=problem.clients)  # (M, n, b)
    prepared = problem.prepare_batches(drawn[::-1, None], like=like)
    return lambda m: prepared[m, 0]
