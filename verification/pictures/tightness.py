"""How far the bounds are from the errors."""

from __future__ import annotations

import numpy as np

from verification.pictures.base import COLOURS, DASHES, distribution, panels, picture
from verification.run import Picture


def draw(ratios: dict[str, dict[str, np.ndarray]]) -> Picture:
    """Distribution of bound/error, a panel for each problem and a line for each bound."""
    with panels(1, len(ratios), 6.4, 2.6, sharey=True) as (figure, [row]):
        for k, (axes, (case, by_bound)) in enumerate(zip(row, ratios.items(), strict=True)):
            for j, (name, values) in enumerate(by_bound.items()):
                distribution(
                    axes, values, color=COLOURS[j], linestyle=DASHES[j % len(DASHES)], label=None if k else name
                )
            axes.set_xscale("log")
            axes.set_xlim(0.9, 1e4)
            axes.axvline(1, color="#777777", linewidth=0.8)
            axes.set_title(case)
            axes.set_xlabel("bound / error")
        row[0].set_ylabel("share of settings")
        figure.legend(loc="outside upper center", ncols=6)
        return picture(
            figure,
            "tightness",
            "Tightness: how often bound/error is below a value",
            "Over network seeds, S ≥ 5 and iterations m; lines further left are tighter. No line may lie left of 1.",
        )
