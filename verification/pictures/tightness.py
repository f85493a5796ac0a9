"""How far the bounds are from the errors."""

from __future__ import annotations

import numpy as np

from verification.pictures.base import distributions, panels, picture
from verification.run import Picture


def draw(ratios: dict[str, dict[str, np.ndarray]]) -> Picture:
    """Distribution of bound/error, a panel for each problem and a line for each bound."""
    with panels(1, len(ratios), 6.4, 2.6, sharey=True) as (figure, [row]):
        distributions(row, ratios, "bound / error", "settings")
        for axes in row:
            axes.set_xlim(0.9, 1e4)
        figure.legend(loc="outside upper center", ncols=6)
        return picture(
            figure,
            "tightness",
            "Tightness: how often bound/error is below a value",
            "Over network seeds, S ≥ 5 and iterations m; lines further left are tighter. No line may lie left of 1.",
        )
