"""Which step length γ a certified step tries next.

Let h and t be the widths of the intervals of F at λ and at λ⁺, g = (1 − θ) γ ‖D‖² the decrease that the direction is
good for at first order. A step is seen to lower F where its decrease exceeds about h + t, so that r = (h + t)/g is to
be small. Three answers are possible:

    it has fallen       take the step;
    it has not          γ is too long for certain, at any precision: take a shorter one;
    they cannot tell    g grows with γ, h does not, t may (λ⁺ is where less is known: ᾱ falls, training starts farther
                        away). With t = h + sγ a longer step has a smaller r as long as sγ < g: double γ where
                        t − h < g, halve it elsewhere, and go on in that direction as long as r falls. Then turn once.

Where training fails, or t > BLIND (h + g), nothing is known of F, and γ is halved, too. At one precision no γ is tried
twice, none beyond one that is too long, and none that leads to a λ⁺ tried before (a corner of the set that λ is
projected onto): the search has an end. It begins anew with a higher precision from the γ of the smallest r.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

BLIND = 1e3  # how much wider the interval at λ⁺ may be


@dataclass
class StepLength:
    """The search for one step, from γ on."""

    gamma: float
    too_long: float = np.inf  # the smallest γ at which F has certainly not fallen as far as asked for
    tried: set[float] = field(default_factory=set)  # at this precision
    told: dict[float, float] = field(default_factory=dict)  # r by γ, of those that have one
    factor: float = 0.5  # which way it goes
    turned: bool = False
    exhausted: bool = False  # no γ is left to try at this precision

    def not_lower(self) -> None:
        """F has not fallen at γ."""
        self.too_long = min(self.too_long, self.gamma)
        self.failed()

    def failed(self) -> None:
        """There is no F at γ."""
        self.tried.add(self.gamma)
        if self.told:
            self._turn()
        self._ahead()

    def cannot_tell(self, h: float, t: float, g: float) -> None:
        """The intervals are too wide for γ."""
        if t > BLIND * (h + g) or not g:
            self.failed()
            return
        r = (h + t) / g
        if not self.told:
            self.factor = 2.0 if t - h < g else 0.5
        elif r >= min(self.told.values()):
            self._turn()
        self._note(r)

    def same(self) -> None:
        """γ leads to a λ⁺ that was tried."""
        if not self.told:
            self.failed()
        elif self.factor > 1:
            self._turn()
            self._ahead()
        else:  # the same decrease for half the γ
            self._note(self.told[min(self.told)] / 2)

    def sharper(self) -> None:
        """Begin anew, with a higher precision."""
        left = {gamma: r for gamma, r in self.told.items() if gamma < self.too_long}
        self.gamma = min(left, key=lambda gamma: left[gamma], default=min(self.gamma, self.too_long / 2))
        self.tried, self.told, self.turned, self.exhausted = set(), {}, False, False

    def _note(self, r: float) -> None:
        self.tried.add(self.gamma)
        self.told[self.gamma] = r
        self._ahead()

    def _turn(self) -> None:
        self.exhausted, self.turned, self.factor = self.turned, True, 1 / self.factor

    def _ahead(self) -> None:
        """Beyond those of which something is known, in the direction that is left."""
        while not self.exhausted:
            if not self.told:
                self.gamma /= 2
            else:
                self.gamma = 2 * max(self.told) if self.factor > 1 else min(self.told) / 2
            if self.gamma == 0:
                self.exhausted = True
            elif self.gamma not in self.tried and self.gamma < self.too_long:
                return
            elif self.told:
                self._turn()
