"""`train` and stochastic gradient push, which solves the inner problem over directed networks.

A client's own step with weight decay c, momentum m and proximal weight μ towards an anchor a is

    d = ∂g(z) + c z + μ (z − a),        b ← m b + d,        z ← z − rate b.

Every training method alternates such local updates δ(z) with averages (`TrainingLoop`). With z = x / ω if the averaging
conserves sums, and z = x otherwise,

    update, then average:  x ← Θ̂ (x + δ(z))          Assran's gradient push, FedAvg
    average, then update:  x ← Θ̂ x,  x ← x + δ(z)    Nedić's gradient push

where δ = −rate b for gradient push, and many such steps for local rounds.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, detached, device
from hgp_ref.errors import DivergenceError, NonFiniteError, outside, warn_unmet
from hgp_ref.methods.spectrum import range_of_mean, row_norms, safe_step_size
from hgp_ref.mixing import Averaging, Channel, Mixer, PushSum, RobustPushSum, Traffic, push_sum_for, start_averaging
from hgp_ref.mixing.simulated import MODES
from hgp_ref.networks import Network
from hgp_ref.problems import Problem, as_problem
from hgp_ref.problems.base import FullProblem, optional
from hgp_ref.problems.batches import BatchSampler, MiniBatches, read_batches
from hgp_ref.progress import Bar, bar
from hgp_ref.results import Result
from hgp_ref.validation import short

Rate = float | Callable[[int], float]


@dataclass(frozen=True)
class Descent:
    """The directions b of a client's steps on `problem` at `lam`."""

    problem: FullProblem
    lam: Array
    momentum: float = 0.0
    weight_decay: float = 0.0
    prox: float = 0.0

    def __post_init__(self) -> None:
        # As Python floats: a NumPy float64 would turn float32 arrays into float64, and arrays refuse a Fraction.
        object.__setattr__(self, "momentum", check_momentum(self.momentum))
        for name in ("weight_decay", "prox"):
            object.__setattr__(self, name, validation.nonnegative(name, getattr(self, name)))

    def gradient(self, z: Array, batch: Array | None = None) -> Array:
        """∂g(z) + c z: what vanishes where training ends.  # (..., n, d_x)"""
        gradient = self.problem.inner_grad(z, self.lam, batch=batch)
        return gradient + self.weight_decay * z if self.weight_decay else gradient

    def direction(self, z: Array, batch: Array | None, b: Array | None, anchor: Array | None = None) -> Array:
        """The next b, from the last one (None before the first step).  # (..., n, d_x)"""
        d = self.gradient(z, batch)
        if self.prox and anchor is not None:
            d = d + self.prox * (z - anchor)
        return d if b is None or not self.momentum else self.momentum * b + d


def check_momentum(momentum: float) -> float:
    """The momentum as a Python float in [0, 1)."""
    checked = validation.number("momentum", momentum, "a number in [0, 1)")
    if not 0 <= checked < 1:
        raise ValueError(f"momentum={momentum!r} given, needed a number in [0, 1)")
    return checked


def check_settings(method: Any, count: str) -> None:
    """Check and normalise the settings that training methods share; `count` names the number of steps or rounds."""
    number = validation.integer(count, getattr(method, count), 1, validation.LONGEST)
    checked: dict[str, Any] = {
        count: number,
        "decay": validation.positive("decay", method.decay),
        "momentum": check_momentum(method.momentum),
        "weight_decay": validation.nonnegative("weight_decay", method.weight_decay),
        "batches": read_batches(method.batches),
    }
    if method.lr is not None and not callable(method.lr):
        checked["lr"] = validation.positive("lr", method.lr)
    values = validation.host_array("milestones", method.milestones)
    checked["milestones"] = tuple(values.tolist()) if values.ndim == 1 else method.milestones
    if read_milestones(number, checked["milestones"]) and callable(method.lr):
        raise ValueError(f"milestones={method.milestones!r} and a function lr exclude each other")
    for name, value in checked.items():
        object.__setattr__(method, name, value)


def changed_settings(method: Any) -> str:
    """A repr that shows the settings which differ from their defaults."""
    values = {f.name: getattr(method, f.name) for f in fields(method)}
    defaults = {f.name: f.default for f in fields(method)}
    shown = [f"{name}={short(value)}" for name, value in values.items() if value is not defaults[name] and not
             (type(value) is type(defaults[name]) and value == defaults[name])]  # fmt: skip
    return f"{type(method).__name__}({', '.join(shown)})"


