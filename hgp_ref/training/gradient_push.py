"""`train`, and stochastic gradient push (SGP), which solves the inner problem over directed networks.

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, is_dataclass, replace
from fractions import Fraction
from itertools import chain, islice, repeat
from typing import Any, Protocol

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, detached, device
from hgp_ref.errors import DivergenceError, NonFiniteError, outside, warn_unmet
from hgp_ref.methods.divergence import GROWTH_LIMIT, largest_entry
from hgp_ref.methods.spectrum import range_of_mean, row_norms, safe_step_size
from hgp_ref.mixing import Averaging, Channel, Mixer, PushSum, RobustPushSum, Traffic, push_sum_for, start_averaging
from hgp_ref.mixing.simulated import MODES
from hgp_ref.networks import Network
from hgp_ref.problems import Problem, as_problem
from hgp_ref.problems.base import FullProblem, check_lam, optional
from hgp_ref.problems.batches import BatchSampler, MiniBatches, read_batches
from hgp_ref.progress import Bar, bar
from hgp_ref.results import Result
from hgp_ref.validation import (
    Boolean,
    Choice,
    Count,
    Function,
    Instance,
    Nonnegative,
    Number,
    Optional,
    Positive,
    Rule,
    checked,
    short,
)

Rate = float | Callable[[int], float]
Callback = Callable[[int, Array], object]

VARIANTS = ("assran", "nedic")
CHECK_EVERY = 256  # steps between two checks for divergence
TOLERANCE_EVERY = 32  # steps between two checks of the tolerance
CLEAR_GROWTH = 10.0  # growth of parameters and mean gradient, at the end, that counts as divergence


class Momentum(Number):
    """A number in [0, 1)."""

    accepted = (0, 0.9)
    refused = (*Number.refused, 1.0, -0.1)

    def check(self, name: str, value: Any) -> float:
        momentum = validation.number(name, value, "a number in [0, 1)")
        if not 0 <= momentum < 1:
            validation.wrong_value(name, value, "a number in [0, 1)")
        return momentum


STEP_SETTINGS: dict[str, Rule] = {"decay": Positive(), "momentum": Momentum(), "weight_decay": Nonnegative()}


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

    @property
    def _estimated_rate(self) -> bool:
        return getattr(self.method, "lr", 0) is None and self.rates.size > 0

    def _summary(self) -> list[str]:
        n, d = self.x.shape[-2:]
        lead = self.x.shape[:-2]
        runs = f", {int(np.prod(lead))} runs" if lead else ""
        return validation.table(
            f"parameters of {n} clients, {d} numbers each{runs}: {self.steps} steps of "
            f"{validation.cut(repr(self.method), 120)}",
            learning_rate=f"{self.rates[0]:.3g}, found by the clients" if self._estimated_rate else "",
            mean_gradient=validation.largest(self.grad_norm),
            consensus_gap=validation.largest(self.consensus_gap),
            stopped=validation.stop_reason(self.stopped, self.tol, True if self.stopped == "tolerance" else None),
            traffic=self.traffic.one_line(),
        )


class TrainingMethod(ABC):
    """How the inner problem min_x Σ_k g_k(x, λ_k) is solved. A method holds its settings; `hgp.train` runs it."""

    @abstractmethod
    def run(self, problem: FullProblem, lam: Array, net: Any, x0: Array | None, tol: float | None,
            callback: Callback | None, progress: bool) -> Fit:  # fmt: skip
        """Train. The arguments are those of `train`, checked except for `net`."""

    def __repr__(self) -> str:
        if not is_dataclass(self):
            return object.__repr__(self)
        changed = []
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not f.default and not (type(value) is type(f.default) and value == f.default):
                changed.append(f"{f.name}={short(value)}")
        return f"{type(self).__name__}({', '.join(changed)})"


@checked(
    method=Instance(TrainingMethod),
    tol=Optional(Positive()),
    callback=Optional(Function("step", "z")),
    progress=Boolean(),
)
def train(
    problem: Problem,
    lam: Array,
    net: Network | Averaging,
    method: TrainingMethod,
    *,
    x0: Array | None = None,
    tol: float | None = None,
    callback: Callback | None = None,
    progress: bool = False,
) -> Fit:
    """Minimise Σ_k g_k(x, λ_k) over a network.

    Training that diverges raises DivergenceError. Training that ends before it meets `tol` gives a ConvergenceWarning.

    Parameters
    ----------
    problem : client costs; see `hgp_ref.problems.Problem`.
    lam : (n, d_λ), or (runs, n, d_λ) to train for several λ at once.
    net : the network; for `LocalRounds`, an averaging.
    method : `hgp.training.NewtonTracking(...)`, `SGP(...)` or `LocalRounds(...)`.
    x0 : (n, d_x), zeros by default.
    tol : stop once ‖mean_i ∂g_i(x̄)‖ on full batches has fallen to this fraction of its value at the start. An observer
        of all clients measures it, for `SGP` every 32 steps.
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
    check_lam(problem, lam, run_axes=True)
    if x0 is not None:
        validation.same_kind(lam=lam, x0=x0)
    return method.run(problem, detached(lam), net, x0, tol, callback, progress)


