"""Which step length γ a certified step tries next.

Let h and t be the widths of the intervals of F at λ and at λ⁺, g = (1 − θ) γ ‖D‖² the decrease that the direction is
good for at first order. A step is seen to lower F where its decrease exceeds about h + t. Three answers are possible:

    it has fallen       take the step;
    it has not          γ is too long for certain, at any precision: halve it;
    they cannot tell    g grows with γ, h does not. With t = h + sγ a longer step helps as long as sγ < g: double γ where
                        t − h < g. Where t − h ≥ g (λ⁺ is where little is known: ᾱ falls, training starts farther
                        away) more is lost by going there than gained: halve it.

Where training fails, γ is halved, too; nothing is known of F there. At one precision no γ is tried twice, none beyond
one that is too long, and none that leads to the same λ⁺ (a corner of the set that λ is projected onto): the search has
an end. It begins anew with a higher precision from the γ that came closest to being seen to lower F.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class StepLength:
    """The search for one step, from γ on."""

    gamma: float
    too_long: float = np.inf  # the smallest γ at which F has certainly not fallen as far as asked for
    lacking: dict[float, float] = field(default_factory=dict)  # by γ, at this precision: what F(λ⁺) lacks of being seen

    def not_lower(self) -> None:
        """F has not fallen at γ."""
        self.too_long = min(self.too_long, self.gamma)
        self.gamma /= 2

    def failed(self) -> None:
        """There is no F at γ."""
        self.lacking[self.gamma] = np.inf
        self.gamma /= 2

    def cannot_tell(self, longer: bool, lacks: float) -> None:
        """Go on to a longer step or to a shorter one."""
        self.lacking[self.gamma] = lacks
        self.gamma *= 2.0 if longer else 0.5

    @property
    def exhausted(self) -> bool:
        """Whether γ was tried at this precision, or is too long."""
        return self.gamma in self.lacking or self.gamma >= self.too_long

    def sharper(self) -> None:
        """Begin anew, with a higher precision."""
        open_ones = [gamma for gamma in self.lacking if gamma < self.too_long]
        self.gamma = min(open_ones, key=lambda gamma: (self.lacking[gamma], gamma), default=self.too_long / 2)
        self.lacking.clear()
