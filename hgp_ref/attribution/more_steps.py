"""Retraining from the trained x, which is what a hyper-gradient at x estimates, convex or not: M more gradient steps,

    x⁰ = x,   xᵐ⁺¹ = xᵐ − η mean_i ∂_x g_i(xᵐ, λ_i),      actual_r = f(x^M of λ without r) − f(x^M of λ).

Let D^m be the derivative of x^m along λ_ik. Where mean_i ∂_x g_i(x) = 0 the steps with all data stay at x, and

    D⁰ = 0,   D^{m+1} = (I − ηH̄) D^m − (η/n) J_ik^T,    hence
    (Σ_j ∂_x f_j) D^M = −J_ik η Σ_{m<M} (I − ηH̄)^m mean_j ∂_x f_j,

which is v^(M) of Algorithm 2 with exact averaging and the same η and M, whatever the sign of the curvature.

With mini-batches ζ_0 … ζ_{M−1} the same recursion has H̄(ζ_m) and J_ik(ζ_m) at x^m. J of step m is multiplied by the
Hessians of all later steps, in Algorithm 2 by those of all earlier iterations. So if steps take the batches of a run of
Algorithm 2 with `shared_batch` the last one first, ζ_m = ξ_{M−1−m}, their derivative is v^(M) of that run but for one
thing: a mini-batch has a gradient at x even where the mean has none, and x^m moves away from x with all data too.
`held` takes this away. Steps are then −η mean_i (∂_x g_i(xᵐ, λ'_i; ζ_m) − ∂_x g_i(x, λ_i; ζ_m)), λ' the weights that
are left: with all data they stay at x for any batches and any gradient left there, and the identity is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hgp_ref import arguments
from hgp_ref.attribution.removals import Pair, Removal, without
from hgp_ref.attribution.retraining import Retraining, check_removals, compare
from hgp_ref.backend import Array, array_namespace, to_host
from hgp_ref.errors import DivergenceError
from hgp_ref.philox import MAX_STEP
from hgp_ref.problems.batches import sample_batches
from hgp_ref.problems.normalised import Normalised, as_problem
from hgp_ref.problems.protocol import Problem


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
        `shared_batch=True` and this seed, the last one first (see the module).
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
    >>> clients = hgp.data.synthetic_mixture(n_clients=3, seed=1).clients()
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
    eta, steps = arguments.positive("eta", eta), arguments.integer("steps", steps, 0, min(arguments.LONGEST, MAX_STEP))
    fraction, held = arguments.probability("fraction", fraction), arguments.boolean("held", held)
    arguments.same_kind(x=x, lam=lam)
    arguments.shape("x", x, (problem.n_clients, problem.dim_x), "(n, d_x)", run_axes=False)
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
    problem: Normalised, size: int | None, seed: int, steps: int, like: Array
) -> Callable[[int], Array | None]:
    """m -> ζ_m, batch M − 1 − m of the sequence of `seed`; None for all instances."""
    if size is None:
        return lambda m: None
    size = arguments.integer("batch_size", size, 1, 2**31 - 1)
    assert problem.counts is not None  # removals were checked against them
    drawn = sample_batches(problem.counts, size, seed, 0, steps, clients=problem.clients)  # (M, n, b)
    prepared = problem.prepare_batches(drawn[::-1, None], like=like)
    return lambda m: prepared[m, 0]