def without_function(method: Any) -> Any:
    """The settings that ranks compare by repr; a function lr is compared by its values instead."""
    return replace(method, lr=None) if callable(method.lr) else method


class Rates:
    """The learning rate of each step from 0 on: lr decay^(milestones passed), or lr(step) for a function.

    Rates are computed on demand, because a run may end long before its last step.
    """

    def __init__(self, steps: int, lr: Rate, milestones: Sequence[float], decay: float) -> None:
        self.steps, self._function = steps, lr if callable(lr) else None
        self.milestones = read_milestones(steps, milestones)
        if self._function is not None:
            if self.milestones:
                raise ValueError(f"milestones={milestones!r} and a function lr exclude each other")
            self.largest = max(self.sample().tolist())  # of those computed so far
            return
        self._sorted = sorted(self.milestones)
        decays = validation.positive("decay", decay) ** np.arange(len(self._sorted) + 1)
        self._table = (validation.positive("lr", lr) * decays).tolist()
        first, last = bisect_right(self._sorted, 0), bisect_right(self._sorted, steps - 1)
        self.largest = max(self._table[first], self._table[last])  # the rate is monotone

    def __getitem__(self, step: int) -> float:
        if self._function is None:
            return self._table[bisect_right(self._sorted, step)]
        rate = validation.positive(f"lr({step})", self._function(step))
        self.largest = max(rate, getattr(self, "largest", rate))
        return rate

    def until(self, steps: int) -> np.ndarray:
        """The rates of the first `steps` steps."""
        return np.array([self[s] for s in range(steps)])

    def sample(self) -> np.ndarray:
        """The rates of steps 0, 1, 2, 4, 8, … and of the last: what ranks compare."""
        powers = [2**k for k in range((self.steps - 1).bit_length()) if 2**k < self.steps]
        return np.array([self[s] for s in dict.fromkeys([0, *powers, self.steps - 1])])


def read_milestones(steps: int, milestones: Sequence[float]) -> tuple[int, ...]:
    """Milestones as step numbers; numbers between 0 and 1 are fractions of `steps`, rounded up."""
    values = validation.host_array("milestones", milestones)
    numbers = values.size == 0 or values.dtype.kind in "iu"
    fractions = values.dtype.kind == "f" and bool(np.all((values > 0) & (values < 1)))
    if values.ndim != 1 or not (numbers or fractions):
        raise ValueError(f"milestones must be step numbers, or fractions of the steps in (0, 1), got {milestones!r}")
    if numbers:
        return tuple(values.astype(np.int64).tolist())
    return tuple(math.ceil(Fraction(value).limit_denominator(10**6) * steps) for value in values.tolist())


# ---- Arguments


def check_lam(problem: FullProblem, lam: Array, x0: Array | None, run_axes: bool = True) -> None:
    """Check that λ fits the problem and that x_0 is an array of the same kind."""
    validation.same_kind(lam=lam, **({} if x0 is None else {"x0": x0}))
    validation.shape("lam", lam, (problem.n_clients, problem.dim_lam), "(n, d_lam)", run_axes=run_axes)
    validation.finite("lam", lam)


def check_clients(net: Network, channel: Channel, clients: int) -> None:
    """ValueError unless the channel over `net` serves as many clients here as the problem has."""
    held = channel.clients.stop - channel.clients.start
    if held != clients:
        raise ValueError(f"net: {net!r} has {held} clients, but the problem has {clients}")


def one_per_seed(lam: Array, seeds: list[int]) -> Array:
    """lam with a run axis for the seeds."""
    if lam.ndim > 3 or (lam.ndim == 3 and lam.shape[0] != len(seeds)):
        raise ValueError(
            f"batches must have one seed for each run of lam, got {len(seeds)} for lam of shape {tuple(lam.shape)}"
        )
    xp = array_namespace(lam)
    shape = (len(seeds), *lam.shape[-2:])
    return xp.broadcast_to(lam, shape) + xp.zeros(shape, dtype=lam.dtype, device=device(lam))


