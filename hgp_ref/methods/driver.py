"""`hypergradient`, and the driver of every method.

A method proposes increments p of w. From w = 0 (or a first guess) and v = ∂_λ f − J w, iteration m = 1, 2, ... makes

    w^(m) = w^(m-1) + p^(m),    v^(m) = v^(m-1) − J(ξ̂^(m)) p^(m),    J = ∂²_{xλ} g.

On full batches v^(m) = ∂_λ f − J w^(m), so the product with J is computed once, at the end. With mini-batches this is a
choice, `MiniBatches(full_jacobian=True)`, which keeps the sampling noise of J out of v.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, all_finite, array_namespace, detached, from_host, host_dtype, is_numpy, to_host
from hgp_ref.errors import NonFiniteError, warn_unmet
from hgp_ref.methods.base import Method, Start
from hgp_ref.methods.divergence import DivergenceMonitor
from hgp_ref.methods.fingerprint import Fingerprint, fingerprint
from hgp_ref.methods.series import Neumann
from hgp_ref.methods.spectrum import safe_step_size
from hgp_ref.methods.tracking import Refined
from hgp_ref.mixing import Averaging, Mixer, Traffic, start_averaging
from hgp_ref.philox import check_seeds
from hgp_ref.problems import Problem, as_problem
from hgp_ref.problems.base import FullLinearization, FullProblem
from hgp_ref.problems.batches import BatchSampler, MiniBatches, read_batches
from hgp_ref.progress import Bar, bar
from hgp_ref.results import Described, Result


class FullBatch:
    """Derivatives on full batches: the point is fixed, so it is linearized once and applied M times."""

    constant = True

    def __init__(self, problem: FullProblem, x: Array, lam: Array) -> None:
        self.linearization = problem.linearize(x, lam)

    def at(self, m: int) -> tuple[FullLinearization, FullLinearization]:
        """Linearizations for v and for w in iteration m = 0, 1, ..."""
        return self.linearization, self.linearization

    def whole(self) -> FullLinearization:
        """The second derivatives on full batches."""
        return self.linearization


class Sampled:
    """Derivatives on mini-batches: samples ξ̂ for v and ξ̂̂ for w, or one for both (`MiniBatches.share`)."""

    constant = False

    def __init__(self, problem: FullProblem, x: Array, lam: Array, batches: BatchSampler) -> None:
        self.linearize, self.batches = problem.sampled(x, lam), batches
        self.whole = lambda: problem.linearize(x, lam)

    def at(self, m: int) -> tuple[FullLinearization, FullLinearization]:
        drawn = [self.linearize(batch) for batch in self.batches.at(m)]
        return drawn[0], drawn[-1]


# ---- The loop


CHECKS = 4  # times that a run's growth is looked at, at least, besides its first iteration
STRIDE = 256  # most iterations between two checks
SAMPLE = 8  # iterations between two glances at whether numbers are finite, where they are on the host


@dataclass
class Iteration:
    """The loop of a run, with what changes in it."""

    method: Method
    mixer: Mixer
    derivatives: FullBatch | Sampled
    monitor: DivergenceMonitor
    state: Any
    w: Array  # w^(0)
    v: Array  # v^(0)
    f_lam: Array  # ∂_λ f
    keep_history: bool
    callback: Callable[[int, Array], object] | None
    tol: float | None
    full_jacobian: bool = False  # whether v takes ∂²_{xλ} g on full batches in a run of mini-batches

    def __post_init__(self) -> None:
        self.whole_v = self.derivatives.constant or self.full_jacobian  # v^(m) follows from w^(m)
        self.deferred = self.whole_v and self.callback is None
        self.fixed = self.derivatives.at(0) if self.derivatives.constant else None
        innermost = self.method
        while isinstance(innermost, Refined):
            innermost = innermost.method
        self.built_in = type(innermost).__module__.startswith("hgp_ref.")
        self.kept: list[Array] = []
        self.m, self.stopped = 0, "iterations"

    def run(self, M: int, shown: Bar) -> None:
        """Iterations 1 .. M, or fewer."""
        stride, sampled = max(1, min(STRIDE, -(-M // CHECKS))), is_numpy(self.w)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is reported as divergence
            while self.m < M and self.stopped == "iterations":
                p = self._iterate()
                last = self.m in (1, M) or self.stopped != "iterations"
                if last or self.tol is not None or self.m % stride == 0:
                    self._check(p)
                elif sampled and not self.m % SAMPLE:
                    self.monitor.sample(p, self.m)
                del p  # not to be held beside that of the next iteration
                shown.update(1)
            self.monitor.finalize(self.m, self.w)

    def _iterate(self) -> Array:
        for_v, for_w = self.fixed or self.derivatives.at(self.m)
        shared = _Shared(for_w) if for_v is for_w and not (self.deferred or self.full_jacobian) else None
        returned = self.method.step(self.state, self.mixer, shared or for_w)
        p, self.state = returned if self.built_in else self._checked(returned)
        self.w = self.w + p
        if self.full_jacobian and not self.deferred:
            self.v = self._whole_v(self.w)
        elif not self.deferred:
            self.v = self.v - (shared or for_v).cross(p)
        self.m += 1
        if self.keep_history:
            self.kept.append(self.w if self.deferred else self.v)
        if self.callback is not None:
            copy = array_namespace(self.v).asarray(self.v, copy=True)  # the caller's, to do with as it likes
            if self.mixer.channel.any_rank(validation.returned_bool("callback", self.callback(self.m, copy))):
                self.stopped = "callback"
        return p

    def _checked(self, returned: Any) -> tuple[Array, Any]:
        """What `step` of a user's method returned."""
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise TypeError(
                f"method: step returned {type(returned).__name__}, needed a tuple of the increment and the state"
            )
        validation.returned_array("step", returned[0], tuple(self.w.shape), like=self.w, owner="method")
        return returned

    def _check(self, p: Array) -> None:
        left = self.method.residual(self.state)
        self.monitor.check(p if left is None else self.mixer.debias(left), self.m)
        if self.tol is None or self.stopped != "iterations" or not self.method.may_end(self.state):
            return
        if np.all(self.monitor.left <= self.tol):
            self.stopped = "tolerance"

    def values(self) -> tuple[Array, Array | None]:
        """v^(M), and v^(1) .. v^(M) if they were to be kept."""
        kept = array_namespace(self.v).stack(self.kept, axis=-3) if self.keep_history else None
        if not self.deferred:
            return self.v, kept
        return self._whole_v(self.w), None if kept is None else self._whole_v(kept)

    def _whole_v(self, w: Array) -> Array:
        """∂_λ f − ∂²_{xλ} g w on full batches; w may have an axis of iterations before its clients."""
        f_lam = self.f_lam if w.ndim == self.f_lam.ndim else array_namespace(w).expand_dims(self.f_lam, axis=-3)
        return f_lam - self.derivatives.whole().cross(w)


