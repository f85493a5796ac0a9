"""Erratum 15: the term that Theorem 2 lacks."""

from __future__ import annotations

import numpy as np

from verification.pictures.base import COLOURS, DASHES, panels, picture
from verification.run import Picture


def draw(shifts: np.ndarray, sides: np.ndarray) -> Picture:
    """Error, Theorem 2 and 2* against the inner error; `sides` is (shifts, 3)."""
    with panels(1, 1, 3.6, 2.5) as (figure, [[axes]]):
        axes.plot(shifts, sides[:, 2], color=COLOURS[2], linewidth=3.5, alpha=0.5, label="2*, corrected")
        axes.plot(shifts, sides[:, 0], color="#000000", linestyle=DASHES[0], label="error")
        axes.plot(shifts, sides[:, 1], color=COLOURS[1], linestyle=DASHES[1], label="Theorem 2 as printed")
        axes.set_xlabel(r"error of the inner solution, $|\hat{x}_i - x|$")
        axes.legend()
        return picture(
            figure,
            "theorem2_missing_term",
            "Theorem 2 lacks a term (erratum 15)",
            "g = (x − a)²/2, f = λx, three clients, exact averaging. The printed bound is 0 whatever x̂; the error is "
            "‖x̂ − x‖, and so is the corrected bound 2*.",
        )
