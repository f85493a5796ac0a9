"""Appendix Fig. 2c: Fig. 2b where training and HGP draw mini-batches.

A mini-batch prediction is right about the steps that its own batches make (first row: M steps on the batches of HGP,
the last one first, held to x), and about full batches in the mean only: bars in the second row are one standard
deviation over sequences of batches. The third row is the paper's way. `experiments.influence.cnn` derives this and
`table_minibatch` has the numbers.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from figures.experiments.influence.cnn import experiment
from figures.figA2b import WAYS, Panels, compare_with_paper, draw_panels
from figures.options import Data, Options, Row
from reporting.store import Experiment

SHOWS = "The same with mini-batches in training and in HGP; steps on HGP's own batches, full-batch steps, from scratch"
BY_VARIANT = False
BY_SIZE = True


def experiments(options: Options) -> dict[str, Experiment]:
    """Predictions and all retrainings with mini-batches."""
    return {"cnn": experiment(options.size, mini_batch=True, quick=options.quick, backend=options.backend)}


def draw(data: Data, options: Options) -> Figure:
    """A panel for each way of retraining and each kind of removal."""
    d = data["cnn"]
    rows = [
        Panels("the same batches", d["held"], d["shared"]),
        Panels(WAYS["continued"], d["continued"], d["predicted"][0], np.std(d["repeated"], axis=0, ddof=1)),
        Panels(WAYS["scratch"], d["scratch"], d["predicted"][0]),
    ]
    return draw_panels(d, rows, "removed from a CNN's training data, mini-batches")


def compare(data: Data, options: Options) -> list[Row]:
    """R² and F1 beside the paper's."""
    return [] if options.quick else compare_with_paper(data["cnn"], "mini", options)
