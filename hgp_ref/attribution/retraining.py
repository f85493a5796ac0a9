"""Retraining without some of the training data: the actual change of Σ_k f_k, to compare a prediction with.

A removal is a tuple of (client, index) pairs. It sets the weights λ of these instances to 0. Everything else, including
the divisor N_i of the client's mean, stays as it was. For removal r

    actual_r = f(x(λ without r)) − f(x(λ)),    f = Σ_k f_k,

where x(·) is the exact inner solution (`retrain`), the result of training over a network (`retrain_over_network`), or
of M more gradient steps from the trained x (`retrain_from`). All removals, and training with nothing removed, run at
once on a leading axis. If the inner cost is not convex, the first two may compare different minima. The third is what a
hyper-gradient at x predicts, convex or not:

    x⁰ = x,   xᵐ⁺¹ = xᵐ − η mean_i ∂_x g_i(xᵐ, λ_i),      actual_r = f(x^M of λ without r) − f(x^M of λ).

Let D^m be the derivative of x^m along λ_ik. If mean_i ∂_x g_i(x) = 0, the steps with all data stay at x, and

    D⁰ = 0,   D^{m+1} = (I − ηH̄) D^m − (η/n) J_ik^T,    hence
    (Σ_j ∂_x f_j) D^M = −J_ik η Σ_{m<M} (I − ηH̄)^m mean_j ∂_x f_j,

which is v^(M) of Algorithm 2 with exact averaging and the same η and M, for any curvature.

With mini-batches ζ_0 … ζ_{M−1} the same recursion has H̄(ζ_m) and J_ik(ζ_m) at x^m. J of step m is multiplied by the
Hessians of all later steps, in Algorithm 2 by those of all earlier iterations. So the steps take the batches of a run
of Algorithm 2 with `MiniBatches(share=True)` in reverse order, ζ_m = ξ_{M−1−m}. Their derivative is then v^(M) of that
run, except that a mini-batch has a gradient at x even if the mean has none: x^m moves away from x with all data, too.
`subtract_gradient_at_x` removes this part: with λ' the remaining weights, the steps are
−η mean_i (∂_x g_i(xᵐ, λ'_i; ζ_m) − ∂_x g_i(x, λ_i; ζ_m)). With all data they stay at x, and the identity is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, computes_on_device, from_host, host_dtype, to_host
from hgp_ref.errors import DivergenceError
from hgp_ref.exact import inner_solution
from hgp_ref.networks import Network
from hgp_ref.philox import MAX_STEP
from hgp_ref.problems import MiniBatches
from hgp_ref.problems.base import FullProblem, Problem, as_problem, optional
from hgp_ref.problems.batches import read_batches, sample_batches, sample_epochs
from hgp_ref.results import Result
from hgp_ref.training import TrainingMethod, train
from hgp_ref.validation import Boolean, Integer, Positive, Probability, checked

Pair = tuple[int, int]
Removal = tuple[Pair, ...]


# ---- Removals


def instance_counts(problem: Problem) -> np.ndarray:
    """Training instances of each client, (n,); ValueError if λ of `problem` cannot be one weight per instance.

    A problem may say so by its attribute `weighs_instances`. Without it λ must have as many columns as the largest
    client has instances.
    """
    full = as_problem(problem)
    weighs = optional(full.wrapped, "weighs_instances")
    expected = "influence needs a problem whose lam weighs training instances, such as InstanceWeights"
    if full.counts is None:
        raise ValueError(f"{expected}, but this problem has no `counts`")
    largest = int(full.counts.max())
    if full.dim_lam < largest or (not weighs and full.dim_lam != largest):  # a restricted problem may have more
        raise ValueError(
            f"{expected}, but problem.dim_lam is {full.dim_lam} and the largest client has {largest} instances"
        )
    if weighs is not None and not weighs:
        raise ValueError(f"{expected}, but lam of {type(full.wrapped).__name__} does not weigh instances")
    return full.counts


def client_removals(problem: Problem) -> tuple[Removal, ...]:
    """One removal for each client, with all its training instances.

    Examples
    --------
    >>> data = hgp.data.synthetic_mixture(n_clients=2, n_train=3, seed=0)
    >>> problem = hgp.problems.InstanceWeights(data.X, data.y, data.X_val, data.y_val, l2=0.1)
    >>> hgp.attribution.client_removals(problem)
    (((0, 0), (0, 1), (0, 2)), ((1, 0), (1, 1), (1, 2)))
    """
    return tuple(tuple((i, k) for k in range(count)) for i, count in enumerate(instance_counts(problem).tolist()))


@checked(number=Integer(1, validation.LONGEST), fraction=Probability(), seed=Integer(0))
def random_removals(problem: Problem, number: int, fraction: float = 0.5, seed: int = 0) -> tuple[Removal, ...]:
    """Removals of random subsets, for the linear datamodeling score: `fraction` of every client's training instances.

    Client i removes round(fraction N_i) of its instances. All such subsets are equally likely, and the draw of a client
    does not depend on the other clients.

    Examples
    --------
    >>> data = hgp.data.synthetic_mixture(n_clients=2, n_train=4, seed=0)
    >>> problem = hgp.problems.InstanceWeights(data.X, data.y, data.X_val, data.y_val, l2=0.1)
    >>> [len(removal) for removal in hgp.attribution.random_removals(problem, 3, seed=1)]
    [4, 4, 4]
    """
    counts = instance_counts(problem)
    removed = np.round(fraction * counts).astype(int)
    orders = sample_epochs(counts, seed, 0, number, clients=as_problem(problem).clients)  # (number, n, N_max)
    return tuple(
        tuple((i, int(k)) for i, row in enumerate(order) for k in np.sort(row[: removed[i]])) for order in orders
    )


def read_removals(
    removals: Iterable[Removal | Pair], counts: np.ndarray, name: str = "removals"
) -> tuple[Removal, ...]:
    """The removals, with single pairs as removals of one instance, after checking them; `counts` are N_i."""
    listed = _listed(name, removals)
    return tuple(_group(f"{name}[{r}]", (one,) if _is_pair(one) else one, counts) for r, one in enumerate(listed))


def _check_arguments(problem: Problem, lam: Array, removals: Iterable[Removal | Pair]) -> tuple[Removal, ...]:
    """The removals, after checking them and λ."""
    counts = instance_counts(problem)
    validation.same_kind(lam=lam)
    validation.shape("lam", lam, (problem.n_clients, problem.dim_lam), "(n, N_max)", run_axes=False)
    return read_removals(removals, counts)


def _listed(name: str, value: Any) -> list[Any]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0:
        validation.wrong_type(name, value, "a list")
    return list(value)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list | np.ndarray) and len(value) == 2 and all(np.ndim(v) == 0 for v in value)


def _group(name: str, group: Any, counts: np.ndarray) -> Removal:
    removal = []
    for pair in _listed(name, group):
        if not _is_pair(pair):
            raise ValueError(f"{name} must consist of pairs (client, index), got {pair!r}")
        i = validation.integer(f"{name}: client", pair[0], 0, len(counts) - 1)
        removal.append((i, validation.integer(f"{name}: instance of client {i}", pair[1], 0, int(counts[i]) - 1)))
    if len(set(removal)) != len(removal):
        raise ValueError(f"{name} must not contain an instance twice, got {tuple(removal)}")
    return tuple(removal)


def reduced_weights(lam: Array, removals: Sequence[Removal], fraction: float = 1.0) -> Array:
    """λ (n, N) for each removal, with `fraction` of the weights of its instances taken away.  # (R, n, N)"""
    host = to_host(lam)
    weights = np.repeat(host[None], len(removals), axis=0)
    for r, removal in enumerate(removals):
        for i, k in removal:
            weights[r, i, k] = (1 - fraction) * host[i, k]
    return from_host(weights, like=lam)


