"""Influence on breast cancer over 10 clients: predicted against actual change, for instances and for clients."""

from __future__ import annotations

from matplotlib.figure import Figure

from figures.experiments.influence.real_data import experiment
from figures.options import Data, Options
from figures.scatter import draw_instances_and_clients
from reporting.store import Experiment

SHOWS = "Breast cancer, 10 clients: the order of influence is predicted well, its size less so; 50 instances, clients"


def experiments(options: Options) -> dict[str, Experiment]:
    """Predictions and exact retrainings."""
    return {"real": experiment("breast_cancer", **options.computation)}


def draw(data: Data, options: Options) -> Figure:
    """Instances to the left, clients to the right."""
    return draw_instances_and_clients(data["real"])
