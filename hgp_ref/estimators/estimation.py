"""Hyper-Gradient Push and its relatives: the public door to every method."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hgp_ref import arguments
from hgp_ref.averaging import Averaging, open_mean
from hgp_ref.backend import Array, all_finite, array_namespace, detached
from hgp_ref.errors import NonFiniteError, warn_unmet
from hgp_ref.estimators.derivatives import FullBatch, Sampled
from hgp_ref.estimators.divergence import GrowthWatch
from hgp_ref.estimators.driver import Iteration
from hgp_ref.estimators.estimate import Estimate
from hgp_ref.estimators.fingerprint import fingerprint
from hgp_ref.estimators.starts import starting_point
from hgp_ref.methods import Method, Neumann
from hgp_ref.philox import MAX_STEP, check_seeds
from hgp_ref.problems import Problem, as_problem
from hgp_ref.problems.minibatches import MiniBatches
from hgp_ref.problems.normalised import Normalised
from hgp_ref.progress import bar


def hypergradient(
    problem: Problem,
    x: Array,
    lam: Array,
    avg: Averaging | Sequence[Averaging],
    eta: float | None = None,
    iterations: int = 1000,
    batch_size: int | None = None,
    seed: int | Sequence[int] = 0,
    history: bool = False,
    *,
    method: Method | None = None,
    tol: float | None = None,
    w0: Array | None = None,
    resume: Estimate | None = None,
    whole_cross: bool = False,
    shared_batch: bool = False,
    replace: bool = False,
    first_batch: int = 0,
    callback: Callable[[int, Array], object] | None = None,
    progress: bool = False,
) -> Estimate:
    """Estimate d_λ Σ_k f_k(x_k(λ), λ_k), client i's block from vectors that clients send each other only.

    With w* = (Σ_k H_k)⁻¹ Σ_k ∂_x f_k it is ∂_λ f_i − ∂²_{xλ} g_i w*. A method approaches w* by increments p that take
    averages over clients; from w^(0) = 0 and v^(0) = ∂_λ f, for m = 1 .. M:

        w^(m) = w^(m-1) + p^(m),    v^(m) = v^(m-1) − ∂²_{xλ} g(ξ̂^(m)) p^(m).

    The default is Algorithm 2 of the paper, `hgp.methods.Neumann(eta)`: p^(m) = η ū with ū = Θ̂_{m-1} u^(m-1) and
    u^(m) = ū − η ∂²_x g(ξ̂̂^(m)) ū, which with exact averaging converges if 0 < η λ_max(H̄) < 2.

    Parameters
    ----------
    problem : client costs, any object that meets `hgp_ref.problems.Problem`.
    x, lam : (n, d_x) and (n, d_lam), where the costs are differentiated.
    avg : averaging of n clients. A list of averagings, or of seeds, runs them all at once along a leading run axis.
    eta : step size of Algorithm 2, 1 by default; for other methods give `method` instead.
    iterations : number of increments M.
    batch_size : None for full batches, else b instances a client, drawn anew at each iteration from `seed`: without
        replacement unless `replace`, independently for v and w unless `shared_batch`; `first_batch` is the number of
        the first one in its sequence, for a run that goes on where another ended.
    history : keep v^(1) .. v^(M).
    method : how w* is approached, see `hgp_ref.methods`.
    tol : stop once max_i ‖r_i^(m)‖ ≤ tol max_i ‖r_i^(0)‖, r what is left of ∂_x f − ∂²_x g w at each client. That
        judges the series and not the averaging: `certify` judges both.
    w0 : (n, d_x), a first guess of w*, such as `est.w` of an earlier run. Clients average it once (one more call).
    resume : an earlier estimate by the same kind of method at the same problem, x and lam, also one that `hgp.load` has
        read: the run goes on from its w and what its method had left, without an average of w. Give later graphs
        (`net.after(t)`) and batches (`first_batch`). Its fingerprint is compared, and another point is refused.
    whole_cross : take v^(m) = ∂_λ f − ∂²_{xλ} g w^(m) on full batches in a run of mini-batches too, with one product at
        its end (or one for each v that `history` or `callback` asks for): w keeps its noise, v gets no more.
    callback : called as callback(m, v) after each iteration m = 1 .. M; a true result stops the run.
    progress : show a bar.

    Returns
    -------
    Estimate, with `value` (n, d_lam), `w`, `traffic`, what is left of the series (`growth`) and why it stopped.

    A run whose terms grow raises DivergenceError; a run over networks that are not jointly strongly connected warns.
    A run that ends before it has met `tol` gives a ConvergenceWarning.

    Raises
    ------
    TypeError, ValueError
        x, λ, w0 do not fit the problem or the averaging; `iterations`, `tol`, `eta`, `batch_size` are out of their
        range.
    DivergenceError
        The terms grow: η is too large for the spectrum (the message estimates η λ_max), or the estimate is not
        finite.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> x, lam = np.ones((3, 4)), np.zeros((3, 2))
    >>> avg = hgp.PushSum(hgp.networks.RandomDirected(n=3, seed=1), steps=40)
    >>> est = hgp.hypergradient(problem, x, lam, avg, iterations=300)
    >>> bool(np.abs(est.value - hgp.exact.hypergradient(problem, x, lam)).max() < 1e-10)
    True
    """
    problem = as_problem(problem, needs=("outer_grad", "linearize"))
    x, lam = check_point(problem, x, lam)
    M, tol = (
        arguments.integer("iterations", iterations, 1, arguments.LONGEST),
        None if tol is None else arguments.positive("tol", tol),
    )
    method = _method(method, eta)
    first_batch = arguments.integer("first_batch", first_batch, 0, MAX_STEP)
    flags = {"history": history, "shared_batch": shared_batch, "replace": replace, "progress": progress}
    history, shared_batch, replace, progress = (arguments.boolean(name, flag) for name, flag in flags.items())
    whole_cross = arguments.boolean("whole_cross", whole_cross)
    if callback is not None:
        arguments.function("callback", callback)
    averagings, seeds, runs = _runs(avg, seed)
    many = runs is not None
    outer = _outer_gradients(problem, x, lam)
    f_x, f_lam = outer if runs is None else _for_runs(outer, runs)
    average = open_mean(averagings, problem.n_clients, f_x if many else x, M + (w0 is not None), many)
    given: dict[str, object] = {"w0": w0 is not None, "resume": resume is not None, "whole_cross": whole_cross}
    given |= {"callback": callback is not None, "history": history, "dim_lam": problem.dim_lam}
    drawn = {"seed": seeds, "first_batch": first_batch, "shared_batch": shared_batch, "replace": replace}
    average.channel.meet(problem.clients)
    average.channel.agree("hgp.hypergradient", method=method, tol=tol, batch_size=batch_size, **drawn, **given)
    derivatives: FullBatch | Sampled
    if batch_size is None:
        derivatives = FullBatch(problem, x, lam)
    else:
        streams = 1 if shared_batch else 2
        batches = MiniBatches(
            problem, batch_size, seeds, M, x, runs=many, streams=streams, replace=replace, first=first_batch
        )
        derivatives = Sampled(problem, x, lam, batches)
    point = fingerprint(problem, x, lam, outer, derivatives.whole, mini_batches=batch_size is not None)
    start = starting_point(derivatives.whole, average, f_x, f_lam, method, w0, resume, point)
    watch = GrowthWatch(problem, x, lam, method, start.left, average, mini_batches=batch_size is not None)
    working = method.for_run(M)
    state = working.begin(start.state(working), average, derivatives.whole)
    run = Iteration(
        working, average, derivatives, watch, state, start.w, start.v, f_lam, history, callback, tol, whole_cross
    )
    del f_x, outer, start, state  # the run has them; arrays that it has left behind are not to be held until its end
    shown = bar(M, "hypergradient", progress and average.channel.clients.start == 0)
    try:
        run.run(M, shown)
    finally:  # what was sent was sent, also by a run that ends in an error
        shown.close()
        traffic = average.charge()
    value, kept = run.values()
    if average.channel.anyone(not all_finite(value)):
        raise NonFiniteError("diverged: the estimate holds NaN or infinite values, needed finite numbers")
    if tol is not None and run.stopped == "iterations" and not watch.warned:
        left = f"where {np.max(watch.left):.2g} of the first residual is left"
        if np.all(watch.left <= tol):  # of the equation that a cycle solves
            left = "which end before the last cycle of the method"
        warn_unmet(
            f"tol={tol:g} was not met in {run.m} iterations, {left}; needed more iterations, or a faster method "
            "(hgp.plan chooses one)"
        )
    return Estimate(
        value=value,
        w=run.w,
        history=kept,
        traffic=traffic,
        eta=getattr(method, "eta", None),
        iterations=run.m,
        batch_size=batch_size,
        averaging=averagings if many else averagings[0],
        stopped=run.stopped,
        growth=watch.left if many else float(watch.left),
        method=method,
        seed=seeds if many else seeds[0],
        first_batch=first_batch,
        shared_batch=shared_batch,
        replace=replace,
        tol=tol,
        norms=np.stack(watch.norms),
        looks=np.array(watch.looks),
        whole_cross=whole_cross,
        carried=None if average.channel.underway else working.carry(run.state),
        fingerprint=point,
    )


def check_point(problem: Normalised, x: Array, lam: Array) -> tuple[Array, Array]:
    """x (n, d_x) and lam (n, d_lam), looked at, without graphs of automatic differentiation."""
    arguments.same_kind(x=x, lam=lam)
    arguments.shape("x", x, (problem.n_clients, problem.dim_x), "(n, d_x)", run_axes=False)
    arguments.shape("lam", lam, (problem.n_clients, problem.dim_lam), "(n, d_lam)", run_axes=False)
    arguments.finite("x", x)
    arguments.finite("lam", lam)
    return detached(x), detached(lam)


def _method(method: Method | None, eta: float | None) -> Method:
    if method is None:
        return Neumann(1.0 if eta is None else eta)
    if not isinstance(method, Method):
        raise TypeError(
            f"method: needed a method of hgp_ref.methods, got {type(method).__module__}.{type(method).__name__}"
        )
    if eta is not None:
        raise ValueError(f"eta={eta!r} given beside method={method!r}, needed one of them: eta belongs to Neumann(eta)")
    return method


def _outer_gradients(problem: Normalised, x: Array, lam: Array) -> tuple[Array, Array]:
    """∂_x f and ∂_λ f."""
    gradients = problem.outer_grad(x, lam)
    for k, gradient in enumerate(gradients):
        if not all_finite(gradient):
            raise NonFiniteError(
                f"problem.outer_grad(x, lam)[{k}]: holds NaN or infinite values, needed finite numbers"
            )
    return gradients


def _for_runs(gradients: tuple[Array, Array], runs: int) -> tuple[Array, Array]:
    """The gradients once for each run."""
    xp = array_namespace(gradients[0])
    f_x, f_lam = (xp.broadcast_to(a, (runs, *a.shape)) + xp.zeros_like(a) for a in gradients)
    return f_x, f_lam


def _runs(
    avg: Averaging | Sequence[Averaging], seed: int | Sequence[int]
) -> tuple[list[Averaging], list[int], int | None]:
    """The averagings and seeds, paired, and their number; None where neither was a list."""
    averagings = [avg] if isinstance(avg, Averaging) else avg
    if (
        not isinstance(averagings, list | tuple)
        or not averagings
        or not all(isinstance(a, Averaging) for a in averagings)
    ):
        raise TypeError(f"avg: needed an averaging (PushSum, ExactAverage, Gossip) or a list of them, got {avg!r}")
    seeds, many_seeds = check_seeds(seed)
    alone = isinstance(avg, Averaging) and not many_seeds
    count = max(len(averagings), len(seeds))
    if {len(averagings), len(seeds)} - {1, count}:
        raise ValueError(f"seed: {len(seeds)} given for {len(averagings)} averagings, needed as many or a single one")
    if len(averagings) < count:
        averagings = [*averagings] * count
    if len(seeds) < count:
        seeds = seeds * count
    return list(averagings), seeds, None if alone else count
