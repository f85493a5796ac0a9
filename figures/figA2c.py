"""Appendix Fig. 2c: Fig. 2b with mini-batches in training and in HGP.

A mini-batch prediction is right for steps on the same batches (first row: M steps on the batches of HGP, the last one
first, with gradients at x subtracted). For full batches it is right only in the mean: bars in the second row are one
standard deviation over sequences of batches. The third row retrains as the paper does. `experiments.influence.cnn`
derives this, and `table_minibatch` has the numbers.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from figures.experiments.influence.cnn import experiment
from figures.figA2b import RETRAININGS, Panels, compare_with_paper, draw_panels
from figures.options import INFLUENCE_SIZES, Data, Options, Row
from reporting.store import Experiment

SHOWS = "With mini-batches a CNN is predicted well for the same batches, less well for others and from scratch"
SIZES = INFLUENCE_SIZES


def experiments(options: Options) -> dict[str, Experiment]:
    """Predictions and all retrainings with mini-batches."""
    return {"cnn": experiment(options.size, mini_batch=True, **options.computation)}


def draw(data: Data, options: Options) -> Figure:
    """One panel per retraining and kind of removal."""
    d = data["cnn"]
    rows = [
        Panels("the same batches", d["held"], d["shared"]),
        Panels(RETRAININGS["continued"], d["continued"], d["predicted"][0], np.std(d["repeated"], axis=0, ddof=1)),
        Panels(RETRAININGS["scratch"], d["scratch"], d["predicted"][0]),
    ]
    return draw_panels(d, rows, "removed from a CNN's training data, mini-batches")


def compare(data: Data, options: Options) -> list[Row]:
    """R² and F1, and the paper's."""
    return [] if options.quick else compare_with_paper(data["cnn"], "mini", options)
