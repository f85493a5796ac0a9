"""Error and bounds against m for each S."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verification.curves import Curve
from verification.pictures.base import COLOURS, DASHES, panels, picture
from verification.run import Picture

LINES = {"error": "error", "A": "A", "B": "B", "C2": "C2", "Corollary 1": "Corollary 1 as printed"}
COLOUR = dict(zip(LINES, ("#000000", COLOURS[1], COLOURS[0], COLOURS[2], COLOURS[3]), strict=True))
DASH = dict(zip(LINES, ("-", DASHES[1], DASHES[2], DASHES[3], DASHES[4]), strict=True))


def draw(curves: Sequence[Curve]) -> Picture:
    """One row of panels, one for each S, for one problem."""
    case = curves[0].case
    with panels(2, (len(curves) + 1) // 2, 6.2, 4.2, sharex=True, sharey=True) as (figure, grid):
        cells = grid.ravel()
        for k, (axes, curve) in enumerate(zip(cells, curves, strict=False)):
            for name, label in LINES.items():
                values = curve.error if name == "error" else curve.bounds[name]
                values = np.where(values > curve.rounding, values, np.nan)
                axes.plot(curve.m, values, color=COLOUR[name], linestyle=DASH[name], label=None if k else label)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_title(f"$S = {curve.S}$")
            axes.tick_params(labelbottom=True)
        for axes in cells[len(curves) :]:
            axes.set_axis_off()
        top = np.nanmax([curve.bounds["B"] for curve in curves])
        low = np.nanmin([np.where(curve.error > curve.rounding, curve.error, np.nan) for curve in curves])
        cells[0].set_ylim(low / 3, top * 30)
        figure.supxlabel("iterations $m$", fontsize=8)
        figure.supylabel(r"$\|v^{(m)} - \mathrm{d}_\lambda f\|$ and bounds", fontsize=8)
        figure.legend(loc="outside upper center", ncols=5)
        return picture(
            figure,
            f"curves_{case.name.replace(' ', '_').replace('=', '')}",
            f"Error and bounds against m: {case.name}",
            f"Random digraph, η = {curves[0].eta:g}, realised constants. Corollary 1 is drawn where its printed "
            "condition "
            "on S holds; A may leave the top of the panel.",
        )