def read_start(problem: FullProblem, lam: Array, x0: Array | None) -> Array:
    """x0 for each run of lam, zeros by default.  # (..., n, d_x)"""
    shape = (*lam.shape[:-1], problem.dim_x)
    if x0 is None:
        return array_namespace(lam).zeros(shape, dtype=lam.dtype, device=device(lam))
    validation.shape("x0", x0, (problem.n_clients, problem.dim_x), "(n, d_x)")
    validation.finite("x0", x0)
    if x0.ndim > lam.ndim or tuple(x0.shape[:-2]) not in ((), shape[:-2]):
        raise ValueError(f"x0: shape {tuple(x0.shape)} given, needed {shape} or {shape[-2:]} = (n, d_x)")
    xp = array_namespace(x0)
    return xp.broadcast_to(detached(x0), shape) + xp.zeros_like(detached(x0))


# ---- The result


@dataclass(frozen=True)
class Fit(Result):
    """The trained parameters, how well training converged, and its settings.

    With a run axis on `lam`, or several seeds, `x` has it too; gap, norm and the fields of `traffic` are arrays then.

    Attributes
    ----------
    x : (n, d_x), the parameters of each client.
    consensus_gap : max_i ‖x_i − x̄‖.
    grad_norm : ‖mean_i ∂_x g_i(x̄, λ_i)‖ on full batches, with weight decay: zero at the inner solution.
    steps : number of steps made, or of rounds.
    traffic : what the clients sent.
    method : how it was trained, such as `SGP(...)`.
    tol : the requested tolerance.
    stopped : "steps", "tolerance" or "callback".
    rates : (steps,), the learning rate of each step or round, also where the clients found it.
    milestones : steps at which it was multiplied by `method.decay`.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> fit = hgp.sgp(problem, np.zeros((3, 2)), hgp.networks.FullyConnected(3), steps=300, lr=0.5)
    >>> fit.x.shape, fit.steps
    ((3, 4), 300)
    """

    x: Array
    consensus_gap: float | np.ndarray
    grad_norm: float | np.ndarray
    steps: int
    traffic: Traffic
    method: Any
    tol: float | None
    stopped: str
    rates: np.ndarray
    milestones: tuple[int, ...] = ()

    def _summary(self) -> list[str]:
        n, d = self.x.shape[-2:]
        lead = self.x.shape[:-2]
        runs = f", {int(np.prod(lead))} runs" if lead else ""
        return validation.table(
            f"parameters of {n} clients, {d} numbers each{runs}: {self.steps} steps of "
            f"{validation.cut(repr(self.method), 120)}",
            mean_gradient=validation.largest(self.grad_norm),
            consensus_gap=validation.largest(self.consensus_gap),
            stopped=validation.stop_reason(self.stopped, self.tol, True if self.stopped == "tolerance" else None),
            traffic=self.traffic.in_words(),
        )


# ---- Divergence


GROWTH_LIMIT = 1e8  # parameters and gradients that have both grown by this are not coming back
CLEAR_GROWTH = 10.0  # at the end: parameters and mean gradient beyond this times what they started with


