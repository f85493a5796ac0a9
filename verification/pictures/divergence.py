"""Erratum 4: the counterexample to Theorem 1's step condition."""

from __future__ import annotations

import numpy as np

from verification.pictures.base import COLOURS, DASHES, panels, picture
from verification.run import Picture


def draw(errors: np.ndarray, printed: np.ndarray) -> Picture:
    """Relative error and the theorem's right-hand side against m."""
    m = np.arange(1, len(errors) + 1)
    with panels(1, 1, 3.6, 2.5) as (figure, [[axes]]):
        axes.plot(m, errors, color=COLOURS[1], linestyle=DASHES[0], label="relative error")
        axes.plot(m, printed, color=COLOURS[0], linestyle=DASHES[1], label="Theorem 1 as printed")
        axes.set_yscale("log")
        axes.set_xlabel("iterations $m$")
        axes.legend()
        return picture(
            figure,
            "theorem1_divergence",
            "Theorem 1 needs a further step condition (erratum 4)",
            "One client, H = diag(0.5, 3), η = 1, exact averaging and Jacobians: 0 < α < 1/η holds, but ηL = 3 > 2. "
            "The "
            "error doubles with every iteration while the theorem's right-hand side halves.",
        )