# ---- Retraining


@dataclass(frozen=True)
class Retraining(Result):
    """Actual changes of Σ_k f_k, and the models. Arrays are on the host.

    Attributes
    ----------
    actual : (R,), the change by each removal.
    cost : Σ_k f_k with nothing removed.
    x : (R, n, d_x), retrained without each.
    x_base : (n, d_x), with nothing removed.
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


@computes_on_device
def retrain(problem: Problem, lam: Array, removals: Iterable[Removal | Pair], *, x0: Array | None = None) -> Retraining:
    """Actual changes with exact inner solutions.

    Parameters
    ----------
    problem : with weights of instances as λ.
    lam : (n, N_max), the weights with nothing removed.
    removals : tuples of (client, index) pairs, such as `Influence.removals`, or single pairs, such as
        `Influence.most_influential` returns.
    x0 : (d_x,), where the solver starts.

    Examples
    --------
    >>> data = hgp.data.synthetic_mixture(n_clients=2, n_train=20, seed=0)
    >>> problem = hgp.problems.InstanceWeights(data.X, data.y, data.X_val, data.y_val, l2=0.1)
    >>> bool(np.all(np.abs(hgp.attribution.retrain(problem, np.ones((2, 20)), [(0, 0), (1, 3)]).actual) < 1))
    True
    """
    removals = _check_arguments(problem, lam, removals)
    weights = reduced_weights(lam, removals)
    base = to_host(inner_solution(problem, lam, x0=x0))  # (n, d_x)
    rows = inner_solutions(problem, weights, lam, base[0])  # (R, d_x)
    return _retraining(problem, lam, weights, base, np.repeat(rows[:, None, :], problem.n_clients, axis=1))


@computes_on_device
def retrain_over_network(
    problem: Problem,
    lam: Array,
    net: Network,
    method: TrainingMethod,
    removals: Iterable[Removal | Pair],
    *,
    x0: Array | None = None,
    tol: float | None = None,
) -> Retraining:
    """Actual changes if every model, the one with nothing removed included, is trained by `method` on the same graphs.

    `method`, `x0` and `tol` are those of `hgp.train`, the other arguments those of `retrain`.

    Examples
    --------
    >>> data = hgp.data.synthetic_mixture(n_clients=2, n_train=20, seed=0)
    >>> problem = hgp.problems.InstanceWeights(data.X, data.y, data.X_val, data.y_val, l2=0.1)
    >>> net, method = hgp.networks.RandomDirected(n=2, seed=0), hgp.training.SGP(300, lr=1.0)
    >>> hgp.attribution.retrain_over_network(problem, np.ones((2, 20)), net, method, [(0, 0)]).actual.shape
    (1,)
    """
    removals = _check_arguments(problem, lam, removals)
    weights = _full_and_reduced(lam, reduced_weights(lam, removals))
    x = to_host(train(problem, weights, net, method, x0=x0, tol=tol).x)
    return _retraining(problem, lam, weights[1:, ...], x[0], x[1:])


@checked(
    eta=Positive(),
    steps=Integer(0, min(validation.LONGEST, MAX_STEP)),
    fraction=Probability(),
    subtract_gradient_at_x=Boolean(),
)
def retrain_from(
    problem: Problem,
    x: Array,
    lam: Array,
    removals: Iterable[Removal | Pair],
    *,
    eta: float,
    steps: int,
    fraction: float = 1.0,
    batches: MiniBatches | int | None = None,
    subtract_gradient_at_x: bool = False,
) -> Retraining:
    """Actual changes after `steps` gradient steps of size `eta` from the mean of the rows of x (n, d_x).

    With the η and M of `influence` this is the change that it predicts, up to first order and up to the inner gradient
    that remains at x. No convexity is needed.

    Parameters
    ----------
    problem, lam, removals : as in `retrain`.
    x : (n, d_x), the trained point.
    fraction : how much of their weights the removals take. Changes divided by a small fraction show what first order
        misses of a whole removal.
    batches : steps on mini-batches, with and without the removals on the same ones: those of `influence` with
        `MiniBatches(share=True)` and this seed, in reverse order.
    subtract_gradient_at_x : subtract from each step the gradient of its batch at x, so that x stays with all data.

    Examples
    --------
    >>> clients = hgp.data.synthetic_mixture(n_clients=3, seed=1)
    >>> problem = hgp.problems.InstanceWeights(*clients.train, *clients.validation, l2=0.1)
    >>> lam = np.ones((3, problem.dim_lam))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> predictions = hgp.influence(problem, x, lam, hgp.ExactAverage(3), eta=1.0, iterations=50)
    >>> pair = predictions.most_influential(1)[0]
    >>> actual = hgp.attribution.retrain_from(problem, x, lam, [pair], eta=1.0, steps=50, fraction=1e-3).actual[0]
    >>> bool(abs(actual / (1e-3 * predictions.per_instance[pair]) - 1) < 0.01)
    True
    """
    removals = _check_arguments(problem, lam, removals)
    validation.same_kind(x=x, lam=lam)
    validation.shape("x", x, (problem.n_clients, problem.dim_x), "(n, d_x)", run_axes=False)
    xp, full = array_namespace(lam), as_problem(problem)
    weights = _full_and_reduced(lam, reduced_weights(lam, removals, fraction))  # (1 + R, n, N_max)
    start = xp.zeros_like(x) + xp.mean(x, axis=0)  # (n, d_x)
    drawn = _reversed_batches(full, read_batches(batches), steps, lam)

    def gradient(m: int, z: Array, lam: Array) -> Array:
        """mean_i ∂_x g_i(z, λ_i; ζ_m).  # (..., 1, d_x)"""
        return xp.mean(full.inner_grad(z, lam, None if drawn is None else drawn[m, 0]), axis=-2, keepdims=True)

    z = xp.concat([start[None, ...]] * int(weights.shape[0]), axis=0)
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported as divergence
        for m in range(steps):
            subtracted = gradient(m, start, lam) if subtract_gradient_at_x else 0.0
            z = z - eta * (gradient(m, z, weights) - subtracted)
    if not bool(xp.all(xp.isfinite(z))):
        raise DivergenceError(f"diverged: {steps} steps of size eta={eta:g} from x overflow; take a smaller eta")
    rows = to_host(z)
    return _retraining(problem, lam, weights[1:, ...], rows[0], rows[1:])


