"""Appendix Fig. 2c: Fig. 2b where training and HGP draw mini-batches."""

from __future__ import annotations

from matplotlib.figure import Figure

from figures.cnn import experiment
from figures.figA2b import compare_with_paper, draw_panels
from figures.options import Data, Options, Row
from reporting.store import Experiment

SHOWS = "The same with mini-batches in training and in HGP"
BY_VARIANT = False
BY_SIZE = True


def experiments(options: Options) -> dict[str, Experiment]:
    """Predictions and both retrainings with mini-batches."""
    return {"cnn": experiment(options.size, mini_batch=True, quick=options.quick, backend=options.backend)}


def draw(data: Data, options: Options) -> Figure:
    """A panel for each way of retraining and each kind of removal."""
    return draw_panels(data["cnn"], "removed from a CNN's training data, mini-batches")


def compare(data: Data, options: Options) -> list[Row]:
    """R² and F1 beside the paper's."""
    return [] if options.quick else compare_with_paper(data["cnn"], "mini", options)