@checked(steps=Count(), variant=Choice(*VARIANTS), mode=Choice(*MODES), **STEP_SETTINGS)
@dataclass(frozen=True, repr=False)
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
        counts as traffic), and a = 1 / (1.05 L + c). Steps of z are a / ω_i, so that networks with small weights ω_i
        (sparse directed graphs) may need a smaller one; training that diverges raises an error.
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
        read_settings(self, self.steps)
        if self.batches is not None and (self.batches.share or self.batches.full_jacobian):  # type: ignore[union-attr]
            raise ValueError(f"batches must not set share or full_jacobian in training, got {self.batches!r}")

    def run(self, problem: FullProblem, lam: Array, net: Network, x0: Array | None, tol: float | None,
            callback: Callback | None, progress: bool) -> Fit:  # fmt: skip
        batches: MiniBatches | None = self.batches  # type: ignore[assignment]  # read by __post_init__
        several = batches is not None and isinstance(batches.seed, tuple)
        lam = one_per_seed(lam, batches.seeds) if several else lam  # type: ignore[union-attr]
        z = read_start(problem, lam, x0)
        mixer = start_averaging([_averaging(net, self.mode, problem)], problem.n_clients, z, self.steps)
        channel = mixer.channel
        channel.check_client_ids(problem.clients)
        settings = {"method": without_function(self), "tol": tol, "callback": callback is not None}
        channel.check_same_on_all_ranks("hgp.train", **settings, dim_lam=problem.dim_lam)
        rates = read_rates(self, self.steps, problem, lam, z, channel, self.weight_decay)
        gradient = LocalGradient(problem, lam, self.momentum, self.weight_decay)
        sampler = None if batches is None else BatchSampler(problem, batches, self.steps, lam, runs=several)
        update, monitor = GradientStep(gradient, rates, sampler), TrainingMonitor(gradient, z, mixer)
        average_first = self.variant == "nedic"
        loop = TrainingLoop(
            mixer, update, monitor, self.steps, average_first, CHECK_EVERY, tol, TOLERANCE_EVERY, callback
        )
        return loop.fit(z, "sgp" if progress else None, self)


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
    callback: Callback | None = None,
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


def read_rates(
    method: Any, steps: int, problem: FullProblem, lam: Array, x: Array, channel: Channel, added: float
) -> Rates:
    """The learning rates of `steps` steps of a method, found by the clients if its `lr` is None.

    `added` is what weight decay and a proximal term add to the eigenvalues of Hessians.
    """
    lr = find_rate(problem, lam, x, channel, added) if method.lr is None else method.lr
    rates = Rates(steps, lr, method.milestones, method.decay)
    if callable(lr):
        channel.check_same_on_all_ranks("hgp.train", rates=rates.sample())
    return rates


def find_rate(problem: FullProblem, lam: Array, x: Array, channel: Channel, added: float) -> float:
    """1 / (L + added), with L the largest |eigenvalue| of a client's Hessian at x, in any run; it counts as traffic."""
    if not callable(optional(problem.wrapped, "linearize")):
        raise ValueError("lr must be given for a problem without `linearize`: it follows from products with Hessians")
    points = zip(x.reshape(-1, *x.shape[-2:]), lam.reshape(-1, *lam.shape[-2:]), strict=True)
    return min(safe_step_size("lr", channel, problem.linearize(*point), point[0], added) for point in points)


def _averaging(net: Network, mode: str, problem: FullProblem) -> PushSum:
    """Push-Sum that conserves sums; with running sums if links lose or delay messages."""
    averaging = push_sum_for(net, 1, debias="conserve", mode=mode)
    check_clients(net, problem.n_clients)
    if isinstance(averaging, RobustPushSum):
        warnings.warn(
            "sgp: the links of net lose or delay messages, so training uses RobustPushSum(debias='conserve'); PushSum "
            "would lose parameters. Weights are small while messages are in flight, and steps are lr / weight: a "
            "smaller lr may be needed",
            RuntimeWarning,
            stacklevel=outside(),
        )
    return averaging


