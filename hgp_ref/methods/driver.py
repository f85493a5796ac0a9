"""`hypergradient`: the driver of every method.

A method proposes increments p of w. From w = 0 (or a first guess) and v = ∂_λ f − J w, iteration m = 1, 2, ... makes

    w^(m) = w^(m-1) + p^(m),    v^(m) = v^(m-1) − J(ξ̂^(m)) p^(m),    J = ∂²_{xλ} g.

On full batches v^(m) = ∂_λ f − J w^(m), so the product with J is computed once, at the end. With mini-batches this is a
choice, `MiniBatches(full_jacobian=True)`, which keeps the sampling noise of J out of v.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import array_api_compat as compat
import numpy as np

from hgp_ref import validation
from hgp_ref._kernels import cuda
from hgp_ref.backend import (
    Array,
    all_finite,
    array_namespace,
    class_name,
    detached,
    device,
    from_host,
    host_dtype,
    is_numpy,
    to_host,
)
from hgp_ref.errors import NonFiniteError, warn_unmet
from hgp_ref.methods.base import Method, Start, entry
from hgp_ref.methods.curvature import explicit_hessians
from hgp_ref.methods.divergence import DivergenceMonitor
from hgp_ref.methods.fingerprint import Fingerprint, fingerprint
from hgp_ref.methods.series import Neumann
from hgp_ref.methods.spectrum import safe_step_size
from hgp_ref.methods.tracking import innermost
from hgp_ref.mixing import Averaging, Mixer, Traffic, start_averaging
from hgp_ref.problems import Problem, as_problem
from hgp_ref.problems.base import FullLinearization, FullProblem, check_point, separately
from hgp_ref.problems.batches import BatchSampler, MiniBatches, read_batches
from hgp_ref.progress import Bar, bar
from hgp_ref.results import Described, Result
from hgp_ref.validation import Boolean, Count, Function, Optional, Positive, checked

CHECKS = 4  # checks for divergence per run, at least, besides the first iteration
STRIDE = 256  # iterations between two checks, at most
TOL_STRIDE = 8  # iterations between two tests of `tol` on CuPy, where each test waits for the device
SAMPLE = 8  # iterations between two tests for finite numbers, where they are on the host


@dataclass(frozen=True)
class Estimate(Result):
    """The estimated hyper-gradient, how well the run converged, and its settings.

    With several averagings or seeds, `value`, `w`, `history`, `residual_ratio` and the fields of `traffic` have a
    leading run axis. With several outer costs (`hgp.influence` on validation instances) they have an axis for these,
    except for `traffic`: one message carries all of them.

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
    state : of the method at the end, from which `resume` continues; None if messages are still in flight.
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
    state: Any = None
    fingerprint: Fingerprint | None = None

    def _summary(self) -> list[str]:
        n, d = self.value.shape[-2:]
        kind = "runs" if isinstance(self.averaging, list) else "outer costs"
        runs = f", {self.value.shape[0]} {kind}" if self.value.ndim > 2 else ""
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
        """Plot the residual over m and, with `history`, the distance of v^(m) from `truth` or else from v^(M).

        Parameters
        ----------
        truth : (n, d_λ), such as `hgp.exact.hypergradient(problem, x, lam)`.
        ax : matplotlib axes; new ones by default, in pyplot's current figure.

        Returns
        -------
        The axes. Needs `pip install 'hgp_ref[figures]'`.
        """
        return plot_estimate(self, truth, ax)


