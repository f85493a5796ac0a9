"""Polyak's heavy ball for `python -m figures comparison --with docs/experiments/heavy_ball.py`."""

import hgp_ref as hgp
from figures.experiments.comparison.runs import DIRECTED, Method, over_push_sum


class HeavyBall(hgp.methods.Method):
    """r̄ = Θ̂ r,   p ← η r̄ + μ p,   r ← r̄ − H p."""

    def __init__(self, eta, momentum=0.5):
        self.eta, self.momentum = eta, momentum

    def init(self, start):
        return {"residual": start.residual, "p": 0 * start.residual}

    def step(self, state, mixer, derivatives):
        r = mixer.average(state["residual"])
        p = self.eta * r + self.momentum * state["p"]
        return p, {"residual": r - derivatives.hvp(p), "p": p}


run = over_push_sum(lambda case, S: HeavyBall(1 / case.high), steps=int)
METHODS = [Method("heavy ball", "Global", DIRECTED, (1, 2, 4, 8, 16, 32), run, "S = {}")]