# The loop -------------------------------------------------------------------------------------------------------------


class Averager(Protocol):
    """What the loop needs of an averaging; `Mixer` is one."""

    def average(self, u: Array) -> Array: ...

    def carry(self, ubar: Array) -> Array: ...

    def debias(self, u: Array) -> Array: ...


class LocalUpdate(Protocol):
    """What clients compute between two averages."""

    rates: Any  # `Rates`, of all rounds
    rate: float  # of the last round
    last: Array  # the direction of the last step

    def __call__(self, round: int, z: Array) -> Array:
        """δ(z) of round 1, 2, ...; clients do not communicate in it."""
        ...


@dataclass
class TrainingLoop:
    """Local updates and averages in alternation, with a check for divergence every `check_every` rounds."""

    mixer: Averager | Mixer
    update: LocalUpdate
    monitor: TrainingMonitor
    rounds: int
    average_first: bool
    check_every: int
    tol: float | None = None
    tolerance_every: int = 1
    callback: Callback | None = None
    rates: list[float] = field(default_factory=list, init=False)  # of the rounds made
    stopped: str = field(default="steps", init=False)

    def fit(self, z: Array, label: str | None, method: Any) -> Fit:
        """Train from z, with a progress bar named `label`; None for no bar."""
        mixer = self.monitor.mixer
        shown = bar(self.rounds, label or "", label is not None and mixer.channel.clients.start == 0)
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported as divergence
                x = self._iterate(z, shown)
        finally:
            shown.close()
        steps = len(self.rates)
        gap, norm = self.monitor.finalize(x)
        if self.tol is not None and self.stopped == "steps":
            self.monitor.warn_unless_reached(norm, self.tol, steps)
        return Fit(
            x=x,
            consensus_gap=gap,
            grad_norm=norm,
            steps=steps,
            traffic=mixer.record_traffic().per_run(tuple(x.shape[:-2])),
            stopped=self.stopped,
            tol=self.tol,
            rates=np.array(self.rates),
            milestones=self.update.rates.milestones,
            method=method,
        )

    def _iterate(self, z: Array, shown: Bar) -> Array:
        """z after the last round."""
        mixer, update, reported = self.mixer, self.update, 0
        x = z  # z = x / ω if the averaging conserves sums
        for s in range(1, self.rounds + 1):
            if self.average_first:
                mixed = mixer.average(x)
                x = mixer.carry(mixed) + update(s, mixed)
                z = mixer.debias(x)
            else:
                z = mixer.average(x + update(s, z))
                x = mixer.carry(z)
            self.rates.append(update.rate)
            if not s % self.check_every or s in (1, self.rounds):
                self.monitor.check(z, update.last, s, max(self.rates[reported:]))
                shown.update(s - reported)
                reported = s
            if self.tol is not None and not s % self.tolerance_every and self.monitor.reached(z, self.tol):
                self.stopped = "tolerance"
            elif self.callback is not None:
                stop = validation.returned_bool("callback", self.callback(s, array_namespace(z).asarray(z, copy=True)))
                if self.monitor.mixer.channel.any_rank(stop):
                    self.stopped = "callback"
            if self.stopped != "steps":
                break
        self.monitor.widen(max(self.rates[reported:], default=0.0))
        return z


class GradientStep:
    """δ(z) = −rate b, one mini-batch per round."""

    def __init__(self, gradient: LocalGradient, rates: Rates, batches: BatchSampler | None) -> None:
        self.gradient, self.rates, self.batches = gradient, rates, batches
        self.last: Array = None
        self._rates = iter(rates)

    def __call__(self, round: int, z: Array) -> Array:
        batch = None if self.batches is None else self.batches.at(round - 1)[0]
        self.rate, self.last = next(self._rates), self.gradient.direction(z, batch, self.last)
        return -self.rate * self.last


@checked(momentum=Momentum(), weight_decay=Nonnegative(), prox=Nonnegative())
@dataclass(frozen=True)
class LocalGradient:
    """The directions b of a client's steps on `problem` at `lam`."""

    problem: FullProblem
    lam: Array
    momentum: float = 0.0
    weight_decay: float = 0.0
    prox: float = 0.0
    _gradient: Callable[..., Array] = field(init=False, repr=False)  # ∂_x g at lam

    def __post_init__(self) -> None:
        object.__setattr__(self, "_gradient", self.problem.gradient_at(self.lam))

    def direction(self, z: Array, batch: Array | None, b: Array | None, anchor: Array | None = None) -> Array:
        """The next b, from the last one (None before the first step).  # (..., n, d_x)"""
        d = self._gradient(z, batch=batch)
        if self.weight_decay:
            d = d + self.weight_decay * z
        if self.prox and anchor is not None:
            d = d + self.prox * (z - anchor)
        return d if b is None or not self.momentum else self.momentum * b + d


