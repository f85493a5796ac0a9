"""The second derivatives that each iteration uses: one linearization for all, or one per mini-batch."""

from __future__ import annotations

from hgp_ref.backend import Array
from hgp_ref.problems.minibatches import MiniBatches
from hgp_ref.problems.normalised import Normalised
from hgp_ref.problems.protocol import FullLinearization


class FullBatch:
    """The point does not move: linearized once, applied M times."""

    constant = True

    def __init__(self, problem: Normalised, x: Array, lam: Array) -> None:
        self.linearization = problem.linearize(x, lam)

    def at(self, m: int) -> tuple[FullLinearization, FullLinearization]:
        """Linearizations for v and for w in iteration m = 0, 1, ..."""
        return self.linearization, self.linearization

    def whole(self) -> FullLinearization:
        """The second derivatives on full batches."""
        return self.linearization


class Sampled:
    """Samples ξ̂ for v and, unless one serves both, ξ̂̂ for w; they do not depend on M."""

    constant = False

    def __init__(self, problem: Normalised, x: Array, lam: Array, batches: MiniBatches) -> None:
        self.linearize, self.batches = problem.sampled(x, lam), batches
        self.whole = lambda: problem.linearize(x, lam)

    def at(self, m: int) -> tuple[FullLinearization, FullLinearization]:
        drawn = [self.linearize(batch) for batch in self.batches.at(m)]
        return drawn[0], drawn[-1]