def _reversed_batches(problem: FullProblem, batches: MiniBatches | None, steps: int, like: Array) -> Any:
    """Batches ζ_m as entries [m, 0]; None for full batches."""
    if batches is None:
        return None
    if len(batches.seeds) > 1:
        raise ValueError(f"batches must have one seed, got {batches!r}")
    assert problem.counts is not None  # removals were checked against them
    drawn = sample_batches(problem.counts, batches.size, batches.seeds[0], batches.offset, steps,
                           replace=batches.replace, clients=problem.clients)  # (M, n, b)  # fmt: skip
    return problem.prepare_batches(drawn[::-1, None], like=like)


def _full_and_reduced(lam: Array, weights: Array) -> Array:
    """The weights with nothing removed, followed by those of the removals.  # (1 + R, n, N_max)"""
    return array_namespace(lam).concat([lam[None, ...], weights], axis=0)


def _retraining(problem: Problem, lam: Array, weights: Array, base: np.ndarray, x: np.ndarray) -> Retraining:
    """f at `base` (n, d) with weights lam (n, N), and at each of x (R, n, d) with `weights` (R, n, N)."""
    outer_cost = as_problem(problem).outer_cost

    def total(x: np.ndarray, lam: Array) -> np.ndarray:
        costs = outer_cost(from_host(x.astype(host_dtype(lam)), like=lam), lam)
        return np.asarray(np.sum(to_host(costs), axis=-1, dtype=np.float64))

    cost = total(base, lam)
    changes = np.asarray(total(x, weights) - cost) if len(x) else np.zeros(0)
    return Retraining(changes, float(cost), x, base)