@checked(
    iterations=Count(),
    tol=Optional(Positive()),
    history=Boolean(),
    callback=Optional(Function("m", "v")),
    progress=Boolean(),
)
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
        client i. This measures the series, not the averaging; `hgp.certify` bounds the error of both. On CuPy arrays
        it is tested in every eighth iteration.
    batches : None for full batches, a size, or `hgp.MiniBatches(size, seed=0, ...)`. Several seeds give one run each.
    w0 : (n, d_x), a first guess of w*, such as `est.w` at an earlier point. Clients average it once. It is moved to the
        device of x, as is `resume`.
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
    M, method, batches = iterations, _read_method(method, eta, resume), read_batches(batches)
    if w0 is not None and resume is not None:
        raise ValueError("w0 and resume cannot both be given: pass one of them")
    averagings, seeds, several = _read_runs(avg, batches)

    f_x, f_lam = outer = _outer_gradients(problem, x, lam)
    together = f_x.ndim > 2  # several outer costs
    if several and together:
        raise ValueError("avg must be one averaging, and batches must have one seed, for several outer costs")
    if several:
        xp = array_namespace(x)
        f_x, f_lam = (xp.broadcast_to(a, (len(averagings), *a.shape)) + xp.zeros_like(a) for a in outer)
    mixer = start_averaging(averagings, problem.n_clients, f_x, M + (w0 is not None), several)
    channel = mixer.channel
    channel.together = together
    channel.check_client_ids(problem.clients)
    channel.check_same_on_all_ranks(
        "hgp.hypergradient", method=method, tol=tol, batches=batches, w0=w0 is not None, resume=resume is not None,
        history=history, callback=callback is not None, dim_lam=problem.dim_lam)  # fmt: skip
    sampler = None
    if batches is not None:
        streams = 1 if batches.share else 2
        sampler = BatchSampler(problem, batches, M, x, seeds=seeds, runs=several, streams=streams)
    derivatives = PointDerivatives(problem, x, lam, sampler, together)
    if method is None:
        method = Neumann(safe_step_size("eta", channel, derivatives.full(), f_x))
    point = fingerprint(problem, x, lam, outer, derivatives)

    earlier = None if resume is None else _read_resume(resume, method, mixer, point, f_x, f_lam)
    start, v, state = _begin(method, mixer, derivatives, M, f_x, f_lam, w0, earlier)
    first = entry(state, "residual")
    first = start.residual if first is None else first
    monitor = DivergenceMonitor(problem, x, lam, method, first, mixer, mini_batches=sampler is not None)
    full_jacobian = batches is None or batches.full_jacobian
    deferred = full_jacobian and callback is None
    run = Run(
        method, mixer, derivatives, monitor, state, start.w, v, f_lam, full_jacobian, deferred, tol, history, callback
    )
    del f_x, outer, first, v, start, state, earlier  # the run releases what it no longer needs

    shown = bar(M, "hypergradient", True) if progress and channel.clients.start == 0 else None
    try:
        run.iterate(M, shown)
    finally:  # the traffic of a run that ends in an error counts as well
        traffic = mixer.record_traffic()
        if shown is not None:
            shown.close()
    return run.estimate(averagings if several else averagings[0], batches, traffic, point)


def _outer_gradients(problem: FullProblem, x: Array, lam: Array) -> tuple[Array, Array]:
    """∂_x f and ∂_λ f; NonFiniteError if they are not finite."""
    outer = problem.outer_grad(x, lam)
    for k, gradient in enumerate(outer):
        if not all_finite(gradient):
            raise NonFiniteError(f"problem.outer_grad(x, lam)[{k}] must be finite, got NaN or infinite values")
    return outer


def _begin(
    method: Method,
    mixer: Mixer,
    derivatives: PointDerivatives,
    iterations: int,
    f_x: Array,
    f_lam: Array,
    w0: Array | None,
    earlier: tuple[Array, Array, Any] | None,
) -> tuple[Start, Array, Any]:
    """What the method knows before its first step, v^(0), and the state: from 0, w0, or (w, v, state) of a run."""
    if earlier is not None:
        w, v, state = earlier
        start = Start(f_x - derivatives.full().hvp(w), w, mixer, derivatives, iterations)
        return start, v, method.resume(state, start)
    w, r, v = array_namespace(f_x).zeros_like(f_x), f_x, f_lam
    if w0 is not None:
        w = mixer.average(_read_w0(w0, f_x))
        Hw, Jw = derivatives.full().products(w)
        r, v = f_x - Hw, f_lam - Jw
    start = Start(r, w, mixer, derivatives, iterations)
    return start, v, method.init(start)


def _warn_of_tolerance(tol: float, iterations: int, residual_ratio: np.ndarray) -> None:
    what = f"the residual is still {np.max(residual_ratio):.2g} times the first"
    if np.all(residual_ratio <= tol):  # of the equation that a cycle solves
        what = "the run ended before the last cycle of the method"
    warn_unmet(
        f"tol={tol:g} was not met in {iterations} iterations: {what}; use more iterations or a faster method (hgp.plan "
        "chooses one)"
    )