class _Shared:
    """One linearization for v and w: both products of the same vector come from one pass over the data."""

    def __init__(self, linearization: FullLinearization) -> None:
        self.linearization = linearization
        self._vector: Array | None = None  # the last one that hvp was asked for
        self._crossed: Array | None = None

    def hvp(self, u: Array) -> Array:
        bent, self._crossed = self.linearization.products(u)
        self._vector = u
        return bent

    def cross(self, u: Array) -> Array:
        return self._crossed if self._vector is u else self.linearization.cross(u)


# ---- The result


@dataclass(frozen=True)
class Estimate(Result):
    """The estimated hyper-gradient, how well the run converged, and its settings.

    With several averagings or seeds, `value`, `w`, `history`, `residual_ratio` and the fields of `traffic` have a
    leading run axis.

    Attributes
    ----------
    value : (n, d_λ), client i's block of the hyper-gradient.
    w : (n, d_x), client i's estimate of w* = (Σ H)⁻¹ Σ ∂_x f.
    history : (M, n, d_λ), v after each iteration; None unless requested.
    traffic : what the clients sent.
    eta : step size of Algorithm 2, also where the clients found it; None for other methods.
    iterations : number of iterations made.
    averaging : the averaging, or the list of them.
    stopped : "iterations", "tolerance" or "callback".
    residual_ratio : max_i ‖r_i‖ at the end, relative to the start.
    method : how w* was approached.
    batches : the mini-batches; None for full batches.
    tol : the requested tolerance.
    residual_norms : (checkpoints, [runs]), max_i ‖r_i‖ at each checkpoint; the first is the start.
    checkpoints : iterations at which the residual was measured.
    carried : (n, d_x), the method's residual at the end, from which `resume` continues.
    fingerprint : of the problem, x and λ; `resume` refuses another point.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> net = hgp.networks.RandomDirected(n=3, seed=0)
    >>> est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, steps=20), iterations=200)
    >>> est.value.shape, est.w.shape, est.stopped, est.iterations
    ((3, 2), (3, 4), 'iterations', 200)
    """

    value: Array
    w: Array
    history: Array | None
    traffic: Traffic
    eta: float | None
    iterations: int
    averaging: Averaging | list[Averaging]
    stopped: str
    residual_ratio: float | np.ndarray
    method: Method
    batches: MiniBatches | None
    tol: float | None
    residual_norms: np.ndarray
    checkpoints: np.ndarray
    carried: Array | None = None
    fingerprint: Fingerprint | None = None

    def _summary(self) -> list[str]:
        n, d = self.value.shape[-2:]
        runs = f", {self.value.shape[0]} runs" if self.value.ndim > 2 else ""
        averagings = self.averaging if isinstance(self.averaging, list) else [self.averaging]
        more = f" and {len(averagings) - 1} more" if len(averagings) > 1 else ""
        batches = "" if self.batches is None else f", mini-batches of {self.batches.size}"
        met = {"tolerance": True, "iterations": False}.get(self.stopped)
        return validation.table(
            f"hyper-gradient of {n} clients, {d} numbers each{runs}: {self.iterations} iterations of "
            f"{validation.cut(repr(self.method))}{batches}",
            averaging=validation.cut(repr(averagings[0]), 100) + more,
            residual_left=f"{validation.largest(self.residual_ratio)} of the first; hgp.certify bounds the error",
            stopped=validation.stop_reason(self.stopped, self.tol, met),
            traffic=self.traffic.one_line(),
        )

    def plot(self, truth: Array | None = None, ax: Any = None) -> Any:
        """Draw what is left of the series over m, and with `history` how far v^(m) is from `truth`, or from v^(M).

        Needs the extra `figures`. `truth` is (n, d_lam), such as `hgp.exact.hypergradient(problem, x, lam)`. Returns
        the axes that were drawn on.

        Parameters
        ----------
        truth : (n, d_λ), to compare with.
        ax : axes to draw into; new ones by default.

        Returns
        -------
        matplotlib Axes, new ones in pyplot's current figure: `plt.savefig` writes it, `plt.close(axes.figure)` frees
        it. Needs `pip install 'hgp_ref[figures]'`.
        """

        return plot_estimate(self, truth, ax)