# ---- Exact inner solutions of many weightings
#
# Run r minimises c_r(x) = mean_i g_i(x, λ_ri) over one x common to all clients. It starts from x₀, the solution with
# nothing removed. Chord steps x ← x − H̄₀⁻¹ G, with G the gradient of c_r at x and H̄₀ the Hessian at x₀, factorised
# once, continue as long as ‖G‖ at least halves. A run is solved by a step that is short relative to the larger of ‖x‖
# and ‖x₀‖, so that units do not matter. The other runs (large removals) go to Newton's method in
# `exact.inner_solution`, one after the other.


CHORD_STEPS = 40


def inner_solutions(problem: Problem, lam: Array, lam0: Array, x0: np.ndarray) -> np.ndarray:
    """x(λ_r) for each run of `lam` (R, n, d_λ), starting from `x0` (d_x,) = x(`lam0`).  # (R, d_x) on the host"""
    full = as_problem(problem)
    x = np.repeat(x0[None].astype(np.float64), lam.shape[0], axis=0)
    solved = np.zeros(len(x), dtype=bool)
    if len(x) and full.hessian is not None:
        solved = _chord(full, lam, lam0, x)
    for r in np.flatnonzero(~solved):
        x[r] = to_host(inner_solution(problem, lam[int(r), ...], x0=x[r]))[0]
    return x


def _chord(problem: FullProblem, lam: Array, lam0: Array, x: np.ndarray) -> np.ndarray:
    """Take chord steps from x (R, d), in place; which runs they solve, (R,)."""

    def rows(x: np.ndarray) -> Array:
        """x (R, d) on every client, in the library and dtype of λ.  # (R, n, d)"""
        return from_host(np.repeat(x[:, None, :], problem.n_clients, axis=1).astype(host_dtype(lam)), like=lam)

    def gradient(x: np.ndarray, lam: Array) -> np.ndarray:
        return np.asarray(np.mean(to_host(problem.inner_grad(rows(x), lam)), axis=1, dtype=np.float64))  # (R, d)

    def norms(u: np.ndarray) -> np.ndarray:
        return np.linalg.norm(u, axis=1)

    assert problem.hessian is not None
    H0 = np.mean(to_host(problem.hessian(rows(x[:1])[0, ...], lam0)), axis=-3, dtype=np.float64)
    factor, size = cho_factor(H0), float(norms(x[:1])[0])
    tolerance = max(1e-12, 50 * float(np.finfo(host_dtype(lam)).eps))
    solved, active, weights, G = np.zeros(len(x), dtype=bool), np.arange(len(x)), lam, gradient(x, lam)
    for _ in range(CHORD_STEPS):
        p = -cho_solve(factor, G.T).T
        G_next = gradient(x[active] + p, weights)
        short = norms(p) <= tolerance * np.maximum(norms(x[active]), size)
        accepted = short | (norms(G_next) <= 0.5 * norms(G))
        x[active[accepted]] += p[accepted]
        solved[active[short]] = True
        remaining = accepted & ~short
        if not np.any(remaining):
            break
        active, G, weights = active[remaining], G_next[remaining], from_host(to_host(weights)[remaining], like=lam)
    return solved
