"""How the outer loop trains, estimates hyper-gradients and monitors progress: `Trainer`, `Estimator`, `Monitor`.

Users may pass functions of their own instead. These get copies of arrays, which they may overwrite, and their results
are checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, detached
from hgp_ref.bilevel.trajectory import LoopState
from hgp_ref.errors import DivergenceError
from hgp_ref.methods import Method, Neumann, hypergradient
from hgp_ref.methods.spectrum import safe_step_size
from hgp_ref.mixing import Averaging, Traffic, push_sum_for, start_averaging
from hgp_ref.networks import Network
from hgp_ref.problems import MiniBatches
from hgp_ref.problems.base import FullProblem
from hgp_ref.problems.batches import read_batches
from hgp_ref.training import TrainingMethod
from hgp_ref.training import train as run_training
from hgp_ref.validation import Boolean, Function, Integer, Optional, Positive, check_signature, checked


def check_training(name: str, method: object) -> None:
    """TypeError unless `method` is a `TrainingMethod` or a function that can be called as one."""
    if not isinstance(method, TrainingMethod):
        check_signature(name, method, "problem", "lam", "net", x0="", first_batch="", outer_step="")


def copied(a: Array | None) -> Array | None:
    """A copy, for user functions that may write into it or reuse what they returned."""
    return None if a is None else array_namespace(a).asarray(a, copy=True)


def _checked_result(
    name: str, result: object, field: str, shape: tuple[int, ...], meaning: str, lam: Array
) -> tuple[Array, Traffic]:
    """`result.field` and `result.traffic` of what the user's function `name` returned."""
    value, sent = getattr(result, field, None), getattr(result, "traffic", None)
    if value is None or not isinstance(sent, Traffic):
        raise TypeError(
            f"{name} must return an object with {field} {meaning} and traffic (a Traffic), got {type(result).__name__}"
        )
    what = f"what {name} returned: {field}"
    validation.same_kind(**{what: value, "lam": lam})
    validation.shape(what, value, shape, meaning, run_axes=False)
    return value, sent


@checked(warm_start=Boolean())
@dataclass(frozen=True)
class Trainer:
    """How the outer loop trains at each λ.

    Parameters
    ----------
    method : `hgp.training.SGP(...)`, or a function method(problem, lam, net, x0=, first_batch=, outer_step=) that
        returns an object with `x` (n, d_x), `traffic` and, if it draws mini-batches, their number as `steps`. Its `net`
        holds the graphs that are not used yet.
    x0 : (n, d_x), where the first training starts; by default zeros for `SGP`.
    warm_start : start training at λ_{k+1} from x_k; otherwise from `x0` each time.
    tol : as in `hgp.train`.

    Examples
    --------
    >>> hgp.bilevel.Trainer(hgp.training.SGP(200, lr=0.5), warm_start=False).warm_start
    False
    """

    method: TrainingMethod | Callable[..., Any]
    x0: Array | None = field(default=None, repr=False)
    warm_start: bool = True
    tol: float | None = None

    def __post_init__(self) -> None:
        check_training("method", self.method)

    def run(
        self, problem: FullProblem, lam: Array, net: Network, x0: Array | None, state: LoopState, outer_step: int
    ) -> Array:
        """x at λ. Traffic and mini-batches are added to `state`, also if training diverges."""
        try:
            fit = self._fit(problem, copied(lam), state.remaining(net), copied(x0), state.batches, outer_step)
        except DivergenceError as error:
            if error.traffic is not None:
                state.consume(error.traffic, error.steps)
            raise
        x, sent = _checked_result("train", fit, "x", (problem.n_clients, problem.dim_x), "(n, d_x)", lam)
        state.consume(sent, getattr(fit, "steps", 0))
        return copied(detached(x))

    def _fit(
        self, problem: FullProblem, lam: Array, net: Network, x0: Array | None, first_batch: int, outer_step: int
    ) -> Any:
        if not isinstance(self.method, TrainingMethod):
            return self.method(problem.wrapped, lam, net, x0=x0, first_batch=first_batch, outer_step=outer_step)
        method: Any = self.method
        batches = read_batches(getattr(method, "batches", None))
        if batches is not None:
            method = replace(method, batches=replace(batches, offset=batches.offset + first_batch))
        return run_training(problem.wrapped, lam, net, method, x0=x0, tol=self.tol)


@dataclass(frozen=True)
class DirectGradient:
    """∂_λ f: the hyper-gradient with M = 0 terms, for which nothing is sent."""

    value: Array
    traffic: Traffic = field(default_factory=Traffic)
    iterations: int = 0