# The loop -------------------------------------------------------------------------------------------------------------


class PointDerivatives:
    """Products with H_i and J_i at (x, λ), on full batches or on the mini-batches of one iteration after another.

    The point is fixed, so on full batches it is linearized once. With mini-batches `hvp` and `cross` use independent
    samples, or a common one (`MiniBatches.share`). With `together`, vectors have an axis of outer costs, and each
    product is that with one vector alone.
    """

    def __init__(
        self, problem: FullProblem, x: Array, lam: Array, sampler: BatchSampler | None, together: bool = False
    ) -> None:
        self.sampled, self._sampler = sampler is not None, sampler
        self._adapt: Callable[[FullLinearization], FullLinearization]
        self._adapt = separately if together else lambda linearization: linearization
        self.cache: dict[Any, Any] = {}  # of the method
        self._problem, self._point = problem, (x, lam)
        self._common: FullLinearization | None = None  # of hvp and cross
        self.full: Callable[[], FullLinearization]
        if sampler is None:
            self._common = linearization = self._adapt(problem.linearize(x, lam))
            self.full = lambda: linearization
            self.hvp, self.cross = linearization.hvp, linearization.cross
        else:
            self.full = lambda: self._adapt(problem.linearize(x, lam))
            self._linearize = problem.sampled(x, lam)

    def hessians(self) -> Array:
        """The explicit H_i on full batches, in closed form or by d products.  # (n, d, d)"""
        if self._problem.hessian is not None:
            return self._problem.hessian(*self._point)
        return explicit_hessians(self._problem.linearize(*self._point).hvp, self._point[0])

    def draw(self, m: int) -> None:
        """Take the mini-batches of iteration m = 0, 1, ..."""
        assert self._sampler is not None
        self.hvp = self.cross = self._common = None  # type: ignore[assignment]  # frees the last ones first
        drawn = [self._adapt(self._linearize(batch)) for batch in self._sampler.at(m)]
        self.hvp, self.cross = drawn[-1].hvp, drawn[0].cross
        self._common = drawn[0] if len(drawn) == 1 else None

    def combine(self) -> None:
        """Let the next `hvp(p)` compute J p in the same pass over the data, for `cross(p)`."""
        if self._common is not None:
            pair = _ProductPair(self._common)
            self.hvp, self.cross = pair.hvp, pair.cross


class _ProductPair:
    """H u and J u by one pass over the data."""

    def __init__(self, linearization: FullLinearization) -> None:
        self.linearization = linearization
        self._u: Array | None = None  # the last argument of hvp
        self._Ju: Array | None = None

    def hvp(self, u: Array) -> Array:
        Hu, self._Ju = self.linearization.products(u)
        self._u = u
        return Hu

    def cross(self, u: Array) -> Array:
        return self._Ju if self._u is u else self.linearization.cross(u)