class TrainingMonitor:
    """Detects divergence by max |x| and max |∂g|.

    Parameters alone may grow as far as the solution is away, and gradients alone grow from a start at the solution.
    Training has diverged if both have grown: parameters beyond |x_0| + a |∂g(x_0)|, gradients beyond those at x_0.
    """

    def __init__(self, rule: Descent, start: Array, lr: float, mixer: Mixer) -> None:
        self.rule, self.lr, self.mixer = rule, lr, mixer
        self.start = start
        self.gradient = self._largest(rule.gradient(start))  # (runs,) or ()
        if not np.isfinite(self.gradient).all():
            raise NonFiniteError(
                "problem.inner_grad(x, lam) must return finite values at the start of training, got NaN or infinite values"
            )
        self.reach = self._largest(start) + lr * self.gradient
        self.step = 0  # of the last look
        self.mean_gradient: np.ndarray | None = None  # of the start, once a tolerance asks for it

    def widen(self, lr: float) -> None:
        """Allow for steps of rate `lr`, the largest so far: how far parameters may be expected to move."""
        if lr > self.lr:
            self.lr = lr
            self.reach = np.maximum(self.reach, self._largest(self.start) + lr * self.gradient)

    def check(self, z: Array, gradient: Array, step: int, rate: float) -> None:
        """Stop training that has left the range of sense; `rate` is the largest learning rate used so far."""
        self.step = step
        size, slope = self._largest(z), self._largest(gradient)
        if step == 1:  # a mini-batch may have a gradient where the full batch has none
            self.gradient = np.maximum(self.gradient, slope)
            self.reach = np.maximum(self.reach, size)
        grown = (size > GROWTH_LIMIT * self.reach) & (slope > GROWTH_LIMIT * self.gradient)
        if np.any(grown | ~np.isfinite(size) | ~np.isfinite(slope)):
            self._raise(f"parameters up to {np.max(size):.2g} after {step} steps, learning rate {rate:g}")

    def finalize(self, x: Array, rate: float) -> tuple[float | np.ndarray, float | np.ndarray]:
        """max_i ‖x_i − x̄‖ and ‖mean_i ∂g_i(x̄)‖ on the host; refuses training that ends far off.

        `rate` is the largest learning rate used.
        """
        xp, channel = array_namespace(x), self.mixer.channel
        mean = xp.broadcast_to(channel.mean_over_clients(x), x.shape)
        gap = channel.max_over_clients(row_norms(x - mean))
        norm = self._mean_gradient(x)
        if not np.all(np.isfinite(gap) & np.isfinite(norm)):
            self._raise(f"parameters up to {np.max(self._largest(x)):.2g}, whose norms are beyond floating point")
        moved = self._largest(x) > CLEAR_GROWTH * self.reach
        if np.any(moved & (norm > CLEAR_GROWTH * self.gradient)):
            self._raise(
                f"the mean gradient is {np.max(norm):.2g} at its end, clients' gradients were at most "
                f"{np.max(self.gradient):.2g} at its start, learning rate {rate:g}"
            )
        return (gap, norm) if x.ndim > 2 else (float(gap), float(norm))

    def reached(self, z: Array, tol: float) -> bool:
        """Whether the mean gradient is at most tol times that of the start, in all runs."""
        return bool(np.all(self._mean_gradient(z) <= tol * self._first_mean_gradient()))

    def warn_unless_reached(self, norm: float | np.ndarray, tol: float, turns: str) -> None:
        """Warn unless the mean gradient at the end, of this `norm`, is at most tol times that of the start."""
        first = self._first_mean_gradient()
        if not np.all(norm <= tol * first):
            left = np.max(norm / np.where(first > 0, first, np.finfo(np.float64).tiny))
            warn_unmet(
                f"tol={tol:g} was not met in {turns}, where {left:.2g} of the first mean gradient is left; needed more "
                "of them, or another learning rate"
            )

    def _first_mean_gradient(self) -> np.ndarray:
        if self.mean_gradient is None:
            self.mean_gradient = self._mean_gradient(self.start)
        return self.mean_gradient

    def _mean_gradient(self, x: Array) -> np.ndarray:
        """‖mean_i ∂g_i(x̄)‖ on full batches."""
        xp, channel = array_namespace(x), self.mixer.channel
        mean = xp.broadcast_to(channel.mean_over_clients(x), x.shape) + xp.zeros_like(x)
        row = channel.mean_over_clients(self.rule.gradient(mean))  # (..., 1, d)
        return channel.max_over_clients(row_norms(row))

    def _largest(self, a: Array) -> np.ndarray:
        xp = array_namespace(a)
        return self.mixer.channel.max_over_clients(xp.max(xp.abs(a), axis=-1))

    def _raise(self, what: str) -> None:
        added = {name: getattr(self.rule, name) for name in ("momentum", "weight_decay", "prox")}
        named = "".join(f", {name}={value:g}" for name, value in added.items() if value)
        error = DivergenceError(f"training diverged: {what}{named}: {self._remedy()}")
        error.traffic, error.steps = self.mixer.channel.traffic, self.step
        raise error

    def _remedy(self) -> str:
        """A smaller rate helps unless the mean inner cost falls without end."""
        problem = self.rule.problem
        if not callable(optional(problem.wrapped, "linearize")):
            return "take a smaller lr"
        start, lam = (a[(*(0,) * (a.ndim - 2), ...)] for a in (self.start, self.rule.lam))
        linearization = problem.linearize(start, lam)
        low, high = range_of_mean(self.mixer.channel, linearization, start)
        low, high = low + self.rule.weight_decay, high + self.rule.weight_decay
        if not np.isfinite(low + high):
            return "the problem's hvp returns NaN or infinite values at the start"
        if low < 0:
            return (
                f"the mean Hessian at the start has the eigenvalue {low:.3g}, so no learning rate may help: is lam, or "
                "the problem, such that the inner cost has no minimum?"
            )
        limit = f" (2 / lambda_max is {2 / high:.3g} at the start)" if high > 0 else ""
        if limit and self.lr < 2 / high and self.mixer.averagings[0].conserves:
            limit = (
                f"{limit[:-1]}, but steps are lr / ω: long where Push-Sum's weights ω are small, as those of clients "
                "are that hear little for a while), or graphs that connect clients better"
            )
        return f"take a smaller lr{limit}"