@checked(
    averaging_steps=Integer(1, validation.LONGEST),
    iterations=Integer(0, validation.LONGEST),
    eta=Optional(Positive()),
    tol=Optional(Positive()),
    average=Function(),
)
@dataclass(frozen=True)
class Estimator:
    """How the outer loop estimates hyper-gradients: `hgp.hypergradient` over the graphs that are not used yet.

    Parameters
    ----------
    averaging_steps : S, graphs per averaging.
    iterations : M; 0 takes ∂_λ f alone.
    method, eta, tol, batches : as in `hgp.hypergradient`. Mini-batches continue where the last estimate ended.
    average : the averaging as a function of (net, steps): `PushSum` by default (`RobustPushSum` over unreliable links),
        or e.g. `hgp.Gossip`, or `lambda net, steps: hgp.ExactAverage(net.n)`.

    Examples
    --------
    >>> hgp.bilevel.Estimator(averaging_steps=10, iterations=100).iterations
    100
    """

    averaging_steps: int = 5
    iterations: int = 200
    method: Method | None = None
    eta: float | None = None
    tol: float | None = None
    batches: MiniBatches | int | None = None
    average: Callable[[Network, int], Averaging] = field(default=push_sum_for, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "batches", read_batches(self.batches))

    @property
    def can_shrink(self) -> bool:
        """Whether a smaller η may help: only in Algorithm 2 with at least one term."""
        return self.iterations > 0 and (self.method is None or isinstance(self.method, Neumann))

    def averaging(self, net: Network, steps: int) -> Averaging:
        avg = self.average(net, steps)
        if not isinstance(avg, Averaging):
            raise TypeError(f"average must return an averaging such as PushSum, got {type(avg).__name__}")
        return avg

    def run(
        self, problem: FullProblem, x: Array, lam: Array, net: Network, state: LoopState, w0: Array | None = None
    ) -> Any:
        """The estimate at (x, λ), with η times `state.shrink`. Traffic and mini-batches are added to `state`."""
        if self.iterations == 0:
            return DirectGradient(problem.outer_grad(x, lam)[1])
        avg = self.averaging(state.remaining(net), self.averaging_steps)
        batches: Any = self.batches
        if batches is not None:
            batches = replace(batches, offset=batches.offset + state.batches)
        before, iterations = avg.traffic, self.iterations
        try:
            method, eta = self.method, self.eta
            if state.shrink < 1:
                method, eta = None, state.shrink * self._step_size(problem, x, lam, avg)
            est = hypergradient(
                problem, x, lam, avg, method, eta=eta, iterations=iterations, tol=self.tol, batches=batches, w0=w0
            )
            iterations = est.iterations
        finally:  # also a run that diverges has sent messages and drawn mini-batches
            state.consume(avg.traffic - before, iterations)
        return est

    def _step_size(self, problem: FullProblem, x: Array, lam: Array, avg: Averaging) -> float:
        """η, as given or as the clients find it."""
        if isinstance(self.method, Neumann):
            return float(self.method.eta)
        if self.eta is not None:
            return self.eta
        mixer = start_averaging([avg], problem.n_clients, x, 1)
        eta = safe_step_size("eta", mixer.channel, problem.linearize(x, lam), x)
        mixer.record_traffic()
        return eta


@dataclass(frozen=True)
class FunctionEstimator:
    """A user's function estimate(problem, x, lam, net, first_batch=, outer_step=)."""

    function: Callable[..., Any]
    can_shrink = False

    def __post_init__(self) -> None:
        check_signature("estimate", self.function, "problem", "x", "lam", "net", first_batch="", outer_step="")

    def run(
        self, problem: FullProblem, x: Array, lam: Array, net: Network, state: LoopState, w0: Array | None = None
    ) -> Any:
        est = self.function(problem.wrapped, copied(x), copied(lam), state.remaining(net), first_batch=state.batches,
                            outer_step=state.k)  # fmt: skip
        shape = (problem.n_clients, problem.dim_lam)
        _, sent = _checked_result("estimate", est, "value", shape, "(n, d_lam)", lam)
        state.consume(sent, getattr(est, "iterations", 0))
        return est


@checked(patience=Optional(Integer(1)))
@dataclass(frozen=True)
class Monitor:
    """A measure of x and λ, the smaller the better, such as an error on data that neither cost uses.

    Parameters
    ----------
    measure : measure(x, lam) → number. `path.best` is the step at which it was smallest, `path.best_x` is x there.
    patience : end the loop once the measure has not reached a new minimum for so many steps.

    Examples
    --------
    >>> hgp.bilevel.Monitor(lambda x, lam: float((x**2).sum()), patience=5).patience
    5
    """

    measure: Callable[[Array, Array], float]
    patience: int | None = None

    def __post_init__(self) -> None:
        check_signature("measure", self.measure, "x", "lam")
