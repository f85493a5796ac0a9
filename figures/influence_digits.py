"""Influence on digits over 10 clients: predicted against actual change, for instances and for clients."""

from __future__ import annotations

from figures.experiments.influence.real_data import experiment
from figures.influence_breast_cancer import draw
from figures.options import Options
from reporting.store import Experiment

__all__ = ["SHOWS", "draw", "experiments"]
SHOWS = "Digits, 10 clients: the order of influence is predicted well, its size less so; 50 instances, clients"


def experiments(options: Options) -> dict[str, Experiment]:
    """Predictions and exact retrainings."""
    return {"real": experiment("digits", **options.computation)}
