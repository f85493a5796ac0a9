"""Rounds of d-vectors until the relative error is below 1e-6, for a method with given settings over many networks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import hgp_ref as hgp
from hgp_ref.methods import Chebyshev, Method, Neumann, Refined, Tracking
from verification.cases import Case

TARGET = 1e-6


@dataclass(frozen=True)
class Trial:
    """A method with all its settings."""

    kind: str
    method: Method
    steps: int | tuple[int, ...]
    iterations: int

    @property
    def description(self) -> str:
        """Its settings in a few words."""
        steps = f"S={self.steps}" if isinstance(self.steps, int) else f"S={self.steps[0]}, falling"
        return f"{shown(self.method)}, {steps}, M={self.iterations}"


def shown(method: Method) -> str:
    """A method as text with few digits."""
    if isinstance(method, Refined):
        return f"{shown(method.method)} × {method.cycles} (restarts {method.steps})"
    if isinstance(method, Chebyshev):
        return f"Chebyshev({method.low:.3g}, {method.high:.3g})"
    return f"Tracking({method.step_size:.3g})" if isinstance(method, Tracking) else repr(method)


def vectors(method: Method) -> int:
    """The number of d-vectors in a message."""
    return 2 if isinstance(method, Tracking) else 1


def prices(case: Case, trial: Trial, networks: Sequence[hgp.networks.Network]) -> np.ndarray:
    """Vectors times rounds until the error is below the target for the first time, ∞ if never, for each network."""
    averagings = [hgp.PushSum(net, trial.steps) for net in networks]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            est = case.estimate(averagings, method=trial.method, iterations=trial.iterations, history=True)
        except hgp.DivergenceError:
            if len(networks) == 1:
                return np.array([np.inf])
            return np.concatenate([prices(case, trial, [net]) for net in networks])
    below = case.errors(est) < TARGET * np.linalg.norm(case.truth)  # (runs, M)
    first = np.where(below.any(axis=1), below.argmax(axis=1), -1)
    rounds = rounds_after(trial, averagings[0])
    return np.array([vectors(trial.method) * rounds[m] if m >= 0 else np.inf for m in first])


def rounds_after(trial: Trial, avg: hgp.PushSum) -> np.ndarray:
    """Rounds that were used after each iteration, (M,)."""
    M = trial.iterations
    if not isinstance(trial.method, Refined):
        return np.cumsum(avg.steps_of(0, M))
    length = -(-M // trial.method.cycles)
    restarts = np.atleast_1d(trial.method.steps)
    scheduled, each = iter(avg.steps_of(0, M)), []
    for m in range(M):
        each.append(2 * restarts[: m // length][-1] if m and m % length == 0 else next(scheduled))
    return np.cumsum(each)


def cycle_steps(S: int, M: int, cycles: int) -> tuple[int, ...]:
    """S that falls in every cycle; the first call of all but the first one belongs to the restart."""
    one = hgp.falling_steps(S, M)
    return one + one[1:] * (cycles - 1)


def grid(name: str, case: Case) -> list[Trial]:
    """A grid of settings for every method and this problem."""
    by_client, mean = np.linalg.eigvalsh(case.H), np.linalg.eigvalsh(case.H.mean(axis=0))
    L = float(by_client.max())
    S_range = {"P1": range(8, 21, 2), "P2": range(18, 39, 4), "P3": range(8, 17, 2)}[name]
    longest = {"P1": 40, "P2": 40, "P3": 1100}[name]
    etas = {"P3": (1.0, 1.6, 2.0, 2.2, 2.35, 2.45)}.get(name, (0.7, 0.85, 1.0, 1.15, 1.3, 1.5, 1.7, 1.85, 2.0, 2.2))
    trials = [Trial("HGP, constant S", Neumann(c / L), S, longest) for S in S_range for c in etas]
    intervals = [
        (by_client.min(), by_client.max()),
        (by_client[:, 0].mean(), by_client[:, -1].mean()),
        (mean[0], mean[-1]),
    ]
    lengths = {"P1": (5, 7, 9, 12), "P2": (8, 11, 15, 20), "P3": (70, 80, 100, 130)}[name]
    for low, high in intervals:
        method = Chebyshev(float(low), float(high))
        trials += [Trial("Chebyshev", method, S, 2 * max(lengths)) for S in S_range]
        trials += [Trial("Chebyshev, falling S", method, hgp.falling_steps(S, M), M) for S in S_range for M in lengths]
    trials += [
        Trial("HGP, falling S", Neumann(c / L), hgp.falling_steps(S, M), M)
        for S in S_range
        for M in lengths
        for c in etas[2:]
        if name != "P3"
    ]
    trials += refined_trials(name, intervals[1:])
    shares = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.4, 1.6)
    tracked = {"P3": (1100, (1,), (1.4, 1.6, 1.8, 2.0, 2.2, 2.4))}.get(name, (150, (1, 2, 3, 4), shares))
    trials += [Trial("Tracking", Tracking(c / L), S, tracked[0] // S) for S in tracked[1] for c in tracked[2]]
    return trials


def refined_trials(name: str, intervals: Sequence[tuple[float, float]]) -> list[Trial]:
    """Refined Chebyshev with S that falls in every cycle."""
    first, lengths, restarts, cycles = {
        "P1": ((5, 7, 9), (3, 4, 5), (12, 15), (2, 3)),
        "P2": ((12, 16, 20), (4, 5, 6, 7), (28, 34), (2, 3)),
        "P3": ((4, 5, 6, 7), (18, 22, 26, 30, 40), (14, 16), (2, 3, 4, 5)),
    }[name]
    return [
        Trial("refined Chebyshev", Refined(Chebyshev(*map(float, one)), c, R), cycle_steps(S, M, c), c * M)
        for one in intervals
        for S in first
        for M in lengths
        for R in restarts
        for c in cycles
    ]
