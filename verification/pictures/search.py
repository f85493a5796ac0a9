"""Ratios found by the search for violations."""

from __future__ import annotations

import numpy as np

from verification.pictures.base import COLOURS, DASHES, distribution, panels, picture
from verification.run import Picture


def draw(ratios: dict[str, np.ndarray], settings: int) -> Picture:
    """Distribution of bound/error over random settings, a line for each bound."""
    with panels(1, 1, 4.6, 2.8) as (figure, [[axes]]):
        for j, (name, values) in enumerate(ratios.items()):
            distribution(axes, values, color=COLOURS[j % len(COLOURS)], linestyle=DASHES[j % len(DASHES)], label=name)
        axes.set_xscale("log")
        axes.set_xlim(0.9, 1e6)
        axes.axvline(1, color="#777777", linewidth=0.8)
        axes.set_xlabel("bound / error")
        axes.set_ylabel("share of settings")
        axes.legend(ncols=2, loc="lower right")
        return picture(
            figure,
            "search",
            f"Search for violations: {settings} random settings",
            "n from 1 to 12, d from 1 to 10, every kind of network, S from 1 to 100, conditioning up to 1e4. No line "
            "may lie left of 1.",
        )
