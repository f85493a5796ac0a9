"""One step of a client: gradient, weight decay, a pull towards an anchor, momentum.

    d = ∂g(z) + c z + μ (z − a),        b ← m b + d,        z ← z − rate b

with the weight decay c, the proximal weight μ and the momentum m (0: d itself). Nothing here meets another client.
"""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, detached, device
from hgp_ref.errors import DivergenceError, NonFiniteError, outside, warn_unmet
from hgp_ref.methods.spectrum import range_of_mean, row_norms
from hgp_ref.mixing import Channel, Mixer, PushSum, RobustPushSum, Traffic, push_sum_for, start_averaging
from hgp_ref.networks import Network
from hgp_ref.philox import MAX_STEP, check_seeds
from hgp_ref.problems import Problem, as_problem
from hgp_ref.problems.base import Normalised, optional
from hgp_ref.problems.batches import MiniBatches
from hgp_ref.progress import Bar, bar
from hgp_ref.results import Result

Rate = float | Callable[[int], float]


@dataclass(frozen=True)
class Descent:
    """The directions b of a client's steps on `problem` at `lam`."""

    problem: Normalised
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
    """m as a Python float; an error unless 0 <= m < 1."""
    checked = validation.number("momentum", momentum, "a number in [0, 1)")
    if not 0 <= checked < 1:
        raise ValueError(f"momentum={momentum!r} given, needed a number in [0, 1)")
    return checked


