"""Erratum 22: the floor of the error against η."""

from __future__ import annotations

import numpy as np

from verification.pictures.base import COLOURS, DASHES, panels, picture
from verification.run import Picture


def draw(curves: dict[str, np.ndarray]) -> Picture:
    """Error, the printed floor and bound B against η."""
    with panels(1, 1, 3.6, 2.7) as (figure, [[axes]]):
        lines = (("printed", r"printed, $2\beta\epsilon/(\eta\alpha^2)$"), ("B", "bound B"), ("error", "error"))
        for k, (name, label) in enumerate(lines):
            axes.plot(curves["eta"], curves[name], color=(*COLOURS[1::-1], "#000000")[k], linestyle=DASHES[k],
                      marker="o", ms=3, label=label)  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel(r"step size $\eta$")
        figure.legend(loc="outside upper center", ncols=3)
        return picture(
            figure,
            "floor_against_eta",
            "The floor does not grow as η falls (erratum 22)",
            "Logistic regression, n = 3, S = 10, means over networks, iterated until only the floor is left. The "
            "printed "
            "floor grows as 1/η; the error and bound B do not.",
        )
