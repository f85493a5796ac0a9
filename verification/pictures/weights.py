"""Erratum 25: kept weights against reset ones."""

from __future__ import annotations

import numpy as np

from verification.pictures.base import COLOURS, DASHES, panels, picture
from verification.run import Picture

LABELS = {"reset": "reset (Algorithm 1)", "keep": "kept (the paper's modification)", "conserve": "mass conserved"}


def draw(errors: dict[tuple[str, int], np.ndarray]) -> Picture:
    """‖v^(m) − d‖ against m for each way, a panel for each S."""
    steps = sorted({S for _, S in errors})
    with panels(1, len(steps), 6.2, 2.7) as (figure, [row]):
        for axes, S in zip(row, steps, strict=True):
            for k, (debias, label) in enumerate(LABELS.items()):
                values = errors[debias, S]
                m = np.unique(np.geomspace(1, len(values), 250).astype(int))
                axes.plot(
                    m, values[m - 1], color=COLOURS[k], linestyle=DASHES[k], label=label if S == steps[0] else None
                )
            axes.set_yscale("log")
            axes.set_xscale("log")
            axes.set_title(f"$S = {S}$")
            axes.set_xlabel("iterations $m$")
        row[0].set_ylabel(r"$\|v^{(m)} - \mathrm{d}_\lambda f\|$")
        figure.legend(loc="outside upper center", ncols=3)
        return picture(
            figure,
            "keep_against_reset",
            "Keeping the Push-Sum weights can diverge (erratum 25)",
            "Logistic regression, n = 3, η = 0.1. Dividing by weights of earlier calls while restarting from debiased "
            "vectors diverges at S = 1 and raises the floor at S = 10.",
        )