class Rates:
    """The learning rate of each step from 0 on: lr decay^(milestones passed), or lr(step) for a function.

    Rates are computed as they are asked for: a run may end long before its last step.
    """

    def __init__(self, steps: int, lr: Rate, milestones: Sequence[int] | None, decay: float) -> None:
        self.steps, self._function = steps, lr if callable(lr) else None
        if self._function is not None:
            if milestones is not None:
                raise ValueError(f"milestones={milestones!r} given beside a function lr, needed one of them")
            self.milestones: tuple[int, ...] = ()
            self.largest = max(self.sample().tolist())  # of those asked for so far
            return
        rate = validation.positive("lr", lr)
        if milestones is None:
            milestones = (-(-3 * steps // 5), -(-4 * steps // 5))
        at = validation.host_array("milestones", milestones)
        if at.ndim != 1 or (at.size and at.dtype.kind not in "iu"):
            raise ValueError(f"milestones={milestones!r} given, needed a list of step numbers")
        self.milestones, self._sorted = tuple(at.tolist()), sorted(at.tolist())
        self._table = (rate * validation.positive("decay", decay) ** np.arange(at.size + 1)).tolist()
        passed = bisect_right(self._sorted, 0), bisect_right(self._sorted, steps - 1)
        self.largest = max(self._table[passed[0]], self._table[passed[1]])  # the rate is monotone

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


def read_rates(steps: int, lr: Rate, milestones: Sequence[int] | None, decay: float
               ) -> tuple[tuple[int, ...], np.ndarray]:  # fmt: skip
    """The milestones, and the rates of all steps."""
    rates = Rates(steps, lr, milestones, decay)
    return rates.milestones, rates.until(steps)


# ----------------------------------------------------------------------------------------------------
# Where training starts: λ, x_0 and the network as they are given, looked at.


def check_lam(problem: Normalised, lam: Array, x0: Array | None, run_axes: bool = True) -> None:
    """An error unless λ fits the problem, and x_0 is an array of the same kind."""
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
            f"seed: {len(seeds)} given for lam of shape {tuple(lam.shape)}, needed one for each of its runs"
        )
    xp = array_namespace(lam)
    shape = (len(seeds), *lam.shape[-2:])
    return xp.broadcast_to(lam, shape) + xp.zeros(shape, dtype=lam.dtype, device=device(lam))


def read_start(problem: Normalised, lam: Array, x0: Array | None) -> Array:
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


# ----------------------------------------------------------------------------------------------------
# What training returns.


@dataclass(frozen=True)
class Fit(Result):
    """The trained parameters and what a reader needs to judge and repeat them.

    With a run axis on `lam`, or several seeds, `x` has it too; gap, norm and the fields of `traffic` are arrays then.

    Attributes
    ----------
    x : (n, d_x), each client's debiased parameters.
    consensus_gap : max_i ‖x_i − x̄‖.
    grad_norm : ‖mean_i ∂_x g_i(x̄, λ_i)‖ on full batches, with weight decay: zero at the inner solution.
    steps : how many were done; of local rounds, rounds.
    traffic : what clients sent.
    lr : the rate at the start.
    milestones : where it fell.
    decay : by which factor.
    variant : "assran" or "nedic"; "rounds" of local rounds.
    batch_size : None for full batches.
    seed : of the mini-batches.
    first_batch : where their sequence began; of local rounds, the first epoch.
    tol : the tolerance asked for.
    stopped : "steps", "tolerance" or "callback".
    momentum : of the steps.
    weight_decay : beside what the problem has.
    prox : weight of the pull towards the model of the round.
    rates : of each step or round that was done, (steps,).
    epochs : local epochs of a round; None for gradient push.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> fit = hgp.sgp(problem, hgp.networks.FullyConnected(3), lam, steps=300, lr=0.5)
    >>> fit.x.shape, fit.steps
    ((3, 4), 300)
    """

    x: Array
    consensus_gap: float | np.ndarray
    grad_norm: float | np.ndarray
    steps: int
    traffic: Traffic
    lr: float
    milestones: tuple[int, ...]
    decay: float
    variant: str
    batch_size: int | None
    seed: int | list[int]
    first_batch: int
    tol: float | None
    stopped: str
    momentum: float = 0.0
    weight_decay: float = 0.0
    prox: float = 0.0
    rates: np.ndarray | None = None
    epochs: int | None = None

    def _summary(self) -> list[str]:
        n, d = self.x.shape[-2:]
        lead = self.x.shape[:-2]
        runs = f", {int(np.prod(lead))} runs" if lead else ""
        work = f"{self.steps} steps of gradient push ({self.variant})"
        if self.epochs is not None:
            work = f"{self.steps} rounds of {self.epochs} local epochs"
        return validation.table(
            f"parameters of {n} clients, {d} numbers each{runs}: {work}"
            + ("" if self.batch_size is None else f", mini-batches of {self.batch_size}"),
            mean_gradient=validation.largest(self.grad_norm),
            consensus_gap=validation.largest(self.consensus_gap),
            stopped=validation.stop_reason(self.stopped, self.tol, True if self.stopped == "tolerance" else None),
            traffic=self.traffic.in_words(),
        )


# ----------------------------------------------------------------------------------------------------
# Whether training converges: what grows is reported, with its cause.


GROWTH_LIMIT = 1e8  # parameters and gradients that have both grown by this are not coming back
CLEAR_GROWTH = 10.0  # at the end: parameters and mean gradient beyond this times what they started with


class TrainingWatch:
    """Follows max |x| and max |∂g| from the start of training.

    Parameters alone may grow as far as the solution is away, and gradients alone grow from a start at the solution:
    training has diverged if both have grown, parameters from |x_0| + a |∂g(x_0)|, gradients from those of the start.
    """

    def __init__(self, rule: Descent, start: Array, lr: float, mixer: Mixer) -> None:
        self.rule, self.lr, self.mixer = rule, lr, mixer
        self.start = start
        self.gradient = self._largest(rule.gradient(start))  # (runs,) or ()
        if not np.isfinite(self.gradient).all():
            raise NonFiniteError("problem: inner_grad(x, lam) returned NaN or infinite values at the start of training")
        self.reach = self._largest(start) + lr * self.gradient
        self.step = 0  # of the last look
        self.mean_gradient: np.ndarray | None = None  # of the start, once a tolerance asks for it

    def widen(self, lr: float) -> None:
        """Allow for steps of rate `lr`, the largest so far: how far parameters may be expected to move."""
        if lr > self.lr:
            self.lr = lr
            self.reach = np.maximum(self.reach, self._largest(self.start) + lr * self.gradient)

    def look(self, z: Array, gradient: Array, step: int, rate: float) -> None:
        """Stop training that has left the range of sense; `rate` is the largest learning rate used so far."""
        self.step = step
        size, slope = self._largest(z), self._largest(gradient)
        if step == 1:  # a mini-batch may have a gradient where the full batch has none
            self.gradient = np.maximum(self.gradient, slope)
            self.reach = np.maximum(self.reach, size)
        grown = (size > GROWTH_LIMIT * self.reach) & (slope > GROWTH_LIMIT * self.gradient)
        if np.any(grown | ~np.isfinite(size) | ~np.isfinite(slope)):
            self._raise(f"parameters up to {np.max(size):.2g} after {step} steps, learning rate {rate:g}")

    def conclude(self, x: Array, rate: float) -> tuple[float | np.ndarray, float | np.ndarray]:
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
        if not callable(optional(problem.given, "linearize")):
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


# ----------------------------------------------------------------------------------------------------
# Work and averages by turns: what every training of this package does.
#
# With z = x / ω where an averaging conserves sums, z = x elsewhere, and δ(z) what clients move by on their own,
#
#     work, then average:  x ← Θ̂ (x + δ(z))          Assran's gradient push, FedAvg
#     average, then work:  x ← Θ̂ x,  x ← x + δ(z)    Nedić's
#
# where a gradient step is δ = −a ∂g(z) and a round of local epochs many of them.


class Averager(Protocol):
    """What the alternation needs of an averaging; `Mixer` is one."""

    def average(self, u: Array) -> Array: ...

    def carry(self, ubar: Array) -> Array: ...

    def debias(self, u: Array) -> Array: ...


class Work(Protocol):
    """What clients do between two averages."""

    rates: Any  # `Rates`, of all steps
    rate: float  # of the last step
    last: Array  # the direction of the last step

    def __call__(self, turn: int, z: Array) -> Array:
        """δ(z) of this turn, from 1 on; looks at each client alone."""
        ...


@dataclass
class Alternation:
    """`turns` turns of `work` over `mixer`, watched every `every` turns."""

    mixer: Averager | Mixer
    work: Work
    watch: TrainingWatch
    turns: int
    average_first: bool
    every: int
    tol: float | None = None
    tolerance_every: int = 1
    callback: Callable[[int, Array], object] | None = None
    told: int = field(default=0, init=False)  # turns that the bar has been told of
    largest_rate: float = field(default=0.0, init=False)  # used so far: where training diverges, the likely cause

    def fit(self, z: Array, shown_as: str | None, **settings: Any) -> Fit:
        """Training from z, with a bar of the name `shown_as` where there is one; `settings` are fields of `Fit`."""
        mixer, rule = self.watch.mixer, self.watch.rule
        shown = bar(self.turns, shown_as or "", shown_as is not None and mixer.channel.clients.start == 0)
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows is reported as divergence
                x, done, stopped = self._run(z, shown)
        finally:
            shown.close()
        self.watch.widen(self.work.rates.largest)
        gap, norm = self.watch.conclude(x, self.largest_rate)
        if self.tol is not None and stopped == "steps":
            self.watch.warn_unless_reached(norm, self.tol, f"{done} steps")
        return Fit(
            x=x,
            consensus_gap=gap,
            grad_norm=norm,
            steps=done,
            traffic=mixer.record_traffic().per_run(tuple(x.shape[:-2])),
            stopped=stopped,
            tol=self.tol,
            momentum=rule.momentum,
            weight_decay=rule.weight_decay,
            prox=rule.prox,
            rates=self.work.rates.until(done),
            **settings,
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
            why = self._look(s, z, shown)
            if why is not None:
                return z, s, why
        return z, self.turns, "steps"

    def _look(self, s: int, z: Array, shown: Bar) -> str | None:
        """Why training ends after turn s, None if it goes on."""
        self.largest_rate = max(self.largest_rate, self.work.rate)
        if not s % self.every or s in (1, self.turns):
            self.watch.widen(self.work.rates.largest)
            self.watch.look(z, self.work.last, s, self.largest_rate)
            shown.update(s - self.told)
            self.told = s
        if self.tol is not None and not s % self.tolerance_every and self.watch.reached(z, self.tol):
            return "tolerance"
        if self.callback is not None:
            enough = validation.returned_bool("callback", self.callback(s, array_namespace(z).asarray(z, copy=True)))
            if self.watch.mixer.channel.any_rank(enough):
                return "callback"
        return None


# ----------------------------------------------------------------------------------------------------
# Stochastic gradient push: the inner problem over directed networks.


VARIANTS = ("assran", "nedic")
LOOK = 256  # steps between two looks at how large things have grown
TOLERANCE_LOOK = 32  # steps between two looks at the mean gradient, where a tolerance is given


def sgp(
    problem: Problem,
    net: Network,
    lam: Array,
    steps: int = 5000,
    lr: Rate = 2.0,
    milestones: Sequence[int] | None = None,
    variant: str = "assran",
    *,
    decay: float = 0.1,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    batch_size: int | None = None,
    seed: int | Sequence[int] = 0,
    first_batch: int = 0,
    x0: Array | None = None,
    tol: float | None = None,
    callback: Callable[[int, Array], object] | None = None,
    mode: str = "auto",
    progress: bool = False,
) -> Fit:
    """Minimise Σ_k g_k(x, λ_k) by gradient steps on what Push-Sum has mixed so far.

    With z = x / ω and the learning rate a, step s takes graph s of the network:

        "assran":  x ← W_s (x − a ∂g(z)),  ω ← W_s ω
        "nedic":   x ← W_s x,  ω ← W_s ω,  z = x / ω,  x ← x − a ∂g(z)

    and, with momentum m and weight decay c, each client's own b ← m b + ∂g(z) + c z in place of ∂g(z).

    Where the links of `net` lose or delay messages (`networks.Unreliable`), x and ω go over running sums that are never
    reset, `RobustPushSum(net, 1, debias="conserve")`: the sum of all parameters, those under way included, then moves
    by gradients alone, as over reliable links. A client steps by a / ω_i, and ω_i falls with what is under way: large
    delays take a smaller a. A warning says so.

    Parameters
    ----------
    problem : client costs, any object that meets `hgp_ref.problems.Problem`.
    net : who hears whom at each step; also one that loses messages.
    lam : (n, d_lam), or (runs, n, d_lam) to train for several λ at once.
    steps, lr : number of steps and learning rate a, a number or a function of the step (from 0).
    milestones : step numbers (from 0) at which a is multiplied by `decay`; by default after 3/5 and 4/5 of the steps.
    momentum, weight_decay : m in [0, 1) and c >= 0.
    batch_size : None for full batches, else b instances a client, drawn anew at each step from `seed`; `first_batch`
        is the number of the first one in its sequence. A list of seeds trains all of them along a leading run axis.
    x0 : (n, d_x), zeros by default.
    tol : stop once ‖mean_i ∂g_i(x̄)‖ on full batches is at most tol times what it was at the start; looked at every
        TOLERANCE_LOOK steps by someone who sees all clients.
    callback : called as callback(step, z) after each step; a true result stops the training.
    mode : how graphs meet the parameters, as in `PushSum`.
    progress : show a bar.

    Returns
    -------
    Fit, with `x` (n, d_x), the consensus gap and the gradient that is left. Training that grows raises DivergenceError,
    training that ends before it has met `tol` gives a ConvergenceWarning.

    Raises
    ------
    TypeError, ValueError
        λ or x0 does not fit the problem or the network, settings are out of their range.
    DivergenceError
        x or its gradient is not finite any more, or grew without end.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> fit = hgp.sgp(problem, hgp.networks.FullyConnected(3), lam, steps=500, lr=0.5)
    >>> bool(np.abs(fit.x - x).max() < 1e-3)
    True
    """
    problem = as_problem(problem, needs=("inner_grad",))
    check_lam(problem, lam, x0)
    steps = validation.integer("steps", steps, 1, validation.LONGEST)
    tol = None if tol is None else validation.positive("tol", tol)
    validation.choice("variant", variant, VARIANTS)
    first_batch = validation.integer("first_batch", first_batch, 0, MAX_STEP)
    progress = validation.boolean("progress", progress)
    if callback is not None:
        validation.function("callback", callback)
    seeds, many = check_seeds(seed)
    lam = one_per_seed(detached(lam), seeds) if many else detached(lam)
    z = read_start(problem, lam, x0)
    mixer = start_averaging([_averaging(net, mode, problem)], problem.n_clients, z, steps)
    rates = Rates(steps, lr, milestones, decay)
    rule = Descent(problem, lam, momentum, weight_decay)
    mixer.channel.check_client_ids(problem.clients)
    mixer.channel.check_same_on_all_ranks("hgp.sgp", variant=variant, tol=tol, batch_size=batch_size, seed=seeds,
                          first_batch=first_batch, rates=rates.sample(), milestones=rates.milestones,
                          momentum=rule.momentum, weight_decay=rule.weight_decay, dim_lam=problem.dim_lam,
                          callback=callback is not None)  # fmt: skip
    batches = None
    if batch_size is not None:
        batches = MiniBatches(problem, batch_size, seeds, steps, lam, runs=many, first=first_batch)
    work, watch = GradientStep(rule, rates, batches), TrainingWatch(rule, z, rates.largest, mixer)
    turns = Alternation(mixer, work, watch, steps, variant == "nedic", LOOK, tol, TOLERANCE_LOOK, callback)
    return turns.fit(
        z,
        "sgp" if progress else None,
        lr=rates[0],
        milestones=rates.milestones,
        decay=float(decay),
        variant=variant,
        batch_size=batch_size,
        seed=seeds if many else seeds[0],
        first_batch=first_batch,
    )


def _averaging(net: Network, mode: str, problem: Normalised) -> PushSum:
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

    def __init__(self, rule: Descent, rates: Rates, batches: MiniBatches | None) -> None:
        self.rule, self.rates, self.batches = rule, rates, batches
        self.last: Array = None

    def __call__(self, turn: int, z: Array) -> Array:
        batch = None if self.batches is None else self.batches.at(turn - 1)[0]
        self.rate, self.last = self.rates[turn - 1], self.rule.direction(z, batch, self.last)
        return -self.rate * self.last