# ---- The loop


class Averager(Protocol):
    """What the loop needs of an averaging; `Mixer` is one."""

    def average(self, u: Array) -> Array: ...

    def carry(self, ubar: Array) -> Array: ...

    def debias(self, u: Array) -> Array: ...


class LocalUpdate(Protocol):
    """What clients compute between two averages."""

    rates: Any  # `Rates`, of all steps
    rate: float  # of the last step
    last: Array  # the direction of the last step

    def __call__(self, turn: int, z: Array) -> Array:
        """δ(z) of step `turn` = 1, 2, ...; clients do not communicate in it."""
        ...


@dataclass
class TrainingLoop:
    """`turns` local updates and averages in alternation, with a check for divergence every `every` of them."""

    mixer: Averager | Mixer
    work: LocalUpdate
    monitor: TrainingMonitor
    turns: int
    average_first: bool
    every: int
    tol: float | None = None
    tolerance_every: int = 1
    callback: Callable[[int, Array], object] | None = None
    reported: int = field(default=0, init=False)  # turns that the bar has been told of
    largest_rate: float = field(default=0.0, init=False)  # used so far: where training diverges, the likely cause

    def fit(self, z: Array, shown_as: str | None, method: Any) -> Fit:
        """Train from z, with a progress bar of the name `shown_as`; None for no bar."""
        mixer = self.monitor.mixer
        shown = bar(self.turns, shown_as or "", shown_as is not None and mixer.channel.clients.start == 0)
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows is reported as divergence
                x, done, stopped = self._run(z, shown)
        finally:
            shown.close()
        self.monitor.widen(self.work.rates.largest)
        gap, norm = self.monitor.finalize(x, self.largest_rate)
        if self.tol is not None and stopped == "steps":
            self.monitor.warn_unless_reached(norm, self.tol, f"{done} steps")
        return Fit(
            x=x,
            consensus_gap=gap,
            grad_norm=norm,
            steps=done,
            traffic=mixer.record_traffic().per_run(tuple(x.shape[:-2])),
            stopped=stopped,
            tol=self.tol,
            rates=self.work.rates.until(done),
            milestones=self.work.rates.milestones,
            method=method,
        )

    def _run(self, z: Array, shown: Bar) -> tuple[Array, int, str]:
        """z after the last turn, how many turns were made, and why it ended."""
        x = z  # sums; z = x / ω
        for s in range(1, self.turns + 1):
            if self.average_first:
                mixed = self.mixer.average(x)
                x = self.mixer.carry(mixed) + self.work(s, mixed)
                z = self.mixer.debias(x)
            else:
                z = self.mixer.average(x + self.work(s, z))
                x = self.mixer.carry(z)
            why = self._check(s, z, shown)
            if why is not None:
                return z, s, why
        return z, self.turns, "steps"

    def _check(self, s: int, z: Array, shown: Bar) -> str | None:
        """Why training ends after turn s, None if it goes on."""
        self.largest_rate = max(self.largest_rate, self.work.rate)
        if not s % self.every or s in (1, self.turns):
            self.monitor.widen(self.work.rates.largest)
            self.monitor.check(z, self.work.last, s, self.largest_rate)
            shown.update(s - self.reported)
            self.reported = s
        if self.tol is not None and not s % self.tolerance_every and self.monitor.reached(z, self.tol):
            return "tolerance"
        if self.callback is not None:
            enough = validation.returned_bool("callback", self.callback(s, array_namespace(z).asarray(z, copy=True)))
            if self.monitor.mixer.channel.any_rank(enough):
                return "callback"
        return None


# ---- Methods


VARIANTS = ("assran", "nedic")
CHECK_EVERY = 256  # steps between two checks for divergence
TOLERANCE_EVERY = 32  # steps between two checks of the tolerance


class TrainingMethod(ABC):
    """How the inner problem min_x Σ_k g_k(x, λ_k) is solved. A method holds its settings; `hgp.train` runs it."""

    @abstractmethod
    def run(self, problem: FullProblem, lam: Array, net: Any, x0: Array | None, tol: float | None,
            callback: Callable[[int, Array], object] | None, progress: bool) -> Fit:  # fmt: skip
        """Train; arguments are those of `train`, already checked, except for `net`."""


