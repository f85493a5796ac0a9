"""Fig. 1b: error of HGP with mini-batches of 20.

The published program measures it against a "true" hyper-gradient that is itself computed from one mini-batch per
client. Part of its plateau is therefore noise of the reference; the variant `published` shows this. The variant `paper`
has the full-batch truth. `fig1b_corrected` shows both.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from figures.curves import draw_curves, scaled
from figures.experiments.estimation import for_variant
from figures.options import Data, Options, Row, near
from figures.reference import ERROR_MINI_BATCH, STEPS
from reporting.store import Experiment

SHOWS = "Errors with mini-batches of 20 level off; `published`: at the noise of a reference from one mini-batch"
BY_VARIANT = True
BATCH = 20


def experiments(options: Options) -> dict[str, Experiment]:
    """Mini-batch errors, against both kinds of reference."""
    return {"errors": for_variant(options.variant, BATCH, **options.computation)}


def draw(data: Data, options: Options) -> Figure:
    """Mean error for each S, against the reference of the variant."""
    return draw_curves(data["errors"], options, kind=reference_of(options))


def reference_of(options: Options) -> str:
    """Which errors the variant shows."""
    return "errors_printed" if options.variant == "published" else "errors"


def compare(data: Data, options: Options) -> list[Row]:
    """Against the full-batch truth at m = 1000, as the numbers to compare with are."""
    if options.quick or options.variant != "published":
        return []
    last = scaled(data["errors"]["errors"], options).mean(axis=1)[:, -1]
    return [
        near(f"mini-batch error, S={S}, m=1000", float(last[k]), ERROR_MINI_BATCH[S], "full-batch truth")
        for k, S in enumerate(STEPS)
    ]