@dataclass
class Run:
    """A method in progress."""

    method: Method
    mixer: Mixer
    derivatives: PointDerivatives
    monitor: DivergenceMonitor
    state: Any
    w: Array  # w^(m)
    v: Array  # v^(m); v^(0) where `deferred`
    f_lam: Array  # ∂_λ f
    full_jacobian: bool  # whether v^(m) = ∂_λ f − J w^(m) with J on full batches
    deferred: bool  # whether v is computed at the end only
    tol: float | None
    keep_history: bool
    callback: Callable[[int, Array], object] | None
    m: int = 0
    stopped: str = "iterations"
    recorded: list[Array] = field(default_factory=list)  # w^(m) if deferred, else v^(m)

    def iterate(self, M: int, shown: Bar | None) -> None:
        """Make iterations 1 .. M, or fewer."""
        method, derivatives = self.method, self.derivatives
        built_in = type(innermost(method)).__module__.startswith("hgp_ref.")
        every = max(1, min(STRIDE, -(-M // CHECKS)))
        on_host, stride = is_numpy(self.w), TOL_STRIDE if cuda.applies(self.w) else 1
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported as divergence
            while self.m < M and self.stopped == "iterations":
                if derivatives.sampled:
                    derivatives.draw(self.m)
                if not (self.deferred or (self.full_jacobian and derivatives.sampled)):
                    derivatives.combine()
                returned = method.step(self.state, self.mixer, derivatives)
                p, self.state = returned if built_in else self._checked(returned)
                del returned
                self.w = self.w + p
                self.m += 1
                if not self.deferred:
                    self._update_v(p)
                if self.keep_history:
                    self.recorded.append(self.w if self.deferred else self.v)
                if self.callback is not None and self._callback_stops():
                    self.stopped = "callback"
                last = self.m in (1, M) or self.stopped != "iterations"
                if last or self.m % every == 0 or (self.tol is not None and self.m % stride == 0):
                    self._check(p)
                elif on_host and not self.m % SAMPLE:
                    self.monitor.record_size(abs(float(np.add.reduce(p, axis=None))), self.m)
                del p  # before the next one is computed
                if shown is not None:
                    shown.update(1)
            self.monitor.finalize(self.m, self.w)

    def _update_v(self, p: Array) -> None:
        if self.full_jacobian and self.derivatives.sampled:
            self.v = self.value(self.w)
        else:
            self.v = self.v - self.derivatives.cross(p)

    def _callback_stops(self) -> bool:
        copy = array_namespace(self.v).asarray(self.v, copy=True)  # the callback may modify it
        assert self.callback is not None
        return self.mixer.channel.any_rank(validation.returned_bool("callback", self.callback(self.m, copy)))

    def _checked(self, returned: Any) -> tuple[Array, Any]:
        """What `step` of a user's method returned."""
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise TypeError(
                f"method.step must return a tuple of the increment and the state, got {type(returned).__name__}"
            )
        validation.returned_array("step", returned[0], tuple(self.w.shape), like=self.w, owner="method")
        return returned

    def _check(self, p: Array) -> None:
        """Check for divergence, and for the tolerance."""
        residual = entry(self.state, "residual")
        self.monitor.check(p if residual is None else self.mixer.debias(residual), self.m)
        if self.tol is None or self.stopped != "iterations" or not entry(self.state, "may_stop", True):
            return
        if np.all(self.monitor.residual_ratio <= self.tol):
            self.stopped = "tolerance"

    def value(self, w: Array) -> Array:
        """∂_λ f − J w on full batches; w may have an axis of iterations before its clients."""
        f_lam = self.f_lam if w.ndim == self.f_lam.ndim else array_namespace(w).expand_dims(self.f_lam, axis=-3)
        return f_lam - self.derivatives.full().cross(w)

    def history_of_v(self) -> Array:
        """v^(1) .. v^(M)."""
        stacked = array_namespace(self.v).stack(self.recorded, axis=-3)
        return self.value(stacked) if self.deferred else stacked

    def estimate(
        self,
        averaging: Averaging | list[Averaging],
        batches: MiniBatches | None,
        traffic: Traffic,
        point: Fingerprint,
    ) -> Estimate:
        """The result of the run; NonFiniteError if it is not finite, and a warning if it did not meet `tol`."""
        monitor, channel = self.monitor, self.mixer.channel
        value = self.value(self.w) if self.deferred else self.v
        if channel.any_rank(not all_finite(value)):
            raise NonFiniteError("diverged: the estimate holds NaN or infinite values")
        if self.tol is not None and self.stopped == "iterations" and not monitor.warned:
            _warn_of_tolerance(self.tol, self.m, monitor.residual_ratio)
        return Estimate(
            value=value,
            w=self.w,
            history=self.history_of_v() if self.keep_history else None,
            traffic=traffic,
            eta=getattr(self.method, "eta", None),
            iterations=self.m,
            averaging=averaging,
            stopped=self.stopped,
            residual_ratio=monitor.residual_ratio if value.ndim > 2 else float(monitor.residual_ratio),
            method=self.method,
            batches=batches,
            tol=self.tol,
            residual_norms=np.stack(monitor.norms),
            checkpoints=np.array(monitor.checkpoints),
            state=None if channel.in_flight or not is_data(self.state) else self.state,
            fingerprint=point,
        )


# States ---------------------------------------------------------------------------------------------------------------


def is_data(value: Any) -> bool:
    """Whether a state can be saved: arrays, numbers and text in results, tuples, lists and dictionaries."""
    if isinstance(value, dict):
        return all(is_data(part) for part in value.values())
    if type(value) in (tuple, list):
        return all(map(is_data, value))
    if isinstance(value, Result):
        return type(value).__module__.startswith("hgp_ref.") and all(map(is_data, vars(value).values()))
    return value is None or isinstance(value, str | int | float | np.generic) or compat.is_array_api_obj(value)


def map_arrays(function: Callable[[Array], Array], value: Any) -> Any:
    """`value` with `function` applied to every array in it."""
    if isinstance(value, dict):
        return {name: map_arrays(function, part) for name, part in value.items()}
    if type(value) in (tuple, list):
        return type(value)(map_arrays(function, part) for part in value)
    if isinstance(value, Result):
        return replace(value, **{name: map_arrays(function, part) for name, part in vars(value).items()})  # type: ignore[type-var]
    return function(value) if compat.is_array_api_obj(value) and not isinstance(value, np.generic) else value


# Arguments ------------------------------------------------------------------------------------------------------------


def _read_method(method: Method | None, eta: float | None, resume: Any) -> Method | None:
    """The requested method; None if the clients are to find η."""
    if method is None:
        eta = resume.eta if eta is None and isinstance(resume, Estimate) else eta
        return None if eta is None else Neumann(eta)
    if not isinstance(method, Method):
        raise TypeError(f"method must be a method of hgp_ref.methods, got {class_name(method)}")
    if eta is not None:
        raise ValueError(
            f"eta={eta!r} and method={method!r} cannot both be given: eta= is short for method=Neumann(eta)"
        )
    return method


def _read_runs(
    avg: Averaging | Sequence[Averaging], batches: MiniBatches | None
) -> tuple[list[Averaging], list[int], bool]:
    """The averaging and the seed of each run, and whether there is a run axis."""
    if isinstance(avg, Averaging):
        averagings = [avg]
    elif isinstance(avg, list | tuple) and avg and all(isinstance(a, Averaging) for a in avg):
        averagings = list(avg)
    else:
        raise TypeError(f"avg must be an averaging (PushSum, ExactAverage, Gossip) or a list of them, got {avg!r}")
    seeds, several_seeds = ([0], False) if batches is None else (batches.seeds, isinstance(batches.seed, tuple))
    runs = max(len(averagings), len(seeds))
    if {len(averagings), len(seeds)} - {1, runs}:
        raise ValueError(f"seed must be one seed or one for each of {len(averagings)} averagings, got {len(seeds)}")
    several = several_seeds or not isinstance(avg, Averaging)
    return averagings * (runs // len(averagings)), seeds * (runs // len(seeds)), several


def _read_w0(w0: Array, f_x: Array) -> Array:
    """w0 for every run.

    Clients average w0 first because w* solves mean_i H_i w = mean_i ∂_x f_i for one w that all share.
    """
    w0 = _earlier("w0", w0, f_x)
    if tuple(w0.shape) not in (tuple(f_x.shape), tuple(f_x.shape[-2:])):
        raise ValueError(f"w0 must have shape {tuple(f_x.shape)} = (..., n, d_x), got {tuple(w0.shape)}")
    xp = array_namespace(f_x)
    return xp.broadcast_to(w0, f_x.shape) + xp.zeros_like(f_x)


def _read_resume(
    resume: Any, method: Method, mixer: Mixer, point: Fingerprint, f_x: Array, f_lam: Array
) -> tuple[Array, Array, Any]:
    """w, v and the state of the method at the end of an earlier run at this point."""
    validation.instance("resume", resume, Estimate)
    any_rank = mixer.channel.any_rank  # all ranks raise, or some would wait for the others
    if any_rank(resume.fingerprint is None):
        raise ValueError(
            "resume must be an estimate with a fingerprint of its problem, x and lam, got one that has none (saved by "
            "an earlier version?); to start from its w, pass w0=est.w"
        )
    kind = f"{type(method).__module__}.{type(method).__qualname__}"
    made_by = resume.method.kind if isinstance(resume.method, Described) else (
        f"{type(resume.method).__module__}.{type(resume.method).__qualname__}")  # fmt: skip
    if made_by != kind:
        raise ValueError(f"resume must be an estimate by {type(method).__name__}, got one by {resume.method!r}")
    if any_rank(resume.state is None):
        raise ValueError(
            f"resume must be an estimate that holds the state of {resume.method!r}, got one that has none (messages "
            "may have been in flight at the end of the run); to start from its w, pass w0=est.w"
        )
    parts = {"w": f_x.shape, "value": f_lam.shape}
    w, v = (_earlier(f"resume.{name}", getattr(resume, name), f_x) for name in parts)
    for (name, shape), part in zip(parts.items(), (w, v), strict=True):
        if tuple(part.shape) != tuple(shape):
            raise ValueError(f"resume.{name} must have shape {tuple(shape)} as in this run, got {tuple(part.shape)}")
    state = map_arrays(lambda a: _earlier("resume.state", a, f_x), resume.state)
    if any_rank(point.differs(resume.fingerprint, float(np.finfo(host_dtype(f_x)).eps))):
        raise ValueError(
            "resume must be an estimate at the same problem, x and lam; to start from its w elsewhere, pass w0=est.w"
        )
    return w, v, state


def _earlier(name: str, a: Array, like: Array) -> Array:
    """An array of an earlier run, in the library and on the device of this run."""
    validation.array(name, a)
    if (array_namespace(a), device(a)) != (array_namespace(like), device(like)):
        if host_dtype(a) != host_dtype(like):
            raise TypeError(f"mixed dtypes: x is {like.dtype}, {name} is {a.dtype}")
        a = from_host(to_host(a), like=like)
    validation.same_kind(**{"x": like, name: a})
    validation.finite(name, a)
    return detached(a)


# Plotting -------------------------------------------------------------------------------------------------------------


def plot_estimate(est: Estimate, truth: Array | None = None, ax: Any = None) -> Any:
    """`Estimate.plot`."""
    plt = validation.pyplot()
    distances = _distances(est, truth)  # before a figure is created, in case of an error
    ax = plt.subplots(figsize=(6.0, 4.0), layout="constrained")[1] if ax is None else validation.axes(ax)
    share = est.residual_norms / np.where(est.residual_norms[0] > 0, est.residual_norms[0], 1.0)
    for r, line in enumerate(_lines(share)):
        ax.plot(est.checkpoints, line, "o--", ms=3, lw=0.8, color=f"C{r}", alpha=0.6,
                label="largest term left, relative to the first" if r == 0 else None)  # fmt: skip
    for r, line in enumerate(distances):
        m = np.arange(1, len(line) + 1)
        positive = line > 0  # the distance of v^(M) from itself is 0
        ax.plot(m[positive], line[positive], "-", lw=1.6, color=f"C{r}",
                label=f"distance of $v^{{(m)}}$ from {'the last one' if truth is None else 'the truth'}, relative"
                if r == 0 else None)  # fmt: skip
    ax.set(yscale="log", xlabel="iteration m", title=f"{est.method!r}, {est.iterations} iterations")
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return ax


def _distances(est: Estimate, truth: Array | None) -> np.ndarray:
    """Relative distances of v^(m) from `truth`, or from v^(M), (runs, M); (0, 0) without a history."""
    if truth is not None:
        validation.same_kind(truth=truth)
    if est.history is None:
        if truth is not None:
            raise ValueError("truth needs a run with history=True, got one that has none")
        return np.zeros((0, 0))
    history, end = to_host(est.history), to_host(est.value if truth is None else truth)
    if end.shape[-2:] != history.shape[-2:]:
        raise ValueError(f"truth must have shape {history.shape[-2:]} = (n, d_lam), got {end.shape}")
    distances = np.linalg.norm(history - end[..., None, :, :], axis=(-2, -1))  # (..., M)
    scale = np.linalg.norm(end, axis=(-2, -1))[..., None]
    return _lines(np.moveaxis(distances / np.where(scale > 0, scale, 1.0), -1, 0))


def _lines(values: np.ndarray) -> np.ndarray:
    """One line for each run, (runs, points), of values (points, [runs])."""
    return np.atleast_2d(values.T)
