"""Work and averages by turns: what every training of this package does.

With z = x / ω where an averaging conserves sums, z = x elsewhere, and δ(z) what clients move by on their own,

    work, then average:  x ← Θ̂ (x + δ(z))          Assran's gradient push, FedAvg
    average, then work:  x ← Θ̂ x,  x ← x + δ(z)    Nedić's

where a gradient step is δ = −a ∂g(z) and a round of local epochs many of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from hgp_ref import arguments
from hgp_ref.averaging import Mean
from hgp_ref.backend import Array, array_namespace
from hgp_ref.progress import Bar, bar
from hgp_ref.training.divergence import TrainingWatch
from hgp_ref.training.fit import Fit


class Averager(Protocol):
    """What the alternation asks of an averaging at work; `Mean` is one."""

    def __call__(self, u: Array) -> Array: ...

    def kept(self, ubar: Array) -> Array: ...

    def divided(self, u: Array) -> Array: ...


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
    """`turns` turns of `work` over `average`, watched every `every` turns."""

    average: Averager | Mean
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
        mean, rule = self.watch.average, self.watch.rule
        shown = bar(self.turns, shown_as or "", shown_as is not None and mean.channel.clients.start == 0)
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
            traffic=mean.charge().per_run(tuple(x.shape[:-2])),
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
                mixed = self.average(x)
                x = self.average.kept(mixed) + self.work(s, mixed)
                z = self.average.divided(x)
            else:
                z = self.average(x + self.work(s, z))
                x = self.average.kept(z)
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
            enough = arguments.truth("callback", self.callback(s, array_namespace(z).asarray(z, copy=True)))
            if self.watch.average.channel.anyone(enough):
                return "callback"
        return None
