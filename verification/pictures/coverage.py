"""Coverage of the high-probability bound."""

from __future__ import annotations

import numpy as np

from verification.pictures.base import COLOURS, DASHES, distribution, panels, picture
from verification.run import Picture


def draw(ratios: dict[str, dict[str, np.ndarray]]) -> Picture:
    """Distribution of error/bound D over runs: a panel for each setting, lines for forms and ϵ."""
    with panels(1, len(ratios), 6.4, 2.6, sharey=True) as (figure, [row]):
        for k, (axes, (setting, by_bound)) in enumerate(zip(row, ratios.items(), strict=True)):
            for j, (name, values) in enumerate(by_bound.items()):
                distribution(
                    axes, values, color=COLOURS[j], linestyle=DASHES[j % len(DASHES)], label=None if k else name
                )
            axes.axvline(1, color="#777777", linewidth=0.8)
            axes.set_xscale("log")
            axes.set_title(setting)
            axes.set_xlabel("error / bound D")
        row[0].set_ylabel("share of runs")
        figure.legend(loc="outside upper center", ncols=2)
        return picture(
            figure,
            "coverage",
            "Coverage of the high-probability bound D",
            "Each line is the distribution of error/bound over the runs of a setting. A share of at most ϵ may lie "
            "right "
            "of the vertical line at 1.",
        )