# Divergence -----------------------------------------------------------------------------------------------------------


class TrainingMonitor:
    """Detects divergence by max |x| and max |∂g|.

    Parameters alone may grow as far as the solution is away, and gradients alone grow from a start at the solution.
    Training has diverged if both have grown by GROWTH_LIMIT: parameters beyond |x_0| + a |∂g(x_0)| with the largest
    learning rate a so far, gradients beyond those at x_0.
    """

    rate_name, advice = "learning rate", "use more steps or another learning rate"

    def __init__(self, gradient: LocalGradient, start: Array, mixer: Mixer) -> None:
        self.gradient, self.start, self.mixer = gradient, start, mixer
        self.grad_size = self._largest(gradient.direction(start, None, None))  # (runs,) or ()
        if not np.isfinite(self.grad_size).all():
            raise NonFiniteError(
                "problem.inner_grad(x, lam) must return finite values at the start of training, got NaN or infinite "
                "values"
            )
        self.reach = self.start_size = self._largest(start)
        self.rate = 0.0  # the largest so far
        self.step = 0  # of the last check
        self.mean_gradient: np.ndarray | None = None  # at the start, once a tolerance needs it

    def widen(self, rate: float) -> None:
        """Allow for steps of learning rate `rate`."""
        if rate > self.rate:
            self.rate = rate
            self.reach = np.maximum(self.reach, self.start_size + rate * self.grad_size)

    def check(self, z: Array, gradient: Array, step: int, rate: float) -> None:
        """Raise DivergenceError if training has diverged; `rate` is the largest since the last check."""
        self.widen(rate)
        self.step = step
        size, slope = self._largest(z), self._largest(gradient)
        if step == 1:  # a mini-batch may have a gradient where the full batch has none
            self.grad_size = np.maximum(self.grad_size, slope)
            self.reach = np.maximum(self.reach, size)
        grown = (size > GROWTH_LIMIT * self.reach) & (slope > GROWTH_LIMIT * self.grad_size)
        if np.any(grown | ~np.isfinite(size) | ~np.isfinite(slope)):
            self._raise(f"parameters up to {np.max(size):.2g} after {step} steps, {self.rate_name} {self.rate:g}")

    def finalize(self, x: Array) -> tuple[float | np.ndarray, float | np.ndarray]:
        """max_i ‖x_i − x̄‖ and ‖mean_i ∂g_i(x̄)‖ at the end; raises DivergenceError if they show divergence."""
        xp, channel = array_namespace(x), self.mixer.channel
        mean = xp.broadcast_to(channel.mean_over_clients(x), x.shape)
        gap = channel.max_over_clients(row_norms(x - mean))
        norm = self._mean_gradient(x)
        size = self._largest(x)
        if not np.all(np.isfinite(gap) & np.isfinite(norm)):
            self._raise(f"parameters up to {np.max(size):.2g}, whose norms are beyond floating point")
        if np.any((size > CLEAR_GROWTH * self.reach) & (norm > CLEAR_GROWTH * self.grad_size)):
            self._raise(
                f"the mean gradient is {np.max(norm):.2g} at its end, clients' gradients were at most "
                f"{np.max(self.grad_size):.2g} at its start, {self.rate_name} {self.rate:g}"
            )
        return (gap, norm) if x.ndim > 2 else (float(gap), float(norm))

    def reached(self, z: Array, tol: float) -> bool:
        """Whether the mean gradient is at most tol times that of the start, in all runs."""
        return bool(np.all(self._mean_gradient(z) <= tol * self._first_mean_gradient()))

    def warn_unless_reached(self, norm: float | np.ndarray, tol: float, steps: int) -> None:
        """Warn unless the norm of the mean gradient at the end is at most tol times that of the start."""
        first = self._first_mean_gradient()
        if not np.all(norm <= tol * first):
            ratio = np.max(norm / np.where(first > 0, first, np.finfo(np.float64).tiny))
            warn_unmet(
                f"tol={tol:g} was not met in {steps} steps: the mean gradient is still {ratio:.2g} times the first; "
                f"{self.advice}"
            )

    def _first_mean_gradient(self) -> np.ndarray:
        if self.mean_gradient is None:
            self.mean_gradient = self._mean_gradient(self.start)
        return self.mean_gradient

    def _mean_gradient(self, x: Array) -> np.ndarray:
        """‖mean_i ∂g_i(x̄)‖ on full batches."""
        xp, channel = array_namespace(x), self.mixer.channel
        mean = xp.broadcast_to(channel.mean_over_clients(x), x.shape) + xp.zeros_like(x)
        row = channel.mean_over_clients(self.gradient.direction(mean, None, None))  # (..., 1, d)
        return channel.max_over_clients(row_norms(row))

    def _largest(self, a: Array) -> np.ndarray:
        return largest_entry(self.mixer.channel, a)

    def _raise(self, what: str) -> None:
        settings = {name: getattr(self.gradient, name) for name in ("momentum", "weight_decay", "prox")}
        named = "".join(f", {name}={value:g}" for name, value in settings.items() if value)
        error = DivergenceError(f"training diverged: {what}{named}: {self._remedy()}")
        error.traffic, error.steps = self.mixer.channel.traffic, self.step
        raise error

    def _remedy(self) -> str:
        """A smaller learning rate helps unless the mean inner cost has no minimum."""
        problem, decay = self.gradient.problem, self.gradient.weight_decay
        if not callable(optional(problem.wrapped, "linearize")):
            return "take a smaller lr"
        start, lam = (a[(*(0,) * (a.ndim - 2), ...)] for a in (self.start, self.gradient.lam))
        low, high = range_of_mean(self.mixer.channel, problem.linearize(start, lam), start)
        low, high = low + decay, high + decay
        if not np.isfinite(low + high):
            return "the problem's hvp returns NaN or infinite values at the start"
        if low < 0:
            return (
                f"the mean Hessian at the start has the eigenvalue {low:.3g}, so no learning rate may help: is lam, or "
                "the problem, such that the inner cost has no minimum?"
            )
        limit = f" (2 / lambda_max is {2 / high:.3g} at the start)" if high > 0 else ""
        if limit and self.rate < 2 / high and self.mixer.averagings[0].conserves:
            limit = (
                f"{limit[:-1]}, but steps are lr / ω, which is large for clients that receive little for a while), or "
                "use graphs that connect clients better"
            )
        return f"take a smaller lr{limit}"