@dataclass(frozen=True)
class SGP(TrainingMethod):
    """Stochastic gradient push: gradient steps on what Push-Sum has mixed so far.

    With z = x / ω and the learning rate a, step s uses graph s of the network:

        "assran":  x ← W_s (x − a ∂g(z)),  ω ← W_s ω
        "nedic":   x ← W_s x,  ω ← W_s ω,  z = x / ω,  x ← x − a ∂g(z)

    With momentum m and weight decay c, each client's own b ← m b + ∂g(z) + c z replaces ∂g(z).

    If the links of the network lose or delay messages (`networks.Unreliable`), x and ω use running sums that are never
    reset, `RobustPushSum(net, 1, debias="conserve")`: the sum of all parameters, including those in flight, then moves
    by gradients alone. A client steps by a / ω_i, and ω_i falls with what is in flight, so large delays need a smaller
    a; a warning says so.

    Parameters
    ----------
    steps : number of steps, one round of communication each.
    lr : a, a number or a function of the step (from 0). If None the clients find it: each takes the largest
        |eigenvalue| of its Hessian at the start by Lanczos, the network computes the maximum L over clients (which
        counts as traffic), and a = 1 / (1.05 L + c).
    milestones : steps at which a is multiplied by `decay`: step numbers from 0, or fractions of the steps, such as
        (0.6, 0.8).
    batches : None for full batches, a size, or `hgp.MiniBatches`. Several seeds train one run each.
    mode : how mixing matrices are applied, as in `PushSum`.

    Examples
    --------
    >>> hgp.training.SGP(steps=300, lr=0.5, momentum=0.9)
    SGP(steps=300, lr=0.5, momentum=0.9)
    """

    steps: int = 5000
    lr: Rate | None = None
    milestones: Sequence[float] = ()
    _: KW_ONLY
    variant: str = "assran"
    decay: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    batches: MiniBatches | int | None = None
    mode: str = "auto"

    def __post_init__(self) -> None:
        validation.choice("variant", self.variant, VARIANTS)
        validation.choice("mode", self.mode, MODES)
        check_settings(self, "steps")
        if self.batches is not None and (self.batches.share or self.batches.full_jacobian):  # type: ignore[union-attr]
            raise ValueError(f"batches must not set share or full_jacobian in training, got {self.batches!r}")

    __repr__ = changed_settings

    def run(self, problem: FullProblem, lam: Array, net: Network, x0: Array | None, tol: float | None,
            callback: Callable[[int, Array], object] | None, progress: bool) -> Fit:  # fmt: skip
        batches = read_batches(self.batches)
        several = batches is not None and isinstance(batches.seed, tuple)
        lam = one_per_seed(lam, batches.seeds) if several else lam  # type: ignore[union-attr]
        z = read_start(problem, lam, x0)
        mixer = start_averaging([_averaging(net, self.mode, problem)], problem.n_clients, z, self.steps)
        mixer.channel.check_client_ids(problem.clients)
        compared = {"method": without_function(self), "tol": tol, "callback": callback is not None}
        mixer.channel.check_same_on_all_ranks("hgp.train", **compared, dim_lam=problem.dim_lam)
        lr = find_rate(problem, lam, z, mixer.channel, self.weight_decay) if self.lr is None else self.lr
        rates = Rates(self.steps, lr, self.milestones, self.decay)
        if callable(lr):
            mixer.channel.check_same_on_all_ranks("hgp.train", rates=rates.sample())
        rule = Descent(problem, lam, self.momentum, self.weight_decay)
        sampler = None if batches is None else BatchSampler(problem, batches, self.steps, lam, runs=several)
        work, monitor = GradientStep(rule, rates, sampler), TrainingMonitor(rule, z, rates.largest, mixer)
        loop = TrainingLoop(mixer, work, monitor, self.steps, self.variant == "nedic", CHECK_EVERY, tol,
                            TOLERANCE_EVERY, callback)  # fmt: skip
        return loop.fit(z, "sgp" if progress else None, self)


