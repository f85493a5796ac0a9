"""Erratum 12: convergence where no client is convex but the mean is."""

from __future__ import annotations

import numpy as np

from verification.pictures.base import COLOURS, DASHES, panels, picture
from verification.run import Picture


def draw(errors: dict[int, np.ndarray], bounds: dict[int, tuple[np.ndarray, np.ndarray]]) -> Picture:
    """‖v^(m) − d‖ for several S, with bound B at marked iterations."""
    with panels(1, 1, 3.6, 2.7) as (figure, [[axes]]):
        for k, (S, values) in enumerate(errors.items()):
            m = np.arange(1, len(values) + 1)
            axes.plot(m, values, color=COLOURS[k], linestyle=DASHES[k], label=f"$S = {S}$")
            axes.plot(*bounds[S], color=COLOURS[k], linestyle="none", marker="v", ms=2.5)
        axes.plot([], [], color="#777777", linestyle="none", marker="v", ms=2.5, label="bound B")
        axes.set_yscale("log")
        axes.set_xlabel("iterations $m$")
        axes.set_ylabel(r"$\|v^{(m)} - \mathrm{d}_\lambda f\|$")
        figure.legend(loc="outside upper center", ncols=4)
        return picture(
            figure,
            "nonconvex_clients",
            "Convexity of the mean is enough (erratum 12)",
            "Quadratics of three clients with eigenvalues down to −0.29 each, whose mean has eigenvalues in [0.3, 1]. "
            "With enough steps per call the error falls to a small floor; triangles are bound B.",
        )