# ---- The start: w = 0, a first guess, or the end of an earlier run


@dataclass(frozen=True)
class InitialPoint:
    """Where a run starts."""

    w: Array
    exact_residual: Array  # ∂_x f − H w
    v: Array
    residual: Array  # the same, or in a resumed run what the earlier run had left


def starting_point(
    whole: Callable[[], FullLinearization],
    mixer: Mixer,
    f_x: Array,
    f_lam: Array,
    method: Method,
    w0: Array | None,
    resume: Estimate | None,
    point: Fingerprint,
) -> InitialPoint:
    """The requested starting point; errors name `w0` or `resume`."""
    if w0 is not None and resume is not None:
        raise ValueError("w0 and resume exclude each other")
    if resume is not None:
        return _earlier(whole, mixer, method, resume, f_x, f_lam, point)
    if w0 is not None:
        return _first_guess(whole(), mixer, w0, f_x, f_lam)
    return InitialPoint(array_namespace(f_x).zeros_like(f_x), f_x, f_lam, f_x)


def _first_guess(linearization: FullLinearization, mixer: Mixer, w0: Array, f_x: Array, f_lam: Array) -> InitialPoint:
    """w^(0) = the average of w0.

    Clients average w0 first because w* is what solves mean_i H_i w = mean_i ∂_x f_i for one w that all share.
    """
    validation.same_kind(x=f_x, w0=w0)
    validation.finite("w0", w0)
    if tuple(w0.shape) not in (tuple(f_x.shape), tuple(f_x.shape[-2:])):
        raise ValueError(f"w0: shape {tuple(w0.shape)} given, needed {tuple(f_x.shape)} = (..., n, d_x)")
    xp = array_namespace(f_x)
    w = mixer.average(xp.broadcast_to(detached(w0), f_x.shape) + xp.zeros_like(f_x))
    Hw, Jw = linearization.products(w)
    return InitialPoint(w, f_x - Hw, f_lam - Jw, f_x - Hw)