def find_rate(problem: FullProblem, lam: Array, x: Array, channel: Channel, weight_decay: float) -> float:
    """1 / (L + weight_decay), with L the largest |eigenvalue| of a client's Hessian at x, in any run."""
    if not callable(optional(problem.wrapped, "linearize")):
        raise ValueError("lr must be given for a problem without `linearize`: it follows from products with Hessians")
    points = zip(x.reshape(-1, *x.shape[-2:]), lam.reshape(-1, *lam.shape[-2:]), strict=True)
    return min(safe_step_size("lr", channel, problem.linearize(*point), point[0], weight_decay) for point in points)


def train(
    problem: Problem,
    lam: Array,
    net: Network | Averaging,
    method: TrainingMethod,
    *,
    x0: Array | None = None,
    tol: float | None = None,
    callback: Callable[[int, Array], object] | None = None,
    progress: bool = False,
) -> Fit:
    """Minimise Σ_k g_k(x, λ_k) over a network.

    Training that diverges raises DivergenceError. Training that ends before it meets `tol` gives a ConvergenceWarning.

    Parameters
    ----------
    problem : client costs; see `hgp_ref.problems.Problem`.
    lam : (n, d_λ), or (runs, n, d_λ) to train for several λ at once.
    net : the network; for `LocalRounds`, an averaging.
    method : `hgp.training.SGP(...)` or `hgp.training.LocalRounds(...)`.
    x0 : (n, d_x), zeros by default.
    tol : stop once ‖mean_i ∂g_i(x̄)‖ on full batches has fallen to this fraction of its value at the start. It is
        measured every 32 steps, by an observer of all clients.
    callback : called as callback(step, z) after each step; a true result stops the training.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> method = hgp.training.SGP(steps=500, lr=0.5)
    >>> fit = hgp.train(problem, lam, hgp.networks.FullyConnected(3), method)
    >>> bool(np.abs(fit.x - hgp.exact.inner_solution(problem, lam)).max() < 1e-3)
    True
    """
    problem = as_problem(problem, needs=("inner_grad",))
    check_lam(problem, lam, x0)
    validation.instance("method", method, TrainingMethod)
    tol = None if tol is None else validation.positive("tol", tol)
    progress = validation.boolean("progress", progress)
    if callback is not None:
        validation.function("callback", callback)
    return method.run(problem, detached(lam), net, x0, tol, callback, progress)


def sgp(
    problem: Problem,
    lam: Array,
    net: Network,
    steps: int = 5000,
    lr: Rate | None = None,
    milestones: Sequence[float] = (),
    batches: MiniBatches | int | None = None,
    *,
    x0: Array | None = None,
    tol: float | None = None,
    callback: Callable[[int, Array], object] | None = None,
    progress: bool = False,
) -> Fit:
    """Minimise Σ_k g_k(x, λ_k) by stochastic gradient push: short for `train` with `SGP(steps, lr, milestones, ...)`.

    `hgp.training.SGP` explains these arguments and has further ones (variant, momentum, ...).

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> fit = hgp.sgp(problem, lam, hgp.networks.FullyConnected(3), steps=500)
    >>> bool(np.abs(fit.x - hgp.exact.inner_solution(problem, lam)).max() < 1e-3)
    True
    """
    method = SGP(steps, lr, milestones, batches=batches)
    return train(problem, lam, net, method, x0=x0, tol=tol, callback=callback, progress=progress)


def _averaging(net: Network, mode: str, problem: FullProblem) -> PushSum:
    """Push-Sum whose weights and sums run on; with running sums where links lose or delay messages."""
    averaging = push_sum_for(net, 1, debias="conserve", mode=mode)
    check_clients(net, averaging.connect(), problem.n_clients)
    if isinstance(averaging, RobustPushSum):
        warnings.warn(
            "sgp: the links of net lose or delay messages; training goes over RobustPushSum with "
            "debias='conserve' in place of PushSum, which would lose parameters. While mass is under way weights are "
            "small and steps lr / weight large: it may take a smaller lr",
            RuntimeWarning,
            stacklevel=outside(),
        )
    return averaging


class GradientStep:
    """δ(z) = −a b, one mini-batch a turn."""

    def __init__(self, rule: Descent, rates: Rates, batches: BatchSampler | None) -> None:
        self.rule, self.rates, self.batches = rule, rates, batches
        self.last: Array = None

    def __call__(self, turn: int, z: Array) -> Array:
        batch = None if self.batches is None else self.batches.at(turn - 1)[0]
        self.rate, self.last = self.rates[turn - 1], self.rule.direction(z, batch, self.last)
        return -self.rate * self.last
