"""How fast gradient tracking converges, by a model with two groups of clients.

Let a call shrink disagreement by τ^S with a phase e^{iφ} (directed graphs turn it), and let clients' Hessians be λ ± ζ.
The mean a of w, half the difference Δ of w between the groups and half the difference δ of y then follow

    a⁺ = a − η(λa + ζΔ),     Δ⁺ = τ^S e^{iφ} (Δ − ηδ),     δ⁺ = τ^S e^{iφ} δ + λ(Δ⁺ − Δ) + ζ(a⁺ − a),

because the mean of y is λa + ζΔ at all times. The largest |eigenvalue| over λ in [low, high], ζ and φ is the rate. For
graphs that repeat, `exact.tracking_rate` is exact; the model agrees with it where they mix evenly
(`python -m verification tracking`), and needs no graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hgp_ref.planning.enquiry import Found

PHASES = (0.0, 0.5)
STEPS = (1, 2, 3, 4)  # S that are compared
SAFE = 2.5  # a step is taken only if the model is stable at so many times it: graphs that differ are not the model
WAVERING = 2.0  # first error over ‖w*‖ and what unequal graphs cost


@dataclass(frozen=True)
class Pace:
    """A step size, its S, and the model's factor per call."""

    step: float
    S: int
    rate: float

    def iterations(self, target: float) -> int:
        """Calls to a relative error of `target`."""
        return max(1, math.ceil(math.log(WAVERING / target) / -math.log(max(self.rate, 1e-6))))


def rates(
    steps: np.ndarray, low: float, high: float, zeta: float, tau: float, phases: Sequence[float] = PHASES
) -> np.ndarray:
    """The model's rate for each step size, (len(steps),)."""
    lam = np.geomspace(low, high, 5) if high > low else np.array([high])
    turned = tau * np.exp(1j * np.array(phases))
    e, L, z, t = (a.ravel() for a in np.meshgrid(steps, lam, np.array([0.0, zeta]), turned, indexing="ij"))
    zero, one = np.zeros_like(t), np.ones_like(t)
    a = np.stack([one - e * L, -e * z, zero], axis=-1)
    apart = np.stack([zero, t, -t * e], axis=-1)
    tracked = np.stack([zero, zero, t], axis=-1) + L[:, None] * (apart - np.array([0, 1, 0]))
    tracked = tracked + z[:, None] * (a - np.array([1, 0, 0]))
    radius = np.abs(np.linalg.eigvals(np.stack([a, apart, tracked], axis=1))).max(axis=1)
    return radius.reshape(len(steps), -1).max(axis=1)


def best_pace(known: Found, target: float) -> Pace | None:
    """The step and S with the least S · iterations; None where the model is stable for none."""
    grid = np.geomspace(1e-3, 2.0, 40) / known.high
    paces = []
    for S in STEPS:
        rate = rates(grid, known.low, known.high, known.zeta, known.tau**S)
        safe = rates(SAFE * grid, known.low, known.high, known.zeta, known.tau**S) < 1
        if not safe.any():
            continue
        k = int(np.argmin(np.where(safe, rate, np.inf)))
        if rate[k] < 1:
            paces.append(Pace(float(grid[k]), S, float(rate[k])))
    return min(paces, key=lambda pace: pace.S * pace.iterations(target), default=None)
