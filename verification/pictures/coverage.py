"""Coverage of the high-probability bound."""

from __future__ import annotations

import numpy as np

from verification.pictures.base import distributions, panels, picture
from verification.run import Picture


def draw(ratios: dict[str, dict[str, np.ndarray]]) -> Picture:
    """Distribution of error/bound D over runs: a panel for each setting, lines for forms and ϵ."""
    with panels(1, len(ratios), 6.4, 2.6, sharey=True) as (figure, [row]):
        distributions(row, ratios, "error / bound D", "runs")
        figure.legend(loc="outside upper center", ncols=2)
        return picture(
            figure,
            "coverage",
            "Coverage of the high-probability bound D",
            "Each line is the distribution of error/bound over the runs of a setting. A share of at most ϵ may lie "
            "right "
            "of the vertical line at 1.",
        )
