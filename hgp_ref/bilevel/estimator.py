"""Hyper-gradients inside the outer loop: keywords of `hypergradient`, or a function of the caller's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hgp_ref import arguments
from hgp_ref.averaging import Averaging, push_sum_over
from hgp_ref.backend import Array, all_finite
from hgp_ref.bilevel.clock import Clock
from hgp_ref.bilevel.inner import UNUSED, own, read_settings
from hgp_ref.bilevel.inputs import returned, takes
from hgp_ref.channels import Traffic, connect
from hgp_ref.errors import DivergenceError
from hgp_ref.estimators import hypergradient
from hgp_ref.methods import Method, Neumann
from hgp_ref.networks import Network
from hgp_ref.problems.normalised import Normalised

STEPS = 5  # S, where it is not given


@dataclass(frozen=True)
class Direct:
    """∂_λ f alone: the series with no term at all, M = 0, for which nothing is sent."""

    value: Array
    traffic: Traffic = field(default_factory=Traffic)
    iterations: int = 0


class Estimator:
    """What `optimise` is given as `estimate`, as something that the loop can call.

    A function: estimate(problem, net, x, lam, seed=, first_batch=, outer_step=) → an object with value (n, d_λ) and
    traffic. Or keywords: S = `steps`, M = `iterations`, `average(net, steps)` for the averaging (`PushSum` by default,
    where links lose messages `RobustPushSum`; `Gossip` likewise, or lambda net, steps: ExactAverage(net.n)), and those
    of `hypergradient`.
    """

    def __init__(self, estimate: Mapping[str, Any] | Callable[..., Any]) -> None:
        self.given = estimate if callable(estimate) else None
        if self.given is not None:
            takes("estimate", self.given, "problem", "net", "x", "lam", seed="", first_batch="", outer_step="")
            return
        settings = read_settings("estimate", estimate, hypergradient, ("steps", "average"))
        for name in UNUSED:
            if name in settings:
                raise ValueError(f"estimate: {name!r} given, which the loop does not use; give steps and average")
        self.steps, self.average = settings.pop("steps", STEPS), settings.pop("average", push_sum_over)
        arguments.function("estimate['average']", self.average)
        self.iterations = arguments.integer(
            "estimate['iterations']", settings.pop("iterations", 200), 0, arguments.LONGEST
        )
        self.method: Method | None = settings.pop("method", None)
        self.eta: float | None = settings.pop("eta", None)
        if self.method is None or isinstance(self.method, Neumann):
            self.eta = getattr(self.method, "eta", self.eta) if self.eta is None else self.eta
        self.settings = settings

    @property
    def can_shrink(self) -> bool:
        """Whether a smaller η may help: only in Algorithm 2, and with at least one term."""
        return self.given is None and self.iterations > 0 and (self.method is None or isinstance(self.method, Neumann))

    def __call__(
        self,
        problem: Normalised,
        net: Network,
        x: Array,
        lam: Array,
        clock: Clock,
        step: int,
        shrink: float,
        more: Mapping[str, Any],
    ) -> Any:
        """The estimate at (x, λ), η times `shrink`, `more` in place of keywords given; the clock moves on.

        DivergenceError if there is none.
        """
        if self.given is not None:
            given = {"seed": clock.seed, "first_batch": clock.batches, "outer_step": step}
            est = self.given(problem.given, clock.net(net), own(x), own(lam), **given)
            shape = (problem.n_clients, problem.dim_lam)
            _, sent = returned("estimate", est, "value", shape, "(n, d_lam)", lam)
            clock.pass_on(sent, getattr(est, "iterations", 0))
        elif self.iterations == 0:
            est = Direct(problem.outer_grad(x, lam)[1])
        else:
            est = self._run(problem, clock.net(net), x, lam, clock, shrink, **more)
        if connect(net).anyone(not all_finite(est.value)):
            raise DivergenceError("diverged: the hyper-gradient holds NaN or infinite values")
        return est

    def averaging(self, net: Network, steps: int) -> Averaging:
        """The averaging of S = `steps` over `net`."""
        avg = self.average(net, steps)
        if not isinstance(avg, Averaging):
            raise TypeError(f"estimate['average']: returned {type(avg).__name__}, needed an averaging such as PushSum")
        return avg

    def _run(
        self,
        problem: Normalised,
        net: Network,
        x: Array,
        lam: Array,
        clock: Clock,
        shrink: float,
        steps: int | None = None,
        iterations: int | None = None,
        w0: Array | None = None,
    ) -> Any:
        """`hypergradient` with the keywords given, over graphs and mini-batches that were not used yet."""
        avg = self.averaging(net, self.steps if steps is None else steps)
        M = self.iterations if iterations is None else iterations
        chosen: dict[str, Any] = {"method": self.method, "eta": self.eta}
        if shrink < 1:
            chosen = {"method": None, "eta": (1.0 if self.eta is None else self.eta) * shrink}
        before, done = avg.ledger, M
        try:
            est = hypergradient(problem, x, lam, avg, iterations=M, seed=clock.seed, first_batch=clock.batches, w0=w0,
                                **chosen, **self.settings)  # fmt: skip
            done = est.iterations
        finally:  # what was sent was sent, and mini-batches that were drawn are used up
            clock.pass_on(avg.ledger - before, done)
        return est