def _earlier(
    whole: Callable[[], FullLinearization],
    mixer: Mixer,
    method: Method,
    resume: Any,
    f_x: Array,
    f_lam: Array,
    point: Fingerprint,
) -> InitialPoint:
    """The end of an earlier run: nothing is averaged, its method goes on."""
    validation.instance("resume", resume, Estimate)
    if mixer.channel.any_rank(resume.fingerprint is None):
        raise ValueError(
            "resume must be an estimate with a fingerprint of its problem, x and lam, got one without (saved by an "
            "earlier version?); to start from its w, pass w0=est.w"
        )
    if resume.carried is None or _class_name(resume.method) != _class_name(method):
        raise ValueError(
            f"resume: an estimate by {resume.method!r} given, needed one by a {type(method).__name__} that tells what "
            "it carries (over links that delay, part of that may be under way at the end of a run: give w0 instead)"
        )
    parts = {"w": f_x.shape, "carried": f_x.shape, "value": f_lam.shape}
    w, carried, v = (_part(resume, name, f_x, tuple(shape)) for name, shape in parts.items())
    eps = float(np.finfo(host_dtype(f_x)).eps)
    elsewhere = point.differs(resume.fingerprint, eps)
    if mixer.channel.any_rank(elsewhere):  # all ranks raise, or some would wait for the others
        raise ValueError(
            "resume must be an estimate at the same problem, x and lam; to start from its w elsewhere, pass w0=est.w"
        )
    return InitialPoint(w, f_x - whole().hvp(w), v, carried)


def _part(resume: Estimate, name: str, like: Array, shape: tuple[int, ...]) -> Array:
    """One array of an earlier estimate; host arrays, as `load` makes them, go to the library and device of this run."""
    part = getattr(resume, name)
    if isinstance(part, np.ndarray) and not is_numpy(like) and part.dtype == host_dtype(like):
        part = from_host(part, like=like)
    validation.same_kind(**{"x": like, f"resume.{name}": part})
    validation.finite(f"resume.{name}", part)
    if tuple(part.shape) != shape:
        raise ValueError(f"resume.{name}: shape {tuple(part.shape)} given, needed {shape} as in this run")
    return detached(part)


def _class_name(method: object) -> str:
    """Module and name of a method's class, also of one that a file describes."""
    return method.kind if isinstance(method, Described) else f"{type(method).__module__}.{type(method).__qualname__}"


# ---- The public function