# Settings and arguments -----------------------------------------------------------------------------------------------


def read_settings(method: Any, steps: int) -> None:
    """Check and convert lr, milestones and batches of a training method."""
    milestones = validation.host_array("milestones", method.milestones)
    converted = {"milestones": tuple(milestones.tolist()) if milestones.ndim == 1 else method.milestones}
    if read_milestones(steps, converted["milestones"]) and callable(method.lr):
        raise ValueError(f"milestones={method.milestones!r} and a function lr cannot both be given")
    if method.lr is not None and not callable(method.lr):
        converted["lr"] = validation.positive("lr", method.lr)
    converted["batches"] = read_batches(method.batches)
    for name, value in converted.items():
        object.__setattr__(method, name, value)


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
                raise ValueError(f"milestones={milestones!r} and a function lr cannot both be given")
            return
        self._sorted = sorted(self.milestones)
        decays = validation.positive("decay", decay) ** np.arange(len(self._sorted) + 1)
        self._table = (validation.positive("lr", lr) * decays).tolist()

    def __getitem__(self, step: int) -> float:
        if self._function is None:
            return self._table[bisect_right(self._sorted, step)]
        return validation.positive(f"lr({step})", self._function(step))

    def __iter__(self) -> Iterator[float]:
        if self._function is not None:
            return map(self.__getitem__, range(self.steps))
        counts = np.diff([0, *np.clip(self._sorted, 0, self.steps).tolist(), self.steps]).tolist()
        return chain.from_iterable(map(repeat, self._table, counts))

    def until(self, steps: int) -> np.ndarray:
        """The rates of the first `steps` steps."""
        return np.fromiter(islice(self, steps), dtype=np.float64)

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


def check_clients(net: Network, clients: int) -> None:
    """ValueError unless `net` has as many clients in this process as the problem."""
    local = net.clients.stop - net.clients.start
    if local != clients:
        raise ValueError(f"net must have {clients} clients like the problem, got {local} in {net!r}")


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
        raise ValueError(f"x0 must have shape {shape} or {shape[-2:]} = (n, d_x), got {tuple(x0.shape)}")
    xp = array_namespace(x0)
    return xp.broadcast_to(detached(x0), shape) + xp.zeros_like(detached(x0))