def hypergradient(
    problem: Problem,
    x: Array,
    lam: Array,
    avg: Averaging | Sequence[Averaging],
    method: Method | None = None,
    *,
    eta: float | None = None,
    iterations: int = 1000,
    tol: float | None = None,
    batches: MiniBatches | int | None = None,
    w0: Array | None = None,
    resume: Estimate | None = None,
    history: bool = False,
    callback: Callable[[int, Array], object] | None = None,
    progress: bool = False,
) -> Estimate:
    """Estimate the hyper-gradient d_λ Σ_k f_k(x_k(λ), λ_k) over a network; client i obtains its own block.

    With H_i = ∂²_x g_i, J_i = ∂²_{xλ} g_i and w* = (Σ_k H_k)⁻¹ Σ_k ∂_x f_k, client i's block is ∂_λ f_i − J_i w*. The
    method proposes increments p of w, and from w = 0, v = ∂_λ f

        w ← w + p,    v ← v − J p.

    The default method is Algorithm 2 of the paper, `hgp.methods.Neumann(eta)`. A run whose residual grows raises
    DivergenceError. A run that ends before it meets `tol` gives a ConvergenceWarning.

    Parameters
    ----------
    problem : client costs; see `hgp_ref.problems.Problem`.
    x, lam : (n, d_x) and (n, d_λ), the point at which the costs are differentiated.
    avg : how clients average, e.g. `PushSum(net, steps=10)`. A list of averagings runs all of them at once, along a
        leading run axis.
    method : how w* is approached; see `hgp_ref.methods`.
    eta : step size of Algorithm 2, short for method=Neumann(eta). Without `eta` and `method` the clients find it: each
        takes the largest |eigenvalue| of its own Hessian by Lanczos on full batches, the network computes the maximum
        L over clients (which counts as traffic), and η = 1 / (1.05 L).
    iterations : at most so many increments.
    tol : stop once max_i ‖r_i‖ has fallen to this fraction, where r_i is the method's residual ∂_x f_i − H_i w_i at
        client i. This measures the series, not the averaging; `hgp.certify` bounds the error of both.
    batches : None for full batches, a size, or `hgp.MiniBatches(size, seed=0, ...)`. Several seeds give one run each.
    w0 : (n, d_x), a first guess of w*, such as `est.w` at an earlier point. Clients average it once.
    resume : an earlier estimate by the same kind of method at the same problem, x and lam, to continue it. Pass the
        graphs and batches that follow: `net.after(t)`, `MiniBatches(offset=...)`.
    history : keep v after every iteration.
    callback : called as callback(m, v) after iteration m = 1, 2, ...; a true result stops the run.

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
    M = validation.integer("iterations", iterations, 1, validation.LONGEST)
    tol = None if tol is None else validation.positive("tol", tol)
    method = _method(method, eta, resume)
    batches = read_batches(batches)
    history, progress = validation.boolean("history", history), validation.boolean("progress", progress)
    if callback is not None:
        validation.function("callback", callback)
    averagings, seeds, runs = _runs(avg, 0 if batches is None else batches.seed)
    many = runs is not None
    outer = _outer_gradients(problem, x, lam)
    f_x, f_lam = outer if runs is None else _for_runs(outer, runs)
    mixer = start_averaging(averagings, problem.n_clients, f_x if many else x, M + (w0 is not None), many)
    given: dict[str, object] = {"w0": w0 is not None, "resume": resume is not None, "history": history}
    given |= {"callback": callback is not None, "dim_lam": problem.dim_lam}
    mixer.channel.check_client_ids(problem.clients)
    mixer.channel.check_same_on_all_ranks("hgp.hypergradient", method=method, tol=tol, batches=batches, **given)
    derivatives: FullBatch | Sampled
    if batches is None:
        derivatives = FullBatch(problem, x, lam)
    else:
        streams = 1 if batches.share else 2
        sampler = BatchSampler(problem, batches, M, x, seeds=seeds, runs=many, streams=streams)
        derivatives = Sampled(problem, x, lam, sampler)
    if method is None:
        method = Neumann(safe_step_size("eta", mixer.channel, derivatives.whole(), f_x))
    full_jacobian = batches is not None and batches.full_jacobian
    point = fingerprint(problem, x, lam, outer, derivatives.whole, mini_batches=batches is not None)
    start = starting_point(derivatives.whole, mixer, f_x, f_lam, method, w0, resume, point)
    monitor = DivergenceMonitor(problem, x, lam, method, start.residual, mixer, mini_batches=batches is not None)
    state = method.init(Start(start.residual, start.w, start.exact_residual, mixer, derivatives.whole, M))
    run = Iteration(
        method, mixer, derivatives, monitor, state, start.w, start.v, f_lam, history, callback, tol, full_jacobian
    )
    del f_x, outer, start, state  # the run has them; arrays that it has left behind are not to be held until its end
    shown = bar(M, "hypergradient", progress and mixer.channel.clients.start == 0)
    try:
        run.run(M, shown)
    finally:  # what was sent was sent, also by a run that ends in an error
        shown.close()
        traffic = mixer.record_traffic()
    value, kept = run.values()
    if mixer.channel.any_rank(not all_finite(value)):
        raise NonFiniteError("diverged: the estimate holds NaN or infinite values, needed finite numbers")
    if tol is not None and run.stopped == "iterations" and not monitor.warned:
        left = f"where {np.max(monitor.left):.2g} of the first residual is left"
        if np.all(monitor.left <= tol):  # of the equation that a cycle solves
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
        averaging=averagings if many else averagings[0],
        stopped=run.stopped,
        residual_ratio=monitor.left if many else float(monitor.left),
        method=method,
        batches=batches,
        tol=tol,
        residual_norms=np.stack(monitor.norms),
        checkpoints=np.array(monitor.checkpoints),
        carried=None if mixer.channel.in_flight else method.carry(run.state),
        fingerprint=point,
    )


def check_point(problem: FullProblem, x: Array, lam: Array) -> tuple[Array, Array]:
    """x (n, d_x) and lam (n, d_lam), looked at, without graphs of automatic differentiation."""
    validation.same_kind(x=x, lam=lam)
    validation.shape("x", x, (problem.n_clients, problem.dim_x), "(n, d_x)", run_axes=False)
    validation.shape("lam", lam, (problem.n_clients, problem.dim_lam), "(n, d_lam)", run_axes=False)
    validation.finite("x", x)
    validation.finite("lam", lam)
    return detached(x), detached(lam)


def _method(method: Method | None, eta: float | None, resume: Any) -> Method | None:
    """The requested method; None if the clients are to find η."""
    if method is None:
        eta = resume.eta if eta is None and isinstance(resume, Estimate) else eta
        return None if eta is None else Neumann(eta)
    if not isinstance(method, Method):
        raise TypeError(
            f"method must be a method of hgp_ref.methods, got {type(method).__module__}.{type(method).__name__}"
        )
    if eta is not None:
        raise ValueError(f"eta={eta!r} and method={method!r} exclude each other: eta= is short for method=Neumann(eta)")
    return method


def _outer_gradients(problem: FullProblem, x: Array, lam: Array) -> tuple[Array, Array]:
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


# ---- Plotting


def plot_estimate(est: Estimate, truth: Array | None = None, ax: Any = None) -> Any:
    """Draw on `ax`, or on new axes, and return them."""
    try:
        import matplotlib.pyplot as plt
        from matplotlib.axes import Axes
    except ImportError as error:
        raise ImportError("plot needs matplotlib: pip install 'hgp_ref[figures]'") from error
    drawn = _distances(est, truth)  # before there is a figure: an error leaves none behind
    if ax is None:
        _, ax = plt.subplots(figsize=(6.0, 4.0), layout="constrained")
    elif not isinstance(ax, Axes):
        raise TypeError(f"ax: {type(ax).__name__} given, needed axes of matplotlib or None")
    share = est.residual_norms / np.where(est.residual_norms[0] > 0, est.residual_norms[0], 1.0)
    for r, line in enumerate(_lines(share)):
        ax.plot(est.checkpoints, line, "o--", ms=3, lw=0.8, color=f"C{r}", alpha=0.6,
                label="largest term left, relative to the first" if r == 0 else None)  # fmt: skip
    for r, line in enumerate(drawn):
        m = np.arange(1, len(line) + 1)
        shown = line > 0  # v^(M) is no distance from itself
        ax.plot(m[shown], line[shown], "-", lw=1.6, color=f"C{r}",
                label=f"distance of $v^{{(m)}}$ from {'the last one' if truth is None else 'the truth'}, relative"
                if r == 0 else None)  # fmt: skip
    ax.set(yscale="log", xlabel="iteration m", title=f"{est.method!r}, {est.iterations} iterations")
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return ax


def _distances(est: Estimate, truth: Array | None) -> np.ndarray:
    """How far v^(m) is from `truth`, or from v^(M), relative: (runs, M); (0, 0) without a history."""
    if truth is not None:
        validation.same_kind(truth=truth)
    if est.history is None:
        if truth is not None:
            raise ValueError("truth: given, but the run kept no history; needed hypergradient(..., history=True)")
        return np.zeros((0, 0))
    history, end = to_host(est.history), to_host(est.value if truth is None else truth)
    if end.shape[-2:] != history.shape[-2:]:
        raise ValueError(f"truth: shape {end.shape} given, needed {history.shape[-2:]} = (n, d_lam)")
    apart = np.linalg.norm(history - end[..., None, :, :], axis=(-2, -1))  # (..., M)
    scale = np.linalg.norm(end, axis=(-2, -1))[..., None]
    return _lines(np.moveaxis(apart / np.where(scale > 0, scale, 1.0), -1, 0))


def _lines(values: np.ndarray) -> np.ndarray:
    """One line for each run, (runs, points), of values (points, [runs])."""
    return np.atleast_2d(values.T)
